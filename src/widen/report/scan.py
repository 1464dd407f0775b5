"""A report with what the rows themselves say, where the log does not.

Source: spec of evolution, section 3, "Report".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from widen.log.snapshot import Snapshot
from widen.model.path import Path
from widen.report.family import families
from widen.report.model import Column, Report
from widen.spark.profile import Facts, profile
from widen.spark.schema import SparkSession


def scanned(spark: SparkSession, snapshot: Snapshot, report: Report) -> Report:
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
    rows, facts = profile(spark, snapshot)
    columns = tuple(_column(column, facts) for column in report.columns)
    births = {column.path: column.birth for family in report.families for column in family.columns if column.birth}
    drifted = tuple(families(snapshot.schema, columns, births))
    return replace(report, rows=rows, columns=columns, is_scanned=True, families=drifted)


def _column(column: Column, facts: Mapping[Path, Facts]) -> Column:
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
