"""Transactions on Iceberg tables: everything that an interval changes becomes visible in one commit, or nothing does.

A lost race is an outcome. If the catalog does not say whether it has committed, the table is read again; if that does
not decide it either, the outcome is unknown and no file is deleted.

Source: Iceberg's table specification, "Optimistic Concurrency".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from widen.errors import (
    CatalogError,
    CatalogRefused,
    ColumnChangeUnknown,
    InvalidOption,
    SnapshotUnknown,
    TableAlreadyExists,
    TableChanged,
    UnsupportedFeatureForWrite,
    WidenError,
)
from widen.errors.tables import add_note, first_line
from widen.iceberg.catalog import TableName, has_no_token, translate_catalog_errors, with_renewal
from widen.iceberg.column_changes import change_columns, to_column_state
from widen.iceberg.column_defaults import ensure_write_defaults, with_column_defaults
from widen.iceberg.file_metrics import IcebergFile, to_data_file
from widen.iceberg.metadata_files import has_row_lineage
from widen.iceberg.partitions import (
    PartitionField,
    SortKey,
    read_partition_fields,
    read_sort_keys,
    rounded_sources,
    to_partition_spec,
    unknown_transforms,
)
from widen.iceberg.properties import FORMAT_VERSION, SOURCES, read_sources, stream_key
from widen.iceberg.row_ids import row_id_producer, upgrade_to, with_upgrade
from widen.iceberg.scan_plan import ReplacedDeletes
from widen.iceberg.schema_conversion import WRITES_NULL, WRITES_VALUE, find_unreadable, from_model, to_whole
from widen.iceberg.snapshots import MAIN_BRANCH, SnapshotReference, find_read_point, stream_marks_at
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.model.display import record_commit
from widen.model.lazy_module import import_lazily
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.schema.operations import AddColumn, Operation, SetSources

if TYPE_CHECKING:
    from pyiceberg import exceptions as iceberg_errors
    from pyiceberg.catalog import sql as sql_catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table import snapshots as ice_snapshots
    from pyiceberg.table import update as table_update
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate
    from pyiceberg.table.update import snapshot as snapshot_updates
else:
    ice_snapshots = import_lazily("pyiceberg.table.snapshots")
    iceberg_errors = import_lazily("pyiceberg.exceptions")
    table_update = import_lazily("pyiceberg.table.update")
    snapshot_updates = import_lazily("pyiceberg.table.update.snapshot")
    sql_catalog = import_lazily("pyiceberg.catalog.sql")

CommitResult: TypeAlias = int | Conflicted
"""The id of the new snapshot, or the commit of another writer that contradicts ours."""

NEW_PROPERTIES: Mapping[str, str] = {FORMAT_VERSION: "2"}
"""The properties of a table that an ingestion creates."""

_ROUNDED = "partitions by a double, whose values PyIceberg would round when it writes a manifest again"

_OUTSIDE_CALENDAR = "partitions by a day, an hour, a date or a timestamp outside of the years 1 to 9999"

_RETRIES, _MERGES_MANIFESTS = "commit.retry.num-retries", "commit.manifest-merge.enabled"

_INTEGERS = ("write.summary.partition-limit", "write.metadata.previous-versions-max")
_MERGE_INTEGERS = ("commit.manifest.target-size-bytes", "commit.manifest.min-count-to-merge")
"""The properties of a table that PyIceberg reads as integers in every commit, and those that it reads to merge."""


def ensure_table_writable(name: TableName, table: Table) -> None:
    """Check that the table can be written.

    Raises:
        UnsupportedFeatureForWrite: the table is partitioned or sorted by a transform that it does not know.
    """
    ensure_write_defaults(table.schema(), str(name))
    if unknown := unknown_transforms(table.metadata):
        features = f"partitioning or sorting by the transform {' or '.join(unknown)}"
        raise UnsupportedFeatureForWrite(verb="write to", location=str(name), features=features)


def ensure_can_be_null(table: Table) -> None:
    """Check that new rows need no values of types that Spark does not have."""
    schema, left_out = table.schema(), find_unreadable(table.schema())
    for path in left_out.required:
        raise left_out.refuse(path, WRITES_NULL)
    split = [each.source_id for each in cast(Any, table.spec()).fields if str(each.transform) != "void"]
    ordered = [each.source_id for each in cast(Any, table.sort_order()).fields]
    names_used = {schema.find_column_name(number) for number in (*split, *ordered)} if left_out.types else set()
    for path in left_out.types:
        if ".".join(path) in names_used:
            raise left_out.refuse(path, WRITES_NULL)


def open_transaction(
    name: TableName,
    table: Table | None,
    operations: Sequence[Operation],
    new_table: NewTable | None = None,
    branch: str | None = None,
) -> IcebergTransaction:
    """Return a transaction with the changes of the columns; they are visible once it is committed.

    Its schema has the field ids of new columns, so that files can be written with them.

    Args:
        table: Its newest version, which stays as it is; None to create it.
    """
    if table is None:
        assert new_table is not None
        name.create_namespace()
        return IcebergTransaction(name, _create(name, new_table), is_new=True)
    # PyIceberg would repeat a commit that lost a race without looking at what the other writer did: it could write the
    # same interval of a stream twice. Here a lost race is planned again.
    with translate_catalog_errors(str(name)):
        properties = {**table.metadata.properties, _RETRIES: "0"}
        own = copy(table)  # the commit changes it to the new version
        own.metadata = table.metadata.model_copy(update={"properties": properties})
        transaction = with_kept_metadata(own.transaction())
        left_out = find_unreadable(table.schema())
        for each in operations:
            if isinstance(each, AddColumn):  # a new field of the rows that are to be written
                left_out.ensure_has(each.path, WRITES_VALUE)
        if operations:
            _change_columns(name, transaction, operations)
    return IcebergTransaction(name, transaction, branch=branch)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that a transaction creates."""

    schema: StructType
    partition_by: tuple[PartitionField, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def format_version(self) -> int:
        return int({**NEW_PROPERTIES, **self.properties}[FORMAT_VERSION])


def create_iceberg_table(name: TableName, new: NewTable) -> Table:
    """Create an empty table in one commit, and return it.

    Raises:
        TableAlreadyExists: the catalog has a table of that name.
    """
    transaction = open_transaction(name, None, (), new).transaction
    uuid = transaction.table_metadata.table_uuid
    try:
        return _commit_metadata(name, transaction, lambda metadata: bool(metadata.table_uuid == uuid))
    except (TableChanged, CatalogError) as error:
        if name.find() is not None:
            raise TableAlreadyExists(location=str(name)) from error
        raise


def _create(name: TableName, new: NewTable) -> Transaction:
    transaction = _stage(name, new)

    def stage_again() -> FileIO:  # the only way to ask for credentials of a table that does not exist yet
        again = _stage(name, new)
        if again.table_metadata.location != transaction.table_metadata.location:
            raise CatalogRefused(location=str(name), reason=_CANNOT_RENEW, fix=_CREATE_FIRST)
        return again._table.io

    table = transaction._table
    table.io = with_renewal(table.io, name.catalog.open().properties, stage_again)
    return with_kept_metadata(transaction)


def _stage(name: TableName, new: NewTable) -> Transaction:
    properties = {**NEW_PROPERTIES, **new.properties}
    catalog, schema = name.catalog.open(), from_model(new.schema, new.format_version)
    with translate_catalog_errors(str(name)):
        # PyIceberg's SQL catalog has multi-level namespaces, but plans new tables in single-level ones only.
        is_sql = isinstance(catalog, sql_catalog.SqlCatalog)
        identifier = (".".join(name.namespace), name.identifier[-1]) if is_sql else name.identifier
        transaction = catalog.create_table_transaction(
            identifier,
            schema,
            partition_spec=to_partition_spec(new.partition_by, schema),
            properties=properties,
        )
        updates = with_column_defaults(transaction._updates, new.schema, new.format_version)
        transaction._updates = with_upgrade(updates)
        return transaction


_CANNOT_RENEW = "the credentials for the files of the new table have expired, and the catalog gives it no others"
_CREATE_FIRST = "Create the table before the load, or load less at a time."


def plan_columns(name: TableName, operations: Iterable[Operation]) -> Transaction:
    """Return an open transaction with changes of columns of the newest version, which is not committed."""
    table = name.load()
    ensure_table_writable(name, table)
    transaction = with_kept_metadata(table.transaction())
    _change_columns(name, transaction, operations)
    return transaction


def with_kept_metadata(transaction: Transaction) -> Transaction:
    """Return a transaction that keeps its metadata until it changes.

    PyIceberg applies all changes anew, and copies all metadata in depth, each time it reads them: about 40 times in a
    load, which takes seconds for tables of a thousand columns. Nobody changes metadata in place.
    """
    cast(Any, transaction).__class__ = _keeping(cast(Any, type(transaction)))
    return transaction


@cache
def _keeping(kind: type[Transaction]) -> type[Transaction]:
    class Keeping(kind):  # type: ignore[valid-type, misc]
        _kept: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

        @property
        def table_metadata(self) -> TableMetadata:
            base, updates = self._table.metadata, self._updates
            if self._kept is None or self._kept[0] is not base or self._kept[1] is not updates:
                self._kept = base, updates, _apply_updates(base, updates)
            return self._kept[2]

    return Keeping


def _apply_updates(base: TableMetadata, updates: tuple[TableUpdate, ...]) -> TableMetadata:
    """Return metadata with changes, as PyIceberg does, but without a copy in depth."""
    context, metadata = table_update._TableMetadataUpdateContext(), base
    for update in updates:
        metadata = table_update._apply_table_update(update, metadata, context)
    if context.has_changes() and metadata.last_updated_ms == base.last_updated_ms:
        metadata = metadata.model_copy(update={"last_updated_ms": current_ms()})
    metadata.spec().check_compatible(metadata.schema())
    metadata.sort_order().check_compatible(metadata.schema())
    return metadata


def _change_columns(name: TableName, transaction: Transaction, operations: Iterable[Operation]) -> None:
    metadata = transaction.table_metadata
    operations, left_out = list(operations), find_unreadable(metadata.schema())
    for each in operations if left_out.types else ():
        if isinstance(each, SetSources):
            left_out.ensure_has(each.path)
    schema = to_whole(metadata.schema(), read_sources(metadata.properties, str(name)))
    change_columns(transaction, to_column_state(metadata, schema), operations)


def commit_columns(name: TableName, operations: Iterable[Operation]) -> Table:
    """Change the columns of a table in one commit, and return its newest version.

    Args:
        operations: The operations; none commits nothing.
    """
    operations = list(operations)
    if not operations:
        return name.load()
    transaction = plan_columns(name, operations)
    planned = transaction.table_metadata
    schema, sources = planned.schema(), planned.properties.get(SOURCES)

    def has_changed(metadata: TableMetadata) -> bool:
        return bool(metadata.schema() == schema) and metadata.properties.get(SOURCES) == sources

    return _commit_metadata(name, transaction, has_changed)


def commit_properties(name: TableName, properties: Mapping[str, str], removed: Sequence[str] = ()) -> Table:
    """Set and remove properties of a table in one commit, and return its newest version.

    Raises:
        InvalidOption: the format version would become lower.
    """
    table = name.load()
    ensure_table_writable(name, table)
    stored = {key: value for key, value in properties.items() if key != FORMAT_VERSION}
    version = int(properties.get(FORMAT_VERSION, table.format_version))
    if version < table.format_version:
        expected = f"The table has format version {table.format_version}, which cannot be lowered."
        raise InvalidOption(option=FORMAT_VERSION, value=properties[FORMAT_VERSION], expected=expected)
    if version == table.format_version and not stored and not removed:
        return table
    with translate_catalog_errors(str(name)):
        transaction = table.transaction()
        if version != table.format_version:
            transaction._stage((upgrade_to(version),))
        if stored:
            transaction.set_properties(stored)
        if removed:
            transaction.remove_properties(*removed)

    def has_changed(metadata: TableMetadata) -> bool:
        is_set = metadata.format_version >= version and stored.items() <= metadata.properties.items()
        return is_set and metadata.properties.keys().isdisjoint(removed)

    return _commit_metadata(name, transaction, has_changed)


def commit_metadata(
    name: TableName,
    table: Table,
    change: Callable[[Transaction], object],
    has_changed: Callable[[TableMetadata], bool],
) -> Table:
    """Change the metadata of a table in one commit without a snapshot, and return its newest version."""
    ensure_table_writable(name, table)
    with translate_catalog_errors(str(name)):
        transaction = table.transaction()
        change(transaction)
    return _commit_metadata(name, transaction, has_changed)


def commit_restore(name: TableName, snapshot_id: int, branch: str | None = None) -> Table:
    """Make a snapshot the newest one of a branch in one commit, and return the newest version of the table.

    The marks of streams go back to what the snapshot has, so that what is loaded again is not skipped.
    """
    table = name.load()
    ensure_table_writable(name, table)
    metadata, label = table.metadata, branch or MAIN_BRANCH
    newest = find_read_point(metadata, SnapshotReference(branch=branch)).snapshot
    marks = stream_marks_at(metadata, snapshot_id, newest)

    def change(transaction: Transaction) -> None:
        ages = reference_ages(metadata, label)
        transaction._stage(*transaction._set_ref_snapshot(snapshot_id, label, "branch", **ages))
        transaction.set_properties(
            {stream_key(app_id, branch): str(number) for app_id, number in marks.items() if number is not None}
        )
        gone = [stream_key(app_id, branch) for app_id, number in marks.items() if number is None]
        if gone:
            transaction.remove_properties(*gone)

    return commit_metadata(name, table, change, lambda new: new.refs[label].snapshot_id == snapshot_id)


def _commit_metadata(name: TableName, transaction: Transaction, has_changed: Callable[[TableMetadata], bool]) -> Table:
    """Commit a transaction without a snapshot."""
    location = str(name)
    with translate_catalog_errors(location):
        try:
            return transaction.commit_transaction()
        except UnsupportedFeatureForWrite:  # of the metadata, before anything is sent to the catalog
            raise
        except Exception as error:  # a catalog may raise errors of any library, before or after it has committed
            if _is_not_executed(error):
                raise
            changed = _find_changed(name, has_changed)
            if changed is not None:  # also after a lost race: a client that repeats a request loses against itself
                return changed
            if isinstance(error, iceberg_errors.CommitFailedException):
                raise TableChanged(location=location, reason=first_line(error)) from error
            if _is_sqlite(name):
                raise
            raise ColumnChangeUnknown(location=location, reason=first_line(error) or type(error).__name__) from error
        except BaseException as interrupt:
            add_note(interrupt, f"Whether the columns of {location} were changed is not known.")
            raise


def _find_changed(name: TableName, has_changed: Callable[[TableMetadata], bool]) -> Table | None:
    """Return the table if it has a change although the commit reported an error."""
    try:
        table = name.load()
    except WidenError:
        return None
    return table if has_changed(table.metadata) else None


@dataclass
class IcebergTransaction:
    """A transaction that is not committed."""

    name: TableName
    transaction: Transaction
    is_new: bool = False
    branch: str | None = None
    snapshot_id: int | None = field(default=None, init=False)

    @property
    def table(self) -> Table:
        """The table before the transaction, with access to its files."""
        return self.transaction._table

    @property
    def metadata(self) -> TableMetadata:
        """The metadata of the table as the transaction changes it."""
        with translate_catalog_errors(str(self.name)):
            return self.transaction.table_metadata

    @property
    def schema(self) -> Schema:
        """The schema as the transaction changes it, with all field ids."""
        return self.metadata.schema()

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The partition fields that new files get."""
        return read_partition_fields(self.metadata)

    @property
    def sort_keys(self) -> tuple[SortKey, ...]:
        """The columns that sort new files."""
        return read_sort_keys(self.metadata)

    def change_columns(self, operations: Sequence[Operation]) -> None:
        """Make more changes of the columns."""
        if operations:
            with translate_catalog_errors(str(self.name)):
                _change_columns(self.name, self.transaction, operations)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties; those that have the value already are left alone."""
        current = self.metadata.properties
        changed = {key: value for key, value in properties.items() if current.get(key) != value}
        if changed:
            self.transaction.set_properties(changed)

    def add_snapshot(
        self,
        added: Iterable[IcebergFile | DataFile],
        summary: Mapping[str, str],
        removed: Iterable[DataFile] = (),
        same_rows: ReplacedDeletes | None = None,
        vectors: Sequence[DataFile] = (),
    ) -> None:
        """Add a snapshot that adds files and removes others.

        Args:
            vectors: The new deletion vectors of files that stay; the older ones of these files are removed.
            same_rows: Says that the rows stay the same, and which manifests of delete files apply to no file any more;
                None if rows change.

        Raises:
            UnsupportedFeatureForWrite: files are removed or get vectors, and a double column is a partition column, or
                a partition is outside of Python's calendar.
        """
        metadata, removed, branch = self.metadata, list(removed), self.branch or MAIN_BRANCH
        is_rounded = bool(rounded_sources(metadata))
        if (removed or vectors) and is_rounded:
            raise UnsupportedFeatureForWrite(verb="change rows of", location=str(self.name), features=_ROUNDED)
        # Merging writes the entries of older manifests again, which rounds doubles.
        merges = metadata.properties.get(_MERGES_MANIFESTS, "").lower() == "true" and not is_rounded
        _ensure_integers(metadata.properties, _INTEGERS + _MERGE_INTEGERS * merges)
        with translate_catalog_errors(str(self.name)):
            update = self.transaction.update_snapshot(snapshot_properties=dict(summary), branch=branch)
            if same_rows is not None:
                producer: Any = new_replacement(self.transaction, summary, branch, same_rows)
            elif has_row_lineage(metadata):
                io, kind = self.table.io, ice_snapshots.Operation
                added, entries = list(added), dict(summary)
                operation = kind.OVERWRITE if removed or vectors else kind.APPEND
                if vectors and not removed and not added:
                    operation = kind.DELETE
                producer = row_id_producer()(
                    operation, self.transaction, io, snapshot_properties=entries, branch=branch
                )
                producer.vectors = vectors
            else:
                producer = update.overwrite() if removed else update.merge_append() if merges else update.fast_append()
            for file in added:
                producer.append_data_file(to_data_file(file, metadata) if isinstance(file, IcebergFile) else file)
            for data_file in removed:
                producer.delete_data_file(data_file)
            try:
                producer.commit()
            except OverflowError as error:  # PyIceberg spells partitions as dates of Python in the summary
                raise UnsupportedFeatureForWrite(
                    verb="change rows of", location=str(self.name), features=_OUTSIDE_CALENDAR
                ) from error
            ages = reference_ages(metadata, branch)
            if any(ages.values()):  # PyIceberg forgets how long a branch keeps its snapshots when it adds one
                moved, _ = self.transaction._set_ref_snapshot(producer.snapshot_id, branch, "branch", **ages)
                self.transaction._stage(moved)
        self.snapshot_id = producer.snapshot_id

    def commit(self, staged: StagedFiles) -> CommitResult:
        """Commit the transaction.

        Args:
            staged: Guards the files: they stay as soon as the commit may be visible.
        """
        assert self.snapshot_id is not None
        staged.mark_visible()
        try:
            self.transaction.commit_transaction()
        except UnsupportedFeatureForWrite:  # of the metadata, before anything is sent to the catalog
            self._undo(staged)
            raise
        except Exception as error:  # a catalog may raise errors of any library, before or after it has committed
            conflict = self._to_outcome(error)
            if conflict is None:
                self._ensure_committed(error, staged)
            elif not self._is_committed(error):  # a client that repeats a lost request loses against itself
                self._undo(staged)
                return conflict
        except BaseException as interrupt:
            add_note(interrupt, f"Whether snapshot {self.snapshot_id} of {self.name} was committed is not known.")
            raise
        record_commit(str(self.name), self.snapshot_id)
        return self.snapshot_id

    def _to_outcome(self, error: Exception) -> Conflicted | None:
        """Return the lost race that an error reports, if it does."""
        reason = first_line(error)
        if isinstance(error, iceberg_errors.TableAlreadyExistsError) or (
            self.is_new and isinstance(error, iceberg_errors.CommitFailedException)
        ):
            return Conflicted(TableAlreadyExists(location=str(self.name)))
        if isinstance(error, (iceberg_errors.CommitFailedException, iceberg_errors.ValidationException)):
            return Conflicted(TableChanged(location=str(self.name), reason=reason))
        return None

    def _ensure_committed(self, error: Exception, staged: StagedFiles) -> None:
        """Check that the catalog has the snapshot although the commit reported an error.

        Raises:
            CatalogRefused: the catalog refused; nothing is visible.
            CatalogError: the commit failed; nothing is visible.
        """
        location, reason = str(self.name), first_line(error) or type(error).__name__
        if _is_not_executed(error):
            self._undo(staged)
            fix = "Nothing was committed. Check the credentials of the catalog and what they allow."
            raise CatalogRefused(location=location, reason=reason, fix=fix) from error
        if self._is_committed(error):
            return
        if not _is_sqlite(self.name):
            raise self._unknown(error) from error
        self._undo(staged)
        fix = "Nothing was committed. Repeat the call."
        raise CatalogError(location=location, reason=reason, fix=fix) from error

    def _is_committed(self, error: Exception) -> bool:
        """Return whether the catalog has the snapshot although the commit reported an error."""
        try:
            table = self.name.find()
        except WidenError:
            raise self._unknown(error) from error
        return table is not None and table.metadata.snapshot_by_id(self.snapshot_id or 0) is not None

    def _unknown(self, error: Exception) -> SnapshotUnknown:
        reason = first_line(error) or type(error).__name__
        return SnapshotUnknown(version=self.snapshot_id, location=str(self.name), reason=reason)

    def _undo(self, staged: StagedFiles) -> None:
        staged.mark_absent()
        self._delete_manifests()

    def _delete_manifests(self) -> None:
        """Delete the manifests of a snapshot that was not committed, where the store allows it."""
        snapshot = self.metadata.snapshot_by_id(self.snapshot_id or 0)
        if snapshot is None:
            return
        io = self.table.io
        with contextlib.suppress(Exception):  # PyIceberg has deleted them already, or the store is not there
            own = [each for each in snapshot.manifests(io) if each.added_snapshot_id == self.snapshot_id]
            for path in (*(each.manifest_path for each in own), snapshot.manifest_list):
                io.delete(path)


def reference_ages(metadata: TableMetadata, name: str) -> dict[str, int | None]:
    """Return how long to keep a branch or a tag, and its snapshots; None where the table's settings apply."""
    reference = metadata.refs.get(name)
    names = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")
    return {key: getattr(reference, key, None) for key in names}


def _ensure_integers(properties: Mapping[str, str], names: Iterable[str]) -> None:
    # PyIceberg's error about the value looks like one of the catalog, and comes without the name of the property.
    for name in names:
        try:
            int(properties.get(name, "0"))
        except ValueError as error:
            expected = f"The property {name} of the table must be an integer. Set it to one, or remove it."
            raise InvalidOption(option=name, value=properties[name], expected=expected) from error


def _is_sqlite(name: TableName) -> bool:
    """Return whether a failed commit is rolled back for certain: SQLite has no server that could still execute it."""
    catalog = name.catalog.open()
    return isinstance(catalog, sql_catalog.SqlCatalog) and catalog.engine.dialect.name == "sqlite"


def _is_not_executed(error: Exception) -> bool:
    return type(error).__name__ in _NOT_COMMITTED or has_no_token(error)


_NOT_COMMITTED = frozenset(
    {
        "UnauthorizedError",
        "AuthorizationExpiredError",
        "ForbiddenError",
        "BadRequestError",
        "NoSuchTableError",
        "NoSuchNamespaceError",
        "OAuthError",
    }
)
"""The errors that a catalog raises only for requests that it has not executed."""


def new_replacement(transaction: Transaction, summary: Mapping[str, str], branch: str, deletes: ReplacedDeletes) -> Any:
    """Return PyIceberg's producer of a snapshot that replaces data files and drops manifests of delete files."""
    operation, io = ice_snapshots.Operation.OVERWRITE, transaction._table.io
    if has_row_lineage(transaction.table_metadata):
        kind = _replacement(cast(Any, row_id_producer()))
        producer = kind(operation, transaction, io, snapshot_properties=dict(summary), branch=branch)
        producer.dropped = deletes.manifests
        return producer
    entries = {**summary, **deletes.counts}
    kind = _replacement(cast(Any, snapshot_updates._OverwriteFiles))
    producer = kind(operation, transaction, io, snapshot_properties=entries, branch=branch)
    producer.deletes = deletes
    return producer


@cache
def _replacement(kind: type[Any]) -> type[Any]:
    """Return the class of the producer; its base is imported with PyIceberg, which may not be installed."""

    class Replacement(kind):  # type: ignore[misc]
        deletes = ReplacedDeletes()

        def _existing_manifests(self) -> list[ManifestFile]:
            return [each for each in super()._existing_manifests() if each.manifest_path not in self.deletes.manifests]

        def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Any:
            # PyIceberg computes totals for overwrites only, and does not know of the delete files.
            entries, size = super()._summary(snapshot_properties or {}).additional_properties, self.deletes.size_bytes
            removed, total = ice_snapshots.REMOVED_FILE_SIZE, ice_snapshots.TOTAL_FILE_SIZE
            if size:
                entries[removed] = str(int(entries.get(removed, 0)) + size)
            if size and total in entries:
                entries[total] = str(int(entries[total]) - size)
            return ice_snapshots.Summary(ice_snapshots.Operation.REPLACE, **entries)

    return Replacement
