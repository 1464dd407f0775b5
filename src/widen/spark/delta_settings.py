"""What a session says of writes, by the keys that Delta Lake gives it.

Source: Delta Spark's configuration of schema evolution
"""

from __future__ import annotations

from widen.planning.evolution.format_capability import AutomaticWidening, parse_automatic_widening
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_key, is_property
from widen.spark.spark_types import SparkSession

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
"""Whether writes may let tables grow."""

AUTOMATIC_WIDENING = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
"""Which types they may widen then."""

PROPERTY_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""Begins the settings that say which properties new tables have."""

_NOT_FROM_SETTINGS = frozenset({"delta.minReaderVersion", "delta.minWriterVersion"})
"""What follows from the features of a new table, whatever the settings say."""


def default_properties(spark: SparkSession | None) -> dict[str, str]:
    """Return the properties that new tables have where their commands do not say otherwise.

    Settings that no property of Delta Lake has are ignored, as Delta Lake does.

    Args:
        spark: The session; without one there are none.

    Source: Delta Lake's settings of that name
    """
    settings = {} if spark is None else dict(spark.conf.getAll)
    given = {
        canonical_key("delta." + key.removeprefix(PROPERTY_DEFAULTS)): str(value)
        for key, value in settings.items()
        if key.startswith(PROPERTY_DEFAULTS)
    }
    return {key: value for key, value in given.items() if _is_default(key)}


def _is_default(key: str) -> bool:
    return key not in _NOT_FROM_SETTINGS and (is_property(key) or key.startswith(FEATURE_PREFIX))


def schema_evolution_settings(
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
