"""Every rule, decision and vector of the evolution specification has a test that names its number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "evolution-rules.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("letter", ["U", "D", "V"])
def test_every_number_has_a_test(letter: str) -> None:
    rules = {int(number) for number in re.findall(rf'<a id="{letter.lower()}(\d+)">', PAGE)}
    assert len(rules) >= 20
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py") if path != Path(__file__)]
    names = [name for text in texts for name in re.findall(r'def test_(\w+)|"(V\d+)', text)]
    numbers = re.compile(rf"(?:^|_){letter.lower()}(\d+)(?=_|$)")
    found = {int(number) for pair in names for number in numbers.findall("".join(pair).lower())}
    assert rules - found == set()
