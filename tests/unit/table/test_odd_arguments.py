"""Arguments of the right type that make no sense: each ends in an error of ours, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from widen.errors import FileMissing, InvalidConfig, InvalidOption, InvalidPath, InvalidType, TableNotFound, WidenError
from widen.flows.run_flow import read_chain
from widen.ingestion.interval import read_contract
from widen.ingestion.options import parse_policy
from widen.model.types import INTEGER, Field, StructType
from widen.sql_commands.execute import sql
from widen.table import Table, create_table

SURROGATE = "a\ud800"
DEEP = "struct<a:" * 900 + "int" + ">" * 900
CALLS: dict[str, tuple[Callable[[Table], object], type[WidenError]]] = {
    "a column without a name": (lambda table: table.alter_column((), type="long"), InvalidPath),
    "no column to drop": (lambda table: table.drop_columns(()), InvalidPath),
    "no column to rename": (lambda table: table.rename_column((), "x"), InvalidPath),
    "no column to add": (lambda table: table.add_columns({(): "int"}), InvalidPath),
    "a deep type": (lambda table: table.add_columns({"x": DEEP}), InvalidType),
    "a negative limit": (lambda table: table.history(-1), InvalidOption),
    "a negative number of rows": (lambda table: table.to_arrow(limit=-1), InvalidOption),
    "a negative number of rows for pandas": (lambda table: table.to_pandas(limit=-(2**70)), InvalidOption),
    "a negative maximum of rows": (lambda table: table.to_arrow(max_rows=-1), InvalidOption),
    "a constraint as a property": (lambda table: table.set_properties({"delta.constraints.c": "n > 0"}), InvalidOption),
    "columns that are a number": (lambda table: table.replace_columns(42), InvalidOption),
    "columns that are nothing": (lambda table: table.replace_columns(None), InvalidOption),
    "a type that is nothing": (lambda table: table.alter_columns({"n": {"type": None}}), InvalidOption),
    "a position that is a number": (lambda table: table.alter_columns({"n": {"after": 42}}), InvalidOption),
    "a switch that is a text": (lambda table: table.alter_columns({"n": {"first": "no"}}), InvalidOption),
    "keys that cannot be listed": (lambda table: table.unset_properties(_NotIterable()), InvalidOption),
    "a comment that cannot be stored": (lambda table: table.alter_column("n", comment=SURROGATE), InvalidOption),
    "a comment in a mapping": (lambda table: table.alter_columns({"n": {"comment": SURROGATE}}), InvalidOption),
    "a name that cannot be stored": (lambda table: table.rename_column("n", SURROGATE), InvalidOption),
    "a new name that cannot be stored": (lambda table: table.add_columns({SURROGATE: "int"}), InvalidOption),
    "a field that cannot be stored": (
        lambda table: table.replace_columns(StructType((Field(SURROGATE, INTEGER),))),
        InvalidOption,
    ),
    "a property that cannot be stored": (lambda table: table.set_properties({"p": SURROGATE}), InvalidOption),
    "an SQL text that cannot be sent": (lambda table: sql(f"COMMENT ON {SURROGATE}"), InvalidOption),
    "a path with NUL": (lambda _: Table("\0"), FileMissing),
    "a path that cannot be encoded": (lambda _: Table("\ud800"), FileMissing),
    "a new path with NUL": (lambda _: create_table("\0", "n int"), FileMissing),
}


class _NotIterable(Iterable[str]):
    def __iter__(self) -> Iterator[str]:
        raise TypeError("as a column of Spark")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create_table(str(tmp_path / "t"), "n int")


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_end_in_an_error_of_ours(table: Table, name: str) -> None:
    call, kind = CALLS[name]
    with pytest.raises(kind) as refused:
        call(table)
    str(refused.value).encode()
    assert Table(table.location).version == 0


@pytest.mark.parametrize("path", ["a\0b", SURROGATE])
@pytest.mark.parametrize("read", [read_chain, read_contract, lambda path: parse_policy(config=path)])
def test_a_path_that_no_file_can_have_is_an_invalid_configuration(read: Callable[[str], object], path: str) -> None:
    with pytest.raises(InvalidConfig):
        read(path)


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
