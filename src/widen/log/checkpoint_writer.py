"""Write checkpoints, in one file or with a sidecar if V2 checkpoints are enabled, and delete what they replace.

Source: PROTOCOL.md#checkpoints
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import StorageError
from widen.log.checkpoint_reader import parsed_partition_values, parsed_stats, read_sidecars
from widen.log.commit_files import current_ms, file_times_ms
from widen.log.file_list import DELETION_VECTOR_KEYS, FILES, STORED_VECTOR, TEXT_MAP, action_key
from widen.log.log_segment import (
    LAST_CHECKPOINT,
    LOG,
    SIDECARS,
    LogListing,
    checkpoint_path,
    list_log,
    read_last_checkpoint,
)
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.protocol.actions import Remove
from widen.protocol.parquet_files import PROLEPTIC
from widen.protocol.table_configuration import protected_before
from widen.protocol.table_features import V2_CHECKPOINT, ensure_writable, is_enabled
from widen.protocol.table_properties import (
    DEFAULTS,
    DELETED_FILE_RETENTION,
    LOG_RETENTION,
    duration_ms,
    is_on,
    parse_duration_ms,
)

STATS_AS_JSON, STATS_AS_STRUCT = "delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct"
_ROWS_IN_GROUP = 1 << 16

_S, _I, _L, _B = pa.string(), pa.int32(), pa.int64(), pa.bool_()
_TEXTS = pa.list_(_S)
_NON_FILE = {
    "protocol": pa.struct(
        [("minReaderVersion", _I), ("minWriterVersion", _I), ("readerFeatures", _TEXTS), ("writerFeatures", _TEXTS)]
    ),
    "metaData": pa.struct(
        [
            ("id", _S),
            ("name", _S),
            ("description", _S),
            ("format", pa.struct([("provider", _S), ("options", TEXT_MAP)])),
            ("schemaString", _S),
            ("partitionColumns", _TEXTS),
            ("configuration", TEXT_MAP),
            ("createdTime", _L),
        ]
    ),
    "txn": pa.struct([("appId", _S), ("version", _L), ("lastUpdated", _L)]),
    "domainMetadata": pa.struct([("domain", _S), ("configuration", _S), ("removed", _B)]),
}
_V2 = {
    "checkpointMetadata": pa.struct([("version", _L), ("tags", TEXT_MAP)]),
    "sidecar": pa.struct([("path", _S), ("sizeInBytes", _L), ("modificationTime", _L), ("tags", TEXT_MAP)]),
}
_REMOVE = pa.struct(
    [
        ("path", _S),
        ("deletionTimestamp", _L),
        ("dataChange", _B),
        ("extendedFileMetadata", _B),
        ("partitionValues", TEXT_MAP),
        ("size", _L),
        ("deletionVector", STORED_VECTOR),
        ("baseRowId", _L),
        ("defaultRowCommitVersion", _L),
    ]
)

MAX_PAUSE_MS = 3_600_000
"""How long a checkpoint may take from its sidecar to its top-level file."""


def write_checkpoint(snapshot: Snapshot) -> None:
    """Write a checkpoint of a version, and update ``_last_checkpoint``.

    Source: PROTOCOL.md#checkpoints, #last-checkpoint-file; protocol_rfcs/checkpoint-protection.md
    """
    ensure_writable(snapshot.protocol, snapshot.location)
    files = snapshot.files()
    removed = _unexpired_removes(snapshot.removed_files(), snapshot.properties)
    adds, add_type = _adds(snapshot, files)
    other_actions = list(_non_file_rows(snapshot))
    count = len(other_actions) + files.num_rows + len(removed)
    # A table that supports V2 checkpoints without enabling them may be about to lose the feature.
    if is_enabled(snapshot.protocol, snapshot.properties, V2_CHECKPOINT):
        size_bytes = _write_v2(snapshot, other_actions, removed, adds, add_type)
    else:
        schema = pa.schema([*_NON_FILE.items(), ("remove", _REMOVE), ("add", add_type)])
        data = _encode(schema, [*other_actions, *removed], adds)
        snapshot.store.put(checkpoint_path(snapshot.version), data)
        size_bytes = len(data)
    pointer = {"version": snapshot.version, "size": count, "sizeInBytes": size_bytes, "numOfAddFiles": files.num_rows}
    # The checkpoint is complete before the pointer names it; a slow writer must not move the pointer back.
    if read_last_checkpoint(snapshot.store).version <= snapshot.version:
        snapshot.store.put(LAST_CHECKPOINT, msgspec.json.encode(pointer))


def _write_v2(
    snapshot: Snapshot,
    other_actions: Sequence[dict[str, Any]],
    removed: Sequence[dict[str, Any]],
    adds: Iterable[pa.Array],
    add_type: pa.DataType,
) -> int:
    """Write the file actions into a sidecar, and all other actions and its name into the top-level file.

    The top-level file also has the columns of file actions, all null: Delta Spark fails if they are missing.
    """
    name = f"{uuid.uuid4()}.parquet"
    file_actions = [("remove", _REMOVE), ("add", add_type)]
    sidecar = _encode(pa.schema(file_actions), removed, adds)
    # The sidecar comes first: a top-level file must never name a missing sidecar.
    now_ms = current_ms()
    snapshot.store.put(f"{SIDECARS}/{name}", sidecar)
    rows = [
        {"checkpointMetadata": {"version": snapshot.version}},
        *other_actions,
        {"sidecar": {"path": name, "sizeInBytes": len(sidecar), "modificationTime": now_ms}},
    ]
    data = _encode(pa.schema([*_NON_FILE.items(), *file_actions, *_V2.items()]), rows, ())
    path = f"{LOG}/{snapshot.version:020d}.checkpoint.{uuid.uuid4()}.parquet"
    if _was_paused(now_ms):
        raise _interruption(snapshot)
    snapshot.store.put(path, data)
    # From here on the checkpoint protects its sidecar. It stays, because a cleanup may rely on it already; unless an
    # earlier cleanup has deleted the sidecar.
    if _was_paused(now_ms) and snapshot.store.find(f"{SIDECARS}/{name}") is None:
        snapshot.store.delete([path])
        raise _interruption(snapshot)
    return len(data) + len(sidecar)


def _was_paused(began_ms: int) -> bool:
    """Return whether a cleanup can have deleted a sidecar that no checkpoint names yet: it keeps a day's sidecars."""
    return current_ms() - began_ms > MAX_PAUSE_MS


def _interruption(snapshot: Snapshot) -> StorageError:
    reason = f"the checkpoint of version {snapshot.version} was interrupted for more than an hour"
    return StorageError(location=snapshot.location, reason=reason, fix="Write the checkpoint again.")


def _encode(schema: pa.Schema, rows: Sequence[dict[str, Any]], adds: Iterable[pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, compression="snappy") as writer:
        writer.add_key_value_metadata(PROLEPTIC)
        if rows:
            writer.write_table(pa.Table.from_pylist(list(rows), schema))
        for add in adds:
            columns = [add if field.name == "add" else pa.nulls(len(add), field.type) for field in schema]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _non_file_rows(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    yield {"protocol": msgspec.to_builtins(snapshot.protocol)}
    yield {"metaData": _with_pairs(msgspec.to_builtins(snapshot.metadata))}
    yield from ({"txn": msgspec.to_builtins(txn)} for txn in snapshot.transactions.values())
    yield from ({"domainMetadata": msgspec.to_builtins(domain)} for domain in snapshot.domains.values())


def _with_pairs(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata with its maps as lists of pairs, the form that Arrow requires."""
    file_format = metadata.get("format", {})
    options = list((file_format.get("options") or {}).items())
    return {
        **metadata,
        "configuration": list(metadata.get("configuration", {}).items()),
        "format": {"provider": file_format.get("provider", "parquet"), "options": options},
    }


def _unexpired_removes(removed: Iterable[Remove], properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of removed files that have not expired.

    Source: PROTOCOL.md#action-reconciliation (tombstones stay until they expire, without statistics and tags)
    """
    since_ms = current_ms() - retention_ms(properties)
    return [_remove_row(remove) for remove in removed if (remove.deletion_timestamp or 0) > since_ms]


def retention_ms(properties: Mapping[str, str]) -> int:
    """Return how long tombstones of removed files are kept, in ms.

    Source: Delta Spark: delta.deletedFileRetentionDuration; an invalid value counts as not set.
    """
    retention = parse_duration_ms(properties.get(DELETED_FILE_RETENTION, ""))
    return duration_ms({}, DELETED_FILE_RETENTION) if retention is None else retention


def _remove_row(remove: Remove) -> dict[str, Any]:
    row = msgspec.to_builtins(remove)
    # A checkpoint changes nothing: Delta Spark writes false for adds and removes alike.
    row["dataChange"] = False
    if remove.partition_values is not None:
        row["partitionValues"] = list(remove.partition_values.items())
    return {"remove": {field.name: row.get(field.name) for field in _REMOVE}}


def _adds(snapshot: Snapshot, files: pa.Table) -> tuple[Iterator[pa.Array], pa.DataType]:
    """Return the column of add actions, in batches, and its type."""
    as_json = snapshot.properties.get(STATS_AS_JSON, "true").lower() == "true"
    as_struct = is_on(snapshot.properties, STATS_AS_STRUCT)
    names = [name for name in FILES.names if name != "stats" or as_json]
    fields = [
        pa.field(action_key(name), STORED_VECTOR if name == "deletion_vector" else FILES.field(name).type)
        for name in names
    ]
    fields.append(pa.field("dataChange", _B))
    extra = [parsed_stats(snapshot.schema, snapshot.partition_columns)] if as_struct else []
    if as_struct and snapshot.partition_columns:
        extra.append(parsed_partition_values(snapshot.schema, snapshot.partition_columns, snapshot.partition_keys))
    fields += [column.field for column in extra]

    def arrays() -> Iterator[pa.Array]:
        for rows in _groups(files):
            columns = [_column(rows, name) for name in names]
            columns.append(pa.repeat(pa.scalar(False), rows.num_rows))
            columns += [column.convert(rows) for column in extra]
            yield pa.StructArray.from_arrays(columns, fields=fields)

    return arrays(), pa.struct(fields)


def _groups(files: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that make good row groups."""
    for start in range(0, files.num_rows, _ROWS_IN_GROUP):
        yield from files.slice(start, _ROWS_IN_GROUP).combine_chunks().to_batches()


def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
    array = rows.column(name)
    if name != "deletion_vector":
        return array
    parts = [array.field(number) for number in range(len(DELETION_VECTOR_KEYS))]
    return pa.StructArray.from_arrays(parts, fields=list(STORED_VECTOR), mask=array.is_null())


# Log cleanup: delete expired versions, up to a checkpoint that replaces them.
#
# Source: PROTOCOL.md#metadata-cleanup; protocol_rfcs/checkpoint-protection.md

ENABLE = "delta.enableExpiredLogCleanup"
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def clean_up_if_enabled(snapshot: Snapshot) -> int:
    """Delete expired log files, unless the table disables that or its retention is invalid.

    Returns:
        The number of deleted files.

    Source: Delta Spark: delta.enableExpiredLogCleanup, true by default.
    """
    properties = snapshot.properties
    retention_ms = parse_duration_ms(properties.get(LOG_RETENTION, DEFAULTS[LOG_RETENTION]))
    if retention_ms is None or properties.get(ENABLE, "true").lower() == "false":
        return 0
    return clean_up(snapshot, retention_ms)


def clean_up(snapshot: Snapshot, retention_ms: int, unit_ms: int = DAY_MS, now_ms: int | None = None) -> int:
    """Delete the versions before the newest checkpoint that is older than the retention.

    Every version within the retention can still be opened. If checkpoints are protected, either all protected versions
    are deleted, or no protected version.

    Args:
        unit_ms: The start of the retention is rounded down to a multiple of this, in ms.

    Returns:
        The number of deleted files.

    Source: PROTOCOL.md#metadata-cleanup
    """
    now_ms = current_ms() if now_ms is None else now_ms
    listing = list_log(snapshot.store)
    first = _first_to_keep(listing, (now_ms - retention_ms) // unit_ms * unit_ms)
    if first is None or first < protected_before(snapshot.configuration):
        return 0
    expired, checksums = ([entry.path for entry in entries] for entries in listing.before(first))
    # A writer with an old base takes the commit of that base for a sign that no later one is deleted.
    snapshot.store.delete_in_order(expired)
    snapshot.store.delete(checksums)
    # Sidecars go last: until then, a checkpoint that is still listed may name them.
    unused = _unused_sidecars(snapshot.store, list_log(snapshot.store), now_ms) if expired else []
    snapshot.store.delete(unused)
    return len(expired) + len(checksums) + len(unused)


def is_truncated(snapshot: Snapshot) -> bool:
    """Return whether no commit of the protected versions is left, and a later checkpoint replaces them."""
    listing, first = list_log(snapshot.store), protected_before(snapshot.configuration)
    checkpoint = earliest_reliable_checkpoint(listing)
    return not first or (checkpoint is not None and checkpoint >= first and min(listing.commits) >= first)


def earliest_reliable_checkpoint(listing: LogListing) -> int | None:
    """Return the version of the oldest checkpoint that allows all later versions to be reconstructed; None without one.

    The commit of that version must also exist, and no later commit may be missing.

    Source: Delta Spark.
    """
    reliable = None
    for version in sorted(listing.commits, reverse=True):
        if version < listing.newest and version + 1 not in listing.commits:
            break
        reliable = version if version in listing.checkpoints else reliable
    return reliable


def _first_to_keep(listing: LogListing, cutoff_ms: int) -> int | None:
    """Return the version of the newest checkpoint at or before the newest commit that is older than the cutoff."""
    commits = listing.versions
    old = [c.first for c, time_ms in zip(commits, file_times_ms(commits), strict=True) if time_ms <= cutoff_ms]
    checkpoint = listing.checkpoint(old[-1]) if old else None
    # An empty file, e.g. of a writer that crashed, replaces nothing.
    is_complete = checkpoint is not None and all(entry.size_bytes for entry in checkpoint.files)
    return checkpoint.version if checkpoint and is_complete and checkpoint.version in listing.commits else None


def _unused_sidecars(store: LogStore, listing: LogListing, now_ms: int) -> list[str]:
    """Return the sidecars that no checkpoint names.

    Sidecars of the last day are kept: a writer creates them before the checkpoint that names them.
    """
    since_ms = now_ms // DAY_MS * DAY_MS - DAY_MS
    old = [entry for entry in store.list(SIDECARS) if entry.modified_ms < since_ms]
    if not old:
        return []
    used = {s.path.rpartition("/")[2] for entry in listing.checkpoint_files for s in read_sidecars(store, entry)}
    return [entry.path for entry in old if entry.name not in used]
