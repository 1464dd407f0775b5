"""Texts and names in SQL: the escapes of Spark, one by one, and both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.literal import LITERALS
from widen.model.schema_json import from_literal, to_identifier, to_literal

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
