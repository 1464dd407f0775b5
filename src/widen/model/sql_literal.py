"""Texts and names as Spark SQL writes them: a text in quotes, with its escapes; a name in back-ticks.

Source: Spark's string literals and identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LITERAL = r"""[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*\""""
"""The pattern of one literal."""

_ESCAPE = re.compile(
    r"\\u(?P<short>[0-9a-fA-F]{4})|\\U(?P<long>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|\\(?P<octal>[0-3][0-7]{2})"
    r"|\\(?P<char>[\s\S])|''|\"\""
)
_CHARS: Mapping[str, str] = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def from_literal(literal: str) -> str:
    r"""Return the text that a literal stands for; two quotes in it stand for one.

    Half of a surrogate pair, which no file can hold, becomes a replacement character.

    Args:
        literal: One that `LITERAL` matches as a whole.

    Example:
        >>> from_literal(r"'it\'s'"), from_literal("'it''s'"), from_literal(r"r'\d'")
        ("it's", "it's", '\\d')
    """
    if literal[0] in "rR":
        return literal[2:-1]
    quote = literal[0]
    text = _ESCAPE.sub(lambda found: _unescape(found, quote), literal[1:-1])
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescape(found: re.Match[str], quote: str) -> str:
    code = found["short"] or found["long"]
    if code or found["octal"]:
        return chr(int(code, 16) if code else int(found["octal"], 8))
    char = found["char"]
    if char is None:
        return quote if found[0][0] == quote else found[0]
    return _CHARS.get(char, char)


def to_literal(text: str) -> str:
    r"""Return the literal that stands for a text.

    Example:
        >>> print(to_literal("it's"))
        'it\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def to_identifier(name: str) -> str:
    """Return the name in back-ticks, so that it is a name wherever it stands."""
    return "`" + name.replace("`", "``") + "`"
