"""Decode the lines of commit files: all of them, or only those that are not file actions.

Opening a table needs only the protocol and the metadata. So lines of file actions, which are by far the most, are
recognized by their first bytes and skipped without decoding.

Source: PROTOCOL.md#delta-log-entries (one action per line)
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

import msgspec

from widen.errors import CorruptLog, InvalidOption, VersionNotFound
from widen.log.log_segment import LogFile
from widen.log.log_store import LogStore
from widen.protocol.actions import CommitInfo, DomainMetadata, Line, Metadata, Protocol, Txn
from widen.protocol.partition_values import parse_timestamp
from widen.protocol.table_properties import ENABLE_IN_COMMIT_TIMESTAMPS, TIMESTAMPS_SINCE_VERSION, is_on

PROTOCOL, METADATA, TXN, DOMAIN, COMMIT_INFO = "protocol", "metaData", "txn", "domainMetadata", "commitInfo"


class NonFileAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of a commit that is not a file action: at most one field is set."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None


_FILE_ACTIONS = (b'{"add":{', b'{"remove":{', b'{"cdc":{')
"""The first bytes of lines of file actions, when written without spaces. A line holds only one action."""
_COMMIT_INFO = b'{"commitInfo":'
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises for JSON that is damaged, not UTF-8, or nested too deeply."""
_decoder = msgspec.json.Decoder(NonFileAction)
_line_decoder = msgspec.json.Decoder(Line)


def read_non_file_actions(path: str, data: bytes, *keys: str) -> Iterator[NonFileAction]:
    """Yield the lines that hold one of these actions, in order."""
    ensure_complete(path, data)
    tokens = [f'"{key}"'.encode() for key in keys]
    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.startswith(_FILE_ACTIONS) and any(token in line for token in tokens):
            yield _decode_line(path, line, number)


def _decode_line(path: str, line: bytes, number: int) -> NonFileAction:
    try:
        return _decoder.decode(_to_utf8(line))
    except UNDECODABLE as error:
        raise corrupt_log(path, f"line {number} is damaged ({error})") from error


def ensure_complete(path: str, data: bytes) -> None:
    """Check that a file is neither empty nor cut off."""
    stripped = data[-256:].rstrip()
    if not stripped:
        raise corrupt_log(path, "it is empty")
    if not stripped.endswith(b"}"):
        number = data.rstrip().count(b"\n") + 1
        raise corrupt_log(path, f"its last line, {number}, is cut off")


def decode_commit(path: str, data: bytes) -> list[Line]:
    """Decode every line of a commit, in order."""
    ensure_complete(path, data)
    lines = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                lines.append(_line_decoder.decode(_to_utf8(line)))
            except UNDECODABLE as error:
                raise corrupt_log(path, f"line {number} is damaged ({error})") from error
    return lines


def _to_utf8(line: bytes) -> bytes | str:
    """Return a line after a check that it is UTF-8: the decoder checks only the values that it keeps.

    It would take a key with a wrong byte for an unknown one, and e.g. ignore a deletion vector. Nothing depends on a
    commitInfo in that way.
    """
    return line if line.isascii() else str(line, "utf-8", "replace" if line.startswith(_COMMIT_INFO) else "strict")


def corrupt_log(path: str, reason: str) -> CorruptLog:
    """Return the error for a damaged log file."""
    fix = "Restore the file from a backup, or open an older version of the table."
    return CorruptLog(path=path, reason=reason, fix=fix)


# Commit timestamps: in-commit timestamps where the table has them, else the modification times of commit files.
#
# Source: PROTOCOL.md#in-commit-timestamps; Delta Spark for making file times monotonic.


IN_COMMIT_TIMESTAMP = "inCommitTimestamp"


def current_ms() -> int:
    """Return the current time of this machine, in ms since the epoch."""
    return time.time_ns() // 1_000_000


def first_version_with_timestamps(properties: Mapping[str, str]) -> int | None:
    """Return the first version with an in-commit timestamp; None if the table does not have them."""
    if not is_on(properties, ENABLE_IN_COMMIT_TIMESTAMPS):
        return None
    text = properties.get(TIMESTAMPS_SINCE_VERSION, "0")
    return int(text) if text.isdecimal() else 0


def decode_commit_info(path: str, data: bytes) -> CommitInfo:
    """Return the commitInfo of a commit; empty if it has no commitInfo."""
    for line in read_non_file_actions(path, data, COMMIT_INFO):
        if line.commit_info is not None:
            return line.commit_info
    return {}


def file_times_ms(commits: Sequence[LogFile]) -> list[int]:
    """Return the modification time of every commit file, adjusted to be at least 1 ms after the one before.

    Clocks of writers differ, but time travel needs times in the order of versions. A commit before a gap, which a late
    writer has put after it was cleaned up, does not change the times of those after the gap.

    Source: Delta Spark (DeltaHistoryManager)
    """
    times: list[int] = []
    for number, commit in enumerate(commits):
        follows = number and commits[number - 1].first == commit.first - 1
        earliest = times[-1] + 1 if follows else 0
        times.append(max(commit.entry.modified_ms, earliest))
    return times


def commit_times_ms(
    commits: Sequence[LogFile], infos: Sequence[CommitInfo], properties: Mapping[str, str]
) -> list[int]:
    """Return the time of every commit in ms since the epoch: its in-commit timestamp, else the time of its file."""
    first = first_version_with_timestamps(properties)
    return [
        info.get(IN_COMMIT_TIMESTAMP, file_time) if first is not None and commit.first >= first else file_time
        for commit, info, file_time in zip(commits, infos, file_times_ms(commits), strict=True)
    ]


def find_version(store: LogStore, commits: Sequence[LogFile], timestamp_ms: int, properties: Mapping[str, str]) -> int:
    """Return the newest version that was committed at or before a time.

    Raises:
        VersionNotFound: the time is before the oldest version; the error names the range.

    Source: PROTOCOL.md#in-commit-timestamps (in-commit timestamps increase from the enablement on)
    """
    first = first_version_with_timestamps(properties)
    older = [c for c in commits if first is None or c.first < first]
    timestamped = [c for c in commits if first is not None and c.first >= first]
    if timestamped and _in_commit_ms(store, timestamped[0]) <= timestamp_ms:
        return _search(store, timestamped, timestamp_ms)
    times = file_times_ms(older)
    candidates = [c.first for c, time in zip(older, times, strict=True) if time <= timestamp_ms]
    if candidates:
        return candidates[-1]
    oldest = time_text(times[0] if times else _in_commit_ms(store, timestamped[0]))
    raise VersionNotFound(
        location=store.location,
        wanted=f"a version at {time_text(timestamp_ms)}",
        reason=f"its oldest version, {commits[0].first}, is from {oldest}; the newest is {commits[-1].first}",
        fix="Ask for a later time or for a version.",
    )


def _in_commit_ms(store: LogStore, commit: LogFile) -> int:
    info = decode_commit_info(commit.entry.path, store.read(commit.entry.path))
    return int(info.get(IN_COMMIT_TIMESTAMP, commit.entry.modified_ms))


def _search(store: LogStore, commits: Sequence[LogFile], timestamp_ms: int) -> int:
    # In-commit timestamps increase with the version, so a binary search reads few of the commits.
    low, high = 0, len(commits) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _in_commit_ms(store, commits[middle]) <= timestamp_ms:
            low = middle
        else:
            high = middle - 1
    return commits[low].first


def to_ms(timestamp: datetime | str) -> int:
    """Return a timestamp in milliseconds since 1970; a text is ISO 8601, and UTC is the default zone.

    Raises:
        InvalidOption: the text cannot be parsed.
    """
    moment = parse_timestamp(timestamp) if isinstance(timestamp, str) else timestamp
    if moment is None:
        raise InvalidOption(option="timestamp", value=timestamp, expected="Must be a time, e.g. 2024-01-31 12:00:00Z.")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


def time_text(time_ms: int) -> str:
    """Return a time in ms since the epoch as ISO text in UTC.

    Example:
        >>> time_text(1_700_000_000_123)
        '2023-11-14T22:13:20.123Z'
    """
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
