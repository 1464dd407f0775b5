"""Copies of Delta files without some rows: those of a partition together; Spark copies what Arrow cannot copy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import widen
from widen.changes.copy_files import CopyGroup
from widen.changes.delta_copies import DeltaCopies
from widen.files.data_reader import RowSlice
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Add
from widen.spark.engine import Engine, LocalSession, Unsupported

HERE: Any = LocalSession(Engine.LOCAL, pytest.fail)


def write(place: Path, path: str, columns: Mapping[str, pa.Array], gone: list[int]) -> RowSlice:
    """Write a file, and return its rows without those at some positions."""
    file = place / path
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), file)
    day = path.partition("/")[0].removeprefix("day=")
    add = Add(path=path, partition_values={"day": day}, size=1, modification_time=1, data_change=True)
    return RowSlice(add, marked=BitMap64(gone))


@pytest.fixture
def copies(tmp_path: Path) -> DeltaCopies:
    widen.create_table(str(tmp_path), "id bigint, name string, day string", partition_by=["day"])
    return DeltaCopies(lambda: HERE, open_snapshot(LogStore(str(tmp_path))))


def test_files_of_a_partition_become_one_without_the_marked_rows(tmp_path: Path, copies: DeltaCopies) -> None:
    files = [
        write(tmp_path, "day=1/a.parquet", {"id": pa.array([1, 2, 3], pa.int32())}, [0, 2]),
        write(
            tmp_path, "day=2/c.parquet", {"id": pa.array([*range(100)]), "name": pa.array(["y"] * 100)}, [*range(65)]
        ),
        write(tmp_path, "day=1/b.parquet", {"name": pa.array(["x", None]), "id": pa.array([4, 5])}, [1]),
    ]
    (found,) = copies.copy([CopyGroup("job", files)])
    assert not isinstance(found, Unsupported)
    first, second = found
    assert pq.ParquetFile(tmp_path / first.path).read().to_pylist() == [
        {"id": 2, "name": None},
        {"id": 4, "name": "x"},
    ]
    assert (first.partition_values, second.partition_values) == ({"day": "1"}, {"day": "2"})
    assert second.path.startswith("job/day=2/")
    assert pq.ParquetFile(tmp_path / second.path).read()["id"].to_pylist() == [*range(65, 100)]
    assert msgspec.json.decode(str(second.stats))["numRecords"] == 35


@pytest.mark.parametrize(
    "columns",
    [
        {"ID": pa.array([7]), "name": pa.array(["z"])},
        {"id": pa.array(["7"]), "name": pa.array(["z"])},
        {"id": pa.array([7]), "name": pa.array(["z"]).dictionary_encode()},
    ],
    ids=["other spelling", "other type", "other text"],
)
def test_files_that_arrow_does_not_read_exactly_are_left_to_spark(
    tmp_path: Path, copies: DeltaCopies, columns: Mapping[str, pa.Array]
) -> None:
    odd = [
        write(tmp_path, "day=1/a.parquet", {"id": pa.array([1])}, []),
        write(tmp_path, "day=1/b.parquet", columns, []),
    ]
    plain = [write(tmp_path, "day=2/c.parquet", {"id": pa.array([2, 3])}, [0])]
    refused, copied = copies.copy([CopyGroup("first", odd), CopyGroup("second", plain)])
    assert isinstance(refused, Unsupported)
    assert not isinstance(copied, Unsupported)
    assert pq.ParquetFile(tmp_path / copied[0].path).read().to_pylist() == [{"id": 3, "name": None}]
    assert [*(tmp_path / "first").rglob("*.parquet")] == []
