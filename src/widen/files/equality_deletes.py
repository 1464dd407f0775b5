"""The rows of an Iceberg table that equality deletes remove, found by this process: Arrow compares the values.

Source: Iceberg's table specification, "Equality Delete Files": null equals null. Iceberg for Spark takes the two zeros
    of a floating-point type for different values, and every NaN for the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.files.arrow_types import one_array
from widen.files.data_reader import find_leaf
from widen.files.deleted_rows import to_bitmap
from widen.files.iceberg_columns import IcebergFileScan
from widen.iceberg.scan_plan import DeleteFile, ScannedFile
from widen.model.column_path import Path
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add


def find_equal_rows(
    files: Sequence[ScannedFile], deletes: Sequence[DeleteFile], scan: IcebergFileScan, paths: Sequence[Path]
) -> dict[str, BitMap64]:
    """Map each file path to the positions of the rows that equality deletes remove."""
    found: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    values: dict[str, list[pa.Array]] = {}
    known: dict[tuple[str, ...], _DeletedValues] = {}
    for file in files:
        names = tuple(each.path for each in deletes if each.applies_to(file))
        if not names:
            continue
        if names not in known:
            for name in names:
                values[name] = values.get(name) or _read_values(scan, name, paths)
            columns = zip(*(values[name] for name in names), strict=True)
            known[names] = _DeletedValues([pa.concat_arrays(parts) for parts in columns])
        for positions, rows in scan.read_located(_to_add(file.path)):
            is_deleted = known[names].contains([_comparable(rows, path) for path in paths])
            if pc.any(is_deleted).as_py():
                found[file.path] |= to_bitmap(positions.filter(is_deleted))
    return dict(found)


def _to_add(path: str) -> Add:
    return Add(path=path, partition_values={}, size=0, modification_time=0, data_change=True)


def _read_values(scan: IcebergFileScan, name: str, paths: Sequence[Path]) -> list[pa.Array]:
    parts = [rows for _, rows in scan.read_located(_to_add(name))]
    table = pa.concat_tables([scan.arrow_schema.empty_table(), *parts])
    return [_comparable(table, path) for path in paths]


def _comparable(rows: pa.Table, path: Path) -> pa.Array:
    """Return values that Arrow takes for equal where Iceberg does; floating-point numbers as their bits."""
    values = one_array(find_leaf(rows, path))
    if not pa.types.is_floating(values.type):
        return values
    doubles = values.cast(pa.float64())
    return pc.if_else(pc.is_nan(doubles), pa.scalar(float("nan")), doubles).view(pa.int64())


@dataclass(frozen=True)
class _DeletedValues:
    """Values of some columns. Rows with these values are deleted."""

    columns: Sequence[pa.Array]

    @cached_property
    def _distinct(self) -> Sequence[pa.Array]:
        return [pc.unique(column) for column in self.columns]

    @cached_property
    def _combined(self) -> Sequence[pa.Array]:
        """For each column after the first one: the distinct numbers of what rows have up to there."""
        combined = []
        numbers = _numbers(self.columns[0], self._distinct[0])
        for column, distinct in zip(self.columns[1:], self._distinct[1:], strict=True):
            both = _combine(numbers, column, distinct)
            combined.append(pc.unique(both))
            numbers = _numbers(both, combined[-1])
        return combined

    def contains(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return whether the values of each row are among these."""
        numbers = _numbers(columns[0], self._distinct[0])
        for column, distinct, combined in zip(columns[1:], self._distinct[1:], self._combined, strict=True):
            numbers = _numbers(_combine(numbers, column, distinct), combined)
        return numbers.is_valid()


def _numbers(values: pa.Array, distinct: pa.Array) -> pa.Array:
    """Return the index of each value in `distinct` (which may contain null), or null if it is missing."""
    return pc.index_in(values, value_set=distinct).cast(pa.int64())


def _combine(numbers: pa.Array, column: pa.Array, distinct: pa.Array) -> pa.Array:
    """Return a number for each pair of a number and a value; null where one of them is not known."""
    return pc.add(pc.multiply(numbers, len(distinct)), _numbers(column, distinct))
