from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from support.drift import BAD, NUMBERS
from support.stable_interval import rows_of_text
from widen.batches.text_tasks import observe_chunk
from widen.evolution.policy import Policy
from widen.json.document import corrupt_bytes_to_text
from widen.json.kinds import Kind
from widen.json.observation import Observation, observation_from_json
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.rows.column_assembler import RecordDecoder
from widen.rows.row import build_routes
from widen.rows.row_builder import RowBuilder
from widen.rows.shape import BatchProfile, build_record_shape

TABLE = parse_type("struct<a: int, d: double, s: string, r: struct<x: int>, _corrupt_record: string>")
assert isinstance(TABLE, StructType)


def test_what_fits_is_not_observed() -> None:
    maker = RowBuilder(TABLE)
    [row] = rows_of_text(maker, TABLE, b'{"a":1,"d":2,"s":"x","r":{"x":1}}')
    assert row == {"a": 1, "d": 2, "s": "x", "r": {"x": 1}, "_corrupt_record": None}
    assert (maker.observation.records, maker.observation.root) == (1, {})


@pytest.mark.parametrize(
    ("text", "key", "kind"),
    [
        (b'{"a":2147483648}', "a", "long"),
        (b'{"a":1.0}', "a", "double"),
        (b'{"d":9007199254740993}', "d", "long"),
        (b'{"d":1e400}', "d", "string"),
        (b'{"d":0.1000000000000000000001}', "d", "decimal"),
        (b'{"s":["x"]}', "s", "string[]"),
        (b'{"r":[{"x":1}]}', "r", "record[]"),
        (b'{"new":true}', "new", "boolean"),
        (b'{"q\\"":1}', 'q"', "long"),
        (b'{"":1}', "", "long"),
    ],
)
def test_what_does_not_fit_is_observed(text: bytes, key: str, kind: str) -> None:
    maker = RowBuilder(TABLE)
    rows_of_text(maker, TABLE, text)
    assert [str(found) for found in maker.observation.root[key].kinds] == [kind]


@pytest.mark.parametrize("text", [text for text in BAD if not text.lstrip().startswith(b"[")])
def test_what_is_no_record_is_kept_whole(text: bytes) -> None:
    maker = RowBuilder(TABLE)
    [row] = rows_of_text(maker, TABLE, text)
    assert {k: v for k, v in row.items() if v is not None} == {"_corrupt_record": corrupt_bytes_to_text(text)}
    assert (maker.observation.records, maker.observation.corrupt) == (0, 1)


def test_an_array_of_records_gives_a_row_for_each() -> None:
    maker = RowBuilder(TABLE)
    assert [row["a"] for row in rows_of_text(maker, TABLE, b'[{"a":1},{"a":2}]')] == [1, 2]
    assert rows_of_text(maker, TABLE, b"[]") == []


FRACTIONS = parse_type("struct<d: array<double>, s: string>")


@pytest.mark.parametrize("space", ["", " "])
@pytest.mark.parametrize("token", NUMBERS)
def test_a_number_that_decoding_changes_takes_the_exact_path(token: str, space: str) -> None:
    assert isinstance(FRACTIONS, StructType)
    texts = [f'{{"d":{space}[1.5,{space}{token}{space}]}}', f'{{"s":"1e5","d":{space}[{token}]}}']
    for text in texts:
        decoded = RecordDecoder(build_record_shape(build_routes(FRACTIONS), BatchProfile())).decode([text.encode()])
        if decoded != [None]:
            value = Decimal(repr(decoded[0].f0[-1])) if decoded[0].f0[-1] else Decimal(0)
            assert value == Decimal(token)
            assert token != "-0"


def test_a_pending_key_that_is_called_like_the_column_of_another_stays_out_of_it() -> None:
    evolved = Field("a_array_string", parse_type("array<string>"), metadata={"widen.source": ["a"]})
    table = StructType((Field("a", parse_type("int")), evolved))
    maker = RowBuilder(table)
    for _ in range(2):
        for text in (b'{"a_array_string":[]}', b'{"a_array_string":null}'):
            assert [row["a_array_string"] for row in rows_of_text(maker, table, text)] == [None]
        maker.adapt()


def test_an_array_of_whole_numbers_goes_to_every_column_that_takes_it() -> None:
    fractions = Field("a", parse_type("array<double>"))
    whole = Field("a_array_int", parse_type("array<int>"), metadata={"widen.source": ["a"]})
    table = StructType((fractions, whole))
    assert rows_of_text(RowBuilder(table), table, b'{"a":[0]}') == [{"a": [0], "a_array_int": [0]}]


def test_after_adapting_a_drifting_field_is_routed_without_the_exact_path() -> None:
    maker = RowBuilder(TABLE)
    rows_of_text(maker, TABLE, b'{"s":1}')
    maker.adapt()
    assert [row["s"] for row in rows_of_text(maker, TABLE, b'{"a":1,"s":1.10}')] == ["1.10"]
    assert set(maker.observation.root["s"].kinds) == {Kind("long"), Kind("double")}


def test_in_a_column_of_texts_that_was_there_numbers_are_not_looked_at_one_by_one() -> None:
    """Once a task has seen that they come, they bring nothing new: the column holds whatever scalars come (U7)."""
    maker = RowBuilder(TABLE, base=TABLE)
    rows_of_text(maker, TABLE, b'{"s":1}')
    maker.adapt()
    rows = [
        rows_of_text(maker, TABLE, text)[0]["s"] for text in (b'{"s":2}', b'{"s":1.10}', b'{"s":true}', b'{"s":"x"}')
    ]
    assert rows == ["2", "1.10", "true", "x"]
    assert maker.observation.root["s"].kinds[Kind("long")].count == 1


def test_a_field_of_several_columns_is_decoded_natively_until_it_has_another_kind() -> None:
    """Then the columns that were there tell without a look what they hold (U7)."""
    tag = Field("tag_string", parse_type("string"), metadata={"widen.source": ["tag"]})
    table = StructType((Field("tag", parse_type("array<string>")), tag))
    maker = RowBuilder(table, base=table)
    for _ in range(2):
        for text, held in ((b'{"tag":"x"}', (["x"], "x")), (b'{"tag":["y"]}', (["y"], None))):
            assert [tuple(row.values()) for row in rows_of_text(maker, table, text)] == [held]
        assert maker.observation.root == {}
        maker.adapt()
    for text, held in ((b'{"tag":1.10}', (["1.10"], "1.10")), (b'{"tag":true}', (["true"], "true"))):
        assert [tuple(row.values()) for row in rows_of_text(maker, table, text)] == [held]
        maker.adapt()
    assert set(maker.observation.root["tag"].kinds) == {Kind("double")}


def test_a_whole_number_that_goes_to_a_column_of_texts_keeps_its_digits() -> None:
    number = Field("zip_int", parse_type("int"), metadata={"widen.source": ["zip"]})
    table = StructType((Field("zip", parse_type("string")), number))
    for base in (None, table):
        maker = RowBuilder(table, base=base)
        texts = (b'{"zip":-2147483648}', b'{"zip":0}', b'{"zip":"007"}', b'{"zip":-0}')
        rows = [tuple(rows_of_text(maker, table, text)[0].values()) for text in texts]
        assert rows == [("-2147483648", -2147483648), ("0", 0), ("007", None), ("-0", 0)]


def test_in_a_decimal_column_that_was_there_only_what_does_not_fit_is_looked_at() -> None:
    table = parse_type("struct<a: decimal(5,2)>")
    assert isinstance(table, StructType)
    maker = RowBuilder(table, base=table)
    assert [rows_of_text(maker, table, text)[0]["a"] for text in (b'{"a":1.5}', b'{"a":7}')] == [
        Decimal("1.5"),
        Decimal(7),
    ]
    assert maker.observation.root == {}
    assert rows_of_text(maker, table, b'{"a":0.125}')[0]["a"] is None
    assert set(maker.observation.root["a"].kinds) == {Kind("double")}


NATIVE = [
    ("map<string,int>", Policy(), b'{"a":{"k":1,"l":null}}', [("k", 1), ("l", None)]),
    ("map<string,array<double>>", Policy(), b'{"a":{"k":[1,2.5]}}', [("k", [1.0, 2.5])]),
    ("string", Policy(masked=frozenset([("a",)])), b'{"a":1}', "***"),
    ("date", Policy(date_fields=frozenset([()])), b'{"a":"2024-05-01"}', date(2024, 5, 1)),
    ("string", Policy(date_fields=frozenset([()])), b'{"a":"2024-05-01"}', "2024-05-01"),
]


@pytest.mark.parametrize(("column", "policy", "text", "held"), NATIVE)
def test_what_columns_of_the_table_take_needs_no_look(column: str, policy: Policy, text: bytes, held: object) -> None:
    table = parse_type(f"struct<a: {column}>")
    assert isinstance(table, StructType)
    maker = RowBuilder(table, policy, table)
    assert rows_of_text(maker, table, text) == [{"a": held}]
    assert maker.observation.root == {}


def test_a_field_that_is_left_out_needs_no_column_and_no_look() -> None:
    maker = RowBuilder(TABLE, Policy(excluded=frozenset([("secret",), ("r", "secret")])))
    for text in (b'{"a":1,"secret":"x","r":{"x":1,"secret":7}}', b'{"a":1,"secret":{"y":1},"r":{"x":1}}'):
        [row] = rows_of_text(maker, TABLE, text)
        assert (row["a"], row["r"]) == (1, {"x": 1})
    assert "secret" not in maker.observation.root


def test_a_text_that_is_no_record_is_told_with_its_place() -> None:
    at = Field("_corrupt_at", parse_type("string"))
    table = StructType((*TABLE.fields, at))
    [row] = rows_of_text(RowBuilder(table), table, b"nothing", ("dir/f.jsonl", 17))
    why = "not a JSON record: expecting value at character 1"
    assert (row["_corrupt_record"], row["_corrupt_at"]) == ("nothing", f"dir/f.jsonl:17 ({why})")


ARRAYS = parse_type("struct<a: struct<x: int>, a_int: int, a_string: string, a_array_int: array<int>,"
    " a_array_string: array<string>, a_array2_int: array<array<int>>>")  # fmt: skip
assert isinstance(ARRAYS, StructType)
COLUMNS_OF_A = StructType(
    tuple(Field(field.name, field.type, metadata={"widen.source": ["a"]}) for field in ARRAYS.fields)
)


@pytest.mark.parametrize(
    ("text", "row", "kinds"),
    [
        ("[1,2]", {"a_array_int": [1, 2], "a_array_string": ["1", "2"], "a_array2_int": [[1], [2]]}, []),
        ("[2147483647]", {"a_array_int": [2147483647], "a_array_string": ["2147483647"],
                          "a_array2_int": [[2147483647]]}, []),
        ("[2147483648]", {"a_array_string": ["2147483648"]}, ["long[]"]),
        ("[-0]", {"a_array_int": [0], "a_array_string": ["-0"], "a_array2_int": [[0]]}, ["long[]"]),
        ('["x","1"]', {"a_array_string": ["x", "1"]}, []),
        ("[]", {"a_array_int": [], "a_array_string": [], "a_array2_int": []}, []),
        ('[1,"x"]', {"a_array_int": [1, None], "a_array_string": ["1", "x"], "a_array2_int": [[1], None]},
         ["long[]", "string[]"]),
        ("[true]", {"a_array_string": ["true"]}, ["boolean[]"]),
        ("[1.50]", {"a_array_string": ["1.50"]}, ["double[]"]),
        ("[null]", {"a_array_int": [None], "a_array_string": [None], "a_array2_int": [None]}, []),
        ("[[1],[2]]", {"a_array2_int": [[1], [2]]}, ["long[][]"]),
    ],
)  # fmt: skip
def test_a_field_of_several_array_columns(text: str, row: dict[str, object], kinds: list[str]) -> None:
    maker = RowBuilder(COLUMNS_OF_A, Policy(), COLUMNS_OF_A)
    [found] = rows_of_text(maker, COLUMNS_OF_A, b'{"a":%s}' % text.encode())
    assert {key: value for key, value in found.items() if value is not None} == row
    seen = maker.observation.root.get("a")
    assert sorted(map(str, seen.kinds if seen else ())) == kinds


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        (b"{", True),
        (b"  { ", True),
        (b'\xef\xbb\xbf{"a": 1,', True),
        (b'{"a": {"b": [', True),
        (b'{"a": 1', False),
        (b'{"a": "cut', False),
        (b'"a": 1,', False),
        (b"}", False),
        (b"nothing, {", False),
    ],
)
def test_the_first_line_of_a_record_over_several_lines_is_noticed(text: bytes, begins: bool) -> None:
    builder = RowBuilder(StructType())
    builder.add([b"x", text, text], [("f", 1), ("f", 2), ("f", 3)])
    observe_chunk(builder)
    assert builder.observation.corrupt == 3
    assert builder.observation.unclosed == (("f", 2) if begins else None)
    sent = observation_from_json(builder.observation.to_json())
    assert (sent.unclosed, sent.first_corrupt) == (builder.observation.unclosed, ("f", 1))
    other = Observation(unclosed=("e", 9), first_corrupt=("e", 8))
    merged = builder.observation.merged(other)
    assert (merged.unclosed, merged.first_corrupt) == (("e", 9), ("e", 8))


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"k":', "}")])
def test_records_nested_about_as_deeply_as_python_allows_have_a_row(begin: str, end: str) -> None:
    for depth in range(850, 1000):
        text = f'{{"s":{begin * depth}1{end * depth}}}'.encode()
        [row] = rows_of_text(RowBuilder(TABLE), TABLE, text)
        assert row["s"] or row["_corrupt_record"]
