"""What this process proves of an ingestion by key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import widen
from widen.batches import text_tasks
from widen.changes import deleted_keys, keyed_load
from widen.evolution.key_rules import KeyRules
from widen.model.types import LONG, STRING, Field, StructType
from widen.rows import row_builder
from widen.verification.keyed_proof import find_proof_obstacle
from widen.verification.keyed_proof_frames import OTHERS_LISTED

SCHEMA = StructType((Field("op", STRING), Field("n", LONG)))


def test_what_only_spark_proves_is_known_before_the_load() -> None:
    key = (("id",),)
    assert find_proof_obstacle(KeyRules(key), SCHEMA) is None
    assert find_proof_obstacle(KeyRules(key, (("n",),), "op = 'd'", keeps_missing=True), SCHEMA) is None
    assert find_proof_obstacle(KeyRules(key, (("n",),), history=True), SCHEMA) is None
    assert find_proof_obstacle(KeyRules(key, (("n",),), "upper(op) = 'D'"), SCHEMA) is not None


def load(folder: Path, *records: dict[str, Any], delete_when: str = "op = 'd'", **words: Any) -> widen.Verification:
    source = folder / "in.json"
    source.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    done = widen.ingest(
        str(source), str(folder / "t"), key=["id"], sequence_by="s", delete_when=delete_when, verify=True, **words
    )
    assert done.verification is not None
    return done.verification


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")


@pytest.mark.usefixtures("here")
def test_a_deleted_key_that_the_writer_misses_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(tmp_path, {"id": 1, "s": 1, "op": "u"}, {"id": 2, "s": 1, "op": "u"}).is_clean
    assert load(tmp_path, {"id": 1, "s": 3, "op": "d"}).is_clean
    late = {"id": 1, "s": 2, "op": "u"}
    empty = deleted_keys._SCHEMA_OF_ARROW.empty_table()
    with monkeypatch.context() as patch:
        patch.setattr(deleted_keys, "_read_here", lambda *_: empty)
        assert load(tmp_path, late).extra == 1
    assert widen.Table(str(tmp_path / "t")).to_arrow().num_rows == 2


LISTS = {
    "a key whose row stays": {"__widen_key_0": "n:2", "__widen_number": Decimal(9)},
    "a key that no row has": {"__widen_key_0": "n:7", "__widen_number": Decimal(9)},
    "a later time": {"__widen_key_0": "n:1", "__widen_number": Decimal(4)},
    "an earlier time": {"__widen_key_0": "n:1", "__widen_number": Decimal(1)},
}
"""Deletions that no record makes."""


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("name", LISTS)
def test_a_deletion_that_is_listed_though_nothing_deleted_it_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, name: str, history: bool
) -> None:
    words = {"history": history}
    assert load(tmp_path, {"id": 1, "s": 1, "op": "u"}, {"id": 2, "s": 1, "op": "u"}, **words).is_clean
    write = deleted_keys._write_here

    def write_more(store: Any, folder: str, keys: pa.Table) -> Any:
        more = pa.Table.from_pylist([LISTS[name]], schema=keys.schema)
        return write(store, folder, pa.concat_tables([keys, more]))

    with monkeypatch.context() as patch:
        patch.setattr(deleted_keys, "_write_here", write_more)
        assert not load(tmp_path, {"id": 1, "s": 3, "op": "d"}, {"id": 3, "s": 1, "op": "u"}, **words).is_clean


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("history", [False, True])
def test_a_deletion_that_a_later_list_has_lost_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, history: bool
) -> None:
    words = {"history": history}
    for key in (1, 2):
        assert load(tmp_path, {"id": key, "s": 3, "op": "d"}, **words).is_clean
    put = deleted_keys.KeyLists._put
    with monkeypatch.context() as patch:
        patch.setattr(
            deleted_keys.KeyLists,
            "_put",
            lambda self, known, *rest: put(self, msgspec.structs.replace(known, files=known.files[1:]), *rest),
        )
        found = load(tmp_path, {"id": 3, "s": 3, "op": "d"}, **words)
    assert found.places == (OTHERS_LISTED,)


@pytest.mark.usefixtures("here")
def test_lists_that_are_merged_are_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_keys, "MAX_LISTS", 2)
    for at in range(1, 8):
        assert load(tmp_path, {"id": at % 3, "s": at, "op": "d"}, {"id": 9, "s": at, "op": "u"}).is_clean


@pytest.mark.usefixtures("here")
def test_a_condition_that_the_writer_gets_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": number, "s": 1, "op": "u", "v": number} for number in (5, 6)]
    assert load(tmp_path, *rows, delete_when="v = 7").is_clean
    right = keyed_load.plan_test
    with monkeypatch.context() as patch:
        patch.setattr(keyed_load, "plan_test", lambda predicate: lambda rows: pc.invert(right(predicate)(rows)))
        assert load(tmp_path, {"id": 5, "s": 2, "op": "u", "v": 5}, delete_when="v = 7").lost


@pytest.mark.usefixtures("here")
def test_a_fraction_does_not_delete_an_integer(tmp_path: Path) -> None:
    load(tmp_path, {"id": 1, "s": 1, "v": 5}, {"id": 2, "s": 1, "v": 6}, delete_when="v = 5.5")
    proof = load(tmp_path, {"id": 1, "s": 2, "v": 5}, delete_when="v = 5.5")
    # Whatever the writer does, the proof never takes 5 for 5.5.
    assert proof.is_clean is (widen.Table(str(tmp_path / "t")).to_arrow().num_rows == 2)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("loads", [1, 2])
def test_a_load_that_forgets_its_keys_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: int) -> None:
    record = {"id": 1, "s": 1, "op": "u"}
    if loads == 2:
        assert load(tmp_path, record).is_clean
    monkeypatch.setattr("widen.targets.delta.match_recorded_keys", lambda *_, **__: None)
    assert not load(tmp_path, record, {**record, "s": 2}).is_clean


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("history", [False, True])
def test_a_column_that_lacks_the_value_of_its_field_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, history: bool
) -> None:
    words = {"history": history, "evolve": "split"}
    assert load(tmp_path, {"id": 1, "s": 1, "v": 1}, {"id": 2, "s": 1, "v": 1}, delete_when="v = 9", **words).is_clean
    assert load(tmp_path, {"id": 1, "s": 2, "v": "x"}, delete_when="v = 9", **words).is_clean
    drain = text_tasks.drain_arrow_batches

    def without(*words: Any) -> Iterator[pa.RecordBatch]:
        for batch in drain(*words):
            texts, numbers = batch.column("v_string"), batch.column("v")
            own = pc.if_else(pc.is_valid(numbers), pa.scalar(None, pa.string()), texts)
            yield batch.set_column(batch.schema.names.index("v_string"), "v_string", own)

    records = {"id": 3, "s": 2, "v": 7}, {"id": 4, "s": 2, "v": "y"}
    with monkeypatch.context() as patch:
        patch.setattr(row_builder, "find_kernel", lambda: None)
        patch.setattr(text_tasks, "drain_arrow_batches", without)
        assert load(tmp_path, *records, delete_when="v = 9", **words).places == ("the key 3",)
    # A row that stays keeps its columns.
    assert load(tmp_path, *records, {"id": 1, "s": 3, "v": 7}, delete_when="v = 9", **words).is_clean


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ((0.12345678901234567890123, "x"), (), {"numbers": "double"}),
        (([0.5], ["x"]), ("x", "-176389363761677.0715", "0.1"), {"numbers": "double"}),
        (([1], True), (7, "2377-11-18"), {}),
        (({"k": "x"}, {"k": [1]}), ({"k": 7}, {"k": "a"}), {}),
    ],
)
def test_a_number_counts_as_its_field_holds_it(
    tmp_path: Path, first: tuple[Any, ...], second: tuple[Any, ...], words: dict[str, Any]
) -> None:
    """A column rounds the number, or texts stand before the arrays that have it."""
    for values in (first, second):
        texts = [
            f'{{"id": {at}, "s": 1, "op": "u", "v": {value if str(value)[0] == "-" else json.dumps(value)}}}'
            for at, value in enumerate(values)
        ]
        if texts:
            source = tmp_path / "in.json"
            source.write_text("\n".join(texts).replace("0.12345678901234568", "0.12345678901234567890123"))
            keys: dict[str, Any] = {"key": ["id"], "sequence_by": "s", "delete_when": "op = 'd'"}
            done = widen.ingest(source, tmp_path / "t", verify=True, **keys, **words)
            assert done.verification is not None
            assert (done.verification.lost, done.verification.places) == (0, ())


def test_both_zeros_are_one_key(tmp_path: Path) -> None:
    for sequence, (key, op) in enumerate([(0.0, "u"), (-0.0, "u"), (0.0, "u"), (-0.0, "d"), (0.0, "u")]):
        rest = {"id": 1.5, "s": sequence, "op": "u"}
        assert load(tmp_path, {"id": key, "s": sequence, "op": op}, rest).is_clean
    assert load(tmp_path, {"id": -0.0, "s": 2, "op": "u"}).is_clean
    rows = widen.Table(str(tmp_path / "t")).to_arrow().to_pylist()
    assert sorted((row["id"], row["s"]) for row in rows) == [(0.0, 4), (1.5, 4)]
