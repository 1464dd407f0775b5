"""Footers of Parquet files that may be damaged: PyArrow is not asked what would end the process.

PyArrow does not expect that Arrow's C++ library raises where it returns the metadata of a column chunk, or its
statistics, and the process ends. The library makes the same checks when it begins to read rows, where PyArrow catches
them. This is a module because logs, tables and sources all need it.

Source: the Parquet format
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    import pyarrow.parquet as pq
else:
    pq = import_lazily("pyarrow.parquet")


class _NoBytes(io.RawIOBase):
    """A file that is as long as any, but has no bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._at, self.is_read = 0, False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: _SIZE}[whence]
        return self._at

    def read(self, _: int = -1) -> bytes:
        self.is_read = True
        return b""


_SIZE = 2**62


def ensure_chunks_readable(metadata: pq.FileMetaData) -> None:
    """Check that PyArrow can be asked for the metadata of each column chunk.

    Raises:
        pa.ArrowException: the footer is damaged; or an OSError, which Arrow also raises then.
    """
    if not (metadata.num_row_groups and metadata.num_columns):
        return
    source = _NoBytes()
    file = pq.ParquetFile(pa.PythonFile(source, mode="r"), metadata=metadata, pre_buffer=True)
    try:
        next(iter(file.iter_batches(1, list(range(metadata.num_row_groups)), use_threads=False)), None)
    except (pa.ArrowException, OSError):
        # Arrow reads bytes only after it has looked at all chunks.
        if not source.is_read:
            raise


def find_damaged_footers(footers: Sequence[pq.FileMetaData]) -> dict[int, Exception]:
    """Return why PyArrow cannot be asked for the column chunks of some files, by their places.

    Neighbours with the same schema are checked together, so that many small files take little longer than one.
    """
    groups: list[tuple[pq.FileMetaData, list[int]]] = []
    for place, footer in enumerate(footers):
        try:
            groups[-1][0].append_row_groups(footer)
            groups[-1][1].append(place)
        except (IndexError, RuntimeError):  # it has another schema
            groups.append((pickle.loads(pickle.dumps(footer)), [place]))
    damaged: dict[int, Exception] = {}
    for whole, places in groups:
        if _find_fault(whole) is not None:
            faults = ((place, _find_fault(footers[place])) for place in places)
            damaged |= {place: fault for place, fault in faults if fault is not None}
    return damaged


def _find_fault(metadata: pq.FileMetaData) -> Exception | None:
    try:
        ensure_chunks_readable(metadata)
    except (pa.ArrowException, OSError) as error:
        return error
    return None


def read_statistics(metadata: pq.FileMetaData, group: int, index: int) -> pq.Statistics | None:
    """Return the statistics of a column chunk; None if the footer has no statistics.

    Raises:
        pa.ArrowException: the footer is damaged.
    """
    chunk, stored = metadata.row_group(group).column(index), metadata.schema.column(index).physical_type
    if chunk.physical_type != stored:
        raise pa.ArrowInvalid(f"a column chunk of {chunk.path_in_schema} is {chunk.physical_type}, not {stored}")
    return chunk.statistics
