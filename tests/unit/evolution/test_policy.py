from __future__ import annotations

import pytest

from widen.evolution.policy import Mode, Policy
from widen.model.column_path import Path
from widen.model.types import STRING

PINNED = Policy(pins={("a",): Mode.FREEZE, ("a", "b"): Mode.SPLIT, ("c",): STRING, ("a", "b", "t"): STRING})


@pytest.mark.parametrize(
    ("source", "mode"),
    [
        (("x",), Mode.WIDEN),
        (("a",), Mode.FREEZE),
        (("a", "x"), Mode.FREEZE),
        (("a", "b", "x"), Mode.SPLIT),
        (("c",), Mode.SPLIT),
        (("c", "x"), Mode.WIDEN),
        (("a", "b", "t"), Mode.SPLIT),
    ],
)
def test_the_nearest_pin_decides(source: Path, mode: Mode) -> None:
    assert PINNED.mode_of(source) is mode


def test_a_type_is_pinned_to_its_field_only() -> None:
    assert PINNED.type_of(("c",)) == STRING
    assert PINNED.type_of(("a",)) is None
    assert PINNED.type_of(("c", "x")) is None
