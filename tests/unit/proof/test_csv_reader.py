"""The CSV reader of the proof: what it yields, typed by hand, and beside the csv module of Python."""

from __future__ import annotations

import csv
import io
import json
import random

import msgspec
import pyarrow as pa
import pytest

from widen.proof.csv_reader import CsvForm, CsvReader, is_one_row, read_csv_file, read_csv_head
from widen.sources import csv_dialect as writer_csv
from widen.sources import csv_frames

CASES: dict[str, tuple[bytes, CsvForm, list[object]]] = {
    "null and empty": (b'a,b\n1,\n,""\n', CsvForm(), [{"a": "1", "b": None}, {"a": None, "b": ""}]),
    "null at the end after a quote": (b'a,b\n"x",', CsvForm(), [{"a": "x", "b": None}]),
    "doubled quotes": (b'a,b\n"say ""yes""",x"y\n', CsvForm(), [{"a": 'say "yes"', "b": 'x"y'}]),
    "over lines": (
        b'a,b\r\n"x\r\n\r\ny",1\r\n\r\n2,3',
        CsvForm(),
        [{"a": "x\r\n\r\ny", "b": "1"}, {"a": "2", "b": "3"}],
    ),
    "carriage returns": (b"a,b\r1,2\r", CsvForm(), [{"a": "1", "b": "2"}]),
    "padded": (b'a,b\n"x"  ,y\n', CsvForm(), [{"a": "x  ", "b": "y"}]),
    "text after a quote": (b'a,b\n"x"y,1\n2,3\n', CsvForm(), [b'"x"y,1', {"a": "2", "b": "3"}]),
    "another width": (b'a,b\n1\n"x\ny",2,3\n', CsvForm(), [b"1", b'"x', b'y",2,3']),
    "swallowed lines": (b'a,b\n1,x\n2,"y\n3,z"\n', CsvForm(), [{"a": "1", "b": "x"}, b'2,"y', b'3,z"']),
    "known to take lines": (
        b'a,b\n1,x\n2,"y\n3,z"\n',
        CsvForm(is_multi_line=True),
        [{"a": "1", "b": "x"}, {"a": "2", "b": "y\n3,z"}],
    ),
    "known to take one line": (b'a,b\n2,"y\n3,z\n', CsvForm(is_multi_line=False), [b'2,"y', {"a": "3", "b": "z"}]),
    "never closed": (b'a,b\n2,"y\n3,z\n', CsvForm(), [b'2,"y', b"3,z"]),
    "escapes": (b'a,b\n"x\\"y",p\\,q\n', CsvForm(escape=b"\\"), [{"a": 'x"y', "b": "p,q"}]),
    "no quotes": (b'a,b\n"x,y"\n', CsvForm(quote=b""), [{"a": '"x', "b": 'y"'}]),
    "another null": (b'a,b\nNA,"NA"\n,x\n', CsvForm(null=b"NA"), [{"a": None, "b": "NA"}, {"a": "", "b": "x"}]),
    "names": (b"\xef\xbb\xbf\n\na,a,a_2\n1,2,3\n", CsvForm(), [{"a": "1", "a_2": "2", "a_2_2": "3"}]),
    "no header": (b"1,2\n", CsvForm(has_header=False), [{"_c0": "1", "_c1": "2"}]),
    "values": (
        b'a,b,c\n1,true,"07"\n',
        CsvForm(values=r"true|[1-9]"),
        [{"a": 1, "b": True, "c": "07"}],
    ),
    "not UTF-8": (b"a,b\n1,\xff\n2,x\n", CsvForm(), [b"1,\xff", {"a": "2", "b": "x"}]),
    "not in its encoding": (b"a,b\n1,\x81\n2,\xe9\n", CsvForm(encoding="cp1252"), [b"1,\x81", {"a": "2", "b": "é"}]),
    "UTF-16": ("a;b\n1;é\n".encode("utf-16"), CsvForm(separator=b";", encoding="utf-16"), [{"a": "1", "b": "é"}]),
    "nothing": (b"\n\n", CsvForm(), []),
}


@pytest.mark.parametrize("name", CASES)
def test_texts_of_a_file(name: str) -> None:
    data, form, expected = CASES[name]
    found = list(read_csv_file(data, form))
    assert [json.loads(each.text) if each.is_record else each.text for each in found] == expected


@pytest.mark.parametrize("name", [name for name, (_, form, _) in CASES.items() if form.is_utf8])
def test_a_file_in_parts_has_the_same_texts(name: str) -> None:
    data, form, _ = CASES[name]
    head = read_csv_head(data, form)
    for cut in range(head.size, len(data)):
        if not data[:cut].endswith((b"\n", b"\r")) or data[cut - 1 : cut + 1] == b"\r\n":
            continue
        reader = CsvReader(form, head)
        first = reader.read(data[head.size : cut].splitlines(keepends=True))
        rest = reader.read(data[cut:].splitlines(keepends=True), is_end=True)
        assert [each.is_record for each in (*first, *rest)] == [each.is_record for each in read_csv_file(data, form)]


def test_rows_are_those_of_the_csv_module() -> None:
    """The module does not tell an empty field from a quoted one, so there are no empty fields here."""
    chance = random.Random(7)
    for _ in range(300):
        width = chance.randrange(2, 5)
        rows = [
            ["".join(chance.choices('ab", \né;', k=chance.randrange(1, 8))) for _ in range(width)] for _ in range(9)
        ]
        text = io.StringIO()
        csv.writer(text, lineterminator=chance.choice(("\n", "\r\n"))).writerows([["k"] * width, *rows])
        found = list(read_csv_file(text.getvalue().encode(), CsvForm(is_multi_line=True)))
        expected = list(csv.reader(io.StringIO(text.getvalue(), newline="")))[1:]
        assert [[*json.loads(each.text).values()] for each in found if each.is_record] == expected == rows


def test_a_line_that_needs_the_next_one() -> None:
    assert not is_one_row(b'1,"x\n', CsvForm())
    assert not is_one_row(b'"x"y,"z\n', CsvForm())
    assert is_one_row(b'1,x"y,"z"\n', CsvForm())


def test_nothing_is_shared_with_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof finds a defect in what cuts the rows of the writer only if it does not use it."""
    for name in ("RowScanner", "parse_rows", "read_header", "read_head", "look_at_head", "to_utf8", "has_breaks"):
        monkeypatch.delattr(csv_frames, name)
    for name in ("_find_spans", "_read_columns", "learn_style", "_naive_fields", "_kind"):
        monkeypatch.delattr(writer_csv, name)
    raw = {"text": b'a,b\n1,x\n2,"y\nz"\n3\n', "file": "file:/a.csv", "part": 0, "whole": True}
    found = list(csv_frames._prove_files(CsvForm(), [pa.RecordBatch.from_pylist([raw])]))
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [msgspec.json.decode(row["text"]) for row in rows[:-1]] == [{"a": "1", "b": "x"}, {"a": "2", "b": "y\nz"}]
    assert msgspec.msgpack.decode(rows[-1]["text"])[1] == [b"3"]
