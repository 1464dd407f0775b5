"""The quarantine: a table beside the table, which holds what was kept out of it, whole and with the reason.

It is committed before the table is: what is kept out is never nowhere. If the table then is not, the rows go again; a
stream leaves them, for its next attempt finds them by its number.

Source: docs/evolution-rules.md#d12
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from widen.errors import InternalError, InvalidOption, TableNotFound
from widen.formats.delta_target import write_metrics
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.file_list import to_remove
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, StagedFiles, commit
from widen.model.types import LONG, STRING, TIMESTAMP, Field, StructType
from widen.planning.alter.create_table import plan_create_table
from widen.planning.evolution.source_metadata import COMMENT
from widen.protocol.actions import Action, Add, Metadata, Protocol, Txn
from widen.spark.read.scan import read_snapshot
from widen.spark.spark_types import DataFrame, SparkSession
from widen.spark.text.quarantined_rows import with_quarantine_time
from widen.spark.write.parquet_writer import write_parquet

SUFFIX = "_quarantine"
"""What is put behind the place of a table for that of its quarantine, unless another one is named."""

COLUMNS = StructType(
    tuple(
        Field(name, data_type, metadata={COMMENT: about})
        for name, data_type, about in (
            ("text", STRING, "What was kept out, as it stood in the source."),
            ("file", STRING, "The file that it stood in."),
            ("position", LONG, "Its number there."),
            ("reason", STRING, "Why the table could not hold it."),
            ("kept_at", TIMESTAMP, "When the interval was written that it was kept out of."),
            ("table_version", LONG, "The version of the table that it was kept out of."),
        )
    )
)


@dataclass(frozen=True, slots=True)
class QuarantineWrite:
    """What one interval has put into the quarantine.

    Args:
        store: Of the quarantine.
        adds: The files that hold it.
        version: The version that they came with.
    """

    store: LogStore
    adds: Sequence[Add]
    version: int

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return what it holds, with the columns of `COLUMNS`.

        Raises:
            TableError: the quarantine cannot be read.
        """
        return read_snapshot(
            spark, self.store, open_snapshot(self.store, self.version), only=[add.path for add in self.adds]
        )

    def give_back(self) -> None:
        """Take the rows out of the quarantine again: the interval has not been written.

        Raises:
            ContentionError: somebody else removed them first, or nobody knows whether they are removed.
            TableError: the quarantine cannot be read or written.
        """
        now_ms = current_ms()
        removes = [to_remove(add, now_ms, data_change=True) for add in self.adds]
        commit(self.store, open_snapshot(self.store), removes, "DELETE", {"predicate": "[]"}).or_raise()


def quarantine_location(store: LogStore, location: str | None) -> LogStore:
    """Return the place of the quarantine of a table.

    Args:
        store: Of the table.
        location: Where it is to be; by default the place of the table with `SUFFIX`.

    Raises:
        InvalidOption: it is the place of the table, or of a kind that is not known.
    """
    found = LogStore(location or store.location.rstrip("/") + SUFFIX, store.storage_options)
    if found.location.rstrip("/") == store.location.rstrip("/"):
        raise InvalidOption(option="quarantine", value=location, expected="It is another table than the one ingested.")
    return found


def write_quarantine(
    store: LogStore, kept_out: DataFrame, table_version: int, txn: Txn | None
) -> QuarantineWrite | None:
    """Write what an interval keeps out to the quarantine, which is made if there is none, and commit it.

    Args:
        store: Of the quarantine.
        kept_out: What is kept out; see `widen.spark.text.quarantined_rows.BatchResult`.
        table_version: The version of the table that cannot hold it.
        txn: Which interval of which stream it is of, if it is of one.

    Returns:
        None if the quarantine has this interval of the stream already.

    Raises:
        InvalidOption: at that place is a table of another kind.
        ContentionError: somebody else kept committing to the quarantine first.
        InternalError: that does not happen.
        TableError: the quarantine cannot be written.
    """
    for _ in range(MAX_RACES):
        snapshot = find_quarantine(store)
        if snapshot is not None and txn is not None and snapshot.has_written(txn):
            return None
        made, protocol, metadata = _create_quarantine(snapshot)
        with StagedFiles() as staged:
            adds = write_parquet(with_quarantine_time(kept_out, table_version), store, protocol, metadata)
            staged.add_files(store, adds)
            actions = [*made, *([txn] if txn else []), *adds]
            outcome = commit(store, snapshot, actions, "WRITE", _APPEND, metrics=write_metrics(adds), staged=staged)
        if not isinstance(outcome, Conflicted):
            return QuarantineWrite(store, adds, outcome.or_raise().version)
    outcome.or_raise()
    raise InternalError(reason="a quarantine lost every race, to nobody")


MAX_RACES = 10
"""How often a race is run."""

_APPEND = {"mode": "Append", "partitionBy": []}


def find_quarantine(store: LogStore) -> Snapshot | None:
    """Return the newest version of a quarantine; None if there is none.

    Raises:
        InvalidOption: at that place is a table of another kind.
        TableError: it cannot be read.
    """
    try:
        found = open_snapshot(store)
    except TableNotFound:
        return None
    missing = [field.name for field in COLUMNS if found.schema.find(field.name) is None]
    if missing:
        expected = f"The table there is no quarantine: it has no column {missing[0]}. Name another place."
        raise InvalidOption(option="quarantine", value=store.location, expected=expected)
    return found


def _create_quarantine(snapshot: Snapshot | None) -> tuple[tuple[Action, ...], Protocol, Metadata]:
    if snapshot is not None:
        return (), snapshot.protocol, snapshot.metadata
    metadata, protocol = plan_create_table(COLUMNS, (), {}, current_ms()).actions
    assert isinstance(metadata, Metadata)
    assert isinstance(protocol, Protocol)
    return (metadata, protocol), protocol, metadata
