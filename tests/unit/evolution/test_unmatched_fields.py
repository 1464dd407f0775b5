"""What a policy says of fields that are not there."""

from __future__ import annotations

import pytest

from widen.evolution.evolve import evolve
from widen.evolution.plan import find_unmatched
from widen.evolution.policy import build_field_rules
from widen.ingestion.options import parse_policy
from widen.json.document import parse_document
from widen.json.observation import Observation, observe_record
from widen.model.schema_json import parse_type
from widen.model.types import StructType

RECORD = b'{"phone":"1","user":{"mail":"x","tags":{"k":1}},"at":5,"none":null}'


def unmatched(base: StructType | None = None, seen: tuple[tuple[str, ...], ...] = (), **words: object) -> list[str]:
    policy = parse_policy(**words)  # type: ignore[arg-type]
    observed, record = Observation(excluded_seen=[[*path] for path in seen]), parse_document(RECORD)
    assert isinstance(record, dict)
    observe_record(observed.root, build_field_rules(base or StructType(), policy).record(record), ("f", 1))
    planned = evolve(base, observed, policy).schema
    return [str(each) for each in find_unmatched(policy, base, planned, observed)]


NOT_THERE = "neither the table nor the batch has this field."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, []),
        ({"mask": ["phone", "user.mail", "none"]}, []),
        ({"mask": ["phne"]}, [f"mask phne: {NOT_THERE} Did you mean phone?"]),
        ({"mask": ["mail"]}, [f"mask mail: {NOT_THERE} Did you mean user.mail?"]),
        ({"exclude": ["user.mial"]}, [f"exclude user.mial: {NOT_THERE} Did you mean user.mail or user.tags or user?"]),
        ({"pins": {"zzz": "date"}}, [f"pin zzz: {NOT_THERE}"]),
        ({"pins": {"at": "long", "user": "freeze"}}, []),
        ({"epoch_unit": {"att": "s"}}, [f"epoch_unit att: {NOT_THERE} Did you mean at?"]),
        ({"detect_dates": ["a"]}, [f"detect_dates a: {NOT_THERE} Did you mean at?"]),
        ({"detect_dates": True}, []),
        ({"mask": ["PHONE", "User.Mail"]}, []),
        ({"mask": ["phone.x", "user", "user.typo"]}, []),
        # No column shows the keys of a map and the fields of a text, so they must have been seen.
        (
            {
                "pins": {"user.tags": "map<string,int>"},
                "mask": ["user.tags.k"],
                "seen": (("user", "tags", "k"),),
            },
            [],
        ),
        ({"pins": {"user": "json"}, "mask": ["user.mail"], "seen": (("user", "mail"),)}, []),
        (
            {"pins": {"user.tags": "map<string,int>"}, "mask": ["user.tags.kk"]},
            [f"mask user.tags.kk: {NOT_THERE} Did you mean user.tags?"],
        ),
        ({"pins": {"user": "json"}, "mask": ["user.mial"]}, [f"mask user.mial: {NOT_THERE} Did you mean user?"]),
    ],
)
def test_names_of_no_field_are_told_with_the_nearest(words: dict[str, object], told: list[str]) -> None:
    assert unmatched(**words) == told


def test_a_field_that_is_left_out_is_there_if_it_was_met() -> None:
    assert unmatched(exclude=["phone"], seen=(("phone",),)) == []
    assert unmatched(exclude=["phone"]) == [f"exclude phone: {NOT_THERE} Did you mean none?"]


@pytest.mark.parametrize(
    ("pins", "told"),
    [
        ({"at": "string"}, ["pin at: the pin is string, but the table has this field as bigint."]),
        ({"at": "text"}, ["pin at: the pin is string, but the table has this field as bigint."]),
        ({"at": "long"}, []),
        ({"at": "split"}, []),
        ({"user.mail": "date"}, ["pin user.mail: the pin is date, but the table has this field as string."]),
        ({"user": "struct<mail: string, other: int>"}, []),
    ],
)
def test_a_pin_that_contradicts_the_column_is_told(pins: dict[str, str], told: list[str]) -> None:
    base = parse_type("struct<at: bigint, user: struct<mail: string>>")
    assert isinstance(base, StructType)
    assert unmatched(base, pins=pins) == told
