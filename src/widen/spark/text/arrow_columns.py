"""Decoded records as Arrow columns, without rows in between: nothing converts a value that is already native.

Source: the Arrow format
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import accumulate, chain
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.routing.native.column_assembler import ColumnAssembler
from widen.routing.native.record_shape import RecordShape
from widen.routing.native.row_builder import DecodedChunk, OriginColumn, RowBuilder


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
        # Making the columns is what finds the rejected records, so they are known only afterwards.
        batch = pa.RecordBatch.from_arrays(_root_arrays(assembler, builder, chunk, schema), schema=schema)
        if not assembler.rejected:
            yield batch
        chunk = builder.finish_chunk(chunk, assembler)
    rows = builder.pop_rows()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def observe_chunk(builder: RowBuilder) -> None:
    """Observe all texts added since the last call like `drain_arrow_batches`, but make no rows of them."""
    chunk = builder.pop_chunk()
    while chunk.records:
        assembler = ColumnAssembler(chunk.positions)
        assembler.observe(chunk.shape, chunk.records, range(len(chunk.records)))
        chunk = builder.finish_chunk(chunk, assembler)
    builder.pop_rows()


def _root_arrays(
    assembler: ColumnAssembler, builder: RowBuilder, chunk: DecodedChunk, schema: pa.Schema
) -> list[pa.Array]:
    """Return the arrays of the columns, and of the origin column if the rows have one."""
    arrays = _struct(assembler, chunk.shape, chunk.records, list(schema))
    if builder.origin is not None:
        at = schema.get_field_index(builder.origin.column)
        is_wanted = _has_origin(builder.origin, dict(zip(schema.names, arrays, strict=True)), len(chunk.records))
        if any(is_wanted):
            arrays[at] = pa.array(builder.origin_cells(chunk, is_wanted), schema.field(at).type)
    return arrays


def _has_origin(origin: OriginColumn, columns: Mapping[str, pa.Array], rows: int) -> list[bool]:
    """Tell for each row whether it has the origin column."""
    if origin.is_for_all:
        return [True] * rows
    masks = [
        pc.is_in(columns[name], value_set=pa.array(texts, columns[name].type)) for name, texts in origin.values.items()
    ]
    return reduce(pc.or_, masks).to_pylist() if masks else []


def _struct(
    assembler: ColumnAssembler,
    shape: RecordShape,
    records: Sequence[Any],
    fields: Sequence[pa.Field],
    roots: Sequence[int] | None = None,
) -> list[pa.Array]:
    """Return the arrays of the fields of a struct; none of its records is null.

    Args:
        assembler: Turns the records into columns.
        roots: For each record, the index of the record of the chunk that it is a part of; None if these are the records
            of the chunk, or if nothing below needs routing.
    """
    values = assembler.columns(shape, records, range(len(records)) if roots is None else roots)
    shapes = {item.name: item.shape for item in shape.single_columns}
    for item in shape.multi_column_fields:
        shapes.update(item.shapes)
    return [
        _array(assembler, shapes.get(field.name), values[field.name], field.type, roots)
        if field.name in values
        else pa.nulls(len(records), field.type)
        for field in fields
    ]


def _array(
    assembler: ColumnAssembler,
    shape: RecordShape | None,
    values: list[Any],
    data_type: pa.DataType,
    roots: Sequence[int] | None,
) -> pa.Array:
    if shape is None:
        return _leaves(values, data_type)
    if pa.types.is_list(data_type):
        return _lists(assembler, shape, values, data_type, roots)
    return _records(assembler, shape, values, data_type, roots)


def _leaves(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return the array of values without records. Most columns have a value in each record, so the others are only
    looked for where Arrow finds one that it cannot take.
    """
    if _has_maps(data_type):
        values = list(map(_pairs, values))
    try:
        return pa.array(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(_without_unset(values), data_type)


def _without_unset(values: list[Any]) -> list[Any]:
    return [None if value is msgspec.UNSET else value for value in values]


def _has_maps(data_type: pa.DataType) -> bool:
    return pa.types.is_map(data_type) or (pa.types.is_list(data_type) and _has_maps(data_type.value_type))


def _pairs(value: Any) -> Any:
    """Return a value with every map in it as pairs, which pyarrow needs."""
    if isinstance(value, dict):
        return list(value.items())
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _lists(
    assembler: ColumnAssembler,
    shape: RecordShape,
    values: list[Any],
    data_type: pa.ListType,
    roots: Sequence[int] | None,
) -> pa.Array:
    present = values if set(map(type, values)) == {list} else [items for items in values if isinstance(items, list)]
    inner = list(chain.from_iterable(present))
    inner_roots = None
    if shape.needs_routing:
        lists = zip(range(len(values)) if roots is None else roots, values, strict=True)
        inner_roots = [root for root, items in lists if isinstance(items, list) for _ in items]
    array = _array(assembler, shape, inner, data_type.value_type, inner_roots)
    return pa.ListArray.from_arrays(_offsets(values, present), array, type=data_type)


def _offsets(values: list[Any], present: list[list[Any]]) -> pa.Array:
    """Return where each list begins, null for a value that is not a list, and where the last one ends."""
    ends = accumulate(map(len, present), initial=0)
    if len(present) == len(values):
        return pa.array(ends, pa.int32(), size=len(values) + 1)
    ends_of_lists = list(ends)
    places = iter(ends_of_lists)
    starts = [next(places) if isinstance(items, list) else None for items in values]
    return pa.array([*starts, ends_of_lists[-1]], pa.int32())


def _records(
    assembler: ColumnAssembler,
    shape: RecordShape,
    values: list[Any],
    data_type: pa.StructType,
    roots: Sequence[int] | None,
) -> pa.Array:
    fields, python_types = list(data_type), set(map(type, values))
    if shape.struct not in python_types:
        return pa.nulls(len(values), data_type)
    if len(python_types) == 1:
        return pa.StructArray.from_arrays(_struct(assembler, shape, values, fields, roots), fields=fields)
    places = [at for at, record in enumerate(values) if type(record) is shape.struct]
    present, present_roots = [values[at] for at in places], places if roots is None else [roots[at] for at in places]
    arrays = _struct(assembler, shape, present, fields, present_roots)
    array = pa.StructArray.from_arrays(arrays, fields=fields)
    indices: list[int | None] = [None] * len(values)
    for index, at in enumerate(places):
        indices[at] = index
    # Arrow takes a null index for a null record.
    return array.take(pa.array(indices, pa.int64()))
