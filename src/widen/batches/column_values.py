"""Typed records to rows with Arrow, like `widen.batches.column_expressions`, for files that this process reads.

Every value goes, converted exactly, to every column of its field that can hold it. Records that do not fit a fixed
column become rows of the quarantine. What Arrow does not convert exactly as Spark does is `NotLocal`.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d1, #d12, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.batches.column_expressions import does_bar, kind_of
from widen.batches.text_tasks import find_broken_partition, lacks_partition
from widen.batches.typed_frames import is_untouched, is_void
from widen.evolution.policy import FixedColumn, Samples, sample_formatter
from widen.files.arrow_types import to_arrow, to_arrow_schema
from widen.files.conversions import (
    are_exact_doubles,
    are_whole_ms,
    convert_values,
)
from widen.files.data_reader import NotLocal, record_texts
from widen.frames.column_conversions import holds_every_value
from widen.json.field_rules import MASK, FieldRule, FieldRules
from widen.json.kinds import LONG_WORD, NULL_WORD, RECORD_WORD, Kind
from widen.json.observation import SAMPLE_CHARS, KindObservation, RecordObservation, get_field, type_facts
from widen.model.column_path import Path, format_path
from widen.model.types import (
    BINARY,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
)
from widen.rows.row import (
    ColumnSlot,
    RecordRoute,
    fixed_column_route,
    stores_kind,
    widest_record_route,
)
from widen.rows.row_builder import RowCondition
from widen.schema.source_metadata import RESCUED, role_field

TypedArray: TypeAlias = tuple[pa.Array, DataType]
"""Values with their type; their Arrow type is the result of `to_arrow`."""


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
        rules: The field rules of the policy.
        schema: The schema of the table.
        partition_by: The partition columns of strings, which do not hold every text.
        conditions: The conditions on rows.
    """

    source: StructType
    rules: FieldRules
    route: RecordRoute
    schema: StructType
    samples: Samples = Samples.MASKED
    partition_by: tuple[str, ...] = ()
    conditions: tuple[RowCondition, ...] = ()

    def ensure_exact(self) -> None:
        """Check that this process converts the values as Spark does.

        Raises:
            NotLocal: it does not.
        """
        empty = {field.name: pa.array([], to_arrow(field.type)) for field in self.source}
        fields = self.prepare(empty)
        _fill_columns(fields, self.route)
        if role_field(self.schema, RESCUED) is not None and not _are_always_held(fields, self.route):
            raise NotLocal("it writes what no column holds as JSON")
        if self._violations(fields) or self.partition_by or self.conditions:
            schema = _schema_of(fields)
            record_texts(schema, to_arrow_schema(schema).empty_table())

    def prepare(self, columns: Mapping[str, pa.Array]) -> dict[str, TypedArray]:
        """Return the fields of records with the field rules applied."""
        return apply_rules({field.name: (columns[field.name], field.type) for field in self.source}, self.rules)

    def convert(
        self, records: pa.RecordBatch, types: pa.Schema, file: str, first: int
    ) -> tuple[pa.RecordBatch, list[QuarantinedRecord], list[int]]:
        """Return the rows of records that fit the table, the others, and how many of these have each violation.

        Args:
            records: The fields of the records.
            types: The columns of the rows.
            file: The URI of their file.
            first: The number of the first of them in the file, from 0.
        """
        rows = records.num_rows
        fields = self.prepare(dict(zip(records.schema.names, records.columns, strict=True)))
        filled = _fill_columns(fields, self.route)
        batch = pa.RecordBatch.from_arrays(
            [fit(filled.get(each.name), each.type, rows) for each in types], schema=types
        )
        violations = self._violations(fields)
        counts = [pc.sum(each.is_violated).as_py() or 0 for each in violations]
        masks = [each.is_violated for each in violations] + [
            lacks_partition(batch.column(name)) for name in self.partition_by
        ]
        broken = [condition.find_broken(batch) for condition in self.conditions]
        masks += broken
        is_broken = pa.repeat(pa.scalar(False), rows)
        for mask in masks:
            is_broken = pc.or_(is_broken, mask)
        if not pc.any(is_broken).as_py():
            return batch, [], counts
        chosen = pc.indices_nonzero(is_broken)
        schema = _schema_of(fields)
        left = [values.take(chosen) for values, _ in fields.values()]
        texts = record_texts(schema, pa.Table.from_arrays(left, schema=to_arrow_schema(schema)))
        taken = batch if self.conditions else batch.select(list(self.partition_by))
        quarantined = []
        for at, text, row in zip(chosen.to_pylist(), texts, taken.take(chosen).to_pylist(), strict=True):
            reason = next((each.reason(at) for each in violations if each.is_violated[at].as_py()), None)
            for condition, mask in zip(self.conditions, broken, strict=True):
                reason = reason or (condition.explain(row) if mask[at].as_py() else None)
            reason = reason or find_broken_partition(row, self.partition_by)
            quarantined.append(QuarantinedRecord(text, file, first + at + 1, reason or ""))
        return batch.filter(pc.invert(is_broken)), quarantined, counts

    def observe_violations(self, counts: Sequence[int]) -> RecordObservation:
        """Return violations as an observation.

        Args:
            counts: How many records have each violation, in the order of `convert`.
        """
        fields = self.prepare({field.name: pa.array([], to_arrow(field.type)) for field in self.source})
        root: RecordObservation = {}
        for violation, count in zip(self._violations(fields), counts, strict=True):
            record = root
            for key in violation.source[:-1]:
                above = get_field(record, key)
                above.kinds.setdefault(Kind(RECORD_WORD), KindObservation())
                record = above.record(0)
            if count:
                get_field(record, violation.source[-1]).kinds[violation.kind] = KindObservation(count=count)
        return root

    def _violations(self, fields: Mapping[str, TypedArray]) -> list[_Violation]:
        return list(_find_violations(fields, fixed_column_route(self.route), (), self.samples))


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
    if rules.take is FieldRule.AS_JSON or (rules.take is FieldRule.AS_TEXT and is_nested):
        raise NotLocal("it writes fields of the source as JSON")
    return _apply_nested_rules(values, data_type, rules)


def _apply_nested_rules(values: pa.Array, data_type: DataType, rules: FieldRules) -> TypedArray:
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
            items, kind = _apply_nested_rules(values.flatten(), element, rules)
            return _to_lists(_lengths(values), items, values.is_null()), ArrayType(kind)
        case MapType():
            raise NotLocal("the policy hides or converts values in maps")
        case _ if data_type in (BINARY, STRING) and rules.hidden:
            return _mask_values(values), STRING
        case _ if data_type == STRING and rules.reads_times:
            raise NotLocal("strings of the source are read as dates or times")
    return values, data_type


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
    if slot.record is not None or slot.entries is not None or does_bar(slot, data_type):
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
    kinds = values.type
    lists = values.cast(pa.list_(pa.struct([("key", kinds.key_type), ("value", kinds.item_type)])))
    keys, items = lists.flatten().flatten()
    held, texts = _hold_values(items, data_type.value, slot, slot.dim), convert_values(keys, data_type.key, STRING)
    if held is None:
        return None
    assert texts is not None
    offsets = _offsets(_lengths(lists))
    if values.null_count:
        is_null = pa.concat_arrays([values.is_null(), pa.array([False])])
        offsets = pc.if_else(is_null, pa.scalar(None, pa.int32()), offsets)
    return pa.MapArray.from_arrays(offsets, texts, held)


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


def _are_always_held(fields: Mapping[str, TypedArray], route: RecordRoute) -> bool:
    return all(_is_always_held(kind, route.get(key, ()), 0) for key, (_, kind) in fields.items())


def _is_always_held(data_type: DataType, slots: Sequence[ColumnSlot], dim: int) -> bool:
    """Return whether columns hold all values of a type; see `widen.batches.column_expressions`."""
    deep = [slot for slot in slots if slot.dim >= dim]
    match data_type:
        case ArrayType(element):
            deeper = [slot for slot in deep if slot.dim > dim and _can_hold(data_type, slot, slot.dim - dim)]
            return bool(deeper) and _is_always_held(element, deeper, dim + 1)
        case MapType(_, value):
            entries = [
                slot.entries for slot in deep if slot.entries is not None and _can_hold(data_type, slot, slot.dim - dim)
            ]
            return bool(entries) and _is_always_held(value, entries, 0)
        case StructType(inner):
            record = widest_record_route(deep)
            return record is not None and all(_is_always_held(f.type, record.get(f.name, ()), 0) for f in inner)
    return any(_stores(slot, data_type) and holds_every_value(data_type, slot.type) for slot in deep)


def _can_hold(data_type: DataType, slot: ColumnSlot, dim: int) -> bool:
    return _hold_values(pa.array([], to_arrow(data_type)), data_type, slot, dim) is not None


def _stores(slot: ColumnSlot, data_type: DataType) -> bool:
    facts = type_facts(data_type)
    return slot.record is None and slot.entries is None and (facts is None or stores_kind(slot, facts[0]))


# ---- records that do not fit fixed columns ---------------------------------------------------------


@dataclass(frozen=True)
class _Violation:
    """A reason to quarantine records.

    Args:
        is_violated: Whether each record has the violation.
        reason: Returns why a record is quarantined, by its index.
    """

    source: Path
    kind: Kind
    is_violated: pa.Array
    reason: Callable[[int], str]


def _find_violations(
    fields: Mapping[str, TypedArray], route: RecordRoute, above: Path, samples: Samples
) -> Iterator[_Violation]:
    rows = len(next(iter(fields.values()))[0]) if fields else 0
    for key, slots in route.items():
        values, data_type = fields.get(key, (pa.nulls(rows), None))
        for slot in slots:
            if slot.guard is not None:
                yield from _column_violations((*above, key), values, data_type, slot, slot.guard, samples)
            if slot.record is not None and not slot.dim and isinstance(data_type, StructType):
                inner = {each.name: (part, each.type) for each, part in zip(data_type, values.flatten(), strict=True)}
                yield from _find_violations(inner, slot.record, (*above, key), samples)


def _column_violations(
    source: Path, values: pa.Array, data_type: DataType | None, slot: ColumnSlot, guard: FixedColumn, samples: Samples
) -> Iterator[_Violation]:
    path, column = format_path(source), f"and column {slot.name} is {guard.reason}"
    if guard.is_required:
        yield _Violation(source, Kind(NULL_WORD), values.is_null(), lambda _: f"{path} is null, {column}")
    if data_type is None:
        return
    if not guard.takes_values:
        text = f"{path} has a value, but column {slot.name} is {guard.reason}"
        yield _Violation(source, kind_of(data_type), values.is_valid(), lambda _: text)
    elif not _is_always_held(data_type, (slot,), 0):
        if isinstance(data_type, (ArrayType, MapType, StructType)):
            raise NotLocal(f"it finds the records whose {path} the column {slot.name} cannot hold")
        held = convert_values(values, data_type, slot.type, slot.epoch_unit) if _stores(slot, data_type) else None
        is_lost = values.is_valid() if held is None else pc.and_(values.is_valid(), held.is_null())

        def reason(at: int) -> str:
            shown = _show_value(values.slice(at, 1), data_type, samples)
            return f"{path}: {shown} is not of type {slot.type.sql}, {column}"

        yield _Violation(source, kind_of(data_type), is_lost, reason)


def _show_value(values: pa.Array, data_type: DataType, samples: Samples) -> str:
    schema = StructType((Field("", data_type),))
    [text] = record_texts(schema, pa.table([values], names=[""]))
    return sample_formatter(samples)(text[len('{"":') : -1][:SAMPLE_CHARS]) or "the value"


# ---- scalars ---------------------------------------------------------------------------------------


# ---- facts that types leave open -------------------------------------------------------------------


class FactsOfKind:
    """The facts about the values of one kind of a field that the type leaves open, filled in batch by batch.

    Args:
        observation: The observation of the kind that follows from the type alone.
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


# ---- Arrow's lists ---------------------------------------------------------------------------------


def _lengths(lists: pa.Array) -> pa.Array:
    return pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())


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
