"""Fractions as decimals, with the digits as written.

Source: docs/evolution-rules.md#d1, #d3
"""

from __future__ import annotations

import msgspec

from widen.observe.json_number import MAX_DIGITS
from widen.observe.kind import DECIMAL_WORD, DOUBLE_WORD, Kind
from widen.observe.observation import FieldObservation, KindObservation
from widen.planning.evolution.field_columns import Kinds


def to_decimals(observed: FieldObservation) -> FieldObservation:
    """Return the observation of a field as if its fractions had no double, where a decimal holds them.

    Fields inside records are left alone: they have their own observation.
    """
    maps = {dim: to_decimals(values) for dim, values in observed.maps.items()}
    return msgspec.structs.replace(observed, kinds=dict(_decimal_kinds(observed.kinds)), maps=maps)


def _decimal_kinds(kinds: Kinds) -> Kinds:
    by_kind: dict[Kind, KindObservation] = {}
    for kind, seen in kinds.items():
        is_fraction = kind.word in (DOUBLE_WORD, DECIMAL_WORD)
        if is_fraction and not seen.type and seen.decimal_exact:
            scale = max(seen.scale, seen.written_scale)
            if seen.integer_digits + scale <= MAX_DIGITS:
                kind, seen = Kind(DECIMAL_WORD, kind.dim), msgspec.structs.replace(seen, scale=scale)
        by_kind[kind] = by_kind[kind].merged(seen) if kind in by_kind else seen
    return by_kind
