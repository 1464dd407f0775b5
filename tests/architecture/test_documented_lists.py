"""Lists on the pages that the code has too: commands, settings, exit codes, limits."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import typer

from widen.cli import plan_output
from widen.cli.app import BROKEN_PIPE, EXAMPLES, INTERRUPTED, OVER_LIMIT, app
from widen.flows.flow_options import ChainOptions
from widen.flows.run_flow import FLOW_SETTINGS
from widen.ingestion.options import SETTINGS
from widen.model.keyword_options import declared
from widen.report.build_report import AUTOMATIC_FILES
from widen.table import Table

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = runpy.run_path(str(DOCS.parent / "tools" / "docs_pages.py"), run_name="docs_pages")
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(name: str, heading: str) -> str:
    """The text below a heading, up to the next one."""
    return re.split(r"^##? ", page(name).partition(f"{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """The names in the first cells of the rows of tables."""
    cells = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", text, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_json_of_every_command_is_described() -> None:
    with_json = {
        name for name, command in COMMANDS.items() if any("--json" in each.opts for each in command.params)
    } | {"contract"}
    assert set(first_cells(section("reference/json.md", "## Values"))) == with_json


def test_every_exit_code_is_described() -> None:
    codes = re.findall(r"^\| (\d+) \|", section("reference/json.md", "## Exit codes"), re.MULTILINE)
    used = {*plan_output.PLAN_CODES.values(), OVER_LIMIT, INTERRUPTED, BROKEN_PIPE}
    assert sorted(map(int, codes)) == sorted(used)


def test_every_setting_of_a_configuration_file_is_described() -> None:
    named = first_cells(section("guide/policy.md", "## All settings"))
    assert sorted(named) == sorted(SETTINGS)


def test_the_settings_of_a_step_of_a_chain_are_described() -> None:
    text = page("guide/flow.md").partition("A step has these settings")[2].partition("\n\n")[0]
    step, _, whole = text.partition("The other arguments")
    assert sorted({*re.findall(r"`(\w+)`", step)}) == sorted(FLOW_SETTINGS)
    shared = declared(ChainOptions).keys() - {"spark", "progress", "on_event", "on_batch"}
    assert set(re.findall(r"`(\w+)`", whole)) == shared


def test_the_number_of_footers_that_a_report_reads() -> None:
    text = " ".join(page("guide/look.md").split())
    assert f"unless more than {AUTOMATIC_FILES} files need that" in text


def test_every_command_of_a_page_exists() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    named = {
        (path.name, name)
        for path in pages
        for block in [*re.findall(r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)]
        for name in re.findall(r"^widen ([a-z-]+)", block, re.MULTILINE)
    }
    assert {(page, name) for page, name in named if name not in COMMANDS} == set()


def test_every_option_has_an_example() -> None:
    options = {
        each.opts[0]
        for command in COMMANDS.values()
        for each in command.params
        if each.opts[0].startswith("--") and not getattr(each, "is_flag", False)
    }
    examples = set(PAGES["OPTION_EXAMPLES"])
    assert (options - examples, examples - options) == (set(), set()), "see OPTION_EXAMPLES in tools/docs_pages.py"


def test_every_command_has_an_example() -> None:
    assert set(COMMANDS) - set(EXAMPLES) == set()


def test_every_error_of_a_page_exists() -> None:
    known = set(re.findall(r"^### (\S+)$", page("errors.md"), re.MULTILINE))
    named = {
        (path.name, code)
        for path in [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
        if path.name != "errors.md"
        for code in re.findall(r"`((?:WIDEN|DELTA)_[A-Z_]+[A-Z])`", path.read_text(encoding="utf-8"))
    }
    assert {(name, code) for name, code in named if code not in known} == set()


def test_the_runbook_has_the_errors_that_one_meets() -> None:
    assert len(set(re.findall(r"^\| `([A-Z_]+)`", page("guide/runbook.md"), re.MULTILINE))) >= 20


def test_every_method_of_a_table_is_in_a_group() -> None:
    grouped = page("reference/api.md").partition("| | methods and attributes |")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", grouped)
    assert sorted(names) == sorted(name for name in dir(Table) if not name.startswith("_"))
