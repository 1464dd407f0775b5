"""Every example payload of GitHub's webhooks, one document per file, every package.json of a large installation, and
two data sets of the Vega project.

In these data ``repository.created_at`` is an ISO text in most events and epoch seconds in push events, and the
title of a film is a number.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from real.conftest import lines, widen

SOURCES = {"webhooks": "webhooks", "packages": "packages", "movies": "movies.json", "earthquakes": "earthquakes.json"}


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("mode", ["widen", "split"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_no_leaf_is_lost(documents: Path, tmp_path: Path, source: str, mode: str, form: str) -> None:
    table = [str(tmp_path / "table")] if form == "delta" else ["real.table", "--catalog", str(tmp_path / "c.db")]
    result = widen("ingest", str(documents / source), "--into", *table, "--evolve", mode, "--verify")
    verified = result["verification"]
    print(f"{source} ({mode}, {form}): {verified['exact']} of {verified['leaves']} leaves exact")
    assert verified["leaves"] == sum(1 for record in records(documents / source) for _ in leaves(record))
    assert verified["exact"] + verified["converted"] == verified["leaves"]
    assert verified["lost"] == verified["extra"] == 0


@pytest.mark.parametrize(("step", "files"), [(1, 50), (12, 1)])
def test_no_leaf_is_lost_in_small_intervals(documents: Path, tmp_path: Path, step: int, files: int) -> None:
    """Intervals of so many files, of every so many payloads."""
    landing = tmp_path / "landing"
    landing.mkdir()
    payloads = sorted((documents / "webhooks").iterdir())[::step]
    for payload in payloads:
        shutil.copy2(payload, landing)
    where = ["--into", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint")]
    intervals = lines("ingest", str(landing), *where, "--once", "--max-files", str(files), "--verify")
    assert len(intervals) == -(-len(payloads) // files)
    proofs = [each["verification"] for each in intervals]
    expected = sum(1 for record in records(landing) for _ in leaves(record))
    assert sum(proof["exact"] + proof["converted"] for proof in proofs) == expected
    assert sum(proof["leaves"] for proof in proofs) == expected
    assert not any(proof["lost"] or proof["extra"] for proof in proofs)


def test_a_second_interval_of_the_same_documents_changes_nothing(documents: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    widen("ingest", str(documents / "webhooks"), "--into", place)
    # Exit code 3: some fields are past the maximum number of columns, and are rescued as in the first interval.
    assert widen("plan", str(documents / "webhooks"), "--into", place, exit_code=3)["operations"] == []


def test_the_documents_drift_as_they_should(documents: Path) -> None:
    """The tests above say nothing if the documents stopped drifting."""
    created = Counter(
        type(record["repository"]["created_at"]).__name__
        for record in records(documents / "webhooks")
        if isinstance(record, dict) and "created_at" in (record.get("repository") or {})
    )
    titles = Counter(type(record["Title"]).__name__ for record in records(documents / "movies.json"))
    assert created["str"] > created["int"] > 0
    assert titles["str"] > titles["int"] > 0


def records(source: Path) -> Iterator[Any]:
    """The records of a source: a document per file, and the elements where the document is an array."""
    for file in sorted(source.glob("*.json")) if source.is_dir() else [source]:
        document = json.loads(file.read_text(encoding="utf-8"))
        yield from document if isinstance(document, list) else [document]


def leaves(value: Any) -> Iterator[Any]:
    """Every value that is not null and does not hold others; an empty array is one, and an object of nulls only."""
    inner = [each for each in value.values() if each is not None] if isinstance(value, dict) else value
    if inner and isinstance(inner, list):
        for each in inner:
            yield from leaves(each)
    elif value is not None:
        yield value
