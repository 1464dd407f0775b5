"""Rows with their ids and the versions that changed them last, where a table keeps track of each.

Source: PROTOCOL.md#row-tracking
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.log.store.log_store import LogStore
from widen.model.types import quote_name
from widen.protocol.tracking_columns import TrackingColumns
from widen.spark.read.deleted_rows import FILE, ROW
from widen.spark.read.scan import file_keys

_BASE, _VERSION = "__widen_base_row_id", "__widen_row_version"


def with_row_tracking(rows: DataFrame, store: LogStore, files: pa.Table, columns: TrackingColumns) -> DataFrame:
    """Return rows with their ids and versions: those that the file keeps, else those of their place in it.

    Args:
        rows: As `widen.spark.read.scan.read_with_locations` gives them, with the columns in which files keep either.
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
    row_id = F.coalesce(F.col(quote_name(columns.row_id)), F.col(_BASE) + F.col(ROW))
    version = F.coalesce(F.col(quote_name(columns.version)), F.col(_VERSION))
    return known.withColumns({columns.row_id: row_id, columns.version: version}).drop(_BASE, _VERSION)
