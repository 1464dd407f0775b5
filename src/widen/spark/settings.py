"""The settings of a Spark session that Delta Lake defines for writes and new tables.

Source: Delta Spark's configuration of schema evolution
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from urllib.parse import urlsplit

from widen.iceberg.catalog import open_store
from widen.log.log_store import LogStore
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_key, is_property
from widen.schema.source_metadata import AutomaticWidening, parse_automatic_widening
from widen.spark.errors import ignore_failed_cleanup
from widen.spark.session import find_active, is_driver
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


def is_setting_on(spark: SparkSession | None, setting: str) -> bool:
    """Return whether a setting that is true by default is true in a session, or in the active one; starts none.

    Args:
        setting: `FAST_DROP`, `RETENTION_CHECK`, or another one that Delta Spark has with this default.
    """
    active = spark or find_active()
    return active is None or str(active.conf.get(setting, "true")).lower() != "false"


# The storage options of a table as options of Spark's readers and writers, which pass them on to Hadoop.
#
# So one set of options serves the log and the data files, and the session needs no credentials. They are set for
# the bucket of the table alone, and win over settings of the session.
#
# Source: docs/guide/cluster.md#object-stores


_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_PREFIX = "aws_"


def _flag(text: str) -> bool:
    return text.lower() in ("true", "1", "yes", "on", "y")


_TEXTS: Mapping[str, str] = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "token": "session.token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "region": "endpoint.region",
    "default_region": "endpoint.region",
}
"""Options of object_store, without the prefix, with the settings of S3A that have the same values."""

_FLAGS: Mapping[str, tuple[str, Callable[[bool], str | None]]] = {
    "virtual_hosted_style_request": ("path.style.access", lambda is_on: "false" if is_on else "true"),
    "skip_signature": ("aws.credentials.provider", lambda is_on: _ANONYMOUS if is_on else None),
}
"""Switches of object_store with the settings of S3A and their values."""


def hadoop_options(store: LogStore) -> dict[str, str]:
    """Return the options with which Spark reads and writes the files of a table.

    Args:
        store: The store of the table. Only S3 has such options; Azure and Google need settings of the session.
    """
    parts = urlsplit(store.location)
    if parts.scheme != "s3" or not store.storage_options:
        return {}
    settings: dict[str, str] = {}
    for key, value in store.storage_options.items():
        name = key.lower().removeprefix(_PREFIX)
        if name in _TEXTS:
            settings[_TEXTS[name]] = str(value)
        elif name in _FLAGS:
            setting, to_value = _FLAGS[name]
            mapped = to_value(_flag(str(value)))
            settings |= {} if mapped is None else {setting: mapped}
    if "endpoint" in settings:  # object_store addresses buckets of other servers by path
        settings.setdefault("path.style.access", "true")
        settings["connection.ssl.enabled"] = "false" if settings["endpoint"].startswith("http://") else "true"
    if "access.key" in settings:  # without this, S3A would look for credentials elsewhere first
        kind = "Temporary" if "session.token" in settings else "Simple"
        settings["aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"
    return {f"fs.s3a.bucket.{parts.netloc}.{name}": value for name, value in settings.items()}


def options_of_files(uris: Iterable[str], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options with which Spark reads files of an Iceberg table, which may be in several buckets."""
    buckets = {f"s3://{parts.netloc}" for uri in uris if (parts := urlsplit(uri)).scheme in _S3}
    stores = (open_store(bucket, properties) for bucket in sorted(buckets))
    return {name: value for store in stores for name, value in hadoop_options(store).items()}


def with_store_settings(
    spark: SparkSession, places: Iterable[str], storage_options: Mapping[str, str] | None
) -> SparkSession:
    """Return a session that opens places in S3 with storage options, which a checkpoint takes from its session alone.

    The session is a new one with the settings of the given one, which is left as it is. With Spark Connect, and
    without a place in S3, the given one is returned.

    Args:
        places: Sources and checkpoints.
    """
    store_settings: dict[str, str] = {}
    for place in places:
        if storage_options and urlsplit(place).scheme in _S3:
            store_settings |= hadoop_options(LogStore(place, storage_options))
    if not store_settings or not is_driver(spark):
        return spark
    session = spark.newSession()
    given = {key: value for key, value in spark.conf.getAll.items() if spark.conf.isModifiable(key)}
    for key, value in {**given, **store_settings, "fs.s3.impl": _S3A}.items():
        session.conf.set(key, value)
    return session


_S3 = ("s3", "s3a")
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
"""Hadoop itself knows ``s3a`` only."""


# Settings of a session that jobs of Widen need, whatever the user has set.
#
# Data files are read and written in Parquet's calendar, and a file that cannot be read is an error.
#
# Source: Spark's settings of datetimeRebaseMode, int96RebaseMode, ignoreMissingFiles and ignoreCorruptFiles


class PinnedSettings:
    """Settings that Spark reads only from the session, not from options of a job.

    Counts the jobs of each session that need them, so that the last one to end restores what the user has set.

    Args:
        values: The values that the jobs need.
        defaults: The values of Spark where they are not set.
    """

    def __init__(self, values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
        self._values = values
        self._defaults = defaults
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, dict[str, str]]] = {}

    @contextmanager
    def pin(self, spark: SparkSession) -> Iterator[None]:
        """Override the settings of a session while this is open."""
        self._begin(spark)
        try:
            yield
        finally:
            with ignore_failed_cleanup():
                self._end(spark)

    def _begin(self, spark: SparkSession) -> None:
        with self._lock:
            count, overridden = self._open.get(id(spark), (0, {}))
            if not count:
                for key, needed in self._values.items():
                    value = spark.conf.get(key, self._defaults[key])
                    if value and value.upper() != needed.upper():
                        overridden[key] = value
                        spark.conf.set(key, needed)
            self._open[id(spark)] = (count + 1, overridden)

    def _end(self, spark: SparkSession) -> None:
        with self._lock:
            count, overridden = self._open.pop(id(spark))
            if count > 1:
                self._open[id(spark)] = (count - 1, overridden)
                return
            for key, value in overridden.items():
                spark.conf.set(key, value)


_PLAN_CACHE = "spark.connect.session.planCache.enabled"
_uncached = PinnedSettings({_PLAN_CACHE: "false"}, {_PLAN_CACHE: "true"})


def observable_jobs(spark: SparkSession) -> AbstractContextManager[None]:
    """Make jobs return their observations while this is open.

    A server of Spark Connect 4.0 returns none for a frame whose columns a client has asked for: it runs the plan that
    it has analyzed for that and cached.
    """
    return nullcontext() if is_driver(spark) or not spark.version.startswith("4.0.") else _uncached.pin(spark)


SKIP_NO_FILE: Mapping[str, str] = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    # Nearly all writers of Parquet store a checksum of each page, and few readers look at it by default: a flipped bit
    # in an integer is another integer.
    "parquet.page.verify-checksum.enabled": "true",
}
"""The options of Spark's readers for which a missing or damaged file is an error, whatever the session says.

An ingestion that skipped a file would record it as loaded, and a change of a table would commit the loss of its rows.
"""

READ_OPTIONS: Mapping[str, str] = {
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    **SKIP_NO_FILE,
}
"""The options of Spark's reader for data files. A footer that names another calendar takes precedence."""

_WRITE_SETTINGS = {f"spark.sql.parquet.{kind}RebaseModeInWrite": "CORRECTED" for kind in ("datetime", "int96")}
_proleptic = PinnedSettings(_WRITE_SETTINGS, _WRITE_SETTINGS)


def proleptic_writes(spark: SparkSession) -> AbstractContextManager[None]:
    """Make Spark write files in Parquet's calendar while this is open."""
    return _proleptic.pin(spark)
