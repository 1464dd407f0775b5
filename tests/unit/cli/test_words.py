"""The words of options, which are written down again so that help is there at once, are those of the layers below."""

from __future__ import annotations

from enum import Enum
from typing import get_args

import pytest

from widen.cli import option, policy, repair
from widen.planning.fold import Rest
from widen.planning.policy import MAX_COLUMNS, Mode
from widen.report.mask import Samples
from widen.spark.format import Format


@pytest.mark.parametrize(
    ("own", "below"),
    [(policy.Evolve, Mode), (policy.Format, Format), (repair.Rest, Rest), (option.Shown, Samples)],
    ids=lambda words: words.__name__,
)
def test_an_option_takes_the_words_of_the_layer_below(own: type[Enum], below: type[Enum]) -> None:
    assert [(each.name, each.value) for each in own] == [(each.name, each.value) for each in below]


def test_help_tells_the_bound_on_columns() -> None:
    _, told = get_args(policy.MaxColumns)
    assert str(MAX_COLUMNS) in told.help
