"""The shape of the records that fit the columns: a native decoder for a record, and the fields that it leaves to
routing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from widen.observe.field_rules import FieldRules
from widen.observe.observation import FieldObservation
from widen.routing.native.scalar_conversion import FastConverter
from widen.routing.route import ColumnSlot
from widen.routing.row import Row

SourcePath: TypeAlias = tuple[str, ...]
"""Keys from the root to a field, without the arrays on the way."""

FieldLocation: TypeAlias = tuple[tuple[str, int], ...]
"""The records around a field: the key of each, and the number of arrays around it."""


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """What a batch has shown so far and the schema does not say.

    Args:
        rescues: Whether the table has a rescue column, which only the exact path fills.
        mixed_fields: Fields with values of kinds that their columns do not take natively.
        empty_fields: Fields without a column, each with what it held: only nulls, ``[]`` and ``{}``.
        key_orders: For the records at each path, their keys in the order of the first texts; a decoder whose fields
            have this order is faster.
    """

    rescues: bool = False
    mixed_fields: frozenset[SourcePath] = frozenset()
    empty_fields: Mapping[SourcePath, FieldObservation] = field(default_factory=dict)
    key_orders: Mapping[SourcePath, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SingleColumn:
    """A field with one column, which takes every value that the decoder accepts.

    Args:
        shape: Shape of the records in the column, if it holds records.
    """

    attribute: str
    name: str
    shape: RecordShape | None


@dataclass(frozen=True, slots=True)
class NestedColumn:
    """An array or record column that takes the values of its own form; no other column takes any part of them."""

    name: str
    decoder: msgspec.json.Decoder[Any]


@dataclass(frozen=True, slots=True)
class RedactedField:
    """A field that the policy masks or excludes.

    Args:
        row: What its columns hold for every value; empty for an excluded field.
    """

    attribute: str
    row: Row


@dataclass(frozen=True, slots=True)
class MultiColumnField:
    """A field that needs routing: it has several columns, or its values need a conversion or a closer look.

    Args:
        is_strict: Whether values that came as text and have no conversion need the exact path.
        is_required: Whether null needs the exact path, since a column is NOT NULL.
        has_dates: Whether strings must be checked for dates and timestamps.
        nested_columns: Columns that take arrays, maps and records from their text without routing.
        is_decoded: Whether values come decoded, because their JSON form alone determines the columns; else they come as
            text.
    """

    key: str
    attribute: str
    location: FieldLocation
    slots: tuple[ColumnSlot, ...]
    rules: FieldRules
    shapes: Mapping[str, RecordShape]
    converter: FastConverter
    is_strict: bool = False
    is_required: bool = False
    has_dates: bool = False
    nested_columns: tuple[NestedColumn, ...] = ()
    is_decoded: bool = False


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The decoder of a record, and how its fields become columns. A field in no list has no column."""

    struct: type[msgspec.Struct]
    single_columns: tuple[SingleColumn, ...]
    redacted_fields: tuple[RedactedField, ...]
    multi_column_fields: tuple[MultiColumnField, ...]

    @property
    def needs_routing(self) -> bool:
        """Whether any field, at any depth, is not a column as decoded."""
        nested = (column.shape for column in self.single_columns if column.shape is not None)
        return bool(self.multi_column_fields or self.redacted_fields) or any(shape.needs_routing for shape in nested)
