"""Merge the schema of incoming data into a table: new columns, wider types, casts, or a refusal.

Names are matched case-insensitively. The order and spelling of the table are kept.

Source: Delta Lake's schema enforcement and evolution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from widen.errors import IdentityColumnGiven, IncompatibleTypes, SchemaMismatch
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, as_nullable, format_path, map_fields
from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType, name_keys
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.operation import AddColumn, Operation, WidenType
from widen.planning.write.store_assignment import can_assign, can_cast
from widen.protocol.column_metadata import find_identity, has_generated_values
from widen.protocol.type_widening import is_widening

Widens: TypeAlias = Callable[[DataType, DataType], bool]
"""Whether a leaf of the table may widen automatically, from an old to a new type."""


def never(old: DataType, new: DataType) -> bool:
    """Allow no widening."""
    return False


@dataclass(frozen=True, slots=True)
class SchemaChangeOptions:
    """The changes that a write may make so that its data fit.

    Args:
        adds: Whether new columns and nested fields may be added, and void columns may get a type.
        casts: Whether values may be cast to the type of the table even if that can fail or lose digits.
        fills: Whether structs may lack fields, which become null.
        can_cast: Which types may be cast then. Without casts, only those of `can_assign` are offered as a remedy.
        widen_fix: What an error says about how to widen types.
    """

    NONE: ClassVar[SchemaChangeOptions]

    adds: bool = False
    widens: Widens = never
    casts: bool = False
    fills: bool = True
    can_cast: Widens = can_cast
    widen_fix: str = (
        "Widen the types with merge_schema=True, set_properties({'delta.enableTypeWidening': 'true'}) and "
        "widening='always'."
    )


SchemaChangeOptions.NONE = SchemaChangeOptions()


@dataclass(frozen=True, slots=True)
class CastValues:
    """A cast of the values of a column, which fails for values that the new type cannot hold.

    Args:
        path: The column, spelled as in the table.
    """

    path: Path
    old: DataType
    new: DataType

    def __str__(self) -> str:
        return f"cast {format_path(self.path)} from {self.old.sql} to {self.new.sql}"


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """A column of the data that cannot be written to the table under any options."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{format_path(self.path)} {self.reason}"


@dataclass(frozen=True, slots=True)
class IncompatibleTypePair(TypeMismatch):
    """Two types of which neither can be converted to the other."""


@dataclass(frozen=True, slots=True)
class MissingField(TypeMismatch):
    """A field of the table that a struct of the data lacks."""


SchemaNeed: TypeAlias = Operation | CastValues | TypeMismatch
"""What one column of the data requires."""


def merge_schema(current: StructType, incoming: StructType, options: SchemaChangeOptions) -> tuple[Operation, ...]:
    """Return the operations after which the data fit the table.

    A narrower type is cast to that of the table, which is exact. A missing column is null, or gets its default or
    generated value.

    Args:
        current: The schema of the table, with all metadata.

    Raises:
        SchemaMismatch: the data do not fit. The error lists every such column, with both types and what it would need.
        IncompatibleTypes: likewise, and for some columns no option would help.
        IdentityColumnGiven: the data have values for an identity column that is GENERATED ALWAYS.

    Source: Delta Lake's schema enforcement and evolution. Differs: a cast that can fail is refused unless casts are
        allowed, so that no value is rounded, and no job fails halfway, unless the caller accepts it.
    """
    _ensure_not_given(current, incoming)
    needs = tuple(_struct(current, incoming, (), options))
    refused = [need for need in needs if not _is_allowed(need, options)]
    if not refused:
        return tuple(need for need in needs if isinstance(need, (AddColumn, WidenType)))
    error = IncompatibleTypes if any(isinstance(need, IncompatibleTypePair) for need in refused) else SchemaMismatch
    raise error(
        reason="; ".join(map(_describe_need, refused)),
        fix=_fix(refused, options),
        plan="\n".join(map(_to_operation, needs)),
    )


def _ensure_not_given(current: StructType, incoming: StructType) -> None:
    for field in incoming:
        existing = current.find(field.name)
        identity = find_identity(existing) if existing else None
        if existing and identity and not identity.allows_explicit:
            raise IdentityColumnGiven(column=existing.name)


def _is_allowed(need: SchemaNeed, options: SchemaChangeOptions) -> bool:
    match need:
        case WidenType(_, old, new):
            return options.adds if _gets_type(need) else options.widens(old, new)
        case AddColumn():
            return options.adds
        case CastValues():
            return options.casts
    return False


def _describe_need(need: SchemaNeed) -> str:
    match need:
        case WidenType(path, table, data) | CastValues(path, data, table):
            return f"{format_path(path)} is {table.sql} in the table and {data.sql} in the data"
        case AddColumn(_, field):
            return f"{format_path(need.path)} ({field.type.sql}) is not in the table"
    return str(need)


def _to_operation(need: SchemaNeed) -> str:
    return f"  - {need}" if not isinstance(need, TypeMismatch) else f"  - {need}: not possible"


def _fix(refused: list[SchemaNeed], options: SchemaChangeOptions) -> str:
    if all(isinstance(need, MissingField) for need in refused):
        return "Add the missing fields to the struct, e.g. as null."
    if any(isinstance(need, TypeMismatch) for need in refused):
        return "Cast or rename the columns, or change the table with alter_column."
    grows = any(isinstance(need, AddColumn) or _gets_type(need) for need in refused)
    widens = any(isinstance(need, WidenType) and not _gets_type(need) for need in refused)
    casts = widens or any(isinstance(need, CastValues) for need in refused)
    fixes = ((grows, _GROW), (widens, options.widen_fix), (casts, _CAST))
    return " ".join(text for holds, text in fixes if holds)


_GROW = "Add the columns with merge_schema=True, or select only the columns of the table."
_CAST = "Cast values with cast=True; a value that does not fit fails the write."


def _gets_type(need: SchemaNeed) -> bool:
    """Tell whether a void column gets a type, which is not type widening."""
    return isinstance(need, WidenType) and need.old == VOID


# ---- the walk --------------------------------------------------------------------------------------


def _struct(current: StructType, incoming: StructType, at: Path, options: SchemaChangeOptions) -> Iterator[SchemaNeed]:
    given: dict[str, str] = {}
    for field in incoming:
        existing = current.find(field.name)
        # A table of another writer may have two columns whose names Spark takes for one; each finds its own.
        keys = name_keys(field.name) if existing is None else (existing.name,)
        other = next((given[key] for key in keys if key in given), None)
        if other is not None:
            yield TypeMismatch((*at, field.name), f"is a duplicate of {other}")
            continue
        given.update(dict.fromkeys(keys, field.name))
        if existing is None:
            yield AddColumn(at, _as_new_field(field))
        else:
            yield from _type(existing.type, field.type, (*at, existing.name), options)
    for existing in current:
        if existing.name in given:
            continue
        if not existing.nullable and not (has_generated_values(existing) and not at):
            yield TypeMismatch((*at, existing.name), "must not be null and is not in the data")
        elif at and not options.fills:
            yield MissingField((*at, existing.name), "is in the table and not in the data")


def _as_new_field(field: Field) -> Field:
    """Return a new field for the table: nullable throughout, and without metadata other than comments."""
    return map_fields(as_nullable(StructType((field,))), lambda _, inner: inner.only_metadata(COMMENT)).fields[0]


def _type(current: DataType, incoming: DataType, at: Path, options: SchemaChangeOptions) -> Iterator[SchemaNeed]:
    match current, incoming:
        case StructType(), StructType():
            yield from _struct(current, incoming, at, options)
        case ArrayType(), ArrayType():
            yield from _type(current.element, incoming.element, (*at, ELEMENT), options)
        case MapType(), MapType():
            yield from _type(current.key, incoming.key, (*at, KEY), options)
            yield from _type(current.value, incoming.value, (*at, VALUE), options)
        case _ if current != incoming and incoming != VOID:
            yield from _leaf(current, incoming, at, options)


def _leaf(current: DataType, incoming: DataType, at: Path, options: SchemaChangeOptions) -> Iterator[SchemaNeed]:
    if current == VOID:
        yield WidenType(at, VOID, _as_new_field(Field("", incoming)).type)
    elif is_widening(incoming, current):
        return
    # A widening that is not allowed is refused by the caller, which names it as the remedy. With casts allowed, the
    # values are cast instead.
    elif options.widens(current, incoming) or (is_widening(current, incoming) and not options.casts):
        yield WidenType(at, current, incoming)
    elif (options.can_cast if options.casts else can_assign)(incoming, current):
        yield CastValues(at, incoming, current)
    else:
        yield IncompatibleTypePair(at, f"is {current.sql} in the table and {incoming.sql} in the data")
