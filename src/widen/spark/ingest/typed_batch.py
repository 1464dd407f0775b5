"""Records that have types: a DataFrame, or files that say them. The same rules, on the schema.

Values are looked at only where the types leave open whether a column holds them exactly, and counted where something
changes. An interval takes one pass then, and no Python runs for a record.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import Observation as Metrics
from pyspark.sql import functions as F

from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.staged_files import discard
from widen.model.column_path import Path
from widen.model.schema_json import from_json
from widen.model.types import ArrayType, DataType, MapType, StructType
from widen.observe.observation import Observation, RecordObservation, merge_observations
from widen.planning.evolution.evolve import evolve
from widen.planning.evolution.policy import Policy
from widen.protocol.actions import Add, Metadata, Protocol
from widen.routing.native.row_builder import ORIGIN_FIELDS
from widen.routing.route import build_routes
from widen.spark.dml.change_context import count_written_rows
from widen.spark.read.scan import read_snapshot
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.text.quarantined_rows import BatchResult
from widen.spark.text.text_tasks import BatchWriteSpec
from widen.spark.text.verification import CONVERTED, DIGEST, FORM, PLACE, VALUES, Side
from widen.spark.typed.column_expressions import to_columns
from widen.spark.typed.fixed_column_violations import (
    TypedViolation,
    find_typed_violations,
    observe_violations,
    violation_reason,
)
from widen.spark.typed.kind_aggregates import PER_PASS, KindAggregates
from widen.spark.typed.prepared_records import PreparedRecords, prepare_records
from widen.spark.typed.record_rebuild import count_leaves, is_own_kind, rebuilt, record_text
from widen.spark.typed.typed_records import TypedRecords
from widen.spark.write.parquet_writer import write_parquet
from widen.spark.write.row_constraints import first_broken_rule

_BROKEN, _ORIGIN, _MISFIT = "_widen_broken", "_widen_origin", "_widen_misfit_"


@dataclass(frozen=True)
class TypedBatch:
    """Records that have types.

    Args:
        parts: The records; those of one part have one schema.
        name: What errors call them.
        left_out: Files that are not read, by their names.
        names: What the fields are called that they get from their files.
    """

    parts: Sequence[TypedRecords]
    name: str
    left_out: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    _homes: dict[str, int] = field(default_factory=dict)  # the folders that were written, and which part is in each

    def foreseen(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what the types tell, and of the values what the types leave open; see `Batch`.

        Raises:
            SourceError: values are of a type that no table can take in.
        """
        parts = self._taken(base, policy)
        sure, hope = (_merge_roots(part.seen(is_hopeful=is_hopeful) for part in parts) for is_hopeful in (False, True))
        plan = evolve(base, sure, policy)
        is_told = plan.schema == evolve(base, hope, policy).schema
        found = sure if is_told and (plan.is_empty or _are_few(parts)) else _observe_parts(parts)
        return msgspec.structs.replace(found, met=[[*path] for path in self._left_out(policy)])

    def _left_out(self, policy: Policy) -> list[Path]:
        """Return the fields that are left out and are there."""
        return [path for path in sorted(policy.left_out) if any(_has(each.schema, path) for each in self.parts)]

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return what the records hold, counted; see `Batch`."""
        return _observe_parts(self._taken(attempt.base, attempt.policy))

    def write(self, attempt: BatchWriteSpec, store: LogStore, protocol: Protocol, metadata: Metadata) -> BatchResult:
        """Write the records, those of each part for themselves; see `Batch`."""
        done = []
        with ExitStack() as undo:
            for number, part in enumerate(self._taken(attempt.base, attempt.policy)):
                found = _Writing(part, attempt, store, protocol, metadata).done()
                undo.callback(discard, store, found.adds)
                self._homes.update((add.path.partition("/")[0], number) for add in found.adds)
                done.append(found)
            undo.pop_all()
        kept_out = [each.kept_out for each in done if each.kept_out is not None]
        return BatchResult(
            [add for each in done for add in each.adds],
            merge_observations(each.seen for each in done),
            reduce(DataFrame.unionAll, kept_out) if kept_out else None,
        )

    def said(self, schema: StructType, policy: Policy) -> Side:
        """Return the records for the proof; see `Batch`."""
        return Side(reduce(DataFrame.unionAll, map(_source_digests, self._taken(schema, policy))))

    def found(
        self, store: LogStore, snapshot: Snapshot, paths: Collection[str], policy: Policy, kept_out: DataFrame | None
    ) -> Side:
        """Return the rows for the proof; see `Batch`."""
        sides = []
        for number, part in enumerate(self._taken(snapshot.schema, policy)):
            own = [path for path in paths if self._homes.get(path.partition("/")[0]) == number]
            rows = read_snapshot(part.records.frame.sparkSession, store, snapshot, only=own)
            sides.append(rows.select(*_row_digest(part.schema, snapshot.schema, policy)))
        if kept_out is not None:
            sides.append(kept_out.select(*_digest(F.col(kept_out.columns[0]))))
        return Side(reduce(DataFrame.unionAll, sides))

    def _taken(self, base: StructType | None, policy: Policy) -> list[PreparedRecords]:
        return [prepare_records(part, self.name, base, policy) for part in self.parts]


def _has(data_type: DataType, path: Path) -> bool:
    match data_type:
        case _ if not path:
            return True
        case ArrayType(inner) | MapType(_, inner):
            return _has(inner, path)
        case StructType():
            field = data_type.find(path[0])
            return field is not None and _has(field.type, path[1:])
    return False


def _are_few(parts: Iterable[PreparedRecords]) -> bool:
    """Tell whether the kinds of values are so few that they are counted in passing."""
    return all(len(KindAggregates(part.fields, part.seen(), None)) <= PER_PASS for part in parts)


def _merge_roots(roots: Iterable[RecordObservation]) -> Observation:
    return merge_observations(Observation(root=root) for root in roots)


def _observe_parts(parts: Iterable[PreparedRecords]) -> Observation:
    found = []
    for part in parts:
        seen = part.seen()
        records = KindAggregates(part.fields, seen, part.records.place).take(part.records.frame)
        found.append(Observation(records=records, root=seen))
    return merge_observations(found)


@dataclass(frozen=True)
class _Writing:
    """Writes some records as rows of a table.

    Args:
        part: The records.
        attempt: The columns.
        store: Of the table.
        protocol: Of the table.
        metadata: Of the table.
    """

    part: PreparedRecords
    attempt: BatchWriteSpec
    store: LogStore
    protocol: Protocol
    metadata: Metadata

    def done(self) -> BatchResult:
        """Write them; keep out those that break a rule or do not fit a column that cannot yield."""
        schema, policy = self.attempt.schema, self.attempt.policy
        columns = to_columns(self.part.fields, schema, policy)
        found = find_typed_violations(self.part.fields, build_routes(schema, policy))
        rule = first_broken_rule(from_json(self.metadata.schema_string), self.protocol, self.metadata.configuration)
        return self._all(columns) if rule is None and not found else self._fitting(columns, found, rule)

    def _all(self, columns: Sequence[Column]) -> BatchResult:
        """Write all of them, and count what they hold in passing, where that is of interest."""
        seen, metrics = self.part.seen(), Metrics(f"widen-{uuid.uuid4().hex}")
        looks = KindAggregates(self.part.fields, seen, self.part.records.place)
        is_counted = self.attempt.schema != self.attempt.base and 0 < len(looks) <= PER_PASS
        counts = looks.aggregates() if is_counted else [F.count(F.lit(1))]
        observed = self.part.records.frame.observe(metrics, *(each.alias(str(at)) for at, each in enumerate(counts)))
        adds = self._put(observed.select(*columns))
        if adds and is_counted:
            looks.fill([metrics.get[str(at)] for at in range(len(counts))])
        return BatchResult(
            adds, Observation(records=count_written_rows(adds), root=seen if adds and is_counted else {})
        )

    def _fitting(self, columns: Sequence[Column], found: Sequence[TypedViolation], rule: Column | None) -> BatchResult:
        flags = [f"{_MISFIT}{at}" for at in range(len(found))]
        told = [misfit.is_there.alias(flag) for misfit, flag in zip(found, flags, strict=True)]
        rows = self.part.records.frame.select(
            *columns, *told, _origin(self.part, violation_reason(found)).alias(_ORIGIN)
        )
        reason = F.col(f"{_ORIGIN}.{ORIGIN_FIELDS[-1]}")
        rows = rows.withColumn(_BROKEN, reason if rule is None else F.coalesce(reason, rule))
        with translate_spark_errors():
            number, *counts = rows.agg(F.count(_BROKEN), *map(F.count_if, flags)).collect()[0]
        adds = self._put(rows.where(F.col(_BROKEN).isNull()).drop(_BROKEN, _ORIGIN, *flags))
        origin = (F.col(f"{_ORIGIN}.{name}").alias(name) for name in ORIGIN_FIELDS[:-1])
        kept_out = rows.where(F.col(_BROKEN).isNotNull()).select(*origin, F.col(_BROKEN).alias(ORIGIN_FIELDS[-1]))
        seen = Observation(count_written_rows(adds), 0, {}, number, observe_violations(found, counts))
        return BatchResult(adds, seen, kept_out if number else None)

    def _put(self, rows: DataFrame) -> list[Add]:
        return write_parquet(rows, self.store, self.protocol, self.metadata)


def _origin(part: PreparedRecords, reason: Column) -> Column:
    """Return what a record is, where it stands, and why it is kept out if it is."""
    place = part.records.place
    file, number = (F.lit(""), F.lit(0)) if place is None else (place.getField("file"), place.getField("number"))
    told = (record_text(part.fields), file, number.cast("bigint"), reason)
    return F.struct(*(column.alias(name) for name, column in zip(ORIGIN_FIELDS, told, strict=True)))


def _source_digests(part: PreparedRecords) -> DataFrame:
    place = part.records.place
    where = F.lit("") if place is None else F.concat_ws(":", place.getField("file"), place.getField("number"))
    count = count_leaves(part.fields).cast("bigint")
    return part.records.frame.select(*_digest(record_text(part.fields), values=count, place=where))


def _row_digest(source: StructType, schema: StructType, policy: Policy) -> list[Column]:
    """Return the digest of rows, and how many of their values only columns of another kind than the source's say."""
    told = rebuilt(source, schema, policy)
    own = rebuilt(source, schema, policy, is_own_kind=True)
    is_all = is_own_kind(source, schema, policy)
    converted = F.lit(0) if is_all else count_leaves(told) - count_leaves(own)
    return _digest(record_text(told), converted=converted.cast("bigint"))


def _digest(
    text: Column, *, values: Column | None = None, converted: Column | None = None, place: Column | None = None
) -> list[Column]:
    nothing = F.lit(None)
    return [
        F.sha2(text, 256).cast("binary").alias(DIGEST),
        (nothing.cast("bigint") if values is None else values).alias(VALUES),
        (nothing.cast("bigint") if converted is None else converted).alias(CONVERTED),
        (nothing.cast("string") if place is None else place).alias(PLACE),
        nothing.cast("binary").alias(FORM),
    ]
