"""Statements about the tables of an Iceberg catalog: each is run with one call of a method of `IcebergTable`.

Source: docs/guide/iceberg.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from widen.changes.iceberg_write import open_iceberg_writer
from widen.errors import ColumnAlreadyExists, InvalidOption, NotForIceberg, TableAlreadyExists, WidenError
from widen.iceberg.catalog import CatalogSource, TableName, to_catalog
from widen.iceberg.partitions import IDENTITY, parse_partition_by, read_partition_fields, resolve_partition_fields
from widen.iceberg.properties import APPEND, OPERATION, ensure_settable
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.table_commit import NewTable, create_iceberg_table, open_transaction
from widen.log.commit_files import time_text
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.model.column_path import Path, as_nullable, format_path, map_fields, resolve
from widen.model.types import StructType, compact_sql, name_key
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import DEFAULT
from widen.schema import alter
from widen.schema.alter import ColumnChanges
from widen.schema.source_metadata import COMMENT
from widen.schema.table_definition import DESCRIPTION
from widen.spark.engine import find_started
from widen.spark.session import RETENTION_CHECK, is_setting_on
from widen.spark.spark_types import DataFrame, SparkSession, from_spark, visible_schema
from widen.sql_commands.statements import (
    AddColumns,
    AddConstraintStatement,
    AlterColumns,
    ChangedTable,
    ChangePartitioning,
    ClusterBy,
    CreateReference,
    CreateTableAs,
    CreateTableStatement,
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    DropColumns,
    DropConstraintStatement,
    DropFeature,
    DropReference,
    FastForward,
    Optimize,
    QueryResult,
    Question,
    RenameColumnStatement,
    ReplaceColumnsStatement,
    Restore,
    Rewrite,
    SetProperties,
    ShowProperties,
    SyncIdentityStatement,
    TableReference,
    TableStatement,
    UnsetProperties,
    Upkeep,
    Vacuum,
    WriteOrder,
)
from widen.table import IcebergTable
from widen.table.iceberg_maintenance import NO_SNAPSHOT, NOT_FOR_ICEBERG

_COMMENT = "comment"
"""The property with the description of a table, as Iceberg for Spark names it."""

_BRANCH_OF, _BRANCH_PARTS = "branch_", 3
"""How the last of three or more parts of a name says a branch, as in Iceberg for Spark."""

_DELTA_CODE, _ICEBERG_CODE = "DELTA_", "ICEBERG_"


@contextmanager
def iceberg_codes() -> Iterator[None]:
    """Give errors the code of an Iceberg table: most classes have the name that Delta Lake gives the same error."""
    try:
        yield
    except WidenError as error:
        if error.code.startswith(_DELTA_CODE):
            error.code = _ICEBERG_CODE + error.code.removeprefix(_DELTA_CODE)  # type: ignore[misc]
        raise


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """The catalog that names in statements may belong to."""

    source: CatalogSource

    def name(self, table: TableReference) -> TableName | None:
        """Return a name in the catalog; None for a path, or a name without a namespace."""
        if table.location is not None or len(table.parts) < 2:
            return None
        return TableName(to_catalog(self.source), tuple(table.parts))

    def find(self, table: TableReference) -> IcebergTable | None:
        """Return a table of the catalog, or None if it has no such table. ``shop.orders.branch_audit`` is a branch."""
        name = self.name(table)
        if name is None or name.find() is not None:
            return None if name is None else IcebergTable(str(name), self.source)
        whole, last = TableName(name.catalog, name.namespace), name.identifier[-1]
        if len(name.identifier) < _BRANCH_PARTS or not last.startswith(_BRANCH_OF) or whole.find() is None:
            return None
        return IcebergTable(str(whole), self.source, branch=last.removeprefix(_BRANCH_OF))


def identity_columns(table: IcebergTable) -> tuple[str, ...]:
    """Return the columns whose values are partitions."""
    fields = read_partition_fields(table.table.metadata)
    return tuple(each.source[0] for each in fields if each.transform == IDENTITY and len(each.source) == 1)


# ---- statements that change a table ----------------------------------------------------------------


def execute(statement: TableStatement, table: IcebergTable) -> IcebergTable:
    """Run a statement that changes the columns, the properties or the layout of a table.

    Raises:
        NotForIceberg: Iceberg tables do not have what it changes.
    """
    match statement:
        case AlterColumns(_, changes):
            _ensure_not_after_itself(changes)
            return table.change_columns(alter.parse_column_changes(table.columns, dict(changes.items())))
        case RenameColumnStatement(_, column, name):
            ensure_new_name(table.columns, column, name)
            return table.rename_column(column, name)
        case AddColumns(_, columns):
            return table.add_columns(dict(columns.items()))
        case DropColumns(_, columns, if_exists):
            return table.drop_columns(*columns, if_exists=if_exists)
        case SetProperties(_, properties):
            return table.set_properties({_property(key): value for key, value in properties.items()})
        case UnsetProperties(_, keys):
            known = [key for key in map(_property, keys) if key in table.properties]
            return table.unset_properties(known) if known else table
        case ChangePartitioning(_, add, drop):
            return table.change_partitioning(add=add, drop=drop)
        case WriteOrder(_, keys):
            return table.set_sort_order(*keys)
        case CreateReference(_, kind, name, version, days):
            create = table.create_branch if kind == "branch" else table.create_tag
            return create(name, version, keep_hours=None if days is None else 24 * days)
        case DropReference(_, kind, name):
            return table.drop_branch(name) if kind == "branch" else table.drop_tag(name)
        case FastForward(_, branch, source):
            return table.fast_forward(branch, source)
        case Restore(_, moment):
            done = table.restore(moment) if isinstance(moment, int) else table.restore(timestamp=moment)
            return done.table
    name, method = _METHODS[type(statement)]
    raise NotForIceberg(name=name, reason=NOT_FOR_ICEBERG[method])


def ensure_new_name(schema: StructType, column: Path, name: str) -> None:
    """Check that a statement does not rename a column to its own name: Spark refuses that for every format.

    The method `rename_column` does nothing then. Unlike Spark, the case of a name can change.

    Raises:
        ColumnAlreadyExists: it has that name.
    """
    path, _ = resolve(schema, column)
    if path[-1] == name:
        raise ColumnAlreadyExists(column=format_path(path))


def _ensure_not_after_itself(changes: Mapping[Path, ColumnChanges]) -> None:
    """Check that no column is moved after itself: Iceberg for Spark refuses that, Delta Lake does not.

    Raises:
        InvalidOption: a column is.
    """
    for path, change in changes.items():
        if name_key(change.get("after", "")) == name_key(path[-1]):
            expected = f"Column {format_path(path)} cannot be moved after itself."
            raise InvalidOption(option="AFTER", value=change["after"], expected=expected)


_METHODS: Mapping[type, tuple[str, str]] = {
    ReplaceColumnsStatement: ("REPLACE COLUMNS", "replace_columns"),
    SyncIdentityStatement: ("SYNC IDENTITY", "sync_identity"),
    AddConstraintStatement: ("ADD CONSTRAINT", "add_constraint"),
    DropConstraintStatement: ("DROP CONSTRAINT", "drop_constraint"),
    ClusterBy: ("CLUSTER BY", "cluster_by"),
    DropFeature: ("DROP FEATURE", "drop_feature"),
}
"""The statements that do not apply, and the methods whose reasons they have."""


def _property(key: str) -> str:
    return _COMMENT if key == DESCRIPTION else key


def maintain(statement: Upkeep, table: IcebergTable, spark: SparkSession | None) -> ChangedTable | QueryResult:
    """Run a statement that changes files and snapshots, but no row."""
    before = version_of(table)
    match statement:
        case Rewrite():
            return ChangedTable(table.rewrite(spark=spark).table, before)
        case Optimize(_, where, columns):
            zorder_by = [".".join(path) for path in columns]
            return ChangedTable(table.optimize(where, zorder_by=zorder_by, spark=spark).table, before)
        case Vacuum(_, hours, dry_run):
            done = table.vacuum(hours, dry_run=dry_run, force=not is_setting_on(find_started(spark), RETENTION_CHECK))
            if dry_run:
                return QueryResult((("path", "string"),), [(path,) for path in done.files])
            return ChangedTable(table, before)


def version_of(table: IcebergTable) -> int:
    """Return the id of the snapshot; `NO_SNAPSHOT` without snapshots."""
    return NO_SNAPSHOT if table.version is None else table.version


# ---- new tables -----------------------------------------------------------------------------------


def create(
    statement: CreateTableStatement | CreateTableAs, catalog: IcebergCatalog, rows: DataFrame | None
) -> ChangedTable:
    """Create a table, with its rows in the same commit.

    Raises:
        InvalidOption: the statement has a location, an unknown column, or a property that cannot be set.
        TableAlreadyExists: the catalog has the table.
    """
    name = catalog.name(statement.table)
    if name is None:
        expected = "Must be a namespace and a name in the catalog, e.g. shop.orders."
        raise InvalidOption(option="the table", value=".".join(statement.table.parts), expected=expected)
    if statement.location is not None:
        expected = "Omit it: the catalog chooses the location of an Iceberg table."
        raise InvalidOption(option="LOCATION", value=statement.location, expected=expected)
    if statement.cluster_by:
        expected = "Omit it: Iceberg tables have partitions and a sort order (ALTER TABLE … WRITE ORDERED BY)."
        raise InvalidOption(option="CLUSTER BY", value=list(map(format_path, statement.cluster_by)), expected=expected)
    if name.find() is not None:
        if not statement.if_not_exists:
            raise TableAlreadyExists(location=str(name))
        table = IcebergTable(str(name), catalog.source)
        return ChangedTable(table, version_of(table))
    columns = statement.schema if isinstance(statement, CreateTableStatement) else None
    if columns is not None:
        _ensure_plain_columns(columns)
        schema = columns
    else:
        assert rows is not None
        # The columns of a table bring its ids and its defaults with them.
        schema = map_fields(as_nullable(from_spark(rows.schema)), lambda _, field: field.only_metadata(COMMENT))
    fields = resolve_partition_fields(parse_partition_by(statement.partition_by), schema)
    ensure_settable(statement.properties)
    comment = {} if statement.comment is None else {_COMMENT: statement.comment}
    new = NewTable(schema, fields, {**statement.properties, **comment})
    if rows is None:
        create_iceberg_table(name, new)
    else:
        _create_with_rows(name, new, rows)
    return ChangedTable(IcebergTable(str(name), catalog.source), NO_SNAPSHOT)


def _ensure_plain_columns(schema: Any) -> None:
    for field in schema:
        if not field.metadata.keys() <= {COMMENT, DEFAULT}:
            expected = "Iceberg tables have no column with generated values."
            raise InvalidOption(option="the column", value=field.name, expected=expected)


def _create_with_rows(name: TableName, new: NewTable, rows: DataFrame) -> None:
    transaction = open_transaction(name, None, (), new)
    with StagedFiles() as staged:
        writer = open_iceberg_writer(transaction, to_model(transaction.schema))
        files = writer.write(rows)
        staged.add_undo(lambda: writer.discard(files))
        transaction.add_snapshot(files, {OPERATION: APPEND})
        outcome = transaction.commit(staged)
        if isinstance(outcome, Conflicted):
            outcome.or_raise()


# ---- questions ------------------------------------------------------------------------------------

_DETAIL = (
    ("format", "string"),
    ("id", "string"),
    ("name", "string"),
    ("description", "string"),
    ("location", "string"),
    ("lastModified", "timestamp"),
    ("partitionColumns", "array<string>"),
    ("sortOrder", "array<string>"),
    ("numFiles", "bigint"),
    ("sizeInBytes", "bigint"),
    ("properties", "map<string,string>"),
    ("formatVersion", "int"),
    ("branches", "array<string>"),
    ("tags", "array<string>"),
)
_HISTORY = (
    ("version", "bigint"),
    ("timestamp", "timestamp"),
    ("operation", "string"),
    ("operationParameters", "map<string,string>"),
    ("operationMetrics", "map<string,string>"),
)
_TABLE = (("col_name", "string"), ("data_type", "string"), ("comment", "string"))
_PROPERTIES = (("key", "string"), ("value", "string"))


def answer(question: Question, table: IcebergTable) -> QueryResult:
    """Return the result of a DESCRIBE or SHOW statement."""
    match question:
        case DescribeDetail():
            return QueryResult(_DETAIL, [_detail(table)])
        case DescribeHistory(_, limit):
            rows = [
                (each.version, time_text(each.timestamp_ms), each.operation, each.parameters, each.metrics)
                for each in table.history(limit)
            ]
            return QueryResult(_HISTORY, rows)
        case DescribeTable(_, extended):
            return QueryResult(_TABLE, list(_describe(table, extended=extended)))
        case ShowProperties(_, key):
            if key is None:
                return QueryResult(_PROPERTIES, sorted(table.properties.items()))
            missing = f"Table {table.name} does not have property: {key}"
            return QueryResult(_PROPERTIES, [(key, table.properties.get(key, missing))])


def _detail(table: IcebergTable) -> Sequence[Any]:
    metadata, files = table.table.metadata, table.files()
    kinds = {kind: [each.name for each in table.references if each.kind == kind] for kind in ("branch", "tag")}
    return (
        "iceberg",
        str(metadata.table_uuid),
        table.name,
        table.properties.get(_COMMENT),
        table.location,
        time_text(metadata.last_updated_ms),
        list(table.partition_by),
        list(table.sort_order),
        files.num_rows,
        sum(files["size_bytes"].to_pylist()),
        table.properties,
        metadata.format_version,
        kinds["branch"],
        kinds["tag"],
    )


def _describe(table: IcebergTable, *, extended: bool) -> Iterator[tuple[str, str, str | None]]:
    for field in visible_schema(table.columns):
        yield field.name, compact_sql(field.type, str), field.metadata.get(COMMENT)
    if table.partition_by:
        yield from (
            ("# Partitioning", "", ""),
            *((f"Part {at}", text, "") for at, text in enumerate(table.partition_by)),
        )
    if extended:
        yield from (("", "", ""), ("# Detailed Table Information", "", ""))
        with suppress(KeyError):
            yield "Comment", table.properties[_COMMENT], ""
        yield "Location", table.location, ""
        yield "Provider", "iceberg", ""
        listed = ",".join(f"{key}={value}" for key, value in sorted(table.properties.items()))
        yield "Table Properties", f"[{listed}]", ""
        defaults = [field for field in table.columns if DEFAULT in field.metadata]
        if defaults:
            yield from (("", "", ""), ("# Column Default Values", "", ""))
            yield from ((field.name, compact_sql(field.type, str), field.metadata[DEFAULT]) for field in defaults)
