"""Run a statement that changes rows, with one call of a table method.

Source: Spark's INSERT; Delta Lake's UPDATE, DELETE and MERGE.
"""

from __future__ import annotations

from collections import Counter

from widen.errors import InvalidOption
from widen.spark.spark_types import DataFrame
from widen.sql_commands.query_tables import QueryRunner
from widen.sql_commands.row_statements import Delete, Insert, Merge, Update
from widen.table import Table
from widen.table.merge_builder import MergeBuilder

_PARTITIONS = "spark.sql.sources.partitionOverwriteMode"


def change_rows(statement: Insert | Update | Delete | Merge, table: Table, runner: QueryRunner) -> Table:
    """Change the rows of a table, and return it at its new version.

    Args:
        statement: The statement.
        table: Its table.
        runner: Runs the query in the statement.

    Raises:
        InvalidStatement: Spark cannot run the query.
        RequestError: a subclass that names the reason why the statement is not allowed.
        ContentionError: a concurrent commit changed the table.
        TableError: the table cannot be read or written.
    """
    match statement:
        case Insert():
            return _insert(statement, table, runner)
        case Update(_, assignments, where):
            return table.update(dict(assignments), where, spark=runner.spark).table
        case Delete(_, where):
            return table.delete(where, spark=runner.spark).table
        case Merge():
            return _merge(statement, table, runner)


def _insert(statement: Insert, table: Table, runner: QueryRunner) -> Table:
    rows = runner.run(statement.query)
    if not statement.by_name:
        rows = _with_names(rows, statement.columns or tuple(table.schema.names))
    merges = True if statement.evolves else None
    if not statement.overwrites:
        return table.append(rows, merge_schema=merges, cast=True).table
    mode = str(runner.spark.conf.get(_PARTITIONS, "static")).lower()
    partitions = "static" if statement.where is not None else mode
    change = table.overwrite(rows, where=statement.where, partitions=partitions, merge_schema=merges, cast=True)
    return change.table


def _with_names(rows: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Return rows with these names: INSERT matches values to columns by their position.

    Raises:
        InvalidOption: the rows have more or fewer values, or a name occurs twice.
    """
    if len(rows.columns) != len(names):
        expected = f"Each row must have {len(names)} values, for {', '.join(names)}; or use BY NAME."
        raise InvalidOption(option="INSERT", value=", ".join(rows.columns), expected=expected)
    twice = [name for name, count in Counter(name.casefold() for name in names).items() if count > 1]
    if twice:
        raise InvalidOption(option="INSERT", value=twice[0], expected="Must name a column once.")
    return rows.toDF(*names)


def _merge(statement: Merge, table: Table, runner: QueryRunner) -> Table:
    source = runner.run(f"SELECT * FROM {statement.source}")
    builder = table.merge(
        source,
        statement.on,
        source_alias=statement.source_alias,
        target_alias=statement.target_alias,
        merge_schema=True if statement.evolves else None,
    )
    return MergeBuilder(builder.run, statement.clauses).execute().table
