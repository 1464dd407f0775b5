"""The rows of a table: read, append."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from widen.log.commit import Conflicted, commit
from widen.planning import command
from widen.planning.merge import Leeway, merge, never
from widen.planning.retype import is_enabled
from widen.protocol.action import Action
from widen.protocol.feature import ensure_data_writable, ensure_writable
from widen.protocol.widening import is_widening
from widen.spark.scan import read
from widen.spark.schema import Column, DataFrame, SparkSession, from_spark
from widen.spark.write import discard, write
from widen.table.opened import Opened
from widen.target import metrics

if TYPE_CHECKING:
    from typing_extensions import Self


class Rows(Opened):
    """A table whose rows are read and written."""

    def read(
        self,
        spark: SparkSession,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        where: str | Column | None = None,
    ) -> DataFrame:
        """Return the rows as a DataFrame in the types of that version, columns in the order of the schema.

        Args:
            spark: The session, classic or Connect.
            version: Of the table; the one that this object shows if neither it nor a time is given.
            timestamp: The newest version not later than that; a text is ISO, in UTC unless it says otherwise.
            where: Which rows; a text in Spark SQL also skips files by partition values and statistics.

        Raises:
            VersionNotFound: there is no such version, or none so early.
            InvalidOption: both version and time are given, or the time cannot be read.
            UnsupportedTypeChange: the schema records a change that is not in the matrix.
            CorruptLog: the log is damaged.
            StorageError: the store refused.

        Source: PROTOCOL.md#reader-requirements-for-type-widening
        """
        return read(spark, self._store, self._past(version, timestamp), where)

    def append(self, frame: DataFrame, *, merge_schema: bool = False) -> Self:
        """Add rows in one commit, and return the table at its new version.

        Columns are matched by name without case; what the data lack becomes null, what is narrower is cast.

        Args:
            frame: The rows.
            merge_schema: Whether the table gets new columns and, where type widening is enabled, wider types.

        Raises:
            SchemaMismatch: the data do not fit; the error names the columns and both types.
            FeatureRequired: a new type needs a feature that the table does not have.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody changed the schema meanwhile; nothing is visible.
            CorruptFile: a file that the frame reads cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: PROTOCOL.md#add-file-and-remove-file
        """
        self.refresh()
        state = self._state
        ensure_writable(state.protocol, self.location)
        ensure_data_writable(state.protocol, state.properties, state.schema, self.location)
        widens = is_widening if merge_schema and is_enabled(state) else never
        operations = merge(state.schema, from_spark(frame.schema), Leeway(adds=merge_schema, widens=widens))
        metadata = command.with_operations(state, operations) if operations else state.metadata
        adds = write(frame, self._store, state.protocol, metadata)
        actions: list[Action] = [*([metadata] if operations else []), *adds]
        parameters = {"mode": "Append", "partitionBy": list(self.partition_by)}
        outcome = commit(self._store, self._snapshot, actions, "WRITE", parameters, metrics=metrics(adds))
        if isinstance(outcome, Conflicted):
            discard(self._store, adds)
        return self._at(outcome)
