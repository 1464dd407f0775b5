"""The columns that say where a record is from, and when it was loaded."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

import widen
from support.load_time import set_load_time


@pytest.mark.parametrize("microsecond", [304_600, 0, 1])
def test_a_time_with_trailing_zeros_is_proved_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, microsecond: int
) -> None:
    time = datetime(2024, 5, 6, 7, 8, 9, microsecond)
    set_load_time(monkeypatch, time)
    (tmp_path / "a.json").write_text('{"a": 1}\n')
    done = widen.ingest(tmp_path / "a.json", tmp_path / "t", source_columns=True, verify=True, engine="local")
    assert done.verification is not None
    assert (done.verification.exact, done.verification.converted) == (3, 0)
    (found,) = widen.Table(str(tmp_path / "t")).to_arrow()["_loaded_at"].to_pylist()
    assert found.replace(tzinfo=None) == time
