"""Batches of typed records: a DataFrame, or files with a schema. The same rules apply, to the schema.

Values are observed only where their type leaves open whether a column holds them exactly, and counted only when
the table changes, most of them in the first records. So most intervals take one pass. Tasks convert whole columns with
Arrow.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from functools import partial, reduce
from typing import cast

import msgspec

from widen.batches.column_copy import SourceFooter, find_column_copy, read_first_rows, read_source_footers
from widen.batches.column_values import NO_MARKS, RowConversion, to_quarantine_rows
from widen.batches.corrupt_texts import is_utf8_record, to_refused_texts
from widen.batches.frame_conversion import (
    REASON,
    SOURCE_PLACE,
    TEXT,
    FrameCopy,
    FrameRows,
    ObserveKinds,
    PreparedRecords,
    flag_of,
    mark_of,
    prepare_records,
    select_records,
    storable_columns,
    task_source,
)
from widen.batches.observed_kinds import FileOrder, add_batch, fill_counts, kinds, remove_absent
from widen.batches.text_batch import PLACED_TEXT, BatchResult, ContractReport, check_contract_rows
from widen.batches.text_tasks import MIN_COUNTED_RECORDS, BatchWriteSpec
from widen.batches.typed_frames import HEAD_RECORDS, PLACE_TYPE, TypedRecords, fill_voids, has_map_key, without_voids
from widen.evolution.evolve import evolve
from widen.evolution.plan import BadFile, ReadAs
from widen.evolution.policy import Policy, respell_all, spell_as
from widen.files.arrow_types import count_up, to_arrow_schema
from widen.files.data_writer import PartSink, Sink, TableSink
from widen.frames.physical_layout import cast_to_table_type
from widen.frames.table_writers import TableRows, TableWriter
from widen.json.field_rules import SIGN
from widen.json.observation import Observation, RecordObservation, merge_observations
from widen.model.column_path import Path, fold_path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, quote_name, similarity_key
from widen.model.value_classes import dataclass
from widen.proof.known_names import find_source_names, learn_names
from widen.proof.rules import leave_out, read_defaults
from widen.rows.row import RecordRoute, build_routes
from widen.rows.row_builder import ORIGIN_FIELDS, RowCondition
from widen.schema.field_names import NameUse
from widen.sources.file_ranges import RAW_SCHEMA, RawTexts
from widen.sources.listing import SourceFile, file_key_column
from widen.spark.engine import Rows, Session
from widen.spark.errors import translate_spark_errors
from widen.spark.spark_types import Column, DataFrame, F, type_to_spark
from widen.verification.record_sides import (
    RecordPart,
    build_record_proof,
    build_source_side,
    build_table_side,
    select_records_for_proof,
)
from widen.verification.records import Side

LISTED_BYTES = 8 * 2**20
"""How many bytes of quarantined records a task sends to the driver; Spark reads more of them again."""


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
    read_as: tuple[ReadAs, ...] = ()
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
        """Return the excluded and masked fields that the records have; fields in keys of maps are looked up."""
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
                schema, policy = spell_as(attempt.schema, attempt.policy, part.source.schema)
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

    def check_contract(self, contract: object, policy: Policy) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        report = ContractReport()
        for part in self._prepare_parts(None, Policy()):
            texts = _texts_of(part)
            report = report.merged(check_contract_rows(texts, contract))
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
        return build_source_side(self.spark, self._proof_parts(schema, policy))

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        parts = self._proof_parts(table.schema, policy)
        return build_table_side(self.spark, parts, table, split_by_home(paths, self._homes, parts), quarantined_records)

    def _proof_parts(self, schema: StructType, policy: Policy) -> list[RecordPart]:
        parts = []
        for part in self.parts:
            spelled, named = spell_for_proof(schema, policy, part.schema)
            fields = fill_voids(part.schema, build_routes(spelled, named))
            # Where a part lacks a field, its column has the default, which the fields say nothing of.
            lacking = self._partly_lacking(spelled) | (read_defaults(spelled).keys() - {*without_voids(fields).names})
            proof = build_record_proof(fields, leave_out(spelled, lacking), named)
            frame = select_records_for_proof(part.frame, part.schema, proof, part.place)
            parts.append(RecordPart(proof, part.files, None, frame))
        return parts

    def _partly_lacking(self, schema: StructType) -> frozenset[str]:
        """Return the fields with a default that only some files of a part have."""
        by_part = [each.names_by_file().values() for each in self.parts if each.names_by_file is not None]
        return frozenset(
            key for key in read_defaults(schema) if any(len({key in names for names in files}) > 1 for files in by_part)
        )

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
    found = find_source_names(learn_names(schema, policy), source)
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
        aggregates = KindAggregates(part, observation.root)
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
        spark = self.part.source.frame.sparkSession
        # A default goes where the file of a record has no field for it, which Spark says.
        sink = None if self.writer.defaults else self.writer.find_sink(spark, in_tasks=True)
        copied = self._copy(sink) if isinstance(sink, PartSink) else None
        if copied is not None:
            return copied
        return self._write_on_spark() if sink is None else self._write_in_tasks(sink)

    def _copy(self, sink: PartSink) -> BatchResult | None:
        """Let tasks copy the files, if nothing in them has to be converted; see `widen.batches.column_copy`."""
        part, attempt, spark = self.part, self.attempt, self.part.source.frame.sparkSession
        if not (part.is_untouched and part.source.files):
            return None
        route = build_routes(attempt.schema, attempt.policy)
        copy = find_column_copy(spark, part.source.files, part.schema, attempt.schema, route, sink)
        if copy is None:
            return None
        files = self.writer.from_parts(copy.run().parts)
        return BatchResult(files, Observation(records=self.writer.count_rows(files)))

    def _write_in_tasks(self, sink: Sink) -> BatchResult:
        """Let tasks convert the records and write the files."""
        records, attempt = self.part.source, self.attempt
        conversion = self._conversion(attempt.schema, tuple(sink.text_partitions), tuple(sink.rules))
        is_placed = records.place is not None and conversion.can_quarantine
        types = to_arrow_schema(attempt.schema) if sink.schema is None else sink.schema
        copy = FrameCopy(conversion, types, sink, is_placed, records.is_utf8, LISTED_BYTES)
        copied = copy.run(self._in_partitions(self._select(conversion, is_placed=is_placed), conversion, sink))
        files = self.writer.from_parts(copied.parts)
        root, number = conversion.observe_violations(copied.counts), len(copied.quarantined) + copied.unlisted
        seen = Observation(self.writer.count_rows(files), 0, {}, number, root)
        if copied.unlisted:
            return BatchResult(files, seen, self._quarantined(conversion, attempt.schema, F.col(REASON)))
        quarantined = to_quarantine_rows(copied.quarantined) if copied.quarantined else None
        spark = records.frame.sparkSession
        return BatchResult(files, seen, None if quarantined is None else spark.createDataFrame(quarantined))

    def _in_partitions(self, frame: DataFrame, conversion: RowConversion, sink: Sink) -> DataFrame:
        """Return the records sorted by the partitions they go to, so that tasks write no small files."""
        columns = set(sink.partition_by) if isinstance(sink, TableSink) else set()
        keys = [
            f"c{number}"
            for number, each in enumerate(conversion.source)
            if not isinstance(each.type, (ArrayType, MapType, StructType))
            and any(slot.name in columns for slot in conversion.route.get(each.name, ()))
        ]
        return frame.sortWithinPartitions(*keys) if keys else frame

    def _write_on_spark(self) -> BatchResult:
        """Let tasks convert the records, and Spark complete the rows, check them and write them."""
        rule, attempt = self.writer.violated_rule(), self.attempt
        own = storable_columns(attempt.schema)
        conversion = self._conversion(own)
        marks = self._missing_marks(conversion.route)
        is_judged = rule is not None or conversion.can_quarantine
        rows = FrameRows(conversion, own, tuple(marks), self.part.source.is_utf8, is_judged)
        filled = self._fill(rows.run(self._select(conversion, marks)), own)
        helpers = [*map(mark_of, marks)]
        if not is_judged:
            files = self.writer.write(filled.drop(*helpers))
            return BatchResult(files, Observation(records=self.writer.count_rows(files)))
        flags = [flag_of(number) for number in range(conversion.violations)]
        # Rules may be about computed columns, so these are filled first.
        reason = F.col(REASON) if rule is None else F.coalesce(F.col(REASON), rule)
        judged = filled.withColumn(REASON, reason)
        with translate_spark_errors():
            number, *counts = judged.agg(F.count(REASON), *map(F.count_if, flags)).collect()[0]
        files = self.writer.write(judged.where(F.col(REASON).isNull()).drop(REASON, *flags, *helpers))
        seen = Observation(self.writer.count_rows(files), 0, {}, number, conversion.observe_violations(counts))
        return BatchResult(files, seen, self._quarantined(conversion, own, reason, marks) if number else None)

    def _quarantined(
        self, conversion: RowConversion, own: StructType, reason: Column, marks: Mapping[str, Column] = NO_MARKS
    ) -> DataFrame:
        """Return the records that the table does not take, with their texts, which only these rows need."""
        rows = FrameRows(conversion, own, tuple(marks), self.part.source.is_utf8, True, True)
        found = self._fill(rows.run(self._select(conversion, marks, is_placed=True)), own).withColumn(REASON, reason)
        columns = zip((*_origin_columns(), F.col(REASON)), ORIGIN_FIELDS, strict=True)
        return found.where(F.col(REASON).isNotNull()).select(*(column.alias(name) for column, name in columns))

    def _conversion(
        self, schema: StructType, texts: tuple[str, ...] = (), rules: tuple[RowCondition, ...] = ()
    ) -> RowConversion:
        policy, source = self.attempt.policy, task_source(self.part.source.schema, self.part.rules)
        route = build_routes(schema, policy)
        return RowConversion(source, self.part.rules, route, schema, policy.samples, texts, rules)

    def _select(
        self, conversion: RowConversion, marks: Mapping[str, Column] = NO_MARKS, *, is_placed: bool = False
    ) -> DataFrame:
        """Return the records as tasks get them, with marks, and with the location of each record."""
        records = self.part.source
        # Only quarantined records need their location, which costs Spark a row index, and files with different fields.
        frame = records.frame if is_placed or marks or records.unplaced is None else records.unplaced
        place = F.lit(None).cast(PLACE_TYPE) if records.place is None else records.place
        return select_records(records, frame, conversion, (*marks.values(), *([place] if is_placed else [])))

    def _missing_marks(self, route: RecordRoute) -> dict[str, Column]:
        """Return for each column with a default whether a record has no field for it, judging by its file."""
        records, defaults = self.part.source, sorted(self.writer.defaults)
        names_by_file = records.names_by_file() if defaults and records.names_by_file is not None else {}
        marks: dict[str, Column] = {}
        for name in defaults:
            columns = (*self.part.schema.names, *self.part.pending.names)
            keys = [key for key in columns if any(slot.name == name for slot in route.get(key, ()))]
            lacking = [file for file, names in names_by_file.items() if names.isdisjoint(keys)]
            marks[name] = F.lit(not keys)
            if keys and lacking and records.place is not None:
                marks[name] = file_key_column(records.place.getField("file")).isin(lacking)
        return marks

    def _fill(self, rows: DataFrame, own: StructType) -> DataFrame:
        """Return rows of tasks in the columns of the table, filled, with what else they have."""
        columns, more = [], rows.columns[len(own.fields) :]
        for each in self.attempt.schema:
            at = own.names.index(each.name) if each.name in own.names else None
            value = F.lit(None) if at is None else F.col(rows.columns[at])
            if at is None or own.fields[at].type == each.type:
                column = value.cast(type_to_spark(each.type))
            else:
                column = cast_to_table_type(value, own.fields[at].type, each.type, (each.name,))
            columns.append(column.alias(each.name))
        columns += [F.col(quote_name(name)) for name in more]
        return self.writer.fill(rows.select(*columns), lambda name: F.col(quote_name(mark_of(name))))


def _texts_of(part: PreparedRecords) -> DataFrame:
    """Return the texts of records with their locations; see `PLACED_TEXT`."""
    records = part.source
    conversion = RowConversion(task_source(records.schema, part.rules), part.rules, {}, StructType())
    place = F.lit(None).cast(PLACE_TYPE) if records.place is None else records.place
    rows = FrameRows(conversion, StructType(), (), records.is_utf8, has_text=True)
    found = rows.run(select_records(records, records.frame, conversion, [place]))
    return found.select(*(column.alias(name) for column, name in zip(_origin_columns(), PLACED_TEXT, strict=True)))


def _origin_columns() -> tuple[Column, Column, Column]:
    """Return the text of a record and its location, in rows of `FrameRows`."""
    place = F.col(SOURCE_PLACE)
    return F.col(TEXT), F.coalesce(place["file"], F.lit("")), F.coalesce(place["number"], F.lit(0).cast("bigint"))


def split_by_home(paths: Collection[str], homes: Mapping[str, int], parts: Sequence[object]) -> list[list[str]]:
    """Return the files that the records of each part were written to."""
    return [[path for path in paths if homes.get(path.partition("/")[0]) == number] for number in range(len(parts))]


# What the values of records say, which tasks look at.
#
# Source: docs/evolution-rules.md#one-interval, #d2, #d16


class KindAggregates:
    """The kinds of the values of records.

    Args:
        observation: What the schema of the records says; the results are filled in.
    """

    def __init__(self, part: PreparedRecords, observation: RecordObservation) -> None:
        self._part, self._root = part, observation
        self._files = part.source.files if part.is_untouched else ()

    def observe(self) -> int:
        """Find out all that the types leave open over all records, and return how many records there are."""
        seen = self._run(self._part.source.frame, self._part.schema.names, has_facts=True)
        fill_counts(self._root, seen.root, self._part.types, has_facts=True)
        self._remove_absent()
        return seen.records

    def count(self) -> None:
        """Count the kinds, and find their first values. The counts of large batches are lower bounds, as for texts.

        The first records of the first file have most kinds. Only the others are searched for in all records.
        """
        records, schema = self._part.source, self._part.schema
        footers = read_source_footers(self._files, schema) or []
        head, is_all = self._count_head(footers), False
        if head is None and records.head is not None:
            seen = self._run(records.head(), schema.names)
            head, is_all = seen.records, records.is_head_all and 0 < seen.records < HEAD_RECORDS
            fill_counts(self._root, seen.root, self._part.types)
        is_large = (head or 0) >= MIN_COUNTED_RECORDS
        rest = [each.name for each in schema if not is_large or self._lacks_values(each, footers)]
        if rest and not is_all:
            found = self._run(records.frame, rest).root
            fill_counts(self._root, found, self._part.types, only_absent=is_large)
        self._remove_absent()

    def _count_head(self, footers: Sequence[SourceFooter]) -> int | None:
        """Count in the first records of the first file, and return how many these are; None if tasks have to do it."""
        if not footers:
            return None
        schema = self._part.schema
        footer, file = min(zip(footers, self._files, strict=True), key=lambda pair: pair[1].path)
        if footer.rows < MIN_COUNTED_RECORDS:
            return None  # the counts of a small batch are exact, and tasks count all of it
        head = read_first_rows(file, schema, HEAD_RECORDS)
        fields = {each.name: (values, each.type) for values, each in zip(head.columns, schema, strict=True)}
        add_batch(self._root, fields, count_up(len(head)), FileOrder(file.uri))
        return len(head)

    def _lacks_values(self, field: Field, footers: Sequence[SourceFooter]) -> bool:
        """Return whether a field lacks values of a kind that some records may have."""
        if all(kind.count for kind, _ in kinds(self._root[field.name], field.type)):
            return False
        is_scalar = not isinstance(field.type, (ArrayType, MapType, StructType))
        is_empty = bool(footers) and all(footer.values.get((field.name,), 0) == 0 for footer in footers)
        return not (is_scalar and is_empty)

    def _remove_absent(self) -> None:
        for name, data_type in self._part.types.items():
            remove_absent(self._root[name], data_type)

    def _run(self, frame: DataFrame, names: Collection[str], *, has_facts: bool = False) -> Observation:
        return ObserveKinds.of(self._part, names, has_facts=has_facts).run(self._part.source, frame)
