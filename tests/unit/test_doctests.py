"""The examples in docstrings run and give what they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import widen

PACKAGE = Path(widen.__file__).parent


def modules_with_examples() -> list[str]:
    paths = sorted(path for path in PACKAGE.rglob("*.py") if ">>>" in path.read_text(encoding="utf-8"))
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("name", modules_with_examples())
def test_the_examples_of_a_module_are_right(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
