from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from widen.data_source.batch_reader import parse_source_options
from widen.data_source.writer import (
    BatchWriter,
    StreamWriter,
    WritePlan,
    WrittenFiles,
    plan_write,
    write_partition,
)
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.schema_json import parse_type
from widen.model.types import StructType

ROWS = pa.RecordBatch.from_pydict({"a": [1, 2]})


def plan(table: Path) -> WritePlan:
    columns = parse_type("struct<a: bigint>")
    assert isinstance(columns, StructType)
    return plan_write(parse_source_options({"path": str(table)}), columns, is_overwrite=False)


def write(table: Path) -> tuple[BatchWriter, WrittenFiles]:
    chosen = plan(table)
    return BatchWriter(chosen), write_partition(chosen, [ROWS])


def data_files(table: Path) -> list[str]:
    return sorted(str(file.relative_to(table)) for file in table.rglob("*.parquet") if "_delta_log" not in file.parts)


def test_a_failed_job_leaves_no_file(tmp_path: Path) -> None:
    writer, written = write(tmp_path)
    assert len(data_files(tmp_path)) == 1
    writer.abort([written, None])
    assert data_files(tmp_path) == []


def test_files_stay_if_the_commit_may_have_been_made(tmp_path: Path) -> None:
    """Spark also aborts if the commit raised an error, or if its process died after the commit was visible."""
    writer, written = write(tmp_path)
    writer.commit([written])
    writer.abort([written])
    assert len(data_files(tmp_path)) == 1
    assert open_snapshot(LogStore(str(tmp_path))).files().num_rows == 1
    stream = StreamWriter(plan(tmp_path))
    stream.abort([written], 0)
    assert len(data_files(tmp_path)) == 1


def test_a_write_that_is_repeated_is_in_the_table_once(tmp_path: Path) -> None:
    columns = parse_type("struct<a: bigint>")
    assert isinstance(columns, StructType)

    def repeat(app_id: str, number: int, *, is_overwrite: bool = False) -> int:
        given = {"path": str(tmp_path), "txnAppId": app_id, "txnVersion": str(number)}
        chosen = plan_write(parse_source_options(given), columns, is_overwrite=is_overwrite)
        BatchWriter(chosen).commit([write_partition(chosen, [ROWS])])
        return open_snapshot(LogStore(str(tmp_path))).files().num_rows

    assert [repeat("nightly", number) for number in (0, 0, 1, 0)] == [1, 1, 2, 2]
    assert repeat("hourly", 0) == 3
    assert repeat("hourly", 0, is_overwrite=True) == 3
    assert repeat("hourly", 1, is_overwrite=True) == 1
    assert len(data_files(tmp_path)) == 4
