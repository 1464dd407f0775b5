"""One interval on Spark: its texts, observed, and written as files of the table.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import Observation as Metrics

from widen.log.store import LogStore
from widen.observe.observation import Observation
from widen.protocol.action import Add, Metadata, Protocol
from widen.spark.batch import NOTES, Attempt, merge_notes, notes, split_notes, take_notes, transcribe, without_notes
from widen.spark.failure import translated
from widen.spark.part import Sink, find_sink
from widen.spark.write import discard_folder, write


def observe(texts: DataFrame, attempt: Attempt) -> Observation:
    """Return what a batch holds beyond what the columns of the attempt say; nothing is written.

    Args:
        texts: A raw batch.
        attempt: The columns, and what is known already.

    Raises:
        CorruptFile: a file cannot be read.
    """
    with translated():
        return merge_notes(take_notes(texts, attempt))


def write_rows(
    texts: DataFrame, attempt: Attempt, store: LogStore, protocol: Protocol, metadata: Metadata
) -> tuple[list[Add], Observation]:
    """Write the rows of a batch as files; return them with what the batch holds beyond what the columns say.

    Nothing is committed. If the observation does not fit the attempt, the files are to be discarded.

    Args:
        texts: A raw batch.
        attempt: The columns, and what is known already.
        store: Of the table.
        protocol: That the table will have when the files are committed.
        metadata: Likewise.

    Raises:
        NotNullViolated: a row has null where the table forbids it.
        CorruptFile: a file cannot be read.
        StorageError: the store refused.
    """
    sink = find_sink(texts.sparkSession, store, protocol, metadata)
    if sink is not None:
        return _written_by_tasks(texts, replace(attempt, sink=sink), sink)
    metrics = Metrics(f"widen-{uuid.uuid4().hex}")
    rows = transcribe(texts, attempt).observe(metrics, notes().alias(NOTES))
    adds = write(without_notes(rows), store, protocol, metadata)
    return adds, merge_notes(split_notes(metrics.get[NOTES]))


def _written_by_tasks(texts: DataFrame, attempt: Attempt, sink: Sink) -> tuple[list[Add], Observation]:
    with ExitStack() as undo:
        undo.callback(discard_folder, sink.store, sink.job)
        with translated():
            found = take_notes(texts, attempt)
        undo.pop_all()
    parts = [part for note in found for part in note.parts]
    discard_folder(sink.store, sink.job, but=[part.path for part in parts])
    return [part.to_add() for part in parts], merge_notes(found)
