"""The page for newcomers says what is so: its layers are those that are tested, and what it names is there."""

from __future__ import annotations

import re
from pathlib import Path

from architecture.source import PACKAGE
from architecture.test_layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LAYER = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)
WORD = re.compile(r"`(\w+)`")
FILE = re.compile(r"`([\w/]+\.(?:py|html\.j2))`")
TABLE = re.compile(r"`([A-Z_]+)`")
FOLDER = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| ", re.MULTILINE)


def test_the_layers_are_those_that_are_tested() -> None:
    told = {name: int(layer) for layer, text in LAYER.findall(PAGE) for name in WORD.findall(text) if name in LAYERS}
    assert told == {name: layer for name, layer in LAYERS.items() if not name.startswith("__")}


def test_every_module_that_is_named_is_there() -> None:
    named = FILE.findall(PAGE)
    assert len(named) > 30
    assert [path for path in named if not (PACKAGE / path).exists()] == []


def test_every_table_that_is_named_is_there() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    assert [name for name in TABLE.findall(PAGE) if not re.search(rf"^{name}\b.* = ", source, re.MULTILINE)] == []


def test_every_folder_of_tests_is_named() -> None:
    told = {name for text in FOLDER.findall(PAGE) for name in WORD.findall(text)}
    assert told == {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
