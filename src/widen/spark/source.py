"""Sources: files of JSON as a DataFrame of texts, one JSON value each.

A small file is read whole and taken apart on the executors, whatever form it has. A large one is read line by line
where it holds a record on each, so that its parts can be read in parallel, and whole otherwise.

Source: house rule: one raw batch, read on the executors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import SourceError

WHOLE_BYTES = 8 * 2**20
"""Files up to this size are read whole."""

NAMED_FILES = 1_000
"""Up to how many files are named one by one, so that no pass over the batch sees one that came later."""

JSON_NAMES = (".json", ".jsonl", ".ndjson")
PACKED_NAMES = ("", ".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy")

TEXT, FILE, PART, WHOLE = "text", "file", "part", "whole"
"""The columns of a raw batch: the bytes, the file they are from, where in the file the split of a large file begins
(in bytes), and whether the bytes are a whole file or one line of it."""

_HEAD_CHUNKS = 200


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source: its URI and its size in bytes."""

    path: str
    size_bytes: int

    @property
    def is_json(self) -> bool:
        """Whether its name says that it holds JSON."""
        name = self.path.rsplit("/", 1)[-1].lower()
        return any(name.endswith(json_name + packed) for json_name in JSON_NAMES for packed in PACKED_NAMES)


@dataclass(frozen=True, slots=True)
class Source:
    """The files of one interval.

    Args:
        roots: What the caller named: files, directories and patterns.
        files: The files to read, by name.
        left_out: Files beside them in a directory that are no JSON by their names.
    """

    roots: tuple[str, ...]
    files: tuple[SourceFile, ...]
    left_out: tuple[str, ...] = ()


def find_source(spark: SparkSession, paths: Sequence[str]) -> Source:
    """Return the files that the paths name.

    Args:
        spark: The session that lists them.
        paths: Files, directories (with all below them) and glob patterns. In a directory only files named
            ``.json``, ``.jsonl`` or ``.ndjson`` count, packed or not, if there is any.

    Raises:
        SourceError: a path does not exist or cannot be listed, or there is no file, or nothing in them.
    """
    frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        rows = frame.load(list(paths)).select("path", "length").collect()
    except PySparkException as error:
        raise _unusable(paths, _reason(error), "Check the path and that it may be read.") from error
    found = sorted((SourceFile(row["path"], row["length"]) for row in rows), key=lambda f: f.path)
    named = [f for f in found if f.is_json]
    chosen = named or found
    if not any(f.size_bytes for f in chosen):
        raise _unusable(paths, "there is nothing in it" if chosen else "there is no file", "Give it JSON records.")
    return Source(tuple(paths), tuple(chosen), tuple(f.path for f in found if f not in chosen))


def read_texts(spark: SparkSession, source: Source) -> DataFrame:
    """Return the raw batch of a source: the columns `TEXT`, `FILE`, `PART` and `WHOLE`."""
    small = [f.path for f in source.files if f.size_bytes <= WHOLE_BYTES]
    large = [f.path for f in source.files if f.size_bytes > WHOLE_BYTES]
    if large and not _has_lines(spark, large[0]):
        small, large = small + large, []
    parts = [(paths, whole) for paths, whole in ((small, True), (large, False)) if paths]
    if len(source.files) > NAMED_FILES and len(parts) == 1 and not source.left_out:
        return _frame(spark, list(source.roots), whole=parts[0][1])
    return reduce(DataFrame.unionAll, (_frame(spark, [*map(_escaped, paths)], whole=whole) for paths, whole in parts))


def _frame(spark: SparkSession, paths: list[str], *, whole: bool) -> DataFrame:
    texts = spark.read.text(paths, wholetext=whole, recursiveFileLookup=True)
    return texts.select(
        F.col("value").cast("binary").alias(TEXT),
        F.col("_metadata.file_path").alias(FILE),
        F.col("_metadata.file_block_start").alias(PART),
        F.lit(whole).alias(WHOLE),
    )


def _escaped(path: str) -> str:
    """Return a path in which no character is taken for a pattern."""
    return "".join("\\" + c if c in "*?[]{}\\" else c for c in path)


def _has_lines(spark: SparkSession, path: str) -> bool:
    """Tell whether a large file holds one JSON value a line, from its first commas, without reading on."""
    chunks = spark.read.text(_escaped(path), lineSep=",").limit(_HEAD_CHUNKS).collect()
    head = ",".join(row["value"] for row in chunks).lstrip("\ufeff \t\r\n")
    if head.startswith("["):
        return False
    line, newline, _ = head.partition("\n")
    return not newline or _is_json(line)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


def _reason(error: PySparkException) -> str:
    return str(error).partition("\n")[0][:300]


def _unusable(paths: Sequence[str], reason: str, fix: str) -> SourceError:
    return SourceError(source=", ".join(paths), reason=reason.rstrip("."), fix=fix)
