"""What a program reads of our output: whole sentences, whatever the width of the terminal that it runs in."""

from __future__ import annotations

import pytest
from rich.text import Text

from widen.cli.output import show
from widen.report.terminal import table_of


def test_a_sentence_is_not_wrapped_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table = table_of("field", "reason")
    table.add_row("id", "a reason of more than twenty columns")
    place = "/a/folder/with/a/long/name/bad.jsonl:2: id is a string"
    show([Text(f"  {place}  "), table])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == f"  {place}"
    assert len(rows) > 3
    assert max(map(len, rows)) <= 20
