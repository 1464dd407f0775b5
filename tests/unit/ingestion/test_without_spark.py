"""An ingestion without Spark: where PySpark is not even installed, and what it does there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BLOCKED = """
import json, sys
from importlib.abc import MetaPathFinder

class NoSpark(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, NoSpark())
import widen
"""


def run(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has no PySpark."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code, *words], capture_output=True, text=True, check=False, timeout=300
    )


def values(code: str, *words: str) -> Any:
    done = run(code, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SHOW = """
place, table = sys.argv[1:3]
planned = widen.plan(place, table)
done = widen.ingest(place, table, verify=True, plan_hash=planned.hash)
opened = widen.Table(table)
rows = opened.to_arrow().to_pylist()
print(json.dumps([done.version, done.records, str(done.verification), opened.schema.sql, rows]))
"""


def test_records_are_loaded_and_proved(tmp_path: Path) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    source.write_text('{"id": 1, "price": 2.5, "tags": ["a"]}\n{"id": 2, "n": {"x": true}}\n')
    version, records, proof, schema, rows = values(SHOW, str(source), str(table))
    assert (version, records, proof) == (0, 2, "5 of 5 leaves exact")
    assert schema == "struct<id: int, n: struct<x: boolean>, price: double, tags: array<string>>"
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "price": 2.5, "tags": ["a"]},
        {"id": 2, "n": {"x": True}, "price": None, "tags": None},
    ]
    source.write_text('{"id": 3000000000}\n')
    version, records, _, schema, _ = values(SHOW, str(source), str(table))
    assert (version, records) == (1, 1)
    assert schema == "struct<id: bigint, n: struct<x: boolean>, price: double, tags: array<string>>"


ICEBERG = """
place, catalog = sys.argv[1:3]
words = {"catalog": catalog, "new": True}
done = widen.ingest(place, "shop.orders", verify=True, **words)
again = widen.ingest(place, "shop.orders", **words)
table = widen.IcebergTable("shop.orders", catalog)
rows = table.table.scan().to_arrow().to_pylist()
print(json.dumps([done.records, str(done.verification), again.is_unchanged, table.schema.sql, rows]))
"""


def test_records_are_loaded_into_an_iceberg_table(tmp_path: Path) -> None:
    source, catalog = tmp_path / "in.json", tmp_path / "lake.db"
    source.write_text('{"id": 1, "tags": ["a"]}\n{"id": 2, "n": {"x": true}}\n')
    records, proof, is_unchanged, schema, rows = values(ICEBERG, str(source), str(catalog))
    assert (records, proof, is_unchanged) == (2, "4 of 4 leaves exact", True)
    assert schema == "struct<id: int, n: struct<x: boolean>, tags: array<string>>"
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "tags": ["a"]},
        {"id": 2, "n": {"x": True}, "tags": None},
    ]


def test_an_iceberg_table_that_needs_spark(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text('{"id": 1}\n')
    code = """
import pyarrow as pa
from widen.iceberg.catalog import to_catalog
catalog = to_catalog(sys.argv[2]).open()
catalog.create_namespace("shop")
catalog.create_table("shop.fixed", pa.schema([pa.field("b", pa.binary(3))]))
widen.ingest(sys.argv[1], "shop.fixed", catalog=sys.argv[2], engine="local")
"""
    done = run(code, str(source), str(tmp_path / "lake.db"))
    assert done.returncode == 1
    assert "This call needs Spark, because it writes the files of tables with partitions, rules" in done.stderr


def test_a_large_source_is_read_by_several_processes(tmp_path: Path) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    count = 60_000
    with source.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"id": number, "text": "x" * 600}) + "\n")
    code = """
place, table = sys.argv[1:3]
from widen.spark import engine
started = []
start = engine._start_worker
engine._start_worker = lambda: started.append(1) or start()
done = widen.ingest(place, table)
ids = widen.Table(table).to_arrow()["id"].to_pylist()
print(json.dumps([len(started), done.records, sorted(ids) == list(range(60_000))]))
"""
    workers, records, is_whole = values(code, str(source), str(table))
    assert (records, is_whole) == (count, True)
    assert workers == (os.cpu_count() or 1) - 1


def test_an_error_in_another_process_arrives(tmp_path: Path) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    with source.open("w") as file:
        for number in range(60_000):
            file.write(json.dumps({"id": number, "text": "x" * 600}) + "\n")
        file.write(json.dumps({"text": "x" * 3_000_000}) + "\n")
    done = run("widen.ingest(*sys.argv[1:3], max_record_size='1MB')", str(source), str(table))
    assert done.returncode == 1
    assert "is longer than 1 MB" in done.stderr
    assert "CorruptFile" in done.stderr
    assert not table.exists() or not any(table.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a b.json", b'{"a": 1}\n', "the names of the files have special characters"),
        ("a.parquet", b"PAR1", "its readers read parquet files"),
    ],
)
def test_what_needs_spark_says_why(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    source = tmp_path / name
    source.write_bytes(content)
    done = run("widen.ingest(*sys.argv[1:3], engine='local')", str(source), str(tmp_path / "t"))
    assert done.returncode == 1
    assert f"This call needs Spark, because {reason}" in done.stderr
    done = run("widen.ingest(*sys.argv[1:3])", str(source), str(tmp_path / "t"))
    assert done.returncode == 1
    assert "pip install 'widen[spark]'" in done.stderr
