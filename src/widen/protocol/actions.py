"""The actions of commits, as immutable values with their JSON codec.

Unknown keys and unknown actions are ignored when read, as the protocol requires.

Source: PROTOCOL.md#actions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from widen.errors import CorruptLog
from widen.model.column_path import Path
from widen.model.schema_json import to_json
from widen.model.types import StructType

Integer: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""The integers of actions; decoding a line fails for numbers that are out of range."""


class _Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The common JSON form of actions: keys in camelCase, defaults omitted."""


class Protocol(_Value, frozen=True):
    """The versions and table features that a client must support.

    Source: PROTOCOL.md#protocol-evolution
    """

    min_reader_version: Integer
    min_writer_version: Integer
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


class Metadata(_Value, frozen=True):
    """The schema, the partition columns and the properties of a table.

    Source: PROTOCOL.md#change-metadata
    """

    id: str
    schema_string: str
    partition_columns: tuple[str, ...]
    configuration: dict[str, str] = msgspec.field(default_factory=lambda: {})  # noqa: PIE807 (so that {} is written)
    format: dict[str, Any] = msgspec.field(default_factory=lambda: {"provider": "parquet", "options": {}})
    name: str | None = None
    description: str | None = None
    created_time: Long | None = None

    def with_schema(self, schema: StructType) -> Metadata:
        """Return the metadata with another schema."""
        return msgspec.structs.replace(self, schema_string=to_json(schema))


class DeletionVector(_Value, frozen=True):
    """The descriptor of a deletion vector, which has the positions of a file's deleted rows.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema
    """

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Integer
    cardinality: Long
    offset: Integer | None = None


class Add(_Value, frozen=True):
    """A data file of the table.

    ``path`` is a percent-encoded URI, relative to the table or absolute; ``size`` is in bytes,
    ``modification_time`` in ms since the epoch; ``stats`` is JSON text.

    Source: PROTOCOL.md#add-file-and-remove-file
    """

    path: str
    partition_values: dict[str, str | None]
    size: Long
    modification_time: Long
    data_change: bool
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None


class Remove(_Value, frozen=True):
    """A data file that was removed from the table.

    Source: PROTOCOL.md#add-file-and-remove-file
    """

    path: str
    data_change: bool
    deletion_timestamp: Long | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: Long | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None


class AddCdc(_Value, frozen=True):
    """A change data file, with row-level changes.

    Source: PROTOCOL.md#add-cdc-file
    """

    path: str
    partition_values: dict[str, str | None]
    size: Long
    data_change: bool
    tags: dict[str, str | None] | None = None


class Txn(_Value, frozen=True):
    """The last version that an application has written.

    Source: PROTOCOL.md#transaction-identifiers
    """

    app_id: str
    version: Long
    last_updated: Long | None = None


class DomainMetadata(_Value, frozen=True):
    """The configuration of a named domain.

    Source: PROTOCOL.md#domain-metadata
    """

    domain: str
    configuration: str
    removed: bool


class Sidecar(_Value, frozen=True):
    """A file with part of a V2 checkpoint.

    Source: PROTOCOL.md#sidecar-file-information
    """

    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: dict[str, str | None] | None = None


class CheckpointMetadata(_Value, frozen=True):
    """The version of a V2 checkpoint.

    Source: PROTOCOL.md#checkpoint-metadata
    """

    version: Long
    tags: dict[str, str | None] | None = None


CommitInfo: TypeAlias = dict[str, Any]
"""The provenance of a commit, in free form.

    Source: PROTOCOL.md#commit-provenance-information
    """


class Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One line of a commit, a log compaction or a V2 JSON checkpoint: one attribute is set, the others are None."""

    commit_info: CommitInfo | None = None
    protocol: Protocol | None = None
    meta_data: Metadata | None = None
    add: Add | None = None
    remove: Remove | None = None
    cdc: AddCdc | None = None
    txn: Txn | None = None
    domain_metadata: DomainMetadata | None = None
    sidecar: Sidecar | None = None
    checkpoint_metadata: CheckpointMetadata | None = None


Action: TypeAlias = Protocol | Metadata | Add | Remove | AddCdc | Txn | DomainMetadata

_KEY_OF: Mapping[type, str] = {
    Protocol: "protocol",
    Metadata: "metaData",
    Add: "add",
    Remove: "remove",
    AddCdc: "cdc",
    Txn: "txn",
    DomainMetadata: "domainMetadata",
    Sidecar: "sidecar",
    CheckpointMetadata: "checkpointMetadata",
}
_encoder = msgspec.json.Encoder()


def encode_lines(info: CommitInfo, actions: Iterable[Action]) -> bytes:
    """Return the content of a commit file: the provenance first, then the actions in order.

    Source: PROTOCOL.md#in-commit-timestamps (commitInfo must come first)
    """
    lines: list[dict[str, Any]] = [{"commitInfo": info}]
    lines += ({_KEY_OF[type(action)]: action} for action in actions)
    return _encoder.encode_lines(lines)


# The clustering columns of a table.
#
# Source: PROTOCOL.md#clustered-table


DOMAIN = "delta.clustering"


class _Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: tuple[tuple[str, ...], ...]


def to_domain(columns: tuple[Path, ...]) -> DomainMetadata:
    """Return the action that records clustering columns by their physical paths."""
    configuration = msgspec.json.encode(_Clustering(columns)).decode()
    return DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)


def clustering_domain(columns: Iterable[Path]) -> DomainMetadata:
    """Return the domain of a table that is clustered by columns, given by their physical paths.

    Source: PROTOCOL.md#clustered-table
    """
    value = {"clusteringColumns": list(columns), "domainName": DOMAIN}
    return DomainMetadata(domain=DOMAIN, configuration=msgspec.json.encode(value).decode(), removed=False)


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[Path, ...]:
    """Return the physical paths of the clustering columns.

    Raises:
        CorruptLog: the domain cannot be decoded.

    Source: PROTOCOL.md#clustered-table
    """
    if DOMAIN not in domains:
        return ()
    try:
        return msgspec.json.decode(domains[DOMAIN].configuration, type=_Clustering).clustering_columns
    except msgspec.DecodeError as error:
        raise CorruptLog(
            path="_delta_log",
            reason=f"its metadata domain {DOMAIN} cannot be read ({error})",
            fix="Repair it with the client that wrote it.",
        ) from error
