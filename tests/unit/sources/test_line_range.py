from __future__ import annotations

import io
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widen.sources.file_ranges import read_line_blocks, read_lines

texts = st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r"]), max_size=14).map(b"".join)


@given(texts, st.sets(st.integers(0, 14), max_size=4), st.integers(1, 6))
def test_adjacent_ranges_have_every_line_once(data: bytes, cuts: set[int], block_bytes: int) -> None:
    ends = sorted({0, len(data)} | {cut for cut in cuts if cut < len(data)})
    found = [
        line
        for start, end in pairwise(ends)
        for lines in read_lines(io.BytesIO(data), start, end, block_bytes)
        for line in lines
    ]
    assert found == data.splitlines()


@pytest.mark.parametrize(
    ("start", "end", "lines"),
    [(0, 4, [b"ab"]), (0, 5, [b"ab", b"cd"]), (1, 4, []), (3, 8, [b"cd"]), (4, 8, [b"cd"]), (5, 8, []), (8, 9, [b""])],
)
def test_a_line_belongs_to_the_range_with_its_first_byte(start: int, end: int, lines: list[bytes]) -> None:
    data = b"ab\r\ncd\r\n\nx"
    assert [line for each in read_lines(io.BytesIO(data), start, end) for line in each] == lines


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    assert list(read_lines(io.BytesIO(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"), 0, 9)) == [[b"a", b"\xef\xbb\xbfb"]]


@given(texts, st.sets(st.integers(0, 14), max_size=4), st.integers(1, 6))
def test_blocks_of_adjacent_ranges_are_the_file(data: bytes, cuts: set[int], block_bytes: int) -> None:
    ends = sorted({0, len(data)} | {cut for cut in cuts if cut < len(data)})
    blocks = [
        block for start, end in pairwise(ends) for block in read_line_blocks(io.BytesIO(data), start, end, block_bytes)
    ]
    assert b"".join(blocks) == data
    assert all(block.endswith((b"\n", b"\r")) for block in blocks[:-1])
