"""The proof for typed records: rebuild each from the rows of the table, in the types of the source, and compare.

This shares no code with the writer of the rows, so that one bug cannot hide in both. The writer converts to the types
of the columns; this converts back, and takes the value from any column of its field.

Source: docs/evolution-rules.md#one-interval, #u1, #u2, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import and_, or_
from types import MappingProxyType

from widen.evolution.policy import EpochUnit, Policy
from widen.frames.json_documents import document_type, from_document, json_text_column, to_document
from widen.json.observation import TemporalString
from widen.model.column_path import leaves
from widen.model.types import (
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
    quote_name,
)
from widen.proof.rules import ColumnsByKey, FieldColumns, SourceColumn, source_columns_by_key, widest_record_column
from widen.schema.source_metadata import CORRUPT, CORRUPT_AT, RESCUED, role_field
from widen.sources.file_ranges import Typed, field_steps, fields_of, with_field_steps
from widen.spark.expression import join_columns
from widen.spark.spark_types import Column, F, to_spark, type_to_spark

# Strings of typed records that are read as dates, spelled as the proof compares them.
#
# Source: docs/evolution-rules.md#d6


def comparable_fields(fields: Mapping[str, Typed], columns: ColumnsByKey) -> dict[str, Typed]:
    """Return the fields of records with strings that are read as dates as their columns give them back.

    The spelling of UTC and trailing zeros of fractions do not matter, since a column of timestamps does not keep them.
    A date is its midnight where a field has only columns of timestamps for it. The midnight is never the date.

    Args:
        columns: The columns of each field.

    Source: docs/evolution-rules.md#d6
    """
    return {
        key: (comparable_values(values, kind, columns.get(key, ())), kind) for key, (values, kind) in fields.items()
    }


def comparable_values(values: Column, data_type: DataType, columns: FieldColumns, dim: int = 0) -> Column:
    """Return the values of one field, inside a number of arrays, like `comparable_fields`."""
    if not has_temporal_strings(data_type):
        return values
    match data_type:
        case TemporalString():
            return _as_stored(comparable_time(values, STRING, data_type), columns, dim)
        case StructType():
            record = widest_record_column(columns)
            fields = comparable_fields(fields_of(values, data_type), (record and record.fields) or {})
            named = zip(fields.values(), field_steps(data_type), strict=True)
            return F.when(values.isNotNull(), F.struct(*(inner.alias(name) for (inner, _), name in named)))
        case ArrayType(element):
            return F.transform(values, lambda item: comparable_values(item, element, columns, dim + 1))
        case MapType(_, value):
            inner = tuple(column.value for column in columns if column.value is not None and column.dim >= dim)
            return F.transform_values(values, lambda _, item: comparable_values(item, value, inner))
    return values


def _as_stored(texts: Column, columns: FieldColumns, dim: int) -> Column:
    """Return texts as the columns of a field give them back: dates and times as what the columns have for them.

    That is the midnight of a date, or the count of its days, and the count of the milliseconds of a timestamp.
    """
    types = {column.type_name for column in columns if column.dim >= dim}
    if "string" in types:
        return texts
    midnight = next((_MIDNIGHTS[name] for name in _MIDNIGHTS if name in types), None)
    stored = []
    if "timestamp" not in types and types & _NUMBERS_OF_DATES:
        instants = F.when(texts.rlike(rf"\A{_SECONDS}(?:\.[0-9]{{1,3}})?Z\z"), texts.try_cast("timestamp"))
        stored.append(rebuilt_count(F.unix_millis(instants)))
    if "date" not in types and (midnight is not None or types & _NUMBERS_OF_DATES):
        dates = F.when(texts.rlike(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\z"), texts)
        has_midnight = midnight is not None
        stored.append(
            F.concat(dates, F.lit(midnight)) if has_midnight else rebuilt_count(F.unix_date(dates.try_cast("date")))
        )
    return F.coalesce(*stored, texts)


def rebuilt_count(numbers: Column) -> Column:
    """Return the texts that stand for dates and timestamps if a column has only their count."""
    return F.concat(F.lit("count "), numbers.cast("string"))


_NUMBERS_OF_DATES = frozenset({"integer", "long", "double", "decimal"})
"""The columns of numbers that take dates, and but for integers of 32 bits timestamps."""

_MIDNIGHTS: Mapping[str, str] = {"timestamp_ntz": "T00:00:00", "timestamp": "T00:00:00Z"}
"""What the columns of timestamps give back for a date, sorted as the proof reads them."""


def has_temporal_strings(data_type: DataType) -> bool:
    """Return whether a type has strings that are read as dates."""
    return any(isinstance(leaf, TemporalString) for _, leaf in leaves(data_type))


def comparable_time(texts: Column, stored: DataType, original: DataType) -> Column:
    """Return texts with ``Z`` and without zeros at the end of fractions."""
    texts = F.regexp_replace(texts, rf"\A({_SECONDS}(?:\.[0-9]+)?)\+00:00\z", "$1Z")
    return F.regexp_replace(texts, rf"\A({_SECONDS})(?:(\.[0-9]*[1-9])0*|\.0+)?(Z?)\z", "$1$2$3")


_SECONDS = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"


_DAY_MICROS = 86_400_000_000
_YEARS_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, whose milliseconds fit into columns of numbers."""

Back = Callable[[Column, DataType, DataType], Column]
"""Converts values, given their type in the table and their type in the source."""


def rebuild_fields(
    source: StructType, schema: StructType, policy: Policy, *, is_own_kind: bool = False
) -> dict[str, Typed]:
    """Return the fields of records, rebuilt from the rows of a table.

    Args:
        source: The schema of the prepared records.
        schema: The schema of the table; the rows have its columns.
        policy: The policy, with what it says about single fields.
        is_own_kind: Whether to use only columns of the kind that a field has in the source.
    """
    rescued = role_field(schema, RESCUED)
    rest = None if rescued is None else parse_record(F.col(quote_name(rescued.name)), source)
    cells = source_columns_by_key(schema, policy)
    cells = own_fields(source, cells) if is_own_kind else cells
    return _record(source, cells, lambda name: F.col(quote_name(name)), rest)


def is_own_kind(source: StructType, schema: StructType, policy: Policy) -> bool:
    """Return whether all columns have the kinds of their fields in the source.

    Args:
        source: The schema of the prepared records.
        policy: The policy, with what it says about single fields.
    """
    cells = source_columns_by_key(schema, policy)
    return own_fields(source, cells) == {field.name: cells.get(field.name, ()) for field in source}


def has_own_kinds(source: StructType, cells: ColumnsByKey) -> bool:
    """Return whether the columns of all fields of the source have their kinds; records may have more fields there."""
    return all(_is_own_kind(field.type, cell, cell.dim) for field in source for cell in cells.get(field.name, ()))


def _is_own_kind(data_type: DataType, cell: SourceColumn, dim: int) -> bool:
    if isinstance(data_type, ArrayType):
        return dim > 0 and _is_own_kind(data_type.element, cell, dim - 1)
    if dim:
        return False
    if isinstance(data_type, StructType):
        return cell.fields is not None and has_own_kinds(data_type, cell.fields)
    if isinstance(data_type, MapType):
        return cell.value is not None and _is_own_kind(data_type.value, cell.value, cell.value.dim)
    return cell.fields is None and cell.value is None and _is_own_type(cell.type, data_type)


def own_fields(source: StructType, cells: ColumnsByKey) -> ColumnsByKey:
    """Return the columns that store values of the fields of a source unchanged."""
    return {field.name: tuple(_own_cells(field.type, cells.get(field.name, ()))) for field in source}


def _own_cells(data_type: DataType, cells: FieldColumns) -> Iterator[SourceColumn]:
    """Yield the columns that store values of a type unchanged: of the same kind, with the same levels of arrays."""
    leaf, dim = data_type, 0
    while isinstance(leaf, ArrayType):
        leaf, dim = leaf.element, dim + 1
    for cell in cells:
        if cell.fields is not None and isinstance(leaf, StructType):
            if cell.dim == dim or cell is widest_record_column(cells):
                yield replace(cell, fields=own_fields(leaf, cell.fields))
        elif cell.value is not None and isinstance(leaf, MapType):
            inner = _own_cells(leaf.value, (cell.value,)) if cell.dim == dim else ()
            yield from (replace(cell, value=value) for value in inner)
        elif cell.fields is None and cell.value is None and cell.dim == dim and _is_own_type(cell.type, leaf):
            yield cell


def _is_own_type(stored: DataType, original: DataType) -> bool:
    is_string = stored == STRING and isinstance(original, TemporalString)
    return is_string or family_of(stored) == family_of(original)


def parse_record(text: Column, source: StructType) -> Column:
    """Return records from their texts, which may lack fields; see `record_text`.

    Values of another type become null, and Spark reads some that are written otherwise, such as a date as a timestamp.
    Only if `record_text` gives the text back, the records are what it says.
    """
    document = document_type(source)
    assert isinstance(document, StructType)
    parsed = F.from_json(text, to_spark(document), {"timeZone": "UTC"})
    return from_document(
        parsed if with_field_steps(document) == document else parsed.cast(type_to_spark(with_field_steps(document))),
        source,
    )


def record_text(fields: Mapping[str, Typed]) -> Column:
    """Return a text of records; two records have the same text only if they are equal."""
    parts = (to_document(values, data_type).alias(name) for name, (values, data_type) in fields.items())
    return json_text_column(F.struct(*parts))


def count_leaves(fields: Mapping[str, Typed], *, has_empty: bool = True) -> Column:
    """Return the number of values in records: scalars that are not null, and what is empty but not null.

    The counts are summed as an array, because Spark cannot evaluate a chain of thousands of additions.

    Args:
        has_empty: Whether empty arrays, maps and records count.
    """
    counts = (_leaves(values, data_type, has_empty) for values, data_type in fields.values())
    return _total(F.array(F.lit(0), *counts))


def _leaves(values: Column, data_type: DataType, has_empty: bool) -> Column:
    match data_type:
        case StructType():
            count = count_leaves(fields_of(values, data_type), has_empty=has_empty)
            return F.when(values.isNotNull(), F.greatest(count, F.lit(1))).otherwise(0) if has_empty else count
        case ArrayType(element):
            counts = F.transform(values, lambda item: _leaves(item, element, has_empty))
            count = F.coalesce(_total(counts), F.lit(0))
            return F.when(F.size(values) == 0, F.lit(1)).otherwise(count) if has_empty else count
        case MapType(_, value):
            return _leaves(F.map_values(values), ArrayType(value), has_empty)
    return values.isNotNull().cast("int")


def _total(counts: Column) -> Column:
    return F.aggregate(counts, F.lit(0), lambda total, count: total + count)


def _record(
    source: StructType, route: ColumnsByKey, column: Callable[[str], Column], rest: Column | None
) -> dict[str, Typed]:
    fields = {}
    for field, name in zip(source, field_steps(source), strict=True):
        field_rest = None if rest is None else rest.getField(name)
        fields[field.name] = _value(field.type, route.get(field.name, ()), column, field_rest), field.type
    return fields


def _value(
    data_type: DataType, slots: Sequence[SourceColumn], column: Callable[[str], Column], rest: Column | None
) -> Column:
    """Return the value of a field from its columns; for records, from the one with the most arrays (U17)."""
    records = [slot for slot in slots if slot.fields is not None]
    # The record column with the most arrays has all fields; another would only repeat some of them.
    chosen = sorted(records, key=lambda slot: -slot.dim)[:1] if _has_records(data_type) else slots
    if has_temporal_strings(data_type):
        chosen = sorted(chosen, key=lambda slot: _TEMPORAL_FIRST.get(_leaf_name(slot), len(_TEMPORAL_FIRST)))
    unwrapped = [_unwrap(column(slot.name), data_type, slot, slot.dim, rest) for slot in chosen]
    values = [each for each in unwrapped if each is not None]
    if rest is not None and not (isinstance(data_type, StructType) and values):
        values = [comparable_values(rest, data_type, tuple(slots)), *values]
    typed = [each.cast(type_to_spark(with_field_steps(data_type))) for each in values]
    return reduce(lambda left, right: _either(left, right, data_type), typed) if typed else _nothing(data_type)


def _leaf_name(slot: SourceColumn) -> str:
    """Return the name of the type inside the arrays and maps of a column."""
    return slot.type_name if slot.value is None else _leaf_name(slot.value)


def _nothing(data_type: DataType) -> Column:
    return F.lit(None).cast(type_to_spark(with_field_steps(data_type)))


def _has_records(data_type: DataType) -> bool:
    while isinstance(data_type, ArrayType):
        data_type = data_type.element
    return isinstance(data_type, StructType)


def _either(first: Column, second: Column, data_type: DataType) -> Column:
    """Return the values of either of two columns, element by element; records come from the first that has them."""
    match data_type:
        case ArrayType(element):
            both = F.zip_with(first, second, lambda left, right: _either(left, right, element))
            return F.coalesce(both, first, second)
        case MapType(_, value):
            both = F.map_zip_with(first, second, lambda _, left, right: _either(left, right, value))
            return F.coalesce(both, first, second)
    return F.coalesce(first, second)


def _unwrap(values: Column, data_type: DataType, slot: SourceColumn, dim: int, rest: Column | None) -> Column | None:
    """Return values of a type from a column; None if the column cannot hold any."""
    if isinstance(data_type, ArrayType):
        return _each(values, lambda item: _unwrap(item, data_type.element, slot, dim - 1, None)) if dim else None
    if dim:
        return _unwrap(F.try_element_at(values, F.lit(1)), data_type, slot, dim - 1, rest)
    if isinstance(data_type, MapType):
        return None if slot.value is None else _entries(values, data_type, slot.value)
    if isinstance(data_type, StructType):
        if slot.fields is None:
            return None
        fields = _record(data_type, slot.fields, values.getField, rest)
        is_present = values.isNotNull() if rest is None else values.isNotNull() | rest.isNotNull()
        parts = (
            field_values.alias(name)
            for name, (field_values, _) in zip(field_steps(data_type), fields.values(), strict=True)
        )
        return F.when(is_present, F.struct(*parts))
    if slot.has_epochs and slot.type == TIMESTAMP and family_of(data_type) == "number":
        return _to_epoch(values, slot, data_type)
    return None if slot.fields is not None or slot.value is not None else convert_back(values, slot.type, data_type)


def _each(values: Column, convert: Callable[[Column], Column | None]) -> Column | None:
    return None if convert(F.lit(None)) is None else F.transform(values, lambda item: _not_none(convert(item)))


def _entries(values: Column, data_type: MapType, slot: SourceColumn) -> Column | None:
    if _unwrap(F.lit(None), data_type.value, slot, slot.dim, None) is None:
        return None
    return F.transform_values(
        map_entries(values, data_type),
        lambda _, value: _not_none(_unwrap(value, data_type.value, slot, slot.dim, None)),
    )


def map_entries(values: Column, data_type: MapType) -> Column:
    """Return maps with their keys in the type of the source; in tables all keys are strings."""
    if data_type.key == STRING:
        return values
    return F.transform_keys(values, lambda key, _: _not_none(convert_back(key, STRING, data_type.key)))


def _not_none(column: Column | None) -> Column:
    assert column is not None
    return column


# ---- scalars back to the types of the source -------------------------------------------------------


def convert_back(values: Column, stored: DataType, original: DataType) -> Column | None:
    """Return scalars of a column in their type in the source, null where none converts to them; None if none can."""
    if stored == original:
        return values
    convert = BACKWARD_CONVERSIONS.get((family_of(stored), family_of(original)))
    return None if convert is None else convert(values, stored, original)


def family_of(data_type: DataType) -> str:
    """Return the key of a type in `BACKWARD_CONVERSIONS`: one word for all numbers, else the type."""
    if isinstance(data_type, TemporalString):
        return _TEMPORAL_STRING
    if isinstance(data_type, DecimalType) or str(data_type) in _NUMBERS:
        return "number"
    return str(data_type)


_TEMPORAL_STRING = "temporal string"
_TEMPORAL_FIRST = {name: place for place, name in enumerate(("string", "date", "timestamp_ntz", "timestamp"))}
"""The sequence of columns that may give back a string that is read as a date: most text preserved first."""

_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def _to_number(values: Column, stored: DataType, original: DataType) -> Column:
    """Return numbers in the type of the source; a double means the number of its shortest text."""
    numbers = values
    if stored == DOUBLE and (original == LONG or isinstance(original, DecimalType)):
        wide = "decimal(38,0)" if original == LONG else type_to_spark(original)
        numbers = _shortest_text(values).try_cast(wide)
    converted = numbers.try_cast(type_to_spark(original))
    return F.when(converted.cast(type_to_spark(stored)) == values, converted)


def _shortest_text(values: Column) -> Column:
    """Return doubles as the shortest texts that give them back. Before Java 19, a cast writes more digits of some."""
    texts = (F.format_string(f"%.{digits}e", values) for digits in range(17))
    return F.coalesce(*(F.when(text.try_cast("double") == values, text) for text in texts))


def _to_boolean(values: Column, stored: DataType, original: DataType) -> Column:
    return F.when(values == 0, F.lit(False)).when(values == 1, F.lit(True))


def _parse_text(values: Column, stored: DataType, original: DataType) -> Column:
    return values.try_cast(type_to_spark(original))


def _parse_date(values: Column, stored: DataType, original: DataType) -> Column:
    """Return dates; Spark would also read the text of a timestamp, without its time."""
    dates = values.try_cast("date")
    return F.when(dates.cast("string") == values, dates)


def _parse_time(values: Column, stored: DataType, original: DataType) -> Column:
    """Return timestamps; Spark would also read the text of a date."""
    return F.when(values.contains("T"), values.try_cast(type_to_spark(original)))


def _to_date(values: Column, stored: DataType, original: DataType) -> Column:
    days = values.try_cast("int")
    return F.when(days == values, F.date_from_unix_date(days))


def _timestamp_to_date(values: Column, stored: DataType, original: DataType) -> Column:
    """Return the dates of midnights in UTC; a date has no other time."""
    micros = F.unix_micros(values)
    is_midnight = F.pmod(micros, F.lit(_DAY_MICROS)) == 0
    return F.when(is_midnight, F.date_from_unix_date(F.round(micros / F.lit(_DAY_MICROS)).cast("int")))


def _local_time_to_date(values: Column, stored: DataType, original: DataType) -> Column:
    """Return the dates of midnights; a date has no other time."""
    dates = values.cast("date")
    return F.when(dates.cast("timestamp_ntz") == values, dates)


def _to_timestamp(values: Column, stored: DataType, original: DataType) -> Column:
    ms = values.try_cast("bigint")
    return F.when((ms == values) & ms.between(*_YEARS_MS), F.timestamp_millis(ms))


def _date_to_text(values: Column, stored: DataType, original: DataType) -> Column:
    return values.cast("string")


def _local_time_to_text(values: Column, stored: DataType, original: DataType) -> Column:
    return comparable_time(F.replace(values.cast("string"), F.lit(" "), F.lit("T")), stored, original)


def _timestamp_to_text(values: Column, stored: DataType, original: DataType) -> Column:
    seconds = (F.unix_micros(values).cast("decimal(18,0)") * F.lit(Decimal("0.000001"))).cast("decimal(18,6)")
    time = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=seconds)
    return comparable_time(
        F.concat(F.replace(time.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z")), stored, original
    )


def _number_to_count(values: Column, stored: DataType, original: DataType) -> Column:
    """Return what stands for a date or a timestamp: a number does not say whether it counts days or milliseconds."""
    counts = values.try_cast("decimal(38,0)")
    return F.when(counts == values, rebuilt_count(counts))


def _to_epoch(values: Column, slot: SourceColumn, original: DataType) -> Column:
    assert slot.epoch_unit is not None
    micros = F.unix_micros(values).cast("decimal(28,0)")
    return (micros * F.lit(Decimal(_UNITS_PER_MICRO[slot.epoch_unit]))).cast(type_to_spark(original))


_UNITS_PER_MICRO: Mapping[EpochUnit, str] = MappingProxyType(
    {
        EpochUnit.SECONDS: "0.000001",
        EpochUnit.MILLISECONDS: "0.001",
        EpochUnit.MICROSECONDS: "1",
        EpochUnit.NANOSECONDS: "1000",
    }
)


BACKWARD_CONVERSIONS: Mapping[tuple[str, str], Back] = MappingProxyType(
    {
        ("number", "number"): _to_number,
        ("number", str(BOOLEAN)): _to_boolean,
        ("number", str(DATE)): _to_date,
        ("number", str(TIMESTAMP)): _to_timestamp,
        (str(TIMESTAMP), str(DATE)): _timestamp_to_date,
        ("timestamp_ntz", str(DATE)): _local_time_to_date,
        (str(STRING), str(DATE)): _parse_date,
        (str(STRING), str(TIMESTAMP)): _parse_time,
        (str(STRING), "timestamp_ntz"): _parse_time,
        (str(STRING), _TEMPORAL_STRING): comparable_time,
        (str(DATE), _TEMPORAL_STRING): _date_to_text,
        ("timestamp_ntz", _TEMPORAL_STRING): _local_time_to_text,
        (str(TIMESTAMP), _TEMPORAL_STRING): _timestamp_to_text,
        ("number", _TEMPORAL_STRING): _number_to_count,
    }
    | {(str(STRING), original): _parse_text for original in ("number", str(BOOLEAN))}
)
"""The conversions back, by stored and source type; a timestamp does not convert back to a number (U16)."""


# The proof for typed records: all columns of a field must hold the value that is rebuilt from them.
#
# The value comes from one column; each of the others must have the same value or null. A column must be null if the
# record has no value for its field, or one that the column does not take.
#
# Source: docs/evolution-rules.md#u1, #u14, #u17


_DATE_SUFFIXES = ("", "T00:00:00", "T00:00:00Z")
"""What may follow a date in the value of a string that is read as a date, if another column holds the date."""

_EPOCH_LIMITS = ((10**11, EpochUnit.SECONDS), (10**14, EpochUnit.MILLISECONDS), (10**17, EpochUnit.MICROSECONDS))
"""The upper bounds of integers that count seconds, ms or µs; a larger integer counts ns (D5)."""

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
    columns = source_columns_by_key(schema, policy)
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
        texts += [] if dates is None else [F.concat(dates.cast("string"), F.lit(each)) for each in _DATE_SUFFIXES]
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
