"""The files of a scan, in groups that are read alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import CorruptFile, JobFailed, StorageError
from widen.files.footers import Names, find_old_files
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, is_struct_path, leaves
from widen.model.schema_json import parse_type
from widen.model.types import BYTE, INTEGER, LONG, SHORT, DataType, DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.data_skipping import FileSelection
from widen.protocol.partition_values import is_hive_path
from widen.protocol.type_widening import all_type_changes
from widen.spark.engine import Session

LITERAL_PARTITIONS = 16
"""Up to this many partitions without directory names, each gets its own scan."""


LAYOUTS = 4
"""The most layouts of old types that get their own scan."""


_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True)
class ScanGroup:
    """Files that can be read together.

    Args:
        files: Rows of `Snapshot.files`.
        is_hive: Whether the directories name the partition, so that Spark can read it from there.
        has_vectors: Whether the files have deletion vectors: all of them or no file.
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
    """What a scan reads, planned without Spark: the files of a selection, in groups.

    Args:
        unsafe: The leaves that must not get pushed filters, because files may store an old type.
    """

    groups: tuple[ScanGroup, ...] = ()
    unsafe: frozenset[Path] = frozenset()


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
    """Return whether a directory names the partition of its files."""
    path, *texts = directory
    assert path is not None
    return _ABSOLUTE.match(path) is None and is_hive_path(path, columns, dict(zip(columns, texts, strict=True)))


MOST_FOOTERS = 4096
"""The most footers that one read opens."""


CACHED_FILES = 100_000
"""The most files per schema in the cache of old types."""


CACHED_SCHEMAS = 32
"""The most pairs of table and schema in the cache of old types."""


LONG_DIGITS = 18
"""The most digits of a decimal that Spark stores as a long."""


StoredTypes: TypeAlias = tuple[tuple[Path, DataType], ...]
"""The leaves that a file stores in an old type, sorted by logical path; empty if all are new."""


def unsafe_columns(schema: StructType, partition_by: tuple[str, ...], *, has_lists: bool) -> frozenset[Path]:
    """Return the logical paths of widened columns that lose rows to pushed filters: decimals, or integers.

    Args:
        has_lists: Whether a filter may have a list of values; without one, integers are safe.

    Source: docs/spark-facts.md#pushed-filters; Spark pushes no filters on values inside arrays and maps
    """
    return frozenset(
        path
        for path, (old, new) in _widened(schema, partition_by).items()
        if (
            any(isinstance(data_type, DecimalType) for data_type in old)
            or (has_lists and new == LONG and not _INTEGERS.isdisjoint(old))
        )
        and is_struct_path(schema, path)
    )


_INTEGERS = frozenset({BYTE, SHORT, INTEGER})
"""What Parquet stores in 32 bits."""


def slow_decimals(schema: StructType, partition_by: tuple[str, ...]) -> frozenset[Path]:
    """Return the logical paths of the widened decimals that are slow to read in the new type."""
    return frozenset(
        path
        for path, (_, new) in _widened(schema, partition_by).items()
        if isinstance(new, DecimalType) and new.precision > LONG_DIGITS
    )


def _widened(schema: StructType, partition_by: tuple[str, ...]) -> Mapping[Path, tuple[list[DataType], DataType]]:
    """Return the leaves that were widened, with their old types and the new one."""
    current = dict(leaves(schema))
    widened: dict[Path, tuple[list[DataType], DataType]] = {}
    for path, change in all_type_changes(schema):
        if path in current and path[0] not in partition_by:
            widened.setdefault(path, ([], current[path]))[0].append(change.old)
    return widened


def stored_types(
    spark: Session, snapshot: Snapshot, files: pa.Table, wanted: frozenset[Path]
) -> list[StoredTypes | None]:
    """Return for each file which of the wanted leaves it stores in an old type; None where that is unknown."""
    cache = _cached_types(snapshot.location, snapshot.metadata.schema_string)
    keys = list(zip(files["path"].to_pylist(), files["modification_time_ms"].to_pylist(), strict=True))
    new = files.filter(pa.array([key not in cache for key in keys], pa.bool_()))
    if 0 < new.num_rows <= MOST_FOOTERS:
        if len(cache) + new.num_rows > CACHED_FILES:
            cache.clear()
        old_types = _find_stored_types(spark, snapshot, new)
        cache.update(
            {key: old_types.get(key[0], ()) for key in keys if key not in cache} if old_types is not None else {}
        )
    return [_among(wanted, cache.get(key)) for key in keys]


def _among(wanted: frozenset[Path], stored: StoredTypes | None) -> StoredTypes | None:
    return stored and tuple(leaf for leaf in stored if leaf[0] in wanted)


@lru_cache(CACHED_SCHEMAS)
def _cached_types(location: str, schema_string: str) -> dict[tuple[str, int], StoredTypes]:
    """Return the mutable cache of old types for the files of a table under a schema, by path and modification time."""
    return {}


def _find_stored_types(spark: Session, snapshot: Snapshot, files: pa.Table) -> dict[str, StoredTypes] | None:
    """Return the old types of the files that have any, or None if the footers cannot be read.

    Unreadable footers are not an error here: Spark may have credentials that this process lacks, and reports
    unreadable files itself.
    """
    try:
        old_files = find_old_files(lambda: spark, snapshot, files)
    except (CorruptFile, JobFailed, StorageError):
        return None
    layouts: dict[StoredTypes, StoredTypes] = {}
    by_path = {}
    for file in old_files:
        types = {path: _read_as(parse_type(text)) for path, text in file.types.items()}
        layout = tuple((path, types[path]) for path in sorted(types))
        by_path[file.path] = layouts.setdefault(layout, layout)
    return by_path


def _read_as(stored: DataType) -> DataType:
    """Return the type that Spark reads for a stored type: Parquet stores byte and short as int."""
    return INTEGER if stored in (BYTE, SHORT) else stored
