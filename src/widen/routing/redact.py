"""Texts of records for the quarantine and the column of corrupt records, without masked and excluded values.

A text that is not a record has no fields, so only the whole text can be hidden.

Source: docs/evolution-rules.md#d11, #d13
"""

from __future__ import annotations

from widen.model.column_path import format_path
from widen.model.types import StructType
from widen.observe.corrupt_text import corrupt_bytes_to_text
from widen.observe.field_rules import MASK
from widen.observe.json_document import JsonDocument, document_to_json, parse_document
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.policy_field_rules import build_field_rules


class Redactor:
    """Hides values that the policy masks or excludes.

    Args:
        schema: The columns of the table: where they are maps, the keys of objects are not names of fields.
    """

    def __init__(self, policy: Policy, schema: StructType | None = None) -> None:
        redacted = policy.excluded | policy.masked
        self._rules = build_field_rules(schema or StructType(), policy, keeps_forms=True)
        self._redacted_paths = ", ".join(sorted(map(format_path, redacted)))

    def redact_corrupt(self, text: bytes) -> str:
        """Return a text that is not a record as the table may keep it: unchanged, or only its length."""
        if self._redacted_paths:
            # Without fields, nothing says which part of the text is the masked value.
            return f"{MASK} {len(text)} bytes that may hold {self._redacted_paths}"
        return corrupt_bytes_to_text(text)

    def redact_record(self, record: dict[str, JsonDocument], text: bytes | None) -> str:
        """Return the text of a record as the table may keep it.

        Args:
            text: The text that it was parsed from; None if that text has other records or lacks fields.
        """
        if text is None or self._redacted_paths:
            return document_to_json(self._rules.record(record))
        return text.decode()

    def redact_text(self, text: bytes) -> str:
        """Return the text of a record as the table may keep it."""
        document = parse_document(text) if self._redacted_paths else None
        return self.redact_record(document, text) if isinstance(document, dict) else text.decode()
