"""Reading tables whose types have changed, beside Delta Lake's reader, rewritten tables, and Spark's wide read.

    python bench/read.py [--runs 3] [--rows 20000000] [--files 10000]

Every row of a table of which 9 in 10 files are old is read, and of the same table written in the new type only. The
widened column is read of files that are all old: by Widen, and by Spark told to read the new type. Then queries run
beside Delta Lake on the same tables: filters on the widened column, one field of a widened struct, and a table of many
small files. The cases of a row take turns in one session. Compared are processor seconds of all processes; the limit is
what PyArrow needs to read the same columns or, of a filter, what Spark needs for the same files in the new type when it
knows nothing of the table: its own reader and condition.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from alter import DATA, delta_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from turns import Row, measure, print_rows, take_turns

import widen
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Add

FILES = 10
PROPERTIES = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
VALUE = "pmod(hash(id), 100000000)"

# The changes, what their old values are made of, and the most that the old table may take of the time of the new one.
MIXED = {
    ("int", "bigint"): (VALUE, 1.05),
    ("int", "double"): (VALUE, 1.05),
    ("float", "double"): (f"{VALUE} / 7", 1.05),
    ("decimal(9,2)", "decimal(18,2)"): (f"{VALUE} / 100", 1.05),
    ("date", "timestamp_ntz"): (f"date_add(date'2000-01-01', cast({VALUE} % 9000 as int))", 1.05),
}
# Likewise for files that are all old, against Spark's own wide read of them.
OLD = {("int", "decimal(20,0)"): (VALUE, 0.5), ("bigint", "decimal(38,10)"): (VALUE, 0.5)}

# Conditions on the widened column that about one row in a hundred fulfils, by its new type.
FILTERS = {
    "bigint": "value < 1000000",
    "double": "value < 150000",
    "decimal(18,2)": "value < 10000",
    "timestamp_ntz": "value < timestamp_ntz'2000-04-01'",
}
GOAL = 0.8
"""The most that a query may take of the time of Delta Lake."""

Case = Callable[[], None]


def main(runs: int, rows: int, files: int) -> int:
    """Measure in turns and print the rows; 1 if a goal is missed."""
    spark = delta_session()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    missed = print_rows(f"{rows:,} rows", _rows_of_table(spark, runs, rows, files))
    spark.stop()
    return missed


def _rows_of_table(spark: SparkSession, runs: int, rows: int, files: int) -> Iterator[Row]:
    for (old, new), (value, most) in MIXED.items():
        cases = _mixed(spark, old, new, value, rows)
        yield _row(f"{old} -> {new}: 90 % old / rewritten", cases, runs, most, ["id", "value", "name"])
    for (old, new), (value, most) in OLD.items():
        yield _row(f"{old} -> {new}: Widen / Spark", _old(spark, old, new, value, rows), runs, most, ["value"])
    for (old, new), (value, _) in MIXED.items():
        table, where = write_table(spark, old, new, value, rows, old_files=FILES - 1), FILTERS[new]
        cases = replace(_beside_delta(spark, table, where, "max(id)"), least=_plain(spark, table, new, where))
        yield _row(f"{old} -> {new}: {where}", cases, runs, GOAL, ["id", "value"])
    table = write_nested(spark, rows)
    cases = _beside_delta(spark, table, None, "max(nested.value)")
    yield _row("one field of a widened struct", cases, runs, GOAL, ["nested.value"])
    table = write_small_files(files)
    yield _row(f"sum over {files:,} files", _beside_delta(spark, table, None, "sum(value)"), runs, GOAL, ["value"])
    cases = _beside_delta(spark, table, "value = 5", "count(*)")
    yield _row(f"filter over {files:,} files", cases, runs, GOAL, ["value"])


@dataclass(frozen=True)
class Cases:
    """Two works on the same rows, ours first, the table that they read, and what any engine on Spark needs at least."""

    ours: Case
    peer: Case
    table: Path
    least: Case | None = None


def _row(name: str, cases: Cases, runs: int, goal: float, columns: list[str]) -> Row:
    files = [path for path in sorted(cases.table.rglob("*.parquet")) if "_delta_log" not in path.parts]
    paths = files[:100]
    if cases.least is None:
        cost = take_turns({"ours": cases.ours, "peer": cases.peer}, runs)
        limit = measure(lambda: [pq.ParquetFile(path).read(columns) for path in paths]).cpu * len(files) / len(paths)
    else:
        cost = take_turns({"ours": cases.ours, "peer": cases.peer, "least": cases.least}, runs)
        limit = cost["least"].cpu
    return Row(name, cost["ours"].cpu, goal, cost["peer"].cpu, limit)


def _beside_delta(spark: SparkSession, table: Path, where: str | None, aggregate: str) -> Cases:
    """Return an aggregate of the rows that fulfil a condition, by Widen and by Delta Lake."""
    condition = "" if where is None else f" WHERE {where}"

    def ours() -> None:
        widen.Table(str(table)).read(where, spark=spark).selectExpr(aggregate).collect()

    def peer() -> None:
        spark.sql(f"SELECT {aggregate} FROM delta.`{table}`{condition}").collect()

    assert _answer(widen.Table(str(table)).read(where, spark=spark).selectExpr(aggregate)) == _answer(
        spark.sql(f"SELECT {aggregate} FROM delta.`{table}`{condition}")
    ), "the answers differ"
    return Cases(ours, peer, table)


def _plain(spark: SparkSession, table: Path, new: str, where: str) -> Case:
    """Return the query as Spark runs it on the files themselves."""
    files = [str(file) for file in sorted(table.rglob("*.parquet")) if "_delta_log" not in file.parts]
    frame = spark.read.schema(_columns(new)).parquet(*files)
    query = frame.where(where).selectExpr("max(id)")

    def plain() -> None:
        query.collect()

    return plain


def _answer(frame: DataFrame) -> object:
    return frame.collect()[0][0]


def _mixed(spark: SparkSession, old: str, new: str, value: str, rows: int) -> Cases:
    mixed = write_table(spark, old, new, value, rows, old_files=FILES - 1)
    rewritten = write_table(spark, old, new, value, rows, old_files=0)
    return Cases(
        lambda: _read_rows(widen.Table(str(mixed)).read(spark=spark)),
        lambda: _read_rows(widen.Table(str(rewritten)).read(spark=spark)),
        mixed,
    )


def _old(spark: SparkSession, old: str, new: str, value: str, rows: int) -> Cases:
    table = write_table(spark, old, new, value, rows, old_files=FILES)
    files = [str(file) for file in table.glob("*/*.parquet")]
    return Cases(
        lambda: _read_values(widen.Table(str(table)).read(spark=spark)),
        lambda: _read_values(spark.read.schema(f"value {new}").parquet(*files)),
        table,
    )


def _read_rows(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _read_values(frame: DataFrame) -> None:
    frame.agg(F.max("value")).collect()


def write_table(spark: SparkSession, old: str, new: str, value: str, rows: int, old_files: int) -> Path:
    """Write a table of which so many files are old, unless it is there, and return it."""
    place = DATA / f"read-{rows}-{old}-{new}-{old_files}"
    if not (place / "_done").exists():
        shutil.rmtree(place, ignore_errors=True)
        table = widen.create_table(str(place), _columns(old if old_files else new), properties=PROPERTIES)
        if old_files:
            table.append(_rows(spark, value, old, old, 0, old_files, rows)).table.alter_column("value", type=new)
        if old_files < FILES:
            table.append(_rows(spark, value, old, new, old_files, FILES, rows))
        (place / "_done").touch()
    return place


def write_nested(spark: SparkSession, rows: int) -> Path:
    """Write a table of a wide struct with a field that was widened, unless it is there, and return it."""
    place = DATA / f"read-nested-{rows}"
    if not (place / "_done").exists():
        shutil.rmtree(place, ignore_errors=True)
        columns = "id bigint, nested struct<value: int, name: string, note: string, amount: double>"
        table = widen.create_table(str(place), columns, properties=PROPERTIES)
        struct = f"struct(cast({VALUE} as int) value, concat('a', id) name, concat('b', id) note, id / 7D amount)"
        frame = spark.range(0, rows, 1, FILES).selectExpr("id", f"{struct} nested")
        table.append(frame).table.alter_column("nested.value", type="bigint")
        (place / "_done").touch()
    return place


def write_small_files(files: int) -> Path:
    """Write a table of so many files of 20 rows, of which a half was written before it was widened."""
    place = DATA / f"read-files-{files}"
    if not (place / "_done").exists():
        shutil.rmtree(place, ignore_errors=True)
        table = widen.create_table(str(place), _columns("int"), properties=PROPERTIES)
        _add_small_files(place, range(files // 2), pa.int32())
        table.alter_column("value", type="bigint")
        _add_small_files(place, range(files // 2, files), pa.int64())
        (place / "_done").touch()
    return place


def _add_small_files(place: Path, numbers: range, kind: pa.DataType) -> None:
    adds = []
    for number in numbers:
        values = range(number * 20, number * 20 + 20)
        columns = {"id": pa.array(values, pa.int64()), "value": pa.array(values, kind), "name": ["customer"] * 20}
        file = place / f"{number}.parquet"
        pq.write_table(pa.table(columns), file)
        low, high = ({"id": value, "value": value} for value in (values[0], values[-1]))
        stats = {"numRecords": 20, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(low, 0)}
        adds.append(
            Add(
                path=file.name,
                partition_values={},
                size=file.stat().st_size,
                modification_time=1,
                data_change=True,
                stats=json.dumps(stats),
            )
        )
    store = LogStore(str(place))
    commit(store, open_snapshot(store), adds, "WRITE", {}).or_raise()


def _columns(kind: str) -> str:
    return f"id bigint, value {kind}, name string"


def _rows(spark: SparkSession, value: str, old: str, kind: str, first: int, end: int, rows: int) -> DataFrame:
    """Return the rows of some files: the same numbers whatever type they have."""
    ids = spark.range(first * rows // FILES, end * rows // FILES, 1, end - first)
    return ids.selectExpr("id", f"cast(cast({value} as {old}) as {kind}) value", "concat('customer ', id % 1000) name")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--files", type=int, default=10_000)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.runs, options.rows, options.files))
