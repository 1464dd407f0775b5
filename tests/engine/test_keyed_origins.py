"""Loads by key with the columns of file and time: the proof agrees with the writer about rows that stay as they are."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

import widen
from engine.test_keyed_proof import Mutant, both, losing, removing, wrap_decision, writing
from support.covering import TRIES_ALL, covering
from widen.changes.keyed_load import LocalMerge
from widen.errors import EngineUnsuitable, KeyRepeated

FORMATS = ("delta", "iceberg")
HISTORIES = 240 if TRIES_ALL else 9
VALUES = [0, 1, 1.5, -0.0, 0.0, "a", "", None, True, [1], [], {"a": 1}, {"a": None}, {}, 2**60, "2024-01-02"]


def place_of(folder: Path, table_format: str) -> tuple[str, dict[str, Any]]:
    return (str(folder / "t"), {}) if table_format == "delta" else ("db.t", {"catalog": str(folder / "c.db")})


class Loads:
    """A table by key, and the files that were loaded into it."""

    def __init__(self, folder: Path, table_format: str, **words: Any) -> None:
        self.folder, self.files = folder, list[str]()
        self.table, catalog = place_of(folder, table_format)
        self.words = {"to": table_format, "engine": "local", "verify": True, "key": ["id"], **catalog, **words}

    def write(self, text: str, name: str = "") -> str:
        path = self.folder / "in" / (name or f"{len(self.files)}.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        self.files.append(str(path))
        return str(path)

    def load(self, *sources: str, **words: Any) -> widen.IngestResult:
        return widen.ingest([*sources], self.table, **{**self.words, **words})

    def load_records(self, *records: Any, **words: Any) -> widen.IngestResult:
        return self.load(self.write(lines_of(*records)), **words)


def lines_of(*records: Any) -> str:
    return "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in records)


def is_clean(done: widen.IngestResult) -> bool:
    assert done.verification is not None
    return done.verification.is_clean


WAYS: Mapping[str, Mapping[str, Any]] = {
    "last batch": {},
    "newest": {"sequence_by": "at"},
    "deletes": {"delete_when": "op = 'd'"},
    "newest with deletes": {"sequence_by": "at", "delete_when": "op = 'd'"},
    "history": {"sequence_by": "at", "history": True, "delete_when": "op = 'd'"},
    "partial": {"sequence_by": "at", "missing": "keep"},
    "events of Debezium": {"envelope": "debezium"},
    "masks": {"mask": ["v"]},
    "folders": {},
}
ON_SPARK = ("last batch", "partial without a sequence")
ON_SPARK += ("history", "partial", "events of Debezium") if TRIES_ALL else ()


def make_file(dice: random.Random, way: str, batch: int) -> str:
    """Return a file with at most one record of each key, unless these have an order."""
    has_order = "sequence_by" in WAYS.get(way, {}) or way == "events of Debezium"
    keys = dice.choices(range(6), k=5) if has_order else dice.sample(range(6), k=4)
    lines: list[Any] = []
    for at, key in enumerate(keys):
        row: dict[str, Any] = {"id": key, "v": dice.choice(VALUES), "w": dice.choice("ab"), "op": dice.choice("uuud")}
        if dice.random() < 0.2:
            row[dice.choice(["more", "_loaded_at", "_source_file_name", "_source_file"])] = dice.choice("xy")
        if dice.random() < 0.2:
            del row[dice.choice(["v", "w"])]
        if has_order:
            row["at"] = 10 * batch + at
        if way == "events of Debezium":
            row.pop("at")
            kind = dice.choice("cud")
            images = {"before": row if kind == "d" else None, "after": None if kind == "d" else row}
            source = {"connector": "mysql", "file": "b.1", "pos": 100 * batch + at, "row": 0, "ts_ms": batch}
            lines.append({"op": kind, "ts_ms": batch, "source": source, **images})
        else:
            lines.append(row)
    if dice.random() < 0.2:
        lines.append(dice.choice(["no record\n", {"v": 1}, {"id": None, "v": 2}]))
    return lines_of(*lines)


def make_loads(loads: Loads, dice: random.Random, way: str) -> list[tuple[list[str], dict[str, Any]]]:
    """Return what is loaded: new files, the same again, the same from another place, and one of two names at once."""
    made = list[tuple[list[str], dict[str, Any]]]()
    for batch in range(4):
        name = f"day={batch % 2}/{batch}.json" if way == "folders" else ""
        if name:
            (loads.folder / "in" / name).parent.mkdir(exist_ok=True, parents=True)
        file = loads.write(make_file(dice, way, batch), name)
        moved = loads.write(Path(file).read_text(), name.replace(".json", "-moved.json"))
        again = [file, dice.choice([file, moved]), dice.choice(loads.files)]
        made.append(([file, moved] if dice.random() < 0.3 else [file], {"source_columns": dice.random() < 0.8}))
        made += [([each], {"source_columns": dice.random() < 0.8}) for each in again if dice.random() < 0.7]
    return made


def check_history(loads: Loads, dice: random.Random, way: str) -> None:
    for sources, words in make_loads(loads, dice, way):
        done = None
        with suppress(KeyRepeated, EngineUnsuitable):
            done = loads.load(*sources, **words)
        assert done is None or is_clean(done), (sources, words, done.verification)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_the_proof_agrees_with_the_writer(tmp_path: Path, seed: int) -> None:
    way, table_format = [*WAYS][seed % len(WAYS)], FORMATS[seed % 2]
    check_history(Loads(tmp_path, table_format, **WAYS[way]), random.Random(f"origins {seed}"), way)


@pytest.mark.parametrize("way", ON_SPARK)
@pytest.mark.parametrize("table_format", FORMATS if TRIES_ALL else FORMATS[:1])
def test_the_proof_agrees_with_the_writer_on_spark(
    spark: SparkSession, tmp_path: Path, way: str, table_format: str
) -> None:
    words = WAYS.get(way, {"missing": "keep"})
    with mock.patch("widen.spark.engine.SESSION_WINS", new=True):
        loads = Loads(tmp_path, table_format, **{"engine": "spark", "spark": spark, **words})
        check_history(loads, random.Random(f"origins {way}"), way)


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_rows_that_stay_are_counted(tmp_path: Path, table_format: str) -> None:
    loads = Loads(tmp_path, table_format, source_columns=True)
    records = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    first, again = loads.load_records(*records), loads.load_records(*records)
    twice = loads.load(*loads.files)
    changed = loads.load_records({"id": 1, "v": "z"}, {"id": 2, "v": "b"})
    for done, exact in ((first, 8), (again, 4), (twice, 4), (changed, 6)):
        assert done.verification is not None
        assert (is_clean(done), done.verification.exact, done.verification.lost) == (True, exact, 0)


OWN = [
    "_loaded_at",
    "_loaded_at_utc",
    "_source_file",
    "_source_file_name",
    "_valid_from",
    "_valid_to_day",
    "_is_current",
]


@pytest.mark.parametrize(("name", "table_format"), covering(OWN, FORMATS))
def test_fields_of_the_source_with_such_names_are_content(tmp_path: Path, table_format: str, name: str) -> None:
    loads = Loads(tmp_path, table_format)
    loads.load_records({"id": 1, name: "a"})
    done = loads.load_records({"id": 1, name: "b"})
    assert done.keys is not None
    assert done.keys.updated == 1
    assert is_clean(done)


FIRST = [{"id": key, "v": f"old {key}"} for key in range(1, 5)]
BATCH = [{"id": 1, "v": "old 1"}, {"id": 2, "v": "new 2"}, {"id": 5, "v": "new 5"}]
"""The record of a row that stays, one that replaces its row, and a new one."""


def with_value(name: str, value: object) -> Mutant:
    """The row of key 2 has another value than its record."""

    def change(rows: pa.Table) -> pa.Table:
        column = pc.if_else(pc.equal(rows["id"], 2), pa.scalar(value, rows.schema.field(name).type), rows[name])
        return rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)

    return writing(change)


WRONG: Mapping[str, Mutant] = {
    "a row of other content stays": both(losing(0, 1), removing()),
    "the row that stays is removed": removing(0, 1),
    "a row that stays comes again": both(losing(), removing(1)),
    "a row has no file": with_value("_source_file", None),
    "a row has another file": with_value("_source_file", "file:/else.json"),
    "a row has no time": with_value("_loaded_at", None),
    "a row has another time": with_value("_loaded_at", 1_700_000_000_000_000),
    "a row keeps its content and gets the new file": with_value("v", "old 2"),
    "a row of another key is removed": removing(1, 2),
}


@pytest.mark.parametrize(("name", "table_format"), covering(["none", *WRONG], FORMATS))
def test_the_proof_finds_rows_that_should_not_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, name: str
) -> None:
    loads, found = Loads(tmp_path, table_format, source_columns=True), list[LocalMerge]()
    loads.load_records(*FIRST)
    for module in ("widen.changes.change_context", "widen.changes.iceberg_keys"):
        monkeypatch.setattr(f"{module}.ensure_same_count", lambda *_: None)
    wrap_decision(monkeypatch, WRONG.get(name, lambda merge, *_: merge), found)
    done: Callable[[], widen.IngestResult] = lambda: loads.load_records(*BATCH)  # noqa: E731
    assert is_clean(done()) == (name == "none")
    (merge,) = found
    assert [*merge.losers.values()] == [BitMap64([0])]
    assert [*merge.removed.values()] == [BitMap64([1])]


def test_both_forms_of_the_rule_agree(tmp_path: Path) -> None:
    """What is found for all keys at a time is what `judge_key` says of each."""
    from widen.verification import keyed_proof as local

    dice, totals, text = random.Random("two forms"), list[Any](), ""
    loads, others = (Loads(tmp_path / name, "delta") for name in ("fast", "slow"))
    for each in (loads, others):
        each.folder.mkdir()
    find = local._Judge._find_right

    def find_nothing(judge: Any, quarantined: Any) -> Any:
        is_right, *rest = find(judge, quarantined)
        return pc.and_(is_right, False), *rest

    for batch in range(6):
        text = make_file(dice, "last batch", batch % 3) if batch % 2 == 0 else text
        done = loads.load(loads.write(text), source_columns=batch > 0)
        with mock.patch.object(local._Judge, "_find_right", find_nothing):
            other = others.load(others.write(text), source_columns=batch > 0)
        totals.append(done.verification)
        assert done.verification == other.verification
    assert any(each.exact for each in totals)
