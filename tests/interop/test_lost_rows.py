"""Values at the edges of bounds, written by others and widened by us: no reader that reads the table loses a row.

A file has three rows; the first has the lower bound of each column, the last the upper one. A filter names every column
at once, so a reader that excludes the file by the bounds of any of them loses the row. WIDEN_TEST_EDGES says how many
values each writer writes. Readers in an environment of their own, e.g. DuckDB's extensions, are asked where
`make readers` or `make edges` has made it.
"""

from __future__ import annotations

import math
import operator
import os
import random
import struct
import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from interop.conftest import IcebergSpark
from widen.schema.alter import parse_column_changes

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import reader_clients  # noqa: E402
import readers  # noqa: E402

COUNT = int(os.environ.get("WIDEN_TEST_EDGES", "180"))
WIDENING = {"delta.enableTypeWidening": "true"}
DECIMALS = ((9, 2), (15, 2), (16, 2), (17, 3), (18, 2), (18, 9), (20, 4), (30, 10), (38, 2))
COLUMNS = 90
"""Iceberg collects bounds of up to 100 columns by default."""
TOGETHER = 8
"""How many rows of different files a question names: a reader may exclude a file only if no part of it allows it."""
INDEXED = {"delta.dataSkippingNumIndexedCols": "100"}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"=": operator.eq, ">": operator.gt, "<": operator.lt}
Ask = Callable[[dict[str, Any]], Any]


def make_float(choose: random.Random) -> float:
    kind = choose.randrange(5)
    if kind == 0:
        value = struct.unpack("f", struct.pack("I", choose.getrandbits(32)))[0]
        return value if math.isfinite(value) else 0.5
    if kind == 1:
        value = choose.randrange(-9999, 9999) / choose.choice((10, 100, 1000))
    elif kind == 2:
        value = 2.0 ** choose.randrange(20, 27) + choose.randrange(-9, 9)
    elif kind == 3:
        value = choose.choice((1e-45, -1e-45, 3.4028234e38, -3.4028234e38, 1.17549435e-38, 0.1, -0.0, 16777217.0))
    else:
        value = choose.uniform(-1, 1) * 10.0 ** choose.randrange(-30, 30)
    return float(np.float32(value))


def make_unscaled(choose: random.Random, precision: int) -> int:
    """Return a decimal without its point; the greatest one is left out, so that a filter can name a greater one."""
    digits = choose.choice((precision, choose.randint(1, precision)))
    most = 10**digits - 1
    value = choose.choice((most - 1, 10 ** (digits - 1), 2**53 + choose.randrange(-9, 9), choose.randrange(most)))
    return choose.choice((-1, 1)) * min(value, 10**precision - 2)


@dataclass(frozen=True)
class Column:
    """A column before and after its widening, with three ordered values for each file.

    Args:
        digits: Precision and scale before and after; None for a float that becomes double.
        values: By row: doubles, or decimals of the new scale without their point.
    """

    name: str
    digits: tuple[tuple[int, int], tuple[int, int]] | None
    values: np.ndarray[Any, Any]

    @property
    def types(self) -> tuple[str, str]:
        """The type before and after."""
        if self.digits is None:
            return "float", "double"
        old, new = (f"decimal({precision},{scale})" for precision, scale in self.digits)
        return old, new

    @property
    def stored(self) -> pa.Array:
        """The values in the old type."""
        if self.digits is None:
            return pa.array(self.values, pa.float32())
        return pa.array([self._decimal(value) for value in self.values], pa.decimal128(*self.digits[0]))

    def _decimal(self, value: int) -> Decimal:
        assert self.digits is not None
        return Decimal((value < 0, tuple(map(int, str(abs(value)))), -self.digits[1][1]))

    def term(self, operator: str, row: int) -> tuple[dict[str, str], np.ndarray[Any, Any]]:
        """Return the closest comparison that finds a row, and which rows it finds."""
        value, step = self.values[row], {"=": 0, ">": -1, "<": 1}[operator]
        if self.digits is None:
            limit: Any = np.nextafter(value, step * math.inf) if step else value
            text = repr(float(limit))
        else:
            limit = value + step
            text = f"{self._decimal(limit):f}"
        asked = {"column": self.name, "op": operator, "type": self.types[1], "value": text}
        return asked, OPERATORS[operator](self.values, limit).astype(bool)


class Edges:
    """Generated columns, and the filters at their bounds."""

    def __init__(self, seed: int, *, rescales: bool) -> None:
        self.choose, self.files = random.Random(seed), math.ceil(COUNT / COLUMNS / 2)
        self.columns = [self._column(at, rescales=rescales) for at in range(COLUMNS)]

    def _column(self, at: int, *, rescales: bool) -> Column:
        if at % 2:
            made = [sorted(make_float(self.choose) for _ in range(3)) for _ in range(self.files)]
            return Column(f"f{at}", None, np.array(made).reshape(-1))
        precision, scale = DECIMALS[at // 2 % len(DECIMALS)]
        wider, more = min(precision + 3, 38), int(rescales and at % 4 == 0 and precision < 38)
        unscaled = [
            sorted(make_unscaled(self.choose, precision) * 10**more for _ in range(3)) for _ in range(self.files)
        ]
        values = np.array(unscaled, dtype=object).reshape(-1)
        return Column(f"d{at}", ((precision, scale), (wider, scale + more)), values)

    @cached_property
    def stored(self) -> pa.Table:
        """The rows in the old types; `id` is the number of a file."""
        numbers = np.repeat(np.arange(self.files, dtype=np.int32), 3)
        edges = np.tile(np.arange(3, dtype=np.int32), self.files)
        return pa.table({"id": numbers, "edge": edges, **{column.name: column.stored for column in self.columns}})

    @property
    def changes(self) -> Any:
        """The widenings."""
        return {each.name: {"type": each.types[1]} for each in self.columns if len(set(each.types)) == 2}

    def lost(self, ask: Ask) -> dict[str, list[str]]:
        """Return the first filter that loses or adds rows, by kind of question, with the columns that do it alone."""
        lost: dict[str, list[str]] = {"equal": [], "range": []}
        for name, kind in (("=", "equal"), (">", "range"), ("<", "range")):
            for edge in (0, 2):
                rows = range(edge, self.files * 3, 3)
                for part in (rows[start : start + TOGETHER] for start in range(0, len(rows), TOGETHER)):
                    if not lost[kind] and not self.finds(ask, name, part):
                        lost[kind].append(f"{name}: {self._guilty(ask, name, part)}")
        return lost

    def _guilty(self, ask: Ask, name: str, rows: Sequence[int]) -> Any:
        """Return the columns whose filters lose or add rows alone, for the first row with such columns."""
        row = next((row for row in rows if not self.finds(ask, name, [row])), rows[0])
        return row, [column.term(name, row)[0] for column in self.columns if not self.finds(ask, name, [row], [column])]

    def finds(self, ask: Ask, name: str, rows: Sequence[int], columns: Sequence[Column] = ()) -> bool:
        """Return whether a reader finds the rows that it must, if each of some rows gives a filter of some columns."""
        terms = [[column.term(name, row) for column in columns or self.columns] for row in rows]
        found = np.logical_or.reduce([np.logical_and.reduce([mask for _, mask in each]) for each in terms])
        expected = sorted([str(row // 3), str(row % 3)] for row in np.flatnonzero(found))
        conditions = [{"op": "and", "terms": [asked for asked, _ in each]} for each in terms]
        return sorted(ask({"op": "or", "terms": conditions})) == expected


def write_with_deltalake(edges: Edges, place: str, _: SparkSession) -> None:
    write_deltalake(place, edges.stored, partition_by=["id"], configuration=INDEXED)


def write_with_delta_lake(edges: Edges, place: str, spark: SparkSession) -> None:
    pq.write_table(edges.stored, f"{place}.parquet")
    frame = spark.read.parquet(f"{place}.parquet").coalesce(1).sortWithinPartitions("id")
    frame.write.format("delta").options(**INDEXED).partitionBy("id").save(place)


IN_PROCESS: dict[str, Ask] = {name: reader_clients.CLIENTS[name]() for name in reader_clients.IN_PROCESS}
ASKED = ("id", "edge")


def askers(table_format: str, place: str, spark: Callable[[str], Any]) -> Generator[tuple[str, Ask], None, None]:
    """Yield the readers of a format that are here, each with how it is asked for rows of a table."""
    request = {"table": place, "name": "", "columns": list(ASKED)}

    def in_spark(question: dict[str, Any]) -> Any:
        source = f"delta.`{place}`" if table_format == "delta" else f"default.ns.{Path(place).parent.parent.name}"
        return spark(reader_clients.sql_query("spark", source, {**request, "question": question}))

    for name, (kind, venv) in readers.CLIENTS.items():
        if kind != table_format or name in readers.JAR_VERSIONS:
            continue
        if name in IN_PROCESS:
            yield name, partial(ask_here, IN_PROCESS[name], request)
        elif (venv / "bin" / "python").exists():
            client = readers.Client(name, ())
            try:
                yield name, partial(ask_client, client, request)
            finally:
                client.close()
    yield "spark" if table_format == "delta" else "spark-iceberg", in_spark


def ask_here(read: Ask, request: dict[str, Any], question: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about the clients' own code
        return reader_clients.rows_of(read({**request, "question": question}), list(ASKED))


def ask_client(client: readers.Client, request: dict[str, Any], question: dict[str, Any]) -> Any:
    found = client.ask({**request, "question": question})
    assert "error" not in found, found["error"]
    return found["rows"]


def check(table: Any, edges: Edges, clients: Generator[tuple[str, Ask], None, None]) -> dict[str, dict[str, int]]:
    """Check that readers lose nothing where they are predicted to read; return what each lost elsewhere."""
    predicted, found = {each.reader.name: each.answers for each in table.readers()}, {}
    with closing(clients):
        for name, ask in clients:
            if predicted[name]["scan"].value != "reads":
                continue
            lost = edges.lost(ask)
            for kind, filters in lost.items():
                assert predicted[name][kind].value != "reads" or not filters, (name, filters)
            found[name] = {kind: len(filters) for kind, filters in lost.items()}
            print(f"{name}: {edges.files * COLUMNS * 2} values, lost {found[name]}")
    return found


NOTHING = {"equal": 0, "range": 0}


@pytest.mark.parametrize("write", [write_with_deltalake, write_with_delta_lake])
def test_no_reader_of_a_delta_table_loses_a_row(spark: SparkSession, tmp_path: Path, write: Any) -> None:
    edges, place = Edges(1, rescales=True), str(tmp_path / "t")
    write(edges, place, spark)
    table = widen.Table(place).set_properties(WIDENING).alter_columns(edges.changes)

    def ask_spark(query: str) -> Any:
        return [[str(row.id), str(row.edge)] for row in spark.sql(query).collect()]

    table.rewrite(statistics=True)
    check(table, edges, askers("delta", place, ask_spark))
    table.drop_feature("typeWidening")  # which writes the files in old types again
    found = check(table, edges, askers("delta", place, ask_spark))
    assert {"spark", "deltalake", "deltalake-sql", "polars", "duckdb-deltalake"} <= set(found)
    assert [name for name, lost in found.items() if lost != NOTHING] == []


def write_with_pyiceberg(edges: Edges, name: str, catalog: SqlCatalog, _: IcebergSpark, __: Path) -> None:
    table = catalog.create_table(f"ns.{name}", edges.stored.schema)
    with table.update_spec() as change:
        change.add_identity("id")
    table.append(edges.stored)


def write_with_iceberg_spark(edges: Edges, name: str, _: SqlCatalog, iceberg: IcebergSpark, folder: Path) -> None:
    pq.write_table(edges.stored, folder / f"{name}.parquet")
    source = f"parquet.`{folder}/{name}.parquet`"
    iceberg.sql(
        f"CREATE TABLE default.ns.{name} USING iceberg PARTITIONED BY (id) AS SELECT * FROM {source} ORDER BY id"
    )


@pytest.mark.parametrize("write", [write_with_pyiceberg, write_with_iceberg_spark])
def test_no_reader_of_an_iceberg_table_loses_a_row(
    catalog: SqlCatalog, iceberg: IcebergSpark, folder: Path, write: Any
) -> None:
    edges, name = Edges(2, rescales=False), write.__name__
    write(edges, name, catalog, iceberg, folder)
    table = widen.IcebergTable(f"ns.{name}", catalog=folder / "catalog.db")

    def ask_spark(query: str) -> Any:
        return [list(map(str, row)) for row in iceberg.sql(query)]

    def clients() -> Generator[tuple[str, Ask], None, None]:
        return askers("iceberg", readers.metadata_location(folder, name), ask_spark)

    table.change_columns(parse_column_changes(table.schema, edges.changes))
    before = check(table, edges, clients())
    table.rewrite()
    found = check(table, edges, clients())
    assert {"spark-iceberg", "pyiceberg", "polars-iceberg"} <= set(found)
    assert [name for name, lost in found.items() if lost != NOTHING] == []
    assert before["pyiceberg"]["range"], "PyIceberg finds promoted floats by a range now: say so on the page"
