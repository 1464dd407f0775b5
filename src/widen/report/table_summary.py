"""The summary of a table: its columns, protocol, properties and size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path, fields, format_path
from widen.model.schema_json import type_to_value
from widen.model.types import StructType
from widen.planning.evolution.source_metadata import COMMENT, EVOLVED_FROM
from widen.protocol.table_features import supported_features
from widen.protocol.type_changes import strip_type_changes, type_changes
from widen.report.report_model import VersionTime
from widen.report.text_format import brief_type

if TYPE_CHECKING:
    from widen.spark.parquet.old_type_files import OldType


@dataclass(frozen=True, slots=True)
class TypeStep:
    """One recorded type change.

    Args:
        path: The path from the field to the leaf, of `element`, `key` and `value`; empty for the field itself.
        old: The type before it, in Spark SQL.
    """

    path: Path
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One column or nested field.

    Args:
        relative_path: Its path inside its parent field.
        type: Its type in Spark SQL.
        brief_type: Its type without nested fields.
        evolved_from: The source field, if it is a sibling of the column with the plain name; else empty.
        comment: Its comment; empty if it has none.
        steps: Its type history, oldest first.
    """

    path: Path
    relative_path: Path
    depth: int
    type: str
    brief_type: str
    nullable: bool
    evolved_from: str = ""
    comment: str = ""
    steps: tuple[TypeStep, ...] = ()

    def to_value(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        steps = [{"path": format_path(step.path), "from": step.old, "to": step.new} for step in self.steps]
        return {
            "column": format_path(self.path),
            "type": self.type,
            "nullable": self.nullable,
            "evolvedFrom": self.evolved_from or None,
            "comment": self.comment or None,
            "typeHistory": steps,
        }


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The summary of one version of a table.

    Args:
        schema: The logical schema.
        lines: Its columns and nested fields, parents first.
        old_types: The files with old types, by column; None if they were not determined.
        obstacle: Why the old types could not be determined; else empty.
    """

    location: str
    moment: VersionTime
    files: int
    size_bytes: int
    reader_version: int
    writer_version: int
    features: tuple[str, ...]
    properties: Mapping[str, str]
    partition_by: tuple[str, ...]
    schema: StructType
    lines: tuple[SummaryLine, ...]
    old_types: tuple[OldType, ...] | None = None
    obstacle: str = ""

    def to_value(self) -> dict[str, Any]:
        """Return the summary as a JSON object."""
        protocol = {"minReaderVersion": self.reader_version, "minWriterVersion": self.writer_version}
        return {
            "location": self.location,
            **self.moment.to_value(),
            "files": self.files,
            "bytes": self.size_bytes,
            "protocol": {**protocol, "features": list(self.features)},
            "properties": dict(self.properties),
            "partitionBy": list(self.partition_by),
            "columns": [line.to_value() for line in self.lines],
            "oldTypes": None
            if self.old_types is None
            else [
                {"column": format_path(old.path), "type": old.type, "files": old.files, "bytes": old.size_bytes}
                for old in self.old_types
            ],
            "schema": type_to_value(self.schema),
        }


def summarize_table(snapshot: Snapshot, old_types: Sequence[OldType] | None = None, obstacle: str = "") -> TableSummary:
    """Return the summary of one version of a table.

    Args:
        old_types: The files with old types, by column; None if they were not determined.
        obstacle: Why the old types could not be determined; else empty.
    """
    files, size_bytes = snapshot.count_files()
    return TableSummary(
        snapshot.location,
        VersionTime(snapshot.version, snapshot.timestamp_ms),
        files,
        size_bytes,
        snapshot.protocol.min_reader_version,
        snapshot.protocol.min_writer_version,
        tuple(sorted(supported_features(snapshot.protocol))),
        dict(snapshot.properties),
        tuple(snapshot.partition_columns),
        strip_type_changes(snapshot.schema),
        tuple(_lines(snapshot.schema)),
        None if old_types is None else tuple(old_types),
        obstacle,
    )


def _lines(schema: StructType) -> Iterator[SummaryLine]:
    parents: list[Path] = []
    for path, field in fields(schema):
        parents = [parent for parent in parents if path[: len(parent)] == parent]
        steps = tuple(TypeStep(change.path, change.old.sql, change.new.sql) for change in type_changes(field))
        evolved, comment = (str(field.metadata.get(key) or "") for key in (EVOLVED_FROM, COMMENT))
        relative_path = path[len(parents[-1]) :] if parents else path
        types = (field.type.sql, brief_type(field.type))
        yield SummaryLine(path, relative_path, len(parents), *types, field.nullable, evolved, comment, steps)
        parents.append(path)
