"""Reading checkpoints: classic, in parts, and V2 with sidecars, from Parquet or JSON.

Only the columns that are asked for are read, in small batches; what a file does not have is null.

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
from widen.log.read.arrow_memory import use_system_allocator
from widen.log.read.canonical_path import canonical_path
from widen.log.read.checkpoint_form import ensure_form
from widen.log.read.commit_lines import NonFileAction, corrupt_log, decode_commit, read_non_file_actions
from widen.log.read.file_list import FILES, TEXT_MAP, file_rows, key_of
from widen.log.read.line_blocks import FileActionReader, LogPiece, split_into_pieces, vector_column
from widen.log.read.log_segment import SIDECARS, Checkpoint
from widen.log.read.stats_columns import INT96, to_json_text
from widen.log.store.log_store import FileEntry, LogStore
from widen.model.lazy_module import late
from widen.protocol.actions import Remove, Sidecar

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = late("pyarrow.parquet")

_ROWS_AT_ONCE = 4096
_BUFFER_BYTES = 1 << 16
_REMOTE_BUFFER_BYTES = 1 << 22
_UNREADABLE = (pa.ArrowException, KeyError, TypeError, ValueError, OSError, OverflowError, MemoryError, RecursionError)
"""What Arrow raises for a file that is damaged, wherever in it the damage is."""

_T = TypeVar("_T")


def read_live_files(store: LogStore, checkpoint: Checkpoint, partitions: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the live files of a checkpoint as rows of `widen.log.read.file_list.FILES`.

    Args:
        store: Of the table.
        checkpoint: One that is complete.
        partitions: The physical names of the partition columns.

    Raises:
        CorruptLog: a file of it is missing or damaged.
        StorageError: the store refused.

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
    """Yield the removed files that a checkpoint remembers.

    Raises:
        CorruptLog: a file of it is missing or damaged.
        StorageError: the store refused.
    """
    for path in _file_action_paths(store, checkpoint):
        if path.endswith(".json"):
            yield from (line.remove for line in decode_commit(path, store.read(path)) if line.remove is not None)
        else:
            with _open_parquet(store, path) as file:
                yield from (_convert(path, row["remove"], Remove) for row in _rows(file, "remove"))


def checkpoint_non_file_actions(store: LogStore, checkpoint: Checkpoint, *keys: str) -> Iterator[NonFileAction]:
    """Yield the actions of these kinds, e.g. ``metaData``, in no particular order; no file action is read.

    Raises:
        CorruptLog: a file of it is missing or damaged.
        StorageError: the store refused.
    """
    for entry in checkpoint.files:
        if entry.path.endswith(".json"):
            yield from read_non_file_actions(entry.path, store.read(entry.path), *keys)
            continue
        with use_system_allocator(), _open_parquet(store, entry.path) as file:
            rows = list(_rows(file, *keys))
        yield from (_convert(entry.path, row, NonFileAction) for row in rows)


def read_sidecars(store: LogStore, entry: FileEntry) -> list[Sidecar]:
    """Return the sidecars that a checkpoint file names; none for most.

    Raises:
        CorruptLog: the file is missing or damaged.
        StorageError: the store refused.

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
    """Return where a sidecar lies: in the folder of sidecars, whether its path is its name or absolute.

    Raises:
        CorruptLog: it is another place.

    Source: PROTOCOL.md#sidecar-files
    """
    canonical = canonical_path(path, store.location)
    name = canonical.removeprefix(f"{SIDECARS}/")
    if not name or "/" in name or name in (".", ".."):
        raise corrupt_log(entry.path, f"its sidecar {path!r} is not in {SIDECARS}")
    return f"{SIDECARS}/{name}"


@contextmanager
def _open_parquet(store: LogStore, path: str) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, and blame it for whatever is wrong while it is read."""
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
    """Return the physical columns below a column, as far as any row group has a value in them."""
    schema, metadata = file.metadata.schema, file.metadata
    found = [at for at in range(metadata.num_columns) if _is_below(schema.column(at).path, column)]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    used = {schema.column(at).path for at in found for group in groups if _has_values(group.column(at))}
    return [schema.column(at).path for at in found if used]


def _groups(file: pq.ParquetFile, leaves: Collection[str]) -> list[int]:
    """Return the row groups that have a value in any of these leaves."""
    metadata = file.metadata
    at = [number for number in range(metadata.num_columns) if metadata.schema.column(number).path in leaves]
    groups = ((number, metadata.row_group(number)) for number in range(metadata.num_row_groups))
    return [number for number, group in groups if any(_has_values(group.column(each)) for each in at)]


def _all_leaves(file: pq.ParquetFile, column: str) -> list[str]:
    schema = file.metadata.schema
    paths = [schema.column(at).path for at in range(file.metadata.num_columns)]
    return [path for path in paths if _is_below(path, column)]


def _is_below(path: str, column: str) -> bool:
    return path == column or path.startswith(column + ".")


def _has_values(chunk: pq.ColumnChunkMetaData) -> bool:
    statistics = chunk.statistics
    known = statistics is not None and statistics.has_null_count
    return not known or statistics.null_count < chunk.num_values


def _rows(file: pq.ParquetFile, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield the rows in which one of these columns has a value, with only these columns."""
    leaves = [leaf for column in columns for leaf in _leaves(file, column)]
    if not leaves:
        return
    groups = _groups(file, leaves)
    for rows in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=leaves, use_threads=False):
        for name in rows.schema.names:
            there = rows.filter(rows.column(name).is_valid())
            yield from there.select([name]).to_pylist(maps_as_pydicts="strict")


def _convert(path: str, row: dict[str, Any], kind: type[_T]) -> _T:
    try:
        return msgspec.convert(_without_nulls(row), kind)
    except msgspec.ValidationError as error:
        raise corrupt_log(path, f"a row is damaged ({error})") from error


def _without_nulls(value: Any) -> Any:
    """Drop the nulls of Parquet structs, which stand for what JSON would leave out; maps keep theirs."""
    return {key: _nested(key, item) for key, item in value.items() if item is not None}


_STRUCTS = frozenset({"protocol", "metaData", "txn", "domainMetadata", "format", "deletionVector"})


def _nested(key: str, value: Any) -> Any:
    return _without_nulls(value) if key in _STRUCTS and isinstance(value, dict) else value


def _add_batches(path: str, file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    leaves = [leaf for name in FILES.names for leaf in _leaves(file, f"add.{key_of(name)}")]
    leaves += _all_leaves(file, "add.partitionValues")  # an empty map looks like none in the statistics
    parsed = _leaves(file, "add.stats_parsed") if _lacks_stats(file) else []
    for rows in (
        file.iter_batches(_ROWS_AT_ONCE, columns=sorted({*leaves, *parsed}), use_threads=False) if leaves else ()
    ):
        add = rows.column("add")
        add = add.filter(add.is_valid()) if add.null_count else add
        if len(add):
            yield _from_struct(path, add)


def _lacks_stats(file: pq.ParquetFile) -> bool:
    """Tell whether there may be a file without statistics as text."""
    metadata, schema = file.metadata, file.metadata.schema
    at = {schema.column(number).path: number for number in range(metadata.num_columns)}
    if "add.stats" not in at or "add.path" not in at:
        return True
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        paths, stats = (group.column(at[name]).statistics for name in ("add.path", "add.stats"))
        if paths is None or stats is None or stats.null_count != paths.null_count:
            return True
    return False


def _from_struct(path: str, add: pa.StructArray) -> pa.RecordBatch:
    given = {field.name: add.field(at) for at, field in enumerate(add.type)}
    for name in _REQUIRED:
        if name not in given or given[name].null_count:
            raise corrupt_log(path, f"an add action has no {name}")
    _ensure_whole(path, given.get("deletionVector"))
    columns: dict[str, pa.Array] = {}
    for name in FILES.names:
        array = given.get(key_of(name))
        if array is not None:
            columns[name] = _column(name, array)
    if "stats_parsed" in given:
        columns["stats"] = to_json_text(given["stats_parsed"], columns.get("stats"))
    return file_rows(columns, len(add))


_REQUIRED = ("path", "size", "modificationTime")


def _ensure_whole(path: str, vectors: pa.StructArray | None) -> None:
    """Check that what tells a deletion vector is there: without it deleted rows would reappear."""
    if vectors is not None and vectors.null_count < len(vectors):
        there = vectors.filter(vectors.is_valid())
        for key in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"):
            if there.field(key).null_count:
                raise corrupt_log(path, f"a deletion vector has no {key}")


def _column(name: str, array: pa.Array) -> pa.Array:
    data_type = FILES.field(name).type
    if data_type == TEXT_MAP:
        return array if array.type == TEXT_MAP else array.cast(TEXT_MAP)
    return vector_column(array) if name == "deletion_vector" and array.null_count < len(array) else array
