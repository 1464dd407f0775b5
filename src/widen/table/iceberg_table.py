"""The class `IcebergTable`: an Iceberg table, read on stock Spark and changed through PyIceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from widen.errors import InvalidOption, OptionMissing
from widen.evolution.unify import FoldResult, Rest
from widen.iceberg.catalog import CatalogSource, open_store, to_table_name
from widen.iceberg.metadata_files import has_row_lineage
from widen.iceberg.properties import FORGET, OPERATION, ensure_not_own, ensure_settable, read_sources
from widen.iceberg.schema_conversion import ensure_texts_readable, to_readable, to_whole
from widen.iceberg.snapshots import (
    FILE_COLUMNS,
    MAIN_BRANCH,
    ReadPoint,
    SnapshotReference,
    find_read_point,
    list_snapshot_files,
    read_snapshot_loads,
    snapshot_commits,
)
from widen.iceberg.table_commit import (
    commit_columns,
    commit_properties,
    commit_restore,
    ensure_table_writable,
    open_transaction,
    plan_columns,
)
from widen.log.commit_files import to_ms
from widen.log.commit_outcome import Conflicted, StagedFiles, after_commit, retry_conflicts
from widen.log.load_segments import Load
from widen.log.log_store import LogStore
from widen.model.acknowledgement import acknowledgement_properties
from widen.model.argument_types import check_arguments
from widen.model.column_path import Path
from widen.model.types import DataType, StructType
from widen.protocol.column_metadata import visible_schema
from widen.schema import alter
from widen.schema.alter import AnyPath, ColumnChanges
from widen.schema.growth import SchemaChangeOptions, never
from widen.schema.operations import Operation
from widen.schema.source_metadata import TableFormat, can_widen_automatically
from widen.table.iceberg_maintenance import NO_SNAPSHOT, IcebergMaintenanceMixin
from widen.table.local_frames import LocalFramesMixin
from widen.table.open_table import Self
from widen.table.results import SchemaDiff, TableChange, diff_snapshots
from widen.table.row_operations import FOLD, FoldMixin, MergeBuilder, ensure_values_kept

if TYPE_CHECKING:
    from widen.changes.iceberg_changes import IcebergChange, SelectedRows
    from widen.changes.merge import MergeClause, MergeSides
    from widen.evolution.plan import PlannedReader
    from widen.frames.iceberg_scan import IcebergSource
    from widen.report.reader_predictions import Trait
    from widen.spark.engine import Session
    from widen.spark.expression import Expression
    from widen.spark.spark_types import DataFrame, SparkSession

_WIDEN = "Iceberg can widen int to bigint, float to double, and decimals to more digits: use merge_schema=True."


class IcebergTable(FoldMixin, LocalFramesMixin, IcebergMaintenanceMixin):
    """An Iceberg table at its newest version when it was opened, and after each change made through it.

    Args:
        name: The namespace and the name, e.g. ``shop.orders``.
        catalog: The name of a catalog in PyIceberg's configuration, a path that ends in ``.db`` for an embedded
            catalog, or an open PyIceberg catalog.
        branch: The branch that is read and changed; by default the main branch. Columns, properties, branches and tags
            belong to the whole table.

    Raises:
        IcebergUnavailable: PyIceberg is not installed.
        InvalidOption: the name has no namespace, or the catalog is not one of these.
        CatalogNotFound: the configuration does not have the catalog.
        IcebergTableNotFound: the catalog does not have the table.
        VersionNotFound: the table does not have the branch.
        CatalogError: the catalog cannot be read.
    """

    _wrong_readers: tuple[PlannedReader, ...] = ()

    @check_arguments
    def __init__(self, name: str, catalog: CatalogSource, *, branch: str | None = None) -> None:
        self._name = to_table_name(name, catalog)
        self._branch = None if branch == MAIN_BRANCH else branch
        self._table = self._name.load()
        if self._branch is not None:
            find_read_point(self._table.metadata, SnapshotReference(branch=self._branch))

    @property
    def name(self) -> str:
        """The namespace and the name."""
        return str(self._name)

    @property
    def branch(self) -> str | None:
        """The branch that is read and changed; None for the main branch."""
        return self._branch

    @property
    def location(self) -> str:
        """The URL of the folder with the table's files."""
        return str(self._table.location())

    @property
    def table(self) -> Any:
        """The table as PyIceberg has loaded it, a ``pyiceberg.table.Table``."""
        return self._table

    @property
    def version(self) -> int | None:
        """The id of the snapshot; None if the table has no snapshot yet."""
        snapshot = self._point(None).snapshot
        return None if snapshot is None else snapshot.snapshot_id

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table."""
        return dict(self._table.properties)

    def refresh(self) -> Self:
        self._table = self._name.load()
        return self

    def files(self) -> pa.Table:
        """Return the data files of the current snapshot: a row for each, with the columns of `FILE_COLUMNS`.

        Raises:
            CorruptFile: a manifest cannot be read.
        """
        rows = list(list_snapshot_files(self._table.metadata, self._table.io, self._point(None).snapshot))
        kinds = (pa.string(), pa.string(), pa.int64(), pa.int64(), pa.int32(), pa.int64())
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
        return pa.table(columns, names=list(FILE_COLUMNS))

    @check_arguments
    def read(
        self,
        where: Expression | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        branch: str | None = None,
        tag: str | None = None,
        unified: bool = False,
        row_lineage: bool = False,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Return the rows as a DataFrame. At most one of version, timestamp, branch and tag may be given.

        Columns that Spark has no type for, e.g. of the type time, are left out.
        A version, a timestamp and a tag are read in the schema of their snapshot, a branch in the current schema.

        Args:
            where: The condition on the rows; a string in Spark SQL also skips files by partitions and bounds.
            version: The id of the snapshot to read; by default the snapshot of this object.
            timestamp: Reads the snapshot that was current at this time; a string is ISO 8601, in UTC by default.
            branch: Reads the newest snapshot of this branch.
            tag: Reads the snapshot of this tag.
            unified: Whether to return one column for each source field, which combines all table columns of that field
                in their common type, or as a string without a common type. ``where`` refers to the table columns.
            row_lineage: Whether to add ``_row_id`` and ``_last_updated_sequence_number``, which tables of format
                version 3 have; null in rows from before the table had that version.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            VersionNotFound: the table does not have the snapshot, or it has expired.
            InvalidOption: two snapshots are given, the timestamp cannot be parsed, an argument has the wrong type, or
                the table has no row lineage.
            UnsupportedFeatureForRead: the snapshot has files that this version cannot read, e.g. ORC.
            CorruptFile: a file is missing or damaged, or has columns that the table cannot have.

        Source: Iceberg's table specification, "Scan Planning" and "Column Projection"
        """
        from widen.frames.iceberg_scan import IcebergSource, read_iceberg
        from widen.frames.scan import unify_rows
        from widen.spark.engine import find_session

        timestamp_ms = None if timestamp is None else to_ms(timestamp)
        wanted = SnapshotReference(version, timestamp_ms, branch, tag)
        point = find_read_point(self._table.metadata, wanted) if wanted.given else self._point(None)
        schema = self._columns(point)
        if isinstance(where, str):
            ensure_texts_readable(point.schema, [where])
        source = IcebergSource(partial(find_session, spark, "it returns a DataFrame of Spark"), self._table.io, point)
        if row_lineage:
            return self._read_lineage(source, schema, where, unified=unified)
        rows = read_iceberg(source, schema, where)
        return unify_rows(rows, schema) if unified else rows

    def _query_here(self, where: str | None, limit: int, *, unified: bool) -> pa.Table:
        from widen.files.expressions import query_files
        from widen.frames.iceberg_scan import IcebergSource, open_queried_files
        from widen.spark.engine import find_session

        point = self._point(None)
        schema = self._columns(point)
        if where is not None:
            ensure_texts_readable(point.schema, [where])
        session = partial(find_session, None, "the table has deletes that only Spark applies")
        source = IcebergSource(session, self._table.io, point)
        return query_files(schema, partial(open_queried_files, source, schema), where, (), limit, unified=unified)[1]

    def _frame(self, where: Expression | None, spark: SparkSession, *, unified: bool) -> tuple[DataFrame, StructType]:
        from widen.spark.spark_types import from_spark

        rows = self.read(where, unified=unified, spark=spark)
        return rows, from_spark(rows.schema)

    def _read_lineage(
        self, source: IcebergSource, schema: StructType, where: Expression | None, *, unified: bool
    ) -> DataFrame:
        from widen.frames.iceberg_scan import read_iceberg_lineage

        if unified or not has_row_lineage(self._table.metadata):
            version = self._table.format_version
            reason = "together with unified" if unified else f"for a table of format version {version}"
            raise InvalidOption(option="row_lineage", value=True, expected=f"Cannot be used {reason}.")
        return read_iceberg_lineage(source, schema, where)

    @check_arguments
    def append(
        self, frame: DataFrame, *, merge_schema: bool | None = None, widening: str | None = None, cast: bool = False
    ) -> TableChange[Self]:
        """Add rows in one commit, and return the `TableChange` with the id of the snapshot and the metrics of Iceberg.

        Columns are matched by name, not case-sensitive. Narrower types are cast; columns that the data lack get null.
        After a conflict with another commit, the append is planned and written again.

        Args:
            frame: The rows.
            merge_schema: Whether to add new columns and to widen types as Iceberg allows; the default is
                `spark.databricks.delta.schema.autoMerge.enabled`.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; the default is
                `spark.databricks.delta.typeWidening.allowAutomaticWidening`.
            cast: Whether to cast to other types too; a value that does not fit fails the append.

        Raises:
            SchemaMismatch: the data do not fit; the error names the columns, both types, and what would make them fit.
            RowRefused: a required column is null, or a value is out of range; nothing is visible.
            InvalidOption: ``widening`` is not one of the three values.
            UnsupportedColumnType: Iceberg does not have the type of a new column.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.
        """
        from widen.changes.iceberg_write import append_rows

        options = self._change_options(frame, merge_schema, widening, cast=cast)
        version = retry_conflicts(lambda _: append_rows(self._name, frame, options, self._branch))
        with after_commit(self.name, version):
            entry = next(each for each in self.refresh().history() if each.version == version)
            metrics = {name: int(value) for name, value in entry.metrics.items()}
        return TableChange(self, entry.operation, version, metrics)

    @check_arguments
    def overwrite(
        self,
        frame: DataFrame,
        *,
        where: Expression | None = None,
        merge_schema: bool | None = None,
        widening: str | None = None,
        cast: bool = False,
    ) -> TableChange[Self]:
        """Replace all rows, or those that match a condition, in one commit, and return the `TableChange`.

        Columns are matched and cast as in `append`. Files that also have other rows are rewritten.

        Args:
            frame: The rows.
            where: The condition on the rows to replace, in Spark SQL or as a column; every new row must match it as
                well.
            merge_schema: See `append`.
            widening: See `append`.
            cast: See `append`.

        Raises:
            SchemaMismatch: the data do not fit; the error names the columns, both types, and what would make them fit.
            ReplaceWhereMismatch: a new row does not match the condition; nothing is visible.
            RowRefused: a required column is null, or a value is out of range; nothing is visible.
            ChangeRefused: the condition cannot be used.
            InvalidOption: ``widening`` is not one of the three values.
            UnsupportedFeatureForWrite: PyIceberg cannot remove files of this table; the error says why.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            JobFailed: a Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.
        """
        options = self._change_options(frame, merge_schema, widening, cast=cast)
        return self._change_rows("overwrite", where, frame.sparkSession, lambda rows: rows.overwrite(frame, options))

    @check_arguments
    def delete(self, where: Expression | None = None, *, spark: SparkSession | None = None) -> TableChange[Self]:
        """Delete rows in one commit, and return the `TableChange`; if no row matches there is no commit.

        Files that also have other rows are rewritten (copy-on-write). In tables of format version 3 whose property
        ``write.delete.mode`` is ``merge-on-read`` they stay, and get deletion vectors.

        Args:
            where: The condition on the rows to delete, in Spark SQL or as a column; without it all rows are deleted. A
                string also skips files by partitions and bounds.
            spark: The session, classic or Connect; by default the active one, else a local one, which starts only if
                Arrow cannot do the work.

        Raises:
            NotDeterministic: the condition may give different results for the same row.
            InvalidCondition: the condition cannot be used.
            UnsupportedFeatureForWrite: PyIceberg cannot remove files of this table; the error says why.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            CorruptFile: a file cannot be read.
            JobFailed: a Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.
        """
        from widen.spark.engine import open_session

        return self._change_rows("delete", where, open_session(spark), lambda rows: rows.delete())

    @check_arguments
    def update(
        self,
        assignments: Mapping[str, Expression],
        where: Expression | None = None,
        *,
        spark: SparkSession | None = None,
    ) -> TableChange[Self]:
        """Update rows in one commit, and return the `TableChange`; if no row matches there is no commit.

        Column types do not change: a value that is out of range for its column fails the update. Files with such rows
        are rewritten.

        Args:
            assignments: The new values, in Spark SQL or as columns, by column path, e.g.
                ``{"amount": "amount * 2", "address.zip": "'9000'"}``. All of them refer to the row before the update.
            where: The condition on the rows to update; without it all rows are updated.
            spark: The session.

        Raises:
            ColumnNotFound: the column does not exist.
            InvalidPath: a path cannot be read.
            AssignmentConflict: two assignments go to the same column.
            ItemAssignmentRefused: a path leads into an array or a map.
            SchemaMismatch: a value does not fit its column.
            NotDeterministic: the condition may give different results for the same row.
            InvalidCondition: the condition or a value cannot be used.
            RowRefused: a required column would be null, or a value is out of range; nothing is visible.
            UnsupportedFeatureForWrite: PyIceberg cannot remove files of this table; the error says why.
            ContentionError: other writers kept committing first, or the outcome is unknown.
            JobFailed: a Spark job failed; nothing is visible.
            StorageError: the catalog or the store returned an error; nothing is visible.
        """
        from widen.spark.engine import open_session

        return self._change_rows("update", where, open_session(spark), lambda rows: rows.update(assignments))

    @check_arguments
    def merge(
        self,
        source: DataFrame,
        on: Expression,
        *,
        source_alias: str = "s",
        target_alias: str = "t",
        merge_schema: bool | None = None,
        widening: str | None = None,
    ) -> MergeBuilder[TableChange[Self]]:
        """Return a builder for a merge of a source into the table; add clauses to it, then call ``execute``.

        Files with rows that a clause updates or deletes are rewritten. The merge runs again if another writer commits
        first, so the source must give the same rows each time.

        Args:
            source: The source rows.
            on: The join condition, in Spark SQL or as a column; a string also skips files by partitions and bounds.
            source_alias: The alias of the source in expressions.
            target_alias: The alias of the table in expressions.
            merge_schema: Whether to add source columns that a clause assigns, and to widen to their types as Iceberg
                allows; the default is `spark.databricks.delta.schema.autoMerge.enabled`. Other values are cast; a value
                that is out of range fails the merge.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; the default is
                `spark.databricks.delta.typeWidening.allowAutomaticWidening`.

        Raises:
            InvalidOption: ``widening`` is not one of the three values.

        Source: Delta Lake's MERGE

        Example:
            table.merge(changes, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
        """
        from widen.changes.merge import MergeSides

        sides = MergeSides(source, on, source_alias, target_alias)
        options = self._change_options(source, merge_schema, widening, cast=True)
        return MergeBuilder(partial(self._merge, sides, options))

    def _merge(
        self, sides: MergeSides, options: SchemaChangeOptions, clauses: tuple[MergeClause, ...]
    ) -> TableChange[Self]:
        from widen.changes.merge import order_clauses

        numbered = order_clauses(clauses)
        spark = sides.source.sparkSession
        return self._change_rows("merge", None, spark, lambda rows: rows.merge(sides, numbered, options))

    @check_arguments
    def restore(self, version: int | None = None, *, timestamp: datetime | str | None = None) -> TableChange[Self]:
        """Make an earlier snapshot the newest of the branch, and return the `TableChange`. No file is changed.

        The columns stay as they are. What the later snapshots have loaded counts as not loaded: ``new=True`` loads
        their files again, and ``txn`` and streams accept their batches again. Their quarantined records stay in the
        quarantine.

        Args:
            version: The id of the snapshot.
            timestamp: Restores the snapshot that was current at this time; a string is ISO 8601, in UTC by default.

        Raises:
            VersionNotFound: the table does not have the snapshot, or it has expired.
            OptionMissing: neither is given.
            InvalidOption: both are given, or the time cannot be read.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.

        Source: Iceberg's table specification, "Snapshot References"
        """
        if version is None and timestamp is None:
            raise OptionMissing(option="version or timestamp", expected="Give one of them.")
        reference = SnapshotReference(version, None if timestamp is None else to_ms(timestamp))
        snapshot = find_read_point(self.refresh()._table.metadata, reference).snapshot
        assert snapshot is not None
        if snapshot.snapshot_id != self.version:
            self._table = commit_restore(self._name, snapshot.snapshot_id, self._branch)
        return TableChange(self, "restore", snapshot.snapshot_id, {})

    @check_arguments
    def forget(
        self, keys: Sequence[Mapping[str, object]] = (), *, older_than: str | None = None, dry_run: bool = False
    ) -> TableChange[Self]:
        """Remove deleted keys from what the table remembers of them; see `Table.forget`.

        Args:
            keys: The keys, each with the values of its fields, e.g. ``[{"id": 7}]``.
            older_than: Instead of keys, how long ago the table must have deleted them at least, e.g. ``90d``, ``12h``,
                ``2w`` or ``90 days``.
            dry_run: Whether only to count them.

        Raises:
            InvalidOption: the table is not loaded by key, a field is missing, or a value has another type; the age
                is not one; or the table keeps every version of its rows, and an age is given or a key has versions.
            ContentionError: too many conflicts, or the outcome of the commit is unknown.
            CorruptLog: the list of deleted keys is missing or damaged.
            StorageError: the catalog or the store returned an error.
        """
        from widen.changes import forgotten_keys
        from widen.changes.deleted_keys import ICEBERG_FOLDER, ICEBERG_PROPERTY, KeyLists, iceberg_head
        from widen.changes.iceberg_write import open_snapshot_files
        from widen.evolution.key_rules import PROPERTY
        from widen.frames.iceberg_scan import IcebergSource
        from widen.spark.engine import find_session

        if self._branch is not None:
            expected = "Loads by key, and what they remember, belong to the main branch: open that one."
            raise InvalidOption(option="branch", value=self._branch, expected=expected)

        def attempt(_: Conflicted | None) -> tuple[forgotten_keys.ForgottenKeys, int | None] | Conflicted:
            table = self.refresh()._table
            ensure_table_writable(self._name, table)
            schema, spark = self._full_schema, partial(find_session, None, "it reads the keys of the table")
            source = IcebergSource(spark, table.io, self._point(None))
            rows = forgotten_keys.KeyedRows(schema, partial(open_snapshot_files, source, schema), self.read)
            rule = forgotten_keys.ForgetRule.of(rows, table.properties.get(PROPERTY), keys, older_than)
            lists = KeyLists(self._files, iceberg_head(table.properties, self.name), ICEBERG_FOLDER)
            if dry_run:
                return forgotten_keys.write_without(lists, rule, 0, None), None
            with StagedFiles() as staged:
                number = int(getattr(table.metadata, "last_sequence_number", 0)) + 1
                done = forgotten_keys.write_without(lists, rule, number, staged)
                if done.head is None:
                    return done, None
                transaction = open_transaction(self._name, table, ())
                # A snapshot without files: catalogs compare the newest one, not the properties, to find a lost race.
                transaction.add_snapshot((), {OPERATION: FORGET})
                transaction.set_properties({ICEBERG_PROPERTY: str(done.head)})
                outcome = transaction.commit(staged)
                return outcome if isinstance(outcome, Conflicted) else (done, outcome)

        done, version = retry_conflicts(attempt)
        if version is not None:
            with after_commit(self.name, version):
                self.refresh()
                forgotten_keys.delete_old(self._files, done)
        return TableChange(self, FORGET, self._number, done.metrics)

    @check_arguments
    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set properties in one commit, and return the table.

        Args:
            properties: The values by name, e.g. ``{"write.target-file-size-bytes": "134217728"}``. ``format-version``
                upgrades the table from version 1 to 2.

        Raises:
            InvalidOption: a property records what Widen has done, its name is reserved, or its value is not valid.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.
        """
        ensure_settable(properties)
        self._table = commit_properties(self._name, properties)
        return self

    @check_arguments
    def unset_properties(self, keys: Iterable[str]) -> Self:
        """Remove properties in one commit, and return the table. Iceberg's defaults apply again.

        Args:
            keys: Their names.

        Raises:
            InvalidOption: a property is not set, or records what Widen has done.
            ContentionError: another writer changed the table first, or the outcome is unknown.
            StorageError: the catalog returned an error.
        """
        removed = list(dict.fromkeys(keys))
        ensure_not_own(removed)
        missing = next((key for key in removed if key not in self.refresh().properties), None)
        if missing is not None:
            raise InvalidOption(option="keys", value=missing, expected="Must be a property that is set.")
        self._table = commit_properties(self._name, {}, removed)
        return self

    @check_arguments
    def alter_column(
        self,
        column: AnyPath,
        *,
        type: DataType | str | None = None,
        comment: str | None = None,
        nullable: bool | None = None,
        first: bool = False,
        after: str | None = None,
        default: str | None = None,
        drop_default: bool = False,
        source: str | None = None,
        drop_source: str | None = None,
    ) -> Self:
        """Change a column in one commit, and return the table; None leaves a setting unchanged.

        Args:
            column: The column, e.g. ``amount``, ``address.zip``, ``tags.element``, ``prices.value``.
            type: The wider type: ``bigint`` for int, ``double`` for float, or a decimal with more digits.
            comment: The new comment; may be empty.
            nullable: True allows null. Iceberg cannot forbid it later.
            first: Whether to move it to the first position in its struct.
            after: The name of the column to move it behind.
            default: The default of new rows, a literal in SQL; the table must have format version 3. Old rows keep the
                default that the column was added with.
            drop_default: Whether new rows without a value for the column get null.
            source: The name of another field of records that fills the column, beside the one that does so already,
                e.g. after the source has renamed the field.
            drop_source: The name of a field that no longer fills it.

        Raises:
            ColumnRefused: a subclass: the column does not exist, or Iceberg does not allow the change.
            InvalidPath: the path cannot be read.
            InvalidType: the type cannot be read.
            InvalidOption: Iceberg does not have such a change.
            ContentionError: another writer changed the columns first.
            StorageError: the catalog returned an error.

        Source: Iceberg's table specification, "Schema Evolution"
        """
        given = {"type": type, "comment": comment, "nullable": nullable, "after": after, "default": default}
        given |= {"source": source, "drop_source": drop_source}
        given_changes = {key: value for key, value in given.items() if value is not None}
        changes = ColumnChanges(**given_changes, first=first, drop_default=drop_default)  # type: ignore[typeddict-item]
        return self.change_columns(alter.parse_column_changes(self.columns, {column: changes}))

    @property
    def columns(self) -> StructType:
        """The columns of the newest version with their metadata: field ids, docs and source fields.

        Those that `read` leaves out are among them, with an `OpaqueType`.
        """
        return self.refresh()._changeable_schema

    def schema_at(self, version: int) -> StructType:
        """Return the columns of a snapshot without internal metadata.

        Raises:
            VersionNotFound: the table does not have the snapshot, or it has expired.
        """
        return visible_schema(self._schema_of(version))

    @check_arguments
    def plan_columns(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Return the operations that would be committed, after all checks; commits nothing.

        Raises:
            ColumnRefused: a subclass that names the reason.
            InvalidOption: Iceberg does not have such an operation.
        """
        plan_columns(self._name, operations)
        return tuple(operations)

    @check_arguments
    def change_columns(self, operations: Sequence[Operation]) -> Self:
        """Apply operations in one commit, all or nothing, and return the table.

        Args:
            operations: Operations of `widen.types` on the columns of the newest version.

        Raises:
            ColumnRefused: a subclass that names the reason.
            InvalidOption: Iceberg does not have such an operation.
            ContentionError: another writer changed the columns first, or the outcome is unknown.
            StorageError: the catalog returned an error.
        """
        from widen.report.iceberg_traits import iceberg_readers_made_wrong
        from widen.report.reader_predictions import warn_wrong_readers

        before, self._table = self._table, commit_columns(self._name, operations)
        wrong = iceberg_readers_made_wrong(before, to_readable(self._table.schema()))
        warn_wrong_readers(self.name, wrong)
        self._wrong_readers += wrong
        return self

    @property
    def wrong_readers(self) -> tuple[PlannedReader, ...]:
        """The readers that read the table before changes by this object, and return something wrong from then on."""
        return self._wrong_readers

    @property
    def _label(self) -> str:
        return self.name

    @property
    def _sql_name(self) -> str:
        return self.name

    @property
    def _full_schema(self) -> StructType:
        return self._schema_of(None)

    @property
    def _changeable_schema(self) -> StructType:
        return to_whole(self._table.schema(), read_sources(self._table.properties, self.name))

    def _schema_of(self, version: int | None) -> StructType:
        return self._columns(self._point(version))

    def _diff(self, old: int, new: int | None) -> SchemaDiff:
        before, after = self._point(old), self._point(new)
        return diff_snapshots(before, after, self._columns(before), self._columns(after), self._files)

    def _commits(self, limit: int | None) -> Iterator[tuple[int, int, dict[str, Any]]]:
        return snapshot_commits(self._table.metadata, limit, self._point(None).snapshot, self._files)

    def _acknowledge(self, subjects: Sequence[str], by: str | None) -> Self:
        snapshot = self.refresh()._table.current_snapshot()
        until_ms = self._table.metadata.last_updated_ms if snapshot is None else snapshot.timestamp_ms
        self._table = commit_properties(self._name, acknowledgement_properties(subjects, by, until_ms))
        return self

    def _read_loads(self) -> Iterable[Load]:
        return read_snapshot_loads(self._table, self._files, self._point(None).snapshot)

    def _read_traits(self) -> tuple[str, list[Trait]]:
        from widen.report.iceberg_traits import iceberg_traits

        return "iceberg", iceberg_traits(self._table.metadata, self._table.io, self._point(None).snapshot)

    @property
    def _files(self) -> LogStore:
        return open_store(self.location, self._table.io)

    def _preview_fold(self, column: Path, into: Path | None, spark: Session) -> FoldResult:
        from widen.changes.iceberg_changes import open_fold

        self._ensure_main()
        return open_fold(self._name, column, into, spark).preview

    def _fold(self, column: Path, into: Path | None, rest: Rest, spark: Session) -> TableChange[Self]:
        from widen.changes.iceberg_changes import open_fold

        self._ensure_main()
        metrics: dict[str, int] = {}

        def attempt(_: Conflicted | None) -> int | Conflicted:
            fold = open_fold(self._name, column, into, spark)
            ensure_values_kept(fold.preview, rest)
            metrics["numUpdatedRows"] = fold.moved_values(rest)
            return fold.commit(rest)

        version = retry_conflicts(attempt)
        with after_commit(self.name, version):
            return TableChange(self.refresh(), FOLD, version, metrics)

    def _change_options(
        self, frame: DataFrame, merge_schema: bool | None, widening: str | None, *, cast: bool
    ) -> SchemaChangeOptions:
        from widen.spark.session import schema_evolution_settings

        merges, mode = schema_evolution_settings(frame.sparkSession, merge_schema, widening)
        widens = partial(can_widen_automatically, TableFormat.ICEBERG_V2, mode) if merges else never
        return SchemaChangeOptions(merges, widens, cast, widen_fix=_WIDEN)

    def _change_rows(
        self,
        operation: str,
        where: Expression | None,
        spark: Session,
        change: Callable[[SelectedRows], IcebergChange],
    ) -> TableChange[Self]:
        """Change the rows that a condition selects, again if another writer commits first."""
        from widen.changes.iceberg_changes import select_iceberg_rows

        metrics: dict[str, int] = {}

        def attempt(_: Conflicted | None) -> int | Conflicted | None:
            done = change(select_iceberg_rows(self._name, where, spark, self._branch))
            metrics.update(done.metrics)
            return done.version

        version = retry_conflicts(attempt)
        if version is None:
            return TableChange(self.refresh(), operation, NO_SNAPSHOT, {})
        with after_commit(self.name, version):
            return TableChange(self.refresh(), operation, version, metrics)

    def _ensure_main(self) -> None:
        if self._branch is not None:
            expected = "A fold drops a column, which belongs to the whole table: open the main branch."
            raise InvalidOption(option="branch", value=self._branch, expected=expected)

    def _point(self, version: int | None) -> ReadPoint:
        branch = self._branch if version is None else None
        return find_read_point(self._table.metadata, SnapshotReference(version, branch=branch))

    def _columns(self, point: ReadPoint) -> StructType:
        return to_readable(point.schema, read_sources(self._table.properties, self.name))
