"""Schema evolution: the plan for one interval, from the schema of the table, the observation and the policy.

No value is read here. Keys are processed in a fixed order, so the plan does not depend on the order of the records.

Source: docs/evolution-rules.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import reduce

import msgspec

from widen.evolution.column_choice import (
    ColumnChoice,
    ColumnRequest,
    ColumnWidening,
    FieldColumn,
    Kinds,
    apply_widenings,
    choose_columns,
    uncovered_kinds,
)
from widen.evolution.map_detection import MapCandidate, ensure_keys_are_names, find_map, to_maps
from widen.evolution.plan import (
    Grade,
    MatchedName,
    PendingField,
    Plan,
    PlanEvent,
    QuarantinedField,
    RescuedField,
    RoundedField,
)
from widen.evolution.policy import (
    FixedColumn,
    Mode,
    Numbers,
    Policy,
    TextForm,
    field_names,
    sample_formatter,
    with_file_fields,
)
from widen.evolution.type_lattice import rounded_kinds
from widen.json.document import MAX_LEVELS
from widen.json.kinds import (
    DECIMAL_WORD,
    DOUBLE_WORD,
    LONG_WORD,
    MAP_WORD,
    MAX_DIGITS,
    NULL_WORD,
    RECORD_WORD,
    Kind,
    leaf_and_dim,
    nest_in_arrays,
    word_of,
)
from widen.json.observation import (
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    merge_records,
)
from widen.model.column_path import ELEMENT, VALUE, Path, leaves, replace_type, resolve
from widen.model.types import STRING, DataType, Field, MapType, StructType
from widen.model.value_classes import dataclass
from widen.schema.field_names import match_observation
from widen.schema.operations import AddColumn, CreateTable, Operation, WidenType
from widen.schema.source_metadata import (
    CORRUPT,
    CORRUPT_AT,
    FORM,
    RESCUED,
    NameAllocator,
    TableFormat,
    column_suffix,
    naming_order,
    new_role_field,
    reserved_names,
    role_field,
    role_of,
    sanitize_name,
    source_field,
    source_key,
)


def evolve(schema: StructType | None, observation: Observation, policy: Policy) -> Plan:
    """Plan the schema changes for a batch. The same records in any order give the same plan.

    Mode freeze adds no columns but the rescue column and the columns for corrupt records, because values would be lost
    without them. Mode fail refuses every change, including the creation of the table.

    Args:
        schema: The columns of the table; None if it does not exist yet. Then it begins with the layout of the policy.

    Source: docs/evolution-rules.md#u4 to #u18, #d1 to #d4, #d7 to #d12, #d15
    """
    ensure_keys_are_names(observation.root, policy)
    return _Evolution(policy, observation.quarantined_records).plan(schema, observation)


def merge_pass(known: Observation, seen: Observation, schema: StructType, policy: Policy) -> tuple[Observation, bool]:
    """Return what is known of a batch after one more pass, and whether it has to be observed again.

    A name that turns out to be a field of its own may have stood for another field until then, in records that have
    it alone. It is then unknown which field these values belong to.

    Source: docs/evolution-rules.md#d9
    """
    merged, names = known.merged(seen, max), field_names(schema, policy)
    new = (tuple(path) for path in seen.apart if path not in known.apart)
    is_mixed = names is not None and any(names.path(path) != path for path in new)
    return (Observation(apart=merged.apart), True) if is_mixed else (merged, False)


@dataclass(slots=True)
class _StructCursor:
    """The struct that is being evolved.

    Args:
        level: The number of nested structs, arrays and maps down to it, with it and the table.
    """

    path: Path = ()
    source: Path = ()
    is_new: bool = False
    level: int = 1


@dataclass(slots=True)
class _Evolution:
    """The state of one call of `evolve`: the parts of the plan so far, and how many leaves may still be added."""

    policy: Policy
    quarantined_records: RecordObservation
    room: int = 0
    events: list[PlanEvent] = field(default_factory=list)
    pending: list[PendingField] = field(default_factory=list)
    rescued: list[RescuedField] = field(default_factory=list)
    refused: list[Operation] = field(default_factory=list)
    quarantined: list[QuarantinedField] = field(default_factory=list)
    maps: list[MapCandidate] = field(default_factory=list)
    rounded: list[RoundedField] = field(default_factory=list)

    def plan(self, schema: StructType | None, observation: Observation) -> Plan:
        begin = self.policy.layout if schema is None else schema
        # A fixed column may be widened in place. So the values that it refuses count too, and fit in the next pass.
        root = (
            merge_records(observation.root, self.quarantined_records) if self.quarantined_records else observation.root
        )
        root, matched = self._match_names(begin or StructType(), root, observation)
        current = with_file_fields(begin or StructType(), root, self.policy.file_fields)
        self.room = self.policy.max_columns - leaf_count(f.type for f in current if role_of(f) is None)
        after, operations = self._evolve_struct(current, root, _StructCursor())
        corrupt = observation.corrupt if self.policy.keeps_corrupt else 0
        # What is rescued is known only after all fields.
        for role, count in ((RESCUED, len(self.rescued)), (CORRUPT, corrupt), (CORRUPT_AT, corrupt)):
            if count and role_field(after, role) is None:
                first = observation.first_corrupt if role == CORRUPT else None
                after = self._with_role(after, role, count, first, operations)
        # The single steps have no older schema to be applied to.
        if schema is None and (operations or begin is not None):
            operations = [CreateTable(after)]
        return Plan(
            tuple(operations),
            after,
            tuple(self.events),
            tuple(self.pending),
            tuple(self.rescued),
            tuple(self.refused),
            tuple(self.quarantined),
            maps=tuple(self.maps),
            rounded=tuple(self.rounded),
            matched=matched,
        )

    def _match_names(
        self, begin: StructType, root: RecordObservation, observation: Observation
    ) -> tuple[RecordObservation, tuple[MatchedName, ...]]:
        """Return the observation with one name for each field, and the names that stand for another one."""
        names = field_names(begin, self.policy)
        if names is None:
            return root, ()
        apart = {tuple(path) for path in observation.apart}
        matched, found = match_observation(root, names, apart)
        self.quarantined_records, _ = match_observation(self.quarantined_records, names, apart)
        paths = sorted({*found, *map(tuple, observation.matched)} - apart)
        fields = ((*path[:-1], found.get(path) or names.path(path)[-1]) for path in paths)
        return matched, tuple(map(MatchedName, paths, fields))

    def _with_role(
        self, schema: StructType, role: str, count: int, first: RecordPosition | None, operations: list[Operation]
    ) -> StructType:
        new = new_role_field(schema, role)
        rule = "D10" if role == RESCUED else "D11"
        self.events.append(PlanEvent((rule,), (), (), (new.name,), count, first, "", Grade.ADDITIVE))
        if self.policy.mode is Mode.FAIL:
            self.refused.append(AddColumn((), new))
            return schema
        operations.append(AddColumn((), new))
        return schema.with_field(new)

    def _evolve_struct(
        self, current: StructType, observed: RecordObservation, cursor: _StructCursor
    ) -> tuple[StructType, list[Operation]]:
        """Return the struct after its records, and the operations that change it."""
        columns_of_key = columns_by_key(current, is_root=not cursor.source)
        operations: list[Operation] = []
        added: list[Field] = []
        parts: list[FieldEvolution] = []
        # Fields with few sub-fields come first: where `max_columns` leaves no room for all, one field with thousands of
        # sub-fields must not take the room of all others. The order of names breaks ties, so that plans are repeatable.
        for key in sorted(observed, key=lambda key: (field_count(observed[key]), naming_order(key))):
            part = self._to_field_evolution(key, observed[key], columns_of_key.get(key, ()), cursor)
            current = self._evolve_field(current, part, cursor, operations, parts)
        # Columns are named and added only after all keys are evolved, in the order of names: the schema then does not
        # depend on how many sub-fields a batch happens to have, and names of real fields go before evolved ones.
        parts.sort(key=lambda part: naming_order(part.key))
        for part, built, new in name_columns(current, parts, self.policy, is_root=not cursor.source):
            operation = AddColumn(cursor.path, new)
            self._add_column_events(part, built, operation.path)
            if part.mode is Mode.FAIL:
                self.refused.append(operation)
            else:
                operations.append(operation)
                added.append(new)  # one by one, each would copy the struct
        return StructType((*current.fields, *added)) if added else current, operations

    def _to_field_evolution(
        self, key: str, observed: FieldObservation, columns: tuple[FieldColumn, ...], cursor: _StructCursor
    ) -> FieldEvolution:
        source = (*cursor.source, key)
        mode = self.policy.mode_of(source)
        # Inside a new column nothing is refused again: the refusal of the column shows its whole type.
        if mode is Mode.FAIL and cursor.is_new:
            mode = Mode.WIDEN
        if mode is Mode.WIDEN and any((*cursor.path, column.name) in self.policy.kept_types for column in columns):
            mode = Mode.SPLIT
        # Columns are fixed by path in the table, and a column may hold a source field of another name.
        fixed_columns = (self.policy.fixed_columns.get((*cursor.path, column.name)) for column in columns)
        fixed = None if cursor.is_new else next(filter(None, fixed_columns), None)
        if self.policy.numbers is Numbers.DECIMAL:
            observed = to_decimals(observed)
        elif any(map(is_declared_decimal, observed.kinds.items())):
            observed = msgspec.structs.replace(observed, kinds=_decimal_kinds(observed.kinds, only_declared=True))
        # An existing record column stays one: its values would not move into a map.
        if not columns and source not in self.policy.pins:
            observed = self._detect_map(source, observed)
        return FieldEvolution(key, source, mode, observed, columns, self.policy.type_of(source), fixed)

    def _detect_map(self, source: Path, observed: FieldObservation) -> FieldObservation:
        """Return the observation of a new field, with its objects as maps if they look like maps and may become some.

        Source: docs/evolution-rules.md#d10
        """
        candidate = find_map(source, observed)
        if candidate is None:
            return observed
        if self.policy.detects_maps:
            return to_maps(observed)
        if candidate not in self.maps:  # a column of every dim has the field
            self.maps.append(candidate)
        return observed

    def _evolve_field(
        self,
        current: StructType,
        part: FieldEvolution,
        cursor: _StructCursor,
        operations: list[Operation],
        done: list[FieldEvolution],
    ) -> StructType:
        """Evolve the existing columns of a field, and collect its new columns in the part until all have names."""
        # The order matters: widened columns decide which sub-fields and entries still need a column, built columns
        # decide what is left for the rescue column, and maps come last, since their entries go to any of these columns.
        part.choice = self._choose(part)
        rounded = round_numbers(part, self._choose) if self.policy.numbers is Numbers.DOUBLE else 0
        self.rounded += [RoundedField(part.source, rounded)] if rounded else []
        current = self._widen_columns(current, part, cursor, operations)
        current = self._evolve_records(current, part, cursor, operations)
        self._build_columns(part, cursor.level + len(part.steps))
        self._collect_leftovers(part)
        done.append(part)
        # Start with the maps that have the most arrays: their column also takes the entries of the others.
        for dim in sorted(part.observed.maps, reverse=True):
            current = self._evolve_field(current, refresh_columns(part.entries(dim), current), cursor, operations, done)
        return current

    def _choose(self, part: FieldEvolution) -> ColumnChoice:
        if not part.kinds or part.mode is Mode.FREEZE:
            return ColumnChoice()
        # The refusal lists what mode widen would do, so that the user can see what to allow.
        mode = Mode.WIDEN if part.mode is Mode.FAIL else part.mode
        table_format, kinds = self.policy.table_format, part.own_kinds
        if part.fixed is not None:
            if mode is not Mode.WIDEN or not part.fixed.can_widen:
                return ColumnChoice()
            return ColumnChoice(choose_columns(part.usable_columns, kinds, mode, table_format).widened)
        keeps = self.policy.keeps_booleans(part.source)
        if part.columns or part.pinned is None:
            is_unbuilt = any(column.name == UNBUILT for column in part.columns)
            # A column that this plan adds does not exist yet, so it cannot be widened.
            mode = Mode.SPLIT if is_unbuilt else mode
            return choose_columns(part.columns, kinds, mode, table_format, keeps_booleans=keeps)
        leaf, dim = leaf_and_dim(part.pinned)
        main = ColumnRequest(leaf, dim, "D1", tuple(sorted(part.kinds)), is_plain=True)
        pinned = (FieldColumn(part.key, leaf, dim),)
        # The user chose this type: what does not fit gets its own column, and the pinned one is never widened.
        rest = choose_columns(pinned, kinds, Mode.SPLIT, table_format, keeps_booleans=keeps)
        return ColumnChoice(requests=(main, *rest.requests))

    def _widen_columns(
        self, current: StructType, part: FieldEvolution, cursor: _StructCursor, operations: list[Operation]
    ) -> StructType:
        for each in part.choice.widened:
            path = (*cursor.path, *each.column.path)
            self._add_event(part, each, path, "D1", Grade.WIDENING)
            operation = WidenType(path, each.column.leaf, each.leaf)
            if part.mode is Mode.FAIL:
                self.refused.append(operation)
            else:
                operations.append(operation)
                current = replace_type(current, each.column.path, each.leaf)
        return current

    def _evolve_records(
        self, current: StructType, part: FieldEvolution, cursor: _StructCursor, operations: list[Operation]
    ) -> StructType:
        """Return the struct with its existing records evolved for their sub-fields."""
        largest = part.largest_record
        for column in part.columns:
            if isinstance(column.leaf, StructType) and column.name != UNBUILT:
                level = cursor.level + len(column.path)
                below = _StructCursor((*cursor.path, *column.path), part.source, cursor.is_new, level)
                observed = sub_fields(part.observed, column.dim, largest)
                struct, inner = self._evolve_record(column.leaf, observed, below, is_main=column.dim == largest)
                operations += inner
                current = replace_type(current, column.path, struct)
        return current

    def _evolve_record(
        self, current: StructType, observed: RecordObservation, cursor: _StructCursor, *, is_main: bool
    ) -> tuple[StructType, list[Operation]]:
        """Evolve one record. What is pending, rescued or rounded is reported by the record of all sub-fields (U17)."""
        marks = len(self.pending), len(self.rescued), len(self.rounded)
        result = self._evolve_struct(current, observed, cursor)
        if not is_main:
            del self.pending[marks[0] :], self.rescued[marks[1] :], self.rounded[marks[2] :]
        return result

    def _build_columns(self, part: FieldEvolution, level: int) -> None:
        """Build the requested columns while there is room for leaves. A struct without any leaf is not built.

        Args:
            level: The level of what contains the columns.
        """
        largest = part.largest_record
        for request in part.choice.requests:
            # Events inside the column are recorded while it has no name. They move to the column, and get its path when
            # it does.
            details = len(self.events)
            built = self._fill_type(
                nest_in_arrays(request.leaf, request.dim),
                part.observed,
                _StructCursor((), part.source, True, level),
                largest,
            )
            if built is not None:
                part.built.append(BuiltColumn(request, built, tuple(self.events[details:])))
            del self.events[details:]

    def _fill_type(
        self, data_type: DataType, observed: FieldObservation, cursor: _StructCursor, largest: int
    ) -> DataType | None:
        """Return the type of a new column with the sub-fields of its records; None without a leaf or without room.

        Columns deeper than `MAX_LEVELS` are not built. They can be deeper than any record: a record beside an array of
        records adds a level to the union of their sub-fields.
        """
        leaf, dim = leaf_and_dim(data_type)
        path = (*cursor.path, *[ELEMENT] * dim)
        if isinstance(leaf, StructType):
            # A pinned record type brings its declared fields, which no request counts.
            self.room -= leaf_count(f.type for f in leaf)
            below = sub_fields(observed, dim, largest)
            inside = replace(cursor, path=path, level=cursor.level + dim + 1)
            struct, _ = self._evolve_record(leaf, below, inside, is_main=dim == largest)
            return nest_in_arrays(struct, dim) if struct.fields else None
        if self.room <= 0 or cursor.level + dim > MAX_LEVELS:
            return None
        self.room -= 1
        if not isinstance(leaf, MapType):
            return data_type
        inside = replace(cursor, path=(*path, VALUE), level=cursor.level + dim + 1)
        value = self._fill_type(leaf.value, entries_up_to(observed, dim), inside, leaf_and_dim(leaf.value)[1])
        return None if value is None else nest_in_arrays(replace(leaf, value=value), dim)

    def _collect_leftovers(self, part: FieldEvolution) -> None:
        """Collect what has no column after the plan: values to rescue or quarantine, and fields without a kind."""
        columns, kinds = part.grown_columns, part.own_kinds
        frozen = part.mode is Mode.FREEZE
        without = uncovered_kinds(columns, kinds, keeps_booleans=self.policy.keeps_booleans(part.source))
        # A record that was not built is not lost itself: its fields are, and each has been reported with its own path.
        lost = [kind for kind in without if frozen or part.fixed or not kind.is_record]
        if part.fixed is not None:
            self._quarantine(part, lost)
        elif lost:
            merged = merge_kinds(kinds, lost)
            texts = tuple(map(part.text, lost))
            reason = Mode.FREEZE.value if frozen else "max_columns" if self.room <= 0 else "max_levels"
            sample = self._sample_text(merged.sample)
            self.rescued.append(RescuedField(part.source, texts, merged.count, merged.first, sample, reason))
        self.pending += pending_fields(part.observed, columns, part.source)

    def _sample_text(self, sample: str) -> str:
        return sample_formatter(self.policy.samples)(sample)

    def _quarantine(self, part: FieldEvolution, lost: Iterable[Kind]) -> None:
        """Report the values that do not fit a fixed column, so that their records are quarantined."""
        quarantined_records = observation_of(self.quarantined_records, part.source)
        # The observation of the whole batch knows only what the table takes; counts of quarantined values are in their
        # own.
        kinds = [kind for kind in sorted({*lost, _NULL}) if kind in quarantined_records.kinds]
        if kinds and part.fixed is not None:
            merged = merge_kinds(quarantined_records.kinds, kinds)
            details = (
                part.fixed.reason,
                tuple(map(str, kinds)),
                merged.count,
                merged.first,
                self._sample_text(merged.sample),
            )
            self.quarantined.append(QuarantinedField(part.source, *details))

    def _add_event(
        self, part: FieldEvolution, item: ColumnRequest | ColumnWidening, path: Path, rule: str, grade: Grade
    ) -> None:
        merged, kinds = merge_kinds(part.kinds, item.kinds), tuple(map(part.text, item.kinds))
        sample = self._sample_text(merged.sample)
        self.events.append(PlanEvent((rule,), part.source, kinds, path, merged.count, merged.first, sample, grade))

    def _add_column_events(self, part: FieldEvolution, built: BuiltColumn, path: Path) -> None:
        self._add_event(part, built.request, path, built.request.rule, part.grade(built.request))
        self.events += [replace(event, column=(*path, *part.steps, *event.column)) for event in built.events]


_NULL = Kind(NULL_WORD)


# The evolution of one field of a struct: its observation, its existing columns, and the columns it gets.
#
# If objects are maps, their values have their own `FieldEvolution`. Its columns are the values of the maps that the
# field has, and the columns it gets are wrapped into maps.
#
# Source: docs/evolution-rules.md#rules, #d7, #d10


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


# The names of the columns that a plan adds to a struct.
#
# Source: docs/evolution-rules.md#u12, #u18, #d9, #d22


def name_columns(
    struct: StructType, parts: Sequence[FieldEvolution], policy: Policy, *, is_root: bool
) -> list[tuple[FieldEvolution, BuiltColumn, Field]]:
    """Return the new columns of a struct with their names, in the order of the parts.

    Keys that are valid names get theirs first, then other keys, then evolved columns: a real field `a_long` keeps its
    name, and the column that evolved from `a` becomes `a_long_2`.

    Args:
        is_root: Whether the struct is the whole table; only its columns must not have reserved names.

    Source: docs/evolution-rules.md#u12, #u18, #d9, #d22
    """
    reserved = (*reserved_names(policy.table_format), *sorted(policy.reserved_names))
    names = NameAllocator((*struct.names, *reserved) if is_root else struct.names)
    new = [(part, built) for part in parts for built in part.built]
    wanted_names = [part.wanted_name(built.request, policy.table_format) for part, built in new]
    is_plain = [not part.suffix(built.request) for part, built in new]
    order = sorted(range(len(new)), key=lambda n: (not is_plain[n], wanted_names[n] != new[n][0].key))
    names_in_order = {turn: names.take(wanted_names[turn]) for turn in order}
    return [(part, built, _new_field(names_in_order[n], part, built, policy)) for n, (part, built) in enumerate(new)]


def _new_field(name: str, part: FieldEvolution, built: BuiltColumn, policy: Policy) -> Field:
    is_plain = not part.suffix(built.request)
    field = source_field(name, part.wrap_in_maps(built.type), part.source, is_evolved=not is_plain)
    pin = policy.pins.get(part.source)
    # The column remembers its text form, so that later ingestions need not pin the field again.
    return field.with_metadata(**{FORM: pin.value}) if isinstance(pin, TextForm) and is_plain else field


# Numbers in the form that the policy asks for: as decimals with the digits as written, or as doubles.
#
# Source: docs/evolution-rules.md#d1, #d3


def to_decimals(observed: FieldObservation) -> FieldObservation:
    """Return the observation of a field as if its fractions had no double, where a decimal holds them.

    Fields inside records are left alone: they have their own observation.
    """
    maps = {dim: to_decimals(values) for dim, values in observed.maps.items()}
    return msgspec.structs.replace(observed, kinds=_decimal_kinds(observed.kinds), maps=maps)


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


def is_declared_decimal(observed: tuple[Kind, KindObservation]) -> bool:
    """Return whether the schema part of a source says that numbers are decimals, which JSON spells like any others."""
    kind, seen = observed
    return kind.word in (LONG_WORD, DOUBLE_WORD) and seen.type.startswith(DECIMAL_WORD)


def _decimal_kinds(kinds: Kinds, *, only_declared: bool = False) -> dict[Kind, KindObservation]:
    by_kind: dict[Kind, KindObservation] = {}
    for kind, seen in kinds.items():
        is_fraction = kind.word in (DOUBLE_WORD, DECIMAL_WORD)
        if is_declared_decimal((kind, seen)):
            kind = Kind(DECIMAL_WORD, kind.dim)
        # A source with types has declared doubles on purpose; only JSON and CSV leave the choice open.
        elif not only_declared and is_fraction and not seen.type and seen.decimal_exact:
            scale = max(seen.scale, seen.written_scale)
            if seen.integer_digits + scale <= MAX_DIGITS:
                kind, seen = Kind(DECIMAL_WORD, kind.dim), msgspec.structs.replace(seen, scale=scale)
        by_kind[kind] = by_kind[kind].merged(seen) if kind in by_kind else seen
    return by_kind
