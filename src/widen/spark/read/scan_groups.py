"""Groups: the files of a scan divided by the way in which they are read, without any engine.

Source: PROTOCOL.md#partition-value-serialization, #deletion-vectors
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from widen.model.column_path import Path
from widen.model.types import DataType, StructType
from widen.protocol.column_mapping import physical_name
from widen.protocol.partition_values import is_hive_path
from widen.protocol.skipping.predicate import Predicate
from widen.spark.parquet.physical_types import Names
from widen.spark.read.old_decimals import StoredTypes

LITERAL_PARTITIONS = 16
"""Up to how many partitions whose directories do not name them get a scan of their own."""

LAYOUTS = 4
"""Up to how many ways of storing old types get a scan of their own."""

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True)
class ScanGroup:
    """Files that are read in one way.

    Args:
        files: As `Snapshot.files` gives them.
        is_hive: Whether the directories name the partition, so that Spark may take it from there.
        has_vectors: Whether every file has a deletion vector, or none.
        values: The partition texts by physical name if all files share them; None if they come by a join.
        stored: The leaves that all files hold in an old type that a scan must know; None if that is not known.
        names: The names that all files have for columns in place of their physical names.
    """

    files: pa.Table
    is_hive: bool
    has_vectors: bool
    values: Mapping[str, str | None] | None = None
    stored: StoredTypes | None = None
    names: Names = ()

    @cached_property
    def types(self) -> dict[Path, DataType]:
        """The old types by logical path, as far as they are known."""
        return dict(self.stored or ())

    @cached_property
    def renamed(self) -> dict[Path, str]:
        """The names that columns have in place of their physical names, by logical path."""
        return dict(self.names)


@dataclass(frozen=True)
class ScanPlan:
    """What is to be read, decided without Spark.

    Args:
        schema: Of the table, in logical names.
        mode: Of column mapping.
        partition_by: The logical names of the partition columns.
        predicate: Which rows are wanted, as far as that is understood.
        groups: The files.
    """

    schema: StructType
    mode: str
    partition_by: tuple[str, ...]
    predicate: Predicate
    groups: tuple[ScanGroup, ...] = ()

    @property
    def physical_partitions(self) -> tuple[str, ...]:
        """The names of the partition columns in the log and in directories."""
        known = {field.name: field for field in self.schema.fields}
        return tuple(physical_name(known[name], self.mode) for name in self.partition_by)


def partition_values(files: pa.Table) -> list[dict[str, str | None]]:
    """Return the partition texts of each file by physical name."""
    return [dict(entries or ()) for entries in files["partition_values"].to_pylist()]


def group_files(scan: ScanPlan, files: pa.Table) -> Iterable[ScanGroup]:
    """Yield groups of all the files: by deletion vectors, and by how their partitions can be told."""
    for has_vectors in (False, True):
        chosen = files["deletion_vector"].is_valid() if has_vectors else files["deletion_vector"].is_null()
        some = files.filter(chosen)
        if some.num_rows and not scan.partition_by:
            yield ScanGroup(some, is_hive=False, has_vectors=has_vectors, values={})
        elif some.num_rows:
            yield from _split_by_partition_layout(scan, some, has_vectors=has_vectors)


def split_group(group: ScanGroup, stored: Sequence[StoredTypes | None]) -> Iterable[ScanGroup]:
    """Yield the files of a group by what they hold in old types; rare ways are treated like unknown ones.

    Args:
        group: The group.
        stored: What each of its files holds.
    """
    files: dict[StoredTypes | None, int] = dict.fromkeys(stored, 0)
    for one in stored:
        files[one] += 1
    own = sorted((one for one in files if one is not None), key=lambda one: -files[one])[:LAYOUTS]
    ways = [one if one in own else None for one in stored]
    for way in dict.fromkeys(ways):
        yield replace(group, files=group.files.filter(pa.array([one == way for one in ways])), stored=way)


def _split_by_partition_layout(scan: ScanPlan, files: pa.Table, *, has_vectors: bool) -> Iterable[ScanGroup]:
    columns, values = scan.physical_partitions, partition_values(files)
    paths = files["path"].to_pylist()
    hive = _hive_flags(paths, columns, values)
    if any(hive):
        yield ScanGroup(files.filter(pa.array(hive)), is_hive=True, has_vectors=has_vectors)
    if all(hive):
        return
    tuples = [None if h else tuple(v.get(c) for c in columns) for h, v in zip(hive, values, strict=True)]
    distinct = list(dict.fromkeys(t for t in tuples if t is not None))
    if len(distinct) > LITERAL_PARTITIONS:
        other = files.filter(pa.array([not h for h in hive]))
        yield ScanGroup(other, is_hive=False, has_vectors=has_vectors)
        return
    for one in distinct:
        same = files.filter(pa.array([t == one for t in tuples]))
        shared = dict(zip(columns, one, strict=True))
        yield ScanGroup(same, is_hive=False, has_vectors=has_vectors, values=shared)


def _hive_flags(paths: list[str], columns: tuple[str, ...], values: list[dict[str, str | None]]) -> list[bool]:
    """Return for each file whether its directories say its partition; files in one directory are looked at once."""
    known: dict[tuple[str, tuple[str | None, ...]], bool] = {}
    flags = []
    for path, texts in zip(paths, values, strict=True):
        key = path.rpartition("/")[0], tuple(map(texts.get, columns))
        flag = known.get(key)
        if flag is None:
            flag = known[key] = _ABSOLUTE.match(path) is None and is_hive_path(path, columns, texts)
        flags.append(flag)
    return flags
