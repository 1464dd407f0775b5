"""Per-file statistics in the log: read as bounds for data skipping, and written as JSON.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from itertools import product
from typing import Any

import msgspec

from widen.errors import InvalidOption
from widen.model.column_path import ELEMENT, Path, fold_path, format_path, parse_path
from widen.model.types import BOOLEAN, ArrayType, DataType, DecimalType, StructType, name_key
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_metadata import ROLE, SOURCE
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue, parse_partition_value

NUM_RECORDS, MIN_VALUES, MAX_VALUES = "numRecords", "minValues", "maxValues"
NULL_COUNT, TIGHT_BOUNDS = "nullCount", "tightBounds"
INDEXED_COLUMNS, STATS_COLUMNS = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
DEFAULT_INDEXED_COLUMNS = 32

HIDDEN_FIELDS, NO_STATS = "widen.hiddenFields", "widen.noStats"
"""Table properties: the fields that loads have masked or excluded, and further fields without statistics, each as paths
of source fields with commas between them. Iceberg tables have the same properties."""
MAX_TEXT = 32
"""The maximum number of characters of string bounds; longer ones are truncated."""

TICK = timedelta(milliseconds=1)
"""By how much an upper bound of a timestamp is moved: it is truncated to milliseconds."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the values of one column in one file.

    Args:
        may_be_null: False only if certainly no value is null.
        may_be_value: False only if certainly every value is null.
        may_be_nan: False only if certainly no value is NaN, which Spark orders above every number.
    """

    low: Scalar | UnknownValue = UNKNOWN
    high: Scalar | UnknownValue = UNKNOWN
    may_be_null: bool = True
    may_be_value: bool = True
    may_be_nan: bool = False


class FileStatistics:
    """The statistics of one file; anything that cannot be decoded is unknown.

    Args:
        text: The JSON text in the log, or None.

    Source: PROTOCOL.md#per-file-statistics
    """

    def __init__(self, text: str | None) -> None:
        self._value = _decode(text)

    @property
    def rows(self) -> int | None:
        """The number of rows in the file, including deleted ones; None if it is unknown."""
        rows = self._value.get(NUM_RECORDS)
        return rows if isinstance(rows, int) else None

    def bounds(self, path: Path, data_type: DataType) -> Bounds:
        """Return the bounds of a column.

        Args:
            path: The physical path, through structs only.
            data_type: The current type; the file may have been written with a narrower one.
        """
        nulls = value_at(self._value.get(NULL_COUNT), path)
        counted = isinstance(nulls, int)
        low, high = (value_at(self._value.get(key), path) for key in (MIN_VALUES, MAX_VALUES))
        return Bounds(
            _bound(low, data_type, down=True),
            _bound(high, data_type, down=False),
            may_be_null=not (counted and nulls == 0),
            may_be_value=not (counted and nulls == self.rows),
            may_be_nan=str(data_type) in ("float", "double"),
        )

    def column(self, path: Path, data_type: DataType) -> ColumnStatistics:
        """Return the statistics of a column as the log has them; minimum and maximum may be truncated or rounded.

        Args:
            path: The physical path, through structs only.
        """
        low, high = (_scalar(value_at(self._value.get(key), path), data_type) for key in (MIN_VALUES, MAX_VALUES))
        nulls = value_at(self._value.get(NULL_COUNT), path)
        return ColumnStatistics(
            None if low is UNKNOWN else low,
            None if high is UNKNOWN else high,
            nulls if isinstance(nulls, int) else None,
        )


def partition_bounds(text: str | None, data_type: DataType) -> Bounds:
    """Return the bounds of a partition column, which has one value in a file, or only nulls.

    Args:
        data_type: The current type; the text may have been written with a narrower one.

    Source: PROTOCOL.md#partition-value-serialization
    """
    value = parse_partition_value(text, data_type)
    if value is None:
        return Bounds(may_be_value=False)
    if value is UNKNOWN:
        return Bounds(may_be_nan=True)
    # Spark parses the text as a float, we parse it as a double and round that: the result may differ by one step.
    if str(data_type) == "float" and isinstance(value, float):
        return Bounds(_float_step(value, down=True), _float_step(value, down=False), may_be_null=False)
    return Bounds(value, value, may_be_null=False)


def _decode(text: str | None) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = _decoder.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


_decoder = msgspec.json.Decoder(float_hook=Decimal)


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path in decoded statistics; None if they lack it."""
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _scalar(value: Any, data_type: DataType) -> Scalar | UnknownValue:
    """Return the value of a bound; a string never becomes the bound of a number, or the reverse."""
    if _is_numeric(data_type):
        scalar = parse_partition_value(str(value), data_type) if _is_number(value) else UNKNOWN
    else:
        scalar = parse_partition_value(value, data_type) if isinstance(value, str) else UNKNOWN
        if value == "" and str(data_type) == "string":
            return ""
    return UNKNOWN if scalar is None else scalar


def _is_numeric(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or str(data_type) in _NUMBERS


_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def _bound(value: Any, data_type: DataType, *, down: bool) -> Scalar | UnknownValue:
    """Return a bound that is valid even if the file has a narrower type, or if the bound was truncated or rounded.

    The text of a float is not exactly its value as a double, so the bound is moved by one float step. Timestamps
    are truncated to milliseconds, so an upper bound is moved by one millisecond.

    Source: PROTOCOL.md#per-file-statistics; Delta Spark, which may skip a matching file for float.
    """
    if isinstance(data_type, DecimalType):
        return _decimal_bound(value, data_type, down=down)
    bound = _scalar(value, data_type)
    if isinstance(bound, float):
        return _float_step(bound, down=down)
    if isinstance(bound, datetime) and not down:
        return bound + TICK if bound.year < 9999 else UNKNOWN
    return bound


def _decimal_bound(value: Any, data_type: DecimalType, *, down: bool) -> Decimal | UnknownValue:
    """Return a bound that is valid even if the writer rounded it to a double or truncated it to a long.

    The exact bound was a multiple of the unit of the type, so it is at most the last multiple that rounds to the text.

    Source: deltalake, which writes the bounds of decimals in this form
    """
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return UNKNOWN
    number = Decimal(value)
    # A bound at an end of the longs was cut off there, so the values may be anywhere beyond it.
    if not number.is_finite() or number.adjusted() >= data_type.precision or number in _LONG_ENDS:
        return UNKNOWN
    slack = _WIDE.multiply(abs(number), _DOUBLE_STEP)
    low, high = _WIDE.subtract(number, slack), _WIDE.add(number, slack)
    unit = Decimal(1).scaleb(-data_type.scale)
    bound = low.quantize(unit, ROUND_CEILING, _WIDE) if down else high.quantize(unit, ROUND_FLOOR, _WIDE)
    return bound if low <= bound <= high else UNKNOWN


_WIDE = Context(prec=200)
_DOUBLE_STEP = Decimal(2.0**-51)
_LONG_ENDS = (Decimal(2**63 - 1), Decimal(-(2**63)))


def _float_step(value: float, *, down: bool) -> float:
    """Return the next number of type float beyond the value, in one direction."""
    toward = -math.inf if down else math.inf
    if math.isinf(value) or abs(value) > _FLOAT_TEXT_MAX:
        return value if math.isinf(value) and value == toward else math.nextafter(value, toward)
    # More than the distance to the next float, which is at most 2^-23 of the value, and 2^-149 near zero.
    step = max(abs(value) * 2.0**-22, 2.0**-148)
    return value + math.copysign(step, toward)


_FLOAT_TEXT_MAX = 3.4028236e38
"""No text of a float is above this; the text of the largest float, 3.4028235E38, is slightly above its value."""


# ---- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of one leaf column in one file."""

    low: Any = None
    high: Any = None
    nulls: int | None = None


def indexed_leaves(schema: StructType, properties: Mapping[str, str], partition_by: Iterable[str]) -> frozenset[Path]:
    """Return the leaf columns that get statistics: those named by a property, else the first 32.

    Raises:
        InvalidOption: the number of indexed columns is not an integer.

    Source: Delta Lake's data skipping properties.
    """
    partitions = frozenset(partition_by)
    candidates = [path for path, _ in _plain_leaves(schema) if path[0] not in partitions]
    private = private_columns(schema, properties)
    named = named_columns(properties)
    if named is not None:
        keys = {tuple(map(name_key, path)) for path in named}
        folded = {path: tuple(map(name_key, path)) for path in candidates}
        chosen = frozenset(path for path, key in folded.items() if any(key[: len(each)] == each for each in keys))
        return frozenset(path for path in chosen if not is_private(path, private))
    limit = properties.get(INDEXED_COLUMNS, str(DEFAULT_INDEXED_COLUMNS))
    try:
        count = int(limit)
    except ValueError as error:
        raise InvalidOption(option=INDEXED_COLUMNS, value=limit, expected="Must be an integer >= -1.") from error
    chosen = frozenset(candidates if count < 0 else candidates[:count])
    return frozenset(path for path in chosen if not is_private(path, private))


def named_columns(properties: Mapping[str, str]) -> tuple[Path, ...] | None:
    """Return the columns that a property selects for statistics, or None without the property.

    Source: Delta Lake's data skipping properties.
    """
    text = properties.get(STATS_COLUMNS)
    return None if text is None else split_paths(text)


def split_paths(text: str) -> tuple[Path, ...]:
    """Return the paths of a list with commas."""
    return tuple(parse_path(part.strip()) for part in _LISTED.findall(text) if part.strip())


def join_paths(paths: Iterable[Path]) -> str:
    """Return paths as the text that `split_paths` reads."""
    return ", ".join(sorted(map(format_path, paths)))


def private_columns(schema: StructType, properties: Mapping[str, str]) -> frozenset[Path]:
    """Return the columns that get no minimum and no maximum, here or below, in the log, footers and manifests.

    They are the columns of the fields that the table records as hidden, or as without statistics, with all siblings;
    and the columns for rescued and corrupt texts, which may spell out such a field.
    """
    keys = (HIDDEN_FIELDS, NO_STATS)
    named = frozenset(fold_path(path) for key in keys for path in split_paths(properties.get(key, "")))
    return frozenset(_private_columns(schema, named, (), ())) if named else frozenset()


def is_private(path: Path, private: Iterable[Path]) -> bool:
    """Return whether a leaf is one of the private columns, or below one."""
    return any(path[: len(column)] == column for column in private)


def _private_columns(struct: StructType, named: Iterable[Path], column: Path, source: Path) -> Iterator[Path]:
    for field in struct:
        name, key = (*column, field.name), tuple(field.metadata.get(SOURCE) or (*source, field.name))
        leaf, steps = field.type, name
        while isinstance(leaf, ArrayType):
            leaf, steps = leaf.element, (*steps, ELEMENT)
        sources = (fold_path(key), fold_path((*source, field.name)))
        if ROLE in field.metadata or any(each[: len(path)] == path for each in sources for path in named):
            yield name
        elif isinstance(leaf, StructType):
            yield from _private_columns(leaf, named, steps, key)
        elif any(path[: len(each)] == each for each in sources for path in named):
            yield name  # a map or a text that may hold the field


def has_bounds(data_type: DataType) -> bool:
    """Return whether statistics can have the minimum and the maximum of a type.

    Source: Delta Lake's data skipping properties
    """
    return isinstance(data_type, DecimalType) or str(data_type) in _BOUNDED


_BOUNDED = frozenset(["byte", "short", "integer", "long", "float", "double", "string"]) | frozenset(
    ["date", "timestamp", "timestamp_ntz"]
)

_LISTED = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")


def _plain_leaves(schema: StructType) -> Iterator[tuple[Path, DataType]]:
    """Yield the leaves outside arrays and maps, and each array or map as one leaf."""
    for field in schema.fields:
        if isinstance(field.type, StructType):
            yield from (((field.name, *path), leaf) for path, leaf in _plain_leaves(field.type))
        else:
            yield (field.name,), field.type


def encode_statistics(rows: int, columns: Mapping[Path, ColumnStatistics]) -> str:
    """Return the statistics as JSON text for the log.

    Args:
        columns: The statistics by physical path, in the order of the file.

    Source: PROTOCOL.md#per-file-statistics
    """
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for path, statistics in columns.items():
        _put(low, path, _to_bound(statistics.low, up=False))
        _put(high, path, _to_bound(statistics.high, up=True))
        _put(nulls, path, statistics.nulls)
    return _encode({NUM_RECORDS: rows, MIN_VALUES: low, MAX_VALUES: high, NULL_COUNT: nulls})


def _encode(value: Any) -> str:
    """Return statistics as JSON, with the digits of decimals: an exponent is null for deltalake's Arrow dataset."""
    text = _encoder.encode(value).decode()
    return _encoder.encode(_without_exponents(value)).decode() if EXPONENT.search(text) else text


_encoder = msgspec.json.Encoder(decimal_format="number")
EXPONENT = re.compile("[0-9][eE]")


def _without_exponents(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_exponents(each) for key, each in value.items()}
    if isinstance(value, Decimal) and abs(value.adjusted()) <= MAX_DIGITS:
        return msgspec.Raw(f"{value:f}".encode())
    return value


MAX_DIGITS = 38
"""The maximum precision of a decimal."""


def with_loose_bounds(text: str | None, rows: int) -> str:
    """Return the statistics of a file with deleted rows: its bounds are no longer tight, its count includes all rows.

    Args:
        text: The previous statistics in the log, or None.

    Source: PROTOCOL.md#per-file-statistics (tightBounds, and numRecords where there is a deletion vector)
    """
    return _encode({**_decode(text), NUM_RECORDS: rows, TIGHT_BOUNDS: False})


def change_bounds(text: str | None, paths: Iterable[Path], change: Callable[[Any], Any]) -> str | None:
    """Return the statistics of a file with changed bounds of some columns; the same text if no bound changes.

    Args:
        change: Returns the new bound for an old one: a number, or whatever else the log has there.
    """
    value, is_changed = _decode(text), False
    for key, path in product((MIN_VALUES, MAX_VALUES), paths):
        struct = value_at(value.get(key), path[:-1])
        if isinstance(struct, dict) and path[-1] in struct:
            old = struct[path[-1]]
            old = float(old) if isinstance(old, Decimal) else old
            new = change(old)
            if new != old:
                struct[path[-1]], is_changed = new, True
    return _encode(value) if is_changed else text


MAX_EXACT_DIGITS = 15
"""Every decimal of up to this many digits is exact as a double, and comes back from it."""


def take_bounds(text: str | None, footer: str, columns: Mapping[Path, DataType]) -> str | None:
    """Return the statistics of a file with the bounds of its footer; the same text if they agree.

    If the log or the footer lacks a bound, nothing changes. Only booleans get their missing bounds, since some writers
    leave them out. A decimal with an exponent becomes one without.

    Args:
        text: The statistics in the log, or None.
        footer: The statistics of the footer, as JSON text in the same form.
        columns: The types of the columns to compare, double, decimal or boolean, by physical path.
    """
    value, is_changed = _decode(text), False
    for key, path, new in (*_with_exponents(value, text, columns), *_contradictions(value, footer, columns)):
        _put(value.setdefault(key, {}), path, new)
        is_changed = True
    return _encode(value) if is_changed else text


def contradicts_footer(text: str | None, footer: str, columns: Mapping[Path, DataType]) -> bool:
    """Return whether a bound in the log has another value than in the footer; see `take_bounds`."""
    return any(True for _ in _contradictions(_decode(text), footer, columns))


def _contradictions(
    value: Mapping[str, Any], footer: str, columns: Mapping[Path, DataType]
) -> Iterator[tuple[str, Path, Any]]:
    exact = _decode(footer)
    for key in (MIN_VALUES, MAX_VALUES):
        for path, data_type in columns.items():
            old, new = (value_at(each.get(key), path) for each in (value, exact))
            is_missing = old is None and isinstance(new, bool) and data_type == BOOLEAN
            if is_missing or (_is_number(old) and _is_number(new) and _differ(old, new, data_type)):
                yield key, path, new


def _with_exponents(
    value: Mapping[str, Any], text: str | None, columns: Mapping[Path, DataType]
) -> Iterator[tuple[str, Path, Any]]:
    texts = _as_texts.decode(text) if text and value and EXPONENT.search(text) else {}
    for key in (MIN_VALUES, MAX_VALUES):
        for path, data_type in columns.items():
            old, written = value_at(value.get(key), path), value_at(texts.get(key), path)
            if isinstance(data_type, DecimalType) and isinstance(old, Decimal) and "e" in (written or "").lower():
                yield key, path, old


_as_texts = msgspec.json.Decoder(float_hook=str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _differ(old: Any, new: Any, data_type: DataType) -> bool:
    return old != new if isinstance(data_type, DecimalType) else float(old) != float(new)


def _put(target: dict[str, Any], path: Path, value: Any) -> None:
    if value is None:
        return
    for step in path[:-1]:
        target = target.setdefault(step, {})
    target[path[-1]] = value


def _to_bound(value: Any, *, up: bool) -> Any:
    """Return a bound in the form of the log, or None if it has no such form; a truncated upper string is rounded up."""
    match value:
        case bytes() | None:
            return None
        case float():
            return _to_float_bound(value, up=up)
        case str():
            return _truncate_text(value, up=up)
        case datetime():
            return _time_text(value)
        case date():
            return value.isoformat()
    return value


def _to_float_bound(value: float, *, up: bool) -> float | None:
    if math.isnan(value) or math.isinf(value):
        return None
    # Some readers distinguish the zeros; these bounds include both.
    return (0.0 if up else -0.0) if value == 0 else value


def _time_text(value: datetime) -> str:
    zone = "Z" if value.tzinfo else ""
    utc = value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
    return utc.isoformat(timespec="milliseconds") + zone


def _truncate_text(value: str, *, up: bool) -> str | None:
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


def count_written_rows(adds: Iterable[Add]) -> int:
    """Return the number of rows in written files."""
    return sum(FileStatistics(add.stats).rows or 0 for add in adds)
