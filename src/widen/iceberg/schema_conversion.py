"""Types of the model as Iceberg types, and the reverse, with field ids at every level.

In the model, a field has its id in the metadata that Delta uses for column mapping. Its elements, keys and values have
theirs there as well. So everything that finds columns of a Delta table by id does the same for an Iceberg table.

Source: Iceberg's table specification, "Schemas and Data Types".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from operator import eq
from typing import TYPE_CHECKING, Any

from widen.errors import AmbiguousColumns, ColumnLeftOut, ColumnNotFound, UnsupportedColumnType
from widen.iceberg.column_defaults import default_text
from widen.iceberg.metadata_files import ROW_IDS
from widen.iceberg.properties import ColumnSource
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, children, fields, fold_path, format_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    OpaqueType,
    StructType,
    name_keys,
)
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import COLUMN_ID, NESTED_IDS, nested_ids
from widen.protocol.column_metadata import DEFAULT
from widen.protocol.parquet_files import without_void
from widen.schema.source_metadata import COMMENT
from widen.schema.table_state import referenced_columns

if TYPE_CHECKING:
    from pyiceberg import schema as iceberg_schema
    from pyiceberg import types as iceberg_types
else:
    iceberg_schema = import_lazily("pyiceberg.schema")
    iceberg_types = import_lazily("pyiceberg.types")

_TO_MODEL: Mapping[str, DataType] = {
    "BooleanType": BOOLEAN,
    "IntegerType": INTEGER,
    "LongType": LONG,
    "FloatType": FLOAT,
    "DoubleType": DOUBLE,
    "DateType": DATE,
    "TimestampType": TIMESTAMP_NTZ,
    "TimestamptzType": TIMESTAMP,
    "StringType": STRING,
    "UUIDType": BINARY,
    "FixedType": BINARY,
    "BinaryType": BINARY,
    "UnknownType": VOID,
}
"""The type of the model for each atomic Iceberg type, by its class. Spark has no types for uuid and fixed."""

_FROM_MODEL: Mapping[str, str] = {
    "byte": "IntegerType",
    "short": "IntegerType",
    "integer": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "boolean": "BooleanType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamp": "TimestamptzType",
    "timestamp_ntz": "TimestampType",
    "void": "UnknownType",
}
"""The class of Iceberg's type for each atomic type of the model. Iceberg has no integers of 8 and 16 bits."""

FIXED_LENGTHS = "widen.fixedLengths"
"""Metadata key: the number of bytes of every value of a uuid or fixed column, or of such items in it, by field id."""

_UUID_BYTES = 16

_DROP = "if nobody needs its values, drop it with drop_columns (widen alter TABLE COLUMN --drop)"
WRITES_VALUE = "Widen cannot write values of it", f"Leave the field out with exclude (--exclude FIELD), or, {_DROP}."
WRITES_NULL = (
    "new rows have null there, which the table does not take",
    f"Make it optional, and neither partition nor sort by it, or, {_DROP}.",
)
WRITES_AGAIN = (
    "Widen would have to write its values again, and cannot",
    f"Use an engine that has the type, e.g. Trino, or, {_DROP}.",
)
_READS = "Widen cannot use its values", "Use other columns, or an engine that has the type, e.g. Trino."

_COPIED = frozenset({"time", "timestamp_ns", "timestamptz_ns"})
"""The types that Spark does not have, and Arrow copies; see `widen.files.arrow_types.COPIED`."""

NO_SOURCES: Mapping[int, ColumnSource] = {}


def to_model(schema: iceberg_schema.Schema, sources: Mapping[int, ColumnSource] = NO_SOURCES) -> StructType:
    """Return an Iceberg schema in the types of the model.

    Args:
        sources: The source field of each column, by field id; see `widen.iceberg.properties`.

    Returns:
        The columns, with their ids, docs and source fields in the metadata.
    """
    return StructType(tuple(_to_field(each, sources, (), ()) for each in schema.fields))


@dataclass(slots=True)
class Unreadable:
    """What is left out of a schema.

    Args:
        types: The Iceberg types that Spark does not have, by their paths.
        required: The fields that are left out, and must not be null.
    """

    types: dict[Path, str] = dataclasses.field(default_factory=dict)
    required: list[Path] = dataclasses.field(default_factory=list)

    def refuse(self, path: Path, reason: tuple[str, str] = _READS) -> ColumnLeftOut:
        """Return the error of a call that needs values there."""
        found = next(each for each in self.types if all(map(eq, fold_path(each), fold_path(path))))
        (what, fix), column = reason, found
        while column[-1] in (ELEMENT, KEY, VALUE):  # only the whole list or map can be dropped
            column = column[:-1]
        fix = fix.replace("FIELD", format_path(path)).replace("COLUMN", format_path(column))
        return ColumnLeftOut(column=format_path(found), type=self.types[found], reason=what, fix=fix)

    def ensure_has(self, path: Path, reason: tuple[str, str] = _READS) -> None:
        """Check that neither a column nor anything in it is left out."""
        if any(fold_path(other)[: len(path)] == fold_path(path) for other in self.types):
            raise self.refuse(path, reason)

    def ensure_not_given(self, incoming: StructType, readable: StructType) -> None:
        """Check that new rows do not have these fields.

        Args:
            readable: The columns of the table without them.
        """
        for path, _ in fields(incoming) if self.types else ():
            if not _has(readable, path):
                self.ensure_has(path, WRITES_VALUE)

    def ensure_kept(self, *, by_arrow: bool = False) -> None:
        """Check that rows can be written again with all of their values.

        Args:
            by_arrow: Whether Arrow copies the columns that no new value is assigned to.
        """
        for path, data_type in self.types.items():
            if not by_arrow or data_type not in _COPIED:
                raise self.refuse(path, WRITES_AGAIN)

    def __str__(self) -> str:
        return ", ".join(f"{format_path(path)} ({data_type})" for path, data_type in self.types.items())


def to_readable(schema: iceberg_schema.Schema, sources: Mapping[int, ColumnSource] = NO_SOURCES) -> StructType:
    """Return an Iceberg schema as `to_model` does, without the fields that `find_unreadable` finds.

    Rows must not be written again with it: they would lose the values of these fields.
    """
    try:
        return to_model(schema, sources)
    except UnsupportedColumnType:
        return to_model(iceberg_schema.Schema(*_readable_fields(schema.fields, (), Unreadable())), sources)


def without_unknown(schema: iceberg_schema.Schema, sources: Mapping[int, ColumnSource] = NO_SOURCES) -> StructType:
    """Return the columns of `to_readable` that files may have; columns of the type unknown have no value yet."""
    return without_void(to_readable(schema, sources))


def to_whole(schema: iceberg_schema.Schema, sources: Mapping[int, ColumnSource] = NO_SOURCES) -> StructType:
    """Return an Iceberg schema as `to_model` does, with an `OpaqueType` for each type that Spark does not have."""
    return StructType(tuple(_to_field(each, sources, (), (), is_whole=True) for each in schema.fields))


def ensure_texts_readable(schema: iceberg_schema.Schema, texts: Iterable[str | None]) -> None:
    """Check that expressions name no field that is left out."""
    left_out = find_unreadable(schema)
    if not left_out.types:
        return
    whole, readable = to_whole(schema), to_readable(schema)
    for path in chain.from_iterable(referenced_columns(text, whole) for text in texts if text):
        if not _has(readable, path):
            raise left_out.refuse(path)


def _has(schema: StructType, path: Path) -> bool:
    try:
        resolve(schema, path)
    except ColumnNotFound:
        return False
    return True


def find_unreadable(schema: iceberg_schema.Schema) -> Unreadable:
    """Return the fields of a schema whose types Spark does not have, e.g. a time."""
    unreadable = Unreadable()
    _readable_fields(schema.fields, (), unreadable)
    return unreadable


def _readable_fields(
    fields: Iterable[iceberg_types.NestedField], parent: Path, left_out: Unreadable
) -> list[iceberg_types.NestedField]:
    kept = []
    for each in fields:
        path = (*parent, each.name)
        data_type = _readable_type(each.field_type, path, left_out)
        if data_type is not None:
            kept.append(each.model_copy(update={"field_type": data_type}))
        elif each.required:
            left_out.required.append(path)
    return kept


def _readable_type(
    data_type: iceberg_types.IcebergType, path: Path, left_out: Unreadable
) -> iceberg_types.IcebergType | None:
    match data_type:
        case iceberg_types.StructType():
            kept = _readable_fields(data_type.fields, path, left_out)
            return iceberg_types.StructType(*kept) if kept or not data_type.fields else None
        case iceberg_types.ListType():
            element = _readable_type(data_type.element_type, (*path, ELEMENT), left_out)
            return element and iceberg_types.ListType(data_type.element_id, element, data_type.element_required)
        case iceberg_types.MapType(key_type=key, value_type=value):
            readable = _readable_type(value, (*path, VALUE), left_out)
            # Keys without a field may be equal.
            if _readable_type(key, (*path, KEY), left_out) != key or readable is None:
                return None
            return iceberg_types.MapType(data_type.key_id, key, data_type.value_id, readable, data_type.value_required)
    if isinstance(data_type, iceberg_types.DecimalType) or type(data_type).__name__ in _TO_MODEL:
        return data_type
    left_out.types[path] = str(data_type)
    return None


def _to_field(
    field: iceberg_types.NestedField,
    sources: Mapping[int, ColumnSource],
    parent: Path,
    parent_source: Path,
    *,
    is_whole: bool = False,
) -> Field:
    path = (*parent, field.name)
    source = sources.get(field.field_id)
    source_path = source.path(parent_source) if source else None
    # A struct field below a column without a source has no source: it is found by its name.
    field_source = source_path or (*parent_source, field.name)
    data_type = _to_type(field.field_type, sources, path, field_source, is_whole=is_whole)
    metadata: dict[str, Any] = {COLUMN_ID: field.field_id}
    if item_ids := dict(_item_ids(field.field_type, field.name)):
        metadata[NESTED_IDS] = item_ids
    if lengths := dict(_fixed_lengths(field.field_type, field.field_id)):
        metadata[FIXED_LENGTHS] = lengths
    if field.doc:
        metadata[COMMENT] = field.doc
    if not parent and (default := default_text(field.field_type, field.write_default)) is not None:
        metadata[DEFAULT] = default
    if source:
        metadata |= source.to_metadata(parent_source)
    return Field(field.name, data_type, nullable=not field.required, metadata=metadata)


def _to_type(
    data_type: iceberg_types.IcebergType,
    sources: Mapping[int, ColumnSource],
    path: Path,
    source: Path,
    *,
    is_whole: bool,
) -> DataType:
    match data_type:
        case iceberg_types.StructType():
            return StructType(
                tuple(_to_field(each, sources, path, source, is_whole=is_whole) for each in data_type.fields)
            )
        case iceberg_types.ListType():
            element = _to_type(data_type.element_type, sources, (*path, ELEMENT), source, is_whole=is_whole)
            return ArrayType(element, not data_type.element_required)
        case iceberg_types.MapType():
            key = _to_type(data_type.key_type, sources, (*path, KEY), source, is_whole=is_whole)
            value = _to_type(data_type.value_type, sources, (*path, VALUE), source, is_whole=is_whole)
            return MapType(key, value, not data_type.value_required)
        case iceberg_types.DecimalType():
            return DecimalType(data_type.precision, data_type.scale)
    atomic = _TO_MODEL.get(type(data_type).__name__)
    if atomic is None and is_whole:
        return OpaqueType(str(data_type))
    if atomic is None:
        raise Unreadable({path: str(data_type)}).refuse(path)
    return atomic


def _item_ids(data_type: iceberg_types.IcebergType, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the ids of elements, keys and values, in the form of Delta's nested ids."""
    match data_type:
        case iceberg_types.ListType():
            yield f"{prefix}.{ELEMENT}", data_type.element_id
            yield from _item_ids(data_type.element_type, f"{prefix}.{ELEMENT}")
        case iceberg_types.MapType():
            for step, number, inner in (
                (KEY, data_type.key_id, data_type.key_type),
                (VALUE, data_type.value_id, data_type.value_type),
            ):
                yield f"{prefix}.{step}", number
                yield from _item_ids(inner, f"{prefix}.{step}")


def _fixed_lengths(data_type: iceberg_types.IcebergType, number: int) -> Iterator[tuple[str, int]]:
    match data_type:
        case iceberg_types.UUIDType():
            yield str(number), _UUID_BYTES
        case iceberg_types.FixedType():
            yield str(number), len(data_type)
        case iceberg_types.ListType():
            yield from _fixed_lengths(data_type.element_type, data_type.element_id)
        case iceberg_types.MapType():
            yield from _fixed_lengths(data_type.key_type, data_type.key_id)
            yield from _fixed_lengths(data_type.value_type, data_type.value_id)


def fixed_lengths(field: Field) -> Iterator[tuple[Path, int, int]]:
    """Yield the path in a field, the field id and the number of bytes of everything in it with a fixed length.

    Fields of nested structs have their own lengths.
    """
    lengths = field.metadata.get(FIXED_LENGTHS, {})
    for path, number in {(): field.metadata.get(COLUMN_ID), **nested_ids(field)}.items() if lengths else ():
        if str(number) in lengths:
            yield path, int(str(number)), lengths[str(number)]


def ensure_names_distinct(schema: StructType, location: str) -> None:
    """Check that no two columns of a struct have names that differ at most in case: Spark cannot distinguish them.

    Raises:
        AmbiguousColumns: two columns have such names.
    """
    seen: dict[tuple[Path, str], Path] = {}
    for path, _ in fields(schema):
        for key in name_keys(path[-1]):
            if other := seen.get((path[:-1], key)):
                raise AmbiguousColumns(location=location, column=format_path(other), other=format_path(path))
            seen[path[:-1], key] = path


def from_model(schema: StructType, format_version: int = 2) -> iceberg_schema.Schema:
    """Return the Iceberg schema of a new table. Its field ids are new, in the order that PyIceberg gives them.

    Args:
        schema: The columns; their comments become docs.
    """
    _ensure_types_exist(schema, (), format_version)
    new_id = count(1).__next__
    columns = iceberg_schema.Schema(*_from_fields(schema, new_id, ()))
    return iceberg_schema.assign_fresh_schema_ids(columns)


def from_model_type(data_type: DataType, path: Path = (), format_version: int = 2) -> iceberg_types.IcebergType:
    """Return the Iceberg type of a new column. PyIceberg replaces the ids in it when it adds the column."""
    _ensure_types_exist(data_type, path, format_version)
    return _from_type(data_type, count(1).__next__, path)


def _ensure_types_exist(data_type: DataType, path: Path, format_version: int, *, is_item: bool = False) -> None:
    """Check that a format version has types.

    Args:
        is_item: Whether every row has a value of the type, which files do not have if it is unknown.
    """
    if data_type == VOID and (is_item or format_version < ROW_IDS):
        reason = "all of its values are null, so that it cannot be NOT NULL, nor the item of a list or a map"
        if format_version < ROW_IDS:
            reason = f"Iceberg version {format_version} has no such type"
        raise UnsupportedColumnType(column=format_path(path), type=data_type.sql, reason=reason)
    if isinstance(data_type, StructType):
        for field in data_type:
            _ensure_types_exist(field.type, (*path, field.name), format_version, is_item=not field.nullable)
        return
    for step, inner in children(data_type):
        _ensure_types_exist(inner, (*path, step), format_version, is_item=True)


def _from_fields(struct: StructType, new_id: Callable[[], int], path: Path) -> Iterator[iceberg_types.NestedField]:
    for field in struct:
        yield iceberg_types.NestedField(
            field_id=new_id(),
            name=field.name,
            field_type=_from_type(field.type, new_id, (*path, field.name)),
            required=not field.nullable,
            doc=field.metadata.get(COMMENT),
        )


def _from_type(data_type: DataType, new_id: Callable[[], int], path: Path) -> iceberg_types.IcebergType:
    match data_type:
        case StructType():
            return iceberg_types.StructType(*_from_fields(data_type, new_id, path))
        case ArrayType(element, contains_null):
            element_type = _from_type(element, new_id, (*path, ELEMENT))
            return iceberg_types.ListType(new_id(), element_type, element_required=not contains_null)
        case MapType(key, value, contains_null):
            key_type = _from_type(key, new_id, (*path, KEY))
            value_type = _from_type(value, new_id, (*path, VALUE))
            return iceberg_types.MapType(new_id(), key_type, new_id(), value_type, value_required=not contains_null)
        case DecimalType(precision, scale):
            return iceberg_types.DecimalType(precision, scale)
        case AtomicType(name) if name in _FROM_MODEL:
            return getattr(iceberg_types, _FROM_MODEL[name])()  # type: ignore[no-any-return]
    raise UnsupportedColumnType(
        column=format_path(path), type=data_type.sql, reason="no format version that Widen writes has such a type"
    )


def with_iceberg_ids(schema: StructType, numbered: iceberg_schema.Schema) -> StructType:
    """Return columns with the field ids that an Iceberg schema gives to columns of the same names.

    Args:
        numbered: An Iceberg schema that has all of them.
    """
    return _with_ids(schema, to_readable(numbered))


def _with_ids(schema: StructType, numbered: StructType) -> StructType:
    by_name = {field.name: field for field in numbered}
    return StructType(tuple(_with_id(field, by_name[field.name]) for field in schema))


def _with_id(field: Field, numbered: Field) -> Field:
    ids = numbered.only_metadata(COLUMN_ID, NESTED_IDS, FIXED_LENGTHS).metadata
    data_type = _type_with_ids(field.type, numbered.type)
    return Field(field.name, data_type, field.nullable, {**field.metadata, **ids})


def _type_with_ids(data_type: DataType, numbered: DataType) -> DataType:
    match data_type, numbered:
        case StructType(), StructType():
            return _with_ids(data_type, numbered)
        case ArrayType(element), ArrayType(other):
            return ArrayType(_type_with_ids(element, other), data_type.contains_null)
        case MapType(key, value), MapType(other_key, other_value):
            keys, values = _type_with_ids(key, other_key), _type_with_ids(value, other_value)
            return MapType(keys, values, data_type.value_contains_null)
    return numbered
