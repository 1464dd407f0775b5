"""Files of a source that change after they are listed: what was read of them may be the half of a file, or of two."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from widen.errors import CorruptFile, SourceChanged, WidenError
from widen.spark.session import is_driver
from widen.spark.source.source_files import SourceFile, as_literal, drop_repeated, list_files, to_source_files
from widen.spark.spark_errors import translate_spark_errors

_LOCAL = re.compile(r"file:/+([A-Za-z0-9/._=,@+-]+)")
"""URIs of local files without escapes."""


def list_new_files(files: DataFrame) -> list[SourceFile]:
    """Return the files of a micro-batch as values, sorted by name.

    Args:
        files: The columns of `widen.spark.source.source_files.list_files`.

    Raises:
        SourceChanged: a file was deleted after the stream had found it.
    """
    try:
        with translate_spark_errors():
            return drop_repeated(to_source_files(files))
    except CorruptFile as error:
        raise SourceChanged(path=error.fields["path"], change="was deleted", fix=_REPLACE) from error


_REPLACE = "Restore it, or put an empty file there if its records are not needed, and start the stream again."
_WAIT = (
    "What was read of it may be incomplete. Ingest again when it is complete. Give files that are being written names "
    "that begin with a dot or an underscore: those are not read."
)


@contextmanager
def unchanged_files(spark: SparkSession, files: Sequence[SourceFile]) -> Iterator[None]:
    """Check after the body that has read files that they are still as they were listed, also if it failed.

    Raises:
        SourceChanged: a file was deleted, or has another size or time of modification.
    """
    with explain_changes(spark, files):
        yield
    ensure_unchanged(spark, files)


@contextmanager
def explain_changes(spark: SparkSession, files: Sequence[SourceFile]) -> Iterator[None]:
    """Raise `SourceChanged` instead of an error of the body if files are no longer as they were listed.

    Raises:
        SourceChanged: a file was deleted, or has another size or time of modification.
    """
    try:
        yield
    except SourceChanged:
        raise
    except WidenError as error:
        for path, change in find_changes(spark, files).items():
            raise SourceChanged(path=path, change=change, fix=_WAIT) from error
        raise


def ensure_unchanged(spark: SparkSession, files: Sequence[SourceFile]) -> None:
    """Check that files are still as they were listed.

    Raises:
        SourceChanged: a file was deleted, or has another size or time of modification.
    """
    for path, change in find_changes(spark, files).items():
        raise SourceChanged(path=path, change=change, fix=_WAIT)


def find_changes(spark: SparkSession, files: Sequence[SourceFile]) -> Mapping[str, str]:
    """Return what happened to the files that are not as they were listed, by their paths."""
    states = _local_states(files) if is_driver(spark) else None
    if states is None:
        states = _states(spark, [file for file in files if file.size_bytes])
    # An empty file may stay or go: it has no records, and a listing by a Spark job leaves it out.
    changes = ((file.path, _describe(file, states.get(file.path))) for file in files if file.size_bytes)
    return {path: change for path, change in changes if change}


def _describe(file: SourceFile, state: tuple[int, int] | None) -> str:
    if state is None:
        return "was deleted"
    size_bytes, modified_ms = state
    if size_bytes != file.size_bytes:
        return f"has {size_bytes:,} bytes, not {file.size_bytes:,}"
    return "was written again" if modified_ms != file.modified_ms else ""


def _local_states(files: Sequence[SourceFile]) -> dict[str, tuple[int, int]] | None:
    """Return sizes and times of the files that exist; None if Spark has to list them."""
    states = {}
    for file in files:
        match = _LOCAL.fullmatch(file.uri)
        if match is None:
            return None
        try:
            found = os.stat(f"/{match[1]}")
        except OSError:
            continue
        states[file.path] = found.st_size, found.st_mtime_ns // 1_000_000
    return states


def _states(spark: SparkSession, files: Sequence[SourceFile]) -> dict[str, tuple[int, int]]:
    """Return sizes and times of the files that exist, as Spark lists them."""
    paths = [as_literal(file.path) for file in files]
    try:
        listed = to_source_files(list_files(spark.read.format("binaryFile").load(paths))) if paths else []
    except PySparkException:
        if len(files) <= 1:
            return {}
        middle = len(files) // 2  # the listing fails for a missing file
        return _states(spark, files[:middle]) | _states(spark, files[middle:])
    return {file.path: (file.size_bytes, file.modified_ms) for file in listed}
