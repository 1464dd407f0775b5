"""Changes of columns, by Widen on one table and by Delta Lake on its twin: same columns, same history, same rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from widen.errors import WidenError
from widen.table import Table

Call: TypeAlias = Callable[[Table], Table]

COLUMNS = (
    "id int not null, s struct<x: int, y: array<smallint>>, m map<string, struct<x: int, z: string>>, day date, p int"
)
ROWS = [(1, (2, [3]), {"k": (4, "z")}, None, 5)]
PROPERTIES = {"delta.enableTypeWidening": "true", "delta.feature.allowColumnDefaults": "supported"}

PLAIN: list[tuple[Call, str]] = [
    (lambda t: t.alter_column("s.x", comment="it's ; `x`\n🦆"), "ALTER COLUMN s.x COMMENT 'it\\'s ; `x`\\n🦆'"),
    (lambda t: t.alter_column("s.x", comment=""), "ALTER COLUMN s.x COMMENT ''"),
    (lambda t: t.alter_column("ID", nullable=True), "ALTER COLUMN ID DROP NOT NULL"),
    (lambda t: t.alter_column("s.y.element", type="int"), "ALTER COLUMN s.y.element TYPE int"),
    (lambda t: t.alter_column("m.value.x", type="bigint", comment="b"), "CHANGE COLUMN m.value.x x bigint COMMENT 'b'"),
    (lambda t: t.alter_column("day", first=True), "ALTER COLUMN day FIRST"),
    (lambda t: t.alter_column("m.value.x", after="z"), "ALTER COLUMN m.value.x AFTER z"),
    (lambda t: t.alter_column("id", default="1 + 1"), "ALTER COLUMN id SET DEFAULT 1 + 1"),
    (lambda t: t.alter_column("id", drop_default=True), "ALTER COLUMN id DROP DEFAULT"),
    (
        lambda t: t.add_columns(
            {"n": {"type": "struct<q: int>", "comment": "new", "after": "id"}, "m.value.w": "date"}
        ),
        "ADD COLUMNS (n struct<q: int> COMMENT 'new' AFTER id, m.value.w date)",
    ),
    (
        lambda t: t.alter_columns({"p": {"type": "bigint"}, "s.x": {"comment": "again"}, "id": {"after": "s"}}),
        "ALTER COLUMN p TYPE bigint, s.x COMMENT 'again', id AFTER s",
    ),
    (lambda t: t.add_constraint("Ck", "m['k'].x > 0"), "ADD CONSTRAINT Ck CHECK (m['k'].x > 0)"),
    (lambda t: t.drop_constraint("cK"), "DROP CONSTRAINT cK"),
]
MAPPED: list[tuple[Call, str]] = [
    (lambda t: t.rename_column("s.x", "x y.z"), "RENAME COLUMN s.x TO `x y.z`"),
    (lambda t: t.rename_column("p", "part"), "RENAME COLUMN p TO part"),
    (lambda t: t.drop_columns("m.value.z", "n"), "DROP COLUMNS (m.value.z, n)"),
    (lambda t: t.add_columns({"n": "string", "m.value.z": "int"}), "ADD COLUMNS (n string, m.value.z int)"),
]
STEPS = {"none": PLAIN, "name": PLAIN + MAPPED, "id": PLAIN + MAPPED}


def _made(spark: SparkSession, place: str, mode: str) -> str:
    properties = {**PROPERTIES, "delta.columnMapping.mode": mode}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({listed})")
    spark.createDataFrame(ROWS, COLUMNS).coalesce(1).write.format("delta").mode("append").save(place)
    return place


def _delta(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.format("delta").load(place)


def _repeat(spark: SparkSession, place: str) -> None:
    """Let Delta write a row of the table once more."""
    _delta(spark, place).limit(1).write.format("delta").mode("append").save(place)


def _rows(frame: DataFrame) -> list[str]:
    return sorted(json.dumps(row.asDict(recursive=True), default=str) for row in frame.collect())


def _told(place: str) -> tuple[str, dict[str, Any], list[str]]:
    """What the newest commit says of itself, without what is different in every table."""
    newest = max(Path(place, "_delta_log").glob("*.json"))
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    info = lines[0]["commitInfo"]
    text = re.sub(r"col-[0-9a-f-]{36}", "col", json.dumps(info["operationParameters"]))
    text = re.sub(
        r"m \[ 'k' \] \. x", "m['k'].x", text
    )  # Delta takes the text from its parser, with a space after each token
    told = _parsed(json.loads(text))
    if info["operation"] == "CHANGE COLUMNS":  # Delta tells them in no order
        told["columns"].sort(key=lambda column: column["name"])
    return info["operation"], told, [next(iter(line)) for line in lines[1:]]


def _parsed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _parsed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_parsed(item) for item in value]
    try:
        return _parsed(json.loads(value)) if isinstance(value, str) and value[:1] in "[{" else value
    except ValueError:
        return value


@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_both_change_columns_alike_and_tell_the_same(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    ours, theirs = (_made(spark, str(tmp_path / name), mode) for name in ("ours", "theirs"))
    for call, statement in STEPS[mode]:
        call(Table(ours))
        spark.sql(f"ALTER TABLE delta.`{theirs}` {statement}")
        mine, yours = _told(ours), _told(theirs)
        assert (mine[:2], sorted(mine[2])) == (yours[:2], sorted(yours[2])), statement
        assert _delta(spark, ours).schema == _delta(spark, theirs).schema, statement
    shown = [
        [tuple(row) for row in spark.sql(f"DESCRIBE HISTORY delta.`{place}`").select("version", "operation").collect()]
        for place in (ours, theirs)
    ]
    assert shown[0] == shown[1]
    for place in (ours, theirs):
        _repeat(spark, place)
        table = Table(place)
        table.append(table.read(spark=spark).limit(1))
        assert _rows(table.read(spark=spark)) == _rows(_delta(spark, place))
    assert _rows(_delta(spark, ours)) == _rows(_delta(spark, theirs))
    assert Table(ours).schema == Table(theirs).schema


def test_both_replace_columns_alike(spark: SparkSession, tmp_path: Path) -> None:
    ours, theirs = (_made(spark, str(tmp_path / name), "none") for name in ("ours", "theirs"))
    columns = (
        "p bigint, m map<string, struct<z: string, x: bigint, n: int>>, s struct<y: array<int>, x: int>, day date, "
        "id int, n int"
    )
    Table(ours).replace_columns(columns)
    spark.sql(f"ALTER TABLE delta.`{theirs}` REPLACE COLUMNS ({columns})")
    assert _told(ours)[:2] == _told(theirs)[:2]
    assert _delta(spark, ours).schema == _delta(spark, theirs).schema
    assert _rows(_delta(spark, ours)) == _rows(_delta(spark, theirs)) == _rows(Table(ours).read(spark=spark))


def test_what_we_forbid_delta_forbids_too(spark: SparkSession, tmp_path: Path) -> None:
    place = _made(spark, str(tmp_path / "ours"), "name")
    Table(place).alter_column("p", nullable=False, spark=spark).add_constraint("c", "p > 0", spark=spark)
    assert not Table(place).schema.fields[-1].nullable
    for value in ("null", "-1"):
        with pytest.raises((AnalysisException, Py4JJavaError), match=r"NOT_NULL|CHECK"):
            spark.sql(f"INSERT INTO delta.`{place}` (id, p) VALUES (1, {value})")
    spark.sql(f"INSERT INTO delta.`{place}` (id, p) VALUES (2, 7)")
    assert [row.p for row in Table(place).read(spark=spark).orderBy("p").collect()] == [5, 7]


REFUSED: list[tuple[Call, str]] = [
    (lambda t: t.alter_column("m.key", comment="x"), "ALTER COLUMN m.key COMMENT 'x'"),
    (lambda t: t.alter_column("s", type="struct<x: bigint>"), "ALTER COLUMN s TYPE struct<x: bigint>"),
    (lambda t: t.alter_column("id", type="bigint"), "ALTER COLUMN id TYPE bigint"),
    (lambda t: t.alter_column("g", type="bigint"), "ALTER COLUMN g TYPE bigint"),
    (lambda t: t.alter_column("i", type="decimal(20,0)"), "ALTER COLUMN i TYPE decimal(20,0)"),
    (lambda t: t.alter_column("p", default="'x'"), "ALTER COLUMN p SET DEFAULT 'x'"),
    (lambda t: t.rename_column("s", "ID"), "RENAME COLUMN s TO ID"),
    (lambda t: t.rename_column("m.key", "k"), "RENAME COLUMN m.key TO k"),
    (lambda t: t.rename_column("day", "d"), "RENAME COLUMN day TO d"),
    (lambda t: t.drop_columns("p"), "DROP COLUMN p"),
    (lambda t: t.drop_columns("s.x"), "DROP COLUMN s.x"),
    (lambda t: t.drop_columns("m"), "DROP COLUMN m"),
    (lambda t: t.add_columns({"ID": "int"}), "ADD COLUMN ID int"),
    (lambda t: t.add_columns({"n": {"type": "int", "nullable": False}}), "ADD COLUMN n int NOT NULL"),
    (lambda t: t.add_columns({"n": {"type": "int", "default": "1"}}), "ADD COLUMN n int DEFAULT 1"),
    (lambda t: t.sync_identity("id"), "ALTER COLUMN id SYNC IDENTITY"),
    (lambda t: t.replace_columns("id int"), "REPLACE COLUMNS (id int)"),
    (lambda t: t.drop_constraint("nope"), "DROP CONSTRAINT nope"),
    (lambda t: t.add_constraint("CK", "id > 1"), "ADD CONSTRAINT CK CHECK (id > 1)"),
    (lambda t: t.add_constraint("new", "id > 1"), "ADD CONSTRAINT new CHECK (id > 1)"),
    (lambda t: t.add_constraint("new", "id + 1"), "ADD CONSTRAINT new CHECK (id + 1)"),
]


def test_both_refuse_with_the_same_code(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    spark.sql(
        f"CREATE TABLE delta.`{place}` (id int, s struct<x: int>, m map<string, int>, day date, p int, g int "
        "GENERATED ALWAYS AS (year(day)), i bigint GENERATED BY DEFAULT AS IDENTITY) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true', "
        "'delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql(f"INSERT INTO delta.`{place}` (id, day, p) VALUES (1, date'2024-01-01', 1)")
    spark.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT ck CHECK (id > 0 AND m['a'] IS NULL)")
    version = Table(place).version
    for call, statement in REFUSED:
        with pytest.raises(WidenError) as mine:
            call(Table(place))
        with pytest.raises((AnalysisException, Py4JJavaError)) as yours:
            spark.sql(f"ALTER TABLE delta.`{place}` {statement}")
        assert f"[{mine.value.code}" in str(yours.value), statement
    assert Table(place).version == version


@pytest.mark.parametrize("mode", ["name", "id"])
def test_we_go_on_where_delta_has_changed_columns(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    place = _made(spark, str(tmp_path / "table"), mode)
    for statement in (
        "RENAME COLUMN s.x TO `s x`",
        "DROP COLUMN day",
        "ADD COLUMN day string",
        "ALTER COLUMN m FIRST",
        "RENAME COLUMN p TO q",
    ):
        spark.sql(f"ALTER TABLE delta.`{place}` {statement}")
    table = Table(place)
    table.rename_column("s.`s x`", "x").alter_column("s.x", type="bigint", after="y").drop_columns("m.value.x")
    table.rename_column("q", "p").add_columns({"m.value.x": "date"})
    table.append(table.read(spark=spark).selectExpr("*"))
    _repeat(spark, place)
    found = _rows(table.refresh().read(spark=spark))
    assert found == _rows(_delta(spark, place))
    assert (
        found
        == [
            '{"m": {"k": {"z": "z", "x": null}}, "id": 1, "s": {"y": [3], "x": 2}, "p": 5, "day": null}',
        ]
        * 3
    )
