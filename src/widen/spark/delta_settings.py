"""The settings of a Spark session that Delta Lake defines for writes and new tables.

Source: Delta Spark's configuration of schema evolution
"""

from __future__ import annotations

from widen.planning.evolution.format_capability import AutomaticWidening, parse_automatic_widening
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_key, is_property
from widen.spark.spark_types import SparkSession

AUTO_MERGE = "spark.databricks.delta.schema.autoMerge.enabled"
"""Whether writes may add columns to tables."""

AUTOMATIC_WIDENING = "spark.databricks.delta.typeWidening.allowAutomaticWidening"
"""Which types such writes may widen."""

FAST_DROP = "spark.databricks.delta.tableFeatures.fastDropFeature.enabled"
"""Whether a feature may be dropped while older versions still use it."""

RETENTION_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Whether a vacuum refuses a shorter retention than that of the table."""

PROPERTY_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""The prefix of the settings for the default properties of new tables."""

_NOT_FROM_SETTINGS = frozenset({"delta.minReaderVersion", "delta.minWriterVersion"})
"""The properties that follow from the features of a new table; settings do not change them."""


def default_properties(spark: SparkSession | None) -> dict[str, str]:
    """Return the default properties of new tables, which the commands that create them may override.

    Settings for unknown properties are ignored, as in Delta Lake.

    Args:
        spark: The session; without one, there are no defaults.

    Source: Delta Lake's settings of that name
    """
    settings = {} if spark is None else dict(spark.conf.getAll)
    defaults = {
        canonical_key("delta." + key.removeprefix(PROPERTY_DEFAULTS)): str(value)
        for key, value in settings.items()
        if key.startswith(PROPERTY_DEFAULTS)
    }
    return {key: value for key, value in defaults.items() if _is_default(key)}


def _is_default(key: str) -> bool:
    return key not in _NOT_FROM_SETTINGS and (is_property(key) or key.startswith(FEATURE_PREFIX))


def schema_evolution_settings(
    spark: SparkSession, merge_schema: bool | None, widening: str | None
) -> tuple[bool, AutomaticWidening]:
    """Return whether a write may add columns to the table, and which types it may widen.

    Args:
        spark: The session, whose settings are the defaults.
        merge_schema: Whether the write may add columns; by default the session decides.
        widening: The name of the widening mode; by default the session decides.

    Raises:
        InvalidOption: the widening mode is unknown.
    """
    can_add_columns = (
        str(spark.conf.get(AUTO_MERGE, "false")).lower() == "true" if merge_schema is None else merge_schema
    )
    mode = str(spark.conf.get(AUTOMATIC_WIDENING, "always")) if widening is None else widening
    return can_add_columns, parse_automatic_widening(mode)


def is_on(spark: SparkSession | None, setting: str) -> bool:
    """Tell whether a setting that is true by default is true in a session, or in the active one; starts none.

    Args:
        setting: `FAST_DROP`, `RETENTION_CHECK`, or another one that Delta Spark has with this default.
    """
    active = spark or SparkSession.getActiveSession()
    return active is None or str(active.conf.get(setting, "true")).lower() != "false"
