"""Ingestion into Iceberg end to end. PyIceberg's own scan is the judge of rows, types, field ids and docs."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyspark.sql import SparkSession

import widen
from engine.test_ingest import VECTORS, key_of, write_lines
from support.command_line import run, run_json
from support.drift import STRINGS
from widen import IngestResult, ingest, ingest_stream, replay
from widen.errors import (
    CorruptFile,
    EvolutionRefused,
    FoldLosesValues,
    InvalidOption,
    JobFailed,
    PlanChanged,
    SnapshotUnknown,
)
from widen.iceberg.table_commit import IcebergTransaction
from widen.model.column_path import format_path
from widen.report.iceberg_report import build_iceberg_report
from widen.report.report_summary import summarize_report

UTC = timezone.utc


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A catalog in a process of its own kind: the table is read through another one than it is written through."""
    return SqlCatalog("default", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "w").as_uri())


def proved(spark: SparkSession, source: str, place: Path, name: str = "shop.orders", **words: Any) -> IngestResult:
    """Ingest with the proof, which must be clean."""
    done = ingest(source, name, catalog=place / "catalog.db", verify=True, spark=spark, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def rows(table: Table, by: str = "n") -> list[dict[str, Any]]:
    """The rows by PyIceberg, without what is null in them."""
    found = [{k: v for k, v in row.items() if v is not None} for row in table.scan().to_arrow().to_pylist()]
    return sorted(found, key=lambda row: row.get(by, -1))


def types(table: Table) -> dict[str, str]:
    return {field.name: str(field.field_type) for field in table.schema().fields}


def check_files(table: Table) -> None:
    """Every file has the field ids of the table at every level, and bounds that enclose its values."""
    names = {number: table.schema().find_column_name(number) for number in table.schema()._lazy_id_to_name}
    for task in table.scan().plan_files():
        path = task.file.file_path.removeprefix("file://")
        assert task.file.file_size_in_bytes == Path(path).stat().st_size
        content = pq.read_table(path)
        assert task.file.record_count == content.num_rows
        ids = dict(_ids(pq.read_schema(path), ""))
        assert ids == {name: number for number, name in names.items() if name in ids}
        for number, low in task.file.lower_bounds.items():
            column = table.schema().find_type(number)
            values = [value for value in _values(content, str(names[number])) if value is not None]
            high = task.file.upper_bounds[number]
            _check_bounds(column, values, low, high)


def _check_bounds(column: Any, values: list[Any], low: bytes, high: bytes) -> None:
    if isinstance(column, (ice.StringType, ice.BinaryType)):
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        assert low <= min(encoded)
        assert max(encoded) <= high
        assert max(len(low), len(high)) <= 64
    elif not isinstance(column, (ice.TimestampType, ice.TimestamptzType, ice.DateType)):
        assert from_bytes(column, low) == min(values)
        assert from_bytes(column, high) == max(values)


def _ids(fields: Any, prefix: str) -> list[tuple[str, int]]:
    found = []
    for field in fields:
        path = f"{prefix}{field.name}"
        found.append((path, int(field.metadata[b"PARQUET:field_id"])))
        kind = field.type
        if hasattr(kind, "value_field") and not hasattr(kind, "key_field"):
            found += _ids([kind.value_field.with_name("element")], f"{path}.")
        elif hasattr(kind, "key_field"):
            found += _ids([kind.key_field.with_name("key"), kind.item_field.with_name("value")], f"{path}.")
        elif kind.num_fields:
            found += _ids(kind, f"{path}.")
    return found


def _values(content: Any, name: str) -> list[Any]:
    values = content.to_pylist()
    for step in name.split("."):
        values = [None if value is None else value[step] for value in values]
    return values


# ---- the vectors and the examples of the documents ------------------------------------------------


def iceberg_type(sql: str) -> str:
    """A type of the vectors, which are written in Spark's words, in the words of PyIceberg without ids."""
    return sql.replace("bigint", "long").replace("array<", "list<")


def plain(data_type: Any) -> str:
    """Iceberg's type without ids and docs."""
    if isinstance(data_type, ice.StructType):
        return f"struct<{', '.join(f'{f.name}: {plain(f.field_type)}' for f in data_type.fields)}>"
    if isinstance(data_type, ice.ListType):
        return f"list<{plain(data_type.element_type)}>"
    return str(data_type)


@pytest.fixture(scope="module")
def vectors(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """One table with a field for each vector, in mode split; the second intervals follow the first ones."""
    place = tmp_path_factory.mktemp("vectors")
    for number, which in enumerate((0, 1)):
        longest = max(len(vector[which]) for vector in VECTORS.values())
        records = [
            {"n": 10 * which + turn, **{key_of(k): v[which][turn] for k, v in VECTORS.items() if turn < len(v[which])}}
            for turn in range(longest)
        ]
        source = write_lines(place / f"{number}.jsonl", records)
        proved(spark, source, place, evolve="split")
    catalog = SqlCatalog("default", uri=f"sqlite:///{place}/catalog.db", warehouse=place.as_uri())
    return catalog.load_table("shop.orders")


@pytest.mark.parametrize("name", VECTORS)
def test_vectors(vectors: Table, name: str) -> None:
    first, second, columns, values = VECTORS[name]
    key = key_of(name)
    found = {f.name: plain(f.field_type) for f in vectors.schema().fields if _belongs(f.name, key)}
    assert found == {key + suffix: iceberg_type(sql) for suffix, sql in columns.items()}
    by_number = {row["n"]: row for row in rows(vectors)}
    numbers = [*range(len(first)), *(10 + turn for turn in range(len(second)))]
    stored_rows = [{k: nulls(v) for k, v in by_number[number].items() if _belongs(k, key)} for number in numbers]
    stored_rows = [{k: v for k, v in row.items() if v is not None} for row in stored_rows]
    assert stored_rows == [{key + suffix: value for suffix, value in row.items()} for row in values]


def nulls(value: Any) -> Any:
    """PyIceberg shows a list of records that is null as an empty one. No vector has an empty list."""
    if isinstance(value, dict):
        return {key: nulls(item) for key, item in value.items()}
    return [nulls(item) for item in value] or None if isinstance(value, list) else value


def _belongs(name: str, key: str) -> bool:
    return name == key or (name.startswith(f"{key}_") and not name.startswith(f"{key}_vector"))


def test_evolved_columns_have_their_doc_and_their_id_everywhere(vectors: Table) -> None:
    docs = {field.name: field.doc for field in vectors.schema().fields}
    assert docs["v5"] is None
    assert docs["v5_array_string"] == "evolved_from:v5"
    assert vectors.schema().find_field("example3.b_boolean").doc == "evolved_from:example3.b"
    check_files(vectors)


def test_each_interval_is_one_snapshot_with_its_report(vectors: Table) -> None:
    snapshots = vectors.snapshots()
    assert len(snapshots) == 2
    summaries = [snapshot.summary.additional_properties for snapshot in snapshots if snapshot.summary]
    assert [summary["widen.mode"] for summary in summaries] == ["split", "split"]
    assert [summary["widen.records"] for summary in summaries] == ["4", "1"]
    assert [summary["added-records"] for summary in summaries] == ["4", "1"]
    events = json.loads(summaries[1]["widen.events"])
    assert {event["column"][0] for event in events} >= {"v2_double", "v15_record"}
    assert all(len(summary["widen.plan-hash"]) == 64 for summary in summaries)


# ---- modes ----------------------------------------------------------------------------------------


def test_widen_follows_what_iceberg_v2_can_do(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    first = write_lines(tmp_path / "1.jsonl", ['{"n":1,"i":1,"f":1,"p":12345678901234567890.5}'])
    second = write_lines(tmp_path / "2.jsonl", ['{"n":2,"i":4000000000,"f":1.5,"p":9123456789012345678901.5}'])
    proved(spark, first, tmp_path)
    assert types(catalog.load_table("shop.orders")) == {
        "f": "int",
        "i": "int",
        "n": "int",
        "p": "decimal(21, 1)",
    }
    done = proved(spark, second, tmp_path)
    assert [str(operation) for operation in done.plan.operations] == [
        *("widen i from int to bigint", "widen p from decimal(21,1) to decimal(23,1)", "add f_double double"),
    ]
    table = catalog.load_table("shop.orders")
    assert types(table) == {"f": "int", "i": "long", "n": "int", "p": "decimal(23, 1)", "f_double": "double"}
    assert rows(table) == [
        {"n": 1, "i": 1, "f": 1, "p": Decimal("12345678901234567890.5")},
        {"n": 2, "i": 4000000000, "f_double": 1.5, "p": Decimal("9123456789012345678901.5")},
    ]
    assert [row["n"] for row in table.scan(EqualTo("i", 4000000000)).to_arrow().to_pylist()] == [2]
    check_files(table)


def test_freeze_fail_plan_and_hash(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    place = {"catalog": tmp_path / "catalog.db", "spark": spark}
    first = write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": 1}])
    other = write_lines(tmp_path / "2.jsonl", [{"n": 2, "a": "x", "new": True}])
    planned = widen.plan(first, "shop.orders", **place)
    assert catalog.list_namespaces() == []
    with pytest.raises(PlanChanged):
        ingest(first, "shop.orders", plan_hash="0" * 64, **place)
    ingest(first, "shop.orders", plan_hash=planned.hash, **place)
    with pytest.raises(EvolutionRefused):
        ingest(other, "shop.orders", evolve="fail", **place)
    assert len(catalog.load_table("shop.orders").snapshots()) == 1
    proved(spark, other, tmp_path, evolve="freeze")
    table = catalog.load_table("shop.orders")
    assert rows(table)[1] == {"n": 2, "_rescued": '{"a":"x","new":true}'}
    assert [path.suffix for path in (tmp_path / "catalog_warehouse/shop/orders/data").rglob("*.*")] == [".parquet"] * 2


def test_only_new_files_are_loaded(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    place: dict[str, Any] = {"catalog": tmp_path / "catalog.db", "new": True, "spark": spark}
    landing = str(tmp_path / "in")
    write_lines(tmp_path / "in/a.jsonl", [{"n": 1}])
    first = ingest(landing, "shop.orders", **place)
    assert ingest(landing, "shop.orders", **place).is_unchanged
    write_lines(tmp_path / "in/b.jsonl", [{"n": 2}])
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(ingest, landing, "shop.orders", **place) for _ in range(2)]
        assert sorted(each.result().records for each in both) == [0, 1]
    table = catalog.load_table("shop.orders")
    assert rows(table) == [{"n": 1}, {"n": 2}]
    command = ("loads", "shop.orders", "--catalog", str(tmp_path / "catalog.db"))
    loads = run_json(*command)
    assert [(each["records"], len(each["files"])) for each in loads] == [(1, 1), (1, 1)]
    assert [each["version"] for each in loads] == [snapshot.snapshot_id for snapshot in table.snapshots()]
    assert "b.jsonl" in "".join(run(*command, "--files").stdout.split())  # long paths wrap

    table.manage_snapshots().rollback_to_snapshot(first.version).create_tag(first.version, "day-1").commit()
    assert ingest(landing, "shop.orders", **place).records == 1
    assert rows(catalog.load_table("shop.orders")) == [{"n": 1}, {"n": 2}]
    read = ("read", "shop.orders", "--catalog", str(tmp_path / "catalog.db"), "--json")
    assert [sorted(run(*read, *point).stdout.split()) for point in ((), ("--branch", "main"), ("--tag", "day-1"))] == [
        *(['{"n":1}', '{"n":2}'], ['{"n":1}', '{"n":2}'], ['{"n":1}']),
    ]


def test_lines_that_are_no_records_are_kept(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    done = proved(spark, write_lines(tmp_path / "1.jsonl", ['{"n":1}', "no json"]), tmp_path)
    assert done.corrupt == 1
    table = catalog.load_table("shop.orders")
    assert [row["_corrupt_record"] for row in rows(table) if "_corrupt_record" in row] == ["no json"]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["widen.corrupt-texts"] == "1"


def test_typed_sources(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "in").mkdir()
    frame = spark.sql(
        "SELECT 1 AS n, cast(7 AS smallint) AS s, DATE'2024-05-01' AS d, TIMESTAMP'2024-05-01 10:00:00Z' AS t,"
        " TIMESTAMP_NTZ'2024-05-01 10:00:00' AS tn, 1.5BD AS p, cast(0.5 AS float) AS f, X'00FF' AS b,"
        " map('k', array(named_struct('x', 1L))) AS m, true AS o"
    )
    proved(spark, frame, tmp_path)  # type: ignore[arg-type]
    frame.selectExpr("2 AS n", "cast(70000 AS int) AS s", "'x' AS d").write.parquet(str(tmp_path / "in/p.parquet"))
    proved(spark, str(tmp_path / "in/p.parquet"), tmp_path)
    (tmp_path / "in/c.csv").write_text("n,o\n3,no\n")
    proved(spark, str(tmp_path / "in/c.csv"), tmp_path, detect_types=True)
    table = catalog.load_table("shop.orders")
    assert types(table) == {
        "n": "int",
        "s": "int",
        "d": "date",
        "t": "timestamptz",
        "tn": "timestamp",
        "p": "decimal(2, 1)",
        "f": "double",
        "b": "binary",
        "m": "map<string, list<struct<14: x: optional long>>>",
        "o": "boolean",
        "d_string": "string",
        "o_string": "string",
    }
    assert rows(table) == [
        {
            "n": 1,
            "s": 7,
            "d": date(2024, 5, 1),
            "t": datetime(2024, 5, 1, 10, tzinfo=UTC),
            "tn": datetime(2024, 5, 1, 10),
            "p": Decimal("1.5"),
            "f": 0.5,
            "b": b"\x00\xff",
            "m": [("k", [{"x": 1}])],
            "o": True,
        },
        {"n": 2, "s": 70000, "d_string": "x"},
        {"n": 3, "o_string": "no"},
    ]
    check_files(table)


# ---- partitions and the quarantine ----------------------------------------------------------------


def test_partitions_of_a_new_table(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    lines = [f'{{"n":{n},"at":"2024-05-0{n % 3 + 1}T10:00:00Z","c":"{"xyz"[n % 3] * 5}"}}' for n in range(60)]
    partition_by = ["day(at)", "bucket(4, n)", "truncate(2, c)"]
    words: dict[str, Any] = {"detect_dates": True, "partition_by": partition_by}
    proved(spark, write_lines(tmp_path / "1.jsonl", lines), tmp_path, **words)
    lines = ['{"n":60,"c":null}', '{"n":61,"at":"1969-12-31T23:59:59Z","c":"é"}', '{"n":"text","c":"y"}']
    done = proved(spark, write_lines(tmp_path / "2.jsonl", lines), tmp_path, **words)
    assert done.quarantined == 1
    table = catalog.load_table("shop.orders")
    assert [str(field) for field in table.spec().fields] == [
        *("1000: at_day: day(1)", "1001: n_bucket: bucket[4](3)", "1002: c_trunc: truncate[2](2)"),
    ]
    for filter_, numbers in {
        "n == 17": [17],
        "at < '1970-01-01T00:00:00+00:00'": [61],
        "at is null": [60],
        "c == 'é'": [61],
        "at >= '2024-05-03T00:00:00+00:00'": [n for n in range(60) if n % 3 == 2],
    }.items():
        assert sorted(row["n"] for row in table.scan(filter_).to_arrow().to_pylist()) == numbers
    assert len(list(table.scan("n == 17").plan_files())) < len(list(table.scan().plan_files())) / 3
    quarantine = catalog.load_table("shop.orders_quarantine")
    (row,) = quarantine.scan().to_arrow().to_pylist()
    assert row["text"] == '{"n":"text","c":"y"}'
    assert row["reason"] == 'n: "xxxx" is not of type int, and column n is a partition column'
    assert row["table_version"] == table.snapshots()[0].snapshot_id
    check_files(table)


def test_a_partition_column_may_come_late(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    records = [{"n": n} for n in range(20_000)] + [{"n": 0, "day": "2024-05-01"}]
    words: dict[str, Any] = {"into": "shop.late", "catalog": tmp_path / "catalog.db", "partition_by": ["day"]}
    assert widen.ingest(write_lines(tmp_path / "1.jsonl", records), **words).records == 20_001
    assert {task.file.partition[0] for task in catalog.load_table("shop.late").scan().plan_files()} == {
        None,
        "2024-05-01",
    }


def test_a_plan_refuses_partitions_that_the_table_cannot_have(
    spark: SparkSession, tmp_path: Path, catalog: Catalog
) -> None:
    source = write_lines(tmp_path / "1.jsonl", [{"at": "2024-05-01T10:00:00Z"}])
    for call in (widen.plan, widen.ingest):
        with pytest.raises(InvalidOption, match="The column at is string, which day cannot take"):
            call(source, into="shop.new", catalog=tmp_path / "catalog.db", partition_by=["day(at)"])
    assert not catalog.table_exists("shop.new")


def test_partitions_are_those_of_the_table(spark: SparkSession, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "1.jsonl", [{"n": 1}])
    proved(spark, source, tmp_path, partition_by=["n"])
    proved(spark, source, tmp_path, partition_by=["N"])
    with pytest.raises(InvalidOption, match=r"'bucket\(2, n\)'. The table exists and is partitioned by n;"):
        proved(spark, source, tmp_path, partition_by=["bucket(2, n)"])


def test_replay_moves_what_fits_now(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "k": 1}]), tmp_path, partition_by=["k"])
    lines = ['{"n":2,"k":5000000000}', '{"n":3,"k":"x"}', '{"n":4,"k":4}']
    source = write_lines(tmp_path / "2.jsonl", lines)
    proved(spark, source, tmp_path, evolve="freeze")
    place: dict[str, Any] = {"catalog": tmp_path / "catalog.db", "spark": spark}
    done = replay("shop.orders_quarantine", "shop.orders", **place)
    assert (done.replayed, done.left) == (1, 1)
    table = catalog.load_table("shop.orders")
    assert [row["n"] for row in rows(table)] == [1, 2, 4]
    assert str(table.schema().find_type("k")) == "long"
    left = catalog.load_table("shop.orders_quarantine").scan().to_arrow().to_pylist()
    assert [(row["text"], row["position"]) for row in left] == [('{"n":3,"k":"x"}', 2)]
    assert replay("shop.orders_quarantine", "shop.orders", **place).replayed == 0
    table = catalog.load_table("shop.orders")
    assert [row["n"] for row in rows(table)] == [1, 2, 4]
    checks = {check.name: check.text for check in summarize_report(build_iceberg_report(table, "shop.orders")).checks}
    assert checks["Kept out"] == "1 record of the last 3 loads is in quarantine"


def test_an_interrupted_replay_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "k": 1}]), tmp_path, partition_by=["k"])
    lines = ['{"n":2,"k":5000000000}', '{"n":3,"k":"x"}']
    proved(spark, write_lines(tmp_path / "2.jsonl", lines), tmp_path, evolve="freeze")
    place: dict[str, Any] = {"catalog": tmp_path / "catalog.db", "spark": spark}
    with monkeypatch.context() as patch:
        # after the commit to the table, before that to the quarantine
        patch.setattr("widen.targets.iceberg_quarantine.IcebergQuarantine._remaining_files", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            replay("shop.orders_quarantine", "shop.orders", **place)
    assert catalog.load_table("shop.orders_quarantine").scan().count() == 2
    assert replay("shop.orders_quarantine", "shop.orders", **place).replayed == 0
    assert [row["n"] for row in rows(catalog.load_table("shop.orders"))] == [1, 2]
    left = catalog.load_table("shop.orders_quarantine").scan().to_arrow().to_pylist()
    assert [row["text"] for row in left] == ['{"n":3,"k":"x"}']


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_a_replay_loses_no_file_that_the_session_would_skip(
    spark: SparkSession, tmp_path: Path, catalog: Catalog, fault: str
) -> None:
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "k": 1}]), tmp_path, partition_by=["k"])
    proved(spark, write_lines(tmp_path / "2.jsonl", ['{"n":3,"k":"x"}', '{"n":4,"k":4}']), tmp_path, evolve="freeze")
    (file,) = (tmp_path / "catalog_warehouse/shop/orders_quarantine/data").rglob("*.parquet")
    _ = file.unlink() if fault == "missing" else file.write_bytes(b"PAR1" + bytes(file.stat().st_size))
    before = catalog.load_table("shop.orders_quarantine").metadata
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    with pytest.raises((CorruptFile, JobFailed)):
        replay("shop.orders_quarantine", "shop.orders", catalog=tmp_path / "catalog.db", spark=session)
    assert catalog.load_table("shop.orders_quarantine").metadata == before
    assert catalog.load_table("shop.orders").scan().count() == 2


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


# ---- fold -----------------------------------------------------------------------------------------


def test_a_column_is_folded_back_in_one_commit(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    days = (['{"n":1,"a":1,"s":{"b":1}}'], ['{"n":2,"a":"2"}', '{"n":3,"a":"007"}', '{"n":4,"a":5}'], ['{"n":5}'])
    for number, lines in enumerate(days):
        proved(spark, write_lines(tmp_path / f"{number}.jsonl", lines), tmp_path, evolve="split")
    table, words = widen.IcebergTable("shop.orders", catalog), ("--catalog", str(tmp_path / "catalog.db"))
    with pytest.raises(FoldLosesValues, match="1 of 3 values of a_string cannot be converted exactly to bigint"):
        table.fold("a_string", spark=spark)
    before = {task.file.file_path for task in catalog.load_table("shop.orders").scan().plan_files()}
    change = table.fold("a_string", rest="keep", spark=spark)
    assert (change.metrics, change.version) == ({"numUpdatedRows": 2}, table.version)
    assert table.fold("a_string", rest="keep", spark=spark).version == change.version
    kept = catalog.load_table("shop.orders")
    assert rows(kept)[1:3] == [{"n": 2, "a": 2}, {"n": 3, "a_string": "007"}]
    assert len(before & {task.file.file_path for task in kept.scan().plan_files()}) == 2
    check_files(kept)
    preview = run_json("fold", "shop.orders", "a_string", *words, "--dry-run")
    assert (preview["values"], preview["lost"], preview["dropsColumn"]) == (1, 1, True)
    done = run("fold", "shop.orders", "a_string", "--rest", "lose", *words)
    assert (done.exit_code, "would be lost: 999" in done.stdout) == (0, True)
    folded = catalog.load_table("shop.orders")
    assert types(folded) == {"a": "long", "n": "long", "s": types(kept)["s"]}
    assert len(folded.snapshots()) == len(kept.snapshots()) + 1
    assert rows(folded) == [{"n": 1, "a": 1, "s": {"b": 1}}, {"n": 2, "a": 2}, {"n": 3}, {"n": 4, "a": 5}, {"n": 5}]
    proved(spark, write_lines(tmp_path / "9.jsonl", ['{"n":9,"a":"x"}']), tmp_path, evolve="split")
    assert rows(catalog.load_table("shop.orders"))[-1] == {"n": 9, "a_string": "x"}
    scanned = run_json("report", "shop.orders", *words, "--scan", "--samples", "raw")
    counts = {each["column"]: (each["written"], each["nulls"], each["distinct"]) for each in scanned["columns"]}
    assert (scanned["scanned"], scanned["rows"]) == (True, 6)
    assert counts == {"n": (6, 0, 6), "a": (3, 3, 3), "s.b": (1, 5, 1), "a_string": (1, 5, 1)}


# ---- exactly once, races and unknown outcomes ------------------------------------------------------


def test_an_interval_is_written_once(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    source = write_lines(tmp_path / "1.jsonl", [{"n": 1}])
    first = proved(spark, source, tmp_path, txn=("loader", 3))
    again = ingest(source, "shop.orders", catalog=tmp_path / "catalog.db", txn=("loader", 3), spark=spark)
    assert (again.is_repeated, again.version) == (True, first.version)
    table = catalog.load_table("shop.orders")
    assert table.properties["widen.stream.loader"] == "3"
    table.maintenance.expire_snapshots()
    assert table.scan().count() == 1
    proved(spark, source, tmp_path, txn=("loader", 4))
    assert catalog.load_table("shop.orders").scan().count() == 2


def test_a_stream_writes_each_record_once(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    words: dict[str, Any] = {"catalog": str(tmp_path / "catalog.db"), "checkpoint": str(tmp_path / "checkpoint")}
    write_lines(tmp_path / "in/1.jsonl", [{"n": 1, "a": 1}])
    ingest_stream(str(tmp_path / "in"), "shop.orders", once=True, spark=spark, **words).wait()
    write_lines(tmp_path / "in/2.jsonl", [{"n": 2, "a": "x"}])
    results: list[IngestResult] = []
    words |= {"on_interval": results.append, "verify": True}
    ingest_stream(str(tmp_path / "in"), "shop.orders", once=True, spark=spark, **words).wait()
    assert [each.verification.is_clean for each in results if each.verification] == [True]
    assert rows(catalog.load_table("shop.orders")) == [{"n": 1, "a": 1}, {"n": 2, "a_string": "x"}]


def test_a_lost_race_plans_again(
    spark: SparkSession, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": 1}]), tmp_path)
    add_snapshot, calls = IcebergTransaction.add_snapshot, []

    def after_another(self: IcebergTransaction, *arguments: Any, **options: Any) -> None:
        add_snapshot(self, *arguments, **options)
        if not calls:
            calls.append(1)
            with catalog.load_table("shop.orders").update_schema() as update:
                update.add_column("b", ice.StringType())

    monkeypatch.setattr(IcebergTransaction, "add_snapshot", after_another)
    proved(spark, write_lines(tmp_path / "2.jsonl", [{"n": 2, "a": "x", "b": 5}]), tmp_path)
    table = catalog.load_table("shop.orders")
    assert types(table) == {"a": "int", "n": "int", "b": "string", "a_string": "string"}
    assert rows(table) == [{"n": 1, "a": 1}, {"n": 2, "a_string": "x", "b": "5"}]
    files = {path.name for path in (tmp_path / "catalog_warehouse/shop/orders/data").rglob("*.parquet")}
    assert files == {task.file.file_path.rpartition("/")[2] for task in table.scan().plan_files()}


@pytest.mark.parametrize("change", ["rename", "widen", "replace"])
def test_an_interval_that_changes_no_column_commits_beside_a_change_by_others(
    spark: SparkSession, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": 1}]), tmp_path)
    add_snapshot = IcebergTransaction.add_snapshot

    def after_another(self: IcebergTransaction, *arguments: Any, **options: Any) -> None:
        add_snapshot(self, *arguments, **options)
        table = catalog.load_table("shop.orders")
        if change == "rename":
            table.update_schema().rename_column("a", "b").commit()
        elif change == "widen":
            table.update_schema().update_column("a", ice.LongType()).commit()
        else:
            table.update_schema().delete_column("a").commit()
            table.update_schema().add_column("a", ice.StringType()).commit()

    monkeypatch.setattr(IcebergTransaction, "add_snapshot", after_another)
    proved(spark, write_lines(tmp_path / "2.jsonl", [{"n": 2, "a": 2}]), tmp_path)
    expected = {"rename": {"b": 2}, "widen": {"a": 2}, "replace": {}}[change]
    assert rows(catalog.load_table("shop.orders"))[-1] == {"n": 2, **expected}


def test_an_unknown_outcome_keeps_the_files(
    spark: SparkSession, tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "1.jsonl", [{"n": 1}])
    proved(spark, source, tmp_path)

    def no_answer(*_: object) -> None:
        raise TimeoutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", no_answer)
        patch.setattr("widen.iceberg.table_commit._is_sqlite", lambda _: False)
        with pytest.raises(SnapshotUnknown, match="no answer"):
            ingest(source, "shop.orders", catalog=tmp_path / "catalog.db", spark=spark)
    assert catalog.load_table("shop.orders").scan().count() == 1
    assert len(list((tmp_path / "catalog_warehouse/shop/orders/data").rglob("*.parquet"))) == 2


# ---- tables of others -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_of_pyiceberg_is_continued(spark: SparkSession, tmp_path: Path, catalog: Catalog, version: str) -> None:
    catalog.create_namespace("shop")
    schema = Schema(
        ice.NestedField(1, "n", ice.IntegerType()),
        ice.NestedField(2, "gone", ice.StringType()),
        ice.NestedField(3, "at", ice.TimestamptzType()),
        ice.NestedField(4, "u", ice.UUIDType()),
        ice.NestedField(5, "r", ice.ListType(6, ice.StructType(ice.NestedField(7, "old", ice.IntegerType())))),
        ice.NestedField(8, "must", ice.LongType(), required=version == "2"),
    )
    spec = PartitionSpec(PartitionField(3, 1000, DayTransform(), "at_day"))
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    table = catalog.create_table(
        "shop.orders", schema, partition_spec=spec, sort_order=order, properties={"format-version": version}
    )
    with table.update_schema() as update:
        update.rename_column("n", "number")
        update.rename_column(("r", "element", "old"), "now")
        update.delete_column("gone")
    with table.update_schema() as update:
        update.add_column("gone", ice.LongType())
    with table.update_spec() as respec:
        respec.add_field("number", BucketTransform(2), "number_bucket")
        respec.remove_field("at_day")
    lines = ['{"number":5,"gone":7,"at":"2024-05-01T10:00:00Z","r":[{"now":3,"new":"x"}],"must":1}']
    lines += ['{"number":6,"must":2,"u":"text","at_day":1}', '{"number":7}', '{"number":3000000000,"must":3}']
    done = proved(spark, write_lines(tmp_path / "1.jsonl", lines), tmp_path, detect_dates=True)
    table = catalog.load_table("shop.orders")
    assert done.quarantined == (1 if version == "2" else 0)
    found = rows(table, "number")
    assert found[0] == {
        "number": 5,
        "gone": 7,
        "at": datetime(2024, 5, 1, 10, tzinfo=UTC),
        "r": [{"now": 3, "new": "x"}],
        "must": 1,
    }
    assert found[1] == {"number": 6, "must": 2, "u_string": "text", "at_day_2": 1, "r": []}  # see `nulls`
    assert found[-1] == {"number": 3000000000, "must": 3, "r": []}
    assert table.schema().find_field("number").field_id == 1
    assert str(table.schema().find_type("number")) == "long"
    assert sorted(row["number"] for row in table.scan("number == 5").to_arrow().to_pylist()) == [5]
    check_files(table)


def test_a_rename_by_others_keeps_the_source_field(spark: SparkSession, tmp_path: Path, catalog: Catalog) -> None:
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": {"b": 1}}]), tmp_path)
    with catalog.load_table("shop.orders").update_schema() as update:
        update.rename_column("a", "renamed")
        update.rename_column(("a", "b"), "c")
    proved(spark, write_lines(tmp_path / "2.jsonl", [{"n": 2, "a": {"b": 2}}]), tmp_path)
    assert rows(catalog.load_table("shop.orders")) == [{"n": 1, "renamed": {"c": 1}}, {"n": 2, "renamed": {"c": 2}}]


# ---- random documents -----------------------------------------------------------------------------


def _document(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind < 2:
        return rng.choice([0, 1, -7, 2**31, 2**53 + 1, 2**63, 10**25])
    if kind == 2:
        return rng.choice([0.5, -1e300, 1e-7, 12345.678])
    if kind == 3:
        return rng.choice([True, False, None])
    if kind < 6:
        return json.loads(rng.choice(STRINGS), strict=False)
    if kind < 8:
        return [_document(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "A", "a.b", "a_string", "x y"]): _document(rng, depth + 1) for _ in range(3)}


@pytest.mark.parametrize("evolve", ["split", "widen"])
def test_random_documents(spark: SparkSession, tmp_path: Path, catalog: Catalog, evolve: str) -> None:
    rng, total = random.Random(f"iceberg {evolve}"), 0
    for interval in range(3):
        records = [{"n": total + turn, **{k: _document(rng) for k in "pqr"}} for turn in range(25)]
        total += len(records)
        proved(spark, write_lines(tmp_path / f"{interval}.jsonl", records), tmp_path, evolve=evolve, detect_dates=True)
    table = catalog.load_table("shop.orders")
    assert sorted(row["n"] for row in rows(table)) == list(range(total))
    check_files(table)


def test_all_reasons_of_a_wide_drift_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    names = [f"measurement_of_the_sensor_number_{at:03}" for at in range(80)]
    first.write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
    second.write_text(json.dumps(dict.fromkeys(names, "text")) + "\n")
    place = {"into": "ns.wide", "catalog": tmp_path / "catalog.db", "spark": spark}
    widen.ingest(first, **place)
    widen.ingest(second, **place)
    table = widen.IcebergTable("ns.wide", tmp_path / "catalog.db")
    newest, oldest = table.history()
    assert len(json.loads(table.table.current_snapshot().summary["widen.events"])) < 80
    assert len(json.loads(newest.parameters["widen.events"])) == int(newest.parameters["widen.event-count"]) == 80
    changes = table.diff(oldest.version).changes
    assert sorted(format_path(each.column) for each in changes) == [f"{name}_string" for name in names]
    assert all(each.reasons for each in changes)
    report = build_iceberg_report(table.table, "ns.wide")
    assert [bool(each.reasons) for each in report.intervals[-1].changes] == [True] * 80
    for file in (tmp_path / "catalog_warehouse").rglob("_widen/events/*.json.z"):
        file.unlink()
    assert 0 < len(json.loads(table.history()[0].parameters["widen.events"])) < 80
