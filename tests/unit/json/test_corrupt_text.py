from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widen.json.document import corrupt_bytes_to_text, corrupt_text_to_bytes


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"no record", "no record"),
        ("é".encode(), "é"),
        (b"no\\xff", "no\\xff"),
        (b"no\xff", "b'no\\xff'"),
        (b"b'no'", "b\"b'no'\""),
        (b"", ""),
    ],
)
def test_bytes_that_are_not_utf_8_are_written_as_a_literal(data: bytes, text: str) -> None:
    assert corrupt_bytes_to_text(data) == text


@given(st.binary() | st.text().map(str.encode) | st.binary().map(repr).map(str.encode))
def test_the_bytes_can_be_restored(data: bytes) -> None:
    assert corrupt_text_to_bytes(corrupt_bytes_to_text(data)) == data


@given(st.binary(), st.binary())
def test_different_bytes_have_different_texts(left: bytes, right: bytes) -> None:
    assert (corrupt_bytes_to_text(left) == corrupt_bytes_to_text(right)) == (left == right)
