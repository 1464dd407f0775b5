"""A load by key: which files and rows it reads, and what it does to the rows of the table.

This process decides what it can hold, with Arrow and without a Spark job; only the keys of the table are read. Tasks
decide more than that in buckets of keys. Spark evaluates conditions that only it understands, and reads the files that
Arrow does not read exactly; the decision is the same.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial, reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.change_data_writer import to_bitmaps
from widen.changes.deleted_keys import WrittenKeys
from widen.changes.key_columns import EXACT_ORDERS, KeyColumns, KeyCondition, OrderColumns
from widen.changes.keyed_buckets import Bounds, Buckets
from widen.changes.keyed_decision import Decider, Deleting, KeyCodes, KeyPlan, ensure_keyed, find_deleting
from widen.changes.keyed_files import FileContents, KeyedTable, NewRows, TooLarge, positions_by_file
from widen.changes.overwrite import within_bounds
from widen.changes.tracked_fields import TrackedFields
from widen.errors import InvalidOption, JobFailed
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
from widen.files.deleted_rows import mark_rows
from widen.files.predicates import bind_condition
from widen.files.row_tests import RowTest, plan_test
from widen.json.field_rules import VALID_FROM, VALID_TO
from widen.limits import KEYED_BYTES, KEYED_RECORDS
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.types import BYTE, INTEGER, LONG, SHORT, StructType, is_same_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.data_skipping import And, Or, Predicate, UnknownPredicate, column_conditions
from widen.protocol.file_statistics import FileStatistics
from widen.spark.engine import READS, Session, Unsupported, require_spark, start_tasks
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import ensure_deterministic_condition
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import F, SparkSession

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
    except (Unsupported, InvalidOption, pa.ArrowException):
        return True


@dataclass(frozen=True, slots=True)
class KeyedLoad:
    """A batch by key, and the table that it is for.

    Args:
        deleting: The paths of the files whose records delete rows; see `KeyRules.excluded`.
    """

    table: KeyedTable
    rules: KeyRules
    adds: Sequence[Add]
    records: int
    deleting: Collection[str] = ()

    @contextmanager
    def decide(self, session: Session) -> Iterator[LocalMerge]:
        """Return what the batch does. What tasks have staged for it is deleted when the context ends."""
        merge = decide_load(session, self)
        try:
            yield merge
        except BaseException:
            merge.close(False)
            raise
        merge.close(True)


def decide_load(session: Session, load: KeyedLoad) -> LocalMerge:
    """Return what a batch does; see `KeyedLoad.decide`."""
    try:
        planned = _plan_load(session, load)
        if load.records <= KEYED_RECORDS:
            with suppress(TooLarge):
                return _decide(session, *planned)
        return _decide_in_buckets(session, *planned)
    except (Unsupported, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        spark = require_spark(session, str(error) if isinstance(error, Unsupported) else READS)
    load = replace(load, table=load.table.on_spark())
    try:
        return _decide_in_buckets(spark, *_plan_load(spark, load), by_spark=True)
    except (Unsupported, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise JobFailed(reason=f"what Spark has read cannot be compared: {error}") from error


def _plan_load(session: Session, load: KeyedLoad) -> tuple[KeyPlan, KeyedLoad, Deleting]:
    """Return which columns decide, and which records delete."""
    plan, deleting = plan_decision(load.table, load.rules), dict[str, BitMap64 | None].fromkeys(load.deleting)
    if load.rules.keeps_missing:
        plan = replace(plan, defaults=load.table.read_defaults(session))
    if plan.condition is not None:
        spark = require_spark(session, "only it evaluates the condition of deletions")
        deleting |= _find_deleting(spark, load, plan.condition)
    return plan, load, deleting


def _find_deleting(spark: SparkSession, load: KeyedLoad, condition: str) -> dict[str, BitMap64]:
    """Return the positions of the records that fulfil a condition: at most one bit for each record."""
    table, rows = load.table, load.table.locate(spark, load.adds)
    ensure_deterministic_condition(rows, condition)
    with translate_spark_errors():
        words = mark_rows(rows.where(F.expr(condition).cast("boolean")), F.lit(True)).toArrow()
    paths = {table.location_of(add): add.path for add in load.adds}
    return {paths[key]: positions for key, positions in to_bitmaps(words).items()}


def _decide(session: Session, plan: KeyPlan, load: KeyedLoad, deleting: Deleting) -> LocalMerge:
    table, adds, lists = load.table, load.adds, load.table.lists
    records = _read_records(plan, adds, deleting)
    keys = [one_array(records[f"k{at}"]) for at in range(len(plan.keys))]
    ensure_keyed(records, keys)
    codes, code = KeyCodes.of(keys)
    bounds = [key.bounds(values) for key, values in zip(plan.keys, keys, strict=True)]
    searched = to_bounds_predicate(table, bounds)
    files = table.find_files(searched)
    rows = find_rows(session, plan, codes, files, len(adds))
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
    session: Session, plan: KeyPlan, load: KeyedLoad, deleting: Deleting, *, by_spark: bool = False
) -> LocalMerge:
    table, adds, folder = load.table, load.adds, uuid.uuid4().hex
    count = Buckets.choose_count(load.records, adds)
    buckets = Buckets(session, plan, table, folder, adds, deleting, count, by_spark)
    close = partial(_discard_staged, table.store, folder, table.lists.store, buckets.keys)
    with ExitStack() as undo:
        undo.callback(close, False)
        bounds, records = buckets.stage_batch()
        searched = to_bounds_predicate(table, bounds)
        files = table.find_files(searched)
        found = buckets.decide(files, records)
        names = list(map(table.key_of, [*adds, *files]))
        lost, removed = _by_name(found.lost, names), _by_name(found.removed, names)
        undo.pop_all()
    return LocalMerge(found.counts, lost, removed, found.deleted, searched, found.new_rows, close)


def _discard_staged(store: LogStore, folder: str, keys_store: LogStore, keys: str, is_applied: bool) -> None:
    discard_folder(store, folder)
    if not is_applied:
        discard_folder(keys_store, keys)


# The columns, and the records.


def plan_decision(table: KeyedTable, rules: KeyRules) -> KeyPlan:
    """Return which columns decide; call `ensure_rules_apply` before."""
    schema = table.schema
    keys = [each for each in (KeyColumns.of(schema, path) for path in rules.key) if each is not None]
    order = OrderColumns.of(schema, rules.sequence_by)
    until = OrderColumns.of(schema, rules.times(VALID_TO)) if rules.history else None
    tracked = TrackedFields.of(schema, rules)
    since = None if tracked is None else OrderColumns.of(schema, rules.times(VALID_FROM))
    condition, test, used = _plan_condition(schema, rules)
    unchanged = unchanged_column(schema, rules)
    wanted = {place[0] for each in (*keys, order, until, since) if each is not None for place in each.places} | used
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
        condition=condition,
    )


def _plan_condition(schema: StructType, rules: KeyRules) -> tuple[str | None, RowTest | None, set[str]]:
    """Return the condition of deletions if only Spark evaluates it, else its test and the columns that it uses."""
    condition = rules.deletes(schema)
    if condition is None:
        return None, None, set()
    bound = bind_condition(condition, schema)
    with suppress(Unsupported):
        return None, plan_test(bound), {each.path[0] for each in column_conditions(bound)}
    return condition, None, set()


def _read_records(plan: KeyPlan, adds: Sequence[Add], deleting: Deleting) -> pa.Table:
    return pa.concat_tables(
        plan.record_columns(number, positions, rows, find_deleting(deleting, add.path, positions))
        for number, add in enumerate(adds)
        for positions, rows in plan.scan.read_located(add)
    ).combine_chunks()


# The rows of the table that have one of the keys.


def find_rows(spark: Session, plan: KeyPlan, codes: KeyCodes, files: Sequence[Add], first: int) -> pa.Table:
    """Return the rows of some files that have one of the keys; see `KeyPlan.row_columns`. Tasks read large files."""
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
    if not found.num_columns:
        return schema.empty_table()
    if pc.any(pc.less(found["file"], 0)).as_py():
        raise Unsupported("it reads files of the table")
    return found.cast(schema).combine_chunks()


def _find_in_files(plan: KeyPlan, codes: KeyCodes, files: Sequence[Add], first: int) -> Iterator[pa.Table]:
    located = ((number, *rows) for number, add in enumerate(files, first) for rows in plan.scan.read_located(add))
    for parts in _group_rows(located, codes.count):
        keys = pa.concat_tables(pa.table(plan.keys_of(rows)) for _, _, rows in parts)
        found, start = one_array(codes.find(keys.columns)), 0
        for number, positions, rows in parts:
            code = found.slice(start, len(rows))
            start += len(rows)
            if code.null_count < len(code):
                is_found = code.is_valid()
                own = plan.row_columns(number, positions.filter(is_found), rows.filter(is_found))
                yield own.append_column("code", code.drop_null())


LocatedRows: TypeAlias = tuple[int, pa.Array, pa.Table]
"""The number of a file, and positions and rows of it."""


def _group_rows(located: Iterable[LocatedRows], count: int) -> Iterator[list[LocatedRows]]:
    """Return rows in groups of at least a number of rows; the last one may have fewer.

    Arrow makes a hash table of the keys of the batch for each search; a search of many rows makes it once.
    """
    group, size = list[LocatedRows](), 0
    for each in located:
        group.append(each)
        size += len(each[2])
        if size >= count:
            yield group
            group, size = [], 0
    if group:
        yield group


def _find_task(
    plan: KeyPlan, codes: KeyCodes, files: Sequence[Add], first: int, tasks: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for task in (task for batch in batches for task in batch.column(0).to_pylist()):
        for number in range(task, len(files), tasks):
            try:
                found = list(_find_in_files(plan, codes, [files[number]], first + number))
            except (Unsupported, pa.ArrowInvalid, pa.ArrowNotImplementedError):  # raised, it would fail the Spark job
                found = [pa.table({"file": [-1]})]
            yield from (batch for rows in found for batch in _to_spark_types(plan, rows).to_batches())


def _to_spark_types(plan: KeyPlan, rows: pa.Table) -> pa.Table:
    """Return rows with all columns of the result; Spark has no unsigned integers."""
    types = {**plan.row_types, "position": pa.int64(), "code": pa.int64()}
    columns = [
        rows[name].cast(kind) if name in rows.column_names else pa.nulls(len(rows), kind)
        for name, kind in types.items()
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(types)).combine_chunks()


def to_bounds_predicate(table: KeyedTable, bounds: Bounds) -> Predicate:
    """Return where in the table rows with one of some keys may be."""
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
