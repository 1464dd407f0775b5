"""The loop that copies files: what a failed copy leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from widen.changes.copy_files import CopyGroup, FileCopier
from widen.errors import CorruptFile
from widen.files.data_writer import PartFile
from widen.log.log_store import LogStore


class Writer:
    """Writes a file of rows without their values."""

    def __init__(self, store: LogStore, folder: str) -> None:
        self.store, self.path, self.rows = store, f"{folder}/{uuid4().hex}", 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += len(batch)

    def close(self) -> list[PartFile]:
        self.store.put(self.path, b"rows")
        return [PartFile(self.path, self.rows, "")]

    def discard(self) -> None:
        self.store.delete([self.path])


def test_a_failed_copy_leaves_the_files_of_another_run_of_its_task(tmp_path: Path) -> None:
    store, fails = LogStore(str(tmp_path)), False

    def read(file: str) -> Iterator[pa.Table]:
        if fails and file == "b":
            raise CorruptFile(path=file, reason="it is gone", fix="Restore it.")
        yield pa.table({"n": [1, 2]})

    copier = FileCopier(store, read, lambda _, folder: Writer(store, folder), str, len)
    group = CopyGroup("job", ["a", "b"])
    done = copier.copy(group)
    assert [part.size_bytes for part in done] == [2, 2]
    fails = True
    with pytest.raises(CorruptFile):
        copier.copy(group)
    assert {entry.path for entry in store.list("job")} == {part.path for part in done}
