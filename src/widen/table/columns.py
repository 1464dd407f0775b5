"""The columns of a table: change, add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from widen.model.path import Path, parse_path
from widen.model.text import parse_type
from widen.model.type import DataType
from widen.planning import alter, command
from widen.table.opened import Opened

if TYPE_CHECKING:
    from typing_extensions import Self


class Columns(Opened):
    """A table whose columns are changed; no file is rewritten."""

    def alter_column(
        self,
        path: str | Path,
        *,
        type: DataType | str | None = None,
        comment: str | None = None,
        nullable: bool | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> Self:
        """Change a column in one commit, and return the table at its new version; no file is rewritten.

        Args:
            path: The column, e.g. ``amount``, ``address.zip``, ``tags.element``, ``prices.value``.
            type: The wider type, e.g. ``"bigint"``; widening must be enabled.
            comment: The new comment.
            nullable: Whether it may be null; it can only be allowed.
            first: Whether it becomes the first of its struct.
            after: The column that it is to follow.

        Raises:
            ColumnNotFound: no such column.
            InvalidPath: the path cannot be read.
            InvalidType: the type cannot be read.
            NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
            TypeChangeRefused: widening is not enabled, the pair is not in the matrix, or something depends on it.
            FeatureRequired: the new type needs a feature that the table does not have.
            InvalidOption: a comment, a nullability or a place that cannot be.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#writer-requirements-for-type-widening
        """
        new = parse_type(type) if isinstance(type, str) else type
        wanted = alter.ColumnChange(new, comment, nullable, alter.FIRST if first else after)
        parts = parse_path(path) if isinstance(path, str) else tuple(path)
        return self._change(alter.alter_column(self.refresh()._state, parts, wanted))

    def add_columns(self, columns: Mapping[str, DataType | str]) -> Self:
        """Add columns or nested fields in one commit; rows written before have null in them.

        Args:
            columns: The type of each by its path, e.g. ``{"note": "string", "items.element.price": "decimal(10,2)"}``.

        Raises:
            InvalidOption: there is a column of that name, or the name cannot be used.
            InvalidPath: a path cannot be read.
            InvalidType: a type cannot be read.
            ColumnNotFound: the struct that a path names is not there.
            FeatureRequired: a type needs a feature that the table does not have.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#change-metadata
        """
        types = {path: parse_type(one) if isinstance(one, str) else one for path, one in columns.items()}
        return self._change(command.add_columns(self.refresh()._state, types))
