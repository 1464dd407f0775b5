"""Change events of Maxwell, Canal, AWS DMS and Datastream as rows by key, with the proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import InvalidOption


def canal(op: str, es: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"data": list(rows) or None, "type": op, "es": es, "isDdl": not rows, "old": None, "table": "orders"}


def maxwell(op: str, xid: int, **row: Any) -> dict[str, Any]:
    return {"database": "shop", "table": "orders", "type": op, "xid": xid, "data": row}


def dms(op: str, at: int, **row: Any) -> dict[str, Any]:
    metadata = {"operation": op, "record-type": "data" if row else "control", "timestamp": f"2024-01-29T00:00:0{at}Z"}
    return {"metadata": metadata, **({"data": row} if row else {})}


def datastream(op: str, at: int, **row: Any) -> dict[str, Any]:
    return {"source_metadata": {"change_type": op, "lsn": at}, "sort_keys": [at], "payload": row}


CASES: dict[str, tuple[list[dict[str, Any]], str]] = {
    "canal": (
        [
            canal("INSERT", 1, {"id": "1", "v": "a"}, {"id": "2", "v": "b"}, {"id": "3", "v": "c"}),
            canal("ALTER", 2),
            canal("UPDATE", 3, {"id": "1", "v": "x"}),
            canal("DELETE", 4, {"id": "2", "v": "b"}),
            canal("UPDATE", 2, {"id": "1", "v": "late"}),
        ],
        "_es",
    ),
    "maxwell": (
        [
            maxwell("bootstrap-start", 0),
            maxwell("bootstrap-insert", 0, id=1, v="a"),
            maxwell("insert", 1, id=2, v="b"),
            maxwell("insert", 1, id=3, v="c"),
            maxwell("update", 3, id=1, v="x"),
            maxwell("delete", 4, id=2, v="b"),
            maxwell("table-alter", 5),
        ],
        "_xid",
    ),
    "dms": (
        [
            dms("create-table", 0),
            dms("load", 0, id=1, v="a"),
            dms("insert", 1, id=2, v="b"),
            dms("insert", 1, id=3, v="c"),
            dms("update", 3, id=1, v="x"),
            dms("delete", 4, id=2, v="b"),
        ],
        "_metadata.timestamp",
    ),
    "datastream": (
        [
            datastream("INSERT", 1, id=1, v="a"),
            datastream("INSERT", 1, id=2, v="b"),
            datastream("INSERT", 1, id=3, v="c"),
            datastream("UPDATE-INSERT", 3, id=1, v="x"),
            datastream("DELETE", 4, id=2, v="b"),
        ],
        "_source_metadata.lsn",
    ),
}


@pytest.mark.parametrize("iceberg", [False, True], ids=["delta", "iceberg"])
@pytest.mark.parametrize("shape", CASES)
def test_events_end_as_the_rows_of_the_source(tmp_path: Path, shape: str, iceberg: bool) -> None:
    events, order = CASES[shape]
    place: dict[str, Any] = {"catalog": str(tmp_path / "c.db")} if iceberg else {}
    into = "ns.t" if iceberg else str(tmp_path / "t")
    for number, part in enumerate((events[:3], events[3:])):
        file = tmp_path / f"{number}.json"
        file.write_text("".join(f"{json.dumps(event)}\n" for event in part))
        result = widen.ingest(
            file, into, envelope=shape, key=["id"], sequence_by=order, verify=True, engine="local", **place
        )
        assert result.quarantined == 0
        assert result.verification is not None
        assert result.verification.is_clean
    log = widen.ingest(
        [tmp_path / "0.json", tmp_path / "1.json"],
        tmp_path / "log",
        envelope=shape,
        verify=True,
        engine="local",
    )
    assert log.verification is not None
    assert log.verification.is_clean
    rows = widen.Table(str(tmp_path / "log")).to_arrow().to_pylist()
    assert sorted(str(row["id"]) for row in rows) == sorted(
        str(row["id"])
        for event in events
        for data in [event.get("data") or event.get("payload")]
        for row in (data if isinstance(data, list) else [data] if data else [])
    )
    if not iceberg:
        found = {str(row["id"]): row["v"] for row in widen.Table(into).to_arrow().to_pylist()}
        assert found == {"1": "x", "3": "c"}


def test_ignored_operations_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        '[envelope]\nafter = "row"\nop = "kind"\ndeletes = ["gone"]\nignores = ["ping"]\n'
    )
    (tmp_path / "a.json").write_text('{"kind": "ping"}\n{"kind": "set", "row": {"id": 1}}\n{"kind": "pong"}\n')
    result = widen.ingest(tmp_path / "a.json", tmp_path / "t", config=tmp_path / "own.toml", verify=True)
    assert (result.records, result.corrupt) == (1, 1)


BSON: dict[str, Any] = {
    "n": {"$numberLong": "9007199254740993"},
    "price": {"$numberDecimal": "12.50"},
    "rate": {"$numberDouble": "NaN"},
    "at": {"$date": {"$numberLong": "1565546054692"}},
    "lines": [{"sku": {"$oid": "5d505646cf6d4fe581014ab2"}, "q": {"$numberInt": "2"}}],
    "note": 'a "quoted" ä',
}


@pytest.mark.parametrize("part", [False, True], ids=["plain", "schema part"])
@pytest.mark.parametrize("nan", [True, False], ids=["NaN", "no NaN"])
def test_rows_that_events_have_as_text_are_read_in_their_dialect(tmp_path: Path, *, part: bool, nan: bool) -> None:
    """Debezium's connector for MongoDB writes the document as a string, in extended JSON."""
    events: list[dict[str, Any]] = []
    for number in range(4):
        row = {"_id": {"$numberLong": str(number)}, **BSON}
        if not nan or number % 2:
            del row["rate"]
        state = json.dumps(row, indent=number or None)
        events.append({"op": "c", "before": None, "after": state, "source": {"connector": "mongodb", "ord": number}})
    events.append(
        {"op": "d", "before": events[0]["after"], "after": None, "source": {"connector": "mongodb", "ord": 9}}
    )
    documents = [{"schema": {"type": "struct", "fields": []}, "payload": each} for each in events] if part else events
    (tmp_path / "a.json").write_text("".join(f"{json.dumps(each)}\n" for each in documents))
    rows = [
        {"_id": number, **TAKEN, **({"rate": float("nan")} if nan and not number % 2 else {})} for number in range(4)
    ]
    dialect = "connect" if part else "mongodb"
    result = widen.ingest(
        tmp_path / "a.json", tmp_path / "t", envelope="debezium", dialect=dialect, verify=True, engine="local"
    )
    assert result.verification is not None
    assert result.verification.is_clean
    found = widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()
    taken = [
        {name: value for name, value in each.items() if not name.startswith("_") or name == "_id"} for each in found
    ]
    wanted = [{**row, "rate": row.get("rate")} if nan else row for row in (*rows, rows[0])]
    assert sorted(map(spell, taken)) == sorted(map(spell, wanted))


def spell(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


TAKEN: dict[str, Any] = {
    "n": 9007199254740993,
    "price": 12.5,
    "at": "2019-08-11T17:54:14.692Z",
    "lines": [{"sku": "5d505646cf6d4fe581014ab2", "q": 2}],
    "note": 'a "quoted" ä',
}


def test_files_of_dms_are_a_full_load_without_op_and_changes_with_it(tmp_path: Path) -> None:
    folder, table = tmp_path / "orders", tmp_path / "t"
    folder.mkdir()
    (folder / "LOAD00000001.csv").write_text("ts,id,v\n2024-01-31 11:00:00,1,a\n2024-01-31 11:00:00,2,b\n")
    changes = "U,2024-01-31 12:00:01,1,x\nD,2024-01-31 12:00:02,2,b\nI,2024-01-31 12:00:03,3,c\n"
    (folder / "20240131-120000001.csv").write_text(f"Op,ts,id,v\n{changes}U,2024-01-31 12:00:04,3,d\n")
    words: dict[str, Any] = {"key": ["id"], "sequence_by": "ts", "delete_when": "Op = 'D'", "verify": True}
    for source in (folder, folder / "LOAD00000001.csv"):  # the full load comes again
        done = widen.ingest(source, table, engine="local", **words)
        assert done.verification is not None
        assert done.verification.is_clean
        rows = widen.Table(table).to_arrow().to_pylist()
        assert sorted((row["id"], row["v"], row["Op"]) for row in rows) == [("1", "x", "U"), ("3", "d", "U")]
    with pytest.raises(InvalidOption, match=r"Op = 'D'"):
        widen.ingest(folder, tmp_path / "other", engine="local", envelope="dms", key=["id"])
