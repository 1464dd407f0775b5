"""A process with Iceberg for Spark, in its own environment: it runs what it gets as JSON lines and answers with JSON.

    python iceberg_spark.py JARS CATALOG_FILE WAREHOUSE

A request is ``{"sql": text}``, ``{"equality_delete": [table, file, size_bytes, rows, field_ids]}``, or
``{"defaults": [table, [[parent, name, type, value], ...]]}``. An answer is ``{"rows": [...]}``, or ``{"error": text}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than jobs this small
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
    "spark.default.parallelism": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.default.type": "jdbc",
    "spark.sql.catalog.default.cache-enabled": "false",
}


def main(jars: str, catalog: str, warehouse: str) -> None:
    """Answer requests until the input ends."""
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars)
    location = {"spark.sql.catalog.default.uri": f"jdbc:sqlite:{catalog}"}
    location["spark.sql.catalog.default.warehouse"] = warehouse
    for key, value in {**SETTINGS, **location}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for line in sys.stdin:
        try:
            answer = {"rows": _run(spark, json.loads(line))}
        except Exception as error:  # the tests show it
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer, default=str), flush=True)
    spark.stop()


def _run(spark: SparkSession, request: dict[str, Any]) -> list[Any]:
    if "equality_delete" in request:
        return _delete_equal(spark, *request["equality_delete"])
    if "defaults" in request:
        return _add_with_defaults(spark, *request["defaults"])
    return [list(row) for row in spark.sql(request["sql"]).collect()]


def _delete_equal(spark: SparkSession, name: str, path: str, size: int, rows: int, ids: list[int]) -> list[Any]:
    """Commit an equality delete file, which Spark itself does not write but Flink does."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    numbers = spark.sparkContext._gateway.new_array(jvm.int, len(ids))
    for at, number in enumerate(ids):
        numbers[at] = number
    builder = iceberg.FileMetadata.deleteFileBuilder(table.spec()).ofEqualityDeletes(numbers)
    builder = builder.withPath(path).withFormat("PARQUET").withFileSizeInBytes(size).withRecordCount(rows)
    table.newRowDelta().addDeletes(builder.build()).commit()
    return []


def _add_with_defaults(spark: SparkSession, name: str, columns: list[list[Any]]) -> list[Any]:
    """Add columns with defaults, which Spark's DDL cannot do; bytes are given in hex."""
    jvm: Any = spark._jvm
    iceberg = jvm.org.apache.iceberg
    update = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name).updateSchema()
    for parent, column, kind, value in columns:
        data_type = iceberg.types.Types.fromPrimitiveString(kind)
        if kind == "binary" or kind.startswith("fixed"):
            value = jvm.java.nio.ByteBuffer.wrap(bytearray.fromhex(value))
        update.addColumn(parent, column, data_type, None, iceberg.expressions.Literal.of(value).to(data_type))
    update.commit()
    return []


if __name__ == "__main__":
    main(*sys.argv[1:])
