"""Write what a change does with rows of an Iceberg table: one way for every change, whoever decides about the rows.

Arrow copies the files of such rows, without the deleted rows and with new values in their places. Spark writes the rows
that are more than this process holds, and copies what Arrow does not read exactly.

Source: Iceberg's table specification, "Row-level Deletes": copy-on-write
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyroaring import BitMap64

from widen.changes.assignment import CLAUSE, ChangeKind, keep_decided_rows
from widen.changes.change_data_writer import to_bitmaps
from widen.changes.iceberg_copies import LONGEST, HeldRows, hold_rows, most_rows
from widen.changes.iceberg_vectors import mark_deleted, marks_rows
from widen.changes.iceberg_write import (
    ChangedRows,
    ReplacedFiles,
    are_few_words,
    by_path,
    can_copy_here,
    check_iceberg_rows,
    copy_unmarked,
    with_keys,
)
from widen.changes.keyed_files import RowPart
from widen.changes.merge import refuse_several_matches
from widen.changes.overwrite import ReplacedRows, key_predicate, semi_join_keys
from widen.errors import AmbiguousMerge, JobFailed
from widen.files.arrow_types import to_arrow
from widen.files.deleted_rows import DISTINCT, FILE, MASK, ROW, mark_rows, to_bitmap, without_marked
from widen.files.iceberg_columns import LINEAGE
from widen.frames.iceberg_scan import IcebergSource, deleted_positions, read_iceberg_files, read_lineage, to_uris
from widen.frames.physical_layout import ICEBERG, breaks_a_rule, fill_missing_columns, has_length_rules
from widen.frames.scan import location_key
from widen.iceberg.metadata_files import has_row_lineage, live_entries
from widen.iceberg.partitions import value_limits
from widen.iceberg.scan_plan import IcebergScan, plan_scan
from widen.iceberg.schema_conversion import ensure_names_distinct, find_unreadable
from widen.limits import BROADCAST_ROWS
from widen.log.commit_outcome import StagedFiles
from widen.model.types import StructType, is_fully_nullable, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.data_skipping import Predicate
from widen.spark.engine import Unsupported, is_local
from widen.spark.errors import translate_spark_errors, unpersist
from widen.spark.spark_types import DataFrame, F

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile

    from widen.frames.table_writers import IcebergWriter
    from widen.iceberg.file_metrics import IcebergFile
    from widen.iceberg.snapshots import ReadPoint

_FEW = 0.05
"""Up to this share of rows, Spark writes the new rows to files of their own, and Arrow copies the others."""

_ROWS = "__widen_rows"
_REMOVING = (ChangeKind.UPDATE, ChangeKind.DELETE)


@dataclass(frozen=True)
class RowChange:
    """A change of rows of one version, as Spark decides it. Nothing is committed.

    Args:
        before: Its columns, as Spark reads them.
        after: These columns, as Spark writes them.
        decide: Returns rows with `FILE`, `ROW` and `CLAUSE`, given all rows of the scan and the columns to return of
            them, with their new values.
        returns_all: Whether it returns all rows, also those without a clause, and decides the same each time.
        searched: What all rows fulfil that change, if it is known.
        marks: Whether old rows are marked in deletion vectors, and their files are not copied.
    """

    source: IcebergSource
    before: StructType
    writer: IcebergWriter
    after: StructType
    scan: IcebergScan
    kinds: Sequence[ChangeKind]
    decide: Callable[[StructType, DataFrame], DataFrame]
    names: Collection[str] = ()
    returns_all: bool = False
    is_unique: bool = False
    is_whole: bool = False
    searched: Predicate | None = None
    marks: bool = False

    def write(self, staged: StagedFiles, here: Callable[[], HeldRows] | None = None) -> ReplacedFiles:
        """Write the files that replace the files with such rows, and return both.

        Args:
            here: Decides the rows with Arrow, as Spark does. May raise `Unsupported`.
        """
        try:
            if here is not None:
                return self._write_held(here(), staged)
        except Unsupported:
            if is_local(self.source.session()):
                raise
        held = self._hold()
        if held is not None:
            with suppress(Unsupported):
                return self._write_held(held, staged)
        return self._write_by_spark(staged)

    def ensure_held(self) -> None:
        """Check that this process may write new values into copies of the files.

        Raises:
            Unsupported: Spark has to copy them, or checks what is in a value.
        """
        columns = self.columns
        if not can_copy_here(self.source, self.writer, self.scan):
            raise Unsupported("it copies the files of the table")
        is_free = all(is_fully_nullable(field.type) for field in columns) and not has_length_rules(columns)
        if not is_free or self._limits(columns):
            raise Unsupported("the columns have rules for what is in a value")

    # ---- rows that this process holds ---------------------------------------------------------------

    def _hold(self) -> HeldRows | None:
        """Return the rows that Spark decides, with their new values; None if this process cannot hold them."""
        columns, scan = self.columns, self.scan
        at_most = sum(file.rows for file in scan.files) if self.is_whole else None
        is_large = at_most is not None and at_most > most_rows(columns, LONGEST[-1])
        if not self._writes or is_large or not can_copy_here(self.source, self.writer, scan):
            return None
        with translate_spark_errors():
            decided = self._decide(columns)
            keys = [location_key(uri) for uri in to_uris(file.path for file in scan.files)]
            is_broken = breaks_a_rule(columns, ICEBERG, {}, self._limits(columns))
            return hold_rows(decided, columns, self.kinds, is_broken, keys, at_most)

    def _write_held(self, held: HeldRows, staged: StagedFiles) -> ReplacedFiles:
        """Write copies of the files with held rows.

        Raises:
            Unsupported: Spark has to copy a file.
        """
        if self.is_unique and (count := held.repeated):
            raise AmbiguousMerge(count=count)
        if not held.total:
            return ReplacedFiles()
        touched = with_keys(self.scan, held.keys)
        deleted = deleted_positions(self.source, touched)
        if deleted is None:
            raise Unsupported("it copies the files of the table")
        added = [RowPart(partial(iter, [_filled(held.added, self.writer.schema)]))] if len(held.added) else []
        changed = ChangedRows(held.replaced(touched), added)
        if self.marks:
            return self._mark_held(held, touched, changed, deleted, staged)
        written = self._copy(touched, held.deleted(touched), changed, deleted, staged)
        removed = self._entries(touched)
        more = held.count(ChangeKind.INSERT) - held.count(ChangeKind.DELETE) - sum(map(len, deleted.values()))
        _ensure_count(self.writer.count_rows(written), sum(each.record_count for each in removed) + more)
        return ReplacedFiles(removed, written, held.total)

    def _mark_held(
        self,
        held: HeldRows,
        touched: IcebergScan,
        changed: ChangedRows,
        deleted: Mapping[str, BitMap64],
        staged: StagedFiles,
    ) -> ReplacedFiles:
        """Write held rows to files of their own, and deletion vectors that have the old ones."""
        gone, others = dict[str, BitMap64](), dict[str, BitMap64]()
        for file in touched.files:
            updated = changed.replaced.get(file.path)
            old = BitMap64() if updated is None else to_bitmap(updated[ROW])
            others[file.path] = BitMap64(range(file.rows)) - old
            gone[file.path] = old | deleted.get(file.path, BitMap64())
        for path, rows in held.deleted(touched).items():
            gone[path] |= rows
        written: list[IcebergFile] = []
        if changed.replaced or changed.added:
            written = self._copy(touched, others, changed, deleted, staged)
        _ensure_count(self.writer.count_rows(written), held.count(ChangeKind.INSERT, ChangeKind.UPDATE))
        marked = mark_deleted(self.source, self.writer, touched, gone, staged)
        return ReplacedFiles(marked.removed, written, held.total, marked.vectors)

    def _copy(
        self,
        scan: IcebergScan,
        marked: Mapping[str, BitMap64],
        changed: ChangedRows,
        deleted: Mapping[str, BitMap64],
        staged: StagedFiles,
    ) -> list[IcebergFile]:
        """Write copies of files without marked rows.

        Raises:
            Unsupported: Spark has to copy a file.
        """
        written = copy_unmarked(self.source, self.writer, scan, marked, changed=changed, deleted=deleted)
        if written is None:
            raise Unsupported("it copies the files of the table")
        staged.add_undo(lambda: self.writer.discard(written))
        return written

    # ---- rows that Spark writes ---------------------------------------------------------------------

    def _write_by_spark(self, staged: StagedFiles) -> ReplacedFiles:
        """Write the new rows with Spark, and copy the other rows of their files with Arrow if it can."""
        find_unreadable(self.source.point.metadata.schema()).ensure_kept()
        if has_row_lineage(self.source.point.metadata) and not self._keeps_ids:
            old, new = (StructType((*each, *LINEAGE)) for each in (self.before, self.after))
            ensure_names_distinct(new, self.source.point.metadata.location)
            keeping = replace(self, before=old, after=new, writer=self.writer.with_lineage())
            return keeping._write_by_spark(staged)
        writer, scan = self.writer, self.scan
        written: list[IcebergFile] = []
        staged.add_undo(lambda: writer.discard(written))
        if self.is_whole:
            written += writer.write(self._all_rows(scan))
            return self._replace_all(written)
        with ExitStack() as persisted:
            with translate_spark_errors():
                changed = self._decide(self._written)
                if not self.returns_all and (self._writes or self.is_unique):
                    # Another evaluation of a source that is not deterministic could decide otherwise.
                    persisted.callback(unpersist, changed.persist())
                words = _mark(changed, self.kinds)
                held = words.toArrow() if are_few_words(scan) else None
                if held is None and not self.returns_all:
                    persisted.callback(unpersist, words.persist())
                found = _sum_words(words, held, self.kinds)
            if self.is_unique and any(row[0] is not None and row[2] != row[3] for row in found):
                refuse_several_matches(changed)
            tally = {row[0]: Counter({at: count for at, count in enumerate(row[4:]) if count}) for row in found}
            total = sum(tally.values(), Counter[int]())
            # A matched row that no clause changes also has a number, but no clause.
            touched = with_keys(scan, {key for key, each in tally.items() if key and self._count(each, *_REMOVING)})
            removed, fresh = self._entries(touched), self._count(total, ChangeKind.UPDATE, ChangeKind.INSERT)
            if not removed and not fresh:
                return ReplacedFiles()
            if self.marks and held is not None:
                replaced = self._mark(changed if fresh else None, touched, by_path(touched, to_bitmaps(held)), staged)
                if replaced is not None:
                    written += replaced.written
                    _ensure_count(writer.count_rows(written), fresh)
                    return replace(replaced, rows=total)
            before, copies = sum(each.record_count for each in removed), None
            if held is not None and (not self.returns_all or fresh <= _FEW * before):
                copies = copy_unmarked(self.source, writer, touched, by_path(touched, to_bitmaps(held)))
            if copies is not None:
                written += copies
                if fresh:
                    rows = self._new_rows(changed)
                    written += writer.write(rows.repartition(1) if self.returns_all else rows)
            elif self.returns_all:
                written += writer.write(self._all_rows(touched))
            else:
                marked = words if held is None else self.source.spark.createDataFrame(held)
                frames = [self._new_rows(changed)] if fresh else []
                frames += [self._unmarked_rows(touched, marked, sum(row[1] for row in found))] if removed else []
                written += writer.write(reduce(DataFrame.unionAll, frames))
        copied, expected = writer.count_rows(written) - fresh, before - self._count(total, *_REMOVING)
        # Only readers of other writers' deletes know how many rows the deletes remove.
        if copied < 0 or not touched.deletes:
            _ensure_count(copied, expected)
        return ReplacedFiles(removed, written, total)

    def _mark(
        self, changed: DataFrame | None, scan: IcebergScan, lost: Mapping[str, BitMap64], staged: StagedFiles
    ) -> ReplacedFiles | None:
        """Write new rows with Spark, and deletion vectors of lost rows; None if there are too many."""
        known = deleted_positions(self.source, scan)
        if known is None:
            return None
        written = [] if changed is None else self.writer.write(self._new_rows(changed))
        gone = {path: rows | known.get(path, BitMap64()) for path, rows in lost.items()}
        marked = mark_deleted(self.source, self.writer, scan, gone, staged)
        return ReplacedFiles(marked.removed, written, vectors=marked.vectors)

    def _replace_all(self, written: Sequence[IcebergFile]) -> ReplacedFiles:
        removed, count = self._entries(self.scan), self.writer.count_rows(written)
        # Only readers of other writers' deletes know how many rows the deletes remove.
        if not self.scan.deletes:
            _ensure_count(count, sum(each.record_count for each in removed))
        return ReplacedFiles(removed, written, Counter({0: count}))

    def _decide(self, columns: StructType) -> DataFrame:
        """Return the rows that change, with some columns."""
        decided = keep_decided_rows(self.decide(columns, self._rows(self.scan, self.searched)))
        return decided.select(FILE, ROW, CLAUSE, *map(quote_name, columns.names))

    def _rows(self, scan: IcebergScan, predicate: Predicate | None = None) -> DataFrame:
        if self._keeps_ids:
            schema = StructType(self.before.fields[: -len(LINEAGE)])
            return read_lineage(self.source, schema, scan, predicate)
        return read_iceberg_files(self.source, self.before, scan, predicate, place=(FILE, ROW))

    def _new_rows(self, changed: DataFrame) -> DataFrame:
        changed = changed.where(F.col(CLAUSE).isin(self._writing))
        return self._check(self._with_ids(changed).select(*self._names))

    def _all_rows(self, scan: IcebergScan) -> DataFrame:
        """Return what the files have after the change, if it returns all rows."""
        judged = self.decide(self.before, self._rows(scan))
        if self._writes:
            return self._check(self._with_ids(judged).select(*self._names))
        kept = judged.where(F.col(CLAUSE).isNull())
        return fill_missing_columns(kept.drop(FILE, ROW, CLAUSE), self.after, ICEBERG)

    def _unmarked_rows(self, scan: IcebergScan, words: DataFrame, count: int) -> DataFrame:
        """Return the rows of files that no word marks."""
        marked = words.where(F.col(MASK).isNotNull())
        kept = without_marked(self._rows(scan), F.broadcast(marked) if count <= BROADCAST_ROWS else marked)
        return fill_missing_columns(kept.drop(FILE, ROW), self.after, ICEBERG).select(*self._names)

    def _with_ids(self, rows: DataFrame) -> DataFrame:
        """Return decided rows whose ids are right: an updated row keeps its own, and a new one gets one later.

        Source: Iceberg's table specification, "Row Lineage"
        """
        if not self._keeps_ids:
            return rows
        kept = [at for at, kind in enumerate(self.kinds) if kind is not ChangeKind.INSERT]
        is_old, is_same = F.col(CLAUSE).isNull() | F.col(CLAUSE).isin(kept), F.col(CLAUSE).isNull()
        return rows.withColumns(
            {name: F.when(is_kept, F.col(name)) for name, is_kept in zip(LINEAGE.names, (is_old, is_same), strict=True)}
        )

    @property
    def _keeps_ids(self) -> bool:
        """Whether the rows that Spark writes have the columns of `LINEAGE`."""
        return LINEAGE.fields[0] in self.before.fields

    def _check(self, rows: DataFrame) -> DataFrame:
        return check_iceberg_rows(rows, self.after, self.writer.partition_by)

    # ---- both ---------------------------------------------------------------------------------------

    def _entries(self, scan: IcebergScan) -> list[DataFile]:
        """Return the files of a scan, as the snapshot lists them."""
        paths, point = {file.path for file in scan.files}, self.source.point
        return [each.data_file for each in live_entries(point.metadata, self.source.io, point.snapshot, paths)]

    def _limits(self, schema: StructType) -> Mapping[str, str]:
        fields = [field for field in self.writer.partition_by if field.is_of(schema.names)]
        return value_limits(fields, schema)

    def _count(self, counts: Counter[int], *kinds: ChangeKind) -> int:
        return sum(count for at, count in counts.items() if self.kinds[at] in kinds)

    @property
    def columns(self) -> StructType:
        return StructType(tuple(field for field in self.writer.schema if field.name in self.names))

    @property
    def _writing(self) -> list[int]:
        """The clauses that write rows."""
        return [at for at, kind in enumerate(self.kinds) if kind is not ChangeKind.DELETE]

    @property
    def _writes(self) -> bool:
        return bool(self._writing)

    @property
    def _written(self) -> StructType:
        """The columns of new rows."""
        return self.after if self._writes else StructType(())

    @property
    def _names(self) -> list[str]:
        return [quote_name(name) for name in self.after.names]


def _ensure_count(found: int, expected: int) -> None:
    if found != expected:
        raise JobFailed(reason=f"{found} rows were written instead of {expected}")


def _filled(rows: pa.Table, schema: StructType) -> pa.Table:
    """Return new rows with null in the columns that they lack."""
    names, types = rows.schema.names, ((field.name, field.type) for field in schema)
    return pa.table(
        {name: rows[name] if name in names else pa.nulls(len(rows), to_arrow(kind)) for name, kind in types}
    )


def _mark(changed: DataFrame, kinds: Sequence[ChangeKind]) -> DataFrame:
    """Return bitmap words of the rows that a change removes, with the numbers of decided rows, in all and by clause."""
    removes = F.col(CLAUSE).isin([at for at, kind in enumerate(kinds) if kind is not ChangeKind.INSERT])
    counts = [F.count_if(F.col(CLAUSE) == at).alias(f"{_ROWS}_{at}") for at in range(len(kinds))]
    return mark_rows(changed, removes, F.count(F.lit(1)).alias(_ROWS), *counts)


def _sum_words(words: DataFrame, held: pa.Table | None, kinds: Sequence[ChangeKind]) -> list[tuple[Any, ...]]:
    """Return the key of each file with the number of its marked words and the sums of the numbers of its words."""
    columns = [_ROWS, DISTINCT, *(f"{_ROWS}_{at}" for at in range(len(kinds)))]
    if held is None:
        sums = words.groupBy(FILE).agg(F.count(MASK), *map(F.sum, columns))
        return [tuple(row) for row in sums.collect()]
    wanted = [(MASK, "count"), *((name, "sum") for name in columns)]
    table = held.group_by(FILE).aggregate(wanted)
    ordered = [table[FILE], *(table[f"{name}_{function}"] for name, function in wanted)]
    return [*zip(*(column.to_pylist() for column in ordered), strict=True)]


# Remove the rows that a batch replaces.


def remove_replaced_iceberg_rows(
    replaced: ReplacedRows,
    io: FileIO,
    point: ReadPoint,
    schema: StructType,
    writer: IcebergWriter,
    staged: StagedFiles,
) -> ReplacedFiles:
    """Rewrite the files that have rows to remove, without these rows; nothing is committed.

    Args:
        point: The snapshot to remove them from, with the metadata of the commit.
    """
    if point.snapshot is None:
        return ReplacedFiles()
    keys = replaced.keys
    if keys is None:
        return ReplacedFiles([entry.data_file for entry in live_entries(point.metadata, io, point.snapshot)])
    columns = [field for name in replaced.columns if (field := schema.find(name)) is not None]
    if len(columns) < len(replaced.columns):  # no row of the table has a key yet
        return ReplacedFiles()
    searched, names = key_predicate(columns, keys), [quote_name(name) for name in replaced.columns]
    scan = plan_scan(point, io, searched)
    if not scan.files:
        return ReplacedFiles()

    def decide(_: StructType, rows: DataFrame) -> DataFrame:
        return semi_join_keys(rows, names, keys).withColumn(CLAUSE, F.lit(0))

    source = IcebergSource(lambda: replaced.spark, io, point)
    kinds = (ChangeKind.DELETE,)
    marks = marks_rows(point.metadata, "delete")
    change = RowChange(source, schema, writer, schema, scan, kinds, decide, searched=searched, marks=marks)
    return change.write(staged)
