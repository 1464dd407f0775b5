"""Times that Spark would cut: ORC counts nanoseconds, and Spark reads them as microseconds.

Read as strings, the times have all their digits.

Source: docs/evolution-rules.md#d2, #d16; Spark's OrcDeserializer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.model.column_path import map_children
from widen.model.types import STRING, TIMESTAMP, TIMESTAMP_NTZ, ArrayType, DataType, MapType, StructType, quote_name
from widen.spark.expression import join_columns
from widen.spark.source.source_files import as_literal, unusable_source
from widen.spark.spark_types import from_spark, to_spark

_NANOSECONDS = r"\.[0-9]{7}"
_FIX = (
    "Write the times in microseconds or as strings. To take them as Spark reads them, pass the DataFrame of "
    "spark.read.orc."
)


def ensure_uncut(spark: SparkSession, frame: DataFrame, paths: Sequence[str]) -> None:
    """Check that no time in ORC files has nanoseconds, which no column can hold.

    Raises:
        SourceError: a time has nanoseconds; the error names its file.
    """
    timed = [field for field in from_spark(frame.schema) if _as_text(field.type) != field.type]
    checks = [check for field in timed for check in _checks(F.col(quote_name(field.name)), field.type)]
    if not checks:
        return
    texts = StructType(tuple(replace(field, type=_as_text(field.type)) for field in timed))
    rows = spark.read.schema(to_spark(texts)).orc(list(map(as_literal, paths)))
    is_cut = join_columns(lambda one, two: one | two, checks)
    for row in rows.where(is_cut).select("_metadata.file_path").limit(1).collect():
        raise unusable_source(unquote(row[0]), "it has times with nanoseconds, which Spark would cut", _FIX)


def _as_text(data_type: DataType) -> DataType:
    """Return a type with strings instead of times."""
    is_time = data_type in (TIMESTAMP, TIMESTAMP_NTZ)
    return STRING if is_time else map_children(data_type, lambda _, child: _as_text(child))


def _checks(texts: Column, data_type: DataType) -> Iterator[Column]:
    """Yield, for each time in a type, whether a value has nanoseconds there."""
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from _checks(texts.getField(field.name), field.type)
        case ArrayType(element):
            for number, _ in enumerate(_checks(F.lit(None), element)):
                yield F.coalesce(F.exists(texts, partial(_check, element, number)), F.lit(False))
        case MapType(key, value):
            yield from _checks(F.map_keys(texts), ArrayType(key))
            yield from _checks(F.map_values(texts), ArrayType(value))
        case _ if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
            yield F.coalesce(texts.rlike(_NANOSECONDS), F.lit(False))


def _check(data_type: DataType, number: int, texts: Column) -> Column:
    return list(_checks(texts, data_type))[number]
