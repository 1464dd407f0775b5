from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from support.proof import encode_records, forms_of, layouts_of, to_comparable
from support.stable_interval import ingest_texts
from widen.evolution.policy import Mode, Policy, TextForm
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.proof.canonical import digest, find_differences, is_epoch_count_of
from widen.proof.source_reader import ExpectedRow, SourceEncoder, SourceReader

SCHEMA = StructType(
    (
        Field("a", parse_type("int")),
        Field("a_string", parse_type("string"), metadata={"widen.source": ["a"]}),
        Field("d", parse_type("double")),
        Field("l", parse_type("array<int>")),
        Field("r", parse_type("struct<x: int>")),
        Field("m", parse_type("map<string,bigint>")),
        Field("m_map_string", parse_type("map<string,string>"), metadata={"widen.source": ["m"]}),
        Field("t", parse_type("timestamp")),
        Field("t_date", parse_type("date"), metadata={"widen.source": ["t"]}),
        Field("t_long", parse_type("bigint"), metadata={"widen.source": ["t"]}),
        Field("f", parse_type("float")),
        Field("_rescued", parse_type("string")),
        Field("_corrupt_record", parse_type("string")),
    )
)

AT = datetime(2024, 5, 1, tzinfo=timezone.utc)
POLICY = Policy(Mode.SPLIT, date_fields=frozenset([("t",)]), excluded=frozenset([("hidden",)]))

SAME: list[tuple[str, dict[str, Any]]] = [
    ('{"a":1}', {"a": 1, "a_string": "1"}),
    ('{"a":"x"}', {"a_string": "x"}),
    ('{"a":null}', {}),
    ('{"d":1e3}', {"d": 1000.0}),
    ('{"d":-0.0}', {"d": -0.0}),
    ('{"d":-0}', {"d": -0.0}),
    ('{"l":[1,null]}', {"l": [1, None]}),
    ('{"l":[]}', {"l": []}),
    ('{"l":7}', {"l": [7]}),
    ('{"r":{"x":1}}', {"r": {"x": 1}}),
    ('{"r":{}}', {"r": {"x": None}}),
    ('{"r":{"x":1,"y":"2"}}', {"r": {"x": 1}, "_rescued": '{"r":{"y":"2"}}'}),
    ('{"d":1e99999999999999999999}', {"_rescued": '{"d":1e99999999999999999999}'}),
    ('{"new":{"b":[]}}', {"_rescued": '{"new":{"b":[]}}'}),
    ('{"new":null,"a":null}', {"_rescued": '{"new":null}'}),
    ('{"r":{"x":1,"y":null}}', {"r": {"x": 1}, "_rescued": '{"r":{"y":null}}'}),
    ('{"a":[]}', {"_rescued": '{"a":[]}'}),
    ('{"d":{}}', {"_rescued": '{"d":{}}'}),
    ('{"l":[1,[]]}', {"l": [1, None], "_rescued": '{"l":[1,[]]}'}),
    ('{"m":{"k":{}}}', {"m": [("k", None)], "m_map_string": [("k", None)], "_rescued": '{"m":{"k":{}}}'}),
    ('{"m":{"k":1,"l":"x"}}', {"m": [("k", 1), ("l", None)], "m_map_string": [("k", "1"), ("l", "x")]}),
    ('{"m":{"k":null}}', {"m": [("k", None)]}),
    ('{"t":"2024-05-01"}', {"t": AT, "t_date": AT.date(), "t_long": 19844}),
    ('{"t":"2024-05-01T00:00:00.000Z"}', {"t": AT, "t_long": 1714521600000}),
    ('{"t":"2024-05-01T00:00:00.0000010Z"}', {"_rescued": '{"t":"2024-05-01T00:00:00.0000010Z"}'}),
    ('{"t":"2024-05-01T00:00:00.000001+00:00"}', {"t": AT.replace(microsecond=1)}),
    ('{"t":1714521600}', {"t": AT, "t_long": 1714521600}),
    ('{"f":0.5}', {"f": 0.5}),
    ('{"f":16777217.0}', {"_rescued": '{"f":16777217.0}'}),
    ('{"hidden":1,"r":{"x":1}}', {"r": {"x": 1}}),
]
DIFFERENT: list[tuple[str, dict[str, Any]]] = [
    ('{"a":1}', {"a": 2}),
    ('{"a":1}', {}),
    ('{"new":null}', {}),
    ('{"new":[]}', {}),
    ('{"new":[]}', {"_rescued": '{"new":{}}'}),
    ('{"r":{"y":null}}', {"r": {"x": None}}),
    ('{"a":"x"}', {"a_string": "X"}),
    ('{"a":2147483648}', {"a": -2147483648}),
    ('{"d":9007199254740993}', {"d": 9007199254740992.0}),
    ('{"d":0.0}', {"d": -0.0}),
    ('{"d":1e400}', {"d": float("inf")}),
    ('{"l":[1,null]}', {"l": [None, 1]}),
    ('{"l":[1,null]}', {"l": [1]}),
    ('{"l":[]}', {}),
    ('{"l":7}', {"l": [7, 7]}),
    ('{"r":{"x":1}}', {"r": {"x": None}}),
    ('{"r":{}}', {}),
    ('{"b":1}', {"_rescued": '{"b":"1"}'}),
    ('{"b":true}', {"_rescued": '{"b":"True"}'}),
    ('{"b":["1,2"]}', {"_rescued": '{"b":["1","2"]}'}),
    ('{"b":1.10}', {"_rescued": '{"b":1.1}'}),
    ('{"b":1}', {}),
    ('{"a":"x"}', {"_corrupt_record": '{"a":"x"}'}),
    ('{"m":{"k":1}}', {"m": [("K", 1)]}),
    ('{"m":{"k":1,"l":null}}', {"m": [("k", 1)]}),
    ('{"m":{"k":"1"}}', {"m": [("k", 1)]}),
    ('{"m":{}}', {}),
    ('{"t":"2024-05-01"}', {"t": AT, "t_date": AT.replace(day=2).date(), "t_long": 19844}),
    ('{"t":"2024-05-01T00:00:00.001Z"}', {"t": AT}),
    ('{"t":"2024-05-01T02:00:00+02:00"}', {"t": AT}),
    ('{"f":0.1}', {"f": 0.10000000149011612}),
]


def expect(text: str, policy: Policy = POLICY, schema: StructType = SCHEMA) -> ExpectedRow:
    reader = SourceReader(schema, policy)
    [expected], exact = reader.read(text.encode()), reader.read_exactly(text.encode())
    assert to_comparable([expected]) == to_comparable(exact)
    return expected


def form(row: dict[str, Any], policy: Policy = POLICY, schema: StructType = SCHEMA) -> bytes:
    return digest(forms_of(schema, policy, [row])[0])


@pytest.mark.parametrize(("record", "row"), SAME)
def test_a_row_with_the_same_values_has_the_same_form(record: str, row: dict[str, Any]) -> None:
    assert digest(expect(record).form) == form(row)


@pytest.mark.parametrize(("record", "row"), DIFFERENT)
def test_a_row_with_other_values_has_another_form(record: str, row: dict[str, Any]) -> None:
    assert digest(expect(record).form) != form(row)


COUNTS = {
    '{"a":1,"d":2.5,"l":[1,null],"r":{"x":3}}': (4, 0),
    '{"a":null,"l":[],"r":{}}': (2, 0),
    '{"new":[],"r":{"y":{}}}': (2, 0),
    '{"new":null}': (0, 0),
    '{"l":7}': (1, 1),
    '{"l":[1,[],2]}': (3, 0),
    '{"d":1e3}': (1, 1),
    '{"d":2.50}': (1, 1),
    '{"d":5}': (1, 0),
    '{"a":true}': (1, 1),
    '{"a":9007199254740993}': (1, 1),
    '{"a":"x"}': (1, 0),
    '{"t":"2024-05-01"}': (1, 0),
    '{"t":"2024-05-01T00:00:00Z"}': (1, 0),
    '{"t":"2024-05-01T00:00:00.000Z"}': (1, 1),
    '{"new":1.50}': (1, 0),
    '{"m":{"k":1,"l":"x"}}': (2, 0),
    '{"hidden":1,"a":1}': (1, 0),
    "nothing": (1, 1),
}


@pytest.mark.parametrize("text", COUNTS)
def test_exact_and_converted_values_are_counted_separately(text: str) -> None:
    """Source: docs/evolution-rules.md#d20"""
    found = expect(text)
    assert (found.values, found.converted) == COUNTS[text]


def test_masks_and_json_texts_are_conversions() -> None:
    policy = Policy(masked=frozenset([("p",)]), pins={("j",): TextForm.JSON})
    schema = StructType((Field("p", parse_type("string")), Field("j", parse_type("string"))))
    found = expect('{"p":7,"j":{"b":[1.50,null]}}', policy, schema)
    assert (found.values, found.converted) == (2, 2)
    assert digest(found.form) == form({"p": "***", "j": '{"b":[1.50,null]}'}, policy, schema)
    assert digest(found.form) != form({"p": "7", "j": '{"b":[1.50,null]}'}, policy, schema)


def test_the_columns_of_a_field_must_agree() -> None:
    assert digest(expect('{"a":1}').form) == form({"a": 1, "a_string": "1"})
    assert digest(expect('{"a":1}').form) != form({"a": 1, "a_string": "2"})
    assert digest(expect('{"t":1714521600}').form) != form({"t": AT.replace(day=3), "t_long": 1714521600})


def test_a_key_may_hold_a_nul() -> None:
    schema = StructType((Field("\0", parse_type("int")), Field("_", parse_type("struct<`\0`: int>"))))
    text = '{"\\u0000":1,"_":{"\\u0000":2}}'
    assert digest(expect(text, POLICY, schema).form) == form({"\0": 1, "_": {"\0": 2}}, POLICY, schema)


@pytest.mark.parametrize("token", ["9" * 39, "1" + "0" * 39, "1" + "0" * 400])
def test_whole_numbers_of_more_than_38_digits_are_texts_even_where_a_double_holds_them(token: str) -> None:
    """Source: docs/evolution-rules.md#d1"""
    schema = StructType(
        (Field("n", parse_type("double")), Field("n_string", parse_type("string"), metadata={"widen.source": ["n"]}))
    )
    found = expect(f'{{"n":{token}}}', POLICY, schema)
    assert digest(found.form) == form({"n_string": token}, POLICY, schema)
    assert found.converted == 1


def test_a_corrupt_text_must_be_complete() -> None:
    reader = SourceReader(SCHEMA, Policy())
    [found] = reader.read(b"no\xff")
    assert digest(found.form) == form({"_corrupt_record": "b'no\\xff'"}, Policy())
    assert digest(found.form) != form({"_corrupt_record": "no"}, Policy())
    assert digest(found.form) != form({"_corrupt_record": "b'no\\xff'", "a": 1}, Policy())


def test_a_quarantined_text_has_the_form_of_its_record() -> None:
    policy = Policy(masked=frozenset([("p",)]))
    schema = StructType((*SCHEMA.fields, Field("p", parse_type("string"))))
    reader = SourceReader(schema, policy)
    [record] = reader.read(b'{"a":"x","p":1}')
    assert digest(record.form) == digest(reader.read_quarantined_records('{"a": "x", "p": "***"}'))
    assert digest(record.form) != digest(reader.read_quarantined_records('{"a": "y", "p": "***"}'))
    [corrupt] = reader.read(b"no")
    assert digest(corrupt.form) == digest(reader.read_quarantined_records("*** 2 bytes that may hold p"))


LINE, OTHER = b'{"a":1,"b":"x"}', b'{"b":"y","a":2}'
FILES = {
    "lines": (LINE + b"\n" + OTHER + b"\n", [LINE, OTHER]),
    "blank lines and a mark": (b"\xef\xbb\xbf" + LINE + b"\r\n\r\n" + LINE, [LINE, LINE]),
    "a line that is not JSON": (LINE + b"\n{a}\n" + LINE, [LINE, b"{a}", LINE]),
    "two records on a line": (LINE + b"\n" + LINE + OTHER, [LINE, LINE, OTHER]),
    "a record over two lines": (LINE + b'\n{"a":1,\n"b":"x"}', [LINE, LINE]),
    "an array": (b"[" + LINE + b",\n" + OTHER + b"]", [LINE, OTHER]),
    "an array on a line": (LINE + b"\n[" + LINE + b"]", [LINE, LINE]),
    "no record": (b"{a}\n{b}", [b"{a}\n{b}"]),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_encoded_forms_of_its_records(name: str) -> None:
    schema, policy = ingest_texts(None, [LINE], Policy(Mode.SPLIT)).plan.schema, Policy(Mode.SPLIT)
    data, records = FILES[name]
    for layout in layouts_of(schema, policy, [LINE]):
        found = list(SourceEncoder(schema, policy, layout).encode_file(data))
        assert found == encode_records(schema, policy, records, layout)


def test_a_time_in_another_zone_is_the_count_of_no_number() -> None:
    assert is_epoch_count_of("2024-05-01T10:00:00Z", 1714557600)
    assert not is_epoch_count_of("2024-05-01T10:00:00+02:00", 1714550400)


def test_differences_have_paths() -> None:
    one, other = {"a": 1, "r": {"x": [1, 2]}, "s": [1, 2]}, {"a": 1, "r": {"x": [1, 3]}, "s": [1]}
    assert list(find_differences(one, other)) == [("r.x[1]", 1), ("s", 2)]


INNER = '{"c":1.10,"d":[[],null],"e":{"f":null}}'


def nested(opening: str, depth: int, inner: str = "1") -> str:
    closing = {"{": "}", "[": "]"}[opening[0]]
    return opening * depth + inner + closing * depth


DEEP = {
    "41 records are columns": '{"a":' + nested('{"a":', 40) + "}",
    "42 records": '{"a":' + nested('{"a":', 41) + "}",
    "a record below 41 records": '{"a":' + nested('{"a":', 40, INNER) + "}",
    "an array below 41 records": '{"a":' + nested('{"a":', 40, '["x",{"y":1e400}]') + "}",
    "arrays": '{"a":' + nested("[", 60) + "}",
    "200 records": nested('{"a":', 200),
    "200 arrays": '{"a":' + nested("[", 199) + "}",
    "records of an array": "[" + nested('{"a":', 41, INNER) + ',{"a":1}]',
    "beside what is not deep": '{"b":[1,2],"a":' + nested('{"a":', 44, INNER) + ',"c":"x"}',
    "an empty array below 41 records": '{"a":' + nested('{"a":', 40, "[]") + "}",
    "201 records are corrupt": nested('{"a":', 201),
    "201 arrays are corrupt": '{"a":' + nested("[", 200) + "}",
    "201 records of an array are corrupt": "[" + nested('{"a":', 201) + "]",
    "half a surrogate pair is corrupt": '{"a":' + nested('{"a":', 45, '"\\ud800"') + "}",
}
DEEP_POLICIES = {
    "split": Policy(Mode.SPLIT),
    "widen": Policy(Mode.WIDEN),
    "freeze": Policy(Mode.FREEZE),
    "JSON": Policy(pins={("a",): TextForm.JSON}),
    "text": Policy(pins={("a",): TextForm.TEXT}),
    "mask": Policy(masked=frozenset([("a",)])),
    "left out": Policy(excluded=frozenset([("a",)])),
}


@pytest.mark.parametrize("policy", DEEP_POLICIES)
@pytest.mark.parametrize("name", DEEP)
def test_what_lies_deeper_than_41_levels_is_proven_as_its_json_text(name: str, policy: str) -> None:
    """Source: docs/evolution-rules.md#d23"""
    texts, given = [b'{"a":1,"b":[1],"c":"y"}', DEEP[name].encode()], DEEP_POLICIES[policy]
    base = ingest_texts(None, texts[:1], given).plan.schema
    done = ingest_texts(base, texts, given)
    reader = SourceReader(done.plan.schema, given)
    for text, rows in zip(texts, done.rows, strict=True):
        expected, exactly = list(reader.read(text)), list(reader.read_exactly(text))
        assert to_comparable(expected) == to_comparable(exactly)
        assert [digest(each.form) for each in expected] == [
            digest(form) for form in forms_of(done.plan.schema, given, rows)
        ]


def test_another_text_below_41_levels_is_a_difference() -> None:
    text = DEEP["a record below 41 records"]
    done = ingest_texts(None, [text.encode()], Policy(Mode.SPLIT))
    [found] = SourceReader(done.plan.schema, Policy(Mode.SPLIT)).read(text.encode())
    other = text.replace("1.10", "1.1")
    [wrong] = ingest_texts(done.plan.schema, [other.encode()], Policy(Mode.SPLIT)).rows[0]
    assert digest(found.form) != form(wrong, Policy(Mode.SPLIT), done.plan.schema)
    assert (found.values, found.converted) == (1, 1)
