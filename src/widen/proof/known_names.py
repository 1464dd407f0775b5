"""The fields that the keys of a record stand for: the proof's own code, not the writer's.

Source: docs/evolution-rules.md#d9
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from widen.evolution.policy import Policy
from widen.json.field_rules import VERSION_FIELDS
from widen.model.column_path import Path
from widen.model.types import STRING, ArrayType, DataType, MapType, StructType, name_key
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import role_of, source_key, source_keys


@dataclass(slots=True)
class KnownNames:
    """The names of the fields of records that columns hold.

    Args:
        compare: Returns what equal names have in common.
        by_name: The fields by what their names have in common.
        by_other_name: The fields by what their other names have in common.
        map_levels: How many levels of objects at the field itself are maps.
    """

    compare: Callable[[str], str]
    inside: dict[str, KnownNames] = field(default_factory=dict)
    by_name: dict[str, set[str]] = field(default_factory=dict)
    by_other_name: dict[str, set[str]] = field(default_factory=dict)
    map_levels: int = 0

    def learn(self, names: Sequence[str], data_type: DataType) -> None:
        """Add the field of a column, with its own name first."""
        name, *others = names
        known = self.add(name)
        for other in others:
            self.by_other_name.setdefault(self.compare(other), set()).add(name)
        map_levels = 0
        while isinstance(data_type, (ArrayType, MapType)):
            if isinstance(data_type, ArrayType):
                data_type = data_type.element
            else:
                map_levels, data_type = map_levels + (data_type.key == STRING), data_type.value
        known.map_levels = max(known.map_levels, map_levels)
        for item in data_type if isinstance(data_type, StructType) else ():
            known.learn(source_keys(item), item.type)

    def add(self, name: str) -> KnownNames:
        """Add a field, and return the names inside of it."""
        self.by_name.setdefault(self.compare(name), set()).add(name)
        return self.inside.setdefault(name, KnownNames(self.compare))

    def rename(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return a record with the names of the fields that its keys stand for."""
        is_known = record.keys() <= self.inside.keys()
        own = {key: key for key in record} if is_known else self.fields_of(record)
        return {own[key]: self._rename_inside(own[key], value) for key, value in record.items()}

    def fields_of(self, keys: Iterable[str]) -> dict[str, str]:
        """Return the fields that the keys of one record stand for; two keys never stand for one field."""
        meant = {key: self._find(key) for key in keys}
        counts = Counter(meant.values())
        return {key: found if counts[found] == 1 else key for key, found in meant.items()}

    def _find(self, key: str) -> str:
        if key in self.inside:
            return key
        for fields in (self.by_name, self.by_other_name):
            found = fields.get(self.compare(key))
            if found:
                return next(iter(found)) if len(found) == 1 else key
        return key

    def known_keys(self) -> Iterator[str]:
        """Yield what keys have in common that may stand for a field of another name."""
        yield from self.by_other_name
        if self.compare is name_key:
            yield from self.by_name

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
    """Return the names in a source with types of fields that have another name in the table, by their paths there."""
    found: dict[Path, str] = {}
    fields = known.fields_of(source.names)
    for item in source:
        own = fields[item.name]
        if own != item.name:
            found[(*path, own)] = item.name
        leaf = item.type
        while isinstance(leaf, (ArrayType, MapType)):
            leaf = leaf.element if isinstance(leaf, ArrayType) else leaf.value
        if isinstance(leaf, StructType) and own in known.inside:
            found |= find_source_names(known.inside[own], leaf, (*path, own))
    return found


def learn_names(schema: StructType, policy: Policy) -> KnownNames:
    """Return the names of the fields of a table, and of those that a policy names."""
    known = KnownNames(name_key if policy.matches_any_case else str)
    own = VERSION_FIELDS if policy.history else ()  # records have these with the names of the columns
    for column in schema:
        if role_of(column) is None and source_key(column) not in own:
            known.learn(source_keys(column), column.type)
    for path in sorted(policy.named_fields):
        at = known
        for name in path:
            at = at.add(at._find(name))
    return known
