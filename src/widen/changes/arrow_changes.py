"""UPDATE and DELETE file by file with Arrow: which rows change, and what becomes of their file.

A first look at a file reads the columns of the condition only. Where rows match, a second one writes what the table
needs: the file without them or with their new values, the new rows alone, their change data, a deletion vector. No row
passes through Java. Small changes need no Spark job; tasks do the same work for large files. If only Spark can
evaluate the condition, one Spark job finds the rows and returns their positions. `widen.changes.spark_changes` does
what Arrow does not read, compute or write exactly as Spark does, and raises the errors that only Spark can name.

Source: PROTOCOL.md#add-file-and-remove-file, #add-cdc-file, #deletion-vectors; Delta Lake's UPDATE and DELETE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.change_context import ChangeContext, ChangeFiles, ChangeResult, count_deleted_rows, ensure_same_count
from widen.changes.change_data_writer import put_vectors, to_bitmaps
from widen.changes.copy_files import split_by_size
from widen.changes.overwrite import remove_marked_rows
from widen.changes.spark_changes import ensure_space, remove_positions
from widen.errors import CorruptFile, EngineUnsuitable, RowRefused, StorageError
from widen.files.arrow_types import count_up, one_array
from widen.files.data_reader import LocalScan, plan_local_scan
from widen.files.data_writer import (
    PartFile,
    PartitionedWriter,
    TableSink,
    codec_of,
    describe_columns,
    to_partitioned_add,
)
from widen.files.deleted_rows import load_vector, mark_rows, to_bitmap
from widen.files.expressions import RowValues, plain_sql, plan_condition, plan_values
from widen.files.row_tests import RowTest
from widen.frames.parquet_writer import find_obstacle, table_sink
from widen.limits import CHANGE_TASK_BYTES, CHANGE_THREADS, CHANGED_BYTES, MATCHED_ROWS
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import LogStore
from widen.model.types import DataType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, AddCdc, DeletionVector
from widen.protocol.column_mapping import CHANGE_FOLDER, CHANGE_TYPE, with_change_type
from widen.protocol.file_statistics import FileStatistics, count_written_rows, with_loose_bounds
from widen.schema.table_state import referenced_columns
from widen.spark.engine import Unsupported, as_unsupported, ensure_at_most, is_local
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import Expression, to_column
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import F

_REFUSALS = (Unsupported, CorruptFile, StorageError, OSError, pa.ArrowException)
"""After these errors, Spark makes the change or reports the problem; but see `ensure_space`."""


@dataclass(frozen=True, slots=True)
class _FoundRows:
    """The positions of rows of a file, and how many rows it has in all."""

    positions: BitMap64
    total: int


@dataclass(frozen=True)
class _FileChange:
    """What a task does with a file. Picklable.

    Args:
        found: The rows that change, by the key of each file with some, if Spark has found them.
        changes: Where change data are written; None if none are.
        vectors: The folder of deletion vectors; None if files are written again instead.
        records_whole: Whether the files lose all rows, so that only their change data is written.
    """

    store: LogStore
    narrow: LocalScan
    whole: LocalScan
    test: RowTest | None
    found: Mapping[str, _FoundRows] | None
    values: RowValues | None
    rows: TableSink | None = None
    changes: TableSink | None = None
    vectors: str | None = None
    records_whole: bool = False

    @property
    def sinks(self) -> list[TableSink]:
        """Where rows are written."""
        return [sink for sink in (self.rows, self.changes) if sink is not None]


class _ChangedFile(msgspec.Struct, frozen=True):
    """A file with rows that change: how many, of how many live ones and of how many in all, and its new vector."""

    key: str
    changed: int
    live: int
    rows: int
    vector: DeletionVector | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows change."""
        return self.changed == self.live


class _Outcome(msgspec.Struct, frozen=True):
    """What a task has done; ``refusal`` says why it did nothing."""

    files: tuple[_ChangedFile, ...] = ()
    rows: tuple[PartFile, ...] = ()
    changes: tuple[PartFile, ...] = ()
    refusal: str | None = None


_NOTHING = _Outcome()


def change_files(
    context: ChangeContext, where: Expression | None, values: Mapping[str, tuple[str, DataType]] | None
) -> ChangeResult:
    """Update or delete rows, and return the result; nothing is committed.

    Args:
        where: The condition, which Spark has accepted, or will not see; None for all rows.

    Raises:
        Unsupported: Spark has to make the change; nothing is left of what was written.
    """
    with ChangeFiles(context) as files:
        with as_unsupported(EngineUnsuitable):
            plan = _with_condition(context, _plan(files, _to_row_values(context, values)), where)
        return _to_result(files, plan, _change(context, plan))


def change_chosen_rows(
    context: ChangeContext, names: Collection[str], test: RowTest, values: RowValues
) -> ChangeResult:
    """Update the rows that a function chooses, and return the result; nothing is committed.

    Args:
        test: Returns which rows change. Picklable, as ``values`` is, which returns their new values.

    Raises:
        Unsupported: Spark has to make the change; nothing is left of what was written.
    """
    with ChangeFiles(context) as files:
        plan = _with_test(context, _plan(files, values), names, test)
        return _to_result(files, plan, _change(context, plan))


def remove_beside(context: ChangeContext, marked: Mapping[str, BitMap64], added: Sequence[Add]) -> ChangeResult:
    """Remove rows that are known by their positions, beside files that the commit adds; nothing is committed.

    Change data files have all of these rows, if readers cannot derive the changes from the files of the table.

    Args:
        marked: The positions by the key of each file, which has at least one.
    """
    if not (marked and context.has("changeDataFeed")) or context.has("deletionVectors"):
        return remove_positions(context, marked)
    totals = context.all_rows(marked)
    found = {key: _FoundRows(rows, totals[key]) for key, rows in marked.items()}
    with suppress(Unsupported, EngineUnsuitable), ChangeFiles(context) as files:
        plan = replace(_plan(files, None), found=found)
        outcome = _change(context, plan)
        if outcome.changes:
            inserted = _record_inserts(plan, added)
            outcome = msgspec.structs.replace(outcome, changes=(*outcome.changes, *inserted))
        return _to_result(files, plan, outcome)
    return remove_marked_rows(context, marked, added)


def _change(context: ChangeContext, plan: _FileChange) -> _Outcome:
    adds = context.adds if plan.found is None else {key: context.adds[key] for key in plan.found}
    outcome = _run(context, plan, adds)
    if not _has_unrecorded_rows(plan, outcome):
        return outcome
    whole = {file.key: context.adds[file.key] for file in outcome.files if file.is_whole}
    more = _run(context, replace(plan, records_whole=True), whole, outcome)
    return msgspec.structs.replace(outcome, changes=more.changes)


def _record_inserts(plan: _FileChange, added: Sequence[Add]) -> list[PartFile]:
    """Write the rows of files as change data of their insertion."""
    assert plan.changes is not None
    return _write_images(plan.changes, ((rows, "insert") for add in added for _, rows in plan.whole.read_located(add)))


def record_images(files: ChangeFiles, images: Iterable[tuple[pa.Table, str]]) -> list[AddCdc]:
    """Write change data: rows, and what happened to them.

    Raises:
        Unsupported: only Spark can.
    """
    obstacle = find_obstacle(files.context.configuration)
    if obstacle:
        raise Unsupported(obstacle)
    sink = _change_sink(files)
    return [_to_cdc(sink, part) for part in _write_images(sink, images)]


def _write_images(sink: TableSink, images: Iterable[tuple[pa.Table, str]]) -> list[PartFile]:
    writer = sink.open(pa.schema([]))
    try:
        for rows, kind in images:
            for batch in _with_change(rows, kind).to_batches():
                writer.write(batch)
        return writer.close()
    except _REFUSALS as error:
        writer.discard()
        ensure_space(sink.store, error)
        raise Unsupported(str(error)) from error


def _with_change(rows: pa.Table, kind: str) -> pa.Table:
    return rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind), len(rows)))


def _with_condition(context: ChangeContext, plan: _FileChange, where: Expression | None) -> _FileChange:
    """Return what tasks do for a condition; Spark has found the rows if only it evaluates the condition."""
    if where is None:
        return plan
    schema = context.snapshot.schema
    try:
        test = plan_condition(plain_sql(where), schema)
    except Unsupported:
        if is_local(context.session):
            raise
        return replace(plan, found=_find_by_spark(context, where))
    return _with_test(context, plan, {path[0] for path in referenced_columns(plain_sql(where), schema)}, test)


def _with_test(context: ChangeContext, plan: _FileChange, names: Collection[str], test: RowTest) -> _FileChange:
    columns = StructType(tuple(field for field in context.snapshot.schema if field.name in names))
    return replace(plan, narrow=replace(plan.narrow, schema=columns), test=test)


def _to_row_values(context: ChangeContext, values: Mapping[str, tuple[str, DataType]] | None) -> RowValues | None:
    """Return what computes new values.

    Raises:
        Unsupported: only Spark computes one exactly.
    """
    if values is None:
        return None
    return plan_values(
        context.snapshot.schema, {name: (plain_sql(text), kind) for name, (text, kind) in values.items()}
    )


def _find_by_spark(context: ChangeContext, where: Expression) -> dict[str, _FoundRows]:
    """Return the rows that match a condition, as bitmaps: at most one bit for each row of the files.

    Raises:
        Unsupported: the files have too many rows, or the log does not say how many.
    """
    totals = {key: FileStatistics(add.stats).rows for key, add in context.adds.items()}
    if None in totals.values() or sum(total or 0 for total in totals.values()) > MATCHED_ROWS:
        raise Unsupported("the files have too many rows")
    with translate_spark_errors():
        words = mark_rows(context.located().where(to_column(where)), F.lit(True)).toArrow()
    return {key: _FoundRows(positions, totals[key] or 0) for key, positions in to_bitmaps(words).items()}


def _plan(files: ChangeFiles, new: RowValues | None) -> _FileChange:
    """Return what tasks do with all rows.

    Raises:
        Unsupported: only Spark reads or writes the table exactly.
    """
    context = files.context
    scan = plan_local_scan(context.snapshot)
    narrow = replace(scan, schema=StructType(()))
    vectors = files.new_folder() if context.has("deletionVectors") else None
    plan = _FileChange(context.store, narrow, scan, None, None, new, vectors=vectors)
    if new is None and vectors:
        return plan
    table = context.configuration
    obstacle = find_obstacle(table, checks_rows=True)
    if obstacle or not context.has_arrow_layout:
        raise Unsupported(obstacle or "its rows have more columns")
    codec = codec_of(context.session)
    rows = table_sink(context.store, table, files.new_folder(), codec)
    if new is None:  # rows are copied as they were checked when they were written
        rows = replace(rows, conditions=())
    if not context.has("changeDataFeed"):
        return replace(plan, rows=rows)
    return replace(plan, rows=rows, changes=_change_sink(files))


def _change_sink(files: ChangeFiles) -> TableSink:
    """Return where change data are written."""
    context = files.context
    recorded = context.configuration.with_schema(with_change_type(context.configuration.schema))
    folder = files.new_folder(f"{CHANGE_FOLDER}/")
    changes = table_sink(context.store, recorded, folder, codec_of(context.session))
    plain = replace(changes.layout.sink, describe=describe_columns(frozenset()))
    return replace(changes, layout=replace(changes.layout, sink=plain), conditions=())


def _has_unrecorded_rows(plan: _FileChange, outcome: _Outcome) -> bool:
    """Return whether change data lacks rows because some files lose all of their rows and others only some.

    Readers derive the changes of a version without change data from its files, and else from the change data alone.
    """
    is_deletion = plan.values is None and plan.changes is not None
    return is_deletion and len({file.is_whole for file in outcome.files}) == 2


def _to_result(files: ChangeFiles, plan: _FileChange, outcome: _Outcome) -> ChangeResult:
    context, is_update = files.context, plan.values is not None
    added = [to_partitioned_add(plan.rows.layout.split, part) for part in outcome.rows] if plan.rows else []
    changed = sum(file.changed for file in outcome.files)
    left = sum(file.live - file.changed for file in outcome.files)
    copied = 0 if plan.vectors else left
    ensure_same_count(copied + changed * is_update, count_written_rows(added))
    revised = [_revise(context.adds[file.key], file) for file in outcome.files if file.vector is not None]
    return ChangeResult(
        removed=tuple(context.adds[file.key] for file in outcome.files),
        added=tuple(added),
        revised=tuple(revised),
        recorded=tuple(_to_cdc(plan.changes, part) for part in outcome.changes if plan.changes),
        rows=Counter({0: changed} if changed else {}),
        copied=copied,
        folders=files.folders,
        reads=context.reads,
    )


def _revise(add: Add, file: _ChangedFile) -> Add:
    """Return a file with its new deletion vector."""
    assert file.vector is not None
    ensure_same_count(count_deleted_rows(add) + file.changed, file.vector.cardinality)
    stats = with_loose_bounds(add.stats, file.rows)
    return msgspec.structs.replace(add, deletion_vector=file.vector, stats=stats, data_change=True)


def _to_cdc(sink: TableSink, part: PartFile) -> AddCdc:
    add = to_partitioned_add(sink.layout.split, part)
    return AddCdc(path=add.path, partition_values=add.partition_values, size=add.size, data_change=False)


# ---- the tasks -------------------------------------------------------------------------------------

_outcomes = msgspec.json.Decoder(_Outcome)


def _run(context: ChangeContext, plan: _FileChange, adds: Mapping[str, Add], before: _Outcome = _NOTHING) -> _Outcome:
    """Change files in this process or in tasks, and return each result with the file that it replaces.

    Raises:
        Unsupported: only Spark can.
    """
    # Without statistics, which tasks do not need and which may be larger than everything else.
    bare = {key: msgspec.structs.replace(add, stats=None) for key, add in adds.items()}
    total = sum(add.size for add in bare.values())
    shares = split_by_size(bare.items(), lambda item: item[1].size, 1 + total // CHANGE_TASK_BYTES)
    groups = [*map(dict, shares)]
    if total <= CHANGED_BYTES:
        try:
            with ThreadPoolExecutor(CHANGE_THREADS) as pool:  # Arrow works outside of Python's lock
                done = list(pool.map(partial(_change_group, plan), groups))
        except CorruptFile as error:
            if is_local(context.session):  # Spark would only say the same
                raise
            raise Unsupported(str(error)) from error
    else:
        if is_local(context.session):
            ensure_at_most(total, CHANGED_BYTES, "the files that may have such rows")
        texts = [(msgspec.json.encode(group).decode(),) for group in groups]
        frame = context.spark.createDataFrame(texts, "files string").repartition(len(texts))
        with translate_spark_errors():
            rows = frame.mapInArrow(partial(_change_in_task, plan), "outcome string").collect()
        done = [_outcomes.decode(row.outcome) for row in rows]
        kept = {part.path for each in (before, *done) for part in (*each.rows, *each.changes)}
        for sink in plan.sinks:  # Spark may have run a task twice
            discard_folder(plan.store, sink.job, but=kept)
    refusal = next((each.refusal for each in done if each.refusal is not None), None)
    if refusal is not None:
        raise Unsupported(refusal)
    everything = (before, *done)
    return _Outcome(
        tuple(file for each in everything for file in each.files),
        tuple(part for each in everything for part in each.rows),
        tuple(part for each in everything for part in each.changes),
    )


def _change_in_task(plan: _FileChange, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for text in (text for batch in batches for text in batch.column(0).to_pylist()):
        try:
            outcome = _change_group(plan, _groups.decode(text))
        except (CorruptFile, RowRefused, StorageError) as error:
            outcome = _Outcome(refusal=str(error))
        yield pa.RecordBatch.from_pydict({"outcome": [msgspec.json.encode(outcome).decode()]})


_groups = msgspec.json.Decoder(dict[str, Add])


def _change_group(plan: _FileChange, adds: Mapping[str, Add]) -> _Outcome:
    """Change files, whose new rows and change data are written together."""
    writers = [sink.open(pa.schema([])) for sink in plan.sinks]
    try:
        found: list[_ChangedFile] = []
        marked: list[BitMap64] = []
        for key, add in adds.items():
            file, positions = _find_rows(plan, key, add)
            if positions:
                found.append(file)
                marked.append(positions)
                _write_rows(plan, writers, add, file, positions)
        files = _with_vectors(plan, adds, found, marked) if plan.vectors else found
        parts = [writer.close() for writer in writers]
    except (CorruptFile, RowRefused):
        _discard(writers)
        raise
    except _REFUSALS as error:
        _discard(writers)
        ensure_space(plan.store, error)
        return _Outcome(refusal=str(error))
    rows, changes = (tuple(parts.pop(0)) if sink else () for sink in (plan.rows, plan.changes))
    return _Outcome(tuple(files), rows, changes)


def _discard(writers: Iterable[PartitionedWriter]) -> None:
    for writer in writers:
        writer.discard()


def _find_rows(plan: _FileChange, key: str, add: Add) -> tuple[_ChangedFile, BitMap64]:
    if plan.found is not None:
        given, deleted = plan.found[key], count_deleted_rows(add)
        return _ChangedFile(key, len(given.positions), given.total - deleted, given.total), given.positions
    marked, live = BitMap64(), 0
    for positions, rows in plan.narrow.read_located(add):
        live += len(positions)
        chosen = positions if plan.test is None else positions.filter(one_array(plan.test(rows)))
        marked |= to_bitmap(chosen)
    return _ChangedFile(key, len(marked), live, live + count_deleted_rows(add)), marked


def _write_rows(
    plan: _FileChange, writers: Sequence[PartitionedWriter], add: Add, file: _ChangedFile, marked: BitMap64
) -> None:
    if not writers or (plan.values is None and file.is_whole and not plan.records_whole):
        return
    for is_changed, rows in plan.whole.read_marked(add, marked):
        old = rows.filter(is_changed)
        images = [(old, "delete")]
        written = rows
        if plan.values is not None:
            values = plan.values(old)
            new = _with_columns(old, values)
            images = [(old, "update_preimage"), (new, "update_postimage")]
            written = new if plan.vectors else _with_columns(rows, _in_place(rows, is_changed, values))
        elif plan.records_whole:
            written = rows.slice(0, 0)
        else:
            written = rows.filter(pc.invert(is_changed))
        for batch in written.to_batches():
            writers[0].write(batch)
        for image, kind in images if plan.changes and len(old) else ():
            for batch in _with_change(image, kind).to_batches():
                writers[1].write(batch)


def _with_columns(rows: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    for name, column in values.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.schema.field(at), column)
    return rows


def _in_place(rows: pa.Table, is_changed: pa.Array, values: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the columns that have new values in some rows."""
    return {name: _put(one_array(rows[name]), is_changed, new) for name, new in values.items()}


def _put(column: pa.Array, is_changed: pa.Array, new: pa.Array) -> pa.Array:
    """Return a column with new values where rows change."""
    if not pa.types.is_nested(column.type):
        return pc.replace_with_mask(column, is_changed, new)
    numbers = pc.add(pc.cumulative_sum(is_changed.cast(pa.int64())), len(column) - 1)
    return pa.concat_arrays([column, new]).take(pc.if_else(is_changed, numbers, count_up(len(column), 0, pa.int64())))


def _with_vectors(
    plan: _FileChange, adds: Mapping[str, Add], found: Sequence[_ChangedFile], marked: Sequence[BitMap64]
) -> list[_ChangedFile]:
    """Write the deletion vectors of files that keep some rows, and return all files."""
    assert plan.vectors is not None
    bitmaps = {}
    for file, positions in zip(found, marked, strict=True):
        old = adds[file.key].deletion_vector
        if not file.is_whole:
            bitmaps[file.key] = positions if old is None else positions | load_vector(plan.store, old)
    written = put_vectors(plan.store, plan.vectors, [*bitmaps.values()]) if bitmaps else []
    vectors = dict(zip(bitmaps, written, strict=True))
    return [msgspec.structs.replace(file, vector=vectors.get(file.key)) for file in found]
