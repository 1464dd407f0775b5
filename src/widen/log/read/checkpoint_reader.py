"""Read checkpoints: classic, multi-part, and V2 with sidecars, from Parquet or JSON.

Only the requested columns are read, in small batches. A column that a file lacks is null.

Source: PROTOCOL.md#checkpoints
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from widen.errors.foreign import first_line
from widen.log.read.canonical_path import canonical_path
from widen.log.read.checkpoint_form import ensure_form
from widen.log.read.commit_lines import NonFileAction, corrupt_log, decode_commit, read_non_file_actions
from widen.log.read.file_list import FILES, TEXT_MAP, file_rows, key_of, use_system_allocator
from widen.log.read.line_blocks import FileActionReader, LogPiece, split_into_pieces, vector_column
from widen.log.read.log_segment import SIDECARS, Checkpoint
from widen.log.read.stats_columns import INT96, to_json_text
from widen.log.store.log_store import FileEntry, LogStore
from widen.model.lazy_module import import_lazily
from widen.protocol.actions import Remove, Sidecar

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = import_lazily("pyarrow.parquet")

_BATCH_ROWS = 4096
_BUFFER_BYTES = 1 << 16
_REMOTE_BUFFER_BYTES = 1 << 22
_UNREADABLE = (pa.ArrowException, KeyError, TypeError, ValueError, OSError, OverflowError, MemoryError, RecursionError)
"""What Arrow raises for a damaged file, depending on where the damage is."""

_T = TypeVar("_T")


def read_live_files(store: LogStore, checkpoint: Checkpoint, partitions: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the live files of a checkpoint as rows of `widen.log.read.file_list.FILES`.

    Args:
        partitions: The physical names of the partition columns.

    Source: PROTOCOL.md#checkpoint-schema
    """
    for path in _file_action_paths(store, checkpoint):
        if path.endswith(".json"):
            for block in split_into_pieces([LogPiece(path, store.read(path))]):
                yield from FileActionReader(partitions, store.location).read(block).adds
        else:
            with _open_parquet(store, path) as file:
                yield from _add_batches(path, file)


def read_removes(store: LogStore, checkpoint: Checkpoint) -> Iterator[Remove]:
    """Yield the remove actions (tombstones) of a checkpoint."""
    for path in _file_action_paths(store, checkpoint):
        if path.endswith(".json"):
            yield from (line.remove for line in decode_commit(path, store.read(path)) if line.remove is not None)
        else:
            with _open_parquet(store, path) as file:
                yield from (_convert(path, row["remove"], Remove) for row in _rows(file, "remove"))


def checkpoint_non_file_actions(store: LogStore, checkpoint: Checkpoint, *keys: str) -> Iterator[NonFileAction]:
    """Yield the actions with these keys, e.g. ``metaData``, in no particular order; file actions are not read."""
    for entry in checkpoint.files:
        if entry.path.endswith(".json"):
            yield from read_non_file_actions(entry.path, store.read(entry.path), *keys)
            continue
        with use_system_allocator(), _open_parquet(store, entry.path) as file:
            rows = list(_rows(file, *keys))
        yield from (_convert(entry.path, row, NonFileAction) for row in rows)


def read_sidecars(store: LogStore, entry: FileEntry) -> list[Sidecar]:
    """Return the sidecars that a checkpoint file names; only V2 checkpoints have any.

    Raises:
        CorruptLog: the file is missing or damaged.

    Source: PROTOCOL.md#sidecar-files
    """
    if entry.path.endswith(".json"):
        lines = decode_commit(entry.path, store.read(entry.path))
        return [line.sidecar for line in lines if line.sidecar is not None]
    with _open_parquet(store, entry.path) as file:
        return [_convert(entry.path, row["sidecar"], Sidecar) for row in _rows(file, "sidecar")]


def _file_action_paths(store: LogStore, checkpoint: Checkpoint) -> Iterator[str]:
    for entry in checkpoint.files:
        yield entry.path
        for sidecar in read_sidecars(store, entry):
            yield _sidecar_path(store, entry, sidecar.path)


def _sidecar_path(store: LogStore, entry: FileEntry, path: str) -> str:
    """Return the path of a sidecar in the table, given its file name or an absolute path.

    Source: PROTOCOL.md#sidecar-files
    """
    canonical = canonical_path(path, store.location)
    name = canonical.removeprefix(f"{SIDECARS}/")
    if not name or "/" in name or name in (".", ".."):
        raise corrupt_log(entry.path, f"its sidecar {path!r} is not in {SIDECARS}")
    return f"{SIDECARS}/{name}"


@contextmanager
def _open_parquet(store: LogStore, path: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; errors while it is read become `CorruptLog` with its path."""
    with store.open(path) as source:
        try:
            buffer_bytes = _BUFFER_BYTES if store.is_local else _REMOTE_BUFFER_BYTES
            file = pq.ParquetFile(
                pa.PythonFile(source, mode="r"),
                buffer_size=buffer_bytes,
                pre_buffer=False,
                coerce_int96_timestamp_unit=INT96.unit,
            )
            ensure_form(path, file, source.seek(0, io.SEEK_END))
            yield file
        except _UNREADABLE as error:
            raise corrupt_log(path, f"it is not a readable checkpoint ({first_line(error)})") from error


def _leaves(file: pq.ParquetFile, column: str) -> list[str]:
    """Return the leaves below a column; none if no row group has a value in any of them."""
    schema, metadata = file.metadata.schema, file.metadata
    numbers = [number for number in range(metadata.num_columns) if _is_below(schema.column(number).path, column)]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    is_used = any(_has_values(group.column(number)) for number in numbers for group in groups)
    return [schema.column(number).path for number in numbers if is_used]


def _groups(file: pq.ParquetFile, leaves: Collection[str]) -> list[int]:
    """Return the numbers of the row groups that have a value in any of these leaves."""
    metadata = file.metadata
    columns = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path in leaves]
    groups = ((number, metadata.row_group(number)) for number in range(metadata.num_row_groups))
    return [number for number, group in groups if any(_has_values(group.column(n)) for n in columns)]


def _all_leaves(file: pq.ParquetFile, column: str) -> list[str]:
    schema = file.metadata.schema
    paths = [schema.column(number).path for number in range(file.metadata.num_columns)]
    return [path for path in paths if _is_below(path, column)]


def _is_below(path: str, column: str) -> bool:
    return path == column or path.startswith(column + ".")


def _has_values(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    has_count = statistics is not None and statistics.has_null_count
    return not has_count or statistics.null_count < chunk.num_values


def _rows(file: pq.ParquetFile, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield a row, with only that column, for each value of these columns."""
    leaves = [leaf for column in columns for leaf in _leaves(file, column)]
    if not leaves:
        return
    groups = _groups(file, leaves)
    for rows in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=leaves, use_threads=False):
        for name in rows.schema.names:
            column = rows.column(name)
            if column.null_count == len(column):
                continue
            non_null = rows.filter(column.is_valid())
            yield from non_null.select([name]).to_pylist(maps_as_pydicts="strict")


def _convert(path: str, row: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(_without_nulls(row), kind)
    except msgspec.ValidationError as error:
        raise corrupt_log(path, f"a row is damaged ({error})") from error


def _without_nulls(value: Any) -> Any:
    """Drop nulls of Parquet structs, since JSON would omit these keys; nulls in maps are values and stay."""
    return {key: _without_nulls_below(key, item) for key, item in value.items() if item is not None}


_STRUCTS = frozenset({"protocol", "metaData", "txn", "domainMetadata", "format", "deletionVector"})


def _without_nulls_below(key: str, value: Any) -> Any:
    return _without_nulls(value) if key in _STRUCTS and isinstance(value, dict) else value


def _add_batches(path: str, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    leaves = [leaf for name in FILES.names for leaf in _leaves(file, f"add.{key_of(name)}")]
    leaves += _all_leaves(file, "add.partitionValues")  # statistics cannot tell an empty map from null
    parsed = _leaves(file, "add.stats_parsed") if _lacks_stats(file) else []
    for rows in file.iter_batches(_BATCH_ROWS, columns=sorted({*leaves, *parsed}), use_threads=False) if leaves else ():
        add = rows.column("add")
        add = add.filter(add.is_valid()) if add.null_count else add
        if len(add):
            yield _from_struct(path, add)


def _lacks_stats(file: pq.ParquetFile) -> bool:
    """Tell whether any file may lack statistics as JSON text."""
    metadata, schema = file.metadata, file.metadata.schema
    numbers = {schema.column(number).path: number for number in range(metadata.num_columns)}
    if "add.stats" not in numbers or "add.path" not in numbers:
        return True
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        paths, stats = (group.column(numbers[name]).statistics for name in ("add.path", "add.stats"))
        if paths is None or stats is None or stats.null_count != paths.null_count:
            return True
    return False


def _from_struct(path: str, add: pa.StructArray) -> pa.RecordBatch:
    arrays = {field.name: add.field(number) for number, field in enumerate(add.type)}
    for name in _REQUIRED:
        if name not in arrays or arrays[name].null_count:
            raise corrupt_log(path, f"an add action has no {name}")
    _ensure_complete_vectors(path, arrays.get("deletionVector"))
    columns: dict[str, pa.Array] = {}
    for name in FILES.names:
        array = arrays.get(key_of(name))
        if array is not None:
            columns[name] = _column(name, array)
    if "stats_parsed" in arrays:
        columns["stats"] = to_json_text(arrays["stats_parsed"], columns.get("stats"))
    rows = file_rows(columns, len(add))
    rows.validate(full=True)  # Arrow reads bytes that are not UTF-8 into a column of strings
    return rows


_REQUIRED = ("path", "size", "modificationTime")


def _ensure_complete_vectors(path: str, vectors: pa.StructArray | None) -> None:
    """Check that every deletion vector is complete: without one, deleted rows would reappear."""
    if vectors is not None and vectors.null_count < len(vectors):
        non_null = vectors.filter(vectors.is_valid())
        for key in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
            if non_null.field(key).null_count:
                raise corrupt_log(path, f"a deletion vector has no {key}")


def _column(name: str, array: pa.Array) -> pa.Array:
    data_type = FILES.field(name).type
    if data_type == TEXT_MAP:
        return array if array.type == TEXT_MAP else array.cast(TEXT_MAP)
    return vector_column(array) if name == "deletion_vector" and array.null_count < len(array) else array
