"""The change data feed of a table."""

from __future__ import annotations

from widen.model.argument_types import check_arguments
from widen.spark.dml.changed_rows import load_changes, read_changed_rows
from widen.spark.session import find_session
from widen.spark.spark_types import DataFrame, SparkSession
from widen.table.table_version import TableVersion


class ChangeFeedMixin(TableVersion):
    """Methods that read the change data feed."""

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
            ChangeFeedSchemaMismatch: the first version has other columns or types than the version of this object.
            ChangeFeedSchemaChanged: columns or types changed between the versions.
            CorruptLog: a commit is damaged.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#add-cdc-file; Delta Spark's change data feed, which does not support type changes either
        """
        end = self.version if last is None else last
        version_list = load_changes(self._snapshot, first, end)
        return read_changed_rows(find_session(spark), self._snapshot, version_list)
