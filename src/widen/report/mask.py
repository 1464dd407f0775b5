"""What of the data a report shows: nothing of it, its shape, or all.

The shape keeps what tells why a value did not fit, and none of what it says: `12.50 EUR` is `99.99 XXX`.

Source: house rule: a report can be sent to people who may not see the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from widen.report.model import Change, Column, Interval, Reason, Report


class Samples(str, Enum):
    """How values are shown."""

    NONE = "none"
    MASKED = "masked"
    FULL = "full"


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
    {Samples.NONE: lambda _: "", Samples.MASKED: mask, Samples.FULL: str}
)


def shown(report: Report, samples: Samples | str) -> Report:
    """Return the report with values shown so; bounds are shown in full unless they are texts.

    Args:
        report: With all that is known.
        samples: How values are shown.
    """
    samples = Samples(samples)
    columns = tuple(_column(column, samples) for column in report.columns)
    families = tuple(
        replace(family, columns=tuple(_column(column, samples) for column in family.columns))
        for family in report.families
    )
    intervals = tuple(_interval(each, samples) for each in report.intervals)
    return replace(report, columns=columns, families=families, intervals=intervals)


def _column(column: Column, samples: Samples) -> Column:
    birth = column.birth and replace(column.birth, reason=_reason(column.birth.reason, samples))
    low, high = (_bound(bound, samples) for bound in (column.low, column.high))
    texts = tuple(text for text in map(_SHOWN[samples], column.samples) if text)
    return replace(column, low=low, high=high, samples=tuple(dict.fromkeys(texts)), birth=birth)


def _bound(bound: Any, samples: Samples) -> Any:
    return (_SHOWN[samples](bound) or None) if isinstance(bound, str) else bound


def _interval(interval: Interval, samples: Samples) -> Interval:
    return replace(interval, changes=tuple(_change(change, samples) for change in interval.changes))


def _change(change: Change, samples: Samples) -> Change:
    return replace(change, reasons=tuple(_reason(reason, samples) for reason in change.reasons))


def _reason(reason: Reason, samples: Samples) -> Reason:
    return replace(reason, sample=_SHOWN[samples](reason.sample))
