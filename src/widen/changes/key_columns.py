"""Keys and sequences of rows as Arrow columns.

A field with one column is compared by its values. The values of a field with several columns become texts and numbers
that do not depend on the column that holds them. The list of deleted keys has the same texts and numbers.

Source: docs/guide/keys.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from widen.evolution.key_rules import (
    KeyRules,
    beside_texts,
    explain_no_key,
    explain_no_order,
    find_order,
    find_places,
    is_key_type,
    order_family,
)
from widen.files.arrow_types import one_array, to_arrow
from widen.files.conversions import number_texts
from widen.files.data_reader import find_leaf
from widen.model.column_path import Path
from widen.model.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructType,
    quote_name,
)
from widen.model.value_classes import dataclass
from widen.rows.row_builder import RowCondition
from widen.spark.expression import join_columns
from widen.spark.spark_types import Column, F

WIDE = DecimalType(38, 18)
"""The type of an order that is a number or a time, unless it has one column with an exact type."""

_INTEGERS = frozenset({BYTE, SHORT, INTEGER, LONG})
_FLOATING = (FLOAT, DOUBLE)
EXACT_ORDERS = _INTEGERS | {STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ}
"""Types whose values are totally ordered without conversion."""

_MOST_NUMBER = 1e19
"""Doubles of at least this size cannot be ordered."""

_DAY_MICROS = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""The first and the last day that Arrow writes with four digits for the year, from 1970: the years 1 to 9999."""

_PREFIX = "s:"
"""What the texts of strings begin with."""

_LONG_DECIMAL = pa.decimal256(76, 36)
"""Holds every double between 1e-19 and 1e19 with the digits that it is written with."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The columns of one field of a key, sorted by the priority of their values.

    Args:
        columns: Their types and places; at least one.
    """

    columns: tuple[tuple[DataType, Path], ...]

    @staticmethod
    def of(schema: StructType, path: Path) -> KeyColumns | None:
        """Return the columns of a field that may hold scalars; None if it has no such column."""
        columns = [each for each in find_places(schema, path) if is_key_type(each[0])]
        # A column of texts also has the text of every value that other columns hold, so it comes last.
        columns.sort(key=lambda each: each[0] == STRING)
        return KeyColumns(tuple(columns)) if columns else None

    @property
    def places(self) -> tuple[Path, ...]:
        return tuple(place for _, place in self.columns)

    def read(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return one comparable value per row, from any column that holds it; null if the row has no value."""
        if len(self.columns) > 1:
            texts = [pc.coalesce(*self._texts_of(batch)) for batch in rows.to_batches()]
            return pa.chunked_array(texts, pa.string())
        data_type, place = self.columns[0]
        values = find_leaf(rows, place)
        return pc.if_else(pc.equal(values, 0.0), pa.scalar(0.0, values.type), values) if _floats(data_type) else values

    def _texts_of(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        rows = pa.Table.from_batches([batch])
        for data_type, place in self.columns:
            yield _scalar_text(one_array(find_leaf(rows, place)), data_type)

    def texts(self, values: pa.Array) -> pa.Array:
        """Return what `read` has returned as the list of deleted keys has it; see `join_texts`."""
        return values if len(self.columns) > 1 else _scalar_text(values, self.columns[0][0])

    def bounds(self, values: pa.Array) -> list[tuple[DataType, Path, Any, Any]]:
        """Return ranges of the columns that contain every row with one of some values.

        Returns:
            The type and place of each column that has some of the values, with the smallest and the largest one; dates
            are days since 1970. Empty if the ranges are not known.
        """
        first = self.columns[0][0]
        if len(self.columns) == 1:
            if first not in _INTEGERS and first not in (STRING, DATE):
                return []
            bounds = pc.min_max(values.cast(pa.int32()) if first == DATE else values).as_py()
            return [(*self.columns[0], bounds["min"], bounds["max"])]
        if any(data_type not in _INTEGERS and data_type != STRING for data_type, _ in self.columns):
            return []
        is_text = pc.starts_with(values, _PREFIX)
        texts = pc.utf8_slice_codeunits(values.filter(is_text), len(_PREFIX))
        numbers = pc.utf8_slice_codeunits(values.filter(pc.invert(is_text)), len("n:")).cast(pa.int64())
        found = []
        for data_type, place in self.columns:
            own = texts if data_type == STRING else numbers
            if len(own):
                limits = pc.min_max(own).as_py()
                found.append((data_type, place, limits["min"], limits["max"]))
        return found

    def find_missing(self, rows: pa.Table) -> pa.Array:
        """Return which rows have no value."""
        return reduce(pc.and_, (one_array(find_leaf(rows, place).is_null()) for place in self.places))

    def missing_on_spark(self) -> Column:
        """Return the same as a column of Spark."""
        return join_columns(_and, [_to_column(place).isNull() for place in self.places])


@dataclass(frozen=True, slots=True)
class OrderColumns:
    """The columns of the sequence: the field that decides which of two records of a key is newer.

    Args:
        columns: The types and places of those whose values have an order; at least one.
    """

    columns: tuple[tuple[DataType, Path], ...]
    others: tuple[Path, ...] = ()

    @staticmethod
    def of(schema: StructType, paths: Sequence[Path]) -> OrderColumns | None:
        """Return the columns of the fields of a sequence; None without such columns, or if one cannot be ordered."""
        found = [order for path in paths if (order := OrderColumns._of_field(schema, path)) is not None]
        if len(found) < len(paths) or not found:
            return None
        return found[0] if len(found) == 1 else CombinedOrder((), (), tuple(found))

    @staticmethod
    def _of_field(schema: StructType, path: Path) -> OrderColumns | None:
        family, columns = find_order(schema, path)
        if family is None:
            return None
        own = [each for each in columns if order_family(each[0]) == family]
        if family != "text":
            return OrderColumns(tuple(own))
        return OrderColumns(tuple(own[:1]), tuple(beside_texts(columns)))

    @property
    def places(self) -> tuple[Path, ...]:
        return (*(place for _, place in self.columns), *self.others)

    @property
    def data_type(self) -> DataType:
        first = self.columns[0][0]
        return first if len(self.columns) == 1 and first in EXACT_ORDERS else WIDE

    def read(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the sequence of each row, of the type `data_type`; null for rows that have no sequence."""
        if self.data_type != WIDE:
            values = find_leaf(rows, self.columns[0][1])
            for place in self.others:
                values = pc.if_else(find_leaf(rows, place).is_null(), values, pa.scalar(None, values.type))
            return values
        numbers = [pc.coalesce(*self._numbers_of(batch)) for batch in rows.to_batches()]
        return pa.chunked_array(numbers, to_arrow(WIDE))

    def _numbers_of(self, batch: pa.RecordBatch) -> Iterator[pa.Array]:
        rows = pa.Table.from_batches([batch])
        for data_type, place in self.columns:
            yield _order_number(one_array(find_leaf(rows, place)), data_type)

    def numbers(self, values: pa.Array) -> pa.Array:
        """Return what `read` has returned as numbers of the type `WIDE`; nulls for texts."""
        if self.data_type == STRING:
            return pa.nulls(len(values), to_arrow(WIDE))
        return values if self.data_type == WIDE else _order_number(values, self.data_type)

    def texts(self, values: pa.Array) -> pa.Array:
        """Return the texts among what `read` has returned; nulls for numbers and times."""
        return values if self.data_type == STRING else pa.nulls(len(values), pa.string())

    def comparable(self, values: pa.Array) -> pa.Array:
        """Return what `read` has returned as texts, or as numbers of the type `WIDE`, from any column."""
        return self.texts(values) if self.data_type == STRING else self.numbers(values)

    def find_missing(self, rows: pa.Table) -> pa.Array:
        return one_array(self.read(rows).is_null())

    def missing_on_spark(self) -> Column:
        """Return the same as a column of Spark."""
        without = join_columns(_and, [_has_no_order(_to_column(place), data_type) for data_type, place in self.columns])
        return join_columns(_or, [without, *(_to_column(place).isNotNull() for place in self.others)])


@dataclass(frozen=True, slots=True)
class CombinedOrder(OrderColumns):
    """The columns of several fields, as one text that sorts like their values; see `sequence_text`."""

    parts: tuple[OrderColumns, ...] = ()

    @property
    def places(self) -> tuple[Path, ...]:
        return tuple(place for each in self.parts for place in each.places)

    @property
    def data_type(self) -> DataType:
        return STRING

    def read(self, rows: pa.Table) -> pa.ChunkedArray:
        if not len(rows):
            return pa.chunked_array([], pa.string())
        texts = [_sequence_text(each.comparable(one_array(each.read(rows)))) for each in self.parts]
        return pa.chunked_array([pc.binary_join_element_wise(*texts, "")], pa.string())

    def missing_on_spark(self) -> Column:
        return join_columns(_or, [each.missing_on_spark() for each in self.parts])


def _and(one: Column, two: Column) -> Column:
    return one & two


def _or(one: Column, two: Column) -> Column:
    return one | two


def _to_column(place: Path) -> Column:
    return reduce(lambda above, name: above.getField(name), place[1:], F.col(quote_name(place[0])))


def _has_no_order(column: Column, data_type: DataType) -> Column:
    """Return whether a value of a column has no place in an order; see `_order_number`."""
    if data_type in _FLOATING:
        return ~F.coalesce(F.abs(column.cast("double")) < _MOST_NUMBER, F.lit(False))
    return column.try_cast(WIDE.sql).isNull() if isinstance(data_type, DecimalType) else column.isNull()


# A sequence of several fields becomes one text that sorts like them. A number or a time is written as a sign and 38
# digits; below zero, each digit is subtracted from 9. A text ends with two zero bytes, and a zero byte inside it
# is followed by a 1.


_DIGITS, _SCALED = pa.decimal256(60, 18), pa.decimal256(60, 0)


@cache
def _most_digits() -> pa.Scalar:
    # Not when the module is imported: PyArrow loads pandas with the first value that it converts.
    return pa.scalar(Decimal(10**38 - 1), _SCALED)


def _sequence_text(values: pa.Array) -> pa.Array:
    """Return the texts or the numbers of one field as parts of the text of a sequence."""
    if values.type == pa.string():
        escaped = pc.replace_substring(values, "\0", "\0\1")
        return pc.binary_join_element_wise(escaped, "\0\0", "")
    numbers = values.cast(_DIGITS).view(_SCALED)
    is_negative = pc.less(numbers, pa.scalar(Decimal(0), _SCALED))
    digits = pc.if_else(is_negative, pc.add(numbers, _most_digits()).cast(_SCALED), numbers).cast(pa.string())
    return pc.binary_join_element_wise(pc.if_else(is_negative, "0", "1"), pc.utf8_lpad(digits, 38, "0"), "")


def split_sequences(texts: pa.Array, families: Sequence[str | None]) -> list[pa.Array]:
    """Return the values of each field of the texts of sequences, as `OrderColumns.comparable` does.

    Args:
        families: Whether the fields are ordered as numbers, times or texts.
    """
    parts: list[pa.Array] = []
    for family in families:
        if family == "text":
            pieces = pc.split_pattern(texts, "\0\0", max_splits=1)
            part, texts = (pc.list_element(pieces, at) for at in range(2))
            parts.append(pc.replace_substring(part, "\0\1", "\0"))
            continue
        is_negative = pc.starts_with(texts, "0")
        digits = pc.utf8_slice_codeunits(texts, 1, 39).cast(_SCALED)
        numbers = pc.if_else(is_negative, pc.subtract(digits, _most_digits()).cast(_SCALED), digits)
        parts.append(numbers.view(_DIGITS).cast(to_arrow(WIDE)))
        texts = pc.utf8_slice_codeunits(texts, 39)
    return parts


# Values as texts and numbers.


def _floats(data_type: DataType) -> bool:
    return data_type in _FLOATING


def _scalar_text(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return values as texts with their kind before them."""
    kind, texts = _KINDS.get(data_type, ("n", decimal_text))
    return pc.binary_join_element_wise(pa.scalar(kind), texts(values), ":")


def _plain_text(values: pa.Array) -> pa.Array:
    return values.cast(pa.string())


def decimal_text(values: pa.Array) -> pa.Array:
    """Return decimals as texts without an exponent and without zeros at their end."""
    scale = values.type.scale
    # Arrow writes small numbers of many digits with an exponent, but not the digits alone.
    digits = values.cast(pa.decimal256(76, scale)).view(pa.decimal256(76, 0)).cast(pa.string())
    if not scale:
        return digits
    is_negative = pc.starts_with(digits, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    whole = pc.utf8_slice_codeunits(digits, 0, -scale)
    rest = pc.utf8_rtrim(pc.utf8_slice_codeunits(digits, -scale), "0")
    text = pc.if_else(pc.equal(rest, ""), whole, pc.binary_join_element_wise(whole, rest, "."))
    return pc.if_else(is_negative, pc.binary_join_element_wise("-", text, ""), text)


def _double_text(values: pa.Array) -> pa.Array:
    """Return doubles as the decimals that hold them exactly; very large and very small ones as Java writes them."""
    doubles = values.cast(pa.float64())
    decimals = _to_wide(doubles)
    is_exact = pc.fill_null(pc.equal(decimals.cast(pa.string()).cast(pa.float64()), doubles), False)
    return pc.if_else(is_exact, decimal_text(decimals), number_texts(doubles))


def _to_wide(doubles: pa.Array) -> pa.Array:
    """Return doubles as decimals of the type `WIDE`, rounded; null for NaN and for doubles of 1e19 and more."""
    size = pc.abs(doubles)
    is_held, is_near_zero = pc.less(size, _MOST_NUMBER), pc.less(size, 1e-19)
    known = pc.if_else(pc.and_(is_held, pc.invert(is_near_zero)), doubles, pa.scalar(None, pa.float64()))
    exact = known.cast(pa.string()).cast(_LONG_DECIMAL)
    rounded = pc.round(exact, WIDE.scale, "half_towards_infinity").cast(to_arrow(WIDE))
    return pc.if_else(is_near_zero, pa.scalar(0, to_arrow(WIDE)), rounded)


def _date_text(values: pa.Array) -> pa.Array:
    days = values.cast(pa.int32())
    return _day_text(days, pc.if_else(_has_four_digits(days), values, pa.scalar(None, values.type)).cast(pa.string()))


def _local_time_text(values: pa.Array) -> pa.Array:
    """Return times without a zone; at midnight their date, because a column of dates may widen to them."""
    micros = values.cast(pa.int64())
    days = pc.divide(pc.subtract(micros, pc.if_else(pc.less(micros, 0), _DAY_MICROS - 1, 0)), _DAY_MICROS)
    is_near = _has_four_digits(days)
    text = pc.if_else(is_near, values, pa.scalar(None, values.type)).cast(pa.string())
    text = pc.utf8_rtrim(pc.utf8_rtrim(text, "0"), ".")
    is_midnight = pc.equal(pc.multiply(days, _DAY_MICROS), micros)
    far = pc.binary_join_element_wise("us", micros.cast(pa.string()), " ")
    text = pc.coalesce(pc.replace_substring_regex(text, " 00:00:00$", ""), pc.if_else(is_midnight, None, far))
    return _day_text(days, text)


def _has_four_digits(days: pa.Array) -> pa.Array:
    return pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))


def _day_text(days: pa.Array, texts: pa.Array) -> pa.Array:
    """Return dates as texts; a day without a text becomes its number."""
    return pc.coalesce(texts, pc.binary_join_element_wise("day", days.cast(pa.string()), " "))


def _hex_text(values: pa.Array) -> pa.Array:
    """Return bytes as two digits each."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return pc.if_else(values.is_valid(), "", pa.scalar(None, pa.string()))
    ends = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, offsets], offset=values.offset)
    first, last = ends[0].as_py(), ends[len(values)].as_py()
    numbers = pa.Array.from_buffers(pa.uint8(), last - first, [None, data], offset=first)
    digits = pa.array([f"{each:02X}".encode() for each in range(256)], pa.binary(2)).take(numbers)
    doubled = pc.multiply(pc.subtract(ends, first), 2).cast(pa.int32())  # Arrow has made 64 bits of them
    texts = pa.StringArray.from_buffers(len(values), doubled.buffers()[1], digits.buffers()[1])
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string()))


def _micros_text(values: pa.Array) -> pa.Array:
    return values.cast(pa.int64()).cast(pa.string())


def _as_it_is(values: pa.Array) -> pa.Array:
    return values


_KINDS: Mapping[DataType, tuple[str, Callable[[pa.Array], pa.Array]]] = {
    **dict.fromkeys(_INTEGERS, ("n", _plain_text)),
    **dict.fromkeys(_FLOATING, ("n", _double_text)),
    STRING: ("s", _as_it_is),
    BOOLEAN: ("b", _plain_text),
    BINARY: ("x", _hex_text),
    DATE: ("d", _date_text),
    TIMESTAMP_NTZ: ("d", _local_time_text),
    TIMESTAMP: ("t", _micros_text),
}
"""The kind of the values of each type, and how they are written; decimals depend on their digits."""


def _order_number(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return numbers and times as numbers of the type `WIDE`; null for values that cannot be ordered."""
    wide = to_arrow(WIDE)
    if data_type in _FLOATING:
        return _to_wide(values.cast(pa.float64()))
    if data_type == DATE:
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), _DAY_MICROS).cast(wide)
    if not isinstance(data_type, DecimalType):
        return values.cast(pa.int64()).cast(wide)
    whole = WIDE.precision - WIDE.scale
    if data_type.precision - data_type.scale > whole:
        limit = pa.scalar(10**whole, pa.decimal128(38, 0)).cast(pa.decimal128(38, data_type.scale))
        values = pc.if_else(pc.less(pc.abs(values), limit), values, pa.scalar(None, values.type))
    if data_type.scale > WIDE.scale:
        values = pc.round(values.cast(pa.decimal256(76, data_type.scale)), WIDE.scale, "half_towards_infinity")
    return values.cast(wide)


def values_of_order(orders: pa.Array, data_type: DataType) -> pa.Array | None:
    """Return sequences as values of a type; null for sequences that it does not hold exactly.

    Returns:
        None for a type whose values have no order.
    """
    if order_family(data_type) is None:
        return None
    if (data_type == STRING) != (orders.type == pa.string()):
        return pa.nulls(len(orders), to_arrow(data_type))
    if data_type == STRING:
        return orders
    if isinstance(data_type, DecimalType):
        return _decimals_of(orders, data_type)
    if data_type in _FLOATING:
        # Arrow rounds texts as Java does, but not every decimal.
        values = orders.cast(pa.string()).cast(to_arrow(data_type))
        return pc.if_else(pc.equal(_order_number(values, data_type), orders), values, pa.scalar(None, values.type))
    unit = _DAY_MICROS if data_type == DATE else 1
    kind = pa.int32() if data_type == DATE else pa.int64() if data_type not in _INTEGERS else to_arrow(data_type)
    whole = orders.cast(pa.decimal128(38, 0), safe=False)
    bound = 2 ** (63 if data_type == DATE else kind.bit_width - 1)
    low, high = (pa.scalar(Decimal(each), whole.type) for each in (-bound, bound - 1))
    is_held = pc.and_(pc.greater_equal(whole, low), pc.less_equal(whole, high))
    is_held = pc.and_(is_held, pc.equal(whole.cast(orders.type), orders))
    numbers = pc.if_else(is_held, whole, pa.scalar(None, whole.type)).cast(pa.int64())
    if unit > 1:
        quotients = pc.divide(numbers, unit)
        numbers = pc.if_else(pc.equal(pc.multiply(quotients, unit), numbers), quotients, pa.scalar(None, pa.int64()))
    return numbers.cast(kind).view(to_arrow(data_type))


def _decimals_of(orders: pa.Array, data_type: DecimalType) -> pa.Array:
    digits = data_type.precision - data_type.scale
    is_held = pc.equal(pc.round(orders, data_type.scale), orders) if data_type.scale < WIDE.scale else orders.is_valid()
    if digits < WIDE.precision - WIDE.scale:
        limit = pa.scalar(Decimal(10**digits), orders.type)
        is_held = pc.and_(is_held, pc.less(pc.abs(orders), limit))
    return pc.if_else(is_held, orders, pa.scalar(None, orders.type)).cast(to_arrow(data_type))


def join_texts(texts: Sequence[pa.Array]) -> pa.Array:
    """Return the texts of several fields as one: as an array of JSON, so that each of them can hold any character."""
    if len(texts) == 1:
        return texts[0]
    escaped = list(map(_escape, texts))
    inner = reduce(lambda left, right: pc.binary_join_element_wise(left, right, '","'), escaped)
    return pc.binary_join_element_wise('["', inner, '"]', "")


def _escape(texts: pa.Array) -> pa.Array:
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x1f]")).as_py():
        for code in range(32):
            texts = pc.replace_substring(texts, chr(code), _ESCAPES.get(chr(code), f"\\u{code:04X}"))
    return texts


_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


# Records without a key or an order.


@dataclass(frozen=True, slots=True)
class KeyCondition(RowCondition):
    """Whether a record lacks a key or a sequence, so that the ingestion cannot find its row. Picklable.

    Args:
        reasons: Why a record without a key, and one without an order, is refused.
    """

    keys: tuple[KeyColumns, ...]
    order: OrderColumns | None
    reasons: tuple[str, str]

    @property
    def places(self) -> tuple[Path, ...]:
        """The columns that the condition looks at."""
        found = tuple(place for each in self.keys for place in each.places)
        return found if self.order is None else (*found, *self.order.places)

    def find_broken(self, rows: pa.RecordBatch | pa.Table) -> pa.Array:
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        masks = [each.find_missing(table) for each in self.keys]
        return reduce(pc.or_, masks if self.order is None else [*masks, self.order.find_missing(table)])

    def to_rule(self) -> Column:
        """Return why a row is refused as a column of Spark; null if it is not."""
        no_key, no_order = self.reasons
        rule = F.when(join_columns(_or, [each.missing_on_spark() for each in self.keys]), no_key)
        return rule if self.order is None else rule.when(self.order.missing_on_spark(), no_order)

    def explain(self, row: Mapping[str, Any]) -> str:
        has_key = all(any(_at(row, place) is not None for place in each.places) for each in self.keys)
        return self.reasons[has_key]


def _at(row: Mapping[str, Any], place: Path) -> Any:
    value: Any = row
    for step in place:
        value = None if value is None else value[step]
    return value


def key_condition(schema: StructType, rules: KeyRules) -> KeyCondition:
    """Return the condition that records have a key and a sequence; call `ensure_rules_apply` before."""
    keys = [each for each in map(partial(KeyColumns.of, schema), rules.key) if each is not None]
    order, no_order = OrderColumns.of(schema, rules.sequence_by), explain_no_order(rules.sequence_by)
    return KeyCondition(tuple(keys), order, (explain_no_key(rules.key), no_order))
