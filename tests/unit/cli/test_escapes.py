"""Names, values and locations cannot write escape sequences to a terminal, whatever command shows them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import run
from widen import create_table
from widen.errors.family import printable_json, printable_lines

HOSTILE = "a\x1b[31m\x07\x9b2J\x85\u202e\u2066\u200f\x7f"
FORBIDDEN = {*HOSTILE} - {*"a[31m2J"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = str(tmp_path_factory.mktemp("shop") / "orders\u202e")
    made = create_table(place, "`id` int", description=HOSTILE)
    made.set_properties({f"own.{HOSTILE}": HOSTILE, "delta.columnMapping.mode": "name"})
    made.alter_column("id", comment=HOSTILE)
    made.rename_column("id", HOSTILE)
    return place


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("command", ["show", "history", "report", "properties"])
def test_what_is_shown(table: str, command: str, form: tuple[str, ...]) -> None:
    done = run(command, table, *form)
    assert done.exit_code == 0
    assert {*done.output} & FORBIDDEN == set()


def test_errors(table: str) -> None:
    done = run("alter", table, f"no{HOSTILE}", "--comment", "x")
    assert done.exit_code == 1
    assert {*done.output} & FORBIDDEN == set()
    assert "\\x1b" in done.stderr


def test_a_view_of_names_that_do_not_print_is_refused(table: str, tmp_path: Path) -> None:
    done = run("view", table)
    assert done.exit_code == 1
    assert {*done.output} & FORBIDDEN == set()
    assert "do not print" in done.stderr


def test_the_view_is_called_as_spark_allows(tmp_path: Path) -> None:
    create_table(str(tmp_path / "orders-v2 x"), "id int")
    assert run("view", str(tmp_path / "orders-v2 x")).stdout.startswith("CREATE OR REPLACE VIEW `orders_v2_x` AS")
    assert run("view", str(tmp_path / "orders-v2 x"), "--name", "db.`o``x`").exit_code == 0
    assert run("view", str(tmp_path / "orders-v2 x"), "--name", "a AS SELECT 1; --").exit_code == 1


def test_lines_and_json() -> None:
    assert printable_lines("a\x1b[0m\nb\u202e") == "a\\x1b[0m\nb\\u202e"
    assert printable_json('{"a": "\x9b\U000e0001é"}') == '{"a": "\\u009b\\udb40\\udc01é"}'
    assert json.loads(printable_json('"\x9b\U000e0001é"')) == "\x9b\U000e0001é"
