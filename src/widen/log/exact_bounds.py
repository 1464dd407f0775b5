"""Bounds of float columns that become double: made exact in the commit that widens them.

Delta Lake for Spark writes the bounds of a float as short decimal texts, e.g. ``0.1`` for 0.10000000149011612. As
bounds of a float they are exact. As bounds of a double they are not: readers that compare them without a margin then
skip a file for ``v > 0.1``, though the value is above 0.1. So the files are added again, without data changes, with
the bounds that their floats have as doubles. No file is read: the value of a float is the float nearest to its text.

The values of a partition column stand in the log only, as such texts. There a widening would change the values
themselves, so their texts become exact as well.

Source: PROTOCOL.md#per-file-statistics; Delta Lake for Spark and DuckDB's extension delta, which lose such rows
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa

from widen.limits import REPAIRED_FILES
from widen.log.file_list import canonical_path, decode_statistics, to_adds
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, leaves
from widen.model.lazy_module import import_lazily
from widen.model.types import DOUBLE, FLOAT
from widen.protocol.actions import Action, Add, Metadata, Remove
from widen.protocol.file_statistics import (
    MAX_EXACT_DIGITS,
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    change_bounds,
)
from widen.protocol.table_configuration import TableConfiguration

pc = import_lazily("pyarrow.compute")
_log = logging.getLogger(__name__)

NO_DECIMALS: Mapping[Path, int] = {}


def widened_floats(before: TableConfiguration, actions: Iterable[Action]) -> tuple[Path, ...]:
    """Return the physical paths of the columns that a commit widens from float to double."""
    metadata = next((action for action in actions if isinstance(action, Metadata)), None)
    if metadata is None or '"float"' not in before.metadata.schema_string:
        return ()
    after = dict(leaves(TableConfiguration(before.protocol, metadata).physical_schema))
    found = leaves(before.physical_schema)
    return tuple(path for path, leaf in found if leaf == FLOAT and after.get(path) == DOUBLE)


def exact_float_adds(base: Snapshot, paths: Collection[Path], actions: Iterable[Action]) -> list[Add]:
    """Return the files to add again with exact bounds and partition values of some columns.

    Too many files keep their bounds, with a warning: the commit must stay a small one. Partition values always change.

    Args:
        actions: What else the commit does; the files that it names are left out.
    """
    files, keys = base.files(), [path[0] for path in paths if len(path) == 1 and path[0] in base.partition_keys]
    stored = [path for path in paths if path[0] not in keys]
    chosen = _choose(files, partial(_with_inexact_bounds, floats=stored)) if stored else files.slice(0, 0)
    if chosen.num_rows > REPAIRED_FILES:
        _log.warning(
            "%s: the bounds of %d files in the log are not exact for %s, which other readers need to find every row. "
            "Run `widen rewrite %s --statistics`.",
            *(base.location, chosen.num_rows, ", ".join(".".join(path) for path in stored), base.location),
        )
        chosen = chosen.slice(0, 0)
    parts = _choose(files, partial(_with_inexact_keys, keys=keys)) if keys else files.slice(0, 0)
    adds = {add.path: add for add in (*to_adds(parts), *to_adds(chosen))}
    named = {canonical_path(action.path) for action in actions if isinstance(action, (Add, Remove))}
    return exact_floats((add for path, add in adds.items() if canonical_path(path) not in named), paths)


def _choose(files: pa.Table, choose: Callable[[pa.RecordBatch], pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(map(choose, files.to_batches()), files.schema)


def exact_floats(adds: Iterable[Add], paths: Collection[Path]) -> list[Add]:
    """Return the files whose bounds or partition values are not exact for some columns, each with exact ones.

    They are without data changes.
    """
    changed = []
    for add in adds:
        stats = change_bounds(add.stats, paths, _nearest_float)
        values = {key: _exact_text(text) if (key,) in paths else text for key, text in add.partition_values.items()}
        if (stats, values) != (add.stats, add.partition_values):
            exact = msgspec.structs.replace(add, stats=stats, partition_values=values, data_change=False)
            changed.append(exact)
    return changed


def _with_inexact_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> pa.RecordBatch:
    """Return the rows of a file list with a partition value that is not exactly a float."""
    mask = pa.repeat(False, rows.num_rows)
    for key in keys:
        texts = pc.map_lookup(rows["partition_values"], pa.scalar(key), "first").dictionary_encode("encode")
        inexact = [_exact_text(text) != text for text in texts.dictionary.to_pylist()]
        mask = pc.or_(mask, pa.array(inexact, pa.bool_()).take(texts.indices))
    return rows.filter(mask)


def _exact_text(text: str | None) -> str | None:
    """Return the text of the double that is equal to a float."""
    try:
        value = float(text or "")
    except ValueError:  # null, or a text that is not a number
        return text
    exact = _nearest_float(value)
    return text if exact == value or value != value else repr(exact)


def without_named(ours: Sequence[Action], theirs: Iterable[Action]) -> list[Action]:
    """Return our actions without the files added again that another commit has added or removed meanwhile.

    To add such a file again would bring back rows, or undo the change of the other commit.
    """
    named = {canonical_path(action.path) for action in theirs if isinstance(action, (Add, Remove))}
    removed = {canonical_path(action.path) for action in ours if isinstance(action, Remove)}
    return [
        action
        for action in ours
        if not isinstance(action, Add) or action.data_change or canonical_path(action.path) not in named - removed
    ]


def _with_inexact_bounds(rows: pa.RecordBatch, floats: Collection[Path]) -> pa.RecordBatch:
    return rows.filter(are_inexact(rows, floats))


def are_inexact(
    rows: pa.RecordBatch, floats: Collection[Path], decimals: Mapping[Path, int] = NO_DECIMALS
) -> pa.BooleanArray:
    """Return which rows of a file list have a bound that is not exactly a float, or a decimal longer than a double.

    Args:
        floats: The physical paths of columns with floats.
    """
    if not floats and not decimals:
        return pa.repeat(False, rows.num_rows)
    try:
        stats = decode_statistics(rows["stats"], dict.fromkeys((*floats, *decimals), pa.float64()))
    except pa.ArrowException:  # statistics that Arrow does not decode are looked at one by one
        return pa.repeat(True, rows.num_rows)
    mask = pa.repeat(False, rows.num_rows)
    for key in (MIN_VALUES, MAX_VALUES):
        for path in floats:
            bound = pc.struct_field(stats, [key, *path])
            nearest = pc.cast(pc.cast(bound, pa.float32(), safe=False), pa.float64())
            mask = pc.or_(mask, pc.fill_null(pc.not_equal(bound, nearest), False))
        for path, scale in decimals.items():
            mask = pc.or_(mask, _is_long(pc.struct_field(stats, [key, *path]), scale))
    return mask


def may_be_rounded(rows: pa.RecordBatch, decimals: Mapping[Path, int]) -> pa.BooleanArray:
    """Return which rows of a file list have a decimal bound that some double is written as, where digits may be lost.

    deltalake writes decimals as doubles. A text that no double is written as has all digits of its value: a double is
    written with the fewest digits that identify it, or rounded to the scale.

    Args:
        decimals: The scales of columns, by physical path.
    """
    long = are_inexact(rows, (), decimals)
    chosen = rows.filter(long)
    if not chosen.num_rows:
        return long
    mask = pa.repeat(False, chosen.num_rows)
    try:
        doubles = decode_statistics(chosen["stats"], dict.fromkeys(decimals, pa.float64()))
        exact = decode_statistics(chosen["stats"], {path: pa.decimal128(38, scale) for path, scale in decimals.items()})
        for path, scale in decimals.items():
            for key in (MIN_VALUES, MAX_VALUES):
                value, bound = (pc.struct_field(each, [key, *path]) for each in (doubles, exact))
                mask = pc.or_(mask, pc.and_(_is_long(value, scale), _is_written(value, bound, scale)))
    except pa.ArrowException:  # a bound has more digits than the column
        return long
    return pc.replace_with_mask(long, long, mask)


def _is_long(bound: pa.Array, scale: int) -> pa.Array:
    """Return which bounds deltalake may have rounded: it divides the digits by a power of ten, both as doubles."""
    least = 10.0 ** (MAX_EXACT_DIGITS - scale) if scale <= _EXACT_POWER else 5e-324
    return pc.fill_null(pc.greater_equal(pc.abs(bound), least), False)


_EXACT_POWER = 22
"""The greatest power of ten that is exact as a double."""


def _is_written(value: pa.Array, bound: pa.Array, scale: int) -> pa.Array:
    """Return whether doubles are written as bounds."""
    kind = pa.decimal256(76, scale)
    written = (pc.cast(pc.cast(value, pa.string()), kind), pc.cast(value, kind, safe=False))
    shortest, rounded = (pc.fill_null(pc.equal(each, pc.cast(bound, kind)), False) for each in written)
    return pc.or_(shortest, rounded)


def have_exponents(rows: pa.RecordBatch, decimals: Iterable[Path]) -> pa.BooleanArray:
    """Return which rows of a file list may have a decimal bound that is written with an exponent, e.g. ``1E-8``.

    deltalake and Delta Lake for Spark write such bounds. The Arrow dataset of deltalake takes them for null, and skips
    the file.
    """
    mask = pa.repeat(False, rows.num_rows)
    for path in decimals:
        name = re.escape(msgspec.json.encode(path[-1]).decode())
        found = pc.match_substring_regex(rows["stats"], f"{name}:-?[0-9.]+[eE]")
        mask = pc.or_(mask, pc.fill_null(found, False))
    return mask


def lack_bounds(rows: pa.RecordBatch, columns: Collection[Path]) -> pa.BooleanArray:
    """Return which rows of a file list have counts and values of a boolean, and not both of its bounds.

    A file from before the column was added has no counts of it, and no values.
    Delta Lake for Spark writes none. The Arrow dataset of deltalake takes them for null, and skips the file.
    """
    mask = pa.repeat(False, rows.num_rows)
    if not columns:
        return mask
    try:
        stats = decode_statistics(rows["stats"], dict.fromkeys(columns, pa.bool_()))
    except pa.ArrowException:  # statistics that Arrow does not decode are looked at one by one
        return pa.repeat(True, rows.num_rows)
    counts = pc.struct_field(stats, [NUM_RECORDS])
    for path in columns:
        low, high, nulls = (pc.struct_field(stats, [key, *path]) for key in (MIN_VALUES, MAX_VALUES, NULL_COUNT))
        has_values = pc.and_(pc.is_valid(counts), pc.fill_null(pc.not_equal(nulls, counts), False))
        mask = pc.or_(mask, pc.and_(has_values, pc.or_(pc.is_null(low), pc.is_null(high))))
    return mask


def _nearest_float(value: Any) -> Any:
    """Return the float nearest to a bound, as a double; anything that is not a finite number stays as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > _GREATEST:
        return value
    return struct.unpack("f", struct.pack("f", value))[0]


_GREATEST = 3.4028235e38
"""The text of the greatest float, which is slightly above its value."""
