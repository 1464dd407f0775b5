"""Running a statement: one statement, one call, one commit.

Source: house rule: a statement is a value; this module only calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from widen.errors import InvalidOption
from widen.spark.schema import DataFrame, SparkSession
from widen.spark.session import find_session
from widen.statement.parse import parse
from widen.statement.value import AddColumns, AlterColumn, DescribeHistory, SetProperties, UnsetProperties
from widen.table import Table

HISTORY = (
    "version bigint, timestamp timestamp, operation string, operationParameters map<string,string>, "
    "readVersion bigint, isolationLevel string, isBlindAppend boolean, operationMetrics map<string,string>, "
    "engineInfo string"
)
"""The columns of DESCRIBE HISTORY, as in Delta Lake."""


def sql(
    text: str, spark: SparkSession | None = None, storage_options: Mapping[str, str] | None = None
) -> Table | DataFrame:
    """Run one statement: one that changes a table gives it at its new version, one that asks gives a DataFrame.

    Args:
        text: One statement of Spark SQL, of those in `UNDERSTOOD`; a table is named ``delta.`path```.
        spark: The session for a DataFrame; by default the active one, else a local one.
        storage_options: Settings and credentials of the store of the table.

    Raises:
        InvalidStatement: the text is no statement, or none that this version understands.
        InvalidType: a type cannot be read.
        InvalidOption: a value cannot be used.
        ColumnNotFound: no such column.
        TypeChangeRefused: the type of a column may not change so.
        FeatureRequired: the change needs a table feature that the table does not have.
        ContentionError: somebody changed the table meanwhile.
        TableError: the table cannot be read or written.

    Source: house rule: one statement, one call, one commit.
    """
    statement = parse(text)
    if isinstance(statement, DescribeHistory):
        return _history(spark or find_session(), statement, storage_options)
    return execute(statement, storage_options)


def execute(
    statement: AlterColumn | AddColumns | SetProperties | UnsetProperties,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Return the table after a statement that changes it, in one commit.

    Raises:
        InvalidOption: a value cannot be used, or a property to remove is not set.
        ColumnNotFound: no such column.
        TypeChangeRefused: the type of a column may not change so.
        FeatureRequired: the change needs a table feature that the table does not have.
        ContentionError: somebody changed the table meanwhile.
        TableError: the table cannot be read or written.
    """
    table = Table(statement.location, storage_options)
    match statement:
        case AlterColumn(_, path, new, comment, nullable, first, after):
            return table.alter_column(path, type=new, comment=comment, nullable=nullable, first=first, after=after)
        case AddColumns(_, columns):
            return table.add_columns(columns)
        case SetProperties(_, properties):
            return table.set_properties(properties)
        case UnsetProperties(_, keys, if_exists):
            for key in () if if_exists else sorted(set(keys) - table.properties.keys()):
                raise InvalidOption(option="UNSET TBLPROPERTIES", value=key, expected="It is not set; say IF EXISTS.")
            return table.unset_properties(keys)


def _history(spark: SparkSession, wanted: DescribeHistory, storage_options: Mapping[str, str] | None) -> DataFrame:
    rows = [
        json.dumps({"version": version, "timestamp": time_ms, "info": info})
        for version, time_ms, info in Table(wanted.location, storage_options).history(wanted.limit)
    ]
    names = [part.split()[0] for part in HISTORY.replace("map<string,string>", "map").split(", ")]
    info = ", ".join(part for part in HISTORY.split(", ") if not part.startswith(("version", "timestamp")))
    frame = spark.createDataFrame([(row,) for row in rows], "line string").selectExpr(
        f"from_json(line, 'version bigint, timestamp bigint, info struct<{info}>') as row"
    )
    told = ["row.version as version", "timestamp_millis(row.timestamp) as timestamp"]
    return frame.selectExpr(*told, *(f"row.info.{name} as {name}" for name in names[2:]))
