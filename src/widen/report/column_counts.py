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
        type: Its current type.
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
        stats: Its statistics as JSON text.
        partition_values: Its partition values, by key.
        missing: The leaves that did not exist yet when it was written.
    """

    stats: str | None
    partition_values: Mapping[str, str | None]
    missing: frozenset[Path] = frozenset()


@dataclass(slots=True)
class ColumnTally:
    """The counts and bounds of one leaf over the files counted so far."""

    written: int | None = 0
    nulls: int | None = 0
    low: Any = None
    high: Any = None
    is_bounded: bool = True

    def add(self, rows: int, statistics: ColumnStatistics) -> None:
        """Count one more file."""
        if statistics.nulls is None or self.written is None or self.nulls is None:
            self.written = self.nulls = None
        else:
            self.written += rows - statistics.nulls
            self.nulls += statistics.nulls
        if statistics.nulls != rows:
            self._bound(statistics.low, statistics.high)

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
        columns: The leaves.
        rows: How many rows the files hold; None if a file does not record its row count.
        tallies: The tallies, by leaf path.
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
                tally.add(-1, ColumnStatistics())
            else:
                tally.add(rows, _leaf_statistics(stats, leaf, file, rows))

    def written(self) -> Iterator[tuple[Path, bool]]:
        """Yield every counted leaf and whether any of the files holds a value of it."""
        for path, tally in self.tallies.items():
            if tally.written is not None:
                yield path, tally.written > 0


def leaves_of(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], keys: Mapping[str, str]
) -> list[LeafColumn]:
    """Return the leaf columns of a schema in its order.

    Args:
        schema: The schema.
        protocol: The protocol of the table.
        properties: The properties of the table.
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
    return stats.column(leaf.physical, leaf.type) if leaf.is_counted else ColumnStatistics()
