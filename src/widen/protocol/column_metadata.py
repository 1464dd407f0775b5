"""Columns whose values the table knows, makes or judges by itself: what their metadata says.

Source: PROTOCOL.md#column-invariants, #generated-columns, #default-columns, #identity-columns
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from widen.errors import CorruptLog, InvalidType
from widen.model.column_path import Path, leaves, map_fields
from widen.model.type_parser import parse_type
from widen.model.types import VOID, Field, StructType

INVARIANT, GENERATION, DEFAULT = "delta.invariants", "delta.generationExpression", "CURRENT_DEFAULT"
START, STEP = "delta.identity.start", "delta.identity.step"
HIGH_WATER_MARK, ALLOWS_EXPLICIT = "delta.identity.highWaterMark", "delta.identity.allowExplicitInsert"
TEXT_LIMIT = "__CHAR_VARCHAR_TYPE_STRING"
HIDDEN_PREFIX = "delta."
"""Begins the metadata keys that only the log is concerned with."""

_LIMIT = re.compile(r"\b(?:char|character|varchar)\s*\(\s*(\d+)\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Identity:
    """How the values of an identity column go on.

    Args:
        start: The first one.
        step: From one to the next; negative ones go downwards.
        high_water_mark: The last one that was given; None if none was.
        allows_explicit: Whether writers may give values of their own.
    """

    start: int
    step: int
    high_water_mark: int | None
    allows_explicit: bool

    def advanced(self, value: int) -> int:
        """Return the high-water mark after a value was given: the farther one of the two.

        Source: PROTOCOL.md#identity-columns
        """
        known = [value] if self.high_water_mark is None else [value, self.high_water_mark]
        return max(known) if self.step > 0 else min(known)


def find_identity(field: Field) -> Identity | None:
    """Return how an identity column goes on, or None if the column is none.

    Raises:
        CorruptLog: its metadata is not complete.

    Source: PROTOCOL.md#identity-columns
    """
    metadata = field.metadata
    if START not in metadata:
        return None
    try:
        start, step, mark = int(metadata[START]), int(metadata[STEP]), metadata.get(HIGH_WATER_MARK)
        explicit = bool(metadata[ALLOWS_EXPLICIT])
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(field, f"its identity is not complete ({error})") from error
    return Identity(start, step, None if mark is None else int(mark), explicit)


def find_invariant(field: Field) -> str | None:
    """Return the condition that a column must fulfil in every row, or None.

    Raises:
        CorruptLog: it is in no form that the protocol knows.

    Source: PROTOCOL.md#column-invariants
    """
    if INVARIANT not in field.metadata:
        return None
    try:
        return msgspec.json.decode(field.metadata[INVARIANT], type=_Invariant).expression.expression
    except (msgspec.DecodeError, TypeError) as error:
        raise _corrupt(field, f"its invariant cannot be read ({error})") from error


class _Expression(msgspec.Struct):
    expression: str


class _Invariant(msgspec.Struct):
    expression: _Expression


def find_generation(field: Field) -> str | None:
    """Return the expression that makes the values of a column, or None.

    Source: PROTOCOL.md#generated-columns
    """
    return _text(field, GENERATION)


def find_default(field: Field) -> str | None:
    """Return the expression for rows that say nothing of a column, or None.

    Source: PROTOCOL.md#default-columns
    """
    return _text(field, DEFAULT)


def text_limits(field: Field) -> dict[Path, int]:
    """Return how many characters texts in a column may have, by the steps from the column to each of them.

    Raises:
        CorruptLog: the type that Spark has left beside the column cannot be read.

    Source: Spark, which keeps char(n) and varchar(n) as text, with the whole type of the column beside it.
    """
    said = str(field.metadata.get(TEXT_LIMIT, ""))
    numbers = [int(number) for number in _LIMIT.findall(said)]
    if not numbers:
        return {}
    try:
        found = parse_type(_LIMIT.sub(str(VOID), said))
    except InvalidType as error:
        raise _corrupt(field, f"{TEXT_LIMIT} is {said!r} ({error})") from error
    return dict(zip((path for path, leaf in leaves(found) if leaf == VOID), numbers, strict=True))


def visible_schema(schema: StructType) -> StructType:
    """Return the schema as readers see it: what only the log is concerned with is left out, comments stay.

    Source: Delta Spark, which strips the history of type changes so that no other table inherits it.
    """
    return map_fields(schema, lambda _, field: field.without_metadata(*filter(_is_hidden, field.metadata)))


def _is_hidden(key: str) -> bool:
    return key.startswith(HIDDEN_PREFIX)


def has_generated_values(field: Field) -> bool:
    """Tell whether the table has values for a column where the data have none."""
    return any(key in field.metadata for key in (DEFAULT, GENERATION, START))


def _text(field: Field, key: str) -> str | None:
    found = field.metadata.get(key)
    return None if found is None else str(found)


def _corrupt(field: Field, reason: str) -> CorruptLog:
    fix = "Repair the schema with the client that wrote it."
    return CorruptLog(path="_delta_log", reason=f"column {field.name}: {reason}", fix=fix)
