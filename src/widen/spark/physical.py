"""What footers say of the types in a file, and which leaves of it are narrower than those of the table.

The footers alone tell which files hold an old type: any writer may have put back a narrow file after a change.
This module needs no Spark.

Source: the Parquet format; PROTOCOL.md#type-widening
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import CorruptFile
from widen.errors.foreign import first_line
from widen.log.store import LogStore
from widen.model.path import ELEMENT, KEY, VALUE, Path
from widen.model.type import (
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
    MapType,
    StructType,
    is_atomic,
)
from widen.protocol.mapping import COLUMN_ID, ID, physical_name
from widen.protocol.widening import is_widening

_FIELD_ID = b"PARQUET:field_id"
_FIX = "Restore the file from a backup; what stands in it is not known."


def old_types(store: LogStore, schema: StructType, mode: str, path: str) -> tuple[int, dict[Path, DataType]]:
    """Return how many rows a file has, deleted ones included, and its leaves whose type is one before a widening.

    Columns are matched by the names that they have in files, and compared at every depth: struct fields, array
    elements, map keys and map values. What differs in another way than by a widening is not looked at.

    Args:
        store: Of the table.
        schema: Of the table, in logical names.
        mode: Of column mapping.
        path: Of the file, plain.

    Returns:
        The rows, and the old type of each such leaf by its logical path.

    Raises:
        CorruptFile: the file is no Parquet, or names and ids of its columns contradict each other.
        StorageError: the store refused.

    Source: PROTOCOL.md#writer-requirements-for-type-widening. Delta Spark compares no elements, keys and values.
    """
    try:
        with store.open(path) as file:
            footer = pq.read_metadata(file)
            found = list(_Walk(path, mode).fields(footer.schema.to_arrow_schema(), schema))
    except pa.ArrowException as error:
        raise CorruptFile(path=path, reason=first_line(error), fix=_FIX) from error
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

_Leaf: TypeAlias = tuple[Path, DataType | None]


@dataclass(frozen=True, slots=True)
class _Walk:
    """The way through the columns of one file, beside those of the table."""

    path: str
    mode: str

    def fields(self, fields: Iterable[Any], struct: DataType | None, at: Path = ()) -> Iterator[_Leaf]:
        """Yield for every leaf its logical path and its type in the table, in the order of the file.

        The type is None where the table has no such leaf.
        """
        known = struct.fields if isinstance(struct, StructType) else ()
        by_name = {physical_name(field, self.mode): field for field in known}
        by_id = {str(field.metadata.get(COLUMN_ID)): field for field in known} if self.mode == ID else {}
        for item in fields:
            field = by_name.get(item.name)
            told = by_id.get((item.metadata or {}).get(_FIELD_ID, b"").decode(), field)
            if told is not field:
                reason = f"its id says that {item.name} is column {told.name if told else None}, its name does not"
                raise CorruptFile(path=self.path, reason=reason, fix=_FIX)
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
