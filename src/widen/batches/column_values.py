"""Typed records to rows with Arrow, in this process and in Spark's tasks.

Every value goes, converted exactly, to every column of its field that can hold it. Records that do not fit a fixed
column become rows of the quarantine.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d1, #d12, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from types import MappingProxyType
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.batches.text_tasks import find_broken_partition, lacks_partition
from widen.batches.typed_frames import is_untouched, is_void
from widen.evolution.policy import FixedColumn, Samples, sample_formatter
from widen.files.arrow_types import count_up, to_arrow, to_arrow_schema
from widen.files.conversions import convert_values, date_texts, holds_every_value, time_texts
from widen.files.data_reader import record_texts
from widen.json.field_rules import JSON_BEGIN, MASK, FieldRule, FieldRules
from widen.json.kinds import MAP_WORD, NULL_WORD, RECORD_WORD, Kind, leaf_and_dim
from widen.json.observation import (
    SAMPLE_CHARS,
    KindObservation,
    RecordObservation,
    TemporalString,
    get_field,
    type_facts,
)
from widen.model.column_path import Path, format_path, map_children
from widen.model.types import (
    BINARY,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.rows.row import (
    ColumnSlot,
    RecordRoute,
    fixed_column_route,
    is_excluded_kind,
    stores_kind,
    widest_record_route,
)
from widen.rows.row_builder import ORIGIN_FIELDS, RowCondition
from widen.schema.source_metadata import RESCUED, role_field

TypedArray: TypeAlias = tuple[pa.Array, DataType]
"""Values with their type; their Arrow type is the result of `to_arrow`."""


NO_MARKS: Mapping[str, pa.Array] = MappingProxyType({})


class QuarantinedRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record that goes to the quarantine; see `widen.rows.row_builder.ORIGIN_FIELDS`."""

    text: str
    file: str
    position: int
    reason: str


@dataclass(frozen=True)
class RowConversion:
    """How the columns of files become rows of a table. Picklable.

    Args:
        source: The fields of the records as they are read, with those that they get from their files.
        fills: The values of the columns that the records of a file have no field for, as arrays of one value, by the
            URI of the file.
    """

    source: StructType
    rules: FieldRules
    route: RecordRoute
    schema: StructType
    samples: Samples = Samples.MASKED
    partition_by: tuple[str, ...] = ()
    conditions: tuple[RowCondition, ...] = ()
    fills: Mapping[str, Mapping[str, pa.Array]] = field(default_factory=dict)

    @property
    def can_quarantine(self) -> bool:
        """Whether some records may not fit the table."""
        return bool(self.partition_by or self.conditions or self.violations)

    @property
    def violations(self) -> int:
        """How many violations of fixed columns records may have."""
        return len(self._violations(self.prepare(self._nothing()), 0, {}))

    @property
    def prepared(self) -> StructType:
        """The fields of records with the field rules applied."""
        return _schema_of(self.prepare(self._nothing()))

    def prepare(self, columns: Mapping[str, pa.Array]) -> dict[str, TypedArray]:
        """Return the fields of records with the field rules applied."""
        return apply_rules({field.name: (columns[field.name], field.type) for field in self.source}, self.rules)

    def judge(
        self,
        records: pa.RecordBatch,
        types: pa.Schema,
        missing: Mapping[str, pa.Array] = NO_MARKS,
        fills: Mapping[str, pa.Array] = NO_MARKS,
    ) -> JudgedRows:
        """Return the rows of records, and which of them the table does not take.

        Args:
            missing: Whether each record has no field for a column, by the columns that the table fills.
            fills: The values of columns that none of the records has a field for.
        """
        rows = records.num_rows
        fields = self.prepare(dict(zip(records.schema.names, records.columns, strict=True)))
        filled = _fill_columns(fields, self.route)
        filled |= {name: pa.repeat(value[0], rows) for name, value in fills.items()}
        missing = {**missing, **{name: _repeat(True, rows) for name in fills}}
        rescued = role_field(self.schema, RESCUED)
        rest = {} if rescued is None else _rest_of_record(fields, self.route)
        if rescued is not None and rest:
            filled[rescued.name] = _rest_texts(rest, rows)
        batch = pa.RecordBatch.from_arrays(
            [fit(filled.get(each.name), each.type, rows) for each in types], schema=types
        )
        broken = [condition.find_broken(batch) for condition in self.conditions]
        return JudgedRows(self, batch, fields, self._violations(fields, rows, missing), broken)

    def convert(
        self, records: pa.RecordBatch, types: pa.Schema, file: str, first: int
    ) -> tuple[pa.RecordBatch, list[QuarantinedRecord], list[int]]:
        """Return the rows of records that fit the table, the others, and how many of these have each violation.

        Args:
            first: The number of the first of them in the file, from 0.
        """
        judged = self.judge(records, types, fills=self.fills.get(file, NO_MARKS))
        counts = [pc.sum(each).as_py() or 0 for each in judged.flags]
        is_broken = judged.is_broken
        if not pc.any(is_broken).as_py():
            return judged.rows, [], counts
        chosen = pc.indices_nonzero(is_broken)
        found = zip(chosen.to_pylist(), judged.texts(chosen), judged.reasons(chosen), strict=True)
        quarantined = [QuarantinedRecord(text, file, first + at + 1, reason) for at, text, reason in found]
        return judged.rows.filter(pc.invert(is_broken)), quarantined, counts

    def observe_violations(self, counts: Sequence[int]) -> RecordObservation:
        root: RecordObservation = {}
        violations = self._violations(self.prepare(self._nothing()), 0, {})
        for violation, count in zip(violations, counts, strict=True):
            record = root
            for key in violation.source[:-1]:
                above = get_field(record, key)
                above.kinds.setdefault(Kind(RECORD_WORD), KindObservation())
                record = above.record(0)
            if count:
                get_field(record, violation.source[-1]).kinds[violation.kind] = KindObservation(count=count)
        return root

    def _nothing(self) -> dict[str, pa.Array]:
        return {field.name: pa.array([], to_arrow(stored_form(field.type))) for field in self.source}

    def _violations(
        self, fields: Mapping[str, TypedArray], rows: int, missing: Mapping[str, pa.Array]
    ) -> list[_Violation]:
        return list(_find_violations(fields, fixed_column_route(self.route), (), self.samples, rows, missing))


@dataclass(frozen=True)
class JudgedRows:
    """The rows of some records, and which of them the table does not take."""

    conversion: RowConversion
    rows: pa.RecordBatch
    fields: Mapping[str, TypedArray]
    violations: Sequence[_Violation]
    broken: Sequence[pa.Array]

    @property
    def flags(self) -> list[pa.Array]:
        """Which records have each violation of a fixed column."""
        return [each.is_violated for each in self.violations]

    @property
    def is_broken(self) -> pa.Array:
        """Which rows the table does not take."""
        lacking = [lacks_partition(self.rows.column(name)) for name in self.conversion.partition_by]
        return reduce(pc.or_, (*self.flags, *lacking, *self.broken), _repeat(False, self.rows.num_rows))

    def texts(self, chosen: pa.Array) -> list[str]:
        """Return some records as JSON."""
        taken = {key: (values.take(chosen), kind) for key, (values, kind) in self.fields.items()}
        return document_texts(taken, len(chosen))

    def reasons(self, chosen: pa.Array) -> list[str]:
        """Return why the table does not take some rows."""
        named, conditions = self.conversion.partition_by, self.conversion.conditions
        rows = (
            (self.rows if conditions else self.rows.select(list(named))).take(chosen) if conditions or named else None
        )
        columns = [{}] * len(chosen) if rows is None else rows.to_pylist()
        reasons = []
        for at, row in zip(chosen.to_pylist(), columns, strict=True):
            reason = next((each.reason(at) for each in self.violations if each.is_violated[at].as_py()), None)
            for condition, mask in zip(conditions, self.broken, strict=True):
                reason = reason or (condition.explain(row) if mask[at].as_py() else None)
            reasons.append(reason or find_broken_partition(row, named) or "")
        return reasons


def _repeat(value: bool, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), rows)


def stored_form(data_type: DataType) -> DataType:
    """Return the type of values that Spark hands to tasks: variants, and strings that are read as dates, are texts."""
    if data_type == VARIANT or isinstance(data_type, TemporalString):
        return STRING
    return map_children(data_type, lambda _, child: stored_form(child))


def task_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of records as Spark hands them to tasks."""
    return to_arrow_schema(StructType(tuple(Field(field.name, stored_form(field.type)) for field in schema)))


def to_quarantine_rows(records: Sequence[QuarantinedRecord]) -> pa.Table:
    """Return records as rows of the quarantine; see `widen.rows.row_builder.ORIGIN_FIELDS`."""
    columns = [[getattr(each, name) for each in records] for name in QuarantinedRecord.__struct_fields__]
    types = (pa.string(), pa.string(), pa.int64(), pa.string())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=list(ORIGIN_FIELDS))


def _schema_of(fields: Mapping[str, TypedArray]) -> StructType:
    return StructType(tuple(Field(name, data_type) for name, (_, data_type) in fields.items()))


# ---- the field rules -------------------------------------------------------------------------------


def apply_rules(fields: Mapping[str, TypedArray], rules: FieldRules) -> dict[str, TypedArray]:
    """Return the fields of records with the field rules applied; see `widen.batches.typed_frames`."""
    prepared = {
        key: _apply_rules(values, data_type, rules.at(key))
        for key, (values, data_type) in fields.items()
        if rules.at(key).take is not FieldRule.LEFT_OUT
    }
    return {key: (values, data_type) for key, (values, data_type) in prepared.items() if not is_void(data_type)}


def _apply_rules(values: pa.Array, data_type: DataType, rules: FieldRules) -> TypedArray:
    if is_void(data_type):
        return values, data_type
    if rules.take is FieldRule.MASKED:
        return _mask_values(values), STRING
    is_nested = isinstance(data_type, (ArrayType, MapType, StructType))
    # A variant is JSON already.
    is_text = data_type != VARIANT and (
        rules.take is FieldRule.AS_JSON or (rules.take is FieldRule.AS_TEXT and is_nested)
    )
    if not is_text:
        return _apply_nested_rules(values, data_type, rules)
    if rules.below or rules.hidden:
        values, data_type = _apply_nested_rules(values, data_type, rules)
    return value_texts(values, data_type), STRING


def _apply_nested_rules(
    values: pa.Array, data_type: DataType, rules: FieldRules, *, is_entry: bool = False
) -> TypedArray:
    """Apply the field rules inside nested values.

    Args:
        is_entry: Whether they are values of a map, which its key hides already where the policy says so.
    """
    if is_untouched(data_type, rules):
        return values, data_type
    match data_type:
        case StructType(inner):
            parts = {each.name: (part, each.type) for each, part in zip(inner, values.flatten(), strict=True)}
            fields = apply_rules(parts, rules)
            schema = _schema_of(fields)
            if not fields:
                return values, schema
            arrays = [part for part, _ in fields.values()]
            return pa.StructArray.from_arrays(
                arrays, fields=list(to_arrow_schema(schema)), mask=values.is_null()
            ), schema
        case ArrayType(element):
            items, kind = _apply_nested_rules(values.flatten(), element, rules, is_entry=is_entry)
            return _to_lists(_lengths(values), items, values.is_null()), ArrayType(kind)
        case MapType():
            return _apply_map_rules(values, data_type, rules)
        case _ if data_type == BINARY and rules.hidden:
            return _mask_values(values), STRING
        case _ if data_type == STRING and rules.hidden and not is_entry:
            # A text where the policy expects a record may spell out that record.
            return _mask_values(values), STRING
        case _ if data_type == STRING and rules.hidden:
            return pc.if_else(pc.match_substring_regex(values, JSON_BEGIN), pa.scalar(MASK), values), STRING
        case _ if data_type == STRING and rules.reads_times:
            return values, TemporalString(has_instants=rules.is_dated, has_local_times=rules.has_local_times)
    return values, STRING if data_type == VARIANT else data_type


def _apply_map_rules(values: pa.Array, data_type: MapType, rules: FieldRules) -> TypedArray:
    """Apply the field rules to the entries of maps, whose keys may be excluded or masked, too."""
    left_out = {key for key, at in rules.hidden.items() if at.take is FieldRule.LEFT_OUT}
    # Where the policy names a field below a key, as if the map were a record, the whole entry is masked.
    masked = rules.hidden.keys() - left_out
    keys, items = _entries(values)
    lengths, names = _map_lengths(values), convert_values(keys, data_type.key, STRING)
    assert names is not None
    inner, kind = _apply_nested_rules(items, data_type.value, rules, is_entry=True)
    if masked:
        # Other values of the map keep their type, which has no form for a mask.
        mask = pa.scalar(MASK if kind == STRING else None, inner.type)
        is_masked = pc.and_(_are_keys(names, masked), inner.is_valid())
        inner = pc.if_else(is_masked, mask, inner)
    if left_out:
        is_kept = pc.invert(_are_keys(names, left_out))
        keys, inner, lengths = keys.filter(is_kept), inner.filter(is_kept), _sums(is_kept, lengths)
    return _to_maps(lengths, keys, inner, values), MapType(data_type.key, kind)


def _are_keys(names: pa.Array, keys: Collection[str]) -> pa.Array:
    """Return whether the texts of keys are some names, which are folded."""
    found = [name for name in names.unique().to_pylist() if name is not None and similarity_key(name) in keys]
    return pc.is_in(names, value_set=pa.array(found, pa.string()))


def _mask_values(values: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), pa.scalar(MASK), pa.scalar(None, pa.string()))


# ---- fields to columns -----------------------------------------------------------------------------


def _fill_columns(fields: Mapping[str, TypedArray], route: RecordRoute) -> dict[str, pa.Array]:
    columns = {}
    for key, (values, data_type) in fields.items():
        for slot in route.get(key, ()):
            held = _hold_values(values, data_type, slot, slot.dim)
            if held is not None:
                columns[slot.name] = held
    return columns


def _hold_values(values: pa.Array, data_type: DataType, slot: ColumnSlot, dim: int) -> pa.Array | None:
    """Return what a column with ``dim`` levels of arrays holds of values; None if it holds no value of their type.

    Values with fewer levels are wrapped in arrays.
    """
    if isinstance(data_type, ArrayType):
        return _hold_array(values, data_type, slot, dim - 1) if dim else None
    if dim:
        inner = _hold_values(values, data_type, slot, dim - 1)
        return (
            None if inner is None else _to_lists(inner.is_valid().cast(pa.int32()), inner.drop_null(), inner.is_null())
        )
    if isinstance(data_type, MapType):
        return None if slot.entries is None else _hold_map(values, data_type, slot.entries)
    if isinstance(data_type, StructType):
        return None if slot.record is None else _hold_record(values, data_type, slot, slot.record)
    if slot.record is not None or slot.entries is not None or _does_bar(slot, data_type):
        return None
    return convert_values(values, data_type, slot.type, slot.epoch_unit)


def _hold_array(values: pa.Array, data_type: ArrayType, slot: ColumnSlot, dim: int) -> pa.Array | None:
    """Return arrays with null for elements that the column cannot hold; null if it cannot hold any of the elements."""
    items = values.flatten()
    held = _hold_values(items, data_type.element, slot, dim)
    if held is None:
        return None
    lengths, is_null = _lengths(values), values.is_null()
    if not _is_total(data_type.element, slot, dim):
        is_lost = pc.and_(pc.greater(_sums(items.is_valid(), lengths), 0), pc.equal(_sums(held.is_valid(), lengths), 0))
        is_kept = pc.invert(is_lost)
        held = held.filter(is_kept.take(pc.list_parent_indices(_to_lists(lengths, items, None))))
        lengths, is_null = pc.if_else(is_kept, lengths, pa.scalar(0, pa.int32())), pc.or_(is_null, is_lost)
    return _to_lists(lengths, held, is_null)


def _hold_map(values: pa.Array, data_type: MapType, slot: ColumnSlot) -> pa.Array | None:
    keys, items = _entries(values)
    held, texts = _hold_values(items, data_type.value, slot, slot.dim), convert_values(keys, data_type.key, STRING)
    if held is None:
        return None
    assert texts is not None
    return _to_maps(_map_lengths(values), texts, held, values)


def _hold_record(values: pa.Array, data_type: StructType, slot: ColumnSlot, route: RecordRoute) -> pa.Array:
    assert isinstance(slot.type, StructType)
    inner = {each.name: (part, each.type) for each, part in zip(data_type, values.flatten(), strict=True)}
    filled, types = _fill_columns(inner, route), to_arrow_schema(slot.type)
    arrays = [fit(filled.get(each.name), each.type, len(values)) for each in types]
    return pa.StructArray.from_arrays(arrays, fields=list(types), mask=values.is_null())


def _is_total(data_type: DataType, slot: ColumnSlot, dim: int) -> bool:
    """Return whether a column holds every value of a type; it holds some of them."""
    if isinstance(data_type, ArrayType):
        return dim > 0 and _is_total(data_type.element, slot, dim - 1)
    if dim:
        return _is_total(data_type, slot, dim - 1)
    if isinstance(data_type, StructType):
        return True
    if isinstance(data_type, MapType):
        assert slot.entries is not None
        return _is_total(data_type.value, slot.entries, slot.entries.dim)
    return holds_every_value(data_type, slot.type)


# ---- values that no column holds -------------------------------------------------------------------


def _rest_of_record(fields: Mapping[str, TypedArray], route: RecordRoute) -> dict[str, TypedArray]:
    """Return the fields that no column holds completely, null where one does; empty if every field is always held.

    Source: docs/evolution-rules.md#d10
    """
    rests = {key: _rest(values, data_type, route.get(key, ())) for key, (values, data_type) in fields.items()}
    return {key: rest for key, rest in rests.items() if rest is not None}


def _rest(values: pa.Array, data_type: DataType, slots: Sequence[ColumnSlot]) -> TypedArray | None:
    """Return the values that no column holds, and null for the others; None if columns always hold all values.

    An array or a map that is not held completely is returned as a whole.
    """
    record = widest_record_route(slots)
    if isinstance(data_type, StructType) and record is not None:
        inner = {each.name: (part, each.type) for each, part in zip(data_type, values.flatten(), strict=True)}
        rest = _rest_of_record(inner, record)
        if not rest:
            return None
        kind = _schema_of(rest)
        is_null = reduce(pc.and_, (part.is_null() for part, _ in rest.values()))
        parts = [part for part, _ in rest.values()]
        return pa.StructArray.from_arrays(parts, fields=list(to_arrow_schema(kind)), mask=is_null), kind
    is_held = _are_held(values, data_type, slots, 0)
    if is_held is None:
        return None
    return values.take(pc.if_else(is_held, pa.scalar(None, pa.int64()), count_up(len(values)))), data_type


def _rest_texts(rest: Mapping[str, TypedArray], rows: int) -> pa.Array:
    """Return the texts of what no column holds of records; null where columns hold all of one."""
    has_rest = reduce(pc.or_, (values.is_valid() for values, _ in rest.values()))
    chosen = pc.indices_nonzero(has_rest)
    taken = {key: (values.take(chosen), kind) for key, (values, kind) in rest.items()}
    texts = document_texts(taken, len(chosen))
    found = pc.subtract(pc.cumulative_sum(has_rest.cast(pa.int64())), 1)
    return pa.array(texts, pa.string()).take(_only(found, has_rest)) if rows else pa.array([], pa.string())


def _only(values: pa.Array, is_kept: pa.Array) -> pa.Array:
    return pc.if_else(is_kept, values, pa.scalar(None, values.type))


def _are_held(values: pa.Array, data_type: DataType, slots: Sequence[ColumnSlot], dim: int) -> pa.Array | None:
    """Return whether some column holds each value exactly; None if that is always so.

    Args:
        dim: How many levels of arrays surround the values.
    """
    deep = [slot for slot in slots if slot.dim >= dim]
    match data_type:
        case ArrayType(element):
            deeper = [slot for slot in deep if slot.dim > dim and _can_hold(data_type, slot, slot.dim - dim)]
            if not deeper:
                return values.is_null()
            return _are_all(_are_held(values.flatten(), element, deeper, dim + 1), _lengths(values))
        case MapType(_, value):
            entries = [
                slot.entries for slot in deep if slot.entries is not None and _can_hold(data_type, slot, slot.dim - dim)
            ]
            if not entries:
                return values.is_null()
            return _are_all(_are_held(_entries(values)[1], value, entries, 0), _map_lengths(values))
        case StructType(inner):
            record = widest_record_route(deep)
            if record is None:
                return values.is_null()
            parts = zip(inner, values.flatten(), strict=True)
            found = (_are_held(part, each.type, record.get(each.name, ()), 0) for each, part in parts)
            partial = [each for each in found if each is not None]
            return reduce(pc.and_, partial) if partial else None
    plain = [slot for slot in deep if _stores(slot, data_type)]
    if any(holds_every_value(data_type, slot.type) for slot in plain):
        return None
    converted = (convert_values(values, data_type, slot.type, slot.epoch_unit) for slot in plain)
    return reduce(pc.or_, (each.is_valid() for each in converted if each is not None), values.is_null())


def _are_all(marks: pa.Array | None, lengths: pa.Array) -> pa.Array | None:
    """Return whether all items of each list have a mark."""
    return None if marks is None else pc.equal(_sums(pc.invert(marks), lengths), 0)


def _can_hold(data_type: DataType, slot: ColumnSlot, dim: int) -> bool:
    return _hold_values(pa.array([], to_arrow(data_type)), data_type, slot, dim) is not None


def _does_bar(slot: ColumnSlot, data_type: DataType) -> bool:
    """Return whether a column must not have values of a type."""
    facts = type_facts(data_type)
    return facts is not None and is_excluded_kind(slot, facts[0])


def _stores(slot: ColumnSlot, data_type: DataType) -> bool:
    facts = type_facts(data_type)
    return slot.record is None and slot.entries is None and (facts is None or stores_kind(slot, facts[0]))


# ---- records that do not fit fixed columns ---------------------------------------------------------


@dataclass(frozen=True)
class _Violation:
    """A reason to quarantine records."""

    source: Path
    kind: Kind
    is_violated: pa.Array
    reason: Callable[[int], str]


def _find_violations(
    fields: Mapping[str, TypedArray],
    route: RecordRoute,
    above: Path,
    samples: Samples,
    rows: int,
    missing: Mapping[str, pa.Array],
) -> Iterator[_Violation]:
    for key, slots in route.items():
        values, data_type = fields.get(key, (pa.nulls(rows), None))
        for slot in slots:
            if slot.guard is not None:
                is_missing = missing.get(slot.name) if slot.guard.is_filled else None
                yield from _column_violations((*above, key), values, data_type, slot, slot.guard, samples, is_missing)
            if slot.record is not None and not slot.dim and isinstance(data_type, StructType):
                inner = {each.name: (part, each.type) for each, part in zip(data_type, values.flatten(), strict=True)}
                yield from _find_violations(inner, slot.record, (*above, key), samples, rows, NO_MARKS)


def _column_violations(
    source: Path,
    values: pa.Array,
    data_type: DataType | None,
    slot: ColumnSlot,
    guard: FixedColumn,
    samples: Samples,
    is_missing: pa.Array | None,
) -> Iterator[_Violation]:
    path, column = format_path(source), f"and column {slot.name} is {guard.reason}"
    if guard.is_required:
        is_null = values.is_null() if is_missing is None else pc.and_(values.is_null(), pc.invert(is_missing))
        yield _Violation(source, Kind(NULL_WORD), is_null, lambda _: f"{path} is null, {column}")
    if data_type is None:
        return
    if not guard.takes_values:
        text = f"{path} has a value, but column {slot.name} is {guard.reason}"
        yield _Violation(source, kind_of(data_type), values.is_valid(), lambda _: text)
        return
    is_held = _are_held(values, data_type, (slot,), 0)
    if is_held is None:
        return

    def reason(at: int) -> str:
        shown = _show_value(values.slice(at, 1), data_type, samples)
        return f"{path}: {shown} is not of type {slot.type.sql}, {column}"

    yield _Violation(source, kind_of(data_type), pc.invert(is_held), reason)


def kind_of(data_type: DataType) -> Kind:
    """Return the kind of the values of a type."""
    leaf, dim = leaf_and_dim(data_type)
    facts = type_facts(leaf)
    word = RECORD_WORD if isinstance(leaf, StructType) else MAP_WORD if isinstance(leaf, MapType) else NULL_WORD
    return Kind(facts[0] if facts else word, dim)


def _show_value(values: pa.Array, data_type: DataType, samples: Samples) -> str:
    [text] = value_texts(values, data_type).to_pylist()
    return sample_formatter(samples)(text[:SAMPLE_CHARS]) or "the value"


# ---- values as JSON --------------------------------------------------------------------------------


def document_texts(fields: Mapping[str, TypedArray], rows: int) -> list[str]:
    """Return records as JSON, without the null fields of records: with texts as keys of maps, and all digits of times.

    Source: docs/evolution-rules.md#d10, #d16
    """
    if not fields:
        return ["{}"] * rows
    documents = {key: _to_document(values, data_type) for key, (values, data_type) in fields.items()}
    arrays = [values for values, _ in documents.values()]
    return record_texts(_schema_of(documents), pa.Table.from_arrays(arrays, names=list(documents)))


def value_texts(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return values as JSON; null stays null."""
    texts = document_texts({"": (values, data_type)}, len(values))
    start, end = len('{"":'), -1
    return _only(pa.array([text[start:end] for text in texts], pa.string()), values.is_valid())


def _to_document(values: pa.Array, data_type: DataType) -> TypedArray:
    """Return values in the form that is written as JSON: dates and times as texts, and so are keys of maps."""
    match data_type:
        case StructType(inner):
            parts = [_to_document(part, each.type) for each, part in zip(inner, values.flatten(), strict=True)]
            kind = StructType(tuple(Field(f.name, found) for f, (_, found) in zip(inner, parts, strict=True)))
            if kind == data_type or not parts:
                return values, data_type
            arrays = [part for part, _ in parts]
            return pa.StructArray.from_arrays(arrays, names=list(kind.names), mask=values.is_null()), kind
        case ArrayType(element):
            items, found = _to_document(values.flatten(), element)
            return (
                (values, data_type)
                if found == element
                else (_to_lists(_lengths(values), items, values.is_null()), ArrayType(found))
            )
        case MapType(key, value):
            keys, items = _entries(values)
            items, found = _to_document(items, value)
            texts = convert_values(keys, key, STRING)
            assert texts is not None
            return _to_maps(_map_lengths(values), texts, items, values), MapType(STRING, found)
    if data_type == DATE:
        return date_texts(values), STRING
    if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
        return time_texts(values, data_type), STRING
    return values, STRING if isinstance(data_type, TemporalString) else data_type


# ---- Arrow's lists ---------------------------------------------------------------------------------


def _lengths(lists: pa.Array) -> pa.Array:
    return pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())


def _entries(maps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all maps, without those behind nulls."""
    keys, items = _as_lists(maps).flatten().flatten()
    return keys, items


def _as_lists(maps: pa.Array) -> pa.Array:
    kind = maps.type
    return maps.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def _map_lengths(maps: pa.Array) -> pa.Array:
    return _lengths(_as_lists(maps))


def _to_maps(lengths: pa.Array, keys: pa.Array, items: pa.Array, maps: pa.Array) -> pa.Array:
    """Return maps with other entries, null where others are."""
    offsets = _offsets(lengths)
    if maps.null_count:
        is_null = pa.concat_arrays([maps.is_null(), pa.array([False])])
        offsets = pc.if_else(is_null, pa.scalar(None, pa.int32()), offsets)
    return pa.MapArray.from_arrays(offsets, keys, items)


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _to_lists(lengths: pa.Array, items: pa.Array, is_null: pa.Array | None) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(lengths), items, mask=is_null)


def _sums(marks: pa.Array, lengths: pa.Array) -> pa.Array:
    """Return how many items of each list have a mark."""
    totals = _offsets(marks.cast(pa.int32()))
    ends = pc.cumulative_sum(lengths)
    return pc.subtract(totals.take(ends), totals.take(pc.subtract(ends, lengths)))


def fit(values: pa.Array | None, wanted: pa.DataType, rows: int) -> pa.Array:
    """Return values in the type of a column, which may be wider and have more fields; null without values."""
    if values is None or pa.types.is_null(values.type):
        return pa.nulls(rows if values is None else len(values), wanted)
    if values.type == wanted:
        return values
    is_null = values.is_null() if values.null_count else None
    if pa.types.is_struct(wanted):
        found = {field.name: values.field(at) for at, field in enumerate(values.type)}
        children = [fit(found.get(field.name), field.type, rows) for field in wanted]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=is_null)
    if pa.types.is_list(wanted):
        items = fit(values.values, wanted.value_type, len(values.values))
        return pa.ListArray.from_arrays(_unsliced(values.offsets), items, type=wanted, mask=is_null)
    if pa.types.is_map(wanted):
        keys, items = (
            fit(part, inner, len(part))
            for part, inner in ((values.keys, wanted.key_type), (values.items, wanted.item_type))
        )
        return pa.MapArray.from_arrays(_unsliced(values.offsets), keys, items, type=wanted, mask=is_null)
    return values.cast(wanted)


def _unsliced(offsets: pa.Array) -> pa.Array:
    # A slice of offsets cannot have a mask.
    return pa.concat_arrays([offsets, offsets[:0]]) if offsets.offset else offsets
