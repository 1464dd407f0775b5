"""The stages between the texts of a source and its records: what is below a path, and in plain JSON.

After them, a record is a text like any other.

Source: docs/guide/nested-records.md, docs/guide/typed-json.md
"""

from __future__ import annotations

from typing import NamedTuple

from widen.evolution.policy import Policy
from widen.json.dialect import DialectReader
from widen.json.observation import RecordPosition
from widen.json.record_path import RecordFinder
from widen.sources.file_ranges import TextGroup, record_too_long


class PlacedRecords(NamedTuple):
    """Texts with their positions."""

    texts: list[bytes]
    positions: list[RecordPosition]


class RefusedRecords(NamedTuple):
    """Texts with their positions, and why they are not records."""

    texts: list[bytes]
    positions: list[RecordPosition]
    reasons: list[str]


class RecordStages:
    """Applies the stages that a policy has.

    Args:
        limit: The maximum size of a record.
    """

    def __init__(self, policy: Policy, limit: int) -> None:
        self._finder = None if policy.record_path is None else RecordFinder(policy.record_path)
        self._dialect = None if policy.dialect is None else DialectReader(policy.dialect)
        self._limit = limit

    def apply(
        self, group: TextGroup, texts: list[bytes], positions: list[RecordPosition]
    ) -> tuple[PlacedRecords, RefusedRecords]:
        """Return the records in texts, and the texts that are not records.

        Args:
            group: The group of the texts.
        """
        records, refused = PlacedRecords(texts, positions), RefusedRecords([], [], [])
        if self._finder is not None and not group.is_found:
            records, refused = self._find(self._finder, records, is_whole=group.is_whole)
        if self._dialect is not None:
            pairs = zip(*records, strict=True)
            plain = [(each, at) for text, at in pairs for each in self._dialect.read(text)]
            records = PlacedRecords([text for text, _ in plain], [at for _, at in plain])
        return records, refused

    def _find(
        self, finder: RecordFinder, documents: PlacedRecords, *, is_whole: bool
    ) -> tuple[PlacedRecords, RefusedRecords]:
        """Return the records below a path; those of a whole file are numbered through the file."""
        records, refused, number = PlacedRecords([], []), RefusedRecords([], [], []), 0
        for text, (file, line) in zip(*documents, strict=True):
            for found in finder.find(text):
                for each in found.texts:
                    number += 1
                    at = (file, number if is_whole else line)
                    if len(each) > self._limit and not found.reason:
                        raise record_too_long(file, None, self._limit, line=at[1])
                    found_in = refused if found.reason else records
                    found_in.texts.append(each)
                    found_in.positions.append(at)
                    if found.reason:
                        refused.reasons.append(found.reason)
        return records, refused
