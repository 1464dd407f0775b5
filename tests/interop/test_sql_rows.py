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
    # Not by "c = 'c '": UPDATE and DELETE of Delta Lake skip files by unpadded statistics; its SELECT does not.
    "UPDATE {t} SET s.b = 'wxyz' WHERE c LIKE 'c%'",
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


DEFAULTED = "id int, a int, b string DEFAULT 'bb', c struct<x: int>"
WITH_DEFAULT = [
    "(id, b) SELECT 1, DEFAULT",
    "(b, id) SELECT DEFAULT, 2",
    "SELECT 3, DEFAULT, DEFAULT, DEFAULT",
    "(id, b) SELECT id, default FROM range(4, 9) WHERE id > 4 ORDER BY id LIMIT 1",
    "(id, b) (SELECT 6, DEFAULT)",
    "(id, b) FROM range(7, 8) SELECT id, DEFAULT",
    "(id, b) SELECT 8 AS x, (DEFAULT)",
    "(id, b) SELECT 9, `DEFAULT`",
    "(id, b) VALUES (10, DEFAULT), (DEFAULT, 'x')",
    "(id) VALUES DEFAULT, 11",
    "(id, b) SELECT * FROM VALUES (12, DEFAULT)",
    "(id, b) SELECT 13, DEFAULT AS q",
    "(id, b) SELECT 14, concat(DEFAULT, 'x')",
    "(id, b) SELECT DISTINCT 15, DEFAULT",
    "(id, b) SELECT 16, DEFAULT UNION ALL SELECT 17, 'x'",
    "(id, b) SELECT 18, 'x' UNION ALL SELECT 19, DEFAULT",
    "(id, b) WITH x AS (SELECT 20 AS i) SELECT i, DEFAULT FROM x",
    "SELECT 21, DEFAULT",
    "(id, b) SELECT 22, DEFAULT FROM range(2) GROUP BY id",
]


def test_default_where_spark_takes_it(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    properties = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    inserts = [f"INSERT INTO {{t}} {text}" for text in WITH_DEFAULT]
    compare(spark, mine, theirs, [f"CREATE TABLE {{t}} ({DEFAULTED}) USING delta {properties}", *inserts])


IN_PARTITIONS = [
    "INTO {t} PARTITION (p, q) SELECT 10, 'v', 'a', 5",
    "INTO {t} PARTITION (q, P) SELECT 11, 'v', 5, 'a'",
    "INTO {t} PARTITION (p, q = 1) SELECT 12, 'v', 'a'",
    "INTO {t} PARTITION (id) SELECT 13, 'v', 5, 'a'",
    "INTO {t} PARTITION (p, p = 'a') SELECT 14, 'v', 5",
    "INTO {t} PARTITION (p, q = 1) (v, id, p) SELECT 'w', 15, 'a'",
    "INTO {t} PARTITION (p, q = 1) (v, id) SELECT 'w', 16",
    "INTO {t} PARTITION (p, q = 1) BY NAME SELECT 'w' v, 17 id, 'c' p",
    "INTO {t} PARTITION (p, q = 1) VALUES (18, DEFAULT, 'p')",
    "OVERWRITE {t} PARTITION (p, q = 1) SELECT 19, 'd', 'v'",
    "OVERWRITE {t} PARTITION (p = 'a') SELECT 20, 3, 'v'",
    "OVERWRITE {t} PARTITION (p = 'd', q = 1) SELECT 21, 'v' WHERE false",
    "OVERWRITE {t} PARTITION (p, q) SELECT 22, 'a', 3, 'v'",
    "OVERWRITE {t} PARTITION (p, q = 1) SELECT 23, 'v', 'w', 4",
]


@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_partitions_with_and_without_values(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    create = "CREATE TABLE {t} (id int, p string, q int, v string) USING delta PARTITIONED BY (p, q)"
    first = "INSERT INTO {t} VALUES (1, 'a', 1, 'x'), (2, 'a', 2, 'y'), (3, 'b', 1, 'z'), (4, null, 1, 'n')"
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", mode)
    try:
        compare(spark, mine, theirs, [create, first, *(f"INSERT {text}" for text in IN_PARTITIONS)])
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")


BY_PATH = [
    "MERGE INTO {t} USING (SELECT 1 k, 'a' n) ON id = k WHEN MATCHED THEN UPDATE SET v = n",
    "MERGE INTO {t} USING (SELECT 1 k, 'b' n) s ON {t}.id = s.k WHEN MATCHED THEN UPDATE SET {t}.v = {t}.v || n",
    "MERGE INTO {t} USING (SELECT 1 k, 'c' n) s ON {p}.id = s.k WHEN MATCHED THEN UPDATE SET {p}.v = {p}.v || n",
    "MERGE INTO {t} USING (SELECT 1 id, 'd' v) s ON id = s.id WHEN MATCHED THEN UPDATE SET v = s.v",
    "MERGE INTO {t} USING (SELECT 1 id, 'e' v) s ON {t}.id = s.id WHEN MATCHED AND {t}.v = 'x' THEN DELETE"
    " WHEN NOT MATCHED BY SOURCE AND v = 'y' THEN UPDATE SET v = v || {t}.v",
    "MERGE INTO {t} USING {t} s ON {t}.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v || 'f'",
    "MERGE INTO {t} AS x USING {t} ON x.id = {t}.id WHEN MATCHED THEN UPDATE SET v = {t}.v || 'g'",
    "MERGE INTO {t} USING {u} ON {t}.id = {u}.id WHEN MATCHED THEN UPDATE SET v = {u}.v || {t}.v"
    " WHEN NOT MATCHED THEN INSERT ({t}.id, v) VALUES ({u}.id, {u}.v)",
    "MERGE INTO {t} AS x USING (SELECT 1 id) s ON {t}.id = s.id WHEN MATCHED THEN DELETE",
    "UPDATE {t} SET {t}.v = {t}.v || 'u' WHERE {p}.id = 1",
    "UPDATE {t} SET v = 'u' WHERE delta.id = 1",
    "DELETE FROM {t} WHERE {t}.id = 1",
]


def test_columns_of_paths_without_an_alias(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs, other = (str(tmp_path / name) for name in ("mine", "theirs", "other"))
    spark.sql(f"CREATE TABLE delta.`{other}` USING delta AS SELECT 1 id, 'u' v UNION ALL SELECT 3, 'w'")
    create = "CREATE TABLE {t} USING delta AS SELECT 1 id, 'x' v UNION ALL SELECT 2, 'y'"
    compare(spark, mine, theirs, [create, *(text.replace("{u}", f"delta.`{other}`") for text in BY_PATH)])


CASTS = {
    "int": ["'8'", "' 8 '", "'x'", "'5000000000'", "''", "'1.5'", "true", "1.5D", "5000000000", "date'2020-01-01'"],
    "tinyint": ["'300'", "'1'", "timestamp'1970-01-01 00:00:09'", "X'00'"],
    "double": ["'NaN'", "'1e400'", "'x'"],
    "decimal(5,2)": ["'1.256'", "'12345.6'", "'x'", "12345.6", "1.256D"],
    "boolean": ["'yes'", "'maybe'", "1", "0.5"],
    "date": ["'2020-1-2'", "'x'", "'2020-01-02 03:04:05'", "timestamp'2020-01-01 10:00:00'", "1"],
    "timestamp": ["'2020-01-02T03:04:05+02:00'", "'2020-01-02 03:04:05'", "'x'", "date'2020-01-01'", "1"],
    "timestamp_ntz": ["'2020-01-02T03:04:05+02:00'"],
    "binary": ["'abc'", "1"],
    "string": ["1.5D", "date'2020-01-01'", "true", "array(1)"],
    "array<int>": ["array('1', '2')", "array('x')"],
    "struct<a: int>": ["named_struct('a', '1')", "named_struct('a', 'x')"],
    "map<int,int>": ["map('1', '1')"],
}
FORMS = ("INTO {t} VALUES", "INTO {t} BY NAME SELECT", "OVERWRITE {t} SELECT", "INTO {t} REPLACE WHERE true SELECT")


@pytest.mark.parametrize("data_type", CASTS)
def test_an_insert_casts_what_delta_lake_casts(spark: SparkSession, tmp_path: Path, data_type: str) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    statements = [f"CREATE TABLE {{t}} (id int, c {data_type}) USING delta"]
    for number, value in enumerate(CASTS[data_type]):
        form = FORMS[number % len(FORMS)]
        row = f"{number} AS id, {value} AS c" if "SELECT" in form else f"({number}, {value})"
        statements.append(f"INSERT {form} {row}")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        compare(spark, mine, theirs, statements)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def compare(spark: SparkSession, mine: str, theirs: str, statements: list[str]) -> None:
    """Run statements on two tables; after each, both have the same rows, or both refused it."""
    wrong = []
    for statement in statements:
        ours, others = (statement.format(t=f"delta.`{place}`", p=f"`{place}`") for place in (mine, theirs))
        refused = _is_refused(lambda text=ours: widen.sql(text, spark=spark))
        expected = _is_refused(lambda text=others: spark.sql(text))
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
