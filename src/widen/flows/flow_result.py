"""The result of one batch of a flow."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

from widen.ingestion.result import IngestResult
from widen.model.notebook import html_table


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """The result of one batch of a flow.

    Args:
        source: The location of the source.
        into: The location of the target.
        first: The first version of the source that the batch has read.
        last: The last one.
        result: What was written; None if no row has changed.
        skipped: The versions of the source that were left out, because they updated or removed rows.
        part: The number of the part, if the first version of the source is read in parts.
        is_rebuild: Whether the batch has replaced all rows of the target.
    """

    source: str
    into: str
    first: int
    last: int
    _: KW_ONLY
    result: IngestResult | None = None
    skipped: tuple[int, ...] = ()
    part: int | None = None
    is_rebuild: bool = False

    def __repr__(self) -> str:
        done = "no row has changed" if self.result is None else f"version {self.result.version}"
        return f"FlowBatch(source versions {self.first} to {self.last}: {done})"

    def _repr_html_(self) -> str:
        numbers = self.to_value()
        rows = ((name, numbers[name]) for name in ("source", "into", "firstVersion", "lastVersion"))
        return html_table("FlowBatch", ("", "value"), rows) + (self.result._repr_html_() if self.result else "")

    def to_value(self) -> dict[str, Any]:
        """Return the batch as a JSON object."""
        return {
            "source": self.source,
            "into": self.into,
            "firstVersion": self.first,
            "lastVersion": self.last,
            "skippedVersions": list(self.skipped),
            "part": self.part,
            "isRebuild": self.is_rebuild,
            "result": None if self.result is None else self.result.to_value(),
        }
