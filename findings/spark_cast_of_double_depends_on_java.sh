#!/bin/sh
# Apache Spark 4.2.1, on any Java from 17. CAST of a double to a decimal goes through the text that Java makes of the double.
# Expected: the value depends on the double and the type alone: 1e23D as decimal(38,0) is 100000000000000000000000, whose
# nearest double it is, or the exact value of the double, 99999999999999991611392.
# Seen: Java 17 and 18 give 99999999999999990000000, because their text of the double is not the shortest (9.999999999999999E22);
# Java 19 and later give 100000000000000000000000. A cluster that changes its Java gets other decimals from the same query; what
# one driver wrote does not equal what another computes.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import logging
from pyspark.sql import SparkSession

logging.disable()
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"
row = spark.sql("SELECT cast(1e23D AS decimal(38,0)) d, cast(1e23D AS string) t, java_method('java.lang.System', 'getProperty', 'java.specification.version') v").collect()[0]
expected = (99999999999999990000000, "9.999999999999999E22") if int(row.v) < 19 else (10**23, "1.0E23")
assert (int(row.d), row.t) == expected, row
print(f"Spark 4.2.1 on Java {row.v}: CAST(1e23D AS decimal(38,0)) is {row.d}")
END
