"""Partial records on top of rows: fields that a record lacks, or that it names as unchanged, keep the row's values.

The columns of one field are one value. Records and maps are merged field by field, other values are replaced. The
rescue column has the values that no column holds; it is merged field by field, too.

Source: docs/guide/keys.md#missing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from widen.files.arrow_types import count_up, one_array
from widen.files.data_reader import find_leaf
from widen.json.document import InvalidJson, document_to_json, parse_document
from widen.model.column_path import Path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, name_key
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import RESCUED, role_field, role_of, source_key


@dataclass(frozen=True)
class PartialRecords:
    """How records are put on top of rows. Picklable.

    Args:
        unchanged: The column that names the fields that keep their values, if records replace all other fields; None
            if all fields that a record lacks keep their values.
        defaults: The values of a new row in columns that its first record does not set, as arrays of one value.
    """

    schema: StructType
    unchanged: Field | None = None
    defaults: Mapping[str, pa.Array] = field(default_factory=dict)

    def put_on_rows(self, rows: pa.Table, records: pa.Table, number: pa.Array, is_new: pa.Array) -> pa.Table:
        """Return rows with records on top of them, one after another.

        Args:
            rows: The rows, with nulls where there was no row.
            records: Sorted by row, the records of a row from the oldest to the newest; each row has at least one.
        """
        sizes = pc.value_counts(number).field("counts")
        first = pc.subtract(pc.cumulative_sum(sizes), sizes)
        done: list[pa.Table] = []
        order: list[pa.Array] = []
        left, step, current = count_up(len(rows)), 0, rows
        while len(left):
            own = records.take(pc.add(first.take(left), step))
            current = self._put(current, own, is_new if step == 0 else None)
            step += 1
            is_last = pc.equal(sizes.take(left), step)
            done.append(current.filter(is_last))
            order.append(left.filter(is_last))
            current, left = current.filter(pc.invert(is_last)), left.filter(pc.invert(is_last))
        merged = pa.concat_tables([rows.slice(0, 0), *done]).combine_chunks()
        return merged.take(pc.sort_indices(pa.concat_arrays(order))) if order else merged

    def _put(self, rows: pa.Table, records: pa.Table, is_new: pa.Array | None) -> pa.Table:
        """Return rows with one record on top of each."""
        before, after = ([one_array(column) for column in each.columns] for each in (rows, records))
        if self.unchanged is None:
            found = None if self._rescue is None else self._rescue.find(records)
            columns = _merge_fields(before, after, self.schema.fields, found or {})
        else:
            names = after[self.schema.names.index(self.unchanged.name)]
            pairs = zip(self.schema, before, after, strict=True)
            columns = [choose(is_named(names, source_key(each)), was, now) for each, was, now in pairs]
        merged = pa.Table.from_arrays(columns, schema=rows.schema)
        for name, value in self.defaults.items() if is_new is not None else ():
            at, column = merged.column_names.index(name), one_array(merged[name])
            filled = choose(pc.and_(is_new, column.is_null()), value.take(pa.repeat(0, len(column))), column)
            merged = merged.set_column(at, merged.schema.field(at), filled)
        return merged if self._rescue is None else self._rescue.merge(rows, records, merged, is_new, self.unchanged)

    @cached_property
    def _rescue(self) -> _RescueColumn | None:
        column = role_field(self.schema, RESCUED)
        return None if column is None else _RescueColumn(column.name, self.schema)


def is_named(lists: pa.Array, name: str) -> pa.Array:
    """Return which lists have a name."""
    rows = pc.list_parent_indices(lists).filter(pc.fill_null(pc.equal(pc.list_flatten(lists), name), False))
    return pc.is_in(count_up(len(lists)), value_set=rows.cast(pa.int64()))


def choose(is_left: pa.Array, left: pa.Array, right: pa.Array) -> pa.Array:
    """Choose between two sides value by value; unlike `if_else`, for every type."""
    places = count_up(len(left))
    return pa.concat_arrays([left, right]).take(pc.if_else(is_left, places, pc.add(places, len(left))))


# Values.


_Kinds = Mapping[Path, pa.Array]
"""What the rescue column of records has of each field, by path; see `_RescueColumn.find`."""


def _merge_fields(
    old: Sequence[pa.Array], new: Sequence[pa.Array], fields: Sequence[Field], rescued: _Kinds, above: Path = ()
) -> list[pa.Array]:
    """Return the columns of records on top of rows. The columns of one field are one value."""
    present: dict[str, pa.Array] = {}
    names = [each.name if role_of(each) else source_key(each) for each in fields]
    for name, column in zip(names, new, strict=True):
        is_valid = column.is_valid()
        present[name] = pc.or_(present[name], is_valid) if name in present else is_valid
    columns = []
    for name, was, now, each in zip(names, old, new, fields, strict=True):
        kinds, is_present = rescued.get((*above, name)), present[name]
        copied = find_copied(each, fields)
        are_both = None if copied is None else pc.and_(old[copied].is_valid(), new[copied].is_valid())
        merged = _merge_values(was, now, each.type, rescued, (*above, name), are_both)
        if kinds is not None:
            is_present = pc.or_(is_present, kinds.is_valid())
            if copied is not None or isinstance(each.type, (StructType, MapType)):
                # Of a record or a map that is rescued in full, the columns have nothing, which removes nothing.
                is_record = pc.fill_null(pc.equal(kinds, _RECORD), False)
                merged = choose(pc.and_(is_record, now.is_null()), was, merged)
        columns.append(choose(is_present, merged, was))
    return columns


def find_copied(column: Field, fields: Sequence[Field]) -> int | None:
    """Return which column has the records or maps that a column of arrays repeats as its only items, if one does.

    Source: docs/evolution-rules.md#u14
    """
    if not isinstance(column.type, ArrayType) or role_of(column):
        return None
    kind, name = type(innermost(column.type)), source_key(column)
    found = (at for at, each in enumerate(fields) if type(each.type) is kind and source_key(each) == name)
    return next(found, None) if kind in (StructType, MapType) else None


def innermost(data_type: DataType) -> DataType:
    """Return the type inside of all arrays."""
    return innermost(data_type.element) if isinstance(data_type, ArrayType) else data_type


def _merge_values(
    old: pa.Array,
    new: pa.Array,
    data_type: DataType,
    rescued: _Kinds | None = None,
    path: Path = (),
    are_copies: pa.Array | None = None,
) -> pa.Array:
    """Merge two values: records and maps field by field; for all others the new value wins.

    Args:
        are_copies: Where both values are arrays that repeat a record or a map as their only item.
    """
    if are_copies is not None:
        is_single = [pc.fill_null(pc.equal(pc.list_value_length(each), 1), False) for each in (old, new)]
        is_merged = pc.and_(are_copies, pc.and_(*is_single))
        inside = {each: kinds.filter(is_merged) for each, kinds in (rescued or {}).items()}
        return _merge_items(old, new, data_type, is_merged, inside, path)
    if not isinstance(data_type, (StructType, MapType)):
        return new
    are_both = pc.and_(old.is_valid(), new.is_valid())
    if isinstance(data_type, MapType):
        return choose(are_both, _merge_maps(old, new, data_type), new)
    inner = _merge_fields(old.flatten(), new.flatten(), data_type.fields, rescued or {}, path)
    merged = pa.StructArray.from_arrays(inner, fields=list(new.type), mask=pc.invert(are_both))
    return choose(are_both, merged, new)


def _merge_items(
    old: pa.Array, new: pa.Array, data_type: DataType, is_merged: pa.Array, rescued: _Kinds, path: Path
) -> pa.Array:
    """Return new arrays; where asked, the only item is merged with the only item of the old array."""
    assert isinstance(data_type, ArrayType)
    before, after = old.filter(is_merged), new.filter(is_merged)
    every = pa.repeat(True, len(after)) if isinstance(data_type.element, ArrayType) else None
    items = _merge_values(before.flatten(), after.flatten(), data_type.element, rescued, path, every)
    merged = pa.ListArray.from_arrays(count_up(len(after) + 1).cast(pa.int32()), items).cast(new.type)
    place = pc.subtract(pc.cumulative_sum(is_merged.cast(pa.int64())), 1)
    return pa.concat_arrays([new, merged]).take(pc.if_else(is_merged, pc.add(place, len(new)), count_up(len(new))))


def _merge_maps(old: pa.Array, new: pa.Array, data_type: MapType) -> pa.Array:
    """Return the entries of both maps, the old ones first; of entries with one key, the merged value."""
    count, sides = len(old), [_entries(old), _entries(new)]
    keys = pa.concat_arrays([key for _, key, _ in sides])
    items = pa.concat_arrays([item for *_, item in sides])
    owner = pa.concat_arrays([owner for owner, *_ in sides])
    distinct = pc.unique(keys)
    code = pc.add(pc.multiply(owner, len(distinct)), pc.index_in(keys, value_set=distinct).cast(pa.int64()))
    split = len(sides[0][0])
    known = pc.index_in(code[split:], value_set=code[:split])
    partner = pc.index_in(code[:split], value_set=code[split:])
    before, after = items[:split], items[split:].take(partner)
    merged = _merge_values(before, after, data_type.value)
    merged = choose(merged.is_valid(), merged, before)
    is_added = known.is_null()
    owners = pa.concat_arrays([owner[:split], owner[split:].filter(is_added)])
    order = pc.sort_indices(
        pa.table({"owner": owners, "at": count_up(len(owners))}), [("owner", "ascending"), ("at", "ascending")]
    )
    sizes = pc.value_counts(owners)
    length = sizes.field("counts").take(pc.index_in(count_up(count), value_set=sizes.field("values")))
    ends = pc.cumulative_sum(pc.fill_null(length, 0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    all_keys = pa.concat_arrays([keys[:split], keys[split:].filter(is_added)]).take(order)
    all_items = pa.concat_arrays([merged, items[split:].filter(is_added)]).take(order)
    return pa.MapArray.from_arrays(offsets, all_keys, all_items).cast(new.type)


def _entries(maps: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the map of each entry, its key and its value."""
    entry = pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])
    lists = maps.cast(pa.list_(entry))
    keys, items = lists.flatten().flatten()
    return pc.list_parent_indices(lists).cast(pa.int64()), keys, items


# The rescue column of partial records: each field has the value that its newest record has rescued.


_RECORD, _MAP, _VALUE = "record", "map", "value"
"""What an event has in a field: a record, whose fields have places of their own, a map, or another value."""


@dataclass(frozen=True)
class _RescueColumn:
    """The values of partial records that no column holds."""

    name: str
    schema: StructType

    @cached_property
    def columns(self) -> dict[Path, list[tuple[Path, DataType]]]:
        """The columns of each field, with their places, by the path of the field, parents first; none in lists."""
        return columns_by_path(self.schema)

    @cached_property
    def names(self) -> dict[Path, list[str]]:
        """The names of the fields with columns, by the path of the record that has them."""
        found: dict[Path, list[str]] = {}
        for path in self.columns:
            found.setdefault(path[:-1], []).append(path[-1])
        return found

    def find(self, records: pa.Table) -> dict[Path, pa.Array]:
        """Return for each path whether the column has a record of the field, or another value; null for nothing.

        Only the paths that a record has.
        """
        found: dict[Path, list[str | None]] = {}
        texts = records[self.name].to_pylist()
        for row, text in enumerate(texts):
            for path, value in () if text is None else self._values_of(_parse(text)):
                if value is not None:
                    kinds = found.setdefault(path, [None] * len(texts))
                    kinds[row] = _RECORD if isinstance(value, dict) else _VALUE
        return {path: pa.array(kinds, pa.string()) for path, kinds in found.items()}

    def _values_of(self, record: Any) -> Iterator[tuple[Path, Any]]:
        levels: list[tuple[Any, Path]] = [(record, ())]
        for fields, above in levels:
            for name, value in fields.items():
                path = (*above, self._resolve(above, name))
                yield path, value
                if isinstance(value, dict):
                    levels.append((value, path))

    def merge(
        self, rows: pa.Table, records: pa.Table, merged: pa.Table, is_new: pa.Array | None, unchanged: Field | None
    ) -> pa.Table:
        """Return merged rows with the texts for the rows that the records lead to."""
        was, now = rows[self.name], records[self.name]
        asked = pc.indices_nonzero(one_array(pc.or_(was.is_valid(), now.is_valid())))
        if not len(asked):
            return merged
        before, after = was.take(asked).to_pylist(), now.take(asked).to_pylist()
        if unchanged is not None:
            names = records[unchanged.name].take(asked).to_pylist()
            texts = list(map(_keep_rescued, before, after, names))
        else:
            present = self._present(records.take(asked))
            has_row = [True] * len(asked) if is_new is None else pc.invert(is_new).take(asked).to_pylist()
            texts = list(map(self._merge_texts, before, after, present, has_row))
        column = pc.replace_with_mask(
            one_array(merged[self.name]),
            pc.is_in(count_up(len(rows)), value_set=asked.cast(pa.int64())),
            pa.array(texts, pa.string()),
        )
        at = merged.column_names.index(self.name)
        return merged.set_column(at, merged.schema.field(at), column)

    def _present(self, records: pa.Table) -> list[dict[Path, Sequence[str]]]:
        """Return what each record has in columns, by path: its kind, then the keys of a map."""
        found: list[dict[Path, Sequence[str]]] = [{} for _ in range(len(records))]
        for path, columns in self.columns.items():
            # A record counts first: in it each field has a place of its own. So it comes last here.
            for place, data_type in sorted(columns, key=lambda each: isinstance(each[1], StructType)):
                values = one_array(find_leaf(records, place))
                kind = _RECORD if isinstance(data_type, StructType) else _VALUE
                keys = _keys_of(values) if isinstance(data_type, MapType) else None
                for row in pc.indices_nonzero(values.is_valid()).to_pylist():
                    found[row][path] = (kind,) if keys is None else (_MAP, *keys[row])
        return found

    def _merge_texts(
        self, old: str | None, text: str | None, present: Mapping[Path, Sequence[str]], has_row: bool
    ) -> str | None:
        new = {} if text is None else _parse(text)
        if has_row:
            new = self._put_on_top({} if old is None else _parse(old), new, present, ())
        return document_to_json(new) if new else None

    def _put_on_top(
        self, old: dict[str, Any], new: dict[str, Any], present: Mapping[Path, Sequence[str]], above: Path
    ) -> dict[str, Any]:
        """Return a row's rescued fields after a record: without the record's fields, with the fields that it
        rescues.
        """
        merged: dict[str, Any] = {}
        for name, value in old.items():
            path = (*above, self._resolve(above, name))
            kind, *keys = present.get(path, (None,))
            on_top = new.get(name)
            if kind is None:
                merged[name] = value if on_top is None else _merge_documents(value, on_top)
                continue
            below = on_top if isinstance(on_top, dict) else {}
            if kind == _RECORD and isinstance(value, dict):
                on_top = self._put_on_top(value, below, present, path) or None
            elif kind == _MAP and isinstance(value, dict):
                # The entry of a map is one value: the record has all of it.
                on_top = {**{key: entry for key, entry in value.items() if key not in keys}, **below} or None
            if on_top is not None:
                merged[name] = on_top
        return {**merged, **{name: value for name, value in new.items() if value is not None and name not in old}}

    def _resolve(self, above: Path, name: str) -> str:
        """Return the field that a name stands for: the same one, or one that differs in case only."""
        names = self.names.get(above, ())
        if name in names:
            return name
        return next((each for each in names if name_key(each) == name_key(name)), name)


def _keys_of(maps: pa.Array) -> list[list[str]]:
    """Return the keys of each map as texts."""
    found: list[list[str]] = [[] for _ in range(len(maps))]
    owner, keys, _ = _entries(maps)
    for row, key in zip(owner.to_pylist(), keys.cast(pa.string()).to_pylist(), strict=True):
        found[row].append(key)
    return found


def _keep_rescued(old: str | None, text: str | None, names: Sequence[str] | None) -> str | None:
    """Return the text of the last record, and of the fields that it says are unchanged."""
    state = {} if old is None else _parse(old)
    kept = {name: state[name] for name in names or () if name in state}
    state = {**kept, **({} if text is None else _parse(text))}
    return document_to_json(state) if state else None


def _merge_documents(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {name: _merge_documents(old.get(name), value) for name, value in new.items() if value is not None}
    return {**old, **changed}


def _parse(text: str) -> dict[str, Any]:
    document = parse_document(text.encode(), allows_nan=True)
    if isinstance(document, InvalidJson) or not isinstance(document, dict):
        return {}  # another writer's text
    return document


def columns_by_path(schema: StructType) -> dict[Path, list[tuple[Path, DataType]]]:
    """Return the columns of each field, with their places, by the path of the field; none in lists and maps."""
    found: dict[Path, list[tuple[Path, DataType]]] = {}
    levels: list[tuple[StructType, Path, Path]] = [(schema, (), ())]
    for struct, above, place in levels:
        for each in struct if place else (each for each in struct if role_of(each) is None):
            path, column = (*above, source_key(each)), (*place, each.name)
            found.setdefault(path, []).append((column, each.type))
            if isinstance(each.type, StructType):
                levels.append((each.type, path, column))
    return found
