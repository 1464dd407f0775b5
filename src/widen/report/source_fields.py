"""Source fields with several columns, because the kinds of their values drifted.

Source: docs/evolution-rules.md#u3, #u20
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from widen.model.column_path import Path, fields
from widen.model.types import Field, StructType
from widen.planning.evolution.source_metadata import EVOLVED_FROM, SOURCE, role_of
from widen.report.report_model import VersionTime
from widen.report.table_report import ColumnOrigin, IntervalCount, ReportColumn, SourceField
from widen.report.text_format import brief_type


def drifted_fields(
    schema: StructType, columns: Sequence[ReportColumn], origins: Mapping[Path, ColumnOrigin]
) -> Iterator[SourceField]:
    """Yield the source fields with several sibling columns, in schema order."""
    siblings: dict[tuple[Path, tuple[str, ...]], list[ReportColumn]] = {}
    for path, item in fields(schema):
        if SOURCE in item.metadata and (len(path) > 1 or role_of(item) is None):
            key = path[:-1], tuple(item.metadata[SOURCE])
            siblings.setdefault(key, []).append(_column(path, item, columns, origins))
    for (_, source), members in siblings.items():
        if len(members) > 1:
            yield SourceField(source, tuple(members))


def with_interval_counts(family: SourceField, counts: Sequence[tuple[VersionTime, Mapping[Path, int]]]) -> SourceField:
    """Return a source field with the values that each interval wrote to its columns.

    Args:
        counts: The number of values of each leaf that each interval wrote, oldest first.
    """
    history = []
    for moment, by_leaf in counts:
        values = [_largest(by_leaf, column.path) for column in family.columns]
        if any(values):
            history.append(IntervalCount(moment.version, tuple(_own_values(family.columns, values))))
    return replace(family, history=tuple(history))


def _own_values(columns: Sequence[ReportColumn], values: Sequence[int]) -> Iterator[int]:
    """Yield how many values belong to each column alone.

    A sibling of strings, or of arrays of them, also receives the values of the columns before it, as texts or items.

    Source: docs/evolution-rules.md#u14
    """
    for column, count in zip(columns, values, strict=True):
        received = sum(n for other, n in zip(columns, values, strict=True) if _receives(column, other))
        yield max(0, count - received)


def _receives(column: ReportColumn, other: ReportColumn) -> bool:
    """Tell whether a column of strings also receives the values of another column of its field."""
    if not column.evolved_from or "string" not in column.type or "struct" in other.type:
        return False
    depths = (_array_depth(other.type), _array_depth(column.type))
    return depths[0] < depths[1] or (depths[0] == depths[1] and "string" not in other.type)


def _array_depth(brief: str) -> int:
    return brief.count("array<")


def _largest(by_leaf: Mapping[Path, int], path: Path) -> int:
    """Return the values of a column; those of a struct are the values of its leaf with the most."""
    return max((count for leaf, count in by_leaf.items() if leaf[: len(path)] == path), default=0)


def find_origin(origins: Mapping[Path, ColumnOrigin], path: Path) -> ColumnOrigin | None:
    """Return the origin of a column or of the innermost column around it; None if it is not known."""
    return next((origins[path[:end]] for end in range(len(path), 0, -1) if path[:end] in origins), None)


def _column(
    path: Path, item: Field, columns: Sequence[ReportColumn], origins: Mapping[Path, ColumnOrigin]
) -> ReportColumn:
    """Return a column of a source field; a struct gets the counts of its leaf with the most values."""
    inside = [column for column in columns if column.path[: len(path)] == path]
    fullest = max((column for column in inside if column.values is not None), key=_values, default=inside[0])
    evolved_from = str(item.metadata.get(EVOLVED_FROM) or "")
    origin = find_origin(origins, path)
    return replace(fullest, path=path, type=brief_type(item.type), evolved_from=evolved_from, origin=origin)


def _values(column: ReportColumn) -> int:
    return column.values or 0
