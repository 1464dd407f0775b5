"""The words of a policy, as people write them: pins, paths, units.

Source: docs/evolution-rules.md#d1, #d5, #d10
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from widen.errors import InvalidOption, InvalidPath, InvalidType
from widen.model.column_path import Path, as_nullable, parse_path
from widen.model.type_parser import parse_type
from widen.model.types import STRING, ArrayType, AtomicType, DataType, DecimalType, Field, MapType, StructType
from widen.observe.kind import BINARY_WORD, word_of
from widen.planning.evolution.policy import EpochUnit, Mode, Pin, TextForm

_Word = TypeVar("_Word", bound=Enum)

_WORDS = ", ".join(each.value for each in (*Mode, *TextForm))
_EXPECTED = f"Give one of {_WORDS}, or a type like decimal(18,4), map<string,string>, array<int>."


def parse_pin(place: str, text: object) -> Pin:
    """Return what a field is to be pinned to.

    Args:
        place: Where it stands, for the error.
        text: A mode, a form, or a type of which a JSON value can be.

    Raises:
        InvalidOption: it is none of them.
    """
    if not isinstance(text, str):
        raise InvalidOption(option=place, value=text, expected=_EXPECTED)
    for words in (Mode, TextForm):
        if text.strip().lower() in {each.value for each in words}:
            return words(text.strip().lower())
    try:
        found = parse_type(text)
    except InvalidType as error:
        raise InvalidOption(option=place, value=text, expected=f"{error.message} {_EXPECTED}") from error
    wrong = _unsupported_part(found)
    if wrong is not None:
        raise InvalidOption(option=place, value=text, expected=f"No JSON value is of type {wrong.sql}. {_EXPECTED}")
    return as_nullable(StructType((Field(place, found),))).fields[0].type


def _unsupported_part(data_type: DataType) -> DataType | None:
    """Return what of a type no JSON value is of; None if every part can hold some."""
    match data_type:
        case StructType(fields):
            wrong = [part for field in fields if (part := _unsupported_part(field.type)) is not None]
            return data_type if not fields else wrong[0] if wrong else None
        case ArrayType(element):
            return _unsupported_part(element)
        case MapType(key, value):
            return data_type if key != STRING else _unsupported_part(value)
        case DecimalType() | AtomicType("timestamp_ntz"):
            return None
    return data_type if word_of(data_type) in (None, BINARY_WORD) else None


def parse_source(place: str, text: object) -> Path:
    """Return the path of a field of the source, e.g. ``a.b``.

    Raises:
        InvalidOption: it is none.
    """
    expected = "Name a field by its keys: a.b, odd ones in back-ticks."
    if not isinstance(text, str):
        raise InvalidOption(option=place, value=text, expected=expected)
    try:
        return parse_path(text)
    except InvalidPath as error:
        raise InvalidOption(option=place, value=text, expected=f"{error.message} {expected}") from error


def parse_mode(place: str, text: object) -> Mode:
    """Return the mode that a word names.

    Raises:
        InvalidOption: it names none.
    """
    return _parse_word(Mode, place, text)


def parse_unit(place: str, text: object) -> EpochUnit:
    """Return the unit that a word names.

    Raises:
        InvalidOption: it names none.
    """
    return _parse_word(EpochUnit, place, text)


def _parse_word(words: type[_Word], place: str, text: object) -> _Word:
    known = {each.value: each for each in words}
    if text not in known:
        raise InvalidOption(option=place, value=text, expected=f"It is one of {', '.join(known)}.")
    return known[text]
