"""What a policy says of fields that neither the table nor the batch has, and of columns that are there in another type.

A name with a slip in it hides nothing: it must not pass without a word.

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
from widen.planning.evolution.policy import ANYWHERE, Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import role_of, source_key

_NEAREST = 3


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Something that a policy says of a field, and that has no effect.

    Args:
        option: What says it: ``mask``, ``exclude``, ``pin``, ``epoch_unit`` or ``detect_dates``.
        source: The path of the field.
        reason: Why it has none.
        nearest: The fields that are there whose names are closest.
    """

    option: str
    source: Path
    reason: str
    nearest: tuple[str, ...] = ()

    def __str__(self) -> str:
        nearest = f" Did you mean {' or '.join(self.nearest)}?" if self.nearest else ""
        return f"{self.option} {format_path(self.source)}: {self.reason}.{nearest}"


def find_unmatched(
    policy: Policy, base: StructType | None, planned: StructType, seen: Observation
) -> tuple[Unmatched, ...]:
    """Return what a policy says without any effect, sorted by the option and the field.

    Args:
        policy: What was said.
        base: The columns of the table before the batch; None if there is none yet.
        planned: Its columns afterwards.
        seen: What the batch holds.
    """
    known, closed = _known(planned, seen)
    known |= {(name,) for name in policy.file_fields}
    names = sorted(map(format_path, known))
    found = []
    for option, source in _said(policy):
        is_open = not any(source[:length] in closed for length in range(1, len(source)))
        if is_open and source not in known and (*source[:-1], source[-1] + SIGN) not in known:
            nearest = tuple(get_close_matches(format_path(source), names, _NEAREST))
            found.append(Unmatched(option, source, "neither the table nor the batch has this field", nearest))
    found += _contradictions(policy, base or StructType())
    return tuple(sorted(found, key=lambda each: (each.option, each.source)))


def _said(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield what was said of each field, without what it also means for fields of the file."""
    for option, sources in (
        ("mask", policy.masked),
        ("exclude", policy.left_out),
        ("pin", policy.pins),
        ("epoch_unit", policy.epoch_units),
        ("detect_dates", policy.dated),
    ):
        for source in sources:
            if source != ANYWHERE and not (len(source) == 1 and source[0].rstrip(SIGN) in policy.file_fields):
                yield option, source


def _known(planned: StructType, seen: Observation) -> tuple[set[Path], set[Path]]:
    """Return the fields that are there, and those into which nobody looks: maps, and what is kept as a text."""
    known, closed = {tuple(path) for path in seen.met}, set[Path]()
    _add_columns(planned, (), known, closed)
    for records in (seen.root, seen.kept_out):
        _add_seen(records, (), known, closed)
    return known, closed


def _add_columns(struct: StructType, above: Path, known: set[Path], closed: set[Path]) -> None:
    for field in struct:
        if above or role_of(field) is None:
            source = (*above, source_key(field))
            known.add(source)
            leaf, _ = leaf_and_dim(field.type)
            if isinstance(leaf, StructType):
                _add_columns(leaf, source, known, closed)
            elif isinstance(leaf, MapType) or leaf == STRING:
                closed.add(source)


def _add_seen(records: RecordObservation, above: Path, known: set[Path], closed: set[Path]) -> None:
    for key, field in records.items():
        source = (*above, key)
        known.add(source)
        for below in _records_in(field):
            _add_seen(below, source, known, closed)


def _records_in(field: FieldObservation) -> Iterator[RecordObservation]:
    yield from field.records.values()
    for entries in field.maps.values():
        yield from _records_in(entries)


def _contradictions(policy: Policy, base: StructType) -> Iterator[Unmatched]:
    for source, pin in policy.pins.items():
        types = list(_types_of(base, source))
        wanted = None if isinstance(pin, Mode) else STRING if isinstance(pin, TextForm) else pin
        if wanted is not None and types and not any(_is_like(found, wanted) for found in types):
            there = " and ".join(each.sql for each in types)
            yield Unmatched("pin", source, f"it says {wanted.sql}, and the table has this field as {there}")


def _types_of(struct: StructType, source: Path) -> Iterator[DataType]:
    for field in struct:
        if source_key(field) == source[0] and role_of(field) is None:
            leaf, _ = leaf_and_dim(field.type)
            if len(source) == 1:
                yield field.type
            elif isinstance(leaf, StructType):
                yield from _types_of(leaf, source[1:])


def _is_like(found: DataType, wanted: DataType) -> bool:
    """Tell whether a column has a type, whatever fields its records have."""
    (leaf, dim), (wanted_leaf, wanted_dim) = leaf_and_dim(found), leaf_and_dim(wanted)
    kinds: Collection[type] = (StructType, MapType)
    is_same = any(isinstance(leaf, kind) and isinstance(wanted_leaf, kind) for kind in kinds)
    return dim == wanted_dim and (is_same or str(leaf) == str(wanted_leaf))
