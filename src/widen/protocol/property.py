"""Table properties that Delta knows: their keys as they are stored, whatever the case they are given in.

Source: Delta Lake's table properties
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from widen.errors import InvalidOption

CONSTRAINT_PREFIX, FEATURE_PREFIX = "delta.constraints.", "delta.feature."
_FOLDED_PREFIXES = (FEATURE_PREFIX, "delta.universalformat.")

ENABLE_CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
ENABLE_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
TIMESTAMPS_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
TIMESTAMPS_SINCE_MS = "delta.inCommitTimestampEnablementTimestamp"
ENABLE_TYPE_WIDENING = "delta.enableTypeWidening"
UNIFORM_FORMATS = "delta.universalFormat.enabledFormats"

SWITCHES: tuple[str, ...] = (
    "delta.appendOnly",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    ENABLE_CHANGE_DATA_FEED,
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    ENABLE_IN_COMMIT_TIMESTAMPS,
    "delta.enableRowTracking",
    ENABLE_TYPE_WIDENING,
    "delta.enableVariantShredding",
    "delta.randomizeFilePrefixes",
    "delta.rowTrackingSuspended",
)
"""The properties that are true or false."""

OTHERS: tuple[str, ...] = (
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.checkpointRetentionDuration",
    "delta.columnMapping.maxColumnId",
    "delta.columnMapping.mode",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.dataSkippingStringPrefixLength",
    "delta.deletedFileRetentionDuration",
    "delta.dropFeatureTruncateHistory.retentionDuration",
    "delta.ignoreProtocolDefaults",
    TIMESTAMPS_SINCE_MS,
    TIMESTAMPS_SINCE_VERSION,
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.minReaderVersion",
    "delta.minWriterVersion",
    "delta.parquet.format.version",
    "delta.randomPrefixLength",
    "delta.requireCheckpointProtectionBeforeVersion",
    "delta.sampleRetentionDuration",
    "delta.setTransactionRetentionDuration",
    UNIFORM_FORMATS,
)
"""The other ones."""

_BY_FOLDED: Mapping[str, str] = {key.lower(): key for key in (*SWITCHES, *OTHERS)}


def canonical_key(key: str) -> str:
    """Return a key as it is stored: one that Delta knows in its own spelling, any other one as it is.

    Source: Delta Spark; the name of a constraint stays as it is given.

    Example:
        >>> canonical_key("Delta.enabletypewidening")
        'delta.enableTypeWidening'
    """
    folded = key.lower()
    if folded.startswith(_FOLDED_PREFIXES) and folded not in _BY_FOLDED:
        return folded
    return _BY_FOLDED.get(folded, key)


def is_property(key: str) -> bool:
    """Tell whether Delta gives a meaning to a key, in any case."""
    return key.lower() in _BY_FOLDED


def canonical(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with their keys as they are stored.

    Raises:
        InvalidOption: two keys are one, a value is no text, or a switch is neither true nor false.

    Source: Delta Spark
    """
    found: dict[str, str] = {}
    for key, value in properties.items():
        known = canonical_key(key)
        if not isinstance(value, str):
            raise InvalidOption(option=key, value=value, expected="Properties are texts, e.g. 'true'.")
        if known in SWITCHES and value.lower() not in ("true", "false"):
            raise InvalidOption(option=key, value=value, expected="It is true or false.")
        if found.setdefault(known, value) != value:
            raise InvalidOption(option=key, value=value, expected=f"It is given twice: once as {found[known]!r}.")
    return found


def canonical_keys(keys: Iterable[str]) -> list[str]:
    """Return keys as they are stored."""
    return [canonical_key(key) for key in keys]


def is_on(properties: Mapping[str, str], key: str) -> bool:
    """Tell whether a switch is true; its key is spelled as it is stored."""
    return properties.get(key, "").lower() == "true"
