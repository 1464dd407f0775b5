#!/bin/sh
# pyspark 4.2.1. A Python worker that is reused ends when it was idle for a minute.
# Expected: with spark.python.worker.reuse, true by default, a worker stays as long as the
# executor, so that its imports are paid once.
# Seen: two queries one after the other run in the same process; after a pause of 75 seconds the same query runs in a new one,
# which imports everything again. Streams with batches further apart than a minute pay that in every batch.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1 pyarrow==26.0.1 pandas==2.3.3
PYSPARK_PYTHON="$place/venv/bin/python" SPARK_LOCAL_IP=127.0.0.1 "$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import os
import time

import pyspark
from pyspark.sql import SparkSession

assert pyspark.__version__ == "4.2.1"
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def worker():
    def ids(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"id": [os.getpid()]})

    return spark.range(1).mapInArrow(ids, "id long").collect()[0][0]


first, second = worker(), worker()
time.sleep(75)
third = worker()
assert first == second != third, (first, second, third)
print("Spark 4.2.1: the same Python worker twice, and another one after an idle minute")
END
