"""Remove the rows that a batch replaces: all rows, or the rows with the keys of the batch.

Source: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from functools import partial, reduce

from pyroaring import BitMap64

from widen.changes.assignment import BEFORE, CLAUSE, ChangeKind
from widen.changes.change_context import ChangeContext, ChangeFiles, ChangeResult, remove_whole_files
from widen.changes.spark_changes import change_via_materialized_rows
from widen.evolution.key_rules import KEY
from widen.files.deleted_rows import only_marked, to_words
from widen.frames.scan import read_data_files
from widen.log.commit import ReadSet
from widen.log.file_list import concat_files, from_adds
from widen.log.snapshot import Snapshot, select_files
from widen.log.version_changes import INSERT
from widen.model.types import BYTE, DATE, INTEGER, LONG, SHORT, STRING, DataType, DecimalType, Field, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, Metadata
from widen.protocol.column_mapping import CHANGE_TYPE
from widen.protocol.comparison import bind_comparison
from widen.protocol.data_skipping import And, IsNull, Or, Predicate, UnknownPredicate
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import join_columns
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, from_spark


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
    """Return the rows whose keys are among some keys; null is equal to null."""
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
    """
    if replaced.keys is None:
        return remove_whole_files(snapshot.files(), ReadSet.EVERYTHING)
    columns = [field for name in replaced.columns if (field := snapshot.schema.find(name)) is not None]
    if len(columns) < len(replaced.columns):  # no row of the table has a key yet
        return ChangeResult(reads=ReadSet.EVERYTHING)
    selection = select_files(snapshot, key_predicate(columns, replaced.keys))
    context, names = ChangeContext(replaced.spark, snapshot, metadata, selection), map(quote_name, replaced.columns)
    return _remove(context, partial(semi_join_keys, expressions=[*names], keys=replaced.keys), added)


def remove_marked_rows(context: ChangeContext, marked: Mapping[str, BitMap64], added: Sequence[Add]) -> ChangeResult:
    """Remove rows that are known by their positions with Spark, like `remove_replaced_rows`."""
    return _remove(context, partial(only_marked, words=to_words(context.spark, marked)), added)


def _remove(context: ChangeContext, choose: Callable[[DataFrame], DataFrame], added: Sequence[Add]) -> ChangeResult:
    """Remove the rows that a function chooses; see `remove_replaced_rows`."""
    before = F.struct(*(F.col(quote_name(name)) for name in context.before.names))

    def decide(rows: DataFrame) -> DataFrame:
        return choose(rows).withColumns({CLAUSE: F.lit(0), BEFORE: before})

    removal = change_via_materialized_rows(context, decide, (ChangeKind.DELETE,))
    if not removal.recorded or not added:
        return removal
    # A version with change data files must have all of its changes there, so record the new rows as well.
    snapshot = context.snapshot
    with ExitStack() as undo, ChangeFiles(context) as files:
        undo.callback(removal.discard, snapshot.store)
        view = snapshot.with_metadata(context.metadata)
        rows = read_data_files(context.spark, snapshot.store, view, concat_files([from_adds(added)]))
        inserted = files.changes(rows.withColumn(CHANGE_TYPE, F.lit(INSERT)))
        undo.pop_all()
    return replace(removal, recorded=(*removal.recorded, *inserted), folders=(*removal.folders, *files.folders))


# Predicates that select files by the smallest and the largest of some keys.
#
# Source: PROTOCOL.md#per-file-statistics


_INTEGERS = (BYTE, SHORT, INTEGER, LONG)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def key_predicate(columns: Sequence[Field], keys: DataFrame) -> Predicate:
    """Return a predicate that every row with one of the keys fulfils.

    A key column takes part if Python orders its values and the keys in the same way.
    """
    pairs = zip(columns, from_spark(keys.schema), strict=True)
    ordered = [(field, key) for field, key in pairs if _has_one_order(field.type, key.type)]
    if not ordered:
        return UnknownPredicate()
    bounds = [_bounds(key).alias(f"key{number}") for number, (_, key) in enumerate(ordered)]
    with translate_spark_errors():
        (row,) = keys.agg(*bounds).collect()
    predicates = (
        within_bounds(field, low, high, has_null=has_null)
        for (field, _), (low, high, has_null) in zip(ordered, row, strict=True)
    )
    return reduce(And, predicates)


def _has_one_order(column: DataType, key: DataType) -> bool:
    """Return whether Spark compares two types as they are, or as integers."""
    if column in _INTEGERS:
        return key in _INTEGERS
    return column == key and (column in (DATE, STRING) or isinstance(column, DecimalType))


def _bounds(key: Field) -> Column:
    """Return the smallest key, the largest, and whether a key is null; dates as days since the epoch."""
    value = F.col(key.name)
    # Days since 1970, because Python has no dates past the year 9999.
    value = F.unix_date(value) if key.type == DATE else value
    return F.struct(F.min(value), F.max(value), F.max(value.isNull()))


def within_bounds(field: Field, low: Scalar | None, high: Scalar | None, *, has_null: bool | None) -> Predicate:
    """Return the predicate of one column; without any key, one that files without null do not fulfil.

    Args:
        low: The smallest key; a date as days since the epoch.
    """
    path, is_null = (field.name,), IsNull((field.name,), field.type)
    if low is None or high is None:
        return is_null
    first, last = (_to_constant(each, field.type) for each in (low, high))
    between = And(bind_comparison(path, field.type, ">=", first), bind_comparison(path, field.type, "<=", last))
    return Or(is_null, between) if has_null else between


def _to_constant(value: Scalar, data_type: DataType) -> Scalar | UnknownValue:
    if data_type != DATE or not isinstance(value, int):
        return value
    day = value + _EPOCH_DAY
    return date.fromordinal(day) if date.min.toordinal() <= day <= date.max.toordinal() else UNKNOWN
