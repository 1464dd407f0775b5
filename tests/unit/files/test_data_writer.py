"""Part files say nothing of columns with NaN, which Arrow's statistics leave out and Spark orders above all numbers."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen.errors import StorageError
from widen.files.data_writer import PartFile, PartSink, PartWriter, describe_columns
from widen.log.local_files import LocalFiles
from widen.log.log_store import LogStore

NAN = float("nan")
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "a.b": pa.float64(),
        "a": pa.struct({"b": pa.float32(), "n": pa.int32()}),
        "list": pa.list_(pa.float64()),
        "map": pa.map_(pa.string(), pa.float64()),
    }
)
LEAVES = frozenset({("id",), ("a.b",), ("a", "b"), ("a", "n")})


def write(folder: Path, *batches: pa.RecordBatch) -> list[PartFile]:
    sink = PartSink(LogStore(str(folder)), "job", "snappy", describe_columns(LEAVES), file_bytes=2**30)
    writer = PartWriter(sink, batches[0].schema)
    for batch in batches:
        writer.write(batch)
        writer._write_group()
    return writer.close()


def rows(dotted: float | None, nested: float | None = 1.5) -> pa.RecordBatch:
    values = {"id": 1, "a.b": dotted, "a": {"b": nested, "n": 2}, "list": [NAN], "map": [("k", NAN)]}
    return pa.RecordBatch.from_pylist([values, {**values, "a": None}], schema=SCHEMA)


def bounds(part: PartFile) -> dict[str, object]:
    return json.loads(part.stats)["maxValues"]


def test_files_without_nan_have_bounds_of_every_column(tmp_path: Path) -> None:
    (part,) = write(tmp_path, rows(2.5), rows(None))
    assert bounds(part) == {"id": 1, "a.b": 2.5, "a": {"b": 1.5, "n": 2}}


@pytest.mark.parametrize(("dotted", "nested"), [(NAN, 1.5), (1.5, NAN), (NAN, NAN)])
def test_columns_with_nan_have_no_statistics_in_the_file_either(tmp_path: Path, dotted: float, nested: float) -> None:
    (part,) = write(tmp_path, rows(dotted, nested))
    # Parquet calls both floating-point columns a.b, so they share their fate.
    assert bounds(part) == {"id": 1, "a": {"n": 2}}
    group = pq.read_metadata(tmp_path / part.path).row_group(0)
    columns = {group.column(at).path_in_schema: group.column(at).statistics for at in range(group.num_columns)}
    assert [name for name, statistics in columns.items() if statistics is None] == ["a.b"]
    assert columns["id"].max == 1
    assert part.counts.split()[1:] == ["2", "-", "-", "1", "2", "2", "2"]  # the other counts are kept


def test_rows_with_the_first_nan_go_to_the_next_file(tmp_path: Path) -> None:
    parts = write(tmp_path, rows(1.5), rows(NAN), rows(2.5))
    assert [bounds(part).get("a.b") for part in parts] == [1.5, None]
    assert [json.loads(part.stats)["numRecords"] for part in parts] == [2, 4]


def test_a_file_of_nothing_but_nan(tmp_path: Path) -> None:
    (part,) = write(tmp_path, pa.RecordBatch.from_pydict({"f": [NAN]}, schema=pa.schema({"f": pa.float64()})))
    assert "maxValues" not in json.loads(part.stats) or bounds(part) == {}
    assert pq.read_metadata(tmp_path / part.path).row_group(0).column(0).statistics is None


@pytest.mark.parametrize("finished", [0, 1])
def test_on_a_full_disk_the_files_are_deleted_and_the_error_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: int
) -> None:
    sink = PartSink(LogStore(str(tmp_path)), "job", "snappy", describe_columns(LEAVES), file_bytes=1)
    writer = PartWriter(sink, SCHEMA)
    for _ in range(finished):
        writer.write(rows(1.5))
    assert len([*tmp_path.rglob("*.parquet")]) == finished
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(LocalFiles, "create", lambda *_: full)
        with pytest.raises(OSError, match="No space") as refused:
            writer.write(rows(1.5))
        writer.discard()
    assert refused.value.errno == errno.ENOSPC
    assert [*tmp_path.rglob("*.parquet")] == []


def test_a_file_whose_close_fails_does_not_hide_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(io.BytesIO):
        def close(self) -> None:
            if not self.closed:
                super().close()
                raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(LocalFiles, "create", lambda *_: Failing())
    writer = PartWriter(PartSink(LogStore(str(tmp_path)), "job", "snappy", describe_columns(LEAVES)), SCHEMA)
    writer.write(rows(1.5))
    with pytest.raises(OSError, match="Input/output error"):
        writer.close()
    writer.discard()


def test_files_that_cannot_be_deleted_do_not_hide_why_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StorageError(location="job", reason="no permission", fix="Ask for it.")

    sink = PartSink(LogStore(str(tmp_path)), "job", "snappy", describe_columns(LEAVES), file_bytes=1)
    writer = PartWriter(sink, SCHEMA)
    writer.write(rows(1.5))
    monkeypatch.setattr(LocalFiles, "delete", refuse)
    writer.discard()
