"""Times: of this machine, and of versions: by their commit files, or by what the commits say themselves.

Source: PROTOCOL.md#in-commit-timestamps; Delta Spark for making file times monotonic.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from widen.errors import VersionNotFound
from widen.log.read.commit_lines import COMMIT_INFO, read_non_file_actions
from widen.log.read.log_segment import LogFile
from widen.log.store.log_store import LogStore
from widen.protocol.actions import CommitInfo
from widen.protocol.table_properties import ENABLE_IN_COMMIT_TIMESTAMPS, TIMESTAMPS_SINCE_VERSION, is_on

IN_COMMIT_TIMESTAMP = "inCommitTimestamp"


def current_ms() -> int:
    """Return the time by the clock of this machine, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def has_in_commit_timestamps(properties: Mapping[str, str]) -> bool:
    """Tell whether commits of a table say themselves when they were made."""
    return is_on(properties, ENABLE_IN_COMMIT_TIMESTAMPS)


def first_version_with_timestamps(properties: Mapping[str, str]) -> int | None:
    """Return the first version whose commit says when it was made; None if the table does not have that."""
    if not has_in_commit_timestamps(properties):
        return None
    text = properties.get(TIMESTAMPS_SINCE_VERSION, "0")
    return int(text) if text.isdecimal() else 0


def decode_commit_info(path: str, data: bytes) -> CommitInfo:
    """Return the provenance of a commit; empty if it says none.

    Raises:
        CorruptLog: its line is damaged.
    """
    for line in read_non_file_actions(path, data, COMMIT_INFO):
        if line.commit_info is not None:
            return line.commit_info
    return {}


def file_times_ms(commits: Sequence[LogFile]) -> list[int]:
    """Return for every commit the time of its file, each at least 1 ms after the one before.

    Source: Delta Spark: clocks of writers differ, the order of versions does not.
    """
    times: list[int] = []
    for commit in commits:
        earliest = times[-1] + 1 if times else 0
        times.append(max(commit.entry.modified_ms, earliest))
    return times


def commit_times_ms(
    commits: Sequence[LogFile], infos: Sequence[CommitInfo], properties: Mapping[str, str]
) -> list[int]:
    """Return the time of every commit in ms since the epoch: what it says itself, else the time of its file.

    Args:
        commits: Every commit there is up to some version, oldest first.
        infos: The provenance of each.
        properties: Of the table, which tell from which version on commits say their time.
    """
    first = first_version_with_timestamps(properties)
    return [
        info.get(IN_COMMIT_TIMESTAMP, by_file) if first is not None and commit.first >= first else by_file
        for commit, info, by_file in zip(commits, infos, file_times_ms(commits), strict=True)
    ]


def find_version(store: LogStore, commits: Sequence[LogFile], timestamp_ms: int, properties: Mapping[str, str]) -> int:
    """Return the newest version that is not later than a time.

    Args:
        store: Of the table.
        commits: Every commit there is, oldest first.
        timestamp_ms: In ms since the epoch.
        properties: The newest configuration of the table.

    Raises:
        VersionNotFound: the time is before the oldest version; the error names the range.
        CorruptLog: a commit is damaged.

    Source: PROTOCOL.md#in-commit-timestamps (versions from the enablement on are ordered by what they say)
    """
    first = first_version_with_timestamps(properties)
    by_file = [c for c in commits if first is None or c.first < first]
    by_word = [c for c in commits if first is not None and c.first >= first]
    if by_word and _said_ms(store, by_word[0]) <= timestamp_ms:
        return _search(store, by_word, timestamp_ms)
    times = file_times_ms(by_file)
    known = [c.first for c, time in zip(by_file, times, strict=True) if time <= timestamp_ms]
    if known:
        return known[-1]
    oldest = times[0] if times else _said_ms(store, by_word[0])
    raise VersionNotFound(
        location=store.location,
        wanted=f"version at {timestamp_ms} ms",
        reason=f"its oldest version, {commits[0].first}, is from {oldest} ms; the newest is {commits[-1].first}",
        fix="Ask for a later time or for a version.",
    )


def _said_ms(store: LogStore, commit: LogFile) -> int:
    info = decode_commit_info(commit.entry.path, store.read(commit.entry.path))
    return int(info.get(IN_COMMIT_TIMESTAMP, commit.entry.modified_ms))


def _search(store: LogStore, commits: Sequence[LogFile], timestamp_ms: int) -> int:
    low, high = 0, len(commits) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _said_ms(store, commits[middle]) <= timestamp_ms:
            low = middle
        else:
            high = middle - 1
    return commits[low].first
