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
