"""Typed JSON as the proof reads it: values without the objects that say their types.

Source: docs/guide/typed-json.md
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Final

from widen.json.dialect import Dialect
from widen.proof.json_reader import (
    MAX_DEPTH,
    Json,
    NumberToken,
    depth_of,
    read_json,
    split_into_records,
    to_text,
)

_AS_IT_IS: Final = object()
_MARK = b"\xef\xbb\xbf"
_WORDS = ("NaN", "Infinity", "-Infinity")
_DAY_MS = 86_400_000


class TypedJson:
    """Reads texts in a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._root = dialect.root
        self._types = {name: (word, field) for name, word, field in dialect.kinds}

    def plain_texts(self, texts: Sequence[bytes]) -> list[bytes]:
        return [plain for text in texts for plain in self.read(text)]

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the texts in plain JSON for a text, which may have several records; another text as it is."""
        record = read_record(text)
        if record is not None:
            plain = self._inside(record)
            # Where nothing is wrapped, the text stays as it is, with its spaces.
            yield text if plain == record else to_text(plain).encode()
        else:
            for part in split_into_records(text, allows_nan=True):
                yield from [text] if part == text else self.read(part)

    def _inside(self, record: dict[str, Json]) -> dict[str, Json]:
        """Return a record whose own fields may be named like types."""
        below, kept = record.get(self._root) if self._root else None, kept_fields(record)
        fields = record
        if isinstance(below, dict) and len(record) - len(kept) == 1 and not set(below) & set(kept):
            fields = below | kept
        return {key: self._bare(value) for key, value in fields.items()}

    def _bare(self, value: Json) -> Json:
        if isinstance(value, dict):
            for name, content in value.items() if len(value) == 1 else ():
                word, field = self._types.get(name, ("", ""))
                found = self._content(word, field, content)
                if found is not _AS_IT_IS:
                    return found
            return dict(zip(value, map(self._bare, value.values()), strict=True))
        return [*map(self._bare, value)] if isinstance(value, list) else value

    def _content(self, word: str, field: str, value: Json) -> Json:
        if field and isinstance(value, dict) and set(value) <= {field}:
            value, field = value.get(field, {} if word == "object" else []), ""
        is_string = type(value) is str
        if word == "object" and not field and isinstance(value, dict):
            return dict(zip(value, map(self._bare, value.values()), strict=True))
        if word == "list" and not field and isinstance(value, list):
            return [*map(self._bare, value)]
        if word == "text" and is_string:
            return value
        if word == "boolean" and (value is True or value is False):
            return value
        if word == "null" and (value is None or value is True or value == "NULL_VALUE"):
            return None
        if word == "number":
            return _number(value)
        if word == "numbers" and isinstance(value, list):
            numbers = [*map(_number, value)]
            return numbers if all(each is not _AS_IT_IS for each in numbers) else _AS_IT_IS
        if word == "date":
            bare = self._bare(value)
            return _instant(bare) if isinstance(bare, NumberToken) else bare if type(bare) is str else _AS_IT_IS
        return _bytes(value) if word == "binary" else _AS_IT_IS


def kept_fields(record: dict[str, Json]) -> dict[str, Json]:
    """Return the fields that a record has from the levels above it."""
    return {key: value for key, value in record.items() if key[:8] == "_parent_"}


def read_record(text: bytes) -> dict[str, Json] | None:
    """Return the record that a text is; None for other JSON, and for one that is nested too deeply."""
    try:
        value = read_json(text.removeprefix(_MARK).decode())
        if b"\\u" in text:
            to_text(value).encode()  # half of a surrogate pair has no bytes
        has_depth = text.count(b"{") + text.count(b"[") > MAX_DEPTH
        is_record = isinstance(value, dict) and not (has_depth and depth_of(value) > MAX_DEPTH)
        return value if is_record else None
    except (ValueError, RecursionError):
        return None


def _number(value: Json) -> Json:
    if isinstance(value, NumberToken) or value in _WORDS:
        return NumberToken(value)
    if type(value) is not str or value.strip() != value:
        return _AS_IT_IS
    try:
        read = read_json(value)
    except (ValueError, RecursionError):
        return _AS_IT_IS
    return read if isinstance(read, NumberToken) else _AS_IT_IS


def _instant(token: NumberToken) -> Json:
    """Return the UTC time of milliseconds since 1970 by the Gregorian calendar, if it has a year of four digits."""
    digits = token.removeprefix("-")
    if not digits.isdecimal() or len(digits) > 15:
        return _AS_IT_IS
    days, rest = divmod(int(token), _DAY_MS)
    if (day := spell_day(days)) is None:
        return _AS_IT_IS
    seconds, ms = divmod(rest, 1_000)
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{day}T{clock}" + (f".{ms:03}Z" if ms else "Z")


def spell_day(days: int) -> str | None:
    """Return the day so many days after 1970-01-01 by the Gregorian calendar; None if its year has not four digits."""
    # The year begins in March here, so that the leap day is its last one; eras have 400 years.
    era, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * era + (month < 3)
    return f"{year:04}-{month:02}-{day:02}" if 1 <= year <= 9999 else None


def _bytes(value: Json) -> Json:
    if not isinstance(value, dict) or {*value} != {"base64", "subType"}:
        return _AS_IT_IS
    text, kind = value["base64"], value["subType"]
    if {type(text), type(kind)} != {str}:
        return _AS_IT_IS
    if kind == "04":
        try:
            digits = b64decode(text, validate=True).hex()
        except ValueError:
            return value
        if len(digits) == 32:
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return text if kind == "00" else value
