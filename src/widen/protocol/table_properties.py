"""The table properties of Delta Lake: their keys, whose case does not matter in requests, and their valid values.

Source: Delta Lake's table properties
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from widen.errors import InvalidOption

CONSTRAINT_PREFIX, FEATURE_PREFIX = "delta.constraints.", "delta.feature."
_FREE_PREFIXES = (CONSTRAINT_PREFIX, FEATURE_PREFIX)
"""Prefixes of keys that are checked elsewhere."""
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
"""The boolean properties."""

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
"""The other properties."""

_BY_FOLDED: Mapping[str, str] = {key.lower(): key for key in (*SWITCHES, *OTHERS)}


def canonical_key(key: str) -> str:
    """Return a key as it is stored: the key of a Delta property in Delta's spelling, any other key unchanged.

    Source: Delta Spark, which also keeps the name of a constraint as given

    Example:
        >>> canonical_key("Delta.enabletypewidening")
        'delta.enableTypeWidening'
    """
    folded = key.lower()
    if folded.startswith(_FOLDED_PREFIXES) and folded not in _BY_FOLDED:
        return folded
    return _BY_FOLDED.get(folded, key)


def is_property(key: str) -> bool:
    """Tell whether a key is a property of Delta Lake, compared without case."""
    return key.lower() in _BY_FOLDED


@dataclass(frozen=True, slots=True)
class AllowedValues:
    """The valid values of a property.

    Args:
        pattern: A regular expression that the whole value must match.
        numbers: The numbers it can be, for properties that are integers.
    """

    pattern: str
    expected: str
    numbers: range | None = None

    def is_valid(self, value: str) -> bool:
        """Tell whether the property can have the value."""
        if not re.fullmatch(self.pattern, value):
            return False
        return self.numbers is None or int(value) in self.numbers


def _integer(minimum: int, bits: int = 32) -> AllowedValues:
    """Return the integers from a minimum on; other clients cannot read a table with one of more bits."""
    limit = 2 ** (bits - 1)
    expected = f"Must be an integer >= {minimum} and < {limit}."
    return AllowedValues("[+-]?[0-9]{1,19}", expected, range(minimum, limit))


_COLUMN = r"(?:`(?:[^`]|``)+`|[A-Za-z0-9_]+)"
_PATH = rf"\s*{_COLUMN}(?:\.{_COLUMN})*\s*"
_FORMAT = r"\s*(?:hudi|iceberg)\s*"
_SWITCH = AllowedValues("(?i:true|false)", "Must be true or false.")
_FEATURE = AllowedValues("(?i:supported|enabled)", "Must be supported.")

VALUES: Mapping[str, AllowedValues] = {
    **dict.fromkeys(SWITCHES, _SWITCH),
    "delta.checkpointInterval": _integer(1),
    "delta.checkpointPolicy": AllowedValues("classic|v2", "Must be classic or v2."),
    "delta.columnMapping.maxColumnId": AllowedValues("(?!)", "Delta Lake counts this itself."),
    "delta.dataSkippingNumIndexedCols": _integer(-1),
    "delta.dataSkippingStatsColumns": AllowedValues(
        rf"{_PATH}(?:,{_PATH})*", "Must be names of columns, separated by commas; put other names in backticks."
    ),
    "delta.dataSkippingStringPrefixLength": _integer(0),
    "delta.isolationLevel": AllowedValues("(?i:serializable)", "Must be Serializable."),
    "delta.minReaderVersion": AllowedValues("[1-3]", "Must be 1, 2 or 3."),
    "delta.minWriterVersion": AllowedValues("[1-7]", "Must be an integer from 1 to 7."),
    "delta.parquet.format.version": AllowedValues(r"1\.0\.0", "Must be 1.0.0, the only version that Widen writes."),
    "delta.randomPrefixLength": _integer(1),
    "delta.requireCheckpointProtectionBeforeVersion": _integer(0, 64),
    TIMESTAMPS_SINCE_MS: _integer(0, 64),
    TIMESTAMPS_SINCE_VERSION: _integer(0, 64),
    UNIFORM_FORMATS: AllowedValues(rf"(?i:\s*|{_FORMAT}(?:,{_FORMAT})*)", "Must be iceberg or hudi."),
}
"""The valid values of properties, by key. Other properties can have any value.

Source: Delta Lake's DeltaConfigs
"""


def canonical_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with their keys as they are stored.

    Raises:
        InvalidOption: a property is given twice with different values, its key is unknown, or its value is invalid.

    Source: Delta Lake's DeltaConfigs
    """
    canonical: dict[str, str] = {}
    for key, value in properties.items():
        stored_key = canonical_key(key)
        if not isinstance(value, str):
            raise InvalidOption(option=key, value=value, expected="Must be a string, e.g. 'true'.")
        _ensure_known(stored_key, value)
        values = _FEATURE if stored_key.startswith(FEATURE_PREFIX) else VALUES.get(stored_key)
        if values is not None and not values.is_valid(value):
            raise InvalidOption(option=key, value=value, expected=values.expected)
        if canonical.setdefault(stored_key, value) != value:
            expected = f"The property is given twice, also as {canonical[stored_key]!r}."
            raise InvalidOption(option=key, value=value, expected=expected)
    return canonical


def _ensure_known(key: str, value: str) -> None:
    folded = key.lower()
    if not folded.startswith("delta.") or folded.startswith(_FREE_PREFIXES) or folded in _BY_FOLDED:
        return
    nearest = get_close_matches(folded, _BY_FOLDED, 1, 0.75)
    advice = f"Did you mean {_BY_FOLDED[nearest[0]]}?" if nearest else "Custom keys must not begin with delta."
    raise InvalidOption(option=key, value=value, expected=f"Delta Lake does not know this property. {advice}")


def canonical_keys(keys: Iterable[str]) -> list[str]:
    """Return keys as they are stored."""
    return [canonical_key(key) for key in keys]


def is_on(properties: Mapping[str, str], key: str) -> bool:
    """Tell whether a boolean property is true; the key must be spelled as it is stored."""
    return properties.get(key, "").lower() == "true"
