"""The law of conditions: what this process finds for a condition is what Spark finds, and no statistics lose a row.

Conditions are generated over kinds of literals, types, operators, null, NaN, -0.0 and the extremes of each type. What
this process cannot evaluate exactly is left to Spark. WIDEN_CONDITIONS draws more of them, with another seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyiceberg.table
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from support.conditions import SCHEMA, Conditions, rows
from support.covering import TRIES_ALL, covering
from support.iceberg_files import embedded_catalog
from support.one_job import collect_each
from widen.changes.update_delete import delete
from widen.cli.show_commands import query_iceberg_table
from widen.files.expressions import plan_condition, query_locally
from widen.files.predicates import bind_condition
from widen.iceberg.snapshots import SnapshotReference
from widen.log.commit import commit
from widen.log.file_list import filter_files, from_adds
from widen.model.types import INTEGER, Field, StructType
from widen.protocol.actions import Add
from widen.protocol.data_skipping import FileSelection
from widen.spark.engine import Engine, LocalSession, Unsupported
from widen.spark.spark_types import to_spark
from widen.table import Table

COUNT = int(os.environ.get("WIDEN_CONDITIONS") or (20_000 if TRIES_ALL else 500))
SEED = COUNT
CHANGES = max(50, COUNT // 40)
"""The conditions of deletions: each reads and changes the files of a table."""
ROWS = rows()
AT_ONCE = 250
NUMBERED = ROWS.append_column("id", pa.array(range(len(ROWS)), pa.int32()))
Answers = list[bool | None]


@cache
def evaluated() -> Sequence[tuple[str, Answers]]:
    """COUNT conditions that this process evaluates, with its answers for the rows: the same ones for each test."""
    source, found = Conditions(SEED), list[tuple[str, Answers]]()
    while len(found) < COUNT:
        condition = source.one()
        with suppress(Unsupported):
            found.append((condition, plan_condition(condition, SCHEMA)(ROWS).to_pylist()))
    return found


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings of a session for a while."""
    old = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    yield
    for name, before in old.items():
        spark.conf.set(name, before or "")


NOT_COMPILED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_spark_finds_the_same_for_every_condition(spark: SparkSession, ansi: str) -> None:
    found = evaluated()[: COUNT if ansi == "true" else COUNT // 4]
    wrong = {}
    with settings(spark, **{**NOT_COMPILED, "spark.sql.ansi.enabled": ansi, "spark.sql.session.timeZone": "UTC"}):
        frame = spark.createDataFrame(ROWS, to_spark(SCHEMA))
        for first in range(0, len(found), AT_ONCE):
            part = found[first : first + AT_ONCE]
            answers = frame.select(*(F.expr(text).alias(str(at)) for at, (text, _) in enumerate(part))).toArrow()
            for (text, here), there in zip(part, answers.columns, strict=True):
                if here != there.to_pylist():
                    wrong[text] = [*zip(there.to_pylist(), here, strict=True)]
    assert not wrong


# ---- files are skipped by statistics and partition values ------------------------------------------


def statistics(part: pa.Table) -> str:
    """The statistics of rows as writers have them that leave NaN out."""
    low, high, nulls = ({} for _ in range(3))
    for name in part.column_names:
        low[name], high[name], nulls[name] = _bounds(part[name].combine_chunks())
    stats = {"numRecords": len(part), "minValues": low, "maxValues": high, "nullCount": nulls}
    return msgspec.json.encode(_without_none(stats)).decode()


def _bounds(values: Any) -> tuple[Any, Any, Any]:
    if pa.types.is_struct(values.type):
        fields = [field.name for field in values.type]
        inner = [_bounds(part) for part in values.flatten()]
        low, high, nulls = (dict(zip(fields, each, strict=True)) for each in zip(*inner, strict=True))
        return low, high, nulls
    nulls = values.null_count
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    if pa.types.is_boolean(values.type):
        return None, None, nulls
    low, high = (pc.min_max(values)[key].as_py() for key in ("min", "max"))
    return _text(low), _text(high), nulls


def _text(value: Any) -> Any:
    if hasattr(value, "isoformat"):
        zone = "Z" if getattr(value, "tzinfo", None) else ""
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds") if hasattr(value, "hour") else str(value)
        return text + zone
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return msgspec.Raw(str(value).encode()) if type(value).__name__ == "Decimal" else value


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return value


PAIRS = [ROWS.slice(at, 2) for at in range(0, len(ROWS), 2)]


def _add(number: int, part: pa.Table) -> Add:
    path, stats = f"{number}.parquet", statistics(part)
    return Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True, stats=stats)


def test_no_statistics_lose_a_row() -> None:
    files = pa.Table.from_batches([from_adds([_add(number, part) for number, part in enumerate(PAIRS)])])
    for condition, answers in evaluated():
        needed = {f"{at // 2}.parquet" for at, answer in enumerate(answers) if answer}
        selection = FileSelection(bind_condition(condition, SCHEMA), SCHEMA, "none", ())
        assert needed <= {*filter_files(files, selection)["path"].to_pylist()}, condition


# ---- SELECT and DELETE -----------------------------------------------------------------------------

VECTORS = {"delta.enableDeletionVectors": "true"}
COLUMNS = StructType((*SCHEMA.fields, Field("id", INTEGER)))
FILES = [NUMBERED.slice(0, 7), NUMBERED.slice(7)]


def write_delta(place: Path, properties: Mapping[str, str]) -> Table:
    """A table whose statistics, in the log and in the footers, leave NaN out."""
    table = widen.create_table(str(place), COLUMNS, properties=properties)
    adds = []
    for number, part in enumerate(FILES):
        pq.write_table(part, place / f"{number}.parquet")
        size = (place / f"{number}.parquet").stat().st_size
        adds.append(msgspec.structs.replace(_add(number, part), size=size))
    commit(table.snapshot.store, table.snapshot, adds, "WRITE", {}).or_raise()
    return Table(str(place))


def write_iceberg(catalog: SqlCatalog) -> tuple[Any, pyiceberg.table.Table]:
    """A table as PyIceberg writes it, and how PyIceberg sees it; Iceberg has no types of 8 or 16 bits."""
    narrow = {name: NUMBERED[name].cast("int32") for name in ("y", "h")}
    rows = pa.table({**{name: NUMBERED[name] for name in NUMBERED.column_names}, **narrow})
    made = catalog.create_table("ns.t", rows.schema)
    for part in (rows.slice(0, 7), rows.slice(7)):
        made.append(part)
    return widen.IcebergTable("ns.t", catalog=catalog), made


def read_here(table: widen.IcebergTable, condition: str) -> pa.Table:
    reference = SnapshotReference()
    return query_iceberg_table(table, reference, condition, ["id"], None, unified=False, row_lineage=False)[1]


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["files", "vectors"])
def test_a_deletion_here_removes_the_rows_that_a_select_shows(tmp_path: Path, properties: dict[str, str]) -> None:
    snapshot = write_delta(tmp_path / "t", properties).snapshot
    session: Any = LocalSession(Engine.LOCAL, pytest.fail)
    for condition, answers in evaluated()[-CHANGES:]:
        shown = query_locally(snapshot, condition, ["id"])[1]["id"].to_pylist()
        assert shown == [at for at, answer in enumerate(answers) if answer], condition
        change = delete(session, snapshot, condition)
        assert sum(change.rows.values()) == len(shown), condition
        change.discard(snapshot.store)


UNORDERED = [
    *("d > 100", "NOT (d <= 100)", "d = double('NaN')", "d >= 1e300", "d <> 5.5", "d IN (5, double('NaN'))"),
    *("f > 1000", "NOT f < 1e30", "r.d > 5", "r.d = double('NaN') OR r.d < -1", "d = -0.0", "f <= 0", "d < 6"),
]
CUT = ["i < 5.5", "i = 5.5", "5.5 <> h", "l NOT IN (5.5, 6)", "r.i >= 5.5", "NOT i > 5.5 OR l = 9007199254740992D"]


@pytest.mark.parametrize("kind", ["delta", "vectors", "iceberg"])
def test_every_way_to_ask_finds_the_same_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Statistics of files and row groups without NaN lose no row, on Spark and here, whoever filters."""
    if kind == "iceberg":
        table, _ = write_iceberg(embedded_catalog(tmp_path))
    else:
        table = write_delta(tmp_path / "t", VECTORS if kind == "vectors" else {})
    conditions = UNORDERED + CUT
    frames = [table.read(where=each, spark=spark).select("id") for each in conditions]
    frames += [table.read(spark=spark).where(each).select("id") for each in conditions]
    found = [sorted(number for (number,) in each) for each in collect_each(frames)]
    for condition, *there in zip(conditions, found[: len(conditions)], found[len(conditions) :], strict=True):
        answers = plan_condition(condition, SCHEMA)(ROWS).to_pylist()
        expected = [at for at, answer in enumerate(answers) if answer]
        assert there == [expected, expected], condition
        here = read_here(table, condition) if kind == "iceberg" else table.to_arrow(where=condition)
        assert sorted(here["id"].to_pylist()) == expected, condition


@pytest.mark.parametrize(("condition", "kind"), covering(UNORDERED[:6] + CUT[:4], ["delta", "vectors", "iceberg"]))
def test_a_deletion_on_either_engine_leaves_the_other_rows(
    spark: SparkSession, tmp_path: Path, condition: str, kind: str
) -> None:
    answers = plan_condition(condition, SCHEMA)(ROWS).to_pylist()
    expected = [at for at, answer in enumerate(answers) if answer is not True]
    for name, session in {"spark": spark, "local": LocalSession(Engine.LOCAL, pytest.fail)}.items():
        if kind == "iceberg":
            (tmp_path / name).mkdir()
            catalog = embedded_catalog(tmp_path / name)
            table, made = write_iceberg(catalog)
        else:
            table = write_delta(tmp_path / name, VECTORS if kind == "vectors" else {})
        left = table.delete(condition, spark=session).table
        rows = made.refresh().scan().to_arrow() if kind == "iceberg" else left.to_arrow()
        assert sorted(rows["id"].to_pylist()) == expected, name
