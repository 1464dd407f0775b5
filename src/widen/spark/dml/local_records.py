"""Records of a batch and rows of a table in full, with Arrow: which are the same, and records on top of rows.

Source: docs/guide/keys.md#missing
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.protocol.actions import Add
from widen.schema.source_metadata import RESCUED, role_field, role_of, source_key
from widen.spark.arrow_types import count_up
from widen.spark.read.local_rows import LocalScan, NotLocal

LOCAL_BYTES = 512 * 2**20
"""The size of the files up to which this process reads them; above it tasks do."""

_MOST_RECORDS = 16
"""The number of partial records of a key up to which they are put on top of each other here, all keys at a time."""

_ENCODED_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Places:
    """Records of some files, each by the number of its file and its position there."""

    adds: Sequence[Add]
    file: pa.Array
    position: pa.Array

    def read(self, scan: LocalScan) -> pa.Table:
        """Return the records, in the order of the places.

        Raises:
            NotLocal: they are in too many files, or only Spark can read a file exactly.
            InvalidOption: Arrow does not have a type.
        """
        numbers = pc.unique(self.file).to_pylist()
        if sum(self.adds[number].size for number in numbers) > LOCAL_BYTES:
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
    """Return whether rows surely have the same values, each one those of the other in its place."""
    return len(one) == len(other) and all(map(operator.eq, _encode(one), _encode(other)))


def _encode(rows: pa.Table) -> Iterator[bytes]:
    """Yield rows as bytes. Unlike a comparison of values, they tell a zero from one with a sign."""
    for batch in rows.combine_chunks().to_batches(_ENCODED_ROWS):
        yield batch.serialize().to_pybytes()


# Partial records: the same rules as in `widen.spark.dml.keyed_changes`.


def can_merge(schema: StructType) -> bool:
    """Return whether partial records are put on top of rows here: not the entries of maps, and not what is rescued."""
    return role_field(schema, RESCUED) is None and not any(_has_map(each.type) for each in schema)


def _has_map(data_type: DataType) -> bool:
    match data_type:
        case MapType():
            return True
        case StructType(fields):
            return any(_has_map(each.type) for each in fields)
        case ArrayType():  # replaced as a whole
            return False
    return False


def put_on_rows(rows: pa.Table, records: pa.Table, number: pa.Array, schema: StructType) -> pa.Table:
    """Return rows with records on top of them, one after another.

    Args:
        rows: With nulls where there was no row.
        records: In the order of the rows, those of a row from the oldest to the newest.
        number: Of each record that of its row.
        schema: The columns of both, which may have other names.

    Raises:
        NotLocal: a row has many records.
    """
    count = len(number)
    every = count_up(count)
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(number[1:], number[:-1])])
    first = every.filter(is_first).take(pc.index_in(number, value_set=pc.unique(number)))
    rank = pc.subtract(every, first)
    most = pc.max(rank).as_py() + 1
    if most > _MOST_RECORDS:
        raise NotLocal("a key has many partial records")
    places = count_up(len(rows))
    for each in range(most):
        chosen = pc.equal(rank, each)
        own = number.filter(chosen)
        merged = _merge(rows.take(own), records.filter(chosen), schema)
        at = pc.index_in(places, value_set=own)
        at = pc.if_else(at.is_valid(), pc.add(at.cast(pa.int64()), len(rows)), places)
        rows = pa.concat_tables([rows, merged]).combine_chunks().take(at)
    return rows


def _merge(old: pa.Table, new: pa.Table, schema: StructType) -> pa.Table:
    before, after = ([_one(column) for column in each.columns] for each in (old, new))
    return pa.Table.from_arrays(_merge_fields(before, after, schema.fields), schema=old.schema)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _merge_fields(old: Sequence[pa.Array], new: Sequence[pa.Array], fields: Sequence[Field]) -> list[pa.Array]:
    """Return the columns of records on top of rows. The columns of one field are one value."""
    present: dict[str, pa.Array] = {}
    names = [each.name if role_of(each) else source_key(each) for each in fields]
    for name, column in zip(names, new, strict=True):
        is_valid = column.is_valid()
        present[name] = pc.or_(present[name], is_valid) if name in present else is_valid
    columns = zip(names, old, new, fields, strict=True)
    return [_choose(present[name], _merge_values(was, now, each.type), was) for name, was, now, each in columns]


def _merge_values(old: pa.Array, new: pa.Array, data_type: DataType) -> pa.Array:
    if not isinstance(data_type, StructType):
        return new
    inner = _merge_fields(old.flatten(), new.flatten(), data_type.fields)
    are_both = pc.and_(old.is_valid(), new.is_valid())
    merged = pa.StructArray.from_arrays(inner, fields=list(new.type), mask=pc.invert(are_both))
    return _choose(are_both, merged, new)


def _choose(is_left: pa.Array, left: pa.Array, right: pa.Array) -> pa.Array:
    """Return values of one side or the other; unlike `if_else`, of every type."""
    places = count_up(len(left))
    return pa.concat_arrays([left, right]).take(pc.if_else(is_left, places, pc.add(places, len(left))))
