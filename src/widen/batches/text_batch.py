"""The batch of one interval on Spark: its records are observed, held against a contract, and written as files.

Records that the table cannot take go to the quarantine.

Source: docs/evolution-rules.md#one-interval, #d11, #d12
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from typing import Protocol as Interface

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.batches.excluded_fields import no_deletes_by
from widen.batches.record_stages import RecordStages, stage_of_reason
from widen.batches.text_tasks import (
    MISSING_FIELDS,
    NOTE,
    NOTES,
    ORIGIN,
    BatchWriteSpec,
    RecordPositions,
    TaskNote,
    build_rows,
    collect_notes,
    merge_notes,
    notes_aggregate,
    read_record_groups,
    read_refused_records,
    split_notes,
    with_rule_violations,
)
from widen.errors import JobFailed
from widen.evolution.plan import BadFile, ReadAs
from widen.evolution.policy import Policy
from widen.files.data_writer import Sink
from widen.frames.table_writers import TableRows, TableWriter, WrittenFile
from widen.json.contract import Breach
from widen.json.document import MAX_RECORD_BYTES, InvalidJson, corrupt_text_to_bytes, not_a_record, parse_document
from widen.json.envelope import EnvelopeReader
from widen.json.field_rules import FileFields
from widen.json.observation import Observation, RecordPosition
from widen.log.commit_outcome import discard_folder
from widen.model.types import StructType, is_same_name
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileTasks, FileValueReader
from widen.rows.row_builder import ORIGIN_FIELDS, MissingColumn, OriginColumn, record_digest
from widen.schema.source_metadata import source_key
from widen.sources.csv_dialect import FieldGroup
from widen.sources.file_ranges import FILE, KEPT_PARTS, PART, RAW_SCHEMA, TEXT, WHOLE, RawTexts, is_small, to_frame
from widen.sources.listing import SourceFile, unusable_source
from widen.spark.engine import LocalFrame, Rows, Session, is_local, require_spark
from widen.spark.errors import is_out_of_memory, translate_spark_errors
from widen.spark.session import observable_jobs
from widen.spark.spark_types import Column, DataFrame, F, Metrics

if TYPE_CHECKING:
    from widen.verification.records import Side


class Batch(Interface):
    """The records of one interval, from any source."""

    @property
    def name(self) -> str:
        """The name of the source in errors."""

    @property
    def spark(self) -> Session:
        """The session that reads the records."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the files that are not read."""

    @property
    def has_types(self) -> bool:
        """Whether the source has types, so that no task reads texts."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields that records get from their files."""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that are read; empty if the records are not from files."""

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        """The files that cannot be read and are skipped."""

    @property
    def source_table(self) -> str:
        """The version of a table whose rows these are; empty if the source is not a table."""

    @property
    def read_as(self) -> tuple[ReadAs, ...]:
        """How files are read that are not written as options and defaults say."""

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what is known about the records before a full pass over them.

        Args:
            base: The schema of the table; None if the table does not exist yet.
        """

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return what the records contain beyond what the columns of the attempt say; writes nothing."""

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the records as files; return the files and what the records contain beyond what the columns say.

        Nothing is committed. If the observation does not fit the attempt, the caller must discard the files.
        """

    def find_broken(self, attempt: BatchWriteSpec, writer: TableWriter, *, by_rules: bool = True) -> Rows | None:
        """Return the records that violate a rule of the table, with the columns of `ORIGIN_FIELDS`; writes nothing.

        Args:
            by_rules: Whether to leave out those that do not fit a fixed column.

        Returns:
            None if the table has no such rules, or if the types of the source decide what columns there are.
        """

    def check_contract(self, contract: object, policy: Policy) -> ContractReport:
        """Return where the records break a contract.

        Args:
            policy: How documents hold records.
        """

    def prepare_proof(self) -> None:
        """Get ready for the proof, before anything is written."""

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records, for the proof."""

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows of the table and of the quarantined records, for the proof."""


@dataclass(frozen=True, slots=True)
class TextReaders:
    """The ways to read the texts of a batch.

    Args:
        read_again: Returns the same texts, read in another way, for the proof; None to prove with `read`.
        ranges: The same texts for a task in this process, if they are few.
        find_tasks: Returns the files for the proof if its tasks can read them.
        find_sample: Returns some of the texts for a task in this process, if they have one record on each line.
        read_as: How files are read that are not written as options and defaults say.
        may_refuse: Whether `read_again` raises an error for some large files.
    """

    read: Callable[[], RawTexts]
    read_again: Callable[[], DataFrame] | None = None
    ranges: pa.RecordBatch | None = None
    find_tasks: Callable[[], FileTasks | None] | None = None
    find_sample: Callable[[], pa.RecordBatch | None] | None = None
    read_as: tuple[ReadAs, ...] = ()
    may_refuse: bool = False


@dataclass(frozen=True)
class TextBatch:
    """A batch of records as JSON texts.

    Args:
        file_values: What the proof reads of the paths of files, which does not depend on `file_fields`.
    """

    spark: Session
    readers: TextReaders
    name: str
    left_out: tuple[str, ...] = ()
    file_fields: FileFields | None = None
    names: frozenset[str] = frozenset()
    files: tuple[SourceFile, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    source_table: str = ""
    max_record_bytes: int = MAX_RECORD_BYTES
    file_values: FileValueReader | None = None

    has_types = False

    @property
    def read_as(self) -> tuple[ReadAs, ...]:
        """How files are read that are not written as options and defaults say."""
        return self.readers.read_as

    @property
    def texts(self) -> RawTexts:
        """The raw batch, for the engine that does the work now."""
        return self._texts_here if is_local(self.spark) else self._texts_on_spark

    @cached_property
    def _texts_here(self) -> RawTexts:
        return self.readers.read()

    @cached_property
    def _texts_on_spark(self) -> RawTexts:
        return self.readers.read()

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return an empty result, because texts have no schema; see `Batch`."""
        return Observation()

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return the observation of the texts; see `Batch`."""
        attempt = self._with_file_fields(attempt)
        with _name_largest_file(self.files), translate_spark_errors():
            return self._observe_sample(attempt) or merge_notes(self._collect_notes(attempt))

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the records; see `Batch`. The tasks write the files themselves if the table allows it."""
        attempt = self._with_file_fields(attempt)
        sink = writer.find_sink(self.spark)
        with _name_largest_file(self.files):
            if sink is None:
                if attempt.policy.deletes_by:
                    reason = f"only Spark writes the rows of this table: {writer.find_obstacle()}"
                    raise no_deletes_by(attempt.policy.deletes_by, reason)
                require_spark(self.spark, f"of the table: {writer.find_obstacle()}")
                return write_fitting(self.texts, attempt, writer)
            named, rules = sink.text_partitions, sink.rules
            has_origin = named or rules or attempt.policy.fixed_columns
            origin = OriginColumn(ORIGIN, partition_by=named, rules=rules) if has_origin else None
            return self._write_in_tasks(
                _fill_in_tasks(replace(attempt, sink=sink, origin=origin), writer), sink, writer
            )

    def find_broken(self, attempt: BatchWriteSpec, writer: TableWriter, *, by_rules: bool = True) -> Rows | None:
        """Return the records that violate a rule of the table; see `Batch`."""
        attempt, sink = self._with_file_fields(attempt.without_excluded()), writer.find_sink(self.spark)
        if sink is not None:
            origin = OriginColumn(ORIGIN, partition_by=sink.text_partitions, rules=sink.rules)
            has_rules = origin.partition_by or origin.rules
            attempt = _fill_in_tasks(replace(attempt, origin=origin), writer)
            return keep_refused(self.texts, attempt, by_rules=by_rules) if has_rules else None
        if is_local(self.spark) and not (writer.has_rules or self._gives(attempt, writer.generated)):
            return None
        require_spark(self.spark, f"of the table: {writer.find_obstacle()}")
        rule = writer.violated_rule()
        if rule is None:
            return None
        is_meant = _is_broken() if by_rules else F.col(_REASON_COLUMN).isNotNull()
        return _select_origins(_with_reasons(self.texts, attempt, writer, rule), is_meant)

    def _gives(self, attempt: BatchWriteSpec, names: frozenset[str]) -> bool:
        """Return whether a record has a field for one of some columns."""
        if not names:
            return False
        # Without the columns, their fields are observed like new ones.
        kept = StructType(tuple(field for field in attempt.schema if field.name not in names))
        seen = self.observe(replace(attempt, schema=kept, is_exhaustive=True))
        keys = [source_key(field) for field in attempt.schema if field.name in names]
        return any(is_same_name(key, each) for key in keys for each in seen.root)

    def prepare_proof(self) -> None:
        """Start Spark if this process cannot read the records again, and ensure that Spark can; see `Batch`."""
        read_again, find_tasks = self.readers.read_again, self.readers.find_tasks
        is_here = is_local(self.spark)
        is_zstd = any(file.uri.lower().endswith(".zst") for file in self.files)
        is_in_doubt = not all(map(is_small, self.files)) if is_here else is_zstd or self.readers.may_refuse
        if read_again is None or not is_in_doubt or (find_tasks is not None and find_tasks() is not None):
            return
        if is_here:
            require_spark(self.spark, "it reads large files of this form again, to verify them")
        else:
            with translate_spark_errors():  # not every Spark has the codec
                texts = read_again()
                if is_zstd:
                    texts.limit(1).toArrow()

    def check_contract(self, contract: object, policy: Policy) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        return check_texts(self.texts, contract, policy)

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        from widen.verification.records import TextSource, build_text_side

        readers = self.readers
        source = TextSource(
            self.spark,
            readers.read_again or (lambda: to_frame(self.texts)),
            readers.find_tasks() if readers.find_tasks is not None else None,
            self.file_values,
        )
        return build_text_side(source, schema, policy)

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        from widen.verification.records import build_row_side

        rows = partial(table.read, self.spark, paths)
        return build_row_side(
            self.spark, rows, table.schema, policy, quarantined_records, table.task_files(self.spark, paths)
        )

    def _with_file_fields(self, attempt: BatchWriteSpec) -> BatchWriteSpec:
        return replace(attempt, file_fields=self.file_fields, max_record_bytes=self.max_record_bytes)

    def _observe_sample(self, attempt: BatchWriteSpec) -> Observation | None:
        """Return the observation of a sample if it leads to the first columns, so that another pass follows."""
        # A new table always takes a second pass, so the first may look at a sample: what that lacks, the second pass
        # finds.
        is_first, find_sample = not (attempt.schema.fields or attempt.is_exhaustive), self.readers.find_sample
        sample = find_sample() if is_first and find_sample and self.readers.ranges is None else None
        if sample is None:
            return None
        seen = merge_notes(collect_notes(sample, replace(attempt, is_exhaustive=True)))
        # A line that is not a record may be a part of one.
        is_lined = not (seen.corrupt or seen.not_objects)
        return seen if is_lined and attempt.next_schema(seen).fields else None

    def _collect_notes(self, attempt: BatchWriteSpec) -> list[TaskNote]:
        ranges = self.readers.ranges
        return collect_notes(self.texts if ranges is None else ranges, attempt)

    def _write_in_tasks(self, attempt: BatchWriteSpec, sink: Sink, writer: TableWriter) -> BatchResult:
        with ExitStack() as undo:
            # A job that fails leaves the files of the tasks that succeeded.
            undo.callback(discard_folder, sink.store, sink.job)
            with translate_spark_errors():
                notes = self._collect_notes(attempt)
            undo.pop_all()
        parts = [part for note in notes for part in note.parts]
        if self.readers.ranges is None:  # Spark may have run a task twice
            discard_folder(sink.store, sink.job, but=[part.path for part in parts])
        seen = merge_notes(notes)
        refused = keep_refused(self.texts, attempt) if attempt.origin is not None and seen.quarantined else None
        is_broken = refused is not None and any(note.refused for note in notes)
        broken = keep_refused(self.texts, attempt, by_rules=True) if is_broken else None
        files, paths = writer.from_parts(parts), {path for note in notes for path in note.deleting}
        deleting = frozenset(file.path for part, file in zip(parts, files, strict=True) if part.path in paths)
        return BatchResult(files, seen, refused, broken=broken, deleting=deleting)


@contextmanager
def _name_largest_file(files: Sequence[SourceFile]) -> Iterator[None]:
    """If Java runs out of memory, raise an error with the largest file: Spark reads a line or a record as a whole."""
    try:
        yield
    except JobFailed as error:
        if not files or not is_out_of_memory(error):
            raise
        file = max(files, key=lambda file: file.size_bytes)
        reason = f"Java ran out of memory; the largest file is {file.path} ({file.size_bytes / 2**20:,.0f} MB)"
        raise unusable_source(", ".join(each.path for each in files[:3]), reason, _SMALLER) from error


_SMALLER = "Give Spark more memory (spark.driver.memory, spark.executor.memory), or split records of more than 50 MB."


# Where records break a contract; the executors look.
#
# Source: docs/guide/gate.md#contract


MAX_LISTED = 100
"""The maximum number of breaches that are listed with their place; all are counted."""

MAX_COUNTED = 1_000
"""The maximum number of different breaches that are counted apart."""

PLACED_TEXT = ("text", "file", "number")
"""The columns of records with their place: the JSON text, the file, and the number in it."""

_RECORD = "the record"


class ContractReport(msgspec.Struct, frozen=True):
    """How a batch keeps a contract.

    Args:
        breaches: The number of breaches, all of them.
        counts: The number of breaches by field and reason; further fields are under an empty name.
        listed: The first breaches, by file and number.
        unchecked: Rules of the contract that records cannot be held to one by one, e.g. ``id: unique``.
    """

    records: int = 0
    breaches: int = 0
    counts: list[tuple[str, str, int]] = []
    listed: list[tuple[str, int, str, str]] = []
    unchecked: list[str] = []

    def merged(self, other: ContractReport) -> ContractReport:
        """Return the report of both."""
        counts: dict[tuple[str, str], int] = {}
        for path, reason, count in (*self.counts, *other.counts):
            key = (path, reason) if (path, reason) in counts or len(counts) < MAX_COUNTED else ("", "")
            counts[key] = counts.get(key, 0) + count
        return ContractReport(
            self.records + other.records,
            self.breaches + other.breaches,
            [(*key, count) for key, count in counts.items()],
            sorted([*self.listed, *other.listed])[:MAX_LISTED],
        )

    def to_value(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "records": self.records,
            "breaches": self.breaches,
            "counts": [{"field": path, "reason": reason, "count": count} for path, reason, count in self.counts],
            "listed": [
                {"file": file, "line": number, "field": path, "reason": reason}
                for file, number, path, reason in self.listed
            ],
            "unchecked": self.unchecked,
        }


def check_texts(texts: RawTexts, contract: object, policy: Policy) -> ContractReport:
    """Hold a raw batch against a contract."""
    find = partial(_breaches_of_text, contract, allows_nan=policy.allows_nan)
    return _collect(texts, partial(_check_batches, find, policy))


def check_contract_rows(rows: Rows, contract: object) -> ContractReport:
    """Hold records with their places against a contract."""
    return _collect(rows, partial(_check_placed, partial(_breaches_of_text, contract)))


def _collect(frame: RawTexts | Rows, task: Any) -> ContractReport:
    with translate_spark_errors():
        notes = frame.mapInArrow(task, f"{NOTE} binary").toArrow()[NOTE].to_pylist()
    reports = (msgspec.json.decode(each, type=ContractReport) for each in notes)
    return reduce(ContractReport.merged, reports, ContractReport())


def _check_batches(find: _FindBreaches, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    report = ContractReport()
    for texts, places, reasons in _staged_records(batches, policy):
        report = report.merged(_check(find, texts, places, reasons))
    yield _to_note(report)


def _staged_records(
    batches: Iterable[pa.RecordBatch], policy: Policy
) -> Iterator[tuple[list[bytes], list[RecordPosition], Sequence[str] | None]]:
    """Yield the texts of records with their places, and texts that are not records with their reasons."""
    positions, stages = RecordPositions(), RecordStages(policy, policy.max_record_bytes)
    envelope = policy.envelope
    envelopes = None
    if envelope is not None:
        envelopes = EnvelopeReader(envelope, allows_nan=policy.allows_nan, dialect=policy.dialect)
    groups = read_record_groups(batches, policy.max_record_bytes, policy.record_path)
    parts = (part for each in groups for part in (each.to_text_groups() if isinstance(each, FieldGroup) else (each,)))
    for part, (texts, places) in ((each, found) for each in parts for found in positions.texts(each)):
        if part.reasons is not None:
            yield texts, places, part.reasons
            continue
        (found, at), refused = stages.apply(part, texts, places)
        if envelopes is not None:
            pairs = zip(found, at, strict=True)
            read = [(*each, place) for text, place in pairs for each in envelopes.read(text)]
            bad = [each for each in read if each[1]]
            yield [text for text, *_ in bad], [place for *_, place in bad], [reason for _, reason, _ in bad]
            found = [text for text, reason, _ in read if not reason]
            at = [place for _, reason, place in read if not reason]
        yield found, at, None
        yield refused.texts, refused.positions, refused.reasons


def _check_placed(find: _FindBreaches, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    report = ContractReport()
    for batch in batches:
        texts, files, numbers = (batch.column(name).to_pylist() for name in PLACED_TEXT)
        places = list(zip(files, numbers, strict=True))
        report = report.merged(_check(find, [text.encode() for text in texts], places))
    yield _to_note(report)


def _to_note(report: ContractReport) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{NOTE: msgspec.json.encode(report)}])


def _check(
    find: _FindBreaches, texts: Sequence[bytes], places: Sequence[RecordPosition], reasons: Sequence[str] | None = None
) -> ContractReport:
    counts: Counter[tuple[str, str]] = Counter()
    listed: list[tuple[str, int, str, str]] = []
    records = 0
    for at, (text, (file, number)) in enumerate(zip(texts, places, strict=True)):
        found = find(text) if reasons is None else [[Breach(_RECORD, f"is {reasons[at]}")]]
        for breaches in found:
            records += 1
            keys = [(breach.path, breach.reason) for breach in breaches]
            counts.update(keys)
            listed += [(file, number, *key) for key in keys[: MAX_LISTED - len(listed)]]
    return ContractReport(records, sum(counts.values()), [(*key, count) for key, count in counts.items()], listed)


def _records(text: bytes, *, allows_nan: bool) -> list[Any]:
    if not text.strip():
        return []
    document = parse_document(text, allows_nan=allows_nan)
    is_list = isinstance(document, list) and all(isinstance(each, dict) for each in document)
    return document if is_list else [document]  # type: ignore[return-value]


def _breaches_of_text(contract: object, text: bytes, *, allows_nan: bool = False) -> Iterator[Iterable[Breach]]:
    """Yield the breaches of each record of a text."""
    return (_breaches(contract, document) for document in _records(text, allows_nan=allows_nan))


_FindBreaches: TypeAlias = Callable[[bytes], Iterable[Iterable[Breach]]]


def _breaches(contract: object, document: Any) -> Iterator[Breach]:
    from widen.json.contract import find_breaches

    if isinstance(document, InvalidJson):
        yield Breach(_RECORD, f"is {not_a_record('JSON', document.reason)}")
    elif not isinstance(document, dict):
        yield Breach(_RECORD, "is not a JSON object")
    else:
        yield from find_breaches(contract, document)


# The rows of a batch, split into rows for the table and rows for the quarantine.
#
# Source: docs/evolution-rules.md#d11, #d12


_TEXT, _FILE, _POSITION, _REASON = ORIGIN_FIELDS
_REASON_COLUMN, _QUARANTINED_RECORDS = "_widen_broken", "quarantined_records"


@dataclass(frozen=True, slots=True)
class BatchResult:
    """The records of a batch after a pass.

    Args:
        seen: What they hold beyond what the columns say.
        quarantined_records: These records, with the columns of `ORIGIN_FIELDS`; None without quarantined records. The
            batch is read again where it is used.
        is_complete: Whether every record is in the files or quarantined, or the pass only observed.
        broken: The quarantined records that violate a rule, which is known only after they are observed; None without
            such records, or if the types of the source decide the columns.
        deleting: The paths of the files whose records delete rows; see `KeyRules.excluded`.
    """

    files: Sequence[WrittenFile]
    seen: Observation
    quarantined_records: Rows | None = None
    is_complete: bool = True
    broken: Rows | None = None
    deleting: frozenset[str] = frozenset()


def keep_refused(texts: RawTexts, spec: BatchWriteSpec, *, by_rules: bool = False) -> Rows:
    """Return the quarantined records of a batch whose other records the tasks have written; see `BatchResult`."""
    task = partial(read_refused_records, spec.without_excluded(), by_rules=by_rules)
    return texts.mapInArrow(task, _ORIGIN_DDL)


_ORIGIN_DDL = "{} string, {} string, {} bigint, {} string".format(*ORIGIN_FIELDS)


def write_fitting(texts: RawTexts, spec: BatchWriteSpec, writer: TableWriter) -> BatchResult:
    """Write the rows that the table can hold; quarantine rows that violate a rule or a fixed column."""
    rule = writer.violated_rule()
    if rule is None and not spec.policy.fixed_columns:
        metrics = _new_metrics()
        # Notes travel in rows of their own. They are observed before the filter drops these rows.
        if writer.defaults:
            spec = replace(spec, missing=MissingColumn(MISSING_FIELDS, writer.defaults))
        rows = _fill(build_rows(texts, spec), spec, writer).observe(metrics, notes_aggregate().alias(NOTES))
        with observable_jobs(rows.sparkSession):
            files = writer.write(rows.where(F.col(NOTE).isNull()).drop(NOTE))
        return BatchResult(files, _to_observation(metrics.get))
    rows, metrics = _with_reasons(texts, spec, writer, rule), _new_metrics()
    counts = (notes_aggregate().alias(NOTES), F.count(_REASON_COLUMN).alias(_QUARANTINED_RECORDS))
    fitting = rows.observe(metrics, *counts).where(F.col(NOTE).isNull() & F.col(_REASON_COLUMN).isNull())
    with observable_jobs(rows.sparkSession):
        files = writer.write(fitting.drop(NOTE, ORIGIN, _REASON_COLUMN))
    seen, quarantined_count = _to_observation(metrics.get), metrics.get[_QUARANTINED_RECORDS]
    broken = quarantined_count - seen.quarantined
    return BatchResult(
        files,
        with_rule_violations(seen, broken),
        _select_origins(rows, F.col(_REASON_COLUMN).isNotNull()) if quarantined_count else None,
        broken=_select_origins(rows, _is_broken()) if broken else None,
    )


def _with_reasons(texts: RawTexts, spec: BatchWriteSpec, writer: TableWriter, rule: Column | None) -> DataFrame:
    """Return rows with their origins, and why they are quarantined in `_REASON_COLUMN`."""
    if writer.defaults:
        spec = replace(spec, missing=MissingColumn(MISSING_FIELDS, writer.defaults))
    # Where only some values violate the rule, the other rows need not carry their texts.
    named = writer.find_text_partitions() if rule is not None else ()
    spec = replace(spec, origin=OriginColumn(ORIGIN, is_for_all=named is None, partition_by=named or ()))
    rows = _fill(build_rows(texts, spec), spec, writer)
    reason = F.col(f"{ORIGIN}.{_REASON}")
    # A row with a note has no data, and would violate most rules.
    broken = F.coalesce(reason, F.lit(None).cast("string") if rule is None else F.when(F.col(NOTE).isNull(), rule))
    return rows.withColumn(_REASON_COLUMN, broken)


def _is_broken() -> Column:
    """Return whether rows of `_with_reasons` violate a rule, and not a fixed column."""
    return F.col(_REASON_COLUMN).isNotNull() & F.col(f"{ORIGIN}.{_REASON}").isNull()


def _select_origins(rows: DataFrame, condition: Column) -> DataFrame:
    return rows.where(condition).select(
        *(F.col(f"{ORIGIN}.{name}").alias(name) for name in (_TEXT, _FILE, _POSITION)),
        F.col(_REASON_COLUMN).alias(_REASON),
    )


def identify_records(records: Rows | None) -> frozenset[bytes]:
    """Return the digests of quarantined records; see `widen.rows.row_builder.record_digest`."""
    if records is None:
        return frozenset()
    with translate_spark_errors():
        found = records.mapInArrow(_digest_origins, "digest binary").toArrow()
    return frozenset(found["digest"].to_pylist()) if found.num_columns else frozenset()


def _digest_origins(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts, files, numbers = (batch.column(name).to_pylist() for name in (_TEXT, _FILE, _POSITION))
        places = zip(files, numbers, strict=True)
        digests = [record_digest(text or "", place) for text, place in zip(texts, places, strict=True)]
        yield pa.RecordBatch.from_arrays([pa.array(digests, pa.binary())], names=["digest"])


def _fill(rows: DataFrame, spec: BatchWriteSpec, writer: TableWriter) -> DataFrame:
    if spec.missing is None:
        return writer.fill(rows, lambda _: F.lit(True))
    missing = F.col(spec.missing.column)
    # The row with the note of a task is not a record.
    return writer.fill(rows, lambda name: F.coalesce(F.array_contains(missing, name), F.lit(False))).drop(
        spec.missing.column
    )


def _fill_in_tasks(spec: BatchWriteSpec, writer: TableWriter) -> BatchWriteSpec:
    """Return a spec whose tasks fill columns that have a default."""
    if not writer.defaults:
        return spec
    origin = spec.origin
    if origin is not None and (origin.rules or not writer.defaults.isdisjoint(origin.partition_by)):
        # A default may break a rule that the null before it does not.
        spec = replace(spec, origin=replace(origin, is_for_all=True))
    return replace(spec, missing=MissingColumn(MISSING_FIELDS, writer.defaults), defaults=writer.constant_defaults())


def _new_metrics() -> Metrics:
    return Metrics(f"widen-{uuid.uuid4().hex}")


def _to_observation(metrics: Mapping[str, str]) -> Observation:
    return merge_notes(split_notes(metrics[NOTES]))


def with_quarantine_time(quarantined_records: Rows, table_version: int) -> Rows:
    """Return quarantined records as rows of the quarantine, with the time and the table version.

    Args:
        table_version: Version of the table that cannot hold them.
    """
    # A literal, because the rows are evaluated more than once and must stay the same.
    now = datetime.now(timezone.utc)
    if isinstance(quarantined_records, LocalFrame):
        return quarantined_records.mapInArrow(partial(_with_time, now, table_version), None)
    return quarantined_records.select(
        *("text", "file", "position", "reason"),
        F.lit(now).alias("kept_at"),
        F.lit(table_version).cast("bigint").alias("table_version"),
    )


def _with_time(now: datetime, version: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count, columns = batch.num_rows, [batch.column(name) for name in ORIGIN_FIELDS]
        times = pa.repeat(pa.scalar(now, pa.timestamp("us", tz="UTC")), count)
        columns += [times, pa.repeat(pa.scalar(version, pa.int64()), count)]
        yield pa.RecordBatch.from_arrays(columns, names=[*ORIGIN_FIELDS, "kept_at", "table_version"])


def quarantined_texts(rows: Rows) -> Rows:
    """Return rows of a quarantine as a raw batch; the file of each is its original file and position.

    Args:
        rows: Rows of the quarantine. Those without a text name files that cannot be read.
    """
    return (rows if isinstance(rows, LocalFrame) else rows.select(*ORIGIN_FIELDS)).mapInArrow(_to_raw_texts, RAW_SCHEMA)


def _to_raw_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield texts with the bytes that they stand for, so that a corrupt text is not escaped once more."""
    for batch in batches:
        rows = batch.filter(pc.is_valid(batch.column("text")))
        texts = [corrupt_text_to_bytes(text) for text in rows.column("text").to_pylist()]
        reasons = rows.column("reason").to_pylist()
        parts = [KEPT_PARTS[stage_of_reason(reason or "")] for reason in reasons]
        arrays = [pa.array(texts, pa.binary()), _to_names(rows), pa.array(parts, pa.int64())]
        arrays.append(pa.repeat(pa.scalar(False), len(texts)))
        yield pa.RecordBatch.from_arrays(arrays, names=[TEXT, FILE, PART, WHOLE])


def _to_names(rows: pa.RecordBatch) -> pa.Array:
    files = pc.fill_null(rows.column("file"), "")
    return pc.binary_join_element_wise(files, pc.fill_null(rows.column("position"), 0).cast(pa.string()), "#")


def quarantined_files(rows: Rows) -> Rows:
    """Return the files that cannot be read, as records that stay in the quarantine; see `with_original_positions`."""
    if isinstance(rows, LocalFrame):
        return rows.mapInArrow(_keep_files, None)
    name = F.concat_ws("#", F.col("file"), F.col("position"))
    number = F.lit(0).cast("bigint")
    return rows.where(F.col("text").isNull()).select("text", name.alias("file"), number.alias("position"), "reason")


def _keep_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = batch.filter(pc.is_null(batch.column("text")))
        numbers = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        columns = [rows.column("text"), _to_names(rows), numbers, rows.column("reason")]
        yield pa.RecordBatch.from_arrays(columns, names=ORIGIN_FIELDS)


def with_original_positions(quarantined_records: Rows) -> Rows:
    """Return quarantined records of such a batch with their original files and positions."""
    if isinstance(quarantined_records, LocalFrame):
        return quarantined_records.mapInArrow(_split_names, None)
    columns = {
        "position": F.regexp_extract(_FILE, _POSITION_PATTERN, 2).cast("bigint"),
        "file": F.regexp_extract(_FILE, _POSITION_PATTERN, 1),
    }
    return quarantined_records.withColumns(columns)


def _split_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = pc.extract_regex(batch.column(_FILE), "(?s)^(?P<file>.*)#(?P<position>[0-9]+)$")
        files, numbers = pc.struct_field(found, "file"), pc.struct_field(found, "position").cast(pa.int64())
        columns = [batch.column(_TEXT), files, numbers, batch.column(_REASON)]
        yield pa.RecordBatch.from_arrays(columns, names=ORIGIN_FIELDS)


# The last # separates: names of files may have others.
_POSITION_PATTERN = "^(.*)#([0-9]+)$"


def texts_of(rows: Rows) -> Rows:
    """Return the texts of rows of a quarantine in a column `TEXT`; files that cannot be read have no text."""
    if isinstance(rows, LocalFrame):
        return rows.mapInArrow(_keep_texts, None)
    return rows.select(TEXT).where(f"{TEXT} IS NOT NULL")


def _keep_texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.drop_null(batch.column(TEXT))], names=[TEXT])


def union_rows(first: Rows | None, second: Rows | None) -> Rows | None:
    """Return the rows of both, where there are some."""
    if first is None or second is None:
        return second if first is None else first
    return cast(Rows, cast(Any, first).unionAll(second))
