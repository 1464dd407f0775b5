"""A report with what the rows themselves say, where the log does not.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path
from widen.report.report_model import Report, ReportColumn
from widen.report.source_fields import drifted_fields
from widen.spark.maintain.column_profile import ColumnFacts, profile_columns
from widen.spark.spark_types import SparkSession


def scan_report(spark: SparkSession, snapshot: Snapshot, report: Report) -> Report:
    """Return the report with numbers from every row: what is deleted does not count, and what is in arrays does.

    Args:
        spark: The session.
        snapshot: The version that the report is of.
        report: From the log.

    Raises:
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish a job.
        StorageError: the store refused.
    """
    rows, facts = profile_columns(spark, snapshot)
    columns = tuple(_column(column, facts) for column in report.columns)
    births = {column.path: column.birth for family in report.families for column in family.columns if column.birth}
    drifted = tuple(drifted_fields(snapshot.schema, columns, births))
    return replace(report, rows=rows, columns=columns, is_scanned=True, families=drifted)


def _column(column: ReportColumn, facts: Mapping[Path, ColumnFacts]) -> ReportColumn:
    found = facts[column.path]
    return replace(
        column,
        written=found.written,
        nulls=found.nulls,
        low=found.low,
        high=found.high,
        distinct=found.distinct,
        samples=found.samples,
    )
