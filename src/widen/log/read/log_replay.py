"""Replay: from commits, newest first, and a checkpoint to the files that are live.

The newest word on a file wins. Removed files are remembered by their keys. Added files are not: that no file was
added twice is shown at the end by hashes, and only rows whose hashes meet are compared by their keys.

Source: PROTOCOL.md#action-reconciliation
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from widen.log.read.arrow_memory import use_system_allocator
from widen.log.read.file_list import concat_files, file_keys, filter_rows, integers
from widen.log.read.line_blocks import FileActionBlock, FileActionReader, LogPiece, split_into_pieces
from widen.model.lazy_module import late

pc = late("pyarrow.compute")

_THREADS = 2
_HASHES_IN_TURN = 1 << 16


def replay_live_files(
    newest_first: Iterable[LogPiece],
    checkpoint: Iterable[pa.RecordBatch] | None,
    partitions: Sequence[str],
    location: str,
) -> pa.Table:
    """Return the live files.

    Args:
        newest_first: The commits after the checkpoint.
        checkpoint: The rows of the checkpoint, if there is one; nothing in it is said twice.
        partitions: The physical names of the partition columns.
        location: Where the table lies.

    Returns:
        Rows of `widen.log.read.file_list.FILES`; their order is not promised.

    Raises:
        CorruptLog: a commit or the checkpoint is damaged.
        StorageError: the store refused.

    Source: PROTOCOL.md#action-reconciliation
    """
    tail = _CommitTail(location)
    with use_system_allocator():
        for block in _read_ahead(FileActionReader(partitions, location), newest_first):
            tail.take(block)
        batches = tail.distinct()
        if checkpoint is not None:
            batches.extend(_untouched(checkpoint, tail.touched(batches), location))
        return concat_files(batches)


def _read_ahead(reader: FileActionReader, newest_first: Iterable[LogPiece]) -> Iterator[FileActionBlock]:
    """Yield the blocks in their order; while one is taken, the next ones are read by other threads."""
    waiting: deque[Future[FileActionBlock]] = deque()
    with ThreadPoolExecutor(_THREADS, "widen-replay") as pool:
        for block in split_into_pieces(newest_first):
            waiting.append(pool.submit(reader.read, block))
            if len(waiting) > _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class _CommitTail:
    """What the commits say, newest first."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._removed: set[str] = set()
        self._batches: list[pa.RecordBatch] = []
        self._hashes: list[pa.Array] = []

    def take(self, block: FileActionBlock) -> None:
        """Take the next block, which is older than all before."""
        removes = deque(block.removes)
        at = 0
        for adds in block.adds:
            self._take_adds(adds, removes, at)
            at += adds.num_rows
        self._removed.update(key for _, key in removes)

    def _take_adds(self, adds: pa.RecordBatch, removes: deque[tuple[int, str]], at: int) -> None:
        keys = _keys(adds, self._location)
        if self._removed or removes:
            keep = self._kept(keys, removes, at)
            adds = filter_rows(adds, keep)
            keys = [key for key, is_kept in zip(keys, keep, strict=True) if is_kept]
        self._batches.append(adds)
        self._hashes.append(integers(map(hash, keys)))

    def _kept(self, keys: Sequence[str], removes: deque[tuple[int, str]], at: int) -> list[bool]:
        """Tell which rows no newer line has removed.

        Args:
            keys: Of rows, the first of which is the add action number ``at`` of the block.
            removes: What the block removes and has not been taken yet.
            at: How many add actions of the block came before.
        """
        keep: list[bool] = []
        for number, key in enumerate(keys, at):
            while removes and removes[0][0] <= number:
                self._removed.add(removes.popleft()[1])
            keep.append(key not in self._removed)
        return keep

    def distinct(self) -> list[pa.RecordBatch]:
        """Return the rows without those that a newer row has replaced."""
        twice = _find_repeated(pa.chunked_array(self._hashes, pa.int64()))
        if len(twice) == 0:
            return self._batches
        seen: set[str] = set()
        return [
            self._without_replaced(rows, pc.is_in(own, value_set=twice).to_pylist(), seen)
            for rows, own in zip(self._batches, self._hashes, strict=True)
        ]

    def _without_replaced(self, rows: pa.RecordBatch, suspects: Sequence[bool], seen: set[str]) -> pa.RecordBatch:
        keep = []
        for key, is_suspect in zip(_keys(rows, self._location), suspects, strict=True):
            keep.append(not is_suspect or key not in seen)
            if is_suspect:
                seen.add(key)
        return filter_rows(rows, keep)

    def touched(self, batches: Iterable[pa.RecordBatch]) -> set[str]:
        """Return the keys of all files that the commits speak of."""
        return self._removed.union(*(_keys(rows, self._location) for rows in batches))


def _find_repeated(hashes: pa.ChunkedArray) -> pa.Array:
    """Return the values that are there more than once; in turns, since a table of all of them would be large."""
    turns = 1 + len(hashes) // _HASHES_IN_TURN
    edges = [-(2**63) + 2**64 * turn // turns for turn in range(turns + 1)]
    firsts, lasts, once = integers(edges[:-1]), integers([edge - 1 for edge in edges[1:]]), integers([1])[0]
    found = []
    for first, last in zip(firsts, lasts, strict=True):
        part = hashes.filter(pc.and_(pc.greater_equal(hashes, first), pc.less_equal(hashes, last)))
        if pc.count_distinct(part).as_py() < len(part):
            counts = pc.value_counts(part)
            found.append(counts.field(0).filter(pc.greater(counts.field(1), once)))
    return pa.chunked_array(found, pa.int64())


def _untouched(checkpoint: Iterable[pa.RecordBatch], touched: set[str], location: str) -> Iterator[pa.RecordBatch]:
    for rows in checkpoint:
        yield filter_rows(rows, [key not in touched for key in _keys(rows, location)]) if touched else rows


def _keys(rows: pa.RecordBatch, location: str) -> list[str]:
    return file_keys(rows.column("path"), rows.column("deletion_vector"), location)
