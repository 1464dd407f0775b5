"""Escaping of text for terminals: names and values in the data could otherwise move the cursor or reverse the text.

Source: Unicode, general categories Cc, Cf, Zl, Zp.
"""

from __future__ import annotations

import re

_UNSAFE_IN_JSON = re.compile(r"[^\n -~]")


def printable(text: str) -> str:
    r"""Return the text with every character escaped that does not print or that changes the direction of writing.

    Example:
        >>> printable("a\tb")
        'a\\tb'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return the text with every character escaped that does not print, except line feeds."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(text: str, *, only_ascii: bool = False) -> str:
    r"""Return the same JSON with every character that does not print as a JSON escape.

    Args:
        text: JSON, on one line or several.
        only_ascii: Escape every character beyond ASCII.

    Example:
        >>> printable_json('"\u202e \xe9"')
        '"\\u202e \xe9"'
    """
    if text.isprintable() and (text.isascii() or not only_ascii):
        return text
    return _UNSAFE_IN_JSON.sub(lambda match: _json_escape(match[0], only_ascii), text)


def _json_escape(char: str, only_ascii: bool) -> str:
    if char.isprintable() and not only_ascii:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
