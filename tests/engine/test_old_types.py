"""Old types of widened decimals: which files are looked into, and which filters then reach them."""

from __future__ import annotations

import re
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import widen
from support.exact import assert_same
from support.written_once import written_once
from widen.errors import StorageError
from widen.files import scan_groups as old_decimals
from widen.files.footers import find_old_files
from widen.model.column_path import fields
from widen.table import Table

OLD = "n int, d decimal(9,2), s struct<d: decimal(9,2), y: int, t: struct<e: decimal(9,2)>>, l array<int>"
NEW = (
    "n decimal(20,0), d decimal(19,2), s struct<d: decimal(19,2), y: int, t: struct<e: decimal(19,2)>>,"
    " l array<decimal(20,1)>"
)
CHANGES = {
    "n": "decimal(20,0)",
    "d": "decimal(19,2)",
    "s.d": "decimal(19,2)",
    "s.t.e": "decimal(19,2)",
    "l.element": "decimal(20,1)",
}


@pytest.fixture(params=["none", "name"])
def table(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    return two_types(spark, tmp_path, request.param)


@written_once
def two_types(spark: SparkSession, place: Path, mapping: str) -> Table:
    """Two files: one in old types, one in new ones."""
    properties = {"delta.enableTypeWidening": "true", "delta.columnMapping.mode": mapping}
    made = widen.create_table(str(place), OLD, properties=properties)
    made.append(spark.createDataFrame([(5, D("1.23"), (D("1.23"), 1, (D("1.23"),)), [1, None])], OLD).coalesce(1))
    made.alter_columns({path: {"type": new} for path, new in CHANGES.items()})
    new = (D(10**19), D("99999999999999.99"), (D("99999999999999.99"), 2, (D("1.23"),)), [D("1.5")])
    return made.append(spark.createDataFrame([new], NEW).coalesce(1)).table


def scans(table: Table, frame: DataFrame, capsys: pytest.CaptureFixture[str]) -> dict[str, set[str]]:
    """Return the filters that Spark shows at each scan of a frame, in logical names, by what is read there."""
    frame.explain(mode="formatted")
    text = capsys.readouterr().out
    for path, field in fields(table.snapshot.schema):
        physical = str(field.metadata.get("delta.columnMapping.physicalName", field.name))
        text = text.replace(f"`{physical}`", path[-1]).replace(physical, path[-1])
    blocks = [block for block in text.split("\n\n") if ") Scan parquet" in block.strip().partition("\n")[0]]
    shown = [(_shown("ReadSchema", block), _shown("PushedFilters", block)) for block in blocks]
    return {schema: set(re.findall(r"\w+\([^()]*\)", pushed)) for schema, pushed in shown}


def _shown(key: str, block: str) -> str:
    found = re.search(rf"^{key}: (.*)$", block, re.MULTILINE)
    return found[1] if found else ""


def test_old_files_are_read_in_their_own_types(
    spark: SparkSession, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    read = table.read(spark=spark).selectExpr("n", "d", "s.t.e as e", "l")
    assert scans(table, read, capsys) == {
        "struct<n:decimal(20,0),d:decimal(19,2),s:struct<t:struct<e:decimal(19,2)>>,l:array<decimal(20,1)>>": set(),
        "struct<n:int,d:decimal(9,2),s:struct<t:struct<e:decimal(9,2)>>,l:array<int>>": set(),
    }
    expected = [
        Row(n=D(5), d=D("1.23"), e=D("1.23"), l=[D("1.0"), None]),
        Row(n=D(10**19), d=D("99999999999999.99"), e=D("1.23"), l=[D("1.5")]),
    ]
    assert_same(read.collect(), expected)


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("n < 7", {"IsNotNull(n)", "LessThan(n,7)"}, {"IsNotNull(n)", "LessThan(n,7)"}),
        ("d = 1.23", {"IsNotNull(d)", "EqualTo(d,1.23)"}, {"IsNotNull(d)", "EqualTo(d,1.23)"}),
        ("d < 21474836.48", {"IsNotNull(d)"}, {"IsNotNull(d)", "LessThan(d,21474836.48)"}),
        ("s.y = 1", {"IsNotNull(s.y)", "EqualTo(s.y,1)"}, {"IsNotNull(s.y)", "EqualTo(s.y,1)"}),
        ("s.d = 1.23", set(), {"IsNotNull(s.d)", "EqualTo(s.d,1.23)"}),
    ],
)
def test_filters_reach_old_files_where_spark_can_tell_them(
    spark: SparkSession,
    table: Table,
    capsys: pytest.CaptureFixture[str],
    where: str,
    old: set[str],
    new: set[str],
) -> None:
    found = scans(table, table.read(spark=spark).where(where).select("n", "d", "s.d", "s.y"), capsys)
    assert {"n:int" in schema: pushed for schema, pushed in found.items()} == {True: old, False: new}


@pytest.mark.parametrize(
    ("where", "pushed"),
    [
        ("s.d = 1.23", {"IsNotNull(s.d)", "EqualTo(s.d,1.23)"}),
        ("s.d < 21474836.48", {"IsNotNull(s.d)"}),
        ("not s.t.e > 1.5", {"IsNotNull(s.t.e)", "LessThanOrEqual(s.t.e,1.50)"}),
        ("s.y is not null and s.d in (1.23, 1.5)", {"IsNotNull(s.y)", "EqualTo(s.d,1.23)", "EqualTo(s.d,1.50)"}),
    ],
)
def test_a_text_reaches_fields_of_old_files_too(
    spark: SparkSession, table: Table, capsys: pytest.CaptureFixture[str], where: str, pushed: set[str]
) -> None:
    read = table.read(where=where, spark=spark)
    found = scans(table, read.select("n", "s.d"), capsys)
    assert [filters for schema, filters in found.items() if "n:int" in schema] == [pushed]
    assert [row.n for row in read.collect() if row.n < 7] == [D(5)]


@pytest.mark.parametrize("table", ["none"], indirect=True)
def test_footers_are_opened_once(spark: SparkSession, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    def counted(session: Any, snapshot: Any, files: pa.Table) -> Any:
        opened.append(files.num_rows)
        return find_old_files(session, snapshot, files)

    monkeypatch.setattr(old_decimals, "find_old_files", counted)
    for where in ("n = 5", None, "n > 0"):
        table.read(where=where, spark=spark)
    table.read(version=1, spark=spark)
    table.add_columns({"z": "int"}).read(spark=spark)
    assert opened == [1, 1, 2]


def closed(*_: Any) -> Any:
    raise StorageError(location="a.parquet", reason="no credentials", fix="")


@pytest.mark.parametrize(("name", "value"), [("MOST_FOOTERS", 0), ("find_old_files", closed)])
def test_filters_stay_away_from_files_that_were_not_looked_into(
    spark: SparkSession,
    table: Table,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: Any,
) -> None:
    monkeypatch.setattr(old_decimals, name, value)
    for where in ("d < 21474836.48 and n = 5", "s.d < 92233720368547758.07 and s.y = 1", "s.t.e = 1.23 and s.y = 1"):
        (pushed,) = scans(table, table.read(spark=spark).where(where), capsys).values()
        assert not {one for one in pushed if ".48" in one or ".07" in one or "1.23" in one}
        assert table.read(spark=spark).where(where).count() == table.read(where=where, spark=spark).count() == 1
