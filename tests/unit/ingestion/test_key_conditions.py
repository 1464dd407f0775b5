"""Loads by key: `delete_when` on fields that no record has yet, or that are hidden, and texts that are no records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import widen
from widen.errors import InvalidCondition, InvalidOption, UnmatchedFields


class Keyed:
    """A table by key, which is loaded without Spark."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.number = place, 0
        self.where = {"catalog": f"{place}/c.db"} if kind == "iceberg" else {}
        self.into = "shop.t" if kind == "iceberg" else str(place / "t")

    def load(self, *lines: dict[str, Any] | str, **words: Any) -> widen.IngestResult:
        self.number += 1
        source = self.place / f"{self.number}.json"
        source.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
        words = {"key": ["id"], "sequence_by": "n", "verify": True, **self.where, **words}
        return widen.ingest(source, self.into, engine="local", **words)

    def read(self, suffix: str = "") -> pa.Table:
        if not self.where:
            return widen.Table(self.into + suffix).to_arrow()
        return (
            SqlCatalog("default", uri=f"sqlite:///{self.place}/c.db").load_table(self.into + suffix).scan().to_arrow()
        )


@pytest.fixture(params=["delta", "iceberg"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Keyed:
    return Keyed(tmp_path, request.param)


FIRST = ({"id": 1, "n": 1}, {"id": 2, "n": 1})
DELETION = {"id": 1, "n": 2, "op": "D", "meta": {"op": "D"}, "deleted": True}


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("op = 'D'", {}),
        ("op = 'D'", {"history": True}),
        ("op = 'D'", {"missing": "keep"}),
        ("META.Op IN ('D', 'T') OR gone", {}),
        ("deleted", {}),
    ],
)
def test_a_field_that_no_record_has_yet_is_null(keyed: Keyed, condition: str, words: dict[str, Any]) -> None:
    first = keyed.load(*FIRST, delete_when=condition, **words)
    assert str(first.keys) == "2 inserted, 0 updated, 0 deleted, 0 late"
    notes = [str(each) for each in first.plan.unmatched]
    name = condition.partition(" ")[0]
    assert (
        f"delete_when {name}: neither the table nor the batch has this field, so it is null in the condition." in notes
    )
    second = keyed.load(DELETION, {"id": 2, "n": 2, "op": "U"}, delete_when=condition, **words)
    assert second.keys is not None
    assert (second.keys.updated, second.keys.deleted) == (1, 1)
    assert second.verification is not None
    assert second.verification.is_clean
    assert not [each for each in second.plan.unmatched if each.option == "delete_when" and each.source != ("gone",)]


def test_its_null_is_that_of_conditions(keyed: Keyed) -> None:
    result = keyed.load(*FIRST, delete_when="op IS NULL AND NOT (n = 2 AND op = 'D')")
    assert str(result.keys) == "0 inserted, 0 updated, 0 deleted, 0 late, 2 deletions of unknown keys"
    assert result.verification is not None
    assert result.verification.is_clean


def test_a_typo_is_named(keyed: Keyed) -> None:
    records = [{**each, "opp": "U"} for each in FIRST]
    (note,) = keyed.load(*records, delete_when="op = 'D'").plan.unmatched
    assert str(note).endswith("it is null in the condition. Did you mean opp?")
    with pytest.raises(UnmatchedFields, match="delete_when op: neither the table nor the batch"):
        keyed.load(*records, delete_when="op = 'D'", strict=True)


def test_values_that_no_column_holds_decide_nothing(keyed: Keyed) -> None:
    keyed.load(*FIRST, delete_when="op = 'D'")
    with pytest.raises(InvalidCondition, match="records have the field op, but no column holds its values"):
        keyed.load(DELETION, delete_when="op = 'D'", evolve="freeze")
    keyed.load({"id": 3, "n": 3}, delete_when="op = 'D'", evolve="freeze")


@pytest.mark.parametrize("option", ["mask", "exclude"])
@pytest.mark.parametrize("field", ["meta", "META.op"])
def test_a_hidden_field_is_refused(keyed: Keyed, option: str, field: str) -> None:
    with pytest.raises(InvalidOption, match=r"meta\.op is masked or excluded"):
        keyed.load(DELETION, delete_when="id = 7 OR meta.op = 'D'", **{option: [field]})


def test_a_text_that_is_no_record_has_its_own_reason(keyed: Keyed) -> None:
    result = keyed.load({"id": 1, "n": 1}, "not json", "7", {"n": 1}, '[{"id": 2, "n": 1}, 8]')
    assert (result.records, result.corrupt, result.quarantined) == (2, 0, 4)
    assert result.verification is not None
    assert result.verification.is_clean
    rows = keyed.read("_quarantine").to_pylist()
    assert sorted((row["position"], row["text"], row["reason"]) for row in rows) == [
        (2, "not json", "not a JSON record: expecting value at character 1"),
        (3, "7", "not a JSON record: it is neither an object nor an array of objects"),
        (4, '{"n": 1}', "the key id is missing, null or not a scalar"),
        (5, "8", "not a JSON record: it is neither an object nor an array of objects"),
    ]
    assert not [name for name in keyed.read().column_names if "corrupt" in name]


def test_a_batch_without_a_record_is_named(keyed: Keyed) -> None:
    with pytest.raises(widen.WidenError, match="none of its lines is a record"):
        keyed.load("oops")
