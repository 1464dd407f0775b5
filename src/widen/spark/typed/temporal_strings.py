"""Strings of typed records that are read as dates, in the spelling in which the proof compares them.

Source: docs/evolution-rules.md#d6
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.column_path import leaves
from widen.model.types import STRING, ArrayType, DataType, MapType, StructType
from widen.observe.observe_schema import TemporalString
from widen.proof.source_columns import ColumnsByKey, FieldColumns, widest_record_column
from widen.spark.source.field_names import Typed, field_steps, fields_of


def comparable_fields(fields: Mapping[str, Typed], columns: ColumnsByKey) -> dict[str, Typed]:
    """Return the fields of records with strings that are read as dates as their columns give them back.

    The spelling of UTC and trailing zeros of fractions do not matter, since a column of timestamps does not keep them.
    A date is its midnight where a field has only columns of timestamps for it. The midnight is never the date.

    Args:
        columns: The columns of each field.

    Source: docs/evolution-rules.md#d6
    """
    return {
        key: (comparable_values(values, kind, columns.get(key, ())), kind) for key, (values, kind) in fields.items()
    }


def comparable_values(values: Column, data_type: DataType, columns: FieldColumns, dim: int = 0) -> Column:
    """Return the values of one field, inside a number of arrays, like `comparable_fields`."""
    if not has_temporal_strings(data_type):
        return values
    match data_type:
        case TemporalString():
            return _as_stored(comparable_time(values, STRING, data_type), columns, dim)
        case StructType():
            record = widest_record_column(columns)
            fields = comparable_fields(fields_of(values, data_type), (record and record.fields) or {})
            named = zip(fields.values(), field_steps(data_type), strict=True)
            return F.when(values.isNotNull(), F.struct(*(inner.alias(name) for (inner, _), name in named)))
        case ArrayType(element):
            return F.transform(values, lambda item: comparable_values(item, element, columns, dim + 1))
        case MapType(_, value):
            inner = tuple(column.value for column in columns if column.value is not None and column.dim >= dim)
            return F.transform_values(values, lambda _, item: comparable_values(item, value, inner))
    return values


def _as_stored(texts: Column, columns: FieldColumns, dim: int) -> Column:
    """Return texts as the columns of a field give them back: dates and times as what the columns have for them.

    That is the midnight of a date, or the count of its days, and the count of the milliseconds of a timestamp.
    """
    types = {column.type_name for column in columns if column.dim >= dim}
    if "string" in types:
        return texts
    midnight = next((_MIDNIGHTS[name] for name in _MIDNIGHTS if name in types), None)
    stored = []
    if "timestamp" not in types and types & _NUMBERS:
        instants = F.when(texts.rlike(rf"\A{_SECONDS}(?:\.[0-9]{{1,3}})?Z\z"), texts.try_cast("timestamp"))
        stored.append(count_text(F.unix_millis(instants)))
    if "date" not in types and (midnight is not None or types & _NUMBERS):
        dates = F.when(texts.rlike(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"), texts)
        has_midnight = midnight is not None
        stored.append(
            F.concat(dates, F.lit(midnight)) if has_midnight else count_text(F.unix_date(dates.try_cast("date")))
        )
    return F.coalesce(*stored, texts)


def count_text(numbers: Column) -> Column:
    """Return the texts that stand for dates and timestamps of which a column has only the count."""
    return F.concat(F.lit("count "), numbers.cast("string"))


_NUMBERS = frozenset({"integer", "long", "double", "decimal"})
"""The columns of numbers that take dates, and but for integers of 32 bits timestamps."""

_MIDNIGHTS: Mapping[str, str] = {"timestamp_ntz": "T00:00:00", "timestamp": "T00:00:00Z"}
"""What the columns of timestamps give back for a date, in the order in which the proof reads them."""


def has_temporal_strings(data_type: DataType) -> bool:
    """Tell whether a type has strings that are read as dates."""
    return any(isinstance(leaf, TemporalString) for _, leaf in leaves(data_type))


def comparable_time(texts: Column, stored: DataType, original: DataType) -> Column:
    """Return texts with ``Z`` and without zeros at the end of fractions."""
    texts = F.regexp_replace(texts, rf"\A({_SECONDS}(?:\.[0-9]+)?)\+00:00\z", "$1Z")
    return F.regexp_replace(texts, rf"\A({_SECONDS})(?:(\.[0-9]*[1-9])0*|\.0+)?(Z?)\z", "$1$2$3")


_SECONDS = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
