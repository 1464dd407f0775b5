"""SQL about rows beside Delta Lake's own: after each statement, copies of one table have the same rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen

CREATE = """CREATE TABLE {t} USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true',
    'delta.enableDeletionVectors' = 'true', 'delta.enableTypeWidening' = 'true')
    AS SELECT int(id) id, 'n' || id name, int(id % 2) p FROM range(10)"""

STATEMENTS = [
    "INSERT INTO {t} VALUES (10, 'ten', 0), (11, null, null)",
    "WITH x AS (SELECT 1, 12) INSERT INTO {t} (p, id) SELECT * FROM x",
    "INSERT INTO {t} BY NAME SELECT 1 AS p, 'by name' AS name, 13 AS id",
    "UPDATE {t} AS x SET x.name = upper(x.name), id = x.id + CASE WHEN p = 1 THEN 100 ELSE 0 END WHERE x.id < 3",
    "DELETE FROM {t} AS x WHERE x.id % 5 = 4 OR x.name IS NULL",
    """MERGE INTO {t} AS t USING (SELECT * FROM {t} VERSION AS OF 0) s ON t.id = s.id AND t.p <=> s.p
    WHEN MATCHED AND s.id > 6 THEN DELETE
    WHEN MATCHED THEN UPDATE SET t.name = s.name || '+', t.id = t.id
    WHEN NOT MATCHED AND s.id < 5 THEN INSERT (id, name, p) VALUES (s.id, 'again', s.p)
    WHEN NOT MATCHED BY SOURCE AND t.id > 10 THEN UPDATE SET p = 7""",
    """MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT bigint(3) id, 'm' name, 1 p, 5 extra) s ON t.id = s.id
    WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""",
    "INSERT INTO {t} REPLACE WHERE p = 1 SELECT 20, 'replaced', 1, 2",
    "INSERT OVERWRITE {t} SELECT id + 5000000000, name, p, extra FROM {t} VERSION AS OF 7",
]

QUERIES = [
    "SELECT count(*), sum(a.id) FROM {t} VERSION AS OF 2 a JOIN {t} b ON a.p = b.p",
    "SELECT _change_type, id, p FROM table_changes('{name}', 8, 8)",
]

NESTED = (
    "id int, s struct<a: int, b: int>, l array<struct<a: int, b: int>>, m map<struct<k: int>, struct<c: int, d: int>>"
)
INSERTS = [
    "VALUES (1, struct(1, 2), array(struct(3, 4), null), map(struct(5), struct(6, 7))), (2, null, array(), null)",
    "SELECT 3, named_struct('b', 20, 'a', 10), array(named_struct('b', 2L, 'a', 1L)), null",
    "(m, id) SELECT map(named_struct('x', 1), named_struct('d', 1, 'c', 2)), 5",
    "REPLACE WHERE id = 3 SELECT 3, named_struct('b', 5, 'a', 6), null, null",
    "SELECT 7, struct(1), null, null",
    "(id, l) SELECT 7, array(struct(1))",
    "(id, m) SELECT 7, map(struct(1), struct(1))",
    "SELECT 7, named_struct('b', 1, 'a', 2, 'more', 3), null, null",
    "SELECT 7, named_struct('b', 1, 'x', 2, 'a', 3), null, null",
    "SELECT 7, null, null, null, 8 AS extra",
    "(id, s, l, m) SELECT 7, null, null, null, 8 AS extra",
]
"""What goes into a table by position, also within structs; some of it only if its schema may evolve."""


@pytest.mark.parametrize("evolves", [False, True])
def test_inserts_go_by_position_at_every_level(spark: SparkSession, tmp_path: Path, evolves: bool) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    spark.sql(f"CREATE TABLE delta.`{theirs}` ({NESTED}) USING delta")
    shutil.copytree(theirs, mine)
    verb = "INSERT WITH SCHEMA EVOLUTION INTO" if evolves else "INSERT INTO"
    for values in INSERTS:
        if evolves and "REPLACE WHERE" in values:
            continue  # Spark has no such statement
        text = f"{verb} {{t}} {values}"
        assert _is_refused(lambda t=text: widen.sql(t.format(t=f"delta.`{mine}`"), spark=spark)) is _is_refused(
            lambda t=text: spark.sql(t.format(t=f"delta.`{theirs}`"))
        ), text
        assert rows(spark, mine) == rows(spark, theirs), text


LIMITED = """id int, c char(4), s struct<a: varchar(3), b: char(4)>, l array<varchar(2)>,
    m map<char(2), struct<x: varchar(1)>>"""
LIMITED_ROWS = [
    "INSERT INTO {t} VALUES (1, 'c', named_struct('a', 'abc', 'b', 'b'), array('ab', null), map('k', struct('x'))),"
    " (2, null, null, null, null)",
    "INSERT INTO {t} VALUES (3, 'chars', null, null, null)",
    "INSERT INTO {t} VALUES (3, 'char ', null, null, null)",
    "INSERT INTO {t} VALUES (3, 'c', struct('abcd', 'b'), null, null)",
    "INSERT INTO {t} VALUES (3, 'c', struct('abc ', 'b'), null, null)",
    "INSERT INTO {t} VALUES (3, 'c', null, array('a', null, 'abc'), null)",
    "INSERT INTO {t} VALUES (3, 'c', null, null, map('key', struct('x')))",
    "INSERT INTO {t} VALUES (3, 'c', null, null, map('k', struct('xy')))",
    "UPDATE {t} SET s.a = 'abcd'",
    "UPDATE {t} SET s.b = 'wxyz' WHERE c = 'c '",
    "MERGE INTO {t} t USING (SELECT 2 id, array('abc') l) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET l = s.l",
    "MERGE INTO {t} t USING (SELECT 2 id, array('ab') l) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET l = s.l",
    "ALTER TABLE {t} ALTER COLUMN s.a TYPE int",
]


def test_texts_of_limited_length_at_any_depth(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    create = f"CREATE TABLE {{t}} ({LIMITED}) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    compare(spark, mine, theirs, [create, *LIMITED_ROWS])
    # Delta Lake leaves the old names in the declared type, and then reads the fields under these.
    widen.sql(f"ALTER TABLE delta.`{mine}` RENAME COLUMN s.a TO z", spark=spark)
    widen.sql(f"ALTER TABLE delta.`{mine}` ADD COLUMNS (s.n int FIRST)", spark=spark)
    insert = f"INSERT INTO delta.`{mine}` VALUES (3, 'c', struct(1, '{{}}', 'b'), null, null)"
    for run in (spark.sql, lambda text: widen.sql(text, spark=spark)):
        assert _is_refused(lambda run=run: run(insert.format("abcd")))
        run(insert.format("abc"))
    assert rows(spark, mine) == read(spark, mine)
    assert "Row(id=3, c='c   ', s=Row(n=1, z='abc', b='b   '), l=None, m=None)" in read(spark, mine)


DEFAULTS = [
    ("varchar(5) DEFAULT 'abcde'", False),
    ("varchar(5) DEFAULT 'abcdef'", True),
    ("char(5) DEFAULT concat('abc', 'def')", True),
    ("varchar(5) DEFAULT 123456", True),
    ("varchar(5) DEFAULT NULL", False),
]


@pytest.mark.parametrize(("column", "is_refused"), DEFAULTS)
def test_a_default_that_is_too_long_is_refused(
    spark: SparkSession, tmp_path: Path, column: str, is_refused: bool
) -> None:
    create = (
        f"CREATE TABLE {{t}} (v {column}) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    found = [
        _is_refused(lambda: widen.sql(create.format(t=f"delta.`{tmp_path}/mine`"), spark=spark)),
        _is_refused(lambda: spark.sql(create.format(t=f"delta.`{tmp_path}/theirs`"))),
    ]
    assert found == [is_refused, is_refused]


def compare(spark: SparkSession, mine: str, theirs: str, statements: list[str]) -> None:
    """Run statements on two tables; after each, both have the same rows, or both refused it."""
    wrong = []
    for statement in statements:
        refused = _is_refused(lambda s=statement: widen.sql(s.format(t=f"delta.`{mine}`"), spark=spark))
        expected = _is_refused(lambda s=statement: spark.sql(s.format(t=f"delta.`{theirs}`")))
        if refused is not expected:
            wrong.append(f"{statement}\n  Widen {'refused' if refused else 'ran'} it")
        if (found := read(spark, mine)) != (rest := rows(spark, theirs)):
            wrong.append(f"{statement}\n  Widen: {found}\n  Delta Lake: {rest}")
        if refused is not expected or found != rest:
            shutil.rmtree(mine)
            shutil.copytree(theirs, mine)
    assert not wrong, "\n".join(wrong)


def _is_refused(run: Callable[[], object]) -> bool:
    try:
        run()
    except Exception:  # whatever Spark and Delta Lake raise
        return True
    return False


def test_the_same_statements_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    spark.sql(CREATE.format(t=f"delta.`{theirs}`"))
    widen.sql(CREATE.format(t=f"delta.`{mine}`"), spark=spark)
    assert rows(spark, mine) == rows(spark, theirs)
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    for statement in STATEMENTS:
        widen.sql(statement.format(t=f"delta.`{mine}`"), spark=spark)
        spark.sql(statement.format(t=f"delta.`{theirs}`"))
        assert read(spark, mine) == read(spark, theirs), statement
    assert rows(spark, mine) == rows(spark, theirs) == read(spark, mine)
    shutil.rmtree(mine)
    shutil.copytree(theirs, mine)
    for query in QUERIES:
        found = widen.sql(query.format(t=f"delta.`{mine}`", name=f"delta.`{mine}`"), spark=spark).collect()
        by_path = query.replace("table_changes('{name}'", "table_changes_by_path('{name}'")
        expected = spark.sql(by_path.format(t=f"delta.`{theirs}`", name=theirs)).collect()
        assert sorted(map(repr, found)) == sorted(map(repr, expected)), query


def read(spark: SparkSession, place: str) -> list[str]:
    """The rows of a table, as Widen reads them, which takes a fraction of the time."""
    return sorted(repr(row) for row in widen.Table(place).read(spark=spark).collect())


def rows(spark: SparkSession, place: str) -> list[str]:
    """The rows of a table, as Delta Lake reads them."""
    return sorted(repr(row) for row in spark.read.format("delta").load(place).collect())
