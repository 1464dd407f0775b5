"""Batch reads of the data source: one version of a table, or the changes between two versions.

Source: Spark's Python Data Source API
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from widen.errors import DataSourceRefused, InvalidOption, OptionMissing, TableNotFound
from widen.files.arrow_types import to_arrow_schema
from widen.files.data_reader import LocalScan, RowSlice, plan_local_scan
from widen.frames.change_feed import load_changes
from widen.limits import READ_TASK_BYTES
from widen.log.commit_files import to_ms
from widen.log.file_list import filter_files, to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, first_version_from, open_snapshot, select_files
from widen.log.version_changes import INSERT, ChangeSlice, change_slices
from widen.model.column_path import Path
from widen.model.transaction_id import ensure_transaction
from widen.model.types import LONG, STRING, TIMESTAMP, DataType, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, with_change_type
from widen.protocol.comparison import bind_comparison
from widen.protocol.data_skipping import And, IsNull, Not, Or, Predicate, UnknownPredicate
from widen.sources.places import is_iceberg_metadata
from widen.spark.engine import Unsupported
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import as_nullable, visible_schema


def read_snapshot_of(options: SourceOptions) -> Snapshot:
    """Return the version that a batch reads; for changes, the version whose columns they have."""
    time, store = options.text("timestampAsOf"), options.open_store()
    try:
        return open_snapshot(store, options.number("versionAsOf"), None if time is None else to_ms(time))
    except TableNotFound:
        ensure_no_iceberg(store, "read")
        raise


def plan_batch_columns(options: SourceOptions, snapshot: Snapshot) -> TableColumns:
    """Return the columns of a batch."""
    return select_columns(snapshot, has_changes=options.flag("readChangeFeed"))


class TableReader(DataSourceReader):
    """Reads one version of a table, or the changes between two versions."""

    def __init__(self, options: SourceOptions, snapshot: Snapshot, columns: TableColumns) -> None:
        self._options, self._snapshot, self._columns = options, snapshot, columns
        self._predicate: Predicate = UnknownPredicate()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        slices = self._changes() if self._columns.has_changes else self._rows()
        return plan_tasks(slices, is_local=self._snapshot.store.is_local)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(self._columns, partition)

    def _rows(self) -> Iterator[ChangeSlice]:
        snapshot = self._snapshot
        files = filter_files(snapshot.files(), select_files(snapshot, self._predicate))
        return (ChangeSlice(snapshot.version, 0, INSERT, file) for file in to_adds(files))

    def _changes(self) -> Iterator[ChangeSlice]:
        first, last = (self._version(kind) for kind in ("starting", "ending"))
        if first is None:
            expected = "Give startingVersion or startingTimestamp to read the change feed."
            raise InvalidOption(option="startingVersion", value=None, expected=expected)
        changes = load_changes(self._snapshot, first, self._snapshot.version if last is None else last)
        return (part for each in changes for part in change_slices(each))

    def _version(self, kind: str) -> int | None:
        time = self._options.text(f"{kind}Timestamp")
        if time is None:
            return self._options.number(f"{kind}Version")
        if kind == "starting":
            return first_version_from(self._snapshot.store, to_ms(time))
        return open_snapshot(self._snapshot.store, timestamp_ms=to_ms(time)).version


class FilteringReader(TableReader):
    """Also skips files that cannot have a row that matches the filters of the query.

    Spark 4.1 and later call it, and only if ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Skip files by the filters, and return all of them, so that Spark applies them to rows."""
        predicates = (to_predicate(each, self._snapshot.schema) for each in filters)
        self._predicate = reduce(And, predicates, self._predicate)
        return filters


# Filters that Spark pushes to a Python data source, as predicates on the rows of files.
#
# A filter that is not known exactly skips nothing.
#
# Source: Spark's Python Data Source API, `pushFilters`


_UNKNOWN = UnknownPredicate()


def to_predicate(pushed: Any, schema: StructType) -> Predicate:
    """Return a filter of Spark as a predicate.

    Args:
        pushed: An instance of a subclass of ``pyspark.sql.datasource.Filter``, which Spark 4.0 does not have.
    """
    name = type(pushed).__name__
    if name == "Not":
        return Not(to_predicate(pushed.child, schema))
    translate = _FILTERS.get(name)
    column = _find(schema, pushed.attribute) if translate else None
    return translate(*column, pushed) if translate and column else _UNKNOWN


def _find(schema: StructType, names: Sequence[str]) -> tuple[Path, DataType] | None:
    path: Path = ()
    inner: DataType = schema
    for name in names:
        field = next((field for field in inner if field.name == name), None) if isinstance(inner, StructType) else None
        if field is None:
            return None
        path, inner = (*path, name), field.type
    return path, inner


def _compare(path: Path, data_type: DataType, operator: str, value: Any) -> Predicate:
    return bind_comparison(path, data_type, operator, value)


def _comparison(operator: str) -> Callable[[Path, DataType, Any], Predicate]:
    return lambda path, data_type, pushed: _compare(path, data_type, operator, pushed.value)


def _equal_or_null(path: Path, data_type: DataType, pushed: Any) -> Predicate:
    # A negated comparison that is null-safe is true for nulls, which a plain one is not.
    return IsNull(path, data_type) if pushed.value is None else _UNKNOWN


def _in(path: Path, data_type: DataType, pushed: Any) -> Predicate:
    parts = [_compare(path, data_type, "=", value) for value in pushed.value]
    return reduce(Or, parts) if parts else _UNKNOWN


_FILTERS: Mapping[str, Callable[[Path, DataType, Any], Predicate]] = {
    "EqualTo": _comparison("="),
    "EqualNullSafe": _equal_or_null,
    "GreaterThan": _comparison(">"),
    "GreaterThanOrEqual": _comparison(">="),
    "LessThan": _comparison("<"),
    "LessThanOrEqual": _comparison("<="),
    "In": _in,
    "IsNull": lambda path, data_type, _: IsNull(path, data_type),
    "IsNotNull": lambda path, data_type, _: Not(IsNull(path, data_type)),
}
"""The filters that are known, by the names of their classes."""


# Tasks of the data source: the rows of the files that each task reads, and how it reads them, with Arrow.
#
# Read only what Arrow reads exactly: the current types must be the table's types, and deleted rows are left out.
#
# Source: PROTOCOL.md#reader-requirements-for-type-widening, #deletion-vectors, #change-data-files


_SMALL_TASK_BYTES = 32 * 2**20
"""How many bytes a task may always read: each task starts a Python process, which takes longer than small files."""

_FILE_BYTES = 4 * 2**20
"""How many bytes opening a file counts as; Spark's default for its own readers."""

_LOCAL_FILE_BYTES = 2**19
"""The same for a file on a local disk, which takes about a millisecond to open."""

_SPREAD = 16
"""Into how many tasks a read is split at least, if its files are large enough."""

_READ_INSTEAD = "Use Table.read of Widen, for which Spark reads the files."


@dataclass(frozen=True)
class TableColumns:
    """What a read returns.

    Args:
        recorded: How change data files are read, which say themselves how each row changed.
    """

    scan: LocalScan
    recorded: LocalScan
    has_changes: bool

    @property
    def schema(self) -> StructType:
        columns = as_nullable(visible_schema(self.scan.schema))
        changes = (Field(CHANGE_TYPE, STRING), Field(COMMIT_VERSION, LONG), Field(COMMIT_TIMESTAMP, TIMESTAMP))
        return StructType((*columns, *changes)) if self.has_changes else columns


def select_columns(snapshot: Snapshot, *, has_changes: bool) -> TableColumns:
    """Return what a read of a version returns."""
    try:
        scan = plan_local_scan(snapshot)
    except Unsupported as error:
        raise _refuse_read(snapshot.location, error) from error
    return TableColumns(scan, replace(scan, schema=with_change_type(scan.schema)), has_changes)


def _refuse_read(location: str, reason: Unsupported) -> DataSourceRefused:
    return DataSourceRefused(verb="read", location=location, reason=str(reason), fix=_READ_INSTEAD)


class SlicePartition(InputPartition):
    """The rows that one task reads."""

    value: Sequence[tuple[RowSlice, ChangeSlice]]


def plan_tasks(slices: Iterable[ChangeSlice], *, is_local: bool) -> list[InputPartition]:
    """Return the tasks that read slices: small files together, and the row groups of a large file apart."""
    cost = partial(_cost, _LOCAL_FILE_BYTES if is_local else _FILE_BYTES)
    parts = sorted((part for each in slices for part in _split(each)), key=cost, reverse=True)
    limit = max(min(sum(map(cost, parts)) // _SPREAD, READ_TASK_BYTES), _SMALL_TASK_BYTES)
    tasks: list[InputPartition] = []
    current: list[tuple[RowSlice, ChangeSlice]] = []
    size = 0
    for part in parts:
        if current and size + cost(part) > limit:
            tasks.append(SlicePartition(current))
            current, size = [], 0
        current.append(part)
        size += cost(part)
    return [*tasks, SlicePartition(current)] if current else tasks


def _split(each: ChangeSlice) -> Iterator[tuple[RowSlice, ChangeSlice]]:
    """Yield the parts of a file, cut where row groups begin."""
    size = each.file.size
    for first in range(0, max(size, 1), READ_TASK_BYTES):
        end = None if first + READ_TASK_BYTES >= size else first + READ_TASK_BYTES
        yield RowSlice(each.file, first, end, each.without), each


def _cost(file_bytes: int, part: tuple[RowSlice, ChangeSlice]) -> int:
    rows = part[0]
    return (rows.file.size if rows.end_byte is None else rows.end_byte) - rows.first_byte + file_bytes


def read_task(columns: TableColumns, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task."""
    freeze_imports()
    schema = to_arrow_schema(columns.schema)
    for rows, change in partition.value or ():
        scan = columns.recorded if change.change_type is None else columns.scan
        try:
            for table in scan.read(rows):
                yield from _with_changes(table, change, schema, has_changes=columns.has_changes)
        except Unsupported as error:
            raise _refuse_read(scan.store.location, error) from error


def _with_changes(
    table: pa.Table, change: ChangeSlice, schema: pa.Schema, *, has_changes: bool
) -> Iterator[pa.RecordBatch]:
    if has_changes:
        stored = () if change.change_type is None else (pa.scalar(change.change_type),)
        time = pa.scalar(change.time_ms, pa.timestamp("ms", tz="UTC"))
        for value in (*stored, pa.scalar(change.version), time):
            field = schema.field(table.num_columns)
            table = table.append_column(field, pa.repeat(value.cast(field.type), table.num_rows))
    yield from table.combine_chunks().to_batches()


# The options of the data source: what ``spark.read``, ``readStream``, ``write`` and ``writeStream`` may be given.
#
# Source: Delta Lake's options of readers and writers, by the same names


_READS = ("versionAsOf", "timestampAsOf", "readChangeFeed", "startingVersion", "startingTimestamp")
_READS_BATCH = ("endingVersion", "endingTimestamp")
_READS_STREAM = ("maxFilesPerTrigger", "maxBytesPerTrigger", "ignoreDeletes", "skipChangeCommits")
_WRITES = ("mergeSchema", "widening", "partitionBy", "txnAppId", "txnVersion")
_SPARK = ("path", "checkpointLocation")
_NAMES = (*_READS, *_READS_BATCH, *_READS_STREAM, *_WRITES, *_SPARK)
_ADDED = ("queryname",)
"""What Spark adds to the options of a user, in lower case."""

_OF_CATALOG = "provider"
"""An option that Spark adds where a statement creates a table in its catalog."""

_PATHS = "paths"
"""What Spark calls a list of paths, as JSON."""

_VIEW = "CREATE TEMPORARY VIEW … USING widen OPTIONS (path '…')"
_STORE = ("aws_", "google_", "azure_", "allow_http", "timeout", "connect_timeout", "proxy_url")
"""How the names of storage options begin."""

_PROPERTY = "delta."
"""How the names of table properties begin; they apply to a table that a write creates."""

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True)
class SourceOptions:
    """The options of one read or write. Names are not case-sensitive.

    Args:
        given: The options by their names in lower case.
    """

    given: Mapping[str, str]

    def text(self, name: str) -> str | None:
        """Return an option; None if it is not given."""
        return self.given.get(name.lower())

    def flag(self, name: str) -> bool:
        """Return an option that is true or false, by default false.

        Raises:
            InvalidOption: it is neither.
        """
        text = self.text(name) or "false"
        if text.lower() not in _BOOLEANS:
            raise InvalidOption(option=name, value=text, expected="Must be true or false.")
        return _BOOLEANS[text.lower()]

    def number(self, name: str, least: int = 0) -> int | None:
        """Return an option that is an integer; None if it is not given.

        Raises:
            InvalidOption: it is not an integer, or too small.
        """
        text = self.text(name)
        if text is not None and (not text.isdecimal() or int(text) < least):
            raise InvalidOption(option=name, value=text, expected=f"Must be an integer >= {least}.")
        return None if text is None else int(text)

    def transaction(self) -> tuple[str, int] | None:
        """Return the id of an application and the number of its batch, which the table gets once; None without them.

        Raises:
            OptionMissing: only one of the two is given.
        """
        app_id, number = self.text("txnAppId"), self.number("txnVersion")
        if app_id is None and number is None:
            return None
        for name, value, other in (("txnAppId", app_id, "txnVersion"), ("txnVersion", number, "txnAppId")):
            if value is None:
                raise OptionMissing(option=name, expected=f"{other} needs {name}: together they name a batch.")
        found = (app_id or "", number or 0)
        ensure_transaction("txnAppId and txnVersion", *found)
        return found

    def ensure_no_transaction(self) -> None:
        """Check that a stream is not given the id of an application: its query has one.

        Raises:
            InvalidOption: it is given one.
        """
        for name in ("txnAppId", "txnVersion"):
            if self.text(name) is not None:
                expected = (
                    "The commits of a stream have the id of its query and the number of the batch. It is for batch "
                    "writes, also those in foreachBatch."
                )
                raise InvalidOption(option=name, value=self.text(name), expected=expected)

    @property
    def partition_by(self) -> list[str]:
        """The partition columns of a table that a write creates."""
        names = (self.text("partitionBy") or "").split(",")
        return [name.strip() for name in names if name.strip()]

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a table that a write creates."""
        return {name: value for name, value in self.given.items() if name.startswith(_PROPERTY)}

    def open_store(self) -> LogStore:
        """Return the store of the table.

        Raises:
            InvalidOption: no path is given, or its scheme is unknown.
        """
        path = self.text("path")
        if not path:
            ways = "load(path), save(path), start(path) or option('path', …)"
            expected = f"Give the location of the table: {ways}. Of a table in its catalog, Spark passes none: {_VIEW}."
            raise InvalidOption(option="path", value=path, expected=expected)
        return LogStore(path, self.storage_options)

    @property
    def storage_options(self) -> dict[str, str]:
        """Settings and credentials of the store."""
        return {name: value for name, value in self.given.items() if name.startswith(_STORE)}

    @property
    def added(self) -> Collection[str]:
        """The names of options that Spark adds."""
        return _ADDED


def _fold_options(given: Mapping[str, str]) -> SourceOptions:
    """Return options by their names in lower case.

    Raises:
        InvalidOption: Spark has passed the options of a table in its catalog.
    """
    options = SourceOptions({name.lower(): value for name, value in given.items()})
    if options.text(_OF_CATALOG) is not None:
        expected = f"Spark does not tell a Python data source where a table of its catalog lies. Use {_VIEW}."
        raise InvalidOption(option="USING", value=options.text(_OF_CATALOG), expected=expected)
    return options


def find_sink_options(given: Mapping[str, str]) -> SourceOptions | None:
    """Return the options of a sink that ingests; None if the option ``ingest`` is not given."""
    options = _fold_options(given)
    return None if options.text("ingest") is None else options


_ICEBERG_INSTEAD = {
    "read": (
        "Read it with widen.IcebergTable(NAME, CATALOG).read() or Iceberg's own source, spark.read.format('iceberg'). "
        "Instead of a stream use widen.flow (`widen flow NAME --source-catalog CATALOG --into TABLE --checkpoint "
        "DIR`), which reads what has changed since its last run, or spark.readStream.format('iceberg')."
    ),
    "write": (
        "Add the option ingest (json or rows), with which batches and streams are loaded into Iceberg tables, or use "
        "widen.IcebergTable(NAME, CATALOG).append(DATAFRAME)."
    ),
}
"""What to use for an Iceberg table, by the verb. Spark asks for the columns before it says whether it streams."""


def _refuse_iceberg(location: str | None, verb: str) -> DataSourceRefused:
    return DataSourceRefused(
        verb=verb, location=location or "the table", reason="it is an Iceberg table", fix=_ICEBERG_INSTEAD[verb]
    )


def ensure_no_iceberg(store: LogStore, verb: str) -> None:
    """Check that a folder without a Delta table has no Iceberg table."""
    if any(is_iceberg_metadata(entry.path) for entry in store.list("metadata")):
        raise _refuse_iceberg(store.location, verb)


def parse_source_options(given: Mapping[str, str], verb: str = "read") -> SourceOptions:
    """Return the options of a read or write.

    Raises:
        InvalidOption: a name is unknown, or two options exclude each other.
    """
    options = _fold_options(given)
    if options.text("catalog") is not None:
        raise _refuse_iceberg(options.text("path"), verb)
    if options.text(_PATHS) is not None:
        expected = "Load one table at a time, and unite the DataFrames."
        raise InvalidOption(option="path", value=options.text(_PATHS), expected=expected)
    valid_names = {*(name.lower() for name in _NAMES), *_ADDED}
    for name in options.given:
        if name not in valid_names and not name.startswith((_PROPERTY, *_STORE)):
            expected = f"Must be one of {', '.join(_NAMES)}, a table property, or a storage option such as "
            raise InvalidOption(option="an option", value=name, expected=f"{expected}AWS_ACCESS_KEY_ID.")
    for kind in ("AsOf", "starting", "ending"):
        pair = ("versionAsOf", "timestampAsOf") if kind == "AsOf" else (f"{kind}Version", f"{kind}Timestamp")
        if all(options.text(name) is not None for name in pair):
            expected = f"Give {pair[0]} or {pair[1]}, not both."
            raise InvalidOption(option=pair[1], value=options.text(pair[1]), expected=expected)
    return options
