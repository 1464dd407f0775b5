"""The proof, on the executors: every record of the source is looked for among the rows of the table.

Source: spec of evolution, section 3, "conservation proof".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.model.type import StructType
from widen.observe.document import Document, parse
from widen.observe.file_field import FileFields
from widen.planning.policy import Policy
from widen.routing.proof import Proof, digest
from widen.spark.arrow import in_utc
from widen.spark.batch import Positions
from widen.spark.failure import translated
from widen.spark.raw import TEXT

DIGEST, LEAVES, PLACE, SIDE = "digest", "leaves", "place", "side"
ROW = "row"
"""Rows travel as one column, since ``mapInArrow`` takes a dot in the name of a column for a step into it."""

SHOWN = 10
"""How many lost records are named."""

_RECORDS = pa.schema([(DIGEST, pa.binary()), (LEAVES, pa.int64()), (PLACE, pa.string())])
_SUMS = ("records", "leaves", "exact", "missing", "extra")
DDL = f"{DIGEST} binary, {LEAVES} bigint, {PLACE} string"


@dataclass(frozen=True, slots=True)
class Verification:
    """What the proof says.

    Args:
        records: The records of the source; a text that is no record counts as one.
        leaves: The values in them.
        exact: How many of those values are in rows that say the very same as their record.
        lost: Where some of the records stand that no row says: the file and the number in it.
        extra: The rows that no record accounts for.
        share: What share of the records and rows was compared; 1 for all of them.
    """

    records: int
    leaves: int
    exact: int
    lost: tuple[str, ...] = ()
    extra: int = 0
    share: float = 1.0

    @property
    def is_clean(self) -> bool:
        """Whether everything came through."""
        return self.exact == self.leaves and not self.lost and not self.extra

    def __str__(self) -> str:
        sample = "" if self.share >= 1 else f" in a sample of {self.share:.2%} of the records"
        return f"{self.exact} of {self.leaves} leaves exact{sample}"

    def to_value(self) -> dict[str, Any]:
        """Return the proof as a JSON object."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


def verify(source: DataFrame, there: DataFrame, share: float = 1.0) -> Verification:
    """Compare what records say with what rows say of them, leaf by leaf.

    Args:
        source: A row for each record: `DIGEST`, `LEAVES` and `PLACE`.
        there: A row for each row of the table, and for each record that is kept out of it; likewise.
        share: What share of the records is compared, with their rows. What they say chooses them: they are always the
            same.

    Raises:
        CorruptFile: a file cannot be read.
        StorageError: the store refused.

    Source: spec of evolution, section 3.
    """
    sides = source.withColumn(SIDE, F.lit(1)).unionAll(there.withColumn(SIDE, F.lit(-1)))
    found = _compared(sides if share >= 1 else sides.where(F.crc32(DIGEST) < int(share * 2**32)))
    lost = found.where(F.col("missing") > 0)
    with translated():
        sums = found.agg(*(F.coalesce(F.sum(name), F.lit(0)).cast("bigint") for name in _SUMS)).collect()[0]
        records, leaves, exact, missing, extra = sums
        places = [row[PLACE] for row in lost.select(PLACE).limit(SHOWN).collect()] if missing else []
    return Verification(records, leaves, exact, tuple(sorted(places)), extra, share)


def text_digests(
    texts: DataFrame, schema: StructType, policy: Policy | None = None, file_fields: FileFields | None = None
) -> DataFrame:
    """Return a row for each record of a raw batch: a digest of what it says, how many leaves it has, where it stands.

    Args:
        texts: The raw batch.
        schema: Of the table that holds the records.
        policy: How their values were taken, and which columns cannot yield.
        file_fields: Which fields the records get from their files.
    """
    return texts.mapInArrow(partial(_source_digests, schema, policy or Policy(), file_fields), DDL)


def found_digests(rows: DataFrame, schema: StructType, policy: Policy, kept_out: DataFrame | None = None) -> DataFrame:
    """Return what the rows of a table, and what is kept out of it, say of JSON records, as `text_digests` does.

    Args:
        rows: The rows.
        schema: Of the table.
        policy: How values were taken, and which columns cannot yield.
        kept_out: The texts of what is kept out, in a column `TEXT`.
    """
    there = rows.select(F.struct("*").alias(ROW)).mapInArrow(partial(_row_digests, schema, policy), DDL)
    if kept_out is None:
        return there
    return there.unionAll(kept_out.mapInArrow(partial(_kept_out_digests, schema, policy), DDL))


def _compared(sides: DataFrame) -> DataFrame:
    """Return for each form that occurs: the records, their leaves, and how many rows are missing or extra."""
    is_source = F.col(SIDE) == 1
    grouped = sides.groupBy(DIGEST).agg(
        F.count_if(is_source).alias("records"),
        F.count_if(~is_source).alias("rows"),
        F.max(LEAVES).alias("each"),
        F.min(PLACE).alias(PLACE),
    )
    return grouped.select(
        "records",
        (F.col("records") * F.coalesce("each", F.lit(0))).alias("leaves"),
        (F.least("records", "rows") * F.coalesce("each", F.lit(0))).alias("exact"),
        F.greatest(F.col("records") - F.col("rows"), F.lit(0)).alias("missing"),
        F.greatest(F.col("rows") - F.col("records"), F.lit(0)).alias("extra"),
        PLACE,
    )


def _source_digests(
    schema: StructType, policy: Policy, file_fields: FileFields | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    proof, positions = Proof(schema, policy), Positions()
    for batch in batches:
        yield _batch(
            item
            for texts, places, _ in positions.texts(batch)
            for text, (file, number) in zip(texts, places, strict=True)
            if text.strip()
            for item in _of_text(proof, text, f"{file}:{number}", _told_by(file, file_fields))
        )


def _told_by(file: str, file_fields: FileFields | None) -> list[tuple[str, str | None]]:
    """Return what a file says of its records, read off its URI anew: nothing here is shared with what makes rows."""
    if file_fields is None:
        return []
    found: list[tuple[str, str | None]] = []
    for key, value in _FOLDER.findall(file) if file_fields.has_folders else ():
        name, text = (_hive(unquote(each)) for each in (key, value))
        found.append((f"{name}=", None if text in ("", "__HIVE_DEFAULT_PARTITION__") else text))
    if file_fields.loaded_at is not None:
        found.append(("_source_file=", re.sub(r" from byte [0-9]+$", "", file) or None))
        found.append(("_loaded_at=", file_fields.loaded_at))
    return found


_FOLDER = re.compile(r"(?:^|(?<=/))([^/=]+)=([^/]*)(?=/)")


def _hive(text: str) -> str:
    found = unquote(text)
    return text if "\ufffd" in found and "\ufffd" not in text else found


def _of_text(proof: Proof, text: bytes, place: str, told: Sequence[tuple[str, str | None]]) -> Iterator[dict[str, Any]]:
    match parse(text):
        case dict() as record:
            yield _of_record(proof, _with_told(record, told), place)
        case [*records] if all(isinstance(record, dict) for record in records):
            yield from (_of_record(proof, _with_told(record, told), place) for record in records)
        case _:
            yield {DIGEST: digest(proof.of_corrupt(text)), LEAVES: 1, PLACE: place}


def _with_told(record: dict[str, Document], told: Sequence[tuple[str, str | None]]) -> dict[str, Document]:
    found = dict(record)
    for key, value in told:
        signs = next(signs for signs in count() if key + "=" * signs not in found)
        found[key + "=" * signs] = value
    return found


def _of_record(proof: Proof, record: dict[str, Document], place: str) -> dict[str, Any]:
    return {DIGEST: digest(proof.of_record(record)), LEAVES: proof.count_leaves(record), PLACE: place}


def _row_digests(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    proof = Proof(schema, policy)
    for batch in batches:
        yield _batch({DIGEST: digest(proof.of_row(row))} for row in in_utc(batch.column(0)).to_pylist())


def _kept_out_digests(
    schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    proof = Proof(schema, policy)
    for batch in batches:
        yield _batch({DIGEST: digest(proof.of_kept_out(text))} for text in batch.column(TEXT).to_pylist())


def _batch(items: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(items), schema=_RECORDS)
