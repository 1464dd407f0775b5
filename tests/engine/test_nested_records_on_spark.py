"""Records below a path on Spark: in files of its tasks, in files that only Spark reads, in a column, and in a sink."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from widen.errors import InvalidOption
from widen.sources import file_ranges, json_frames

WHOLE_BYTES, ITEMS = 2**20, 1_000
"""Up to how many bytes a file of these tests is read whole, and how many records have more."""

PAD = 'x]}\\"' * 200
PATH: dict[str, Any] = {"records": "page.items[*]", "keep": ["number", "late"], "verify": True}


def make_document(number: int, items: int) -> dict[str, Any]:
    records = [{"id": number * 100_000 + at, "pad": PAD, "o": {"n": [at, {"z": 1}]}} for at in range(items)]
    return {"page": {"number": number, "items": records, "late": "{"}, "end": [1, 2]}


def make_large(indent: int | None = None) -> bytes:
    text = json.dumps(make_document(1, ITEMS), indent=indent).encode()
    assert len(text) > WHOLE_BYTES
    return text


@pytest.fixture(autouse=True)
def _large_files_are_not_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", WHOLE_BYTES)


def ensure_loaded(done: widen.IngestResult, table: Path, spark: SparkSession, expected: int, pages: set[int]) -> None:
    assert done.verification is not None
    assert done.verification.is_clean, done.verification.places
    rows = widen.Table(table).read(spark=spark)
    assert rows.count() == expected == rows.select("id").distinct().count()
    found = rows.select("_parent_page_number", "_parent_page_late").distinct().collect()
    assert {tuple(row) for row in found} == {(page, "{") for page in pages}


@pytest.mark.parametrize("is_readable", [True, False], ids=["tasks", "spark"])
def test_files_of_every_form(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_readable: bool
) -> None:
    if not is_readable:
        monkeypatch.setattr(json_frames, "can_read", lambda *_: False)
        monkeypatch.setattr("widen.batches.open_source.can_read", lambda *_: False)
        monkeypatch.setattr("widen.sources.file_ranges.are_few", lambda *_: False)
    source = tmp_path / "s"
    source.mkdir()
    (source / "small.json").write_text(json.dumps([make_document(2, 3), make_document(3, 2)], indent=1))
    lines = "".join(json.dumps(make_document(page, 100)) + "\n" for page in range(4, 14))
    (source / "lines.json").write_text(lines)
    (source / "packed.json.gz").write_bytes(gzip.compress(json.dumps(make_document(14, 2)).encode()))
    assert len(lines) > WHOLE_BYTES
    if is_readable:
        (source / "large.json").write_bytes(make_large(1))
    done = widen.ingest(source, tmp_path / "t", spark=spark, **PATH)
    expected = 1_007 + ITEMS * is_readable
    ensure_loaded(done, tmp_path / "t", spark, expected, {*range(2, 15), *([1] if is_readable else [])})


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_large_document_that_only_spark_reads(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_packed: bool
) -> None:
    monkeypatch.setattr(json_frames, "can_read", lambda *_: False)
    monkeypatch.setattr("widen.batches.open_source.can_read", lambda *_: False)
    source = tmp_path / ("a.json.gz" if is_packed else "a.json")
    source.write_bytes(gzip.compress(make_large(), 0) if is_packed else make_large())
    with pytest.raises(InvalidOption, match=r"verify cannot be .*engine=local"):
        widen.ingest(source, tmp_path / "t", spark=spark, **PATH)
    assert not (tmp_path / "t" / "_delta_log").exists()
    done = widen.ingest(source, tmp_path / "t", spark=spark, **{**PATH, "verify": False})
    assert done.records == ITEMS
    rows = widen.Table(tmp_path / "t").read(spark=spark)
    assert rows.where("_parent_page_late IS NULL OR _parent_page_number IS NULL OR o IS NULL").count() == 0
    assert {row.pad for row in rows.select("pad").distinct().collect()} == {PAD}


def test_documents_in_a_column(spark: SparkSession, tmp_path: Path) -> None:
    texts = [json.dumps(make_document(1, 3)), "", '{"page": {"items": null}}', '{"other": 1}']
    rows = spark.createDataFrame([(text,) for text in texts], "value string")
    done = widen.ingest(rows, tmp_path / "t", format="json", spark=spark, **PATH)
    assert (done.records, done.corrupt) == (3, 1)
    assert done.verification is not None
    assert done.verification.is_clean


def test_a_sink_and_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    (source / "a.txt").write_text(json.dumps(make_document(1, 3)) + "\n" + json.dumps(make_document(2, 2)) + "\n")
    widen.register(spark)
    query = (
        spark.readStream.text(str(source))
        .writeStream.format("widen")
        .option("ingest", "json")
        .option("records", "page.items[*]")
        .option("keep", "number")
        .option("verify", "true")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "t"))
    )
    query.awaitTermination()
    found = widen.Table(tmp_path / "t").read(spark=spark).select("_parent_page_number").collect()
    assert sorted(row[0] for row in found) == [1, 1, 1, 2, 2]
    (source / "b.json").write_text(json.dumps(make_document(3, 4)))
    stream = widen.ingest_stream(
        str(source / "*.json"), tmp_path / "u", checkpoint=tmp_path / "d", once=True, spark=spark, **PATH
    )
    assert stream.wait(60)
    assert widen.Table(tmp_path / "u").read(spark=spark).count() == 4


def test_a_dialect_below_a_path(spark: SparkSession, tmp_path: Path) -> None:
    page = {"Items": [{"id": {"N": str(at)}, "S": {"M": {"N": {"SS": ["a"]}}}} for at in range(3)], "Count": 3}
    rows = spark.createDataFrame([(json.dumps(page),)] * 2, "value string")
    words: dict[str, Any] = {"records": "Items[*]", "dialect": "dynamodb", "verify": True, "spark": spark}
    done = widen.ingest(rows, tmp_path / "t", format="json", **words)
    assert done.verification is not None
    assert done.verification.is_clean
    found = widen.Table(tmp_path / "t").read(spark=spark).select("id", "S.N").collect()
    assert sorted(map(tuple, found)) == [(at, ["a"]) for at in (0, 0, 1, 1, 2, 2)]
    (tmp_path / "a.json").write_text(json.dumps(page))
    done = widen.ingest(tmp_path / "a.json", tmp_path / "u", **words)
    assert done.verification is not None
    assert done.verification.is_clean
    assert widen.Table(tmp_path / "u").read(spark=spark).count() == 3
