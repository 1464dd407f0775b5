"""The proof for typed records: all columns of a field must hold the value that is rebuilt from them.

The value comes from one column; each of the others must have the same value or null. A column must be null if the
record has no value for its field, or one that the column does not take.

Source: docs/evolution-rules.md#u1, #u14, #u17
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import DATE, STRING, TIMESTAMP, ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.observe.observe_schema import TemporalString
from widen.planning.evolution.policy import EpochUnit, Policy
from widen.planning.evolution.source_metadata import CORRUPT, CORRUPT_AT, RESCUED, role_field
from widen.proof.source_columns import ColumnsByKey, SourceColumn, columns_by_key
from widen.spark.expression import join_columns
from widen.spark.source.field_names import Typed, fields_of
from widen.spark.typed.record_rebuild import convert_back, map_entries, parse_record, record_text

_MIDNIGHTS = ("", "T00:00:00", "T00:00:00Z")
"""What may follow a date in the value of a string that is read as a date, if another column holds the date."""

_EPOCH_LIMITS = ((10**11, EpochUnit.SECONDS), (10**14, EpochUnit.MILLISECONDS), (10**17, EpochUnit.MICROSECONDS))
"""The sizes below which an integer counts seconds, ms or µs; a larger one counts ns (D5)."""

_MICROS = {
    EpochUnit.SECONDS: Decimal(1_000_000),
    EpochUnit.MILLISECONDS: Decimal(1_000),
    EpochUnit.MICROSECONDS: Decimal(1),
    EpochUnit.NANOSECONDS: Decimal("0.001"),
}
_INTEGERS = frozenset({"byte", "short", "integer", "long"})


def columns_agree(fields: Mapping[str, Typed], schema: StructType, policy: Policy) -> Column | None:
    """Return whether all columns of rows hold the rebuilt values of their fields; None if they always do.

    Args:
        fields: The fields that `rebuild_fields` returns.
        schema: The schema of the table; the rows have its columns.
    """
    columns = columns_by_key(schema, policy)
    rescued = role_field(schema, RESCUED)
    conditions = [] if rescued is None else [_is_written_so(F.col(quote_name(rescued.name)), fields)]
    roles = (role_field(schema, role) for role in (CORRUPT, CORRUPT_AT))
    conditions += [F.col(quote_name(field.name)).isNull() for field in roles if field is not None]
    inner = _all_agree(fields, columns, lambda name: F.col(quote_name(name)), is_only=rescued is None)
    conditions += [] if inner is None else [inner]
    return join_columns(and_, conditions) if conditions else None


def _is_written_so(text: Column, fields: Mapping[str, Typed]) -> Column:
    """Return whether a text is what records with its values are written as: Spark also reads others."""
    schema = StructType(tuple(Field(name, data_type) for name, (_, data_type) in fields.items()))
    return _null_or(text, record_text(fields_of(parse_record(text, schema), schema)) == text)


def _all_agree(
    fields: Mapping[str, Typed], columns: ColumnsByKey, stored: Callable[[str], Column], *, is_only: bool
) -> Column | None:
    """Return whether all columns of records hold the rebuilt values; None if they always do.

    Args:
        fields: The rebuilt fields.
        stored: Returns a column by its name.
        is_only: Whether a field with one column has its value from there, and not from the rescue column or another
            record.
    """
    conditions = []
    for key, slots in columns.items():
        for slot in slots:
            column = stored(slot.name)
            if key not in fields:
                conditions.append(column.isNull())
                continue
            agreement = _Agreement(slot, is_only=is_only and len(slots) == 1).of(column, *fields[key], slot.dim)
            if agreement is not None:
                conditions.append(agreement)
    return join_columns(and_, conditions) if conditions else None


@dataclass(frozen=True, slots=True)
class _Agreement:
    """Compares one column with the rebuilt values of its field.

    Args:
        is_only: Whether the values come from this column.
    """

    slot: SourceColumn
    is_only: bool

    def of(self, stored: Column, values: Column, data_type: DataType, dim: int) -> Column | None:
        """Return whether stored values, inside ``dim`` more arrays, are null or agree; None if they always do."""
        if isinstance(data_type, ArrayType):
            return self._items(stored, values, data_type.element, dim) if dim else stored.isNull()
        if dim:
            item = F.try_element_at(stored, F.lit(1))
            inner = self.of(item, values, data_type, dim - 1)
            is_one = (F.size(stored) == 1) & item.isNotNull()
            return _null_or(stored, is_one if inner is None else is_one & inner)
        match data_type:
            case MapType():
                return self._entries(stored, values, data_type)
            case StructType():
                return self._record(stored, values, data_type)
        return self._scalar(stored, values, data_type)

    def _items(self, stored: Column, values: Column, element: DataType, dim: int) -> Column | None:
        if self.of(F.lit(None), F.lit(None), element, dim - 1) is None:
            return None
        pairs = F.zip_with(stored, values, lambda item, value: _not_none(self.of(item, value, element, dim - 1)))
        return _null_or(stored, (F.size(stored) == F.size(values)) & F.forall(pairs, lambda is_same: is_same))

    def _entries(self, stored: Column, values: Column, data_type: MapType) -> Column | None:
        if self.slot.value is None:
            return stored.isNull()
        inner = _Agreement(self.slot.value, self.is_only)
        if inner.of(F.lit(None), F.lit(None), data_type.value, inner.slot.dim) is None:
            return None
        pairs = F.map_zip_with(
            map_entries(stored, data_type),
            values,
            lambda _, item, value: _not_none(inner.of(item, value, data_type.value, inner.slot.dim)),
        )
        has_same_keys = (F.size(pairs) == F.size(stored)) & (F.size(pairs) == F.size(values))
        return _null_or(stored, has_same_keys & F.forall(F.map_values(pairs), lambda is_same: is_same))

    def _record(self, stored: Column, values: Column, data_type: StructType) -> Column | None:
        if self.slot.fields is None:
            return stored.isNull()
        fields = fields_of(values, data_type)
        inner = _all_agree(fields, self.slot.fields, stored.getField, is_only=self.is_only)
        if inner is None:
            return None if self.is_only else _null_or(stored, values.isNotNull())
        return _null_or(stored, values.isNotNull() & inner)

    def _scalar(self, stored: Column, values: Column, data_type: DataType) -> Column | None:
        slot = self.slot
        if slot.fields is not None or slot.value is not None:
            return stored.isNull()
        if slot.type == data_type and self.is_only:
            return None
        if isinstance(data_type, TemporalString):
            return _null_or(stored, _is_temporal(stored, values, slot.type, data_type))
        if slot.type == TIMESTAMP and str(data_type) in _INTEGERS:
            return _null_or(stored, _is_epoch(stored, values, slot.epoch_unit))
        original = convert_back(stored, slot.type, data_type)
        return stored.isNull() if original is None else _null_or(stored, original == values)


def _null_or(stored: Column, condition: Column) -> Column:
    return stored.isNull() | F.coalesce(condition, F.lit(False))


def _is_temporal(stored: Column, values: Column, kind: DataType, data_type: TemporalString) -> Column:
    """Return whether a string that is read as a date, or the midnight of a date, is what a column has."""
    texts = [convert_back(stored, kind, data_type)]
    if kind != STRING:
        dates = convert_back(stored, kind, DATE)
        texts += [] if dates is None else [F.concat(dates.cast("string"), F.lit(each)) for each in _MIDNIGHTS]
        instants = None if kind == TIMESTAMP else convert_back(stored, kind, TIMESTAMP)
        texts += [] if instants is None else [convert_back(instants, TIMESTAMP, data_type)]
    same = [F.coalesce(text == values, F.lit(False)) for text in texts if text is not None]
    return reduce(or_, same, F.lit(False))


def _is_epoch(stored: Column, values: Column, unit: EpochUnit | None) -> Column:
    """Return whether an integer counts to a timestamp, in its unit or in the unit that its size implies."""
    micros, number = F.unix_micros(stored).cast("decimal(38,3)"), values.cast("decimal(20,0)")
    is_same = {each: micros == number * F.lit(factor) for each, factor in _MICROS.items()}
    if unit is not None:
        return is_same[unit]
    result = is_same[EpochUnit.NANOSECONDS]
    for limit, each in reversed(_EPOCH_LIMITS):
        result = F.when(F.abs(number) < F.lit(Decimal(limit)), is_same[each]).otherwise(result)
    return result


def _not_none(column: Column | None) -> Column:
    assert column is not None
    return column
