"""The shape of the records that fit the columns: a native decoder for each, and what it leaves to be routed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from widen.observe.field_rules import FieldRules
from widen.observe.observation import FieldObservation
from widen.routing.native.scalar_conversion import FastConverter
from widen.routing.route import ColumnSlot
from widen.routing.row import Row

SourcePath: TypeAlias = tuple[str, ...]
"""Keys from the root to a field, arrays passed over."""

FieldLocation: TypeAlias = tuple[tuple[str, int], ...]
"""The records around a field: the key of each, and how many arrays are around it."""


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """What a batch has shown so far, beyond what the columns say.

    Args:
        rescues: What no column holds is kept in a column for the rest, which only the exact path fills.
        loose: The fields whose values are of other kinds as well than their columns have natively.
        empty: The fields without a column, each with what it has held: nothing but nulls, ``[]`` and ``{}``.
    """

    rescues: bool = False
    loose: frozenset[SourcePath] = frozenset()
    empty: Mapping[SourcePath, FieldObservation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SingleColumn:
    """A field with one column, which takes what the decoder lets through.

    Args:
        attribute: Of the decoded record.
        name: Of the column.
        node: The records in it, if it holds any.
    """

    attribute: str
    name: str
    node: RecordShape | None


@dataclass(frozen=True, slots=True)
class NestedColumn:
    """A column of arrays or records that takes a value of its own form, and that nobody else takes.

    Args:
        name: Of the column.
        decoder: Of that form.
    """

    name: str
    decoder: msgspec.json.Decoder[Any]


@dataclass(frozen=True, slots=True)
class RedactedField:
    """A field whose values nobody is to see.

    Args:
        attribute: Of the decoded record.
        row: What its columns hold for every value; none of a field that is left out.
    """

    attribute: str
    row: Row


@dataclass(frozen=True, slots=True)
class MultiColumnField:
    """A field that is routed by hand: it has several columns, or values that need a conversion or a closer look.

    Args:
        key: In the source.
        attribute: Of the decoded record.
        place: The records around it.
        slots: Its columns.
        reading: How its values are taken.
        nodes: The records in its columns, by the name of the column.
        ways: How scalars get into its columns.
        is_strict: Values that came as text and have no way take the exact path.
        is_required: It must not be null; where it is, the record takes the exact path.
        is_dated: Whether a text is a date or an instant has to be seen from the text.
        direct: The columns that take arrays, maps and records that came as text as they are.
        is_decoded: The values come decoded, since their form alone tells the columns; else they come as text.
    """

    key: str
    attribute: str
    place: FieldLocation
    slots: tuple[ColumnSlot, ...]
    reading: FieldRules
    nodes: Mapping[str, RecordShape]
    ways: FastConverter
    is_strict: bool = False
    is_required: bool = False
    is_dated: bool = False
    direct: tuple[NestedColumn, ...] = ()
    is_decoded: bool = False


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The decoder of one record, and how its fields become columns; a field in no list has no column."""

    struct: type[msgspec.Struct]
    plain: tuple[SingleColumn, ...]
    hidden: tuple[RedactedField, ...]
    forked: tuple[MultiColumnField, ...]

    @property
    def is_forked(self) -> bool:
        """Whether some field in it, at any depth, is not taken as it is."""
        inside = (item.node for item in self.plain if item.node is not None)
        return bool(self.forked or self.hidden) or any(node.is_forked for node in inside)
