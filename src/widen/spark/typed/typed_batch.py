"""Batches of typed records: a DataFrame, or files with a schema. The same rules apply, to the schema.

Values are observed only where their type leaves open whether a column holds them exactly, and counted only when
the table changes, most of them in the first records. So most intervals take one pass, and no Python runs per
record.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import reduce
from typing import cast

import msgspec

from widen.evolution.evolve import evolve
from widen.evolution.plan import BadFile
from widen.evolution.policy import Policy
from widen.json.observation import Observation, RecordObservation, TemporalString, merge_observations
from widen.model.column_path import Path, fold_path, leaves, map_children
from widen.model.types import (
    DOUBLE,
    FLOAT,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    similarity_key,
)
from widen.proof.rules import ColumnsByKey, computed_keys, source_columns_by_key
from widen.rows.row import RecordRoute, build_routes
from widen.rows.row_builder import ORIGIN_FIELDS
from widen.spark.engine import Rows
from widen.spark.errors import translate_spark_errors
from widen.spark.ingest.contract_check import PLACED_TEXT, ContractReport, check_contract_rows
from widen.spark.ingest.quarantined_rows import BatchResult
from widen.spark.ingest.text_tasks import BatchWriteSpec
from widen.spark.ingest.verification import (
    CONVERTED,
    DIGEST,
    FORM,
    PLACE,
    VALUES,
    ColumnFiles,
    Side,
    build_column_reader,
    build_file_reader,
)
from widen.spark.ingest.write_files import TableRows, TableWriter
from widen.spark.source.file_ranges import fields_of
from widen.spark.source.source_files import SourceFile
from widen.spark.spark_types import Column, DataFrame, F, SparkSession
from widen.spark.typed.column_copy import find_column_copy
from widen.spark.typed.column_expressions import (
    TypedViolation,
    find_typed_violations,
    observe_violations,
    to_columns,
    violation_reason,
)
from widen.spark.typed.kind_aggregates import KindAggregates
from widen.spark.typed.record_rebuild import (
    columns_agree,
    comparable_fields,
    count_leaves,
    has_own_kinds,
    has_temporal_strings,
    is_own_kind,
    parse_record,
    rebuild_fields,
    record_text,
)
from widen.spark.typed.typed_records import PreparedRecords, TypedRecords, has_map_key, prepare_records
from widen.spark.write.arrow_writer import PartSink

_BROKEN, _ORIGIN, _VIOLATION = "_widen_broken", "_widen_origin", "_widen_misfit_"
_REBUILT = "_widen_rebuilt_"
_CONTRADICTION = "columns contradict each other"
"""Stands for a row with such columns. No record has this text."""


@dataclass(frozen=True)
class TypedBatch:
    """A batch of typed records.

    Args:
        parts: The records; those of one part share a schema.
    """

    parts: Sequence[TypedRecords]
    name: str
    left_out: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    files: tuple[SourceFile, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    source_table: str = ""
    _homes: dict[str, int] = field(default_factory=dict)  # the part that each written folder belongs to

    has_types = True

    @property
    def spark(self) -> SparkSession:
        """The session that reads the records."""
        return self.parts[0].frame.sparkSession

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what the types say, and the observation of the values if the types leave the plan open; see `Batch`.

        Raises:
            SourceError: values have a type that tables do not support.
        """
        parts = self._prepare_parts(base, policy)
        certain, optimistic = (
            _merge_roots(part.observation(assume_exact=assume_exact) for part in parts)
            for assume_exact in (False, True)
        )
        plan = evolve(base, certain, policy)
        # If the plan is the same whether the open values are exact or not, they need only be counted, for its events.
        is_decided = plan.schema == evolve(base, optimistic, policy).schema
        observation = certain if is_decided and plan.is_empty else _observe_parts(parts, counts_only=is_decided)
        return msgspec.structs.replace(observation, excluded_seen=[[*path] for path in self._hidden_fields(policy)])

    def _hidden_fields(self, policy: Policy) -> list[Path]:
        """Return the excluded and masked fields that the records have; those in keys of maps are looked up."""
        paths = sorted(policy.excluded | policy.masked)
        found = [path for path in paths if any(_has(each.schema, fold_path(path)) for each in self.parts)]
        for part in self.parts:
            conditions = {path: has_map_key(part.columns, part.schema, path) for path in paths if path not in found}
            asked = {path: condition for path, condition in conditions.items() if condition is not None}
            if asked:
                columns = [F.max(condition).alias(str(at)) for at, condition in enumerate(asked.values())]
                row = part.frame.select(*columns).collect()[0]
                found += [path for path, has_key in zip(asked, row, strict=True) if has_key]
        return found

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return the observation of all values; see `Batch`."""
        return _observe_parts(self._prepare_parts(attempt.base, attempt.policy))

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the records, part by part; see `Batch`."""
        results = []
        with ExitStack() as undo:
            for number, part in enumerate(self._prepare_parts(attempt.base, attempt.policy)):
                result = _Writing(part, attempt, writer).run()
                undo.callback(writer.discard, result.files)
                # Parts differ in their schemas, and the proof rebuilds the rows of a file with the schema that it was
                # written from.
                self._homes.update((file.path.partition("/")[0], number) for file in result.files)
                results.append(result)
            undo.pop_all()
        quarantined_records = [
            cast(DataFrame, each.quarantined_records) for each in results if each.quarantined_records is not None
        ]
        return BatchResult(
            [file for each in results for file in each.files],
            merge_observations(each.seen for each in results),
            reduce(DataFrame.unionAll, quarantined_records) if quarantined_records else None,
        )

    def check_contract(self, contract: object) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        report = ContractReport()
        for part in self._prepare_parts(None, Policy()):
            origin = _origin(part, F.lit(None).cast("string"))
            values = map(origin.getField, ORIGIN_FIELDS[:-1])
            columns = (value.alias(name) for value, name in zip(values, PLACED_TEXT, strict=True))
            report = report.merged(check_contract_rows(part.records.frame.select(*columns), contract))
        return report

    def prepare_proof(self) -> None:
        """Do nothing: there is a session."""

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        prepared = self._prepare_for_proof(schema, policy)

        def digests() -> DataFrame:
            columns = source_columns_by_key(schema, policy)
            return reduce(DataFrame.unionAll, [_source_digests(part, columns) for part in prepared])

        files = _find_column_files(prepared, schema, policy)
        return Side(digests, reader=None if files is None else build_column_reader(self.spark, files))

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        prepared = self._prepare_for_proof(table.schema, policy)

        def digests() -> DataFrame:
            sides = []
            for number, part in enumerate(prepared):
                part_paths = [path for path in paths if self._homes.get(path.partition("/")[0]) == number]
                rows = cast(DataFrame, table.read(part.records.frame.sparkSession, part_paths))
                sides.append(_row_digests(rows, part.schema, table.schema, policy))
            if quarantined_records is not None:
                # A quarantined text has the computed fields, too.
                schemas = [part.schema for part in self._prepare_parts(table.schema, policy)]
                computed, columns = computed_keys(table.schema), source_columns_by_key(table.schema, policy)
                quarantined = cast(DataFrame, quarantined_records())
                text = F.col(quarantined.columns[0])
                text = _comparable_quarantined_records(text, schemas, computed, columns)
                sides.append(quarantined.select(*_digest(text)))
            return reduce(DataFrame.unionAll, sides)

        has_forms = quarantined_records is None and _find_column_files(prepared, table.schema, policy) is not None
        files = table.task_files(self.spark, paths) if has_forms else None
        return Side(
            digests, reader=None if files is None else build_file_reader(self.spark, files, table.schema, policy)
        )

    def _prepare_for_proof(self, schema: StructType, policy: Policy) -> list[PreparedRecords]:
        computed = computed_keys(schema)
        return [part.without(computed) for part in self._prepare_parts(schema, policy)]

    def _prepare_parts(self, base: StructType | None, policy: Policy) -> list[PreparedRecords]:
        return [prepare_records(part, self.name, base, policy) for part in self.parts]


def _has(data_type: DataType, path: Path) -> bool:
    match data_type:
        case _ if not path:
            return True
        case ArrayType(inner) | MapType(_, inner):
            return _has(inner, path)
        case StructType():
            return any(similarity_key(field.name) == path[0] and _has(field.type, path[1:]) for field in data_type)
    return False


def _merge_roots(roots: Iterable[RecordObservation]) -> Observation:
    return merge_observations(Observation(root=root) for root in roots)


def _observe_parts(parts: Iterable[PreparedRecords], *, counts_only: bool = False) -> Observation:
    observations = []
    for part in parts:
        observation = Observation(root=part.observation())
        files = part.records.files if part.is_untouched else ()
        aggregates = KindAggregates(part.records, part.fields, observation.root, files)
        if counts_only:
            aggregates.count()
        else:
            observation.records = aggregates.observe()
        observations.append(observation)
    return merge_observations(observations)


@dataclass(frozen=True)
class _Writing:
    """Writes the records of one part as rows of a table."""

    part: PreparedRecords
    attempt: BatchWriteSpec
    writer: TableWriter

    def run(self) -> BatchResult:
        """Write the records, without those that violate a rule or do not fit a fixed column."""
        schema, policy = self.attempt.schema, self.attempt.policy
        route, rule = build_routes(schema, policy), self.writer.violated_rule()
        copied = self._copy(route) if rule is None else None
        if copied is not None:
            return copied
        columns = to_columns(self.part.fields, schema, policy)
        violations = find_typed_violations(self.part.fields, route, policy.samples)
        if rule is None and not violations:
            records = self.part.records
            # Only quarantined records need their position, which costs Spark a row index.
            rows = records.frame if records.unplaced is None else records.unplaced
            files = self.writer.write(self.writer.fill(rows.select(*columns)))
            return BatchResult(files, Observation(records=self.writer.count_rows(files)))
        return self._write_fitting(columns, violations, rule)

    def _copy(self, route: RecordRoute) -> BatchResult | None:
        """Let tasks copy the files, if nothing in them has to be converted; see `widen.spark.typed.column_copy`."""
        part, spark = self.part, self.part.records.frame.sparkSession
        if not (part.is_untouched and part.records.files):
            return None
        sink = self.writer.find_sink(spark)
        if not isinstance(sink, PartSink):
            return None
        copy = find_column_copy(spark, part.records.files, part.schema, self.attempt.schema, route, sink)
        if copy is None:
            return None
        files = self.writer.from_parts(copy.run())
        return BatchResult(files, Observation(records=self.writer.count_rows(files)))

    def _write_fitting(
        self, columns: Sequence[Column], violations: Sequence[TypedViolation], rule: Column | None
    ) -> BatchResult:
        flags = [f"{_VIOLATION}{number}" for number in range(len(violations))]
        conditions = [violation.is_violated.alias(flag) for violation, flag in zip(violations, flags, strict=True)]
        rows = self.part.records.frame.select(
            *columns, *conditions, _origin(self.part, violation_reason(violations)).alias(_ORIGIN)
        )
        reason = F.col(f"{_ORIGIN}.{ORIGIN_FIELDS[-1]}")
        # Rules may be about computed columns, so these are filled first.
        rows = self.writer.fill(rows).withColumn(_BROKEN, reason if rule is None else F.coalesce(reason, rule))
        with translate_spark_errors():
            number, *counts = rows.agg(F.count(_BROKEN), *map(F.count_if, flags)).collect()[0]
        files = self.writer.write(rows.where(F.col(_BROKEN).isNull()).drop(_BROKEN, _ORIGIN, *flags))
        origin = (F.col(f"{_ORIGIN}.{name}").alias(name) for name in ORIGIN_FIELDS[:-1])
        quarantined_records = rows.where(F.col(_BROKEN).isNotNull()).select(
            *origin, F.col(_BROKEN).alias(ORIGIN_FIELDS[-1])
        )
        seen = Observation(self.writer.count_rows(files), 0, {}, number, observe_violations(violations, counts))
        return BatchResult(files, seen, quarantined_records if number else None)


def _origin(part: PreparedRecords, reason: Column) -> Column:
    """Return the text of a record, its location, and why it is quarantined, if it is."""
    location = part.records.place
    file, number = (
        (F.lit(""), F.lit(0)) if location is None else (location.getField("file"), location.getField("number"))
    )
    values = (record_text(part.fields), file, number.cast("bigint"), reason)
    return F.struct(*(column.alias(name) for name, column in zip(ORIGIN_FIELDS, values, strict=True)))


def _find_column_files(
    parts: Iterable[PreparedRecords], schema: StructType, policy: Policy
) -> list[ColumnFiles] | None:
    """Return the files of all parts; None if a value of them may have another form in the table than in its file."""
    found = []
    # A float means its exact value, also in a column of doubles, and a double the number of its shortest text.
    has_floats = any(data_type == FLOAT for _, data_type in leaves(schema))
    for part in parts:
        is_plain = part.is_untouched and part.records.files and _has_forms(part.schema)
        if not (is_plain and has_own_kinds(part.schema, source_columns_by_key(schema, policy))):
            return None
        source = part.schema if has_floats else _floats_as_doubles(part.schema)
        assert isinstance(source, StructType)
        found.append(ColumnFiles(part.records.files, source))
    return found


def _floats_as_doubles(data_type: DataType) -> DataType:
    return DOUBLE if data_type == FLOAT else map_children(data_type, lambda _, child: _floats_as_doubles(child))


def _has_forms(data_type: DataType) -> bool:
    """Return whether tasks of the proof digest the values of a type as those of a column."""
    match data_type:
        case StructType(fields):
            return all(_has_forms(field.type) for field in fields)
        case ArrayType(element):
            return _has_forms(element)
        case MapType(key, value):
            return key == STRING and _has_forms(value)
        case TemporalString():
            return False
    return isinstance(data_type, DecimalType) or str(data_type) in _WITH_FORMS


_WITH_FORMS = frozenset(
    ("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz")
    + ("string", "binary")
)


def _source_digests(part: PreparedRecords, columns: ColumnsByKey) -> DataFrame:
    location = part.records.place
    where = F.lit("") if location is None else F.concat_ws(":", location.getField("file"), location.getField("number"))
    count = count_leaves(part.fields).cast("bigint")
    text = record_text(comparable_fields(part.fields, columns))
    return part.records.frame.select(*_digest(text, values=count, place=where))


def _row_digests(rows: DataFrame, source: StructType, schema: StructType, policy: Policy) -> DataFrame:
    """Return the digests of rows, and the count of values that only columns of another kind than the source's hold."""
    rebuilt = rebuild_fields(source, schema, policy)
    # As columns of their own the values are rebuilt once, and every column is compared with them.
    names = {key: f"{_REBUILT}{number}" for number, key in enumerate(rebuilt)}
    rows = rows.select("*", *(values.alias(names[key]) for key, (values, _) in rebuilt.items()))
    fields = {key: (F.col(names[key]), data_type) for key, (_, data_type) in rebuilt.items()}
    own_kind_fields = rebuild_fields(source, schema, policy, is_own_kind=True)
    has_own_kinds_only = is_own_kind(source, schema, policy)
    converted = (
        F.lit(0)
        if has_own_kinds_only
        else count_leaves(fields, has_empty=False) - count_leaves(own_kind_fields, has_empty=False)
    )
    text = record_text(fields)
    agrees = columns_agree(fields, schema, policy)
    text = text if agrees is None else F.when(agrees, text).otherwise(_CONTRADICTION)
    return rows.select(*_digest(text, converted=converted.cast("bigint")))


def _comparable_quarantined_records(
    text: Column, schemas: Sequence[StructType], names: frozenset[str], columns: ColumnsByKey
) -> Column:
    """Return the texts of quarantined records like `comparable_fields`, without some fields.

    A record has the first schema that gives its text back; records of several parts can have different ones.
    """
    if all(names.isdisjoint(schema.names) and not has_temporal_strings(schema) for schema in schemas):
        return text
    shortened = []
    for schema in dict.fromkeys(schemas):
        fields = fields_of(parse_record(text, schema), schema)
        rest = {name: typed for name, typed in fields.items() if name not in names}
        shortened.append(F.when(record_text(fields) == text, record_text(comparable_fields(rest, columns))))
    return F.coalesce(*shortened, text)


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
