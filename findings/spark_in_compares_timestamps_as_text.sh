#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later), spark.sql.ansi.enabled=false. = and IN disagree about a timestamp beside a text.
# Expected: z IN ('...') is z = '...'.
# Seen: z = '2024-01-01 00:00:00Z' is true: the text becomes a timestamp. z IN ('2024-01-01 00:00:00Z') is false: the
# timestamp becomes a text. With ANSI on, both are true.
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

spark.conf.set("spark.sql.session.timeZone", "UTC")
found = {}
for ansi in ("true", "false"):
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    rows = spark.sql("SELECT TIMESTAMP '2024-01-01 00:00:00Z' AS z")
    row = rows.selectExpr("z = '2024-01-01 00:00:00Z' AS e", "z IN ('2024-01-01 00:00:00Z') AS i").collect()[0]
    found[ansi] = (row.e, row.i)
assert found == {"true": (True, True), "false": (True, False)}, found
print("Spark 4.2.1 without ANSI: = is", found["false"][0], "and IN is", found["false"][1])
END
