"""Kinds: what sort of value stands somewhere, and how deep in arrays.

Source: docs/evolution-rules.md#kinds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    StructType,
)

BOOLEAN_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD = "boolean", "long", "double", "decimal"
DATE_WORD, TIMESTAMP_WORD, STRING_WORD, RECORD_WORD = "date", "timestamp", "string", "record"
INT_WORD, MAP_WORD, NULL_WORD = "int", "map", "null"
NTZ_WORD, BINARY_WORD = "timestamp_ntz", "binary"

KIND_WORDS = (
    *(BOOLEAN_WORD, LONG_WORD, DOUBLE_WORD, DECIMAL_WORD),
    *(DATE_WORD, TIMESTAMP_WORD, STRING_WORD, RECORD_WORD, MAP_WORD),
    *(NTZ_WORD, BINARY_WORD),
)
"""The words of kinds; of the last two only sources have values that say types. A column may also be an ``int``; a value
never is, for it is known to be a ``long``. Of the kind ``null`` is only what is missing where something has to be."""

NUMBER_WORDS = frozenset({LONG_WORD, DOUBLE_WORD, DECIMAL_WORD})
"""The kinds whose values have digits."""

TYPE_OF_WORD: Mapping[str, AtomicType] = MappingProxyType(
    {
        BOOLEAN_WORD: BOOLEAN,
        INT_WORD: INTEGER,
        LONG_WORD: LONG,
        DOUBLE_WORD: DOUBLE,
        DATE_WORD: DATE,
        TIMESTAMP_WORD: TIMESTAMP,
        STRING_WORD: STRING,
        NTZ_WORD: TIMESTAMP_NTZ,
        BINARY_WORD: BINARY,
    }
)
"""The types that the words stand for. A decimal and a record need more than a word, and are not here."""

_WORD_OF_NAME: Mapping[str, str] = MappingProxyType(
    {"byte": INT_WORD, "short": INT_WORD, "float": DOUBLE_WORD}
    | {data_type.name: word for word, data_type in TYPE_OF_WORD.items()}
)


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """What sort of value stands somewhere: its type and its nesting in arrays.

    Args:
        word: One of `KIND_WORDS`.
        dim: How many arrays are around the value; 0 for none.

    Examples:
        >>> str(Kind("long", 2))
        'long[][]'
    """

    word: str
    dim: int = 0

    def __str__(self) -> str:
        return self.word + "[]" * self.dim

    @property
    def is_record(self) -> bool:
        """Whether the values have sub-fields."""
        return self.word == RECORD_WORD


def parse_kind(text: str) -> Kind:
    """Return the kind whose text this is.

    Args:
        text: What ``str`` gives for a kind, e.g. ``long[][]``.
    """
    return Kind(text.rstrip("[]"), text.count("[]"))


def leaf_and_dim(data_type: DataType) -> tuple[DataType, int]:
    """Return what the arrays of a type hold in the end, and how many arrays there are.

    Example:
        >>> leaf_and_dim(ArrayType(ArrayType(LONG)))
        (AtomicType(name='long'), 2)
    """
    dim = 0
    while isinstance(data_type, ArrayType):
        data_type, dim = data_type.element, dim + 1
    return data_type, dim


def nest_in_arrays(leaf: DataType, dim: int) -> DataType:
    """Return the type with ``dim`` arrays around it."""
    for _ in range(dim):
        leaf = ArrayType(leaf)
    return leaf


def word_of(leaf: DataType) -> str | None:
    """Return the word for a type without arrays; None for maps, variants and others that no word stands for.

    Byte, short and integer are all ``int``; float is a ``double``. Whether such a column *holds* a value is another
    question, for the lattice.
    """
    match leaf:
        case StructType():
            return RECORD_WORD
        case DecimalType():
            return DECIMAL_WORD
        case AtomicType(name):
            return _WORD_OF_NAME.get(name)
    return None
