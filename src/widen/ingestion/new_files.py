"""New files: compare the files of a source with those that a table has loaded.

A file is known if the table has loaded its path with this size and time. It is changed if it has loaded the path with
another size or time. It is late if it is new but older than the newest file that is loaded. By content, a file is known
if the table has loaded the same content from any path. A file is bad if it could not be read before and has not changed
since.

Source: docs/guide/files.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from enum import Enum
from functools import cached_property

from widen.batches.open_source import BatchReader, IngestSource
from widen.batches.text_batch import Batch
from widen.errors import CorruptLog, CorruptMetadata, FilesChanged, InvalidOption, StorageError
from widen.evolution.plan import BadFile
from widen.json.observation import Observation
from widen.model.display import Progress, no_progress
from widen.model.value_classes import dataclass
from widen.sources.event_queue import Arrivals
from widen.sources.file_comparison import NO_COMPARISON, ComparedFiles, FileComparison, FileNames, FileState
from widen.sources.find_files import ANY_SIZE, BatchSize, Keep, ListingOptions
from widen.sources.listing import SourceFile, SourceFiles, to_paths
from widen.sources.memory_source import HeldSource, StagedSource
from widen.sources.places import ensure_other_table, expand_local, find_table_source, to_local
from widen.sources.remote_files import is_store_folder
from widen.spark.engine import Session
from widen.spark.spark_types import DataFrame
from widen.targets.table_format import IngestTarget, Load, LoadedFile, LoadedFiles, LoadRecord


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


@dataclass
class FileChoice:
    """Chooses the files of a source to load, and keeps the comparison.

    Args:
        changed: What to do with changed files, if only new files are loaded.
        skips_bad: Whether to leave out files that could not be read before, if only new files are loaded; else they are
            tried again.
        hash_files: Adds hashes of the contents of files, to compare files by them; None to compare size and time.
        own: What the ingestion writes, by the name of the option; see `check_source`.
        by_name: Whether folders are listed from the last loaded name on.
        audit_ms: After how many ms a folder is listed as a whole again; None for never.
        arrivals: What a queue says has arrived, which is looked at between audits instead of a listing.
        open_chosen: Opens some of the files as a batch; None before the files are chosen, or without files.
    """

    target: IngestTarget
    is_new: bool = False
    changed: Changed = Changed.FAIL
    skips_bad: bool = False
    hash_files: Callable[[SourceFiles], SourceFiles] | None = None
    comparison: FileComparison = NO_COMPARISON
    own: Mapping[str, str] = field(default_factory=dict)
    size: BatchSize = ANY_SIZE
    by_name: bool = False
    audit_ms: int | None = None
    arrivals: Arrivals | None = None
    progress: Progress = no_progress
    open_chosen: Callable[[Sequence[SourceFile]], Batch] | None = None

    def __post_init__(self) -> None:
        self._waiting = frozenset[str]()

    def start(self, target: IngestTarget) -> None:
        """Begin a comparison with the files that a table has loaded."""
        self.target, self._waiting = target, frozenset()
        self.__dict__.pop("_compared", None)

    @cached_property
    def _compared(self) -> ComparedFiles:
        left_out = {FileState.KNOWN} if self.is_new else set()
        left_out |= {FileState.CHANGED} if self.changed is Changed.SKIP else set()
        left_out |= {FileState.BAD} if self.is_new and self.skips_bad else set()
        return ComparedFiles(self._open_loaded(), frozenset(left_out))

    @property
    def is_streamed(self) -> bool:
        """Whether files are chosen while they are listed: no others are read."""
        return self.is_new and self.hash_files is None

    @property
    def keep(self) -> Keep:
        """Tells which files of a listing to load."""
        return self._compared.keep

    @property
    def may_list(self) -> bool:
        """Whether requests to list a store are made: with events only by the first load, and by audits."""
        return self.arrivals is None or self._compared.loaded.is_empty

    def find_last(self, folder: str) -> str | None:
        """Return the loaded file after whose name a folder is listed; None to list all."""
        if self._compared.is_audit_due(folder, self.audit_ms):
            self._compared.start_audit(folder)
            return None
        last = self._compared.loaded.find_last(folder)
        if last is not None:
            self._compared.note_after(last)
        return last

    def finish(self) -> None:
        """End a comparison.

        Raises:
            FilesChanged: files have changed since they were loaded, and that is to fail.
        """
        self.comparison = self._compared.finish()
        if self.is_new and self.comparison.changed and self.changed is Changed.FAIL:
            raise FilesChanged(location=self.target.location, files=str(self.comparison.changed))

    def __call__(self, source: SourceFiles) -> SourceFiles:
        """Return the files to load, which were not compared while they were listed."""
        if self.hash_files is not None:
            source = self.hash_files(source)
        try:
            files = self._compared.keep_files(source.files)
        except CorruptLog:
            if self.is_new:
                raise
            files, self._compared = source.files, ComparedFiles(LoadedFiles(), frozenset())
        self.finish()
        # Without roots Spark reads exactly these files; a root would bring back the others below it.
        return source if len(files) == len(source.files) else replace(source, roots=(), files=files)

    def take(self, source: SourceFiles) -> SourceFiles:
        """Return the files that one load takes, and note how many are left to the next."""
        taken = self.size.take(source.files, by_name=self.by_name)
        if len(taken) == len(source.files):
            return source
        paths = {file.path for file in taken}
        left = FileNames.of(*(file.path for file in source.files if file.path not in paths))
        self.comparison = replace(self.comparison, waiting=left)
        self._waiting = frozenset(file.path for file in source.files if file.path not in paths)
        if self._compared.audits and self._compared.find_missed(sorted(self._waiting)):
            self._compared.audits.clear()  # the next load lists everything again
        return replace(source, roots=(), files=tuple(sorted(taken, key=lambda file: file.path)))

    def list_or_receive(self, folders: Sequence[str]) -> ListingOptions:
        """Return what a load looks at: everything, what comes after the last loaded names, or what events name."""
        listing = ListingOptions(True, self.keep, self.progress, self.find_last if self.by_name else None)
        if self.arrivals is None:
            return listing
        # The messages come first: then the listing has all objects that they name, and they can be acknowledged.
        urls = self.arrivals.urls()
        self._compared.note_events(urls, self.arrivals.others)
        if not any(self._compared.is_audit_due(folder, self.audit_ms) for folder in folders):
            return replace(listing, named=urls)
        for folder in folders:
            self._compared.start_audit(folder)
        return listing

    def acknowledge(self) -> None:
        """Acknowledge the messages whose objects are loaded."""
        if self.arrivals is not None:
            self.arrivals.acknowledge(self._waiting)

    def note_audits(self, target: IngestTarget) -> None:
        """Note in the record of loads which folders were listed as a whole; without the note they are listed again."""
        with suppress(CorruptLog, CorruptMetadata, StorageError):
            note = target.loaded_files().audits.note if self._compared.audits else None
            if note is not None:
                note(self._compared.audits)

    def open_some(self, files: Sequence[SourceFile]) -> Batch:
        """Return some of the files that were chosen as a batch."""
        assert self.open_chosen is not None
        return self.open_chosen(files)

    def _open_loaded(self) -> LoadedFiles:
        """Return the loaded files; none for a damaged record, if the choice does not depend on them."""
        try:
            return self.target.loaded_files(is_required=self.is_new)
        except (CorruptLog, CorruptMetadata):
            if self.is_new:
                raise
            return LoadedFiles()


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
    places = to_paths(source)
    table = find_table_source(spark, places, is_new=choice.is_new) if choice.may_list else None
    if table is not None:
        ensure_other_table(table, choice.own)
        return reader.open_table(spark, table)
    if choice.by_name and not all(map(_is_folder, places)):
        expected = "It needs folders on the local disk or in object stores, without patterns."
        raise InvalidOption(option="order", value="name", expected=expected)
    if choice.is_streamed:
        files = reader.find_files(spark, source, choice.list_or_receive(places))
        choice.finish()
    else:
        listing = ListingOptions(choice.is_new, progress=choice.progress)
        files = choice(reader.find_files(spark, source, listing))
    files = choice.take(files)
    if choice.is_new and not any(file.size_bytes for file in files.files):
        return None
    choice.open_chosen = lambda some: reader.open_files(spark, replace(files, roots=(), files=tuple(some)))
    return reader.open_files(spark, files)


def _is_folder(path: str) -> bool:
    """Return whether a path names one place that this process can list, or none."""
    return is_store_folder(path) or expand_local(path) in ([], [to_local(path)])


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
    return str(FileNames(len(paths), tuple(paths)))
