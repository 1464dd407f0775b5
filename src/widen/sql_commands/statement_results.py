"""The results of statements."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widen.model.schema_json import to_literal

if TYPE_CHECKING:
    from widen.spark.spark_types import DataFrame, SparkSession
    from widen.table import IcebergTable, Table


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """The result of a statement that changes a table.

    Args:
        table: The table at its version after the statement.
        before: The version before the statement, of an Iceberg table its snapshot; -1 if it created the table.
    """

    table: Table | IcebergTable
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
