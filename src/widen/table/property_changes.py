"""The properties and the features of a table: set, remove, add.

Source: PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from widen.log.write.row_id_backfill import backfill_row_ids
from widen.model.argument_types import check_arguments
from widen.planning.alter.set_properties import (
    needs_backfill,
    plan_add_feature,
    plan_set_properties,
    plan_unset_properties,
)
from widen.protocol import tracking_columns
from widen.table.table_version import Self, TableVersion


class PropertyChangesMixin(TableVersion):
    """A table whose properties and features are set."""

    @check_arguments
    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set properties in one commit, with the table features that they ask for.

        Row tracking takes some more commits before: every file must have row ids when it is switched on.

        Args:
            properties: Texts by their keys, e.g. ``{"delta.enableTypeWidening": "true"}``. The case of a key that Delta
                knows does not count. Properties that are not named stay as they are.

        Raises:
            InvalidOption: a value cannot be used.
            IcebergIncompatible: compatibility with Iceberg is asked for, and the table is not compatible.
            UnsupportedFeatureForWrite: a property asks for a feature that this version cannot obey.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#table-features
        """
        if needs_backfill(self.refresh()._state, properties):
            self.add_feature(tracking_columns.FEATURE)
            self._snapshot = backfill_row_ids(self._store)
        return self._change(plan_set_properties(self._state, dict(properties)))

    @check_arguments
    def unset_properties(self, keys: Iterable[str]) -> Self:
        """Remove properties in one commit; the features that they asked for stay.

        Args:
            keys: Of the properties; one that is not set is no error.

        Raises:
            InvalidOption: a property cannot be removed.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.
        """
        return self._change(plan_unset_properties(self.refresh()._state, keys))

    @check_arguments
    def add_feature(self, name: str) -> Self:
        """Let the table support a feature, with what it requires, in one commit.

        Args:
            name: Of the feature, in any case, e.g. ``typeWidening``. Clients that do not know it can no longer open the
                table.

        Raises:
            InvalidOption: this version knows no such feature.
            IcebergIncompatible: it is a compatibility with Iceberg, which does not know a change of type of the table.
            UnsupportedFeatureForWrite: this version cannot obey it.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#table-features
        """
        return self._change(plan_add_feature(self.refresh()._state, name))
