"""What a session says of writes, by the keys that Delta Lake gives it.

Source: Delta Spark's configuration of schema evolution
"""

from __future__ import annotations

from widen.spark.schema import SparkSession

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
"""Whether writes may let tables grow."""

AUTOMATIC_WIDENING = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
"""Which types they may widen then."""


def merges_schemas(spark: SparkSession) -> bool:
    """Tell whether writes of this session let tables grow unless they say otherwise."""
    return str(spark.conf.get(AUTO_MERGE, "false")).lower() == "true"


def automatic_widening(spark: SparkSession) -> str:
    """Return which types writes of this session widen unless they say otherwise, by its name."""
    return str(spark.conf.get(AUTOMATIC_WIDENING, "always"))
