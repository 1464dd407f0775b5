"""The storage options of a table as options of Spark's readers and writers, which pass them on to Hadoop.

So one set of options serves the log and the data files, and the session needs no credentials. They are set for the
bucket of the table alone, and win over settings of the session.

Source: docs/guide/cluster.md#object-stores
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import urlsplit

from widen.iceberg.storage_options import open_store
from widen.log.store.log_store import LogStore
from widen.spark.session import is_driver
from widen.spark.spark_types import SparkSession

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
