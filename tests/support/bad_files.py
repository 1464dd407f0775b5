"""Every kind of bad file: what a folder of good ones may not be blocked by."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import widen
from widen.errors import EngineUnsuitable, WidenError

SYNC = bytes(range(16))


def json_lines(first: int) -> bytes:
    return b"".join(b'{"n": %d, "s": "text"}\n' % number for number in range(first, first + 3))


def csv_lines(first: int) -> bytes:
    return b"n,s\n" + b"".join(b"%d,text\n" % number for number in range(first, first + 3))


def columns(first: int) -> pa.Table:
    numbers = range(first, first + 3)
    return pa.table({"n": pa.array(numbers, pa.int64()), "s": pa.array(["text"] * 3)})


def parquet(table: pa.Table, **settings: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **settings)
    return sink.getvalue()


def orc_file(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    orc.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def _varint(number: int) -> bytes:
    number, parts = (number << 1) ^ (number >> 63), []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _avro_text(text: bytes) -> bytes:
    return _varint(len(text)) + text


def avro(first: int, schema: Any = None, rows: bytes | None = None) -> bytes:
    """Return an Avro file of three rows without compression."""
    fields = [{"name": "n", "type": "long"}, {"name": "s", "type": "string"}]
    written = json.dumps(schema or {"type": "record", "name": "r", "fields": fields}).encode()
    if rows is None:
        rows = b"".join(_varint(number) + _avro_text(b"text") for number in range(first, first + 3))
    head = b"Obj\x01" + _varint(2) + _avro_text(b"avro.schema") + _avro_text(written)
    head += _avro_text(b"avro.codec") + _avro_text(b"null") + b"\0" + SYNC
    return head + _varint(3) + _avro_text(rows) + SYNC


def archive(*names: str) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as file:
        for name in names:
            file.writestr(name, "x")
    return sink.getvalue()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


MANY = b"".join(b'{"n": %d, "s": "%d"}\n' % (number, number * 7919) for number in range(2_000))
"""More than one block of any compression, so that a part of it cannot be read whole."""


def parquet_good(first: int) -> bytes:
    return parquet(columns(first), compression="none")


def orc_good(first: int) -> bytes:
    return orc_file(columns(first))


def packed(pack: Callable[[bytes], bytes]) -> Callable[[int], bytes]:
    return lambda first: pack(json_lines(first))


def column(values: list[Any], data_type: pa.DataType) -> pa.Table:
    return pa.table({"n": pa.array([7]), "x": pa.array(values, data_type)})


NAN_TIMES = column([1_704_067_200_000_000_001], pa.timestamp("ns"))


@dataclass(frozen=True)
class BadKind:
    """A kind of bad file.

    Args:
        ending: The ending of its name, which that of the good files has, too.
        good: Makes a good file with three records, whose numbers begin with the argument.
        bad: The content of the bad file.
        words: A pattern of what the reason says.
        is_bad: Whether the file cannot be read as a whole; else only lines of it are corrupt.
        limits: Settings of loads with which the file is over a limit.
    """

    ending: str
    good: Callable[[int], bytes]
    bad: bytes
    words: str = ""
    is_bad: bool = True
    limits: Mapping[str, Any] = field(default_factory=dict)


def _text(ending: str, bad: bytes, words: str = "", **more: Any) -> BadKind:
    return BadKind(ending, csv_lines if ending == "csv" else json_lines, bad, words, **more)


def _parquet(bad: bytes, words: str = "") -> BadKind:
    return BadKind("parquet", parquet_good, bad, words)


PARQUET, ORC, AVRO = parquet_good(50), orc_good(50), avro(50)
NO_CORRUPT: Mapping[str, Any] = {"max_corrupt": 0}
RECURSIVE = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "n", "type": "long"}, {"name": "r", "type": ["null", "r"]}],
}
KEYS = json.dumps({"n": 7, "x": {f"user_{number}": number for number in range(200)}}).encode()

KINDS: Mapping[str, BadKind] = {
    # CSV
    "another separator": _text("csv", b"n/s\n7/text\n", "none of the fields"),
    "no header": _text("csv", b"7,text\n8,text\n", "none of the fields"),
    "an open quote": _text("csv", b'n,s\n7,"text\n8,text\n', "quote"),
    "Latin-1 in CSV": _text("csv", "n,s\n7,crème\n".encode("latin-1"), is_bad=False, limits=NO_CORRUPT),
    "NULs in CSV": _text("csv", b"\0" * 5_000, "first line"),
    "a workbook as CSV": _text("csv", archive("[Content_Types].xml", "xl/workbook.xml"), "xlsx"),
    "a PDF as CSV": _text("csv", b"%PDF-1.7\n1 0 obj\n", "PDF"),
    "HTML as CSV": _text("csv", b"<!DOCTYPE html><html><body>502, sorry</body></html>", "HTML"),
    # JSON
    "UTF-16 in JSON": _text("json", '{"n": 7, "s": "text"}\n'.encode("utf-16"), "UTF-16"),
    "UTF-16 without a mark": _text("json", '{"n": 7, "s": "text"}\n'.encode("utf-16-le"), "UTF-16"),
    "NULs in JSON": _text("json", b"\0" * 5_000, is_bad=False, limits=NO_CORRUPT),
    "Latin-1 in JSON": _text("json", '{"n": 7, "s": "größe"}\n'.encode("latin-1"), is_bad=False, limits=NO_CORRUPT),
    "half of a document": _text("json", b'{"n": 7, "s": "te', is_bad=False, limits=NO_CORRUPT),
    "a zip archive as JSON": _text("json", archive("a.json"), "zip"),
    "HTML as JSON": _text("json", b"<html><head></head></html>", "HTML"),
    "Parquet as JSON": _text("json", PARQUET, "Parquet"),
    "gzip without its ending": _text("json", gzip.compress(json_lines(7)), "gzip"),
    "keys that are data": _text("json", KEYS, "keys", limits={"max_keys": 100}),
    # Compression
    "half of gzip": BadKind("json.gz", packed(gzip.compress), half(gzip.compress(MANY))),
    "half of bzip2": BadKind("json.bz2", packed(bz2.compress), half(bz2.compress(MANY))),
    "half of zstd": BadKind("json.zst", packed(zstd), half(zstd(MANY))),
    "no gzip": BadKind("json.gz", packed(gzip.compress), json_lines(7)),
    "half of gzip as CSV": BadKind("csv.gz", lambda first: gzip.compress(csv_lines(first)), half(gzip.compress(MANY))),
    # Parquet
    "half of Parquet": _parquet(half(PARQUET)),
    "text as Parquet": _parquet(b"n,s\n7,text\n"),
    "a damaged footer": _parquet(PARQUET[:-60] + b"\xff" * 40 + PARQUET[-20:]),
    "a damaged page": _parquet(PARQUET[:4] + b"\xff" * 64 + PARQUET[68:]),
    "nanoseconds in Parquet": _parquet(parquet(NAN_TIMES, version="2.6"), "microseconds do not hold"),
    # Other formats with types
    "half of ORC": BadKind("orc", orc_good, half(ORC)),
    "text as ORC": BadKind("orc", orc_good, b"n,s\n7,text\n"),
    "nanoseconds in ORC": BadKind("orc", orc_good, orc_file(NAN_TIMES), "nanoseconds"),
    "half of Avro": BadKind("avro", avro, half(AVRO)),
    "text as Avro": BadKind("avro", avro, b"n,s\n7,text\n"),
    "a damaged block of Avro": BadKind("avro", avro, AVRO[:-20] + b"\xff" * 20),
    "a recursive record in Avro": BadKind(
        "avro", avro, avro(0, RECURSIVE, (b"\x02\0") * 3), "record r of its Avro schema contains itself, in the field r"
    ),
}


# ---- a folder with a bad file ----------------------------------------------------------------------

MODES: Mapping[str, Mapping[str, Any]] = {
    "skip": {"skip_bad_files": True},
    "park": {"park_over_limit": True},
    "neither": {},
}


def load_folder_with(kind: BadKind, mode: str, place: Path, *, is_alone: bool, **engine: Any) -> None:
    """Load a folder with a good file into a table, then a bad one, alone or with another good one, and repair it."""
    folder, table = place / "in", str(place / "t")
    folder.mkdir(parents=True)

    def write(name: str, content: bytes) -> str:
        path = folder / f"{name}.{kind.ending}"
        path.write_bytes(content)
        return path.name

    def load(**more: Any) -> widen.IngestResult:
        return widen.ingest(folder, table, new=True, **limits, **MODES[mode], **engine, **more)

    is_bad = kind.is_bad or mode == "park"
    limits = dict(kind.limits) if is_bad else {}
    write("a", kind.good(0))
    assert load().records == 3
    bad, others = write("b", kind.bad), 0 if is_alone else 3
    if others:
        write("c", kind.good(10))
    if is_bad and mode != "neither":
        done = load()
        assert done.records == others
        # What cannot be read at all is left out with either option, and is not over a limit.
        _ensure_named(done, table, bad, kind.words, is_parked=mode == "park" and bool(limits))
        assert load().is_unchanged
    elif is_bad or is_alone:
        with pytest.raises(WidenError) as found:
            load()
        assert f"/{bad}" in found.value.message
        assert not any(f"/{name}.{kind.ending}" in found.value.message for name in "ac")
        assert re.search(kind.words, found.value.message)
        assert not isinstance(found.value, EngineUnsuitable)
        assert widen.Table(table).version == 0
    else:
        done = load()
        assert (done.records, done.corrupt, done.bad_files) == (others, 1, ())
    write("b", kind.good(20))
    later = (folder / bad).stat().st_mtime_ns + 10**9
    os.utime(folder / bad, ns=(later, later))
    done = load(changed="load")
    was_refused = is_bad and mode == "neither"
    assert (done.records, done.bad_files) == (3 + others * (was_refused or (mode == "neither" and is_alone)), ())


def _ensure_named(done: widen.IngestResult, table: str, bad: str, words: str, *, is_parked: bool) -> None:
    """Check that the result, the record of loads and the quarantine name the bad file, and no other."""
    [file] = done.bad_files
    assert (os.path.basename(file.path), file.is_parked) == (bad, is_parked)
    assert re.search(words, file.reason)
    load = widen.Table(table).loads()[-1]
    assert [each.path for each in load.bad_files] == [file.path]
    assert bool(load.bad_files[0].parked) == is_parked
    [row] = widen.Table(f"{table}_quarantine").to_arrow().to_pylist()
    assert (row["text"], row["file"]) == (None, file.path)
    assert row["reason"].endswith(file.reason)
