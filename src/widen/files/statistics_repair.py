"""Replaces bounds in the log that are not the exact values of a file by the bounds of its footer; rewrites no data.

Two writers leave such bounds behind. Delta Lake for Spark writes a float as a short text, which is exact only until the
column becomes double. deltalake writes a decimal as a double, which has about 16 digits. Readers that compare bounds
without a margin then skip files with matching rows. Both write a small decimal with an exponent, e.g. ``1E-8``, which
the Arrow dataset of deltalake takes for null.

Source: PROTOCOL.md#per-file-statistics; Delta Lake 4.4, deltalake 1.6 and DuckDB 1.5.5, which lose such rows
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.files.footers import open_data_file, read_bounds_here, read_files, read_footer
from widen.limits import DRIVER_FOOTERS
from widen.log.exact_bounds import are_inexact, have_exponents, lack_bounds, may_be_rounded
from widen.log.file_list import canonical_path, decode_statistics, to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, is_struct_path, leaves
from widen.model.types import BOOLEAN, DOUBLE, FLOAT, TIMESTAMP, DataType, DecimalType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.file_statistics import (
    MAX_EXACT_DIGITS,
    MAX_VALUES,
    MIN_VALUES,
    contradicts_footer,
    indexed_leaves,
    take_bounds,
)
from widen.protocol.type_widening import all_type_changes

if TYPE_CHECKING:
    from widen.spark.engine import Session

MOST_FILES = 100_000
"""The maximum number of files that one commit repairs."""

REPAIR = "REPAIR STATISTICS"
"""The operation name of a commit that replaces bounds."""


def doubtful_columns(snapshot: Snapshot) -> dict[Path, DataType]:
    """Return the columns whose bounds other readers may misread, by physical path.

    They are doubles that were floats, and decimals that a double does not hold or that may be written with an exponent.
    """
    schema, mode = snapshot.schema, snapshot.configuration.mapping
    were_floats = {path for path, change in all_type_changes(schema) if change.old == FLOAT}
    return {
        to_physical_path(schema, path, mode): leaf
        for path, leaf in leaves(schema)
        if is_struct_path(schema, path) and (path in were_floats if leaf == DOUBLE else _is_doubtful(leaf))
    }


def boolean_columns(snapshot: Snapshot) -> dict[Path, DataType]:
    """Return the boolean columns that have statistics, by physical path."""
    schema, mode = snapshot.schema, snapshot.configuration.mapping
    indexed = indexed_leaves(schema, snapshot.properties, snapshot.partition_columns)
    found = ((path, leaf) for path, leaf in leaves(schema) if leaf == BOOLEAN and path in indexed)
    return {to_physical_path(schema, path, mode): leaf for path, leaf in found}


def _is_doubtful(leaf: DataType) -> bool:
    return isinstance(leaf, DecimalType) and (leaf.precision > MAX_EXACT_DIGITS or leaf.scale >= EXPONENT_SCALE)


EXPONENT_SCALE = 5
"""From this scale on, some writers use an exponent: deltalake writes 0.00001 as 1e-5."""


@dataclass
class StatisticsRepair:
    """Finds the files of a table whose bounds in the log contradict their footers.

    Args:
        driver_files: The maximum number of files in an object store whose footers this process reads.
        adds_booleans: Whether to add the bounds of booleans, too.
    """

    session: Callable[[], Session]
    driver_files: int = DRIVER_FOOTERS
    adds_booleans: bool = False
    read: int = 0
    repaired: set[str] = field(default_factory=set)
    _checked: dict[tuple[str, str | None], str | None] = field(default_factory=dict)

    def find(self, snapshot: Snapshot) -> list[Add]:
        """Return the next files to add again, with the bounds of their footers; empty at the end.

        At most `MOST_FILES` files are returned. A footer is read once, however often this is called.
        """
        columns = {**doubtful_columns(snapshot), **(boolean_columns(snapshot) if self.adds_booleans else {})}
        changed: list[Add] = []
        if not columns:
            return changed
        adds = to_adds(doubtful_files(snapshot.files(), columns))
        for start in range(0, len(adds), MOST_FILES):
            part = adds[start : start + MOST_FILES]
            self._check(snapshot, [add for add in part if (add.path, add.stats) not in self._checked], columns)
            for add in part:
                stats = self._checked[add.path, add.stats]
                if stats != add.stats and len(changed) < MOST_FILES:
                    changed.append(msgspec.structs.replace(add, stats=stats))
            if len(changed) == MOST_FILES:
                break
        self.repaired |= {canonical_path(add.path) for add in changed}
        return changed

    def _check(self, snapshot: Snapshot, adds: list[Add], columns: Mapping[Path, DataType]) -> None:
        """Remember the statistics that some files should have."""
        paths = [snapshot.store.plain(add.path) for add in adds]
        self.read += len(paths)
        for add, exact in zip(adds, self._read_bounds(snapshot.store, frozenset(columns), paths), strict=True):
            stats = take_bounds(add.stats, exact, columns)
            self._checked[add.path, add.stats] = self._checked[add.path, stats] = stats

    def _read_bounds(self, store: LogStore, columns: frozenset[Path], paths: list[str]) -> list[str]:
        if store.is_local or len(paths) <= self.driver_files:  # executors take longer where reads do not wait
            return read_bounds_here(store, columns, paths)
        read = partial(read_footer, store, columns)
        return [footer.stats for footer in read_files(self.session, read, paths, self.driver_files)]


def contradicts(snapshot: Snapshot, files: pa.Table, columns: Mapping[Path, DataType]) -> bool:
    """Return whether the footer of a file has other bounds of some columns than the log; reads them one by one."""
    for add in to_adds(files):
        footer = read_footer(snapshot.store, frozenset(columns), snapshot.store.plain(add.path))
        if contradicts_footer(add.stats, footer.stats, columns):
            return True
    return False


def rounded_files(files: pa.Table, columns: Mapping[Path, DataType]) -> pa.Table:
    """Return the files with a bound that may be rounded: it is not a float, or has more digits than a double."""
    floats = [path for path, leaf in columns.items() if leaf == DOUBLE]
    return _choose(files, partial(are_inexact, floats=floats, decimals=_decimals(columns)))


def exponent_files(files: pa.Table, columns: Mapping[Path, DataType]) -> pa.Table:
    """Return the files with a decimal bound that is written with an exponent."""
    return _choose(files, partial(have_exponents, decimals=_decimals(columns)))


def doubtful_files(files: pa.Table, columns: Mapping[Path, DataType]) -> pa.Table:
    """Return the files whose footer may have another bound, or whose log has an exponent.

    The bound is not a float, is what a double is written as, or is missing for a boolean. All other files are exact.
    """
    floats, booleans = ([path for path, leaf in columns.items() if leaf == kind] for kind in (DOUBLE, BOOLEAN))
    decimals = _decimals(columns)

    def are_doubtful(rows: pa.RecordBatch) -> pa.BooleanArray:
        inexact = pc.or_(are_inexact(rows, floats), may_be_rounded(rows, decimals))
        return pc.or_(pc.or_(inexact, have_exponents(rows, decimals)), lack_bounds(rows, booleans))

    return _choose(files, are_doubtful)


def _decimals(columns: Mapping[Path, DataType]) -> dict[Path, int]:
    return {path: leaf.scale for path, leaf in columns.items() if isinstance(leaf, DecimalType)}


def _choose(files: pa.Table, choose: Callable[[pa.RecordBatch], pa.BooleanArray]) -> pa.Table:
    return pa.Table.from_batches([batch.filter(choose(batch)) for batch in files.to_batches()], files.schema)


# INT96 timestamps: many readers hold them as 64 bits of nanoseconds since 1970, so that other years wrap around.


NANOSECONDS = ("1677-09-22", "2262-04-11")
"""The texts of two timestamps: 64 bits of nanoseconds since 1970 hold every one between them."""


def far_timestamps(files: pa.Table, columns: Iterable[Path]) -> pa.Table:
    """Return the files with a timestamp that 64 bits of nanoseconds do not hold, by the bounds in the log."""
    kinds = dict.fromkeys(columns, pa.string())
    parts = [batch.filter(_is_far(batch, kinds)) for batch in files.to_batches()] if kinds else []
    return pa.Table.from_batches(parts, files.schema)


def _is_far(rows: pa.RecordBatch, kinds: Mapping[Path, pa.DataType]) -> pa.Array:
    try:
        statistics = decode_statistics(rows["stats"], kinds)
    except pa.ArrowException:  # statistics that Arrow does not decode say nothing
        return pa.repeat(False, rows.num_rows)
    mask = pa.repeat(False, rows.num_rows)
    for path in kinds:
        low, high = (pc.struct_field(statistics, [key, *path]) for key in (MIN_VALUES, MAX_VALUES))
        far = pc.or_kleene(pc.less(low, NANOSECONDS[0]), pc.greater(high, NANOSECONDS[1]))
        mask = pc.or_(mask, pc.fill_null(far, False))
    return mask


def with_int96(snapshot: Snapshot, files: pa.Table, columns: Iterable[Path]) -> pa.Table:
    """Return the files that have one of some columns as INT96; reads their footers one by one."""
    names = {".".join(path) for path in columns}
    keep = [_has_int96(snapshot, path, names) for path in files["path"].to_pylist()]
    return files.filter(pa.array(keep, pa.bool_()))


def _has_int96(snapshot: Snapshot, path: str, names: Collection[str]) -> bool:
    with open_data_file(snapshot.store, snapshot.store.plain(path)) as file:
        schema = pq.read_metadata(file).schema
    columns = map(schema.column, range(len(schema)))
    return any(column.path in names and column.physical_type == "INT96" for column in columns)


def timestamp_columns(snapshot: Snapshot) -> list[Path]:
    """Return the physical paths of the stored timestamp columns that have bounds."""
    schema, keys = snapshot.configuration.physical_schema, snapshot.partition_keys
    found = leaves(schema)
    return [path for path, leaf in found if leaf == TIMESTAMP and is_struct_path(schema, path) and path[0] not in keys]


def far_int96_files(snapshot: Snapshot) -> pa.Table:
    """Return the files of a version whose INT96 timestamps other readers wrap around."""
    columns, files = timestamp_columns(snapshot), snapshot.files()
    return with_int96(snapshot, far_timestamps(files, columns), columns)
