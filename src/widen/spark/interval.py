"""One interval on Spark: its texts, observed, and written as files of the table.

Source: spec of evolution, section 3.
"""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame
from pyspark.sql import Observation as Metrics

from widen.log.store import LogStore
from widen.observe.observation import Observation
from widen.protocol.action import Add, Metadata, Protocol
from widen.spark.batch import NOTES, Attempt, merge_notes, notes, transcribe, without_notes
from widen.spark.failure import translated
from widen.spark.write import write


def observe(texts: DataFrame, attempt: Attempt) -> Observation:
    """Return what a batch holds beyond what the columns of the attempt say; nothing is written.

    Args:
        texts: A raw batch.
        attempt: The columns, and what is known already.

    Raises:
        CorruptFile: a file cannot be read.
    """
    metrics, rows = _observed(texts, attempt)
    with translated():
        rows.write.format("noop").mode("overwrite").save()
    return merge_notes(metrics.get[NOTES])


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
    metrics, rows = _observed(texts, attempt)
    adds = write(without_notes(rows), store, protocol, metadata)
    return adds, merge_notes(metrics.get[NOTES])


def _observed(texts: DataFrame, attempt: Attempt) -> tuple[Metrics, DataFrame]:
    metrics = Metrics(f"widen-{uuid.uuid4().hex}")
    return metrics, transcribe(texts, attempt).observe(metrics, notes().alias(NOTES))
