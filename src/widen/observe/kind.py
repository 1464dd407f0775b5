"""Kinds: the sort of a value, and how many arrays contain it.

Source: docs/evolution-rules.md#kinds
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
"""The words of kinds. Only typed sources have values of the last two. A column may also be an ``int``, but a value is
always a ``long``. The kind ``null`` is only used for a missing value of a required column."""

NUMBER_WORDS = frozenset({LONG_WORD, DOUBLE_WORD, DECIMAL_WORD})
"""The kinds whose values have digits."""

TYPE_OF_WORD: Mapping[str, AtomicType] = {
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
"""The type of each word. Decimals and records are missing, since a word alone does not determine their type."""

_WORD_OF_NAME: Mapping[str, str] = {"byte": INT_WORD, "short": INT_WORD, "float": DOUBLE_WORD} | {
    data_type.name: word for word, data_type in TYPE_OF_WORD.items()
}


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """The sort of a value: its type and its nesting in arrays.

    Args:
        word: One of `KIND_WORDS`.
        dim: How many arrays contain the value.

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
        """Whether the values have nested fields."""
        return self.word == RECORD_WORD


def parse_kind(text: str) -> Kind:
    """Return the kind with this text.

    Args:
        text: The ``str`` of a kind, e.g. ``long[][]``.
    """
    return Kind(text.rstrip("[]"), text.count("[]"))


def leaf_and_dim(data_type: DataType) -> tuple[DataType, int]:
    """Return the innermost element type of nested arrays, and the number of arrays.

    Example:
        >>> leaf_and_dim(ArrayType(ArrayType(LONG)))
        (AtomicType(name='long'), 2)
    """
    dim = 0
    while isinstance(data_type, ArrayType):
        data_type, dim = data_type.element, dim + 1
    return data_type, dim


def nest_in_arrays(leaf: DataType, dim: int) -> DataType:
    """Return a type nested in ``dim`` arrays."""
    for _ in range(dim):
        leaf = ArrayType(leaf)
    return leaf


def word_of(leaf: DataType) -> str | None:
    """Return the word of a type that is not an array; None for maps, variants and other types without a word.

    Byte, short and integer are all ``int``; float is a ``double``. The lattice decides whether such a column represents
    a value exactly.
    """
    match leaf:
        case StructType():
            return RECORD_WORD
        case DecimalType():
            return DECIMAL_WORD
        case AtomicType(name):
            return _WORD_OF_NAME.get(name)
    return None
