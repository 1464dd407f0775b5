"""The class `Table`: read and append rows, and create and open tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

import pyarrow as pa

from widen.errors import TableAlreadyExists
from widen.log.commit import Committed, Conflicted, Outcome, StagedFiles, commit, retry_conflicts, write_metrics
from widen.log.commit_files import current_ms
from widen.log.log_segment import list_log
from widen.log.log_store import LogStore
from widen.log.vacuum import ensure_location_empty
from widen.model.argument_types import check_arguments
from widen.model.column_path import as_nullable
from widen.model.lazy_module import import_lazily
from widen.model.types import StructType
from widen.protocol.actions import Action, Metadata
from widen.protocol.column_metadata import has_expressions
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_writable
from widen.protocol.table_properties import canonical_properties
from widen.schema.alter import AnyPath, changed_configuration, to_path
from widen.schema.growth import SchemaGrowth, can_retry_write, grow_schema, schema_change_options
from widen.schema.source_metadata import AutomaticWidening
from widen.schema.table_definition import advance_identities, plan_create_table
from widen.schema.table_state import TableState
from widen.table.local_frames import LocalFramesMixin
from widen.table.maintenance import MaintenanceMixin, MirrorMixin, VacuumMixin
from widen.table.open_table import Self, TableVersion, to_table_schema
from widen.table.results import TableChange
from widen.table.row_operations import DeltaFoldMixin

if TYPE_CHECKING:
    from widen.files import data_reader, expressions
    from widen.spark.expression import Expression
    from widen.spark.spark_types import DataFrame, SchemaLike, SparkSession
else:
    data_reader, expressions = map(import_lazily, ("widen.files.data_reader", "widen.files.expressions"))


WRITE = "WRITE"


class ReadAndAppendMixin(TableVersion):
    """Methods that read rows and changes, and append rows."""

    @check_arguments
    def read(
        self,
        where: Expression | None = None,
        *,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        unified: bool = False,
        spark: SparkSession | None = None,
    ) -> DataFrame:
        """Return the rows as a DataFrame, with the columns and types of the schema of that version.

        Args:
            where: The condition on the rows; a string in Spark SQL also skips files by partition values and statistics.
            version: The version to read; without a version and a timestamp, the version of this object.
            timestamp: Reads the newest version that is not later than this; a string is ISO 8601, in UTC by default.
            unified: Whether to return one column for each source field, which combines all table columns of that field
                in their common type, or as a string without a common type. ``where`` refers to the table columns.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            VersionNotFound: the version does not exist, or all versions are newer than the timestamp.
            InvalidOption: both version and timestamp are given, the timestamp cannot be parsed, or an argument has the
                wrong type.
            UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
            CorruptLog: the log is damaged.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#reader-requirements-for-type-widening; docs/evolution-rules.md#one-logical-field
        """
        from widen.frames.scan import read_snapshot, unify_rows
        from widen.spark.engine import find_session

        snapshot = self._past(version, timestamp)
        rows = read_snapshot(
            find_session(spark, "it returns a DataFrame of Spark; to_arrow, to_pandas and to_polars need none"),
            self._store,
            snapshot,
            where,
        )
        return unify_rows(rows, snapshot.schema) if unified else rows

    @check_arguments
    def changes(self, first: int, last: int | None = None, *, spark: SparkSession | None = None) -> DataFrame:
        """Return the rows that versions inserted, updated and deleted, in the schema of this object's version.

        In addition to the table columns a row has ``_change_type`` (insert, delete, update_preimage, update_postimage),
        ``_commit_version`` and ``_commit_timestamp``.

        Args:
            first: The first version.
            last: The last version; by default the version of this object.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            InvalidOption: the last version is before the first, or an argument has the wrong type.
            VersionNotFound: a version does not exist, or no longer exists.
            ChangeFeedNotRecorded: the change data feed was disabled in one of the versions.
            ChangeFeedSchemaMismatch: the first version, or the rows that it removed, have other columns or types than
                the version of this object.
            ChangeFeedSchemaChanged: columns or types changed between the versions.
            CorruptLog: a commit is damaged.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#add-cdc-file; Delta Spark's change data feed, which does not support type changes either
        """
        from widen.frames.change_feed import load_changes, read_changed_rows
        from widen.spark.engine import find_session

        end = self.version if last is None else last
        return read_changed_rows(
            find_session(spark, "it returns a DataFrame of Spark"),
            self._snapshot,
            load_changes(self._snapshot, first, end),
        )

    @check_arguments
    def append(
        self, frame: DataFrame, *, merge_schema: bool | None = None, widening: str | None = None, cast: bool = False
    ) -> TableChange[Self]:
        """Add rows in one commit, and return the `TableChange`.

        Columns are matched by name, not case-sensitive. Narrower types are cast; columns that the data lack get their
        default, their generated value, or null. After a conflict with another commit, the append is planned and
        written again, unless it would add back a column that was dropped.

        Args:
            frame: The rows.
            merge_schema: Whether to add new columns and, where type widening is enabled, widen types; the default is
                `spark.databricks.delta.schema.autoMerge.enabled`.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; the default is
                `spark.databricks.delta.typeWidening.allowAutomaticWidening`.
            cast: Whether to cast to other types too, as an INSERT does; a value that does not fit fails the append.

        Raises:
            SchemaMismatch: the data do not fit; the error names the columns, both types, and what would make them fit.
            RowRefused: a row violates a column rule or a constraint, or a value is out of range; nothing is visible.
            IdentityColumnGiven: the data have values for a GENERATED ALWAYS AS IDENTITY column.
            ColumnRefused: a column cannot be added, or a column that an expression or constraint uses would widen.
            FeatureRequired: a new type requires a feature that the table does not support.
            InvalidOption: ``widening`` is not one of the three values.
            IcebergIncompatible: Iceberg could no longer read the table.
            UnsupportedFeatureForWrite: the table has a feature that this version does not support for writing.
            ContentionError: concurrent commits kept conflicting, or dropped a column; nothing is visible.
            CorruptFile: a file that the frame reads cannot be read.
            JobFailed: the Spark job failed; nothing is visible.
            StorageError: the storage returned an error; nothing is visible.

        Source: PROTOCOL.md#add-file-and-remove-file; Delta Lake's schema enforcement and evolution
        """
        from widen.spark.session import schema_evolution_settings
        from widen.spark.spark_types import from_spark

        metrics: dict[str, int] = {}
        merges, mode = schema_evolution_settings(frame.sparkSession, merge_schema, widening)
        plan = partial(self._grown, from_spark(frame.schema), merge_schema=merges, widening=mode, cast=cast)
        first = plan()

        def attempt(conflict: Conflicted | None) -> Committed | Conflicted:
            state, growth = first if conflict is None else plan()
            if conflict is not None and not can_retry_write(*first, state, growth):
                conflict.or_raise()
            result = self._write(frame, state, growth.metadata, metrics)
            return result if isinstance(result, Conflicted) else result.or_raise()

        self._at(retry_conflicts(attempt))
        return TableChange(self, WRITE, self.version, metrics)

    def _grown(
        self, incoming: StructType, *, merge_schema: bool, widening: AutomaticWidening, cast: bool
    ) -> tuple[TableState, SchemaGrowth]:
        """Refresh, and return the newest version with the schema growth that the data need."""
        state = self.refresh()._state
        ensure_writable(state.protocol, self.location)
        return state, grow_schema(
            state, incoming, schema_change_options(state, merge_schema=merge_schema, widening=widening, cast=cast)
        )

    def _write(self, frame: DataFrame, state: TableState, metadata: Metadata, metrics: dict[str, int]) -> Outcome:
        """Write rows with the new metadata, commit both, and put the metrics of this attempt into ``metrics``."""
        from widen.frames.parquet_writer import write_parquet
        from widen.frames.physical_layout import missing_identities

        parameters = {"mode": "Append", "partitionBy": list(metadata.partition_columns)}
        table = TableConfiguration(state.protocol, metadata)
        with StagedFiles() as staged:
            adds = write_parquet(frame, self._store, table)
            staged.add_files(self._store, adds)
            identities = [field.name for field in missing_identities(frame, state.schema)]
            metadata = advance_identities(table, identities, adds)
            actions: list[Action] = [*changed_configuration(state, metadata), *adds]
            metrics.update(write_metrics(adds))
            return commit(self._store, self._snapshot, actions, WRITE, parameters, metrics=metrics, staged=staged)


# Rows of small tables as Arrow tables, pandas and polars frames.


class DeltaFramesMixin(LocalFramesMixin, TableVersion):
    """How a Delta table brings rows into this process."""

    def _query_here(self, where: str | None, limit: int, *, unified: bool) -> pa.Table:
        from widen.files.arrow_types import to_arrow_schema

        if where is None and not unified:
            return data_reader.read_locally(self._snapshot, limit)
        columns, rows = expressions.query_locally(self._snapshot, where, limit=limit, unified=unified)
        return rows.cast(to_arrow_schema(columns if unified else self.schema))

    def _frame(self, where: Expression | None, spark: SparkSession, *, unified: bool) -> tuple[DataFrame, StructType]:
        from widen.frames.scan import read_snapshot, unify_rows
        from widen.spark.spark_types import from_spark

        rows = read_snapshot(spark, self._store, self._snapshot, where)
        if not unified:
            return rows, self._snapshot.schema
        rows = unify_rows(rows, self._snapshot.schema)
        return rows, from_spark(rows.schema)


@check_arguments
def create_table(
    location: str | PathLike[str],
    schema: SchemaLike,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[AnyPath] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    description: str | None = None,
    spark: SparkSession | None = None,
) -> Table:
    """Create an empty table and return it.

    Args:
        location: A local path or a URL of an object store.
        schema: Its columns.
        partition_by: The partition columns.
        cluster_by: The columns that Delta Lake's OPTIMIZE clusters the files by: at most four, with statistics. A table
            has clustering or partitions, not both.
        properties: Its properties, e.g. ``{"delta.enableTypeWidening": "true"}``. They override the session
            defaults: ``spark.databricks.delta.properties.defaults.*``.
        storage_options: Settings and credentials of the store.
        description: The description of the table.
        spark: The session that checks defaults and generated columns, if it has any; by default the active one, else a
            local one.

    Raises:
        TableAlreadyExists: there is already a table at this location.
        InvalidOption: the location has other files, or a name, a column to partition or cluster by or a property
            cannot be used.
        InvalidType: the schema string cannot be parsed.
        InvalidDefault: the default of a column cannot be used.
        InvalidGeneration: the expression of a generated column cannot be used.
        IcebergIncompatible: a property enables Iceberg compatibility, and the table would not be compatible.
        UnsupportedFeatureForWrite: a property requires a feature that this version does not support for writing.
        StorageError: the storage returned an error.

    Source: PROTOCOL.md#change-metadata
    """
    store, wanted = LogStore(location, storage_options), to_table_schema(schema)
    now_ms = current_ms()
    if has_expressions(wanted):
        from widen.frames.row_checks import ensure_expressions_valid
        from widen.spark.engine import open_session

        ensure_expressions_valid(open_session(spark), wanted)
    wished = {**_default_properties(spark), **canonical_properties(properties or {})}
    clustered_by = [to_path(each) for each in cluster_by]
    change = plan_create_table(wanted, tuple(partition_by), wished, now_ms, description, clustered_by)
    if list_log(store).newest < 0:
        ensure_location_empty(store, "location")
    return Table._of(commit(store, None, change.actions, change.operation, change.parameters).or_raise())


def create_table_as(
    location: str,
    rows: DataFrame,
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[AnyPath] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    description: str | None = None,
) -> Table:
    """Create a table with rows in one commit, and return it.

    Raises:
        TableAlreadyExists: there is already a table at this location; nothing is written.

    Source: Delta Spark's CREATE TABLE AS SELECT
    """
    from widen.frames.parquet_writer import write_parquet
    from widen.spark.session import default_properties
    from widen.spark.spark_types import from_spark

    store = LogStore(location, storage_options)
    if list_log(store).newest >= 0:
        raise TableAlreadyExists(location=store.location)
    ensure_location_empty(store, "location")
    wished = {**default_properties(rows.sparkSession), **canonical_properties(properties or {})}
    schema = as_nullable(from_spark(rows.schema))
    clustered_by = [to_path(each) for each in cluster_by]
    change = plan_create_table(schema, tuple(partition_by), wished, current_ms(), description, clustered_by)
    with StagedFiles() as staged:
        adds = write_parquet(rows, store, change.table)
        staged.add_files(store, adds)
        actions: list[Action] = [*change.actions, *adds]
        metrics = write_metrics(adds)
        outcome = commit(store, None, actions, CREATE_AS, change.parameters, metrics=metrics, staged=staged)
    return Table._of(outcome.or_raise())


CREATE_AS = "CREATE TABLE AS SELECT"


def _default_properties(spark: SparkSession | None) -> Mapping[str, str]:
    if spark is None and sys.modules.get("pyspark") is None:
        return {}  # no session can be active
    from widen.spark.engine import find_started
    from widen.spark.session import default_properties, find_active

    return default_properties(find_started(spark) or find_active())


class Table(ReadAndAppendMixin, DeltaFramesMixin, DeltaFoldMixin, MaintenanceMixin, VacuumMixin, MirrorMixin):
    """A Delta table at one version: the newest when it was opened, and after each change made through it.

    Args:
        location: A local path or a URL of an object store.
        storage_options: Settings and credentials of the store.

    Raises:
        TableNotFound: the table does not exist.
        CorruptLog: its log is damaged.
        UnsupportedFeatureForRead: it requires a feature that this version does not support.
        StorageError: the storage returned an error.
    """
