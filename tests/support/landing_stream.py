"""A stream of JSON files into a sink of Widen, as a program that can be killed: ``landing_stream.py FOLDER OPTIONS``.

It reads FOLDER/landing one file at a time, writes the table FOLDER/t with the options, which are JSON, prints a line
when the query has started, and ends when all files are read.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession


def main(place: str, options: str) -> None:
    """Run the stream over what is there."""
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = session.config("spark.log.level", "ERROR").getOrCreate()
    texts = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{place}/landing")
    sink = texts.writeStream.format("widen").options(**json.loads(options)).trigger(availableNow=True)
    query = sink.option("checkpointLocation", f"{place}/checkpoint").start(f"{place}/t")
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
