"""Damaged CSV, other line ends and long records, in every way that Spark and its tasks read files."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from widen.errors import CorruptFile, LimitExceeded
from widen.sources import file_ranges
from widen.table import Table

Place = Callable[[Path, bytes], Path]


def rows(count: int, changes: dict[int, str] | None = None, end: str = "\n") -> bytes:
    lines = ["n,name", *(f"{number},x{number}" for number in range(2, count + 1))]
    for line, text in (changes or {}).items():
        lines[line - 1] = text
    return (end.join(lines) + end).encode()


def plain(folder: Path, data: bytes) -> Path:
    (folder / "a.csv").write_bytes(data)
    return folder / "a.csv"


def packed(folder: Path, data: bytes) -> Path:
    (folder / "a.csv.gz").write_bytes(gzip.compress(data))
    return folder / "a.csv.gz"


def by_spark(folder: Path, data: bytes) -> Path:
    (folder / "a b.csv").write_bytes(data)
    return folder / "a b.csv"


@pytest.fixture(params=[plain, packed, by_spark])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


@pytest.fixture(params=["small", "large"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "large":
        monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 64)
        monkeypatch.setattr(file_ranges, "MIN_TASK_BYTES", 1_000)
        monkeypatch.setattr(file_ranges, "DRIVER_TASK_BYTES", 0)
    return str(request.param)


@pytest.mark.usefixtures("size")
def test_swallowed_lines_count(spark: SparkSession, tmp_path: Path, place: Place) -> None:
    source, table = place(tmp_path, rows(1000, {900: '900,"abc', 950: '950,x"'})), str(tmp_path / "table")
    message = r"51 of 999 lines are not records, the first at .*:900 \(not a CSV record: the quote at line"
    with pytest.raises(LimitExceeded, match=message):
        widen.ingest(str(source), into=table, max_corrupt="1%", detect_types=True, spark=spark)
    done = widen.ingest(str(source), into=table, verify=True, detect_types=True, spark=spark)
    assert (done.records, done.corrupt) == (948, 51)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    kept = Table(table).read(spark=spark).where("_corrupt_record = '901,x901'").collect()
    places = [row["_corrupt_at"].rpartition("/")[2].partition(":")[2] for row in kept]
    assert [each.partition(" at")[0] for each in places] == ["901 (not a CSV record: the quote"]


def test_an_open_quote_is_a_damaged_file(spark: SparkSession, tmp_path: Path, place: Place, size: str) -> None:
    (tmp_path / "in").mkdir()
    place(tmp_path / "in", rows(1000, {900: '900,"abc'}))
    (tmp_path / "in" / "good.csv").write_bytes(rows(10))
    table = str(tmp_path / "table")
    with pytest.raises(CorruptFile, match="the quote at line 900, column 5 is not closed"):
        widen.plan(str(tmp_path / "in"), into=table, spark=spark)
    done = widen.ingest(
        str(tmp_path / "in"), into=table, skip_bad_files=True, verify=True, new=size == "small", spark=spark
    )
    assert (done.records, len(done.bad_files)) == (9, 1)
    assert "line 900, column 5" in str(done.bad_files[0])
    assert done.verification is not None
    assert done.verification.is_clean


@pytest.mark.parametrize("end", ["\r", "\r\n"])
@pytest.mark.usefixtures("size")
def test_line_ends_and_fields_over_several_lines(spark: SparkSession, tmp_path: Path, place: Place, end: str) -> None:
    source = place(tmp_path, rows(600, {300: f'300,"Main St{end}Paris, France{end}{end}EU"'}, end))
    done = widen.ingest(str(source), into=str(tmp_path / "table"), verify=True, spark=spark)
    assert (done.records, done.corrupt) == (599, 0)
    assert done.verification is not None
    assert done.verification.is_clean
    (row,) = Table(str(tmp_path / "table")).read(spark=spark).where("n = '300'").collect()
    assert row["name"] == f"Main St{end}Paris, France{end}{end}EU"


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a b.json", "a.csv", "a b.csv"])
def test_a_record_over_the_limit(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    head = "n\n" if "csv" in name else ""
    rest = (f'{{"n":"{"x" * 5000}"}}\n' if not head else "x" * 5000 + "\n") * 2
    data = (head + rest).encode()
    (tmp_path / "in" / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    with pytest.raises(CorruptFile, match=r"longer than 1000 bytes|longer than 1,000 bytes"):
        widen.ingest(str(tmp_path / "in"), into=str(tmp_path / "table"), max_record_size=1000, spark=spark)
    (tmp_path / "in" / ("good.csv" if head else "good.json")).write_text("n\n1\n" if head else '{"n":"1"}')
    done = widen.ingest(
        str(tmp_path / "in"), into=str(tmp_path / "table"), max_record_size="1KB", skip_bad_files=True, spark=spark
    )
    assert (done.records, len(done.bad_files)) == (1, 1)
    assert (
        widen.ingest(str(tmp_path / "in"), into=str(tmp_path / "table"), max_record_size="6kb", spark=spark).records
        == 3
    )


def test_a_gzip_of_spaces_does_not_end_java(spark: SparkSession, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "bomb.json.gz", "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b" " * 2**20)
    with pytest.raises(CorruptFile, match=r"bomb\.json\.gz cannot be read"):
        widen.ingest(str(tmp_path / "bomb.json.gz"), into=str(tmp_path / "table"), spark=spark)
