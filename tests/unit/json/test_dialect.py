"""Dialects: each type of each specification, with its value typed by hand, and documents that are encoded and read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import InvalidOption
from widen.ingestion.options import parse_policy
from widen.json.dialect import DIALECTS, Dialect, DialectReader, build_dialect
from widen.json.document import split_text
from widen.proof.typed_json import TypedJson

Value = Any


def read(text: str, dialect: Dialect) -> list[str]:
    """Return the plain texts of a text; the writer and the proof agree on them."""
    texts = DialectReader(dialect).read(text.encode())
    # A text in which nothing is wrapped is split later.
    found = [part for each in texts for part in split_text(each, allows_nan=True)]
    proved = list(TypedJson(dialect).read(text.encode()))
    assert [_parse(each) for each in proved] == [_parse(each) for each in found]
    return [each.decode() for each in found]


def _parse(text: bytes) -> Any:
    """Return a document with the spelling of its numbers; a text that is not JSON as it is."""
    try:
        return json.loads(text, parse_int=lambda t: ("n", t), parse_float=lambda t: ("n", t))
    except ValueError:
        return text


MONGODB = [
    # Source: MongoDB Extended JSON v2, its table of types, canonical and relaxed
    ('{"$oid": "5d505646cf6d4fe581014ab2"}', '"5d505646cf6d4fe581014ab2"'),
    ('{"$symbol": "s"}', '"s"'),
    ('{"$numberInt": "42"}', "42"),
    ('{"$numberInt": "-42"}', "-42"),
    ('{"$numberLong": "9223372036854775807"}', "9223372036854775807"),
    ('{"$numberDouble": "42.42"}', "42.42"),
    ('{"$numberDouble": "-0.0"}', "-0.0"),
    ('{"$numberDouble": "1.2345678921232E+18"}', "1.2345678921232E+18"),
    ('{"$numberDouble": "Infinity"}', "Infinity"),
    ('{"$numberDouble": "-Infinity"}', "-Infinity"),
    ('{"$numberDouble": "NaN"}', "NaN"),
    ('{"$numberDecimal": "1234.50"}', "1234.50"),
    ('{"$numberDecimal": "9.999999999999999999999999999999999E+6144"}', "9.999999999999999999999999999999999E+6144"),
    ('{"$numberDecimal": "NaN"}', "NaN"),
    ("42", "42"),
    ("42.42", "42.42"),
    ("null", "null"),
    ('"x"', '"x"'),
    ("true", "true"),
    ('{"$date": {"$numberLong": "1565546054692"}}', '"2019-08-11T17:54:14.692Z"'),
    ('{"$date": {"$numberLong": "0"}}', '"1970-01-01T00:00:00Z"'),
    ('{"$date": {"$numberLong": "-284643869501"}}', '"1960-12-24T12:15:30.499Z"'),
    ('{"$date": "2019-08-11T17:54:14.692Z"}', '"2019-08-11T17:54:14.692Z"'),
    ('{"$date": 1565546054692}', '"2019-08-11T17:54:14.692Z"'),
    ('{"$date": {"$numberLong": "253402300800000"}}', '{"$date":253402300800000}'),  # the year 10000
    ('{"$date": {"$numberLong": "-62135596800001"}}', '{"$date":-62135596800001}'),  # the year 0
    ('{"$binary": {"base64": "o0w498Or7cijeBSpkquNtg==", "subType": "00"}}', '"o0w498Or7cijeBSpkquNtg=="'),
    (
        '{"$binary": {"base64": "c//SZESzTGmQ6OfR38A11A==", "subType": "04"}}',
        '"73ffd264-44b3-4c69-90e8-e7d1dfc035d4"',
    ),
    ('{"$binary": {"base64": "AQ==", "subType": "80"}}', '{"base64":"AQ==","subType":"80"}'),
    ('{"$binary": {"base64": "AQ==", "subType": "04"}}', '{"base64":"AQ==","subType":"04"}'),
    ('{"$uuid": "73ffd264-44b3-4c69-90e8-e7d1dfc035d4"}', '"73ffd264-44b3-4c69-90e8-e7d1dfc035d4"'),
    ('{"$code": "function() {}"}', '"function() {}"'),
    (
        '{"$code": "f", "$scope": {"n": {"$numberInt": "1"}}}',
        '{"$code":"f","$scope":{"n":1}}',
    ),
    ('{"$timestamp": {"t": 1565545664, "i": 1}}', '{"t":1565545664,"i":1}'),
    ('{"$regularExpression": {"pattern": "^H", "options": "i"}}', '{"pattern":"^H","options":"i"}'),
    (
        '{"$dbPointer": {"$ref": "db.c", "$id": {"$oid": "57e193d7a9cc81b4027498b1"}}}',
        '{"$ref":"db.c","$id":"57e193d7a9cc81b4027498b1"}',
    ),
    ('{"$ref": "c", "$id": {"$oid": "57e193d7a9cc81b4027498b1"}}', '{"$ref":"c","$id":"57e193d7a9cc81b4027498b1"}'),
    ('{"$minKey": 1}', '{"$minKey":1}'),
    ('{"$maxKey": 1}', '{"$maxKey":1}'),
    ('{"$undefined": true}', "null"),
    ('[{"$numberInt": "1"}, {"a": {"$numberLong": "2"}}]', '[1,{"a":2}]'),
    # what is not of the dialect stays
    ('{"$numberInt": "x"}', '{"$numberInt":"x"}'),
    ('{"$numberInt": "007"}', '{"$numberInt":"007"}'),
    ('{"$numberInt": " 1"}', '{"$numberInt":" 1"}'),
    ('{"$numberLong": {"$numberInt": "1"}}', '{"$numberLong":1}'),
    ('{"$oid": "a", "x": 1}', '{"$oid":"a","x":1}'),
    ('{"$oid": 5}', '{"$oid":5}'),
    ('{"$binary": "AQ==", "$type": "00"}', '{"$binary":"AQ==","$type":"00"}'),
    ('{"$elemMatch": {"a": 1}}', '{"$elemMatch":{"a":1}}'),
    ('"{\\"$oid\\": \\"x\\"}"', '"{\\"$oid\\": \\"x\\"}"'),
]

DYNAMODB = [
    # Source: Amazon DynamoDB, data type descriptors of its low-level API, and exports of tables to S3
    ('{"S": "Hello"}', '"Hello"'),
    ('{"S": ""}', '""'),
    ('{"N": "123.45"}', "123.45"),
    ('{"N": "12345678901234567890123456789012345678"}', "12345678901234567890123456789012345678"),
    ('{"N": "-1E-130"}', "-1E-130"),
    ('{"B": "dGhpcyB0ZXh0"}', '"dGhpcyB0ZXh0"'),
    ('{"BOOL": true}', "true"),
    ('{"NULL": true}', "null"),
    ('{"M": {"Name": {"S": "Joe"}, "Age": {"N": "35"}}}', '{"Name":"Joe","Age":35}'),
    ('{"M": {}}', "{}"),
    ('{"L": [{"S": "Cookies"}, {"N": "3.14159"}, {"L": [{"NULL": true}]}]}', '["Cookies",3.14159,[null]]'),
    ('{"SS": ["Giraffe", "Hippo"]}', '["Giraffe","Hippo"]'),
    ('{"NS": ["42.2", "-19", "7.50"]}', "[42.2,-19,7.50]"),
    ('{"BS": ["U3Vubnk=", "UmFpbnk="]}', '["U3Vubnk=","UmFpbnk="]'),
    # the names of attributes may be those of types
    ('{"M": {"S": {"S": "x"}}}', '{"S":"x"}'),
    ('{"M": {"M": {"M": {"N": {"N": "1"}}}}}', '{"M":{"N":1}}'),
    ('{"L": [{"M": {"L": {"L": []}}}]}', '[{"L":[]}]'),
    ('{"N": "one"}', '{"N":"one"}'),
    ('{"NS": ["1", "x"]}', '{"NS":["1","x"]}'),
    ('{"NULL": false}', '{"NULL":false}'),
    ("5", "5"),
]

FIRESTORE = [
    # Source: Cloud Firestore API, the type Value
    ('{"nullValue": null}', "null"),
    ('{"nullValue": "NULL_VALUE"}', "null"),
    ('{"booleanValue": false}', "false"),
    ('{"integerValue": "9007199254740993"}', "9007199254740993"),
    ('{"doubleValue": 1.50}', "1.50"),
    ('{"doubleValue": "NaN"}', "NaN"),
    ('{"doubleValue": "-Infinity"}', "-Infinity"),
    ('{"timestampValue": "2014-10-02T15:01:23.045123456Z"}', '"2014-10-02T15:01:23.045123456Z"'),
    ('{"stringValue": "x"}', '"x"'),
    ('{"bytesValue": "AQ=="}', '"AQ=="'),
    ('{"referenceValue": "projects/p/databases/d/documents/c/1"}', '"projects/p/databases/d/documents/c/1"'),
    ('{"geoPointValue": {"latitude": 52.50, "longitude": 13.4}}', '{"latitude":52.50,"longitude":13.4}'),
    ('{"arrayValue": {"values": [{"integerValue": "1"}, {"stringValue": "a"}]}}', '[1,"a"]'),
    ('{"arrayValue": {}}', "[]"),
    (
        '{"mapValue": {"fields": {"a": {"mapValue": {}}, "stringValue": {"integerValue": "1"}}}}',
        '{"a":{},"stringValue":1}',
    ),
    ('{"mapValue": {"other": 1}}', '{"mapValue":{"other":1}}'),
    ('{"arrayValue": []}', '{"arrayValue":[]}'),
]


@pytest.mark.parametrize(
    ("name", "wrapped", "plain"),
    [
        (name, *each)
        for name, cases in (("mongodb", MONGODB), ("dynamodb", DYNAMODB), ("firestore", FIRESTORE))
        for each in cases
    ],
)
def test_a_value_of_each_type(name: str, wrapped: str, plain: str) -> None:
    (found,) = read(f'{{"id": 1, "v": {wrapped}}}', DIALECTS[name])
    assert _parse(found.encode()) == _parse(f'{{"id": 1, "v": {plain}}}'.encode())


def test_the_root_of_an_export() -> None:
    dynamodb = DIALECTS["dynamodb"]
    assert read('{"Item":{"id":{"N":"1"},"S":{"S":"x"}}}', dynamodb) == ['{"id":1,"S":"x"}']
    assert read('{"S":{"S":"x"}}', dynamodb) == ['{"S":"x"}']
    assert read('{"Item":{"S":"x"}, "n":1}', dynamodb) == ['{"Item":"x","n":1}']
    # what is around an item stays, e.g. in a stream of changes
    change = '{"eventName":"INSERT","dynamodb":{"NewImage":{"id":{"N":"1"}},"SequenceNumber":"7"}}'
    assert read(change, dynamodb) == ['{"eventName":"INSERT","dynamodb":{"NewImage":{"id":1},"SequenceNumber":"7"}}']


def test_texts_that_are_not_one_record() -> None:
    mongodb = DIALECTS["mongodb"]
    assert read('[{"a":{"$numberInt":"1"}},{"a":2}, 5]', mongodb) == ['{"a":1}', '{"a":2}', "5"]
    assert read('{"a":{"$numberInt":"1"}} {"a":{"$oid":"x"}}', mongodb) == ['{"a":1}', '{"a":"x"}']
    for text in (
        '{"a":{"$oid":"x"}',
        '{"a":{"$oid":"x"},"a":1}',
        '["$oid" ]',
        "",
        '{"a": "\\ud800", "b": {"$oid": "x"}}',
    ):
        assert read(text, mongodb) == [text]
    plain = '{"a" : 1.0,  "b": {"c": "$oid" }}'
    assert read(plain, mongodb) == [plain]
    assert read('{"a":{"\\u0024oid":"x"}}', mongodb) == ['{"a":"x"}']
    deep = '{"M":{"a":' * 120 + '{"S":"x"}' + "}}" * 120
    assert read('{"v":' + deep + "}", DIALECTS["dynamodb"]) == ['{"v":' + deep + "}"]
    deep = deep.replace('{"M":{"a":', '{"M":{"a":', 1)[len('{"M":{"a":') * 40 : -80]
    assert read('{"v":' + deep + "}", DIALECTS["dynamodb"]) == ['{"v":' + '{"a":' * 80 + '"x"' + "}" * 81]


def test_a_dialect_of_ones_own() -> None:
    dialect = build_dialect("ours", {"int": "number", "rec": "object", "arr": "list:items", "when": "date"}, "data")
    text = (
        '{"data":{"a":{"int":"5"},"b":{"rec":{"int":{"arr":{"items":[{"int":"1"}]}}}},"t":{"when":"0"},"u":{"when":0}}}'
    )
    assert read(text, dialect) == ['{"a":5,"b":{"int":[1]},"t":"0","u":"1970-01-01T00:00:00Z"}']


# ---- documents that are encoded, and read again --------------------------------------------------


def encode_mongodb(value: Value, chance: random.Random, *, is_canonical: bool) -> Value:
    match value:
        case bool() | None | str():
            if isinstance(value, str) and value.startswith("time:"):
                moment = datetime.fromisoformat(value[5:])
                ms = (moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)
                is_text = not is_canonical and ms >= 0
                return {"$date": as_text(moment) if is_text else {"$numberLong": str(ms)}}
            return value
        case int():
            if is_canonical or not -(2**53) < value < 2**53:
                return {"$numberInt" if -(2**31) <= value < 2**31 else "$numberLong": str(value)}
            return value
        case float():
            return {"$numberDouble": repr(value)} if is_canonical else value
        case list():
            return [encode_mongodb(each, chance, is_canonical=is_canonical) for each in value]
    return {key: encode_mongodb(each, chance, is_canonical=is_canonical) for key, each in value.items()}


def as_text(moment: datetime) -> str:
    date = f"{moment.year:04}-{moment.month:02}-{moment.day:02}T{moment:%H:%M:%S}"
    return date + (f".{moment.microsecond // 1000:03}Z" if moment.microsecond else "Z")


def encode_dynamodb(value: Value, chance: random.Random) -> Value:
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": plain_of(value)}
        case int() | float():
            return {"N": repr(value)}
        case list():
            if value and all(type(each) is str for each in value) and chance.random() < 0.5:
                return {"SS": list(map(plain_of, value))}
            if value and all(type(each) is int for each in value) and chance.random() < 0.5:
                return {"NS": list(map(repr, value))}
            return {"L": [encode_dynamodb(each, chance) for each in value]}
    return {"M": {key: encode_dynamodb(each, chance) for key, each in value.items()}}


def encode_firestore(value: Value, chance: random.Random) -> Value:
    match value:
        case None:
            return {"nullValue": None}
        case bool():
            return {"booleanValue": value}
        case str():
            return {"timestampValue" if value.startswith("time:") else "stringValue": plain_of(value)}
        case int():
            return {"integerValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [encode_firestore(each, chance) for each in value]} if value else {}}
    return {
        "mapValue": {"fields": {key: encode_firestore(each, chance) for key, each in value.items()}} if value else {}
    }


def plain_of(value: Value) -> Value:
    """Return the value that a table must have: times as text, all else as it is."""
    match value:
        case str():
            return as_text(datetime.fromisoformat(value[5:])) if value.startswith("time:") else value
        case list():
            return [*map(plain_of, value)]
        case dict():
            return {key: plain_of(each) for key, each in value.items()}
    return value


ENCODERS: Mapping[str, Callable[[Value, random.Random], Value]] = {
    "canonical": lambda value, chance: encode_mongodb(value, chance, is_canonical=True),
    "relaxed": lambda value, chance: encode_mongodb(value, chance, is_canonical=False),
    "dynamodb": encode_dynamodb,
    "firestore": encode_firestore,
}
KINDS = {
    "i": lambda c: c.choice((0, 1, -1, 2**31, -(2**53), 2**63 - 1, c.randrange(10**6))),
    "d": lambda c: c.choice((0.5, -2.25, 1e300, 5e-324, c.random())),
    "s": lambda c: c.choice(("", "x", "é€\n", '{"S":"x"}', "NaN", "1", "$oid")),
    "t": lambda c: (
        f"time:{datetime(1, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=c.randrange(315_537_897_600_000))}"
    ),
    "b": lambda c: c.choice((True, False, None)),
    "S": lambda c: {"S": c.choice(("a", "b")), "N": c.randrange(9), "$oid": {"M": c.random(), "stringValue": "v"}},
    "l": lambda c: [c.randrange(99) for _ in range(c.randrange(4))],
    "w": lambda c: [c.choice(("a", "b", "")) for _ in range(c.randrange(3))],
    "o": lambda c: [{"k": c.randrange(5), "M": {"L": ["x"]}} for _ in range(c.randrange(3))],
}
"""Values of fields, of one kind each."""


def make_documents(seed: int, count: int) -> list[dict[str, Value]]:
    chance = random.Random(seed)
    return [
        {"id": at, **{key: make(chance) for key, make in KINDS.items() if chance.random() < 0.8}} for at in range(count)
    ]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_2000_documents_have_their_values_again(encoder: str, tmp_path: Path) -> None:
    chance, documents = random.Random(3), make_documents(4, 2_000)
    dialect = encoder if encoder in DIALECTS else "mongodb"
    encoded = [{key: ENCODERS[encoder](each, chance) for key, each in document.items()} for document in documents]
    if encoder == "dynamodb":
        encoded = [{"Item": each} if at % 2 else each for at, each in enumerate(encoded)]
    for name, some in (("typed", encoded), ("plain", map(plain_of, documents))):
        (tmp_path / f"{name}.json").write_text("".join(json.dumps(each) + "\n" for each in some))
    words: dict[str, Any] = {"engine": "local", "verify": True}
    done = widen.ingest(tmp_path / "typed.json", tmp_path / "t", dialect=dialect, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    widen.ingest(tmp_path / "plain.json", tmp_path / "p", **words)
    found, expected = (widen.Table(tmp_path / name).to_arrow() for name in "tp")
    assert found.schema == expected.schema
    rows = [{row["id"]: row for row in table.to_pylist()} for table in (found, expected)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 2_000
    for document in map(plain_of, documents):
        row = rows[0][document["id"]]
        assert all(row[key] == document.get(key) for key in "idstbw")


def some_json(names: list[str], chance: random.Random, depth: int) -> Value:
    """Return JSON in which names of wrappers hold anything."""
    match chance.randrange(9 if depth else 5):
        case 0:
            return chance.choice(
                ("1", "-1.50", "007", "NaN", "-Infinity", "x", "", "1e5", "NULL_VALUE", " 1", "AQ==", "00")
            )
        case 1:
            return chance.choice((0, 1.5, -62135596800000, 10**18, 1e22, 253402300799999))
        case 2 | 3:
            return chance.choice((None, True, False, "04", "c//SZESzTGmQ6OfR38A11A=="))
        case 4:
            return {}
        case 5 | 6:
            return {chance.choice(names): some_json(names, chance, depth - 1)}
        case 7:
            return {chance.choice(names): some_json(names, chance, depth - 1) for _ in range(3)}
    return [some_json(names, chance, depth - 1) for _ in range(chance.randrange(3))]


@pytest.mark.parametrize("name", ["mongodb", "dynamodb", "firestore"])
def test_the_proof_reads_what_the_writer_reads(name: str) -> None:
    chance, dialect, changed = random.Random(name), DIALECTS[name], 0
    names = [each for each, _, _ in dialect.kinds] + ["a", "base64", "subType", "fields", "values", "Item"]
    for _ in range(4_000):
        documents = [{chance.choice(names): some_json(names, chance, 4)} for _ in range(chance.choice((1, 1, 2)))]
        text = chance.choice((" ", "\n", "")).join(map(json.dumps, documents))
        if chance.random() < 0.2:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice('{}[],"x1') + text[at + 1 :]
        changed += read(text, dialect) != [text]
    assert changed > 1_000


# ---- loads ---------------------------------------------------------------------------------------


def test_loads_by_every_door(tmp_path: Path) -> None:
    typed = [
        {
            "_id": {"$oid": "5d505646cf6d4fe581014ab2"},
            "n": {"$numberDouble": "NaN"},
            "t": {"$date": {"$numberLong": "0"}},
        },
        {
            "_id": {"$oid": "5d505646cf6d4fe581014ab3"},
            "n": {"$numberDouble": "1.5"},
            "t": {"$date": "2020-01-01T00:00:00Z"},
        },
    ]
    (tmp_path / "a.json").write_text("".join(json.dumps(each) + "\n" for each in typed) + '{"_id":{"$oid":')
    (tmp_path / "b.json").write_text(json.dumps({"rows": typed}))
    config = tmp_path / "c.toml"
    config.write_text('dialect = "mongodb"\ndetect_dates = true\n')
    own = tmp_path / "own.toml"
    own.write_text(
        'detect_dates = true\n[dialect.values]\n"$oid" = "text"\n"$numberDouble" = "number"\n'
        '"$numberLong" = "number"\n"$date" = "date"\n'
    )
    for number, (name, words) in enumerate(
        (
            ("a.json", {"dialect": "mongodb", "detect_dates": True}),
            ("a.json", {"config": config}),
            ("a.json", {"config": own}),
            ("b.json", {"config": config, "records": "rows[*]"}),
            ("a.json", {"config": config, "key": ["_id"]}),
        )
    ):
        done = widen.ingest(tmp_path / name, tmp_path / f"t{number}", engine="local", verify=True, **words)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification
        rows = [row for row in widen.Table(tmp_path / f"t{number}").to_arrow().to_pylist() if row["_id"]]
        assert sorted((row["_id"][-1], str(row["n"]), row["t"].year) for row in rows) == [
            ("2", "nan", 1970),
            ("3", "1.5", 2020),
        ]
    (tmp_path / "a.csv").write_text("a\n1\n")
    with pytest.raises(InvalidOption, match="Dialects are read from JSON"):
        widen.ingest(tmp_path / "a.csv", tmp_path / "x", dialect="mongodb", engine="local")
    assert parse_policy(dialect="mongodb").allows_nan
    assert not parse_policy(dialect="mongodb", allow_nan=False).allows_nan


@pytest.mark.parametrize(
    "dialect", ["bson", {}, {"values": {}}, {"values": {"a": "texts"}}, {"values": {"a": "text:b"}}, {"root": "x"}]
)
def test_what_is_not_a_dialect(dialect: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="dialect"):
        widen.ingest(tmp_path, tmp_path / "t", dialect=dialect)
