"""A column is folded without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import FoldLosesValues
from widen.spark import engine

DAYS: Sequence[Sequence[dict[str, Any]]] = (
    [{"n": 1, "a": 1, "s": {"b": 1}}, {"n": 2, "s": {"b": 9}}],
    [{"n": 3, "a": "2", "s": {"b": "20"}}, {"n": 4, "a": "007", "s": None}, {"n": 5}],
)


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    monkeypatch.setattr(engine, "find_active", lambda: None)


@pytest.fixture(params=["delta", "iceberg", "iceberg 3"])
def drifted(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A table whose second day has texts for two numbers."""
    kind, place = request.param, tmp_path / "t"
    words: dict[str, Any] = {"evolve": "split"}
    into = str(place) if kind == "delta" else "ns.t"
    if kind != "delta":
        words |= {"catalog": tmp_path / "c.db", "format_version": 3 if kind == "iceberg 3" else 2}
    for number, day in enumerate(DAYS):
        source = tmp_path / f"{number}.json"
        source.write_text("".join(json.dumps(record) + "\n" for record in day))
        widen.ingest(source, into, **words)
    return widen.Table(into) if kind == "delta" else widen.IcebergTable(into, catalog=tmp_path / "c.db")


def rows(table: Any) -> list[dict[str, Any]]:
    return sorted(table.refresh().to_arrow().to_pylist(), key=lambda row: row["n"])


def test_values_move_stay_or_are_lost(drifted: Any) -> None:
    found = drifted.plan_fold("a_string")
    assert (found.values, found.fits, found.duplicates, found.samples) == (2, 1, 0, ("007",))
    with pytest.raises(FoldLosesValues):
        drifted.fold("a_string")

    assert drifted.fold("a_string", rest="keep").metrics["numUpdatedRows"] == 1
    assert [(row.get("a"), row.get("a_string")) for row in rows(drifted)] == [
        (1, None),
        (None, None),
        (2, None),
        (None, "007"),
        (None, None),
    ]
    drifted.fold("a_string", rest="lose")
    assert all(row.get("a_string") is None for row in rows(drifted))


def test_a_field_of_a_struct(drifted: Any) -> None:
    before = rows(drifted)
    drifted.fold("s.b_string")
    after = rows(drifted)
    assert [row["s"] and row["s"]["b"] for row in after] == [1, 9, 20, None, None]
    assert [{**row, "s": 0} for row in after] == [{**row, "s": 0} for row in before]
