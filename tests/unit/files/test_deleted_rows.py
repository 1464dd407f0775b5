"""Deleted rows as words: each has the number of its first row divided by 64, and a bit for each row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from widen.files.deleted_rows import marked_rows, word_batches


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0], [(0, 1)]),
        ([63], [(0, -(2**63))]),
        ([62, 63], [(0, -(2**62))]),
        ([64, 66], [(1, 0b101)]),
        (range(128), [(0, -1), (1, -1)]),
        ([5, 2**31, 2**40 + 1], [(0, 32), (2**25, 1), (2**34, 2)]),
        ([], []),
    ],
)
def test_the_rows_of_a_bitmap_are_bits_of_words(rows: list[int], words: list[tuple[int, int]]) -> None:
    found = [row for batch in word_batches("f", BitMap64(rows)) for row in batch.to_pylist()]
    assert sorted(tuple(row.values()) for row in found) == [("f", *word) for word in words]


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ([(0, 1)], [0]),
        ([(0, -(2**63))], [63]),
        ([(3, 0b101), (1, -1)], [192, 194, *range(64, 128)]),
        ([(2**25, 1), (2**34, 2)], [2**31, 2**40 + 1]),
        ([(7, 0)], []),
    ],
)
def test_the_bits_of_words_are_rows(words: list[tuple[int, int]], rows: list[int]) -> None:
    numbers, masks = (pa.array(column, pa.int64()) for column in zip(*words, strict=True))
    assert marked_rows(numbers, masks).to_pylist() == rows
    more = pa.array([-1, *masks.to_pylist()], pa.int64())
    assert marked_rows(numbers, more[1:]).to_pylist() == rows


def test_a_large_bitmap_is_expanded_in_several_batches_and_loses_no_row() -> None:
    rows = set(range(0, 300_000, 3)) | {65_535, 65_536}
    batches = list(word_batches("f", BitMap64(rows)))
    assert len(batches) > 1
    found = set()
    for _, word, mask in (row.values() for batch in batches for row in batch.to_pylist()):
        found |= {word * 64 + bit for bit in range(64) if mask >> bit & 1}
    assert found == rows
