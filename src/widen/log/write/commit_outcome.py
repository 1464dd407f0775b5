"""Outcomes of a commit, and errors of the work that follows it.

Losing a race against another writer is an outcome and not an error.

Source: PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, TypeAlias, TypeVar

from widen.errors import (
    CommitUnknown,
    ContentionError,
    PostCommitFailed,
    TableAlreadyExists,
    WidenError,
)
from widen.errors.foreign import add_note, first_line
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.model.progress import recorded_commits

_Result = TypeVar("_Result")
_log = logging.getLogger(__name__)

MAX_CONFLICTS = 10
"""How many times a change is planned, written and committed if each commit conflicts with another writer's."""


@dataclass(frozen=True)
class Committed:
    """The actions are committed as a version of the table."""

    version: int
    store: LogStore

    @cached_property
    def snapshot(self) -> Snapshot:
        """The committed version, opened on first use.

        Raises:
            PostCommitFailed: the version cannot be opened.
        """
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
        """Raise the reason.

        Raises:
            ContentionError: a subclass that tells which change conflicts.
            TableAlreadyExists: the commit was to create the table, but it exists.
        """
        raise self.error


@dataclass(frozen=True)
class Unknown:
    """It is unknown whether the commit was written, or it may still become visible."""

    error: CommitUnknown

    def or_raise(self) -> NoReturn:
        """Raise the reason.

        Raises:
            CommitUnknown: always.
        """
        raise self.error


Outcome: TypeAlias = Committed | Conflicted | Unknown


def retry_conflicts(attempt: Callable[[Conflicted | None], _Result | Conflicted]) -> _Result:
    """Plan, write and commit a change, again after each conflict, and return the result.

    Args:
        attempt: Opens the newest version, plans, writes and commits. It gets the conflict that ended the attempt
            before, None the first time; it raises that one if another attempt makes no sense.

    Raises:
        ContentionError: every attempt conflicted; the error of the last one.
        TableAlreadyExists: as above, where the change creates the table.
    """
    result = attempt(None)
    for _ in range(MAX_CONFLICTS - 1):
        if not isinstance(result, Conflicted):
            break
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
        except Exception as error:  # any kind: a caller who does not know of the commits would believe there are none
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
    """Run work while an error is being raised; if it fails as well, log that: the first error matters more.

    Args:
        what: What the work does, for the log.
    """
    try:
        work()
    except Exception as error:  # any kind
        _log.warning("Cannot %s: %s", what, error)


def reason_of(error: Exception) -> str:
    """Return the message of an error without the final full stop, or its class name if there is no message."""
    text = error.message if isinstance(error, WidenError) else first_line(error)
    return text.rstrip(".") or type(error).__name__
