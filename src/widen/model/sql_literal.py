"""String literals and quoted identifiers of Spark SQL.

Source: Spark's string literals and identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

LITERAL = r"""[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*\""""
"""The pattern of one string literal."""

_ESCAPE = re.compile(
    r"\\u(?P<short>[0-9a-fA-F]{4})|\\U(?P<long>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|\\(?P<octal>[0-3][0-7]{2})"
    r"|\\(?P<char>[\s\S])|''|\"\""
)
_CHARS: Mapping[str, str] = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def from_literal(literal: str) -> str:
    r"""Return the value of a string literal; a doubled quote in it is one quote.

    Half of a surrogate pair cannot be stored as UTF-8, so it becomes a replacement character.

    Args:
        literal: A literal that fully matches `LITERAL`.

    Example:
        >>> from_literal(r"'it\'s'"), from_literal("'it''s'"), from_literal(r"r'\d'")
        ("it's", "it's", '\\d')
    """
    if literal[0] in "rR":
        return literal[2:-1]
    quote = literal[0]
    text = _ESCAPE.sub(lambda match: _unescape(match, quote), literal[1:-1])
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescape(match: re.Match[str], quote: str) -> str:
    code = match["short"] or match["long"]
    if code or match["octal"]:
        return chr(int(code, 16) if code else int(match["octal"], 8))
    char = match["char"]
    if char is None:
        return quote if match[0][0] == quote else match[0]
    return _CHARS.get(char, char)


def to_literal(text: str) -> str:
    r"""Return the string literal for a text.

    Example:
        >>> print(to_literal("it's"))
        'it\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def to_identifier(name: str) -> str:
    """Return the name in backticks, which is always an identifier, even for keywords."""
    return "`" + name.replace("`", "``") + "`"
