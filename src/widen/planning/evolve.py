"""Evolution: what an interval needs of the schema, by the rules of the ingestion.

Nothing here looks at a value: the observation and the schema decide. Keys are taken in one fixed order, so the plan
does not depend on the order of the batch.

Source: spec of evolution, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from widen.model.path import ELEMENT, Path, leaves
from widen.model.type import DataType, Field, StructType
from widen.observe.kind import RECORD_WORD, Kind, leaf_and_dim, nested, word_of
from widen.observe.observation import FieldSeen, KindSeen, Observation, RecordSeen, merge_records
from widen.planning.choice import Choice, Column, Growth, Kinds, Want, choose, uncovered
from widen.planning.name import (
    CORRUPT,
    RESCUED,
    ROLES,
    Names,
    allowed_name,
    naming_order,
    new_role_field,
    role_field,
    role_of,
    source_field,
    source_key,
    suffix,
)
from widen.planning.operation import AddColumn, CreateTable, Operation, WidenType
from widen.planning.plan import Event, Grade, Pending, Plan, Rescued
from widen.planning.policy import Mode, Policy


def evolve(schema: StructType | None, observation: Observation, policy: Policy) -> Plan:
    """Return what a batch needs of the schema. The same batch in any order gives the same plan.

    In mode freeze the schema keeps its columns; only the rescue column, and the one for lines that are no record,
    are added once, since values would be lost without them. In mode fail every change is refused, the first table too.

    Args:
        schema: The columns of the table; None if there is none yet.
        observation: What the batch holds.
        policy: What may be done.

    Source: spec of evolution, U4 to U18, D1 to D4, D7 to D11, D15.
    """
    return _Evolution(policy).plan(schema, observation)


@dataclass(slots=True)
class _Place:
    """A struct that is looked at.

    Args:
        at: Where it stands in the schema, with steps into arrays.
        source: The path of its source field.
        is_new: It stands in a column that this plan adds.
    """

    at: Path = ()
    source: Path = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class _Built:
    """A wanted column with its type, and the events inside it, whose paths begin below it."""

    want: Want
    type: DataType
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class _Part:
    """What one key of a struct needs: its choice, and the columns it gets."""

    key: str
    mode: Mode
    kinds: Kinds
    columns: tuple[Column, ...]
    choice: Choice = field(default_factory=Choice)
    built: list[_Built] = field(default_factory=list)


@dataclass(slots=True)
class _Evolution:
    """The state of one call of `evolve`: what has been found, and how many leaves may still be added."""

    policy: Policy
    room: int = 0
    events: list[Event] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    rescued: list[Rescued] = field(default_factory=list)
    refused: list[Operation] = field(default_factory=list)

    def plan(self, schema: StructType | None, observation: Observation) -> Plan:
        current = schema or StructType()
        self.room = self.policy.max_columns - _leaf_count(f.type for f in current if role_of(f) is None)
        after, operations = self._struct(current, observation.root, _Place())
        for role, count in ((RESCUED, len(self.rescued)), (CORRUPT, observation.corrupt)):
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
        )

    def _with_role(self, schema: StructType, role: str, count: int, operations: list[Operation]) -> StructType:
        new = new_role_field(schema, role)
        rule = "D10" if role == RESCUED else "D11"
        self.events.append(Event((rule,), (), (), (new.name,), count, None, "", Grade.ADDITIVE))
        if self.policy.mode is Mode.FAIL:
            self.refused.append(AddColumn((), new))
            return schema
        operations.append(AddColumn((), new))
        return schema.with_field(new)

    def _struct(self, current: StructType, seen: RecordSeen, place: _Place) -> tuple[StructType, list[Operation]]:
        """Return the struct as these records need it, with the operations that make it so."""
        known = _columns_by_key(current, place)
        operations: list[Operation] = []
        parts = []
        for key in sorted(seen, key=lambda key: (_weight(seen[key]), naming_order(key))):
            part = self._part(key, seen[key], known.get(key, ()), place)
            current = self._grow(current, part, place, operations)
            current = self._descend(current, part, seen[key], place, operations)
            self._build(part, seen[key], place)
            self._settle(part, seen[key], place)
            parts.append(part)
        parts.sort(key=lambda part: naming_order(part.key))
        for part, built, new in _named(current, parts, place):
            operation = AddColumn(place.at, new)
            self._tell_added(part, built, operation.path, place)
            if part.mode is Mode.FAIL:
                self.refused.append(operation)
            else:
                operations.append(operation)
                current = current.with_field(new)
        return current, operations

    def _part(self, key: str, seen: FieldSeen, columns: tuple[Column, ...], place: _Place) -> _Part:
        source = (*place.source, key)
        mode = self.policy.mode_of(source)
        if mode is Mode.FAIL and place.is_new:
            mode = Mode.WIDEN
        part = _Part(key, mode, _live_kinds(seen), columns)
        if part.kinds and mode is not Mode.FREEZE:
            part.choice = self._choice(part, source)
        return part

    def _choice(self, part: _Part, source: Path) -> Choice:
        pinned = None if part.columns else self.policy.type_of(source)
        mode = Mode.WIDEN if part.mode is Mode.FAIL else part.mode
        if pinned is None:
            return choose(part.columns, part.kinds, mode, self.policy.table_format)
        leaf, dim = leaf_and_dim(pinned)
        rest = choose((Column(part.key, leaf, dim),), part.kinds, Mode.SPLIT, self.policy.table_format)
        return Choice(wants=(Want(leaf, dim, "D1", tuple(sorted(part.kinds)), is_plain=True), *rest.wants))

    def _grow(self, current: StructType, part: _Part, place: _Place, operations: list[Operation]) -> StructType:
        for growth in part.choice.growths:
            column = growth.column
            path = (*place.at, column.name, *[ELEMENT] * column.dim)
            self._tell(part, growth, path, place, "D1", Grade.WIDENING)
            operation = WidenType(path, column.leaf, growth.leaf)
            if part.mode is Mode.FAIL:
                self.refused.append(operation)
            else:
                operations.append(operation)
                current = _retyped(current, column.name, nested(growth.leaf, column.dim))
        return current

    def _descend(
        self, current: StructType, part: _Part, seen: FieldSeen, place: _Place, operations: list[Operation]
    ) -> StructType:
        """Return the struct with the records that it has already as the sub-fields need them."""
        largest = _largest_record(part)
        for column in part.columns:
            if isinstance(column.leaf, StructType):
                at = (*place.at, column.name, *[ELEMENT] * column.dim)
                below = _Place(at, (*place.source, part.key), place.is_new)
                sub_fields = _sub_fields(seen, column.dim, largest)
                struct, inner = self._record(column.leaf, sub_fields, below, is_main=column.dim == largest)
                operations += inner
                current = _retyped(current, column.name, nested(struct, column.dim))
        return current

    def _record(
        self, current: StructType, seen: RecordSeen, place: _Place, *, is_main: bool
    ) -> tuple[StructType, list[Operation]]:
        """Do one record. What waits or is rescued is told once: by the record that holds all sub-fields."""
        marks = len(self.pending), len(self.rescued)
        result = self._struct(current, seen, place)
        if not is_main:
            del self.pending[marks[0] :], self.rescued[marks[1] :]
        return result

    def _build(self, part: _Part, seen: FieldSeen, place: _Place) -> None:
        """Make the wanted columns, as far as there is room for leaves; a struct without any is dropped."""
        largest = _largest_record(part)
        for want in part.choice.wants:
            if isinstance(want.leaf, StructType):
                told = len(self.events)
                below = _Place((), (*place.source, part.key), is_new=True)
                self.room -= _leaf_count(f.type for f in want.leaf)
                sub_fields = _sub_fields(seen, want.dim, largest)
                struct, _ = self._record(want.leaf, sub_fields, below, is_main=want.dim == largest)
                if struct.fields:
                    part.built.append(_Built(want, nested(struct, want.dim), tuple(self.events[told:])))
                del self.events[told:]
            elif self.room > 0:
                self.room -= 1
                part.built.append(_Built(want, nested(want.leaf, want.dim)))

    def _settle(self, part: _Part, seen: FieldSeen, place: _Place) -> None:
        """Tell what of the field is without a column now: values to rescue, and what has no kind."""
        grown = {growth.column.name: growth.leaf for growth in part.choice.growths}
        columns = [Column(c.name, grown.get(c.name, c.leaf), c.dim) for c in part.columns]
        columns += [Column("", built.want.leaf, built.want.dim) for built in part.built]
        source = (*place.source, part.key)
        frozen = part.mode is Mode.FREEZE
        lost = [kind for kind in uncovered(columns, part.kinds) if frozen or not kind.is_record]
        if lost:
            total = _total(part.kinds, lost)
            reason = Mode.FREEZE.value if frozen else "max_columns"
            self.rescued.append(Rescued(source, _texts(lost), total.count, total.first, total.sample, reason))
        self.pending += _waiting(seen, columns, source)

    def _tell(self, part: _Part, item: Want | Growth, path: Path, place: _Place, rule: str, grade: Grade) -> None:
        total = _total(part.kinds, item.kinds)
        source, kinds = (*place.source, part.key), _texts(item.kinds)
        self.events.append(Event((rule,), source, kinds, path, total.count, total.first, total.sample, grade))

    def _tell_added(self, part: _Part, built: _Built, path: Path, place: _Place) -> None:
        self._tell(part, built.want, path, place, built.want.rule, _grade(part, built.want))
        inside = (*path, *[ELEMENT] * built.want.dim)
        self.events += [replace(event, column=(*inside, *event.column)) for event in built.events]


def _columns_by_key(struct: StructType, place: _Place) -> dict[str, tuple[Column, ...]]:
    found: dict[str, tuple[Column, ...]] = {}
    for item in struct:
        if place.source or role_of(item) is None:
            key = source_key(item)
            found[key] = (*found.get(key, ()), Column(item.name, *leaf_and_dim(item.type)))
    return found


def _live_kinds(seen: FieldSeen) -> Kinds:
    """Return the kinds without records in which no sub-field has a kind: no column can be made for them (D7)."""
    return {
        kind: values
        for kind, values in seen.kinds.items()
        if not kind.is_record or _is_live(seen.records.get(kind.dim, {}))
    }


def _is_live(record: RecordSeen) -> bool:
    return any(_live_kinds(sub_field) for sub_field in record.values())


def _largest_record(part: _Part) -> int:
    """Return the dim of the record that holds all sub-fields; -1 if the field has and gets no record."""
    shapes = [(column.leaf, column.dim) for column in part.columns]
    shapes += [(want.leaf, want.dim) for want in part.choice.wants]
    return max((dim for leaf, dim in shapes if isinstance(leaf, StructType)), default=-1)


def _sub_fields(seen: FieldSeen, dim: int, largest: int) -> RecordSeen:
    """Return the sub-fields for a record: all of them for the largest, else those of its own dim.

    Source: spec of evolution, U17.
    """
    if dim != largest:
        return seen.records.get(dim, {})
    return reduce(merge_records, (record for at, record in seen.records.items() if at <= dim), {})


def _waiting(seen: FieldSeen, columns: list[Column], source: Path) -> Iterator[Pending]:
    """Yield what has no kind and no column that could hold it; nothing of a field that is rescued as a whole.

    Source: spec of evolution, D7.
    """
    if not columns and _live_kinds(seen):
        return
    largest = max((column.dim for column in columns), default=-1)
    record = max((column.dim for column in columns if isinstance(column.leaf, StructType)), default=-1)
    nulls, empty = _past(seen.nulls, largest), _past(seen.empty, largest)
    empty_records = _past(seen.empty_records, record)
    if nulls or empty or empty_records:
        yield Pending(source, nulls, empty, empty_records)
    for dim, sub_fields in sorted(seen.records.items()):
        for key in sorted(sub_fields if dim > record else (), key=naming_order):
            yield from _waiting(sub_fields[key], [], (*source, key))


def _past(counts: Mapping[int, int], dim: int) -> int:
    return sum(count for at, count in counts.items() if at > dim)


def _named(struct: StructType, parts: list[_Part], place: _Place) -> list[tuple[_Part, _Built, Field]]:
    """Return the new columns with their names: first come keys that are names, then other keys, then suffixes.

    Source: spec of evolution, U12, U18, D9.
    """
    names = Names(struct.names if place.source else (*struct.names, *ROLES))
    new = [(part, built) for part in parts for built in part.built]
    wanted = [_wanted_name(part.key, built.want) for part, built in new]
    turns = sorted(range(len(new)), key=lambda n: (not new[n][1].want.is_plain, wanted[n] != new[n][0].key))
    given = {turn: names.take(wanted[turn]) for turn in turns}
    return [
        (part, built, _new_field(given[n], built, (*place.source, part.key))) for n, (part, built) in enumerate(new)
    ]


def _wanted_name(key: str, want: Want) -> str:
    name = allowed_name(key)
    return name if want.is_plain else name + suffix(word_of(want.leaf) or "", want.dim)


def _new_field(name: str, built: _Built, source: Path) -> Field:
    return source_field(name, built.type, source, is_evolved=not built.want.is_plain)


def _grade(part: _Part, want: Want) -> Grade:
    if want.is_plain:
        return Grade.ADDITIVE
    first = part.columns[0] if part.columns else part.choice.wants[0]
    is_same_shape = (word_of(first.leaf) == RECORD_WORD) == (word_of(want.leaf) == RECORD_WORD)
    return Grade.CONFLICT if is_same_shape and first.dim == want.dim else Grade.STRUCTURAL


def _retyped(struct: StructType, name: str, new: DataType) -> StructType:
    return StructType(tuple(replace(item, type=new) if item.name == name else item for item in struct))


def _total(kinds: Kinds, some: Iterable[Kind]) -> KindSeen:
    return reduce(KindSeen.merged, (kinds[kind] for kind in some), KindSeen())


def _texts(kinds: Iterable[Kind]) -> tuple[str, ...]:
    return tuple(str(kind) for kind in kinds)


def _weight(seen: FieldSeen) -> int:
    """Return how many fields are below a field: the light ones come first where there is no room for all."""
    return sum(1 + _weight(field) for record in seen.records.values() for field in record.values())


def _leaf_count(types: Iterable[DataType]) -> int:
    return sum(1 for data_type in types for _ in leaves(data_type))
