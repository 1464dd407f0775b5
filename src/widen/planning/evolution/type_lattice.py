"""The lattice: which kinds a column takes, which it holds exactly, and what holds several types together.

Two tables are the rule. `TAKES` says for every kind which columns take it and on what condition they hold every value
of an interval exactly; `WIDER` orders the types whatever the values.

Source: docs/evolution-rules.md#lattice, #u14 to #u16, #d1 to #d4
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from widen.model.type_parser import parse_type
from widen.model.types import DOUBLE, INTEGER, LONG, STRING, DataType, DecimalType, StructType
from widen.observe.json_number import MAX_DIGITS
from widen.observe.kind import (
    BINARY_WORD,
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    NUMBER_WORDS,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    TYPE_OF_WORD,
    Kind,
    word_of,
)
from widen.observe.observation import KindObservation
from widen.protocol.type_widening import is_widening

Condition: TypeAlias = Callable[[DataType, KindObservation], bool]
"""Whether a column of that leaf type holds all these values exactly."""

RECORD = StructType()
"""Stands for a record whose sub-fields are decided elsewhere."""

DATE_DIGITS, EPOCH_MS_DIGITS = 7, 15
"""Digits of the days, and of the milliseconds, from 1970 to the years 1 and 9999."""


def _always(leaf: DataType, seen: KindObservation) -> bool:
    return True


def _never(leaf: DataType, seen: KindObservation) -> bool:
    return False


def _int32(leaf: DataType, seen: KindObservation) -> bool:
    return seen.fits_int32


def _exact_double(leaf: DataType, seen: KindObservation) -> bool:
    return seen.exact_double


def _epoch(leaf: DataType, seen: KindObservation) -> bool:
    return seen.epoch_ms_exact


def _up_to(digits: int) -> Condition:
    return lambda leaf, seen: seen.integer_digits <= digits


def _room(digits: int) -> Condition:
    return lambda leaf, seen: _has_room(leaf, digits, 0) and seen.epoch_ms_exact


def _own_room(leaf: DataType, seen: KindObservation) -> bool:
    return seen.decimal_exact and _has_room(leaf, seen.integer_digits, seen.scale)


def _has_room(leaf: DataType, digits: int, scale: int) -> bool:
    return isinstance(leaf, DecimalType) and digits <= leaf.precision - leaf.scale and scale <= leaf.scale


_WHOLE = dict.fromkeys(("byte", "short", "integer", "long"), _always)

TAKES: Mapping[str, Mapping[str, Condition]] = MappingProxyType(
    {
        BOOLEAN_WORD: {
            **dict.fromkeys(("boolean", "float", "double", "string"), _always),
            **_WHOLE,
            "decimal": _room(1),
        },
        LONG_WORD: {
            "byte": _up_to(2),
            "short": _up_to(4),
            "integer": _int32,
            "long": _always,
            "float": _never,
            "double": _exact_double,
            "decimal": _own_room,
            "timestamp": _never,
            "string": _always,
        },
        DOUBLE_WORD: {"float": _never, "double": _always, "decimal": _own_room, "string": _always},
        DECIMAL_WORD: {"float": _never, "double": _exact_double, "decimal": _own_room, "string": _always},
        DATE_WORD: {
            **dict.fromkeys(("date", "integer", "long", "double", "timestamp", "timestamp_ntz", "string"), _always),
            "decimal": _room(DATE_DIGITS),
        },
        TIMESTAMP_WORD: {
            "timestamp": _always,
            "long": _epoch,
            "double": _epoch,
            "decimal": _room(EPOCH_MS_DIGITS),
            "string": _always,
        },
        NTZ_WORD: dict.fromkeys(("timestamp_ntz", "string"), _always),
        STRING_WORD: {"string": _always},
        BINARY_WORD: {"binary": _always},
        RECORD_WORD: {"record": _always},
    }
)
"""For the word of a kind: the columns that take it, by the name of their leaf type, and when they hold it.

``_never`` marks what is routed but does not count: a long into a timestamp (U16), numbers into a float. A value that a
column takes but cannot hold is null there.
"""

WIDER: Mapping[str, frozenset[str]] = MappingProxyType(
    {
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
)
"""For each word those that are wider, whatever the values. Bytes are in no order with others, as records are not."""

NUMERIC_WORDS = frozenset({INT_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD})
"""The words of columns of numbers."""

KEEPS_KIND: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        word: frozenset(columns.split())
        for word, columns in {
            BOOLEAN_WORD: "boolean",
            LONG_WORD: "int long double decimal",
            DOUBLE_WORD: "double decimal",
            DECIMAL_WORD: "double decimal",
            DATE_WORD: "date",
            TIMESTAMP_WORD: "timestamp",
            NTZ_WORD: "timestamp_ntz",
            STRING_WORD: "string",
            BINARY_WORD: "binary",
            RECORD_WORD: "record",
        }.items()
    }
)
"""For each kind the words of the columns in which its values stay what they are. A value that stands only in columns of
other words is converted, even if it can be converted back: a text column does not tell 7 from ``"7"``, nor a number
column ``true`` from 1."""

_WIDEST_FIRST = (
    *(STRING_WORD, DOUBLE_WORD, DECIMAL_WORD, LONG_WORD),
    *(INT_WORD, TIMESTAMP_WORD, NTZ_WORD, DATE_WORD, BOOLEAN_WORD),
)

_DIGITS: Mapping[str, int] = MappingProxyType(
    {BOOLEAN_WORD: 1, INT_WORD: 10, LONG_WORD: 20, DATE_WORD: DATE_DIGITS, TIMESTAMP_WORD: EPOCH_MS_DIGITS}
)
"""The digits before the point that a decimal needs for every value of a type; of integers as the matrix asks."""

_SPECIFIC_FIRST = (
    *(RECORD_WORD, BOOLEAN_WORD, INT_WORD, LONG_WORD, DOUBLE_WORD),
    *(DECIMAL_WORD, DATE_WORD, TIMESTAMP_WORD, NTZ_WORD, BINARY_WORD, STRING_WORD),
)


@dataclass(frozen=True, slots=True)
class ValueSpan:
    """The values that a type must make room for.

    Args:
        leaf: The type they have now.
        seen: What is known of them; None stands for every value of the type.
    """

    leaf: DataType
    seen: KindObservation | None = None

    @property
    def word(self) -> str | None:
        """The word for the type."""
        return word_of(self.leaf)

    @property
    def digits(self) -> tuple[int, int] | None:
        """The digits before and after the point that a decimal needs; None if no decimal does."""
        if self.seen is not None and (self.word in NUMBER_WORDS or self.word == INT_WORD):
            return (self.seen.integer_digits, self.seen.scale) if self.seen.decimal_exact else None
        if isinstance(self.leaf, DecimalType):
            return self.leaf.precision - self.leaf.scale, self.leaf.scale
        whole = _DIGITS.get(self.word or "")
        return None if whole is None else (whole, 0)


def can_route(leaf: DataType, kind_word: str) -> bool:
    """Tell whether values of a kind are routed to columns of that leaf type, exact or not.

    Source: docs/evolution-rules.md#u14, #u16, #d4
    """
    return _name(leaf) in TAKES[kind_word]


def holds_exactly(leaf: DataType, kind_word: str, seen: KindObservation) -> bool:
    """Tell whether a column of that leaf type holds all the values of a kind, each exactly.

    Where the source says a type, the column holds them if it is of that type, or of one that it can be widened to.

    Args:
        leaf: What the arrays of the column hold in the end.
        kind_word: The word of the kind.
        seen: What is known of its values.

    Source: docs/evolution-rules.md#d2, #d16
    """
    said = parse_type(seen.type) if seen.type else None
    if said is not None and (said == leaf or is_widening(said, leaf)):
        return True
    return TAKES[kind_word].get(_name(leaf), _never)(leaf, seen)


def does_keep_kind(leaf: DataType, kind_word: str) -> bool:
    """Tell whether a column of that leaf type holds a value as what it is; if not, the value is converted there.

    Args:
        leaf: What the arrays of the column hold in the end.
        kind_word: The word of the kind of a value that the column holds.

    Source: docs/evolution-rules.md#d20
    """
    return word_of(leaf) in KEEPS_KIND[kind_word]


def is_boolean_as_number(leaf: DataType, kind_word: str) -> bool:
    """Tell whether values of a kind are booleans and a column of that leaf type holds numbers.

    Source: docs/evolution-rules.md#d18
    """
    return kind_word == BOOLEAN_WORD and word_of(leaf) in NUMERIC_WORDS


def covers_kind(leaf: DataType, dim: int, kind: Kind, seen: KindObservation) -> bool:
    """Tell whether a column needs no other beside it for a kind.

    Args:
        leaf: What the arrays of the column hold in the end.
        dim: How many arrays the column has.
        kind: The kind.
        seen: What is known of its values.

    Source: docs/evolution-rules.md#u7, #d2
    """
    return kind.dim <= dim and holds_exactly(leaf, kind.word, seen)


def common_leaf(spans: Iterable[ValueSpan]) -> DataType:
    """Return the widest of the types if it is wider than all the others, else string.

    A double and a decimal are comparable only by their values. Types that no word stands for are not looked at.

    Source: docs/evolution-rules.md#u4, #u9
    """
    known = [span for span in spans if span.word in WIDER]
    words = {span.word for span in known}
    if {INT_WORD, TIMESTAMP_WORD} <= words:
        words.add(LONG_WORD)
    for word in _WIDEST_FIRST:
        if word in words and all(_precedes(span, word) for span in known):
            leaf = decimal_for(known) if word == DECIMAL_WORD else TYPE_OF_WORD[word]
            if leaf is not None:
                return leaf
    return STRING


def decimal_for(spans: Iterable[ValueSpan]) -> DecimalType | None:
    """Return the narrowest decimal that holds all the values; None if there is none of up to 38 digits."""
    whole, scale = 0, 0
    for span in spans:
        if span.digits is None:
            return None
        whole, scale = max(whole, span.digits[0]), max(scale, span.digits[1])
    precision = max(1, whole + scale)
    return DecimalType(precision, scale) if precision <= MAX_DIGITS else None


def number_types(words: Iterable[str], spans: Iterable[ValueSpan]) -> tuple[DataType, ...]:
    """Return the types that may hold numbers together, narrowest first; whether one does is not checked.

    A double is only offered where doubles are among the values, or a float is to become one: whole numbers past 64
    bits are decimals even where a double would hold them.

    Args:
        words: The words of the kinds and columns they come from.
        spans: What a decimal must have room for.

    Source: docs/evolution-rules.md#d1
    """
    double = (DOUBLE,) if DOUBLE_WORD in set(words) else ()
    decimal = decimal_for(spans)
    return (INTEGER, LONG, *double, *((decimal,) if decimal else ()))


def column_sort_key(leaf: DataType, dim: int) -> tuple[bool, int, int]:
    """Return what to sort columns of one field by: records first, then few dims, then narrow types."""
    word = word_of(leaf)
    rank = _SPECIFIC_FIRST.index(word) if word in _SPECIFIC_FIRST else len(_SPECIFIC_FIRST)
    return word != RECORD_WORD, dim, rank


def _precedes(span: ValueSpan, word: str) -> bool:
    """Tell whether the values of a span go into the type of a word: by the table, else by what is known of them."""
    if span.word == word or word in WIDER[span.word or ""]:
        return True
    known = span.seen
    if known is None or {span.word, word} != {DOUBLE_WORD, DECIMAL_WORD}:
        return False
    return known.exact_double if word == DOUBLE_WORD else known.decimal_exact


def _name(leaf: DataType) -> str:
    match leaf:
        case DecimalType():
            return "decimal"
        case StructType():
            return "record"
    return str(leaf)
