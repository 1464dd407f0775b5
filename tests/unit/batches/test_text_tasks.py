"""A task that learns that the plan will change: what it observes, and how exactly."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from widen.batches import text_tasks
from widen.batches.text_tasks import (
    MIN_COUNTED_RECORDS,
    NOTE,
    BatchWriteSpec,
    _run_task,
    collect_notes,
    merge_notes,
    split_notes,
)
from widen.errors import StorageError
from widen.evolution.evolve import evolve
from widen.evolution.plan import Plan
from widen.evolution.policy import Policy
from widen.files.data_writer import PartSink, PartWriter
from widen.json.kinds import Kind
from widen.json.observation import Observation
from widen.log.log_store import LogStore
from widen.model.types import STRING, Field, StructType
from widen.rows.row_builder import OriginColumn
from widen.sources.csv_dialect import EXACT_VALUES, parse_dialect
from widen.sources.csv_frames import CsvRanges
from widen.sources.file_ranges import CSV_RANGES_PART, FileRange, as_raw_records, range_batch

NUMBER, TEXT, TRUE = b'{"a": 1}', b'{"a": "x"}', b'{"a": true}'


def first_pass(
    *, is_exhaustive: bool = False, policy: Policy | None = None, origin: OriginColumn | None = None
) -> BatchWriteSpec:
    policy = policy or Policy()
    schema = evolve(None, Observation(), policy).schema
    return BatchWriteSpec(None, Observation().to_json(), schema, policy, is_exhaustive, origin=origin)


def observed(
    texts: list[bytes] | pa.RecordBatch, *, is_exhaustive: bool = False, policy: Policy | None = None
) -> Observation:
    batch = as_raw_records(texts, "file:/a.jsonl") if isinstance(texts, list) else texts
    return merge_notes(collect_notes(batch, first_pass(is_exhaustive=is_exhaustive, policy=policy)))


def counts(seen: Observation) -> dict[str, int]:
    return {str(kind): values.count for kind, values in seen.root["a"].kinds.items()}


def test_the_values_of_a_small_batch_are_all_counted() -> None:
    seen = observed([NUMBER] * (MIN_COUNTED_RECORDS - 10) + [TEXT] * 10)
    assert counts(seen) == {"long": MIN_COUNTED_RECORDS - 10, "string": 10}


def test_of_a_large_batch_only_records_that_bring_more_are_read_exactly() -> None:
    seen = observed([NUMBER] * 1_500 + [TEXT] + [NUMBER] * 300)
    assert seen.records == 1_801
    assert counts(seen) == {"long": MIN_COUNTED_RECORDS, "string": 1}
    assert seen.root["a"].kinds[Kind("string")].first == ("file:/a.jsonl", 1_501)


def test_a_first_pass_ends_early_and_a_later_one_reads_everything() -> None:
    texts = [NUMBER] * 5_000 + [TEXT] * 5_000 + [TRUE]
    assert counts(observed(texts)).keys() == {"long"}
    seen = observed(texts, is_exhaustive=True)
    assert seen.records == 10_001
    assert counts(seen).keys() == {"long", "string", "boolean"}


def test_keys_are_counted_where_maps_are_detected() -> None:
    texts = [b'{"a": {"k%d": 1}}' % (number % 60) for number in range(1_800)]
    seen = observed(texts, policy=Policy(detects_maps=True))
    assert counts(seen) == {"record": 1_800}
    assert evolve(None, seen, Policy(detects_maps=True)).schema != StructType()
    assert counts(observed(texts))["record"] < 1_800


def test_a_source_with_new_keys_in_every_record_is_not_planned_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plans: list[Observation] = []

    def evolve_and_count(base: StructType | None, seen: Observation, policy: Policy) -> Plan:
        plans.append(seen)
        return evolve(base, seen, policy)

    monkeypatch.setattr(text_tasks, "evolve", evolve_and_count)
    seen = observed([b'{"a":1,"k%d":1}' % (number // 10) for number in range(9_000)], is_exhaustive=True)
    assert len(seen.root) == 901
    assert len(plans) <= 8


def test_rows_of_csv_are_observed_in_the_same_way(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("a,b\n" + "1,x\n" * 11_000 + "z,true\n" * 100 + "2.5,y\n")
    dialect = parse_dialect({}, detects=EXACT_VALUES, is_tabbed=False)
    ranges = CsvRanges([FileRange(f"file:{file}", 0, file.stat().st_size)], dialect)
    batch = range_batch(msgspec.json.encode(ranges), CSV_RANGES_PART)
    assert observed(batch).records == 2_000
    seen = observed(batch, is_exhaustive=True)
    assert seen.records == 11_101
    assert counts(seen).keys() == {"long", "string", "double"}
    assert {str(kind) for kind in seen.root["b"].kinds} == {"string", "boolean"}
    assert counts(seen)["long"] == MIN_COUNTED_RECORDS


def test_rows_that_come_with_their_texts_are_observed_in_the_same_way() -> None:
    texts = as_raw_records([NUMBER] * 1_500 + [TEXT], "file:/a.jsonl")
    [rows] = _run_task(first_pass(origin=OriginColumn("origin", is_for_all=True)), [texts])
    [note] = split_notes(rows.column(NOTE)[0].as_py().decode())
    assert counts(merge_notes([note])) == {"long": MIN_COUNTED_RECORDS, "string": 1}


def test_rows_of_long_texts_are_made_before_they_are_too_large_for_a_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_tasks, "MAX_BATCH_BYTES", 50_000)
    texts = [b'{"a": "%s"}' % (b"x" * 10_000) for _ in range(9)]
    schema = StructType((Field("a", STRING),))
    spec = replace(first_pass(), base=schema, schema=schema)
    task = text_tasks._TextTask(spec, pa.schema([("a", pa.string())]))
    batches = [each.num_rows for each in task.run(as_raw_records([text], "file:/a.jsonl") for text in texts)]
    assert batches == [5, 4]


def test_a_task_that_cannot_finish_its_files_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs it again with other names, and only those of the attempt that succeeds are in the commit."""
    failures, finish = [OSError(errno.ENOSPC, "No space left on device")], PartWriter._finish

    def finish_on_a_full_disk(writer: PartWriter) -> None:
        if failures:
            raise failures.pop()
        finish(writer)

    monkeypatch.setattr(PartWriter, "_finish", finish_on_a_full_disk)
    schema = StructType((Field("a", STRING),))
    sink = PartSink(LogStore(str(tmp_path)), "job", "none", lambda *_: ("", ""))
    spec = replace(first_pass(), base=schema, schema=schema, sink=sink)
    with pytest.raises(StorageError, match="disk is full"):
        collect_notes(as_raw_records([TEXT], "file:/a.jsonl"), spec)
    assert not failures
    assert [*tmp_path.rglob("*.parquet")] == []
