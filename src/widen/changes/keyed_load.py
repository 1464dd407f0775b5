"""Rows that change, decided in this process with Arrow: no Spark job, and only the keys of the table are read.

`widen.changes.key_expressions` takes what Arrow does not compare or write as Spark does, and gives the same rows.

Source: docs/guide/keys.md
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.deleted_keys import KeyLists
from widen.changes.history import Events, RowTimes, VersionRows, decide_versions, number_orders, order_events
from widen.changes.key_columns import EXACT_ORDERS, KeyColumns, KeyCondition, OrderColumns, join_texts
from widen.changes.keyed_files import (
    KeyedTable,
    NewRows,
    Places,
    are_same,
    content_texts,
    count_true,
    hash_rows,
    positions_by_file,
)
from widen.changes.overwrite import within_bounds
from widen.changes.tracked_fields import TrackedFields
from widen.errors import InvalidOption, KeyRepeated
from widen.evolution.key_rules import (
    KEY_TEXT,
    NUMBER,
    TEXT,
    KeyCounts,
    KeyRules,
    content_fields,
    find_places,
    unchanged_column,
)
from widen.files.arrow_types import count_up, one_array, to_arrow
from widen.files.data_reader import FileScan, NotLocal
from widen.files.predicates import bind_condition
from widen.files.row_tests import RowTest, plan_test
from widen.json.field_rules import VALID_FROM, VALID_TO
from widen.limits import KEYED_BYTES, KEYED_RECORDS
from widen.log.snapshot import Snapshot
from widen.model.types import (
    BYTE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    is_same_name,
)
from widen.protocol.actions import Add
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.column_metadata import find_default
from widen.protocol.data_skipping import And, Or, Predicate, UnknownPredicate, column_conditions
from widen.protocol.file_statistics import FileStatistics
from widen.schema.source_metadata import RESCUED, role_field, role_of, source_key
from widen.spark.engine import Session, start_tasks
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports

_FILES_PER_TASK = 8
_INTEGERS = frozenset({BYTE, SHORT, INTEGER, LONG})
_FOUND = "code bigint, file int, position bigint"


@dataclass(frozen=True, slots=True)
class LocalMerge:
    """What a batch does to the rows of a table.

    Args:
        losers: The positions of the records that do not become rows as they are, by the key of their file; files
            without such records are left out.
        removed: The positions of the rows of the table that are replaced or deleted, by the key of their file.
        deleted: The deleted keys with their order, as `widen.changes.deleted_keys` lists them.
        searched: Where in the table rows with the keys may be.
    """

    counts: KeyCounts
    losers: Mapping[str, BitMap64]
    removed: Mapping[str, BitMap64]
    deleted: pa.Table | None
    searched: Predicate
    new_rows: NewRows | None = None
    """The rows that partial records lead to, or the versions of a row; None if there are no such rows."""


def has_every_key(adds: Sequence[Add], view: Snapshot, rules: KeyRules) -> bool:
    """Return whether the statistics of the files of a batch say that every record has its key and its sequence."""
    mode = view.configuration.mapping
    for path in rules.fields:
        columns = find_places(view.schema, path)
        if len(columns) != 1:
            return False
        data_type, place = columns[0]
        if path in rules.sequence_by and data_type not in EXACT_ORDERS:
            return False  # not every value can be ordered
        physical = to_physical_path(view.schema, place, mode)
        if place[0] in view.partition_columns:
            if any(add.partition_values.get(physical[0]) is None for add in adds):
                return False
            continue
        if any(FileStatistics(add.stats).column(physical, data_type).nulls != 0 for add in adds):
            return False
    return True


def has_keyless(table: KeyedTable, adds: Sequence[Add], condition: KeyCondition) -> bool:
    """Return whether records may lack a key or a sequence, or cannot be read here."""
    if sum(add.size for add in adds) > KEYED_BYTES:
        return True
    names = {path[0] for path in condition.places}
    try:
        scan = table.scan(StructType(tuple(field for field in table.schema if field.name in names)))
        parts = (rows for add in adds for _, rows in scan.read_located(add))
        return any(condition.find_broken(rows).true_count for rows in parts)
    except (NotLocal, InvalidOption, pa.ArrowException):
        return True


def decide_here(
    spark: Session,
    table: KeyedTable,
    adds: Sequence[Add],
    records: int,
    rules: KeyRules,
    lists: KeyLists,
    deleting: Collection[str] = (),
) -> LocalMerge | None:
    """Return what a batch does; None if only Spark can decide that.

    Args:
        adds: The files of the batch.
        records: The number of its records.
        lists: The keys that were deleted.
        deleting: The paths of the files whose records delete rows; see `KeyRules.excluded`.
    """
    if records > KEYED_RECORDS:
        return None
    try:
        plan = _plan(table, rules)
        batch = None if plan is None else _read_batch(plan, table, adds, deleting)
        if plan is None or batch is None:
            return None
        decision = _Decision(spark, plan, batch, table, lists)
        # Only Spark decides which values a version keeps from the version before it.
        if rules.history and batch.unchanged is not None:
            return None
        if batch.unchanged is not None and (not rules.sequence_by or not can_keep(plan, table)):
            return None
        if not rules.sequence_by:
            return decision.last_batch()
        if batch.unchanged is not None and not (rules.keeps_missing or rules.history):
            if rules.is_strict and not decision.are_ordered():
                return None
            return decision.merge()
        if rules.history:
            return decision.versions()
        if rules.is_strict and not decision.are_ordered():
            return None
        return decision.merge() if rules.keeps_missing else decision.result()
    except (NotLocal, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


# The columns, and the records.


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which columns hold the keys and the sequence, and how files are read.

    Args:
        scan: Reads the columns of the keys, the sequence, the ends of versions, and the condition.
        order: None if the last batch wins.
        until: The columns that say when versions end; None without history.
        content: Reads every column by which two records of a key with one sequence may differ.
        whole: Reads every column.
        unchanged: The column that names the fields that keep their values; None if no record names any.
        since: The columns that say when versions start; None if every record is a version.
        tracked: The fields whose changes open a version, likewise.
    """

    scan: FileScan
    keys: tuple[KeyColumns, ...]
    order: OrderColumns | None
    until: OrderColumns | None
    deletes: RowTest | None
    content: FileScan
    whole: FileScan
    rules: KeyRules
    unchanged: Field | None = None
    since: OrderColumns | None = None
    tracked: TrackedFields | None = None


def _plan(table: KeyedTable, rules: KeyRules) -> _Plan | None:
    schema = table.schema
    if rules.keeps_missing and not (rules.sequence_by and can_merge(schema)):
        return None
    if rules.keeps_missing and any(find_default(field) is not None for field in schema):
        return None  # Spark evaluates the defaults that a new row takes
    if not (rules.is_plain or table.can_write_rows):
        return None
    keys = [each for each in (KeyColumns.of(schema, path) for path in rules.key) if each is not None]
    order = OrderColumns.of(schema, rules.sequence_by)
    until = OrderColumns.of(schema, rules.times(VALID_TO)) if rules.history else None
    tracked = TrackedFields.of(schema, rules)
    since = None if tracked is None else OrderColumns.of(schema, rules.times(VALID_FROM))
    if len(keys) < len(rules.key) or (order is None and rules.sequence_by):
        return None
    if rules.history and (until is None or order is None or (until.data_type == STRING) != (order.data_type == STRING)):
        return None
    condition = rules.deletes(schema)
    deletes = None if condition is None else bind_condition(condition, schema)
    test = None if deletes is None else plan_test(deletes)
    places = [place for each in (*keys, order, until, since) if each is not None for place in each.places]
    unchanged = unchanged_column(schema, rules)
    wanted = {place[0] for place in places} | {
        each.path[0] for each in ([] if deletes is None else column_conditions(deletes))
    }
    wanted |= set() if unchanged is None else {unchanged.name}
    fields = tuple(field for field in schema if any(is_same_name(field.name, name) for name in wanted))
    scan = table.scan(StructType(fields))
    try:
        _ = scan.arrow_schema
    except InvalidOption:  # a type that Arrow does not have
        return None
    content, whole = table.scan(StructType(content_fields(schema, rules))), table.scan(schema)
    return _Plan(scan, tuple(keys), order, until, test, content, whole, rules, unchanged, since, tracked)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The records of a batch: where each is, its key as a number from 0, its sequence, and whether it deletes."""

    adds: Sequence[Add]
    files: list[str]
    file: pa.Array
    position: pa.Array
    keys: tuple[pa.Array, ...]
    sequence: pa.Array
    is_delete: pa.Array
    unchanged: pa.Array | None = None
    """The names of the fields that keep their values; None if no record has any."""


def _read_batch(plan: _Plan, table: KeyedTable, adds: Sequence[Add], deleting: Collection[str]) -> _Batch | None:
    parts: list[pa.Table] = []
    for number, add in enumerate(adds):
        for positions, rows in plan.scan.read_located(add):
            columns = {"file": pa.repeat(pa.scalar(number, pa.int32()), len(positions)), "position": positions}
            columns |= {f"k{at}": key.read(rows) for at, key in enumerate(plan.keys)}
            columns["s"] = _sequence(plan, rows)
            deletes = None if plan.deletes is None else pc.fill_null(plan.deletes(rows), False)
            if plan.unchanged is not None:
                columns["u"] = rows.column(plan.unchanged.name)
            columns["d"] = pa.repeat(pa.scalar(add.path in deleting), len(positions)) if deletes is None else deletes
            parts.append(pa.table(columns))
    if not parts:
        return None
    whole = pa.concat_tables(parts).combine_chunks()
    one = {name: one_array(whole.column(name)) for name in whole.column_names}
    keys = tuple(one[f"k{at}"] for at in range(len(plan.keys)))
    if any(each.null_count for each in (*keys, one["s"])):  # the ingestion quarantines such records
        return None
    unchanged = one.get("u")
    if unchanged is not None and unchanged.null_count == len(unchanged):
        unchanged = None
    files = list(map(table.key_of, adds))
    return _Batch(adds, files, one["file"], one["position"], keys, one["s"], one["d"], unchanged)


def _sequence(plan: _Plan, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
    """Return the sequence of records; without one, all are equal."""
    return pa.repeat(pa.scalar(0, pa.int8()), len(rows)) if plan.order is None else plan.order.read(rows)


# Keys as numbers.


@dataclass(frozen=True, slots=True)
class _KeyCodes:
    """Assigns a number to each key of the batch, so that keys in files can be looked up column by column.

    Args:
        values: The distinct values of each column.
        pairs: For each column after the first, the distinct pairs of the number so far and the number of its value.
    """

    values: tuple[pa.Array, ...]
    pairs: tuple[pa.Array, ...] = ()

    @staticmethod
    def of(columns: Sequence[pa.Array]) -> tuple[_KeyCodes, pa.Array]:
        """Return the numbers of keys, and the lookup for other keys."""
        values = tuple(map(pc.unique, columns))
        codes, pairs = pc.index_in(columns[0], value_set=values[0]), []
        for column, distinct in zip(columns[1:], values[1:], strict=True):
            pair = _pair(codes, pc.index_in(column, value_set=distinct), len(distinct))
            pairs.append(pc.unique(pair))
            codes = pc.index_in(pair, value_set=pairs[-1])
        return _KeyCodes(values, tuple(pairs)), codes

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
        return codes


def _pair(left: pa.Array, right: pa.Array, size: int) -> pa.Array:
    return pc.add(pc.multiply(left.cast(pa.int64()), size), right.cast(pa.int64()))


# The rows of the table that have one of the keys.


def _find_rows(plan: _Plan, codes: _KeyCodes, files: Sequence[Add], first: int = 0) -> pa.Table:
    """Return the key, the place, the sequence and the end of each row of some files that has one of the keys."""
    parts = []
    for number, add in enumerate(files, first):
        for positions, rows in plan.scan.read_located(add):
            found = codes.find([key.read(rows) for key in plan.keys])
            is_found = found.is_valid()
            count = pc.sum(is_found).as_py() or 0
            if count:
                columns = {
                    "code": found.filter(is_found).cast(pa.int64()),
                    "file": pa.repeat(pa.scalar(number, pa.int32()), count),
                    "position": positions.filter(one_array(is_found)).cast(pa.int64()),
                    "s": _sequence(plan, rows).filter(one_array(is_found)),
                }
                for name, times in _times(plan).items():
                    columns[name] = times.read(rows).filter(one_array(is_found))
                if plan.unchanged is not None and _has_kept(plan):
                    columns["kept"] = rows.column(plan.unchanged.name).is_valid().filter(one_array(is_found))
                parts.append(pa.table(columns))
    types = {"code": pa.int64(), "file": pa.int32(), "position": pa.int64(), "s": to_arrow(_order_type(plan))}
    types |= {name: to_arrow(times.data_type) for name, times in _times(plan).items()}
    types |= {"kept": pa.bool_()} if _has_kept(plan) else {}
    return pa.concat_tables(parts) if parts else pa.schema(types).empty_table()


def _times(plan: _Plan) -> dict[str, OrderColumns]:
    """Return the columns with the times of versions, by their names in `_find_rows`."""
    return {name: times for name, times in (("until", plan.until), ("since", plan.since)) if times is not None}


def _has_kept(plan: _Plan) -> bool:
    """Return whether versions may keep values of the ones before them."""
    return plan.rules.history and plan.unchanged is not None


def _order_type(plan: _Plan) -> DataType:
    return BYTE if plan.order is None else plan.order.data_type


def _find_rows_in_tasks(spark: Session, plan: _Plan, codes: _KeyCodes, files: Sequence[Add]) -> pa.Table:
    """Return the same as `_find_rows`; tasks read the files."""
    tasks = max(1, len(files) // _FILES_PER_TASK)
    slim = [Add(f.path, f.partition_values, f.size, 0, True, deletion_vector=f.deletion_vector) for f in files]
    schema = _find_rows(plan, codes, ()).schema
    numbers = start_tasks(spark, tasks)
    with translate_spark_errors():
        times = "".join(f", {name} {each.data_type.sql}" for name, each in _times(plan).items())
        kept = ", kept boolean" if _has_kept(plan) else ""
        columns = f"{_FOUND}, s {_order_type(plan).sql}{times}{kept}"
        found = numbers.mapInArrow(partial(_find_task, plan, codes, slim, tasks), columns).toArrow()
    return found.cast(schema)


def _find_task(
    plan: _Plan, codes: _KeyCodes, files: Sequence[Add], tasks: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for task in (task for batch in batches for task in batch.column(0).to_pylist()):
        for number in range(task, len(files), tasks):
            yield from _find_rows(plan, codes, [files[number]], number).combine_chunks().to_batches()


# The decision.


class _Decision:
    """One batch by key, as Arrow columns."""

    def __init__(
        self,
        spark: Session,
        plan: _Plan,
        batch: _Batch,
        table: KeyedTable,
        lists: KeyLists,
    ) -> None:
        self._spark, self._plan, self._batch, self._table, self._lists = spark, plan, batch, table, lists
        self._codes, self._code = _KeyCodes.of(batch.keys)

    def result(self) -> LocalMerge | None:
        batch, codes, code = self._batch, self._codes, self._code
        top = self._newest(code, codes.count)
        if top is None:
            return None
        searched, files, found = self._found
        # One record for each key, in the order of the keys.
        order = pc.sort_indices(code.take(top))
        newest = top.take(order)
        sequence, is_delete = batch.sequence.take(newest), batch.is_delete.take(newest)
        deleted_at = self._deleted(newest, sequence)
        if deleted_at is None:
            return None
        old, is_known = self._old_order(found, codes.count, sequence.type)
        is_tie = pc.fill_null(pc.equal(sequence, old), False)
        is_repeated = pc.and_(is_tie, pc.invert(is_delete))  # a deletion wins
        if pc.any(is_repeated).as_py():
            row_places = self._row_places(found, files, is_repeated)
            if row_places is None:
                return None
            record_places = self._record_places(newest.filter(is_repeated))
            if not self._are_same(record_places, row_places):
                loses = self._lose(record_places, row_places)
                if loses is None:
                    return None
                is_repeated = pc.replace_with_mask(is_repeated, is_repeated, loses)
        is_older = pc.fill_null(pc.less(sequence, old), False)
        late = pc.or_(pc.or_(is_older, is_repeated), deleted_at)
        return self._outcome(newest, is_delete, is_known, late, found, files, searched)

    def last_batch(self) -> LocalMerge | None:
        """Return what a batch without a sequence does: its records win, unless they are the same as their rows.

        Raises:
            KeyRepeated: it has different records of a key.
        """
        batch, codes, code = self._batch, self._codes, self._code
        every = count_up(len(code), 0, pa.uint64())
        newest = every
        if codes.count < len(code):
            # Deletions of a key may differ: as on Spark, the rest of their records counts.
            hashes = hash_rows(self._record_places(every).read(self._plan.content))
            hashes = pc.if_else(batch.is_delete, pc.bit_wise_not(hashes), hashes)
            records = pa.table({"code": code, "hash": hashes, "row": every}).group_by("code")
            records = records.aggregate([("hash", "count_distinct"), ("row", "min")]).sort_by("code")
            repeated = count_true(pc.greater(records["hash_count_distinct"], 1))
            if repeated:
                raise KeyRepeated(count=repeated)
            newest = one_array(records["row_min"])
        else:
            newest = every.take(pc.sort_indices(code))
        searched, files, found = self._found
        is_known = pc.is_in(count_up(codes.count), value_set=pc.unique(one_array(found["code"])))
        is_delete = batch.is_delete.take(newest)
        is_compared = pc.and_(is_known, pc.invert(is_delete))
        late = pa.repeat(pa.scalar(False), codes.count)
        if count_true(is_compared):
            rows = self._row_places(found, files, is_compared)
            if rows is None:  # an older table may have several rows of a key
                return None
            before, after = (
                each.read(self._plan.content) for each in (rows, self._record_places(newest.filter(is_compared)))
            )
            is_same = pc.equal(hash_rows(before), hash_rows(after))
            late = pc.replace_with_mask(late, is_compared, is_same)
        return self._outcome(newest, is_delete, is_known, late, found, files, searched)

    def _outcome(
        self,
        newest: pa.Array,
        is_delete: pa.Array,
        is_known: pa.Array,
        late: pa.Array,
        found: pa.Table,
        files: Sequence[Add],
        searched: Predicate,
    ) -> LocalMerge:
        """Return what the newest record of each key does unless it is late."""
        batch, wins = self._batch, pc.invert(late)
        writes, deletes = pc.and_(wins, pc.invert(is_delete)), pc.and_(wins, is_delete)
        counts = {
            "inserted": count_true(pc.and_(writes, pc.invert(is_known))),
            "updated": count_true(pc.and_(writes, is_known)),
            "deleted": count_true(pc.and_(deletes, is_known)),
            "unknown_deletes": count_true(pc.and_(deletes, pc.invert(is_known))),
        }
        records = len(batch.position)
        counts["late"] = records - sum(counts.values())
        is_written = pc.is_in(count_up(records, 0, pa.uint64()), value_set=newest.filter(writes))
        losers = positions_by_file(batch.file, batch.position, pc.invert(is_written), batch.files)
        removed = self._removed(found, files, pc.and_(wins, is_known))
        gone = self._to_list(newest.filter(deletes)) if self._plan.order is not None and count_true(deletes) else None
        return LocalMerge(KeyCounts(**counts), losers, removed, gone, searched)

    def merge(self) -> LocalMerge | None:
        """Merge partial records: put the records that are newer than the row of their key on top of it."""
        batch, codes, code = self._batch, self._codes, self._code
        every = count_up(len(code), 0, pa.uint64())
        order = pa.table({"code": code.cast(pa.int64()), "s": batch.sequence, "row": every})
        code, sequence, row = map(one_array, order.sort_by([("code", "ascending"), ("s", "ascending")]).columns)
        searched, files, found = self._found
        old, is_known = self._old_order(found, codes.count, sequence.type)
        deleted_at = self._deleted(row, sequence)
        if count_true(is_known) < len(found) or deleted_at is None:
            return None  # an older table may have several rows of a key
        deletes, old_of = batch.is_delete.take(row), old.take(code)
        # The contents decide between different records with one sequence, as only Spark orders them.
        is_equal = pc.and_(pc.equal(sequence[1:], sequence[:-1]), pc.equal(code[1:], code[:-1]))
        is_twice = pc.fill_null(pc.equal(sequence, old_of), False)
        is_twice = pc.and_(is_twice, pc.invert(deletes))  # a deletion wins
        if not self._are_repeated(row, is_equal) or not self._change_nothing(row, code, is_twice, found, files):
            return None
        is_repeated = pc.or_(is_twice, pa.concat_arrays([is_equal, pa.array([False])]))
        late = pc.or_(pc.or_(pc.fill_null(pc.less(sequence, old_of), False), deleted_at), is_repeated)
        resets = pc.if_else(pc.and_(deletes, pc.invert(late)), every, pa.scalar(None, every.type))
        ends = pa.table({"code": code, "last": every, "reset": resets}).group_by("code")
        ends = ends.aggregate([("last", "max"), ("reset", "max")]).sort_by("code")
        last, reset = one_array(ends["last_max"]), one_array(ends["reset_max"])
        # A row that a restore has brought back is older than its deletion, which comes between it and the records.
        back = self._deleted(row.take(last.filter(is_known)), old.filter(is_known))
        if back is None or pc.any(back).as_py():
            return None
        wins, is_delete = pc.invert(late.take(last)), deletes.take(last)
        writes, gone = pc.and_(wins, pc.invert(is_delete)), pc.and_(wins, is_delete)
        # The records that lead to a row are those after the last deletion of its key.
        is_after = pc.fill_null(pc.greater(every, reset.take(code)), True)
        leads = pc.and_(pc.and_(pc.invert(late), is_after), writes.take(code))
        has_row = pc.and_(is_known, reset.is_null())
        is_alone = pc.equal(_count_by(code.filter(leads), codes.count), 1)
        as_is = pc.and_(writes, pc.and_(is_alone, pc.invert(has_row)))
        keeps_missing = self._plan.rules.keeps_missing
        if not keeps_missing:  # the newest record becomes the row, except for fields that it lacks
            assert batch.unchanged is not None
            as_is = pc.or_(as_is, pc.and_(writes, batch.unchanged.take(row.take(last)).is_null()))
        counts = {
            "inserted": count_true(pc.and_(writes, pc.invert(is_known))),
            "updated": count_true(pc.and_(writes, is_known)),
            "deleted": count_true(pc.and_(gone, is_known)),
            "unknown_deletes": count_true(pc.and_(gone, pc.invert(is_known))),
            "merged": count_true(leads) - count_true(writes) if keeps_missing else 0,
        }
        counts["late"] = len(code) - sum(counts.values())
        is_kept = pc.is_in(every, value_set=row.take(last.filter(as_is)))
        losers = positions_by_file(batch.file, batch.position, pc.invert(is_kept), batch.files)
        removed = self._removed(found, files, pc.and_(wins, is_known))
        deleted = self._to_list(row.take(last.filter(gone))) if count_true(gone) else None
        is_merged = pc.and_(writes, pc.invert(as_is))
        new = None
        if count_true(is_merged):
            is_part = pc.and_(leads, is_merged.take(code))
            merged = self._merged(row.filter(is_part), code.filter(is_part), found, files, pc.and_(is_merged, has_row))
            new = NewRows.of(merged)
        return LocalMerge(KeyCounts(**counts), losers, removed, deleted, searched, new)

    def versions(self) -> LocalMerge | None:
        """Return what a batch does where every version of a row is kept."""
        batch, plan = self._batch, self._plan
        assert plan.until is not None
        searched, files, found = self._found
        if _has_kept(plan) and count_true(found["kept"]):
            return None
        known = self._order_events(found)
        if known is None:
            return None
        events, ordered, distinct, places = known
        ends = plan.until.comparable(one_array(found["until"]))
        since = None if plan.since is None else plan.since.comparable(one_array(found["since"]))
        until, start = (None if each is None else pc.index_in(each, value_set=distinct) for each in (ends, since))
        tracked = None if plan.tracked is None else partial(self._hash_tracked, places, plan.tracked)
        versions = decide_versions(events, ordered, RowTimes(until, ends.is_null(), start), tracked)
        everything = pa.repeat(pa.scalar(True), len(batch.position))
        losers = positions_by_file(batch.file, batch.position, everything, batch.files)
        names = list(map(self._table.key_of, files))
        removed = positions_by_file(one_array(found["file"]), one_array(found["position"]), versions.removed, names)
        new = None
        if len(versions.rows):
            start, end = distinct.take(versions.starts), distinct.take(versions.ends)
            rows = VersionRows(places(versions.rows), start, end, self._table.schema, plan.rules)
            new = rows.to_new_rows(plan.whole)
        gone = self._to_list(versions.gone) if len(versions.gone) else None
        return LocalMerge(versions.counts, losers, removed, gone, searched, new)

    def are_ordered(self) -> bool:
        """Check that the winner among different records with one sequence does not change the result.

        Returns:
            Whether Arrow can compare them.
        """
        # A row merged from partial records is not a record itself, so compare only records of the same batch.
        found = self._found[2]
        return self._order_events(found.slice(0, 0) if self._plan.rules.keeps_missing else found) is not None

    def _order_events(self, found: pa.Table) -> tuple[Events, pa.Table, pa.Array, Callable[[pa.Array], Places]] | None:
        """Return the events of the keys, sorted; see `order_events`.

        Args:
            found: The rows of the table.

        Returns:
            The distinct orders as well (events store an index into them), and a function from indexes to positions.
            None if Arrow cannot compare them.
        """
        batch, plan, code = self._batch, self._plan, self._code
        remembered = self._remembered(code)
        if plan.order is None or remembered is None or found["s"].null_count:
            return None
        orders = [plan.order.comparable(each) for each in (batch.sequence, one_array(found["s"]))]
        distinct, ranks = number_orders([*orders, one_array(remembered["order"])])
        sides = (len(code), len(found), len(remembered))
        events = Events(
            pa.concat_arrays([code.cast(pa.int64()), one_array(found["code"]), one_array(remembered["code"])]),
            ranks,
            pa.concat_arrays([batch.is_delete, *(pa.repeat(pa.scalar(at == 2), sides[at]) for at in (1, 2))]),
            sides,
        )
        file = pa.concat_arrays([batch.file, pc.add(one_array(found["file"]), len(batch.adds)).cast(pa.int32())])
        position = pa.concat_arrays([batch.position, one_array(found["position"]).cast(pa.uint64())])
        adds = [*batch.adds, *self._found[1]]

        def places(events: pa.Array) -> Places:
            return Places(adds, file.take(events), position.take(events))

        ordered = order_events(events, partial(self._rank_contents, places), plan.rules)
        return None if ordered is None else (events, ordered, distinct, places)

    def _rank_contents(self, find: Callable[[pa.Array], Places], rows: pa.Array, moment: pa.Array) -> pa.Array | None:
        """Rank records with the same sequence by their contents.

        Returns:
            None if there are too many for this process.
        """
        try:
            hashes = hash_rows(find(rows).read(self._plan.content))
        except InvalidOption:  # a type that Arrow does not have
            return None
        moments = (
            pa.table({"moment": moment, "hash": hashes}).group_by("moment").aggregate([("hash", "count_distinct")])
        )
        several = moments.filter(pc.greater(moments["hash_count_distinct"], 1))
        is_asked, ranks = pc.is_in(moment, value_set=one_array(several["moment"])), pa.repeat(pa.scalar(0), len(rows))
        if not len(several):
            return ranks
        texts = self._texts(find(rows.filter(is_asked)))
        return None if texts is None else pc.replace_with_mask(ranks, is_asked, number_orders([texts])[1])

    def _hash_tracked(self, find: Callable[[pa.Array], Places], tracked: TrackedFields, events: pa.Array) -> pa.Array:
        """Return a hash of the tracked fields of events."""
        if not tracked.schema.fields:  # no record has had one of the fields yet
            return pa.repeat(pa.scalar(0), len(events))
        return tracked.hash(find(events).read(self._table.scan(tracked.schema)))

    def _remembered(self, code: pa.Array) -> pa.Table | None:
        """Return the remembered deletions of the keys of the batch; None if Arrow cannot tell."""
        order = self._plan.order
        assert order is not None
        empty = order.comparable(self._batch.sequence.slice(0, 0))
        if not self._lists.has_keys:
            return pa.table({"code": pa.array([], pa.int64()), "order": empty})
        listed = self._lists.read_here()
        if listed is None:
            return None
        first = pa.table({"code": code, "row": count_up(len(code), 0, pa.uint64())}).group_by("code")
        rows = one_array(first.aggregate([("row", "min")]).sort_by("code")["row_min"])
        known = pc.index_in(one_array(listed[KEY_TEXT]), value_set=self._key_texts(rows))
        orders = listed[TEXT if order.data_type == STRING else NUMBER].filter(known.is_valid())
        if orders.null_count:  # a deletion of another kind of sequence
            return None
        return pa.table({"code": known.drop_null().cast(pa.int64()), "order": one_array(orders).cast(empty.type)})

    def _merged(
        self, records: pa.Array, code: pa.Array, found: pa.Table, files: Sequence[Add], has_row: pa.Array
    ) -> pa.Table:
        """Return the rows that records lead to.

        Args:
            records: Sorted by key, from the oldest to the newest.
            code: The keys of the records.
            has_row: For each key of the batch, whether its row in the table is below the records.
        """
        scan = self._plan.whole
        rows = self._row_places(found, files, has_row)
        assert rows is not None
        keys = pc.unique(code)
        at = pc.index_in(keys, value_set=pc.indices_nonzero(has_row).cast(pa.int64()))
        below = rows.read(scan).take(at)
        number = pc.index_in(code, value_set=keys)
        return self._put_on_rows(below, self._record_places(records).read(scan), number)

    def _put_on_rows(self, rows: pa.Table, records: pa.Table, number: pa.Array) -> pa.Table:
        unchanged = None if self._plan.rules.keeps_missing else self._plan.unchanged
        return put_on_rows(rows, records, number, self._table.schema, unchanged)

    @cached_property
    def _found(self) -> tuple[Predicate, Sequence[Add], pa.Table]:
        """Where rows with the keys may be, the files there, and the rows; see `_find_rows`."""
        searched, codes = self._searched(), self._codes
        files = self._table.find_files(searched)
        if sum(add.size for add in files) <= KEYED_BYTES:
            return searched, files, _find_rows(self._plan, codes, files).combine_chunks()
        return searched, files, _find_rows_in_tasks(self._spark, self._plan, codes, files).combine_chunks()

    def _removed(self, found: pa.Table, files: Sequence[Add], changes: pa.Array) -> dict[str, BitMap64]:
        """Return the positions of the rows of some keys."""
        names = list(map(self._table.key_of, files))
        is_removed = one_array(changes.take(found["code"]))
        return positions_by_file(one_array(found["file"]), one_array(found["position"]), is_removed, names)

    def _newest(self, code: pa.Array, count: int) -> pa.Array | None:
        """Return the numbers of the records that are the newest of their key; None if contents have to decide."""
        rows = count_up(len(code), 0, pa.uint64())
        if count == len(code):
            return rows
        order = pa.table({"code": code, "s": self._batch.sequence, "row": rows})
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
        if winners is None:
            return None
        is_replaced = pc.is_in(codes.filter(is_first), value_set=winners["code"])
        return pc.replace_with_mask(row.filter(is_first), is_replaced, one_array(winners["row"]))

    def _winners(self, code: pa.Array, row: pa.Array) -> pa.Table | None:
        """Return the record of each key that wins by its contents, a deletion first; None if there are many."""
        contents = self._texts(self._record_places(row))
        if contents is None:
            return None
        deletes = self._batch.is_delete.take(row).cast(pa.int8())
        records = pa.table({"code": code, "deletes": deletes, "content": contents, "row": row})
        order = [("code", "ascending"), ("deletes", "descending"), ("content", "descending")]
        records = records.sort_by(order).combine_chunks()
        codes = one_array(records["code"])
        return records.filter(pa.concat_arrays([pa.array([True]), pc.not_equal(codes[1:], codes[:-1])]))

    def _lose(self, records: Places, rows: Places) -> pa.Array | None:
        """Return whether records lose against the rows with their sequence; None if there are many."""
        left, right = self._texts(records), self._texts(rows)
        return None if left is None or right is None else pc.less_equal(left, right)

    def _texts(self, places: Places) -> pa.Array | None:
        columns = content_fields(self._table.schema, self._plan.rules)
        return content_texts(places, self._plan.content, columns)

    def _record_places(self, rows: pa.Array) -> Places:
        return Places(self._batch.adds, self._batch.file.take(rows), self._batch.position.take(rows))

    def _row_places(self, found: pa.Table, files: Sequence[Add], chosen: pa.Array) -> Places | None:
        """Return where the rows of some keys are, in the order of the keys; None if one of them has several rows."""
        rows = found.filter(chosen.take(one_array(found["code"]))).sort_by("code")
        if len(rows) != count_true(chosen):
            return None
        return Places(files, one_array(rows["file"]), one_array(rows["position"]))

    def _are_same(self, left: Places, right: Places) -> bool:
        """Return whether all pairs of records are known to have the same values, so that one of each is late."""
        try:
            return are_same(left.read(self._plan.content), right.read(self._plan.content))
        except InvalidOption:  # a type that Arrow does not have
            return False

    def _are_repeated(self, row: pa.Array, is_equal: pa.Array) -> bool:
        """For each requested record, return whether it is known to equal the next one."""
        one, other = row[:-1].filter(is_equal), row[1:].filter(is_equal)
        is_delete = self._batch.is_delete
        if not is_delete.take(one).equals(is_delete.take(other)):
            return False
        return not len(one) or self._are_same(self._record_places(one), self._record_places(other))

    def _change_nothing(
        self, row: pa.Array, code: pa.Array, chosen: pa.Array, found: pa.Table, files: Sequence[Add]
    ) -> bool:
        """Return whether partial records are known to leave the content of their keys' rows as it is."""
        keys = pc.unique(code.filter(chosen))
        if not len(keys):
            return True
        flags = pc.is_in(count_up(pc.max(code).as_py() + 1), value_set=keys)
        places, scan = self._row_places(found, files, flags), self._plan.whole
        assert places is not None
        rows, records = places.read(scan), self._record_places(row.filter(chosen)).read(scan)
        number = pc.index_in(code.filter(chosen), value_set=keys)
        merged = self._put_on_rows(rows, records, number)
        content = [field.name for field in content_fields(self._table.schema, self._plan.rules)]
        return are_same(rows.select(content), merged.select(content))

    def _searched(self) -> Predicate:
        searched: Predicate = UnknownPredicate()
        for key, values in zip(self._plan.keys, self._batch.keys, strict=True):
            places = self._places_of(key, values)
            searched = And(searched, reduce(Or, places)) if places else searched
        return searched

    def _places_of(self, key: KeyColumns, values: pa.Array) -> list[Predicate]:
        """Return conditions; a row with one of a field's values meets at least one. Empty if it may be anywhere."""
        old, found = self._table.old_schema or StructType(), list[Predicate]()
        for data_type, place, low, high in key.bounds(values):
            known = old.find(place[0])
            if len(place) > 1 or (known is not None and known.type != data_type and data_type not in _INTEGERS):
                return []
            if known is not None:  # else no row has one of the values in this column
                found.append(within_bounds(known, low, high, has_null=False))
        return found

    def _old_order(self, found: pa.Table, count: int, data_type: pa.DataType) -> tuple[pa.Array, pa.Array]:
        """Return each key's newest sequence in the table (null if it has no sequence), and whether the key exists."""
        codes, sequence = one_array(found["code"]), one_array(found["s"])
        every = count_up(count)
        distinct = pc.unique(codes)
        if len(distinct) < len(codes):  # a table that was not written by key may have several rows of one
            order = found.select(["code", "s"]).sort_by([("code", "ascending"), ("s", "descending")])
            codes, sequence = one_array(order["code"]), one_array(order["s"])
            is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(codes[1:], codes[:-1])])
            # Nulls come last, so the first one is the newest.
            codes, sequence = codes.filter(is_first), sequence.filter(is_first)
        at = pc.index_in(every, value_set=codes)
        return sequence.cast(data_type).take(at), at.is_valid()

    def _deleted(self, newest: pa.Array, sequence: pa.Array) -> pa.Array | None:
        """Return which keys were deleted at some time or later; None if Arrow cannot tell."""
        if not self._lists.has_keys:
            return pa.repeat(pa.scalar(False), len(newest))
        listed, ours = self._lists.read_here(), self._to_list(newest, sequence)
        if listed is None or ours is None:
            return None
        at = pc.index_in(ours[KEY_TEXT], value_set=one_array(listed[KEY_TEXT]))
        at = one_array(at)
        column = TEXT if _order_type(self._plan) == STRING else NUMBER
        theirs, own = one_array(listed[column]).take(at), one_array(ours[column])
        # A deletion of another kind of sequence, such as a text where there are numbers, is older.
        return pc.fill_null(pc.less_equal(own, theirs), False)

    def _to_list(self, rows: pa.Array, sequence: pa.Array | None = None) -> pa.Table | None:
        """Return keys with a sequence, in the form of the list of deleted keys; None if Arrow cannot."""
        sequence, order = self._batch.sequence.take(rows) if sequence is None else sequence, self._plan.order
        assert order is not None
        numbers, words = order.numbers(sequence), order.texts(sequence)
        return pa.table({KEY_TEXT: self._key_texts(rows), NUMBER: numbers, TEXT: words})

    def _key_texts(self, rows: pa.Array) -> pa.Array:
        columns = [column.take(rows) for column in self._batch.keys]
        return join_texts([key.texts(column) for key, column in zip(self._plan.keys, columns, strict=True)])


def _count_by(code: pa.Array, count: int) -> pa.Array:
    """Return how often each number from 0 on is there."""
    found = pc.value_counts(code)
    at = pc.index_in(count_up(count), value_set=found.field("values"))
    return pc.fill_null(found.field("counts").take(at), 0)


# Partial records: the same rules as in `widen.changes.keyed_frames`.
#
# Source: docs/guide/keys.md#missing


_MOST_RECORDS = 16
"""Up to this many partial records of a key, they are put on top of each other here, for all keys at once."""


def can_merge(schema: StructType) -> bool:
    """Return whether partial records can be put on top of rows here: not map entries, and not rescued values."""
    return role_field(schema, RESCUED) is None and not any(_has_map(each.type) for each in schema)


def _has_map(data_type: DataType) -> bool:
    match data_type:
        case MapType():
            return True
        case StructType(fields):
            return any(_has_map(each.type) for each in fields)
        case ArrayType():  # replaced as a whole
            return False
    return False


def can_keep(plan: _Plan, table: KeyedTable) -> bool:
    """Return whether rows can keep the values of unchanged fields here: not rescued values."""
    return table.can_write_rows and role_field(table.schema, RESCUED) is None


def put_on_rows(
    rows: pa.Table, records: pa.Table, number: pa.Array, schema: StructType, unchanged: Field | None = None
) -> pa.Table:
    """Return rows with records on top of them, one after another.

    Args:
        rows: The rows, with nulls where there was no row.
        records: Sorted by row, the records of a row from the oldest to the newest.
        number: The row number of each record.
        schema: The columns of both, which may have other names.
        unchanged: The column that names the fields that keep their values, if records replace all other fields.

    Raises:
        NotLocal: a row has many records.
    """
    count = len(number)
    every = count_up(count)
    is_first = pa.concat_arrays([pa.array([True]), pc.not_equal(number[1:], number[:-1])])
    first = every.filter(is_first).take(pc.index_in(number, value_set=pc.unique(number)))
    rank = pc.subtract(every, first)
    most = pc.max(rank).as_py() + 1
    if most > _MOST_RECORDS:
        raise NotLocal("a key has many partial records")
    places = count_up(len(rows))
    for each in range(most):
        chosen = pc.equal(rank, each)
        own = number.filter(chosen)
        before, after = rows.take(own), records.filter(chosen)
        merged = _merge(before, after, schema) if unchanged is None else _keep(before, after, schema, unchanged)
        at = pc.index_in(places, value_set=own)
        at = pc.if_else(at.is_valid(), pc.add(at.cast(pa.int64()), len(rows)), places)
        rows = pa.concat_tables([rows, merged]).combine_chunks().take(at)
    return rows


def _keep(old: pa.Table, new: pa.Table, schema: StructType, unchanged: Field) -> pa.Table:
    """Return records with the values of rows in the fields that they say are unchanged."""
    before, after = ([one_array(column) for column in each.columns] for each in (old, new))
    names = after[schema.names.index(unchanged.name)]
    columns = [
        _choose(is_named(names, source_key(each)), was, now)
        for each, was, now in zip(schema, before, after, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=old.schema)


def is_named(lists: pa.Array, name: str) -> pa.Array:
    """Return which lists have a name."""
    rows = pc.list_parent_indices(lists).filter(pc.fill_null(pc.equal(pc.list_flatten(lists), name), False))
    return pc.is_in(count_up(len(lists)), value_set=rows.cast(pa.int64()))


def _merge(old: pa.Table, new: pa.Table, schema: StructType) -> pa.Table:
    before, after = ([one_array(column) for column in each.columns] for each in (old, new))
    return pa.Table.from_arrays(_merge_fields(before, after, schema.fields), schema=old.schema)


def _merge_fields(old: Sequence[pa.Array], new: Sequence[pa.Array], fields: Sequence[Field]) -> list[pa.Array]:
    """Return the columns of records on top of rows. The columns of one field are one value."""
    present: dict[str, pa.Array] = {}
    names = [each.name if role_of(each) else source_key(each) for each in fields]
    for name, column in zip(names, new, strict=True):
        is_valid = column.is_valid()
        present[name] = pc.or_(present[name], is_valid) if name in present else is_valid
    columns = zip(names, old, new, fields, strict=True)
    return [_choose(present[name], _merge_values(was, now, each.type), was) for name, was, now, each in columns]


def _merge_values(old: pa.Array, new: pa.Array, data_type: DataType) -> pa.Array:
    if not isinstance(data_type, StructType):
        return new
    inner = _merge_fields(old.flatten(), new.flatten(), data_type.fields)
    are_both = pc.and_(old.is_valid(), new.is_valid())
    merged = pa.StructArray.from_arrays(inner, fields=list(new.type), mask=pc.invert(are_both))
    return _choose(are_both, merged, new)


def _choose(is_left: pa.Array, left: pa.Array, right: pa.Array) -> pa.Array:
    """Choose between two sides value by value; unlike `if_else`, for every type."""
    places = count_up(len(left))
    return pa.concat_arrays([left, right]).take(pc.if_else(is_left, places, pc.add(places, len(left))))
