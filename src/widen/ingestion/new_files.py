"""New files: compare the files of a source with those that a table has loaded.

A file is known if the table has loaded its path with this size and time. It is changed if it has loaded the path with
another size or time. It is late if it is new but older than the newest file that is loaded. By content, a file is known
if the table has loaded the same content from any path. A file is bad if it could not be read before and has not changed
since.

Source: docs/guide/files.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from widen.batches.open_source import BatchReader, IngestSource
from widen.batches.text_batch import Batch
from widen.errors import CorruptLog, CorruptMetadata, FilesChanged, InvalidOption
from widen.evolution.plan import BadFile
from widen.json.observation import Observation
from widen.sources.listing import SourceFile, SourceFiles, to_paths
from widen.sources.memory_source import HeldSource, StagedSource
from widen.sources.places import ensure_other_table, find_table_source
from widen.spark.engine import Session
from widen.spark.spark_types import DataFrame
from widen.targets.table_format import IngestTarget, Load, LoadedFile, LoadRecord

MAX_NAMED = 3


class Changed(str, Enum):
    """What to do with a file that has changed since it was loaded, when only new files are loaded."""

    FAIL = "fail"
    """Refuse the batch."""
    LOAD = "load"
    """Load the whole file again."""
    SKIP = "skip"
    """Leave it out."""


def parse_changed(text: str) -> Changed:
    """Return what to do with changed files.

    Raises:
        InvalidOption: it is not one of fail, load or skip.
    """
    if text not in set(Changed):
        raise InvalidOption(option="changed", value=text, expected="Must be fail, load or skip.")
    return Changed(text)


PATH, CONTENT = "path", "content"
"""How files are compared: by path, size and time, or by content."""


def is_by_content(new_by: str) -> bool:
    """Return whether files are compared by content.

    Raises:
        InvalidOption: it is neither path nor content.
    """
    if new_by not in (PATH, CONTENT):
        raise InvalidOption(option="new_by", value=new_by, expected="Must be path or content.")
    return new_by == CONTENT


@dataclass(frozen=True, slots=True)
class FileComparison:
    """The files of a source, compared with those that a table has loaded. All files are named by their paths.

    Args:
        known: Loaded before, with this size and time; by content: the table, or another of the files, has the content.
        changed: Loaded before, with another size or time; by content: with another content.
        late: New, but older than the newest file that is loaded.
        skipped: Files of ``known``, ``changed`` and ``bad`` that are not loaded again.
        bad: Skipped before, because they could not be read, with this size and time; by content: with this content.
    """

    known: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    @property
    def repeated(self) -> tuple[str, ...]:
        """The known files that are loaded again."""
        skipped = set(self.skipped)
        return tuple(path for path in self.known if path not in skipped)

    def to_value(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {each.name: list(getattr(self, each.name)) for each in fields(self)}


NO_COMPARISON = FileComparison()
"""For records that are not from files."""


def compare_files(files: Sequence[SourceFile], loads: Sequence[Load]) -> FileComparison:
    """Return how files compare with those that a table has loaded.

    Args:
        files: The files of a source. Those with a hash are compared by content.
        loads: The loads of the table. A file that was loaded without a hash is compared by size and time.
    """
    loaded = _FileStates(file for load in loads for file in load.files)
    bad = _FileStates(file for load in loads for file in load.bad_files)
    newest_ms = max((file.modified_ms for load in loads for file in load.files), default=0)
    places: dict[str, list[str]] = {"known": [], "changed": [], "late": [], "bad": []}
    for each in map(to_loaded_file, files):
        if loaded.has(each):
            places["known"].append(each.path)
        elif bad.has(each):
            places["bad"].append(each.path)
        elif each.key in loaded.states:
            places["changed"].append(each.path)
        elif each.modified_ms < newest_ms:
            places["late"].append(each.path)
        if each.content and not bad.has(each):
            loaded.contents.add(each.content)  # a copy of it is known
    return FileComparison(**{key: tuple(paths) for key, paths in places.items()})


class _FileStates:
    """The states of files that a table has seen."""

    def __init__(self, files: Iterable[LoadedFile]) -> None:
        self.states: dict[str, list[LoadedFile]] = {}
        self.contents: set[str] = set()
        for file in files:
            self.states.setdefault(file.key, []).append(file)
            self.contents |= {file.content} if file.content else set()

    def has(self, file: LoadedFile) -> bool:
        """Return whether a file has one of these states."""
        return file.content in self.contents or any(
            _is_same_state(file, state) for state in self.states.get(file.key, ())
        )


def _is_same_state(file: LoadedFile, state: LoadedFile) -> bool:
    """Return whether size and time are the same; if both files have hashes, those decide alone."""
    return file.stamp == state.stamp and not (file.content and state.content)


@dataclass
class FileChoice:
    """Chooses the files of a source to load, and keeps the comparison.

    Args:
        changed: What to do with changed files, if only new files are loaded.
        skips_bad: Whether to leave out files that could not be read before, if only new files are loaded; else they are
            tried again.
        hash_files: Adds hashes of the contents of files, to compare files by them; None to compare size and time.
        own: What the ingestion writes, by the name of the option; see `check_source`.
        open_chosen: Opens some of the files as a batch; None before the files are chosen, or without files.
    """

    target: IngestTarget
    is_new: bool = False
    changed: Changed = Changed.FAIL
    skips_bad: bool = False
    hash_files: Callable[[SourceFiles], SourceFiles] | None = None
    comparison: FileComparison = NO_COMPARISON
    own: Mapping[str, str] = field(default_factory=dict)
    open_chosen: Callable[[Sequence[SourceFile]], Batch] | None = None

    def __call__(self, source: SourceFiles) -> SourceFiles:
        """Return the files to load.

        Raises:
            FilesChanged: files have changed since they were loaded, and that is to fail.
        """
        if self.hash_files is not None:
            source = self.hash_files(source)
        comparison = compare_files(source.files, self._loads())
        self.comparison = comparison
        if not self.is_new:
            return source
        if comparison.changed and self.changed is Changed.FAIL:
            raise FilesChanged(location=self.target.location, files=name_some(comparison.changed))
        changed = comparison.changed if self.changed is Changed.SKIP else ()
        skipped = {*comparison.known, *changed, *(comparison.bad if self.skips_bad else ())}
        self.comparison = replace(comparison, skipped=tuple(file.path for file in source.files if file.path in skipped))
        if not skipped:
            return source
        # Without roots Spark reads exactly these files; a root would bring back the others below it.
        return replace(source, roots=(), files=tuple(file for file in source.files if file.path not in skipped))

    def open_some(self, files: Sequence[SourceFile]) -> Batch:
        """Return some of the files that were chosen as a batch."""
        assert self.open_chosen is not None
        return self.open_chosen(files)

    def _loads(self) -> Sequence[Load]:
        """Return the loads of the table; empty for a damaged record, if the choice does not depend on the loads."""
        try:
            return self.target.loads(is_required=self.is_new)
        except (CorruptLog, CorruptMetadata):
            if self.is_new:
                raise
            return ()


def open_batch(reader: BatchReader, spark: Session, source: IngestSource, choice: FileChoice) -> Batch | None:
    """Return the records to load; None if the source has no new files.

    Raises:
        InvalidOption: an option is invalid, or only new files are to be loaded and the source is not files.
    """
    reader = reader.for_table(choice.target.schema)
    if isinstance(source, (DataFrame, StagedSource, HeldSource)):
        if choice.is_new:
            expected = "It needs files as its source: rows and data in memory have no names, and are always new."
            raise InvalidOption(option="new", value=True, expected=expected)
        return reader.open(spark, source)
    table = find_table_source(spark, to_paths(source), is_new=choice.is_new)
    if table is not None:
        ensure_other_table(table, choice.own)
        return reader.open_table(spark, table)
    files = choice(reader.find_files(spark, source, may_be_empty=choice.is_new))
    if choice.is_new and not any(file.size_bytes for file in files.files):
        return None
    choice.open_chosen = lambda some: reader.open_files(spark, replace(files, roots=(), files=tuple(some)))
    return reader.open_files(spark, files)


def to_loaded_file(file: SourceFile | BadFile) -> LoadedFile:
    """Return a file of a source as the record of loads has it."""
    parked = file.reason if isinstance(file, BadFile) and file.is_parked else ""
    return LoadedFile(file.path, file.size_bytes, file.modified_ms, file.content, parked)


def to_load_record(batch: Batch, seen: Observation, *, is_exclusive: bool) -> LoadRecord | None:
    """Return what to record with the commit of a batch; None if its records are not from files."""
    if not (batch.files or batch.bad_files):
        return None
    load = Load(
        version=-1,
        loaded_ms=0,
        files=tuple(map(to_loaded_file, batch.files)),
        bad_files=tuple(map(to_loaded_file, batch.bad_files)),
        records=seen.records,
        corrupt=seen.corrupt,
        quarantined_records=seen.quarantined,
    )
    return LoadRecord(load, is_exclusive)


def name_some(paths: Sequence[str]) -> str:
    """Return the first paths as text, and how many more there are."""
    more = f" and {len(paths) - MAX_NAMED} more" if len(paths) > MAX_NAMED else ""
    return f"{', '.join(paths[:MAX_NAMED])}{more}"
