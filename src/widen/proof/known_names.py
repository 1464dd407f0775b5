"""The fields that the keys of a record stand for: the proof's own code, not that of the writer.

Source: docs/evolution-rules.md#d9
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from widen.model.column_path import Path
from widen.model.types import STRING, ArrayType, DataType, MapType, StructType, name_key
from widen.schema.source_metadata import role_of, source_key


@dataclass(slots=True)
class KnownNames:
    """The names of the fields of records that columns hold.

    Args:
        inside: The names inside of each field.
        in_any_case: The fields by their names without regard to case.
        map_levels: How many levels of objects at the field itself are maps.
    """

    inside: dict[str, KnownNames] = field(default_factory=dict)
    in_any_case: dict[str, set[str]] = field(default_factory=dict)
    map_levels: int = 0

    def learn(self, name: str, data_type: DataType) -> None:
        """Add the field of a column."""
        known = self.inside.setdefault(name, KnownNames())
        self.in_any_case.setdefault(name_key(name), set()).add(name)
        map_levels = 0
        while isinstance(data_type, (ArrayType, MapType)):
            if isinstance(data_type, ArrayType):
                data_type = data_type.element
            else:
                map_levels, data_type = map_levels + (data_type.key == STRING), data_type.value
        known.map_levels = max(known.map_levels, map_levels)
        for item in data_type if isinstance(data_type, StructType) else ():
            known.learn(source_key(item), item.type)

    def rename(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record with the names of the fields that its keys stand for."""
        if record.keys() <= self.inside.keys():
            own = {key: key for key in record}
        else:
            counts = Counter(map(name_key, record))
            own = {key: self._field_of(key, alone=counts[name_key(key)] == 1) for key in record}
        return {own[key]: self._rename_inside(own[key], value) for key, value in record.items()}

    def _field_of(self, key: str, *, alone: bool) -> str:
        if key in self.inside or not alone:
            return key
        found = self.in_any_case.get(name_key(key), set())
        return next(iter(found)) if len(found) == 1 else key

    def _rename_inside(self, name: str, value: Any) -> Any:
        known = self.inside.get(name)
        return value if known is None or not known.inside else known._rename_value(value, known.map_levels)

    def _rename_value(self, value: Any, map_levels: int) -> Any:
        if isinstance(value, list):
            return [self._rename_value(item, map_levels) for item in value]
        if not isinstance(value, dict):
            return value
        if map_levels:
            return {key: self._rename_value(item, map_levels - 1) for key, item in value.items()}
        return self.rename(value)


def find_source_names(known: KnownNames, source: StructType, path: Path = ()) -> dict[Path, str]:
    """Return the names in a source with types of the fields that have another name in the table, by their paths there.

    Args:
        known: The names of the fields of the records that the source describes.
    """
    found: dict[Path, str] = {}
    counts = Counter(map(name_key, source.names))
    for item in source:
        own = known._field_of(item.name, alone=counts[name_key(item.name)] == 1)
        if own != item.name:
            found[(*path, own)] = item.name
        leaf = item.type
        while isinstance(leaf, (ArrayType, MapType)):
            leaf = leaf.element if isinstance(leaf, ArrayType) else leaf.value
        if isinstance(leaf, StructType) and own in known.inside:
            found |= find_source_names(known.inside[own], leaf, (*path, own))
    return found


def learn_names(schema: StructType) -> KnownNames:
    """Return the names of the fields of a table."""
    known = KnownNames()
    for column in schema:
        if role_of(column) is None:
            known.learn(source_key(column), column.type)
    return known
