"""Find, read and compare the target rows of a keyed load, without Spark.

Delta and Iceberg tables differ in how their files are found and read, which is a `KeyedTable`.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.errors import InvalidOption
from widen.files.data_reader import FileScan, LocalScan, NotLocal, record_texts
from widen.frames.parquet_writer import find_obstacle
from widen.frames.scan import location_key
from widen.limits import KEYED_BYTES
from widen.log.file_list import filter_files, to_adds
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
        read: Yields them some at a time, in the columns of the table. May raise `NotLocal`.
    """

    count: int
    read: Callable[[], Iterator[pa.Table]]

    @staticmethod
    def of(rows: pa.Table) -> NewRows:
        """Return rows that this process holds."""
        return NewRows(len(rows), lambda: iter([rows]))


# Read the records of a batch and the rows of a table in full, and compare them.


_ENCODED_ROWS = 65_536

_MOST_TIES = 50_000
"""Up to this many records with one sequence, this process writes them as texts."""


@dataclass(frozen=True, slots=True)
class Places:
    """Records of some files, each by the number of its file and its position there."""

    adds: Sequence[Add]
    file: pa.Array
    position: pa.Array

    def read(self, scan: FileScan) -> pa.Table:
        """Return the records, in the sequence of the places.

        Raises:
            NotLocal: they are in too many files, or only Spark can read a file exactly.
        """
        numbers = pc.unique(self.file).to_pylist()
        if sum(self.adds[number].size for number in numbers) > KEYED_BYTES:
            raise NotLocal("the records are in many files")
        parts, order = [scan.arrow_schema.empty_table()], [pa.array([], pa.uint64())]
        for number in numbers:
            is_here = pc.equal(self.file, number)
            wanted, places = self.position.filter(is_here).cast(pa.uint64()), pc.indices_nonzero(is_here)
            for positions, rows in scan.read_located(self.adds[number]):
                at = pc.index_in(wanted, value_set=positions)
                parts.append(rows.take(at.drop_null()))
                order.append(places.filter(at.is_valid()))
        return pa.concat_tables(parts).take(pc.sort_indices(pa.concat_arrays(order))).combine_chunks()


def are_same(one: pa.Table, other: pa.Table) -> bool:
    """Return True if both tables are known to be equal row by row."""
    return len(one) == len(other) and all(map(operator.eq, _encode(one), _encode(other)))


def _encode(rows: pa.Table) -> Iterator[bytes]:
    """Yield rows as bytes. Unlike values, bytes distinguish 0.0 from -0.0."""
    for batch in rows.combine_chunks().to_batches(_ENCODED_ROWS):
        yield batch.serialize().to_pybytes()


def content_texts(places: Places, scan: FileScan, columns: Sequence[Field]) -> pa.Array | None:
    """Return records as texts to sort by, like `widen.changes.key_expressions.with_order`.

    Args:
        scan: Reads the columns that records may differ in.
        columns: These columns.

    Returns:
        None if there are many.

    Raises:
        NotLocal: only Spark writes a value so.
    """
    if len(places.position) > _MOST_TIES:
        return None
    fields = StructType(tuple(sorted(columns, key=lambda field: field.name)))
    try:
        texts = record_texts(fields, places.read(scan).select(fields.names))
    except InvalidOption:  # a type that Arrow does not have
        return None
    if any("\\u00" in text for text in texts):
        raise NotLocal("Spark escapes control characters in another case")
    # Spark compares the bytes of strings.
    return pa.array([text.encode() for text in texts], pa.binary())


def hash_rows(rows: pa.Table) -> pa.Array:
    """Return a hash for each row, equal for equal rows; 0.0 and -0.0 differ."""
    hashes = [hash_values(batch.to_struct_array()) for batch in rows.to_batches()]
    return pa.concat_arrays(hashes) if hashes else pa.array([], pa.uint64())


def count_true(flags: pa.Array) -> int:
    """Return how many flags are true."""
    return int(pc.sum(flags).as_py() or 0)


def positions_by_file(
    file: pa.Array, position: pa.Array, chosen: pa.Array, names: Sequence[str]
) -> dict[str, BitMap64]:
    """Return the positions of the chosen rows by the key of their file."""
    bitmaps: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    file, position = file.filter(chosen), position.filter(chosen)
    for number in pc.unique(file).to_pylist():
        bitmaps[names[number]] = BitMap64(position.filter(pc.equal(file, number)).to_pylist())
    return dict(bitmaps)
