"""Rows with their ids and the versions that changed them last, where a table keeps track of each.

Source: PROTOCOL.md#row-tracking
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.log.store import LogStore
from widen.model.type import quoted
from widen.protocol.row_tracking import TrackingColumns
from widen.spark.deletion import FILE, ROW
from widen.spark.scan import file_keys

_BASE, _VERSION = "__widen_base_row_id", "__widen_row_version"


def tracked(rows: DataFrame, store: LogStore, files: pa.Table, columns: TrackingColumns) -> DataFrame:
    """Return rows with their ids and versions: those that the file keeps, else those of their place in it.

    Args:
        rows: As `widen.spark.scan.read_located` gives them, with the columns in which files keep either.
        store: Of the table.
        files: The files that they are from.
        columns: The names of these columns.

    Source: PROTOCOL.md#reader-requirements-for-row-tracking
    """
    if not files.num_rows:
        return rows
    given = {FILE: pa.array(file_keys(store, files), pa.string())}
    given |= {_BASE: files["base_row_id"], _VERSION: files["default_row_commit_version"]}
    known = rows.join(F.broadcast(rows.sparkSession.createDataFrame(pa.table(given))), FILE)
    row_id = F.coalesce(F.col(quoted(columns.row_id)), F.col(_BASE) + F.col(ROW))
    version = F.coalesce(F.col(quoted(columns.version)), F.col(_VERSION))
    return known.withColumns({columns.row_id: row_id, columns.version: version}).drop(_BASE, _VERSION)
