from __future__ import annotations

import pytest

from widen.model.types import LONG, STRING, Field, StructType
from widen.schema.source_metadata import (
    NameAllocator,
    TableFormat,
    column_suffix,
    naming_order,
    role_field,
    sanitize_name,
    source_field,
    source_key,
)


@pytest.mark.parametrize(
    ("word", "dim", "text"),
    [
        ("long", 0, "_long"),
        ("string", 1, "_array_string"),
        ("record", 2, "_array2_record"),
        ("long", 3, "_array3_long"),
    ],
)
def test_the_suffix_grammar(word: str, dim: int, text: str) -> None:
    assert column_suffix(word, dim) == text


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a", "a"),
        ("", "_"),
        ("a b", "a_b"),
        ("a,b;c{d}e(f)g\nh\ti=j", "a_b_c_d_e_f_g_h_i_j"),
        ("ü.x", "ü.x"),
        ("a\0b", "a_b"),
    ],
)
def test_forbidden_characters_become_underscores(key: str, name: str) -> None:
    assert sanitize_name(key) == name


def test_names_in_iceberg_have_no_dots() -> None:
    assert sanitize_name("a.b c", TableFormat.ICEBERG_V2) == "a_b_c"
    assert sanitize_name("a.b c", TableFormat.DELTA_ICEBERG_COMPAT) == "a.b_c"


def test_names_differ_by_more_than_case() -> None:
    names = NameAllocator(["a", "B_2"])
    assert [names.take(name) for name in ("A", "b", "b", "b", "c")] == ["A_2", "b", "b_3", "b_4", "c"]


def test_lower_case_is_named_first() -> None:
    assert sorted(["UserID", "userId", "a", "B"], key=naming_order) == ["a", "B", "userId", "UserID"]


def test_the_key_of_a_column_is_in_its_metadata_else_its_name() -> None:
    assert source_key(source_field("b_string", STRING, ("a", "b"), is_evolved=True)) == "b"
    assert source_key(source_field("x_y", STRING, ("x y",), is_evolved=False)) == "x y"
    assert source_key(source_field("b", STRING, ("a", "b"), is_evolved=False)) == "b"


@pytest.mark.parametrize(
    ("field", "is_found"),
    [
        (Field("_rescued", STRING), True),
        (Field("_rescued", LONG), False),
        (Field("_rescued", STRING, metadata={"widen.source": ["_rescued"]}), False),
        (Field("_rescued_2", STRING, metadata={"widen.role": "_rescued"}), True),
    ],
)
def test_a_role_is_known_by_its_metadata_or_its_plain_name(field: Field, is_found: bool) -> None:
    assert (role_field(StructType((field,)), "_rescued") is not None) is is_found
