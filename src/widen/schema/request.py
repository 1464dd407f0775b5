"""Parse the requests of callers to change columns into operations on a schema.

A request that changes nothing yields no operation. Names are matched exactly first, then case-insensitively.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeAlias, TypedDict, TypeVar

from widen.errors import ColumnNotFound, InvalidOption, OptionConflict
from widen.model.column_path import Path, format_path, parse_path, resolve
from widen.model.schema_json import parse_type
from widen.model.types import STRING, DataType, Field, StructType
from widen.protocol.column_metadata import (
    DEFAULT,
    declared_schema,
    find_default,
    find_identity,
    stored_schema,
    text_limit,
    visible_schema,
    without_limits,
)
from widen.schema import operations as op
from widen.schema.alter import apply_operations, find_item
from widen.schema.operations import AfterField, FieldPosition, StructEnd
from widen.schema.source_metadata import COMMENT


class ColumnChanges(TypedDict, total=False):
    """The changes of a column. Missing keys change nothing.

    Args:
        type: The wider type; for a string column also a longer ``varchar(n)``, or ``string``.
        comment: The new comment; it may be empty.
        nullable: Whether it is nullable. To make it NOT NULL, all rows are checked.
        first: Whether to move it to the beginning of its struct.
        after: The name of the column to move it after.
        default: The default for rows written without a value, an SQL expression.
    """

    type: DataType | str
    comment: str
    nullable: bool
    first: bool
    after: str
    default: str
    drop_default: bool


class _TypeField(TypedDict):
    type: DataType | str


class NewColumn(_TypeField, total=False):
    """A column to add.

    Args:
        nullable: Whether it is nullable. A new column must be.
        first: Whether to add it at the beginning of its struct instead of the end.
        after: The name of the column to add it after.
        default: Not supported for a new column, since existing rows have null in it.
    """

    comment: str
    nullable: bool
    first: bool
    after: str
    default: str


AnyPath: TypeAlias = str | Path
"""A column path as text, or as a tuple of steps."""

_ChangeFields = TypeVar("_ChangeFields")
ByPath: TypeAlias = Mapping[str, _ChangeFields] | Mapping[Path, _ChangeFields] | Mapping[AnyPath, _ChangeFields]
"""Changes by column path."""


def to_path(path: AnyPath) -> Path:
    """Return a path as a tuple of steps.

    Raises:
        InvalidPath: the text cannot be parsed, or the path is empty.
    """
    return parse_path(path) if isinstance(path, str) else tuple(path) or parse_path("")


def parse_column_changes(schema: StructType, changes: ByPath[ColumnChanges]) -> tuple[op.Operation, ...]:
    """Parse changes of existing columns, in the given order.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidPath: a path cannot be parsed.
        InvalidType: a type cannot be parsed.
        InvalidOption: a key is unknown, two keys contradict each other, or a column occurs twice.
    """
    operations: dict[Path, tuple[op.Operation, ...]] = {}
    for name, change in changes.items():
        path, _ = resolve(schema, to_path(name))
        _ensure_known_keys(path, change, ColumnChanges)
        if path in operations:
            raise InvalidOption(
                option=format_path(path), value=name, expected="Must occur once, with all changes of the column."
            )
        operations[path] = tuple(_parse_column_change(schema, path, change))
    return tuple(chain.from_iterable(operations.values()))


def _parse_column_change(schema: StructType, path: Path, change: ColumnChanges) -> Iterator[op.Operation]:
    field = find_item(declared_schema(schema), path)
    if "comment" in change and change["comment"] != field.metadata.get(COMMENT):
        yield op.SetComment(path, change["comment"])
    if "type" in change:
        yield from _parse_type_change(path, field, change["type"])
    # An identity column refuses the change also where there is nothing to change, as in Delta Lake.
    changes_identity = change.get("nullable") is True and find_identity(field) is not None
    if "nullable" in change and (change["nullable"] != field.nullable or changes_identity):
        yield op.DropNotNull(path) if change["nullable"] else op.SetNotNull(path)
    if "default" in change and change["default"] != find_default(field):
        yield op.SetDefault(path, change["default"])
    if change.get("drop_default") and DEFAULT in field.metadata:
        yield op.DropDefault(path)
    place = _place(path, change)
    if place is not StructEnd.LAST:
        yield op.MoveColumn(path, place)


def _parse_type_change(path: Path, field: Field, requested: DataType | str) -> Iterator[op.Operation]:
    """Yield the change of a declared type: in the log, char and varchar are strings."""
    new = parse_type(requested, allow_limits=True) if isinstance(requested, str) else requested
    if new.sql == field.type.sql:
        return
    if text_limit(new) or (new == STRING and text_limit(field.type)):
        yield op.RelaxLength(path, new.sql)
    else:
        yield op.WidenType(path, without_limits(field.type), new)


def _place(path: Path, change: Mapping[str, Any]) -> FieldPosition:
    if change.get("first"):
        return StructEnd.FIRST
    return AfterField(change["after"]) if "after" in change else StructEnd.LAST


def _ensure_known_keys(path: Path, change: Mapping[str, Any], valid: Any) -> None:
    for key in change:
        if key not in valid.__annotations__ and key not in _TypeField.__annotations__:
            words = ", ".join(ColumnChanges.__annotations__)
            raise InvalidOption(option=format_path(path), value=key, expected=f"Valid keys are: {words}.")
    for key, other in (("first", "after"), ("default", "drop_default")):
        if change.get(key) and change.get(other):
            expected = f"Give only one of them for column {format_path(path)}."
            raise OptionConflict(option=key, other_option=other, expected=expected)


def parse_new_columns(schema: StructType, columns: ByPath[DataType | str | NewColumn]) -> tuple[op.Operation, ...]:
    """Parse columns to add, in the given order. A column may be added inside one that is added before it.

    Args:
        columns: The type or a `NewColumn`, by path.

    Raises:
        ColumnNotFound: the struct of a path does not exist.
        InvalidPath: a path cannot be parsed.
        InvalidType: a type cannot be parsed.
        InvalidOption: a key is unknown, or two keys contradict each other.
    """
    operations: list[op.Operation] = []
    for name, column in columns.items():
        column_spec: Mapping[str, Any] = column if isinstance(column, Mapping) else {"type": column}
        *above, last = to_path(name)
        parent, struct = resolve(schema, tuple(above))
        _ensure_known_keys((*parent, last), column_spec, NewColumn)
        operation = op.AddColumn(parent, _new_field((*parent, last), column_spec), _place((*parent, last), column_spec))
        operations.append(operation)
        if isinstance(struct, StructType) and struct.find(last) is None:
            schema = apply_operations(schema, [operation])
    return tuple(operations)


def _new_field(path: Path, column_spec: Mapping[str, Any]) -> Field:
    if "type" not in column_spec:
        raise InvalidOption(option=format_path(path), value=dict(column_spec), expected="A new column needs a type.")
    given = column_spec["type"]
    data_type = parse_type(given, allow_limits=True) if isinstance(given, str) else given
    metadata = {
        key: column_spec[name] for name, key in (("comment", COMMENT), ("default", DEFAULT)) if name in column_spec
    }
    field = Field(path[-1], data_type, column_spec.get("nullable", True), metadata)
    return visible_schema(stored_schema(StructType((field,)))).fields[0]


def parse_rename(schema: StructType, path: AnyPath, name: str) -> tuple[op.Operation, ...]:
    """Parse the rename of a column.

    Args:
        name: Its new name, without the parent.

    Raises:
        ColumnNotFound: the column does not exist.
        InvalidPath: the path cannot be parsed.
    """
    resolved, _ = resolve(schema, to_path(path))
    return () if resolved[-1] == name else (op.RenameColumn(resolved, name),)


def parse_drops(schema: StructType, paths: Iterable[AnyPath], *, if_exists: bool) -> tuple[op.Operation, ...]:
    """Parse columns to drop.

    Raises:
        ColumnNotFound: a column does not exist.
        InvalidPath: a path cannot be parsed.
    """
    drops: list[op.Operation] = []
    for path in map(to_path, paths):
        try:
            drops.append(op.DropColumn(resolve(schema, path)[0]))
        except ColumnNotFound:
            if not if_exists:
                raise
    return tuple(drops)


def parse_replacement(given: StructType) -> tuple[op.Operation, ...]:
    """Return the operation that replaces all columns."""
    return (op.ReplaceColumns(visible_schema(given)),)
