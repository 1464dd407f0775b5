"""The evolution of one field of a struct: its observation, its existing columns, and the columns it gets.

If objects are maps, their values have their own `FieldEvolution`. Its columns are the values of the maps that the
field has, and the columns it gets are wrapped into maps.

Source: docs/evolution-rules.md#rules, #d7, #d10
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import reduce

from widen.model.column_path import ELEMENT, VALUE, Path, leaves, resolve
from widen.model.types import STRING, DataType, MapType, StructType
from widen.observe.kind import MAP_WORD, NULL_WORD, RECORD_WORD, Kind, leaf_and_dim, nest_in_arrays, word_of
from widen.observe.observation import FieldObservation, KindObservation, RecordObservation, merge_records
from widen.planning.evolution.column_choice import apply_widenings
from widen.planning.evolution.field_columns import ColumnChoice, ColumnRequest, FieldColumn, Kinds
from widen.planning.evolution.format_capability import TableFormat
from widen.planning.evolution.plan import Grade, PendingField, PlanEvent
from widen.planning.evolution.policy import FixedColumn, Mode
from widen.planning.evolution.source_metadata import column_suffix, naming_order, role_of, sanitize_name, source_key

UNBUILT = ""
"""The name of a column that this plan adds, until it gets one."""


@dataclass(frozen=True, slots=True)
class BuiltColumn:
    """A requested column with its full type, and the events inside it, with paths relative to it."""

    request: ColumnRequest
    type: DataType
    events: tuple[PlanEvent, ...] = ()


@dataclass(slots=True)
class FieldEvolution:
    """The evolution of one key of a struct, or of the values of the maps at that key.

    Args:
        pinned: The type of its first column, if the policy says so.
        fixed: Why its column is fixed, if it is.
        maps: How many arrays are around each map that contains the values, outermost first.
        is_first: Whether these values get the first column of the field, which has the plain name.
    """

    key: str
    source: Path
    mode: Mode
    observed: FieldObservation
    columns: tuple[FieldColumn, ...]
    pinned: DataType | None = None
    fixed: FixedColumn | None = None
    maps: tuple[int, ...] = ()
    is_first: bool = True
    choice: ColumnChoice = field(default_factory=ColumnChoice)
    built: list[BuiltColumn] = field(default_factory=list)

    @property
    def kinds(self) -> Kinds:
        """The kinds that a column can be created for."""
        return live_kinds(self.observed)

    @property
    def own_kinds(self) -> Kinds:
        """The kinds other than maps."""
        return {kind: observed for kind, observed in self.kinds.items() if kind.word != MAP_WORD}

    @property
    def largest_record(self) -> int:
        """The dim of the record with all sub-fields; -1 if the field neither has nor gets a record."""
        shapes = [(column.leaf, column.dim) for column in self.columns]
        shapes += [(request.leaf, request.dim) for request in self.choice.requests]
        return max((dim for leaf, dim in shapes if isinstance(leaf, StructType)), default=-1)

    @property
    def usable_columns(self) -> tuple[FieldColumn, ...]:
        """The existing columns that can take values: only the fixed one, if there is one."""
        fixed = self.fixed
        return self.columns if fixed is None else tuple(c for c in self.columns if c.name == fixed.column)

    @property
    def grown_columns(self) -> list[FieldColumn]:
        """The columns that can take values after the plan; new ones come last."""
        new = (FieldColumn(UNBUILT, *leaf_and_dim(built.type)) for built in self.built)
        return [*apply_widenings(self.usable_columns, self.choice.widened), *new]

    def entries(self, dim: int) -> FieldEvolution:
        """Return the evolution of the map values of a dim. They go to maps of the nearest dim that has any."""
        map_columns = [(column.dim, values) for column in self.grown_columns if (values := column.values()) is not None]
        nearest = min((at for at, _ in map_columns if at >= dim), default=dim)
        columns = tuple(values for at, values in map_columns if at == nearest)
        pinned = FieldColumn(UNBUILT, *leaf_and_dim(self.pinned)).values() if self.pinned is not None else None
        value = nest_in_arrays(pinned.leaf, pinned.dim) if pinned is not None else None
        maps, is_first = (*self.maps, dim), self.is_first and not self.grown_columns and dim == max(self.observed.maps)
        return FieldEvolution(
            self.key, self.source, self.mode, self.observed.maps[dim], columns, value, self.fixed, maps, is_first
        )

    def wrap_in_maps(self, data_type: DataType) -> DataType:
        """Return a type wrapped into the maps and arrays that contain the values."""
        for dim in reversed(self.maps):
            data_type = nest_in_arrays(MapType(STRING, data_type), dim)
        return data_type

    @property
    def steps(self) -> Path:
        """The steps from a column of the field to these values."""
        return tuple(step for dim in self.maps for step in (*[ELEMENT] * dim, VALUE))

    def suffix(self, request: ColumnRequest) -> str:
        """Return the suffix of a new column.

        Source: docs/evolution-rules.md#u4, #u12, #d10
        """
        if self.is_first and request.is_plain:
            return ""
        above = "".join(column_suffix(MAP_WORD, dim) for dim in self.maps)
        return above if request.is_plain else above + column_suffix(word_of(request.leaf) or "", request.dim)

    def wanted_name(self, request: ColumnRequest, table_format: TableFormat) -> str:
        """Return the preferred name of a new column."""
        return sanitize_name(self.key, table_format) + self.suffix(request)

    def text(self, kind: Kind) -> str:
        """Format a kind of these values as a kind of the field."""
        text = str(kind)
        for dim in reversed(self.maps):
            text = f"map<{text}>" + "[]" * dim
        return text

    def grade(self, request: ColumnRequest) -> Grade:
        """Return the grade of adding a column."""
        if not self.suffix(request):
            return Grade.ADDITIVE
        if not self.columns and request.is_plain:
            return Grade.STRUCTURAL
        first = self.columns[0] if self.columns else self.choice.requests[0]
        is_same_shape = (word_of(first.leaf) == RECORD_WORD) == (word_of(request.leaf) == RECORD_WORD)
        return Grade.CONFLICT if is_same_shape and first.dim == request.dim else Grade.STRUCTURAL


def live_kinds(observed: FieldObservation) -> Kinds:
    """Return the kinds without records and maps that are empty throughout: these get no column yet (D7)."""
    return {kind: values for kind, values in observed.kinds.items() if _is_live(kind, observed)}


def _is_live(kind: Kind, observed: FieldObservation) -> bool:
    if kind.word == NULL_WORD:
        return False
    if kind.word == MAP_WORD:
        return bool(live_kinds(observed.maps[kind.dim]))
    return kind.word != RECORD_WORD or any(map(live_kinds, observed.records.get(kind.dim, {}).values()))


def sub_fields(observed: FieldObservation, dim: int, largest: int) -> RecordObservation:
    """Return the sub-fields for a column of records: all of them if it has most arrays, else those seen at its dim.

    Args:
        dim: The number of arrays of the column.
        largest: The number of arrays of the column with most.

    Source: docs/evolution-rules.md#u17
    """
    if dim != largest:
        return observed.records.get(dim, {})
    return reduce(merge_records, (record for at, record in observed.records.items() if at <= dim), {})


def entries_up_to(observed: FieldObservation, dim: int) -> FieldObservation:
    """Return the values of all maps that a column of a dim can take."""
    return reduce(
        FieldObservation.merged, (entries for at, entries in observed.maps.items() if at <= dim), FieldObservation()
    )


def merge_kinds(kinds: Kinds, selected: Iterable[Kind]) -> KindObservation:
    """Merge the observations of several kinds."""
    return reduce(KindObservation.merged, (kinds[kind] for kind in selected), KindObservation())


def pending_fields(observed: FieldObservation, columns: list[FieldColumn], source: Path) -> Iterator[PendingField]:
    """Yield the fields with only nulls and empties that no column can hold. Fields that are rescued are not pending.

    Source: docs/evolution-rules.md#d7
    """
    if not columns and live_kinds(observed):
        return
    largest = max((column.dim for column in columns), default=-1)
    record = max((c.dim for c in columns if isinstance(c.leaf, StructType)), default=-1)
    holder = max((c.dim for c in columns if isinstance(c.leaf, (StructType, MapType))), default=-1)
    nulls, empty = _beyond_dim(observed.nulls, largest), _beyond_dim(observed.empty, largest)
    empty_records = _beyond_dim(observed.empty_records, holder)
    if nulls or empty or empty_records:
        yield PendingField(source, nulls, empty, empty_records)
    for dim, below in sorted(observed.records.items()):
        for key in sorted(below if dim > record else (), key=naming_order):
            yield from pending_fields(below[key], [], (*source, key))


def _beyond_dim(counts: dict[int, int], dim: int) -> int:
    return sum(count for at, count in counts.items() if at > dim)


def field_count(observed: FieldObservation) -> int:
    """Return the number of fields below a field."""
    inner = sum(map(field_count, observed.maps.values()))
    return inner + sum(1 + field_count(field) for record in observed.records.values() for field in record.values())


def columns_by_key(struct: StructType, *, is_root: bool) -> dict[str, tuple[FieldColumn, ...]]:
    """Return the columns of a struct by the key of their source field.

    Args:
        is_root: Whether it is the whole table, which may have columns with a role.
    """
    columns: dict[str, tuple[FieldColumn, ...]] = {}
    for item in struct:
        if not is_root or role_of(item) is None:
            key = source_key(item)
            columns[key] = (*columns.get(key, ()), FieldColumn(item.name, *leaf_and_dim(item.type)))
    return columns


def refresh_columns(part: FieldEvolution, struct: StructType) -> FieldEvolution:
    """Return a part with the current types of its columns, which another part may have changed."""
    columns = (
        c if c.name == UNBUILT else FieldColumn(c.name, *leaf_and_dim(resolve(struct, (c.name, *c.above))[1]), c.above)
        for c in part.columns
    )
    return replace(part, columns=tuple(columns))


def observation_of(observed: RecordObservation, source: Path) -> FieldObservation:
    """Return the observation of a field outside of arrays."""
    for key in source[:-1]:
        observed = observed.get(key, FieldObservation()).records.get(0, {})
    return observed.get(source[-1], FieldObservation())


def leaf_count(types: Iterable[DataType]) -> int:
    """Return how many leaves some types have together."""
    return sum(1 for data_type in types for _ in leaves(data_type))
