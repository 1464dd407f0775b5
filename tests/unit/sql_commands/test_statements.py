"""Statements about rows: what they say, and where one that is not understood goes wrong."""

from __future__ import annotations

import pytest

from widen.changes.assignment import ChangeKind
from widen.changes.merge import MergeClause, MergeSide
from widen.errors import AssignmentConflict, InvalidStatement
from widen.sql_commands.grammar import replace_qualifiers, split_statements, table_qualifiers
from widen.sql_commands.parser import parse_sql
from widen.sql_commands.statements import (
    CreateTableAs,
    CreateTableStatement,
    Delete,
    Insert,
    Merge,
    Query,
    RowStatement,
    TableReference,
    Update,
)

T = TableReference(("delta", "/d/t"))
NAMED = TableReference(("shop", "orders"))
UPDATE_SQL = "UPDATE shop.orders SET total = CASE WHEN a THEN b END, `x y` = orders.q WHERE orders.id IN (1, 2)"
MERGE_SQL = """MERGE WITH SCHEMA EVOLUTION INTO delta.`/d/t` AS t USING (SELECT * FROM x WHERE a = 'WHEN') s
ON t.id = s.id WHEN MATCHED AND CASE WHEN s.a THEN true END THEN UPDATE SET t.a = s.a, b = t.b + 1
WHEN MATCHED THEN DELETE
WHEN NOT MATCHED BY TARGET AND s.a > 1 THEN INSERT (id, t.a) VALUES (s.id, coalesce(s.a, 0))
WHEN NOT MATCHED THEN INSERT *
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = t.a;"""
MATCHED, NEW, SOURCELESS = MergeSide.MATCHED, MergeSide.NOT_MATCHED, MergeSide.NOT_MATCHED_BY_SOURCE
MERGED = (
    MergeClause(MATCHED, ChangeKind.UPDATE, "CASE WHEN s.a THEN true END", {"a": "s.a", "b": "t.b + 1"}),
    MergeClause(MATCHED, ChangeKind.DELETE),
    MergeClause(NEW, ChangeKind.INSERT, "s.a > 1", {"id": "s.id", "a": "coalesce(s.a, 0)"}),
    MergeClause(NEW, ChangeKind.INSERT),
    MergeClause(SOURCELESS, ChangeKind.UPDATE, None, {"a": "t.a"}),
)

STATEMENTS: list[tuple[str, RowStatement]] = [
    ("SELECT 1", Query("SELECT 1")),
    (" -- why\n(SELECT 1 -- x\n) ;", Query("(SELECT 1 -- x\n)")),
    ("WITH a AS (SELECT 1) SELECT * FROM a", Query("WITH a AS (SELECT 1) SELECT * FROM a")),
    ("WITH a AS (SELECT 1), insert AS (TABLE a) FROM a", Query("WITH a AS (SELECT 1), insert AS (TABLE a) FROM a")),
    (
        "WITH a AS (SELECT 1), b(x) AS (VALUES (2)) INSERT INTO delta.`/d/t` (x) SELECT * FROM b",
        Insert(T, "WITH a AS (SELECT 1), b(x) AS (VALUES (2)) SELECT * FROM b", ("x",)),
    ),
    ("INSERT INTO delta.`/d/t` SELECT 1, 2", Insert(T, "SELECT 1, 2")),
    ("insert into table shop.orders values (1, 'a;b')", Insert(NAMED, "values (1, 'a;b')")),
    ("INSERT INTO delta.`/d/t` (a, `b c`) VALUES (1, 2);", Insert(T, "VALUES (1, 2)", ("a", "b c"))),
    (
        "INSERT OVERWRITE delta.`/d/t` PARTITION (p = 'a,b', q = 1) (a) VALUES (1)",
        Insert(T, "VALUES (1)", ("a",), overwrites=True, partition={"p": "'a,b'", "q": "1"}),
    ),
    ("INSERT INTO delta.`/d/t` (SELECT 1, 2)", Insert(T, "(SELECT 1, 2)")),
    ("INSERT INTO delta.`/d/t` BY NAME SELECT 1 a", Insert(T, "SELECT 1 a", by_name=True)),
    ("INSERT WITH SCHEMA EVOLUTION INTO delta.`/d/t` TABLE x", Insert(T, "TABLE x", evolves=True)),
    ("INSERT OVERWRITE delta.`/d/t` FROM x SELECT a", Insert(T, "FROM x SELECT a", overwrites=True)),
    (
        "INSERT INTO delta.`/d/t` REPLACE WHERE day > '2024' AND b IN (SELECT 1) SELECT 1",
        Insert(T, "SELECT 1", overwrites=True, where="day > '2024' AND b IN (SELECT 1)"),
    ),
    (UPDATE_SQL, Update(NAMED, {"total": "CASE WHEN a THEN b END", "`x y`": "q"}, "id IN (1, 2)")),
    ("UPDATE delta.`/d/t` AS x SET x.s.a = x.b", Update(T, {"s.a": "b"})),
    ("DELETE FROM delta.`/d/t` x WHERE x.a = y.x.b AND 'x.a' > X . c", Delete(T, "a = y.x.b AND 'x.a' >  c")),
    ("DELETE FROM shop.orders", Delete(NAMED)),
    ("TRUNCATE TABLE shop.orders", Delete(NAMED)),
    (MERGE_SQL, Merge(T, "(SELECT * FROM x WHERE a = 'WHEN')", "t.id = s.id", MERGED, "t", "s", True)),
    (
        "MERGE INTO shop.orders USING delta.`/d/t` s ON orders.id = s.id WHEN MATCHED THEN UPDATE SET *",
        Merge(NAMED, "delta.`/d/t`", "orders.id = s.id", (MergeClause(MATCHED, ChangeKind.UPDATE),), "orders", "s"),
    ),
    (
        "CREATE TABLE delta.`/d/t` TBLPROPERTIES (a = 'AS SELECT') AS SELECT 1 AS a",
        CreateTableAs(T, "SELECT 1 AS a", properties={"a": "AS SELECT"}),
    ),
    (
        "CREATE TABLE IF NOT EXISTS shop.orders USING delta LOCATION '/x' AS (WITH a AS (SELECT 1) SELECT * FROM a)",
        CreateTableAs(
            NAMED, "(WITH a AS (SELECT 1) SELECT * FROM a)", location="/x", if_not_exists=True, using="delta"
        ),
    ),
]

WRONG = [
    ("INSERT t SELECT 1", 8, "expected INTO, not 't'"),
    ("INSERT INTO t PARTITION (a = 1, A) SELECT 1", 33, "A occurs twice"),
    ("INSERT INTO t PARTITION (a > 1) SELECT 1", 28, "expected =, not '>'"),
    ("INSERT INTO t (a, b c) SELECT 1", 21, "expected the end, not 'c'"),
    ("INSERT INTO t", 14, "expected an expression"),
    ("UPDATE t SET a", 14, "'a' is not an assignment"),
    ("UPDATE t SET b = 2, a 1 WHERE c", 21, "'a 1' is not an assignment"),
    ("UPDATE t SET b = 2, a = WHERE c", 24, "expected an expression"),
    ("UPDATE t SET b = (SELECT 1)", 19, "UPDATE and DELETE do not support subqueries; use MERGE INTO"),
    ("DELETE FROM t WHERE a = 1 AND b IN (SELECT 1)", 37, "UPDATE and DELETE do not support subqueries"),
    ("TRUNCATE t", 10, "expected TABLE, not 't'"),
    ("DELETE FROM t x y", 17, "expected the end, not 'y'"),
    ("DELETE t", 8, "expected FROM, not 't'"),
    ("TRUNCATE TABLE t PARTITION (a = 1)", 18, "expected the end"),
    ("MERGE INTO t USING s ON a WHEN MATCHED THEN INSERT *", 45, "expected UPDATE SET, not 'INSERT'"),
    ("MERGE INTO t USING s VERSION AS OF 3 ON a = b WHEN MATCHED THEN DELETE", 22, "needs parentheses"),
    ("MERGE INTO t USING s ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", 70, "2 columns are named"),
    ("SELECT 'a", 1, "a quote or a comment is not closed"),
    ("CREATE TABLE t AS QUERY", 1, "the query is missing"),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=[text[:40] for text, _ in STATEMENTS])
def test_understood(text: str, expected: RowStatement) -> None:
    assert parse_sql(text) == expected


@pytest.mark.parametrize(("text", "column", "reason"), WRONG)
def test_the_place_and_the_reason_are_told(text: str, column: int, reason: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse_sql(text)
    assert reason in str(caught.value.fields["reason"])
    assert caught.value.fields["column"] == column


def test_a_generated_column_is_no_query() -> None:
    statement = parse_sql("CREATE TABLE delta.t (a int, b int GENERATED ALWAYS AS (a + 1))")
    assert isinstance(statement, CreateTableStatement)


def test_statements_are_divided_by_semicolons() -> None:
    text = "SELECT ';'; -- no; end\n\n UPDATE t SET a = 1 ;;\nSELECT `;` FROM t"
    assert split_statements(text) == ["SELECT ';'", "-- no; end\n\n UPDATE t SET a = 1", "SELECT `;` FROM t"]


def test_only_the_name_of_the_table_is_cut() -> None:
    text = "t.a + T.b + s.t.c + `t`.d + f(t) + shop . T .e + shop.u.t"
    assert replace_qualifiers(text, table_qualifiers(("shop", "t"))) == "a + b + s.t.c + d + f(t) + e + shop.u.t"
    assert replace_qualifiers("delta.`/d`.a + `/d`.b + delta.c", table_qualifiers(("delta", "/d"), "x y")) == (
        "`x y`.a + `x y`.b + delta.c"
    )
    assert replace_qualifiers("t.a", {}) == "t.a"


MERGE_NAMES = [
    ("delta.`/a` USING delta.`/b`", "delta.`/a`.x = `/b`.x", "__widen_target.x = __widen_source.x"),
    ("delta.`/a` USING (SELECT 1 x)", "`/a`.x = x", "__widen_target.x = x"),
    ("delta.`/a` t USING delta.`/a`", "t.x = `/a`.x", "t.x = __widen_source.x"),
    ("shop.a USING shop.b b", "a.x = shop.a.y + b.x", "a.x = a.y + b.x"),
    ("shop.a USING old.a", "shop.a.x = old.a.x AND a.x", "__widen_target.x = __widen_source.x AND a.x"),
]


@pytest.mark.parametrize(("tables", "on", "expected"), MERGE_NAMES)
def test_a_merge_finds_tables_by_their_names(tables: str, on: str, expected: str) -> None:
    statement = parse_sql(f"MERGE INTO {tables} ON {on} WHEN MATCHED AND {on} THEN DELETE")
    assert isinstance(statement, Merge)
    assert (statement.on, statement.clauses[0].condition) == (expected, expected)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE t SET a = 1, a = 2",
        "UPDATE t SET t.a = 1, a = 2",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET a = 1, b = 2, a = 3",
        "MERGE INTO t USING s ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a, a) VALUES (1, 2)",
    ],
)
def test_a_column_is_assigned_once(text: str) -> None:
    with pytest.raises(AssignmentConflict):
        parse_sql(text)
