"""Values of an evolved column in another column of the same field: exactly or not at all.

``"007"`` never becomes 7: the number would not give the text back.

Source: docs/evolution-rules.md#d2
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from widen.model.types import STRING, DataType
from widen.observe.date_text import parse_temporal
from widen.observe.json_document import JsonDocument, JsonNumber, parse_document
from widen.observe.kind import (
    BOOLEAN_WORD,
    DATE_WORD,
    DECIMAL_WORD,
    DOUBLE_WORD,
    INT_WORD,
    LONG_WORD,
    NTZ_WORD,
    NUMBER_WORDS,
    TIMESTAMP_WORD,
    leaf_and_dim,
    word_of,
)
from widen.routing.convert import MISSING, convert, word_of_value

FITS, DUPLICATE, STAYS = "fits", "duplicate", "stays"
"""Outcomes for a value: it fits the other column, the other column has it already, or it stays."""

_NUMBERS = frozenset({INT_WORD, *NUMBER_WORDS})
_TEMPORAL = frozenset({DATE_WORD, TIMESTAMP_WORD, NTZ_WORD})
_TARGETS_OF_TEXT: Mapping[str, frozenset[str]] = {
    BOOLEAN_WORD: frozenset({BOOLEAN_WORD}),
    DATE_WORD: _TEMPORAL,
    TIMESTAMP_WORD: _TEMPORAL,
} | dict.fromkeys((LONG_WORD, DOUBLE_WORD, DECIMAL_WORD), _NUMBERS)
"""For each kind that a text may express: the columns that it goes to. A text that is a date is not a number of days."""


def judge_fold(value: Any, type: DataType, old: Any, into: DataType) -> tuple[str, Any]:
    """Return the outcome for a value, and the value that the other column then holds.

    Args:
        value: The value from Spark, not None.
        old: Value of the other column in the same row.
    """
    (leaf, dim), (to_leaf, to_dim) = leaf_and_dim(type), leaf_and_dim(into)
    new = _convert_back(value, (leaf, dim), (to_leaf, to_dim))
    if new is MISSING:
        return STAYS, old
    if old is None:
        return FITS, new
    return (DUPLICATE if _is_same(new, old) else STAYS), old


def _convert_back(value: Any, old_type: tuple[DataType, int], new_type: tuple[DataType, int]) -> Any:
    (leaf, dim), (to_leaf, to_dim) = old_type, new_type
    if value is None:
        return None
    if to_dim and dim:
        items = [_convert_back(item, (leaf, dim - 1), (to_leaf, to_dim - 1)) for item in value]
        return MISSING if any(item is MISSING for item in items) else items
    if to_dim:
        item = _convert_back(value, old_type, (to_leaf, to_dim - 1))
        return item if item is MISSING else [item]
    if dim:
        # Only a scalar that was wrapped when it was written comes back; an array of several items was an array in the
        # source.
        is_one = len(value) == 1 and value[0] is not None
        return _convert_back(value[0], (leaf, dim - 1), new_type) if is_one else MISSING
    return _convert_scalar(value, leaf, to_leaf)


def _convert_scalar(value: Any, leaf: DataType, to_leaf: DataType) -> Any:
    document = _parse_text(value) if leaf == STRING and to_leaf != STRING else _to_document(value)
    if document is MISSING:
        return MISSING
    word, to_word = word_of_value(document), word_of(to_leaf) or str(to_leaf)
    if leaf == STRING and to_leaf != STRING and to_word not in _TARGETS_OF_TEXT.get(word, ()):
        return MISSING
    return convert(document, word, to_word, to_leaf)


def _parse_text(text: str) -> JsonDocument:
    """Return the value of a text that is exactly what JSON would write for it, or that is a date or a timestamp."""
    document = parse_document(text.encode("utf-8", "surrogatepass"))
    if isinstance(document, bool):
        return document if text == str(document).lower() else MISSING
    if isinstance(document, JsonNumber):
        return document if text == document else MISSING
    temporal = parse_temporal(text)
    return MISSING if type(temporal) is str else temporal


def _to_document(value: Any) -> JsonDocument:
    match value:
        case bool() | str():
            return value
        case float() if not math.isfinite(value):
            return MISSING
        # A whole number is an integer to JSON, whatever column it stood in. Zero is left out, since -0.0 must keep its
        # sign.
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
        # PySpark gives timestamps without a zone, in local time, and `convert` in UTC, so only the instants can be
        # compared.
        return isinstance(old, datetime) and new.timestamp() == old.timestamp()
    return bool(new == old)
