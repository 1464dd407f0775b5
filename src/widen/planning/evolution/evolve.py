"""Evolution: what an interval needs of the schema, by the rules of the ingestion.

Nothing here looks at a value: the observation and the schema decide. Keys are taken in one fixed order, so the plan
does not depend on the order of the batch.

Source: docs/evolution-rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from widen.model.column_path import ELEMENT, VALUE, Path, leaves, replace_type, resolve
from widen.model.types import DataType, Field, MapType, StructType
from widen.observe.kind import NULL_WORD, Kind, leaf_and_dim, nest_in_arrays
from widen.observe.observation import FieldObservation, Observation, RecordObservation, merge_records
from widen.planning.evolution.column_choice import choose_columns, uncovered_kinds
from widen.planning.evolution.field_columns import ColumnChoice, ColumnRequest, ColumnWidening, FieldColumn
from widen.planning.evolution.field_evolution import (
    UNBUILT,
    BuiltColumn,
    FieldEvolution,
    entries_up_to,
    field_count,
    merge_kinds,
    pending_fields,
    sub_fields,
)
from widen.planning.evolution.file_fields import adopted
from widen.planning.evolution.plan import Grade, PendingField, Plan, PlanEvent, QuarantinedField, RescuedField
from widen.planning.evolution.policy import Mode, Policy, TextForm
from widen.planning.evolution.samples import shown_as
from widen.planning.evolution.source_metadata import (
    CORRUPT,
    CORRUPT_AT,
    FORM,
    RESCUED,
    NameAllocator,
    naming_order,
    new_role_field,
    reserved_names,
    role_field,
    role_of,
    source_field,
    source_key,
)
from widen.planning.table.operation import AddColumn, CreateTable, Operation, WidenType


def evolve(schema: StructType | None, observation: Observation, policy: Policy) -> Plan:
    """Return what a batch needs of the schema. The same batch in any order gives the same plan.

    In mode freeze the schema keeps its columns; only the rescue column, and those for lines that are no record,
    are added once, since values would be lost without them. In mode fail every change is refused, the first table too.

    Args:
        schema: The columns of the table; None if there is none yet.
        observation: What the batch holds.
        policy: What may be done.

    Source: docs/evolution-rules.md#u4 to #u18, #d1 to #d4, #d7 to #d12, #d15
    """
    return _Evolution(policy, observation.kept_out).plan(schema, observation)


@dataclass(slots=True)
class _StructCursor:
    """A struct that is looked at.

    Args:
        at: Where it stands in the schema, with steps into arrays and maps.
        source: The path of its source field.
        is_new: It stands in a column that this plan adds.
    """

    at: Path = ()
    source: Path = ()
    is_new: bool = False


@dataclass(slots=True)
class _Evolution:
    """The state of one call of `evolve`: what has been found, and how many leaves may still be added."""

    policy: Policy
    kept_out: RecordObservation
    room: int = 0
    events: list[PlanEvent] = field(default_factory=list)
    pending: list[PendingField] = field(default_factory=list)
    rescued: list[RescuedField] = field(default_factory=list)
    refused: list[Operation] = field(default_factory=list)
    quarantined: list[QuarantinedField] = field(default_factory=list)

    def plan(self, schema: StructType | None, observation: Observation) -> Plan:
        current = adopted(schema or StructType(), observation.root, self.policy.file_fields)
        self.room = self.policy.max_columns - _leaf_count(f.type for f in current if role_of(f) is None)
        root = merge_records(observation.root, self.kept_out) if self.kept_out else observation.root
        after, operations = self._struct(current, root, _StructCursor())
        corrupt = observation.corrupt
        for role, count in ((RESCUED, len(self.rescued)), (CORRUPT, corrupt), (CORRUPT_AT, corrupt)):
            if count and role_field(after, role) is None:
                after = self._with_role(after, role, count, operations)
        if schema is None and operations:
            operations = [CreateTable(after)]
        return Plan(
            tuple(operations),
            after,
            tuple(self.events),
            tuple(self.pending),
            tuple(self.rescued),
            tuple(self.refused),
            tuple(self.quarantined),
        )

    def _with_role(self, schema: StructType, role: str, count: int, operations: list[Operation]) -> StructType:
        new = new_role_field(schema, role)
        rule = "D10" if role == RESCUED else "D11"
        self.events.append(PlanEvent((rule,), (), (), (new.name,), count, None, "", Grade.ADDITIVE))
        if self.policy.mode is Mode.FAIL:
            self.refused.append(AddColumn((), new))
            return schema
        operations.append(AddColumn((), new))
        return schema.with_field(new)

    def _struct(
        self, current: StructType, seen: RecordObservation, place: _StructCursor
    ) -> tuple[StructType, list[Operation]]:
        """Return the struct as these records need it, with the operations that make it so."""
        known = _columns_by_key(current, place)
        operations: list[Operation] = []
        parts: list[FieldEvolution] = []
        for key in sorted(seen, key=lambda key: (field_count(seen[key]), naming_order(key))):
            part = self._part(key, seen[key], known.get(key, ()), place)
            current = self._do(current, part, place, operations, parts)
        parts.sort(key=lambda part: naming_order(part.key))
        for part, built, new in self._named(current, parts, place):
            operation = AddColumn(place.at, new)
            self._tell_added(part, built, operation.path)
            if part.mode is Mode.FAIL:
                self.refused.append(operation)
            else:
                operations.append(operation)
                current = current.with_field(new)
        return current, operations

    def _part(
        self, key: str, seen: FieldObservation, columns: tuple[FieldColumn, ...], place: _StructCursor
    ) -> FieldEvolution:
        source = (*place.source, key)
        mode = self.policy.mode_of(source)
        if mode is Mode.FAIL and place.is_new:
            mode = Mode.WIDEN
        # A guard is of a column, which may hold another field than the one of its name.
        guards = (self.policy.guards.get((*place.at, column.name)) for column in columns)
        guard = None if place.is_new else next(filter(None, guards), None)
        return FieldEvolution(key, source, mode, seen, columns, self.policy.type_of(source), guard)

    def _do(
        self,
        current: StructType,
        part: FieldEvolution,
        place: _StructCursor,
        operations: list[Operation],
        done: list[FieldEvolution],
    ) -> StructType:
        """Return the struct with what a part needs of the columns that it has; those that it gets wait in the part."""
        part.choice = self._choice(part)
        current = self._grow(current, part, place, operations)
        current = self._descend(current, part, place, operations)
        self._build(part)
        self._settle(part)
        done.append(part)
        for dim in sorted(part.seen.maps, reverse=True):
            current = self._do(current, _refresh(part.entries(dim), current), place, operations, done)
        return current

    def _choice(self, part: FieldEvolution) -> ColumnChoice:
        if not part.kinds or part.mode is Mode.FREEZE:
            return ColumnChoice()
        mode = Mode.WIDEN if part.mode is Mode.FAIL else part.mode
        table_format, kinds = self.policy.table_format, part.own_kinds
        if part.guard is not None:
            can_widen = mode is Mode.WIDEN and part.guard.can_widen and kinds
            return (
                ColumnChoice(choose_columns(part.choosing, kinds, mode, table_format).widened)
                if can_widen
                else ColumnChoice()
            )
        keeps = self.policy.keeps_booleans(part.source)
        if part.columns or part.pinned is None:
            is_unbuilt = any(column.name == UNBUILT for column in part.columns)
            mode = Mode.SPLIT if is_unbuilt else mode
            return (
                choose_columns(part.columns, kinds, mode, table_format, keeps_booleans=keeps)
                if kinds
                else ColumnChoice()
            )
        leaf, dim = leaf_and_dim(part.pinned)
        main = ColumnRequest(leaf, dim, "D1", tuple(sorted(part.kinds)), is_plain=True)
        pinned = (FieldColumn(part.key, leaf, dim),)
        rest = (
            choose_columns(pinned, kinds, Mode.SPLIT, table_format, keeps_booleans=keeps) if kinds else ColumnChoice()
        )
        return ColumnChoice(wants=(main, *rest.wants))

    def _grow(
        self, current: StructType, part: FieldEvolution, place: _StructCursor, operations: list[Operation]
    ) -> StructType:
        for each in part.choice.widened:
            path = (*place.at, *each.column.path)
            self._tell(part, each, path, "D1", Grade.WIDENING)
            operation = WidenType(path, each.column.leaf, each.leaf)
            if part.mode is Mode.FAIL:
                self.refused.append(operation)
            else:
                operations.append(operation)
                current = replace_type(current, each.column.path, each.leaf)
        return current

    def _descend(
        self, current: StructType, part: FieldEvolution, place: _StructCursor, operations: list[Operation]
    ) -> StructType:
        """Return the struct with the records that it has already as the sub-fields need them."""
        largest = part.largest_record
        for column in part.columns:
            if isinstance(column.leaf, StructType) and column.name != UNBUILT:
                below = _StructCursor((*place.at, *column.path), part.source, place.is_new)
                seen = sub_fields(part.seen, column.dim, largest)
                struct, inner = self._record(column.leaf, seen, below, is_main=column.dim == largest)
                operations += inner
                current = replace_type(current, column.path, struct)
        return current

    def _record(
        self, current: StructType, seen: RecordObservation, place: _StructCursor, *, is_main: bool
    ) -> tuple[StructType, list[Operation]]:
        """Do one record. What waits or is rescued is told once: by the record that holds all sub-fields."""
        marks = len(self.pending), len(self.rescued)
        result = self._struct(current, seen, place)
        if not is_main:
            del self.pending[marks[0] :], self.rescued[marks[1] :]
        return result

    def _build(self, part: FieldEvolution) -> None:
        """Make the wanted columns, as far as there is room for leaves; a struct without any is dropped."""
        largest = part.largest_record
        for want in part.choice.wants:
            told = len(self.events)
            built = self._filled(
                nest_in_arrays(want.leaf, want.dim), part.seen, _StructCursor((), part.source, True), largest
            )
            if built is not None:
                part.built.append(BuiltColumn(want, built, tuple(self.events[told:])))
            del self.events[told:]

    def _filled(
        self, data_type: DataType, seen: FieldObservation, place: _StructCursor, largest: int
    ) -> DataType | None:
        """Return the type of a new column with what is in the records of it; None if nothing is, or no room is left.

        Args:
            data_type: The type, records without the sub-fields that nobody declared.
            seen: What the interval brings for it.
            place: Where it is in the column.
            largest: The dim of the record that gets all sub-fields.
        """
        leaf, dim = leaf_and_dim(data_type)
        at = (*place.at, *[ELEMENT] * dim)
        if isinstance(leaf, StructType):
            self.room -= _leaf_count(f.type for f in leaf)
            below = sub_fields(seen, dim, largest)
            struct, _ = self._record(leaf, below, replace(place, at=at), is_main=dim == largest)
            return nest_in_arrays(struct, dim) if struct.fields else None
        if self.room <= 0:
            return None
        self.room -= 1
        if not isinstance(leaf, MapType):
            return data_type
        inside = replace(place, at=(*at, VALUE))
        value = self._filled(leaf.value, entries_up_to(seen, dim), inside, leaf_and_dim(leaf.value)[1])
        return None if value is None else nest_in_arrays(replace(leaf, value=value), dim)

    def _settle(self, part: FieldEvolution) -> None:
        """Tell what of the field is without a column now: values to rescue or to keep out, and what has no kind."""
        columns, kinds = part.grown_columns, part.own_kinds
        frozen = part.mode is Mode.FREEZE
        without = uncovered_kinds(columns, kinds, keeps_booleans=self.policy.keeps_booleans(part.source))
        lost = [kind for kind in without if frozen or part.guard or not kind.is_record]
        if part.guard is not None:
            self._keep_out(part, lost)
        elif lost:
            found = merge_kinds(kinds, lost)
            texts, reason = tuple(map(part.text, lost)), Mode.FREEZE.value if frozen else "max_columns"
            sample = self._shown(found.sample)
            self.rescued.append(RescuedField(part.source, texts, found.count, found.first, sample, reason))
        self.pending += pending_fields(part.seen, columns, part.source)

    def _shown(self, sample: str) -> str:
        return shown_as(self.policy.samples)(sample)

    def _keep_out(self, part: FieldEvolution, lost: Iterable[Kind]) -> None:
        """Tell of the values of a field whose column cannot yield that keep their records out."""
        kept_out = _at(self.kept_out, part.source)
        kinds = [kind for kind in sorted({*lost, _NULL}) if kind in kept_out.kinds]
        if kinds and part.guard is not None:
            found = merge_kinds(kept_out.kinds, kinds)
            told = (part.guard.reason, tuple(map(str, kinds)), found.count, found.first, self._shown(found.sample))
            self.quarantined.append(QuarantinedField(part.source, *told))

    def _named(
        self, struct: StructType, parts: list[FieldEvolution], place: _StructCursor
    ) -> list[tuple[FieldEvolution, BuiltColumn, Field]]:
        """Return the new columns with their names: first come keys that are names, then other keys, then suffixes.

        Source: docs/evolution-rules.md#u12, #u18, #d9, #d22
        """
        names = NameAllocator(
            struct.names if place.source else (*struct.names, *reserved_names(self.policy.table_format))
        )
        new = [(part, built) for part in parts for built in part.built]
        wanted = [part.wanted_name(built.want) for part, built in new]
        is_plain = [not part.suffix(built.want) for part, built in new]
        turns = sorted(range(len(new)), key=lambda n: (not is_plain[n], wanted[n] != new[n][0].key))
        given = {turn: names.take(wanted[turn]) for turn in turns}
        return [(part, built, self._new_field(given[n], part, built)) for n, (part, built) in enumerate(new)]

    def _new_field(self, name: str, part: FieldEvolution, built: BuiltColumn) -> Field:
        is_plain = not part.suffix(built.want)
        found = source_field(name, part.wrapped(built.type), part.source, is_evolved=not is_plain)
        pin = self.policy.pins.get(part.source)
        return found.with_metadata(**{FORM: pin.value}) if isinstance(pin, TextForm) and is_plain else found

    def _tell(
        self, part: FieldEvolution, item: ColumnRequest | ColumnWidening, path: Path, rule: str, grade: Grade
    ) -> None:
        found, kinds = merge_kinds(part.kinds, item.kinds), tuple(map(part.text, item.kinds))
        sample = self._shown(found.sample)
        self.events.append(PlanEvent((rule,), part.source, kinds, path, found.count, found.first, sample, grade))

    def _tell_added(self, part: FieldEvolution, built: BuiltColumn, path: Path) -> None:
        self._tell(part, built.want, path, built.want.rule, part.grade(built.want))
        self.events += [replace(event, column=(*path, *part.steps, *event.column)) for event in built.events]


_NULL = Kind(NULL_WORD)


def _columns_by_key(struct: StructType, place: _StructCursor) -> dict[str, tuple[FieldColumn, ...]]:
    found: dict[str, tuple[FieldColumn, ...]] = {}
    for item in struct:
        if place.source or role_of(item) is None:
            key = source_key(item)
            found[key] = (*found.get(key, ()), FieldColumn(item.name, *leaf_and_dim(item.type)))
    return found


def _refresh(part: FieldEvolution, struct: StructType) -> FieldEvolution:
    """Return a part with its columns as they are in a struct that another part may have changed."""
    columns = (
        c if c.name == UNBUILT else FieldColumn(c.name, *leaf_and_dim(resolve(struct, (c.name, *c.above))[1]), c.above)
        for c in part.columns
    )
    return replace(part, columns=tuple(columns))


def _at(seen: RecordObservation, source: Path) -> FieldObservation:
    """Return what is known of a field that stands in no array."""
    for key in source[:-1]:
        seen = seen.get(key, FieldObservation()).records.get(0, {})
    return seen.get(source[-1], FieldObservation())


def _leaf_count(types: Iterable[DataType]) -> int:
    return sum(1 for data_type in types for _ in leaves(data_type))
