"""Which kinds of values typed records have: how many, the first of each, and what their types leave open.

Source: docs/evolution-rules.md#one-interval, #d2, #d16
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from widen.files.conversions import are_exact_doubles, are_whole_ms, convert_values, temporal_values
from widen.json.kinds import LONG_WORD, MAP_WORD, RECORD_WORD, Kind
from widen.json.observation import (
    SAMPLE_CHARS,
    FieldObservation,
    KindObservation,
    RecordObservation,
    RecordPosition,
    TemporalString,
    type_facts,
)
from widen.model.column_path import ELEMENT, VALUE, Path
from widen.model.types import BINARY, STRING, TIMESTAMP, ArrayType, DataType, MapType, StructType
from widen.model.value_classes import dataclass

_NO_SAMPLE = "{…}"


def kinds(
    observation: FieldObservation, data_type: DataType, dim: int = 0
) -> Iterator[tuple[KindObservation, DataType | None]]:
    """Yield the observation of each kind of a field, with the type of scalars, in the order of `kinds_of`."""
    match data_type:
        case ArrayType(element):
            yield from kinds(observation, element, dim + 1)
        case StructType(inner):
            yield observation.kinds[Kind(RECORD_WORD, dim)], None
            for field in inner:
                yield from kinds(observation.records[dim][field.name], field.type, 0)
        case MapType(_, value):
            yield observation.kinds[Kind(MAP_WORD, dim)], None
            yield from kinds(observation.maps[dim], value, 0)
        case TemporalString():
            for each in (*data_type.types, STRING):
                yield observation.kinds[_scalar_kind(each, dim)], each
        case _ if type_facts(data_type) is not None:
            yield observation.kinds[_scalar_kind(data_type, dim)], data_type


def _scalar_kind(data_type: DataType, dim: int) -> Kind:
    facts = type_facts(data_type)
    assert facts is not None
    return Kind(facts[0], dim)


def kinds_of(
    values: pa.Array, rows: pa.Array, data_type: DataType, path: Path
) -> Iterator[tuple[Path, pa.Array, pa.Array]]:
    """Yield the path, the values and the index of their records of each kind, in the order of `kinds`."""
    match data_type:
        case ArrayType(element):
            parents = rows.take(pc.list_parent_indices(values))
            yield from kinds_of(values.flatten(), parents, element, (*path, ELEMENT))
        case StructType(fields):
            yield path, values, rows
            for inner, field in zip(values.flatten(), fields, strict=True):
                yield from kinds_of(inner, rows, field.type, (*path, field.name))
        case MapType(_, value):
            yield path, values, rows
            lists = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field])))
            parents = rows.take(pc.list_parent_indices(lists))
            yield from kinds_of(lists.flatten().flatten()[1], parents, value, (*path, VALUE))
        case TemporalString():
            rest = values
            for each in data_type.types:
                found = temporal_values(values, each)
                rest = pc.if_else(found.is_valid(), pa.scalar(None, pa.string()), rest)
                yield path, found, rows
            yield path, rest, rows
        case _ if type_facts(data_type) is not None:
            yield path, values, rows


def fill_counts(
    root: RecordObservation,
    seen: RecordObservation,
    types: Mapping[str, DataType],
    *,
    has_facts: bool = False,
    only_absent: bool = False,
) -> None:
    """Take over the counts of kinds, and the facts about them, of some fields.

    Args:
        only_absent: Whether kinds keep the counts that they have.
    """
    for name in seen:
        for (own, _), (found, _) in zip(kinds(root[name], types[name]), kinds(seen[name], types[name]), strict=True):
            if not (only_absent and own.count):
                own.count, own.first, own.sample = found.count, found.first, found.sample
            if has_facts:
                own.integer_digits, own.exact_double = found.integer_digits, found.exact_double
                own.epoch_ms_exact = found.epoch_ms_exact


def remove_absent(observation: FieldObservation, data_type: DataType, dim: int = 0) -> None:
    """Remove the kinds without a value that strings which are read as dates only might have."""
    match data_type:
        case ArrayType(element):
            remove_absent(observation, element, dim + 1)
        case StructType(inner):
            for field in inner:
                remove_absent(observation.records[dim][field.name], field.type)
        case MapType(_, value):
            remove_absent(observation.maps[dim], value)
        case TemporalString():
            for each in (*data_type.types, STRING):
                kind = _scalar_kind(each, dim)
                if not observation.kinds[kind].count:
                    del observation.kinds[kind]
            observation.nulls.update({} if observation.kinds else {dim: 1})


# ---- the first value of a kind ---------------------------------------------------------------------


class RecordOrder(Protocol):
    """Where the records of a batch come from."""

    def find_first(self, values: pa.Array, rows: pa.Array) -> tuple[int, RecordPosition | None]:
        """Return the index of the first value that is not null (there is one), and the position of its record.

        Args:
            rows: The index of the record of each value.
        """


@dataclass(frozen=True, slots=True)
class FileOrder:
    """The records of one file, with the indexes of its rows."""

    uri: str
    find_origin: Callable[[str, int], RecordPosition] = field(default=lambda uri, row: (uri, row + 1))

    def find_first(self, values: pa.Array, rows: pa.Array) -> tuple[int, RecordPosition | None]:
        """Return the first value; see `RecordOrder`."""
        first = pc.index(values.is_valid(), True).as_py()
        return first, self.find_origin(self.uri, rows[first].as_py())


class FrameOrder:
    """Records in any order, each with its file and its number.

    Args:
        places: The locations; None if they are unknown. Then the least value is the first one.
    """

    def __init__(self, places: pa.Array | None) -> None:
        self._files = self._numbers = self._ranks = None
        if places is not None:
            self._files, self._numbers = places.flatten()
            table = pa.table({"file": self._files, "number": self._numbers})
            order = pc.sort_indices(table, [("file", "ascending"), ("number", "ascending")])
            self._ranks = pc.sort_indices(order).cast(pa.int64())

    def find_first(self, values: pa.Array, rows: pa.Array) -> tuple[int, RecordPosition | None]:
        """Return the first value; see `RecordOrder`. A place with a number has one record."""
        valid = pc.indices_nonzero(values.is_valid())
        owners = rows.take(valid)
        # Of the values in one record, the first one counts.
        is_new = pc.not_equal(owners[1:], owners[:-1])
        valid = valid.filter(pa.concat_arrays([pa.array([True]), is_new]))
        if self._ranks is None or self._files is None or self._numbers is None:
            first = _least(values, valid)
            return first, _position_of(values[first])
        ranks = self._ranks.take(rows.take(valid))
        row = rows[valid[pc.index(ranks, pc.min(ranks)).as_py()].as_py()].as_py()
        place = (self._files[row].as_py() or "", self._numbers[row].as_py() or 0)
        if not place[1]:
            is_same = pc.equal(self._files.take(rows.take(valid)), self._files[row])
            return _least(values, valid.filter(pc.fill_null(is_same, True))), place
        return valid[pc.index(ranks, pc.min(ranks)).as_py()].as_py(), place


def _least(values: pa.Array, chosen: pa.Array) -> int:
    """Return the index of the least of some values; of the first one, if they have no order."""
    if pa.types.is_nested(values.type):
        return int(chosen[0].as_py())
    return int(chosen[pc.sort_indices(values.take(chosen))[0].as_py()].as_py())


def _position_of(value: pa.Scalar) -> RecordPosition | None:
    """Return what orders values like positions, so that the least of several tasks is found."""
    kind = value.type
    if pa.types.is_string(kind):
        return value.as_py(), 0
    if pa.types.is_binary(kind):
        return value.as_py().hex(), 0
    if pa.types.is_decimal(kind):
        return f"{int(value.as_py().scaleb(kind.scale)) + 10**39:040}", 0
    if pa.types.is_floating(kind):
        [bits] = struct.unpack(">q", struct.pack(">d", value.as_py()))
        return ("1" if math.isnan(value.as_py()) else "0", bits if bits >= 0 else -(2**63) - bits)
    if pa.types.is_nested(kind):
        return None
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    return "", value.cast(whole).as_py()


def add_values(
    observation: KindObservation, data_type: DataType | None, values: pa.Array, rows: pa.Array, places: RecordOrder
) -> None:
    """Add values to the observation of their kind.

    Args:
        data_type: The type of scalars; None for records and maps.
        rows: The index of the record of each value.
    """
    count = len(values) - values.null_count
    if not count:
        return
    observation.count += count
    if observation.first is not None and isinstance(places, FileOrder):
        return
    first, position = places.find_first(values, rows)
    if observation.sample and position is not None and observation.first is not None and observation.first <= position:
        return
    text = _NO_SAMPLE if data_type is None else _to_text(values.slice(first, 1), data_type)
    observation.sample, observation.first = text[:SAMPLE_CHARS], position


def _to_text(values: pa.Array, data_type: DataType) -> str:
    if data_type == BINARY:
        return base64.b64encode(values[0].as_py()).decode()
    texts = convert_values(values, data_type, STRING)
    assert texts is not None
    return str(texts[0].as_py())


# ---- facts that types leave open -------------------------------------------------------------------


class FactsOfKind:
    """The facts about the values of one kind of a field that the type leaves open, filled in batch by batch.

    Args:
        data_type: The type of scalars; None for records and maps.
    """

    def __init__(self, observation: KindObservation, data_type: DataType | None) -> None:
        facts = None if data_type is None else type_facts(data_type)
        self._observation = observation
        self._is_time = data_type == TIMESTAMP
        self._is_open = data_type is not None and not self._is_time and not observation.exact_double
        self._is_whole = facts is not None and facts[0] == LONG_WORD
        if self._is_time:
            observation.epoch_ms_exact = True
        elif self._is_open:
            observation.exact_double = True
        if self._is_whole:
            observation.integer_digits = 0

    def add(self, values: pa.Array) -> None:
        """Fill in what some values say."""
        observation = self._observation
        if self._is_time and observation.epoch_ms_exact:
            observation.epoch_ms_exact = pc.all(are_whole_ms(values)).as_py() is not False
        if self._is_open and observation.exact_double:
            observation.exact_double = pc.all(are_exact_doubles(values)).as_py() is not False
        if self._is_whole:
            bounds = pc.min_max(values).as_py().values()
            digits = [len(str(abs(each))) for each in bounds if each is not None]
            observation.integer_digits = max(observation.integer_digits, *digits, 0)


def add_batch(
    root: RecordObservation,
    fields: Mapping[str, tuple[pa.Array, DataType]],
    rows: pa.Array,
    places: RecordOrder,
    facts: Sequence[FactsOfKind] | None = None,
) -> None:
    """Add the values of some fields of the records of a batch.

    Args:
        facts: The facts of each kind of the fields, to fill in; None if only the types decide.
    """
    left = iter(facts or ())
    for name, (values, data_type) in fields.items():
        found = kinds_of(values, rows, data_type, (name,))
        for (kind, inner_type), (_, inner, owners) in zip(kinds(root[name], data_type), found, strict=True):
            add_values(kind, inner_type, inner, owners, places)
            for fact in () if facts is None else (next(left),):
                fact.add(inner)


def facts_of(root: RecordObservation, schema: StructType) -> list[FactsOfKind]:
    """Return the facts of each kind of the fields, to fill in."""
    return [FactsOfKind(kind, inner) for each in schema for kind, inner in kinds(root[each.name], each.type)]
