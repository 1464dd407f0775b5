"""The values of options, which the command line repeats so that help is fast, and the help itself."""

from __future__ import annotations

from enum import Enum

import pytest
from typer.main import get_command

from support.command_line import run
from widen.cli import app, shared_options
from widen.cli import maintenance_commands as repair_commands
from widen.evolution.policy import MAX_COLUMNS, Mode, Numbers
from widen.evolution.unify import Rest
from widen.ingestion.ingest_options import IngestOptions
from widen.ingestion.new_files import Changed
from widen.model.keyword_options import declared
from widen.report.text_format import Samples
from widen.sources.listing import FileFormat


@pytest.mark.parametrize(
    ("option", "below"),
    [("evolve", Mode), ("format", FileFormat), ("numbers", Numbers), ("samples", Samples), ("changed", Changed)],
)
def test_an_option_takes_the_words_of_the_layer_below(option: str, below: type[Enum]) -> None:
    _, own = declared(IngestOptions)[option]
    assert list(own.choices) == [each.value for each in below]


@pytest.mark.parametrize(
    ("own", "below"),
    [(repair_commands.RestChoice, Rest), (shared_options.Shown, Samples)],
    ids=lambda words: words.__name__,
)
def test_an_own_option_takes_the_words_of_the_layer_below(own: type[Enum], below: type[Enum]) -> None:
    assert [(each.name, each.value) for each in own] == [(each.name, each.value) for each in below]


def test_help_tells_the_bound_on_columns() -> None:
    assert str(MAX_COLUMNS) in (declared(IngestOptions)["max_columns"][1].help or "")


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
