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


def printable_json(text: str) -> str:
    r"""Return the same JSON with every character that does not print as a JSON escape.

    Args:
        text: JSON, on one line or several.

    Example:
        >>> printable_json('"\u202e \xe9"')
        '"\\u202e \xe9"'
    """
    return text if text.isprintable() else _UNSAFE_IN_JSON.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
