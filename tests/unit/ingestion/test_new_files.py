"""New files: which files of a source are known, changed or late, and what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from widen.errors import FilesChanged, InvalidOption
from widen.evolution.plan import BadFile
from widen.ingestion.new_files import (
    Changed,
    FileChoice,
    name_some,
    parse_changed,
    to_load_record,
)
from widen.json.observation import Observation
from widen.log.load_segments import LoadedFiles, to_rows
from widen.log.loads import LoadedFile
from widen.sources.file_comparison import FileComparison, FileNames
from widen.sources.listing import SourceFile, SourceFiles
from widen.targets.table_format import Load

LOADS = (
    Load(version=1, loaded_ms=0, files=(LoadedFile("/in/a", 10, 100), LoadedFile("/in/b", 20, 200))),
    Load(version=2, loaded_ms=0, files=(LoadedFile("/in/a", 11, 300),)),
)
KNOWN, OLD_STATE, GROWN = SourceFile("file:/in/b", 20, 200), SourceFile("/in/a", 10, 100), SourceFile("/in/b", 21, 201)
LATE, NEW = SourceFile("/in/c", 1, 299), SourceFile("/in/d", 1, 300)


@dataclass
class Target:
    location: str = "shop"
    read: tuple[Load, ...] = field(default=LOADS)

    def loaded_files(self, *, is_required: bool = False) -> LoadedFiles:
        return LoadedFiles(held=to_rows(self.read, len(self.read)))


def compare_files(files: Sequence[SourceFile], loads: tuple[Load, ...]) -> dict[str, tuple[str, ...]]:
    """Return the files of each kind that has some."""
    has_hashes = any(file.content for file in files)
    choice = FileChoice(Target(read=loads), hash_files=(lambda source: source) if has_hashes else None)  # type: ignore[arg-type]
    choice(SourceFiles(("/in",), tuple(files)))
    found = {name: getattr(choice.comparison, name).first for name in ("known", "changed", "late", "bad")}
    return {name: paths for name, paths in found.items() if paths}


def choose(
    *files: SourceFile, is_new: bool = True, changed: Changed = Changed.FAIL
) -> tuple[list[str], FileComparison]:
    choice = FileChoice(Target(), is_new, changed)  # type: ignore[arg-type]
    return [file.path for file in choice(SourceFiles(("/in",), files)).files], choice.comparison


HASHED = (Load(version=1, loaded_ms=0, files=(LoadedFile("/in/a", 10, 100, "aa"), LoadedFile("/in/b", 20, 200))),)


@pytest.mark.parametrize(
    ("file", "place"),
    [
        (SourceFile("/in/a", 10, 999, content="aa"), "known"),  # written again, with the same content
        (SourceFile("/in/copy", 10, 100, content="aa"), "known"),
        (SourceFile("/in/a", 10, 100, content="bb"), "changed"),  # size and time do not tell
        (SourceFile("/in/b", 20, 200, content="cc"), "known"),  # loaded without a hash
        (SourceFile("/in/b", 20, 201, content="cc"), "changed"),
        (SourceFile("/in/c", 1, 1, content="dd"), "late"),
    ],
)
def test_files_with_hashes_are_compared_by_content(file: SourceFile, place: str) -> None:
    assert compare_files([file], HASHED) == {place: (file.path,)}


def test_of_two_files_with_one_content_the_first_is_loaded() -> None:
    files = [SourceFile(f"/in/{name}", 1, 300, content="ee") for name in ("x", "y")]
    assert compare_files(files, HASHED) == {"known": ("/in/y",)}
    assert compare_files([SourceFile("/in/x", 1, 300), SourceFile("/in/y", 1, 300)], HASHED) == {}


def test_a_file_is_known_by_path_size_and_time() -> None:
    assert compare_files([KNOWN, OLD_STATE], LOADS) == {"known": ("/in/a", "file:/in/b")}


@pytest.mark.parametrize("file", [SourceFile("/in/b", 21, 200), SourceFile("/in/b", 20, 199)])
def test_another_size_or_time_is_a_change(file: SourceFile) -> None:
    assert compare_files([file], LOADS) == {"changed": ("/in/b",)}


def test_a_new_file_is_late_if_a_newer_one_is_loaded() -> None:
    assert compare_files([LATE, NEW], LOADS) == {"late": ("/in/c",)}
    assert compare_files([LATE, NEW], ()) == {}


def test_only_new_files_are_chosen() -> None:
    chosen, found = choose(KNOWN, LATE, NEW)
    assert chosen == ["/in/c", "/in/d"]
    assert (found.skipped, found.late) == (FileNames.of("file:/in/b"), FileNames.of("/in/c"))
    assert not found.repeated


def test_the_chosen_files_are_read_by_name_and_not_by_their_folder() -> None:
    source = SourceFiles(("/in",), (KNOWN, NEW))
    assert FileChoice(Target(), is_new=True)(source).roots == ()  # type: ignore[arg-type]
    assert FileChoice(Target(), is_new=False)(source) == source  # type: ignore[arg-type]


def test_a_changed_file_is_refused_unless_the_caller_decides() -> None:
    with pytest.raises(FilesChanged, match=r"Files have changed since shop loaded them: /in/b\."):
        choose(GROWN, NEW)
    assert choose(GROWN, NEW, changed=Changed.LOAD)[0] == ["/in/b", "/in/d"]
    assert choose(GROWN, NEW, changed=Changed.SKIP)[0] == ["/in/d"]


def test_without_new_all_files_are_loaded_and_the_repeated_ones_are_told() -> None:
    chosen, found = choose(KNOWN, GROWN, NEW, is_new=False)
    assert chosen == ["file:/in/b", "/in/b", "/in/d"]
    assert (found.repeated.first, found.changed.first) == (("file:/in/b",), ("/in/b",))
    assert not found.skipped


def test_changed_has_three_values() -> None:
    assert parse_changed("skip") is Changed.SKIP
    with pytest.raises(InvalidOption, match="changed cannot be 'maybe'"):
        parse_changed("maybe")


def test_a_long_list_is_named_by_its_first_files() -> None:
    assert name_some(["a", "b"]) == "a, b"
    assert name_some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_the_record_of_a_batch_has_its_files_and_counts() -> None:
    batch = SimpleNamespace(files=(NEW,), bad_files=(BadFile("/in/e", "it is cut off", 7, 400, "ff"),))
    seen = Observation(records=5, corrupt=2, quarantined=3)
    record = to_load_record(batch, seen, is_exclusive=True)  # type: ignore[arg-type]
    assert record is not None
    assert (record.is_exclusive, record.load.files) == (True, (LoadedFile("/in/d", 1, 300),))
    assert record.load.bad_files == (LoadedFile("/in/e", 7, 400, "ff"),)
    assert (record.load.records, record.load.corrupt, record.load.quarantined_records) == (5, 2, 3)
    no_files = SimpleNamespace(files=(), bad_files=())
    assert to_load_record(no_files, Observation(), is_exclusive=False) is None  # type: ignore[arg-type]


BAD = (
    *LOADS,
    Load(version=3, loaded_ms=0, files=(), bad_files=(LoadedFile("/in/e", 7, 400), LoadedFile("/in/a", 9, 9))),
)


def test_an_unchanged_bad_file_is_left_out_only_where_bad_files_are_skipped() -> None:
    source = SourceFiles(("/in",), (SourceFile("file:/in/e", 7, 400), SourceFile("/in/a", 9, 9)))
    assert compare_files(source.files, BAD) == {"bad": ("/in/a", "file:/in/e")}
    skipping = FileChoice(Target(read=BAD), is_new=True, skips_bad=True)  # type: ignore[arg-type]
    assert skipping(source).files == ()
    assert skipping.comparison.skipped.first == ("/in/a", "file:/in/e")
    for choice in (FileChoice(Target(read=BAD), is_new=True), FileChoice(Target(read=BAD), skips_bad=True)):  # type: ignore[arg-type]
        assert choice(source) == source


def test_a_bad_file_that_has_changed_is_new() -> None:
    assert compare_files([SourceFile("/in/e", 7, 401), SourceFile("/in/e", 8, 400)], BAD) == {}


def test_a_bad_file_with_the_same_content_stays_bad_and_so_does_its_copy() -> None:
    loads = (Load(version=1, loaded_ms=0, files=(), bad_files=(LoadedFile("/in/e", 7, 400, "ff"),)),)
    files = [SourceFile("/in/e", 7, 999, content="ff"), SourceFile("/in/copy", 7, 400, content="ff")]
    assert compare_files(files, loads) == {"bad": ("/in/copy", "/in/e")}
    assert compare_files([SourceFile("/in/e", 7, 400, content="gg")], loads) == {}
