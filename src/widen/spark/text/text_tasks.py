"""One batch on the executors: texts to rows of the table, with an observation of what did not fit.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from sys import maxsize

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.errors import StorageError
from widen.model.column_path import as_nullable
from widen.model.types import BINARY, LONG, STRING, Field, StructType
from widen.observe.file_fields import FileFields
from widen.observe.json_split import split_records
from widen.observe.json_stream_split import MAX_RECORD_BYTES
from widen.observe.observation import Observation, RecordPosition, covers, merge_observations, observation_from_json
from widen.observe.observe_document import observation_signature
from widen.planning.evolution.evolve import evolve
from widen.planning.evolution.map_detection import find_excess_keys
from widen.planning.evolution.policy import Policy
from widen.routing.native.row_builder import ORIGIN_FIELDS, OriginColumn, RowBuilder
from widen.spark.arrow_types import to_arrow_schema
from widen.spark.source.csv_rows import FieldGroup
from widen.spark.source.file_ranges import RawTexts
from widen.spark.source.raw_batch import TextGroup
from widen.spark.source.record_groups import read_record_groups
from widen.spark.spark_errors import find_known_failure
from widen.spark.spark_types import to_spark
from widen.spark.text.arrow_columns import drain_arrow_batches, observe_chunk
from widen.spark.text.field_columns import build_columns
from widen.spark.worker_memory import without_garbage_collection
from widen.spark.write.part_file import PartFile, PartSink, PartWriter

NOTE = "_widen_note"
"""The column with the note of a task. Rows with a note have no data."""

NOTES = "notes"
"""Name of the aggregate of all notes."""

ROWS_PER_BATCH, FIELD_ROWS_PER_BATCH = 1_000, 10_000
"""Number of rows in an Arrow batch: of records that are texts, and of those that are columns."""

MAX_BATCH_BYTES = 256 * 2**20
"""Size of the texts from which on their rows are made: an Arrow column of texts holds at most 2 GiB."""

EARLY_CHECKS = (10, 200, 1_000, 2_000)
"""Row counts after which a task checks its observation, before it does so with every batch. Early checks notice a new
field in the first rows."""

MIN_COUNTED_RECORDS = 200
"""Minimum number of records of which a task counts all values that are new to the table."""

MIN_OBSERVED_RECORDS = 2_000
"""Minimum number of records that a task observes once it knows that the plan will change."""


@dataclass(frozen=True, slots=True)
class BatchWriteSpec:
    """What tasks need to know to make the rows of a batch.

    Args:
        base: Schema before the interval; None if the table does not exist yet.
        prior_observation: Observation of earlier passes, as JSON.
        schema: Schema of the rows: that of the plan for the prior observation.
        policy: Policy of the ingestion, to plan again.
        is_exhaustive: Whether tasks read everything even if they know that the plan will change.
        sink: Where tasks write the rows; None if they return them.
    """

    base: StructType | None
    prior_observation: bytes
    schema: StructType
    policy: Policy
    is_exhaustive: bool = False
    sink: PartSink | None = None
    origin: OriginColumn | None = None
    file_fields: FileFields | None = None
    max_record_bytes: int = MAX_RECORD_BYTES

    @property
    def row_schema(self) -> StructType:
        """The schema of the rows that tasks make."""
        origin = () if self.origin is None else (Field(self.origin.column, _ORIGIN),)
        return StructType((*self.schema.fields, *origin))

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
    """

    seen: msgspec.Raw
    parts: tuple[PartFile, ...] = ()


def build_rows(texts: RawTexts, spec: BatchWriteSpec) -> DataFrame:
    """Return the rows of a batch, with the columns of the table and `NOTE`.

    Args:
        texts: A raw batch; see `widen.spark.source.raw_batch`.

    Returns:
        The columns of ``spec.row_schema`` and `NOTE`; rows have no order. Each task adds one row with only a note.
    """
    schema = StructType((*spec.row_schema.fields, Field(NOTE, BINARY)))
    return texts.mapInArrow(partial(_run_task, spec), to_spark(as_nullable(schema)))


def collect_notes(texts: RawTexts | pa.RecordBatch, spec: BatchWriteSpec) -> list[TaskNote]:
    """Return the notes of the tasks of a batch. Their rows go to the sink of the spec, if it has one.

    Args:
        texts: A raw batch; see `widen.spark.source.raw_batch`. The task of an Arrow batch runs in this process.
    """
    if isinstance(texts, pa.RecordBatch):
        try:
            batches = list(_run_quiet_task(spec, [texts]))
        except OSError as error:
            fix = "Check the disk and repeat the call."
            failure = StorageError(location="The table", reason=error.strerror or str(error), fix=fix)
            raise find_known_failure(error) or failure from error
        return [msgspec.json.decode(note, type=TaskNote) for rows in batches for note in rows.column(NOTE).to_pylist()]
    notes = texts.mapInArrow(partial(_run_quiet_task, spec), to_spark(StructType((Field(NOTE, BINARY),)))).toArrow()
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
    return merge_observations(observation_from_json(bytes(note.seen)) for note in notes)


def _run_task(spec: BatchWriteSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    note = pa.field(NOTE, pa.binary())
    schema = to_arrow_schema(spec.row_schema).append(note)
    with without_garbage_collection():
        task = _TextTask(spec, schema)
        yield from task.run(batches)
        yield pa.RecordBatch.from_pylist([{NOTE: task.note()}], schema=schema)


def _run_quiet_task(spec: BatchWriteSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(spec.schema)
    if spec.sink and spec.sink.schema is not None:
        schema = spec.sink.schema
    writer = PartWriter(spec.sink, schema) if spec.sink else None
    with without_garbage_collection(), ExitStack() as undo:
        task = _TextTask(spec, schema, makes_rows=writer is not None)
        if writer:
            undo.callback(writer.discard)
        for batch in task.run(batches):
            if writer:
                writer.write(batch)
        if writer and not task.will_replan:
            undo.pop_all()
            parts = tuple(writer.close())
        else:
            parts = ()
    yield pa.RecordBatch.from_pylist([{NOTE: task.note(parts)}])


class _TextTask:
    """The state of one task: the rows that wait, and whether the plan will change."""

    def __init__(self, spec: BatchWriteSpec, schema: pa.Schema, *, makes_rows: bool = True) -> None:
        self._spec, self._schema, self._makes_rows = spec, schema, makes_rows
        self._builder = RowBuilder(spec.schema, spec.policy, spec.base, spec.origin, spec.file_fields)
        self._rows, self._next_check, self._next_schema_rows = 0, EARLY_CHECKS[0], MIN_COUNTED_RECORDS
        self._size_bytes = 0  # of the texts that wait
        self._columns: list[pa.RecordBatch] = []  # the rows of the records that needed no text
        self._signature: object = None
        self._positions = RecordPositions()
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
        with closing(read_record_groups(batches, self._spec.max_record_bytes)) as groups:
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
                if texts.reasons is None:
                    yield from self._run_texts(part, positions)
                else:
                    yield from self._run_refused(part, positions, texts.reasons)

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

    def note(self, parts: tuple[PartFile, ...] = ()) -> bytes:
        """Return the note of the task."""
        return msgspec.json.encode(TaskNote(msgspec.Raw(self._builder.observation.to_json()), parts))

    def _drain(self, *, is_last: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the texts so far, unless what they hold changes the plan: then another pass makes the
        rows, and this one goes on with the schema that is known so far, so that it reads only what is new exactly.
        """
        makes_rows = self._makes_rows and not self.will_replan
        batches = [*self._columns, *drain_arrow_batches(self._builder, self._schema)] if makes_rows else []
        self._columns, self._size_bytes = [], 0
        if not makes_rows:
            observe_chunk(self._builder)
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
        return not is_corrupt and covers(prior.root, seen.root) and covers(prior.kept_out, seen.kept_out)


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
