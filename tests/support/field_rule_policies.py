"""Policies with rules for single fields, for tests of laws."""

from __future__ import annotations

from hypothesis import strategies as st

from widen.evolution.policy import EpochUnit, Mode, Pin, Policy, TextForm
from widen.model.schema_json import parse_type

PINS: tuple[Pin, ...] = (
    *map(
        parse_type,
        (
            *("map<string,string>", "map<string,int>", "map<string,double>", "map<string,array<int>>"),
            *("map<string,map<string,int>>", "array<map<string,string>>", "map<string,struct<b: int>>"),
            *("decimal(10,2)", "smallint", "float", "bigint", "date", "timestamp", "timestamp_ntz", "string"),
            *("array<string>", "struct<b: map<string,string>>", "array<date>", "array<timestamp_ntz>"),
        ),
    ),
    *(TextForm.TEXT, TextForm.JSON, Mode.SPLIT),
)
"""What the field ``a`` is pinned to."""

_OTHERS = (
    {},
    {"date_fields": frozenset([()])},
    {"date_fields": frozenset([("a", "b")])},
    {"date_fields": frozenset([()]), "local_time_fields": frozenset([()])},
    {"local_time_fields": frozenset([("a",)])},
    {"excluded": frozenset([("b",)])},
    {"masked": frozenset([("a", "b")])},
    {"included": frozenset([("A",)])},
    {"included": frozenset([("a",), ("c",)]), "masked": frozenset([("a", "b")])},
    {"masked": frozenset([("a",)]), "excluded": frozenset([("a b",)])},
    {"date_fields": frozenset([()]), "excluded": frozenset([("a", "b")])},
    {"epoch_units": {("a",): EpochUnit.MILLISECONDS}},
)

modes = st.sampled_from([Mode.WIDEN, Mode.SPLIT])


def policies(mode: Mode) -> st.SearchStrategy[Policy]:
    """Return policies of a mode."""
    pins = st.one_of(st.just({}), st.sampled_from(PINS).map(lambda pin: {("a",): pin}))
    return st.tuples(pins, st.sampled_from(_OTHERS)).map(lambda two: Policy(mode, two[0], **two[1]))
