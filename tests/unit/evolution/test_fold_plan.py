"""Where a column that evolved goes back to, and what cannot."""

from __future__ import annotations

import pytest

from widen.errors import ColumnNotFound, FoldRefused
from widen.evolution.unify import FoldResult, plan_fold
from widen.model.schema_json import parse_type
from widen.model.types import ArrayType, Field, StructType
from widen.schema.source_metadata import source_field


def column(name: str, text: str, source: str = "a") -> Field:
    return source_field(name, parse_type(text), (source,), is_evolved=name != source)


INNER = StructType((column("b", "bigint", "b"), column("b_string", "string", "b")))
SCHEMA = StructType(
    (
        column("a", "bigint"),
        column("a_string", "string"),
        column("a_record", "struct<x: int>"),
        column("a_timestamp", "timestamp"),
        column("start_date", "date", "start_date"),
        Field("s", INNER),
        Field("items", ArrayType(INNER)),
    )
)


def test_a_column_goes_to_the_one_with_the_plain_name_of_its_field() -> None:
    fold = plan_fold(SCHEMA, ("A_STRING",))
    assert (fold.column, fold.into, str(fold)) == (("a_string",), ("a",), "a_string into a")
    assert plan_fold(SCHEMA, ("s", "b_string")).into == ("s", "b")


REFUSED = [
    (("a",), None, "they are the same column"),
    (("a_string",), ("start_date",), "they are not columns of the same source field"),
    (("s", "b_string"), ("a",), "they are not columns of the same source field"),
    (("a_record",), ("a",), "a_record contains records"),
    (("a_timestamp",), ("a",), "a_timestamp contains timestamps"),
    (("items", "element", "b_string"), None, "inside an array or a map"),
]


@pytest.mark.parametrize(("path", "into", "reason"), REFUSED)
def test_what_cannot_go_back_is_refused(path: tuple[str, ...], into: tuple[str, ...] | None, reason: str) -> None:
    with pytest.raises(FoldRefused, match=reason):
        plan_fold(SCHEMA, path, into)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(ColumnNotFound):
        plan_fold(SCHEMA, ("nobody",))


def test_a_field_without_its_plain_column_needs_to_be_told_where() -> None:
    rest = StructType(SCHEMA.fields[1:])
    with pytest.raises(FoldRefused, match="name the target column"):
        plan_fold(rest, ("a_string",))


def test_what_is_lost_is_the_rest() -> None:
    found = FoldResult(fold=plan_fold(SCHEMA, ("a_string",)), values=10, fits=6, duplicates=3, samples=("x",))
    told = {"values": 10, "fits": 6, "held": 3, "lost": 1, "dropsColumn": False}
    assert found.to_value() == {"column": "a_string", "into": "a", "type": "bigint", **told}
