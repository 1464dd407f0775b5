"""Raw batches: the records of files as rows with their JSON texts, and how a task takes them.

A row is a text, or it represents ranges of files; see `widen.spark.source.file_ranges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec
import pyarrow as pa

TEXT, FILE, PART, WHOLE = "text", "file", "part", "whole"
"""The columns of a raw batch: the bytes, their file, the byte where the split of a large file begins, and whether the
bytes are a whole file or one record."""

RAW_SCHEMA = f"{TEXT} binary, {FILE} string, {PART} bigint, {WHOLE} boolean"

RANGES_PART, CSV_RANGES_PART, REFUSED_PART = -1, -2, -3
"""The values of `PART` in rows whose text is a list of ranges: of JSON, and of CSV with its dialect; and in rows with
`RefusedTexts`."""


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Adjacent texts of one file.

    Args:
        file: URI of the file.
        part: The byte where the split of a large file begins.
        is_whole: Whether each text is a whole file or one record.
        lines: The line of each text in the file; None if the texts are all the lines of the file.
        reasons: Why each text is not a record; None if they have to be parsed.
    """

    file: str
    part: int
    is_whole: bool
    texts: list[bytes]
    lines: Sequence[int] | None = None
    reasons: Sequence[str] | None = None


class RefusedTexts(msgspec.Struct, frozen=True, array_like=True):
    """Texts of one file that are not records, as the text of one row of a raw batch."""

    part: int
    texts: list[bytes]
    lines: list[int]
    reasons: list[str]

    def to_raw(self, path: str) -> pa.RecordBatch:
        """Return the texts as a part of a raw batch."""
        row = {TEXT: msgspec.msgpack.encode(self), FILE: path, PART: REFUSED_PART, WHOLE: False}
        return pa.RecordBatch.from_pylist([row])


def read_refused(text: bytes) -> RefusedTexts:
    """Return the texts from a row with `REFUSED_PART`."""
    return msgspec.msgpack.decode(text, type=RefusedTexts)


def split_groups(batch: pa.RecordBatch) -> Iterator[TextGroup]:
    """Yield the texts of an Arrow batch, those of the same file, split and form together.

    Args:
        batch: Columns `TEXT`, `FILE`, `PART` and `WHOLE`.
    """
    texts, end = batch.column(TEXT).to_pylist(), 0
    for (file, part, is_whole), rows in _group_rows(batch):
        start, end = end, end + rows
        yield TextGroup(file, part, is_whole, texts[start:end])


def _group_rows(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int, bool], int]]:
    """Yield each group of adjacent rows of the same file, split and form, with its size."""
    columns = [batch.column(name) for name in (FILE, PART, WHOLE)]
    ends = [tuple(column[index].as_py() for column in columns) for index in (0, -1)] if batch.num_rows else []
    if ends and ends[0] == ends[1]:
        yield ends[0], batch.num_rows
        return
    for source, group in groupby(zip(*(column.to_pylist() for column in columns), strict=True)):
        yield source, len(list(group))


def as_raw_records(texts: Sequence[bytes], path: str, part: int = 0) -> pa.RecordBatch:
    """Return JSON texts as a part of a raw batch, one record each.

    Args:
        texts: The texts in the order of the file.
        path: URI of the file.
        part: Byte where the split of the texts begins in the file.
    """
    count = len(texts)
    columns = [pa.array(texts, pa.binary()), pa.array([path] * count, pa.string())]
    columns += [pa.array([part] * count, pa.int64()), pa.array([False] * count, pa.bool_())]
    return pa.RecordBatch.from_arrays(columns, names=[TEXT, FILE, PART, WHOLE])
