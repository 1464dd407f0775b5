"""What one commit changed: the schema before and after it, and the events that its ingestion recorded.

The schemas say what happened, whoever did it; the events say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from widen.model.column_path import Path, children, fields
from widen.model.types import DataType, Field, StructType, is_atomic
from widen.planning.evolution.plan import PlanEvent
from widen.planning.table.operation import AddColumn, CreateTable, Operation, WidenType
from widen.protocol.actions import CommitInfo
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.type_widening import is_widening
from widen.report.column_detail_changes import detail_changes, moves
from widen.report.report_model import ADDED, REMOVED, RENAMED, RETYPED, ROUTED, WIDENED, ChangeReason, ColumnChange

EVENTS = "events"
"""The operation parameter in which an ingestion records its events, as JSON text."""


def schema_changes(
    before: StructType, after: StructType, reasons: Sequence[tuple[Path, ChangeReason]] = ()
) -> tuple[ColumnChange, ...]:
    """Return what became of the columns: those of the new schema in its order, then those that are gone.

    Args:
        before: The schema before the commit.
        after: The schema after it.
        reasons: What the ingestion recorded, each with the column that it is about.
    """
    key = _key_of(before)
    return _join_reasons((*_added_changes(before, after, key), *_dropped_changes(before, after, key)), reasons)


def plan_changes(operations: Iterable[Operation], events: Iterable[PlanEvent]) -> tuple[ColumnChange, ...]:
    """Return what operations of a plan would make of the columns, in their order, with the events that ask for it."""
    reasons = [(event.column, _reason_of(event)) for event in events]
    return _join_reasons([change for operation in operations for change in _planned(operation)], reasons)


def _planned(operation: Operation) -> Iterator[ColumnChange]:
    match operation:
        case CreateTable(schema):
            yield from (ColumnChange(ADDED, (field.name,), new=field.type.sql) for field in schema)
        case AddColumn():
            yield ColumnChange(ADDED, operation.path, new=operation.field.type.sql)
        case WidenType(path, old, new):
            yield ColumnChange(WIDENED, path, old.sql, new.sql)


def _reason_of(event: PlanEvent) -> ChangeReason:
    file, position = event.first or ("", 0)
    grade = event.grade.value
    return ChangeReason(event.rules, event.source, event.kinds, event.count, grade, file, position, event.sample)


def _join_reasons(
    made: Iterable[ColumnChange], reasons: Sequence[tuple[Path, ChangeReason]]
) -> tuple[ColumnChange, ...]:
    """Return the changes with their reasons; those that belong to none are told as what was routed."""
    left = list(reasons)
    found = []
    for change in made:
        mine = [item for item in left if item[0][: len(change.column)] == change.column]
        left = [item for item in left if item not in mine]
        told = tuple(reason for _, reason in mine)
        found.append(ColumnChange(change.what, change.column, change.old, change.new, told))
    routed: dict[Path, list[ChangeReason]] = {}
    for column, reason in left:
        routed.setdefault(column, []).append(reason)
    return (*found, *(ColumnChange(ROUTED, column, reasons=tuple(told)) for column, told in routed.items()))


def recorded_reasons(info: CommitInfo) -> list[tuple[Path, ChangeReason]]:
    """Return what an ingestion recorded of its reasons, each with the column that it is about.

    Whatever cannot be read is left out: the provenance of a commit is free-form.

    Args:
        info: The provenance of a commit.
    """
    parameters = info.get("operationParameters")
    text = parameters.get(EVENTS) if isinstance(parameters, dict) else None
    if not isinstance(text, str):
        return []
    try:
        events = _decoder.decode(text)
    except msgspec.DecodeError:
        return []
    return [(event.column, _reason(event)) for event in events]


class _Event(msgspec.Struct):
    """An event as an ingestion records it."""

    rules: tuple[str, ...]
    source: tuple[str, ...]
    kinds: tuple[str, ...]
    column: tuple[str, ...]
    count: int
    first: tuple[str, int] | None
    sample: str
    grade: str


_decoder = msgspec.json.Decoder(list[_Event])


def _reason(event: _Event) -> ChangeReason:
    file, position = event.first or ("", 0)
    return ChangeReason(event.rules, event.source, event.kinds, event.count, event.grade, file, position, event.sample)


def _added_changes(before: StructType, after: StructType, key: _Key) -> Iterator[ColumnChange]:
    old = {key(path, field): (path, field) for path, field in fields(before)}
    numbers = {known: number for number, known in enumerate(old)}
    kept: list[tuple[Path, int]] = []
    new_above: list[Path] = []
    for path, field in fields(after):
        if any(path[: len(above)] == above for above in new_above):
            continue
        known = old.get(key(path, field))
        if known is None:
            new_above.append(path)
            yield ColumnChange(ADDED, path, new=field.type.sql)
            continue
        kept.append((path, numbers[key(path, field)]))
        if known[0][-1] != path[-1]:
            yield ColumnChange(RENAMED, path, ".".join(known[0]), ".".join(path))
        yield from _retyped(path, known[1].type, field.type)
        yield from detail_changes(path, known[1], field)
    yield from moves(kept)


def _dropped_changes(before: StructType, after: StructType, key: _Key) -> Iterator[ColumnChange]:
    kept = {key(path, field) for path, field in fields(after)}
    gone_above: list[Path] = []
    for path, field in fields(before):
        if key(path, field) not in kept and not any(path[: len(above)] == above for above in gone_above):
            gone_above.append(path)
            yield ColumnChange(REMOVED, path, old=field.type.sql)


_Key: TypeAlias = Callable[[Path, Field], object]
"""Tells what a field is known by."""


def _key_of(before: StructType) -> _Key:
    """Return what tells fields before and after: their ids where columns were mapped already, else their paths."""
    if any(COLUMN_ID in field.metadata for _, field in fields(before)):
        return lambda path, field: field.metadata.get(COLUMN_ID, path)
    return lambda path, _: path


def _retyped(path: Path, old: DataType, new: DataType) -> Iterator[ColumnChange]:
    """Yield the leaves of one field that changed; struct fields in it are looked at by themselves."""
    below, above = dict(children(old)), dict(children(new))
    if isinstance(old, StructType) and isinstance(new, StructType):
        return
    if type(old) is type(new) and below:
        for step in above:
            yield from _retyped((*path, step), below[step], above[step])
    elif old != new:
        is_wider = is_atomic(old) and is_atomic(new) and is_widening(old, new)
        yield ColumnChange(WIDENED if is_wider else RETYPED, path, old.sql, new.sql)


def summarize_operation(parameters: Mapping[str, Any], operation: str) -> str:
    """Return what a commit did apart from columns, in a few words; empty if its name says it all.

    Args:
        parameters: What the history says of the operation.
        operation: What the history calls it.
    """
    text = parameters.get("properties")
    if operation == "SET TBLPROPERTIES" and isinstance(text, str):
        return f"set {', '.join(f'{key} = {value}' for key, value in _object(text).items())}"
    if operation == "UNSET TBLPROPERTIES" and isinstance(text, str):
        return f"unset {', '.join(_object(text))}"
    if operation == "FOLD COLUMN" and {"column", "into"} <= parameters.keys():
        return f"brought {parameters['column']} back into {parameters['into']}"
    return ""


def _object(text: str) -> Mapping[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else dict.fromkeys(map(str, value if isinstance(value, list) else []))
