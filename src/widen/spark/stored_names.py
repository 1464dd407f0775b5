"""Names that differ only in case, which Spark cannot tell apart unless the session compares names exactly.

Source: docs/spark-facts.md#names
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from widen.errors import SimilarStoredNames
from widen.model.column_path import format_path
from widen.model.types import StructType
from widen.protocol.column_mapping import similar_stored_names


def compares_names_exactly(spark: SparkSession) -> bool:
    """Tell whether a session takes names that differ only in case for different names."""
    return str(spark.conf.get("spark.sql.caseSensitive")).lower() == "true"


def ensure_distinct_names(spark: SparkSession, location: str, schema: StructType, mode: str) -> None:
    """Check that Spark can tell the columns in the files of a Delta table apart.

    Args:
        mode: The mode of column mapping.

    Raises:
        SimilarStoredNames: two columns have physical names that differ only in case, and the session ignores case.
    """
    similar = similar_stored_names(schema, mode)
    if similar is not None and not compares_names_exactly(spark):
        column, other = map(format_path, similar)
        raise SimilarStoredNames(location=location, column=column, other=other)
