#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later). A Python data source that Spark finds by its module pyspark_NAME runs its tasks in
# the Python of PYSPARK_DRIVER_PYTHON; the same source, registered, in that of PYSPARK_PYTHON.
# Expected: tasks run in PYSPARK_PYTHON, as those of functions do; PYSPARK_DRIVER_PYTHON is for the driver.
# Seen: tasks of the found source report the interpreter of PYSPARK_DRIVER_PYTHON. On a cluster, the workers must have that path.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for name in driver tasks; do
  python3 -m venv "$place/$name"
  "$place/$name/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1 pyarrow==24.0.0
done
mkdir "$place/modules"
cat > "$place/modules/pyspark_who.py" <<'END'
from pyspark.sql.datasource import DataSource, DataSourceReader


class Reader(DataSourceReader):
    def read(self, partition):
        import sys

        yield (sys.executable,)


class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "who"

    def schema(self):
        return "python string"

    def reader(self, schema):
        return Reader()
END
PYTHONPATH="$place/modules" PYSPARK_DRIVER_PYTHON="$place/driver/bin/python" PYSPARK_PYTHON="$place/tasks/bin/python" \
  "$place/driver/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"


def runs_in():
    return Path(spark.read.format("who").load().collect()[0].python).parts[-3]


found = runs_in()
from pyspark_who import DefaultSource

spark.dataSource.register(DefaultSource)
registered = runs_in()
assert (found, registered) == ("driver", "tasks"), (found, registered)
print("Spark 4.2.1: tasks of a found source run in the Python of the", found, "and of a registered one in that of the", registered)
END
