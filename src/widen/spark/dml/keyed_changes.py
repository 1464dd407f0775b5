"""What a batch by key does to the rows of a table, as frames: one row for each key, partial records, or versions.

Source: docs/guide/keys.md
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from widen.json.field_rules import IS_CURRENT, VALID_FROM, VALID_TO
from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    Field,
    MapType,
    StructType,
    quote_name,
)
from widen.schema.source_metadata import role_of, source_key
from widen.spark.dml.keyed_rows import (
    CONTENT,
    DELETE,
    DELETE_UNKNOWN,
    INSERT,
    IS_DELETE,
    KEY_TEXT,
    LATE,
    NUMBER,
    TEXT,
    UPDATE,
    KeyCounts,
    KeyRules,
    count_actions,
    decide,
    find_columns,
    key_text,
    newest_by_key,
    order_number,
    rows_of_keys,
    sequence,
    with_action,
)
from widen.spark.errors import translate_spark_errors
from widen.spark.source.open_source import persist_source
from widen.spark.spark_types import Column, DataFrame, F, Window, type_to_spark

_BATCH, _TABLE, _REMEMBERED = range(3)
"""Where an event of a key is from: the batch, the table, or the list of deleted keys."""

_SIDE, _ROW, _ACTION, _APPLIED, _IS_WINNER, _NEXT = (
    "__widen_side",
    "__widen_row",
    "__widen_action",
    "__widen_applied",
    "__widen_winner",
    "__widen_next",
)
_WRITES, _REMOVES, _HAD_ROW = "__widen_writes", "__widen_removes", "__widen_had"


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """What a batch by key does.

    Args:
        records: The number of its records.
        rows: The rows to write; None to write all records of the batch as they are.
        written: Their number.
        removed: Which rows of the table are removed, in `KEY_TEXT`; see `match_text`.
        gone: The keys that it deletes, with their order; None if there are none.
    """

    counts: KeyCounts
    records: int
    rows: DataFrame | None
    written: int
    removed: DataFrame
    gone: DataFrame | None


def match_text(schema: StructType, rules: KeyRules) -> Column | None:
    """Return what identifies a row of the table: its key, and with history its order too.

    Returns:
        None if the table has no column for the key.
    """
    text = key_text(schema, rules)
    return text if text is None or not rules.history else _version_text(text, *sequence(schema, rules))


def _version_text(key: Column, number: Column, text: Column) -> Column:
    return F.concat_ws("@", number.cast("string"), text, key)


@contextmanager
def decide_changes(
    rows: DataFrame, old: DataFrame | None, deleted: DataFrame | None, rules: KeyRules, schema: StructType
) -> Iterator[KeyedChange]:
    """Find out what a batch does; the frames are good as long as this is open.

    Args:
        rows: Its records, as `widen.spark.dml.keyed_rows.with_order` returns them.
        old: The rows of the table that may have one of the keys, likewise.
        deleted: The keys that were deleted, with their order; with history, each of their deletions.
    """
    if rules.history:
        with persist_source(_versions(rows, old, deleted, rules, schema)) as events:
            yield _version_change(events, schema)
        return
    newest = newest_by_key(rows)
    with persist_source(decide(newest, old, deleted, rules)) as decided:
        counts, records = count_actions(decided)
        new = counts.inserted + counts.updated
        removed = with_action(decided, UPDATE, DELETE).select(KEY_TEXT)
        gone = with_action(decided, DELETE, DELETE_UNKNOWN) if counts.deleted or counts.unknown_deletes else None
        written = with_action(decided, INSERT, UPDATE)
        if not rules.keeps_missing:
            rest = None if new == records else rows_of_keys(newest, written, schema.names)
            yield KeyedChange(counts, records, rest, new, removed, gone)
            return
        with persist_source(_patched(rows, old, deleted, written, rules, schema)) as patched:
            with translate_spark_errors():
                applied = patched.agg(F.coalesce(F.sum(_APPLIED), F.lit(0))).collect()[0][0]
            merged = int(applied) - new
            late = counts.late - merged
            counts = KeyCounts(counts.inserted, counts.updated, counts.deleted, counts.unknown_deletes, late, merged)
            rest = patched.select(*(F.col(_ROW).getField(name).alias(name) for name in schema.names))
            yield KeyedChange(counts, records, rest, new, removed, gone)


# Partial records: fields that a record lacks, or that are null in it, keep the values that the row has.


def _patched(
    rows: DataFrame,
    old: DataFrame | None,
    deleted: DataFrame | None,
    written: DataFrame,
    rules: KeyRules,
    schema: StructType,
) -> DataFrame:
    """Return the new row of each key in `_ROW`, with the number of records of the batch that it is made of."""
    row = F.struct(*(F.col(quote_name(name)) for name in schema.names)).alias(_ROW)
    order = (NUMBER, TEXT, IS_DELETE, CONTENT)
    events = [rows.dropDuplicates([KEY_TEXT, *order]).select(KEY_TEXT, *order, row, F.lit(_BATCH).alias(_SIDE))]
    if old is not None:
        events.append(old.select(KEY_TEXT, NUMBER, TEXT, F.lit(False), CONTENT, row, F.lit(_TABLE)))
    if deleted is not None:
        nothing = F.lit(None).cast(type_to_spark(schema))
        columns = (NUMBER, TEXT, F.lit(True), F.lit(None).cast("string"), nothing, F.lit(_REMEMBERED))
        events.append(deleted.select(KEY_TEXT, *columns))
    # Without a sequence the batch comes after the table.
    place = F.lit(0) if rules.sequence_by else F.when(F.col(_SIDE) == _BATCH, 1).otherwise(0)
    kept = reduce(DataFrame.unionAll, events).join(written.select(KEY_TEXT), KEY_TEXT, "left_semi")
    event = F.struct(place.alias("place"), *order, _SIDE, _ROW)
    lists = kept.groupBy(KEY_TEXT).agg(F.array_sort(F.collect_list(event), _compare).alias("events"))
    start = F.struct(F.lit(None).cast(type_to_spark(schema)).alias(_ROW), F.lit(0).alias(_APPLIED))

    def patch(state: Column, event: Column) -> Column:
        new = event.getField(_ROW)
        merged = F.struct(*_merge(state.getField(_ROW), new, schema)).cast(type_to_spark(schema))
        is_reset = event.getField(IS_DELETE) | (event.getField(_SIDE) != _BATCH)
        is_gone = event.getField(IS_DELETE)
        result = F.when(is_gone, F.lit(None).cast(type_to_spark(schema))).when(is_reset, new).otherwise(merged)
        applied = F.when(is_reset, F.lit(0)).otherwise(state.getField(_APPLIED) + 1)
        return F.struct(result.alias(_ROW), applied.alias(_APPLIED))

    return lists.select(F.aggregate("events", start, patch).alias("end")).select(f"end.{_ROW}", f"end.{_APPLIED}")


def _compare(one: Column, two: Column) -> Column:
    names = ("place", NUMBER, TEXT, IS_DELETE, CONTENT)
    left, right = (F.struct(*(each.getField(name).alias(name) for name in names)) for each in (one, two))
    return F.when(left < right, -1).when(left > right, 1).otherwise(0)


def _merge(old: Column, new: Column, schema: StructType) -> Iterator[Column]:
    """Yield the columns of a record on top of a row. The columns of one field are one value."""
    for each in schema:
        same_field = (other for other in schema if _field_name(other) == _field_name(each))
        is_present = reduce(Column.__or__, (new.getField(other.name).isNotNull() for other in same_field))
        before, after = old.getField(each.name), new.getField(each.name)
        yield F.when(is_present, _merge_values(before, after, each.type)).otherwise(before).alias(each.name)


def _merge_values(old: Column, new: Column, data_type: DataType) -> Column:
    """Return a value on top of another one: of records and maps the fields, of all others the new one."""
    if isinstance(data_type, StructType):
        merged = F.struct(*_merge(old, new, data_type)).cast(type_to_spark(data_type))
    elif isinstance(data_type, MapType):
        inner = data_type.value
        merged = F.map_zip_with(old, new, lambda _, a, b: F.coalesce(_merge_values(a, b, inner), a))
    else:
        return new
    return F.when(old.isNotNull() & new.isNotNull(), merged).otherwise(new)


def _field_name(column: Field) -> str:
    return column.name if role_of(column) else source_key(column)


# History: every version of a row, valid from its own order until that of the next event of its key.


def _versions(
    rows: DataFrame, old: DataFrame | None, deleted: DataFrame | None, rules: KeyRules, schema: StructType
) -> DataFrame:
    """Return all events of the keys of a batch, in the columns of the table, and what becomes of each."""
    keys, names = rows.select(KEY_TEXT).distinct(), [quote_name(name) for name in schema.names]
    order = (KEY_TEXT, NUMBER, TEXT, IS_DELETE, CONTENT)
    events = [rows.select(*names, *order, F.lit(_BATCH).alias(_SIDE))]
    if old is not None:
        versions = old.select(*names, KEY_TEXT, NUMBER, TEXT, F.lit(False), CONTENT, F.lit(_TABLE))
        events.append(versions.join(keys, KEY_TEXT, "left_semi").select(*versions.columns))
    if deleted is not None:
        nothing = [F.lit(None).cast(type_to_spark(each.type)).alias(each.name) for each in schema]
        columns = (KEY_TEXT, NUMBER, TEXT, F.lit(True), F.lit(None).cast("string"), F.lit(_REMEMBERED))
        events.append(deleted.join(keys, KEY_TEXT, "left_semi").select(*nothing, *columns))
    is_delete, side = F.col(IS_DELETE), F.col(_SIDE)
    # Of several events at one time one counts: a deletion, else the larger content, and what is known already.
    winner = Window.partitionBy(KEY_TEXT, NUMBER, TEXT).orderBy(
        is_delete.desc(), F.when(is_delete, side).desc(), F.col(CONTENT).desc_nulls_last(), side.desc()
    )
    by_key = Window.partitionBy(KEY_TEXT, _IS_WINNER).orderBy(NUMBER, TEXT)
    newest = Window.partitionBy(KEY_TEXT, _IS_WINNER, IS_DELETE).orderBy(F.desc(NUMBER), F.desc(TEXT))
    found = (
        reduce(DataFrame.unionAll, events)
        .withColumn(_IS_WINNER, F.row_number().over(winner) == 1)
        .withColumns(
            {
                _NEXT: F.lead(F.struct(NUMBER, TEXT)).over(by_key),
                "__widen_after_version": F.coalesce(F.lag(~is_delete).over(by_key), F.lit(False)),
                "__widen_is_newest": F.row_number().over(newest) == 1,
                _HAD_ROW: F.max(side == _TABLE).over(Window.partitionBy(KEY_TEXT)),
            }
        )
    )
    is_batch, is_winner, next_one = side == _BATCH, F.col(_IS_WINNER), F.col(_NEXT)
    action = (
        F.when(~is_batch, F.lit(None))
        .when(~is_winner, LATE)
        .when(is_delete, F.when(F.col("__widen_after_version"), DELETE).otherwise(DELETE_UNKNOWN))
        .otherwise(F.when(~F.col(_HAD_ROW) & F.col("__widen_is_newest"), INSERT).otherwise(UPDATE))
    )
    until = sequence(schema, KeyRules(rules.key, (VALID_TO,)))
    was = F.struct(until[0].alias(NUMBER), until[1].alias(TEXT))
    is_closed = until[0].isNotNull() | until[1].isNotNull()
    is_moved = ~F.when(is_closed, was).eqNullSafe(next_one)
    changes = is_winner & ~is_delete & (is_batch | is_moved)
    removes = (side == _TABLE) & (~is_winner | is_moved)
    found = found.withColumns({_ACTION: action, _WRITES: changes, _REMOVES: removes})
    values = order_values(schema, VALID_TO, next_one.getField(NUMBER), next_one.getField(TEXT))
    values |= order_values(schema, VALID_FROM, F.col(NUMBER), F.col(TEXT))
    flags = [field.name for field in schema if source_key(field) == IS_CURRENT and field.type == BOOLEAN]
    values |= {name: next_one.isNull() for name in flags[:1]}
    written = [values.get(name, F.col(quote_name(name))).alias(name) for name in schema.names]
    text = _version_text(F.col(KEY_TEXT), F.col(NUMBER), F.col(TEXT)).alias("__widen_version")
    return found.select(*written, KEY_TEXT, NUMBER, TEXT, IS_DELETE, _ACTION, _WRITES, _REMOVES, text)


def _version_change(events: DataFrame, schema: StructType) -> KeyedChange:
    with translate_spark_errors():
        found = events.groupBy(_ACTION).agg(F.count(F.lit(1)), F.count_if(_WRITES)).collect()
    counts = {row[0]: row[1] for row in found}
    inserted, updated, deleted, unknown, late = (
        counts.get(each, 0) for each in (INSERT, UPDATE, DELETE, DELETE_UNKNOWN, LATE)
    )
    rows = events.where(_WRITES).select(*map(quote_name, schema.names))
    removed = events.where(_REMOVES).select(F.col("__widen_version").alias(KEY_TEXT)).distinct()
    gone = with_action(events, DELETE, DELETE_UNKNOWN) if deleted or unknown else None
    return KeyedChange(
        KeyCounts(inserted, updated, deleted, unknown, late),
        sum(count for action, count in counts.items() if action is not None),
        rows,
        sum(row[2] for row in found),
        removed,
        gone,
    )


def order_values(schema: StructType, name: str, number: Column, text: Column) -> dict[str, Column]:
    """Return the columns of a field with an order as its value: in the first one that holds it exactly."""
    values: dict[str, Column] = {}
    is_left = F.lit(True)
    for _, data_type, place in find_columns(schema, (name,)):
        value = text if data_type == STRING else _from_number(number, data_type)
        if value is None:
            continue
        fits = value.isNotNull()
        if data_type != STRING:
            fits &= order_number(value, data_type) == number
        fits = F.coalesce(fits, F.lit(False))
        values[place[0]] = F.when(is_left & fits, value)
        is_left &= ~fits
    return values


_DAY_MICROS = 86_400_000_000


def _from_number(number: Column, data_type: DataType) -> Column | None:
    """Return the value with an order as a type; it may be rounded."""
    micros = number.try_cast("bigint")
    if data_type == DATE:
        return F.date_from_unix_date((micros / _DAY_MICROS).cast("int"))
    if data_type == TIMESTAMP:
        return F.timestamp_micros(micros)
    if data_type == TIMESTAMP_NTZ:
        days, rest = F.floor(micros / _DAY_MICROS).cast("int"), F.pmod(micros, F.lit(_DAY_MICROS))
        seconds = (rest.cast("decimal(18,6)") / 1_000_000).cast("decimal(18,6)")
        return F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'") + F.make_dt_interval(days=days, secs=seconds)
    if data_type in (FLOAT, DOUBLE):
        return number.cast(type_to_spark(data_type))
    return None if data_type == BOOLEAN else number.try_cast(type_to_spark(data_type))
