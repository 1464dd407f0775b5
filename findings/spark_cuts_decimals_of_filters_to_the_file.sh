#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later), pyarrow 26.0.1. A filter on a decimal column with more digits than its file.
# Expected: decimal(9,2) values of a Parquet file, read as decimal(18,2), are all less than 90071992547409.93.
# Seen: the file stores 32-bit integers, and the constant is cut to 32 bits when it is pushed down, to 0.01. Row groups above
# that are skipped: 9.99 is missing. The same condition on v + 0 finds it. Tables of Delta Lake with such a column lose rows.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1 pyarrow==26.0.1
"$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import logging
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

logging.disable()
values = pa.array([Decimal("-1.25"), Decimal("9.99")], pa.decimal128(9, 2))
pq.write_table(pa.table({"v": values}), f"{sys.argv[1]}/a.parquet", store_decimal_as_integer=True, row_group_size=1)
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"
spark.read.schema("v decimal(18,2)").parquet(f"{sys.argv[1]}/a.parquet").createOrReplaceTempView("t")
found = [
    [str(row.v) for row in spark.sql(f"SELECT v FROM t WHERE {column} < 90071992547409.93").collect()]
    for column in ("v", "v + 0")
]
assert found == [["-1.25"], ["-1.25", "9.99"]], found
print("Spark 4.2.1: v < 90071992547409.93 finds", found[0], "and v + 0 < 90071992547409.93 finds", found[1])
END
