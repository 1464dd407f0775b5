"""What a store tells of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file in a listing.

    Args:
        path: Relative to the table, as the store spells it (not percent-encoded).
        size_bytes: Its length.
        modified_ms: When it was last written, in ms since the epoch.
    """

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]
