"""The sink that ingests, without Spark: what tasks stage is ingested once, and nothing stays staged."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

import widen
from support.sink_batches import (
    iceberg_rows,
    rows_of,
    run_batch,
    stage,
    staged_files,
    texts,
    write_batch,
    writer,
)
from widen.errors import DataSourceRefused, InvalidOption, MicroBatchTooLarge, PostCommitFailed, SourceContentError
from widen.log.commit_outcome import STAGED_ROWS
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.log.vacuum import plan_vacuum
from widen.table import Table, create_table
from widen.verification.records import Verification


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    return {"path": tmp_path / "t", "verify": "true"}


def column(place: object, name: str) -> list[Any]:
    return sorted((row[name] for row in rows_of(str(place)) if row.get(name) is not None), key=repr)


def test_texts_that_no_line_could_hold_are_records(options: dict[str, Any]) -> None:
    run_batch(options, [texts('{"a":\n 1}', None, '[{"a": 2}, {"a": 3}]'), texts("not\nJSON", "", '{"a": 4}')], 0)
    assert column(options["path"], "a") == [1, 2, 3, 4]
    assert column(options["path"], "_corrupt_record") == ["not\nJSON"]


def test_types_that_drift_widen_and_split_from_batch_to_batch(options: dict[str, Any]) -> None:
    for number, text in enumerate(('{"a": 1}', '{"a": 5000000000}', '{"a": "x"}')):
        run_batch(options, [texts(text)], number)
    assert (column(options["path"], "a"), column(options["path"], "a_string")) == ([1, 5_000_000_000], ["x"])
    assert Table(options["path"]).version == 2


def test_a_batch_that_spark_repeats_is_ingested_once(options: dict[str, Any]) -> None:
    for number in (0, 0, 1, 0):
        run_batch(options, [texts(f'{{"a": {number}}}')], number)
    assert column(options["path"], "a") == [0, 1]
    assert Table(options["path"]).version == 1
    run_batch(options, [texts('{"a": 7}')], 0, query="another")
    assert column(options["path"], "a") == [0, 1, 7]


def test_a_named_column_of_bytes_has_the_texts(options: dict[str, Any]) -> None:
    rows = pa.RecordBatch.from_pydict({"key": [b"k"], "payload": [b'{"a": 1}']})
    schema = "struct<key: binary, payload: binary>"
    run_batch({**options, "column": "payload"}, [rows], 0, schema=schema)
    assert column(options["path"], "a") == [1]
    with pytest.raises(InvalidOption, match="column cannot be 'value'") as caught:
        run_batch(options, [rows], 1, schema=schema)
    assert "but key, payload" in str(caught.value.advice)


def test_what_a_commit_does_not_need_any_more_is_deleted(options: dict[str, Any], tmp_path: Path) -> None:
    stage(options, [texts('{"a": 1}')], 0)
    stage(options, [texts('{"a": 1}')], 1)
    (later,) = stage(options, [texts('{"a": 2}')], 2)
    (other,) = stage(options, [texts('{"a": 3}')], 0, "other")
    (abandoned,) = stage(options, [texts('{"a": 4}')], 5, "abandoned")
    os.utime(options["path"] / abandoned.files[0].path, (0, 0))
    run_batch(options, [texts('{"a": 1}')], 1)
    names = {Path(path).name for path in staged_files(tmp_path)}
    assert names == {Path(each.files[0].path).name for each in (later, other)}
    writer(options).commit([later], 2)
    writer(options).commit([other], 0)
    assert staged_files(tmp_path) == []
    assert column(options["path"], "a") == [1, 2, 3]


def test_only_changes_of_tracked_fields_open_versions(options: dict[str, Any]) -> None:
    options |= {"key": "id", "sequenceBy": "at", "history": "true", "historyExcept": "stock, note"}
    run_batch(options, [texts('{"id": 1, "at": 1, "price": 5, "stock": 9}', '{"id": 1, "at": 3, "price": 5}')], 0)
    run_batch(options, [texts('{"id": 1, "at": 2, "price": 5, "stock": 8, "note": "late"}')], 1)
    run_batch(options, [texts('{"id": 1, "at": 4, "price": 6, "stock": 7}')], 2)
    found = sorted((row["at"], row["_valid_from"], row["_valid_to"]) for row in rows_of(str(options["path"])))
    assert found == [(1, 1, 1), (2, 2, 2), (3, 1, 4), (4, 4, None)]


def test_aborts_delete_what_is_staged_and_a_failed_task_its_own(options: dict[str, Any], tmp_path: Path) -> None:
    messages = stage(options, [texts('{"a": 1}'), texts('{"a": 2}')], 0)
    writer(options).abort([*messages, None], 0)
    assert staged_files(tmp_path) == []

    def broken() -> Any:
        yield texts('{"a": 1}')
        raise OSError("the executor is lost")

    with pytest.raises(OSError, match="is lost"):
        writer(options).write(broken())
    assert staged_files(tmp_path) == []


def test_a_batch_over_the_limit_is_refused_by_a_task_and_by_the_commit(options: dict[str, Any], tmp_path: Path) -> None:
    limited = {**options, "maxBatchBytes": 100}
    with pytest.raises(MicroBatchTooLarge, match="more than 100") as caught:
        stage(limited, [texts('{"a": "' + "x" * 100 + '"}')], 0)
    assert "foreachBatch" in str(caught.value.advice)
    messages = stage(limited, [texts('{"a": "' + "x" * 60 + '"}')] * 2, 0)
    with pytest.raises(MicroBatchTooLarge):
        writer(limited).commit(messages, 0)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_vacuum_knows_staged_files(options: dict[str, Any]) -> None:
    run_batch(options, [texts('{"a": 1}')], 0)
    (staged,) = stage(options, [texts('{"a": 1}')], 1)
    store = LogStore(str(options["path"]))
    assert plan_vacuum(store).files == ()
    assert [each.path for each in plan_vacuum(store, 0, force=True).files] == [staged.files[0].path]
    assert staged.files[0].path.startswith(f"{STAGED_ROWS}/q/1-")


def test_what_only_spark_can_do_is_refused_with_what_to_use(options: dict[str, Any]) -> None:
    create_table(str(options["path"]), "a int", properties={"delta.constraints.c": "abs(a) < 3"})
    with pytest.raises(DataSourceRefused, match="its constraint c does more") as caught:
        run_batch(options, [texts('{"a": 1}')], 0)
    assert "widen.ingest in foreachBatch" in str(caught.value.advice)


def test_lost_values_are_an_error_after_the_commit(options: dict[str, Any]) -> None:
    found = Verification(1, 1, 0, lost=1, places=(":1 (a)",))
    with (
        mock.patch("widen.targets.delta.DeltaTarget.verify", return_value=found),
        pytest.raises(PostCommitFailed, match=r"1 LOST; :1 \(a\)"),
    ):
        run_batch(options, [texts('{"a": 1}')], 0)
    run_batch(options, [texts('{"a": 1}')], 0)
    assert column(options["path"], "a") == [1]


def test_limits_hold_for_each_batch(options: dict[str, Any]) -> None:
    with pytest.raises(widen.WidenError, match="the limit is 0"):
        run_batch({**options, "maxCorrupt": "0"}, [texts("x", '{"a": 1}')], 0)
    assert not (Path(options["path"]) / "_delta_log").exists()


@pytest.mark.parametrize("target", ["delta", "iceberg"])
def test_records_replace_the_rows_of_their_keys(options: dict[str, Any], tmp_path: Path, target: str) -> None:
    options |= {"key": "id", "sequenceBy": "at", "deleteWhen": "op = 'd'"}
    if target == "iceberg":
        options |= {"path": "shop.orders", "catalog": tmp_path / "c.db"}
    first = texts('{"id": 1, "at": 1, "op": "c", "v": 1}', '{"id": 2, "at": 1, "op": "c", "v": 2}')
    run_batch(options, [first], 0)
    run_batch(options, [texts('{"id": 1, "at": 2, "op": "d"}', '{"id": 2, "at": 2, "op": "u", "v": 5000000000}')], 1)
    run_batch(options, [texts('{"id": 1, "at": 1, "op": "u", "v": 9}')], 2)
    rows = iceberg_rows("shop.orders", tmp_path / "c.db") if target == "iceberg" else rows_of(options["path"])
    assert [(row["id"], row["v"]) for row in rows] == [(2, 5_000_000_000)]
    assert staged_files(tmp_path) == []


def test_an_iceberg_table_has_the_batch_of_a_query_once(options: dict[str, Any], tmp_path: Path) -> None:
    options |= {"path": "shop.orders", "catalog": tmp_path / "c.db", "partitionBy": "bucket(4, id), day"}
    for number in (0, 0, 1, 1):
        run_batch(options, [texts(f'{{"id": {number}, "day": "2024-01-0{number + 1}"}}')], number)
    assert sorted(row["id"] for row in iceberg_rows("shop.orders", tmp_path / "c.db")) == [0, 1]
    assert staged_files(tmp_path) == []


def test_envelopes_masks_and_a_file_of_settings(options: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "orders.toml"
    config.write_text('mask = ["mail"]\n[keys]\nkey = ["id"]\n')
    options |= {"config": config, "envelope": "debezium"}
    change = '{{"op": "{}", "before": {}, "after": {}, "source": {{"connector": "postgresql", "lsn": {}}}}}'
    run_batch(options, [texts(change.format("c", "null", '{"id": 1, "mail": "a@b"}', 1))], 0)
    assert [(row["id"], row["mail"]) for row in rows_of(options["path"])] == [(1, "***")]
    run_batch(options, [texts(change.format("d", '{"id": 1}', "null", 2))], 1)
    assert rows_of(options["path"]) == []


def test_records_that_do_not_fit_go_to_the_quarantine_once(options: dict[str, Any], tmp_path: Path) -> None:
    create_table(str(options["path"]), "id int not null, v int")
    for number in (0, 0):
        run_batch(options, [texts('{"id": 1, "v": 1}', '{"v": 2}')], number)
    assert column(options["path"], "id") == [1]
    assert [row["text"] for row in rows_of(tmp_path / "t_quarantine")] == ['{"v": 2}']


# ---- rows with types -------------------------------------------------------------------------------

TYPED = (
    "struct<i: int, l: bigint, s: string, b: binary, d: date, t: timestamp, n: timestamp_ntz, c: decimal(10,2), "
    "f: float, w: double, z: boolean, y: tinyint, h: smallint, r: struct<x: int>, a: array<string>, "
    "m: map<string, int>>"
)
MOMENT = datetime(2024, 1, 31, 12, 30, 0, 1, tzinfo=timezone.utc)


def typed() -> pa.RecordBatch:
    naive = MOMENT.replace(tzinfo=None)
    values: dict[str, pa.Array] = {
        "i": pa.array([1, None], pa.int32()),
        "l": pa.array([2**62, None], pa.int64()),
        "s": pa.array(["x", None]),
        "b": pa.array([b"\x00\xff", None]),
        "d": pa.array([MOMENT.date(), None], pa.date32()),
        "t": pa.array([MOMENT, None], pa.timestamp("us", "Europe/Berlin")),
        "n": pa.array([naive, None], pa.timestamp("us")),
        "c": pa.array([1, None], pa.decimal128(10, 2)),
        "f": pa.array([0.5, None], pa.float32()),
        "w": pa.array([0.25, None]),
        "z": pa.array([True, None]),
        "y": pa.array([1, None], pa.int8()),
        "h": pa.array([1, None], pa.int16()),
        "r": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
        "a": pa.array([["x", None], None], pa.list_(pa.string())),
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
    }
    return pa.RecordBatch.from_pydict(values)


def test_columns_keep_their_types_and_values(options: dict[str, Any], tmp_path: Path) -> None:
    run_batch({**options, "ingest": "rows"}, [typed()], 0, schema=TYPED)
    schema = open_snapshot(LogStore(str(options["path"]))).schema
    assert {field.name: field.type.sql for field in schema} == {
        "i": "int", "l": "bigint", "s": "string", "b": "binary", "d": "date", "t": "timestamp", "n": "timestamp_ntz",
        "c": "decimal(10,2)", "f": "double", "w": "double", "z": "boolean", "y": "int", "h": "int",
        "r": "struct<x: int>", "a": "array<string>", "m": "map<string,int>",
    }  # fmt: skip
    first, nulls = sorted(rows_of(options["path"]), key=lambda row: row["i"] is None)
    expected = typed().to_pylist()[0]
    assert {**first, "t": first["t"].astimezone(timezone.utc)} == {**expected, "t": MOMENT}
    assert set(map(repr, nulls.values())) == {"None"}
    assert staged_files(tmp_path) == []


def test_a_column_whose_type_drifts_widens_or_splits(options: dict[str, Any]) -> None:
    options["ingest"] = "rows"
    for number, (kind, value) in enumerate(((pa.int32(), 1), (pa.int64(), 2**40), (pa.string(), "x"))):
        sql = {"int32": "int", "int64": "bigint", "string": "string"}[str(kind)]
        rows = pa.RecordBatch.from_pydict({"a": pa.array([value], kind)})
        run_batch(options, [rows], number, schema=f"struct<a: {sql}>")
    assert (column(options["path"], "a"), column(options["path"], "a_string")) == ([1, 2**40], ["x"])


def test_rows_get_the_time_of_their_load(options: dict[str, Any]) -> None:
    given = {**options, "ingest": "rows", "sourceColumns": "true"}
    for number in range(2):
        tasks = [pa.RecordBatch.from_pydict({"a": [2 * number + each]}) for each in range(2)]
        run_batch(given, tasks, number, schema="struct<a: bigint>")
    rows = rows_of(options["path"])
    assert sorted(row["a"] for row in rows) == [0, 1, 2, 3]
    times = {row["a"] // 2: row["_loaded_at"] for row in rows}
    assert len({row["_loaded_at"] for row in rows}) == 2
    assert times[0] < times[1]
    assert {name for row in rows for name in row} == {"a", "_loaded_at"}


def test_rows_replace_those_of_their_keys(options: dict[str, Any]) -> None:
    keyed = {"path": options["path"], "ingest": "rows", "key": "id"}
    for number, value in enumerate((1, 2)):
        rows = pa.RecordBatch.from_pydict({"id": [7], "v": [value]})
        run_batch(keyed, [rows], number, schema="struct<id: bigint, v: bigint>")
    assert rows_of(options["path"]) == [{"id": 7, "v": 2}]


# ---- batches that are no stream --------------------------------------------------------------------


def test_a_batch_write_is_one_ingestion(options: dict[str, Any], tmp_path: Path) -> None:
    for _ in range(2):
        write_batch(options, [texts('{"a": 1}'), texts('{"a": 2.5}')])
    assert column(options["path"], "a") == [1, 1, 2.5, 2.5]
    write_batch(options, [texts(None)])
    assert Table(options["path"]).version == 1
    assert staged_files(tmp_path) == []


def test_a_batch_write_that_is_repeated_is_ingested_once(options: dict[str, Any], tmp_path: Path) -> None:
    batch = [texts('{"a": 1}'), texts('{"a": 2}')]
    for number, expected in ((0, [1, 2]), (0, [1, 2]), (1, [1, 1, 2, 2]), (0, [1, 1, 2, 2])):
        write_batch({**options, "txnAppId": "nightly", "txnVersion": number}, batch)
        assert column(options["path"], "a") == expected
    write_batch({**options, "txnAppId": "hourly", "txnVersion": 0}, batch)
    assert column(options["path"], "a") == [1, 1, 1, 2, 2, 2]
    assert staged_files(tmp_path) == []


KAFKA = "struct<value: string, topic: string, partition: int, offset: bigint>"


def test_a_text_that_is_too_long_is_refused_with_its_place(options: dict[str, Any], tmp_path: Path) -> None:
    options["maxRecordSize"] = 20
    long = '{"a": "%s"}' % ("x" * 30)
    run_batch(options, [texts(*['{"a": 1}'] * 50)], 0)
    found = writer(options)
    with pytest.raises(SourceContentError, match=r"the row 4 of a task is longer than 20 bytes") as caught:
        found.write(iter([texts('{"a": 1}', None), texts('{"a": 1}', long)]))
    assert "maxRecordSize" in str(caught.value.advice)
    assert "x" * 5 not in str(caught.value)
    rows = pa.table({"value": ["{}", long], "topic": ["t", "t"], "partition": [0, 3], "offset": [7, 70]})
    rows = rows.set_column(2, "partition", rows["partition"].cast(pa.int32()))
    place = "the record at offset 70 of the partition 3 of the topic t is longer than 20 bytes"
    with pytest.raises(SourceContentError, match=place):
        writer(options, KAFKA).write(iter(rows.to_batches()))
    assert staged_files(tmp_path) == []


def test_a_task_imports_little(options: dict[str, Any]) -> None:
    """Each Python process of an executor imports what the writer needs that Spark sends to it."""
    program = "import pickle, sys; pickle.load(sys.stdin.buffer); print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(writer(options)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        check=True,
    )
    modules = {*done.stdout.decode().split()}
    assert "widen.data_source.staging" in modules
    needless = {"pandas", "widen.sources.listing", "widen.files.data_reader", "widen.iceberg.catalog", "widen.table"}
    assert modules & {*needless, "widen.data_source.ingest_sink", "widen.data_source.batch_reader"} == set()


def test_the_options_of_a_sink_are_read_without_pandas(options: dict[str, Any]) -> None:
    """Spark may start a process for each batch that reads the options and asks for a writer."""
    program = (
        "import sys; from support.sink_batches import writer; "
        f"writer({{'path': {str(options['path'])!r}, 'key': 'id'}}); sys.exit('pandas' in sys.modules)"
    )
    path = os.pathsep.join(filter(None, sys.path))
    assert subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}).returncode == 0


def test_a_commit_imports_no_pandas_and_leaves_it_to_others(options: dict[str, Any]) -> None:
    """Its process may commit for another data source next."""
    program = f"""
import sys
import pyarrow as pa
from support.sink_batches import rows_of, run_batch, texts
from widen.files.pandas_import import without_pandas
with without_pandas():
    batch = texts('{{"a": 1}}')
run_batch({{'path': {str(options["path"])!r}, 'verify': 'true'}}, [batch], 0)
assert 'pandas' not in sys.modules
import pandas
assert pa.array(pandas.Series([1, float('nan')])).to_pylist() == [1, None]
assert list(pa.table({{'a': [1]}}).to_pandas()['a']) == [1]
"""
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, check=True)
    assert column(options["path"], "a") == [1]
