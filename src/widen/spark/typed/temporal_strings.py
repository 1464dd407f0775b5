"""Strings of typed records that are read as dates, in the spelling in which the proof compares them.

Source: docs/evolution-rules.md#d6
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import STRING, ArrayType, DataType, MapType, StructType
from widen.observe.observe_schema import TemporalString
from widen.spark.source.field_names import Typed, field_steps, fields_of


def comparable_fields(fields: Mapping[str, Typed]) -> dict[str, Typed]:
    """Return the fields of records with strings that are read as dates in one spelling.

    The spelling of UTC, trailing zeros of fractions and a time of midnight do not matter, since a column of timestamps
    does not keep them.

    Source: docs/evolution-rules.md#d6
    """
    return {key: (_comparable(values, kind), kind) for key, (values, kind) in fields.items()}


def _comparable(values: Column, data_type: DataType) -> Column:
    if not has_temporal_strings(data_type):
        return values
    match data_type:
        case TemporalString():
            return comparable_time(values, STRING, data_type)
        case StructType():
            fields = zip(field_steps(data_type), fields_of(values, data_type).values(), strict=True)
            parts = (_comparable(inner, kind).alias(name) for name, (inner, kind) in fields)
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: _comparable(item, element))
        case MapType(_, value):
            return F.transform_values(values, lambda _, item: _comparable(item, value))
    return values


def has_temporal_strings(data_type: DataType) -> bool:
    """Tell whether a type has strings that are read as dates."""
    match data_type:
        case StructType(fields):
            return any(has_temporal_strings(field.type) for field in fields)
        case ArrayType(inner) | MapType(_, inner):
            return has_temporal_strings(inner)
    return isinstance(data_type, TemporalString)


def comparable_time(texts: Column, stored: DataType, original: DataType) -> Column:
    """Return texts with ``Z``, without zeros at the end of fractions, and midnights as dates."""
    texts = F.regexp_replace(texts, rf"\A({_SECONDS}(?:\.[0-9]+)?)\+00:00\z", "$1Z")
    texts = F.regexp_replace(texts, rf"\A({_SECONDS})(?:(\.[0-9]*[1-9])0*|\.0+)?(Z?)\z", "$1$2$3")
    return F.regexp_replace(texts, r"\A([0-9]{4}-[0-9]{2}-[0-9]{2})T00:00:00Z?\z", "$1")


_SECONDS = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
