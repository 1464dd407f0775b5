"""The rows that a change of an Iceberg table decides, held by this process and written into copies of their files.

One Spark job finds the rows and their new values, and reads no other column; without a session Arrow does, where it
evaluates the condition and the values. Arrow puts these where the old ones are while it copies the files, so no row is
written by Spark. A change of more rows, of long rows, or one that breaks a rule of the table is left to Spark, which
has no such limits and names the rule.

Source: Iceberg's table specification, "Row-level Deletes": copy-on-write
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property, reduce
from operator import add
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.assignment import CLAUSE, ChangeKind
from widen.changes.iceberg_write import by_path, find_deleted, to_plain_adds
from widen.errors import InvalidOption
from widen.files.arrow_types import one_array, to_arrow
from widen.files.deleted_rows import FILE, ROW, to_bitmap
from widen.files.expressions import RowValues, plain_sql, plan_condition, plan_values
from widen.files.row_tests import RowTest
from widen.frames.iceberg_scan import IcebergSource, file_scan, to_uris
from widen.frames.scan import location_key
from widen.iceberg.scan_plan import IcebergScan
from widen.limits import COPIED_BYTES, HELD_BYTES
from widen.model.column_path import leaves
from widen.model.display import size_text
from widen.model.types import BINARY, STRING, ArrayType, DataType, MapType, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.schema.table_state import referenced_columns
from widen.spark.engine import Unsupported, as_unsupported, ensure_at_most
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import Expression
from widen.spark.spark_types import Column, DataFrame, F, as_nullable, type_to_spark

LONGEST = (1_024, 96)
"""Upper bounds for the size of the texts, lists and maps of a row, tried from the largest to the smallest. The smaller
bound allows more rows."""

_PLACES = pa.schema([(FILE, pa.int32()), (ROW, pa.int64()), (CLAUSE, pa.int32())])
_IS_LEFT = "__widen_is_left"
_NUMBER_BYTES, _PLACE_BYTES, _VALUE_BYTES = 8, 24, 16


@dataclass(frozen=True)
class HeldRows:
    """Decided rows.

    Args:
        rows: `FILE`, as a number, and `ROW`, null for a new row; `CLAUSE`; and the columns that change, in the types of
            the table.
        files: The key of each file by its number.
        marked: Instead of rows, the positions of those that the first clause deletes, by the key of their file.
    """

    rows: pa.Table
    files: Sequence[str]
    kinds: Sequence[ChangeKind]
    marked: Mapping[str, BitMap64] = field(default_factory=dict)

    @cached_property
    def total(self) -> Counter[int]:
        """The number of rows of each clause."""
        if self.marked:
            return Counter({0: sum(map(len, self.marked.values()))})
        counts = pc.value_counts(self.rows[CLAUSE].combine_chunks())
        found = zip(*(counts.field(number).to_pylist() for number in (0, 1)), strict=True)
        return Counter({clause: count for clause, count in found if 0 <= clause < len(self.kinds)})

    def count(self, *kinds: ChangeKind) -> int:
        """Return the number of rows that change in one of these ways."""
        return sum(count for clause, count in self.total.items() if self.kinds[clause] in kinds)

    @property
    def repeated(self) -> int:
        """The number of rows of the table that were decided several times."""
        old = self.rows.select([FILE, ROW]).filter(self.rows[FILE].is_valid())
        times = old.group_by([FILE, ROW]).aggregate([([], "count_all")])["count_all"]
        return int(pc.sum(pc.greater(times, 1)).as_py() or 0)

    @property
    def keys(self) -> set[str]:
        """The keys of the files with rows that are updated or deleted."""
        numbers = self._of(ChangeKind.UPDATE, ChangeKind.DELETE)[FILE].unique().to_pylist()
        return {self.files[number] for number in numbers} | self.marked.keys()

    def deleted(self, scan: IcebergScan) -> dict[str, BitMap64]:
        """Return the positions of the deleted rows by the path of each file of a scan."""
        if self.marked:
            return by_path(scan, self.marked)
        found = self._by_path(scan, self._of(ChangeKind.DELETE).select([FILE, ROW]))
        bitmaps = {path: to_bitmap(own[ROW]) for path, own in found.items()}
        return {file.path: bitmaps.get(file.path, BitMap64()) for file in scan.files}

    def replaced(self, scan: IcebergScan) -> dict[str, pa.RecordBatch]:
        """Return `ROW` and the new values of the updated rows by the path of each file of a scan, in their order."""
        found = self._by_path(scan, self._of(ChangeKind.UPDATE))
        return {path: own.drop_columns([FILE, CLAUSE]) for path, own in found.items()}

    def _by_path(self, scan: IcebergScan, rows: pa.Table) -> dict[str, pa.RecordBatch]:
        """Return the rows of each file with such rows, sorted by position."""
        if not len(rows):
            return {}
        paths = [file.path for file in scan.files]
        path_by_key = dict(zip(map(location_key, to_uris(paths)), paths, strict=True))
        (batch,) = rows.sort_by([(FILE, "ascending"), (ROW, "ascending")]).combine_chunks().to_batches()
        runs, found, first = pc.run_end_encode(batch[FILE]), dict[str, pa.RecordBatch](), 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            found[path_by_key[self.files[number]]] = batch.slice(first, end - first)
            first = end
        return found

    @property
    def added(self) -> pa.Table:
        """The new rows."""
        return self._of(ChangeKind.INSERT).drop_columns([FILE, ROW, CLAUSE])

    def _of(self, *kinds: ChangeKind) -> pa.Table:
        wanted = [number for number, kind in enumerate(self.kinds) if kind in kinds]
        return self.rows.filter(pc.is_in(self.rows[CLAUSE], value_set=pa.array(wanted, pa.int32())))


def most_rows(schema: StructType, longest: int = LONGEST[0]) -> int:
    """Return the number of changed rows that this process can hold.

    Args:
        longest: The size of their texts, lists and maps in a row.
    """
    fixed = _PLACE_BYTES + _VALUE_BYTES * sum(1 for _ in leaves(schema))
    is_fixed = all(_size_of(F.lit(None), field.type) is None for field in schema)
    return HELD_BYTES // (fixed if is_fixed else fixed + longest)


def hold_rows(
    decided: DataFrame,
    schema: StructType,
    kinds: Sequence[ChangeKind],
    is_broken: Column | None,
    files: Sequence[str],
    at_most: int | None = None,
) -> HeldRows | None:
    """Run the job that decides rows, and return them.

    Args:
        is_broken: The condition that the new values of a row violate a rule of the table; None if it has no rules.

    Returns:
        None if they are left to Spark.
    """
    numbers = {crc32(key.encode()): at for at, key in enumerate(files)}
    if len(numbers) < len(files):
        return None
    # A number has fewer bytes than the location of a file.
    numbered = decided.withColumn(FILE, F.crc32(F.col(FILE).cast("binary")))
    known = [longest for longest in LONGEST if most_rows(schema, longest) > most_rows(schema)]
    for longest in (LONGEST[0], *known):
        most = most_rows(schema, longest)
        # A limit brings all rows into one partition first.
        limited = numbered if at_most is not None and at_most <= most else numbered.limit(most + 1)
        rows = _collect(limited, schema, kinds, is_broken, longest)
        if len(rows) <= most:
            break
    else:
        return None
    if pc.any(rows[_IS_LEFT]).as_py():
        return None
    at = pc.index_in(rows[FILE], value_set=pa.array(numbers, pa.int64())) if files else rows[FILE].cast(pa.int32())
    try:
        cast = {field.name: rows[f"c{number}"].cast(to_arrow(field.type)) for number, field in enumerate(schema)}
    except (pa.ArrowException, InvalidOption):  # a type that Arrow does not have
        return None
    return HeldRows(pa.table({FILE: at, ROW: rows[ROW], CLAUSE: rows[CLAUSE]} | cast), files, kinds)


def _collect(
    decided: DataFrame, schema: StructType, kinds: Sequence[ChangeKind], is_broken: Column | None, longest: int
) -> pa.Table:
    """Return the decided rows, with `_IS_LEFT` and the values as ``c0`` and so on."""
    writes = [number for number, kind in enumerate(kinds) if kind is not ChangeKind.DELETE]
    is_written, is_left = F.col(CLAUSE).isin(writes), F.lit(False) if is_broken is None else is_broken
    size = _sum([_size_of(F.col(quote_name(field.name)), field.type) for field in schema])
    if size is not None:
        is_left |= size > longest
    flagged = decided.withColumn(_IS_LEFT, is_written & F.coalesce(is_left, F.lit(False)))
    # A value that is not written, and one that is left to Spark, does not reach this process. PySpark cannot return
    # a null struct whose fields must not be null.
    is_kept = is_written & ~F.col(_IS_LEFT)
    values = [
        F.when(is_kept, F.col(quote_name(field.name)).cast(type_to_spark(field.type))).alias(f"c{number}")
        for number, field in enumerate(as_nullable(schema))
    ]
    with translate_spark_errors():
        return flagged.select(FILE, ROW, CLAUSE, _IS_LEFT, *values).toArrow()


def _size_of(column: Column, data_type: DataType) -> Column | None:
    """Return about the size of a value in bytes; None if every value of the type has the same few."""
    match data_type:
        case StructType():
            return _sum([_size_of(column.getField(each.name), each.type) for each in data_type])
        case ArrayType(element):
            return _size_of_items(column, element)
        case MapType(key, value):
            return _sum([_size_of_items(F.map_keys(column), key), _size_of_items(F.map_values(column), value)])
    return _or_zero(F.octet_length(column)) if data_type in (STRING, BINARY) else None


def _size_of_items(items: Column, element: DataType) -> Column:
    def plus(total: Column, item: Column) -> Column:
        size = _size_of(item, element)
        return total if size is None else total + size

    return _or_zero(F.array_size(items)) * _NUMBER_BYTES + _or_zero(F.aggregate(items, _or_zero(F.lit(0)), plus))


def _sum(sizes: Sequence[Column | None]) -> Column | None:
    known = [size for size in sizes if size is not None]
    return reduce(add, known) if known else None


def _or_zero(size: Column) -> Column:
    return F.coalesce(size.cast("bigint"), F.lit(0))


# ---- rows that Arrow decides -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowSearch:
    """Finds the rows of some files that match a condition, in this process."""

    source: IcebergSource
    schema: StructType
    scan: IcebergScan
    where: Expression | None

    def hold_deletions(self) -> HeldRows:
        """Return the rows, to delete them."""
        found = {key: BitMap64() for key in self._keys}
        for key, positions, _ in self.matching(()):
            found[key] |= to_bitmap(positions)
        marked = {key: bitmap for key, bitmap in found.items() if bitmap}
        return HeldRows(_PLACES.empty_table(), self._keys, (ChangeKind.DELETE,), marked)

    def hold_updates(self, values: Mapping[str, tuple[str, DataType]]) -> HeldRows:
        """Return the rows with their new values.

        Args:
            values: The new values by column: expressions in SQL with the types that Spark gives them.

        Raises:
            Unsupported: as for `hold_deletions`, or so many rows change, or one breaks a rule of the table.
        """
        given = {name: (plain_sql(text), kind) for name, (text, kind) in values.items()}
        used = {path[0] for text, _ in given.values() for path in referenced_columns(text, self.schema)}
        columns = StructType(tuple(field for field in self.schema if field.name in values))
        return self.hold_computed(columns, used, plan_values(self.schema, given))

    def hold_computed(
        self, columns: StructType, used: Collection[str], evaluate: RowValues, test: RowTest | None = None
    ) -> HeldRows:
        """Return the rows with new values that a function computes.

        Args:
            columns: The columns that change, with their types after the change.

        Raises:
            Unsupported: as for `hold_updates`.
        """
        numbers = {key: at for at, key in enumerate(self._keys)}
        schema = pa.schema([*_PLACES, *((field.name, to_arrow(field.type)) for field in columns)])
        parts, size = [schema.empty_table()], 0
        for key, positions, rows in self.matching(used, test):
            new = evaluate(rows)
            if any(not field.nullable and new[field.name].null_count for field in columns):
                raise Unsupported("a required column would be null")
            file, clause = (pa.repeat(pa.scalar(number, pa.int32()), len(rows)) for number in (numbers[key], 0))
            values = (one_array(new[field.name]).cast(to_arrow(field.type)) for field in columns)
            arrays = [file, positions.cast(pa.int64()), clause, *values]
            parts.append(pa.Table.from_arrays(arrays, schema=schema))
            size += parts[-1].nbytes
            if size > HELD_BYTES:
                raise Unsupported(f"the new values have more than {size_text(HELD_BYTES)}")
        return HeldRows(pa.concat_tables(parts).combine_chunks(), self._keys, (ChangeKind.UPDATE,))

    @property
    def _keys(self) -> list[str]:
        return [location_key(uri) for uri in to_uris(file.path for file in self.scan.files)]

    def matching(self, names: Collection[str], also: RowTest | None = None) -> Iterator[tuple[str, pa.Array, pa.Table]]:
        """Yield the key of a file, and some of its rows that match the condition, with their positions.

        Args:
            names: The columns of these rows, in addition to the columns of the condition.

        Raises:
            Unsupported: only Spark can read the files, or evaluate the condition.
        """
        total = sum(file.size_bytes for file in self.scan.files)
        ensure_at_most(total, COPIED_BYTES, "the files that may have such rows")
        test, used = None, {*names}
        if self.where is not None:
            text = plain_sql(self.where)
            test = plan_condition(text, self.schema)
            used |= {path[0] for path in referenced_columns(text, self.schema)}
        # A table without columns would not say how many rows it has.
        fields = tuple(field for field in self.schema if field.name in used) or self.schema.fields[:1]
        files = file_scan(self.source, StructType(fields), find_deleted(self.source, self.scan))
        for key, file in zip(self._keys, to_plain_adds(self.source, self.scan, self.schema), strict=True):
            with as_unsupported(InvalidOption, pa.ArrowException, reason=f"Arrow cannot read {file.path}"):
                for positions, rows in files.read_located(file):
                    chosen = pa.repeat(pa.scalar(True), len(rows)) if test is None else one_array(test(rows))
                    if also is not None:
                        chosen = pc.and_(chosen, also(rows))
                    if pc.any(chosen).as_py():
                        yield key, positions.filter(chosen), rows.filter(chosen)
