from __future__ import annotations

import pytest

from widen.json.document import split_records


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
        (b'[{"a":1}, {"a":', [b'[{"a":1}, {"a":']),
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
