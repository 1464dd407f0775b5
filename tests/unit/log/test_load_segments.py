"""Segments of the record of loads: what they answer of a listing, beside the plain rule; and older records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from widen.errors import CorruptLog
from widen.log import load_segments
from widen.log import loads as record_loads
from widen.log.commit_outcome import StagedFiles
from widen.log.load_segments import Load, LoadedFile, LoadedFiles, folder_key, to_path_keys, to_rows
from widen.log.loads import Record, RecordFolder, encode_record, record_file, write_record
from widen.log.log_store import LogStore
from widen.sources.file_comparison import FileState, compare_batch
from widen.sources.find_files import to_batch
from widen.sources.listing import SourceFile

SPELLINGS = (
    "file:/in/{}",
    "file:///in/{}",
    "/in/{}",
    "file:/in/x/../{}",
    "file:/in/a b{}",
    "file:/in/a%20b{}",
    "s3://b/{}",
    "s3a://b//{}",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordFolder:
    """A record whose segments and row groups are small, so that a few loads fill several."""
    monkeypatch.setattr(record_loads, "MAX_INLINE_FILES", 6)
    monkeypatch.setattr(record_loads, "MAX_SEGMENT_FILES", 40)
    monkeypatch.setattr(load_segments, "MAX_SEGMENT_FILES", 40)
    monkeypatch.setattr(load_segments, "GROUP_FILES", 4)
    return RecordFolder(LogStore(str(tmp_path)), "loads")


def write(folder: RecordFolder, loads: list[Load]) -> str:
    head: str | None = None
    for number, load in enumerate(loads):
        head = record_file(write_record(folder, head, load, number, StagedFiles()))
    assert head is not None
    return head


def some_file(chance: random.Random) -> LoadedFile:
    path = chance.choice(SPELLINGS).format(f"{chance.randrange(40)}.json")
    return LoadedFile(path, chance.randrange(3) + 1, chance.randrange(3))


def some_loads(chance: random.Random) -> list[Load]:
    return [
        Load(
            version=version,
            loaded_ms=version,
            files=tuple(some_file(chance) for _ in range(chance.choice([0, 1, 2, 9, 90]))),
            bad_files=tuple(some_file(chance) for _ in range(chance.randrange(3))),
            records=chance.randrange(100),
        )
        for version in range(chance.randrange(1, 30))
    ]


def state_by_rule(file: SourceFile, loads: list[Load]) -> FileState:
    """The rule of docs/guide/files.md, file by file."""
    mine = LoadedFile(file.path, file.size_bytes, file.modified_ms)
    loaded = [each for load in loads for each in load.files if each.key == mine.key]
    if any(each.stamp == mine.stamp for each in loaded):
        return FileState.KNOWN
    if any(each.key == mine.key and each.stamp == mine.stamp for load in loads for each in load.bad_files):
        return FileState.BAD
    return FileState.CHANGED if loaded else FileState.NEW


@pytest.mark.parametrize("seed", range(20))
def test_a_listing_compares_as_the_rule_says(folder: RecordFolder, seed: int) -> None:
    chance = random.Random(seed)
    loads = some_loads(chance)
    loaded = folder.open_loads(write(folder, loads))
    listed = [
        SourceFile(each.path, each.size_bytes, each.modified_ms) for each in (some_file(chance) for _ in range(60))
    ]
    expected = [state_by_rule(file, loads) for file in listed]
    assert compare_batch(loaded, to_batch(listed)).to_pylist() == expected
    stamps = [(file.size_bytes, file.modified_ms) for file in listed]
    counts = [
        sum(
            (each.key, each.stamp) == (LoadedFile(file.path, *stamp).key, stamp)
            for load in loads
            for each in load.files
        )
        for file, stamp in zip(listed, stamps, strict=True)
    ]
    assert loaded.count([file.path for file in listed], stamps) == counts
    assert loaded.newest_ms == max((each.modified_ms for load in loads for each in load.files), default=0)


@pytest.mark.parametrize("seed", range(5))
def test_the_loads_read_back_with_their_files_and_counts(folder: RecordFolder, seed: int) -> None:
    loads = some_loads(random.Random(seed))
    found = folder.read_loads(write(folder, loads))
    assert [(load.version, load.records) for load in found] == [(load.version, load.records) for load in loads]
    for load, was in zip(found, loads, strict=True):
        assert sorted(load.files, key=repr) == sorted(was.files, key=repr)
        assert sorted(load.bad_files, key=repr) == sorted(was.bad_files, key=repr)


def test_a_file_is_written_again_a_few_times_only(folder: RecordFolder) -> None:
    """Segments of about one size become one: the work per load does not grow with the record."""
    written = 0

    def count(rows: pa.Table) -> bytes:
        nonlocal written
        written += rows.num_rows
        return plain(rows)

    plain = record_loads.encode_segment
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_loads, "encode_segment", count)
        write(folder, [Load(version=at, loaded_ms=at, files=(LoadedFile(f"/in/{at}", 1, 1),)) for at in range(640)])
    # A file and its load take two rows; a segment of 6 files becomes one of 12, 24, and 40 is the limit.
    assert written <= 640 * 2 * 4


@pytest.mark.parametrize("seed", range(10))
def test_the_last_file_of_a_folder_is_found_as_the_rule_says(folder: RecordFolder, seed: int) -> None:
    chance = random.Random(seed)
    loads = some_loads(chance)
    loaded = folder.open_loads(write(folder, loads))
    for place in ("file:/in", "/in/", "s3://b", "s3a://b/", "/in/x", "/other"):
        prefix = folder_key(place).decode()
        keys = [file.key for load in loads for file in load.files if file.key.startswith(prefix)]
        assert loaded.find_last(place) == max(keys, key=lambda key: key.encode(), default=None)


def test_the_last_file_of_a_folder_is_in_the_last_row_group(
    folder: RecordFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tuple(LoadedFile(f"file:/in/{at:03}", 1, 1) for at in range(30))
    loaded = folder.open_loads(write(folder, [Load(version=0, loaded_ms=0, files=files)]))
    read: list[int] = []
    plain = load_segments.SegmentFile.read
    monkeypatch.setattr(load_segments.SegmentFile, "read", lambda *each: read.append(each[1]) or plain(*each))
    assert loaded.find_last("/in") == "/in/029"
    assert read == [7]


def test_a_question_reads_only_the_row_groups_that_can_answer(folder: RecordFolder) -> None:
    files = tuple(LoadedFile(f"file:/in/{at:03}", 1, 1) for at in range(120))
    loaded = folder.open_loads(write(folder, [Load(version=0, loaded_ms=0, files=files)]))
    read: list[tuple[str, int]] = []
    plain = loaded._read_group

    def note(segment: load_segments.Segment, group: int) -> pa.Table:
        read.append((segment.name, group))
        return plain(segment, group)

    loaded._read = note  # type: ignore[assignment]
    assert compare_batch(loaded, to_batch([SourceFile("file:/in/077", 1, 1)])).to_pylist() == [FileState.KNOWN]
    assert len(read) == 1


@pytest.fixture
def older(folder: RecordFolder) -> tuple[RecordFolder, str, list[Load]]:
    """A record as it was before segments were Parquet files."""
    loads = [
        Load(version=at, loaded_ms=at, files=(LoadedFile(f"file:/in/{at}", 1, at),), records=at) for at in range(9)
    ]
    names = [record_file((at << record_loads.NONCE_BITS) + 1) for at in (2, 5)]
    for name, some in zip(names, (loads[:3], loads[3:6]), strict=True):
        folder.store.put(folder.file(name), encode_record(Record(number=0, loads=tuple(some))))
    head = record_file((8 << record_loads.NONCE_BITS) + 1)
    record = Record(number=9, loads=tuple(loads[6:]), segments=tuple(names))
    folder.store.put(folder.file(head), encode_record(record))
    return folder, head, loads


def test_a_record_of_an_older_version_is_read(older: tuple[RecordFolder, str, list[Load]]) -> None:
    folder, head, loads = older
    assert folder.read_loads(head) == tuple(loads)
    assert states(folder.open_loads(head)) == [FileState.KNOWN] * 9 + [FileState.NEW]


def test_the_next_segment_takes_in_those_of_an_older_version(older: tuple[RecordFolder, str, list[Load]]) -> None:
    folder, head, loads = older
    more = Load(version=9, loaded_ms=9, files=tuple(LoadedFile(f"file:/more/{at}", 1, at) for at in range(7)))
    head = record_file(write_record(folder, head, more, 9, StagedFiles()))
    assert not any(isinstance(each, str) for each in folder.read(head).segments)
    assert folder.read_loads(head) == (*loads, more)
    assert states(folder.open_loads(head)) == [FileState.KNOWN] * 9 + [FileState.NEW]


def states(loaded: LoadedFiles) -> list[FileState]:
    return compare_batch(loaded, to_batch([SourceFile(f"file:/in/{at}", 1, at) for at in range(10)])).to_pylist()


def damaged_segments(folder: RecordFolder, head: str) -> Iterator[str]:
    for entry in list(folder.store.list("loads")):
        if entry.path.endswith(".parquet"):
            yield entry.path


@pytest.mark.parametrize("content", [None, b"nonsense", b"PAR1 cut off PAR1"])
def test_a_missing_or_damaged_segment_is_an_error_that_names_it(folder: RecordFolder, content: bytes | None) -> None:
    files = tuple(LoadedFile(f"file:/in/{at:03}", 1, 1) for at in range(12))
    head = write(folder, [Load(version=0, loaded_ms=0, files=files)])
    (path,) = damaged_segments(folder, head)
    if content is None:
        folder.store.delete([path])
    else:
        folder.store.put(path, content)
    ensure_refused(folder, head, path)


def ensure_refused(folder: RecordFolder, head: str, path: str) -> None:
    with pytest.raises(CorruptLog, match=path):
        states(folder.open_loads(head))
    with pytest.raises(CorruptLog, match=path):
        folder.read_loads(head)


@pytest.mark.parametrize("seed", range(10))
def test_a_segment_with_a_changed_bit_is_never_believed(folder: RecordFolder, seed: int) -> None:
    chance = random.Random(seed)
    head = write(folder, [Load(version=0, loaded_ms=0, files=tuple(some_file(chance) for _ in range(12)))])
    (path,) = damaged_segments(folder, head)
    content = bytearray(folder.store.read(path))
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    folder.store.put(path, bytes(content))
    ensure_refused(folder, head, path)


def test_a_segment_of_another_table_is_never_believed(folder: RecordFolder, tmp_path: Path) -> None:
    other = RecordFolder(LogStore(str(tmp_path / "other")), "loads")
    heads = []
    for each, name in ((folder, "in/"), (other, "in/b")):
        files = tuple(LoadedFile(f"file:/{name}{at}", 1, 1) for at in range(9))
        heads.append(write(each, [Load(version=0, loaded_ms=0, files=files)]))
    (path,), (foreign,) = (list(damaged_segments(*each)) for each in zip((folder, other), heads, strict=True))
    folder.store.put(path, other.store.read(foreign))
    ensure_refused(folder, heads[0], path)


def test_keys_are_those_of_all_spellings() -> None:
    paths = ["file:/a/b", "file:/a/b c", "file:/a/b%20c", "file:///a/b%FF", "s3://x/y", "s3://x/%2E", "s3a://x/y"]
    paths += ["s3://x/./y", "/a//b"]
    for path in paths:
        assert (
            to_path_keys(pa.array([path])).to_pylist()
            == to_path_keys(pa.array(paths))[paths.index(path) :].to_pylist()[:1]
        )
        assert to_path_keys(pa.array([path]))[0].as_py() == LoadedFile(path, 1, 1).key.encode(errors="surrogateescape")
    assert len(set(to_path_keys(pa.array(paths)).to_pylist())) == 6


@pytest.mark.parametrize("folder_url", ["s3://b", "s3://b/", "s3a://b/%7E"])
def test_the_last_name_of_a_folder_is_spelled_as_the_store_does(folder_url: str) -> None:
    files = tuple(LoadedFile(f"s3://b/{name}", 1, 1) for name in ("%7E/a%20b", "%7E/a", "%7"))
    loaded = LoadedFiles(held=to_rows([Load(version=0, loaded_ms=0, files=files)], 0))
    assert loaded.find_last(folder_url) == "s3://b/%7E/a%20b"
    assert loaded.find_last("s3://b/~") is None
