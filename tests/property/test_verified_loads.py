"""The proof has no objection to a right load, whatever the records and the options are: a false alarm stops a flow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import widen
from support.generated_loads import generated_loads
from widen.errors import PostCommitFailed, RequestError, TableError
from widen.model.native_kernel import KERNEL_VARIABLE

TRIES = settings.default.max_examples // 5 if settings.default else 20
"""A seed takes a third of a second."""

seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WIDEN_ENGINE", "local")
        yield


@pytest.fixture(scope="module")
def without_kernel() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KERNEL_VARIABLE, "off")
        yield


def count_proved(seed: int) -> int:
    """Return how many loads of a seed are proved; the others are refused, and leave the table as it is."""
    proved = 0
    with TemporaryDirectory() as folder:
        for number, load in enumerate(generated_loads(seed, Path(folder) / "f")):
            try:
                done = widen.ingest(load.source, load.target, verify=True, **load.words)
            except PostCommitFailed as error:
                raise AssertionError((seed, number, load.words)) from error
            except (RequestError, TableError):
                continue
            found = done.verification
            assert found is None or found.is_clean, (seed, number, str(found), found.places, load.words)
            proved += found is not None
    return proved


def test_most_loads_are_proved() -> None:
    assert sum(map(count_proved, range(TRIES))) > TRIES


@given(seeds)
@settings(max_examples=TRIES)
def test_right_loads_are_proved(seed: int) -> None:
    count_proved(seed)


@given(seeds)
@settings(max_examples=TRIES)
@pytest.mark.usefixtures("without_kernel")
def test_right_loads_are_proved_without_the_kernel(seed: int) -> None:
    count_proved(seed)
