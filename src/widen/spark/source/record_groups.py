"""The records of a raw batch in a task, whether its rows are texts or ranges of files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa

from widen.observe.json_split import split_records
from widen.observe.json_stream_split import MAX_RECORD_BYTES
from widen.spark.source.csv_ranges import read_csv_groups
from widen.spark.source.csv_rows import FieldGroup
from widen.spark.source.file_ranges import read_range_groups
from widen.spark.source.line_range import record_too_long
from widen.spark.source.raw_batch import (
    CSV_RANGES_PART,
    FILE,
    PART,
    RANGES_PART,
    REFUSED_PART,
    TEXT,
    WHOLE,
    TextGroup,
    read_refused,
    split_groups,
)

_READERS: Mapping[int, Callable[[bytes], Iterator[FieldGroup | TextGroup]]] = MappingProxyType(
    {RANGES_PART: read_range_groups, CSV_RANGES_PART: read_csv_groups}
)
"""The reader of the texts of a row, by the value of `PART`; all other rows have a text or a whole file."""


def read_record_groups(
    batches: Iterable[pa.RecordBatch], limit: int = MAX_RECORD_BYTES
) -> Generator[FieldGroup | TextGroup]:
    """Yield the records of a raw batch; those of ranges are read from their files.

    A caller that needs no more records closes the generator. Then the other rows with ranges are still taken from
    Spark: it ends a Python worker that leaves input behind, and the next task would wait for another one to start.

    Raises:
        CorruptFile: a quote of CSV is not closed, or a record is too long.
    """
    rest = iter(batches)
    for batch in rest:
        _ensure_short(batch, limit)
        for group in split_groups(batch):
            if group.part == REFUSED_PART:
                for each in map(read_refused, group.texts):
                    yield TextGroup(group.file, each.part, False, each.texts, each.lines, each.reasons)
                continue
            reader = _READERS.get(group.part)
            if reader is None:
                yield group
                continue
            try:
                for text in group.texts:
                    yield from reader(text)
            except GeneratorExit:
                deque(rest, maxlen=0)
                raise


def _ensure_short(batch: pa.RecordBatch, limit: int) -> None:
    """Check the texts that Spark has read: a record or a line. A whole file is checked when it is split."""
    texts = batch.column(TEXT)
    if texts.nbytes <= limit:
        return
    sizes = zip(*(batch.column(name).to_pylist() for name in (FILE, PART, WHOLE)), strict=True)
    for number, (text, (file, part, is_whole)) in enumerate(zip(texts, sizes, strict=True), 1):
        size = len(text.as_buffer() or b"")
        if part < 0 or size <= limit:
            continue
        if not is_whole or any(len(each) > limit for each in split_records(text.as_py())):
            raise record_too_long(file, None if not is_whole else 0, limit, line=None if is_whole else number)


def read_text_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[TextGroup]:
    """Yield the records of a raw batch as JSON texts.

    Raises:
        CorruptFile: a quote of CSV is not closed, or a record is too long.
    """
    for group in read_record_groups(batches):
        yield from group.to_text_groups() if isinstance(group, FieldGroup) else (group,)
