"""The values of options, which the command line repeats so that help is fast, and the help itself."""

from __future__ import annotations

from enum import Enum
from typing import get_args

import pytest
from typer.main import get_command

from support.command_line import run
from widen.cli import app, shared_options
from widen.cli import ingest_commands as ingest_options
from widen.cli import maintenance_commands as repair_commands
from widen.evolution.policy import MAX_COLUMNS, Mode
from widen.evolution.unify import Rest
from widen.report.text_format import Samples
from widen.sources.listing import FileFormat


@pytest.mark.parametrize(
    ("own", "below"),
    [
        (ingest_options.Evolve, Mode),
        (ingest_options.Format, FileFormat),
        (repair_commands.RestChoice, Rest),
        (shared_options.Shown, Samples),
    ],
    ids=lambda words: words.__name__,
)
def test_an_option_takes_the_words_of_the_layer_below(own: type[Enum], below: type[Enum]) -> None:
    assert [(each.name, each.value) for each in own] == [(each.name, each.value) for each in below]


def test_help_tells_the_bound_on_columns() -> None:
    _, told = get_args(ingest_options.OPTIONS["max_columns"])
    assert str(MAX_COLUMNS) in told.help


def test_help_shows_all_summaries_and_options_whole_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    listing = run("--help").stdout.partition("Commands:")[2]
    assert "..." not in listing
    commands = get_command(app.app).commands  # type: ignore[attr-defined]
    assert {"ingest", "alter", "fold"} < commands.keys()
    for name, command in commands.items():
        assert f"  {name} " in listing
        text = run(name, "--help").stdout
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if option not in text] == []
        assert [line for line in text.splitlines() if len(line) > 80] == []
