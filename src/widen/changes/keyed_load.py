"""A load by key: which files and rows it reads, and what it does to the rows of the table.

This process decides what it can hold, with Arrow and without a Spark job; only the keys of the table are read.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from widen.changes.deleted_keys import KeyLists, WrittenKeys
from widen.changes.key_columns import EXACT_ORDERS, KeyColumns, KeyCondition, OrderColumns
from widen.changes.keyed_buckets import Bounds, Buckets
from widen.changes.keyed_decision import Decider, KeyCodes, KeyPlan
from widen.changes.keyed_files import FileContents, KeyedTable, NewRows, TooLarge, positions_by_file
from widen.changes.overwrite import within_bounds
from widen.changes.tracked_fields import TrackedFields
from widen.errors import InvalidOption
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
from widen.files.arrow_types import one_array
from widen.files.data_reader import NotLocal
from widen.files.predicates import bind_condition
from widen.files.row_tests import plan_test
from widen.json.field_rules import VALID_FROM, VALID_TO
from widen.limits import KEYED_BYTES, KEYED_RECORDS
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.types import BYTE, INTEGER, LONG, SHORT, STRING, StructType, is_same_name
from widen.protocol.actions import Add
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.column_metadata import find_default
from widen.protocol.data_skipping import And, Or, Predicate, UnknownPredicate, column_conditions
from widen.protocol.file_statistics import FileStatistics
from widen.spark.engine import Session, start_tasks
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports

_FILES_PER_TASK = 8
_INTEGERS = frozenset({BYTE, SHORT, INTEGER, LONG})


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
    deleted: pa.Table | WrittenKeys | None
    searched: Predicate
    new_rows: NewRows | None = None
    """The rows that partial records lead to, or the versions of a row; None if there are no such rows."""
    close: Callable[[bool], object] = bool
    """Deletes what tasks have staged, given whether it is applied: if not, their lists of deleted keys, too."""


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

    What this process cannot hold is decided in buckets of keys, by tasks.

    Args:
        adds: The files of the batch.
        records: The number of its records.
        lists: The keys that were deleted.
        deleting: The paths of the files whose records delete rows; see `KeyRules.excluded`.
    """
    try:
        plan = plan_decision(table, rules)
        if plan is None:
            return None
        if records <= KEYED_RECORDS:
            with suppress(TooLarge):
                return _decide(spark, plan, table, adds, lists, deleting)
        return _decide_in_buckets(spark, plan, table, adds, records, lists, deleting)
    except (NotLocal, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _decide(
    spark: Session,
    plan: KeyPlan,
    table: KeyedTable,
    adds: Sequence[Add],
    lists: KeyLists,
    deleting: Collection[str],
) -> LocalMerge:
    records = _read_records(plan, adds, deleting)
    keys = [one_array(records[f"k{at}"]) for at in range(len(plan.keys))]
    if any(each.null_count for each in (*keys, one_array(records["s"]))):
        raise NotLocal("records have no key or no sequence")  # the ingestion quarantines such records
    codes, code = KeyCodes.of(keys)
    bounds = [key.bounds(values) for key, values in zip(plan.keys, keys, strict=True)]
    searched = _to_predicate(table, bounds)
    files = table.find_files(searched)
    rows = _find_rows(spark, plan, codes, files, len(adds))
    # Without a sequence, the last batch wins.
    listed = lists.read_here() if plan.order is not None and lists.has_keys else _NO_KEYS.empty_table()
    if listed is None:
        raise TooLarge("so many keys were deleted")
    every = [*adds, *files]
    decision = Decider(plan, records, (codes.count, code), rows, listed, FileContents(every)).decide()
    names = list(map(table.key_of, every))
    lost, removed = (
        positions_by_file(one_array(each["file"]), one_array(each["position"]), chosen)
        for each, chosen in ((records, decision.lost), (rows, decision.removed))
    )
    lost_names, removed_names = _by_name(lost, names), _by_name(removed, names)
    return LocalMerge(decision.counts, lost_names, removed_names, decision.deletions, searched, decision.new)


_NO_KEYS = pa.schema({KEY_TEXT: pa.string(), NUMBER: pa.decimal128(38, 18), TEXT: pa.string()})


def _by_name(marked: Mapping[int, BitMap64], names: Sequence[str]) -> dict[str, BitMap64]:
    return {names[number]: bitmap for number, bitmap in marked.items()}


def _decide_in_buckets(
    spark: Session,
    plan: KeyPlan,
    table: KeyedTable,
    adds: Sequence[Add],
    records: int,
    lists: KeyLists,
    deleting: Collection[str],
) -> LocalMerge:
    folder, count = uuid.uuid4().hex, Buckets.choose_count(records, adds)
    buckets = Buckets(spark, plan, table.store, folder, lists, adds, deleting, count)
    close = partial(_discard_staged, table.store, folder, lists.store, buckets.keys)
    with ExitStack() as undo:
        undo.callback(close, False)
        searched = _to_predicate(table, buckets.stage_batch())
        files = table.find_files(searched)
        found = buckets.decide(files)
        names = list(map(table.key_of, [*adds, *files]))
        lost, removed = _by_name(found.lost, names), _by_name(found.removed, names)
        undo.pop_all()
    return LocalMerge(found.counts, lost, removed, found.deleted, searched, found.new_rows, close)


def _discard_staged(store: LogStore, folder: str, keys_store: LogStore, keys: str, is_applied: bool) -> None:
    discard_folder(store, folder)
    if not is_applied:
        discard_folder(keys_store, keys)


# The columns, and the records.


def plan_decision(table: KeyedTable, rules: KeyRules) -> KeyPlan | None:
    """Return which columns decide; None if only Spark can."""
    schema = table.schema
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
    if unchanged is not None and not table.can_write_rows:
        return None
    wanted = {place[0] for place in places} | {
        each.path[0] for each in ([] if deletes is None else column_conditions(deletes))
    }
    wanted |= set() if unchanged is None else {unchanged.name}
    fields = tuple(field for field in schema if any(is_same_name(field.name, name) for name in wanted))
    return KeyPlan(
        schema,
        rules,
        table.scan(StructType(fields)),
        tuple(keys),
        order,
        until,
        test,
        table.scan(StructType(content_fields(schema, rules))),
        table.scan(schema),
        unchanged,
        since,
        None if tracked is None else (tracked, table.scan(tracked.schema)),
    )


def _read_records(plan: KeyPlan, adds: Sequence[Add], deleting: Collection[str]) -> pa.Table:
    return pa.concat_tables(
        plan.record_columns(number, positions, rows, deletes=add.path in deleting)
        for number, add in enumerate(adds)
        for positions, rows in plan.scan.read_located(add)
    ).combine_chunks()


# The rows of the table that have one of the keys.


def _find_rows(spark: Session, plan: KeyPlan, codes: KeyCodes, files: Sequence[Add], first: int) -> pa.Table:
    """Return the rows of some files that have one of the keys; see `KeyPlan.row_columns`. Tasks read large files.

    Args:
        first: The number of the first file.
    """
    schema = pa.schema({**plan.row_types, "code": pa.int64()})
    if sum(add.size for add in files) <= KEYED_BYTES:
        parts = list(_find_in_files(plan, codes, files, first))
        return pa.concat_tables([schema.empty_table(), *parts]).combine_chunks()
    tasks = max(1, len(files) // _FILES_PER_TASK)
    slim = [Add(f.path, f.partition_values, f.size, 0, True, deletion_vector=f.deletion_vector) for f in files]
    numbers = start_tasks(spark, tasks)
    with translate_spark_errors():
        times = "".join(f", {name} {each.data_type.sql}" for name, each in plan.times.items())
        columns = f"file int, position bigint, s {plan.order_type.sql}{times}, u array<string>, code bigint"
        found = numbers.mapInArrow(partial(_find_task, plan, codes, slim, first, tasks), columns).toArrow()
    return found.cast(schema).combine_chunks() if found.num_columns else schema.empty_table()


def _find_in_files(plan: KeyPlan, codes: KeyCodes, files: Sequence[Add], first: int) -> Iterator[pa.Table]:
    for number, add in enumerate(files, first):
        for positions, rows in plan.scan.read_located(add):
            found = one_array(codes.find(list(plan.keys_of(rows).values())))
            if found.null_count < len(found):
                is_found = found.is_valid()
                own = plan.row_columns(number, positions.filter(is_found), rows.filter(is_found))
                yield own.append_column("code", found.drop_null())


def _find_task(
    plan: KeyPlan, codes: KeyCodes, files: Sequence[Add], first: int, tasks: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for task in (task for batch in batches for task in batch.column(0).to_pylist()):
        for number in range(task, len(files), tasks):
            for rows in _find_in_files(plan, codes, [files[number]], first + number):
                at = rows.column_names.index("position")
                # Spark has no unsigned integers.
                yield from (
                    rows.set_column(at, "position", rows["position"].cast(pa.int64())).combine_chunks().to_batches()
                )


def _to_predicate(table: KeyedTable, bounds: Bounds) -> Predicate:
    """Return where in the table rows with one of some keys may be.

    Args:
        bounds: Of each field of the key, what `KeyColumns.bounds` returns.
    """
    searched: Predicate = UnknownPredicate()
    for each in bounds:
        places = _places_of(table, each)
        searched = And(searched, reduce(Or, places)) if places else searched
    return searched


def _places_of(table: KeyedTable, bounds: Sequence[tuple[Any, Any, Any, Any]]) -> list[Predicate]:
    """Return conditions; a row with one of a field's values meets at least one. Empty if it may be anywhere."""
    old, found = table.old_schema or StructType(), list[Predicate]()
    for data_type, place, low, high in bounds:
        known = old.find(place[0])
        if len(place) > 1 or (known is not None and known.type != data_type and data_type not in _INTEGERS):
            return []
        if known is not None:  # else no row has one of the values in this column
            found.append(within_bounds(known, low, high, has_null=False))
    return found
