"""Decode the lines of commit files: all of them, or only those that are not file actions.

Opening a table needs only the protocol and the metadata. So lines of file actions, which are by far the most, are
recognized by their first bytes and skipped without decoding.

Source: PROTOCOL.md#delta-log-entries (one action per line)
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import msgspec

from widen.errors import CorruptLog
from widen.protocol.actions import CommitInfo, DomainMetadata, Line, Metadata, Protocol, Txn

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
    """Yield the lines that hold one of these actions, in order.

    Args:
        keys: The keys of the actions to return, e.g. `PROTOCOL`.

    Raises:
        CorruptLog: such a line, or the end of the file, is damaged; the error names file and line.
    """
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
    """Check that a file is neither empty nor cut off.

    Raises:
        CorruptLog: it is empty or cut off; the error names file and line.
    """
    stripped = data[-256:].rstrip()
    if not stripped:
        raise corrupt_log(path, "it is empty")
    if not stripped.endswith(b"}"):
        number = data.rstrip().count(b"\n") + 1
        raise corrupt_log(path, f"its last line, {number}, is cut off")


def decode_commit(path: str, data: bytes) -> list[Line]:
    """Decode every line of a commit, in order.

    Raises:
        CorruptLog: a line is not valid JSON or lacks a required field; the error names file and line.
    """
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
