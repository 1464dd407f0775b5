#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later). CREATE TABLE ... USING a Python data source with a path is accepted; what reads the table
# gets no options.
# Expected: the options of the statement, or at least the path, reach the source when the table is read, as for Java's sources.
# Seen: the source is asked for its schema with the path; the reader has no option at all. A temporary view has them.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1 pyarrow==24.0.0
cd "$place"
PYSPARK_PYTHON="$place/venv/bin/python" "$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"


class Told(DataSource):
    @classmethod
    def name(cls):
        return "told"

    def schema(self):
        return "path string"

    def reader(self, schema):
        path = self.options.get("path")

        class Reader(DataSourceReader):
            def read(self, partition):
                yield (path,)

        return Reader()


spark.dataSource.register(Told)
spark.sql("CREATE TABLE t USING told OPTIONS (path '/data/t')")
spark.sql("CREATE TEMPORARY VIEW v USING told OPTIONS (path '/data/t')")
table, view = (spark.table(name).collect()[0].path for name in ("t", "v"))
assert (table, view) == (None, "/data/t"), (table, view)
print("Spark 4.2.1: the path that a Python source reads is", view, "by a view and", table, "by a table of the catalog")
END
