"""How the columns of a Parquet file are encoded: dictionaries where they make it smaller, pages, and bloom filters.

Arrow's default is a dictionary for every column, up to a size. A column of different values then has all of them twice
as large: once in the dictionary, and once as numbers that hardly compress. Spark's own writer gives such a dictionary
up after its first page. The first rows decide here as well, but before anything is written.

Source: the Parquet format, "Encodings"; PyIceberg: ``Table properties``
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from io import BytesIO
from math import log
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import InvalidOption
from widen.files.footers import leaf_paths
from widen.model.column_path import Path
from widen.model.value_classes import dataclass

_SAMPLE_ROWS = 20_000
"""The number of rows that decide, which is the number of rows of a page of Spark's writer."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How files are encoded; None stands for the default of Arrow.

    Args:
        row_group_bytes: A row group is written once it has this many bytes of Arrow data.
        blooms: The rate of wrong positives of the bloom filter of each column that has one.
    """

    level: int | None = None
    row_group_bytes: int | None = None
    page_bytes: int | None = None
    page_rows: int | None = None
    dictionary_bytes: int | None = None
    blooms: Mapping[Path, float] = field(default_factory=dict)
    bloom_bytes: int = 2**20

    def writer_options(self, rows: pa.Table) -> dict[str, Any]:
        """Return arguments of `pyarrow.parquet.ParquetWriter` for a file.

        Args:
            rows: The first rows of the file, in its schema.
        """
        blooms = {
            name: {"ndv": self._distinct(rows.num_rows, fpp), "fpp": fpp}
            for leaf, name in _stored_names(rows.schema).items()
            if (fpp := self.blooms.get(leaf)) is not None
        }
        return {
            "compression_level": self.level,
            "use_dictionary": _choose_dictionaries(rows),
            # Spark's readers skip pages by it; its own writer always has it.
            "write_page_index": True,
            "data_page_size": self.page_bytes,
            "max_rows_per_page": self.page_rows,
            "dictionary_pagesize_limit": self.dictionary_bytes,
            "bloom_filter_options": blooms or None,
        }

    def _distinct(self, rows: int, fpp: float) -> int:
        """Return the number of values that a bloom filter is made for: as many as its largest size allows."""
        # A block of 256 bits holds a value in 8 bits, one in each of its words.
        bits_for_each = -8 / log(1 - fpp ** (1 / 8))
        return max(1, min(rows, int(self.bloom_bytes * 8 / bits_for_each)))


PREFIX = "write.parquet."
LEVEL = f"{PREFIX}compression-level"
"""Table property: the level of the compression."""

_SIZES = {
    "row_group_bytes": f"{PREFIX}row-group-size-bytes",
    "page_bytes": f"{PREFIX}page-size-bytes",
    "page_rows": f"{PREFIX}page-row-limit",
    "dictionary_bytes": f"{PREFIX}dict-size-bytes",
    "bloom_bytes": f"{PREFIX}bloom-filter-max-bytes",
}
"""Table properties of Iceberg that are integers, by the field of `Encoding`."""

_BLOOM, _RATE = f"{PREFIX}bloom-filter-enabled.column.", f"{PREFIX}bloom-filter-fpp.column."
_DEFAULT_RATE = 0.01
_DEFAULT_LEVELS = {"zstd": 3}
"""The level that Iceberg's own writers use; Arrow's default of zstd is 1, which is not faster on data of tables."""

WITH_LEVEL = frozenset({"gzip", "zstd", "brotli"})


def to_encoding(properties: Mapping[str, str], codec: str) -> Encoding:
    """Return the encoding that the properties of an Iceberg table ask for.

    Source: PyIceberg: ``Table properties``.
    """
    sizes = {name: size for name, option in _SIZES.items() if (size := read_size(properties, option)) is not None}
    level = (read_size(properties, LEVEL) or _DEFAULT_LEVELS.get(codec)) if codec in WITH_LEVEL else None
    blooms = {}
    for name, value in properties.items():
        if name.startswith(_BLOOM) and value.lower() == "true":
            column = name.removeprefix(_BLOOM)
            blooms[tuple(column.split("."))] = _read_rate(properties, f"{_RATE}{column}")
    return Encoding(level, blooms=blooms, **sizes)


def read_size(properties: Mapping[str, str], name: str) -> int | None:
    """Return the value of a table property; None if it is not set.

    Raises:
        InvalidOption: it is not an integer from 1 on.
    """
    text = properties.get(name)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise InvalidOption(option=name, value=text, expected="Must be an integer >= 1.")
    return int(text)


def _read_rate(properties: Mapping[str, str], name: str) -> float:
    text = properties.get(name, str(_DEFAULT_RATE))
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1:
        raise InvalidOption(option=name, value=text, expected="Must be a number between 0 and 1.")
    return rate


# ---- dictionaries ---------------------------------------------------------------------------------


def _choose_dictionaries(rows: pa.Table) -> list[str] | bool:
    """Return the columns, in the notation of Parquet, whose dictionary and numbers take less space than their values.

    For 20,000 different numbers of 8 bytes, the dictionary alone takes as much as the numbers: 160,000 bytes, and the
    positions in it 15 bits each. For 1,000 different ones it is 8,000 bytes and 10 bits each, a fifth of the numbers.
    """
    sample = rows.slice(0, _SAMPLE_ROWS).combine_chunks()
    names = _stored_names(rows.schema)
    leaves = (leaf for name in range(sample.num_columns) for leaf in _leaf_values(_first_chunk(sample.column(name))))
    chosen = [name for name, values in zip(names.values(), leaves, strict=True) if _pays(values.slice(0, _SAMPLE_ROWS))]
    return chosen if len(chosen) < len(names) else True


def _first_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _leaf_values(values: pa.Array) -> Iterator[pa.Array]:
    """Yield the values of every leaf, in the order of the file."""
    if pa.types.is_struct(values.type):
        for child in values.flatten():
            yield from _leaf_values(child)
    elif pa.types.is_map(values.type):
        yield from _leaf_values(values.keys)
        yield from _leaf_values(values.items)
    elif pa.types.is_nested(values.type):
        yield from _leaf_values(values.flatten())
    else:
        yield values


def _pays(values: pa.Array) -> bool:
    filled = values.drop_null() if values.null_count else values
    if not len(filled) or pa.types.is_null(values.type) or pa.types.is_boolean(values.type):
        return True  # nothing is known of the column, or it has no dictionary anyway
    distinct = filled.unique()
    bits = max((len(distinct) - 1).bit_length(), 1)
    return _plain_bytes(distinct) + len(filled) * bits / 8 < _plain_bytes(filled)


def _plain_bytes(values: pa.Array) -> int:
    """Return the size of values without a dictionary.

    Source: the Parquet format, "Plain"
    """
    data_type = values.type
    if pa.types.is_decimal(data_type):
        size = next((size for size, digits in ((4, 9), (8, 18)) if data_type.precision <= digits), 16)
        return size * len(values)
    if pa.types.is_fixed_size_binary(data_type):
        return int(data_type.byte_width) * len(values)
    if pa.types.is_primitive(data_type):
        return max(int(data_type.bit_width) // 8, 4) * len(values)
    return int(values.nbytes)  # the bytes, and a length for each


# ---- columns in the notation of Parquet -----------------------------------------------------------


def columns_in_file(schema: pa.Schema, omitted: Collection[Path]) -> list[str] | bool:
    """Return the leaves of a Parquet file, in its own notation, without some; False if no leaf is left."""
    stored = _stored_names(schema)
    # By name: Parquet calls the column `a.b` and the field `b` of the column `a` alike.
    names = {stored[leaf] for leaf in omitted}
    return [name for name in stored.values() if name not in names] or False


@lru_cache(maxsize=64)
def _stored_names(schema: pa.Schema) -> Mapping[Path, str]:
    """Return the leaves of a file in the notation of Parquet, by their paths."""
    # The notation depends on how Arrow writes lists and maps, so an empty file tells.
    sink = BytesIO()
    pq.ParquetWriter(sink, schema).close()
    stored = [column.path for column in pq.read_metadata(sink).schema]
    return dict(zip(leaf_paths(schema), stored, strict=True))
