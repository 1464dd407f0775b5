"""An ingestion without Spark: where PySpark is not even installed, and what it does there."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import widen
from support.bad_files import column, parquet
from support.iceberg_files import append_deletes, deletion_vector, position_deletes
from support.without_spark import run_without_spark as run
from widen.errors import CorruptFile, InvalidOption, StorageError
from widen.proof.record_digests import find_native_readers
from widen.table import create_table


def values(code: str, *words: str) -> Any:
    done = run(code, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SHOW = """
place, table = sys.argv[1:3]
planned = widen.plan(place, table)
done = widen.ingest(place, table, verify=True, plan_hash=planned.hash)
opened = widen.Table(table)
rows = opened.to_arrow().to_pylist()
print(json.dumps([done.version, done.records, str(done.verification), opened.schema.sql, rows]))
"""


def test_records_are_loaded_and_proved(tmp_path: Path) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    source.write_text('{"id": 1, "price": 2.5, "tags": ["a"]}\n{"id": 2, "n": {"x": true}}\n')
    version, records, proof, schema, rows = values(SHOW, str(source), str(table))
    assert (version, records, proof) == (0, 2, "5 of 5 leaves exact")
    assert schema == "struct<id: int, n: struct<x: boolean>, price: double, tags: array<string>>"
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "price": 2.5, "tags": ["a"]},
        {"id": 2, "n": {"x": True}, "price": None, "tags": None},
    ]
    source.write_text('{"id": 3000000000}\n')
    version, records, _, schema, _ = values(SHOW, str(source), str(table))
    assert (version, records) == (1, 1)
    assert schema == "struct<id: bigint, n: struct<x: boolean>, price: double, tags: array<string>>"


CHANGE = """
source, table = sys.argv[1:3]
widen.ingest(source, table, evolve="split")
opened = widen.Table(table)
opened.set_properties({f"delta.enable{name}": "true" for name in sys.argv[3:]})
done = [opened.delete("id IN (2, 9) OR price IS NULL"), opened.update({"price": "price * 2"}, where="id >= 5")]
widen.sql(f"UPDATE delta.`{table}` SET tag = upper_case WHERE id = 4".replace("upper_case", "'X'"))
widen.sql(f"DELETE FROM delta.`{table}` WHERE tag LIKE 'b%' AND id < 4")
kept = widen.Table(table).version
try:
    opened.delete("length(tag) = 1")
except widen.errors.SparkUnavailable:
    print(json.dumps([[change.metrics["numDeletedRows" if at == 0 else "numUpdatedRows"] for at, change in
        enumerate(done)], kept == widen.Table(table).version]))
"""


@pytest.mark.parametrize(
    "features", [(), ("DeletionVectors",), ("ChangeDataFeed",), ("DeletionVectors", "ChangeDataFeed")], ids="+".join
)
def test_rows_are_changed(tmp_path: Path, features: tuple[str, ...]) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    records = [{"id": n, "price": None if n == 3 else n / 2, "tag": "ab"[n % 2]} for n in range(10)]
    source.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    assert values(CHANGE, str(source), str(table), *features) == [[3, 4], True]
    expected = [(0, 0.0, "a"), (4, 2.0, "X"), *((n, float(n), "ab"[n % 2]) for n in (5, 6, 7, 8))]
    rows = sorted((row["id"], row["price"], row["tag"]) for row in widen.Table(table).to_arrow().to_pylist())
    assert rows == expected
    other = (
        QueryBuilder()
        .register("t", DeltaTable(str(table)))
        .execute("SELECT id, price, tag FROM t ORDER BY id")
        .read_all()
    )
    assert [tuple(row.values()) for row in pa.table(other).to_pylist()] == expected


ICEBERG = """
place, catalog = sys.argv[1:3]
words = {"catalog": catalog, "new": True}
done = widen.ingest(place, "shop.orders", verify=True, **words)
again = widen.ingest(place, "shop.orders", **words)
table = widen.IcebergTable("shop.orders", catalog)
rows = table.table.scan().to_arrow().to_pylist()
print(json.dumps([done.records, str(done.verification), again.is_unchanged, table.schema.sql, rows]))
"""


def test_records_are_loaded_into_an_iceberg_table(tmp_path: Path) -> None:
    source, catalog = tmp_path / "in.json", tmp_path / "lake.db"
    source.write_text('{"id": 1, "tags": ["a"]}\n{"id": 2, "n": {"x": true}}\n')
    records, proof, is_unchanged, schema, rows = values(ICEBERG, str(source), str(catalog))
    assert (records, proof, is_unchanged) == (2, "4 of 4 leaves exact", True)
    assert schema == "struct<id: int, n: struct<x: boolean>, tags: array<string>>"
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"id": 1, "n": None, "tags": ["a"]},
        {"id": 2, "n": {"x": True}, "tags": None},
    ]


STREAM = """
place, table = sys.argv[1:3]
done = []
for number in range(2):
    with open(f"{place}/{number}.json", "w") as file:
        file.write(json.dumps({"n": number}))
    words = {"checkpoint": table + "_checkpoint", "once": True, "on_interval": done.append, "verify": True}
    assert widen.ingest_stream(place, table, **words).wait()
print(json.dumps([[each.interval, each.version, each.records, str(each.verification)] for each in done]))
"""


def test_files_are_loaded_as_they_arrive(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    done = values(STREAM, str(tmp_path / "in"), str(tmp_path / "t"))
    assert done == [[0, 0, 1, "1 of 1 leaves exact"], [1, 1, 1, "1 of 1 leaves exact"]]


FIXED = """
place, into, kind = sys.argv[1:4]
words = {"engine": "local", "to": kind, **({} if kind == "delta" else {"catalog": place + "/lake.db"})}
kept = into + "_quarantine"
if kind == "delta":
    widen.create_table(into, "id bigint not null, p string, n struct<x: int>", partition_by=["p"], properties=MAPPED)
one = widen.ingest(place + "/a.json", into, verify=True, skip_bad_files=True, **words)
more = widen.ingest(place + "/b.json", into, new=True, **words)
if kind == "delta":
    widen.Table(into).alter_column("id", nullable=True)
words.pop("to")
again = widen.replay(kept, into, **words)
print(json.dumps([one.records, one.quarantined, str(one.verification), more.records, again.replayed, again.left]))
"""


def load_fixed(tmp_path: Path, into: str, kind: str, properties: str = "{}") -> Any:
    (tmp_path / "a.json").write_text(
        '{"id": 1, "p": "a/b", "n": {"x": 1}}\n{"p": "c"}\n{"id": 3, "p": ""}\n{"id": 4}\n'
    )
    (tmp_path / "b.json").write_text('{"id": 5, "p": "a/b"}\n')
    code = FIXED.replace("MAPPED", properties)
    return values(code, str(tmp_path), into, kind)


@pytest.mark.parametrize("kernel", ["on", "off"])
@pytest.mark.parametrize(
    "lines",
    [
        [b' {"x": tru}', b'{"x": 3}'],
        [b'{"x": 3}', b'{"x": tru} '],
        [b'{"x": 3}', b'\t{"x": tru}\t', b'{"x": 4}'],
        [b'\x0b{"x": 1}', b'{"x": 3}', b'{"x": 4}\x0c'],
    ],
)
def test_a_damaged_line_keeps_its_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[bytes], kernel: str
) -> None:
    """At the ends of a file as between other lines; and the proof says the same."""
    monkeypatch.setenv("WIDEN_KERNEL", kernel)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    done = widen.ingest(tmp_path / "a.jsonl", tmp_path / "t", engine="local", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    kept = widen.Table(tmp_path / "t").to_arrow()["_corrupt_record"].to_pylist()
    assert [text.encode() for text in kept if text] == [
        line for line in lines if not re.fullmatch(rb'\{"x": \d\}', line)
    ]


def test_a_partition_value_that_no_folder_can_have_is_named(tmp_path: Path) -> None:
    widen.create_table(tmp_path / "t", "id int, p string", partition_by=["p"])
    (tmp_path / "a.json").write_text(json.dumps({"id": 1, "p": "y" * 300}))
    with pytest.raises(StorageError, match=r"Partition column p: .* a name of 302 bytes") as raised:
        widen.ingest(tmp_path / "a.json", tmp_path / "t", engine="local")
    assert "Repair the value in the source" in str(raised.value)
    assert widen.Table(tmp_path / "t").version == 0


@pytest.mark.parametrize("kernel", ["on", "off"])
def test_a_partition_value_with_a_nul_is_quarantined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: str
) -> None:
    monkeypatch.setenv("WIDEN_KERNEL", kernel)
    widen.create_table(tmp_path / "t", "id int, p string", partition_by=["p"])
    texts = ["a", "a\0b", "\0", None]
    lines = (json.dumps({"id": number, "p": text}) for number, text in enumerate(texts))
    (tmp_path / "a.json").write_text("\n".join(lines))
    done = widen.ingest(tmp_path / "a.json", tmp_path / "t", engine="local", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    assert sorted(row["id"] for row in widen.Table(tmp_path / "t").to_arrow().to_pylist()) == [0, 3]
    kept = DeltaTable(f"{tmp_path / 't'}_quarantine").to_pyarrow_table().to_pylist()
    assert sorted(json.loads(row["text"])["id"] for row in kept) == [1, 2]
    assert all("NOT contains(p, char(0))" in row["reason"] for row in kept)


@pytest.mark.parametrize("properties", ["{}", "{'delta.columnMapping.mode': 'name'}"])
def test_records_of_partitions_are_quarantined_and_replayed(tmp_path: Path, properties: str) -> None:
    """The tables are read by another engine, unless that does not know the mapping of columns."""
    into = str(tmp_path / "t")
    assert load_fixed(tmp_path, into, "delta", properties) == [2, 2, "7 of 7 leaves exact", 1, 1, 1]
    expected = [(1, "a/b", 1), (4, None, None), (5, "a/b", None), (None, "c", None)]
    table = DeltaTable(into).to_pyarrow_table() if properties == "{}" else widen.Table(into).to_arrow()
    rows = [(row["id"], row["p"], row["n"] and row["n"]["x"]) for row in table.to_pylist()]
    assert sorted(rows, key=str) == sorted(expected, key=str)
    kept = DeltaTable(f"{into}_quarantine").to_pyarrow_table().to_pylist()
    assert [(row["text"], row["position"]) for row in kept] == [('{"id": 3, "p": ""}', 3)]
    assert "p IS NULL OR (p NOT IN" in kept[0]["reason"]


def test_rows_by_key_need_no_spark(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "n": 1, "op": "u"}\n{"id": 2, "n": 1, "op": "u"}\n')
    (tmp_path / "b.json").write_text('{"id": 1, "n": 2, "op": "d"}\n{"id": 2, "n": 0}\n{"id": 3000000000, "n": 1}\n')
    (tmp_path / "c.json").write_text('{"id": 1, "n": 1}\n')
    code = """
place = sys.argv[1]
words = {"engine": "local", "key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'"}
done = [widen.ingest(f"{place}/{name}.json", place + "/t", **words) for name in "abc"]
print(json.dumps([each.keys.to_value() for each in done]))
"""
    first, second, third = values(code, str(tmp_path))
    assert (first["inserted"], first["updated"]) == (2, 0)
    assert (second["inserted"], second["deleted"], second["late"]) == (1, 1, 1)
    assert (third["inserted"], third["late"]) == (0, 1)
    ids = widen.Table(tmp_path / "t").to_arrow()["id"].to_pylist()
    assert sorted(ids) == [2, 3_000_000_000]


def test_records_that_are_loaded_again_need_no_spark(tmp_path: Path) -> None:
    """A load that is repeated, and a source that sends records twice: all but one of them are late."""
    records = [
        {"id": 1, "n": 1, "op": "u", "x": {"a": [1.5, None]}},
        {"id": 2, "n": 1, "op": "u", "x": {"a": []}},
    ]
    newer = {"id": 1, "n": 2, "op": "u"}
    for name, batch in {"a": records, "b": records * 2 + [newer] * 3, "c": [{"id": 2, "n": 1, "op": "d"}]}.items():
        (tmp_path / f"{name}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    code = """
place = sys.argv[1]
words = {"engine": "local", "key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'"}
done = [widen.ingest(f"{place}/{name}.json", place + "/t", **words) for name in "aabbcca"]
print(json.dumps([str(each.keys) for each in done]))
"""
    assert values(code, str(tmp_path)) == [
        "2 inserted, 0 updated, 0 deleted, 0 late",
        "0 inserted, 0 updated, 0 deleted, 2 late",
        "0 inserted, 1 updated, 0 deleted, 6 late",
        "0 inserted, 0 updated, 0 deleted, 7 late",
        "0 inserted, 0 updated, 1 deleted, 0 late",
        "0 inserted, 0 updated, 0 deleted, 1 late",
        "0 inserted, 0 updated, 0 deleted, 2 late",
    ]
    assert widen.Table(tmp_path / "t").to_arrow().select(["id", "n"]).to_pylist() == [{"id": 1, "n": 2}]


def test_deletions_of_many_batches_need_no_spark(tmp_path: Path) -> None:
    """Their lists become one now and then; every deletion stays known."""
    for number in range(20):
        batch = [{"id": number, "n": 10, "op": "u"}, {"id": number - 1, "n": 20 + number, "op": "d"}]
        (tmp_path / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    (tmp_path / "20.json").write_text("".join(f'{{"id": {number}, "n": 20, "op": "u"}}\n' for number in range(20)))
    code = """
place = sys.argv[1]
words = {"engine": "local", "key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'"}
done = [widen.ingest(f"{place}/{number}.json", place + "/t", **words) for number in range(21)]
print(json.dumps(str(done[-1].keys)))
"""
    assert values(code, str(tmp_path)) == "0 inserted, 1 updated, 0 deleted, 19 late"
    assert widen.Table(tmp_path / "t").to_arrow().select(["id", "n"]).to_pylist() == [{"id": 19, "n": 20}]


def test_rows_that_deltalake_has_merged_need_no_spark(tmp_path: Path) -> None:
    """Its files have strings in another layout of Arrow."""
    numbers = {"id": pa.array([1, 2], pa.int64()), "at": pa.array([5, 5], pa.int64())}
    others = {"s": ["a", "b"], "b": [b"x", None], "l": [["c"], None], "x": [{"y": "d"}, {"y": None}]}
    rows = pa.table(numbers | others)
    write_deltalake(str(tmp_path / "t"), rows.slice(0, 1))
    merge = DeltaTable(str(tmp_path / "t")).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    (tmp_path / "a.json").write_text('{"id": 1, "at": 6, "s": "new"}\n{"id": 2, "at": 4, "s": "late"}\n')
    words = {"key": ["id"], "sequence_by": "at", "engine": "local"}
    assert str(widen.ingest(tmp_path / "a.json", tmp_path / "t", **words).keys) == (
        "0 inserted, 1 updated, 0 deleted, 1 late"
    )
    found = DeltaTable(str(tmp_path / "t")).to_pyarrow_table().sort_by("id").to_pylist()
    assert found == [
        {"id": 1, "at": 6, "s": "new", "b": None, "l": None, "x": None},
        {"id": 2, "at": 5, "s": "b", "b": None, "l": None, "x": {"y": None}},
    ]
    assert widen.Table(tmp_path / "t").to_arrow().sort_by("id").to_pylist() == found


def test_partial_records_need_no_spark(tmp_path: Path) -> None:
    batches = [
        [{"id": 1, "n": 1, "op": "u", "x": {"a": 1, "b": 2}, "l": [1]}, {"id": 2, "n": 1, "op": "u", "y": 5}],
        [
            {"id": 1, "n": 3, "x": {"b": 3}, "l": [], "z": 7},  # the newest of three, and the first in the file
            {"id": 1, "n": 2, "x": {"a": 9, "c": "new"}, "y": 6},
            {"id": 1, "n": 0, "z": 1, "y": 1},  # late
            {"id": 2, "n": 2, "op": "d"},
            {"id": 2, "n": 3, "z": 8},
            {"id": 3, "n": 1, "y": "text"},
        ],
        [{"id": 2, "n": 2, "y": 9}, {"id": 3, "n": 2, "y": 4}],
    ]
    for number, batch in enumerate(batches):
        (tmp_path / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    code = """
place = sys.argv[1]
words = {"engine": "local", "key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'", "missing": "keep"}
done = [widen.ingest(f"{place}/{name}.json", place + "/t", **words) for name in (0, 0, 1, 1, 2, 2)]
print(json.dumps([str(each.keys) for each in done]))
"""
    assert values(code, str(tmp_path)) == [
        "2 inserted, 0 updated, 0 deleted, 0 late",
        "0 inserted, 0 updated, 0 deleted, 2 late",
        "1 inserted, 2 updated, 0 deleted, 2 late, 1 merged",
        "0 inserted, 0 updated, 0 deleted, 6 late",
        "0 inserted, 1 updated, 0 deleted, 1 late",
        "0 inserted, 0 updated, 0 deleted, 2 late",
    ]
    rows = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    assert sorted(({k: v for k, v in row.items() if v is not None} for row in rows), key=lambda row: row["id"]) == [
        # A column of texts also has the text of a number.
        {"id": 1, "n": 3, "op": "u", "x": {"a": 9, "b": 3, "c": "new"}, "l": [], "y": 6, "y_string": "6", "z": 7},
        {"id": 2, "n": 3, "z": 8},
        {"id": 3, "n": 2, "y": 4, "y_string": "4"},
    ]


KEYED = """
place, into, words = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
where = {"catalog": place + "/c.db"} if into == "shop.t" else {}
first = words.pop("first", {})
keys = []
for number in range(int(sys.argv[4])):
    options = {**where, **words, **(first if number == 0 else {})}
    keys.append(str(widen.ingest(f"{place}/{number}.json", into, engine="local", key=["id"], **options).keys))
print(json.dumps(keys))
"""
DELETES = {"sequence_by": "n", "delete_when": "op = 'd'"}


def load_by_key(place: Path, into: str, batches: list[list[dict[str, Any]]], words: dict[str, Any]) -> list[str]:
    """Return what each batch did, without PySpark."""
    for number, batch in enumerate(batches):
        (place / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    done: list[str] = values(KEYED, str(place), into, json.dumps(words), str(len(batches)))
    return done


def iceberg_rows(place: Path) -> list[dict[str, Any]]:
    """Return the rows of `shop.t` as PyIceberg reads them, without nulls, by their ids."""
    table = SqlCatalog("default", uri=f"sqlite:///{place}/c.db").load_table("shop.t")
    rows = [
        {name: value for name, value in row.items() if value is not None} for row in table.scan().to_arrow().to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["id"], row.get("n", 0)))


def test_rows_of_an_iceberg_table_change_by_key_without_spark(tmp_path: Path) -> None:
    batches = [
        [{"id": 1, "n": 1, "op": "u"}, {"id": 2, "n": 1, "op": "u"}, {"id": 2, "n": 0, "op": "u"}],
        [{"id": 1, "n": 2, "op": "d"}, {"id": 3, "n": 1, "x": {"a": 1}}, {"id": 9, "n": 9, "op": "d"}],
        [{"id": 1, "n": 1}, {"id": 2, "n": 9, "s": "t"}, {"id": 3_000_000_000, "n": 1}, {"id": 9, "n": 8}],
        [{"id": 1, "n": 1}],
    ]
    assert load_by_key(tmp_path, "shop.t", batches, DELETES) == [
        "2 inserted, 0 updated, 0 deleted, 1 late",
        "1 inserted, 0 updated, 1 deleted, 0 late, 1 deletion of an unknown key",
        "1 inserted, 1 updated, 0 deleted, 2 late",
        "0 inserted, 0 updated, 0 deleted, 1 late",
    ]
    assert iceberg_rows(tmp_path) == [
        {"id": 2, "n": 9, "s": "t"},
        {"id": 3, "n": 1, "x": {"a": 1}},
        {"id": 3_000_000_000, "n": 1},
    ]
    table = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/c.db").load_table("shop.t")
    files = table.inspect.files().to_pylist()
    assert sum(each["record_count"] for each in files) == 3
    live = {each["file_path"].removeprefix("file://") for each in files}
    found = {str(path) for path in tmp_path.rglob("data/**/*.parquet")}
    committed = {task["file_path"].removeprefix("file://") for task in table.inspect.all_files().to_pylist()}
    assert live <= found == committed  # nothing that is not committed stays


def test_partial_records_change_rows_of_a_partitioned_iceberg_table_without_spark(tmp_path: Path) -> None:
    batches = [
        [{"id": 1, "n": 1, "op": "u", "day": "a", "x": {"p": 1, "q": 2}}, {"id": 2, "n": 1, "op": "u", "day": "b"}],
        [{"id": 1, "n": 2, "x": {"q": 3}}, {"id": 2, "n": 2, "day": "a", "z": 1}, {"id": 3, "n": 1, "day": "a"}],
        [{"id": 1, "n": 3, "op": "d"}, {"id": 1, "n": 4, "z": 5}],
    ]
    words = {**DELETES, "missing": "keep", "first": {"partition_by": ["day"]}}
    assert load_by_key(tmp_path, "shop.t", batches, words) == [
        "2 inserted, 0 updated, 0 deleted, 0 late",
        "1 inserted, 2 updated, 0 deleted, 0 late",
        "0 inserted, 1 updated, 0 deleted, 1 late",
    ]
    assert iceberg_rows(tmp_path) == [
        {"id": 1, "n": 4, "z": 5},
        {"id": 2, "n": 2, "op": "u", "day": "a", "z": 1},
        {"id": 3, "n": 1, "day": "a"},
    ]


def test_a_batch_by_key_that_cannot_commit_leaves_an_iceberg_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [
        [{"id": 1, "n": 1, "op": "u"}, {"id": 2, "n": 1, "op": "u"}, {"id": 3, "n": 1, "op": "u"}],
        [{"id": 1, "n": 2, "op": "u"}, {"id": 1, "n": 1, "op": "u"}, {"id": 2, "n": 2, "op": "d"}],
    ]
    for number, batch in enumerate(batches):
        (tmp_path / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    words = {"catalog": str(tmp_path / "c.db"), "engine": "local", "key": ["id"], **DELETES}
    widen.ingest(tmp_path / "0.json", "shop.t", **words)
    before, files = iceberg_rows(tmp_path), {*tmp_path.rglob("data/**/*.parquet")}

    def fail(*_: object) -> None:
        raise StorageError(location="The table", reason="the disk is full", fix="Repeat the call.")

    with monkeypatch.context() as patch:
        patch.setattr("widen.iceberg.table_commit.IcebergTransaction.commit", fail)
        with pytest.raises(StorageError):
            widen.ingest(tmp_path / "1.json", "shop.t", **words)
    assert iceberg_rows(tmp_path) == before
    assert {*tmp_path.rglob("data/**/*.parquet")} == files
    assert not [*tmp_path.rglob("_widen/keys/**/*")]
    assert str(widen.ingest(tmp_path / "1.json", "shop.t", **words).keys) == "0 inserted, 1 updated, 1 deleted, 1 late"
    assert [(row["id"], row["n"]) for row in iceberg_rows(tmp_path)] == [(1, 2), (3, 1)]


@pytest.mark.parametrize("into", ["t", "shop.t"])
def test_the_last_batch_wins_without_spark(tmp_path: Path, into: str) -> None:
    batches = [
        [{"id": 1, "v": 1, "op": "u"}, {"id": 2, "v": 1, "s": "a"}],
        [{"id": 1, "v": 2}, {"id": 2, "v": 1, "s": "a"}, {"id": 3, "v": 1}, {"id": 3, "v": 1}],
        [{"id": 1, "op": "d"}, {"id": 9, "op": "d"}, {"id": 2, "v": 1, "s": "b"}],
        [{"id": 1, "v": 3}],
    ]
    place = into if into == "shop.t" else str(tmp_path / into)
    assert load_by_key(tmp_path, place, batches, {"delete_when": "op = 'd'"}) == [
        "2 inserted, 0 updated, 0 deleted, 0 late",
        "1 inserted, 1 updated, 0 deleted, 2 late",
        "0 inserted, 1 updated, 1 deleted, 0 late, 1 deletion of an unknown key",
        "1 inserted, 0 updated, 0 deleted, 0 late",
    ]
    rows = [{"id": 1, "v": 3}, {"id": 2, "v": 1, "s": "b"}, {"id": 3, "v": 1}]
    if into == "shop.t":
        assert iceberg_rows(tmp_path) == rows
    else:
        found = widen.Table(tmp_path / into).to_arrow().sort_by("id").to_pylist()
        assert [{name: value for name, value in row.items() if value is not None} for row in found] == rows
    (tmp_path / "0.json").write_text('{"id": 1, "v": 4}\n{"id": 1, "v": 5}\n{"id": 2}\n')
    done = run(KEYED, str(tmp_path), place, "{}", "1")
    assert "KeyRepeated" in done.stderr


def test_deletions_of_composite_keys_need_no_spark(tmp_path: Path) -> None:
    into = str(tmp_path / "t")
    batches = [
        [{"id": 1, "k": "a", "n": 1, "op": "u"}, {"id": 2, "k": "\u00e9,", "n": 1}, {"id": 2, "k": "b", "n": 1}],
        [{"id": 1, "k": "a", "n": 2, "op": "d"}, {"id": 2, "k": "\u00e9,", "n": 2, "op": "d"}],
        [{"id": 1, "k": "a", "n": 1}, {"id": 2, "k": "\u00e9,", "n": 3}, {"id": 2, "k": "a", "n": 1}],
    ]
    for number, batch in enumerate(batches):
        (tmp_path / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    words = {"engine": "local", "key": ["id", "k"], **DELETES}
    done = [str(widen.ingest(tmp_path / f"{number}.json", into, **words).keys) for number in range(3)]
    assert done[2] == "2 inserted, 0 updated, 0 deleted, 1 late"
    rows = widen.Table(into).to_arrow().to_pylist()
    assert sorted((row["id"], row["k"], row["n"]) for row in rows) == [(2, "a", 1), (2, "b", 1), (2, "\u00e9,", 3)]


def test_iceberg_rows_by_key_that_only_spark_decides_say_so(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text('{"id": 1, "n": 1, "v": 1}\n{"id": 1, "n": 1, "v": 2}\n')
    done = run(KEYED, str(tmp_path), "shop.t", json.dumps({"sequence_by": "n", "delete_when": "hash(v) = 3"}), "1")
    assert "only it evaluates the condition of deletions" in done.stderr
    assert not [*tmp_path.rglob("*.parquet")]


@pytest.mark.parametrize("words", [{}, {"history": True}])
def test_equal_sequences_are_refused_without_spark(tmp_path: Path, words: dict[str, Any]) -> None:
    batches = [
        [{"id": 1, "n": 5, "v": 1, "op": "u"}, {"id": 2, "n": 5, "v": 2}],
        [{"id": 1, "n": 5, "v": 1, "op": "u"}, {"id": 1, "n": 7, "v": 3}, {"id": 2, "n": 9, "op": "d"}],
    ]
    options = {**DELETES, **words, "strict": True}
    done = load_by_key(tmp_path, str(tmp_path / "t"), batches, options)
    assert done[1] == "0 inserted, 1 updated, 1 deleted, 1 late"
    for record in ({"id": 1, "n": 7, "v": 4}, {"id": 2, "n": 9, "v": 4}, {"id": 1, "n": 7, "op": "d"}):
        (tmp_path / "0.json").write_text(json.dumps(record))
        assert "SequenceRepeated" in run(KEYED, str(tmp_path), str(tmp_path / "t"), json.dumps(options), "1").stderr
    (tmp_path / "0.json").write_text('{"id": 1, "n": 5, "v": 9}\n')
    older = run(KEYED, str(tmp_path), str(tmp_path / "t"), json.dumps(options), "1")
    assert ("SequenceRepeated" in older.stderr) == ("history" in words)
    assert widen.Table(tmp_path / "t").version == (1 if "history" in words else 2)


@pytest.mark.parametrize("into", ["t", "shop.t"])
def test_every_version_of_a_row_is_kept_without_spark(tmp_path: Path, into: str) -> None:
    batches = [
        [{"id": 1, "n": 10, "v": 1, "op": "u"}, {"id": 1, "n": 20, "v": 2}, {"id": 2, "n": 10, "v": 3}],
        [{"id": 1, "n": 15, "v": 4}, {"id": 2, "n": 30, "op": "d"}, {"id": 9, "n": 30, "op": "d"}],
        [{"id": 9, "n": 7, "v": 5}, {"id": 2, "n": 40, "v": 6}, {"id": 2, "n": 10, "v": 3}],
        [{"id": 1, "n": 15, "v": 41}, {"id": 1, "n": 15, "v": 5}, {"id": 2, "n": 40, "op": "d"}],
        [{"id": "x", "n": 1}, {"id": 2, "n": 40, "op": "d"}, {"id": 1, "n": 25}],
    ]
    words = {**DELETES, "history": True, "verify": True, "evolve": "split"}  # deltalake reads no widened types
    place = into if into == "shop.t" else str(tmp_path / into)
    assert load_by_key(tmp_path, place, batches, words) == [
        "2 inserted, 1 updated, 0 deleted, 0 late",
        "0 inserted, 1 updated, 1 deleted, 0 late, 1 deletion of an unknown key",
        "1 inserted, 1 updated, 0 deleted, 1 late",
        "0 inserted, 1 updated, 0 deleted, 1 late, 1 deletion of an unknown key",
        "1 inserted, 1 updated, 0 deleted, 1 late",
    ]
    if into == "shop.t":
        table = SqlCatalog("default", uri=f"sqlite:///{tmp_path}/c.db").load_table("shop.t")
        rows = table.scan().to_arrow().to_pylist()
    else:
        rows = pa.table(
            QueryBuilder().register("t", DeltaTable(place)).execute("SELECT * FROM t").read_all()
        ).to_pylist()
    found = [tuple(row.get(name) for name in ("id", "v", "_valid_from", "_valid_to", "_is_current")) for row in rows]
    assert sorted(found, key=repr) == [
        (1, 1, 10, 15, False),
        (1, 2, 20, 25, False),
        (1, 5, 15, 20, False),
        (1, None, 25, None, True),
        (2, 3, 10, 30, False),
        (9, 5, 7, 30, False),
        (None, None, 1, None, True),
    ]


RACER = """
place, who, missing = sys.argv[1:4]
words = {"engine": "local", "key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'", "missing": missing}
for number in range(6):
    while True:
        try:
            widen.ingest(f"{place}/{who}{number}.json", place + "/t", **words)
            break
        except widen.errors.ContentionError:
            pass
"""


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
def test_versions_of_equal_orders_after_a_deletion_are_proved_without_spark(tmp_path: Path, is_iceberg: bool) -> None:
    """What the proof looks at one by one, since more than orders decide, beside a deletion that the table remembers."""
    batches = [
        [{"id": 1, "at": 5, "op": "u"}],
        [{"id": 1, "at": 6, "op": "d"}],
        [{"id": 1, "at": 7, "n": 1}, {"id": 1, "at": 7, "n": 2}, {"id": 1, "at": 8, "n": 3}],
    ]
    words = {"sequence_by": "at", "delete_when": "op = 'd'", "history": True, "verify": True}
    done = load_by_key(tmp_path, "shop.t" if is_iceberg else str(tmp_path / "t"), batches, words)
    assert done[-1] == "0 inserted, 2 updated, 0 deleted, 1 late"
    rows = iceberg_rows(tmp_path) if is_iceberg else widen.Table(tmp_path / "t").to_arrow().to_pylist()
    versions = sorted((row["at"], row.get("n"), row.get("_valid_to")) for row in rows)
    assert versions == [(5, None, 6), (7, 2, 8), (8, 3, None)]


@pytest.mark.parametrize("missing", ["null", "keep"])
def test_processes_that_race_leave_one_row_of_each_key(tmp_path: Path, missing: str) -> None:
    dice, newest = random.Random(missing), dict[int, tuple[int, str]]()
    for who, number in itertools.product("ab", range(6)):
        numbers = [2 * dice.randrange(10_000) + (who == "b") for _ in range(8)]
        batch = [{"id": dice.randrange(12), "n": n, "op": dice.choice("uuud")} for n in sorted({*numbers})]
        (tmp_path / f"{who}{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
        for each in batch:
            newest[each["id"]] = max(newest.get(each["id"], (-1, "")), (each["n"], each["op"]))
    create_table(str(tmp_path / "t"), "id bigint, n bigint, op string")
    words = [str(tmp_path), missing]
    with ThreadPoolExecutor(2) as pool:
        ended = pool.map(lambda who: run(RACER, words[0], who, words[1]), "ab")
        assert [(each.returncode, each.stderr) for each in ended] == [(0, "")] * 2
    rows = DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    found = sorted(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))
    assert found == sorted((key, n) for key, (n, op) in newest.items() if op == "u")


@pytest.mark.parametrize("fault", ["missing", "damaged"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_replay_names_a_file_that_it_cannot_read(tmp_path: Path, kind: str, fault: str) -> None:
    into, words = str(tmp_path / "t"), {"engine": "local"}
    if kind == "iceberg":
        into, words = "shop.t", {"engine": "local", "catalog": str(tmp_path / "c.db")}
    else:
        create_table(into, "n int, k int", partition_by=["k"])
    first: dict[str, Any] = {"partition_by": ["k"]} if kind == "iceberg" else {}
    (tmp_path / "1.json").write_text('{"n": 1, "k": 1}\n')
    (tmp_path / "2.json").write_text('{"n": 3, "k": "x"}\n{"n": 4, "k": 4}\n')
    widen.ingest(str(tmp_path / "1.json"), into, **first, **words)
    done = widen.ingest(str(tmp_path / "2.json"), into, evolve="freeze", **words)
    assert done.quarantined == 1
    (file,) = (path for path in tmp_path.rglob("*.parquet") if "t_quarantine" in str(path))
    _ = file.unlink() if fault == "missing" else file.write_bytes(b"PAR1" + bytes(file.stat().st_size))
    with pytest.raises(CorruptFile, match=re.escape(file.name)):
        widen.replay(f"{into}_quarantine", into, **words)


@pytest.mark.parametrize("zero", ["-0.0", "0.0"])
def test_of_equal_sequences_the_json_that_sorts_last_wins(tmp_path: Path, zero: str) -> None:
    """Whatever came first: a zero with a sign is another text, which sorts before the one without."""
    other = "0.0" if zero == "-0.0" else "-0.0"
    (tmp_path / "a.json").write_text(f'{{"id": 1, "n": 1, "x": {zero}}}\n')
    (tmp_path / "b.json").write_text(f'{{"id": 1, "n": 1, "x": {other}}}\n')
    code = """
for name in "aab":
    widen.ingest(f"{sys.argv[1]}/{name}.json", sys.argv[1] + "/t", engine="local", key=["id"], sequence_by="n")
"""
    done = run(code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    (row,) = widen.Table(tmp_path / "t").to_arrow().to_pylist()
    assert str(row["x"]) == "0.0"


@pytest.mark.parametrize("into", ["t", "shop.t"])
def test_records_without_a_key_need_no_spark(tmp_path: Path, into: str) -> None:
    (tmp_path / "0.json").write_text('{"id": 1, "n": 1}\n{"n": 2}\n{"id": 2}\nnothing\n')
    place = str(tmp_path / "t") if into == "t" else into
    done = run(KEYED, str(tmp_path), place, json.dumps({"sequence_by": "n", "verify": True}), "1")
    assert done.returncode == 0, done.stderr
    if into == "t":
        rows, kept = (widen.Table(tmp_path / name).to_arrow().to_pylist() for name in ("t", "t_quarantine"))
    else:
        tables = (widen.IcebergTable(name, str(tmp_path / "c.db")).table for name in ("shop.t", "shop.t_quarantine"))
        rows, kept = (table.scan().to_arrow().to_pylist() for table in tables)
    assert [(row["id"], row["n"]) for row in rows] == [(1, 1)]
    no_key = "the key id is missing, null or not a scalar"
    assert sorted((row["position"], row["reason"]) for row in kept) == [
        (2, no_key),
        (3, "n has no value that tells which record is newer"),
        (4, "not a JSON record: expecting value at character 1"),
    ]


@pytest.mark.parametrize("target", [{}, {"catalog": "c.db"}], ids=["delta", "iceberg"])
@pytest.mark.parametrize("lines", [(1, 2), (2, 1)])
def test_the_contents_of_equal_sequences_decide_without_spark(
    tmp_path: Path, target: dict[str, str], lines: tuple[int, ...]
) -> None:
    text = "".join(f'{{"id": 1, "n": 1, "v": {value}}}\n' for value in lines)
    (tmp_path / "a.json").write_text(text)
    options: dict[str, Any] = {name: str(tmp_path / value) for name, value in target.items()}
    into = "shop.t" if target else str(tmp_path / "t")
    words = {"key": ["id"], "sequence_by": "n", "missing": "keep", "engine": "local", "verify": True, **options}
    done = widen.ingest(tmp_path / "a.json", into, **words)
    assert str(done.keys) == "1 inserted, 0 updated, 0 deleted, 0 late, 1 merged"
    table = widen.IcebergTable(into, options["catalog"]) if target else widen.Table(into)
    assert table.to_arrow().to_pylist() == [{"id": 1, "n": 1, "v": 2}]


def test_rows_by_key_that_only_spark_decides_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "n": 1, "v": 1}\n{"id": 1, "n": 1, "v": 2}\n')
    words = "'key': ['id'], 'engine': 'local'"
    condition = "'sequence_by': 'n', 'delete_when': 'hash(v) = 3'"
    unknown = "it verifies rows that change by key, and the condition of deletions is not a comparison of columns"
    for more, reason in (
        (condition, "only it evaluates the condition of deletions"),
        (f"{condition}, 'verify': True", unknown),
    ):
        done = run(
            f"widen.ingest(*sys.argv[1:3], **{{{words}, {more}}})", str(tmp_path / "a.json"), str(tmp_path / "t")
        )
        assert done.returncode == 1
        assert f"needs Spark, because {reason}" in done.stderr
        assert not (tmp_path / "t" / "_delta_log").exists()


@pytest.mark.parametrize("words", [{"key": ["idd"]}, {"key": ["x"]}, {"key": ["x.y"]}, {"sequence_by": "x"}])
def test_keys_that_no_record_has_are_refused_before_spark_starts(tmp_path: Path, words: dict[str, Any]) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "n": 1, "x": [{"y": 1}]}\n')
    words = {"key": ["id"], "sequence_by": "n", **words}
    with pytest.raises(InvalidOption, match=r"Neither the table nor the batch|Must be a number"):
        widen.ingest(tmp_path / "a.json", tmp_path / "t", engine="local", **words)
    assert not list((tmp_path / "t").rglob("*.parquet"))


def test_a_contract_and_a_file_of_loads_need_no_spark(tmp_path: Path) -> None:
    (tmp_path / "a b.json").write_text('{"id": 1}\n{"id": "x"}\n')
    pq.write_table(pa.table({"id": [1, 2], "name": ["x", None]}), tmp_path / "d.parquet", row_group_size=1)
    (tmp_path / "c.txt").write_text("one\ntwo\n")
    (tmp_path / "loads.toml").write_text(
        f"""[[load]]
source = "{tmp_path}/a b.json"
into = "{tmp_path}/t"
engine = "local"
[[load]]
source = "{tmp_path}/c.txt"
into = "{tmp_path}/u"
format = "text"
"""
    )
    code = """
place = sys.argv[1]
contract = {"type": "object", "properties": {"id": {"type": "integer"}}}
report = widen.check_contract(place + "/a b.json", contract)
typed = widen.check_contract(place + "/d.parquet", {**contract, "additionalProperties": False}).to_value()
proved = widen.ingest(place + "/d.parquet", place + "/v", mask=["name"], verify=True, engine="local").verification
done = widen.run(place + "/loads.toml", jobs=2)
places = [(each["line"], each["field"]) for each in typed["listed"]]
steps = [each.status.value for each in done.steps]
print(json.dumps([report.records, report.breaches, typed["records"], places, str(proved), steps]))
"""
    assert values(code, str(tmp_path)) == [2, 1, 2, [[1, "name"]], "3 of 3 leaves exact", ["loaded", "loaded"]]
    assert widen.Table(tmp_path / "u").to_arrow()["value"].to_pylist() == ["one", "two"]


def test_rows_of_iceberg_tables_change_without_spark(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n{"id": 3}\n')
    code = """
place, catalog = sys.argv[1:]
widen.ingest(place, "shop.t", catalog=catalog)
widen.sql("UPDATE shop.t SET v = concat(v, '!') WHERE id < 3", catalog=catalog)
done = widen.IcebergTable("shop.t", catalog).delete("v LIKE 'b%'")
print(json.dumps([done.metrics, done.table.table.scan().to_arrow().to_pylist()]))
"""
    metrics, rows = values(code, str(tmp_path / "a.json"), str(tmp_path / "c.db"))
    assert metrics["numDeletedRows"] == 1
    assert rows == [{"id": 1, "v": "a!"}, {"id": 3, "v": None}]


@pytest.mark.parametrize("has_feed", ["true", "false"])
def test_a_full_disk_is_no_reason_to_start_spark(tmp_path: Path, has_feed: str) -> None:
    code = """
import errno
from widen.files.data_writer import PartWriter
place, table, batch, has_feed = sys.argv[1:]
words = {"key": ["id"], "sequence_by": "at"}
widen.ingest(place, table, **words)
widen.Table(table).set_properties({"delta.enableChangeDataFeed": has_feed})
def fill(writer):
    raise OSError(errno.ENOSPC, "No space left on device")
PartWriter._finish = fill
failures = []
for change in (
    lambda: widen.Table(table).update({"v": "concat(v, '!')"}, where="id < 3"),
    lambda: widen.Table(table).delete("id < 3"),
    lambda: widen.ingest(batch, table, **words),
):
    try:
        change()
    except widen.errors.StorageError as error:
        failures.append(str(error.fields["reason"]))
print(json.dumps([failures, widen.Table(table).version]))
"""
    (tmp_path / "a.json").write_text("".join(f'{{"id": {n}, "at": 1, "v": "{n}"}}\n' for n in range(9)))
    (tmp_path / "b.json").write_text('{"id": 1, "at": 2, "v": "c"}\n')
    places = [str(tmp_path / name) for name in ("a.json", "t", "b.json")]
    failures, version = values(code, *places, has_feed)
    assert len(failures) == 3
    assert {failure.lower() for failure in failures} <= {"the disk is full", "no space left on device"}
    assert version == 1
    assert len(list((tmp_path / "t").rglob("*.parquet"))) == 1


def test_an_iceberg_table_that_needs_spark(tmp_path: Path) -> None:
    source = tmp_path / "in.json"
    source.write_text('{"id": 1}\n')
    code = """
import pyarrow as pa
from widen.iceberg.catalog import to_catalog
catalog = to_catalog(sys.argv[2]).open()
catalog.create_namespace("shop")
catalog.create_table("shop.fixed", pa.schema([pa.field("b", pa.binary(3))]))
widen.ingest(sys.argv[1], "shop.fixed", catalog=sys.argv[2], engine="local")
"""
    done = run(code, str(source), str(tmp_path / "lake.db"))
    assert done.returncode == 1
    assert "This call needs Spark, because of the table: its columns have rules for what is in a value" in done.stderr


def test_a_large_source_is_read_by_several_processes(tmp_path: Path) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    count = 60_000
    with source.open("w") as file:
        for number in range(count):
            file.write(json.dumps({"id": number, "text": "x" * 600}) + "\n")
    code = """
place, table = sys.argv[1:3]
from widen.spark import engine
started = []
start = engine._start_worker
engine._start_worker = lambda: started.append(1) or start()
done = widen.ingest(place, table)
ids = widen.Table(table).to_arrow()["id"].to_pylist()
print(json.dumps([len(started), done.records, sorted(ids) == list(range(60_000))]))
"""
    workers, records, is_whole = values(code, str(source), str(table))
    assert (records, is_whole) == (count, True)
    assert workers == (os.cpu_count() or 1) - 1


def test_an_error_in_another_process_arrives(tmp_path: Path) -> None:
    source, table = tmp_path / "in.json", tmp_path / "t"
    with source.open("w") as file:
        for number in range(60_000):
            file.write(json.dumps({"id": number, "text": "x" * 600}) + "\n")
        file.write(json.dumps({"text": "x" * 3_000_000}) + "\n")
    done = run("widen.ingest(*sys.argv[1:3], max_record_size='1MB')", str(source), str(table))
    assert done.returncode == 1
    assert "is longer than 1 MB" in done.stderr
    assert "CorruptFile" in done.stderr
    assert not table.exists() or not any(table.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json.lz4", b"packed", "it decompresses .lz4 files"),
        ("a.orc", b"ORC", "its readers read orc files"),
    ],
)
def test_what_needs_spark_says_why(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    source = tmp_path / name
    source.write_bytes(content)
    done = run("widen.ingest(*sys.argv[1:3], engine='local')", str(source), str(tmp_path / "t"))
    assert done.returncode == 1
    assert "This call needs Spark, because " in done.stderr
    assert reason in done.stderr
    done = run("widen.ingest(*sys.argv[1:3])", str(source), str(tmp_path / "t"))
    assert done.returncode == 1
    assert "pip install 'widen[spark]'" in done.stderr


@pytest.mark.parametrize("name", ["{}.json", "{}.csv", "{}.parquet", "many/{}.json"])
def test_any_number_of_files_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The limit is for files that a query of Spark lists."""
    monkeypatch.setattr("widen.sources.file_ranges.RANGED_FILES", 3)
    content = {".json": b'{"id": 1}', ".csv": b"id\n1\n", ".parquet": parquet(column([1], pa.int64()))}
    for number in range(5):
        file = tmp_path / "in" / name.format(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content[file.suffix])
    done = widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", new=True, verify=True)
    assert done.verification is not None
    assert (done.verification.records, done.verification.is_clean) == (5, True)


@pytest.mark.skipif(find_native_readers() is None, reason="the kernel is not installed; see docs/kernel.md")
@pytest.mark.parametrize("text", ["plain", '"in ""quotes"""', '"on two\nlines"'])
def test_a_large_csv_file_is_verified_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("widen.sources.file_ranges.MAX_WHOLE_FILE_BYTES", 5_000)
    monkeypatch.setattr("widen.proof.record_digests.WHOLE_BYTES", 5_000)
    (tmp_path / "a.csv").write_text("id,t\n" + "".join(f"{at},{text}\n" for at in range(2_000)))
    done = widen.ingest(tmp_path / "a.csv", tmp_path / "t", engine="local", verify=True)
    assert done.verification is not None
    assert (done.verification.records, done.verification.exact, done.verification.is_clean) == (2_000, 4_000, True)


@pytest.mark.parametrize("kind", ["positions", "vectors"])
@pytest.mark.parametrize("missing", [{}, {"missing": "keep"}, {"sequence_by": None, "delete_when": None}])
def test_rows_that_other_writers_have_deleted_from_iceberg_tables_need_no_spark(
    tmp_path: Path, missing: dict[str, Any], kind: str
) -> None:
    """Rows deleted by position do not exist for their keys: not when deciding, not when copying, not in the proof."""
    catalog = tmp_path / "c.db"
    words = {"engine": "local", "catalog": catalog, "key": ["id"], **DELETES, **missing, "verify": True}

    def load(*records: dict[str, Any]) -> tuple[str, bool]:
        (tmp_path / "in.json").write_text("".join(f"{json.dumps(each)}\n" for each in records))
        done = widen.ingest(tmp_path / "in.json", "shop.t", to="iceberg", **words)
        return str(done.keys), done.verification is not None and done.verification.is_clean

    load(*({"id": key, "n": 5, "v": key, "w": key, "op": "u"} for key in range(6)))
    load(*({"id": key, "n": 5, "v": key, "w": key} for key in range(10, 14)))
    table = SqlCatalog("default", uri=f"sqlite:///{catalog}").load_table("shop.t")
    gone = {}
    for entry in table.inspect.files().to_pylist():
        file = Path(entry["file_path"].removeprefix("file://"))
        ids = pq.read_table(file, columns=["id"])["id"].to_pylist()
        gone[file] = [at for at, key in enumerate(ids) if key in (1, 2, 3, 11)]
    if kind == "vectors":
        append_deletes(table, deletion_vector(table, gone))
    else:
        append_deletes(table, position_deletes(table, [(file, at) for file, rows in gone.items() for at in rows]))
    first = load({"id": 1, "n": 4, "v": 70}, {"id": 4, "n": 6, "v": 40}, {"id": 12, "n": 6, "v": 41})
    assert first == ("1 inserted, 2 updated, 0 deleted, 0 late", True)
    assert load({"id": 1, "n": 4, "v": 70})[0] in (
        "0 inserted, 0 updated, 0 deleted, 1 late",
        "0 inserted, 1 updated, 0 deleted, 0 late",
    )
    rows = table.refresh().scan().to_arrow().sort_by("id").to_pylist()
    kept = "missing" in missing
    assert [(row["id"], row["v"], row["w"]) for row in rows] == [
        (0, 0, 0),
        (1, 70, None),
        (4, 40, 4 if kept else None),
        (5, 5, 5),
        (10, 10, 10),
        (12, 41, 12 if kept else None),
        (13, 13, 13),
    ]


def test_different_records_with_one_order_need_no_spark(tmp_path: Path) -> None:
    """The contents decide, as JSON in the order of the names, whatever order the records arrive in."""
    batches: list[list[dict[str, Any]]] = [
        [{"id": 1, "n": 1, "v": 2, "a": "b"}, {"id": 1, "n": 1, "v": 9, "a": "a"}, {"id": 2, "n": 1, "v": 1}],
        [{"id": 2, "n": 1, "v": 2}, {"id": 1, "n": 1, "v": 3, "a": "b\u00e9"}, {"id": 1, "n": 1, "v": 99, "a": "a"}],
        [{"id": 2, "n": 1, "v": 1}, {"id": 3, "n": 2, "v": 8}, {"id": 3, "n": 2, "op": "d"}, {"id": 3, "n": 2, "v": 9}],
    ]
    words = {"engine": "local", "key": ["id"], **DELETES, "verify": True}
    for turn, table in ((1, "t"), (-1, "r")):
        done = []
        for batch in batches:
            (tmp_path / "a.json").write_text("".join(f"{json.dumps({'op': 'u', **each})}\n" for each in batch[::turn]))
            result = widen.ingest(tmp_path / "a.json", tmp_path / table, **words)
            assert result.verification is not None
            assert result.verification.is_clean
            done.append(str(result.keys))
        assert done == [
            "2 inserted, 0 updated, 0 deleted, 1 late",
            "0 inserted, 2 updated, 0 deleted, 1 late",
            "0 inserted, 0 updated, 0 deleted, 3 late, 1 deletion of an unknown key",
        ]
        rows = widen.Table(tmp_path / table).to_arrow().sort_by("id").to_pylist()
        assert [(row["id"], row["v"], row["a"]) for row in rows] == [(1, 3, "bé"), (2, 2, None)]


def test_keys_and_orders_of_several_kinds_need_no_spark(tmp_path: Path) -> None:
    """Each has several columns, and the proof of each load needs none either."""
    batches = [
        [{"id": 7, "line": "a", "at": 1, "op": "u", "n": 0}, {"id": 8, "line": 1, "at": 1, "n": 1}],
        [{"id": "7", "line": "a", "at": 1.5, "n": 2}, {"id": 7.0, "line": "a", "at": 0.5, "n": 3}],
        [{"id": "7", "line": "a", "at": 2, "op": "d"}, {"id": 7, "line": "a", "at": 2, "n": 4}],
        [{"id": "7", "line": "a", "at": 1.75, "n": 5}, {"id": 8, "line": "1", "at": 1, "n": 6}, {"id": [8], "at": 1}],
    ]
    for number, batch in enumerate(batches):
        (tmp_path / f"{number}.json").write_text("".join(f"{json.dumps(each)}\n" for each in batch))
    code = """
place, kind = sys.argv[1:]
words = {"engine": "local", "key": ["id", "line"], "sequence_by": "at", "delete_when": "op = 'd'", "verify": True}
words |= {"to": "iceberg", "catalog": place + "/lake.db"} if kind == "iceberg" else {}
into = "a.t" if kind == "iceberg" else place + "/t"
done = [widen.ingest(f"{place}/{name}.json", into, **words) for name in (0, 0, 1, 2, 2, 3)]
print(json.dumps([[str(each.keys), each.quarantined, each.verification.is_clean] for each in done]))
"""
    for kind in ("delta", "iceberg"):
        assert values(code, str(tmp_path), kind) == [
            ["2 inserted, 0 updated, 0 deleted, 0 late", 0, True],
            ["0 inserted, 0 updated, 0 deleted, 2 late", 0, True],
            ["1 inserted, 0 updated, 0 deleted, 1 late", 0, True],
            ["0 inserted, 1 updated, 1 deleted, 0 late", 0, True],
            ["0 inserted, 0 updated, 0 deleted, 2 late", 0, True],
            ["1 inserted, 0 updated, 0 deleted, 1 late", 1, True],
        ]
    assert sorted(widen.Table(tmp_path / "t").to_arrow()["n"].to_pylist()) == [1, 4, 6]
