"""One record, or one line after decompression, has a limit that is checked while the file is read."""

from __future__ import annotations

import gzip
import resource
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from widen.batches.text_tasks import read_record_groups
from widen.errors import CorruptFile, SourceContentError
from widen.json.document import split_records
from widen.sources import file_ranges
from widen.sources.file_ranges import (
    RANGES_PART,
    FileRange,
    as_raw_records,
    open_file,
    range_batch,
    read_range_groups,
)


def texts(path: Path, limit: int, *, is_multi_line: bool = False) -> list[bytes]:
    part = FileRange(f"file:{path}", 0, path.stat().st_size, True, limit, is_multi_line)
    found: list[bytes] = []
    for group in read_range_groups(msgspec.json.encode([part])):
        found += [each for text in group.texts for each in (split_records(text) if group.is_whole else [text])]
    return [text for text in found if text.strip()]


LONG = {
    "spaces": b" " * 10_000,
    "a line": b'{"n":1}\n{"n":"' + b"x" * 10_000 + b'"}\n',
    "no line end": b"x" * 10_000,
    "a document": b'{"n":\n"' + b"x" * 10_000 + b'"}',
    "an array": b'[{"n":1},\n{"n":"' + b"x" * 10_000 + b'"}]',
}


@pytest.mark.parametrize("whole", [8 * 2**20, 50])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_a_record_over_the_limit_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: bytes, whole: int
) -> None:
    if text.strip() == b"" and whole > 50:
        pytest.skip("a file of spaces has no record")
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", whole)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(CorruptFile, match=r"a\.json.* cannot be read: .* at byte [\d,]+ .* (MB|bytes)"):
        texts(tmp_path / name, 1_000)
    assert texts(tmp_path / name, 100_000) == [*split_records(text)]


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_many_records_pass_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(file_ranges, "MAX_WHOLE_FILE_BYTES", 50)
    lines = b"".join(b'{"n":%d}\n' % number for number in range(5_000))
    (tmp_path / name).write_bytes(gzip.compress(lines) if name.endswith("gz") else lines)
    assert texts(tmp_path / name, 100) == lines.splitlines()
    assert texts(tmp_path / name, 100, is_multi_line=True) == lines.splitlines()


def test_a_large_gzip_of_spaces_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(b" " * 2**20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptFile, match=r"bomb\.json\.gz cannot be read: .* longer than 64 MB|.*does not end"):
        texts(path, 64 * 2**20)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 2**10


DAMAGED = {
    "truncated": gzip.compress(b'{"n":1}\n' * 1_000)[:-20],
    "trailing": gzip.compress(b'{"n":1}\n') + b"garbage",
    "no gzip": b'{"n":1}\n',
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_gzip_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json.gz").write_bytes(data)
    with pytest.raises(CorruptFile, match=r"a\.json\.gz cannot be read"):
        texts(tmp_path / "a.json.gz", 1_000)


def test_zstd_is_decompressed(tmp_path: Path) -> None:
    with pa.CompressedOutputStream(str(tmp_path / "a.json.zst"), "zstd") as file:
        file.write(b'{"n":1}\n' * 10)
    with open_file(f"file:{tmp_path}/a.json.zst") as file:
        assert file.read() == b'{"n":1}\n' * 10


def test_what_spark_reads_has_the_limit_too() -> None:
    batch = as_raw_records([b'{"n":1}', b'"' + b"x" * 200 + b'"'], "file:/a.jsonl")
    with pytest.raises(CorruptFile, match=r"file:/a\.jsonl .*in line 2 is longer than 100 bytes"):
        list(read_record_groups([batch], 100))
    assert len(list(read_record_groups([batch], 1_000))) == 1
    no_file = as_raw_records([b'"' + b"x" * 200 + b'"'], "")
    with pytest.raises(SourceContentError, match=r"the source: a record is longer than 100 bytes") as caught:
        list(read_record_groups([no_file], 100))
    assert "--max-record-size" in str(caught.value.advice)
    assert range_batch(b"[]", RANGES_PART).num_rows == 1
