"""The first time without a time zone, in a table whose protocol does not have the feature for it."""

from __future__ import annotations

import re
from datetime import datetime
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import widen
from support.command_line import run
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
    widen.Table(table).unset_properties(["widen.typeWidening"])  # which a load by the policy widen has set
    version = widen.Table(table).version
    with pytest.raises(FeatureRequired, match="timestampNtz") as refused:
        widen.ingest(tmp_path / "b.parquet", table, engine="local")
    assert widen.Table(table).version == version
    (command,) = re.findall("`widen (.*?)`", str(refused.value))
    assert run(*command.split()).exit_code == 0
    widen.ingest(tmp_path / "b.parquet", table, engine="local")
    assert TIME in [row["t"] for row in widen.Table(table).to_arrow().to_pylist()]


def test_the_feature_comes_with_the_first_such_column(tmp_path: Path) -> None:
    """A table that gets features when it needs them; type widening is not turned on, which more readers refuse."""
    place = str(tmp_path / "t")
    numbers = pa.array([1], pa.int32())
    widen.ingest(pa.table({"id": numbers}), place, engine="local")
    assert DeltaTable(place).protocol().min_reader_version == 1
    times = pa.array([TIME], pa.timestamp("us"))
    widen.ingest(pa.table({"id": numbers, "t": times}), place, engine="local", verify=True)
    assert widen.Table(place).protocol.reader_features == ("timestampNtz",)
    assert TIME in DeltaTable(place).to_pyarrow_table()["t"].to_pylist()
    assert TIME in import_module("polars").read_delta(place)["t"].to_list()
    assert {each.outcome.value for each in widen.Table(place).readers()} == {"reads"}
    widen.ingest(pa.table({"id": [2.5]}), place, engine="local")
    assert set(widen.Table(place).protocol.reader_features or ()) == {"timestampNtz", "typeWidening"}


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
