"""Delta Lake on Spark, the reference: it reads and goes on writing what we wrote, and we what it wrote."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from interop import rows
from widen.errors import FeatureRequired
from widen.table import Table, create_table

WIDENING = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
MAPPINGS = ["none", "name", "id"]
LAYOUTS = list(product(MAPPINGS, [(), ("city",)]))


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.mark.parametrize(("mapping", "partition_by"), LAYOUTS)
def test_delta_reads_what_we_wrote_and_widened(
    spark: SparkSession, place: str, mapping: str, partition_by: tuple[str, ...]
) -> None:
    table = _ours(spark, place, mapping, partition_by)
    _widen_ours(table)
    table.append(rows.frame(spark, rows.NEW, rows.WIDE))
    found = _delta(spark, place)
    assert rows.shape(found) == rows.to_schema(rows.WIDE).simpleString()
    assert rows.exact(found) == rows.expected(rows.OLD_WIDE + rows.NEW)


@pytest.mark.parametrize(("mapping", "partition_by"), LAYOUTS)
def test_we_read_what_delta_wrote_and_widened(
    spark: SparkSession, place: str, mapping: str, partition_by: tuple[str, ...]
) -> None:
    _theirs(spark, place, {**WIDENING, "delta.columnMapping.mode": mapping}, partition_by)
    _widen_theirs(spark, place)
    _insert(spark, place, rows.NEW, rows.WIDE)
    found = Table(place).read(spark=spark)
    assert rows.shape(found) == rows.to_schema(rows.WIDE).simpleString()
    assert rows.exact(found) == rows.expected(rows.OLD_WIDE + rows.NEW)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_both_record_the_same_history_of_types(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    mine, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    table = _ours(spark, mine, mapping, ())
    _theirs(spark, theirs, {**WIDENING, "delta.columnMapping.mode": mapping}, ())
    _widen_ours(table)
    _widen_theirs(spark, theirs)
    assert _type_changes(mine) == _type_changes(theirs)
    assert len(_type_changes(mine)) == len(rows.CHANGES)


def test_both_want_the_feature_of_a_new_type_first(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    create_table(mine, rows.NARROW, properties={"delta.enableTypeWidening": "true"})
    _theirs(spark, theirs, {"delta.enableTypeWidening": "true"}, ())
    with pytest.raises(FeatureRequired, match=r"DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT.*timestampNtz"):
        Table(mine).alter_column("day", type="timestamp_ntz")
    with pytest.raises(Py4JJavaError, match=r"DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT.*timestampNtz"):
        spark.sql(f"ALTER TABLE delta.`{theirs}` ALTER COLUMN day TYPE timestamp_ntz")


@pytest.mark.parametrize(("mapping", "partition_by"), LAYOUTS)
def test_delta_appends_and_widens_what_we_wrote(
    spark: SparkSession, place: str, mapping: str, partition_by: tuple[str, ...]
) -> None:
    _ours(spark, place, mapping, partition_by)
    _widen_theirs(spark, place)
    _insert(spark, place, rows.NEW, rows.WIDE)
    found = Table(place).read(spark=spark)
    assert rows.shape(found) == rows.to_schema(rows.WIDE).simpleString()
    assert rows.exact(found) == rows.expected(rows.OLD_WIDE + rows.NEW)


@pytest.mark.parametrize(("mapping", "partition_by"), LAYOUTS)
def test_we_append_and_widen_what_delta_wrote(
    spark: SparkSession, place: str, mapping: str, partition_by: tuple[str, ...]
) -> None:
    _theirs(spark, place, {**WIDENING, "delta.columnMapping.mode": mapping}, partition_by)
    table = Table(place)
    _widen_ours(table)
    table.append(rows.frame(spark, rows.NEW, rows.WIDE))
    found = _delta(spark, place)
    assert rows.shape(found) == rows.to_schema(rows.WIDE).simpleString()
    assert rows.exact(found) == rows.expected(rows.OLD_WIDE + rows.NEW)


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_we_read_deletion_vectors_and_checkpoints_of_delta(
    spark: SparkSession, place: str, policy: str, mapping: str
) -> None:
    properties = {
        **WIDENING,
        "delta.columnMapping.mode": mapping,
        "delta.enableDeletionVectors": "true",
        "delta.checkpointPolicy": policy,
        "delta.checkpointInterval": "2",
    }
    _theirs(spark, place, properties, ())
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 2")
    _widen_theirs(spark, place)
    _insert(spark, place, rows.NEW, rows.WIDE)
    table = Table(place)
    assert any(vector is not None for vector in table.files().column("deletion_vector").to_pylist())
    assert list(Path(place, "_delta_log").glob("*.checkpoint*"))
    kept = [row for row in rows.OLD_WIDE if row[0] != 2]
    assert rows.exact(table.read(spark=spark)) == rows.expected(kept + rows.NEW)
    assert rows.exact(table.read(where="id > 2", spark=spark)) == rows.expected([kept[1], *rows.NEW])


def test_every_version_reads_alike(spark: SparkSession, place: str) -> None:
    table = _ours(spark, place, "none", ())
    _widen_ours(table)
    _insert(spark, place, rows.NEW, rows.WIDE)
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 1")
    for version in range(table.refresh().version + 1):
        ours = table.read(version=version, spark=spark)
        theirs = spark.read.format("delta").option("versionAsOf", version).load(place)
        assert rows.shape(ours) == rows.shape(theirs), version
        assert rows.exact(ours) == rows.exact(theirs), version


def test_delta_reads_our_checkpoints(spark: SparkSession, place: str) -> None:
    properties = {**WIDENING, "delta.checkpointInterval": "3"}
    table = create_table(place, rows.NARROW, properties=properties)
    table.append(rows.frame(spark, rows.OLD, rows.NARROW))
    _widen_ours(table)
    table.append(rows.frame(spark, rows.NEW, rows.WIDE))
    checkpoints = sorted(Path(place, "_delta_log").glob("*.checkpoint*"))
    assert checkpoints
    newest = int(checkpoints[-1].name.split(".")[0])
    for commit in Path(place, "_delta_log").glob("*.json"):
        if commit.stem.isdigit() and int(commit.stem) < newest:
            commit.unlink()
    found = _delta(spark, place)
    assert rows.shape(found) == rows.to_schema(rows.WIDE).simpleString()
    assert rows.exact(found) == rows.expected(rows.OLD_WIDE + rows.NEW)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_both_commit_in_turns(spark: SparkSession, place: str, mapping: str) -> None:
    table = _ours(spark, place, mapping, ())
    for turn in range(3):
        _insert(spark, place, [_renumbered(rows.OLD[0], 10 + turn)], rows.NARROW)
        table.append(rows.frame(spark, [_renumbered(rows.OLD[1], 20 + turn)], rows.NARROW))
    ids = [1, 2, 3, 10, 11, 12, 20, 21, 22]
    assert [row.id for row in _delta(spark, place).orderBy("id").collect()] == ids
    assert [row.id for row in table.read(spark=spark).orderBy("id").collect()] == ids
    assert spark.sql(f"DESCRIBE HISTORY delta.`{place}`").count() == table.version + 1


def test_delta_prunes_by_our_statistics(spark: SparkSession, place: str) -> None:
    table = _ours(spark, place, "none", ())
    _widen_ours(table)
    table.append(rows.frame(spark, rows.NEW, rows.WIDE))
    found = _delta(spark, place)
    for condition, ids in [
        ("id > 3", [9007199254740993]),
        ("amount = 99999999.99", [1]),
        ("day = timestamp_ntz'2024-02-29 00:00:00'", [1]),
        ("who.age >= 32767", [1, 9007199254740993]),
        ("city is null", [3]),
        ("share = 0", [2]),
    ]:
        assert [row.id for row in found.where(condition).orderBy("id").collect()] == ids, condition
        assert [row.id for row in table.read(where=condition, spark=spark).orderBy("id").collect()] == ids, condition


def _ours(spark: SparkSession, place: str, mapping: str, partition_by: tuple[str, ...]) -> Table:
    properties = WIDENING if mapping == "none" else {**WIDENING, "delta.columnMapping.mode": mapping}
    table = create_table(place, rows.NARROW, partition_by=partition_by, properties=properties)
    return table.append(rows.frame(spark, rows.OLD, rows.NARROW)).table


def _theirs(spark: SparkSession, place: str, properties: dict[str, str], partition_by: tuple[str, ...]) -> None:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    split = f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
    spark.sql(f"CREATE TABLE delta.`{place}` ({rows.NARROW}) USING delta {split} TBLPROPERTIES ({listed})")
    _insert(spark, place, rows.OLD, rows.NARROW)


def _insert(spark: SparkSession, place: str, new: list[Any], schema: str) -> None:
    rows.frame(spark, new, schema).coalesce(1).write.format("delta").mode("append").save(place)


def _widen_ours(table: Table) -> None:
    for path, wider in rows.CHANGES:
        table.alter_column(path, type=wider)


def _widen_theirs(spark: SparkSession, place: str) -> None:
    for path, wider in rows.CHANGES:
        spark.sql(f"ALTER TABLE delta.`{place}` ALTER COLUMN {path} TYPE {wider}")


def _delta(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.format("delta").load(place)


def _renumbered(row: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    return (number, *row[1:])


def _type_changes(place: str) -> list[tuple[str, Any]]:
    """Field name and recorded history, for every field that has one, as the newest metadata in the log says."""
    metadata = None
    for commit in sorted(Path(place, "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            metadata = json.loads(line).get("metaData", metadata)
    assert metadata is not None
    return list(_histories(json.loads(metadata["schemaString"])))


def _histories(node: Any) -> list[tuple[str, Any]]:
    if isinstance(node, list):
        return [found for each in node for found in _histories(each)]
    if not isinstance(node, dict):
        return []
    own = node.get("metadata", {}).get("delta.typeChanges")
    mine = [(node["name"], [{key: change[key] for key in sorted(change)} for change in own])] if own else []
    return mine + [
        found
        for key in ("fields", "type", "elementType", "keyType", "valueType")
        for found in _histories(node.get(key))
    ]
