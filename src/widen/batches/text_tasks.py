"""One batch on the executors: texts to rows of the table, with an observation of what did not fit.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import field, replace
from functools import partial, reduce
from itertools import accumulate, chain
from sys import maxsize
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.batches.excluded_fields import find_deletes
from widen.batches.field_columns import build_columns
from widen.batches.record_stages import RecordStages, find_row_fields, note_declared
from widen.errors import CheckViolated, StorageError
from widen.evolution.evolve import evolve
from widen.evolution.map_detection import find_excess_keys
from widen.evolution.policy import Policy, mask
from widen.files.arrow_types import count_up, to_arrow_schema
from widen.files.data_writer import PartFile, RowWriter, Sink
from widen.json.document import MAX_RECORD_BYTES, split_records
from widen.json.envelope import EnvelopeReader
from widen.json.field_rules import FileFields
from widen.json.observation import (
    Observation,
    RecordPosition,
    covers,
    merge_observations,
    observation_from_json,
    observation_signature,
)
from widen.json.record_path import FoundTexts, RecordPath
from widen.model.column_path import as_nullable
from widen.model.types import BINARY, DATE, LONG, STRING, TIMESTAMP, ArrayType, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.partition_values import NUL, NULL_TEXTS, has_no_partition, limit_of_partition
from widen.rows.column_assembler import ColumnAssembler
from widen.rows.native_decoder import NativeDecoder
from widen.rows.row_builder import (
    EXCLUDED,
    ORIGIN_FIELDS,
    REASON,
    DecodedChunk,
    MissingColumn,
    OriginColumn,
    RowBuilder,
    RowCondition,
)
from widen.rows.shape import RecordShape
from widen.sources.csv_dialect import FieldGroup
from widen.sources.csv_frames import read_csv_groups
from widen.sources.file_ranges import (
    CSV_RANGES_PART,
    FILE,
    FOUND_PART,
    KEPT_STAGES,
    PART,
    RANGES_PART,
    REFUSED_PART,
    TEXT,
    WHOLE,
    RawTexts,
    TextGroup,
    TextStage,
    found_group,
    read_range_groups,
    read_refused,
    record_too_long,
    split_groups,
)
from widen.spark.errors import find_known_failure
from widen.spark.ship import without_garbage_collection
from widen.spark.spark_types import Column, DataFrame, F, to_spark

ORIGIN = "_widen_origin"
"""The origin column of rows; see `widen.rows.row_builder.OriginColumn`."""

MISSING_FIELDS = "_widen_missing"
"""The column of missing fields of rows; see `widen.rows.row_builder.MissingColumn`."""

NOTE = "_widen_note"
"""The column with the note of a task. Rows with a note have no data."""

NOTES = "notes"
"""Name of the aggregate of all notes."""

ROWS_PER_BATCH, FIELD_ROWS_PER_BATCH = 1_000, 10_000
"""Number of rows in an Arrow batch: of records that are texts, and of those that are columns."""

MAX_BATCH_BYTES = 256 * 2**20
"""Rows are made from the texts at this size: an Arrow column of texts holds at most 2 GiB."""

EARLY_CHECKS = (10, 200, 1_000, 2_000)
"""A task checks its observation after these numbers of rows, and later with every batch. Early checks notice a new
field in the first rows."""

MIN_COUNTED_RECORDS, MIN_COUNTED_BYTES = 200, 2**18
"""From this many records, or bytes of their text, a task counts all values that are new to the table."""

MIN_OBSERVED_RECORDS = 2_000
"""Minimum number of records that a task observes once it knows that the plan will change."""


@dataclass(frozen=True, slots=True)
class BatchWriteSpec:
    """What tasks need to know to make the rows of a batch.

    Args:
        base: Schema before the interval; None if the table does not exist yet.
        prior_observation: Observation of earlier passes, as JSON.
        is_exhaustive: Whether tasks read everything even if they know that the plan will change.
        origin: The column with the texts of quarantined records. Tasks that write the rows leave these records out.
        refused: The records that a rule refuses and no column can take; see `widen.rows.row_builder.record_digest`.
        missing: The column that says which columns with a default a record has no field for.
        defaults: The values of these columns, as arrays of one value, for tasks that write the rows.
    """

    base: StructType | None
    prior_observation: bytes
    schema: StructType
    policy: Policy
    is_exhaustive: bool = False
    sink: Sink | None = None
    origin: OriginColumn | None = None
    missing: MissingColumn | None = None
    defaults: Mapping[str, pa.Array] = field(default_factory=dict)
    file_fields: FileFields | None = None
    refused: frozenset[bytes] = frozenset()
    max_record_bytes: int = MAX_RECORD_BYTES

    @property
    def row_schema(self) -> StructType:
        origin = () if self.origin is None else (Field(self.origin.column, _ORIGIN),)
        missing = () if self.missing is None else (Field(self.missing.column, ArrayType(STRING)),)
        excluded = (Field(EXCLUDED, ArrayType(STRING)),) if self.policy.deletes_by else ()
        return StructType((*self.schema.fields, *origin, *missing, *excluded))

    def without_excluded(self) -> BatchWriteSpec:
        """Return the same for tasks that do not decide which records delete, and need no excluded values."""
        return replace(self, policy=replace(self.policy, deletes_by=()))

    def next_schema(self, seen: Observation) -> StructType:
        """Return the schema of the plan for the prior and a new observation."""
        merged = observation_from_json(self.prior_observation).merged(seen)
        # Only the driver refuses a batch.
        return evolve(self.base, merged, replace(self.policy, max_keys=maxsize)).schema


_ORIGIN = StructType(tuple(map(Field, ORIGIN_FIELDS, (STRING, STRING, LONG, STRING))))


class TaskNote(msgspec.Struct, frozen=True):
    """What a task reports.

    Args:
        seen: Its observation, as JSON.
        refused: How many records fit into no partition; they are also quarantined.
        deleting: The paths of the files whose records delete rows, where columns do not say so.
    """

    seen: msgspec.Raw
    parts: tuple[PartFile, ...] = ()
    refused: int = 0
    deleting: tuple[str, ...] = ()


def build_rows(texts: RawTexts, spec: BatchWriteSpec) -> DataFrame:
    """Return the rows of a batch, with the columns of the table and `NOTE`.

    Returns:
        The columns of ``spec.row_schema`` and `NOTE`; rows have no order. Each task adds one row with only a note.
    """
    schema = StructType((*spec.row_schema.fields, Field(NOTE, BINARY)))
    return texts.mapInArrow(partial(_run_task, spec), to_spark(as_nullable(schema)))


def collect_notes(texts: RawTexts | pa.RecordBatch, spec: BatchWriteSpec) -> list[TaskNote]:
    """Return the notes of the tasks of a batch. Their rows go to the sink of the spec, if it has one.

    Args:
        texts: A raw batch; see `widen.sources.file_ranges`. The task of an Arrow batch runs in this process.
    """
    if isinstance(texts, pa.RecordBatch):
        try:
            batches = list(_run_quiet_task(spec, [texts]))
        except OSError as error:
            fix = "Check the disk and repeat the call."
            failure = StorageError(location="The table", reason=error.strerror or str(error), fix=fix)
            raise find_known_failure(error) or failure from error
        return [msgspec.json.decode(note, type=TaskNote) for rows in batches for note in rows.column(NOTE).to_pylist()]
    notes = texts.mapInArrow(partial(_run_quiet_task, spec), f"{NOTE} binary").toArrow()
    return [msgspec.json.decode(note, type=TaskNote) for note in notes.column(NOTE).to_pylist()]


def notes_aggregate() -> Column:
    """Return the aggregate of the notes of all rows: a string with a note on each line.

    It is a string, because an observation of Spark 4.0 does not return a list.
    """
    return F.array_join(F.collect_list(F.col(NOTE).cast("string")), "\n")


def split_notes(notes: str) -> list[TaskNote]:
    """Return the notes in the result of `notes_aggregate`."""
    return [msgspec.json.decode(note, type=TaskNote) for note in notes.split("\n") if note]


def merge_notes(notes: Iterable[TaskNote]) -> Observation:
    """Return the observation of all tasks."""
    notes = list(notes)
    seen = merge_observations(observation_from_json(bytes(note.seen)) for note in notes)
    return with_rule_violations(seen, sum(note.refused for note in notes))


def with_rule_violations(seen: Observation, broken: int) -> Observation:
    """Return an observation that counts records that violate a rule as quarantined."""
    return msgspec.structs.replace(seen, records=seen.records - broken, quarantined=seen.quarantined + broken)


def _run_task(spec: BatchWriteSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    note = pa.field(NOTE, pa.binary())
    schema = to_arrow_schema(spec.row_schema).append(note)
    with without_garbage_collection():
        task = _TextTask(spec, schema)
        yield from task.run(batches)
        yield pa.RecordBatch.from_pylist([{NOTE: task.note()}], schema=schema)


def _run_quiet_task(spec: BatchWriteSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(spec.row_schema)
    if spec.sink and spec.sink.schema is not None:
        # Use the columns of the files, with their field ids.
        names = spec.sink.schema.names
        schema = pa.schema([*spec.sink.schema, *(each for each in schema if each.name not in names)])
    stored = pa.schema([each for each in schema if each.name not in (EXCLUDED, MISSING_FIELDS)])
    writer = spec.sink.open(stored) if spec.sink else None
    # The rows that delete get files of their own, so that nothing is stored but that they do.
    deleting_writer = spec.sink.open(stored) if spec.sink and spec.policy.deletes_by else None
    refused = 0
    with without_garbage_collection(), ExitStack() as undo:
        task = _TextTask(spec, schema, makes_rows=writer is not None)
        for each in filter(None, (writer, deleting_writer)):
            undo.callback(each.discard)
        for made in task.run(batches):
            rows = batch = _with_defaults(made, spec)
            if spec.origin is not None:
                is_refused = _find_refused(batch, spec.origin)
                refused += _count_broken(batch, spec.origin, is_refused)
                rows = batch.filter(pc.invert(is_refused)).drop_columns([spec.origin.column])
            if deleting_writer:
                is_delete = find_deletes(rows, spec.policy, task.schema)
                rows = rows.drop_columns([EXCLUDED])
                _write_some(deleting_writer, rows.filter(is_delete))
                rows = rows.filter(pc.invert(is_delete))
            if writer:
                _write_some(writer, rows)
        parts: tuple[PartFile, ...] = ()
        deleting: tuple[PartFile, ...] = ()
        if writer and not task.will_replan:
            # Once the note names the files, only the driver deletes them: it knows whether they are committed.
            parts = tuple(writer.close())
            deleting = tuple(deleting_writer.close()) if deleting_writer else ()
            undo.pop_all()
    yield pa.RecordBatch.from_pylist([{NOTE: task.note(parts, refused, deleting)}])


def _with_defaults(rows: pa.RecordBatch, spec: BatchWriteSpec) -> pa.RecordBatch:
    """Return rows with the defaults of the columns that their records have no field for."""
    if spec.missing is None:
        return rows
    lists = rows.column(spec.missing.column)
    names, owners = lists.flatten(), pc.list_parent_indices(lists)
    for name, default in spec.defaults.items():
        at = rows.schema.get_field_index(name)
        chosen = owners.filter(pc.equal(names, name))
        if len(chosen):
            is_missing = pc.is_in(count_up(rows.num_rows, 0, chosen.type), value_set=chosen)
            column = pc.if_else(is_missing, default[0].cast(rows.schema.field(at).type), rows.column(at))
            rows = rows.set_column(at, rows.schema.field(at), column)
    return rows.drop_columns([spec.missing.column])


def _write_some(writer: RowWriter, rows: pa.RecordBatch) -> None:
    if rows.num_rows:
        writer.write(rows)


# Records that go to the quarantine, in tasks that write the rows themselves. Fixed columns are decided with the row,
# and its origin has the reason. Such tables have two more rules: conditions that Arrow evaluates, and that no partition
# holds some texts.


def read_refused_records(
    spec: BatchWriteSpec, batches: Iterable[pa.RecordBatch], *, by_rules: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the quarantined records of a batch, with the columns of `ORIGIN_FIELDS`.

    Args:
        spec: What to write, with an origin column.
        by_rules: Whether to yield only those that violate a rule, and fit the fixed columns.
    """
    origin = spec.origin
    assert origin is not None
    schema = to_arrow_schema(spec.row_schema)
    with without_garbage_collection():
        for made in _TextTask(spec, schema).run(batches):
            batch = _with_defaults(made, spec)
            is_refused = _find_refused(batch, origin)
            if by_rules:
                is_refused = pc.and_(is_refused, pc.is_null(_reasons(batch, origin)))
            rows = batch.filter(is_refused)
            fields = dict(zip(ORIGIN_FIELDS, rows.column(origin.column).flatten(), strict=True))
            broken = [find_broken_partition(row, origin.partition_by) for row in _partition_values(rows, origin)]
            of_rules = [_explain_broken(rows, rule) for rule in origin.rules]
            fields[REASON] = pc.coalesce(fields[REASON], *of_rules, pa.array(broken, pa.string()))
            yield pa.RecordBatch.from_arrays([*fields.values()], names=[*fields])


def _find_refused(rows: pa.RecordBatch, origin: OriginColumn) -> pa.Array:
    """Return which rows are quarantined."""
    return reduce(pc.or_, _broken_masks(rows, origin), pc.is_valid(_reasons(rows, origin)))


def _broken_masks(rows: pa.RecordBatch, origin: OriginColumn) -> list[pa.Array]:
    """Return which rows no partition holds, and which break a rule."""
    masks = [lacks_partition(rows.column(name)) for name in origin.partition_by]
    return masks + [rule.find_broken(rows) for rule in origin.rules]


def _explain_broken(rows: pa.RecordBatch, rule: RowCondition) -> pa.Array:
    """Return why rows break a rule; null for those that do not."""
    is_broken = rule.find_broken(rows)
    reasons = pa.array(list(map(rule.explain, rows.filter(is_broken).to_pylist())), pa.string())
    return pc.replace_with_mask(pa.nulls(rows.num_rows, pa.string()), is_broken, reasons)


def _count_broken(rows: pa.RecordBatch, origin: OriginColumn, is_refused: pa.Array) -> int:
    """Return how many of the refused rows have no reason yet: the observation has counted the others."""
    return int(pc.sum(pc.and_(is_refused, pc.is_null(_reasons(rows, origin)))).as_py() or 0)


def _reasons(rows: pa.RecordBatch, origin: OriginColumn) -> pa.Array:
    return rows.column(origin.column).flatten()[ORIGIN_FIELDS.index(REASON)]


def _partition_values(rows: pa.RecordBatch, origin: OriginColumn) -> list[dict[str, str | None]]:
    return rows.select(origin.partition_by).to_pylist() if origin.partition_by else [{}] * rows.num_rows


def lacks_partition(texts: pa.Array) -> pa.Array:
    """Return a mask of the texts that no partition holds; see `has_no_partition`."""
    is_null_text = pc.is_in(texts, value_set=pa.array(NULL_TEXTS, texts.type))
    return pc.or_(is_null_text, pc.fill_null(pc.match_substring(texts, NUL), False))


def find_broken_partition(row: Mapping[str, str | None], partition_by: Sequence[str]) -> str | None:
    """Return why no partition holds a row, with Spark's message; None if one does."""
    name = next((name for name in partition_by if has_no_partition(row[name])), None)
    if name is None:
        return None
    label, condition = limit_of_partition(name)
    shown = msgspec.json.encode({name: mask(row[name] or "")}).decode()
    return CheckViolated(name=f"The {label}", expression=condition, values=shown).message


class _TextTask:
    """The state of one task: the rows that wait, and whether the plan will change."""

    def __init__(self, spec: BatchWriteSpec, schema: pa.Schema, *, makes_rows: bool = True) -> None:
        self._spec, self._schema, self._makes_rows = spec, schema, makes_rows
        apart = [tuple(path) for path in observation_from_json(spec.prior_observation).apart]
        self._builder = RowBuilder(
            spec.schema, spec.policy, spec.base, spec.origin, spec.file_fields, spec.missing, spec.refused, apart
        )
        self._rows, self._next_check, self._next_schema_rows = 0, EARLY_CHECKS[0], MIN_COUNTED_RECORDS
        self._size_bytes = self._counted_bytes = 0  # of the texts that wait, and of those before
        self._columns: list[pa.RecordBatch] = []  # the rows of the records that needed no text
        self._signature: object = None
        self._positions = RecordPositions()
        self._stages, self._schema_parts = RecordStages(spec.policy, spec.max_record_bytes), 0
        envelope, allows_nan = spec.policy.envelope, spec.policy.allows_nan
        known = find_row_fields(spec.schema)
        self._envelopes = (
            None
            if envelope is None
            else EnvelopeReader(envelope, allows_nan=allows_nan, row_fields=known, dialect=spec.policy.dialect)
        )
        self._prior: Observation | None = None
        self.will_replan = self._has_excess_keys = False
        self._next_plan_rows = 0

    @property
    def is_done(self) -> bool:
        """Whether more records would not improve the next plan much."""
        if self._has_excess_keys:
            return True
        enough = self._builder.observation.records >= MIN_OBSERVED_RECORDS
        return self.will_replan and enough and not self._spec.is_exhaustive

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the records of Arrow batches and yield their rows."""
        path, limit = self._spec.policy.record_path, self._spec.max_record_bytes
        with closing(read_record_groups(batches, limit, path)) as groups:
            for group in groups:
                yield from self._run_group(group)
                # A task that leaves input unread costs its Python worker: Spark starts a new one for the next task.
                if self.is_done:
                    return
        yield from self._drain(is_last=True)

    def _run_group(self, group: FieldGroup | TextGroup) -> Iterator[pa.RecordBatch]:
        if isinstance(group, FieldGroup) and self._builder.takes_columns:
            yield from self._run_fields(group)
            return
        for texts in group.to_text_groups() if isinstance(group, FieldGroup) else (group,):
            for part, positions in self._positions.texts(texts):
                if texts.reasons is not None:
                    yield from self._run_refused(part, positions, texts.reasons)
                else:
                    records, refused = self._stages.apply(texts, part, positions)
                    yield from self._read_declared_times()
                    yield from self._run_records(*records, are_rows=texts.stage is TextStage.RECORD)
                    yield from self._run_refused(*refused)

    def _run_records(
        self, texts: list[bytes], positions: list[RecordPosition], *, are_rows: bool
    ) -> Iterator[pa.RecordBatch]:
        if self._envelopes is not None and not are_rows:
            yield from self._run_envelopes(self._envelopes, texts, positions)
        else:
            yield from self._run_texts(texts, positions)

    def _read_declared_times(self) -> Iterator[pa.RecordBatch]:
        """Read the texts of a field as times from now on, if the last schema part says that they are."""
        if self._stages.schema_parts == self._schema_parts:
            return
        self._schema_parts = self._stages.schema_parts
        yield from self._drain()
        times = [path for path, each in self._stages.declared.items() if each in (DATE, TIMESTAMP)]
        self._builder = self._builder.with_date_fields(times)

    def _run_envelopes(
        self, envelopes: EnvelopeReader, texts: list[bytes], positions: list[RecordPosition]
    ) -> Iterator[pa.RecordBatch]:
        """Run the records in envelopes; from here on they are records like all others."""
        read = [(*found, at) for text, at in zip(texts, positions, strict=True) for found in envelopes.read(text)]
        self._builder.observation.unavailable = dict(sorted(envelopes.unavailable.items()))
        rows = [(text, at) for text, reason, at in read if not reason]
        yield from self._run_texts([text for text, _ in rows], [at for _, at in rows])
        refused = [each for each in read if each[1]]
        places, reasons = [at for _, _, at in refused], [reason for _, reason, _ in refused]
        yield from self._run_refused([text for text, _, _ in refused], places, reasons)

    def _run_texts(self, texts: list[bytes], positions: list[RecordPosition]) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks(len(texts)):
            part = texts[chunk]
            self._builder.add(part, positions[chunk])
            self._size_bytes += sum(map(len, part))
            yield from self._end_chunk(chunk, ROWS_PER_BATCH)
            if self._size_bytes >= MAX_BATCH_BYTES:
                yield from self._drain()

    def _run_refused(
        self, texts: list[bytes], positions: list[RecordPosition], reasons: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks(len(texts)):
            self._builder.add_refused(texts[chunk], positions[chunk], reasons[chunk])
            yield from self._end_chunk(chunk, ROWS_PER_BATCH)

    def _run_fields(self, group: FieldGroup) -> Iterator[pa.RecordBatch]:
        name = position_file(group.file, group.part)
        if group.refused:
            texts, places = [each.text for each in group.refused], [(name, each.line) for each in group.refused]
            yield from self._run_refused(texts, places, [each.reason for each in group.refused])
        for chunk in self._chunks(group.records):
            part = group.slice(chunk.start, chunk.stop - chunk.start)
            columns = build_columns(self._builder, part, name, self._schema)
            positions = [(name, part.lines[at]) for at in columns.exact.to_pylist()]
            self._builder.add(part.take(columns.exact).to_json_texts(), positions)
            self._columns.append(columns.rows)
            yield from self._end_chunk(chunk, FIELD_ROWS_PER_BATCH)

    def _chunks(self, size: int) -> Iterator[slice]:
        """Yield parts of records, each up to the next check, until nothing is left or nothing more is needed."""
        start = 0
        while start < size and not self.is_done:
            stop = min(size, start + self._next_check - self._rows)
            yield slice(start, stop)
            start = stop

    def _end_chunk(self, chunk: slice, rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        """Count the records of a chunk, and yield their rows if it is time for a check."""
        self._rows += chunk.stop - chunk.start
        if self._rows == self._next_check:
            early = (check for check in EARLY_CHECKS if check > self._rows)
            self._next_check = next(early, self._rows + rows_per_batch)
            yield from self._drain()

    @property
    def schema(self) -> StructType:
        """The columns of the table that the rows have."""
        return self._builder.schema

    def note(self, parts: tuple[PartFile, ...] = (), refused: int = 0, deleting: tuple[PartFile, ...] = ()) -> bytes:
        """Return the note of the task.

        Args:
            deleting: Further files, whose records delete rows.
        """
        seen, paths = msgspec.Raw(self._builder.observation.to_json()), tuple(part.path for part in deleting)
        return msgspec.json.encode(TaskNote(seen, (*parts, *deleting), refused, paths))

    def _drain(self, *, is_last: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the texts so far, unless what they hold changes the plan: then another pass makes the
        rows, and this one goes on with the schema that is known so far, so that it reads only what is new exactly.
        """
        makes_rows = self._makes_rows and not self.will_replan
        batches = [*self._columns, *drain_arrow_batches(self._builder, self._schema)] if makes_rows else []
        self._columns, self._size_bytes, self._counted_bytes = [], 0, self._counted_bytes + self._size_bytes
        if self._counted_bytes >= MIN_COUNTED_BYTES and self._next_schema_rows == MIN_COUNTED_RECORDS:
            self._next_schema_rows = self._rows
        if not makes_rows:
            observe_chunk(self._builder)
        note_declared(self._builder.observation, self._builder.schema, self._stages.declared)
        signature = observation_signature(self._builder.observation)
        if signature != self._signature:
            self._signature = signature
            self._builder.adapt()
            self._adapt_schema(is_last=is_last)
        if not self.will_replan:
            yield from batches

    def _adapt_schema(self, *, is_last: bool) -> None:
        """Find out whether the plan changes. If so, go on with the schema that is known so far: rows are not needed,
        but with it only records that bring more are read exactly.
        """
        can_adapt = not self._spec.policy.detects_maps  # maps are detected by the counts of keys
        if self.will_replan and (not can_adapt or self._rows < self._next_schema_rows):
            self._signature = None  # the next check looks again
            return
        if not self.will_replan and self._rows < self._next_plan_rows and not is_last:
            self._signature = None
            return
        if can_adapt and not self.will_replan and self._is_known():
            return
        if find_excess_keys(self._builder.observation.root, self._spec.policy) is not None:
            self.will_replan = self._has_excess_keys = True  # the driver refuses the batch
            return
        schema = self._spec.next_schema(self._builder.observation)
        self.will_replan = self.will_replan or schema != self._spec.schema
        # Where every record has new keys, but there is no room for columns, each check would plan again.
        self._next_plan_rows = 2 * self._rows
        if not self.will_replan or not can_adapt:
            return
        if self._rows < self._next_schema_rows:
            self._signature = None
        elif schema != self._builder.schema:
            self._next_schema_rows = 2 * self._rows  # a source with new keys in every record must not plan all the time
            self._builder = self._builder.with_schema(schema)
            self._schema = to_arrow_schema(replace(self._spec, schema=schema).row_schema)

    def _is_known(self) -> bool:
        """Return whether earlier passes saw everything, so that the plan is the same."""
        if self._prior is None:
            self._prior = observation_from_json(self._spec.prior_observation)
        prior, seen = self._prior, self._builder.observation
        is_corrupt = seen.corrupt and not prior.corrupt
        return (
            not is_corrupt
            and all(path in prior.apart for path in seen.apart)
            and covers(prior.root, seen.root)
            and covers(prior.quarantined_records, seen.quarantined_records)
        )


class RecordPositions:
    """Numbers the texts of a task by their file."""

    def __init__(self) -> None:
        self._place = ("", 0, 0)

    def texts(self, group: TextGroup) -> Iterator[tuple[list[bytes], list[RecordPosition]]]:
        """Yield the JSON texts of a group with their positions.

        In a later split of a large file the position names the byte where the split begins.
        """
        if group.lines is not None:
            name = position_file(group.file, group.part)
            yield group.texts, [(name, line) for line in group.lines]
            return
        if not group.is_whole:
            yield group.texts, self._next(group.file, group.part, len(group.texts))
            return
        for content in group.texts:
            values = list(split_records(content))
            yield values, [(group.file, number) for number in range(1, len(values) + 1)]

    def _next(self, file: str, part: int, lines: int) -> list[RecordPosition]:
        name, before = self.advance(file, part, lines)
        return [(name, line) for line in range(before + 1, before + lines + 1)]

    def advance(self, file: str, part: int, lines: int) -> RecordPosition:
        """Count the next texts of a file; return its name in positions, and the number of the text before them."""
        last_file, last_part, number = self._place
        number = number if (file, part) == (last_file, last_part) else 0
        self._place = (file, part, number + lines)
        return position_file(file, part), number


def position_file(file: str, part: int) -> str:
    """Return the file in the positions of its records.

    Args:
        part: The byte where the split of a large file begins.
    """
    return f"{file} from byte {part}" if part else file


# Decoded records as Arrow columns, without rows in between: nothing converts a value that is already native.
#
# Source: the Arrow format


def drain_arrow_batches(builder: RowBuilder, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all texts added since the last call, decoded records first.

    If some decoded records turn out to need the exact path, the others are assembled again without them.

    Args:
        builder: The builder with the texts; afterwards its observation has everything that they hold beyond the
            columns.
    """
    if builder.native is not None:
        yield from _decode_natively(builder, builder.native, schema)
        return
    chunk = builder.pop_chunk()
    while chunk.records:
        assembler = ColumnAssembler(chunk.positions)
        # Making the columns is what finds the rejected records, so they are known only afterwards.
        batch = pa.RecordBatch.from_arrays(_root_arrays(assembler, builder, chunk, schema), schema=schema)
        if not assembler.rejected:
            yield batch
        chunk = builder.finish_chunk(chunk, assembler)
    rows = builder.pop_rows()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _decode_natively(builder: RowBuilder, native: NativeDecoder, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all texts added since the last call, with the kernel."""
    batch = native.decode(schema)
    builder.finish_native(batch)
    if batch.rows is not None:
        if not builder.has_own_columns:
            yield batch.rows
        else:
            arrays = _with_own_columns(builder, list(batch.rows.columns), schema, *batch.kept())
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    rows = builder.pop_rows()
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def observe_chunk(builder: RowBuilder) -> None:
    """Observe all texts added since the last call like `drain_arrow_batches`, but make no rows of them."""
    if builder.native is not None:
        builder.finish_native(builder.native.decode(make_schema=lambda: to_arrow_schema(builder.schema)))
        builder.pop_rows()
        return
    chunk = builder.pop_chunk()
    while chunk.records:
        assembler = ColumnAssembler(chunk.positions)
        assembler.observe(chunk.shape, chunk.records, range(len(chunk.records)))
        chunk = builder.finish_chunk(chunk, assembler)
    builder.pop_rows()


def _root_arrays(
    assembler: ColumnAssembler, builder: RowBuilder, chunk: DecodedChunk, schema: pa.Schema
) -> list[pa.Array]:
    """Return the arrays of the columns, and of the columns that are not of the table if the rows have some."""
    arrays = _struct(assembler, chunk.shape, chunk.records, list(schema))
    return _with_own_columns(builder, arrays, schema, chunk.texts, chunk.positions)


def _with_own_columns(
    builder: RowBuilder,
    arrays: list[pa.Array],
    schema: pa.Schema,
    texts: Sequence[bytes],
    positions: Sequence[RecordPosition],
) -> list[pa.Array]:
    """Return columns with the origin of their records and with their missing fields, if the rows have these columns."""
    if builder.missing is not None:
        at = schema.get_field_index(builder.missing.column)
        arrays[at] = pa.array(builder.missing_cells(texts, positions), schema.field(at).type)
    if builder.reads_excluded:
        at = schema.get_field_index(EXCLUDED)
        arrays[at] = pa.array(builder.excluded_cells(texts), schema.field(at).type)
    if builder.origin is not None:
        at = schema.get_field_index(builder.origin.column)
        is_wanted = _has_origin(builder.origin, pa.RecordBatch.from_arrays(arrays, schema=schema))
        if any(is_wanted):
            arrays[at] = pa.array(builder.origin_cells(texts, positions, is_wanted), schema.field(at).type)
    return arrays


def _has_origin(origin: OriginColumn, rows: pa.RecordBatch) -> list[bool]:
    """Tell for each row whether it has the origin column."""
    if origin.is_for_all:
        return [True] * rows.num_rows
    masks = _broken_masks(rows, origin)
    return reduce(pc.or_, masks).to_pylist() if masks else []


def _struct(
    assembler: ColumnAssembler,
    shape: RecordShape,
    records: Sequence[Any],
    fields: Sequence[pa.Field],
    roots: Sequence[int] | None = None,
) -> list[pa.Array]:
    """Return the arrays of the fields of a struct whose records are not null.

    Args:
        roots: For each record, the index of the record of the chunk that contains it; None if these are the records of
            the chunk, or if nothing below needs routing.
    """
    values = assembler.columns(shape, records, range(len(records)) if roots is None else roots)
    shapes = {item.name: item.shape for item in shape.single_columns}
    for item in shape.multi_column_fields:
        shapes.update(item.shapes)
    return [
        _array(assembler, shapes.get(field.name), values[field.name], field.type, roots)
        if field.name in values
        else pa.nulls(len(records), field.type)
        for field in fields
    ]


def _array(
    assembler: ColumnAssembler,
    shape: RecordShape | None,
    values: list[Any],
    data_type: pa.DataType,
    roots: Sequence[int] | None,
) -> pa.Array:
    if shape is None:
        return _leaves(values, data_type)
    if pa.types.is_list(data_type):
        return _lists(assembler, shape, values, data_type, roots)
    return _records(assembler, shape, values, data_type, roots)


def _leaves(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return the array of values without records. Most columns have a value in each record, so the others are only
    looked for where Arrow finds one that it cannot take.
    """
    if _has_maps(data_type):
        values = list(map(_pairs, values))
    try:
        return pa.array(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array(_without_unset(values), data_type)


def _without_unset(values: list[Any]) -> list[Any]:
    return [None if value is msgspec.UNSET else value for value in values]


def _has_maps(data_type: pa.DataType) -> bool:
    return pa.types.is_map(data_type) or (pa.types.is_list(data_type) and _has_maps(data_type.value_type))


def _pairs(value: Any) -> Any:
    """Return a value with every map in it as pairs, which pyarrow needs."""
    if isinstance(value, dict):
        return list(value.items())
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _lists(
    assembler: ColumnAssembler,
    shape: RecordShape,
    values: list[Any],
    data_type: pa.ListType,
    roots: Sequence[int] | None,
) -> pa.Array:
    present = values if set(map(type, values)) == {list} else [items for items in values if isinstance(items, list)]
    inner = list(chain.from_iterable(present))
    inner_roots = None
    if shape.needs_routing:
        lists = zip(range(len(values)) if roots is None else roots, values, strict=True)
        inner_roots = [root for root, items in lists if isinstance(items, list) for _ in items]
    array = _array(assembler, shape, inner, data_type.value_type, inner_roots)
    return pa.ListArray.from_arrays(_offsets(values, present), array, type=data_type)


def _offsets(values: list[Any], present: list[list[Any]]) -> pa.Array:
    """Return where each list begins, null for a value that is not a list, and where the last one ends."""
    ends = accumulate(map(len, present), initial=0)
    if len(present) == len(values):
        return pa.array(ends, pa.int32(), size=len(values) + 1)
    ends_of_lists = list(ends)
    places = iter(ends_of_lists)
    starts = [next(places) if isinstance(items, list) else None for items in values]
    return pa.array([*starts, ends_of_lists[-1]], pa.int32())


def _records(
    assembler: ColumnAssembler,
    shape: RecordShape,
    values: list[Any],
    data_type: pa.StructType,
    roots: Sequence[int] | None,
) -> pa.Array:
    fields, python_types = list(data_type), set(map(type, values))
    if shape.struct not in python_types:
        return pa.nulls(len(values), data_type)
    if len(python_types) == 1:
        return pa.StructArray.from_arrays(_struct(assembler, shape, values, fields, roots), fields=fields)
    places = [at for at, record in enumerate(values) if type(record) is shape.struct]
    present, present_roots = [values[at] for at in places], places if roots is None else [roots[at] for at in places]
    arrays = _struct(assembler, shape, present, fields, present_roots)
    array = pa.StructArray.from_arrays(arrays, fields=fields)
    indices: list[int | None] = [None] * len(values)
    for index, at in enumerate(places):
        indices[at] = index
    # Arrow takes a null index for a null record.
    return array.take(pa.array(indices, pa.int64()))


# The records of a raw batch in a task, whether its rows are texts or ranges of files.


def read_record_groups(
    batches: Iterable[pa.RecordBatch], limit: int = MAX_RECORD_BYTES, path: RecordPath | None = None
) -> Generator[FieldGroup | TextGroup]:
    """Yield the records of a raw batch; ranges are read from their files.

    Below a path, a group has the documents, or the records if a document is too large to be held.

    A caller that needs no more records closes the generator. Then the other rows with ranges are still taken from
    Spark: it ends a Python worker that leaves input behind, and the next task would wait for another one to start.
    """
    # The readers of the texts of a row, by the value of `PART`; all other rows have a text or a whole file.
    readers: Mapping[int, Callable[[bytes], Iterator[FieldGroup | TextGroup]]] = {
        RANGES_PART: partial(read_range_groups, path=path),
        CSV_RANGES_PART: read_csv_groups,
    }
    rest = iter(batches)
    for batch in rest:
        _ensure_short(batch, limit, path)
        for group in split_groups(batch):
            if group.part == REFUSED_PART:
                for each in map(read_refused, group.texts):
                    yield TextGroup(group.file, each.part, False, each.texts, each.lines, each.reasons)
                continue
            if group.part in KEPT_STAGES:
                yield replace(group, part=0, stage=KEPT_STAGES[group.part])
                continue
            if group.part == FOUND_PART:
                for text in group.texts:
                    yield found_group(group.file, msgspec.msgpack.decode(text, type=FoundTexts))
                continue
            reader = readers.get(group.part)
            if reader is None:
                yield group
                continue
            try:
                for text in group.texts:
                    yield from reader(text)
            except GeneratorExit:
                deque(rest, maxlen=0)
                raise


def _ensure_short(batch: pa.RecordBatch, limit: int, path: RecordPath | None) -> None:
    """Check the texts that Spark has read: a record or a line. A whole file is checked when it is split."""
    texts = batch.column(TEXT)
    if texts.nbytes <= limit:
        return
    sizes = zip(*(batch.column(name).to_pylist() for name in (FILE, PART, WHOLE)), strict=True)
    for number, (text, (file, part, is_whole)) in enumerate(zip(texts, sizes, strict=True), 1):
        size = len(text.as_buffer() or b"")
        if part < 0 or size <= limit or (is_whole and path is not None):
            continue
        if not is_whole or any(len(each) > limit for each in split_records(text.as_py())):
            raise record_too_long(file, None if not is_whole else 0, limit, line=None if is_whole else number)
