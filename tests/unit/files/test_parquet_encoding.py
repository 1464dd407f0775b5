"""How the columns of files are encoded: dictionaries, pages, bloom filters, and what private columns do not have."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen.errors import InvalidOption
from widen.files.data_writer import PartSink, PartWriter
from widen.files.parquet_encoding import Encoding, to_encoding
from widen.log.log_store import LogStore

CHANCE = random.Random(1)
ROWS = 30_000
COLUMNS: Mapping[str, tuple[list[Any], pa.DataType, bool]] = {
    # name: values, type, whether a dictionary takes less space
    "number": (list(range(ROWS)), pa.int64(), False),
    "few": ([number % 100 for number in range(ROWS)], pa.int64(), True),
    "one": (["EUR"] * ROWS, pa.string(), True),
    "text": ([f"order {number}" for number in range(ROWS)], pa.string(), False),
    "price": ([CHANCE.random() for _ in range(ROWS)], pa.float64(), False),
    "days": ([number % 365 for number in range(ROWS)], pa.date32(), True),
    "money": ([Decimal(number) / 100 for number in range(ROWS)], pa.decimal128(10, 2), False),
    "half": ([number // 2 for number in range(ROWS)], pa.int64(), True),  # 80,000 + 20,000 x 14 bits < 160,000 bytes
    "nothing": ([None] * ROWS, pa.string(), True),
    "holes": ([number if number % 2 else None for number in range(ROWS)], pa.int32(), False),
}
NESTED = pa.array(
    [{"keys": {str(number % 7): number}, "tags": [number % 3]} for number in range(ROWS)],
    pa.struct([("keys", pa.map_(pa.string(), pa.int64())), ("tags", pa.list_(pa.int64()))]),
)


def write(place: Path, rows: pa.Table, **words: Any) -> pq.ParquetFile:
    sink = PartSink(LogStore(str(place)), "job", "zstd", lambda *_: ("", ""), **words)
    writer = PartWriter(sink, rows.schema)
    for batch in rows.to_batches():
        writer.write(batch)
    (part,) = writer.close()
    return pq.ParquetFile(place / part.path)


def with_dictionary(file: pq.ParquetFile) -> set[str]:
    group = file.metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    return {chunk.path_in_schema for chunk in chunks if "RLE_DICTIONARY" in chunk.encodings}


def test_only_columns_with_few_values_have_a_dictionary(tmp_path: Path) -> None:
    columns = {name: pa.array(values, kind) for name, (values, kind, _) in COLUMNS.items()}
    rows = pa.table({**columns, "in": NESTED})
    file = write(tmp_path, rows)
    nested = {"in.keys.key_value.key", "in.tags.list.element"}
    assert with_dictionary(file) == {name for name, (_, _, pays) in COLUMNS.items() if pays} | nested
    assert file.read().equals(rows)


def test_a_file_of_different_numbers_is_as_large_as_the_numbers(tmp_path: Path) -> None:
    numbers = pa.table({"n": pa.array([CHANCE.getrandbits(63) for _ in range(100_000)], pa.int64())})
    file = write(tmp_path, numbers)
    assert file.metadata.row_group(0).column(0).total_uncompressed_size < 8 * 100_000 * 1.01


def test_pages_have_an_index_but_not_those_of_private_columns(tmp_path: Path) -> None:
    values = [1.0, float("nan"), 3.0]
    rows = pa.table({"n": [1, 2, 3], "secret": ["a", "b", "c"], "d": values})
    file = write(tmp_path, rows, private=frozenset({("secret",)}))
    group = file.metadata.row_group(0)
    has_index = {group.column(at).path_in_schema: group.column(at).has_column_index for at in range(3)}
    assert has_index == {"n": True, "secret": False, "d": False}  # nor a column with NaN, which has no bounds


def test_bloom_filters_are_written_where_a_property_asks_for_them(tmp_path: Path) -> None:
    rows = pa.table({"id": list(range(1000)), "other": list(range(1000))})
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    plain = write(tmp_path / "plain", rows, encoding=to_encoding({}, "zstd"))
    with_filter = write(tmp_path / "filter", rows, encoding=to_encoding(properties, "zstd"))
    sizes = [sum(path.stat().st_size for path in (tmp_path / name).rglob("*.parquet")) for name in ("plain", "filter")]
    assert 2048 <= sizes[1] - sizes[0] < 2200  # 1,000 values of about 10 bits, rounded up to a power of two
    assert with_filter.read().equals(plain.read())
    small = to_encoding({**properties, "write.parquet.bloom-filter-max-bytes": "128"}, "zstd")
    write(tmp_path / "small", rows, encoding=small)
    assert sum(path.stat().st_size for path in (tmp_path / "small").rglob("*.parquet")) - sizes[0] < 280


def test_pages_and_row_groups_have_the_sizes_of_the_properties(tmp_path: Path) -> None:
    rows = pa.table({"n": [CHANCE.getrandbits(63) for _ in range(20_000)]})
    properties = {"write.parquet.row-group-size-bytes": "40000", "write.parquet.page-row-limit": "500"}
    sink = PartSink(
        LogStore(str(tmp_path)), "job", "zstd", lambda *_: ("", ""), encoding=to_encoding(properties, "zstd")
    )
    writer = PartWriter(sink, rows.schema)
    for batch in rows.to_batches(max_chunksize=1000):
        writer.write(batch)
    (part,) = writer.close()
    assert pq.read_metadata(tmp_path / part.path).num_row_groups == 4


@pytest.mark.parametrize(
    ("codec", "properties", "level"),
    [
        ("zstd", {}, 3),
        ("zstd", {"write.parquet.compression-level": "9"}, 9),
        ("gzip", {}, None),
        ("snappy", {"write.parquet.compression-level": "9"}, None),
    ],
)
def test_the_level_of_the_compression(codec: str, properties: Mapping[str, str], level: int | None) -> None:
    assert to_encoding(properties, codec).level == level


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.page-size-bytes", "many"),
        ("write.parquet.dict-size-bytes", "0"),
        ("write.parquet.bloom-filter-fpp.column.id", "1"),
        ("write.parquet.bloom-filter-fpp.column.id", "low"),
    ],
)
def test_what_cannot_be_read_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=name):
        to_encoding({"write.parquet.bloom-filter-enabled.column.id": "true", name: value}, "zstd")


def test_arrow_decides_what_no_property_names() -> None:
    options = Encoding().writer_options(pa.table({"n": [1, 1, 1, 1, 1, 1, 1, 1]}))
    assert options["data_page_size"] is options["max_rows_per_page"] is options["bloom_filter_options"] is None
