"""Kafka Connect's JSON with a schema part: each type with its value typed by hand, and payloads that are encoded."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import SourceError
from widen.json.connect import ConnectReader
from widen.json.dialect import DIALECTS
from widen.json.document import split_text
from widen.proof.connect_json import ConnectJson

CONNECT = DIALECTS["connect"]
TEXT = replace(CONNECT, nanos="text")


def plain(document: Any, dialect: Any = CONNECT) -> list[Any]:
    """Return the records of a document, or of a text, with the spelling of numbers; the writer and the proof agree."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    found = [part for each in ConnectReader(dialect).read(text) for part in split_text(each, allows_nan=True)]
    assert [_parse(each) for each in ConnectJson(dialect).read(text)] == [_parse(each) for each in found]
    return [_parse(each) for each in found]


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
    except ValueError:
        return text


class _Number(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and str(self) == str(other)

    __hash__ = str.__hash__


def n(text: str) -> _Number:
    return _Number(text)


KAFKA, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


def of(literal: str, name: str = "", **parameters: str) -> dict[str, Any]:
    given = {key.replace("_", "."): value for key, value in parameters.items()}
    schema: dict[str, Any] = {"type": literal, "optional": True}
    schema |= {"name": name, "version": 1} if name else {}
    return schema | ({"parameters": given} if given else {})


POINT = {
    "type": "struct",
    "name": f"{DATA}geometry.Point",
    "fields": [
        {"type": "double", "field": "x"},
        {"type": "double", "field": "y"},
        {"type": "bytes", "field": "wkb"},
        {"type": "int32", "field": "srid"},
    ],
}
VARIABLE = {
    "type": "struct",
    "name": f"{DATA}VariableScaleDecimal",
    "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}],
}
DECIMAL = of("bytes", f"{KAFKA}Decimal", scale="2")

VALUES: list[tuple[dict[str, Any], Any, Any]] = [
    # Source: Kafka Connect, org.apache.kafka.connect.data: big-endian two's complement, days and milliseconds
    (DECIMAL, "BNI=", n("12.34")),
    (DECIMAL, "AA==", n("0.00")),
    (DECIMAL, "/w==", n("-0.01")),
    (DECIMAL, "APw=", n("2.52")),
    (DECIMAL, "/AQ=", n("-10.20")),
    (DECIMAL, None, None),
    (of("bytes", f"{KAFKA}Decimal", scale="0"), "AeJA", n("123456")),
    (of("bytes", f"{KAFKA}Decimal", scale="-2"), "DA==", n("1200")),
    (of("bytes", f"{KAFKA}Decimal", scale="-2"), "AA==", n("0")),
    (of("bytes", f"{KAFKA}Decimal", scale="20"), "AQ==", n("0.00000000000000000001")),
    (of("int32", f"{KAFKA}Date"), 0, "1970-01-01"),
    (of("int32", f"{KAFKA}Date"), -719162, "0001-01-01"),
    (of("int32", f"{KAFKA}Time"), 45296789, "12:34:56.789000"),
    (of("int64", f"{KAFKA}Timestamp"), 1529507596945, "2018-06-20T15:13:16.945000Z"),
    # Source: Debezium, connectors for PostgreSQL, MySQL, Oracle and SQL Server, "data type mappings"
    (of("int32", f"{TIME}Date"), 17702, "2018-06-20"),
    (of("int32", f"{TIME}Date"), -1, "1969-12-31"),
    (of("int32", f"{TIME}Time"), 0, "00:00:00.000000"),
    (of("int64", f"{TIME}MicroTime"), 45296789012, "12:34:56.789012"),
    (of("int64", f"{TIME}MicroTime"), 86400000000, "24:00:00.000000"),
    (of("int64", f"{TIME}MicroTime"), -3020399000000, "-838:59:59.000000"),  # the first TIME of MySQL
    (of("int64", f"{TIME}NanoTime"), 45296789012345, "12:34:56.789012345"),
    (of("int64", f"{TIME}NanoTime"), 45296789012000, "12:34:56.789012"),
    (of("int64", f"{TIME}Timestamp"), 1529507596945, "2018-06-20T15:13:16.945000Z"),
    (of("int64", f"{TIME}Timestamp"), -1, "1969-12-31T23:59:59.999000Z"),
    (of("int64", f"{TIME}MicroTimestamp"), 1529507596945104, "2018-06-20T15:13:16.945104Z"),
    (of("int64", f"{TIME}MicroTimestamp"), 1529507596000000, "2018-06-20T15:13:16Z"),
    (of("int64", f"{TIME}MicroTimestamp"), -62135596800000000, "0001-01-01T00:00:00Z"),
    (of("int64", f"{TIME}NanoTimestamp"), 1529507596945104000, "2018-06-20T15:13:16.945104Z"),
    (of("string", f"{TIME}ZonedTimestamp"), "2018-06-20T13:13:16.945104Z", "2018-06-20T13:13:16.945104Z"),
    (of("string", f"{TIME}ZonedTimestamp"), "2018-06-20T13:13:16.94510400Z", "2018-06-20T13:13:16.945104Z"),
    (of("string", f"{TIME}ZonedTimestamp"), "2018-06-20T13:13Z", "2018-06-20T13:13:00Z"),
    (of("string", f"{TIME}ZonedTimestamp"), "2011-12-03T10:15:30.030431+01:00", "2011-12-03T10:15:30.030431+01:00"),
    (of("string", f"{TIME}ZonedTime"), "10:15:30Z", "10:15:30Z"),
    (of("int32", f"{TIME}Year"), 2024, n("2024")),
    (of("int64", f"{TIME}MicroDuration"), 37091106000000, n("37091106000000")),
    (of("string", f"{TIME}Interval"), "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S"),
    (of("bytes", f"{DATA}Bits", length="5"), "Fg==", "10110"),
    (of("bytes", f"{DATA}Bits", length="10"), "AQI=", "1000000001"),  # little-endian
    (of("bytes", f"{DATA}Bits", length="2147483647"), "AQ==", "00000001"),
    (VARIABLE, {"scale": 3, "value": "z8c="}, n("-12.345")),
    (VARIABLE, {"scale": 0, "value": "Bw=="}, n("7")),
    (VARIABLE, None, None),
    (POINT, {"x": 1.5, "y": -2.0, "wkb": "AQEAAAA=", "srid": None},
     {"x": n("1.5"), "y": n("-2.0"), "wkb": "AQEAAAA=", "srid": None}),
    (of("string", f"{DATA}Enum", allowed="a,b"), "a", "a"),
    (of("string", f"{DATA}EnumSet", allowed="a,b"), "a,b", "a,b"),
    (of("string", f"{DATA}Json"), '{"a": 1.50}', '{"a": 1.50}'),
    (of("string", f"{DATA}Xml"), "<a/>", "<a/>"),
    (of("string", f"{DATA}Uuid"), "73ffd264-44b3-4c69-90e8-e7d1dfc035d4", "73ffd264-44b3-4c69-90e8-e7d1dfc035d4"),
    # Source: Kafka Connect's JsonConverter
    (of("bytes"), "AQI=", "AQI="),
    (of("double"), "NaN", n("NaN")),
    (of("float"), "-Infinity", n("-Infinity")),
    (of("string"), "NaN", "NaN"),
    (of("int64"), 9007199254740993, n("9007199254740993")),
    (of("boolean"), True, True),
    ({"type": "array", "items": DECIMAL}, ["BNI=", None], [n("12.34"), None]),
    ({"type": "map", "keys": of("string"), "values": DECIMAL}, {"a": "BNI="}, {"a": n("12.34")}),
    ({"type": "map", "keys": of("int32", f"{TIME}Date"), "values": DECIMAL}, [[0, "BNI="]],
     [["1970-01-01", n("12.34")]]),
    ({"type": "struct", "fields": [{**DECIMAL, "field": "d"}]}, {"d": "BNI=", "e": "BNI="},
     {"d": n("12.34"), "e": "BNI="}),
    # what does not fit its type stays
    (DECIMAL, "not base64", "not base64"),
    (DECIMAL, "", ""),
    (DECIMAL, 5, n("5")),
    (DECIMAL, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    (of("bytes", f"{KAFKA}Decimal"), "BNI=", "BNI="),
    (VARIABLE, {"scale": 3}, {"scale": n("3")}),
    (of("int32", f"{TIME}Date"), 3_000_000, n("3000000")),  # the year 10183
    (of("int32", f"{TIME}Date"), 1.5, n("1.5")),
    (of("int64", f"{TIME}MicroTimestamp"), 9223372036825200000 * 3, n("27670116110475600000")),
    (of("int64", f"{TIME}Timestamp"), 9223372036825200000, "9223372036825200000"),  # infinity in PostgreSQL
    (of("int64", f"{TIME}Timestamp"), 253402300800000, "253402300800000"),  # the year 10000
    (of("string", f"{TIME}ZonedTimestamp"), "2018-02-30T13:13:16Z", "2018-02-30T13:13:16Z"),
    (of("bytes", f"{DATA}Bits", length="4"), "Fg==", "Fg=="),
    (of("bytes", f"{DATA}Bits"), "Fg==", "Fg=="),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "expected"), VALUES)
def test_a_value_of_each_type(schema: dict[str, Any], value: Any, expected: Any) -> None:
    document = {"schema": {"type": "struct", "fields": [{**schema, "field": "v"}]}, "payload": {"v": value, "w": 1}}
    assert plain(document) == [{"v": expected, "w": n("1")}]


def test_digits_after_microseconds() -> None:
    cases = [
        (of("int64", f"{TIME}NanoTimestamp"), 1529507596945104123, "945104123", "945104"),
        (of("int64", f"{TIME}NanoTimestamp"), -1, None, None),
        (of("string", f"{TIME}ZonedTimestamp"), "2018-06-20T15:13:16.945104123Z", "945104123", "945104"),
    ]
    for schema, value, text, cut in cases:
        document = {"schema": {"type": "struct", "fields": [{**schema, "field": "v"}]}, "payload": {"v": value}}
        with pytest.raises(SourceError, match="nanoseconds"):
            list(ConnectReader(CONNECT).read(json.dumps(document).encode()))
        expected = "1969-12-31T23:59:59.999999" if text is None else f"2018-06-20T15:13:16.{cut}"
        assert plain(document, replace(CONNECT, nanos="truncate")) == [{"v": f"{expected}Z"}]
        assert plain(document, TEXT) == [{"v": f"{expected}{'999' if text is None else '123'}Z"}]


def test_texts_with_other_shapes_stay_as_they_are() -> None:
    schema = {"type": "struct", "fields": [{**DECIMAL, "field": "v"}]}
    assert plain({"schema": schema, "payload": None}) == []
    assert plain({"schema": None, "payload": None}) == []
    assert plain({"schema": None, "payload": {"v": "BNI="}}) == [{"v": "BNI="}]
    assert plain({"schema": {}, "payload": {"v": "BNI="}}) == [{"v": "BNI="}]
    for document in (
        {"schema": schema, "payload": "text"},
        {"schema": schema, "payload": [1]},
        {"schema": "text", "payload": {"v": "BNI="}},
        {"schema": [1], "payload": None},
        {"schema": schema, "payload": {"v": "BNI="}, "more": 1},
        {"payload": {"v": "BNI="}},
        {"v": "BNI="},
    ):
        assert plain(document) == [_parse(json.dumps(document).encode())]
    text = json.dumps({"schema": schema, "payload": {"v": "BNI="}}).encode()
    assert plain(b"[" + text + b"," + text + b"]") == [{"v": n("12.34")}] * 2
    assert plain(text + b"\n" + text) == [{"v": n("12.34")}] * 2
    assert plain(b"\xef\xbb\xbf  " + text + b" ") == [{"v": n("12.34")}]
    assert plain(b'{"payload":{"v":"BNI="},"schema":' + json.dumps(schema).encode() + b"}") == [{"v": n("12.34")}]
    assert plain(text.replace(b"payload", b"payl\\u006fad")) == [{"v": n("12.34")}]
    for broken in (
        text[:-1],
        text + b"x",
        text.replace(b'"BNI="}', b'"BNI=", "v": 1}'),
        text[:-1] + b', "payload": {}}',
        text[:-1] + b', "schema": null}',
        b'{"schema": {"type": 1, "type": 2}, "payload": {}}',
        b'{"payload": {"a": "\\ud800"}, "schema": null}',
    ):
        assert list(ConnectReader(CONNECT).read(broken)) == list(ConnectJson(CONNECT).read(broken)) == [broken]


# ---- payloads that are encoded, and read again ---------------------------------------------------


def to_bytes(number: int) -> str:
    size = max(1, (number.bit_length() + 8) // 8)
    return b64encode(number.to_bytes(size, "big", signed=True)).decode()


EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def some_time(chance: random.Random) -> datetime:
    return datetime(1, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=chance.randrange(315_537_897_600_000_000))


def some_decimal(chance: random.Random, scale: int) -> tuple[Any, Any]:
    number = chance.choice((0, 1, -1, 10**9, -(10**11) + 1, chance.randrange(-(10**8), 10**8)))
    return to_bytes(number), Decimal(number).scaleb(-scale)


def _moment(chance: random.Random, units: int) -> tuple[Any, Any]:
    micros = (some_time(chance) - EPOCH) // timedelta(microseconds=1)
    micros -= micros % max(1, 1_000_000 // units)
    return micros * units // 1_000_000, EPOCH + timedelta(microseconds=micros)


def _day(chance: random.Random) -> tuple[Any, Any]:
    day = some_time(chance).date()
    return (day - date(1970, 1, 1)).days, day


def _clock(chance: random.Random) -> tuple[Any, Any]:
    count = chance.randrange(86_400_000_000)
    return count, str((EPOCH + timedelta(microseconds=count)).time().isoformat("microseconds"))


FIELDS: dict[str, tuple[dict[str, Any], Callable[[random.Random], tuple[Any, Any]]]] = {
    "amount": (
        of("bytes", f"{KAFKA}Decimal", scale="2", connect_decimal_precision="14"),
        lambda c: some_decimal(c, 2),
    ),
    "rate": (of("bytes", f"{KAFKA}Decimal", scale="9"), lambda c: some_decimal(c, 9)),
    "day": (of("int32", f"{TIME}Date"), _day),
    "clock": (of("int64", f"{TIME}MicroTime"), _clock),
    "ms": (of("int64", f"{TIME}Timestamp"), lambda c: _moment(c, 1_000)),
    "us": (of("int64", f"{TIME}MicroTimestamp"), lambda c: _moment(c, 1_000_000)),
    "zoned": (
        of("string", f"{TIME}ZonedTimestamp"),
        lambda c: (lambda t: (t.replace(tzinfo=None).isoformat() + "Z", t))(some_time(c)),
    ),
    "bits": (of("bytes", f"{DATA}Bits", length="12"), lambda c: (lambda k: (
        b64encode(k.to_bytes(2, "little")).decode(), f"{k:012b}"))(c.randrange(4096))),
    "name": (of("string"), lambda c: (lambda t: (t, t))(c.choice(("", "x", "BNI=", "12.50", "é\n")))),
    "ratio": (of("double"), lambda c: (lambda t: (t, t))(c.choice((0.5, -2.25, 1e300, c.random())))),
    "count": (of("int64"), lambda c: (lambda t: (t, t))(c.choice((0, 7, 2**40, -(2**63))))),
}  # fmt: skip


def table_schema(fields: list[str]) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"type": "int32", "field": "id"}, *({**FIELDS[each][0], "field": each} for each in fields)],
    }


@pytest.mark.parametrize("envelope", [None, "debezium"])
def test_2000_payloads_have_their_values_again(tmp_path: Path, envelope: str | None) -> None:
    chance, rows, texts = random.Random(5), {}, []
    for at in range(2_000):
        found = {name: make(chance) for name, (_, make) in FIELDS.items() if chance.random() < 0.8}
        rows[at] = {"id": at, **{name: value for name, (_, value) in found.items()}}
        row = {"id": at, **{name: encoded for name, (encoded, _) in found.items()}}
        # The schema part of a table that gets a column in the middle of the stream.
        schema = table_schema([each for each in FIELDS if each != "rate" or "rate" in row])
        event: Any = {"schema": schema, "payload": row}
        if envelope:
            source = {"connector": "postgresql", "lsn": at + 1, "schema": "public"}
            states = {"type": "struct", "fields": [{**schema, "field": each} for each in ("before", "after")]}
            event = {"schema": states, "payload": {"before": None, "after": row, "source": source, "op": "c"}}
        texts.append(json.dumps(event))
    words: dict[str, Any] = {"engine": "local", "verify": True}
    words |= {"envelope": envelope, "key": ["id"]} if envelope else {"dialect": "connect"}
    for number, some in enumerate((texts[:900], texts[900:])):
        (tmp_path / f"{number}.json").write_text("\n".join(some))
        done = widen.ingest(tmp_path / f"{number}.json", tmp_path / "t", **words)
        assert done.quarantined == 0
        assert done.verification is not None
        assert done.verification.is_clean, done.verification
    table = widen.Table(tmp_path / "t").to_arrow()
    types = {field.name: str(field.type) for field in table.schema if not field.name.startswith("_")}
    assert types == {
        "amount": "decimal128(14, 2)",
        "bits": "string",
        "clock": "string",
        "count": "int64",
        "day": "date32[day]",
        "id": "int32",
        "ms": "timestamp[us, tz=UTC]",
        "name": "string",
        "rate": "decimal128(11, 9)",
        "ratio": "double",
        "us": "timestamp[us, tz=UTC]",
        "zoned": "timestamp[us, tz=UTC]",
    }
    for row in table.to_pylist():
        assert {name: row[name] for name in types} == {name: rows[row["id"]].get(name) for name in types}
    assert table.num_rows == 2_000


# ---- any payload below any schema part: the writer and the proof agree ---------------------------


def some_schema(chance: random.Random, depth: int) -> Any:
    case = chance.randrange(14 if depth else 9)
    if case == 0:
        return chance.choice((None, 5, "struct", [], {}))
    if case < 9:
        return dict(chance.choice(VALUES)[0])
    if case < 11:
        return {"type": "array", "items": some_schema(chance, depth - 1)}
    if case == 11:
        return {"type": "map", "keys": some_schema(chance, 0), "values": some_schema(chance, depth - 1)}
    fields = [{**each, "field": key} for key in "abc" if isinstance(each := some_schema(chance, depth - 1), dict)]
    return {"type": "struct", "fields": fields}


def some_value(chance: random.Random, depth: int) -> Any:
    case = chance.randrange(8 if depth else 5)
    if case == 0:
        return chance.choice((None, True, 1.5, -0.0, "", "NaN", {}, []))
    if case < 4:
        return chance.choice(VALUES)[1]
    if case == 4:
        return chance.choice((0, -1, 10**18, -(10**19), 253402300799999, 1e3, 86399999999, "2020-01-01T00:00:00.5Z"))
    if case == 5:
        return [some_value(chance, depth - 1) for _ in range(chance.randrange(3))]
    return {key: some_value(chance, depth - 1) for key in "abc"}


def test_the_proof_reads_what_the_writer_reads() -> None:
    chance, changed = random.Random(8), 0
    for _ in range(6_000):
        payload = {key: some_value(chance, 3) for key in "abc"}
        fields = [{**each, "field": key} for key in "abc" if isinstance(each := some_schema(chance, 3), dict)]
        schema, payload["d"], _ = chance.choice(VALUES)
        fields.append({**schema, "field": "d"})
        document = {"schema": {"type": "struct", "fields": fields}, "payload": payload}
        text = json.dumps(document)
        if chance.random() < 0.1:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice('{}[],"x1') + text[at + 1 :]
        found = plain(text.encode(), TEXT)
        changed += found != [_parse(json.dumps(payload).encode())]
    assert changed > 2_000


def test_a_timestamp_that_no_year_has_is_not_taken_for_another_time(tmp_path: Path) -> None:
    """The number of milliseconds of the year 10000 looks like microseconds in 1978."""
    fields = [{**of("int64", f"{TIME}Timestamp"), "field": "at", "optional": True}]
    schema = {"type": "struct", "fields": fields}
    values = (1529507596945, 253402300800000)
    source = tmp_path / "a.json"
    source.write_text("".join(json.dumps({"schema": schema, "payload": {"at": at}}) + "\n" for at in values))
    widen.ingest(str(source), tmp_path / "t", dialect="connect", verify=True)
    rows = widen.Table(tmp_path / "t").to_arrow().sort_by("at").to_pylist()
    assert [(row["at"][:19], row["at_timestamp"] is None) for row in rows] == [
        ("2018-06-20T15:13:16", False),
        ("253402300800000", True),
    ]
