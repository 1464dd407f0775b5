"""Commit files without their file actions: the small actions are found by their keys, the rest is not decoded.

Source: PROTOCOL.md#delta-log-entries (one action for each line).
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import msgspec

from widen.errors import CorruptLog
from widen.protocol.actions import CommitInfo, DomainMetadata, Line, Metadata, Protocol, Txn

PROTOCOL, METADATA, TXN, DOMAIN, COMMIT_INFO = "protocol", "metaData", "txn", "domainMetadata", "commitInfo"


class NonFileAction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of a commit, as far as it is no file action: one of these is set, or none."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None


_FILE_ACTIONS = (b'{"add":{', b'{"remove":{', b'{"cdc":{')
"""How lines of file actions begin where they are written without spaces; a line has no other action beside."""
UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What JSON that is damaged, no UTF-8 or nested too deeply raises."""
_decoder = msgspec.json.Decoder(NonFileAction)
_strict = msgspec.json.Decoder(Line)


def read_non_file_actions(path: str, data: bytes, *keys: str) -> Iterator[NonFileAction]:
    """Yield the lines that hold one of these actions, in their order.

    Args:
        path: Of the file, for the error.
        data: Its content.
        keys: The actions wanted, e.g. `PROTOCOL`.

    Raises:
        CorruptLog: such a line, or the end of the file, is damaged; the error names file and line.
    """
    ensure_complete(path, data)
    tokens = [f'"{key}"'.encode() for key in keys]
    for number, text in enumerate(io.BytesIO(data), 1):
        if not text.startswith(_FILE_ACTIONS) and any(token in text for token in tokens):
            yield _decode_line(path, text, number)


def _decode_line(path: str, text: bytes, number: int) -> NonFileAction:
    try:
        return _decoder.decode(text)
    except UNDECODABLE as error:
        raise corrupt_log(path, f"line {number} is damaged ({error})") from error


def ensure_complete(path: str, data: bytes) -> None:
    """Check that a file is neither empty nor cut off.

    Raises:
        CorruptLog: it is; the error names file and line.
    """
    stripped = data[-256:].rstrip()
    if not stripped:
        raise corrupt_log(path, "it is empty")
    if not stripped.endswith(b"}"):
        number = data.rstrip().count(b"\n") + 1
        raise corrupt_log(path, f"its last line, {number}, is cut off")


def decode_commit(path: str, data: bytes) -> list[Line]:
    """Return every line of a commit, wholly decoded, in its order.

    Raises:
        CorruptLog: a line is no JSON or lacks what its action requires; the error names file and line.
    """
    ensure_complete(path, data)
    lines = []
    for number, text in enumerate(data.split(b"\n"), 1):
        if text.strip():
            try:
                lines.append(_strict.decode(text))
            except UNDECODABLE as error:
                raise corrupt_log(path, f"line {number} is damaged ({error})") from error
    return lines


def corrupt_log(path: str, reason: str) -> CorruptLog:
    """Return the error for a damaged log file."""
    fix = "Restore the file from a backup, or open an older version of the table."
    return CorruptLog(path=path, reason=reason, fix=fix)
