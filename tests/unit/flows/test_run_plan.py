"""What a run would change: `widen plan FILE.toml`, `widen.plan_run` and the option `--dry-run`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import widen
from support.command_line import run, run_json
from widen.errors import InvalidConfig, InvalidOption
from widen.flows.run_plan import StepOutcome

FILE = """
[defaults]
engine = "local"
new = true

[[load]]
source = "{0}/orders"
into = "{0}/lake/orders"
fail_on = "structural"

[[load]]
source = "{0}/customers"
into = "{0}/lake/customers"
key = ["id"]
verify = true

[[flow]]
source = "{0}/lake/orders"
into = "{0}/lake/days"
sql = "SELECT 1 AS one FROM source"
checkpoint = "{0}/lake/_flows/days"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    put(tmp_path / "orders/1.json", '{"id": 1, "tag": "a"}')
    put(tmp_path / "customers/1.json", '{"id": 1}')
    return put(tmp_path / "pipelines.toml", FILE.format(tmp_path))


def put(path: Path, *lines: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def load(file: Path) -> None:
    assert run("run", str(file), "--only", "orders", "--only", "customers").exit_code == 0


def outcomes(planned: widen.RunPlan) -> dict[str, str]:
    return {each.step.name: each.outcome.value for each in planned.steps}


def test_new_tables_are_changes_and_nothing_is_written(file: Path) -> None:
    planned = widen.plan_run(file, jobs=2)
    assert outcomes(planned) == {"orders": "changes", "customers": "changes", "days": "open"}
    assert planned.outcome is StepOutcome.CHANGES
    assert "orders: a new table" in repr(planned)
    assert not (file.parent / "lake").exists()


def test_after_a_load_nothing_would_change(file: Path) -> None:
    load(file)
    planned = widen.plan_run(file)
    assert outcomes(planned) == {"orders": "nothing", "customers": "nothing", "days": "open"}
    assert run("plan", str(file)).exit_code == 0


def test_the_worst_plan_decides_the_exit_code(file: Path) -> None:
    load(file)
    put(file.parent / "customers/2.json", '{"id": 2, "name": "Ada"}')
    first = run("run", str(file), "--dry-run", "--only", "customers")
    assert first.exit_code == 2
    assert "± customers: 1 change of" in first.stdout
    put(file.parent / "orders/2.json", '{"id": 2, "tag": ["a", "b"]}')
    refused = run("plan", str(file))
    assert refused.exit_code == 3
    assert "Over a limit" in refused.stdout
    assert "orders: 1 change of" in refused.stdout
    assert "1 limit exceeded" in refused.stdout
    value = run_json("plan", str(file), code=3)
    assert [each["outcome"] for each in value["steps"]] == ["refused", "changes", "open"]


def test_an_error_is_the_result_of_its_step(file: Path) -> None:
    for each in (file.parent / "orders").iterdir():
        each.unlink()
    (file.parent / "orders").rmdir()
    planned = widen.plan_run(file)
    assert outcomes(planned) == {"orders": "failed", "customers": "changes", "days": "open"}
    shown = run("plan", str(file))
    assert shown.exit_code == 1
    assert "error: " in shown.stderr
    assert "orders: no plan, because of WIDEN_SOURCE_" in shown.stdout
    assert "a new table" in shown.stdout


def test_a_load_of_a_table_that_an_earlier_step_writes_stays_open(file: Path) -> None:
    more = '\n[[load]]\nname = "copy"\nsource = "{0}/lake/orders"\ninto = "{0}/lake/copy"\nnew = false\n'
    put(file, FILE.format(file.parent), more.format(file.parent))
    assert outcomes(widen.plan_run(file))["copy"] == "open"
    assert outcomes(widen.plan_run(file, only=["copy"]))["copy"] == "failed"  # there is no such table yet


def test_what_a_plan_of_a_file_cannot_be_asked(file: Path) -> None:
    with pytest.raises(InvalidOption, match="jobs"):
        widen.plan_run(file, jobs=0)
    with pytest.raises(InvalidConfig, match="no steps"):
        widen.plan_run(put(file.parent / "empty.toml"))
    shown = run("plan", str(file), "--pin", "id=text")
    assert shown.exit_code == 1
    assert "where each load has its own" in shown.stderr
    assert "--pin" in shown.stderr
    assert run("run", str(file), "--markdown").exit_code == 1
    assert run("run", str(file), "--dry-run", "--markdown", "--json").exit_code == 1


def test_the_plan_as_markdown(file: Path) -> None:
    load(file)
    put(file.parent / "orders/2.json", '{"id": 5000000000, "a|b": "x", "tag": [1]}')
    shown = run("run", str(file), "--dry-run", "--markdown")
    assert shown.exit_code == 3
    lines = shown.stdout.splitlines()
    assert lines[0] == "|  | step | result |"
    widened = "| ↗ | id | int → bigint | widening | D1 | 1 long |"
    assert any(line.startswith(widened) and line.endswith("orders/2.json:1 |") for line in lines)
    assert any(line.startswith("| + | \\`a\\|b\\` | string |") for line in lines)
    assert "### ±" not in shown.stdout
    assert f"### ✗ `{file.parent}/lake/orders`" in lines
    assert sum(line.startswith("|---|") for line in lines) == 2
    assert "Refused" not in shown.stdout


def test_a_dry_run_of_a_load_is_its_plan(file: Path) -> None:
    load(file)
    source = put(file.parent / "orders/2.json", '{"id": 5000000000}', "not")
    into = str(file.parent / "lake/orders")
    dry = run("ingest", str(source), "--into", into, "--dry-run")
    assert (dry.exit_code, dry.stdout) == (2, run("plan", str(source), "--into", into).stdout)
    over = run("ingest", str(source), "--into", into, "--dry-run", "--max-corrupt", "0")
    assert over.exit_code == 3
    assert "1 of 2 lines are not records" in over.stdout
    assert widen.plan(source, into, max_corrupt=0).over_limits[0].startswith("1 of 2 lines")
    assert widen.plan(source, into, max_corrupt=1).over_limits == ()
    assert "overLimits" in run_json("ingest", str(source), "--into", into, "--dry-run", "--max-corrupt", "0", code=3)
    assert widen.Table(into).version == 0
    for option in (["--verify"], ["--plan-hash", "x"], ["--once", "--checkpoint", "c"]):
        assert "--dry-run" in run("ingest", str(source), "--into", into, "--dry-run", *option).stderr


def test_a_plan_leaves_out_the_files_that_a_load_would_park(file: Path) -> None:
    load(file)
    into = str(file.parent / "lake/orders")
    put(file.parent / "orders/2.json", '{"id": 5000000000}')
    put(file.parent / "orders/3.json", "not", '{"id": 2, "more": 1}')
    options = {"new": True, "park_over_limit": True, "max_corrupt": 0}
    planned = widen.plan(file.parent / "orders", into, **options)  # type: ignore[arg-type]
    result = widen.ingest(file.parent / "orders", into, **options)  # type: ignore[arg-type]
    assert planned.hash == result.plan.hash
    assert [each.path for each in planned.bad_files] == [each.path for each in result.bad_files]
    assert planned.over_limits == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${WIDEN_TEST_A}", "x y"),
        ("a${WIDEN_TEST_A}b", "ax yb"),
        ("${WIDEN_TEST_NONE:-${}", "${"),
        ("${WIDEN_TEST_NONE:-}", ""),
        ("${WIDEN_TEST_A:-other}", "x y"),
        ("$${WIDEN_TEST_A}", "${WIDEN_TEST_A}"),
        ("$WIDEN_TEST_A $", "$WIDEN_TEST_A $"),
    ],
)
def test_variables_of_the_environment(tmp_path: Path, text: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_TEST_A", "x y")
    monkeypatch.delenv("WIDEN_TEST_NONE", raising=False)
    file = put(tmp_path / "p.toml", f'[[load]]\nsource = ["a", {json.dumps(text + "s")}]\ninto = "lake/a"\n')
    (step,) = widen.flows.pipelines.read_pipelines(file)  # type: ignore[attr-defined]
    assert step.source == ("a", f"{value}s")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${WIDEN_TEST_NONE}", r"\[\[load\]\] 2, into: the variable WIDEN_TEST_NONE is not set"),
        ("${1A}", "does not name a variable"),
        ("${}", "does not name a variable"),
        ("${A", "does not name a variable"),
    ],
)
def test_a_variable_that_is_not_set_is_an_error(
    tmp_path: Path, text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WIDEN_TEST_NONE", raising=False)
    loads = [f'[[load]]\nsource = "a"\ninto = "{into}"\n' for into in ("lake/a", text)]
    with pytest.raises(InvalidConfig, match=reason):
        widen.plan_run(put(tmp_path / "p.toml", *loads))


def test_variables_in_a_policy_name_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIDEN_TEST_NONE", raising=False)
    config = put(tmp_path / "policy.toml", "# a policy", 'evolve = "${WIDEN_TEST_NONE}"')
    source = put(tmp_path / "a.json", '{"id": 1}')
    with pytest.raises(InvalidConfig, match=r"policy\.toml, line 2: evolve: the variable"):
        widen.plan(source, tmp_path / "t", config=config)
    monkeypatch.setenv("WIDEN_TEST_NONE", "split")
    assert widen.plan(source, tmp_path / "t", config=config).operations


def test_the_summary_of_a_run_counts(file: Path) -> None:
    put(file.parent / "orders/1.json", '{"id": 1, "tag": "a"}', '{"id": 2}', "not")
    shown = run("run", str(file), "--only", "orders", "--only", "customers")
    into = f"{file.parent}/lake"
    assert f"✓ orders: 2 records into the new table {into}/orders, 1 line that is not a record\n" in shown.stdout
    assert f"✓ customers: 1 record into the new table {into}/customers\n" in shown.stdout
