"""Source fields that drifted: those with several columns, each with what is known of it.

Source: docs/evolution-rules.md#u3, #u20
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from widen.model.column_path import Path, fields
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.planning.evolution.source_metadata import EVOLVED_FROM, SOURCE, role_of
from widen.report.report_model import ColumnOrigin, ReportColumn, SourceField


def drifted_fields(
    schema: StructType, columns: Sequence[ReportColumn], births: Mapping[Path, ColumnOrigin]
) -> Iterator[SourceField]:
    """Yield the source fields with several columns beside each other, in the order of the schema.

    Args:
        schema: With its metadata.
        columns: The leaves with what is known of them.
        births: What made columns.
    """
    found: dict[tuple[Path, tuple[str, ...]], list[ReportColumn]] = {}
    for path, item in fields(schema):
        if SOURCE in item.metadata and (len(path) > 1 or role_of(item) is None):
            key = path[:-1], tuple(item.metadata[SOURCE])
            found.setdefault(key, []).append(_column(path, item, columns, births))
    for (_, source), members in found.items():
        if len(members) > 1:
            yield SourceField(source, tuple(members))


def find_origin(births: Mapping[Path, ColumnOrigin], path: Path) -> ColumnOrigin | None:
    """Return what made a column, or the nearest one that it stands in; None if that is not known."""
    return next((births[path[:end]] for end in range(len(path), 0, -1) if path[:end] in births), None)


def _column(
    path: Path, item: Field, columns: Sequence[ReportColumn], births: Mapping[Path, ColumnOrigin]
) -> ReportColumn:
    """Return a column; of records, counted as the one of its leaves with the most values."""
    inside = [column for column in columns if column.path[: len(path)] == path]
    known = max((column for column in inside if column.written is not None), key=_written, default=inside[0])
    evolved_from = str(item.metadata.get(EVOLVED_FROM) or "")
    birth = find_origin(births, path)
    return replace(known, path=path, type=brief(item.type), evolved_from=evolved_from, birth=birth)


def _written(column: ReportColumn) -> int:
    return column.written or 0


def brief(data_type: DataType) -> str:
    """Return a type in Spark SQL without the fields inside it."""
    match data_type:
        case StructType():
            return "struct"
        case ArrayType(element):
            return f"array<{brief(element)}>"
        case MapType(key, value):
            return f"map<{brief(key)}, {brief(value)}>"
    return data_type.sql
