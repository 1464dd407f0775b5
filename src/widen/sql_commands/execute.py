"""Run a statement with one call of a table method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from widen.changes.merge import MergeClause
from widen.errors import (
    IcebergTableNotFound,
    InvalidOption,
    NotForIceberg,
    OptionMissing,
    TableAlreadyExists,
    WidenError,
)
from widen.iceberg.catalog import CatalogSource
from widen.iceberg.partitions import IDENTITY, parse_partition_by
from widen.model.argument_types import check_arguments
from widen.model.column_path import format_path
from widen.model.types import ArrayType, DataType, MapType, StructType, name_key, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import find_default
from widen.protocol.table_features import supported_features
from widen.spark.engine import find_session, find_started
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import Expression
from widen.spark.session import RETENTION_CHECK, is_setting_on, schema_evolution_settings
from widen.spark.spark_types import DataFrame, SparkSession, from_spark, type_to_spark
from widen.sql_commands import iceberg_statements
from widen.sql_commands.grammar import TokenReader, tokenize
from widen.sql_commands.iceberg_statements import IcebergCatalog, ensure_new_name, iceberg_codes, identity_columns
from widen.sql_commands.parser import parse_sql
from widen.sql_commands.queries import (
    QueryRunner,
    ensure_registers,
    find_table_location,
    is_name_in_use,
    register_table,
    run_query,
)
from widen.sql_commands.statements import (
    AddColumns,
    AddConstraintStatement,
    Alteration,
    AlterColumns,
    ChangedTable,
    ClusterBy,
    Command,
    CreateTableAs,
    CreateTableStatement,
    Delete,
    DropColumns,
    DropConstraintStatement,
    DropFeature,
    IcebergAlteration,
    Insert,
    Merge,
    Optimize,
    Query,
    QueryResult,
    Question,
    RenameColumnStatement,
    ReplaceColumnsStatement,
    Restore,
    Rewrite,
    RowStatement,
    SetProperties,
    Statement,
    SyncIdentityStatement,
    TableReference,
    UnsetProperties,
    Update,
    Upkeep,
)
from widen.table import IcebergTable, Table, create_table
from widen.table.row_operations import MergeBuilder
from widen.table.table import create_table_as

Creation: TypeAlias = CreateTableStatement | CreateTableAs


@check_arguments
def sql(
    text: str,
    *,
    catalog: CatalogSource | None = None,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table | IcebergTable | DataFrame:
    """Run one statement; return the table at its new version, or a DataFrame for a query, DESCRIBE or SHOW statement.

    Args:
        text: One statement of Spark SQL, in one of the forms in `widen.sql_commands.grammar` and
            `widen.sql_commands.statements`; a table is a path, ``delta.`/data/orders```, or a name in the catalog
            of the session.
        catalog: The Iceberg catalog for the names that it has; new tables without a path are made there. It is the name
            of a catalog in PyIceberg's configuration, a path that ends in ``.db`` for an embedded catalog, or an open
            PyIceberg catalog.
        spark: The session for catalog names, scans and DataFrames; by default the active one, else a local one.
        storage_options: Settings and credentials of the store of the table.

    Raises:
        InvalidStatement: the text is not a statement that this version supports.
        RequestError: a subclass that names the reason why the statement is not allowed.
        NameNotFound: the table is not in the catalog.
        ContentionError: a concurrent commit changed the table.
        TableError: the table cannot be read or written.
    """
    result = run_statement(parse_sql(text), spark, storage_options, catalog)
    if isinstance(result, ChangedTable):
        return result.table
    return (
        result.to_frame(find_session(spark, "it returns a DataFrame of Spark"))
        if isinstance(result, QueryResult)
        else result
    )


def run_statement(
    statement: Statement | RowStatement,
    spark: SparkSession | None = None,
    storage_options: Mapping[str, str] | None = None,
    catalog: CatalogSource | None = None,
) -> ChangedTable | QueryResult | DataFrame:
    """Run a statement, and return the changed table or the result of the query.

    Args:
        spark: The session for catalog names and scans; by default the active one, else a local one, if one is needed.
    """
    tables = None if catalog is None else IcebergCatalog(catalog)
    if isinstance(statement, Query):
        return QueryRunner(spark, QUERIES, storage_options, tables).run(statement.text)
    if isinstance(statement, (CreateTableStatement, CreateTableAs)):
        if _is_iceberg(statement, tables):
            assert tables is not None
            query = statement.query if isinstance(statement, CreateTableAs) else None
            rows = (
                None
                if query is None
                else QueryRunner(spark, "it evaluates a query", storage_options, tables).run(query)
            )
            with iceberg_codes():
                return iceberg_statements.create(statement, tables, rows)
        return _create(statement, spark, storage_options, tables)
    found = None if tables is None else tables.find(statement.table)
    if found is not None:
        with iceberg_codes():
            return _run_in_catalog(statement, found, tables, spark, storage_options)
    if isinstance(statement, IcebergAlteration):
        raise _not_in_catalog(statement, tables)
    table = Table(_locate_table(statement.table, spark), storage_options)
    before = table.version
    if isinstance(statement, Question):
        return run_query(statement, table)
    if isinstance(statement, RowStatement):
        runner = QueryRunner(spark, WRITES_QUERY, storage_options, tables)
        return ChangedTable(change_rows(statement, table, runner), before)
    if isinstance(statement, Upkeep):
        return _keep_up(statement, table, spark)
    return ChangedTable(_execute(statement, table, spark), before)


def _is_iceberg(statement: Creation, tables: IcebergCatalog | None) -> bool:
    """Return whether a new table is made in the Iceberg catalog.

    Raises:
        OptionMissing: it should be, but it is missing.
    """
    wants = statement.using == "iceberg"
    if tables is None and wants:
        raise OptionMissing(option="catalog", expected="USING ICEBERG needs catalog= in Python, --catalog otherwise.")
    return tables is not None and (wants or (statement.using is None and statement.table.location is None))


def _not_in_catalog(statement: IcebergAlteration, tables: IcebergCatalog | None) -> WidenError:
    if tables is None:
        return OptionMissing(option="catalog", expected="The statement is for Iceberg tables; name their catalog.")
    return IcebergTableNotFound(location=".".join(statement.table.parts), reason="the catalog does not have it")


def _run_in_catalog(
    statement: Statement | RowStatement,
    table: IcebergTable,
    tables: IcebergCatalog | None,
    spark: SparkSession | None,
    options: Mapping[str, str] | None,
) -> ChangedTable | QueryResult:
    """Run a statement about a table of the Iceberg catalog."""
    before = iceberg_statements.version_of(table)
    if isinstance(statement, Question):
        return iceberg_statements.answer(statement, table)
    if isinstance(statement, (Insert, Update, Delete, Merge)):
        runner = QueryRunner(spark, WRITES_QUERY, options, tables)
        return ChangedTable(change_rows(statement, table, runner), before)
    if isinstance(statement, Upkeep):
        return iceberg_statements.maintain(statement, table, spark)
    assert isinstance(statement, Command)
    return ChangedTable(iceberg_statements.execute(statement, table), before)


QUERIES = "the query is more than a SELECT from one table"
WRITES_QUERY = "it writes the rows of a query, or joins rows"
HAS_CATALOG = "its catalog knows where the table is"
"""Why a statement needs a session."""


def find_session_need(statement: Statement | RowStatement, catalog: CatalogSource | None = None) -> str:
    """Return why a statement needs a session: for rows, or to find a table in its catalog; empty if it does not."""
    if isinstance(statement, Query):
        return QUERIES
    if isinstance(statement, RowStatement):
        return WRITES_QUERY
    tables = None if catalog is None else IcebergCatalog(catalog)
    if isinstance(statement, CreateTableAs):
        return WRITES_QUERY
    if isinstance(statement, CreateTableStatement) and _is_iceberg(statement, tables):
        return ""
    is_found = statement.table.location is not None or (tables is not None and tables.find(statement.table) is not None)
    return "" if is_found else HAS_CATALOG


def may_need_no_session(statement: Statement | RowStatement, catalog: CatalogSource | None = None) -> bool:
    """Return whether a statement changes rows of a table that is found without a session: this process may do that."""
    if not isinstance(statement, (Update, Delete)):
        return False
    is_in_catalog = catalog is not None and IcebergCatalog(catalog).find(statement.table) is not None
    return statement.table.location is not None or is_in_catalog


def _keep_up(statement: Upkeep, table: Table, spark: SparkSession | None) -> ChangedTable | QueryResult:
    before = table.version
    if isinstance(statement, Rewrite):
        return ChangedTable(table.rewrite(spark=spark).table, before)
    if isinstance(statement, Optimize):
        columns = [format_path(path) for path in statement.zorder_by]
        return ChangedTable(table.optimize(statement.where, zorder_by=columns, spark=spark).table, before)
    is_forced = not is_setting_on(find_started(spark), RETENTION_CHECK)
    done = table.vacuum(statement.hours, dry_run=statement.dry_run, force=is_forced, spark=spark)
    if statement.dry_run:
        return QueryResult((("path", "string"),), [(path,) for path in done.files])
    return ChangedTable(table, before)


def _locate_table(name: TableReference, spark: SparkSession | None) -> str:
    return (
        name.location
        if name.location is not None
        else find_table_location(find_session(spark, HAS_CATALOG), name.parts)
    )


def _execute(statement: Alteration | Restore, table: Table, spark: SparkSession | None) -> Table:
    match statement:
        case AlterColumns(_, changes):
            return table.alter_columns(dict(changes.items()), spark=spark)
        case RenameColumnStatement(_, column, name):
            ensure_new_name(table.schema, column, name)
            return table.rename_column(column, name)
        case AddColumns(_, columns):
            return table.add_columns(dict(columns.items()))
        case DropColumns(_, columns, if_exists):
            return table.drop_columns(*columns, if_exists=if_exists)
        case ReplaceColumnsStatement(_, schema):
            return table.replace_columns(schema)
        case SyncIdentityStatement(_, column):
            return table.sync_identity(column, spark=spark)
        case AddConstraintStatement(_, name, condition):
            return table.add_constraint(name, condition, spark=spark)
        case DropConstraintStatement(_, name, if_exists):
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


def _create(
    statement: Creation,
    spark: SparkSession | None,
    options: Mapping[str, str] | None,
    tables: IcebergCatalog | None,
) -> ChangedTable:
    """Create a table; a catalog name is checked first, and registered after the table exists."""
    name, place = statement.table.parts, _new_table_location(statement)
    session = None if statement.table.location else find_session(spark, "its catalog registers the table")
    if session is not None:
        ensure_registers(session, name)
        # Before the table is made, so that no table without a name is left behind.
        if is_name_in_use(session, name):
            return _existing_table(statement, find_table_location(session, name), options)
    try:
        table = _make(statement, place, spark, options, tables)
    except TableAlreadyExists:
        result = _existing_table(statement, place, options)
    else:
        result = ChangedTable(table, -1)
    if session is not None:
        register_table(session, name, result.table.location)
    return result


def _make(
    statement: Creation,
    place: str,
    spark: SparkSession | None,
    options: Mapping[str, str] | None,
    tables: IcebergCatalog | None,
) -> Table:
    details: dict[str, Any] = {
        "partition_by": _plain_columns(statement.partition_by),
        "cluster_by": statement.cluster_by,
        "properties": statement.properties,
        "storage_options": options,
        "description": statement.comment,
    }
    if isinstance(statement, CreateTableStatement):
        return create_table(place, statement.schema, spark=spark, **details)
    rows = QueryRunner(spark, "it evaluates a query", options, tables).run(statement.query)
    return create_table_as(place, rows, **details)


def _plain_columns(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns of a Delta table.

    Raises:
        InvalidOption: one is a call of a transform, or a nested field.
    """
    fields = parse_partition_by(texts)
    for text, each in zip(texts, fields, strict=True):
        if each.transform != IDENTITY or len(each.source) != 1:
            expected = "Must be a column. Transforms are for Iceberg tables: CREATE TABLE … USING ICEBERG."
            raise InvalidOption(option="PARTITIONED BY", value=text, expected=expected)
    return tuple(each.source[0] for each in fields)


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


# Run a statement that changes rows, with one call of a table method.
#
# Source: Spark's INSERT; Delta Lake's UPDATE, DELETE and MERGE.


_PARTITIONS = "spark.sql.sources.partitionOverwriteMode"


_AnyTable = TypeVar("_AnyTable", Table, IcebergTable)


def change_rows(statement: Insert | Update | Delete | Merge, table: _AnyTable, runner: QueryRunner) -> _AnyTable:
    """Change the rows of a table, and return it at its new version."""
    match statement:
        case Insert():
            return _insert(statement, table, runner)
        case Update(_, assignments, where):
            filled = find_defaults(table).fill_assignments(assignments)
            return table.update(filled, where, spark=runner.session).table
        case Delete(_, where):
            return table.delete(where, spark=runner.session).table
        case Merge():
            return _merge(statement, table, runner)


def _insert(statement: Insert, table: _AnyTable, runner: QueryRunner) -> _AnyTable:
    # Without WITH SCHEMA EVOLUTION the setting of the session decides.
    fixed, merges = _fixed_columns(statement, table, runner.spark), True if statement.evolves else None
    names = statement.columns or tuple(name for name in table.schema.names if name not in fixed)
    if statement.by_name:
        rows = runner.run(statement.query)
    else:
        rows = runner.run(find_defaults(table).fill_rows(statement.query, names))
        if statement.columns is None and schema_evolution_settings(runner.spark, merges, None)[0]:
            names += tuple(rows.columns[len(names) :])
        rows = _by_position(rows, names, table.schema)
    rows = rows.selectExpr("*", *(f"{value} AS {quote_name(name)}" for name, value in fixed.items()))
    if not statement.overwrites:
        return table.append(rows, merge_schema=merges, cast=True).table
    mode = str(runner.spark.conf.get(_PARTITIONS, "static")).lower()
    partitions = "static" if statement.where is not None else mode
    same = " AND ".join(_equality(name, value) for name, value in fixed.items()) if partitions == "static" else ""
    where = statement.where or same or None
    if isinstance(table, IcebergTable):
        if partitions == "dynamic":
            reason = "name the rows to replace: INSERT INTO table REPLACE WHERE condition query"
            raise NotForIceberg(name=f"INSERT OVERWRITE with {_PARTITIONS} = dynamic", reason=reason)
        return table.overwrite(rows, where=where, merge_schema=merges, cast=True).table
    return table.overwrite(rows, where=where, partitions=partitions, merge_schema=merges, cast=True).table


def _fixed_columns(statement: Insert, table: Table | IcebergTable, spark: SparkSession) -> dict[str, str]:
    """Return the values of PARTITION in the types of their columns, by the columns of the table."""
    columns_by = identity_columns(table) if isinstance(table, IcebergTable) else table.partition_by
    partitions = {name_key(name): name for name in columns_by}
    listed = {name_key(name) for name in statement.columns or ()}
    for name in statement.partition:
        if name_key(name) not in partitions:
            expected = f"Must name partition columns: {', '.join(partitions.values()) or 'the table has none'}."
            raise InvalidOption(option="PARTITION", value=name, expected=expected)
        if statement.partition[name] is not None and name_key(name) in listed:
            raise InvalidOption(option="PARTITION", value=name, expected="The column list must not name it, too.")
    types = {field.name: field.type.sql for field in table.schema}
    columns = {partitions[name_key(name)]: value for name, value in statement.partition.items()}
    return {name: _constant(name, value, types[name], spark) for name, value in columns.items() if value is not None}


def _constant(name: str, value: str, data_type: str, spark: SparkSession) -> str:
    """Return a value as a constant of a type, or NULL; Spark makes null of a value that does not fit, or fails."""
    constant = f"CAST({value} AS {data_type})"
    with translate_spark_errors():
        row = spark.sql(f"SELECT ({value}) IS NULL, try_cast({value} AS {data_type}) IS NULL").collect()[0]
    is_null, is_null_in_type = row
    if is_null_in_type and not is_null:
        raise InvalidOption(option="PARTITION", value=value, expected=f"Must be a value of {name} {data_type}.")
    return "NULL" if is_null else constant


def _equality(name: str, constant: str) -> str:
    return f"{quote_name(name)} IS NULL" if constant == "NULL" else f"{quote_name(name)} = {constant}"


def _by_position(rows: DataFrame, names: tuple[str, ...], schema: StructType) -> DataFrame:
    """Return rows with these names, and with the table's names in structs: INSERT matches values by their position."""
    if len(rows.columns) != len(names):
        expected = f"Each row must have {len(names)} values, for {', '.join(names)}; or use BY NAME."
        raise InvalidOption(option="INSERT", value=", ".join(rows.columns), expected=expected)
    twice = [name for name, count in Counter(name_key(name) for name in names).items() if count > 1]
    if twice:
        raise InvalidOption(option="INSERT", value=twice[0], expected="Must name a column once.")
    named = rows.toDF(*names)
    current = {name: field.type for name in names if (field := schema.find(name))}
    given = {field.name: field.type for field in from_spark(named.schema)}
    renamed = {name: _with_names(given[name], old, name) for name, old in current.items()}
    casts = {
        name: named[quote_name(name)].cast(type_to_spark(new)) for name, new in renamed.items() if new != given[name]
    }
    return named.withColumns(casts) if casts else named


def _with_names(new: DataType, old: DataType, path: str) -> DataType:
    """Return a type with the names of the table in its structs, field by field; further fields keep their names.

    Source: Spark's INSERT, which also matches the fields of structs by their position.
    """
    match new, old:
        case StructType(), StructType():
            if len(new) < len(old):
                expected = f"Must have {len(old)} fields, for {', '.join(old.names)}; or use BY NAME."
                raise InvalidOption(option="INSERT", value=path, expected=expected)
            first = [
                replace(field, name=known.name, type=_with_names(field.type, known.type, f"{path}.{known.name}"))
                for field, known in zip(new, old, strict=False)
            ]
            return StructType((*first, *new.fields[len(old) :]))
        case ArrayType(element), ArrayType(known):
            return replace(new, element=_with_names(element, known, f"{path}.element"))
        case MapType(key, value), MapType(known_key, known_value):
            key, value = _with_names(key, known_key, f"{path}.key"), _with_names(value, known_value, f"{path}.value")
            return replace(new, key=key, value=value)
    return new


def _merge(statement: Merge, table: _AnyTable, runner: QueryRunner) -> _AnyTable:
    source = runner.run(f"SELECT * FROM {statement.source}")
    builder = table.merge(
        source,
        statement.on,
        source_alias=statement.source_alias,
        target_alias=statement.target_alias,
        merge_schema=True if statement.evolves else None,
    )
    clauses = tuple(map(find_defaults(table).fill_clause, statement.clauses))
    return MergeBuilder(builder.run, clauses).execute().table


# DEFAULT in INSERT, UPDATE and MERGE: the default of its column, or null.
#
# Source: Spark's DEFAULT; PROTOCOL.md#default-columns


_DEFAULT = "DEFAULT"


@dataclass(frozen=True, slots=True)
class ColumnDefaults:
    """The defaults of the columns of a table.

    Args:
        texts: The expressions in Spark SQL, by the names of the columns in lower case.
    """

    texts: Mapping[str, str]

    def fill_assignments(self, assignments: Mapping[str, Expression]) -> dict[str, Expression]:
        """Return assignments without DEFAULT."""
        return {
            column: self._of(_name(column)) if isinstance(value, str) and value.upper() == _DEFAULT else value
            for column, value in assignments.items()
        }

    def fill_clause(self, clause: MergeClause) -> MergeClause:
        """Return a clause of a merge without DEFAULT."""
        values = clause.values
        return clause if values is None else replace(clause, values=self.fill_assignments(values))

    def fill_rows(self, query: str, names: Sequence[str]) -> str:
        """Return a query without DEFAULT in the rows of VALUES, and in the list of a plain SELECT."""
        filled, at = "", 0
        for row in _find_rows(TokenReader(query)):
            for name, (start, text) in zip(names, row, strict=False):
                if text.strip("()` ").upper() == _DEFAULT:
                    filled, at = f"{filled}{query[at:start]}{self._of(name)}", start + len(text)
        return filled + query[at:]

    def _of(self, column: str) -> str:
        text = self.texts.get(name_key(column))
        return "NULL" if text is None else f"({text})"


_COMBINING = ("GROUP BY", "HAVING", "UNION", "EXCEPT", "INTERSECT", "MINUS")
_AFTER_LIST = (
    "FROM",
    "WHERE",
    "ORDER BY",
    "SORT BY",
    "CLUSTER BY",
    "DISTRIBUTE BY",
    "LIMIT",
    "OFFSET",
    "LATERAL",
    "WINDOW",
)


def _find_rows(query: TokenReader) -> Iterator[list[tuple[int, str]]]:
    """Yield the values at the positions of the columns, each with its position in the text.

    Source: Spark, which takes DEFAULT in no query that groups, combines or removes duplicates, or has a WITH clause.
    """
    if query.token.word == "(" and not query.peek_after_group():
        yield from _find_rows(query.group())
        return
    if query.accept("FROM"):
        query.until("SELECT")
    query.accept("SELECT", "*", "FROM")
    if query.accept("VALUES"):
        for row in query.items(*_COMBINING):
            yield _values(row.group().items() if row.token.word == "(" else [row])
    elif query.accept("SELECT") and query.token.word != "DISTINCT":
        values = _values(query.items(*_AFTER_LIST, *_COMBINING))
        if not query.is_done and query.token.word not in _COMBINING:
            query.until(*_COMBINING)
        if query.is_done and not any(text.endswith("*") for _, text in values):
            yield values


def _values(items: Iterable[TokenReader]) -> list[tuple[int, str]]:
    return [(item.token.start, item.rest()) for item in items]


def find_defaults(table: Table | IcebergTable) -> ColumnDefaults:
    """Return the defaults of the columns of a table."""
    if isinstance(table, IcebergTable):
        schema = table.columns
    elif "allowColumnDefaults" in supported_features(table.protocol):
        schema = table.snapshot.schema
    else:
        return ColumnDefaults({})
    defaults = {name_key(field.name): find_default(field) for field in schema}
    return ColumnDefaults({name: text for name, text in defaults.items() if text is not None})


def _name(column: str) -> str:
    """Return the name of a column that may be in backticks; a nested field has no default."""
    tokens = tokenize(column)
    return tokens[0].text if len(tokens) == 1 else ""
