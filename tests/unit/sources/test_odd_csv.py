"""The page about odd CSV files says what the code does."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_says_what_we_make_of_each_file() -> None:
    spec = importlib.util.spec_from_file_location("odd_csv", ROOT / "tools" / "odd_csv.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    found = {name: tool.cell(text) for name, text in tool.answers(tool.widen).items()}
    assert {name: cells[0] for name, cells in tool.pinned().items()} == found
    assert len(found) >= 60
