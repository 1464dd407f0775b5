"""One batch on the executors: raw texts to rows of the table, with what did not fit as an observation.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.type import BINARY, Field, StructType
from widen.observe.observation import Observation, Position, merge_observations, observation_from_json
from widen.observe.split import split
from widen.observe.walk import signature
from widen.planning.evolve import evolve
from widen.planning.policy import Policy
from widen.routing.row import Row
from widen.routing.transcribe import ROUNDING_PATTERN, Transcriber
from widen.spark.arrow import to_arrow_schema
from widen.spark.schema import to_spark
from widen.spark.source import FILE, PART, TEXT, WHOLE

NOTE = "_widen_note"
"""The column beside those of the table that carries what a task observed; its rows are no data."""

NOTES = "notes"
"""What the aggregate of all notes is called."""

ROWS_PER_BATCH = 5_000
"""How many rows go to Spark at once."""

EARLY_LOOKS = (10, 100, 1_000)
"""After how many rows a task looks at what it has seen, before it does so with every batch."""

ENOUGH_RECORDS = 2_000
"""How many records a task looks at when it knows that the plan will change."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the tasks of one attempt to write a batch know.

    Args:
        base: The schema before the interval; None where there is no table yet.
        known: What earlier attempts have observed, as JSON.
        schema: The schema that the rows are made for: that of the plan for what is known.
        policy: How the plan was made, to make it again.
        is_patient: Whether to look at everything even if the plan is known to change.
    """

    base: StructType | None
    known: bytes
    schema: StructType
    policy: Policy
    is_patient: bool = False

    def is_covered(self, seen: Observation) -> bool:
        """Tell whether the plan for all that is known and seen leads to the schema of this attempt."""
        together = observation_from_json(self.known).merged(seen)
        return evolve(self.base, together, self.policy).schema == self.schema


def transcribe(texts: DataFrame, attempt: Attempt) -> DataFrame:
    """Return the rows of a batch, with the column `NOTE` beside those of the table.

    Args:
        texts: A raw batch, as `widen.spark.source.read_texts` gives it.
        attempt: What the rows are made for.

    Returns:
        The columns of ``attempt.schema`` and `NOTE`, in no order. Each task gives one row that has a note and
        nothing else.
    """
    schema = StructType((*attempt.schema.fields, Field(NOTE, BINARY)))
    return texts.mapInArrow(partial(_run_task, attempt), to_spark(schema))


def notes() -> Column:
    """Return the aggregate that collects what the tasks have observed: a text with a note on each line.

    A text, for Spark 4.0 gives no list back.
    """
    return F.array_join(F.collect_list(F.col(NOTE).cast("string")), "\n")


def merge_notes(found: str) -> Observation:
    """Return what all the tasks have observed together."""
    return merge_observations(observation_from_json(note.encode()) for note in found.split("\n") if note)


def without_notes(rows: DataFrame) -> DataFrame:
    """Return the rows of the table alone."""
    return rows.where(F.col(NOTE).isNull()).drop(NOTE)


def _run_task(attempt: Attempt, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    task = _Task(attempt)
    gc.disable()  # rows hold no cycles, and looking for some among them takes longer than making them
    try:
        for batch in batches:
            yield from task.run(batch)
            if task.is_done:
                break
        yield from task.rest()
    finally:
        gc.enable()


class _Task:
    """The state of one task: rows waiting to be handed on, and whether the plan is known to change."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._maker = Transcriber(attempt.schema)
        self._arrow = to_arrow_schema(attempt.schema).append(pa.field(NOTE, pa.binary()))
        self._rows: list[Row] = []
        self._seen: object = None
        self._positions = Positions()
        self._has_flushed = self._is_doomed = False

    @property
    def is_done(self) -> bool:
        """Whether going on would teach nothing."""
        enough = self._maker.observation.records >= ENOUGH_RECORDS
        return self._is_doomed and enough and not self._attempt.is_patient

    def run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take the texts of one Arrow batch; yield the rows that are ready."""
        may_round = pc.match_substring_regex(batch.column(TEXT), ROUNDING_PATTERN).to_pylist()
        for text, at, row in self._positions.texts(batch):
            self._rows.extend(self._maker.rows(text, at, may_round=may_round[row]))
            if len(self._rows) in EARLY_LOOKS and not self._has_flushed:
                self._judge()
            if len(self._rows) >= ROWS_PER_BATCH:
                yield from self._flush()
                if self.is_done:
                    return
        self._judge()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the last rows and the row with the note."""
        yield from self._flush()
        note = {NOTE: self._maker.observation.to_json()}
        yield pa.RecordBatch.from_pylist([note], schema=self._arrow)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        self._judge()
        rows, self._rows = self._rows, []
        self._has_flushed = True
        if rows and not self._is_doomed:
            yield pa.RecordBatch.from_pylist(rows, schema=self._arrow)

    def _judge(self) -> None:
        """Look whether what was seen since the last time changes the plan."""
        seen = signature(self._maker.observation)
        if seen != self._seen:
            self._seen = seen
            self._maker.adapt()
            self._is_doomed = self._is_doomed or not self._attempt.is_covered(self._maker.observation)


class Positions:
    """Numbers the texts of a task by the file that they are from."""

    def __init__(self) -> None:
        self._place = ("", 0, 0)

    def texts(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, Position, int]]:
        """Yield every JSON text of an Arrow batch, where it stands, and the row of the batch that it is from.

        In a later part of a large file the byte where the part begins is told with the file.

        Args:
            batch: Columns `TEXT`, `FILE`, `PART` and `WHOLE`.
        """
        columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        for row, (text, file, part, is_whole) in enumerate(zip(*columns, strict=True)):
            if is_whole:
                yield from ((value, (file, number), row) for number, value in enumerate(split(text), 1))
            elif text.strip():
                yield text, self._next(file, part), row

    def _next(self, file: str, part: int) -> Position:
        last_file, last_part, number = self._place
        number = number + 1 if (file, part) == (last_file, last_part) else 1
        self._place = (file, part, number)
        return (f"{file} from byte {part}" if part else file), number
