"""Files of odd JSON: the writer and the proof find the same texts in them, and a wrong row is always found.

Both read the grammar of docs/guide/json.md, each with code of its own. With ``WIDEN_TEST_FAULTS=1`` 5,000 files are
loaded and proved instead of 120; ``WIDEN_ODD_FIRST`` chooses the first seed.
"""

from __future__ import annotations

import bz2
import gzip
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import widen
from support.fault import FULL
from support.odd_json import odd_file
from widen.batches.text_tasks import RecordPositions
from widen.errors import PostCommitFailed, SourceError
from widen.json.document import parse_document, split_records, split_text
from widen.json.observation import RecordPosition
from widen.proof.json_reader import read_records, split_into_parts, split_into_records
from widen.sources.file_ranges import MAX_WHOLE_FILE_BYTES, TextGroup

FIRST = int(os.environ.get("WIDEN_ODD_FIRST", "0"))
ROUNDS, FILES = (50, 100) if FULL in os.environ else (2, 60)


@pytest.mark.parametrize("allows_nan", [False, True])
def test_both_sides_find_the_same_texts(allows_nan: bool) -> None:
    for seed in range(FIRST, FIRST + 2_000):
        data = odd_file(random.Random(seed))
        texts = list(split_records(data))
        assert texts == list(split_into_parts(data)), (seed, data)
        for text in texts:
            parts = split_text(text, allows_nan=allows_nan)
            assert parts == split_into_records(text, allows_nan=allows_nan), (seed, text)
            document = parse_document(text, allows_nan=allows_nan)
            documents = document if isinstance(document, list) else [document]
            is_stored = all(isinstance(each, dict) for each in documents)
            assert is_stored is (read_records(text, allows_nan=allows_nan) is not None), (seed, text)


def test_only_separators_are_no_part_of_a_text() -> None:
    space = b" \t\r\n\x0b\x0c,[]\xef\xbb\xbf"
    for seed in range(FIRST, FIRST + 2_000):
        data, at = odd_file(random.Random(seed)), 0
        for text in split_records(data):
            start = data.index(text, at)
            assert not data[at:start].translate(None, space), (seed, data, text)
            at = start + len(text)
        assert not data[at:].translate(None, space), (seed, data)


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".json": bytes,
    ".json.gz": gzip.compress,
    ".json.bz2": bz2.compress,
    ".json.zst": zstd,
}


def written(chance: random.Random, folder: Path) -> list[Path]:
    """Write some files, each with a compression; those that have one may have several members."""
    folder.mkdir(parents=True)
    files = []
    for number in range(chance.choice((1, 1, 2))):
        ending, data = chance.choice((".json", *PACKED)), odd_file(chance)
        cut = chance.randrange(len(data) + 1) if chance.random() < 0.5 else 0
        pack = PACKED[ending]
        content = pack(data[:cut]) + pack(data[cut:]) if cut and ending not in (".json", ".json.zst") else pack(data)
        files.append(folder / f"day {number}{ending}")
        files[-1].write_bytes(content)
    return files


def loaded(chance: random.Random, folder: Path) -> widen.IngestResult | None:
    """Load files and prove the load; None if none of them has a record. Options vary."""
    written(chance, folder / "in")
    options = chance.choice(
        (
            {},
            {"source_columns": True},
            {"exclude": ["b"], "allow_unmatched": True},
            {"mask": ["a"], "allow_unmatched": True},
            {"evolve": "freeze"},
        )
    )
    options = {**options, "allow_nan": chance.choice((True, False))}
    try:
        return widen.ingest(str(folder / "in"), str(folder / "t"), verify=True, **options)
    except SourceError:
        return None


@pytest.fixture(autouse=True)
def only_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark, sums that differ are an error: only Spark says which rows differ."""
    monkeypatch.setenv("WIDEN_ENGINE", "local")


@pytest.mark.parametrize("part", range(ROUNDS))
def test_right_rows_are_proved(tmp_path: Path, part: int) -> None:
    proved = 0
    for seed in range(FIRST + part * FILES, FIRST + (part + 1) * FILES):
        done = loaded(random.Random(seed), tmp_path / str(seed))
        if done is not None:
            assert done.verification is not None
            assert done.verification.is_clean, seed
            proved += done.records > 0
    assert proved > FILES / 2


@pytest.mark.parametrize("part", range(ROUNDS))
def test_a_wrong_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """The writer loses a text, has it twice, or changes it; the proof reads the file itself."""
    right, damaged = RecordPositions.texts, 0

    for seed in range(FIRST + part * FILES, FIRST + (part + 1) * FILES, 2):
        chance = random.Random(seed)
        kind = chance.choice(("lost", "twice", "changed"))
        done: list[bool] = []

        def texts(
            self: RecordPositions, group: TextGroup, kind: str = kind, done: list[bool] = done, seed: int = seed
        ) -> Iterator[tuple[list[bytes], list[RecordPosition]]]:
            place = random.Random(seed)
            for found, positions in right(self, group):
                at = place.randrange(len(found)) if found else 0
                wrong = found[at : at + 1]
                has_value = any(each.strip(b" \t\r\n\x0b\x0c[]{},") for each in wrong)
                if not has_value or wrong == [b"{}"]:
                    yield found, positions
                    continue
                done.append(True)
                more = {"lost": [], "twice": wrong * 2, "changed": [wrong[0] + b"?"]}[kind]
                texts = [*found[:at], *more, *found[at + 1 :]]
                yield texts, [*positions[:at], *positions[at : at + 1] * len(more), *positions[at + 1 :]]

        monkeypatch.setattr(RecordPositions, "texts", texts)
        try:
            result = loaded(random.Random(seed), tmp_path / str(seed))
        except PostCommitFailed:
            damaged += 1
            continue
        assert result is None or not done, (seed, kind, list((tmp_path / str(seed) / "in").iterdir()))
    assert damaged > FILES / 8


@pytest.mark.parametrize(
    "data",
    [
        b'[{"a":1,"p":"%b"}, 7, 8, {"a":NaN}, {"a":2}]',
        b'{"a":1}\n{"p":"%b"}\n{\n"a":3}\n{"a":4}{"a":5}\nno record\n',
    ],
    ids=["array", "lines"],
)
def test_a_small_compressed_file_of_a_large_text_is_proved(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(data % (b"x" * MAX_WHOLE_FILE_BYTES)))
    done = widen.ingest(str(tmp_path / "a.json.gz"), str(tmp_path / "t"), verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
