"""The commands that only read."""

from __future__ import annotations

from support.command_line import run, run_json


def test_a_rule_is_explained() -> None:
    assert run_json("explain", "u8") == [
        {
            "code": "U8",
            "title": "A wider kind gets its own column",
            "text": "A kind that arrives later and is wider than every existing column of the field, or cannot be "
            "converted to any of them, gets a new column of exactly that kind.\n\nExample: `size` is long, then 2.3 "
            "arrives: `size_double` is added. (In the mode `widen`, `size` itself widens where the table format can do "
            "that without loss: D1.)",
        }
    ]


def test_without_a_code_all_rules_are_listed() -> None:
    lines = run("explain").output.splitlines()
    assert (len(lines), lines[0]) == (65, "U1  Every value has a column")


def test_an_unknown_code_is_an_error() -> None:
    ended = run("explain", "U99")
    assert ended.exit_code == 1
    assert "U1 to U20, D1 to D24 or V1 to V21" in ended.output
