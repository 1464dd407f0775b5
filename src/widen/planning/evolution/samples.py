"""How sample values are shown and stored: not at all, masked, or raw.

A masked value shows why it did not fit without its content: `12.50 EUR` becomes `99.99 XXX`.

Source: docs/evolution-rules.md#d24
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum


class Samples(str, Enum):
    """How sample values are shown."""

    NONE = "none"
    MASKED = "masked"
    RAW = "raw"


def mask(text: str) -> str:
    """Replace every letter of a text with x or X and every digit with 9; keep other characters.

    Example:
        >>> mask("12.50 EUR"), mask("Müller-Lüdenscheidt")
        ('99.99 XXX', 'Xxxxxx-Xxxxxxxxxxxx')
    """
    return "".join(map(_mask, text))


def _mask(char: str) -> str:
    if char.isnumeric():
        return "9"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char


def sample_formatter(samples: Samples | str) -> Callable[[str], str]:
    """Return the function that formats a sample value; its result is empty if samples are not shown."""
    return _SHOWN[Samples(samples)]


_SHOWN: Mapping[Samples, Callable[[str], str]] = {Samples.NONE: lambda _: "", Samples.MASKED: mask, Samples.RAW: str}
