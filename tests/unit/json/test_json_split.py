from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from widen.json.document import split_records
from widen.proof.json_reader import split_into_parts


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        (b'{"a":1}\n{"a":2}\n', [b'{"a":1}', b'{"a":2}']),
        (b'{"a":1}\r\n \t\n{"a":2}', [b'{"a":1}', b'{"a":2}']),
        (b'\xef\xbb\xbf{"a":1}\n{"a":2}', [b'{"a":1}', b'{"a":2}']),
        (b'[{"a": 1},\n  {"a": 2}]\n', [b'{"a": 1}', b'{"a": 2}']),
        (b'\xef\xbb\xbf [{"a":1}]', [b'{"a":1}']),
        (b'{\n  "a": 1\n}\n', [b'{\n  "a": 1\n}']),
        (b'[1, "x", null]', [b"1", b'"x"', b"null"]),
        (b"[]", []),
        (b"", []),
        (b" \n\t\n", []),
        (b'{"a":1}\n{"a":\n', [b'{"a":1}', b'{"a":']),
        (b'nothing\n{"a":1}', [b"nothing", b'{"a":1}']),
        (b'[{"a":1}]\n[{"a":2}]', [b'[{"a":1}]', b'[{"a":2}]']),
        (b'{"a":1}\n\xff\n', [b'{"a":1}', b"\xff"]),
        (b"no\nrecord", [b"no\nrecord"]),
        (b'{\n "a": 1\n', [b'{\n "a": 1']),
        (b'[{"a":1}, {"a":', [b'{"a":1}', b'{"a":']),
        (b'{"a":"\xe2\x80\xa8"}\n{"a":2}', [b'{"a":"\xe2\x80\xa8"}', b'{"a":2}']),
        (b'{"a":1,"a":2}', [b'{"a":1,"a":2}']),
        (b'{"a":1}{"a":2}', [b'{"a":1}', b'{"a":2}']),
        (b'{"a":1} [2]\t{"a":3}\n{"a":4}{"a":5}\n', [b'{"a":1}', b"[2]", b'{"a":3}', b'{"a":4}', b'{"a":5}']),
        (b'{"a":"}{"}\n{"a":"} {"}', [b'{"a":"}{"}', b'{"a":"} {"}']),
        (b'{"a":"}{"}{"a":"\xff"}', [b'{"a":"}{"}', b'{"a":"\xff"}']),
        (b'{\n "a": [\n1,\n2\n]\n}\n{\n "a": {}\n}\n', [b'{\n "a": [\n1,\n2\n]\n}', b'{\n "a": {}\n}']),
        (b'{\n "a": 1\n}{\n "a": 2\n}', [b'{\n "a": 1\n}', b'{\n "a": 2\n}']),
        (b'{\n "a": 1\n}\n{\n "b": 1,\n{\n "c": 1\n}', [b'{\n "a": 1\n}', b"{", b'"b": 1,', b'{\n "c": 1\n}']),
        (b'{"a":1}x\n{"a":2}', [b'{"a":1}x', b'{"a":2}']),
        (b'{"a":1}\n\x85\xa0\n{"a":2}', [b'{"a":1}', b"\x85\xa0", b'{"a":2}']),
        (b"bad\n" * 30 + b'{"a":1}', [b"bad"] * 30 + [b'{"a":1}']),
        (b"5\n[1]\n", [b"5", b"[1]"]),
    ],
)
def test_a_file_is_split_into_texts(data: bytes, texts: list[bytes]) -> None:
    assert list(split_records(data)) == texts


def test_deep_nesting_is_one_text() -> None:
    deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert list(split_records(deep)) == [deep]


PAGE = Path(__file__).resolve().parents[3] / "docs/guide/json.md"
EXAMPLES = re.findall(r"^\| (`.*`) \| (`.*`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def texts_in(cell: str) -> list[bytes]:
    return [text.replace("⏎", "\n").encode().replace(rb"\xff", b"\xff") for text in re.findall("`([^`]*)`", cell)]


@pytest.mark.parametrize(("file", "texts"), EXAMPLES)
def test_the_examples_of_the_page(file: str, texts: str) -> None:
    (data,) = texts_in(file)
    assert list(split_records(data)) == list(split_into_parts(data)) == texts_in(texts)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 15


KINDS = (
    *(
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":1,"a":2}',
        b'{"a":01}',
        b'{"a":+1}',
    ),
    *(b'{"a":.5}', b'{"a":0x1}', b'{"a":1,}', b"{'a':1}", b"{a:1}", b'{"a":True}', b'{"a"}', b'{"a":1 "b":2}', b"text"),
    *(b'{"a":"\t"}', b'{"a":"\\x41"}', b'{"a":1}}', b'{"a":[1}', b'{"a":1]', b'{/**/"a":1}', b"7", b"null"),
    *(b'{"d":' + b"[" * 250 + b"]" * 250 + b"}", b'{"a":"\x00"}', b"undefined"),
)
"""Elements that are not records."""


@pytest.mark.parametrize("odd", [*KINDS, b'{"a":"b\nc"}'])
@pytest.mark.parametrize("comma", [b",", b" ,\n "])
def test_an_odd_element_is_one_text_and_the_others_are_records(odd: bytes, comma: bytes) -> None:
    data = b"[" + comma.join([b'{"a":1}', odd, b'{"a":3}']) + b"]"
    assert list(split_records(data)) == list(split_into_parts(data)) == [b'{"a":1}', odd, b'{"a":3}']


@pytest.mark.parametrize("odd", [*KINDS, b'{"a":"x}', b'{"a:1}', b'{"a":{"b":1}'])
def test_an_element_on_a_line_of_its_own_ends_there(odd: bytes) -> None:
    data = b'[\n{"a":1},\n' + odd + b',\n{"a":3}\n]'
    assert list(split_records(data)) == list(split_into_parts(data)) == [b'{"a":1}', odd, b'{"a":3}']


def test_damage_takes_no_quadratic_time() -> None:
    for data in (
        b"[" * 50_000 + b"}" * 50_000,
        b"[" + b'{"' * 50_000,
        b"[" + b"{[" * 50_000 + b"}" * 50_000 + b"]",
        b'[{"a":"' + b'\\"' * 200_000 + b'"},NaN]',
        b"[\n" + b'{"a":"x},\n' * 20_000 + b"]",
    ):
        begun = time.process_time()
        assert list(split_records(data)) == list(split_into_parts(data))
        assert time.process_time() - begun < 10
