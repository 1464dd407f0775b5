"""One bad file never blocks a folder: kinds of bad files that Spark reads, or that its tasks read."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.bad_files import KINDS, MODES, load_folder_with
from support.covering import TRIES_ALL
from support.fault import FULL

FEW = (
    ("another separator", "park", False),
    ("keys that are data", "skip", True),
    ("nanoseconds in Parquet", "skip", False),
    ("half of ORC", "skip", False),
    ("half of Avro", "skip", False),
    ("nanoseconds in ORC", "park", True),
)
ALL = [*product(KINDS, MODES, (True, False))]
"""The whole table takes half an hour; `make test-spark` asks every other case of it."""

HALF = [case for at, case in enumerate(ALL) if (at + at // 2) % 2 == 0]
CASES = ALL if FULL in os.environ else HALF if TRIES_ALL else FEW


@pytest.mark.parametrize(("name", "mode", "is_alone"), CASES)
def test_a_bad_file_does_not_block_a_folder(
    spark: SparkSession, tmp_path: Path, name: str, mode: str, *, is_alone: bool
) -> None:
    load_folder_with(KINDS[name], mode, tmp_path / "case", is_alone=is_alone, spark=spark)
