"""Syntax errors: the position, the expected tokens, and the nearest form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import SequenceMatcher, get_close_matches

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from widen.errors import InvalidStatement
from widen.sql_commands.grammar import UNDERSTOOD
from widen.sql_commands.row_statements import ROW_FORMS

_LEFT, _RIGHT = 60, 40
"""The number of characters before and after the position in the excerpt."""

_CALLED: Mapping[str, str] = {
    "NAME": "a name",
    "QUOTED": "a name",
    "LITERAL": "a string in quotes",
    "INTEGER": "a number",
    "DECIMAL": "a number",
    "EXPRESSION": "an expression",
    "$END": "the end",
}
_EXPRESSION = frozenset(
    {"NAME", "QUOTED", "LITERAL", "INTEGER", "DECIMAL", "OPERATOR", "MINUS", "IS_NOT", "LEFT", "COMMA"}
)
_FIRST_WORDS = {"_ALTER", "_CREATE"}
"""Terminals that can come next only at the beginning of a statement."""

_OVER = {"$END", "SEMICOLON"}
_QUOTES = ("'", '"', "`")


def unexpected_token_message(text: str, error: UnexpectedInput, parser: Lark) -> InvalidStatement:
    """Return the error for an unexpected token."""
    token = error.token if isinstance(error, UnexpectedToken) else None
    is_end = token is not None and token.type == "$END"
    at = len(text.rstrip()) if is_end else error.pos_in_stream or 0
    word = text[at] if token is None else str(token)
    if token is None and word in _QUOTES:
        return refused_message(text, at, "this quote is not closed")
    expected = _expected_terminals(error)
    if expected <= _OVER and text[:at].rstrip().endswith(";"):
        return refused_message(text, at, "only one statement is allowed, and a second one begins here")
    first_words = {form[0] for form in _KEYWORDS.values()} if expected >= _FIRST_WORDS else set()
    choices = _list_words({_terminal_text(name, parser) for name in _join_expressions(expected)} | first_words)
    return refused_message(text, at, f"expected {choices}{'' if is_end else f', not {word!r}'}")


def refused_message(text: str, at: int, reason: str) -> InvalidStatement:
    """Return the error for a position, in characters from the start of the text."""
    start = text.rfind("\n", 0, at) + 1
    line, column = text.count("\n", 0, at) + 1, at - start + 1
    return InvalidStatement(
        reason=reason, line=line, column=column, excerpt=_excerpt(text, start, at), nearest=nearest_form(text)
    )


def nearest_form(text: str) -> str:
    """Return what to do instead of a text: a method for what SQL does not do here, else the nearest form.

    Only forms of the same statement are near: those that begin with the same word.
    """
    words = _WORD.findall(text.upper())
    method = next((method for first, method in METHODS.items() if words[: len(first)] == [*first]), None)
    option = (advice for (first, word), advice in OPTIONS.items() if words[:1] == [first] and word in words)
    if method is not None or (method := next(option, None)) is not None:
        return method
    near = [keyword for word in words for keyword in get_close_matches(word, _ALL_KEYWORDS, 1, 0.8)]
    firsts = get_close_matches(words[0], {form[0] for form in _KEYWORDS.values()}, 1, 0.7) if words else []
    matched = {name: _count_matches(near, form) for name, form in _KEYWORDS.items() if form[0] in firsts}
    best = max(matched, key=lambda name: matched[name], default="")
    if best:
        return f"The nearest form is:\n  {FORMS[best]}"
    return "\n  ".join(("Supported statements:", *(form.partition("\n")[0] for form in FORMS.values())))


FORMS: Mapping[str, str] = {**UNDERSTOOD, **ROW_FORMS}
"""Every form, formatted for messages."""

METHODS: Mapping[tuple[str, ...], str] = {
    ("REORG",): "Use Table.rewrite or widen rewrite for old types, and OPTIMIZE for deleted rows.",
    ("COPY", "INTO"): "Use widen.ingest or widen ingest --new.",
    ("CREATE", "VIEW"): "Use Table.view_sql or widen view, and run its statement in a session with Delta Lake.",
    ("CREATE", "OR", "REPLACE", "TABLE"): "Use Table.overwrite(rows, overwrite_schema=True) for an existing table.",
    ("REPLACE", "TABLE"): "Use Table.overwrite(rows, overwrite_schema=True).",
    ("DROP", "TABLE"): "Remove the directory of the table; Widen does not delete tables.",
    ("REFRESH",): "Use Table.refresh; SQL statements always read the newest version.",
    ("SHOW", "HISTORY"): "Use DESCRIBE HISTORY table.",
    ("SHOW", "COLUMNS"): "Use DESCRIBE TABLE table.",
    ("EXPLAIN",): "Use DataFrame.explain on the result of a query.",
}
"""What to do for statements that are not supported, by their first words."""

OPTIONS: Mapping[tuple[str, str], str] = {
    ("VACUUM", "LITE"): "Omit LITE: VACUUM deletes every file that no version within the retention needs.",
    ("OPTIMIZE", "FULL"): "Omit FULL: it is for clustered tables. To write all files again in an order, use ZORDER BY.",
}
"""What to do for options of other engines, by the first word of the statement and the option."""


def _count_matches(words: list[str], keywords: list[str]) -> int:
    return sum(block.size for block in SequenceMatcher(None, words, keywords, autojunk=False).get_matching_blocks())


_WORD = re.compile(r"\w+")
_KEYWORDS: Mapping[str, list[str]] = {name: re.findall(r"\b[A-Z]{2,}\b", form) for name, form in FORMS.items()}
_ALL_KEYWORDS = sorted({word for keywords in _KEYWORDS.values() for word in keywords})


def _excerpt(text: str, start: int, at: int) -> str:
    """Return the part of a line around a position, with a caret below it."""
    first = max(start, at - _LEFT)
    shown = text[first : at + _RIGHT].splitlines()[:1]
    line = "".join(char if char.isprintable() else " " for char in (shown or [""])[0])
    return f"  {line}\n  {' ' * (at - first)}^"


def _expected_terminals(error: UnexpectedInput) -> set[str]:
    if isinstance(error, UnexpectedToken):
        return set(error.accepts if error.interactive_parser is not None else error.expected)
    return set(error.allowed) if isinstance(error, UnexpectedCharacters) else set()


def _join_expressions(expected: set[str]) -> set[str]:
    """Return the terminals, with EXPRESSION for all that an expression can begin with."""
    return (expected - _EXPRESSION) | {"EXPRESSION"} if "OPERATOR" in expected else expected


def _terminal_text(name: str, parser: Lark) -> str:
    if name.startswith("_"):
        return name[1:]
    return _CALLED.get(name) or repr(parser.get_terminal(name).pattern.value)


def _list_words(words: set[str]) -> str:
    """Return the words as a list in prose, keywords first."""
    *others, last = sorted(words, key=lambda word: (not word.isupper(), word))
    return f"{', '.join(others)} or {last}" if others else last
