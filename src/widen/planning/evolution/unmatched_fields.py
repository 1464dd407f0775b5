"""Rules of a policy without effect: for fields that do not exist, and pins that contradict an existing column.

A misspelled name in `mask` or `exclude` would hide nothing, so such a batch is refused.

Source: docs/evolution-rules.md#d13
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from widen.model.column_path import Path, fold_path, format_path
from widen.model.types import STRING, DataType, MapType, StructType
from widen.observe.file_fields import SIGN
from widen.observe.kind import leaf_and_dim
from widen.observe.observation import FieldObservation, Observation, RecordObservation
from widen.planning.evolution.policy import ANY_MAP, ANYWHERE, Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import FORM, role_of, source_key

_NEAREST = 3
_MASK, _EXCLUDE = "mask", "exclude"


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

    @property
    def hides(self) -> bool:
        """Whether the rule is to hide values."""
        return self.option in (_MASK, _EXCLUDE)

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
    found = _find_fields(planned, observed)
    found.existing |= {(name,) for name in policy.file_fields}
    names = sorted(map(format_path, found.existing))
    folded = found.folded(policy)
    unmatched = []
    for option, source in _rules(policy):
        is_hidden = option in (_MASK, _EXCLUDE)
        if not (folded.hides(fold_path(source)) if is_hidden else found.has(source)):
            nearest = tuple(get_close_matches(format_path(source), names, _NEAREST))
            unmatched.append(Unmatched(option, source, "neither the table nor the batch has this field", nearest))
    unmatched += _contradictions(policy, base or StructType())
    return tuple(sorted(unmatched, key=lambda each: (each.option, each.source)))


def _rules(policy: Policy) -> Iterator[tuple[str, Path]]:
    """Yield the option and the field of every rule, without those derived for file fields."""
    for option, sources in (
        (_MASK, policy.masked),
        (_EXCLUDE, policy.excluded),
        ("pin", policy.pins),
        ("epoch_unit", policy.epoch_units),
        ("detect_dates", policy.date_fields),
    ):
        for source in sources:
            if source != ANYWHERE and not (len(source) == 1 and source[0].rstrip(SIGN) in policy.file_fields):
                yield option, source


@dataclass(slots=True)
class _Fields:
    """The fields of a table and a batch.

    Args:
        texts: Those with strings: such a string may hold fields, and a mask below it covers the whole string.
        forms: Those that are kept as text, whatever their values are.
        maps: Those whose keys are data.
        records: Those with records, whose fields are known.
        hidden: Those that the policy masks or excludes.
    """

    existing: set[Path] = field(default_factory=set)
    texts: set[Path] = field(default_factory=set)
    forms: set[Path] = field(default_factory=set)
    maps: set[Path] = field(default_factory=set)
    records: set[Path] = field(default_factory=set)
    hidden: set[Path] = field(default_factory=set)

    def folded(self, policy: Policy) -> _Fields:
        """Return the fields by their folded names, with those that earlier loads have hidden."""
        parts = (self.existing | policy.known_fields, self.texts, self.forms, self.maps, self.records)
        return _Fields(*(set(map(fold_path, each)) for each in (*parts, policy.masked | policy.excluded)))

    def has(self, source: Path) -> bool:
        """Tell whether a field exists, or may exist inside a map or a text."""
        closed = self.texts | self.forms | self.maps
        is_inside = any(source[:length] in closed for length in range(1, len(source)))
        return is_inside or source in self.existing or (*source[:-1], source[-1] + SIGN) in self.existing

    def hides(self, source: Path) -> bool:
        """Tell whether a mask or an exclusion surely hides something, given folded names."""
        above = [source[:length] for length in range(1, len(source))]
        if source in self.existing or (*source[:-1], source[-1] + SIGN) in self.existing:
            return True
        # All values of a field above are masked or excluded: itself, or as strings that may hold any field.
        seen_inside = self.records | self.maps | self.forms
        return any(path in self.hidden or (path in self.texts and path not in seen_inside) for path in above)


def _find_fields(planned: StructType, observed: Observation) -> _Fields:
    found = _Fields({tuple(path) for path in observed.met})
    _add_columns(planned, (), found)
    for records in (observed.root, observed.kept_out):
        _add_observed(records, (), found)
    return found


def _add_columns(struct: StructType, parent: Path, found: _Fields) -> None:
    for column in struct:
        if parent or role_of(column) is None:
            source = (*parent, source_key(column))
            found.existing.add(source)
            leaf, _ = leaf_and_dim(column.type)
            if FORM in column.metadata:
                found.forms.add(source)
            while isinstance(leaf, MapType):
                found.maps.add(source)
                leaf, _ = leaf_and_dim(leaf.value)
            if isinstance(leaf, StructType):
                found.records.add(source)
                _add_columns(leaf, source, found)
            elif leaf == STRING:
                found.texts.add(source)


def _add_observed(records: RecordObservation, parent: Path, found: _Fields) -> None:
    for key, seen in records.items():
        source = (*parent, key)
        found.existing.add(source)
        for below in _records_in(seen):
            found.records.add(source)
            _add_observed(below, source, found)


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
    for column in struct:
        if source_key(column) == source[0] and role_of(column) is None:
            leaf, _ = leaf_and_dim(column.type)
            if len(source) == 1:
                yield column.type
            elif isinstance(leaf, StructType):
                yield from _types_of(leaf, source[1:])


def _is_like(data_type: DataType, pinned: DataType) -> bool:
    """Tell whether a column has a type, ignoring the fields of its records."""
    (leaf, dim), (pinned_leaf, pinned_dim) = leaf_and_dim(data_type), leaf_and_dim(pinned)
    kinds: Collection[type] = (StructType, MapType)
    is_same = any(isinstance(leaf, kind) and isinstance(pinned_leaf, kind) for kind in kinds)
    return dim == pinned_dim and (is_same or str(leaf) == str(pinned_leaf))
