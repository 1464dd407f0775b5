"""Arrow's lists, maps and records, taken apart and put together again, for the proof.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from widen.files.arrow_types import count_up
from widen.verification.restored_values import ensure


def nulls_of(values: pa.Array) -> pa.Array | None:
    """Return which values are null; None if no value is."""
    return values.is_null() if values.null_count else None


def lengths_of(lists: pa.Array) -> pa.Array:
    """Return the number of items of lists or maps, 0 for nulls."""
    if pa.types.is_map(lists.type):
        lists = _as_lists(lists, lists.keys)
    return pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int64())


def entries_of(maps: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all maps, without those behind nulls."""
    return _as_lists(maps, maps.keys).flatten(), _as_lists(maps, maps.items).flatten()


def _as_lists(maps: pa.Array, items: pa.Array) -> pa.Array:
    # Arrow casts no maps that have null records with fields of a type that is not nullable, as Spark hands them over.
    # A slice of offsets cannot have a mask.
    offsets = pa.concat_arrays([maps.offsets, maps.offsets[:0]]) if maps.offsets.offset else maps.offsets
    return pa.ListArray.from_arrays(offsets, items, mask=nulls_of(maps))


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def replace_items(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Return lists with other items instead of their own."""
    return pa.ListArray.from_arrays(_offsets(lengths_of(lists)), items, mask=nulls_of(lists))


def replace_entries(maps: pa.Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Return maps with other entries instead of their own."""
    return new_maps(pc.if_else(maps.is_valid(), lengths_of(maps), pa.scalar(None, pa.int64())), keys, items)


def new_lists(lengths: pa.Array, items: pa.Array) -> pa.Array:
    """Return lists of some lengths, null where these are."""
    return pa.ListArray.from_arrays(_offsets(pc.fill_null(lengths, 0)), items, mask=nulls_of(lengths))


def new_maps(lengths: pa.Array, keys: pa.Array, items: pa.Array) -> pa.Array:
    """Return maps of some lengths, null where these are."""
    offsets = _offsets(pc.fill_null(lengths, 0))
    if lengths.null_count:
        is_null = pa.concat_arrays([lengths.is_null(), pa.array([False])])
        offsets = pc.if_else(is_null, pa.scalar(None, pa.int32()), offsets)
    return pa.MapArray.from_arrays(offsets, keys, items)


def filter_entries(maps: pa.Array, keys: pa.Array, items: pa.Array, is_kept: pa.Array) -> pa.Array:
    """Return maps with some of the given entries, which stand for their own."""
    lengths = pc.if_else(maps.is_valid(), sum_items(is_kept.cast(pa.int64()), maps), pa.scalar(None, pa.int64()))
    return new_maps(lengths, keys.filter(is_kept), items.filter(is_kept))


def sum_items(counts: pa.Array, lists: pa.Array) -> pa.Array:
    """Return the sum of the counts of the items of each list or map."""
    ends = pc.cumulative_sum(lengths_of(lists))
    totals = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(counts)])
    return pc.subtract(totals.take(ends), totals.take(pc.subtract(ends, lengths_of(lists))))


def common_lengths(first: pa.Array, second: pa.Array) -> pa.Array:
    """Return the lengths of pairs of lists, which must be equal if neither is null; null where both are null."""
    none = pa.scalar(None, pa.int64())
    one, other = (pc.if_else(each.is_valid(), lengths_of(each), none) for each in (first, second))
    ensure(pc.all(pc.equal(one, other), min_count=0).as_py())
    return pc.coalesce(one, other)


def expand_items(lists: pa.Array, items: pa.Array, lengths: pa.Array) -> pa.Array:
    """Return items, with nulls as the items of null lists."""
    wanted, own = pc.fill_null(lengths, 0), lengths_of(lists)
    if wanted.equals(own):
        return items
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(_offsets(wanted), count_up(pc.sum(wanted).as_py())))
    # A list has all the items that it needs, or no items.
    is_own = lists.is_valid().take(owners)
    place = pc.subtract(pc.cumulative_sum(is_own.cast(pa.int64())), 1)
    return items.take(pc.if_else(is_own, place, pa.scalar(None, pa.int64())))
