"""The protection of checkpoints: which versions may only go all at once.

A feature that was dropped may still be in use in older versions. Checkpoints after them keep clients that do not know
it from ever looking there.

Source: protocol_rfcs/checkpoint-protection.md#writer-requirements-for-checkpoint-protection
"""

from __future__ import annotations

from collections.abc import Mapping

from widen.protocol.actions import Protocol
from widen.protocol.table_features import is_supported

PROTECTION = "checkpointProtection"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"


def protected_before(protocol: Protocol, properties: Mapping[str, str]) -> int:
    """Return the version before which checkpoints are protected; 0 if none are."""
    text = properties.get(PROTECTED_BEFORE, "")
    return int(text) if text.isdecimal() and is_supported(protocol, PROTECTION) else 0
