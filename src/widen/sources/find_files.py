"""The files that paths name, a batch of them at a time.

A listing is streamed: of a folder with a million files, only those stay in memory that a load takes. The batches have
the files of neighbouring folders, so that the record of loads finds them in few places.

Source: docs/guide/files.md
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from itertools import accumulate, chain, islice
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import CorruptFile, InvalidOption, OptionConflict, SourceChanged, SourceError, StorageError
from widen.log.load_segments import folder_key, to_key
from widen.model.display import Progress, no_progress
from widen.model.value_classes import dataclass
from widen.sources.listing import (
    FileFormat,
    SourceFile,
    SourceFiles,
    as_literal,
    escape_path,
    find_ending,
    find_state,
    list_source_files,
    local_path,
    to_source_error,
    to_source_files,
    unusable_source,
)
from widen.sources.places import (
    LISTS,
    before_pattern,
    ensure_no_table,
    expand_local,
    has_linked_folder,
    is_elsewhere,
    is_hidden,
    looking_at,
    to_local,
)
from widen.sources.remote_files import find_states, is_store_url, list_store_files
from widen.spark.engine import Session, can_start, is_local, require_spark
from widen.spark.errors import translate_spark_errors
from widen.spark.session import is_driver
from widen.spark.spark_types import DataFrame, SparkSession, spark_errors

FILES = pa.schema(
    [("path", pa.string()), ("size_bytes", pa.int64()), ("modified_ms", pa.int64()), ("uri", pa.string())]
)
"""The fields of a `SourceFile`; the URI is null where `escape_path` gives it."""

BATCH_FILES = 2**15
"""The number of files in a batch of a listing: about 4 MB."""

Keep: TypeAlias = Callable[[pa.RecordBatch], pa.Array]
"""Tells which files of a listing a load takes."""


@dataclass(frozen=True, slots=True)
class ListingOptions:
    """Which files of a listing to return.

    Args:
        may_be_empty: Whether a source may have no files, or only empty ones.
        find_last: Finds the path after whose name a folder is listed; None to list everything.
        named: The URLs of objects to look at one by one, instead of a listing.
    """

    may_be_empty: bool = False
    keep: Keep | None = None
    progress: Progress = no_progress
    find_last: Callable[[str], str | None] | None = None
    named: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How many files one load takes, the oldest first: at least one.

    Args:
        max_bytes: A load is full at this size.
    """

    max_files: int | None = None
    max_bytes: int | None = None

    @classmethod
    def of(cls, max_files: int | None, max_bytes: int | None) -> BatchSize:
        """Return a size that a caller gives.

        Raises:
            InvalidOption: a number is below 1.
            OptionConflict: both are given.
        """
        for option, value in (("max_files", max_files), ("max_bytes", max_bytes)):
            if value is not None and value < 1:
                raise InvalidOption(option=option, value=value, expected="Must be a number >= 1.")
        if max_files and max_bytes:
            raise OptionConflict(option="max_bytes", other_option="max_files", expected="Give only one of them.")
        return cls(max_files, max_bytes)

    @property
    def is_limited(self) -> bool:
        """Whether there is a maximum."""
        return self.max_files is not None or self.max_bytes is not None

    def take(self, files: Sequence[SourceFile], *, by_name: bool = False) -> list[SourceFile]:
        """Return the oldest files that are within the limits, or those with the first names."""
        if not self.is_limited:
            return list(files)
        files = sorted(files, key=lambda file: (0 if by_name else file.modified_ms, file.path))
        sizes = accumulate(file.size_bytes for file in files)
        count = len(files) if self.max_bytes is None else max(1, sum(size <= self.max_bytes for size in sizes))
        return files[: min(count, self.max_files or count)]


ANY_SIZE, _ALL_FILES = BatchSize(), ListingOptions()


def find_source(
    spark: Session,
    paths: Sequence[str],
    format: FileFormat | None = None,
    options: Mapping[str, str] | None = None,
    listing: ListingOptions | None = None,
) -> SourceFiles:
    """Return the files that paths name. A file that two paths or links name is listed once.

    Args:
        paths: Files, directories (with everything below) and glob patterns. Of a directory only files whose names tell
            a format count, if there are any.
        listing: Which of the files to return; by default all.
    """
    wanted, found = listing or _ALL_FILES, Listing()
    chosen = _ChosenFiles(format, wanted.keep)
    try:
        for batch in _list_batches(spark, paths, found, wanted):
            chosen.add(batch)
            found.count += batch.num_rows
            if found.count >= BATCH_FILES:
                wanted.progress(f"looking at the source: {found.count:,} files")
    except spark_errors() as error:
        raise to_source_error(", ".join(paths), error, "Check the path and the permission to read it.") from error
    checked = [before_pattern(path) for path in paths if wanted.named is None]  # by `find_table_source`
    ensure_no_table(spark, ", ".join(paths), found.folders, checked)
    files, left_out, shown = chosen.finish(paths)
    # Without roots Spark reads exactly these files; a root would bring back the others.
    roots = tuple(paths) if found.is_whole and wanted.keep is None else ()
    source = SourceFiles(roots, tuple(files), tuple(left_out), shown or FileFormat.JSON, options or {})
    if not wanted.may_be_empty and not any(file.size_bytes for file in source.files):
        reason = "the files are empty" if found.count else "there is no file"
        raise unusable_source(source.name or ", ".join(paths), reason, "Name files with records.")
    return source


@dataclass
class Listing:
    """What is known of a listing after its batches.

    Args:
        folders: The paths of the folders with files, with a slash at the end.
        is_whole: Whether the batches have everything that Spark finds at the paths.
    """

    folders: set[str] = field(default_factory=set)
    is_whole: bool = True
    count: int = 0


def _list_batches(
    spark: Session, paths: Sequence[str], listing: Listing, wanted: ListingOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the files that paths name, each once."""
    if wanted.named is not None:
        listing.is_whole = False
        files = find_named_files(wanted.named, paths)
        yield from (to_batch(files[first : first + BATCH_FILES]) for first in range(0, len(files), BATCH_FILES))
        return
    places = _find_local_places(spark, paths)
    if places is not None:
        walk = LocalWalk(places, after=_find_names(places, wanted))
        yield from walk.batches()
        listing.folders.update(f"file:{folder}/" for folder in walk.folders)
        listing.is_whole = is_local(spark) and not walk.has_repeated
        return
    listed = _list_paths(spark, paths, wanted)
    files = drop_repeated(listed)
    listing.is_whole = len(files) == len(listed)
    listing.folders.update(f"{file.path.rpartition('/')[0]}/" for file in files)
    for first in range(0, len(files), BATCH_FILES):
        yield to_batch(files[first : first + BATCH_FILES])


def _find_names(places: Sequence[str], wanted: ListingOptions) -> dict[str, str]:
    """Return the names below local folders after which these are listed."""
    last = {} if wanted.find_last is None else {place: wanted.find_last(place) for place in places}
    below = {place: os.fsdecode(folder_key(place)) for place in places}
    return {place: path.removeprefix(below[place]) for place, path in last.items() if path is not None}


def _find_local_places(spark: Session, paths: Sequence[str]) -> list[str] | None:
    """Return the local places that paths name; None if Spark or another store has to be asked.

    Spark follows a link to a parent for ever, so this process lists folders with links also for a session of Spark.
    """
    if not is_driver(spark):
        return None
    named = [expand_local(path) for path in paths]
    if None in named:
        return None
    places = [each for some in named for each in some or ()]
    is_here = is_local(spark) and not any(map(is_elsewhere, paths))
    return places if is_here or any(map(has_linked_folder, places)) else None


# ---- the format ------------------------------------------------------------------------------------


class _ChosenFiles:
    """The files of a listing that are of the requested format, or of the one format that their names show.

    Args:
        keep: Tells which files of the format to keep.
    """

    def __init__(self, format: FileFormat | None, keep: Keep | None) -> None:
        self._format, self._keep = format, keep
        self._first: dict[FileFormat, str] = {}
        self._kept: list[pa.RecordBatch] = []
        self._others: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of a listing."""
        for found, rows in split_formats(batch["path"]):
            files = batch if len(rows) == batch.num_rows else batch.take(rows)
            if found is not None:
                first = pc.min_max(files["path"])["min"].as_py()
                self._first[found] = min(first, self._first.get(found, first))
            if found is not None and found is (self._format or next(iter(self._first))):
                self._kept.append(self._filtered(files))
            else:
                self._others.append(files)

    def _filtered(self, files: pa.RecordBatch) -> pa.RecordBatch:
        return files if self._keep is None else files.filter(self._keep(files))

    def finish(self, paths: Sequence[str]) -> tuple[list[SourceFile], list[str], FileFormat | None]:
        if self._format is None and len(self._first) > 1:
            named = sorted((found.value, path) for found, path in self._first.items())
            names = " and ".join(f"{found} ({path})" for found, path in named)
            reason = f"the files have several formats: {names}"
            raise unusable_source(", ".join(paths), reason, "Name the format or the files.")
        found = self._format or next(iter(self._first), None)
        if found not in self._first:
            self._kept, self._others = [self._filtered(files) for files in self._others], []
        left_out = sorted(path for files in self._others for path in files["path"].to_pylist())
        files = (file for batch in self._kept for file in to_files(batch))
        return sorted(files, key=lambda file: file.path), left_out, found


def split_formats(paths: pa.Array) -> Iterator[tuple[FileFormat | None, pa.Array]]:
    """Yield the formats that the names of files show, each with the indexes of its files; None for names without one.

    Files in a folder mostly have one ending, so Arrow asks all of them for the ending of the first.
    """
    rows = pa.array(range(len(paths)), pa.int64()) if len(paths) else pa.array([], pa.int64())
    while len(rows):
        found, ending = find_ending(paths[rows[0].as_py()].as_py())
        here = pc.ends_with(paths.take(rows), ending)
        yield found, rows.filter(here)
        rows = rows.filter(pc.invert(here))


def choose_files(
    files: Sequence[SourceFile], format: FileFormat | None, options: Mapping[str, str]
) -> SourceFiles | None:
    """Return the files to read: files of the requested format, or of the one format that their names show.

    Returns:
        None if no name tells a format.
    """
    chosen, by_path = _ChosenFiles(format, None), {file.path: file for file in files}
    chosen.add(to_batch(files))
    kept, left_out, found = chosen.finish(["the new files"])
    return (
        None
        if found is None
        else SourceFiles((), tuple(by_path[file.path] for file in kept), tuple(left_out), found, options)
    )


def to_batch(files: Sequence[SourceFile]) -> pa.RecordBatch:
    """Return files as a batch of a listing."""
    columns = [[getattr(file, name) for file in files] for name in FILES.names]
    return to_columns(columns[0], *columns[1:])


def to_columns(paths: Sequence[str], *columns: Sequence[object]) -> pa.RecordBatch:
    """Return columns of a listing as a batch of it.

    Raises:
        SourceError: the name of a file is not in UTF-8.
    """
    try:
        texts = pa.array(paths, pa.string())
    except UnicodeEncodeError as error:
        path = next(path for path in paths if not _is_utf8(path))
        raise SourceError(source=ascii(path), reason="its name is not in UTF-8", fix="Rename the file.") from error
    others = [pa.array(column, each.type) for column, each in zip(columns, list(FILES)[1:], strict=True)]
    return pa.RecordBatch.from_arrays([texts, *others], schema=FILES)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_files(batch: pa.RecordBatch) -> Iterator[SourceFile]:
    """Yield the files of a batch of a listing."""
    for path, size_bytes, modified_ms, uri in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        yield SourceFile(path, size_bytes, modified_ms, uri or escape_path(path))


# ---- the local disk --------------------------------------------------------------------------------


class LocalWalk:
    """The files in local places and below that have bytes, as Spark lists them, without those that are hidden.

    Links to folders are followed once.

    Args:
        drops_links: Whether a file that a link or another path names as well is listed once, with its own path.
        after: Of a folder, only names after this one are listed, and folders that can have some. Names are compared as
            object stores do: ``day=1/x`` comes before ``day=2``.
    """

    def __init__(
        self, places: Iterable[str], *, drops_links: bool = True, after: Mapping[str, str] | None = None
    ) -> None:
        self.folders: set[str] = set()
        """The folders with files."""
        self.has_repeated = False
        """Whether a file has several paths."""
        self._places, self._drops_links = list(places), drops_links
        self._after = {place.rstrip("/"): name for place, name in (after or {}).items()}
        self._seen: set[str] = set()
        self._single: list[str] = []
        self._paths: list[str] = []
        self._sizes: list[int] = []
        self._times: list[int] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the files, a batch of neighbouring folders at a time."""
        pending, linked = list[tuple[str, str]](), list[str]()
        for place in reversed(self._places):
            if not _is_folder(place):
                self._single.append(place)
            elif os.path.islink(place):
                linked.insert(0, place)
            else:
                pending.append((place.rstrip("/"), os.path.realpath(place).rstrip("/")))
        while pending or linked:
            place, real = pending.pop() if pending else (linked[0], os.path.realpath(linked.pop(0)))
            if real in self._seen:
                self.has_repeated = True
                continue
            self._seen.add(real)
            below, links = self._list_folder(place)
            pending += [(f"{place}/{name}", f"{real}/{name}") for name in sorted(below, reverse=True)]
            linked += links
            if len(self._paths) >= BATCH_FILES:
                yield self._flush()
        self._add_single()
        if self._paths:
            yield self._flush()

    def _list_folder(self, place: str) -> tuple[list[str], list[str]]:
        """Take the files of a folder, and return the names of the folders in it and the paths of links to folders."""
        below, links = list[str](), list[str]()
        prefix, before, stat_in = f"file:{place}/", len(self._paths), os.stat
        after = self._after.pop(place, "")
        # A million files pass here: each call per file takes a tenth of a second.
        with looking_at(place), _open_folder(place) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                name = entry.name
                if (name[0] in "._" or name[-1] == "_") and is_hidden(name):
                    continue
                if not entry.is_file(follow_symlinks=False):
                    if not after or self._may_have_new(place, entry, after):
                        self._sort_out(place, entry, below, links)
                    continue
                if after and name <= after:
                    continue
                try:
                    state = stat_in(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError as error:
                    _pass_over(f"{place}/{name}", error)
                    continue
                if state.st_size:
                    self._paths.append(prefix + name)
                    self._sizes.append(state.st_size)
                    self._times.append(state.st_mtime_ns // 1_000_000)
        if len(self._paths) > before:
            self.folders.add(place)
        return below, sorted(links)

    def _may_have_new(self, place: str, entry: os.DirEntry[str], after: str) -> bool:
        """Return whether a folder can have files after a name, or a link to a file is after it."""
        inner = f"{entry.name}/"
        if not entry.is_dir():
            return entry.name > after
        if after.startswith(inner):
            self._after[f"{place}/{entry.name}"] = after[len(inner) :]
            return True
        return inner > after

    def _sort_out(self, place: str, entry: os.DirEntry[str], below: list[str], links: list[str]) -> None:
        """Take what is not a file: a folder, or a link to a folder or to a file."""
        if entry.is_symlink():
            path = f"{place}/{entry.name}"
            (links if os.path.isdir(path) else self._single).append(path)
        elif entry.is_dir(follow_symlinks=False):
            below.append(entry.name)

    def _add_single(self) -> None:
        """Take the files that are places themselves or links, unless their folder is listed."""
        named = sorted((os.path.realpath(path) != path, path) for path in self._single)
        taken: set[str] = set()
        for _, path in named:
            real = os.path.realpath(path)
            folder, _, name = real.rpartition("/")
            if is_hidden(os.path.basename(path)):
                continue
            is_repeated = real in taken or (folder in self._seen and not is_hidden(name))
            if is_repeated and self._drops_links:
                self.has_repeated = True
                continue
            taken.add(real)
            state = find_state(path)
            if state is not None and state.st_size:
                self.folders.add(os.path.dirname(path).rstrip("/"))
                self._paths.append(f"file:{path}")
                self._sizes.append(state.st_size)
                self._times.append(state.st_mtime_ns // 1_000_000)

    def _flush(self) -> pa.RecordBatch:
        count = len(self._paths)
        batch = to_columns(self._paths, self._sizes, self._times, [None] * count)
        self._paths, self._sizes, self._times = [], [], []
        return batch


@contextmanager
def _open_folder(place: str) -> Iterator[int]:
    """Yield a descriptor of a folder: the system then finds the files in it by their names alone."""
    descriptor = os.open(place or "/", os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pass_over(path: str, error: OSError) -> None:
    """Pass over a file that is not there any more."""
    with looking_at(path):
        raise error


def _is_folder(place: str) -> bool:
    """Return whether a local place is a folder, or a link to one."""
    with looking_at(place):
        return stat.S_ISDIR(os.stat(place).st_mode)
    return False


FileTable: TypeAlias = pa.Table
"""Files with the columns of `FILES`."""


class SeenFiles:
    """The paths of files that a stream has found, and that are not new any more.

    Args:
        paths: As `source_file_key` spells them.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = pa.chunked_array([pa.array(paths, pa.string())])

    def add(self, paths: Sequence[str]) -> None:
        """Take more paths."""
        self._paths = pa.chunked_array([*self._paths.chunks, pa.array(paths, pa.string())])

    def find_new(self, files: FileTable) -> list[SourceFile]:
        """Return the files of a listing of local files that are not among them."""
        new = files.filter(pc.invert(pc.is_in(files["path"], value_set=self._paths)))
        return [file for batch in new.to_batches() for file in to_files(batch)]


def list_local_table(places: Iterable[str]) -> FileTable:
    """Return the files and links to files in local places and below that have bytes, with the columns of `FILES`."""
    return pa.Table.from_batches(LocalWalk(places, drops_links=False).batches(), schema=FILES)


def list_local_files(places: Iterable[str], *, after: Mapping[str, str] | None = None) -> list[SourceFile]:
    """Return the files in local places and below that have bytes, by name, as Spark lists them."""
    files = (file for batch in LocalWalk(places, after=after).batches() for file in to_files(batch))
    return sorted(files, key=lambda file: file.path)


def _find_local_file(path: str) -> SourceFile | None:
    """Return a local file; None if it does not exist, or no longer."""
    state = find_state(path)
    if state is None:
        return None
    uri = f"file:{escape_path(path)}"
    return SourceFile(f"file:{path}", state.st_size, state.st_mtime_ns // 1_000_000, uri)


# ---- Spark and object stores -----------------------------------------------------------------------


def _list_paths(spark: Session, paths: Sequence[str], wanted: ListingOptions = _ALL_FILES) -> list[SourceFile]:
    """Return the files that paths name. A path that matches nothing as a pattern may be the name of a file."""
    if is_local(spark):
        found = [_list_here(spark, path, wanted) for path in paths]
        if None not in found:
            return sorted((file for some in found for file in some or ()), key=lambda file: file.path)
    spark = require_spark(spark, LISTS)
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    named = _list_local_files(spark, paths)
    if named is not None:
        return named
    try:
        return to_source_files(list_source_files(reader.load(list(paths))))
    except spark_errors():
        if [*map(as_literal, paths)] == [*paths]:
            raise
    if len(paths) > 1:
        return sorted((file for path in paths for file in _list_paths(spark, [path])), key=lambda file: file.path)
    return to_source_files(list_source_files(reader.load([*map(as_literal, paths)])))


def _list_here(spark: Session, path: str, wanted: ListingOptions) -> list[SourceFile] | None:
    """Return the files that a path names, listed by this process; None if Spark has to list them."""
    if not is_store_url(path):
        places = expand_local(path)
        if places is None or is_elsewhere(path):
            return None
        return list_local_files(places, after=_find_names(places, wanted))
    try:
        last = None if wanted.find_last is None else wanted.find_last(path)
        found = list_store_files(path, is_hidden, after=last or "")
    except StorageError as error:
        if can_start(spark):  # its configuration may have the credentials
            return None
        raise unusable_source(path, str(error.fields["reason"]), str(error.fields["fix"])) from error
    if found is None:
        raise unusable_source(path, "the path does not exist", "Check the URL and the storage options.")
    return [SourceFile(each.url, each.size_bytes, each.modified_ms, escape_path(each.url)) for each in found]


def find_named_files(urls: Sequence[str], folders: Sequence[str]) -> list[SourceFile]:
    """Return the objects of a store that exist, have bytes and are not hidden below the folder that they are in."""
    depths = {folder_key(folder): len(folder_key(folder).split(b"/")) - 1 for folder in folders}
    visible = []
    for url in urls:
        key = to_key(url)
        depth = min(depth for prefix, depth in depths.items() if key.startswith(prefix))
        if not any(map(is_hidden, os.fsdecode(key).split("/")[depth:])):
            visible.append(url)
    states = find_states(visible)
    return [SourceFile(url, *states[url], escape_path(url)) for url in visible if states.get(url, (0,))[0]]


def drop_repeated(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Drop files that are listed twice, preferring real paths over links."""
    folders: dict[str, str] = {}
    kept: dict[str, SourceFile] = {}
    for file, real in sorted(
        ((file, _real_path(file.path, folders)) for file in files),
        key=lambda each: (each[0].path != each[1], each[0].path),
    ):
        kept.setdefault(real, file)
    return sorted(kept.values(), key=lambda file: file.path)


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Return the path of a file without links.

    Args:
        folders: The real paths of folders, which this extends.
    """
    plain = to_local(path)
    if plain is None:
        return path
    folder, _, name = plain.rpartition("/")
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    real = f"{folders[folder]}/{name}"
    return f"file:{os.path.realpath(real) if os.path.islink(real) else real}"


def _list_local_files(spark: SparkSession, paths: Sequence[str]) -> list[SourceFile] | None:
    """Return the files of the local disk that plain paths name, or one directory, without a Spark job.

    Spark decides whether a path without a scheme is local, and whether a file is hidden. A job leaves out empty files.

    Returns:
        None if Spark has to list them.
    """
    plain = ["/" + path.removeprefix("file:").lstrip("/") for path in paths]
    if not all(map(_PLAIN_PATH.fullmatch, paths)) or not is_driver(spark) or not _are_few(plain):
        return None
    uris = spark.read.option("recursiveFileLookup", "true").text(list(paths)).inputFiles()
    listed = [match[1] for match in map(_PLAIN_URI.fullmatch, uris) if match]
    if len(listed) < len(uris) or (any(map(os.path.isfile, plain)) and sorted(listed) != sorted(plain)):
        return None
    try:
        stats = [(path, os.stat(path)) for path in sorted(listed)]
    except FileNotFoundError:  # deleted meanwhile
        return None
    return [
        SourceFile(f"file:{path}", stat.st_size, stat.st_mtime_ns // 1_000_000, f"file:{path}")
        for path, stat in stats
        if stat.st_size
    ]


def _are_few(paths: Sequence[str]) -> bool:
    """Return whether local paths are a few files, or a directory with not many below it."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        return len(paths) <= MAX_NAMED_FILES and all(map(os.path.isfile, paths))
    below = chain.from_iterable(names for _, _, names in os.walk(paths[0]))
    return next(islice(below, MAX_LISTED_FILES, None), None) is None


MAX_NAMED_FILES, MAX_LISTED_FILES = 32, 1_000
"""Maximum number of paths, and of files below a directory, that are listed without a Spark job: Spark looks at each
path in turn, and passes on one name after the other."""

_PLAIN_PATH = re.compile(r"(?:file:)?/[A-Za-z0-9/._=,@+-]+")
"""Local paths without characters that are escaped in a URI or part of a pattern."""

_PLAIN_URI = re.compile(r"file://(/[A-Za-z0-9/._=,@+-]+)")


def list_new_files(files: DataFrame | Sequence[str]) -> list[SourceFile]:
    """Return the files of a micro-batch that have bytes as values, sorted by name.

    Args:
        files: The columns of `widen.sources.listing.list_source_files`; or the URIs of local files.

    Raises:
        SourceChanged: a file was deleted after the stream had found it.
    """
    if not isinstance(files, DataFrame):
        found = {uri: _find_local_file(local_path(uri) or uri) for uri in files}
        for uri, file in found.items():
            if file is None:
                raise SourceChanged(path=f"file:{local_path(uri)}", change="was deleted", fix=_REPLACE)
        return drop_repeated([file for file in found.values() if file is not None and file.size_bytes])
    try:
        with translate_spark_errors():
            return drop_repeated(to_source_files(files))
    except CorruptFile as error:
        raise SourceChanged(path=error.fields["path"], change="was deleted", fix=_REPLACE) from error


_REPLACE = "Restore it, or put an empty file there if its records are not needed, and start the stream again."
