"""What footers say of the types in a file, and which leaves of it are narrower than those of the table.

The footers alone tell which files hold an old type: any writer may have put back a narrow file after a change.
This module needs no Spark.

Source: the Parquet format; PROTOCOL.md#type-widening
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from widen.errors import CorruptFile
from widen.errors.foreign import first_line
from widen.log.store.log_store import LogStore
from widen.model.column_path import ELEMENT, KEY, VALUE, Path
from widen.model.lazy_module import late
from widen.model.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    is_atomic,
)
from widen.protocol.column_mapping import COLUMN_ID, ID, PHYSICAL_NAME, physical_name
from widen.protocol.type_widening import is_widening

pq = late("pyarrow.parquet")
_FIELD_ID = b"PARQUET:field_id"
_NO_IDS = "the table resolves columns by field id, and the file has no field ids"
_FIX_IDS = "Write its rows again with a client that knows column mapping, or remove the file from the table."
_FIX = "Restore the file from a backup; what stands in it is not known."


def old_types(store: LogStore, schema: StructType, mode: str, path: str) -> tuple[int, dict[Path, DataType]]:
    """Return how many rows a file has, deleted ones included, and its leaves whose type is one before a widening.

    Columns are matched by the names that they have in files, in the mode ``id`` by their field ids. They are compared
    at every depth: struct fields, array elements, map keys and map values. What differs in another way than by a
    widening is not looked at.

    Args:
        store: Of the table.
        schema: Of the table, in logical names.
        mode: Of column mapping.
        path: Of the file, plain.

    Returns:
        The rows, and the old type of each such leaf by its logical path.

    Raises:
        CorruptFile: the file is no Parquet, or it has no field ids where the mode is ``id``.
        StorageError: the store refused.

    Source: PROTOCOL.md#writer-requirements-for-type-widening. Delta Spark compares no elements, keys and values.
    """
    try:
        with store.open(path) as file:
            footer = pq.read_metadata(file)
            columns = footer.schema.to_arrow_schema()
            found = list(_SchemaWalk(mode).fields(columns, schema))
    except pa.ArrowException as error:
        raise CorruptFile(path=path, reason=first_line(error), fix=_FIX) from error
    if mode == ID and not any(_field_id(column) for column in columns):
        raise CorruptFile(path=path, reason=_NO_IDS, fix=_FIX_IDS)
    if len(found) != footer.num_columns:
        raise CorruptFile(path=path, reason="its columns cannot be told from each other", fix=_FIX)
    old = {}
    for number, (leaf, now) in enumerate(found):
        if now is not None and is_widening(before := type_of(footer.schema.column(number)), now) and before != now:
            old[leaf] = before
    return footer.num_rows, old


def type_of(column: Any) -> DataType:
    """Return the type that Spark gives to a leaf column of a Parquet schema; void if it gives none.

    Source: Spark's ParquetToSparkSchemaConverter
    """
    said = json.loads(column.logical_type.to_json())
    if said["Type"] == "Decimal":
        return DecimalType(said["precision"], said["scale"])
    if said["Type"] == "Int":
        return _WHOLE.get((said["isSigned"], said["bitWidth"]), VOID)
    if said["Type"] == "Timestamp":
        return TIMESTAMP if said["isAdjustedToUTC"] else TIMESTAMP_NTZ
    return _LOGICAL.get(said["Type"]) or _PHYSICAL[column.physical_type] if said["Type"] in _KNOWN else VOID


_WHOLE: Mapping[tuple[bool, int], DataType] = {
    (True, 8): BYTE,
    (True, 16): SHORT,
    (True, 32): INTEGER,
    (True, 64): LONG,
    (False, 8): SHORT,
    (False, 16): INTEGER,
    (False, 32): LONG,
    (False, 64): DecimalType(20, 0),
}
_LOGICAL: Mapping[str, DataType] = {"Date": DATE, "String": STRING, "Enum": STRING, "Json": STRING, "Bson": BINARY}
_PHYSICAL: Mapping[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "INT32": INTEGER,
    "INT64": LONG,
    "INT96": TIMESTAMP,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "BYTE_ARRAY": BINARY,
    "FIXED_LEN_BYTE_ARRAY": BINARY,
}
_KNOWN = {"None", *_LOGICAL}


def _field_id(column: Any) -> str:
    """Return the field id of a column as text; empty if the file has none for it."""
    return str((column.metadata or {}).get(_FIELD_ID, b"").decode())


def _matching(column: Any, known: Iterable[Field], mode: str) -> Field | None:
    """Return the field of a table that a column of a file is: by its id where the mode is ``id``, else by its name.

    A field that has no id, as the row ids that a file may keep, is found by its name in that mode, too.

    Source: PROTOCOL.md#reader-requirements-for-column-mapping
    """
    for field in known:
        if mode == ID and COLUMN_ID in field.metadata:
            is_same = str(field.metadata[COLUMN_ID]) == _field_id(column)
        else:
            is_same = physical_name(field, mode) == column.name
        if is_same:
            return field
    return None


Names: TypeAlias = tuple[tuple[Path, str], ...]
"""The names that a file has for columns in place of their physical names, by logical path; empty for most files."""


def names_in_file(store: LogStore, schema: StructType, path: str) -> Names:
    """Return under which other names than the physical ones a file has the columns that its field ids tell.

    A column that the file does not have, but whose physical name another column has there, gets a name that no
    column has, so that a reader finds nothing.

    Args:
        store: Of the table.
        schema: Of the columns to find, in logical names, with their ids.
        path: Of the file, plain.

    Raises:
        CorruptFile: the file is no Parquet, or it has no field ids: which columns it has is not known.
        StorageError: the store refused.

    Source: PROTOCOL.md#reader-requirements-for-column-mapping
    """
    try:
        with store.open(path) as file:
            columns = pq.read_schema(file)
    except pa.ArrowException as error:
        raise CorruptFile(path=path, reason=first_line(error), fix=_FIX) from error
    if not any(map(_field_id, columns)):
        raise CorruptFile(path=path, reason=_NO_IDS, fix=_FIX_IDS)
    return tuple(_other_names(list(columns), schema, ()))


def _other_names(columns: list[Any], struct: StructType, at: Path) -> Iterator[tuple[Path, str]]:
    own = {field.name: column for column in columns if (field := _matching(column, struct, ID))}
    taken = {column.name.casefold() for column in columns}
    for field in struct:
        column, physical = own.get(field.name), field.metadata.get(PHYSICAL_NAME, field.name)
        if column is None:
            if physical.casefold() in taken:
                yield (*at, field.name), _free_name(taken)
            continue
        if column.name != physical:
            yield (*at, field.name), column.name
        yield from _names_below(column.type, field.type, (*at, field.name))


def _names_below(kind: Any, data_type: DataType, at: Path) -> Iterator[tuple[Path, str]]:
    if pa.types.is_struct(kind) and isinstance(data_type, StructType):
        yield from _other_names([kind.field(i) for i in range(kind.num_fields)], data_type, at)
    elif pa.types.is_map(kind) and isinstance(data_type, MapType):
        yield from _names_below(kind.key_type, data_type.key, (*at, KEY))
        yield from _names_below(kind.item_type, data_type.value, (*at, VALUE))
    elif pa.types.is_nested(kind) and isinstance(data_type, ArrayType):
        yield from _names_below(kind.value_type, data_type.element, (*at, ELEMENT))


def _free_name(taken: Collection[str]) -> str:
    return next(name for number in itertools.count() if (name := f"__widen_none_{number}") not in taken)


_Leaf: TypeAlias = tuple[Path, DataType | None]


@dataclass(frozen=True, slots=True)
class _SchemaWalk:
    """The way through the columns of one file, beside those of the table."""

    mode: str

    def fields(self, fields: Iterable[Any], struct: DataType | None, at: Path = ()) -> Iterator[_Leaf]:
        """Yield for every leaf its logical path and its type in the table, in the order of the file.

        The type is None where the table has no such leaf.
        """
        known = struct.fields if isinstance(struct, StructType) else ()
        for item in fields:
            field = _matching(item, known, self.mode)
            yield from self._below(item.type, field.type if field else None, (*at, field.name if field else item.name))

    def _below(self, kind: Any, data_type: DataType | None, at: Path) -> Iterator[_Leaf]:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_struct(kind):
            yield from self.fields((kind.field(i) for i in range(kind.num_fields)), data_type, at)
        elif pa.types.is_map(kind):
            key, value = (data_type.key, data_type.value) if isinstance(data_type, MapType) else (None, None)
            yield from self._below(kind.key_type, key, (*at, KEY))
            yield from self._below(kind.item_type, value, (*at, VALUE))
        elif pa.types.is_nested(kind):
            element = data_type.element if isinstance(data_type, ArrayType) else None
            yield from self._below(kind.value_type, element, (*at, ELEMENT))
        else:
            yield at, data_type if data_type is not None and is_atomic(data_type) else None
