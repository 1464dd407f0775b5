"""Read checkpoints: classic, multi-part, and V2 with sidecars, from Parquet or JSON.

Only the requested columns are read, in small batches. A column that a file lacks is null.

Source: PROTOCOL.md#checkpoints
"""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.parquet as pq

from widen.errors.tables import first_line
from widen.log.commit_files import NonFileAction, corrupt_log, decode_commit, read_non_file_actions
from widen.log.file_list import (
    DELETION_VECTOR_KEYS,
    FILES,
    TEXT_MAP,
    action_key,
    canonical_path,
    file_rows,
    use_system_allocator,
)
from widen.log.log_replay import FileActionReader, LogPiece, split_into_pieces, vector_column
from widen.log.log_segment import SIDECARS, Checkpoint, is_classic_name
from widen.log.log_store import FileEntry, LogStore
from widen.log.parquet_footers import ensure_chunks_readable, read_statistics
from widen.model.lazy_module import import_lazily
from widen.model.types import AtomicType, DataType, DecimalType, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Remove, Sidecar
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.file_statistics import MAX_VALUES, MIN_VALUES

if TYPE_CHECKING:
    pass
else:
    pq = import_lazily("pyarrow.parquet")


_BATCH_ROWS = 4096
_BUFFER_BYTES = 1 << 16
_REMOTE_BUFFER_BYTES = 1 << 22
_UNREADABLE = (pa.ArrowException, KeyError, TypeError, ValueError, OSError, OverflowError, MemoryError, RecursionError)
"""What Arrow raises for a damaged file, depending on where the damage is."""

_T = TypeVar("_T")


def read_live_files(store: LogStore, checkpoint: Checkpoint, partitions: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the live files of a checkpoint as rows of `widen.log.file_list.FILES`.

    Source: PROTOCOL.md#checkpoint-schema
    """

    def read_json(path: str, data: bytes) -> Iterator[pa.RecordBatch]:
        for block in split_into_pieces([LogPiece(path, data)]):
            yield from FileActionReader(partitions, store.location).read(block).adds

    return _read_file_actions(store, checkpoint, read_json, _add_batches)


def read_removes(store: LogStore, checkpoint: Checkpoint) -> Iterator[Remove]:
    """Yield the remove actions (tombstones) of a checkpoint."""

    def read_json(path: str, data: bytes) -> Iterator[Remove]:
        return (line.remove for line in decode_commit(path, data) if line.remove is not None)

    def read_parquet(path: str, file: pq.ParquetFile) -> Iterator[Remove]:
        return (_convert(path, row["remove"], Remove) for row in _rows(file, "remove"))

    return _read_file_actions(store, checkpoint, read_json, read_parquet)


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

    Source: PROTOCOL.md#sidecar-files
    """
    if entry.path.endswith(".json"):
        return _sidecars_in_json(entry.path, store.read(entry.path))
    with _open_parquet(store, entry.path) as file:
        return _sidecars_in_parquet(entry.path, file)


def is_v2(store: LogStore, checkpoint: Checkpoint) -> bool:
    """Return whether a reader needs the feature v2Checkpoint for a checkpoint: its name or its sidecars tell.

    Source: PROTOCOL.md#v2-spec
    """
    is_classic = all(is_classic_name(entry.name) for entry in checkpoint.files)
    return not is_classic or any(read_sidecars(store, entry) for entry in checkpoint.files)


def _read_file_actions(
    store: LogStore,
    checkpoint: Checkpoint,
    read_json: Callable[[str, bytes], Iterator[_T]],
    read_parquet: Callable[[str, pq.ParquetFile], Iterator[_T]],
) -> Iterator[_T]:
    """Yield what these find in each file of a checkpoint, and in its sidecars; each file is opened once."""
    for entry in checkpoint.files:
        if entry.path.endswith(".json"):
            data = store.read(entry.path)
            sidecars = _sidecars_in_json(entry.path, data)
            yield from read_json(entry.path, data)
        else:
            with _open_parquet(store, entry.path) as file:
                sidecars = _sidecars_in_parquet(entry.path, file)
                yield from read_parquet(entry.path, file)
        for sidecar in sidecars:
            path = _sidecar_path(store, entry, sidecar.path)
            if path.endswith(".json"):
                yield from read_json(path, store.read(path))
                continue
            with _open_parquet(store, path) as file:
                yield from read_parquet(path, file)


def _sidecars_in_json(path: str, data: bytes) -> list[Sidecar]:
    return [line.sidecar for line in decode_commit(path, data) if line.sidecar is not None]


def _sidecars_in_parquet(path: str, file: pq.ParquetFile) -> list[Sidecar]:
    return [_convert(path, row["sidecar"], Sidecar) for row in _rows(file, "sidecar")]


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
            ensure_chunks_readable(file.metadata)
            ensure_form(path, file, source.seek(0, io.SEEK_END))
            yield file
        except _UNREADABLE as error:
            raise corrupt_log(path, f"it is not a readable checkpoint ({first_line(error)})") from error


def _leaves(file: pq.ParquetFile, *columns: str) -> list[str]:
    """Return the leaves below columns; none below one without a value in any row group."""
    metadata, found = file.metadata, list[str]()
    paths = _paths(file)
    groups = range(metadata.num_row_groups)
    for column in columns:
        below = {number: path for number, path in enumerate(paths) if _is_below(path, column)}
        if any(_has_values(metadata, group, number) for number in below for group in groups):
            found += below.values()
    return found


def _paths(file: pq.ParquetFile) -> list[str]:
    schema = file.metadata.schema
    return [schema.column(number).path for number in range(file.metadata.num_columns)]


def _groups(file: pq.ParquetFile, leaves: Collection[str]) -> list[int]:
    """Return the numbers of the row groups that have a value in any of these leaves."""
    metadata = file.metadata
    columns = [number for number, path in enumerate(_paths(file)) if path in leaves]
    groups = range(metadata.num_row_groups)
    return [group for group in groups if any(_has_values(metadata, group, number) for number in columns)]


def _all_leaves(file: pq.ParquetFile, column: str) -> list[str]:
    return [path for path in _paths(file) if _is_below(path, column)]


def _is_below(path: str, column: str) -> bool:
    return path == column or path.startswith(column + ".")


def _has_values(metadata: pq.FileMetaData, group: int, number: int) -> bool:
    statistics = read_statistics(metadata, group, number)
    if statistics is None or not statistics.has_null_count:
        return True
    return bool(statistics.null_count < metadata.row_group(group).column(number).num_values)


def _rows(file: pq.ParquetFile, *columns: str) -> Iterator[dict[str, Any]]:
    """Yield a row, with only that column, for each value of these columns."""
    leaves = _leaves(file, *columns)
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
    leaves = _leaves(file, *(f"add.{action_key(name)}" for name in FILES.names))
    leaves += _all_leaves(file, "add.partitionValues")  # statistics cannot tell an empty map from null
    parsed = _leaves(file, "add.stats_parsed") if _lacks_stats(file) else []
    for rows in file.iter_batches(_BATCH_ROWS, columns=sorted({*leaves, *parsed}), use_threads=False) if leaves else ():
        add = rows.column("add")
        add = add.filter(add.is_valid()) if add.null_count else add
        if len(add):
            yield _from_struct(path, add)


def _lacks_stats(file: pq.ParquetFile) -> bool:
    """Return whether any file may lack statistics as JSON text."""
    metadata = file.metadata
    numbers = {path: number for number, path in enumerate(_paths(file))}
    if "add.stats" not in numbers or "add.path" not in numbers:
        return True
    for number in range(metadata.num_row_groups):
        paths, stats = (read_statistics(metadata, number, numbers[name]) for name in ("add.path", "add.stats"))
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
        array = arrays.get(action_key(name))
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


# Checks of a checkpoint before any of its columns is read: their types, and the memory that they claim.
#
# Source: PROTOCOL.md#checkpoint-schema


_UNPACKED_BYTES, _UNPACKED_RATIO = 1 << 28, 1000
"""A row group may unpack into the larger of this many bytes and this many times the size of the file. A damaged or
hostile footer can claim any size, and Arrow would try to allocate it."""


def ensure_form(path: str, file: pq.ParquetFile, size_bytes: int) -> None:
    """Check that the columns have the types of actions, and do not claim to unpack into too much memory."""
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


# Convert file statistics between JSON text (``stats``) and typed columns (``stats_parsed``).
#
# Source: PROTOCOL.md#per-file-statistics


_encoder = msgspec.json.Encoder(decimal_format="number")


def to_json_text(parsed: pa.StructArray, text: pa.Array | None) -> pa.Array:
    """Return statistics as JSON text, generated from the struct where the text is null.

    Args:
        parsed: A column ``stats_parsed`` of a checkpoint, in the types that the table had then.
        text: The column ``stats`` beside it, if there is one.

    Source: PROTOCOL.md#checkpoint-schema; Delta Spark for the formats of dates, times and decimals.
    """
    texts = text.to_pylist() if text is not None else [None] * len(parsed)
    structs = _to_representable(parsed).to_pylist()
    filled = [
        stats if stats is not None or struct is None else _encoder.encode(_value(struct)).decode()
        for stats, struct in zip(texts, structs, strict=True)
    ]
    return pa.array(filled, pa.string())


def _to_representable(column: pa.Array) -> pa.Array:
    """Return a column whose INT96 times are in UTC, and whose dates and times outside of Python's range are null.

    A null bound means that the bound is unknown, so readers do not skip the file.
    """
    if pa.types.is_struct(column.type):
        parts = [_to_representable(column.field(number)) for number in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in column.type], mask=column.is_null())
    if column.type == INT96:
        column = column.cast(pa.timestamp(INT96.unit, "UTC"))
    if column.type not in _YEARS:
        return column
    first, last = (pa.scalar(end, column.type) for end in _YEARS[column.type])
    is_known = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))
    return pc.if_else(is_known, column, None)


INT96 = pa.timestamp("ms")
"""The Arrow type that INT96 times are read as. They are always in UTC, and no other Parquet type is read as this."""

_YEARS: Mapping[pa.DataType, tuple[dt.date, dt.date]] = {
    pa.date32(): (dt.date.min, dt.date.max),
    **{pa.timestamp(unit): (dt.datetime.min, dt.datetime.max) for unit in ("ms", "us")},
    **{pa.timestamp(unit, "UTC"): (dt.datetime.min, dt.datetime.max) for unit in ("ms", "us")},
}


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items() if item is not None}
    convert = _FORMS.get(type(value))
    return convert(value) if convert else value


def _time(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else text + "Z"


_FORMS: Mapping[type, Callable[[Any], Any]] = {
    dt.date: dt.date.isoformat,
    dt.datetime: _time,
    bytes: lambda value: value.decode("utf-8", "replace"),
}


@dataclass(frozen=True)
class ParsedColumn:
    """A typed copy of a column of a checkpoint."""

    field: pa.Field
    convert: Callable[[pa.RecordBatch], pa.Array]


_ARROW: Mapping[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The types that have bounds in statistics."""

_UNORDERED: Mapping[str, pa.DataType] = {"boolean": pa.bool_(), "binary": pa.binary()}
"""Other types that partition values may have."""


def parsed_stats(schema: StructType, partition_columns: Sequence[str]) -> ParsedColumn:
    """Return the column ``stats_parsed``: statistics in the current types of the table.

    If the bounds of a file do not fit these types, like the infinite ones of Delta Spark, only its counts are kept.

    Source: PROTOCOL.md#checkpoint-schema (physical names, current types)
    """
    columns = [field for field in schema if field.name not in partition_columns]
    bounds, counts = _bounds(columns), _counts(columns)
    fields = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    fields += [("minValues", bounds), ("maxValues", bounds)] if bounds.num_fields else []
    fields += [("nullCount", counts)] if counts.num_fields else []
    data_type = pa.struct(fields)
    read = [pa.field(name, _json_reader_type(kind)) for name, kind in fields]
    options = pj.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore")

    def convert(rows: pa.RecordBatch) -> pa.Array:
        texts = rows.column("stats")
        table = _read_json([text if text and text.startswith("{") else "{}" for text in texts.to_pylist()], options)
        arrays = [table.column(name).combine_chunks().cast(kind) for name, kind in fields]
        return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=texts.is_null())

    return ParsedColumn(pa.field("stats_parsed", data_type), convert)


def _read_json(texts: Sequence[str], options: pj.ParseOptions) -> pa.Table:
    data = "\n".join(text.replace("\n", " ") for text in texts).encode()
    try:
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=len(data) + 1), options)
        if table.num_rows == len(texts):
            return table
    except pa.ArrowInvalid:
        pass
    # Arrow does not say which line it rejects, so halve the batch until the line is alone.
    if len(texts) == 1:
        return _read_json([_without_bounds(texts[0])], options)
    middle = len(texts) // 2
    return pa.concat_tables([_read_json(part, options) for part in (texts[:middle], texts[middle:])])


def _without_bounds(text: str) -> str:
    """Return statistics without their bounds, or empty statistics if they have no bounds."""
    try:
        stats = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return "{}"
    counts = {key: value for key, value in stats.items() if key not in (MIN_VALUES, MAX_VALUES)}
    return _encoder.encode(counts).decode() if len(counts) < len(stats) else "{}"


def parsed_partition_values(schema: StructType, columns: Sequence[str], keys: Sequence[str]) -> ParsedColumn:
    """Return the column ``partitionValues_parsed``: partition values in the current types of the table.

    Source: PROTOCOL.md#checkpoint-schema; PROTOCOL.md#partition-value-serialization (an empty string is null)
    """
    types = [_partition_type(schema.find(name)) for name in columns]
    data_type = pa.struct(list(zip(keys, types, strict=True)))

    def convert(rows: pa.RecordBatch) -> pa.Array:
        values = rows.column("partition_values")
        arrays = [_cast(pc.map_lookup(values, key, "first"), kind) for key, kind in zip(keys, types, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(data_type))

    return ParsedColumn(pa.field("partitionValues_parsed", data_type), convert)


def _cast(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    values = pc.if_else(pc.equal(texts, ""), None, texts)
    if data_type == _ARROW["timestamp"]:
        # The protocol also allows timestamps without a zone. No session is known here, so they are read as UTC.
        values = pc.if_else(pc.ends_with(values, "Z"), values, pc.binary_join_element_wise(values, "Z", ""))
    try:
        return values.cast(data_type)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_cast_or_null(values.slice(row, 1), data_type) for row in range(len(values))])


def _cast_or_null(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    try:
        return text.cast(data_type)
    except pa.ArrowInvalid:
        return pa.nulls(len(text), data_type)


def _arrow_type(data_type: DataType) -> pa.DataType | None:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW.get(str(data_type)) if isinstance(data_type, AtomicType) else None


def _partition_type(column: Field | None) -> pa.DataType:
    data_type = None if column is None else _arrow_type(column.type) or _UNORDERED.get(str(column.type))
    return data_type or pa.string()


def _bounds(columns: Iterable[Field]) -> pa.StructType:
    fields = []
    for column in columns:
        data_type = _bounds(column.type) if isinstance(column.type, StructType) else _arrow_type(column.type)
        if data_type is not None and not (pa.types.is_struct(data_type) and data_type.num_fields == 0):
            fields.append((_physical(column), data_type))
    return pa.struct(fields)


def _counts(columns: Iterable[Field]) -> pa.StructType:
    fields = []
    for column in columns:
        data_type = _counts(column.type) if isinstance(column.type, StructType) else pa.int64()
        if not (pa.types.is_struct(data_type) and data_type.num_fields == 0):
            fields.append((_physical(column), data_type))
    return pa.struct(fields)


def _json_reader_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type to give to Arrow's JSON reader: it parses ISO times, but reads dates only as numbers."""
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _json_reader_type(field.type)) for field in data_type])
    return pa.timestamp("us") if data_type == pa.date32() else data_type


def _physical(column: Field) -> str:
    name: str = column.metadata.get(PHYSICAL_NAME, column.name)
    return name
