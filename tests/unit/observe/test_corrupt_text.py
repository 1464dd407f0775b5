from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widen.observe.corrupt_text import from_kept_text, to_kept_text


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
def test_bytes_that_are_no_text_are_kept_as_python_writes_them(data: bytes, text: str) -> None:
    assert to_kept_text(data) == text


@given(st.binary() | st.text().map(str.encode) | st.binary().map(repr).map(str.encode))
def test_they_come_back(data: bytes) -> None:
    assert from_kept_text(to_kept_text(data)) == data


@given(st.binary(), st.binary())
def test_no_text_stands_for_two_contents(one: bytes, other: bytes) -> None:
    assert (to_kept_text(one) == to_kept_text(other)) == (one == other)
