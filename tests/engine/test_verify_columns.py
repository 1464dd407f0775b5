"""The proof compares every column of a field: seeded faults in second columns, for typed records and for texts.

Parquet files are proved in this process, and Spark says what it has found to be wrong there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from widen import IngestResult, ingest
from widen.spark import engine
from widen.spark.engine import Engine, LocalSession, is_local, require_spark
from widen.targets import delta as delta_target
from widen.targets import iceberg as iceberg_target
from widen.targets import table_format

HISTORY = (
    "0 AS n, 5L AS a, array(1) AS l, named_struct('x', 1) AS r, map('k', 1) AS m, true AS f, 'only' AS other",
    "0 AS n, 'x' AS a, array('y') AS l, array(named_struct('x', 1)) AS r, map('k', 'v') AS m, date'2026-01-01' AS f",
)
"""Two intervals that give most fields a second column."""

VALUES = "CAST(id AS int) AS n, 7L AS a, 9 AS l, named_struct('x', 4) AS r, map('k', 6) AS m, true AS f"
NULLS = "CAST(id AS int) AS n, NULL AS a, NULL AS l, NULL AS r, NULL AS m, NULL AS f"

FAULTS: Mapping[str, tuple[str, Any]] = {
    "a sibling has another value": ("a_string", "8"),
    "a value goes into a column of another kind": ("f_date", date(2026, 1, 1)),
    "an array has a scalar twice": ("l", [9, 9]),
    "a sibling of an array has another item": ("l_array_string", ["8"]),
    "a sibling of an array has one item more": ("l_array_string", ["9", "9"]),
    "a sibling of a record has another value": ("r_array_record", [{"x": 5}]),
    "a sibling of a record is doubled": ("r_array_record", [{"x": 4}, {"x": 4}]),
    "a sibling of a map has another value": ("m_map_string", [("k", "7")]),
    "a sibling of a map has another key": ("m_map_string", [("j", "6")]),
    "a field has a value that no record has": ("other", "stale"),
}
FAULTS_OF_NULLS: Mapping[str, tuple[str, Any]] = {
    "a sibling has a stale value": ("a_string", "8"),
    "an array has a stale item": ("l_array_string", ["9"]),
    "a record of an array is stale": ("r_array_record", [{"x": 4}]),
    "a map is stale": ("m_map_string", [("k", "6")]),
    "a column of another kind has a stale value": ("f_string", "true"),
}
"""What one row has in a column instead of what belongs there: rows with values, and rows without."""


def interval(spark: SparkSession, place: Path, *selects: str, kind: str) -> Any:
    """Return the records of an interval, typed or as a file of JSON lines or Parquet."""
    rows = spark.sql(" UNION ALL ".join(selects)).coalesce(1)
    if kind == "typed":
        return rows
    if kind == "parquet":
        files = place / f"in{len(list(place.glob('in*')))}"
        rows.write.parquet(str(files))
        return str(files)
    path = place / f"{len(list(place.glob('*.jsonl')))}.jsonl"
    texts = rows.select(F.to_json(F.struct("*"))).collect()
    path.write_text("".join(f"{text}\n" for (text,) in texts))
    return str(path)


def load(place: Path, source: Any, *, is_iceberg: bool, **words: Any) -> IngestResult:
    into = {"into": "shop.t", "catalog": place / "catalog.db"} if is_iceberg else {"into": str(place / "t")}
    return ingest(source, evolve="split", detect_dates=True, pins={"m": "map"}, **into, **words)


def with_faults(table: pa.Table) -> pa.Table:
    """Return rows with one fault each, except for the last."""
    faults = [*FAULTS.values(), *FAULTS_OF_NULLS.values()]
    table = table.sort_by("n")
    for column in dict(faults):
        values, field = table[column].to_pylist(), table.schema.field(column)
        for number, (name, value) in enumerate(faults):
            values[number] = value if name == column else values[number]
        table = table.set_column(table.column_names.index(column), field, pa.array(values, field.type))
    return table


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
@pytest.mark.parametrize("kind", ["typed", "text", "parquet"])
def test_faults_in_second_columns_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, kind: str, is_iceberg: bool
) -> None:
    session = spark
    if kind == "parquet":
        require_spark(spark, "it says what differs")
        session = cast(SparkSession, LocalSession(Engine.AUTO, lambda _: spark))
        monkeypatch.setattr(engine, "SESSION_WINS", True)
    for select in HISTORY:
        source = interval(spark, tmp_path, f"SELECT {select}", kind=kind)
        load(tmp_path, source, is_iceberg=is_iceberg, spark=session)
    split, rows = len(FAULTS), len(FAULTS) + len(FAULTS_OF_NULLS) + 1
    selects = (f"SELECT {VALUES} FROM range({split})", f"SELECT {NULLS} FROM range({split}, {rows})")
    source = interval(spark, tmp_path, *selects, kind=kind)
    before, damaged = {*tmp_path.rglob("*.parquet")}, []

    def verify_twice(*words: Any, **options: Any) -> Any:
        verification = table_format.verify_rows(*words, **options)
        assert kind != "parquet" or is_local(session)
        [path] = {*tmp_path.rglob("*.parquet")} - before
        pq.write_table(with_faults(pq.read_table(path, partitioning=None)), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        damaged.append(table_format.verify_rows(*words, **options))
        return verification

    for target in (delta_target, iceberg_target):
        monkeypatch.setattr(target, "verify_rows", verify_twice)
    done = load(tmp_path, source, is_iceberg=is_iceberg, verify=True, spark=session)
    assert done.verification is not None
    assert done.verification.is_clean, str(done.verification)
    assert [(each.records, each.extra, each.is_clean) for each in damaged] == [(rows, rows - 1, False)]


RESCUED_FAULTS = ('{"t":"2026-01-01"}', '{"t":"2026-01-01T00:00:00Z","other":1}', '{"t":7}', "no record")
"""What the rescue column has instead of a midnight."""


def test_faults_in_the_rescue_column_are_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen.create_table(str(tmp_path / "t"), "n int, t int")
    damaged = []

    def verify_twice(*words: Any, **options: Any) -> Any:
        verification = table_format.verify_rows(*words, **options)
        [path] = tmp_path.rglob("*.parquet")
        table = pq.read_table(path, partitioning=None).sort_by("n")
        texts = pa.array([*RESCUED_FAULTS, *table["_rescued"].to_pylist()[len(RESCUED_FAULTS) :]])
        pq.write_table(table.set_column(table.column_names.index("_rescued"), "_rescued", texts), path)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        damaged.append(table_format.verify_rows(*words, **options))
        return verification

    monkeypatch.setattr(delta_target, "verify_rows", verify_twice)
    rows = len(RESCUED_FAULTS) + 1
    source = spark.sql(f"SELECT CAST(id AS int) AS n, timestamp'2026-01-01 00:00:00Z' AS t FROM range({rows})")
    done = ingest(source.coalesce(1), str(tmp_path / "t"), evolve="freeze", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean, str(done.verification)
    assert [each.extra for each in damaged] == [len(RESCUED_FAULTS)]
