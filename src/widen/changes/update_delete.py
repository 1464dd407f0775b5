"""UPDATE and DELETE by a condition.

Source: Delta Lake's UPDATE and DELETE
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from widen.changes.arrow_changes import change_files
from widen.changes.assignment import (
    ChangeKind,
    assign_columns,
    find_assigned_types,
    texts_of_columns,
    to_assigned_values,
    translate_overflow,
)
from widen.changes.change_context import ChangeContext, ChangeFiles, ChangeResult, remove_whole_files
from widen.changes.spark_changes import change_in_place
from widen.files.predicates import bind_condition
from widen.frames.file_filters import files_in_partitions, files_in_same_partitions
from widen.frames.physical_layout import fill_missing_columns
from widen.log.commit import ReadSet
from widen.log.snapshot import Snapshot, select_files
from widen.model.column_path import Path, as_nullable
from widen.model.types import VOID, DataType, StructType, quote_name
from widen.protocol.actions import Metadata
from widen.protocol.column_mapping import CHANGE_TYPE
from widen.protocol.data_skipping import UnknownPredicate
from widen.schema.growth import (
    Relation,
    SchemaChangeOptions,
    assigned_paths,
    ensure_identities_kept,
    merge_schema,
    overlay_types,
    partition_predicate,
)
from widen.spark.engine import Session, Unsupported, find_started, run_on_engine
from widen.spark.errors import raise_expression, translate_spark_errors, unpersist
from widen.spark.expression import Expression, ensure_deterministic_condition, expression_text, to_column
from widen.spark.spark_types import (
    DataFrame,
    F,
    SparkSession,
    to_spark,
    type_to_spark,
    visible_schema,
)


def delete(
    spark: Session, snapshot: Snapshot, where: Expression | None, metadata: Metadata | None = None
) -> ChangeResult:
    """Delete rows, and return the result. Nothing is committed.

    If the condition refers to partition columns only, whole files are removed, and no file is read.
    """
    open_context = partial(_change_context, snapshot=snapshot, where=where, metadata=metadata or snapshot.metadata)
    if where is None:
        context = open_context(spark)
        return remove_whole_files(context.candidates, context.reads)
    return run_on_engine(
        spark,
        lambda here: change_files(open_context(here), where, None),
        lambda session: _delete_by_spark(open_context(session), where),
    )


def _delete_by_spark(context: ChangeContext, where: Expression) -> ChangeResult:
    snapshot = context.snapshot
    matching = files_in_partitions(context.session, snapshot, context.candidates, where)
    if matching is not None:
        return remove_whole_files(matching, context.reads)
    try:
        return change_files(context, where, None)
    except Unsupported:
        return change_in_place(context, to_column(where), {}, ChangeKind.DELETE)


def update(
    spark: Session, snapshot: Snapshot, assignments: Mapping[str, Expression], where: Expression | None
) -> ChangeResult:
    """Update rows, and return the result. Nothing is committed."""
    paths = assigned_paths(Relation(snapshot.schema), assignments)
    ensure_identities_kept(snapshot.schema, paths.values())
    given = {path: assignments[text] for text, path in paths.items()}
    texts = texts_of_columns(given)
    return run_on_engine(
        spark,
        lambda here: _update_here(here, snapshot, texts, where),
        lambda session: _update_by_spark(session, snapshot, given, texts, where),
    )


def _update_by_spark(
    spark: SparkSession,
    snapshot: Snapshot,
    given: Mapping[Path, Expression],
    texts: dict[str, str] | None,
    where: Expression | None,
) -> ChangeResult:
    values = to_assigned_values(_empty_result(spark, snapshot), given)
    _ensure_assignable(snapshot, {path: value.type for path, value in values.items()})
    context = _change_context(spark, snapshot, where, snapshot.metadata)
    if texts is not None:
        with suppress(Unsupported):
            return change_files(context, where, {name: (text, values[name,].type) for name, text in texts.items()})
    new = assign_columns(snapshot.schema, values, lambda name: F.col(quote_name(name)))
    with translate_overflow():
        return change_in_place(context, F.lit(True) if where is None else to_column(where), new, ChangeKind.UPDATE)


def _update_here(
    spark: Session, snapshot: Snapshot, texts: dict[str, str] | None, where: Expression | None
) -> ChangeResult:
    """Update rows in this process."""
    texts, types = find_assigned_types(snapshot.schema, texts)
    _ensure_assignable(snapshot, {(name,): found for name, found in types.items()})
    context = _change_context(spark, snapshot, where, snapshot.metadata)
    return change_files(context, where, {name: (text, types[name]) for name, text in texts.items()})


def _ensure_assignable(snapshot: Snapshot, types: Mapping[Path, DataType]) -> None:
    incoming = overlay_types(snapshot.schema, types)
    merge_schema(snapshot.schema, incoming, SchemaChangeOptions(casts=True, fills=False))


def _change_context(spark: Session, snapshot: Snapshot, where: Expression | None, metadata: Metadata) -> ChangeContext:
    started = find_started(spark)
    if where is not None and started is not None:
        ensure_deterministic_condition(_empty_result(started, snapshot), where)
    predicate = bind_condition(where, snapshot.schema)
    return ChangeContext(spark, snapshot, metadata, select_files(snapshot, predicate))


def _empty_result(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    return spark.createDataFrame([], to_spark(as_nullable(visible_schema(snapshot.schema))))


# Overwrite all rows, the rows that match a condition, or the rows in the same partitions.
#
# Source: Delta Lake's overwrites: static, replaceWhere, dynamic partitions


def overwrite_all(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> ChangeResult:
    """Replace all rows, and return the result. Nothing is committed."""
    with ChangeFiles(_context(snapshot, frame, metadata)) as files:
        added = files.rows(frame)
    removal = remove_whole_files(snapshot.files(), ReadSet.EVERYTHING)
    return replace(removal, added=tuple(added), folders=files.folders)


def overwrite_partitions(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> ChangeResult:
    """Replace the partitions of the new rows, and return the result. Nothing is committed.

    Partitions are compared by value, not by the text in the log.

    Source: Delta Lake's dynamic partition overwrite. Differs: it compares texts.
    """
    context, view = _context(snapshot, frame, metadata), snapshot.with_metadata(metadata)
    with ChangeFiles(context) as files:
        added = files.rows(frame)
        keys = view.partition_keys
        written = list(dict.fromkeys(tuple(add.partition_values.get(key) or None for key in keys) for add in added))
        replaced_files = files_in_same_partitions(frame.sparkSession, view, view.files(), written)
    predicate = partition_predicate(view.schema, view.partition_columns, written) if written else UnknownPredicate()
    reads = ReadSet(selection=select_files(view, predicate), paths=frozenset(replaced_files["path"].to_pylist()))
    return replace(remove_whole_files(replaced_files, reads), added=tuple(added), folders=files.folders)


def overwrite_where(snapshot: Snapshot, frame: DataFrame, metadata: Metadata, where: Expression) -> ChangeResult:
    """Replace the rows that match a condition, and return the result. Nothing is committed.

    Source: Delta Lake's replaceWhere
    """
    removal = delete(frame.sparkSession, snapshot, where, metadata)
    with ExitStack() as undo, ExitStack() as kept, ChangeFiles(_context(snapshot, frame, metadata)) as files:
        undo.callback(removal.discard, snapshot.store)
        schema = files.context.schema
        rows = rows_within(fill_missing_columns(frame, schema, snapshot.protocol), schema, where)
        if removal.recorded:
            with translate_spark_errors():
                # The rows are written twice, as data and as change data.
                rows = rows.persist()
            kept.callback(unpersist, rows)
        added = files.rows(rows)
        inserted = files.changes(rows.withColumn(CHANGE_TYPE, F.lit("insert"))) if removal.recorded else []
        undo.pop_all()
    return replace(
        removal,
        added=(*removal.added, *added),
        recorded=(*removal.recorded, *inserted),
        folders=(*removal.folders, *files.folders),
    )


def _context(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> ChangeContext:
    return ChangeContext(frame.sparkSession, snapshot, metadata, select_files(snapshot, UnknownPredicate()))


def rows_within(rows: DataFrame, schema: StructType, where: Expression) -> DataFrame:
    """Return the rows with a check that fails the write if a row does not match the condition."""
    anchor = next(field for field in schema if field.type != VOID)
    column, is_true = F.col(quote_name(anchor.name)), F.coalesce(to_column(where), F.lit(False))
    outside = raise_expression("OUTSIDE", {"where": expression_text(where)}).cast(type_to_spark(anchor.type))
    return rows.withColumn(anchor.name, F.when(is_true, column).otherwise(outside))
