"""The loop that copies rows of data files to new files with Arrow: in this process, or in tasks of Spark.

Compaction, rewrites and changes of rows say which files are copied together, how a file is read, and where its rows are
written. No row passes through Java.

Source: PROTOCOL.md#add-file-and-remove-file; Iceberg's table specification, "Row-level Deletes": copy-on-write
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

import pyarrow as pa

from widen.errors import StorageError, WidenError
from widen.files.data_writer import PartFile, RowWriter
from widen.limits import COPIED_BYTES, SOURCE_BYTES
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import LogStore
from widen.model.display import size_text
from widen.model.value_classes import dataclass
from widen.spark.engine import Session, Unsupported, as_unsupported, can_start, is_local, require_spark
from widen.spark.errors import environment_error, translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import SparkSession

T = TypeVar("T")
R = TypeVar("R")


Arrange = Callable[[int, pa.Table], Iterable[pa.Table]]
"""Returns all rows of files, given their size in bytes, in their new order: tables that become a file each."""


@dataclass(frozen=True, slots=True)
class CopyGroup(Generic[T]):
    """Files that one task copies.

    Args:
        job: A new folder for the copies, relative to the table.
        files: The files; files with the same key are next to each other.
    """

    job: str
    files: Sequence[T]


@dataclass(frozen=True, slots=True)
class FileCopier(Generic[T]):
    """How tasks copy files. Picklable."""

    store: LogStore
    read: Callable[[T], Iterator[pa.Table]]
    open: Callable[[T, str], RowWriter]
    key: Callable[[T], Hashable]
    size: Callable[[T], int]
    arrange: Arrange | None = None

    def copy(self, group: CopyGroup[T]) -> list[PartFile]:
        """Copy the files of a group, and return the copies.

        Raises:
            Unsupported: only Spark reads the files exactly; nothing is left of what was written.
        """
        parts: list[PartFile] = []
        with ExitStack() as undo:
            undo.callback(self._discard, parts)
            try:
                with as_unsupported(pa.ArrowException):  # Spark may read the file, or says what is wrong
                    for _, files in groupby(group.files, self.key):
                        parts += self._copy_together(list(files), group.job)
            except OSError as error:
                raise environment_error(self.store.location, error) or error from error
            undo.pop_all()
        return parts

    def _discard(self, parts: Sequence[PartFile]) -> None:
        # Not the folder: Spark may run the task twice at the same time, and take the copies of the other run.
        with suppress(StorageError):
            self.store.delete([part.path for part in parts])

    def _copy_together(self, files: Sequence[T], job: str) -> Iterator[PartFile]:
        tables = (rows for file in files for rows in self.read(file))
        if self.arrange is None:
            yield from self._write(files[0], job, tables)
        elif parts := list(tables):
            for rows in self.arrange(sum(map(self.size, files)), pa.concat_tables(parts)):
                yield from self._write(files[0], job, [rows])

    def _write(self, file: T, job: str, tables: Iterable[pa.Table]) -> list[PartFile]:
        writer = self.open(file, job)
        try:
            for batch in (batch for rows in tables for batch in rows.to_batches()):
                writer.write(batch)
            return writer.close()
        except BaseException:
            writer.discard()
            raise


Copies = list[PartFile] | Unsupported
"""The copies of a group, or why only Spark can make them."""


def copy_groups(
    copier: FileCopier[Any], groups: Sequence[CopyGroup[Any]], session: Callable[[], Session], threads: int
) -> list[Copies]:
    """Copy files in this process or in tasks, and return the copies of each group in their order.

    If this fails, the copies are deleted where the store allows it.
    """
    total = sum(copier.size(file) for group in groups for file in group.files)
    with ExitStack() as undo:
        for group in groups:
            undo.callback(discard_folder, copier.store, group.job)
        if total <= COPIED_BYTES or _stays_here(session(), total):
            done = map_in_threads(partial(_copy_or_refuse, copier), groups, threads=min(threads, max(1, len(groups))))
        else:
            reason = f"the files to copy have {size_text(total)}, more than {size_text(SOURCE_BYTES)}"
            done = _copy_in_tasks(copier, groups, require_spark(session(), reason))
        undo.pop_all()
    return done


def all_or_none(
    store: LogStore, groups: Sequence[CopyGroup[Any]], found: Sequence[list[R] | Unsupported]
) -> list[R] | None:
    """Return the copies of all groups; None if only Spark can make some, and then no copy is left."""
    if any(isinstance(each, Unsupported) for each in found):
        for group in groups:
            discard_folder(store, group.job)
        return None
    return [copy for each in found if not isinstance(each, Unsupported) for copy in each]


def split_by_size(items: Iterable[T], size: Callable[[T], int], most: int) -> list[list[T]]:
    """Return items in at most so many groups of about the same size."""
    ordered = sorted(items, key=size, reverse=True)
    groups: list[list[T]] = [[] for _ in range(min(most, len(ordered)))]
    sizes = [0] * len(groups)
    for item in ordered:
        number = sizes.index(min(sizes))
        groups[number].append(item)
        sizes[number] += size(item)
    return groups


def map_in_threads(function: Callable[..., R], *items: Iterable[Any], threads: int) -> list[R]:
    """Return what a function returns for each item; after an error it is not called for the others."""
    with ThreadPoolExecutor(threads, "widen-copy") as pool:
        try:
            return list(pool.map(function, *items))
        except BaseException:
            # Leaving the block waits for all calls, also for those that have not begun.
            pool.shutdown(cancel_futures=True)
            raise


def _stays_here(session: Session, total_bytes: int) -> bool:
    """Return whether this process also copies larger files: it reads and writes them piece by piece."""
    return is_local(session) and (total_bytes <= SOURCE_BYTES or not can_start(session))


def _copy_or_refuse(copier: FileCopier[Any], group: CopyGroup[Any]) -> Copies:
    try:
        return copier.copy(group)
    except Unsupported as refusal:
        return refusal


def _copy_in_tasks(copier: FileCopier[Any], groups: Sequence[CopyGroup[Any]], spark: SparkSession) -> list[Copies]:
    texts = pa.table({"number": range(len(groups)), "files": [pickle.dumps(group) for group in groups]})
    with translate_spark_errors():
        frame = spark.createDataFrame(texts).repartition(len(groups))
        rows = frame.mapInArrow(partial(_copy_task, copier), "number bigint, copies binary").collect()
    done: dict[int, Copies] = {}
    for row in rows:
        result = pickle.loads(row.copies)
        if isinstance(result, WidenError):
            raise result
        done[row.number] = result
    for number, group in enumerate(groups):  # Spark may have run a task twice
        kept = done[number]
        discard_folder(copier.store, group.job, () if isinstance(kept, Unsupported) else {part.path for part in kept})
    return [done[number] for number in range(len(groups))]


def _copy_task(copier: FileCopier[Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Copy the groups of a task, and yield the copies, or the error: raised, it would be the error of a Spark job."""
    freeze_imports()
    for batch in batches:
        for number, group in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            try:
                result: Copies | WidenError = _copy_or_refuse(copier, pickle.loads(group))
            except WidenError as error:
                result = error
            yield pa.RecordBatch.from_pydict({"number": [number], "copies": [pickle.dumps(result)]})
