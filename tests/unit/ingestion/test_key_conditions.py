"""Loads by key: `delete_when` on fields that no record has yet, or that are hidden, and texts that are no records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import widen
from widen.errors import InvalidCondition, InvalidOption, UnmatchedFields
from widen.files.data_writer import PartWriter


class Keyed:
    """A table by key, which is loaded without Spark."""

    def __init__(self, place: Path, kind: str) -> None:
        self.place, self.number = place, 0
        self.where = {"catalog": f"{place}/c.db"} if kind == "iceberg" else {}
        self.into = "shop.t" if kind == "iceberg" else str(place / "t")

    def load(self, *lines: dict[str, Any] | str, **words: Any) -> widen.IngestResult:
        self.number += 1
        source = self.place / f"{self.number}.json"
        source.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines))
        words = {"key": ["id"], "sequence_by": "n", "verify": True, **self.where, **words}
        return widen.ingest(source, self.into, engine="local", **words)

    def read(self, suffix: str = "") -> pa.Table:
        if not self.where:
            return widen.Table(self.into + suffix).to_arrow()
        return (
            SqlCatalog("default", uri=f"sqlite:///{self.place}/c.db").load_table(self.into + suffix).scan().to_arrow()
        )


@pytest.fixture(params=["delta", "iceberg"])
def keyed(request: pytest.FixtureRequest, tmp_path: Path) -> Keyed:
    return Keyed(tmp_path, request.param)


FIRST = ({"id": 1, "n": 1}, {"id": 2, "n": 1})
DELETION = {"id": 1, "n": 2, "op": "D", "meta": {"op": "D"}, "deleted": True}


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("op = 'D'", {}),
        ("op = 'D'", {"history": True}),
        ("op = 'D'", {"missing": "keep"}),
        ("META.Op IN ('D', 'T') OR gone", {}),
        ("deleted", {}),
    ],
)
def test_a_field_that_no_record_has_yet_is_null(keyed: Keyed, condition: str, words: dict[str, Any]) -> None:
    first = keyed.load(*FIRST, delete_when=condition, **words)
    assert str(first.keys) == "2 inserted, 0 updated, 0 deleted, 0 late"
    notes = [str(each) for each in first.plan.unmatched]
    name = condition.partition(" ")[0]
    assert (
        f"delete_when {name}: neither the table nor the batch has this field, so it is null in the condition." in notes
    )
    second = keyed.load(DELETION, {"id": 2, "n": 2, "op": "U"}, delete_when=condition, **words)
    assert second.keys is not None
    assert (second.keys.updated, second.keys.deleted) == (1, 1)
    assert second.verification is not None
    assert second.verification.is_clean
    assert not [each for each in second.plan.unmatched if each.option == "delete_when" and each.source != ("gone",)]


def test_its_null_is_that_of_conditions(keyed: Keyed) -> None:
    result = keyed.load(*FIRST, delete_when="op IS NULL AND NOT (n = 2 AND op = 'D')")
    assert str(result.keys) == "0 inserted, 0 updated, 0 deleted, 0 late, 2 deletions of unknown keys"
    assert result.verification is not None
    assert result.verification.is_clean


def test_a_typo_is_named(keyed: Keyed) -> None:
    records = [{**each, "opp": "U"} for each in FIRST]
    (note,) = keyed.load(*records, delete_when="op = 'D'").plan.unmatched
    assert str(note).endswith("it is null in the condition. Did you mean opp?")
    with pytest.raises(UnmatchedFields, match="delete_when op: neither the table nor the batch"):
        keyed.load(*records, delete_when="op = 'D'", strict=True)


def test_values_that_no_column_holds_decide_nothing(keyed: Keyed) -> None:
    keyed.load(*FIRST, delete_when="op = 'D'")
    with pytest.raises(InvalidCondition, match="records have the field op, but no column holds its values"):
        keyed.load(DELETION, delete_when="op = 'D'", evolve="freeze")
    keyed.load({"id": 3, "n": 3}, delete_when="op = 'D'", evolve="freeze")


@pytest.mark.parametrize("field", ["meta", "META.op"])
def test_a_masked_field_is_refused(keyed: Keyed, field: str) -> None:
    with pytest.raises(InvalidOption, match=r"The load masks meta\.op.*--exclude meta\.op"):
        keyed.load(DELETION, delete_when="id = 7 OR meta.op = 'D'", mask=[field])


BATCHES: tuple[tuple[dict[str, Any], ...], ...] = (
    (
        {"id": 1, "n": 1, "op": "I-confidential", "meta": {"op": "I-confidential", "at": 1}, "v": 1},
        {"id": 2, "n": 1, "op": "I-confidential", "meta": {"op": "I-confidential", "at": 1}, "v": 1},
        {"id": 3, "n": 1, "op": "D", "meta": {"op": "D", "at": 1}, "v": 1},
    ),
    (
        {"id": 1, "n": 2, "op": "D", "meta": {"op": "D", "at": 2}, "v": 5},
        {"id": 2, "n": 2, "op": "U-confidential", "meta": {"op": "U-confidential"}, "v": 7},
        {"id": 2, "n": 3, "op": "U-confidential", "v": 8},
        {"id": 4, "n": 2, "v": 9},
        {"id": 5, "n": 2, "op": None, "meta": None},
    ),
    (
        {"id": 1, "n": 1, "op": "I-confidential", "meta": {"op": "I-confidential"}, "v": 2},
        {"id": 2, "n": 4, "op": "D", "meta": {"op": "D"}},
        {"id": 4, "n": 3, "OP": "D", "meta": {"OP": "D"}},
        {"id": 6, "n": 3, "op": "U-confidential", "meta": {"op": "D"}, "v": 5},
    ),
)


@pytest.mark.parametrize(
    ("condition", "excluded", "words"),
    [
        ("OP IN ('D', 'T') AND v IS NULL OR v = 9", ["Op"], {}),
        ("meta.op = 'D' OR op IS NULL", ["meta"], {"sequence_by": None}),
        ("meta.op = 'D'", ["meta.op"], {"history": True}),
        ("meta.op = 'D' AND op = 'D'", ["meta", "op"], {"missing": "keep"}),
        ("meta.op = 'D' AND op = 'D'", ["meta", "op"], {"history": True}),
    ],
)
def test_an_excluded_field_decides_and_is_nowhere(
    keyed: Keyed, tmp_path: Path, condition: str, excluded: list[str], words: dict[str, Any]
) -> None:
    (tmp_path / "open").mkdir()
    as_it_is = Keyed(tmp_path / "open", "delta")
    words = {"sequence_by": "n", **words, "delete_when": condition, "allow_unmatched": True}
    for batch in BATCHES:
        records = batch if words["sequence_by"] else list({each["id"]: each for each in batch}.values())
        result, wanted = keyed.load(*records, **words, exclude=excluded), as_it_is.load(*records, **words)
        assert result.keys == wanted.keys
        assert result.verification is not None
        assert result.verification.is_clean
        assert not [each for each in result.plan.unmatched if each.option == "delete_when"]
    names = ["id", "n", "v"]
    assert sorted(map(str, keyed.read().select(names).to_pylist())) == sorted(
        map(str, as_it_is.read().select(names).to_pylist())
    )
    top = {each for each in excluded if "." not in each}
    assert not {name.lower() for name in top} & {name.lower() for name in keyed.read().column_names}
    if {*excluded} >= {"meta", "op"}:
        assert_nowhere(keyed, b"confidential")


def assert_nowhere(keyed: Keyed, value: bytes) -> None:
    """Check that no file of a table has a value; data files are neither compressed nor in dictionaries here."""
    sources = {keyed.place / f"{number}.json" for number in range(1, keyed.number + 1)}
    own = [path for path in keyed.place.rglob("*") if path.is_file() and path not in sources]
    own = [path for path in own if "open" not in path.relative_to(keyed.place).parts]
    assert own
    assert not [path for path in own if value in path.read_bytes()]
    for path in own:
        if path.suffix == ".parquet":
            assert value.decode() not in str(pq.read_table(path, partitioning=None).to_pylist())


def test_staged_files_have_no_excluded_value(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[pa.Table] = []
    write = PartWriter.write
    monkeypatch.setattr(PartWriter, "write", lambda self, rows: (written.append(rows), write(self, rows)))
    keyed.load(*BATCHES[0], {"n": 1, "op": "U-confidential"}, delete_when="op = 'D'", exclude=["op", "meta"])
    assert sum(len(rows) for rows in written) >= 3
    assert "confidential" not in str([rows.to_pylist() for rows in written])
    assert not [
        rows
        for rows in written
        if {*rows.schema.names}
        - {"id", "n", "v"}
        - {"text", "file", "position"}
        - {"reason", "kept_at", "table_version"}
    ]
    (row,) = keyed.read("_quarantine").to_pylist()
    assert row["text"] == '{"n":1}'
    assert_nowhere(keyed, b"confidential")


VALUES = ("D", "U", "", 5, 5.0, 5.5, -7, 0, 2**62, True, False, None)
CONDITIONS = {
    str: ("f = 'D'", "NOT (f IN ('D', 'X'))", "f IS NULL OR f BETWEEN '' AND 'E'"),
    int: ("f = 5", "f > 5.5 AND n = 1", "NOT (f < 0 OR f IN (0, 5))"),
    float: ("f = 5.0", "NOT f < 5.5"),
    bool: ("f", "NOT f OR f IS NULL"),
}


@pytest.mark.parametrize("kind", [str, int, float, bool])
def test_each_condition_deletes_what_it_does_with_a_column(tmp_path: Path, kind: type) -> None:
    numbers = {int, float} if kind in (int, float) else {kind}
    records = [{"id": at, "n": 1, "f": each} for at, each in enumerate(VALUES) if each is None or type(each) in numbers]
    for at, condition in enumerate(CONDITIONS[kind]):
        found = []
        for words in ({"exclude": ["f"]}, {}):
            place = tmp_path / f"{at}{len(words)}"
            place.mkdir()
            keyed = Keyed(place, "delta")
            result = keyed.load({"id": -1, "n": 1}, *records, delete_when=condition, **words)
            assert result.verification is not None
            assert result.verification.is_clean
            found.append((result.keys, sorted(keyed.read()["id"].to_pylist())))
        assert found[0] == found[1], condition


def test_what_tasks_cannot_evaluate_is_named(keyed: Keyed) -> None:
    for condition, value in (("op LIKE 'D%'", "D"), ("op = 5", "x"), ("op IS NOT NULL", {"a": 1}), ("op", "true")):
        with pytest.raises(InvalidCondition, match="the load excludes op, so tasks evaluate the condition"):
            keyed.load({"id": 1, "n": 1}, {"id": 2, "n": 1, "op": value}, delete_when=condition, exclude=["op"])
    source = keyed.place / "typed.parquet"
    pq.write_table(pa.table({"id": [1], "n": [1], "op": ["D"]}), source)
    words = {"key": ["id"], "delete_when": "op = 'D'", "exclude": ["op"], "engine": "local", **keyed.where}
    with pytest.raises(InvalidOption, match="the records of this source have types"):
        widen.ingest(source, keyed.into, **words)


def test_other_forms_of_texts(keyed: Keyed, tmp_path: Path) -> None:
    words = {"key": ["id"], "sequence_by": "n", "delete_when": "op = 'D'", "exclude": ["op"], "verify": True}
    words |= {"engine": "local", **keyed.where}
    first, second = tmp_path / "1.csv", tmp_path / "2.json"
    first.write_text("id,n,op,v\n1,1,U,a\n2,1,U,b\n3,1,D,c\n")
    second.write_text('[{"id": 1, "n": 2, "op": "D"}, {"id": 2, "n": 2, "op": "U", "v": "x"}, {"op": "D", "id": 4}]')
    counts = []
    for source in (first, second):
        result = widen.ingest(source, keyed.into, **words)
        assert result.verification is not None
        assert result.verification.is_clean
        counts.append(str(result.keys))
    assert counts == [
        "2 inserted, 0 updated, 0 deleted, 0 late, 1 deletion of an unknown key",
        "0 inserted, 1 updated, 1 deleted, 0 late",
    ]
    assert keyed.read("_quarantine")["text"].to_pylist() == ['{"id":4}']
    if not keyed.where:
        with pytest.raises(InvalidOption, match="excluded op, which says whether a record deletes"):
            widen.replay(f"{keyed.into}_quarantine", keyed.into, engine="local")


def test_an_envelope_without_its_operation(keyed: Keyed) -> None:
    def event(op: str, number: int, name: str) -> dict[str, Any]:
        row = {"id": number, "name": name}
        source = {"connector": "postgresql", "lsn": 10 * number + (op == "d"), "snapshot": "false"}
        return {"op": op, "before": row if op == "d" else None, "after": None if op == "d" else row, "source": source}

    words = {"envelope": "debezium", "exclude": ["_op"], "sequence_by": None}
    result = keyed.load(event("c", 1, "a"), event("c", 2, "b"), event("d", 1, "a"), **words)
    assert str(result.keys) == "1 inserted, 0 updated, 0 deleted, 1 late, 1 deletion of an unknown key"
    assert result.verification is not None
    assert result.verification.is_clean
    assert keyed.read()["name"].to_pylist() == ["b"]


def test_partitions_streams_and_settings(keyed: Keyed, tmp_path: Path) -> None:
    config, source = tmp_path / "c.toml", tmp_path / "in"
    config.write_text('exclude = ["op"]\n[keys]\nkey = ["id"]\nsequence_by = "n"\ndelete_when = "op = \'D\'"\n')
    source.mkdir()
    (source / "1.json").write_text("".join(f"{json.dumps({**each, 'day': 'x'})}\n" for each in BATCHES[0]))
    if not keyed.where:
        widen.create_table(keyed.into, "id int, n int, v int, day string", partition_by=["day"])
    words = {"config": config, "engine": "local", **keyed.where}
    parts = {"partition_by": ["day"]} if keyed.where else {}
    first = widen.ingest(source, keyed.into, verify=True, exclude=["meta", "op"], **parts, **words)
    assert str(first.keys) == "2 inserted, 0 updated, 0 deleted, 0 late, 1 deletion of an unknown key"
    (source / "2.json").write_text("".join(f"{json.dumps({**each, 'day': 'y'})}\n" for each in BATCHES[1]))
    widen.ingest_stream(
        source, keyed.into, checkpoint=str(tmp_path / "cp"), config=config, engine="local", once=True, **keyed.where
    ).wait()
    assert sorted(keyed.read()["id"].to_pylist()) == [2, 4, 5]


def test_a_text_that_is_no_record_has_its_own_reason(keyed: Keyed) -> None:
    result = keyed.load({"id": 1, "n": 1}, "not json", "7", {"n": 1}, '[{"id": 2, "n": 1}, 8]')
    assert (result.records, result.corrupt, result.quarantined) == (2, 0, 4)
    assert result.verification is not None
    assert result.verification.is_clean
    rows = keyed.read("_quarantine").to_pylist()
    assert sorted((row["position"], row["text"], row["reason"]) for row in rows) == [
        (2, "not json", "not a JSON record: expecting value at character 1"),
        (3, "7", "not a JSON record: it is neither an object nor an array of objects"),
        (4, '{"n": 1}', "the key id is missing, null or not a scalar"),
        (5, "8", "not a JSON record: it is neither an object nor an array of objects"),
    ]
    assert not [name for name in keyed.read().column_names if "corrupt" in name]


def test_a_batch_without_a_record_is_named(keyed: Keyed) -> None:
    with pytest.raises(widen.WidenError, match="none of its lines is a record"):
        keyed.load("oops")
