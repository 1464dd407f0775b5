"""Replay: from commits, newest first, and a checkpoint to the files that are live.

The newest word on a file wins. Removed files are remembered by their keys. Added files are not: that no file was
added twice is shown at the end by hashes, and only rows whose hashes meet are compared by their keys.

Source: PROTOCOL.md#action-reconciliation
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from widen.log.block import Block, BlockReader, Piece, pieces
from widen.log.listing import concat, file_keys, filtered


def live_files(
    newest_first: Iterable[Piece], checkpoint: Iterable[pa.RecordBatch] | None, partitions: Sequence[str]
) -> pa.Table:
    """Return the live files.

    Args:
        newest_first: The commits after the checkpoint.
        checkpoint: The rows of the checkpoint, if there is one; nothing in it is said twice.
        partitions: The physical names of the partition columns.

    Returns:
        Rows of `widen.log.listing.FILES`; their order is not promised.

    Raises:
        CorruptLog: a commit or the checkpoint is damaged.
        StorageError: the store refused.

    Source: PROTOCOL.md#action-reconciliation
    """
    tail = _Tail()
    reader = BlockReader(partitions)
    for block in pieces(newest_first):
        tail.take(reader.read(block))
    batches = tail.distinct()
    if checkpoint is not None:
        batches.extend(_untouched(checkpoint, tail.touched(batches)))
    return concat(batches)


class _Tail:
    """What the commits say, newest first."""

    def __init__(self) -> None:
        self._removed: set[str] = set()
        self._batches: list[pa.RecordBatch] = []
        self._hashes: list[pa.Array] = []

    def take(self, block: Block) -> None:
        """Take the next block, which is older than all before."""
        adds = block.adds
        if adds.num_rows == 0:
            self._removed.update(key for _, key in block.removes)
            return
        keys = _keys(adds)
        if self._removed or block.removes:
            keep = self._kept(keys, block.removes)
            adds = filtered(adds, keep)
            keys = [key for key, is_kept in zip(keys, keep, strict=True) if is_kept]
        self._batches.append(adds)
        self._hashes.append(_hashes(keys))

    def _kept(self, keys: Sequence[str], removes: tuple[tuple[int, str], ...]) -> list[bool]:
        keep: list[bool] = []
        at = 0
        for before, removed in removes:
            keep.extend(key not in self._removed for key in keys[at:before])
            self._removed.add(removed)
            at = before
        keep.extend(key not in self._removed for key in keys[at:])
        return keep

    def distinct(self) -> list[pa.RecordBatch]:
        """Return the rows without those that a newer row has replaced."""
        hashes = pa.chunked_array(self._hashes, pa.int64())
        if pc.count_distinct(hashes).as_py() == len(hashes):
            return self._batches
        counts = pc.value_counts(hashes)
        twice = counts.field(0).filter(pc.greater(counts.field(1), 1))
        seen: set[str] = set()
        return [
            _without_replaced(rows, pc.is_in(own, value_set=twice).to_pylist(), seen)
            for rows, own in zip(self._batches, self._hashes, strict=True)
        ]

    def touched(self, batches: Iterable[pa.RecordBatch]) -> set[str]:
        """Return the keys of all files that the commits speak of."""
        return self._removed.union(*(_keys(rows) for rows in batches))


def _hashes(keys: Sequence[str]) -> pa.Array:
    buffer = pa.py_buffer(array("q", map(hash, keys)))
    return pa.Array.from_buffers(pa.int64(), len(keys), [None, buffer])


def _without_replaced(rows: pa.RecordBatch, suspects: Sequence[bool], seen: set[str]) -> pa.RecordBatch:
    keep = []
    for key, is_suspect in zip(_keys(rows), suspects, strict=True):
        keep.append(not is_suspect or key not in seen)
        if is_suspect:
            seen.add(key)
    return filtered(rows, keep)


def _untouched(checkpoint: Iterable[pa.RecordBatch], touched: set[str]) -> Iterator[pa.RecordBatch]:
    for rows in checkpoint:
        yield filtered(rows, [key not in touched for key in _keys(rows)]) if touched else rows


def _keys(rows: pa.RecordBatch) -> list[str]:
    return file_keys(rows.column("path"), rows.column("deletion_vector"))
