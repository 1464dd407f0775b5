"""The session that Widen works in: which versions of Spark it takes."""

from __future__ import annotations

import pytest

from widen.errors import UnsupportedSpark
from widen.spark.session import ensure_supported, find_session


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.2.0-SNAPSHOT", "5.0.0", "10.1"])
def test_supported(version: str) -> None:
    ensure_supported(version)


@pytest.mark.parametrize("version", ["3.5.7", "3.5.7-amzn-0", "2.4"])
def test_an_older_one_is_refused_in_one_line(version: str) -> None:
    with pytest.raises(UnsupportedSpark) as caught:
        ensure_supported(version)
    assert caught.value.message == f"Widen needs Spark 4.0 or later; this is {version}."
    assert "\n" not in caught.value.message


def test_a_session_of_an_old_server_is_refused() -> None:
    class Old:
        version = "3.5.1"

    with pytest.raises(UnsupportedSpark):
        find_session(Old())  # type: ignore[arg-type]
