#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later) and pyarrow 26.0.1. A Parquet column that is null in every row becomes an int.
# Expected: void, as the logical type of the file says (UNKNOWN); or the type of the other files with that column.
# Seen: int, since only the physical type is looked at. Beside a file in which the column has texts, mergeSchema fails:
# a day without values in a column, written by pyarrow or pandas, breaks the read of the folder.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1 pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import os, logging
from pyspark.sql import SparkSession

logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"

import tempfile
import pyarrow as pa, pyarrow.parquet as pq

place = tempfile.mkdtemp()
pq.write_table(pa.table({"n": pa.nulls(2)}), place + "/a.parquet")
alone = spark.read.parquet(place).schema["n"].dataType.simpleString()
pq.write_table(pa.table({"n": ["x"]}), place + "/b.parquet")
try:
    spark.read.option("mergeSchema", "true").parquet(place).schema
    merged = "merges"
except Exception as error:
    merged = "CANNOT_MERGE" if "CANNOT_MERGE" in str(error) else str(error)[:200]
assert (alone, merged) == ("int", "CANNOT_MERGE"), (alone, merged)
print("Spark 4.2.1: a Parquet column of nulls is", alone)
END
