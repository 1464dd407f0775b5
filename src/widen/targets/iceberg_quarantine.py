"""An Iceberg table as a quarantine: the records that another table could not hold, whole and with the reason.

Two tables cannot be changed in one commit. So a replay writes the files that the quarantine will keep first, with a
list of them beside, and the commit to the table names that list; then the quarantine is changed. After a crash in
between, the next replay reads that commit and finishes the change. The number of a replay is the sequence number of the
quarantine that it read. Both tables record it, so that no record is written twice.

Source: docs/evolution-rules.md#d12
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from widen.batches.text_batch import with_original_positions, with_quarantine_time
from widen.changes.iceberg_write import read_snapshot_here
from widen.errors import InvalidOption, SourceError
from widen.frames.iceberg_scan import IcebergSource, read_iceberg_files
from widen.frames.table_writers import IcebergRows, IcebergWriter, read_footer_entries
from widen.iceberg import properties as names
from widen.iceberg.catalog import TableName, open_store, to_table_name
from widen.iceberg.file_metrics import IcebergFile, data_location
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.scan_plan import plan_scan
from widen.iceberg.schema_conversion import to_model, with_iceberg_ids
from widen.iceberg.snapshots import SnapshotReference, find_last_interval, find_read_point, summary_of
from widen.iceberg.table_commit import IcebergTransaction, NewTable, ensure_table_writable, open_transaction
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.log.log_store import LogStore
from widen.model.transaction_id import REPLAY_PREFIX
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.file_statistics import NO_STATS
from widen.spark.engine import Rows, Session, open_session, run_on_engine
from widen.targets.delta_quarantine import COLUMNS, REMAINING_FILES, SUFFIX
from widen.targets.quarantine_tags import DIGEST, any_digest, encode_tag, file_digests, find_interrupted, merge_tags
from widen.targets.table_format import (
    IngestTarget,
    NewFiles,
    Quarantine,
    QuarantineContent,
    QuarantineWrite,
    TransactionId,
    retry_conflicts,
)

if TYPE_CHECKING:
    from widen.iceberg.catalog import Table


NO_TAG: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class IcebergQuarantine(Quarantine):
    """A quarantine, which may not exist yet.

    Args:
        storage_options: Settings and credentials of the store of its files; by default the catalog's.
    """

    name: TableName
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @classmethod
    def beside(cls, table: TableName, location: str | None, storage_options: Mapping[str, str]) -> IcebergQuarantine:
        """Return the quarantine of a table.

        Args:
            location: The name of the quarantine; by default the table's name with `SUFFIX`.

        Raises:
            InvalidOption: it is the table itself, or not the name of a table.
        """
        name = to_table_name(location, table.catalog) if location else table.sibling(SUFFIX)
        if name.identifier == table.identifier:
            raise InvalidOption(option="quarantine", value=location, expected="Must not be the target table.")
        return cls(name, storage_options)

    @property
    def location(self) -> str:
        return str(self.name)

    def write(
        self,
        quarantined_records: Rows | None,
        table_version: int,
        interval: TransactionId | None,
        new_files: NewFiles | None = None,
    ) -> IcebergQuarantineWrite | None:
        rows = None if quarantined_records is None else with_quarantine_time(quarantined_records, table_version)
        return retry_conflicts(lambda _: self._append(rows, interval, new_files))

    def _append(
        self, rows: Rows | None, interval: TransactionId | None, new_files: NewFiles | None
    ) -> IcebergQuarantineWrite | Conflicted | None:
        table = self.newest()
        if table is not None and interval is not None and _has_interval(table, interval):
            return None
        replaced = self._find_interrupted(table, new_files) if table and new_files else []
        if rows is None and not replaced:
            return None
        transaction = open_transaction(self.name, table, (), NewTable(COLUMNS))
        with StagedFiles() as staged:
            tag = {} if new_files is None else {names.NEW_FILES: encode_tag(new_files)}
            files = [] if rows is None else self.stage(rows, transaction, staged, tag)
            summary = {names.OPERATION: names.APPEND, **tag, **_mark_interval(transaction, interval)}
            transaction.add_snapshot(files, summary, [each.data_file for each in replaced])
            version = transaction.commit(staged)
        if isinstance(version, Conflicted):
            return version
        return IcebergQuarantineWrite(self, tuple(files), version, tuple(replaced))

    def _find_interrupted(self, table: Table, new_files: NewFiles) -> list[LiveFile]:
        digests, store = file_digests(new_files), self.store(table)
        # Reading all manifests would make each load take longer than the one before.
        tags = (summary_of(each).get(names.NEW_FILES) for each in table.snapshots())
        if new_files.loads and not find_interrupted(tags, lambda tag: tag, new_files):
            return []
        # The name of the folder spares reading the footers of all files whose snapshot has expired.
        files = [each for each in live_files(table) if each.snapshot is not None or each.path[:DIGEST] in digests]
        return find_interrupted(files, lambda file: find_tag(store, file), new_files)

    def stage(
        self, rows: Rows, transaction: IcebergTransaction, staged: StagedFiles, tag: Mapping[str, str] = NO_TAG
    ) -> list[IcebergFile]:
        """Write rows as files for a transaction.

        Args:
            tag: The entry for their footers, which stays when the snapshot expires.
        """
        folder = "".join(f"{any_digest(text)}-" for text in tag.values())
        writer = replace(self.writer(transaction), footer=tag, folder=folder)
        files = writer.write(rows)
        staged.add_undo(lambda: writer.discard(files))
        return files

    def open(self) -> IcebergQuarantineContent:
        table = self.newest()
        if table is None:
            raise self.name.not_found()
        return IcebergQuarantineContent(self, table)

    def finish_replay(self, target: IngestTarget) -> None:
        content = self.open()
        last = target.last_interval(content.interval.app_id)
        if last is None or _has_interval(content.table, last):
            return
        remaining = self._remaining_files(target, last)
        # The number of a replay is the sequence number that it read, so later files have not been replayed.
        replayed = [each for each in live_files(content.table) if each.sequence <= last.number]
        transaction = open_transaction(self.name, content.table, ())
        summary = {names.OPERATION: names.REPLAY, **_mark_interval(transaction, last)}
        transaction.add_snapshot(remaining, summary, [each.data_file for each in replayed])
        # An empty list, so that a failure deletes nothing: the table names the remaining files, and the next attempt
        # needs them.
        outcome = transaction.commit(StagedFiles())
        if isinstance(outcome, Conflicted):
            outcome.or_raise()

    def _remaining_files(self, target: IngestTarget, replayed: TransactionId) -> list[IcebergFile]:
        """Return the files that the quarantine keeps after a replay, as its commit to the table names them."""
        parameters = target.interval_parameters(replayed)
        if parameters is None:
            reason = "its last replay was interrupted, and the table no longer records what it did"
            fix = "Look for its records in the table, and delete them."
            raise SourceError(source=target.location, reason=reason, fix=fix)
        path = parameters.get(REMAINING_FILES)
        if path is None:
            return []
        return msgspec.json.decode(self.store(self.name.load()).read(path), type=list[IcebergFile])

    def newest(self) -> Table | None:
        """Return the newest version of the table, or None if it has no version.

        Raises:
            InvalidOption: the table of that name is not a quarantine.
        """
        table = self.name.find()
        if table is None:
            return None
        ensure_table_writable(self.name, table)
        if table.format_version == 1:
            expected = "Must be a table of format version 2, whose commits are numbered."
            raise InvalidOption(option="quarantine", value=self.location, expected=expected)
        columns = set(table.schema().column_names)
        missing = [column.name for column in COLUMNS if column.name not in columns]
        if missing:
            expected = f"Must be a quarantine or a new name; the table of that name has no column {missing[0]}."
            raise InvalidOption(option="quarantine", value=self.location, expected=expected)
        return table

    def store(self, table: Table, location: str | None = None) -> LogStore:
        """Return the store of the files of the quarantine."""
        place = location or data_location(table.metadata)
        return open_store(place, table.io, self.storage_options)

    def writer(self, transaction: IcebergTransaction) -> IcebergWriter:
        """Return what writes files for a transaction."""
        schema = with_iceberg_ids(COLUMNS, transaction.schema)
        store = self.store(transaction.table, data_location(transaction.metadata))
        # The beginning of a record may be a value that has no statistics in the table.
        properties = {**transaction.metadata.properties, NO_STATS: "text, reason"}
        return IcebergWriter(store, schema, transaction.partition_fields, properties, sort_by=transaction.sort_keys)


@dataclass(frozen=True, slots=True)
class IcebergQuarantineWrite(QuarantineWrite):
    """The records that one interval has added.

    Args:
        replaced: The files with the records of an interrupted load, which this one has replaced.
    """

    quarantine: IcebergQuarantine
    files: tuple[IcebergFile, ...]
    version: int
    replaced: tuple[LiveFile, ...] = ()

    @property
    def location(self) -> str:
        return self.quarantine.location

    def rows(self, spark: Session) -> Rows:
        table = self.quarantine.name.load()
        live = frozenset(each.path for each in live_files(table))
        rows = IcebergRows(self.quarantine.store(table), _columns(table), live)
        return rows.read(spark, [file.path for file in self.files])

    def undo(self) -> None:
        retry_conflicts(lambda _: self._undo())

    def _undo(self) -> int | Conflicted:
        table, paths = self.quarantine.name.load(), {file.path for file in self.files}
        removed = [each.data_file for each in live_files(table) if each.path in paths]
        transaction = open_transaction(self.quarantine.name, table, ())
        store = self.quarantine.store(table)
        text = merge_tags(find_tag(store, each) for each in self.replaced)
        tag = NO_TAG if text is None else {names.NEW_FILES: text}
        with StagedFiles() as staged:
            files = self._write_replaced(table, transaction, staged, tag)
            transaction.add_snapshot(files, {names.OPERATION: names.UNDO, **tag}, removed)
            return transaction.commit(staged)

    def _write_replaced(
        self, table: Table, transaction: IcebergTransaction, staged: StagedFiles, tag: Mapping[str, str]
    ) -> list[IcebergFile]:
        """Write the replaced records to new files.

        The old files cannot come back: Iceberg deletes them when the snapshot expires that has removed them.
        """
        if not self.replaced:
            return []
        paths = [each.path for each in self.replaced]
        rows = IcebergRows(self.quarantine.store(table), _columns(table), frozenset(paths))
        return self.quarantine.stage(rows.read(open_session(), paths), transaction, staged, tag)


@dataclass(frozen=True, slots=True)
class IcebergQuarantineContent(QuarantineContent):
    """One version of a quarantine."""

    quarantine: IcebergQuarantine
    table: Table

    @property
    def interval(self) -> TransactionId:
        metadata = self.table.metadata
        number = 0 if metadata.format_version == 1 else metadata.last_sequence_number
        return TransactionId(f"{REPLAY_PREFIX}{metadata.table_uuid}", number)

    @property
    def is_empty(self) -> bool:
        return not live_files(self.table)

    @property
    def size_bytes(self) -> int:
        return sum(each.data_file.file_size_in_bytes for each in live_files(self.table))

    def rows(self, spark: Session) -> Rows:
        # Somebody may have deleted records, also without new files.
        point, schema = find_read_point(self.table.metadata, SnapshotReference()), _columns(self.table)
        source = IcebergSource(lambda: spark, self.table.io, point)
        assert point.snapshot is not None
        return run_on_engine(
            spark,
            lambda _: read_snapshot_here(source, schema),
            lambda _: read_iceberg_files(source, schema, plan_scan(point, self.table.io)),
        )

    def write_remaining(
        self, quarantined_records: Rows | None, table_version: int, staged: StagedFiles
    ) -> Mapping[str, object]:
        if quarantined_records is None:
            return {}
        rows = with_quarantine_time(with_original_positions(quarantined_records), table_version)
        files = self.quarantine.stage(rows, open_transaction(self.quarantine.name, self.table, ()), staged)
        if not files:
            return {}
        # The list is a separate file: a snapshot summary is loaded by every reader of the table.
        path = f"{files[0].path.partition('/')[0]}/remaining.json"
        self.quarantine.store(self.table).put(path, msgspec.json.encode(files))
        return {REMAINING_FILES: path}


# ---- files of a version ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of the newest snapshot.

    Args:
        snapshot: The summary of the snapshot that added it; None if that has expired.
    """

    path: str
    sequence: int
    data_file: Any
    snapshot: Mapping[str, str] | None = None


def find_tag(store: LogStore, file: LiveFile) -> str | None:
    """Return the tag of a file, if it has one; see `widen.targets.quarantine_tags`."""
    if file.snapshot is not None:
        return file.snapshot.get(names.NEW_FILES)
    return read_footer_entries(store, file.path).get(names.NEW_FILES)


def live_files(table: Table) -> list[LiveFile]:
    """Return the data files of the newest snapshot of a quarantine; it has no row-level deletes."""
    snapshot, root = table.current_snapshot(), data_location(table.metadata)
    summaries = {each.snapshot_id: summary_of(each) for each in table.snapshots()}
    return [
        LiveFile(
            entry.data_file.file_path.removeprefix(f"{root}/"),
            entry.sequence_number or 0,
            entry.data_file,
            summaries.get(entry.snapshot_id or 0),
        )
        for entry in live_entries(table.metadata, table.io, snapshot)
    ]


def _columns(table: Table) -> StructType:
    return to_model(table.schema())


def _has_interval(table: Table, interval: TransactionId) -> bool:
    number = find_last_interval(table, interval.app_id)
    return number is not None and number >= interval.number


def _mark_interval(transaction: IcebergTransaction, interval: TransactionId | None) -> dict[str, str]:
    """Record an interval as a table property, and return its entries for the snapshot summary."""
    if interval is None:
        return {}
    transaction.set_properties(names.stream_mark(interval.app_id, interval.number))
    return {names.APP_ID: interval.app_id, names.INTERVAL: str(interval.number)}
