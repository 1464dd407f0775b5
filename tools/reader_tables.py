"""Tables with one feature each, and what their readers must find: what `readers.py` asks every client for.

The rows that a table must have are written down here, never read from the table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

import widen
from widen.files.arrow_types import to_arrow
from widen.model.schema_json import parse_type
from widen.model.types import StructType

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from support import iceberg_files

DELTA, ICEBERG = "delta", "iceberg"
WIDENS, NAMES, IDS = "delta.enableTypeWidening", "delta.columnMapping.mode", "id"
Row = tuple[Any, ...]
Names = tuple[str, ...]
UTC = timezone.utc


@dataclass(frozen=True)
class FeatureTable:
    """A table with a feature.

    Args:
        name: What it has.
        make: Makes it at a path, or below a name in the catalog.
        columns: Its columns at the end, as a schema string.
        rows: Its rows at the end.
        constants: Constants to compare a column with, beside its bounds: column and text.
        asked: The columns of filters; by default all that are not nested.
    """

    name: str
    format: str
    make: Callable[[Maker, str], object]
    columns: str
    rows: tuple[Row, ...]
    constants: tuple[tuple[str, str], ...] = ()
    asked: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        """The columns."""
        found = parse_type(f"struct<{self.columns}>")
        assert isinstance(found, StructType)
        return found

    @property
    def expected(self) -> pa.Table:
        """The rows as an Arrow table."""
        return arrow_rows(self.columns, self.rows)


def arrow_rows(columns: str, rows: Iterable[Row]) -> pa.Table:
    """Return rows as an Arrow table with the types of a schema string."""
    struct = parse_type(f"struct<{columns}>")
    assert isinstance(struct, StructType)
    kinds = [(field.name, to_arrow(field.type)) for field in struct.fields]
    values = list(zip(*rows, strict=True)) or [()] * len(kinds)
    return pa.table({name: pa.array(values[at], kind) for at, (name, kind) in enumerate(kinds)})


@dataclass
class Maker:
    """What tables are made with.

    Args:
        spark: A session with Delta Lake.
        iceberg: Runs statements in Iceberg for Spark.
        catalog: The catalog of the Iceberg tables.
    """

    spark: Any
    iceberg: Callable[..., Any]
    catalog: Any

    def sql(self, *statements: str) -> None:
        """Run statements in Delta Lake for Spark."""
        for statement in statements:
            self.spark.sql(statement)

    def spark_append(self, path: str, columns: str, rows: Iterable[Row]) -> None:
        """Append rows as one file with Delta Lake for Spark."""
        frame = self.spark.createDataFrame(list(rows), columns).coalesce(1)
        frame.write.format("delta").mode("append").save(path)

    def table(
        self, path: str, columns: str, *batches: Iterable[Row], by: tuple[str, ...] = (), **properties: str
    ) -> Any:
        """Make a table with Widen; each batch becomes a file."""
        table = widen.create_table(
            path,
            columns,
            partition_by=by,
            properties={key.replace("_", "."): value for key, value in properties.items()},
        )
        for rows in batches:
            self.append(path, columns, rows)
        return table

    def append(self, path: str, columns: str, rows: Iterable[Row]) -> None:
        """Append rows with Widen."""
        widen.ingest(arrow_rows(columns, rows), into=path)

    def ice(self, name: str, columns: str, *batches: Iterable[Row], by: str = "", **properties: str) -> Any:
        """Make an Iceberg table with Widen."""
        settings = ", ".join(f"'{key.replace('__', '-')}' = '{value}'" for key, value in properties.items())
        extra = (f" PARTITIONED BY ({by})" if by else "") + (f" TBLPROPERTIES ({settings})" if settings else "")
        widen.sql(f"CREATE TABLE ns.{name} ({columns}) USING iceberg{extra}", catalog=self.catalog)
        for rows in batches:
            self.ice_append(name, columns, rows)
        return widen.IcebergTable(f"ns.{name}", catalog=self.catalog)

    def ice_append(self, name: str, columns: str, rows: Iterable[Row]) -> None:
        """Append rows to an Iceberg table with Widen."""
        widen.ingest(arrow_rows(columns, rows), into=f"ns.{name}", catalog=self.catalog)

    def spark_ice(self, name: str, columns: str, *batches: str, by: str = "", **properties: str) -> None:
        """Make a table with Iceberg for Spark; each batch is a list of SQL rows and becomes a file."""
        settings = ", ".join(f"'{key.replace('__', '-')}' = '{value}'" for key, value in properties.items())
        extra = (f" PARTITIONED BY ({by})" if by else "") + (f" TBLPROPERTIES ({settings})" if settings else "")
        self.iceberg(f"CREATE TABLE default.ns.{name} ({columns}) USING iceberg{extra}")
        for rows in batches:
            self.iceberg(f"INSERT INTO default.ns.{name} VALUES {rows}")


def as_float(value: float) -> float:
    """Return the nearest float."""
    return float(np.float32(value))


def _add(format: str, name: str, columns: str, rows: Iterable[Row], **more: Any) -> Callable[[Any], Any]:
    def add(make: Callable[[Maker, str], object]) -> Callable[[Maker, str], object]:
        TABLES.append(FeatureTable(name, format, make, columns, tuple(rows), **more))
        return make

    return add


TABLES: list[FeatureTable] = []

# ---- Delta --------------------------------------------------------------------------------------------------

D = Decimal
LAST = datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC)
TIMES = (datetime(1, 1, 2, tzinfo=UTC), datetime(2020, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), LAST)
NAN_ROWS, NAN_ASKED = ((1, 1.0), (2, float("nan"))), (("v", "5"), ("v", "0.5"))
NESTED = "id int, s struct<x: int, y: string>, l array<int>"
NESTED_ROWS = ((1, {"x": 1, "y": "a"}, [1, 2]), (2, None, None))
PAIRS = ((1, "a"), (2, "b"), (3, None))
COLUMNS = "id int, name string"


def _plain(name: str, **properties: str) -> None:
    @_add(DELTA, name, COLUMNS, PAIRS)
    def make(maker: Maker, path: str) -> None:
        maker.table(path, COLUMNS, PAIRS[:2], PAIRS[2:], **properties)


_plain("nothing special")
_plain("change data feed", delta_enableChangeDataFeed="true")
_plain("append-only", delta_appendOnly="true")
_plain("row tracking", delta_enableRowTracking="true")
_plain("in-commit timestamps", delta_enableInCommitTimestamps="true")
_plain("type widening enabled, nothing widened", delta_enableTypeWidening="true")
_plain("deletion vectors enabled, none there", delta_enableDeletionVectors="true")
_plain("mapping by name from the start", delta_columnMapping_mode="name")
_plain("mapping by id from the start", delta_columnMapping_mode="id")
_plain("IcebergCompatV2", delta_enableIcebergCompatV2="true", delta_columnMapping_mode="name")


@_add(DELTA, "loads of Widen, nothing widened", COLUMNS, PAIRS)
def _loaded(maker: Maker, path: str) -> None:
    maker.append(path, COLUMNS, PAIRS)


@_add(DELTA, "checkpoint and versions after it", COLUMNS, PAIRS)
def _checkpoint(maker: Maker, path: str) -> None:
    maker.table(path, COLUMNS, PAIRS[:1], PAIRS[1:2], PAIRS[2:], delta_checkpointInterval="2")


@_add(DELTA, "v2 checkpoint", COLUMNS, PAIRS)
def _v2_checkpoint(maker: Maker, path: str) -> None:
    maker.table(
        path, COLUMNS, PAIRS[:1], PAIRS[1:2], PAIRS[2:], delta_checkpointInterval="2", delta_checkpointPolicy="v2"
    )


@_add(DELTA, "CHECK constraint", COLUMNS, PAIRS)
def _check(maker: Maker, path: str) -> None:
    maker.table(path, COLUMNS, PAIRS)
    widen.Table(path).add_constraint("positive", "id > 0")


@_add(DELTA, "column default", COLUMNS, PAIRS)
def _default(maker: Maker, path: str) -> None:
    maker.sql(
        f"CREATE TABLE delta.`{path}` (id int, name string DEFAULT 'x') USING delta "
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    )
    maker.spark_append(path, COLUMNS, PAIRS)


@_add(DELTA, "generated column", "id int, twice int", ((1, 2), (5, 10)))
def _generated(maker: Maker, path: str) -> None:
    maker.sql(f"CREATE TABLE delta.`{path}` (id int, twice int GENERATED ALWAYS AS (CAST(id * 2 AS INT))) USING delta")
    maker.spark_append(path, "id int, twice int", ((1, 2), (5, 10)))


@_add(DELTA, "identity column", "id bigint, name string", ((1, "a"), (2, "b")))
def _identity(maker: Maker, path: str) -> None:
    maker.sql(f"CREATE TABLE delta.`{path}` (id bigint GENERATED ALWAYS AS IDENTITY, name string) USING delta")
    maker.sql(f"INSERT INTO delta.`{path}` (name) VALUES ('a')", f"INSERT INTO delta.`{path}` (name) VALUES ('b')")


@_add(DELTA, "clustering", COLUMNS, PAIRS)
def _clustered(maker: Maker, path: str) -> None:
    widen.create_table(path, COLUMNS, cluster_by=("id",))
    maker.append(path, COLUMNS, PAIRS)


@_add(DELTA, "column NOT NULL", "id int, name string", PAIRS)
def _not_null(maker: Maker, path: str) -> None:
    maker.table(path, "id int NOT NULL, name string", PAIRS)


@_add(DELTA, "empty table", COLUMNS, ())
def _empty(maker: Maker, path: str) -> None:
    maker.table(path, COLUMNS)


@_add(DELTA, "deletion vectors, deleted rows", COLUMNS, PAIRS)
def _vectors(maker: Maker, path: str) -> None:
    maker.table(path, COLUMNS, (*PAIRS, (4, "d")), delta_enableDeletionVectors="true")
    widen.Table(path).delete("id = 4")


@_add(DELTA, "deletion vectors and mapping by name", COLUMNS, PAIRS)
def _mapped_vectors(maker: Maker, path: str) -> None:
    properties = {"delta_enableDeletionVectors": "true", "delta_columnMapping_mode": "name"}
    maker.table(path, COLUMNS, (*PAIRS, (4, "d")), **properties)
    widen.Table(path).delete("id = 4")


@_add(DELTA, "mapping later, names as before", COLUMNS, PAIRS)
def _mapped_later(maker: Maker, path: str) -> None:
    maker.table(path, COLUMNS, PAIRS)
    widen.Table(path).set_properties({NAMES: "name"})


SWAPPED = (("a", "x", 1), ("b", "y", 2))


@_add(DELTA, "mapping later, names swapped", "one string, two string, id int", SWAPPED)
def _swapped(maker: Maker, path: str) -> None:
    columns = "two string, one string, id int"
    table = maker.table(path, columns, SWAPPED)
    table.set_properties({NAMES: "name"})
    for old, new in (("one", "three"), ("two", "one"), ("three", "two")):
        widen.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN {old} TO {new}")


@_add(DELTA, "mapping later, column dropped and added again", "id int, one string", ((1, None), (2, None), (3, "new")))
def _readded(maker: Maker, path: str) -> None:
    table = maker.table(path, "id int, one string", ((1, "old"), (2, "old")))
    table.set_properties({NAMES: "name"})
    maker.sql(f"ALTER TABLE delta.`{path}` DROP COLUMN one", f"ALTER TABLE delta.`{path}` ADD COLUMN one string")
    maker.spark_append(path, "id int, one string", ((3, "new"),))


@_add(DELTA, "mapping later, column renamed", "id int, title string", PAIRS)
def _renamed(maker: Maker, path: str) -> None:
    maker.table(path, COLUMNS, PAIRS).set_properties({NAMES: "name"})
    widen.sql(f"ALTER TABLE delta.`{path}` RENAME COLUMN name TO title")


@_add(DELTA, "partition column with mapping from the start", "id int, day string", ((1, "x"), (2, "y")))
def _mapped_partition(maker: Maker, path: str) -> None:
    maker.table(path, "id int, day string", ((1, "x"), (2, "y")), by=("day",), delta_columnMapping_mode="name")


@_add(DELTA, "partition column with mapping later", "id int, day string", ((1, "x"), (2, "y")))
def _mapped_partition_later(maker: Maker, path: str) -> None:
    maker.table(path, "id int, day string", ((1, "x"), (2, "y")), by=("day",)).set_properties({NAMES: "name"})


# types


def _of_type(name: str, kind: str, *values: Any, by: tuple[str, ...] = (), **more: Any) -> None:
    columns, rows = f"id int, v {kind}", tuple(enumerate(values, 1))

    @_add(DELTA, name, columns, rows, **more)
    def make(maker: Maker, path: str) -> None:
        maker.table(path, columns, *((row,) for row in rows), by=by)


_of_type("numbers", "bigint", -(2**63), 0, 2**53 + 1, None)
_of_type("decimals up to 15 digits", "decimal(15,2)", D("-1234567890123.45"), D("9007199254740.93"), D(0))
_of_type(
    "decimals of Widen, more than 15 digits",
    "decimal(18,2)",
    D("90071992547409.93"),
    D("-90071992547409.93"),
)
_of_type("decimals of Widen, 38 digits", "decimal(38,2)", D("123456789012345678901234567890.12"), D("-0.01"))
_of_type("dates", "date", date(1, 1, 1), date(1500, 2, 28), date(9999, 12, 31), None)
_of_type("long texts", "string", "a" * 40 + "b", "z" * 40, "é" * 40)
_of_type("booleans", "boolean", True, False, None)
BOOLEANS = ((1, True), (2, False), (3, None))


def _booleans(name: str, *, repairs: bool) -> None:
    @_add(DELTA, name, "id int, v boolean", BOOLEANS)
    def make(maker: Maker, path: str) -> None:
        for row in BOOLEANS:
            maker.spark_append(path, "id int, v boolean", (row,))
        if repairs:
            widen.Table(path).rewrite(statistics=True)


_booleans("booleans of Delta Lake for Spark", repairs=False)
_booleans("booleans of Delta Lake for Spark, repaired", repairs=True)
_of_type("bytes", "binary", b"\x00", b"\xff\xfe", None, asked=("id",))
_of_type("timestamps of Widen", "timestamp", *TIMES)
_of_type("NaN, files of Widen", "double", 1.0, float("nan"), constants=NAN_ASKED)
_of_type("infinity, files of Widen", "double", float("-inf"), 0.5, float("inf"))
_of_type("float partition", "float", as_float(0.1), as_float(2.5), by=("v",))
_of_type(
    "negative decimal partition of Widen",
    "decimal(9,2)",
    D("-0.10"),
    D("-3.50"),
    D("2.25"),
    by=("v",),
)
_of_type("date partition with null", "date", date(2020, 1, 1), None, by=("v",))
_of_type("string partition, special characters", "string", "a b/c=d%25", "é", None, by=("v",))
_of_type(
    "timestamp partition",
    "timestamp",
    datetime(2020, 1, 1, 0, 0, 0, 123456, tzinfo=UTC),
    datetime(1999, 1, 1, tzinfo=UTC),
    by=("v",),
)
_of_type("boolean partition", "boolean", True, False, by=("v",))
_of_type("all values null", "double", None, None)


@_add(
    DELTA,
    "NaN and a number in one file",
    "id int, v double",
    NAN_ROWS,
    constants=NAN_ASKED,
)
def _nan_beside(maker: Maker, path: str) -> None:
    maker.table(path, "id int, v double", NAN_ROWS)


@_add(
    DELTA,
    "NaN, file of deltalake",
    "id int, v double",
    NAN_ROWS,
    constants=NAN_ASKED,
)
def _nan_deltalake(maker: Maker, path: str) -> None:
    write_deltalake(path, arrow_rows("id int, v double", NAN_ROWS))


@_add(
    DELTA,
    "NaN, file of Delta Lake for Spark",
    "id int, v double",
    NAN_ROWS,
    constants=NAN_ASKED,
)
def _nan_spark(maker: Maker, path: str) -> None:
    maker.spark_append(path, "id int, v double", NAN_ROWS)


@_add(DELTA, "infinity, file of Delta Lake for Spark", "id int, v double", ((1, float("-inf")), (2, float("inf"))))
def _infinity_spark(maker: Maker, path: str) -> None:
    maker.spark_append(path, "id int, v double", ((1, float("-inf")), (2, float("inf"))))


@_add(DELTA, "infinity, file of deltalake", "id int, v double", ((1, float("-inf")), (2, float("inf"))))
def _infinity_deltalake(maker: Maker, path: str) -> None:
    write_deltalake(path, arrow_rows("id int, v double", ((1, float("-inf")), (2, float("inf")))))


LOCAL = ((1, datetime(2020, 1, 1, 12)), (2, datetime(1999, 1, 1)))


@_add(DELTA, "timestamp_ntz", "id int, v timestamp_ntz", LOCAL)
def _local_times(maker: Maker, path: str) -> None:
    maker.table(path, "id int, v timestamp_ntz", LOCAL)


@_add(
    DELTA,
    "nested columns",
    "id int, s struct<x: int, y: string>, l array<int>",
    ((1, {"x": 1, "y": "a"}, [1, 2]), (2, None, None)),
    asked=("id",),
)
def _nested(maker: Maker, path: str) -> None:
    maker.table(path, NESTED, NESTED_ROWS)


@_add(
    DELTA,
    "negative decimal partition of deltalake",
    "id int, v decimal(9,2)",
    ((1, D("-0.10")), (2, D("3.50"))),
)
def _negative_partition(maker: Maker, path: str) -> None:
    rows = ((1, D("-0.10")), (2, D("3.50")))
    with suppress(DeltaError):  # raised after the commit
        write_deltalake(path, arrow_rows("id int, v decimal(9,2)", rows), partition_by=["v"])
    assert (Path(path) / "_delta_log" / f"{0:020}.json").exists()


LONG = ((1, D("90071992547409.93")), (2, D("-90071992547409.93")), (3, D("1.25")))


@_add(DELTA, "decimals of deltalake, more than 15 digits", "id int, v decimal(18,2)", LONG)
def _long_decimals(maker: Maker, path: str) -> None:
    for row in LONG:
        write_deltalake(path, arrow_rows("id int, v decimal(18,2)", (row,)), mode="append")


@_add(DELTA, "decimals of deltalake, repaired", "id int, v decimal(18,2)", LONG)
def _repaired_decimals(maker: Maker, path: str) -> None:
    _long_decimals(maker, path)
    widen.Table(path).rewrite(statistics=True)


@_add(DELTA, "decimals of Delta Lake for Spark, more than 15 digits", "id int, v decimal(18,2)", LONG)
def _long_spark(maker: Maker, path: str) -> None:
    for row in LONG:
        maker.spark_append(path, "id int, v decimal(18,2)", (row,))


SMALL = ((1, D("-0.0000001")), (2, D("0.5000000")), (3, None))


@_add(DELTA, "small decimals of deltalake", "id int, v decimal(9,7)", SMALL)
def _small_decimals(maker: Maker, path: str) -> None:
    for row in SMALL:
        write_deltalake(path, arrow_rows("id int, v decimal(9,7)", (row,)), mode="append")


@_add(DELTA, "small decimals of deltalake, repaired", "id int, v decimal(9,7)", SMALL)
def _repaired_small(maker: Maker, path: str) -> None:
    _small_decimals(maker, path)
    widen.Table(path).rewrite(statistics=True)


@_add(DELTA, "small decimals of Delta Lake for Spark", "id int, v decimal(9,7)", SMALL)
def _small_spark(maker: Maker, path: str) -> None:
    for row in SMALL:
        maker.spark_append(path, "id int, v decimal(9,7)", (row,))


_of_type("small decimals of Widen", "decimal(9,7)", D("-0.0000001"), D("0.5000000"), None)

NEAR = ((1, datetime(2020, 1, 1, tzinfo=UTC)), (2, datetime(1999, 6, 1, 0, 0, 0, 999_999, tzinfo=UTC)))
FAR = (
    (1, datetime(1500, 1, 1, tzinfo=UTC)),
    (2, datetime(9999, 12, 30, tzinfo=UTC)),
    (3, datetime(2020, 1, 1, tzinfo=UTC)),
)


@_add(DELTA, "INT96 timestamps, near years", "id int, v timestamp", NEAR)
def _near(maker: Maker, path: str) -> None:
    maker.spark_append(path, "id int, v timestamp", NEAR)


@_add(DELTA, "INT96 timestamps, far years", "id int, v timestamp", FAR)
def _far(maker: Maker, path: str) -> None:
    for row in FAR:
        maker.spark_append(path, "id int, v timestamp", (row,))


@_add(DELTA, "variant", "id int", ((1,), (2,)))
def _variant(maker: Maker, path: str) -> None:
    maker.sql(
        f"CREATE TABLE delta.`{path}` (id int, v variant) USING delta",
        f"INSERT INTO delta.`{path}` SELECT 1, parse_json('1')",
        f"INSERT INTO delta.`{path}` SELECT 2, parse_json('{{\"a\": 2}}')",
    )


# widened columns


def _widened(name: str, old: str, new: str, before: Iterable[Any], after: Iterable[Any], **more: Any) -> None:
    old_rows = tuple(enumerate(before, 1))
    new_rows = tuple(enumerate(after, 1 + len(old_rows)))
    convert = more.pop("convert", lambda value: value)
    rows = (*((number, convert(value)) for number, value in old_rows), *new_rows)

    @_add(DELTA, name, f"id int, v {new}", rows, **more)
    def make(maker: Maker, path: str) -> None:
        table = maker.table(path, f"id int, v {old}", *((row,) for row in old_rows), delta_enableTypeWidening="true")
        if new == "timestamp_ntz":
            table.add_feature("timestampNtz")
        table.alter_column("v", type=new)
        maker.append(path, f"id int, v {new}", new_rows)


def midnight(day: date) -> datetime:
    """Return the start of a day."""
    return datetime(day.year, day.month, day.day)


FLOATS = tuple(map(as_float, (0.1, 0.7, 2.5, -0.1)))
TENTHS = (("v", "0.1"), ("v", "0.7"), ("v", "-0.1"))
_widened("widened: byte to int", "byte", "int", (1, -128), (2**31 - 1,))
_widened("widened: int to bigint", "int", "bigint", (1, -(2**31)), (2**40,))
_widened("widened: int to double", "int", "double", (1, -(2**31)), (0.5,), convert=float)
_widened("widened: int to decimal", "int", "decimal(12,2)", (1, -(2**31)), (D("0.25"),), convert=Decimal)
_widened("widened: float to double, by Widen", "float", "double", FLOATS, (0.1,), constants=TENTHS)
_widened(
    "widened: decimal, more digits",
    "decimal(9,2)",
    "decimal(18,2)",
    (D("-1.25"), D("9.99")),
    (D("90071992547409.93"),),
)
_widened(
    "widened: decimal, larger scale",
    "decimal(9,2)",
    "decimal(12,4)",
    (D("-1.25"), D("9.99")),
    (D("1.0001"),),
)
_widened(
    "widened: date to timestamp_ntz",
    "date",
    "timestamp_ntz",
    (date(2020, 1, 1), date(1999, 1, 1)),
    (datetime(2020, 1, 1, 12),),
    convert=midnight,
)
DOUBLES = (*((number, value) for number, value in enumerate(FLOATS, 1)), (5, 0.1))


def _spark_floats(maker: Maker, path: str) -> None:
    maker.sql(f"CREATE TABLE delta.`{path}` (id int, v float) USING delta TBLPROPERTIES ('{WIDENS}'='true')")
    for row in DOUBLES[:-1]:
        maker.spark_append(path, "id int, v float", (row,))


@_add(DELTA, "widened: float to double, by Delta Lake for Spark", "id int, v double", DOUBLES, constants=TENTHS)
def _short_bounds(maker: Maker, path: str) -> None:
    _spark_floats(maker, path)
    maker.sql(f"ALTER TABLE delta.`{path}` CHANGE COLUMN v TYPE double")
    maker.spark_append(path, "id int, v double", DOUBLES[-1:])


@_add(DELTA, "widened: float to double, files of Delta Lake, by Widen", "id int, v double", DOUBLES, constants=TENTHS)
def _exact_bounds(maker: Maker, path: str) -> None:
    _spark_floats(maker, path)
    widen.Table(path).alter_column("v", type="double")
    maker.spark_append(path, "id int, v double", DOUBLES[-1:])


@_add(DELTA, "widened: float to double, then rewritten", "id int, v double", DOUBLES, constants=TENTHS)
def _rewritten(maker: Maker, path: str) -> None:
    _exact_bounds(maker, path)
    widen.Table(path).rewrite()


@_add(DELTA, "widened: float to double, then typeWidening dropped", "id int, v double", DOUBLES, constants=TENTHS)
def _dropped(maker: Maker, path: str) -> None:
    _exact_bounds(maker, path)
    widen.Table(path).drop_feature("typeWidening")


@_add(DELTA, "widened: partition column from int to bigint", "id int, v bigint", ((1, 1), (2, 2), (3, 2**40)))
def _widened_partition(maker: Maker, path: str) -> None:
    rows = ((1, 1), (2, 2))
    table = maker.table(path, "id int, v int", rows, by=("v",), delta_enableTypeWidening="true")
    table.alter_column("v", type="bigint")
    maker.append(path, "id int, v bigint", ((3, 2**40),))


@_add(
    DELTA,
    "widened: nested int to bigint",
    "id int, s struct<x: bigint>",
    ((1, {"x": 1}), (2, {"x": 2**40})),
    asked=("id",),
)
def _widened_nested(maker: Maker, path: str) -> None:
    table = maker.table(path, "id int, s struct<x: int>", ((1, {"x": 1}),), delta_enableTypeWidening="true")
    table.alter_column("s.x", type="bigint")
    maker.append(path, "id int, s struct<x: bigint>", ((2, {"x": 2**40}),))


@_add(DELTA, "widened int and mapping by name", "id int, v bigint", ((1, 1), (2, 2**40)))
def _widened_mapped(maker: Maker, path: str) -> None:
    properties = {"delta_enableTypeWidening": "true", "delta_columnMapping_mode": "name"}
    table = maker.table(path, "id int, v int", ((1, 1),), **properties)
    table.alter_column("v", type="bigint")
    maker.append(path, "id int, v bigint", ((2, 2**40),))


# ---- Iceberg ------------------------------------------------------------------------------------------------


def _ice_plain(name: str, by: str = "", **properties: str) -> None:
    @_add(ICEBERG, name, COLUMNS, PAIRS)
    def make(maker: Maker, table: str) -> None:
        maker.ice(table, COLUMNS, PAIRS[:2], PAIRS[2:], by=by, **properties)


V3 = {"format__version": "3"}
_ice_plain("format version 2")
_ice_plain("format version 3", **V3)
_ice_plain("partition by identity", by="name")
_ice_plain("partition by bucket", by="bucket(4, id)")
_ice_plain("partition by truncate", by="truncate(1, name)")


def _ice_type(name: str, kind: str, *values: Any, by: str = "", **more: Any) -> None:
    columns, rows = f"id int, v {kind}", tuple(enumerate(values, 1))
    properties = more.pop("properties", {})

    @_add(ICEBERG, name, columns, rows, **more)
    def make(maker: Maker, table: str) -> None:
        maker.ice(table, columns, *((row,) for row in rows), by=by, **properties)


_ice_type("numbers", "bigint", -(2**63), 0, 2**53 + 1, None)
_ice_type("decimals, 38 digits", "decimal(38,2)", D("123456789012345678901234567890.12"), D("-0.01"))
_ice_type("negative decimal partition", "decimal(9,2)", D("-0.10"), D("-3.50"), D("2.25"), by="v")
_ice_type("dates", "date", date(1, 1, 1), date(1500, 2, 28), date(9999, 12, 31), None)
_ice_type("date partition with null", "date", date(2020, 1, 1), None, by="v")
_ice_type(
    "partition by day",
    "timestamp",
    datetime(2020, 1, 1, 5, tzinfo=UTC),
    datetime(1969, 12, 31, 23, tzinfo=UTC),
    by="days(v)",
)
_ice_type(
    "timestamps",
    "timestamp",
    datetime(1, 1, 2, tzinfo=UTC),
    datetime(2020, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC),
    datetime(9999, 12, 30, tzinfo=UTC),
)
_ice_type("timestamp_ntz", "timestamp_ntz", datetime(2020, 1, 1, 12), datetime(1999, 1, 1))
_ice_type("long texts", "string", "a" * 40 + "b", "z" * 40, "é" * 40)
_ice_type("bytes", "binary", b"\x00", b"\xff\xfe", None, asked=("id",))
_ice_type("NaN", "double", 1.0, float("nan"), constants=NAN_ASKED)
_ice_type("infinity", "double", float("-inf"), 0.5, float("inf"))
_ice_type("all values null", "double", None, None)
_ice_type("float partition", "float", as_float(0.1), as_float(2.5), by="v")


@_add(
    ICEBERG,
    "NaN and a number in one file, of Iceberg for Spark",
    "id int, v double",
    NAN_ROWS,
    constants=NAN_ASKED,
)
def _ice_nan(maker: Maker, table: str) -> None:
    maker.spark_ice(table, "id int, v double", "(1, 1.0D), (2, double('NaN'))")


def _promoted(name: str, old: str, new: str, before: Iterable[Any], after: Iterable[Any], **more: Any) -> None:
    old_rows = tuple(enumerate(before, 1))
    new_rows = tuple(enumerate(after, 1 + len(old_rows)))
    convert, properties = more.pop("convert", lambda value: value), more.pop("properties", {})
    by = more.pop("by", "")
    rows = (*((number, convert(value)) for number, value in old_rows), *new_rows)

    @_add(ICEBERG, name, f"id int, v {new}", rows, **more)
    def make(maker: Maker, table: str) -> None:
        opened = maker.ice(table, f"id int, v {old}", *((row,) for row in old_rows), by=by, **properties)
        opened.alter_column("v", type=new)
        maker.ice_append(table, f"id int, v {new}", new_rows)


_promoted("promoted: int to long", "int", "bigint", (1, -(2**31)), (2**40,))
_promoted("promoted: int to long, partition", "int", "bigint", (1, 2), (2**40,), by="v")
_promoted("promoted: float to double", "float", "double", FLOATS, (0.1,), constants=TENTHS)
_promoted("promoted: float to double, version 3", "float", "double", FLOATS, (0.1,), constants=TENTHS, properties=V3)
_promoted(
    "promoted: decimal, more digits",
    "decimal(9,2)",
    "decimal(18,2)",
    (D("-1.25"), D("9.99")),
    (D("90071992547409.93"),),
)


@_add(ICEBERG, "promoted: float to double, files of Iceberg for Spark", "id int, v double", DOUBLES, constants=TENTHS)
def _ice_floats(maker: Maker, table: str) -> None:
    values = [f"({number}, float({value!r}))" for number, value in DOUBLES[:-1]]
    maker.spark_ice(table, "id int, v float", *values)
    maker.iceberg(f"ALTER TABLE default.ns.{table} ALTER COLUMN v TYPE double")
    maker.iceberg(f"INSERT INTO default.ns.{table} VALUES (5, 0.1D)")


@_add(ICEBERG, "position deletes", COLUMNS, PAIRS)
def _ice_positions(maker: Maker, table: str) -> None:
    modes = {"write.delete.mode": "merge-on-read"}
    settings = ", ".join(f"'{key}' = '{value}'" for key, value in modes.items())
    maker.iceberg(f"CREATE TABLE default.ns.{table} ({COLUMNS}) USING iceberg TBLPROPERTIES ({settings})")
    maker.iceberg(f"INSERT INTO default.ns.{table} VALUES (1, 'a'), (2, 'b'), (3, null), (4, 'd')")
    maker.iceberg(f"DELETE FROM default.ns.{table} WHERE id = 4")


@_add(ICEBERG, "deletion vectors", COLUMNS, PAIRS)
def _ice_vectors(maker: Maker, table: str) -> None:
    maker.iceberg(
        f"CREATE TABLE default.ns.{table} ({COLUMNS}) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    maker.iceberg(f"INSERT INTO default.ns.{table} VALUES (1, 'a'), (2, 'b'), (3, null), (4, 'd')")
    maker.iceberg(f"DELETE FROM default.ns.{table} WHERE id = 4")


@_add(ICEBERG, "equality deletes", COLUMNS, PAIRS)
def _ice_equal(maker: Maker, table: str) -> None:
    maker.ice(table, COLUMNS, (*PAIRS, (4, "d")))
    columns = [iceberg_files.field("id", pa.int32(), 1)]
    path = iceberg_files.write_file(maker.catalog.load_table(f"ns.{table}"), columns, [{"id": 4}])
    maker.iceberg(None, equality_delete=[f"default.ns.{table}", f"file://{path}", path.stat().st_size, 1, [1]])


@_add(ICEBERG, "column renamed", "id int, title string", PAIRS)
def _ice_renamed(maker: Maker, table: str) -> None:
    maker.ice(table, COLUMNS, PAIRS)
    maker.iceberg(f"ALTER TABLE default.ns.{table} RENAME COLUMN name TO title")


@_add(ICEBERG, "names swapped", "one string, two string, id int", SWAPPED)
def _ice_swapped(maker: Maker, table: str) -> None:
    maker.ice(table, "two string, one string, id int", SWAPPED)
    for old, new in (("one", "three"), ("two", "one"), ("three", "two")):
        maker.iceberg(f"ALTER TABLE default.ns.{table} RENAME COLUMN {old} TO {new}")


@_add(ICEBERG, "column dropped and added again", "id int, one string", ((1, None), (2, None), (3, "new")))
def _ice_readded(maker: Maker, table: str) -> None:
    maker.ice(table, "id int, one string", ((1, "old"), (2, "old")))
    maker.iceberg(f"ALTER TABLE default.ns.{table} DROP COLUMN one")
    maker.iceberg(f"ALTER TABLE default.ns.{table} ADD COLUMN one string")
    maker.iceberg(f"INSERT INTO default.ns.{table} VALUES (3, 'new')")


@_add(ICEBERG, "partitioning changed", COLUMNS, PAIRS)
def _ice_evolved(maker: Maker, table: str) -> None:
    maker.ice(table, COLUMNS, PAIRS[:2], by="name").change_partitioning(add=["bucket(2, id)"], drop=["name"])
    maker.ice_append(table, COLUMNS, PAIRS[2:])


@_add(ICEBERG, "branch", COLUMNS, PAIRS)
def _ice_branch(maker: Maker, table: str) -> None:
    maker.ice(table, COLUMNS, PAIRS).create_branch("other")
    maker.iceberg(f"INSERT INTO default.ns.{table}.branch_other VALUES (9, 'z')")


@_add(ICEBERG, "column with a default, version 3", "id int, v int", ((1, 7), (2, 7), (3, 5)))
def _ice_default(maker: Maker, table: str) -> None:
    maker.ice(table, "id int", ((1,), (2,)), **V3)
    maker.iceberg(None, defaults=[f"default.ns.{table}", [[None, "v", "int", 7]]])
    maker.iceberg(f"INSERT INTO default.ns.{table} VALUES (3, 5)")


@_add(
    ICEBERG,
    "nested columns",
    "id int, s struct<x: int, y: string>, l array<int>",
    ((1, {"x": 1, "y": "a"}, [1, 2]), (2, None, None)),
    asked=("id",),
)
def _ice_nested(maker: Maker, table: str) -> None:
    maker.ice(table, NESTED, NESTED_ROWS)


@_add(ICEBERG, "variant, version 3", "id int", ((1,), (2,)))
def _ice_variant(maker: Maker, table: str) -> None:
    maker.iceberg(
        f"CREATE TABLE default.ns.{table} (id int, v variant) USING iceberg TBLPROPERTIES ('format-version' = '3')"
    )
    maker.iceberg(f"INSERT INTO default.ns.{table} SELECT 1, parse_json('1')")
    maker.iceberg(f"INSERT INTO default.ns.{table} SELECT 2, parse_json('2')")


@_add(ICEBERG, "empty table", COLUMNS, ())
def _ice_empty(maker: Maker, table: str) -> None:
    maker.ice(table, COLUMNS)
