"""Updated rows and their change data in one pass: every type as Spark writes it, and rules that hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from support.change import actions, last_commit, leftovers
from support.covering import covering
from support.written_once import written_once
from widen.changes.change_context import ChangeContext
from widen.errors import RowRefused
from widen.table import Table

FEED = {"delta.enableChangeDataFeed": "true"}
COLUMNS = (
    "id int, `a.b` struct<`x.y`: decimal(38,18), z: array<struct<d: date>>>, m map<string, timestamp>, "
    "ntz timestamp_ntz, bytes binary, f double, text string"
)
ROWS = """
    SELECT 1 id,
           named_struct('x.y', 1234567890.000000000000000001bd, 'z', array(named_struct('d', date'0001-01-01'))) `a.b`,
           map('k', timestamp'1500-03-01 00:00:00.000001', 'n', null) m,
           timestamp_ntz'9999-12-31 23:59:59' ntz, X'FF00' bytes, double('NaN') f, cast(X'C3' AS STRING) text
    UNION ALL SELECT 2, null, null, null, null, -0.0D, ''
    UNION ALL SELECT 3, named_struct('x.y', null, 'z', array(null)), map(), null, X'', double('-Infinity'), 'z'
"""


@written_once
def written_table(spark: SparkSession, place: Path, **properties: str) -> Table:
    table = widen.create_table(str(place), COLUMNS, properties={**FEED, **properties})
    return table.append(spark.sql(ROWS).coalesce(1)).table


def bounds(action: dict[str, Any]) -> str:
    """The bounds of a file without physical names. The null counts of columns with NaN are not the same."""
    statistics = json.loads(action["stats"])
    return re.sub("col-[0-9a-f-]+", "", str([statistics[key] for key in ("numRecords", "minValues", "maxValues")]))


@pytest.mark.parametrize(("mapping", "vectors"), covering(["none", "name", "id"], ["false", "true"]))
def test_every_type_is_written_as_spark_writes_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapping: str, vectors: str
) -> None:
    properties = {"delta.columnMapping.mode": mapping, "delta.enableDeletionVectors": vectors}
    told: list[tuple[list[str], ...]] = []
    for lane in ("arrow", "spark"):
        table = written_table(spark, tmp_path / lane, **properties)
        with monkeypatch.context() as patched:
            if lane == "spark":
                patched.setattr(ChangeContext, "has_arrow_layout", False)
            table.update({"id": "id + 10"}, "id < 3", spark=spark)
        frames = (table.read(spark=spark), table.changes(0, spark=spark).drop("_commit_timestamp"))
        told.append((*(sorted(map(repr, frame.collect())) for frame in frames),))
        if vectors == "true":  # else one lane writes two files
            told[-1] += (sorted(bounds(action) for action in actions(table, "add")),)
    assert told[0] == told[1]
    assert sum("update_p" in row for row in told[0][1]) == 4


def test_a_merge_with_every_kind_of_clause(spark: SparkSession, tmp_path: Path) -> None:
    table = written_table(spark, tmp_path / "table")
    source = spark.createDataFrame([(1, "one"), (2, "two"), (4, "four")], "id int, text string")
    merge = table.merge(source, "t.id = s.id").when_matched_delete(condition="s.id = 2")
    merge = merge.when_matched_update({"text": "s.text"}).when_not_matched_insert({"id": "s.id", "text": "s.text"})
    merge.execute()
    told = {(row._change_type, row.id, row.text) for row in table.changes(2, spark=spark).collect()}
    (old,) = spark.sql(ROWS).where("id = 1").select("text").collect()
    assert told == {
        ("update_preimage", 1, old.text),
        ("update_postimage", 1, "one"),
        ("delete", 2, ""),
        ("insert", 4, "four"),
    }
    assert sorted(row.id for row in table.read(spark=spark).collect()) == [1, 3, 4]


@pytest.mark.parametrize("feed", ["false", "true"])
def test_an_update_marks_old_rows_file_by_file(spark: SparkSession, tmp_path: Path, feed: str) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": feed}
    table = widen.create_table(str(tmp_path / "table"), "id int, n int", properties=properties)
    table.append(spark.range(0, 300, 1, 3).selectExpr("cast(id AS int) id", "cast(id AS int) n"))
    table.delete("id = 1", spark=spark)
    table.update({"n": "-n"}, "id IN (0, 64, 150) OR id >= 200", spark=spark)
    changed = {0, 64, 150, *range(200, 300)}
    assert {(row.id, row.n) for row in table.read(spark=spark).collect()} == {
        (n, -n if n in changed else n) for n in range(300) if n != 1
    }
    assert last_commit(table)[2]["numUpdatedRows"] == len(changed)
    marked = [add["deletionVector"]["cardinality"] for add in actions(table, "add") if "deletionVector" in add]
    assert sorted(marked) == [1, 3]  # the third file is gone
    assert len(actions(table, "remove")) == 3
    assert leftovers(table) == []
    if feed == "true":
        rows = table.changes(3, spark=spark).selectExpr("id", "n", "_change_type").collect()
        assert {tuple(row) for row in rows} == {
            change for n in changed for change in ((n, n, "update_preimage"), (n, -n, "update_postimage"))
        }
        assert len(rows) == 2 * len(changed)
    version = table.refresh().version
    table.update({"n": "0"}, "id = 1", spark=spark)
    assert table.refresh().version == version
    assert leftovers(table) == []


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_a_refused_row_leaves_nothing(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    table = written_table(spark, tmp_path / "table", **{"delta.enableDeletionVectors": vectors})
    table = table.add_constraint("small", "id < 12", spark=spark)
    version = table.version
    with pytest.raises(RowRefused, match="small"):
        table.update({"id": "id + 10"}, "id < 3", spark=spark)
    assert table.refresh().version == version
    assert leftovers(table) == []
    table.update({"id": "id + 10"}, "id < 2", spark=spark)
    assert sorted(row[0] for row in table.read(spark=spark).select("id").collect()) == [2, 3, 11]
