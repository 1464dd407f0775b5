"""Conversions between model types and Spark types, through the schema JSON that both share.

Source: PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from typing import TYPE_CHECKING, TypeAlias

from widen.errors import InvalidOption, SimilarStoredNames, UnsupportedColumnType
from widen.model.column_path import as_nullable, format_path, map_fields
from widen.model.lazy_module import import_class_lazily, import_lazily
from widen.model.schema_json import FIELD_ID, type_from_value, type_to_value
from widen.model.types import DataType, Field, StructType
from widen.protocol.column_mapping import COLUMN_ID, similar_stored_names
from widen.protocol.column_metadata import parse_columns, visible_schema

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession, Window
    from pyspark.sql import Observation as Metrics
    from pyspark.sql import functions as F
    from pyspark.sql import types as spark_types
    from pyspark.sql.types import StructType as SparkStruct
else:
    # What needs no Spark imports none: it takes longer to import than a small ingestion, and may not be installed.
    F, spark_types = map(import_lazily, ("pyspark.sql.functions", "pyspark.sql.types"))
    Column, DataFrame, DataFrameReader, Metrics, Row, SparkSession, Window = (
        import_class_lazily("pyspark.sql", name)
        for name in ("Column", "DataFrame", "DataFrameReader", "Observation", "Row", "SparkSession", "Window")
    )
    SparkStruct = import_class_lazily("pyspark.sql.types", "StructType")
    PySparkException = import_class_lazily("pyspark.errors", "PySparkException")

__all__ = [
    "Column",
    "DataFrame",
    "DataFrameReader",
    "F",
    "Metrics",
    "PySparkException",
    "Row",
    "SchemaLike",
    "SparkSession",
    "Window",
    "as_nullable",
    "from_spark",
    "spark_errors",
    "spark_types",
    "to_schema",
    "to_spark",
    "type_to_spark",
    "visible_schema",
    "with_field_ids",
]

SchemaLike: TypeAlias = StructType | SparkStruct | str
"""A schema as a value, as Spark's, or as SQL: ``"id bigint not null, tags array<string>"``."""


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the errors of a Spark action, in a classic session and in Spark Connect.

    Empty if Spark is not loaded, because nothing can raise them.
    """
    if sys.modules.get("pyspark") is None:
        return ()
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:  # the client of Spark Connect does not have py4j
        return (PySparkException,)
    return PySparkException, Py4JError


def to_schema(schema: SchemaLike) -> StructType:
    """Return a schema in any of its forms as a schema of the model.

    Raises:
        InvalidOption: it is not a schema.
    """
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return parse_columns(schema)
    if not isinstance(schema, spark_types.StructType):
        raise InvalidOption(option="schema", value=schema, expected="Must be a StructType or columns in SQL.")
    return from_spark(schema)


def to_spark(schema: StructType) -> spark_types.StructType:
    """Return the schema as a Spark schema, metadata included.

    Raises:
        UnsupportedColumnType: Spark has no type for a column, or does not know its collation.
    """
    try:
        # A copy, because PySpark changes the metadata of collated columns, which is the metadata of the table.
        return spark_types.StructType.fromJson(deepcopy(type_to_value(schema)))
    except _unknown_type_errors() as error:
        if len(schema) > 1:
            for field in schema:  # to find the column that it is about
                to_spark(StructType((field,)))
        column, given = ", ".join(schema.names), ", ".join(field.type.sql for field in schema)
        reason = f"Spark cannot represent it ({error or type(error).__name__})"
        raise UnsupportedColumnType(column=column, type=given, reason=reason) from error


def _unknown_type_errors() -> tuple[type[Exception], ...]:
    """Return what PySpark raises for types and collations that it does not know, and for metadata of a wrong shape."""
    return *spark_errors(), AssertionError, AttributeError, KeyError, TypeError, ValueError


def type_to_spark(data_type: DataType) -> spark_types.DataType:
    """Return the type as a Spark type, the metadata of nested fields included."""
    return to_spark(StructType((Field("only", data_type),)))["only"].dataType


def from_spark(schema: spark_types.StructType) -> StructType:
    """Return a Spark schema as a schema of the model, metadata included."""
    result = type_from_value(json.loads(schema.json()))
    assert isinstance(result, StructType)
    return result


def with_field_ids(schema: StructType) -> StructType:
    """Return the schema with only the column ids as metadata, under the key that Spark's Parquet writer reads.

    Source: PROTOCOL.md#writer-requirements-for-column-mapping
    """
    return map_fields(schema, lambda _, field: Field(field.name, field.type, field.nullable, _field_id(field)))


def _field_id(field: Field) -> dict[str, int]:
    return {FIELD_ID: field.metadata[COLUMN_ID]} if COLUMN_ID in field.metadata else {}


# Names that differ only in case. Spark cannot distinguish them unless the session compares names exactly.
#
# Source: docs/spark-facts.md#names


def compares_names_exactly(spark: SparkSession) -> bool:
    """Return whether a session takes names that differ only in case for different names."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def ensure_distinct_names(spark: SparkSession, location: str, schema: StructType, mode: str) -> None:
    """Check that Spark can tell the columns in the files of a Delta table apart.

    Raises:
        SimilarStoredNames: two columns have physical names that differ only in case, and the session ignores case.
    """
    similar = similar_stored_names(schema, mode)
    if similar is not None and not compares_names_exactly(spark):
        column, other = map(format_path, similar)
        raise SimilarStoredNames(location=location, column=column, other=other)
