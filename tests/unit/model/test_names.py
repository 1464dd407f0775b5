"""Which names are the same column, and which ones a reader may confuse."""

from __future__ import annotations

import pickle
import sys

import pytest

from support.similar_names import forms
from widen.model.types import INTEGER, Field, StructType, is_same_name, name_key, similarity_key

SAME = [("Total", "TOTAL"), ("sira", "sıra"), ("İ", "i"), ("ẞ", "ß"), ("K", "k"), ("ſ", "s"), ("µ", "μ"), ("ς", "σ")]
DIFFERENT = [
    ("straße", "strasse"),
    ("ß", "ss"),
    ("ŉ", "ʼn"),
    ("ﬁ", "fi"),
    ("\u0390", "\u1fd3"),
    ("é", "e"),
    ("e\u0301", "é"),
]


@pytest.mark.parametrize(("name", "other"), SAME)
def test_names_are_the_same_that_spark_takes_for_one(name: str, other: str) -> None:
    assert name_key(name) == name_key(other)
    assert similarity_key(name) == similarity_key(other)


@pytest.mark.parametrize(("name", "other"), DIFFERENT)
def test_other_names_are_different_columns(name: str, other: str) -> None:
    assert not is_same_name(name, other)


@pytest.mark.parametrize(("name", "other"), DIFFERENT[:5])
def test_names_with_the_same_upper_case_or_folded_form_are_similar(name: str, other: str) -> None:
    assert similarity_key(name) == similarity_key(other)


def test_all_forms_of_every_code_point_are_similar() -> None:
    chars = [chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000]
    apart = [c for c in chars for form in {*forms(c), name_key(c)} if similarity_key(form) != similarity_key(c)]
    assert apart == []


def test_delta_lake_takes_a_dotted_capital_i_for_its_lower_case() -> None:
    assert is_same_name("İ", "i\u0307")
    assert not is_same_name("i", "i\u0307")


def test_an_exact_match_comes_first_then_lower_case_then_any() -> None:
    struct = StructType(tuple(Field(name, INTEGER) for name in ("sira", "sıra", "straße")))
    found = {name: struct.find(name) for name in ("sıra", "SIRA", "SİRA", "STRASSE", "STRAẞE")}
    assert {name: field and field.name for name, field in found.items()} == {
        "sıra": "sıra",
        "SIRA": "sira",
        "SİRA": "sira",
        "STRASSE": None,
        "STRAẞE": "straße",
    }


def test_the_index_of_names_is_not_pickled() -> None:
    struct = StructType((Field("a", INTEGER),))
    before = pickle.dumps(struct)
    assert struct.find("A") is not None
    assert pickle.dumps(struct) == before
    assert pickle.loads(before) == struct
