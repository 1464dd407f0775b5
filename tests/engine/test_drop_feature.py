"""DROP FEATURE on real tables: what is rewritten, what the history must be, and what is left.

Source: the acceptance matrix of Delta Lake's type widening (its suites TypeWideningTableFeature…)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.exact import assert_same
from support.old_table import ENABLED, age, file_types, live, log, operations, removed
from support.type_change import CASES
from widen.errors import (
    CorruptFile,
    DropConflict,
    DropPendingRetention,
    FeatureNotPresent,
    HistoryUsesFeature,
    ProtectedVersionsRemain,
    UnsupportedTypeChange,
)
from widen.log.commit import Conflicted, commit
from widen.protocol.actions import Add
from widen.table import Table
from widen.table import maintenance as drop_feature

FEATURE, PREVIEW = "typeWidening", "typeWidening-preview"
SUCCESS, CURRENT, HISTORICAL = None, DropPendingRetention, HistoryUsesFeature
TRACKED = {"delta.enableRowTracking": "true"}


@pytest.fixture(params=[False, True], ids=["plain", "row tracking"])
def properties(request: pytest.FixtureRequest) -> dict[str, str]:
    return {**ENABLED, **TRACKED} if request.param else dict(ENABLED)


def file(spark: SparkSession, values: Sequence[int], kind: str) -> DataFrame:
    rows = ", ".join(f"({value})" for value in values)
    return spark.sql(f"SELECT CAST(v AS {kind}) AS a FROM VALUES {rows} AS rows(v)").coalesce(1)


def byte_table(
    spark: SparkSession, tmp_path: Path, values: Sequence[int], properties: Mapping[str, str] = ENABLED
) -> Table:
    """A table with one file of bytes."""
    table = widen.create_table(str(tmp_path), "a tinyint", properties=properties)
    return table.append(file(spark, values, "tinyint")).table


def drop(
    table: Table, outcome: type[Exception] | None, rewritten: int, spark: SparkSession, feature: str = FEATURE
) -> None:
    """Drop the feature with its history, and check what the suites of Delta Lake check after every drop."""
    before = table.refresh().version
    if outcome is None:
        table.drop_feature(feature, truncate_history=True, spark=spark)
    else:
        with pytest.raises(outcome) as raised:
            table.drop_feature(feature, truncate_history=True, spark=spark)
        fields = raised.value.fields  # type: ignore[attr-defined]
        assert fields == {
            "feature": feature,
            "retention_key": "delta.logRetentionDuration",
            "retention": "30 days",
            "truncate_retention": "24 hours",
        }
    place = Path(table.location)
    assert removed(place, before) == rewritten
    assert (feature in (table.protocol.writer_features or ())) is (outcome is not None)
    assert table.type_changes == []
    assert "delta.enableTypeWidening" not in table.properties


def column_types(table: Table) -> set[tuple[tuple[str, pa.DataType], ...]]:
    paths = table.files()["path"].to_pylist()
    kept = file_types(Path(table.location), paths)
    return {tuple(column for column in columns if not column[0].startswith("_row-")) for columns in kept}


INTEGERS = {(("a", pa.int32()),)}


# ---- the matrix, 7.13: drop ------------------------------------------------------------------------


def test_drop_unused_table_feature_on_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    drop(table, SUCCESS, 0, spark)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 2)
    assert (table.protocol.reader_features, table.protocol.writer_features) == (None, None)
    assert operations(tmp_path) == ["CREATE TABLE", "UNSET TBLPROPERTIES", "Empty Commit", "DROP FEATURE"]
    assert log(tmp_path)[-1]["version"] == table.version == 3


def test_drop_unused_table_feature_on_table_with_data(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = byte_table(spark, tmp_path, [1, 2, 3], properties)
    drop(table, SUCCESS, 0, spark)
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 2, 3])


def test_drop_feature_on_table_with_data_inserted_before_adding_the_table_feature(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = widen.create_table(
        str(tmp_path), "a tinyint", properties={**properties, "delta.enableTypeWidening": "false"}
    )
    table.append(file(spark, [1, 2, 3], "tinyint"))
    table.set_properties({"delta.enableTypeWidening": "true"}).alter_column("a", type="int")
    _three_calls(table, 1, spark)


def test_drop_table_feature_on_table_with_data_added_only_after_type_change(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties=properties).alter_column("a", type="int")
    table.append(file(spark, [1, 2, 3], "int"))
    _three_calls(table, 0, spark)


def test_drop_table_feature_on_table_with_data_added_before_type_change(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = byte_table(spark, tmp_path, [1, 2, 3], properties)
    _three_calls(table.alter_column("a", type="int"), 1, spark)


def test_drop_table_feature_on_table_with_data_added_before_type_change_and_fully_rewritten_after(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = byte_table(spark, tmp_path, [0, 1, 2], properties)
    table.alter_column("a", type="int").update({"a": "a + 1"}, spark=spark)
    _three_calls(table, 0, spark)


def test_drop_table_feature_on_table_with_data_added_before_type_change_and_partially_rewritten_after(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str]
) -> None:
    table = byte_table(spark, tmp_path, [11, 12], properties)
    table.append(file(spark, [3], "tinyint")).table.alter_column("a", type="int").update(
        {"a": "a - 10"}, "a > 4", spark=spark
    )
    _three_calls(table, 1, spark)


def _three_calls(table: Table, rewritten: int, spark: SparkSession) -> None:
    """The first call removes the traces, the second finds them in the history, the third finds them expired."""
    drop(table, CURRENT, rewritten, spark)
    assert column_types(table) == INTEGERS
    drop(table, HISTORICAL, 0, spark)
    age(Path(table.location), hours=25)
    drop(table, SUCCESS, 0, spark)
    assert column_types(table) == INTEGERS
    assert_same((row.a for row in Table(table.location).read(spark=spark).collect()), [1, 2, 3])


def test_void_to_any_is_not_considered_type_widening_and_causes_no_rewrite(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int, v void", properties=ENABLED)
    table.append(spark.createDataFrame([(1,), (2,)], "a int").coalesce(1)).table.alter_column("v", type="int")
    table.append(spark.createDataFrame([(3, 3)], "a int, v int").coalesce(1))
    drop(table, SUCCESS, 0, spark)
    assert_same(map(tuple, table.read(spark=spark).collect()), [(1, None), (2, None), (3, 3)])


# ---- the matrix, 7.13: advanced --------------------------------------------------------------------

DEPTHS = {
    "top": "{}",
    "inside": "struct<x: {}>",
    "items": "array<{}>",
    "keys": "map<{}, string>",
    "vals": "map<string, {}>",
}
STEPS = {"top": "", "inside": ".x", "items": ".element", "keys": ".key", "vals": ".value"}
ARROW = {
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp_ntz": pa.timestamp("us"),
}


def arrow(sql: str) -> pa.DataType:
    return pa.decimal128(*map(int, sql[8:-1].split(","))) if sql.startswith("decimal") else ARROW[sql]


SHAPES = {
    "top": lambda t: t,
    "inside": lambda t: pa.struct([("0", t)]),
    "items": pa.list_,
    "keys": lambda t: pa.map_(t, pa.string()),
    "vals": lambda t: pa.map_(pa.string(), t),
}


def nested(depth: str, value: Any) -> Any:
    if depth == "keys":
        return {} if value is None or value != value else {value: "v"}
    return {"top": value, "inside": (value,), "items": [value, None], "vals": {"k": value}}[depth]


def rows(which: str) -> list[tuple[Any, ...]]:
    longest = max(len(getattr(case, which)) for case in CASES)
    return [
        tuple(nested(depth, (getattr(case, which) + (None,) * longest)[at]) for case in CASES for depth in DEPTHS)
        for at in range(longest)
    ]


def columns(which: str) -> str:
    return ", ".join(f"{c.name}_{d} {shape.format(getattr(c, which))}" for c in CASES for d, shape in DEPTHS.items())


def test_drop_feature_after_every_type_change_at_every_depth(spark: SparkSession, tmp_path: Path) -> None:
    properties = {**ENABLED, "delta.columnMapping.mode": "name"}
    table = widen.create_table(str(tmp_path), columns("old"), properties=properties)
    table.append(spark.createDataFrame(rows("before"), columns("old")).repartition(2))
    wider = {f"{case.name}_{depth}{step}": case.new for case in CASES for depth, step in STEPS.items()}
    table.alter_columns({path: {"type": new} for path, new in wider.items()})
    table.append(spark.createDataFrame(rows("after"), columns("new")).repartition(3))
    before = table.read(spark=spark).collect()
    drop(table, CURRENT, 2, spark)
    assert_same(table.read(spark=spark).collect(), before)
    types = [SHAPES[depth](arrow(case.new)) for case in CASES for depth in DEPTHS]
    assert {tuple(kind for _, kind in columns) for columns in column_types(table)} == {tuple(types)}


def test_drop_feature_after_a_type_change_with_schema_evolution(spark: SparkSession, tmp_path: Path) -> None:
    table = byte_table(spark, tmp_path, [1])
    table.append(file(spark, [1024], "int"), merge_schema=True)
    drop(table, CURRENT, 1, spark)
    assert column_types(table) == INTEGERS
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 1024])


def test_unsupported_type_changes_stop_the_drop_before_anything_is_written(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a array<int>, b tinyint", properties=ENABLED)
    table.append(spark.createDataFrame([([1], 1)], "a array<int>, b tinyint").coalesce(1))
    table.alter_column("b", type="int")
    _record(table, "a", {"fromType": "integer", "toType": "string", "fieldPath": "element"})
    with pytest.raises(UnsupportedTypeChange, match=r"a\.element changed from INT to STRING"):
        table.drop_feature(FEATURE, spark=spark)
    assert removed(tmp_path, 0) == 0
    assert FEATURE in (table.protocol.writer_features or ())


def _record(table: Table, column: str, entry: dict[str, str]) -> None:
    """Commit an entry of the type history as a writer does that breaks the protocol."""
    metadata = table.refresh().metadata
    schema = json.loads(metadata.schema_string)
    field = next(field for field in schema["fields"] if field["name"] == column)
    field["metadata"].setdefault("delta.typeChanges", []).append(entry)
    broken = msgspec.structs.replace(metadata, schema_string=json.dumps(schema))
    commit(table.store, table.snapshot, [broken], "MANUAL", {}).or_raise()
    table.refresh()


def test_dropping_feature_after_clone_correctly_rewrites_files_with_old_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, place = tmp_path / "source", tmp_path / "cl one"
    table = widen.create_table(str(source), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    table.append(file(spark, [1], "tinyint")).table.append(file(spark, [2], "tinyint")).table.alter_column(
        "a", type="int"
    )
    table.append(file(spark, [200], "int"))
    head = [line for line in log(source) if {"protocol", "metaData"} & line.keys()]
    newest = {key: line for line in head for key in line if key != "version"}
    adds = [{"add": {**add, "path": (source / path).as_uri()}} for path, add in live(source).items()]
    lines = [{"protocol": newest["protocol"]["protocol"]}, {"metaData": newest["metaData"]["metaData"]}, *adds]
    (place / "_delta_log").mkdir(parents=True)
    (place / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))

    clone = Table(str(place))
    drop(clone, CURRENT, 2, spark)
    assert column_types(clone) == INTEGERS
    assert_same((row.a for row in clone.read(spark=spark).collect()), [1, 2, 200])
    mine = [path for path in live(place) if not path.startswith("file:")]
    assert len(live(place)) - len(mine) == 1  # the wide file of the source is shared still
    assert_same((row.a for row in Table(str(source)).read(spark=spark).collect()), [1, 2, 200])


def test_restore_to_before_type_change(spark: SparkSession, tmp_path: Path) -> None:
    table = (
        widen.create_table(str(tmp_path), "a smallint", properties=ENABLED).append(file(spark, [1], "smallint")).table
    )
    table.alter_column("a", type="int").append(file(spark, [-2147483648], "int")).table.restore(version=1)
    drop(table, HISTORICAL, 0, spark)
    assert column_types(table) == {(("a", pa.int16()),)}
    assert_same((row.a for row in table.read(spark=spark).collect()), [1])


def test_dropping_feature_after_restore_correctly_rewrites_files_with_old_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = widen.create_table(str(tmp_path), "a smallint", properties=ENABLED)
    table.append(file(spark, [1], "smallint")).table.append(file(spark, [2], "smallint")).table.alter_column(
        "a", type="int"
    )
    table.rewrite(spark=spark).table.append(file(spark, [-2147483648], "int")).table.restore(version=3)
    drop(table, CURRENT, 2, spark)
    assert column_types(table) == INTEGERS
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 2])


def test_rewriting_files_fails_if_there_are_corrupted_files(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties=ENABLED).alter_column("a", type="int")
    table.append(file(spark, [2], "int")).table.append(file(spark, [3], "int"))
    path = table.files()["path"].to_pylist()[0]
    (tmp_path / path).write_text("corrupted")
    with pytest.raises(CorruptFile, match=path):
        table.drop_feature(FEATURE, spark=spark)
    assert FEATURE in (table.protocol.writer_features or ())


# ---- the matrix, 7.5: with column mapping ----------------------------------------------------------

MAPPED = pytest.mark.parametrize("mapping", ["name", "id"])


def mapped(tmp_path: Path, mapping: str, columns: str) -> Table:
    return widen.create_table(str(tmp_path), columns, properties={**ENABLED, "delta.columnMapping.mode": mapping})


def physical(table: Table, column: str) -> str:
    field = table.snapshot.schema.find(column)
    assert field is not None
    return str(field.metadata["delta.columnMapping.physicalName"])


@MAPPED
def test_change_column_type_and_rename_it(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    odd = "a (with reserved characters)"
    table = mapped(tmp_path, mapping, "a tinyint").append(file(spark, [1], "tinyint")).table
    table.alter_column("a", type="smallint").append(file(spark, [2], "smallint")).table.rename_column("a", odd)
    table.append(file(spark, [3], "smallint").withColumnRenamed("a", odd))
    table.alter_column(f"`{odd}`", type="int").append(file(spark, [4], "int").withColumnRenamed("a", odd))
    drop(table, CURRENT, 3, spark)
    assert column_types(table) == {((physical(table, odd), pa.int32()),)}
    assert_same((row[odd] for row in table.read(spark=spark).collect()), [1, 2, 3, 4])


@MAPPED
def test_dropped_column_should_not_cause_files_to_be_rewritten(
    spark: SparkSession, tmp_path: Path, mapping: str
) -> None:
    table = mapped(tmp_path, mapping, "a tinyint, b tinyint")
    table.append(spark.createDataFrame([(1, 1)], "a tinyint, b tinyint").coalesce(1)).table.alter_column(
        "b", type="int"
    )
    table.append(spark.createDataFrame([(2, 2)], "a tinyint, b int").coalesce(1)).table.drop_columns("b")
    drop(table, HISTORICAL, 0, spark)
    assert {columns[0][1] for columns in column_types(table)} == {pa.int8()}


@MAPPED
def test_swap_column_names_and_change_type(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    table = mapped(tmp_path, mapping, "a tinyint, b tinyint")
    table.append(spark.createDataFrame([(1, 1)], "a tinyint, b tinyint").coalesce(1)).table.alter_column(
        "b", type="int"
    )
    table.append(spark.createDataFrame([(2, 2)], "a tinyint, b int").coalesce(1))
    table.rename_column("b", "c").rename_column("a", "b").rename_column("c", "a")
    table.append(spark.createDataFrame([(3, 3)], "a int, b tinyint").coalesce(1))
    drop(table, CURRENT, 1, spark)
    a, b = physical(table, "a"), physical(table, "b")
    assert {frozenset(columns) for columns in column_types(table)} == {frozenset({(a, pa.int32()), (b, pa.int8())})}
    assert_same((tuple(row) for row in table.read(spark=spark).select("a", "b").collect()), [(1, 1), (2, 2), (3, 3)])


# ---- the matrix, 7.13: preview ---------------------------------------------------------------------


def test_enabling_the_stable_feature_does_not_enable_the_preview_feature(spark: SparkSession, tmp_path: Path) -> None:
    table = byte_table(spark, tmp_path, [1])
    table.alter_column("a", type="int")
    with pytest.raises(FeatureNotPresent):
        table.drop_feature(PREVIEW, spark=spark)
    drop(table, CURRENT, 1, spark)
    age(tmp_path, hours=25)
    drop(table, SUCCESS, 0, spark)


def test_manually_adding_the_stable_and_preview_features_and_dropping_them(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint").add_feature(FEATURE).add_feature(PREVIEW)
    table.set_properties({"delta.enableTypeWidening": "true"}).append(file(spark, [1], "tinyint"))
    table.alter_column("a", type="int")
    drop(table, CURRENT, 1, spark)
    age(tmp_path, hours=25)
    drop(table, SUCCESS, 0, spark)
    assert table.protocol.reader_features == (PREVIEW,)
    drop(table, SUCCESS, 0, spark, feature=PREVIEW)  # its traces went with those of the other one
    assert table.protocol.reader_features is None


def test_tables_with_the_preview_feature_drop_it_and_not_the_stable_one(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint").add_feature(PREVIEW)
    table.set_properties({"delta.enableTypeWidening": "true"}).append(file(spark, [1], "tinyint"))
    table.alter_column("a", type="int")
    with pytest.raises(FeatureNotPresent):
        table.drop_feature(FEATURE, spark=spark)
    drop(table, CURRENT, 1, spark, feature=PREVIEW)
    age(tmp_path, hours=25)
    drop(table, SUCCESS, 0, spark, feature=PREVIEW)


# ---- fast, and what it leaves ----------------------------------------------------------------------


def test_a_fast_drop_hides_the_history_behind_protected_checkpoints(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    table.append(file(spark, [1], "tinyint")).table.alter_column("a", type="int").append(file(spark, [1000], "int"))
    table.drop_feature(FEATURE, spark=spark)
    assert operations(tmp_path)[4:] == [
        "UNSET TBLPROPERTIES", "REORG", "DROP FEATURE", "Empty Commit", "Empty Commit", "Empty Commit", "DROP FEATURE",
    ]  # fmt: skip
    assert table.version == 10
    assert table.properties == {"delta.requireCheckpointProtectionBeforeVersion": "10"}
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 7)
    assert table.protocol.writer_features == ("appendOnly", "checkpointProtection", "invariants")
    checkpoints = sorted(int(path.name[:20]) for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    assert checkpoints == [7, 8, 9, 10]
    assert column_types(table) == INTEGERS
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 1000])
    assert_same((row.a for row in table.read(version=2, spark=spark).collect()), [1])  # we know what it takes

    with pytest.raises(ProtectedVersionsRemain, match="versions before 10"):
        table.drop_feature("checkpointProtection", truncate_history=True)
    age(tmp_path, hours=25)
    table.drop_feature("checkpointProtection", truncate_history=True)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (1, 2)
    assert table.properties == {}
    assert min(int(path.stem) for path in (tmp_path / "_delta_log").glob("*.json")) >= 10
    assert_same((row.a for row in Table(str(tmp_path)).read(spark=spark).collect()), [1, 1000])


def test_nothing_is_left_of_a_property_that_says_false(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    table.set_properties({"delta.enableTypeWidening": "false"}).drop_feature(FEATURE)
    assert table.properties == {"delta.requireCheckpointProtectionBeforeVersion": "6"}
    assert table.version == 6


def test_where_sessions_forbid_fast_drops_the_retention_of_the_log_counts(spark: SparkSession, tmp_path: Path) -> None:
    setting = "spark.databricks.delta.tableFeatures.fastDropFeature.enabled"
    table = byte_table(spark, tmp_path, [1])
    table.alter_column("a", type="int")
    spark.conf.set(setting, "false")
    try:
        for outcome, hours in ((DropPendingRetention, 25), (HistoryUsesFeature, 30 * 24), (None, 0)):
            if outcome is None:
                table.drop_feature(FEATURE, spark=spark)
            else:
                with pytest.raises(outcome):
                    table.drop_feature(FEATURE, spark=spark)
            age(tmp_path, hours)
    finally:
        spark.conf.unset(setting)
    assert "checkpointProtection" not in (table.protocol.writer_features or ())
    assert log(tmp_path)[-1]["version"] == table.version


# ---- in the presence of others ---------------------------------------------------------------------


def _first_time(monkeypatch: pytest.MonkeyPatch, meanwhile: Any, operation: str, protocol: bool = False) -> list[int]:
    """Let somebody commit just before the first attempt of one of our commits."""
    attempts: list[int] = []

    def raced(store: Any, base: Any, actions: Any, said: str, *rest: Any, **more: Any) -> Any:
        is_protocol = any(type(action).__name__ == "Protocol" for action in actions)
        if said == operation and is_protocol is protocol:
            attempts.append(base.version)
            if len(attempts) == 1:
                meanwhile()
        return commit(store, base, actions, said, *rest, **more)

    monkeypatch.setattr(drop_feature, "commit", raced)
    return attempts


def test_the_protected_version_moves_with_the_commit_that_sets_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    table.append(file(spark, [1], "tinyint")).table.alter_column("a", type="int")
    other = Table(str(tmp_path))
    attempts = _first_time(monkeypatch, lambda: other.append(file(spark, [1000], "int")), "DROP FEATURE", protocol=True)
    table.drop_feature(FEATURE, spark=spark)
    assert len(attempts) == 2
    assert table.properties["delta.requireCheckpointProtectionBeforeVersion"] == str(table.version)
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 1000])


def test_a_narrow_file_that_somebody_adds_meanwhile_is_rewritten_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    table.append(file(spark, [1], "tinyint"))
    table.alter_column("a", type="int")
    (path,) = live(tmp_path)

    def stale() -> None:
        """A compaction that read before the change may commit its narrow files after it."""
        (tmp_path / "stale.parquet").write_bytes((tmp_path / path).read_bytes())
        added = _add("stale.parquet", (tmp_path / path).stat().st_size)
        commit(table.store, Table(str(tmp_path)).snapshot, [added], "OPTIMIZE", {}).or_raise()

    _first_time(monkeypatch, stale, "DROP FEATURE", protocol=True)
    table.drop_feature(FEATURE, spark=spark)
    assert operations(tmp_path).count("REORG") == 2
    assert column_types(table) == INTEGERS
    assert_same((row.a for row in table.read(spark=spark).collect()), [1, 1])


def _add(path: str, size: int) -> Add:
    return Add(path=path, partition_values={}, size=size, modification_time=1, data_change=True, stats=None)


def test_a_drop_gives_up_if_somebody_enables_the_feature_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint", properties={"delta.enableTypeWidening": "true"})
    table.append(file(spark, [1], "tinyint")).table.alter_column("a", type="int")
    other = Table(str(tmp_path))
    again = {"delta.enableTypeWidening": "true"}
    _first_time(monkeypatch, lambda: other.set_properties(again), "DROP FEATURE", protocol=True)
    with pytest.raises(DropConflict, match="DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"):
        table.drop_feature(FEATURE, spark=spark)
    assert FEATURE in (table.protocol.writer_features or ())


def test_an_append_that_began_before_the_drop_fails(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint").add_feature(FEATURE)
    base = table.snapshot
    table.drop_feature(FEATURE)
    outcome = commit(table.store, base, [_add("x.parquet", 1)], "WRITE", {})
    assert isinstance(outcome, Conflicted)
    assert outcome.error.code == "DELTA_PROTOCOL_CHANGED"
