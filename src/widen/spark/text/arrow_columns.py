"""Decoded records as Arrow columns, without a row in between.

Source: the Arrow format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from widen.routing.native.column_assembler import ColumnAssembler
from widen.routing.native.record_shape import RecordShape
from widen.routing.native.row_builder import DecodedChunk, RowBuilder


def drain_arrow_batches(maker: RowBuilder, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all texts that were taken since the last time, those that were decoded natively first.

    Args:
        maker: What took the texts; afterwards it has observed everything that they hold beyond the columns.
        schema: Of the columns of the table; others are null.
    """
    lot = maker.decoded()
    while lot.records:
        spread = ColumnAssembler(lot.places)
        batch = pa.RecordBatch.from_arrays(_top(spread, maker, lot, schema), schema=schema)
        if not spread.refused:
            yield batch
        lot = maker.settled(lot, spread)
    rows = maker.rows()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _top(spread: ColumnAssembler, maker: RowBuilder, lot: DecodedChunk, schema: pa.Schema) -> list[pa.Array]:
    """Return the arrays of the columns, and of the one that says what the rows are made of, if there is such a one."""
    told = maker.origins(lot)
    arrays = _struct(spread, lot.shape, lot.records, [field for field in schema if field.name not in told])
    places = {name: pa.array(cells, schema.field(name).type) for name, cells in told.items()}
    return [places[field.name] if field.name in told else arrays.pop(0) for field in schema]


def _struct(
    spread: ColumnAssembler,
    node: RecordShape,
    records: Sequence[Any],
    fields: Sequence[pa.Field],
    roots: Sequence[int] | None = None,
) -> list[pa.Array]:
    """Return the arrays of the fields of a struct, of which no record is null."""
    roots = range(len(records)) if roots is None else roots
    values = spread.columns(node, records, roots)
    nodes = {item.name: item.node for item in node.plain}
    for item in node.forked:
        nodes.update(item.nodes)
    return [_array(spread, nodes.get(f.name), values.get(f.name), f.type, roots) for f in fields]


def _array(
    spread: ColumnAssembler,
    node: RecordShape | None,
    values: list[Any] | None,
    data_type: pa.DataType,
    roots: Sequence[int],
) -> pa.Array:
    if values is None:
        return pa.nulls(len(roots), data_type)
    if node is None:
        return pa.array([_pairs(value) for value in values] if _has_maps(data_type) else values, data_type)
    if pa.types.is_list(data_type):
        return _lists(spread, node, values, data_type, roots)
    return _records(spread, node, values, data_type, roots)


def _has_maps(data_type: pa.DataType) -> bool:
    return pa.types.is_map(data_type) or (pa.types.is_list(data_type) and _has_maps(data_type.value_type))


def _pairs(value: Any) -> Any:
    """Return a value of maps, and of arrays of them, with every map as its pairs."""
    if isinstance(value, dict):
        return list(value.items())
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _lists(
    spread: ColumnAssembler, node: RecordShape, values: list[Any], data_type: pa.ListType, roots: Sequence[int]
) -> pa.Array:
    offsets: list[int | None] = []
    end = 0
    for items in values:
        offsets.append(None if items is None else end)
        end += 0 if items is None else len(items)
    offsets.append(end)
    inner = list(chain.from_iterable(items for items in values if items is not None))
    inner_roots = [root for root, items in zip(roots, values, strict=True) if items for _ in items]
    array = _array(spread, node, inner, data_type.value_type, inner_roots)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array, type=data_type)


def _records(
    spread: ColumnAssembler, node: RecordShape, values: list[Any], data_type: pa.StructType, roots: Sequence[int]
) -> pa.Array:
    fields = list(data_type)
    places = [at for at, record in enumerate(values) if record is not None]
    if len(places) == len(values):
        return pa.StructArray.from_arrays(_struct(spread, node, values, fields, roots), fields=fields)
    there = [values[at] for at in places]
    arrays = _struct(spread, node, there, fields, [roots[at] for at in places])
    found = pa.StructArray.from_arrays(arrays, fields=fields)
    indices: list[int | None] = [None] * len(values)
    for index, at in enumerate(places):
        indices[at] = index
    return found.take(pa.array(indices, pa.int64()))
