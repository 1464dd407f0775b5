"""Manifests: lists of files that Spark trusts, so that it does not look every file up in the store.

A manifest is a directory with a log like that of Spark's file sink; a scan of such a directory lists no files.

Source: Spark's file sink log (``_spark_metadata``), which readers have followed since Spark 2.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache

import msgspec
from pyspark.sql import SparkSession

from widen.errors import StorageError
from widen.log.store.log_store import LogStore
from widen.log.write.staged_files import SCANS

IGNORED = "spark.sql.streaming.fileStreamSink.metadata.ignored"
"""Spark's setting to ignore such logs."""

_SINK_LOG = "_spark_metadata/0"
_BLOCK_BYTES = 128 * 1024 * 1024


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    size: int
    modification_time: int
    is_dir: bool = False
    block_replication: int = 1
    block_size: int = _BLOCK_BYTES
    action: str = "add"


def write_manifest(spark: SparkSession, store: LogStore, files: Iterable[tuple[str, int, int]]) -> str | None:
    """Write a manifest and return the path for Spark to read, or None if manifests cannot be used.

    The same files result in the same manifest. Manifests of local tables are removed when the process ends.

    Args:
        files: The URI in Spark's spelling, the size in bytes and the modification time in ms of each file.
    """
    if spark.conf.get(IGNORED, "false") == "true":
        return None
    lines = [_Line(path, size, modified) for path, size, modified in files]
    content = b"v1\n" + _encoder.encode_lines(lines).rstrip(b"\n")
    name = hashlib.sha256(content).hexdigest()[:32]
    if store.is_local and "=" not in store.location:
        return _write_local(name, content)
    try:
        store.put(f"{SCANS}/{name}/{_SINK_LOG}", content)
    except StorageError:
        return None
    return store.uri(f"{SCANS}/{name}")


_encoder = msgspec.json.Encoder()


def _write_local(name: str, content: bytes) -> str | None:
    path = os.path.join(_folder(), name)
    target = os.path.join(path, _SINK_LOG)
    try:
        if not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target + ".part", "wb") as file:
                file.write(content)
            # Another thread may read the same manifest meanwhile.
            os.replace(target + ".part", target)
    except OSError:
        return None
    return f"file://{path}"


@cache
def _folder() -> str:
    path = tempfile.mkdtemp(prefix="widen-scans-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
