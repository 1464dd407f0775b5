"""SQL about rows: tables by path, by name, at versions and times, and their changes, anywhere in a statement."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from typer.testing import CliRunner

import widen
from support.command_line import run, run_json
from support.old_table import age
from widen.cli import output
from widen.cli.app import app
from widen.errors import (
    CastOverflow,
    InvalidOption,
    InvalidStatement,
    RetentionTooShort,
    TableAlreadyExists,
    TableNotFound,
    VersionNotFound,
)
from widen.spark import engine, session
from widen.table import Table

FEED = {"delta.enableChangeDataFeed": "true", "delta.enableTypeWidening": "true"}


def rows(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    frame = widen.sql(text, spark=spark)
    assert isinstance(frame, DataFrame)
    return sorted(map(tuple, frame.collect()), key=repr)


@pytest.fixture(scope="module")
def past(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Version 1 has ids 1 and 2 as tinyint, version 2 widens them, version 3 has 3000 too, version 4 lacks 1."""
    place = tmp_path_factory.mktemp("past") / "with {braces} and it's"
    table = widen.create_table(str(place), "id tinyint, name string", properties=FEED)
    table.append(spark.sql("SELECT tinyint(id) id, 'n' || id name FROM VALUES (1), (2) AS v(id)"))
    table.alter_column("id", type="int")
    table.append(spark.sql("SELECT 3000 id, 'new' name")).table.delete("id = 1", spark=spark)
    return str(place)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str] | None]:
    """Runs a statement as a process does that has no session; None if it starts one."""

    def read(text: str, *options: str) -> list[str] | None:
        with monkeypatch.context() as patch:
            for module in (session, engine):
                patch.setattr(module, "find_active", lambda: None)
            patch.setattr(output, "spark_session", lambda *_: pytest.skip("it starts Spark"))
            patch.setattr(session, "start_spark", lambda *_: pytest.skip("it starts Spark"))
            try:
                return sorted(run("sql", text, *options, "--json").stdout.splitlines())
            except pytest.skip.Exception:
                return None

    return read


PLAIN = """
    SELECT * FROM {}
    select ID, name as `as` from {}
    SELECT count(*) FROM {}
    SELECT * FROM {} LIMIT 0
    SELECT count(1) AS n FROM {} WHERE id > 2 LIMIT 1
    SELECT 'a, b FROM c' AS t FROM {} VERSION AS OF 1
    SELECT id + 1 AS x FROM {} VERSION AS OF 3 WHERE id < 3 AND name <> ' LIMIT 1'
    SELECT name /* , id */ FROM {};
"""
MORE = """
    SELECT DISTINCT id FROM {}
    SELECT id FROM {} ORDER BY id
    SELECT t.id FROM {} t
    SELECT max(id) AS m FROM {}
    SELECT id FROM {} UNION ALL SELECT 1
    SELECT id FROM {} GROUP BY id HAVING id > 1
    SELECT id FROM {} LIMIT 1 + 1
    SELECT b.id FROM {0}, {0} AS b
    SELECT id FROM {} TABLESAMPLE (100 PERCENT)
    SELECT *, id AS x FROM {}
    SELECT id FROM {} WHERE id IN (SELECT 2)
    WITH x AS (SELECT 1) SELECT id FROM {}
    SELECT id FROM {} OFFSET 1
    SELECT id FROM {} TIMESTAMP AS OF current_timestamp()
    SELECT id, row_number() OVER (ORDER BY id) AS r FROM {}
    SELECT id FROM (SELECT id FROM {})
    SELECT id FROM {} LATERAL VIEW explode(array(1)) e AS x
    SELECT id FROM {} JOIN (SELECT 2 AS id) USING (id)
    SELECT 1 AS x
"""


def test_a_plain_query_needs_no_spark(without_spark: Callable[[str], list[str] | None], past: str) -> None:
    for query in PLAIN.strip().splitlines():
        text = query.format(f"delta.`{past}`")
        expected = run("sql", text, "--json")
        assert expected.exit_code == 0, expected.stderr
        assert without_spark(text) == sorted(expected.stdout.splitlines()), query
    for query in MORE.strip().splitlines():
        text = query.format(f"delta.`{past}`")
        assert without_spark(text) is None, query
        assert run("sql", text, "--json").exit_code == 0, query
    assert len(without_spark(f"SELECT id FROM delta.`{past}` LIMIT 1") or []) == 1


CHANGES = """
    DELETE FROM {} WHERE id = 2 OR name IS NULL
    UPDATE {} SET name = concat(name, '!'), ID = id * 2 WHERE id BETWEEN 1 AND 3000
    UPDATE {} SET name = DEFAULT
    DELETE FROM {}
"""


def test_a_plain_change_needs_no_spark(spark: SparkSession, without_spark: Any, tmp_path: Path) -> None:
    for number, change in enumerate(CHANGES.strip().splitlines()):
        found = []
        for lane in ("here", "spark"):
            t = f"delta.`{tmp_path}/{number}-{lane}`"
            widen.sql(f"CREATE TABLE {t} (id bigint, name string)", spark=spark)
            widen.sql(f"INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3000, NULL), (5000, 'd')", spark=spark)
            if lane == "here":
                assert without_spark(change.format(t)) is not None, change
            else:
                assert run_json("sql", change.format(t))["version"] == 2
            found.append(
                (rows(spark, f"SELECT * FROM {t}"), Table(f"{tmp_path}/{number}-{lane}").history(1)[0].metrics)
            )
        names = ("numDeletedRows", "numUpdatedRows", "numCopiedRows", "numAddedFiles", "numRemovedFiles")
        assert found[0][0] == found[1][0], change
        assert [found[0][1].get(each) for each in names] == [found[1][1].get(each) for each in names], change
    assert without_spark(f"DELETE FROM {t} WHERE length(name) = 1") is None


def test_queries_read_versions_and_changes_anywhere(spark: SparkSession, past: str) -> None:
    t = f"delta.`{past}`"
    assert rows(spark, f"SELECT id FROM {t}") == [(2,), (3000,)]
    assert rows(spark, f"SELECT x.id FROM {t} VERSION AS OF 1 x") == [(1,), (2,)]
    text = f"""
        -- {{not a frame}}
        WITH old AS (SELECT * FROM {t} FOR VERSION AS OF 3 WHERE name <> '{{x}}')
        SELECT o.id, n.id, named_struct('a', 1).a FROM old AS o LEFT JOIN {t} n ON n.id = o.id
        WHERE o.id IN (SELECT id FROM {t} VERSION AS OF 1) OR EXISTS (SELECT 1 FROM {t} m WHERE m.id > o.id + 2990);
    """
    assert rows(spark, text) == [(1, None, 1), (2, 2, 1)]
    quoted = t.replace("'", "\\'")
    changes = f"SELECT c._change_type, c.id FROM table_changes('{quoted}', 3) c WHERE id > 0"
    assert rows(spark, changes) == [("delete", 1), ("insert", 3000)]
    by_path = past.replace("'", "\\'")
    assert rows(spark, f"SELECT id FROM table_changes_by_path('{by_path}', 3, 3)") == [(3000,)]
    with pytest.raises(VersionNotFound):
        rows(spark, f"SELECT * FROM {t} VERSION AS OF 9")
    with pytest.raises(TableNotFound):
        rows(spark, "SELECT * FROM delta.`/no/where`")
    with pytest.raises(InvalidStatement, match=r"Spark says: .*nothing"):
        rows(spark, f"SELECT nothing FROM {t}")


def test_queries_read_times(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int", properties=FEED).append(spark.sql("SELECT 1 id")).table
    age(tmp_path, hours=1)
    between = datetime.now(timezone.utc) - timedelta(minutes=30)
    table.append(spark.sql("SELECT 2 id"))
    t, moment = f"delta.`{tmp_path}`", f"{between:%Y-%m-%dT%H:%M:%S.%fZ}"
    assert rows(spark, f"SELECT * FROM {t} TIMESTAMP AS OF '{moment}'") == [(1,)]
    later = f"{t} TIMESTAMP AS OF timestamp('{moment}') + INTERVAL 1 HOUR"
    assert rows(spark, f"SELECT count(*) FROM {later} AS x, {t} TIMESTAMP AS OF '{moment}' y") == [(2,)]
    assert rows(spark, f"SELECT id FROM table_changes('{t}', '{moment}')") == [(2,)]
    assert rows(spark, f"SELECT id FROM table_changes('{t}', 0, '{moment}')") == [(1,)]
    with pytest.raises(InvalidOption, match="timestamp cannot be"):
        rows(spark, f"SELECT * FROM {t} TIMESTAMP AS OF 'yesterdayish'")


def test_views_of_the_session_are_left_to_spark(spark: SparkSession, past: str) -> None:
    spark.sql("SELECT 2 id").createOrReplaceTempView("chosen")
    text = f"SELECT chosen.id, t.name FROM chosen JOIN delta.`{past}` t ON t.id = chosen.id"
    assert rows(spark, text) == [(2, "n2")]
    assert rows(spark, "SELECT 1 AS a UNION ALL VALUES (2)") == [(1,), (2,)]
    piped = f"FROM delta.`{past}` |> WHERE id < 10 |> SELECT id"
    assert rows(spark, piped) == [(2,)]


def test_defaults_partitions_and_versions_of_paths(spark: SparkSession, tmp_path: Path) -> None:
    t = f"delta.`{tmp_path}/t`"
    widen.sql(f"CREATE TABLE {t} (a int, b string DEFAULT 'none', p date) PARTITIONED BY (p)", spark=spark)
    day, other = (date(2024, 1, number) for number in (1, 2))

    def found(text: str) -> list[tuple[Any, ...]]:
        widen.sql(text.format(t=t), spark=spark)
        return rows(spark, f"SELECT * FROM {t}")

    assert found("INSERT INTO {t} VALUES (1, DEFAULT, date'2024-01-01'), (2, 'x', DEFAULT)") == [
        (1, "none", day), (2, "x", None),
    ]  # fmt: skip
    assert found("INSERT INTO {t} PARTITION (p = '2024-01-02') VALUES (3, DEFAULT)")[-1] == (3, "none", other)
    assert found("INSERT OVERWRITE {t} PARTITION (P = date'2024-01-01') (a) SELECT 4") == [
        (2, "x", None), (3, "none", other), (4, "none", day),
    ]  # fmt: skip
    assert found("INSERT OVERWRITE {t} PARTITION (p = NULL) BY NAME SELECT 5 a")[-1] == (5, "none", None)
    assert found("UPDATE {t} SET b = 'y' WHERE a = 5")[-1] == (5, "y", None)
    assert found("UPDATE {t} SET b = DEFAULT, a = DEFAULT WHERE a = 5")[-1] == (None, "none", None)
    merge = "MERGE INTO {t} t USING (SELECT 6 a) s ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (a, DEFAULT)"
    assert found(merge)[2] == (6, "none", None)
    assert rows(spark, f"SELECT a FROM delta.`{tmp_path}/t@v1` WHERE p IS NULL") == [(2,)]
    for clause, expected in (
        ("PARTITION (a = 1) (b, p)", "Must name partition columns: p"),
        ("PARTITION (p = 1) (a, p)", "must not name it"),
        ("PARTITION (p = 'someday') (a, b)", "Must be a value of p date"),
    ):
        with pytest.raises(InvalidOption, match=expected):
            found(f"INSERT INTO {{t}} {clause} SELECT 1, 2")


def test_rows_are_inserted_updated_deleted_and_merged(spark: SparkSession, tmp_path: Path) -> None:
    t = f"delta.`{tmp_path}/t`"

    def found(text: str) -> list[tuple[Any, ...]]:
        assert isinstance(widen.sql(text.format(t=t), spark=spark), Table)
        return rows(spark, f"SELECT * FROM {t}")

    widen.sql(f"CREATE TABLE {t} (a tinyint, b string, p int) PARTITIONED BY (p) TBLPROPERTIES "
              "('delta.enableTypeWidening' = 'true')", spark=spark)  # fmt: skip
    assert found("INSERT INTO {t} VALUES (1, 'x', 0), (2, 'y', 0), (3, 'z', 1)") == [
        (1, "x", 0),
        (2, "y", 0),
        (3, "z", 1),
    ]
    assert found("INSERT INTO {t} (p, a) SELECT 2, 4")[-1] == (4, None, 2)
    assert found("INSERT INTO {t} BY NAME SELECT 'n' b, 5 a, 2 p")[-1] == (5, "n", 2)
    assert found("INSERT INTO {t} REPLACE WHERE p = 2 SELECT 6, 'r', 2")[-2:] == [(3, "z", 1), (6, "r", 2)]
    assert found("UPDATE {t} AS t SET t.b = t.b || '!', a = CASE WHEN t.a = 6 THEN 7 ELSE a END WHERE t.p > 0") == [
        (1, "x", 0), (2, "y", 0), (3, "z!", 1), (7, "r!", 2),
    ]  # fmt: skip
    assert found("DELETE FROM {t} x WHERE x.a BETWEEN 2 AND 3") == [(1, "x", 0), (7, "r!", 2)]
    merge = """MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT * FROM {t} VERSION AS OF 1 CROSS JOIN
        (SELECT 1000 AS c)) s ON t.a = s.a
        WHEN MATCHED THEN UPDATE SET b = s.b || 'm'
        WHEN NOT MATCHED AND s.a = 2 THEN INSERT (a, c, p) VALUES (s.a + 998, s.c, 9)
        WHEN NOT MATCHED BY SOURCE THEN DELETE"""
    with pytest.raises(Exception, match="does not fit column a"):  # its type follows a source column only
        found(merge)
    assert found(merge.replace("s.a + 998", "s.a")) == [(1, "xm", 0, None), (2, None, 9, 1000)]
    assert found("INSERT WITH SCHEMA EVOLUTION INTO {t} SELECT 70000, 'w', 1, 2")[-1] == (70000, "w", 1, 2)
    assert found("INSERT OVERWRITE {t} (a, b, p, c) SELECT 1, 'o', 1, 1") == [(1, "o", 1, 1)]
    for text in ("INSERT INTO {t} SELECT 1", "INSERT INTO {t} (a, A) SELECT 1, 2"):
        with pytest.raises(InvalidOption, match="INSERT cannot be"):
            found(text)
    with pytest.raises(CastOverflow, match="does not fit column a"):
        found("INSERT INTO {t} SELECT 'one', 'o', 1, 1")
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        assert found("INSERT OVERWRITE {t} SELECT 2, 'd', 2, 2") == [(1, "o", 1, 1), (2, "d", 2, 2)]
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    assert found("OPTIMIZE {t} WHERE p = 1 ZORDER BY (a)") == [(1, "o", 1, 1), (2, "d", 2, 2)]
    assert found("TRUNCATE TABLE {t}") == []
    with pytest.raises(RetentionTooShort):
        widen.sql(f"VACUUM {t} RETAIN 0 HOURS", spark=spark)
    assert rows(spark, f"VACUUM {t} DRY RUN") == []
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        assert len(rows(spark, f"VACUUM {t} RETAIN 0 HOURS DRY RUN")) > 9
        found("VACUUM {t} RETAIN 0 HOURS")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert list(Path(tmp_path / "t").rglob("part-*.parquet")) == []


def test_a_table_is_created_with_rows_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    t = f"delta.`{tmp_path}/t`"
    create = f"CREATE TABLE {t} USING delta PARTITIONED BY (p) COMMENT 'c' AS SELECT id a, id % 2 p FROM range(4)"
    made = widen.sql(create, spark=spark)
    assert isinstance(made, Table)
    assert (made.version, made.partition_by, made.metadata.description) == (0, ("p",), "c")
    assert rows(spark, f"SELECT * FROM {t}") == [(0, 0), (1, 1), (2, 0), (3, 1)]
    files = set(tmp_path.rglob("*.parquet"))
    with pytest.raises(TableAlreadyExists):
        widen.sql(create, spark=spark)
    again = widen.sql(create.replace("TABLE", "TABLE IF NOT EXISTS"), spark=spark)
    assert isinstance(again, Table)
    assert (again.version, set(tmp_path.rglob("*.parquet"))) == (0, files)


def test_the_command_line_runs_statements_from_stdin(spark: SparkSession, tmp_path: Path) -> None:

    t = f"delta.`{tmp_path}/t`"
    text = (
        f"CREATE TABLE {t} AS SELECT id FROM range(30); DELETE FROM {t} WHERE id >= 25;\nSELECT * FROM {t} ORDER BY id"
    )
    done = CliRunner().invoke(app, ["sql", "-", "--json"], input=text)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["version"] for line in lines[:2]] == [0, 1]
    assert lines[2:] == [{"id": value} for value in range(25)]
    assert run_json("sql", f"SELECT count(*) n FROM {t}") == {"n": 25}
    shown = run("sql", f"SELECT id FROM {t} ORDER BY id", "--limit", "3")
    assert (shown.exit_code, shown.stdout.split()[-3:]) == (0, ["0", "1", "2"])
