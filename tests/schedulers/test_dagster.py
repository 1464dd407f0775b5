"""The example for Dagster: `make schedulers` installs it and runs this."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import dagster
import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "schedulers" / "dagster_loads.py"
RESULT = '{"version": 4, "records": 12, "corrupt": 1, "quarantined": 0, "plan": {}}'


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dagster_loads", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_load_becomes_metadata(example: ModuleType, widen_ends_with: Callable[..., None]) -> None:
    widen_ends_with(0, RESULT)
    result = dagster.materialize([example.orders])
    (made,) = result.asset_materializations_for_node("orders")
    shown = {name: each.value for name, each in made.metadata.items()}
    assert shown == {"version": 4, "records": 12, "corrupt": 1, "quarantined": 0}


@pytest.mark.parametrize(("code", "may_retry"), [(1, True), (3, False)])
def test_what_time_cannot_repair_is_not_retried(
    example: ModuleType, widen_ends_with: Callable[..., None], code: int, may_retry: bool
) -> None:
    widen_ends_with(code)
    with pytest.raises(dagster.Failure) as caught:
        example.run_widen("ingest", "a", "--into", "b")
    assert caught.value.allow_retries is may_retry
    assert "said why" in str(caught.value.description)
