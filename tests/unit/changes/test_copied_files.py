"""A task copies files without marked rows, those of a partition together; Spark copies what Arrow cannot copy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen.changes.spark_changes import copy_files
from widen.files.data_reader import LocalScan
from widen.frames.parquet_writer import arrow_layout
from widen.log.log_store import LogStore
from widen.model.schema_json import to_json
from widen.model.types import LONG, STRING, Field, StructType
from widen.protocol.actions import Add, Metadata, Protocol
from widen.protocol.table_configuration import TableConfiguration

COLUMNS = StructType((Field("id", LONG), Field("name", STRING)))


def write(place: Path, path: str, columns: Mapping[str, pa.Array]) -> str:
    """Write a file, and return its add action for a task."""
    file = place / path
    file.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), file)
    day = path.partition("/")[0].removeprefix("day=")
    add = Add(path=path, partition_values={"day": day}, size=1, modification_time=1, data_change=True)
    return msgspec.json.encode(add).decode()


def copy(place: Path, files: Mapping[str, str], words: list[tuple[str, int, int]]) -> list[dict[str, object]]:
    """Run the task on files, by key, and on words, and return what it yields."""
    schema = StructType((*COLUMNS, Field("day", STRING)))
    metadata = Metadata(id="m", schema_string=to_json(schema), partition_columns=("day",), configuration={})
    store = LogStore(str(place))
    layout = arrow_layout(store, TableConfiguration(Protocol(1, 2), metadata), "job", "snappy")
    rows = [*((key, text, 0, 0) for key, text in files.items()), *((key, None, *rest) for key, *rest in words)]
    columns = zip(*rows, strict=True)
    types = (pa.string(), pa.string(), pa.int64(), pa.int64())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, names=["file", "text", "word", "mask"])
    scan = LocalScan(store, COLUMNS, "none", {})
    return [row for copied in copy_files(scan, layout, [batch]) for row in copied.to_pylist()]


def test_files_of_a_partition_become_one_without_the_marked_rows(tmp_path: Path) -> None:
    files = {
        "a": write(tmp_path, "day=1/a.parquet", {"id": pa.array([1, 2, 3], pa.int32())}),
        "b": write(tmp_path, "day=1/b.parquet", {"name": pa.array(["x", None]), "id": pa.array([4, 5])}),
        "c": write(tmp_path, "day=2/c.parquet", {"id": pa.array([*range(100)]), "name": pa.array(["y"] * 100)}),
    }
    first, second = copy(tmp_path, files, [("a", 0, 0b101), ("c", 0, -1), ("b", 0, 0b10), ("c", 1, 0b1)])
    assert (first["key"], second["key"]) == ("a", "c")
    assert pq.ParquetFile(tmp_path / str(first["path"])).read().to_pylist() == [
        {"id": 2, "name": None},
        {"id": 4, "name": "x"},
    ]
    assert str(second["path"]).startswith("job/day=2/")
    assert pq.ParquetFile(tmp_path / str(second["path"])).read()["id"].to_pylist() == [*range(65, 100)]
    assert msgspec.json.decode(str(second["stats"]))["numRecords"] == 35


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
    tmp_path: Path, columns: Mapping[str, pa.Array]
) -> None:
    files = {
        "a": write(tmp_path, "day=1/a.parquet", {"id": pa.array([1])}),
        "b": write(tmp_path, "day=1/b.parquet", columns),
        "c": write(tmp_path, "day=2/c.parquet", {"id": pa.array([2, 3])}),
    }
    copied = copy(tmp_path, files, [("c", 0, 0b1)])
    assert [row["key"] for row in copied if row["path"] is None] == ["a", "b"]
    (path,) = [str(row["path"]) for row in copied if row["path"] is not None]
    assert pq.ParquetFile(tmp_path / path).read().to_pylist() == [{"id": 3, "name": None}]
    assert sorted(file.name for file in (tmp_path / "job").rglob("*.parquet")) == [Path(path).name]
