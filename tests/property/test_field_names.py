"""Names that vary in case: the proof agrees with the rows, with and without the kernel, in any order of the records.

The proof has a rule of its own for what a name stands for, so that a load with ``verify`` compares two rules.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.files.expressions import query_locally
from widen.model.native_kernel import KERNEL_VARIABLE, find_kernel

ROUNDS = 150 if os.environ.get("WIDEN_TEST_FAULTS") == "1" else 12

SPELLINGS: Mapping[str, Sequence[str]] = {
    "id": ("id", "ID", "Id"),
    "name": ("name", "NAME"),
    "straße": ("straße", "STRAßE"),
    "rec": ("rec", "Rec"),
    "items": ("items", "ITEMS"),
    "tags": ("tags", "Tags"),
    "x": ("x", "X"),
    "y": ("y", "Y"),
}
OPTIONS: Sequence[Mapping[str, Any]] = (
    {},
    {"names": "exact"},
    {"evolve": "freeze"},
    {"evolve": "split"},
    {"max_columns": 6},
    {"pins": {"NAME": "text", "Tags": "map"}},
    {"mask": ["Name"], "exclude": ["REC.x"], "allow_unmatched": True},
    {"detect_dates": ["NAME"]},
)


class Source:
    """Makes records whose names vary in case.

    Args:
        both: How often a record has a name in two cases.
    """

    def __init__(self, seed: int, both: float) -> None:
        self.chance, self.both = random.Random(seed), both

    def record(self, names: Sequence[str] = ("id", "name", "straße", "rec", "items", "tags")) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            spellings = self.chance.sample(SPELLINGS[name], 2 if self.chance.random() < self.both else 1)
            for spelling in spellings if self.chance.random() < 0.8 else ():
                found[spelling] = self.value(name)
        return found

    def value(self, name: str) -> Any:
        chance = self.chance
        inside: Sequence[str] = ("x", "y")
        match name:
            case "id" | "x":
                return chance.choice([1, 7, None, 2**40, *([2.5] if chance.random() < 0.1 else [])])
            case "rec":
                return chance.choice([self.record(inside), self.record(inside), None])
            case "items":
                return chance.choice([[], [self.record(inside) for _ in range(chance.randrange(1, 3))]])
            case "tags":
                return {chance.choice("kKl"): chance.choice([1, 2, None])} if chance.random() < 0.7 else {}
        return chance.choice(["a", "2026-11-28", "", None, *([3] if chance.random() < 0.1 else [])])


def lines(records: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in records)


def load(place: Path, files: Sequence[Path], options: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Load files one after the other, verify each load, and return the columns and the rows of the table."""
    for file in files:
        done = widen.ingest(file, place, engine="local", verify=True, **options)
        assert done.verification is not None
        assert done.verification.is_clean, str(done.verification)
    table = widen.Table(str(place))
    _, rows = query_locally(table.snapshot)
    return table.schema.sql, sorted(json.dumps(row, default=str) for row in rows.to_pylist())


def write(folder: Path, batches: Sequence[Sequence[Mapping[str, Any]]]) -> list[Path]:
    """Write each batch as a file of lines."""
    folder.mkdir()
    files = [folder / f"{number}.jsonl" for number in range(len(batches))]
    for file, batch in zip(files, batches, strict=True):
        file.write_bytes(lines(batch))
    return files


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_the_proof_agrees_with_the_rows(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(seed, (0.0, 0.03, 0.3)[seed % 3])
    options = OPTIONS[seed % len(OPTIONS)]
    batches = [[source.record() for _ in range(source.chance.choice((1, 4, 40)))] for _ in range(3)]
    shuffled = [source.chance.sample(batch, len(batch)) for batch in batches]
    results = []
    for name, words, given in (("a", "", batches), ("b", "off", batches), ("c", "", shuffled)):
        monkeypatch.setenv(KERNEL_VARIABLE, words)
        find_kernel.cache_clear()
        results.append(load(tmp_path / name, write(tmp_path / f"in_{name}", given), options))
    find_kernel.cache_clear()
    assert results[0] == results[1]
    assert results[0] == results[2]


@pytest.mark.parametrize("seed", range(ROUNDS // 2))
def test_other_formats_give_the_rows_of_json(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    names = ["id", "name", "straße"]
    batches = []
    for _ in range(3):
        columns = [chance.choice(SPELLINGS[name]) for name in names if chance.random() < 0.9] or ["Id"]
        columns += ["iD"] if chance.random() < 0.2 else []
        batches.append([dict.fromkeys(columns, f"{number}") for number in range(chance.choice((1, 300)))])
    as_json = load(tmp_path / "json", write(tmp_path / "in", batches), {})
    as_csv, as_parquet = [], []
    for number, batch in enumerate(batches):
        as_csv.append(tmp_path / f"{number}.csv")
        rows = [",".join(batch[0]), *(",".join(row.values()) for row in batch)]
        as_csv[-1].write_text("\n".join(rows) + "\n", encoding="utf-8")
        as_parquet.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.Table.from_pylist([{**row} for row in batch]), as_parquet[-1])
    assert load(tmp_path / "csv", as_csv, {}) == as_json
    if not any(
        "iD" in batch[0] for batch in batches
    ):  # two names in one Parquet file: only a session says what they are
        assert load(tmp_path / "parquet", as_parquet, {}) == as_json
