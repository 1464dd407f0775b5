"""A CSV file without its header does not lose its first record: the table would have to have one of its names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from widen.batches import open_source
from widen.errors import CorruptFile, SourceError
from widen.proof.csv_reader import CsvForm, read_csv_head
from widen.sources.csv_dialect import guess_encoding
from widen.table import Table

FIRST = "Order ID,total\n1,2.5\n"
NO_HEADER = "2,3.5\n3,4.5\n"


def loaded(spark: SparkSession, folder: Path) -> str:
    (folder / "1.csv").write_text(FIRST)
    place = str(folder / "table")
    widen.ingest(str(folder / "1.csv"), into=place, spark=spark)
    return place


@pytest.mark.parametrize("lane", ["tasks", "lines", "large"])
def test_a_first_line_without_a_field_of_the_table_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    place, source = loaded(spark, tmp_path), tmp_path / "2.csv"
    source.write_text(NO_HEADER * (1 if lane != "large" else 2**21))
    if lane == "lines":
        monkeypatch.setattr(open_source, "can_read", lambda *_: False)
    for work in (widen.plan, widen.ingest):
        with pytest.raises(SourceError, match=r"2\.csv.*has none of the fields in its first line.*header=true"):
            work(str(source), into=place, spark=spark)
    assert Table(place).version == 0
    assert [list(row) for row in Table(place).read(spark=spark).collect()] == [["1", "2.5"]]


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("total,city\n3.5,Gent\n", {}, ["city"]),  # one field is enough
        ("ORDER_ID\n2\n", {}, ["ORDER_ID_2"]),  # in any case
        (NO_HEADER, {"header": "true"}, ["2", "3.5"]),
        (NO_HEADER, {"header": "false"}, ["_c0", "_c1"]),
    ],
)
def test_other_first_lines_are_names(
    spark: SparkSession, tmp_path: Path, text: str, options: dict[str, str], columns: list[str]
) -> None:
    place, source = loaded(spark, tmp_path), tmp_path / "2.csv"
    source.write_text(text)
    widen.ingest(str(source), into=place, options=options, spark=spark)
    assert Table(place).schema.names == ("Order_ID", "total", *columns)


def test_a_stream_stops_at_a_file_without_its_header(spark: SparkSession, tmp_path: Path) -> None:
    place, landing = loaded(spark, tmp_path), tmp_path / "landing"
    landing.mkdir()
    (landing / "2.csv").write_text(NO_HEADER)
    arguments = {"into": place, "checkpoint": str(tmp_path / "checkpoint"), "once": True, "spark": spark}
    with pytest.raises(SourceError, match="none of the fields"):
        widen.ingest_stream(str(landing), **arguments).wait()
    (landing / "2.csv").write_text("total\n3.5\n")
    widen.ingest_stream(str(landing), **arguments).wait()
    assert sorted(row.total for row in Table(place).read(spark=spark).collect()) == ["2.5", "3.5"]


LATIN = "id,Größe,Grüße\n1,5,6\n".encode("latin-1")
UTF_8 = {"encoding": "utf-8"}
"""With this option the encoding is not searched."""


@pytest.mark.parametrize("lane", ["tasks", "lines", "large"])
def test_a_header_in_another_encoding_makes_the_file_unreadable(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    """With replaced bytes both names would be one, and the fields would merge."""
    bad, good, table = tmp_path / "bad.csv", tmp_path / "good.csv", str(tmp_path / "table")
    bad.write_bytes(LATIN + b"2,7,8\n" * (2**22 if lane == "large" else 0))
    good.write_text("id\n3\n")
    if lane == "lines":
        monkeypatch.setattr(open_source, "can_read", lambda *_: False)
    for work in (widen.plan, widen.ingest):
        with pytest.raises(CorruptFile, match=r"bad\.csv.*line 1 is not UTF-8; it is windows-1252: set encoding="):
            work(str(bad), into=table, spark=spark, options=UTF_8)
    done = widen.ingest([str(bad), str(good)], into=table, spark=spark, skip_bad_files=True, verify=True, options=UTF_8)
    assert [each.path.rpartition("/")[2] for each in done.bad_files] == ["bad.csv"]
    assert done.records == 1


@pytest.mark.parametrize("lane", ["tasks", "lines"])
def test_the_encoding_of_a_header_is_an_option(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    place = str(tmp_path / "table")
    (tmp_path / "a.csv").write_bytes(LATIN)
    if lane == "lines":
        monkeypatch.setattr(open_source, "can_read", lambda *_: False)
    done = widen.ingest(
        str(tmp_path / "a.csv"), into=place, spark=spark, options={"encoding": "windows-1252"}, verify=True
    )
    assert done.verification is not None
    assert done.verification.is_clean
    assert set(Table(place).schema.names) == {"id", "Größe", "Grüße"}


def test_without_a_header_only_a_row_in_another_encoding_is_corrupt(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(LATIN)
    done = widen.ingest(
        str(tmp_path / "a.csv"),
        into=str(tmp_path / "t"),
        spark=spark,
        options={"header": "false", **UTF_8},
        verify=True,
    )
    assert (done.records, done.corrupt) == (1, 1)
    assert done.verification is not None
    assert done.verification.is_clean


@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        ("id,Größe", "latin-1", "windows-1252"),
        ("prénom,âge", "windows-1252", "windows-1252"),
        ("à,è", "latin-1", None),  # in windows-1250 these are other letters
        ("имя,цена", "windows-1251", None),
        ("名前,価格", "shift-jis", None),
        ("preis €", "windows-1252", None),
        ("größe,Ã", "utf-8", None),
    ],
)
def test_an_encoding_is_guessed_only_where_it_is_sure(text: str, encoding: str, guess: str | None) -> None:
    data = text.encode(encoding)
    assert guess_encoding(data if encoding != "utf-8" else data[:-1]) == guess


def test_the_proof_does_not_read_a_header_in_another_encoding() -> None:
    with pytest.raises(CorruptFile, match="a name in its header is not UTF-8"):
        read_csv_head(LATIN, CsvForm())
    assert read_csv_head(LATIN, CsvForm(has_header=False)).names == ("_c0", "_c1", "_c2")
