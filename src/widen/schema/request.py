"""Parse the requests of callers to change columns into operations on a schema.

A request that changes nothing yields no operation. Names are matched exactly first, then case-insensitively.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypedDict, TypeVar

from widen.errors import ColumnNotFound, InternalError, InvalidOption
from widen.model.column_path import KEY, Path, find_field, format_path, parse_path, resolve
from widen.model.schema_json import parse_type
from widen.model.types import STRING, ArrayType, DataType, Field, MapType, StructType, is_atomic, quote_name
from widen.protocol.column_metadata import (
    DEFAULT,
    declared_schema,
    find_default,
    find_identity,
    stored_schema,
    text_limit,
    to_declared,
    visible_schema,
    without_limits,
)
from widen.schema import operations as op
from widen.schema.alter import apply_operations
from widen.schema.operations import AfterField, FieldPosition, StructEnd
from widen.schema.source_metadata import COMMENT
from widen.schema.table_state import TableState, find_constraint


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
            expected = f"Use {key} or {other}, not both."
            raise InvalidOption(option=format_path(path), value=dict(change), expected=expected)


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


# The name and the parameters of operations in the history of a table.
#
# A column is described by its path, the name of its type, and its metadata before the commit adds to it: without a
# new entry in its type history, and without a new high-water mark.
#
# Source: Delta Lake's commit provenance, which DESCRIBE HISTORY shows.


def operation_parameters(state: TableState, operations: Sequence[op.Operation]) -> tuple[str, Mapping[str, object]]:
    """Return the name and the parameters of a commit that applies operations.

    Args:
        operations: Only additions, only drops, only changes of existing columns, or a single other operation.

    Raises:
        InternalError: the operations are of several of these kinds.
    """
    match operations:
        case [op.RenameColumn() as operation]:
            return "RENAME COLUMN", {
                "oldColumnPath": _name(operation.path),
                "newColumnPath": _name(operation.new_path),
            }
        case [op.ReplaceColumns(schema)]:
            return "REPLACE COLUMNS", {"columns": [_column((field.name,), field) for field in schema]}
        case [op.AddConstraint(name, expression)]:
            return "ADD CONSTRAINT", {"name": name, "expr": expression}
        case [op.DropConstraint(name)]:
            expression = state.properties[find_constraint(state, name) or ""]
            return "DROP CONSTRAINT", {"name": name, "expr": expression, "existed": "true"}
    added = [operation for operation in operations if isinstance(operation, op.AddColumn)]
    if len(added) == len(operations):
        described = [{"column": _new_column(each), **_position(each.place)} for each in added]
        return "ADD COLUMNS", {"columns": described}
    dropped = [operation for operation in operations if isinstance(operation, op.DropColumn)]
    if len(dropped) == len(operations):
        return "DROP COLUMNS", {"columns": [_name(each.path) for each in dropped]}
    visible = [operation for operation in operations if not isinstance(operation, op.SyncIdentity)]
    return _column_changes(apply_operations(state.schema, visible), operations)


def _column_changes(schema: StructType, operations: Sequence[op.Operation]) -> tuple[str, Mapping[str, object]]:
    """Describe changes of existing columns, with one entry for each column."""
    places: dict[Path, Mapping[str, object]] = {}
    for operation in operations:
        match operation:
            case (
                op.CreateTable()
                | op.ReplaceColumns()
                | op.AddConstraint()
                | op.DropConstraint()
                | op.AddColumn()
                | op.DropColumn()
            ):
                raise InternalError(reason=f"{operation} is committed together with something else")
        position = _position(operation.place) if isinstance(operation, op.MoveColumn) else {}
        places[operation.path] = {**places.get(operation.path, {}), **position}
    described = [(_column(path, find_item(schema, path)), place) for path, place in places.items()]
    if len(described) == 1:
        return "CHANGE COLUMN", {"column": described[0][0], **described[0][1]}
    return "CHANGE COLUMNS", {"columns": [{**column, **place} for column, place in described]}


def find_item(schema: StructType, path: Path) -> Field:
    """Return the field at a path. For an element, a key or a value, return an equivalent field.

    Raises:
        ColumnNotFound: the path does not exist.
    """
    item = find_field(schema, path)
    return item or Field(path[-1], resolve(schema, path)[1], _is_nullable(resolve(schema, path[:-1])[1], path[-1]))


def _is_nullable(parent: DataType, step: str) -> bool:
    """Return whether an element or a value is nullable. Keys never are."""
    match parent:
        case ArrayType(_, contains_null):
            return contains_null
        case MapType(_, _, contains_null):
            return contains_null and step != KEY
    return True


def _column(path: Path, field: Field) -> dict[str, Any]:
    kind = str(field.type) if is_atomic(field.type) else _KINDS[type(field.type)]
    return {"name": _name(path), "type": kind, "nullable": field.nullable, "metadata": dict(field.metadata)}


def _new_column(addition: op.AddColumn) -> dict[str, Any]:
    """Describe a new column; char and varchar by the type that was requested."""
    return _column(addition.path, to_declared(addition.field))


_KINDS: Mapping[type[DataType], str] = {StructType: "struct", ArrayType: "array", MapType: "map"}


def _position(place: FieldPosition) -> dict[str, object]:
    return {} if place is StructEnd.LAST else {"position": str(place)}


def _name(path: Path) -> str:
    """Format a path as Delta Lake does, which quotes only names that contain a dot or a backtick."""
    return ".".join(quote_name(step) if "." in step or "`" in step else step for step in path)
