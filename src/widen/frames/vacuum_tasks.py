"""A vacuum of a large table in an object store: the executors list and delete, each a range of the paths.

Source: Delta Spark's VACUUM
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise

import pyarrow as pa

from widen.log.local_files import FileEntry
from widen.log.log_store import LogStore, skip_folders
from widen.log.snapshot import open_snapshot
from widen.model.value_classes import dataclass
from widen.spark.errors import translate_spark_errors
from widen.spark.spark_types import SparkSession

LISTED_PER_TASK = 50_000
"""About the number of files that a task lists; with fewer live files than this, the driver lists."""

DELETED_PER_TASK = 5_000
"""The number of files that a task deletes; fewer are deleted by the driver."""

_COLUMNS = "path string, size long, modified long"
_ENTRIES = pa.schema([("path", pa.string()), ("size", pa.int64()), ("modified", pa.int64())])


@dataclass(frozen=True, slots=True)
class ExecutorVacuum:
    """Lists and deletes the files of a table."""

    spark: SparkSession
    store: LogStore

    def walk(self, skips: Callable[[str], bool]) -> Iterable[FileEntry]:
        """Return every file that is not in a folder to skip; see `LogStore.walk`.

        The live files tell how the paths are distributed.
        """
        live = sorted(self.store.plain(path) for path in open_snapshot(self.store).files()["path"].to_pylist())
        bounds = ["", *live[LISTED_PER_TASK::LISTED_PER_TASK], ""]
        if self.store.is_local or len(bounds) < 3:
            return self.store.walk(skips)
        ranges = list(pairwise(bounds))
        frame = self.spark.createDataFrame(ranges, "after string, last string").repartition(len(ranges))
        with translate_spark_errors():
            rows = frame.mapInArrow(partial(_list_ranges, self.store), _COLUMNS).collect()
        return skip_folders((FileEntry(*row) for row in rows), skips)

    def delete(self, paths: list[str]) -> None:
        """Delete files of the table; missing files are not an error."""
        tasks = len(paths) // DELETED_PER_TASK
        if self.store.is_local or tasks < 2:
            self.store.delete(paths)
            return
        frame = self.spark.createDataFrame([(path,) for path in paths], "path string").repartition(tasks)
        with translate_spark_errors():
            frame.mapInArrow(partial(_delete, self.store), "deleted long").collect()


def _list_ranges(store: LogStore, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for after, last in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            entries = list(store.list_range(after, last))
            columns = zip(*((entry.path, entry.size_bytes, entry.modified_ms) for entry in entries), strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _ENTRIES, strict=False)]
            if arrays:
                yield pa.RecordBatch.from_arrays(arrays, schema=_ENTRIES)


def _delete(store: LogStore, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        store.delete(batch.column(0).to_pylist())
        yield pa.RecordBatch.from_pydict({"deleted": pa.array([batch.num_rows], pa.int64())})
