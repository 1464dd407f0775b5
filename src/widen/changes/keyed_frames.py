"""What a batch by key does to the rows of a table, as frames: one row for each key, partial records, or versions.

Source: docs/guide/keys.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from widen.batches.open_source import persist_source
from widen.changes.key_expressions import (
    count_actions,
    decide,
    find_columns,
    key_text,
    newest_by_key,
    order_number,
    rows_of_keys,
    sequence,
    split_sequence,
    with_action,
)
from widen.changes.partial_records import columns_by_path, find_copied
from widen.changes.tracked_fields import TrackedFields
from widen.evolution.key_rules import (
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
    find_order,
    unchanged_column,
)
from widen.json.document import InvalidJson, document_to_json, parse_document
from widen.json.envelope import UNCHANGED
from widen.json.field_rules import IS_CURRENT, VALID_FROM, VALID_TO, VERSION_FIELDS
from widen.model.column_path import Path
from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    name_key,
    quote_name,
)
from widen.schema.source_metadata import RESCUED, role_field, role_of, source_key
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import join_columns
from widen.spark.ship import freeze_imports
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
_RESCUED = "__widen_rescued"
"""What the rescue column has of each field of an event; see `_RescuedFrames.find`."""


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """What a batch by key does.

    Args:
        records: The number of its records.
        rows: The rows to write; None to write all records of the batch as they are.
        written: Their number.
        removed: Which rows of the table are removed, in `KEY_TEXT`; see `match_text`.
        gone: The keys that the batch deletes, with their sequence; None if it deletes nothing.
    """

    counts: KeyCounts
    records: int
    rows: DataFrame | None
    written: int
    removed: DataFrame
    gone: DataFrame | None


def match_text(schema: StructType, rules: KeyRules) -> Column | None:
    """Return the identity of a row of the table: its key, and with history also its sequence.

    Returns:
        None if the table has no column for the key.
    """
    text = key_text(schema, rules)
    return text if text is None or not rules.history else _version_text(text, *sequence(schema, rules.sequence_by))


def _version_text(key: Column, number: Column, text: Column) -> Column:
    return F.concat_ws("@", number.cast("string"), text, key)


@contextmanager
def decide_changes(
    rows: DataFrame,
    old: DataFrame | None,
    deleted: DataFrame | None,
    rules: KeyRules,
    schema: StructType,
    defaults: Mapping[str, Column] = MappingProxyType({}),
) -> Iterator[KeyedChange]:
    """Decide what a batch does; the frames are valid while the context is open.

    Args:
        rows: The records of the batch, as returned by `widen.changes.key_expressions.with_order`.
        old: The rows of the table that may have one of the keys, likewise.
        deleted: The keys that were deleted, with their order; with history, each of their deletions.
        defaults: The values of a new row in columns that its partial records do not set.
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
        keeps_unchanged = not rules.keeps_missing and _has_unchanged(rows, rules, schema)
        if not (rules.keeps_missing or keeps_unchanged):
            rest = None if new == records else rows_of_keys(newest, written, schema.names)
            yield KeyedChange(counts, records, rest, new, removed, gone)
            return
        with persist_source(_patched(rows, old, deleted, written, rules, schema, defaults)) as patched:
            with translate_spark_errors():
                applied = patched.agg(F.coalesce(F.sum(_APPLIED), F.lit(0))).collect()[0][0]
            merged = int(applied) - new if rules.keeps_missing else 0
            late = counts.late - merged
            counts = KeyCounts(counts.inserted, counts.updated, counts.deleted, counts.unknown_deletes, late, merged)
            rest = patched.select(*(F.col(_ROW).getField(name).alias(name) for name in schema.names))
            yield KeyedChange(counts, records, rest, new, removed, gone)


def _has_unchanged(rows: DataFrame, rules: KeyRules, schema: StructType) -> bool:
    """Return whether a record names fields that keep their values."""
    column = unchanged_column(schema, rules)
    if column is None:
        return False
    with translate_spark_errors():
        return not rows.where(F.col(quote_name(column.name)).isNotNull()).isEmpty()


# Partial records: fields that a record lacks, or that are null in it, keep the values that the row has.


def _patched(
    rows: DataFrame,
    old: DataFrame | None,
    deleted: DataFrame | None,
    written: DataFrame,
    rules: KeyRules,
    schema: StructType,
    defaults: Mapping[str, Column],
) -> DataFrame:
    """Return the new row of each key in `_ROW`, with the number of records of the batch that it is made of."""
    rescue = _RescuedFrames.of(schema)
    row = F.struct(*(F.col(quote_name(name)) for name in schema.names)).alias(_ROW)
    order = (NUMBER, TEXT, IS_DELETE, CONTENT)
    found = F.lit(None).cast("array<string>").alias(_RESCUED) if rescue is None else rescue.find().alias(_RESCUED)
    batch = rows.dropDuplicates([KEY_TEXT, *order])
    events = [batch.select(KEY_TEXT, *order, row, found, F.lit(_BATCH).alias(_SIDE))]
    none = F.lit(None).cast("array<string>")
    if old is not None:
        events.append(old.select(KEY_TEXT, NUMBER, TEXT, F.lit(False), CONTENT, row, none, F.lit(_TABLE)))
    if deleted is not None:
        nothing = F.lit(None).cast(type_to_spark(schema))
        columns = (NUMBER, TEXT, F.lit(True), F.lit(None).cast("string"), nothing, none, F.lit(_REMEMBERED))
        events.append(deleted.select(KEY_TEXT, *columns))
    # Without a sequence the batch comes after the table.
    place = F.lit(0) if rules.sequence_by else F.when(F.col(_SIDE) == _BATCH, 1).otherwise(0)
    kept = reduce(DataFrame.unionAll, events).join(written.select(KEY_TEXT), KEY_TEXT, "left_semi")
    event = F.struct(place.alias("place"), *order, _SIDE, _ROW, _RESCUED)
    lists = kept.groupBy(KEY_TEXT).agg(F.array_sort(F.collect_list(event), _compare).alias("events"))
    start = F.struct(F.lit(None).cast(type_to_spark(schema)).alias(_ROW), F.lit(0).alias(_APPLIED))

    def patch(state: Column, event: Column) -> Column:
        new = event.getField(_ROW)
        rescued = {} if rescue is None else rescue.by_path(event.getField(_RESCUED))
        if rules.keeps_missing:
            columns = [*_merge(state.getField(_ROW), new, schema, rescued)]
        else:
            columns = _keep_unchanged(state.getField(_ROW), new, schema, rules)
        merged = F.struct(*columns).cast(type_to_spark(schema))
        is_new = state.getField(_ROW).isNull()
        for name, value in defaults.items():
            is_empty = is_new & merged.getField(name).isNull()
            merged = merged.withField(quote_name(name), F.when(is_empty, value).otherwise(merged.getField(name)))
        is_reset = event.getField(IS_DELETE) | (event.getField(_SIDE) != _BATCH)
        is_gone = event.getField(IS_DELETE)
        result = F.when(is_gone, F.lit(None).cast(type_to_spark(schema))).when(is_reset, new).otherwise(merged)
        applied = F.when(is_reset, F.lit(0)).otherwise(state.getField(_APPLIED) + 1)
        return F.struct(result.alias(_ROW), applied.alias(_APPLIED))

    end = lists.select("events", F.aggregate("events", start, patch).alias("end"))
    merged_row = F.col(f"end.{_ROW}")
    unchanged = unchanged_column(schema, rules)
    if rescue is not None and unchanged is not None and not rules.keeps_missing:
        name, names = rescue.name, unchanged.name

        def slim(event: Column) -> Column:
            row, is_batch = event.getField(_ROW), event.getField(_SIDE) == _BATCH
            return F.struct(event.getField(IS_DELETE), is_batch, row.getField(name), row.getField(names))

        rescued_text = F.udf(_keep_rescued, "string", useArrow=False)(F.transform("events", slim))
        merged_row = merged_row.withField(quote_name(name), rescued_text)
    elif rescue is not None:
        merged_row = merged_row.withField(quote_name(rescue.name), rescue.merge(F.col("events")))
    return end.select(merged_row.alias(_ROW), f"end.{_APPLIED}")


def _keep_unchanged(old: Column, new: Column, schema: StructType, rules: KeyRules) -> list[Column]:
    """Return the columns of a record with the values of a row in the fields that it says are unchanged."""
    unchanged = unchanged_column(schema, rules)
    assert unchanged is not None
    names = new.getField(unchanged.name)
    columns = []
    for each in schema:
        before, after = old.getField(each.name), new.getField(each.name)
        is_kept = F.coalesce(F.array_contains(names, source_key(each)), F.lit(False))
        columns.append(F.when(is_kept, before).otherwise(after).alias(each.name))
    return columns


def _keep_rescued(events: Sequence[Sequence[Any]]) -> str | None:
    """Return the text of the rescue column: of the last record, and of the fields that records say are unchanged."""
    state: dict[str, Any] = {}
    for is_delete, is_batch, text, names in events:
        new = {} if is_delete or text is None else _parse(text)
        kept = {name: state[name] for name in names or () if name in state} if is_batch and not is_delete else {}
        state = {**kept, **new}
    return document_to_json(state) if state else None


def _compare(one: Column, two: Column) -> Column:
    names = ("place", NUMBER, TEXT, IS_DELETE, CONTENT)
    left, right = (F.struct(*(each.getField(name).alias(name) for name in names)) for each in (one, two))
    return F.when(left < right, -1).when(left > right, 1).otherwise(0)


def _merge(
    old: Column, new: Column, schema: StructType, rescued: Mapping[Path, Column], above: Path = ()
) -> Iterator[Column]:
    """Yield the columns of a record on top of a row. The columns of one field are one value.

    Args:
        rescued: What the rescue column of the record holds for each field, by path; see `_RescuedFrames.by_path`.
        above: The path of the record in the row.
    """
    for each in schema:
        path = (*above, _field_name(each))
        same_field = [new.getField(other.name).isNotNull() for other in schema if _field_name(other) == path[-1]]
        is_present = join_columns(lambda one, two: one | two, same_field)
        is_record: Column = F.lit(False)
        if path in rescued:
            is_present |= rescued[path].isNotNull()
            is_record = F.coalesce(rescued[path] == _RECORD, F.lit(False))
        before, after = old.getField(each.name), new.getField(each.name)
        copied = find_copied(each, schema.fields)
        # Of a record or a map that is rescued in full, the columns have nothing, which removes nothing.
        is_nested = copied is not None or isinstance(each.type, (StructType, MapType))
        kept = F.when(is_record & after.isNull(), before) if path in rescued and is_nested else None
        merged = _merge_values(before, after, each.type, rescued, path)
        if copied is not None:
            name = schema.fields[copied].name
            are_both = old.getField(name).isNotNull() & new.getField(name).isNotNull()
            merged = F.when(are_both, _merge_items(before, after, each.type, rescued, path)).otherwise(after)
        merged = merged if kept is None else kept.otherwise(merged)
        yield F.when(is_present, merged).otherwise(before).alias(each.name)


def _merge_values(
    old: Column, new: Column, data_type: DataType, rescued: Mapping[Path, Column], path: Path = ()
) -> Column:
    """Merge two values: records and maps field by field; for all others the new value wins."""
    if isinstance(data_type, StructType):
        merged = F.struct(*_merge(old, new, data_type, rescued, path)).cast(type_to_spark(data_type))
    elif isinstance(data_type, MapType):
        inner = data_type.value
        merged = F.map_zip_with(old, new, lambda _, a, b: F.coalesce(_merge_values(a, b, inner, {}), a))
    else:
        return new
    return F.when(old.isNotNull() & new.isNotNull(), merged).otherwise(new)


def _merge_items(old: Column, new: Column, data_type: DataType, rescued: Mapping[Path, Column], path: Path) -> Column:
    """Return a new array; if both have one item, which repeats a record or a map, it is merged with the old one."""
    if not isinstance(data_type, ArrayType):
        return _merge_values(old, new, data_type, rescued, path)
    item = _merge_items(F.get(old, 0), F.get(new, 0), data_type.element, rescued, path)
    merged = F.array(item).cast(type_to_spark(data_type))
    return F.when((F.size(old) == F.lit(1)) & (F.size(new) == F.lit(1)), merged).otherwise(new)


def _field_name(column: Field) -> str:
    return column.name if role_of(column) else source_key(column)


# The rescue column of partial records: each field has the value that its newest record has rescued.


_RECORD, _MAP, _VALUE = "record", "map", "value"
"""What an event has in a field: a record, whose fields have places of their own, a map, or another value."""


@dataclass(frozen=True, slots=True)
class _RescuedFrames:
    """The values of partial records that no column holds.

    Args:
        name: The column.
        schema: All columns.
        places: The paths of the fields that have columns, parents before their fields.
    """

    name: str
    schema: StructType
    places: tuple[Path, ...]

    @staticmethod
    def of(schema: StructType) -> _RescuedFrames | None:
        column = role_field(schema, RESCUED)
        if column is None:
            return None
        return _RescuedFrames(column.name, schema, tuple(columns_by_path(schema)))

    def find(self) -> Column:
        """Return for each path whether the column has a record of the field, or another value; null for nothing."""
        # Without Arrow, which needs pandas.
        return F.udf(partial(_find_rescued, self.places), "array<string>", useArrow=False)(F.col(self.name))

    def by_path(self, found: Column) -> dict[Path, Column]:
        """Return what `find` returns, by path."""
        return {path: found.getItem(number) for number, path in enumerate(self.places)}

    def merge(self, events: Column) -> Column:
        """Return the text for the row that some events lead to.

        Args:
            events: The events of a key in their order.
        """

        def slim(event: Column) -> Column:
            row = event.getField(_ROW)
            present = F.array(*(_present(row, columns) for columns in columns_by_path(self.schema).values()))
            is_batch = event.getField(_SIDE) == _BATCH
            return F.struct(event.getField(IS_DELETE), is_batch, row.getField(self.name), present)

        task = partial(_merge_rescued, self.places)
        return F.udf(task, "string", useArrow=False)(F.transform(events, slim))


def _present(row: Column, columns: Sequence[tuple[Path, DataType]]) -> Column:
    """Return what an event has in the columns of a field: its kind, then the keys of a map; null for nothing."""
    found = F.lit(None).cast("array<string>")
    # A record counts first: in it each field has a place of its own.
    for place, data_type in sorted(columns, key=lambda each: isinstance(each[1], StructType)):
        column = row
        for name in place:
            column = column.getField(name)
        value = F.array(F.lit(_RECORD if isinstance(data_type, StructType) else _VALUE))
        if isinstance(data_type, MapType):
            value = F.concat(F.array(F.lit(_MAP)), F.map_keys(column).cast("array<string>"))
        found = F.when(column.isNotNull(), value).otherwise(found)
    return found


def _find_rescued(places: Sequence[Path], text: str | None) -> list[str | None] | None:
    if text is None:
        return None
    tree = _names_of(places)
    found: dict[Path, str] = {}
    levels: list[tuple[Any, Path]] = [(_parse(text), ())]
    for record, above in levels:
        for name, value in record.items():
            path = (*above, _resolve(tree.get(above, ()), name))
            if value is not None:
                found[path] = _RECORD if isinstance(value, dict) else _VALUE
            if isinstance(value, dict):
                levels.append((value, path))
    return [found.get(path) for path in places]


def _merge_rescued(places: Sequence[Path], events: Sequence[Sequence[Any]]) -> str | None:
    tree, merged, has_row = _names_of(places), dict[str, Any](), False
    for is_delete, is_batch, text, present in events:
        new = {} if is_delete or text is None else _parse(text)
        if is_batch and has_row and not is_delete:
            by_path = {path: each for path, each in zip(places, present, strict=True) if each is not None}
            new = _put_on_top(merged, new, by_path, tree, ())
        merged, has_row = new, not is_delete
    return document_to_json(merged) if merged else None


def _put_on_top(
    old: dict[str, Any],
    new: dict[str, Any],
    present: Mapping[Path, Sequence[str]],
    tree: Mapping[Path, Sequence[str]],
    above: Path,
) -> dict[str, Any]:
    """Return a row's rescued fields after a record: without the record's fields, with the fields that it rescues."""
    merged: dict[str, Any] = {}
    for name, value in old.items():
        path = (*above, _resolve(tree.get(above, ()), name))
        kind, *keys = present.get(path, (None,))
        on_top = new.get(name)
        if kind is None:
            merged[name] = value if on_top is None else _merge_documents(value, on_top)
            continue
        below = on_top if isinstance(on_top, dict) else {}
        if kind == _RECORD and isinstance(value, dict):
            on_top = _put_on_top(value, below, present, tree, path) or None
        elif kind == _MAP and isinstance(value, dict):
            # The entry of a map is one value: the record has all of it.
            on_top = {**{key: entry for key, entry in value.items() if key not in keys}, **below} or None
        if on_top is not None:
            merged[name] = on_top
    return {**merged, **{name: value for name, value in new.items() if value is not None and name not in old}}


def _merge_documents(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {name: _merge_documents(old.get(name), value) for name, value in new.items() if value is not None}
    return {**old, **changed}


def _names_of(places: Sequence[Path]) -> dict[Path, list[str]]:
    """Return the names of the fields with columns, by the path of the record that has them."""
    found: dict[Path, list[str]] = {}
    for path in places:
        found.setdefault(path[:-1], []).append(path[-1])
    return found


def _resolve(names: Sequence[str], name: str) -> str:
    """Return the field that a name stands for: the same one, or one that differs in case only."""
    if name in names:
        return name
    return next((each for each in names if name_key(each) == name_key(name)), name)


def _parse(text: str) -> dict[str, Any]:
    document = parse_document(text.encode(), allows_nan=True)
    if isinstance(document, InvalidJson) or not isinstance(document, dict):
        return {}  # another writer's text
    return document


# History: every version of a row, valid from its own sequence until the sequence of the key's next event.


def _versions(
    rows: DataFrame, old: DataFrame | None, deleted: DataFrame | None, rules: KeyRules, schema: StructType
) -> DataFrame:
    """Return all events of the keys of a batch, in the columns of the table, and the result of each."""
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
    # One of several events with the same sequence counts: a deletion, else the larger content, then what is known.
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
                "__widen_rows": F.count_if(side == _TABLE).over(Window.partitionBy(KEY_TEXT, NUMBER, TEXT)),
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
    until = sequence(schema, rules.times(VALID_TO))
    was = F.struct(until[0].alias(NUMBER), until[1].alias(TEXT))
    is_closed = until[0].isNotNull() | until[1].isNotNull()
    found, kept, is_changed = _with_kept(found, schema, rules)
    tracked = TrackedFields.of(schema, rules)
    start: Column = F.struct(NUMBER, TEXT)
    if tracked is not None:
        found, start = _with_validity(found, tracked, kept), F.col(_SINCE)
        since = sequence(schema, rules.times(VALID_FROM))
        is_changed |= ~F.struct(since[0].alias(NUMBER), since[1].alias(TEXT)).eqNullSafe(start)
    is_moved = ~F.when(is_closed, was).eqNullSafe(next_one) | is_changed
    # Rows are removed by their key and sequence, so the winner among several is written again.
    changes = is_winner & ~is_delete & (is_batch | is_moved | (F.col("__widen_rows") > 1))
    removes = (side == _TABLE) & (~is_winner | is_moved)
    found = found.withColumns({_ACTION: action, _WRITES: changes, _REMOVES: removes})
    values = order_values(schema, rules.times(VALID_TO), next_one.getField(NUMBER), next_one.getField(TEXT))
    values |= order_values(schema, rules.times(VALID_FROM), start.getField(NUMBER), start.getField(TEXT))
    flags = [field.name for field in schema if source_key(field) == IS_CURRENT and field.type == BOOLEAN]
    values |= {name: next_one.isNull() for name in flags[:1]}
    values |= kept
    written = [values.get(name, F.col(quote_name(name))).alias(name) for name in schema.names]
    text = _version_text(F.col(KEY_TEXT), F.col(NUMBER), F.col(TEXT)).alias("__widen_version")
    return found.select(*written, KEY_TEXT, NUMBER, TEXT, IS_DELETE, _ACTION, _WRITES, _REMOVES, text)


def _with_kept(events: DataFrame, schema: StructType, rules: KeyRules) -> tuple[DataFrame, dict[str, Column], Column]:
    """Return events with what versions keep of the fields that they say are unchanged: the value of the version before.

    Returns:
        Also the columns with these values, and whether a version of the table keeps a value of the batch.
    """
    unchanged = unchanged_column(schema, rules)
    if unchanged is None:
        return events, {}, F.lit(False)
    by_key = Window.partitionBy(KEY_TEXT, _IS_WINNER).orderBy(NUMBER, TEXT)
    # After a deletion there is nothing to keep.
    events = events.withColumn(_LIFE, F.sum(F.col(IS_DELETE).cast("int")).over(by_key))
    of_life = Window.partitionBy(KEY_TEXT, _IS_WINNER, _LIFE).orderBy(NUMBER, TEXT)
    until_now = of_life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    names, is_changed = F.col(quote_name(unchanged.name)), F.lit(False)
    last, kept = {}, {}
    fields = [each for each in schema if role_of(each) is None and source_key(each) not in (UNCHANGED, *VERSION_FIELDS)]
    for at, each in enumerate(fields):
        column, name = F.col(quote_name(each.name)), f"{_KEPT}{at}"
        is_kept = F.coalesce(F.array_contains(names, source_key(each)), F.lit(False))
        own = F.when(~is_kept & ~F.col(IS_DELETE), F.struct(F.col(_SIDE).alias("side"), column.alias("value")))
        last[name] = F.last(own, ignorenulls=True).over(until_now)
        is_of_batch = F.coalesce(F.col(name).getField("side") == _BATCH, F.lit(False))
        is_changed |= is_kept & is_of_batch & (F.col(_SIDE) == _TABLE)
        has_value = is_kept & F.col(name).isNotNull()
        kept[each.name] = F.when(has_value, F.col(name).getField("value")).otherwise(column)
    return events.withColumns(last), kept, is_changed


_LIFE, _KEPT = "__widen_life", "__widen_kept"


def _with_validity(events: DataFrame, tracked: TrackedFields, kept: Mapping[str, Column]) -> DataFrame:
    """Return events with the start of their version in `_SINCE`, and its end in `_NEXT`.

    An event whose version the next one only updates starts and ends at its own sequence, so that it is never valid.

    Args:
        events: With the next event of their key in `_NEXT`.
        kept: The columns with the values of the version before; see `_with_kept`.
    """
    # One struct column each, since mapInArrow reads a dot in a column name as a nested field.
    event = F.struct(*map(F.col, map(quote_name, events.columns))).alias(_EVENT)
    fields = [kept.get(name, F.col(quote_name(name))).alias(name) for name in tracked.schema.names]
    rows = events.select(event, F.struct(*fields, F.lit(0).alias("__widen_any")).alias(_FIELDS))
    hashed = rows.mapInArrow(
        partial(_hash_task, tracked), rows.select(_EVENT, F.lit(0).cast("bigint").alias(_HASH)).schema
    ).select(f"{_EVENT}.*", _HASH)
    by_key = Window.partitionBy(KEY_TEXT, _IS_WINNER).orderBy(NUMBER, TEXT)
    until_now = by_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = F.lag(F.when(~F.col(IS_DELETE), F.col(_HASH))).over(by_key)
    goes_on = F.coalesce(~F.col(IS_DELETE) & (F.col(_HASH) == before), F.lit(False))
    hashed = hashed.withColumn(_GOES_ON, goes_on)
    own = F.struct(NUMBER, TEXT)
    times = {
        "__widen_first": F.last(F.when(~F.col(_GOES_ON), own), ignorenulls=True).over(until_now),
        "__widen_updated": F.coalesce(F.lead(_GOES_ON).over(by_key), F.lit(False)),
    }
    is_updated = F.col("__widen_updated")
    return hashed.withColumns(times).withColumns(
        {
            _SINCE: F.when(is_updated, own).otherwise(F.col("__widen_first")),
            _NEXT: F.when(is_updated, own).otherwise(F.col(_NEXT)),
        }
    )


_EVENT, _FIELDS, _HASH, _GOES_ON, _SINCE = (
    "__widen_event",
    "__widen_fields",
    "__widen_hash",
    "__widen_goes_on",
    "__widen_since",
)


def _hash_task(tracked: TrackedFields, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for batch in batches:
        events, fields = batch.columns
        words = tracked.hash(pa.Table.from_batches([pa.RecordBatch.from_struct_array(fields)]))
        yield pa.RecordBatch.from_arrays([events, words.view(pa.int64())], [_EVENT, _HASH])


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


def order_values(schema: StructType, paths: Sequence[Path], number: Column, text: Column) -> dict[str, Column]:
    """Return the columns of the fields of a sequence with its values, each in the first column that holds it exactly.

    Args:
        paths: One field, or several in one record.
    """
    parts = [(number, text)]
    if len(paths) > 1:
        parts = split_sequence(text, [find_order(schema, path)[0] for path in paths])
    values: dict[Path, Column] = {}
    for path, (number_of, text_of) in zip(paths, parts, strict=True):
        is_left = F.lit(True)
        for _, data_type, place in find_columns(schema, path):
            value = text_of if data_type == STRING else _from_number(number_of, data_type)
            if value is None:
                continue
            fits = value.isNotNull()
            if data_type != STRING:
                fits &= order_number(value, data_type) == number_of
            fits = F.coalesce(fits, F.lit(False))
            values[place] = F.when(is_left & fits, value)
            is_left &= ~fits
    if len(paths) == 1:
        return {place[0]: value for place, value in values.items()}
    records = {place[0] for place in values}
    return {
        each.name: F.when(text.isNotNull(), _to_record(each, (each.name,), values))
        for each in schema
        if each.name in records
    }


def _to_record(field: Field, place: Path, values: Mapping[Path, Column]) -> Column:
    if place in values:
        return values[place]
    data_type = type_to_spark(field.type)
    if not isinstance(field.type, StructType):
        return F.lit(None).cast(data_type)
    return F.struct(*(_to_record(each, (*place, each.name), values).alias(each.name) for each in field.type))


_DAY_MICROS = 86_400_000_000


def _from_number(number: Column, data_type: DataType) -> Column | None:
    """Return a sequence as a value of a type; it may be rounded."""
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
