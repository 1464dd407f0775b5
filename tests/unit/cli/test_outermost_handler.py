"""Errors that no part of the program has translated: the reason and no traceback, unless WIDEN_DEBUG asks for it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from widen.cli import app
from widen.errors import InvalidOption


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/part-0")


def fails_while_closing() -> None:
    try:
        full()
    except OSError:
        raise ValueError("I/O operation on closed file.")  # noqa: B904


def fails_after_an_error_of_ours() -> None:
    try:
        raise InvalidOption(option="x", value=1, expected="Must be 2.")
    except InvalidOption:
        raise ValueError("I/O operation on closed file.")  # noqa: B904


def interrupted_while_closing() -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise ValueError("I/O operation on closed file.")  # noqa: B904


def a_defect() -> None:
    raise LookupError("no such thing")


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        (full, 1, "error: /data/part-0: No space left on device."),
        (fails_while_closing, 1, "error: /data/part-0: No space left on device."),
        (fails_after_an_error_of_ours, 1, "error: x cannot be 1."),
        (interrupted_while_closing, 130, ""),
        (a_defect, 1, "error: LookupError: no such thing. WIDEN_DEBUG=1 shows where it happened."),
    ],
)
def test_the_first_reason_is_shown(
    call: Callable[[], None], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WIDEN_DEBUG", raising=False)
    assert app._outcome(call) == code
    shown = capsys.readouterr().err
    assert shown.startswith(said)
    assert "Traceback" not in shown
    assert ("WIDEN_INTERNAL" in shown) == (call is a_defect)


def test_a_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_DEBUG", "1")
    with pytest.raises(LookupError):
        app._outcome(a_defect)
