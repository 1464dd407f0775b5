"""Envelopes: documents about the change of a row, e.g. from Debezium, as the record of that row.

The record has the fields of the row, and after them the other fields of the envelope, each with an underscore before
its name: `_op`, `_ts_ms`, `_source`. The row before the change is left out, except of a deletion, which has no other.
The row is copied byte by byte, so that every number stays as the source spells it.

Source: docs/guide/keys.md#envelopes
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from enum import Enum
from hashlib import md5
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from widen.errors import SourceError
from widen.json.change_streams import (
    EventRow,
    NotAChangeError,
    decode_fields,
    decode_items,
    read_mongodb,
    read_spanner,
    read_sqlserver,
    split_spanner,
)
from widen.json.dialect import Dialect, DialectReader
from widen.json.document import BOM, InvalidJson, parse_document, split_text
from widen.model.column_path import Path
from widen.model.value_classes import dataclass

PREFIX = "_"
"""Stands before the names of what the envelope says beside the row."""

POSITION = "_position"
"""The field with the position of a change in the log of its database, as a text that sorts like the log."""

UNCHANGED = "_unchanged"
"""The field with the names of the fields whose values the source does not send, because the change left them as they
were."""

UPDATE_DESCRIPTION = "_updateDescription"
"""The field with what an event of MongoDB has changed. Its names are paths, so it is kept as text."""

UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium sends this instead of such a value, unless its connector is given another placeholder."""


@dataclass(frozen=True, slots=True)
class PositionFields:
    """The fields of `source` that order the changes of a database.

    Args:
        parts: The fields that may have each part of a position: the first one that is a whole number, or the only one.
            ``sequence[0]`` is the first item of the JSON array in ``sequence``.
        of_snapshot: How many of the parts a row of a snapshot has. A transaction that began before a snapshot may end
            after it, so a snapshot is ordered by commits where the log is.
    """

    parts: tuple[tuple[str, ...], ...]
    of_snapshot: int


_BINLOG = PositionFields((("file",), ("pos",), ("row",)), 3)
_COMMIT = ("commit_lsn",), ("change_lsn",)
_TIMES = ("ts_ms",), ("ts_ns",)

POSITIONS: Mapping[str, PositionFields] = MappingProxyType(
    {
        "postgresql": PositionFields((("sequence[0]", "lsn"), ("lsn",)), 1),
        "mysql": _BINLOG,
        "mariadb": _BINLOG,
        "mongodb": PositionFields((("ts_ms",), ("ord",)), 2),
        "sqlserver": PositionFields((*_COMMIT, ("event_serial_no",)), 1),
        "oracle": PositionFields((("commit_scn", "scn"), ("scn",), ("lcr_position",), ("rs_id",), ("ssn",)), 1),
        "db2": PositionFields(_COMMIT, 1),
        "spanner": PositionFields((*_TIMES, ("record_sequence",), ("mod_number",)), 1),
    }
)
"""The fields that order changes, by the connector.

Source: docs/guide/keys.md#positions
"""

OTHER_POSITION = PositionFields(_TIMES, 1)
"""The position fields of other connectors."""

SORTED_TEXTS = frozenset({"commit_lsn", "change_lsn", "lcr_position", "rs_id"})
"""The fields whose texts, hexadecimal digits of one length, sort as they are."""

SNAPSHOT = "(snapshot)"
"""What the position of a row begins with that a snapshot has read without a position: it sorts before every other."""


Operation: TypeAlias = str | int


class EventForm(Enum):
    """Where an event has its rows."""

    STATES = "states"
    """In fields with the row before and after the change."""
    MONGODB = "mongodb"
    """A document, or the fields of one that an update has changed."""
    SQLSERVER = "sqlserver"
    """The event is the row, with some fields that describe the change."""
    SPANNER = "spanner"
    """In a list of changes, each with a key and values."""


CHANGED_ONLY = frozenset({EventForm.MONGODB, EventForm.SPANNER})
"""The forms whose updates may have the changed fields only."""

UNSAID: Mapping[EventForm, frozenset[str]] = MappingProxyType(
    {
        EventForm.MONGODB: frozenset({"fullDocument", "documentKey"}),
        EventForm.SPANNER: frozenset({"mods", "column_types"}),
    }
)
"""The fields of events that records do not have, since their rows come from them."""


@dataclass(frozen=True, slots=True)
class EventShape:
    """The fields of a kind of event: those that it has, and those that it may have besides."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Envelope:
    """Where a document has what.

    Args:
        name: The name as the caller wrote it.
        payload: The path to the envelope; a document that has nothing there is the envelope itself.
        after: That with the row after it.
        op: The path to the operation, within the envelope.
        upserts: The operations that write a row; empty for all others.
        deletes: Those that delete it. Operations are all texts or all integers.
        truncates: Those that delete all rows, which refuse the batch.
        ignores: The operations of events without a row, such as DDL, which have no record.
        without_op: The names of the fields of events without an operation and without a row, such as heartbeats.
        has_position: Whether the records get the field `POSITION`, from the field `source` of the envelope.
        unavailable: The texts that stand for a value that the change left as it was; see `unavailable_values`.
        has_schemas: Whether documents may have a schema part; see `widen.json.connect`.
        form: Where an event has its rows; all but states ignore the paths to them.
        fields: The fields of events, for the forms whose updates may have the changed fields only.
        copies: Where events have a row, or fields of it, again.
        changes: Where they have its values in texts, or under other names.
        says_copies: Whether the last two are known.
    """

    name: str
    payload: tuple[str, ...] = ()
    before: str = "before"
    after: str = "after"
    op: tuple[str, ...] = ("op",)
    upserts: frozenset[Operation] = frozenset()
    deletes: frozenset[Operation] = frozenset()
    truncates: frozenset[Operation] = frozenset()
    ignores: frozenset[Operation] = frozenset()
    without_op: tuple[EventShape, ...] = ()
    has_position: bool = False
    unavailable: tuple[str, ...] = ()
    has_schemas: bool = False
    form: EventForm = EventForm.STATES
    fields: frozenset[str] = frozenset()
    copies: tuple[str, ...] = ()
    changes: tuple[tuple[str, ...], ...] = ()
    says_copies: bool = True

    def again(self, sources: Iterable[Path]) -> Iterator[Path]:
        """Yield where records have the values of fields of their rows again."""
        sources = list(sources)
        for name in self.copies:
            yield from ((f"{PREFIX}{name}", *source) for source in sources)
        if sources:
            yield from ((f"{PREFIX}{first}", *below) for first, *below in self.changes)

    @property
    def has_unchanged(self) -> bool:
        """Whether records may name the fields that a change has left as they were."""
        return bool(self.unavailable) or self.form in CHANGED_ONLY

    @property
    def op_column(self) -> tuple[str, ...]:
        """The path to the operation in the records."""
        return self.op if self.form is EventForm.SQLSERVER else (PREFIX + self.op[0], *self.op[1:])

    @property
    def has_integers(self) -> bool:
        """Whether operations are integers."""
        return any(isinstance(each, int) for each in self.deletes | self.upserts | self.truncates | self.ignores)


DEBEZIUM = Envelope(
    "debezium",
    payload=("payload",),
    upserts=frozenset("cru"),
    deletes=frozenset("d"),
    truncates=frozenset("t"),
    without_op=(
        EventShape(frozenset({"ts_ms"}), frozenset({"ts_us", "ts_ns"})),  # a heartbeat
        EventShape(frozenset({"status", "id"}), frozenset({"event_count", "data_collections", "ts_ms"})),
        EventShape(
            frozenset({"databaseName", "ddl"}),
            frozenset({"source", "ts_ms", "ts_us", "ts_ns", "schemaName", "tableChanges"}),
        ),
    ),
    has_position=True,
    unavailable=(UNAVAILABLE,),
    has_schemas=True,
    changes=(("source", "query"), ("patch",), ("updateDescription", "updatedFields")),
)

MAXWELL = Envelope(
    "maxwell",
    before="data",
    after="data",
    op=("type",),
    upserts=frozenset({"insert", "update", "bootstrap-insert"}),
    deletes=frozenset({"delete"}),
    ignores=frozenset({"bootstrap-start", "bootstrap-complete"})
    | {f"{what}-{change}" for what in ("table", "database") for change in ("create", "alter", "drop")},
    copies=("old",),
    changes=(("query",),),
)

CANAL = Envelope(
    "canal",
    before="data",
    after="data",
    op=("type",),
    upserts=frozenset({"INSERT", "UPDATE"}),
    deletes=frozenset({"DELETE"}),
    truncates=frozenset({"TRUNCATE"}),
    ignores=frozenset({"CREATE", "ALTER", "ERASE", "RENAME", "CINDEX", "DINDEX", "QUERY", "TIDB_WATERMARK"}),
    copies=("old",),
    changes=(("sql",),),
)

DMS = Envelope(
    "dms",
    before="data",
    after="data",
    op=("metadata", "operation"),
    upserts=frozenset({"load", "insert", "update"}),
    deletes=frozenset({"delete"}),
    truncates=frozenset({"truncate-table"}),
    ignores=frozenset({"create-table", "drop-table", "rename-table", "add-column", "drop-column", "rename-column"})
    | {"column-type-change"},
    copies=("before-image",),
)

DATASTREAM = Envelope(
    "datastream",
    before="payload",
    after="payload",
    op=("source_metadata", "change_type"),
    upserts=frozenset({"INSERT", "UPDATE", "UPDATE-INSERT", "READ"}),
    deletes=frozenset({"DELETE", "UPDATE-DELETE"}),
)

MONGODB = Envelope(
    "mongodb",
    op=("operationType",),
    upserts=frozenset({"insert", "replace", "update"}),
    deletes=frozenset({"delete"}),
    truncates=frozenset({"drop", "dropDatabase"}),
    ignores=frozenset({"rename", "invalidate", "create", "modify", "createIndexes", "dropIndexes"})
    | {"shardCollection", "reshardCollection", "refineCollectionShardKey"},
    has_position=True,
    form=EventForm.MONGODB,
    fields=frozenset({"_id", "operationType", "clusterTime", "wallTime", "ns", "nsType", "to", "documentKey"})
    | {"fullDocument", "fullDocumentBeforeChange", "updateDescription", "lsid", "txnNumber", "collectionUUID"},
    copies=("fullDocumentBeforeChange",),
    changes=(("updateDescription", "updatedFields"),),
)

SQLSERVER = Envelope(
    "sqlserver-cdc",
    op=("__$operation",),
    upserts=frozenset({2, 4, 5}),
    deletes=frozenset({1}),
    ignores=frozenset({3}),
    has_position=True,
    form=EventForm.SQLSERVER,
)

SPANNER = Envelope(
    "spanner",
    op=("mod_type",),
    upserts=frozenset({"INSERT", "UPDATE"}),
    deletes=frozenset({"DELETE"}),
    has_position=True,
    form=EventForm.SPANNER,
    fields=frozenset({"commit_timestamp", "record_sequence", "server_transaction_id", "table_name", "mod_type"})
    | {"is_last_record_in_transaction_in_partition", "value_capture_type", "transaction_tag", "partition_token"}
    | {"number_of_records_in_transaction", "number_of_partitions_in_transaction", "is_system_transaction"},
)

ENVELOPES: Mapping[str, Envelope] = MappingProxyType(
    {each.name: each for each in (DEBEZIUM, MAXWELL, CANAL, DMS, DATASTREAM, MONGODB, SQLSERVER, SPANNER)}
)
"""The shapes that a caller can name."""


def to_record_path(path: tuple[str, ...], envelope: Envelope) -> tuple[str, ...]:
    """Return where a record has a field of the envelope; empty for the row itself."""
    return path[1:] if path[0] in (envelope.before, envelope.after) else (PREFIX + path[0], *path[1:])


def unavailable_values(placeholder: str) -> list[Any]:
    """Return the JSON values that stand for an unavailable value: of texts, of bytes, and of arrays and maps of these.

    Bytes are in base64, also in its form for URLs, or in hexadecimal digits. Arrays of integers have the bytes, arrays
    of UUIDs the UUID of the bytes; maps may be in a text.

    Source: docs/guide/keys.md#envelopes
    """
    data = placeholder.encode()
    texts = [placeholder, base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode(), data.hex()]
    texts = list(dict.fromkeys([*texts, data.hex().upper()]))
    map_ = {placeholder: placeholder}
    digest = bytearray(md5(data, usedforsecurity=False).digest())
    digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
    scalars: list[Any] = [*texts, str(UUID(bytes=bytes(digest)))]
    in_text = [json.dumps(map_), json.dumps(map_, separators=(",", ":"))]
    return [*texts, *([each] for each in scalars), list(data), map_, *in_text]


class EnvelopeReader:
    """Returns the records in envelopes.

    Args:
        row_fields: The fields of rows that the table knows: an event with the changed fields only leaves the others.
        dialect: The dialect of the documents. Where an event has its row as a text, only this reader sees the values.
    """

    def __init__(
        self,
        envelope: Envelope,
        *,
        allows_nan: bool = False,
        row_fields: Iterable[str] = (),
        dialect: Dialect | None = None,
    ) -> None:
        self._dialect = None if dialect is None else DialectReader(dialect.for_texts or dialect)
        self._envelope, self._allows_nan = envelope, allows_nan
        said = {PREFIX + name for name in envelope.fields} | {POSITION, UNCHANGED}
        self._row_fields = [name for name in row_fields if name not in said]
        self._op_type = int if envelope.has_integers else str
        self.unavailable = Counter[str]()
        """How many values of each field the source did not send."""
        values = [value for each in envelope.unavailable for value in unavailable_values(each)]
        self._unavailable = {msgspec.json.encode(value) for value in values}
        # A row without any of these has no such value.
        marks = [
            re.escape(value.strip(b"[]")) for value in self._unavailable if value[:1] == b'"' or value[:2] == b'["'
        ]
        integers = (value for value in self._unavailable if value[:1] == b"[" and value[:2] != b'["')
        marks += [value[1:-1].replace(b",", rb"\s*,\s*") for value in integers]
        self._may_be_unavailable = re.compile(b"|".join(marks)).search if values else None

    def read(self, text: bytes) -> Iterator[tuple[bytes, str]]:
        """Yield the record of each envelope in a text, or the text and why it is not an envelope.

        A tombstone of Kafka, whose value is null, has no record: the deletion before it says what is deleted.
        """
        text = text.removeprefix(BOM).strip()
        if not text or text == b"null":
            return
        try:
            fields = decode_fields(text, allows_nan=self._allows_nan)
            if reason := _find_fault(text, allows_nan=self._allows_nan):
                yield text, f"not JSON: {reason}"
                return
            for record in self._records(fields):
                yield record, ""
        except _NotAnEnvelopeError as error:
            if error.reason:
                yield text, _explain(error.reason)
        except NotAChangeError as error:
            yield text, _explain(error.reason)
        except msgspec.DecodeError as error:
            is_json = isinstance(error, msgspec.ValidationError)
            parts = split_text(text, allows_nan=self._allows_nan)
            if parts == [text]:
                # The fast decoder says less about what is wrong.
                document = parse_document(text, allows_nan=self._allows_nan)
                why = document.reason if isinstance(document, InvalidJson) else str(error)
                yield text, "not an envelope: it is not an object" if is_json else f"not JSON: {why}"
                return
            for part in parts:
                yield from self.read(part)

    def _records(self, fields: dict[str, msgspec.Raw]) -> list[bytes]:
        """Return the record of each row in a document."""
        if self._envelope.form is EventForm.SPANNER:
            return [record for event in split_spanner(fields) for record in self._event_records(event)]
        return self._event_records(fields)

    def _event_records(self, fields: dict[str, msgspec.Raw]) -> list[bytes]:
        """Return the record of each row of an event."""
        envelope = self._envelope
        for name in envelope.payload:
            if name not in fields:
                break
            if bytes(fields[name]) == b"null":
                raise _NotAnEnvelopeError("")  # a tombstone with its schema
            fields = _to_fields(fields[name], name)
        if envelope.op[0] not in fields and _is_one_of(fields.keys(), envelope.without_op):
            return []
        op = self._op(fields)
        if op in envelope.ignores:
            return []
        if op in envelope.truncates:
            fix = _TRUNCATE + _SKIP_TRUNCATIONS * (envelope.truncates == DEBEZIUM.truncates)
            raise SourceError(source="An event", reason=f"it truncates its table (operation {op})", fix=fix)
        is_delete = op in envelope.deletes
        if not is_delete and envelope.upserts and op not in envelope.upserts:
            raise _NotAnEnvelopeError(f"operation {op} does not change a row")
        if envelope.form is not EventForm.STATES:
            return [self._change_record(change, fields) for change in _read_changes(envelope.form, fields, op)]
        name = envelope.before if is_delete else envelope.after
        rows = decode_items(fields.get(name, msgspec.Raw(b"null")))
        if not rows:
            raise _NotAnEnvelopeError(f"operation {op} needs a row in {name}, which is empty")
        return [self._record(self._to_row(each, name, op), fields, op) for each in rows]

    def _to_row(self, raw: msgspec.Raw, name: str, op: Operation) -> bytes:
        """Return the row in a field as the text of an object; MongoDB's connector writes it as a string."""
        if bytes(raw)[:1] != b'"' or self._dialect is None:
            return _to_row(raw, name, op, allows_nan=self._allows_nan)
        # The dialect may turn texts into NaN.
        (row,) = self._dialect.read(_to_row(raw, name, op, allows_nan=True))
        return _to_row(msgspec.Raw(msgspec.json.encode(row.decode())), name, op, allows_nan=self._allows_nan)

    def _record(self, row: bytes, fields: Mapping[str, msgspec.Raw], op: Operation) -> bytes:
        envelope = self._envelope
        names = {key: f"{PREFIX}{key}" for key in fields if key not in (envelope.before, envelope.after)}
        added = {names[key]: bytes(raw) for key, raw in fields.items() if key in names}
        added = {key: value for key, value in added.items() if value != b"null"}
        row, unchanged = self._without_unavailable(row)
        if unchanged:
            self.unavailable.update(unchanged)
            added[UNCHANGED] = msgspec.json.encode(unchanged)
        if envelope.has_position and (position := read_position(fields, op)) is not None:
            added[POSITION] = msgspec.json.encode(position)
        _ensure_distinct(row, added)
        more = b",".join(msgspec.json.encode(key) + b":" + value for key, value in added.items())
        begin = row[:-1].rstrip()
        return begin + (b"," if begin != b"{" and more else b"") + more + b"}"

    def _change_record(self, change: EventRow, event: Mapping[str, msgspec.Raw]) -> bytes:
        form = self._envelope.form
        added: dict[str, bytes] = {}
        if form is not EventForm.SQLSERVER:
            names = {key: f"{PREFIX}{key}" for key in event if key not in UNSAID[form]}
            added = {name: bytes(event[key]) for key, name in names.items()}
            added = {name: value for name, value in added.items() if value != b"null"}
        if change.removed is not None:
            unchanged = [name for name in self._row_fields if name not in change.row and name not in change.removed]
            added |= {UNCHANGED: msgspec.json.encode(unchanged)} if unchanged else {}
        if change.position is not None:
            added[POSITION] = msgspec.json.encode(change.position)
        both = sorted(added.keys() & change.row.keys())
        if both:
            raise _NotAnEnvelopeError(f"the row has a field {both[0]}, which is the name of a field of the envelope")
        whole = {**{name: bytes(raw) for name, raw in change.row.items()}, **added}
        return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in whole.items()) + b"}"

    def _without_unavailable(self, row: bytes) -> tuple[bytes, list[str]]:
        """Return a row without the fields whose value the source does not send, and their names."""
        if self._may_be_unavailable is None or not self._may_be_unavailable(row):
            return row, []
        fields = decode_fields(row)
        unchanged = [name for name, raw in fields.items() if _compact(raw) in self._unavailable]
        if not unchanged:
            return row, []
        kept = (msgspec.json.encode(name) + b":" + bytes(raw) for name, raw in fields.items() if name not in unchanged)
        return b"{" + b",".join(kept) + b"}", unchanged

    def _op(self, fields: dict[str, msgspec.Raw]) -> Operation:
        *above, last = self._envelope.op
        for name in above:
            fields = _to_fields(fields.get(name), name)
        op = None if last not in fields else msgspec.json.decode(fields[last])
        if type(op) is not self._op_type:
            kind = "integer" if self._op_type is int else "operation"
            raise _NotAnEnvelopeError(f"not an envelope: it has no {kind} in {'.'.join(self._envelope.op)}")
        return op


_TRUNCATE = (
    "Widen does not truncate a table. Delete the rows with Table.delete or `widen sql`, take the event out of "
    "the source, and load the rest."
)
_SKIP_TRUNCATIONS = " Debezium leaves such events out with skipped.operations=t, which is its default."


def _explain(reason: str) -> str:
    """Return why a text has no record, in words that `widen.batches.record_stages.stage_of_reason` knows."""
    return reason if reason.startswith("not ") else f"not a change: {reason}"


def _read_changes(form: EventForm, event: dict[str, msgspec.Raw], op: Operation) -> Iterable[EventRow]:
    match form:
        case EventForm.MONGODB:
            return [read_mongodb(event, op)]
        case EventForm.SQLSERVER:
            return [read_sqlserver(event, op)]
    return read_spanner(event, op)


class _NotAnEnvelopeError(Exception):
    """A document has no record.

    Args:
        reason: Why; empty for a tombstone.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _find_fault(text: bytes, *, allows_nan: bool) -> str:
    """Return why a document is invalid, e.g. if an object has a key twice; the decoder keeps one of them."""
    try:
        encoded = msgspec.json.encode(msgspec.json.decode(text))
    except msgspec.DecodeError:  # it may have NaN
        encoded = b""
    # A key that is lost takes its quotes along. Only an escaped quote that the encoder spells as one makes up for them.
    is_whole = bool(encoded) and text.count(b'"') == encoded.count(b'"')
    if is_whole and b"\\u0022" not in text:
        return ""
    document = parse_document(text, allows_nan=allows_nan)
    return document.reason if isinstance(document, InvalidJson) else ""


def _is_one_of(names: Set[str], shapes: Iterable[EventShape]) -> bool:
    return any(each.required <= names <= each.required | each.optional for each in shapes)


def _to_fields(raw: msgspec.Raw | None, name: str) -> dict[str, msgspec.Raw]:
    try:
        return decode_fields(raw or b"null")
    except msgspec.ValidationError:
        raise _NotAnEnvelopeError(f"not an envelope: {name} is not an object") from None


def _compact(raw: msgspec.Raw) -> bytes:
    """Return a JSON value without spaces, spelled as in `unavailable_values`; other values may be cut."""
    text = bytes(raw)
    try:
        return text if len(text) > _MAX_UNAVAILABLE else msgspec.json.encode(msgspec.json.decode(text))
    except msgspec.DecodeError:  # what is wrong with the record is found later
        return text


_MAX_UNAVAILABLE = 4_096


def _to_row(raw: msgspec.Raw, name: str, op: Operation, *, allows_nan: bool) -> bytes:
    """Return the row in a field as the text of an object; MongoDB's connector writes it as a string."""
    row = bytes(raw)
    if row[:1] == b'"':
        row = msgspec.json.decode(row, type=str).strip().encode()
        try:
            reason = decode_fields(row, allows_nan=allows_nan) and _find_fault(row, allows_nan=allows_nan)
        except msgspec.DecodeError:
            raise _NotAnEnvelopeError(f"{name} is a string, but not one of an object") from None
        if reason:
            raise _NotAnEnvelopeError(f"{name} is a string, but not one of an object: {reason}")
    if row[:1] != b"{":
        raise _NotAnEnvelopeError(f"operation {op} needs the row in {name}, which is missing or null")
    return row


def _ensure_distinct(row: bytes, added: Mapping[str, bytes]) -> None:
    if any(name.encode() in row for name in added):
        both = sorted(added.keys() & decode_fields(row).keys())
        if both:
            raise _NotAnEnvelopeError(f"the row has a field {both[0]}, which is the name of a field of the envelope")


def read_position(fields: Mapping[str, msgspec.Raw], op: Operation) -> str | None:
    """Return the position of a change in the log of its database, as a text; None if the envelope has no position.

    A row of a snapshot without a position gets one that is before all changes.
    """
    source, event = bytes(fields.get("source", b"")), _Scalars(fields)
    origin = _Scalars(decode_fields(source) if source[:1] == b"{" else {})
    connector = origin["connector"]
    known = POSITIONS.get(connector, OTHER_POSITION)
    is_snapshot = op == "r" or origin["snapshot"] not in ("", "false")
    parts = known.parts[: known.of_snapshot] if is_snapshot else known.parts
    position = _join_parts(parts, origin)
    if position is None and is_snapshot:
        return ":".join(filter(None, (SNAPSHOT, origin.nanoseconds() or event.nanoseconds())))
    # What has no log is ordered by times.
    return _join_parts(parts, event) if position is None and connector not in POSITIONS else position


def _join_parts(parts: tuple[tuple[str, ...], ...], values: _Scalars) -> str | None:
    texts = [_read_part(names, values) for names in parts]
    return ":".join(texts) if texts[0] else None


def _read_part(names: tuple[str, ...], values: _Scalars) -> str:
    for name in names:
        text = values.first_in_array(name.removesuffix("[0]")) if name.endswith("[0]") else values[name]
        if len(names) == 1 or _WHOLE(text):
            return text if name in SORTED_TEXTS else _DIGITS.sub(_pad, text, count=1)
    return ""


class _Scalars:
    """The texts of the strings, integers and booleans in an object; other values and missing ones are empty."""

    def __init__(self, fields: Mapping[str, msgspec.Raw]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        text = bytes(self._fields.get(name, b""))
        if text[:1] == b'"':
            return msgspec.json.decode(text, type=str)
        return text.decode() if _INTEGER_OR_BOOLEAN(text) else ""

    def first_in_array(self, name: str) -> str:
        """Return the first item of the JSON array in a string, if it is a string of digits."""
        match = _FIRST_DIGITS(self[name])
        return match[1] if match else ""

    def nanoseconds(self) -> str:
        """Return the time of the event since 1970, with as many digits as any; empty if it has no time."""
        for name, zeros in (("ts_ns", ""), ("ts_us", "000"), ("ts_ms", "000000")):
            if _TIME(text := self[name]) and text.strip("0"):
                return (text + zeros).zfill(20)
        return ""


_INTEGER_OR_BOOLEAN = re.compile(rb"-?[0-9]+|true|false").fullmatch
_WHOLE, _TIME = re.compile(r"[0-9]+").fullmatch, re.compile(r"[0-9]{1,20}").fullmatch
_FIRST_DIGITS = re.compile(r'\[ *"([0-9]+)" *[,\]]').match
_DIGITS = re.compile(r"(?<![0-9])[0-9]+\Z")


def _pad(match: re.Match[str]) -> str:
    return match[0].zfill(20)
