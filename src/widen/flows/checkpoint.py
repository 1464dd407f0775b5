"""The checkpoint of a flow: what the flow reads and writes, and how far it has read.

The transactions of the target say which versions of the source it has. The checkpoint adds what they cannot say: that
versions without rows have been read, and where a batch ends that may have been interrupted, so that it is repeated with
the same rows.

Source: docs/guide/flow.md#exactly-once
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from widen.errors import FileMissing, InvalidConfig
from widen.log.store.log_store import LogStore

_FILE = "flow.json"
_FORMAT = 1


class FlowProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a flow, as its checkpoint stores it.

    Args:
        version: The last version of the source that has been read; None before the first.
        pending: The version that the current batch ends with; None between two batches.
        committed: The last version whose rows were committed to the target; None before the first.
        snapshot: The version that the flow begins with, while it is read in parts.
        part_bytes: The size of these parts; None for all at once.
        parts: How many of them have been read.
        is_rebuild: Whether the current batch replaces all rows of the target.
    """

    flow_id: str
    source: str
    source_id: str
    into: str
    query: str
    keys: dict[str, str]
    version: int | None = None
    pending: int | None = None
    committed: int | None = None
    snapshot: int | None = None
    part_bytes: int | None = None
    parts: int = 0
    is_rebuild: bool = False
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of a checkpoint."""

    store: LogStore

    @property
    def location(self) -> str:
        """The path or URL."""
        return self.store.location

    def read(self) -> FlowProgress | None:
        """Return the progress of the flow; None for a new flow.

        Raises:
            InvalidConfig: the file is damaged, or a later version of Widen has written it.
        """
        try:
            data = self.store.read(_FILE)
        except FileMissing:
            return None
        try:
            progress = msgspec.json.decode(data, type=FlowProgress)
        except msgspec.DecodeError as error:
            fix = "Delete the file: the flow then continues after the last version that its target has."
            raise self._unusable(str(error), fix) from error
        if progress.format > _FORMAT:
            reason = f"it has the format {progress.format}, and this version of Widen knows {_FORMAT}"
            raise self._unusable(reason, "Install a newer version of Widen.")
        return progress

    def create(self, progress: FlowProgress) -> FlowProgress:
        """Write the first progress, and return it; if another process was first, return what that one has written.

        Raises:
            InvalidConfig: the other one cannot be read.
        """
        is_first = self.store.put_if_absent(_FILE, msgspec.json.encode(progress))
        return progress if is_first else self.read() or progress

    def write(self, progress: FlowProgress) -> FlowProgress:
        """Write the progress, and return it."""
        self.store.put(_FILE, msgspec.json.encode(progress))
        return progress

    def remove(self) -> None:
        """Delete the progress."""
        self.store.delete([_FILE])

    def _unusable(self, reason: str, expected: str) -> InvalidConfig:
        return InvalidConfig(place=f"{self.location}/{_FILE}", reason=reason, expected=expected)


def to_flow_id(source_id: str, query: str, keys: dict[str, str]) -> str:
    """Return the id of a flow in the transactions of its target; a flow whose checkpoint is lost gets the same one."""
    text = msgspec.json.encode([source_id, query, keys])
    return f"widen-flow-{hashlib.sha256(text).hexdigest()[:32]}"
