"""Conditions that Arrow evaluates, by SQL's logic of three values, and the columns that need no Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import widen
from widen.errors import InvalidCondition
from widen.files.expressions import QueriedFiles, query_files, query_locally
from widen.files.predicates import bind_condition
from widen.files.row_tests import plan_test
from widen.protocol.column_metadata import parse_columns
from widen.spark.engine import Unsupported

SCHEMA = parse_columns(
    "id int, Name string, f double, d decimal(9,2), b boolean, r struct<N: int, t: string>, raw binary"
)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "Name": ["a", None, "B"],
        "f": [float("nan"), 1.5, None],
        "d": pa.array(["1.25", None, "-3.00"]).cast(pa.decimal128(9, 2)),
        "b": [True, False, None],
        "r": pa.array(
            [{"N": 1, "t": "x"}, {"N": None, "t": "y"}, None], pa.struct([("N", pa.int32()), ("t", pa.string())])
        ),
        "raw": [b"a", b"b", None],
    }
)

ANSWERS: dict[str, list[bool | None]] = {
    "id = 1": [True, False, None],
    "ID <> 1": [False, True, None],
    "NOT id = 1": [False, True, None],
    "id = 1 OR Name IS NULL": [True, True, None],
    "id = 1 OR name = 'B'": [True, None, True],
    "id = 2 AND name = 'a'": [False, None, False],
    "id IN (1, 3)": [True, False, None],
    "id BETWEEN 2 AND 3": [False, True, None],
    "id < 99999999999": [True, True, None],
    "id = 99999999999": [False, False, None],
    "f > 1": [True, True, None],
    "f < 1000": [False, True, None],
    "d >= 1.25": [True, None, False],
    "b = true": [True, False, None],
    "r.n = 1": [True, None, None],
    "r.N IS NULL": [False, True, True],
    "R.T IS NOT NULL": [True, True, False],
}
"""For each condition whether it is true, false or null for each row."""


@pytest.mark.parametrize("condition", ANSWERS)
def test_conditions_have_three_values(condition: str) -> None:
    assert plan_test(bind_condition(condition, SCHEMA))(ROWS).to_pylist() == ANSWERS[condition]


@pytest.mark.parametrize("condition", ["id + 1 = 2", "raw = X'61'", "length(name) = 1", "id = 1 AND name LIKE 'a%'"])
def test_other_conditions_are_left_to_spark(condition: str) -> None:
    with pytest.raises(Unsupported):
        plan_test(bind_condition(condition, SCHEMA))


INTEGERS: dict[str, list[int | None]] = {
    "id % 2 = 1": [1],
    "ID % 2 <> 1 AND name IS NULL": [2],
    "-id % 3 = -1": [1],
    "-id % 3 + 3 >= 2 OR name = 'B'": [1, None],
    "NOT id + 1 > 2": [1],
    "r.n < id": [],
    "id * 4000000000 = 8000000000 - r.n OR r.n <= id": [1],
}
"""For each condition on sums, products and remainders the ids of the rows that fulfil it."""


@pytest.mark.parametrize("condition", INTEGERS)
def test_comparisons_of_integers_need_no_spark(condition: str) -> None:
    assert find_ids(condition) == INTEGERS[condition]


@pytest.mark.parametrize(
    "condition",
    [
        *("id % 0 = 1", "id % (r.n - 1) = 0", "f % 2 = 1", "id + 2147483647 > 0", "d + 1 > 2", "id = f", "name > 1"),
        *("id % -2 = 1", "id + 1 <=> 2", "f + 1 > 2"),
    ],
)
def test_what_may_fail_or_round_is_left_to_spark(condition: str) -> None:
    with pytest.raises(Unsupported):
        pytest.fail(f"{find_ids(condition)}")


LIKES: dict[str, list[int | None]] = {
    "name LIKE 'a%'": [1],
    "Name LIKE '_'": [1, None],
    "NOT name LIKE 'a%'": [None],
    "name NOT LIKE 'a' AND id IS NULL": [None],
    "(name LIKE '%') OR id = 2": [1, 2, None],
    "r.T LIKE 'y%' AND id BETWEEN 1 AND 2": [2],
    "name LIKE 'A'": [],
}
"""For each condition the ids of the rows that fulfil it."""


@pytest.mark.parametrize("condition", LIKES)
def test_patterns_of_texts_need_no_spark(condition: str) -> None:
    assert find_ids(condition) == LIKES[condition]


@pytest.mark.parametrize(
    "condition",
    [
        *("id LIKE '1%'", "name LIKE r.t", "name LIKE 'a!%' ESCAPE '!'", "name LIKE 'a\\%'", "upper(name) LIKE 'A'"),
        *("name LIKE 'a' AND length(name) = 1", "name ILIKE 'A'", "name LIKE ANY ('a', 'b')", "name LIKE NULL"),
    ],
)
def test_other_patterns_are_left_to_spark(condition: str) -> None:
    with pytest.raises(Unsupported):
        pytest.fail(f"{find_ids(condition)}")


def find_ids(condition: str) -> list[int | None]:
    files = QueriedFiles(ROWS.schema, 0, [ROWS])
    found: list[int | None] = query_files(SCHEMA, lambda _: files, condition, ["id"])[1]["id"].to_pylist()
    return found


TYPOS = {
    "Nme = 'a'": "there is no column Nme (did you mean Name?)",
    "name LIKE": "it ends in the middle of an expression",
    "id = 1 AND r.q > 1": "r has no field q",
    "upper(zz) = 'A'": "there is no column zz",
    "zz.t = 1": "there is no column zz",
    "exists(array(id), x -> x = zz2) OR zz = 1": "there is no column zz",
    "id >": "it ends in the middle of an expression",
    "id = 1 AND": "it ends in the middle of an expression",
    "name = 'a": "it ends in the middle of an expression",
    "name IN (1,": "it ends in the middle of an expression",
}


@pytest.mark.parametrize("text", TYPOS)
def test_a_typo_is_told_without_spark(text: str) -> None:
    with pytest.raises(InvalidCondition) as caught:
        find_ids(text)
    assert caught.value.fields["reason"] == TYPOS[text]


@pytest.mark.parametrize(
    "text",
    [
        *("timestampadd(DAY, 1, current_date) > f", "t.id + f > 1", "current_user = name", "_metadata.file_path = 'x'"),
        *("id IN (SELECT a FROM b)", "exists(array(id), x -> x > f)", "name = 'it''s \"' OR f % 2 = 1", "id = f -- x"),
        *("`r`.`n` = f", "extract(YEAR FROM current_date) = id", 'name = "a" AND f = id'),
    ],
)
def test_what_may_be_right_is_no_typo(text: str) -> None:
    with pytest.raises(Unsupported):
        find_ids(text)


def test_typos_of_selected_columns() -> None:
    files = QueriedFiles(ROWS.schema, 0, [ROWS])
    for select in (["nmae"], ["id + zz AS a"], ["id AS a", "a.b.c", "zz"]):
        with pytest.raises(InvalidCondition, match="there is no column"):
            query_files(SCHEMA, lambda _: files, None, select)


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """A table with two columns for a field, and one for each of the others."""
    for name, text in (("a.json", '{"id": 1, "v": 1, "r": {"x": 1}}\n'), ("b.json", '{"id": 2, "v": "two"}\n')):
        (tmp_path / name).write_text(text)
        widen.ingest(tmp_path / name, tmp_path / "t", engine="local")
    return widen.Table(str(tmp_path / "t"))


def test_fields_are_unified_without_spark(table: Any) -> None:
    columns, rows = query_locally(table.snapshot, "v_string = 'two'", ["id", "r"], unified=True)
    assert columns.names == ("id", "r")
    assert rows.to_pylist() == [{"id": 2, "r": None}]
    columns, rows = query_locally(table.snapshot, None, ["v"], unified=True)
    assert sorted(rows.column("v").to_pylist()) == ["1", "two"]
    with pytest.raises(InvalidCondition, match="there is no column v_string"):
        query_locally(table.snapshot, select=["v_string"], unified=True)


def test_a_column_that_is_selected_twice_is_left_to_spark(table: Any) -> None:
    with pytest.raises(Unsupported, match="selects a column twice"):
        query_locally(table.snapshot, select=["id", "id"])
