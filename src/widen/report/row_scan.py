"""Replace the numbers of a report by exact ones from a scan of all rows.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

from dataclasses import replace

from widen.model.types import StructType
from widen.report.source_fields import drifted_fields
from widen.report.table_report import Report, ReportColumn
from widen.spark.maintain.column_profile import ColumnFacts, profile_columns
from widen.spark.spark_types import DataFrame


def scan_report(rows: DataFrame, schema: StructType, report: Report) -> Report:
    """Return the report with numbers from all rows; deleted rows do not count, values inside arrays do."""
    number, facts = profile_columns(rows, schema)
    columns = tuple(_scanned_column(column, facts[column.path]) for column in report.columns)
    origins = {column.path: column.origin for family in report.families for column in family.columns if column.origin}
    drifted = tuple(drifted_fields(schema, columns, origins))
    return replace(report, rows=number, columns=columns, is_scanned=True, families=drifted)


def _scanned_column(column: ReportColumn, facts: ColumnFacts) -> ReportColumn:
    return replace(
        column,
        written=facts.written,
        nulls=facts.nulls,
        low=facts.low,
        high=facts.high,
        distinct=facts.distinct,
        samples=facts.samples,
        uncounted=0,
    )
