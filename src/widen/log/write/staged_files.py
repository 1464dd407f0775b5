"""Files that a change has written and not yet committed, and who may delete them.

Before its commit begins, a change owns what it wrote and deletes it if it fails. From the moment that the commit begins
to write its log entry, the files belong to the outcome: only a commit that is proved absent gives them back.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial

from widen.errors import StorageError
from widen.log.store.log_store import LogStore
from widen.protocol.actions import Add

_log = logging.getLogger(__name__)


class StagedFiles:
    """The files of one change; at the end of a ``with`` they are deleted, unless the commit may be visible.

    `widen.log.write.commit.commit` calls `expose` and `conceal`; a change only registers what it writes.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self._may_be_visible = False

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._may_be_visible:
            for undo in reversed(self._undo):
                _run_logged(undo)

    def add_files(self, store: LogStore, adds: Iterable[Add]) -> None:
        """Register files, with everything else in the folders of the jobs that wrote them."""
        self._undo.append(partial(discard, store, adds))

    def add_folders(self, store: LogStore, folders: Iterable[str]) -> None:
        """Register everything in some folders of a table."""
        self._undo.extend(partial(discard_folder, store, folder) for folder in folders)

    def add_undo(self, undo: Callable[[], object]) -> None:
        """Register another step that takes a part of the change back."""
        self._undo.append(undo)

    def expose(self) -> None:
        """Keep the files: the log entry that names them is about to be written."""
        self._may_be_visible = True

    def conceal(self) -> None:
        """Let the files be deleted again: it is proved that no log entry names them, and that none can come late."""
        self._may_be_visible = False


def discard(store: LogStore, adds: Iterable[Add]) -> None:
    """Delete files that were written and will not be committed, as far as the store lets us; nobody can see them.

    With them goes everything else in the directories of the jobs that wrote them.
    """
    for job in {add.path.partition("/")[0] for add in adds}:
        discard_folder(store, job)


def discard_folder(store: LogStore, folder: str, but: Collection[str] = ()) -> None:
    """Delete all files below a folder of a table, as far as the store lets us.

    Args:
        store: Of the table.
        folder: Its path in the table.
        but: The paths, in the table too, of files that stay.
    """
    with contextlib.suppress(StorageError):
        store.delete([entry.path for entry in store.list(folder) if entry.path not in but])


def _run_logged(undo: Callable[[], object]) -> None:
    try:
        undo()
    except Exception as error:  # what is left over costs space; the error that ended the change matters more
        _log.warning("A part of a change that was not committed could not be taken back: %s", error)
