"""What the plan says a column holds, the conversion of values puts there: the two tables agree."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from widen.evolution.type_lattice import holds_exactly
from widen.json.document import JsonNumber
from widen.json.kinds import number_kind, word_of
from widen.json.observation import KindObservation
from widen.model.schema_json import parse_type
from widen.model.types import DataType
from widen.rows.row import MISSING, convert

whole = st.one_of(
    st.integers(-(10**40), 10**40),
    st.integers(-(2**31) - 2, 2**31 + 2),
    st.tuples(st.integers(0, 127), st.integers(-2, 2)).map(lambda drawn: 2 ** drawn[0] + drawn[1]),
    st.integers(0, 38).map(lambda power: 10**power),
).map(str)
fractions = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(str),
    st.tuples(whole, st.text("0123456789", min_size=1, max_size=20)).map(".".join),
    st.tuples(st.integers(-99, 99), st.integers(-40, 40)).map(lambda drawn: f"{drawn[0]}e{drawn[1]}"),
)
types = st.one_of(
    st.sampled_from(["tinyint", "smallint", "int", "bigint", "float", "double", "string"]),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: f"decimal({p},{s})")),
).map(parse_type)


@given(st.one_of(whole, fractions), types)
def test_what_a_column_covers_is_converted(token: str, leaf: DataType) -> None:
    word, facts = number_kind(token)
    seen = KindObservation()
    seen.add(facts, ("f", 1), token)
    if holds_exactly(leaf, word, seen):
        assert convert(JsonNumber(token), word, word_of(leaf) or "", leaf) is not MISSING
