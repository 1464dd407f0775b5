"""SQL in a session without Delta Lake: answers as DataFrames, statements that look at rows, names in its catalog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.literal import LITERALS
from widen.errors import InvalidDefault, InvalidGeneration, InvalidOption, NameNotFound, NullsInColumn, RequestError


@pytest.fixture(scope="module")
def t(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("sql") / "it`s"
    name = f"delta.`{str(place).replace('`', '``')}`"
    table = widen.sql(f"CREATE TABLE {name} (id int NOT NULL, n int, s string) USING delta", spark=spark)
    assert isinstance(table, widen.Table)
    table.append(spark.sql("SELECT 1 AS id, 2 AS n, cast(null AS string) AS s"))
    return name


def ask(spark: SparkSession, text: str) -> DataFrame:
    found = widen.sql(text, spark=spark)
    assert isinstance(found, DataFrame)
    return found


def test_answers_are_dataframes(spark: SparkSession, t: str) -> None:
    detail = ask(spark, f"DESCRIBE DETAIL {t}")
    assert detail.selectExpr("numFiles", "sizeInBytes > 0", "createdAt <= lastModified").collect() == [(1, True, True)]
    assert dict(detail.dtypes)["properties"] == "map<string,string>"
    history = ask(spark, f"DESCRIBE HISTORY {t}")
    found = history.where("version < 2").selectExpr("version", "operation", "operationMetrics['numOutputRows']")
    assert found.collect() == [(1, "WRITE", "1"), (0, "CREATE TABLE", None)]
    assert history.where("timestamp > current_timestamp() - INTERVAL 1 HOUR").count() == history.count()
    assert ask(spark, f"DESCRIBE {t}").collect()[0] == ("id", "int", None)
    assert ask(spark, f"SHOW TBLPROPERTIES {t} (own)").columns == ["key", "value"]
    assert ask(spark, f"DESCRIBE HISTORY {t} LIMIT 0").collect() == []


def test_what_rows_must_show_first(spark: SparkSession, t: str) -> None:
    with pytest.raises(NullsInColumn):
        widen.sql(f"ALTER TABLE {t} ALTER COLUMN s SET NOT NULL", spark=spark)
    widen.sql(f"ALTER TABLE {t} ALTER COLUMN n SET NOT NULL", spark=spark)
    with pytest.raises(RequestError, match="DELTA_NEW_CHECK_CONSTRAINT_VIOLATION"):
        widen.sql(f"ALTER TABLE {t} ADD CONSTRAINT small CHECK (n < 2)", spark=spark)
    widen.sql(f"ALTER TABLE {t} ADD CONSTRAINT large CHECK (n>=2)", spark=spark)
    assert ask(spark, f"SHOW TBLPROPERTIES {t} ('delta.constraints.large')").collect()[0].value == "n >= 2"


@pytest.mark.parametrize(
    ("column", "error", "reason"),
    [
        ("a int DEFAULT 1 +", InvalidDefault, "cannot be parsed"),
        ("a int DEFAULT id", InvalidDefault, "uses columns"),
        ("a int DEFAULT 'x'", InvalidDefault, "string"),
        ("a int GENERATED ALWAYS AS (nowhere + 1)", InvalidGeneration, "nowhere"),
        ("a string GENERATED ALWAYS AS (id + 1)", InvalidGeneration, "its type is int, but the column is string"),
        ("a double GENERATED ALWAYS AS (rand())", InvalidGeneration, "different results for the same row"),
        ("a int GENERATED ALWAYS AS ((SELECT 1))", InvalidGeneration, "it has a subquery"),
        ("a timestamp GENERATED ALWAYS AS (Now())", InvalidGeneration, "another value at another time"),
        ("a string GENERATED ALWAYS AS (current_user)", InvalidGeneration, "for another user"),
        ("b int GENERATED ALWAYS AS (id + 1), a int GENERATED ALWAYS AS (b + 1)", InvalidGeneration, "`b`"),
    ],
)
def test_columns_that_a_new_table_cannot_make(
    spark: SparkSession, tmp_path: Path, column: str, error: type[RequestError], reason: str
) -> None:
    with pytest.raises(error) as caught:
        widen.sql(f"CREATE TABLE delta.`{tmp_path}/t` (id int, {column})", spark=spark)
    assert reason in caught.value.message
    assert list(tmp_path.iterdir()) == []


def test_names_without_delta_lake(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).createOrReplaceTempView("a_view")
    for name, reason in [("nowhere", "cannot be found"), ("a_view", "not a table")]:
        with pytest.raises(NameNotFound, match=reason):
            widen.sql(f"ALTER TABLE {name} ALTER COLUMN id COMMENT 'x'", spark=spark)
    with pytest.raises(NameNotFound, match="without Delta Lake"):
        widen.sql(f"CREATE TABLE shop (id int) USING delta LOCATION '{tmp_path}/shop'", spark=spark)
    with pytest.raises(InvalidOption, match="LOCATION"):
        widen.sql("CREATE TABLE shop (id int) USING delta", spark=spark)
    assert list(tmp_path.iterdir()) == []


def test_literals_mean_what_spark_says(spark: SparkSession) -> None:
    """Spark 4.0 takes a doubled quote for the end of one literal and the begin of another; later ones do as we do."""
    doubled = {"'a''b'", '"a""b"'} if spark.version.startswith("4.0") else set()
    told = {literal: text for literal, text in LITERALS if literal not in doubled}
    assert list(spark.sql(f"SELECT {', '.join(told)}").collect()[0]) == list(told.values())
