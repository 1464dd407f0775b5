"""The columns of each source field, read off the schema of a table: the proof's own picture of it.

Source: docs/evolution-rules.md#u14, #u17, #d9, #d18
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from widen.model.column_path import Path
from widen.model.types import STRING, ArrayType, DataType, DecimalType, MapType, StructType
from widen.planning.evolution.policy import EpochUnit, Mode, Policy
from widen.planning.evolution.source_metadata import role_of, source_key

RECORD, MAP = "record", "map"

_RANK: Mapping[str, int] = MappingProxyType(
    {
        name: rank
        for rank, name in enumerate(
            (
                *(RECORD, MAP, "date", "boolean", "byte", "short", "integer", "long", "double", "float", "decimal"),
                *("timestamp_ntz", "binary", "string", "timestamp"),
            )
        )
    }
)
"""The types whose columns say values of JSON, in the order in which they are asked.

Dates come before the numbers that they are as well. Instants come last, since whole numbers are put there, too (U16).
"""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column that holds values of a source field.

    Args:
        name: Its name in the struct that it stands in.
        at: Its place there.
        dim: How many arrays it has.
        kind: The name of the type in the arrays; ``decimal``, `RECORD` and `MAP` too.
        type: That type.
        fields: Of records: the columns of each key.
        value: Of maps: what stands at a key.
        unit: Of timestamps: what whole numbers count, if that was said.
        has_booleans_as_numbers: Whether booleans become numbers here (D18: in mode split).
        is_dated: Whether texts of the field may be dates and instants, which numbers count as well.
    """

    name: str
    at: int
    dim: int
    kind: str
    type: DataType
    fields: Fields | None = None
    value: SourceColumn | None = None
    unit: EpochUnit | None = None
    has_booleans_as_numbers: bool = False
    is_dated: bool = False


Cells: TypeAlias = tuple[SourceColumn, ...]
Fields: TypeAlias = dict[str, Cells]
"""For each key of a record its columns, in the order in which they are asked."""


def fields_of(schema: StructType, policy: Policy) -> Fields:
    """Return the columns of each source field of a table.

    Args:
        schema: Of the table, with the metadata that says which field each column holds.
        policy: What whole numbers count in timestamps.

    Source: docs/evolution-rules.md#d9, #d14
    """
    return _fields(schema, policy, ())


def _fields(struct: StructType, policy: Policy, above: Path) -> Fields:
    found: dict[str, list[SourceColumn]] = {}
    for at, field in enumerate(struct):
        if above or role_of(field) is None:
            key = source_key(field)
            cell = _cell(field.name, at, field.type, policy, (*above, key))
            if cell is not None:
                found.setdefault(key, []).append(cell)
    return {key: tuple(sorted(cells, key=_order)) for key, cells in found.items()}


def _cell(name: str, at: int, data_type: DataType, policy: Policy, source: Path) -> SourceColumn | None:
    dim = 0
    while isinstance(data_type, ArrayType):
        data_type, dim = data_type.element, dim + 1
    match data_type:
        case StructType():
            return SourceColumn(name, at, dim, RECORD, data_type, _fields(data_type, policy, source))
        case MapType(key, value):
            inner = _cell(name, at, value, policy, source) if key == STRING else None
            return inner and SourceColumn(name, at, dim, MAP, data_type, value=inner)
        case DecimalType():
            is_split = _is_split(policy, source)
            return SourceColumn(name, at, dim, "decimal", data_type, has_booleans_as_numbers=is_split)
    if str(data_type) not in _RANK:
        return None
    unit = policy.epoch_units.get(source)
    is_dated = source in policy.pins or any(source[:length] in policy.dated for length in range(len(source) + 1))
    return SourceColumn(name, at, dim, str(data_type), data_type, None, None, unit, _is_split(policy, source), is_dated)


def _is_split(policy: Policy, source: Path) -> bool:
    """Tell whether the nearest mode that was said for a field, or else the mode of all, is split."""
    pins = (policy.pins.get(source[:length]) for length in range(len(source), 0, -1))
    return next((pin for pin in pins if isinstance(pin, Mode)), policy.mode) is Mode.SPLIT


def _order(cell: SourceColumn) -> tuple[object, ...]:
    inner = _order(cell.value) if cell.value is not None else ()
    return (cell.kind != RECORD, cell.dim, _RANK[cell.kind], inner)


def widest_record(cells: Cells) -> SourceColumn | None:
    """Return the column of records with the most arrays, which has all their fields (U17)."""
    return max((cell for cell in cells if cell.kind == RECORD), key=lambda cell: cell.dim, default=None)
