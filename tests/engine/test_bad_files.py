"""One bad file never blocks a folder: kinds of bad files that Spark reads, or that its tasks read."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.bad_files import AVRO, KINDS, MODES, load_folder_with
from support.covering import TRIES_ALL
from support.fault import FULL
from widen.batches.typed_frames import read_columnar
from widen.errors import SourceError
from widen.json.field_rules import FileFields
from widen.sources.listing import find_source

FEW = (
    ("another separator", "park", False),
    ("keys that are data", "skip", True),
    ("nanoseconds in Parquet", "skip", False),
    ("times of day in Parquet", "neither", False),
    ("half of ORC", "skip", False),
    ("nanoseconds in ORC", "park", True),
)
ALL = [*product(KINDS, MODES, (True, False))]
"""The whole table takes half an hour; `make test-spark` asks every other case of it."""

HALF = [case for at, case in enumerate(ALL) if (at + at // 2) % 2 == 0]
CASES = ALL if FULL in os.environ else HALF if TRIES_ALL else FEW


def reads_avro(spark: SparkSession, folder: Path) -> bool:
    (folder / "a.avro").write_bytes(AVRO)
    try:
        read_columnar(spark, find_source(spark, [str(folder / "a.avro")]), FileFields(False, None))
    except SourceError as error:
        return "has no reader for avro" not in error.message
    return True


@pytest.mark.parametrize(("name", "mode", "is_alone"), CASES)
def test_a_bad_file_does_not_block_a_folder(
    spark: SparkSession, tmp_path: Path, name: str, mode: str, *, is_alone: bool
) -> None:
    if KINDS[name].ending == "avro" and not reads_avro(spark, tmp_path):
        pytest.skip("this Spark has no reader for Avro")
    load_folder_with(KINDS[name], mode, tmp_path / "case", is_alone=is_alone, spark=spark)
