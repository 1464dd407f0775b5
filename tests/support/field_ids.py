"""Data files whose columns have the right field ids and the names of other columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.protocol.actions import Add

_ARROW = {"integer": pa.int32(), "long": pa.int64(), "string": pa.string()}


def add_shuffled_file(
    place: str, rows: Sequence[tuple[Any, ...]], name: str, *, ids: bool = True, suffix: str = ""
) -> None:
    """Commit a file in which every column of a struct has the physical name of the next one, and its own id.

    Args:
        place: Where the table is.
        rows: The rows of the file.
        name: The name of the file.
        ids: Whether the columns have ids; without them they keep their own names.
        suffix: Appended to every name, so that no column has the name of another one.
    """
    store = LogStore(place)
    snapshot = open_snapshot(store)
    table = pa.schema(_shuffled(snapshot.schema, ids=ids, suffix=suffix))
    columns = [pa.array(list(column), field.type) for column, field in zip(zip(*rows, strict=True), table, strict=True)]
    path = Path(place, name)
    pq.write_table(pa.Table.from_arrays(columns, schema=table), path, row_group_size=1)
    add = Add(
        path=name,
        partition_values={},
        size=path.stat().st_size,
        modification_time=path.stat().st_mtime_ns // 1_000_000,
        data_change=True,
        stats=f'{{"numRecords":{len(rows)}}}',
    )
    commit(store, snapshot, [add], "WRITE", {}).or_raise()


def _shuffled(struct: StructType, *, ids: bool, suffix: str) -> list[pa.Field]:
    fields = list(struct)
    return [_field(field, fields[at - 1], ids=ids, suffix=suffix) for at, field in enumerate(fields)]


def _field(field: Field, named: Field, *, ids: bool, suffix: str) -> pa.Field:
    name = (named if ids else field).metadata["delta.columnMapping.physicalName"] + suffix
    number = {"PARQUET:field_id": str(field.metadata["delta.columnMapping.id"])} if ids else None
    return pa.field(name, _type(field.type, ids=ids, suffix=suffix), metadata=number)


def _type(data_type: DataType, *, ids: bool, suffix: str) -> pa.DataType:
    match data_type:
        case StructType():
            return pa.struct(_shuffled(data_type, ids=ids, suffix=suffix))
        case ArrayType(element):
            return pa.list_(_type(element, ids=ids, suffix=suffix))
        case MapType(key, value):
            return pa.map_(_type(key, ids=ids, suffix=suffix), _type(value, ids=ids, suffix=suffix))
    return _ARROW[str(data_type)]
