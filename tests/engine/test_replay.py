"""What was quarantined is replayed after a fix: once, and only what fits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from widen import ingest, replay
from widen.errors import InvalidOption, TableNotFound
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.model.types import INTEGER, Field, StructType
from widen.table import Table, create_table

RECORDS = [{"n": 1, "amount": 5}, {"n": 2, "amount": -5}, {"n": 3, "amount": -900}, {"n": 4, "amount": 8}]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """A table whose condition kept two records out."""
    made = create_table(str(tmp_path / "t"), "n int, amount int")
    made.add_constraint("positive", "amount > 0", spark=spark)
    source = tmp_path / "day.json"
    source.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    ingest(str(source), made.location, spark=spark)
    return made.refresh()


def rows(spark: SparkSession, table: Table, *columns: str) -> list[Any]:
    return sorted(tuple(row) for row in table.refresh().read(spark=spark).select(*columns).collect())


def relaxed(spark: SparkSession, table: Table) -> None:
    """The fix: small losses are allowed."""
    table.refresh().drop_constraint("positive")
    table.add_constraint("bounded", "amount > -100", spark=spark)


def test_what_fits_by_now_leaves_the_quarantine_once(spark: SparkSession, table: Table) -> None:
    quarantine = Table(table.location + "_quarantine")
    assert [row[1] for row in rows(spark, quarantine, "text", "position")] == [2, 3]
    before = replay(quarantine.location, table.location, spark=spark)
    assert (before.replayed, before.left, before.version) == (0, 2, table.refresh().version)

    relaxed(spark, table)
    done = replay(quarantine.location, table.location, spark=spark)
    assert (done.replayed, done.left) == (1, 1)
    assert rows(spark, table, "n") == [(1,), (2,), (4,)]
    ((text, file, position, reason),) = rows(spark, quarantine, "text", "file", "position", "reason")
    assert (json.loads(text), file.endswith("day.json"), position) == (RECORDS[2], True, 3)
    assert "bounded" in reason

    again = replay(quarantine.location, table.location, spark=spark)
    assert (again.replayed, again.left) == (0, 1)
    assert rows(spark, table, "n") == [(1,), (2,), (4,)]


def test_bytes_that_are_not_utf_8_are_escaped_once(spark: SparkSession, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), StructType((Field("n", INTEGER, nullable=False),)))
    (tmp_path / "day.json").write_bytes(b'{"m":1}\n\xff\n')
    assert ingest(str(tmp_path / "day.json"), table.location, spark=spark).quarantined == 2
    table.refresh().alter_column("n", nullable=True)
    assert replay(f"{table.location}_quarantine", table.location, spark=spark).left == 0
    found = table.refresh().read(spark=spark).select("m", "_corrupt_record").collect()
    assert {tuple(row) for row in found} == {(1, None), (None, r"b'\xff'")}


def test_a_replay_that_was_killed_is_finished_by_the_next(
    spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine = Table(table.location + "_quarantine")
    relaxed(spark, table)

    class KilledError(BaseException):
        """What ends the process."""

    def commit_or_kill(store: LogStore, *args: Any, **extra: Any) -> Any:
        if store.location == quarantine.location:
            raise KilledError
        return commit(store, *args, **extra)

    monkeypatch.setattr("widen.targets.delta_quarantine.commit", commit_or_kill)
    with pytest.raises(KilledError):
        replay(quarantine.location, table.location, spark=spark)
    monkeypatch.undo()
    assert rows(spark, table, "n") == [(1,), (2,), (4,)]
    assert len(rows(spark, quarantine, "text")) == 2
    assert replay(quarantine.location, table.location, spark=spark).replayed == 0
    assert rows(spark, table, "n") == [(1,), (2,), (4,)]
    assert len(rows(spark, quarantine, "text")) == 1


def test_a_place_that_is_no_quarantine(spark: SparkSession, table: Table) -> None:
    with pytest.raises(InvalidOption):
        replay(table.location, table.location, spark=spark)
    with pytest.raises(TableNotFound):
        replay(table.location + "_nothing", table.location, spark=spark)
