"""Read rows, the change data feed too, and append rows."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from widen.log.write.commit import Committed, Conflicted, Outcome, StagedFiles, commit, retry_conflicts, write_metrics
from widen.model.argument_types import check_arguments
from widen.model.types import StructType
from widen.planning.alter.identity_columns import advance_identities
from widen.planning.evolution.format_capability import AutomaticWidening
from widen.planning.table.table_state import TableState
from widen.planning.write.schema_growth import SchemaGrowth, can_retry_write, grow_schema, schema_change_options
from widen.protocol.actions import Action, Metadata
from widen.protocol.column_mapping import mapping_mode
from widen.protocol.table_features import ensure_writable
from widen.spark.delta_settings import schema_evolution_settings
from widen.spark.dml.changed_rows import load_changes, read_changed_rows
from widen.spark.expression import Expression
from widen.spark.read.scan import read_snapshot, unify_rows
from widen.spark.session import find_session
from widen.spark.spark_types import DataFrame, SparkSession, from_spark
from widen.spark.write.missing_columns import missing_identities
from widen.spark.write.parquet_writer import write_parquet
from widen.table.open_table import Self
from widen.table.results import TableChange
from widen.table.table_version import TableVersion

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
            unified: Whether to return one column for each source field, which combines all table columns of that field:
                in their common type, or as a string if there is none. ``where`` refers to the table columns.
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
        snapshot = self._past(version, timestamp)
        rows = read_snapshot(find_session(spark), self._store, snapshot, where)
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
        end = self.version if last is None else last
        return read_changed_rows(find_session(spark), self._snapshot, load_changes(self._snapshot, first, end))

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
        parameters = {"mode": "Append", "partitionBy": list(metadata.partition_columns)}
        with StagedFiles() as staged:
            adds = write_parquet(frame, self._store, state.protocol, metadata)
            staged.add_files(self._store, adds)
            identities = [field.name for field in missing_identities(frame, state.schema)]
            mode = mapping_mode(metadata.configuration, state.protocol)
            metadata = advance_identities(metadata, identities, mode, adds)
            actions: list[Action] = [*([] if metadata == state.metadata else [metadata]), *adds]
            metrics.update(write_metrics(adds))
            return commit(self._store, self._snapshot, actions, WRITE, parameters, metrics=metrics, staged=staged)
