"""Which columns an expression looks at: paths as Delta Lake reduces expressions to them."""

from __future__ import annotations

import pytest

from support.state import schema
from widen.schema.table_state import is_constant, is_referenced, referenced_columns

SCHEMA = schema(
    "a struct<x: int, y: int>, m map<int, struct<z: int>>, mm map<string, struct<z: int>>, "
    "l array<struct<q: int, element: struct<key: int>>>, ll array<array<int>>, `x.y` struct<`z ``q`: int>, "
    "deep struct<a: struct<b: struct<c: struct<d: int>>>>, element int, key map<int, int>, d date, i int"
)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a.x > 0", ["a.x"]),
        ("A.X > `Element`", ["a.x", "element"]),
        ("hash ( `A` ) > 0", ["a"]),
        ("m[i]", ["m.key", "m.value", "i"]),
        ("m [ 1 ] . z > 0", ["m.key", "m.value.z"]),
        ("mm.any.z = 1", ["mm.key", "mm.value.z"]),
        ("mm['it''s'].z = 1", ["mm.key", "mm.value.z"]),
        ("element_at(m, i) is null", ["m.key", "m.value", "i"]),
        ("key[1]", ["key.key", "key.value"]),
        ("l[0].q", ["l.element.q"]),
        ("l.q", ["l.element.q"]),
        ("l.element.key", ["l.element.element.key"]),
        ("l[i].element.key + 1", ["l.element.element.key", "i"]),
        ("ll[0][i]", ["ll.element.element", "i"]),
        ("l.q[0] = 1", ["l.element.q"]),
        ("`x.y`.`z ``q` > 1", ["x.y|z `q"]),
        ("deep.a.b.c.d = 1", ["deep.a.b.c.d"]),
        ("(a).x between 1 and i", ["a.x", "i"]),
        ("exists(l, v -> v.q > i)", ["l", "i"]),
        ("case when i > 1 then year(d) else size(l) end > 3", ["i", "d", "l"]),
        ("a.y is not null and not (i in (1, 2))", ["a.y", "i"]),
        ("date_add(d, 1) > current_date()", ["d"]),
        ("true", []),
        ("a.nope > 0", ["a"]),
        ("nope.x > i", ["i"]),
        ("i > 0; drop table element", ["i", "element"]),
        ("this is (no SQL about `a`", ["a"]),
    ],
)
def test_an_expression_looks_at_columns(text: str, paths: list[str]) -> None:
    expected = {tuple(path.split("|")) if "|" in path else tuple(path.split(".")) for path in paths}
    assert referenced_columns(text, SCHEMA) == expected


@pytest.mark.parametrize(
    ("changed", "looked_at", "is_touched"),
    [
        ("a.x", "a.x", True),
        ("a", "a.x", True),
        ("a.x", "A", True),
        ("a.X.z", "a.x", True),
        ("a.y", "a.x", False),
        ("b", "a", False),
        ("m.key", "m.value", False),
    ],
)
def test_a_change_touches_what_leads_to_it_and_what_it_leads_to(changed: str, looked_at: str, is_touched: bool) -> None:
    assert is_referenced(tuple(changed.split(".")), [tuple(looked_at.split("."))]) is is_touched


@pytest.mark.parametrize("text", ["1", "'a b; c'", "current_date()", "-1.5", "null", "array(1, 2)", "date'2024-01-01'"])
def test_constants(text: str) -> None:
    assert is_constant(text)


@pytest.mark.parametrize("text", ["i", "1 + i", "(select 1)", "1; 2", "1 2", "", "exists (select 1)", "f("])
def test_what_is_no_constant(text: str) -> None:
    assert not is_constant(text)


def test_an_expression_that_sqlglot_fails_for_references_what_it_names() -> None:
    text = "a >= decimal(`` LIKE b"
    assert not is_constant(text)
    assert ("a",) in referenced_columns(text, SCHEMA)
