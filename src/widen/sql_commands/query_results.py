"""The results of DESCRIBE and SHOW statements, in the schemas of Delta Lake on Spark.

Source: Delta Lake's DESCRIBE DETAIL and DESCRIBE HISTORY; Spark's DESCRIBE TABLE and SHOW TBLPROPERTIES.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from widen.log.read.commit_timestamps import time_text
from widen.model.column_path import Path, fields, format_path
from widen.model.sql_literal import to_literal
from widen.model.types import compact_sql, quote_name
from widen.planning.evolution.source_metadata import COMMENT
from widen.protocol.clustering import clustering_columns
from widen.protocol.column_mapping import mapping_mode, to_physical_path
from widen.protocol.column_metadata import DEFAULT
from widen.protocol.table_features import MIN_READER_VERSION, MIN_WRITER_VERSION, supported_features
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_key
from widen.spark.spark_types import DataFrame, SparkSession
from widen.sql_commands.statements import DescribeDetail, DescribeHistory, DescribeTable, Question, ShowProperties
from widen.table import Table

_DETAIL = (
    ("format", "string"),
    ("id", "string"),
    ("name", "string"),
    ("description", "string"),
    ("location", "string"),
    ("createdAt", "timestamp"),
    ("lastModified", "timestamp"),
    ("partitionColumns", "array<string>"),
    ("clusteringColumns", "array<string>"),
    ("numFiles", "bigint"),
    ("sizeInBytes", "bigint"),
    ("properties", "map<string,string>"),
    ("minReaderVersion", "int"),
    ("minWriterVersion", "int"),
    ("tableFeatures", "array<string>"),
)
_JOB = "struct<jobId:string,jobName:string,jobRunId:string,runId:string,jobOwnerId:string,triggerType:string>"
_HISTORY = (
    ("version", "bigint"),
    ("timestamp", "timestamp"),
    ("userId", "string"),
    ("userName", "string"),
    ("operation", "string"),
    ("operationParameters", "map<string,string>"),
    ("job", _JOB),
    ("notebook", "struct<notebookId:string>"),
    ("clusterId", "string"),
    ("readVersion", "bigint"),
    ("isolationLevel", "string"),
    ("isBlindAppend", "boolean"),
    ("operationMetrics", "map<string,string>"),
    ("userMetadata", "string"),
    ("engineInfo", "string"),
)
_TABLE = (("col_name", "string"), ("data_type", "string"), ("comment", "string"))
_PROPERTIES = (("key", "string"), ("value", "string"))

_Row: TypeAlias = tuple[str, str, str | None]


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """The result of a statement that changes a table.

    Args:
        table: The table at its version after the statement.
        before: The version before the statement; -1 if it created the table.
    """

    table: Table
    before: int


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows with their columns.

    Args:
        columns: The names and the Spark SQL types of the columns.
        rows: The rows, with a JSON value for every column; timestamps are strings in UTC.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.columns]

    def to_values(self) -> list[dict[str, Any]]:
        """Return every row as a JSON object."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a DataFrame."""
        schema = ", ".join(f"{name} {data_type}" for name, data_type in self.columns)
        lines = [(json.dumps(value),) for value in self.to_values()]
        read = f"from_json(line, {to_literal(schema)}) as row"
        return spark.createDataFrame(lines, "line string").selectExpr(read).select("row.*")


def run_query(question: Question, table: Table) -> QueryResult:
    """Return the result of a DESCRIBE or SHOW statement."""
    match question:
        case DescribeDetail():
            return QueryResult(_DETAIL, [_detail(table)])
        case DescribeHistory(_, limit):
            return QueryResult(_HISTORY, [_commit(*entry) for entry in table.history(limit)])
        case DescribeTable(_, extended):
            return QueryResult(_TABLE, list(_describe_table(table, extended=extended)))
        case ShowProperties(_, key):
            return QueryResult(_PROPERTIES, _shown_properties(table, key))


# ---- the table as a whole --------------------------------------------------------------------------


def _detail(table: Table) -> Sequence[Any]:
    metadata, protocol = table.metadata, table.protocol
    return (
        "delta",
        metadata.id,
        metadata.name,
        metadata.description,
        table.location,
        None if metadata.created_time is None else time_text(metadata.created_time),
        time_text(table.snapshot.timestamp_ms),
        list(table.partition_by),
        [format_path(path) for path in _clustering(table)],
        *table.snapshot.count_files(),
        table.properties,
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
    )


def _commit(version: int, time_ms: int, info: Mapping[str, Any]) -> Sequence[Any]:
    return (version, time_text(time_ms), *(info.get(name) for name, _ in _HISTORY[2:]))


def _shown_properties(table: Table, key: str | None) -> list[tuple[str, str]]:
    protocol = table.protocol
    # Legacy versions imply features that they do not list; Delta Lake shows only the listed ones.
    names = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    listed = {f"{FEATURE_PREFIX}{name}": "supported" for name in names}
    versions = {MIN_READER_VERSION: protocol.min_reader_version, MIN_WRITER_VERSION: protocol.min_writer_version}
    shown = {**table.properties, **listed, **{name: str(version) for name, version in versions.items()}}
    if key is None:
        return sorted(shown.items())
    nothing = f"Table {table.location} does not have property: {key}"
    return [(key, shown.get(canonical_key(key), nothing))]


def _clustering(table: Table) -> Iterator[Path]:
    """Yield the clustering columns by their logical names."""
    schema, mode = table.snapshot.schema, mapping_mode(table.properties, table.protocol)
    logical = {to_physical_path(schema, path, mode): path for path, _ in fields(schema)}
    for path in clustering_columns(table.snapshot.domains):
        yield logical.get(path, path)


# ---- the columns -----------------------------------------------------------------------------------


def _describe_table(table: Table, *, extended: bool) -> Iterator[_Row]:
    columns = {
        field.name: (field.name, compact_sql(field.type, str), field.metadata.get(COMMENT)) for field in table.schema
    }
    yield from columns.values()
    if table.partition_by:
        yield from (_heading("# Partition Information"), ("# col_name", "data_type", "comment"))
        yield from ((quote_name(name), *columns[name][1:]) for name in table.partition_by)
    if not extended:
        return
    yield from (_heading(""), _heading("# Detailed Table Information"))
    yield from ((key, value, "") for key, value in _facts(table) if value)
    defaults = [field for field in table.schema if DEFAULT in field.metadata]
    if defaults:
        yield from (_heading(""), _heading("# Column Default Values"))
        yield from ((field.name, compact_sql(field.type, str), field.metadata[DEFAULT]) for field in defaults)


def _facts(table: Table) -> Iterator[tuple[str, str | None]]:
    """Yield the table information of Spark, without the parts that only a catalog has."""
    yield "Comment", table.metadata.description
    yield "Location", table.location
    yield "Provider", "delta"
    yield "Table Properties", f"[{','.join(f'{key}={value}' for key, value in _shown_properties(table, None))}]"


def _heading(text: str) -> _Row:
    return text, "", ""
