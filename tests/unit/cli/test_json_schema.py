"""Every command has its JSON in docs/reference/json.schema.json; `support.command_line.told` holds values to it."""

from __future__ import annotations

import pytest
import typer

from support.json_schema import SCHEMAS, breaches
from widen.cli.app import app

GROUP = typer.main.get_command(app)
WITH_JSON = sorted(
    name
    for name, command in GROUP.commands.items()  # type: ignore[attr-defined]
    if any("--json" in parameter.opts for parameter in command.params)
)
OPEN = {"read"}
"""Commands whose values have the columns of a table."""


def test_every_command_has_a_schema() -> None:
    assert set(WITH_JSON) - OPEN - set(SCHEMAS) == set()


@pytest.mark.parametrize(
    ("command", "value", "wrong"),
    [
        ("diff", {"from": 1, "to": 2, "changes": []}, []),
        ("diff", {"from": True, "changes": [], "more": 1}, [".to is missing", ".from: True is not integer", "more"]),
        ("explain", [{"code": "U8", "title": "t", "text": None}], ["[].text: None is not string"]),
        ("handover", {}, ["missing"] * 6),
        ("alter", {"version": 1, "changed": True}, [".changes is missing"]),
    ],
)
def test_what_a_schema_refuses(command: str, value: object, wrong: list[str]) -> None:
    found = list(breaches(SCHEMAS[command], value))
    assert len(found) == len(wrong)
    assert all(part in text for part, text in zip(wrong, found, strict=True))
