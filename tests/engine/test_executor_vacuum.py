"""A vacuum whose listing and deleting run on the executors."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.log_server import BUCKET, s3_server
from widen.frames import vacuum_tasks
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.protocol.actions import Add
from widen.table import create_table


def test_executors_list_and_delete_ranges_of_the_paths(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuum_tasks, "LISTED_PER_TASK", 10)
    monkeypatch.setattr(vacuum_tasks, "DELETED_PER_TASK", 7)
    with s3_server() as options:
        place = f"s3://{BUCKET}/{tmp_path.name}"
        table = create_table(place, "id int", storage_options=options)
        store = LogStore(place, options)
        names = [f"{number:03d} é.parquet" for number in range(60)]
        for name in (*names, "_hidden/a", "zz/orphan"):
            store.put(name, b"1")
        live = [name.replace(" ", "%20") for name in names[::2]]
        adds = [Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True) for path in live]
        commit(store, table.snapshot, adds, "WRITE", {}).or_raise()
        time.sleep(1.1)
        assert table.refresh().vacuum(0, force=True, dry_run=True).files == (*names[1::2], "zz/orphan")
        done = table.vacuum(0, force=True, spark=spark)
        assert done.files == (*names[1::2], "zz/orphan")
        left = [entry.path for entry in store.list("") if not entry.path.startswith("_delta_log")]
        assert left == [*names[::2], "_hidden/a"]
