"""Every pair of the matrix, at every depth, whoever wrote the files and whichever reader of Spark reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support import every_pair
from support.every_pair import PROPERTIES, assert_holds, at
from support.exact import form
from support.foreign_file import ARROW_FORMS, SPARK_FORMS, add_file, add_spark_files
from support.type_change import CASES, REFUSED
from widen.errors import TypeChangeRefused
from widen.table import Table

VECTORISED, NESTED = "spark.sql.parquet.enableVectorizedReader", "spark.sql.parquet.enableNestedColumnVectorizedReader"
READERS = {
    "vectorised": {VECTORISED: "true", NESTED: "true"},
    "vectorised but for nested columns": {VECTORISED: "true", NESTED: "false"},
    "row by row": {VECTORISED: "false"},
}


@pytest.fixture(autouse=True)
def _same_settings(spark: SparkSession) -> Iterator[None]:
    yield
    for key in (VECTORISED, NESTED):
        spark.conf.unset(key)


@pytest.mark.parametrize(
    ("mapping", "partition_by", "deleted"), [("none", (), ()), ("name", ("p",), (0, 3)), ("id", (), (0, 3))]
)
def test_old_and_new_files_read_exactly(
    spark: SparkSession, tmp_path: Path, mapping: str, partition_by: tuple[str, ...], deleted: tuple[int, ...]
) -> None:
    properties = {**PROPERTIES, "delta.columnMapping.mode": mapping, "delta.enableDeletionVectors": "true"}
    table = widen.create_table(
        str(tmp_path), every_pair.columns("old"), partition_by=partition_by, properties=properties
    )
    table.append(rows_before(spark))
    if deleted:
        table.delete(f"id in {deleted}", spark=spark)
        assert table.files()["deletion_vector"].null_count == 0
    changed_and_read(spark, table, ["vectorised", "row by row"], deleted=deleted)
    assert [(f.name, f.dataType.simpleString(), f.metadata) for f in table.read(spark=spark).schema] == [
        (f.name, f.dataType.simpleString(), {}) for f in spark.createDataFrame([], every_pair.columns("new")).schema
    ]


def test_files_in_every_form_of_spark_and_pyarrow_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), every_pair.columns("old"), properties=PROPERTIES)
    rows = rows_before(spark)
    for number, options in enumerate(SPARK_FORMS.values()):
        add_spark_files(table, f"spark-{number}", rows, options)
    for number, arguments in enumerate(ARROW_FORMS.values()):
        add_file(table, f"arrow-{number}.parquet", rows.toArrow(), {}, **arguments)
    changed_and_read(spark, table, READERS, copies=len(SPARK_FORMS) + len(ARROW_FORMS))


def test_files_of_deltalake_read_exactly(spark: SparkSession, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows_before(spark).toArrow())
    table = Table(str(tmp_path)).set_properties(PROPERTIES)
    changed_and_read(spark, table, READERS)


def rows_before(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(every_pair.rows("before"), every_pair.columns("old")).coalesce(1)


def changed_and_read(
    spark: SparkSession, table: Table, readers: Iterable[str], copies: int = 1, deleted: tuple[int, ...] = ()
) -> None:
    """Change every type, add new rows, and assert that each reader finds them once and the old ones so many times."""
    table.alter_columns({path: {"type": new} for path, new in every_pair.changes()})
    after = every_pair.rows("after", first_id=1000)
    table.append(spark.createDataFrame(after, every_pair.columns("new")).coalesce(1))
    widened = [row for row in every_pair.rows("widened") if row[0] not in deleted]
    frame = Table(table.location).read(spark=spark)
    for reader in readers:
        for key, value in READERS[reader].items():
            spark.conf.set(key, value)
        assert_holds(frame.select("*").collect(), *[widened] * copies, after)  # planned anew, with these settings


def test_partition_columns_widen(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    names = [case.name for case in CASES]
    old, new = (", ".join(f"{case.name} {getattr(case, which)}" for case in CASES) for which in ("old", "new"))
    table = widen.create_table(location, f"id int, {old}", partition_by=names, properties=PROPERTIES)
    table.append(spark.createDataFrame(partitions("before"), f"id int, {old}"))
    table.alter_columns({case.name: {"type": case.new} for case in CASES})
    after = [(row[0] + 100, *row[1:]) for row in partitions("after")]
    table.append(spark.createDataFrame(after, f"id int, {new}"))

    read = Table(location).read(spark=spark).collect()

    expected = [*partitions("widened"), *after]
    assert {row.id: _named(names, row[1:]) for row in read} == {row[0]: _named(names, row[1:]) for row in expected}


def _named(names: list[str], values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, map(form, values), strict=True))


def partitions(which: str) -> list[tuple[Any, ...]]:
    longest = max(len(getattr(case, which)) for case in CASES) + 1
    return [(number, *(at(getattr(case, which), number) for case in CASES)) for number in range(longest)]


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_other_pairs_are_refused(tmp_path: Path, old: str, new: str) -> None:
    table = widen.create_table(str(tmp_path), f"a {old}, s struct<b: {old}>", properties=PROPERTIES)
    for path in ("a", "s.b"):
        with pytest.raises(TypeChangeRefused):
            table.alter_column(path, type=new)
    assert table.version == 0
