"""The words of options, which are written down again so that help is there at once, are those of the layers below."""

from __future__ import annotations

from enum import Enum
from typing import get_args

import pytest

from widen.cli import ingest_options, repair_commands, shared_options
from widen.planning.evolution.policy import MAX_COLUMNS, Mode
from widen.planning.unify.fold_plan import Rest
from widen.report.sample_masking import Samples
from widen.spark.source.file_format import FileFormat


@pytest.mark.parametrize(
    ("own", "below"),
    [
        (ingest_options.Evolve, Mode),
        (ingest_options.Format, FileFormat),
        (repair_commands.Rest, Rest),
        (shared_options.Shown, Samples),
    ],
    ids=lambda words: words.__name__,
)
def test_an_option_takes_the_words_of_the_layer_below(own: type[Enum], below: type[Enum]) -> None:
    assert [(each.name, each.value) for each in own] == [(each.name, each.value) for each in below]


def test_help_tells_the_bound_on_columns() -> None:
    _, told = get_args(ingest_options.MaxColumns)
    assert str(MAX_COLUMNS) in told.help
