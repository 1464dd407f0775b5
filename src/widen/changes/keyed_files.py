"""Find, read and compare the target rows of a keyed load, without Spark.

Delta and Iceberg tables differ in how their files are found and read, which is a `KeyedTable`.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from typing import Protocol as Interface

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.files.data_reader import FileScan, LocalScan, NotLocal, record_texts
from widen.files.deleted_rows import to_bitmap
from widen.frames.parquet_writer import find_obstacle
from widen.frames.scan import location_key
from widen.limits import KEYED_BYTES
from widen.log.file_list import filter_files, to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, select_files
from widen.model.types import Field, StructType
from widen.proof.column_digests import hash_values
from widen.protocol.actions import Add
from widen.protocol.data_skipping import Predicate


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
    def can_write_rows(self) -> bool:
        """Whether rows that are made of several records are written with Arrow."""

    def scan(self, columns: StructType) -> FileScan:
        """Return how some of the columns are read.

        Raises:
            NotLocal: only Spark can read the table exactly.
        """

    def find_files(self, searched: Predicate) -> Sequence[Add]:
        """Return the files of the version that may have some rows.

        Raises:
            NotLocal: only Spark can read one of them exactly.
        """

    def key_of(self, add: Add) -> str:
        """Return by what the result names a file."""


@dataclass(frozen=True, slots=True)
class DeltaFiles(KeyedTable):
    """A Delta table.

    Args:
        view: The version, with the columns after the batch.
        snapshot: The version; None if the table does not exist yet.
    """

    view: Snapshot
    snapshot: Snapshot | None

    @property
    def schema(self) -> StructType:
        return self.view.schema

    @property
    def old_schema(self) -> StructType | None:
        return None if self.snapshot is None else self.snapshot.schema

    @property
    def store(self) -> LogStore:
        return self.view.store

    @property
    def can_write_rows(self) -> bool:
        return not find_obstacle(self.view.configuration)

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


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows that a batch adds to the table beside its own records.

    Args:
        count: Their number.
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
        read: Yields them some at a time. May raise `NotLocal`.
        size_bytes: About how many bytes they have in files, where tasks should write many of them.
    """

    read: Callable[[], Iterator[pa.Table]]
    size_bytes: int = 0


# Read the records of a batch and the rows of a table in full, and compare them.


_ENCODED_ROWS = 65_536


class TooLarge(NotLocal):
    """This process cannot hold what a decision needs; tasks can decide the keys in buckets."""


class Contents(Interface):
    """Reads records and rows, each by the number of its file and its position there."""

    most_texts: int
    """Up to this many records with one sequence are written as texts at once."""

    def read_parts(self, file: pa.Array, position: pa.Array, scan: FileScan) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield rows some at a time, with their numbers among those that are asked for.

        Raises:
            NotLocal: only Spark can read a file exactly.
        """


@dataclass(frozen=True, slots=True)
class FileContents(Contents):
    """What is in files.

    Args:
        adds: The files by their numbers.
    """

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

    def read(self, scan: FileScan) -> pa.Table:
        """Return the rows, in the sequence of the places.

        Raises:
            TooLarge: they are in too many files.
            NotLocal: only Spark can read a file exactly.
        """
        if isinstance(self.contents, FileContents) and self.contents.size_of(self.file) > KEYED_BYTES:
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

    Args:
        columns: The columns that records may differ in.
    """
    fields = StructType(tuple(sorted(columns, key=lambda field: field.name)))
    texts = [text.encode() for part in _parts(rows.select(fields.names)) for text in record_texts(fields, part)]
    return pa.array(texts, pa.binary())


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
