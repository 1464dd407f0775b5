"""What a session says of writes, by the keys that Delta Lake gives it.

Source: Delta Spark's configuration of schema evolution
"""

from __future__ import annotations

from widen.planning.capability import AutomaticWidening, parse_automatic_widening
from widen.spark.schema import SparkSession

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
"""Whether writes may let tables grow."""

AUTOMATIC_WIDENING = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
"""Which types they may widen then."""


def evolution(
    spark: SparkSession, merge_schema: bool | None, widening: str | None
) -> tuple[bool, AutomaticWidening]:
    """Return whether a write may let the table grow, and which types may widen then.

    Args:
        spark: The session, which counts where the write says nothing.
        merge_schema: What the write says of the first.
        widening: What it says of the second, by its name.

    Raises:
        InvalidOption: there is no such name.
    """
    grows = str(spark.conf.get(AUTO_MERGE, "false")).lower() == "true" if merge_schema is None else merge_schema
    said = str(spark.conf.get(AUTOMATIC_WIDENING, "always")) if widening is None else widening
    return grows, parse_automatic_widening(said)
