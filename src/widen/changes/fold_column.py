"""Fold a column into another column of the same field: what a fold would do, and the change of rows.

Arrow reads the values and writes the rows; `judge_fold` decides about each value. Spark does both where Arrow does not
read or write the table, or the files are too large for this process.

Source: docs/evolution-rules.md#u3; Delta Lake's UPDATE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.arrow_changes import change_chosen_rows
from widen.changes.assignment import AssignedValue, ChangeKind, assign_columns
from widen.changes.change_context import ChangeContext, ChangeResult
from widen.changes.spark_changes import change_in_place
from widen.errors import InvalidOption
from widen.evolution.unify import FoldPlan, FoldResult, Rest
from widen.files.arrow_types import one_array
from widen.files.data_reader import NO_SUCH_YEAR, plan_local_scan
from widen.files.predicates import bind_condition
from widen.frames.scan import read_snapshot
from widen.limits import CHANGED_BYTES
from widen.log.snapshot import Snapshot, select_files
from widen.model.column_path import Path, format_path
from widen.model.types import StructType, quote_name
from widen.model.value_classes import dataclass
from widen.rows.row import DUPLICATE, FITS, STAYS, judge_fold
from widen.spark.engine import Session, as_unsupported, ensure_at_most, run_with_arrow
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, spark_types, type_to_spark

SAMPLES = 5
"""The number of sample values that cannot be folded."""

_FINDING, _VALUE = "finding", "value"


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """What a fold does with rows, as Arrow tables that have the two columns. Picklable."""

    fold: FoldPlan
    rest: Rest = Rest.REFUSE

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the table that have the two columns, or are them."""
        return tuple(dict.fromkeys((self.fold.column[0], self.fold.into[0])))

    def judge(self, rows: pa.Table) -> tuple[pa.Array, list[Any], list[tuple[str, Any]]]:
        """Return which rows have a value in the column; these values; and `judge_fold` of each.

        Raises:
            Unsupported: Python has no such value, e.g. a date after the year 9999.
        """
        fold = self.fold
        column = _leaf(one_array(rows[fold.column[0]]), fold.column[1:])
        has_value = column.is_valid()
        into = _leaf(one_array(rows[fold.into[0]]), fold.into[1:]).filter(has_value)
        with as_unsupported(OverflowError, ValueError, reason=NO_SUCH_YEAR):
            values, old = column.filter(has_value).to_pylist(), into.to_pylist()
        judged = [judge_fold(value, fold.type, was, fold.into_type) for value, was in zip(values, old, strict=True)]
        return has_value, values, judged

    def are_changed(self, rows: pa.Table) -> pa.Array:
        """Return which rows the fold changes."""
        has_value, _, judged = self.judge(rows)
        if self.rest is Rest.LOSE:
            return has_value
        moves = pa.array([finding != STAYS for finding, _ in judged], pa.bool_())
        return pc.replace_with_mask(has_value, has_value, moves)

    def new_columns(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Return the new values of the changed columns, by name, of rows that the fold changes."""
        fold, columns = self.fold, {name: one_array(rows[name]) for name in self.names}
        _, _, judged = self.judge(rows)
        for path, values in ((fold.into, [value for _, value in judged]), (fold.column, [None] * len(judged))):
            new = pa.array(values, _leaf(columns[path[0]], path[1:]).type)
            columns[path[0]] = _with_leaf(columns[path[0]], path[1:], new)
        return columns

    def count(self, tables: Iterable[pa.Table]) -> FoldResult:
        """Return what the fold would do with rows."""
        counts, samples = Counter[str](), list[str]()
        for rows in tables:
            _, values, judged = self.judge(rows)
            findings = [finding for finding, _ in judged]
            counts.update(findings)
            stays = (value for value, finding in zip(values, findings, strict=True) if finding == STAYS)
            samples += [_text(value) for _, value in zip(range(SAMPLES - len(samples)), stays, strict=False)]
        return self._result(counts, samples)

    def _result(self, counts: Mapping[str, int], samples: Iterable[str]) -> FoldResult:
        return FoldResult(
            fold=self.fold,
            values=sum(counts.values()),
            fits=counts.get(FITS, 0),
            duplicates=counts.get(DUPLICATE, 0),
            samples=tuple(samples)[:SAMPLES],
        )

    def count_frame(self, rows: DataFrame) -> FoldResult:
        """Return what the fold would do with rows of a DataFrame, which tasks judge."""
        columns = rows.select(*map(quote_name, self.names))
        with translate_spark_errors():
            parts = columns.mapInArrow(partial(_count_in_task, self), "result string").collect()
        results = [msgspec.json.decode(part.result) for part in parts]
        counts = sum((Counter(result["counts"]) for result in results), Counter[str]())
        return self._result(counts, (text for result in results for text in result["samples"]))


def _count_in_task(folded: FoldedRows, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    found = folded.count(map(pa.Table.from_batches, ([batch] for batch in batches)))
    counts = {FITS: found.fits, DUPLICATE: found.duplicates, STAYS: found.lost}
    text = msgspec.json.encode({"counts": counts, "samples": found.samples}).decode()
    yield pa.RecordBatch.from_pydict({"result": [text]})


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode().strip('"')


def _leaf(column: pa.Array, path: Path) -> pa.Array:
    """Return a field of structs, null where one of them is."""
    return pc.struct_field(column, list(path)) if path else column


def _with_leaf(column: pa.Array, path: Path, new: pa.Array) -> pa.Array:
    """Return structs with new values of a field."""
    if not path:
        return new
    at, parts = column.type.get_field_index(path[0]), column.flatten()
    parts[at] = _with_leaf(parts[at], path[1:], new)
    return pa.StructArray.from_arrays(parts, fields=list(column.type), mask=column.is_null())


def has_value(fold: FoldPlan) -> str:
    """Return the condition on the rows that have a value in the column to fold."""
    return f"{format_path(fold.column)} IS NOT NULL"


# ---- Delta tables ----------------------------------------------------------------------------------


def preview_fold(session: Session, snapshot: Snapshot, fold: FoldPlan) -> FoldResult:
    """Return what a fold would do; nothing is written."""
    folded = FoldedRows(fold)
    return run_with_arrow(
        session,
        lambda: folded.count(_read_here(_context(session, snapshot, fold), folded)),
        lambda spark: folded.count_frame(read_snapshot(spark, snapshot.store, snapshot, has_value(fold))),
    )


def _read_here(context: ChangeContext, folded: FoldedRows) -> Iterator[pa.Table]:
    """Yield the two columns of the files that may have a value to fold.

    Raises:
        Unsupported: only Spark can read them.
    """
    scan = plan_local_scan(context.snapshot)
    columns = StructType(tuple(field for field in scan.schema if field.name in folded.names))
    ensure_at_most(sum(add.size for add in context.adds.values()), CHANGED_BYTES, "the files to read")
    with as_unsupported(InvalidOption, pa.ArrowException):
        for add in context.adds.values():
            for _, rows in replace(scan, schema=columns).read_located(add):
                yield rows


def fold_rows(session: Session, snapshot: Snapshot, fold: FoldPlan, rest: Rest) -> ChangeResult:
    """Rewrite the files that have values in the column, and return the result. Nothing is committed."""
    context, folded = _context(session, snapshot, fold), FoldedRows(fold, rest)

    def by_spark(spark: SparkSession) -> ChangeResult:
        where, values = change_condition(fold, rest), folded_columns(snapshot.schema, fold)
        return change_in_place(replace(context, session=spark), where, values, ChangeKind.UPDATE)

    return run_with_arrow(
        session,
        lambda: change_chosen_rows(context, folded.names, folded.are_changed, folded.new_columns),
        by_spark,
    )


def _context(session: Session, snapshot: Snapshot, fold: FoldPlan) -> ChangeContext:
    selection = select_files(snapshot, bind_condition(has_value(fold), snapshot.schema))
    return ChangeContext(session, snapshot, snapshot.metadata, selection)


# ---- expressions of Spark --------------------------------------------------------------------------


def change_condition(fold: FoldPlan, rest: Rest) -> Column:
    """Return the condition on the rows that a fold changes."""
    where = F.expr(has_value(fold))
    return where if rest is Rest.LOSE else where & (_judge_rows(fold).getField(_FINDING) != STAYS)


def folded_columns(schema: StructType, fold: FoldPlan) -> dict[str, Column]:
    """Return the new values of the changed columns, by name, in the rows that a fold changes."""
    nothing = F.lit(None).cast(type_to_spark(fold.type))
    values = {
        fold.into: AssignedValue(_judge_rows(fold).getField(_VALUE), fold.into_type),
        fold.column: AssignedValue(nothing, fold.type),
    }
    return assign_columns(schema, values, lambda name: F.col(quote_name(name)))


def _judge_rows(fold: FoldPlan) -> Column:
    """Return a struct of the finding for the value of each row and the new value of the target column."""
    result = spark_types.StructType().add(_FINDING, spark_types.StringType()).add(_VALUE, type_to_spark(fold.into_type))
    # Without Arrow, which would convert timestamps to the time zone of the session.
    judged = F.udf(partial(_judge, fold), result, useArrow=False)
    return judged(F.col(format_path(fold.column)), F.col(format_path(fold.into)))


def _judge(fold: FoldPlan, value: Any, old: Any) -> tuple[str, Any] | None:
    return None if value is None else judge_fold(value, fold.type, old, fold.into_type)
