"""History, decided in this process with Arrow: which events of a key are versions of its row, and until when.

An event of a key is a record, a row of the table, or a deletion that the table remembers. If several events of a key
have the same sequence, one of them counts. Unless it deletes, it is a version that is valid until the next event of
its key. `widen.changes.keyed_frames` does the same for frames that Arrow cannot compare or write as Spark does.

Source: docs/guide/keys.md#history
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.key_columns import split_sequences, values_of_order
from widen.changes.keyed_files import NewRows, Places, count_true
from widen.errors import SequenceRepeated
from widen.evolution.key_rules import KeyCounts, KeyRules, find_order, find_places, format_paths
from widen.files.arrow_types import count_up, one_array, to_arrow
from widen.files.data_reader import FileScan
from widen.json.field_rules import IS_CURRENT, VALID_FROM, VALID_TO
from widen.model.column_path import Path
from widen.model.types import BOOLEAN, Field, StructType
from widen.schema.source_metadata import source_key

_BATCH, _TABLE, _REMEMBERED = range(3)


@dataclass(frozen=True, slots=True)
class Events:
    """What is known of the keys of a batch: its records, then the rows of the table, then remembered deletions.

    Args:
        key: The number of the key of each event.
        order: When it is, as a number.
        is_delete: Whether it deletes.
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
        removed: Which rows of the table are removed.
        gone: The records that delete, by their numbers.
    """

    counts: KeyCounts
    rows: pa.Array
    starts: pa.Array
    ends: pa.Array
    removed: pa.Array
    gone: pa.Array


def number_orders(parts: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the sorted distinct values of several arrays, and the index of each value among them."""
    whole = pa.concat_arrays(parts)
    distinct = pc.unique(whole)
    distinct = distinct.take(pc.sort_indices(distinct))
    return distinct, pc.index_in(whole, value_set=distinct).cast(pa.int64())


RankContents = Callable[[pa.Array, pa.Array], "pa.Array | None"]
"""Ranks events by their contents, given their indexes and the numbers of their groups (one key and sequence each)."""


def order_events(events: Events, rank_contents: RankContents, rules: KeyRules) -> pa.Table | None:
    """Sort events by key and sequence; among equal ones the event that counts comes first.

    Args:
        rank_contents: Compares records and rows with the same key and sequence. Returns None if there are too many.

    Returns:
        None if only Spark can compare the contents of so many.
    """
    ordered = _order(events)
    ties = _find_ties(ordered)
    if len(ties):
        ranks = rank_contents(ties["event"], ties["moment"])
        if ranks is None:
            return None
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


HashTracked = Callable[[pa.Array], pa.Array]
"""Returns a hash of the tracked fields of events, given their numbers."""


def decide_versions(
    events: Events, ordered: pa.Table, times: RowTimes, hash_tracked: HashTracked | None = None
) -> Versions:
    """Return what the records among some events do.

    Args:
        ordered: What `order_events` returns.
        hash_tracked: None if every event is a version.
    """
    first_row = events.sides[_BATCH]
    winners = ordered.filter(ordered["is_first"])
    key, order, side, event = (one_array(winners[name]) for name in ("key", "order", "side", "event"))
    is_delete, has_next = pc.equal(one_array(winners["is_delete"]), 1), pc.equal(key[1:], key[:-1])
    ends = pa.concat_arrays([pc.if_else(has_next, order[1:], pa.scalar(None, pa.int64())), pa.nulls(1, pa.int64())])
    starts = order
    if hash_tracked is not None:
        is_pair = pc.and_(has_next, pc.invert(pc.or_(is_delete[1:], is_delete[:-1])))
        goes_on = _find_updates(event, is_pair, hash_tracked)
        starts = _first_of_runs(order, goes_on)
        # An event whose version the next one updates stays as a row that is never valid.
        is_updated = pa.concat_arrays([goes_on[1:], pa.array([False])])
        starts, ends = pc.if_else(is_updated, order, starts), pc.if_else(is_updated, order, ends)
    was_version = pa.concat_arrays([pa.array([False]), pc.and_(has_next, pc.invert(is_delete[:-1]))])
    is_batch, is_version = pc.equal(side, _BATCH), pc.invert(is_delete)
    # A row of the table stays as it is if it still ends when it did.
    rows = pc.subtract(event.cast(pa.int64()), first_row)
    rows = pc.if_else(pc.equal(side, _TABLE), rows, pa.scalar(None, pa.int64()))
    was_open, was_end = times.is_open.take(rows), times.until.cast(pa.int64()).take(rows)
    stays = pc.if_else(was_open, ends.is_null(), pc.fill_null(pc.equal(was_end, ends), False))
    if times.since is not None:
        stays = pc.and_(stays, pc.equal(times.since.cast(pa.int64()).take(rows), starts))
    stays = pc.fill_null(stays, False)
    is_written = pc.and_(is_version, pc.invert(stays))
    kept = rows.filter(stays)
    of_table = events.key.slice(first_row, events.sides[_TABLE])
    had_row = pc.is_in(key, value_set=pc.unique(of_table))
    of_versions = key.filter(is_version)
    after = pa.concat_arrays([of_versions, pa.nulls(1, pa.int64())])[1:]
    is_newest = pc.fill_null(pc.not_equal(of_versions, after), True)
    is_insert = pc.and_(is_batch.filter(is_version), pc.and_(is_newest, pc.invert(had_row.filter(is_version))))
    inserted, deletes = count_true(is_insert), pc.and_(is_batch, is_delete)
    deleted = count_true(pc.and_(deletes, was_version))
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
        pc.invert(pc.is_in(count_up(events.sides[_TABLE]), value_set=kept)),
        event.filter(deletes),
    )


def _find_updates(event: pa.Array, is_pair: pa.Array, hash_tracked: HashTracked) -> pa.Array:
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
    words = hash_tracked(asked)
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
    """Versions of rows with their validity.

    Args:
        start: When each version starts, as returned by `widen.changes.key_columns.OrderColumns.comparable`.
        end: When each version ends; null for the newest version of a key.
        schema: The columns of the table.
    """

    places: Places
    start: pa.Array
    end: pa.Array
    schema: StructType
    rules: KeyRules

    def to_new_rows(self, scan: FileScan) -> NewRows:
        """Return how the rows are read.

        Args:
            scan: Reads every column.
        """
        return NewRows(len(self.start), partial(self._read, scan))

    def _read(self, scan: FileScan) -> Iterator[pa.Table]:
        places = self.places
        table = {"file": places.file, "position": places.position, "start": self.start, "end": self.end}
        ordered = pa.table(table).sort_by([("file", "ascending"), ("position", "ascending")])
        (rows,) = ordered.combine_chunks().to_batches()
        runs, first = pc.run_end_encode(rows["file"]), 0
        for number, last in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            own = rows.slice(first, last - first)
            first = last
            for positions, found in scan.read_located(places.adds[number]):
                at = pc.index_in(positions, value_set=own["position"])
                if at.null_count < len(at):
                    chosen = own.take(at.drop_null())
                    yield self._with_times(found.filter(at.is_valid()), chosen["start"], chosen["end"])

    def _with_times(self, rows: pa.Table, start: pa.Array, end: pa.Array) -> pa.Table:
        values = columns_of_order(self.schema, self.rules.times(VALID_FROM), start)
        values |= columns_of_order(self.schema, self.rules.times(VALID_TO), end)
        flags = [field.name for field in self.schema if source_key(field) == IS_CURRENT and field.type == BOOLEAN]
        values |= {name: end.is_null() for name in flags[:1]}
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
