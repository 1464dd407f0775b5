"""Where records may come from: large and packed files, CSV, lines of text, JSON in a column."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from widen.errors import InvalidOption, SourceError
from widen.ingestion import Ingested, ingest, ingest_stream
from widen.model.type import LONG, Field, StructType
from widen.spark import raw
from widen.table import Table, create_table


def proved(spark: SparkSession, source: Any, table: Path, **words: Any) -> Ingested:
    done = ingest(source, str(table), verify=True, spark=spark, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def rows(spark: SparkSession, table: Path, order: str = "n") -> list[dict[str, Any]]:
    """The rows without what is null in them."""
    found = [row.asDict(recursive=True) for row in Table(str(table)).read(spark).orderBy(order).collect()]
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def types(table: Path) -> dict[str, str]:
    return {field.name: field.type.sql for field in Table(str(table)).schema}


# ---- JSON ------------------------------------------------------------------------------------------


def test_packed_files(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.json.gz").write_bytes(gzip.compress(b'[{"n":1},\n{"n":2}]'))
    (source / "b.jsonl.bz2").write_bytes(bz2.compress(b'{"n":3}\n{"n":4}\n'))
    proved(spark, str(source), tmp_path / "table")
    assert rows(spark, tmp_path / "table") == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


def test_zstd_is_read_or_refused_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    """Not every Spark has the codec."""
    with pa.CompressedOutputStream(str(tmp_path / "a.json.zst"), "zstd") as file:
        file.write(b'{"n":1}\n')
    refusal = None
    try:
        proved(spark, str(tmp_path / "a.json.zst"), tmp_path / "table")
    except SourceError as error:
        refusal = error.advice
    assert (refusal or "").endswith("zstd -d FILE") or rows(spark, tmp_path / "table") == [{"n": 1}]


LARGE = {
    "lines": '{"n":1}\n{"n":2,"t":"}"}\n',
    "an array on one line": '[{"n":1},{"n":2,"t":"}"}]',
    "an array with a record a line": '[\n{"n":1},\n{"n":2,"t":"}"}\n]\n',
    "documents one after the other": '{\n "n":1\n}\n{\n "n":2, "t": "}"\n}\n',
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_a_large_file_is_read_in_parts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(raw, "WHOLE_BYTES", 8)
    (tmp_path / "large.json").write_text(text)
    assert proved(spark, str(tmp_path / "large.json"), tmp_path / "table").corrupt == 0
    assert rows(spark, tmp_path / "table") == [{"n": 1}, {"n": 2, "t": "}"}]


def test_a_large_file_with_something_else_between_its_records(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "WHOLE_BYTES", 8)
    (tmp_path / "large.json").write_text('[{"n":1}, oops, {"n":2}, {"n":3')
    assert proved(spark, str(tmp_path / "large.json"), tmp_path / "table").corrupt == 2
    kept = {row["_corrupt_record"] for row in rows(spark, tmp_path / "table") if "_corrupt_record" in row}
    assert kept == {"oops", '{"n":3'}


def test_json_in_a_column(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, '{"n":1,"a":0.10}'), (2, '{"n":2,"a":"x"}')], "offset int, value string")
    proved(spark, frame, tmp_path / "table", format="json")
    assert rows(spark, tmp_path / "table") == [{"n": 1, "a": "0.10", "a_double": 0.1}, {"n": 2, "a": "x"}]
    with pytest.raises(InvalidOption, match="`value`"):
        ingest(frame.drop("value"), str(tmp_path / "table"), format="json", spark=spark)


# ---- CSV and text ----------------------------------------------------------------------------------


def test_csv_holds_texts(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('n,"a b",c\r\n1,"x, ""y""\r\nz",\r\n2,007,""\r\n3,too,many,fields\r\n')
    done = proved(spark, str(tmp_path / "a.csv"), tmp_path / "table")
    assert (done.records, done.corrupt) == (2, 1)
    assert {types(tmp_path / "table")[name] for name in ("n", "a_b", "c")} == {"string"}
    kept, *found = rows(spark, tmp_path / "table")
    assert kept["_corrupt_record"] == "3,too,many,fields"
    assert found == [
        {"n": "1", "a_b": 'x, "y"\r\nz'},
        {"n": "2", "a_b": "007", "c": ""},
    ]


def test_files_of_csv_may_have_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.csv").write_text("n,a,a\n1,x,y\n")
    (source / "2.csv.gz").write_bytes(gzip.compress(b"b,n\nz,2\n"))
    (source / "3.tsv").write_text("n;a\n3;\u00e9\n", encoding="latin-1")
    with pytest.raises(InvalidOption, match="one character"):
        ingest(str(source), str(tmp_path / "table"), options={"sep": "::"}, spark=spark)
    proved(spark, [str(source / "1.csv"), str(source / "2.csv.gz")], tmp_path / "table")
    proved(spark, str(source / "3.tsv"), tmp_path / "table", options={"sep": ";", "encoding": "latin-1"})
    assert rows(spark, tmp_path / "table") == [
        {"n": "1", "a": "x", "a_2": "y"},
        {"n": "2", "b": "z"},
        {"n": "3", "a": "\u00e9"},
    ]


def test_texts_of_csv_are_numbers_where_they_come_back(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,a,b,zip,price\n1,true,1.5,01234,1.10\n2,false,2,04321,2\n")
    proved(spark, str(tmp_path / "a.csv"), tmp_path / "table", detect_types=True)
    found = types(tmp_path / "table")
    assert {name: found[name] for name in ("n", "a", "b", "zip", "price")} == {
        "n": "int",
        "a": "boolean",
        "b": "double",
        "zip": "string",
        "price": "string",
    }


@pytest.mark.parametrize("text", ["n,a\n1,x\n2,y\n", 'n,a\n1,"x\n"\n2,"\ny"\n'], ids=["lines", "line breaks in fields"])
def test_a_large_file_of_csv(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(raw, "WHOLE_BYTES", 8)
    (tmp_path / "large.csv").write_text(text)
    proved(spark, str(tmp_path / "large.csv"), tmp_path / "table")
    found = rows(spark, tmp_path / "table")
    assert [(row["n"], row["a"].strip()) for row in found] == [("1", "x"), ("2", "y")]
    assert ("\n" in found[0]["a"]) == ('"' in text)


def test_lines_of_text(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text('one\n\n{"n":1}\n')
    proved(spark, str(tmp_path / "a.log"), tmp_path / "table", format="text")
    assert [row["value"] for row in rows(spark, tmp_path / "table", "value")] == ["", "one", '{"n":1}']


# ---- which format ----------------------------------------------------------------------------------


def test_files_of_several_formats_are_not_mixed(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "a.csv").write_text("n\n1\n")
    (source / "b.json").write_text('{"n":2}')
    (source / "notes.txt").write_text("nothing")
    with pytest.raises(SourceError, match=r"csv \(.*a\.csv\) and json \(.*b\.json\)"):
        ingest(str(source), str(tmp_path / "table"), spark=spark)
    done = proved(spark, str(source), tmp_path / "table", format="csv")
    assert [Path(path).name for path in done.left_out] == ["b.json", "notes.txt"]
    assert rows(spark, tmp_path / "table") == [{"n": "1"}]


WORDS = [{"format": "xml"}, {"format": "csv", "options": {"colour": "red"}}, {"options": {"sep": ";"}}]


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_words_that_say_nothing(spark: SparkSession, tmp_path: Path, words: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"n": 1}))
    with pytest.raises(InvalidOption):
        ingest(str(tmp_path / "a.json"), str(tmp_path / "table"), spark=spark, **words)


# ---- paths -----------------------------------------------------------------------------------------


def test_relative_paths_are_those_of_the_folder_of_now(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM was started in another folder, in which nothing of this is."""
    here = tmp_path / "a [folder]"
    (here / "in").mkdir(parents=True)
    (here / "in" / "a.json").write_text('{"n":1}\n')
    (here / "in" / "b.json").write_text('{"n":null}\n')
    monkeypatch.chdir(here)
    create_table("strict", StructType((Field("n", LONG, nullable=False),)))
    proved(spark, "in", Path("table"))
    proved(spark, ["in/*.json", "./in/a.json"], Path("table"))
    done = proved(spark, "in", Path("strict"), quarantine="kept")
    assert done.quarantine == str(here / "kept")
    running = ingest_stream("in", "streamed", checkpoint="checkpoint", once=True, spark=spark)
    assert running.wait()
    assert {path.name for path in here.iterdir()} == {"in", "table", "strict", "kept", "streamed", "checkpoint"}
    found = Table("table").read(spark)
    assert sorted(row["n"] for row in found.where("n is not null").collect()) == [1, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"a [folder]"}
