"""Records of a first load by key whose key or sequence is a list or an object: only they go to the quarantine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from widen import Table
from widen.errors import InvalidOption
from widen.iceberg.catalog import to_catalog

KEY, ORDER = "the key id is missing, null or not a scalar", "s has no value that tells which record is newer"
GOOD = [{"id": 1, "s": 1, "v": "a"}, {"id": 1, "s": 2, "v": "b"}, {"id": 2, "s": 1, "v": "c"}]
KEPT = {1: "b", 2: "c"}

CASES: dict[str, tuple[list[dict[str, Any]], list[tuple[dict[str, Any], str]], dict[Any, str]]] = {
    "key": (GOOD, [({"id": [1], "s": 1}, KEY), ({"id": {"a": 1}, "s": 1}, KEY), ({"id": [], "s": 1}, KEY)], KEPT),
    "sequence": (GOOD, [({"id": 1, "s": [1]}, ORDER), ({"id": 3, "s": {"a": 1}}, ORDER)], KEPT),
    "list": (GOOD, [({"id": 1, "s": [[9]]}, ORDER)], KEPT),
    "boolean": (GOOD, [({"id": 1, "s": True}, ORDER), ({"id": 3, "s": [1]}, ORDER)], KEPT),
    "both": (GOOD, [({"id": [1], "s": [1]}, KEY), ({"id": {"b": []}, "s": {"c": 1}}, KEY)], KEPT),
    # Texts and numbers together are ordered as texts, with and without a list beside them.
    "texts": (
        [{"id": 1, "s": "b", "v": "b"}, {"id": 1, "s": "a", "v": "a"}],
        [({"id": 1, "s": 7}, ORDER), ({"id": 1, "s": ["z"]}, ORDER)],
        {1: "b"},
    ),
    "text keys": (
        [{"id": "x", "s": 1, "v": "a"}, {"id": 7, "s": 1, "v": "b"}],
        [({"id": ["x"], "s": 1}, KEY)],
        {"x": "a", 7: "b"},
    ),
}
ALL = {
    "all": (GOOD, [record for good, bad, _ in CASES.values() if good is GOOD for record in bad], KEPT),
}


def load(lines: list[Any], place: Path, format: str, **options: Any) -> tuple[widen.IngestResult, list[Any], list[Any]]:
    (place / "a.json").write_text("".join(json.dumps(each) + "\n" for each in lines))
    into = "s.t" if format == "iceberg" else str(place / "t")
    catalog = str(place / "c.db") if format == "iceberg" else None
    words = {"key": ["id"], "sequence_by": "s", "verify": True, "catalog": catalog, **options}
    planned = widen.plan(str(place / "a.json"), into, **{name: words[name] for name in words if name != "verify"})
    done = widen.ingest(str(place / "a.json"), into, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    assert planned.schema == done.plan.schema
    kept = [{"text": row["text"], "reason": row["reason"]} for row in _rows(f"{into}_quarantine", catalog)]
    return done, _rows(into, catalog), kept


def _rows(name: str, catalog: str | None) -> list[dict[str, Any]]:
    if catalog is None:
        return Table(name).to_arrow().to_pylist()
    return to_catalog(catalog).open().load_table(name).scan().to_arrow().to_pylist()


def check(case: str, place: Path, format: str, *, is_reversed: bool = False, **options: Any) -> list[dict[str, Any]]:
    good, bad, expected = {**CASES, **ALL}[case]
    lines = [*good, *(record for record, _ in bad)]
    done, rows, kept = load(lines[::-1] if is_reversed else lines, place, format, **options)
    assert done.quarantined == len(bad)
    reasons = {json.dumps(record): reason for record, reason in bad}
    assert {each["text"]: each["reason"] for each in kept} == reasons
    newest = [row for row in rows if row.get("_is_current", True)]
    assert {next(row[name] for name in ("id", "id_long") if row.get(name) is not None): row["v"] for row in newest} in (
        expected,
        {str(key): value for key, value in expected.items()},
    )
    assert not [name for name in rows[0] if "array" in name or "record" in name]
    return rows


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_others_load(case: str, format: str, tmp_path: Path, *, is_reversed: bool) -> None:
    check(case, tmp_path, format, engine="local", is_reversed=is_reversed)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_the_others_load_on_spark(format: str, tmp_path: Path, spark: SparkSession) -> None:
    check("all", tmp_path, format, engine="spark", spark=spark)
    (tmp_path / "texts").mkdir()
    check("texts", tmp_path / "texts", format, engine="spark", spark=spark)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_versions_and_partial_records(tmp_path: Path, engine: str, spark: SparkSession) -> None:
    words = {"engine": engine, "spark": spark if engine == "spark" else None}
    for name, more in (("history", {"history": True}), ("keep", {"missing": "keep"}), ("split", {"evolve": "split"})):
        (tmp_path / name).mkdir()
        rows = check("sequence", tmp_path / name, "delta", **words, **more)
        if name == "history":
            assert sorted((row["id"], row["_valid_from"], row["_valid_to"]) for row in rows if row["id"] == 1) == [
                (1, 1, 2),
                (1, 2, None),
            ]


@pytest.mark.parametrize("field", ["id", "s"])
def test_a_batch_without_any_key_or_order_is_refused(tmp_path: Path, field: str) -> None:
    with pytest.raises(InvalidOption, match=field):
        load([{"id": 1, "s": 1, field: [1]}, {"id": 1, "s": 1, field: {"a": 2}}], tmp_path, "delta", engine="local")
    assert not (tmp_path / "t").exists()
