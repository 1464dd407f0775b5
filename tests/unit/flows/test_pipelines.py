"""The file of `widen run`: what it may hold, and in which order its steps run."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from widen.errors import InvalidConfig, InvalidOption, LimitExceeded, SourceError
from widen.flows import pipelines
from widen.flows.pipelines import PipelineStep, StepKind, StepStatus, read_pipelines, run_steps, select_steps

LOAD = '[[load]]\nsource = "landing/a"\ninto = "lake/a"\n'
FLOW = '[[flow]]\nsource = "lake/a"\ninto = "lake/b"\ncheckpoint = "c"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "pipelines.toml"
    file.write_text(text)
    return file


def test_a_step_waits_for_what_writes_its_source(tmp_path: Path) -> None:
    again = '[[load]]\nname = "again"\nsource = ["x", "y"]\ninto = "./lake/a/"\nnew = true\n'
    last = '[[flow]]\nsource = "other"\ninto = "lake/z"\ncheckpoint = "d"\nafter = ["b"]\n'
    file = written(tmp_path, f"[defaults]\nevolve = 'split'\n{LOAD}{again}{FLOW}{last}")
    steps = {step.name: step for step in read_pipelines(file)}
    assert list(steps) == ["a", "again", "b", "z"]
    assert {name: step.feeders for name, step in steps.items()} == {
        "a": (),
        "again": (),
        "b": ("a", "again"),
        "z": ("b",),
    }
    assert steps["again"].earlier == ("a",)
    assert steps["again"].arguments == {"evolve": "split", "new": True}
    assert steps["again"].source == ("x", "y")
    assert steps["b"].kind is StepKind.FLOW
    assert steps["b"].arguments == {"checkpoint": "c"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no steps"),
        ("x", "="),
        ("[[step]]\n", "step"),
        ('[[load]]\nsource = "a"\n', "into"),
        (f"{LOAD}unknown = 1\n", "unknown: unknown setting"),
        (f"{LOAD}plan_hash = 'x'\n", "plan_hash: unknown setting"),
        (f"[defaults]\nsql = 'x'\n{LOAD}", "sql: unknown setting"),
        (f"{LOAD}new = 'yes'\n", "new"),
        (f"{LOAD}max_corrupt = 'many'\n", "max_corrupt"),
        (f"{LOAD}evolve = 'wide'\n", "evolve"),
        (f"{LOAD}sequence_by = 'x'\n", "key"),
        (f"{LOAD}{LOAD}", "another step is named a"),
        (f"{LOAD}after = ['b']\n{FLOW}", "no earlier step is named b"),
        (f"{FLOW}removed = 'maybe'\n", "removed"),
        (f"{FLOW}{FLOW}name = 'other'\n", "another flow has the checkpoint c"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        read_pipelines(written(tmp_path, text))


def test_steps_are_selected_by_name(tmp_path: Path) -> None:
    steps = read_pipelines(written(tmp_path, LOAD + FLOW))
    assert [step.name for step in select_steps(steps, ["b"])] == ["b"]
    assert select_steps(steps, None) == steps
    with pytest.raises(InvalidOption, match="a, b"):
        select_steps(steps, ["c"])


class Runs:
    """In place of loads: records when each starts and ends, and fails where it is told to.

    Args:
        together: The steps that wait until all of them run.
    """

    def __init__(self, failures: dict[str, Exception], together: str = "") -> None:
        self.failures, self.log, self.together = failures, list[str](), together
        self.barrier = threading.Barrier(max(len(together), 1))

    def __call__(self, step: PipelineStep, shared: Any) -> pipelines.StepResult:
        del shared
        self.log.append(f"+{step.name}")
        if step.name in self.together:
            self.barrier.wait(timeout=600)
        self.log.append(f"-{step.name}")
        error = self.failures.get(step.name)
        return pipelines.StepResult(step, StepStatus.LOADED if error is None else StepStatus.FAILED, error=error)


def step(name: str, *feeders: str, after: tuple[str, ...] = ()) -> PipelineStep:
    return PipelineStep(name, StepKind.LOAD, ("s",), name, {}, feeders, (*feeders, *after))


STEPS = [step("a"), step("b"), step("c", "a"), step("d", "c"), step("e", after=("a",))]


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_a_failure_stops_only_what_it_feeds(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {"a": SourceError(source="s", reason="gone", fix="f"), "b": LimitExceeded(reasons="1 of 1")}
    runs = Runs(failures, together="ab" if jobs > 1 else "")
    monkeypatch.setattr(pipelines, "_execute", runs)
    told: list[str] = []
    run = run_steps(STEPS, lambda _: None, jobs, on_step=lambda ended: told.append(ended.step.name))
    assert [(each.step.name, each.status.value, each.because) for each in run.steps] == [
        ("a", "failed", ()),
        ("b", "failed", ()),
        ("c", "skipped", ("a",)),
        ("d", "skipped", ("c",)),
        ("e", "loaded", ()),
    ]
    assert sorted(told) == list("abcde")
    assert runs.log.index("+e") > runs.log.index("-a")
    assert not run.is_clean
    assert not run.is_only_over_limits
    if jobs == 1:
        assert runs.log == ["+a", "-a", "+b", "-b", "+e", "-e"]


def test_failures_at_limits_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "_execute", Runs({"a": LimitExceeded(reasons="1 of 1")}))
    assert run_steps(STEPS, lambda _: None, 2).is_only_over_limits
    with pytest.raises(InvalidOption, match="jobs"):
        run_steps(STEPS, lambda _: None, 0)
