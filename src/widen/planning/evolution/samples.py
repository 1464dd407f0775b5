"""What is shown and stored of the values of records: nothing, their shape, or the values themselves.

The shape tells why a value did not fit, and nothing of what it says: `12.50 EUR` is `99.99 XXX`.

Source: docs/evolution-rules.md#d24
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType


class Samples(str, Enum):
    """How values are shown."""

    NONE = "none"
    MASKED = "masked"
    RAW = "raw"


def mask(text: str) -> str:
    """Return the shape of a text: every letter as x or X, every digit as 9, anything else as it is.

    Example:
        >>> mask("12.50 EUR"), mask("Müller-Lüdenscheidt")
        ('99.99 XXX', 'Xxxxxx-Xxxxxxxxxxxx')
    """
    return "".join(map(_masked, text))


def _masked(char: str) -> str:
    if char.isnumeric():
        return "9"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char


def shown_as(samples: Samples | str) -> Callable[[str], str]:
    """Return what makes a value as it is shown; empty if it is not shown at all."""
    return _SHOWN[Samples(samples)]


_SHOWN: Mapping[Samples, Callable[[str], str]] = MappingProxyType(
    {Samples.NONE: lambda _: "", Samples.MASKED: mask, Samples.RAW: str}
)
