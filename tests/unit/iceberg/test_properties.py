"""Table properties and snapshot summaries of Widen."""

from __future__ import annotations

import json

import pytest

from widen.errors import CorruptMetadata
from widen.iceberg.properties import (
    EVENT_COUNT,
    EVENTS,
    MAX_EVENTS_BYTES,
    QUARANTINED,
    SOURCES,
    ColumnSource,
    doc_with_source,
    encode_sources,
    last_interval,
    read_sources,
    report_summary,
    stream_mark,
)
from widen.model.types import LONG, STRING, ArrayType, Field, StructType
from widen.protocol.column_mapping import COLUMN_ID
from widen.schema.source_metadata import COMMENT, EVOLVED_FROM, FORM, ROLE, SOURCE


def _field(name: str, number: int, data_type: object = LONG, **metadata: object) -> Field:
    return Field(name, data_type, metadata={COLUMN_ID: number, **metadata})  # type: ignore[arg-type]


INNER = StructType((_field("x", 3, **{SOURCE: ["a", "x.y"]}), _field("y", 4, **{SOURCE: ["z", "y"]})))
SCHEMA = StructType(
    (
        _field("a", 1, ArrayType(INNER), **{SOURCE: ["a"], COMMENT: "not stored here"}),
        _field("a_long", 5, **{SOURCE: ["a"], EVOLVED_FROM: "a"}),
        _field("t", 6, STRING, **{SOURCE: ["t"], FORM: "json"}),
        _field("_rescued", 7, STRING, **{ROLE: "_rescued"}),
        _field("declared", 8),
    )
)


def test_sources_are_compact_and_by_field_id() -> None:
    assert json.loads(encode_sources(SCHEMA)) == {
        "v": 1,
        "c": {
            "1": "a",
            "3": "x.y",
            "4": {"s": ["z", "y"]},
            "5": {"s": "a", "e": True},
            "6": {"s": "t", "form": "json"},
            "7": {"role": "_rescued"},
        },
    }


def test_sources_read_back() -> None:
    assert read_sources({SOURCES: encode_sources(SCHEMA)}, "shop.orders") == {
        1: ColumnSource("a"),
        3: ColumnSource("x.y"),
        4: ColumnSource(["z", "y"]),
        5: ColumnSource("a", is_evolved=True),
        6: ColumnSource("t", form="json"),
        7: ColumnSource(role="_rescued"),
    }
    assert read_sources({}, "shop.orders") == {}


@pytest.mark.parametrize("text", ["", "[]", '{"v":1}', '{"v":2,"c":{}}', '{"v":1,"c":{"x":"a"}}'])
def test_sources_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(CorruptMetadata, match=r"The property widen\.sources of shop\.orders cannot be read"):
        read_sources({SOURCES: text}, "shop.orders")


def test_the_doc_keeps_what_a_column_is_evolved_from() -> None:
    evolved = _field("a_long", 1, **{EVOLVED_FROM: "a.b"})
    assert doc_with_source("In grams.", evolved) == "In grams. evolved_from:a.b"
    assert doc_with_source(None, evolved) == "evolved_from:a.b"
    assert doc_with_source("In grams.", _field("a", 1)) == "In grams."
    assert doc_with_source("", _field("a", 1)) is None


def test_the_mark_of_a_stream() -> None:
    properties = stream_mark("a.b", 7) | {"owner": "me"}
    assert properties == {"widen.stream.a.b": "7", "owner": "me"}
    assert last_interval(properties, "a.b") == 7
    assert last_interval(properties, "a") is None


def test_a_long_report_is_cut_and_says_how_long_it_was() -> None:
    events = [{"column": "c" * 90, "number": number} for number in range(200)]
    summary = report_summary("split", "abc", events, records=5, quarantined=0, corrupt=1)
    assert len(summary[EVENTS]) <= MAX_EVENTS_BYTES
    assert json.loads(summary[EVENTS]) == events[: len(json.loads(summary[EVENTS]))]
    assert json.loads(summary[EVENTS])
    assert summary[EVENT_COUNT] == "200"
    assert QUARANTINED not in summary
    assert {key: summary[key] for key in ("widen.mode", "widen.records", "widen.corrupt-texts")} == {
        "widen.mode": "split",
        "widen.records": "5",
        "widen.corrupt-texts": "1",
    }
