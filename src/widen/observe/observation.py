"""Observations: what a batch holds, counted by kind, as one value that merges in any order.

Source: docs/evolution-rules.md#observe
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from widen.observe.json_number import ValueFacts
from widen.observe.kind import Kind, parse_kind

RecordPosition: TypeAlias = tuple[str, int]
"""Where a record stands: the file, and its number there, from 1."""

SAMPLE_CHARS = 80
"""How much of a value is kept to show."""

_Key = TypeVar("_Key")

Combine: TypeAlias = Callable[[int, int], int]
"""How the counts of two observations become one."""


class KindObservation(msgspec.Struct, omit_defaults=True):
    """The values of one kind: how many, and what holds for all of them.

    Args:
        count: The values.
        integer_digits: The most digits that a value has before the point.
        scale: The most digits that a value has after the point.
        fits_int32: Every value is a whole number of 32 bits.
        exact_double: Every value survives the way to a double and back.
        decimal_exact: Every value survives the way to a decimal of up to 38 digits and back.
        epoch_ms_exact: Every value is a whole number of milliseconds.
        type: The type that the source says they have, as SQL; empty where it says none, or several.
        first: Where the first value stands, by file name and position.
        sample: The first value as text, cut to `SAMPLE_CHARS`.
    """

    count: int = 0
    integer_digits: int = 0
    scale: int = 0
    fits_int32: bool = True
    exact_double: bool = True
    decimal_exact: bool = True
    epoch_ms_exact: bool = True
    type: str = ""
    first: RecordPosition | None = None
    sample: str = ""

    def add(self, facts: ValueFacts, at: RecordPosition, sample: str, count: int = 1) -> None:
        """Count a value, or several that share facts, place and sample, in place.

        Args:
            facts: The facts of the value.
            at: Where it stands.
            sample: Its text; only the beginning is kept.
            count: How many values they are.
        """
        self.count += count
        self.integer_digits = max(self.integer_digits, facts.integer_digits)
        self.scale = max(self.scale, facts.scale)
        self.fits_int32 &= facts.fits_int32
        self.exact_double &= facts.exact_double
        self.decimal_exact &= facts.decimal_exact
        self.epoch_ms_exact &= facts.epoch_ms_exact
        if self.first is None or at < self.first:
            self.first, self.sample = at, sample[:SAMPLE_CHARS]

    def merged(self, other: KindObservation, combine: Combine = operator.add) -> KindObservation:
        """Return what both have seen."""
        first, sample = _earlier(self, other)
        return KindObservation(
            count=combine(self.count, other.count),
            integer_digits=max(self.integer_digits, other.integer_digits),
            scale=max(self.scale, other.scale),
            fits_int32=self.fits_int32 and other.fits_int32,
            exact_double=self.exact_double and other.exact_double,
            decimal_exact=self.decimal_exact and other.decimal_exact,
            epoch_ms_exact=self.epoch_ms_exact and other.epoch_ms_exact,
            type=self._common_type(other),
            first=first,
            sample=sample,
        )

    def _common_type(self, other: KindObservation) -> str:
        if self.type == other.type or other == _NO_VALUES:
            return self.type
        return other.type if self == _NO_VALUES else ""


class FieldObservation(msgspec.Struct, omit_defaults=True):
    """What stood at one key: values by kind, and what has no kind.

    Args:
        nulls: The nulls, by the number of arrays around them: 0 is the field itself.
        empty: The empty arrays by dim: ``[]`` is 1, ``[[]]`` is 2.
        empty_records: The ``{}`` by the number of arrays around them.
        kinds: The values by kind; a record with at least one key counts as a record.
        records: The sub-fields of the records, by the number of arrays around them.
        maps: What stood at the keys of the maps, all keys as one field, by the number of arrays around the maps.
    """

    nulls: dict[int, int] = {}
    empty: dict[int, int] = {}
    empty_records: dict[int, int] = {}
    kinds: dict[Kind, KindObservation] = {}
    records: dict[int, dict[str, FieldObservation]] = {}
    maps: dict[int, FieldObservation] = {}

    def kind(self, kind: Kind) -> KindObservation:
        """Return what is known of a kind here, made on first use, to count on."""
        return self.kinds.setdefault(kind, KindObservation())

    def record(self, dim: int) -> RecordObservation:
        """Return the sub-fields of the records of a dim, made on first use, to count on."""
        return self.records.setdefault(dim, {})

    def entries(self, dim: int) -> FieldObservation:
        """Return what stood in the maps of a dim, made on first use, to count on."""
        return self.maps.setdefault(dim, FieldObservation())

    def merged(self, other: FieldObservation, combine: Combine = operator.add) -> FieldObservation:
        """Return what both have seen."""
        return FieldObservation(
            nulls=_combine(self.nulls, other.nulls, combine),
            empty=_combine(self.empty, other.empty, combine),
            empty_records=_combine(self.empty_records, other.empty_records, combine),
            kinds={
                kind: self.kinds.get(kind, _NO_VALUES).merged(other.kinds.get(kind, _NO_VALUES), combine)
                for kind in _keys(self.kinds, other.kinds)
            },
            records={
                dim: merge_records(self.records.get(dim, {}), other.records.get(dim, {}), combine)
                for dim in _keys(self.records, other.records)
            },
            maps={
                dim: self.maps.get(dim, _NO_FIELD).merged(other.maps.get(dim, _NO_FIELD), combine)
                for dim in _keys(self.maps, other.maps)
            },
        )


RecordObservation: TypeAlias = dict[str, FieldObservation]
"""What stood at each key of the records of one place."""

_NO_VALUES, _NO_FIELD = KindObservation(), FieldObservation()


class Observation(msgspec.Struct, omit_defaults=True):
    """What a batch holds. ``Observation()`` is the empty batch; merging is commutative and associative.

    One walker fills it in place through `field`, `FieldSeen.kind` and `FieldSeen.record`; once it has left the
    walker nobody changes it any more.

    Args:
        records: The records that are good.
        corrupt: The lines that are no record.
        root: What stood at each key of the good records.
        quarantined: The records that are kept out of the table, though they are records.
        kept_out: What keeps records out: what stands at their keys and does not fit columns that cannot yield.
        met: The paths of fields that are left out and are there; nothing else tells of them.
    """

    records: int = 0
    corrupt: int = 0
    root: dict[str, FieldObservation] = {}
    quarantined: int = 0
    kept_out: dict[str, FieldObservation] = {}
    met: list[list[str]] = []

    def merged(self, other: Observation, combine: Combine = operator.add) -> Observation:
        """Return what both have seen.

        Args:
            other: What somebody else has seen.
            combine: How their counts become one: ``add`` for two parts of a batch, ``max`` for two looks at the same.
        """
        return Observation(
            combine(self.records, other.records),
            combine(self.corrupt, other.corrupt),
            merge_records(self.root, other.root, combine),
            combine(self.quarantined, other.quarantined),
            merge_records(self.kept_out, other.kept_out, combine),
            sorted([*self.met, *(path for path in other.met if path not in self.met)]),
        )

    def to_json(self) -> bytes:
        """Return the observation as JSON, to send it somewhere else."""
        return _encoder.encode(self)


def merge_observations(parts: Iterable[Observation]) -> Observation:
    """Return what all the parts have seen together; their order does not matter."""
    total = Observation()
    for part in parts:
        total = total.merged(part)
    return total


def merge_records(
    left: RecordObservation, right: RecordObservation, combine: Combine = operator.add
) -> RecordObservation:
    """Return what both have seen at each key; the keys come out sorted.

    Args:
        left: What one has seen.
        right: What the other has seen.
        combine: How their counts become one.
    """
    return {key: left.get(key, _NO_FIELD).merged(right.get(key, _NO_FIELD), combine) for key in _keys(left, right)}


def get_field(record: RecordObservation, key: str) -> FieldObservation:
    """Return what is known of a key, made on first use, to count on."""
    found = record.get(key)
    if found is None:
        found = record[key] = FieldObservation()
    return found


def position_text(at: RecordPosition) -> str:
    """Return where a record stands as people read it."""
    return f"{at[0]}:{at[1]}"


def observation_from_json(data: bytes) -> Observation:
    """Return the observation that `Observation.to_json` gave as JSON."""
    wire = _decoder.decode(data)
    return Observation(
        wire.records, wire.corrupt, _from_wire(wire.root), wire.quarantined, _from_wire(wire.kept_out), wire.met
    )


def _earlier(left: KindObservation, right: KindObservation) -> tuple[RecordPosition | None, str]:
    if left.first is None or right.first is None:
        known = right if left.first is None else left
        return known.first, known.sample
    return min((left.first, left.sample), (right.first, right.sample))


def _keys(left: Mapping[_Key, Any], right: Mapping[_Key, Any]) -> list[_Key]:
    return sorted(left.keys() | right.keys())  # type: ignore[type-var]


def _combine(left: Mapping[int, int], right: Mapping[int, int], combine: Combine) -> dict[int, int]:
    return {key: combine(left.get(key, 0), right.get(key, 0)) for key in _keys(left, right)}


class _FieldWire(msgspec.Struct):
    """A `FieldObservation` as it travels: a kind is its text, since JSON has no other keys."""

    nulls: dict[int, int] = {}
    empty: dict[int, int] = {}
    empty_records: dict[int, int] = {}
    kinds: dict[str, KindObservation] = {}
    records: dict[int, dict[str, _FieldWire]] = {}
    maps: dict[int, _FieldWire] = {}


class _ObservationWire(msgspec.Struct):
    """An `Observation` as it travels."""

    records: int = 0
    corrupt: int = 0
    root: dict[str, _FieldWire] = {}
    quarantined: int = 0
    kept_out: dict[str, _FieldWire] = {}
    met: list[list[str]] = []


def _from_wire(record: dict[str, _FieldWire]) -> RecordObservation:
    return {key: _field_from_wire(field) for key, field in record.items()}


def _field_from_wire(field: _FieldWire) -> FieldObservation:
    return FieldObservation(
        field.nulls,
        field.empty,
        field.empty_records,
        {parse_kind(text): seen for text, seen in field.kinds.items()},
        {dim: _from_wire(inner) for dim, inner in field.records.items()},
        {dim: _field_from_wire(inner) for dim, inner in field.maps.items()},
    )


def _to_wire(value: Any) -> str:
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_to_wire)
_decoder = msgspec.json.Decoder(_ObservationWire)
