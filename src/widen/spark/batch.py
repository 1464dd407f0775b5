"""One batch on the executors: raw texts to rows of the table, with what did not fit as an observation.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby

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
from widen.routing.transcribe import ROUNDING_PATTERN, Transcriber
from widen.spark.arrow import to_arrow_schema
from widen.spark.column import drained
from widen.spark.schema import to_spark
from widen.spark.source import FILE, PART, TEXT, WHOLE

NOTE = "_widen_note"
"""The column beside those of the table that carries what a task observed; its rows are no data."""

NOTES = "notes"
"""What the aggregate of all notes is called."""

ROWS_PER_BATCH = 5_000
"""How many rows go to Spark at once."""

EARLY_LOOKS = (10, 100, 1_000, 2_000)
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
        yield task.note()
    finally:
        gc.enable()


class _Task:
    """The state of one task: rows waiting to be handed on, and whether the plan is known to change."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._maker = Transcriber(attempt.schema)
        self._arrow = to_arrow_schema(attempt.schema).append(pa.field(NOTE, pa.binary()))
        self._taken = 0
        self._seen: object = None
        self._positions = Positions()
        self._is_doomed = False

    @property
    def is_done(self) -> bool:
        """Whether going on would teach nothing."""
        enough = self._maker.observation.records >= ENOUGH_RECORDS
        return self._is_doomed and enough and not self._attempt.is_patient

    def run(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take the texts of one Arrow batch; yield their rows."""
        for texts, places, may_round in self._positions.texts(batch):
            for chunk in self._chunks(len(texts)):
                self._maker.take(texts[chunk], places[chunk], may_round[chunk])
                yield from self._drained()
                if self.is_done:
                    return

    def _chunks(self, number: int) -> Iterator[slice]:
        """Yield the parts in which so many more texts are taken; they end where the task is to look."""
        start = 0
        while start < number:
            early = next((look for look in EARLY_LOOKS if look > self._taken), self._taken + ROWS_PER_BATCH)
            end = min(number, start + early - self._taken)
            self._taken += end - start
            yield slice(start, end)
            start = end

    def note(self) -> pa.RecordBatch:
        """Return the row with what was observed."""
        return pa.RecordBatch.from_pylist([{NOTE: self._maker.observation.to_json()}], schema=self._arrow)

    def _drained(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of what was taken, and look whether what they hold changes the plan."""
        batches = list(drained(self._maker, self._arrow))
        seen = signature(self._maker.observation)
        if seen != self._seen:
            self._seen = seen
            self._maker.adapt()
            self._is_doomed = self._is_doomed or not self._attempt.is_covered(self._maker.observation)
        if not self._is_doomed:
            yield from batches


class Positions:
    """Numbers the texts of a task by the file that they are from."""

    def __init__(self) -> None:
        self._place = ("", 0, 0)

    def texts(self, batch: pa.RecordBatch) -> Iterator[tuple[list[bytes], list[Position], list[bool]]]:
        """Yield JSON texts of an Arrow batch, where each stands, and whether decoding might round a number in it.

        In a later part of a large file the byte where the part begins is told with the file.

        Args:
            batch: Columns `TEXT`, `FILE`, `PART` and `WHOLE`.
        """
        may_round = pc.match_substring_regex(batch.column(TEXT), ROUNDING_PATTERN).to_pylist()
        texts, *columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        end = 0
        for (file, part, is_whole), group in groupby(zip(*columns, strict=True)):
            start, end = end, end + len(list(group))
            if is_whole:
                for row in range(start, end):
                    values = list(split(texts[row]))
                    places = [(file, number) for number in range(1, len(values) + 1)]
                    yield values, places, [may_round[row]] * len(values)
            else:
                yield texts[start:end], self._next(file, part, end - start), may_round[start:end]

    def _next(self, file: str, part: int, lines: int) -> list[Position]:
        last_file, last_part, number = self._place
        number = number if (file, part) == (last_file, last_part) else 0
        self._place = (file, part, number + lines)
        name = f"{file} from byte {part}" if part else file
        return [(name, line) for line in range(number + 1, number + lines + 1)]
