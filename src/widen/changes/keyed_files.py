"""Find, read and compare the target rows of a keyed load.

Delta and Iceberg tables differ in how their files are found and read, which is a `KeyedTable`.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, cast
from typing import Protocol as Interface

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.deleted_keys import KeyLists
from widen.evolution.key_rules import INTEGERS
from widen.files.arrow_types import one_array, to_arrow, to_arrow_schema
from widen.files.data_reader import FileScan, LocalScan, record_texts
from widen.files.deleted_rows import to_bitmap
from widen.files.footers import open_data_file
from widen.frames.physical_layout import constant_defaults, default_values_of
from widen.frames.scan import location_key, read_with_locations
from widen.limits import KEYED_BYTES
from widen.log.file_list import concat_files, filter_files, from_adds, to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, select_files
from widen.model.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, ArrayType, DataType, Field, MapType, StructType
from widen.model.value_classes import dataclass
from widen.proof.column_digests import hash_values
from widen.protocol.actions import Add, Protocol
from widen.protocol.data_skipping import Predicate
from widen.protocol.file_statistics import count_written_rows
from widen.spark.engine import Session, Unsupported, require_spark, start_tasks
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import DataFrame, SparkSession, as_nullable, to_spark


class KeyedTable(Interface):
    """The version of a table that a batch by key is for."""

    @property
    def schema(self) -> StructType:
        """The columns after the batch."""

    @property
    def old_schema(self) -> StructType | None:
        """The columns before it; None if the table does not exist yet."""

    @property
    def store(self) -> LogStore:
        """The files of the table, among which tasks stage what they decide."""

    @property
    def lists(self) -> KeyLists:
        """The keys that were deleted until that version."""

    def to_adds(self, files: Sequence[Any]) -> list[Add]:
        """Return files of the batch as a scan reads them."""

    def count_rows(self, files: Sequence[Any]) -> int:
        """Return the number of records in files of the batch."""

    def scan(self, columns: StructType) -> FileScan:
        """Return how some of the columns are read."""

    def on_spark(self) -> KeyedTable:
        """Return the table as Spark reads it: `locate` returns the rows, and a scan only says which columns it has."""

    def locate(self, spark: SparkSession, adds: Sequence[Add]) -> DataFrame:
        """Return the rows of files, of the batch or of the version, with `FILE` and `ROW`."""

    def location_of(self, add: Add) -> str:
        """Return the value of `FILE` in the rows of a file."""

    def read_defaults(self, session: Session) -> Mapping[str, pa.Array]:
        """Return the values that new rows have in columns without a field, as arrays of one value."""

    def find_files(self, searched: Predicate) -> Sequence[Add]:
        """Return the files of the version that may have some rows."""

    def key_of(self, add: Add) -> str:
        """Return by what the result names a file."""


@dataclass(frozen=True)
class DeltaFiles(KeyedTable):
    """A Delta table.

    Args:
        view: The version, with the columns after the batch.
        snapshot: The version; None if the table does not exist yet.
    """

    view: Snapshot
    snapshot: Snapshot | None
    keeps_versions: bool = False

    @property
    def schema(self) -> StructType:
        return self.view.schema

    @property
    def old_schema(self) -> StructType | None:
        return None if self.snapshot is None else self.snapshot.schema

    @property
    def store(self) -> LogStore:
        return self.view.store

    @cached_property
    def lists(self) -> KeyLists:
        return KeyLists.of(self.store, self.snapshot, every=self.keeps_versions)

    def to_adds(self, files: Sequence[Add]) -> list[Add]:
        return list(files)

    def count_rows(self, files: Sequence[Add]) -> int:
        return count_written_rows(files)

    def scan(self, columns: StructType) -> LocalScan:
        view = self.view
        keys = dict(zip(view.partition_columns, view.partition_keys, strict=True))
        return LocalScan(view.store, columns, view.configuration.mapping, keys)

    def find_files(self, searched: Predicate) -> Sequence[Add]:
        if self.snapshot is None:
            return []
        return to_adds(filter_files(self.snapshot.files(), select_files(self.snapshot, searched)))

    def key_of(self, add: Add) -> str:
        return location_key(self.view.store.uri(add.path))

    def on_spark(self) -> DeltaFiles:
        return self

    def locate(self, spark: SparkSession, adds: Sequence[Add]) -> DataFrame:
        return read_with_locations(spark, self.store, self.view, concat_files([from_adds(adds)]))

    def location_of(self, add: Add) -> str:
        return self.key_of(add)

    def read_defaults(self, session: Session) -> Mapping[str, pa.Array]:
        return evaluate_defaults(session, self.schema, self.view.configuration.protocol)


def evaluate_defaults(session: Session, schema: StructType, protocol: Protocol) -> dict[str, pa.Array]:
    """Return the defaults of columns as arrays of one value; see `KeyedTable.read_defaults`."""
    try:
        return constant_defaults(schema, protocol)
    except Unsupported as error:
        spark = require_spark(session, f"of the default of a column: {error}")
    types = {each.name: each.type for each in schema}
    values = [each.alias(name) for name, each in default_values_of(schema, protocol).items()]
    with translate_spark_errors():
        row = spark.range(1).select(*values).toArrow()
    return {name: one_array(row[name]).cast(to_arrow(types[name])) for name in row.column_names}


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows that a batch adds to the table beside its own records.

    Args:
        parts: Each is written by one task. Picklable if there are several.
    """

    count: int
    parts: Sequence[RowPart]

    @staticmethod
    def of(rows: pa.Table) -> NewRows:
        """Return rows that this process holds."""
        return NewRows(len(rows), [RowPart(partial(iter, [rows]))])

    def read(self) -> Iterator[pa.Table]:
        """Yield the rows some at a time."""
        return (rows for part in self.parts for rows in part.read())


class RowPart(NamedTuple):
    """Rows in the columns of the table.

    Args:
        read: Yields them some at a time.
        size_bytes: About how many bytes they have in files, where tasks should write many of them; 0 for rows that this
            process holds.
    """

    read: Callable[[], Iterator[pa.Table]]
    size_bytes: int = 0

    def stage(self, store: LogStore, path: str, schema: pa.Schema) -> RowPart:
        """Return the same rows in a new file of the table's store, which tasks can read."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
            for rows in self.read():
                file.write_table(rows.cast(schema))
        content = sink.getvalue().to_pybytes()
        store.put(path, content)
        return RowPart.staged(store, path, len(content))

    @staticmethod
    def staged(store: LogStore, path: str, size_bytes: int) -> RowPart:
        """Return rows in a file that `stage` has written."""
        return RowPart(partial(_read_staged, store, path), size_bytes)


def _read_staged(store: LogStore, path: str) -> Iterator[pa.Table]:
    with open_data_file(store, path) as opened:
        file = pa.ipc.open_file(opened)
        for number in range(file.num_record_batches):
            yield pa.Table.from_batches([file.get_batch(number)])


def read_on_spark(spark: SparkSession, new: NewRows, schema: StructType, store: LogStore, folder: str) -> DataFrame:
    """Return rows as Spark writes them.

    Args:
        folder: A new folder below the store, for what this process holds; the caller deletes it in the end.
    """
    arrow, parts = to_arrow_schema(schema), list(enumerate(new.parts))
    staged = [each if each.size_bytes else each.stage(store, f"{folder}/{at}", arrow) for at, each in parts]
    rows = start_tasks(spark, len(staged)).mapInArrow(partial(_read_parts, staged), to_spark(as_nullable(schema)))
    return cast("DataFrame", rows)


def _read_parts(parts: Sequence[RowPart], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        yield from (batch for rows in parts[number].read() for batch in rows.to_batches())


# Read the records of a batch and the rows of a table in full, and compare them.


_ENCODED_ROWS = 65_536


class TooLarge(Unsupported):
    """This process cannot hold what a decision needs; tasks can decide the keys in buckets."""


class Contents(Interface):
    """Reads records and rows, each by the number of its file and its position there."""

    most_texts: int
    """Up to this many records with one sequence are written as texts at once."""

    def read_parts(self, file: pa.Array, position: pa.Array, scan: FileScan) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield rows some at a time, with their numbers among those that are asked for."""


@dataclass(frozen=True, slots=True)
class FileContents(Contents):
    """What is in files."""

    adds: Sequence[Add]
    most_texts: int = 50_000

    def read_parts(self, file: pa.Array, position: pa.Array, scan: FileScan) -> Iterator[tuple[pa.Array, pa.Table]]:
        for number in pc.unique(file).to_pylist():
            is_here = pc.equal(file, number)
            wanted, places = position.filter(is_here), pc.indices_nonzero(is_here)
            for positions, rows in scan.read_located(self.adds[number]):
                found = pc.is_in(wanted, value_set=positions)
                if pc.any(found).as_py():
                    at = pc.index_in(wanted.filter(found), value_set=positions)
                    yield places.filter(found), rows.take(at)

    def size_of(self, file: pa.Array) -> int:
        """Return the size of some files in bytes."""
        return sum(self.adds[number].size for number in pc.unique(file).to_pylist())


@dataclass(frozen=True, slots=True)
class Places:
    """Records and rows, each by the number of its file and its position there."""

    contents: Contents
    file: pa.Array
    position: pa.Array

    def read_parts(self, scan: FileScan) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows some at a time, with their numbers among the places."""
        return self.contents.read_parts(self.file, self.position, scan)

    def read(self, scan: FileScan, most_bytes: int = KEYED_BYTES) -> pa.Table:
        """Return the rows, in the sequence of the places.

        Args:
            most_bytes: The maximum size of the files that this process reads for it.

        Raises:
            TooLarge: they are in too many files.
        """
        if isinstance(self.contents, FileContents) and self.contents.size_of(self.file) > most_bytes:
            raise TooLarge("the records are in many files")
        parts, order = [scan.arrow_schema.empty_table()], [pa.array([], pa.uint64())]
        for at, rows in self.read_parts(scan):
            parts.append(rows)
            order.append(at.cast(pa.uint64()))
        return pa.concat_tables(parts).take(pc.sort_indices(pa.concat_arrays(order))).combine_chunks()


def are_same(one: pa.Table, other: pa.Table) -> bool:
    """Return True if both tables are known to be equal row by row."""
    return len(one) == len(other) and all(map(operator.eq, _encode(one), _encode(other)))


def _encode(rows: pa.Table) -> Iterator[bytes]:
    """Yield rows as bytes. Unlike values, bytes distinguish 0.0 from -0.0."""
    for batch in rows.combine_chunks().to_batches(_ENCODED_ROWS):
        yield batch.serialize().to_pybytes()


def content_texts(rows: pa.Table, columns: Sequence[Field]) -> pa.Array:
    """Return the contents of records as texts to sort by: JSON, with the columns in the order of their names.

    There is a text for every value: times are as Arrow writes them, and maps whose keys JSON does not have are lists.
    """
    fields = sorted(columns, key=lambda field: field.name)
    schema = StructType(tuple(Field(each.name, _as_json(each.type)) for each in fields))
    plain = rows.select(schema.names).cast(to_arrow_schema(schema))
    texts = [text.encode() for part in _parts(plain) for text in record_texts(schema, part)]
    return pa.array(texts, pa.binary())


def _as_json(data_type: DataType) -> DataType:
    match data_type:
        case StructType(fields):
            return StructType(tuple(Field(each.name, _as_json(each.type)) for each in fields))
        case ArrayType(element):
            return ArrayType(_as_json(element))
        case MapType(key, value) if key == STRING or key in INTEGERS:
            return MapType(key, _as_json(value))
        case MapType(key, value):
            return ArrayType(StructType((Field("key", _as_json(key)), Field("value", _as_json(value)))))
    return STRING if data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ) else data_type


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    return (pa.Table.from_batches([batch]) for batch in rows.combine_chunks().to_batches(_ENCODED_ROWS))


def hash_rows(rows: pa.Table) -> pa.Array:
    """Return a hash for each row, equal for equal rows; 0.0 and -0.0 differ."""
    hashes = [hash_values(batch.to_struct_array()) for batch in rows.to_batches()]
    return pa.concat_arrays(hashes) if hashes else pa.array([], pa.uint64())


def count_true(flags: pa.Array) -> int:
    """Return how many flags are true."""
    return int(pc.sum(flags).as_py() or 0)


def positions_by_file(file: pa.Array, position: pa.Array, chosen: pa.Array) -> dict[int, BitMap64]:
    """Return the positions of the chosen rows by the number of their file."""
    file, position = file.filter(chosen), position.filter(chosen)
    numbers = pc.unique(file).to_pylist()
    return {number: to_bitmap(position.filter(pc.equal(file, number))) for number in numbers}
