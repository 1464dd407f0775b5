"""Old files: those that hold a type from before a widening, found by looking into the footers of all others too.

Few footers are read here, by threads; many of them by the executors, which tell of the old files only.

Source: PROTOCOL.md#writer-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa

from widen import errors
from widen.errors import CorruptFile, StorageError
from widen.log.snapshot import Snapshot
from widen.log.store import LogStore
from widen.model.path import Path
from widen.model.type import StructType
from widen.protocol.mapping import mapping_mode
from widen.spark.failure import translated
from widen.spark.physical import old_types
from widen.spark.schema import SparkSession

HERE_FILES = 256
"""Up to how many footers are read in this process."""

_THREADS = 16
_COLUMNS = "found string, failed string"


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that holds an old type.

    Args:
        path: As in the log.
        size_bytes: Its length.
        rows: How many rows it has, deleted ones included.
        types: The old type of each leaf by its logical path, in Spark SQL.
    """

    path: str
    size_bytes: int
    rows: int
    types: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class OldType:
    """How much of a column still stands in an old type.

    Args:
        path: The logical path of the leaf.
        type: The old type in Spark SQL.
        files: In how many files.
        size_bytes: Their size.
    """

    path: Path
    type: str
    files: int
    size_bytes: int


def find_old_files(session: Callable[[], SparkSession], snapshot: Snapshot, files: pa.Table) -> list[OldFile]:
    """Return those of some files that hold an old type, in the order of the list.

    Args:
        session: Gives the session to work in; only asked where the files are many.
        snapshot: The version whose types are compared.
        files: Rows of its list of files.

    Raises:
        CorruptFile: a file is no Parquet.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    store, mode = snapshot.store, mapping_mode(snapshot.properties, snapshot.protocol)
    look = partial(_look, store, snapshot.schema, mode)
    listed = list(zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True))
    if len(listed) <= HERE_FILES:
        return _opened(_looked(look, listed))
    spark = session()
    with translated():
        parts = min(len(listed) // 64 + 1, 400)
        frame = spark.createDataFrame(pa.table(files.select(["path", "size_bytes"]))).repartition(parts)
        rows = frame.mapInArrow(partial(_look_at_batches, look), _COLUMNS).collect()
    order = {path: number for number, (path, _) in enumerate(listed)}
    return sorted(_opened((row.found, row.failed) for row in rows), key=lambda file: order[file.path])


def summarise(files: Iterable[OldFile]) -> list[OldType]:
    """Return how much of each column stands in each old type, in the order of paths and types."""
    found: dict[tuple[Path, str], tuple[int, int]] = {}
    for file in files:
        for key in file.types.items():
            count, size_bytes = found.get(key, (0, 0))
            found[key] = (count + 1, size_bytes + file.size_bytes)
    return [OldType(*key, *found[key]) for key in sorted(found)]


class _Found(msgspec.Struct, frozen=True):
    path: str
    size_bytes: int
    rows: int
    types: list[tuple[tuple[str, ...], str]]


class _Failed(msgspec.Struct, frozen=True):
    kind: str
    fields: dict[str, str]


_Told = tuple[str | None, str | None]


def _look(store: LogStore, schema: StructType, mode: str, path: str, size_bytes: int) -> _Told:
    """Return what is to be told of a file as JSON, or the error; two nulls if it holds no old type."""
    try:
        rows, types = old_types(store, schema, mode, store.plain(path))
    except (CorruptFile, StorageError) as error:
        fields = {key: str(value) for key, value in error.fields.items()}
        return None, msgspec.json.encode(_Failed(type(error).__name__, fields)).decode()
    if not types:
        return None, None
    found = _Found(path, size_bytes, rows, [(leaf, old.sql) for leaf, old in types.items()])
    return msgspec.json.encode(found).decode(), None


def _looked(look: Callable[[str, int], _Told], listed: Sequence[tuple[str, int]]) -> list[_Told]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(lambda file: look(*file), listed))


def _look_at_batches(
    look: Callable[[str, int], _Told], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        told = [one for one in _looked(look, list(zip(*batch.to_pydict().values(), strict=True))) if any(one)]
        columns = [pa.array([one[at] for one in told], pa.string()) for at in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, names=["found", "failed"])


def _opened(told: Iterable[_Told]) -> list[OldFile]:
    """Return the files that were told of.

    Raises:
        CorruptFile: one could not be read.
        StorageError: likewise.
    """
    files = []
    for found, failed in told:
        if failed is not None:
            error = msgspec.json.decode(failed, type=_Failed)
            raise getattr(errors, error.kind)(**error.fields)
        if found is not None:
            file = msgspec.json.decode(found, type=_Found)
            files.append(OldFile(file.path, file.size_bytes, file.rows, dict(file.types)))
    return files
