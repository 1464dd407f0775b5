"""Texts of records as they may be kept: without what the policy leaves out or masks.

What is no record has no fields, so nobody can say what in it is to be hidden: all of it is.

Source: docs/evolution-rules.md#d11, #d13
"""

from __future__ import annotations

from widen.model.column_path import format_path
from widen.model.types import StructType
from widen.observe.corrupt_text import to_kept_text
from widen.observe.field_rules import MASK
from widen.observe.json_document import JsonDocument, document_to_json, parse_document
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.policy_field_rules import build_field_rules


class Redactor:
    """Hides what a policy leaves out or masks; see the module.

    Args:
        policy: What is to be hidden.
    """

    def __init__(self, policy: Policy) -> None:
        hidden = policy.left_out | policy.masked
        self._reading = build_field_rules(StructType(), Policy(left_out=policy.left_out, masked=policy.masked))
        self._names = ", ".join(sorted(map(format_path, hidden)))

    def corrupt(self, text: bytes) -> str:
        """Return a text that is no record as it may be kept: all of it, or nothing but its length."""
        if self._names:
            return f"{MASK} {len(text)} bytes that may hold {self._names}"
        return to_kept_text(text)

    def record(self, record: dict[str, JsonDocument], text: bytes | None) -> str:
        """Return the text of a record as it may be kept.

        Args:
            record: The record, as it was parsed.
            text: What it was parsed from, if nothing else stood there.
        """
        if text is None or self._names:
            return document_to_json(self._reading.record(record))
        return text.decode()

    def text(self, text: bytes) -> str:
        """Return the text of a record as it may be kept."""
        document = parse_document(text) if self._names else None
        return self.record(document, text) if isinstance(document, dict) else text.decode()
