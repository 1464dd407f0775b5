"""Times in other spellings, of a zone and as integers, loaded and proved without Spark."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen import Table, ingest
from widen.ingestion.result import IngestResult

AT = datetime(2024, 1, 2, 1, 4, 5, tzinfo=timezone.utc)
SPELLINGS = (
    *("2024-01-02T03:04:05+02:00", "2024-01-02T03:04:05+0200", "2024-01-02 03:04:05 +02", "20240102T010405Z"),
    *("2024-01-02 01:04:05,000 UTC", "Tue, 02 Jan 2024 03:04:05 +0200", "2 Jan 2024 01:04:05 GMT"),
)
NOT_TIMES = ("01/02/2024", "20240102", "Wed, 02 Jan 2024 03:04:05 +0200", "2024-02-30 01:02:03Z", "soon")
PINNED = {"pins": {"t": "timestamp"}}


def load(place: Path, values: list[Any], **options: Any) -> IngestResult:
    source = place / f"{len(list(place.iterdir()))}.jsonl"
    source.write_text("".join(json.dumps({"t": value}) + "\n" for value in values), encoding="utf-8")
    done = ingest(source, place / "t", verify=True, engine="local", **options)
    assert done.verification is not None
    assert not done.verification.lost
    return done


def columns(place: Path) -> dict[str, list[Any]]:
    """Return the values of each column; rows have no order."""
    table = Table(place / "t").to_arrow()
    return {name: sorted(table.column(name).drop_null().to_pylist()) for name in sorted(table.schema.names)}


def test_spellings_are_text_unless_they_are_asked_for(tmp_path: Path) -> None:
    load(tmp_path, list(SPELLINGS), detect_dates=True)
    assert columns(tmp_path) == {"t": sorted(SPELLINGS)}


@pytest.mark.parametrize("options", [{"detect_dates": True}, {"detect_dates": ["t"]}, PINNED])
def test_any_spelling_of_an_instant_is_a_timestamp(tmp_path: Path, options: dict[str, Any]) -> None:
    done = load(tmp_path, list(SPELLINGS), date_spellings="any", **options)
    assert columns(tmp_path) == {"t": [AT] * len(SPELLINGS)}
    assert done.verification is not None
    assert (done.verification.exact, done.verification.converted) == (0, len(SPELLINGS))


def test_a_text_column_keeps_the_spelling(tmp_path: Path) -> None:
    load(tmp_path, [SPELLINGS[0]], date_spellings="any", **PINNED)
    done = load(tmp_path, [*SPELLINGS, *NOT_TIMES], date_spellings="any", **PINNED)
    assert columns(tmp_path) == {
        "t": [AT] * (1 + len(SPELLINGS)),
        "t_string": sorted([*SPELLINGS, *NOT_TIMES]),
    }
    assert done.verification is not None
    assert not done.verification.converted


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([5, SPELLINGS[0], "soon"], {"detect_dates": True}),
        ([1.5, SPELLINGS[5], "soon"], PINNED),
        ([10**30, SPELLINGS[1], "soon"], PINNED),
        (["2024-07-02T03:04:05", "soon", 5.5], PINNED | {"time_zone": "Asia/Kathmandu"}),
        (["20240702T030405", "soon", 1.5], {"pins": {"t": "timestamp_ntz"}}),
        ([[1], SPELLINGS[0], "soon"], {"detect_dates": True}),
        ([{"t": SPELLINGS[0]}, [{"t": "soon"}], {"t": 5}], {"detect_dates": True}),
        ([[SPELLINGS[0]], [5], ["soon"], [[SPELLINGS[2]]]], {"detect_dates": True}),
    ],
)
def test_a_spelling_beside_columns_of_numbers_and_text(
    tmp_path: Path, values: list[Any], options: dict[str, Any]
) -> None:
    """A column of numbers has the count of the same instant, and a column of text the spelling."""
    done = load(tmp_path, values, date_spellings="any", **options)
    assert done.records == len(values)


def test_spellings_in_csv(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("t,n\n" + "".join(f'"{text}",7\n' for text in SPELLINGS), encoding="utf-8")
    done = ingest(source, tmp_path / "t", verify=True, engine="local", detect_dates=True, date_spellings="any")
    assert done.verification is not None
    assert (done.verification.lost, done.verification.converted) == (0, len(SPELLINGS))
    assert columns(tmp_path) == {"t": [AT] * len(SPELLINGS), "n": ["7"] * len(SPELLINGS)}


def test_times_without_a_zone(tmp_path: Path) -> None:
    times = ["2024-07-02T03:04:05", "2024-01-02T02:04:05.000000", "2024-01-02T01:04:05Z"]
    gap_and_fold = ["2024-03-31T02:30:00", "2024-10-27T02:30:00"]
    load(tmp_path, times, time_zone="Europe/Berlin", **PINNED)
    assert columns(tmp_path) == {"t": [AT, AT, datetime(2024, 7, 2, 1, 4, 5, tzinfo=timezone.utc)]}
    load(tmp_path, gap_and_fold, time_zone="Europe/Berlin", **PINNED)
    assert columns(tmp_path)["t_string"] == gap_and_fold
    # In New York, both exist, and once.
    load(tmp_path, gap_and_fold, time_zone="America/New_York", **PINNED)
    assert len(columns(tmp_path)["t"]) == 5


def test_a_column_without_a_zone_takes_spellings_without_one(tmp_path: Path) -> None:
    values = ["2024-01-02 01:04:05", "20240102T010405,0", "2024-01-02T01:04:05"]
    options = {"pins": {"t": "timestamp_ntz"}, "date_spellings": "any", "time_zone": "Europe/Berlin"}
    load(tmp_path, values, **options)
    assert columns(tmp_path) == {"t": [AT.replace(tzinfo=None)] * 3}


@pytest.mark.parametrize(("unit", "number"), [("s", 10**9), ("ms", 10**12), ("us", 10**15), ("ns", 10**18)])
def test_integers_with_a_pin_and_a_unit_have_one_column(tmp_path: Path, unit: str, number: int) -> None:
    options = {**PINNED, "epoch_unit": {"t": unit}}
    done = load(tmp_path, [number, None, "2001-09-09T01:46:40Z", 0, -number], **options)
    assert columns(tmp_path) == {
        "t": [
            datetime(1938, 4, 24, 22, 13, 20, tzinfo=timezone.utc),
            datetime(1970, 1, 1, tzinfo=timezone.utc),
            *[datetime(2001, 9, 9, 1, 46, 40, tzinfo=timezone.utc)] * 2,
        ]
    }
    assert done.verification is not None
    assert (done.verification.exact, done.verification.converted) == (1, 3)
    # What is in no timestamp gets a column, and then the others are there as well.
    beyond = 2**63 - 1
    load(tmp_path, [beyond, number, 1.5], **options)
    found = columns(tmp_path)
    assert (found["t_long"], found["t_double"]) == ([number, beyond], [1.5, float(number)])
    assert len(found["t"]) == 5


def test_a_load_without_the_pin_keeps_the_integers(tmp_path: Path) -> None:
    load(tmp_path, [1], epoch_unit={"t": "s"}, **PINNED)
    load(tmp_path, [2], epoch_unit={"t": "s"})
    assert columns(tmp_path)["t_long"] == [2]
    load(tmp_path, [3], epoch_unit={"t": "s"}, evolve="freeze", **PINNED)
    assert columns(tmp_path)["t_long"] == [2, 3]
    assert len(columns(tmp_path)["t"]) == 3


def test_a_frozen_table_takes_integers_that_are_timestamps(tmp_path: Path) -> None:
    load(tmp_path, [1], epoch_unit={"t": "s"}, **PINNED)
    load(tmp_path, [2, 2**62], epoch_unit={"t": "s"}, evolve="freeze", **PINNED)
    assert columns(tmp_path)["_rescued"] == ['{"t":4611686018427387904}']
    assert len(columns(tmp_path)["t"]) == 2


def test_sources_with_types_follow_their_own_rules(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [10**9, 5]}), tmp_path / "a.parquet")
    for _ in range(2):
        done = ingest(
            *(tmp_path / "a.parquet", tmp_path / "t"),
            verify=True,
            engine="local",
            pins={"t": "timestamp"},
            epoch_unit={"t": "s"},
            date_spellings="any",
        )
        assert done.verification is not None
        assert not done.verification.lost
    assert columns(tmp_path)["t_long"] == [5, 5, 10**9, 10**9]
