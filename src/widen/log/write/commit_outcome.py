"""How a commit ends, and how everything that comes after it ends.

Losing a race against another writer is an outcome and not an error.

Source: PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn, TypeAlias, TypeVar

from widen.errors import (
    AfterCommitFailed,
    CommitUnknown,
    ContentionError,
    TableAlreadyExists,
    WidenError,
)
from widen.errors.foreign import add_note, first_line
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore

_Result = TypeVar("_Result")

MAX_CONFLICTS = 10
"""How many times a change is planned, written and committed if each commit conflicts with another writer's."""


@dataclass(frozen=True)
class Committed:
    """The actions are a version of the table."""

    version: int
    store: LogStore

    @cached_property
    def snapshot(self) -> Snapshot:
        """That version, opened when it is first asked for.

        Raises:
            AfterCommitFailed: it cannot be opened.
        """
        with after_commit(self.store.location, self.version):
            return open_snapshot(self.store, self.version)

    def or_raise(self) -> Committed:
        """Return the outcome itself."""
        return self


@dataclass(frozen=True)
class Conflicted:
    """Somebody else committed first what contradicts the actions; nothing of them is visible."""

    error: ContentionError | TableAlreadyExists

    def or_raise(self) -> NoReturn:
        """Raise the reason.

        Raises:
            ContentionError: one of its kinds: who has changed what meanwhile.
            TableAlreadyExists: version 0 was wanted, and there is one.
        """
        raise self.error


@dataclass(frozen=True)
class Unknown:
    """The store did not say whether the commit was written, or it may still be written."""

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
def after_commit(location: str, version: int) -> Iterator[None]:
    """Run what follows a commit: whatever ends it early says that the version is committed.

    Args:
        location: Of the table.
        version: That is committed.

    Raises:
        AfterCommitFailed: something went wrong; the cause is its ``__cause__``.
    """
    try:
        yield
    except Exception as error:  # of whatever kind: the caller must not take it for a failed commit
        raise AfterCommitFailed(version=version, location=location, reason=reason_of(error)) from error
    except BaseException as interrupt:
        add_note(interrupt, f"Version {version} of {location} is committed.")
        raise


def reason_of(error: Exception) -> str:
    """Return what an error says, without the full stop, or its kind if it says nothing."""
    text = error.message if isinstance(error, WidenError) else first_line(error)
    return text.rstrip(".") or type(error).__name__
