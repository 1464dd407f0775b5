"""Remove the rows that a batch replaces: all rows, or those with the keys of the batch.

Source: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.read.file_list import concat_files, from_adds
from widen.log.read.snapshot import Snapshot
from widen.log.read.version_changes import INSERT
from widen.log.write.commit import ReadSet
from widen.model.types import quote_name
from widen.protocol.actions import Add, Metadata
from widen.protocol.change_data_files import CHANGE_TYPE
from widen.spark.dml.change_context import ChangeContext, ChangeFiles, ChangeResult, remove_whole_files
from widen.spark.dml.change_via_materialized_rows import change_via_materialized_rows
from widen.spark.dml.key_bounds import key_predicate
from widen.spark.dml.row_decision import BEFORE, CLAUSE, ChangeKind
from widen.spark.expression import join_columns
from widen.spark.read.scan import read_files, select_files

KEY = "__widen_key_"
"""The beginning of the columns of `ReplacedRows.keys`; a number follows."""


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """The rows of a table that a batch replaces.

    Args:
        keys: The keys, in columns named `KEY` and the number of the key column; None for all rows of the table.
    """

    spark: SparkSession
    columns: tuple[str, ...] = ()
    keys: DataFrame | None = None


def semi_join_keys(rows: DataFrame, expressions: Sequence[str], keys: DataFrame) -> DataFrame:
    """Return the rows whose keys are among some keys; null is equal to null.

    Args:
        expressions: The key of a row, in Spark SQL.
        keys: The keys, in columns named `KEY` and a number.
    """
    return _join_keys(rows, expressions, keys, "left_semi")


def anti_join_keys(rows: DataFrame, expressions: Sequence[str], keys: DataFrame) -> DataFrame:
    """Return the rows that `semi_join_keys` leaves out."""
    return _join_keys(rows, expressions, keys, "left_anti")


def _join_keys(rows: DataFrame, expressions: Sequence[str], keys: DataFrame, how: str) -> DataFrame:
    pairs = [F.expr(expression).eqNullSafe(F.col(f"{KEY}{number}")) for number, expression in enumerate(expressions)]
    return rows.join(keys, join_columns(lambda one, two: one & two, pairs), how)


def remove_replaced_rows(
    snapshot: Snapshot, metadata: Metadata, replaced: ReplacedRows, added: Sequence[Add]
) -> ChangeResult:
    """Remove rows, and return the result, with change data files for the added rows where they are needed.

    Nothing is committed. If anything fails, the written files are deleted (best effort).

    Args:
        added: The files with the new rows, which the same commit adds.

    Raises:
        JobFailed: the Spark job failed, or the data changed between two reads.
    """
    if replaced.keys is None:
        return remove_whole_files(snapshot.files(), ReadSet.EVERYTHING)
    columns = [field for name in replaced.columns if (field := snapshot.schema.find(name)) is not None]
    if len(columns) < len(replaced.columns):  # no row of the table has a key yet
        return ChangeResult(reads=ReadSet.EVERYTHING)
    selection = select_files(snapshot, key_predicate(columns, replaced.keys))
    context = ChangeContext(replaced.spark, snapshot, metadata, selection)
    removal = change_via_materialized_rows(context, partial(_decide, context, replaced), (ChangeKind.DELETE,))
    if not removal.recorded or not added:
        return removal
    # A version with change data files has all of its changes there, so the new rows are recorded too.
    with ExitStack() as undo, ChangeFiles(context) as files:
        undo.callback(removal.discard, snapshot.store)
        view = snapshot.with_metadata(metadata)
        rows = read_files(replaced.spark, snapshot.store, view, concat_files([from_adds(added)]))
        inserted = files.changes(rows.withColumn(CHANGE_TYPE, F.lit(INSERT)))
        undo.pop_all()
    return replace(removal, recorded=(*removal.recorded, *inserted), folders=(*removal.folders, *files.folders))


def _decide(context: ChangeContext, replaced: ReplacedRows, rows: DataFrame) -> DataFrame:
    """Return the rows to remove with their decision columns."""
    assert replaced.keys is not None
    before = F.struct(*(F.col(quote_name(name)) for name in context.before.names))
    replaced_rows = semi_join_keys(rows, [quote_name(name) for name in replaced.columns], replaced.keys)
    return replaced_rows.withColumns({CLAUSE: F.lit(0), BEFORE: before})
