"""The rules by their codes."""

from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.report.html_page import evolution_rules, find_rule


def test_all_rules_are_there_in_order() -> None:
    codes = [f"{letter}{number}" for letter, last in (("U", 20), ("D", 24), ("V", 21)) for number in range(1, last + 1)]
    assert list(evolution_rules()) == codes


def test_a_rule_has_a_title_and_a_text_without_markup() -> None:
    rule = find_rule(" u7 ")
    assert (rule.code, rule.title) == ("U7", "A narrower kind adds no column")
    assert rule.text == (
        "A kind that arrives later and is narrower than an existing column adds no column. Its values are converted to "
        'the wider type.\n\nExample: `a` is string, then a long arrives: `a` receives `"4"`.'
    )
    assert "](" not in "".join(each.text for each in evolution_rules().values())


def test_a_vector_has_its_kinds_and_columns() -> None:
    rule = find_rule("V1")
    assert (rule.title, rule.text) == ("boolean | date", "Columns in the mode split: a: boolean | a_date, a_string")


@pytest.mark.parametrize("code", ["U0", "U21", "D25", "V22", "", "8"])
def test_an_unknown_code_is_refused(code: str) -> None:
    with pytest.raises(InvalidOption, match="U1 to U20, D1 to D24 or V1 to V21"):
        find_rule(code)
