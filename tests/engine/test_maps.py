"""Objects that are maps: told, detected, pinned; proved value by value, and small in the log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from widen import ingest, plan
from widen.table import Table

ADDONS = 780


@pytest.fixture
def pings(tmp_path: Path) -> str:
    """Records of which each has a few of 780 add-ons."""
    lines = []
    for number in range(260):
        keys = [f"addon-{(number * 3 + key) % ADDONS}@mozilla.org" for key in range(3)]
        addons = {key: {"version": "1.0", "scope": number % 4, "isSystem": False} for key in keys}
        lines.append(json.dumps({"n": number, "activeAddons": addons}) + "\n")
    (tmp_path / "pings.jsonl").write_text("".join(lines))
    return str(tmp_path / "pings.jsonl")


def test_add_ons_become_a_map(spark: SparkSession, pings: str, tmp_path: Path) -> None:
    found = plan(pings, str(tmp_path / "t"), spark=spark)
    assert [(each.source, each.keys) for each in found.maps] == [(("activeAddons",), ADDONS)]

    done = ingest(pings, str(tmp_path / "t"), detect_maps=True, verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    table = Table(str(tmp_path / "t"))
    assert {field.name: field.type.sql for field in table.schema} == {
        "activeAddons": "map<string,struct<isSystem: boolean, scope: int, version: string>>",
        "n": "int",
    }
    assert (Path(table.location) / "_delta_log" / f"{0:020}.json").stat().st_size < 6_000
    assert ingest(pings, str(tmp_path / "t"), spark=spark).plan.is_empty

    pinned = ingest(pings, str(tmp_path / "p"), pins={"activeAddons": "map"}, verify=True, spark=spark)
    assert pinned.verification is not None
    assert pinned.verification.is_clean
    assert Table(str(tmp_path / "p")).schema == table.schema


def test_as_records_the_log_has_one_event_for_all(spark: SparkSession, pings: str, tmp_path: Path) -> None:
    done = ingest(pings, str(tmp_path / "t"), max_columns=5_000, spark=spark)
    assert len(done.plan.events) > ADDONS
    events = json.loads(Table(str(tmp_path / "t")).history()[0].parameters["events"])
    assert [event["column"] for event in events] == [["activeAddons"], ["n"]]
