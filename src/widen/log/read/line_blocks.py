"""Convert blocks of commit lines to columns: with Arrow's JSON reader where possible, else line by line.

Arrow's JSON reader needs no Python object per line, so it is much faster. It cannot read maps. Partition values are
read as a struct, since the metadata gives their keys. Blocks with tags, and blocks that Arrow rejects, are decoded line
by line; that also finds the damaged line for the error.

Source: PROTOCOL.md#actions
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from widen.log.read.commit_lines import corrupt_log, decode_commit, ensure_complete
from widen.log.read.file_list import (
    DELETION_VECTOR_KEYS,
    FILES,
    STORED_VECTOR,
    file_key,
    file_keys,
    file_rows,
    from_adds,
    key_of,
    text_map,
)
from widen.protocol.actions import Add

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
        columns = [(key_of(name), _TYPES.get(name, pa.int64())) for name in _COLUMNS]
        values = pa.struct([(name, pa.string()) for name in self._partitions])
        add = [*columns, ("partitionValues", values), ("deletionVector", STORED_VECTOR)]
        add += [("clusteringProvider", pa.string()), (_TAGS, pa.struct([]))]  # tags only to detect them
        remove = [("path", pa.string()), ("deletionVector", STORED_VECTOR)]
        schema = pa.schema([("add", pa.struct(add)), ("remove", pa.struct(remove))])
        self._options = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")

    def read(self, block: Sequence[LogPiece]) -> FileActionBlock:
        """Return the file actions of these lines.

        Raises:
            CorruptLog: a line is damaged; the error names file and line.
        """
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
        columns = {name: add.field(positions[key_of(name)]) for name in (*_COLUMNS, "clustering_provider")}
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
    """Tell whether every descriptor has all required fields."""
    non_null = vectors.filter(vectors.is_valid()) if vectors.null_count else vectors
    return not any(non_null.field(key).null_count for key in DELETION_VECTOR_KEYS if key != "offset")


def vector_column(vectors: pa.StructArray) -> pa.Array:
    """Convert descriptors from the names and types on disk to those of the list of files."""
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
