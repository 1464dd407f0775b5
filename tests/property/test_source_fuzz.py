"""Damaged sources: each row of a damaged file is right, or counted as corrupt, or the file is refused by name.

``WIDEN_FUZZ_COUNT=2000`` reads 2,000 files of each format; ``WIDEN_FUZZ_FIRST`` chooses the first seed.
"""

from __future__ import annotations

import bz2
import gzip
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa
import pytest

from support.damage import damage
from widen.errors import WidenError
from widen.json.document import parse_document, split_records
from widen.proof.csv_reader import CsvForm, read_csv_file
from widen.sources import csv_frames as csv_ranges
from widen.sources import file_ranges
from widen.sources.csv_dialect import CsvDialect, FieldGroup
from widen.sources.csv_frames import CsvRanges
from widen.sources.file_ranges import FileRange

FIRST, COUNT = int(os.environ.get("WIDEN_FUZZ_FIRST", "0")), int(os.environ.get("WIDEN_FUZZ_COUNT", "40"))
SECONDS = 10
"""Maximum processor time for one file, which takes milliseconds; a busy machine adds none to it."""

Found = TypeVar("Found")

WORDS = (
    "Ann",
    "Bob, Jr.",
    'say "yes"',
    "",
    "Main St\nParis, France",
    "Dear Eve,\n\nsee below\nBob",
    "7.5",
    "é€",
    "x" * 40,
)


def unless_refused(read: Callable[[Path], Found], path: Path) -> Found | None:
    """What is read of a file; None if an error of Widen names it."""
    begun, refusal, found = time.process_time(), "", None
    try:
        found = read(path)
    except WidenError as error:
        refusal = str(error)
    assert time.process_time() - begun < SECONDS
    assert found is not None or path.name in refusal
    return found


def csv_rows(chance: random.Random, end: str) -> list[tuple[bytes, dict[str, str | None]]]:
    rows = []
    is_quoted = chance.random() < 0.3
    for number in range(chance.choice((5, 60, 300))):
        values = [str(number), f"k{number}", chance.choice(WORDS), str(number * 3)]
        texts = [
            '"' + value.replace('"', '""') + '"' if is_quoted or set(value) & set(',"\n') else value for value in values
        ]
        record = dict(zip(("id", "key", "word", "n"), values, strict=True))
        rows.append(
            ((",".join(texts) + end).encode(), {**record, "word": record["word"] or ("" if is_quoted else None)})
        )
    return rows


def read_csv(path: Path, dialect: CsvDialect | None = None) -> tuple[list[dict[str, str | None]], list[bytes]]:
    ranges = [FileRange(f"file:{path}", 0, path.stat().st_size, True)]
    records: list[dict[str, str | None]] = []
    refused: list[bytes] = []
    for found in csv_ranges.read_csv_groups(msgspec.json.encode(CsvRanges(ranges, dialect or CsvDialect()))):
        for group in found.to_text_groups() if isinstance(found, FieldGroup) else [found]:
            if group.reasons is None:
                records += [msgspec.json.decode(text) for text in group.texts]
            else:
                refused += group.texts
    return records, refused


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_damaged_csv(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    end = chance.choice(("\n", "\n", "\r\n", "\r"))
    rows = csv_rows(chance, end)
    header = f"id,key,word,n{end}".encode()
    data = header + b"".join(text for text, _ in rows)
    done = damage(chance, data)
    (tmp_path / "a.csv").write_bytes(done.apply(data))
    found = unless_refused(read_csv, tmp_path / "a.csv")
    if found is None:
        return
    records, refused = found
    if done.start <= len(header):
        return
    lines, at, touched = set(refused), len(header), 0
    for text, record in rows:
        start, at = at, at + len(text)
        if at >= done.start and start <= done.end:
            touched += 1 + text.count(b"\n") + text.count(b"\r")
            continue
        assert record in records or all(line in lines for line in text.splitlines() if line), (record, done)
    expected = [record for _, record in rows]
    wrong = [record for record in records if record not in expected]
    assert len(wrong) <= touched + len(done.inserted.splitlines()) + 1, (wrong[:3], done)


FORMS: tuple[tuple[CsvDialect, CsvForm], ...] = (
    (CsvDialect(), CsvForm()),
    (CsvDialect(multi_line=False), CsvForm(is_multi_line=False)),
    (CsvDialect(multi_line=True), CsvForm(is_multi_line=True)),
    (CsvDialect(escape="\\"), CsvForm(escape=b"\\")),
    (CsvDialect(null="k3"), CsvForm(null=b"k3")),
    (CsvDialect(header=False), CsvForm(has_header=False)),
    (CsvDialect(quote=None), CsvForm(quote=b"")),
    (CsvDialect(encoding="cp1252"), CsvForm(encoding="cp1252")),
    (CsvDialect(encoding="utf-16"), CsvForm(encoding="utf-16")),
)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_the_proof_reads_damaged_csv_alike(tmp_path: Path, seed: int) -> None:
    """Two readers without shared code find the same records and the same lines that are none."""
    chance = random.Random(seed)
    dialect, form = chance.choice(FORMS)
    end = chance.choice(("\n", "\n", "\r\n", "\r"))
    data = f"id,key,word,n{end}".encode() + b"".join(text for text, _ in csv_rows(chance, end))
    if dialect.escape:
        data = data.replace(b'""yes""', rb"\"yes\"")
    if dialect.encoding == "utf-16":
        data = data.decode().encode("utf-16")
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        data = damage(chance, data).apply(data) if data else data
    (tmp_path / "a.csv").write_bytes(data)
    found = unless_refused(lambda path: read_csv(path, dialect), tmp_path / "a.csv")
    if found is None:
        return
    proof = list(read_csv_file(data, form))
    records = [msgspec.json.decode(each.text) for each in proof if each.is_record]
    refused = [each.text for each in proof if not each.is_record]
    assert sorted(map(repr, records)) == sorted(map(repr, found[0]))
    assert sorted(refused) == sorted(found[1])


def json_lines(chance: random.Random) -> list[bytes]:
    return [
        msgspec.json.encode({"id": number, "word": chance.choice(WORDS), "of": [{"a": number}]}) + b"\n"
        for number in range(chance.choice((5, 60, 300)))
    ]


def read_json(path: Path) -> list[bytes]:
    part = FileRange(f"file:{path}", 0, path.stat().st_size, True)
    return [
        text
        for group in file_ranges.read_range_groups(msgspec.json.encode([part]))
        for content in group.texts
        for text in (split_records(content) if group.is_whole else [content])
    ]


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_damaged_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """A large file is read by lines, a small one as a whole."""
    chance = random.Random(seed)
    if seed % 2:
        monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 64)
    lines = json_lines(chance)
    data = b"".join(lines)
    done = damage(chance, data)
    (tmp_path / "a.json").write_bytes(done.apply(data))
    found = unless_refused(read_json, tmp_path / "a.json")
    if found is None:
        return
    whole, at = b"\n".join(found), 0
    for text in found:
        parse_document(text)
    for line in lines:
        start, at = at, at + len(line)
        if at < done.start or start > done.end:
            # A record is a text by itself, or it is in one that is corrupt.
            assert line.rstrip() in whole, done


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@pytest.mark.parametrize("ending", PACK)
def test_damaged_compressed_files(tmp_path: Path, ending: str, seed: int) -> None:
    chance = random.Random(seed)
    rows = csv_rows(chance, "\n")
    data = b"id,key,word,n\n" + b"".join(text for text, _ in rows)
    packed = PACK[ending](data)
    done = damage(chance, packed)
    (tmp_path / f"a.csv.{ending}").write_bytes(done.apply(packed))
    found = unless_refused(read_csv, tmp_path / f"a.csv.{ending}")
    if found is None:
        return
    records, refused = found
    if ending != "zst":  # a frame of zstd need not have a checksum
        assert (records, refused) == ([record for _, record in rows], [])
