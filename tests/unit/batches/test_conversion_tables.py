"""Every table of conversions, forward and backward, agrees with `TAKES`; without a Spark session.

A type or a conversion that is added to one table only fails here. Each sample is a value that every column which takes
its kind holds exactly, so a conversion that gives nothing is one that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from widen.evolution.type_lattice import TAKES, can_route
from widen.files.conversions import CONVERSIONS, TOTAL_CONVERSIONS
from widen.json.document import DateText, JsonNumber, LocalTimeText, TimestampText
from widen.json.kinds import KIND_WORDS, word_of
from widen.json.observation import TemporalString, type_facts
from widen.model.schema_json import parse_type
from widen.model.types import DataType, DecimalType, plain_name
from widen.proof.expected_values import NOT_STORED, expected_value
from widen.proof.json_reader import NumberToken
from widen.proof.rules import DateString, LocalTimeString, SourceColumn, TimestampString
from widen.protocol.type_widening import is_widening
from widen.rows.row import MISSING, ColumnSlot, convert
from widen.rows.shape import build_fast_converter
from widen.verification.restored_values import BACKWARD_CONVERSIONS, TimeText, family_of

TYPES: Mapping[str, DataType] = {
    text: parse_type(text)
    for text in (
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)"),
        *("date", "timestamp", "timestamp_ntz", "string", "binary"),
    )
}
TEMPORAL = TemporalString(has_instants=True, has_local_times=True)
ALL_TYPES = pytest.mark.parametrize("column", TYPES)

JSON_VALUES: Mapping[str, Any] = {
    "boolean": True,
    "long": JsonNumber("1"),
    "double": JsonNumber("1.5"),
    "decimal": JsonNumber("1.5"),
    "date": DateText("1970-01-02"),
    "timestamp": TimestampText("1970-01-01T00:00:00.001Z"),
    "timestamp_ntz": LocalTimeText("1970-01-01T00:00:00.001"),
    "string": "x",
}
DECODED_VALUES: Mapping[str, tuple[Any, bytes]] = {
    "boolean": (True, b""),
    "long": (1, b"1"),
    "double": (1.5, b"1.5"),
    "date": (DateText("1970-01-02"), b""),
    "timestamp": (TimestampText("1970-01-01T00:00:00.001Z"), b""),
    "timestamp_ntz": (LocalTimeText("1970-01-01T00:00:00.001"), b""),
    "string": ("x", b""),
}
PROOF_VALUES: Mapping[str, Any] = {
    "boolean": True,
    "long": NumberToken("1"),
    "double": NumberToken("1.5"),
    "decimal": NumberToken("1.5"),
    "date": DateString("1970-01-02"),
    "timestamp": TimestampString("1970-01-01T00:00:00.001Z"),
    "timestamp_ntz": LocalTimeString("1970-01-01T00:00:00.001"),
    "string": "x",
}

NOT_FAST = {("long", "timestamp")}
"""U16: a timestamp never decides whether a number is held, so the fast path leaves the pair to the exact path."""

NOT_BACK = {("long", "timestamp")}
"""U16: a timestamp holds a number only beside another column, and does not convert back."""


def takers(word: str) -> set[str]:
    """Return the columns that take a kind."""
    return {text for text, data_type in TYPES.items() if can_route(data_type, word)}


def kind_of(data_type: DataType) -> str:
    facts = type_facts(data_type)
    assert facts is not None
    return facts[0]


def test_every_kind_has_a_row() -> None:
    assert {*TAKES} == {*KIND_WORDS} - {"map"}
    assert {*TAKES} == {*JSON_VALUES, "binary", "record"}
    assert {word for word in TAKES if not takers(word)} == {"record"}


@pytest.mark.parametrize("word", JSON_VALUES)
def test_json_values_are_converted_to_the_columns_that_take_them(word: str) -> None:
    converted = {
        text
        for text, data_type in TYPES.items()
        if convert(JSON_VALUES[word], word, word_of(data_type) or "", data_type) is not MISSING
    }
    assert converted == takers(word)


@pytest.mark.parametrize("word", DECODED_VALUES)
def test_the_fast_path_gives_what_the_exact_path_gives(word: str) -> None:
    value, token = DECODED_VALUES[word]
    fast = set()
    for text, data_type in TYPES.items():
        slot = ColumnSlot("c", word_of(data_type) or "", 0, data_type)
        conversions = build_fast_converter((slot,), ("c",)).conversions["c"]
        if type(value) in conversions:
            conversion = conversions[type(value)]
            found = value if conversion is None else conversion(value, token)
            as_arrow_takes_it = found.decode() if isinstance(found, bytes) else found
            assert as_arrow_takes_it == convert(JSON_VALUES[word], word, slot.word, data_type), text
            fast.add(text)
    assert fast == {text for text in takers(word) - {"float"} if (word, text) not in NOT_FAST}


@pytest.mark.parametrize("word", PROOF_VALUES)
def test_the_proof_expects_json_values_in_the_columns_that_take_them(word: str) -> None:
    expected = set()
    for text, data_type in TYPES.items():
        name = "decimal" if isinstance(data_type, DecimalType) else str(data_type)
        column = SourceColumn("c", 0, 0, name, data_type, has_booleans_as_numbers=True, has_dates=True)
        if expected_value(column, PROOF_VALUES[word]) is not NOT_STORED:
            expected.add(text)
    assert expected == takers(word)


@ALL_TYPES
def test_typed_values_are_converted_to_the_columns_that_take_them(column: str) -> None:
    old = TYPES[column]
    kind = kind_of(old)
    for text in takers(kind) - {"timestamp"} if kind == "long" else takers(kind):
        assert TYPES[text] == old or (plain_name(old), plain_name(TYPES[text])) in CONVERSIONS, text


def test_no_typed_conversion_is_without_a_column_that_takes_it() -> None:
    by_name = {plain_name(data_type): data_type for data_type in TYPES.values()}
    for old, new in CONVERSIONS:
        is_wider = is_widening(by_name[old], by_name[new])
        assert is_wider or can_route(by_name[new], kind_of(by_name[old])), (old, new)
    assert {*CONVERSIONS} >= TOTAL_CONVERSIONS


@ALL_TYPES
def test_typed_values_come_back_from_every_column_that_takes_them(column: str) -> None:
    source = TYPES[column]
    kind = kind_of(source)
    missing = {
        text
        for text in takers(kind)
        if TYPES[text] != source and (family_of(TYPES[text]), family_of(source)) not in BACKWARD_CONVERSIONS
    }
    assert missing == {text for word, text in NOT_BACK if word == kind}


def temporal_takers() -> set[str]:
    return {"string"}.union(*(takers(kind_of(each)) for each in TEMPORAL.types))


def test_strings_that_are_read_as_dates_come_back_from_every_column_that_takes_them() -> None:
    pairs = {(family_of(TYPES[text]), family_of(TimeText())) for text in temporal_takers()}
    assert pairs - {*BACKWARD_CONVERSIONS} == set()
    assert {pair for pair in BACKWARD_CONVERSIONS if pair[1] == family_of(TimeText())} == pairs


def test_no_conversion_back_is_without_a_column_that_takes_it() -> None:
    pairs = {
        (family_of(TYPES[text]), family_of(source)) for source in TYPES.values() for text in takers(kind_of(source))
    }
    pairs |= {(family_of(TYPES[text]), family_of(TimeText())) for text in temporal_takers()}
    assert {*BACKWARD_CONVERSIONS} - pairs == set()
