"""Keys and switches of table properties."""

from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.protocol.table_properties import OTHERS, SWITCHES, canonical_key, canonical_properties, is_on


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        ("delta.enableTypeWidening", "delta.enableTypeWidening"),
        ("Delta.EnableTypewidening", "delta.enableTypeWidening"),
        ("DELTA.COLUMNMAPPING.MODE", "delta.columnMapping.mode"),
        ("delta.Feature.TypeWidening", "delta.feature.typewidening"),
        ("delta.constraints.MyRule", "delta.constraints.MyRule"),
        ("delta.universalformat.enabledformats", "delta.universalFormat.enabledFormats"),
        ("delta.universalFormat.Other", "delta.universalformat.other"),
        ("delta.notKnown", "delta.notKnown"),
        ("Owner", "Owner"),
        ("enableTypeWidening", "enableTypeWidening"),
    ],
)
def test_a_key_that_delta_knows_is_stored_in_its_spelling(key: str, stored: str) -> None:
    assert canonical_key(key) == stored


def test_what_is_given_twice_must_say_the_same() -> None:
    assert canonical_properties({"delta.appendOnly": "true", "Delta.appendonly": "true"}) == {
        "delta.appendOnly": "true"
    }
    with pytest.raises(InvalidOption, match="given twice, also as 'true'"):
        canonical_properties({"delta.appendOnly": "true", "Delta.appendonly": "false"})


def test_a_switch_is_true_or_false_in_any_case() -> None:
    assert canonical_properties({"delta.appendOnly": "TRUE", "mine": "maybe"}) == {
        "delta.appendOnly": "TRUE",
        "mine": "maybe",
    }
    with pytest.raises(InvalidOption, match="true or false"):
        canonical_properties({"DELTA.appendOnly": "on"})
    assert is_on({"delta.appendOnly": "True"}, "delta.appendOnly")
    assert not is_on({"delta.appendOnly": "false"}, "delta.appendOnly")
    assert not is_on({}, "delta.appendOnly")


@pytest.mark.parametrize(
    ("key", "accepted", "refused"),
    [
        ("delta.checkpointInterval", ("1", "+5", "2147483647"), ("0", "2147483648", "\u0661", "1.0", "")),
        ("delta.requireCheckpointProtectionBeforeVersion", ("0", "9223372036854775807"), ("9223372036854775808", "-1")),
        ("delta.columnMapping.maxColumnId", (), ("5", "", "x")),
        (
            "delta.dataSkippingStatsColumns",
            ("a", "a, b.c", " a_1 ,`x y`.`b``c`"),
            ("", "a,", "a b", "1.5.", "`a", "a-b"),
        ),
        ("delta.feature.typeWidening", ("supported", "Enabled"), ("", "true", "x")),
        ("delta.parquet.format.version", ("1.0.0",), ("2", "2.12.0", "\u0662.12.0")),
    ],
)
def test_a_value_that_locks_delta_lake_out_is_refused(
    key: str, accepted: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    assert [value for value in accepted if list(canonical_properties({key: value}).values()) != [value]] == []
    for value in refused:
        with pytest.raises(InvalidOption):
            canonical_properties({key: value})


def test_every_key_is_there_once() -> None:
    known = [*SWITCHES, *OTHERS]
    assert len({key.lower() for key in known}) == len(known)
    assert all(key.startswith("delta.") for key in known)
