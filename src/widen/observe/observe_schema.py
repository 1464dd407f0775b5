"""Schemas to observations: what a source that says its types holds, told without a look at any value.

What the type alone does not tell, the best or the worst is taken for; where that makes a difference to a plan, somebody
has to look.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from widen.model.column_path import Path
from widen.model.types import VOID, ArrayType, AtomicType, DataType, DecimalType, MapType, StructType
from widen.observe.json_number import NO_FACTS, ValueFacts
from widen.observe.kind import (
    BINARY_WORD,
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    LONG_WORD,
    MAP_WORD,
    NTZ_WORD,
    RECORD_WORD,
    STRING_WORD,
    TIMESTAMP_WORD,
    Kind,
)
from widen.observe.observation import FieldObservation, KindObservation, RecordObservation

DOUBLE_DIGITS = 15
"""Up to so many digits every decimal survives the way to a double and back."""

_WHOLE = ValueFacts(fits_int32=True, integer_digits=10)

FACTS: Mapping[str, tuple[str, ValueFacts]] = MappingProxyType(
    {
        "boolean": (BOOLEAN_WORD, NO_FACTS),
        "byte": (LONG_WORD, _WHOLE._replace(integer_digits=3)),
        "short": (LONG_WORD, _WHOLE._replace(integer_digits=5)),
        "integer": (LONG_WORD, _WHOLE),
        "long": (LONG_WORD, ValueFacts(integer_digits=19, fits_int32=False, exact_double=False)),
        "float": (DOUBLE_WORD, ValueFacts(fits_int32=False, decimal_exact=False)),
        "double": (DOUBLE_WORD, ValueFacts(fits_int32=False, decimal_exact=False)),
        "date": (DATE_WORD, NO_FACTS),
        "timestamp": (TIMESTAMP_WORD, ValueFacts(epoch_ms_exact=False)),
        "timestamp_ntz": (NTZ_WORD, NO_FACTS),
        "string": (STRING_WORD, NO_FACTS),
        "binary": (BINARY_WORD, NO_FACTS),
    }
)
"""For the types without parts: the word of the kind, and what holds for every value that they can have."""


_HOPE: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        LONG_WORD: {"exact_double": True, "integer_digits": 1},
        DECIMAL_WORD: {"exact_double": True},
        TIMESTAMP_WORD: {"epoch_ms_exact": True},
    }
)
"""What of the facts only the values tell, at its best: whether a wider column holds them exactly."""


def type_facts(leaf: DataType) -> tuple[str, ValueFacts] | None:
    """Return the word of the kind that values of a type are, and what holds for each; None for void and unknown types.

    Args:
        leaf: A type without parts.
    """
    match leaf:
        case DecimalType(precision, scale):
            is_short = precision <= DOUBLE_DIGITS
            return DECIMAL_WORD, ValueFacts(precision - scale, scale, fits_int32=False, exact_double=is_short)
        case AtomicType(name):
            return FACTS.get(name)
    return None


def observe_schema(schema: StructType, *, is_hopeful: bool = False) -> RecordObservation:
    """Return what records of a schema hold; nothing is counted.

    Args:
        schema: Of the source; `unknown_types` tells whether anything in it cannot be told.
        is_hopeful: Whether values are exact where their type does not tell.

    Source: docs/evolution-rules.md#d16
    """
    return {field.name: _field(field.type, is_hopeful=is_hopeful) for field in schema}


def unknown_types(data_type: DataType, at: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield what of a type no kind stands for, with the steps to it.

    Keys of maps must be scalars: in a table they are texts.
    """
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from unknown_types(field.type, (*at, field.name))
        case ArrayType(element):
            yield from unknown_types(element, at)
        case MapType(key, value):
            told = type_facts(key)
            if told is None or told[0] == BINARY_WORD:
                yield at, data_type
            yield from unknown_types(value, at)
        case _ if data_type != VOID and type_facts(data_type) is None:
            yield at, data_type


def _field(data_type: DataType, *, is_hopeful: bool) -> FieldObservation:
    found = FieldObservation()
    _see(found, data_type, 0, is_hopeful=is_hopeful)
    return found


def _see(field: FieldObservation, data_type: DataType, dim: int, *, is_hopeful: bool) -> None:
    match data_type:
        case ArrayType(element):
            _see(field, element, dim + 1, is_hopeful=is_hopeful)
        case StructType():
            field.kinds[Kind(RECORD_WORD, dim)] = KindObservation()
            field.records[dim] = observe_schema(data_type, is_hopeful=is_hopeful)
        case MapType(_, value):
            field.kinds[Kind(MAP_WORD, dim)] = KindObservation()
            field.maps[dim] = _field(value, is_hopeful=is_hopeful)
        case _ if data_type == VOID:
            field.nulls[dim] = 1
        case _:
            told = type_facts(data_type)
            if told is not None:
                word, facts = told
                hope = _HOPE.get(word, {}) if is_hopeful else {}
                field.kinds[Kind(word, dim)] = KindObservation(**{**facts._asdict(), **hope}, type=data_type.sql)
