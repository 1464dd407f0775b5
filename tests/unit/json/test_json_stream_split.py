"""Records from pieces, with any text around them and any split."""

from __future__ import annotations

import pytest

from widen.errors import CorruptFile
from widen.json.document import RecordSplitter

TEXTS = {
    "an array": (b'[{"a":1}, {"a":2}]', [b'{"a":1}', b'{"a":2}']),
    "an array after a byte order mark": (b'\xef\xbb\xbf[\n{"a":1}\n]\n', [b'{"a":1}']),
    "documents one after the other": (b'{\n "a": 1\n}\n{\n "a": 2\n}', [b'{\n "a": 1\n}', b'{\n "a": 2\n}']),
    "records in records": (b'[{"a":{"b":{}}},{"c":[{"d":1}]}]', [b'{"a":{"b":{}}}', b'{"c":[{"d":1}]}']),
    "braces in texts": (b'[{"a":"}{"},{"b{":"\\"}"}]', [b'{"a":"}{"}', b'{"b{":"\\"}"}']),
    "a backslash at the end of a text": (b'{"a":"\\\\"}{"b":1}', [b'{"a":"\\\\"}', b'{"b":1}']),
    "values between records": (b'[1, {"a":1}, "x", {"b":2}, true]', [b"1", b'{"a":1}', b'"x"', b'{"b":2}', b"true"]),
    "a record that has no end": (b'[{"a":1},{"b":{"c":2}', [b'{"a":1}', b'{"b":{"c":2}']),
    "a record whose last brace is missing": (b'{"a":1}\n{"b":2', [b'{"a":1}', b'{"b":2']),
    "a brace too many": (b'{"a":1}}\n{"b":2}', [b'{"a":1}', b"}", b'{"b":2}']),
    "nothing": (b"[ ]\n", []),
    "an array on a line between records": (b'{"a":1}\n[1,2]\n{"b":2}', [b'{"a":1}', b"[1,2]", b'{"b":2}']),
    "an array on the first line": (b'[1,2]\n{"b":2}', [b"[1,2]", b'{"b":2}']),
    "arrays in an array of records": (b'[[1], {"a":1}, [], [2, 3]]', [b"[1]", b'{"a":1}', b"[], [2, 3]"]),
    "an empty array in an array of records": (b'[[], {"a":1}, [], {"b":2}]', [b"[]", b'{"a":1}', b"[]", b'{"b":2}']),
    "arrays of records": (b'[[{"a":1}],[{"a":2}]]', [b'{"a":1}', b'{"a":2}']),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_the_outermost_records_are_assembled(text: bytes, expected: list[bytes]) -> None:
    pieces = text.removesuffix(b"}").split(b"}") if text.endswith(b"}") else text.split(b"}")
    splitter = RecordSplitter()
    records = [record for piece in pieces for record in splitter.records(piece)]
    assert records + list(splitter.rest(len(text))) == expected


def test_a_record_without_an_end_is_an_error() -> None:
    splitter = RecordSplitter("file:/a.json", 10)
    with pytest.raises(CorruptFile, match=r"file:/a\.json .* byte 0 does not end"):
        list(splitter.records(b'{"a":{"b":1')) + list(splitter.records(b""))
