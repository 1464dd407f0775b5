#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later). A null bigint compared with a decimal literal beyond 64 bits is TRUE.
# Expected: NULL, as for every comparison with null; so WHERE drops the row, and NOT keeps it NULL.
# Seen: l <= 9223372036854775808 is true for the row with null, with spark.sql.ansi.enabled on and off; the optimizer puts
# the constant true in its place. With an int column and 2147483648 it is null. WHERE, and a DELETE, takes rows with null.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import os, logging
from pyspark.sql import SparkSession

logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"

for ansi in ("true", "false"):
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    rows = spark.sql("SELECT * FROM VALUES (1L, 1), (CAST(NULL AS BIGINT), CAST(NULL AS INT)) AS t(l, i)")
    found = rows.selectExpr("l <= 9223372036854775808 AS a", "i <= 2147483648 AS b").collect()[1]
    kept = rows.where("l <= 9223372036854775808").count()
    assert (found.a, found.b, kept) == (True, None, 2), (found, kept)
print("Spark 4.2.1: NULL <= 9223372036854775808 is", found.a)
END
