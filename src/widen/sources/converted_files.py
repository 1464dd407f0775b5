"""Source files that Arrow's Parquet reader does not read, as Parquet files of this process with the same records.

Everything that a load does with Parquet files, it does with these. Their columns have the types of `to_stored_columns`,
and the fields that records get from their files are columns as well.
"""

from __future__ import annotations

import os
import shutil
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from tempfile import mkdtemp
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import CorruptFile, StorageError, WidenError
from widen.errors.tables import first_line, open_failure
from widen.json.field_rules import LOADED_AT, SIGN, FileFields, merge_file_fields
from widen.log.log_store import LogStore
from widen.sources.arrow_columns import (
    ColumnRules,
    IntegerColumns,
    IntegralDoubles,
    to_stored_rows,
    with_integers,
)
from widen.sources.avro_columns import EXTRA, TypedRows, has_avro_reader, read_avro
from widen.sources.file_ranges import open_file
from widen.sources.listing import FileFormat, SourceFile, SourceFiles
from widen.sources.staged_files import OpenStagedFile, as_sources
from widen.sources.xlsx_sheets import XLSX_EXTRA, has_xlsx_reader, read_xlsx
from widen.spark.errors import RESTORE_FILE, environment_error

_DEFAULT = ColumnRules()

ReadRows = Callable[[BinaryIO, str], Iterator[TypedRows]]
"""Reads the records of an open file; the name is for errors."""


def _read_parquet(file: BinaryIO, path: str) -> Iterator[TypedRows]:
    count = 0
    try:
        parquet = pq.ParquetFile(file, page_checksum_verification=True)
        for rows in parquet.iter_batches(2**15, use_threads=False):
            yield TypedRows(rows)
            count += rows.num_rows
        if not count:
            yield TypedRows(pa.RecordBatch.from_pylist([], parquet.schema_arrow))
    except pa.ArrowException as error:
        damage = CorruptFile(path=path, reason=first_line(error), fix=RESTORE_FILE)
        raise environment_error(path, error) or damage from error


def _reader_of(source: SourceFiles) -> ReadRows:
    if source.format is FileFormat.XLSX:
        return partial(read_xlsx, source.options)
    return read_avro if source.format is FileFormat.AVRO else _read_parquet


EXTRAS: Mapping[FileFormat, str] = {FileFormat.AVRO: EXTRA, FileFormat.XLSX: XLSX_EXTRA}
"""What to install for the formats that are converted."""


class OddTypes(Exception):
    """A Parquet file has columns of a type that Spark does not read."""


def is_converted(source: SourceFiles) -> bool:
    """Return whether this process converts the files of a source: a reader of their format is installed."""
    if source.format is FileFormat.XLSX:
        return has_xlsx_reader()
    return source.format is FileFormat.AVRO and has_avro_reader()


def converts_integers(source: SourceFiles, rules: ColumnRules) -> bool:
    """Return whether columns of floats become integers where each value is one."""
    return source.format is FileFormat.PARQUET and rules.integral_doubles is IntegralDoubles.CONVERT


class ConvertedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Some records of a source file, in a Parquet file of this process.

    Args:
        numbers: The path of a file with the number of each record in the source file, from 0, in 8 bytes each; empty if
            the records are all of the source file, in its order.
    """

    source: str
    path: str
    file: SourceFile
    numbers: str = ""

    def find_record(self, row: int) -> int:
        """Return the number of the record in the source file that a row holds, from 0."""
        return self.find_records(row, 1)[0]

    def find_records(self, row: int, count: int) -> Sequence[int]:
        """Return the numbers of the records in the source file that some rows hold, from 0."""
        if not self.numbers:
            return range(row, row + count)
        with open(self.numbers, "rb") as file:
            file.seek(8 * row)
            return struct.unpack(f"<{count}q", file.read(8 * count))


class ConvertedFiles:
    """The Parquet files of a source, which are deleted when nothing refers to this any more."""

    def __init__(
        self, source: SourceFiles, folder: str, files: Sequence[ConvertedFile], rules: ColumnRules = _DEFAULT
    ) -> None:
        self.source, self.files, self.rules = source, files, rules
        self._finalizer = weakref.finalize(self, shutil.rmtree, folder, True)

    @property
    def stored(self) -> SourceFiles:
        """The Parquet files as a source."""
        return SourceFiles((), tuple(each.file for each in self.files), format=FileFormat.PARQUET)


def convert_files(source: SourceFiles, fields: FileFields, rules: ColumnRules = _DEFAULT) -> ConvertedFiles:
    """Write the records of files to Parquet files.

    Args:
        rules: What becomes of values that a table holds in one of several ways.
    """
    folder = mkdtemp(prefix="widen-source-")
    try:
        with _writing_to(folder):
            store = LogStore(folder)
            files = [
                each
                for file in source.files
                if file.size_bytes
                for each in _convert(file, store, _read(file, source, rules), fields)
            ]
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ConvertedFiles(source, folder, files, rules)


def find_unconvertible(source: SourceFiles, rules: ColumnRules = _DEFAULT) -> dict[str, WidenError]:
    """Return why each file that cannot be read is bad, by its path."""
    faults: dict[str, WidenError] = {}
    for file in source.files:
        try:
            for _ in _read(file, source, rules):
                pass
        except WidenError as error:
            faults[file.path] = error
    return faults


@contextmanager
def _writing_to(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "The environment variable TMPDIR names another folder."
        raise StorageError(location=folder, reason=open_failure(error), fix=fix) from error


def _read(file: SourceFile, source: SourceFiles, rules: ColumnRules) -> Iterator[tuple[pa.Table, Sequence[int] | None]]:
    """Yield the records of a file with the numbers that they have in it; None if they follow those before them."""
    first, integers = 0, IntegerColumns()
    if converts_integers(source, rules):
        with open_file(file.uri) as content:
            for each in _reader_of(source)(content, file.path):
                integers.add(each.rows)
    found = integers.found
    with open_file(file.uri) as content:
        for each in _reader_of(source)(content, file.path):
            count = each.rows.num_rows
            for table, places in to_stored_rows(with_integers(each.rows, found), file.path, rules):
                if places is None:
                    yield table, each.numbers
                elif each.numbers is None:
                    yield table, pc.add(places.cast(pa.int64()), first).to_pylist()
                else:
                    yield table, [each.numbers[at] for at in places.to_pylist()]
            first += count


def _convert(
    file: SourceFile, store: LogStore, rows: Iterable[tuple[pa.Table, Sequence[int] | None]], fields: FileFields
) -> Iterable[ConvertedFile]:
    given = fields.of(file.uri)
    writer = _Writer(file, store)
    for table, numbers in rows:
        names = merge_file_fields(dict.fromkeys(table.schema.names), given)
        for name, (key, text) in zip(list(names)[table.num_columns :], given.items(), strict=True):
            value = datetime.fromisoformat(text) if text and key == LOADED_AT + SIGN else text
            kind = pa.timestamp("us", "UTC") if key == LOADED_AT + SIGN else pa.string()
            table = table.append_column(name, pa.repeat(pa.scalar(value, kind), table.num_rows))
        writer.write(table, numbers)
    return writer.close()


class _Writer:
    """Writes the records of a source file: a file for each schema."""

    def __init__(self, file: SourceFile, store: LogStore) -> None:
        self._file, self._store = file, store
        self._open: dict[pa.Schema, tuple[OpenStagedFile, BinaryIO]] = {}
        self._done: list[ConvertedFile] = []
        self._rows = 0

    def write(self, table: pa.Table, numbers: Sequence[int] | None) -> None:
        if table.schema not in self._open:
            if len(self._open) == _MOST_OPEN:
                self._close_all()
            staged = OpenStagedFile(self._store, "rows", table.schema, is_text=False, compression=None)
            self._open[table.schema] = staged, self._store.create(f"{staged.path}.numbers")
        staged, places = self._open[table.schema]
        staged.write(table)
        found = range(self._rows, self._rows + table.num_rows) if numbers is None else numbers
        places.write(pa.array(found, pa.int64()).buffers()[1] or b"")
        self._rows += table.num_rows

    def close(self) -> list[ConvertedFile]:
        self._close_all()
        if len(self._done) == 1:
            return [msgspec.structs.replace(self._done[0], numbers="")]
        return self._done

    def _close_all(self) -> None:
        for staged, places in self._open.values():
            places.close()
            (stored,) = as_sources(self._store, [staged.close()])
            numbers = os.path.join(self._store.location, f"{staged.path}.numbers")
            self._done.append(ConvertedFile(source=self._file.uri, path=self._file.path, file=stored, numbers=numbers))
        self._open.clear()


_MOST_OPEN = 32
