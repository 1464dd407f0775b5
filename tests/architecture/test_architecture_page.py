"""The page on the architecture: its floors are those that are tested, and every function that it names is there."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from architecture.test_layers import LAYERS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
FLOORS = "|".join(name for name in LAYERS if not name.startswith("__"))
NAME = re.compile(rf"`((?:{FLOORS})(?:\.\w+)+)`")


def is_there(name: str) -> bool:
    """Return whether a dotted name below `widen` is a module, or a name in one."""
    module, _, attribute = f"widen.{name}".rpartition(".")
    parent = import_module(module)
    if hasattr(parent, attribute):
        return True
    return hasattr(parent, "__path__") and find_spec(f"{module}.{attribute}") is not None


def test_every_name_is_there() -> None:
    names = NAME.findall(PAGE)
    assert len(names) > 30
    assert [name for name in names if not is_there(name)] == []


def test_the_floors_are_those_that_are_tested() -> None:
    floors = re.search(r"```\n(.*?)```", PAGE, re.DOTALL)
    assert floors is not None
    told = [set(line[:40].split()) for line in floors[1].splitlines()]
    names: dict[int, set[str]] = {}
    for name, layer in LAYERS.items():
        if not name.startswith("__") and name != "types":
            names.setdefault(layer, set()).add(name)
    assert told == [names[layer] for layer in sorted(names, reverse=True)]
