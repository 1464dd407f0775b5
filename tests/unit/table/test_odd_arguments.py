"""Arguments of the right type that make no sense: each ends in an error of ours, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from widen.errors import FileMissing, InvalidOption, InvalidPath, InvalidType, TableNotFound, WidenError
from widen.table import Table, create_table

DEEP = "struct<a:" * 900 + "int" + ">" * 900
CALLS: dict[str, tuple[Callable[[Table], object], type[WidenError]]] = {
    "a column without a name": (lambda table: table.alter_column((), type="long"), InvalidPath),
    "no column to drop": (lambda table: table.drop_columns(()), InvalidPath),
    "no column to rename": (lambda table: table.rename_column((), "x"), InvalidPath),
    "no column to add": (lambda table: table.add_columns({(): "int"}), InvalidPath),
    "a deep type": (lambda table: table.add_columns({"x": DEEP}), InvalidType),
    "a negative limit": (lambda table: table.history(-1), InvalidOption),
    "a constraint as a property": (lambda table: table.set_properties({"delta.constraints.c": "n > 0"}), InvalidOption),
    "a path with NUL": (lambda _: Table("\0"), FileMissing),
    "a path that cannot be encoded": (lambda _: Table("\ud800"), FileMissing),
    "a new path with NUL": (lambda _: create_table("\0", "n int"), FileMissing),
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create_table(str(tmp_path / "t"), "n int")


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_end_in_an_error_of_ours(table: Table, name: str) -> None:
    call, kind = CALLS[name]
    with pytest.raises(kind):
        call(table)
    assert Table(table.location).version == 0


def test_the_keys_of_a_mapping_are_keys_to_remove(table: Table) -> None:
    properties = {"a": "1", "b": "2"}
    assert table.set_properties(properties).unset_properties(properties).properties == {}


def test_a_retention_may_be_longer_than_time(table: Table) -> None:
    vacuumed = table.vacuum(1e300)
    assert (vacuumed.kept_since.year, table.version) == (1970, 2)


def test_an_error_has_no_escape_sequences(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound) as caught:
        Table(str(tmp_path / "\x1b[31m\u202e"))
    assert "\\x1b[31m\\u202e" in str(caught.value)
    assert str(caught.value).isprintable()
