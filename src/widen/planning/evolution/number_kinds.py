"""Numbers in the form that the policy asks for: as decimals with the digits as written, or as doubles.

Source: docs/evolution-rules.md#d1, #d3
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import msgspec

from widen.observe.json_number import MAX_DIGITS
from widen.observe.kind import DECIMAL_WORD, DOUBLE_WORD, LONG_WORD, Kind
from widen.observe.observation import FieldObservation, KindObservation
from widen.planning.evolution.column_choice import apply_widenings
from widen.planning.evolution.field_columns import ColumnChoice, Kinds
from widen.planning.evolution.field_evolution import FieldEvolution
from widen.planning.evolution.type_lattice import rounded_kinds


def to_decimals(observed: FieldObservation) -> FieldObservation:
    """Return the observation of a field as if its fractions had no double, where a decimal holds them.

    Fields inside records are left alone: they have their own observation.
    """
    maps = {dim: to_decimals(values) for dim, values in observed.maps.items()}
    return msgspec.structs.replace(observed, kinds=dict(_decimal_kinds(observed.kinds)), maps=maps)


def to_doubles(observed: FieldObservation, words: Collection[str]) -> FieldObservation:
    """Return the observation of a field as if a double held each of its numbers of some kinds."""
    by_kind: dict[Kind, KindObservation] = {}
    for kind, seen in observed.kinds.items():
        if kind.word in words:
            kind, seen = Kind(DOUBLE_WORD, kind.dim), msgspec.structs.replace(seen, exact_double=True)
        by_kind[kind] = by_kind[kind].merged(seen) if kind in by_kind else seen
    return msgspec.structs.replace(observed, kinds=by_kind)


_ROUNDED = ((DECIMAL_WORD, LONG_WORD), (DECIMAL_WORD,))
"""The kinds to round, in the order to try."""


def round_numbers(part: FieldEvolution, choose: Callable[[FieldEvolution], ColumnChoice]) -> int:
    """Let a field round numbers to doubles, if fractions meet other numbers and the resulting columns allow it.

    Routes round under the same condition. Values of maps are not rounded.

    Args:
        part: The field; its observation and its choice change in place.

    Returns:
        How many numbers are rounded.

    Source: docs/evolution-rules.md#d1
    """
    kinds = {} if part.maps else part.own_kinds
    has_fractions = any(kind.word == DOUBLE_WORD or seen.scale for kind, seen in kinds.items())
    if not has_fractions and not rounded_kinds(column.leaf for column in part.columns):
        return 0
    for words in _ROUNDED:
        count = sum(seen.inexact for kind, seen in kinds.items() if kind.word in words)
        rounded = replace(part, observed=to_doubles(part.observed, words))
        choice = choose(rounded) if count else ColumnChoice()
        grown = (column.leaf for column in apply_widenings(part.columns, choice.widened))
        if count and rounded_kinds([*grown, *(request.leaf for request in choice.requests)]).issuperset(words):
            part.observed, part.choice = rounded.observed, choice
            return count
    return 0


def _decimal_kinds(kinds: Kinds) -> Kinds:
    by_kind: dict[Kind, KindObservation] = {}
    for kind, seen in kinds.items():
        is_fraction = kind.word in (DOUBLE_WORD, DECIMAL_WORD)
        # A source with types has declared doubles on purpose; only JSON and CSV leave the choice open.
        if is_fraction and not seen.type and seen.decimal_exact:
            scale = max(seen.scale, seen.written_scale)
            if seen.integer_digits + scale <= MAX_DIGITS:
                kind, seen = Kind(DECIMAL_WORD, kind.dim), msgspec.structs.replace(seen, scale=scale)
        by_kind[kind] = by_kind[kind].merged(seen) if kind in by_kind else seen
    return by_kind
