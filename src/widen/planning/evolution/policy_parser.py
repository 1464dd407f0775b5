"""Parse the settings of a policy: pins, paths, modes and units.

Source: docs/evolution-rules.md#d1, #d5, #d10
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from widen.errors import InvalidOption, InvalidPath, InvalidType
from widen.model.column_path import Path, as_nullable, parse_path
from widen.model.type_parser import parse_type
from widen.model.types import STRING, ArrayType, DataType, Field, MapType, StructType
from widen.observe.kind import BINARY_WORD, MAP_WORD, word_of
from widen.planning.evolution.policy import ANY_MAP, EpochUnit, Mode, Pin, TextForm

_Word = TypeVar("_Word", bound=Enum)

_WORDS = ", ".join(each.value for each in (*Mode, *TextForm)) + f", {MAP_WORD}"
_EXPECTED = f"Must be one of {_WORDS}, or a type like decimal(18,4), map<string,string>, array<int>."


def parse_pin(place: str, text: object) -> Pin:
    """Parse what a field is pinned to.

    Args:
        text: A mode, a text form, or a type that a JSON value can have.

    Raises:
        InvalidOption: the text is none of these.
    """
    if not isinstance(text, str):
        raise InvalidOption(option=place, value=text, expected=_EXPECTED)
    if text.strip().lower() == MAP_WORD:
        return ANY_MAP
    for words in (Mode, TextForm):
        if text.strip().lower() in {each.value for each in words}:
            return words(text.strip().lower())
    try:
        data_type = parse_type(text)
    except InvalidType as error:
        raise InvalidOption(option=place, value=text, expected=f"{error.message} {_EXPECTED}") from error
    unsupported = _unsupported_part(data_type)
    if unsupported is not None:
        raise InvalidOption(
            option=place, value=text, expected=f"A JSON value cannot have the type {unsupported.sql}. {_EXPECTED}"
        )
    return as_nullable(StructType((Field(place, data_type),))).fields[0].type


def _unsupported_part(data_type: DataType) -> DataType | None:
    """Return the part of a type that no JSON value can have; None if there is none."""
    match data_type:
        case StructType(fields):
            unsupported = [part for field in fields if (part := _unsupported_part(field.type)) is not None]
            return data_type if not fields else unsupported[0] if unsupported else None
        case ArrayType(element):
            return _unsupported_part(element)
        case MapType(key, value):
            return data_type if key != STRING else _unsupported_part(value)
    return data_type if word_of(data_type) in (None, BINARY_WORD) else None


def parse_source(place: str, text: object) -> Path:
    """Parse the path of a source field, e.g. ``a.b``.

    Raises:
        InvalidOption: the text is not a path.
    """
    expected = "Must be a path of keys like a.b; quote special characters with backticks."
    if not isinstance(text, str):
        raise InvalidOption(option=place, value=text, expected=expected)
    try:
        return parse_path(text)
    except InvalidPath as error:
        raise InvalidOption(option=place, value=text, expected=f"{error.message} {expected}") from error


def parse_mode(place: str, text: object) -> Mode:
    """Parse a mode.

    Raises:
        InvalidOption: the text is not a mode.
    """
    return _parse_word(Mode, place, text)


def parse_unit(place: str, text: object) -> EpochUnit:
    """Parse an epoch unit.

    Raises:
        InvalidOption: the text is not a unit.
    """
    return _parse_word(EpochUnit, place, text)


def _parse_word(words: type[_Word], place: str, text: object) -> _Word:
    by_value = {each.value: each for each in words}
    if not isinstance(text, str) or text not in by_value:
        raise InvalidOption(option=place, value=text, expected=f"Must be one of {', '.join(by_value)}.")
    return by_value[text]
