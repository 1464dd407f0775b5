"""Decoded records as Arrow columns, without rows in between: nothing converts a value that is already native.

Source: the Arrow format
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from widen.routing.native.column_assembler import ColumnAssembler
from widen.routing.native.record_shape import RecordShape
from widen.routing.native.row_builder import DecodedChunk, RowBuilder


def drain_arrow_batches(builder: RowBuilder, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all texts added since the last call, decoded records first.

    If some decoded records turn out to need the exact path, the others are assembled again without them.

    Args:
        builder: The builder with the texts; afterwards its observation has everything that they hold beyond the
            columns.
        schema: Schema of the rows; columns without values are null.
    """
    chunk = builder.pop_chunk()
    while chunk.records:
        assembler = ColumnAssembler(chunk.positions)
        batch = pa.RecordBatch.from_arrays(_root_arrays(assembler, builder, chunk, schema), schema=schema)
        if not assembler.rejected:
            yield batch
        chunk = builder.finish_chunk(chunk, assembler)
    rows = builder.pop_rows()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _root_arrays(
    assembler: ColumnAssembler, builder: RowBuilder, chunk: DecodedChunk, schema: pa.Schema
) -> list[pa.Array]:
    """Return the arrays of the columns, and of the origin column if the rows have one."""
    origins = builder.origin_column(chunk)
    arrays = _struct(assembler, chunk.shape, chunk.records, [field for field in schema if field.name not in origins])
    places = {name: pa.array(cells, schema.field(name).type) for name, cells in origins.items()}
    return [places[field.name] if field.name in origins else arrays.pop(0) for field in schema]


def _struct(
    assembler: ColumnAssembler,
    shape: RecordShape,
    records: Sequence[Any],
    fields: Sequence[pa.Field],
    roots: Sequence[int] | None = None,
) -> list[pa.Array]:
    """Return the arrays of the fields of a struct; none of its records is null."""
    roots = range(len(records)) if roots is None else roots
    values = assembler.columns(shape, records, roots)
    shapes = {item.name: item.shape for item in shape.single_columns}
    for item in shape.multi_column_fields:
        shapes.update(item.shapes)
    return [_array(assembler, shapes.get(f.name), values.get(f.name), f.type, roots) for f in fields]


def _array(
    assembler: ColumnAssembler,
    shape: RecordShape | None,
    values: list[Any] | None,
    data_type: pa.DataType,
    roots: Sequence[int],
) -> pa.Array:
    if values is None:
        return pa.nulls(len(roots), data_type)
    if shape is None:
        return pa.array([_pairs(value) for value in values] if _has_maps(data_type) else values, data_type)
    if pa.types.is_list(data_type):
        return _lists(assembler, shape, values, data_type, roots)
    return _records(assembler, shape, values, data_type, roots)


def _has_maps(data_type: pa.DataType) -> bool:
    return pa.types.is_map(data_type) or (pa.types.is_list(data_type) and _has_maps(data_type.value_type))


def _pairs(value: Any) -> Any:
    """Return a value with every map in it as pairs, which pyarrow needs."""
    if isinstance(value, dict):
        return list(value.items())
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _lists(
    assembler: ColumnAssembler, shape: RecordShape, values: list[Any], data_type: pa.ListType, roots: Sequence[int]
) -> pa.Array:
    offsets: list[int | None] = []
    end = 0
    for items in values:
        offsets.append(None if items is None else end)
        end += 0 if items is None else len(items)
    offsets.append(end)
    inner = list(chain.from_iterable(items for items in values if items is not None))
    inner_roots = [root for root, items in zip(roots, values, strict=True) if items for _ in items]
    array = _array(assembler, shape, inner, data_type.value_type, inner_roots)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), array, type=data_type)


def _records(
    assembler: ColumnAssembler, shape: RecordShape, values: list[Any], data_type: pa.StructType, roots: Sequence[int]
) -> pa.Array:
    fields = list(data_type)
    places = [at for at, record in enumerate(values) if record is not None]
    if len(places) == len(values):
        return pa.StructArray.from_arrays(_struct(assembler, shape, values, fields, roots), fields=fields)
    present = [values[at] for at in places]
    arrays = _struct(assembler, shape, present, fields, [roots[at] for at in places])
    array = pa.StructArray.from_arrays(arrays, fields=fields)
    indices: list[int | None] = [None] * len(values)
    for index, at in enumerate(places):
        indices[at] = index
    return array.take(pa.array(indices, pa.int64()))
