"""Count values and nulls of every leaf column from file statistics; missing statistics make a count unknown.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from widen.model.column_path import Path, leaves
from widen.model.types import DataType, StructType
from widen.protocol.actions import Protocol
from widen.protocol.column_mapping import mapping_mode, to_physical_path
from widen.protocol.partition_values import Scalar, UnknownValue, parse_partition_value
from widen.protocol.skipping.file_statistics import ColumnStatistics, FileStatistics


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A leaf column.

    Args:
        path: Its logical path.
        physical: Its physical path in the files.
        is_counted: Whether statistics can count its nulls, which needs a path without arrays and maps.
        partition_key: The key of its partition values; empty unless it is a partition column.
    """

    path: Path
    physical: Path
    type: DataType
    is_counted: bool
    partition_key: str = ""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The facts of one file that are counted.

    Args:
        missing: The leaves that did not exist yet when it was written.
        values: How many values each leaf has, by physical path, as far as the commit or the footer says.
    """

    stats: str | None
    partition_values: Mapping[str, str | None]
    missing: frozenset[Path] = frozenset()
    values: Mapping[Path, int] = field(default_factory=dict)


@dataclass(slots=True)
class ColumnTally:
    """The counts and bounds of one leaf over the files counted so far.

    Args:
        rows: How many rows the files have whose count is known.
        values: How many values the leaf has in them; each value in an array or a map counts.
        uncounted: How many files do not say how many values they have.
        is_bounded: Whether each file with a value records its bounds.
    """

    files: int = 0
    rows: int = 0
    values: int = 0
    uncounted: int = 0
    low: Any = None
    high: Any = None
    is_bounded: bool = True

    def add(self, rows: int, values: int | None, statistics: ColumnStatistics) -> None:
        """Count one more file."""
        self.files += 1
        if values is None:
            self.uncounted += 1
        else:
            self.rows += rows
            self.values += values
        if values != 0:
            self._bound(statistics.low, statistics.high)

    @property
    def is_known(self) -> bool:
        """Whether every file says how many values it has, or those that do have some."""
        return not self.uncounted or self.values > 0

    def _bound(self, low: Any, high: Any) -> None:
        self.is_bounded = self.is_bounded and low is not None and high is not None
        if self.is_bounded:
            self.low = low if self.low is None else min(self.low, low)
            self.high = high if self.high is None else max(self.high, high)

    @property
    def bounds(self) -> tuple[Scalar | None, Scalar | None]:
        """The smallest and the largest value; None if a file does not record its own."""
        return (self.low, self.high) if self.is_bounded else (None, None)


@dataclass(slots=True)
class ColumnCounts:
    """The tallies of all leaves over the files counted so far.

    Args:
        rows: How many rows the files hold; None if a file does not record its row count.
    """

    columns: Sequence[LeafColumn]
    rows: int | None = 0
    tallies: dict[Path, ColumnTally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tallies = {leaf.path: ColumnTally() for leaf in self.columns}

    def add(self, file: FileFacts) -> None:
        """Count one more file."""
        stats = FileStatistics(file.stats)
        rows = stats.rows
        self.rows = None if rows is None or self.rows is None else self.rows + rows
        for leaf in self.columns:
            tally = self.tallies[leaf.path]
            if rows is None:
                tally.add(0, None, ColumnStatistics())
            else:
                statistics = _leaf_statistics(stats, leaf, file, rows)
                tally.add(rows, _count_values(leaf, file, rows, statistics), statistics)

    def written_rows(self, leaf: LeafColumn) -> int | None:
        """Return how many rows have a value; None if it is not known, as inside arrays and maps."""
        tally = self.tallies[leaf.path]
        return tally.values if tally.is_known and (leaf.is_counted or not tally.values) else None


def leaves_of(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], keys: Mapping[str, str]
) -> list[LeafColumn]:
    """Return the leaf columns of a schema in its order.

    Args:
        keys: The partition value keys, by partition column.

    Raises:
        CorruptLog: a column lacks its physical name.
    """
    mode = mapping_mode(dict(properties), protocol)
    struct_leaves = set(_struct_leaves(schema))
    return [
        LeafColumn(path, to_physical_path(schema, path, mode), leaf, path in struct_leaves, keys.get(path[0], ""))
        for path, leaf in leaves(schema)
    ]


def _struct_leaves(struct: StructType, parent: Path = ()) -> Iterator[Path]:
    """Yield the paths of the fields that only structs enclose."""
    for item in struct:
        if isinstance(item.type, StructType):
            yield from _struct_leaves(item.type, (*parent, item.name))
        else:
            yield (*parent, item.name)


def _leaf_statistics(stats: FileStatistics, leaf: LeafColumn, file: FileFacts, rows: int) -> ColumnStatistics:
    if leaf.path in file.missing:
        return ColumnStatistics(nulls=rows)
    if leaf.partition_key:
        value = parse_partition_value(file.partition_values.get(leaf.partition_key), leaf.type)
        bound = None if isinstance(value, UnknownValue) else value
        return ColumnStatistics(bound, bound, rows if value is None else 0)
    return stats.column(leaf.physical, leaf.type)


def _count_values(leaf: LeafColumn, file: FileFacts, rows: int, statistics: ColumnStatistics) -> int | None:
    """Return how many values a leaf has in a file; None if neither the commit, the footer nor the statistics say so."""
    if leaf.path in file.missing:
        return 0
    if (leaf.is_counted or leaf.partition_key) and statistics.nulls is not None:
        return rows - statistics.nulls
    return file.values.get(leaf.physical)
