"""Integers that JSON and CSV spell as fractions, loaded as integers and proved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from widen import Table, ingest
from widen.errors import InvalidOption


def load(place: Path, *numbers: str, **options: Any) -> tuple[int, int]:
    """Load a number in each record, and return how many values the table has exactly, and how many converted."""
    source = place / f"{len(list(place.iterdir()))}.jsonl"
    source.write_text("".join(f'{{"a":{number}}}\n' for number in numbers), encoding="utf-8")
    done = ingest(source, place / "t", verify=True, engine="local", integral_doubles="convert", **options)
    assert done.verification is not None
    assert not done.verification.lost
    return done.verification.exact, done.verification.converted


def columns(place: Path) -> dict[str, list[Any]]:
    table = Table(place / "t").to_arrow()
    return {name: sorted(table.column(name).drop_null().to_pylist(), key=str) for name in sorted(table.schema.names)}


def test_numbers_stay_doubles_unless_it_is_asked_for(tmp_path: Path) -> None:
    load(tmp_path, "1.0", "2.0")
    load(tmp_path, "1.0", "2.0", evolve="split")
    (tmp_path / "b.jsonl").write_text('{"b":1.0}\n', encoding="utf-8")
    ingest(tmp_path / "b.jsonl", tmp_path / "other", engine="local")
    assert str(Table(tmp_path / "other").to_arrow().schema.field("b").type) == "double"


def test_digits_decide_which_numbers_are_integers(tmp_path: Path) -> None:
    assert load(tmp_path, "1.0", "-2.00", "1.0E2", "9007199254740993.0", "9223372036854775807.0", "3", "null") == (4, 2)
    assert columns(tmp_path) == {"a": [-2, 1, 100, 3, 9007199254740993, 2**63 - 1]}


@pytest.mark.parametrize(
    ("number", "column", "value"),
    [
        ("-0.0", "a_double", -0.0),
        ("1.5", "a_double", 1.5),
        ("1e-1", "a_double", 0.1),
        ("1e400", "a_string", "1e400"),
    ],
)
def test_what_is_no_integer_stays_what_it_is(tmp_path: Path, number: str, column: str, value: object) -> None:
    load(tmp_path, "1.0", evolve="split")
    load(tmp_path, number, "2.0", evolve="split")
    found = columns(tmp_path)
    assert found["a"] == [1, 2]
    assert repr(value) in map(repr, found[column])


def test_a_text_column_keeps_the_spelling(tmp_path: Path) -> None:
    load(tmp_path, '"x"', "1.0", "1e2")
    assert columns(tmp_path)["a"] == ["1.0", "1e2", "x"]


def test_a_number_past_64_bits_is_no_integer_of_a_column(tmp_path: Path) -> None:
    load(tmp_path, "1.0")
    load(tmp_path, "9223372036854775808.0")
    assert 2**63 in [int(value) for values in columns(tmp_path).values() for value in values]


def test_csv_reads_them_with_types(tmp_path: Path) -> None:
    source = tmp_path / "a.csv"
    source.write_text("a,b\n1.0,2\n2.00,3\n", encoding="utf-8")
    options: dict[str, Any] = {"detect_types": True, "numbers": "double", "integral_doubles": "convert"}
    done = ingest(source, tmp_path / "t", verify=True, engine="local", **options)
    assert done.verification is not None
    assert not done.verification.lost
    assert columns(tmp_path) == {"a": [1, 2], "b": [2, 3]}


def test_decimals_keep_their_digits(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="integral_doubles cannot be 'convert'"):
        load(tmp_path, "1.0", numbers="decimal")
