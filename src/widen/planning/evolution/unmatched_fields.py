"""Rules of a policy without effect: for fields that do not exist, and pins that contradict an existing column.

A misspelled name in `mask` or `exclude` would hide nothing, so it must be reported.

Source: docs/evolution-rules.md#d13
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from widen.model.column_path import Path, format_path
from widen.model.types import STRING, DataType, MapType, StructType
from widen.observe.file_fields import SIGN
from widen.observe.kind import leaf_and_dim
from widen.observe.observation import FieldObservation, Observation, RecordObservation
from widen.planning.evolution.policy import ANY_MAP, ANYWHERE, Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import role_of, source_key

_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A rule of a policy that has no effect.

    Args:
        option: The option: ``mask``, ``exclude``, ``pin``, ``epoch_unit`` or ``detect_dates``.
        nearest: The existing fields with the most similar names.
    """

    option: str
    source: Path
    reason: str
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        nearest = f" Did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        return f"{self.option} {format_path(self.source)}: {self.reason}.{nearest}"


def find_unmatched(
    policy: Policy, base: StructType | None, planned: StructType, observed: Observation
) -> tuple[Unmatched, ...]:
    """Return the rules of a policy without effect, sorted by option and field.

    Args:
        base: The columns of the table before the batch; None if it does not exist yet.
        planned: The columns after the batch.
    """
    existing, closed = _existing_fields(planned, observed)
    existing |= {(name,) for name in policy.file_fields}
    names = sorted(map(format_path, existing))
    unmatched = []
    for option, source in _rules(policy):
        is_open = not any(source[:length] in closed for length in range(1, len(source)))
        if is_open and source not in existing and (*source[:-1], source[-1] + SIGN) not in existing:
            nearest = tuple(get_close_matches(format_path(source), names, _NEAREST))
            unmatched.append(Unmatched(option, source, "neither the table nor the batch has this field", nearest))
    unmatched += _contradictions(policy, base or StructType())
    return tuple(sorted(unmatched, key=lambda each: (each.option, each.source)))


def _rules(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield the option and the field of every rule, without those derived for file fields."""
    for option, sources in (
        ("mask", policy.masked),
        ("exclude", policy.excluded),
        ("pin", policy.pins),
        ("epoch_unit", policy.epoch_units),
        ("detect_dates", policy.date_fields),
    ):
        for source in sources:
            if source != ANYWHERE and not (len(source) == 1 and source[0].rstrip(SIGN) in policy.file_fields):
                yield option, source


def _existing_fields(planned: StructType, observed: Observation) -> tuple[set[Path], set[Path]]:
    """Return the existing fields, and those whose inner fields are unknown: maps, and values kept as text."""
    existing, closed = {tuple(path) for path in observed.met}, set[Path]()
    _add_columns(planned, (), existing, closed)
    for records in (observed.root, observed.kept_out):
        _add_observed(records, (), existing, closed)
    return existing, closed


def _add_columns(struct: StructType, parent: Path, existing: set[Path], closed: set[Path]) -> None:
    for field in struct:
        if parent or role_of(field) is None:
            source = (*parent, source_key(field))
            existing.add(source)
            leaf, _ = leaf_and_dim(field.type)
            if isinstance(leaf, StructType):
                _add_columns(leaf, source, existing, closed)
            elif isinstance(leaf, MapType) or leaf == STRING:
                closed.add(source)


def _add_observed(records: RecordObservation, parent: Path, existing: set[Path], closed: set[Path]) -> None:
    for key, field in records.items():
        source = (*parent, key)
        existing.add(source)
        for below in _records_in(field):
            _add_observed(below, source, existing, closed)


def _records_in(field: FieldObservation) -> Iterator[RecordObservation]:
    yield from field.records.values()
    for entries in field.maps.values():
        yield from _records_in(entries)


def _contradictions(policy: Policy, base: StructType) -> Iterator[Unmatched]:
    for source, pin in policy.pins.items():
        types = list(_types_of(base, source))
        pinned = None if isinstance(pin, Mode) else STRING if isinstance(pin, TextForm) else pin
        if pinned is not None and types and not any(_is_like(existing, pinned) for existing in types):
            pin_text = "map" if pinned == ANY_MAP else pinned.sql
            existing_types = " and ".join(each.sql for each in types)
            yield Unmatched("pin", source, f"the pin is {pin_text}, but the table has this field as {existing_types}")


def _types_of(struct: StructType, source: Path) -> Iterator[DataType]:
    for field in struct:
        if source_key(field) == source[0] and role_of(field) is None:
            leaf, _ = leaf_and_dim(field.type)
            if len(source) == 1:
                yield field.type
            elif isinstance(leaf, StructType):
                yield from _types_of(leaf, source[1:])


def _is_like(data_type: DataType, pinned: DataType) -> bool:
    """Tell whether a column has a type, ignoring the fields of its records."""
    (leaf, dim), (pinned_leaf, pinned_dim) = leaf_and_dim(data_type), leaf_and_dim(pinned)
    kinds: Collection[type] = (StructType, MapType)
    is_same = any(isinstance(leaf, kind) and isinstance(pinned_leaf, kind) for kind in kinds)
    return dim == pinned_dim and (is_same or str(leaf) == str(pinned_leaf))
