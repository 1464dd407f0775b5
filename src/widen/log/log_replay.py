"""Log replay: reduce commits, newest first, and a checkpoint to the live files.

The newest action of a file wins. The keys of removed files are kept in a set. The keys of added files are not, because
the set would be as large as the table: only their hashes are kept, and at the end rows with equal hashes are compared
by key.

Source: PROTOCOL.md#action-reconciliation
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.json as pj

from widen.log.commit_files import corrupt_log, decode_commit, ensure_complete
from widen.log.file_list import (
    DELETION_VECTOR_KEYS,
    FILES,
    STORED_VECTOR,
    action_key,
    concat_files,
    file_key,
    file_keys,
    file_rows,
    filter_rows,
    from_adds,
    integers,
    text_map,
    use_system_allocator,
)
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add

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

    Returns:
        Rows of `widen.log.file_list.FILES`; their order is not promised.

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


# Convert blocks of commit lines to columns: with Arrow's JSON reader where possible, else line by line.
#
# Arrow's JSON reader needs no Python object per line, so it is much faster. It cannot read maps. Partition values
# are read as a struct, since the metadata gives their keys. Blocks with tags, and blocks that Arrow rejects, are
# decoded line by line; that also finds the damaged line for the error.
#
# Source: PROTOCOL.md#actions


BLOCK_BYTES = 1 << 20
_SHORT_RUN = 32
_TAGS = "tags"
_COLUMNS = ("path", "size_bytes", "modification_time_ms", "stats", "base_row_id", "default_row_commit_version")
_TYPES = {"path": pa.string(), "stats": pa.string()}


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Whole lines of one commit file."""

    path: str
    data: bytes


@dataclass(frozen=True, slots=True)
class FileActionBlock:
    """The file actions of a block of lines.

    Args:
        adds: A row for each add action, in the order of the lines, in one or more batches.
        removes: The key of each removed file, with the number of add actions before it.
    """

    adds: tuple[pa.RecordBatch, ...]
    removes: tuple[tuple[int, str], ...]


def split_into_pieces(contents: Iterable[LogPiece]) -> Iterator[list[LogPiece]]:
    """Yield the contents in blocks of about `BLOCK_BYTES`; a longer file is split at line ends."""
    block: list[LogPiece] = []
    size = 0
    for piece in contents:
        ensure_complete(piece.path, piece.data)
        for part in _parts(piece):
            block.append(part)
            size += len(part.data)
            if size >= BLOCK_BYTES:
                yield block
                block, size = [], 0
    if block:
        yield block


def _parts(piece: LogPiece) -> Iterator[LogPiece]:
    data, start = piece.data, 0
    while len(data) - start > 2 * BLOCK_BYTES:
        end = data.find(b"\n", start + BLOCK_BYTES) + 1
        if not end:
            break
        yield LogPiece(piece.path, data[start:end])
        start = end
    yield LogPiece(piece.path, data[start:]) if start else piece


class FileActionReader:
    """Reads the file actions of one table.

    Args:
        partitions: The keys of partition values, which are the physical names of the partition columns.
    """

    def __init__(self, partitions: Sequence[str], location: str) -> None:
        self._partitions, self._location = tuple(partitions), location
        columns = [(action_key(name), _TYPES.get(name, pa.int64())) for name in _COLUMNS]
        values = pa.struct([(name, pa.string()) for name in self._partitions])
        add = [*columns, ("partitionValues", values), ("deletionVector", STORED_VECTOR)]
        add += [("clusteringProvider", pa.string()), (_TAGS, pa.struct([]))]  # tags only to detect them
        remove = [("path", pa.string()), ("deletionVector", STORED_VECTOR)]
        schema = pa.schema([("add", pa.struct(add)), ("remove", pa.struct(remove))])
        self._options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def read(self, block: Sequence[LogPiece]) -> FileActionBlock:
        """Return the file actions of these lines."""
        data = b"".join(piece.data if piece.data.endswith(b"\n") else piece.data + b"\n" for piece in block)
        return self._read_columns(data) or _read_lines(block, self._location)

    def _read_columns(self, data: bytes) -> FileActionBlock | None:
        # One block, since Arrow refuses a line that is longer than a block. Other threads parse other blocks meanwhile.
        options = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        pool = pa.system_memory_pool()
        try:
            if not data.isascii():
                data.decode()  # Arrow does not check the encoding
            table = pj.read_json(pa.BufferReader(data), options, self._options, memory_pool=pool)
        except (pa.ArrowInvalid, UnicodeDecodeError):
            # Arrow does not say which line is damaged, so the lines are read one by one.
            return None
        add, remove = (table.column(name).combine_chunks() for name in ("add", "remove"))
        adds = [self._adds(rows) for rows in _non_null_rows(add)]
        removes = _removes(add, remove, self._location) if remove.null_count < len(remove) else ()
        complete = tuple(rows for rows in adds if rows is not None)
        return FileActionBlock(complete, removes) if removes is not None and len(complete) == len(adds) else None

    def _adds(self, add: pa.StructArray) -> pa.RecordBatch | None:
        """Return the rows; None if one of them lacks a required field or has tags."""
        count = len(add)
        positions = {field.name: number for number, field in enumerate(add.type)}
        columns = {name: add.field(positions[action_key(name)]) for name in (*_COLUMNS, "clustering_provider")}
        values = add.field(positions["partitionValues"])
        required = (columns["path"], columns["size_bytes"], columns["modification_time_ms"], values)
        if any(column.null_count for column in required) or add.field(positions[_TAGS]).null_count < count:
            return None
        columns["partition_values"] = text_map(self._partitions, values.flatten(), count)
        vectors = add.field(positions["deletionVector"])
        if vectors.null_count < count:
            if not _are_complete(vectors):
                return None
            columns["deletion_vector"] = vector_column(vectors)
        return file_rows(columns, count)


def _non_null_rows(add: pa.StructArray) -> list[pa.StructArray]:
    """Return the non-null rows; long runs are sliced, since copying them would cost more than everything else here."""
    if add.null_count == len(add):
        return []
    if add.null_count * _SHORT_RUN > len(add):
        return [add.filter(add.is_valid())]
    gaps = [-1, *pc.indices_nonzero(add.is_null()).to_pylist(), len(add)]
    return [add.slice(gap + 1, end - gap - 1) for gap, end in itertools.pairwise(gaps) if end - gap > 1]


def _are_complete(vectors: pa.StructArray) -> bool:
    """Return whether every descriptor has all required fields."""
    non_null = vectors.filter(vectors.is_valid()) if vectors.null_count else vectors
    return not any(non_null.field(key).null_count for key in DELETION_VECTOR_KEYS if key != "offset")


def vector_column(vectors: pa.StructArray) -> pa.Array:
    """Convert descriptors from the names and types on disk to the names and types of the list of files."""
    by_name = {field.name: vectors.field(number) for number, field in enumerate(vectors.type)}
    columns = [by_name[key].cast(field.type) for key, field in zip(DELETION_VECTOR_KEYS, _vector_type(), strict=True)]
    return pa.StructArray.from_arrays(columns, fields=list(_vector_type()), mask=vectors.is_null())


def _vector_type() -> pa.StructType:
    return FILES.field("deletion_vector").type


def _removes(add: pa.StructArray, remove: pa.StructArray, location: str) -> tuple[tuple[int, str], ...] | None:
    non_null = remove.filter(remove.is_valid())
    paths = non_null.field(0)
    if paths.null_count or not _are_complete(non_null.field(1)):
        return None
    keys = iter(file_keys(paths, non_null.field(1), location))
    removes = []
    adds = 0
    for is_add, is_remove in zip(add.is_valid().to_pylist(), remove.is_valid().to_pylist(), strict=True):
        if is_remove:
            removes.append((adds, next(keys)))
        adds += is_add
    return tuple(removes)


def _read_lines(block: Sequence[LogPiece], location: str) -> FileActionBlock:
    adds: list[Add] = []
    removes: list[tuple[int, str]] = []
    for piece in block:
        for line in decode_commit(piece.path, piece.data):
            if line.remove is not None:
                removes.append((len(adds), file_key(line.remove.path, line.remove.deletion_vector, location)))
            if line.add is not None:
                adds.append(line.add)
    try:
        return FileActionBlock((from_adds(adds),) if adds else (), tuple(removes))
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise corrupt_log(block[0].path, f"a value of an add action cannot be stored ({error})") from error
