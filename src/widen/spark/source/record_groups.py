"""The records of a raw batch in a task, whether its rows are texts or ranges of files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from types import MappingProxyType

import pyarrow as pa

from widen.spark.source.csv_ranges import read_csv_groups
from widen.spark.source.csv_rows import FieldGroup
from widen.spark.source.file_ranges import read_range_groups
from widen.spark.source.raw_batch import CSV_RANGES_PART, RANGES_PART, TextGroup, split_groups

_READERS: Mapping[int, Callable[[bytes], Iterator[FieldGroup | TextGroup]]] = MappingProxyType(
    {RANGES_PART: read_range_groups, CSV_RANGES_PART: read_csv_groups}
)
"""The reader of the texts of a row, by the value of `PART`; all other rows have a text or a whole file."""


def read_record_groups(batches: Iterable[pa.RecordBatch]) -> Generator[FieldGroup | TextGroup]:
    """Yield the records of a raw batch; those of ranges are read from their files.

    A caller that needs no more records closes the generator. Then the other rows with ranges are still taken from
    Spark: it ends a Python worker that leaves input behind, and the next task would wait for another one to start.

    Raises:
        SourceError: a quoted field of CSV does not end.
    """
    rest = iter(batches)
    for batch in rest:
        for group in split_groups(batch):
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


def read_text_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[TextGroup]:
    """Yield the records of a raw batch as JSON texts.

    Raises:
        SourceError: a quoted field of CSV does not end.
    """
    for group in read_record_groups(batches):
        yield group.to_text_group() if isinstance(group, FieldGroup) else group
