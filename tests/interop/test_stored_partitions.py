"""Tables whose files also contain the partition columns: both engines write them, and both read the log's values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from widen import ingest
from widen.errors import DataSourceRefused
from widen.protocol.table_features import supported_features
from widen.table import Table, create_table

PROPERTY = {"delta.writePartitionColumnsToParquet": "true"}
FEATURE = {"delta.feature.materializePartitionColumns": "supported"}
SWITCH = {"delta.enableMaterializePartitionColumnsFeature": "true"}
REQUESTS = {"property": PROPERTY, "feature": FEATURE, "switch": SWITCH}
COLUMNS = "id int, city string, day date, at timestamp, amount decimal(9,2), tags array<int>, gap void, last int"
SPLIT = ["city", "day", "at", "amount"]
VALUES = (
    "(1, 'a b/c=%', DATE'2024-02-29', TIMESTAMP'2024-02-29 12:30:00.000001', 1.50BD, array(1, NULL), NULL, 9)",
    "(2, '', DATE'0001-01-01', TIMESTAMP'1970-01-01 00:00:00', -0.01BD, array(), NULL, 8)",
    "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
)
LAYOUTS = [
    {"delta.columnMapping.mode": mapping, "delta.enableDeletionVectors": vectors, "delta.enableRowTracking": vectors}
    for mapping, vectors in product(("none", "name", "id"), ("true", "false"))
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def make(spark: SparkSession, place: str, properties: Mapping[str, str]) -> Table:
    table = create_table(place, COLUMNS, partition_by=SPLIT, properties=dict(properties))
    return table.append(values(spark, *VALUES)).table


def values(spark: SparkSession, *rows: str) -> Any:
    names = ", ".join(column.split()[0] for column in COLUMNS.split(", "))
    return spark.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t({names})")


def seen(spark: SparkSession, place: str) -> list[str]:
    """The rows of a table, the same through every reader."""
    order = ("city", "id")
    theirs = spark.read.format("delta").load(place).orderBy("id", "last").collect()
    ours = Table(place).read(spark=spark).orderBy("id", "last").collect()
    assert ours == theirs
    arrow = Table(place).to_arrow().sort_by([("id", "ascending"), ("last", "ascending")])
    assert [row[name] for row in arrow.to_pylist() for name in order] == [row[name] for row in theirs for name in order]
    return [repr(tuple(row)) for row in theirs]


def stored(place: str, *, before: int = -1) -> Iterator[tuple[dict[str, str | None], pa.Table, dict[str, Any]]]:
    """The partition values, the rows and the statistics of each file that was added after a version."""
    for commit in sorted(Path(place, "_delta_log").glob("*.json")):
        if not commit.stem.isdigit() or int(commit.stem) <= before:
            continue
        for action in map(json.loads, commit.read_text().splitlines()):
            if "add" in action and "deletionVector" not in action["add"]:
                path = Table(place).snapshot.store.plain(action["add"]["path"])
                yield (
                    action["add"]["partitionValues"],
                    pq.read_table(Path(place, path)),
                    json.loads(action["add"]["stats"]),
                )


def ensure_stored(place: str, *, before: int = -1) -> int:
    """Check that the files added after a version have the values of the log, and no statistics of them; count them."""
    count = 0
    for partition, rows, stats in stored(place, before=before):
        count += 1
        assert rows.column_names[-len(partition) :] == list(partition)
        for name, text in partition.items():
            assert set(map(log_text, rows[name].to_pylist())) == {plain(text)}
            assert all(name not in stats.get(key, {}) for key in ("minValues", "maxValues", "nullCount"))
    return count


def log_text(value: Any) -> str | None:
    """A value as the log has it."""
    if not isinstance(value, datetime):
        return value if value is None else str(value)
    return plain(f"{value:%Y-%m-%dT%H:%M:%S.%f}Z")


def plain(text: str | None) -> str | None:
    """A text of the log; a time without the zeros at the end that Delta Lake writes and we do not."""
    return re.sub(r"\.?0*Z$", "Z", text) if text and "T" in text and "." in text else text


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(layout.values()))
@pytest.mark.parametrize("request_of", REQUESTS)
def test_every_change_stores_them_and_both_engines_read(
    spark: SparkSession, place: str, request_of: str, layout: Mapping[str, str]
) -> None:
    table = make(spark, place, {**REQUESTS[request_of], **layout, "delta.enableTypeWidening": "true"})
    assert ensure_stored(place) == 3
    assert len(seen(spark, place)) == 3

    table.update({"last": "last + 1"}, "id = 1", spark=spark)
    table.alter_column("id", type="bigint")
    rows = values(spark, VALUES[1].replace("(2", "(4"), VALUES[0].replace("9)", "5)"))
    merge = table.merge(rows, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute()
    table.delete("id = 3", spark=spark)
    table.append(values(spark, VALUES[2]))
    table.optimize(spark=spark)
    table.rewrite(spark=spark)
    assert ensure_stored(place) > 6
    found = seen(spark, place)
    assert [row.partition(",")[0] for row in found] == ["(1", "(2", "(3", "(4"]

    last = table.refresh().version
    again = "10 + id AS id, city, day, at, amount, tags, NULL AS gap, last"
    spark.sql(f"INSERT INTO delta.`{place}` SELECT {again} FROM delta.`{place}`")
    assert ensure_stored(place, before=last) == 3
    assert len(seen(spark, place)) == 8


def test_a_load_stores_them(spark: SparkSession, place: str, tmp_path: Path) -> None:
    table = create_table(place, "n int, city string", partition_by=["city"], properties=FEATURE)
    source = tmp_path / "s.jsonl"
    source.write_text('{"n": 1, "city": "Gent"}\n{"n": 2, "city": "Brno"}\n{"n": 5000000000}\n')
    ingest(str(source), place, spark=spark, enable_type_widening=True, verify=True)
    assert ensure_stored(place) == 3
    found = spark.read.format("delta").load(place).orderBy("n").collect()
    assert [tuple(row) for row in found] == [(1, "Gent"), (2, "Brno"), (5000000000, None)]
    assert table.refresh().read(spark=spark).orderBy("n").collect() == found


def test_a_table_without_partitions_stays_as_it_is(spark: SparkSession, place: str) -> None:
    table = create_table(place, "n int", properties={**FEATURE, **PROPERTY})
    table.append(spark.range(3).selectExpr("int(id) AS n"))
    assert [row.n for row in spark.read.format("delta").load(place).orderBy("n").collect()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("properties", "is_stored"),
    [
        ({}, False),
        ({"delta.writePartitionColumnsToParquet": "false"}, False),
        ({**FEATURE, "delta.writePartitionColumnsToParquet": "false"}, True),
    ],
)
def test_the_feature_comes_before_the_property(
    spark: SparkSession, place: str, properties: dict[str, str], is_stored: bool
) -> None:
    table = create_table(place, "n int, p int", partition_by=["p"], properties=properties)
    table.append(spark.sql("SELECT 1 AS n, 2 AS p"))
    assert [("p" in rows.column_names) for _, rows, _ in stored(place)] == [is_stored]


@pytest.mark.parametrize("asked", [FEATURE, SWITCH], ids=["feature", "switch"])
def test_a_dropped_feature_ends_it(spark: SparkSession, place: str, asked: dict[str, str]) -> None:
    table = create_table(place, "n int, p int", partition_by=["p"], properties=asked)
    table.append(spark.sql("SELECT 1 AS n, 2 AS p"))
    table.drop_feature("materializePartitionColumns", spark=spark)
    last = table.refresh().version
    table.append(spark.sql("SELECT 3 AS n, 4 AS p"))
    assert "materializePartitionColumns" not in supported_features(table.snapshot.protocol)
    assert [rows.column_names for _, rows, _ in stored(place, before=last)] == [["n"]]
    assert sorted(map(tuple, spark.read.format("delta").load(place).collect())) == [(1, 2), (3, 4)]


def test_a_file_that_contradicts_the_log_has_the_values_of_the_log(spark: SparkSession, place: str) -> None:
    table = create_table(place, "n int, p int", partition_by=["p"], properties=FEATURE)
    table.append(spark.sql("SELECT 1 AS n, 2 AS p"))
    path = Path(place, table.files()["path"].to_pylist()[0])
    rows = pq.read_table(path)
    pq.write_table(rows.set_column(1, "p", pa.array([77], pa.int32())), path)

    assert [tuple(row) for row in spark.read.format("delta").load(place).collect()] == [(1, 2)]
    assert [tuple(row) for row in table.read(spark=spark).collect()] == [(1, 2)]
    assert table.to_arrow().to_pylist() == [{"n": 1, "p": 2}]
    assert table.read(where="p = 77", spark=spark).count() == 0
    table.update({"n": "n + 1"}, spark=spark)
    assert [tuple(row) for row in spark.read.format("delta").load(place).collect()] == [(2, 2)]
    assert ensure_stored(place, before=table.refresh().version - 1) == 1


def test_spark_s_data_source_refuses_to_write_without_them(spark: SparkSession, place: str) -> None:
    import widen

    widen.register(spark)
    create_table(place, "n int, p int", partition_by=["p"], properties=FEATURE)
    with pytest.raises(Exception, match="its files also contain the partition columns") as caught:
        spark.sql("SELECT 1 AS n, 2 AS p").write.format("widen").mode("append").save(place)
    assert DataSourceRefused.__name__ in str(caught.value) or "Table.append" in str(caught.value)
