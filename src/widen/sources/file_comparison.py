"""How the files of a source compare with those that a table has loaded.

The files of a listing are compared a batch at a time, and only their number and the first names of each kind are kept.

Source: docs/guide/files.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidOption
from widen.log.commit_files import current_ms
from widen.log.load_segments import LoadedFiles, are_local, folder_key, path_key, to_key, to_path_keys
from widen.model.value_classes import dataclass
from widen.protocol.table_properties import parse_age_ms
from widen.sources.find_files import to_batch
from widen.sources.listing import SourceFile

MAX_NAMED = 3


class FileState(IntEnum):
    """How a file compares with those that a table has loaded."""

    NEW = 0
    KNOWN = 1
    """Loaded before, with this size and time; by content: the table, or another of the files, has the content."""
    CHANGED = 2
    """Loaded before, with another size or time; by content: with another content."""
    BAD = 3
    """Skipped before, because it could not be read, with this size and time; by content: with this content."""


@dataclass(frozen=True, slots=True)
class FileNames:
    """How many files there are of a kind, and the first of them by path, at most `MAX_LISTED`."""

    count: int = 0
    first: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.count

    @classmethod
    def of(cls, *paths: str) -> FileNames:
        """Return the names of some files."""
        return cls(len(paths), tuple(sorted(paths)[:MAX_LISTED]))

    def __add__(self, other: FileNames) -> FileNames:
        return FileNames(self.count + other.count, tuple(sorted((*self.first, *other.first))[:MAX_LISTED]))

    def __str__(self) -> str:
        more = f" and {self.count - MAX_NAMED:,} more" if self.count > MAX_NAMED else ""
        return f"{', '.join(self.first[:MAX_NAMED])}{more}"


MAX_LISTED = 1_000
"""A result lists so many files of each kind."""

NO_FILES = FileNames()


@dataclass(frozen=True, slots=True)
class FileComparison:
    """The files of a source, compared with those that a table has loaded.

    Args:
        known, changed, bad: See `FileState`.
        late: New, but older than the newest file that is loaded.
        waiting: New, and left to the next load, because this one is full.
        after: The last loaded files after whose names folders were listed, if they were not listed as a whole.
        audited: The folders that an audit listed as a whole.
        missed: New files that it found, and that no other load would have: they have names before the last loaded one,
            or no event names them.
        parked: The ids of messages that stay in their queue, because they name no object of the source.
    """

    known: FileNames = NO_FILES
    changed: FileNames = NO_FILES
    late: FileNames = NO_FILES
    bad: FileNames = NO_FILES
    skipped_states: frozenset[FileState] = frozenset()
    waiting: FileNames = NO_FILES
    after: FileNames = NO_FILES
    audited: FileNames = NO_FILES
    missed: FileNames = NO_FILES
    parked: FileNames = NO_FILES

    @property
    def skipped(self) -> FileNames:
        """The files that are not loaded again."""
        return sum((self.of(state) for state in sorted(self.skipped_states)), NO_FILES)

    @property
    def repeated(self) -> FileNames:
        """The known files that are loaded again."""
        return NO_FILES if FileState.KNOWN in self.skipped_states else self.known

    def of(self, state: FileState) -> FileNames:
        """Return the files in a state other than new."""
        return {FileState.KNOWN: self.known, FileState.CHANGED: self.changed, FileState.BAD: self.bad}[state]

    def to_value(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        files = {name: getattr(self, name) for name in _KINDS}
        counts = {name: each.count for name, each in files.items()}
        return {**{name: list(each.first) for name, each in files.items()}, "counts": counts}


_KINDS = ("known", "changed", "late", "skipped", "bad", "waiting", "after", "audited", "missed", "parked")

NO_COMPARISON = FileComparison()
"""For records that are not from files."""


def compare_batch(loaded: LoadedFiles, files: pa.RecordBatch) -> pa.Array:
    """Return the `FileState` of each file of a listing, by path, size and time.

    Where both the file and what was loaded have hashes, size and time do not tell.

    Args:
        files: The columns of `FILES`, and ``content`` if the files have hashes.
    """
    keys = to_path_keys(files["path"])
    if not are_local(files["path"]) and pc.count_distinct(keys).as_py() < len(keys):
        # Several spellings of one path, which are only found together if somebody names them.
        states = [compare_batch(loaded, files.slice(at, 1)) for at in range(files.num_rows)]
        return pa.concat_arrays(states)
    places: dict[FileState, list[pa.Array]] = {state: [] for state in FileState}
    for rows in loaded.find(keys):
        at, is_bad = rows["at"], rows["is_bad"]
        same_size = pc.equal(rows["size_bytes"], files["size_bytes"].take(at))
        is_same = pc.and_(same_size, pc.equal(rows["modified_ms"], files["modified_ms"].take(at)))
        if "content" in files.schema.names:
            has_hashes = pc.and_(pc.not_equal(rows["content"], ""), pc.not_equal(files["content"].take(at), ""))
            is_same = pc.and_not(is_same, has_hashes)
        places[FileState.KNOWN].append(at.filter(pc.and_not(is_same, is_bad)))
        places[FileState.BAD].append(at.filter(pc.and_(is_same, is_bad)))
        places[FileState.CHANGED].append(at.filter(pc.invert(is_bad)))
    rows = pa.array(range(files.num_rows), pa.int32())
    has = {state: _is_among(rows, found) for state, found in places.items()}
    order = (FileState.KNOWN, FileState.BAD, FileState.CHANGED)
    return pc.case_when(
        pc.make_struct(*(has[state] for state in order)),
        *(pa.scalar(int(state), pa.int8()) for state in (*order, FileState.NEW)),
    )


def _is_among(rows: pa.Array, found: list[pa.Array]) -> pa.Array:
    if not found:
        return pc.is_null(rows)
    return pc.is_in(rows, value_set=pa.concat_arrays(found))


def compare_batch_by_content(loaded: LoadedFiles, files: pa.RecordBatch) -> pa.Array:
    """Return the `FileState` of each file by content; of several new files with one content, the first is new."""
    contents = files["content"]
    seen: dict[bool, set[str]] = {False: set(), True: set()}
    for rows in loaded.rows(["content", "is_bad"]):
        found = rows.filter(pc.and_(pc.is_in(rows["content"], value_set=contents), pc.not_equal(rows["content"], "")))
        for content, is_bad in zip(found["content"].to_pylist(), found["is_bad"].to_pylist(), strict=True):
            seen[is_bad].add(content)
    good, bad = seen[False], seen[True]
    states = []
    for content, state in zip(contents.to_pylist(), compare_batch(loaded, files).to_pylist(), strict=True):
        is_bad = content in bad or state == FileState.BAD
        is_known = content in good or state == FileState.KNOWN
        states.append(FileState.KNOWN if is_known else FileState.BAD if is_bad else state)
        if content and not is_bad:
            good.add(content)  # a copy of it is known
    return pa.array(states, pa.int8())


class ComparedFiles:
    """Compares the files of a source, a batch at a time.

    Args:
        skipped_states: The states whose files are not loaded.
    """

    def __init__(self, loaded: LoadedFiles, skipped_states: frozenset[FileState]) -> None:
        self.loaded, self._comparison = loaded, FileComparison(skipped_states=skipped_states)
        self._new: list[pa.RecordBatch] = []
        self.audits: dict[str, int] = {}
        """When folders were listed as a whole, for the record of loads."""
        self._audited: dict[str, str] = {}
        self._named: pa.Array | None = None

    def keep(self, files: pa.RecordBatch) -> pa.Array:
        """Compare files, and return which of them to load.

        Args:
            files: The columns of `widen.sources.find_files.FILES`, and ``content`` if the files have hashes.
        """
        by_content = "content" in files.schema.names
        states = (compare_batch_by_content if by_content else compare_batch)(self.loaded, files)
        for state, name in _NAMES.items():
            here = pc.equal(states, pa.scalar(int(state), pa.int8()))
            if count := pc.sum(here).as_py() or 0:
                before: FileNames = getattr(self._comparison, name)
                first = FileNames.of(*files["path"].filter(here).slice(0, MAX_LISTED).to_pylist())
                counted: Any = {name: before + replace(first, count=count)}
                self._comparison = replace(self._comparison, **counted)
        self._new.append(files.filter(pc.equal(states, pa.scalar(0, pa.int8()))).select(["path", "modified_ms"]))
        skipped = pa.array([int(state) for state in self._comparison.skipped_states], pa.int8())
        return pc.invert(pc.is_in(states, value_set=skipped))

    def note_after(self, path: str) -> None:
        """Note that only names after one were listed."""
        self._comparison = replace(self._comparison, after=self._comparison.after + FileNames.of(path))

    def is_audit_due(self, folder: str, audit_ms: int | None) -> bool:
        """Return whether a folder is listed as a whole again; also if nothing of it is loaded.

        Args:
            audit_ms: After how many ms it is; None for never.
        """
        if audit_ms is None:
            return False
        last_ms = self.loaded.audits.times.get(_audit_key(folder), 0)
        return current_ms() - last_ms >= audit_ms or self.loaded.find_last(folder) is None

    def start_audit(self, folder: str) -> None:
        """Note that a folder is listed as a whole."""
        self.audits[_audit_key(folder)] = current_ms()
        self._audited[folder] = self.loaded.find_last(folder) or ""
        self._comparison = replace(self._comparison, audited=self._comparison.audited + FileNames.of(folder))

    def note_events(self, urls: Sequence[str], parked: Sequence[str]) -> None:
        """Note which objects events name, and which messages name none."""
        self._named = to_path_keys(pa.array(urls, pa.string()))
        self._comparison = replace(self._comparison, parked=FileNames.of(*parked))

    def find_missed(self, new: Sequence[str]) -> list[str]:
        """Return the new files that only an audit finds: a load by name would have passed them, or events lack them."""
        paths = pa.array(new, pa.string())
        keys, found = to_path_keys(paths), pc.is_null(paths)
        if self._named is not None:
            return paths.filter(pc.invert(pc.is_in(keys, value_set=self._named))).to_pylist()  # type: ignore[no-any-return]
        for folder, last in self._audited.items():
            is_below = pc.starts_with(keys, folder_key(folder))
            found = pc.or_(found, pc.and_(is_below, pc.less_equal(keys, to_key(last) if last else b"")))
        return paths.filter(found).to_pylist()  # type: ignore[no-any-return]

    def keep_files(self, files: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """Compare files, all of which have hashes or none, and return those to load."""
        batch = to_batch(files)
        if any(file.content for file in files):
            contents = pa.array([file.content for file in files], pa.string())
            batch = pa.RecordBatch.from_arrays([*batch.columns, contents], names=[*batch.schema.names, "content"])
        kept = self.keep(batch).to_pylist()
        return tuple(file for file, is_kept in zip(files, kept, strict=True) if is_kept)

    def finish(self) -> FileComparison:
        newest_ms = self.loaded.may_be_newest_ms
        oldest_ms = min((pc.min(each["modified_ms"]).as_py() for each in self._new if each.num_rows), default=newest_ms)
        late = NO_FILES
        if oldest_ms < newest_ms:
            newest_ms = self.loaded.newest_ms
            paths = (each["path"].filter(pc.less(each["modified_ms"], newest_ms)).to_pylist() for each in self._new)
            late = FileNames.of(*(path for some in paths for path in some))
        missed = FileNames.of(*(path for each in self._new for path in self.find_missed(each["path"].to_pylist())))
        return replace(self._comparison, late=late, missed=missed)


def _audit_key(folder: str) -> str:
    return path_key(folder.rstrip("/"))


def parse_audit_ms(text: str) -> int:
    """Return after how many ms everything is listed again.

    Raises:
        InvalidOption: the text is neither a time nor now.
    """
    audit_ms = 0 if text == "now" else parse_age_ms(text)
    if audit_ms is None:
        raise InvalidOption(option="audit", value=text, expected="Must be now, or a time such as 1d, 12h or '1 hour'.")
    return audit_ms


_NAMES = {FileState.KNOWN: "known", FileState.CHANGED: "changed", FileState.BAD: "bad"}
