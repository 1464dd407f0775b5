"""Partition values: their serialized form in the log and in directory names, and how it is parsed.

Source: PROTOCOL.md#partition-value-serialization
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction
from functools import partial
from typing import TypeAlias
from urllib.parse import unquote

from widen.model.types import DataType, DecimalType, StructType, quote_name

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""The directory name that Hive and Spark use for null."""

NULL_TEXTS = ("", HIVE_NULL)
"""The texts that stand for null in partitions, so that no partition holds them."""

NUL = "\0"
"""What no directory has in its name."""


class UnknownValue(Enum):
    """The result for text that is not a value of its type, or whose value depends on an unknown time zone."""

    UNKNOWN = "unknown"


UNKNOWN = UnknownValue.UNKNOWN

_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,5})?", re.ASCII)
_SPACES = " \t\n\r\v\f"
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")

Scalar: TypeAlias = int | float | Decimal | str | bool | date | datetime
"""A value that can be compared. A timestamp is an aware datetime, a timestamp_ntz a naive one."""


def parse_partition_value(text: str | None, data_type: DataType) -> Scalar | UnknownValue | None:
    """Return the value of a serialized partition value.

    Args:
        text: The text in the log. None and the empty string are null for every type.
        data_type: The current type of the column, which may be wider than the type it was written with.

    Returns:
        The value, None for null, or `UNKNOWN`. Text in a form that no writer of the type produces is unknown, even if
        Spark could parse it. A timestamp without a zone is unknown, because it used the zone of the writer.

    Source: PROTOCOL.md#partition-value-serialization

    Example:
        >>> parse_partition_value("1", DecimalType(12, 2))
        Decimal('1')
    """
    if text is None or text == "":
        return None
    reader = partial(_decimal, data_type) if isinstance(data_type, DecimalType) else _READERS.get(str(data_type))
    if reader is None:
        return UNKNOWN
    try:
        return reader(text.strip(_SPACES) if reader is not str else text)
    except (ValueError, InvalidOperation, OverflowError, KeyError):
        return UNKNOWN


def parse_timestamp(text: str) -> datetime | None:
    """Parse a timestamp or a date in ISO format; a date becomes midnight.

    Returns:
        The timestamp, aware if it has a zone and naive otherwise; None if the text has another form or is out of the
        years 1 to 9999.
    """
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        timestamp = datetime.fromisoformat(
            f"{day}T{clock or '00:00:00'}{'+00:00' if zone in ('Z', 'z') else zone or ''}"
        )
    except ValueError:
        return None
    return timestamp + timedelta(microseconds=int((fraction or "")[:6].ljust(6, "0")))


def to_float32(value: float) -> float:
    """Return the nearest 32-bit float."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def is_float32(value: float) -> bool:
    """Return whether a number is the same as a 32-bit float."""
    try:
        return to_float32(value) == value
    except OverflowError:
        return False


def is_decimal(number: Decimal, data_type: DecimalType) -> bool:
    """Return whether a decimal type can represent the number exactly."""
    if not number:
        return True
    if not -data_type.scale <= number.adjusted() < data_type.precision - data_type.scale:
        return False
    return (Fraction(number) / Fraction(1, 10**data_type.scale)).denominator == 1


def _decimal(data_type: DecimalType, text: str) -> Decimal | UnknownValue:
    number = Decimal(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and is_decimal(number, data_type) else UNKNOWN


def _to_integer(bits: int, text: str) -> int | UnknownValue:
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -(2**bits) <= 2 * number < 2**bits else UNKNOWN


def _to_double(text: str) -> float | UnknownValue:
    number = float(text) if _NUMBER.fullmatch(text) or text.lstrip("+-").lower() in _INFINITE else math.nan
    return UNKNOWN if math.isnan(number) else number


_INFINITE = ("inf", "infinity")


def _to_float(text: str) -> float | UnknownValue:
    number = _to_double(text)
    return number if isinstance(number, UnknownValue) else to_float32(number)


def _to_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _to_date(text: str) -> date | UnknownValue:
    timestamp = parse_timestamp(text)
    return UNKNOWN if timestamp is None or len(text) != len("2024-01-01") else timestamp.date()


def _to_timestamp(text: str) -> datetime | UnknownValue:
    timestamp = parse_timestamp(text)
    return UNKNOWN if timestamp is None or timestamp.tzinfo is None else timestamp.astimezone(timezone.utc)


def _to_timestamp_ntz(text: str) -> datetime | UnknownValue:
    timestamp = parse_timestamp(text)
    return UNKNOWN if timestamp is None or timestamp.tzinfo is not None else timestamp


_READERS: Mapping[str, Callable[[str], Scalar | UnknownValue]] = {
    "byte": partial(_to_integer, 8),
    "short": partial(_to_integer, 16),
    "integer": partial(_to_integer, 32),
    "long": partial(_to_integer, 64),
    "float": _to_float,
    "double": _to_double,
    "string": str,
    "boolean": _to_boolean,
    "date": _to_date,
    "timestamp": _to_timestamp,
    "timestamp_ntz": _to_timestamp_ntz,
}


def directory_values(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return the partition columns and values in the directories of a path, outermost first, as Spark discovers them.

    From the file upwards, Spark skips directories that are not partitions, then reads partitions until another
    directory that is not one.

    Source: Spark's partition discovery.

    Example:
        >>> directory_values("job/p=1/q=x%2520y/f.parquet")
        (('p', '1'), ('q', 'x y'))
    """
    values: list[tuple[str, str | None]] = []
    for directory in reversed(unquote(path).split("/")[:-1]):
        name, equals, text = directory.partition("=")
        if equals:
            values.append((unescape(name), None if text == HIVE_NULL else unescape(text)))
        elif values:
            break
    return tuple(reversed(values))


def directory_name(column: str, text: str | None) -> str:
    """Return the name of a partition directory, with special characters escaped.

    Source: Hive's and Spark's escaping of partition directories.

    Example:
        >>> directory_name("p", "a/b"), directory_name("p", None)
        ('p=a%2Fb', 'p=__HIVE_DEFAULT_PARTITION__')
    """
    return f"{_escape(column)}={_escape(text) if text else HIVE_NULL}"


def _escape(text: str) -> str:
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


_ESCAPED = frozenset(map(chr, range(1, 32))) | frozenset("\"#%'*/:=?\\\x7f{[]^")


def unescape(text: str) -> str:
    """Return an escaped directory name unescaped: every ``%`` with two hex digits is one character.

    Source: Hive's and Spark's escaping of partition directories.
    """
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def has_no_partition(text: str | None) -> bool:
    """Return whether no partition of strings holds a text; see `partition_limits`."""
    return text is not None and (text in NULL_TEXTS or NUL in text)


def partition_limits(schema: StructType, partition_columns: Iterable[str]) -> Mapping[str, str]:
    """Return SQL conditions that allow partitions to hold texts, by partition column.

    The log and the names of directories have the same text for the empty string and for null, and names have no NUL.

    Source: PROTOCOL.md#partition-value-serialization
    """
    types = {field.name: str(field.type) for field in schema}
    limits = {}
    for name in partition_columns:
        data_type = types.get(name, "")
        if data_type in _NULL_LITERALS:
            limits[_limit_name(name)] = _condition(name, data_type)
    return limits


def limit_of_partition(name: str) -> tuple[str, str]:
    """Return the name and the condition that `partition_limits` has for a partition column of strings."""
    return _limit_name(name), _condition(name, "string")


def _limit_name(name: str) -> str:
    return f"partition column {name}"


def _condition(name: str, data_type: str) -> str:
    column, (nul, *literals) = quote_name(name), _NULL_LITERALS[data_type]
    return f"{column} IS NULL OR ({column} NOT IN ({', '.join(literals)}) AND NOT contains({column}, {nul}))"


_NULL_LITERALS: Mapping[str, Sequence[str]] = {
    "string": ["char(0)", *(f"'{text}'" for text in NULL_TEXTS)],
    "binary": [f"X'{text.encode().hex()}'" for text in (NUL, *NULL_TEXTS)],
}
"""NUL, and the texts that stand for null, as literals of SQL."""


def is_hive_path(path: str, columns: Sequence[str], values: Mapping[str, str | None]) -> bool:
    """Return whether the directories of a path have exactly the partition values of the log."""
    # Spark's partition discovery finds no partitions in such paths.
    if "_temporary" in path:
        return False
    return directory_values(path) == tuple((column, values.get(column) or None) for column in columns)
