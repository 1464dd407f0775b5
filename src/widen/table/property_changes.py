"""Set and unset properties; add features.

Source: PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from widen.log.write.commit_outcome import several_commits
from widen.log.write.row_id_backfill import backfill_row_ids
from widen.model.argument_types import check_arguments
from widen.planning.alter.alter_request import AnyPath, to_path
from widen.planning.alter.feature_removal import plan_mapping_removal
from widen.planning.alter.set_properties import (
    check_properties,
    needs_backfill,
    plan_add_feature,
    plan_cluster_by,
    plan_set_properties,
    plan_unset_properties,
)
from widen.protocol import column_mapping, tracking_columns
from widen.protocol.table_properties import canonical_keys
from widen.table import lazy_spark
from widen.table.open_table import Self
from widen.table.table_version import TableVersion

if TYPE_CHECKING:
    from widen.spark.spark_types import SparkSession
else:
    SparkSession = Any


class PropertyChangesMixin(TableVersion):
    """Methods that change properties and add features."""

    @check_arguments
    def set_properties(self, properties: Mapping[str, str], *, spark: SparkSession | None = None) -> Self:
        """Set properties in one commit, with the table features that they require, and return the table.

        Enabling row tracking takes more commits first: every file must have row ids before it is enabled. Setting
        ``delta.columnMapping.mode`` to ``none`` first rewrites every file with the names of the columns, in one commit.

        Args:
            properties: Values by key, e.g. ``{"delta.enableTypeWidening": "true"}``. Keys that Delta Lake defines are
                not case-sensitive. Other properties stay as they are.
            spark: The session, if files are rewritten; by default the active one, else a local one.

        Raises:
            InvalidOption: a value cannot be used.
            InvalidColumnName: column mapping ends, and the name of a column is not possible without it.
            FeatureStillNeeded: column mapping ends, and Iceberg compatibility needs it.
            IcebergIncompatible: a property enables Iceberg compatibility, and the table is not compatible.
            UnsupportedFeatureForWrite: a property requires a feature that this version does not support for writing.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#table-features
        """
        properties = check_properties(properties)
        with several_commits():
            if self._is_mapped() and properties.get(column_mapping.MODE) == column_mapping.NONE:
                others = {key: text for key, text in properties.items() if key != column_mapping.MODE}
                plan_set_properties(self._state, others)
                self._remove_column_mapping(spark, explicit=True)
                properties = others
            if needs_backfill(self._state, properties):
                self.add_feature(tracking_columns.FEATURE)
                self._snapshot = backfill_row_ids(self._store)
            return self._change(plan_set_properties(self._state, properties))

    def _is_mapped(self) -> bool:
        newest = self.refresh()
        return column_mapping.mapping_mode(newest.properties, newest.protocol) != column_mapping.NONE

    def _remove_column_mapping(self, spark: SparkSession | None, *, explicit: bool) -> None:
        plan_mapping_removal(self._state)
        remove: Any = lazy_spark.load("widen.table.drop_feature", "remove_column_mapping")
        remove(self._store, lambda: lazy_spark.find_session(spark), explicit=explicit)
        self.refresh()

    @check_arguments
    def unset_properties(self, keys: Iterable[str], *, spark: SparkSession | None = None) -> Self:
        """Remove properties in one commit, and return the table; the features that they required stay.

        Without ``delta.columnMapping.mode`` column mapping ends, and every file is rewritten first.

        Args:
            keys: The keys of the properties; keys that are not set are ignored.
            spark: As for `set_properties`.

        Raises:
            InvalidOption: a property cannot be removed.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.
        """
        given = canonical_keys(keys)
        with several_commits():
            if self._is_mapped() and column_mapping.MODE in given:
                self._remove_column_mapping(spark, explicit=False)
            return self._change(plan_unset_properties(self._state, given))

    @check_arguments
    def cluster_by(self, *columns: AnyPath) -> Self:
        """Cluster the table by columns from now on, in one commit, and return the table; without columns, no longer.

        No file is rewritten: Delta Lake's OPTIMIZE clusters the files.

        Args:
            columns: At most four columns that have a minimum and a maximum in the statistics of files.

        Raises:
            ColumnNotFound: a column does not exist.
            InvalidOption: the table is partitioned, or cannot be clustered by these columns.
            InvalidPath: a path cannot be read.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#clustered-table; Delta Lake's ALTER TABLE CLUSTER BY.
        """
        return self._change(plan_cluster_by(self.refresh()._state, [to_path(each) for each in columns]))

    @check_arguments
    def add_feature(self, name: str) -> Self:
        """Add a feature, and the features that it requires, in one commit, and return the table.

        Args:
            name: The feature, not case-sensitive, e.g. ``typeWidening``. Clients that do not support it can no longer
                open the table.

        Raises:
            InvalidOption: this version does not know the feature.
            IcebergIncompatible: it is an Iceberg compatibility feature, and Iceberg does not support a type change of
                the table.
            UnsupportedFeatureForWrite: this version does not support it for writing.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#table-features
        """
        return self._change(plan_add_feature(self.refresh()._state, name))
