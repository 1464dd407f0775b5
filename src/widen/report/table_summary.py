"""The outline of a table: its columns and what is known of it as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path, fields, format_path
from widen.model.lazy_module import import_lazily
from widen.model.schema_json import type_to_value
from widen.model.types import StructType
from widen.planning.evolution.source_metadata import COMMENT, EVOLVED_FROM
from widen.protocol.table_features import supported_features
from widen.protocol.type_changes import strip_type_changes, type_changes
from widen.report.report_model import VersionTime
from widen.report.source_fields import brief

if TYPE_CHECKING:
    from widen.spark.parquet.old_type_files import OldType

pc = import_lazily("pyarrow.compute")


@dataclass(frozen=True, slots=True)
class TypeStep:
    """One recorded change of a type.

    Args:
        path: From the field to the leaf, in steps of element, key and value; empty for the field itself.
        old: The type before it, in Spark SQL.
        new: The type after it.
    """

    path: Path
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """One column or nested field.

    Args:
        path: Where it stands.
        own: The end of the path, from the field that encloses it.
        depth: How many fields enclose it.
        type: Its type in Spark SQL.
        brief: The same without the fields inside it.
        nullable: Whether it may be null.
        evolved_from: The source field, if it stands beside the one with the plain name; else empty.
        comment: Its comment; empty if it has none.
        steps: Its type history, oldest first.
    """

    path: Path
    own: Path
    depth: int
    type: str
    brief: str
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
    """A version of a table as a whole.

    Args:
        location: Where it lies.
        moment: The version.
        files: How many files are live.
        size_bytes: Their size.
        reader_version: The protocol version that readers must know.
        writer_version: Likewise for writers.
        features: The table features, by name.
        properties: The configuration.
        partition_by: The columns that files are split by.
        schema: As readers see it.
        lines: Its columns and nested fields, parents first.
        old_types: How much of which column still stands in an old type in files; None if nobody has looked.
        obstacle: Why nobody could look; else empty.
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
        """Return the outline as a JSON object."""
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
            "oldTypes": None if self.old_types is None else [_old_type(old) for old in self.old_types],
            "schema": type_to_value(self.schema),
        }


def _old_type(old: OldType) -> dict[str, Any]:
    return {"column": format_path(old.path), "type": old.type, "files": old.files, "bytes": old.size_bytes}


def summarize_table(snapshot: Snapshot, old_types: Sequence[OldType] | None = None, obstacle: str = "") -> TableSummary:
    """Return the outline of one version of a table.

    Args:
        snapshot: The version.
        old_types: What is known of the types in its files.
        obstacle: Why that is not known; empty if nobody has looked.

    Raises:
        CorruptLog: a log file is damaged.
        StorageError: the store refused.
    """
    files = snapshot.files()
    return TableSummary(
        snapshot.location,
        VersionTime(snapshot.version, snapshot.timestamp_ms),
        files.num_rows,
        pc.sum(files.column("size_bytes")).as_py() or 0,
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
    above: list[Path] = []
    for path, field in fields(schema):
        above = [other for other in above if path[: len(other)] == other]
        steps = tuple(TypeStep(change.path, change.old.sql, change.new.sql) for change in type_changes(field))
        evolved, comment = (str(field.metadata.get(key) or "") for key in (EVOLVED_FROM, COMMENT))
        own = path[len(above[-1]) :] if above else path
        types = (field.type.sql, brief(field.type))
        yield SummaryLine(path, own, len(above), *types, field.nullable, evolved, comment, steps)
        above.append(path)
