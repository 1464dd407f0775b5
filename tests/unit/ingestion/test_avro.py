"""Avro files, read by fastavro without Spark."""

from __future__ import annotations

import bz2
import json
import lzma
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import widen
from support.bad_files import SYNC, _avro_text, _varint
from widen.errors import CorruptFile, EngineUnsuitable, InternalError, SourceContentError
from widen.sources import avro_columns, converted_files


def record(*fields: tuple[str, Any], name: str = "r", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, **more, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def logical(of: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": of, "logicalType": kind, **more}


def write(path: Path, schema: Any, rows: Sequence[Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, **options)
    return path


def load(source: Path, table: Path, **options: Any) -> widen.IngestResult:
    done = widen.ingest(source, table, verify=True, engine="local", **options)
    assert done.verification is not None
    assert str(done.verification).endswith("leaves exact")
    return done


def rows(table: Path, *keys: str) -> list[Any]:
    found = widen.Table(table).to_arrow().to_pylist()
    found.sort(key=lambda row: row["id"])
    return [tuple(row[key] for key in keys) for row in found] if keys else found


def types(table: Path) -> dict[str, str]:
    return {field.name: field.type.sql for field in widen.Table(table).schema}


UTC = timezone.utc
DAY, MOMENT = date(2024, 1, 31), datetime(2024, 1, 31, 12, 30, 1, 2, tzinfo=UTC)
LEAVES: list[tuple[Any, Any, str, Any]] = [
    ("boolean", True, "boolean", True),
    ("int", -(2**31), "int", -(2**31)),
    ("long", 2**63 - 1, "bigint", 2**63 - 1),
    ("float", 1.5, "double", 1.5),
    ("double", -0.0, "double", -0.0),
    ("bytes", b"\0\xff", "binary", b"\0\xff"),
    ("string", "ä", "string", "ä"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", "string", "B"),
    ({"type": "fixed", "name": "f", "size": 2}, b"\1\2", "binary", b"\1\2"),
    (logical("int", "date"), DAY, "date", DAY),
    (logical("int", "time-millis"), time(1, 2, 3, 4000), "string", "01:02:03.004"),
    (logical("long", "time-micros"), time(1, 2, 3, 4), "string", "01:02:03.000004"),
    (
        logical("long", "timestamp-millis"),
        MOMENT.replace(microsecond=3000),
        "timestamp",
        MOMENT.replace(microsecond=3000),
    ),
    (logical("long", "timestamp-micros"), MOMENT, "timestamp", MOMENT),
    (logical("long", "timestamp-nanos"), 1_706_704_201_000_002_000, "timestamp", MOMENT),
    (
        logical("long", "local-timestamp-micros"),
        MOMENT.replace(tzinfo=None),
        "timestamp_ntz",
        MOMENT.replace(tzinfo=None),
    ),
    (logical("bytes", "decimal", precision=5, scale=2), Decimal("-1.25"), "decimal(5,2)", Decimal("-1.25")),
    (
        logical("fixed", "decimal", name="f", size=9, precision=20, scale=0),
        Decimal(10**19),
        "decimal(20,0)",
        Decimal(10**19),
    ),
    (logical("bytes", "decimal", precision=60, scale=1), Decimal("0.5"), "decimal(38,1)", Decimal("0.5")),
    (logical("string", "uuid"), str(UUID(int=7)), "string", str(UUID(int=7))),
    (logical("fixed", "uuid", name="f", size=16), UUID(int=7).bytes, "string", str(UUID(int=7))),
    (logical("long", "no such type"), 7, "bigint", 7),
    (
        logical("fixed", "duration", name="f", size=12),
        b"".join(each.to_bytes(4, "little") for each in (1, 2, 2**32 - 1)),
        "struct<days: bigint, milliseconds: bigint, months: bigint>",
        {"months": 1, "days": 2, "milliseconds": 2**32 - 1},
    ),
    ({"type": "array", "items": ["null", "int"]}, [1, None], "array<int>", [1, None]),
    ({"type": "map", "values": "string"}, {"a": "x", "b": "y"}, "map<string,string>", [("a", "x"), ("b", "y")]),
    (
        record(("x", "int"), ("y", ["null", "string"]), name="s"),
        {"x": 1, "y": None},
        "struct<x: int, y: string>",
        {"x": 1, "y": None},
    ),
]


@pytest.mark.parametrize(("kind", "value", "column", "expected"), LEAVES)
def test_every_type_has_its_column(tmp_path: Path, kind: Any, value: Any, column: str, expected: Any) -> None:
    optional = ["null", kind]
    schema = record(("id", "int"), ("x", kind), ("o", optional), ("l", {"type": "array", "items": "int"}))
    parts = [{"id": 1, "x": value, "o": value, "l": []}, {"id": 2, "x": value, "o": None, "l": [1]}]
    if isinstance(kind, dict) and "name" in kind:
        schema["fields"][2]["type"] = ["null", kind["name"]]
    load(write(tmp_path / "a.avro", schema, parts), tmp_path / "t")
    assert types(tmp_path / "t")["x"] == column
    assert rows(tmp_path / "t", "x", "o", "l") == [(expected, expected, []), (expected, None, [1])]


def test_values_of_a_union_go_to_columns_by_their_kind(tmp_path: Path) -> None:
    kinds = ["null", "string", "long", "int", logical("long", "timestamp-micros")]
    branches = [
        b"\0",
        b"\2" + _avro_text(b"a"),
        b"\4" + _varint(2**40),
        b"\6" + _varint(7),
        b"\x08" + _varint(7),
    ]
    block = b"".join(_varint(at) + branch for at, branch in enumerate(branches))
    schema = record(("id", "int"), ("x", kinds))
    (tmp_path / "a.avro").write_bytes(container("null", (len(branches), block), schema=schema))
    load(tmp_path / "a.avro", tmp_path / "t")
    assert types(tmp_path / "t") == {"id": "int", "x": "string", "x_long": "bigint", "x_timestamp": "timestamp"}
    assert rows(tmp_path / "t", "x", "x_long", "x_timestamp") == [
        (None, None, None),
        ("a", None, None),
        (str(2**40), 2**40, datetime(2004, 11, 3, 19, 53, 47, 776_000, UTC)),  # a column of times takes epochs
        ("7", 7, datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)),
        ("1970-01-01T00:00:00.000007Z", None, datetime(1970, 1, 1, 0, 0, 0, 7, UTC)),
    ]


def test_two_unions_and_unions_in_records_of_unions(tmp_path: Path) -> None:
    inner = record(("y", ["int", "string"]), name="s")
    schema = record(("id", "int"), ("a", ["string", inner]), ("b", ["null", "s"]), ("c", ["double", "float", "bytes"]))
    parts = [
        {"id": 0, "a": "t", "b": {"y": 1}, "c": 1.5},
        {"id": 1, "a": {"y": "u"}, "b": None, "c": b"v"},
        {"id": 2, "a": {"y": 5}, "b": {"y": "w"}, "c": 2.5},
    ]
    load(write(tmp_path / "a.avro", schema, parts), tmp_path / "t")
    found = {key: [row.get(key) for row in rows(tmp_path / "t")] for key in types(tmp_path / "t")}
    assert found["a_string"] == ["t", None, None]
    assert found["a"] == [None, {"y": "u", "y_int": None}, {"y": "5", "y_int": 5}]
    assert found["c"] == [1.5, None, 2.5]
    assert found["c_binary"] == [None, b"v", None]
    assert [each and each["y"] for each in found["b"]] == ["1", None, "w"]


def test_unions_in_lists_are_structs_by_kind(tmp_path: Path) -> None:
    kinds = ["null", "string", "int", "long", record(("y", "int"), name="ns.s")]
    schema = record(
        ("id", "int"), ("x", {"type": "array", "items": kinds}), ("m", {"type": "map", "values": ["int", "string"]})
    )
    source = write(tmp_path / "a.avro", schema, [{"id": 0, "x": ["a", 1, None, {"y": 2}], "m": {"k": 5, "l": "v"}}])
    load(source, tmp_path / "t")
    empty: dict[str, Any] = {"string": None, "long": None, "s": None}
    assert rows(tmp_path / "t", "x", "m") == [
        (
            [{**empty, "string": "a"}, {**empty, "long": 1}, None, {**empty, "s": {"y": 2}}],
            [("k", {"int": 5, "string": None}), ("l", {"int": None, "string": "v"})],
        )
    ]


def test_names_with_namespaces_are_found(tmp_path: Path) -> None:
    color = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}
    schema = record(("id", "int"), ("c", color), ("d", ["null", "Color"]), ("e", "shop.Color"), namespace="shop")
    load(write(tmp_path / "a.avro", schema, [{"id": 1, "c": "red", "d": "blue", "e": "red"}]), tmp_path / "t")
    assert rows(tmp_path / "t", "c", "d", "e") == [("red", "blue", "red")]


def _snappy(block: bytes) -> bytes:
    return pa.compress(block, "snappy", asbytes=True) + zlib.crc32(block).to_bytes(4, "big")


def _deflate(block: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(block) + packer.flush()


PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": _deflate,
    "snappy": _snappy,
    "zstandard": lambda block: pa.compress(block, "zstd", asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def container(codec: str, *blocks: tuple[int, bytes], schema: Any = None) -> bytes:
    text = json.dumps(schema or record(("id", "long"), ("s", "string"))).encode()
    head = b"Obj\x01" + _varint(2) + _avro_text(b"avro.schema") + _avro_text(text)
    parts = [head + _avro_text(b"avro.codec") + _avro_text(codec.encode()) + b"\0" + SYNC]
    return b"".join(parts + [_varint(count) + _avro_text(PACKERS[codec](block)) + SYNC for count, block in blocks])


TWO = _varint(1) + _avro_text(b"a") + _varint(2) + _avro_text(b"b" * 300)


@pytest.mark.parametrize("codec", PACKERS)
def test_every_codec_of_the_specification_is_read(tmp_path: Path, codec: str) -> None:
    (tmp_path / "a.avro").write_bytes(container(codec, (2, TWO), (0, b""), (2, TWO)))
    assert load(tmp_path / "a.avro", tmp_path / "t").records == 4
    assert rows(tmp_path / "t", "s") == [("a",), ("a",), ("b" * 300,), ("b" * 300,)]


DAMAGED: Mapping[str, bytes] = {
    "the magic": b"Obj\x02" + container("null", (2, TWO))[4:],
    "the end": container("null", (2, TWO))[:-20],
    "the end of the header": container("null")[:-8],
    "the sync marker": container("null", (2, TWO))[:-1] + b"?",
    "more records than the block has": container("null", (3, TWO)),
    "fewer records than the block has": container("null", (1, TWO)),
    "deflate": container("deflate", (2, TWO)).replace(_deflate(TWO), b"\xff" * len(_deflate(TWO))),
    "snappy": container("snappy", (2, TWO)).replace(_snappy(TWO)[-4:], b"\0\0\0\0"),
    "the schema": container("null", (2, TWO)).replace(b'"fields"', b'"fieldz"'),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_file_is_named(tmp_path: Path, what: str) -> None:
    (tmp_path / "a.avro").write_bytes(DAMAGED[what])
    with pytest.raises(CorruptFile, match=r"a\.avro"):
        widen.ingest(tmp_path / "a.avro", tmp_path / "t", engine="local")
    assert not (tmp_path / "t").exists()


REFUSED = {
    "unknown codec": (container("null").replace(b"\x08null", b"\x08brot"), "the unknown codec brot"),
    "no record": (container("null", (1, _varint(1)), schema="long"), "is not a record"),
    "recursion": (
        container("null", schema=record(("n", ["null", "r"]))),
        "the record r of its Avro schema contains itself, in the field n",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_table_holds_is_refused_with_the_way_out(tmp_path: Path, what: str) -> None:
    content, reason = REFUSED[what]
    (tmp_path / "a.avro").write_bytes(content)
    with pytest.raises(SourceContentError, match=reason):
        widen.ingest(tmp_path / "a.avro", tmp_path / "t", engine="local")


def test_records_with_texts_that_are_not_utf8_are_corrupt(tmp_path: Path) -> None:
    bad = _varint(3) + _avro_text(b"\xff")
    (tmp_path / "a.avro").write_bytes(container("null", (2, TWO), (1, bad)))
    done = widen.ingest(tmp_path / "a.avro", tmp_path / "t", engine="local")
    assert (done.records, done.corrupt) == (2, 1)
    found = widen.Table(tmp_path / "t").to_arrow()["_corrupt_record"].drop_null().to_pylist()
    assert len(found) == 1
    assert "3" in found[0]


def test_the_quarantine_names_the_record_of_the_file(tmp_path: Path) -> None:
    table, quarantine = tmp_path / "t", tmp_path / "q"
    required = pa.schema([pa.field("id", pa.int32()), pa.field("n", pa.int64(), nullable=False)])
    DeltaTable.create(str(table), required)
    schema = record(("id", "int"), ("n", ["null", "long"]), ("x", ["long", "string"]))
    values: list[Any] = [(1, 1), (None, "a"), (2, "b"), (None, 2), (5, 1)]
    source = write(tmp_path / "a.avro", schema, [{"id": at, "n": n, "x": x} for at, (n, x) in enumerate(values)])
    done = widen.ingest(source, table, engine="local", quarantine=quarantine, verify=True)
    assert (done.records, done.quarantined, str(done.verification)) == (3, 2, "13 of 13 leaves exact")
    found = widen.Table(quarantine).to_arrow().to_pylist()
    assert sorted((Path(row["file"]).name, row["position"]) for row in found) == [("a.avro", 2), ("a.avro", 4)]


def test_folders_and_files_give_their_fields(tmp_path: Path) -> None:
    schema = record(("id", "int"), ("day", "string"))
    for number, day in enumerate(("2024-01-01", "2024-01-02")):
        write(tmp_path / "in" / f"day={day}" / "region=eu" / "a.avro", schema, [{"id": number, "day": "x"}])
    load(tmp_path / "in", tmp_path / "t", source_columns=True, new=True)
    assert rows(tmp_path / "t", "day", "day_2", "region") == [("x", "2024-01-01", "eu"), ("x", "2024-01-02", "eu")]
    assert [Path(name).parts[-3:] for (name,) in rows(tmp_path / "t", "_source_file")] == [
        (f"day={day}", "region=eu", "a.avro") for day in ("2024-01-01", "2024-01-02")
    ]
    assert widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", new=True).is_unchanged


def test_files_whose_schemas_differ_load_together(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.avro", record(("id", "int"), ("x", "int")), [{"id": 1, "x": 1}])
    write(
        tmp_path / "in" / "b.avro", record(("id", "long"), ("x", "string"), ("y", "int")), [{"id": 2, "x": "a", "y": 3}]
    )
    load(tmp_path / "in", tmp_path / "t")
    assert types(tmp_path / "t") == {"id": "bigint", "x": "string", "x_int": "int", "y": "int"}


def test_a_file_without_records_has_columns(tmp_path: Path) -> None:
    schema = record(("id", "int"), ("x", ["null", "string", "long"]))
    write(tmp_path / "in" / "a.avro", schema, [])
    write(tmp_path / "in" / "b.avro", schema, [{"id": 1, "x": 5}])
    assert load(tmp_path / "in", tmp_path / "t").records == 1


def test_without_fastavro_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "a.avro", record(("id", "int")), [{"id": 1}])
    monkeypatch.setattr(converted_files, "has_avro_reader", lambda: False)
    with pytest.raises(EngineUnsuitable, match=r"pip install 'widen\[avro\]' reads them without it"):
        widen.ingest(source, tmp_path / "t", engine="local")


def test_the_proof_finds_values_that_were_read_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(
        tmp_path / "a.avro", record(("id", "int"), ("s", "string")), [{"id": 1, "s": "a"}, {"id": 2, "s": "b"}]
    )
    split = avro_columns._AvroSchema.split

    def swapped(self: Any, records: Any, first: int) -> Any:
        return split(self, [{**each, "s": "a"} for each in records], first)

    def dropped(self: Any, records: Any, first: int) -> Any:
        return split(self, records[:-1], first)

    for number, wrong in enumerate((swapped, dropped)):
        monkeypatch.setattr(avro_columns._AvroSchema, "split", wrong)
        with pytest.raises(
            widen.errors.WidenError, match="was not read as its format defines: record 2 differs"
        ) as raised:
            widen.ingest(source, tmp_path / f"t{number}", engine="local", verify=True)
        assert any(isinstance(each, InternalError) for each in (raised.value, raised.value.__cause__))


def test_temporary_files_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    load(write(tmp_path / "a.avro", record(("id", "int")), [{"id": 1}]), tmp_path / "t")
    assert [*(tmp_path / "tmp").iterdir()] == []


# ---- generated -------------------------------------------------------------------------------------


def _type(chance: random.Random, depth: int, names: list[int]) -> Any:
    """Return a type without unions of several kinds, whose values a table holds as they are."""
    kinds = ["boolean", "int", "long", "double", "bytes", "string", "date", "micros", "decimal", "enum"]
    kind = chance.choice(kinds + ["array", "map", "record", "optional"] * (depth > 0))
    names[0] += 1
    match kind:
        case "date":
            return logical("int", "date")
        case "micros":
            return logical("long", "timestamp-micros")
        case "decimal":
            return logical("bytes", "decimal", precision=12, scale=3)
        case "enum":
            return {"type": "enum", "name": f"e{names[0]}", "symbols": ["A", "B"]}
        case "array":
            return {"type": "array", "items": _type(chance, depth - 1, names)}
        case "map":
            return {"type": "map", "values": _type(chance, depth - 1, names)}
        case "record":
            name = f"r{names[0]}"
            return record(
                *((f"f{at}", _type(chance, depth - 1, names)) for at in range(chance.randint(1, 3))), name=name
            )
        case "optional":
            both = ["null", _type(chance, 0, names)]
            return both if chance.random() < 0.5 else both[::-1]
    return kind


def _value(chance: random.Random, kind: Any) -> tuple[Any, Any]:
    """Return a value for fastavro, and what a table must have."""
    if isinstance(kind, list):
        inner = next(each for each in kind if each != "null")
        return (None, None) if chance.random() < 0.3 else _value(chance, inner)
    if isinstance(kind, str):
        value: Any = {
            "boolean": chance.random() < 0.5,
            "int": chance.randint(-(2**31), 2**31 - 1),
            "long": chance.randint(-(2**63), 2**63 - 1),
            "double": chance.choice([chance.gauss(0, 1e10), 0.0, -0.0, float("inf")]),
            "bytes": chance.randbytes(chance.randint(0, 9)),
            "string": "".join(chance.choice("ab äß𝄞\0") for _ in range(chance.randint(0, 5))),
        }[kind]
        return value, value
    match kind["type"], kind.get("logicalType"):
        case "record", _:
            pairs = {each["name"]: _value(chance, each["type"]) for each in kind["fields"]}
            return {key: one for key, (one, _) in pairs.items()}, {key: other for key, (_, other) in pairs.items()}
        case "array", _:
            both = [_value(chance, kind["items"]) for _ in range(chance.randint(0, 3))]
            return [one for one, _ in both], [other for _, other in both]
        case "map", _:
            entries = {key: _value(chance, kind["values"]) for key in "ab"[: chance.randint(0, 2)]}
            return {key: one for key, (one, _) in entries.items()}, [
                (key, other) for key, (_, other) in entries.items()
            ]
        case "enum", _:
            value = chance.choice(kind["symbols"])
        case _, "date":
            value = date.fromordinal(chance.randint(600_000, 800_000))
        case _, "timestamp-micros":
            value = datetime.fromtimestamp(chance.randint(0, 2**31), UTC).replace(
                microsecond=chance.randint(0, 999_999)
            )
        case _:
            value = Decimal(chance.randint(-(10**12) + 1, 10**12 - 1)).scaleb(-3)
    return value, value


@pytest.mark.parametrize("seed", range(25))
def test_generated_records_arrive_as_they_were_encoded(tmp_path: Path, seed: int) -> None:
    chance, names = random.Random(seed), [0]
    schema = record(("id", "int"), *((f"c{at}", _type(chance, 2, names)) for at in range(4)))
    both = [_value(chance, schema) for _ in range(80)]
    for number, (one, other) in enumerate(both):
        one["id"] = other["id"] = number
    source = write(tmp_path / "a.avro", schema, [one for one, _ in both], codec=chance.choice(["null", "deflate"]))
    load(source, tmp_path / "t", max_keys=10_000)
    found = rows(tmp_path / "t")
    for (_, expected), row in zip(both, found, strict=True):
        assert {key: row.get(key) for key in expected} == expected
