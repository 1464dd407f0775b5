"""Tables with CHECK constraints and invariants: what breaks them goes to the quarantine, on both engines alike.

Delta Lake refuses a row for which a condition is false or null; `tests/interop/test_checked_rows.py` asks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import widen
from support.covering import covering
from widen.errors import EngineUnsuitable
from widen.protocol.column_metadata import INVARIANT
from widen.spark.engine import Engine, LocalSession, is_local, require_spark
from widen.table import Table

COLUMNS = (
    "id bigint, n bigint, op string, price double, rate decimal(8,3), day date, at timestamp, flag boolean, p string"
)
RECORDS: list[Any] = [
    {"id": 1, "n": 5, "op": "a", "price": 2.5, "rate": 1.25, "day": "2024-05-01", "flag": True, "p": "x"},
    {"id": 2, "n": -5, "op": "b", "price": 1e300, "rate": 99999.125, "day": "1969-12-31", "flag": False, "p": "y"},
    {"id": 3, "n": None, "op": None, "price": None, "flag": None, "p": None},
    {"id": 4, "n": 2**53, "op": 'Äß "quoted" \\ 12', "price": 0.001, "rate": 0, "day": "2024-12-31", "p": "x"},
    {"id": 5, "n": 0, "op": "", "price": -1e-7, "rate": -0.5, "at": "2024-05-01T10:00:00.120000Z", "p": "x"},
    {"id": 6, "n": 100, "op": "long " * 200, "price": 100.0, "at": "1969-05-01T10:00:00Z", "p": ""},
    {"id": 7},
    '[{"id":8,"n":7,"op":"in a list","p":"z"}]',
    "not a record",
    '{"id":9,"n":9}{"id":10,"n":-9}',
]
CONDITIONS = [
    ["n > 0"],
    ["n > 0 OR n IS NULL"],
    ["NOT (n < 0 AND op = 'b')"],
    ["op IN ('a', 'b', '')"],
    ["op IS NOT NULL", "n <> 100"],
    ["price BETWEEN -1 AND 1e3", "rate <> 1.25"],
    ["day >= '1970-01-01' OR day IS NULL", "flag = true OR flag IS NULL"],
    ["at > TIMESTAMP '2000-01-01T00:00:00Z' OR at IS NULL"],
    ["p <> 'y' OR p IS NULL"],
]


def load(spark: SparkSession, place: Path, engine: str, **words: Any) -> tuple[widen.IngestResult, Any]:
    """Load the records on an engine; return the result, and what is in the table and in the quarantine."""
    local = LocalSession(Engine.AUTO, lambda _: spark)
    with mock.patch("widen.spark.engine.SESSION_WINS", new=True):
        session = cast(SparkSession, local) if engine == "local" else spark
        done = widen.ingest(str(place / "s.jsonl"), str(place / engine), spark=session, verify=True, **words)
    assert engine == "spark" or is_local(local), local.explanation
    rows = sorted(Table(str(place / engine)).to_arrow().to_pylist(), key=repr)
    quarantine = Table(str(place / f"{engine}_quarantine"))
    names = ("text", "position", "reason")
    kept = [tuple(row[name] for name in names) for row in quarantine.to_arrow().to_pylist()] if done.quarantined else []
    return done, (rows, sorted(kept, key=repr))


def write_records(place: Path) -> None:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in RECORDS)
    (place / "s.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def assert_same(spark: SparkSession, place: Path, quarantined: int | None = None) -> None:
    here, there = (load(spark, place, engine) for engine in ("local", "spark"))
    assert here[1] == there[1]
    for name in ("records", "corrupt", "quarantined", "verification"):
        assert getattr(here[0], name) == getattr(there[0], name), name
    assert here[0].verification is not None
    assert here[0].verification.is_clean
    assert here[0].quarantined if quarantined is None else here[0].quarantined == quarantined


def condition_name(part: list[str] | str) -> str:
    return part if isinstance(part, str) else " and ".join(part)


@pytest.mark.parametrize(("conditions", "kind"), covering(CONDITIONS, ["plain", "partitioned"]), ids=condition_name)
def test_both_engines_refuse_the_same_rows_in_the_same_words(
    spark: SparkSession, tmp_path: Path, conditions: list[str], kind: str
) -> None:
    require_spark(spark, "it is compared with it")
    write_records(tmp_path)
    properties = {f"delta.constraints.c{number}": text for number, text in enumerate(conditions)}
    if kind == "partitioned":
        properties["delta.columnMapping.mode"] = "name"
    for engine in ("local", "spark"):
        partition_by = ["p"] if kind == "partitioned" else []
        widen.create_table(tmp_path / engine, COLUMNS, partition_by=partition_by, properties=properties)
    assert_same(spark, tmp_path)


def test_invariants_of_columns_are_checked_alike(spark: SparkSession, tmp_path: Path) -> None:
    require_spark(spark, "it is compared with it")
    write_records(tmp_path)
    metadata = {INVARIANT: json.dumps({"expression": {"expression": "n >= 5"}})}
    for engine in ("local", "spark"):
        widen.create_table(tmp_path / engine, COLUMNS)
        _add_metadata(tmp_path / engine, "n", metadata)
    assert_same(spark, tmp_path)


def _add_metadata(place: Path, name: str, metadata: Mapping[str, str]) -> None:
    """Give a column of a new table metadata, as other writers do."""
    log = place / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            next(field for field in schema["fields"] if field["name"] == name)["metadata"] |= metadata
            action["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in action and "writerFeatures" in action["protocol"]:
            action["protocol"]["writerFeatures"] = sorted({*action["protocol"]["writerFeatures"], "invariants"})
    log.with_suffix(".crc").unlink()
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_loads_by_key_are_checked(spark: SparkSession, tmp_path: Path) -> None:
    require_spark(spark, "it is compared with it")
    write_records(tmp_path)
    for engine in ("local", "spark"):
        widen.create_table(tmp_path / engine, COLUMNS, properties={"delta.constraints.c": "n > 0 OR op = ''"})
    here, there = (load(spark, tmp_path, engine, key=["id"], delete_when="op = 'b'") for engine in ("local", "spark"))
    assert here[1] == there[1]
    assert here[0].keys == there[0].keys
    assert here[0].verification == there[0].verification


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("abs(n) < 3", "its constraint c does more than compare columns with constants"),
        ("op LIKE 'a%'", "its constraint c does more than compare columns with constants"),
        ("n > id", "its constraint c does more than compare columns with constants"),
        ("r.x > 0", "its constraint c is about values of another type than numbers, texts, dates and times"),
    ],
)
def test_what_only_spark_evaluates_is_named(tmp_path: Path, condition: str, reason: str) -> None:
    write_records(tmp_path)
    columns = f"{COLUMNS}, r struct<x: bigint>"
    widen.create_table(tmp_path / "t", columns, properties={"delta.constraints.c": condition})
    with pytest.raises(EngineUnsuitable, match=reason):
        widen.ingest(str(tmp_path / "s.jsonl"), str(tmp_path / "t"), engine="local")


def load_parquet(spark: SparkSession, place: Path, engine: str, **words: Any) -> tuple[widen.IngestResult, Any]:
    """As `load`, of the Parquet file, and prove in this process what it has loaded."""
    local = LocalSession(Engine.AUTO, lambda _: spark)
    session = cast(SparkSession, local) if engine == "local" else spark
    with mock.patch("widen.spark.engine.SESSION_WINS", new=True):
        words |= {"verify": engine == "local"}
        done = widen.ingest(str(place / "s.parquet"), str(place / engine), spark=session, **words)
    assert done.verification is None or done.verification.is_clean, str(done.verification)
    assert engine == "spark" or is_local(local), local.explanation
    rows = sorted(map(repr, Table(str(place / engine)).to_arrow().to_pylist()))  # NaN is not equal to itself
    quarantine = Table(str(place / f"{engine}_quarantine")).to_arrow().to_pylist()
    return done, (rows, sorted(((row["text"], row["position"], row["reason"]) for row in quarantine), key=repr))


TYPED = [
    {"id": 1, "n": 5, "op": "a", "price": 2.5, "day": date(2024, 5, 1), "flag": True, "p": "x"},
    {"id": 2, "n": -5, "op": "b", "price": 1e300, "day": date(1969, 12, 31), "flag": False, "p": "y"},
    {"id": 3},
    {"id": 4, "n": 2**53, "op": 'Äß "quoted" \\ 12', "price": 0.001, "day": date(2024, 12, 31), "p": "x"},
    {"id": 5, "n": 0, "op": "", "price": float("nan"), "at": datetime(2024, 5, 1, 10, 0, 0, 120_000, timezone.utc)},
    {"id": 6, "n": 100, "op": "long " * 200, "price": 100.0, "at": datetime(1969, 5, 1, tzinfo=timezone.utc), "p": ""},
    {"id": 7, "n": -0, "op": "\0", "p": "x\0"},
]
TYPES = {"id": pa.int64(), "n": pa.int64(), "op": pa.string(), "price": pa.float64(), "day": pa.date32()}
TYPES |= {"at": pa.timestamp("us", "UTC"), "flag": pa.bool_(), "p": pa.string()}
OTHER_TYPES = {"id": pa.int32(), "n": pa.float64(), "price": pa.decimal128(12, 3), "p": pa.string()}
"""Types of values that are converted."""


@pytest.mark.parametrize(
    ("conditions", "kind"), covering(CONDITIONS, ["plain", "partitioned", "converted"]), ids=condition_name
)
def test_both_engines_refuse_the_same_rows_of_parquet_files(
    spark: SparkSession, tmp_path: Path, conditions: list[str], kind: str
) -> None:
    require_spark(spark, "it is compared with it")
    if kind == "converted":
        numbers = [(1, 5.0, "2.500", "x"), (2, -5.0, "1.001", "y"), (3, None, None, None), (4, 1e3, "99.000", "")]
        names = ("id", "n", "price", "p")
        rows = [dict(zip(names, (*row[:2], row[2] and Decimal(row[2]), row[3]), strict=True)) for row in numbers]
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(OTHER_TYPES)), tmp_path / "s.parquet")
    else:
        pq.write_table(pa.Table.from_pylist(TYPED, pa.schema(TYPES)), tmp_path / "s.parquet", row_group_size=3)
    properties = {f"delta.constraints.c{number}": text for number, text in enumerate(conditions)}
    for engine in ("local", "spark"):
        partition_by = ["p"] if kind == "partitioned" else []
        widen.create_table(tmp_path / engine, COLUMNS, partition_by=partition_by, properties=properties)
        # An earlier load, so that both have a quarantine.
        (tmp_path / "s.json").write_text("nothing\n")
        widen.ingest(str(tmp_path / "s.json"), str(tmp_path / engine), engine="local")
    here, there = (load_parquet(spark, tmp_path, engine) for engine in ("local", "spark"))
    assert here[1] == there[1]
    for name in ("records", "corrupt", "quarantined"):
        assert getattr(here[0], name) == getattr(there[0], name), name


def test_invariants_and_required_columns_of_parquet_files_are_checked_alike(
    spark: SparkSession, tmp_path: Path
) -> None:
    require_spark(spark, "it is compared with it")
    pq.write_table(pa.Table.from_pylist(TYPED, pa.schema(TYPES)), tmp_path / "s.parquet")
    for engine in ("local", "spark"):
        widen.create_table(tmp_path / engine, COLUMNS.replace("op string", "op string NOT NULL"))
        _add_metadata(tmp_path / engine, "n", {INVARIANT: json.dumps({"expression": {"expression": "n >= 5"}})})
    here, there = (load_parquet(spark, tmp_path, engine) for engine in ("local", "spark"))
    assert here[1] == there[1]
    assert here[0].quarantined == there[0].quarantined == 4


KEY_WORDS: list[dict[str, Any]] = [{"sequence_by": "n"}, {}, {"sequence_by": "n", "delete_when": "op = 'b'"}]


@pytest.mark.parametrize(
    ("case", "kind"),
    covering(product(KEY_WORDS, ["jsonl", "parquet"]), ["plain", "partitioned", "iceberg"]),
    ids=str,
)
def test_records_without_a_key_are_quarantined_alike(
    spark: SparkSession, tmp_path: Path, case: tuple[Mapping[str, Any], str], kind: str
) -> None:
    words, format = case
    require_spark(spark, "it is compared with it")
    first = [{"id": at, "r": {"k": f"k{at}"}, "n": 1, "op": "a"} for at in range(1, 4)]
    second: list[dict[str, Any]] = [
        *({"id": at, "r": {"k": f"k{at}"}, "n": 2, "op": "ab"[at % 2]} for at in range(2, 6)),
        {"r": {"k": "no id"}, "n": 3},
        {"id": 8, "r": {"k": None}, "n": 3},
        {"id": 9, "n": 3, "op": "x"},
        {"id": 10, "r": {"k": "no order"}},
    ]
    results = []
    for engine in ("local", "spark"):
        local = LocalSession(Engine.AUTO, lambda _: spark)
        session = cast(SparkSession, local) if engine == "local" else spark
        options: dict[str, Any] = {"key": ["id", "r.k"], **words}
        into = str(tmp_path / engine)
        if kind == "iceberg":
            into, options["catalog"] = f"a.{engine}", str(tmp_path / "c.db")
        elif kind == "partitioned":
            widen.create_table(into, "id bigint, r struct<k: string>, n bigint, op string", partition_by=["op"])
        done = []
        for number, records in enumerate((first, second)):
            place = tmp_path / f"{number}.{format}"
            if format == "parquet":
                columns = {"id": pa.int64(), "r": pa.struct({"k": pa.string()}), "n": pa.int64(), "op": pa.string()}
                pq.write_table(pa.Table.from_pylist(records, pa.schema(columns)), place)
            else:
                broken = "" if number == 0 else 'nothing\n[7]\n"x"\n'
                place.write_text("".join(f"{json.dumps(each)}\n" for each in records) + broken)
            with mock.patch("widen.spark.engine.SESSION_WINS", new=True):
                one = widen.ingest(str(place), into, spark=session, verify=format == "jsonl", **options)
            done.append((one.records, one.corrupt, one.quarantined, one.keys, one.plan.hash, str(one.verification)))
        assert engine == "spark" or is_local(local), local.explanation
        if kind == "iceberg":
            catalog = options["catalog"]
            tables = [
                widen.IcebergTable(name, catalog).table.scan().to_arrow() for name in (into, f"{into}_quarantine")
            ]
        else:
            tables = [Table(name).to_arrow() for name in (into, f"{into}_quarantine")]
        kept = [(row["text"], row["position"], row["reason"]) for row in tables[1].to_pylist()]
        results.append((done, sorted(map(repr, tables[0].to_pylist())), sorted(kept, key=repr)))
    assert results[0] == results[1]
    assert results[0][0][1][2] == (3 if format == "jsonl" else 0) + (4 if words else 3)
