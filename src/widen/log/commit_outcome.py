"""Outcomes of a commit, and errors of the work that follows it.

Losing a race against another writer is an outcome and not an error.

Source: PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import NoReturn, TypeAlias, TypeVar

from widen.errors import CommitUnknown, ContentionError, PostCommitFailed, StorageError, TableAlreadyExists, WidenError
from widen.errors.tables import add_note, first_line
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.display import recorded_commits
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)

MAX_CONFLICTS = 20
"""How many times a change is planned, written and committed if each commit conflicts with another writer's."""

MAX_PAUSE_SECONDS = 0.5
"""The longest pause before another attempt. Writers that all try again at once would lose again."""


@dataclass(frozen=True)
class Committed:
    """The actions are committed as a version of the table."""

    version: int
    store: LogStore

    @cached_property
    def snapshot(self) -> Snapshot:
        """The committed version, opened on first use."""
        with after_commit(self.store.location, self.version):
            return open_snapshot(self.store, self.version)

    def or_raise(self) -> Committed:
        """Return the outcome itself."""
        return self


@dataclass(frozen=True)
class Conflicted:
    """Another writer committed a conflicting change first; nothing is visible."""

    error: ContentionError | TableAlreadyExists

    def or_raise(self) -> NoReturn:
        """Raise the reason."""
        raise self.error


@dataclass(frozen=True)
class Unknown:
    """It is unknown whether the commit was written, or it may still become visible."""

    error: CommitUnknown

    def or_raise(self) -> NoReturn:
        """Raise the reason."""
        raise self.error


Outcome: TypeAlias = Committed | Conflicted | Unknown


def retry_conflicts(attempt: Callable[[Conflicted | None], _Result | Conflicted]) -> _Result:
    """Plan, write and commit a change, again after each conflict, and return the result.

    Args:
        attempt: Opens the newest version, plans, writes and commits. It gets the conflict that ended the attempt
            before, None the first time; it raises that one if another attempt makes no sense.
    """
    result = attempt(None)
    for number in range(MAX_CONFLICTS - 1):
        if not isinstance(result, Conflicted):
            break
        if number:  # most conflicts are with a single commit
            time.sleep(random.uniform(0, min(MAX_PAUSE_SECONDS, 0.01 * 2**number)))
        result = attempt(result)
    return result.or_raise() if isinstance(result, Conflicted) else result


@contextmanager
def several_commits() -> Iterator[None]:
    """Run steps that commit on their own; every error and interrupt then names the last version that they committed.

    Raises:
        PostCommitFailed: another error than one of Widen followed a commit.
    """
    with recorded_commits() as made:
        try:
            yield
        except PostCommitFailed:
            raise
        except WidenError as error:
            if made:
                error.committed = made[-1]
            raise
        except Exception as error:  # any kind: a caller who does not know of the commits would miss them
            if not made:
                raise
            location, version = made[-1]
            raise PostCommitFailed(version=version, location=location, reason=reason_of(error)) from error
        except BaseException as interrupt:
            if made:
                location, version = made[-1]
                add_note(interrupt, f"Version {version} of {location} is committed.")
            raise


@contextmanager
def after_commit(location: str, version: int) -> Iterator[None]:
    """Run work that follows a commit; every error and interrupt then says that the version is committed.

    Raises:
        PostCommitFailed: the work failed; ``__cause__`` has the reason.
    """
    try:
        yield
    except PostCommitFailed:
        raise
    except Exception as error:  # any kind: a caller that retried would commit twice
        raise PostCommitFailed(version=version, location=location, reason=reason_of(error)) from error
    except BaseException as interrupt:
        add_note(interrupt, f"Version {version} of {location} is committed.")
        raise


def run_logged(work: Callable[[], object], what: str) -> None:
    """Run work while an error is being raised; if it fails as well, log that: the first error matters more."""
    try:
        work()
    except Exception as error:  # any kind
        _log.warning("Cannot %s: %s", what, error)


def reason_of(error: Exception) -> str:
    """Return the message of an error without the final full stop, or its class name if there is no message."""
    text = error.message if isinstance(error, WidenError) else first_line(error)
    return text.rstrip(".") or type(error).__name__


# Staged files: files that a change has written but not committed, and when they may be deleted.
#
# Until the commit starts, a failed change deletes its files. Once the commit starts to write its log entry, the
# entry may be visible even if the write reports an error. From then on the files are kept, unless the entry is
# proved absent: orphaned files cost space, missing files lose rows.


SCANS = "_widen/scans"
"""The folder in a table for lists of files that scans read; see `widen.frames.scan`."""

STAGED_ROWS = "_widen/staged"
"""The folder in a table for rows that no commit has ingested yet; see `widen.data_source.staging`."""


class StagedFiles:
    """The files of one change. At the end of a ``with`` block they are deleted, unless the commit may be visible.

    `widen.log.commit.commit` calls `mark_visible` and `mark_absent`; a change only registers what it writes.
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
    """Delete all files below a folder of a table; storage errors are ignored."""
    assert folder, "it would be the whole table"
    with contextlib.suppress(StorageError):
        store.delete([entry.path for entry in store.list(folder) if entry.path not in but])
