"""Bugs that are injected into the log code, one at a time: a simulation that misses one of them proves nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from widen.errors import StorageError, StorageRefused
from widen.log import checkpoint_writer, commit, conflict, snapshot
from widen.log import commit as post_commit
from widen.log import commit_outcome as staged_files
from widen.log import log_segment as version_checksum
from widen.log.conflict import WinningCommit
from widen.log.log_store import LogStore
from widen.table import maintenance as restore


def _patched(where: object, **names: Any) -> AbstractContextManager[Any]:
    return mock.patch.multiple(where, **names)


def _overwrite_commits() -> AbstractContextManager[Any]:
    def put_if_absent(store: LogStore, path: str, data: bytes) -> bool:
        store.put(path, data)
        return True

    return _patched(LogStore, put_if_absent=put_if_absent)


def _check_then_write() -> AbstractContextManager[Any]:
    def put_if_absent(store: LogStore, path: str, data: bytes) -> bool:
        if store.find(path):
            return False
        store.put(path, data)
        return True

    return _patched(LogStore, put_if_absent=put_if_absent)


def _without_rules(*names: str) -> Callable[[], AbstractContextManager[Any]]:
    kept = tuple(rule for rule in conflict.RULES if rule[0].__name__ not in names)
    assert len(kept) == len(conflict.RULES) - len(names)
    return lambda: _patched(conflict, RULES=kept)


def _report_lost_answer_as_refusal() -> AbstractContextManager[Any]:
    real = commit._put

    def put(store: LogStore, version: int, txn_id: str, data: bytes) -> Any:
        path = commit.commit_path(version)
        try:
            if store.put_if_absent(path, data):
                return None
        except StorageError as error:
            raise StorageRefused(location=path, reason="answer lost", fix="") from error
        return real(store, version, txn_id, data)

    return _patched(commit, _put=put)


def _check_last_winner_only() -> AbstractContextManager[Any]:
    real = commit._read_winners
    return _patched(commit, _read_winners=lambda store, first: list(real(store, first))[-1:])


def _after(**kept: str) -> Callable[[], AbstractContextManager[Any]]:
    """Let an attempt keep values that it must take from the winning commit."""
    real = commit._CommitAttempt.after

    def after(attempt: Any, winner: Any) -> Any:
        return replace(real(attempt, winner), **{name: getattr(attempt, name) for name in kept})

    return lambda: _patched(commit._CommitAttempt, after=after)


def _checkpoint_without_transactions() -> AbstractContextManager[Any]:
    real = checkpoint_writer._non_file_rows
    return _patched(
        checkpoint_writer, _non_file_rows=lambda version: [row for row in real(version) if "txn" not in row]
    )


def _delete_one_version_too_many() -> AbstractContextManager[Any]:
    real = checkpoint_writer._first_to_keep

    def first_to_keep(*args: Any) -> int | None:
        found = real(*args)
        return None if found is None else found + 1

    return _patched(checkpoint_writer, _first_to_keep=first_to_keep)


def _use_any_older_checksum() -> AbstractContextManager[Any]:
    real = version_checksum.read_checksum

    def read_checksum(store: LogStore, version: int) -> Any:
        found = (real(store, each) for each in range(version, -1, -1))
        return next((each for each in found if each is not None), None)

    return _patched(post_commit, read_checksum=read_checksum)


def _trust_newest_checksum() -> AbstractContextManager[Any]:
    def newest(self: snapshot.Snapshot) -> Any:
        cache = vars(self)  # read once, as the real property is: a second read may fail where the first did not
        if "newest_checksum" not in cache:
            version = max(self.segment.checksums, default=None)
            cache["newest_checksum"] = None if version is None else snapshot.read_checksum(self.store, version)
        return cache["newest_checksum"]

    return _patched(snapshot.Snapshot, _checksum=property(newest))


def _stale_listing() -> AbstractContextManager[Any]:
    """Answer a listing from memory three times out of four."""
    known: dict[tuple[int, str], list[Any]] = {}
    turn = itertools.count()
    real = LogStore.list_from

    def list_from(store: LogStore, path: str) -> Iterator[Any]:
        key = (id(store), path)
        if next(turn) % 4 == 0 or key not in known:
            known[key] = list(real(store, path))
        return iter(known[key])

    return _patched(LogStore, list_from=list_from)


def _restore_without_removes() -> AbstractContextManager[Any]:
    real = restore.files_only_in
    return _patched(restore, files_only_in=lambda one, other: real(one, other) if one.version < other.version else [])


def _oldest_first() -> AbstractContextManager[Any]:
    real = snapshot.Snapshot._newest_first

    def oldest_first(self: snapshot.Snapshot, **how: bool) -> Iterable[Any]:
        return reversed(list(real(self, **how)))

    return _patched(snapshot.Snapshot, _newest_first=oldest_first)


@contextmanager
def seeded(bug: str) -> Iterator[None]:
    """Inject a bug into the log code while the block runs."""
    with ExitStack() as stack:
        stack.enter_context(BUGS[bug]())
        yield


BUGS: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "a commit overwrites another one": _overwrite_commits,
    "a commit checks for another one before it is written": _check_then_write,
    "conflicts are not checked": lambda: _patched(commit, find_conflict=lambda *_: None),
    "added files are not a conflict": _without_rules("_append_to_read_files"),
    "removed files are not a conflict": _without_rules("_delete_of_read_files", "_delete_of_removed_files"),
    "another schema is not a conflict": _without_rules("_both_change_metadata", "_metadata_differs"),
    "the same batch is not a conflict": _without_rules("_same_application"),
    "only the newest winner is checked": _check_last_winner_only,
    "our own commit is mistaken for another one": lambda: _patched(WinningCommit, info={}),
    "a lost answer is reported as a refusal": _report_lost_answer_as_refusal,
    "files of an unknown commit are deleted": lambda: _patched(staged_files.StagedFiles, mark_visible=lambda _: None),
    "row ids of a winner are assigned again": _after(row_ids=""),
    "the time of a winner is ignored": _after(earlier_ms=""),
    "a checkpoint has the name of the next version": lambda: _patched(
        checkpoint_writer, checkpoint_path=lambda version: f"_delta_log/{version + 1:020d}.checkpoint.parquet"
    ),
    "a checkpoint lacks the transactions of applications": _checkpoint_without_transactions,
    "a cleanup deletes one version too many": _delete_one_version_too_many,
    "a cleanup ignores the retention": lambda: _patched(checkpoint_writer, current_ms=lambda: 2_000_000_000_000),
    "a checksum is computed from any earlier one": _use_any_older_checksum,
    "the checksum of another version is trusted": _trust_newest_checksum,
    "a listing is stale": _stale_listing,
    "a restore removes nothing": _restore_without_removes,
    "commits are replayed from the oldest": _oldest_first,
}
"""The bugs by name, each with the function that injects it."""
