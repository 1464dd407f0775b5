"""Whatever goes wrong in one call to the store, no committed file, no acknowledged version and no truth is lost.

These operations only touch the log; those that run jobs are in `tests/engine/test_faults.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest

from support.fault import Operation, chosen, complaints, faults_of
from support.log_writer import append
from support.simulation.decoded import log_decoded_once
from widen.cli import maintenance_commands as handover_command
from widen.cli.shared_options import OutputOptions
from widen.log.checkpoint_writer import DAY_MS, clean_up
from widen.log.commit_files import current_ms
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.proof import column_digests
from widen.table import Table, create_table
from widen.table.maintenance import ensure_checkpoint

pytestmark = pytest.mark.sweep

CI_FAULTS = 12
"""How many faults of one operation a run takes that is not asked for all of them."""

EVERY_VERSION = {"delta.checkpointInterval": "1", "delta.enableTypeWidening": "true"}
POLICIES = {"classic": {}, "v2": {"delta.checkpointPolicy": "v2"}}


def prepare(place: Path, **properties: str) -> None:
    wanted = {**EVERY_VERSION, "delta.columnMapping.mode": "name", **properties}
    create_table(str(place / "t"), "a int, b string", properties=wanted)
    append(place, "first/m.parquet")


def prepare_without_files(place: Path) -> None:
    create_table(str(place / "t"), "a int", properties=EVERY_VERSION)
    Table(str(place / "t")).alter_column("a", type="long")


def prepare_expired(place: Path, **properties: str) -> None:
    """Make versions 0 to 3 so old that a cleanup deletes those before the checkpoint of version 3."""
    prepare(place, **properties)
    for number in range(3):
        append(place, f"more{number}/m.parquet")
    old = (current_ms() - 100 * DAY_MS) / 1000
    for path in (place / "t" / "_delta_log").rglob("*"):
        if path.is_file() and not path.name.startswith(f"{4:020d}"):  # sidecars as well, also those in use
            os.utime(path, (old, old))


def clean(place: Path) -> None:
    assert clean_up(Table(str(place / "t")).snapshot, retention_ms=DAY_MS)


def checkpoint(place: Path) -> None:
    store = LogStore(str(place / "t"))
    for path in (place / "t" / "_delta_log").glob("*checkpoint*"):
        path.unlink()
    ensure_checkpoint(store, open_snapshot(store).version)


def table(place: Path) -> Table:
    return Table(str(place / "t"))


def create(place: Path) -> int:
    return create_table(str(place / "t"), "a int", properties=EVERY_VERSION).version


def prepare_deleted(place: Path) -> None:
    """Leave files in the table that no version needs, some of them in folders."""
    prepare(place)
    old = (current_ms() - 100 * DAY_MS) / 1000
    for name in ("a.parquet", "p=1/b.parquet", "p=2/c.parquet"):
        path = place / "t" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
        os.utime(path, (old, old))


def hand_over(place: Path, *, installed: bool = False) -> int:
    """Hand the table over, and return the version that the command acknowledges.

    Whether a client reads the table is not a question of the store: it is not installed, or has no reader, so that only
    our side of the proof is made.
    """
    shown = StringIO()
    with (
        mock.patch.object(handover_command, "find_spec", return_value=installed or None),
        mock.patch.object(column_digests, "find_readers", return_value=[]),
        redirect_stdout(shown),
    ):
        handover_command.handover(str(place / "t"), "polars", OutputOptions(json=True))
    # Read from the answer: another look at the store would be a call of ours that the faults hit as well.
    return int(json.loads(shown.getvalue())["version"])


STEPS = {
    "append": append,
    "set properties": lambda place: table(place).set_properties({"k": "v"}).version,
    "widen": lambda place: table(place).alter_column("a", type="long").version,
    "add column": lambda place: table(place).add_columns({"c": "int"}).version,
    "rename column": lambda place: table(place).rename_column("a", "z").version,
    "drop column": lambda place: table(place).drop_columns("b").version,
    "add feature": lambda place: table(place).add_feature("deletionVectors").version,
    "restore": lambda place: table(place).restore(0).version,
    "checkpoint": checkpoint,
}
FIRST_KEPT = 3
DROPPED = {
    "rowTracking": ("delta.enableRowTracking", "true"),
    "v2Checkpoint": ("delta.checkpointPolicy", "v2"),
    "deletionVectors": ("delta.enableDeletionVectors", "true"),
}
OPERATIONS = [
    Operation("create", lambda place: place.mkdir(), create),
    *(
        Operation(f"{name} ({policy})", partial(prepare, **more), run)
        for policy, more in POLICIES.items()
        for name, run in STEPS.items()
    ),
    *(
        Operation(f"{name} ({policy})", partial(prepare_expired, **more), run, first_kept=FIRST_KEPT)
        for policy, more in POLICIES.items()
        for name, run in {"cleanup": clean, "append with cleanup": append}.items()
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
    *(
        Operation(
            f"drop {feature}",
            partial(prepare, **{key: value}),
            lambda place, feature=feature: table(place).drop_feature(feature).version,
            is_one_commit=False,
        )
        for feature, (key, value) in DROPPED.items()
    ),
    Operation("vacuum", prepare_deleted, lambda place: table(place).vacuum().version, is_one_commit=False),
    Operation("handover", prepare_without_files, hand_over, is_one_commit=False),
    Operation("handover with proof", prepare_without_files, partial(hand_over, installed=True), is_one_commit=False),
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
    with log_decoded_once():
        spots = chosen(faults_of(operation, template, work), CI_FAULTS, operation.name)
        record_testsuite_property(f"faults of {operation.name}", len(spots))
        assert len(spots) >= CI_FAULTS
        assert [wrong for spot in spots for wrong in complaints(operation, template, work, spot)] == []
