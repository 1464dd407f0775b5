"""The law of filters: a read with a filter gives the rows that Spark finds among the same rows without any files.

Filters come as a text, which skips files, and as one on the frame, which Spark pushes into files. They are drawn over
every pair of the matrix, at the edges of both types, over files of before and after with the statistics of several
writers, with and without knowledge of the old types, and over partitions. Queries with aggregates, the first rows of an
order, and joins go through the same tables. WIDEN_PREDICATES draws more of them, e.g. 100000.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen
from support.every_pair import PROPERTIES, at, spelled
from support.one_job import collect_each
from support.type_change import CASES, Case
from widen.files import scan_groups as old_decimals
from widen.files.predicates import bind_condition
from widen.frames.scan import plan_read, read_snapshot
from widen.log.commit import commit
from widen.log.file_list import to_adds
from widen.table import Table

SPLIT = ("int_to_bigint", "date_to_timestamp_ntz", "decimal_8_2_to_decimal_9_3")
"""The columns that the partitioned table is split by: values that stand in the log in an old and a new text."""


# ---- the tables ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """Tables of old and new files, by how they are laid out, and the same rows in no file."""

    by_layout: Mapping[str, Table]
    ids: Mapping[str, Mapping[str, list[int]]]  # by layout and file
    plain: DataFrame
    frames: dict[tuple[str, bool], DataFrame] = field(default_factory=dict)  # by layout and whether old types are known


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    by_layout = {}
    for layout, split in (("none", ()), ("name", ()), ("partitioned", SPLIT)):
        properties = {**PROPERTIES, "delta.columnMapping.mode": "name" if layout == "name" else "none"}
        table = widen.create_table(
            str(tmp_path_factory.mktemp(layout)), columns("old"), partition_by=split, properties=properties
        )
        append(spark, table, "old", rows("before", 0))
        restate(table)
        table.alter_columns({path: {"type": case.new} for case in CASES for path in paths(case)})
        append(spark, table, "new", rows("after", 100))
        by_layout[layout] = table
    ids = {layout: ids_by_file(table) for layout, table in by_layout.items()}
    plain = spark.createDataFrame([*rows("widened", 0), *rows("after", 100)], columns("new"))
    return Tables(by_layout, ids, plain)


def paths(case: Case) -> tuple[str, str]:
    return case.name, f"s_{case.name}.x"


def columns(which: str) -> str:
    pairs = [f"{c.name} {getattr(c, which)}, s_{c.name} struct<x: {getattr(c, which)}, y: int>" for c in CASES]
    return ", ".join(["id int", *pairs])


def rows(which: str, first_id: int) -> list[tuple[Any, ...]]:
    longest = max(len(getattr(case, which)) for case in CASES) + 1
    values = [[at(getattr(case, which), number) for case in CASES] for number in range(longest)]
    return [
        (first_id + number, *(part for value in row for part in (value, (value, number) if number % 5 else None)))
        for number, row in enumerate(values)
    ]


def append(spark: SparkSession, table: Table, which: str, some: list[tuple[Any, ...]]) -> None:
    """Write about one row to a file, so that every value is a bound."""
    table.append(spark.createDataFrame(some, columns(which)).repartitionByRange(len(some), "id"))


def restate(table: Table) -> None:
    """Give the files statistics that are as wrong as those of other writers."""
    adds = [
        msgspec.structs.replace(add, stats=json.dumps(restated(json.loads(str(add.stats)))))
        for add in to_adds(table.files())
    ]
    commit(table.store, table.refresh().snapshot, adds, "WRITE", {}).or_raise()
    table.refresh()


def restated(value: Any) -> Any:
    """Return statistics with floats and decimals in the texts that others write.

    Delta Spark gives a float by its shortest text, which names another double. deltalake makes doubles of decimals, and
    longs of those without a point. Nothing else here is exactly a float with a point, or too long for a double.
    """
    if isinstance(value, dict):
        return {key: restated(inner) for key, inner in value.items()}
    if isinstance(value, int):
        return max(min(int(float(value)), 2**63 - 1), -(2**63))
    if not isinstance(value, float) or struct.unpack("<f", struct.pack("<f", value))[0] != value:
        return value
    texts = (f"{value:.{digits}g}" for digits in (7, 8, 9))
    return next(float(t) for t in texts if struct.pack("<f", float(t)) == struct.pack("<f", value))


# ---- the filters -----------------------------------------------------------------------------------

ODD_NUMBERS = (
    *("0", "-0.0D", "3.4", "3.4D", "3.4000000953674316", "1234.5679D", "1234.56787109375", "cast(3.4 as float)"),
    *("16777217", "double('NaN')", "double('-Infinity')", "1e2"),
    *("21474836.48", "2147483648", "9223372036854775808", "1.005", "5BD", "7L", "1S", "-1Y", "0.0000000000000000001"),
)
BEYOND = (
    *("21474836.48", "-21474836.49", "42949672.95", "42949672.96", "92233720368547758.07", "-92233720368547758.08"),
    *("184467440737095516.16", "9223372036854775808", "18446744073709551616", "1.005", "0"),
)
ODD_TIMES = (
    *("date'2024-02-29'", "'2024-02-29'", "timestamp_ntz'2024-02-29 00:00:00.000001'", "'2020-03-17 15:23:15.123'"),
    *("timestamp_ntz'2058-12-31 23:59:59.9995'", "timestamp_ntz'0001-01-01 00:00:00'", "date'2020-01-01'"),
)


DELICATE = [case for case in CASES if case.old in ("float", "date") or case.new in ("decimal(18,2)", "decimal(38,0)")]
"""Where naive bounds, and Spark's own filters, lose rows; they are drawn more often, and beyond their old type."""


def literals(case: Case) -> st.SearchStrategy[str]:
    odd = ODD_TIMES if case.old == "date" else BEYOND if case.old.startswith("decimal") else ODD_NUMBERS
    own = [spelled(value) for value in (*case.before, *case.widened, *case.after)]
    return st.sampled_from([*own, *odd, *(odd if case in DELICATE else ())])


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    case = draw(st.sampled_from([*CASES, *DELICATE * 5]))
    column, one, other = draw(st.sampled_from(paths(case))), draw(literals(case)), draw(literals(case))
    sign = draw(st.sampled_from(("=", "<>", "<", "<=", ">", ">=", "<=>")))
    forms = (f"{column} {sign} {one}", f"{one} {sign} {column}") * 3
    others = (f"{column} in ({one}, {other})", f"{column} between {one} and {other}", f"{column} is null")
    return draw(st.sampled_from((*forms, *others, f"{column} is not null")))


FILTERS = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from(("and", "or")), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
    ),
    max_leaves=3,
)


LAYOUTS = st.sampled_from(("none", "name", "partitioned"))
GENERATED = [Phase.explicit, Phase.reuse, Phase.generate]
"""To make an example smaller takes longer here than to read it."""


READ_SHARE = 50
"""Of so many predicates, one is read by Spark too; the others tell only which files are read."""


def examples(usual: int, size: int) -> int:
    """Return how many lists of so many predicates to draw: WIDEN_PREDICATES is the number of predicates.

    `make properties`, whose lists are new ones in each run, draws three times as many.
    """
    usual *= 3 if "WIDEN_RANDOM" in os.environ else 1
    return max(usual, int(os.environ.get("WIDEN_PREDICATES", "0")) // size)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_both_zeros_are_equal_in_filters(spark: SparkSession, tmp_path: Path, zero: float) -> None:
    (tmp_path / "in.json").write_text(f'{{"d":{zero},"s":{{"d":{zero}}}}}\n' * 5)  # a file with a dictionary
    widen.ingest(tmp_path / "in.json", tmp_path / "t", spark=spark)
    table = widen.Table(tmp_path / "t")
    for where in ("d = 0", "d = -0.0D", "d >= 0", "d <= -0.0D", "d in (0.0D)", "s.d = 0", "s.d = -0.0D"):
        assert (table.read(where=where, spark=spark).count(), table.read(spark=spark).where(where).count()) == (5, 5)


@pytest.mark.parametrize("knows_old_types", [True, False])
def test_a_list_beyond_the_old_type_loses_no_row(spark: SparkSession, tmp_path: Path, knows_old_types: bool) -> None:
    """Of a list, Spark checks only whether the first value fits into the type of the file; 4294967296 becomes 0."""
    numbers = [0, 5, -7]
    table = widen.create_table(str(tmp_path / "t"), "a int, s struct<a: smallint>", properties=PROPERTIES)
    table.append(
        spark.sql("SELECT a, named_struct('a', smallint(a)) s FROM VALUES (0), (5), (-7) AS v(a)").repartition(3, "a")
    )
    table.alter_columns({path: {"type": "bigint"} for path in ("a", "s.a")})
    with pytest.MonkeyPatch.context() as patch:
        if not knows_old_types:
            patch.setattr(old_decimals, "MOST_FOOTERS", 0)
        old_decimals._cached_types.cache_clear()
        for column in ("a", "s.a"):
            where = f"{column} NOT IN (-1, 4294967296)"
            conditions = [where, ~F.col(column).isin(-1, 4294967296), f"NOT ({column} IN (-1, 4294967296))"]
            query = f"SELECT a FROM delta.`{table.location}` WHERE {where} AND rand() < 2"  # rand needs Spark
            frames = [table.read(where=each, spark=spark) for each in conditions]
            for frame in (*frames, widen.sql(query, spark=spark)):
                assert sorted(row.a for row in frame.collect()) == sorted(numbers)
        table.delete("s.a NOT IN (-1, 4294967296) AND concat(a, '') <> '5'", spark=spark)
        assert [row.a for row in table.read(spark=spark).collect()] == [5]


def test_a_list_beyond_the_old_type_loses_no_row_of_an_iceberg_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 0}\n')
    catalog = str(tmp_path / "catalog.db")
    widen.ingest(tmp_path / "in.json", "shop.t", catalog=catalog)
    table = widen.IcebergTable("shop.t", catalog)
    assert table.schema.sql == "struct<a: int>"
    table.alter_column("a", type="bigint")
    where = "a NOT IN (-1, 4294967296)"
    for frame in (table.read(spark=spark).where(where), table.read(where=where, spark=spark)):
        assert [row.a for row in frame.collect()] == [0]


@settings(max_examples=examples(3, 80), phases=GENERATED)
@given(st.lists(FILTERS, min_size=80, max_size=80, unique=True))
def test_no_file_is_skipped_that_holds_a_matching_row(tables: Tables, wheres: list[str]) -> None:
    truths = tables.plain.select("id", *map(F.expr, wheres)).collect()
    for layout, table in tables.by_layout.items():
        ids = tables.ids[layout]
        for number, where in enumerate(wheres, 1):
            matching = {row.id for row in truths if row[number]}
            groups = plan_read(table.snapshot, bind_condition(where, table.snapshot.schema)).groups
            kept = {id for group in groups for path in group.files["path"].to_pylist() for id in ids[path]}
            assert matching <= kept, (layout, where)


def ids_by_file(table: Table) -> dict[str, list[int]]:
    name = table.snapshot.schema.fields[0].metadata.get("delta.columnMapping.physicalName", "id")
    found = {}
    for path in table.files()["path"].to_pylist():
        with table.store.open(table.store.plain(path)) as file:
            found[path] = pq.ParquetFile(file).read([name])[name].to_pylist()
    return found


READS = st.tuples(FILTERS, LAYOUTS, st.booleans())
"""A predicate, the table that it reads, and whether the read knows the old types of decimals."""


@settings(max_examples=examples(1, 12 * READ_SHARE), phases=GENERATED)
@given(st.lists(READS, min_size=12, max_size=12, unique=True))
def test_no_filter_loses_a_row(tables: Tables, spark: SparkSession, reads: list[tuple[str, str, bool]]) -> None:
    wheres = [where for where, _, _ in reads]
    pairs = [filtered_reads(tables, layout, spark, where, knows) for where, layout, knows in reads]
    found = collect_each([read.select("id") for pair in pairs for read in pair])
    truths = tables.plain.select("id", *(F.expr(where).alias(str(n)) for n, where in enumerate(wheres))).collect()
    for number, where in enumerate(wheres):
        expected = [(row.id,) for row in truths if row[number + 1]]
        if not re.search(r"\bin\b", where):  # of a list of integers Spark itself checks only the first one
            assert (where, sorted(found[2 * number])) == (where, expected), "filtered frame"
        assert (where, sorted(found[2 * number + 1])) == (where, expected), "where"


def filtered_reads(
    tables: Tables, layout: str, spark: SparkSession, where: str, knows_old_types: bool
) -> tuple[DataFrame, DataFrame]:
    """Return the rows that a predicate selects, on the frame, which is the same for all of them, and in the read."""
    table, key = tables.by_layout[layout], (layout, knows_old_types)
    with pytest.MonkeyPatch.context() as patch:
        if not knows_old_types:
            patch.setattr(old_decimals, "MOST_FOOTERS", 0)
        old_decimals._cached_types.cache_clear()
        if key not in tables.frames:
            tables.frames[key] = table.read(spark=spark)
        return tables.frames[key].where(where), table.read(where=where, spark=spark)


# ---- aggregates, top-n and joins -------------------------------------------------------------------

RUNTIME_FILTERS = {
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": "0",
    "spark.sql.optimizer.runtime.bloomFilter.creationSideThreshold": "100MB",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
"""They make Spark filter one side of a small join by the keys of the other one."""


def of_one_type(keys: list[str]) -> list[str]:
    """Leave out the strings among other keys, since an inline table cannot hold both."""
    return [key for key in keys if not key.startswith("'")] or keys


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Draw a query with one text column, over the table ``t``."""
    case, where = draw(st.sampled_from(CASES)), draw(FILTERS)
    column = draw(st.sampled_from(paths(case)))
    shown = f"nullif({{0}}({column}), 0)" if case.new in ("double", "float") else f"{{0}}({column})"  # zeros are equal
    aggregates = ", ".join(shown.format(name) for name in ("min", "max", "count"))
    keys = ", ".join(f"({key})" for key in draw(st.lists(literals(case), min_size=1, max_size=3).map(of_one_type)))
    order = draw(st.sampled_from(("ASC NULLS LAST", "DESC NULLS FIRST")))
    return draw(
        st.sampled_from(
            (
                f"SELECT concat_ws('|', count(*), {aggregates}) FROM t WHERE {where}",
                f"SELECT concat_ws('|', {aggregates}) FROM t",
                f"SELECT string(id) FROM t WHERE {where} ORDER BY {column} {order}, id LIMIT 3",
                f"SELECT string(t.id) FROM t JOIN (SELECT DISTINCT col1 k FROM VALUES {keys}) ON {column} = k",
                f"SELECT string(id) FROM t WHERE {column} IN (SELECT u.{column} FROM t u WHERE {where})",
            )
        )
    )


@settings(max_examples=examples(1, 8 * READ_SHARE), phases=GENERATED)
@given(LAYOUTS, st.lists(queries(), min_size=8, max_size=8, unique=True))
def test_no_query_loses_a_row(tables: Tables, spark: SparkSession, layout: str, texts: list[str]) -> None:
    found = []
    with ExitStack() as restored:
        for key, value in RUNTIME_FILTERS.items():
            restored.callback(spark.conf.set, key, spark.conf.get(key))
            spark.conf.set(key, value)
        table = tables.by_layout[layout]
        for rows in (tables.plain, read_snapshot(spark, table.store, table.snapshot, has_lists=True)):
            rows.createOrReplaceTempView("t")
            parts = [f"SELECT {number} AS number, * FROM ({text})" for number, text in enumerate(texts)]
            found.append(sorted(map(tuple, spark.sql(" UNION ALL ".join(parts)).collect()), key=repr))
    for number, text in enumerate(texts):
        plain, read = ([row for row in rows if row[0] == number] for rows in found)
        assert (text, read) == (text, plain)
