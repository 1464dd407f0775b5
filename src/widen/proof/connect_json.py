"""JSON of Kafka Connect with a schema part, as the proof reads it: the payload, with its values by their types.

Source: docs/guide/typed-json.md#connect
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal

from widen.json.dialect import Dialect
from widen.proof.json_reader import (
    Json,
    NumberToken,
    split_into_records,
    to_text,
)
from widen.proof.typed_json import TypedJson, kept_fields, read_record, spell_day

_KAFKA, _TIME, _DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."
_PLACEHOLDER = b"__debezium_unavailable_value"

_DAYS = {f"{_KAFKA}Date", f"{_TIME}Date"}
_CLOCKS = {f"{_KAFKA}Time": 3, f"{_TIME}Time": 3, f"{_TIME}MicroTime": 6, f"{_TIME}NanoTime": 9}
_MOMENTS = {
    f"{_KAFKA}Timestamp": 3,
    f"{_TIME}Timestamp": 3,
    f"{_TIME}MicroTimestamp": 6,
    f"{_TIME}NanoTimestamp": 9,
}
"""How many digits after the seconds the numbers of each type have."""

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_MAX_BYTES, _MAX_SCALE, _MAX_TYPES = 1_024, 10_000, 100


def typed_json_of_texts(dialect: Dialect | None) -> TypedJson | None:
    """Return what reads the rows that events have as texts: schema parts say nothing about them."""
    return None if dialect is None else TypedJson(dialect.for_texts or dialect)


class ConnectJson:
    """Reads texts with schema parts."""

    def __init__(self, dialect: Dialect) -> None:
        self._cuts = dialect.nanos != "text"

    def plain_texts(self, texts: Sequence[bytes]) -> list[bytes]:
        return [plain for text in texts for plain in self.read(text)]

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the texts in plain JSON for a text, which may have several records; another text as it is."""
        if b"payload" not in text and b"\\u" not in text:
            yield text
            return
        value = read_record(text)
        if value is None:
            for part in split_into_records(text, allows_nan=True):
                yield from [text] if part == text else self.read(part)
            return
        kept = kept_fields(value)
        is_pair = {*value} - {*kept} == {"schema", "payload"}
        if is_pair and (value["schema"] is None or isinstance(value["schema"], dict)):
            payload = value["payload"]
            if payload is None:
                return
            if isinstance(payload, dict) and not {*payload} & {*kept}:
                yield to_text(self._by_type(payload, value["schema"], 0) | kept).encode()
                return
        yield text

    def _by_type(self, value: Json, schema: Json, level: int) -> Json:
        if value is None or not isinstance(schema, dict) or level > _MAX_TYPES:
            return value
        name, kind = schema.get("name"), schema.get("type")
        name = name if type(name) is str else ""
        parameters = schema.get("parameters")
        given: Mapping[str, Json] = parameters if isinstance(parameters, dict) else {}
        if name == f"{_KAFKA}Decimal":
            return _decimal(value, _scale(given.get("scale")))
        if name == f"{_DATA}VariableScaleDecimal":
            is_pair = isinstance(value, dict) and {*value} == {"scale", "value"}
            found = (
                is_pair and isinstance(value["scale"], NumberToken) and _decimal(value["value"], _scale(value["scale"]))
            )
            return found if isinstance(found, NumberToken) else value
        if name in _DAYS:
            return _day(value)
        if name in _CLOCKS:
            return _clock(value, _CLOCKS[name])
        if name in _MOMENTS:
            return self._moment(value, _MOMENTS[name])
        if name == f"{_TIME}ZonedTimestamp":
            return self._zoned(value)
        if name == f"{_DATA}Bits":
            return _bit_text(value, given.get("length"))
        return self._inside(value, schema, kind, level + 1)

    def _inside(self, value: Json, schema: Mapping[str, Json], kind: Json, level: int) -> Json:
        if kind == "struct" and isinstance(value, dict):
            fields = schema.get("fields")
            types = {
                each["field"]: each
                for each in (fields if isinstance(fields, list) else ())
                if isinstance(each, dict) and type(each.get("field")) is str
            }
            return {key: self._by_type(each, types.get(key), level) for key, each in value.items()}
        if kind == "array" and isinstance(value, list) and not _stands_for_none(value):
            return [self._by_type(each, schema.get("items"), level) for each in value]
        if kind == "map":
            keys, values = schema.get("keys"), schema.get("values")
            if not isinstance(keys, dict) or keys.get("type") == "string":
                is_object = isinstance(value, dict)
                return {key: self._by_type(each, values, level) for key, each in value.items()} if is_object else value
            if isinstance(value, list) and not _stands_for_none(value):
                return [
                    [self._by_type(pair[0], keys, level), self._by_type(pair[1], values, level)]
                    if isinstance(pair, list) and len(pair) == 2
                    else pair
                    for pair in value
                ]
        if kind in ("float", "double", "float32", "float64") and value in ("NaN", "Infinity", "-Infinity"):
            return NumberToken(value)
        return value

    def _moment(self, value: Json, digits: int) -> Json:
        if not (count := _integer(value)):
            return value
        seconds, rest = divmod(int(count), 10**digits)
        return self._spell(str(value), seconds, f"{rest:0{digits}}".ljust(9, "0"))

    def _zoned(self, value: Json) -> Json:
        parts = re.fullmatch(
            r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d))?(?:\.(\d{1,9}))?(?:Z|\+00:00)",
            value if type(value) is str else "",
            re.ASCII,
        )
        if parts is None:
            return value
        year, month, day, hour, minute, second = (int(each or 0) for each in parts.groups()[:6])
        is_day = year and 1 <= month <= 12 and 1 <= day <= _length_of_month(year, month)
        if not is_day or hour > 23 or minute > 59 or second > 59:
            return value
        return self._clocked(value[:10], f"{hour:02}:{minute:02}:{second:02}", (parts[7] or "").ljust(9, "0"))

    def _spell(self, value: Json, seconds: int, fraction: str) -> Json:
        days, second = divmod(seconds, 86_400)
        day = spell_day(days)
        clock = f"{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}"
        return value if day is None else self._clocked(day, clock, fraction)

    def _clocked(self, day: str, clock: str, fraction: str) -> str:
        # With the rule error there is no load with such a time.
        finer = fraction if fraction[6:].strip("0") and not self._cuts else fraction[:6]
        return f"{day}T{clock}" + (f".{finer}Z" if finer.strip("0") else "Z")


def _integer(value: Json) -> str:
    """Return an integer of at most 19 digits; empty for another value."""
    digits = value.removeprefix("-") if isinstance(value, NumberToken) else ""
    return value if digits.isdecimal() and len(digits) < 20 else ""


def _scale(value: Json) -> int | None:
    text = value if isinstance(value, str) else ""
    is_whole = re.fullmatch(r"-?(0|[1-9]\d{0,18})", text, re.ASCII)
    return int(text) if is_whole and abs(int(text)) <= _MAX_SCALE else None


def _octets(value: Json) -> bytes:
    if type(value) is not str:
        return b""
    try:
        found = b64decode(value.encode(), validate=True)
    except ValueError:
        return b""
    return b"" if found == _PLACEHOLDER else found


def _decimal(value: Json, scale: int | None) -> Json:
    octets = _octets(value)
    if scale is None or not octets or len(octets) > _MAX_BYTES:
        return value
    number = int(octets.hex(), 16) - (1 << 8 * len(octets)) * (octets[0] >> 7)
    return NumberToken(f"{Decimal(number).scaleb(-scale, _EXACT):f}")


def _stands_for_none(items: list[Json]) -> bool:
    return [*map(str, _PLACEHOLDER)] == items and all(isinstance(each, NumberToken) for each in items)


def _day(value: Json) -> Json:
    count = _integer(value)
    return (spell_day(int(count)) if count else None) or value


def _clock(value: Json, digits: int) -> Json:
    if not (count := _integer(value)):
        return value
    number = int(count)
    whole = f"{abs(number):0{digits + 1}}"
    seconds, fraction = int(whole[:-digits]), whole[-digits:].ljust(9, "0")
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    finer = fraction if fraction[6:] != "000" else fraction[:6]
    return f"{'-' * (number < 0)}{hours:02}:{minute:02}:{second:02}.{finer}"


def _length_of_month(year: int, month: int) -> int:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 28 + is_leap if month == 2 else 30 + (month in (1, 3, 5, 7, 8, 10, 12))


def _bit_text(value: Json, length: Json) -> Json:
    octets, count = _octets(value), _integer(NumberToken(length))
    if not octets or not count or int(count) < 1:
        return value
    bits = "".join(f"{octet:08b}" for octet in reversed(octets))
    width = min(int(count), len(bits))
    return value if "1" in bits[: len(bits) - width] else bits[len(bits) - width :]
