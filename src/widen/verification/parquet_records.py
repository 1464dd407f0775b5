"""The proof for Parquet files that this process reads: their records are rebuilt with Arrow from the rows of the table.

Like `widen.verification.frame_records` on Spark: every column of a field is converted back to the type of the source,
and all of them must hold the same value. The proof itself reads masks and exclusions from the policy. So nothing here
is shared with `widen.batches.column_values`, which makes the rows.

Rows without a source record change the sums; Spark then finds and reports them.

Source: docs/evolution-rules.md#one-interval, #u1, #u2, #d16
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property, partial, reduce
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import WidenError
from widen.evolution.policy import EpochUnit, Policy, TextForm
from widen.files.arrow_types import count_up, to_arrow, to_arrow_schema
from widen.files.data_reader import NotLocal, record_texts
from widen.frames.json_documents import document_type
from widen.frames.table_writers import TaskFiles, cast_array, read_file
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
)
from widen.proof.record_digests import DigestSum, RowDigester
from widen.proof.row_encoder import RecordLayout
from widen.proof.rules import (
    MASK,
    ColumnsByKey,
    FieldColumns,
    ProofRule,
    SourceColumn,
    build_proof_rules,
    source_columns_by_key,
    widest_record_column,
)
from widen.schema.source_metadata import role_of
from widen.spark.engine import Session
from widen.verification.frame_records import family_of, own_fields
from widen.verification.records import MAX_TASKS, UNREADABLE, TaskReader

# An example. The source has an integer n, and the table the columns n (int) and n_string, since other files have texts
# there. The row (7, "7") is rebuilt as {n: 7}, and counts no converted value, because n has the kind of the source. The
# row (null, "7") is also rebuilt as {n: 7}, with one converted value. The row (7, "8") is a contradiction.


class _Contradiction(Exception):
    """Columns hold what no record has."""


@dataclass(frozen=True)
class RecordProof:
    """Compares records of a source with rows of a table. Picklable.

    Args:
        source: The fields of the records as they are read, with those that they get from their files.
        schema: The schema of the table; the rows have its columns in its order.
        forms: The types that are used to digest the values; by default the types of the records.
    """

    source: StructType
    schema: StructType
    policy: Policy
    forms: StructType | None = None

    @cached_property
    def _rule(self) -> ProofRule:
        return build_proof_rules(self.schema, self.policy)

    @cached_property
    def _columns(self) -> ColumnsByKey:
        return source_columns_by_key(self.schema, self.policy)

    @cached_property
    def records(self) -> StructType:
        """The fields of the records without what the policy hides.

        Raises:
            NotLocal: only Spark applies the policy to them, or nothing is left.
        """
        _, records = _apply_to_record(pa.array([], to_arrow(self.source)), self.source, self._rule)
        if not records.fields:
            raise NotLocal("it compares records without fields")
        return records

    @cached_property
    def digested(self) -> StructType:
        """The types that are used to digest values: keys of maps are texts."""
        types = document_type(self.records if self.forms is None else self.forms)
        assert isinstance(types, StructType)
        return types

    @cached_property
    def _own_columns(self) -> ColumnsByKey | None:
        """The columns that store values as they are, by field; None if all columns do."""
        columns = {field.name: self._columns.get(field.name, ()) for field in self.records}
        own = own_fields(self.records, columns)
        return None if own == columns else own

    def prepare(self, records: pa.StructArray) -> pa.StructArray:
        """Return records of the source as they are digested: without what the policy hides."""
        return self._to_forms(_apply_to_record(records, self.source, self._rule)[0])

    def digester(self, layout: RecordLayout, limit: int) -> RowDigester:
        """Return what sums the digests of records."""
        return RowDigester(self.digested, Policy(), layout, limit)

    def add_rows(self, digester: RowDigester, rows: pa.StructArray) -> None:
        """Add rows of the table to a sum, as the records that they stand for."""
        try:
            records = self._rebuild(rows)
            own = self._own_columns
            converted = None
            if own is not None:
                left = _rebuild_record(self.records, own, _by_name(rows, self.schema), len(rows), is_checked=False)
                converted = pc.subtract(_count_leaves(records, self.records), _count_leaves(left, self.records))
            digester.add(self._to_forms(records), converted)
        except (_Contradiction, pa.ArrowException):
            digester.add_encoded(UNREADABLE)

    def add_texts(self, digester: RowDigester, texts: Sequence[str]) -> list[str]:
        """Add quarantined records to a sum, and return the texts that are not the text of a record of this source."""
        parse = _build_parser(self.records)
        rows = ((text, _parse_record_text(parse, text)) for text in texts)
        parsed = [(text, row) for text, row in rows if row is not None]
        records, known = _to_records([row for _, row in parsed], self.records)
        parsed = [pair for pair, is_known in zip(parsed, known, strict=True) if is_known]
        # The values are compared with the source; this only checks that the text has no others.
        is_same = [text == again for (text, _), again in zip(parsed, self._texts_of(records), strict=True)]
        digester.add(self._to_forms(records.filter(pa.array(is_same, pa.bool_()))))
        found = {text for (text, _), same in zip(parsed, is_same, strict=True) if same}
        return [text for text in texts if text not in found]

    def _texts_of(self, records: pa.StructArray) -> Sequence[str | None]:
        try:
            rows = pa.Table.from_arrays(records.flatten(), schema=to_arrow_schema(self.records))
            return record_texts(self.records, rows)
        except NotLocal:
            return [None] * len(records)

    def _rebuild(self, rows: pa.StructArray) -> pa.StructArray:
        for field, values in zip(self.schema, rows.flatten(), strict=True):
            if role_of(field) is not None:
                _ensure_null(values)
        return _rebuild_record(self.records, self._columns, _by_name(rows, self.schema), len(rows))

    def _to_forms(self, records: pa.StructArray) -> pa.StructArray:
        return cast_array(_with_keys_as_text(records, self.records), to_arrow(self.digested))


def _by_name(rows: pa.StructArray, schema: StructType) -> dict[str, pa.Array]:
    return dict(zip(schema.names, rows.flatten(), strict=True))


# ---- sums ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RebuiltFiles:
    """Files of a table with the records of some files of a source that share a schema."""

    proof: RecordProof
    files: TaskFiles


def build_rebuilt_reader(spark: Session, parts: Sequence[RebuiltFiles]) -> TaskReader:
    """Return a reader of the sums of the records that files of a table hold."""
    count = sum(len(part.files.paths) for part in parts)
    return TaskReader(spark, max(1, min(count, MAX_TASKS)), partial(_sum_rebuilt_files, tuple(parts)))


def _sum_rebuilt_files(
    parts: Sequence[RebuiltFiles], tasks: int, task: int, layout: RecordLayout, limit: int
) -> DigestSum:
    total, first = DigestSum(limit), 0
    for part in parts:
        digester, types = part.proof.digester(layout, limit), to_arrow_schema(part.proof.schema)
        for number, path in enumerate(part.files.paths, first):
            if number % tasks != task:
                continue
            try:
                for rows in read_file(part.files, path, types):
                    part.proof.add_rows(digester, rows.to_struct_array())
            except (WidenError, KeyError, OSError, pa.ArrowException):
                digester.add_encoded(UNREADABLE)
        first += len(part.files.paths)
        _merge(total, digester.sum())
    return total


def sum_rebuilt_batches(
    proof: RecordProof, layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]
) -> DigestSum:
    """Return the sum of the records that rows of a table hold."""
    digester = proof.digester(layout, limit)
    for batch in batches:
        proof.add_rows(digester, batch.to_struct_array())
    return digester.sum()


def sum_quarantined_texts(
    proofs: Sequence[RecordProof], layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]
) -> DigestSum:
    """Return the sum of quarantined records, whose texts are in a column.

    Args:
        proofs: The proofs of the parts of a source: a record belongs to the first part whose types give its text back.
    """
    digesters = [proof.digester(layout, limit) for proof in proofs]
    for batch in batches:
        texts: list[str] = batch.column(0).to_pylist()
        for proof, digester in zip(proofs, digesters, strict=True):
            texts = proof.add_texts(digester, texts) if texts else texts
        for _ in texts:
            digesters[0].add_encoded(UNREADABLE)
    total = DigestSum(limit)
    for digester in digesters:
        _merge(total, digester.sum())
    return total


def _merge(total: DigestSum, found: DigestSum) -> None:
    total.merge(found.digest, found.records, found.values, found.converted)


# ---- what the policy hides -------------------------------------------------------------------------


def _apply_to_record(
    records: pa.StructArray, data_type: StructType, rule: ProofRule
) -> tuple[pa.StructArray, StructType]:
    """Return records without what the policy hides, and their type."""
    parts, kept = [], []
    for field, values in zip(data_type, records.flatten(), strict=True):
        below = rule.rule_of(field.name)
        if below.is_excluded:
            continue
        found, kind = _apply(values, field.type, below)
        if not _is_empty(kind):
            parts.append(found)
            kept.append(Field(field.name, kind))
    result = StructType(tuple(kept))
    if not kept:
        return records, result
    return pa.StructArray.from_arrays(parts, fields=list(to_arrow_schema(result)), mask=_nulls(records)), result


def _apply(values: pa.Array, data_type: DataType, rule: ProofRule) -> tuple[pa.Array, DataType]:
    if rule.is_masked:
        return _mask(values), STRING
    if rule.text_form is TextForm.JSON or (rule.text_form is not None and _is_nested(data_type)):
        raise NotLocal("it compares fields of the source that the table has as JSON")
    return _apply_inside(values, data_type, rule)


def _apply_inside(values: pa.Array, data_type: DataType, rule: ProofRule) -> tuple[pa.Array, DataType]:
    match data_type:
        case StructType():
            return _apply_to_record(values, data_type, rule)
        case ArrayType(element):
            items, kind = _apply_inside(values.flatten(), element, rule)
            return _to_lists(values, items), ArrayType(kind)
        case MapType(_, value):
            if rule.hidden or _apply_inside(pa.array([], to_arrow(value)), value, rule)[1] != value:
                raise NotLocal("the policy hides values in maps")
            return values, data_type
        case _ if data_type in (BINARY, STRING) and rule.hidden:
            # A text where the policy expects a record may spell out that record.
            return _mask(values), STRING
    return values, data_type


def _mask(values: pa.Array) -> pa.Array:
    return pc.if_else(values.is_valid(), pa.scalar(MASK), pa.scalar(None, pa.string()))


def _is_nested(data_type: DataType) -> bool:
    return isinstance(data_type, (ArrayType, MapType, StructType))


def _is_empty(data_type: DataType) -> bool:
    """Return whether a type is a record without fields, which has no values."""
    match data_type:
        case ArrayType(inner) | MapType(_, inner):
            return _is_empty(inner)
        case StructType(fields):
            return all(_is_empty(field.type) for field in fields)
    return False


# ---- columns back to fields ------------------------------------------------------------------------


def _rebuild_record(
    source: StructType, columns: ColumnsByKey, stored: Mapping[str, pa.Array], rows: int, *, is_checked: bool = True
) -> pa.StructArray:
    """Return the fields of records, rebuilt from columns.

    Args:
        is_checked: Whether all columns of a field must hold its value, and the columns of other fields no value.
    """
    if is_checked:
        for key in columns.keys() - set(source.names):
            for slot in columns[key]:
                _ensure_null(stored[slot.name])
    fields = [_rebuild_field(each.type, columns.get(each.name, ()), stored, rows, is_checked) for each in source]
    return pa.StructArray.from_arrays(fields, fields=list(to_arrow_schema(source)))


def _rebuild_field(
    data_type: DataType, slots: FieldColumns, stored: Mapping[str, pa.Array], rows: int, is_checked: bool
) -> pa.Array:
    """Return the values of a field from its columns; records come from the column with the most arrays (U17)."""
    given = []
    for slot in slots:
        values = stored[slot.name]
        back = None if values.null_count == len(values) else _unwrap(values, data_type, slot, slot.dim, is_checked)
        if back is not None:
            given.append((slot, back))
        elif is_checked:
            _ensure_null(values)
    kind, widest = to_arrow(data_type), widest_record_column(slots)
    has_records = isinstance(_leaf(data_type), StructType)
    # A timestamp alone does not say which integer it was.
    chosen = [back for slot, back in given if back.type == kind and not (has_records and slot is not widest)]
    values = reduce(partial(_either, data_type=data_type), chosen) if chosen else pa.nulls(rows, kind)
    if is_checked and len(given) > len(chosen[:1]):
        for slot, back in given:
            _ensure_agrees(back, values, data_type, slot)
    return values


def _leaf(data_type: DataType) -> DataType:
    while isinstance(data_type, ArrayType):
        data_type = data_type.element
    return data_type


def _unwrap(values: pa.Array, data_type: DataType, slot: SourceColumn, dim: int, is_checked: bool) -> pa.Array | None:
    """Return values of a type from a column; None if the column cannot hold any.

    A column of timestamps gives them back instead of integers, whose size decides their unit.
    """
    if isinstance(data_type, ArrayType):
        items = _unwrap(values.flatten(), data_type.element, slot, dim - 1, is_checked) if dim else None
        return None if items is None else _to_lists(values, items)
    if dim:
        return _unwrap(_only_items(values), data_type, slot, dim - 1, is_checked)
    if isinstance(data_type, MapType):
        return None if slot.value is None else _unwrap_map(values, data_type, slot.value, is_checked)
    if isinstance(data_type, StructType):
        if slot.fields is None:
            return None
        parts = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
        record = _rebuild_record(data_type, slot.fields, parts, len(values), is_checked=is_checked)
        return pa.StructArray.from_arrays(record.flatten(), fields=list(record.type), mask=_nulls(values))
    if slot.fields is not None or slot.value is not None:
        return None
    if slot.type == TIMESTAMP and pa.types.is_integer(to_arrow(data_type)):
        return _to_counts(values, slot.epoch_unit, data_type) if slot.has_epochs and slot.epoch_unit else values
    return restore_values(values, slot.type, data_type)


def _only_items(values: pa.Array) -> pa.Array:
    """Return the only item of each array, null for a null."""
    lengths, items = values.value_lengths(), values.flatten()
    if items.null_count or pc.any(pc.not_equal(lengths, 1)).as_py():
        raise _Contradiction
    if not values.null_count:
        return items
    place = pc.subtract(pc.cumulative_sum(values.is_valid().cast(pa.int64())), 1)
    return items.take(pc.if_else(values.is_valid(), place, pa.scalar(None, pa.int64())))


def _unwrap_map(values: pa.Array, data_type: MapType, slot: SourceColumn, is_checked: bool) -> pa.Array | None:
    keys, items = _entries(values)
    back = _unwrap(items, data_type.value, slot, slot.dim, is_checked)
    keys = restore_values(keys, STRING, data_type.key)
    return None if back is None or keys is None else _to_maps(values, keys, back)


def _either(first: pa.Array, second: pa.Array, data_type: DataType) -> pa.Array:
    """Return the values of either of two columns, item by item; records come from the first that has them."""
    if second.null_count == len(second) or not (first.null_count or _is_nested(data_type)):
        return first
    if first.null_count == len(first):
        return second
    match data_type:
        case ArrayType(element):
            lengths = _common_lengths(first, second)
            items = _either(
                _expand(first, first.flatten(), lengths), _expand(second, second.flatten(), lengths), data_type=element
            )
            return _new_lists(lengths, items)
        case MapType(key, value):
            lengths = _common_lengths(first, second)
            (keys, items), (other_keys, others) = _entries(first), _entries(second)
            keys = _either(_expand(first, keys, lengths), _expand(second, other_keys, lengths), data_type=key)
            items = _either(_expand(first, items, lengths), _expand(second, others, lengths), data_type=value)
            return _new_maps(lengths, keys, items)
    return pc.if_else(first.is_valid(), first, second)


def _ensure_agrees(given: pa.Array, values: pa.Array, data_type: DataType, slot: SourceColumn) -> None:
    """Check that the values that a column gives back are the values of their field, or null."""
    if given.null_count:
        is_given = given.is_valid()
        given, values = given.filter(is_given), values.filter(is_given)
    _ensure(not values.null_count)
    match data_type:
        case ArrayType(element):
            _ensure(given.value_lengths().equals(values.value_lengths()))
            _ensure_agrees(given.flatten(), values.flatten(), element, slot)
        case MapType(_, value):
            (keys, items), (wanted, others) = _entries(given), _entries(values)
            _ensure(_lengths(given).equals(_lengths(values)) and keys.equals(wanted))
            _ensure_agrees(items, others, value, slot if slot.value is None else slot.value)
        case StructType(inner):
            for field, one, other in zip(inner, given.flatten(), values.flatten(), strict=True):
                _ensure_agrees(one, other, field.type, slot)
        case _:
            _ensure(_is_same(given, values, slot))


def _is_same(given: pa.Array, values: pa.Array, slot: SourceColumn) -> bool:
    if given.type == values.type:
        if given.equals(values):
            return True
        # NaN is not equal to itself.
        is_number = pa.types.is_floating(given.type)
        same = pc.equal(given, values)
        same = pc.or_(same, pc.and_(pc.is_nan(given), pc.is_nan(values))) if is_number else same
    else:
        same = _are_epochs(given.cast(pa.int64()), values.cast(pa.int64()), slot.epoch_unit)
    return bool(pc.all(same, min_count=0).as_py())


def _ensure(is_right: bool) -> None:
    if not is_right:
        raise _Contradiction


def _ensure_null(values: pa.Array) -> None:
    _ensure(values.null_count == len(values))


# ---- scalars back to the types of the source -------------------------------------------------------

_DAY_MICROS = 86_400_000_000
_YEARS_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, whose milliseconds fit into columns of numbers."""

_NANOS = 1000

_MICROS: Mapping[EpochUnit, int] = MappingProxyType(
    {EpochUnit.SECONDS: 1_000_000, EpochUnit.MILLISECONDS: 1_000, EpochUnit.MICROSECONDS: 1}
)
"""How many microseconds a unit has; the other one is nanoseconds."""

_EPOCH_LIMITS = ((10**11, EpochUnit.SECONDS), (10**14, EpochUnit.MILLISECONDS), (10**17, EpochUnit.MICROSECONDS))
"""The upper bounds of integers that count seconds, ms or µs; a larger integer counts ns (D5)."""


def restore_values(values: pa.Array, stored: DataType, original: DataType) -> pa.Array | None:
    """Return scalars of a column in their type in the source; None if no column of its type holds such values.

    Raises:
        pyarrow.ArrowException: the same.
    """
    if stored == original:
        return values
    convert = BACKWARD_CONVERSIONS.get((family_of(stored), family_of(original)))
    return None if convert is None else convert(values, stored, original)


def _to_number(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    kind = to_arrow(original)
    if isinstance(original, DecimalType):
        return _to_decimal(values, kind)
    if isinstance(stored, DecimalType) and pa.types.is_floating(kind):
        numbers = values.cast(pa.string()).cast(kind)
        _ensure(_to_decimal(numbers, values.type).equals(values))
        return numbers
    if (stored, original) == (DOUBLE, LONG):
        # A double that is an integer stands for the integer of its text.
        return values.cast(pa.string()).cast(pa.decimal128(38, 0)).cast(kind)
    if pa.types.is_floating(values.type) and pa.types.is_floating(kind):
        numbers = values.cast(kind, safe=False)
        _ensure(pc.all(pc.or_(pc.equal(numbers.cast(values.type), values), pc.is_nan(values)), min_count=0).as_py())
        return numbers
    return values.cast(kind)


def _to_decimal(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return numbers as decimals; a floating-point number stands for its text."""
    if pa.types.is_floating(values.type):
        return values.cast(pa.string()).cast(kind)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
    return values.cast(kind)


def _to_boolean(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    numbers = _to_number(values, stored, LONG)
    _ensure(pc.all(pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, 1)), min_count=0).as_py())
    return pc.equal(numbers, 1)


def _parse_text(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return values.cast(to_arrow(original))


def _parse_time(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    # Arrow would also read the text of a date.
    _ensure(pc.all(pc.match_substring(values, "T"), min_count=0).as_py())
    return values.cast(to_arrow(original))


def _to_date(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    return _to_number(values, stored, LONG).cast(pa.int32()).cast(pa.date32())


def _time_to_date(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    """Return the dates of midnights; a date has no other time."""
    micros = values.cast(pa.int64())
    days = _divide(micros, _DAY_MICROS)
    return days.cast(pa.int32()).cast(pa.date32())


def _to_timestamp(values: pa.Array, stored: DataType, original: DataType) -> pa.Array:
    ms = _to_number(values, stored, LONG)
    first, last = _YEARS_MS
    _ensure(pc.all(pc.and_(pc.greater_equal(ms, first), pc.less_equal(ms, last)), min_count=0).as_py())
    return pc.multiply(ms, 1000).cast(to_arrow(original))


def _to_counts(values: pa.Array, unit: EpochUnit, original: DataType) -> pa.Array:
    """Return the integers that count to timestamps in a unit."""
    micros = values.cast(pa.int64())
    counts = _divide(micros, _MICROS[unit]) if unit in _MICROS else pc.multiply_checked(micros, _NANOS)
    return counts.cast(to_arrow(original))


def _divide(numbers: pa.Array, divisor: int) -> pa.Array:
    quotients = pc.divide(numbers, divisor)
    _ensure(pc.multiply(quotients, divisor).equals(numbers))
    return quotients


def _are_epochs(micros: pa.Array, numbers: pa.Array, unit: EpochUnit | None) -> pa.Array:
    """Return whether integers count to timestamps, in their unit or in the unit that their size implies."""
    if unit is not None:
        return _is_count(micros, numbers, unit)
    result = _is_count(micros, numbers, EpochUnit.NANOSECONDS)
    for limit, each in reversed(_EPOCH_LIMITS):
        is_small = pc.and_(pc.greater(numbers, -limit), pc.less(numbers, limit))
        result = pc.if_else(is_small, _is_count(micros, numbers, each), result)
    return result


def _is_count(micros: pa.Array, numbers: pa.Array, unit: EpochUnit) -> pa.Array:
    if unit not in _MICROS:
        quotients = pc.divide(numbers, _NANOS)
        return pc.and_(pc.equal(pc.multiply(quotients, _NANOS), numbers), pc.equal(quotients, micros))
    quotients = pc.divide(micros, _MICROS[unit])
    return pc.and_(pc.equal(pc.multiply(quotients, _MICROS[unit]), micros), pc.equal(quotients, numbers))


Back: TypeAlias = Callable[[pa.Array, DataType, DataType], pa.Array]
"""Converts values, given their type in the table and their type in the source."""

BACKWARD_CONVERSIONS: Mapping[tuple[str, str], Back] = MappingProxyType(
    {
        ("number", "number"): _to_number,
        ("number", str(BOOLEAN)): _to_boolean,
        ("number", str(DATE)): _to_date,
        ("number", str(TIMESTAMP)): _to_timestamp,
        (str(TIMESTAMP), str(DATE)): _time_to_date,
        ("timestamp_ntz", str(DATE)): _time_to_date,
        (str(STRING), str(TIMESTAMP)): _parse_time,
        (str(STRING), "timestamp_ntz"): _parse_time,
    }
    | {(str(STRING), original): _parse_text for original in ("number", str(BOOLEAN), str(DATE))}
)
"""The conversions back, by stored and source type; a timestamp does not convert back to a number (U16)."""


# ---- numbers of values -----------------------------------------------------------------------------


def _count_leaves(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return the number of scalars in each value."""
    match data_type:
        case StructType(fields):
            counts = [_count_leaves(part, field.type) for part, field in zip(values.flatten(), fields, strict=True)]
            return reduce(pc.add, counts, pa.repeat(pa.scalar(0, pa.int64()), len(values)))
        case ArrayType(element):
            return _sum_items(_count_leaves(values.flatten(), element), values)
        case MapType(_, value):
            return _sum_items(_count_leaves(_entries(values)[1], value), values)
    return values.is_valid().cast(pa.int64())


def _sum_items(counts: pa.Array, lists: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum(_lengths(lists))
    totals = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
    return pc.subtract(totals.take(ends), totals.take(pc.subtract(ends, _lengths(lists))))


# ---- Arrow's lists and maps ------------------------------------------------------------------------


def _nulls(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


def _lengths(lists: pa.Array) -> pa.Array:
    """Return the number of items of lists or maps, 0 for nulls."""
    if pa.types.is_map(lists.type):
        lists = _as_lists(lists)
    return pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())


def _as_lists(maps: pa.Array) -> pa.Array:
    kind = maps.type
    return maps.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))


def _entries(maps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all maps, without those behind nulls."""
    keys, items = _as_lists(maps).flatten().flatten()
    return keys, items


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def _to_lists(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Return lists with other items instead of their own."""
    return pa.ListArray.from_arrays(_offsets(_lengths(lists)), items, mask=_nulls(lists))


def _to_maps(maps: pa.Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Return maps with other entries instead of their own."""
    return _new_maps(pc.if_else(maps.is_valid(), _lengths(maps), pa.scalar(None, pa.int64())), keys, items)


def _new_lists(lengths: pa.Array, items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(pc.fill_null(lengths, 0)), items, mask=_nulls(lengths))


def _new_maps(lengths: pa.Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    offsets = _offsets(pc.fill_null(lengths, 0))
    if lengths.null_count:
        is_null = pa.concat_arrays([lengths.is_null(), pa.array([False])])
        offsets = pc.if_else(is_null, pa.scalar(None, pa.int32()), offsets)
    return pa.MapArray.from_arrays(offsets, keys, items)


def _common_lengths(first: pa.Array, second: pa.Array) -> pa.Array:
    """Return the lengths of pairs of lists, which must be equal if neither is null; null where both are null."""
    none = pa.scalar(None, pa.int64())
    one, other = (pc.if_else(each.is_valid(), _lengths(each), none) for each in (first, second))
    _ensure(pc.all(pc.equal(one, other), min_count=0).as_py())
    return pc.coalesce(one, other)


def _expand(lists: pa.Array, items: pa.Array, lengths: pa.Array) -> pa.Array:
    """Return items, with nulls as the items of null lists.

    Args:
        lengths: The lengths that the lists then have.
    """
    wanted, own = pc.fill_null(lengths, 0), _lengths(lists)
    if wanted.equals(own):
        return items
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(_offsets(wanted), count_up(pc.sum(wanted).as_py())))
    # A list has all the items that it needs, or no items.
    is_own = lists.is_valid().take(owners)
    place = pc.subtract(pc.cumulative_sum(is_own.cast(pa.int64())), 1)
    return items.take(pc.if_else(is_own, place, pa.scalar(None, pa.int64())))


# ---- keys of maps, which are digested as texts -----------------------------------------------------


def _with_keys_as_text(values: pa.Array, data_type: DataType) -> pa.Array:
    if document_type(data_type) == data_type:
        return values
    match data_type:
        case StructType(fields):
            parts = [_with_keys_as_text(part, each.type) for part, each in zip(values.flatten(), fields, strict=True)]
            names = [each.name for each in fields]
            return pa.StructArray.from_arrays(parts, names=names, mask=_nulls(values))
        case ArrayType(element):
            return _to_lists(values, _with_keys_as_text(values.flatten(), element))
        case MapType(_, value):
            keys, items = _entries(values)
            return _to_maps(values, cast_array(keys, pa.string()), _with_keys_as_text(items, value))
    return values


# ---- texts of the quarantine -----------------------------------------------------------------------

_Parser: TypeAlias = Callable[[Any], Any]


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as key/value pairs, duplicates included."""


def _parse_record_text(parse: _Parser, text: str) -> Any:
    """Return the record of a text for Arrow; None if it is not one of the types of the source."""
    try:
        return parse(json.loads(text, object_pairs_hook=_Pairs, parse_float=Decimal))
    except (_Contradiction, ValueError, ArithmeticError, RecursionError):
        return None


def _build_parser(data_type: DataType) -> _Parser:
    match data_type:
        case StructType(fields):
            return partial(_parse_record, {each.name: _build_parser(each.type) for each in fields})
        case ArrayType(element):
            return partial(_parse_list, _build_parser(element))
        case MapType(key, value):
            return partial(_parse_map, _KEY_PARSERS.get(str(key), str), _build_parser(value))
        case DecimalType():
            return _parse_decimal
    return partial(_parse_scalar, *_PARSERS[str(data_type)])


def _parse_record(fields: Mapping[str, _Parser], value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, _Pairs) or not {key for key, _ in value} <= fields.keys():
        raise _Contradiction
    given = dict(value)
    return {key: parse(given.get(key)) for key, parse in fields.items()}


def _parse_map(parse_key: _Parser, parse: _Parser, value: Any) -> Any:
    if value is not None and not isinstance(value, _Pairs):
        raise _Contradiction
    return None if value is None else [(parse_key(key), parse(item)) for key, item in value]


def _parse_list(parse: _Parser, value: Any) -> Any:
    if value is not None and (isinstance(value, _Pairs) or not isinstance(value, list)):
        raise _Contradiction
    return None if value is None else [parse(item) for item in value]


def _parse_decimal(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, Decimal))):
        raise _Contradiction
    return None if value is None else Decimal(value)


def _parse_scalar(types: tuple[type, ...], convert: _Parser, value: Any) -> Any:
    if value is None:
        return None
    if type(value) not in types:
        raise _Contradiction
    return convert(value)


_KEY_PARSERS: Mapping[str, _Parser] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    "boolean": "true".__eq__,
}


def _parse_moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


_PARSERS: Mapping[str, tuple[tuple[type, ...], _Parser]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), ((int,), int)),
    **dict.fromkeys(("float", "double"), ((Decimal, int, str), float)),
    "boolean": ((bool,), bool),
    "string": ((str,), str),
    "binary": ((str,), b64decode),
    "date": ((str,), date.fromisoformat),
    "timestamp": ((str,), _parse_moment),
    "timestamp_ntz": ((str,), _parse_moment),
}
"""The JSON type for the values of a type, and the function that converts it for Arrow."""


def _to_records(rows: Sequence[Any], data_type: StructType) -> tuple[pa.StructArray, list[bool]]:
    """Return rows as records, and which rows could be converted: Arrow cannot hold some numbers."""
    kind = to_arrow(data_type)
    try:
        return pa.array(rows, kind), [True] * len(rows)
    except (pa.ArrowException, OverflowError):
        known = [_is_record(row, kind) for row in rows]
        return pa.array([row for row, is_known in zip(rows, known, strict=True) if is_known], kind), known


def _is_record(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True
