"""Ways: how scalars get into columns without a closer look, by the Python types of their decoded values.

A scalar needs no closer look where it brings nothing new: the field has a column of its very kind, or one of texts
that was there before the interval and holds whatever comes, or one column that was there before and does hold it.

Source: docs/evolution-rules.md#u7, #u14, #d2
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import msgspec

from widen.observe.json_document import DateText, JsonNumber, TimestampText
from widen.observe.kind import (
    BOOLEAN_WORD,
    DATE_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.routing.convert import MISSING, convert
from widen.routing.route import ColumnSlot, routes_kind

_INT32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_EXACT_INT = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]

_NATIVE: Mapping[tuple[str, str], Any] = MappingProxyType(
    {
        (BOOLEAN_WORD, "boolean"): bool,
        (INT_WORD, "integer"): _INT32,
        (LONG_WORD, "long"): _INT64,
        (DOUBLE_WORD, "double"): _EXACT_INT | float,
        (STRING_WORD, "string"): str,
    }
)
"""The columns, by word and type, whose values are taken as they are decoded, and what the decoder lets through."""

FastConversion: TypeAlias = Callable[[Any, bytes], Any]
"""Takes a decoded value and, if it came as one, its text; gives what the column holds."""


def _whole(plain: Any, text: bytes) -> Any:
    return int(plain)


def _spelled(plain: Any, text: bytes) -> Any:
    return "true" if plain else "false"


def _digits(plain: Any, text: bytes) -> Any:
    return str(plain)


def _text(plain: Any, text: bytes) -> Any:
    return text.decode()


_FORMS: Mapping[type, str] = MappingProxyType(
    {
        bool: BOOLEAN_WORD,
        int: LONG_WORD,
        float: DOUBLE_WORD,
        str: STRING_WORD,
        DateText: DATE_WORD,
        TimestampText: TIMESTAMP_WORD,
    }
)
_BOUNDS: Mapping[str, int] = MappingProxyType({INT_WORD: 2**31, DOUBLE_WORD: 2**53, LONG_WORD: 2**63})
"""Up to where the columns of a word hold every whole number."""

_LONGS = 2**63

_FAST: Mapping[tuple[str, str], FastConversion | None] = MappingProxyType(
    {
        (BOOLEAN_WORD, BOOLEAN_WORD): None,
        (BOOLEAN_WORD, INT_WORD): _whole,
        (BOOLEAN_WORD, LONG_WORD): _whole,
        (BOOLEAN_WORD, DOUBLE_WORD): _whole,
        (BOOLEAN_WORD, STRING_WORD): _spelled,
        (LONG_WORD, INT_WORD): None,
        (LONG_WORD, LONG_WORD): None,
        (LONG_WORD, DOUBLE_WORD): _whole,
        (LONG_WORD, STRING_WORD): _digits,
        (DOUBLE_WORD, DOUBLE_WORD): None,
        (DOUBLE_WORD, STRING_WORD): _text,
        (STRING_WORD, STRING_WORD): None,
    }
)
"""How a scalar gets into a column of `_NATIVE`, by the words of both; None where it stays as it is."""

_OWN = frozenset({(LONG_WORD, INT_WORD), *((word, word) for word in _FORMS.values())})
"""The words of a kind and of a column of its very kind."""


@dataclass(slots=True)
class FastConverter:
    """The ways of the scalars of one field.

    Args:
        of: For each column by its name: the Python types that it takes, and how; None where a value stays as it is.
        deciders: For some of the types, the column that must hold a value; one that it does not hold needs a closer
            look.
        bound: From which whole number on all need a closer look; below minus that, too.
        is_exact: No column takes a fraction as a double, so that none needs a closer look.
    """

    of: dict[str, dict[type, FastConversion | None]]
    deciders: dict[type, str] = field(default_factory=dict)
    bound: int = 0
    is_exact: bool = False

    @property
    def forms(self) -> frozenset[type]:
        """The Python types that have a way into some column."""
        return frozenset(form for ways in self.of.values() for form in ways)

    def decide(self, name: str) -> None:
        """Let one column decide: it must hold every value that has a way; other values have none, in place."""
        own = self.of[name].keys() - {form for form, decider in self.deciders.items() if decider != name}
        self.of = {column: {form: way for form, way in ways.items() if form in own} for column, ways in self.of.items()}
        self.deciders = dict.fromkeys(own, name)


def native_type(slot: ColumnSlot) -> Any:
    """Return what the decoder lets through for the leaves of a column, or None if they are never taken as they are."""
    return _NATIVE.get((slot.word, str(slot.type)))


def build_fast_converter(slots: tuple[ColumnSlot, ...], known: Collection[str]) -> FastConverter:
    """Return how the columns of a field take scalars, as far as that needs no closer look.

    Args:
        slots: The columns.
        known: The names of those that were there before the interval.
    """
    ways = FastConverter({slot.name: {} for slot in slots})
    is_settled = any(slot.word == STRING_WORD and slot.name in known for slot in slots)
    ways.bound = _LONGS if is_settled else min((_BOUNDS[s.word] for s in slots if s.word in _BOUNDS), default=_LONGS)
    for form, word in _FORMS.items():
        takers = [slot for slot in slots if routes_kind(slot, Kind(word))]
        deciding = [slot for slot in takers if slot.name in known]
        if not is_settled and not any(map(_is_own, [word] * len(takers), takers)):
            if len(deciding) != 1 or not _does_decide(word, deciding[0]):
                continue
            ways.deciders[form] = deciding[0].name
        for slot in takers:
            ways.of[slot.name][form] = wrap_in_arrays(_fast_conversion(word, slot, ways.bound), slot.dim)
    ways.is_exact = not any(float in ways.of[slot.name] for slot in slots if slot.word == DOUBLE_WORD)
    return ways


def _is_own(word: str, slot: ColumnSlot) -> bool:
    is_exact = native_type(slot) is not None or slot.word in (DATE_WORD, TIMESTAMP_WORD)
    return slot.dim == 0 and is_exact and (word, slot.word) in _OWN


def _does_decide(word: str, slot: ColumnSlot) -> bool:
    """Tell whether a kind is covered if, and only if, a column holds each of its values."""
    return slot.dim == 0 and str(slot.type) != "float" and (word, slot.word) != (LONG_WORD, TIMESTAMP_WORD)


def _fast_conversion(word: str, slot: ColumnSlot, bound: int) -> FastConversion | None:
    """Return the way of the scalars of a kind into the arrays of a column, if it has any."""
    is_bounded = word != LONG_WORD or bound <= _BOUNDS.get(slot.word, bound)
    if native_type(slot) is not None and is_bounded and (word, slot.word) in _FAST:
        return _FAST[word, slot.word]
    is_number = word in (LONG_WORD, DOUBLE_WORD)

    def way(plain: Any, text: bytes) -> Any:
        held = convert(JsonNumber(text.decode()) if is_number else plain, word, slot.word, slot.type, slot.epoch_unit)
        return None if held is MISSING else held

    return way


def wrap_in_arrays(way: FastConversion | None, dim: int) -> FastConversion | None:
    """Return the way into a column of that many arrays."""
    if dim == 0:
        return way
    inner = wrap_in_arrays(way, dim - 1)

    def array(plain: Any, text: bytes) -> Any:
        held = plain if inner is None else inner(plain, text)
        return None if held is None else [held]

    return array
