"""One batch on the executors: raw texts to rows of the table, with what did not fit as an observation.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.column_path import as_nullable
from widen.model.types import BINARY, LONG, STRING, Field, StructType
from widen.observe.file_fields import FileFields
from widen.observe.json_split import split_records
from widen.observe.observation import Observation, RecordPosition, merge_observations, observation_from_json
from widen.observe.observe_document import observation_signature
from widen.planning.evolution.evolve import evolve
from widen.planning.evolution.policy import Policy
from widen.routing.native.row_builder import ORIGIN_FIELDS, ROUNDING_PATTERN, OriginColumn, RowBuilder
from widen.spark.arrow_types import to_arrow_schema
from widen.spark.source.json_texts import FILE, PART, TEXT, WHOLE
from widen.spark.spark_types import to_spark
from widen.spark.text.arrow_columns import drain_arrow_batches
from widen.spark.write.part_file import PartFile, PartSink, PartWriter

NOTE = "_widen_note"
"""The column that carries what a task has to say; its rows are no data."""

NOTES = "notes"
"""What the aggregate of all notes is called."""

ROWS_PER_BATCH = 5_000
"""How many rows go to Spark at once."""

EARLY_LOOKS = (10, 100, 1_000, 2_000)
"""After how many rows a task looks at what it has seen, before it does so with every batch."""

ENOUGH_RECORDS = 2_000
"""How many records a task looks at when it knows that the plan will change."""


@dataclass(frozen=True, slots=True)
class BatchWriteSpec:
    """What the tasks of one attempt to write a batch know.

    Args:
        base: The schema before the interval; None where there is no table yet.
        known: What earlier attempts have observed, as JSON.
        schema: The schema that the rows are made for: that of the plan for what is known.
        policy: How the plan was made, to make it again.
        is_patient: Whether to look at everything even if the plan is known to change.
        sink: Where the tasks write the rows; None if they do not.
        origin: The column that says what rows are made of, if there is to be one.
        file_fields: Which fields the records get from their files.
    """

    base: StructType | None
    known: bytes
    schema: StructType
    policy: Policy
    is_patient: bool = False
    sink: PartSink | None = None
    origin: OriginColumn | None = None
    file_fields: FileFields | None = None

    @property
    def row(self) -> StructType:
        """The columns of the rows that tasks make."""
        told = () if self.origin is None else (Field(self.origin.column, _ORIGIN),)
        return StructType((*self.schema.fields, *told))

    def is_covered(self, seen: Observation) -> bool:
        """Tell whether the plan for all that is known and seen leads to the schema of this attempt."""
        together = observation_from_json(self.known).merged(seen)
        return evolve(self.base, together, self.policy).schema == self.schema


_ORIGIN = StructType(tuple(map(Field, ORIGIN_FIELDS, (STRING, STRING, LONG, STRING))))


class TaskNote(msgspec.Struct, frozen=True):
    """What a task has to say.

    Args:
        seen: What it observed, as JSON.
        parts: The files that it wrote.
    """

    seen: msgspec.Raw
    parts: tuple[PartFile, ...] = ()


def build_rows(texts: DataFrame, attempt: BatchWriteSpec) -> DataFrame:
    """Return the rows of a batch, with the column `NOTE` beside those of the table.

    Args:
        texts: A raw batch, as `widen.spark.source.json_texts` makes it.
        attempt: What the rows are made for.

    Returns:
        The columns of ``attempt.row`` and `NOTE`, in no order. Each task gives one row that has a note and
        nothing else.
    """
    schema = StructType((*attempt.row.fields, Field(NOTE, BINARY)))
    return texts.mapInArrow(partial(_run_task, attempt), to_spark(as_nullable(schema)))


def collect_notes(texts: DataFrame, attempt: BatchWriteSpec) -> list[TaskNote]:
    """Return what the tasks have to say of a batch; their rows go to the sink of the attempt, if it has one.

    Args:
        texts: A raw batch, as `widen.spark.source.json_texts` makes it.
        attempt: What the rows are made for.
    """
    found = texts.mapInArrow(partial(_run_quiet_task, attempt), to_spark(StructType((Field(NOTE, BINARY),)))).collect()
    return [msgspec.json.decode(row[NOTE], type=TaskNote) for row in found]


def notes_aggregate() -> Column:
    """Return the aggregate that collects the notes among rows: a text with a note on each line.

    A text, for Spark 4.0 gives no list back.
    """
    return F.array_join(F.collect_list(F.col(NOTE).cast("string")), "\n")


def split_notes(found: str) -> list[TaskNote]:
    """Return the notes that an aggregate has collected."""
    return [msgspec.json.decode(note, type=TaskNote) for note in found.split("\n") if note]


def merge_notes(found: Iterable[TaskNote]) -> Observation:
    """Return what all the tasks have observed together."""
    return merge_observations(observation_from_json(bytes(note.seen)) for note in found)


def _run_task(attempt: BatchWriteSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    note = pa.field(NOTE, pa.binary())
    schema = to_arrow_schema(attempt.row).append(note)
    with _without_garbage_collection():
        task = _TextTask(attempt, schema)
        yield from task.run(batches)
        yield pa.RecordBatch.from_pylist([{NOTE: task.note()}], schema=schema)


def _run_quiet_task(attempt: BatchWriteSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(attempt.schema)
    writer = PartWriter(attempt.sink, schema) if attempt.sink else None
    with _without_garbage_collection(), ExitStack() as undo:
        task = _TextTask(attempt, schema)
        if writer:
            undo.callback(writer.discard)
        for batch in task.run(batches):
            if writer:
                writer.write(batch)
        if writer and not task.is_doomed:
            undo.pop_all()
            parts = tuple(writer.close())
        else:
            parts = ()
    yield pa.RecordBatch.from_pylist([{NOTE: task.note(parts)}])


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Rows hold no cycles, and looking for some among them takes longer than making them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _TextTask:
    """The state of one task: rows waiting to be handed on, and whether the plan is known to change."""

    def __init__(self, attempt: BatchWriteSpec, schema: pa.Schema) -> None:
        self._attempt, self._schema = attempt, schema
        self._builder = RowBuilder(attempt.schema, attempt.policy, attempt.base, attempt.origin, attempt.file_fields)
        self._taken, self._look = 0, EARLY_LOOKS[0]
        self._seen: object = None
        self._positions = RecordPositions()
        self.is_doomed = False

    @property
    def is_done(self) -> bool:
        """Whether going on would teach nothing."""
        enough = self._builder.observation.records >= ENOUGH_RECORDS
        return self.is_doomed and enough and not self._attempt.is_patient

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take the texts of Arrow batches; yield their rows."""
        for texts, places, may_round in chain.from_iterable(map(self._positions.texts, batches)):
            start = 0
            while start < len(texts):
                chunk = slice(start, start + self._look - self._taken)
                start = min(chunk.stop, len(texts))
                self._builder.add(texts[chunk], places[chunk], may_round[chunk])
                self._taken += start - chunk.start
                if self._taken == self._look:
                    self._look = next(
                        (look for look in EARLY_LOOKS if look > self._taken), self._taken + ROWS_PER_BATCH
                    )
                    yield from self._drained()
                    if self.is_done:
                        return
        yield from self._drained()

    def note(self, parts: tuple[PartFile, ...] = ()) -> bytes:
        """Return what the task has to say."""
        return msgspec.json.encode(TaskNote(msgspec.Raw(self._builder.observation.to_json()), parts))

    def _drained(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of what was taken, and look whether what they hold changes the plan."""
        batches = list(drain_arrow_batches(self._builder, self._schema))
        seen = observation_signature(self._builder.observation)
        if seen != self._seen:
            self._seen = seen
            self._builder.adapt()
            self.is_doomed = self.is_doomed or not self._attempt.is_covered(self._builder.observation)
        if not self.is_doomed:
            yield from batches


class RecordPositions:
    """Numbers the texts of a task by the file that they are from."""

    def __init__(self) -> None:
        self._place = ("", 0, 0)

    def texts(self, batch: pa.RecordBatch) -> Iterator[tuple[list[bytes], list[RecordPosition], list[bool]]]:
        """Yield JSON texts of an Arrow batch, where each stands, and whether decoding might round a number in it.

        In a later part of a large file the byte where the part begins is told with the file.

        Args:
            batch: Columns `TEXT`, `FILE`, `PART` and `WHOLE`.
        """
        may_round = pc.match_substring_regex(batch.column(TEXT), ROUNDING_PATTERN).to_pylist()
        texts = batch.column(TEXT).to_pylist()
        end = 0
        for (file, part, is_whole), rows in _runs(batch):
            start, end = end, end + rows
            if is_whole:
                for row in range(start, end):
                    values = list(split_records(texts[row]))
                    places = [(file, number) for number in range(1, len(values) + 1)]
                    yield values, places, [may_round[row]] * len(values)
            else:
                yield texts[start:end], self._next(file, part, end - start), may_round[start:end]

    def _next(self, file: str, part: int, lines: int) -> list[RecordPosition]:
        last_file, last_part, number = self._place
        number = number if (file, part) == (last_file, last_part) else 0
        self._place = (file, part, number + lines)
        name = f"{file} from byte {part}" if part else file
        return [(name, line) for line in range(number + 1, number + lines + 1)]


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int, bool], int]]:
    """Yield what rows in a row are of, and how many they are. Those of one part of a file stand together."""
    columns = [batch.column(name) for name in (FILE, PART, WHOLE)]
    ends = [tuple(column[at].as_py() for column in columns) for at in (0, -1)] if batch.num_rows else []
    if ends and ends[0] == ends[1]:
        yield ends[0], batch.num_rows
        return
    for of, group in groupby(zip(*(column.to_pylist() for column in columns), strict=True)):
        yield of, len(list(group))
