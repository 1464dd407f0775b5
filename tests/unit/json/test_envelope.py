"""Envelopes as records; the documents have the fields that the documentation of Debezium shows."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest

from support.debezium import MONGODB, MYSQL, POSTGRES, TOMBSTONES, truncation
from widen.errors import SourceError
from widen.json.envelope import DEBEZIUM, ENVELOPES, POSITIONS, Envelope, EnvelopeReader
from widen.proof.envelope_reader import read_envelopes


def rows(text: str | bytes, envelope: Envelope = DEBEZIUM) -> list[tuple[Any, str]]:
    """The records in a text, each with why it is refused; the proof must read the same."""
    data = text.encode() if isinstance(text, str) else text
    found = [(json.loads(row) if not why else row.decode(), why) for row, why in EnvelopeReader(envelope).read(data)]
    proven = [row.decode() if isinstance(row, bytes) else _plain(row) for row in read_envelopes(data, envelope)]
    assert proven == [_plain(row) for row, _ in found]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else str(value)


def records(*events: object) -> list[Any]:
    found = [each for event in events for each in rows(json.dumps(event))]
    assert not [why for _, why in found if why]
    return [row for row, _ in found]


def test_the_row_is_that_after_the_change_and_of_a_deletion_that_before() -> None:
    created, updated, deleted = records(*POSTGRES)
    assert created["first_name"] == "Ada"
    assert updated["first_name"] == "Ada Maria"
    assert (deleted["id"], "first_name" in deleted) == (1, False)
    assert [row["_op"] for row in (created, updated, deleted)] == ["c", "u", "d"]
    assert created["_source"]["lsn"] == 24023128
    assert created["_ts_ms"] == 1559033904863
    assert "_transaction" not in created
    assert "_before" not in updated


@pytest.mark.parametrize(
    ("events", "positions"),
    [
        (
            POSTGRES,
            [
                "00000000000024023119",
                "00000000000024023911:00000000000024023920",
                "00000000000046523119:00000000000046523128",
            ],
        ),
        (
            MYSQL,
            [
                "mysql-bin.00000000000000000003:00000000000000000154:00000000000000000000",
                "mysql-bin.00000000000000000003:00000000000000000484:00000000000000000000",
                "mysql-bin.00000000000000000003:00000000000000000805:00000000000000000000",
            ],
        ),
        (MONGODB[:2], ["00000001558965508000:00000000000000000031", "00000001558965523000:00000000000000000001"]),
    ],
)
def test_the_position_sorts_like_the_log(events: list[object], positions: list[str]) -> None:
    assert [row["_position"] for row in records(*events)] == positions == sorted(positions)


SQL_SERVER = {"connector": "sqlserver", "commit_lsn": "00000025:00000d98:0012", "change_lsn": "00000025:00000d98:000a"}
ORACLE = {"connector": "oracle", "scn": "100", "rs_id": "0x000a2f.000128ac.0010", "ssn": 0}
SPANNER = {"connector": "spanner", "ts_ms": 5, "record_sequence": "00000001", "mod_number": 0}
DAY = 1_559_033_904_863


def change(op: str, more: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    return {"op": op, "after": {"id": 1}, "before": {"id": 1}, "source": source, **(more or {})}


def position(op: str, more: dict[str, Any] | None = None, **source: Any) -> str | None:
    (record,) = records(change(op, more, **source))
    found = record.get("_position")
    assert found is None or isinstance(found, str)
    return found


@pytest.mark.parametrize(
    "sources",
    [
        # Debezium's rows of a snapshot come first, then the changes in the order of their commits.
        [
            ("r", {"connector": "sqlserver", "commit_lsn": None, "snapshot": "true", "ts_ms": DAY}),
            ("r", {"connector": "sqlserver", "commit_lsn": None, "snapshot": "incremental", "ts_ms": DAY + 1}),
            ("r", {**SQL_SERVER, "change_lsn": None, "snapshot": "last"}),
            ("u", {**SQL_SERVER, "event_serial_no": 2}),
            ("u", {**SQL_SERVER, "event_serial_no": 10}),
            ("u", {**SQL_SERVER, "change_lsn": "00000025:00000d98:0012", "event_serial_no": 1}),
            ("d", {**SQL_SERVER, "commit_lsn": "00000025:00000d98:00a2", "event_serial_no": 1}),
            ("c", {**SQL_SERVER, "commit_lsn": "00000025:00000d98:0a02", "event_serial_no": 1}),
        ],
        [
            ("r", {"connector": "db2", "snapshot": "first", "ts_ms": DAY}),
            ("r", {"connector": "db2", "snapshot": "last_in_data_collection", "ts_ms": DAY + 1}),
            ("r", {"connector": "db2", "commit_lsn": "00000000:0000000f:00000a12", "snapshot": "true"}),
            ("u", {"connector": "db2", "commit_lsn": "00000000:0000000f:00000a12", "change_lsn": "00000000:00000001"}),
        ],
        # A transaction that began before the snapshot, or before another one, and ends after it.
        [
            ("r", {"connector": "postgresql", "lsn": None, "snapshot": "incremental", "ts_ms": DAY}),
            ("u", {"connector": "postgresql", "lsn": 90, "sequence": '["80","90"]'}),
            ("r", {"connector": "postgresql", "lsn": 500, "sequence": '["95","500"]', "snapshot": "true"}),
            ("u", {"connector": "postgresql", "lsn": 200, "sequence": '["95","200"]', "snapshot": "false"}),
            ("r", {"connector": "postgresql", "lsn": None, "sequence": '["600","610"]', "snapshot": "incremental"}),
            ("u", {"connector": "postgresql", "lsn": 100, "sequence": '["600","100"]'}),
        ],
        [
            ("r", {"connector": "postgresql", "lsn": 7, "sequence": '[null,"7"]', "snapshot": "first"}),
            ("u", {"connector": "postgresql", "lsn": 7, "sequence": '[null,"7"]'}),
            ("u", {"connector": "postgresql", "lsn": 9}),
        ],
        [
            ("r", {"connector": "oracle", "scn": None, "snapshot": "true", "ts_ms": DAY}),
            ("r", {**ORACLE, "scn": "150", "snapshot": "true"}),
            ("u", {**ORACLE, "commit_scn": "160"}),
            ("u", {**ORACLE, "commit_scn": "160", "ssn": 1}),
            ("u", {**ORACLE, "commit_scn": "160", "rs_id": "0x000a2f.000128ad.0001"}),
            ("u", {**ORACLE, "scn": "1000"}),
        ],
        [
            ("r", {"connector": "mysql", "file": "", "pos": 0, "row": 0, "snapshot": "incremental", "ts_ms": DAY}),
            ("r", {"connector": "mysql", "file": "binlog.000002", "pos": 157, "row": 0, "snapshot": "last"}),
            ("u", {"connector": "mysql", "file": "binlog.000002", "pos": 380, "row": 0, "ts_ms": 0}),
            ("u", {"connector": "mysql", "file": "binlog.000002", "pos": 380, "row": 1}),
        ],
        [
            ("r", {"connector": "mongodb", "ts_ms": DAY, "ord": -1}),
            ("u", {"connector": "mongodb", "ts_ms": DAY, "ord": 1}),
        ],
        [("c", SPANNER), ("u", {**SPANNER, "mod_number": 1}), ("u", {**SPANNER, "record_sequence": "00000002"})],
        [
            ("r", {"connector": "vitess", "ts_ms": 5, "ts_ns": 5}),
            ("u", {"connector": "vitess", "ts_ms": 5, "ts_ns": 1}),
        ],
    ],
)
def test_a_change_is_after_what_was_before_it(sources: list[tuple[str, dict[str, Any]]]) -> None:
    positions = [position(op, **source) for op, source in sources]
    assert None not in positions
    assert len(set(positions)) == len(positions)
    assert positions == sorted(positions, key=str)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (change("r", connector="postgresql", ts_ms=DAY), "(snapshot):01559033904863000000"),
        (change("r", connector="postgresql", ts_ms=1, ts_us=DAY * 1_000), "(snapshot):01559033904863000000"),
        (change("r", connector="postgresql", ts_us=1, ts_ns=DAY), "(snapshot):00000001559033904863"),
        (change("r", {"ts_ms": str(DAY)}, connector="oracle"), "(snapshot):01559033904863000000"),
        (change("c", connector="oracle", snapshot=True), "(snapshot)"),
        (change("c", connector="oracle", snapshot="false", ts_ms=DAY), None),
        (change("u", connector="sqlserver", change_lsn="00000025:00000d98:0012", ts_ms=DAY), None),
        (change("u", {"ts_ms": DAY}), "00000001559033904863:"),
        (change("u"), None),
        ({"op": "u", "after": {}, "source": 7, "ts_ms": 7}, "00000000000000000007:"),
        ({"op": "r", "after": {}}, "(snapshot)"),
    ],
)
def test_without_a_position_only_snapshots_have_an_order(event: dict[str, Any], expected: str | None) -> None:
    (record,) = records(event)
    assert record.get("_position") == expected


VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        7,
        -1,
        12,
        2**63,
        2**70,
        10**30,
        1.5,
        1e30,
        "",
        "0",
        "7",
        "-1",
        "x7",
        "007",
        "a\n1",
        "\u0663",
    ),
    *(
        "true",
        "false",
        "last",
        "incremental",
        '["5","6"]',
        '[null,"6"]',
        '[ "5" ]',
        '["5',
        '"5"]',
        '["5x","6"]',
        "[5,6]",
    ),
    *("00000025:00000d98:0012", "00000025:00000d98:000a", "binlog.000009", "binlog.000010", [1], {"a": 1}),
]
NAMES = sorted({name.removesuffix("[0]") for each in POSITIONS.values() for part in each.parts for name in part})


def test_the_proof_makes_the_same_positions() -> None:
    generator = random.Random(42)
    seen = set()
    for _ in range(3_000):
        source = {name: generator.choice(VALUES) for name in [*NAMES, "snapshot", "ts_us"] if generator.random() < 0.6}
        connector = generator.choice([*POSITIONS, "vitess", None])
        times = {name: generator.choice(VALUES) for name in ("ts_ms", "ts_us", "ts_ns") if generator.random() < 0.3}
        event = change(generator.choice("crud"), times, connector=connector, **source)
        ((record, why),) = rows(json.dumps(event, ensure_ascii=generator.random() < 0.5))
        seen.add((connector, "_position" in record, str(record.get("_position")).startswith("(")))
        assert not why
    assert {connector for connector, *_ in seen} == {*POSITIONS, "vitess", None}
    assert {(has, is_first) for _, has, is_first in seen} == {(True, True), (True, False), (False, False)}


def test_the_schema_part_changes_nothing() -> None:
    for event in (*POSTGRES, *MYSQL, *MONGODB[:2]):
        assert records({"schema": {"type": "struct", "fields": []}, "payload": event}) == records(event)


def test_a_document_of_mongodb_is_the_object_in_its_string() -> None:
    inserted, updated = records(*MONGODB[:2])
    assert inserted["_id"] == {"$numberLong": "1004"}
    assert updated["first_name"] == "Ada Maria"
    ((_, why),) = rows(json.dumps(MONGODB[2]))
    assert why == "not a change: operation d needs the row in before, which is missing or null"


def test_tombstones_have_no_record() -> None:
    for text in TOMBSTONES:
        assert rows(text) == []


def test_several_envelopes_in_a_text() -> None:
    texts = [json.dumps(event) for event in POSTGRES]
    for text in ("[" + ",".join(texts) + "]", " ".join(texts), "\ufeff" + "".join(texts)):
        assert [row for row, _ in rows(text)] == records(*POSTGRES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("7", "not an envelope: it is not an object"),
        ('{"id": 1}', "not an envelope: it has no operation in op"),
        ('{"op": 1, "after": {}}', "not an envelope: it has no operation in op"),
        ('{"payload": 7}', "not an envelope: payload is not an object"),
        ('{"op": "m", "message": {}}', "not a change: operation m does not change a row"),
        ('{"op": "c", "after": null}', "not a change: operation c needs the row in after, which is missing or null"),
        ('{"op": "u", "after": "{"}', "not a change: after is a string, but not one of an object"),
        (
            '{"op": "c", "after": {"_op": 1}}',
            "not a change: the row has a field _op, which is the name of a field of the envelope",
        ),
    ],
)
def test_other_documents_are_refused_with_the_reason(text: str, why: str) -> None:
    assert rows(text) == [(text, why)]


@pytest.mark.parametrize(
    "text",
    [
        '{"op":"d","op":"c","after":{"id":2},"before":{"id":2}}',
        '{"op":"c", "after": {"id": 2, "a": 1, "a": 2}}',
        '{"op":"c","after":{"id":2,"b":[{"a":1,"a":2}]}}',
        '{"op":"c","after":{"id":2},"source":{"lsn":1,"lsn":2,"sequence":"[\\"1\\",\\"2\\"]"}}',
        '{"op":"c","after":{"a":"\\u0022","a":"\\u0022\\u0022\\u0022"}}',
        '{"payload":{"op":"c","after":{"id":2}},"schema":{"a":1,"a":2}}',
    ],
)
def test_an_envelope_with_a_key_twice_is_kept_whole(text: str) -> None:
    ((kept, why),) = rows(text)
    assert kept == text
    assert re.fullmatch("not JSON: the key '[a-z]+' appears twice in one object", why)


def test_the_string_of_a_document_has_each_key_once() -> None:
    ((_, why),) = rows(json.dumps({"op": "c", "after": '{"_id": 1, "_id": 2}'}))
    assert why == "not a change: after is a string, but not one of an object: the key '_id' appears twice in one object"


def test_a_truncation_refuses_the_batch() -> None:
    with pytest.raises(SourceError, match=r"it truncates its table.*skipped\.operations=t"):
        list(EnvelopeReader(DEBEZIUM).read(json.dumps(truncation()).encode()))


def test_numbers_keep_their_spelling() -> None:
    ((text, _),) = EnvelopeReader(DEBEZIUM).read(
        b'{"op":"c","after": {"a": 12.50, "b": 1e3, "c": 12345678901234567890} }'
    )
    assert text == b'{"a": 12.50, "b": 1e3, "c": 12345678901234567890,"_op":"c"}'
    assert list(EnvelopeReader(DEBEZIUM).read(b'{"op":"c","after":{}}')) == [(b'{"_op":"c"}', "")]


def test_another_shape_by_its_paths() -> None:
    maxwell = Envelope("type", (), "data", "data", ("type",), deletes=frozenset({"delete"}))
    dms = Envelope("metadata.operation", (), "data", "data", ("metadata", "operation"), deletes=frozenset({"delete"}))
    insert = {"database": "shop", "type": "insert", "ts": 1477053217, "data": {"id": 1}}
    assert rows(json.dumps(insert), maxwell) == [
        ({"id": 1, "_database": "shop", "_type": "insert", "_ts": 1477053217}, "")
    ]
    delete = {"data": {"id": 1}, "metadata": {"operation": "delete"}}
    assert rows(json.dumps(delete), dms) == [({"id": 1, "_metadata": {"operation": "delete"}}, "")]


def test_operations_may_be_integers() -> None:
    own = Envelope("op", (), "data", "data", ("op",), frozenset({1, 2}), frozenset({3}))
    assert rows('{"op": 3, "data": {"id": 1}}', own) == [({"id": 1, "_op": 3}, "")]
    assert rows('{"op": -0, "data": {"id": 1}}', own)[0][1] == "not a change: operation 0 does not change a row"
    for op in ('"3"', "true", "3.0", "null", "[3]", str(10**30)):
        text = f'{{"op": {op}, "data": {{"id": 1}}}}'
        assert rows(text, own) in (
            [(text, "not an envelope: it has no integer in op")],
            [(text, f"not a change: operation {op} does not change a row")],
        )


PLACEHOLDER = "__debezium_unavailable_value"
BASE64 = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
HEX = "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"


def event(**after: Any) -> dict[str, Any]:
    return {"op": "u", "after": {"id": 1, **after}, "source": {"connector": "postgresql", "lsn": 7}}


@pytest.mark.parametrize(
    "value",
    [
        *(PLACEHOLDER, BASE64, HEX, HEX.upper()),
        *([PLACEHOLDER], [BASE64], [HEX], [*PLACEHOLDER.encode()]),
        ["df7b3c1e-0e0c-3b0f-8b0f-0a0e0f0e0d0c"],
        {PLACEHOLDER: PLACEHOLDER},
        *(f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}', f'{{"{PLACEHOLDER}": "{PLACEHOLDER}"}}'),
    ],
)
def test_a_value_that_the_source_did_not_send_is_named(value: Any) -> None:
    if isinstance(value, list) and isinstance(value[0], str) and len(value[0]) == 36:
        value = [str(UUID(bytes=md5(PLACEHOLDER.encode()).digest(), version=3))]
    for indent in (None, 1):
        ((row, why),) = rows(json.dumps(event(v=value, w="x"), indent=indent))
        assert (why, row["_unchanged"], "v" in row, row["w"]) == ("", ["v"], False, "x")


@pytest.mark.parametrize(
    "value",
    [
        *("", "x", f"{PLACEHOLDER}!", f"x {PLACEHOLDER}", [], [PLACEHOLDER, PLACEHOLDER], [PLACEHOLDER, "x"]),
        *({"a": PLACEHOLDER}, {PLACEHOLDER: 1}, [[PLACEHOLDER]], None, 95, [95, 95], [*map(str, PLACEHOLDER.encode())]),
        *(BASE64[:-1], f"{HEX[:-1]}F", [*PLACEHOLDER.encode(), 1], '{"a": 1}'),
    ],
)
def test_any_other_value_is_the_value(value: Any) -> None:
    ((row, why),) = rows(json.dumps(event(v=value)))
    assert (why, "_unchanged" in row, row["v"]) == ("", False, value)


def test_the_connector_may_have_another_placeholder() -> None:
    own = replace(DEBEZIUM, unavailable=("n/a",))
    ((row, _),) = rows(json.dumps(event(v="n/a", w=["bi9h"], x=PLACEHOLDER)), own)
    assert (row["_unchanged"], row["x"]) == (["v", "w"], PLACEHOLDER)
    described = Envelope("type", before="data", after="data", op=("type",), unavailable=("(same)",))
    ((row, _),) = rows('{"type": "update", "data": {"id": 1, "v": "(same)"}}', described)
    assert row == {"id": 1, "_type": "update", "_unchanged": ["v"]}


def tool_event(shape: str, op: str, *found: dict[str, Any]) -> dict[str, Any]:
    """An event with the fields that the documentation of a tool shows."""
    row = found[0] if found else None
    if shape == "maxwell":
        old = {"old": {"name": "before"}} if op == "update" else {}
        place = {"database": "shop", "table": "orders", "type": op, "ts": 1477053217, "xid": 23396}
        return {**place, "commit": True, "position": "master.000006:800911", "data": row, **old}
    if shape == "canal":
        types = {"sqlType": {"id": 4}, "mysqlType": {"id": "int(11)"}, "pkNames": ["id"]}
        times = {"es": 1600461733000, "ts": 1600461733560, "id": 17, "isDdl": not found, "sql": "", "old": None}
        return {"data": list(found) or None, "database": "shop", "table": "orders", "type": op, **times, **types}
    if shape == "dms":
        kind = "data" if found else "control"
        said = {"timestamp": "2021-02-18T23:57:11.970360Z", "record-type": kind, "operation": op}
        metadata = {**said, "schema-name": "shop", "table-name": "orders", "transaction-id": 87978110091475}
        return {**({"data": row} if found else {}), "metadata": metadata}
    metadata = {"table": "orders", "change_type": op, "is_deleted": op.endswith("DELETE"), "tx_id": 11}
    times = {"read_timestamp": "2019-11-07T07:37:16.808Z", "source_timestamp": "2019-11-07T02:15:39"}
    return {"stream_name": "s", "object": "shop.orders", **times, "source_metadata": metadata, "payload": row}


ROW = {"id": 1, "name": "Ada", "price": "12.50"}
OPERATIONS = {
    "maxwell": ("insert update delete bootstrap-insert", "bootstrap-start table-create table-alter database-drop"),
    "canal": ("INSERT UPDATE DELETE", "ALTER CREATE ERASE QUERY"),
    "dms": ("load insert update delete", "create-table drop-table add-column"),
    "datastream": ("INSERT UPDATE UPDATE-INSERT UPDATE-DELETE DELETE", ""),
}


@pytest.mark.parametrize("shape", OPERATIONS)
def test_the_events_of_other_tools(shape: str) -> None:
    changes, without_row = map(str.split, OPERATIONS[shape])
    envelope = ENVELOPES[shape]
    for op in changes:
        ((row, why),) = rows(json.dumps(tool_event(shape, op, ROW)), envelope)
        assert not why
        assert {name: row[name] for name in ROW} == ROW
        said: Any = row
        for step in envelope.op_column:
            said = said[step]
        assert said == op
        assert "_data" not in row
        assert "_payload" not in row
    for op in without_row:
        assert rows(json.dumps(tool_event(shape, op)), envelope) == []
    ((_, why),) = rows(json.dumps(tool_event(shape, "other", ROW)), envelope)
    assert why == "not a change: operation other does not change a row"
    ((_, why),) = rows(json.dumps(tool_event(shape, changes[0])), envelope)
    assert "missing or null" in why
    assert envelope.deletes <= set(changes)
    assert envelope.upserts | envelope.deletes >= set(changes)


@pytest.mark.parametrize(("shape", "op"), [("canal", "TRUNCATE"), ("dms", "truncate-table")])
def test_a_truncation_of_another_tool_refuses_the_batch(shape: str, op: str) -> None:
    with pytest.raises(SourceError, match=f"truncates its table \\(operation {op}\\).* load the rest\\.$"):
        list(EnvelopeReader(ENVELOPES[shape]).read(json.dumps(tool_event(shape, op)).encode()))


def test_an_event_may_have_several_rows() -> None:
    found = rows(json.dumps(tool_event("canal", "UPDATE", {"id": "1"}, {"id": "2", "v": None})), ENVELOPES["canal"])
    assert [(row["id"], row["_es"], why) for row, why in found] == [("1", 1600461733000, ""), ("2", 1600461733000, "")]
    for bad in ([], [1], [{"id": 1}, None], [[{"id": 1}]]):
        broken = {**tool_event("canal", "INSERT", ROW), "data": bad}
        ((text, why),) = rows(json.dumps(broken), ENVELOPES["canal"])
        assert why
        assert json.loads(text) == broken


def test_rows_in_a_list_may_have_nan() -> None:
    text = b'{"type": "INSERT", "data": [{"id": 1, "v": NaN}, {"id": 12.50, "v": "x"}]}'
    found = list(EnvelopeReader(ENVELOPES["canal"], allows_nan=True).read(text))
    assert [row for row, why in found if not why] == [
        b'{"id":1,"v":NaN,"_type":"INSERT"}',
        b'{"id":12.50,"v":"x","_type":"INSERT"}',
    ]
    proven = list(read_envelopes(text, ENVELOPES["canal"], allows_nan=True))
    assert [sorted(row) for row in proven if isinstance(row, dict)] == [["_type", "id", "v"]] * 2


@pytest.mark.parametrize(
    "value",
    [
        {"ts_ms": 1559033904863},
        {"status": "BEGIN", "id": "571:53195829", "event_count": None, "data_collections": None, "ts_ms": 1},
        {"source": {}, "ts_ms": 1, "databaseName": "shop", "schemaName": None, "ddl": "ALTER …", "tableChanges": []},
        {"schema": {"type": "struct"}, "payload": {"ts_ms": 1559033904863}},
    ],
)
def test_events_of_debezium_without_a_row_have_no_record(value: dict[str, Any]) -> None:
    assert rows(json.dumps(value)) == []
    ((_, why),) = rows(json.dumps({**value.get("payload", value), "more": 1}))
    assert why


def test_both_readers_agree_on_generated_events() -> None:
    """2,000 events of each tool with odd rows, odd operations and missing fields."""
    seed = random.Random(45)
    values = [None, 1, "x", 12.5, True, [], {}, [1, {"a": None}], {"b": [{}]}]
    for shape in ("debezium", *OPERATIONS):
        ops = [*ENVELOPES[shape].upserts, *ENVELOPES[shape].deletes, *ENVELOPES[shape].ignores, "other", ""]
        ops.sort()
        kept = 0
        for _ in range(2_000):
            made = [{seed.choice("abc_"): seed.choice(values) for _ in range(3)} for _ in range(seed.randrange(3))]
            if shape == "debezium":
                state = made[0] if made else None
                found: Any = {"op": seed.choice(ops), "before": state, "after": state, "source": seed.choice(values)}
            else:
                found = tool_event(shape, seed.choice(ops), *made)
            if seed.random() < 0.3:
                found[seed.choice(sorted(found))] = seed.choice(values)
            if seed.random() < 0.2:
                del found[seed.choice(sorted(found))]
            kept += sum(not why for _, why in rows(json.dumps(found), ENVELOPES[shape]))
        assert kept > 200
