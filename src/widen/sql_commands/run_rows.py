"""Run a statement that changes rows, with one call of a table method.

Source: Spark's INSERT; Delta Lake's UPDATE, DELETE and MERGE.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from widen.errors import InvalidOption
from widen.model.types import ArrayType, DataType, MapType, StructType, name_key, quote_name
from widen.spark.delta_settings import schema_evolution_settings
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import DataFrame, SparkSession, from_spark, type_to_spark
from widen.sql_commands.column_defaults import find_defaults
from widen.sql_commands.query_tables import QueryRunner
from widen.sql_commands.row_statements import Delete, Insert, Merge, Update
from widen.table import Table
from widen.table.merge_builder import MergeBuilder

_PARTITIONS = "spark.sql.sources.partitionOverwriteMode"


def change_rows(statement: Insert | Update | Delete | Merge, table: Table, runner: QueryRunner) -> Table:
    """Change the rows of a table, and return it at its new version.

    Raises:
        InvalidStatement: Spark cannot run the query.
        RequestError: a subclass that names the reason why the statement is not allowed.
        ContentionError: a concurrent commit changed the table.
    """
    match statement:
        case Insert():
            return _insert(statement, table, runner)
        case Update(_, assignments, where):
            filled = find_defaults(table).fill_assignments(assignments)
            return table.update(filled, where, spark=runner.spark).table
        case Delete(_, where):
            return table.delete(where, spark=runner.spark).table
        case Merge():
            return _merge(statement, table, runner)


def _insert(statement: Insert, table: Table, runner: QueryRunner) -> Table:
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
    return table.overwrite(rows, where=where, partitions=partitions, merge_schema=merges, cast=True).table


def _fixed_columns(statement: Insert, table: Table, spark: SparkSession) -> dict[str, str]:
    """Return the values of PARTITION in the types of their columns, by the columns of the table."""
    partitions = {name_key(name): name for name in table.partition_by}
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

    Source: Spark's INSERT, which matches the fields of structs by their position, too.
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


def _merge(statement: Merge, table: Table, runner: QueryRunner) -> Table:
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
