"""Whether an event of a key changes a tracked field, or only updates the version before it.

A field is compared by kind and value, in any of its columns, so that the result depends neither on the columns that it
had before nor on how its events were cut into loads. Spark's tasks call the same functions.

Source: docs/guide/keys.md#tracked
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.key_columns import decimal_text
from widen.errors import InvalidOption
from widen.evolution.key_rules import KeyRules, content_fields, find_places
from widen.files.arrow_types import count_up, one_array
from widen.files.data_reader import find_leaf
from widen.json.envelope import UNCHANGED
from widen.model.column_path import Path, children, fold_path
from widen.model.types import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
)
from widen.model.value_classes import dataclass
from widen.proof.column_digests import hash_values
from widen.schema.source_metadata import RESCUED, fields_by_source, role_field, source_key

_Column = tuple[DataType, pa.Array]
_DAY_MICROS = 86_400_000_000
_SMALLEST, _LARGEST = 1e-19, 1e38
"""Doubles between them are written with the digits of a decimal, so that they equal the decimals of other columns."""


@dataclass(frozen=True, slots=True)
class TrackedFields:
    """The fields whose changes open a version."""

    rules: KeyRules
    schema: StructType

    @staticmethod
    def of(schema: StructType, rules: KeyRules) -> TrackedFields | None:
        """Return the tracked fields of a table; None if every record is a version.

        Raises:
            InvalidOption: their values cannot be compared.
        """
        if not rules.is_tracking:
            return None
        fields = [each for each in content_fields(schema, rules) if source_key(each) != UNCHANGED]
        if rules.history_columns:
            wanted = {place[0] for path in rules.history_columns for _, place in find_places(schema, path)}
            fields = [each for each in fields if each.name in wanted]
        else:
            untracked = set(map(fold_path, rules.untracked))
            fields = [each for each in fields if fold_path((source_key(each),)) not in untracked]
        option = "history_columns" if rules.history_columns else "history_except"
        if role_field(schema, RESCUED) is not None:
            expected = "The table has values in _rescued, which no column holds: which of them change is not known."
            raise InvalidOption(option=option, value=rules.tracked_text, expected=expected)
        variant = next((each.name for each in fields if _has_variant(each.type)), None)
        if variant is not None:
            expected = f"{variant} has the type VARIANT, whose values are not compared: do not track it."
            raise InvalidOption(option=option, value=rules.tracked_text, expected=expected)
        return TrackedFields(rules, StructType(tuple(fields)))

    def hash(self, rows: pa.Table) -> pa.Array:
        """Return 64 bits for each row; rows that agree on every tracked field have the same ones."""
        paths = self.rules.history_columns
        if paths:
            words = [
                _hash_field([(kind, one_array(find_leaf(rows, place))) for kind, place in places])
                for places in (find_places(self.schema, path) for path in paths)
                if places
            ]
        else:
            groups = {
                name: [(each.type, one_array(rows.column(each.name))) for each in fields]
                for name, fields in fields_by_source(self.schema).items()
            }
            words = list(_hash_others(groups, [fold_path(path) for path in self.rules.untracked]))
        return _combine(words) if words else pa.repeat(pa.scalar(0, pa.uint64()), len(rows))


def _has_variant(data_type: DataType) -> bool:
    return data_type == VARIANT or any(_has_variant(each) for _, each in children(data_type))


def _hash_others(groups: Mapping[str, Sequence[_Column]], untracked: Sequence[Path]) -> Iterator[pa.Array]:
    """Yield the words of the fields of a record that are not among some paths, which are folded."""
    for name, columns in groups.items():
        inner = [path[1:] for path in untracked if path[:1] == fold_path((name,))]
        if () in inner:
            continue
        if not inner:
            yield _hash_field(columns)
            continue
        yield from _hash_others(_fields_of(columns), inner)
        others = [each for each in columns if not isinstance(each[0], StructType)]
        if others:
            yield _hash_field(others)


# The words of a field: 64 bits for each value, null without one.


def _hash_field(columns: Sequence[_Column]) -> pa.Array:
    """Return the words of a field that has some columns.

    If several of them have a value, they have copies of it, or parts: of records fields, of lists items, of maps
    entries. A column of texts has copies of other scalars, and so have times of numbers.
    """
    groups: dict[str, list[_Column]] = {}
    for data_type, values in columns:
        groups.setdefault(_kind_of(data_type), []).append((data_type, values))
    found = [_HASHES.get(kind, _hash_scalars)(groups[kind], kind) for kind in sorted(groups, key=_PRIORITY.index)]
    return pc.coalesce(*found)


_PRIORITY = ("record", "map", "number", "other", "date", "text", "list")
"""The kinds of columns, the one first whose values decide where several columns of a field have one.

A column of lists also has each single value, as a list of one.
"""


def _kind_of(data_type: DataType) -> str:
    match data_type:
        case StructType():
            return "record"
        case ArrayType():
            return "list"
        case MapType():
            return "map"
        case DecimalType():
            return "number"
    return _SCALARS.get(data_type, "other")


_SCALARS: Mapping[DataType, str] = {
    **dict.fromkeys((BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE), "number"),
    **dict.fromkeys((DATE, TIMESTAMP_NTZ), "date"),
    STRING: "text",
}


def _hash_scalars(columns: Sequence[_Column], kind: str) -> pa.Array:
    if len(columns) > 1 and kind in _FORMS:
        columns = [(STRING, _FORMS[kind](values)) for _, values in columns]
    words = (pc.if_else(values.is_valid(), hash_values(values), _nothing()) for _, values in columns)
    return _combine([pc.coalesce(*words)], kind)


def _nothing() -> pa.Scalar:
    return pa.scalar(None, pa.uint64())


def _number_text(values: pa.Array) -> pa.Array:
    """Return numbers as texts that are the same for equal numbers of any type."""
    if pa.types.is_decimal(values.type):
        return decimal_text(values)
    if not pa.types.is_floating(values.type):
        return values.cast(pa.string())
    doubles = values.cast(pa.float64())
    texts, size = doubles.cast(pa.string()), pc.abs(doubles)
    is_negative_zero = pc.and_(pc.equal(doubles, 0.0), pc.less(doubles.view(pa.int64()), 0))
    is_plain = pc.and_(pc.and_(pc.less(size, _LARGEST), pc.greater_equal(size, _SMALLEST)), pc.is_valid(doubles))
    is_plain = pc.or_(is_plain, pc.and_(pc.equal(doubles, 0.0), pc.invert(is_negative_zero)))
    is_plain = pc.fill_null(is_plain, False)
    plain = pc.if_else(is_plain, texts, pa.scalar(None, pa.string())).cast(pa.decimal256(76, 36))
    return pc.coalesce(decimal_text(plain), texts)


def _micros(values: pa.Array) -> pa.Array:
    """Return dates and times without a zone as one kind of number: a column of dates may widen."""
    if pa.types.is_date(values.type):
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), _DAY_MICROS)
    return values.cast(pa.timestamp("us")).cast(pa.int64())


_FORMS = {"number": _number_text, "date": _micros}


def _hash_records(columns: Sequence[_Column], kind: str) -> pa.Array:
    words = [_hash_field(group) for group in _fields_of(columns).values()]
    is_there = reduce(pc.or_, (values.is_valid() for _, values in columns))
    return pc.if_else(is_there, _combine([*words, is_there], kind), _nothing())


def _fields_of(columns: Sequence[_Column]) -> dict[str, list[_Column]]:
    """Return the columns of the fields of records by field, null where the record is."""
    found: dict[str, list[_Column]] = {}
    for data_type, values in columns:
        if isinstance(data_type, StructType):
            for field, part in zip(data_type, values.flatten(), strict=True):
                found.setdefault(source_key(field), []).append((field.type, part))
    return found


def _hash_lists(columns: Sequence[_Column], kind: str) -> pa.Array:
    lengths = [pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64()) for _, values in columns]
    longest = pc.max_element_wise(*lengths)
    ends = pc.cumulative_sum(longest)
    offsets, starts = pa.concat_arrays([pa.array([0], pa.int64()), ends]), pc.subtract(ends, longest)
    count = offsets[-1].as_py()
    owner = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, pa.nulls(count)))
    position = pc.subtract(count_up(count), starts.take(owner))
    items: list[_Column] = []
    for (data_type, values), length in zip(columns, lengths, strict=True):
        assert isinstance(data_type, ArrayType)
        own = pc.subtract(pc.cumulative_sum(length), length).take(owner)
        at = pc.if_else(pc.less(position, length.take(owner)), pc.add(own, position), pa.scalar(None, pa.int64()))
        items.append((data_type.element, values.flatten().take(at)))
    words = pa.LargeListArray.from_arrays(offsets, _combine([_hash_field(items)]).view(pa.int64()))
    is_there = reduce(pc.or_, (values.is_valid() for _, values in columns))
    return pc.if_else(is_there, _combine([hash_values(words)], kind), _nothing())


def _hash_maps(columns: Sequence[_Column], kind: str) -> pa.Array:
    """Return the words of maps; the order of their entries does not matter."""
    rows = len(columns[0][1])
    parts = []
    for data_type, values in columns:
        assert isinstance(data_type, MapType)
        entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        entries = values.cast(pa.list_(entry))
        keys, items = entries.flatten().flatten()
        owner, key = pc.list_parent_indices(entries).cast(pa.int64()), hash_values(keys)
        parts.append((data_type.value, items, owner, key, _combine([owner, key])))
    # An entry of one key may be in several columns.
    owner, key, every = (pa.concat_arrays([part[at] for part in parts]) for at in (2, 3, 4))
    distinct = pc.unique(every)
    first = pc.index_in(distinct, value_set=every)
    entry_values = [(kind, items.take(pc.index_in(distinct, value_set=own))) for kind, items, *_, own in parts]
    owners, words = owner.take(first), _combine([key.take(first), _hash_field(entry_values)])
    order = pc.sort_indices(
        pa.table({"owner": owners, "words": words}), [("owner", "ascending"), ("words", "ascending")]
    )
    owners, words = owners.take(order), words.take(order)
    sizes = pc.value_counts(owners)
    length = sizes.field("counts").take(pc.index_in(count_up(rows), value_set=sizes.field("values")))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(pc.fill_null(length, 0))])
    lists = pa.LargeListArray.from_arrays(offsets, words.view(pa.int64()))
    is_there = reduce(pc.or_, (values.is_valid() for _, values in columns))
    return pc.if_else(is_there, _combine([hash_values(lists)], kind), _nothing())


_HASHES = {"record": _hash_records, "list": _hash_lists, "map": _hash_maps}


def _combine(words: Sequence[pa.Array], kind: str | None = None) -> pa.Array:
    """Return one word for the words of each row; with a kind, null for rows whose only word is null."""
    names = [f"{kind or ''}{at}" for at in range(len(words))]
    parts = [each.view(pa.int64()) if each.type == pa.uint64() else each for each in words]
    mixed = hash_values(pa.StructArray.from_arrays(parts, names))
    return mixed if kind is None or len(words) > 1 else pc.if_else(words[0].is_valid(), mixed, _nothing())
