"""What the metadata of a column says of its values."""

from __future__ import annotations

import pytest

from widen.errors import CorruptLog
from widen.model.schema_json import parse_type
from widen.model.types import Field
from widen.protocol.column_metadata import (
    Identity,
    find_default,
    find_generation,
    find_identity,
    find_invariant,
    has_generated_values,
)

KEY = {"delta.identity.start": 10, "delta.identity.step": -5, "delta.identity.allowExplicitInsert": True}


def field(kind: str = "bigint", **metadata: object) -> Field:
    return Field("c", parse_type(kind), metadata=metadata)


def test_a_plain_column_has_no_rules() -> None:
    plain = field()
    found = (find_default(plain), find_generation(plain), find_identity(plain), find_invariant(plain))
    assert (found, has_generated_values(plain)) == ((None, None, None, None), False)


def test_an_identity_goes_on_in_the_direction_of_its_step() -> None:
    found = find_identity(field(**KEY))
    assert found == Identity(10, -5, None, True)
    assert found.advance(5) == 5
    marked = find_identity(field(**KEY, **{"delta.identity.highWaterMark": -15}))
    assert marked is not None
    assert (marked.advance(-20), marked.advance(0)) == (-20, -15)


@pytest.mark.parametrize("missing", ["delta.identity.step", "delta.identity.allowExplicitInsert"])
def test_an_identity_that_is_not_complete_is_told_with_its_column(missing: str) -> None:
    with pytest.raises(CorruptLog, match="column c: its identity metadata are incomplete"):
        find_identity(field(**{key: value for key, value in KEY.items() if key != missing}))


def test_an_invariant_is_json_in_json() -> None:
    assert find_invariant(field(**{"delta.invariants": '{"expression":{"expression":"c > 3"}}'})) == "c > 3"
    for broken in ("c > 3", "{}", '{"expression":"c > 3"}', 7):
        with pytest.raises(CorruptLog, match="its invariant cannot be read"):
            find_invariant(field(**{"delta.invariants": broken}))
