"""The files of a snapshot, as the metadata of its table has them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField

from support.iceberg_files import append, data_file, embedded_catalog, field, write_file
from widen.iceberg import snapshots as snapshot_history
from widen.iceberg.snapshots import list_snapshot_files

SCHEMA = Schema(NestedField(1, "day", DateType(), False))
BY_DAY = PartitionSpec(PartitionField(1, 1000, DayTransform(), "d"), PartitionField(1, 1001, IdentityTransform(), "i"))


def test_partitions_may_be_days_that_python_has_no_date_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = embedded_catalog(tmp_path).create_table("ns.old", SCHEMA, partition_spec=BY_DAY)
    path = write_file(table, [field("day", pa.date32(), 1)], [{"day": None}])
    append(table, data_file(path, 1, partition=Record(0, 0)))
    table.refresh()

    def partitions() -> list[str]:
        return [
            partition for _, partition, *_ in list_snapshot_files(table.metadata, table.io, table.current_snapshot())
        ]

    assert partitions() == ["d=1970-01-01/i=1970-01-01"]
    # PyIceberg does not commit such a file, but Iceberg for Spark does.
    old = data_file(path, 1, partition=Record(-733578, -733578))
    old.spec_id = table.spec().spec_id
    (entry,) = snapshot_history.live_entries(table.metadata, table.io, table.current_snapshot())
    entry.data_file = old
    monkeypatch.setattr(snapshot_history, "live_entries", lambda *_: [entry])
    assert partitions() == ["d=-733578/i=-733578"]
