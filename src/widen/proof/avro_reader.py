"""A second reader of Avro files for the proof, which shares nothing with the reader that a load uses.

It decodes values as integers, bytes and texts, with the branch of each union, and compares them with those that a load
has read, which have the types of Arrow.

Source: the Avro specification, "Binary Encoding", "Object Container Files" and "Logical Types"
"""

from __future__ import annotations

import bz2
import json
import lzma
import operator
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, BinaryIO, TypeAlias

import pyarrow as pa

from widen.errors import InternalError

Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at an index, and the index after it."""

Compare: TypeAlias = Callable[[Any, Any], bool]
"""Returns whether a value is the one of a column."""

Match: TypeAlias = Callable[[pa.DataType], "Compare | None"]
"""Returns how values compare with the values of a column; None if they do not belong into a column of that type."""

_SYNC = 16


class AvroRecords:
    """The records of a file.

    Args:
        truncates: Whether the load cuts the digits after the microseconds.
    """

    def __init__(self, file: BinaryIO, *, truncates: bool = False) -> None:
        file.read(4)
        header: dict[bytes, bytes] = {}
        while count := _read_long(file):
            if count < 0:
                _read_long(file)
            for _ in range(abs(count)):
                key = file.read(_read_long(file))
                header[key] = file.read(_read_long(file))
        file.read(_SYNC)
        self._file, self._codec = file, header.get(b"avro.codec", b"null").decode()
        schema = json.loads(header[b"avro.schema"])
        self.names = [each["name"] for each in schema["fields"]]
        logical = {**_LOGICAL, **(_TRUNCATED if truncates else {})}
        self._decode, self.match = _compile(schema, "", {}, logical)

    def __iter__(self) -> Iterator[Any]:
        """Yield the values of each record, by field."""
        while head := self._file.read(1):
            count = _read_long(self._file, head)
            data = _decompress(self._file.read(_read_long(self._file)), self._codec)
            self._file.read(_SYNC)
            at = 0
            for _ in range(count):
                record, at = self._decode(data, at)
                yield record


def _read_long(file: BinaryIO, head: bytes = b"") -> int:
    byte = (head or file.read(1))[0]
    number, shift = byte & 127, 7
    while byte & 128:
        byte = file.read(1)[0]
        number, shift = number | (byte & 127) << shift, shift + 7
    return number >> 1 if number % 2 == 0 else -(number >> 1) - 1


def _decompress(block: bytes, codec: str) -> bytes:
    match codec:
        case "null":
            return block
        case "deflate":
            return zlib.decompress(block, -15)
        case "bzip2":
            return bz2.decompress(block)
        case "xz":
            return lzma.decompress(block)
        case "zstandard":
            return bytes(pa.input_stream(pa.BufferReader(block), compression="zstd").read())
        case "snappy":
            size, _ = _number_at(block, 0)
            return bytes(pa.decompress(block[:-4], size, "snappy", asbytes=True))
    raise InternalError(reason=f"no reader for the codec {codec}")


# ---- values ----------------------------------------------------------------------------------------


def _number_at(data: bytes, at: int) -> tuple[int, int]:
    """Return a number without a sign, and the index after it."""
    byte = data[at]
    number, shift, at = byte & 127, 7, at + 1
    while byte & 128:
        byte = data[at]
        number, shift, at = number | (byte & 127) << shift, shift + 7, at + 1
    return number, at


def _long_at(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 128:  # most counts and sizes have one byte
        return (number >> 1) ^ -(number & 1), at + 1
    number, at = _number_at(data, at)
    return (number >> 1) ^ -(number & 1), at


def _bytes_at(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long_at(data, at)
    end = at + size
    return data[at:end], end


def _fixed(size: int) -> Decode:
    return lambda data, at: (data[at : at + size], at + size)


def _bits(size: int) -> Decode:
    return lambda data, at: (int.from_bytes(data[at : at + size], "little", signed=True), at + size)


_PLAIN: Mapping[str, tuple[Decode, pa.DataType]] = {
    "null": (lambda data, at: (None, at), pa.null()),
    "boolean": (lambda data, at: (data[at] == 1, at + 1), pa.bool_()),
    "int": (_long_at, pa.int32()),
    "long": (_long_at, pa.int64()),
    "float": (_bits(4), pa.float32()),
    "double": (_bits(8), pa.float64()),
    "bytes": (_bytes_at, pa.binary()),
    "string": (_bytes_at, pa.string()),
}
"""How to decode each primitive type, and the type of its column. Floats and doubles are their bits."""


_is_same: Compare = operator.eq


def _leaf(found: pa.DataType, compare: Compare = _is_same) -> Match:
    return lambda column: compare if column == found else None


def _scaled(factor: int, unit: int) -> Compare:
    return lambda value, actual: value * factor == actual * unit


def _time_text(digits: int) -> Compare:
    def compare(value: int, actual: bytes) -> bool:
        seconds, fraction = divmod(value, 10**digits)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        return actual == f"{hour:02}:{minute:02}:{second:02}.{fraction:0{digits}}".encode()

    return compare


def _match_nanos(found: pa.DataType, compare: Compare) -> Match:
    def is_text(value: int, actual: bytes) -> bool:
        seconds, rest = divmod(value, 10**9)
        text = (datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()
        return actual == f"{text}.{rest:09}{'Z' if found.tz else ''}".encode()

    return lambda column: compare if column == found else is_text if column == pa.string() else None


_INSTANT, _LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
_LOGICAL: Mapping[tuple[str, str], Match] = {
    ("int", "date"): _leaf(pa.date32()),
    ("int", "time-millis"): _leaf(pa.string(), _time_text(3)),
    ("long", "time-micros"): _leaf(pa.string(), _time_text(6)),
    ("long", "timestamp-millis"): _leaf(_INSTANT, _scaled(1000, 1)),
    ("long", "timestamp-micros"): _leaf(_INSTANT),
    ("long", "timestamp-nanos"): _match_nanos(_INSTANT, _scaled(1, 1000)),
    ("long", "local-timestamp-millis"): _leaf(_LOCAL, _scaled(1000, 1)),
    ("long", "local-timestamp-micros"): _leaf(_LOCAL),
    ("long", "local-timestamp-nanos"): _match_nanos(_LOCAL, _scaled(1, 1000)),
}
_TRUNCATED: Mapping[tuple[str, str], Match] = {
    ("long", "timestamp-nanos"): _leaf(_INSTANT, lambda value, actual: value // 1000 == actual),
    ("long", "local-timestamp-nanos"): _leaf(_LOCAL, lambda value, actual: value // 1000 == actual),
}


def _match_decimal(schema: Mapping[str, Any]) -> Match | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and 0 < precision <= 76):
        return None
    stored = pa.decimal128(min(precision, 38), min(scale, 38))
    factor = 10 ** (scale - stored.scale)
    return _leaf(stored, lambda value, actual: int.from_bytes(value, "big", signed=True) == actual * factor)


def _is_uuid(value: bytes, actual: bytes) -> bool:
    text = value.hex().encode()
    return actual == b"-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _is_duration(value: bytes, actual: Mapping[str, int]) -> bool:
    return value == b"".join(actual[name].to_bytes(4, "little") for name in ("months", "days", "milliseconds"))


_DURATION = pa.struct([(name, pa.int64()) for name in ("months", "days", "milliseconds")])


# ---- schemas ---------------------------------------------------------------------------------------

_Compiled: TypeAlias = tuple[Decode, Match]


_Logical: TypeAlias = Mapping[tuple[str, str], Match]


def _compile(schema: Any, space: str, named: dict[str, _Compiled], logical: _Logical) -> _Compiled:
    if isinstance(schema, list):
        return _compile_union([_compile(branch, space, named, logical) for branch in schema])
    if isinstance(schema, str):
        if schema in _PLAIN:
            decode, found = _PLAIN[schema]
            return decode, _leaf(found)
        return named[schema if "." in schema or not space else f"{space}.{schema}"]
    kind, name_of_logical = schema["type"], schema.get("logicalType")
    if kind == "array":
        return _compile_list(_compile(schema["items"], space, named, logical))
    if kind == "map":
        return _compile_map(_compile(schema["values"], space, named, logical))
    if kind in ("record", "error", "enum", "fixed"):
        name, space = schema["name"], schema.get("namespace", space)
        full = name if "." in name or not space else f"{space}.{name}"
        if kind == "enum":
            named[full] = _compile_enum(schema["symbols"])
        elif kind == "fixed":
            named[full] = _fixed(schema["size"]), _match_fixed(schema)
        else:
            fields = [
                (each["name"], _compile(each["type"], full.rpartition(".")[0], named, logical))
                for each in schema["fields"]
            ]
            named[full] = _compile_record(fields)
        return named[full]
    decode, match = _compile(kind, space, named, logical)
    if kind == "bytes" and name_of_logical == "decimal":
        return decode, _match_decimal(schema) or match
    return decode, logical.get((kind, name_of_logical), match) if isinstance(kind, str) else match


def _match_fixed(schema: Any) -> Match:
    match schema.get("logicalType"), schema["size"]:
        case "decimal", _:
            return _match_decimal(schema) or _leaf(pa.binary())
        case "uuid", 16:
            return _leaf(pa.string(), _is_uuid)
        case "duration", 12:
            return _leaf(_DURATION, _is_duration)
    return _leaf(pa.binary())


def _compile_enum(symbols: Sequence[str]) -> _Compiled:
    texts = [symbol.encode() for symbol in symbols]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _long_at(data, at)
        return texts[index], at

    return decode, _leaf(pa.string())


def _compile_record(fields: Sequence[tuple[str, _Compiled]]) -> _Compiled:
    decodes = [(name, decode_field) for name, (decode_field, _) in fields]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        record = {}
        for name, decode_field in decodes:
            record[name], at = decode_field(data, at)
        return record, at

    def match(found: pa.DataType) -> Compare | None:
        if not pa.types.is_struct(found) or found.names != [name for name, _ in fields]:
            return None
        compares = [(name, match_field(found.field(name).type)) for name, (_, match_field) in fields]
        known = [(name, compare) for name, compare in compares if compare is not None]
        if len(known) < len(compares):
            return None

        def compare_records(value: Any, actual: Any) -> bool:
            if actual is None:
                return False
            for name, compare in known:  # noqa: SIM110  # a generator takes longer
                if not compare(value[name], actual[name]):
                    return False
            return True

        return compare_records

    return decode, match


def _compile_list(inner: _Compiled) -> _Compiled:
    decode_item, match_item = inner

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, at = _long_at(data, at)
            if count < 0:
                _, at = _long_at(data, at)
            if not count:
                return items, at
            for _ in range(abs(count)):
                item, at = decode_item(data, at)
                items.append(item)

    def match(found: pa.DataType) -> Compare | None:
        compare = match_item(found.value_type) if pa.types.is_list(found) else None
        if compare is None:
            return None
        return lambda value, actual: (
            actual is not None and len(value) == len(actual) and all(map(compare, value, actual))
        )

    return decode, match


def _compile_map(inner: _Compiled) -> _Compiled:
    decode_entries, _ = _compile_list(_compile_record([("key", (_bytes_at, _leaf(pa.string()))), ("value", inner)]))

    def match(found: pa.DataType) -> Compare | None:
        compare = inner[1](found.item_type) if pa.types.is_map(found) else None
        if compare is None:
            return None

        def compare_maps(value: Any, actual: Any) -> bool:
            # Of several entries with one key, the last one counts.
            entries = {each["key"]: each["value"] for each in value}
            return (
                actual is not None
                and [*entries] == [key for key, _ in actual]
                and all(compare(entries[key], item) for key, item in actual)
            )

        return compare_maps

    return decode_entries, match


def _compile_union(branches: Sequence[_Compiled]) -> _Compiled:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = _long_at(data, at)
        value, at = branches[branch][0](data, at)
        return (branch, value), at

    def match(found: pa.DataType) -> Compare | None:
        compares = [match_branch(found) or _match_wider(match_branch, found) for _, match_branch in branches]
        nulls = [match_branch(pa.null()) is not None for _, match_branch in branches]
        if any(compares) or all(nulls):
            return lambda value, actual: _compare_branch(compares, nulls, value, actual)
        return _match_kinds([match_branch for _, match_branch in branches], nulls, found)

    return decode, match


def _compare_branch(compares: Sequence[Compare | None], nulls: Sequence[bool], value: Any, actual: Any) -> bool:
    branch, inner = value
    if nulls[branch]:
        return actual is None
    compare = compares[branch]
    return actual is not None and compare is not None and compare(inner, actual)


def _match_wider(match: Match, found: pa.DataType) -> Compare | None:
    """Return how an int compares with a long, and a float with a double, in a union of both."""
    if found == pa.int64() and match(pa.int32()) is _is_same:
        return _is_same
    if found == pa.float64() and match(pa.float32()) is _is_same:
        return _is_float
    return None


def _is_float(bits: int, actual: int) -> bool:
    wide = pa.array([bits], pa.int32()).view(pa.float32()).cast(pa.float64()).view(pa.int64())
    return bool(wide[0].as_py() == actual)


def _match_kinds(branches: Sequence[Match], nulls: Sequence[bool], found: pa.DataType) -> Compare | None:
    """Return how a union compares with a struct that has a field for each kind."""
    if not pa.types.is_struct(found):
        return None
    own: list[tuple[str, Compare] | None] = []
    for match, is_null in zip(branches, nulls, strict=True):
        fits = [(each.name, match(each.type) or _match_wider(match, each.type)) for each in found]
        chosen = next(((name, compare) for name, compare in fits if compare is not None), None)
        if chosen is None and not is_null:
            return None
        own.append(None if is_null else chosen)

    def compare_kinds(value: Any, actual: Any) -> bool:
        branch = own[value[0]]
        if branch is None:
            return actual is None
        name, compare = branch
        others = [each for key, each in (actual or {}).items() if key != name]
        return actual is not None and others == [None] * len(others) and compare(value[1], actual[name])

    return compare_kinds
