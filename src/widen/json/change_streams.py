"""Change streams whose events are no states before and after: of MongoDB, SQL Server and Google Spanner.

Source: docs/guide/keys.md#streams
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from widen.json.document import document_to_json, parse_document
from widen.model.value_classes import dataclass

Fields: TypeAlias = dict[str, msgspec.Raw]


class NotAChangeError(Exception):
    """An event has no row that can be written.

    Args:
        reason: Why.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EventRow:
    """A row of an event.

    Args:
        position: Where the change is in its log; None if the event does not say it.
        removed: For an event with the changed fields only, the fields that it removes; None for a whole row.
    """

    row: Fields
    position: str | None
    removed: frozenset[str] | None = None


def decode_fields(text: bytes | msgspec.Raw, *, allows_nan: bool = True) -> dict[str, msgspec.Raw]:
    """Return the fields of an object.

    Args:
        allows_nan: Whether they may have NaN, which the fast decoder does not know; a part of a decoded text may have
            anything that the text may have.

    Raises:
        msgspec.DecodeError: the text is not an object.
    """
    try:
        return _FIELDS.decode(text)
    except msgspec.DecodeError:
        document = parse_document(bytes(text), allows_nan=True) if allows_nan else None
        if not isinstance(document, dict):
            raise
    return {key: msgspec.Raw(document_to_json(value).encode()) for key, value in document.items()}


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def decode_items(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the items of a list, or another value alone."""
    text = bytes(raw)
    if text[:1] != b"[":
        return [raw]
    try:
        return msgspec.json.decode(text, type=list[msgspec.Raw])
    except msgspec.DecodeError:  # it has NaN
        document = parse_document(b'{"items":' + text + b"}", allows_nan=True)
        items = document["items"] if isinstance(document, dict) else []
        return [msgspec.Raw(document_to_json(item).encode()) for item in items]


def read_object(raw: msgspec.Raw | bytes | None, what: str) -> Fields:
    """Return the fields of an object, or of an object in a string.

    Raises:
        NotAChangeError: it is something else.
    """
    text = bytes(raw or b"null")
    try:
        if text[:1] == b'"':
            text = msgspec.json.decode(text, type=str).encode()
        return decode_fields(text)
    except msgspec.DecodeError:
        raise NotAChangeError(f"the event needs an object in {what}") from None


def _is_null(raw: msgspec.Raw | None) -> bool:
    return raw is None or bytes(raw) == b"null"


def _value(raw: msgspec.Raw | None) -> Any:
    """Return a value; None for what is not JSON."""
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None


def _count(raw: msgspec.Raw | None) -> str:
    """Return an integer that is not negative, with as many digits as any; empty for another value."""
    text = b"" if raw is None else bytes(raw).strip(b'"')
    return text.decode().zfill(20) if _DIGITS(text) else ""


_DIGITS = re.compile(rb"[0-9]{1,20}").fullmatch


# MongoDB. Source: MongoDB manual, change events; Extended JSON for the values, which a dialect reads before.


_FULL = "set fullDocument to updateLookup, so that the event has the whole document"


def read_mongodb(event: Fields, op: object) -> EventRow:
    """Return the document of an event, or the fields that an update without a document has changed.

    Raises:
        NotAChangeError: the event has neither, or changes parts of fields.
    """
    if not _is_null(event.get("splitEvent")):
        raise NotAChangeError(
            "the event is a fragment of a larger one: load the events without $changeStreamSplitLargeEvent"
        )
    position = _position_in_mongodb(event)
    if op == "delete":
        return EventRow(read_object(event.get("documentKey"), "documentKey"), position)
    if op != "update" or not _is_null(event.get("fullDocument")):
        return EventRow(read_object(event.get("fullDocument"), "fullDocument"), position)
    key = read_object(event.get("documentKey"), "documentKey")
    if "_id" not in key:
        raise NotAChangeError("the event needs the _id of its document in documentKey")
    said = read_object(event.get("updateDescription"), "updateDescription")
    updated = {} if _is_null(said.get("updatedFields")) else read_object(said["updatedFields"], "updatedFields")
    removed = [] if _is_null(said.get("removedFields")) else _value(said["removedFields"])
    if not isinstance(removed, list) or not all(type(each) is str for each in removed):
        raise NotAChangeError("the event needs a list of names in removedFields")
    exact = _value(said.get("disambiguatedPaths"))
    names = {path: _top_level(path, exact) for path in (*updated, *removed)}
    truncated = said.get("truncatedArrays")
    parts = [path.partition(".")[0] for path, name in names.items() if name is None]
    if not (_is_null(truncated) or _value(truncated) == []) or parts:
        field = f"the field {parts[0]}" if parts else "an array"
        raise NotAChangeError(f"the update has only a part of {field}, and its row may lack the other parts: {_FULL}")
    row = {"_id": key["_id"], **{names[path] or "": value for path, value in updated.items()}}
    return EventRow(row, position, frozenset(names[path] or "" for path in removed))


def _top_level(path: str, exact: object) -> str | None:
    """Return the name of a field of the document; None for a path to a part of a field.

    Args:
        exact: The parts of ambiguous paths, as the event says them.
    """
    parts = exact.get(path) if isinstance(exact, dict) else None
    if isinstance(parts, list):
        return parts[0] if len(parts) == 1 and type(parts[0]) is str else None
    return None if "." in path else path


def _position_in_mongodb(event: Fields) -> str | None:
    time = _inner(_inner(event.get("clusterTime")).get("$timestamp", event.get("clusterTime")))
    seconds, number = _count(time.get("t")), _count(time.get("i"))
    token = _value(_inner(event.get("_id")).get("_data"))
    return f"{seconds}:{number}:{token if type(token) is str else ''}" if seconds and number else None


def _inner(raw: msgspec.Raw | None) -> Fields:
    try:
        return msgspec.json.decode(raw or b"{}", type=Fields)
    except msgspec.DecodeError:
        return {}


# SQL Server. Source: Microsoft, cdc.<capture_instance>_CT: __$start_lsn, __$command_id, __$seqval and __$operation.


LSN_BYTES = 10


def read_sqlserver(event: Fields, op: object) -> EventRow:
    """Return a row of a change table, with the columns that describe the change."""
    start, order = _lsn(event.get("__$start_lsn")), _lsn(event.get("__$seqval"))
    parts = [start, _count(event.get("__$command_id")), order, str(op)]
    return EventRow(event, ":".join(filter(None, parts)) if start else None)


def _lsn(raw: msgspec.Raw | None) -> str:
    """Return a log sequence number in hexadecimal digits, from any spelling of its ten bytes; empty without one."""
    text = _value(raw)
    if type(text) is not str:
        return ""
    digits = text.removeprefix("0x").removeprefix("0X").replace(":", "")
    if _HEX(digits):
        return digits.upper()
    try:
        data = b64decode(text.encode(), validate=True)
    except ValueError:
        return ""
    return data.hex().upper() if len(data) == LSN_BYTES else ""


_HEX = re.compile(f"[0-9A-Fa-f]{{{2 * LSN_BYTES}}}").fullmatch


# Google Spanner. Source: Google Cloud, change streams: data change records, as the API and Dataflow write them.


SPANNER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "dataChangeRecord": "data_change_record",
        "heartbeatRecord": "heartbeat_record",
        "childPartitionsRecord": "child_partitions_record",
        "partitionStartRecord": "partition_start_record",
        "partitionEndRecord": "partition_end_record",
        "partitionEventRecord": "partition_event_record",
        "commitTimestamp": "commit_timestamp",
        "recordSequence": "record_sequence",
        "serverTransactionId": "server_transaction_id",
        "isLastRecordInTransactionInPartition": "is_last_record_in_transaction_in_partition",
        "tableName": "table_name",
        "valueCaptureType": "value_capture_type",
        "columnTypes": "column_types",
        "columnMetadata": "column_types",
        "rowType": "column_types",
        "modType": "mod_type",
        "numberOfRecordsInTransaction": "number_of_records_in_transaction",
        "numberOfPartitionsInTransaction": "number_of_partitions_in_transaction",
        "transactionTag": "transaction_tag",
        "isSystemTransaction": "is_system_transaction",
        "partitionToken": "partition_token",
    }
)
"""The names in a record of Dataflow or of the REST API, as Spanner's functions write them."""

SPANNER_OTHERS = frozenset(
    {
        *("heartbeat_record", "child_partitions_record"),
        *("partition_start_record", "partition_end_record", "partition_event_record"),
    }
)
"""Records without a row."""

WHOLE_ROWS = frozenset({"NEW_ROW", "NEW_ROW_AND_OLD_VALUES"})
"""What a stream captures if its updates have all columns."""

_DATA = "data_change_record"


def split_spanner(document: Fields) -> list[Fields]:
    """Return the data change records in a document, with the names of Spanner's functions.

    Raises:
        NotAChangeError: what stands for them is not a list of objects.
    """
    fields = _rename(document)
    if _DATA not in fields:
        return [] if fields and fields.keys() <= SPANNER_OTHERS else [fields]
    records = [] if _is_null(fields[_DATA]) else decode_items(fields[_DATA])
    return [_rename(read_object(each, _DATA)) for each in records]


def _rename(fields: Fields) -> Fields:
    renamed = {SPANNER_NAMES.get(name, name): raw for name, raw in fields.items()}
    if len(renamed) < len(fields):
        raise NotAChangeError("the event has a field twice, in two spellings")
    return renamed


def read_spanner(event: Fields, op: object) -> Iterator[EventRow]:
    """Yield the row of each change in a data change record.

    Raises:
        NotAChangeError: the record has no changes, or a change has no keys.
    """
    types = _read_types(event.get("column_types"))
    mods = decode_items(event["mods"]) if bytes(event.get("mods", b""))[:1] == b"[" else []
    if not mods:
        raise NotAChangeError("the event needs a list of changes in mods")
    capture = _value(event.get("value_capture_type"))
    is_whole = op != "UPDATE" or (type(capture) is str and capture in WHOLE_ROWS)
    time, sequence = _spanner_time(event.get("commit_timestamp")), _sequence(event.get("record_sequence"))
    for number, mod in enumerate(mods):
        fields = read_object(mod, "mods")
        keys = _part_of(fields, "keys")
        if not keys:
            raise NotAChangeError("the event needs the key of each change in mods")
        values = _part_of(fields, "old_values" if op == "DELETE" else "new_values")
        row = {name: _by_type(raw, types.get(name)) for name, raw in {**keys, **values}.items()}
        position = f"{time}:{sequence}:{number:010}" if time else None
        yield EventRow(row, position, None if is_whole else frozenset())


def _part_of(mod: Fields, name: str) -> Fields:
    """Return the keys or the values of a change: an object, or its text."""
    first, *more = name.split("_")
    camel = first + "".join(map(str.title, more))
    names = (name, camel, f"{name}_json", f"{camel}Json")
    raw = next((mod[each] for each in names if not _is_null(mod.get(each))), None)
    return {} if raw is None else read_object(raw, name)


def _read_types(raw: msgspec.Raw | None) -> dict[str, str]:
    """Return the codes of the columns whose values are numbers in texts; for an array, the codes of its items."""
    found = _value(raw)
    types = {}
    for column in found if isinstance(found, list) else ():
        data_type = column.get("type") if isinstance(column, dict) else None
        if type(data_type) is str:
            data_type = _value(msgspec.Raw(data_type.encode()))
        if isinstance(data_type, dict):
            inner = data_type.get("array_element_type", data_type.get("arrayElementType"))
            code = (inner if isinstance(inner, dict) else data_type).get("code")
            if type(column.get("name")) is str and type(code) is str and code in _NUMBERS:
                types[column["name"]] = code
    return types


_NUMBERS = {"INT64": re.compile("-?[0-9]+").fullmatch, "NUMERIC": re.compile(r"-?[0-9]+(?:\.[0-9]+)?").fullmatch}
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?").fullmatch


def _by_type(raw: msgspec.Raw, code: str | None) -> msgspec.Raw:
    """Return a number that Spanner writes as text, or a list of such numbers."""
    if code is None or bytes(raw)[:1] not in (b'"', b"["):
        return raw
    if bytes(raw)[:1] == b"[":
        items = (_by_type(each, code) for each in msgspec.json.decode(raw, type=list[msgspec.Raw]))
        return msgspec.Raw(b"[" + b",".join(map(bytes, items)) + b"]")
    text = msgspec.json.decode(raw, type=str)
    is_number = _NUMBERS[code](text) and _PLAIN_NUMBER(text)
    return msgspec.Raw(text.encode()) if is_number else raw


def _sequence(raw: msgspec.Raw | None) -> str:
    text = _value(raw)
    return text.rjust(20, "0") if type(text) is str else _count(raw)


_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z").fullmatch


def _spanner_time(raw: msgspec.Raw | None) -> str:
    """Return a time with nine digits after the seconds, so that times sort as texts; empty for another value."""
    value = _value(raw)
    if isinstance(value, dict):
        seconds, nanos = value.get("seconds"), value.get("nanos", 0)
        if type(seconds) is not int or type(nanos) is not int or not 0 <= nanos < 10**9:
            return ""
        try:
            time = datetime(1970, 1, 1) + timedelta(seconds=seconds)
        except OverflowError:
            return ""
        return f"{time.isoformat()}.{nanos:09}Z"
    found = _TIME(value) if type(value) is str else None
    return f"{found[1]}.{(found[2] or '').ljust(9, '0')}Z" if found else ""
