"""docs/errors.md lists every error as its class has it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from support.pages import Exceptions, blocks, run_block
from widen import errors
from widen.errors import WidenError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "errors_page.py"))["render"]
    assert render() == PAGE, "run: python tools/errors_page.py"


def test_the_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = next(block for block in blocks(PAGE) if block.language == "python")
    assert run_block(example, {}, Exceptions({}, {})) == example.shown


def test_every_code_has_a_heading() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WidenError)]
    codes = {kind.code for kind in kinds if "code" in vars(kind)} - {WidenError.code}
    assert {line.removeprefix("### ") for line in PAGE.splitlines() if line.startswith("### ")} >= codes


def test_an_entry_says_when_and_what_to_do() -> None:
    """One entry, typed by hand: the page could be current and still not say it."""
    assert (
        "### DELTA_COLUMN_NOT_FOUND_IN_SCHEMA\n\n"
        "`ColumnNotFound` (a `ColumnRefused`): The schema does not have a column of that name.\n\n"
        "```text\nColumn {column} is not in the schema.\n```\n\n"
        "What to do: Available at that level: {available}.\n"
    ) in PAGE
