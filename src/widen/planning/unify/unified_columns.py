"""One logical column for each source field, which combines all its columns, as Spark SQL.

The columns of a field are found by the source path in their metadata, at every depth. They are combined value by value:
elements of arrays, entries of maps, fields of records. So a value that is split over several columns becomes whole
again. Every value of every column converts exactly to the resulting type: the common denominator of the types, or
string if there is none, with the largest number of arrays, and records with the fields of all.

Source: docs/evolution-rules.md#one-logical-field, #d2, #d9
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from widen.model.column_path import children
from widen.model.sql_literal import to_literal
from widen.model.types import (
    BINARY,
    DATE,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    quote_name,
    similarity_key,
)
from widen.observe.kind import BOOLEAN_WORD, DECIMAL_WORD, DOUBLE_WORD, LONG_WORD, NUMBER_WORDS, TIMESTAMP_WORD, word_of
from widen.planning.evolution.source_metadata import EVOLVED_FROM, fields_by_source, role_of
from widen.planning.evolution.type_lattice import NUMERIC_WORDS, WIDER, ValueSpan, column_sort_key, common_leaf

ROUNDING = frozenset(
    [(LONG_WORD, DOUBLE_WORD), (DECIMAL_WORD, DOUBLE_WORD), *((TIMESTAMP_WORD, word) for word in NUMBER_WORDS)]
    + [(BOOLEAN_WORD, word) for word in NUMERIC_WORDS]
)
"""Pairs of types of which only some values convert exactly to the wider one. Since the values are not read here, both
become strings. So do booleans and numbers, since ``true`` is not 1 (D18)."""


@dataclass(frozen=True, slots=True)
class UnifiedColumn:
    """One column of the unified table.

    Args:
        name: Its name: that of the column of the field with the plain name.
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
    """Return the SQL statement for a view with one column for each source field.

    Args:
        name: The name of the view, quoted for SQL.
        rows: The table, quoted for SQL.
    """
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
        given: A shorter expression that is null exactly if this one is; empty if there is none.
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
    """Return the key by which references are grouped; those of one group can be combined without conversion."""
    return (MapType, data_type.key) if isinstance(data_type, MapType) else isinstance(data_type, StructType)


def _has_siblings(data_type: DataType) -> bool:
    """Tell whether a source field anywhere in a type has several columns."""
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
    """Return a type to which every value of these types converts exactly."""
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
    return _CONVERSIONS.get((name, to), "CAST({0} AS {1})").format(part.sql, leaf.sql)


_UTC = "timestampadd(MICROSECOND, unix_micros({0}), TIMESTAMP_NTZ '1970-01-01 00:00:00')"
_CONVERSIONS: Mapping[tuple[str, str], str] = {
    (str(DATE), "number"): "CAST(unix_date({0}) AS {1})",
    (str(DATE), str(TIMESTAMP)): "timestamp_seconds(unix_date({0}) * 86400L)",
    (str(TIMESTAMP), "string"): f"concat(replace(CAST({_UTC} AS STRING), ' ', 'T'), 'Z')",
    (str(BINARY), "string"): "base64({0})",
    ("variant", "string"): "to_json({0})",
    ("nested", "string"): "to_json({0})",
}
"""Where a cast would depend on the time zone of the session, or is none."""
