"""The difference between the schemas of two versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import run, run_json
from support.drift_log import write_drift
from widen.errors import VersionNotFound
from widen.table import Table, create_table


@pytest.fixture
def place(tmp_path: Path) -> str:
    table = create_table(str(tmp_path / "t"), "n int, s string", properties={"delta.enableTypeWidening": "true"})
    table.alter_column("n", type="bigint")
    table.add_columns({"x": "double"})
    table.set_properties({"k": "v"})
    return str(tmp_path / "t")


def test_changes_of_several_commits_are_one_difference(place: str) -> None:
    found = Table(place).diff(0, 2)
    assert [(change.what, change.column, change.old, change.new) for change in found.changes] == [
        ("widened", ("n",), "int", "bigint"),
        ("added", ("x",), "", "double"),
    ]
    assert repr(found).splitlines() == [
        "SchemaDiff(0 → 2, 2 changes)",
        "  widened  n  int  bigint",
        "  added  x  double",
    ]
    assert "Version 0 → 2: 2 changes" in found._repr_html_()


def test_the_order_of_the_versions_counts(place: str) -> None:
    back = Table(place).diff(2, 0)
    assert [(change.what, change.column) for change in back.changes] == [("retyped", ("n",)), ("removed", ("x",))]
    assert Table(place).diff(2).changes == ()


def test_a_version_that_does_not_exist_is_an_error(place: str) -> None:
    with pytest.raises(VersionNotFound):
        Table(place).diff(0, 9)


def test_the_command_shows_it(place: str, tmp_path: Path) -> None:
    assert run_json("diff", place, "--from", "1")["changes"] == [
        {"change": "added", "column": "x", "grade": "additive", "to": "double", "reasons": []}
    ]
    assert "double" in run("diff", place, "--from", "1", "--to", "2").stdout
    same = run("diff", place, "--from", "2", "--to", "3")
    assert (same.exit_code, same.stdout) == (0, "")
    assert "The schema of version 3 is that of version 2." in same.stderr


def test_reasons_come_from_the_commits_between(tmp_path: Path) -> None:
    write_drift(tmp_path / "drift")
    table = Table(str(tmp_path / "drift"))
    changes = run_json("diff", table.location, "--from", "0")["changes"]
    assert any(change["reasons"] for change in changes)
