"""Table properties that Delta knows: their keys as they are stored, whatever the case they are given in.

Source: Delta Lake's table properties
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from widen.errors import InvalidOption

CONSTRAINT_PREFIX, FEATURE_PREFIX = "delta.constraints.", "delta.feature."
_FREE_PREFIXES = (CONSTRAINT_PREFIX, FEATURE_PREFIX)
"""What begins keys that somebody else checks."""
_FOLDED_PREFIXES = (FEATURE_PREFIX, "delta.universalformat.")

ENABLE_CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
ENABLE_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
TIMESTAMPS_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
TIMESTAMPS_SINCE_MS = "delta.inCommitTimestampEnablementTimestamp"
ENABLE_TYPE_WIDENING = "delta.enableTypeWidening"
UNIFORM_FORMATS = "delta.universalFormat.enabledFormats"

SWITCHES: tuple[str, ...] = (
    "delta.appendOnly",
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.castIcebergTimeType",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.compatibility.symlinkFormatManifest.enabled",
    ENABLE_CHANGE_DATA_FEED,
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
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


@dataclass(frozen=True, slots=True)
class Values:
    """Which values a property may have.

    Args:
        pattern: What the text must match as a whole; case does not count.
        least: The least number, where it must be one.
        expected: What is told to somebody who gives another one.
    """

    pattern: str
    expected: str
    least: int | None = None

    def allow(self, value: str) -> bool:
        """Tell whether the property may have a value."""
        if not re.fullmatch(self.pattern, value):
            return False
        return self.least is None or int(value) >= self.least


def _number(least: int) -> Values:
    return Values(r"[+-]?\d{1,18}", f"Must be an integer >= {least}.", least)


_FORMAT = r"\s*(?:hudi|iceberg)\s*"
_SWITCH = Values("(?i:true|false)", "Must be true or false.")

VALUES: Mapping[str, Values] = MappingProxyType(
    {
        **dict.fromkeys(SWITCHES, _SWITCH),
        "delta.checkpointInterval": _number(1),
        "delta.checkpointPolicy": Values("classic|v2", "Must be classic or v2."),
        "delta.dataSkippingNumIndexedCols": _number(-1),
        "delta.dataSkippingStringPrefixLength": _number(0),
        "delta.isolationLevel": Values("(?i:serializable)", "Must be Serializable."),
        "delta.minReaderVersion": Values("[1-3]", "Must be 1, 2 or 3."),
        "delta.minWriterVersion": Values("[1-7]", "Must be an integer from 1 to 7."),
        "delta.parquet.format.version": Values(r"\d+\.\d+\.\d+", "Must be a version of Parquet, e.g. 2.12.0."),
        "delta.randomPrefixLength": _number(1),
        "delta.requireCheckpointProtectionBeforeVersion": _number(0),
        TIMESTAMPS_SINCE_MS: _number(0),
        TIMESTAMPS_SINCE_VERSION: _number(0),
        UNIFORM_FORMATS: Values(rf"(?i:\s*|{_FORMAT}(?:,{_FORMAT})*)", "Must be iceberg or hudi."),
    }
)
"""The values that Delta Lake allows, by the keys; of keys that are not here every text.

Source: Delta Lake's DeltaConfigs
"""


def canonical_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with their keys as they are stored.

    Raises:
        InvalidOption: Two keys are one, a key of Delta does not exist, or it does not allow the value.

    Source: Delta Lake's DeltaConfigs, which it checks a command by
    """
    found: dict[str, str] = {}
    for key, value in properties.items():
        known = canonical_key(key)
        if not isinstance(value, str):
            raise InvalidOption(option=key, value=value, expected="Properties are texts, e.g. 'true'.")
        _ensure_known(known, value)
        values = VALUES.get(known)
        if values is not None and not values.allow(value):
            raise InvalidOption(option=key, value=value, expected=values.expected)
        if found.setdefault(known, value) != value:
            raise InvalidOption(option=key, value=value, expected=f"It is given twice: once as {found[known]!r}.")
    return found


def _ensure_known(key: str, value: str) -> None:
    folded = key.lower()
    if not folded.startswith("delta.") or folded.startswith(_FREE_PREFIXES) or folded in _BY_FOLDED:
        return
    nearest = get_close_matches(folded, _BY_FOLDED, 1, 0.75)
    advice = f"Did you mean {_BY_FOLDED[nearest[0]]}?" if nearest else "Keys of your own must not begin with delta."
    raise InvalidOption(option=key, value=value, expected=f"Delta Lake does not know this property. {advice}")


def canonical_keys(keys: Iterable[str]) -> list[str]:
    """Return keys as they are stored."""
    return [canonical_key(key) for key in keys]


def is_on(properties: Mapping[str, str], key: str) -> bool:
    """Tell whether a switch is true; its key is spelled as it is stored."""
    return properties.get(key, "").lower() == "true"
