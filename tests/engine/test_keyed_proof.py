"""The proof of ingestions by key: whatever the writer gets wrong, it finds; and both engines say the same.

The writer is changed so that it decides or writes something wrong, and commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64
from pyspark.sql import SparkSession

import widen
from engine.test_keys import Keyed, record
from engine.test_keys_iceberg import IcebergKeyed
from support.covering import covering
from widen.changes import keyed_load
from widen.changes.keyed_files import DeltaFiles, KeyedTable, NewRows
from widen.changes.keyed_load import KeyedLoad, LocalMerge
from widen.protocol.actions import Add

Mutant = Callable[[LocalMerge, KeyedTable, Sequence[Add]], LocalMerge]

FIRST = [record(1, 1, 1), record(3, 1, 3), record(4, 1, 4), record(6, 5, 6)]
BATCH = [record(1, 2, 5), record(2, 7, 7), record(2, 6, 66), record(3, 2, 8, "d"), record(6, 1, 66)]
"""What the batch has at the positions 0 to 4: an update, an insert and its older record, a deletion, a late record."""


def losing(*positions: int) -> Mutant:
    """The writer takes these records of the batch for those that do not become rows."""
    return lambda merge, table, adds: replace(merge, losers={table.key_of(adds[0]): BitMap64(positions)})


def removing(*positions: int) -> Mutant:
    """The writer removes these rows of the first batch."""
    return lambda merge, *_: replace(merge, removed=dict.fromkeys(merge.removed, BitMap64(positions)))


def both(*mutants: Mutant) -> Mutant:
    def mutate(merge: LocalMerge, table: KeyedTable, adds: Sequence[Add]) -> LocalMerge:
        for each in mutants:
            merge = each(merge, table, adds)
        return merge

    return mutate


def writing(change: Callable[[pa.Table], pa.Table]) -> Mutant:
    """The writer has written something else into the file of the batch."""

    def mutate(merge: LocalMerge, table: KeyedTable, adds: Sequence[Add]) -> LocalMerge:
        path = str(Path(table.view.store.location) / adds[0].path) if isinstance(table, DeltaFiles) else adds[0].path
        rows = pq.read_table(path.removeprefix("file://"))
        pq.write_table(change(rows).cast(rows.schema), path.removeprefix("file://"))
        return merge

    return mutate


def with_value(rows: pa.Table, name: str, new: object) -> pa.Table:
    column = pc.if_else(pc.equal(rows["id"], 2), pa.scalar(new, rows.schema.field(name).type), rows[name])
    return rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)


MUTANTS: Mapping[str, Mutant] = {
    "the older record wins": losing(1, 3, 4),
    "no record wins": losing(1, 2, 3, 4),
    "both records become rows": losing(3, 4),
    "a late record becomes a row beside the newer one": losing(2, 3),
    "a late record replaces the newer row": both(losing(2, 3), removing(0, 1, 3)),
    "a deletion is lost": removing(0),
    "the row before an update stays": removing(1),
    "a row that nothing replaces is removed": removing(0, 1, 3),
    "a row of another key is removed": removing(0, 1, 2),
    "the record of a deletion becomes a row": losing(2, 4),
    "a value is changed": writing(lambda rows: with_value(rows, "n", 77)),
    "a value is lost": writing(lambda rows: with_value(rows, "op", None)),
    "the key is changed": writing(lambda rows: with_value(rows, "id", 22)),
    "a deletion is not listed": lambda merge, *_: replace(merge, deleted=None),
}


def wrap_decision(monkeypatch: pytest.MonkeyPatch, mutant: Mutant, found: list[LocalMerge]) -> None:
    decide = keyed_load.decide_load

    def decide_wrongly(spark: SparkSession, load: KeyedLoad) -> LocalMerge:
        merge = decide(spark, load)
        found.append(merge)
        return mutant(merge, load.table, load.adds)

    monkeypatch.setattr(keyed_load, "decide_load", decide_wrongly)


def open_keyed(spark: SparkSession, place: Path, table_format: str, **words: Any) -> Keyed:
    place.mkdir(exist_ok=True)
    return (Keyed if table_format == "delta" else IcebergKeyed)(spark, place, "id", **{"verify": True, **words})


FORMATS = ("delta", "iceberg")


@pytest.mark.parametrize(("name", "table_format"), covering(MUTANTS, FORMATS))
def test_the_proof_finds_what_the_writer_gets_wrong(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, name: str
) -> None:
    keyed, found = open_keyed(spark, tmp_path, table_format), list[LocalMerge]()
    keyed.ingest(FIRST)
    # Rows of files are counted where files are copied, which would end the ingestion before its commit.
    for module in ("widen.changes.change_context", "widen.changes.iceberg_keys"):
        monkeypatch.setattr(f"{module}.ensure_same_count", lambda *_: None)
    wrap_decision(monkeypatch, MUTANTS[name], found)
    proof = keyed.ingest(BATCH).verification
    (merge,) = found
    assert [set(each) for each in merge.losers.values()] == [{2, 3, 4}]
    assert [set(each) for each in merge.removed.values()] == [{0, 1}]
    assert proof is not None
    assert not proof.is_clean
    assert proof.records == len(BATCH)


@pytest.mark.parametrize("table_format", FORMATS)
def test_the_proof_agrees_with_the_writer_as_it_is(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    keyed = open_keyed(spark, tmp_path, table_format)
    for batch, exact in ((FIRST, 16), (BATCH, 8), (BATCH, 0)):
        proof = keyed.ingest(batch).verification
        assert proof is not None
        assert (proof.is_clean, proof.records, proof.leaves, proof.exact) == (True, len(batch), exact, exact)


@pytest.mark.parametrize(
    ("name", "table_format"), covering(["a field that is kept", "a field that is set", "no row"], FORMATS)
)
def test_the_proof_finds_partial_records_that_are_put_wrong(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, name: str
) -> None:
    keyed, found = open_keyed(spark, tmp_path, table_format, missing="keep"), list[LocalMerge]()
    keyed.ingest([{"id": 1, "at": 1, "a": 1, "b": 1, "op": "u"}, {"id": 2, "at": 1, "a": 2, "b": 2, "op": "u"}])

    def mutate(merge: LocalMerge, *_: Any) -> LocalMerge:
        assert merge.new_rows is not None
        rows = pa.concat_tables(merge.new_rows.read())
        column = {"a field that is kept": "b", "a field that is set": "a"}.get(name)
        if column is None:
            return replace(merge, new_rows=NewRows.of(rows.slice(1)))
        at = rows.column_names.index(column)
        field = rows.schema.field(at)
        return replace(merge, new_rows=NewRows.of(rows.set_column(at, field, pa.nulls(len(rows), field.type))))

    wrap_decision(monkeypatch, mutate, found)
    for module in ("widen.changes.change_context", "widen.changes.iceberg_keys"):
        monkeypatch.setattr(f"{module}.ensure_same_count", lambda *_: None)
    proof = keyed.ingest([{"id": 1, "at": 2, "a": 5}, {"id": 2, "at": 3, "b": 7}]).verification
    assert found
    assert proof is not None
    assert not proof.is_clean


def with_cell(rows: pa.Table, n: int, name: str, value: object) -> pa.Table:
    """Return rows with another value where the number of the record is `n`."""
    records = [{**row, **({name: value} if row["n"] == n else {})} for row in rows.to_pylist()]
    return pa.Table.from_pylist(records, schema=rows.schema)


WRONG_VERSIONS: Mapping[str, Callable[[pa.Table], pa.Table]] = {
    "a version ends too late": lambda rows: with_cell(rows, 1, "_valid_to", 7),
    "a version does not end": lambda rows: with_cell(rows, 1, "_valid_to", None),
    "a version begins too early": lambda rows: with_cell(rows, 4, "_valid_from", 4),
    "two versions are current": lambda rows: with_cell(rows, 4, "_is_current", True),
    "a value is changed": lambda rows: with_cell(rows, 4, "op", "x"),
    "a version is lost": lambda rows: rows.filter(pc.not_equal(rows["n"], 4)),
    "the version before is lost": lambda rows: rows.filter(pc.not_equal(rows["n"], 1)),
    "a version comes twice": lambda rows: pa.concat_tables([rows, rows.filter(pc.equal(rows["n"], 4))]),
    "the newest version ends": lambda rows: with_cell(rows, 5, "_valid_to", 9),
    "the newest version is not current": lambda rows: with_cell(rows, 5, "_is_current", False),
    "another record is there": lambda rows: with_cell(rows, 4, "n", 9),
    "the key is changed": lambda rows: with_cell(rows, 5, "id", 4),
}


@pytest.mark.parametrize(("name", "table_format"), covering(["none", *WRONG_VERSIONS], FORMATS))
def test_the_proof_finds_versions_that_are_wrong(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, name: str
) -> None:
    keyed, found = open_keyed(spark, tmp_path, table_format, history=True), list[LocalMerge]()
    keyed.ingest([record(1, 1, 1), record(1, 10, 2), record(2, 1, 3)])
    change = WRONG_VERSIONS.get(name, lambda rows: rows)

    def mutate(merge: LocalMerge, *_: Any) -> LocalMerge:
        assert merge.new_rows is not None
        rows = pa.concat_tables(merge.new_rows.read())
        assert sorted(rows["n"].to_pylist()) == [1, 4, 5]
        return replace(merge, new_rows=NewRows.of(change(rows)))

    wrap_decision(monkeypatch, mutate, found)
    for module in ("widen.changes.change_context", "widen.changes.iceberg_keys"):
        monkeypatch.setattr(f"{module}.ensure_same_count", lambda *_: None)
    proof = keyed.ingest([record(1, 5, 4), record(1, 10, 2), record(3, 2, 5)]).verification
    assert found
    assert proof is not None
    assert proof.is_clean == (name == "none"), str(proof)


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_sample_of_the_keys_is_clean_where_all_are(spark: SparkSession, tmp_path: Path, table_format: str) -> None:
    keyed = open_keyed(spark, tmp_path, table_format)
    keyed.ingest([record(key, 1, key) for key in range(40)])
    proof = keyed.ingest([record(key, 2, key) for key in range(30)], verify=0.5).verification
    assert proof is not None
    assert (proof.is_clean, proof.places) == (True, ())
    assert 5 < proof.records < 25


def test_what_only_spark_proves_starts_it_before_the_commit(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    keyed = Keyed(spark, tmp_path, "id", delete_when="upper(op) = 'D'")
    words = {**keyed.words, "engine": "local", "verify": True}
    with pytest.raises(widen.WidenError, match="comparison of columns with constants"):
        widen.ingest(keyed.batch([record(1, 1, 1)]), table, **words)
    assert not (tmp_path / "t" / "_delta_log").exists()
