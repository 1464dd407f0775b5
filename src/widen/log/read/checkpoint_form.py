"""Checks of a checkpoint before any of its columns is read: their types, and the memory that they claim.

Source: PROTOCOL.md#checkpoint-schema
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from widen.log.read.commit_lines import corrupt_log
from widen.log.read.file_list import DELETION_VECTOR_KEYS

_UNPACKED_BYTES, _UNPACKED_RATIO = 1 << 28, 1000
"""A row group may unpack into the larger of this many bytes and this many times the size of the file. A damaged or
hostile footer can claim any size, and Arrow would try to allocate it."""


def ensure_form(path: str, file: pq.ParquetFile, size_bytes: int) -> None:
    """Check that the columns have the types of actions, and do not claim to unpack into too much memory.

    Raises:
        CorruptLog: a column has another type, or a row group claims too much memory.
    """
    schema, metadata = file.schema_arrow, file.metadata
    for column, fields in _FORM.items():
        if column not in schema.names:
            continue
        column_type = schema.field(column).type
        if not pa.types.is_struct(column_type):
            raise corrupt_log(path, f"column {column} is {column_type}, not a struct")
        for field in column_type:
            if field.name in fields and not fields[field.name](field.type):
                raise corrupt_log(path, f"column {column}.{field.name} cannot be {field.type}")
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    claimed = max((_claimed_bytes(group) for group in groups), default=0)
    if claimed > max(_UNPACKED_BYTES, size_bytes * _UNPACKED_RATIO):
        raise corrupt_log(path, f"it has {size_bytes} bytes and claims to unpack into {claimed}")


def _claimed_bytes(group: Any) -> int:
    return sum(abs(group.column(number).total_uncompressed_size) for number in range(group.num_columns))


def _is_vector(data_type: pa.DataType) -> bool:
    names = {field.name: field.type for field in data_type} if pa.types.is_struct(data_type) else {}
    strings, numbers = DELETION_VECTOR_KEYS[:2], DELETION_VECTOR_KEYS[2:]
    are_strings = all(name in names and _is_string(names[name]) for name in strings)
    return are_strings and all(name in names and pa.types.is_integer(names[name]) for name in numbers)


def _is_string(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _is_string_map(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_map(data_type)) and _is_string(data_type.key_type) and _is_string(data_type.item_type)


_FILE_FORM: Mapping[str, Callable[[pa.DataType], bool]] = {
    "path": _is_string,
    "partitionValues": _is_string_map,
    "size": pa.types.is_integer,
    "modificationTime": pa.types.is_integer,
    "stats": _is_string,
    "deletionVector": _is_vector,
    "baseRowId": pa.types.is_integer,
    "defaultRowCommitVersion": pa.types.is_integer,
    "tags": _is_string_map,
    "clusteringProvider": _is_string,
    "stats_parsed": pa.types.is_struct,
}
_FORM: Mapping[str, Mapping[str, Callable[[pa.DataType], bool]]] = {
    "add": _FILE_FORM,
    "remove": _FILE_FORM,
    **{column: {} for column in ("protocol", "metaData", "txn", "domainMetadata", "sidecar", "checkpointMetadata")},
}
"""The columns of a checkpoint and the types that their fields may have. Other fields are not checked.

Source: PROTOCOL.md#checkpoint-schema
"""
