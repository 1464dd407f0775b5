"""Rows of partitioned tables, written in this process: their folders, texts and files."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.errors import NotNullViolated
from widen.files import data_writer
from widen.files.arrow_types import to_arrow
from widen.files.data_writer import PartitionedWriter, TableSink, to_partition_texts, to_partitioned_add
from widen.frames.parquet_writer import find_obstacle, table_sink
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.schema_json import parse_type
from widen.model.types import Field

MAPPED = {"delta.columnMapping.mode": "name"}


def open_sink(
    place: Path, schema: str, partition_by: list[str], properties: Mapping[str, str] | None = None
) -> TableSink:
    widen.create_table(place, schema, partition_by=partition_by, properties=properties or {})
    snapshot = open_snapshot(LogStore(str(place)))
    return table_sink(snapshot.store, snapshot.configuration, "job", "snappy")


@pytest.mark.parametrize(
    ("kind", "values", "texts"),
    [
        ("int", [-5, None], ["-5", None]),
        ("string", ["a/b", "", None], ["a/b", None, None]),
        ("boolean", [True, False], ["true", "false"]),
        ("date", [date(1, 1, 1), date(9999, 12, 31)], ["0001-01-01", "9999-12-31"]),
        ("decimal(10,2)", [Decimal("1.50"), Decimal("-0.01")], ["1.50", "-0.01"]),
        (
            "timestamp",
            [datetime(1, 1, 1, tzinfo=timezone.utc), datetime(2024, 5, 6, 7, 8, 10, 120_000, timezone.utc)],
            ["0001-01-01T00:00:00Z", "2024-05-06T07:08:10.12Z"],
        ),
        (
            "timestamp_ntz",
            [datetime(2024, 5, 6, 7, 8, 0), datetime(2024, 5, 6, 7, 8, 9, 1)],
            ["2024-05-06 07:08:00", "2024-05-06 07:08:09.000001"],
        ),
    ],
)
def test_partition_values_have_the_texts_of_spark(kind: str, values: list[Any], texts: list[str | None]) -> None:
    data_type = parse_type(kind)
    assert to_partition_texts(pa.array(values, to_arrow(data_type)), data_type).to_pylist() == texts


def test_each_row_goes_to_the_file_of_its_partition(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, "v int, p string, q int", ["p", "q"], MAPPED)
    writer = PartitionedWriter(sink)
    rows = [
        {"p": p, "q": q, "v": v, "more": 0} for v, (p, q) in enumerate([("a", 1), ("b", None), ("a", 1), (None, 1)])
    ]
    writer.write(pa.RecordBatch.from_pylist(rows))
    found = {}
    for part in writer.close():
        add = to_partitioned_add(sink.layout.split, part)
        stored = pq.read_table(tmp_path / part.path)
        assert stored.column_names == [sink.columns["v"].name] != ["v"]
        found[tuple(add.partition_values[sink.columns[name].name] for name in ("p", "q"))] = stored[0].to_pylist()
    assert found == {("a", "1"): [0, 2], ("b", None): [1], (None, "1"): [3]}


def test_many_partitions_end_their_files_when_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_writer, "ROW_GROUP_BYTES", 4_000)
    sink = open_sink(tmp_path, "v string, p int", ["p"])
    writer = PartitionedWriter(sink)
    for start in range(0, 2_000, 100):
        rows = [{"v": "x" * 20, "p": number % 200} for number in range(start, start + 100)]
        writer.write(pa.RecordBatch.from_pylist(rows))
        assert sum(each.waiting_bytes for each in writer._open.values()) < 4_000 + 100 * 40
    parts = writer.close()
    assert sum(pq.read_metadata(tmp_path / part.path).num_rows for part in parts) == 2_000
    assert len({part.partition for part in parts}) == 200


def test_what_is_written_is_deleted_on_failure(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, "v int not null, p string", ["p"])
    writer = PartitionedWriter(sink)
    writer.write(pa.RecordBatch.from_pylist([{"v": 1, "p": "a"}]))
    writer.close()
    with pytest.raises(NotNullViolated, match="v"):
        writer.write(
            pa.RecordBatch.from_pylist([{"v": None, "p": "a"}], schema=pa.schema({"v": pa.int32(), "p": pa.string()}))
        )
    writer.discard()
    assert not [*tmp_path.rglob("*.parquet")]


@pytest.mark.parametrize(
    ("schema", "partition_by", "properties", "obstacle"),
    [
        ("a int, p string", ["p"], MAPPED, None),
        ("a int", [], {"delta.constraints.c": "a > 0"}, "it has CHECK constraints"),
        ("a array<int>, p double", ["p"], {}, "p is a partition column of the type double"),
        ("a int, p decimal(20,9)", ["p"], {}, "p is a partition column of the type decimal(20,9)"),
        ("a struct<b: int not null>", [], {}, "a field inside of a must not be null"),
    ],
)
def test_what_only_spark_writes_is_known_before(
    tmp_path: Path, schema: str, partition_by: list[str], properties: Mapping[str, str], obstacle: str | None
) -> None:
    open_sink(tmp_path, schema, partition_by, properties)
    found = find_obstacle(open_snapshot(LogStore(str(tmp_path))).configuration)
    assert found == obstacle


def test_columns_that_a_batch_lacks_are_null(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, "v int, w string", [])
    assert isinstance(sink.columns["w"], Field)
    writer = sink.open(pa.schema([]))
    writer.write(pa.RecordBatch.from_pylist([{"v": 1}]))
    (part,) = writer.close()
    assert pq.read_table(tmp_path / part.path).to_pylist() == [{"v": 1, "w": None}]
