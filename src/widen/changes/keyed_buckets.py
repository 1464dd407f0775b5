"""A load by key that one process cannot hold: keys in buckets by their hash; each bucket is decided by itself.

Tasks stage the keys of the batch and of the table, sorted by bucket, in files of their own. Other tasks read a bucket
of all of these files, and decide it. If contents decide, or rows are made of them, a bucket asks for them: tasks stage
the contents of these rows likewise, and the bucket is decided again. So no row passes through Java, and none of it
comes to the driver: it gets the positions of rows as bitmaps, and the names of staged files. Only what Arrow does not
read exactly passes through Java: Spark reads it for the tasks that stage it.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.copy_files import split_by_size
from widen.changes.deleted_keys import KeyLists, WrittenKeys
from widen.changes.keyed_decision import Decider, Deleting, KeyCodes, KeyDecision, KeyPlan, ensure_keyed, find_deleting
from widen.changes.keyed_files import Contents, KeyedTable, NewRows, RowPart, positions_by_file
from widen.errors import KeyRepeated, SequenceRepeated, WidenError
from widen.evolution.key_rules import KEY_TEXT, KeyCounts
from widen.files.arrow_types import count_up, one_array
from widen.files.data_reader import FileScan
from widen.files.data_writer import cast_batch
from widen.files.deleted_rows import FILE, ROW, rows_by_file
from widen.files.footers import open_data_file
from widen.limits import BUCKET_BYTES, BUCKET_RECORDS, CHANGE_TASK_BYTES
from widen.log.log_store import LogStore
from widen.model.types import quote_name
from widen.model.value_classes import dataclass
from widen.proof.column_digests import hash_values
from widen.protocol.actions import Add
from widen.spark.engine import Session, Unsupported, require_spark, start_tasks
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import F

_RESULT = "kind string, number int, value binary"
_RECORDS, _ROWS, _LISTED, _NEW = "records", "rows", "listed", "new"
_LOST, _REMOVED, _WANTED, _DONE, _FAILED = "lost", "removed", "wanted", "done", "failed"
_STAGED, _BOUNDS, _PLACED = "staged", "bounds", "__widen_placed"

Bounds = list[list[tuple[Any, Any, Any, Any]]]
"""For each field of the key, what `widen.changes.key_columns.KeyColumns.bounds` returns."""


@dataclass(frozen=True, slots=True)
class BucketMerge:
    """What a batch does; the positions are by the number of the file."""

    counts: KeyCounts
    lost: Mapping[int, BitMap64]
    removed: Mapping[int, BitMap64]
    deleted: WrittenKeys | None
    new_rows: NewRows | None


@dataclass(frozen=True)
class Buckets:
    """The buckets of a load.

    Args:
        table: The table. Its keys that were deleted decide where there is a sequence.
        folder: A new folder of the table for what tasks stage, which the caller deletes in the end.
    """

    session: Session
    plan: KeyPlan
    table: KeyedTable
    folder: str
    adds: Sequence[Add]
    deleting: Deleting
    count: int
    by_spark: bool = False

    @staticmethod
    def choose_count(records: int, adds: Sequence[Add]) -> int:
        """Return how many buckets a load needs."""
        return 1 + max(records // BUCKET_RECORDS, sum(add.size for add in adds) // BUCKET_BYTES)

    @property
    def keys(self) -> str:
        """The folder of the lists of deleted keys that tasks write."""
        return f"{self.table.lists.folder}/{self.folder}"

    def stage_batch(self) -> tuple[Bounds, Sequence[str]]:
        """Stage the keys of the batch, and return which ones it has, and the names of the staged files."""
        found = self._stage(self._task(self.adds), self.plan.scan, range(len(self.adds)), _stage_records)
        bounds = [pickle.loads(row["value"]) for row in found if row["kind"] == _BOUNDS]
        merged: Bounds = []
        for each in zip(*bounds, strict=True):
            merged.append(_join_bounds([known for known in each if known is not None]))
        return merged, _staged_names(found)

    def decide(self, files: Sequence[Add], records: Sequence[str]) -> BucketMerge:
        """Return what the batch does."""
        adds, first = [*self.adds, *files], len(self.adds)
        task, staged = self._task(adds), {_RECORDS: records}
        staged[_ROWS] = _staged_names(self._stage(task, self.plan.scan, range(first, len(adds)), _stage_rows))
        if task.by_text:
            lists = self.table.lists
            listed = self._run(partial(_stage_listed, task, lists), [[at] for at in range(len(lists.files))])
            staged[_LISTED] = _staged_names(listed)
        contents: list[str] = []
        pending, found, repeated = list(range(self.count)), _Found(), list[Exception]()
        while pending:
            decide = partial(_decide_buckets, replace(task, staged=staged, contents=tuple(contents)))
            wanted = found.add(self._run(decide, [[bucket] for bucket in pending], repeated))
            pending = found.pending
            if pending:
                stage = partial(_stage_contents, wanted)
                contents += _staged_names(self._stage(task, self.plan.whole, sorted(wanted), stage))
        if repeated:
            raise _join_errors(repeated)
        return found.to_merge(task)

    def _task(self, adds: Sequence[Add]) -> _Task:
        # Without statistics, which tasks do not need and which may be larger than everything else.
        slim = [Add(f.path, f.partition_values, f.size, 0, True, deletion_vector=f.deletion_vector) for f in adds]
        lists = self.table.lists
        by_text = bool(self.plan.rules.sequence_by) and lists.has_keys
        known = (lists.store, self.keys), self.deleting, self.count, by_text
        return _Task(self.plan, self.table.store, self.folder, slim, *known)

    def _stage(self, task: _Task, scan: FileScan, numbers: Sequence[int], stage: _Stage) -> list[dict[str, Any]]:
        """Call a function for the rows of files, a part of them in each task, and return its rows."""
        if not self.by_spark or not numbers:
            return self._run(partial(_stage_files, task, scan, stage), self._split(numbers, task.adds))
        table, schema = self.table, scan.arrow_schema
        adds = {table.location_of(task.adds[number]): number for number in numbers}
        located = table.locate(require_spark(self.session, "it reads the files"), [task.adds[at] for at in numbers])
        # One struct column, since mapInArrow reads a dot in a column name as a nested field.
        row = F.struct(*(F.col(quote_name(name)) for name in schema.names)).alias(_PLACED)
        rows = located.select(FILE, ROW, row).mapInArrow(partial(_stage_located, task, schema, stage, adds), _RESULT)
        return self._collect(rows)

    def _split(self, numbers: Iterable[int], adds: Sequence[Add]) -> list[list[int]]:
        """Return the numbers of files in groups, each for one task."""
        wanted = list(numbers)
        total = sum(adds[number].size for number in wanted)
        return split_by_size(wanted, lambda number: adds[number].size, 1 + total // CHANGE_TASK_BYTES)

    def _run(
        self, function: Any, groups: Sequence[Sequence[int]], repeated: list[Exception] | None = None
    ) -> list[dict[str, Any]]:
        """Call a function for the number and the items of each group, and return its rows.

        Args:
            repeated: Gets the errors about repeated keys and sequences, which are raised once all of them are known.
        """
        if not groups:
            return []
        numbers = start_tasks(self.session, len(groups))
        return self._collect(numbers.mapInArrow(partial(_run_groups, function, groups), _RESULT), repeated)

    def _collect(self, results: Any, repeated: list[Exception] | None = None) -> list[dict[str, Any]]:
        with translate_spark_errors():
            found = results.toArrow()
        rows: list[dict[str, Any]] = found.to_pylist()
        errors = [pickle.loads(row["value"]) for row in rows if row["kind"] == _FAILED]
        if repeated is not None:
            repeated += [each for each in errors if isinstance(each, _REPEATED)]
            errors = [each for each in errors if not isinstance(each, _REPEATED)]
        if errors:
            raise _join_errors(errors)
        return [row for row in rows if row["kind"] != _FAILED]


def _staged_names(found: Sequence[Mapping[str, Any]]) -> list[str]:
    return [row["value"].decode() for row in found if row["kind"] == _STAGED]


def _join_bounds(found: Sequence[Sequence[tuple[Any, Any, Any, Any]]]) -> list[tuple[Any, Any, Any, Any]]:
    """Return ranges that contain some ranges; empty if one of them is not known."""
    if not all(found):
        return []
    joined: dict[tuple[Any, Any], tuple[Any, Any]] = {}
    for data_type, place, low, high in (each for bounds in found for each in bounds):
        old = joined.get((data_type, place), (low, high))
        joined[data_type, place] = min(low, old[0]), max(high, old[1])
    return [(*key, *ends) for key, ends in joined.items()]


class _Found:
    """The results of buckets."""

    def __init__(self) -> None:
        self.pending: list[int] = []
        self._done: list[dict[str, Any]] = []
        self._marked: dict[str, dict[int, BitMap64]] = {_LOST: {}, _REMOVED: {}}

    def add(self, rows: Sequence[Mapping[str, Any]]) -> dict[int, BitMap64]:
        """Take the results of buckets, and return which rows and files the undecided buckets need."""
        wanted: dict[int, BitMap64] = {}
        self.pending = [pickle.loads(row["value"]) for row in rows if row["kind"] == _WANTED and row["number"] < 0]
        for row in rows:
            kind, number, value = row["kind"], row["number"], row["value"]
            if kind == _DONE:
                self._done.append(pickle.loads(value))
            elif number >= 0:
                bitmap, marked = BitMap64.deserialize(value), wanted if kind == _WANTED else self._marked[kind]
                marked[number] = marked[number] | bitmap if number in marked else bitmap
        return wanted

    def to_merge(self, task: _Task) -> BucketMerge:
        """Return the result of all buckets."""
        counts = [each["counts"] for each in self._done]
        total = KeyCounts(*(sum(getattr(each, name) for each in counts) for name in KeyCounts.__slots__))
        keys = [each["keys"] for each in self._done if each["keys"] is not None]
        new = [each["new"] for each in self._done if each["new"] is not None]
        parts = [RowPart.staged(task.store, path, size) for _, path, size in new]
        rows = NewRows(sum(count for count, *_ in new), parts)
        deleted = WrittenKeys(task.keys[1], tuple(keys)) if keys else None
        return BucketMerge(total, self._marked[_LOST], self._marked[_REMOVED], deleted, rows if new else None)


_REPEATED = (KeyRepeated, SequenceRepeated)


def _join_errors(errors: Sequence[Exception]) -> Exception:
    """Return the error of several tasks; what Spark may do counts first."""
    error = next((each for each in errors if isinstance(each, Unsupported)), errors[0])
    if not isinstance(error, _REPEATED):
        return error
    count = sum(int(str(each.fields["count"])) for each in errors if type(each) is type(error))
    return type(error)(**{**error.fields, "count": count})


# ---- tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """What tasks know. Picklable.

    Args:
        adds: The files of the batch, then the files of the table.
        keys: Where lists of deleted keys are written.
        by_text: Whether buckets are by the texts of keys, as lists of deleted keys have them.
        staged: The names of the staged files of each kind.
    """

    plan: KeyPlan
    store: LogStore
    folder: str
    adds: Sequence[Add]
    keys: tuple[LogStore, str]
    deleting: Deleting
    count: int
    by_text: bool
    staged: Mapping[str, Sequence[str]] = field(default_factory=dict)
    contents: Sequence[str] = ()

    def buckets_of(self, keys: Sequence[pa.Array]) -> pa.Array:
        """Return the number of the bucket of each key."""
        return self.to_buckets([self.plan.key_texts(keys)] if self.by_text else keys)

    def to_buckets(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the number of the bucket of each row of some columns."""
        names = [str(at) for at in range(len(columns))]
        words = hash_values(pa.StructArray.from_arrays(list(columns), names))
        # The high bits, as signed integers: Arrow has a remainder for them.
        high = pc.shift_right(words, pa.scalar(33, pa.uint64())).cast(pa.int64())
        return pc.subtract(high, pc.multiply(pc.divide(high, self.count), self.count))

    def put(self, rows: pa.Table, buckets: pa.Array) -> tuple[str, int, bytes]:
        """Stage rows in a new file with a record batch for each bucket, and return its name as a row of the result."""
        order = pc.sort_indices(buckets)
        ordered, found = rows.take(order).combine_chunks(), pc.value_counts(buckets.take(order))
        sizes = dict(zip(*(each.to_pylist() for each in found.flatten()), strict=True))
        sink, first = pa.BufferOutputStream(), 0
        with pa.ipc.new_file(sink, ordered.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
            for bucket in range(self.count):
                part = ordered.slice(first, sizes.get(bucket, 0)).combine_chunks()
                first += len(part)
                file.write_batch(next(iter(part.to_batches()), pa.RecordBatch.from_pylist([], schema=ordered.schema)))
        name = uuid.uuid4().hex
        self.store.put(f"{self.folder}/{name}", sink.getvalue().to_pybytes())
        return _STAGED, 0, name.encode()

    def get(self, names: Iterable[str], bucket: int) -> list[pa.Table]:
        """Return the rows of a bucket from each staged file."""
        parts = []
        for name in names:
            with open_data_file(self.store, f"{self.folder}/{name}") as opened:
                parts.append(pa.Table.from_batches([pa.ipc.open_file(opened).get_batch(bucket)]))
        return parts

    def get_all(self, kind: str, bucket: int) -> list[pa.Table]:
        """Return the rows of a bucket from all staged files of a kind."""
        return self.get(self.staged.get(kind, ()), bucket)


def _run_groups(
    function: Any, groups: Sequence[Sequence[int]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        yield from _to_results(number, partial(function, number, groups[number]))


def _to_results(number: int, function: Callable[[], _Rows]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a function, or its error: raised, it would be the error of a Spark job."""
    try:
        rows = [*function()]
    except (Unsupported, WidenError) as error:
        rows = [(_FAILED, number, pickle.dumps(error))]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        rows = [(_FAILED, number, pickle.dumps(Unsupported(str(error))))]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    types = (pa.string(), pa.int32(), pa.binary())
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, types, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, names=["kind", "number", "value"])


_Rows = Iterator[tuple[str, int, bytes]]
_Parts = Iterator[tuple[int, pa.Array, pa.Table]]
"""Some rows at a time: the number of their file, their positions there, and columns."""

_Stage = Callable[[_Task, _Parts], _Rows]


def _stage_files(task: _Task, scan: FileScan, stage: _Stage, _: int, files: Sequence[int]) -> _Rows:
    return stage(task, ((at, *part) for at in files for part in scan.read_located(task.adds[at])))


def _stage_located(
    task: _Task, schema: pa.Schema, stage: _Stage, numbers: Mapping[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    yield from _to_results(0, partial(stage, task, _read_located(schema, numbers, batches)))


def _read_located(schema: pa.Schema, numbers: Mapping[str, int], batches: Iterable[pa.RecordBatch]) -> _Parts:
    for keys, positions, structs in (batch.columns for batch in batches):
        rows = pa.Table.from_batches([cast_batch(pa.RecordBatch.from_struct_array(structs), schema)])
        for key, of_file in rows_by_file(keys):
            yield numbers[key], positions.filter(of_file).cast(pa.uint64()), rows.filter(of_file)


def _stage_records(task: _Task, given: _Parts) -> _Rows:
    plan = task.plan
    parts = [
        plan.record_columns(at, positions, rows, find_deleting(task.deleting, task.adds[at].path, positions))
        for at, positions, rows in given
    ]
    if not parts:
        return
    rows = pa.concat_tables(parts).combine_chunks()
    keys = [one_array(rows[f"k{at}"]) for at in range(len(plan.keys))]
    ensure_keyed(rows, keys)
    yield task.put(rows, task.buckets_of(keys))
    bounds = [key.bounds(values) if len(values) else None for key, values in zip(plan.keys, keys, strict=True)]
    yield _BOUNDS, 0, pickle.dumps(bounds)


def _stage_rows(task: _Task, given: _Parts) -> _Rows:
    plan, parts = task.plan, []
    for at, positions, rows in given:
        part = plan.row_columns(at, positions, rows)
        for name, keys in plan.keys_of(rows).items():
            part = part.append_column(name, keys)
        parts.append(part)
    if parts:
        whole = pa.concat_tables(parts).combine_chunks()
        yield task.put(whole, task.buckets_of([one_array(whole[f"k{at}"]) for at in range(len(plan.keys))]))


def _stage_listed(task: _Task, lists: KeyLists, _: int, files: Sequence[int]) -> _Rows:
    for at in files:
        keys = lists.read_file(at)
        yield task.put(keys, task.to_buckets([one_array(keys[KEY_TEXT])]))


def _stage_contents(wanted: Mapping[int, BitMap64], task: _Task, given: _Parts) -> _Rows:
    parts, buckets = [], []
    for at, positions, rows in given:
        chosen = pc.is_in(positions, value_set=pa.array(wanted[at].to_array(), pa.uint64()))
        own, positions = rows.filter(chosen).combine_chunks(), positions.filter(chosen)
        buckets.append(task.buckets_of([one_array(each) for each in task.plan.keys_of(own).values()]))
        number_of_file = pa.repeat(pa.scalar(at, pa.int32()), len(own))
        parts.append(pa.table({"file": number_of_file, "position": positions, "row": one_array(own.to_struct_array())}))
    if parts:
        yield task.put(pa.concat_tables(parts), pa.concat_arrays(buckets))


def _decide_buckets(task: _Task, _: int, buckets: Sequence[int]) -> _Rows:
    for bucket in buckets:
        yield from _decide_bucket(task, bucket)


def _decide_bucket(task: _Task, bucket: int) -> _Rows:
    plan = task.plan
    records = pa.concat_tables(task.get_all(_RECORDS, bucket)).combine_chunks()
    if not len(records):
        yield _DONE, bucket, pickle.dumps({"counts": KeyCounts(), "keys": None, "new": None})
        return
    names = [f"k{at}" for at in range(len(plan.keys))]
    codes, code = KeyCodes.of([one_array(records[name]) for name in names])
    rows = [_with_code(codes, names, each) for each in task.get_all(_ROWS, bucket)]
    empty = pa.schema({**plan.row_types, "code": pa.int64()}).empty_table()
    table = pa.concat_tables([empty, *rows]).combine_chunks()
    listed = KeyLists.join(task.get_all(_LISTED, bucket), every=plan.rules.history)
    contents = _StagedContents(task.get(task.contents, bucket))
    try:
        decision = Decider(plan, records, (codes.count, code), table, listed, contents).decide()
        new = _stage_new(task, bucket, decision)
    except _Wanted as wanted:
        yield _WANTED, -1, pickle.dumps(bucket)
        yield from ((_WANTED, file, marked.serialize()) for file, marked in wanted.positions.items())
        return
    for kind, side, chosen in ((_LOST, records, decision.lost), (_REMOVED, table, decision.removed)):
        found = positions_by_file(one_array(side["file"]), one_array(side["position"]), chosen)
        yield from ((kind, file, marked.serialize()) for file, marked in found.items())
    keys = None
    if decision.deletions is not None:
        keys = KeyLists.write_keys(*task.keys, decision.deletions)
    yield _DONE, bucket, pickle.dumps({"counts": decision.counts, "keys": keys, "new": new})


def _with_code(codes: KeyCodes, names: Sequence[str], rows: pa.Table) -> pa.Table:
    """Return the rows that have one of some keys, with the numbers of their keys instead of these."""
    found = one_array(codes.find([rows[name] for name in names]))
    return rows.drop_columns(list(names)).filter(found.is_valid()).append_column("code", found.drop_null())


class _Wanted(Exception):
    """A decision needs the contents of rows that are not staged."""

    def __init__(self, positions: Mapping[int, BitMap64]) -> None:
        super().__init__("contents are not staged")
        self.positions = positions


class _StagedContents(Contents):
    """What is in staged rows."""

    most_texts = 2**31

    def __init__(self, parts: Sequence[pa.Table]) -> None:
        self._parts = parts
        self._places = pa.concat_arrays([pa.array([], pa.int64()), *map(_place_of, parts)])

    def read_parts(self, file: pa.Array, position: pa.Array, scan: FileScan) -> Iterator[tuple[pa.Array, pa.Table]]:
        at = pc.index_in(_to_place(file, position), value_set=self._places)
        if at.null_count:
            missing = at.is_null()
            raise _Wanted(positions_by_file(file, position, missing))
        staged = [one_array(part["row"]) for part in self._parts]
        columns = [
            pa.chunked_array([pc.struct_field(each, field.name) for each in staged], field.type).take(at)
            for field in scan.arrow_schema
        ]
        if len(at):
            yield count_up(len(at)), pa.Table.from_arrays(columns, schema=scan.arrow_schema)


def _place_of(rows: pa.Table) -> pa.Array:
    return _to_place(one_array(rows["file"]), one_array(rows["position"]))


def _to_place(file: pa.Array, position: pa.Array) -> pa.Array:
    """Return one number for a file and a position; no file has more than 2^40 rows."""
    return pc.add(pc.multiply(file.cast(pa.int64()), 2**40), position.cast(pa.int64()))


def _stage_new(task: _Task, bucket: int, decision: KeyDecision) -> tuple[int, str, int] | None:
    """Stage the rows that a bucket adds, and return their number, the path, and the size; None if it adds none."""
    if decision.new is None:
        return None
    path, schema = f"{task.folder}/{_NEW}{bucket}", task.plan.whole.arrow_schema
    return decision.new.count, path, RowPart(decision.new.read).stage(task.store, path, schema).size_bytes
