"""Limits of a batch: how many records may be corrupt or kept out, and which changes are too severe. The gate for CI.

Source: docs/guide/gate.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from widen.errors import InvalidOption, LimitExceeded
from widen.model.column_path import format_path
from widen.observe.observation import Observation, RecordPosition, position_text
from widen.planning.evolution.plan import Grade, Plan

_SEVERE = (Grade.CONFLICT, Grade.STRUCTURAL)
"""The grades that a batch can fail on, least severe first."""

_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*%|(\d+)")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Limit:
    """A maximum number of records.

    Args:
        text: The limit as the caller wrote it.
        count: The number; None if it is a share.
        share: The share of all records, from 0 to 1.
    """

    text: str
    count: int | None = None
    share: Fraction = Fraction(0)

    def is_exceeded(self, count: int, total: int) -> bool:
        """Tell whether a number of records is too large."""
        return count > (self.share * total if self.count is None else self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What a batch must fulfil to be committed.

    Args:
        fail_on: The least severe grade of changes that is refused: conflict or structural.
    """

    max_corrupt: Limit | None = None
    max_kept_out: Limit | None = None
    fail_on: Grade | None = None

    def ensure_fulfilled(self, plan: Plan, seen: Observation) -> None:
        """Check a batch.

        Raises:
            LimitExceeded: the batch is over a limit.
        """
        reasons = [*self._counts(seen), *self._changes(plan)]
        if reasons:
            raise LimitExceeded(reasons="; ".join(reasons))

    def _counts(self, seen: Observation) -> Iterator[str]:
        total = seen.records + seen.corrupt + seen.quarantined
        for limit, count, words, first, why in (
            (self.max_corrupt, seen.corrupt, "lines are not records", seen.first_corrupt, seen.corrupt_reason),
            (self.max_kept_out, seen.quarantined, "records do not fit fixed columns", None, ""),
        ):
            if limit is not None and limit.is_exceeded(count, total):
                reason = f" ({why})" if why else ""
                yield f"{count} of {total} {words}{_first_text(first)}{reason}, the limit is {limit.text}"

    def _changes(self, plan: Plan) -> Iterator[str]:
        if self.fail_on is None:
            return
        refused = _SEVERE[_SEVERE.index(self.fail_on) :]
        events = [event for event in plan.events if event.grade in refused]
        named = ", ".join(
            f"{format_path(event.column)} ({event.grade.value}{_first_text(event.first)})" for event in events[:_NAMED]
        )
        if events:
            more = f" and {len(events) - _NAMED} more" if len(events) > _NAMED else ""
            yield f"the plan has changes of the grade {self.fail_on.value} or worse: {named}{more}"


def _first_text(first: RecordPosition | None) -> str:
    return f", the first at {position_text(first)}" if first else ""


NO_LIMITS = BatchLimits()


def parse_limits(
    max_corrupt: int | str | None = None, max_kept_out: int | str | None = None, fail_on: str | None = None
) -> BatchLimits:
    """Return limits from the words of a caller.

    Args:
        max_corrupt: A number of lines, or a share like ``1%``.
        max_kept_out: A number of records, or a share.
        fail_on: ``conflict`` or ``structural``.

    Raises:
        InvalidOption: a value cannot be used.
    """
    if fail_on is not None and fail_on not in {grade.value for grade in _SEVERE}:
        raise InvalidOption(option="fail_on", value=fail_on, expected="Must be conflict or structural.")
    return BatchLimits(
        max_corrupt=_parse_limit("max_corrupt", max_corrupt),
        max_kept_out=_parse_limit("max_kept_out", max_kept_out),
        fail_on=None if fail_on is None else Grade(fail_on),
    )


def _parse_limit(option: str, value: int | str | None) -> Limit | None:
    if value is None:
        return None
    match = _NUMBER.fullmatch(str(value).strip())
    share = Fraction(match[1]) / 100 if match and match[1] else Fraction(0)
    if match is None or share > 1:
        raise InvalidOption(option=option, value=value, expected="Must be a number >= 0, or a share from 0% to 100%.")
    return Limit(str(value).strip(), int(match[2]) if match[2] else None, share)
