"""Version checksums: a summary of a version in a small file beside its commit.

Source: PROTOCOL.md#version-checksum-file
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from widen.log.read.log_segment import UNUSABLE, checksum_path
from widen.log.store.log_store import LogStore
from widen.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn


class VersionChecksum(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of a checksum file; optional fields that are unknown are None.

    Source: PROTOCOL.md#version-checksum-file-schema
    """

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    num_metadata: int = msgspec.field(
        default_factory=lambda: 1
    )  # a factory, since plain defaults are omitted and these must be written
    num_protocol: int = msgspec.field(default_factory=lambda: 1)
    txn_id: str | None = None
    in_commit_timestamp: int | None = msgspec.field(default=None, name="inCommitTimestampOpt")
    set_transactions: tuple[Txn, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None


_T = TypeVar("_T", Metadata, Protocol)
_decoder = msgspec.json.Decoder(VersionChecksum)


def read_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """Return the checksum of a version, or None if it is missing or unusable: readers must work without it.

    Source: PROTOCOL.md#version-checksum-file (optional for readers)
    """
    try:
        # As text: of bytes, the decoder checks only the values that it keeps, and ignores a key with a wrong byte.
        return _decoder.decode(store.read(checksum_path(version)).decode())
    except UNUSABLE:
        return None


def write_checksum(store: LogStore, version: int, checksum: VersionChecksum) -> None:
    """Write the checksum of a version unless it exists: a checksum never changes.

    Source: PROTOCOL.md#version-checksum-file
    """
    store.put_if_absent(checksum_path(version), msgspec.json.encode(checksum))


def next_checksum(
    previous: VersionChecksum | None, actions: Sequence[Action], *, txn_id: str, in_commit_timestamp: int | None
) -> VersionChecksum | None:
    """Return the checksum after a commit, computed from the previous one; None if it cannot be computed for certain.

    Readers take the protocol and the metadata from a checksum, so a missing one is better than a wrong one.

    Args:
        previous: The checksum of the version before; None for version 0 or if it is unknown.
        in_commit_timestamp: The in-commit timestamp in ms, if the table has them.

    Source: PROTOCOL.md#version-checksum-file
    """
    metadata = _newest(actions, Metadata) or (previous.metadata if previous else None)
    protocol = _newest(actions, Protocol) or (previous.protocol if previous else None)
    change = _size_change(actions)
    if metadata is None or protocol is None or change is None:
        return None
    files, size_bytes = change
    return VersionChecksum(
        table_size_bytes=(previous.table_size_bytes if previous else 0) + size_bytes,
        num_files=(previous.num_files if previous else 0) + files,
        metadata=metadata,
        protocol=protocol,
        txn_id=txn_id,
        in_commit_timestamp=in_commit_timestamp,
        set_transactions=_merge_transactions(previous, actions),
        domain_metadata=_merge_domains(previous, actions),
    )


def _newest(actions: Iterable[Action], kind: type[_T]) -> _T | None:
    matching = [action for action in actions if isinstance(action, kind)]
    return matching[-1] if matching else None


def _size_change(actions: Sequence[Action]) -> tuple[int, int] | None:
    """Return by how many files and bytes the table grows; None if an add may only update the metadata of a file."""
    adds = [action for action in actions if isinstance(action, Add)]
    removes = [action for action in actions if isinstance(action, Remove)]
    removed = {action.path for action in removes}
    if any(not add.data_change and not removed for add in adds) or any(r.size is None for r in removes):
        return None
    size_bytes = sum(add.size for add in adds) - sum(remove.size or 0 for remove in removes)
    return len(adds) - len(removes), size_bytes


def _merge_transactions(previous: VersionChecksum | None, actions: Sequence[Action]) -> tuple[Txn, ...] | None:
    if previous is not None and previous.set_transactions is None:
        return None
    merged = {txn.app_id: txn for txn in (previous.set_transactions or () if previous else ())}
    merged.update({action.app_id: action for action in actions if isinstance(action, Txn)})
    return tuple(merged.values())


def _merge_domains(previous: VersionChecksum | None, actions: Sequence[Action]) -> tuple[DomainMetadata, ...] | None:
    if previous is not None and previous.domain_metadata is None:
        return None
    merged = {domain.domain: domain for domain in (previous.domain_metadata or () if previous else ())}
    merged.update({action.domain: action for action in actions if isinstance(action, DomainMetadata)})
    return tuple(domain for domain in merged.values() if not domain.removed)
