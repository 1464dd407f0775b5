"""Checkpoint protection: versions before a given one must be cleaned up all at once or not at all.

Older versions may still use a feature that was dropped. Because the checkpoints after them are kept, clients that do
not support the feature never need to read those versions.

Source: protocol_rfcs/checkpoint-protection.md#writer-requirements-for-checkpoint-protection
"""

from __future__ import annotations

from collections.abc import Mapping

from widen.protocol.actions import Protocol
from widen.protocol.table_features import is_supported

PROTECTION = "checkpointProtection"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"


def protected_before(protocol: Protocol, properties: Mapping[str, str]) -> int:
    """Return the version before which checkpoints are protected; 0 without protection."""
    text = properties.get(PROTECTED_BEFORE, "")
    return int(text) if text.isdecimal() and is_supported(protocol, PROTECTION) else 0
