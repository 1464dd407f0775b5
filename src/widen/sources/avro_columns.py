"""Avro files as columns, without Spark: fastavro decodes the records, and Arrow gets them column by column.

A value of a union has the kind of its branch, as a value of JSON has: rows whose values differ in kind go to different
tables, each with one type for each field. Only inside arrays and maps, where one row may hold several kinds, a union is
a struct with a field for each kind.

Source: the Avro specification; docs/guide/files.md#avro
"""

from __future__ import annotations

import bz2
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib.util import find_spec
from io import BytesIO
from itertools import accumulate
from typing import Any, BinaryIO, TypeAlias
from uuid import UUID

import pyarrow as pa

from widen.errors import CorruptFile, SourceContentError
from widen.model.column_path import Path, format_path
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass
from widen.spark.errors import RESTORE_FILE

fastavro = import_lazily("fastavro")

EXTRA = "widen[avro]"
"""What installs fastavro."""


def has_avro_reader() -> bool:
    """Return whether fastavro is installed."""
    return find_spec("fastavro") is not None


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Some records of a file.

    Args:
        numbers: The number of each record in the file, from 0; None if they follow the records before them.
    """

    rows: pa.RecordBatch
    numbers: Sequence[int] | None = None


def read_avro(file: BinaryIO, path: str) -> Iterator[TypedRows]:
    """Yield the records of an Avro file; a file without records yields one batch without rows.

    Raises:
        CorruptFile: the file is damaged, or is not Avro.
    """
    container = _Container(file, path)
    schema = _parse(container.schema, path)
    count, decode = 0, fastavro.parse_schema(schema.decoded)
    for records in _chunks(container, decode):
        first, count = count, count + len(records)
        try:
            yield from schema.split(records, first)
        except _TooManyDigits as error:
            raise CorruptFile(path=path, reason="a decimal has more digits than its type", fix=RESTORE_FILE) from error
    if not count:
        yield TypedRows(schema.to_rows([], [0] * len(schema.unions)))


def _chunks(container: _Container, schema: Any) -> Iterator[list[Any]]:
    records: list[Any] = []
    size, read = 0, fastavro.schemaless_reader
    options = {
        "return_record_name": True,
        "return_record_name_override": True,
        "handle_unicode_errors": "surrogateescape",
    }
    for count, block in container.blocks():
        content = BytesIO(block)
        try:
            for _ in range(count):
                records.append(read(content, schema, None, **options))
        except (EOFError, IndexError, ValueError, OverflowError) as error:
            raise container.damaged() from error
        if content.tell() != len(block):
            raise container.damaged()
        size += len(block)
        if len(records) >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield records
            records, size = [], 0
    if records:
        yield records


_CHUNK_ROWS, _CHUNK_BYTES = 2**15, 16 * 2**20


# ---- the container ---------------------------------------------------------------------------------
#
# Source: the Avro specification, "Object Container Files"


_MAGIC, _SYNC_BYTES = b"Obj\x01", 16


class _Container:
    """The blocks of a file."""

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file, self._path = file, path
        if file.read(len(_MAGIC)) != _MAGIC:
            raise CorruptFile(path=path, reason="it is not an Avro file", fix=RESTORE_FILE)
        header = {}
        while count := self._long():
            if count < 0:
                count, _ = -count, self._long()
            for _ in range(count):
                key = self._take(self._long())
                header[key] = self._take(self._long())
        self._sync = self._take(_SYNC_BYTES)
        try:
            self.schema = json.loads(header[b"avro.schema"])
        except (KeyError, ValueError) as error:
            raise self.damaged() from error
        codec = header.get(b"avro.codec", b"null").decode("ascii", "replace")
        if codec not in _CODECS:
            fix = f"Write the file with one of the codecs {', '.join(_CODECS)}."
            raise SourceContentError(source=path, reason=f"it has the unknown codec {codec}", fix=fix)
        self._unpack = _CODECS[codec]

    def damaged(self) -> CorruptFile:
        """Return the error for the current place."""
        return CorruptFile(path=self._path, reason="a block is damaged, or the end is missing", fix=RESTORE_FILE)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number of records of each block, and the records."""
        while head := self._file.read(1):
            count = self._long(head)
            packed = self._take(self._long())
            if count < 0 or self._take(_SYNC_BYTES) != self._sync:
                raise self.damaged()
            try:
                yield count, self._unpack(packed)
            except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError, _BlockDamaged) as error:
                raise self.damaged() from error

    def _take(self, size: int) -> bytes:
        taken = self._file.read(size) if size >= 0 else b""
        if len(taken) != size:
            raise self.damaged()
        return taken

    def _long(self, head: bytes = b"") -> int:
        result = 0
        for shift in range(0, 70, 7):
            byte = (head if head and not shift else self._take(1))[0]
            result |= (byte & 127) << shift
            if byte < 128:
                return (result >> 1) ^ -(result & 1)
        raise self.damaged()


class _BlockDamaged(Exception):
    """The compressed records of a block are cut off, or differ from their checksum."""


def _unpack_deflate(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(-15)
    block = unpacker.decompress(packed)
    if not unpacker.eof:
        raise _BlockDamaged
    return block


def _unpack_snappy(packed: bytes) -> bytes:
    size, content = 0, packed[:-4]
    for at, byte in enumerate(content[:5]):
        size |= (byte & 127) << 7 * at
        if byte < 128:
            break
    block = bytes(pa.Codec("snappy").decompress(content, size, asbytes=True))
    if zlib.crc32(block) != int.from_bytes(packed[-4:], "big"):
        raise _BlockDamaged
    return block


def _unpack_zstandard(packed: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as block:
        return bytes(block.read())


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda packed: packed,
    "deflate": _unpack_deflate,
    "snappy": _unpack_snappy,
    "zstandard": _unpack_zstandard,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}


# ---- schemas ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _AvroLeaf:
    """A type without parts: its name in a union, its Arrow type, and what makes a column of its decoded values."""

    name: str
    type: pa.DataType
    to_array: Callable[[Sequence[Any], pa.DataType], pa.Array]


@dataclass(frozen=True, slots=True)
class _AvroRecord:
    name: str
    fields: Sequence[tuple[str, _AvroNode]]


@dataclass(frozen=True, slots=True)
class _AvroArray:
    element: _AvroNode
    name: str = "array"


@dataclass(frozen=True, slots=True)
class _AvroMap:
    value: _AvroNode
    name: str = "map"


@dataclass(frozen=True, slots=True)
class _AvroUnion:
    """A union of several kinds.

    Args:
        kinds: The kinds, e.g. one for both ``int`` and ``long``.
        kind_of: The index of the kind by the name of the record that wraps the branch; see `_AvroParser`.
    """

    kinds: Sequence[_AvroNode]
    kind_of: Mapping[str, int]
    name: str = "union"


_AvroNode: TypeAlias = "_AvroLeaf | _AvroRecord | _AvroArray | _AvroMap | _AvroUnion"
_Get: TypeAlias = Callable[[Any], Any]

_VALUE = "value"


def _parse(schema: Any, path: str) -> _AvroSchema:
    try:
        recursion = find_recursion(schema)
        parser = _AvroParser(path)
        decoded, root = parser.parse(schema, "")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFile(path=path, reason="its Avro schema is not valid", fix=RESTORE_FILE) from error
    if recursion is not None:
        name, at = recursion
        reason = f"the record {name} of its Avro schema contains itself, in the field {format_path(at)}"
        raise SourceContentError(source=path, reason=reason, fix=WITHOUT_RECURSION)
    if not isinstance(root, _AvroRecord) or not root.fields:
        fix = "Write the values as the field of a record."
        raise SourceContentError(source=path, reason="its Avro schema is not a record with fields", fix=fix)
    unions: list[_RowUnion] = []
    _find_unions(root, (), lambda record: record, unions)
    return _AvroSchema(decoded, root, unions)


WITHOUT_RECURSION = (
    "Write the levels as JSON text, or as records that name their parents. Spark reads up to 15 levels with "
    "the option recursiveFieldMaxDepth, but leaves out the deeper ones without a word."
)


@dataclass
class _AvroParser:
    """Makes of a schema what fastavro decodes, and how the decoded values become columns.

    fastavro returns the name of a branch only if it is a record. So each branch of a union with several kinds is
    wrapped into a record with one field, which has the same encoding. Logical types are left out: the values become
    columns of integers and bytes first, which have room for all of them.
    """

    path: str
    named: dict[str, _AvroNode] = field(default_factory=dict)
    unions: int = 0

    def parse(self, schema: Any, space: str) -> tuple[Any, _AvroNode]:
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return schema, _PRIMITIVES[schema]
            name = schema if "." in schema or not space else f"{space}.{schema}"
            # A recursion is found and refused by itself.
            return name, self.named.get(name, _PRIMITIVES["null"])
        if isinstance(schema, list):
            return self._parse_union(schema, space)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._parse_record(schema, space)
        if kind == "array":
            decoded, element = self.parse(schema["items"], space)
            return {"type": "array", "items": decoded}, _AvroArray(element)
        if kind == "map":
            decoded, value = self.parse(schema["values"], space)
            return {"type": "map", "values": decoded}, _AvroMap(value)
        if kind in ("enum", "fixed"):
            name, _ = _full_name(schema, space)
            leaf = _AvroLeaf(name, pa.string(), _to_texts) if kind == "enum" else _to_fixed(schema, name)
            self.named[name] = leaf
            kept = {key: schema[key] for key in ("symbols", "size") if key in schema}
            return {"type": kind, "name": name, **kept}, leaf
        decoded, node = self.parse(kind, space)
        is_primitive = isinstance(kind, str) and kind in _PRIMITIVES
        return decoded, _to_logical(schema, node) if is_primitive and isinstance(node, _AvroLeaf) else node

    def _parse_record(self, schema: Any, space: str) -> tuple[Any, _AvroNode]:
        name, space = _full_name(schema, space)
        parsed = [(each["name"], *self.parse(each["type"], space)) for each in schema["fields"]]
        node = _AvroRecord(name, [(key, inner) for key, _, inner in parsed])
        self.named[name] = node
        fields = [{"name": key, "type": decoded} for key, decoded, _ in parsed]
        return {"type": "record", "name": name, "fields": fields}, node

    def _parse_union(self, schema: Sequence[Any], space: str) -> tuple[Any, _AvroNode]:
        self.unions += 1
        number, parsed = self.unions, [self.parse(branch, space) for branch in schema]
        nodes = [node for _, node in parsed]
        types = [node.type if isinstance(node, _AvroLeaf) else None for node in nodes]
        values = [at for at, found in enumerate(types) if found != pa.null()]
        if len(values) < 2:
            return [decoded for decoded, _ in parsed], nodes[values[0]] if values else _PRIMITIVES["null"]
        kinds: list[_AvroNode] = []
        kind_of, decoded = {}, []
        for at, (each, found) in enumerate(parsed):
            node: _AvroNode = found
            if at not in values:
                decoded.append(each)
                continue
            if isinstance(node, _AvroLeaf) and node.type in _WIDER and _WIDER[node.type] in types:
                node = nodes[types.index(_WIDER[node.type])]
            leaves = [kind.type if isinstance(kind, _AvroLeaf) else None for kind in kinds]
            same = leaves.index(node.type) if isinstance(node, _AvroLeaf) and node.type in leaves else len(kinds)
            kinds += [node] if same == len(kinds) else []
            name = f"__union{number}_{at}"
            kind_of[name] = same
            wrapped = {"type": "record", "name": name, "namespace": "", "fields": [{"name": _VALUE, "type": each}]}
            decoded.append(wrapped)
        return decoded, _AvroUnion(kinds, kind_of)


_WIDER = {pa.int32(): pa.int64(), pa.float32(): pa.float64()}


def _full_name(schema: Any, space: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace of the names in it."""
    name, space = schema["name"], schema.get("namespace", space)
    full = name if "." in name or not space else f"{space}.{name}"
    return full, full.rpartition(".")[0]


def find_recursion(schema: Any) -> tuple[str, Path] | None:
    """Return the name of the first record in an Avro schema that contains itself, and the path from it to itself.

    Source: the Avro specification, "Complex Types" and "Names"
    """
    return next(_recursions(schema, "", {}, ()), None)


def _recursions(schema: Any, space: str, above: Mapping[str, int], path: Path) -> Iterator[tuple[str, Path]]:
    if isinstance(schema, str):
        name = schema if "." in schema or not space else f"{space}.{schema}"
        if name in above:
            yield name, path[above[name] :]
    elif isinstance(schema, list):
        for branch in schema:
            yield from _recursions(branch, space, above, path)
    elif schema["type"] in ("record", "error"):
        full, space = _full_name(schema, space)
        for each in schema["fields"]:
            yield from _recursions(each["type"], space, {**above, full: len(path)}, (*path, each["name"]))
    elif schema["type"] in ("array", "map"):
        step, inner = ("element", "items") if schema["type"] == "array" else ("value", "values")
        yield from _recursions(schema[inner], space, above, (*path, step))
    elif not isinstance(schema["type"], str):
        yield from _recursions(schema["type"], space, above, path)


# ---- leaves ----------------------------------------------------------------------------------------


def _to_plain(values: Sequence[Any], found: pa.DataType) -> pa.Array:
    return pa.array(values, found)


def _to_texts(values: Sequence[Any], found: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, found)
    except UnicodeEncodeError:
        # Bytes that are not UTF-8 stay as they are: who reads the column sets their records apart.
        texts = [None if each is None else each.encode(errors="surrogateescape") for each in values]
        stored = pa.array(texts, pa.binary())
        return pa.Array.from_buffers(pa.string(), len(stored), stored.buffers())


def _to_counted(values: Sequence[Any], found: pa.DataType) -> pa.Array:
    """Return a column of dates or times, which are counted from an epoch."""
    width = pa.int32() if found.bit_width == 32 else pa.int64()
    return pa.array(values, width).view(found)


def _to_decimals(values: Sequence[Any], found: pa.DataType) -> pa.Array:
    size = found.byte_width
    numbers = (int.from_bytes(each or b"\0", "big", signed=True) for each in values)
    try:
        content = b"".join(number.to_bytes(size, "little", signed=True) for number in numbers)
    except OverflowError:
        raise _TooManyDigits from None
    valid = pa.array([each is not None for each in values], pa.bool_()).buffers()[1]
    column = pa.Array.from_buffers(found, len(values), [valid, pa.py_buffer(content)])
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raise _TooManyDigits from None
    return column


class _TooManyDigits(Exception):
    """A decimal has more digits than its type says."""


def _to_uuids(values: Sequence[Any], found: pa.DataType) -> pa.Array:
    return pa.array([None if each is None else str(UUID(bytes=bytes(each))) for each in values], found)


def _to_durations(values: Sequence[Any], found: pa.DataType) -> pa.Array:
    columns = [
        pa.array([None if each is None else int.from_bytes(each[at : at + 4], "little") for each in values], pa.int64())
        for at in (0, 4, 8)
    ]
    return _to_structs(columns, found.names, values)


_DURATION = pa.struct([(name, pa.int64()) for name in ("months", "days", "milliseconds")])

_PRIMITIVES: Mapping[str, _AvroLeaf] = {
    "null": _AvroLeaf("null", pa.null(), _to_plain),
    "boolean": _AvroLeaf("boolean", pa.bool_(), _to_plain),
    "int": _AvroLeaf("int", pa.int32(), _to_plain),
    "long": _AvroLeaf("long", pa.int64(), _to_plain),
    "float": _AvroLeaf("float", pa.float32(), _to_plain),
    "double": _AvroLeaf("double", pa.float64(), _to_plain),
    "bytes": _AvroLeaf("bytes", pa.binary(), _to_plain),
    "string": _AvroLeaf("string", pa.string(), _to_texts),
}

_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}

_MOST_DIGITS = 76


def _to_logical(schema: Any, node: _AvroLeaf) -> _AvroLeaf:
    """Return the leaf of a type with a logical type; one that is unknown or not valid is ignored, as Avro demands."""
    name = schema.get("logicalType")
    if name == "decimal" and node.name == "bytes":
        return _to_decimal(schema, node)
    counted = _LOGICAL.get((node.name, name))
    return node if counted is None else _AvroLeaf(name, counted, _to_counted)


def _to_decimal(schema: Any, node: _AvroLeaf) -> _AvroLeaf:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision):
        return node
    if not 0 < precision <= _MOST_DIGITS:
        return node
    digits = pa.decimal128 if precision <= 38 else pa.decimal256
    return _AvroLeaf("decimal", digits(precision, scale), _to_decimals)


def _to_fixed(schema: Any, name: str) -> _AvroLeaf:
    node, logical = _AvroLeaf(name, pa.binary(), _to_plain), schema.get("logicalType")
    if logical == "decimal":
        return _to_decimal(schema, node)
    if logical == "uuid" and schema["size"] == 16:
        return _AvroLeaf(name, pa.string(), _to_uuids)
    if logical == "duration" and schema["size"] == 12:
        return _AvroLeaf(name, _DURATION, _to_durations)
    return node


# ---- columns ---------------------------------------------------------------------------------------


def _find_unions(node: _AvroNode, path: Path, get: _Get, found: list[_RowUnion]) -> None:
    """Collect the unions that have one value in each row."""
    if isinstance(node, _AvroRecord):
        for name, inner in node.fields:
            _find_unions(inner, (*path, name), _get_field(get, name), found)
    elif isinstance(node, _AvroUnion):
        found.append(_RowUnion(node, path, get))
        for at, kind in enumerate(node.kinds):
            _find_unions(kind, (*path, str(at)), _get_branch(get, node.kind_of, at), found)


@dataclass(frozen=True, slots=True)
class _RowUnion:
    """A union with one value in each row, its place in the schema, and how to get the value."""

    union: _AvroUnion
    path: Path
    get: _Get


def _get_field(get: _Get, name: str) -> _Get:
    def get_field(record: Any) -> Any:
        value = get(record)
        return None if value is None else value[name]

    return get_field


def _get_branch(get: _Get, kind_of: Mapping[str, int], kind: int) -> _Get:
    def get_branch(record: Any) -> Any:
        value = get(record)
        return value[1][_VALUE] if value is not None and kind_of[value[0]] == kind else None

    return get_branch


@dataclass
class _AvroSchema:
    """What fastavro decodes, and how the records become rows."""

    decoded: Any
    root: _AvroRecord
    unions: Sequence[_RowUnion]
    _last: list[int] = field(default_factory=list)

    def split(self, records: Sequence[Any], first: int) -> Iterator[TypedRows]:
        """Yield records, those with the same kinds of values together. A null is of the kind of the value before it."""
        if not self.unions:
            yield TypedRows(self.to_rows(records, []))
            return
        last = self._last = self._last or [0] * len(self.unions)
        groups: dict[tuple[int, ...], list[int]] = {}
        for at, record in enumerate(records):
            for number, each in enumerate(self.unions):
                value = each.get(record)
                if value is not None:
                    last[number] = each.union.kind_of[value[0]]
            groups.setdefault(tuple(last), []).append(at)
        for kinds, places in groups.items():
            rows = self.to_rows([records[at] for at in places], kinds)
            yield TypedRows(rows, [first + at for at in places])

    def to_rows(self, records: Sequence[Any], kinds: Sequence[int]) -> pa.RecordBatch:
        """Return records as a table.

        Args:
            kinds: The kind of each of `unions` in these records.
        """
        chosen = {each.path: kind for each, kind in zip(self.unions, kinds, strict=True)}
        columns = [
            _to_array(node, [record[name] for record in records], (name,), chosen) for name, node in self.root.fields
        ]
        return pa.RecordBatch.from_arrays(columns, names=[name for name, _ in self.root.fields])


def _to_array(node: _AvroNode, values: Sequence[Any], path: Path | None, chosen: Mapping[Path, int]) -> pa.Array:
    """Return decoded values as a column.

    Args:
        path: The place of the node in the schema; None if a row may have several of its values.
    """
    if isinstance(node, _AvroLeaf):
        return node.to_array(values, node.type)
    if isinstance(node, _AvroUnion):
        if path is not None:
            kind, branch = chosen[path], [None if each is None else each[1][_VALUE] for each in values]
            return _to_array(node.kinds[kind], branch, (*path, str(kind)), chosen)
        columns = [
            _to_array(kind, [_value_of_kind(node, at, each) for each in values], None, chosen)
            for at, kind in enumerate(node.kinds)
        ]
        return _to_structs(columns, kind_names([kind.name for kind in node.kinds]), values)
    if isinstance(node, _AvroRecord):
        columns = []
        for name, inner in node.fields:
            parts = [None if each is None else each[name] for each in values]
            columns.append(_to_array(inner, parts, None if path is None else (*path, name), chosen))
        return _to_structs(columns, [name for name, _ in node.fields], values)
    mask = pa.array([each is None for each in values], pa.bool_())
    offsets = pa.array(accumulate((len(each or ()) for each in values), initial=0), pa.int32())
    if isinstance(node, _AvroArray):
        elements = _to_array(node.element, [each for some in values for each in some or ()], None, chosen)
        return pa.ListArray.from_arrays(offsets, elements, mask=mask)
    keys = _to_texts([key for each in values for key in each or ()], pa.string())
    items = _to_array(node.value, [item for each in values for item in (each or {}).values()], None, chosen)
    return pa.MapArray.from_arrays(offsets, keys, items, mask=mask)


def _value_of_kind(union: _AvroUnion, kind: int, value: Any) -> Any:
    return value[1][_VALUE] if value is not None and union.kind_of[value[0]] == kind else None


def _to_structs(columns: Sequence[pa.Array], names: Sequence[str], values: Sequence[Any]) -> pa.Array:
    if not columns:
        return pa.array([None if each is None else {} for each in values], pa.struct([]))
    mask = pa.array([each is None for each in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, names=names, mask=mask)


def kind_names(names: Sequence[str]) -> list[str]:
    """Return the names of the fields of a union by the names of its kinds: without a namespace where that is unique."""
    short = [name.rpartition(".")[2] for name in names]
    return [name if short.count(name) == 1 else full for name, full in zip(short, names, strict=True)]
