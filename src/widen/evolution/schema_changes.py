"""The column changes of one commit, from the schema before and after it and the events of its ingestion.

The schemas show the changes of any writer; the events give the reasons.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from widen.evolution.plan import PlanEvent
from widen.model.column_path import Path, children, fields, format_path
from widen.model.types import DataType, Field, StructType, is_atomic
from widen.model.value_classes import dataclass
from widen.protocol.actions import CommitInfo
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.column_metadata import HIGH_WATER_MARK, TEXT_LIMIT, find_default
from widen.protocol.type_widening import is_widening
from widen.schema.operations import AddColumn, AfterField, CreateTable, Operation, StructEnd, WidenType
from widen.schema.source_metadata import ALIASES, COMMENT, source_keys

EVENTS = "events"
"""The operation parameter that holds the events of an ingestion, as JSON text."""


def schema_changes(
    before: StructType, after: StructType, reasons: Sequence[tuple[Path, ChangeReason]] = ()
) -> tuple[ColumnChange, ...]:
    """Return the column changes: columns of the new schema in its order, then removed columns."""
    if after is before:  # most commits of a history: they change no column
        return _join_reasons((), reasons)
    key = _key_of(before, after)
    return _join_reasons((*_added_changes(before, after, key), *_dropped_changes(before, after, key)), reasons)


def plan_changes(operations: Iterable[Operation], events: Iterable[PlanEvent]) -> tuple[ColumnChange, ...]:
    """Return the column changes of the operations of a plan, in their order, with the events as reasons."""
    reasons = [(event.column, _reason(event, event.grade.value)) for event in events]
    return _join_reasons([change for operation in operations for change in _operation_changes(operation)], reasons)


def _operation_changes(operation: Operation) -> Iterator[ColumnChange]:
    match operation:
        case CreateTable(schema):
            yield from (ColumnChange(ADDED, (field.name,), new=field.type.sql) for field in schema)
        case AddColumn():
            yield ColumnChange(ADDED, operation.path, new=operation.field.type.sql)
        case WidenType(path, old, new):
            yield ColumnChange(WIDENED, path, old.sql, new.sql)


def _join_reasons(
    changes: Iterable[ColumnChange], reasons: Sequence[tuple[Path, ChangeReason]]
) -> tuple[ColumnChange, ...]:
    """Return the changes with their reasons; reasons without a change become `ROUTED` changes."""
    remaining = list(reasons)
    joined = []
    for change in changes:
        matching = [item for item in remaining if item[0][: len(change.column)] == change.column]
        remaining = [item for item in remaining if item not in matching]
        joined.append(replace(change, reasons=tuple(reason for _, reason in matching)))
    routed: dict[Path, list[ChangeReason]] = {}
    for column, reason in remaining:
        routed.setdefault(column, []).append(reason)
    return (*joined, *(ColumnChange(ROUTED, column, reasons=tuple(group)) for column, group in routed.items()))


def recorded_reasons(info: CommitInfo) -> list[tuple[Path, ChangeReason]]:
    """Return the reasons that an ingestion recorded, each with its column.

    Events that cannot be parsed are ignored, because commit info is free-form.
    """
    parameters = info.get("operationParameters")
    text = parameters.get(EVENTS) if isinstance(parameters, dict) else None
    if not isinstance(text, str):
        return []
    try:
        events = _decoder.decode(text)
    except msgspec.DecodeError:
        return []
    return [(event.column, _reason(event, event.grade)) for event in events]


class _Event(msgspec.Struct):
    """An event in the JSON that an ingestion records."""

    rules: tuple[str, ...]
    source: tuple[str, ...]
    kinds: tuple[str, ...]
    column: tuple[str, ...]
    count: int
    first: tuple[str, int] | None
    sample: str
    grade: str
    at_least: bool = False
    dropped_in: str = ""


_decoder = msgspec.json.Decoder(list[_Event])


def _reason(event: PlanEvent | _Event, grade: str) -> ChangeReason:
    file, position = event.first or ("", 0)
    return ChangeReason(
        event.rules,
        event.source,
        event.kinds,
        event.count,
        grade,
        file,
        position,
        event.sample,
        event.at_least,
        event.dropped_in,
    )


def _added_changes(before: StructType, after: StructType, key: _Key) -> Iterator[ColumnChange]:
    old = {key(path, field): (path, field) for path, field in fields(before)}
    numbers = {identity: number for number, identity in enumerate(old)}
    kept: list[tuple[Path, int]] = []
    added_paths: list[Path] = []
    for path, field in fields(after):
        if any(path[: len(added)] == added for added in added_paths):
            continue
        previous = old.get(key(path, field))
        if previous is None:
            added_paths.append(path)
            yield ColumnChange(ADDED, path, new=field.type.sql)
            continue
        kept.append((path, numbers[key(path, field)]))
        if previous[0][-1] != path[-1]:
            yield ColumnChange(RENAMED, path, ".".join(previous[0]), ".".join(path))
        yield from _type_changes(path, previous[1].type, field.type)
        yield from _detail_changes(path, previous[1], field)
    yield from _moves(kept)


def _dropped_changes(before: StructType, after: StructType, key: _Key) -> Iterator[ColumnChange]:
    kept = {key(path, field) for path, field in fields(after)}
    removed_paths: list[Path] = []
    for path, field in fields(before):
        if key(path, field) not in kept and not any(path[: len(removed)] == removed for removed in removed_paths):
            removed_paths.append(path)
            yield ColumnChange(REMOVED, path, old=field.type.sql)


_Key: TypeAlias = Callable[[Path, Field], object]
"""Returns the identity of a field."""


def _key_of(before: StructType, after: StructType) -> _Key:
    """Return the function that identifies fields across schemas: by column id if both are mapped, else by path."""
    if all(any(COLUMN_ID in field.metadata for _, field in fields(schema)) for schema in (before, after)):
        return lambda path, field: field.metadata.get(COLUMN_ID, path)
    return lambda path, _: path


def _type_changes(path: Path, old: DataType, new: DataType) -> Iterator[ColumnChange]:
    """Yield the type changes of one field; `fields` yields the fields inside structs separately."""
    old_children, new_children = dict(children(old)), dict(children(new))
    if isinstance(old, StructType) and isinstance(new, StructType):
        return
    if type(old) is type(new) and old_children:
        for step in new_children:
            yield from _type_changes((*path, step), old_children[step], new_children[step])
    elif old != new:
        is_wider = is_atomic(old) and is_atomic(new) and is_widening(old, new)
        yield ColumnChange(WIDENED if is_wider else RETYPED, path, old.sql, new.sql)


def summarize_operation(parameters: Mapping[str, Any], operation: str) -> str:
    """Return a short summary of a property or fold operation; empty for other operations."""
    text = parameters.get("properties")
    if operation == "SET TBLPROPERTIES" and isinstance(text, str):
        return f"set {', '.join(f'{key} = {value}' for key, value in _object(text).items())}"
    if operation == "UNSET TBLPROPERTIES" and isinstance(text, str):
        return f"unset {', '.join(_object(text))}"
    if operation == "FOLD COLUMN" and {"column", "into"} <= parameters.keys():
        return f"folded {parameters['column']} into {parameters['into']}"
    return ""


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else dict.fromkeys(map(str, value if isinstance(value, list) else []))


def _detail_changes(path: Path, old: Field, new: Field) -> Iterator[ColumnChange]:
    """Yield the changes of a field other than its type, name and position, with the old and new values."""
    before, after = _details(old), _details(new)
    for key, text in after.items():
        if before[key] != text:
            yield ColumnChange(CHANGED, path, before[key], text)


def _details(field: Field) -> Mapping[str, str]:
    comment, default = field.metadata.get(COMMENT), find_default(field)
    return {
        "comment": "no comment" if comment is None else f"comment {str(comment)!r}",
        "nullable": "nullable" if field.nullable else "not null",
        "default": "no default" if default is None else f"default {default}",
        "limit": str(field.metadata.get(TEXT_LIMIT, "string")),
        "source": f"source fields {', '.join(source_keys(field))}" if ALIASES in field.metadata else "one source field",
        "mark": f"identity high water mark {field.metadata.get(HIGH_WATER_MARK, 'not set')}",
    }


def _moves(positions: Iterable[tuple[Path, int]]) -> Iterator[ColumnChange]:
    """Yield the fields whose position among the existing fields of their struct changed.

    The smallest possible set of fields counts as moved; the others keep their relative order.

    Args:
        positions: The path of every field that existed before, in the order of the new schema, with its index in
            the old schema.
    """
    structs: dict[Path, list[tuple[Path, int]]] = {}
    for path, number in positions:
        structs.setdefault(path[:-1], []).append((path, number))
    for siblings in structs.values():
        numbers = [number for _, number in siblings]
        kept = set(numbers if numbers == sorted(numbers) else _find_longest_ordered(numbers))
        for index, (path, number) in enumerate(siblings):
            if number not in kept:
                place = AfterField(siblings[index - 1][0][-1]) if index else StructEnd.FIRST
                yield ColumnChange(MOVED, path, new=str(place))


def _find_longest_ordered(numbers: Sequence[int]) -> list[int]:
    """Return the longest increasing subsequence of distinct numbers.

    Example:
        >>> _find_longest_ordered([3, 1, 2, 4])
        [1, 2, 4]
    """
    ends: list[int] = []
    chains: list[list[int]] = []
    for number in numbers:
        index = bisect_left(ends, number)
        chain = [*(chains[index - 1] if index else []), number]
        ends[index : index + 1], chains[index : index + 1] = [number], [chain]
    return chains[-1] if chains else []


# Changes of columns between two schemas, with the reasons that an ingestion recorded.


ADDED, WIDENED, RETYPED, RENAMED, REMOVED, ROUTED = "added", "widened", "retyped", "renamed", "removed", "routed"
MOVED, CHANGED = "moved", "changed"
"""The kinds of column changes. `RETYPED` is a change of type that is not a widening. `ROUTED` means that a column
receives values of a new kind without a schema change. `CHANGED` is a new comment, nullability or default."""


@dataclass(frozen=True, slots=True)
class ChangeReason:
    """Why a batch needed a change, as the ingestion recorded it.

    Args:
        grade: The effect on readers: additive, widening, conflict or structural.
        file: The file of the first such value; empty if not known.
        position: The line or record number in that file, from 1; 0 if not known.
        sample: The beginning of the first such value.
        at_least: Whether there may be more such values.
        dropped_in: What dropped a column of this name before, e.g. ``version 7``; empty if nothing did.
    """

    rules: tuple[str, ...]
    source: Path
    kinds: tuple[str, ...]
    count: int
    grade: str
    file: str = ""
    position: int = 0
    sample: str = ""
    at_least: bool = False
    dropped_in: str = ""

    def to_value(self) -> dict[str, Any]:
        """Return the reason as a JSON object."""
        reason = {"rules": list(self.rules), "source": format_path(self.source), "kinds": list(self.kinds)}
        first_seen = {"file": self.file, "position": self.position, "sample": self.sample} if self.file else {}
        more: dict[str, object] = {"atLeast": True} if self.at_least else {}
        more |= {"droppedIn": self.dropped_in} if self.dropped_in else {}
        return {**reason, "count": self.count, **more, "grade": self.grade, **first_seen}


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of one column.

    Args:
        what: `ADDED`, `WIDENED`, `RETYPED`, `RENAMED`, `REMOVED`, `ROUTED`, `MOVED` or `CHANGED`.
        old: The old type; for `RENAMED` the old path, for `CHANGED` the old value in words. Empty without an old one.
        new: The new type; for `RENAMED` the new path, for `CHANGED` the new value, for `MOVED` the new position.
        reasons: Why an ingestion made it; empty for a manual change.
    """

    what: str
    column: Path
    old: str = ""
    new: str = ""
    reasons: tuple[ChangeReason, ...] = ()

    @property
    def grade(self) -> str:
        """The most severe grade of the reasons; without reasons the default grade of this kind of change."""
        grades = [reason.grade for reason in self.reasons]
        return max(grades, key=_severity) if grades else _GRADES.get(self.what, "structural")

    @property
    def dropped_in(self) -> str:
        """What dropped a column of this name before; empty if nothing did."""
        return next((reason.dropped_in for reason in self.reasons if reason.dropped_in), "")

    def to_value(self) -> dict[str, Any]:
        """Return the change as a JSON object."""
        change = {"change": self.what, "column": format_path(self.column), "grade": self.grade}
        types = {key: text for key, text in (("from", self.old), ("to", self.new)) if text}
        return {**change, **types, "reasons": [reason.to_value() for reason in self.reasons]}


GRADES = ("additive", "widening", "conflict", "structural")
"""The grades of changes by their effect on readers, least severe first."""

_GRADES = {ADDED: "additive", ROUTED: "additive", CHANGED: "additive", MOVED: "additive", WIDENED: "widening"}


def _severity(grade: str) -> int:
    return GRADES.index(grade) if grade in GRADES else len(GRADES)
