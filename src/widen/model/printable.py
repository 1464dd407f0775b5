"""Texts as a terminal may get them: nothing moves the cursor, changes a colour or turns the direction of writing.

Source: Unicode, general categories Cc, Cf, Zl, Zp.
"""

from __future__ import annotations

import re

_UNSAFE_IN_JSON = re.compile(r"[^\n -~]")


def printable(text: str) -> str:
    r"""Return the text with everything that does not print, or that turns the direction of writing, as an escape.

    Example:
        >>> printable("a\tb")
        'a\\tb'
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable_lines(text: str) -> str:
    """Return the text with everything that does not print as an escape, but for line feeds."""
    return text if text.isprintable() else "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    r"""Return JSON that means the same, with everything that does not print as an escape of JSON.

    Args:
        text: JSON in one line or several.

    Example:
        >>> printable_json('"\u202e \xe9"')
        '"\\u202e \xe9"'
    """
    return text if text.isprintable() else _UNSAFE_IN_JSON.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
