"""Log replay: reduce commits, newest first, and a checkpoint to the live files.

The newest action of a file wins. The keys of removed files are kept in a set. Those of added files are not, since the
set would be as large as the table: only their hashes are kept, and at the end rows with equal hashes are compared by
key.

Source: PROTOCOL.md#action-reconciliation
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa

from widen.log.read.file_list import concat_files, file_keys, filter_rows, integers, use_system_allocator
from widen.log.read.line_blocks import FileActionBlock, FileActionReader, LogPiece, split_into_pieces
from widen.model.lazy_module import import_lazily

pc = import_lazily("pyarrow.compute")

_THREADS = 2
_HASHES_PER_PASS = 1 << 16


def replay_live_files(
    newest_first: Iterable[LogPiece],
    checkpoint: Iterable[pa.RecordBatch] | None,
    partitions: Sequence[str],
    location: str,
) -> pa.Table:
    """Return the live files.

    Args:
        newest_first: The commits after the checkpoint.
        checkpoint: The rows of the checkpoint, if there is one; it holds each file once.
        partitions: The physical names of the partition columns.

    Returns:
        Rows of `widen.log.read.file_list.FILES`; their order is not promised.

    Source: PROTOCOL.md#action-reconciliation
    """
    tail = _CommitTail(location)
    with use_system_allocator():
        for block in _read_ahead(FileActionReader(partitions, location), newest_first):
            tail.add_block(block)
        batches = tail.without_replaced()
        if checkpoint is not None:
            batches.extend(_drop_touched(checkpoint, tail.touched_keys(batches), location))
        return concat_files(batches)


def _read_ahead(reader: FileActionReader, newest_first: Iterable[LogPiece]) -> Iterator[FileActionBlock]:
    """Yield the blocks in order; other threads parse the next ones meanwhile, as Arrow parses without the GIL."""
    pending: deque[Future[FileActionBlock]] = deque()
    with ThreadPoolExecutor(_THREADS, "widen-replay") as pool:
        for block in split_into_pieces(newest_first):
            pending.append(pool.submit(reader.read, block))
            if len(pending) > _THREADS:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class _CommitTail:
    """The file actions of the commits, newest first."""

    def __init__(self, location: str) -> None:
        self._location = location
        self._removed: set[str] = set()
        self._batches: list[pa.RecordBatch] = []
        self._hashes: list[pa.Array] = []

    def add_block(self, block: FileActionBlock) -> None:
        """Add the next block, which must be older than all blocks before it."""
        removes = deque(block.removes)
        first = 0
        for adds in block.adds:
            self._add_rows(adds, removes, first)
            first += adds.num_rows
        self._removed.update(key for _, key in removes)

    def _add_rows(self, adds: pa.RecordBatch, removes: deque[tuple[int, str]], first: int) -> None:
        keys = _keys(adds, self._location)
        if self._removed or removes:
            keep = self._find_kept(keys, removes, first)
            adds = filter_rows(adds, keep)
            keys = [key for key, is_kept in zip(keys, keep, strict=True) if is_kept]
        self._batches.append(adds)
        self._hashes.append(integers(map(hash, keys)))

    def _find_kept(self, keys: Sequence[str], removes: deque[tuple[int, str]], first: int) -> list[bool]:
        """Return, for each row, whether no newer line removes its file.

        Args:
            removes: The pending removes of the block, each with the number of add actions before it.
            first: The number of the first row among the add actions of the block.
        """
        keep: list[bool] = []
        for number, key in enumerate(keys, first):
            while removes and removes[0][0] <= number:
                self._removed.add(removes.popleft()[1])
            keep.append(key not in self._removed)
        return keep

    def without_replaced(self) -> list[pa.RecordBatch]:
        """Return the rows without those that a newer row replaces."""
        repeated = _find_repeated(pa.chunked_array(self._hashes, pa.int64()))
        if len(repeated) == 0:
            return self._batches
        seen: set[str] = set()
        return [
            self._drop_replaced(rows, pc.is_in(hashes, value_set=repeated).to_pylist(), seen)
            for rows, hashes in zip(self._batches, self._hashes, strict=True)
        ]

    def _drop_replaced(self, rows: pa.RecordBatch, suspects: Sequence[bool], seen: set[str]) -> pa.RecordBatch:
        keep = []
        for key, is_suspect in zip(_keys(rows, self._location), suspects, strict=True):
            keep.append(not is_suspect or key not in seen)
            if is_suspect:
                seen.add(key)
        return filter_rows(rows, keep)

    def touched_keys(self, batches: Iterable[pa.RecordBatch]) -> set[str]:
        """Return the keys of all files that the commits add or remove."""
        return self._removed.union(*(_keys(rows, self._location) for rows in batches))


def _find_repeated(hashes: pa.ChunkedArray) -> pa.Array:
    """Return the values that occur more than once.

    Each pass counts one range of values: a hash table of all of them would need as much memory as the file list.
    """
    passes = 1 + len(hashes) // _HASHES_PER_PASS
    edges = [-(2**63) + 2**64 * number // passes for number in range(passes + 1)]
    firsts, lasts, one = integers(edges[:-1]), integers([edge - 1 for edge in edges[1:]]), integers([1])[0]
    repeated = []
    for first, last in zip(firsts, lasts, strict=True):
        part = hashes.filter(pc.and_(pc.greater_equal(hashes, first), pc.less_equal(hashes, last)))
        if pc.count_distinct(part).as_py() < len(part):
            counts = pc.value_counts(part)
            repeated.append(counts.field(0).filter(pc.greater(counts.field(1), one)))
    return pa.chunked_array(repeated, pa.int64())


def _drop_touched(checkpoint: Iterable[pa.RecordBatch], touched: set[str], location: str) -> Iterator[pa.RecordBatch]:
    for rows in checkpoint:
        yield filter_rows(rows, [key not in touched for key in _keys(rows, location)]) if touched else rows


def _keys(rows: pa.RecordBatch, location: str) -> list[str]:
    return file_keys(rows.column("path"), rows.column("deletion_vector"), location)
