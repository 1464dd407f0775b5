"""Envelopes as the proof reads them: the rows that documents about changes of rows stand for.

Source: docs/guide/keys.md#envelopes
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import md5
from typing import TypeAlias
from uuid import UUID

from widen.json.change_streams import SPANNER_NAMES, SPANNER_OTHERS
from widen.json.envelope import (
    OTHER_POSITION,
    POSITION,
    POSITIONS,
    PREFIX,
    SNAPSHOT,
    SORTED_TEXTS,
    UNCHANGED,
    UNSAID,
    Envelope,
    EventForm,
)
from widen.json.field_rules import VERSION_FIELDS
from widen.model.types import StructType
from widen.proof.json_reader import Json, NumberToken, Scan, read_records, scan_for, split_into_records
from widen.proof.typed_json import TypedJson, spell_day
from widen.schema.source_metadata import role_of, source_key


def read_envelopes(
    text: bytes,
    envelope: Envelope,
    *,
    allows_nan: bool = False,
    columns: Sequence[str] = (),
    texts: TypedJson | None = None,
) -> Iterator[dict[str, Json] | bytes]:
    """Yield the row of each envelope in a text; a text that is not an envelope as it is, a tombstone not at all.

    Args:
        columns: The fields that the table has columns for: an event that says only what it changes keeps the others.
        texts: Reads the rows that events have as texts; None if they are plain JSON.
    """
    text = text.removeprefix(b"\xef\xbb\xbf").strip()
    if not text or text == b"null":
        return
    documents = read_records(text, allows_nan=allows_nan) if text[:1] == b"{" else None
    if documents is not None:
        scan = scan_for(allows_nan=allows_nan)
        if envelope.form is EventForm.STATES:
            rows = _rows_of(documents[0], envelope, partial(_scan_text, scan, texts))
        else:
            rows = ChangeStreamReader(envelope, scan, columns).rows(documents[0])
        yield from [text] if rows is None else rows
        return
    parts = split_into_records(text, allows_nan=allows_nan)
    for part in parts if parts != [text] else ():
        yield from read_envelopes(part, envelope, allows_nan=allows_nan, columns=columns, texts=texts)
    if parts == [text]:
        yield text


def _scan_text(scan: Scan, texts: TypedJson | None, text: str) -> Json:
    if texts is None:
        return scan(text)
    (plain,) = texts.read(text.encode())
    return scan(plain.decode())


def is_row_of(envelope: Envelope, record: Mapping[str, Json]) -> bool:
    """Return whether a record is the row of an envelope, which has its operation, and not a document without one."""
    return _operation(_at(record, envelope.op_column), envelope) is not None


def _operation(value: Json, envelope: Envelope) -> str | int | None:
    """Return an operation; None for a value that is not an operation."""
    if envelope.has_integers:
        return int(value) if isinstance(value, NumberToken) and re.fullmatch("-?[0-9]{1,18}", value) else None
    return value if type(value) is str else None


def _rows_of(document: Mapping[str, Json], envelope: Envelope, scan: Scan) -> list[dict[str, Json]] | None:
    """Return the rows of an event; none for one that has no row, and None for a document that is not an envelope."""
    event: Json = document
    for step in envelope.payload:
        if step in event:
            event = event[step]
            if event is None:
                return []
            if not isinstance(event, dict):
                return None
    for shape in envelope.without_op:
        if shape.required.issubset(event) and not {*event} - shape.required - shape.optional:
            return []
    op = _operation(_at(event, envelope.op), envelope)
    if op in envelope.ignores:
        return []
    if op is None or (op not in envelope.deletes and envelope.upserts and op not in envelope.upserts):
        return None
    states = event.get(envelope.before if op in envelope.deletes else envelope.after)
    rows = [_row_of(state, event, op, envelope, scan) for state in (states if isinstance(states, list) else [states])]
    whole = [row for row in rows if row is not None]
    return whole if whole and len(whole) == len(rows) else None


def _row_of(
    state: Json, event: Mapping[str, Json], op: str | int, envelope: Envelope, scan: Scan
) -> dict[str, Json] | None:
    if type(state) is str:
        try:
            state = scan(state)
        except ValueError:
            return None
    if not isinstance(state, dict):
        return None
    left = [name for name, value in state.items() if any(_is_left_out(value, each) for each in envelope.unavailable)]
    state = {name: value for name, value in state.items() if name not in left}
    said = {PREFIX + name: value for name, value in event.items() if name not in (envelope.before, envelope.after)}
    said = {name: value for name, value in said.items() if value is not None}
    if envelope.has_position:
        position = _position(event, op)
        said |= {} if position is None else {POSITION: position}
    said |= {UNCHANGED: left} if left else {}
    return None if not said.keys().isdisjoint(state) else {**state, **said}


def _is_left_out(value: Json, placeholder: str) -> bool:
    """Return whether a value stands for one that the source left out: the placeholder, its bytes, or a list or map."""
    octets = placeholder.encode()
    if isinstance(value, dict):
        return value == {placeholder: placeholder}
    if isinstance(value, list):
        if len(value) == 1 and type(value[0]) is str:
            return _is_spelled(value[0], octets) or value[0] == str(
                UUID(bytes=md5(octets, usedforsecurity=False).digest(), version=3)
            )
        return [*map(str, octets)] == value and all(type(each) is NumberToken for each in value)
    if type(value) is not str:
        return False
    if value[:1] == "{":
        pair = f'"{placeholder}":"{placeholder}"'
        return value in ("{" + pair + "}", "{" + pair.replace('":"', '": "') + "}") or value == placeholder
    return _is_spelled(value, octets)


def _is_spelled(text: str, octets: bytes) -> bool:
    if text.encode("utf-8", "surrogatepass") == octets:
        return True
    if text in (octets.hex(), octets.hex().upper()):
        return True
    plain = text.replace("-", "+").replace("_", "/") if not {"+", "/"} & {*text} else text
    try:
        return b64decode(plain, validate=True) == octets and b64encode(octets).decode() == plain
    except ValueError:
        return False


def _at(value: Json, path: Sequence[str]) -> Json:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _position(event: Mapping[str, Json], op: str | int) -> str | None:
    found = event.get("source")
    source: Mapping[str, Json] = found if isinstance(found, dict) else {}
    database = _word(source, "connector")
    wanted = POSITIONS.get(database, OTHER_POSITION)
    is_read = op == "r" or _word(source, "snapshot") not in {"", "false"}
    names = wanted.parts[: wanted.of_snapshot if is_read else None]
    if _part(source, names[0]):
        return ":".join(_part(source, each) for each in names)
    if is_read:
        return f"{SNAPSHOT}:{moment:020d}" if (moment := _moment(source) or _moment(event)) else SNAPSHOT
    if database in POSITIONS or not _part(event, names[0]):
        return None
    return ":".join(_part(event, each) for each in names)


def _part(values: Mapping[str, Json], names: Sequence[str]) -> str:
    texts = {name: _word(values, name) for name in names}
    if "sequence[0]" in names:
        head, _, rest = _word(values, "sequence").partition("[")
        item, *more = (piece.strip(" ") for piece in re.split(r"[,\]]", rest))
        is_text = not head and more and len(item) > 1 and item[0] == item[-1] == '"'
        texts["sequence[0]"] = item[1:-1] if is_text else ""
    chosen = [name for name in names if len(names) == 1 or re.fullmatch("[0-9]+", texts[name])]
    if not chosen:
        return ""
    text, name = texts[chosen[0]], chosen[0]
    stem = text.rstrip("0123456789")
    return text if name in SORTED_TEXTS or stem == text else stem + text[len(stem) :].rjust(20, "0")


def _word(values: Mapping[str, Json], name: str) -> str:
    """Return the text of a string, an integer or a boolean; empty for all other values."""
    value = values.get(name)
    if isinstance(value, NumberToken):
        return value if value.removeprefix("-").isdigit() else ""
    return str(value).lower() if isinstance(value, bool) else value if type(value) is str else ""


def _moment(values: Mapping[str, Json]) -> int:
    """Return when an event happened by its own account, in nanoseconds since 1970; 0 if it does not say."""
    units = {"ts_ns": 1, "ts_us": 1_000, "ts_ms": 1_000_000}
    numbers = ((_word(values, name), factor) for name, factor in units.items())
    return next((int(text) * factor for text, factor in numbers if re.fullmatch("(?=0*[1-9])[0-9]{1,20}", text)), 0)


# Change streams whose events have no states before and after.
#
# Source: docs/guide/keys.md#streams


def fields_of_columns(schema: StructType) -> list[str]:
    """Return the fields of records that a table has columns for."""
    found = {source_key(column): None for column in schema if role_of(column) is None}
    return [name for name in found if name[-1:] != "=" and name not in VERSION_FIELDS]


class ChangeStreamReader:
    """Reads the events of a change stream."""

    def __init__(self, envelope: Envelope, scan: Scan, columns: Sequence[str]) -> None:
        self._envelope, self._scan, self._columns = envelope, scan, columns

    def rows(self, document: Mapping[str, Json]) -> list[dict[str, Json]] | None:
        """Return the rows of the events in a document; None if one of them cannot be read."""
        events = [document] if self._envelope.form is not EventForm.SPANNER else self._records(document)
        found: list[dict[str, Json]] = []
        for event in events or ():
            rows = None if event is None else self._rows(event)
            if rows is None:
                return None
            found += rows
        return None if events is None else found

    def _rows(self, event: Mapping[str, Json]) -> list[dict[str, Json]] | None:
        op = _operation(_at(event, self._envelope.op), self._envelope)
        if op in self._envelope.ignores:
            return []
        if op is None or op not in self._envelope.upserts | self._envelope.deletes:
            return None
        if self._envelope.form is EventForm.SQLSERVER:
            return self._named([(dict(event), _change_position(event, op), None)], {})
        left = UNSAID[self._envelope.form]
        said = {PREFIX + name: value for name, value in event.items() if name not in left and value is not None}
        rows = self._document(event, op) if self._envelope.form is EventForm.MONGODB else self._mods(event, op)
        return None if rows is None else self._named(rows, said)

    def _named(self, rows: list[_Change], said: dict[str, Json]) -> list[dict[str, Json]] | None:
        named = []
        for row, position, gone in rows:
            more = said if position is None else {**said, POSITION: position}
            own = {PREFIX + name for name in self._envelope.fields} | {POSITION, UNCHANGED}
            kept = () if gone is None else (each for each in self._columns if each not in {*row, *gone, *own})
            if left := [*kept]:
                more = {**more, UNCHANGED: left}
            if {*row} & {*more}:
                return None
            named.append({**row, **more})
        return named

    def _object(self, value: Json) -> dict[str, Json] | None:
        if type(value) is str:
            try:
                value = self._scan(value)
            except ValueError:
                return None
        return value if isinstance(value, dict) else None

    def _document(self, event: Mapping[str, Json], op: str | int) -> list[_Change] | None:
        if event.get("splitEvent") is not None:
            return None
        position, key, whole = (
            _cluster_position(event),
            self._object(event.get("documentKey")),
            event.get("fullDocument"),
        )
        if op == "delete" or whole is not None or op != "update":
            row = key if op == "delete" else self._object(whole)
            return None if row is None else [(row, position, None)]
        said = self._object(event.get("updateDescription"))
        if said is None or key is None or "_id" not in key or said.get("truncatedArrays") not in (None, []):
            return None
        changed = {} if said.get("updatedFields") is None else self._object(said["updatedFields"])
        removed = [] if said.get("removedFields") is None else said["removedFields"]
        if changed is None or not isinstance(removed, list) or not all(type(each) is str for each in removed):
            return None
        paths = said.get("disambiguatedPaths")
        exact = paths if isinstance(paths, dict) else {}
        given = {path: each for path, each in exact.items() if isinstance(each, list)}
        steps = {path: given.get(path, path.split(".")) for path in (*changed, *removed)}
        if any(len(each) != 1 or type(each[0]) is not str for each in steps.values()):
            return None
        row = {"_id": key["_id"]} | {steps[path][0]: value for path, value in changed.items()}
        return [(row, position, [steps[path][0] for path in removed])]

    def _records(self, document: Mapping[str, Json]) -> list[dict[str, Json] | None] | None:
        event = _snake(document)
        if event is None:
            return None
        if "data_change_record" not in event:
            is_other = bool(event) and all(name.endswith("_record") and name in SPANNER_OTHERS for name in event)
            return [] if is_other else [event]
        inner = event["data_change_record"]
        many = [] if inner is None else inner if isinstance(inner, list) else [inner]
        return [None if (each := self._object(record)) is None else _snake(each) for record in many]

    def _mods(self, event: Mapping[str, Json], op: str | int) -> list[_Change] | None:
        mods, codes = event.get("mods"), self._codes(event.get("column_types"))
        if not isinstance(mods, list):
            return None
        has_all = op != "UPDATE" or event.get("value_capture_type") in ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
        stamp, sequence = _stamp(event.get("commit_timestamp")), event.get("record_sequence")
        sequence = sequence.rjust(20, "0") if type(sequence) is str else _whole(sequence)
        rows: list[_Change] = []
        for at, each in enumerate(mods):
            mod = self._object(each)
            keys = None if mod is None else self._part(mod, "keys")
            values = None if mod is None else self._part(mod, "old_values" if op == "DELETE" else "new_values")
            if not keys or values is None:
                return None
            row = {name: _numeric(value, codes.get(name)) for name, value in (keys | values).items()}
            rows.append((row, f"{stamp}:{sequence}:{at:010}" if stamp else None, None if has_all else []))
        return rows or None

    def _part(self, mod: Mapping[str, Json], name: str) -> dict[str, Json] | None:
        camel = re.sub("_(.)", lambda found: found[1].upper(), name)
        spelled = [mod.get(each) for each in (name, camel, f"{name}_json", f"{camel}Json")]
        value = next((each for each in spelled if each is not None), None)
        return {} if value is None else self._object(value)

    def _codes(self, columns: Json) -> dict[str, str]:
        codes = {}
        for column in columns if isinstance(columns, list) else ():
            if isinstance(column, dict) and type(column.get("name")) is str:
                found = self._object(column.get("type")) or {}
                item = found.get("array_element_type", found.get("arrayElementType"))
                code = (item if isinstance(item, dict) else found).get("code")
                codes[column["name"]] = code if code in ("INT64", "NUMERIC") else ""
        return codes


_Change: TypeAlias = tuple[dict[str, Json], str | None, list[str] | None]
"""A row, where it is in the log, and what an event with the changed fields only has removed; None for a whole row."""


def _snake(fields: Mapping[str, Json]) -> dict[str, Json] | None:
    renamed = {SPANNER_NAMES.get(name, name): value for name, value in fields.items()}
    return renamed if len(renamed) == len(fields) else None


def _whole(value: Json) -> str:
    """Return a number of at most 20 digits, or its text, with 20 digits; empty for another value."""
    return value.rjust(20, "0") if isinstance(value, str) and re.fullmatch("[0-9]{1,20}", value) else ""


def _cluster_position(event: Mapping[str, Json]) -> str | None:
    time = event.get("clusterTime")
    time = time.get("$timestamp", time) if isinstance(time, dict) else {}
    parts = [_whole(time.get(name)) if isinstance(time, dict) else "" for name in "ti"]
    token = _at(event.get("_id"), ["_data"])
    return ":".join([*parts, token if type(token) is str else ""]) if all(parts) else None


def _change_position(event: Mapping[str, Json], op: str | int) -> str | None:
    begin, order = (_log_number(event.get(name)) for name in ("__$start_lsn", "__$seqval"))
    parts = [begin, _whole(event.get("__$command_id")), order, str(op)]
    return ":".join(part for part in parts if part) if begin else None


def _log_number(value: Json) -> str:
    if type(value) is not str:
        return ""
    bare = (value[2:] if value[:2] in ("0x", "0X") else value).replace(":", "")
    if len(bare) == 20 and not bare.strip("0123456789abcdefABCDEF"):
        return bare.upper()
    try:
        octets = b64decode(value.encode(), validate=True)
    except ValueError:
        return ""
    return octets.hex().upper() if len(octets) == 10 else ""


def _stamp(value: Json) -> str:
    if isinstance(value, dict):
        parts = [value.get("seconds"), value.get("nanos", NumberToken("0"))]
        if not all(isinstance(each, NumberToken) and re.fullmatch("-?[0-9]+", each) for each in parts):
            return ""
        seconds, nanos = map(int, parts)
        day = spell_day(seconds // 86_400) if -(10**14) < seconds < 10**14 else None
        second = seconds % 86_400
        clock = f"{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}"
        return f"{day}T{clock}.{nanos:09}Z" if day is not None and 0 <= nanos < 10**9 else ""
    text = value if type(value) is str else ""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?Z", text, re.ASCII)
    return f"{found[1]}{(found[2] or '.').ljust(10, '0')}Z" if found else ""


def _numeric(value: Json, code: str | None) -> Json:
    if isinstance(value, list) and code:
        return [_numeric(each, code) for each in value]
    point = r"(\.\d+)?" if code == "NUMERIC" else ""
    is_number = code and type(value) is str and re.fullmatch(rf"-?(0|[1-9]\d*){point}", value, re.ASCII)
    return NumberToken(value) if is_number else value
