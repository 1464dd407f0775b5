"""Several frames as one, so that one job of Spark answers them all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the rows of all frames. Spark analyzes each union with all below it, so there are few levels."""
    half = len(frames) // 2
    return union(frames[:half]).unionAll(union(frames[half:])) if half else frames[0]


def collect_each(frames: Sequence[DataFrame]) -> list[list[Any]]:
    """Return the rows of each frame, without names; all have the same types."""
    found: dict[int, list[Any]] = defaultdict(list)
    for number, *row in union([frame.selectExpr(f"{at} AS number", "*") for at, frame in enumerate(frames)]).collect():
        found[number].append(tuple(row))
    return [found[at] for at in range(len(frames))]
