"""A change that conflicts is planned, written and committed again, a bounded number of times."""

from __future__ import annotations

import pytest

from widen.errors import AttemptsExhausted
from widen.log.commit_outcome import MAX_CONFLICTS, MAX_PAUSE_SECONDS, Conflicted, retry_conflicts


def conflict(version: int) -> Conflicted:
    return Conflicted(AttemptsExhausted(version=version, location="table", reason="another writer"))


def test_the_result_of_the_first_attempt_without_a_conflict_is_returned() -> None:
    conflicts = [conflict(1), conflict(2)]
    before: list[Conflicted | None] = []

    def attempt(last: Conflicted | None) -> str | Conflicted:
        before.append(last)
        return conflicts[len(before) - 1] if len(before) <= len(conflicts) else "written"

    assert retry_conflicts(attempt) == "written"
    assert before == [None, *conflicts]


def test_the_last_conflict_is_raised_after_the_last_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[Conflicted] = []
    pauses: list[float] = []
    monkeypatch.setattr("widen.log.commit_outcome.time.sleep", pauses.append)

    def attempt(_: Conflicted | None) -> str | Conflicted:
        attempts.append(conflict(len(attempts)))
        return attempts[-1]

    with pytest.raises(AttemptsExhausted) as raised:
        retry_conflicts(attempt)
    assert len(attempts) == MAX_CONFLICTS == 20
    assert len(pauses) == 18
    assert all(0 <= pause <= MAX_PAUSE_SECONDS for pause in pauses)
    assert raised.value is attempts[-1].error
