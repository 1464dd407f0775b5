"""What the records of a batch do to the rows of their keys: decided with Arrow, for all keys or for some.

The records and the rows of the table are tables with their keys, their sequences and where they are. Their contents are
only read where they decide, or where rows are made of them.

Source: docs/guide/keys.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.history import Events, RowTimes, VersionRows, decide_versions, number_orders, order_events
from widen.changes.key_columns import KeyColumns, OrderColumns, join_texts
from widen.changes.keyed_files import (
    Contents,
    NewRows,
    Places,
    TooLarge,
    are_same,
    content_texts,
    count_true,
    hash_rows,
)
from widen.changes.partial_records import PartialRecords, is_named
from widen.changes.tracked_fields import TrackedFields
from widen.errors import KeyRepeated
from widen.evolution.key_rules import KEY_TEXT, NUMBER, TEXT, KeyCounts, KeyRules, content_fields
from widen.files.arrow_types import count_up, one_array, to_arrow
from widen.files.data_reader import FileScan
from widen.files.row_tests import RowTest
from widen.json.envelope import UNCHANGED
from widen.json.field_rules import VERSION_FIELDS
from widen.limits import BUCKET_BYTES, KEYED_BYTES
from widen.model.types import BYTE, STRING, DataType, Field, StructType
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import role_of, source_key
from widen.spark.engine import Unsupported

_BATCH, _TABLE, _REMEMBERED = range(3)


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """Which columns hold the keys and the sequence, and how files are read. Picklable.

    Args:
        scan: Reads the columns of the keys, the sequence, the ends of versions, and the condition.
        order: None if the last batch wins.
        until: The columns that say when versions end; None without history.
        deletes: Whether records delete; None if that is known by their positions.
        content: Reads every column that may distinguish two records with the same key and sequence.
        unchanged: The column that names the fields that keep their values; None if no record names any.
        since: The columns that say when versions start; None if every record is a version.
        tracked: The fields whose changes open a version, and how they are read, likewise.
        condition: The condition of deletions that only Spark evaluates; None without one.
    """

    schema: StructType
    rules: KeyRules
    scan: FileScan
    keys: tuple[KeyColumns, ...]
    order: OrderColumns | None
    until: OrderColumns | None
    deletes: RowTest | None
    content: FileScan
    whole: FileScan
    unchanged: Field | None = None
    since: OrderColumns | None = None
    tracked: tuple[TrackedFields, FileScan] | None = None
    defaults: Mapping[str, pa.Array] | None = None
    condition: str | None = None

    @property
    def order_type(self) -> DataType:
        """The type of the sequences that `sequence` returns."""
        return BYTE if self.order is None else self.order.data_type

    @property
    def times(self) -> dict[str, OrderColumns]:
        """The columns with the times of versions, by their names in `row_columns`."""
        return {name: times for name, times in (("until", self.until), ("since", self.since)) if times is not None}

    @property
    def content_columns(self) -> tuple[Field, ...]:
        return content_fields(self.schema, self.rules)

    def sequence(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Return the sequence of rows; without one, all are equal."""
        return pa.repeat(pa.scalar(0, pa.int8()), len(rows)) if self.order is None else self.order.read(rows)

    def record_columns(self, number: int, positions: pa.Array, rows: pa.Table, is_delete: pa.Array) -> pa.Table:
        """Return what the decision needs of records.

        Args:
            is_delete: Whether they delete, if columns do not say so; see `find_deleting`.
        """
        if self.deletes is not None:
            is_delete = one_array(pc.fill_null(self.deletes(rows), False))
        own = {"s": self.sequence(rows), "d": is_delete, "u": self._unchanged_names(rows)}
        return pa.table({**self._place(number, positions), **self.keys_of(rows), **own})

    def row_columns(self, number: int, positions: pa.Array, rows: pa.Table) -> pa.Table:
        """Return what the decision needs of rows of the table, apart from their keys."""
        times = {name: each.read(rows) for name, each in self.times.items()}
        return pa.table(
            {**self._place(number, positions), "s": self.sequence(rows), **times, "u": self._unchanged_names(rows)}
        )

    def keys_of(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the columns of the keys of rows."""
        return {f"k{at}": key.read(rows) for at, key in enumerate(self.keys)}

    def _place(self, number: int, positions: pa.Array) -> dict[str, pa.Array]:
        return {"file": pa.repeat(pa.scalar(number, pa.int32()), len(positions)), "position": positions}

    def _unchanged_names(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        if self.unchanged is None:
            return pa.nulls(len(rows), pa.list_(pa.string()))
        return rows.column(self.unchanged.name).cast(pa.list_(pa.string()))

    def key_texts(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Return keys as the list of deleted keys has them."""
        return join_texts([key.texts(column) for key, column in zip(self.keys, keys, strict=True)])

    @property
    def row_types(self) -> dict[str, pa.DataType]:
        """The types of the columns that `row_columns` returns."""
        types = {"file": pa.int32(), "position": pa.uint64(), "s": to_arrow(self.order_type)}
        types |= {name: to_arrow(each.data_type) for name, each in self.times.items()}
        return {**types, "u": pa.list_(pa.string())}


Deleting: TypeAlias = Mapping[str, BitMap64 | None]
"""The files of a batch with records that delete, by path: their positions, or None for all of them."""


def ensure_keyed(records: pa.Table, keys: Sequence[pa.Array]) -> None:
    """Check that all records have a key and a sequence: the ingestion quarantines others.

    Raises:
        Unsupported: some do not.
    """
    if any(each.null_count for each in (*keys, one_array(records["s"]))):
        raise Unsupported("records have no key or no sequence")


def find_deleting(deleting: Deleting, path: str, positions: pa.Array) -> pa.Array:
    """Return which records of a file delete."""
    marked = deleting.get(path)
    if marked is None:
        return pa.repeat(pa.scalar(path in deleting), len(positions))
    return pc.is_in(positions, value_set=pa.array(marked.to_array(), pa.uint64()))


# Keys as numbers.


@dataclass(frozen=True, slots=True)
class KeyCodes:
    """Assigns a number to each key of the batch, so that keys in files can be looked up column by column.

    Args:
        pairs: For each column after the first, the distinct pairs of the number so far and the number of its value.
    """

    values: tuple[pa.Array, ...]
    pairs: tuple[pa.Array, ...] = ()

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> tuple[KeyCodes, pa.Array]:
        """Return the lookup for other keys, and the numbers of the given ones."""
        each = [column.dictionary_encode() for column in columns]
        codes, pairs = each[0].indices, []
        for other in each[1:]:
            pair = _pair(codes, other.indices, len(other.dictionary)).dictionary_encode()
            pairs.append(pair.dictionary)
            codes = pair.indices
        return KeyCodes(tuple(other.dictionary for other in each), tuple(pairs)), codes.cast(pa.int64())

    @property
    def count(self) -> int:
        """The number of keys."""
        return len(self.pairs[-1] if self.pairs else self.values[0])

    def find(self, columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
        """Return the number of each key, null for a key that the batch does not have."""
        codes = pc.index_in(columns[0], value_set=self.values[0], skip_nulls=True)
        for column, distinct, pairs in zip(columns[1:], self.values[1:], self.pairs, strict=True):
            pair = _pair(codes, pc.index_in(column, value_set=distinct, skip_nulls=True), len(distinct))
            codes = pc.index_in(pair, value_set=pairs, skip_nulls=True)
        return codes.cast(pa.int64())


def _pair(left: pa.Array, right: pa.Array, size: int) -> pa.Array:
    return pc.add(pc.multiply(left.cast(pa.int64()), size), right.cast(pa.int64()))


# The decision.


@dataclass(frozen=True, slots=True)
class KeyDecision:
    """What some records do to the rows of their keys.

    Args:
        lost: For each record, whether it does not become a row as it is.
        removed: For each row, whether it is replaced or deleted.
        deletions: The keys that the records delete, as `widen.changes.deleted_keys` lists them; None without any.
        new: The rows that partial records lead to, or the versions of a row; None if there are no such rows.
    """

    counts: KeyCounts
    lost: pa.Array
    removed: pa.Array
    deletions: pa.Table | None
    new: NewRows | None = None


class Decider:
    """Decides what the records of some keys do, as Arrow columns.

    Args:
        codes: The number of each record's key, from 0 on.
        listed: The deletions of the keys that the table remembers, and perhaps of others.
    """

    def __init__(
        self,
        plan: KeyPlan,
        records: pa.Table,
        codes: tuple[int, pa.Array],
        rows: pa.Table,
        listed: pa.Table,
        contents: Contents,
    ) -> None:
        self._plan, self._listed, self._contents = plan, listed, contents
        self._count, self._code = codes
        self._file, self._position, self._sequence, self._is_delete, self._names = (
            one_array(records[name]) for name in ("file", "position", "s", "d", "u")
        )
        self._keys = tuple(one_array(records[f"k{at}"]) for at in range(len(plan.keys)))
        self._rows = {name: one_array(rows[name]) for name in rows.column_names}

    def decide(self) -> KeyDecision:
        """Return what the records do.

        Raises:
            TooLarge: this process cannot hold what decides.
        """
        rules = self._plan.rules
        if rules.history:
            return self._versions()
        if not rules.sequence_by:
            return self._last_batch()
        if rules.is_strict:
            # A row merged from partial records is not a record itself, so compare only records of the same batch.
            self._ordered(has_rows=not rules.keeps_missing, rules=rules)
        return self._merge() if self._is_partial else self._newest_records()

    @cached_property
    def _is_partial(self) -> bool:
        """Whether records keep values of rows."""
        return self._plan.rules.keeps_missing or self._names.null_count < len(self._names)

    # One row for each key: its newest record.

    def _newest_records(self) -> KeyDecision:
        top = self._newest(self._code, self._count)
        # One record for each key, in the order of the keys.
        newest = top.take(pc.sort_indices(self._code.take(top)))
        sequence, is_delete = self._sequence.take(newest), self._is_delete.take(newest)
        old, is_known = self._old_order(sequence.type)
        is_tie = pc.and_(pc.fill_null(pc.equal(sequence, old), False), pc.invert(is_delete))  # a deletion wins
        if count_true(is_tie):
            is_tie = self._lose(newest, is_tie, old)
        is_older = pc.fill_null(pc.less(sequence, old), False)
        late = pc.or_(pc.or_(is_older, is_tie), self._deleted(newest, sequence))
        return self._outcome(newest, is_delete, is_known, late)

    def _newest(self, code: pa.Array, count: int) -> pa.Array:
        """Return the numbers of the records that are the newest of their key."""
        rows = count_up(len(code), 0, pa.uint64())
        if count == len(code):
            return rows
        order = pa.table({"code": code, "s": self._sequence, "row": rows})
        order = order.sort_by([("code", "ascending"), ("s", "descending")])
        codes, sequence, row = (one_array(order[name]) for name in ("code", "s", "row"))
        is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(codes[1:], codes[:-1])])
        is_equal = pc.and_(pc.equal(sequence[1:], sequence[:-1]), pc.equal(codes[1:], codes[:-1]))
        is_tie = pc.and_(is_equal, is_first[:-1])
        # Each record is compared with the next one, which also shows that all of them equal the first.
        if not pc.any(is_tie).as_py() or self._are_repeated(row, is_equal):
            return row.filter(is_first)
        # The records with the sequence of the first one of their key, where that is not alone.
        starts = pc.or_(is_first, pa.concat_arrays([pa.array([True]), pc.invert(is_equal)]))
        run = pc.cumulative_sum(starts.cast(pa.int64()))
        is_asked = pc.is_in(run, value_set=run.filter(pa.concat_arrays([is_tie, pa.array([False])])))
        winners = self._winners(codes.filter(is_asked), row.filter(is_asked))
        is_replaced = pc.is_in(codes.filter(is_first), value_set=one_array(winners["code"]))
        return pc.replace_with_mask(row.filter(is_first), is_replaced, one_array(winners["row"]))

    def _winners(self, code: pa.Array, row: pa.Array) -> pa.Table:
        """Return the record of each key that wins by its contents, a deletion first."""
        contents = self._texts(self._records_at(row).read(self._plan.content))
        deletes = self._is_delete.take(row).cast(pa.int8())
        records = pa.table({"code": code, "deletes": deletes, "content": contents, "row": row})
        order = [("code", "ascending"), ("deletes", "descending"), ("content", "descending")]
        records = records.sort_by(order).combine_chunks()
        codes = one_array(records["code"])
        return records.filter(pa.concat_arrays([pa.array([True]), pc.not_equal(codes[1:], codes[:-1])]))

    def _are_repeated(self, row: pa.Array, is_equal: pa.Array) -> bool:
        """For each requested record, return whether it is known to equal the next one."""
        one, other = row[:-1].filter(is_equal), row[1:].filter(is_equal)
        if not self._is_delete.take(one).equals(self._is_delete.take(other)):
            return False
        content = self._plan.content
        return are_same(self._records_at(one).read(content), self._records_at(other).read(content))

    def _lose(self, newest: pa.Array, is_tie: pa.Array, old: pa.Array) -> pa.Array:
        """Return which keys have a row at least as large as the newest record with its sequence."""
        code = self._rows["code"]
        is_asked = pc.and_(is_tie.take(code), pc.fill_null(pc.equal(self._row_sequence(old), old.take(code)), False))
        code, content = code.filter(is_asked), self._plan.content
        records = self._records_at(newest.take(code)).read(content)
        rows = self._rows_at(pc.indices_nonzero(is_asked)).read(content)
        if are_same(records, rows):
            return is_tie
        is_late = pc.less_equal(self._texts(records), self._texts(rows))
        return pc.is_in(count_up(self._count), value_set=pc.unique(code.filter(is_late)))

    def _old_order(self, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Return each key's newest sequence in the table (null if it has no sequence), and whether the key exists."""
        codes, sequence = self._rows["code"], self._rows["s"]
        distinct = pc.unique(codes)
        if len(distinct) < len(codes):  # a table that was not written by key may have several rows of one
            order = pa.table({"code": codes, "s": sequence}).sort_by([("code", "ascending"), ("s", "descending")])
            codes, sequence = one_array(order["code"]), one_array(order["s"])
            is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(codes[1:], codes[:-1])])
            # Nulls come last, so the first one is the newest.
            codes, sequence = codes.filter(is_first), sequence.filter(is_first)
        at = pc.index_in(count_up(self._count), value_set=codes)
        return sequence.cast(data_type).take(at), at.is_valid()

    def _row_sequence(self, like: pa.Array) -> pa.Array:
        return self._rows["s"].cast(like.type)

    def _deleted(self, newest: pa.Array, sequence: pa.Array) -> pa.Array:
        """Return which keys were deleted at the time of their newest record, or later."""
        if not len(self._listed):
            return pa.repeat(pa.scalar(False), len(newest))
        ours = self._to_list(newest, sequence)
        at = one_array(pc.index_in(ours[KEY_TEXT], value_set=one_array(self._listed[KEY_TEXT])))
        column = TEXT if self._plan.order_type == STRING else NUMBER
        theirs, own = one_array(self._listed[column]).take(at), one_array(ours[column])
        # A deletion of another kind of sequence, such as a text where there are numbers, is older.
        return pc.fill_null(pc.less_equal(own, theirs), False)

    def _outcome(
        self,
        newest: pa.Array,
        is_delete: pa.Array,
        is_known: pa.Array,
        late: pa.Array,
        merged: tuple[pa.Array, NewRows] | None = None,
    ) -> KeyDecision:
        """Return what the newest record of each key does unless it is late.

        Args:
            merged: The keys whose rows are made of a record and a row, and these rows.
        """
        wins = pc.invert(late)
        writes, deletes = pc.and_(wins, pc.invert(is_delete)), pc.and_(wins, is_delete)
        counts = _count_actions(len(self._code), writes, deletes, is_known)
        as_is = writes if merged is None else pc.and_(writes, pc.invert(merged[0]))
        is_written = pc.is_in(count_up(len(self._code), 0, pa.uint64()), value_set=newest.filter(as_is))
        has_order = self._plan.order is not None
        gone = self._to_list(newest.filter(deletes)) if has_order and count_true(deletes) else None
        removed = pc.and_(wins, is_known).take(self._rows["code"])
        return KeyDecision(counts, pc.invert(is_written), removed, gone, None if merged is None else merged[1])

    # Without a sequence: the records of the last batch win.

    def _last_batch(self) -> KeyDecision:
        """Return what a batch without a sequence does: its records win, unless they are the same as their rows."""
        code, content, every = self._code, self._plan.content, count_up(len(self._code), 0, pa.uint64())
        newest = every.take(pc.sort_indices(code)) if self._count == len(code) else self._only_records(every)
        rows = self._first_rows
        is_known, is_delete = rows.is_valid(), self._is_delete.take(newest)
        is_compared = pc.and_(is_known, pc.invert(is_delete))
        late = pa.repeat(pa.scalar(False), self._count)
        if count_true(is_compared):
            before = self._rows_at(rows.filter(is_compared)).read(content)
            after = self._records_at(newest.filter(is_compared)).read(content)
            late = pc.replace_with_mask(late, is_compared, pc.equal(hash_rows(before), hash_rows(after)))
        merged = None
        writes = pc.and_(pc.invert(late), pc.invert(is_delete))
        if self._is_partial and count_true(writes):
            is_merged = pc.and_(writes, is_known)
            if not self._plan.rules.keeps_missing:
                is_merged = pc.and_(writes, self._names.take(newest).is_valid())
            elif self._plan.defaults:
                is_merged = writes
            own = newest.filter(is_merged)
            merged = is_merged, NewRows.of(self._merged(own, count_up(len(own)), rows.filter(is_merged)))
        return self._outcome(newest, is_delete, is_known, late, merged)

    def _only_records(self, every: pa.Array) -> pa.Array:
        """Return a record of each key.

        Raises:
            KeyRepeated: a key has different ones.
        """
        # Deletions of a key may differ: the rest of their records counts, too.
        hashes = hash_rows(self._records_at(every).read(self._plan.content))
        hashes = pc.if_else(self._is_delete, pc.bit_wise_not(hashes), hashes)
        records = pa.table({"code": self._code, "hash": hashes, "row": every}).group_by("code")
        records = records.aggregate([("hash", "count_distinct"), ("row", "min")]).sort_by("code")
        repeated = count_true(pc.greater(records["hash_count_distinct"], 1))
        if repeated:
            raise KeyRepeated(count=repeated)
        return one_array(records["row_min"])

    @cached_property
    def _first_rows(self) -> pa.Array:
        """A row of each key by its number among all; null for keys without one."""
        code = self._rows["code"]
        return _last_of(code, count_up(len(code)), self._count)

    # Partial records: those that are newer than the row of their key are put on top of it.

    def _merge(self) -> KeyDecision:
        """Put the records that are newer than the row of their key on top of it."""
        count, first_row = self._count, len(self._code)
        events, ordered, _ = self._ordered()
        # A deletion is the last event of its time; a row comes after a record with the same content.
        steps = [(name, "ascending") for name in ("key", "order", "is_delete", "content", "side")]
        ordered = ordered.sort_by(steps).combine_chunks()
        key, side, event = (one_array(ordered[name]) for name in ("key", "side", "event"))
        is_batch, is_delete = pc.equal(side, _BATCH), pc.equal(one_array(ordered["is_delete"]), 1)
        is_idle = self._find_idle(events)
        is_idle = pc.and_(is_batch, pc.fill_null(is_idle.take(_within(event, first_row)), False))
        columns = [one_array(ordered[name]) for name, _ in steps]
        is_twice = reduce(pc.and_, (pc.equal(column[1:], column[:-1]) for column in columns))
        counts_once = pc.and_(is_batch, pc.invert(pc.or_(is_idle, pa.concat_arrays([pa.array([False]), is_twice]))))
        at = count_up(len(key))
        reset = _last_of(key, at, count, pc.or_(pc.equal(side, _TABLE), is_delete))
        known = pc.fill_null(_last_of(key, at, count, pc.invert(is_batch)), -1)
        last = _last_of(key, at, count, counts_once)
        wins = pc.fill_null(pc.greater(last, known), False)
        deletes = pc.fill_null(is_delete.take(last), False)
        writes, gone = pc.and_(wins, pc.invert(deletes)), pc.and_(wins, deletes)
        # The records that lead to a row are those after the last deletion of its key, and after its row.
        is_after = pc.fill_null(pc.greater(at, reset.take(key)), True)
        leads = pc.and_(pc.and_(counts_once, pc.invert(is_delete)), pc.and_(is_after, writes.take(key)))
        has_row = pc.fill_null(pc.equal(side.take(reset), _TABLE), False)
        newest = event.take(pc.if_else(writes, last, None))
        as_is = pc.and_(writes, self._become_rows(newest, key.filter(leads), has_row))
        is_known = pc.is_in(count_up(count), value_set=pc.unique(self._rows["code"]))
        counts = _count_actions(first_row, writes, gone, is_known)
        if self._plan.rules.keeps_missing:
            merged = count_true(leads) - count_true(writes)
            counts = replace(counts, merged=merged, late=counts.late - merged)
        is_kept = pc.is_in(count_up(first_row, 0, pa.uint64()), value_set=newest.filter(as_is))
        deleted = self._to_list(event.take(last.filter(gone))) if count_true(gone) else None
        is_merged, new = pc.and_(writes, pc.invert(as_is)), None
        if count_true(is_merged):
            is_part = pc.and_(leads, is_merged.take(key))
            rows = pc.subtract(event.take(pc.if_else(has_row, reset, None)).cast(pa.int64()), first_row)
            number = pc.index_in(key.filter(is_part), value_set=pc.indices_nonzero(is_merged).cast(pa.int64()))
            new = NewRows.of(self._merged(event.filter(is_part), number, rows.filter(is_merged)))
        removed = pc.and_(wins, is_known).take(self._rows["code"])
        return KeyDecision(counts, pc.invert(is_kept), removed, deleted, new)

    def _become_rows(self, newest: pa.Array, leads: pa.Array, has_row: pa.Array) -> pa.Array:
        """Return the keys whose newest record becomes the row as it is.

        Args:
            leads: The keys of the records that lead to rows.
        """
        is_alone = pc.and_(pc.equal(_count_by(leads, self._count), 1), pc.invert(has_row))
        if self._plan.rules.keeps_missing:
            return pc.and_(is_alone, not self._plan.defaults)
        return pc.or_(is_alone, pc.fill_null(self._names.take(newest).is_null(), False))

    def _find_idle(self, events: Events) -> pa.Array:
        """Return which records have the sequence of the row of their key and leave its content as it is."""
        first_row, code = len(self._code), self._rows["code"]
        orders = events.order.slice(first_row, len(code))
        newest = pc.sort_indices(pa.table({"code": code, "s": orders}), [("code", "ascending"), ("s", "ascending")])
        rows = newest.take(_last_of(code.take(newest), count_up(len(newest)), self._count))
        is_asked = pc.fill_null(pc.equal(events.order.slice(0, first_row), orders.take(rows).take(self._code)), False)
        asked = pc.indices_nonzero(pc.and_(is_asked, pc.invert(self._is_delete)))
        if not len(asked):
            return pa.repeat(pa.scalar(False), first_row)
        own, names = rows.take(self._code.take(asked)), [field.name for field in self._plan.content_columns]
        merged = self._merged(asked, count_up(len(asked)), own)
        before = self._rows_at(own).read(self._plan.whole)
        is_same = pc.equal(hash_rows(before.select(names)), hash_rows(merged.select(names)))
        return pc.is_in(count_up(first_row, 0, pa.uint64()), value_set=asked.filter(is_same).cast(pa.uint64()))

    def _merged(self, records: pa.Array, number: pa.Array, rows: pa.Array) -> pa.Table:
        """Return the rows that records lead to.

        Args:
            records: From the oldest to the newest for each row.
            rows: The row of the table below the records of each row; null for a new row.
        """
        scan, unchanged = self._plan.whole, None if self._plan.rules.keeps_missing else self._plan.unchanged
        known = pc.unique(rows.drop_null())
        below = self._rows_at(known).read(scan).take(pc.index_in(rows, value_set=known, skip_nulls=True))
        partial_records = PartialRecords(self._plan.schema, unchanged, self._plan.defaults or {})
        own = self._records_at(records).read(scan)
        return partial_records.put_on_rows(below.combine_chunks(), own, number, rows.is_null())

    # History: every version of a row is kept.

    def _versions(self) -> KeyDecision:
        """Return what a batch does where every version of a row is kept."""
        plan = self._plan
        events, ordered, distinct = self._ordered(rules=plan.rules)
        until, is_open = self._find_times("until", distinct)
        start = None if plan.tracked is None else self._find_times("since", distinct)[0]
        tracked = None if plan.tracked is None else partial(self._hash_tracked, *plan.tracked)
        times = RowTimes(until, is_open, start)
        versions = decide_versions(events, ordered, times, tracked, self._kept_fields)
        new = None
        if len(versions.rows):
            starts = distinct.take(pc.if_else(pc.greater_equal(versions.starts, 0), versions.starts, None))
            rows = VersionRows(starts, distinct.take(versions.ends), plan.schema, plan.rules)
            whole = self._read_kept(versions.rows, versions.kept, plan.whole, BUCKET_BYTES)
            new = NewRows.of(rows.with_times(whole))
        gone = self._to_list(versions.gone) if len(versions.gone) else None
        everything = pa.repeat(pa.scalar(True), len(self._code))
        return KeyDecision(versions.counts, everything, versions.removed, gone, new)

    def _find_times(self, name: str, distinct: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return the times of the rows of the table by their numbers among sequences, and which rows have none.

        No event has a time of another kind, such as a text where there are numbers.
        """
        columns, count = self._plan.times.get(name), len(self._rows["s"])
        if columns is None:
            return pa.nulls(count, pa.int64()), pa.repeat(pa.scalar(True), count)
        times = columns.comparable(self._rows[name])
        if times.type != distinct.type:
            return pa.nulls(count, pa.int64()), times.is_null()
        return pc.index_in(times, value_set=distinct, skip_nulls=True), times.is_null()

    @cached_property
    def _kept_fields(self) -> dict[str, pa.Array]:
        """The columns whose values versions keep of the version before, and which records and rows do."""
        names = pa.concat_arrays([self._names, self._rows["u"]])
        if names.null_count == len(names):
            return {}
        fields = {
            each.name: is_named(names, source_key(each))
            for each in self._plan.schema
            if role_of(each) is None and source_key(each) not in (UNCHANGED, *VERSION_FIELDS)
        }
        return {name: flags for name, flags in fields.items() if count_true(flags)}

    def _read_kept(
        self, events: pa.Array, kept: Mapping[str, pa.Array], scan: FileScan, most_bytes: int = KEYED_BYTES
    ) -> pa.Table:
        """Return the contents of events, with the values that they keep of others.

        Args:
            kept: For each event, the event that has the value of a column; null for itself.
        """
        if not kept:
            return self._events_at(events).read(scan, most_bytes)
        kept = {name: pc.coalesce(each, events) for name, each in kept.items()}
        needed = pc.unique(pa.concat_arrays([events, *kept.values()]))
        rows = self._events_at(needed).read(scan, most_bytes)
        columns = [
            one_array(rows[name]).take(pc.index_in(kept.get(name, events), value_set=needed))
            for name in rows.column_names
        ]
        return pa.Table.from_arrays(columns, schema=rows.schema)

    def _hash_tracked(
        self, tracked: TrackedFields, scan: FileScan, events: pa.Array, kept: Mapping[str, pa.Array]
    ) -> pa.Array:
        if not tracked.schema.fields:  # no record has had one of the fields yet
            return pa.repeat(pa.scalar(0), len(events))
        return tracked.hash(self._read_kept(events, kept, scan))

    # Events: records, rows of the table, and deletions that the table remembers.

    def _ordered(self, *, has_rows: bool = True, rules: KeyRules | None = None) -> tuple[Events, pa.Table, pa.Array]:
        """Return the events of the keys, sorted, and the distinct sequences; events store an index into them.

        Args:
            rules: They may be strict; by default no tie is refused.
        """
        plan, remembered = self._plan, self._remembered
        assert plan.order is not None
        rows = {name: each if has_rows else each.slice(0, 0) for name, each in self._rows.items()}
        orders = [plan.order.comparable(each) for each in (self._sequence, rows["s"])]
        distinct, ranks = number_orders([*orders, one_array(remembered["order"])])
        sides = (len(self._code), len(rows["s"]), len(remembered))
        events = Events(
            pa.concat_arrays([self._code, rows["code"], one_array(remembered["code"])]),
            ranks,
            pa.concat_arrays([self._is_delete, *(pa.repeat(pa.scalar(at == 2), sides[at]) for at in (1, 2))]),
            sides,
        )
        ordered = order_events(events, self._rank_contents, rules or replace(plan.rules, is_strict=False))
        return events, ordered, distinct

    def _rank_contents(self, events: pa.Array, moment: pa.Array) -> pa.Array:
        """Rank events with the same sequence by their contents."""
        rows = self._events_at(events).read(self._plan.content)
        hashes = hash_rows(rows)
        moments = (
            pa.table({"moment": moment, "hash": hashes}).group_by("moment").aggregate([("hash", "count_distinct")])
        )
        several = moments.filter(pc.greater(moments["hash_count_distinct"], 1))
        is_asked, ranks = pc.is_in(moment, value_set=one_array(several["moment"])), pa.repeat(pa.scalar(0), len(rows))
        if not len(several):
            return ranks
        return pc.replace_with_mask(ranks, is_asked, number_orders([self._texts(rows.filter(is_asked))])[1])

    @cached_property
    def _remembered(self) -> pa.Table:
        """The remembered deletions of the keys of the batch."""
        order = self._plan.order
        assert order is not None
        empty = order.comparable(self._sequence.slice(0, 0))
        if not len(self._listed):
            return pa.table({"code": pa.array([], pa.int64()), "order": empty})
        first = _last_of(self._code, count_up(len(self._code)), self._count)
        known = one_array(pc.index_in(one_array(self._listed[KEY_TEXT]), value_set=self._key_texts(first)))
        # A deletion of another kind of sequence, such as a text where there are numbers, is older.
        orders = one_array(self._listed[TEXT if order.data_type == STRING else NUMBER]).filter(known.is_valid())
        return pa.table({"code": known.drop_null().cast(pa.int64()), "order": orders.cast(empty.type)})

    # Where records and rows are, and what is in them.

    def _records_at(self, records: pa.Array) -> Places:
        return Places(self._contents, self._file.take(records), self._position.take(records))

    def _rows_at(self, rows: pa.Array) -> Places:
        return Places(self._contents, self._rows["file"].take(rows), self._rows["position"].take(rows))

    def _events_at(self, events: pa.Array) -> Places:
        file = pa.concat_arrays([self._file, self._rows["file"]])
        position = pa.concat_arrays([self._position, self._rows["position"]])
        return Places(self._contents, file.take(events), position.take(events))

    def _texts(self, rows: pa.Table) -> pa.Array:
        if len(rows) > self._contents.most_texts:
            raise TooLarge("so many records have equal sequences")
        return content_texts(rows, self._plan.content_columns)

    def _to_list(self, records: pa.Array, sequence: pa.Array | None = None) -> pa.Table:
        """Return the keys of records with a sequence, in the form of the list of deleted keys."""
        sequence, order = self._sequence.take(records) if sequence is None else sequence, self._plan.order
        assert order is not None
        numbers, words = order.numbers(sequence), order.texts(sequence)
        return pa.table({KEY_TEXT: self._key_texts(records), NUMBER: numbers, TEXT: words})

    def _key_texts(self, records: pa.Array) -> pa.Array:
        return self._plan.key_texts([column.take(records) for column in self._keys])


def _count_actions(records: int, writes: pa.Array, deletes: pa.Array, is_known: pa.Array) -> KeyCounts:
    """Return the counts of a batch from what each key does; all other records are late."""
    is_new = pc.invert(is_known)
    pairs = ((writes, is_new), (writes, is_known), (deletes, is_known), (deletes, is_new))
    inserted, updated, deleted, unknown = counts = [count_true(pc.and_(*pair)) for pair in pairs]
    return KeyCounts(inserted, updated, deleted, unknown, records - sum(counts))


def _last_of(code: pa.Array, values: pa.Array, count: int, chosen: pa.Array | None = None) -> pa.Array:
    """Return the largest of some values for each number from 0 on; null for a number without one."""
    if chosen is not None:
        code, values = code.filter(chosen), values.filter(chosen)
    found = pa.table({"code": code, "value": values}).group_by("code").aggregate([("value", "max")])
    at = pc.index_in(count_up(count), value_set=one_array(found["code"]))
    return one_array(found["value_max"]).take(at)


def _count_by(code: pa.Array, count: int) -> pa.Array:
    """Return how often each number from 0 on is there."""
    found = pc.value_counts(code)
    at = pc.index_in(count_up(count), value_set=found.field("values"))
    return pc.fill_null(found.field("counts").take(at), 0)


def _within(numbers: pa.Array, count: int) -> pa.Array:
    """Return numbers below a count; null for others."""
    return pc.if_else(pc.less(numbers, count), numbers, pa.scalar(None, numbers.type))
