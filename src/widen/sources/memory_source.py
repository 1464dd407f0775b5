"""Data in memory as a source: it is written to files of this process, in chunks, and loaded from there.

So a reader or an iterator is read once, in bounded memory, and every pass over a batch sees the same records.

Source: docs/guide/memory.md; the Arrow PyCapsule interface
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from enum import Enum
from functools import cache, partial
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import InvalidOption, OptionMissing, SourceContentError, SourceError, StorageError, WidenError
from widen.errors.tables import open_failure
from widen.log.log_store import LogStore
from widen.model.display import STAGING_PREFIX, STDIN_FILE, STDIN_NAME, name_file
from widen.model.value_classes import dataclass
from widen.sources.arrow_columns import (
    ColumnRules,
    IntegerColumns,
    IntegralDoubles,
    to_stored_columns,
    to_stored_rows,
    with_integers,
)
from widen.sources.file_ranges import TEXT
from widen.sources.find_files import list_local_files
from widen.sources.held_rows import CHUNK_BYTES, CHUNK_ROWS, RowsInMemory, keep_in_memory, slices
from widen.sources.listing import FileFormat, FilePath, SourceFiles
from widen.sources.python_values import ensure_names_differ, ensure_no_objects, has_objects, read_dicts, read_pandas
from widen.sources.staged_files import OpenStagedFile, StagedFile, with_load_time
from widen.spark.spark_types import DataFrame

STDIN = "-"
"""The path that names standard input."""


class ArrowStream(Protocol):
    """Data with the Arrow PyCapsule interface: an Arrow table, a polars DataFrame, a DuckDB relation."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the data as a stream of Arrow."""


MemorySource: TypeAlias = ArrowStream | Iterable[Mapping[str, Any]]
"""Data in memory: see docs/guide/memory.md."""


class Nan(str, Enum):
    """What NaN in data in memory is."""

    KEEP = "keep"
    """A value like others."""
    NULL = "null"
    """No value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedSource:
    """Data in memory, in files of this process.

    Args:
        rows: Files with rows that have types.
        texts: Files with JSON texts.
        stream: The file with what standard input had; None for other data.
    """

    name: str
    store: LogStore
    rows: tuple[StagedFile, ...] = ()
    texts: tuple[StagedFile, ...] = ()
    stream: SourceFiles | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the records without compression."""
        streamed = 0 if self.stream is None else self.stream.text_bytes
        return streamed + sum(file.data_bytes for file in (*self.rows, *self.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSource:
    """Typed data that is whole in memory, and stays there unless something needs files.

    Args:
        stage: Writes the records to files, once.
    """

    name: str
    rows: RowsInMemory
    stage: Callable[[], StagedSource]

    @property
    def size_bytes(self) -> int:
        """The size of the records without compression."""
        return self.rows.size_bytes


def is_paths(source: object) -> TypeGuard[FilePath | Sequence[FilePath]]:
    """Return whether a source is paths, among which may be standard input."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    return (
        isinstance(paths, Sequence) and len(paths) > 0 and all(isinstance(each, (str, os.PathLike)) for each in paths)
    )


def is_files(source: object) -> TypeGuard[FilePath | Sequence[FilePath]]:
    """Return whether a source is paths of files."""
    paths: Any = [source] if isinstance(source, (str, os.PathLike)) else source
    return is_paths(source) and STDIN not in paths


@dataclass(frozen=True, slots=True)
class StagingOptions:
    """How data in memory is read.

    Args:
        format: The format of standard input; or ``json`` for data with JSON texts in one column.
        options: How to read standard input.
        loaded_at: The time of the load, if rows get it as a field.
    """

    format: FileFormat | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    nan: Nan = Nan.KEEP
    rules: ColumnRules = field(default_factory=ColumnRules)
    loaded_at: str | None = None


@contextmanager
def staged_source(
    source: Any, options: StagingOptions
) -> Iterator[FilePath | Sequence[FilePath] | DataFrame | StagedSource | HeldSource]:
    """Yield a source whose records are in files, in a DataFrame of Spark, or whole in memory; what is read once is
    written to files first.
    """
    if is_files(source) or isinstance(source, DataFrame):
        yield source
        return
    held = _hold(source, options)
    with ExitStack() as stack, _naming_stdin():
        stage = cache(partial(_stage_in_folder, source, options, stack))
        yield stage() if held is None else HeldSource(name=_find_name(source), rows=held, stage=stage)


@contextmanager
def _naming_stdin() -> Iterator[None]:
    """Name standard input in errors, and not the file with its bytes."""
    try:
        yield
    except WidenError as error:
        fields = {key: name_file(value) if isinstance(value, str) else value for key, value in error.fields.items()}
        if fields == error.fields:
            raise
        raise type(error)(**fields) from error


def _hold(source: Any, options: StagingOptions) -> RowsInMemory | None:
    """Return the rows of data that is whole in memory; None for other sources, and where values decide their types."""
    is_plain = options.format is None and not options.options
    if not (is_plain and options.rules.integral_doubles is IntegralDoubles.KEEP and _is_whole(source)):
        return None
    name = _find_name(source)
    stream = _open_stream(source, name)
    if not isinstance(stream, pa.RecordBatchReader):
        return None
    return keep_in_memory(stream.schema, list(stream), partial(_to_rows, name, options))


def _is_whole(source: Any) -> bool:
    if isinstance(source, (pa.Table, pa.RecordBatch)):
        return True
    return type(source).__name__ == "DataFrame" and type(source).__module__.partition(".")[0] in ("pandas", "polars")


def _to_rows(name: str, options: StagingOptions, rows: pa.RecordBatch) -> list[pa.Table]:
    """Return rows as they are stored, those with the same types together."""
    rules = replace(options.rules, drops_nan=options.nan is not Nan.KEEP)
    loaded_at = options.loaded_at if options.format is not FileFormat.JSON else None
    return [with_load_time(table, loaded_at) for table, _ in to_stored_rows(rows, name, rules)]


def _stage_in_folder(source: Any, options: StagingOptions, stack: ExitStack) -> StagedSource:
    folder = stack.enter_context(TemporaryDirectory(prefix=STAGING_PREFIX, ignore_cleanup_errors=True))
    try:
        return _stage(source, LogStore(folder), options)
    except OSError as error:
        fix = "The environment variable TMPDIR names another folder."
        raise StorageError(location=folder, reason=open_failure(error), fix=fix) from error


def _stage(source: Any, store: LogStore, options: StagingOptions) -> StagedSource:
    if is_paths(source):
        return _stage_stdin(source, store, options)
    name, is_text = _find_name(source), options.format is FileFormat.JSON
    stream = _open_stream(source, name)
    if stream is None:
        expected = (
            "Must be paths, a DataFrame of Spark, pandas or polars, a table or reader of Arrow, records as dicts, or a "
            "relation of DuckDB."
        )
        if hasattr(source, "collect"):  # a lazy frame of polars, or of another package
            expected = "A lazy frame has no rows yet. Pass source.collect()."
        raise InvalidOption(option="source", value=type(source).__name__, expected=expected)
    _ensure_no_format(options)
    writer = StagedWriter(store, is_text=is_text)
    for batch in stream:
        for rows in slices(batch):
            for table in _to_rows(name, options, rows):
                writer.write(_find_texts(table, name) if is_text else table)
    if not (writer.has_rows or is_text) and isinstance(stream, pa.RecordBatchReader):
        # A file without rows still has the columns.
        columns = [pa.nulls(0, field.type) for field in stream.schema]
        writer.write(to_stored_columns(pa.RecordBatch.from_arrays(columns, schema=stream.schema), name))
    files = writer.close()
    if options.rules.integral_doubles is IntegralDoubles.CONVERT and not is_text:
        files = tuple(map(partial(_with_integers, store), files))
    return StagedSource(name=name, store=store, rows=() if is_text else files, texts=files if is_text else ())


def _with_integers(store: LogStore, file: StagedFile) -> StagedFile:
    """Return a staged file with integers in the columns of floats that have only such; the other file is deleted."""
    integers = IntegerColumns()
    with store.open(file.path) as content:
        for rows in pq.ParquetFile(content).iter_batches(CHUNK_ROWS):
            integers.add(rows)
    if not integers.found:
        return file
    writer = StagedWriter(store)
    with store.open(file.path) as content:
        for rows in pq.ParquetFile(content).iter_batches(CHUNK_ROWS):
            writer.write(pa.Table.from_batches([with_integers(rows, integers.found)]))
    (converted,) = writer.close()
    store.delete([file.path])
    return converted


def _ensure_no_format(options: StagingOptions) -> None:
    if options.options or options.format not in (None, FileFormat.JSON):
        expected = "Data in memory has types; the only format for it is json, for JSON in its only column."
        given = str(options.format or dict(options.options))
        raise InvalidOption(option="format or options", value=given, expected=expected)


def _open_stream(source: Any, name: str) -> Iterable[pa.RecordBatch] | None:
    try:
        package = type(source).__module__.partition(".")[0]
        if package == "polars" and hasattr(source, "__arrow_c_stream__"):
            ensure_no_objects(source, name)
        if package == "pandas":
            ensure_names_differ(source, name)
            if has_objects(source):
                return read_pandas(source, name)
        if hasattr(source, "__arrow_c_stream__"):
            return cast(Iterable[pa.RecordBatch], pa.RecordBatchReader.from_stream(source))
        for method in _METHODS_OF_CURSORS:
            if hasattr(source, method):
                return cast(Iterable[pa.RecordBatch], getattr(source, method)(CHUNK_ROWS))
        if hasattr(source, "__arrow_c_array__"):
            rows = pa.record_batch(source)
            return cast(Iterable[pa.RecordBatch], pa.RecordBatchReader.from_batches(rows.schema, [rows]))
    except (pa.ArrowException, TypeError):
        expected = "Its Arrow data has no columns with names. Pass a table, a record batch or a reader."
        raise InvalidOption(option="source", value=type(source).__name__, expected=expected) from None
    is_records = isinstance(source, Iterable) and not isinstance(source, (Mapping, bytes, pa.Array, pa.ChunkedArray))
    return read_dicts(source, name) if is_records else None


_METHODS_OF_CURSORS = ("to_arrow_reader", "fetch_record_batch")
"""What returns the rows of the last query of a connection of DuckDB, in new and in old versions."""

_PACKAGES = {"pandas": "the pandas DataFrame", "polars": "the polars DataFrame", "duckdb": "the result of DuckDB"}


def _find_name(source: object) -> str:
    package = type(source).__module__.partition(".")[0].lstrip("_")
    return _PACKAGES.get(package, f"the {type(source).__name__}")


def _find_texts(rows: pa.Table, name: str) -> pa.Table:
    """Return the texts of the only column, or of the column ``value``."""
    at = rows.schema.get_field_index("value") if rows.num_columns != 1 else 0
    if at < 0 or rows.schema.field(at).type not in (pa.string(), pa.binary()):
        fix = "Select one column of strings with a JSON document in each."
        raise SourceContentError(source=name, reason="format json needs a column of texts", fix=fix)
    return pa.table({TEXT: rows.column(at).drop_null().cast(pa.binary())})


class StagedWriter:
    """Writes records to files, one for each schema.

    Args:
        is_text: Whether the records are JSON texts.
    """

    def __init__(self, store: LogStore, *, is_text: bool = False) -> None:
        self._store, self._is_text = store, is_text
        self._open: dict[pa.Schema, OpenStagedFile] = {}
        self._pending: dict[pa.Schema, list[pa.Table]] = {}

    @property
    def has_rows(self) -> bool:
        """Whether anything was written."""
        return bool(self._pending or self._open)

    def write(self, table: pa.Table) -> None:
        """Write rows, together with others of the same schema if they are few."""
        pending = self._pending.setdefault(table.schema, [])
        pending.append(table)
        rows, size = sum(each.num_rows for each in pending), sum(each.nbytes for each in pending)
        if rows >= CHUNK_ROWS // 2 or size >= CHUNK_BYTES // 2:
            self._flush(table.schema)

    def close(self) -> tuple[StagedFile, ...]:
        """Finish the files."""
        for schema in list(self._pending):
            self._flush(schema)
        return tuple(file.close() for file in self._open.values())

    def _flush(self, schema: pa.Schema) -> None:
        table = pa.concat_tables(self._pending.pop(schema)).combine_chunks()
        if schema not in self._open:
            compression = "lz4" if self._is_text else None
            is_text = self._is_text
            # What comes first counts as the first value, so the names are in order.
            prefix = f"rows-{len(self._open):05}"
            self._open[schema] = OpenStagedFile(self._store, prefix, schema, is_text=is_text, compression=compression)
        self._open[schema].write(table)


# Standard input.


_NAME_FORMAT = "Standard input has no name that shows its format: json, csv or text (--format)."


def _stage_stdin(source: FilePath | Sequence[FilePath], store: LogStore, options: StagingOptions) -> StagedSource:
    if source not in (STDIN, [STDIN], (STDIN,)):
        expected = "- is standard input, which cannot be loaded together with files. Load it alone."
        raise InvalidOption(option="source", value=STDIN, expected=expected)
    if options.format is None:
        raise OptionMissing(option="format", expected=_NAME_FORMAT)
    place = Path(store.location) / STDIN_FILE
    with place.open("xb") as file:
        copyfileobj(sys.stdin.buffer, file, 2**20)
    found = list_local_files([str(place)])
    if not found:
        raise SourceError(source=STDIN_NAME, reason="it is empty", fix="Pipe the text of the records into it.")
    stream = SourceFiles((), tuple(found), format=options.format, options=options.options)
    return StagedSource(name=STDIN_NAME, store=store, stream=stream)
