"""Fields that hold only scalars: the columns of each kind of value, without a look at single values.

Source: docs/evolution-rules.md#u14
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from widen.observe.field_rules import FieldRule, FieldRules
from widen.observe.kind import BOOLEAN_WORD, DOUBLE_WORD, INT_WORD, LONG_WORD, STRING_WORD
from widen.routing.native.record_shape import BatchProfile
from widen.routing.native.scalar_conversion import build_fast_converter, integer_bound, native_type
from widen.routing.route import ColumnSlot, RecordRoute

_UNCHANGED: Mapping[type, frozenset[str]] = {
    bool: frozenset({BOOLEAN_WORD, STRING_WORD}),
    int: frozenset({INT_WORD, LONG_WORD, DOUBLE_WORD, STRING_WORD}),
    float: frozenset({DOUBLE_WORD, STRING_WORD}),
    str: frozenset({STRING_WORD}),
}
"""For each Python type the kind words of the columns that hold each value as it is, or its text."""

_NATIVE_TYPES: Mapping[str, tuple[type, ...]] = {
    BOOLEAN_WORD: (bool,),
    INT_WORD: (int,),
    LONG_WORD: (int,),
    DOUBLE_WORD: (int, float),
    STRING_WORD: (str,),
}
"""What a field with a single column takes until it shows another kind of value."""


@dataclass(frozen=True, slots=True)
class ScalarField:
    """A field and the columns of its scalars.

    Args:
        columns: The columns of each Python type whose values need no closer look.
        bound: Integers from this magnitude on need a closer look.
        takes_null: Whether null needs no closer look.
        has_dates: Whether strings that begin with a date need a closer look.
    """

    slots: tuple[ColumnSlot, ...] = ()
    columns: Mapping[type, frozenset[str]] = field(default_factory=dict)
    bound: int = 0
    takes_null: bool = False
    has_dates: bool = False


def build_scalar_field(
    key: str, route: RecordRoute, base: RecordRoute, rules: FieldRules, profile: BatchProfile
) -> ScalarField:
    """Return a field of the records of a route."""
    slots, own_rules = route.get(key, ()), rules.at(key)
    is_as_written = own_rules.take in (FieldRule.AS_IS, FieldRule.AS_TEXT) and not own_rules.hidden
    if not is_as_written or any(slot.guard is not None for slot in slots):
        return ScalarField(slots)
    if not slots:
        return ScalarField(takes_null=(key,) in profile.empty_fields)
    if len(slots) == 1 and (key,) not in profile.mixed_fields and slots[0].dim == 0 and native_type(slots[0]):
        columns = dict.fromkeys(_NATIVE_TYPES[slots[0].word], frozenset({slots[0].name}))
        return ScalarField(slots, columns, integer_bound(slots), True, own_rules.reads_times)
    converter = build_fast_converter(slots, [slot.name for slot in base.get(key, ())])
    routed = {
        python_type: [slot for slot in slots if python_type in converter.conversions[slot.name]]
        for python_type in _UNCHANGED
    }
    columns = {
        python_type: frozenset(slot.name for slot in taking)
        for python_type, taking in routed.items()
        if taking and all(_holds_unchanged(slot, python_type) for slot in taking)
    }
    whole = [slot for slot in routed[int] if int in columns]
    return ScalarField(slots, columns, min(converter.bound, integer_bound(whole)), True, own_rules.reads_times)


def _holds_unchanged(slot: ColumnSlot, python_type: type) -> bool:
    return slot.dim == 0 and slot.word in _UNCHANGED[python_type] and native_type(slot) is not None
