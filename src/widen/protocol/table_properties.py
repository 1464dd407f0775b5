"""The table properties of Delta Lake: their keys, whose case does not matter in requests, and their valid values.

Source: Delta Lake's table properties
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from string import whitespace

from widen.errors import InvalidOption
from widen.model.display import did_you_mean
from widen.model.value_classes import dataclass

CONSTRAINT_PREFIX, FEATURE_PREFIX = "delta.constraints.", "delta.feature."
_FREE_PREFIXES = (CONSTRAINT_PREFIX, FEATURE_PREFIX)
"""Prefixes of keys that are checked elsewhere."""
_FOLDED_PREFIXES = (FEATURE_PREFIX, "delta.universalformat.")

ENABLE_CHANGE_DATA_FEED = "delta.enableChangeDataFeed"
ENABLE_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
TIMESTAMPS_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
TIMESTAMPS_SINCE_MS = "delta.inCommitTimestampEnablementTimestamp"
ENABLE_TYPE_WIDENING = "delta.enableTypeWidening"
TYPE_WIDENING_INTENT, WHEN_NEEDED = "widen.typeWidening", "whenNeeded"
"""The property, and its value, of a table whose first type change turns on type widening.

Until then its protocol lists no feature for it, so that clients without the feature can read the table.
"""
ENABLE_DELETION_VECTORS = "delta.enableDeletionVectors"
MATERIALIZE_PARTITIONS = "delta.enableMaterializePartitionColumnsFeature"
WRITE_PARTITIONS = "delta.writePartitionColumnsToParquet"
CHECKPOINT_POLICY, CLASSIC, V2 = "delta.checkpointPolicy", "classic", "v2"
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
    ENABLE_DELETION_VECTORS,
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.enableIcebergCompatV1",
    "delta.enableIcebergCompatV2",
    "delta.enableIcebergCompatV3",
    ENABLE_IN_COMMIT_TIMESTAMPS,
    MATERIALIZE_PARTITIONS,
    "delta.enableRowTracking",
    ENABLE_TYPE_WIDENING,
    "delta.enableVariantShredding",
    "delta.randomizeFilePrefixes",
    "delta.rowTrackingSuspended",
    WRITE_PARTITIONS,
)
"""The boolean properties."""

OTHERS: tuple[str, ...] = (
    "delta.checkpointInterval",
    CHECKPOINT_POLICY,
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

_BY_FOLDED: Mapping[str, str] = {key.lower(): key for key in (*SWITCHES, *OTHERS, TYPE_WIDENING_INTENT)}


def canonical_key(key: str) -> str:
    """Return a key as it is stored: that of a property of Delta Lake, or `TYPE_WIDENING_INTENT`, in its own spelling,
    any other key unchanged.

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
    """Return whether a key is a property of Delta Lake or `TYPE_WIDENING_INTENT`, compared without case."""
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
        """Return whether the property can have the value."""
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
    CHECKPOINT_POLICY: AllowedValues(f"{CLASSIC}|{V2}", f"Must be {CLASSIC} or {V2}."),
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
    TYPE_WIDENING_INTENT: AllowedValues(WHEN_NEEDED, f"Must be {WHEN_NEEDED}."),
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
    advice = did_you_mean(key, _BY_FOLDED.values()).rstrip() or "Custom keys must not begin with delta."
    raise InvalidOption(option=key, value=value, expected=f"Delta Lake does not know this property. {advice}")


def canonical_keys(keys: Iterable[str]) -> list[str]:
    """Return keys as they are stored."""
    return [canonical_key(key) for key in keys]


def is_on(properties: Mapping[str, str], key: str) -> bool:
    """Return whether a boolean property is true; the key must be spelled as it is stored."""
    return properties.get(key, "").lower() == "true"


def widens_when_needed(properties: Mapping[str, str]) -> bool:
    """Return whether the first type change of a table turns on type widening.

    A table that sets ``delta.enableTypeWidening``, even to false, has decided already.
    """
    return properties.get(TYPE_WIDENING_INTENT) == WHEN_NEEDED and ENABLE_TYPE_WIDENING not in properties


def with_type_widening(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with type widening enabled, in place of the intent.

    The intent does not stay: a table whose feature is dropped later must not get it again with the next type change.
    """
    others = {key: text for key, text in properties.items() if key != TYPE_WIDENING_INTENT}
    return {**others, ENABLE_TYPE_WIDENING: "true"}


# Durations in table properties: ``interval 30 days``, ``2 weeks``, ``INTERVAL 1 day 12 hours``.
#
# Source: Spark's calendar intervals; months and years are not supported, because their length varies.


LOG_RETENTION = "delta.logRetentionDuration"
DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
TRUNCATE_HISTORY_RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"

DEFAULTS: Mapping[str, str] = {
    LOG_RETENTION: "interval 30 days",
    DELETED_FILE_RETENTION: "interval 7 days",
    TRUNCATE_HISTORY_RETENTION: "interval 24 hours",
    "delta.checkpointRetentionDuration": "interval 2 days",
    "delta.sampleRetentionDuration": "interval 7 days",
    "delta.setTransactionRetentionDuration": "interval 36500 days",
}
"""The properties that are durations, with their defaults."""

_UNITS_US: Mapping[str, int] = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([+-]?)\s*(\d+)(?:\.(\d{1,9}))?\s+([a-z]+?)s?(?:\s+|$)", re.ASCII)
_WORD = re.compile(r"interval\s+", re.ASCII)
_LIMIT_US = 2**63
"""Delta Lake reads an interval as this many microseconds at most; a longer one would lock it out of the table."""


def parse_duration_ms(text: str) -> int | None:
    """Return an interval in milliseconds, or None if the text is not an interval of fixed length.

    Example:
        >>> parse_duration_ms("interval 1 day 12 hours")
        129600000
        >>> parse_duration_ms("interval 1 month") is None
        True
    """
    lower = text.strip(whitespace).lower()
    prefix = _WORD.match(lower)
    position, total_us = prefix.end() if prefix else 0, 0
    while part := _PART.match(lower, position):
        sign, whole, fraction, unit = part.groups()
        if unit not in _UNITS_US or (fraction and unit != "second"):
            return None
        part_us = int(whole) * _UNITS_US[unit] + int((fraction or "").ljust(6, "0")[:6])
        total_us += -part_us if sign == "-" else part_us
        position = part.end()
        if position == len(lower):
            return total_us // 1000 if 0 <= total_us < _LIMIT_US else None
    return None


_AGE = re.compile(r"(\d+)\s*([hdw])", re.ASCII)
_AGE_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def parse_age_ms(text: str) -> int | None:
    """Return a time such as 90d, 12h, 2w or an interval in milliseconds, or None if the text is neither."""
    match = _AGE.fullmatch(text.strip())
    return parse_duration_ms(text if match is None else f"{match[1]} {_AGE_UNITS[match[2]]}")


def duration_text(properties: Mapping[str, str], key: str) -> str:
    """Return a duration for messages, e.g. ``30 days``."""
    return _WORD.sub("", properties.get(key, DEFAULTS[key]).strip().lower(), count=1)


def ensure_retention(properties: Mapping[str, str]) -> None:
    """Check that the log is kept at least as long as deleted files.

    Raises:
        InvalidOption: the log is kept for a shorter time, or a retention is not an interval.

    Source: Delta Lake's DeltaConfigs
    """
    if duration_ms(properties, DELETED_FILE_RETENTION) > duration_ms(properties, LOG_RETENTION):
        files, log = (duration_text(properties, key) for key in (DELETED_FILE_RETENTION, LOG_RETENTION))
        expected = f"Must not be longer than {LOG_RETENTION}, which is {log}."
        raise InvalidOption(option=DELETED_FILE_RETENTION, value=files, expected=expected)


def duration_ms(properties: Mapping[str, str], key: str) -> int:
    """Return a duration in milliseconds.

    Raises:
        InvalidOption: the value is not an interval of fixed length.
    """
    text = properties.get(key, DEFAULTS[key])
    duration = parse_duration_ms(text)
    if duration is None:
        expected = "Must be an interval of weeks, days, hours or shorter units, e.g. 'interval 30 days'."
        raise InvalidOption(option=key, value=text, expected=expected)
    return duration


TARGET_BYTES = 2**30
"""The default size of files."""
