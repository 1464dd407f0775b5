"""Texts and names in SQL: the escapes of Spark, one by one, and both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from widen.model.literal import from_literal, to_identifier, to_literal

# What Spark 4 gives for each; tests/engine/test_sql.py asks it.
LITERALS = [
    (r"'a''b'", "a'b"),
    (r"'a\'b'", "a'b"),
    ('"a""b"', 'a"b'),
    ("\"a''b\"", "a''b"),
    ("'a\"\"b'", 'a""b'),
    (r"r'a\nb'", r"a\nb"),
    (r'R"a\"', "a\\"),
    (r"'\u00e4'", "ä"),
    (r"'\U0001F600'", "😀"),
    (r"'\ud83d\ude00'", "😀"),
    (r"'\101'", "A"),
    (r"'\%x\_'", r"\%x\_"),
    (r"'\q\Z\0'", "q\x1a\0"),
    (r"'\\n\n\t\r\b'", "\\n\n\t\r\b"),
    ("'line\nbreak'", "line\nbreak"),
]

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(("literal", "text"), LITERALS)
def test_literals_mean_what_they_mean_in_spark(literal: str, text: str) -> None:
    assert from_literal(literal) == text


@given(TEXT)
def test_a_text_comes_back_from_its_literal(text: str) -> None:
    assert from_literal(to_literal(text)) == text


def test_half_a_pair_is_replaced() -> None:
    assert from_literal(r"'\ud83d'") == "\ufffd"


def test_names_are_quoted() -> None:
    assert to_identifier("a`.b") == "`a``.b`"
