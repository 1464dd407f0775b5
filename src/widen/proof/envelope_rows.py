"""The rows in envelopes, as the proof reads them: from parsed documents, while the writer copies bytes.

Source: docs/guide/keys.md#envelopes
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from widen.json.envelope import OTHER_POSITION, POSITION, POSITIONS, PREFIX, Envelope
from widen.proof.json_reader import Json, read_json, read_records, split_into_parts


def read_envelopes(text: bytes, envelope: Envelope) -> Iterator[dict[str, Json] | bytes]:
    """Yield the row of each envelope in a text; a text that is not an envelope as it is, a tombstone not at all."""
    parts = [text.removeprefix(b"\xef\xbb\xbf").strip()] if text.strip() else []
    if parts and read_records(text) is None:
        parts = list(split_into_parts(text))
    for part in parts:
        documents = read_records(part)
        if documents is None:
            if part.strip() != b"null":
                yield part.strip()
            continue
        for document in documents:
            row = _row_of(document, envelope)
            if row is not None:
                yield part if row is _REFUSED else row


def is_row_of(envelope: Envelope, record: Mapping[str, Json]) -> bool:
    """Return whether a record is the row of an envelope, which has its operation, and not a document without one."""
    return isinstance(_at(record, envelope.op_column), str)


_REFUSED: dict[str, Json] = {}
"""Stands for a document that is not an envelope."""


def _row_of(document: Mapping[str, Json], envelope: Envelope) -> dict[str, Json] | None:
    event: Json = document
    for step in envelope.payload:
        if step in event:
            event = event[step]
            if event is None:
                return None
            if not isinstance(event, dict):
                return _REFUSED
    op = _at(event, envelope.op)
    if type(op) is not str or (op not in envelope.deletes and envelope.upserts and op not in envelope.upserts):
        return _REFUSED
    state = event.get(envelope.before if op in envelope.deletes else envelope.after)
    if type(state) is str:
        try:
            state = read_json(state)
        except ValueError:
            return _REFUSED
    if not isinstance(state, dict):
        return _REFUSED
    said = {PREFIX + name: value for name, value in event.items() if name not in (envelope.before, envelope.after)}
    said = {name: value for name, value in said.items() if value is not None}
    if envelope.has_position and isinstance(event.get("source"), dict):
        position = _position(event["source"])
        said |= {} if position is None else {POSITION: position}
    return _REFUSED if not said.keys().isdisjoint(state) else {**state, **said}


def _at(value: Json, path: Sequence[str]) -> Json:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _position(source: Mapping[str, Any]) -> str | None:
    wanted = POSITIONS.get(source.get("connector") or "", OTHER_POSITION)
    texts = ["" if source.get(name) is None else str(source[name]) for name in wanted]
    if not any(texts):
        return None
    tails = [re.search(r"[0-9]*$", text) for text in texts]
    return ":".join(
        text[: tail.start()] + tail[0].rjust(20, "0") if tail and tail[0] else text
        for text, tail in zip(texts, tails, strict=True)
    )
