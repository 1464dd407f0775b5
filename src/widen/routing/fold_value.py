"""Values of a column that evolved, as another column of the field holds them: exactly, or not at all.

Source: docs/evolution-rules.md#d2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from widen.model.types import STRING, TIMESTAMP_NTZ, DataType
from widen.observe.date_text import parse_temporal
from widen.observe.json_document import JsonDocument, JsonNumber, parse_document
from widen.observe.kind import (
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NUMBER_WORDS,
    TIMESTAMP_WORD,
    leaf_and_dim,
    word_of,
)
from widen.routing.convert import MISSING, convert, word_of_value

FITS, HELD, STAYS = "fits", "held", "stays"
"""What is found of a value: it can go back; the other column has it already; neither."""

_NUMBERS = frozenset({INT_WORD, *NUMBER_WORDS})
_MOMENTS = frozenset({DATE_WORD, TIMESTAMP_WORD, str(TIMESTAMP_NTZ)})
_SAID_BY_TEXTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {BOOLEAN_WORD: frozenset({BOOLEAN_WORD}), DATE_WORD: _MOMENTS, TIMESTAMP_WORD: _MOMENTS}
    | dict.fromkeys((LONG_WORD, DOUBLE_WORD, DECIMAL_WORD), _NUMBERS)
)
"""For what a text says the columns that it goes back to: a text that is a date is no number of days."""


def judge_fold(value: Any, type: DataType, old: Any, into: DataType) -> tuple[str, Any]:
    """Return what is found of a value, and what the other column holds if it goes back.

    Args:
        value: The value, not None, as Spark gives it.
        type: The type of its column.
        old: What the other column has beside it.
        into: The type of that.
    """
    (leaf, dim), (to_leaf, to_dim) = leaf_and_dim(type), leaf_and_dim(into)
    new = _convert_back(value, (leaf, dim), (to_leaf, to_dim))
    if new is MISSING:
        return STAYS, old
    if old is None:
        return FITS, new
    return (HELD if _is_same(new, old) else STAYS), old


def _convert_back(value: Any, have: tuple[DataType, int], want: tuple[DataType, int]) -> Any:
    (leaf, dim), (to_leaf, to_dim) = have, want
    if value is None:
        return None
    if to_dim and dim:
        items = [_convert_back(item, (leaf, dim - 1), (to_leaf, to_dim - 1)) for item in value]
        return MISSING if any(item is MISSING for item in items) else items
    if to_dim:
        item = _convert_back(value, have, (to_leaf, to_dim - 1))
        return item if item is MISSING else [item]
    if dim:
        is_one = len(value) == 1 and value[0] is not None
        return _convert_back(value[0], (leaf, dim - 1), want) if is_one else MISSING
    return _scalar(value, leaf, to_leaf)


def _scalar(value: Any, leaf: DataType, to_leaf: DataType) -> Any:
    document = _parse_text(value) if leaf == STRING and to_leaf != STRING else _document(value)
    if document is MISSING:
        return MISSING
    word, to_word = word_of_value(document), word_of(to_leaf) or str(to_leaf)
    if leaf == STRING and to_leaf != STRING and to_word not in _SAID_BY_TEXTS.get(word, ()):
        return MISSING
    return convert(document, word, to_word, to_leaf)


def _parse_text(text: str) -> JsonDocument:
    """Return what a text says if it is just what JSON would write for it, or a date or an instant."""
    found = parse_document(text.encode("utf-8", "surrogatepass"))
    if isinstance(found, bool):
        return found if text == str(found).lower() else MISSING
    if isinstance(found, JsonNumber):
        return found if text == found else MISSING
    moment = parse_temporal(text)
    return MISSING if type(moment) is str else moment


def _document(value: Any) -> JsonDocument:
    match value:
        case bool() | str():
            return value
        case float() if not math.isfinite(value):
            return MISSING
        case float() | Decimal() if value and value == int(value):
            return JsonNumber(int(value))
        case float():
            return JsonNumber(repr(value))
        case Decimal():
            return JsonNumber(format(value, "f"))
        case date():
            return parse_temporal(value.isoformat())
    return JsonNumber(value)


def _is_same(new: Any, old: Any) -> bool:
    if isinstance(new, list):
        return len(new) == len(old) and all(map(_is_same, new, old))
    if isinstance(new, datetime):
        return isinstance(old, datetime) and new.timestamp() == old.timestamp()
    return bool(new == old)
