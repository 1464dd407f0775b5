"""Objects that are maps: many keys, few of them in each object, and values of one shape.

As records they would become a column for each key, e.g. for each id of a user. As a map they are one column.

Source: docs/evolution-rules.md#d10
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from widen.errors import too_many_keys
from widen.evolution.policy import Mode, Policy
from widen.json.kinds import LONG_WORD, MAP_WORD, NUMBER_WORDS, RECORD_WORD, Kind
from widen.json.observation import FieldObservation, RecordObservation
from widen.model.column_path import Path, format_path
from widen.model.value_classes import dataclass

MIN_KEYS, MIN_OBJECTS = 50, 5
MAX_KEY_SHARE = 0.2
"""The largest share of all keys that an object has on average."""

MIN_SAME_SHAPE, MIN_SHARED_FIELDS = 0.9, 0.2
"""The smallest share of keys whose values have the most frequent shape; and, if the values are records, the smallest
share of all their fields that the values of a key have on average."""


@dataclass(frozen=True, slots=True)
class MapCandidate:
    """A field whose objects look like maps, but become records."""

    source: Path
    keys: int
    objects: int

    def __str__(self) -> str:
        pin = format_path(self.source)
        return f"{self.keys:,} keys in {self.objects:,} objects; use --detect-maps or --pin '{pin}=map'"


def find_map(source: Path, observed: FieldObservation) -> MapCandidate | None:
    """Return a field as a candidate if its objects look like maps.

    Typed sources declare their records, and their observation counts no objects; so they never do.
    """
    keys = [field for record in observed.records.values() for field in record.values()]
    objects = sum(seen.count for kind, seen in observed.kinds.items() if kind.word == RECORD_WORD)
    names = {key for record in observed.records.values() for key in record}
    if len(names) < MIN_KEYS or objects < MIN_OBJECTS:
        return None
    # A key whose value is an array counts once for each item, but is in an object at most once.
    present = sum(min(objects, _value_count(field)) for field in keys)
    if present > MAX_KEY_SHARE * len(names) * objects or not _have_one_shape(keys):
        return None
    return MapCandidate(source, len(names), objects)


@dataclass(frozen=True, slots=True)
class ExcessKeys:
    """A field whose objects have more keys than the policy allows.

    Args:
        file: The file where most of the keys were seen first; empty if it is not known.
    """

    source: Path
    keys: int
    file: str


def find_excess_keys(root: RecordObservation, policy: Policy) -> ExcessKeys | None:
    """Return the first field whose objects have more keys than the policy allows and do not become maps.

    In mode freeze no key becomes a column.
    """
    levels: list[tuple[Path, RecordObservation]] = [((), root)]
    while levels:
        source, record = levels.pop()
        if len(record) > policy.max_keys and policy.mode_of(source) is not Mode.FREEZE:
            return ExcessKeys(source, len(record), _most_frequent_file(record))
        for key, seen in record.items():
            path = (*source, key)
            if seen.records and not (policy.detects_maps and find_map(path, seen) is not None):
                levels += [(path, inner) for inner in seen.records.values()]
            levels += [(path, inner) for each in seen.maps.values() for inner in each.records.values()]
    return None


def _most_frequent_file(record: RecordObservation) -> str:
    firsts = (seen.first for field in record.values() for seen in field.kinds.values())
    files = Counter(position[0] for position in firsts if position is not None)
    return files.most_common(1)[0][0] if files else ""


def ensure_keys_are_names(root: RecordObservation, policy: Policy) -> None:
    """Check that no field has more keys than the policy allows."""
    excess = find_excess_keys(root, policy)
    if excess is not None:
        raise too_many_keys(format_path(excess.source), excess.keys, policy.max_keys, excess.file)


def to_maps(observed: FieldObservation) -> FieldObservation:
    """Return the observation of a field as if its objects had been read as maps."""
    maps, kinds = dict(observed.maps), dict(observed.kinds)
    for dim, record in observed.records.items():
        values = _merge_all([*record.values()])
        # An earlier pass may have read some of the same objects as maps already, so the counts are not added.
        maps[dim] = values.merged(maps[dim], max) if dim in maps else values
        objects = kinds.pop(Kind(RECORD_WORD, dim), None)
        if objects is not None:
            kind = Kind(MAP_WORD, dim)
            kinds[kind] = objects.merged(kinds[kind], max) if kind in kinds else objects
    return msgspec.structs.replace(observed, records={}, maps=maps, kinds=kinds)


def _merge_all(fields: Sequence[FieldObservation]) -> FieldObservation:
    """Return the observation of all fields together.

    In pairs of adjacent ones: one after the other, each would copy all keys of those before it.
    """
    while len(fields) > 1:
        pairs = [one.merged(other) for one, other in zip(fields[::2], fields[1::2], strict=False)]
        fields = pairs + [*fields[len(pairs) * 2 :]]
    return fields[0] if fields else FieldObservation()


def _value_count(field: FieldObservation) -> int:
    counts = (*(seen.count for seen in field.kinds.values()), *field.nulls.values(), *field.empty.values())
    return max(1, sum(counts) + sum(field.empty_records.values()))


def _have_one_shape(fields: Sequence[FieldObservation]) -> bool:
    """Return whether the values of most keys are alike."""
    shapes = [{_shape(kind) for kind in field.kinds} for field in fields if field.kinds]
    if not shapes:
        return False
    (shape, _), count = Counter(shape for each in shapes for shape in each).most_common(1)[0]
    if count < MIN_SAME_SHAPE * len(shapes):
        return False
    return shape != RECORD_WORD or _share_fields([set(key) for each in fields for key in each.records.values()])


def _shape(kind: Kind) -> tuple[str, int]:
    return LONG_WORD if kind.word in NUMBER_WORDS else kind.word, kind.dim


def _share_fields(records: Sequence[set[str]]) -> bool:
    every = set().union(*records)
    return sum(map(len, records)) >= MIN_SHARED_FIELDS * len(every) * len(records)
