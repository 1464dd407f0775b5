"""Whatever goes wrong in one call to the store, no committed file, no acknowledged version and no truth is lost.

These operations only touch the log; those that run jobs are in `tests/engine/test_faults.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.fault import Operation, chosen, complaints, faults_of
from widen.log.read.snapshot import open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.checkpoint_barrier import ensure_checkpoint
from widen.log.write.commit import StagedFiles, commit
from widen.log.write.log_cleanup import clean_up
from widen.protocol.actions import Add
from widen.table import Table, create_table

pytestmark = pytest.mark.sweep

CI_FAULTS = 24
"""How many faults of one operation a run takes that is not asked for all of them."""

EVERY_VERSION = {"delta.checkpointInterval": "1", "delta.enableTypeWidening": "true"}
POLICIES = {"classic": {}, "v2": {"delta.checkpointPolicy": "v2"}}


def add(store: LogStore, path: str) -> Add:
    store.put(path, b"rows")
    stats = '{"numRecords":1}'
    return Add(path=path, partition_values={}, size=4, modification_time=1, data_change=True, stats=stats)


def append(place: Path, path: str = "job/n.parquet") -> int:
    """What every change of rows does, without the job that writes them."""
    store = LogStore(str(place / "t"))
    base = open_snapshot(store)
    with StagedFiles() as staged:
        file = add(store, path)
        staged.add_files(store, [file])
        outcome = commit(store, base, [file], "WRITE", {"mode": "Append"}, staged=staged)
    return outcome.or_raise().snapshot.version


def prepare(place: Path, **properties: str) -> None:
    wanted = {**EVERY_VERSION, "delta.columnMapping.mode": "name", **properties}
    create_table(str(place / "t"), "a int, b string", properties=wanted)
    append(place, "first/m.parquet")


def prepare_without_files(place: Path) -> None:
    create_table(str(place / "t"), "a int", properties=EVERY_VERSION)
    Table(str(place / "t")).alter_column("a", type="long")


def clean(place: Path) -> None:
    table = Table(str(place / "t"))
    clean_up(table.snapshot, retention_ms=0, unit_ms=1, now_ms=0)


def checkpoint(place: Path) -> None:
    store = LogStore(str(place / "t"))
    for path in (place / "t" / "_delta_log").glob("*checkpoint*"):
        path.unlink()
    ensure_checkpoint(store, open_snapshot(store).version)


def table(place: Path) -> Table:
    return Table(str(place / "t"))


def create(place: Path) -> int:
    return create_table(str(place / "t"), "a int", properties=EVERY_VERSION).version


STEPS = {
    "append": append,
    "set properties": lambda place: table(place).set_properties({"k": "v"}).version,
    "widen": lambda place: table(place).alter_column("a", type="long").version,
    "add column": lambda place: table(place).add_columns({"c": "int"}).version,
    "rename column": lambda place: table(place).rename_column("a", "z").version,
    "drop column": lambda place: table(place).drop_columns("b").version,
    "add feature": lambda place: table(place).add_feature("appendOnly").version,
    "restore": lambda place: table(place).restore(0).version,
    "checkpoint": checkpoint,
    "cleanup": clean,
}
OPERATIONS = [
    Operation("create", lambda place: place.mkdir(), create),
    *(
        Operation(f"{name} ({policy})", lambda place, more=more: prepare(place, **more), run)
        for policy, more in POLICIES.items()
        for name, run in STEPS.items()
    ),
    Operation(
        "row tracking",
        prepare,
        lambda place: table(place).set_properties({"delta.enableRowTracking": "true"}).version,
        is_one_commit=False,
    ),
    Operation(
        "drop feature",
        prepare_without_files,
        lambda place: table(place).drop_feature("typeWidening").version,
        is_one_commit=False,
    ),
    Operation(
        "clear type history",
        prepare_without_files,
        lambda place: table(place).rewrite(clear_history=True).version,
    ),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_no_fault_of_the_store_loses_anything(
    tmp_path: Path, operation: Operation, record_testsuite_property: Callable[[str, object], None]
) -> None:
    template, work = tmp_path / "template", tmp_path / "work"
    spots = chosen(faults_of(operation, template, work), CI_FAULTS, operation.name)
    record_testsuite_property(f"faults of {operation.name}", len(spots))
    assert len(spots) >= CI_FAULTS
    assert [wrong for spot in spots for wrong in complaints(operation, template, work, spot)] == []
