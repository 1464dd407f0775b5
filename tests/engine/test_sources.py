"""Where records may come from: large and packed files, CSV, lines of text, JSON in a column."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from widen import IngestResult, IntervalEvent, ingest, ingest_stream, plan, replay
from widen.batches.open_source import BatchReader
from widen.batches.text_tasks import BatchWriteSpec
from widen.errors import CorruptFile, InvalidOption, SourceChanged, SourceError, UnmatchedFields
from widen.evolution.plan import BadFile
from widen.evolution.policy import Policy
from widen.json.document import corrupt_text_to_bytes
from widen.json.observation import Observation
from widen.model.types import DATE, LONG, STRING, Field, StructType
from widen.sources import file_ranges
from widen.sources.listing import SourceFile, SourceFiles, count_partitions
from widen.table import Table, create_table


def proved(spark: SparkSession, source: Any, table: Path, **words: Any) -> IngestResult:
    done = ingest(source, str(table), verify=True, spark=spark, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def rows(spark: SparkSession, table: Path, order: str = "n") -> list[dict[str, Any]]:
    """The rows without what is null in them."""
    found = [
        row.asDict(recursive=True) for row in Table(str(table)).read(spark=spark).orderBy(*order.split(", ")).collect()
    ]
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


def test_many_tiny_files_become_a_file_for_each_core(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(2_000):
        (tmp_path / "in" / f"{n}.json").write_text(f'{{"n":{n}}}\n')
    proved(spark, str(tmp_path / "in"), tmp_path / "table")
    assert [row["n"] for row in rows(spark, tmp_path / "table")] == [*range(2_000)]
    cores = getattr(getattr(spark, "sparkContext", None), "defaultParallelism", 16)
    assert Table(str(tmp_path / "table")).files().num_rows <= cores
    source = SourceFiles((), (SourceFile("a.json", 2**30), SourceFile("b.json.gz", 2**28)))
    assert count_partitions(spark, source) == max(cores, 24)


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
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 8)
    (tmp_path / "large.json").write_text(text)
    assert proved(spark, str(tmp_path / "large.json"), tmp_path / "table").corrupt == 0
    assert rows(spark, tmp_path / "table") == [{"n": 1}, {"n": 2, "t": "}"}]


@pytest.mark.parametrize("name", ["plain.json", "with a space.json", "packed.json.gz"])
def test_tasks_share_the_lines_of_a_large_file(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 8)
    monkeypatch.setattr(file_ranges, "MIN_TASK_BYTES", 100)
    lines = [f'{{"n":{number},"t":"{"x" * (number % 40)}"}}' for number in range(200)]
    lines[70], lines[140] = "not a record", ""
    data = b"\xef\xbb\xbf" + "\r\n".join(lines).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    done = proved(spark, str(tmp_path / name), tmp_path / "table")
    assert (done.records, done.corrupt) == (198, 1)
    numbers = [row["n"] for row in rows(spark, tmp_path / "table") if "n" in row]
    assert sorted(numbers) == [number for number in range(200) if number not in (70, 140)]


def test_a_file_that_is_gone_is_named(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text('{"n":1}')
    batch = BatchReader().open(spark, str(tmp_path / "a.json"))
    (tmp_path / "a.json").unlink()
    with pytest.raises(CorruptFile, match=r"a\.json cannot be read: No such file or directory"):
        batch.observe(BatchWriteSpec(None, Observation().to_json(), StructType(), Policy()))


@pytest.mark.parametrize("name", ["late.json", "late.json.gz"])
def test_a_large_file_of_lines_in_which_records_take_several_lines_later(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 8)
    monkeypatch.setattr(file_ranges, "MIN_TASK_BYTES", 10)
    text = '{"n":1}\n{"n":2}\n{\n  "n": 3,\n  "t": "}"\n}\n{"n":4}\n{ "n": 5,\n  "r": {\n  "x": "{"\n}\n}\n'
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    lined = proved(spark, str(tmp_path / name), tmp_path / "lines")
    assert (lined.records, lined.corrupt) == (3, 9)
    assert name in str(lined.multi_line)
    assert lined.to_value()["multiLine"] == lined.multi_line
    whole = proved(spark, str(tmp_path / name), tmp_path / "whole", options={"multiLine": "true"})
    assert (whole.records, whole.corrupt, whole.multi_line) == (5, 0, None)
    assert [row["n"] for row in rows(spark, tmp_path / "whole")] == [1, 2, 3, 4, 5]


def test_a_first_interval_learns_its_columns_from_the_first_lines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ranges, "DRIVER_TASK_BYTES", 0)
    monkeypatch.setattr(file_ranges, "_SAMPLED_BYTES", 30)
    first_pass = BatchWriteSpec(None, Observation().to_json(), StructType(), Policy())
    (tmp_path / "a.json").write_text("".join(f'{{"n":{n}}}\n' for n in range(90)) + '{"n":90,"late":1}\n{"n":"x"}')
    assert BatchReader().open(spark, str(tmp_path / "a.json")).observe(first_pass).records == 4
    assert proved(spark, str(tmp_path / "a.json"), tmp_path / "lines").records == 92
    assert types(tmp_path / "lines") == {"n": "string", "n_int": "int", "late": "int"}
    # Lines of a record look like records, and the last line of the sample like a corrupt text.
    (tmp_path / "b.json").write_text('{"n":1}\n{"of":[\n{"z":2}\n,\n{"z":3}]}\n{"n":4}\n')
    assert BatchReader().open(spark, str(tmp_path / "b.json")).observe(first_pass).records == 3
    assert proved(spark, str(tmp_path / "b.json"), tmp_path / "records").corrupt == 0
    assert types(tmp_path / "records") == {"n": "int", "of": "array<struct<z: int>>"}


def test_a_first_interval_learns_its_columns_from_the_first_rows_of_csv(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ranges, "DRIVER_TASK_BYTES", 0)
    monkeypatch.setattr(file_ranges, "_SAMPLED_BYTES", 10)
    first_pass = BatchWriteSpec(None, Observation().to_json(), StructType(), Policy())
    (tmp_path / "a.csv").write_text("n,t\n" + "".join(f'{n},"x"\n' for n in range(90)) + '9.5,"on\ntwo"\n"x",\n')
    assert BatchReader().open(spark, str(tmp_path / "a.csv")).observe(first_pass).records < 5
    found = proved(spark, str(tmp_path / "a.csv"), tmp_path / "rows", detect_types=True)
    assert found.records == 92
    assert types(tmp_path / "rows") == {"n": "string", "n_double": "double", "t": "string"}
    # The sample would end within a field.
    (tmp_path / "b.csv").write_text('n,t\n1,"on\ntwo lines"\n2,b\n')
    assert BatchReader().open(spark, str(tmp_path / "b.csv")).observe(first_pass).records == 2
    assert proved(spark, str(tmp_path / "b.csv"), tmp_path / "broken").corrupt == 0


def test_a_large_file_with_something_else_between_its_records(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 8)
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


def test_a_value_may_hold_several_records(spark: SparkSession, tmp_path: Path) -> None:
    """As in small files: one after the other, over several lines, or beside lines that are not JSON."""
    texts = ['{"n":1}{"n":2}', '{\n "n": 3\n}\n{\n "n": 4\n}', 'oops\n{"n":5}', '[{"n":6},7]']
    done = proved(spark, spark.createDataFrame([(text,) for text in texts], "value string"), tmp_path, format="json")
    assert (done.records, done.corrupt, done.not_objects) == (6, 2, 1)
    found = rows(spark, tmp_path)
    assert [row["n"] for row in found if "n" in row] == [1, 2, 3, 4, 5, 6]
    assert {row["_corrupt_record"] for row in found if "n" not in row} == {"oops", "7"}


def test_json_that_is_not_an_object_is_kept_once_and_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"n":1}\n[1,2]\n5\n"x"\nnull\noops\n')
    done = proved(spark, str(tmp_path / "in.jsonl"), tmp_path / "table")
    assert (done.records, done.corrupt, done.not_objects) == (1, 5, 4)
    found = [row["_corrupt_record"] for row in rows(spark, tmp_path / "table") if "n" not in row]
    assert sorted(found) == sorted(["[1,2]", "5", '"x"', "null", "oops"])


@pytest.mark.parametrize("is_stream", [False, True])
def test_files_that_cannot_be_read_are_named_or_skipped(
    spark: SparkSession, tmp_path: Path, *, is_stream: bool
) -> None:
    """They do not block an interval if that is asked for; the quarantine, the result and the events name them."""
    source, table = tmp_path / "in", str(tmp_path / "table")
    source.mkdir()
    packed = gzip.compress(b"".join(b'{"n":%d,"t":"%d"}\n' % (at, at**9) for at in range(3000)))
    (source / "good.json").write_text('{"n":1}\n')
    (source / "bad 1%.json.gz").write_bytes(packed[:-2000])
    (source / "bad2.json.gz").write_bytes(b"no gzip")
    events: list[IntervalEvent] = []
    if is_stream:
        done_list: list[IngestResult] = []
        ingest_stream(
            str(source), table, checkpoint=str(tmp_path / "checkpoint"), spark=spark, once=True, verify=True,
            skip_bad_files=True, on_event=events.append, on_interval=done_list.append,
        ).wait()  # fmt: skip
        [done] = done_list
    else:
        with pytest.raises(CorruptFile, match="bad"):
            ingest(str(source), table, spark=spark)
        done = proved(spark, str(source), Path(table), skip_bad_files=True, on_event=events.append)
    assert done.verification is not None
    assert done.verification.is_clean
    names = [file.path.rpartition("/")[2] for file in done.bad_files]
    assert (done.records, sorted(names)) == (1, ["bad 1%.json.gz", "bad2.json.gz"])
    assert [event.event for event in events if isinstance(event.event, BadFile)] == [*done.bad_files]
    kept = Table(table + "_quarantine").read(spark=spark).collect()
    assert {(row["text"], row["file"].rpartition("/")[2]) for row in kept} == {(None, name) for name in names}
    assert all(row["reason"].startswith("the file cannot be read: ") for row in kept)
    assert replay(table + "_quarantine", table, spark=spark).replayed == 0
    (_, _, info), *_ = Table(table).history()
    assert info["operationMetrics"]["numBadFiles"] == "2"


READERS = {
    "this process": ("b.csv", 2**20, "it has 12 bytes, not 15"),
    "tasks": ("b.csv", 0, "it has 12 bytes, not 15"),
    "Spark": ("b c.csv", 2**20, "it was deleted"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_changes_after_it_is_listed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    """What was read of it may end in the half of a record, which is a whole one in CSV."""
    name, local_bytes, told = READERS[reader]
    source, table = tmp_path / "in", tmp_path / "table"
    source.mkdir()
    find_files = BatchReader.find_files

    def find_and_change(*words: Any, **more: Any) -> SourceFiles:
        (source / "a.csv").write_text("n,t\n1,first\n")
        (source / name).write_text("n,t\n2,a\n3,long\n")
        listed = find_files(*words, **more)
        if told == "it was deleted":
            (source / name).unlink()
        else:
            os.truncate(source / name, 12)
        return listed

    monkeypatch.setattr(BatchReader, "find_files", find_and_change)
    monkeypatch.setattr(file_ranges, "DRIVER_TASK_BYTES", local_bytes)
    with pytest.raises(SourceChanged, match=f"{name} changed after it was listed: {told}"):
        ingest(str(source), str(table), spark=spark)
    assert not [path for path in table.rglob("*") if path.is_file()]
    if reader == "Spark":
        done = ingest(str(source), str(table), spark=spark, skip_bad_files=True)
        assert done.records == 1
        assert [(Path(file.path).name, told in file.reason) for file in done.bad_files] == [(name, True)]
        assert [Path(file.path).name for file in Table(str(table)).loads()[0].files] == ["a.csv"]


def test_damaged_parquet_is_named_or_skipped(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("good", "footer", "pages"):
        pq.write_table(pa.table({"n": list(range(1000))}), tmp_path / f"{name}.parquet", compression="none")
    whole = (tmp_path / "pages.parquet").read_bytes()
    (tmp_path / "footer.parquet").write_bytes(whole[:-9])
    (tmp_path / "pages.parquet").write_bytes(whole[:4] + b"\xff" * 64 + whole[68:])
    done = proved(spark, str(tmp_path / "*.parquet"), tmp_path / "table", skip_bad_files=True)
    assert done.records == 1000
    assert {file.path.rpartition("/")[2] for file in done.bad_files} == {"footer.parquet", "pages.parquet"}
    with pytest.raises(SourceError, match=r"no file can be read: .*footer\.parquet"):
        ingest(str(tmp_path / "footer.parquet"), str(tmp_path / "other"), spark=spark, skip_bad_files=True)


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


def test_csv_in_another_encoding_loses_no_byte(spark: SparkSession, tmp_path: Path) -> None:
    """A row with bytes that the encoding does not have is kept with the bytes of the file, and so are bad rows."""
    (tmp_path / "in.csv").write_bytes(b"n,a\n1,caf\xe9\n2,\x81\xe9\\x81\n3,\xe9,\x81\n")
    done = proved(spark, str(tmp_path / "in.csv"), tmp_path / "table", options={"encoding": "cp1252"})
    assert (done.records, done.corrupt) == (1, 2)
    kept = [row["_corrupt_record"] for row in rows(spark, tmp_path / "table") if "n" not in row]
    assert {corrupt_text_to_bytes(text) for text in kept} == {b"2,\x81\xe9\\x81", b"3,\xe9,\x81"}
    assert [row["a"] for row in rows(spark, tmp_path / "table") if "n" in row] == ["café"]
    (tmp_path / "names.csv").write_bytes("é,ü\n1,2\n".encode("cp1252"))
    proved(spark, str(tmp_path / "names.csv"), tmp_path / "names", options={"encoding": "cp1252"})
    assert Table(str(tmp_path / "names")).to_arrow().to_pylist() == [{"é": "1", "ü": "2"}]
    (tmp_path / "cut.csv").write_bytes("n,a\n1,x".encode("utf-16")[:-1])
    (tmp_path / "whole.csv").write_bytes("n,a\n1,é".encode("utf-16"))
    sources = [str(tmp_path / "cut.csv"), str(tmp_path / "whole.csv")]
    cut = ingest(sources, str(tmp_path / "cut"), options={"encoding": "utf-16"}, spark=spark)
    assert (cut.records, cut.corrupt) == (1, 1)


def test_files_of_csv_may_have_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "1.csv").write_text("n,a,a\n1,x,y\n")
    (source / "2.csv.gz").write_bytes(gzip.compress(b"b,n\nz,2\n"))
    (source / "3.tsv").write_text("n;a\n3;\u00e9\n", encoding="latin-1")
    with pytest.raises(InvalidOption, match="single character"):
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
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 8)
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
    found = Table("table").read(spark=spark)
    assert sorted(row["n"] for row in found.where("n is not null").collect()) == [1, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"a [folder]"}


# ---- folders and files -----------------------------------------------------------------------------


def written(place: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return str(place)


def sources(table: Path) -> dict[str, list[str]]:
    return {field.name: field.metadata.get("widen.source", []) for field in Table(str(table)).schema}


def test_folders_are_fields(spark: SparkSession, tmp_path: Path) -> None:
    place = written(
        tmp_path / "hive",
        {
            "dt=2026-01-01/region=eu/f.json": '{"n":1}\n[{"n":2}]\n{}\nno record\n',
            "dt=2026-01-02/region=__HIVE_DEFAULT_PARTITION__/f.json": '[{"n":3}]',
            "dt=10%3A30+1/region=a b%/f.json": '{"n":4,"dt":"own","region=":5}\n{"n":5}\n',
        },
    )
    assert proved(spark, place, tmp_path / "table").corrupt == 1
    corrupt, no_number, *found = rows(spark, tmp_path / "table", "n, dt_2")
    assert corrupt["_corrupt_record"] == "no record"
    assert no_number == {"dt_2": "2026-01-01", "region": "eu"}
    assert found == [
        {"n": 1, "dt_2": "2026-01-01", "region": "eu"},
        {"n": 2, "dt_2": "2026-01-01", "region": "eu"},
        {"n": 3, "dt_2": "2026-01-02"},
        {"n": 4, "dt": "own", "dt_2": "10:30+1", "region": "5", "region_int": 5, "region_2": "a b%"},
        {"n": 5, "dt_2": "10:30+1", "region": "a b%"},
    ]
    known = sources(tmp_path / "table")
    assert (known["dt"], known["dt_2"], known["region_2"]) == (["dt"], ["dt="], ["region=="])
    one = tmp_path / "hive" / "dt=2026-01-01" / "region=eu" / "f.json"
    proved(spark, str(one), tmp_path / "one")
    assert rows(spark, tmp_path / "one")[-1] == {"n": 2, "dt": "2026-01-01", "region": "eu"}
    proved(spark, place, tmp_path / "without", partition_folders=False)
    assert types(tmp_path / "without").keys() == {"n", "dt", "region", "_corrupt_record", "_corrupt_at"}


def test_folders_are_the_same_fields_for_every_format(spark: SparkSession, tmp_path: Path) -> None:
    folders = "day=2024-01-31/k=a%2520b/k=10%253A30+1"
    (tmp_path / "typed").mkdir()
    spark.sql("SELECT 1 AS n, 'own' AS day").write.parquet(str(tmp_path / "typed" / folders.replace("%25", "%")))
    places = {
        "json": written(tmp_path / "json", {folders.replace("%25", "%") + "/a.json": '{"n":1,"day":"own"}'}),
        "csv": written(tmp_path / "csv", {folders.replace("%25", "%") + "/a.csv": "n,day\n1,own\n"}),
        "parquet": str(tmp_path / "typed"),
    }
    for name, place in places.items():
        proved(spark, place, tmp_path / "table" / name)
        (row,) = rows(spark, tmp_path / "table" / name)
        assert {**row, "n": 1} == {"n": 1, "day": "own", "day_2": "2024-01-31", "k": "a b", "k_2": "10:30+1"}, name


def test_what_is_said_of_a_field_holds_for_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    place = written(tmp_path / "in", {"dt=2026-01-01/who=me/f.json": '{"n":1}'})
    proved(spark, place, tmp_path / "table", pins={"dt": "date"})
    assert rows(spark, tmp_path / "table") == [{"n": 1, "dt": date(2026, 1, 1), "who": "me"}]


@pytest.mark.parametrize("option", ["mask", "exclude"])
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_a_hidden_field_in_the_name_of_a_folder_is_refused(
    spark: SparkSession, tmp_path: Path, option: str, form: str
) -> None:
    """The path of a file is in positions, in the record of loads and in `_source_file`."""
    hidden = {option: ["Who.name"]}
    folder = tmp_path / "in" / "who=Ann%20Secret"
    if form == "parquet":
        spark.sql("SELECT 1 AS n").write.parquet(str(folder))
        source = str(tmp_path / "in")
    else:
        source = written(tmp_path / "in", {"who=Ann%20Secret/f.json": '{"n":1}\nbad'})
    table = str(tmp_path / "table")
    with pytest.raises(InvalidOption, match=rf"{option} cannot be 'Who.name'. Folders named who=... spell out"):
        ingest(source, into=table, new=True, source_columns=True, spark=spark, **hidden)
    with pytest.raises(InvalidOption, match="Folders named who"):
        plan(source, into=table, spark=spark, **hidden)
    assert not Path(table).exists()
    assert not Path(f"{table}_quarantine").exists()
    done = ingest(source, into=table, partition_folders=False, allow_unmatched=True, spark=spark, **hidden)
    assert "who" not in done.plan.schema.names


def test_a_declared_column_takes_the_folders_of_its_name(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType((Field("n", LONG), Field("day", DATE), Field("region", STRING)))
    create_table(str(tmp_path / "table"), schema, partition_by=["region"], spark=spark)
    place = written(tmp_path / "in", {"region=eu/f.json": '{"n":1}', "region=us/f.json": '{"n":2}'})
    for _ in range(2):
        proved(spark, place, tmp_path / "table")
    assert [row["region"] for row in rows(spark, tmp_path / "table", "n, region")] == ["eu", "eu", "us", "us"]
    own = written(tmp_path / "own", {"region=eu/f.json": '{"n":3,"region":"own"}'})
    proved(spark, own, tmp_path / "table")
    assert rows(spark, tmp_path / "table")[-1] == {"n": 3, "region": "eu", "region_2": "own"}


def test_a_quarantine_keeps_the_fields_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType((Field("n", LONG, nullable=False), Field("region", STRING)))
    create_table(str(tmp_path / "table"), schema, spark=spark)
    place = written(tmp_path / "in", {"region=eu/f.json": '{"n":1}\n{"n":"x"}\n'})
    done = proved(spark, place, tmp_path / "table")
    assert done.quarantine
    assert json.loads(rows(spark, Path(done.quarantine), "text")[0]["text"]) == {"n": "x", "region=": "eu"}


def test_rows_tell_their_file_and_the_time_of_the_load(spark: SparkSession, tmp_path: Path) -> None:
    place = written(tmp_path / "in", {"a b.json": '{"n":1,"_source_file":"own"}\n{"n":2}'})
    before = datetime.now(timezone.utc)
    proved(spark, place, tmp_path / "table", source_columns=True)
    first, second = Table(str(tmp_path / "table")).read(spark=spark).orderBy("n").collect()
    assert first["_source_file"] == "own"
    assert second["_source_file_2"] == f"file:{place}/a%20b.json"
    assert types(tmp_path / "table")["_loaded_at"] == "timestamp"
    frame = spark.sql("SELECT 1 AS n")
    proved(spark, frame, tmp_path / "typed", source_columns=True)
    (loaded,) = Table(str(tmp_path / "typed")).read(spark=spark).selectExpr("unix_micros(_loaded_at)").collect()
    assert before.timestamp() * 1e6 - 1 <= loaded[0] <= datetime.now(timezone.utc).timestamp() * 1e6 + 1


# ---- names of fields -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_typed", [False, True])
def test_options_that_name_no_field_are_told_or_refused(spark: SparkSession, tmp_path: Path, is_typed: bool) -> None:
    """A slip in a name must not store a password in clear without a word."""
    source: Any = spark.sql("SELECT 1 AS n, 'secret' AS password, 'x' AS city")
    if not is_typed:
        source = written(tmp_path / "in", {"a.json": '{"n":1,"password":"secret","city":"x"}'})
    table, slip = tmp_path / "table", {"mask": ["pasword"], "exclude": ["city"]}
    with pytest.raises(UnmatchedFields, match=r"mask pasword.*Did you mean password"):
        ingest(source, str(table), spark=spark, strict=True, **slip)
    with pytest.raises(UnmatchedFields):
        plan(source, str(table), spark=spark, strict=True, **slip)
    assert not [path for path in table.rglob("*") if path.is_file()]
    events: list[IntervalEvent] = []
    with pytest.raises(UnmatchedFields):
        ingest(source, str(table), spark=spark, **slip)
    done = ingest(source, str(table), spark=spark, on_event=events.append, allow_unmatched=True, **slip)
    assert [(each.option, each.source, each.nearest) for each in done.plan.unmatched] == [
        ("mask", ("pasword",), ("password",))
    ]
    assert "mask" in [each.to_value().get("option") for each in events]
    done = ingest(source, str(table), spark=spark, strict=True, mask=["password"], exclude=["city"], pins={"n": "int"})
    assert done.plan.unmatched == ()
    with pytest.raises(UnmatchedFields, match="the table has this field as int"):
        ingest(source, str(table), spark=spark, strict=True, pins={"n": "string"})


def test_small_files_hold_records_in_any_order_of_lines(spark: SparkSession, tmp_path: Path) -> None:
    """As Firehose and jq write them, and with a damaged head."""
    files = {
        "firehose.json": '{"n":1}{"n":2}{"n":3}',
        "jq.json": '{\n  "n": 4,\n  "a": [\n    1\n  ]\n}\n{\n  "n": 5\n}\n',
        "damaged.json": "bad\n" * 21 + '{"n":6}\n',
    }
    done = proved(spark, written(tmp_path / "in", files), tmp_path / "table")
    assert (done.records, done.corrupt) == (6, 21)
    (tmp_path / "bytes.json").write_bytes(b'{"n":7}\n\xff\\xff\n')
    proved(spark, str(tmp_path / "bytes.json"), tmp_path / "bytes")
    assert [row["_corrupt_record"] for row in rows(spark, tmp_path / "bytes")[:1]] == [r"b'\xff\\xff'"]
