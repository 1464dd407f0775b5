"""Commit files without their file actions: the small actions are found by their keys, the rest is not decoded.

Source: PROTOCOL.md#delta-log-entries (one action for each line); house rule: metadata must not cost the file list.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from widen.errors import CorruptLog
from widen.protocol.action import CommitInfo, DomainMetadata, Line, Metadata, Protocol, Txn

PROTOCOL, METADATA, TXN, DOMAIN, COMMIT_INFO = "protocol", "metaData", "txn", "domainMetadata", "commitInfo"


class SmallLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of a commit, as far as it is no file action: one of these is set, or none."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None


_decoder = msgspec.json.Decoder(SmallLine)
_strict = msgspec.json.Decoder(Line)


def small_lines(path: str, data: bytes, *keys: str) -> Iterator[SmallLine]:
    """Yield the lines that hold one of these actions, in no particular order.

    Args:
        path: Of the file, for the error.
        data: Its content.
        keys: The actions wanted, e.g. `PROTOCOL`.

    Raises:
        CorruptLog: such a line, or the end of the file, is damaged; the error names file and line.
    """
    ensure_whole(path, data)
    starts: set[int] = set()
    for key in keys:
        token = f'"{key}"'.encode()
        at = data.find(token)
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = _end_of_line(data, at)
            if start not in starts:
                starts.add(start)
                yield _decoded(path, data, start, end)
            at = data.find(token, end)


def _end_of_line(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _decoded(path: str, data: bytes, start: int, end: int) -> SmallLine:
    try:
        return _decoder.decode(memoryview(data)[start:end])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        number = data.count(b"\n", 0, start) + 1
        raise corrupt(path, f"line {number} is damaged ({error})") from error


def ensure_whole(path: str, data: bytes) -> None:
    """Check that a file is neither empty nor cut off.

    Raises:
        CorruptLog: it is; the error names file and line.
    """
    stripped = data[-256:].rstrip()
    if not stripped:
        raise corrupt(path, "it is empty")
    if not stripped.endswith(b"}"):
        number = data.rstrip().count(b"\n") + 1
        raise corrupt(path, f"its last line, {number}, is cut off")


def strict_lines(path: str, data: bytes) -> list[Line]:
    """Return every line of a commit, wholly decoded, in its order.

    Raises:
        CorruptLog: a line is no JSON or lacks what its action requires; the error names file and line.
    """
    ensure_whole(path, data)
    lines = []
    for number, text in enumerate(data.split(b"\n"), 1):
        if text.strip():
            try:
                lines.append(_strict.decode(text))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise corrupt(path, f"line {number} is damaged ({error})") from error
    return lines


def corrupt(path: str, reason: str) -> CorruptLog:
    """Return the error for a damaged log file."""
    fix = "Restore the file from a backup, or open an older version of the table."
    return CorruptLog(path=path, reason=reason, fix=fix)
