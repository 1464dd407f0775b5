"""The list of files as an Arrow table: its columns, and conversions from and to actions.

Source: PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import posixpath
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import accumulate
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.json

from widen.log.log_store import HOST, LOCAL_HOST
from widen.model.column_path import Path
from widen.model.lazy_module import import_lazily
from widen.model.types import DataType
from widen.protocol.actions import Add, DeletionVector, Remove
from widen.protocol.data_skipping import (
    NEGATED,
    And,
    ColumnCondition,
    Compare,
    ConstantPredicate,
    ConstantUnlessNull,
    FileSelection,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
)
from widen.protocol.file_statistics import MAX_VALUES, MIN_VALUES, NULL_COUNT, NUM_RECORDS, TICK

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


def action_key(column: str) -> str:
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
    """Return the rows that have true in ``keep``."""
    if all(keep):
        return rows
    mask = pa.Array.from_buffers(pa.uint8(), len(keep), [None, pa.py_buffer(bytes(keep))])
    kept = pc.filter(rows, mask.cast(pa.bool_()))
    return file_rows({name: kept.column(name) for name in FILES.names}, kept.num_rows)


# Canonical paths: every spelling of a path maps to one key, so that a remove matches the add that it cancels.
#
# Delta Spark makes absolute paths canonical. Here, a file of the table also has the same key whether its path is
# relative or absolute.
#
# Source: PROTOCOL.md#action-reconciliation, #add-file-and-remove-file (paths are URIs); RFC 8089 for the host of a
# file


UNUSUAL = r"^/|^[A-Za-z][A-Za-z0-9+.-]+:/|%|//|(?:^|/)\.\.?/"
"""Matches paths that may have other spellings. Most paths do not match and need no work."""

_UNUSUAL = re.compile(UNUSUAL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_PLAIN_FILE = re.compile(r"file:((?:/(?!\.\.?(?:/|$))[^/%]+)+)")
"""Matches most local source files, which a record of loads asks for by the million."""
_SCHEME_ALIASES: Mapping[str, str] = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def canonical_path(path: str, location: str = "") -> str:
    """Return the canonical form of the path of an action.

    Args:
        path: Percent-encoded, relative to the table or absolute.
        location: The location of the table, as its store spells it; absolute paths below it become relative.

    Example:
        >>> [canonical_path(path, "/t") for path in ("/t/a%20b", "file:/t/a b", "file:///t/a%20b", "a%20b")]
        ['a b', 'a b', 'a b', 'a b']
    """
    if not _UNUSUAL.search(path):
        return path
    plain_file = _PLAIN_FILE.fullmatch(path) if not location else None
    if plain_file is not None:
        return plain_file[1]
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    # Keep bytes that are not UTF-8 distinct: two files must never share a key.
    plain = unquote(path[match.end() :] if match else path, errors="surrogateescape")
    if scheme == "file":
        plain = LOCAL_HOST.sub("/", plain)
    if scheme not in ("", "file") or (scheme and HOST.match(plain)):
        host, _, rest = plain.lstrip("/").partition("/")
        whole = f"{_SCHEME_ALIASES.get(scheme, scheme)}://{host}/{posixpath.normpath(rest)}"
    elif plain.startswith("/"):
        whole = posixpath.normpath("/" + plain.lstrip("/"))
    else:
        return posixpath.normpath(plain)
    return whole[len(location) + 1 :] if location and whole.startswith(location.rstrip("/") + "/") else whole


def canonical_paths(paths: pa.Array, location: str = "") -> list[str]:
    """Return `canonical_path` for every row of a string column without nulls."""
    plain: list[str] = paths.to_pylist()
    unusual = pc.indices_nonzero(pc.match_substring_regex(paths, UNUSUAL))
    for row in unusual.to_pylist():
        plain[row] = canonical_path(plain[row], location)
    return plain


def vector_id(kind: str, text: str, offset: int | None, location: str = "") -> str:
    """Return the unique id of a deletion vector; a missing offset means 0, and paths are canonical.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema
    """
    if kind == "i":
        return kind + text
    return f"{kind}{canonical_path(text, location) if kind == 'p' else text}@{offset or 0}"


# Filter a list of files by a condition on rows, thousands of files at a time.
#
# Arrow decodes the statistics and compares the bounds. It gives an error where it could not decode a value exactly;
# `FileSelection` then decides file by file.
#
# Source: PROTOCOL.md#per-file-statistics


_ROWS = 4096
"""How many texts Arrow decodes at once; more of them would not stay in the cache of the processor."""

_INTEGER, _FLOAT, _TEXT = (pa.int64(), None), (pa.float64(), None), (pa.string(), None)
_FORMS: Mapping[str, tuple[pa.DataType, pa.DataType | None]] = (
    dict.fromkeys(("byte", "short", "integer", "long"), _INTEGER)
    | dict.fromkeys(("float", "double"), _FLOAT)
    | {
        "string": _TEXT,
        "date": (pa.string(), pa.date32()),
        "timestamp": (pa.string(), pa.timestamp("us", "UTC")),
        "timestamp_ntz": (pa.string(), pa.timestamp("us")),
    }
)
"""For each name of a type: the form of its bounds in JSON, and the type that their texts are then cast to."""

_NEAREST, _LEAST = 2.0**-22, 2.0**-148
"""A bound of a float is moved by this part of it, and by this much at least; see `file_statistics`."""


def filter_files(files: pa.Table, selection: FileSelection) -> pa.Table:
    """Return the files that may have a matching row."""
    if selection.is_everything:
        return files
    masks = [_mask(rows, selection) for rows in files.to_batches(max_chunksize=_ROWS)]
    return files.filter(pa.chunked_array(masks, pa.bool_()))


def _mask(rows: pa.RecordBatch, selection: FileSelection) -> pa.Array:
    conditions = list(selection.conditions)
    if all(_is_partition(each, selection) or _has_plain_bounds(each, selection) for each in conditions):
        try:
            return _Evaluation(rows, selection, conditions).can_be(selection.predicate, truth=True)
        except (pa.ArrowException, UnicodeError):
            # Statistics that Arrow cannot decode exactly are compared file by file.
            pass
    values = [dict(entries or ()) for entries in rows["partition_values"].to_pylist()]
    pairs = zip(values, rows["stats"].to_pylist(), strict=True)
    return pa.array([selection.can_match(*pair) for pair in pairs], pa.bool_())


def _is_partition(condition: ColumnCondition, selection: FileSelection) -> bool:
    return condition.path[0] in selection.partition_by


def _has_plain_bounds(condition: ColumnCondition, selection: FileSelection) -> bool:
    return str(condition.type) in _FORMS and condition.path not in selection.char_lengths


class _Evaluation:
    """The conditions of a predicate on some files.

    Raises:
        pa.ArrowException: the statistics of a file are not what Arrow decodes exactly.
    """

    def __init__(self, rows: pa.RecordBatch, selection: FileSelection, conditions: Iterable[ColumnCondition]) -> None:
        self._rows, self._selection = rows, selection
        stored = [each for each in conditions if not _is_partition(each, selection)]
        types = {selection.to_physical(each.path): _FORMS[str(each.type)][0] for each in stored}
        self._stats = decode_statistics(rows["stats"], types) if types else None

    def can_be(self, predicate: Predicate, *, truth: bool) -> pa.Array:
        """Return for each file whether the predicate may be ``truth`` for some row."""
        match predicate:
            case And(left, right) | Or(left, right):
                join = pc.and_ if truth is isinstance(predicate, And) else pc.or_
                return join(self.can_be(left, truth=truth), self.can_be(right, truth=truth))
            case Not(inner):
                return self.can_be(inner, truth=not truth)
            case UnknownPredicate():
                return pa.repeat(True, self._rows.num_rows)
            case ConstantPredicate(result):
                return pa.repeat(result is truth, self._rows.num_rows)
            case _ if _is_partition(predicate, self._selection):
                return self._in_partitions(predicate, truth=truth)
            case IsNull(path):
                other = 0 if truth else self._column(NUM_RECORDS)
                return _unless(pc.not_equal(self._column(NULL_COUNT, *self._selection.to_physical(path)), other))
            case ConstantUnlessNull(path, data_type, result):
                is_possible = self.can_be(IsNull(path, data_type), truth=False)
                return is_possible if result is truth else pa.repeat(False, self._rows.num_rows)
            case Compare():
                return self._compare(predicate, predicate.operator if truth else NEGATED[predicate.operator])

    def _in_partitions(self, condition: ColumnCondition, *, truth: bool) -> pa.Array:
        key = self._selection.to_physical(condition.path)[0]
        texts = pc.map_lookup(self._rows["partition_values"], pa.scalar(key), "first").dictionary_encode("encode")
        matches = [self._selection.can_be(condition, {key: text}, truth=truth) for text in texts.dictionary.to_pylist()]
        return pa.array(matches, pa.bool_()).take(texts.indices)

    def _compare(self, condition: Compare, operator: str) -> pa.Array:
        path = self._selection.to_physical(condition.path)
        has_value = self.can_be(IsNull(condition.path, condition.type), truth=False)
        if _FORMS[str(condition.type)] is _FLOAT and operator in (">", ">=", "<>"):  # a NaN is above every number
            return has_value
        low, high = (self._bound(key, path, condition.type) for key in (MIN_VALUES, MAX_VALUES))
        return pc.and_(has_value, _OPERATORS[operator](low, high, pa.scalar(condition.value, low.type)))

    def _bound(self, key: str, path: Path, data_type: DataType) -> pa.Array:
        array, (_, cast) = self._column(key, *path), _FORMS[str(data_type)]
        array = array if cast is None else array.cast(cast)
        is_high = key == MAX_VALUES
        if pa.types.is_timestamp(array.type) and is_high:
            return pc.add(array, pa.scalar(TICK, pa.duration("us")))
        if pa.types.is_floating(array.type):
            step = pc.max_element_wise(pc.multiply(pc.abs(array), _NEAREST), _LEAST, skip_nulls=False)
            return pc.add(array, step) if is_high else pc.subtract(array, step)
        return array

    def _column(self, *path: str) -> pa.Array:
        assert self._stats is not None
        return pc.struct_field(self._stats, list(path))


def _unless(array: pa.Array) -> pa.Array:
    """Return the array with true for null: what is unknown is possible."""
    return pc.fill_null(array, True)


def _less(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return _unless(pc.less(low, value))


def _at_most(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return _unless(pc.less_equal(low, value))


def _greater(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return _unless(pc.greater(high, value))


def _at_least(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return _unless(pc.greater_equal(high, value))


def _differs(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return pc.or_(_less(low, high, value), _greater(low, high, value))


def _equals(low: pa.Array, high: pa.Array, value: pa.Scalar) -> pa.Array:
    return pc.and_(_at_most(low, high, value), _at_least(low, high, value))


_OPERATORS: Mapping[str, Callable[[pa.Array, pa.Array, pa.Scalar], pa.Array]] = {
    "=": _equals,
    "<>": _differs,
    "<": _less,
    "<=": _at_most,
    ">": _greater,
    ">=": _at_least,
}
"""By operator: whether a value between two bounds may fulfil it."""


def decode_statistics(texts: pa.Array, types: Mapping[Path, pa.DataType]) -> pa.StructArray:
    """Return statistics as structs with the leaves of some columns."""
    if not _are_objects(texts):
        texts = pc.if_else(pc.equal(texts, ""), "{}", texts).fill_null("{}")
        if not _are_objects(texts):
            raise pa.ArrowInvalid("statistics are not a JSON object")
    bounds, counts = _struct(types), _struct(dict.fromkeys(types, pa.int64()))
    leaves = {NUM_RECORDS: pa.int64(), MIN_VALUES: bounds, MAX_VALUES: bounds, NULL_COUNT: counts}
    # No string goes on over the end of a line, and no object over "}", a line end and "{". So each text has at least
    # one object; if there are as many objects as texts, each has exactly one.
    data = pc.binary_join_element_wise(texts, "\n", "").buffers()[2]
    table = pyarrow.json.read_json(
        pa.BufferReader(data),
        # One block, since Arrow refuses a line that is longer than a block.
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=data.size + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(leaves.items()), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(texts):
        raise pa.ArrowInvalid("statistics are not one JSON object for each file")
    return pa.concat_arrays(table.to_struct_array().chunks)


def _are_objects(texts: pa.Array) -> bool:
    is_object = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return bool(pc.all(is_object, skip_nulls=False).as_py())


def _struct(types: Mapping[Path, pa.DataType]) -> pa.StructType:
    """Return a struct with these leaves."""
    names = dict.fromkeys(path[0] for path in types)
    below = {name: {path[1:]: kind for path, kind in types.items() if path[0] == name} for name in names}
    return pa.struct([(name, leaves.get(()) or _struct(leaves)) for name, leaves in below.items()])
