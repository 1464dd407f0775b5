"""Which field of a table a name in a record stands for: the one of this very name, else one that has this other name,
else the only one in another case.

A key `id` goes to the column of the field `ID` if the table has no field `id`, no second one in another case, and the
record itself has no other key in another case. Names are compared as Spark compares them; see `name_key`. The same
holds for the other names that somebody has given to a field, e.g. because the source has renamed it.

Source: docs/evolution-rules.md#d9
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import field, replace
from typing import Any, TypeAlias

import msgspec

from widen.json.observation import FieldObservation, RecordObservation, records_in
from widen.model.column_path import Path
from widen.model.types import STRING, ArrayType, DataType, Field, MapType, StructType, name_key
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import SOURCE
from widen.schema.source_metadata import naming_order, role_of, source_key, source_keys

# An example. The table has the fields ID and user.name.
#     {"id": 1}                    id stands for ID: no field has the very name, and ID is the only one in another case.
#     {"User": {"NAME": "a"}}      is read as {"user": {"name": "a"}}
#     {"ID": 1, "id": 2}           id is a field of its own: the record has both. It gets a column id_2.
#     {"Id": 3}                    From then on, Id is also a field of its own: nobody can say which one it means.


@dataclass(slots=True)
class NameUse:
    """How the names of records have been used.

    Args:
        matched: The paths of names that stand for a field of another name.
        apart: The paths of names without a field in records that have the same name in another case.
    """

    matched: set[Path] = field(default_factory=set)
    apart: set[Path] = field(default_factory=set)


@dataclass(slots=True)
class FieldNames:
    """The names of the fields of a record.

    Args:
        in_any_case: Whether a name in another case may stand for a field.
        below: The names of the fields inside each of them.
        maps: How many levels of objects are maps, whose keys are no names.
        aliases: The fields by their other names; those that two fields have count for nothing.
    """

    in_any_case: bool = True
    below: dict[str, FieldNames] = field(default_factory=dict)
    maps: int = 0
    aliases: dict[str, set[str]] = field(default_factory=dict)
    _spellings: dict[str, list[str]] | None = None

    def add(self, name: str, aliases: Iterable[str] = ()) -> FieldNames:
        """Add a field, and return the names inside it."""
        self._spellings = None
        for alias in aliases:
            self.aliases.setdefault(self._fold(alias), set()).add(name)
        inside = self.below.get(name)
        if inside is None:
            inside = self.below[name] = FieldNames(self.in_any_case)
        return inside

    @property
    def has_aliases(self) -> bool:
        """Whether any field has other names, here or below."""
        return bool(self.aliases) or any(names.has_aliases for names in self.below.values())

    def inside(self, name: str) -> FieldNames:
        """Return the names inside a field, which may be unknown."""
        return self.below.get(name) or _NO_NAMES[self.in_any_case]

    def group(self, keys: Iterable[str]) -> dict[str, list[str]]:
        """Return keys in groups of those that may stand for one field; see `group_of`."""
        groups: dict[str, list[str]] = {}
        for key in keys:
            groups.setdefault(self.group_of(key), []).append(key)
        return groups

    def group_of(self, key: str) -> str:
        """Return what keys have in common that may stand for one field."""
        folded = self._fold(key)
        owners = self.aliases.get(folded, ())
        is_other_name = len(owners) == 1 and folded not in self._fields_by_name()
        return self._fold(next(iter(owners))) if is_other_name else folded

    def spellings(self, name: str) -> list[str]:
        """Return the fields that a name may stand for, if no field has this name."""
        folded, fields = self._fold(name), self._fields_by_name()
        return fields[folded] if folded in fields else sorted(self.aliases.get(folded, ()))

    def _fields_by_name(self) -> dict[str, list[str]]:
        if self._spellings is None:
            self._spellings = {}
            for name in self.below:
                self._spellings.setdefault(self._fold(name), []).append(name)
        return self._spellings

    def _fold(self, name: str) -> str:
        return name_key(name) if self.in_any_case else name

    def match(self, keys: Collection[str], use: NameUse | None = None, above: Path = ()) -> Mapping[str, str]:
        """Return the fields that the keys of one record stand for, where these have other names.

        Args:
            use: Grows by how the names are used.
        """
        unknown = [key for key in keys if key not in self.below]
        if not unknown:
            return _NONE
        groups, matched = {key: self.group_of(key) for key in keys}, dict[str, str]()
        sizes = Counter(groups.values())
        for key in unknown:
            known = self.spellings(key)
            if sizes[groups[key]] > 1:
                if use is not None:
                    use.apart.add((*above, key))
            elif len(known) == 1:
                matched[key] = known[0]
                if use is not None:
                    use.matched.add((*above, key))
        return matched

    def record(self, record: dict[str, Any], use: NameUse | None = None, above: Path = ()) -> dict[str, Any]:
        """Return a record with the names of the fields that its keys stand for, at every depth; itself if it has them.

        Args:
            use: Grows by how the names are used.
        """
        matched = self.match(record, use, above)
        changed: dict[str, Any] = {}
        for key, value in record.items():
            if isinstance(value, (dict, list)):
                name = matched.get(key, key)
                inside = self.inside(name)
                named = inside._value(value, inside.maps, use, (*above, name))
                if named is not value:
                    changed[key] = named
        if not (matched or changed):
            return record
        return {matched.get(key, key): changed.get(key, value) for key, value in record.items()}

    def _value(self, value: Any, maps: int, use: NameUse | None, above: Path) -> Any:
        if isinstance(value, list):
            items = [self._value(item, maps, use, above) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        if not isinstance(value, dict):
            return value
        if not maps:
            return self.record(value, use, above)
        entries = {key: self._value(item, maps - 1, use, above) for key, item in value.items()}
        return value if all(entries[key] is item for key, item in value.items()) else entries

    def path(self, path: Path) -> Path:
        """Return the path of the fields that names stand for."""
        found, names = [], self
        for name in path:
            name = names.match((name,)).get(name, name)
            found.append(name)
            names = names.inside(name)
        return tuple(found)


_NONE: Mapping[str, str] = {}
_NO_NAMES = {in_any_case: FieldNames(in_any_case) for in_any_case in (False, True)}


def find_field_names(schema: StructType, others: Iterable[Path] = (), *, in_any_case: bool = True) -> FieldNames:
    """Return the names of the fields that columns hold.

    Args:
        in_any_case: Whether a name in another case may stand for a field.
        others: The paths of more fields, such as those that a policy names. One that may stand for a field with a
            column adds nothing.
    """
    names = FieldNames(in_any_case)
    for column in schema:
        if role_of(column) is None:
            _add_column(names, column)
    for path in sorted(others):
        at = names
        for name in at.path(path):
            at = at.add(name)
    return names


def with_apart_names(names: FieldNames, apart: Collection[Path]) -> FieldNames:
    """Return names with more fields, which are known to be ones of their own."""
    more = deepcopy(names) if apart else names
    for path in apart:
        at = more
        for name in more.path(path[:-1]):
            at = at.add(name)
        at.add(path[-1])
    return more


def _add_column(above: FieldNames, column: Field) -> None:
    key, *aliases = source_keys(column)
    names, (leaf, maps) = above.add(key, aliases), _inside(column.type)
    names.maps = max(names.maps, maps)
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_column(names, item)


def _inside(data_type: DataType) -> tuple[DataType, int]:
    maps = 0
    while isinstance(data_type, (ArrayType, MapType)):
        maps += isinstance(data_type, MapType) and data_type.key == STRING
        data_type = data_type.element if isinstance(data_type, ArrayType) else data_type.value
    return data_type, maps


# The observation of a batch with one name for each field.


def match_observation(
    root: RecordObservation, names: FieldNames, apart: Collection[Path]
) -> tuple[RecordObservation, Mapping[Path, str]]:
    """Return an observation that merges the names of one field, and the field of each such name.

    A field without a column gets the first of its names in the order of names.

    Args:
        apart: The paths of names that records have beside the same name in another case.
    """
    found: dict[Path, str] = {}
    _collect_names([root], names, frozenset(apart), (), found)
    return (_merge_names(root, (), found) if found else root), found


def _collect_names(
    records: Collection[RecordObservation],
    names: FieldNames,
    apart: frozenset[Path],
    above: Path,
    found: dict[Path, str],
) -> None:
    """Collect the field of each name that stands for another one, from the records of all columns of a field."""
    keys = sorted({key for record in records for key in record}, key=naming_order)
    groups = {} if names.below.keys() >= set(keys) else names.group(keys)
    inside: dict[str, list[RecordObservation]] = {}
    for key in keys:
        name = _field_of(key, names, apart, above, groups)
        if name != key:
            found[(*above, key)] = name
        seen = [field for record in records if (field := record.get(key)) is not None]
        inside.setdefault(name, []).extend(each for field in seen for each in records_in(field))
    for name, below in inside.items():
        if below:
            _collect_names(below, names.inside(name), apart, (*above, name), found)


def _field_of(key: str, names: FieldNames, apart: frozenset[Path], above: Path, groups: Mapping[str, list[str]]) -> str:
    if key in names.below:
        return key
    group, known = groups[names.group_of(key)], names.spellings(key)
    if len(known) > 1 or (apart and any((*above, each) in apart for each in group)):
        return key
    return known[0] if known else group[0]


def _merge_names(record: RecordObservation, above: Path, found: Mapping[Path, str]) -> RecordObservation:
    merged: RecordObservation = {}
    for key, seen in record.items():
        name = found.get((*above, key), key)
        field = _merge_inside(seen, (*above, name), found)
        merged[name] = merged[name].merged(field) if name in merged else field
    return merged


def _merge_inside(seen: FieldObservation, path: Path, found: Mapping[Path, str]) -> FieldObservation:
    if not (seen.records or seen.maps):
        return seen
    records = {dim: _merge_names(record, path, found) for dim, record in seen.records.items()}
    maps = {dim: _merge_inside(entries, path, found) for dim, entries in seen.maps.items()}
    return msgspec.structs.replace(seen, records=records, maps=maps)


# A table with the names of a source, for sources whose records all have the same names: the metadata of each column
# then has the name that the source writes, so that nothing that reads the metadata has to know of cases.

Spellings: TypeAlias = Mapping[Path, str]
"""The name in the source of fields, by their paths in the table."""


def find_spellings(names: FieldNames, keys: Mapping[Path, Collection[str]], use: NameUse) -> Spellings:
    """Return the names in records with types that stand for fields of another name.

    Args:
        use: Grows by how the names are used.
    """
    return dict(_spellings(names, keys, use, (), (), is_sample=False))


def find_sample_spellings(names: FieldNames, keys: Mapping[Path, Collection[str]], use: NameUse) -> Spellings:
    """Return the names in some JSON records that stand for fields of another name.

    Args:
        keys: The keys of all these records together, at each path, also of objects that are maps.
        use: Grows by the names that stand for others.
    """
    of_all = NameUse()  # no record need have all these keys
    found = dict(_spellings(names, keys, of_all, (), (), is_sample=True))
    use.matched |= of_all.matched
    return found


def _spellings(
    names: FieldNames,
    keys: Mapping[Path, Collection[str]],
    use: NameUse,
    path: Path,
    source: Path,
    *,
    is_sample: bool,
) -> Iterator[tuple[Path, str]]:
    found = keys.get(source, ())
    matched = names.match(found, use, path)
    for key in found:
        name = matched.get(key, key)
        if name != key:
            yield (*path, name), key
        below = names.inside(name)
        if (*source, key) in keys and not (is_sample and (below.maps or not below.below)):
            yield from _spellings(below, keys, use, (*path, name), (*source, key), is_sample=is_sample)


def keys_of(schema: StructType) -> dict[Path, list[str]]:
    """Return the names of the fields of records with types, by the path of the record."""
    found: dict[Path, list[str]] = {}
    _collect_keys(schema, (), found)
    return found


def _collect_keys(data_type: DataType, path: Path, found: dict[Path, list[str]]) -> None:
    leaf, _ = _inside(data_type)
    if isinstance(leaf, StructType):
        found[path] = list(leaf.names)
        for item in leaf:
            _collect_keys(item.type, (*path, item.name), found)


def respell_path(path: Path, spellings: Spellings) -> Path:
    """Return a path of fields with the names of the source."""
    return tuple(spellings.get(path[: at + 1], name) for at, name in enumerate(path))


def respell(schema: StructType, spellings: Spellings) -> StructType:
    """Return the columns of a table with the names of the source in their metadata."""
    return _respell_struct(schema, spellings, ()) if spellings else schema


def _respell_struct(struct: StructType, spellings: Spellings, above: Path) -> StructType:
    return StructType(tuple(_respell_field(item, spellings, above) for item in struct))


def _respell_field(item: Field, spellings: Spellings, above: Path) -> Field:
    if not above and role_of(item) is not None:
        return item
    path = (*above, source_key(item))
    item = replace(item, type=_respell_type(item.type, spellings, path))
    return item.with_metadata(**{SOURCE: [*respell_path(path, spellings)]}) if path in spellings else item


def _respell_type(data_type: DataType, spellings: Spellings, path: Path) -> DataType:
    match data_type:
        case StructType():
            return _respell_struct(data_type, spellings, path)
        case ArrayType():
            return replace(data_type, element=_respell_type(data_type.element, spellings, path))
        case MapType():
            return replace(data_type, value=_respell_type(data_type.value, spellings, path))
    return data_type
