"""Merges beside Delta Lake's own: both take the same clauses, and rows, schema and refusals are the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from interop.merge_case import Case, cast, crossed, evolving, named
from widen.errors import WidenError
from widen.table import Table

CASES = [*chain(crossed(), named(), cast(), evolving())]


SETTINGS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.merge.materializeSource": "none",
}
"""With two rows, compiling takes longer than all the rest."""


@pytest.fixture(scope="module", autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    """Let small merges be quick."""
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield
    for key, old in before.items():
        spark.conf.unset(key) if old is None else spark.conf.set(key, old)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tables are kept that several cases begin with."""
    return tmp_path_factory.mktemp("merge")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_both_merge_alike(spark: SparkSession, tmp_path: Path, folder: Path, case: Case) -> None:
    first, mine, theirs = _first(spark, folder, case), tmp_path / "mine", tmp_path / "theirs"
    shutil.copytree(first, mine)
    shutil.copytree(first, theirs)
    source = spark.sql(case.source)
    if case.is_refused:
        with pytest.raises((PySparkException, Py4JJavaError)):
            _delta_merge(spark, str(theirs), source, case)
        with pytest.raises(WidenError):
            _merge(str(mine), source, case)
        return
    _delta_merge(spark, str(theirs), source, case)
    _merge(str(mine), source, case)
    found, expected = _read(spark, mine), _read(spark, theirs)
    assert found.schema.simpleString() == expected.schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, expected.collect()))


def _first(spark: SparkSession, folder: Path, case: Case) -> Path:
    """Return a table with the rows of the target; it is made once for all cases that begin with it."""
    place = folder / f"{hash((case.target, *case.properties.items())):x}"
    if not place.exists():
        spark.sql(case.target).coalesce(1).write.format("delta").options(**case.properties).save(str(place))
    return place


def _delta_merge(spark: SparkSession, place: str, source: DataFrame, case: Case) -> None:
    source.createOrReplaceTempView("merge_source")
    target_alias, source_alias = case.aliases
    evolution = "WITH SCHEMA EVOLUTION " * case.evolves
    clauses = " ".join(clause.sql for clause in case.clauses)
    into = f"delta.`{place}` {target_alias} USING merge_source {source_alias} ON {case.on}"
    spark.sql(f"MERGE {evolution}INTO {into} {clauses}")


def _merge(place: str, source: DataFrame, case: Case) -> None:
    target_alias, source_alias = case.aliases
    builder = Table(place).merge(
        source, case.on, source_alias=source_alias, target_alias=target_alias, merge_schema=case.evolves
    )
    for clause in case.clauses:
        builder = clause.add_to(builder)
    builder.execute()


def _read(spark: SparkSession, place: Path) -> DataFrame:
    return spark.read.format("delta").load(str(place))
