"""What one field of a struct needs, while a plan is made: its kinds, its choice, and the columns that it gets.

Where objects are maps, what stands at their keys is a part of its own: its columns are those of the field as far as
they hold maps, looked at from within, and it gets columns of maps.

Source: docs/evolution-rules.md#rules, #d7, #d10
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce

from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import STRING, DataType, MapType, StructType
from widen.observe.kind import MAP_WORD, NULL_WORD, RECORD_WORD, Kind, leaf_and_dim, nest_in_arrays, word_of
from widen.observe.observation import FieldObservation, KindObservation, RecordObservation, merge_records
from widen.planning.evolution.column_choice import apply_widenings
from widen.planning.evolution.field_columns import ColumnChoice, ColumnRequest, FieldColumn, Kinds
from widen.planning.evolution.plan import Grade, PendingField, PlanEvent
from widen.planning.evolution.policy import FixedColumn, Mode
from widen.planning.evolution.source_metadata import column_suffix, naming_order, sanitize_name

UNBUILT = ""
"""Stands for the name of a column that this plan adds: it has none yet."""


@dataclass(frozen=True, slots=True)
class BuiltColumn:
    """A wanted column with its type, and the events inside it, whose paths begin below it."""

    want: ColumnRequest
    type: DataType
    events: tuple[PlanEvent, ...] = ()


@dataclass(slots=True)
class FieldEvolution:
    """What one key of a struct, or what stands in the maps there, needs.

    Args:
        key: The key.
        source: The path of the source field.
        mode: What may be done.
        seen: What the interval brings.
        columns: What the field has.
        pinned: The type of the column that it is to get if it has none.
        guard: Why its column cannot yield, if it cannot.
        maps: The numbers of arrays around the maps that these values stand in, outermost first.
        is_first: Whether the column that these values get is the first of the field, so that it has the plain name.
        choice: What it gets.
        built: That, as columns.
    """

    key: str
    source: Path
    mode: Mode
    seen: FieldObservation
    columns: tuple[FieldColumn, ...]
    pinned: DataType | None = None
    guard: FixedColumn | None = None
    maps: tuple[int, ...] = ()
    is_first: bool = True
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    built: list[BuiltColumn] = field(default_factory=list)

    @property
    def kinds(self) -> Kinds:
        """The kinds that a column can be made for."""
        return live_kinds(self.seen)

    @property
    def own_kinds(self) -> Kinds:
        """Those of them that are no maps."""
        return {kind: seen for kind, seen in self.kinds.items() if kind.word != MAP_WORD}

    @property
    def largest_record(self) -> int:
        """The dim of the record that holds all sub-fields; -1 if the field has and gets no record."""
        shapes = [(column.leaf, column.dim) for column in self.columns]
        shapes += [(want.leaf, want.dim) for want in self.choice.wants]
        return max((dim for leaf, dim in shapes if isinstance(leaf, StructType)), default=-1)

    @property
    def choosing(self) -> tuple[FieldColumn, ...]:
        """The columns that it may do with: only the one that cannot yield, if there is such a one."""
        guard = self.guard
        return self.columns if guard is None else tuple(c for c in self.columns if c.name == guard.column)

    @property
    def grown_columns(self) -> list[FieldColumn]:
        """The columns that it may do with after the plan, those that it gets at the end."""
        new = (FieldColumn(UNBUILT, *leaf_and_dim(built.type)) for built in self.built)
        return [*apply_widenings(self.choosing, self.choice.widened), *new]

    def entries(self, dim: int) -> FieldEvolution:
        """Return what stands in the maps of a dim, as a part: it has the maps of that dim, else those of the next."""
        held = [(column.dim, values) for column in self.grown_columns if (values := column.values()) is not None]
        nearest = min((at for at, _ in held if at >= dim), default=dim)
        columns = tuple(values for at, values in held if at == nearest)
        pinned = FieldColumn(UNBUILT, *leaf_and_dim(self.pinned)).values() if self.pinned is not None else None
        value = nest_in_arrays(pinned.leaf, pinned.dim) if pinned is not None else None
        maps, is_first = (*self.maps, dim), self.is_first and not self.grown_columns and dim == max(self.seen.maps)
        return FieldEvolution(
            self.key, self.source, self.mode, self.seen.maps[dim], columns, value, self.guard, maps, is_first
        )

    def wrapped(self, data_type: DataType) -> DataType:
        """Return the type of a column for values of a type."""
        for dim in reversed(self.maps):
            data_type = nest_in_arrays(MapType(STRING, data_type), dim)
        return data_type

    @property
    def steps(self) -> Path:
        """The steps from a column of the field to the values."""
        return tuple(step for dim in self.maps for step in (*[ELEMENT] * dim, VALUE))

    def suffix(self, want: ColumnRequest) -> str:
        """Return what is put behind the name of the field for a column that it gets.

        Source: docs/evolution-rules.md#u4, #u12, #d10
        """
        if self.is_first and want.is_plain:
            return ""
        above = "".join(column_suffix(MAP_WORD, dim) for dim in self.maps)
        return above if want.is_plain else above + column_suffix(word_of(want.leaf) or "", want.dim)

    def wanted_name(self, want: ColumnRequest) -> str:
        """Return what a column that the field gets is to be called."""
        return sanitize_name(self.key) + self.suffix(want)

    def text(self, kind: Kind) -> str:
        """Return a kind of these values as a kind of the field."""
        text = str(kind)
        for dim in reversed(self.maps):
            text = f"map<{text}>" + "[]" * dim
        return text

    def grade(self, want: ColumnRequest) -> Grade:
        """Return how much it means that the field gets a column."""
        if not self.suffix(want):
            return Grade.ADDITIVE
        if not self.columns and want.is_plain:
            return Grade.STRUCTURAL
        first = self.columns[0] if self.columns else self.choice.wants[0]
        is_same_shape = (word_of(first.leaf) == RECORD_WORD) == (word_of(want.leaf) == RECORD_WORD)
        return Grade.CONFLICT if is_same_shape and first.dim == want.dim else Grade.STRUCTURAL


def live_kinds(seen: FieldObservation) -> Kinds:
    """Return the kinds without records and maps in which nothing has a kind: no column can be made for them (D7)."""
    return {kind: values for kind, values in seen.kinds.items() if _is_live(kind, seen)}


def _is_live(kind: Kind, seen: FieldObservation) -> bool:
    if kind.word == NULL_WORD:
        return False
    if kind.word == MAP_WORD:
        return bool(live_kinds(seen.maps[kind.dim]))
    return kind.word != RECORD_WORD or any(map(live_kinds, seen.records.get(kind.dim, {}).values()))


def sub_fields(seen: FieldObservation, dim: int, largest: int) -> RecordObservation:
    """Return the sub-fields for a column of records: all of them for the one with most arrays, else those of its dim.

    Args:
        seen: What the interval brings for the field.
        dim: How many arrays the column has.
        largest: How many the one with most of them has.

    Source: docs/evolution-rules.md#u17
    """
    if dim != largest:
        return seen.records.get(dim, {})
    return reduce(merge_records, (record for at, record in seen.records.items() if at <= dim), {})


def entries_up_to(seen: FieldObservation, dim: int) -> FieldObservation:
    """Return what stands in the maps that columns of a dim take."""
    return reduce(
        FieldObservation.merged, (entries for at, entries in seen.maps.items() if at <= dim), FieldObservation()
    )


def merge_kinds(kinds: Kinds, some: Iterable[Kind]) -> KindObservation:
    """Return what is known of the values of some kinds together."""
    return reduce(KindObservation.merged, (kinds[kind] for kind in some), KindObservation())


def pending_fields(seen: FieldObservation, columns: list[FieldColumn], source: Path) -> Iterator[PendingField]:
    """Yield what has no kind and no column that could hold it; nothing of a field that is rescued as a whole.

    Args:
        seen: What the interval brings for the field.
        columns: The columns that it has after the plan.
        source: The path of the source field.

    Source: docs/evolution-rules.md#d7
    """
    if not columns and live_kinds(seen):
        return
    largest = max((column.dim for column in columns), default=-1)
    record = max((c.dim for c in columns if isinstance(c.leaf, StructType)), default=-1)
    holder = max((c.dim for c in columns if isinstance(c.leaf, (StructType, MapType))), default=-1)
    nulls, empty = _past(seen.nulls, largest), _past(seen.empty, largest)
    empty_records = _past(seen.empty_records, holder)
    if nulls or empty or empty_records:
        yield PendingField(source, nulls, empty, empty_records)
    for dim, below in sorted(seen.records.items()):
        for key in sorted(below if dim > record else (), key=naming_order):
            yield from pending_fields(below[key], [], (*source, key))


def _past(counts: dict[int, int], dim: int) -> int:
    return sum(count for at, count in counts.items() if at > dim)


def field_count(seen: FieldObservation) -> int:
    """Return how many fields are below a field: the light ones come first where there is no room for all."""
    inner = sum(map(field_count, seen.maps.values()))
    return inner + sum(1 + field_count(field) for record in seen.records.values() for field in record.values())
