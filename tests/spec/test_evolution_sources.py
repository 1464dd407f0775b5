"""Rules on what the proof counts, on the fields of files, and on how values are shown: D20, D21 and D24."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.stable_interval import ingest_texts
from widen.evolution.policy import Mode, Numbers, Policy, Samples, sample_formatter
from widen.json.field_rules import FileFields
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.proof.source_reader import SourceReader
from widen.spark.errors import show_reason


def declared(text: str) -> StructType:
    struct = parse_type(f"struct<{text}>")
    assert isinstance(struct, StructType)
    return struct


@pytest.mark.parametrize(
    ("columns", "text", "policy", "converted"),
    [
        ("a: bigint", '{"a":7}', Policy(), 0),
        ("a: double", '{"a":2.5}', Policy(), 0),
        ("a: boolean", '{"a":true}', Policy(), 0),
        ("a: string", '{"a":7}', Policy(Mode.SPLIT), 1),  # another kind
        ("a: double", '{"a":2.50}', Policy(), 1),  # a shorter spelling
        ("a: double", '{"a":9007199254740993}', Policy(numbers=Numbers.DOUBLE), 1),  # a rounding that was asked for
    ],
)
def test_d20_only_what_is_as_it_was_counts_as_exact(columns: str, text: str, policy: Policy, converted: int) -> None:
    [row] = SourceReader(declared(columns), policy).read(text.encode())
    assert (row.values, row.converted) == (1, converted)


def test_d20_a_value_without_any_place_is_in_the_expected_row_all_the_same() -> None:
    """So it is lost in the count if the table lacks it: a reader never expects less than the source has."""
    reader = SourceReader(declared("a: bigint"), Policy())
    [whole], [less] = reader.read(b'{"a":7,"b":"x"}'), reader.read(b'{"a":7}')
    assert (whole.values, less.values) == (2, 1)
    assert whole.form != less.form


def test_d21_folders_are_fields_as_text() -> None:
    file = "file:/lake/year=2024/region=e%20u/1.json"
    assert {key.rstrip("="): value for key, value in FileFields().of(file).items()} == {"year": "2024", "region": "e u"}
    assert FileFields().names([file]) == {"year", "region"}
    assert FileFields(has_folders=False).of(file) == {}


def test_d21_the_path_and_the_time_become_columns_on_request() -> None:
    moment = "2024-05-01T10:00:00Z"
    names = FileFields(loaded_at=moment).names(["file:/lake/1.json"])
    assert names == {"_source_file", "_loaded_at"}
    assert FileFields().names(["file:/lake/1.json"]) == set()
    found = FileFields(loaded_at=moment).of("file:/lake/1.json from byte 100")
    assert sorted(map(str, found.values())) == [moment, "file:/lake/1.json"]


SECRET = "Ada Lovelace 1815"
MASKED = "Xxx Xxxxxxxx 9999"


@pytest.mark.parametrize(
    ("samples", "shown"), [(Samples.MASKED, MASKED), (Samples.NONE, ""), (Samples.RAW, SECRET), ("masked", MASKED)]
)
def test_d24_samples_are_masked_unless_raw_ones_are_asked_for(samples: Samples | str, shown: str) -> None:
    assert sample_formatter(samples)(SECRET) == shown


def test_d24_events_are_masked_by_default() -> None:
    policy = Policy(Mode.SPLIT)
    planned = ingest_texts(declared("a: bigint"), [json.dumps({"a": SECRET}).encode()], policy).plan
    assert SECRET not in str(planned.logged_events())
    assert MASKED in str([event.sample for event in planned.events])
    raw = ingest_texts(
        declared("a: bigint"), [json.dumps({"a": SECRET}).encode()], replace(policy, samples=Samples.RAW)
    )
    assert SECRET in str(raw.plan.logged_events())


def test_d24_errors_mask_the_values_that_they_quote() -> None:
    reason = f'[CAST_INVALID_INPUT] The value \'{SECRET}\' of the type "STRING" cannot be cast to "INT"'
    assert SECRET not in show_reason(reason)
    assert MASKED in show_reason(reason)
