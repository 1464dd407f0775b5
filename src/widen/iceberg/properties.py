"""What Widen stores in an Iceberg table beside the columns: table properties, snapshot summaries and docs.

An Iceberg field has a doc and no other metadata. So the source field of each column is in a table property, by field
id, which a rename does not change. The last interval of each stream is in the snapshot summary and in a table
property of the same commit, because snapshots expire.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from widen.errors import CorruptMetadata, InvalidOption
from widen.model.column_path import Path, format_path
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.table_properties import AllowedValues
from widen.schema.source_metadata import ALIASES, EVOLVED_FROM, FORM, ROLE, SOURCE

SOURCES = "widen.sources"
"""Table property: the source field of each column, as JSON; see `encode_sources`."""

STREAM = "widen.stream."
"""Prefix of table properties: with the id of a stream, the number of the last interval that the table has."""

BRANCH_STREAM = "widen.branch-stream."
"""Prefix of table properties: with a branch in percent-encoding, a slash and the id of a stream, the last interval."""

APP_ID, INTERVAL = "widen.app-id", "widen.interval"
"""Snapshot summary: the stream and the number of the interval that the snapshot holds."""

BRANCH = "widen.branch"
"""Snapshot summary: the branch that an interval was written to; missing for the main branch."""

OPERATION = "widen.operation"
"""Snapshot summary: what made the snapshot, one of `OPERATIONS`."""

INGEST, APPEND, REPLAY, UNDO, FOLD = "ingest", "append", "replay", "undo", "fold"
DELETE, UPDATE, OVERWRITE, MERGE = "delete", "update", "overwrite", "merge"
OPTIMIZE, REWRITE, FORGET = "optimize", "rewrite", "forget"
OPERATIONS = (INGEST, APPEND, REPLAY, UNDO, FOLD, DELETE, UPDATE, OVERWRITE, MERGE, OPTIMIZE, REWRITE, FORGET)

MODE, PLAN_HASH = "widen.mode", "widen.plan-hash"
"""Snapshot summary: the mode of evolution of an interval, and the hash of its plan."""

EVENTS, EVENT_COUNT = "widen.events", "widen.event-count"
"""Snapshot summary: the events of an interval as JSON, and their number. A long list is cut; see `MAX_EVENTS_BYTES`."""

EVENT_FILE = "widen.event-file"
"""Snapshot summary: the file with the whole list of events, below the location of the table, if it was cut."""

RECORDS, QUARANTINED, CORRUPT = "widen.records", "widen.quarantined-records", "widen.corrupt-texts"
CORRUPT_REASON = "widen.first-corrupt"
ROUNDED = "widen.rounded-values"
"""Snapshot summary: the numbers of records written and quarantined, and of texts that are not records."""

KEYED = "widen.keyed-rows"
"""Snapshot summary: what an ingestion by key did to the rows of its keys, as JSON."""

NEW_FILES = "widen.new-files"
"""Snapshot summary of a quarantine: the tag of its load; see `widen.targets.quarantine_tags`."""

PARAMETERS = "widen.parameters"
"""Snapshot summary: more parameters of the commit, as JSON."""

MAX_EVENTS_BYTES = 4096
"""Up to this size, events are in a snapshot summary. Every reader of a table loads all its summaries."""

VERSION = 1
"""The version of the form of `SOURCES`."""

EVOLVED = "evolved_from:"
"""The beginning of the doc of an evolved column, or of its last part after the user's own text."""


class ColumnSource(
    msgspec.Struct, frozen=True, omit_defaults=True, rename={"source": "s", "is_evolved": "e", "aliases": "a"}
):
    """What a column holds.

    Args:
        source: The key of its source field below the key of the parent column, or the whole path of the source field;
            None if it does not hold a source field.
        is_evolved: Whether it is beside the column with the plain name.
        form: The text form of a column that holds all values of its field.
        role: The role of a column that does not hold a source field.
    """

    source: str | list[str] | None = None
    is_evolved: bool = False
    form: str | None = None
    role: str | None = None
    aliases: list[str] | None = None

    def path(self, parent: Path) -> Path | None:
        """Return the path of the source field; None if the column does not hold one."""
        if isinstance(self.source, str):
            return (*parent, self.source)
        return None if self.source is None else tuple(self.source)

    def to_metadata(self, parent: Path) -> dict[str, Any]:
        """Return the metadata that the column has in the model."""
        path = self.path(parent)
        metadata: dict[str, Any] = {} if path is None else {SOURCE: list(path)}
        if self.is_evolved and path is not None:
            metadata[EVOLVED_FROM] = format_path(path)
        named = {FORM: self.form, ROLE: self.role, ALIASES: self.aliases}
        return metadata | {key: value for key, value in named.items() if value is not None}


class _Sources(msgspec.Struct, frozen=True, rename={"version": "v", "columns": "c"}):
    version: int
    columns: dict[int, ColumnSource | str]


_FIX = "Use the version of Widen that wrote it, or remove the property; then columns are found by their names."
_decode, _encode = msgspec.json.Decoder(_Sources).decode, msgspec.json.Encoder().encode


def read_sources(properties: Mapping[str, str], location: str) -> Mapping[int, ColumnSource]:
    """Return the source field of each column, by field id, from the properties of a table.

    Raises:
        CorruptMetadata: the property cannot be read, or a newer version of Widen has written it.
    """
    text = properties.get(SOURCES)
    if text is None:
        return {}
    try:
        sources = _decode(text)
    except msgspec.DecodeError as error:
        raise CorruptMetadata(location=location, name=SOURCES, reason=str(error), fix=_FIX) from error
    if sources.version > VERSION:
        reason = f"it has version {sources.version}, and this version of Widen reads up to {VERSION}"
        raise CorruptMetadata(location=location, name=SOURCES, reason=reason, fix=_FIX)
    return {
        number: ColumnSource(source) if isinstance(source, str) else source
        for number, source in sources.columns.items()
    }


def encode_sources(schema: StructType) -> str:
    """Return the value of the property `SOURCES` for columns with field ids and source fields in their metadata."""
    columns = dict(_sources_of(schema, ()))
    return _encode(_Sources(VERSION, columns)).decode()


def _sources_of(data_type: DataType, parent: Path) -> Iterator[tuple[int, ColumnSource | str]]:
    match data_type:
        case StructType(fields):
            for field in fields:
                path = tuple(field.metadata.get(SOURCE) or ())
                entry = _source_of(field, path, parent)
                if entry != ColumnSource():
                    plain = ColumnSource(source=entry.source)
                    is_plain = entry == plain and isinstance(entry.source, str)
                    yield field.metadata[COLUMN_ID], str(entry.source) if is_plain else entry
                yield from _sources_of(field.type, path or (*parent, field.name))
        case ArrayType(element):
            yield from _sources_of(element, parent)
        case MapType(_, value):
            yield from _sources_of(value, parent)


def _source_of(field: Field, path: Path, parent: Path) -> ColumnSource:
    source: str | list[str] | None = list(path) or None
    if path and path[:-1] == parent:
        source = path[-1]
    form, role = field.metadata.get(FORM), field.metadata.get(ROLE)
    return ColumnSource(source, EVOLVED_FROM in field.metadata, form, role, field.metadata.get(ALIASES))


def doc_with_source(text: str | None, field: Field) -> str | None:
    """Return the doc of a column with a text of the user, which keeps what it is evolved from.

    Example:
        >>> from widen.model.types import LONG
        >>> doc_with_source("In grams.", Field("a_long", LONG, metadata={EVOLVED_FROM: "a"}))
        'In grams. evolved_from:a'
    """
    parts = [text] if text else []
    if EVOLVED_FROM in field.metadata:
        parts.append(f"{EVOLVED}{field.metadata[EVOLVED_FROM]}")
    return " ".join(parts) or None


def stream_key(app_id: str, branch: str | None = None) -> str:
    """Return the name of the table property that records the last interval of a stream.

    Example:
        >>> stream_key("loader"), stream_key("loader", "a/b")
        ('widen.stream.loader', 'widen.branch-stream.a%2Fb/loader')
    """
    return f"{STREAM}{app_id}" if branch is None else f"{branch_prefix(branch)}{app_id}"


def branch_prefix(branch: str) -> str:
    """Return what the names of the properties with the intervals of a branch begin with."""
    return f"{BRANCH_STREAM}{quote(branch, safe='')}/"


def stream_mark(app_id: str, number: int, branch: str | None = None) -> dict[str, str]:
    """Return the table property that records the last interval of a stream in a branch."""
    return {stream_key(app_id, branch): str(number)}


def last_interval(properties: Mapping[str, str], app_id: str, branch: str | None = None) -> int | None:
    """Return the number of the last interval of a stream by the properties of the table; None without intervals.

    Raises:
        CorruptMetadata: the property is not a number.
    """
    name = stream_key(app_id, branch)
    number = properties.get(name)
    if number is None:
        return None
    try:
        return int(number)
    except ValueError as error:
        fix = "Set it to the number of the last interval that the table has."
        raise CorruptMetadata(location=app_id, name=name, reason=f"{number!r} is not a number", fix=fix) from error


def report_summary(
    mode: str,
    plan_hash: str,
    events: list[Any],
    *,
    records: int,
    quarantined: int,
    corrupt: int,
    corrupt_reason: str = "",
    rounded: int = 0,
) -> dict[str, str]:
    """Return the report of an interval for the snapshot summary.

    Events that do not fit into `MAX_EVENTS_BYTES` are left out, from the end; their number stays. The caller writes the
    whole list to a file then; see `is_cut`.
    """
    kept: list[msgspec.Raw] = []
    size = 2
    for event in events:
        text = _encode(event)
        size += len(text) + 1
        if size > MAX_EVENTS_BYTES:
            break
        kept.append(msgspec.Raw(text))
    summary = {OPERATION: INGEST, MODE: mode, PLAN_HASH: plan_hash, RECORDS: str(records)}
    if events:
        summary |= {EVENTS: _encode(kept).decode(), EVENT_COUNT: str(len(events))}
    counts = {QUARANTINED: quarantined, CORRUPT: corrupt, ROUNDED: rounded}
    summary |= {CORRUPT_REASON: corrupt_reason} if corrupt else {}
    return summary | {key: str(number) for key, number in counts.items() if number}


def is_cut(summary: Mapping[str, str]) -> bool:
    """Return whether a summary from `report_summary` has only a part of the events."""
    return EVENTS in summary and len(msgspec.json.decode(summary[EVENTS])) < int(summary[EVENT_COUNT])


# Properties that users set.


FORMAT_VERSION = "format-version"
"""The property that Iceberg's clients use to choose the format version of a table; it is not stored."""

FORMAT_VERSIONS = (1, 2, 3)
"""The format versions that Widen writes."""

_READ_ONLY = "Iceberg reserves this name for what the metadata say themselves. {}"
_SIZE = AllowedValues("[0-9]{1,18}", "Must be an integer.")
SETTINGS: Mapping[str, AllowedValues] = {
    FORMAT_VERSION: AllowedValues("[123]", "Widen writes the format versions 1 to 3 of Iceberg."),
    **{
        name: AllowedValues("(?!)", _READ_ONLY.format(fix))
        for name, fix in {
            **dict.fromkeys(("current-snapshot-id", "current-snapshot-summary"), "To go back, restore a snapshot."),
            "current-snapshot-timestamp-ms": "To go back, restore a snapshot.",
            "cherry-pick-snapshot-id": "Iceberg for Spark can cherry-pick a snapshot.",
            "snapshot-count": "To remove snapshots, vacuum the table.",
            "uuid": "It cannot be changed.",
            "location": "The catalog chooses the location of a table.",
            "provider": "The table is an Iceberg table.",
            **dict.fromkeys(("current-schema", "identifier-fields"), "To change columns, use ALTER TABLE."),
            "default-partition-spec": "To change it, use ALTER TABLE … ADD or DROP PARTITION FIELD.",
            **dict.fromkeys(("default-sort-order", "sort-order"), "To change it, use ALTER TABLE … WRITE ORDERED BY."),
        }.items()
    },
    "write.format.default": AllowedValues("(?i:parquet)", "Must be parquet, the only format that Widen writes."),
    "write.delete.format.default": AllowedValues("(?i:parquet)", "Must be parquet: Widen reads no other delete files."),
    **dict.fromkeys(
        (
            "write.target-file-size-bytes",
            "write.summary.partition-limit",
            "write.metadata.previous-versions-max",
            "write.metadata.metrics.max-inferred-column-defaults",
            "commit.manifest.target-size-bytes",
            "commit.manifest.min-count-to-merge",
            "commit.retry.num-retries",
            "history.expire.max-snapshot-age-ms",
            "history.expire.min-snapshots-to-keep",
            "history.expire.max-ref-age-ms",
        ),
        _SIZE,
    ),
    **dict.fromkeys(
        ("gc.enabled", "commit.manifest-merge.enabled", "write.metadata.delete-after-commit.enabled"),
        AllowedValues("(?i:true|false)", "Must be true or false."),
    ),
}
"""The values that users can give to properties which every writer of a table reads, or which are reserved.

Source: Iceberg's configuration, "Write properties", "Table behavior properties", "Reserved table properties"
"""


def ensure_settable(properties: Mapping[str, str]) -> None:
    """Check that properties of an Iceberg table can be set to values.

    Raises:
        InvalidOption: a name is reserved, a property records what Widen has done, or a value is not valid.
    """
    ensure_not_own(properties)
    for key, value in properties.items():
        allowed = SETTINGS.get(key)
        if not isinstance(value, str):
            raise InvalidOption(option=key, value=value, expected="Must be a string, e.g. 'true'.")
        if allowed is not None and not allowed.is_valid(value.strip()):
            raise InvalidOption(option=key, value=value, expected=allowed.expected)


def ensure_not_own(keys: Iterable[str]) -> None:
    """Check that no property records what Widen has done.

    Raises:
        InvalidOption: a property is one of these.
    """
    own = next((key for key in keys if key == SOURCES or key.startswith((STREAM, BRANCH_STREAM))), None)
    if own is not None:
        raise InvalidOption(option="properties", value=own, expected="Widen keeps its records there.")


def encode_events(events: list[Any]) -> bytes:
    """Return the content of a file with a whole list of events."""
    return zlib.compress(_encode(events), 6)
