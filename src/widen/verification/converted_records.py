"""The proof that converted files have the records of their source files: these are read again, by another reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import InternalError
from widen.proof.avro_reader import AvroRecords, Compare
from widen.sources.converted_files import ConvertedFile, ConvertedFiles
from widen.sources.file_ranges import open_file


def ensure_converted(converted: ConvertedFiles) -> None:
    """Check that every record of the source files is in one of the converted files, with the same values.

    Raises:
        InternalError: a record is missing or differs.
    """
    for _, files in groupby(converted.files, key=lambda each: each.source):
        _ensure_records(list(files))


def _ensure_records(files: Sequence[ConvertedFile]) -> None:
    number, count = -1, 0
    with open_file(files[0].source) as content:
        records = AvroRecords(content)
        parts = [_ConvertedRows(each, records) for each in files]
        for number, record in enumerate(records):
            part = next((each for each in parts if each.next_record == number), None)
            if part is None or not part.compare(record):
                raise _differs(files[0], f"record {number + 1} differs")
            count += 1
    if any(each.next_record is not None for each in parts):
        raise _differs(files[0], f"there are records after record {number + 1}")


def _differs(file: ConvertedFile, what: str) -> InternalError:
    return InternalError(reason=f"{file.path} was not read as its format defines: {what}")


class _ConvertedRows:
    """The rows of a converted file, one by one."""

    def __init__(self, file: ConvertedFile, records: AvroRecords) -> None:
        self._file, self._row = file, 0
        self._parquet = pq.ParquetFile(pa.memory_map(file.file.uri.removeprefix("file:").replace("//", "/", 1)))
        self._rows = self._read(records)
        self._next: tuple[int, Compare, Any] | None = next(self._rows, None)

    @property
    def next_record(self) -> int | None:
        """The number of the next record; None at the end."""
        return None if self._next is None else self._next[0]

    def compare(self, record: Any) -> bool:
        """Return whether the next row is a record, and go on to the row after it."""
        assert self._next is not None
        _, compare, row = self._next
        self._next = next(self._rows, None)
        return compare(record, row)

    def _read(self, records: AvroRecords) -> Iterator[tuple[int, Compare, Any]]:
        schema = self._parquet.schema_arrow
        # The last columns are fields that the records have from their file.
        names = records.names
        compare = records.match(pa.struct(list(schema)[: len(names)]))
        if compare is None:
            raise _differs(self._file, "its columns have other types")
        for batch in self._parquet.iter_batches(_ROWS):
            columns = [to_raw_values(each) for each in batch.columns[: len(names)]]
            for values in zip(*columns, strict=True):
                yield self._file.find_record(self._row), compare, dict(zip(names, values, strict=True))
                self._row += 1


_ROWS = 4_096


def to_raw_values(column: Any) -> list[Any]:
    """Return values as the proof compares them: floats and times as integers, texts as bytes, structs as dicts."""
    found = column.type
    if pa.types.is_struct(found):
        parts = [to_raw_values(each) for each in column.flatten()]
        rows = zip(*parts, strict=True) if parts else iter([()] * len(column))
        return [
            dict(zip(found.names, row, strict=True)) if is_valid else None
            for row, is_valid in zip(rows, column.is_valid().to_pylist(), strict=True)
        ]
    if pa.types.is_map(found):
        keys, items = to_raw_values(column.keys), to_raw_values(column.items)
        return _slices([*zip(keys, items, strict=True)], column)
    if pa.types.is_list(found):
        return _slices(to_raw_values(column.values), column)
    if pa.types.is_floating(found) or pa.types.is_temporal(found):
        column = column.view(pa.int32() if found.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(found):
        return [None if each is None else _unscaled(each, found.scale) for each in column.to_pylist()]
    elif pa.types.is_string(found):
        column = column.view(pa.binary())
    values: list[Any] = column.to_pylist()
    return values


def _slices(items: Sequence[Any], column: pa.Array) -> list[Any]:
    offsets = column.offsets.to_pylist()
    valid = column.is_valid().to_pylist()
    return [
        items[start:end] if each else None for start, end, each in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number
