"""Looks for files whose statistics say something of a column, and decodes only those whose texts may.

To decode the statistics of a million files takes seconds, to look for a text in them a fraction of one. A key of JSON
cannot occur inside a text of JSON, where its quotes are escaped. So a column has both bounds and a count in each of
some files if its key is there three times as often as files, none of its values is null, and no other column has the
name.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec
import pyarrow as pa

from widen.log.file_list import decode_statistics
from widen.model.column_path import Path, fields
from widen.model.lazy_module import import_lazily
from widen.model.types import StructType
from widen.protocol.file_statistics import MAX_VALUES, MIN_VALUES, NULL_COUNT, NUM_RECORDS

pc = import_lazily("pyarrow.compute")

_OBJECTS = 3
"""A column with bounds is in the minima, the maxima and the counts of nulls."""
_FEW_TEXTS = 1_000
_END = 2**31 - 1


class StatisticsTexts:
    """The statistics of the files of a version, part by part.

    Args:
        files: The files.
        schema: The schema with the names that files have.
    """

    def __init__(self, files: pa.Table, schema: StructType) -> None:
        self._names = Counter(path[-1] for path, _ in fields(schema))
        self._parts = [_FilesPart(batch) for batch in files.to_batches()]

    def unbounded(self, physical: Path) -> Iterator[pa.RecordBatch]:
        """Yield files that may lack a bound of a column, or have NaN; all others have both bounds and no NaN."""
        key = self._unique_key(physical)
        for part in self._parts:
            if key is None or part.has_nan_text or not part.has_bounds(key):
                yield part.rows

    def outside_centuries(self, physical: Path) -> Iterator[pa.RecordBatch]:
        """Yield files that may have a timestamp before 1900 or after 2099; all others have none."""
        key = self._unique_key(physical)
        for part in self._parts:
            if key is None:
                yield part.rows
                continue
            modern, bounds = 0, 2 * part.rows.num_rows
            for century in ("20", "19"):
                modern += part.count(f'{key}"{century}') if modern < bounds else 0
            if modern != bounds:
                yield part.rows

    def counts_no_null(self, physical: Path) -> bool:
        """Return whether every file counts the nulls of a column, and has none."""
        texts = [part.rows["stats"] if NULL_COUNT in self._names else part.null_counts for part in self._parts]
        statistics = decode_any(pc.unique(pa.chunked_array(texts, pa.string())), physical)
        counts = None if statistics is None else pc.struct_field(statistics, [NULL_COUNT, *physical])
        return counts is not None and counts.null_count == 0 and not pc.sum(counts).as_py()

    def parts(self) -> Iterator[pa.RecordBatch]:
        """Yield all files."""
        return (part.rows for part in self._parts)

    def _unique_key(self, physical: Path) -> str | None:
        name = physical[-1]
        is_unique = self._names[name] == 1 and name not in (NUM_RECORDS, MIN_VALUES, MAX_VALUES, NULL_COUNT)
        return f"{msgspec.json.encode(name).decode()}:" if is_unique else None


class _FilesPart:
    """Some files."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = rows

    @cached_property
    def _data(self) -> bytes:
        texts = self.rows["stats"]
        if texts.null_count or not len(texts):
            return b""  # has no key, so that the files are decoded
        _, offsets, data = texts.buffers()
        ends = pa.Array.from_buffers(pa.int32(), len(texts) + 1, [None, offsets], offset=texts.offset)
        start = ends[0].as_py()
        return bytes(data.slice(start, ends[-1].as_py() - start))

    def count(self, text: str) -> int:
        """Return how often the statistics have a text."""
        return self._data.count(text.encode())

    def has_bounds(self, key: str) -> bool:
        """Return whether every file has both bounds, and a count, of the only column with a key."""
        is_everywhere = self.count(key) == _OBJECTS * self.rows.num_rows
        return is_everywhere and not self._has_spaces and not self.count(f"{key}null")

    @cached_property
    def _has_spaces(self) -> bool:
        """Whether white space may stand before values."""
        return any(f'":{space}'.encode() in self._data for space in " \n\r\t")

    @cached_property
    def has_nan_text(self) -> bool:
        """Whether a bound, or a part of one, may be the text NaN."""
        return b'"NaN"' in self._data

    @cached_property
    def null_counts(self) -> pa.Array:
        """The distinct counts of nulls as statistics, or all statistics if these are not at the end of the texts."""
        texts, key = self.rows["stats"], f'"{NULL_COUNT}":{{'
        first = texts[0].as_py() or "" if len(texts) else ""
        counts = first[first.find(key) :]
        if counts.startswith(key) and self.count(counts) == len(texts):
            return pa.array([f"{{{counts}"], pa.string())
        places = pc.fill_null(pc.find_substring(texts, key), -1)
        longest = pc.max(pc.subtract(pc.binary_length(texts), places)).as_py()
        if longest is None or pc.min(places).as_py() < 0:
            return texts
        tails = pc.unique(pc.binary_slice(texts.cast(pa.binary()), -longest, _END))
        if len(tails) > _FEW_TEXTS:
            return texts
        starts = pc.find_substring(tails, key).to_pylist()
        distinct = {text[start:] for text, start in zip(tails.to_pylist(), starts, strict=True)}
        return pa.array([f"{{{each.decode()}" for each in distinct], pa.string())


def decode_any(texts: pa.Array, physical: Path) -> pa.StructArray | None:
    """Return the statistics of a column whose bounds are numbers or texts; None if Arrow does not decode them."""
    kinds: Mapping[str, pa.DataType] = {"number": pa.float64(), "text": pa.string()}
    return next((found for kind in kinds.values() if (found := try_decode(texts, physical, kind)) is not None), None)


def try_decode(texts: pa.Array, physical: Path, kind: pa.DataType) -> pa.StructArray | None:
    """Return the statistics of a column; None if Arrow does not decode them."""
    try:
        return decode_statistics(texts, {physical: kind})
    except pa.ArrowException:
        return None
