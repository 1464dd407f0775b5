"""What a stray quote, other line ends and damaged rows become, in files that tasks and this process read."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import msgspec
import pytest

from widen.batches.text_tasks import read_record_groups
from widen.errors import CorruptFile, WidenError
from widen.sources import file_ranges as line_range
from widen.sources.csv_dialect import CsvDialect, FieldGroup, parse_dialect
from widen.sources.csv_frames import CsvRanges, _texts_of_files, read_csv_groups
from widen.sources.file_ranges import FILE, PART, TEXT, WHOLE, FileRange, TextGroup

import pyarrow as pa  # isort: skip

Refused = tuple[int, bytes, str]


def groups(path: Path, dialect: CsvDialect, *, by_spark: bool = False) -> list[TextGroup]:
    """The groups of a file as a task reads it, or as Spark passes it on."""
    if by_spark:
        raw = {TEXT: path.read_bytes(), FILE: f"file:{path}", PART: 0, WHOLE: True}
        return list(read_record_groups(_texts_of_files(dialect, [pa.RecordBatch.from_pylist([raw])])))  # type: ignore[arg-type]
    ranges = [FileRange(f"file:{path}", 0, path.stat().st_size, True)]
    found = read_csv_groups(msgspec.json.encode(CsvRanges(ranges, dialect)))
    return [each for group in found for each in (group.to_text_groups() if isinstance(group, FieldGroup) else [group])]


def read(
    path: Path, data: bytes, dialect: CsvDialect | None = None, *, by_spark: bool = False
) -> tuple[list[dict[str, str | None]], list[Refused]]:
    """The records of a file, and its refused lines."""
    path.write_bytes(data)
    records, refused = [], []
    for group in groups(path, dialect or CsvDialect(), by_spark=by_spark):
        if group.reasons is None:
            records += [msgspec.json.decode(text) for text in group.texts]
        else:
            refused += list(zip(group.lines or [], group.texts, group.reasons, strict=True))
    return records, refused


def rows(count: int, changes: dict[int, str] | None = None) -> bytes:
    """A file of rows ``number,name``; its first line is the header."""
    lines = ["n,name", *(f"{number},x{number}" for number in range(2, count + 1))]
    for line, text in (changes or {}).items():
        lines[line - 1] = text
    return "\n".join(lines).encode() + b"\n"


@pytest.fixture(params=["tasks", "blocks", "spark"])
def by_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "blocks":
        monkeypatch.setattr(line_range, "BLOCK_BYTES", 7)
        monkeypatch.setattr(line_range.read_line_blocks, "__defaults__", (7,))
    return request.param == "spark"


def test_a_stray_quote_counts_each_line_that_it_swallows(tmp_path: Path, *, by_spark: bool) -> None:
    """The field ends at another stray quote: 51 lines in one field, with as many fields as the header has."""
    data = rows(1000, {900: '900,"abc', 950: '950,x"'})
    records, refused = read(tmp_path / "a.csv", data, by_spark=by_spark)
    assert len(records) == 999 - 51
    assert [line for line, _, _ in refused] == list(range(900, 951))
    assert [text for _, text, _ in refused] == data.splitlines()[899:950]
    assert {reason for _, _, reason in refused} == {
        "not a CSV record: the quote at line 900, column 5 opens a field whose 51 lines look like rows"
    }


def test_a_stray_quote_that_a_quoted_field_closes(tmp_path: Path, *, by_spark: bool) -> None:
    data = rows(1000, {900: '900,"abc', 902: '902,"def"', 903: '903,"ok"'})
    records, refused = read(tmp_path / "a.csv", data, by_spark=by_spark)
    assert len(records) == 996
    assert [line for line, _, _ in refused] == [900, 901, 902]
    assert refused[0][2] == "not a CSV record: the quote at line 900, column 5 has text after its closing quote"
    assert {"n": "903", "name": "ok"} in records


def test_a_stray_quote_that_makes_a_row_of_another_width(tmp_path: Path, *, by_spark: bool) -> None:
    data = rows(100, {50: '50,"abc', 60: '60,x",y'})
    records, refused = read(tmp_path / "a.csv", data, by_spark=by_spark)
    assert len(records) == 99 - 11
    assert [(line, reason) for line, _, reason in refused] == [
        (line, "not a CSV record: 3 fields where the header has 2") for line in range(50, 61)
    ]


def test_a_quote_that_is_open_at_the_end_makes_a_damaged_file(tmp_path: Path, *, by_spark: bool) -> None:
    with pytest.raises(
        CorruptFile, match=r"a\.csv cannot be read: the quote at line 900, column 5 is not closed"
    ) as error:
        read(tmp_path / "a.csv", rows(1000, {900: '900,"abc'}), by_spark=by_spark)
    assert "multiLine=false" in error.value.advice
    with pytest.raises(CorruptFile, match="line 1, the header, is not closed"):
        read(tmp_path / "a.csv", b'n,"name\n1,2\n', by_spark=by_spark)


def test_without_multi_line_only_the_line_of_the_quote_is_lost(tmp_path: Path, *, by_spark: bool) -> None:
    data = rows(1000, {900: '900,"abc', 950: '950,x"'})
    records, refused = read(tmp_path / "a.csv", data, parse_dialect({"multiLine": "false"}), by_spark=by_spark)
    assert len(records) == 998
    assert refused == [(900, b'900,"abc', "not a CSV record: the quote at line 900, column 5 is not closed")]
    records, refused = read(tmp_path / "a.csv", data, parse_dialect({"multiline": "true"}), by_spark=by_spark)
    assert (len(records), refused) == (949, [])


LEGITIMATE = [
    ('1,"Main St\nParis, France"', {"n": "1", "name": "Main St\nParis, France"}),
    ('1,"Dear Bob,\n\nthank you, see below\nEve"', {"n": "1", "name": "Dear Bob,\n\nthank you, see below\nEve"}),
    ('1,"one\r\ntwo\rthree"', {"n": "1", "name": "one\r\ntwo\rthree"}),
    ('"1","say ""yes"",\n""no"""', {"n": "1", "name": 'say "yes",\n"no"'}),
    ('1,5" pipe', {"n": "1", "name": '5" pipe'}),
    ('1,b"', {"n": "1", "name": 'b"'}),
    ('1,""', {"n": "1", "name": ""}),
    ('1,"\n"', {"n": "1", "name": "\n"}),
]


@pytest.mark.parametrize(("row", "expected"), LEGITIMATE)
def test_legitimate_fields_over_several_lines_are_loaded(
    tmp_path: Path, row: str, expected: dict[str, str], *, by_spark: bool
) -> None:
    records, refused = read(tmp_path / "a.csv", rows(50, {20: row}), by_spark=by_spark)
    assert (len(records), refused) == (49, [])
    assert records[18] == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_line_end_works(tmp_path: Path, end: str, *, by_spark: bool) -> None:
    text = end.join(["", "n,name", "1,a", "", '2,"b"', "3", '4,"c', 'c"', ""])
    records, refused = read(tmp_path / "a.csv", text.encode(), by_spark=by_spark)
    assert records == [{"n": "1", "name": "a"}, {"n": "2", "name": "b"}, {"n": "4", "name": f"c{end}c"}]
    assert refused == [(6, b"3", "not a CSV record: 1 field where the header has 2")]


def test_mixed_line_ends(tmp_path: Path, *, by_spark: bool) -> None:
    records, _ = read(tmp_path / "a.csv", b"n,name\r1,a\r\n2,b\n3,c\r\r4,d", by_spark=by_spark)
    assert [record["n"] for record in records] == ["1", "2", "3", "4"]


def test_rows_that_look_like_json_and_bytes_of_no_text_are_refused(tmp_path: Path, *, by_spark: bool) -> None:
    records, refused = read(tmp_path / "a.csv", b'n,name\n{"n":1}\n2,\xff\n3,"\xfe\n"\n4,d\n', by_spark=by_spark)
    assert records == [{"n": "4", "name": "d"}]
    assert refused == [
        (2, b'{"n":1}', "not a CSV record: 1 field where the header has 2"),
        (3, b"2,\xff", "not a CSV record: it is not UTF-8"),
        (4, b'3,"\xfe', "not a CSV record: it is not UTF-8"),
        (5, b'"', "not a CSV record: it is not UTF-8"),
    ]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.bz2"])
def test_a_row_over_the_limit_is_named(tmp_path: Path, name: str) -> None:
    data = rows(9, {5: "5," + "x" * 200})
    pack = {"csv": bytes, "gz": gzip.compress, "bz2": bz2.compress}[name.rpartition(".")[2]]
    dialect = parse_dialect({}, max_record_bytes=100)
    with pytest.raises(CorruptFile, match=r"the record at byte \d+ is longer than 100 bytes"):
        read(tmp_path / name, pack(data), dialect)
    assert len(read(tmp_path / name, pack(rows(2000)), dialect)[0]) == 1999
    with pytest.raises(CorruptFile, match=r"the quote at line 5, column 3 is not closed within 100 bytes"):
        read(tmp_path / name, pack(rows(300, {5: '5,"x'})), dialect)


MAGIC = {
    b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml": "Excel workbook",
    b"PK\x03\x04" + bytes(26) + b"orders.csv": "zip archive",
    b"%PDF-1.7\n": "PDF",
    "n,a\n1,2\n".encode("utf-16"): "UTF-16",
    "n,name\n1,2\n".encode("utf-16-le"): "UTF-16LE",
    "n,name\n1,2\n".encode("utf-16-be"): "UTF-16BE",
    "n,name\n1,2\n".encode("utf-32"): "UTF-32",
    "n,name\n1,2\n".encode("utf-32-be"): "UTF-32BE",
    b"\n<!DOCTYPE html><html>": "HTML",
    b'<?xml version="1.0"?><Error>': "XML",
    gzip.compress(b"n\n1\n"): "gzip",
    b"PAR1\x15\x04": "Parquet",
}


@pytest.mark.parametrize(("data", "found"), MAGIC.items(), ids=MAGIC.values())
def test_files_of_another_format_are_named(tmp_path: Path, data: bytes, found: str, *, by_spark: bool) -> None:
    with pytest.raises(WidenError, match=f"it is .*{found}"):
        read(tmp_path / "a.csv", data, by_spark=by_spark)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
def test_wide_encodings_that_are_named_are_read(tmp_path: Path, encoding: str, *, by_spark: bool) -> None:
    dialect = CsvDialect(encoding=encoding)
    records, _ = read(tmp_path / "a.csv", "n,ä\n1,€\n".encode(encoding), dialect, by_spark=by_spark)
    assert [list(record.values()) for record in records] == [["1", "€"]]


def test_an_empty_field_at_the_end_of_a_file_is_null_after_a_quoted_field(tmp_path: Path, by_spark: bool) -> None:
    assert read(tmp_path / "a.csv", b'n,name\n"1",', by_spark=by_spark) == ([{"n": "1", "name": None}], [])


def test_a_header_with_an_open_quote_is_refused_also_for_single_lines(tmp_path: Path, by_spark: bool) -> None:
    with pytest.raises(CorruptFile, match="a quote in line 1, the header, is not closed"):
        read(tmp_path / "a.csv", b'n,"name\n1,2\n', CsvDialect(multi_line=False), by_spark=by_spark)


def test_a_header_is_read_by_the_dialect(tmp_path: Path, by_spark: bool) -> None:
    escaped = CsvDialect(escape="\\")
    assert read(tmp_path / "a.csv", b'"a\\"b",c\n1,2\n', escaped, by_spark=by_spark)[0] == [{'a"b': "1", "c": "2"}]
    plain = CsvDialect(quote=None)
    assert read(tmp_path / "a.csv", b'"a",b\n1,2\n', plain, by_spark=by_spark)[0] == [{'"a"': "1", "b": "2"}]


def test_half_a_character_of_utf_16(tmp_path: Path, by_spark: bool) -> None:
    data = "n,name\n1,x\n".encode("utf-16-le") + b"2\0,\0\x84\xdc\n\0"
    records, refused = read(tmp_path / "a.csv", data, CsvDialect(encoding="utf-16-le"), by_spark=by_spark)
    assert records == [{"n": "1", "name": "x"}]
    assert len(refused) == 1
