"""The proof that converted files have the records of their source files: these are read again, by another reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import InternalError
from widen.proof.avro_reader import AvroRecords, Compare
from widen.proof.xlsx_reader import is_cell_value, read_sheet
from widen.sources.arrow_columns import Nanos
from widen.sources.converted_files import ConvertedFile, ConvertedFiles
from widen.sources.file_ranges import open_file
from widen.sources.listing import FileFormat, local_path


def ensure_converted(converted: ConvertedFiles) -> None:
    """Check that every record of the source files is in one of the converted files, with the same values."""
    truncates = converted.rules.nanos is Nanos.TRUNCATE
    if converted.source.format is FileFormat.XLSX:
        _ensure_sheets(converted)
        return
    ensure = _ensure_columns if converted.source.format is FileFormat.PARQUET else _ensure_records
    for _, files in groupby(converted.files, key=lambda each: each.source):
        ensure(list(files), truncates=truncates)


def _ensure_records(files: Sequence[ConvertedFile], *, truncates: bool) -> None:
    number, count = -1, 0
    with open_file(files[0].source) as content:
        records = AvroRecords(content, truncates=truncates)
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


def _open_stored(file: ConvertedFile) -> pq.ParquetFile:
    return pq.ParquetFile(pa.memory_map(local_path(file.file.uri) or file.file.uri))


class _ConvertedRows:
    """The rows of a converted file, one by one."""

    def __init__(self, file: ConvertedFile, records: AvroRecords) -> None:
        self._file, self._row = file, 0
        self._parquet = _open_stored(file)
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
            numbers = self._file.find_records(self._row, batch.num_rows)
            for number, values in zip(numbers, zip(*columns, strict=True), strict=True):
                yield number, compare, dict(zip(names, values, strict=True))
            self._row += batch.num_rows


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


# ---- columns of Parquet files ----------------------------------------------------------------------


def _ensure_columns(files: Sequence[ConvertedFile], *, truncates: bool) -> None:
    first = 0
    parts = [_NumberedRows(each) for each in files]
    with open_file(files[0].source) as content:
        for rows in pq.ParquetFile(content).iter_batches(2**15, use_threads=False):
            numbers = pa.array(range(first, first + rows.num_rows), pa.int64())
            found = []
            for part in parts:
                stored, own = part.take(first + rows.num_rows)
                found.append(own)
                places = pc.subtract(own, first)
                if not _are_same(rows.take(places), stored, truncates=truncates):
                    raise _differs(files[0], f"one of the records {first + 1} to {first + rows.num_rows} differs")
            if not pa.concat_arrays(found).sort().equals(numbers):
                raise _differs(files[0], f"one of the records {first + 1} to {first + rows.num_rows} is missing")
            first += rows.num_rows
    if any(part.take(2**62)[1] for part in parts):
        raise _differs(files[0], f"there are records after record {first}")


class _NumberedRows:
    """The rows of a converted file with the numbers of their records, part by part."""

    def __init__(self, file: ConvertedFile) -> None:
        self._batches = _open_stored(file).iter_batches(2**15, use_threads=False)
        self._rows, self._file, self._first = pa.table({}), file, 0
        self._numbers = pa.array([], pa.int64())

    def take(self, end: int) -> tuple[pa.Table, pa.Array]:
        """Return the next rows whose records have numbers below an end, and these numbers."""
        while not len(self._numbers) or self._numbers[-1].as_py() < end:
            rows = next(self._batches, None)
            if rows is None:
                break
            numbers = [self._file.find_record(self._first + at) for at in range(rows.num_rows)]
            self._first += rows.num_rows
            self._numbers = pa.concat_arrays([self._numbers, pa.array(numbers, pa.int64())])
            table = pa.Table.from_batches([rows])
            self._rows = pa.concat_tables([self._rows, table]) if self._rows.num_rows else table
        count = pc.less(self._numbers, end).true_count
        taken = self._rows.slice(0, count), self._numbers.slice(0, count)
        self._rows, self._numbers = self._rows.slice(count), self._numbers.slice(count)
        return taken


def _are_same(source: pa.RecordBatch, stored: pa.Table, *, truncates: bool) -> bool:
    """Return whether stored rows begin with the columns of a source. Further ones are fields of its files."""
    if not source.num_rows:
        return True
    names = source.schema.names
    return stored.schema.names[: len(names)] == names and all(
        _is_same_column(one, stored.column(at).combine_chunks(), truncates=truncates)
        for at, one in enumerate(source.columns)
    )


def _is_same_column(source: Any, stored: Any, *, truncates: bool) -> bool:
    """Return whether stored values, taken back into the type of the source, are its values."""
    found = source.type
    if isinstance(found, pa.BaseExtensionType):
        return _is_same_extension(source, stored, truncates=truncates)
    if pa.types.is_dictionary(found):
        source = source.dictionary_decode()
        found = source.type
    if pa.types.is_floating(found) and stored.type == pa.int64():
        source = pc.if_else(pc.is_nan(source), pa.scalar(None, found), source)
    if not source.is_valid().equals(stored.is_valid()):
        return False
    if pa.types.is_map(found):
        source, stored = (
            each.cast(pa.list_(pa.struct([each.type.key_field, each.type.item_field]))) for each in (source, stored)
        )
    if pa.types.is_list(source.type) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found):
        sizes = [pc.list_value_length(each).cast(pa.int64()) for each in (source, stored)]
        return sizes[0].equals(sizes[1]) and _is_same_column(source.flatten(), stored.flatten(), truncates=truncates)
    if pa.types.is_struct(found):
        parts = zip(source.flatten(), stored.flatten(), strict=True)
        return all(_is_same_column(one, other, truncates=truncates) for one, other in parts)
    try:
        if truncates and pa.types.is_timestamp(found) and found.unit == "ns":
            return _are_cut(source.cast(pa.int64()), stored.cast(pa.int64()))
        return bool(_restore(stored, found).equals(_raw(source)))
    except pa.ArrowInvalid:
        return False


def _is_same_extension(source: Any, stored: Any, *, truncates: bool) -> bool:
    name = source.type.extension_name
    if name == "arrow.uuid":
        texts = [None if each is None else each.hex() for each in source.storage.to_pylist()]
        return texts == [None if each is None else each.replace("-", "") for each in stored.to_pylist()]
    if name == "arrow.bool8":
        return bool(source.storage.cast(pa.bool_()).equals(stored))
    return _is_same_column(source.storage, stored, truncates=truncates)


def _are_cut(nanos: Any, micros: Any) -> bool:
    """Return whether times in microseconds are the times in nanoseconds without the last digits."""
    rest = pc.subtract(nanos, pc.multiply(micros, 1000))
    return not len(rest.drop_null()) or (pc.min(rest).as_py() >= 0 and pc.max(rest).as_py() < 1000)


def _raw(values: Any) -> Any:
    """Return values of a source with their bits as integers, where an equal sign would hide differences."""
    found = values.type
    is_counted = pa.types.is_timestamp(found) or pa.types.is_duration(found) or pa.types.is_date64(found)
    if pa.types.is_time(found):
        return values.cast(pa.int32() if pa.types.is_time32(found) else pa.int64()).cast(pa.int64())
    return values.cast(pa.int64()) if is_counted else _to_bits(values)


def _restore(stored: Any, found: pa.DataType) -> Any:
    """Return stored values in the type of the source, with their bits as integers; see `_raw`."""
    if pa.types.is_time(found):
        moments = pc.binary_join_element_wise("1970-01-01 ", stored, "")
        return moments.cast(pa.timestamp(found.unit)).cast(pa.int64())
    if pa.types.is_timestamp(found) and stored.type == pa.string():
        return pc.replace_substring(stored, "Z", "").cast(pa.timestamp(found.unit)).cast(pa.int64())
    if pa.types.is_timestamp(found):
        return stored.cast(pa.timestamp(found.unit, stored.type.tz)).cast(pa.int64())
    if pa.types.is_date64(found):
        return stored.cast(found).cast(pa.int64())
    if pa.types.is_duration(found):
        return stored
    return _to_bits(stored if stored.type == found else stored.cast(found))


def _to_bits(values: Any) -> Any:
    if not pa.types.is_floating(values.type):
        return values
    return values.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[values.type.bit_width])


# ---- sheets of workbooks ---------------------------------------------------------------------------


def _ensure_sheets(converted: ConvertedFiles) -> None:
    options = {name.lower(): value for name, value in converted.source.options.items()}
    has_header = options.get("header", "true").lower() == "true"
    for _, files in groupby(converted.files, key=lambda each: each.source):
        own = list(files)
        with open_file(own[0].source) as content:
            sheet = read_sheet(content, options.get("sheet"))
        columns = sorted({at for row in sheet.rows for at in row})
        records, found = sheet.rows[has_header:], []
        for file in own:
            rows = _open_stored(file).read()
            values = [column.to_pylist() for column in rows.columns[: len(columns)]]
            for at in range(rows.num_rows):
                number = file.find_record(at)
                found.append(number)
                cells = [] if number >= len(records) else [records[number].get(column) for column in columns]
                if len(cells) != len(values) or not all(
                    is_cell_value(cell, column[at], sheet.epoch) for cell, column in zip(cells, values, strict=True)
                ):
                    raise _differs(file, f"record {number + 1} differs")
        if sorted(found) != list(range(len(records))):
            raise _differs(own[0], "records are missing")
