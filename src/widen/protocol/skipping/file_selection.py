"""Data skipping: the selection of files by their partition values and statistics.

A file is skipped only if it certainly has no matching row.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from widen.model.column_path import Path
from widen.model.types import DataType, StructType
from widen.protocol.column_mapping import physical_name, to_physical_path
from widen.protocol.skipping.file_statistics import Bounds, FileStatistics, partition_bounds
from widen.protocol.skipping.predicate import And, Compare, IsNull, Not, Or, Predicate, UnknownPredicate


@dataclass(frozen=True)
class FileSelection:
    """The files of a table that may have rows that match a predicate.

    Args:
        schema: The schema of the table, with logical names.
        partition_by: The logical names of the partition columns.
    """

    predicate: Predicate
    schema: StructType
    mode: str
    partition_by: tuple[str, ...]
    _physical: dict[Path, Path] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def is_everything(self) -> bool:
        """Whether no file can be skipped."""
        return isinstance(self.predicate, UnknownPredicate)

    @property
    def conditions(self) -> Iterator[Compare | IsNull]:
        """The conditions on single columns that the predicate is made of."""
        return _conditions(self.predicate)

    def can_match(self, values: Mapping[str, str | None], stats: str | None) -> bool:
        """Tell whether a file may have a matching row.

        Args:
            values: The serialized partition values, by physical name.
        """
        return self.is_everything or self.can_be(self.predicate, values, stats, truth=True)

    def can_be(
        self, condition: Predicate, values: Mapping[str, str | None], stats: str | None = None, *, truth: bool
    ) -> bool:
        """Tell whether a condition may be ``truth`` for some row of a file.

        Args:
            values: The serialized partition values, by physical name.
        """
        statistics: list[FileStatistics] = []

        def find_bounds(path: Path, data_type: DataType) -> Bounds:
            if path[0] in self.partition_by:
                return partition_bounds(values.get(self.to_physical(path)[0]), data_type)
            if not statistics:
                statistics.append(FileStatistics(stats))
            return statistics[0].bounds(self.to_physical(path), data_type)

        return condition.can_be(find_bounds, truth=truth)

    def to_physical(self, path: Path) -> Path:
        """Return the physical path of a column."""
        if path not in self._physical:
            self._physical[path] = to_physical_path(self.schema, path, self.mode)
        return self._physical[path]

    @property
    def physical_partitions(self) -> tuple[str, ...]:
        """The physical names of the partition columns, as in the log and in directory names."""
        columns = {column.name: column for column in self.schema}
        return tuple(physical_name(columns[name], self.mode) for name in self.partition_by)


def _conditions(predicate: Predicate) -> Iterator[Compare | IsNull]:
    match predicate:
        case And(left, right) | Or(left, right):
            yield from _conditions(left)
            yield from _conditions(right)
        case Not(inner):
            yield from _conditions(inner)
        case Compare() | IsNull():
            yield predicate
