"""Files that the tasks read themselves: Spark only assigns byte ranges, so no text passes through its JVM.

A row of a raw batch then stands for some ranges of files. On Spark that needs local files, since the tasks have no
credentials for another store.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import bz2
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from itertools import groupby, pairwise
from math import ceil
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from widen.errors import CorruptFile, SourceContentError, WidenError
from widen.json.document import BOM, MAX_RECORD_BYTES, RAISE_RECORD_SIZE, SHORTEN_RECORD, RecordSplitter, split_records
from widen.json.record_path import FoundTexts, RecordFinder, RecordPath
from widen.limits import DRIVER_HEADS, DRIVER_TASK_BYTES, RANGED_FILES
from widen.model.column_path import Path
from widen.model.display import name_file
from widen.model.native_kernel import find_kernel
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, similarity_key
from widen.model.value_classes import dataclass
from widen.sources.listing import SNIFFED_BYTES, SourceFile, SourceFiles, find_other_format, local_path
from widen.sources.remote_files import is_store_url, open_local_file, open_store_file
from widen.spark.engine import Session, is_local, start_tasks
from widen.spark.errors import CONVERT_FILE, RESTORE_FILE, environment_error
from widen.spark.session import is_driver
from widen.spark.spark_types import Column, DataFrame

MAX_WHOLE_FILE_BYTES = 8 * 2**20
"""Maximum size of a file that is read as a whole."""

MIN_TASK_BYTES = 4 * 2**20
"""The minimum number of bytes that is worth a task, as with Spark's own splits."""


_SLOWER = 8
"""Approximately how much longer this process takes without the kernel."""

HEAD_BYTES = 2**20
"""Number of bytes at the beginning of a large file that tell whether it has a record on each line."""


_SAMPLED_FILES, _SAMPLED_BYTES, _MAX_SAMPLED_BYTES = 8, 2**18, 2**28
"""Maximum number of files in a sample, bytes of each file, and bytes of a source that a sample can represent."""

_LOCAL = re.compile(r"file:/+(?=[^/])")

_COMPRESSED = re.compile(r"\.(?:gz|bz2|zst|deflate|lz4|lzo|snappy|br|xz)(?:ip)?$", re.IGNORECASE)
_GROWTH = 8
"""How much larger compressed files become, about."""


ArrowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file that one task reads.

    Args:
        end: The byte after the last.
        is_whole: Whether the bytes are the whole file, in any form; else they are lines.
        limit: Maximum size of a record or a line.
        is_multi_line: Whether records take several lines, in a compressed file of any size.
        is_small: Whether the records of a whole file may have any form; else its first line tells.
    """

    uri: str
    start: int
    end: int
    is_whole: bool = False
    limit: int = MAX_RECORD_BYTES
    is_multi_line: bool = False
    is_small: bool = True

    @property
    def name(self) -> str:
        """The file in rows and reports."""
        return name_file(self.uri)

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed, judging by its name. Its end is then the end of the compressed bytes."""
        return is_packed(self.uri)


def is_small(file: SourceFile) -> bool:
    """Return whether a file is read whole, so that its records may have any form.

    Compressed text is taken for eight times as large, since every reader must decide alike, before it decompresses.
    """
    return file.size_bytes <= (MAX_WHOLE_FILE_BYTES // 8 if file.is_compressed else MAX_WHOLE_FILE_BYTES)


def can_read(spark: Session, files: Sequence[SourceFile]) -> bool:
    """Return whether the tasks can read files themselves."""
    is_here = is_local(spark)
    is_few = is_here or len(files) <= RANGED_FILES
    return is_few and all(_why_unreadable(file, is_here=is_here) is None for file in files)


def why_unreadable(files: Iterable[SourceFile]) -> str | None:
    """Return why this process cannot read files without Spark; None if it can."""
    return next(filter(None, (_why_unreadable(file, is_here=True) for file in files)), None)


def _why_unreadable(file: SourceFile, *, is_here: bool) -> str | None:
    if local_path(file.uri) is None and not (is_here and is_store_url(file.uri)):
        return f"its file systems read {file.path}"
    found = _COMPRESSED.search(file.uri)
    return f"it decompresses {found[0]} files" if found is not None and not is_packed(file.uri) else None


def is_packed(uri: str) -> bool:
    """Return whether the tasks decompress a file while they read it."""
    return uri.lower().endswith((".gz", ".bz2", ".zst"))


def small_ranges(
    spark: Session,
    files: Sequence[SourceFile],
    limit: int = MAX_RECORD_BYTES,
    *,
    is_multi_line: bool = False,
) -> pa.RecordBatch | None:
    """Return files as a raw batch of one row, for a task in this process; None if Spark has to run the tasks.

    A Spark job takes longer than such a task.
    """
    if not are_few(spark, files):
        return None
    ranges = [FileRange(file.uri, 0, file.size_bytes, True, limit, is_multi_line, is_small(file)) for file in files]
    return range_batch(msgspec.json.encode(ranges), RANGES_PART)


def are_few(spark: Session, files: Sequence[SourceFile]) -> bool:
    """Return whether this process reads files faster than a Spark job."""
    size_bytes = sum(file.size_bytes * (_GROWTH if file.is_compressed else 1) for file in files)
    limit = DRIVER_TASK_BYTES if find_kernel() is not None else DRIVER_TASK_BYTES // _SLOWER
    return is_driver(spark) and size_bytes <= limit and can_read(spark, files)


def range_batch(text: bytes, part: int) -> pa.RecordBatch:
    """Return a raw batch of one row, for a task in this process.

    Args:
        text: What the task reads, as JSON.
    """
    return pa.RecordBatch.from_pylist([{TEXT: text, FILE: "", PART: part, WHOLE: False}])


@dataclass(frozen=True, slots=True)
class RangeTasks:
    """A raw batch whose tasks get their ranges with their code, which takes Spark half the time of a query for them.

    Args:
        texts: What each task reads, as JSON.
    """

    spark: Session
    texts: Sequence[bytes]
    part: int

    def mapInArrow(self, function: ArrowFunction, schema: Any) -> DataFrame:
        """Return what a function makes of the raw batch."""
        numbers: DataFrame = start_tasks(self.spark, len(self.texts))
        return numbers.mapInArrow(partial(_map_ranges, function, self.texts, self.part), schema)


RawTexts: TypeAlias = "DataFrame | RangeTasks"
"""A raw batch; see `widen.sources.file_ranges`."""


def to_frame(texts: RawTexts) -> DataFrame:
    """Return a raw batch as a DataFrame."""
    return texts.mapInArrow(iter, RAW_SCHEMA) if isinstance(texts, RangeTasks) else texts


def _map_ranges(
    function: ArrowFunction, texts: Sequence[bytes], part: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return function(range_batch(texts[number], part) for batch in batches for number in batch.column(0).to_pylist())


def read_ranges(
    spark: Session,
    whole: Sequence[SourceFile],
    lined: Sequence[SourceFile],
    partitions: int,
    limit_bytes: int = MAX_RECORD_BYTES,
    *,
    is_multi_line: bool = False,
) -> RangeTasks:
    """Return a raw batch of ranges.

    Args:
        whole: Files that are read as a whole.
        lined: Files with a record on each line.
        partitions: Number of partitions, if there are so many bytes.
        is_multi_line: Whether records take several lines, in compressed files of any size.
    """
    limit = task_bytes((*whole, *lined), partitions)
    ranges = [
        FileRange(file.uri, 0, file.size_bytes, True, limit_bytes, is_multi_line, is_small(file)) for file in whole
    ]
    ranges += [replace_limit(part, limit_bytes) for file in lined for part in split_file(file, limit)]
    return RangeTasks(spark, [msgspec.json.encode(each) for each in pack_ranges(ranges, limit)], RANGES_PART)


def read_here(spark: Session, ranges: Sequence[FileRange], *, prefix: str = "") -> DataFrame:
    """Return ranges of files as a raw batch of their texts, for a session that runs tasks in this process.

    Args:
        prefix: What the URIs of the files begin with in the column `FILE`; by default, what they begin with anyway.
    """
    numbers: DataFrame = start_tasks(spark, len(ranges))
    return numbers.mapInArrow(partial(_read_texts, ranges, prefix), RAW_SCHEMA)


def _read_texts(
    ranges: Sequence[FileRange], prefix: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for part in (ranges[number] for batch in batches for number in batch.column(0).to_pylist()):
        name = _LOCAL.sub(prefix, part.name) if prefix else part.name
        with open_file(part.uri) as file:
            if part.is_whole:
                row = {TEXT: file.read(), FILE: name, PART: 0, WHOLE: True}
                yield pa.RecordBatch.from_pylist([row], schema=_RAW)
                continue
            for lines in read_lines(file, part.start, part.end, limit=part.limit, path=part.uri):
                yield as_raw_records(lines, name, part.start)


def task_bytes(files: Iterable[SourceFile], partitions: int) -> int:
    """Return how many bytes one task reads.

    Args:
        partitions: Number of partitions, if there are so many bytes.
    """
    return max(MIN_TASK_BYTES, ceil(sum(file.size_bytes for file in files) / partitions))


def split_file(file: SourceFile, limit: int) -> list[FileRange]:
    """Return the ranges of a file with lines: as few and as equal as the bytes of a task allow."""
    count = max(1, round(file.size_bytes / limit))
    cuts = [file.size_bytes * number // count for number in range(count + 1)]
    return [FileRange(file.uri, start, end) for start, end in pairwise(cuts)]


def pack_ranges(ranges: Sequence[FileRange], limit: int) -> list[list[FileRange]]:
    """Return the ranges for each task, in order, each about as large as the bytes of a task."""
    tasks: list[list[FileRange]] = []
    free = 0
    for each in ranges:
        size = each.end - each.start
        # At most half of a range exceeds the limit, so that the tasks are about equal without splitting it.
        if not tasks or size // 2 > free:
            tasks.append([])
            free = limit
        tasks[-1].append(each)
        free -= size
    return tasks


def read_range_groups(text: bytes, path: RecordPath | None = None) -> Iterator[TextGroup]:
    """Yield the texts of the ranges of a task.

    Args:
        path: Where large documents have their records.
    """
    for part in msgspec.json.decode(text, type=list[FileRange]):
        yield from _read_range(part, path)


def replace_limit(part: FileRange, limit: int) -> FileRange:
    """Return a range with another maximum size of a line."""
    return msgspec.structs.replace(part, limit=limit)


def _read_range(part: FileRange, path: RecordPath | None) -> Iterator[TextGroup]:
    with open_file(part.uri) as file:
        if part.is_whole:
            yield from _read_whole(file, part, path)
            return
        for lines in read_lines(file, part.start, part.end, limit=part.limit, path=part.uri):
            if not part.start:
                ensure_file_readable(lines[0][:SNIFFED_BYTES], part.uri)
            yield TextGroup(part.name, part.start, False, lines)


def _read_whole(file: BinaryIO, part: FileRange, path: RecordPath | None) -> Iterator[TextGroup]:
    """Yield a file in any form. What is too large to be held is read by lines, or record by record."""
    content = file.read(MAX_WHOLE_FILE_BYTES + 1)
    ensure_file_readable(content[:SNIFFED_BYTES], part.uri)
    if part.is_small and len(content) <= MAX_WHOLE_FILE_BYTES:
        # Below a path, the records are checked, and not their documents.
        is_long = path is None and len(content) > part.limit
        if is_long and any(len(text) > part.limit for text in split_records(content)):
            raise record_too_long(part.uri, 0, part.limit)
        yield TextGroup(part.name, 0, True, [content])
        return
    joined: Any = JoinedFile(content, file)
    if begins_with_line(content[:HEAD_BYTES]) and not part.is_multi_line:
        for lines in read_lines(joined, 0, sys.maxsize, limit=part.limit, path=part.uri):
            yield TextGroup(part.name, 0, False, lines)
        return
    if path is not None:
        yield from map(partial(found_group, part.name), RecordFinder(path, part.limit).stream(joined, part.uri))
        return
    for texts in read_outermost_records(joined, part.uri, part.limit):
        yield TextGroup(part.name, 0, False, texts)


def read_outermost_records(file: Any, path: str = "", limit: int = MAX_RECORD_BYTES) -> Iterator[list[bytes]]:
    """Yield the records of a file that is too large to be held, and the text between them; see `RecordSplitter`."""
    splitter = RecordSplitter(path, limit)
    rest, size = b"", 0
    while block := file.read(BLOCK_BYTES):
        size += len(block)
        *pieces, rest = (rest + block).split(b"}")
        yield [text for piece in pieces for text in splitter.records(piece)]
        if len(rest) > limit:
            raise record_too_long(path, size - len(rest), limit)
    yield [*(splitter.records(rest) if rest else ()), *splitter.rest(size)]


class JoinedFile:
    """A file whose beginning is read already."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
            return block
        return self._file.read(size)


def begins_with_line(head: bytes) -> bool:
    """Return whether the beginning of a file has a line, and it is one JSON value but not an array."""
    line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    return bool(newline) and not line.startswith(b"[") and _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def ensure_file_readable(head: bytes, path: str, encoding: str = "utf-8") -> None:
    """Check that a file is text in its encoding.

    Raises:
        CorruptFile: it has another format; the error names it.
    """
    found = find_other_format(head, encoding)
    if found is not None:
        raise CorruptFile(path=path, reason=found, fix=CONVERT_FILE)


@contextmanager
def open_file(uri: str) -> Iterator[BinaryIO]:
    """Open a file; one with the ending of a compression is decompressed while it is read.

    Raises:
        CorruptFile: its content is damaged, or it does not exist.
    """
    try:
        with open_store_file(uri) if is_store_url(uri) else open_local_file(local_path(uri) or uri) as stored:
            if not is_packed(uri):
                yield stored
                return
            with _decompress(stored, uri) as file:
                yield file
    except (OSError, EOFError, zlib.error) as error:
        failure = environment_error(unquote(uri), error)
        if failure is not None:
            raise failure from error
        reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0].rstrip(".")
        raise CorruptFile(path=uri, reason=reason, fix=RESTORE_FILE) from error


def _decompress(stored: BinaryIO, uri: str) -> Any:
    if uri.lower().endswith(".gz"):
        return gzip.open(stored, "rb")
    return bz2.open(stored, "rb") if uri.lower().endswith(".bz2") else pa.CompressedInputStream(stored, "zstd")


# ---- checks before the batch -----------------------------------------------------------------------


def find_sample_ranges(spark: Session, source: SourceFiles, limit: int = MAX_RECORD_BYTES) -> list[FileRange] | None:
    """Return the first lines of some files, as a sample of the records.

    Returns:
        None if this process cannot read them, or if the tasks of a Spark job would see many more records.
    """
    is_large = source.text_bytes > _MAX_SAMPLED_BYTES
    if is_large or not (is_driver(spark) and can_read(spark, source.files)):
        return None
    if any(file.is_compressed for file in source.files):
        return None
    files = source.files[:: max(1, len(source.files) // _SAMPLED_FILES)][:_SAMPLED_FILES]
    return [FileRange(file.uri, 0, min(file.size_bytes, _SAMPLED_BYTES), limit=limit) for file in files]


def check_heads(spark: Session, files: Sequence[SourceFile], check: Callable[[bytes], bool]) -> list[bool]:
    """Apply a check to the first bytes of each file. One job reads them all, unless there are few files.

    Args:
        check: The check; it runs in the tasks, or in this process.
    """
    ranges, check_file = [FileRange(file.uri, 0, HEAD_BYTES) for file in files], partial(_check_head, check)
    if is_driver(spark) and len(ranges) <= DRIVER_HEADS:
        return [check_range(check_file, part) for part in ranges]
    return check_ranges(spark, ranges, check_file)


def _check_head(check: Callable[[bytes], bool], file: BinaryIO, part: FileRange) -> bool:
    return check(file.read(part.end))


def check_ranges(
    spark: Session, ranges: Sequence[FileRange], check: Callable[[BinaryIO, FileRange], bool]
) -> list[bool]:
    """Apply a check to each range. One job reads them all.

    Args:
        ranges: Ranges of files that `can_read` accepts.
        check: The check; it runs in the tasks.
    """
    if not ranges:
        return []
    numbers = start_tasks(spark, len(ranges), per_task=DRIVER_HEADS)
    rows = numbers.mapInArrow(partial(_check, ranges, check), "id bigint, result boolean").toArrow()
    results: list[bool] = rows.sort_by("id")["result"].to_pylist()
    return results


def _check(
    ranges: Sequence[FileRange], check: Callable[[BinaryIO, FileRange], bool], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        results = [check_range(check, ranges[number]) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(results, pa.bool_())], names=["id", "result"])


def check_range(check: Callable[[BinaryIO, FileRange], bool], part: FileRange) -> bool:
    """Return what a check says of a range."""
    with open_file(part.uri) as file:
        return check(file, part)


# The lines of a range of bytes of a local file, as Spark splits a text file among tasks.
#
# A line belongs to the range that has its first byte. So adjacent ranges have every line once, for any place of the
# cut.
#
# Source: Spark's reader of text files


BLOCK_BYTES = 2**19
"""Number of bytes that are read at once. Larger blocks leave the cache, and the system gets their memory back each
time."""

_LINE_END = re.compile(rb"\r\n|\r|\n")


def read_lines(
    file: BinaryIO,
    start: int,
    end: int,
    block_bytes: int = BLOCK_BYTES,
    *,
    limit: int = MAX_RECORD_BYTES,
    path: str = "",
) -> Iterator[list[bytes]]:
    r"""Yield the lines that begin in a range, without their ends, in lists of adjacent lines.

    Args:
        end: The byte after the range.
    """
    for data in read_line_blocks(file, start, end, block_bytes, limit=limit, path=path):
        yield data.splitlines()


def read_line_blocks(
    file: BinaryIO,
    start: int,
    end: int,
    block_bytes: int = BLOCK_BYTES,
    *,
    limit: int = MAX_RECORD_BYTES,
    path: str = "",
) -> Iterator[bytes]:
    r"""Yield the lines that begin in a range as blocks of whole lines. ``\n``, ``\r\n`` and ``\r`` end a line.

    Args:
        end: The byte after the range.
    """
    offset = 0
    if start:
        offset = _first_line(file, start, block_bytes, limit, path)
        file.seek(offset)
    pending: list[bytes] = []
    waiting = 0
    while offset < end:
        block = file.read(block_bytes)
        if block and not _ends_line(block):
            pending.append(block)
            waiting += len(block)
            if waiting > limit:
                raise record_too_long(path, offset, limit)
            continue
        data = b"".join((*pending, block))
        complete = _complete_bytes(data) if block else len(data)
        if len(data) > limit:
            _ensure_short(data[:complete], offset, limit, path)
        # The last line of a range continues beyond it: its first byte counts.
        own = complete if offset + complete <= end else _next_line(data[:complete], end - offset) or complete
        if own:
            yield data[:own] if offset else data[:own].removeprefix(BOM)
        elif not block:
            return
        offset += complete
        pending, waiting = [data[complete:]], len(data) - complete


def _ensure_short(data: bytes, offset: int, limit: int, path: str) -> None:
    for line in data.splitlines(keepends=True):
        if len(line.rstrip(b"\r\n")) > limit:
            raise record_too_long(path, offset, limit)
        offset += len(line)


def record_too_long(path: str, offset: int | None, limit: int, line: int | None = None) -> WidenError:
    """Return the error for a record or a line that is longer than the limit.

    Args:
        path: The file; empty for texts that are not from files, whose line is not known.
    """
    if not path:
        reason = f"a record is longer than {size_limit_text(limit)}"
        return SourceContentError(source="the source", reason=reason, fix=RAISE_RECORD_SIZE)
    place = f"at byte {offset:,}" if line is None else f"in line {line:,}"
    reason = f"the record {place} is longer than {size_limit_text(limit)}"
    return CorruptFile(path=path, reason=reason, fix=SHORTEN_RECORD)


def size_limit_text(size_bytes: int) -> str:
    """Return a size as a setting spells it."""
    return f"{size_bytes / 2**20:g} MB" if size_bytes >= 2**20 else f"{size_bytes:,} bytes"


def _ends_line(block: bytes) -> bool:
    return b"\n" in block or b"\r" in block


def _complete_bytes(data: bytes) -> int:
    r"""Return where the last complete line ends. A ``\r`` at the end may be half of a ``\r\n``."""
    return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1


def _next_line(data: bytes, at: int) -> int | None:
    """Return where the first line begins at or after a byte that is not the first; None if no line ends before."""
    line_end = _LINE_END.search(data, at - 2 if data[at - 2 : at] == b"\r\n" and at > 1 else at - 1)
    return None if line_end is None else line_end.end()


def _first_line(file: BinaryIO, start: int, block_bytes: int, limit: int, path: str) -> int:
    """Return the start of the first line at or after a byte that is not the first; the size without such a line."""
    file.seek(start - 1)
    data = b""
    while block := file.read(block_bytes):
        data += block
        if len(data) > limit + block_bytes:
            raise record_too_long(path, start, limit)
        begin = _next_line(data, 1)
        if begin is not None and begin < len(data):
            break
    begin = _next_line(data, 1)
    return start - 1 + (len(data) if begin is None else begin)


# Raw batches: the records of files as rows with their JSON texts, and how a task takes them.
#
# A row is a text, or it represents ranges of files; see `widen.sources.file_ranges`.


TEXT, FILE, PART, WHOLE = "text", "file", "part", "whole"
"""The columns of a raw batch: the bytes, their file, the byte where the split of a large file begins, and whether the
bytes are a whole file or one record."""

RAW_SCHEMA = f"{TEXT} binary, {FILE} string, {PART} bigint, {WHOLE} boolean"

_RAW = pa.schema([(TEXT, pa.binary()), (FILE, pa.string()), (PART, pa.int64()), (WHOLE, pa.bool_())])

RANGES_PART, CSV_RANGES_PART, REFUSED_PART, FOUND_PART = -1, -2, -3, -4
"""The values of `PART` in rows whose text is a list of ranges: of JSON, and of CSV with its dialect; in rows with
`RefusedTexts`; and in rows with `FoundTexts`."""


class TextStage(Enum):
    """What a text is, on its way from a source to a record."""

    SOURCE = "source"
    """A document, as the source has it."""
    FOUND = "found"
    """What was found below a path: plain or typed JSON, or an event in its envelope."""
    PLAIN = "plain"
    """An event in its envelope, without the wrappers of a dialect: what looks like one now is a value."""
    RECORD = "record"
    """A record, as the table takes it."""


KEPT_PARTS = {TextStage.SOURCE: -5, TextStage.FOUND: -6, TextStage.RECORD: -7, TextStage.PLAIN: -8}
"""The values of `PART` in rows with a text of a quarantine."""
KEPT_STAGES = {part: stage for stage, part in KEPT_PARTS.items()}


@dataclass(frozen=True, slots=True)
class TextGroup:
    """Adjacent texts of one file.

    Args:
        part: The byte where the split of a large file begins.
        is_whole: Whether each text is a whole file or one record.
        reasons: Why each text is not a record; None if they have to be parsed.
    """

    file: str
    part: int
    is_whole: bool
    texts: list[bytes]
    lines: Sequence[int] | None = None
    reasons: Sequence[str] | None = None
    stage: TextStage = TextStage.SOURCE


def found_group(file: str, found: FoundTexts) -> TextGroup:
    """Return texts below a path as adjacent texts of a file."""
    reasons = [found.reason] * len(found.texts) if found.reason else None
    return TextGroup(file, 0, False, found.texts, reasons=reasons, stage=TextStage.FOUND)


class RefusedTexts(msgspec.Struct, frozen=True, array_like=True):
    """Texts of one file that are not records, as the text of one row of a raw batch."""

    part: int
    texts: list[bytes]
    lines: list[int]
    reasons: list[str]

    def to_raw(self, path: str) -> pa.RecordBatch:
        """Return the texts as a part of a raw batch."""
        row = {TEXT: msgspec.msgpack.encode(self), FILE: path, PART: REFUSED_PART, WHOLE: False}
        return pa.RecordBatch.from_pylist([row])


def read_refused(text: bytes) -> RefusedTexts:
    """Return the texts from a row with `REFUSED_PART`."""
    return msgspec.msgpack.decode(text, type=RefusedTexts)


def split_groups(batch: pa.RecordBatch) -> Iterator[TextGroup]:
    """Yield the texts of an Arrow batch, grouped by file, split and form.

    Args:
        batch: Columns `TEXT`, `FILE`, `PART` and `WHOLE`.
    """
    texts, end = batch.column(TEXT).to_pylist(), 0
    for (file, part, is_whole), rows in _group_rows(batch):
        start, end = end, end + rows
        yield TextGroup(file, part, is_whole, texts[start:end])


def _group_rows(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int, bool], int]]:
    """Yield each group of adjacent rows of the same file, split and form, with its size."""
    columns = [batch.column(name) for name in (FILE, PART, WHOLE)]
    ends = [tuple(column[index].as_py() for column in columns) for index in (0, -1)] if batch.num_rows else []
    if ends and ends[0] == ends[1]:
        yield ends[0], batch.num_rows
        return
    for source, group in groupby(zip(*(column.to_pylist() for column in columns), strict=True)):
        yield source, len(list(group))


def as_raw_records(texts: Sequence[bytes], path: str, part: int = 0) -> pa.RecordBatch:
    """Return JSON texts as a part of a raw batch, one record each.

    Args:
        part: Byte where the split of the texts begins in the file.
    """
    count = len(texts)
    columns = [pa.array(texts, pa.binary()), pa.array([path] * count, pa.string())]
    columns += [pa.array([part] * count, pa.int64()), pa.array([False] * count, pa.bool_())]
    return pa.RecordBatch.from_arrays(columns, names=[TEXT, FILE, PART, WHOLE])


# The names that Spark uses for the fields of typed records.
#
# In most sessions Spark does not distinguish field names that differ only in case. If a record has such names, its
# fields are named by their positions while Spark reads it.
#
# Source: docs/evolution-rules.md#d9, #d16


Typed: TypeAlias = tuple[Column, DataType]
"""Values with their type; `with_field_steps` returns the names of record fields."""


def field_steps(record: StructType) -> list[str]:
    """Return the names that Spark uses for the fields of a record."""
    is_plain = len({similarity_key(name) for name in record.names}) == len(record.fields)
    return list(record.names) if is_plain else [str(position) for position in range(len(record.fields))]


def with_field_steps(data_type: DataType) -> DataType:
    """Return a type with these names in all its records."""
    match data_type:
        case StructType(fields):
            names = field_steps(data_type)
            return StructType(
                tuple(Field(name, with_field_steps(f.type)) for name, f in zip(names, fields, strict=True))
            )
        case ArrayType(element):
            return ArrayType(with_field_steps(element))
        case MapType(key, value):
            return MapType(key, with_field_steps(value))
    return data_type


def fields_of(values: Column, data_type: StructType) -> dict[str, Typed]:
    """Return the fields of records in a column, by their names in the source."""
    named = zip(data_type, field_steps(data_type), strict=True)
    return {field.name: (values.getField(name), field.type) for field, name in named}


def duplicate_fields(data_type: DataType, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of fields with exactly the same name as another field of their record."""
    match data_type:
        case StructType(fields):
            names: set[str] = set()
            for field in fields:
                if field.name in names:
                    yield (*path, field.name)
                names.add(field.name)
                yield from duplicate_fields(field.type, (*path, field.name))
        case ArrayType(inner) | MapType(_, inner):
            yield from duplicate_fields(inner, path)
