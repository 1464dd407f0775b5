"""The properties and the features of a table: set, unset, add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from widen.planning import command
from widen.table.opened import Opened

if TYPE_CHECKING:
    from typing_extensions import Self


class Upkeep(Opened):
    """A table whose properties and features are kept."""

    def set_properties(self, properties: Mapping[str, str]) -> Self:
        """Set properties in one commit, with the table features that they ask for.

        Raises:
            InvalidOption: a value cannot be used.
            UnsupportedFeatureForWrite: a property asks for a feature that this version cannot obey.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#table-features
        """
        return self._change(command.set_properties(self.refresh()._state, dict(properties)))

    def unset_properties(self, keys: Iterable[str]) -> Self:
        """Remove properties in one commit; the features that they asked for stay.

        Raises:
            InvalidOption: a property cannot be removed.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.
        """
        return self._change(command.unset_properties(self.refresh()._state, keys))

    def add_feature(self, name: str) -> Self:
        """Let the table support a feature, with what it requires, in one commit.

        Raises:
            InvalidOption: this version knows no such feature.
            UnsupportedFeatureForWrite: this version cannot obey it.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#table-features
        """
        return self._change(command.add_feature(self.refresh()._state, name))
