"""The methods of `IcebergTable` that maintain its files, snapshots, branches, tags and layout."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from widen.errors import InvalidOption, NotForIceberg
from widen.iceberg.catalog import TableName
from widen.iceberg.expiry import ExpiryRequest, plan_expiry, run_expiry
from widen.iceberg.partitions import read_partition_fields, read_sort_keys
from widen.iceberg.properties import OPTIMIZE, REWRITE
from widen.iceberg.references import (
    BRANCH,
    TAG,
    Reference,
    change_partitioning,
    create_reference,
    drop_reference,
    fast_forward,
    list_references,
    replace_sort_order,
)
from widen.iceberg.snapshots import SnapshotReference
from widen.log.commit_files import to_ms
from widen.log.commit_outcome import after_commit, retry_conflicts
from widen.log.vacuum import to_retention_ms
from widen.model.argument_types import check_arguments
from widen.table.open_table import ColumnMethodsMixin, Self
from widen.table.results import TableChange, Vacuumed, to_datetime

if TYPE_CHECKING:
    from widen.changes.iceberg_compact import IcebergCompaction, IcebergCompactionRequest
    from widen.spark.spark_types import SparkSession

NO_SNAPSHOT = -1
"""The version of a table that has no snapshot yet, where a number is needed; as in Iceberg's metadata."""

_NO_FEATURES = "Iceberg tables have a format version instead of features"
_NO_EXPRESSIONS = "Iceberg has neither CHECK constraints nor generated and identity columns"
_NO_CLUSTERING = "Iceberg tables have partitions and a sort order: use change_partitioning and set_sort_order"

NOT_FOR_ICEBERG = {
    "add_constraint": _NO_EXPRESSIONS,
    "drop_constraint": _NO_EXPRESSIONS,
    "sync_identity": _NO_EXPRESSIONS,
    "add_feature": _NO_FEATURES,
    "added_features": _NO_FEATURES,
    "drop_feature": _NO_FEATURES,
    "protocol": _NO_FEATURES,
    "cluster_by": _NO_CLUSTERING,
    "alter_columns": "use change_columns with one operation for each change; they are one commit, too",
    "replace_columns": "use change_columns: Iceberg finds columns by their ids, which replaced columns would lose",
    "changes": "Iceberg has no change data feed; widen.flow reads the snapshots after a version",
    "mirror": "it is an Iceberg table already",
    "old_types": "rewrite finds the files with old types itself",
    "type_changes": "Iceberg keeps old schemas instead of type changes: use diff",
    "metadata": "use table.metadata, the metadata as PyIceberg has it",
    "snapshot": "use table.current_snapshot(), the snapshot as PyIceberg has it",
    "store": "use table.io, the store as PyIceberg has it",
}
"""Why `IcebergTable` does not have these names of `Table`, each in a line."""


class IcebergMaintenanceMixin(ColumnMethodsMixin):
    """Methods that change no row: files, snapshots, branches and tags, partitions and the sort order."""

    _name: TableName
    _branch: str | None
    _table: Any

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if name in NOT_FOR_ICEBERG:
                raise NotForIceberg(name=name, reason=NOT_FOR_ICEBERG[name])
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition fields of new files, e.g. ``day(placed_at)``."""
        return tuple(str(each) for each in read_partition_fields(self._table.metadata) if each.source)

    @property
    def sort_order(self) -> tuple[str, ...]:
        """The columns that sort new files, e.g. ``id ASC NULLS FIRST``."""
        return tuple(map(str, read_sort_keys(self._table.metadata)))

    @property
    def references(self) -> list[Reference]:
        """The branches and tags, the main branch first."""
        return list_references(self._table.metadata)

    @check_arguments
    def optimize(
        self,
        where: str | None = None,
        *,
        target_bytes: int | None = None,
        zorder_by: Sequence[str] = (),
        sort: bool = False,
        dry_run: bool = False,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
        """Write small files together into larger ones, without any change of rows, and return the `TableChange`.

        Small files of a partition become files of about the target size, sorted if the table has a sort order. Files
        with deleted rows are written again without them, and delete files that apply to no file any more leave the
        table. Streams and flows see no change. If another writer commits first, what it left untouched is committed.

        Args:
            where: A condition in Spark SQL; files that cannot have such a row stay. By default the whole table.
            target_bytes: The size of the new files; by default ``write.target-file-size-bytes`` of the table.
            zorder_by: Columns to sort by, along a Z-order curve: then all files are written again.
            sort: Whether to write all files again, so that the files of a partition follow the sort order of the table.
            dry_run: Whether only to count the files; ``numRemovedFiles`` and ``numRemovedBytes`` tell them.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            InvalidOption: the size is not positive, a column cannot be sorted by, or there is no sort order.
            ColumnNotFound: a column to sort by does not exist.
            UnsupportedFeatureForWrite: PyIceberg cannot remove files of this table; the error says why.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            CorruptFile: a file cannot be read.
            JobFailed: a Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.

        Source: Spark's rewrite_data_files for Iceberg
        """
        from widen.changes.iceberg_compact import IcebergCompactionRequest

        if target_bytes is not None and target_bytes < 1:
            raise InvalidOption(option="target_bytes", value=target_bytes, expected="Must be an integer >= 1.")
        if sort and zorder_by:
            expected = "Give either sort or zorder_by: a file has one order."
            raise InvalidOption(option="zorder_by", value=list(zorder_by), expected=expected)
        request = IcebergCompactionRequest(where, target_bytes, tuple(zorder_by), sort)
        return self._compact(OPTIMIZE, request, spark, dry_run=dry_run)

    @check_arguments
    def rewrite(self, *, dry_run: bool = False, spark: SparkSession | None = None) -> TableChange[Self]:
        """Write files again that have an old type or an older partition specification; return the `TableChange`.

        Other files stay as they are, and concurrent reads and writes are safe.

        Args:
            dry_run: Whether only to count the files.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            UnsupportedFeatureForWrite: PyIceberg cannot remove files of this table; the error says why.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            CorruptFile: a file cannot be read.
            JobFailed: a Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.
        """
        from widen.changes.iceberg_compact import IcebergCompactionRequest

        return self._compact(REWRITE, IcebergCompactionRequest(only_old=True), spark, dry_run=dry_run)

    def _compact(
        self, operation: str, request: IcebergCompactionRequest, spark: SparkSession | None, *, dry_run: bool
    ) -> TableChange[Self]:
        from widen.changes.iceberg_compact import IcebergCompaction
        from widen.spark.engine import find_session

        done: list[IcebergCompaction] = []

        def attempt(_: object) -> Any:
            done[:] = [IcebergCompaction(self._name, session, request, self._branch)]
            return done[0].run()

        session = partial(find_session, spark)
        if dry_run:
            plan = IcebergCompaction(self._name, session, request, self._branch).plan()
            return TableChange(self.refresh(), operation, self._number, plan.counts if plan.tasks else {})
        version = retry_conflicts(attempt)
        if version is None:
            return TableChange(self.refresh(), operation, self._number, {})
        with after_commit(str(self._name), version):
            return TableChange(self.refresh(), operation, version, done[0].metrics)

    @property
    def _number(self) -> int:
        return NO_SNAPSHOT if self.version is None else self.version

    @check_arguments
    def vacuum(
        self,
        retention_hours: float | None = None,
        *,
        keep_last: int | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> Vacuumed[Self]:
        """Expire old snapshots, delete the files that no other snapshot needs, and return the `Vacuumed`.

        A snapshot stays if it is younger than the retention, among the newest ones of a branch, or the one of a branch
        or a tag. Files that killed jobs left behind are also deleted once they are older than the retention. What
        Widen has recorded of loads and streams stays.

        Args:
            retention_hours: How long snapshots and files are kept; by default ``history.expire.max-snapshot-age-ms``
                of the table or of the branch (5 days).
            keep_last: How many snapshots of each branch stay, however old they are; by default
                ``history.expire.min-snapshots-to-keep`` (1).
            dry_run: Whether only to list the snapshots and the files.
            force: Whether the retention may be shorter than the table's. No other job may then read or write the table.

        Raises:
            RetentionTooShort: the retention is shorter than the table's.
            InvalidOption: the retention is negative, the number is not positive, or a property is not a number.
            UnsupportedFeatureForWrite: the files also belong to another table, or ``gc.enabled`` is false.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            CorruptFile: a manifest cannot be read; nothing is deleted.
            StorageError: the catalog or the store returned an error. Another vacuum deletes the rest.

        Source: Iceberg's table specification, "Snapshot Retention Policy"
        """
        plan = plan_expiry(self._name, ExpiryRequest(to_retention_ms(retention_hours), keep_last, force))
        if not dry_run:
            plan = run_expiry(self._name, plan)
        self.refresh()
        return Vacuumed(
            self,
            self._number,
            plan.paths,
            plan.size_bytes,
            to_datetime(plan.cutoff_ms),
            is_dry_run=dry_run,
            expired=tuple(sorted(plan.snapshots)),
        )

    @check_arguments
    def create_branch(
        self,
        name: str,
        version: int | None = None,
        *,
        timestamp: datetime | str | None = None,
        keep_hours: float | None = None,
    ) -> Self:
        """Create a branch in one commit, and return the table. ``IcebergTable(..., branch=name)`` writes to it.

        Args:
            name: Its name.
            version: The id of its first snapshot; by default the current one.
            timestamp: The snapshot that was current at this time; a string is ISO 8601, in UTC by default.
            keep_hours: How long a vacuum keeps the branch after its last snapshot; by default forever.

        Raises:
            InvalidOption: the name is taken, the table has no snapshot, or the time is not positive.
            VersionNotFound: the table does not have the snapshot, or it has expired.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: Iceberg's table specification, "Snapshot References"
        """
        return self._create(BRANCH, name, version, timestamp, keep_hours)

    @check_arguments
    def create_tag(
        self,
        name: str,
        version: int | None = None,
        *,
        timestamp: datetime | str | None = None,
        keep_hours: float | None = None,
    ) -> Self:
        """Create a tag in one commit, and return the table; its snapshot does not expire.

        Args:
            name: Its name.
            version: See `create_branch`.
            timestamp: See `create_branch`.
            keep_hours: How long a vacuum keeps the tag after its snapshot was made; by default forever.

        Raises:
            InvalidOption: the name is taken, the table has no snapshot, or the time is not positive.
            VersionNotFound: the table does not have the snapshot, or it has expired.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: Iceberg's table specification, "Snapshot References"
        """
        return self._create(TAG, name, version, timestamp, keep_hours)

    def _create(
        self, kind: str, label: str, version: int | None, timestamp: datetime | str | None, keep_hours: float | None
    ) -> Self:
        given = SnapshotReference(version, None if timestamp is None else to_ms(timestamp))
        wanted = given if given.given else SnapshotReference(branch=self._branch)
        self._table = create_reference(self._name, kind, label, wanted, keep_hours)
        return self

    @check_arguments
    def drop_branch(self, name: str) -> Self:
        """Drop a branch in one commit, and return the table; its snapshots stay until a vacuum expires them.

        Raises:
            VersionNotFound: the table does not have the branch.
            InvalidOption: it is the main branch, or the branch of this object.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.
        """
        if name == self._branch:
            raise InvalidOption(option="branch", value=name, expected="This object reads it; open the main branch.")
        self._table = drop_reference(self._name, BRANCH, name)
        return self

    @check_arguments
    def drop_tag(self, name: str) -> Self:
        """Drop a tag in one commit, and return the table; its snapshot stays until a vacuum expires it.

        Raises:
            VersionNotFound: the table does not have the tag.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.
        """
        self._table = drop_reference(self._name, TAG, name)
        return self

    @check_arguments
    def fast_forward(self, branch: str, source: str) -> Self:
        """Move a branch forward to the newest snapshot of another one in one commit, and return the table.

        Args:
            branch: The branch to move, e.g. ``main``.
            source: The branch that has all its snapshots, and more.

        Raises:
            VersionNotFound: the table does not have one of the branches.
            InvalidOption: the branch has snapshots that the other one does not have.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: Spark's fast_forward for Iceberg
        """
        self._table = fast_forward(self._name, branch, source)
        return self

    @check_arguments
    def change_partitioning(self, *, add: Sequence[str] = (), drop: Sequence[str] = ()) -> Self:
        """Drop and add partition fields in one commit, and return the table.

        Files keep the partitions that they were written with, and are still found; `rewrite` writes them again.

        Args:
            add: Columns and transforms, e.g. ``day(placed_at)``, ``bucket(16, id)``, ``truncate(4, code)``.
            drop: The same, or the names of partition fields.

        Raises:
            InvalidOption: a text is neither, there is no such field, or the table is partitioned by it already.
            ColumnNotFound: a column does not exist.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: Iceberg's table specification, "Partition Evolution"
        """
        self._table = change_partitioning(self._name, add, drop)
        return self

    @check_arguments
    def set_sort_order(self, *columns: str) -> Self:
        """Replace the sort order in one commit, and return the table; ``optimize(sort=True)`` sorts existing files.

        Args:
            columns: Columns, e.g. ``id`` or ``placed_at DESC NULLS LAST``; none for no order.

        Raises:
            InvalidOption: a text is not a column with an order, or a column is given twice.
            ColumnNotFound: a column does not exist.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: Iceberg's table specification, "Sorting"
        """
        self._table = replace_sort_order(self._name, columns)
        return self
