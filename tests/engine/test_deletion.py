"""Deletion vectors: rows that the log says are deleted never appear, wherever the vector stands."""

from __future__ import annotations

import struct
import uuid
import zlib
from pathlib import Path

import msgspec
import pytest
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

import widen
from support.exact import assert_same
from widen.errors import CorruptFile
from widen.files.deleted_rows import load_vector
from widen.log.commit import ReadSet, commit
from widen.log.log_store import LogStore
from widen.protocol.actions import Add, DeletionVector, Remove
from widen.protocol.deletion_vectors import encode_z85
from widen.table import Table

PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableTypeWidening": "true"}
EXAMPLE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
PORTABLE_EXAMPLE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


def serialised(rows: list[int]) -> bytes:
    return struct.pack("<i", 1681511377) + BitMap64(rows).serialize()


def inline(rows: list[int]) -> DeletionVector:
    data = serialised(rows)
    text = encode_z85(data + b"\0" * (-len(data) % 4))
    return DeletionVector(storage_type="i", path_or_inline_dv=text, size_in_bytes=len(data), cardinality=len(rows))


def in_file(folder: Path, rows: list[int], prefix: str = "", absolute: bool = False) -> DeletionVector:
    """Write a vector behind another one, as writers do that pack several into one file."""
    data, other, name = serialised(rows), serialised([0]), uuid.uuid4()
    framed = [struct.pack(">i", len(d)) + d + struct.pack(">I", zlib.crc32(d)) for d in (other, data)]
    path = folder / prefix / f"deletion_vector_{name}.bin"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(b"\x01" + b"".join(framed))
    where = path.as_uri() if absolute else prefix + encode_z85(name.bytes)
    return DeletionVector(
        storage_type="p" if absolute else "u",
        path_or_inline_dv=where,
        offset=1 + len(framed[0]),
        size_in_bytes=len(data),
        cardinality=len(rows),
    )


def delete(table: Table, row: dict[str, object], vector: DeletionVector) -> None:
    """Commit a vector for one file, as a writer that deletes rows does."""
    values = dict(row["partition_values"])  # type: ignore[call-overload]
    old = Remove(path=str(row["path"]), data_change=True, deletion_timestamp=1, partition_values=values)
    new = Add(
        path=str(row["path"]),
        partition_values=values,
        size=int(str(row["size_bytes"])),
        modification_time=1,
        data_change=True,
        stats=str(row["stats"]),
        deletion_vector=vector,
    )
    commit(table.store, table.refresh().snapshot, [old, new], "DELETE", {}, reads=ReadSet.EVERYTHING).or_raise()
    table.refresh()


@pytest.mark.parametrize("text", [EXAMPLE, PORTABLE_EXAMPLE])
def test_the_published_example(text: str) -> None:
    size = 40 if text == EXAMPLE else 44
    vector = DeletionVector(storage_type="i", path_or_inline_dv=text, size_in_bytes=size, cardinality=6)
    assert list(load_vector(LogStore("/nowhere"), vector)) == [3, 4, 7, 11, 18, 29]


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_every_kind_of_vector(spark: SparkSession, tmp_path: Path, mapping: str, partition_by: tuple[str, ...]) -> None:
    folder = tmp_path / "ü table"
    properties = {**PROPERTIES, "delta.columnMapping.mode": mapping}
    table = widen.create_table(str(folder), "id int, p string", partition_by=partition_by, properties=properties)
    for part in range(5):
        frame = spark.createDataFrame([(100 * part + n, f"p {part}") for n in range(100)], "id int, p string")
        table.append(frame.coalesce(1))
    by_first = {text: row for row in table.files().to_pylist() for text in [row["stats"]]}
    rows = sorted(by_first.values(), key=lambda row: first_id(row["stats"]))
    gone = [[3, 4, 7], [0, 99], list(range(100)), [50]]
    vectors = [
        inline(gone[0]),
        in_file(folder, gone[1], "ab"),
        in_file(folder, gone[2]),
        in_file(tmp_path / "else where", gone[3], absolute=True),
    ]
    for row, vector in zip(rows, vectors, strict=False):
        delete(table, row, vector)
    deleted = {100 * part + n for part, some in enumerate(gone) for n in some}
    kept = [Row(id=n, p=f"p {n // 100}") for n in range(500) if n not in deleted]
    assert_same(table.read(spark=spark).collect(), kept)
    table.alter_column("id", type="bigint")
    assert_same(table.read(where="id >= 95 and id < 300", spark=spark).collect(), [r for r in kept if 95 <= r.id < 300])
    assert table.read(version=5, spark=spark).count() == 500


def first_id(stats: str) -> int:
    values = msgspec.json.decode(stats)["minValues"]
    return min(value for value in values.values() if isinstance(value, int))


def test_rows_beyond_32_bits() -> None:
    rows = [1, 2**32 + 5, 2**33]
    assert list(load_vector(LogStore("/nowhere"), inline(rows))) == rows


def test_a_damaged_vector_never_brings_rows_back(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int", properties=PROPERTIES)
    table.append(spark.range(10).selectExpr("cast(id as int) id").coalesce(1))
    good = in_file(tmp_path, [1, 2])
    with pytest.raises(CorruptFile, match="deletes 2 rows, but the log says 3"):
        load_vector(table.store, msgspec.structs.replace(good, cardinality=3))
    with pytest.raises(CorruptFile, match="the deletion vector does not exist"):
        load_vector(table.store, msgspec.structs.replace(good, path_or_inline_dv=encode_z85(b"x" * 16)))
    (path,) = tmp_path.glob("deletion_vector_*.bin")
    path.write_bytes(path.read_bytes()[:-6] + b"\0" * 6)
    with pytest.raises(CorruptFile, match="checksum"):
        load_vector(table.store, good)
    delete(table, table.files().to_pylist()[0], good)
    with pytest.raises(PySparkException, match="checksum"):
        table.read(spark=spark).collect()
