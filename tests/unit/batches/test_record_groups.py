"""Raw batches in a task that needs no more records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pyarrow as pa

from widen.batches.text_tasks import read_record_groups
from widen.sources.file_ranges import RANGES_PART, FileRange, as_raw_records, range_batch


def left_after_one(batches: list[pa.RecordBatch]) -> int:
    rest: Iterator[pa.RecordBatch] = iter(batches)
    with closing(read_record_groups(rest)) as groups:
        next(groups)
    return len(list(rest))


def test_all_rows_with_ranges_are_taken_even_if_their_records_are_not_needed(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"{}\n" * 10)
    batch = range_batch(msgspec.json.encode([FileRange(f"file://{file}", 0, 30)]), RANGES_PART)
    assert left_after_one([batch, batch, batch]) == 0


def test_texts_that_are_not_needed_stay_with_spark() -> None:
    batch = as_raw_records([b"{}"], "file:/a.jsonl")
    assert left_after_one([batch, batch, batch]) == 2
