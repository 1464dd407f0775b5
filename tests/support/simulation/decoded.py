"""Log files that are decoded once for each content: a run reads the same file some ten times, and decoding it is most
of its time. Every reading still calls the store, which may fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from widen.log import checkpoint_reader
from widen.log.log_replay import FileActionBlock, FileActionReader, LogPiece


@contextmanager
def log_decoded_once() -> Iterator[None]:
    """Remember what the code under test makes of each file of the log while the block runs."""
    files: dict[bytes, pq.ParquetFile] = {}

    def parquet_file(source: pa.PythonFile, **settings: Any) -> pq.ParquetFile:
        data = source.read()
        if data not in files:
            files[data] = pq.ParquetFile(pa.BufferReader(data), **settings)
        return files[data]

    ensure_form, read_block = checkpoint_reader.ensure_form, FileActionReader.read
    blocks = remembered(lambda partitions, location, block: [read_block(FileActionReader(partitions, location), block)])
    patches = {
        "pq": SimpleNamespace(ParquetFile=parquet_file),
        "ensure_form": remembered(lambda *args: [ensure_form(*args)]),
        "_rows": remembered(checkpoint_reader._rows),
        "_add_batches": remembered(checkpoint_reader._add_batches),
    }

    def read(reader: FileActionReader, block: Sequence[LogPiece]) -> FileActionBlock:
        return blocks(reader._partitions, reader._location, tuple(block))[0]  # type: ignore[no-any-return]

    with mock.patch.multiple(checkpoint_reader, **patches), mock.patch.object(FileActionReader, "read", read):
        yield


def remembered(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its results kept: it must not depend on anything but its arguments."""
    results: dict[tuple[Any, ...], list[Any]] = {}

    def call(*args: Any) -> list[Any]:
        if args not in results:
            results[args] = list(read(*args))
        return results[args]

    return call
