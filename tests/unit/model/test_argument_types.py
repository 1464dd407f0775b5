"""Arguments of the wrong type are refused before a function runs."""

from __future__ import annotations

import pickle
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pytest

import widen
from widen.errors import InvalidOption
from widen.model.argument_types import check_arguments, describe, has_type


@check_arguments
def call(where: str | None = None, *columns: str, limit: int = 0, first: bool = False) -> tuple[object, ...]:
    """Return what was given."""
    return where, columns, limit, first


def test_right_arguments_pass() -> None:
    assert call("id = 4", "a", "b", limit=2, first=True) == ("id = 4", ("a", "b"), 2, True)
    assert call() == (None, (), 0, False)


@pytest.mark.parametrize(
    ("given", "option", "expected"),
    [
        ({"where": 4}, "where", "Must be str or None."),
        ({"limit": "2"}, "limit", "Must be int."),
        ({"limit": True}, "limit", "Must be int."),
        ({"first": "false"}, "first", "Must be bool."),
        ({"first": 1}, "first", "Must be bool."),
    ],
)
def test_wrong_arguments_are_named_with_what_they_must_be(given: Any, option: str, expected: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        call(**given)
    assert (refused.value.fields["option"], refused.value.advice) == (option, expected)


def test_a_list_in_the_place_of_several_arguments_is_told() -> None:
    with pytest.raises(InvalidOption) as refused:
        call("id = 4", ["a", "b"])  # type: ignore[arg-type]
    assert refused.value.advice == "Each must be str, and an argument of its own: f(a, b), not f([a, b])."


def test_unknown_and_missing_arguments_stay_errors_of_python() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'table'"):
        call(table="t")  # type: ignore[call-arg]


def test_type_hints_and_documentation_are_those_of_the_function() -> None:
    assert typing.get_type_hints(call)["limit"] is int
    assert (call.__name__, call.__doc__) == ("call", "Return what was given.")


@pytest.mark.parametrize(
    ("value", "expected", "fits"),
    [
        (["a"], Sequence[str], True),
        (("a", "b"), Sequence[str], True),
        ("ab", Sequence[str], False),
        ([1], Sequence[str], False),
        ("ab", Iterable[str], False),
        ({"a": "b"}, Mapping[str, str], True),
        ({"a": True}, Mapping[str, str], False),
        ([("a", "b")], Mapping[str, str], False),
        (("app", 3), tuple[str, int], True),
        (("app", "3"), tuple[str, int], False),
        (("app",), tuple[str, int], False),
        (("a", "b", "c"), tuple[str, ...], True),
        (0.5, bool | float, True),
        (1, float, True),
        ("0.5", bool | float, False),
        (print, Callable[[str], None], True),
        ("print", Callable[[str], None], False),
        ("json", Literal["json", "csv"], True),
        ("xml", Literal["json", "csv"], False),
        (object(), Any, True),
    ],
)
def test_values_have_the_types_of_annotations(value: object, expected: Any, fits: bool) -> None:
    assert has_type(value, expected) is fits


def test_a_generator_is_not_consumed() -> None:
    names = (name for name in "ab")
    assert has_type(names, Iterable[str])
    assert list(names) == ["a", "b"]


def test_descriptions_name_types_as_a_reader_writes_them() -> None:
    assert describe(Mapping[str, str | None]) == "Mapping[str, str or None]"
    assert describe(Literal["a", "b"]) == "'a', 'b'"
    assert describe(tuple[str, ...] | bool | None) == "tuple[str, ...], bool or None"


def test_a_message_shows_the_beginning_of_a_large_value() -> None:
    with pytest.raises(InvalidOption) as caught:
        widen.ingest("in", "t", exclude=[{"id": number} for number in range(10_000)])  # type: ignore[list-item]
    assert len(caught.value.message) < 400
    assert caught.value.message.endswith("… (138,890 characters).")
    assert len(pickle.loads(pickle.dumps(caught.value)).fields["value"]) == 10_000


@pytest.mark.parametrize("value", [pa.table({"name": ["secret"]}), pa.array(["secret"])])
def test_a_message_shows_no_rows(value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"'{type(value).__name__}'") as caught:
        call(value)
    assert "secret" not in str(caught.value)


def test_an_unknown_argument_is_told_with_the_nearest_one() -> None:
    with pytest.raises(
        TypeError, match=r"ingest\(\) got an unexpected keyword argument 'evovle'. Did you mean evolve\?"
    ):
        widen.ingest("in", "t", evovle="split")  # type: ignore[call-arg]


def test_declared_options_are_checked_as_arguments() -> None:
    with pytest.raises(InvalidOption) as refused:
        widen.ingest("in", "t", partition_by=3)  # type: ignore[arg-type]
    assert (refused.value.fields["option"], refused.value.advice) == ("partition_by", "Must be Iterable[str] or None.")
    with pytest.raises(InvalidOption, match="on_event"):
        widen.ingest("in", "t", on_event="print")  # type: ignore[arg-type]
