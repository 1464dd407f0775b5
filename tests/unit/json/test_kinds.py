from __future__ import annotations

import pytest

from widen.json.kinds import KIND_WORDS, Kind, leaf_and_dim, nest_in_arrays, parse_kind, word_of
from widen.model.schema_json import parse_type
from widen.model.types import LONG


@pytest.mark.parametrize("word", KIND_WORDS)
@pytest.mark.parametrize("dim", [0, 1, 3])
def test_the_text_of_a_kind_reads_back(word: str, dim: int) -> None:
    assert parse_kind(str(Kind(word, dim))) == Kind(word, dim)


def test_arrays_are_peeled_and_put_back() -> None:
    assert leaf_and_dim(parse_type("array<array<bigint>>")) == (LONG, 2)
    assert nest_in_arrays(LONG, 2) == parse_type("array<array<bigint>>")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("tinyint", "int"),
        ("smallint", "int"),
        ("int", "int"),
        ("bigint", "long"),
        ("float", "double"),
        ("double", "double"),
        ("decimal(5,2)", "decimal"),
        ("struct<a: int>", "record"),
        ("timestamp", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("binary", "binary"),
        ("map<string,int>", None),
        ("array<int>", None),
    ],
)
def test_the_word_of_a_type(text: str, word: str | None) -> None:
    assert word_of(parse_type(text)) == word
