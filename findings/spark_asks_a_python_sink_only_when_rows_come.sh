#!/bin/sh
# Apache Spark 4.2.1 (needs Java 17 or later). A stream into a Python data source that refuses its options.
# Expected: the query fails when it starts, as with the sinks that Spark brings: DataSource.streamWriter raises for the option.
# Seen: Spark calls streamWriter when a batch has rows. A query with an option that the source refuses ends without an error while
# there is nothing new, and fails with the first new row.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyspark==4.2.1 pyarrow==24.0.0
PYSPARK_PYTHON="$place/venv/bin/python" "$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

place = Path(sys.argv[1])
(place / "in").mkdir()


class Writer(DataSourceStreamWriter):
    def write(self, iterator):
        return WriterCommitMessage()

    def commit(self, messages, batchId):
        pass


class Picky(DataSource):
    @classmethod
    def name(cls):
        return "picky"

    def streamWriter(self, schema, overwrite):
        if "wrong" in self.options:
            raise ValueError("the option wrong is unknown")
        return Writer()


spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF").getOrCreate()
assert spark.version == "4.2.1"
spark.dataSource.register(Picky)


def run(*options):
    sink = spark.readStream.text(str(place / "in")).writeStream.format("picky").trigger(availableNow=True)
    for name in options:
        sink = sink.option(name, "1")
    try:
        sink.option("checkpointLocation", str(place / "checkpoint")).start().awaitTermination()
    except Exception as error:
        return "refused" if "the option wrong is unknown" in str(error) else str(error)
    return "no error"


(place / "in" / "1.txt").write_text("a\n")
found = [run(), run("wrong")]
(place / "in" / "2.txt").write_text("b\n")
found.append(run("wrong"))
assert found == ["no error", "no error", "refused"], found
print("Spark 4.2.1: a wrong option of a Python sink:", found[1], "without new rows,", found[2], "with the first one")
END
