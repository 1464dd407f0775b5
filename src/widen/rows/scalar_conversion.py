"""Conversions of decoded scalars to columns without a closer look, by the Python type of the decoded value.

A scalar needs no closer look if it brings nothing new: the field has a column of exactly its kind, or a text column
from before the interval, which holds every scalar, or one column from before the interval that can hold the value.

Source: docs/evolution-rules.md#u7, #u14, #d2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import msgspec

from widen.json.document import DateText, JsonNumber, LocalTimeText, TimestampText
from widen.json.kinds import (
    BOOLEAN_WORD,
    DATE_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.rows.convert import MISSING, convert
from widen.rows.row import ColumnSlot, routes_kind

_INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Not every integer past 2^53 is a double. As msgspec reads integers as int where int is allowed, the bound is checked
# before any rounding.
_EXACT_INT = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

_NATIVE: Mapping[tuple[str, str], Any] = {
    (BOOLEAN_WORD, "boolean"): bool,
    (INT_WORD, "integer"): _INT32,
    (LONG_WORD, "long"): _INT64,
    (DOUBLE_WORD, "double"): _EXACT_INT | float,
    (STRING_WORD, "string"): str,
}
"""For each kind word and type of a column: what the decoder accepts, if the column takes decoded values unchanged."""

FastConversion: TypeAlias = Callable[[Any, bytes], Any]
"""Takes a decoded value and its text, if it came as text; returns the column value."""


def _to_int(decoded: Any, text: bytes) -> Any:
    return int(decoded)


def _to_boolean_text(decoded: Any, text: bytes) -> Any:
    return "true" if decoded else "false"


def to_digits(decoded: Any, text: bytes) -> Any:
    """Return the digits of an integer; its text, if there is one, has the same."""
    return str(decoded)


def to_source_text(decoded: Any, text: bytes) -> Any:
    """Return the text of a number as it is: Arrow takes UTF-8 for a string."""
    return text


_KIND_OF_TYPE: Mapping[type, str] = {
    bool: BOOLEAN_WORD,
    int: LONG_WORD,
    float: DOUBLE_WORD,
    str: STRING_WORD,
    DateText: DATE_WORD,
    TimestampText: TIMESTAMP_WORD,
    LocalTimeText: NTZ_WORD,
}


class IntArray(list[int]):
    """A decoded array of integers that no column rounds."""


class TextArray(list[str]):
    """A decoded array of strings."""


class BooleanArray(list[bool]):
    """A decoded array of booleans."""


class EmptyArray(list[None]):
    """A decoded array without items. Every array column takes it."""


_ARRAY_OF_TYPE: Mapping[type, type[list[Any]]] = {int: IntArray, str: TextArray, bool: BooleanArray}
"""The type of an array whose items are all of a type. Fractions are missing: their text is needed, and not decoded."""

_INTEGER_BOUNDS: Mapping[str, int] = {INT_WORD: 2**31, DOUBLE_WORD: 2**53, LONG_WORD: 2**63}
"""Magnitude up to which a column of each kind word holds every integer."""

_LONG_BOUND = 2**63

_FAST: Mapping[tuple[str, str], FastConversion | None] = {
    (BOOLEAN_WORD, BOOLEAN_WORD): None,
    (BOOLEAN_WORD, INT_WORD): _to_int,
    (BOOLEAN_WORD, LONG_WORD): _to_int,
    (BOOLEAN_WORD, DOUBLE_WORD): _to_int,
    (BOOLEAN_WORD, STRING_WORD): _to_boolean_text,
    (LONG_WORD, INT_WORD): None,
    (LONG_WORD, LONG_WORD): None,
    (LONG_WORD, DOUBLE_WORD): _to_int,
    (LONG_WORD, STRING_WORD): to_digits,
    (DOUBLE_WORD, DOUBLE_WORD): None,
    (DOUBLE_WORD, STRING_WORD): to_source_text,
    (STRING_WORD, STRING_WORD): None,
}
"""For each kind of value and each column in `_NATIVE`: the conversion, or None if the value stays unchanged."""

_SAME_KIND = frozenset({(LONG_WORD, INT_WORD), *((word, word) for word in _KIND_OF_TYPE.values())})
"""Pairs of the kind word of a value and the kind word of a column of the same kind."""


@dataclass(slots=True)
class FastConverter:
    """Conversions of the scalars of one field.

    Args:
        conversions: For each column by name: the Python types that it takes with their conversions; None if a value
            stays unchanged.
        deciders: For some types, the column that must hold each value; values that it cannot hold need a closer look.
        bound: Integers from this magnitude on need a closer look.
        has_no_doubles: Whether no column takes fractions as doubles, so that no fraction needs a closer look.
        array_bound: Array items from this magnitude on need a closer look; 0 if arrays are not converted.
    """

    conversions: dict[str, dict[type, FastConversion | None]]
    deciders: dict[type, str] = field(default_factory=dict)
    bound: int = 0
    has_no_doubles: bool = False
    array_bound: int = 0

    @property
    def python_types(self) -> frozenset[type]:
        """The Python types that some column takes."""
        return frozenset(python_type for conversions in self.conversions.values() for python_type in conversions)

    def decide(self, name: str) -> None:
        """Make a column the decider, in place: it must hold every value. Types that it does not take lose their
        conversions.
        """
        decided = self.conversions[name].keys() - {
            python_type for python_type, decider in self.deciders.items() if decider != name
        }
        self.conversions = {
            column: {
                python_type: conversion for python_type, conversion in conversions.items() if python_type in decided
            }
            for column, conversions in self.conversions.items()
        }
        self.deciders = dict.fromkeys(decided, name)


def native_type(slot: ColumnSlot) -> Any:
    """Return what the decoder accepts for the leaves of a column, or None if the column never takes decoded values."""
    return _NATIVE.get((slot.word, str(slot.type)))


def build_fast_converter(slots: tuple[ColumnSlot, ...], base_columns: Collection[str]) -> FastConverter:
    """Return the conversions of scalars to the columns of a field that need no closer look.

    Args:
        base_columns: Names of the columns from before the interval.
    """
    converter = FastConverter({slot.name: {} for slot in slots})
    has_text_column = any(slot.word == STRING_WORD and slot.name in base_columns for slot in slots)
    # What a double rounds is observed, so that it is counted, although the text column holds it.
    is_unbounded = has_text_column and not any(slot.rounds for slot in slots)
    converter.bound = _LONG_BOUND if is_unbounded else integer_bound(slots)
    for python_type, word in _KIND_OF_TYPE.items():
        routed = [slot for slot in slots if routes_kind(slot, Kind(word))]
        base_routed = [slot for slot in routed if slot.name in base_columns]
        # A text column from before the interval holds every scalar, so no scalar is new to it (U7).
        if not has_text_column and not any(map(_is_same_kind, [word] * len(routed), routed)):
            if len(base_routed) != 1 or not _can_decide(word, base_routed[0]):
                continue
            converter.deciders[python_type] = base_routed[0].name
        for slot in routed:
            converter.conversions[slot.name][python_type] = wrap_in_arrays(
                _fast_conversion(word, slot, converter.bound), slot.dim
            )
    converter.has_no_doubles = not any(
        float in converter.conversions[slot.name] for slot in slots if slot.word == DOUBLE_WORD
    )
    return converter


def add_array_conversions(converter: FastConverter, slots: tuple[ColumnSlot, ...]) -> None:
    """Add the conversions of arrays whose items are all of one type, in place.

    Such an array needs no closer look if a column has exactly its kind, and every column converts its items.
    """
    for python_type, array_type in _ARRAY_OF_TYPE.items():
        word = _KIND_OF_TYPE[python_type]
        routed = [slot for slot in slots if routes_kind(slot, Kind(word, 1))]
        is_native = all(native_type(slot) is not None and (word, slot.word) in _FAST for slot in routed)
        if is_native and any(slot.dim == 1 and (word, slot.word) in _SAME_KIND for slot in routed):
            for slot in routed:
                item_conversion = wrap_in_arrays(_FAST[word, slot.word], slot.dim - 1)
                converter.conversions[slot.name][array_type] = _each(item_conversion)
    for slot in slots:
        if slot.dim:
            converter.conversions[slot.name][EmptyArray] = None
    converter.array_bound = integer_bound(slots)


def _each(conversion: FastConversion | None) -> FastConversion | None:
    return conversion and (lambda items, _: [conversion(item, b"") for item in items])


def to_typed_array(items: list[Any], text: bytes, bound: int) -> list[Any]:
    """Return a decoded array as one of its own type if its items are all of a type, else unchanged.

    Args:
        bound: Integers from this magnitude on need a closer look.
    """
    if not items:
        return EmptyArray()
    python_types = set(map(type, items))
    array_type = _ARRAY_OF_TYPE.get(python_types.pop()) if len(python_types) == 1 else None
    is_certain = array_type is not IntArray or _are_bounded(items, text, bound)
    return items if array_type is None or not is_certain else array_type(items)


def _are_bounded(items: list[int], text: bytes, bound: int) -> bool:
    return -bound <= min(items) and max(items) < bound and b"-0" not in text


def integer_bound(slots: Iterable[ColumnSlot]) -> int:
    """Return the magnitude up to which all columns hold every integer."""
    return min((_INTEGER_BOUNDS[slot.word] for slot in slots if slot.word in _INTEGER_BOUNDS), default=_LONG_BOUND)


def _is_same_kind(word: str, slot: ColumnSlot) -> bool:
    is_alone = native_type(slot) is not None or slot.word in (DATE_WORD, TIMESTAMP_WORD, NTZ_WORD)
    return slot.dim == 0 and is_alone and (word, slot.word) in _SAME_KIND


def _can_decide(word: str, slot: ColumnSlot) -> bool:
    """Return whether a column from before the interval covers a kind if and only if it can hold each of its values."""
    return slot.dim == 0 and str(slot.type) != "float" and (word, slot.word) != (LONG_WORD, TIMESTAMP_WORD)


def _fast_conversion(word: str, slot: ColumnSlot, bound: int) -> FastConversion | None:
    """Return the conversion of the scalars of a kind to the items of a column; None leaves them unchanged."""
    is_bounded = word != LONG_WORD or bound <= _INTEGER_BOUNDS.get(slot.word, bound)
    if native_type(slot) is not None and is_bounded and (word, slot.word) in _FAST:
        return _FAST[word, slot.word]
    is_number = word in (LONG_WORD, DOUBLE_WORD)

    def conversion(decoded: Any, text: bytes) -> Any:
        value = convert(
            JsonNumber(text.decode()) if is_number else decoded, word, slot.word, slot.type, slot.epoch_unit
        )
        return None if value is MISSING else value

    if word != LONG_WORD or native_type(slot) is None or slot.word not in _INTEGER_BOUNDS:
        return conversion
    low, high = -_INTEGER_BOUNDS[slot.word], _INTEGER_BOUNDS[slot.word]
    return lambda decoded, text: decoded if low <= decoded < high else conversion(decoded, text)


def wrap_in_arrays(conversion: FastConversion | None, dim: int) -> FastConversion | None:
    """Return the conversion to a column with this number of arrays."""
    if dim == 0:
        return conversion
    convert_item = wrap_in_arrays(conversion, dim - 1)

    def convert_to_array(decoded: Any, text: bytes) -> Any:
        value = decoded if convert_item is None else convert_item(decoded, text)
        return None if value is None else [value]

    return convert_to_array
