"""Every rule, decision and vector of the evolution specification has a test that names its number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NUMBERED = {"U": range(1, 21), "D": range(1, 18), "V": range(1, 22)}


@pytest.mark.parametrize("letter", NUMBERED)
def test_every_number_has_a_test(letter: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py") if path != Path(__file__)]
    names = [name for text in texts for name in re.findall(r'def test_(\w+)|"(V\d+)', text)]
    numbers = re.compile(rf"(?:^|_){letter.lower()}(\d+)(?=_|$)")
    found = {int(number) for pair in names for number in numbers.findall("".join(pair).lower())}
    assert set(NUMBERED[letter]) - found == set()
