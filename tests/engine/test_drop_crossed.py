"""DROP FEATURE where everything comes together: partitions whose columns widened too, deletion vectors, ids of rows,
mapped columns and nested types."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import widen
from engine.test_rewrite import tracking_columns
from support.exact import assert_same
from support.old_table import ENABLED, file_types, live
from support.state import schema

PROPERTIES = {
    **ENABLED,
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "id",
    "delta.enableRowTracking": "true",
}
OLD = "id int, p int, d date, s struct<x: smallint, l: array<map<tinyint, float>>>, m map<int, struct<y: decimal(5,2)>>"
WIDER = {
    "p": "decimal(12,2)",
    "d": "timestamp_ntz",
    "s.x": "double",
    "s.l.element.key": "int",
    "s.l.element.value": "double",
    "m.key": "bigint",
    "m.value.y": "decimal(20,4)",
}
NEW = (
    "id int, p decimal(12,2), d timestamp_ntz, s struct<x: double, l: array<map<int, double>>>,"
    " m map<bigint, struct<y: decimal(20,4)>>"
)


def rows(spark: SparkSession, first: int, types: str) -> Any:
    """Four rows in two partitions of one day each; one row has nulls inside."""
    made = spark.range(first, first + 4).selectExpr(
        "id",
        "id % 2 p",
        "date'2024-01-01' + CAST(id % 2 AS int) d",
        "struct(id x, array(map(1, 0.1f), null) l) s",
        "map(id, struct(if(id % 3 = 0, null, 1.25) y)) m",
    )
    return made.coalesce(1).selectExpr(*(f"CAST({name} AS {kind}) {name}" for name, kind in parts(types)))


def parts(types: str) -> list[tuple[str, str]]:
    return [(field.name, field.type.sql) for field in schema(types)]


def ids(place: Path) -> dict[Any, Any]:
    """The id and the version of each row, as readers of row tracking find them."""
    found = {}
    for path, add in live(place).items():
        table = pq.read_table(place / unquote(path), partitioning=None)
        own = next(name for name in table.column_names if table.schema.field(name).type == pa.int32())
        empty = [None] * len(table)
        names = tracking_columns(place)
        columns = [table[name].to_pylist() if name in table.column_names else empty for name in names]
        for at, (value, row_id, version) in enumerate(zip(table[own].to_pylist(), *columns, strict=True)):
            default = add["baseRowId"] + at if row_id is None else row_id
            found[value] = default, version or add["defaultRowCommitVersion"]
    return found


S = pa.struct([("0", pa.float64()), ("1", pa.list_(pa.map_(pa.int32(), pa.float64())))])
M = pa.map_(pa.int64(), pa.struct([("0", pa.decimal128(20, 4))]))


def test_everything_at_once(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), OLD, partition_by=["p", "d"], properties=PROPERTIES)
    table.append(rows(spark, 0, OLD).union(rows(spark, 4, OLD)).coalesce(1))
    table.delete("id IN (1, 4)", spark=spark)
    table.alter_columns({path: {"type": new} for path, new in WIDER.items()})
    table.append(rows(spark, 8, NEW)).table.delete("id = 8", spark=spark)
    before, with_ids, files = table.read(spark=spark).orderBy("id").collect(), ids(tmp_path), live(tmp_path)
    table.drop_feature("typeWidening", spark=spark)
    assert_same(table.read(spark=spark).orderBy("id").collect(), before)
    now = live(tmp_path)
    types = {tuple(kind for name, kind in file if not name.startswith("_row")) for file in file_types(tmp_path, now)}
    assert types == {(pa.int32(), S, M)}
    renewed = [now[path] for path in now.keys() - files.keys()]
    texts = [tuple(add["partitionValues"].values()) for add in renewed]
    assert sorted(texts) == [("0", "2024-01-01"), ("1", "2024-01-02")]  # as they were: no file holds them
    assert not any("deletionVector" in add for add in renewed)
    untouched = [files[path] for path in now.keys() & files.keys()]
    assert len(untouched) == 2
    assert sum("deletionVector" in add for add in untouched) == 1
    left = ids(tmp_path)
    assert [left[row.id] for row in before] == [with_ids[row.id] for row in before]
    assert "typeWidening" not in (table.protocol.reader_features or ())
