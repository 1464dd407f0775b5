"""The JSON of Kafka Connect with its schema part: ``{"schema": …, "payload": …}`` as plain JSON.

Each value is decoded by the type that the schema part gives it: the bytes of a decimal become a number, days since 1970
a date, and so on. A value that does not fit its type stays as it is, and so does a text that has no schema part.

Source: docs/guide/typed-json.md#connect
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from widen.errors import SourceError
from widen.json.dialect import Dialect, parse_json
from widen.json.document import BOM, JsonDocument, JsonNumber, document_to_json, split_text
from widen.json.kinds import MAX_DIGITS
from widen.json.record_path import PARENT
from widen.model.column_path import Path
from widen.model.types import DATE, LONG, TIMESTAMP, AtomicType, DecimalType

SCHEMA, PAYLOAD = "schema", "payload"

_MAX_PLANS = 64
"""How many schema parts a task remembers: a topic has one for each version of its table."""

_UNAVAILABLE = b"__debezium_unavailable_value"
"""The bytes that Debezium sends for a value that it does not have; see `widen.json.envelope.unavailable_values`."""

DeclaredTypes: TypeAlias = dict[Path, AtomicType | DecimalType]
"""The types that schema parts give to fields, by the path in the payload; without arrays and maps."""

Convert: TypeAlias = Callable[[JsonDocument], JsonDocument]


class ConnectReader:
    """Returns records as plain JSON."""

    def __init__(self, dialect: Dialect) -> None:
        self._nanos = dialect.nanos
        self._plans: dict[bytes, Convert] = {}
        self.declared: DeclaredTypes = {}
        """What the schema parts so far have said; a decimal that changes gets wider."""
        self.schema_parts = 0
        """How many of them there were."""

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the records in a text: one, several, or the items of an array. What is not a record stays as it is.

        A payload that is null, such as a tombstone, has no record.
        """
        if b'"payload"' not in text and b"\\u" not in text:
            yield text
            return
        found = _split(text)
        if found is not None:
            plain = self._read_payload(*found)
            if plain is not None:
                yield from plain
                return
        elif not isinstance(parse_json(text), dict):
            for part in split_text(text, allows_nan=True):
                yield from (part,) if part == text else self.read(part)
            return
        yield text

    def _read_payload(self, schema: bytes, payload: bytes, above: dict[str, JsonDocument]) -> list[bytes] | None:
        """Return the record of a payload, if it has one; None if the text has to stay as it is."""
        convert = self._plan(schema)
        if convert is None:
            return None
        if payload == b"null":
            return []
        document = parse_json(payload)
        if not isinstance(document, dict) or not document.keys().isdisjoint(above):
            return None
        is_whole = convert is _keep and not above
        return [payload if is_whole else document_to_json({**convert(document), **above}).encode()]

    def _plan(self, schema: bytes) -> Convert | None:
        """Return what decodes the values of a schema part; None if it is not one."""
        plan = self._plans.get(schema)
        if plan is None:
            document = parse_json(schema)
            if document is not None and not isinstance(document, dict):
                return None
            if document is None and schema != b"null":
                return None
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self.schema_parts += 1
            compiler = TypeConverters(self._nanos, self.declared)
            plan = self._plans[schema] = compiler.compile(document, (), 0) or _keep
        return plan


def _keep(value: JsonDocument) -> JsonDocument:
    return value


_TWO = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _split(text: bytes) -> tuple[bytes, bytes, dict[str, JsonDocument]] | None:
    """Return the schema part, the payload, and the fields from the levels above; None if a text has other fields, or is
    not a record.
    """
    try:
        fields = _TWO.decode(text.removeprefix(BOM))
    except msgspec.DecodeError:
        fields = {}  # it may have NaN
    if fields.keys() != {SCHEMA, PAYLOAD}:
        return _split_document(text) if not fields or fields.keys() > {SCHEMA, PAYLOAD} else None
    schema, payload = bytes(fields[SCHEMA]), bytes(fields[PAYLOAD])
    # Of a field that a text has twice, the decoder keeps one. Then the text is longer than its two values.
    rest = text.removeprefix(BOM).strip()
    begin = _BEGIN(rest)
    if begin is not None:
        first, second = (schema, payload) if begin[1] == b"schema" else (payload, schema)
        middle = _MIDDLE(rest, begin.end() + len(first))
        if middle is not None and middle[1] != begin[1] and _END(rest, middle.end() + len(second)):
            return schema, payload, {}
    return (schema, payload, {}) if parse_json(text) is not None else None


def _split_document(text: bytes) -> tuple[bytes, bytes, dict[str, JsonDocument]] | None:
    document = parse_json(text)
    if not isinstance(document, dict):
        return None
    above = {key: value for key, value in document.items() if key.startswith(PARENT)}
    if document.keys() - above.keys() != {SCHEMA, PAYLOAD}:
        return None
    schema, payload = (document_to_json(document[name]).encode() for name in (SCHEMA, PAYLOAD))
    return schema, payload, above


_NAME = rb'"(schema|payload)"\s*:\s*'
_BEGIN = re.compile(rb"\{\s*" + _NAME).match
_MIDDLE, _END = re.compile(rb"\s*,\s*" + _NAME).match, re.compile(rb"\s*\}\Z").match


class TypeConverters:
    """Makes converters from a schema part, and notes the types of its fields."""

    def __init__(self, nanos: str, declared: DeclaredTypes) -> None:
        self._declared = declared
        self._scalars: Mapping[str, Callable[[Mapping[str, Any]], tuple[Convert, AtomicType | DecimalType | None]]] = {
            "org.apache.kafka.connect.data.Decimal": _decimal,
            "io.debezium.data.VariableScaleDecimal": lambda _: (_variable_decimal, DecimalType(1, 0)),
            "org.apache.kafka.connect.data.Date": lambda _: (_to_date, DATE),
            "io.debezium.time.Date": lambda _: (_to_date, DATE),
            "org.apache.kafka.connect.data.Time": lambda _: (_time(1_000), None),
            "io.debezium.time.Time": lambda _: (_time(1_000), None),
            "io.debezium.time.MicroTime": lambda _: (_time(1_000_000), None),
            "io.debezium.time.NanoTime": lambda _: (_time(1_000_000_000), None),
            "org.apache.kafka.connect.data.Timestamp": lambda _: (_timestamp(1_000, nanos), TIMESTAMP),
            "io.debezium.time.Timestamp": lambda _: (_timestamp(1_000, nanos), TIMESTAMP),
            "io.debezium.time.MicroTimestamp": lambda _: (_timestamp(1_000_000, nanos), TIMESTAMP),
            "io.debezium.time.NanoTimestamp": lambda _: (_timestamp(1_000_000_000, nanos), TIMESTAMP),
            "io.debezium.time.ZonedTimestamp": lambda _: (_zoned(nanos), TIMESTAMP),
            "io.debezium.data.Bits": _bits,
        }

    def compile(self, schema: JsonDocument, path: Path, depth: int) -> Convert | None:
        """Return what decodes the values of a schema; None if they stay as they are."""
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return None
        name, literal = schema.get("name"), schema.get("type")
        make = self._scalars.get(name) if type(name) is str else None
        if make is not None:
            convert, declared = make(schema)
            self._declare(path, declared)
            return _or_null(convert)
        if literal == "struct":
            return self._struct(schema, path, depth)
        if literal in ("array", "map"):
            inner = self.compile(schema.get("items" if literal == "array" else "values"), path, depth + 1)
            keys = schema.get("keys")
            has_names = not isinstance(keys, dict) or keys.get("type") == "string"
            if literal == "map" and not has_names:
                return _pairs(self.compile(keys, path, depth + 1), inner)
            if inner is None:
                return None
            return _items(inner) if literal == "array" else _entries(inner)
        if literal == "int64":
            self._declare(path, LONG)
        return _to_double if literal in ("float", "double", "float32", "float64") else None

    def _struct(self, schema: Mapping[str, Any], path: Path, depth: int) -> Convert | None:
        converts: dict[str, Convert] = {}
        fields = schema.get("fields")
        for each in fields if isinstance(fields, list) else ():
            key = each.get("field") if isinstance(each, dict) else None
            if type(key) is str:
                convert = self.compile(each, (*path, key), depth + 1)
                if convert is not None:
                    converts[key] = convert
        if not converts:
            return None

        def convert_fields(value: JsonDocument) -> JsonDocument:
            if not isinstance(value, dict):
                return value
            return {key: converts[key](each) if key in converts else each for key, each in value.items()}

        return convert_fields

    def _declare(self, path: Path, declared: AtomicType | DecimalType | None) -> None:
        if declared is None:
            return
        known = self._declared.get(path)
        if isinstance(known, DecimalType) and isinstance(declared, DecimalType):
            declared = widest_decimal(known, declared) or known
        self._declared[path] = declared


_MAX_DEPTH = 100
"""A schema part whose types are nested more deeply is read up to there."""


def widest_decimal(one: DecimalType, other: DecimalType) -> DecimalType | None:
    """Return the decimal that holds the values of two; None if it would need more than 38 digits."""
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return DecimalType(precision, scale) if precision <= MAX_DIGITS else None


def _or_null(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _items(convert: Convert) -> Convert:
    return lambda value: [*map(convert, value)] if isinstance(value, list) and not _is_unavailable(value) else value


def _entries(convert: Convert) -> Convert:
    return lambda value: {k: convert(each) for k, each in value.items()} if isinstance(value, dict) else value


def _pairs(convert_key: Convert | None, convert: Convert | None) -> Convert | None:
    """Return what decodes a map with other keys than strings, which is a list of pairs."""
    if convert_key is None and convert is None:
        return None
    both = (convert_key or _keep, convert or _keep)

    def convert_pair(pair: JsonDocument) -> JsonDocument:
        is_pair = isinstance(pair, list) and len(pair) == 2
        return [each(value) for each, value in zip(both, pair, strict=True)] if is_pair else pair

    return _items(convert_pair)


def _is_unavailable(items: list[JsonDocument]) -> bool:
    return len(items) == len(_UNAVAILABLE) and items == [JsonNumber(octet) for octet in _UNAVAILABLE]


def _to_double(value: JsonDocument) -> JsonDocument:
    return JsonNumber(value) if type(value) is str and value in ("NaN", "Infinity", "-Infinity") else value


_INTEGER = re.compile("-?(?:0|[1-9][0-9]{0,18})").fullmatch


def _to_int(value: JsonDocument) -> int | None:
    return int(value) if isinstance(value, JsonNumber) and _INTEGER(value) else None


def _to_bytes(value: JsonDocument) -> bytes | None:
    if type(value) is not str:
        return None
    try:
        data = b64decode(value.encode(), validate=True)
    except ValueError:
        return None
    return None if data == _UNAVAILABLE else data


def _to_scale(value: object) -> int | None:
    """Return the scale of a decimal: in a schema part a text, in a value a number."""
    found = _INTEGER(value) if isinstance(value, str) else None
    scale = int(found[0]) if found else None
    return scale if scale is not None and abs(scale) <= _MAX_SCALE else None


_MAX_SCALE = 10_000


def _decimal(schema: Mapping[str, Any]) -> tuple[Convert, DecimalType | None]:
    parameters = schema.get("parameters")
    given = parameters if isinstance(parameters, dict) else {}
    scale, precision = _to_scale(given.get("scale")), _to_scale(given.get("connect.decimal.precision"))
    if scale is None:
        return _keep, None
    whole = max(scale, 0)
    digits = max(precision or 1, whole, 1)
    declared = DecimalType(digits, whole) if digits <= MAX_DIGITS else None
    return lambda value: _spell_decimal(value, scale), declared


def _spell_decimal(value: JsonDocument, scale: int) -> JsonDocument:
    data = _to_bytes(value)
    if not data or len(data) > _MAX_BYTES:
        return value
    number = int.from_bytes(data, "big", signed=True)
    digits = str(abs(number))
    if scale > 0:
        digits = digits.zfill(scale + 1)
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    elif scale < 0 and number:
        digits += "0" * -scale
    return JsonNumber(f"-{digits}" if number < 0 else digits)


_MAX_BYTES = 1_024
"""Python refuses to write integers of more than 4,300 digits."""


def _variable_decimal(value: JsonDocument) -> JsonDocument:
    if not isinstance(value, dict) or value.keys() != {"scale", "value"}:
        return value
    scale = _to_scale(value["scale"]) if isinstance(value["scale"], JsonNumber) else None
    plain = value if scale is None else _spell_decimal(value["value"], scale)
    return plain if isinstance(plain, JsonNumber) else value


def _to_date(value: JsonDocument) -> JsonDocument:
    days = _to_int(value)
    try:
        return value if days is None else (date(1970, 1, 1) + timedelta(days)).isoformat()
    except OverflowError:
        return value


def _time(units: int) -> Convert:
    """Return what writes times of day: hours may be more than 24 or negative, as MySQL has them.

    Args:
        units: How many units a second has.
    """

    def convert(value: JsonDocument) -> JsonDocument:
        count = _to_int(value)
        if count is None:
            return value
        seconds, rest = divmod(abs(count), units)
        nanoseconds = rest * (1_000_000_000 // units)
        fraction = f"{nanoseconds:09}" if nanoseconds % 1_000 else f"{nanoseconds // 1_000:06}"
        sign = "-" if count < 0 else ""
        return f"{sign}{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction}"

    return convert


def _timestamp(units: int, nanos: str) -> Convert:
    """Return what writes times since 1970 in UTC; times outside of the years 1 to 9999 as the text of their number.

    A number in a field of timestamps would be read as a time in the unit of its size.

    Args:
        units: How many units a second has.
    """

    def convert(value: JsonDocument) -> JsonDocument:
        count = _to_int(value)
        if count is None:
            return value
        micros, rest = divmod(count * 1_000_000, units)
        try:
            time = datetime(1970, 1, 1) + timedelta(microseconds=micros)
        except OverflowError:
            return str(value)
        return _spell_time(time, rest * 1_000 // units, nanos)

    return convert


def _spell_time(time: datetime, nanoseconds: int, nanos: str) -> str:
    """Return a time in UTC as text."""
    if nanoseconds and nanos == "error":
        raise SourceError(source="A record", reason="it has a time with nanoseconds", fix=_NANOS)
    if nanoseconds and nanos == "text":
        return f"{time.isoformat(timespec='microseconds')}{nanoseconds:03}Z"
    return time.isoformat(timespec="microseconds" if time.microsecond else "seconds") + "Z"


_NANOS = (
    "A timestamp holds microseconds. Say what becomes of the other digits: --nanos truncate cuts them off, and with "
    "--nanos text records with such a time have the field as text."
)

_ZONED = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]{1,9}))?(?:Z|\+00:00)"
).fullmatch


def _zoned(nanos: str) -> Convert:
    """Return what writes times with a zone: in UTC with microseconds. Times with another offset stay as they are."""

    def convert(value: JsonDocument) -> JsonDocument:
        found = _ZONED(value) if type(value) is str else None
        if found is None:
            return value
        try:
            time = datetime.fromisoformat(found[1] + (found[2] or ":00"))
        except ValueError:
            return value
        digits = (found[3] or "").ljust(9, "0")
        return _spell_time(time.replace(microsecond=int(digits[:6])), int(digits[6:]), nanos)

    return convert


def _bits(schema: Mapping[str, Any]) -> tuple[Convert, None]:
    parameters = schema.get("parameters")
    length = _to_int(JsonNumber(parameters.get("length"))) if isinstance(parameters, dict) else None

    def convert(value: JsonDocument) -> JsonDocument:
        data = _to_bytes(value)
        if not data or not length or length < 1:
            return value
        # The bytes of a column of variable length say how long it is at most.
        width, number = min(length, 8 * len(data)), int.from_bytes(data, "little")
        return value if number >> width else f"{number:0{width}b}"

    return convert, None
