"""Change streams of MongoDB, SQL Server and Spanner: documents of their manuals, typed by hand, and any others."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import OptionMissing, SourceError
from widen.json.envelope import ENVELOPES, EnvelopeReader
from widen.proof.envelope_reader import read_envelopes

Rows = list[dict[str, Any]]


def read(name: str, document: Any, columns: tuple[str, ...] = ()) -> tuple[Rows, list[str]]:
    """Return the records of a document, and why it has none; the writer and the proof agree."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    envelope = ENVELOPES[name]
    found = list(EnvelopeReader(envelope, allows_nan=True, row_fields=columns).read(text))
    proved = list(read_envelopes(text, envelope, allows_nan=True, columns=columns))
    assert [text for text, reason in found if reason] == [each for each in proved if isinstance(each, bytes)]
    rows = [_exact(text) for text, reason in found if not reason]
    assert rows == [each for each in proved if isinstance(each, dict)]
    return [_parse(text) for text, reason in found if not reason], [reason for _, reason in found if reason]


def _exact(text: bytes) -> Any:
    return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)


def _parse(text: bytes) -> Any:
    return json.loads(text)


# ---- MongoDB. Source: MongoDB manual, change events: insert, update, replace, delete, drop, rename, invalidate


TIME = {"$timestamp": {"t": 1565545664, "i": 3}}
SAID = {"_id": {"_data": "8264BEB9F3"}, "clusterTime": TIME, "ns": {"db": "shop", "coll": "people"}}
ADDED = {"__id": {"_data": "8264BEB9F3"}, "_clusterTime": TIME, "_ns": {"db": "shop", "coll": "people"}}
ADDED["_position"] = "00000000001565545664:00000000000000000003:8264BEB9F3"


def mongodb(op: str, **more: Any) -> dict[str, Any]:
    return {**SAID, "operationType": op, **more}


KEY = {"_id": {"$oid": "599af247bb69cd89961c986d"}}
KNOWN = ("_id", "name", "email", "tags", "__id", "_operationType", "_ns", "_position", "_unchanged", "_class")


def test_documents_of_mongodb() -> None:
    person = {**KEY, "name": "Ada", "tags": [1, {"a": None}]}
    for op in ("insert", "replace", "update"):
        rows, _ = read("mongodb", mongodb(op, documentKey=KEY, fullDocument=person), KNOWN)
        assert rows == [{**person, **ADDED, "_operationType": op}]
    rows, _ = read("mongodb", mongodb("delete", documentKey=KEY, fullDocument=None), KNOWN)
    assert rows == [{**KEY, **ADDED, "_operationType": "delete"}]
    rows, _ = read(
        "mongodb", {**mongodb("insert", documentKey=KEY, fullDocument=person), "clusterTime": {"t": 5, "i": 1}}
    )
    assert rows[0]["_position"] == "00000000000000000005:00000000000000000001:8264BEB9F3"


def test_an_update_of_mongodb_keeps_the_fields_that_it_leaves() -> None:
    description = {
        "updatedFields": {"email": "alice@10gen.com", "tags": [1], "name": None},
        "removedFields": ["phoneNumber"],
        "truncatedArrays": [],
    }
    event = mongodb("update", documentKey=KEY, updateDescription=description)
    rows, _ = read("mongodb", event, (*KNOWN, "phoneNumber"))
    # A removed field and one that is null are not kept; nor are those that describe an event.
    changed = {"email": "alice@10gen.com", "tags": [1], "name": None, "_unchanged": ["_class"]}
    wanted = {**KEY, **ADDED, **changed, "_operationType": "update", "_updateDescription": description}
    assert rows == [wanted]
    rows, _ = read("mongodb", {**event, "fullDocument": None}, (*KNOWN, "phoneNumber", "a.b"))
    assert rows == [{**wanted, "_unchanged": ["_class", "a.b"]}]
    dotted = {"updatedFields": {"a.b": 1}, "disambiguatedPaths": {"a.b": ["a.b"]}}
    rows, _ = read("mongodb", mongodb("update", documentKey=KEY, updateDescription=dotted), ("a.b", "name"))
    assert (rows[0]["a.b"], rows[0]["_unchanged"]) == (1, ["name"])


@pytest.mark.parametrize(
    "description",
    [
        {"updatedFields": {"address.city": "Graz"}, "removedFields": []},
        {"updatedFields": {"tags.0": 7}},
        {"updatedFields": {}, "removedFields": ["address.city"]},
        {"updatedFields": {}, "truncatedArrays": [{"field": "vacation_time", "newSize": 36}]},
        {"updatedFields": {"a.0": 1}, "disambiguatedPaths": {"a.0": ["a", "0"]}},
    ],
)
def test_an_update_of_parts_of_fields_says_what_to_set(description: dict[str, Any]) -> None:
    rows, (reason,) = read("mongodb", mongodb("update", documentKey=KEY, updateDescription=description), KNOWN)
    assert rows == []
    assert "set fullDocument to updateLookup" in reason


def test_other_events_of_mongodb() -> None:
    for op in ("invalidate", "rename", "create", "createIndexes", "modify"):
        assert read("mongodb", mongodb(op, to={"db": "shop", "coll": "users"})) == ([], [])
    for op in ("drop", "dropDatabase"):
        text = json.dumps(mongodb(op)).encode()
        with pytest.raises(SourceError, match="truncates its table"):
            list(EnvelopeReader(ENVELOPES["mongodb"]).read(text))
    for event, why in (
        (mongodb("insert", documentKey=KEY), "an object in fullDocument"),
        (mongodb("insert", documentKey=KEY, fullDocument=5), "an object in fullDocument"),
        (mongodb("delete"), "an object in documentKey"),
        (mongodb("update", documentKey=KEY), "an object in updateDescription"),
        (mongodb("update", documentKey={}, updateDescription={}), "the _id of its document"),
        (mongodb("update", documentKey=KEY, updateDescription={"removedFields": [1]}), "a list of names"),
        (mongodb("update", documentKey=KEY, updateDescription={"removedFields": "x"}), "a list of names"),
        (mongodb("insert", documentKey=KEY, fullDocument=KEY, splitEvent={"fragment": 1, "of": 2}), "fragment"),
        (mongodb("insert", documentKey=KEY, fullDocument={"_ns": 1}), "the row has a field _ns"),
        (mongodb("upsert"), "does not change a row"),
        ({"a": 1}, "it has no operation"),
    ):
        rows, (reason,) = read("mongodb", event)
        assert rows == []
        assert why in reason


# ---- SQL Server. Source: Microsoft, cdc.<capture_instance>_CT (Transact-SQL)


LSN = bytes.fromhex("0000002C000001A80003")


def cdc(op: Any, **more: Any) -> dict[str, Any]:
    said = {"__$start_lsn": "0x0000002C000001A80003", "__$end_lsn": None, "__$seqval": "0x0000002C000001A80002"}
    return {**said, "__$operation": op, "__$update_mask": "0x07", **more}


def test_rows_of_sql_server() -> None:
    for op in (1, 2, 4, 5):
        row = cdc(op, id=1, name="Ada")
        assert read("sqlserver-cdc", row) == (
            [{**row, "_position": f"0000002C000001A80003:0000002C000001A80002:{op}"}],
            [],
        )
    assert read("sqlserver-cdc", cdc(3, id=1)) == ([], [])
    rows, _ = read("sqlserver-cdc", {**cdc(4, id=1), "__$command_id": 2})
    assert rows[0]["_position"] == "0000002C000001A80003:00000000000000000002:0000002C000001A80002:4"
    for spelled in (
        LSN.hex(),
        LSN.hex().upper(),
        "0X0000002c000001a80003",
        "0000002C:000001A8:0003",
        b64encode(LSN).decode(),
    ):
        rows, _ = read("sqlserver-cdc", {"__$start_lsn": spelled, "__$operation": 2, "id": 1})
        assert rows[0]["_position"] == "0000002C000001A80003:2"
    for spelled in (None, 5, "", "0x2C", "AAAA", [0]):
        rows, _ = read("sqlserver-cdc", {"__$start_lsn": spelled, "__$operation": 2, "id": 1})
        assert "_position" not in rows[0]
    for row, why in (
        (cdc("2", id=1), "it has no integer"),
        (cdc(6), "does not change a row"),
        (cdc(2, _position=1), "_position"),
    ):
        rows, (reason,) = read("sqlserver-cdc", row)
        assert rows == []
        assert why in reason


# ---- Spanner. Source: Google Cloud, "Change streams partitions, records, and queries"


def column(name: str, code: str, at: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": {"code": code, **more}, "is_primary_key": at == 1, "ordinal_position": at}


TYPES = [column("AccountId", "STRING", 1), column("LastUpdate", "TIMESTAMP", 2), column("Balance", "INT64", 3)]


def spanner(op: str, *mods: Any, capture: str = "OLD_AND_NEW_VALUES", types: Any = TYPES) -> dict[str, Any]:
    return {
        "commit_timestamp": "2022-09-27T12:30:00.123456Z",
        "record_sequence": "00000000",
        "server_transaction_id": "6329047911",
        "is_last_record_in_transaction_in_partition": True,
        "table_name": "AccountBalance",
        "column_types": types,
        "mods": list(mods),
        "mod_type": op,
        "value_capture_type": capture,
        "number_of_records_in_transaction": 2,
        "number_of_partitions_in_transaction": 2,
        "transaction_tag": "app=banking,env=prod,action=update",
        "is_system_transaction": False,
    }


META = {f"_{name}": value for name, value in spanner("UPDATE").items() if name not in ("mods", "column_types")}


def position(number: int) -> str:
    return f"2022-09-27T12:30:00.123456000Z:00000000000000000000:{number:010}"


def mod(key: str, old: Any = None, **new: Any) -> dict[str, Any]:
    return {"keys": {"AccountId": key}, "new_values": new, "old_values": old or {}}


def test_records_of_spanner() -> None:
    event = spanner(
        "UPDATE",
        mod("Id1", {"Balance": 1500}, LastUpdate="2022-09-27T12:30:00.123456Z", Balance=1000),
        mod("Id2", {"Balance": "9"}, Balance="2000"),
    )
    known = ("AccountId", "LastUpdate", "Balance", "_mod_type", "_position")
    rows = [
        {"AccountId": "Id1", "LastUpdate": "2022-09-27T12:30:00.123456Z", "Balance": 1000, **META},
        {"AccountId": "Id2", "Balance": 2000, **META, "_unchanged": ["LastUpdate"]},
    ]
    expected = [{**row, "_position": position(at)} for at, row in enumerate(rows)]
    for document in (
        event,
        {"data_change_record": event},
        {"data_change_record": [event], "heartbeat_record": [], "child_partitions_record": []},
        {"dataChangeRecord": event},
    ):
        assert read("spanner", document, known) == (expected, [])
    # Dataflow writes the keys and values as text, and names as in Java.
    java = {
        "commitTimestamp": {"seconds": 1664281800, "nanos": 123456000},
        "recordSequence": "00000000",
        "modType": "INSERT",
        "tableName": "AccountBalance",
        "rowType": [{"name": "Balance", "type": {"code": '{"code":"INT64"}'}}, column("Balance", "INT64", 3)],
        "mods": [{"keysJson": '{"AccountId":"Id1"}', "oldValuesJson": "{}", "newValuesJson": '{"Balance":"1000"}'}],
        "valueCaptureType": "OLD_AND_NEW_VALUES",
    }
    rows, _ = read("spanner", java, known)
    names = ("commit_timestamp", "record_sequence", "mod_type", "table_name", "value_capture_type")
    assert rows[0].keys() == {"AccountId", "Balance", "_position", *(f"_{name}" for name in names)}
    assert (rows[0]["Balance"], rows[0]["_position"]) == (1000, position(0))
    for capture in ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES"):
        rows, _ = read("spanner", spanner("UPDATE", mod("Id1", Balance=None), capture=capture), known)
        assert "_unchanged" not in rows[0]
        assert rows[0]["Balance"] is None
    rows, _ = read("spanner", spanner("INSERT", mod("Id1", Balance="1")), known)
    assert "_unchanged" not in rows[0]
    rows, _ = read("spanner", spanner("DELETE", mod("Id1", {"Balance": "1500"})), known)
    assert {name: rows[0][name] for name in ("AccountId", "Balance", "_mod_type")} == {
        "AccountId": "Id1",
        "Balance": 1500,
        "_mod_type": "DELETE",
    }


def test_types_of_spanner() -> None:
    types = [
        column("i", "INT64", 1),
        column("n", "NUMERIC", 2),
        column("a", "ARRAY", 3, array_element_type={"code": "INT64"}),
        column("s", "STRING", 4),
        {"name": "t", "type": '{"code":"NUMERIC"}'},
        {"name": "x", "type": {"code": {}}},
    ]
    cases = [
        ("i", "9007199254740993", b"9007199254740993"),
        ("i", "007", b'"007"'),
        ("i", "1.5", b'"1.5"'),
        ("n", "-12.50", b"-12.50"),
        ("n", "NaN", b'"NaN"'),
        ("a", ["1", None, "x"], b'[1,null,"x"]'),
        ("s", "5", b'"5"'),
        ("t", "0.10", b"0.10"),
        ("x", "1", b'"1"'),
    ]
    for name, value, plain in cases:
        event = spanner("INSERT", {"keys": {"k": 1}, "new_values": {name: value}}, types=types)
        read("spanner", event)
        ((text, reason),) = EnvelopeReader(ENVELOPES["spanner"]).read(json.dumps(event).encode())
        assert reason == ""
        assert b'"k":1,"' + name.encode() + b'":' + plain + b"," in text


def test_other_records_of_spanner() -> None:
    beat, child = {"timestamp": "2022-09-27T12:35:00.312486Z"}, {"start_timestamp": "x", "child_partitions": []}
    for document in (
        {"heartbeat_record": beat},
        {"childPartitionsRecord": child},
        {"data_change_record": [], "heartbeat_record": [beat], "child_partitions_record": None},
        {"partition_end_record": {}},
    ):
        assert read("spanner", document) == ([], [])
    for document, why in (
        ({}, "no operation in mod_type"),
        (spanner("INSERT"), "a list of changes in mods"),
        (spanner("INSERT", {"new_values": {"a": 1}}), "the key of each change"),
        (spanner("INSERT", 5), "an object in mods"),
        (spanner("INSERT", {"keys": "x"}), "an object in keys"),
        (spanner("UPSERT", mod("a")), "does not change a row"),
        ({"data_change_record": [5]}, "an object in data_change_record"),
        ({"data_change_record": "x"}, "an object in data_change_record"),
        ({"modType": "INSERT", "mod_type": "INSERT"}, "a field twice"),
        (spanner("INSERT", {"keys": {"_table_name": 1}}), "the row has a field _table_name"),
    ):
        rows, (reason,) = read("spanner", document)
        assert rows == []
        assert why in reason
    rows, _ = read("spanner", {**spanner("INSERT", mod("a")), "commit_timestamp": "today"})
    assert "_position" not in rows[0]


# ---- events that are generated: the writer and the proof agree -----------------------------------


def some_value(chance: random.Random, depth: int = 2) -> Any:
    case = chance.randrange(9 if depth else 6)
    if case < 6:
        plain = (None, True, 5, -0.5, "x", "12", "-3.50", "0x0000002C000001A80003", "a.b", [], {}, float("nan"), "")
        return chance.choice(plain)
    if case == 6:
        return [some_value(chance, depth - 1) for _ in range(chance.randrange(3))]
    if case == 7:
        return json.dumps({"a": some_value(chance, 0)})
    return {
        chance.choice(("a", "b.c", "_id", "name")): some_value(chance, depth - 1) for _ in range(chance.randrange(3))
    }


def spoil(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """Return a document with some parts replaced by anything, or left out."""
    if chance.random() < 0.02:
        return some_value(chance)
    if isinstance(value, dict):
        kept = {key: spoil(each, chance, depth + 1) for key, each in value.items() if chance.random() > 0.02}
        return {**kept, chance.choice(("name", "_ns", "x")): 1} if chance.random() < 0.03 else kept
    return [spoil(each, chance, depth + 1) for each in value] if isinstance(value, list) else value


def some_event(name: str, chance: random.Random) -> Any:
    fields = {each: some_value(chance) for each in chance.sample(("name", "email", "a", "b.c", "_class"), 3)}
    if name == "mongodb":
        op = chance.choice(("insert", "update", "update", "replace", "delete", "rename"))
        event = mongodb(op, documentKey=KEY)
        if chance.random() < 0.5:
            event["fullDocument"] = chance.choice(({**KEY, **fields}, None, json.dumps({**KEY, **fields})))
        if op == "update":
            removed = chance.sample(("phone", "a", "b.c"), chance.randrange(3))
            event["updateDescription"] = {"updatedFields": fields, "removedFields": removed, "truncatedArrays": []}
            if chance.random() < 0.7:
                event["updateDescription"]["disambiguatedPaths"] = {"b.c": ["b.c"]}
        return event
    if name == "sqlserver-cdc":
        lsn = chance.choice((LSN.hex(), b64encode(LSN).decode(), "0x" + LSN.hex(), "0000002C:000001A8:0003"))
        return {
            **cdc(chance.randrange(1, 7), **fields),
            "__$start_lsn": lsn,
            "__$command_id": chance.choice((None, 1, "2")),
        }
    op, mods = chance.choice(("INSERT", "UPDATE", "DELETE")), []
    for _ in range(chance.randrange(1, 4)):
        values = {"Balance": chance.choice(("1", 2, "x", None)), **fields}
        mods.append(
            {"keys": {"k": some_value(chance, 0)}, "new_values": values, "old_values": chance.choice(({}, values))}
        )
    capture = chance.choice(("NEW_ROW", "NEW_VALUES"))
    event = spanner(op, *mods, capture=capture)
    return chance.choice((event, {"data_change_record": [event]}, {"dataChangeRecord": event}))


@pytest.mark.parametrize("name", ["mongodb", "sqlserver-cdc", "spanner"])
def test_the_proof_reads_4000_events_like_the_writer(name: str) -> None:
    chance, whole, refused = random.Random(name), 0, 0
    known = ("_id", "name", "email", "a", "b.c", "_class", "phone", "k", "Balance", "__id", "_mod_type")
    for _ in range(4_000):
        document = spoil(some_event(name, chance), chance)
        if name == "mongodb" and isinstance(document, dict) and document.get("operationType") in ("drop",):
            continue
        rows, reasons = read(name, document, known)
        whole, refused = whole + len(rows), refused + len(reasons)
    assert whole > 1_500
    assert refused > 100


# ---- loads ---------------------------------------------------------------------------------------


LOADS: dict[str, tuple[list[list[Any]], str, dict[Any, dict[str, Any]], dict[str, Any]]] = {
    "mongodb": (
        [
            [
                {**mongodb("insert", documentKey={"_id": 1},
                           fullDocument={"_id": 1, "n": {"$numberLong": "5"}, "s": "a"}),
                 "clusterTime": {"$timestamp": {"t": 1, "i": 1}}},
                {**mongodb("insert", documentKey={"_id": 2}, fullDocument={"_id": 2, "s": "b", "o": {"x": 1, "y": 2}}),
                 "clusterTime": {"$timestamp": {"t": 1, "i": 2}}},
                {**mongodb("insert", documentKey={"_id": 3}, fullDocument={"_id": 3, "s": "c"}),
                 "clusterTime": {"$timestamp": {"t": 1, "i": 3}}},
                {**mongodb("update", documentKey={"_id": 1},
                           updateDescription={"updatedFields": {"s": "x"}, "removedFields": []}),
                 "clusterTime": {"$timestamp": {"t": 2, "i": 1}}},
            ],
            [
                {**mongodb("update", documentKey={"_id": 2},
                           updateDescription={"updatedFields": {"o": {"x": 9}}, "removedFields": ["s"]}),
                 "clusterTime": {"$timestamp": {"t": 3, "i": 1}}},
                {**mongodb("update", documentKey={"_id": 1}, updateDescription={"updatedFields": {"new": 1.5}}),
                 "clusterTime": {"$timestamp": {"t": 3, "i": 2}}},
                {**mongodb("delete", documentKey={"_id": 3}), "clusterTime": {"$timestamp": {"t": 3, "i": 3}}},
                mongodb("invalidate"),
            ],
        ],
        "_id",
        {1: {"n": 5, "s": "x", "o": None, "new": 1.5},
         2: {"n": None, "s": None, "o": {"x": 9, "y": None}, "new": None}},
        {"dialect": "mongodb"},
    ),
    "sqlserver-cdc": (
        [
            [{**cdc(2, id=at, v=v), "__$start_lsn": f"0x0000000000000000000{at}"}
             for at, v in ((1, "a"), (2, "b"), (3, "c"))],
            [
                {**cdc(3, id=1, v="a"), "__$start_lsn": "0x00000000000000000005"},
                {**cdc(4, id=1, v="x"), "__$start_lsn": "AAAAAAAAAAAABQ=="},
                {**cdc(1, id=2, v="b"), "__$start_lsn": "0x00000000000000000006"},
                {**cdc(2, id=2, v="again"), "__$start_lsn": "0x00000000000000000006"},
                {**cdc(4, id=3, v="late"), "__$start_lsn": "0x00000000000000000002"},
            ],
        ],
        "id",
        {1: {"v": "x"}, 2: {"v": "again"}, 3: {"v": "c"}},
        {},
    ),
    "spanner": (
        [
            [spanner("INSERT", mod("1", Balance="7", Note="n"), mod("2", Balance="8"), mod("3", Balance="9"))],
            [
                {**spanner("UPDATE", mod("1", Balance="2000"), mod("2", Note="new")),
                 "commit_timestamp": "2022-09-27T12:30:01Z"},
                {**spanner("UPDATE", mod("1", Note=None)), "commit_timestamp": "2022-09-27T12:30:01.5Z"},
                {"data_change_record": {**spanner("DELETE", mod("3")), "commit_timestamp": "2022-09-27T12:30:02Z"}},
                {"heartbeat_record": {"timestamp": "2022-09-27T12:35:00.312486Z"}},
            ],
        ],
        "AccountId",
        {"1": {"Balance": 2000, "Note": None}, "2": {"Balance": 8, "Note": "new"}},
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("name", LOADS)
def test_events_end_as_the_rows_of_the_source(tmp_path: Path, name: str, format: str) -> None:
    loads, key, expected, words = LOADS[name]
    into: Any = tmp_path / "t"
    place: dict[str, Any] = {}
    if format == "iceberg":
        into, place = "ns.t", {"catalog": str(tmp_path / "c.db")}
    for number, events in enumerate(loads):
        (tmp_path / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in events))
        loaded = widen.ingest(
            tmp_path / f"{number}.json", into, envelope=name, key=[key], verify=True, engine="local", **words, **place
        )
        assert (loaded.quarantined, loaded.corrupt) == (0, 0)
        assert loaded.verification is not None
        assert loaded.verification.is_clean, loaded.verification
    if format == "delta":
        rows = {row[key]: row for row in widen.Table(into).to_arrow().to_pylist()}
        assert {at: {name: row[name] for name in expected[at]} for at, row in rows.items()} == expected
    log = widen.ingest(
        [tmp_path / "0.json", tmp_path / "1.json"],
        tmp_path / "log",
        envelope=name,
        verify=True,
        engine="local",
        **words,
    )
    assert log.verification is not None
    assert log.verification.is_clean, log.verification


def test_events_without_an_order_say_what_is_missing(tmp_path: Path) -> None:
    for name, event, wanted in (
        (
            "mongodb",
            {"operationType": "insert", "documentKey": {"_id": 1}, "fullDocument": {"_id": 1}},
            "a clusterTime",
        ),
        ("sqlserver-cdc", {"__$operation": 2, "_id": 1}, r"an __\$start_lsn"),
        ("spanner", {"mod_type": "INSERT", "mods": [{"keys": {"_id": 1}}]}, "a commit_timestamp"),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(event))
        with pytest.raises(OptionMissing, match=wanted):
            widen.ingest(tmp_path / f"{name}.json", tmp_path / name, envelope=name, key=["_id"], engine="local")
