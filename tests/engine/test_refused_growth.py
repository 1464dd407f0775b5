"""A schema grows from the records that a table takes, and from no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import widen
from widen import Table, ingest, plan, replay
from widen.table import IcebergTable

LINES: list[Any] = [
    {"id": 1, "n": 1, "t": "ab"},
    {"id": -2, "n": 1, "t": "ab", "only": 1},
    {"id": -3, "n": 1.5, "t": "ab"},
    {"id": 4, "n": 2, "t": "abcdef", "long": True, "n2": {"x": 1}},
    {"id": 5, "n": 3, "t": "ab", "both": 1},
    {"id": -6, "n": 3, "t": "ab", "both": "x"},
    [{"id": 7, "n": 1, "t": "a", "seven": 1}, {"id": -8, "n": 1, "t": "a", "eight": 1}],
]
EXPECTED = ["id int", "n int", "t string", "both int", "seven int"]


def write(path: Path, lines: list[Any]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return str(path)


def columns_of(schema: Any) -> list[str]:
    return [f"{field.name} {field.type.sql}".lower() for field in schema]


@pytest.mark.parametrize("masks", [None, ["t"]])
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_records_that_violate_a_rule_add_and_widen_no_columns(
    spark: SparkSession, tmp_path: Path, engine: str, masks: list[str] | None
) -> None:
    at = str(tmp_path / "t")
    widen.create_table(
        at, "id int, n int, t string", properties={"delta.constraints.a": "id > 0", "delta.enableTypeWidening": "true"}
    )
    if masks is None:
        widen.sql(f"ALTER TABLE delta.`{at}` ADD CONSTRAINT b CHECK (t < 'abc')", spark=spark)
    source = write(tmp_path / "s.jsonl", LINES)
    session = spark if engine == "spark" else None
    planned = plan(source, at, engine=engine, spark=session, mask=masks)
    done = ingest(source, at, engine=engine, spark=session, mask=masks, verify=True)
    assert done.plan.hash == planned.hash
    wanted = EXPECTED if masks is None else [*EXPECTED[:3], "long boolean", "n2 struct<x: int>", *EXPECTED[3:]]
    assert sorted(columns_of(Table(at).schema)) == sorted(wanted)
    assert done.quarantined == (5 if masks is None else 4)
    assert done.verification is not None
    assert done.verification.is_clean
    if masks is None:
        widen.sql(f"ALTER TABLE delta.`{at}` DROP CONSTRAINT a", spark=spark)
        replayed = replay(f"{at}_quarantine", at, engine=engine, spark=session)
        assert (replayed.replayed, replayed.left) == (4, 1)
        grown = [*EXPECTED, "only int", "both_string string", "eight int"]
        grown[1] = "n double"
        assert sorted(columns_of(Table(at).schema)) == sorted(grown)


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("is_new", [True, False])
def test_records_without_a_key_or_an_order_add_no_columns(
    spark: SparkSession, tmp_path: Path, engine: str, format: str, is_new: bool
) -> None:
    catalog = str(tmp_path / "c.db") if format == "iceberg" else None
    at = "s.t" if format == "iceberg" else str(tmp_path / "t")
    options: dict[str, Any] = {"key": ["id"], "sequence_by": "at", "catalog": catalog, "engine": engine}
    options["spark"] = spark if engine == "spark" else None
    if not is_new:
        ingest(write(tmp_path / "0.jsonl", [{"id": 1, "at": 1}]), at, **options)
    lines = [
        {"id": 2, "at": 2, "v": 1},
        {"at": 3, "v": "x", "lost": 1},
        {"id": {"x": 1}, "at": 3, "w": 1},
        {"id": 3, "at": None, "u": 1},
        # Of a new table, the first column of the order would be an array.
        {"id": 4, "at": None if is_new else [1], "u": 1},
        # What is older, deleted or followed by a newer record is taken.
        {"id": 2, "at": 1, "late": True},
    ]
    source = write(tmp_path / "1.jsonl", lines)
    planned = plan(source, at, **options)
    done = ingest(source, at, verify=True, **options)
    assert done.plan.hash == planned.hash
    table = Table(at) if format == "delta" else IcebergTable(at, catalog=catalog)
    assert sorted(columns_of(table.schema)) == ["at int", "id int", "late boolean", "v int"]
    assert (done.quarantined, done.verification and done.verification.is_clean) == (4, True)


def test_an_ordinary_load_takes_no_other_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from widen.ingestion import commit_batch

    at, passes = str(tmp_path / "t"), []
    widen.create_table(at, "id int", properties={"delta.constraints.a": "id > 0"})
    write_pass = commit_batch.write_pass
    monkeypatch.setattr(commit_batch, "write_pass", lambda *args: passes.append(1) or write_pass(*args))
    ingest(write(tmp_path / "0.jsonl", [{"id": 1, "v": 1}]), at, engine="local")
    # Without a new column, records that are refused take no other pass either.
    ingest(write(tmp_path / "1.jsonl", [{"id": 1, "v": 1}, {"id": -1, "v": 1}]), at, engine="local")
    assert len(passes) == 3
    assert pa.table(Table(at).to_arrow()).num_rows == 2
