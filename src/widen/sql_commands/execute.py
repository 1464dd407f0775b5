"""Run a statement with one call of a table method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from widen.errors import InvalidOption, OptionMissing, TableAlreadyExists
from widen.model.argument_types import check_arguments
from widen.model.column_path import format_path
from widen.spark.catalog import ensure_registers, find_table_location, is_name_in_use, register_table
from widen.spark.delta_settings import RETENTION_CHECK, is_on
from widen.spark.session import find_session
from widen.spark.spark_types import DataFrame, SparkSession
from widen.sql_commands.parser import parse_sql
from widen.sql_commands.query_results import ChangedTable, QueryResult, run_query
from widen.sql_commands.query_tables import QueryRunner
from widen.sql_commands.row_statements import CreateTableAs, Query, RowStatement
from widen.sql_commands.run_rows import change_rows
from widen.sql_commands.statements import (
    AddColumns,
    AddConstraint,
    AlterColumns,
    ClusterBy,
    Command,
    CreateTable,
    DropColumns,
    DropConstraint,
    DropFeature,
    Optimize,
    Question,
    RenameColumn,
    ReplaceColumns,
    Restore,
    SetProperties,
    Statement,
    SyncIdentity,
    TableName,
    UnsetProperties,
    Upkeep,
)
from widen.table import Table, create_table
from widen.table.table import create_table_as

Creation: TypeAlias = CreateTable | CreateTableAs


@check_arguments
def sql(
    text: str, *, spark: SparkSession | None = None, storage_options: Mapping[str, str] | None = None
) -> Table | DataFrame:
    """Run one statement; return the table at its new version, or a DataFrame for a query, DESCRIBE or SHOW statement.

    Args:
        text: One statement of Spark SQL, in one of the forms in `widen.sql_commands.grammar` and
            `widen.sql_commands.row_statements`; a table is a path, ``delta.`/data/orders```, or a name in the catalog
            of the session.
        spark: The session for catalog names, scans and DataFrames; by default the active one, else a local one.
        storage_options: Settings and credentials of the store of the table.

    Raises:
        InvalidStatement: the text is not a statement that this version supports.
        RequestError: a subclass that names the reason why the statement is not allowed.
        NameNotFound: the table is not in the catalog.
        ContentionError: a concurrent commit changed the table.
        TableError: the table cannot be read or written.
    """
    result = run_statement(parse_sql(text), spark, storage_options)
    if isinstance(result, ChangedTable):
        return result.table
    return result.to_frame(find_session(spark)) if isinstance(result, QueryResult) else result


def run_statement(
    statement: Statement | RowStatement,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ChangedTable | QueryResult | DataFrame:
    """Run a statement, and return the changed table or the result of the query.

    Args:
        spark: The session for catalog names and scans; by default the active one, else a local one, if one is needed.

    Raises:
        RequestError: a subclass that names the reason why the statement is not allowed.
        ContentionError: a concurrent commit changed the table.
    """
    if isinstance(statement, Query):
        return QueryRunner(find_session(spark), storage_options).run(statement.text)
    if isinstance(statement, (CreateTable, CreateTableAs)):
        return _create(statement, spark, storage_options)
    table = Table(_locate_table(statement.table, spark), storage_options)
    before = table.version
    if isinstance(statement, Question):
        return run_query(statement, table)
    if isinstance(statement, RowStatement):
        runner = QueryRunner(find_session(spark), storage_options)
        return ChangedTable(change_rows(statement, table, runner), before)
    if isinstance(statement, Upkeep):
        return _keep_up(statement, table, spark)
    return ChangedTable(_execute(statement, table, spark), before)


def needs_session(statement: Statement | RowStatement) -> bool:
    """Tell whether a statement surely needs a session: for rows, or to find a table in the catalog."""
    return isinstance(statement, RowStatement) or statement.table.location is None


def _keep_up(statement: Upkeep, table: Table, spark: SparkSession | None) -> ChangedTable | QueryResult:
    before = table.version
    if isinstance(statement, Optimize):
        columns = [format_path(path) for path in statement.zorder_by]
        return ChangedTable(table.optimize(statement.where, zorder_by=columns, spark=spark).table, before)
    done = table.vacuum(
        statement.hours, dry_run=statement.dry_run, force=not is_on(spark, RETENTION_CHECK), spark=spark
    )
    if statement.dry_run:
        return QueryResult((("path", "string"),), [(path,) for path in done.files])
    return ChangedTable(table, before)


def _locate_table(name: TableName, spark: SparkSession | None) -> str:
    return name.location if name.location is not None else find_table_location(find_session(spark), name.parts)


def _execute(statement: Command, table: Table, spark: SparkSession | None) -> Table:
    match statement:
        case AlterColumns(_, changes):
            return table.alter_columns(dict(changes.items()), spark=spark)
        case RenameColumn(_, column, name):
            return table.rename_column(column, name)
        case AddColumns(_, columns):
            return table.add_columns(dict(columns.items()))
        case DropColumns(_, columns, if_exists):
            return table.drop_columns(*columns, if_exists=if_exists)
        case ReplaceColumns(_, schema):
            return table.replace_columns(schema)
        case SyncIdentity(_, column):
            return table.sync_identity(column, spark=spark)
        case AddConstraint(_, name, condition):
            return table.add_constraint(name, condition, spark=spark)
        case DropConstraint(_, name, if_exists):
            return table.drop_constraint(name, if_exists=if_exists)
        case SetProperties(_, properties):
            return table.set_properties(properties, spark=spark)
        case UnsetProperties(_, keys):  # Delta Lake ignores a property that is not set, also without IF EXISTS
            return table.unset_properties(keys, spark=spark)
        case ClusterBy(_, clustered_by):
            return table.cluster_by(*clustered_by)
        case DropFeature(_, name, truncate_history):
            return table.drop_feature(name, truncate_history=truncate_history, spark=spark)
        case Restore(_, moment):
            change = table.restore(moment) if isinstance(moment, int) else table.restore(timestamp=moment)
            return change.table


def _create(statement: Creation, spark: SparkSession | None, options: Mapping[str, str] | None) -> ChangedTable:
    """Create a table; a catalog name is checked first, and registered after the table exists."""
    name, place = statement.table.parts, _new_table_location(statement)
    session = None if statement.table.location else find_session(spark)
    if session is not None:
        ensure_registers(session, name)
        # Before the table is made, so that no table without a name is left behind.
        if is_name_in_use(session, name):
            return _existing_table(statement, find_table_location(session, name), options)
    try:
        table = _make(statement, place, spark, options)
    except TableAlreadyExists:
        result = _existing_table(statement, place, options)
    else:
        result = ChangedTable(table, -1)
    if session is not None:
        register_table(session, name, result.table.location)
    return result


def _make(statement: Creation, place: str, spark: SparkSession | None, options: Mapping[str, str] | None) -> Table:
    details: dict[str, Any] = {
        "partition_by": statement.partition_by,
        "properties": statement.properties,
        "storage_options": options,
        "description": statement.comment,
    }
    if isinstance(statement, CreateTable):
        return create_table(place, statement.schema, spark=spark, **details)
    return create_table_as(place, QueryRunner(find_session(spark), options).run(statement.query), **details)


def _existing_table(statement: Creation, place: str, options: Mapping[str, str] | None) -> ChangedTable:
    """Return the existing table if the statement says IF NOT EXISTS."""
    if not statement.if_not_exists:
        raise TableAlreadyExists(location=place)
    table = Table(place, options)
    return ChangedTable(table, table.version)


def _new_table_location(statement: Creation) -> str:
    """Return the location of a new table: the path in its name, or the one of LOCATION."""
    path, location = statement.table.location, statement.location
    if path is not None and location not in (None, path):
        raise InvalidOption(
            option="LOCATION", value=location, expected=f"The name of the table already gives the path {path}."
        )
    place = location if path is None else path
    if place is None:
        expected = "Write where the new table is: LOCATION '/path', or the name delta.`/path`."
        raise OptionMissing(option="LOCATION", expected=expected)
    return place
