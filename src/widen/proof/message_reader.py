"""Messages that are not JSON as the proof reads them: Avro behind the number of its schema, and decoded by a function.

Source: docs/guide/typed-json.md#messages; the Avro specification; Confluent's wire format
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from widen.json.dialect import Dialect
from widen.log.message_decoders import UnknownSchema, fetch_schema, find_function
from widen.proof.connect_json import ConnectJson
from widen.proof.json_reader import Json, NumberToken, to_text
from widen.proof.typed_json import TypedJson

_TEXT = b"base64:"
_HEAD = struct.Struct(">bI")

_DATA, _TIME = "org.apache.kafka.connect.data.", "io.debezium.time."
_NAMES: Mapping[tuple[str, str], str] = {
    ("int", "date"): _DATA + "Date",
    ("int", "time-millis"): _DATA + "Time",
    ("long", "time-micros"): _TIME + "MicroTime",
    ("long", "timestamp-millis"): _DATA + "Timestamp",
    ("long", "timestamp-micros"): _TIME + "MicroTimestamp",
    ("long", "timestamp-nanos"): _TIME + "NanoTimestamp",
}


def typed_json_of(dialect: Dialect | None) -> TypedJson | ConnectJson | DecodedMessages | None:
    """Return what reads texts in a dialect; None if they are plain JSON."""
    if dialect is None or dialect.is_plain:
        return None
    if dialect.function:
        return DecodedMessages(find_function("dialect", dialect.function))
    if dialect.registry:
        return RegisteredMessages(dialect)
    return ConnectJson(dialect) if dialect.has_schemas else TypedJson(dialect)


class DecodedMessages:
    """Reads messages as a function decodes them; it has no second form."""

    def __init__(self, decode: Callable[[bytes], str | bytes | None]) -> None:
        self._decode = decode

    def plain_texts(self, texts: Sequence[bytes]) -> list[bytes]:
        """Return texts in plain JSON."""
        return [plain for text in texts for plain in self.read(text)]

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the JSON of a message."""
        message = _message_of(text)
        try:
            found = self._decode(message)
        except ValueError:
            found = _to_words(message)
        if found is not None:
            yield found if isinstance(found, bytes) else found.encode()


def _message_of(text: bytes) -> bytes:
    try:
        return base64.b64decode(text[len(_TEXT) :], validate=True) if text[: len(_TEXT)] == _TEXT else text
    except ValueError:
        return text


def _to_words(message: bytes) -> bytes:
    try:
        is_text = "\0" not in message.decode()
    except UnicodeDecodeError:
        is_text = False
    return message if is_text and message else _TEXT + base64.b64encode(message)


class RegisteredMessages(ConnectJson):
    """Reads messages with the number of a schema."""

    def __init__(self, dialect: Dialect) -> None:
        super().__init__(dialect)
        self._registry = dialect.registry
        self._unknown: set[int] = set()

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the texts in plain JSON for a message."""
        message = _message_of(text)
        if not message.startswith(b"\0"):
            yield from super().read(text)
            return
        try:
            definitions = self._find_schema(message)
            if definitions:
                yield to_text(self._read_record(definitions, message)).encode()
                return
        except (_NotAvroError, struct.error, ValueError, LookupError, TypeError, RecursionError):
            yield _to_words(message)
            return
        yield from super().read(message[_HEAD.size :])

    def _find_schema(self, message: bytes) -> Sequence[Any]:
        _, number = _HEAD.unpack_from(message)
        try:
            if number not in self._unknown:
                return fetch_schema(self._registry, number).definitions
        except UnknownSchema:
            self._unknown.add(number)
        raise _NotAvroError

    def _read_record(self, definitions: Sequence[Any], message: bytes) -> dict[str, Json]:
        names: dict[str, tuple[Any, str]] = {}
        for each in definitions:
            _collect_names(each, "", names)
        value = _MessageBytes(message, _HEAD.size, names)
        record = self._read(definitions[-1], "", value)
        if value.at != len(message) or not isinstance(record, dict):
            raise _NotAvroError
        return record

    def _read(self, schema: Any, space: str, value: _MessageBytes) -> Json:
        if isinstance(schema, list):
            return self._read(schema[value.index(len(schema))], space, value)
        if isinstance(schema, str):
            if schema not in _PLAIN:
                return self._read(*value.named(schema, space), value)
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str) or not (kind in _PLAIN or kind in _WITH_PARTS):
            return self._read(kind, space, value)
        if kind in ("array", "map"):
            inner = schema["items" if kind == "array" else "values"]
            if kind == "array":
                return [self._read(inner, space, value) for _ in value.blocks()]
            return {value.text(): self._read(inner, space, value) for _ in value.blocks()}
        if kind == "enum":
            return schema["symbols"][value.index(len(schema["symbols"]))]
        if kind == "fixed":
            return self._typed_bytes(schema, value.take(schema["size"]))
        if kind in ("record", "error"):
            space = _names_of(schema, space)[1]
            fields = {each["name"]: self._read(each["type"], space, value) for each in schema["fields"]}
            return self._by_type(fields, {"name": schema.get("connect.name")}, 0)
        return self._typed_leaf(schema, kind, _PLAIN[kind](value))

    def _typed_leaf(self, schema: Mapping[str, Any], kind: str, plain: Json) -> Json:
        if isinstance(plain, bytes):
            return self._typed_bytes(schema, plain)
        logical = schema.get("logicalType")
        name, is_local = schema.get("connect.name"), False
        if not isinstance(name, str):
            is_local = isinstance(logical, str) and logical.startswith("local-")
            name = _NAMES.get((kind, logical[6:] if is_local else logical)) if isinstance(logical, str) else None
        found = self._by_type(plain, {"name": name, "parameters": schema.get("connect.parameters")}, 0)
        return found.removesuffix("Z") if is_local and name else found

    def _typed_bytes(self, schema: Mapping[str, Any], data: bytes) -> Json:
        logical, is_fixed = schema.get("logicalType"), schema["type"] == "fixed"
        text = base64.b64encode(data).decode()
        if logical == "decimal":
            return self._by_type(
                text, {"name": _DATA + "Decimal", "parameters": {"scale": f"{schema.get('scale', 0)}"}}, 0
            )
        if is_fixed and logical == "uuid" and len(data) == 16:
            digits = data.hex()
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        if is_fixed and logical == "duration" and len(data) == 12:
            counts = struct.unpack("<3I", data)
            return dict(zip(("months", "days", "milliseconds"), map(_to_token, counts), strict=True))
        if is_fixed or not isinstance(schema.get("connect.name"), str):
            return text
        of_kind = {"name": schema["connect.name"], "parameters": schema.get("connect.parameters")}
        return self._by_type(text, of_kind, 0)


class _NotAvroError(Exception):
    """A message is not as its schema says."""


class _MessageBytes:
    """The rest of a message."""

    def __init__(self, data: bytes, at: int, names: Mapping[str, tuple[Any, str]]) -> None:
        self._data, self.at, self._names = data, at, names

    def named(self, name: str, space: str) -> tuple[Any, str]:
        """Return the schema of a name, and the namespace around it."""
        inside = f"{space}.{name}" if space and "." not in name else name
        return self._names[inside] if inside in self._names else self._names[name]

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self._data[self.at : self.at + size] if size >= 0 else b""
        if len(found) != size:
            raise _NotAvroError
        self.at += size
        return found

    def whole(self) -> int:
        """Return the next integer."""
        number = 0
        for place in range(10):
            (byte,) = self.take(1)
            number += (byte % 128) << 7 * place
            if byte < 128:
                return number // 2 if number % 2 == 0 else -(number // 2) - 1
        raise _NotAvroError

    def index(self, count: int) -> int:
        """Return the next integer, which is one of so many."""
        number = self.whole()
        if number not in range(count):
            raise _NotAvroError
        return number

    def text(self) -> str:
        """Return the next string."""
        return self.take(self.whole()).decode()

    def boolean(self) -> bool:
        """Return the next boolean."""
        return self.take(1) != b"\0"

    def double(self, form: str) -> Json:
        """Return the next number with a fraction."""
        (number,) = struct.unpack(form, self.take(struct.calcsize(form)))
        if number != number:
            return NumberToken("NaN")
        is_finite = abs(number) != float("inf")
        return NumberToken(number if is_finite else "Infinity" if number > 0 else "-Infinity")

    def blocks(self) -> Iterator[int]:
        """Yield a number for each of the next items."""
        while count := self.whole():
            if count < 0:
                self.whole()
            if abs(count) > len(self._data):
                raise _NotAvroError
            yield from range(abs(count))


def _to_token(number: int) -> NumberToken:
    return NumberToken(number)


_PLAIN: Mapping[str, Callable[[_MessageBytes], Any]] = {
    "null": lambda value: None,
    "boolean": _MessageBytes.boolean,
    "int": lambda value: _to_token(value.whole()),
    "long": lambda value: _to_token(value.whole()),
    "float": lambda value: value.double("<f"),
    "double": lambda value: value.double("<d"),
    "bytes": lambda value: value.take(value.whole()),
    "string": _MessageBytes.text,
}
_WITH_PARTS = ("array", "map", "record", "error", "enum", "fixed")


def _names_of(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name of a type, and the namespace of the names in it."""
    name, space = schema["name"], schema.get("namespace", space)
    full = f"{space}.{name}" if space and "." not in name else name
    return full, full[: max(full.rfind("."), 0)]


def _collect_names(schema: Any, space: str, names: dict[str, tuple[Any, str]]) -> None:
    """Note the named types in a schema."""
    if isinstance(schema, list):
        for each in schema:
            _collect_names(each, space, names)
    elif isinstance(schema, dict):
        inner = [schema.get(key) for key in ("items", "values")]
        if isinstance(schema["type"], str) and "name" in schema:
            full, inside = _names_of(schema, space)
            names[full], space = (schema, space), inside
            inner += [each["type"] for each in schema.get("fields", ())]
        elif not isinstance(schema["type"], str):
            inner.append(schema["type"])
        for each in inner:
            _collect_names(each, space, names)
