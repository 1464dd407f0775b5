"""Old files: files that hold a type from before a widening, found by reading the footers of all files.

This module does not need Spark: threads of this process read the footers.

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
        rows: The number of rows, deleted ones included.
        types: The old type of each leaf in Spark SQL, by logical path.
    """

    path: str
    size_bytes: int
    rows: int
    types: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class OldType:
    """How much of a column is still stored in an old type.

    Args:
        path: The logical path of the leaf.
        type: The old type in Spark SQL.
    """

    path: Path
    type: str
    files: int
    size_bytes: int


def find_old_files_locally(snapshot: Snapshot, files: pa.Table) -> list[OldFile]:
    """Return the files that hold an old type, in the order of the list.

    Args:
        snapshot: The version whose types are compared.
        files: Rows of its list of files.

    Raises:
        CorruptFile: a file is not Parquet.
    """
    listed = zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True)
    return unpack_findings(read_footer_findings(footer_reader(snapshot), list(listed)))


def summarize_old_types(files: Iterable[OldFile]) -> list[OldType]:
    """Return how much of each column is stored in each old type, sorted by path and type."""
    totals: dict[tuple[Path, str], tuple[int, int]] = {}
    for file in files:
        for key in file.types.items():
            count, size_bytes = totals.get(key, (0, 0))
            totals[key] = (count + 1, size_bytes + file.size_bytes)
    return [OldType(*key, *totals[key]) for key in sorted(totals)]


class _OldFileFinding(msgspec.Struct, frozen=True):
    path: str
    size_bytes: int
    rows: int
    types: list[tuple[tuple[str, ...], str]]


class _FailedFinding(msgspec.Struct, frozen=True):
    kind: str
    fields: dict[str, str]


FooterFinding: TypeAlias = tuple[str | None, str | None]
"""The old file, or the error of an unreadable file, as JSON; two nulls if the file holds no old type."""

FooterReader: TypeAlias = Callable[[str, int], FooterFinding]
"""Reads the footer of a file, given its path in the log and its size in bytes."""


def footer_reader(snapshot: Snapshot) -> FooterReader:
    """Return a picklable function that reads the footer of a file."""
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
    finding = _OldFileFinding(path, size_bytes, rows, [(leaf, old.sql) for leaf, old in types.items()])
    return msgspec.json.encode(finding).decode(), None


def read_footer_findings(read: FooterReader, listed: Sequence[tuple[str, int]]) -> list[FooterFinding]:
    """Return the findings of files, in their order."""
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(lambda file: read(*file), listed))


def unpack_findings(findings: Iterable[FooterFinding]) -> list[OldFile]:
    """Return the old files among findings, in their order.

    Raises:
        CorruptFile: a file is not Parquet.
    """
    files = []
    for found, failed in findings:
        if failed is not None:
            error = msgspec.json.decode(failed, type=_FailedFinding)
            raise getattr(errors, error.kind)(**error.fields)
        if found is not None:
            file = msgspec.json.decode(found, type=_OldFileFinding)
            files.append(OldFile(file.path, file.size_bytes, file.rows, dict(file.types)))
    return files
