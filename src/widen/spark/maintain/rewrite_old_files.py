"""Renewal: old files are brought to the current types while others go on writing.

A batch of files is one commit. One that loses its race is written again from what is left of its files, in smaller
batches; what was won is kept.

Source: PROTOCOL.md#writer-requirements-for-type-widening (rewriting files as necessary)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, StagedFiles, commit
from widen.protocol.type_changes import strip_type_changes
from widen.spark.maintain.rewrite_files import PARAMETERS, REWRITE, rewrite_files
from widen.spark.parquet.old_file_search import find_old_files
from widen.spark.parquet.old_type_files import OldFile
from widen.spark.spark_types import SparkSession

BATCH_BYTES = 64 * 2**30
"""Up to how many bytes of old files one commit replaces."""

LOSSES = 10
"""After how many lost races in a row the last winner is reported."""


@dataclass
class OldFileRewrite:
    """The renewal of one table, and what it has come to so far.

    Args:
        store: Of the table.
        session: Gives the session to work in; only asked where files are rewritten, or very many looked at.
        batch_bytes: Up to how many bytes of old files one commit replaces.
        files: How many files were rewritten.
        size_bytes: Their size.
    """

    store: LogStore
    session: Callable[[], SparkSession]
    batch_bytes: int = BATCH_BYTES
    files: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self._types: object = None
        self._current: set[str] = set()
        self._old: dict[str, OldFile] = {}

    def run(self) -> Snapshot:
        """Rewrite every old file, and return a version in which none is left: the newest one when it was looked at.

        A file is looked at once, however often this is called, as long as the types of the table stay the same.

        Raises:
            UnsupportedTypeChange: the schema records a change that is not in the matrix.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: Spark could not finish a job.
            ContentionError: too many races were lost in a row, or nobody knows how one ended.
            StorageError: the store refused.
        """
        losses = 0
        while True:
            snapshot = open_snapshot(self.store)
            pending = self._look(snapshot)
            if not pending.num_rows:
                return snapshot
            lost = self._rewrite(snapshot, _first_batch(pending, self.batch_bytes >> losses))
            losses = losses + 1 if lost else 0
            if lost is not None and losses == LOSSES:
                lost.or_raise()

    def _look(self, snapshot: Snapshot) -> pa.Table:
        """Return the live files that are old, those of one partition beside each other."""
        types = strip_type_changes(snapshot.schema)
        if types != self._types:
            self._types, self._current, self._old = types, set(), {}
        files = snapshot.files()
        paths = files["path"].to_pylist()
        unknown = files.filter(pa.array([p not in self._current and p not in self._old for p in paths], pa.bool_()))
        self._old.update((file.path, file) for file in find_old_files(self.session, snapshot, unknown))
        self._current.update(path for path in unknown["path"].to_pylist() if path not in self._old)
        pending = files.filter(pa.array([path in self._old for path in paths], pa.bool_()))
        split = [sorted((k, v or "") for k, v in values or ()) for values in pending["partition_values"].to_pylist()]
        return pending.take(pa.array(sorted(range(pending.num_rows), key=split.__getitem__), pa.int64()))

    def _rewrite(self, snapshot: Snapshot, files: pa.Table) -> Conflicted | None:
        rows = sum(self._old[path].rows for path in files["path"].to_pylist())
        deleted = pc.sum(pc.struct_field(files["deletion_vector"], "cardinality")).as_py() or 0
        rewrite = rewrite_files(self.session(), snapshot, files, rows - deleted)
        with StagedFiles() as staged:
            staged.add_files(self.store, rewrite.adds)
            actions, numbers = rewrite.actions, rewrite.metrics
            outcome = commit(self.store, snapshot, actions, REWRITE, PARAMETERS, metrics=numbers, staged=staged)
        if isinstance(outcome, Conflicted):
            return outcome
        outcome.or_raise()
        self.files += len(rewrite.removes)
        self.size_bytes += rewrite.metrics["numRemovedBytes"]
        self._current.update(add.path for add in rewrite.adds)
        return None


def _first_batch(files: pa.Table, size_bytes: int) -> pa.Table:
    """Return the first file, and those after it as long as all together have not more bytes."""
    total, count = 0, 0
    for size in files["size_bytes"].to_pylist():
        total += size
        if count and total > size_bytes:
            break
        count += 1
    return files.slice(0, count)
