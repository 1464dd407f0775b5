"""Schema evolution: the plan for one interval, from the schema of the table, the observation and the policy.

No value is read here. Keys are processed in a fixed order, so the plan does not depend on the order of the records.

Source: docs/evolution-rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from widen.model.column_path import ELEMENT, VALUE, Path, replace_type
from widen.model.types import DataType, Field, MapType, StructType
from widen.observe.json_document import MAX_LEVELS
from widen.observe.kind import NULL_WORD, Kind, leaf_and_dim, nest_in_arrays
from widen.observe.observation import FieldObservation, Observation, RecordObservation, RecordPosition, merge_records
from widen.planning.evolution.column_choice import choose_columns, uncovered_kinds
from widen.planning.evolution.column_naming import name_columns
from widen.planning.evolution.field_columns import ColumnChoice, ColumnRequest, ColumnWidening, FieldColumn
from widen.planning.evolution.field_evolution import (
    UNBUILT,
    BuiltColumn,
    FieldEvolution,
    columns_by_key,
    entries_up_to,
    field_count,
    leaf_count,
    merge_kinds,
    observation_of,
    pending_fields,
    refresh_columns,
    sub_fields,
)
from widen.planning.evolution.file_fields import with_file_fields
from widen.planning.evolution.map_detection import MapCandidate, ensure_keys_are_names, find_map, to_maps
from widen.planning.evolution.number_kinds import round_numbers, to_decimals
from widen.planning.evolution.plan import (
    Grade,
    PendingField,
    Plan,
    PlanEvent,
    QuarantinedField,
    RescuedField,
    RoundedField,
)
from widen.planning.evolution.policy import Mode, Numbers, Policy
from widen.planning.evolution.samples import sample_formatter
from widen.planning.evolution.source_metadata import (
    CORRUPT,
    CORRUPT_AT,
    RESCUED,
    naming_order,
    new_role_field,
    role_field,
    role_of,
)
from widen.planning.table.operation import AddColumn, CreateTable, Operation, WidenType


def evolve(schema: StructType | None, observation: Observation, policy: Policy) -> Plan:
    """Plan the schema changes for a batch. The same records in any order give the same plan.

    Mode freeze adds no columns but the rescue column and the columns for corrupt records, without which values would
    be lost. Mode fail refuses every change, including the creation of the table.

    Args:
        schema: The columns of the table; None if it does not exist yet. Then it begins with the layout of the policy.

    Raises:
        TooManyKeys: a field has more keys than the policy allows.

    Source: docs/evolution-rules.md#u4 to #u18, #d1 to #d4, #d7 to #d12, #d15
    """
    ensure_keys_are_names(observation.root, policy)
    return _Evolution(policy, observation.kept_out).plan(schema, observation)


@dataclass(slots=True)
class _StructCursor:
    """The struct that is being evolved.

    Args:
        path: Its path in the schema, with steps into arrays and maps.
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
    kept_out: RecordObservation
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
        current = with_file_fields(begin or StructType(), observation.root, self.policy.file_fields)
        self.room = self.policy.max_columns - leaf_count(f.type for f in current if role_of(f) is None)
        # A fixed column may be widened in place. So the values that it kept out count too, and fit in the next pass.
        root = merge_records(observation.root, self.kept_out) if self.kept_out else observation.root
        after, operations = self._evolve_struct(current, root, _StructCursor())
        corrupt = observation.corrupt
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
        )

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
        # Columns are fixed by path in the table, and a column may hold a source field of another name.
        fixed_columns = (self.policy.fixed_columns.get((*cursor.path, column.name)) for column in columns)
        fixed = None if cursor.is_new else next(filter(None, fixed_columns), None)
        if self.policy.numbers is Numbers.DECIMAL:
            observed = to_decimals(observed)
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
        # Maps with most arrays first: their column takes the entries of the others, too.
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

        Args:
            data_type: The type, with only the declared sub-fields in its records.
            largest: The dim of the record that gets all sub-fields.
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
        kept_out = observation_of(self.kept_out, part.source)
        # The observation of the whole batch knows only what the table takes; counts of quarantined values are in their
        # own.
        kinds = [kind for kind in sorted({*lost, _NULL}) if kind in kept_out.kinds]
        if kinds and part.fixed is not None:
            merged = merge_kinds(kept_out.kinds, kinds)
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
