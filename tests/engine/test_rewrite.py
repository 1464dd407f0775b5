"""Rewriting old files: only those, with all that belongs to their rows, while others go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from engine.test_deletion import delete, inline
from support.exact import assert_same
from support.old_table import ENABLED, file_types, live, log, operations, removed
from widen.changes import rewrite_files as rewrite_old_files
from widen.changes.rewrite_files import OldFileRewrite
from widen.errors import CorruptFile, InternalError, MetadataChanged, UnsupportedFeatureForWrite
from widen.files.data_reader import LocalScan
from widen.files.footers import OldType, find_old_files
from widen.log.commit import ReadSet, commit
from widen.log.file_list import to_adds, to_remove
from widen.table import Table

TRACKED = {"delta.enableRowTracking": "true"}


def file(spark: SparkSession, *rows: tuple[Any, ...], schema: str = "a tinyint") -> DataFrame:
    return spark.createDataFrame(list(rows), schema).coalesce(1)


def widened(spark: SparkSession, place: Path, properties: dict[str, str] | None = None) -> Table:
    """A table of two narrow files and a wide one."""
    table = widen.create_table(str(place), "a tinyint", properties={**ENABLED, **(properties or {})})
    table.append(file(spark, (1,), (2,))).table.append(file(spark, (3,))).table.alter_column("a", type="int")
    return table.append(file(spark, (1000,), schema="a int")).table


def values(table: Table, spark: SparkSession) -> list[Any]:
    return [row.a for row in table.read(spark=spark).collect()]


def test_only_files_that_hold_an_old_type_are_rewritten(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path)
    before = set(live(tmp_path))
    wide = [path for path in before if file_types(tmp_path, [path]) == {(("a", pa.int32()),)}]
    size = sum(add["size"] for path, add in live(tmp_path).items() if path not in wide)
    assert table.old_types() == [OldType(("a",), "tinyint", 2, size)]

    table.rewrite(spark=spark)

    assert table.old_types() == []
    assert set(live(tmp_path)) & before == set(wide)
    assert file_types(tmp_path, live(tmp_path)) == {(("a", pa.int32()),)}
    assert_same(values(table, spark), [1, 2, 3, 1000])
    assert len(table.type_changes) == 1
    version = table.version
    assert table.rewrite(spark=spark).version == version  # there is nothing left to do


def test_the_history_shows_a_rewrite_as_delta_does(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path).rewrite(spark=spark).table
    lines = [line for line in log(tmp_path) if line["version"] == table.version]
    info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
    assert info["operation"] == "REORG"
    assert info["operationParameters"] == {"predicate": "[]", "applyPurge": True}
    assert info["isolationLevel"] == "SnapshotIsolation"
    metrics = info["operationMetrics"]
    assert metrics.keys() == {
        "numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes", "minFileSize", "p25FileSize",
        "p50FileSize", "p75FileSize", "maxFileSize", "numDeletionVectorsRemoved",
    }  # fmt: skip
    assert metrics["numRemovedFiles"] == "2"
    actions = [line.get("add") or line.get("remove") for line in lines if "commitInfo" not in line]
    assert {action["dataChange"] for action in actions if action} == {False}
    counts = [msgspec.json.decode(line["add"]["stats"])["numRecords"] for line in lines if "add" in line]
    assert sum(counts) == 3


def test_the_history_of_types_goes_if_it_is_asked_to(spark: SparkSession, tmp_path: Path) -> None:
    table = widened(spark, tmp_path).rewrite(clear_history=True, spark=spark).table
    assert table.type_changes == []
    assert operations(tmp_path)[-2:] == ["REORG", "CLEAR TYPE HISTORY"]
    assert table.properties["delta.enableTypeWidening"] == "true"
    assert_same(values(table.alter_column("a", type="bigint"), spark), [1, 2, 3, 1000])


def test_deleted_rows_stay_away_and_their_vectors_go(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(
        str(tmp_path), "a tinyint", properties={**ENABLED, "delta.enableDeletionVectors": "true"}
    )
    table.append(file(spark, *((value,) for value in range(10))))
    delete(table, table.files().to_pylist()[0], inline([0, 3, 9]))
    table.alter_column("a", type="int").rewrite(spark=spark)
    assert_same(values(table, spark), [1, 2, 4, 5, 6, 7, 8])
    assert table.files()["deletion_vector"].null_count == 1
    infos = [line["commitInfo"] for line in log(tmp_path) if "commitInfo" in line]
    assert infos[-1]["operationMetrics"]["numDeletionVectorsRemoved"] == "1"


def test_partition_values_keep_their_texts(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint, p float, q date", partition_by=["p", "q"], properties=ENABLED)
    rows = [(1, 3.5, None), (2, None, "2024-02-29"), (3, 1e10, "0001-01-01")]
    frame = spark.createDataFrame(rows, "a tinyint, p float, q string").selectExpr("a", "p", "cast(q as date) q")
    table.append(frame)
    table.alter_columns({"a": {"type": "int"}, "p": {"type": "double"}, "q": {"type": "timestamp_ntz"}})
    before, found = [add["partitionValues"] for add in live(tmp_path).values()], table.read(spark=spark).collect()
    table.rewrite(spark=spark)
    assert_same(_pairs(add["partitionValues"] for add in live(tmp_path).values()), _pairs(before))
    assert_same(table.read(spark=spark).collect(), found)


def _pairs(values: Any) -> list[Any]:
    return [tuple(sorted(each.items())) for each in values]


def test_a_partition_text_that_no_type_can_hold_is_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        widen.create_table(str(tmp_path), "a tinyint, p int", partition_by=["p"], properties=ENABLED)
        .append(file(spark, (1, 7), schema="a tinyint, p int"))
        .table
    )
    (add,) = to_adds(table.files())
    odd = msgspec.structs.replace(add, partition_values={"p": "seven"})
    actions = [to_remove(add, 1, data_change=False), odd]
    commit(table.store, table.snapshot, actions, "MANUAL", {}).or_raise()
    table.alter_column("a", type="int").rewrite(spark=spark)
    assert [add["partitionValues"] for add in live(tmp_path).values()] == [{"p": "seven"}]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_rows_keep_their_ids_and_versions_however_often_they_are_written(
    spark: SparkSession, tmp_path: Path, mapping: str
) -> None:
    properties = {**TRACKED, "delta.columnMapping.mode": mapping}
    table = widened(spark, tmp_path, properties)
    before = rows_with_ids(tmp_path)
    assert sorted(before) == [(1, 0, 1), (2, 1, 1), (3, 2, 2), (1000, 3, 4)]
    table.rewrite(spark=spark)
    assert sorted(rows_with_ids(tmp_path)) == sorted(before)
    table.alter_column("a", type="bigint").rewrite(spark=spark)  # the ids now stand in files
    assert sorted(rows_with_ids(tmp_path)) == sorted(before)
    assert_same(values(table, spark), [1, 2, 3, 1000])
    stats = [msgspec.json.decode(add["stats"]) for add in live(tmp_path).values()]
    assert not any({*tracking_columns(tmp_path)} & each["minValues"].keys() for each in stats)


def tracking_columns(place: Path) -> tuple[str, str]:
    """The columns in which files keep the ids and the versions of rows."""
    properties = Table(str(place)).properties
    ids, versions = (f"delta.rowTracking.materializedRow{what}ColumnName" for what in ("Id", "CommitVersion"))
    return properties[ids], properties[versions]


def rows_with_ids(place: Path) -> list[tuple[int, int, int]]:
    """The value of each row with its id and its version, as readers of row tracking find them."""
    found = []
    ids, versions = tracking_columns(place)
    for path, add in live(place).items():
        columns = pq.read_table(place / path).to_pydict()
        data = next(values for name, values in columns.items() if not name.startswith("_row-"))
        empty = [None] * len(data)
        for at, (value, row_id, version) in enumerate(
            zip(data, columns.get(ids, empty), columns.get(versions, empty), strict=True)
        ):
            default = add["baseRowId"] + at, add["defaultRowCommitVersion"]
            found.append((value, default[0] if row_id is None else row_id, version or default[1]))
    return found


def test_rows_whose_ids_could_not_be_kept_are_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    properties = {**ENABLED, "delta.feature.rowTracking": "supported"}
    table = widen.create_table(str(tmp_path), "a tinyint", properties=properties).append(file(spark, (1,))).table
    metadata = table.metadata
    enabled = {**metadata.configuration, "delta.enableRowTracking": "true"}
    nameless = msgspec.structs.replace(metadata, configuration=enabled)
    commit(table.store, table.snapshot, [nameless], "MANUAL", {}).or_raise()
    table.refresh().alter_column("a", type="int")
    with pytest.raises(UnsupportedFeatureForWrite, match="materializedRowIdColumnName"):
        table.rewrite(spark=spark)
    assert removed(tmp_path, 0) == 0


def test_rows_that_came_out_otherwise_are_never_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)
    honest = LocalScan.read_numbered
    monkeypatch.setattr(LocalScan, "read_numbered", lambda *args: (_first(*each) for each in honest(*args)))
    files = {path.name for path in tmp_path.rglob("*.parquet")}
    with pytest.raises(InternalError, match="2 files with 3 rows became files with 2 rows"):
        table.rewrite(spark=spark)
    assert removed(tmp_path, 0) == 0
    assert {path.name for path in tmp_path.rglob("*.parquet")} == files


def _first(positions: pa.Array, rows: pa.Table) -> tuple[pa.Array, pa.Table]:
    return positions.slice(0, 1), rows.slice(0, 1)


def test_many_files_are_looked_into_by_the_executors(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)
    here = find_old_files(_no_session, table.snapshot, table.files())
    monkeypatch.setattr("widen.files.footers.FILES_TYPED_BY_DRIVER", 1)
    assert find_old_files(lambda: spark, table.snapshot, table.files()) == here
    assert len(here) == 2
    (tmp_path / here[0].path).write_text("corrupted")
    with pytest.raises(CorruptFile, match=here[0].path):
        find_old_files(lambda: spark, table.snapshot, table.files())


def _no_session() -> SparkSession:
    pytest.fail("no session is needed")


# ---- in the presence of others ---------------------------------------------------------------------


def race(monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[], object]) -> list[int]:
    """Let somebody commit just before each of our first rewrites; give the number of files of every attempt."""
    attempts: list[int] = []

    def raced(store: Any, base: Any, actions: Any, *rest: Any, **more: Any) -> Any:
        if len(attempts) < len(meanwhile):
            meanwhile[len(attempts)]()
        attempts.append(sum(type(action).__name__ == "Remove" for action in actions))
        return commit(store, base, actions, *rest, **more)

    monkeypatch.setattr(rewrite_old_files, "commit", raced)
    return attempts


def take(table: Table, path: str) -> None:
    """Delete all rows of one file."""
    table.refresh()
    add = next(add for add in to_adds(table.files()) if add.path == path)
    commit(table.store, table.snapshot, [to_remove(add, 1, data_change=True)], "DELETE", {}, reads=ReadSet.EVERYTHING)


def test_appends_go_on_while_files_are_rewritten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)
    attempts = race(monkeypatch, lambda: Table(str(tmp_path)).append(file(spark, (2000,), schema="a int")))
    table.rewrite(spark=spark)
    assert attempts == [2]
    assert_same(values(table, spark), [1, 2, 3, 1000, 2000])


def test_what_is_deleted_while_it_is_rewritten_does_not_come_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)
    gone = next(path for path, add in live(tmp_path).items() if '"numRecords":2' in add["stats"])
    attempts = race(monkeypatch, lambda: take(Table(str(tmp_path)), gone))
    files = {path.name for path in tmp_path.rglob("*.parquet")}
    table.rewrite(spark=spark)
    assert attempts == [2, 1]
    assert_same(values(table, spark), [3, 1000])
    assert table.old_types() == []
    assert len({path.name for path in tmp_path.rglob("*.parquet")} - files) == 1  # the lost attempt left nothing


def test_rows_that_are_marked_as_deleted_while_their_file_is_rewritten_do_not_come_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path, {"delta.enableDeletionVectors": "true"})
    attempts = race(monkeypatch, lambda: Table(str(tmp_path)).delete("a = 1", spark=spark))
    table.rewrite(spark=spark)
    assert attempts == [2, 2]
    assert_same(values(table, spark), [2, 3, 1000])
    assert not any("deletionVector" in add for add in live(tmp_path).values())
    assert table.old_types() == []


def test_a_type_that_changes_meanwhile_is_the_one_that_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)
    attempts = race(monkeypatch, lambda: Table(str(tmp_path)).alter_column("a", type="bigint"))
    table.rewrite(spark=spark)
    assert attempts == [2, 3]
    assert file_types(tmp_path, live(tmp_path)) == {(("a", pa.int64()),)}


def test_each_batch_is_a_commit_and_what_is_won_is_kept(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widened(spark, tmp_path)
    attempts = race(monkeypatch)
    work = OldFileRewrite(table.store, lambda: spark, batch_bytes=1)
    work.run()
    assert attempts == [1, 1]
    assert (work.files, operations(tmp_path).count("REORG")) == (2, 2)


def test_who_loses_every_race_tells_so(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = widened(spark, tmp_path)
    monkeypatch.setattr(rewrite_old_files, "MOST_CONFLICTS", 2)
    comments = iter("xyz")
    again = [lambda: Table(str(tmp_path)).alter_column("a", comment=next(comments))] * 3
    attempts = race(monkeypatch, *again)
    with pytest.raises(MetadataChanged):
        table.rewrite(spark=spark)
    assert len(attempts) == 2
