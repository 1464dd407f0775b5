"""The rows of a table: read, append."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from widen.log.write.commit import Committed, Conflicted, Outcome, StagedFiles, commit, retry_conflicts, write_metrics
from widen.model.argument_types import check_arguments
from widen.model.sql_literal import to_identifier
from widen.model.types import StructType
from widen.planning.alter.identity_columns import advance_identities
from widen.planning.evolution.format_capability import AutomaticWidening
from widen.planning.table.table_state import TableState
from widen.planning.unify.unified_columns import view_sql
from widen.planning.write.schema_growth import SchemaGrowth, can_retry_write, grow_schema, schema_change_options
from widen.protocol.actions import Action, Metadata
from widen.protocol.column_mapping import mapping_mode
from widen.protocol.table_features import ensure_writable
from widen.spark.delta_settings import schema_evolution_settings
from widen.spark.expression import Expression
from widen.spark.read.scan import read_snapshot, unify_rows
from widen.spark.session import find_session
from widen.spark.spark_types import DataFrame, SparkSession, from_spark
from widen.spark.write.missing_columns import missing_identities
from widen.spark.write.parquet_writer import write_parquet
from widen.table.table_version import Self, TableVersion


class ReadAndAppendMixin(TableVersion):
    """A table whose rows are read and written."""

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
        """Return the rows as a DataFrame in the types of that version, columns in the order of the schema.

        Args:
            where: The condition on the rows; a string in Spark SQL also skips files by partition values and statistics.
            version: The version to read; the one that this object shows if neither it nor a time is given.
            timestamp: The newest version not later than that; a text is ISO, in UTC unless it says otherwise.
            unified: Whether to give one column for each source field, which says what all its columns say together:
                in the common type of all, in text where there is none. ``where`` still means the columns as they are.
            spark: The session, classic or Connect; by default the active one, else a local one.

        Raises:
            VersionNotFound: there is no such version, or none so early.
            InvalidOption: both version and time are given, the time cannot be read, or an argument has the wrong type.
            UnsupportedTypeChange: the schema records a change that is not in the matrix.
            CorruptLog: the log is damaged.
            StorageError: the store refused.

        Source: PROTOCOL.md#reader-requirements-for-type-widening; docs/evolution-rules.md#one-logical-field
        """
        snapshot = self._past(version, timestamp)
        rows = read_snapshot(find_session(spark), self._store, snapshot, where)
        return unify_rows(rows, snapshot.schema) if unified else rows

    @check_arguments
    def view_sql(self, name: str, rows: str | None = None, *, temporary: bool = False) -> str:
        """Return the statement that makes a view with one column for each source field, as ``read(unified=True)``.

        Args:
            name: What the view is called, as SQL writes it.
            rows: What it is a view of, likewise; by default ``delta.`<location>```, for which Spark needs Delta Lake.
            temporary: Whether the view goes with the session.

        Source: docs/evolution-rules.md#one-logical-field
        """
        rows = rows or f"delta.{to_identifier(self.location)}"
        return view_sql(self._snapshot.schema, name, rows, is_temporary=temporary)

    @check_arguments
    def append(
        self, frame: DataFrame, *, merge_schema: bool | None = None, widening: str | None = None, cast: bool = False
    ) -> Self:
        """Add rows in one commit, and return the table at its new version.

        Columns are matched by name without case. What is narrower is cast; what the data lack becomes the default of
        its column, what its expression makes, or null. If somebody else changes the table meanwhile, the append is
        planned and written anew, unless it would put back a column that is gone.

        Args:
            frame: The rows.
            merge_schema: Whether the table gets new columns and, where type widening is enabled, wider types; by
                default what `spark.databricks.delta.schema.autoMerge.enabled` says.
            widening: Which types may widen then: ``always``, ``same_family`` or ``never``; by default what
                `spark.databricks.delta.typeWidening.allowAutomaticWidening` says.
            cast: Whether values are cast where that can fail; one that is out of range fails the append.

        Raises:
            SchemaMismatch: the data do not fit; the error names the columns with both types, and what they need.
            RowRefused: a row is one that the table may not hold, or a value is out of range; nothing is visible.
            IdentityColumnGiven: the data have values for a column whose values only the table makes.
            ColumnRefused: a new column cannot be, or a column with a rule of its own would widen.
            FeatureRequired: a new type needs a feature that the table does not have.
            InvalidOption: ``widening`` is none of the three.
            IcebergIncompatible: the table would no longer be one that Iceberg can read.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: others kept changing the table, or took a column away; nothing is visible.
            CorruptFile: a file that the frame reads cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: PROTOCOL.md#add-file-and-remove-file; Delta Lake's schema enforcement and evolution
        """
        merges, mode = schema_evolution_settings(frame.sparkSession, merge_schema, widening)
        plan = partial(self._grown, from_spark(frame.schema), merge_schema=merges, widening=mode, cast=cast)
        first = plan()

        def attempt(conflict: Conflicted | None) -> Committed | Conflicted:
            state, growth = first if conflict is None else plan()
            if conflict is not None and not can_retry_write(*first, state, growth):
                conflict.or_raise()
            outcome = self._write(frame, state, growth.metadata)
            return outcome if isinstance(outcome, Conflicted) else outcome.or_raise()

        return self._at(retry_conflicts(attempt))

    def _grown(
        self, incoming: StructType, *, merge_schema: bool, widening: AutomaticWidening, cast: bool
    ) -> tuple[TableState, SchemaGrowth]:
        """Go to the newest version, and return it with what becomes of it so that data fit."""
        state = self.refresh()._state
        ensure_writable(state.protocol, self.location)
        return state, grow_schema(
            state, incoming, schema_change_options(state, merge_schema=merge_schema, widening=widening, cast=cast)
        )

    def _write(self, frame: DataFrame, state: TableState, metadata: Metadata) -> Outcome:
        """Write rows under the metadata that the table is to have, and commit them with it if it changes."""
        parameters = {"mode": "Append", "partitionBy": list(metadata.partition_columns)}
        with StagedFiles() as staged:
            adds = write_parquet(frame, self._store, state.protocol, metadata)
            staged.add_files(self._store, adds)
            made = [field.name for field in missing_identities(frame, state.schema)]
            metadata = advance_identities(metadata, made, mapping_mode(metadata.configuration, state.protocol), adds)
            actions: list[Action] = [*([] if metadata == state.metadata else [metadata]), *adds]
            numbers = write_metrics(adds)
            return commit(self._store, self._snapshot, actions, "WRITE", parameters, metrics=numbers, staged=staged)
