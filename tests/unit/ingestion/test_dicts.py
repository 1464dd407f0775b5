"""Dicts and pandas' columns of objects as sources: each value keeps its kind."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import widen
from widen.errors import InvalidOption, SourceContentError
from widen.sources import python_values

UTC = dt.timezone.utc
KINDS: list[tuple[Any, str, Any]] = [
    (7, "bigint", 7),
    (True, "boolean", True),
    (2.5, "double", 2.5),
    ("x", "string", "x"),
    (b"\x01", "binary", b"\x01"),
    (Decimal("12.50"), "decimal(4,2)", Decimal("12.50")),
    (2**70, "decimal(22,0)", Decimal(2**70)),
    (dt.date(2024, 1, 2), "date", dt.date(2024, 1, 2)),
    (dt.datetime(2024, 1, 2, 3), "timestamp_ntz", dt.datetime(2024, 1, 2, 3)),
    (dt.datetime(2024, 1, 2, 3, tzinfo=UTC), "timestamp", dt.datetime(2024, 1, 2, 3, tzinfo=UTC)),
    (dt.time(1, 2, 3), "string", "01:02:03.000000"),
    (UUID(int=5), "string", "00000000-0000-0000-0000-000000000005"),
    ((1, 2), "array<bigint>", [1, 2]),
    ({3}, "array<bigint>", [3]),
    ({"a": {"b": [1]}}, "struct<a: struct<b: array<bigint>>>", {"a": {"b": [1]}}),
]


def load(records: Any, place: Path, **options: Any) -> tuple[widen.IngestResult, list[dict[str, Any]]]:
    result = widen.ingest(records, place, engine="local", verify=True, **options)
    assert result.verification is not None
    assert result.verification.is_clean
    return result, widen.Table(str(place)).to_arrow().to_pylist()


@pytest.mark.parametrize(("value", "kind", "stored"), KINDS, ids=lambda each: type(each).__name__)
def test_a_value_has_the_type_of_its_class(tmp_path: Path, value: Any, kind: str, stored: Any) -> None:
    result, rows = load([{"v": value}, {"v": None}, {}, {"v": value}], tmp_path / "t")
    assert [row["v"] for row in rows].count(None) == 2
    assert [row["v"] for row in rows if row["v"] is not None] == [stored, stored]
    (field,) = widen.Table(str(tmp_path / "t")).schema
    assert field.type.sql == kind
    assert result.records == 4


def test_values_of_every_kind_in_one_field_stay_what_they_are(tmp_path: Path) -> None:
    """2,000 records, several chunks: each has exactly one of its values, in the column of its kind."""
    dice, expected, records = random.Random(45), {}, []
    kinds = [KINDS[at] for at in (0, 1, 2, 3, 4, 5, 7, 9, 12, 14)]
    for number in range(2_000):
        value, _, stored = dice.choice([*kinds, (None, "", None), ([], "", None), ({}, "", None)])
        records.append({"id": number, "v": value})
        expected[number] = stored
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(python_values, "CHUNK_RECORDS", 300)
        _, rows = load(iter(records), tmp_path / "t")
    assert len(rows) == 2_000
    for row in rows:
        found = [value for name, value in row.items() if name != "id" and value not in (None, [])]
        wanted = expected[row["id"]]
        # A text or a list beside it may hold the value, too.
        assert any(each == wanted for each in found) is (wanted is not None), row


def test_an_iterator_is_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_values, "CHUNK_RECORDS", 10)
    alive, most = 0, 0

    class Record(dict[str, int]):
        def __init__(self, number: int) -> None:
            nonlocal alive, most
            super().__init__(id=number)
            alive += 1
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= 1

    def records() -> Iterator[Record]:
        yield from (Record(number) for number in range(1_000))

    _, rows = load(records(), tmp_path / "t")
    assert sorted(row["id"] for row in rows) == list(range(1_000))
    assert most <= 30


def test_chunks_without_values_and_new_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_values, "CHUNK_RECORDS", 2)
    records = [{"a": None}, {"a": []}, {"a": 1}, {"b": "x"}, {"b": None}, {"a": None}]
    _, rows = load(records, tmp_path / "t")
    found = sorted((str(row["a"]), str(row["b"])) for row in rows)
    assert found == [("1", "None"), *[("None", "None")] * 4, ("None", "x")]


def test_nan_is_a_value_unless_it_is_said_to_be_missing(tmp_path: Path) -> None:
    records = [{"v": float("nan")}, {"v": 1.5}]
    _, kept = load(records, tmp_path / "kept")
    assert sum(row["v"] != row["v"] for row in kept) == 1
    _, dropped = load(records, tmp_path / "dropped", nan="null")
    assert sorted(str(row["v"]) for row in dropped) == ["1.5", "None"]


def test_columns_of_objects_of_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    objects = pandas.Series([7, "7 EUR", None, pandas.NA, {"a": 1}], dtype=object)
    times = pandas.to_datetime(["2024-01-29"] * 5)
    frame = pandas.DataFrame({"id": range(5), "v": objects, "at": times})
    _, rows = load(frame, tmp_path / "t")
    found = {row["id"]: [value for name, value in row.items() if name.startswith("v") and value] for row in rows}
    assert found == {0: [7, "7"], 1: ["7 EUR"], 2: [], 3: [], 4: [{"a": 1}]}
    assert {row["at"] for row in rows} == {dt.datetime(2024, 1, 29)}


def test_values_of_numpy(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    _, rows = load([{"i": numpy.int32(5), "f": numpy.float64(0.5), "a": numpy.array([1, 2])}], tmp_path / "t")
    assert rows == [{"i": 5, "f": 0.5, "a": [1, 2]}]


@pytest.mark.parametrize(
    ("records", "error", "text"),
    [
        ([1, 86], InvalidOption, "the list of int"),
        ([{"a": 1}, "86"], InvalidOption, "the list of str"),
        ([{86: 1}], SourceContentError, "a name of the type int"),
        ([{"a": {86: 1}}], SourceContentError, "names that are no texts"),
        ([{"a": object()}], SourceContentError, "the class object"),
        ([{"a": [86, "x"]}], SourceContentError, "several kinds of values in one list"),
        ([{}], SourceContentError, "no field"),
        ([], SourceContentError, "the list: it has no record"),
        (iter(()), SourceContentError, "it has no record"),
        ([{"a": None}, {"a": []}], SourceContentError, "no record has a value"),
    ],
)
def test_what_is_no_record_is_an_error_without_the_value(
    tmp_path: Path, records: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        widen.ingest(records, tmp_path / "t", engine="local")
    assert "86" not in str(raised.value)
    assert not (tmp_path / "t").exists()
