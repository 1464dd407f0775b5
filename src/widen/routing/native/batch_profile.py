"""What a batch shows of its fields beyond the schema: kinds that no column takes natively, and the order of keys.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from widen.observe.kind import DOUBLE_WORD, INT_WORD, LONG_WORD, Kind
from widen.observe.observation import FieldObservation, KindObservation, RecordObservation
from widen.routing.native.record_shape import BatchProfile, SourcePath
from widen.routing.route import ColumnSlot, RecordRoute

MAX_ORDERED_TEXTS = 50
"""Maximum number of texts whose keys are looked at for their order."""

_decode = msgspec.json.Decoder().decode


def find_key_orders(texts: Sequence[bytes]) -> dict[SourcePath, list[str]]:
    """Return the keys of the records at each path, in the order that texts have them.

    Args:
        texts: Texts of records; others do not count.
    """
    orders: dict[SourcePath, list[str]] = {(): []}
    for text in texts[:: max(1, len(texts) // MAX_ORDERED_TEXTS)]:
        try:
            _collect_orders(_decode(text), (), orders)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # `_collect_orders` needs more of the stack than decoding, so it can fail for what was decoded.
            continue
    return orders


def _collect_orders(value: Any, path: SourcePath, orders: dict[SourcePath, list[str]]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect_orders(item, path, orders)
    elif isinstance(value, dict):
        _merge_order(orders.setdefault(path, []), value)
        for key, inner in value.items():
            _collect_orders(inner, (*path, key), orders)


def _merge_order(order: list[str], keys: Iterable[str]) -> None:
    """Insert new keys, in position, each after the key that it follows."""
    existing = set(order)
    if existing.issuperset(keys):
        return
    position = 0
    for key in keys:
        if key in existing:
            position = order.index(key) + 1
        else:
            order.insert(position, key)
            position += 1


def adapt_profile(profile: BatchProfile, route: RecordRoute, observed: RecordObservation) -> BatchProfile:
    """Return a profile with what was observed so far.

    Args:
        profile: The profile until now.
        observed: Fields of the records that were read exactly.
    """
    mixed: set[SourcePath] = set()
    empty: dict[SourcePath, FieldObservation] = {}
    _classify_fields(route, observed, (), mixed, empty)
    return replace(profile, mixed_fields=frozenset(mixed), empty_fields=empty)


def _classify_fields(
    route: RecordRoute,
    observed: RecordObservation,
    parent: SourcePath,
    mixed: set[SourcePath],
    empty: dict[SourcePath, FieldObservation],
) -> None:
    for key, field in observed.items():
        slots, path = route.get(key, ()), (*parent, key)
        if not slots and not field.kinds:
            empty[path] = FieldObservation(
                dict.fromkeys(field.nulls, 1), dict.fromkeys(field.empty, 1), dict.fromkeys(field.empty_records, 1)
            )
        elif slots and not all(
            any(_is_native(slot, kind, values) for slot in slots) for kind, values in field.kinds.items()
        ):
            mixed.add(path)
        for slot in slots:
            if slot.record is not None:
                _classify_fields(slot.record, field.records.get(slot.dim, {}), path, mixed, empty)


def _is_native(slot: ColumnSlot, kind: Kind, values: KindObservation) -> bool:
    """Tell whether a column takes the values of a kind natively."""
    word = INT_WORD if kind.word == LONG_WORD and values.fits_int32 and slot.word == INT_WORD else kind.word
    whole_double = kind.word == LONG_WORD and slot.word == DOUBLE_WORD
    return kind.dim == slot.dim and (word == slot.word or whole_double)
