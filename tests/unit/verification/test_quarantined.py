"""The proof judges by itself whether a quarantined record has a reason to be there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import widen
from widen.files import row_rules
from widen.rows import row_builder

RECORDS: list[Any] = [
    {"id": 1, "p": "a", "n": 5, "v": 1},
    {"id": None, "p": "b", "n": 6},
    {"id": 2, "p": "a", "n": -1},
    {"p": "a", "n": 7},
    {"id": "x", "p": "c", "n": 8},
    {"id": 4, "p": "c", "n": None, "v": "text"},
    {"id": 5, "p": "", "n": 9},
    "not json",
]
DDL = "id BIGINT NOT NULL, p STRING, n INT"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    monkeypatch.setattr(row_builder, "find_kernel", lambda: None)


def load(folder: Path, **words: Any) -> widen.IngestResult:
    source = folder / "in.json"
    source.write_text("".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in RECORDS))
    return widen.ingest(str(source), str(folder / "t"), verify=True, **words)


def create(folder: Path) -> None:
    properties = {"delta.constraints.positive": "n > 0"}
    widen.create_table(str(folder / "t"), DDL, properties=properties, partition_by=["p"])


KEYED = {"key": ["id"], "sequence_by": "n"}


@pytest.mark.parametrize("words", [{}, KEYED], ids=["added", "by key"])
def test_records_with_a_reason_are_proved(tmp_path: Path, words: dict[str, Any]) -> None:
    create(tmp_path)
    done = load(tmp_path, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification.places
    assert widen.Table(str(tmp_path / "t_quarantine")).to_arrow().num_rows == 7


@pytest.mark.parametrize("words", [{}, KEYED], ids=["added", "by key"])
@pytest.mark.parametrize("fault", ["condition", "type"])
def test_a_good_record_in_the_quarantine_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: dict[str, Any]
) -> None:
    create(tmp_path)
    if fault == "condition":
        broken = row_rules.RowRule.find_broken
        monkeypatch.setattr(row_rules.RowRule, "find_broken", lambda *args: pc.or_(broken(*args), pa.scalar(True)))
    else:
        find = row_builder.find_violations
        guard = {}

        def find_more(route: Any, record: Any, *rest: Any) -> Any:
            found = list(find(route, record, *rest))
            guard.update({"some": found[0]} if found else {})
            return found or guard.values()

        monkeypatch.setattr(row_builder, "find_violations", find_more)
    done = load(tmp_path, **words)
    assert done.verification is not None
    assert not done.verification.is_clean
    assert "in the quarantine without a reason" in done.verification.places[-1]
