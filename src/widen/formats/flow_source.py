"""What a flow requires of the table that it reads, whatever its format.

`widen.formats.delta_flow_source` and `widen.formats.iceberg_flow_source` implement these protocols.

Source: docs/guide/flow.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from widen.formats.table_format import TableLocation
from widen.model.types import StructType
from widen.planning.write.readable_schema import is_readable_in
from widen.spark.spark_types import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """One version of the source of a flow.

    Args:
        table_id: The id of the table, which another table at the same location does not have.
        features: The table features that it supports.
    """

    table_id: str
    version: int
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """Where a range of versions ends.

    Args:
        last: The last version that it may have.
        max_bytes: The size of the added files from which on it is full; it has at least one version.
        is_pinned: Whether it must end at the last version, because an earlier attempt ended there.
        only_added: Whether only the added rows matter; versions that remove rows are then not read.
    """

    last: int
    max_bytes: int | None = None
    is_pinned: bool = False
    only_added: bool = False


class VersionRange(Protocol):
    """The changes of rows in a range of versions."""

    @property
    def last(self) -> int:
        """The last version."""

    @property
    def removing_versions(self) -> Sequence[int]:
        """The versions that remove rows, by an update, a deletion, a merge, an overwrite or a restore."""

    @property
    def is_empty(self) -> bool:
        """Whether no version changes rows or how existing rows are read."""

    def added_rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the versions that only add rows, in the columns and types of the last version.

        Raises:
            SourceHistoryLost: a file was deleted.
            TableError: the table cannot be read.
        """

    def changed_rows(self, spark: SparkSession) -> Sequence[DataFrame]:
        """Return frames that together have every added and every removed row; they may have others too.

        Raises:
            SourceHistoryLost: a file or a version was deleted.
            TableError: the table cannot be read.
        """


def split_files(files: Iterable[tuple[str, int]], max_bytes: int | None) -> list[list[str]]:
    """Return the paths of files in parts.

    Args:
        files: The path and the size of each.
        max_bytes: The size from which on a part is full; it has at least one file.
    """
    parts: list[list[str]] = []
    size_bytes = 0
    for path, size in files:
        if not parts or (max_bytes is not None and size_bytes >= max_bytes):
            parts.append([])
            size_bytes = 0
        parts[-1].append(path)
        size_bytes += size
    return parts


Change = TypeVar("Change")


def take_until_full(
    schema: StructType, changes: Iterable[tuple[Change, StructType, int]], limits: RangeLimits
) -> Iterator[Change]:
    """Yield changes up to the limit; if only added rows matter, all of them can be read in the last schema.

    Args:
        changes: Each with its schema, and the size of the files that it added.
    """
    size_bytes, is_first = 0, True
    for change, new, added_bytes in changes:
        is_full = limits.max_bytes is not None and size_bytes >= limits.max_bytes
        is_cut = is_full or (limits.only_added and not is_readable_in(schema, new))
        # A range with no version would never advance, and one that is repeated must end where it ended before.
        if is_cut and not is_first and not limits.is_pinned:
            return
        yield change
        size_bytes, schema, is_first = size_bytes + added_bytes, new, False


class FlowSource(Protocol):
    """The table that a flow reads."""

    @property
    def location(self) -> str:
        """The path or URL, or the name in a catalog."""

    def is_at(self, table: TableLocation) -> bool:
        """Tell whether it is the table at a location."""

    def newest(self) -> SourceVersion:
        """Return the newest version.

        Raises:
            TableError: the table cannot be read.
        """

    def parts(self, version: int, max_bytes: int | None) -> Sequence[Sequence[str]]:
        """Return the files of a version in parts, the same at each call, oldest files first.

        Args:
            max_bytes: The size from which on a part is full; it has at least one file.

        Raises:
            SourceHistoryLost: the version was deleted.
            TableError: the table cannot be read.
        """

    def rows(self, spark: SparkSession, version: int, paths: Collection[str] | None = None) -> DataFrame:
        """Return the rows of a version.

        Args:
            paths: The files to read; by default all.

        Raises:
            SourceHistoryLost: the version was deleted.
            TableError: the table cannot be read.
        """

    def range_after(self, version: int, limits: RangeLimits) -> VersionRange:
        """Return the changes after a version.

        Raises:
            SourceHistoryLost: a version was deleted.
            TableError: the table cannot be read.
        """
