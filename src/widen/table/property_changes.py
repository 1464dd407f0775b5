"""Set and unset properties; add features.

Source: PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from widen.log.write.commit_outcome import several_commits
from widen.log.write.row_id_backfill import backfill_row_ids
from widen.model.argument_types import check_arguments
from widen.planning.alter.set_properties import (
    needs_backfill,
    plan_add_feature,
    plan_set_properties,
    plan_unset_properties,
)
from widen.protocol import tracking_columns
from widen.table.open_table import Self
from widen.table.table_version import TableVersion


class PropertyChangesMixin(TableVersion):
    """Methods that change properties and add features."""

    @check_arguments
    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set properties in one commit, with the table features that they require, and return the table.

        Enabling row tracking takes more commits first: every file must have row ids before it is enabled.

        Args:
            properties: Values by key, e.g. ``{"delta.enableTypeWidening": "true"}``. Keys that Delta Lake defines are
                not case-sensitive. Other properties stay as they are.

        Raises:
            InvalidOption: a value cannot be used.
            IcebergIncompatible: a property enables Iceberg compatibility, and the table is not compatible.
            UnsupportedFeatureForWrite: a property requires a feature that this version does not support for writing.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#table-features
        """
        with several_commits():
            if needs_backfill(self.refresh()._state, properties):
                self.add_feature(tracking_columns.FEATURE)
                self._snapshot = backfill_row_ids(self._store)
            return self._change(plan_set_properties(self._state, dict(properties)))

    @check_arguments
    def unset_properties(self, keys: Iterable[str]) -> Self:
        """Remove properties in one commit, and return the table; the features that they required stay.

        Args:
            keys: The keys of the properties; keys that are not set are ignored.

        Raises:
            InvalidOption: a property cannot be removed.
            ContentionError: a concurrent commit changed the schema or the properties.
            StorageError: the storage returned an error.
        """
        return self._change(plan_unset_properties(self.refresh()._state, keys))

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
