"""Dropping type widening: others go on with a table that we have taken it from, and we with one of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import widen
from interop import rows
from support.old_table import age, file_types, live
from widen.errors import HistoryUsesFeature, ProtectedVersionsRemain
from widen.table import Table, create_table

WIDENING = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
FEATURE = "typeWidening"
WIDE = {
    "id": pa.int64(),
    "city": pa.string(),
    "small": pa.int16(),
    "amount": pa.decimal128(14, 4),
    "share": pa.float64(),
    "day": pa.timestamp("us"),
    "tags": pa.list_(pa.int64()),
    "prices": pa.map_(pa.string(), pa.int64()),
    "who": pa.struct([("0", pa.string()), ("1", pa.int32())]),
}
NESTED = "id int, items array<smallint>, keys map<smallint, string>, vals map<string, smallint>"
NESTED_CHANGES = {"items.element": "int", "keys.key": "int", "vals.value": "int"}
NESTED_ROWS = [(1, [1, None], {2: "x"}, {"y": 3}), (2, [], {}, {})]
NESTED_WIDE = {
    "id": pa.int32(),
    "items": pa.list_(pa.int32()),
    "keys": pa.map_(pa.int32(), pa.string()),
    "vals": pa.map_(pa.string(), pa.int32()),
}


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def widened(spark: SparkSession, place: str, mapping: str = "none", partition_by: tuple[str, ...] = ()) -> Table:
    """A table of narrow files and a wide one, written by us."""
    properties = WIDENING if mapping == "none" else {**WIDENING, "delta.columnMapping.mode": mapping}
    table = (
        create_table(place, rows.NARROW, partition_by=partition_by, properties=properties)
        .append(rows.frame(spark, rows.OLD, rows.NARROW))
        .table
    )
    table.alter_columns({path: {"type": wider} for path, wider in rows.CHANGES})
    return table.append(rows.frame(spark, rows.NEW, rows.WIDE)).table


def sql(spark: SparkSession, place: str, text: str) -> None:
    spark.sql(text.format(t=f"delta.`{place}`")).collect()


def history(spark: SparkSession, place: str) -> list[tuple[str, dict[str, str]]]:
    found = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").orderBy("version").collect()
    return [(row.operation, row.operationParameters) for row in found]


def types(place: str) -> set[tuple[tuple[str, pa.DataType], ...]]:
    return file_types(Path(place), Table(place).files()["path"].to_pylist())


@pytest.mark.parametrize(("mapping", "partition_by"), [("none", ()), ("none", ("city",)), ("name", ())])
def test_delta_goes_on_with_a_table_whose_feature_we_dropped(
    spark: SparkSession, place: str, mapping: str, partition_by: tuple[str, ...]
) -> None:
    table = widened(spark, place, mapping, partition_by).drop_feature(FEATURE, spark=spark)
    found = spark.read.format("delta").load(place)
    assert rows.shape(found) == rows.to_schema(rows.WIDE).simpleString()
    assert rows.exact(found) == rows.expected(rows.OLD_WIDE + rows.NEW)
    told = history(spark, place)
    assert [operation for operation, _ in told[-7:]] == [
        "UNSET TBLPROPERTIES", "REORG", "DROP FEATURE", "Empty Commit", "Empty Commit", "Empty Commit", "DROP FEATURE",
    ]  # fmt: skip
    assert told[-1][1] == {"featureName": FEATURE, "truncateHistory": "false"}
    assert told[-6][1] == {"predicate": "[]", "applyPurge": "true"}
    old = spark.read.format("delta").option("versionAsOf", 1).load(place)
    assert rows.exact(old) == rows.expected(rows.OLD)

    later = [(77, *rows.NEW[0][1:])]
    rows.frame(spark, later, rows.WIDE).write.format("delta").mode("append").save(place)
    sql(spark, place, "DELETE FROM {t} WHERE id = 2")
    sql(spark, place, "OPTIMIZE {t}")
    sql(spark, place, "VACUUM {t}")
    sql(spark, place, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    sql(spark, place, "ALTER TABLE {t} ALTER COLUMN small TYPE int")
    kept = [row for row in rows.OLD_WIDE + rows.NEW + later if row[0] != 2]
    assert rows.exact(table.refresh().read(spark=spark)) == rows.expected(kept)


def test_clients_that_do_not_know_widening_open_the_table(spark: SparkSession, place: str) -> None:
    widened(spark, place).drop_feature(FEATURE, spark=spark)
    assert {frozenset(columns) for columns in types(place)} == {frozenset(WIDE.items())}
    read = DeltaTable(place).to_pyarrow_table()
    assert sorted(read["id"].to_pylist()) == [1, 2, 3, 9007199254740993]
    assert read.schema.field("day").type == pa.timestamp("us")
    paths = [str(Path(place) / path) for path in Table(place).files()["path"].to_pylist()]
    plain = pa.concat_tables([pq.read_table(path) for path in paths])
    assert sorted(plain["id"].to_pylist()) == [1, 2, 3, 9007199254740993]
    assert plain.schema.field("amount").type == pa.decimal128(14, 4)


def test_after_the_history_is_truncated_nothing_tells_of_the_feature(spark: SparkSession, place: str) -> None:
    table = create_table(place, NESTED, properties={"delta.enableTypeWidening": "true"})
    table.append(rows.frame(spark, NESTED_ROWS, NESTED))
    table.alter_columns({path: {"type": wider} for path, wider in NESTED_CHANGES.items()})
    with pytest.raises(Exception, match="DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
        table.drop_feature(FEATURE, truncate_history=True, spark=spark)
    with pytest.raises(HistoryUsesFeature):
        table.drop_feature(FEATURE, truncate_history=True, spark=spark)
    age(Path(place), hours=25)
    table.drop_feature(FEATURE, truncate_history=True, spark=spark)
    opened = DeltaTable(place)
    assert (opened.protocol().min_reader_version, opened.protocol().min_writer_version) == (1, 2)
    opened.delete("id = 2")
    assert [row.id for row in table.refresh().read(spark=spark).collect()] == [1]
    found = spark.read.format("delta").load(place).collect()
    assert [(row.id, row["items"], row["keys"], row["vals"]) for row in found] == NESTED_ROWS[:1]


def test_delta_completes_what_we_began_and_we_what_it_began(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    for place in (mine, theirs):
        widened(spark, place)
    statement = f"ALTER TABLE {{t}} DROP FEATURE '{FEATURE}' TRUNCATE HISTORY"
    with pytest.raises(Exception, match="DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
        Table(mine).drop_feature(FEATURE, truncate_history=True, spark=spark)
    with pytest.raises(Exception, match="DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"):
        sql(spark, theirs, statement)
    for place in (mine, theirs):
        age(Path(place), hours=25)
    sql(spark, mine, statement)
    Table(theirs).drop_feature(FEATURE, truncate_history=True, spark=spark)
    for place in (mine, theirs):
        table = Table(place)
        assert FEATURE not in (table.protocol.writer_features or ())
        assert rows.exact(table.read(spark=spark)) == rows.expected(rows.OLD_WIDE + rows.NEW)
        assert {frozenset(columns) for columns in types(place)} == {frozenset(WIDE.items())}


def test_we_rewrite_elements_keys_and_values_that_delta_misses(spark: SparkSession, tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs")
    table = create_table(theirs, NESTED, properties={"delta.enableTypeWidening": "true"})
    table.append(rows.frame(spark, NESTED_ROWS, NESTED).coalesce(1))
    table.alter_columns({path: {"type": wider} for path, wider in NESTED_CHANGES.items()})
    sql(spark, theirs, f"ALTER TABLE {{t}} DROP FEATURE '{FEATURE}'")
    assert FEATURE not in (table.refresh().protocol.writer_features or ())
    left = {old.path: old.type for old in table.old_types()}
    assert left == {("items", "element"): "smallint", ("keys", "key"): "smallint", ("vals", "value"): "smallint"}
    table.rewrite(spark=spark)
    assert types(theirs) == {tuple(NESTED_WIDE.items())}

    mine = str(tmp_path / "mine")
    table = create_table(mine, NESTED, properties={"delta.enableTypeWidening": "true"})
    table.append(rows.frame(spark, NESTED_ROWS, NESTED).coalesce(1))
    table.alter_columns({path: {"type": wider} for path, wider in NESTED_CHANGES.items()})
    table.drop_feature(FEATURE, spark=spark)
    assert types(mine) == {tuple(NESTED_WIDE.items())}
    for place in (theirs, mine):
        found = spark.read.format("delta").load(place).orderBy("id").collect()
        assert [(row.id, row["items"], row["keys"], row["vals"]) for row in found] == NESTED_ROWS


def test_we_respect_checkpoints_that_delta_protects(spark: SparkSession, place: str) -> None:
    day = {f"delta.{kind}RetentionDuration": "interval 1 day" for kind in ("log", "deletedFile")}
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in {**WIDENING, **day, "delta.checkpointInterval": "2"}.items())
    sql(spark, place, f"CREATE TABLE {{t}} (a smallint) USING delta TBLPROPERTIES ({listed})")
    sql(spark, place, "INSERT INTO {t} VALUES (1)")
    sql(spark, place, "ALTER TABLE {t} ALTER COLUMN a TYPE int")
    sql(spark, place, f"ALTER TABLE {{t}} DROP FEATURE '{FEATURE}'")
    table = Table(place)
    protected = int(table.properties["delta.requireCheckpointProtectionBeforeVersion"])
    commits = Path(place, "_delta_log")

    def oldest() -> int:
        return min(int(path.stem) for path in commits.glob("*.json"))

    for path in commits.iterdir():  # what lies before the protected version has expired, but not all of it
        if path.name[:20].isdigit() and int(path.name[:20]) < protected - 1:
            age(path, hours=72)
    for value in (2, 3):
        table.append(rows.frame(spark, [(value,)], "a int"))
    assert oldest() == 0  # a checkpoint was due, and nothing went piecemeal
    with pytest.raises(ProtectedVersionsRemain):
        table.drop_feature("checkpointProtection", truncate_history=True)
    age(Path(place), hours=72)
    for value in (4, 5):
        table.append(rows.frame(spark, [(value,)], "a int"))
    assert oldest() >= protected
    table.drop_feature("checkpointProtection", truncate_history=True)
    assert "checkpointProtection" not in (table.protocol.writer_features or ())
    assert sorted(row.a for row in spark.read.format("delta").load(place).collect()) == [1, 2, 3, 4, 5]


def test_delta_refuses_to_drop_what_we_have_dropped(spark: SparkSession, place: str) -> None:
    widened(spark, place).drop_feature(FEATURE, spark=spark)
    with pytest.raises(Py4JJavaError, match="DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"):
        sql(spark, place, f"ALTER TABLE {{t}} DROP FEATURE '{FEATURE}'")
    with pytest.raises(Exception, match="DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"):
        Table(place).drop_feature(FEATURE)


@pytest.mark.parametrize("partition_by", [(), ("city",)])
def test_rows_that_we_rewrite_keep_the_ids_that_delta_reads(
    spark: SparkSession, place: str, partition_by: tuple[str, ...]
) -> None:
    split = f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
    listed = ", ".join(f"'{k}' = '{v}'" for k, v in {**WIDENING, "delta.enableRowTracking": "true"}.items())
    sql(spark, place, f"CREATE TABLE {{t}} ({rows.NARROW}) USING delta {split} TBLPROPERTIES ({listed})")
    rows.frame(spark, rows.OLD, rows.NARROW).coalesce(1).write.format("delta").mode("append").save(place)
    sql(spark, place, "UPDATE {t} SET small = 5 WHERE id = 1")  # this row keeps its id in a file
    table = Table(place)
    table.alter_columns({path: {"type": wider} for path, wider in rows.CHANGES})
    before = _ids(spark, place)
    table.rewrite(spark=spark)
    assert _ids(spark, place) == before
    assert table.old_types() == []


def _ids(spark: SparkSession, place: str) -> list[Any]:
    found = spark.read.format("delta").load(place)
    return found.select("id", "_metadata.row_id", "_metadata.row_commit_version").orderBy("id").collect()


def test_delta_switches_row_tracking_on_where_we_did(spark: SparkSession, place: str) -> None:
    table = create_table(place, rows.NARROW).append(rows.frame(spark, rows.OLD, rows.NARROW).coalesce(1)).table
    table.set_properties({"delta.enableRowTracking": "true"})
    assert [row.row_id for row in _ids(spark, place)] == [0, 1, 2]
    sql(spark, place, "UPDATE {t} SET city = 'Gent' WHERE id = 2")
    assert [row.row_id for row in _ids(spark, place)] == [0, 1, 2]


def test_each_goes_on_after_a_restore_of_the_other(spark: SparkSession, place: str) -> None:
    table = widened(spark, place).rewrite(spark=spark).table.restore(version=1).table
    assert rows.exact(spark.read.format("delta").load(place)) == rows.expected(rows.OLD)
    assert history(spark, place)[-1] == ("RESTORE", {"version": "1", "timestamp": None})
    sql(spark, place, "RESTORE TABLE {t} TO VERSION AS OF 3")
    assert rows.exact(table.refresh().read(spark=spark)) == rows.expected(rows.OLD_WIDE + rows.NEW)
    assert len(live(Path(place))) == len(table.files())
    assert rows.exact(table.rewrite(spark=spark).table.read(spark=spark)) == rows.expected(rows.OLD_WIDE + rows.NEW)


@pytest.mark.parametrize("mode", ["name", "id"])
def test_column_mapping_ends_as_delta_lake_ends_it(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Ours and theirs have the same rows, ids, schema, properties and protocol; deltalake reads both."""
    found = []
    for name in ("ours", "theirs"):
        place = str(tmp_path / name)
        spark.sql(
            f"CREATE TABLE delta.`{place}` (id INT, part STRING, s STRUCT<x: INT>, gone INT) USING delta "
            f"PARTITIONED BY (part) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', "
            "'delta.enableDeletionVectors' = 'false', 'delta.enableRowTracking' = 'true')"
        )
        spark.sql(
            f"INSERT INTO delta.`{place}` SELECT /*+ COALESCE(1) */ * FROM VALUES "
            "(1, 'a', struct(2), 3), (2, NULL, NULL, 4), (9, 'b', struct(NULL), 5)"
        )
        for change in (
            "RENAME COLUMN s.x TO z",
            "RENAME COLUMN part TO kind",
            "DROP COLUMN gone",
            "ADD COLUMN gone INT",
        ):
            spark.sql(f"ALTER TABLE delta.`{place}` {change}")
        change = f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
        if name == "theirs":
            spark.sql(change)
        else:
            ids = spark.sql(f"SELECT id, _metadata.row_id FROM delta.`{place}` ORDER BY id").collect()
            widen.sql(change, spark=spark)
            assert spark.sql(f"SELECT id, _metadata.row_id FROM delta.`{place}` ORDER BY id").collect() == ids
        rows = spark.sql(f"SELECT * FROM delta.`{place}` ORDER BY id").collect()
        last = spark.sql(f"DESCRIBE HISTORY delta.`{place}` LIMIT 1").collect()[0]
        table = Table(place)
        own = {key: text for key, text in table.properties.items() if "rowTracking" not in key}
        dataset = sorted(DeltaTable(place).to_pyarrow_table().to_pylist(), key=lambda row: int(row["id"]))
        found.append((rows, last["operation"], table.metadata.schema_string, own, table.protocol, dataset))
    assert found[0] == found[1]
    assert found[0][-1][0] == {"id": 1, "kind": "a", "s": {"z": 2}, "gone": None}
    dropped = Table(str(tmp_path / "ours")).drop_feature("columnMapping", spark=spark)
    assert "delta.columnMapping.mode" not in dropped.properties
    assert spark.sql(f"SELECT * FROM delta.`{tmp_path}/ours` ORDER BY id").collect() == found[0][0]


def test_clustering_columns_have_their_names_after_column_mapping(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{place}` (id INT, a INT) USING delta CLUSTER BY (a) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{place}` VALUES (1, 2)")
    Table(place).set_properties({"delta.columnMapping.mode": "none"}, spark=spark)
    assert spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()[0]["clusteringColumns"] == ["a"]
    spark.sql(f"INSERT INTO delta.`{place}` VALUES (3, 4)")
    spark.sql(f"OPTIMIZE delta.`{place}`")
    assert {tuple(row) for row in spark.sql(f"SELECT * FROM delta.`{place}`").collect()} == {(1, 2), (3, 4)}


@pytest.mark.parametrize(
    "clause", ["(id INT, a INT) USING delta CLUSTER BY (A, id)", "CLUSTER BY (A, id) AS SELECT 1 id, 2 a"]
)
def test_delta_lake_clusters_a_table_that_was_created_clustered(
    spark: SparkSession, tmp_path: Path, clause: str
) -> None:
    place = str(tmp_path / "t")
    widen.sql(f"CREATE TABLE delta.`{place}` {clause}", spark=spark)
    assert spark.sql(f"DESCRIBE DETAIL delta.`{place}`").collect()[0]["clusteringColumns"] == ["a", "id"]
    spark.sql(f"INSERT INTO delta.`{place}` VALUES (3, 4)")
    spark.sql(f"OPTIMIZE delta.`{place}`")
    assert spark.sql(f"SELECT a FROM delta.`{place}` WHERE id = 3").collect()[0][0] == 4


USES: dict[str, tuple[dict[str, str], bool]] = {
    "deletionVectors": ({"delta.enableDeletionVectors": "true"}, True),
    "rowTracking": ({"delta.enableRowTracking": "true", "delta.enableDeletionVectors": "false"}, False),
    "v2Checkpoint": ({"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "false"}, True),
}
"""Features, the properties of a table that uses them, and whether older versions need them."""

TRACKED_BY_NAME = ("delta.rowTracking.", "delta.requireCheckpointProtection")


def used(spark: SparkSession, place: str, feature: str, mapping: str) -> None:
    """A table of Delta Lake that uses a feature in its data, its log and its history."""
    properties = {**USES[feature][0], "delta.columnMapping.mode": mapping, "delta.checkpointInterval": "2"}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    sql(spark, place, f"CREATE TABLE {{t}} (id INT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ({listed})")
    sql(spark, place, "INSERT INTO {t} SELECT /*+ COALESCE(1) */ int(id), 'a b' FROM range(10)")
    sql(spark, place, "INSERT INTO {t} SELECT /*+ COALESCE(1) */ int(id), NULL FROM range(10, 20)")
    sql(spark, place, "DELETE FROM {t} WHERE id IN (3, 13)")
    sql(spark, place, "UPDATE {t} SET id = 104 WHERE id = 4")
    sql(spark, place, "INSERT INTO {t} VALUES (200, 'c')")


LEFT = sorted([*(id for id in range(20) if id not in (3, 4, 13)), 104, 200])


def ids(spark: SparkSession, place: str, version: int | None = None) -> list[int]:
    reader = spark.read.format("delta")
    reader = reader if version is None else reader.option("versionAsOf", version)
    return sorted(row.id for row in reader.load(place).collect())


def protocol(place: str) -> tuple[object, ...]:
    found = Table(place).protocol
    listed = (None if names is None else sorted(names) for names in (found.reader_features, found.writer_features))
    return (found.min_reader_version, found.min_writer_version, *listed)


def own_properties(place: str) -> dict[str, str]:
    return {key: text for key, text in Table(place).properties.items() if not key.startswith(TRACKED_BY_NAME)}


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("feature", USES)
def test_features_are_dropped_as_delta_lake_drops_them(
    spark: SparkSession, tmp_path: Path, feature: str, mapping: str
) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    for place in (mine, theirs):
        used(spark, place, feature, mapping)
    statement = f"ALTER TABLE {{t}} DROP FEATURE {feature}"
    sql(spark, theirs, statement)
    widen.sql(statement.format(t=f"delta.`{mine}`"), spark=spark)

    assert protocol(mine) == protocol(theirs)
    assert own_properties(mine) == own_properties(theirs)
    assert history(spark, mine)[-1] == history(spark, theirs)[-1]
    for place in (mine, theirs):
        table = Table(place)
        assert ids(spark, place) == sorted(row.id for row in table.read(spark=spark).collect()) == LEFT
        assert ids(spark, place, version=1) == list(range(10))
        assert table.files()["deletion_vector"].null_count == len(table.files())
        if feature == "rowTracking":
            assert table.files()["base_row_id"].null_count == len(table.files())
            assert "delta.rowTracking" not in table.snapshot.domains
    if mapping == "none":
        found = DeltaTable(mine)
        assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == LEFT
    # Each goes on with the table of the other: new rows, deletes, a checkpoint, a vacuum, the feature again.
    for place in (mine, theirs):
        sql(spark, place, "INSERT INTO {t} VALUES (201, 'd')")
        sql(spark, place, "DELETE FROM {t} WHERE id = 0")
        Table(place).delete("id = 1", spark=spark)
        sql(spark, place, "VACUUM {t}")
        Table(place).vacuum()
        assert ids(spark, place) == sorted({*LEFT, 201} - {0, 1})
        assert ids(spark, place, version=3) == [id for id in range(20) if id not in (3, 13)]
        key, value = next(iter(USES[feature][0].items()))
        sql(spark, place, f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{key}' = '{value}')")
        sql(spark, place, "DELETE FROM {t} WHERE id = 2")
        assert sorted(row.id for row in Table(place).read(spark=spark).collect()) == sorted({*LEFT, 201} - {0, 1, 2})


@pytest.mark.parametrize("feature", [feature for feature, (_, keeps_history) in USES.items() if keeps_history])
def test_the_history_of_a_feature_is_truncated_as_by_delta_lake(
    spark: SparkSession, tmp_path: Path, feature: str
) -> None:
    places = mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    statement = f"ALTER TABLE {{t}} DROP FEATURE {feature} TRUNCATE HISTORY"

    def drop(place: str) -> str:
        run = widen.sql if place == mine else spark.sql
        arguments = {"spark": spark} if place == mine else {}
        try:
            run(statement.format(t=f"delta.`{place}`"), **arguments)
        except Exception as error:
            known = ("WAIT_FOR_RETENTION_PERIOD", "HISTORICAL_VERSIONS_EXIST")
            return next(name for name in known if name in str(error))
        return "dropped"

    for place in places:
        used(spark, place, feature, "none")
    assert [drop(place) for place in places] == ["WAIT_FOR_RETENTION_PERIOD"] * 2
    assert [drop(place) for place in places] == ["HISTORICAL_VERSIONS_EXIST"] * 2
    for place in places:
        age(Path(place), hours=25)
    assert [drop(place) for place in places] == ["dropped"] * 2
    assert protocol(mine) == protocol(theirs) == (1, 2, None, None)
    for place in places:
        assert ids(spark, place) == sorted(row.id for row in Table(place).read(spark=spark).collect()) == LEFT
    assert sorted(DeltaTable(mine).to_pyarrow_table()["id"].to_pylist()) == LEFT


def test_row_tracking_has_no_history_to_truncate(spark: SparkSession, place: str) -> None:
    used(spark, place, "rowTracking", "none")
    statement = f"ALTER TABLE delta.`{place}` DROP FEATURE rowTracking TRUNCATE HISTORY"
    for run in (spark.sql, lambda text: widen.sql(text, spark=spark)):
        with pytest.raises(Exception, match="DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED"):
            run(statement)
