"""The rewrite of all old files to the current types, while other writers continue.

Every batch of files is one commit. A batch that loses a race against another commit is rewritten from its files that
are left, in smaller batches; earlier batches stay committed.

Source: PROTOCOL.md#writer-requirements-for-type-widening (rewriting files as necessary)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Conflicted, StagedFiles, after_commit, commit
from widen.protocol.type_changes import strip_type_changes
from widen.spark.maintain.rewrite_files import PARAMETERS, REWRITE, rewrite_files
from widen.spark.parquet.old_type_files import OldFile, find_old_files
from widen.spark.spark_types import SparkSession

BATCH_BYTES = 64 * 2**30
"""The most bytes of old files that one commit replaces."""

MOST_CONFLICTS = 10
"""The number of conflicts in a row after which the last one is reported."""


@dataclass
class OldFileRewrite:
    """The rewrite of one table, with its progress.

    Args:
        session: Returns the session; called only to rewrite files, or to read very many footers.
        batch_bytes: The most bytes of old files that one commit replaces.
        files: The number of files rewritten so far.
    """

    store: LogStore
    session: Callable[[], SparkSession]
    batch_bytes: int = BATCH_BYTES
    files: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self._version: int | None = None
        self._types: object = None
        self._current: set[str] = set()
        self._old: dict[str, OldFile] = {}

    def run(self) -> Snapshot:
        """Rewrite every old file, and return a version without old files, which was the latest when it was read.

        The footer of a file is read once, even over several calls, as long as the types of the table stay the same.

        Raises:
            UnsupportedTypeChange: the schema records a type change that the protocol does not list.
            UnsupportedFeatureForWrite: the table has a feature that Widen does not support for writing.
            ContentionError: too many commits in a row had conflicts, or the outcome of a commit is unknown.
            PostCommitFailed: files were rewritten, but the table cannot be read for others.
        """
        conflicts = 0
        while True:
            with nullcontext() if self._version is None else after_commit(self.store.location, self._version):
                snapshot = open_snapshot(self.store)
                pending = self._find_old_files(snapshot)
            if not pending.num_rows:
                return snapshot
            conflict = self._rewrite(snapshot, _first_batch(pending, self.batch_bytes >> conflicts))
            conflicts = conflicts + 1 if conflict else 0
            if conflict is not None and conflicts == MOST_CONFLICTS:
                conflict.or_raise()

    def _find_old_files(self, snapshot: Snapshot) -> pa.Table:
        """Return the old files of a version, sorted by partition."""
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
        self._version = outcome.or_raise().version
        self.files += len(rewrite.removes)
        self.size_bytes += rewrite.metrics["numRemovedBytes"]
        self._current.update(add.path for add in rewrite.adds)
        return None


def _first_batch(files: pa.Table, size_bytes: int) -> pa.Table:
    """Return as many files from the start as fit into a number of bytes, but at least one."""
    total, count = 0, 0
    for size in files["size_bytes"].to_pylist():
        total += size
        if count and total > size_bytes:
            break
        count += 1
    return files.slice(0, count)
