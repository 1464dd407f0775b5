"""The columns of each source field, from the schema of a table: the proof's own code, not that of the writer.

Source: docs/evolution-rules.md#u14, #u17, #d9, #d18
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import STRING, ArrayType, DataType, DecimalType, MapType, StructType
from widen.planning.evolution.policy import EpochUnit, Mode, Numbers, Policy
from widen.planning.evolution.source_metadata import role_of, source_key
from widen.protocol.column_metadata import is_computed

RECORD, MAP = "record", "map"

_TYPE_ORDER: Mapping[str, int] = MappingProxyType(
    {
        name: order
        for order, name in enumerate(
            (
                *(RECORD, MAP, "date", "boolean", "byte", "short", "integer", "long", "double", "float", "decimal"),
                *("timestamp_ntz", "binary", "string", "timestamp"),
            )
        )
    }
)
"""The types of columns that hold JSON values, in the order in which the proof reads them.

Dates come before numbers, since a date may also stand in a column of numbers. Timestamps come last, since columns of
timestamps also hold integers (U16).
"""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column that holds values of a source field.

    Args:
        name: Name of the column in its struct.
        dim: Number of arrays around the leaf type.
        type_name: Name of the leaf type; ``decimal``, `RECORD` or `MAP` for types with parameters.
        fields: For records: the columns of each key.
        value: For maps: the column of the values.
        epoch_unit: For timestamps: unit of integers, if the policy names one.
        has_epochs: Whether integers stand in this timestamp column alone: it is fixed, and the policy names their unit.
        has_booleans_as_numbers: Whether booleans become numbers here: in mode split (D18).
        rounds: The kinds whose values a column of doubles rounds, because the policy asks for it.
        has_dates: Whether strings of the field may be dates and timestamps, which a column of numbers holds as counts.
    """

    name: str
    position: int
    dim: int
    type_name: str
    type: DataType
    fields: ColumnsByKey | None = None
    value: SourceColumn | None = None
    epoch_unit: EpochUnit | None = None
    has_epochs: bool = False
    has_booleans_as_numbers: bool = False
    has_dates: bool = False
    rounds: frozenset[str] = frozenset()


FieldColumns: TypeAlias = tuple[SourceColumn, ...]
ColumnsByKey: TypeAlias = dict[str, FieldColumns]
"""For each key of a record its columns, in the order in which the proof reads them."""


def computed_keys(schema: StructType) -> frozenset[str]:
    """Return the fields whose columns the table fills itself where a record has no value; the proof leaves them out.

    The table has either the value of the source there or a computed one, and it does not say which.
    """
    return frozenset(source_key(field) for field in schema if is_computed(field))


def columns_by_key(schema: StructType, policy: Policy) -> ColumnsByKey:
    """Return the columns of each source field of a table.

    Args:
        schema: Schema of the table; its metadata names the field of each column.

    Source: docs/evolution-rules.md#d9, #d14
    """
    return _columns_by_key(schema, policy, (), ())


def _columns_by_key(struct: StructType, policy: Policy, path: Path, above: Path) -> ColumnsByKey:
    by_key: dict[str, list[SourceColumn]] = {}
    for position, field in enumerate(struct):
        if above or (role_of(field) is None and not is_computed(field)):
            key = source_key(field)
            column = _source_column((*path, field.name), position, field.type, policy, (*above, key))
            if column is not None:
                by_key.setdefault(key, []).append(column)
    rounds = policy.numbers is Numbers.DOUBLE
    return {
        key: tuple(sorted(_with_rounding(columns) if rounds else columns, key=_sort_key))
        for key, columns in by_key.items()
    }


def _with_rounding(columns: Sequence[SourceColumn]) -> Sequence[SourceColumn]:
    """Return the columns of a field with what its doubles round: nothing beside decimals, no longs beside integers."""
    type_names = {column.type_name for column in columns}
    if type_names & {"decimal", "float"}:
        return columns
    rounds = frozenset({"decimal"} if type_names & _WHOLE else {"decimal", "long"})
    return [replace(column, rounds=rounds) if column.type_name == "double" else column for column in columns]


_WHOLE = frozenset({"byte", "short", "integer", "long"})


def _source_column(path: Path, position: int, data_type: DataType, policy: Policy, source: Path) -> SourceColumn | None:
    name, dim = path[-1], 0
    while isinstance(data_type, ArrayType):
        data_type, dim = data_type.element, dim + 1
    inside = (*path, *[ELEMENT] * dim)
    match data_type:
        case StructType():
            return SourceColumn(
                name, position, dim, RECORD, data_type, _columns_by_key(data_type, policy, inside, source)
            )
        case MapType(key, value):
            inner = _source_column((*inside, VALUE), position, value, policy, source) if key == STRING else None
            return inner and SourceColumn(name, position, dim, MAP, data_type, value=inner)
        case DecimalType():
            is_split = _is_split_mode(policy, source)
            return SourceColumn(name, position, dim, "decimal", data_type, has_booleans_as_numbers=is_split)
    if str(data_type) not in _TYPE_ORDER:
        return None
    above = [source[:length] for length in range(len(source) + 1)]
    dated = (policy.pins, policy.date_fields, policy.local_time_fields)
    has_dates = any(each in fields for each in above for fields in dated)
    return SourceColumn(
        name,
        position,
        dim,
        type_name=str(data_type),
        type=data_type,
        epoch_unit=policy.epoch_units.get(source),
        has_epochs=path in policy.fixed_columns and source in policy.epoch_units,
        has_booleans_as_numbers=_is_split_mode(policy, source),
        has_dates=has_dates,
    )


def _is_split_mode(policy: Policy, source: Path) -> bool:
    """Tell whether the mode of a field is split: the nearest mode on its path, else the default mode."""
    pins = (policy.pins.get(source[:length]) for length in range(len(source), 0, -1))
    return next((pin for pin in pins if isinstance(pin, Mode)), policy.mode) is Mode.SPLIT


def _sort_key(column: SourceColumn) -> tuple[object, ...]:
    inner = _sort_key(column.value) if column.value is not None else ()
    return (column.type_name != RECORD, column.dim, _TYPE_ORDER[column.type_name], inner)


def widest_record_column(columns: FieldColumns) -> SourceColumn | None:
    """Return the record column with the most arrays, which has all fields that have had a value (U17)."""
    return max(
        (column for column in columns if column.type_name == RECORD), key=lambda column: column.dim, default=None
    )


def merge_record_fields(columns: FieldColumns) -> ColumnsByKey:
    """Return the columns of each key in all record columns of a field.

    A column other than the widest may alone have a field that had values before, and that is only empty since.
    """
    by_key: ColumnsByKey = {}
    for column in columns:
        for key, inner in (column.fields or {}).items():
            by_key[key] = (*by_key.get(key, ()), *inner)
    return {key: tuple(sorted(inner, key=_sort_key)) for key, inner in by_key.items()}
