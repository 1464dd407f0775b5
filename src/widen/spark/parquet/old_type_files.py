"""Old files: those that hold a type from before a widening, found by looking into the footers of all others too.

This module needs no Spark: it looks in this process, by some threads.

Source: PROTOCOL.md#writer-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import msgspec
import pyarrow as pa

from widen import errors
from widen.errors import CorruptFile, StorageError
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.column_path import Path
from widen.model.types import StructType
from widen.protocol.column_mapping import mapping_mode
from widen.spark.parquet.physical_types import old_types

_THREADS = 16


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that holds an old type.

    Args:
        path: As in the log.
        size_bytes: Its length.
        rows: How many rows it has, deleted ones included.
        types: The old type of each leaf by its logical path, in Spark SQL.
    """

    path: str
    size_bytes: int
    rows: int
    types: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class OldType:
    """How much of a column still stands in an old type.

    Args:
        path: The logical path of the leaf.
        type: The old type in Spark SQL.
        files: In how many files.
        size_bytes: Their size.
    """

    path: Path
    type: str
    files: int
    size_bytes: int


def find_old_files_locally(snapshot: Snapshot, files: pa.Table) -> list[OldFile]:
    """Return those of some files that hold an old type, in the order of the list.

    Args:
        snapshot: The version whose types are compared.
        files: Rows of its list of files.

    Raises:
        CorruptFile: a file is no Parquet.
        StorageError: the store refused.
    """
    listed = zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)
    return unpack_findings(read_footer_findings(footer_reader(snapshot), list(listed)))


def summarize_old_types(files: Iterable[OldFile]) -> list[OldType]:
    """Return how much of each column stands in each old type, in the order of paths and types."""
    found: dict[tuple[Path, str], tuple[int, int]] = {}
    for file in files:
        for key in file.types.items():
            count, size_bytes = found.get(key, (0, 0))
            found[key] = (count + 1, size_bytes + file.size_bytes)
    return [OldType(*key, *found[key]) for key in sorted(found)]


class _OldFileFinding(msgspec.Struct, frozen=True):
    path: str
    size_bytes: int
    rows: int
    types: list[tuple[tuple[str, ...], str]]


class _FailedFinding(msgspec.Struct, frozen=True):
    kind: str
    fields: dict[str, str]


FooterFinding: TypeAlias = tuple[str | None, str | None]
"""What there is to tell of a file, and why it could not be read, as JSON; two nulls if it holds no old type."""

FooterReader: TypeAlias = Callable[[str, int], FooterFinding]
"""Looks into the file of a path in the log and of a size in bytes."""


def footer_reader(snapshot: Snapshot) -> FooterReader:
    """Return what looks into a file, here or on an executor."""
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    return partial(_read_finding, snapshot.store, snapshot.schema, mode)


def _read_finding(store: LogStore, schema: StructType, mode: str, path: str, size_bytes: int) -> FooterFinding:
    try:
        rows, types = old_types(store, schema, mode, store.plain(path))
    except (CorruptFile, StorageError) as error:
        fields = {key: str(value) for key, value in error.fields.items()}
        return None, msgspec.json.encode(_FailedFinding(type(error).__name__, fields)).decode()
    if not types:
        return None, None
    found = _OldFileFinding(path, size_bytes, rows, [(leaf, old.sql) for leaf, old in types.items()])
    return msgspec.json.encode(found).decode(), None


def read_footer_findings(look: FooterReader, listed: Sequence[tuple[str, int]]) -> list[FooterFinding]:
    """Return what there is to tell of files, in their order."""
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(lambda file: look(*file), listed))


def unpack_findings(told: Iterable[FooterFinding]) -> list[OldFile]:
    """Return the files that were told of, in their order.

    Raises:
        CorruptFile: one could not be read.
        StorageError: likewise.
    """
    files = []
    for found, failed in told:
        if failed is not None:
            error = msgspec.json.decode(failed, type=_FailedFinding)
            raise getattr(errors, error.kind)(**error.fields)
        if found is not None:
            file = msgspec.json.decode(found, type=_OldFileFinding)
            files.append(OldFile(file.path, file.size_bytes, file.rows, dict(file.types)))
    return files
