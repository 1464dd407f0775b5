"""A column that evolved is brought back after the source is repaired."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import widen
from widen.changes.fold_column import FoldedRows, change_condition, folded_columns
from widen.errors import FoldLosesValues, InvalidOption
from widen.evolution.unify import FoldPlan, Rest
from widen.files.arrow_types import to_arrow
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.schema.source_metadata import source_field
from widen.spark.spark_types import to_spark
from widen.table import Table, create_table


def pair(source: str) -> tuple[Field, Field]:
    """A column of whole numbers, and the one of texts that evolved from it."""
    plain = source_field(source, parse_type("int"), (source,), is_evolved=False)
    return plain, source_field(f"{source}_string", parse_type("string"), (source,), is_evolved=True)


SCHEMA = StructType((Field("n", parse_type("int")), *pair("a"), Field("s", StructType(pair("b")))))
DAYS = [
    "VALUES (1, 1, NULL, struct(1 AS b, NULL AS b_string))",
    "VALUES (2, NULL, '2', struct(NULL AS b, '20' AS b_string)), (3, 3, '3', NULL), (4, NULL, '007', NULL)",
    "VALUES (5, NULL, NULL, NULL)",
]


@pytest.fixture
def drifted(spark: SparkSession, tmp_path: Path) -> Table:
    table = create_table(str(tmp_path / "table"), SCHEMA)
    for day in DAYS:
        rows = spark.sql(f"SELECT * FROM ({day}) AS t(n, a, a_string, s)")
        table.append(rows.coalesce(1), cast=True)
    return table


def rows(spark: SparkSession, table: Table, *columns: str) -> Sequence[Any]:
    return [tuple(row) for row in table.read(spark=spark).orderBy("n").selectExpr(*columns).collect()]


def paths(table: Table) -> set[str]:
    return set(table.files()["path"].to_pylist())


def test_what_would_be_lost_is_told_and_refused_and_kept_or_lost(spark: SparkSession, drifted: Table) -> None:
    found = drifted.plan_fold("a_string", spark=spark)
    assert (found.values, found.fits, found.duplicates, found.lost, found.samples) == (3, 1, 1, 1, ("007",))
    assert not found.is_dropped
    with pytest.raises(FoldLosesValues, match="1 of 3 values of a_string cannot be converted exactly to int"):
        drifted.fold("a_string", spark=spark)
    with pytest.raises(InvalidOption):
        drifted.fold("a_string", rest="some", spark=spark)
    assert drifted.refresh().version == 3

    before = paths(drifted)
    drifted.fold("a_string", into="a", rest="keep", spark=spark)
    assert rows(spark, drifted, "a", "a_string") == [(1, None), (2, None), (3, None), (None, "007"), (None, None)]
    assert len(paths(drifted) & before) == 2, "only the file with texts was written anew"
    assert [info["operation"] for _, _, info in drifted.history(1)] == ["FOLD COLUMN"]

    drifted.fold("a_string", rest="lose", spark=spark)
    assert rows(spark, drifted, "a", "a_string")[3] == (None, None)
    assert drifted.fold("a_string", spark=spark).version == 5, "nothing is left to bring back"


def test_a_column_in_a_record_is_dropped_where_columns_are_mapped(spark: SparkSession, drifted: Table) -> None:
    drifted.set_properties({"delta.columnMapping.mode": "name"})
    found = drifted.plan_fold("s.b_string", spark=spark)
    assert (found.values, found.fits, found.is_dropped) == (1, 1, True)
    drifted.fold("s.b_string", spark=spark)
    assert rows(spark, drifted, "s.b") == [(1,), (20,), (None,), (None,), (None,)]
    assert [field.name for field in drifted.schema.find("s").type] == ["b"]  # type: ignore[union-attr]


def test_rows_of_an_iceberg_table_keep_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1, "a": 1}\n{"n": 2, "a": 5}\n')
    (tmp_path / "b.json").write_text('{"n": 3, "a": "7"}\n{"n": 4, "a": 8}\n')
    catalog = tmp_path / "c.db"
    for name in ("a", "b"):
        words: dict[str, Any] = {"catalog": catalog, "format_version": 3, "evolve": "split", "spark": spark}
        widen.ingest(tmp_path / f"{name}.json", "ns.t", **words)
    table = widen.IcebergTable("ns.t", catalog=catalog)

    def ids() -> list[Any]:
        found = table.refresh().read(row_lineage=True, spark=spark).orderBy("n").select("n", "a", "_row_id")
        return [tuple(row) for row in found.collect()]

    before = ids()
    table.fold("a_string", spark=spark)
    assert [column.name for column in table.refresh().columns] == ["a", "n"]
    assert ids() == [*before[:2], (3, 7, before[2][2]), before[3]]


TEXTS = [None, "1", "-0", "1.50", "1e2", "9007199254740993", "true", "2024-02-29", "2024-02-29T01:02:03.000004Z", "x"]
OLD: dict[str, list[Any]] = {
    "bigint": [None, 1, 9007199254740993],
    "double": [None, 1.5, -0.0],
    "decimal(20,2)": [None, Decimal("1.50"), Decimal("1.00")],
    "boolean": [None, True, False],
    "date": [None, date(2024, 2, 29), date(1, 1, 1)],
    "timestamp": [None, datetime(2024, 2, 29, 1, 2, 3, 4, timezone.utc), datetime(9999, 1, 1, tzinfo=timezone.utc)],
    "timestamp_ntz": [None, datetime(2024, 2, 29, 1, 2, 3, 4), datetime(1500, 1, 1)],
    "array<bigint>": [None, [1], [None]],
    "string": [None, "1", "x"],
}


@pytest.mark.parametrize("target", OLD)
def test_spark_and_arrow_fold_alike(spark: SparkSession, target: str) -> None:
    into, text = parse_type(target), parse_type("string")
    pairs = [(one, old) for one in TEXTS for old in OLD[target]]
    if target == "array<bigint>":
        text = parse_type("array<string>")
        pairs = [([one, "2"] if one else one, old) for one, old in pairs]
    pairs *= 2
    fold = FoldPlan(("s", "v_string"), text, ("s", "v"), into)
    record = pa.StructArray.from_arrays(
        [pa.array([old for _, old in pairs], to_arrow(into)), pa.array([one for one, _ in pairs], to_arrow(text))],
        names=["v", "v_string"],
    )
    table = pa.table({"n": range(len(pairs)), "s": record})
    schema = StructType(
        (Field("n", parse_type("bigint")), Field("s", StructType((Field("v", into), Field("v_string", text)))))
    )
    frame = spark.createDataFrame(table, to_spark(schema))
    for rest in (Rest.KEEP, Rest.LOSE):
        folded = FoldedRows(fold, rest)
        chosen = table.filter(folded.are_changed(table))
        here = chosen.set_column(1, "s", folded.new_columns(chosen)["s"])
        new = folded_columns(schema, fold)["s"]
        there = frame.where(change_condition(fold, rest)).select("n", new.alias("s")).toArrow()
        assert there.sort_by("n").cast(here.schema).to_pylist() == here.to_pylist()
    assert folded.count_frame(frame) == folded.count([table])
