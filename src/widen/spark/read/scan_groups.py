"""Groups: the files of a scan, split by how they have to be read; no engine is involved.

Source: PROTOCOL.md#partition-value-serialization, #deletion-vectors
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from widen.model.column_path import Path
from widen.model.types import DataType
from widen.protocol.partition_values import is_hive_path
from widen.protocol.skipping.file_selection import FileSelection
from widen.spark.parquet.physical_types import Names
from widen.spark.read.old_decimals import StoredTypes

LITERAL_PARTITIONS = 16
"""The number of partitions without directory names up to which each gets its own scan."""

LAYOUTS = 4
"""The most layouts of old types that get their own scan."""

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True)
class ScanGroup:
    """Files that can be read together.

    Args:
        files: Rows of `Snapshot.files`.
        is_hive: Whether the directories name the partition, so that Spark can read it from there.
        has_vectors: Whether all files have a deletion vector; else none has.
        values: The partition texts by physical name if all files share them; None if they are joined.
        stored: The leaves that all files store in an old type that the scan must know; None if unknown.
        names: The names that columns have in all files instead of their physical names.
    """

    files: pa.Table
    is_hive: bool
    has_vectors: bool
    values: Mapping[str, str | None] | None = None
    stored: StoredTypes | None = None
    names: Names = ()

    @cached_property
    def types(self) -> dict[Path, DataType]:
        """The known old types by logical path."""
        return dict(self.stored or ())

    @cached_property
    def renamed(self) -> dict[Path, str]:
        """The names that columns have instead of their physical names, by logical path."""
        return dict(self.names)


@dataclass(frozen=True)
class ScanPlan(FileSelection):
    """What a scan reads, planned without Spark: the files of a selection, in groups."""

    groups: tuple[ScanGroup, ...] = ()


def partition_values(files: pa.Table) -> list[dict[str, str | None]]:
    """Return the partition texts of each file by physical name."""
    return [dict(entries or ()) for entries in files["partition_values"].to_pylist()]


def group_files(scan: ScanPlan, files: pa.Table) -> Iterable[ScanGroup]:
    """Yield the groups of all files, split by deletion vectors and by the source of their partition values."""
    for has_vectors in (False, True):
        mask = files["deletion_vector"].is_valid() if has_vectors else files["deletion_vector"].is_null()
        chosen = files.filter(mask)
        if chosen.num_rows and not scan.partition_by:
            yield ScanGroup(chosen, is_hive=False, has_vectors=has_vectors, values={})
        elif chosen.num_rows:
            yield from _split_by_partition_layout(scan, chosen, has_vectors=has_vectors)


def split_group(group: ScanGroup, stored: Sequence[StoredTypes | None]) -> Iterable[ScanGroup]:
    """Yield the group split by the old types in its files; rare layouts are read like unknown ones."""
    files: dict[StoredTypes | None, int] = dict.fromkeys(stored, 0)
    for types in stored:
        files[types] += 1
    frequent = sorted((types for types in files if types is not None), key=lambda types: -files[types])[:LAYOUTS]
    layouts = [types if types in frequent else None for types in stored]
    for layout in dict.fromkeys(layouts):
        mask = pa.array([types == layout for types in layouts])
        yield replace(group, files=group.files.filter(mask), stored=layout)


def _split_by_partition_layout(scan: ScanPlan, files: pa.Table, *, has_vectors: bool) -> Iterable[ScanGroup]:
    columns = scan.physical_partitions
    directories, numbers = _directories(files, columns)
    hive = pa.array([_is_hive(directory, columns) for directory in directories], pa.bool_()).take(numbers)
    if pc.any(hive).as_py():
        yield ScanGroup(files.filter(hive), is_hive=True, has_vectors=has_vectors)
    if pc.all(hive).as_py():
        return
    plain_files, numbers = files.filter(pc.invert(hive)), numbers.filter(pc.invert(hive))
    texts = [directory[1:] for directory in directories]
    distinct = list(dict.fromkeys(texts[number] for number in pc.unique(numbers).to_pylist()))
    if len(distinct) > LITERAL_PARTITIONS:
        yield ScanGroup(plain_files, is_hive=False, has_vectors=has_vectors)
        return
    for values in distinct:
        same = pa.array([each == values for each in texts], pa.bool_()).take(numbers)
        shared = dict(zip(columns, values, strict=True))
        yield ScanGroup(plain_files.filter(same), is_hive=False, has_vectors=has_vectors, values=shared)


def _directories(files: pa.Table, columns: Sequence[str]) -> tuple[list[tuple[str | None, ...]], pa.Array]:
    """Return the distinct pairs of a directory and partition texts, flat, and for each file the number of its pair."""
    values = files["partition_values"]
    texts = [pc.replace_substring_regex(files["path"], "[^/]*$", "")]
    texts += [pc.map_lookup(values, pa.scalar(column), "first") for column in columns]
    directories: list[tuple[str | None, ...]] = [()]
    numbers = pa.repeat(pa.scalar(0, pa.int64()), files.num_rows)
    for column in texts:
        each = pa.concat_arrays(column.chunks).dictionary_encode("encode")
        pairs = pc.add(pc.multiply(numbers, len(each.dictionary)), each.indices.cast(pa.int64())).dictionary_encode()
        parts = [divmod(pair, len(each.dictionary)) for pair in pairs.dictionary.to_pylist()]
        directories = [(*directories[above], each.dictionary[own].as_py()) for above, own in parts]
        numbers = pairs.indices.cast(pa.int64())
    return directories, numbers


def _is_hive(directory: tuple[str | None, ...], columns: Sequence[str]) -> bool:
    """Tell whether a directory names the partition of its files."""
    path, *texts = directory
    assert path is not None
    return _ABSOLUTE.match(path) is None and is_hive_path(path, columns, dict(zip(columns, texts, strict=True)))
