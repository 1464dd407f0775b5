"""Segments of the record of loads, and the question of which files of a listing a table has loaded.

A segment is a Parquet file. Its rows are loaded source files, sorted by their canonical paths, and after them one row
for each load. So a question about some paths decodes only the row groups that can have them: its memory is bounded by
`MAX_SEGMENTS`, `MAX_GROUPS` and the batch of files that it is asked about, whatever the table has loaded.

Source: docs/guide/files.md#record
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.log.file_list import canonical_path
from widen.model.value_classes import dataclass


class LoadedFile(msgspec.Struct, frozen=True, array_like=True):
    """A source file as it was when it was loaded.

    Args:
        modified_ms: The time of its last modification, in ms since 1970 UTC.
        content: A hash of its content; empty if it was not computed.
        parked: Why the file was not loaded: the limit that a batch with it is over; empty for other files.
    """

    path: str
    size_bytes: int
    modified_ms: int
    content: str = ""
    parked: str = ""

    @property
    def key(self) -> str:
        """The same text for every spelling of the path."""
        return path_key(self.path)

    @property
    def stamp(self) -> tuple[int, int]:
        """What changes when the file is written again: its size and its time."""
        return self.size_bytes, self.modified_ms


def path_key(path: str) -> str:
    """Return the same text for every spelling of the path of a source file.

    Unlike the path of an action it has no escapes, so that a percent sign is a part of the name.
    """
    return canonical_path(path.replace("%", "%25"))


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One commit that loaded source files.

    Args:
        loaded_ms: The time of the load, in ms since 1970 UTC.
        corrupt: The number of lines that are not records, kept in the corrupt-record column.
        quarantined_records: The number of records in the quarantine instead.
        bad_files: The files that could not be read and were skipped, and those that are parked.
    """

    version: int
    loaded_ms: int
    files: tuple[LoadedFile, ...]
    records: int = 0
    corrupt: int = 0
    quarantined_records: int = 0
    bad_files: tuple[LoadedFile, ...] = ()


ROWS = pa.schema(
    [
        ("key", pa.binary()),  # the canonical path; null in the row of a load
        ("path", pa.string()),  # null where it is `file:` and the key
        ("size_bytes", pa.int64()),
        ("modified_ms", pa.int64()),
        ("content", pa.string()),
        ("parked", pa.string()),
        ("is_bad", pa.bool_()),
        ("number", pa.int64()),  # the number of the load: loads are in this order
        ("version", pa.int64()),
        ("loaded_ms", pa.int64()),
        ("records", pa.int64()),  # this and the other counts are null in the row of a file
        ("corrupt", pa.int64()),
        ("quarantined_records", pa.int64()),
    ]
)

GROUP_FILES, MAX_SEGMENT_FILES = 2**14, 2**18
"""The number of files in a row group, and the maximum in a segment: such a segment is never written again."""

MAX_SEGMENTS, MAX_GROUPS = 32, 32
"""The number of segments whose bytes stay in memory, and of row groups: at most 200 MB together, and mostly 20."""

_ANSWERS = ["key", "size_bytes", "modified_ms", "content", "is_bad", "version", "loaded_ms"]
_LOCAL = b"file:"
_STORE_URL = r"^(?:s3|gs|abfss?)://[^/]+(?:/[^/]+)+$"
_OTHER_SPELLING = r"//|/\.\.?/"


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """What a record file says about a segment.

    Args:
        newest_ms: The newest time of modification of its loaded files; 0 if all files are bad.
        crc32: The checksum of the file; None in older records.
    """

    name: str
    files: int
    first: bytes
    last: bytes
    newest_ms: int
    version: int
    loaded_ms: int
    crc32: int | None = None


def to_path_keys(paths: pa.Array) -> pa.Array:
    """Return `path_key` of each path as bytes."""
    if are_local(paths):
        return pc.binary_replace_slice(paths.cast(pa.binary()), 0, len(_LOCAL), b"")
    is_url = pc.match_substring_regex(paths, _STORE_URL)
    if pc.all(is_url, min_count=0).as_py() and not pc.any(pc.match_substring_regex(paths, r"/\.\.?(?:/|$)")).as_py():
        return paths.cast(pa.binary())
    return pa.array([to_key(path) for path in paths.to_pylist()], pa.binary())


def are_local(paths: pa.Array) -> bool:
    """Return whether all paths are on the local disk and have no other spelling, so that their keys differ as well."""
    is_odd = pc.match_substring_regex(paths, _OTHER_SPELLING)
    return bool(pc.all(pc.starts_with(paths, "file:/"), min_count=0).as_py()) and not pc.any(is_odd).as_py()


def to_key(path: str) -> bytes:
    """Return `path_key` as bytes."""
    return path_key(path).encode(errors="surrogateescape")


def folder_key(folder: str) -> bytes:
    """Return what the keys of all files below a folder begin with, also below a whole bucket."""
    return to_key(f"{folder.rstrip('/')}/_")[:-1]


def to_rows(loads: Sequence[Load], number: int) -> pa.Table:
    """Return loads as the rows of a segment.

    Args:
        number: The number of the last load; those before it count down.
    """
    files = [
        (to_key(file.path), file.path, file.size_bytes, file.modified_ms, file.content, file.parked, is_bad, at, load)
        for at, load in enumerate(loads, number - len(loads) + 1)
        for is_bad, some in ((False, load.files), (True, load.bad_files))
        for file in some
    ]
    none = [None] * len(files)
    columns = [
        [row[0] for row in files],
        [None if row[1].encode(errors="surrogateescape") == _LOCAL + row[0] else row[1] for row in files],
        *([row[at] for row in files] for at in range(2, 8)),
        [row[8].version for row in files],
        [row[8].loaded_ms for row in files],
        none,
        none,
        none,
    ]
    of_files = pa.table(columns, schema=ROWS)
    of_loads = [
        {
            "number": at,
            "version": load.version,
            "loaded_ms": load.loaded_ms,
            "records": load.records,
            "corrupt": load.corrupt,
            "quarantined_records": load.quarantined_records,
        }
        for at, load in enumerate(loads, number - len(loads) + 1)
    ]
    return sort_segment(pa.concat_tables([of_files, pa.Table.from_pylist(of_loads, schema=ROWS)]))


def to_loads(rows: pa.Table) -> tuple[Load, ...]:
    """Return the rows of segments as loads, oldest first."""
    files: dict[int, tuple[list[LoadedFile], list[LoadedFile]]] = {}
    is_file = pc.is_valid(rows["key"])
    of_files = rows.filter(is_file)
    keys = (key.decode(errors="surrogateescape") for key in of_files["key"].to_pylist())
    paths = (path or f"file:{key}" for path, key in zip(of_files["path"].to_pylist(), keys, strict=True))
    columns = [of_files[name].to_pylist() for name in ("size_bytes", "modified_ms", "content", "parked")]
    numbers, is_bad = of_files["number"].to_pylist(), of_files["is_bad"].to_pylist()
    for number, bad, *values in zip(numbers, is_bad, paths, *columns, strict=True):
        files.setdefault(number, ([], []))[bad].append(LoadedFile(*values))
    loads = []
    for row in rows.filter(pc.invert(is_file)).sort_by("number").to_pylist():
        good, bad = files.get(row["number"], ((), ()))
        counts = {name: row[name] for name in ("version", "loaded_ms", "records", "corrupt", "quarantined_records")}
        loads.append(Load(files=tuple(good), bad_files=tuple(bad), **counts))
    return tuple(loads)


def sort_segment(rows: pa.Table) -> pa.Table:
    """Return rows in the order of a segment."""
    return rows.take(pc.sort_indices(rows, [("key", "ascending"), ("number", "ascending")]))


def split_rows(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of segments that are not too large; the rows of loads are in the last one."""
    files = rows.num_rows - rows["key"].null_count
    while files > MAX_SEGMENT_FILES:
        yield rows.slice(0, MAX_SEGMENT_FILES)
        rows, files = rows.slice(MAX_SEGMENT_FILES), files - MAX_SEGMENT_FILES
    yield rows


def encode_segment(rows: pa.Table) -> bytes:
    """Return sorted rows as the content of a file."""
    files = rows.num_rows - rows["key"].null_count
    encodings = {"key": "DELTA_BYTE_ARRAY", "modified_ms": "DELTA_BINARY_PACKED"}
    texts = [name for name in ROWS.names if name not in encodings]
    target = pa.BufferOutputStream()
    with pq.ParquetWriter(
        target, ROWS, compression="zstd", use_dictionary=texts, column_encoding=encodings, write_statistics=["key"]
    ) as writer:
        writer.write_table(rows.slice(0, files), row_group_size=GROUP_FILES)
        if rows.num_rows > files:
            writer.write_table(rows.slice(files))
    content: bytes = target.getvalue().to_pybytes()
    return content


def describe_segment(name: str, rows: pa.Table, content: bytes) -> Segment:
    """Return what a record file says about a segment with sorted rows and this content."""
    files = rows.num_rows - rows["key"].null_count
    newest = pc.index(rows["number"], pc.max(rows["number"])).as_py()
    return Segment(
        name=name,
        files=files,
        first=rows["key"][0].as_py() or b"",
        last=rows["key"][files - 1].as_py() if files else b"",
        newest_ms=find_newest_ms(rows),
        version=rows["version"][newest].as_py(),
        loaded_ms=rows["loaded_ms"][newest].as_py(),
        crc32=crc32(content),
    )


def find_newest_ms(rows: pa.Table) -> int:
    """Return the newest time of modification of the files that are not bad; 0 without files."""
    return pc.max(rows["modified_ms"].filter(pc.equal(rows["is_bad"], False))).as_py() or 0


def read_segment(data: bytes) -> pa.Table:
    """Return the rows of a segment."""
    return pq.read_table(pa.BufferReader(data), schema=ROWS, use_threads=False)


class SegmentFile:
    """An open segment.

    Args:
        data: Its content: a few MB at most.
        translate: Returns the error for content that cannot be read.
    """

    def __init__(self, data: bytes, translate: Callable[[Exception], Exception]) -> None:
        self._translate = translate
        with self._reading():
            self._file = pq.ParquetFile(pa.BufferReader(data))
            parts = [self._file.metadata.row_group(at).column(0) for at in range(self._file.num_row_groups)]
            self.bounds = [_find_bounds(part) for part in parts]
        """The least and the greatest key of each row group; None for one with the rows of loads."""

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Return some columns of a row group."""
        with self._reading():
            return self._file.read_row_group(group, columns=list(columns), use_threads=False)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise self._translate(error) from error


def _find_bounds(column: pq.ColumnChunkMetaData) -> tuple[bytes, bytes] | None:
    statistics = column.statistics
    if statistics is not None and statistics.null_count == column.num_values:
        return None
    # Arrow writes no bounds of very long keys.
    return (statistics.min, statistics.max) if statistics is not None and statistics.has_min_max else (b"", _ANY_KEY)


_ANY_KEY = b"\xff" * 8
"""Greater than any key, because keys are paths."""

RowFilter = Callable[[pa.Table], pa.Array]
"""Tells by ``version`` and ``loaded_ms`` which rows count."""


@dataclass(frozen=True, slots=True)
class Audits:
    """When sources were last listed as a whole.

    Args:
        times: The time of each source, by its `path_key`, in ms since 1970 UTC.
        note: Notes more of them; None without a record.
    """

    times: Mapping[str, int] = field(default_factory=dict)
    note: Callable[[Mapping[str, int]], None] | None = None


@dataclass
class LoadedFiles:
    """The source files that a version of a table has loaded, and those that were bad.

    Args:
        segments: The segments; the rows of other loads are ``held``.
        audits: When sources were last listed as a whole.
    """

    open: Callable[[Segment], SegmentFile] | None = None
    segments: Sequence[Segment] = ()
    held: pa.Table = field(default_factory=ROWS.empty_table)
    counts: RowFilter | None = None
    audits: Audits = field(default_factory=Audits)

    def __post_init__(self) -> None:
        self._open = lru_cache(maxsize=MAX_SEGMENTS)(self._open_segment)
        self._read = lru_cache(maxsize=MAX_GROUPS)(self._read_group)

    @property
    def is_empty(self) -> bool:
        """Whether no load is recorded."""
        return not self.segments and not self.held.num_rows

    @property
    def newest_load(self) -> tuple[int, int] | None:
        """The version and the time of the newest load; None without loads."""
        loads = self.held.filter(pc.is_null(self.held["key"])).sort_by("number").select(["version", "loaded_ms"])
        if loads.num_rows:
            return loads["version"][-1].as_py(), loads["loaded_ms"][-1].as_py()
        return (self.segments[-1].version, self.segments[-1].loaded_ms) if self.segments else None

    @property
    def loaded_ms(self) -> int:
        """The time of the newest load; 0 without loads."""
        held = pc.max(self.held["loaded_ms"]).as_py() or 0
        return max([held, *(each.loaded_ms for each in self.segments)])

    @property
    def may_be_newest_ms(self) -> int:
        """The newest time of modification of a loaded file, or more if not all loads count."""
        return max([find_newest_ms(self.held), *(each.newest_ms for each in self.segments)])

    @property
    def newest_ms(self) -> int:
        """The newest time of modification of a loaded file; 0 without files."""
        if self.counts is None:
            return self.may_be_newest_ms
        return max((find_newest_ms(rows) for rows in self.rows(["modified_ms", "is_bad"])), default=0)

    def find(self, keys: pa.Array) -> Iterator[pa.RecordBatch]:
        """Yield what is recorded of files.

        Yields:
            Batches with a row for each state of a file: ``at``, its index in the keys, and ``size_bytes``,
            ``modified_ms``, ``content`` and ``is_bad``.
        """
        if not len(keys) or self.is_empty:
            return
        bounds = pc.min_max(keys).as_py()
        for rows in self._groups_between(bounds["min"], bounds["max"]):
            at = pc.index_in(rows["key"], value_set=keys)
            found = rows.append_column("at", at).filter(pc.is_valid(at))
            if found.num_rows:
                yield from self._counted(found).combine_chunks().to_batches()

    def count(self, paths: Sequence[str], stamps: Sequence[tuple[int, int]]) -> list[int]:
        """Return how often each file was loaded with its size and time of modification."""
        keys = [to_key(path) for path in paths]
        files = [(key, *stamp) for key, stamp in zip(keys, stamps, strict=True)]
        counts = dict.fromkeys(files, 0)
        for rows in self.find(pa.array(keys, pa.binary()).unique()):
            some = rows.filter(pc.invert(rows["is_bad"])).select(["key", "size_bytes", "modified_ms"])
            for state in zip(*(column.to_pylist() for column in some.columns), strict=True):
                if state in counts:
                    counts[state] += 1
        return [counts[file] for file in files]

    def find_last(self, folder: str) -> str | None:
        """Return the greatest `path_key` below a folder of a file that was loaded; None without one.

        Of each segment, row groups are read from the last one on, until one has such a file.
        """
        prefix = folder_key(folder)
        last = self._find_last_key(self.held.select(_ANSWERS), prefix)
        for segment in self.segments:
            if segment.last >= max(prefix, last) and segment.first <= prefix + _ANY_KEY:
                last = max(last, self._find_last_in(segment, prefix))
        return last.decode(errors="surrogateescape") or None

    def _find_last_in(self, segment: Segment, prefix: bytes) -> bytes:
        bounds = self._open(segment).bounds
        for group in reversed(range(len(bounds))):
            ends = bounds[group]
            if ends is not None and ends[0] <= prefix + _ANY_KEY and ends[1] >= prefix:
                found = self._find_last_key(self._read(segment, group), prefix)
                if found:
                    return found
        return b""

    def _find_last_key(self, rows: pa.Table, prefix: bytes) -> bytes:
        is_below = pc.and_not(pc.starts_with(rows["key"], prefix), rows["is_bad"])
        return pc.max(self._counted(rows.filter(is_below))["key"]).as_py() or b""

    def rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some columns of all files, a row group at a time."""
        names = [*columns, "key", "version", "loaded_ms"]
        for rows in (self.held.select(names), *self._all_groups(names)):
            yield self._counted(rows.filter(pc.is_valid(rows["key"]))).select(list(columns))

    def _all_groups(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for segment in self.segments:
            file = self._open(segment)
            for group in range(len(file.bounds)):
                yield file.read(group, columns)

    def _counted(self, rows: pa.Table) -> pa.Table:
        return rows if self.counts is None or not rows.num_rows else rows.filter(self.counts(rows))

    def _groups_between(self, first: bytes, last: bytes) -> Iterator[pa.Table]:
        yield self.held.select(_ANSWERS)
        for segment in self.segments:
            if segment.last < first or segment.first > last:
                continue
            for group, ends in enumerate(self._open(segment).bounds):
                if ends is not None and ends[0] <= last and ends[1] >= first:
                    yield self._read(segment, group)

    def _open_segment(self, segment: Segment) -> SegmentFile:
        assert self.open is not None
        return self.open(segment)

    def _read_group(self, segment: Segment, group: int) -> pa.Table:
        return self._open(segment).read(group, _ANSWERS)
