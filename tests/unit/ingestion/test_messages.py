"""Messages that are not JSON: Avro with the number of its schema, from a folder and a registry, and own functions."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

import widen
from support.fault import FULL
from widen.errors import InvalidOption, SourceError
from widen.log.message_decoders import fetch_schema
from widen.table import create_table

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
# id 1 is zigzag 2; the union's branch 1; "cup" has 3 bytes; 12.50 is 1250 = 0x04E2; 1548728696789 ms.
ORDER_BYTES = bytes.fromhex("00 00000007") + bytes.fromhex("02 02 06 63 75 70 04 04e2")


def long_bytes(number: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def frame(number: int, schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return b"\0" + struct.pack(">I", number) + out.getvalue()


def messages(*values: bytes | None) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def folder(path: Path, **schemas: Any) -> str:
    path.mkdir(exist_ok=True)
    for name, schema in schemas.items():
        (path / f"{name.removeprefix('_')}.avsc").write_text(json.dumps(schema))
    return f"registry:{path}"


def load(into: Path, source: Any, dialect: str, **options: Any) -> list[dict[str, Any]]:
    result = widen.ingest(source, into, format="json", dialect=dialect, verify=True, engine="local", **options)
    assert result.verification is not None
    assert result.verification.is_clean
    return rows(into)


def rows(table: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if v is not None} for row in widen.Table(table).to_arrow().to_pylist()]


def test_bytes_typed_by_hand(tmp_path: Path) -> None:
    """The layout of Confluent's wire format and of the binary encoding of the Avro specification."""
    text = ORDER_BYTES + long_bytes(1_548_728_696_789)
    found = load(tmp_path / "t", messages(text, None), folder(tmp_path / "s", _7=ORDER))
    at = datetime(2019, 1, 29, 2, 24, 56, 789_000, timezone.utc)
    assert found == [{"id": 1, "name": "cup", "total": Decimal("12.50"), "at": at}]
    types = {field.name: str(field.type) for field in widen.Table(tmp_path / "t").schema}
    assert types["id"] == "long"  # and not the int that the value would fit
    assert types["total"] == "decimal(10,2)"


LOGICAL: list[tuple[Any, Any, Any]] = [
    ({"type": "int", "logicalType": "date"}, date(2024, 1, 29), date(2024, 1, 29)),
    ({"type": "int", "logicalType": "time-millis"}, 3_723_004, "01:02:03.004000"),
    ({"type": "long", "logicalType": "time-micros"}, 3_723_000_004, "01:02:03.000004"),
    ({"type": "long", "logicalType": "timestamp-micros"}, 10**15, datetime(2001, 9, 9, 1, 46, 40, 0, timezone.utc)),
    ({"type": "long", "logicalType": "timestamp-nanos"}, 10**18, datetime(2001, 9, 9, 1, 46, 40, 0, timezone.utc)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 10**12 + 5, "2001-09-09T01:46:40.005000"),
    ({"type": "string", "logicalType": "uuid"}, str(UUID(int=7)), str(UUID(int=7))),
    ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, UUID(int=7).bytes, str(UUID(int=7))),
    (
        {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
        struct.pack("<3I", 1, 2, 3),
        {"months": 1, "days": 2, "milliseconds": 3},
    ),
    (
        {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 3},
        (-1_500).to_bytes(3, "big", signed=True),
        Decimal("-1.500"),
    ),
    ({"type": "bytes"}, b"\x00\xff", b64encode(b"\x00\xff").decode()),
    ("float", 0.5, 0.5),
    ("double", float("inf"), float("inf")),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "b"),
    ({"type": "map", "values": "int"}, {"x": 1}, {"x": 1}),
    ({"type": "int", "connect.name": "io.debezium.time.Date"}, 19_751, date(2024, 1, 29)),
    (
        {
            "type": "record",
            "name": "VariableScaleDecimal",
            "namespace": "io.debezium.data",
            "connect.name": "io.debezium.data.VariableScaleDecimal",
            "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        },
        {"scale": 2, "value": b"\x04\xe2"},
        Decimal("12.50"),
    ),
]


@pytest.mark.parametrize(("kind", "value", "expected"), LOGICAL, ids=lambda each: str(each)[:40])
def test_types(tmp_path: Path, kind: Any, value: Any, expected: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": ["null", kind]}]}
    plain = json.loads(json.dumps(schema))
    if isinstance(value, (int, bytes)):  # fastavro would ask for objects of Python
        plain["fields"][0]["type"][1].pop("logicalType", None) if isinstance(kind, dict) else None
    text = frame(7, plain, {"v": value})
    found = load(tmp_path / "t", messages(text, frame(7, plain, {"v": None})), folder(tmp_path / "s", _7=schema))
    assert len(found) == 2
    assert [row for row in found if row] == [{"v": expected}]


def test_what_is_not_such_a_message_is_kept(tmp_path: Path) -> None:
    whole = ORDER_BYTES + long_bytes(0)
    unknown, short, long, plain = b"\0\0\0\0\x08ab", whole[:-1], whole + b"\0", b'{"id": 5}'
    place = folder(tmp_path / "s", _7=ORDER)
    found = load(tmp_path / "t", messages(unknown, short, plain, long, b"\0", whole), place)
    kept = {row["_corrupt_record"] for row in found if "_corrupt_record" in row}
    assert kept == {f"base64:{b64encode(each).decode()}" for each in (unknown, short, long, b"\0")}
    assert sorted(row["id"] for row in found if "id" in row) == [1, 5]


def test_a_replay_decodes_messages_whose_schema_is_known_now(tmp_path: Path) -> None:
    place, table = folder(tmp_path / "s", _7=ORDER), tmp_path / "t"
    create_table(str(table), "id bigint NOT NULL, name string")
    later = frame(8, {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}, {"id": 2})
    source = messages(ORDER_BYTES + long_bytes(0), later)
    first = widen.ingest(source, table, format="json", dialect=place, key=["id"], engine="local")
    assert (first.records, first.quarantined) == (1, 1)
    folder(tmp_path / "s", _8={"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    done = widen.replay(tmp_path / "t_quarantine", table, dialect=place, engine="local")
    assert (done.replayed, done.left) == (1, 0)
    assert sorted(row["id"] for row in rows(table)) == [1, 2]


def test_a_record_that_contains_itself(tmp_path: Path) -> None:
    fields = [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "List"]}]
    schema = {"type": "record", "name": "List", "fields": fields}
    text = frame(7, schema, {"n": 1, "next": {"n": 2, "next": {"n": 3, "next": None}}})
    (found,) = load(tmp_path / "t", messages(text), folder(tmp_path / "s", _7=schema))
    assert found == {"n": 1, "next": {"n": 2, "next": {"n": 3}}}


def test_items_without_bytes_are_not_counted_without_end(tmp_path: Path) -> None:
    fields = [{"name": "v", "type": {"type": "array", "items": "null"}}]
    place = folder(tmp_path / "s", _7={"type": "record", "name": "R", "fields": fields})
    endless = b"\0\0\0\0\x07" + long_bytes(2**60) + b"\0"
    found = load(tmp_path / "t", messages(b'{"id": 1}', endless), place)
    assert [row["_corrupt_record"][:7] for row in found if "id" not in row] == ["base64:"]


def debezium(op: str, number: int, row: Any, other: Any = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": number, "sequence": f'["{number}","{number}"]'}
    return {"before": other, "after": row, "op": op, "ts_ms": number, "source": source}


def test_events_of_debezium_by_key(tmp_path: Path) -> None:
    decimal = {
        "type": "bytes",
        "scale": 2,
        "precision": 10,
        "connect.version": 1,
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "logicalType": "decimal",
    }
    time = {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}
    row = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "total", "type": decimal}, {"name": "at", "type": time}],
    }
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [
            {"name": "connector", "type": "string"},
            {"name": "lsn", "type": ["null", "long"]},
            {"name": "sequence", "type": ["null", "string"]},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.public.orders",
        "fields": [
            {"name": "before", "type": ["null", row]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
    one = {"id": 1, "total": Decimal("12.50"), "at": 10**15}
    events = [
        debezium("c", 10, one),
        debezium("u", 11, {**one, "total": Decimal("13.00")}),
        debezium("c", 12, {**one, "id": 2}),
        debezium("d", 13, None, {**one, "id": 2}),
    ]
    source_rows = messages(*(frame(3, envelope, each) for each in events))
    place = folder(tmp_path / "s", _3=envelope)
    (found,) = load(tmp_path / "t", source_rows, place, envelope="debezium", key=["id"])
    at = datetime(2001, 9, 9, 1, 46, 40, 0, timezone.utc)
    assert (found["id"], found["total"], found["at"]) == (1, Decimal("13.00"), at)


# ---- a registry -----------------------------------------------------------------------------------


class Registry(BaseHTTPRequestHandler):
    """Answers like Confluent's Schema Registry."""

    answers: ClassVar[dict[str, Any]] = {}
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        answer = self.answers.get(self.path, (404, {"error_code": 40403, "message": "Schema not found"}))
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Registry.answers, Registry.asked = {}, []
    fetch_schema.cache_clear()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "int"}, {"name": "home", "type": "shop.Address"}],
}


def test_a_registry_with_a_password_and_references(tmp_path: Path, registry: str) -> None:
    reference = {"name": "shop.Address", "subject": "shop/address", "version": 2}
    Registry.answers = {
        "/schemas/ids/9": {"schema": json.dumps(PERSON), "references": [reference]},
        "/subjects/shop%2Faddress/versions/2": {"subject": "shop/address", "schema": json.dumps(ADDRESS)},
        "/schemas/ids/10": {"schema": "{}", "schemaType": "JSON"},
    }
    texts = [b"\0\0\0\0\x09" + long_bytes(each) + b"\x08Graz" for each in range(200)]
    source = messages(*texts, b'\0\0\0\0\x0a{"id": 7000}')
    found = load(tmp_path / "t", source, f"registry:http://ann:s%40cret@{registry}/")
    assert len(found) == 201
    assert {"id": 5, "home": {"city": "Graz"}} in found
    # Once for all messages, by the load as well as by the proof.
    assert sorted(path for path, _ in Registry.asked) == [
        "/schemas/ids/10",
        "/schemas/ids/9",
        "/subjects/shop%2Faddress/versions/2",
    ]
    assert {each for _, each in Registry.asked} == {f"Basic {b64encode(b'ann:s@cret').decode()}"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b"{}"), "it answers /schemas/ids/9 with status 500"),
        ((401, b"{}"), "it answers /schemas/ids/9 with status 401"),
        ((200, b"<html>"), "it cannot be asked for /schemas/ids/9"),
        ((200, b"[]"), "it does not answer /schemas/ids/9 with an object"),
        ({"schemaType": "PROTOBUF", "schema": ""}, "schema 9 is of the type PROTOBUF"),
        ({"schema": "{"}, "a schema is not JSON"),
    ],
)
def test_a_registry_that_fails_ends_the_load(tmp_path: Path, registry: str, answer: Any, words: str) -> None:
    Registry.answers = {"/schemas/ids/9": answer}
    with pytest.raises(SourceError, match=words) as caught:
        load(tmp_path / "t", messages(b"\0\0\0\0\x09\x02"), f"registry:http://ann:secret@{registry}")
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "t").exists()


def test_a_registry_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be asked"):
        load(tmp_path / "t", messages(b"\0\0\0\0\x09\x02"), "registry:http://127.0.0.1:1")


def test_an_unknown_schema_is_asked_for_once(tmp_path: Path, registry: str) -> None:
    source = messages(b'{"id": 1}', *[b"\0\0\0\0\x63\x02"] * 50)
    found = load(tmp_path / "t", source, f"registry:http://{registry}")
    assert [row["_corrupt_record"] for row in found if "id" not in row] == ["base64:AAAAAGMC"] * 50
    assert len(Registry.asked) < 10  # once in each task of the load and the proof


# ---- functions ------------------------------------------------------------------------------------

DECODERS = """
import json

def pairs(message):
    if message == b"none":
        return None
    if b"=" not in message:
        raise ValueError("no pairs")
    return json.dumps(dict(each.split("=") for each in message.decode().split(";")))

number = 7
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_messages.py").write_text(DECODERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_messages"
    sys.modules.pop("own_messages", None)


def test_an_own_function(tmp_path: Path, module: str) -> None:
    source = messages(b"id=1;name=cup", b"none", b"\xff", b"plain", b"id=2")
    found = load(tmp_path / "t", source, f"{module}:pairs")
    kept = [{k: v for k, v in row.items() if k != "_corrupt_at"} for row in found]
    assert sorted(map(str, kept)) == sorted(
        map(
            str,
            [
                {"id": "1", "name": "cup"},
                {"id": "2"},
                {"_corrupt_record": "base64:/w=="},
                {"_corrupt_record": "plain"},
            ],
        )
    )


@pytest.mark.parametrize(
    ("dialect", "words"),
    [
        ("own_messages:missing", "has no function missing"),
        ("own_messages:number", "has no function number"),
        ("no_such_module:decode", "cannot be imported: No module named 'no_such_module'"),
        ("registry:nowhere", "NUMBER.avsc"),
        ("registry:ftp://host", "NUMBER.avsc"),
    ],
)
def test_what_does_not_decode_is_refused(tmp_path: Path, module: str, dialect: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        load(tmp_path / "t", messages(b"a"), dialect)


def test_messages_have_no_records_below_a_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="Messages are decoded to records"):
        load(tmp_path / "t", messages(b"a"), folder(tmp_path / "s"), records="a[*]")


# ---- generated ------------------------------------------------------------------------------------


def generated_type(random: Random, depth: int, names: list[str]) -> Any:
    kinds = ["int", "long", "string", "boolean", "double", "bytes", "enum"]
    kinds += ["record", "array", "map", "union"] if depth < 3 else []
    match random.choice(kinds):
        case "record":
            return generated_record(random, depth + 1, names)
        case "array":
            return {"type": "array", "items": generated_type(random, depth + 1, names)}
        case "map":
            return {"type": "map", "values": generated_type(random, 3, names)}
        case "enum":
            names.append("E")
            return {"type": "enum", "name": f"E{len(names)}", "symbols": ["x", "y"]}
        case "union":
            return ["null", random.choice(["string", "long"])]
        case kind:
            return kind


def generated_record(random: Random, depth: int, names: list[str]) -> Any:
    names.append("R")
    own = f"R{len(names)}"
    fields = [
        {"name": f"f{number}", "type": generated_type(random, depth, names)} for number in range(random.randint(1, 4))
    ]
    return {"type": "record", "name": own, "fields": fields}


def generated_value(random: Random, kind: Any) -> Any:
    """Return a value for the encoder."""
    match kind:
        case "int":
            return random.choice([0, 1, -1, 2**31 - 1, -(2**31)])
        case "long":
            return random.choice([0, -1, 2**63 - 1, -(2**63), random.getrandbits(40)])
        case "string":
            return random.choice(["", "a", "ä\n", '"', "base64:"])
        case "boolean":
            return random.random() < 0.5
        case "double":
            return random.choice([0.5, -1.25, 1e300])
        case "bytes":
            return random.choice([b"a", b"\0\xff"])
        case list():
            return random.choice([None, generated_value(random, kind[1])])
    match kind["type"]:
        case "record":
            return {each["name"]: generated_value(random, each["type"]) for each in kind["fields"]}
        case "array":
            return [generated_value(random, kind["items"]) for _ in range(random.randint(0, 3))]
        case "map":
            return {key: generated_value(random, kind["values"]) for key in random.sample("abc", 2)}
    return random.choice(kind["symbols"])


def plain(value: Any) -> Any:
    match value:
        case bytes():
            return b64encode(value).decode()
        case dict():
            return {key: plain(each) for key, each in value.items()}
        case list():
            return [plain(each) for each in value]
    return value


def test_generated_messages(tmp_path: Path) -> None:
    """Each schema in a table of its own load of JSON: the same documents, as messages and as lines."""
    random = Random(45)
    for number in range(40 if FULL in os.environ else 12):
        schema = generated_record(random, 0, [])
        place = folder(tmp_path / f"s{number}", _1=schema)
        records = [generated_value(random, schema) for _ in range(50)]
        load(tmp_path / f"a{number}", messages(*(frame(1, schema, each) for each in records)), place)
        lines = pa.table({"value": [json.dumps(plain(each)) for each in records]})
        widen.ingest(lines, tmp_path / f"b{number}", format="json", engine="local")
        assert sorted(map(values, rows(tmp_path / f"a{number}"))) == sorted(map(values, rows(tmp_path / f"b{number}")))


def values(row: Any) -> str:
    return json.dumps(row, sort_keys=True, default=str)
