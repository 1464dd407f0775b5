"""Files are kept only if they hold every record, in the columns that all records together need."""

from __future__ import annotations

from pathlib import Path

import pytest

from widen.batches.text_batch import BatchResult
from widen.errors import InternalError
from widen.evolution.policy import Policy
from widen.ingestion.commit_batch import MAX_PASSES, write_until_plan_is_stable
from widen.json.document import parse_document
from widen.json.observation import Observation, observe_record
from widen.log.log_store import LogStore
from widen.protocol.actions import Add
from widen.targets.delta import DeltaTarget
from widen.targets.table_format import TableDraft


def test_a_pass_that_confirms_its_plan_is_the_last(tmp_path: Path) -> None:
    passes: list[tuple[str, ...]] = []
    written = write_until_plan_is_stable(
        _target(tmp_path), Observation(), lambda attempt, _: _pass(passes, attempt, b'{"a":1}')
    )
    assert passes == [(), ("a",)]
    assert written.plan.schema.names == ("a",)
    assert written.result.seen.records == 1


def test_a_pass_that_misses_a_record_is_repeated_and_leaves_no_file(tmp_path: Path) -> None:
    passes: list[tuple[str, ...]] = []

    def write(attempt: object, _: TableDraft) -> BatchResult:
        done = _pass(passes, attempt, b'{"a":1}')
        job = f"{len(passes):032x}"
        (tmp_path / job).mkdir(parents=True)
        (tmp_path / job / "part.parquet").write_bytes(b"PAR1")
        path = f"{job}/part.parquet"
        add = Add(path=path, partition_values={}, size=4, modification_time=0, data_change=True)
        return BatchResult([add], done.seen, is_complete=False)

    with pytest.raises(InternalError):
        write_until_plan_is_stable(_target(tmp_path), Observation(), write)
    assert len(passes) == MAX_PASSES
    assert list(tmp_path.rglob("*.parquet")) == []


def test_a_field_of_every_record_is_counted_exactly(tmp_path: Path) -> None:
    """Tasks stop counting values that have a column, but no record has two values of a field."""
    texts = [b'{"id":1}', *[b'{"id":2,"rare":true}'] * 299]
    seen = Observation(records=300)
    for number, text in enumerate(texts, 1):
        observe_record(seen.root, parse_document(text), ("file", number))
    written = write_until_plan_is_stable(_target(tmp_path), Observation(), lambda _, __: BatchResult([], seen))
    at_least = {event.column: event.at_least for event in written.plan.events}
    assert at_least == {("id",): False, ("rare",): True}


def _target(place: Path) -> DeltaTarget:
    return DeltaTarget(LogStore(str(place)), None, Policy())


def _pass(passes: list[tuple[str, ...]], attempt: object, text: bytes) -> BatchResult:
    passes.append(attempt.schema.names)  # type: ignore[attr-defined]
    seen = Observation(records=1)
    observe_record(seen.root, parse_document(text), ("file", 1))
    return BatchResult([], seen)
