"""Masks and exclusions of events: an envelope may have the values of a row more than once.

Source: docs/guide/personal-data.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import InvalidOption

SECRET = "078-05-1120"
ROW = {"id": 1, "ssn": "219-09-9999", "city": "Graz"}
KEY: dict[str, Any] = {"documentKey": {"id": 1, "_id": 1}}
UPDATE = f"update people set ssn = '{SECRET}'"

EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("maxwell", {"type": "update", "ts": 1, "data": ROW, "old": {"ssn": SECRET, "city": "Wien"}, "query": UPDATE}),
    ("canal", {"type": "UPDATE", "ts": 1, "data": [ROW], "old": [{"ssn": SECRET, "city": "Wien"}], "sql": UPDATE}),
    ("dms", {"data": ROW, "before-image": {"ssn": SECRET, "city": "Wien"}, "metadata": {"operation": "update"}}),
    (
        "debezium",
        {
            "op": "u",
            "before": {**ROW, "ssn": SECRET},
            "after": ROW,
            "source": {"lsn": 1, "query": UPDATE},
            "patch": json.dumps({"$set": {"ssn": SECRET}}),
            "updateDescription": {"removedFields": None, "updatedFields": json.dumps({"ssn": SECRET})},
        },
    ),
    (
        "mongodb",
        {
            "operationType": "update",
            "_id": {"_data": "01"},
            "clusterTime": {"$timestamp": {"t": 1, "i": 1}},
            **KEY,
            "updateDescription": {"updatedFields": {"ssn": SECRET, "ssn.0": SECRET}, "removedFields": ["phone"]},
            "fullDocument": {"_id": 1, **ROW},
            "fullDocumentBeforeChange": {"_id": 1, **ROW, "ssn": SECRET},
        },
    ),
]


@pytest.mark.parametrize("option", ["mask", "exclude"])
@pytest.mark.parametrize(("envelope", "event"), EVENTS, ids=[name for name, _ in EVENTS])
def test_copies_of_a_hidden_field_are_hidden_too(
    tmp_path: Path, envelope: str, event: dict[str, Any], option: str
) -> None:
    source = tmp_path / "a.json"
    source.write_text(json.dumps(event) + "\n")
    options: Any = {option: ["SSN"]}
    widen.ingest(str(source), tmp_path / "t", envelope=envelope, verify=True, **options)
    (row,) = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    assert SECRET not in str(row)
    assert row.get("ssn") == ("***" if option == "mask" else None)
    assert row["city"] == "Graz"


OWN: dict[str, Any] = {"after": "row", "op": "kind", "deletes": ["gone"], "copies": ["old"], "changes": ["said.sql"]}
OWN_EVENT: dict[str, Any] = {
    "kind": "set",
    "row": ROW,
    "old": {"ssn": SECRET, "city": "Wien"},
    "said": {"sql": UPDATE, "by": "me"},
}


@pytest.mark.parametrize("option", ["mask", "exclude"])
def test_an_envelope_of_the_caller_says_where_its_copies_are(tmp_path: Path, option: str) -> None:
    source = tmp_path / "a.json"
    source.write_text(json.dumps(OWN_EVENT) + "\n")
    options: Any = {option: ["ssn"], "engine": "local"}
    widen.ingest(source, tmp_path / "t", envelope=OWN, verify=True, **options)
    (row,) = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    assert SECRET not in str(row)
    assert (row["_said"]["by"], row["_old"]["city"]) == ("me", "Wien")
    silent = {name: value for name, value in OWN.items() if name not in ("copies", "changes")}
    with pytest.raises(InvalidOption, match="copies must list"):
        widen.ingest(source, tmp_path / "none", envelope=silent, **options)
    widen.ingest(source, tmp_path / "open", envelope=silent, exclude=["_kind"], engine="local")
    once = {name: value for name, value in OWN_EVENT.items() if name in ("kind", "row")}
    source.write_text(json.dumps(once) + "\n")
    widen.ingest(source, tmp_path / "once", envelope={**silent, "copies": []}, **options)
    for wrong in ({"copies": "old"}, {"copies": ["a.b"]}, {"changes": [7]}):
        with pytest.raises(InvalidOption):
            widen.ingest(source, tmp_path / "none", envelope={**silent, **wrong}, engine="local")


def test_other_fields_of_a_copy_stay(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text(json.dumps(dict(EVENTS)["maxwell"]) + "\n")
    widen.ingest(str(source), tmp_path / "t", envelope="maxwell", mask=["ssn"], strict=True)
    (row,) = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    assert row["_old"] == {"ssn": "***", "city": "Wien"}
    widen.ingest(str(source), tmp_path / "all", envelope="maxwell")
    (row,) = widen.Table(tmp_path / "all").to_arrow().to_pylist()
    assert row["_old"]["ssn"] == SECRET
