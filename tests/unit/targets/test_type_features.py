"""The first time without a time zone, in a table whose protocol does not have the feature for it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.errors import FeatureRequired
from widen.model.types import STRING, TIMESTAMP_NTZ

TIME = datetime(2024, 1, 2, 3, 4, 5, 678901)


@pytest.fixture(params=["widen", "split"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    nested = pa.array([{"t": TIME}], pa.struct([("t", pa.timestamp("us"))]))
    pq.write_table(
        pa.table({"id": [2], "t": pa.array([TIME], pa.timestamp("us")), "s": nested}), tmp_path / "b.parquet"
    )
    widen.ingest(tmp_path / "a.parquet", tmp_path / "t", engine="local", evolve=request.param)
    return str(tmp_path / "t")


def test_it_is_refused_with_ways_out(tmp_path: Path, table: str) -> None:
    with pytest.raises(FeatureRequired, match="timestampNtz") as refused:
        widen.ingest(tmp_path / "b.parquet", table, engine="local")
    assert "--enable-type-widening" in str(refused.value)
    assert widen.Table(table).version == 0


def test_the_feature_comes_with_the_commit_if_that_is_allowed(tmp_path: Path, table: str) -> None:
    plan = widen.plan(tmp_path / "b.parquet", table, engine="local", enable_type_widening=True)
    assert widen.Table(table).version == 0
    result = widen.ingest(
        tmp_path / "b.parquet", table, engine="local", enable_type_widening=True, verify=True, plan_hash=plan.hash
    )
    opened = widen.Table(table)
    assert result.version == opened.version == 1
    assert "timestampNtz" in (opened.snapshot.protocol.reader_features or ())
    assert [opened.schema.find("t").type, opened.schema.find("s").type.find("t").type] == [TIMESTAMP_NTZ] * 2
    assert TIME in [row["t"] for row in opened.to_arrow().to_pylist()]


def test_a_text_needs_no_feature(tmp_path: Path, table: str) -> None:
    widen.ingest(tmp_path / "b.parquet", table, engine="local", pins={"t": "text", "s.t": "text"})
    opened = widen.Table(table)
    assert opened.schema.find("t").type == STRING
    assert "2024-01-02T03:04:05.678901" in [row["t"] for row in opened.to_arrow().to_pylist()]
