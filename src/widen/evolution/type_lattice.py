"""The type lattice: which columns accept a kind, which hold it exactly, and the common type of several types.

The rules are two tables. `TAKES` says for every kind which columns accept it, and when they hold every value of an
interval exactly. `WIDER` orders the types regardless of values.

Source: docs/evolution-rules.md#lattice, #u14 to #u16, #d1 to #d4
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from widen.json.kinds import (
    BINARY_WORD,
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    MAX_DIGITS,
    NTZ_WORD,
    NUMBER_WORDS,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    TYPE_OF_WORD,
    Kind,
    word_of,
)
from widen.json.observation import KindObservation
from widen.model.schema_json import parse_type
from widen.model.types import DOUBLE, INTEGER, LONG, STRING, TIMESTAMP, DataType, DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.type_widening import is_widening

Condition: TypeAlias = Callable[[DataType, KindObservation], bool]
"""Whether a column of that leaf type holds all these values exactly."""

RECORD = StructType()
"""Stands for a record whose sub-fields are decided elsewhere."""

DATE_DIGITS, EPOCH_MS_DIGITS = 7, 15
"""The digits of epoch days and of epoch milliseconds between the years 1 and 9999."""


def _always(leaf: DataType, observed: KindObservation) -> bool:
    return True


def _never(leaf: DataType, observed: KindObservation) -> bool:
    return False


def _int32(leaf: DataType, observed: KindObservation) -> bool:
    return observed.fits_int32


def _exact_double(leaf: DataType, observed: KindObservation) -> bool:
    return observed.exact_double


def _epoch(leaf: DataType, observed: KindObservation) -> bool:
    return observed.epoch_ms_exact


def _up_to(digits: int) -> Condition:
    return lambda leaf, observed: observed.integer_digits <= digits


def _epoch_with_room(digits: int) -> Condition:
    return lambda leaf, observed: _has_room(leaf, digits, 0) and observed.epoch_ms_exact


def _decimal_with_room(leaf: DataType, observed: KindObservation) -> bool:
    return observed.decimal_exact and _has_room(leaf, observed.integer_digits, observed.scale)


def _has_room(leaf: DataType, digits: int, scale: int) -> bool:
    return isinstance(leaf, DecimalType) and digits <= leaf.precision - leaf.scale and scale <= leaf.scale


_WHOLE = dict.fromkeys(("byte", "short", "integer", "long"), _always)

TAKES: Mapping[str, Mapping[str, Condition]] = {
    BOOLEAN_WORD: {
        **dict.fromkeys(("boolean", "float", "double", "string"), _always),
        **_WHOLE,
        "decimal": _epoch_with_room(1),
    },
    LONG_WORD: {
        # Only the number of digits was observed, and every number of two (four) digits fits.
        "byte": _up_to(2),
        "short": _up_to(4),
        "integer": _int32,
        "long": _always,
        "float": _never,
        "double": _exact_double,
        "decimal": _decimal_with_room,
        "timestamp": _never,
        "string": _always,
    },
    DOUBLE_WORD: {"float": _never, "double": _always, "decimal": _decimal_with_room, "string": _always},
    DECIMAL_WORD: {"float": _never, "double": _exact_double, "decimal": _decimal_with_room, "string": _always},
    DATE_WORD: {
        **dict.fromkeys(("date", "integer", "long", "double", "timestamp", "timestamp_ntz", "string"), _always),
        "decimal": _epoch_with_room(DATE_DIGITS),
    },
    TIMESTAMP_WORD: {
        "timestamp": _always,
        "long": _epoch,
        "double": _epoch,
        "decimal": _epoch_with_room(EPOCH_MS_DIGITS),
        "string": _always,
    },
    NTZ_WORD: dict.fromkeys(("timestamp_ntz", "string"), _always),
    STRING_WORD: {"string": _always},
    BINARY_WORD: {"binary": _always},
    RECORD_WORD: {"record": _always},
}
"""For each kind, the leaf types that accept it, and the condition for holding all its values exactly.

``_never`` marks columns that values are routed to but that do not cover the kind, so that another column is added. A
long in a timestamp column may be an epoch time, or any other number: only a long column says that it was a long (U16).
A float rounds. A value that a column accepts but cannot hold is null there.
"""

WIDER: Mapping[str, frozenset[str]] = {
    word: frozenset(wider.split())
    for word, wider in {
        BOOLEAN_WORD: "int long double decimal string",
        INT_WORD: "long double decimal string",
        LONG_WORD: "double decimal string",
        DOUBLE_WORD: "string",
        DECIMAL_WORD: "string",
        DATE_WORD: "int long double decimal timestamp timestamp_ntz string",
        TIMESTAMP_WORD: "long double decimal string",
        NTZ_WORD: "string",
        STRING_WORD: "",
    }.items()
}
"""For each type, the wider types, regardless of values. Binary and records are not comparable to other types."""

NUMERIC_WORDS = frozenset({INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD})
"""The kind words of numeric columns."""

_WIDEST_FIRST = (
    *(STRING_WORD, DOUBLE_WORD, DECIMAL_WORD, LONG_WORD),
    *(INT_WORD, TIMESTAMP_WORD, NTZ_WORD, DATE_WORD, BOOLEAN_WORD),
)

_DIGITS: Mapping[str, int] = {
    BOOLEAN_WORD: 1,
    INT_WORD: 10,
    LONG_WORD: 20,
    DATE_WORD: DATE_DIGITS,
    TIMESTAMP_WORD: EPOCH_MS_DIGITS,
}
"""The integer digits that a decimal needs for all values of a type. For integers it is what type widening requires."""

_SPECIFIC_FIRST = (
    *(RECORD_WORD, BOOLEAN_WORD, INT_WORD, LONG_WORD, DOUBLE_WORD),
    *(DECIMAL_WORD, DATE_WORD, TIMESTAMP_WORD, NTZ_WORD, BINARY_WORD, STRING_WORD),
)


@dataclass(frozen=True, slots=True)
class ValueSpan:
    """The values that a common type must hold.

    Args:
        observed: What is known of them; None stands for every value of the type.
    """

    leaf: DataType
    observed: KindObservation | None = None

    @property
    def word(self) -> str | None:
        return word_of(self.leaf)

    @property
    def digits(self) -> tuple[int, int] | None:
        """The integer digits and the scale that a decimal needs for the values; None if no decimal can hold them."""
        if self.observed is not None and (self.word in NUMBER_WORDS or self.word == INT_WORD):
            return (self.observed.integer_digits, self.observed.scale) if self.observed.decimal_exact else None
        if isinstance(self.leaf, DecimalType):
            return self.leaf.precision - self.leaf.scale, self.leaf.scale
        whole = _DIGITS.get(self.word or "")
        return None if whole is None else (whole, 0)


def can_route(leaf: DataType, kind_word: str) -> bool:
    """Return whether values of a kind are routed to columns of a leaf type, exact or not.

    Source: docs/evolution-rules.md#u14, #u16, #d4
    """
    return _name(leaf) in TAKES[kind_word]


def holds_exactly(leaf: DataType, kind_word: str, observed: KindObservation) -> bool:
    """Return whether a column of a leaf type holds all values of a kind exactly.

    If the source declares a type, a column of that type or of a wider one holds its values.

    Source: docs/evolution-rules.md#d2, #d16
    """
    declared = parse_type(observed.type) if observed.type else None
    if declared is not None and (declared == leaf or is_widening(declared, leaf)):
        return True
    return TAKES[kind_word].get(_name(leaf), _never)(leaf, observed)


def is_boolean_as_number(leaf: DataType, kind_word: str) -> bool:
    """Return whether the kind is boolean and the leaf type numeric.

    Source: docs/evolution-rules.md#d18
    """
    return kind_word == BOOLEAN_WORD and word_of(leaf) in NUMERIC_WORDS


def rounded_kinds(leaves: Iterable[DataType]) -> frozenset[str]:
    """Return the kinds whose values a field rounds to doubles, if the policy asks for that.

    Args:
        leaves: The types inside the arrays of its columns. Beside a decimal or a float nothing is rounded, and beside
            an integer no long: these columns hold numbers that a double does not.

    Source: docs/evolution-rules.md#d1
    """
    numbers = {leaf for leaf in leaves if word_of(leaf) in NUMERIC_WORDS}
    if numbers == {DOUBLE}:
        return frozenset({DECIMAL_WORD, LONG_WORD})
    is_rounding = DOUBLE in numbers and all(leaf == DOUBLE or str(leaf) in _WHOLE for leaf in numbers)
    return frozenset({DECIMAL_WORD}) if is_rounding else frozenset()


def is_epoch(leaf: DataType, kind_word: str) -> bool:
    """Return whether the kind is long and the leaf type timestamp: the column shows what the number may mean, not it.

    Source: docs/evolution-rules.md#u16, #d5
    """
    return kind_word == LONG_WORD and leaf == TIMESTAMP


def covers_kind(leaf: DataType, dim: int, kind: Kind, observed: KindObservation) -> bool:
    """Return whether a column covers a kind, so that the kind needs no other column.

    Source: docs/evolution-rules.md#u7, #d2
    """
    return kind.dim <= dim and holds_exactly(leaf, kind.word, observed)


def common_leaf(spans: Iterable[ValueSpan]) -> DataType:
    """Return the widest of the types if it is wider than all others, else string.

    A double and a decimal are comparable only by their values. Types without a word are ignored.

    Source: docs/evolution-rules.md#u4, #u9
    """
    with_word = [span for span in spans if span.word in WIDER]
    words = {span.word for span in with_word}
    # A timestamp converts to epoch milliseconds, but an int is too small: the common type of both is long (U16).
    if {INT_WORD, TIMESTAMP_WORD} <= words:
        words.add(LONG_WORD)
    for word in _WIDEST_FIRST:
        if word in words and all(_precedes(span, word) for span in with_word):
            leaf = decimal_for(with_word) if word == DECIMAL_WORD else TYPE_OF_WORD[word]
            if leaf is not None:
                return leaf
    return STRING


def decimal_for(spans: Iterable[ValueSpan]) -> DecimalType | None:
    """Return the narrowest decimal that holds all values; None if it would need more than 38 digits."""
    whole, scale = 0, 0
    for span in spans:
        if span.digits is None:
            return None
        whole, scale = max(whole, span.digits[0]), max(scale, span.digits[1])
    precision = max(1, whole + scale)
    return DecimalType(precision, scale) if precision <= MAX_DIGITS else None


def number_types(words: Iterable[str], spans: Iterable[ValueSpan]) -> tuple[DataType, ...]:
    """Return the candidate types for numbers, narrowest first. The caller checks whether one holds the values.

    Double is a candidate only if the values include doubles or a float column: integers past 64 bits become decimals
    even if a double would hold them, since the next one in the field would not be exact.

    Args:
        words: The kind words of the kinds and columns of the numbers.
        spans: The values that a decimal must hold.

    Source: docs/evolution-rules.md#d1
    """
    double = (DOUBLE,) if DOUBLE_WORD in set(words) else ()
    decimal = decimal_for(spans)
    return (INTEGER, LONG, *double, *((decimal,) if decimal else ()))


def column_sort_key(leaf: DataType, dim: int) -> tuple[bool, int, int]:
    """Return the sort key for the columns of a field: records first, then by dim, then narrow types first."""
    word = word_of(leaf)
    rank = _SPECIFIC_FIRST.index(word) if word in _SPECIFIC_FIRST else len(_SPECIFIC_FIRST)
    return word != RECORD_WORD, dim, rank


def _precedes(span: ValueSpan, word: str) -> bool:
    """Return whether a type holds the values of a span: by `WIDER`, or for double and decimal by the values."""
    if span.word == word or word in WIDER[span.word or ""]:
        return True
    observed = span.observed
    if observed is None or {span.word, word} != {DOUBLE_WORD, DECIMAL_WORD}:
        return False
    return observed.exact_double if word == DOUBLE_WORD else observed.decimal_exact


def _name(leaf: DataType) -> str:
    match leaf:
        case DecimalType():
            return "decimal"
        case StructType():
            return "record"
    return str(leaf)
