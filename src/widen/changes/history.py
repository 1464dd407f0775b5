"""The events of keys in their order, and history: which events of a key are versions of its row, and until when.

An event of a key is a record, a row of the table, or a deletion that the table remembers. If several events of a key
have the same sequence, one of them counts. Unless it deletes, it is a version that is valid until the next event of
its key.

Source: docs/guide/keys.md#history
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.key_columns import split_sequences, values_of_order
from widen.changes.keyed_files import count_true
from widen.errors import SequenceRepeated
from widen.evolution.key_rules import KeyCounts, KeyRules, find_order, find_places, format_paths
from widen.files.arrow_types import count_up, one_array, to_arrow
from widen.json.field_rules import IS_CURRENT, VALID_FROM, VALID_TO
from widen.model.column_path import Path
from widen.model.types import BOOLEAN, Field, StructType
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import source_key

_BATCH, _TABLE, _REMEMBERED = range(3)


@dataclass(frozen=True, slots=True)
class Events:
    """What is known of the keys of a batch: its records, then the rows of the table, then remembered deletions.

    Args:
        order: When it is, as a number; below zero for a row of the table without a sequence.
        sides: How many are records, rows and deletions.
    """

    key: pa.Array
    order: pa.Array
    is_delete: pa.Array
    sides: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Versions:
    """What a batch does to the versions of its keys.

    Args:
        rows: The events that are written as versions, by their numbers among all.
        starts: When each version starts. `ends` is when it ends; null for the newest version of a key. Both are
            numbers.
        gone: The records that delete, by their numbers.
        kept: For fields that versions keep of the version before: of each event of `rows`, the event that has the
            value.
    """

    counts: KeyCounts
    rows: pa.Array
    starts: pa.Array
    ends: pa.Array
    removed: pa.Array
    gone: pa.Array
    kept: Mapping[str, pa.Array]


def number_orders(parts: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the sorted distinct values of several arrays, and the index of each value among them; -1 for null."""
    whole = pa.concat_arrays(parts)
    distinct = pc.unique(whole).drop_null()
    distinct = distinct.take(pc.sort_indices(distinct))
    return distinct, pc.fill_null(pc.index_in(whole, value_set=distinct, skip_nulls=True).cast(pa.int64()), -1)


RankContents = Callable[[pa.Array, pa.Array], pa.Array]
"""Ranks events by their contents, given their indexes and the numbers of their groups (one key and sequence each)."""


def order_events(events: Events, rank_contents: RankContents, rules: KeyRules) -> pa.Table:
    """Sort events by key and sequence; among equal ones the event that counts comes first."""
    ordered = _order(events)
    ties = _find_ties(ordered)
    if len(ties):
        ranks = rank_contents(ties["event"], ties["moment"])
        at = pc.index_in(count_up(len(events.key), 0, pa.uint64()), value_set=ties["event"])
        ordered = _order(events, pc.fill_null(ranks.take(at), 0))
    if rules.is_strict:
        _ensure_no_ties(ordered, rules)
    return ordered


_ORDER = [
    ("key", "ascending"),
    ("order", "ascending"),
    # One of several events with the same sequence counts: a deletion, else the larger content, then what is known.
    ("is_delete", "descending"),
    ("deletion", "descending"),
    ("content", "descending"),
    ("side", "descending"),
]


def _order(events: Events, contents: pa.Array | None = None) -> pa.Table:
    """Sort the events by key and sequence; among equal ones the event that counts comes first."""
    count = len(events.key)
    sides = pa.concat_arrays([pa.repeat(pa.scalar(side, pa.int8()), size) for side, size in enumerate(events.sides)])
    columns = {
        "key": events.key,
        "order": events.order,
        "is_delete": events.is_delete.cast(pa.int8()),
        "deletion": pc.if_else(events.is_delete, sides, pa.scalar(-1, pa.int8())),
        "content": pa.repeat(pa.scalar(0), count) if contents is None else contents,
        "side": sides,
        "event": count_up(count, 0, pa.uint64()),
    }
    ordered = pa.table(columns).sort_by(_ORDER).combine_chunks()
    key, order = one_array(ordered["key"]), one_array(ordered["order"])
    is_same = pc.and_(pc.equal(key[1:], key[:-1]), pc.equal(order[1:], order[:-1]))
    is_first = pa.concat_arrays([pa.array([True]), pc.invert(is_same)])
    ordered = ordered.append_column("is_first", is_first)
    return ordered.append_column("moment", pc.cumulative_sum(is_first.cast(pa.int64())))


def _find_ties(ordered: pa.Table) -> pa.RecordBatch:
    """Return the events whose contents decide: several with the same key and sequence, without a deletion."""
    moments = ordered.group_by("moment").aggregate([("is_delete", "max"), ([], "count_all")])
    several = pc.and_(pc.greater(moments["count_all"], 1), pc.equal(moments["is_delete_max"], 0))
    asked = one_array(moments["moment"].filter(several))
    found = ordered.select(["event", "moment"]).filter(pc.is_in(ordered["moment"], value_set=asked))
    return pa.RecordBatch.from_arrays(list(map(one_array, found.columns)), names=found.column_names)


def _ensure_no_ties(ordered: pa.Table, rules: KeyRules) -> None:
    """Check that a record does not share its sequence with a different event.

    Of rows that are replaced as a whole, only the newest moment of each key counts.
    """
    extremes = [(name, which) for name in ("is_delete", "content") for which in ("min", "max")]
    moments = ordered.group_by("moment").aggregate([*extremes, ("side", "min"), ("key", "min")])
    is_mixed = pc.not_equal(moments["is_delete_min"], moments["is_delete_max"])
    is_mixed = pc.or_(is_mixed, pc.not_equal(moments["content_min"], moments["content_max"]))
    is_tie = pc.and_(is_mixed, pc.equal(moments["side_min"], _BATCH))
    if rules.is_plain:
        newest = ordered.group_by("key").aggregate([("moment", "max")])["moment_max"]
        is_tie = pc.and_(is_tie, pc.is_in(moments["moment"], value_set=one_array(newest)))
    ties = moments.filter(is_tie)
    if len(ties):
        raise SequenceRepeated(count=len(pc.unique(ties["key_min"])), sequence_by=format_paths(rules.sequence_by))


@dataclass(frozen=True, slots=True)
class RowTimes:
    """The validity of the rows of the table, as numbers.

    Args:
        until: When each row ends; null for never, and for a time without an event.
        is_open: Whether it never ends.
        since: When each row starts, likewise; None if every row starts with its own event.
    """

    until: pa.Array
    is_open: pa.Array
    since: pa.Array | None = None


HashTracked = Callable[[pa.Array, Mapping[str, pa.Array]], pa.Array]
"""Returns a hash of the tracked fields of events, given their numbers, and the event that has each kept value."""


def decide_versions(
    events: Events,
    ordered: pa.Table,
    times: RowTimes,
    hash_tracked: HashTracked | None = None,
    unchanged: Mapping[str, pa.Array] = MappingProxyType({}),
) -> Versions:
    """Return what the records among some events do.

    Args:
        hash_tracked: None if every event is a version.
        unchanged: For fields that versions keep of the version before, which events do, among records and rows.
    """
    first_row = events.sides[_BATCH]
    winners = ordered.filter(ordered["is_first"])
    key, order, side, event = (one_array(winners[name]) for name in ("key", "order", "side", "event"))
    is_delete, has_next = pc.equal(one_array(winners["is_delete"]), 1), pc.equal(key[1:], key[:-1])
    is_batch, is_version = pc.equal(side, _BATCH), pc.invert(is_delete)
    sources = _find_sources(key, event, is_delete, unchanged)
    ends = pa.concat_arrays([pc.if_else(has_next, order[1:], pa.scalar(None, pa.int64())), pa.nulls(1, pa.int64())])
    starts = order
    if hash_tracked is not None:
        is_pair = pc.and_(has_next, pc.invert(pc.or_(is_delete[1:], is_delete[:-1])))
        goes_on = _find_updates(event, is_pair, hash_tracked, sources)
        starts = _first_of_runs(order, goes_on)
        # An event whose version the next one updates stays as a row that is never valid.
        is_updated = pa.concat_arrays([goes_on[1:], pa.array([False])])
        starts, ends = pc.if_else(is_updated, order, starts), pc.if_else(is_updated, order, ends)
    was_version = pa.concat_arrays([pa.array([False]), pc.and_(has_next, pc.invert(is_delete[:-1]))])
    # A row of the table stays as it is if it still ends when it did, and keeps no value of a record.
    rows = pc.subtract(event.cast(pa.int64()), first_row)
    rows = pc.if_else(pc.equal(side, _TABLE), rows, pa.scalar(None, pa.int64()))
    stays = _find_unmoved(times, rows, starts, ends)
    for each in sources.values():
        stays = pc.and_(stays, pc.fill_null(pc.greater_equal(each, first_row), True))
    is_written, kept_rows = pc.and_(is_version, pc.invert(stays)), rows.filter(stays)
    deletes = pc.and_(is_batch, is_delete)
    deleted = count_true(pc.and_(deletes, was_version))
    of_table = events.key.slice(first_row, events.sides[_TABLE])
    inserted = _count_inserts(key.filter(is_version), is_batch.filter(is_version), of_table)
    counts = {
        "inserted": inserted,
        "updated": count_true(pc.and_(is_batch, is_version)) - inserted,
        "deleted": deleted,
        "unknown_deletes": count_true(deletes) - deleted,
    }
    counts["late"] = first_row - sum(counts.values())
    return Versions(
        KeyCounts(**counts),
        event.filter(is_written),
        starts.filter(is_written),
        ends.filter(is_written),
        pc.invert(pc.is_in(count_up(events.sides[_TABLE]), value_set=kept_rows)),
        event.filter(deletes),
        {name: each.filter(is_written) for name, each in sources.items()},
    )


def _find_unmoved(times: RowTimes, rows: pa.Array, starts: pa.Array, ends: pa.Array) -> pa.Array:
    """Return which events are rows of the table whose validity stays the same.

    Args:
        rows: The number of the row of each event; null for other events.
    """
    was_open, was_end = times.is_open.take(rows), times.until.cast(pa.int64()).take(rows)
    stays = pc.if_else(was_open, ends.is_null(), pc.fill_null(pc.equal(was_end, ends), False))
    if times.since is not None:
        stays = pc.and_(stays, pc.equal(times.since.cast(pa.int64()).take(rows), starts))
    return pc.fill_null(stays, False)


def _count_inserts(key: pa.Array, is_batch: pa.Array, of_table: pa.Array) -> int:
    """Return how many keys that the table does not have get their newest version from the batch."""
    after = pa.concat_arrays([key, pa.nulls(1, pa.int64())])[1:]
    is_newest = pc.fill_null(pc.not_equal(key, after), True)
    is_known = pc.is_in(key, value_set=pc.unique(of_table))
    return count_true(pc.and_(is_batch, pc.and_(is_newest, pc.invert(is_known))))


def _find_sources(
    key: pa.Array, event: pa.Array, is_delete: pa.Array, unchanged: Mapping[str, pa.Array]
) -> dict[str, pa.Array]:
    """Return the event that has the value of each kept field: the last one of its key that does not keep it.

    Null where an event has its own value, or where there is none to keep: after a deletion, or at first.
    """
    if not unchanged or not len(key):
        return {}
    at = count_up(len(key))
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(key[1:], key[:-1])])
    life = pc.fill_null_forward(pc.if_else(pc.or_(is_first, is_delete), at, pa.scalar(None, pa.int64())))
    sources = {}
    for name, flags in unchanged.items():
        is_kept = pc.fill_null(flags.take(pc.if_else(pc.less(event, len(flags)), event, None)), False)
        has_own = pc.invert(pc.or_(is_kept, is_delete))
        last = pc.fill_null_forward(pc.if_else(has_own, at, pa.scalar(None, pa.int64())))
        has_source = pc.and_(is_kept, pc.fill_null(pc.greater_equal(last, life), False))
        sources[name] = event.take(pc.if_else(has_source, last, pa.scalar(None, pa.int64())))
    return sources


def _find_updates(
    event: pa.Array, is_pair: pa.Array, hash_tracked: HashTracked, sources: Mapping[str, pa.Array]
) -> pa.Array:
    """Return which events only update the version before them.

    Args:
        is_pair: For each event but the first, whether it and the one before are records of the same key.
    """
    none, first = pa.array([], pa.bool_()), pa.array([False])
    before, after = (pa.concat_arrays(each) for each in ((is_pair, first), (first, is_pair)))
    is_asked = pc.or_(before, after) if len(event) else none
    asked = event.filter(is_asked)
    if not len(asked):
        return pa.repeat(pa.scalar(False), len(event))
    words = hash_tracked(asked, {name: each.filter(is_asked) for name, each in sources.items()})
    at = pc.cumulative_sum(is_asked.cast(pa.int64()))
    at = pc.subtract(at, 1)
    is_same = pc.equal(words.take(at[1:].filter(is_pair)), words.take(at[:-1].filter(is_pair)))
    return pa.concat_arrays([first, pc.replace_with_mask(is_pair, is_pair, is_same)])


def _first_of_runs(order: pa.Array, goes_on: pa.Array) -> pa.Array:
    """Return the order of the first event of each version, for each of its events."""
    run = pc.subtract(pc.cumulative_sum(pc.invert(goes_on).cast(pa.int64())), 1)
    return order.filter(pc.invert(goes_on)).take(run)


# The rows of versions, which are read from the files of the batch and of the table.


@dataclass(frozen=True, slots=True)
class VersionRows:
    """The validity of versions of rows.

    Args:
        start: When each version starts, as returned by `widen.changes.key_columns.OrderColumns.comparable`.
        end: When each version ends; null for the newest version of a key.
    """

    start: pa.Array
    end: pa.Array
    schema: StructType
    rules: KeyRules

    def with_times(self, rows: pa.Table) -> pa.Table:
        """Return the values of versions with their validity."""
        values = columns_of_order(self.schema, self.rules.times(VALID_FROM), self.start)
        values |= columns_of_order(self.schema, self.rules.times(VALID_TO), self.end)
        flags = [field.name for field in self.schema if source_key(field) == IS_CURRENT and field.type == BOOLEAN]
        values |= {name: self.end.is_null() for name in flags[:1]}
        for at, field in enumerate(self.schema):
            if field.name in values:
                rows = rows.set_column(at, rows.schema.field(at), values[field.name])
        return rows


def columns_of_order(schema: StructType, paths: Sequence[Path], orders: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of the fields of a sequence with its values, each in the first column that holds it exactly.

    Args:
        paths: One field, or several in one record.
    """
    parts = [orders]
    if len(paths) > 1:
        parts = split_sequences(orders, [find_order(schema, path)[0] for path in paths])
    values: dict[Path, pa.Array] = {}
    for path, part in zip(paths, parts, strict=True):
        is_left = pa.repeat(pa.scalar(True), len(part))
        for data_type, place in find_places(schema, path):
            value = values_of_order(pc.if_else(is_left, part, pa.scalar(None, part.type)), data_type)
            if value is not None:
                values[place] = value
                is_left = pc.and_(is_left, value.is_null())
    if len(paths) == 1:
        return {place[0]: value for place, value in values.items()}
    records = {place[0] for place in values}
    return {each.name: _to_record(each, (each.name,), values, orders) for each in schema if each.name in records}


def _to_record(field: Field, place: Path, values: Mapping[Path, pa.Array], orders: pa.Array) -> pa.Array:
    """Return the column of a record, null without a sequence."""
    data_type = to_arrow(field.type)
    if place in values:
        return values[place].cast(data_type)
    if not isinstance(field.type, StructType):
        return pa.nulls(len(orders), data_type)
    inner = [_to_record(each, (*place, each.name), values, orders) for each in field.type]
    return pa.StructArray.from_arrays(inner, fields=list(data_type), mask=orders.is_null())
