#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later). One double in the list of IN makes every comparison of the list one of doubles.
# Expected: x IN (a, b) is x = a OR x = b.
# Seen: with the bigint 9007199254740993, x IN (9007199254740992, 0.5D) is true, though x = 9007199254740992 and x = 0.5D are
# both false. NOT IN likewise: the row is lost. A list built by a program gets one such value from anywhere.
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

row = spark.sql("SELECT 9007199254740993L AS x").selectExpr(
    "x IN (9007199254740992, 0.5D) AS listed", "x = 9007199254740992 OR x = 0.5D AS either"
).collect()[0]
assert (row.listed, row.either) == (True, False), row
print("Spark 4.2.1: IN is", row.listed, "and the same comparisons with OR are", row.either)
END
