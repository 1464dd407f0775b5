"""Statements on a table without Spark: one statement, one commit, or none; names and texts come out as they went in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from widen.errors import (
    ColumnAlreadyExists,
    ColumnNotFound,
    DropPendingRetention,
    InvalidOption,
    RenameRefused,
    TableAlreadyExists,
    TableNotFound,
    TypeChangeRefused,
    WidenError,
)
from widen.model.schema_json import to_identifier, to_literal
from widen.sql_commands.execute import ChangedTable, run_statement
from widen.sql_commands.parser import parse_statement
from widen.sql_commands.queries import QueryResult
from widen.table import Table

EVIL = [
    *("it's", "a`b", "a.b", "line\nbreak", "😀", "é ß", " ", '"', "\\'", "--", "/*"),
    *("'; DROP TABLE t; --", "` int, x", "x) LOCATION '/'"),
]
CREATE = """
  CREATE TABLE {t} (id int COMMENT 'key', s struct<a: int, b: string>, d date) USING delta
  PARTITIONED BY (d) COMMENT 'all'
  TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true', own = 1)
"""


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "t")


@pytest.fixture
def t(place: str) -> str:
    name = f"delta.{to_identifier(place)}"
    made = run_statement(parse_statement(CREATE.format(t=name)))
    assert isinstance(made, ChangedTable)
    assert (made.before, made.table.version) == (-1, 0)
    return name


def query_rows(text: str) -> list[list[Any]]:
    found = run_statement(parse_statement(text))
    assert isinstance(found, QueryResult)
    return [list(row) for row in found.rows]


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE {t} ALTER COLUMN id TYPE bigint COMMENT 'x' FIRST, s.a COMMENT 'y', d AFTER id",
        "ALTER TABLE {t} RENAME COLUMN s.a TO b2",
        "ALTER TABLE {t} ADD COLUMNS (x int, s.c int COMMENT 'deep' FIRST)",
        "ALTER TABLE {t} DROP COLUMNS (id, s.a)",
        "ALTER TABLE {t} REPLACE COLUMNS (id int, s struct<a: int, b: string, c: int>, d date)",
        "ALTER TABLE {t} SET TBLPROPERTIES (own = 2, other = 'x')",
        "ALTER TABLE {t} UNSET TBLPROPERTIES (own)",
        "COMMENT ON TABLE {t} IS 'less'",
    ],
)
def test_one_statement_is_one_commit_and_the_second_time_none(t: str, place: str, text: str) -> None:
    done = run_statement(parse_statement(text.format(t=t)))
    assert isinstance(done, ChangedTable)
    assert (done.before, done.table.version) == (0, 1)
    try:
        again = run_statement(parse_statement(text.format(t=t)))
    except WidenError:  # what was renamed, added, dropped or unset is not there to be so again
        again = None
    assert again is None or (isinstance(again, ChangedTable) and again.table.version == again.before)
    assert Table(place).version == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ALTER TABLE {t} ALTER COLUMN id COMMENT 'x', nowhere FIRST", ColumnNotFound),
        ("ALTER TABLE {t} ALTER COLUMN s.b COMMENT 'x', id TYPE smallint", TypeChangeRefused),
        ("ALTER TABLE {t} ADD COLUMNS (x int, s.a int)", WidenError),
        ("ALTER TABLE {t} DROP COLUMNS (id, nowhere)", ColumnNotFound),
        ("ALTER TABLE {t} RENAME COLUMN id TO id", ColumnAlreadyExists),
        ("ALTER TABLE {t} RENAME COLUMN S.A TO a", ColumnAlreadyExists),
        ("ALTER TABLE {t} RENAME COLUMN nowhere TO nowhere", ColumnNotFound),
        ("ALTER TABLE {t} SET TBLPROPERTIES (x = 1, 'delta.appendOnly' = 'perhaps')", InvalidOption),
        ("CREATE TABLE {t} (id int)", TableAlreadyExists),
    ],
)
def test_nothing_is_half_done(t: str, place: str, text: str, error: type[WidenError]) -> None:
    before = Table(place).metadata
    with pytest.raises(error):
        run_statement(parse_statement(text.format(t=t)))
    after = Table(place)
    assert (after.version, after.metadata) == (0, before)


def test_a_table_that_is_there_already(t: str, place: str) -> None:
    found = run_statement(parse_statement(f"CREATE TABLE IF NOT EXISTS {t} (other int)"))
    assert isinstance(found, ChangedTable)
    assert (found.before, found.table.version, found.table.schema.names) == (0, 0, ("id", "s", "d"))


def test_where_a_table_is_to_lie(tmp_path: Path) -> None:
    made = run_statement(parse_statement(f"CREATE TABLE delta.`{tmp_path}/a` (id int) LOCATION '{tmp_path}/a'"))
    assert isinstance(made, ChangedTable)
    with pytest.raises(InvalidOption, match="LOCATION"):
        run_statement(parse_statement(f"CREATE TABLE delta.`{tmp_path}/b` (id int) LOCATION '{tmp_path}/c'"))
    with pytest.raises(InvalidOption, match="LOCATION"):
        run_statement(parse_statement("CREATE TABLE orders (id int)"))
    with pytest.raises(TableNotFound):
        run_statement(parse_statement(f"DESCRIBE delta.`{tmp_path}/b`"))


def test_without_column_mapping_names_stay(tmp_path: Path) -> None:
    name = f"delta.`{tmp_path}/t`"
    run_statement(parse_statement(f"CREATE TABLE {name} (id int)"))
    with pytest.raises(RenameRefused):
        run_statement(parse_statement(f"ALTER TABLE {name} RENAME COLUMN id TO x"))


def test_property_keys_are_compared_as_delta_lake_does(t: str, place: str) -> None:
    run_statement(parse_statement(f"ALTER TABLE {t} SET TBLPROPERTIES ('DELTA.APPENDONLY' = true)"))
    assert query_rows(f"SHOW TBLPROPERTIES {t} ('Delta.appendonly')") == [["Delta.appendonly", "true"]]
    run_statement(parse_statement(f"ALTER TABLE {t} UNSET TBLPROPERTIES ('Delta.appendonly')"))
    assert "delta.appendOnly" not in Table(place).properties


# ---- names and texts that look like SQL ------------------------------------------------------------


@pytest.mark.parametrize("name", EVIL)
def test_a_name_comes_out_as_it_went_in(tmp_path: Path, name: str) -> None:
    """From SQL to the log and back by SQL, as a column, a field, a path, a property, a comment and a constraint."""
    place = tmp_path / name.replace("/", "|")
    table, column, text = f"delta.{to_identifier(str(place))}", to_identifier(name), to_literal(name)
    run_statement(
        parse_statement(
            f"CREATE TABLE {table} ({column} int COMMENT {text}, s struct<{column}: int COMMENT {text}>, last int)"
            f" USING delta COMMENT {text} TBLPROPERTIES ({text} = {text}, 'delta.columnMapping.mode' = 'name')"
        )
    )
    run_statement(
        parse_statement(
            f"ALTER TABLE {table} ALTER COLUMN last AFTER {column}, s.{column} COMMENT {to_literal(name + '2')}"
        )
    )
    run_statement(parse_statement(f"ALTER TABLE {table} RENAME COLUMN last TO {to_identifier(name + '3')}"))
    run_statement(
        parse_statement(
            f"ALTER TABLE {table} ADD COLUMNS (s.{to_identifier(name + '4')} int COMMENT {text} AFTER {column})"
        )
    )
    commits = sorted((place / "_delta_log").glob("*.json"))
    assert [commit.stem[-1] for commit in commits] == ["0", "1", "2", "3"]
    actions = [json.loads(line) for line in commits[-1].read_text(encoding="utf-8").splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    first, second, third = json.loads(metadata["schemaString"])["fields"]
    assert (first["name"], first["metadata"]["comment"]) == (name, name)
    assert second["name"] == name + "3"
    assert [(field["name"], field["metadata"]["comment"]) for field in third["type"]["fields"]] == [
        (name, name + "2"),
        (name + "4", name),
    ]
    assert (metadata["description"], metadata["configuration"][name]) == (name, name)
    assert query_rows(f"DESCRIBE {table}")[0] == [name, "int", name]
    assert query_rows(f"SHOW TBLPROPERTIES {table} ({text})") == [[name, name]]
    reopened = Table(str(place)).rename_column((name,), "plain")
    assert reopened.schema.names == ("plain", name + "3", "s")


# ---- answers ---------------------------------------------------------------------------------------


def test_the_table_as_a_whole(t: str, place: str) -> None:
    found = run_statement(parse_statement(f"DESCRIBE DETAIL {t}"))
    assert isinstance(found, QueryResult)
    value = found.to_values()[0]
    assert {key: value[key] for key in ("format", "description", "location", "partitionColumns", "numFiles")} == {
        "format": "delta",
        "description": "all",
        "location": place,
        "partitionColumns": ["d"],
        "numFiles": 0,
    }
    assert value["tableFeatures"] == ["appendOnly", "columnMapping", "invariants", "typeWidening"]
    assert (value["minReaderVersion"], value["minWriterVersion"], value["clusteringColumns"]) == (3, 7, [])
    assert value["properties"]["own"] == "1"
    assert value["createdAt"].endswith("Z")


def test_the_columns(t: str) -> None:
    columns = [["id", "int", "key"], ["s", "struct<a:int,b:string>", None], ["d", "date", None]]
    partition = [["# Partition Information", "", ""], ["# col_name", "data_type", "comment"], ["d", "date", None]]
    assert query_rows(f"DESCRIBE {t}") == columns + partition
    rest = query_rows(f"DESCRIBE EXTENDED {t}")[6:]
    assert rest[:3] == [["", "", ""], ["# Detailed Table Information", "", ""], ["Comment", "all", ""]]
    assert [row[0] for row in rest[3:]] == ["Location", "Provider", "Table Properties"]


def test_the_commits(t: str) -> None:
    run_statement(parse_statement(f"ALTER TABLE {t} ALTER COLUMN id COMMENT 'x'"))
    found = query_rows(f"DESCRIBE HISTORY {t}")
    assert [(row[0], row[4]) for row in found] == [(1, "CHANGE COLUMN"), (0, "CREATE TABLE")]
    assert len(query_rows(f"DESCRIBE HISTORY {t} LIMIT 1")) == 1
    assert query_rows(f"DESCRIBE HISTORY {t} LIMIT 0") == []


def test_the_properties(t: str) -> None:
    found = dict(query_rows(f"SHOW TBLPROPERTIES {t}"))
    assert (found["own"], found["delta.minWriterVersion"]) == ("1", "7")
    assert found["delta.feature.typeWidening"] == "supported"
    assert query_rows(f"SHOW TBLPROPERTIES {t} (none)")[0][1].endswith("does not have property: none")


def test_a_feature_is_dropped_with_its_history_or_without(t: str, place: str) -> None:
    run_statement(parse_statement(f"ALTER TABLE {t} ALTER COLUMN id TYPE bigint"))
    with pytest.raises(DropPendingRetention):
        run_statement(parse_statement(f"ALTER TABLE {t} DROP FEATURE typeWidening TRUNCATE HISTORY"))
    assert "typeWidening" in (Table(place).protocol.writer_features or ())
    run_statement(parse_statement(f"ALTER TABLE {t} DROP FEATURE 'typeWidening'"))
    dropped = Table(place)
    assert "typeWidening" not in (dropped.protocol.writer_features or ())
    assert dropped.type_changes == []
    assert "delta.enableTypeWidening" not in dropped.properties
