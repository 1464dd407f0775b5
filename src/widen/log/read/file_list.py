"""The list of files as an Arrow table: its columns, and conversions from and to actions.

Source: PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate

import msgspec
import pyarrow as pa

from widen.log.read.canonical_path import canonical_path, canonical_paths, vector_id
from widen.model.lazy_module import import_lazily
from widen.protocol.actions import Add, DeletionVector, Remove

pc = import_lazily("pyarrow.compute")

TEXT_MAP = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline_dv", pa.string()),
        ("offset", pa.int32()),
        ("size_in_bytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("partition_values", TEXT_MAP),
        ("size_bytes", pa.int64()),
        ("modification_time_ms", pa.int64()),
        ("stats", pa.string()),
        ("deletion_vector", DELETION_VECTOR),
        ("base_row_id", pa.int64()),
        ("default_row_commit_version", pa.int64()),
        ("tags", TEXT_MAP),
        ("clustering_provider", pa.string()),
    ]
)
"""The columns of a file list. ``path`` is percent-encoded as in the action; ``stats`` is JSON text."""

_KEYS = {
    "path": "path",
    "partition_values": "partitionValues",
    "size_bytes": "size",
    "modification_time_ms": "modificationTime",
    "stats": "stats",
    "deletion_vector": "deletionVector",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "tags": "tags",
    "clustering_provider": "clusteringProvider",
}
DELETION_VECTOR_KEYS = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
STORED_VECTOR = pa.struct(
    [pa.field(key, field.type) for key, field in zip(DELETION_VECTOR_KEYS, DELETION_VECTOR, strict=True)]
)
"""A deletion vector descriptor with its keys on disk."""

BLOCK_ROWS = 1 << 14


@contextmanager
def use_system_allocator() -> Iterator[None]:
    """Let Arrow use the allocator of the system while the block runs.

    Arrow's own allocators keep freed memory for later. Reading a log frees many batches, so the process would stay
    about twice as large as the file list needs.
    """
    default = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(default)


def key_of(column: str) -> str:
    """Return the key of an add action that holds a column of the list."""
    return _KEYS[column]


@cache
def _null_block(data_type: pa.DataType) -> pa.Array:
    return pa.nulls(BLOCK_ROWS, data_type)


def null_column(data_type: pa.DataType, count: int) -> pa.Array:
    """Return a column of nulls; short ones share one block of memory."""
    if count <= BLOCK_ROWS:
        return _null_block(data_type).slice(0, count)
    return pa.nulls(count, data_type)


def text_map(names: Sequence[str], values: Sequence[pa.Array], count: int) -> pa.Array:
    """Return a column of maps that all have the same keys.

    Args:
        values: The column of strings of each key.
    """
    width = len(names)
    if width == 1:
        return pa.MapArray.from_arrays(_offsets(1, count), _repeat(names[0], count), values[0])
    joined = pa.concat_arrays(values) if width else _null_block(pa.string()).slice(0, 0)
    order = integers(row + column * count for row in range(count) for column in range(width))
    return pa.MapArray.from_arrays(_offsets(width, count), _cycle(names, count), joined.take(order))


def integers(values: Iterable[int]) -> pa.Array:
    """Return a column of integers; `pyarrow.array` would load pandas, which costs more than the replay of a log."""
    numbers = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _cycle(strings: Sequence[str], count: int) -> pa.Array:
    """Return the strings in order, ``count`` times; built from buffers for the reason given in `integers`."""
    data = [text.encode() for text in strings]
    offsets = array("i", accumulate((len(text) for _ in range(count) for text in data), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data) * count)]
    return pa.Array.from_buffers(pa.string(), len(strings) * count, buffers)


@cache
def _offset_block(width: int, count: int) -> pa.Array:
    offsets = array("i", [row * width for row in range(count + 1)])
    return pa.Array.from_buffers(pa.int32(), count + 1, [None, pa.py_buffer(offsets)])


def _offsets(width: int, count: int) -> pa.Array:
    block = _offset_block(width, BLOCK_ROWS) if count <= BLOCK_ROWS else _offset_block.__wrapped__(width, count)
    return block.slice(0, count + 1)


@cache
def _repeated_block(text: str, count: int) -> pa.Array:
    data = text.encode()
    offsets = array("i", [row * len(data) for row in range(count + 1)])
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data * count)])


def _repeat(text: str, count: int) -> pa.Array:
    block = _repeated_block(text, BLOCK_ROWS) if count <= BLOCK_ROWS else _repeated_block.__wrapped__(text, count)
    return block.slice(0, count)


def file_rows(columns: dict[str, pa.Array], count: int) -> pa.RecordBatch:
    """Return rows of the list; a missing or all-null column shares memory."""
    arrays = []
    for field in FILES:
        column = columns.get(field.name)
        if column is None or column.null_count == count:
            column = null_column(field.type, count)
        elif column.type != field.type:
            column = column.cast(field.type)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=FILES)


def from_adds(adds: Sequence[Add]) -> pa.RecordBatch:
    """Return the rows of add actions, in the same order."""
    return file_rows(
        {
            "path": pa.array([a.path for a in adds], pa.string()),
            "partition_values": pa.array([list(a.partition_values.items()) for a in adds], TEXT_MAP),
            "size_bytes": pa.array([a.size for a in adds], pa.int64()),
            "modification_time_ms": pa.array([a.modification_time for a in adds], pa.int64()),
            "stats": pa.array([a.stats for a in adds], pa.string()),
            "deletion_vector": pa.array([_vector(a.deletion_vector) for a in adds], DELETION_VECTOR),
            "base_row_id": pa.array([a.base_row_id for a in adds], pa.int64()),
            "default_row_commit_version": pa.array([a.default_row_commit_version for a in adds], pa.int64()),
            "tags": pa.array([None if a.tags is None else list(a.tags.items()) for a in adds], TEXT_MAP),
            "clustering_provider": pa.array([a.clustering_provider for a in adds], pa.string()),
        },
        len(adds),
    )


def _vector(vector: DeletionVector | None) -> dict[str, object] | None:
    return None if vector is None else msgspec.structs.asdict(vector)


def to_adds(files: pa.Table) -> list[Add]:
    """Return the rows of a list as add actions, in the same order; fields that the list does not keep are lost."""
    return [
        Add(
            path=row["path"],
            partition_values=dict(row["partition_values"] or ()),
            size=row["size_bytes"],
            modification_time=row["modification_time_ms"],
            data_change=True,
            stats=row["stats"],
            tags=None if row["tags"] is None else dict(row["tags"]),
            deletion_vector=None if row["deletion_vector"] is None else DeletionVector(**row["deletion_vector"]),
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
            clustering_provider=row["clustering_provider"],
        )
        for row in files.to_pylist()
    ]


def to_remove(add: Add, now_ms: int, *, data_change: bool) -> Remove:
    """Return the action that removes a file from the table, with all metadata of the file.

    Args:
        data_change: Whether rows are lost that no other file of the commit holds.

    Source: PROTOCOL.md#add-file-and-remove-file
    """
    return Remove(
        path=add.path,
        data_change=data_change,
        deletion_timestamp=now_ms,
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        base_row_id=add.base_row_id,
        default_row_commit_version=add.default_row_commit_version,
    )


def file_key(path: str, vector: DeletionVector | None, location: str = "") -> str:
    """Return the unique key of a logical file: its path and the id of its deletion vector.

    Source: PROTOCOL.md#action-reconciliation
    """
    key = canonical_path(path, location)
    if vector is None:
        return key
    return f"{key}\n{vector_id(vector.storage_type, vector.path_or_inline_dv, vector.offset, location)}"


def file_keys(paths: pa.Array, vectors: pa.Array, location: str = "") -> list[str]:
    """Return `file_key` for every row.

    Args:
        paths: A column of strings without nulls.
        vectors: A struct column that begins with storage type, path or inline data, and offset; names do not matter.
    """
    keys = canonical_paths(paths, location)
    if vectors.null_count < len(vectors):
        kinds, paths_or_data, offsets = (vectors.field(i).to_pylist() for i in range(3))
        for row, is_valid in enumerate(vectors.is_valid().to_pylist()):
            if is_valid:
                keys[row] += "\n" + vector_id(kinds[row], paths_or_data[row], offsets[row], location)
    return keys


def concat_files(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """Concatenate batches into one list."""
    return pa.Table.from_batches(list(batches), FILES)


def filter_rows(rows: pa.RecordBatch, keep: Sequence[bool]) -> pa.RecordBatch:
    """Return the rows for which ``keep`` is true."""
    if all(keep):
        return rows
    mask = pa.Array.from_buffers(pa.uint8(), len(keep), [None, pa.py_buffer(bytes(keep))])
    kept = pc.filter(rows, mask.cast(pa.bool_()))
    return file_rows({name: kept.column(name) for name in FILES.names}, kept.num_rows)
