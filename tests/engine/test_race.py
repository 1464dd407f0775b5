"""Two writers: which appends are made again after a lost race, and which ones end with an error and leave nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import widen
from support.exact import assert_same
from support.race import interrupt
from widen.errors import CheckViolated, MetadataChanged, SchemaMismatch
from widen.log.commit import commit
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.table import Table

ENABLED = {"delta.enableTypeWidening": "true"}
MAPPED = {**ENABLED, "delta.columnMapping.mode": "name"}


def frame(spark: SparkSession, columns: str, *values: Any) -> DataFrame:
    return spark.createDataFrame([value if isinstance(value, tuple) else (value,) for value in values], columns)


def types_in_files(table: Table) -> set[str]:
    paths = [Path(table.location, path) for path in table.files()["path"].to_pylist()]
    return {str(pq.read_schema(path).field(0).type) for path in paths}


def leftovers(table: Table) -> int:
    found = [path for path in Path(table.location).rglob("*.parquet") if "_delta_log" not in path.parts]
    return len(found) - table.refresh().files().num_rows


def changes(table: Table) -> list[tuple[str, str, int | None]]:
    return [(str(c.old), str(c.new), c.table_version) for _, c in table.refresh().type_changes]


# ---- made again ------------------------------------------------------------------------------------


def test_an_append_is_written_anew_in_the_type_that_somebody_has_widened_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a int", properties=ENABLED)
    interrupt(monkeypatch, lambda: Table(str(tmp_path)).alter_column("a", type="bigint"))
    table.append(frame(spark, "a int", 1))
    assert (table.version, types_in_files(table), leftovers(table)) == (2, {"int64"}, 0)
    assert table.read(spark=spark).collect() == [Row(a=1)]
    assert table.history(1)[0][2]["readVersion"] == 1


WINNERS = [
    ("bigint", 2**40, ["int->bigint"], "bigint"),
    ("decimal(20,0)", 7, ["int->decimal(20,0)"], "decimal(20,0)"),
    ("int", 7, ["int->bigint"], "bigint"),
]


@pytest.mark.parametrize(("winner", "value", "recorded", "final"), WINNERS)
def test_two_appends_that_widen_the_same_column_both_land(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    winner: str,
    value: int,
    recorded: list[str],
    final: str,
) -> None:
    """The first one wins, and the second one plans anew: it has nothing to widen, or not the same as before."""
    table = widen.create_table(str(tmp_path), "a int", properties=ENABLED)
    other = frame(spark, "a bigint", value).selectExpr(f"cast(a as {winner}) as a")
    interrupt(monkeypatch, lambda: Table(str(tmp_path)).append(other, merge_schema=True))
    table.append(frame(spark, "a bigint", 2**50), merge_schema=True)
    assert table.version == 2
    assert table.schema.sql == f"struct<a: {final}>"
    assert [f"{old.sql}->{new.sql}" for old, new in ((c.old, c.new) for _, c in table.type_changes)] == recorded
    assert {int(row.a) for row in table.read(spark=spark).collect()} == {value, 2**50}
    assert leftovers(table) == 0


def test_an_append_goes_farther_than_the_winner_and_records_both_steps(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a smallint", properties=ENABLED)
    other = frame(spark, "a int", 70_000)
    interrupt(monkeypatch, lambda: Table(str(tmp_path)).append(other, merge_schema=True))
    table.append(frame(spark, "a bigint, b string", (2**40, "x")), merge_schema=True)
    assert changes(table) == [("short", "integer", None), ("integer", "long", None)]
    assert_same(table.read(spark=spark).collect(), [Row(a=70_000, b=None), Row(a=2**40, b="x")])


def test_a_widening_append_survives_a_plain_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {**ENABLED, "delta.feature.typeWidening-preview": "supported"}
    table = widen.create_table(str(tmp_path), "a int", properties=properties)
    interrupt(monkeypatch, lambda: Table(str(tmp_path)).append(frame(spark, "a int", 1)))
    table.append(frame(spark, "a bigint", 2**40), merge_schema=True)
    assert table.history(1)[0][2]["readVersion"] == 0
    assert changes(table) == [("integer", "long", 2)]
    assert_same(table.read(spark=spark).collect(), [Row(a=1), Row(a=2**40)])


def test_other_changes_of_the_table_are_followed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a int", properties=MAPPED)
    other = Table(str(tmp_path))
    interrupt(
        monkeypatch,
        lambda: other.set_properties({"note": "x"}),
        lambda: other.add_columns({"b": "date"}),
        lambda: other.refresh().add_feature("deletionVectors"),
    )
    table.append(frame(spark, "a int, n string", (1, "new")), merge_schema=True)
    assert table.schema.sql == "struct<a: int, b: date, n: string>"
    assert table.read(spark=spark).collect() == [Row(a=1, b=None, n="new")]
    assert (table.version, leftovers(table)) == (4, 0)


def test_two_appends_never_share_identity_values(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": False}
    schema = StructType((Field("a", parse_type("int")), Field("i", parse_type("bigint"), metadata=key)))
    table = widen.create_table(str(tmp_path), schema)
    interrupt(monkeypatch, lambda: Table(str(tmp_path)).append(frame(spark, "a int", 1, 2, 3)))
    table.append(frame(spark, "a int", 4, 5, 6))
    values = [row.i for row in table.read(spark=spark).collect()]
    assert len(set(values)) == 6
    assert table.snapshot.schema.fields[1].metadata["delta.identity.highWaterMark"] == max(values)


# ---- not made again --------------------------------------------------------------------------------


def test_a_column_that_somebody_took_away_is_not_put_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, meanwhile in [
        ("dropped", lambda other: other.drop_columns("b")),
        ("renamed", lambda other: other.rename_column("b", "c")),
    ]:
        table = widen.create_table(str(tmp_path / name), "a int, b int", properties=MAPPED)
        other = Table(table.location)
        with monkeypatch.context() as patch:
            interrupt(patch, lambda: meanwhile(other))  # noqa: B023 (it happens within this turn)
            with pytest.raises(MetadataChanged, match="the schema"):
                table.append(frame(spark, "a int, b int", (1, 2)), merge_schema=True)
        assert (table.refresh().version, table.files().num_rows, leftovers(table)) == (1, 0, 0)
        with monkeypatch.context() as patch:
            interrupt(patch)
            with pytest.raises(SchemaMismatch, match=r"b \(int\) is not in the table"):
                table.append(frame(spark, "a int, b int", (1, 2)))


def test_what_fits_no_longer_is_told_as_such(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a int", properties=ENABLED)
    other = Table(str(tmp_path))
    interrupt(monkeypatch, lambda: other.set_properties({"delta.enableTypeWidening": "false"}))
    with pytest.raises(SchemaMismatch, match="a is int in the table and bigint in the data"):
        table.append(frame(spark, "a bigint", 1), merge_schema=True)
    assert (table.refresh().version, leftovers(table)) == (1, 0)


def test_a_rule_that_somebody_added_is_obeyed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    other = Table(str(tmp_path))
    interrupt(monkeypatch, lambda: other.add_constraint("positive", "a > 0", spark=spark))
    with pytest.raises(CheckViolated, match="positive"):
        table.append(frame(spark, "a int", -1))
    assert (table.refresh().version, leftovers(table)) == (1, 0)


def test_another_table_in_the_same_place_gets_no_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    elsewhere = widen.create_table(str(tmp_path.with_name("elsewhere")), "a int")
    interrupt(monkeypatch, lambda: commit(table.store, table.snapshot, [elsewhere.metadata], "REPLACE", {}))
    with pytest.raises(MetadataChanged, match="it changed id"):
        table.append(frame(spark, "a int", 1))
    assert leftovers(table) == 0


def test_attempts_are_bounded(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    other = Table(str(tmp_path))
    monkeypatch.setattr("widen.log.commit_outcome.MAX_CONFLICTS", 2)
    interrupt(monkeypatch, *[lambda n=n: other.set_properties({"n": str(n)}) for n in range(2)])  # type: ignore[misc]
    with pytest.raises(MetadataChanged, match="it changed n"):
        table.append(frame(spark, "a int", 1))
    assert (table.refresh().version, leftovers(table)) == (2, 0)
