"""Staged files: files that a change has written but not committed, and when they may be deleted.

Until the commit starts, a failed change deletes its files. Once the commit starts to write its log entry, the entry may
be visible even if the write reports an error. From then on the files are kept, unless the entry is proved absent:
orphaned files cost space, missing files lose rows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from functools import partial

from widen.errors import StorageError
from widen.log.store.log_store import LogStore
from widen.log.write.commit_outcome import run_logged
from widen.protocol.actions import Add

SCANS = "_widen/scans"
"""The folder in a table for lists of files that scans read; see `widen.spark.read.file_manifest`."""


class StagedFiles:
    """The files of one change. At the end of a ``with`` block they are deleted, unless the commit may be visible.

    `widen.log.write.commit.commit` calls `mark_visible` and `mark_absent`; a change only registers what it writes.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self._may_be_visible = False

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._may_be_visible:
            for undo in reversed(self._undo):
                # Orphaned files only cost space.
                run_logged(undo, "undo a part of an uncommitted change")

    def add_files(self, store: LogStore, adds: Iterable[Add]) -> None:
        """Register files, and everything else in the folders of the jobs that wrote them."""
        self._undo.append(partial(discard, store, adds))

    def add_folders(self, store: LogStore, folders: Iterable[str]) -> None:
        """Register everything in these folders of a table."""
        self._undo.extend(partial(discard_folder, store, folder) for folder in folders)

    def add_undo(self, undo: Callable[[], object]) -> None:
        """Register a step that undoes a part of the change."""
        self._undo.append(undo)

    def mark_visible(self) -> None:
        """Keep the files: a log entry that names them is about to be written."""
        self._may_be_visible = True

    def mark_absent(self) -> None:
        """Allow deletion again: no log entry names the files, and a late write cannot add one."""
        self._may_be_visible = False


def discard(store: LogStore, adds: Iterable[Add]) -> None:
    """Delete uncommitted files, and everything else in the folders of the jobs that wrote them.

    Storage errors are ignored.
    """
    for job in dict.fromkeys(add.path.partition("/")[0] for add in adds):
        discard_folder(store, job)


def discard_folder(store: LogStore, folder: str, but: Collection[str] = ()) -> None:
    """Delete all files below a folder of a table; storage errors are ignored.

    Args:
        but: The paths in the table of files to keep.
    """
    assert folder, "it would be the whole table"
    with contextlib.suppress(StorageError):
        store.delete([entry.path for entry in store.list(folder) if entry.path not in but])
