"""The same loads on Spark and without it: equal plans, rows, files and statistics."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen
from support.covering import TRIES_ALL
from support.exact import assert_same
from support.load_time import set_load_time
from support.rows_here import RowsHere, rows_read_here
from widen.cli.row_output import _lines
from widen.files.data_reader import json_lines
from widen.files.expressions import query_locally
from widen.iceberg.catalog import to_table_name
from widen.log.file_list import to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import fields
from widen.model.types import INTEGER, Field, StructType
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.column_metadata import ALIASES
from widen.spark import engine as engine_module
from widen.spark.engine import Engine, LocalSession, Unsupported
from widen.spark.spark_types import as_nullable, from_spark


@dataclass(frozen=True)
class Case:
    """Loads of one table, each with the files that it adds.

    Args:
        options: Arguments of the loads.
        created: Arguments of `widen.create_table`, for a table that exists before.
    """

    loads: Sequence[Mapping[str, bytes]]
    options: Mapping[str, Any] = field(default_factory=dict)
    created: Mapping[str, Any] = field(default_factory=dict)


def lines(*records: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


MIXED = lines(
    {"id": 1, "v": 1, "at": "2024-05-06T07:08:09Z", "n": {"x": [1, 2]}},
    {"id": 2, "v": 2.5, "n": {"x": []}},
    {"id": 3, "v": "many", "n": None},
    {"id": 2**40, "tags": [{"k": "a"}, None]},
)
PAD = "é" * 500
LARGE = b"".join(lines({"id": at, "pad": PAD, "price": at / 8, "big": 2**70 + at}) for at in range(4_000))
"""More than the 8 MB up to which a file is read as a whole."""

FIXED = lines(
    {"id": 1, "p": "a", "n": {"a": 1}},
    {"p": "b"},
    {"id": "x", "p": "b/c=%"},
    {"id": 2**40, "p": ""},
    {"id": 5, "p": "__HIVE_DEFAULT_PARTITION__", "more": [1]},
    {"id": 6},
    {"id": 7, "p": 7},
)
FIXED += b"nothing\n[8]\n"
"""Records that a table with fixed columns cannot hold, among others."""


def parquet(rows: list[dict[str, Any]], fields: Mapping[str, pa.DataType], **options: Any) -> bytes:
    """Return a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields)), sink, **options)
    return sink.getvalue()


NESTED = {
    "id": pa.int32(),
    "x": pa.float32(),
    "d": pa.float64(),
    "n": pa.decimal128(9, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "local": pa.timestamp("ms"),
    "raw": pa.binary(),
    "flag": pa.bool_(),
    "s": pa.string(),
    "r": pa.struct({"a": pa.int16(), "b": pa.list_(pa.string())}),
    "items": pa.list_(pa.struct({"k": pa.string(), "v": pa.int8()})),
    "m": pa.map_(pa.string(), pa.int64()),
}
"""The types of a Parquet file."""

TYPED_ROWS: list[dict[str, Any]] = [
    {
        "id": at,
        "x": at / 7,
        "d": 1e10 * at / 3,
        "n": Decimal(at) / 100,
        "day": date(2024, 1, 1 + at % 28),
        "at": datetime(2024, 5, 6, 7, 8, 9, 1000 * at, tzinfo=timezone.utc),
        "local": datetime(1970, 1, 1 + at % 28, 1),
        "raw": bytes([at % 256]),
        "flag": at % 2 == 0,
        "s": f"text {at}",
        "r": None if at % 5 == 0 else {"a": at, "b": ["x", None][: at % 3]},
        "items": [{"k": "k", "v": 1}, None][: at % 3],
        "m": [("a", at), ("b", None)][: at % 3],
    }
    for at in range(1, 300)
]
MORE = NESTED | {
    "id": pa.int64(),
    "x": pa.float64(),
    "n": pa.decimal128(12, 2),
    "r": pa.struct({"a": pa.int32(), "c": pa.string()}),
    "new": pa.string(),
}
"""Wider types, and more fields."""
MORE_ROWS = [
    row | {"id": 2**40 + at, "new": None if at < 250 else "late", "r": {"a": at, "c": "c"}}
    for at, row in enumerate(TYPED_ROWS)
]
PARQUET = parquet(TYPED_ROWS, NESTED)

KEY = {
    "i": "int",
    "d": "date",
    "at": "timestamp",
    "plain": "timestamp_ntz",
    "n": "decimal(10,2)",
    "flag": "boolean",
    "t": "string",
}
KEY_COLUMNS = "v int, " + ", ".join(map(" ".join, KEY.items()))
KEYS = lines(
    {"v": 1, "i": -3, "d": "2024-02-29", "at": "2024-05-06T07:08:09Z", "plain": "2024-05-06T07:08:09", "n": 1.5},
    {"v": 2, "at": "0001-01-01T00:00:00.000001Z", "plain": "9999-12-31T23:59:59.120000", "flag": True, "t": " ü:"},
    {"v": 3, "d": "0001-01-01", "n": -0.25, "flag": False, "t": "a\\b"},
    {"v": "x", "i": 2**40, "flag": 1},
)
"""Values of each type that partitions may have."""

BY_KEY = [
    {"a.json": lines(*({"id": at, "p": "ab"[at % 2], "n": 1, "v": at, "op": "u"} for at in range(9)))},
    {
        "b.json": lines(
            {"id": 1, "p": "b", "n": 3, "v": -1}, {"id": 1, "p": "b", "n": 2}, {"id": 2**40, "p": "a", "n": 1}
        )
    },
    {
        "c.json": lines(
            {"id": 2, "p": "a", "n": 9, "op": "d"}, {"id": 3, "p": "b", "n": 0}, {"id": 77, "p": "a", "n": 5}
        )
    },
    {"d.json": lines({"id": 2, "p": "a", "n": 8}, {"id": 4, "p": "a", "n": 2, "v": "x"})},
]
"""Loads by key: newer, late and deleted rows."""

CSV_BY_KEY = b"id,n,op\n1,5,u\n1,4,u\n2,9,u\n2,9,u\n3,1,u\n"

KEYED = {"id": pa.int64(), "n": pa.int32(), "v": pa.string()}

MAPPED = {"delta.columnMapping.mode": "name"}

OTHER = {
    "id": pa.string(),
    "x": pa.int64(),
    "d": pa.string(),
    "n": pa.float64(),
    "day": pa.int32(),
    "at": pa.int64(),
    "local": pa.date32(),
    "raw": pa.binary(),
    "flag": pa.int8(),
    "s": pa.float64(),
    "r": pa.struct({"a": pa.float32(), "b": pa.list_(pa.int64()), "c": pa.date32()}),
    "items": pa.list_(pa.struct({"k": pa.timestamp("us", "UTC"), "v": pa.string()})),
    "m": pa.map_(pa.string(), pa.float64()),
}
"""The same fields with types of other kinds."""

OTHER_ROWS: list[dict[str, Any]] = [
    {
        "id": f"no {at}",
        "x": 2**53 + at,
        "d": "x",
        "n": at / 8 if at % 2 else -0.0,
        "day": at,
        "at": 1_700_000_000 * 1000 ** (at % 4),
        "local": date(2024, 5, 1 + at),
        "raw": b"",
        "flag": at,
        "s": (1.5, 1e7, 1e-4, 123456789.25, float("nan"), float("-inf"), -0.0, 2e22, 0.001)[at % 9],
        "r": {"a": at / 3, "b": [[], [1, None], [None], None][at % 4], "c": date(2024, 5, 6)},
        "items": [{"k": datetime(2024, 5, 6, 7, 8, 9, 1000 * at), "v": "v"}, None][: at % 3],
        "m": [("a", at / 4), ("b", None), ("c", 0.1)][: at % 4],
    }
    for at in range(20)
]

DECIDING: Mapping[str, tuple[pa.DataType, pa.DataType]] = {
    "a": (pa.int64(), pa.int64()),
    "b": (pa.decimal128(20, 2), pa.decimal128(20, 2)),
    "c": (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    "d": (pa.int64(), pa.int64()),
    "e": (pa.float64(), pa.decimal128(12, 4)),
    "f": (pa.float64(), pa.int32()),
    "g": (pa.date32(), pa.timestamp("us", "UTC")),
}
"""Types whose values decide whether columns of other types hold them, in two files."""

DECIDING_ROWS: list[dict[str, Any]] = [
    {
        "a": 7,
        "b": Decimal("1.25"),
        "c": datetime(2024, 5, 6),
        "d": 1_700_000_000,
        "e": 1.25,
        "f": 0.5,
        "g": date(1, 1, 1),
    },
    {"a": 2**53, "d": 1_700_000_000_001, "e": -7.0, "f": 1e300, "g": date(9999, 12, 31)},
    {
        "a": 2**53 + 1,
        "b": Decimal("123456789012345678.25"),
        "c": datetime(2024, 5, 6, 0, 0, 0, 1),
        "d": -(2**63),
        "e": Decimal("1.2345"),
        "f": 2**24 + 1,
        "g": datetime(2024, 5, 6, 1, 2, 3, 4),
    },
    {"a": 2**62, "b": Decimal("-0.50"), "d": 1_700_000_000_000_000_001, "e": Decimal("1.5000"), "f": -(2**24)},
]

UNSIGNED = {
    "a": pa.uint8(),
    "b": pa.list_(pa.uint16()),
    "c": pa.uint32(),
    "d": pa.struct({"x": pa.uint64()}),
    "e": pa.map_(pa.string(), pa.uint64()),
    "f": pa.binary(2),
}
"""Types that Spark reads in wider ones."""
UNSIGNED_ROWS: list[dict[str, Any]] = [
    {"a": 0, "b": [2**16 - 1, None], "c": 2**32 - 1, "d": {"x": 2**64 - 1}, "e": [("k", 2**63)], "f": b"\0\xff"},
    {"a": 255, "b": [], "d": {"x": None}, "e": [("k", None)]},
    {"d": {"x": 0}},
]

FIXED_ROWS: list[dict[str, Any]] = [
    {"id": 1, "p": "a", "r": {"a": 0.5}},
    {"id": None, "p": "b", "r": {"a": 1e300}},
    {"id": 2**40, "p": "Über 9", "r": None, "s": b"secret"},
    {"id": 2, "p": "", "r": {"a": None}},
    {"id": 3, "p": None},
    {"id": 40_000, "p": "b\0", "r": {"a": -0.0}},
]
"""Records of which a table with fixed columns cannot hold some."""

CASED = [
    lines({"ID": 1, "R": {"X": 1, "items": [{"k": 1}]}}, {"id": 2, "V": "a"}),
    lines({"Id": 3, "r": {"x": 2.5, "Y": None, "ITEMS": [{"K": 2}, {"k": 3}]}}, {"id": 4, "v": 5}),
    lines({"id": 5, "ID": 6, "v": []}, {"ID": 7, "r": {"x": 1, "X": 2}}, {"iD": 8}),
]
"""Names in several cases, at last two of them in one record."""

RENAMED = StructType(
    (
        Field("id", INTEGER, metadata={ALIASES: ["number"]}),
        Field("s", StructType((Field("x", INTEGER, metadata={ALIASES: ["y", "z"]}),))),
    )
)
"""Columns whose fields have other names in records, too."""

CASES = {
    "fields with other names": Case(
        [
            {"a.json": lines({"number": 1, "s": {"y": 1}}, {"NUMBER": 2, "s": {"x": 2}})},
            {"b.csv": b"number\n3\n"},
            {"c.json": lines({"id": 4, "s": {"Z": 2.5}}, {"s": {"y": 1, "z": 2}}, {"id": 5, "number": "both"})},
        ],
        created={"schema": RENAMED},
    ),
    "fields with other names by key": Case(
        [
            {"a.json": lines({"number": 1, "s": {"y": 1}}, {"id": 2, "s": {"x": 2}})},
            {"b.json": lines({"id": 1, "s": {"z": 3}}, {"Number": 2, "s": None})},
        ],
        {"key": ["number"], "names": "exact"},
        created={"schema": RENAMED},
    ),
    "fields with other names in parquet": Case(
        [
            {
                "a.parquet": parquet(
                    [{"number": 1, "s": {"y": 1}}], {"number": pa.int32(), "s": pa.struct({"y": pa.int8()})}
                )
            },
            {"b.parquet": parquet([{"id": 2, "s": {"z": 1}}], {"id": pa.int32(), "s": pa.struct({"z": pa.float64()})})},
        ],
        created={"schema": RENAMED},
    ),
    "names in any case": Case([{f"{at}.json": each} for at, each in enumerate(CASED)] + [{"3.csv": b"Id,v\n9,z\n"}]),
    "names in any case and a pin": Case(
        [{f"{at}.json": each} for at, each in enumerate(CASED)], {"pins": {"V": "text"}}
    ),
    "exact names": Case([{f"{at}.json": each} for at, each in enumerate(CASED)], {"names": "exact"}),
    "names in any case by key": Case(
        [
            {"a.json": lines({"ID": 1, "N": 1, "op": "u"}, {"ID": 2, "N": 1, "op": "u"})},
            {"b.json": lines({"id": 1, "n": 2, "OP": "u", "x": "a"}, {"Id": 2, "n": 2, "Op": "d"}, {"id": 3, "n": 1})},
        ],
        {"key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'"},
    ),
    "names in any case in parquet": Case(
        [
            {"a.parquet": parquet([{"ID": 1, "R": {"X": 1}}], {"ID": pa.int32(), "R": pa.struct({"X": pa.int32()})})},
            {"b.parquet": parquet([{"id": 2, "r": {"x": 1}}], {"id": pa.int64(), "r": pa.struct({"x": pa.int64()})})},
            {
                "c.parquet": parquet(
                    [{"Id": 2.5, "r": {"X": 1}}], {"Id": pa.float64(), "r": pa.struct({"X": pa.int8()})}
                )
            },
        ]
    ),
    "a record": Case([{"a.json": lines({"id": 1})}]),
    "kinds": Case([{"a.json": MIXED}]),
    "a type that widens": Case([{"a.json": lines({"id": 1})}, {"b.json": lines({"id": 2**40})}]),
    "a second kind": Case([{"a.json": lines({"v": 1})}, {"b.json": lines({"v": "x"}, {"v": [1]})}]),
    "split": Case([{"a.json": lines({"v": 1})}, {"b.json": MIXED}], {"evolve": "split"}),
    "frozen": Case([{"a.json": lines({"v": 1})}, {"b.json": MIXED}], {"evolve": "freeze"}),
    "dates": Case([{"a.json": MIXED}], {"detect_dates": True}),
    "decimals": Case([{"a.json": lines({"v": 12.5}, {"v": 1})}], {"numbers": "decimal"}),
    "hidden fields": Case([{"a.json": MIXED}], {"mask": ["at"], "exclude": ["n.x"]}),
    "times in other spellings": Case(
        [
            {"a.json": b'{"t":"2024-01-02 03:04:05 +0200"}\n{"t":"Tue, 02 Jan 2024 03:04:05 +0200"}\n'},
            {"b.json": b'{"t":"2024-01-02T03:04:05"}\n{"t":"2024-03-31 02:30:00"}\n{"t":"soon"}\n'},
        ],
        {"detect_dates": True, "date_spellings": "any", "time_zone": "Europe/Berlin"},
    ),
    "epochs with a pin": Case(
        [{"a.json": b'{"t":1700000000123}\n{"t":null}\n'}, {"b.json": b'{"t":253402300800000}\n{"t":5}\n'}],
        {"pins": {"t": "timestamp"}, "epoch_unit": {"t": "ms"}},
    ),
    "integral doubles in JSON": Case(
        [{"a.json": b'{"a":1.0,"l":[2.0,3]}\n'}, {"b.json": b'{"a":1e2}\n{"a":-0.0}\n{"a":1.5,"l":["x",1.0]}\n'}],
        {"integral_doubles": "convert"},
    ),
    "included fields": Case([{"a.json": MIXED}], {"include": ["AT", "n", "id"]}),
    "damaged lines": Case([{"a.json": b'{"a": 1}\n{"a": \n\xff\n[3]\n7\n{"a": 2}\n'}]),
    "equal keys": Case([{"a.json": b'{"a": 1, "a": 2}\n{"b": 1e400}\n'}]),
    "an array": Case([{"a.json": json.dumps([{"a": 1}, {"a": 2.5}], indent=1).encode()}]),
    "a document": Case([{"a.json": json.dumps({"a": {"b": [1, None]}}, indent=1).encode()}]),
    "several files": Case([{"a.json": MIXED, "d/b.jsonl": MIXED, "_no.json": MIXED, ".no.json": MIXED, "e.json": b""}]),
    "folders": Case([{"k=1/a.json": MIXED, "k=2/b.json": MIXED}], {"source_columns": True}),
    "names with special characters": Case(
        [{"a b.json": MIXED, "k=x y/ü%20#?.json": MIXED, "c (1)'~!$&;@.json": MIXED, "d+e.csv": b""}],
        {"source_columns": True},
    ),
    "gzip": Case([{"a.json.gz": gzip.compress(MIXED, mtime=0)}]),
    "csv": Case([{"a.csv": b'id,name\n1,x\n2,"a\nb"\n3\n'}, {"b.csv": b"id,more\n4,y\n"}]),
    "csv with types": Case([{"a.csv": b"id;v\n1;2.5\n2;x\n3;true\n"}], {"options": {"sep": ";"}, "detect_types": True}),
    "gzipped csv": Case([{"a.csv.gz": gzip.compress(b"id,name\n1,x\n", mtime=0)}]),
    "plain text": Case([{"a.txt": "x\ny é\n\n12\r\ntrue".encode()}], {"format": "text", "detect_types": True}),
    "large plain text": Case(
        [{"a.txt": b"".join(b"%d %s\r\n" % (at, PAD.encode()) for at in range(9_000))}], {"format": "text"}
    ),
    "damaged plain text": Case(
        [{"a.txt": b"\xef\xbb\xbfa\rb\n\xff\n\0\n"}], {"format": "text", "source_columns": True}
    ),
    "gzipped text": Case([{"a.txt.gz": gzip.compress(b"a\nb\n", mtime=0)}], {"format": "text"}),
    "only new files": Case([{"a.json": MIXED}, {"b.json": MIXED}], {"new": True}),
    "new contents": Case(
        [{"a.json": MIXED}, {"b.json": MIXED, "c.json": lines({"c": 1})}], {"new": True, "new_by": "content"}
    ),
    "a large file": Case([{"a.json": LARGE}, {"b.json": LARGE + lines({"id": "x"})}]),
    "a large array": Case([{"a.json": b"[\n" + LARGE.strip().replace(b"\n", b",\n") + b"\n]"}]),
    "a large table of texts": Case(
        [{"a.csv": b"id,v\n" + b"".join(b"%d,%s\n" % (at, PAD.encode()) for at in range(9_000))}]
    ),
    "large and gzipped": Case([{"a.json.gz": gzip.compress(LARGE, 1, mtime=0)}]),
    "a column that must not be null": Case([{"a.json": FIXED}], created={"schema": "id int NOT NULL, p string"}),
    "nulls in a wider column": Case([{"a.json": FIXED * 500}], {"evolve": "widen"}, {"schema": "id long NOT NULL"}),
    "partitions": Case(
        [{"a.json": FIXED}, {"b.json": FIXED}], created={"schema": "p string, id int", "partition_by": ["p"]}
    ),
    "partitions of each type": Case([{"a.json": KEYS}], created={"schema": KEY_COLUMNS, "partition_by": list(KEY)}),
    "many rows in partitions": Case(
        [{"a.json": b"".join(lines({"p": f"{at % 90}", "pad": PAD}) for at in range(9_000))}],
        created={"schema": "p string, id int", "partition_by": ["p"]},
    ),
    "column mapping": Case(
        [{"a.json": MIXED}], created={"schema": "id int, n struct<x: string>", "properties": MAPPED}
    ),
    "column mapping and partitions": Case(
        [{"a.json": FIXED}],
        created={"schema": "p string, n struct<a: int>", "partition_by": ["p"], "properties": MAPPED},
    ),
    "bad files": Case(
        [{"a.json.gz": gzip.compress(MIXED, mtime=0)[:-20], "b.json": MIXED}], {"skip_bad_files": True, "new": True}
    ),
    "bad files and columns that must not be null": Case(
        [{"a.json": FIXED, "b.json": b"\x1f\x8b" + MIXED}], {"skip_bad_files": True}, {"schema": "id int NOT NULL"}
    ),
    "rows by key": Case(BY_KEY, {"key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'"}),
    "rows by key and deletions by comparisons": Case(
        BY_KEY, {"key": ["id"], "sequence_by": "n", "delete_when": "n > 8 OR (v < 0 AND p >= 'b')"}
    ),
    "rows by two keys and partitions": Case(
        BY_KEY, {"key": ["id", "p"], "sequence_by": "n"}, {"schema": "p string, id long", "partition_by": ["p"]}
    ),
    "versions of tracked fields": Case(
        BY_KEY,
        {"key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'", "history": True, "history_columns": ["p"]},
    ),
    "csv by key, also gzipped": Case(
        [
            {"a.csv": CSV_BY_KEY},
            {"b.csv.gz": gzip.compress(CSV_BY_KEY.replace(b"9,u", b"8,d").replace(b",u", b",d"), mtime=0)},
        ],
        {"key": ["id"], "sequence_by": "n", "delete_when": "op = 'd' AND n < 9", "detect_types": True},
    ),
    "parquet": Case([{"a.parquet": PARQUET}, {"b.parquet": parquet(TYPED_ROWS, NESTED, row_group_size=100)}]),
    "a small parquet file": Case([{"a.parquet": parquet(TYPED_ROWS[:3], NESTED)}], {"source_columns": True}),
    "wider parquet": Case([{"a.parquet": PARQUET}, {"b.parquet": parquet(MORE_ROWS, MORE)}]),
    "parquet files that merge": Case(
        [
            {
                "a.parquet": parquet([{"id": 1, "r": {"a": 1}}], {"id": pa.int32(), "r": pa.struct({"a": pa.int8()})}),
                "b.parquet": parquet(
                    [{"r": {"b": "x"}, "new": [{"k": 1}]}],
                    {"r": pa.struct({"b": pa.string()}), "new": pa.list_(pa.struct({"k": pa.int64()}))},
                ),
                "c.parquet": parquet([{"n": Decimal("1.5")}], {"n": pa.decimal128(4, 1)}),
                "d.parquet": parquet([{"n": Decimal("12345.5")}], {"n": pa.decimal128(8, 1)}),
                "e.parquet": b"",
            }
        ]
    ),
    "unsigned numbers in parquet": Case(
        [{"a.parquet": parquet(UNSIGNED_ROWS, UNSIGNED)}, {"b.parquet": parquet([{"c": -1}], {"c": pa.int32()})}]
    ),
    "parquet files that do not merge": Case(
        [
            {
                "a.parquet": parquet(MORE_ROWS, MORE),
                "b.parquet": PARQUET,
                "d/c.parquet": parquet([{"id": 7, "z": 1}], {"id": pa.int16(), "z": pa.int8()}),
            }
        ]
    ),
    "parquet in folders": Case(
        [
            {"date=2024-05-06/k=a b/a.parquet": PARQUET, "date=/b.parquet": PARQUET},
            {"date=2024-05-07/k=%20/c.parquet": PARQUET},
        ],
        {"source_columns": True},
    ),
    "parquet into partitions": Case(
        [{"s=x/a.parquet": parquet([{"id": 1}, {"id": 2}], {"id": pa.int32()})}],
        created={"schema": "s string, id int", "partition_by": ["s"]},
    ),
    "parquet and partitions of numbers": Case(
        [{"a.parquet": PARQUET}], created={"schema": "id int, day date, local timestamp_ntz", "partition_by": ["day"]}
    ),
    "parquet with all values of a column": Case(
        [{"a.parquet": PARQUET}], created={"schema": "id int NOT NULL, local timestamp_ntz"}
    ),
    "parquet and column mapping": Case(
        [{"a.parquet": PARQUET}],
        created={"schema": "id int, local timestamp_ntz, r struct<b: array<string>>", "properties": MAPPED},
    ),
    "only new parquet files": Case([{"a.parquet": PARQUET}, {"b.parquet": PARQUET}], {"new": True}),
    "new contents of parquet": Case(
        [{"a.parquet": PARQUET}, {"b.parquet": PARQUET}], {"new": True, "new_by": "content"}
    ),
    "parquet that can be read": Case([{"a.parquet": PARQUET}], {"skip_bad_files": True}),
    "parquet without rows": Case([{"a.parquet": parquet([], NESTED), "b.parquet": PARQUET}]),
    "a column of nulls in parquet": Case([{"a.parquet": parquet([{"a": 1}] * 3, {"a": pa.int8(), "b": pa.string()})}]),
    "parquet by key": Case(
        [
            {"a.parquet": parquet([{"id": 1, "n": 1, "v": "a"}, {"id": 2, "n": 1}], KEYED)},
            {"b.parquet": parquet([{"id": 1, "n": 2, "v": "b"}, {"id": 3, "n": 0}], KEYED)},
        ],
        {"key": ["id"], "sequence_by": "n"},
    ),
    "parquet columns of other kinds": Case(
        [
            {"a.parquet": parquet(TYPED_ROWS, NESTED)},
            {"b.parquet": parquet(OTHER_ROWS, OTHER)},
            {"c.parquet": parquet(TYPED_ROWS, NESTED), "d.parquet": parquet(OTHER_ROWS, OTHER)},
        ]
    ),
    "parquet values that decide": Case(
        [
            {"a.parquet": parquet(DECIDING_ROWS[:2], {name: DECIDING[name][0] for name in DECIDING})},
            {"b.parquet": parquet(DECIDING_ROWS[2:], {name: DECIDING[name][1] for name in DECIDING})},
        ],
        created={"schema": "a double, b double, c bigint, d timestamp, e decimal(9,2), f float, g timestamp"},
    ),
    "hidden fields of parquet": Case(
        [{"a.parquet": PARQUET}, {"b.parquet": parquet(MORE_ROWS, MORE)}],
        {"mask": ["s", "r.b", "items.k", "N"], "exclude": ["raw", "r.a"]},
    ),
    "included fields of parquet": Case(
        [{"a.parquet": PARQUET}, {"b.parquet": parquet(MORE_ROWS, MORE)}], {"include": ["s", "R", "items"]}
    ),
    "parquet into fixed columns": Case(
        [{"a.parquet": parquet(FIXED_ROWS, {"id": pa.int64(), "p": pa.string(), "r": pa.struct({"a": pa.float64()})})}],
        created={"schema": "id int NOT NULL, p string, r struct<a: float>, n int", "partition_by": ["p"]},
    ),
    "parquet into a partition of numbers": Case(
        [{"a.parquet": parquet(FIXED_ROWS, {"id": pa.int64(), "p": pa.string(), "s": pa.binary()})}],
        {"exclude": ["s"]},
        created={"schema": "id smallint, p string", "partition_by": ["id"]},
    ),
    "csv without required fields": Case([{"a.csv": b"id,name\n1,x\n,y\n"}], created={"schema": "id string NOT NULL"}),
}


UNLIKE = "large plain text"
"""The case in which Spark cuts a file at other lines, so that the files of the table have other rows."""


OTHER_FILES = ("parquet in folders", "a small parquet file")
"""The cases in which Spark writes other files with the same rows."""


CONVERTED = (
    "parquet columns of other kinds",
    "parquet values that decide",
    "hidden fields of parquet",
    "parquet into fixed columns",
    "parquet into a partition of numbers",
    "names in any case in parquet",
    "fields with other names in parquet",
)
"""The cases in which Spark writes the files, which therefore have other sizes."""

UNFORESEEN = ("parquet into fixed columns", "parquet into a partition of numbers")
"""The cases in which a plan does not read the values that a fixed column cannot hold, on either engine."""


PLANNED_ON_SPARK = {*CASES} if TRIES_ALL else {*list(CASES)[::5]}
"""The cases in which Spark, too, plans each load before it runs."""


@pytest.mark.parametrize("name", CASES)
def test_both_engines_do_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = CASES[name]
    set_load_time(monkeypatch, datetime(2024, 5, 6, 7, 8, 9, 500_000))
    source = tmp_path / "in"
    engines: Mapping[str, Mapping[str, Any]] = {"spark": {"spark": spark}, "local": {"engine": "local"}}
    results: dict[str, list[Any]] = {engine: [] for engine in engines}
    # Spark copies no Parquet files whose records get fields from their paths, so that its files have other row groups.
    is_plain = not case.created and "key" not in case.options and name not in (UNLIKE, *OTHER_FILES, *CONVERTED)
    if case.created:  # once, since physical names of columns are random
        widen.create_table(tmp_path / "spark", **case.created)
        shutil.copytree(tmp_path / "spark", tmp_path / "local")
    for number, files in enumerate(case.loads):
        place = source if case.options.get("new") else source / str(number)
        for at, (path, content) in enumerate(files.items()):
            file = place / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            os.utime(file, (1_700_000_000 + at, 1_700_000_000 + at))
        for engine, arguments in engines.items():
            table = str(tmp_path / engine)
            is_planned = engine == "local" or name in PLANNED_ON_SPARK
            planned = widen.plan(place, table, **case.options, **arguments) if is_planned else None
            done = widen.ingest(place, table, verify=name not in UNPROVED, **case.options, **arguments)
            assert done.verification is None or done.verification.is_clean
            if planned is not None and name not in UNFORESEEN:
                assert (planned.hash, planned.is_empty) == (done.plan.hash, done.plan.is_empty)
            proof = done.verification if "key" in case.options or name in CONVERTED else None
            results[engine].append((comparable(done, is_plain=is_plain), done.plan.hash, proof))
    assert results["local"] == results["spark"]
    tables = [widen.Table(str(tmp_path / engine)) for engine in engines]
    assert str(tables[0].schema) == str(tables[1].schema)
    assert case.created or tables[0].schema == tables[1].schema
    assert_same(*(sorted_rows(table) for table in tables))
    if name not in (UNLIKE, *OTHER_FILES):
        assert stored(tmp_path / "local", has_sizes=is_plain) == stored(tmp_path / "spark", has_sizes=is_plain)
    kept = [tmp_path / f"{engine}_quarantine" for engine in engines]
    assert kept[0].exists() == kept[1].exists()
    if kept[0].exists():
        assert_same(*(sorted_rows(widen.Table(str(place))) for place in kept))
        replay_quarantines(
            spark, [*engines], tmp_path, has_random_names="delta.columnMapping.mode" in str(case.created)
        )


def replay_quarantines(spark: SparkSession, engines: Sequence[str], place: Path, *, has_random_names: bool) -> None:
    """Let the tables hold more than before, and move what they can hold to them."""
    results = []
    for engine, arguments in zip(engines, ({"spark": spark}, {"engine": "local"}), strict=True):
        table = widen.Table(str(place / engine))
        for column in table.schema:
            if not column.nullable:
                table.alter_column(column.name, nullable=True)
        done = widen.replay(place / f"{engine}_quarantine", place / engine, **arguments)
        results.append((done.replayed, done.left, "" if has_random_names else done.plan.hash))
    assert results[0] == results[1]
    assert_same(*(sorted_rows(widen.Table(str(place / engine))) for engine in engines))
    assert_same(*(sorted_rows(widen.Table(str(place / f"{engine}_quarantine"))) for engine in engines))


UNPROVED = {
    "parquet by key",
    "csv",
    "csv with types",
    "gzipped csv",
    "gzip",
    "a large array",
    "large and gzipped",
    "a large table of texts",
}
"""What only Spark proves."""


def test_both_engines_find_the_same_breaches_of_a_contract(spark: SparkSession, tmp_path: Path) -> None:
    required = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 5}}, "required": ["id", "p"]}
    files = {"a.json": FIXED, "b.json": LARGE, "c.json.gz": gzip.compress(MIXED, mtime=0), "s=1/d.parquet": PARQUET}
    files["e.parquet"] = parquet([{"m": [(1, "a"), (-2, None)]}], {"m": pa.map_(pa.int32(), pa.string())})
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
        reports = [
            widen.check_contract(tmp_path / name, required, **each) for each in ({"spark": spark}, {"engine": "local"})
        ]
        assert reports[0].to_value() == reports[1].to_value()
        assert reports[0].breaches


GENERATED_TYPES: Sequence[Callable[[random.Random, int], pa.DataType]] = (
    lambda draw, width: (pa.int8(), pa.int16(), pa.int32(), pa.int64())[min(width + draw.randrange(2), 3)],
    lambda _, width: (pa.float32(), pa.float64())[width > 0],
    lambda _, width: pa.decimal128(6 + 3 * width, 2),
    lambda *_: pa.string(),
    lambda *_: pa.large_string(),
    lambda *_: pa.dictionary(pa.int32(), pa.string()),
    lambda *_: pa.binary(),
    lambda *_: pa.bool_(),
    lambda *_: pa.date32(),
    lambda draw, _: pa.timestamp(draw.choice(("ms", "us")), "UTC"),
    lambda draw, _: pa.timestamp(draw.choice(("ms", "us"))),
)
"""Types by a number that grows from file to file, so that later files have wider ones."""


def generate_type(draw: random.Random, shape: int, width: int, depth: int = 0) -> pa.DataType:
    """Return the type of a field.

    Args:
        shape: What the field has in all files, but for its width.
    """
    kind = shape % (len(GENERATED_TYPES) + 3)
    if kind < len(GENERATED_TYPES) or depth > 1:
        return GENERATED_TYPES[kind % len(GENERATED_TYPES)](draw, width)
    inner = shape // 14
    if kind == len(GENERATED_TYPES):
        return pa.list_(generate_type(draw, inner, width, depth + 1))
    if kind == len(GENERATED_TYPES) + 1:
        return pa.map_(pa.string(), generate_type(draw, inner, width, depth + 1))
    names = [name for name in ("a", "b c", "é") if draw.random() < 0.7] or ["a"]
    return pa.struct({name: generate_type(draw, inner + len(name), width, depth + 1) for name in names})


def generate_value(draw: random.Random, data_type: pa.DataType) -> Any:
    if draw.random() < 0.2:
        return None
    if pa.types.is_struct(data_type):
        return {each.name: generate_value(draw, each.type) for each in data_type}
    if pa.types.is_map(data_type):
        return [(key, generate_value(draw, data_type.item_type)) for key in "xyz"[: draw.randrange(4)]]
    if pa.types.is_list(data_type):
        return [generate_value(draw, data_type.value_type) for _ in range(draw.randrange(4))]
    if pa.types.is_integer(data_type):
        return draw.randrange(-(2 ** (data_type.bit_width - 1)), 2 ** (data_type.bit_width - 1))
    if pa.types.is_floating(data_type):
        return draw.choice((0.0, -0.0, 1.5, 1e-7, 3.25e30, float("nan"), float("-inf"), draw.randrange(999) / 8))
    if pa.types.is_decimal(data_type):
        return Decimal(draw.randrange(-(10**data_type.precision) + 1, 10**data_type.precision)).scaleb(-2)
    if pa.types.is_boolean(data_type):
        return draw.random() < 0.5
    if pa.types.is_binary(data_type):
        return draw.randbytes(3)
    if pa.types.is_date(data_type):
        return date.fromordinal(draw.randrange(600_000, 900_000))
    if pa.types.is_timestamp(data_type):
        return datetime(1970, 1, 1) + timedelta(milliseconds=draw.randrange(-(10**13), 10**13))
    return draw.choice(("", "x", "é\n", '{"a": 1}', "2024-01-01", "7"))


SEEDS, SPARK_SEEDS = 6, {3}
"""The number of seeds in a run that is not asked for more, and those of them with values that only Spark converts."""


@pytest.mark.parametrize("seed", range(int(os.environ.get("WIDEN_SEEDS", SEEDS))))
def test_generated_parquet_is_the_same_on_both_engines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    shapes = {f"f{at}": draw.randrange(14 * 14 * 14) for at in range(draw.randrange(2, 9))}
    starts: list[str] = []
    results: dict[str, list[Any]] = {"spark": [], "local": []}
    for number in range(2):
        place = tmp_path / "in" / str(number)
        place.mkdir(parents=True)
        for at in range(draw.randrange(1, 4)):
            # Some files have a field of another kind, which Spark has to convert.
            changed = {} if draw.random() < 0.8 else {draw.choice([*shapes]): draw.randrange(14)}
            given = [name for name in shapes if draw.random() < 0.8] or [*shapes]
            columns = {name: generate_type(draw, (shapes | changed)[name], number) for name in given}
            count = draw.choice((0, 3, 250, 1_200))
            rows = [{name: generate_value(draw, columns[name]) for name in columns} for _ in range(count)]
            (place / f"{at}.parquet").write_bytes(parquet(rows, columns, row_group_size=draw.choice((100, 10_000))))
            os.utime(place / f"{at}.parquet", (1_700_000_000, 1_700_000_000))
        for name in results:
            here = LocalSession(Engine.AUTO, lambda reason: starts.append(reason) or spark)
            chosen: Any = spark if name == "spark" else here
            monkeypatch.setattr(engine_module, "SESSION_WINS", name == "spark")
            table = str(tmp_path / name)
            try:
                is_planned = name == "local" or number == seed % 2 or TRIES_ALL
                planned = widen.plan(place, table, spark=chosen) if is_planned else None
                done = widen.ingest(place, table, verify=True, spark=chosen)
            except widen.WidenError as error:
                results[name].append(str(error).replace(table, "t"))
                continue
            assert done.verification is not None
            assert done.verification.is_clean
            assert planned is None or planned.hash == done.plan.hash
            results[name].append((comparable(done, is_plain=False), done.plan.hash, str(done.verification)))
    assert results["local"] == results["spark"], starts
    if (tmp_path / "spark").exists():
        tables = [widen.Table(str(tmp_path / name)) for name in results]
        assert tables[0].schema == tables[1].schema
        assert_same(*(sorted_rows(table) for table in tables))
        here, there = (stored(tmp_path / name, has_sizes=False) for name in ("local", "spark"))
        # Where values are converted, Spark writes the files: other records together, and more counts of nulls.
        assert here[1:] == there[1:]
        assert bounds(here) == bounds(there) or count_rows(here) != count_rows(there)
    assert seed >= SEEDS or bool(starts) == (seed in SPARK_SEEDS), starts


ICEBERG_CASES = {
    "names in any case": (CASED, {}),
    "kinds": ([MIXED, FIXED], {}),
    "partitions": ([FIXED, FIXED], {"partition_by": ["p"]}),
    "partitions by transforms": ([KEYS, KEYS], {"partition_by": ["day(at)", "bucket(4, i)"], "detect_dates": ["at"]}),
    "a hidden field": ([MIXED], {"mask": ["at"]}),
}
"""The loads of a table, and their options."""


@pytest.mark.parametrize("name", ICEBERG_CASES)
def test_both_engines_do_the_same_for_iceberg_tables(spark: SparkSession, tmp_path: Path, name: str) -> None:
    loads, options = ICEBERG_CASES[name]
    engines: Mapping[str, Mapping[str, Any]] = {"spark": {"spark": spark}, "local": {"engine": "local"}}
    results: dict[str, list[Any]] = {engine: [] for engine in engines}
    rows, kept, metrics = [], [], []
    for engine, arguments in engines.items():
        catalog, place = str(tmp_path / f"{engine}.db"), tmp_path / "in"
        where = {"to": "iceberg", "catalog": catalog}
        for number, content in enumerate(loads):
            file = place / str(number) / "a.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            planned = widen.plan(file, "a.t", **where, **options, **arguments)
            done = widen.ingest(file, "a.t", verify=True, **where, **options, **arguments)
            assert done.verification is not None
            assert done.verification.is_clean
            if name not in UNFORESEEN:
                assert (planned.hash, planned.is_empty) == (done.plan.hash, done.plan.is_empty)
            results[engine].append(
                (done.records, done.quarantined, done.corrupt, str(done.verification), done.plan.hash)
            )
        table = to_table_name("a.t", catalog).load()
        rows.append(table.scan().to_arrow().to_pylist())
        metrics.append([_metrics(table, each.file) for each in table.scan().plan_files()])
        quarantine = to_table_name("a.t_quarantine", catalog).find()
        if quarantine is not None:
            columns = quarantine.scan().select("text", "file", "position", "reason")
            kept.append(columns.to_arrow().to_pylist())
            again = widen.replay("a.t_quarantine", "a.t", catalog=catalog, **arguments)
            results[engine].append((again.replayed, again.left))
    assert results["local"] == results["spark"]
    assert_same(*rows)
    assert not kept or len(kept) == len(engines)
    assert_same(*kept or ([], []))
    if "partition_by" not in options:  # Spark may spread the rows of a partition among more files
        assert sorted(metrics[0]) == sorted(metrics[1])


def _metrics(table: Any, file: Any) -> str:
    counts = (file.value_counts, file.null_value_counts, file.nan_value_counts, file.lower_bounds, file.upper_bounds)
    return repr((table.metadata.format_version, file.record_count, *(sorted(each.items()) for each in counts if each)))


def comparable(done: Any, *, is_plain: bool) -> dict[str, Any]:
    value: dict[str, Any] = done.to_value()
    different = {"quarantine", *(() if is_plain else ("files", "bytes"))}
    return {name: item for name, item in value.items() if name not in different}


def sorted_rows(table: Any) -> list[dict[str, Any]]:
    rows = [drop_time(row) for row in table.to_arrow().to_pylist()]
    return sorted(rows, key=repr)


def drop_time(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "kept_at"}


def stored(table: Path, *, has_sizes: bool) -> list[Any]:
    """What the log says of the files of a table, and of the loads.

    Args:
        has_sizes: Whether the tasks write the files on both engines, so that these are equal, too.
    """
    snapshot = open_snapshot(LogStore(str(table)))
    names = {each.metadata.get(PHYSICAL_NAME, each.name): each.name for _, each in fields(snapshot.schema)}
    if not has_sizes:
        return [_statistics(snapshot, names), str(snapshot.protocol), *_loads(table)]
    adds = to_adds(snapshot.files())
    return [
        sorted((add.size, str(add.stats), str(add.tags)) for add in adds),
        snapshot.properties,
        str(snapshot.protocol),
        *_loads(table),
    ]


def bounds(files: list[Any]) -> list[str]:
    """Return the statistics of each file without counts of nulls, of what `stored` returns."""
    return sorted(re.sub("'nullCount'.*", "", each) for each in files[0])


def count_rows(files: list[Any]) -> list[str]:
    """Return how many rows each file has, of what `stored` returns."""
    return sorted(re.findall("'numRecords': ([0-9]+)", " ".join(files[0])))


def _loads(table: Path) -> list[Any]:
    return [
        (load.version, [file.path for file in load.files], load.records) for load in widen.Table(str(table)).loads()
    ]


def _statistics(snapshot: Snapshot, names: Mapping[str, str]) -> list[str]:
    """The partitions and statistics of a version, whatever the sizes and physical names are."""
    physical = re.compile("|".join(map(re.escape, names)) or "$.")
    values = ((add.partition_values, json.loads(str(add.stats))) for add in to_adds(snapshot.files()))
    adds = [(sorted(partition.items(), key=repr), statistics) for partition, statistics in values]
    return sorted(physical.sub(lambda found: names[found[0]], repr(each)) for each in adds)


ROWS = """
  SELECT CAST(id AS int) AS id, id * 1.25 AS price, CAST(id * 1.25 AS decimal(20, 9)) / 1000000000 AS small,
    pow(10D, id - 12) * IF(id % 2 = 0, -1, 1) AS d, CAST(pow(2D, id - 12) AS float) AS f,
    IF(id = 3, double('NaN'), IF(id = 4, double('Infinity'), IF(id = 5, -0D, 1.5D))) AS odd,
    timestamp_micros(id * 86399999999 - 1000000000000000) AS at, CAST(timestamp_micros(id) AS timestamp_ntz) AS plain,
    date'0001-01-01' + CAST(id * 1000 AS int) AS day, unhex('0A0B') AS bytes, id % 2 = 0 AS flag,
    IF(id = 2, NULL, concat('q"\\\\ é\n', id)) AS text, IF(id % 3 = 0, NULL, map('b', id, 'a', NULL)) AS m,
    IF(id % 4 = 0, NULL, array(named_struct('x', id, 'y', CAST(NULL AS string)), NULL)) AS items,
    IF(id % 5 = 0, NULL, named_struct('n', IF(id = 6, NULL, id))) AS deep
  FROM range(1, 25)"""

CONDITIONS = (
    *("id < 5", "id >= 5 AND id <> 7", "NOT (id = 3 OR text IS NULL)", "flag", "flag = true", "id BETWEEN 3 AND 6"),
    *("text = 'x' OR id IN (1, 2)", "odd > 1", "odd >= 1.5", "odd = 0", "odd < 2", "odd <> 1.5", "f > 0.3", "d <= -1"),
    *("price = 2.5", "price > 7", "day > DATE '0020-01-01'", "deep.n > 6", "NOT (deep.n > 6)", "deep.n IS NULL"),
    *("text LIKE 'q%'", "text LIKE '%_é%' AND id > 3", "NOT (text NOT LIKE '%1_') OR id = 2", "text LIKE '%\n1'"),
    *("deep IS NULL", "at < TIMESTAMP '1938-05-01 00:00:00Z'", "small > 0.00000001", "id = 99999999999"),
    *("id % 3 = 1", "(5 - id) % 4 < -1", "-id % 7 + 3 = deep.n % 5", "NOT (deep.n - 12) % 5 >= 0 OR text LIKE '%2_'"),
    *("mod(id, 4) IN (1)", "id % 5 <> 0 AND deep.n * 3000000000 > id", "deep.n <= id + 1 - 1", "id = 2.0"),
)


def test_rows_are_shown_as_spark_shows_them(spark: SparkSession, tmp_path: Path) -> None:
    """Spark evaluates the conditions over rows that it holds, and shows each row once for each selection."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    table = widen.create_table(tmp_path / "t", spark.sql(ROWS).schema)
    table.append(spark.sql(ROWS))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        frame = table.read(spark=spark)
        assert frame.columns == table.read(CONDITIONS[0], spark=spark).columns == [*table.schema.names]
        answers = frame.select("id", *(F.expr(where) for where in CONDITIONS)).collect()
        shown = {
            select: dict(zip(*lines_with_ids(frame.select(*select) if select else frame), strict=True))
            for select in ((), ("text", "id"))
        }
        for at, where in enumerate((None, *CONDITIONS)):
            matching = [row.id for row in answers if at == 0 or row[at] is True]
            for select, lines in shown.items():
                try:
                    columns, rows = query_locally(table.snapshot, where, select)
                except Unsupported:
                    assert where in ("flag", "id = 99999999999", "deep IS NULL", "mod(id, 4) IN (1)"), where
                    continue
                assert list(columns.names) == [*(select or table.schema.names)]
                assert sorted(json_lines(columns, rows)) == sorted(lines[id] for id in matching), where
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def lines_with_ids(frame: DataFrame) -> tuple[list[int], list[str]]:
    """Return the ids of rows, and how Spark shows these rows."""
    lines = [*_lines(frame, None)]
    return [json.loads(line)["id"] for line in lines], lines


EXPRESSIONS = """
    ID; deep.n; deep.N AS k; items[0].x AS x; count(*); count(text) AS texts; count(1) AS n; id + 1 AS e
    id - price AS e; id * price AS e; id * 2.50 AS e; id / 4 AS e; -price AS e; -d AS e
    -odd AS e; id + d AS e; d * odd AS e; f + f AS e; f * f - f AS e; d / 3 AS e; id + 3000000000 AS e
    (id + 1) * 2 - id AS e; deep.n + 1 AS e; id + price * 2 AS e; 1 AS e; 0.05 AS e; CAST(id AS string) AS e
    CAST(d AS string) AS e; CAST(f AS string) AS e; CAST(odd AS string) AS e; CAST(price AS string) AS e
    CAST(day AS string) AS e; CAST(plain AS string) AS e; CAST(flag AS string) AS e; CAST(id AS tinyint) AS e
    CAST(id AS decimal(5,1)) AS e; CAST(id AS float) AS e; CAST(flag AS int) AS e; CAST(price AS double) AS e
    id::bigint AS e; CAST(day AS timestamp_ntz) AS e; CAST(CAST(d AS float) AS double) AS e; coalesce(text, 'none') AS e
    coalesce(deep.n, id) AS e; coalesce(deep.n, 0) AS e; text AS T; deep AS e; deep IS NULL AS e; NOT flag AS e
    text IS NOT NULL AND flag AS e; concat(text, '!') AS e; 'a' AS e; id % 2 AS e; -id % 3 AS e; deep.n % id AS e
    id % 3000000000 AS e; id = 1 AS e; id <> deep.n AS e; id + 1 >= 3000000000 AS e; id % 5 < deep.n - 2 AS e
"""
"""What this process evaluates."""

OTHER_EXPRESSIONS = """
    id + 1; id + 2147483647 AS e; id * 9223372036854775807 AS e; id / 0 AS e
    id % -2 AS e; id % 0 AS e; price % 2 AS e; price / 3 AS e; price = 1 AS e; d < 1 AS e; id <=> 1 AS e
    CAST(id + 300 AS tinyint) AS e; CAST(text AS int) AS e; CAST(at AS string) AS e; CAST(d AS int) AS e
    items[-1] AS e; element_at(items, 1) AS e; m['b'] AS e; upper(text) AS e; *; id AS
    id + f AS e; price + d AS e; id + '1' AS e; coalesce(id, text) AS e; count(DISTINCT id) AS e
    DISTINCT id; id, text; id FROM t; 1e3 AS e; NULL AS e; price * -5 AS e; price * price AS e
"""
"""What it leaves to Spark."""


def expressions_of(text: str) -> list[str]:
    return re.split(r";\s|\n\s*", text.strip())


def test_expressions_have_the_values_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    table = widen.create_table(tmp_path / "t", spark.sql(ROWS).schema)
    table.append(spark.sql(ROWS))
    for select in expressions_of(OTHER_EXPRESSIONS):
        with pytest.raises(Unsupported):
            pytest.fail(f"{select}: {query_locally(table.snapshot, None, [select])}")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        # One job for all of them, but for those that count.
        for kind in (False, True):
            selects = [each for each in expressions_of(EXPRESSIONS) if ("count(" in each) == kind]
            frames = table.read("id <> 7", spark=spark).selectExpr(*selects)
            names = frames.columns
            schema = as_nullable(from_spark(frames.schema))
            numbered = frames.toDF(*(f"c{at}" for at in range(len(names))))
            wanted = [json.loads(line) for line in _lines(numbered, None)]
            for at, select in enumerate(selects):
                columns, rows = query_locally(table.snapshot, "id <> 7", [select])
                assert list(columns.names) == [names[at]], select
                assert columns.fields[0].type == schema.fields[at].type, select
                found = [json.loads(line)[names[at]] for line in json_lines(columns, rows)]
                expected = [row[f"c{at}"] for row in wanted]
                assert sorted(map(repr, found)) == sorted(map(repr, expected)), select
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


SPLIT = (
    '{"id": 1, "v": 1, "w": 1.5, "b": true, "t": "2024-05-06T07:08:09.01Z", "r": {"x": 1, "y": "a"}}\n',
    '{"id": 2, "v": 2.5, "w": "two", "b": "yes", "t": "soon", "r": {"x": "one"}, "e": 5}\n',
    '{"id": 3, "v": "many", "w": 12345678901, "b": 7, "t": 17, "r": null, "e": "2024-05-06"}\n{"id": 4}\n',
    '{"id": 5, "v": 1e20, "w": true, "b": 0.001, "t": "2024-05-06", "r": {"y": 5, "z": {"q": 1}}, "e": 1.25}\n',
)
"""Records whose fields have several columns."""


def test_fields_of_several_columns_have_the_values_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    for number, text in enumerate(SPLIT):
        (tmp_path / f"{number}.json").write_text(text)
        widen.ingest(tmp_path / f"{number}.json", tmp_path / "t", detect_dates=["t", "e"], engine="local")
    table = widen.Table(str(tmp_path / "t"))
    assert len(table.schema.names) > 10
    frame = table.read(spark=spark, unified=True)
    expected = sorted(_lines(frame, None))
    columns, rows = query_locally(table.snapshot, unified=True)
    assert list(columns.names) == frame.columns
    assert sorted(json_lines(columns, rows)) == expected
    columns, rows = query_locally(table.snapshot, "id > 1", ["v AS value", "r.x"], unified=True)
    chosen = table.read("id > 1", spark=spark, unified=True).selectExpr("v AS value", "r.x")
    assert sorted(json_lines(columns, rows)) == sorted(_lines(chosen, None))


def test_times_are_shown_in_utc_with_all_digits(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(tmp_path / "t", "at timestamp, plain timestamp_ntz")
    values = "timestamp'2024-05-06 07:08:09.123456Z' AS at, timestamp_ntz'2024-05-06 07:08:09.000001' AS plain"
    table.append(spark.sql(f"SELECT {values}"))
    expected = ['{"at":"2024-05-06T07:08:09.123456Z","plain":"2024-05-06T07:08:09.000001"}']
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert list(_lines(table.read(spark=spark), None)) == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert list(json_lines(*query_locally(table.snapshot, None, ()))) == expected


def test_rows_that_tests_read_here_are_those_that_spark_collects(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(tmp_path / "t", spark.sql(ROWS).schema)
    table.append(spark.sql(ROWS))
    frame = table.read(spark=spark)
    with rows_read_here():
        here = table.read(spark=spark)
        filtered = table.read("id > 20", spark=spark)
    assert isinstance(here, RowsHere)
    assert_same(here.collect(), frame.collect())
    assert sorted(filtered.where("flag = true").select("id").collect()) == [(22,), (24,)]
    assert sorted(here.where("id > 20").select("text", "id").collect()) == sorted(
        frame.where("id > 20").select("text", "id").collect()
    )
    assert here.selectExpr("max(id)").collect() == [(24,)]
    assert (here.count(), filtered.count()) == (24, 4)
    assert here.schema == frame.schema


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_changes_that_tests_read_here_are_those_that_spark_collects(
    spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": vectors, **MAPPED}
    table = widen.create_table(
        tmp_path / "t", "p string, id int, at timestamp", partition_by=["p"], properties=properties
    )
    table.append(spark.sql("SELECT 'ab' p, int(id) id, timestamp_seconds(id) at FROM range(9)").coalesce(1))
    table.update({"id": "id + 100", "p": "'c'"}, "id = 3", spark=spark)
    table.delete("id < 3", spark=spark)
    table.delete("id > 4", spark=spark)
    frame = table.changes(1, spark=spark)
    with rows_read_here():
        here = table.changes(1, spark=spark)
    assert isinstance(here, RowsHere)
    assert (here.schema, here.count()) == (frame.schema, 9 + 2 + 3 + 5)
    assert_same(here.collect(), frame.collect())
    dropped = here.drop("_commit_timestamp", "at")
    assert isinstance(dropped, RowsHere)
    assert_same(dropped.collect(), frame.drop("_commit_timestamp", "at").collect())
    assert here.where("id = 3").count() == 2


@pytest.mark.parametrize("name", CONVERTED)
def test_spark_proves_what_this_process_has_converted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(engine_module, "SESSION_WINS", False)
    case, table = CASES[name], str(tmp_path / "t")
    if case.created:
        widen.create_table(table, **case.created)
    for number, files in enumerate(case.loads):
        for path, content in files.items():
            file = tmp_path / "in" / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        reasons: list[str] = []
        here: Any = LocalSession(Engine.AUTO, lambda reason, seen=reasons: seen.append(reason) or spark)
        done = widen.ingest(tmp_path / "in" / str(number), table, verify=True, spark=here, **case.options)
        assert done.verification is not None
        assert done.verification.is_clean, str(done.verification)
        assert not reasons or "compare" in reasons[0], reasons
