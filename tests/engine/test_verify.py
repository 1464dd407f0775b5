"""The proof on Spark: files are damaged after they were written, and each damage is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from widen import Table, ingest
from widen.batches.open_source import BatchReader
from widen.evolution.policy import Policy
from widen.frames.table_writers import DeltaRows
from widen.verification.records import Verification, verify

LINES = [f'{{"n":{number},"s":"text {number}","r":{{"x":[{number},1.5]}}}}' for number in range(100)]
SPOILT = ['{"n":1,"n":2}', "not json"]
VALUES = 4 * len(LINES) + len(SPOILT)

Damage = Callable[[pa.Table], pa.Table]


def with_column(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values.cast(table.schema.field(name).type))


DAMAGES: dict[str, tuple[Damage, int, int, str]] = {
    "nothing": (lambda table: table, 0, 0, ""),
    "a row is dropped": (lambda table: table.slice(1), 4, 0, "s.jsonl:1"),
    "a row is there twice": (lambda table: pa.concat_tables([table, table.slice(0, 1)]), 0, 1, ""),
    "a text is cut": (
        lambda table: with_column(table, "s", pc.replace_substring(table["s"], "text 77", "text")),
        1,
        1,
        "s.jsonl:78: s",
    ),
    "two rows have each other's numbers": (
        lambda table: with_column(
            table,
            "n",
            pc.if_else(pc.is_in(table["n"], pa.array([5, 6], pa.int32())), pc.subtract(11, table["n"]), table["n"]),
        ),
        2,
        2,
        "s.jsonl:6: n",
    ),
    "corrupt texts are dropped": (
        lambda table: table.filter(pc.is_null(table["_corrupt_record"])),
        len(SPOILT),
        0,
        "s.jsonl:101",
    ),
}
"""What is done to the file, how many values are lost then, how many rows are extra, and what is named first."""


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("verify")
    (place / "s.jsonl").write_text("\n".join([*LINES, *SPOILT]))
    done = ingest(str(place / "s.jsonl"), str(place / "table"), verify=True, spark=spark)
    assert done.verification == Verification(len(LINES) + len(SPOILT), VALUES, VALUES)
    assert str(done.verification) == f"{VALUES} of {VALUES} leaves exact"
    return place


def proof(spark: SparkSession, place: Path, share: float = 1.0) -> Verification:
    found = Table(str(place / "table"))
    batch, paths = BatchReader().open(spark, str(place / "s.jsonl")), found.files()["path"].to_pylist()
    there = batch.table_digests(DeltaRows(found.store, found.snapshot), paths, Policy(), None)
    return verify(batch.source_digests(found.snapshot.schema, Policy()), there, share)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(spark: SparkSession, place: Path, name: str) -> None:
    damage, lost, extra, named = DAMAGES[name]
    [path] = (place / "table").rglob("*.parquet")
    whole = path.read_bytes()
    pq.write_table(damage(pq.read_table(path, partitioning=None)), path)
    try:
        found = proof(spark, place)
    finally:
        path.write_bytes(whole)
    assert (found.lost, found.extra, found.is_clean) == (lost, extra, not (lost or extra))
    assert found.exact == VALUES - lost
    assert found.records == len(LINES) + len(SPOILT)
    assert named in (min(found.places, key=number_of) if found.places else "")


def test_tasks_of_spark_find_what_this_process_finds(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widen.sources.file_ranges.DRIVER_TASK_BYTES", 0)
    assert proof(spark, place) == Verification(len(LINES) + len(SPOILT), VALUES, VALUES)
    test_damage_is_named(spark, place, "a text is cut")


def number_of(place: str) -> int:
    return int(place.partition("s.jsonl:")[2].partition(":")[0])


def test_a_sample_is_the_same_records_on_both_sides(spark: SparkSession, place: Path) -> None:
    found = proof(spark, place, 0.5)
    assert found.is_clean
    assert 20 < found.records < 80
    assert "in a sample of 50.00% of the records" in str(found)
