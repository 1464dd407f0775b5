"""Spark's Python workers: what is imported is not searched for garbage after each task."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from widen.spark.ship import freeze_imports


def _count_frozen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    first = gc.get_freeze_count()
    garbage: list[object] = []
    garbage.append(garbage)
    freeze_imports()
    yield pa.RecordBatch.from_pydict({"first": [first], "later": [gc.get_freeze_count()]})


def test_imports_of_a_worker_are_frozen_once(spark: SparkSession) -> None:
    rows = spark.range(0, 4, 1, 4).mapInArrow(_count_frozen, "first long, later long").collect()
    assert len(rows) == 4
    assert all(row.first > 10_000 for row in rows)
    assert all(row.later <= row.first for row in rows)  # objects of later tasks stay collectable
