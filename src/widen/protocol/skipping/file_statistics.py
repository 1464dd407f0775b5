"""Per-file statistics: what the log says of the values in a file, read as bounds and written as JSON.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

import msgspec

from widen.errors import InvalidOption
from widen.model.column_path import Path, parse_path
from widen.model.types import DataType, DecimalType, StructType
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue, parse_partition_value

NUM_RECORDS, MIN_VALUES, MAX_VALUES = "numRecords", "minValues", "maxValues"
NULL_COUNT, TIGHT_BOUNDS = "nullCount", "tightBounds"
INDEXED_COLUMNS, STATS_COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
DEFAULT_INDEXED_COLUMNS = 32
MAX_TEXT = 32
"""How many characters of a text the bounds keep."""

_TICK = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of the values of one column in one file.

    Args:
        low: No value is below it; `UNKNOWN` if nothing is known.
        high: No value is above it; likewise.
        may_be_null: False only if no value is null.
        may_be_value: False only if every value is null.
        may_be_nan: False only if no value is NaN, which Spark orders above every number.
    """

    low: Scalar | UnknownValue = UNKNOWN
    high: Scalar | UnknownValue = UNKNOWN
    may_be_null: bool = True
    may_be_value: bool = True
    may_be_nan: bool = False


class FileStatistics:
    """The statistics of one file, decoded when they are asked for; what cannot be read counts as unknown.

    Args:
        text: The JSON of the log, or None.

    Source: PROTOCOL.md#per-file-statistics
    """

    def __init__(self, text: str | None) -> None:
        self._value = _decoded(text)

    @property
    def rows(self) -> int | None:
        """How many rows the file has, deleted ones included; None if it is not said."""
        rows = self._value.get(NUM_RECORDS)
        return rows if isinstance(rows, int) else None

    def bounds(self, path: Path, data_type: DataType) -> Bounds:
        """Return what is known of a column.

        Args:
            path: In physical names; only struct fields on the way.
            data_type: The current type. The file may have been written in a narrower one.
        """
        nulls = _at(self._value.get(NULL_COUNT), path)
        counted = isinstance(nulls, int)
        low, high = (_at(self._value.get(key), path) for key in (MIN_VALUES, MAX_VALUES))
        return Bounds(
            _bound(low, data_type, down=True),
            _bound(high, data_type, down=False),
            may_be_null=not (counted and nulls == 0),
            may_be_value=not (counted and nulls == self.rows),
            may_be_nan=str(data_type) in ("float", "double"),
        )

    def said(self, path: Path, data_type: DataType) -> ColumnStatistics:
        """Return what is said of a column, word for word: for people, since a bound may be cut or rounded.

        Args:
            path: In physical names; only struct fields on the way.
            data_type: The current type.
        """
        low, high = (_scalar(_at(self._value.get(key), path), data_type) for key in (MIN_VALUES, MAX_VALUES))
        nulls = _at(self._value.get(NULL_COUNT), path)
        return ColumnStatistics(
            None if low is UNKNOWN else low,
            None if high is UNKNOWN else high,
            nulls if isinstance(nulls, int) else None,
        )


def partition_bounds(text: str | None, data_type: DataType) -> Bounds:
    """Return what a partition text says of its column: one value, or only nulls.

    Args:
        text: As in the log.
        data_type: The current type; the text may have been written in a narrower one.

    Source: PROTOCOL.md#partition-value-serialization
    """
    value = parse_partition_value(text, data_type)
    if value is None:
        return Bounds(may_be_value=False)
    if value is UNKNOWN:
        return Bounds(may_be_nan=True)
    if str(data_type) == "float" and isinstance(value, float):  # Spark rounds the text once, and not by way of double
        return Bounds(_float_step(value, down=True), _float_step(value, down=False), may_be_null=False)
    return Bounds(value, value, may_be_null=False)


def _decoded(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = _decoder.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


_decoder = msgspec.json.Decoder(float_hook=Decimal)


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _scalar(value: Any, data_type: DataType) -> Scalar | UnknownValue:
    """Return the value of a bound; numbers and texts stay apart, so that a text never bounds a number."""
    is_number = isinstance(value, (int, Decimal)) and not isinstance(value, bool)
    if _is_numeric(data_type):
        found = parse_partition_value(str(value), data_type) if is_number else UNKNOWN
    else:
        found = parse_partition_value(value, data_type) if isinstance(value, str) else UNKNOWN
        if value == "" and str(data_type) == "string":
            return ""
    return UNKNOWN if found is None else found


def _is_numeric(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or str(data_type) in _NUMBERS


_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def _bound(value: Any, data_type: DataType, *, down: bool) -> Scalar | UnknownValue:
    """Return a bound that also holds if the file was written in a narrower type, or if its bound was cut or rounded.

    The text of a float names a slightly other double, so one step of float is allowed for; times are cut to
    milliseconds, so the upper one may be too low by less than that.

    Source: PROTOCOL.md#per-file-statistics; Delta Spark, which may skip a matching file for float.
    """
    if isinstance(data_type, DecimalType):
        return _decimal_bound(value, data_type, down=down)
    found = _scalar(value, data_type)
    if isinstance(found, float):
        return _float_step(found, down=down)
    if isinstance(found, datetime) and not down:
        return found + _TICK if found.year < 9999 else UNKNOWN
    return found


def _decimal_bound(value: Any, data_type: DecimalType, *, down: bool) -> Decimal | UnknownValue:
    """Return a bound that also holds if its writer rounded it to a double, or cut it to a long.

    It was a multiple of the unit of the type, so it is no further out than the last one that rounds to the text.

    Source: deltalake, which writes the bounds of decimals so
    """
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return UNKNOWN
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() >= data_type.precision or number in _LONG_ENDS:
        return UNKNOWN
    slack = _WIDE.multiply(abs(number), _DOUBLE_STEP)
    least, most = _WIDE.subtract(number, slack), _WIDE.add(number, slack)
    unit = Decimal(1).scaleb(-data_type.scale)
    found = least.quantize(unit, ROUND_CEILING, _WIDE) if down else most.quantize(unit, ROUND_FLOOR, _WIDE)
    return found if least <= found <= most else UNKNOWN


_WIDE = Context(prec=200)
_DOUBLE_STEP = Decimal(2.0**-51)
_LONG_ENDS = (Decimal(2**63 - 1), Decimal(-(2**63)))


def _float_step(value: float, *, down: bool) -> float:
    """Return the next number of type float beyond the value, in one direction."""
    toward = -math.inf if down else math.inf
    if math.isinf(value) or abs(value) > _FLOAT_TEXT_MAX:
        return value if math.isinf(value) and value == toward else math.nextafter(value, toward)
    step = max(abs(value) * 2.0**-22, 2.0**-148)
    return value + math.copysign(step, toward)


_FLOAT_TEXT_MAX = 3.4028236e38
"""Above what no text of a float is: that of the greatest, 3.4028235E38, is a little more than it."""


# ---- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What a file's own footer says of one leaf column.

    Args:
        low: The smallest value, None if not known.
        high: The largest value, likewise.
        nulls: How many values are null, None if not known.
    """

    low: Any = None
    high: Any = None
    nulls: int | None = None


def indexed_leaves(schema: StructType, properties: Mapping[str, str], partition_by: Iterable[str]) -> frozenset[Path]:
    """Return the leaf columns that get statistics: those named by the properties, else the first 32.

    Args:
        schema: In logical names, as the paths of the result.
        properties: The properties of the table.
        partition_by: The partition columns, which never get statistics.

    Raises:
        InvalidOption: a property holds no number, or no column path.

    Source: Delta Lake's data skipping properties.
    """
    split = frozenset(partition_by)
    candidates = [path for path, _ in _plain_leaves(schema) if path[0] not in split]
    wanted = named_columns(properties)
    if wanted is not None:
        return frozenset(path for path in candidates if any(path[: len(w)] == w for w in wanted))
    limit = properties.get(INDEXED_COLUMNS, str(DEFAULT_INDEXED_COLUMNS))
    try:
        count = int(limit)
    except ValueError as error:
        raise InvalidOption(option=INDEXED_COLUMNS, value=limit, expected="It is a whole number, or -1.") from error
    return frozenset(candidates if count < 0 else candidates[:count])


def named_columns(properties: Mapping[str, str]) -> tuple[Path, ...] | None:
    """Return the columns that a property names to get statistics, or None if it names none.

    Raises:
        InvalidPath: it holds no column path.

    Source: Delta Lake's data skipping properties.
    """
    text = properties.get(STATS_COLUMNS)
    return None if text is None else tuple(parse_path(part.strip()) for part in _LISTED.findall(text) if part.strip())


_LISTED = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")


def _plain_leaves(schema: StructType) -> Iterator[tuple[Path, DataType]]:
    """Yield the leaves that no array or map encloses, and each array or map as one."""
    for field in schema.fields:
        if isinstance(field.type, StructType):
            yield from (((field.name, *path), leaf) for path, leaf in _plain_leaves(field.type))
        else:
            yield (field.name,), field.type


def encode_statistics(rows: int, columns: Mapping[Path, ColumnStatistics]) -> str:
    """Return the statistics as the JSON text of the log.

    Args:
        rows: How many rows the file has.
        columns: By physical path, in the order of the file.

    Source: PROTOCOL.md#per-file-statistics
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for path, found in columns.items():
        _put(low, path, _cut(found.low, up=False))
        _put(high, path, _cut(found.high, up=True))
        _put(nulls, path, found.nulls)
    value = {NUM_RECORDS: rows, MIN_VALUES: low, MAX_VALUES: high, NULL_COUNT: nulls}
    return _encoder.encode(value).decode()


_encoder = msgspec.json.Encoder(decimal_format="number")


def with_loose_bounds(text: str | None, rows: int) -> str:
    """Return the statistics of a file of which rows are deleted: bounds that no row need reach, and the count of all.

    Args:
        text: As in the log before, or None.
        rows: How many rows the file has, deleted ones included.

    Source: PROTOCOL.md#per-file-statistics (tightBounds, and numRecords where there is a deletion vector)
    """
    return _encoder.encode({**_decoded(text), NUM_RECORDS: rows, TIGHT_BOUNDS: False}).decode()


def _put(into: dict[str, Any], path: Path, value: Any) -> None:
    if value is None:
        return
    for step in path[:-1]:
        into = into.setdefault(step, {})
    into[path[-1]] = value


def _cut(value: Any, *, up: bool) -> Any:
    """Return a bound in the form of the log, or None if it has none; a cut upper text is rounded up."""
    match value:
        case bool() | bytes() | None:
            return None
        case float():
            return _whole_float(value, up=up)
        case str():
            return _cut_text(value, up=up)
        case datetime():
            return _time_text(value)
        case date():
            return value.isoformat()
    return value


def _whole_float(value: float, *, up: bool) -> float | None:
    if math.isnan(value) or math.isinf(value):
        return None
    return (0.0 if up else -0.0) if value == 0 else value


def _time_text(value: datetime) -> str:
    zone = "Z" if value.tzinfo else ""
    moment = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return moment.isoformat(timespec="milliseconds") + zone


def _cut_text(value: str, *, up: bool) -> str | None:
    if len(value) <= MAX_TEXT:
        return value
    head = value[:MAX_TEXT]
    if not up:
        return head
    for end in range(MAX_TEXT, 0, -1):
        last = ord(head[end - 1]) + 1
        if last == 0xD800:
            last = 0xE000
        if last <= 0x10FFFF:
            return head[: end - 1] + chr(last)
    return None
