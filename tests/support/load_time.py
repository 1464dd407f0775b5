"""Loads that all begin at one time, which files hold and compress to more or fewer bytes."""

from __future__ import annotations

from datetime import datetime, tzinfo

import pytest

from widen.batches import open_source


def set_load_time(monkeypatch: pytest.MonkeyPatch, time: datetime) -> None:
    """Let every load take a time of UTC for ``_loaded_at``."""

    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return time.replace(tzinfo=tz)

    monkeypatch.setattr(open_source, "datetime", Fixed)
