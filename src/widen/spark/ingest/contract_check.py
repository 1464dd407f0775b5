"""Hold the records of a batch against a contract, on the executors.

Source: docs/guide/gate.md#contract
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any

import msgspec
import pyarrow as pa

from widen.json.contract import Breach, find_breaches
from widen.json.document import InvalidJson, parse_document
from widen.json.observation import RecordPosition
from widen.spark.errors import translate_spark_errors
from widen.spark.ingest.text_tasks import NOTE, RecordPositions, read_text_groups
from widen.spark.source.file_ranges import RawTexts
from widen.spark.spark_types import DataFrame

MAX_LISTED = 100
"""The maximum number of breaches that are listed with their place; all are counted."""

MAX_COUNTED = 1_000
"""The maximum number of different breaches that are counted apart."""

PLACED_TEXT = ("text", "file", "number")
"""The columns of records with their place: the JSON text, the file, and the number in it."""

_NO_RECORD = "is not a record"


class ContractReport(msgspec.Struct, frozen=True):
    """How a batch keeps a contract.

    Args:
        breaches: The number of breaches, all of them.
        counts: The number of breaches by field and reason; further fields are under an empty name.
        listed: The first breaches, by file and number.
        unchecked: Rules of the contract that records cannot be held to one by one, e.g. ``id: unique``.
    """

    records: int = 0
    breaches: int = 0
    counts: list[tuple[str, str, int]] = []
    listed: list[tuple[str, int, str, str]] = []
    unchecked: list[str] = []

    def merged(self, other: ContractReport) -> ContractReport:
        """Return the report of both."""
        counts: dict[tuple[str, str], int] = {}
        for path, reason, count in (*self.counts, *other.counts):
            key = (path, reason) if (path, reason) in counts or len(counts) < MAX_COUNTED else ("", "")
            counts[key] = counts.get(key, 0) + count
        return ContractReport(
            self.records + other.records,
            self.breaches + other.breaches,
            [(*key, count) for key, count in counts.items()],
            sorted([*self.listed, *other.listed])[:MAX_LISTED],
        )

    def to_value(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "records": self.records,
            "breaches": self.breaches,
            "counts": [{"field": path, "reason": reason, "count": count} for path, reason, count in self.counts],
            "listed": [
                {"file": file, "line": number, "field": path, "reason": reason}
                for file, number, path, reason in self.listed
            ],
            "unchecked": self.unchecked,
        }


def check_texts(texts: RawTexts, contract: object) -> ContractReport:
    """Hold a raw batch against a contract.

    Args:
        texts: A raw batch; see `widen.spark.source.json_texts`.
        contract: The contract; see `widen.json.contract.ensure_contract`.
    """
    return _collect(texts, partial(_check_batches, contract))


def check_contract_rows(rows: DataFrame, contract: object) -> ContractReport:
    """Hold records with their places against a contract.

    Args:
        rows: The columns of `PLACED_TEXT`.
    """
    return _collect(rows, partial(_check_placed, contract))


def _collect(frame: RawTexts, task: Any) -> ContractReport:
    with translate_spark_errors():
        notes = frame.mapInArrow(task, f"{NOTE} binary").toArrow()[NOTE].to_pylist()
    reports = (msgspec.json.decode(each, type=ContractReport) for each in notes)
    return reduce(ContractReport.merged, reports, ContractReport())


def _check_batches(contract: object, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    positions, report = RecordPositions(), ContractReport()
    for group in read_text_groups(batches):
        for texts, places in positions.texts(group):
            report = report.merged(_check(contract, texts, places, group.reasons))
    yield _to_note(report)


def _check_placed(contract: object, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    report = ContractReport()
    for batch in batches:
        texts, files, numbers = (batch.column(name).to_pylist() for name in PLACED_TEXT)
        places = list(zip(files, numbers, strict=True))
        report = report.merged(_check(contract, [text.encode() for text in texts], places))
    yield _to_note(report)


def _to_note(report: ContractReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{NOTE: msgspec.json.encode(report)}])


def _check(
    contract: object, texts: Sequence[bytes], places: Sequence[RecordPosition], reasons: Sequence[str] | None = None
) -> ContractReport:
    counts: dict[tuple[str, str], int] = {}
    listed: list[tuple[str, int, str, str]] = []
    records = 0
    for at, (text, (file, number)) in enumerate(zip(texts, places, strict=True)):
        for document in _records(text) if reasons is None else [InvalidJson(reasons[at])]:
            records += 1
            for breach in _breaches(contract, document):
                key = (breach.path, breach.reason)
                counts[key] = counts.get(key, 0) + 1
                if len(listed) < MAX_LISTED:
                    listed.append((file, number, *key))
    return ContractReport(records, sum(counts.values()), [(*key, count) for key, count in counts.items()], listed)


def _records(text: bytes) -> list[Any]:
    if not text.strip():
        return []
    document = parse_document(text)
    is_list = isinstance(document, list) and all(isinstance(each, dict) for each in document)
    return document if is_list else [document]  # type: ignore[return-value]


def _breaches(contract: object, document: Any) -> Iterator[Breach]:
    if isinstance(document, InvalidJson):
        yield Breach("the record", f"{_NO_RECORD}: {document.reason}")
    elif not isinstance(document, dict):
        yield Breach("the record", _NO_RECORD)
    else:
        yield from find_breaches(contract, document)
