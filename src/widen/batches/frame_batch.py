"""Batches of typed records: a DataFrame, or files with a schema. The same rules apply, to the schema.

Values are observed only where their type leaves open whether a column holds them exactly, and counted only when
the table changes, most of them in the first records. So most intervals take one pass, and no Python runs per
record.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from functools import partial, reduce
from operator import and_
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.batches.column_copy import SourceFooter, find_column_copy, read_first_rows, read_source_footers
from widen.batches.column_expressions import (
    TypedViolation,
    find_typed_violations,
    observe_violations,
    to_columns,
    violation_reason,
)
from widen.batches.corrupt_texts import ensure_utf8_record, is_utf8_record, to_refused_texts
from widen.batches.text_batch import PLACED_TEXT, BatchResult, ContractReport, check_contract_rows
from widen.batches.text_tasks import MIN_COUNTED_RECORDS, BatchWriteSpec
from widen.batches.typed_frames import (
    HEAD_RECORDS,
    PLACE_TYPE,
    PreparedRecords,
    TypedRecords,
    has_map_key,
    prepare_records,
)
from widen.evolution.evolve import evolve
from widen.evolution.plan import BadFile
from widen.evolution.policy import Policy, respell_all, spell_as
from widen.files.data_reader import java_float, java_number
from widen.files.data_writer import PartSink
from widen.frames.column_conversions import convert_exactly, is_exact_double, is_whole_ms, read_temporal
from widen.frames.table_writers import TableRows, TableWriter
from widen.json.field_rules import SIGN
from widen.json.kinds import LONG_WORD, MAP_WORD, RECORD_WORD, Kind
from widen.json.observation import (
    SAMPLE_CHARS,
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    TemporalString,
    merge_observations,
    type_facts,
)
from widen.model.column_path import ELEMENT, VALUE, Path, fold_path, leaves, map_children
from widen.model.types import (
    BINARY,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    quote_name,
    similarity_key,
)
from widen.proof.known_names import find_source_names, learn_names
from widen.proof.rules import ColumnsByKey, computed_keys, leave_out, read_defaults, source_columns_by_key
from widen.rows.row import RecordRoute, build_routes
from widen.rows.row_builder import ORIGIN_FIELDS
from widen.schema.field_names import NameUse
from widen.sources.file_ranges import RAW_SCHEMA, RawTexts, Typed, field_steps, fields_of
from widen.sources.listing import SourceFile, file_key_column
from widen.spark.engine import Rows, Session
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import join_columns
from widen.spark.spark_types import Column, DataFrame, F
from widen.verification.frame_records import (
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
from widen.verification.records import (
    CONVERTED,
    DELETES,
    DIGEST,
    FORM,
    PLACE,
    VALUES,
    ColumnFiles,
    Side,
    build_column_reader,
    build_file_reader,
)

_BROKEN, _ORIGIN, _VIOLATION = "_widen_broken", "_widen_origin", "_widen_misfit_"
_REBUILT = "_widen_rebuilt_"
_CONTRADICTION = "columns contradict each other"
"""Replaces a row with such columns. No record has this text."""


@dataclass(frozen=True)
class TypedBatch:
    """A batch of typed records.

    Args:
        parts: The records; the records of one part share a schema.
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
    def spark(self) -> Session:
        """The session that reads the records."""
        return self.parts[0].frame.sparkSession

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what the types say, and what the values say if the types leave the plan open; see `Batch`."""
        parts = self._prepare_parts(base, policy)
        names = observe_names([part.schema for part in self.parts], base, policy)
        prior = observe_types([part.observation for part in parts], base, policy, names)
        observation = prior.observation if prior.is_enough else _observe_parts(parts, counts_only=prior.is_decided)
        hidden = [[*path] for path in self._hidden_fields(policy)]
        return msgspec.structs.replace(observation.merged(names), excluded_seen=hidden)

    def _hidden_fields(self, policy: Policy) -> list[Path]:
        """Return the excluded and masked fields that the records have; those in keys of maps are looked up."""
        paths = sorted(policy.excluded | policy.masked)
        found = find_fields([part.schema for part in self.parts], paths)
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
            for number, part in enumerate(self._prepare_parts(attempt.base, attempt.policy, attempt.schema)):
                schema, policy = spell_as(attempt.schema, attempt.policy, part.records.schema)
                result = _Writing(part, replace(attempt, schema=schema, policy=policy), writer).run()
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

    def find_broken(self, attempt: BatchWriteSpec, writer: TableWriter, *, by_rules: bool = True) -> None:
        """Return None: the types of the source decide the columns, regardless of the records."""

    def check_contract(self, contract: object, *, allows_nan: bool = False) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        report = ContractReport()
        for part in self._prepare_parts(None, Policy()):
            origin = _origin(part, F.lit(None).cast("string"))
            values = map(origin.getField, ORIGIN_FIELDS[:-1])
            columns = (value.alias(name) for value, name in zip(values, PLACED_TEXT, strict=True))
            report = report.merged(check_contract_rows(part.records.frame.select(*columns), contract))
        return report

    def split_corrupt(self) -> tuple[TypedBatch, RawTexts]:
        """Return the batch without the records with a text that is not UTF-8, and these as a raw batch."""
        parts, corrupt = [], []
        for part in self.parts:
            is_utf8 = is_utf8_record(part.columns.values(), part.schema)
            if is_utf8 is None:
                parts.append(part)
                continue
            rest = part.frame.where(is_utf8)
            parts.append(replace(part, frame=rest, unplaced=None, head=None, files=(), is_utf8=True))
            names = self._own_names(part)
            fields = [F.col(str(at)) for at, _ in enumerate(names)]
            place = F.lit(None).cast(PLACE_TYPE) if part.place is None else part.place
            rows = part.frame.where(~is_utf8).select(
                F.struct(*fields).alias("record"),
                place.getField("file").alias("file"),
                place.getField("number").alias("number"),
            )
            corrupt.append(rows.mapInArrow(partial(to_refused_texts, part.kind, names), RAW_SCHEMA))
        return replace(self, parts=parts), reduce(DataFrame.unionAll, corrupt)

    def _own_names(self, part: TypedRecords) -> Sequence[str]:
        """Return the fields of the records themselves, without the fields of their file, which come last."""
        names = list(part.schema.names)
        while names and names[-1].endswith(SIGN) and names[-1].rstrip(SIGN) in self.names:
            names.pop()
        return names

    def prepare_proof(self) -> None:
        """Do nothing: there is a session."""

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        prepared = self._prepare_for_proof(schema, policy)

        def digests() -> DataFrame:
            return reduce(
                DataFrame.unionAll,
                [
                    _source_digests(part, source_columns_by_key(*spell_for_proof(schema, policy, part.records.schema)))
                    for part in prepared
                ],
            )

        files = _files_of(prepared, schema, policy)
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
                # Where a part lacks a field, its column has the default, which the fields say nothing of.
                schema, named = spell_for_proof(table.schema, policy, part.records.schema)
                lacking = read_defaults(schema).keys() - {*part.schema.names}
                sides.append(_row_digests(rows, part.schema, leave_out(schema, lacking), named))
            if quarantined_records is not None:
                # A quarantined text also has the computed fields.
                schemas = [part.schema for part in self._prepare_parts(table.schema, policy, table.schema)]
                schema, named = spell_for_proof(table.schema, policy, self.parts[0].schema)
                computed, columns = self._left_out(schema), source_columns_by_key(schema, named)
                quarantined = cast(DataFrame, quarantined_records())
                text = F.col(quarantined.columns[0])
                text = _comparable_quarantined_records(text, schemas, computed, columns)
                sides.append(quarantined.select(*_digest(text)))
            return reduce(DataFrame.unionAll, sides)

        is_columnar = quarantined_records is None and _files_of(prepared, table.schema, policy) is not None
        files = table.task_files(self.spark, paths) if is_columnar else None
        spelled = spell_for_proof(table.schema, policy, self.parts[0].schema)
        return Side(digests, reader=None if files is None else build_file_reader(self.spark, files, *spelled))

    def _prepare_for_proof(self, schema: StructType, policy: Policy) -> list[PreparedRecords]:
        return [
            part.without(self._left_out(spell_for_proof(schema, policy, part.records.schema)[0]))
            for part in self._prepare_parts(schema, policy, schema)
        ]

    def _left_out(self, schema: StructType) -> frozenset[str]:
        """Return the fields that the proof does not compare: also those that only some files of a part have."""
        left_out = set(computed_keys(schema))
        for key in read_defaults(schema):
            by_file = (each.names_by_file().values() for each in self.parts if each.names_by_file is not None)
            if any(len({key in names for names in files}) > 1 for files in by_file):
                left_out.add(key)
        return frozenset(left_out)

    def _prepare_parts(
        self, base: StructType | None, policy: Policy, schema: StructType | None = None
    ) -> list[PreparedRecords]:
        prepared = []
        for part in self.parts:
            spelled, named = spell_as(base or StructType(), policy, part.schema)
            into = None if schema is None else spell_as(schema, policy, part.schema)[0]
            prepared.append(prepare_records(part, self.name, spelled, named, into))
        return prepared


def observe_names(schemas: Collection[StructType], base: StructType | None, policy: Policy) -> Observation:
    """Return how records with types use names."""
    use = NameUse()
    for schema in schemas:
        spell_as(base or StructType(), policy, schema, use)
    matched, apart = (sorted([*path] for path in paths) for paths in (use.matched, use.apart))
    return Observation(matched=matched, apart=apart)


def spell_for_proof(schema: StructType, policy: Policy, source: StructType) -> tuple[StructType, Policy]:
    """Return a table and a policy with the names of a source, as the proof finds these."""
    found = find_source_names(learn_names(schema, in_any_case=policy.matches_any_case), source)
    return respell_all(schema, policy, found)


def find_fields(schemas: Collection[StructType], paths: Iterable[Path]) -> list[Path]:
    """Return the paths of some schemas, ignoring case; keys of maps are not part of them."""
    return [path for path in paths if any(_has(schema, fold_path(path)) for schema in schemas)]


def _has(data_type: DataType, path: Path) -> bool:
    match data_type:
        case _ if not path:
            return True
        case ArrayType(inner) | MapType(_, inner):
            return _has(inner, path)
        case StructType():
            return any(similarity_key(field.name) == path[0] and _has(field.type, path[1:]) for field in data_type)
    return False


@dataclass(frozen=True, slots=True)
class TypeObservation:
    """What the types of records say.

    Args:
        is_decided: Whether the plan is the same for any values, so that they need only be counted.
        is_enough: Whether the plan does not even have events with counts.
    """

    observation: Observation
    is_decided: bool
    is_enough: bool


def observe_types(
    roots: Sequence[Callable[..., RecordObservation]],
    base: StructType | None,
    policy: Policy,
    names: Observation,
) -> TypeObservation:
    """Return what the types of the parts of a batch say.

    Args:
        roots: Return the observation of each part, given whether to assume that values are exact: ``assume_exact``.
        base: The schema of the table; None if the table does not exist yet.
        names: How the parts use names; see `observe_names`.
    """
    certain, optimistic = (
        merge_observations([names, *(Observation(root=root(assume_exact=is_exact)) for root in roots)])
        for is_exact in (False, True)
    )
    plan = evolve(base, certain, policy)
    is_decided = plan.schema == evolve(base, optimistic, policy).schema
    return TypeObservation(certain, is_decided, is_decided and plan.is_empty)


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
        marks = self._missing_marks(route)
        violations = find_typed_violations(self.part.fields, route, policy.samples, marks)
        if rule is None and not violations:
            records = self.part.records
            # Only quarantined records need their position, which costs Spark a row index, and files with different
            # fields.
            rows = records.frame if records.unplaced is None or marks else records.unplaced
            rows = _checked(records, rows)
            files = self.writer.write(self._fill(rows.select(*columns, *_alias_marks(marks))).drop(*map(_mark, marks)))
            return BatchResult(files, Observation(records=self.writer.count_rows(files)))
        return self._write_fitting(columns, violations, rule, marks)

    def _missing_marks(self, route: RecordRoute) -> dict[str, Column]:
        """Return for each column with a default whether a record has no field for it, judging by its file."""
        records, defaults = self.part.records, sorted(self.writer.defaults)
        names_by_file = records.names_by_file() if defaults and records.names_by_file is not None else {}
        marks: dict[str, Column] = {}
        for name in defaults:
            columns = (*self.part.fields, *self.part.pending.names)
            keys = [key for key in columns if any(slot.name == name for slot in route.get(key, ()))]
            lacking = [file for file, names in names_by_file.items() if names.isdisjoint(keys)]
            marks[name] = F.lit(not keys)
            if keys and lacking and records.place is not None:
                marks[name] = file_key_column(records.place.getField("file")).isin(lacking)
        return marks

    def _fill(self, rows: DataFrame) -> DataFrame:
        return self.writer.fill(rows, lambda name: F.col(quote_name(_mark(name))))

    def _copy(self, route: RecordRoute) -> BatchResult | None:
        """Let tasks copy the files, if nothing in them has to be converted; see `widen.batches.column_copy`."""
        part, spark = self.part, self.part.records.frame.sparkSession
        if not (part.is_untouched and part.records.files):
            return None
        sink = self.writer.find_sink(spark)
        if not isinstance(sink, PartSink):
            return None
        copy = find_column_copy(spark, part.records.files, part.schema, self.attempt.schema, route, sink)
        if copy is None:
            return None
        files = self.writer.from_parts(copy.run().parts)
        return BatchResult(files, Observation(records=self.writer.count_rows(files)))

    def _write_fitting(
        self,
        columns: Sequence[Column],
        violations: Sequence[TypedViolation],
        rule: Column | None,
        marks: Mapping[str, Column],
    ) -> BatchResult:
        flags = [f"{_VIOLATION}{number}" for number in range(len(violations))]
        conditions = [violation.is_violated.alias(flag) for violation, flag in zip(violations, flags, strict=True)]
        rows = _checked(self.part.records, self.part.records.frame).select(
            *columns,
            *_alias_marks(marks),
            *conditions,
            _origin(self.part, violation_reason(violations)).alias(_ORIGIN),
        )
        reason = F.col(f"{_ORIGIN}.{ORIGIN_FIELDS[-1]}")
        # Rules may be about computed columns, so these are filled first.
        rows = self._fill(rows).withColumn(_BROKEN, reason if rule is None else F.coalesce(reason, rule))
        with translate_spark_errors():
            number, *counts = rows.agg(F.count(_BROKEN), *map(F.count_if, flags)).collect()[0]
        helpers = (_BROKEN, _ORIGIN, *flags, *map(_mark, marks))
        files = self.writer.write(rows.where(F.col(_BROKEN).isNull()).drop(*helpers))
        origin = (F.col(f"{_ORIGIN}.{name}").alias(name) for name in ORIGIN_FIELDS[:-1])
        quarantined_records = rows.where(F.col(_BROKEN).isNotNull()).select(
            *origin, F.col(_BROKEN).alias(ORIGIN_FIELDS[-1])
        )
        seen = Observation(self.writer.count_rows(files), 0, {}, number, observe_violations(violations, counts))
        return BatchResult(files, seen, quarantined_records if number else None)


def _alias_marks(marks: Mapping[str, Column]) -> list[Column]:
    return [column.alias(_mark(name)) for name, column in marks.items()]


def _mark(name: str) -> str:
    """Return the column that says whether the records have no field for a column of the table."""
    return f"_widen_missing_{name}"


def _checked(records: TypedRecords, rows: DataFrame) -> DataFrame:
    """Return the rows of records; the job fails where a text is not UTF-8. See `widen.batches.corrupt_texts`."""
    is_utf8 = None if records.is_utf8 else is_utf8_record(records.columns.values(), records.schema)
    return rows if is_utf8 is None else rows.where(ensure_utf8_record(is_utf8))


def _origin(part: PreparedRecords, reason: Column) -> Column:
    """Return the text of a record, its location, and why it is quarantined, if it is."""
    location = part.records.place
    file, number = (
        (F.lit(""), F.lit(0)) if location is None else (location.getField("file"), location.getField("number"))
    )
    values = (record_text(part.fields), file, number.cast("bigint"), reason)
    return F.struct(*(column.alias(name) for name, column in zip(ORIGIN_FIELDS, values, strict=True)))


def _files_of(parts: Iterable[PreparedRecords], schema: StructType, policy: Policy) -> list[ColumnFiles] | None:
    parts = list(parts)
    found = [ColumnFiles(part.records.files if part.is_untouched else (), part.schema) for part in parts]
    spelled = spell_for_all(schema, policy, [part.records.schema for part in parts])
    return None if spelled is None else find_column_files(found, *spelled)


def spell_for_all(
    schema: StructType, policy: Policy, sources: Sequence[StructType]
) -> tuple[StructType, Policy] | None:
    """Return a table and a policy as `spell_for_proof` does; None if the sources have several names for a field."""
    spelled = [spell_for_proof(schema, policy, source) for source in sources]
    return spelled[0] if all(each == spelled[0] for each in spelled) else None


def find_column_files(parts: Sequence[ColumnFiles], schema: StructType, policy: Policy) -> list[ColumnFiles] | None:
    """Return files with the types that the proof compares; None if the form of one differs in the table.

    Args:
        parts: The files with their types in the source; without files, if the values do not come from columns.
        schema: The schema of the table.
    """
    # A float means its exact value, also in a column of doubles, and a double the number of its shortest text.
    has_floats = any(data_type == FLOAT for _, data_type in leaves(schema))
    columns = source_columns_by_key(schema, policy)
    if not all(part.files and has_forms(part.schema) and has_own_kinds(part.schema, columns) for part in parts):
        return None
    return [
        part if has_floats else replace(part, schema=cast(StructType, _floats_as_doubles(part.schema)))
        for part in parts
    ]


def _floats_as_doubles(data_type: DataType) -> DataType:
    return DOUBLE if data_type == FLOAT else map_children(data_type, lambda _, child: _floats_as_doubles(child))


def has_forms(data_type: DataType) -> bool:
    """Return whether tasks of the proof digest the values of a type like the values of a column."""
    match data_type:
        case StructType(fields):
            return all(has_forms(field.type) for field in fields)
        case ArrayType(element):
            return has_forms(element)
        case MapType(key, value):
            return key == STRING and has_forms(value)
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
        nothing.cast("boolean").alias(DELETES),
    ]


# Aggregates over typed values: the count of each kind, its first value, and facts that its type leaves open.
#
# Source: docs/evolution-rules.md#one-interval, #d2, #d16


PER_PASS = 200
"""The most kinds that one pass over the records aggregates."""

_NO_SAMPLE = "{…}"


@dataclass(frozen=True, slots=True)
class _KindAggregate:
    """The aggregates of one kind, over all values of the kind in a record at once.

    Args:
        values: The value of a record, or an array of its values.
        type: The type of scalars; None for records and maps.
        optional: The field and the kind, if values of the type may be of another kind; without a value it is removed.
    """

    observation: KindObservation
    values: Column
    is_array: bool
    type: DataType | None
    optional: tuple[FieldObservation, Kind] | None = None

    def counts(self, location: Column) -> list[Column]:
        """Return the count, and the first value with its location as JSON."""
        if self.is_array:
            present = F.filter(self.values, F.isnotnull)
            count, value = F.coalesce(F.sum(F.size(present)), F.lit(0)), F.try_element_at(present, F.lit(1))
        else:
            count, value = F.count(self.values), self.values
        shown = F.lit(None) if self.type is None else value
        # The smallest position, not the first that Spark happens to read: one batch must always give one plan.
        first = F.min(F.when(value.isNotNull(), F.struct(location.alias("place"), shown.alias("value"))))
        # Only the value that is the first becomes a text.
        return [count, F.to_json(F.struct(first.getField("place").alias("place"), self._text(first).alias("sample")))]

    def facts(self) -> list[Column]:
        """Return the facts that the type leaves open."""
        return ([self._is_exact()] if self._is_open else []) + ([self._digits()] if self._is_whole else [])

    def fill_counts(self, values: Iterator[Any]) -> None:
        """Fill in the observation with the next results of `counts`."""
        self.observation.count, first = next(values), msgspec.json.decode(next(values))
        location, self.observation.sample = first.get("place"), first.get("sample", "")
        self.observation.first = (location["file"], location["number"]) if location else None

    def fill_facts(self, values: Iterator[Any]) -> None:
        """Fill in the observation with the next results of `facts`."""
        is_exact = next(values) if self._is_open else None
        if self._is_whole:
            self.observation.integer_digits = next(values) or 0
        if self.type == TIMESTAMP:
            self.observation.epoch_ms_exact = is_exact is not False
        elif self.type is not None and not self.observation.exact_double:
            self.observation.exact_double = is_exact is not False

    def fill_values(self, values: pa.Array, rows: pa.Array, uri: str) -> bool:
        """Fill in the observation with values of a file; see `add_values`."""
        return add_values(self.observation, self.type, values, rows, uri)

    def remove_absent(self) -> None:
        """Remove the kind from the observation if the type only says that there may be values of it."""
        if self.optional is not None and not self.observation.count:
            field, kind = self.optional
            del field.kinds[kind]
            field.nulls.update({} if field.kinds else {kind.dim: 1})

    @property
    def _is_open(self) -> bool:
        """Whether the type leaves open if a wider column holds all values exactly."""
        return self.type == TIMESTAMP or not (self.type is None or self.observation.exact_double)

    @property
    def _is_whole(self) -> bool:
        facts = None if self.type is None else type_facts(self.type)
        return facts is not None and facts[0] == LONG_WORD

    def _digits(self) -> Column:
        bounds = (F.array_min(self.values), F.array_max(self.values)) if self.is_array else (self.values, self.values)
        return F.greatest(_digits(F.min(bounds[0])), _digits(F.max(bounds[1])))

    def _is_exact(self) -> Column:
        if self.type == TIMESTAMP:
            return F.every(self._each(is_whole_ms))
        data_type = self.type
        assert data_type is not None
        return F.every(self._each(lambda value: is_exact_double(value, data_type)))

    def _each(self, test: Callable[[Column], Column]) -> Column:
        if not self.is_array:
            return test(self.values)
        return F.forall(self.values, lambda value: value.isNull() | test(value))

    def _text(self, first: Column) -> Column:
        if self.type is None:
            return F.when(first.isNotNull(), F.lit(_NO_SAMPLE))
        value = first.getField("value")
        text = F.base64(value) if self.type == BINARY else convert_exactly(value, self.type, STRING)
        assert text is not None
        return text.substr(1, SAMPLE_CHARS)


class KindAggregates:
    """The aggregates over records.

    Args:
        observation: What the schema of the records says; the results are filled in.
        files: The files whose columns are these fields, to count without Spark where Arrow reads them as Spark does.
    """

    def __init__(
        self,
        records: TypedRecords,
        fields: Mapping[str, Typed],
        observation: RecordObservation,
        files: Sequence[SourceFile] = (),
    ) -> None:
        self._records, self._files = records, files
        self._schema = StructType(tuple(Field(name, data_type) for name, (_, data_type) in fields.items()))
        self._paths: dict[int, Path] = {}
        self._location = F.lit(None).cast(PLACE_TYPE) if records.place is None else records.place
        self._aggregates = [
            each
            for key, (values, kind) in fields.items()
            for each in _kind_aggregates(observation[key], values, kind, 0)
        ]

    def observe(self) -> int:
        """Aggregate all that the types leave open over all records, and return how many records there are."""
        records = self._run(self._records.frame, self._aggregates, has_facts=True)
        for each in self._aggregates:
            each.remove_absent()
        return records

    def count(self) -> None:
        """Count the kinds, and find their first values. The counts of large batches are lower bounds, as for texts.

        The first records of the first file have most kinds. Only the others are searched for in all records.
        """
        footers = read_source_footers(self._files, self._schema) or []
        head, is_all = self._count_head(footers), False
        if head is None:
            head = self._run(self._records.head(), self._aggregates) if self._records.head is not None else 0
            is_all = self._records.is_head_all and 0 < head < HEAD_RECORDS
        is_large = head >= MIN_COUNTED_RECORDS
        rest = [each for each in self._aggregates if not (is_large and each.observation.count)]
        rest = [each for each in rest if not self._is_absent(each, footers)]
        if rest and not is_all:
            self._run(self._records.frame, rest)
        for each in rest:
            each.remove_absent()

    def _count_head(self, footers: Sequence[SourceFooter]) -> int | None:
        """Count in the first records of the first file, and return how many these are; None if Spark has to do it."""
        if not footers:
            return None
        footer, file = min(zip(footers, self._files, strict=True), key=lambda pair: pair[1].path)
        if footer.rows < MIN_COUNTED_RECORDS:
            return None  # the counts of a small batch are exact, and Spark counts all of it
        head = read_first_rows(file, self._schema, HEAD_RECORDS)
        rows = pa.array(range(len(head)), pa.int64())
        kinds = [
            kind
            for values, field in zip(head.columns, self._schema, strict=True)
            for kind in kinds_of(values, rows, field.type, (field.name,))
        ]
        pairs = list(zip(self._aggregates, kinds, strict=True))
        self._paths = {id(each): path for each, (path, _, _) in pairs if each.type is not None}
        left = [each for each, (_, values, rows) in pairs if not each.fill_values(values, rows, file.uri)]
        if left and self._records.head is not None:
            self._run(self._records.head(), left)
        return len(head)

    def _is_absent(self, aggregate: _KindAggregate, footers: Sequence[SourceFooter]) -> bool:
        """Return whether the footers say that no record has a scalar of a kind."""
        path = self._paths.get(id(aggregate))
        return path is not None and all(footer.values.get(path, 0) == 0 for footer in footers)

    def _run(self, frame: DataFrame, aggregates: Sequence[_KindAggregate], *, has_facts: bool = False) -> int:
        records = 0
        for start in range(0, max(len(aggregates), 1), PER_PASS):
            kinds = aggregates[start : start + PER_PASS]
            columns = [F.count(F.lit(1)), *(column for each in kinds for column in each.counts(self._location))]
            columns += [column for each in kinds for column in (each.facts() if has_facts else ())]
            with translate_spark_errors():
                row = frame.agg(*(column.alias(str(at)) for at, column in enumerate(columns))).collect()[0]
            values = iter(row)
            records = next(values)
            for each in kinds:
                each.fill_counts(values)
            for each in kinds if has_facts else ():
                each.fill_facts(values)
        return records


def add_values(
    observation: KindObservation, data_type: DataType | None, values: pa.Array, rows: pa.Array, uri: str
) -> bool:
    """Add values of a file to the observation of their kind; return False if only Spark writes the first one as text.

    Args:
        data_type: The type of scalars; None for records and maps.
        rows: The index of the record of each value.
    """
    count = len(values) - values.null_count
    if not count:
        return True
    if observation.first is None:
        first = pc.index(values.is_valid(), True).as_py()
        text = _NO_SAMPLE if data_type is None else _to_text(values[first], data_type)
        if text is None:
            return False
        observation.sample, observation.first = text[:SAMPLE_CHARS], (uri, rows[first].as_py() + 1)
    observation.count += count
    return True


def kinds_of(
    values: pa.Array, rows: pa.Array, data_type: DataType, path: Path
) -> Iterator[tuple[Path, pa.Array, pa.Array]]:
    """Yield the path, the values and their records of each kind, in the order of `_kind_aggregates`."""
    match data_type:
        case ArrayType(element):
            parents = rows.take(pc.list_parent_indices(values))
            yield from kinds_of(values.flatten(), parents, element, (*path, ELEMENT))
        case StructType(fields):
            yield path, values, rows
            for inner, field in zip(values.flatten(), fields, strict=True):
                yield from kinds_of(inner, rows, field.type, (*path, field.name))
        case MapType(_, value):
            yield path, values, rows
            lists = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
            parents = rows.take(pc.list_parent_indices(lists))
            yield from kinds_of(lists.flatten().flatten()[1], parents, value, (*path, VALUE))
        case _ if type_facts(data_type) is not None:
            yield path, values, rows


def _to_text(value: pa.Scalar, data_type: DataType) -> str | None:
    """Return a value as Spark writes it as text; None if only Spark knows."""
    try:
        plain = value.as_py()
    except (OverflowError, ValueError):  # years that datetime does not support
        return None
    match plain:
        case bool():
            return "true" if plain else "false"
        case int() | str():
            return str(plain)
        case bytes():
            return base64.b64encode(plain).decode()
        case float():
            return (java_number(plain, repr(plain)) if data_type == DOUBLE else java_float(plain)).strip('"')
        case Decimal():
            return f"{plain:f}"
        case datetime():
            text = plain.replace(tzinfo=None).isoformat()
            text = text.rstrip("0") if "." in text else text
            return text + "Z" if data_type == TIMESTAMP else text
        case date():
            return plain.isoformat()
    return None


def _kind_aggregates(
    observation: FieldObservation, values: Column, data_type: DataType, dim: int, *, is_array: bool = False
) -> Iterator[_KindAggregate]:
    match data_type:
        case ArrayType(element):
            inner = F.flatten(F.filter(values, F.isnotnull)) if is_array else values
            yield from _kind_aggregates(observation, inner, element, dim + 1, is_array=True)
        case StructType(fields):
            yield _KindAggregate(observation.kinds[Kind(RECORD_WORD, dim)], values, is_array, None)
            for name, field in zip(field_steps(data_type), fields, strict=True):
                inner = _in_each(values, _getter(name), is_array=is_array)
                yield from _kind_aggregates(
                    observation.records[dim][field.name], inner, field.type, 0, is_array=is_array
                )
        case MapType(_, value):
            yield _KindAggregate(observation.kinds[Kind(MAP_WORD, dim)], values, is_array, None)
            inner = _in_each(values, F.map_values, is_array=is_array)
            yield from _kind_aggregates(observation.maps[dim], inner, ArrayType(value), -1, is_array=is_array)
        case TemporalString():
            yield from _temporal_aggregates(observation, values, data_type, dim, is_array=is_array)
        case _ if data_type != VOID:
            facts = type_facts(data_type)
            if facts is not None:
                yield _KindAggregate(observation.kinds[Kind(facts[0], dim)], values, is_array, data_type)


def _temporal_aggregates(
    observation: FieldObservation, texts: Column, data_type: TemporalString, dim: int, *, is_array: bool
) -> Iterator[_KindAggregate]:
    def read(each: DataType) -> Callable[[Column], Column]:
        return lambda text: read_temporal(text, each)

    def other(text: Column) -> Column:
        return F.when(join_columns(and_, [read(each)(text).isNull() for each in data_type.types]), text)

    for each in (*data_type.types, STRING):
        facts = type_facts(each)
        assert facts is not None
        kind = Kind(facts[0], dim)
        values = _in_each(texts, other if each == STRING else read(each), is_array=is_array)
        yield _KindAggregate(observation.kinds[kind], values, is_array, each, (observation, kind))


def _digits(number: Column) -> Column:
    # The absolute value of the least long is not a long.
    return F.length(F.abs(number.cast("decimal(20,0)")).cast("string"))


def _in_each(values: Column, inner: Callable[[Column], Column], *, is_array: bool) -> Column:
    return F.transform(values, inner) if is_array else inner(values)


def _getter(name: str) -> Callable[[Column], Column]:
    return lambda value: value.getField(name)
