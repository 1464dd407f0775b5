"""The change data feed of a table."""

from __future__ import annotations

from collections.abc import Iterator

from widen.errors import ChangeFeedNotRecorded, ChangeFeedSchemaChanged, ChangeFeedSchemaMismatch, InvalidOption
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.read.version_changes import VersionChanges, version_changes
from widen.model.argument_types import check_arguments
from widen.model.schema_json import from_json
from widen.planning.write.change_feed_schema import is_representable_in
from widen.protocol.table_properties import ENABLE_CHANGE_DATA_FEED, is_on
from widen.spark.dml.changed_rows import read_changed_rows
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
        if end < first:
            raise InvalidOption(option="last", value=last, expected=f"It is not before the first, which is {first}.")
        start = open_snapshot(self._store, first)
        if not is_on(start.properties, ENABLE_CHANGE_DATA_FEED):
            raise ChangeFeedNotRecorded(first=first, last=end, version=first)
        version_list = list(_ensure_representable(self._snapshot, first, end))
        if not is_representable_in(start.schema, first, self._snapshot.schema, self.version):
            shown, schema = self.version, self.schema.sql
            raise ChangeFeedSchemaMismatch(first=first, last=end, version=first, shown=shown, schema=schema)
        return read_changed_rows(find_session(spark), self._snapshot, version_list)


def _ensure_representable(shown: Snapshot, first: int, last: int) -> Iterator[VersionChanges]:
    """Yield the changes of each version; raise if the schema of this object cannot represent its rows."""
    for each in version_changes(shown.store, first, last):
        if each.metadata is not None and not is_on(each.metadata.configuration, ENABLE_CHANGE_DATA_FEED):
            raise ChangeFeedNotRecorded(first=first, last=last, version=each.version)
        if each.metadata is not None and each.version > first:
            schema = from_json(each.metadata.schema_string)
            if not is_representable_in(schema, each.version, shown.schema, shown.version):
                raise ChangeFeedSchemaChanged(
                    first=first, last=last, version=each.version, shown=shown.version, schema=shown.schema.sql
                )
        yield each
