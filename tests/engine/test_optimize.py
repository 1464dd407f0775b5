"""Compaction: fewer files with the same rows, beside other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import widen
from engine.test_rewrite import rows_with_ids
from support.old_table import ENABLED, file_types, live, log, operations
from support.written_once import written_once
from widen.changes import copy_files, rewrite_files
from widen.changes.rewrite_files import Compaction, CompactionTask, plan_compaction
from widen.errors import ColumnNotFound, CorruptFile, InvalidOption, MetadataChanged
from widen.limits import COPIED_BYTES
from widen.table import Table

VECTORS = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}


def rows(table: Table, spark: SparkSession) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, table.read(spark=spark).collect()), key=repr)


def appended(table: Table, spark: SparkSession, *texts: str) -> Table:
    """The table with one file more for each query."""
    for text in texts:
        table.append(spark.sql(text).coalesce(1))
    return table


@pytest.fixture
def small(spark: SparkSession, tmp_path: Path) -> Table:
    return six_files(spark, tmp_path)


@written_once
def six_files(spark: SparkSession, place: Path) -> Table:
    """Six small files in two partitions, with narrow types, a file with a vector and null partitions."""
    table = widen.create_table(str(place), "a int, p string", partition_by=["p"], properties={**ENABLED, **VECTORS})
    appended(table, spark, "SELECT int(id) a, if(id < 5, 'x', null) p FROM range(10)")
    appended(table, spark, "SELECT int(id) a, 'x' p FROM range(10, 13)").alter_column("a", type="bigint")
    appended(table, spark, "SELECT 3000000000 a, 'x' p", "SELECT 4 a, 'y z' p", "SELECT 5 a, 'y z' p")
    table.delete("a = 3", spark=spark)
    return table


@pytest.mark.parametrize("copied_bytes", [COPIED_BYTES, 0], ids=["here", "tasks"])
def test_small_files_of_a_partition_become_one(
    spark: SparkSession, tmp_path: Path, small: Table, monkeypatch: pytest.MonkeyPatch, copied_bytes: int
) -> None:
    monkeypatch.setattr(copy_files, "COPIED_BYTES", copied_bytes)
    before = rows(small, spark)
    dry = small.optimize(dry_run=True, spark=spark)
    assert (dry.version, dry.metrics["numRemovedFiles"]) == (small.version, 5)

    done = small.optimize(spark=spark)

    assert (done.operation, done.version) == ("OPTIMIZE", dry.version + 1)
    assert (done.metrics["numRemovedFiles"], done.metrics["numAddedFiles"]) == (5, 2)
    assert done.metrics["numDeletionVectorsRemoved"] == 1
    assert rows(small, spark) == before
    assert sorted(str(add["partitionValues"]["p"]) for add in live(tmp_path).values()) == ["None", "x", "y z"]
    written = [path for path, add in live(tmp_path).items() if add["partitionValues"]["p"]]
    assert {dict(columns)["a"] for columns in file_types(tmp_path, written)} == {pa.int64()}
    lines = [line for line in log(tmp_path) if line["version"] == done.version]
    info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
    assert info["operationParameters"] == {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": False}
    assert {(line.get("add") or line["remove"])["dataChange"] for line in lines if {"add", "remove"} & line.keys()} == {
        False
    }
    assert small.optimize(spark=spark).metrics == {}
    assert small.version == done.version


def test_a_condition_chooses_partitions(spark: SparkSession, tmp_path: Path, small: Table) -> None:
    assert small.optimize("p = 'y z'", spark=spark).metrics["numRemovedFiles"] == 2
    info = [line["commitInfo"] for line in log(tmp_path) if "commitInfo" in line][-1]
    assert info["operationParameters"]["predicate"] == "[\"p = 'y z'\"]"
    for where in ("a = 3", "p = 'x' AND a > 1"):
        with pytest.raises(InvalidOption, match="where cannot be"):
            small.optimize(where, spark=spark)


def test_bins_are_filled_up_to_the_target(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a bigint")
    appended(table, spark, *(f"SELECT id a FROM range({n}, {n + 100})" for n in range(6)))
    size = max(add["size"] for add in live(tmp_path).values())
    done = table.optimize(target_bytes=2 * size, spark=spark)
    assert (done.metrics["numRemovedFiles"], done.metrics["numAddedFiles"]) == (6, 3)
    with pytest.raises(InvalidOption, match="target_bytes"):
        table.optimize(target_bytes=0, spark=spark)


def test_row_ids_stay(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int", properties={"delta.enableRowTracking": "true"})
    appended(table, spark, "SELECT 1 a", "SELECT 2 a", "SELECT 3 a").delete("a = 2", spark=spark)
    before = rows_with_ids(tmp_path)
    assert table.optimize(spark=spark).metrics["numAddedFiles"] == 1
    assert sorted(rows_with_ids(tmp_path)) == sorted(before)


def test_rows_are_sorted_along_a_curve(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "x int, y string, who struct<z: double>, p int", partition_by=["p"])
    frame = spark.sql(
        "SELECT int(id % 100) x, if(id % 97 = 0, null, format_string('%03d', int(id / 100))) y, "
        "named_struct('z', if(id % 50 = 0, double('nan'), rand(1))) who, int(id % 2) p FROM range(10000)"
    )
    table.append(frame.repartition(4))
    before = repr(rows(table, spark))
    size = sum(add["size"] for add in live(tmp_path).values() if add["partitionValues"]["p"] == "0")
    done = table.optimize(target_bytes=size // 8, zorder_by=["x", "y"], spark=spark)
    assert done.metrics["numRemovedFiles"] == 8
    assert repr(rows(table, spark)) == before
    assert len(live(tmp_path)) >= 14
    hit = [add for add in live(tmp_path).values() if _may_hold(add, 42)]
    assert len(hit) <= 0.6 * len(live(tmp_path))
    again = table.optimize("p = 1", zorder_by=["who.z"], spark=spark)
    assert again.metrics["numAddedFiles"] == 1
    assert repr(rows(table, spark)) == before
    for column in ("p", "who"):
        with pytest.raises(InvalidOption, match="zorder_by"):
            table.optimize(zorder_by=[column], spark=spark)
    with pytest.raises(ColumnNotFound):
        table.optimize(zorder_by=["q"], spark=spark)


def _may_hold(add: dict[str, Any], x: int) -> bool:
    stats = json.loads(add["stats"])
    return bool(stats["minValues"]["x"] <= x <= stats["maxValues"]["x"])


@pytest.fixture
def interfere(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Let another writer commit once, between the job and the commit of a compaction."""

    def install(change: Callable[[], object]) -> None:
        real, pending = Compaction._commit, [change]

        def commit(self: Compaction, *arguments: Any) -> Any:
            while pending:
                pending.pop()()
            return real(self, *arguments)

        monkeypatch.setattr(Compaction, "_commit", commit)

    return install


def test_an_append_meanwhile_does_not_matter(
    spark: SparkSession, tmp_path: Path, small: Table, interfere: Callable[..., None]
) -> None:
    before = rows(small, spark)
    interfere(lambda: appended(Table(str(tmp_path)), spark, "SELECT 77 a, 'x' p"))
    assert small.optimize(spark=spark).metrics["numRemovedFiles"] == 5
    assert rows(small, spark) == sorted([*before, (77, "x")], key=repr)
    assert len(live(tmp_path)) == 4


def test_files_that_others_change_meanwhile_are_left_to_another_attempt(
    spark: SparkSession, tmp_path: Path, small: Table, interfere: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite_files, "plan_compaction", _one_task_per_partition)
    before = rows(small, spark)
    interfere(lambda: Table(str(tmp_path)).delete("a = 5 AND p = 'y z'", spark=spark))
    done = small.optimize(spark=spark)
    assert rows(small, spark) == [row for row in before if row != (5, "y z")]
    assert operations(tmp_path)[-2:] == ["DELETE", "OPTIMIZE"]
    assert done.metrics["numRemovedFiles"] == 3
    on_disk = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")}
    named = {
        line[kind]["path"].replace("%20", " ") for line in log(tmp_path) for kind in ("add", "remove") if kind in line
    }
    assert {path for path in on_disk if not path.startswith("_delta_log")} <= named


def _one_task_per_partition(files: pa.Table, target_bytes: int, *, sorts: bool) -> Any:
    tasks = plan_compaction(files, target_bytes, sorts=sorts)
    values = [str(row) for task in tasks for row in task.files["partition_values"].to_pylist()]
    whole = pa.concat_tables(task.files for task in tasks) if tasks else files.slice(0, 0)
    return [
        CompactionTask(whole.filter(pa.array([each == value for each in values], pa.bool_())), 1)
        for value in dict.fromkeys(values)
    ]


def test_a_changed_schema_meanwhile_makes_it_start_again(
    spark: SparkSession, tmp_path: Path, small: Table, interfere: Callable[..., None]
) -> None:
    before = rows(small, spark)
    interfere(lambda: Table(str(tmp_path)).add_columns({"b": "int"}))
    assert small.optimize(spark=spark).metrics["numRemovedFiles"] == 5
    assert rows(small, spark) == sorted(((*row, None) for row in before), key=repr)


def test_a_conflict_that_does_not_end_is_told(
    spark: SparkSession, tmp_path: Path, small: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Compaction._commit
    monkeypatch.setattr(rewrite_files, "MOST_CONFLICTS", 2)

    def commit(self: Compaction, *arguments: Any) -> Any:
        Table(str(tmp_path)).set_properties({"n": str(Table(str(tmp_path)).version)})
        return real(self, *arguments)

    monkeypatch.setattr(Compaction, "_commit", commit)
    before, files = rows(small, spark), set(tmp_path.rglob("*.parquet"))
    with pytest.raises(MetadataChanged):
        small.optimize(spark=spark)
    assert rows(small, spark) == before
    assert set(tmp_path.rglob("*.parquet")) == files


def test_a_failed_job_leaves_no_file(spark: SparkSession, tmp_path: Path, small: Table) -> None:
    files = set(tmp_path.rglob("*.parquet"))
    (tmp_path / next(path for path in live(tmp_path) if "p=y" in path).replace("%20", " ")).unlink()
    with pytest.raises(CorruptFile):
        small.optimize(spark=spark)
    assert len(set(tmp_path.rglob("*.parquet")) - files) == 0
