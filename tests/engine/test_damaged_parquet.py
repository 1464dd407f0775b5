"""Damaged Parquet files as a source: all rows are right, or the file is refused by name, by the checksums of its pages.

``WIDEN_FUZZ_COUNT=600`` reads 600 files; ``WIDEN_FUZZ_FIRST`` chooses the first seed.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from support.damage import damage
from widen.batches.typed_frames import read_columnar
from widen.errors import WidenError
from widen.json.field_rules import FileFields
from widen.sources.find_files import find_source
from widen.spark.errors import translate_spark_errors

FIRST, COUNT = int(os.environ.get("WIDEN_FUZZ_FIRST", "0")), int(os.environ.get("WIDEN_FUZZ_COUNT", "8"))
CODECS = ("none", "snappy", "gzip", "zstd")


def write(chance: random.Random, path: Path) -> list[tuple[Any, ...]]:
    """Write a file as Spark and most others do, with a checksum for each page; return its rows."""
    count = chance.choice((5, 60, 2000))
    rows = [
        (number, f"k{number % 7}", number * 1.5, [number, None] if number % 3 else None, {"x": str(number)})
        for number in range(count)
    ]
    names = ("id", "word", "amount", "list", "s")
    pq.write_table(
        pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)}),
        path,
        compression=chance.choice(CODECS),
        use_dictionary=chance.random() < 0.5,
        data_page_version=chance.choice(("1.0", "2.0")),
        row_group_size=chance.choice((50, 5000)),
        write_page_checksum=True,
    )
    return [(*row[:4], (row[4]["x"],)) for row in rows]


def read(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    source = find_source(spark, [str(path)])
    with translate_spark_errors():
        [records] = read_columnar(spark, source, FileFields(False, None))
        return [tuple(row)[:-1] for row in records.frame.collect()]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_damaged_parquet(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    path = tmp_path / "a.parquet"
    rows = write(chance, path)
    data = path.read_bytes()
    done = damage(chance, data)
    path.write_bytes(done.apply(data))
    found, refusal = None, ""
    try:
        found = read(spark, path)
    except WidenError as error:
        refusal = str(error)
    # The footer has no checksum: a column can get another name there, which no reader can know.
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert found == rows or path.name in refusal or done.start >= footer, done
