"""A replay reads what a quarantine keeps as the load has read its source: documents, typed JSON and envelopes."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import widen
from widen.table import create_table

Record = dict[str, Any]
NOT_RECORDS = ["_corrupt_record", "_corrupt_at"]
COLUMNS = "id bigint, total bigint{}"


def typed(record: Record, wrap: Callable[[Any], Any]) -> Record:
    return {name: wrap(value) for name, value in record.items()}


def mongodb(value: Any) -> Any:
    match value:
        case bool() | None | str():
            return value
        case int():
            return {"$numberLong": str(value)}
        case list():
            return [*map(mongodb, value)]
        case dict():
            return typed(value, mongodb)
    return {"$numberDecimal": str(value)}


def dynamodb(value: Any) -> Any:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": value}
        case list():
            return {"L": [*map(dynamodb, value)]}
        case dict():
            return {"M": typed(value, dynamodb)}
    return {"N": str(value)}


def firestore(value: Any) -> Any:
    match value:
        case None:
            return {"nullValue": None}
        case bool():
            return {"booleanValue": value}
        case str():
            return {"stringValue": value}
        case int():
            return {"integerValue": str(value)}
        case list():
            return {"arrayValue": {"values": [*map(firestore, value)]}}
        case dict():
            return {"mapValue": {"fields": typed(value, firestore)}}
    return {"doubleValue": str(value)}


DIALECTS: dict[str, Callable[[Record], Record]] = {
    "mongodb": lambda record: typed(record, mongodb),
    "dynamodb": lambda record: {"Item": typed(record, dynamodb)},
    "firestore": lambda record: typed(record, firestore),
    "connect": lambda record: {"schema": SCHEMA, "payload": {**record, "at": record["n"] * 1_000}},
}
SCHEMA = {
    "type": "struct",
    "fields": [{"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True}],
}


def spanner(row: Record, n: int) -> Record:
    mods = [{"keys": {"id": row["id"]}, "new_values": {k: v for k, v in row.items() if k != "id"}}]
    return {
        "data_change_record": {
            "commit_timestamp": f"2024-01-01T00:00:{n % 60:02}Z",
            "record_sequence": f"{n:08}",
            "mod_type": "INSERT",
            "table_name": "t",
            "mods": mods,
        }
    }


ENVELOPES: dict[str, Callable[[Record, int], Record]] = {
    "debezium": lambda row, n: {"op": "c", "before": None, "after": row, "source": {"connector": "x"}, "ts_ms": n},
    "maxwell": lambda row, n: {"type": "insert", "ts": n, "data": row, "table": "t"},
    "canal": lambda row, n: {"type": "INSERT", "es": n, "data": [row, {**row, "id": row["id"] + 10**6}]},
    "dms": lambda row, n: {"data": row, "metadata": {"operation": "insert", "timestamp": str(n)}},
    "datastream": lambda row, n: {"payload": row, "source_metadata": {"change_type": "INSERT"}, "sort_keys": [n]},
    "mongodb": lambda row, n: {
        "operationType": "insert",
        "clusterTime": {"$timestamp": {"t": n, "i": 1}},
        "_id": {"_data": str(n)},
        "fullDocument": row,
        "documentKey": {"_id": row["id"]},
    },
    "sqlserver-cdc": lambda row, n: {**row, "__$operation": 2, "__$start_lsn": f"0x{n:020X}", "__$seqval": f"{n:020X}"},
    "spanner": spanner,
}


def below(document: Record, rest: list[Record]) -> Record:
    return {"page": 1, "data": {"items": [document, *rest]}}


def generated(random: Random, number: int) -> Record:
    return {
        "id": number,
        "n": random.randrange(10**12),
        "total": random.choice([None, 7, random.randrange(-(2**40), 2**40)]),
        "name": random.choice(["a", "ä", 'q"', "{}", ""]),
        "price": Decimal(random.randrange(10**6)).scaleb(-2),
        "tags": [random.choice(["x", "y"]) for _ in range(random.randrange(3))],
        "more": {"ok": random.choice([True, False]), "deep": {"k": random.choice([None, 1, 2])}},
    }


CASES = [
    *((dialect, None) for dialect in DIALECTS),
    *((None, envelope) for envelope in ENVELOPES),
    ("mongodb", "mongodb"),
    ("mongodb", "debezium"),
    ("connect", "debezium"),
    ("dynamodb", "dms"),
    (None, None),
]


def encode(record: Record, dialect: str | None, envelope: str | None, number: int) -> Record:
    """Return the document of a record; a schema part is around its envelope."""
    if dialect == "connect":
        plain = record if envelope is None else ENVELOPES[envelope]({**record, "at": record["n"] * 1_000}, number)
        whole = SCHEMA
        if envelope is not None:
            whole = {"type": "struct", "fields": [{**SCHEMA, "field": name} for name in ("before", "after")]}
            return {"schema": whole, "payload": plain}
    row = record if dialect is None else DIALECTS[dialect](record)
    return row if envelope is None else ENVELOPES[envelope](row.get("Item", row), number)


@pytest.mark.parametrize("path", [False, True], ids=["", "below a path"])
@pytest.mark.parametrize(("dialect", "envelope"), CASES)
def test_a_replay_gives_the_rows_of_the_load(
    tmp_path: Path, dialect: str | None, envelope: str | None, path: bool
) -> None:
    random = Random(f"{dialect} {envelope}")
    whole, broken = [], []
    for number in range(60):
        text = json.dumps(encode(generated(random, number), dialect, envelope, number + 1), default=float)
        if path:
            text = json.dumps(below(json.loads(text), []))
        whole.append(text)
        broken.append(text[:-1] if number % 5 == 0 else text)
    for name, texts in (("whole", whole), ("broken", broken)):
        (tmp_path / f"{name}.json").write_text("".join(f"{text}\n" for text in texts))
    words: dict[str, Any] = {"dialect": dialect, "envelope": envelope, "mask": ["name"] if path else None}
    if path:
        is_whole = dialect in ("dynamodb", "connect") and envelope is None
        words |= {"records": "data.items[*]", "keep": None if is_whole else ["page"]}
    into, kept = str(tmp_path / "t"), str(tmp_path / "t_quarantine")
    create_table(into, COLUMNS.format(" NOT NULL"))
    create_table(str(tmp_path / "wanted"), COLUMNS.format(""))
    wanted = widen.ingest(tmp_path / "whole.json", tmp_path / "wanted", engine="local", **words)
    loaded = widen.ingest(tmp_path / "broken.json", into, engine="local", verify=True, **words)
    assert loaded.verification is not None
    assert loaded.verification.is_clean
    assert loaded.quarantined > 12
    widen.Table(into).alter_column("total", nullable=True)
    lost = 0
    if path:  # of a masked field, nothing is kept of a text that is not a record
        lost = 12 * (2 if envelope == "canal" else 1)
    else:
        repair(kept)
    done = widen.replay(kept, into, engine="local", **words)
    assert (done.replayed, done.left) == (wanted.records - loaded.records - lost, 0)
    assert rows(into, skip=path) == rows(str(tmp_path / "wanted"), skip=path)


@pytest.mark.parametrize("dates", [None, ["at"]], ids=["text", "named"])
def test_times_of_a_schema_part_without_a_column(tmp_path: Path, dates: list[str] | None) -> None:
    """The quarantine does not keep the schema part, so the caller says which texts are times."""
    records = [{"schema": SCHEMA, "payload": {"id": 1, "total": None, "at": 10**15}}]
    (tmp_path / "a.json").write_text(json.dumps(records[0]) + "\n")
    create_table(str(tmp_path / "t"), COLUMNS.format(" NOT NULL"))
    loaded = widen.ingest(tmp_path / "a.json", tmp_path / "t", dialect="connect", engine="local")
    assert loaded.quarantined == 1
    widen.Table(str(tmp_path / "t")).alter_column("total", nullable=True)
    widen.replay(tmp_path / "t_quarantine", tmp_path / "t", dialect="connect", detect_dates=dates, engine="local")
    (row,) = widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()
    assert str(row["at"]) == ("2001-09-09T01:46:40Z" if dates is None else "2001-09-09 01:46:40+00:00")


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_2000_events_have_their_values_again(tmp_path: Path, envelope: str) -> None:
    random = Random(envelope)
    records = [generated(random, number) for number in range(2_000)]
    events = (json.dumps(ENVELOPES[envelope](record, n + 1), default=float) for n, record in enumerate(records))
    (tmp_path / "a.json").write_text("".join(f"{event}\n" for event in events))
    loaded = widen.ingest(tmp_path / "a.json", tmp_path / "t", envelope=envelope, verify=True, engine="local")
    assert loaded.verification is not None
    assert loaded.verification.is_clean
    found = {row["id"]: row for row in widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()}
    assert len(found) == loaded.records == len(records) * (2 if envelope == "canal" else 1)
    different = [
        record
        for record in records
        for name, value in record.items()
        if found[record["id"]][name] != (float(value) if isinstance(value, Decimal) else value)
    ]
    assert different == []


WRAPPED_TWICE = {
    "mongodb": ({"$numberInt": "1"}, {"$oid": {"$oid": "x"}}, {"$oid": "x"}),
    "dynamodb": ({"N": "1"}, {"M": {"S": {"S": "x"}}}, {"S": "x"}),
    "firestore": ({"integerValue": "1"}, {"mapValue": {"fields": {"stringValue": {"stringValue": "x"}}}}, None),
}


@pytest.mark.parametrize("dialect", WRAPPED_TWICE)
def test_a_dialect_is_read_once(tmp_path: Path, dialect: str) -> None:
    """An event that another envelope refused is plain JSON in the quarantine; what looks wrapped there is a value."""
    key, wrapped, plain = WRAPPED_TWICE[dialect]
    row = {"id": key, "doc": wrapped}
    events = [
        {"data": row, "metadata": {"operation": "insert"}},
        {"data": {**row, "id": dict.fromkeys(key, "2")}, "type": "INSERT"},
    ]
    (tmp_path / "a.json").write_text("".join(f"{json.dumps(each)}\n" for each in events))
    create_table(str(tmp_path / "t"), "id bigint NOT NULL")
    widen.ingest(tmp_path / "a.json", tmp_path / "t", dialect=dialect, envelope="dms", engine="local")
    done = widen.replay(tmp_path / "t_quarantine", tmp_path / "t", dialect=dialect, envelope="canal", engine="local")
    assert (done.replayed, done.left) == (1, 0)
    found = {row["id"]: row["doc"] for row in widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()}
    assert found[1] == found[2] == (plain or {"stringValue": "x"})


@pytest.mark.parametrize("envelope", [None, "debezium"])
@pytest.mark.parametrize("dialect", WRAPPED_TWICE)
def test_a_dialect_is_read_once_of_records_with_nan(tmp_path: Path, dialect: str, envelope: str | None) -> None:
    key, wrapped, plain = WRAPPED_TWICE[dialect]
    row = {"id": key, "doc": wrapped, "f": float("nan")}
    event = row if envelope is None else {"op": "c", "before": None, "after": row, "source": {"connector": "x"}}
    (tmp_path / "a.json").write_text(f"{json.dumps(event)}\n")
    create_table(str(tmp_path / "t"), "id bigint NOT NULL")
    words: dict[str, Any] = {"dialect": dialect, "envelope": envelope, "engine": "local"}
    loaded = widen.ingest(tmp_path / "a.json", tmp_path / "t", allow_nan=False, **words)
    assert loaded.quarantined == 1
    done = widen.replay(tmp_path / "t_quarantine", tmp_path / "t", allow_nan=True, **words)
    assert (done.replayed, done.left) == (1, 0)
    (found,) = widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()
    assert found["doc"] == (plain or {"stringValue": "x"})
    assert found["f"] != found["f"]


@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_fields_above_records_with_a_schema_part(tmp_path: Path, envelope: str | None) -> None:
    """The dialect still applies to records that have a third field because of `keep`."""
    plain = {"id": 1, "at": 10**15}
    payload = plain if envelope is None else ENVELOPES["debezium"](plain, 7)
    schema = {"type": "struct", "fields": [{**SCHEMA, "field": name} for name in ("before", "after")]}
    item = {"schema": SCHEMA if envelope is None else schema, "payload": payload}
    (tmp_path / "a.json").write_text(json.dumps({"page": {"n": 3}, "items": [item, {**item, "payload": None}]}))
    words = {"records": "items[*]", "keep": ["page"], "envelope": envelope, "dialect": "connect"}
    loaded = widen.ingest(tmp_path / "a.json", tmp_path / "t", engine="local", verify=True, **words)
    assert loaded.verification is not None
    assert loaded.verification.is_clean
    (row,) = widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()
    assert (row["id"], str(row["at"])) == (1, "2001-09-09 01:46:40+00:00")
    assert row["_parent_page" if envelope is None else "__parent_page"] == {"n": 3}


def test_fields_above_items_of_dynamodb(tmp_path: Path) -> None:
    items = [{"Item": {"id": {"N": "1"}}}, {"Item": {"id": {"N": "2"}}, "other": {"N": "3"}}]
    (tmp_path / "a.json").write_text(json.dumps({"page": {"N": "3"}, "items": items}))
    words: dict[str, Any] = {"records": "items[*]", "keep": "all", "dialect": "dynamodb"}
    loaded = widen.ingest(tmp_path / "a.json", tmp_path / "t", engine="local", verify=True, **words)
    assert loaded.verification is not None
    assert loaded.verification.is_clean
    found = [
        {k: v for k, v in row.items() if v is not None} for row in widen.Table(tmp_path / "t").to_arrow().to_pylist()
    ]
    assert {"id": 1, "_parent_page": 3} in found
    assert {"Item": {"id": 2}, "other": 3, "_parent_page": 3} in found


def repair(quarantine: str) -> None:
    """Close the objects of the texts that are not records, as another writer."""
    kept = widen.Table(quarantine).to_arrow()
    pairs = zip(*(kept.column(name).to_pylist() for name in ("text", "reason")), strict=True)
    texts = [text + "}" * reason.startswith("not ") for text, reason in pairs]
    at = kept.schema.get_field_index("text")
    write_deltalake(quarantine, kept.set_column(at, kept.schema.field(at), pa.array(texts)), mode="overwrite")


def rows(table: str, *, skip: bool) -> list[str]:
    found = widen.Table(table).to_arrow()
    found = found.select([name for name in found.column_names if name not in NOT_RECORDS]).to_pylist()
    return sorted(str(row) for row in found if not (skip and (row["id"] is None or row["id"] % 10**6 % 5 == 0)))
