"""One logical column for each source field, which combines all its columns, as Spark SQL.

The columns of a field are found by the source path in their metadata, at every depth. They are combined value by value:
elements of arrays, entries of maps, fields of records. So a value that is split over several columns becomes whole
again. Every value of every column converts exactly to the resulting type: the common denominator of the types, or
string without one, with the largest number of arrays, and records with the fields of all.

Source: docs/evolution-rules.md#one-logical-field, #d2, #d9
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import count
from typing import Any

from widen.errors import FoldRefused
from widen.evolution.type_lattice import NUMERIC_WORDS, WIDER, ValueSpan, column_sort_key, common_leaf
from widen.json.field_rules import SIGN
from widen.json.kinds import (
    BOOLEAN_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NUMBER_WORDS,
    TIMESTAMP_WORD,
    leaf_and_dim,
    word_of,
)
from widen.model.column_path import Path, children, find_field, format_path, is_struct_path, leaves, resolve
from widen.model.schema_json import to_literal
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    quote_name,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import EVOLVED_FROM, FORM, SOURCE, fields_by_source, role_of, source_key

ROUNDING = frozenset(
    [(LONG_WORD, DOUBLE_WORD), (DECIMAL_WORD, DOUBLE_WORD), *((TIMESTAMP_WORD, word) for word in NUMBER_WORDS)]
    + [(BOOLEAN_WORD, word) for word in NUMERIC_WORDS]
)
"""Pairs of types: only some values of the first convert exactly to the second. The values are not read here, so both
become strings. Booleans and numbers become strings because ``true`` is not 1 (D18)."""


@dataclass(frozen=True, slots=True)
class UnifiedColumn:
    """One column of the unified table.

    Args:
        name: The name of the field's column that has the plain name.
    """

    name: str
    type: DataType
    sql: str
    columns: tuple[str, ...]


def unify_schema(schema: StructType) -> list[UnifiedColumn]:
    """Return one column for each source field, in the order of the schema. Columns with a role do not change.

    Source: docs/evolution-rules.md#one-logical-field
    """
    joiner = _Joiner(_free_prefix(schema.names))
    plain = (item for item in schema if role_of(item) is None)
    roles = (item for item in schema if role_of(item) is not None)
    unified = [
        joiner.column([(item, quote_name(item.name)) for item in items]) for items in fields_by_source(plain).values()
    ]
    return unified + [UnifiedColumn(item.name, item.type, quote_name(item.name), (item.name,)) for item in roles]


def view_sql(schema: StructType, name: str, rows: str, *, is_temporary: bool = False) -> str:
    """Return the SQL statement for a view with one column for each source field."""
    columns = ",\n".join(f"  {column.sql} AS {quote_name(column.name)}" for column in unify_schema(schema))
    return f"CREATE OR REPLACE {'TEMPORARY ' * is_temporary}VIEW {name} AS\nSELECT\n{columns}\nFROM {rows}"


def _free_prefix(names: Iterable[str]) -> str:
    """Return a prefix that no column name starts with, since a lambda variable hides a column of the same name."""
    folded_names = tuple(similarity_key(name) for name in names)
    candidates = ("x" + "_" * at for at in count())
    return next(text for text in candidates if not any(name.startswith(text) for name in folded_names))


@dataclass(frozen=True, slots=True)
class _ColumnRef:
    """A reference to a value in one column.

    Args:
        given: A shorter expression that is null exactly if this one is; empty without such an expression.
    """

    sql: str
    type: DataType
    given: str = ""

    @property
    def is_there(self) -> str:
        """The condition that the value is not null."""
        return f"{self.given or self.sql} IS NOT NULL"

    def step(self, name: str) -> str:
        """Return the expression of a field in it."""
        return f"{self.sql}.{quote_name(name)}"


@dataclass(frozen=True, slots=True)
class _Joiner:
    """Combines the references to one value in several columns.

    Args:
        depth: The number of lambdas around the value.
    """

    prefix: str
    depth: int = 1

    def column(self, members: Sequence[tuple[Field, str]]) -> UnifiedColumn:
        """Combine the columns of one source field, each with its expression."""
        joined = self.join([_ColumnRef(sql, item.type) for item, sql in members])
        items = [item for item, _ in members]
        main = next((item for item in items if EVOLVED_FROM not in item.metadata), items[0])
        return UnifiedColumn(main.name, joined.type, joined.sql, tuple(item.name for item in items))

    def join(self, parts: Sequence[_ColumnRef]) -> _ColumnRef:
        """Combine references. If several are not null, they are equal or complete each other."""
        if len(parts) == 1 and not _has_siblings(parts[0].type):
            return parts[0]
        if any(isinstance(part.type, ArrayType) for part in parts):
            return self._arrays([_in_array(part) for part in parts])
        groups: dict[object, list[_ColumnRef]] = {}
        for part in parts:
            groups.setdefault(_shape(part.type), []).append(part)
        if len(groups) == 1:
            return self._alike(parts)
        joined = [self._alike(group, STRING) for group in groups.values()]
        return _first([_convert(part, STRING) for part in joined], STRING)

    def _alike(self, parts: Sequence[_ColumnRef], leaf: DataType | None = None) -> _ColumnRef:
        if isinstance(parts[0].type, StructType):
            return self._records(parts)
        return self._maps(parts) if isinstance(parts[0].type, MapType) else _scalars(parts, leaf)

    def _arrays(self, parts: Sequence[_ColumnRef]) -> _ColumnRef:
        item, elements = f"{self.prefix}{self.depth}", [_element(part.type) for part in parts]
        if len(parts) == 1:
            joined = self._inner.join([_ColumnRef(item, elements[0])])
            return _ColumnRef(f"transform({parts[0].sql}, {item} -> {joined.sql})", ArrayType(joined.type))
        # `arrays_zip` names its fields by position if its arguments are expressions, and is null if one of them is.
        joined = self._inner.join([_ColumnRef(f"{item}.`{at}`", element) for at, element in enumerate(elements)])
        together = ", ".join(f"coalesce({part.sql}, array())" for part in parts)
        combined = f"transform(arrays_zip({together}), {item} -> {joined.sql})"
        return _where_any(parts, combined, ArrayType(joined.type))

    def _records(self, parts: Sequence[_ColumnRef]) -> _ColumnRef:
        """Combine records: the result has the fields of all, combined by source field."""
        owners = {id(item): part for part in parts for item in _fields(part.type)}
        groups = fields_by_source(item for part in parts for item in _fields(part.type)).values()
        columns = [self.column([(item, owners[id(item)].step(item.name)) for item in group]) for group in groups]
        combined = ", ".join(f"{to_literal(column.name)}, {column.sql}" for column in columns)
        struct = StructType(tuple(Field(column.name, column.type) for column in columns))
        return _where_any(parts, f"named_struct({combined})", struct)

    def _maps(self, parts: Sequence[_ColumnRef]) -> _ColumnRef:
        """Combine maps: the result has the entries of all, with the values of equal keys combined."""
        types = [part.type for part in parts if isinstance(part.type, MapType)]
        key = f"{self.prefix}{self.depth}"
        values = [_ColumnRef(f"try_element_at({p.sql}, {key})", t.value) for p, t in zip(parts, types, strict=True)]
        joined = self._inner.join(values)
        keys = "array()"
        for part in parts:
            keys = f"array_union({keys}, coalesce(map_keys({part.sql}), array()))"
        combined = f"map_from_arrays({keys}, transform({keys}, {key} -> {joined.sql}))"
        return _where_any(parts, combined, MapType(types[0].key, joined.type))

    @property
    def _inner(self) -> _Joiner:
        return _Joiner(self.prefix, self.depth + 1)


def _shape(data_type: DataType) -> object:
    """Return a key for grouping references; references of one group can be combined without conversion."""
    return (MapType, data_type.key) if isinstance(data_type, MapType) else isinstance(data_type, StructType)


def _has_siblings(data_type: DataType) -> bool:
    """Return whether a source field anywhere in a type has several columns."""
    is_split = isinstance(data_type, StructType) and len(fields_by_source(data_type)) < len(data_type)
    return is_split or any(_has_siblings(child) for _, child in children(data_type))


def _in_array(part: _ColumnRef) -> _ColumnRef:
    if isinstance(part.type, ArrayType):
        return part
    return replace(_where_any([part], f"array({part.sql})", ArrayType(part.type)), given=part.given or part.sql)


def _element(data_type: DataType) -> DataType:
    assert isinstance(data_type, ArrayType)
    return data_type.element


def _fields(data_type: DataType) -> tuple[Field, ...]:
    assert isinstance(data_type, StructType)
    return data_type.fields


def _where_any(parts: Sequence[_ColumnRef], combined: str, data_type: DataType) -> _ColumnRef:
    is_there = " OR ".join(part.is_there for part in parts)
    return _ColumnRef(f"CASE WHEN {is_there} THEN {combined} END", data_type)


# ---- single values ---------------------------------------------------------------------------------


def _scalars(parts: Sequence[_ColumnRef], leaf: DataType | None = None) -> _ColumnRef:
    """Return the first reference that is not null: those without conversion first, then narrow types first.

    A long comes before a timestamp: the timestamp may be only the routed copy of the long (U16).
    """
    leaf = leaf or _exact_common([part.type for part in parts])
    ordered = sorted(parts, key=lambda part: (part.type != leaf, column_sort_key(part.type, 0)))
    return _first([_convert(part, leaf) for part in ordered], leaf)


def _first(expressions: Sequence[str], leaf: DataType) -> _ColumnRef:
    return _ColumnRef(f"coalesce({', '.join(expressions)})" if len(expressions) > 1 else expressions[0], leaf)


def _exact_common(types: Sequence[DataType]) -> DataType:
    """Return a type that every value of these types converts to exactly."""
    if len(set(types)) == 1:
        return types[0]
    words = [word_of(data_type) for data_type in types]
    is_ordered = all(word in WIDER for word in words)
    leaf = common_leaf([ValueSpan(data_type) for data_type in types]) if is_ordered else STRING
    return STRING if any((word, word_of(leaf)) in ROUNDING for word in words) else leaf


def _convert(part: _ColumnRef, leaf: DataType) -> str:
    """Return the conversion to a wider type. Its result must not depend on the time zone of the session."""
    if part.type == leaf:
        return part.sql
    to = "string" if leaf == STRING else "timestamp" if leaf == TIMESTAMP else "number"
    name = "nested" if isinstance(part.type, (StructType, MapType)) else str(part.type)
    if name == "nested" and any(kind in (TIMESTAMP, TIMESTAMP_NTZ) for _, kind in leaves(part.type)):
        name = "nested with times"
    return _CONVERSIONS.get((name, to), "CAST({0} AS {1})").format(part.sql, leaf.sql)


EXACT_JSON: Mapping[str, str] = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options that make Spark's ``to_json`` write times with all their digits, in UTC.

By default it writes milliseconds, in the time zone of the session.
"""


def exact_json(sql: str, **options: str) -> str:
    """Return the SQL of a struct, an array or a map as JSON text, with the options of `EXACT_JSON` and others."""
    pairs = ", ".join(f"'{name}', {to_literal(value)}" for name, value in {**EXACT_JSON, **options}.items())
    return f"to_json({sql}, map({pairs}))"


_UTC = "timestampadd(MICROSECOND, unix_micros({0}), TIMESTAMP_NTZ '1970-01-01 00:00:00')"
_CONVERSIONS: Mapping[tuple[str, str], str] = {
    (str(DATE), "number"): "CAST(unix_date({0}) AS {1})",
    (str(DATE), str(TIMESTAMP)): "timestamp_seconds(unix_date({0}) * 86400L)",
    (str(TIMESTAMP), "string"): f"concat(replace(CAST({_UTC} AS STRING), ' ', 'T'), 'Z')",
    (str(BINARY), "string"): "base64({0})",
    ("variant", "string"): "to_json({0})",
    ("nested", "string"): "to_json({0})",
    ("nested with times", "string"): exact_json("{0}"),
}
"""Pairs whose cast would depend on the time zone of the session, or would not be a cast."""


# FOLD: move the values of an evolved column back into another column of its field, after the source is repaired.
#
# Source: docs/evolution-rules.md#u3


class Rest(str, Enum):
    """What happens to values that do not convert exactly."""

    REFUSE = "refuse"
    """If there is any, the fold is refused."""
    KEEP = "keep"
    """They stay in their column; the others are moved."""
    LOSE = "lose"
    """They are discarded."""


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """A fold of one column into another."""

    column: Path
    type: DataType
    into: Path
    into_type: DataType

    def __str__(self) -> str:
        return f"{format_path(self.column)} into {format_path(self.into)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldResult:
    """The result of a fold.

    Args:
        values: The number of rows with a value in the column.
        fits: How many of the values convert exactly, where the target column is null.
        duplicates: The number of values that the target column has already.
        samples: Samples of the other values.
        is_dropped: Whether the column is dropped if it is empty afterwards; else it stays, and is null.
    """

    fold: FoldPlan
    values: int
    fits: int
    duplicates: int
    samples: tuple[str, ...] = ()
    is_dropped: bool = False

    @property
    def lost(self) -> int:
        """The number of values that do not convert exactly, or whose row has another value in the target column."""
        return self.values - self.fits - self.duplicates

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object, without samples."""
        fold = self.fold
        places = {"column": format_path(fold.column), "into": format_path(fold.into), "type": fold.into_type.sql}
        counts = {"values": self.values, "fits": self.fits, "held": self.duplicates, "lost": self.lost}
        return {**places, **counts, "dropsColumn": self.is_dropped}


def plan_fold(schema: StructType, column: Path, into: Path | None = None) -> FoldPlan:
    """Plan the fold of a column.

    Raises:
        FoldRefused: the columns do not hold the same field, or their values cannot be converted one by one.
    """
    sibling = _LocatedColumn.at(schema, column)
    other = _LocatedColumn.at(schema, into) if into is not None else _plain_column(schema, sibling)
    reason = _refusal_reason(sibling, other)
    if reason:
        raise FoldRefused(column=format_path(sibling.path), into=format_path(other.path), reason=reason)
    return FoldPlan(sibling.path, sibling.field.type, other.path, other.field.type)


@dataclass(frozen=True, slots=True)
class _LocatedColumn:
    path: Path
    field: Field

    @classmethod
    def at(cls, schema: StructType, path: Path) -> _LocatedColumn:
        spelled, _ = resolve(schema, path)
        field = find_field(schema, spelled)
        if field is None or not is_struct_path(schema, spelled):
            reason = "a field inside an array or a map cannot be folded"
            raise FoldRefused(column=format_path(path), into="another", reason=reason)
        return cls(spelled, field)


def _plain_column(schema: StructType, sibling: _LocatedColumn) -> _LocatedColumn:
    parent = resolve(schema, sibling.path[:-1])[1]
    assert isinstance(parent, StructType)
    for item in parent:
        if _is_of_same_field(item, sibling.field) and EVOLVED_FROM not in item.metadata:
            return _LocatedColumn((*sibling.path[:-1], item.name), item)
    reason = "its field has no column with the plain name; name the target column"
    raise FoldRefused(column=format_path(sibling.path), into="another", reason=reason)


def _is_of_same_field(one: Field, other: Field) -> bool:
    return source_key(one) == source_key(other) and (SOURCE in one.metadata or SOURCE in other.metadata)


def _refusal_reason(sibling: _LocatedColumn, other: _LocatedColumn) -> str:
    if sibling.path == other.path:
        return "they are the same column"
    if sibling.path[:-1] != other.path[:-1] or not _is_of_same_field(sibling.field, other.field):
        return "they are not columns of the same source field"
    for item in (sibling.field, other.field):
        if isinstance(leaf_and_dim(item.type)[0], (StructType, MapType)):
            return f"{item.name} contains records"
    if leaf_and_dim(sibling.field.type)[0] in (TIMESTAMP, TIMESTAMP_NTZ):
        return f"{sibling.field.name} contains timestamps, which no narrower type can hold"
    return ""


# What a table has learned about its source, as a JSON Schema (draft 2020-12): a contract for later batches.
#
# There is a property for each source field; the types of all its columns are one union. A column that takes any
# value puts no condition on its field, and a column that is not a field of the source has no property.
#
# Source: docs/guide/gate.md#contract, docs/evolution-rules.md#one-logical-field


DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ATOMIC: Mapping[AtomicType, Mapping[str, str]] = {
    BOOLEAN: {"type": "boolean"},
    DATE: {"type": "string", "format": "date"},
    TIMESTAMP: {"type": "string", "format": "date-time"},
    TIMESTAMP_NTZ: {"type": "string", "format": "date-time"},
    BINARY: {"type": "string", "contentEncoding": "base64"},
}
_NUMBERS: Mapping[str, str] = {INT_WORD: "integer", LONG_WORD: "integer", DOUBLE_WORD: "number"}
_ORDER = ("boolean", "integer", "number", "string", "array", "object", "null")


def build_contract(schema: StructType, title: str) -> dict[str, Any]:
    """Return the contract of a table."""
    return {"$schema": DIALECT, "title": title, **_object(field for field in schema if role_of(field) is None)}


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    # Fields that records get from the path of their file are not part of the records.
    groups = {key: group for key, group in fields_by_source(fields).items() if not key.endswith(SIGN)}
    required = [key for key, group in groups.items() if not any(field.nullable for field in group)]
    described = {"type": "object", "properties": {key: _property(group) for key, group in groups.items()}}
    return {**described, **({"required": required} if required else {}), "additionalProperties": False}


def _property(columns: list[Field]) -> dict[str, Any]:
    if any(FORM in column.metadata for column in columns):
        return {}
    is_nullable = any(column.nullable for column in columns)
    return _union([column.type for column in columns], is_nullable=is_nullable)


def _union(types: list[DataType], *, is_nullable: bool = True) -> dict[str, Any]:
    """Return the schema of values of several types. Each keyword applies to values of its own type only."""
    if VARIANT in types:
        return {}
    schemas = [_atomic(each) for each in types if not isinstance(each, (ArrayType, MapType, StructType))]
    elements = [each.element for each in types if isinstance(each, ArrayType)]
    structs = [each for each in types if isinstance(each, StructType)]
    values = [each.value for each in types if isinstance(each, MapType)]
    names = {str(schema["type"]) for schema in schemas}
    union: dict[str, Any] = {}
    for keyword in ("format", "contentEncoding"):
        texts = {schema.get(keyword) for schema in schemas if schema["type"] == "string"}
        # A format applies to all strings of the field, so one column of plain strings rules it out.
        if len(texts) == 1 and None not in texts:
            union[keyword] = texts.pop()
    if elements:
        names.add("array")
        union["items"] = _union(elements)
    if structs or values:
        names.add("object")
        union |= _object(field for struct in structs for field in struct) if structs else {}
        union |= {"additionalProperties": _union(values)} if values else {}
    # In JSON Schema every integer is a number.
    if "number" in names:
        names.discard("integer")
    ordered = [name for name in _ORDER if name in names or (is_nullable and name == "null")]
    return {**union, "type": ordered[0] if len(ordered) == 1 else ordered}


def _atomic(data_type: DataType) -> Mapping[str, str]:
    if isinstance(data_type, DecimalType):
        return {"type": "integer" if data_type.scale == 0 else "number"}
    named = _ATOMIC.get(data_type) if isinstance(data_type, AtomicType) else None
    return named or {"type": _NUMBERS.get(word_of(data_type) or "", "string")}
