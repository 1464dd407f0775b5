"""Messages that are not JSON, as plain JSON: Avro with the number of its schema in front, and what a function decodes.

A message that is not known stays as it is. If it is not text, it is written as ``base64:`` and its bytes, and a later
replay reads it again.

Source: docs/guide/typed-json.md#messages; the Avro specification; Confluent's wire format
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Any, TypeAlias
from uuid import UUID

from widen.json.connect import ConnectReader, DeclaredTypes, TypeConverters
from widen.json.dialect import Dialect
from widen.json.document import JsonDocument, JsonNumber, document_to_json
from widen.model.column_path import Path

_BASE64 = b"base64:"
_FRAME_BYTES = 5
"""A zero and the number of the schema in four bytes stand before the value."""


def restore_message(text: bytes) -> bytes:
    """Return the message that a text stands for: the text, or the bytes that it spells."""
    if text.startswith(_BASE64):
        try:
            return b64decode(text[len(_BASE64) :], validate=True)
        except ValueError:
            pass
    return text


def spell_message(message: bytes) -> bytes:
    """Return a message as text."""
    try:
        if b"\0" not in message and message.decode():
            return message
    except UnicodeDecodeError:
        pass
    return _BASE64 + b64encode(message)


class FunctionReader:
    """Returns records as plain JSON, as a function decodes them."""

    def __init__(self, decode: Callable[[bytes], str | bytes | None]) -> None:
        self._decode = decode

    def read(self, text: bytes) -> Iterator[bytes]:
        message = restore_message(text)
        try:
            plain = self._decode(message)
        except ValueError:
            yield spell_message(message)
            return
        if plain is not None:
            yield plain.encode() if isinstance(plain, str) else plain


FetchDefinitions: TypeAlias = Callable[[int], "Sequence[Any] | None"]
"""Returns the Avro schemas that a schema consists of, the schema last; nothing for JSON, None for an unknown schema."""


class RegistryReader(ConnectReader):
    """Returns records as plain JSON. Messages without a frame are read like those of Kafka Connect.

    Args:
        fetch: Returns the schema with a number.
    """

    def __init__(self, dialect: Dialect, fetch: FetchDefinitions) -> None:
        super().__init__(dialect)
        self._fetch = fetch
        self._decoders: dict[int, _Decode | None] = {}

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the records of a message, as `ConnectReader.read`."""
        message = restore_message(text)
        if message[:1] != b"\0":
            yield from super().read(text)
            return
        found = self._decode_frame(message)
        if found is None:
            yield spell_message(message)
        else:
            yield from super().read(found) if isinstance(found, bytes) else [document_to_json(found).encode()]

    def _decode_frame(self, message: bytes) -> dict[str, JsonDocument] | bytes | None:
        """Return the record of a message, its JSON, or None if it cannot be decoded."""
        number = int.from_bytes(message[1:_FRAME_BYTES], "big")
        if number not in self._decoders:
            self._decoders[number] = self._find_decoder(number)
        decode = self._decoders[number]
        if decode is _keep_json:
            return message[_FRAME_BYTES:]
        if decode is None or len(message) <= _FRAME_BYTES:
            return None
        try:
            record, end = decode(message, _FRAME_BYTES)
        except _UNDECODABLE:
            return None
        return record if end == len(message) and isinstance(record, dict) else None

    def _find_decoder(self, number: int) -> _Decode | None:
        definitions = self._fetch(number)
        if definitions is None:
            return None
        self.schema_parts += 1
        if not definitions:
            return _keep_json
        compiler = _AvroDecoders(self._nanos, self.declared)
        try:
            return [compiler.compile(each, "", ()) for each in definitions][-1]
        except (KeyError, TypeError, AttributeError, RecursionError, _SchemaTooLarge):
            return None


class _SchemaTooLarge(Exception):
    """A schema has too many types, counted wherever they stand."""


class _NotDecodedError(Exception):
    """A message does not have the form that its schema says."""


_UNDECODABLE = (IndexError, ValueError, RecursionError, _NotDecodedError)

_Decode: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value that begins at an index of a message, and the index after it."""


def _keep_json(data: bytes, at: int) -> tuple[Any, int]:
    return data[at:], len(data)


def _decode_long(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
        if shift > 63:
            raise _NotDecodedError


def _decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _decode_long(data, at)
    return _take(data, at, size)


def _take(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise _NotDecodedError
    return data[at:end], end


def _decode_number(data: bytes, at: int) -> tuple[JsonDocument, int]:
    number, at = _decode_long(data, at)
    return JsonNumber(number), at


def _decode_text(data: bytes, at: int) -> tuple[JsonDocument, int]:
    found, at = _decode_bytes(data, at)
    return found.decode(), at


def _decode_base64(data: bytes, at: int) -> tuple[JsonDocument, int]:
    found, at = _decode_bytes(data, at)
    return b64encode(found).decode(), at


def _decode_boolean(data: bytes, at: int) -> tuple[JsonDocument, int]:
    return bool(data[at]), at + 1


def _floats(form: str) -> _Decode:
    layout = Struct(form)

    def decode(data: bytes, at: int) -> tuple[JsonDocument, int]:
        found, at = _take(data, at, layout.size)
        (number,) = layout.unpack(found)
        return JsonNumber(_CONSTANTS.get(text := repr(number), text)), at

    return decode


_CONSTANTS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

_PRIMITIVES: Mapping[str, tuple[_Decode, str]] = {
    "null": (lambda _, at: (None, at), "string"),
    "boolean": (_decode_boolean, "boolean"),
    "int": (_decode_number, "int32"),
    "long": (_decode_number, "int64"),
    "float": (_floats("<f"), "float"),
    "double": (_floats("<d"), "double"),
    "bytes": (_decode_base64, "bytes"),
    "string": (_decode_text, "string"),
}
"""How each primitive type is decoded, and the type of Kafka Connect."""

_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
_LOGICAL = {
    "date": f"{_CONNECT}Date",
    "time-millis": f"{_CONNECT}Time",
    "time-micros": f"{_DEBEZIUM}MicroTime",
    "timestamp-millis": f"{_CONNECT}Timestamp",
    "timestamp-micros": f"{_DEBEZIUM}MicroTimestamp",
    "timestamp-nanos": f"{_DEBEZIUM}NanoTimestamp",
}
_LOGICAL_BASES = {name: "int" if name in ("date", "time-millis") else "long" for name in _LOGICAL}
_LOCAL = "local-"
"""Stands before the name of a logical type whose times have no zone."""

_MAX_TYPES = 20_000


class _AvroDecoders:
    """Makes decoders of the types of a schema, whose values become those of Kafka Connect, and then plain ones."""

    def __init__(self, nanos: str, declared: DeclaredTypes) -> None:
        self._nanos, self._converters = nanos, TypeConverters(nanos, declared)
        self._known: dict[str, tuple[Any, str]] = {}
        self._open: dict[str, list[_Decode]] = {}
        self._types = 0

    def compile(self, schema: Any, space: str, path: Path) -> _Decode:
        """Return what decodes a type."""
        self._types += 1
        if self._types > _MAX_TYPES:
            raise _SchemaTooLarge
        if isinstance(schema, list):
            return _branches([self.compile(each, space, path) for each in schema])
        if isinstance(schema, str):
            return self._leaf({"type": schema}, path) if schema in _PRIMITIVES else self._named(schema, space, path)
        kind = schema["type"]
        if kind == "array":
            return _items(self.compile(schema["items"], space, path))
        if kind == "map":
            return _entries(self.compile(schema["values"], space, path))
        if kind in ("record", "error", "enum", "fixed"):
            full, space = _full_name(schema, space)
            self._known[full] = schema, space
            return self._define(full, schema, space, path)
        is_leaf = isinstance(kind, str) and kind in _PRIMITIVES
        return self._leaf(schema, path) if is_leaf else self.compile(kind, space, path)

    def _named(self, name: str, space: str, path: Path) -> _Decode:
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._open:  # a record that contains itself
            own = self._open[full]
            return lambda data, at: own[0](data, at)
        schema, space = self._known[full if full in self._known else name]
        return self._define(full, schema, space, path)

    def _define(self, full: str, schema: Any, space: str, path: Path) -> _Decode:
        if schema["type"] == "enum":
            return _of_index(list(schema["symbols"]))
        if schema["type"] == "fixed":
            return self._fixed(schema, path)
        own = self._open[full] = []
        fields = [(each["name"], self.compile(each["type"], space, (*path, each["name"]))) for each in schema["fields"]]

        def decode(data: bytes, at: int) -> tuple[Any, int]:
            record = {}
            for name, decode_field in fields:
                record[name], at = decode_field(data, at)
            return record, at

        own.append(decode)
        del self._open[full]
        name = schema.get("connect.name")
        return self._converted(decode, {"name": name}, path) if type(name) is str else decode

    def _leaf(self, schema: Mapping[str, Any], path: Path) -> _Decode:
        decode, kind = _PRIMITIVES[schema["type"]]
        logical = str(schema.get("logicalType"))
        name, parameters = schema.get("connect.name"), schema.get("connect.parameters")
        if logical == "decimal" and schema["type"] == "bytes":
            name, parameters = f"{_CONNECT}Decimal", _to_parameters(schema)
        plain = logical.removeprefix(_LOCAL)
        if type(name) is not str and _LOGICAL_BASES.get(plain) == schema["type"]:
            if plain != logical:
                return self._local(decode, kind, plain)
            name = _LOGICAL[plain]
        if kind in ("float", "double"):
            return decode
        return self._converted(decode, {"type": kind, "name": name, "parameters": parameters}, path)

    def _local(self, decode: _Decode, kind: str, logical: str) -> _Decode:
        """Return what decodes times without a zone, as texts without one; schema parts have no such type."""
        convert = TypeConverters(self._nanos, {}).compile({"type": kind, "name": _LOGICAL[logical]}, (), 0)
        assert convert is not None
        return _with(decode, lambda value: convert(value).removesuffix("Z"))

    def _fixed(self, schema: Mapping[str, Any], path: Path) -> _Decode:
        size, logical = int(schema["size"]), schema.get("logicalType")
        if logical == "uuid" and size == 16:
            return _with(lambda data, at: _take(data, at, size), lambda found: str(UUID(bytes=found)))
        if logical == "duration" and size == 12:
            return _with(lambda data, at: _take(data, at, size), _to_duration)
        decode = _with(lambda data, at: _take(data, at, size), lambda found: b64encode(found).decode())
        if logical == "decimal":
            connect = {"type": "bytes", "name": f"{_CONNECT}Decimal", "parameters": _to_parameters(schema)}
            return self._converted(decode, connect, path)
        return decode

    def _converted(self, decode: _Decode, connect: Mapping[str, Any], path: Path) -> _Decode:
        convert = self._converters.compile(dict(connect), path, 0)
        return decode if convert is None else _with(decode, convert)


def _with(decode: _Decode, convert: Callable[[Any], Any]) -> _Decode:
    def decode_converted(data: bytes, at: int) -> tuple[Any, int]:
        value, at = decode(data, at)
        return convert(value), at

    return decode_converted


def _of_index(values: Sequence[Any]) -> _Decode:
    """Return what decodes the index of one of some values."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _decode_long(data, at)
        if index < 0:
            raise _NotDecodedError
        return values[index], at

    return decode


def _branches(decoders: Sequence[_Decode]) -> _Decode:
    """Return what decodes a union: the value of its branch alone."""
    choose = _of_index(decoders)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        branch: _Decode
        branch, at = choose(data, at)
        return branch(data, at)

    return decode


def _items(decode_item: _Decode) -> _Decode:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        items: list[Any] = []
        while True:
            count, at = _decode_long(data, at)
            if count < 0:
                count = -count
                _, at = _decode_long(data, at)
            if not count:
                return items, at
            if count > len(data):  # items without bytes could be any number
                raise _NotDecodedError
            for _ in range(count):
                item, at = decode_item(data, at)
                items.append(item)

    return decode


def _entries(decode_value: _Decode) -> _Decode:
    def decode_entry(data: bytes, at: int) -> tuple[Any, int]:
        key, at = _decode_text(data, at)
        value, at = decode_value(data, at)
        return (key, value), at

    return _with(_items(decode_entry), dict)


def _full_name(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace of the names in it."""
    name, space = schema["name"], schema.get("namespace", space)
    full = name if "." in name or not space else f"{space}.{name}"
    return full, full.rpartition(".")[0]


def _to_parameters(schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the scale and the precision of a decimal as a schema part of Kafka Connect has them."""
    return {"scale": str(schema.get("scale", 0)), "connect.decimal.precision": str(schema.get("precision"))}


def _to_duration(found: bytes) -> dict[str, JsonDocument]:
    names = ("months", "days", "milliseconds")
    return {name: JsonNumber(int.from_bytes(found[4 * at : 4 * at + 4], "little")) for at, name in enumerate(names)}
