"""The example for Apache Airflow: `make schedulers` installs it and runs this."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "schedulers" / "airflow_dag.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("airflow_dag", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_dag_has_its_tasks(example: ModuleType) -> None:
    dag = example.widen_loads()
    assert {task.task_id: (task.retries, task.downstream_task_ids) for task in dag.tasks} == {
        "run_widen": (3, {"optimize"}),
        "optimize": (0, set()),
    }


@pytest.mark.parametrize(("code", "error"), [(1, AirflowException), (3, AirflowFailException), (130, AirflowException)])
def test_what_time_cannot_repair_is_not_retried(
    example: ModuleType, widen_ends_with: Callable[..., None], code: int, error: type[Exception]
) -> None:
    widen_ends_with(code)
    with pytest.raises(AirflowException) as caught:
        example.run_widen.function("run", "pipelines.toml")
    assert type(caught.value) is error


def test_a_load_that_succeeds_is_quiet(example: ModuleType, widen_ends_with: Callable[..., None]) -> None:
    widen_ends_with(0)
    example.run_widen.function("run", "pipelines.toml")
