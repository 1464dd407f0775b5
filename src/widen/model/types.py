"""The types and fields of a schema, as immutable values.

Atomic types have the names of Delta's schema JSON (``long``); the property ``sql`` has their names in Spark SQL
(``bigint``).

Source: PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from widen.model.value_classes import dataclass

SQL_NAMES: Mapping[str, str] = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
"""The atomic types with another name in Spark SQL."""

ATOMIC_NAMES = frozenset(
    ["string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary"]
    + ["date", "timestamp", "timestamp_ntz", "void", "variant"]
)
"""The names of all atomic types in the schema JSON, except decimals."""


@dataclass(frozen=True, slots=True)
class AtomicType:
    """A type without nested types, e.g. ``AtomicType("long")``."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def sql(self) -> str:
        """The type in Spark SQL."""
        return SQL_NAMES.get(self.name, self.name)


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal number with ``precision`` digits, including ``scale`` digits after the decimal point."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    @property
    def sql(self) -> str:
        """The type in Spark SQL."""
        return str(self)


@dataclass(frozen=True, slots=True)
class OpaqueType:
    """A type that this version does not know, kept as its JSON text."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def sql(self) -> str:
        """The JSON text, because the type has no known SQL name."""
        return self.text


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements."""

    element: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element}>"

    @property
    def sql(self) -> str:
        """The type in Spark SQL."""
        return f"array<{self.element.sql}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A map from keys to values."""

    key: DataType
    value: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key},{self.value}>"

    @property
    def sql(self) -> str:
        """The type in Spark SQL."""
        return f"map<{self.key.sql},{self.value.sql}>"


@dataclass(frozen=True, slots=True)
class Field:
    """A column or a struct field; metadata that this version does not know is kept as it is.

    Args:
        metadata: The metadata object of the field in the schema JSON, keys as on disk. Never change it in place.
    """

    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.name, self.type, self.nullable))

    @property
    def sql(self) -> str:
        """The field in Spark SQL, as in a struct type or a column list."""
        null = "" if self.nullable else " not null"
        return f"{quote_name(self.name)}: {self.type.sql}{null}"

    def with_metadata(self, **entries: object) -> Field:
        """Return the field with these metadata entries set."""
        return replace(self, metadata={**self.metadata, **entries})

    def without_metadata(self, *keys: str) -> Field:
        """Return the field without these metadata entries."""
        return replace(self, metadata={k: v for k, v in self.metadata.items() if k not in keys})

    def only_metadata(self, *keys: str) -> Field:
        """Return the field with only these metadata entries."""
        return replace(self, metadata={k: v for k, v in self.metadata.items() if k in keys})


@dataclass(frozen=True)
class StructType:
    """An ordered list of fields; also the schema of a table."""

    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        return f"struct<{','.join(f'{f.name}:{f.type}' for f in self.fields)}>"

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __reduce__(self) -> tuple[type[StructType], tuple[tuple[Field, ...]]]:
        return StructType, (self.fields,)  # without the index of names

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple([f.name for f in self.fields])

    @property
    def sql(self) -> str:
        """The type in Spark SQL."""
        return f"struct<{', '.join(f.sql for f in self.fields)}>"

    @cached_property
    def _by_name(self) -> Mapping[str, Field]:
        return {f.name: f for f in reversed(self.fields)}

    @cached_property
    def _by_key(self) -> Mapping[str, list[Field]]:
        fields: dict[str, list[Field]] = {}
        for each in self.fields:
            for key in name_keys(each.name):
                fields.setdefault(key, []).append(each)
        return fields

    def find(self, name: str) -> Field | None:
        """Return the field of that name, or None.

        An exact match comes first, then one that is equal in lower case, then any that Spark takes for the same name:
        with columns ``sira`` and ``sıra``, ``SIRA`` is the first.
        """
        exact = self._by_name.get(name)
        if exact is not None:
            return exact
        same = [field for key in name_keys(name) for field in self._by_key.get(key, ())]
        return next((field for field in same if field.name.lower() == name.lower()), same[0] if same else None)

    def with_field(self, new: Field) -> StructType:
        """Return the struct with the field of that exact name replaced, or with the field appended."""
        if new.name not in self._by_name:
            return StructType((*self.fields, new))
        return StructType(tuple(new if f.name == new.name else f for f in self.fields))


DataType: TypeAlias = AtomicType | DecimalType | OpaqueType | ArrayType | MapType | StructType

BYTE, SHORT, INTEGER, LONG = AtomicType("byte"), AtomicType("short"), AtomicType("integer"), AtomicType("long")
FLOAT, DOUBLE = AtomicType("float"), AtomicType("double")
STRING, BINARY, BOOLEAN = AtomicType("string"), AtomicType("binary"), AtomicType("boolean")
DATE, TIMESTAMP, TIMESTAMP_NTZ = AtomicType("date"), AtomicType("timestamp"), AtomicType("timestamp_ntz")
VOID, VARIANT = AtomicType("void"), AtomicType("variant")


def quote_name(name: str) -> str:
    """Return the name for Spark SQL, in backticks unless it is a plain identifier."""
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else "`" + name.replace("`", "``") + "`"


def name_key(name: str) -> str:
    """Return a key that is equal for two names exactly if Spark takes them for one column.

    Spark compares names with Java's ``String.equalsIgnoreCase``: each character becomes upper case and then lower case,
    and stays one character. So ``ı``, ``i`` and ``İ`` are the same, but not ``ß`` and ``ss``.

    Example:
        >>> name_key("SIRA"), name_key("sıra"), name_key("straße")
        ('sira', 'sira', 'straße')
    """
    return name.lower() if name.isascii() else "".join(map(_char_key, name))


@lru_cache(maxsize=4096)
def _char_key(char: str) -> str:
    upper = next((text for text in (char.upper(), char.title()) if len(text) == 1), char)
    return upper.lower()[0]  # only İ has two characters in lower case: i and a dot above it


def name_keys(name: str) -> tuple[str, ...]:
    """Return the keys of a name: Spark or Delta Lake takes two names for one if they have a key in common.

    Delta Lake compares names in lower case, which adds one case to `name_key`: ``İ``, and ``i`` with a dot above it.
    """
    key, lower = name_key(name), name.lower()
    return (key,) if key == lower else (key, lower)


def is_same_name(name: str, other: str) -> bool:
    """Return whether Spark or Delta Lake takes two names for one column."""
    return not set(name_keys(name)).isdisjoint(name_keys(other))


def find_name(names: Iterable[str], name: str) -> str | None:
    """Return the name among some names that is the same column, as `StructType.find` does; None without a match."""
    found = StructType(tuple(Field(each, VOID) for each in names)).find(name)
    return None if found is None else found.name


def similarity_key(name: str) -> str:
    """Return a key that is equal for two names if any reader may take them for one column.

    Readers compare names in lower case (Delta Lake, Trino, PyIceberg), in upper case, or with other rules of Unicode.
    The key is equal if any of these is: ``ß``, ``ẞ`` and ``SS`` have the same, and ``ŉ`` and ``ʼn``.
    """
    if name.isascii():
        return name.lower()
    # A dot above an i comes from İ, which Java compares with i.
    return _DOTTED_I.sub("i", name.upper().casefold())


_DOTTED_I = re.compile("i\u0307+")


def compact_sql(data_type: DataType, spell: Callable[[str], str] = quote_name) -> str:
    """Return a type in Spark SQL without spaces, comments and NOT NULL."""
    match data_type:
        case StructType(items):
            return f"struct<{','.join(f'{spell(item.name)}:{compact_sql(item.type, spell)}' for item in items)}>"
        case ArrayType(element):
            return f"array<{compact_sql(element, spell)}>"
        case MapType(key, value):
            return f"map<{compact_sql(key, spell)},{compact_sql(value, spell)}>"
    return data_type.sql


def plain_name(data_type: DataType) -> str:
    """Return the name of an atomic type without precision and scale."""
    return "decimal" if isinstance(data_type, DecimalType) else str(data_type)


def is_atomic(data_type: DataType) -> bool:
    """Return whether the type has no nested types."""
    return isinstance(data_type, (AtomicType, DecimalType, OpaqueType))


def is_fully_nullable(data_type: DataType) -> bool:
    """Return whether everything inside a type is nullable."""
    match data_type:
        case StructType(fields):
            return all(field.nullable and is_fully_nullable(field.type) for field in fields)
        case ArrayType(element, contains_null):
            return contains_null and is_fully_nullable(element)
        case MapType(_, value, contains_null):
            return contains_null and is_fully_nullable(value)
    return True
