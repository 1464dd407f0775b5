"""What a flow asks of the table that it reads, whatever its format.

`widen.formats.delta_flow_source` implements these protocols for Delta; another format is a module beside it.

Source: docs/guide/flow.md
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from widen.spark.spark_types import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """One version of the source of a flow.

    Args:
        table_id: The id of the table, which another table at the same location does not have.
        version: The number of the version.
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
    def removing(self) -> Sequence[int]:
        """The versions that remove rows, by an update, a deletion, a merge, an overwrite or a restore."""

    @property
    def is_empty(self) -> bool:
        """Whether no version changes rows, nor how rows that are there are read."""

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


class FlowSource(Protocol):
    """The table that a flow reads."""

    @property
    def location(self) -> str:
        """The path or URL."""

    def newest(self) -> SourceVersion:
        """Return the newest version.

        Raises:
            TableError: the table cannot be read.
        """

    def parts(self, version: int, max_bytes: int | None) -> Sequence[Sequence[str]]:
        """Return the files of a version in parts, the same at each call, oldest files first.

        Args:
            version: The version.
            max_bytes: The size from which on a part is full; it has at least one file.

        Raises:
            SourceHistoryLost: the version was deleted.
            TableError: the table cannot be read.
        """

    def rows(self, spark: SparkSession, version: int, paths: Collection[str] | None = None) -> DataFrame:
        """Return the rows of a version.

        Args:
            spark: The session.
            version: The version.
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
