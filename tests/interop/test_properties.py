"""Properties of new tables: Widen and Delta Lake take and refuse the same values and defaults."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.table_property import REFUSED, TAKEN
from widen import create_table, sql
from widen.errors import InvalidOption

DEFAULTS = "spark.databricks.delta.properties.defaults."


def _make(spark: SparkSession, place: Path, *given: tuple[str, str]) -> dict[str, str] | None:
    """Let Delta Lake make a table; return its properties, or None if it refuses."""
    properties = ", ".join(f"'delta.{key}'='{value}'" for key, value in given)
    try:
        spark.sql(
            f"CREATE TABLE delta.`{place}` (id int) USING delta" + (f" TBLPROPERTIES ({properties})" if given else "")
        )
    except Exception:  # whatever Delta Lake raises: many of its checks have no class
        return None
    return {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{place}`").collect()}


def test_both_take_and_refuse_the_same_values(spark: SparkSession, tmp_path: Path) -> None:
    for at, given in enumerate((*TAKEN, *REFUSED)):
        theirs = _make(spark, tmp_path / f"theirs{at}", given)
        assert (theirs is not None) is (given in TAKEN), given


@pytest.mark.parametrize(
    ("key", "value"),
    [("enableTypeWidening", "true"), ("checkpointInterval", "7"), ("foo", "1"), ("columnMapping.mode", "name"),
     ("feature.typeWidening", "supported")],
)  # fmt: skip
def test_both_follow_the_defaults_of_the_session(spark: SparkSession, tmp_path: Path, key: str, value: str) -> None:
    spark.conf.set(DEFAULTS + key, value)
    try:
        theirs = _make(spark, tmp_path / "theirs")
        ours = create_table(str(tmp_path / "ours"), "id int", spark=spark)
        by_sql = sql(f"CREATE TABLE delta.`{tmp_path / 'sql'}` (id int)", spark=spark)
        own = create_table(str(tmp_path / "own"), "id int", properties={"Delta.CheckpointInterval": "3"}, spark=spark)
    finally:
        spark.conf.unset(DEFAULTS + key)
    assert theirs is not None
    shown = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES delta.`{ours.location}`").collect()}
    assert shown == theirs
    assert by_sql.properties == ours.properties
    assert own.properties["delta.checkpointInterval"] == "3"


def test_a_default_that_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(DEFAULTS + "checkpointInterval", "x")
    try:
        assert _make(spark, tmp_path / "theirs") is None
        with pytest.raises(InvalidOption):
            create_table(str(tmp_path / "ours"), "id int", spark=spark)
    finally:
        spark.conf.unset(DEFAULTS + "checkpointInterval")
