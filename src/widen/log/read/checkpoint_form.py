"""The form that the columns of a checkpoint must have, checked before any of them is read.

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
"""How much a row group may unpack into: so many bytes, or so many times the size of the file."""


def ensure_form(path: str, file: pq.ParquetFile, size_bytes: int) -> None:
    """Check that the columns have the types of actions, and that they do not claim to unpack into too much memory.

    Raises:
        CorruptLog: they have not, or do.
    """
    schema, metadata = file.schema_arrow, file.metadata
    for column, fields in _FORM.items():
        if column not in schema.names:
            continue
        found = schema.field(column).type
        if not pa.types.is_struct(found):
            raise corrupt_log(path, f"column {column} is {found}, not a struct")
        for field in found:
            if field.name in fields and not fields[field.name](field.type):
                raise corrupt_log(path, f"column {column}.{field.name} cannot be {field.type}")
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    claimed = max((_claimed_bytes(group) for group in groups), default=0)
    if claimed > max(_UNPACKED_BYTES, size_bytes * _UNPACKED_RATIO):
        raise corrupt_log(path, f"it has {size_bytes} bytes and claims to unpack into {claimed}")


def _claimed_bytes(group: Any) -> int:
    return sum(abs(group.column(number).total_uncompressed_size) for number in range(group.num_columns))


def _is_vector(found: pa.DataType) -> bool:
    names = {field.name: field.type for field in found} if pa.types.is_struct(found) else {}
    texts, numbers = DELETION_VECTOR_KEYS[:2], DELETION_VECTOR_KEYS[2:]
    are_texts = all(name in names and _is_text(names[name]) for name in texts)
    return are_texts and all(name in names and pa.types.is_integer(names[name]) for name in numbers)


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def _is_text_map(found: pa.DataType) -> bool:
    return bool(pa.types.is_map(found)) and _is_text(found.key_type) and _is_text(found.item_type)


_FILE_FORM: Mapping[str, Callable[[pa.DataType], bool]] = {
    "path": _is_text,
    "partitionValues": _is_text_map,
    "size": pa.types.is_integer,
    "modificationTime": pa.types.is_integer,
    "stats": _is_text,
    "deletionVector": _is_vector,
    "baseRowId": pa.types.is_integer,
    "defaultRowCommitVersion": pa.types.is_integer,
    "tags": _is_text_map,
    "clusteringProvider": _is_text,
    "stats_parsed": pa.types.is_struct,
}
_FORM: Mapping[str, Mapping[str, Callable[[pa.DataType], bool]]] = {
    "add": _FILE_FORM,
    "remove": _FILE_FORM,
    **{column: {} for column in ("protocol", "metaData", "txn", "domainMetadata", "sidecar", "checkpointMetadata")},
}
"""The columns of a checkpoint, and which types their fields may have; others are not looked at.

Source: PROTOCOL.md#checkpoint-schema
"""
