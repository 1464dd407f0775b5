"""Other readers lose rows of promoted columns by comparing old values in their old type, not by the bounds.

So new manifests with bounds of the new type would not find the rows. Files in the new type do.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.expressions import GreaterThan

import widen
from support.iceberg_files import embedded_catalog
from widen.model.display import READERS_LOG


def test_a_promoted_float_is_found_once_its_file_is_rewritten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog, rows = embedded_catalog(tmp_path), pa.table({"v": pa.array([0.1], pa.float32())})
    catalog.create_table("ns.t", rows.schema).append(rows)
    table = widen.IcebergTable("ns.t", catalog=catalog)
    table.alter_column("v", type="double")
    lines = [record.getMessage() for record in caplog.records if record.name == READERS_LOG]
    assert [line.partition(": ")[2] for line in lines] == [
        "PyIceberg 0.12.0: reads → wrong: filters for a range (v: float became double)",
        "DuckDB, extension iceberg 1.5.5: reads → wrong: filters for a range (v: float became double)",
    ]
    for found in (0, 1):
        scan = catalog.load_table("ns.t").scan(row_filter=GreaterThan("v", 0.1))
        assert len(list(scan.plan_files())) == 1  # the bounds keep the file
        assert scan.to_arrow().num_rows == found
        table.rewrite()
