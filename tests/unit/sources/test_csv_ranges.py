from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from widen.errors import SourceError
from widen.sources import csv_frames as csv_ranges
from widen.sources import file_ranges as line_range
from widen.sources.csv_dialect import CsvDialect, FieldGroup
from widen.sources.csv_frames import CsvRanges, read_csv_groups
from widen.sources.file_ranges import FileRange

ROWS = 'n,a b\r\n1,"x, ""y"""\r\n2,\r\n3,too,many\n\n4,""\n5,é'
RECORDS = [b'{"n":"1","a b":"x, \\"y\\""}', b'{"n":"2","a b":null}', b"3,too,many", b'{"n":"4","a b":""}']
LAST = '{"n":"5","a b":"é"}'.encode()


def read(path: Path, cuts: list[tuple[int, int]], dialect: CsvDialect, *, is_whole: bool = False) -> list[bytes]:
    ranges = [FileRange(f"file:{path}", *cut, is_whole) for cut in cuts]
    groups = read_csv_groups(msgspec.json.encode(CsvRanges(ranges, dialect)))
    texts: list[tuple[int, int, bytes]] = []
    for each in groups:
        for group in each.to_text_groups() if isinstance(each, FieldGroup) else [each]:
            texts += [(group.part, line, text) for line, text in zip(group.lines or [], group.texts, strict=True)]
    return [text for _, _, text in sorted(texts)]


@pytest.mark.parametrize("cut", range(1, len(ROWS.encode())))
def test_ranges_of_a_file_have_every_row_once(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbf" + ROWS.encode())
    ends = [0, cut, path.stat().st_size]
    assert read(path, list(pairwise(ends)), CsvDialect()) == [*RECORDS, LAST]


def test_a_small_file_is_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('n,ä\n"1\n1",€\n'.encode("utf-16"))
    size = path.stat().st_size
    found = read(path, [(0, size)], CsvDialect(encoding="utf-16"), is_whole=True)
    assert found == ['{"n":"1\\n1","ä":"€"}'.encode()]


def test_a_large_file_with_line_breaks_is_read_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_range, "BLOCK_BYTES", 4)
    path = tmp_path / "a.csv"
    path.write_bytes('n,é\n1,"a\n\nb"\n2,"c"\n3,"d\n"'.encode("cp1252"))
    found = read(path, [(0, path.stat().st_size)], CsvDialect(encoding="cp1252"), is_whole=True)
    assert found == [f'{{"n":"{n}","é":"{text}"}}'.encode() for n, text in ((1, r"a\n\nb"), (2, "c"), (3, r"d\n"))]


def test_bytes_that_the_encoding_does_not_have_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"n,a\n1,\x81\n2,x\n")
    assert read(path, [(0, 11)], CsvDialect(encoding="cp1252")) == [b"1,\x81", b'{"n":"2","a":"x"}']


@pytest.mark.parametrize(("text", "has_breaks"), [('a,"b"\n"c"\n', False), ('a,"b\nc"\n', True), ("a\nb\n", False)])
def test_a_field_with_a_line_break_is_found(tmp_path: Path, text: str, has_breaks: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with path.open("rb") as file:
        assert csv_ranges.starts_in_quotes(CsvDialect(), file, FileRange(f"file:{path}", 0, len(text))) is has_breaks


def test_an_encoding_with_wide_line_breaks_is_not_split() -> None:
    with pytest.raises(SourceError, match="too large to be read in utf-16"):
        csv_ranges.ensure_splittable("a.csv", CsvDialect(encoding="utf-16"))
