"""Small verified loads that together reach what decides about rows, for `support.mutant_sweep`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Loads:
    """A table, and what is loaded into it, one source after the other.

    Args:
        words: Arguments of every load.
        batches: For each load the name of the file, and its content.
        ddl: The columns of a Delta table that exists before; None if the first load creates it.
        partition_by: The columns by which that table is partitioned.
    """

    words: Mapping[str, Any]
    batches: Sequence[tuple[str, Any]]
    ddl: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    table_format: str = "delta"


def lines(*records: Any) -> str:
    return "".join(each if isinstance(each, str) else json.dumps(each) + "\n" for each in records)


DRIFTING = [
    {
        "s": f"text {number}",
        "other": f"word {number}",
        "n": number,
        "k": 1000 + number,
        "d": number + 0.25,
        "b": number % 2 == 0,
        "r": {"x": number, "y": {"z": f"deep {number}"}},
        "list": [number, number + 1],
        "items": [{"sku": f"A{number}", "q": number}, {"sku": "B", "q": 2}],
        "m": {"Key": number, "key": 7},
        "j": {"a": [number, 1.5]},
        "price": number + 0.5,
        "at": f"2024-05-{number + 1:02}T10:00:00Z",
        "day": f"2024-05-{number + 1:02}",
        "secret": f"salary {number}",
        "hidden": number,
        "drift": number if number % 2 else f"drifts {number}",
        "A": number,
        "a": -number,
        "e": [[], [number]],
        "mixed": [1, "one", 2.5, True, None, "2024-05-01T00:00:00Z", [1], {"x": 1}][number],
    }
    for number in range(8)
]
ODD = [
    '{"s":"exact","d":0.1000000000000000055,"n":9007199254740993,"list":[],"r":{"x":null},"secret":12}\n',
    '{"s":"exact too","j":1e5,"day":"no day","rest":[1.50],"m":{"k":null},"drift":[1,"x"]}\n',
    '{"s":"midnight","day":"2024-05-01T00:00:00Z","at":"2024-05-01T12:00:00+02:00","price":1.005}\n',
    '{"s":"twice","s":"twice"}\n',
    "not json\n",
    '{"s":"big","n":123456789012345678901234567890,"d":1e400,"b":1,"r":"no record","list":5}\n',
    '{"S":"other case","N":5,"e":[[1.5],null],"items":[null,{"sku":1}],"m":{}}\n',
]
PLAIN = [
    {
        "id": number,
        "name": f"name {number}",
        "price": [72.7, 0.1, 5e-324, 123456789.25, 1e21, 0.0001][number % 6],
        "at": f"2024-05-{number + 1:02}T23:30:00Z",
        "point": [float(number), 47.5],
        "tags": [["a", "b"], [], ["a,b"], [None], ["", ""], ["null"]][number % 6],
        "lines": [{"sku": f"A{number}", "n": number}, {"sku": "B", "n": None}][: number % 3],
        "pair": {"left": {"x": number}, "right": {"x": 100 + number}},
        "gone": None if number % 2 else "null",
    }
    for number in range(12)
]
RULES: Mapping[str, Any] = {
    "evolve": "split",
    "pins": {
        "m": "map<string,bigint>",
        "j": "json",
        "price": "decimal(10,2)",
        "at": "timestamp",
        "rest": "freeze",
        "seen": "timestamp",
    },
    "detect_dates": ["day"],
    "epoch_unit": {"seen": "s"},
    "mask": ["secret", "r.y"],
    "exclude": ["hidden"],
}

KEYED = {"key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}
FIRST = [
    {"id": 1, "at": 5, "v": "a", "op": "u"},
    {"id": 1, "at": 3, "v": "late", "op": "u"},
    {"id": 2, "at": 5, "v": "b", "op": "u"},
    {"id": 3, "at": 1, "v": "c", "op": "u"},
    {"id": 4, "at": 9, "v": "gone", "op": "d"},
    {"id": 5, "at": 2, "v": "e", "op": "u"},
    {"id": 6, "at": 2, "v": "f", "op": "u"},
]
SECOND = [
    {"id": 1, "at": 7, "v": "a2", "op": "u"},
    {"id": 2, "at": 4, "v": "late", "op": "u"},
    {"id": 3, "at": 2, "v": None, "op": "d"},
    {"id": 4, "at": 8, "v": "late", "op": "u"},
    {"id": 5, "at": 2, "v": "e2", "op": "u"},
    {"id": 7, "at": 1, "v": "g", "op": "u"},
    {"id": 7, "at": 2, "v": "g2", "op": "u", "more": 1.5},
    {"id": None, "at": 1, "v": "no key", "op": "u"},
    {"id": 8, "v": "no order", "op": "u"},
    {"id": 9, "at": 1, "v": "h", "op": "d"},
    "not json\n",
]
THIRD = [
    {"id": 3, "at": 1, "v": "late", "op": "u"},
    {"id": 3, "at": 2, "v": "same time", "op": "u"},
    {"id": 4, "at": 10, "v": "back", "op": "u"},
    {"id": 6, "at": 3, "v": "f", "op": "d"},
    {"id": 6, "at": 4, "v": "f again", "op": "u"},
    {"id": 1, "at": 6, "v": "between", "op": "u"},
    {"id": 1, "at": 9, "v": "a3", "op": "u"},
    {"id": 9, "at": 2, "v": "after its deletion", "op": "u"},
    {"id": 10, "at": 2.5, "v": "wider", "op": "u"},
]
FOURTH = [
    {"id": 10, "at": 2, "v": "late", "op": "u"},
    {"id": 2, "at": 6, "v": "b", "op": "d"},
    {"id": 1, "at": 9, "v": "a3", "op": "u"},
]
KEYED_BATCHES = [(f"{at}.json", lines(*each)) for at, each in enumerate((FIRST, SECOND, THIRD, FOURTH))]

PARTIAL = [
    lines(
        {"id": 1, "at": 1, "a": 1, "b": {"x": 1, "y": "one"}}, {"id": 2, "at": 1, "a": 2}, {"id": 4, "at": 1, "a": 4}
    ),
    lines(
        {"id": 1, "at": 2, "b": {"y": "two"}},
        {"id": 1, "at": 3, "a": None, "c": [1]},
        {"id": 2, "at": 0, "a": 9},
        {"id": 3, "at": 1, "c": [2]},
        {"id": 4, "at": 2, "op": "d"},
    ),
    lines({"id": 4, "at": 3, "c": [3]}, {"id": 3, "at": 2, "a": 6}, {"id": 5, "at": 1, "op": "d"}),
]


def event(kind: str, key: int, at: int, value: object = None, **more: Any) -> dict[str, Any]:
    row = {"id": key, "v": value, **more}
    images = {"before": row if kind == "d" else None, "after": None if kind == "d" else row}
    source = {"connector": "mysql", "file": "b.1", "pos": at, "row": 0, "ts_ms": at}
    return {"op": kind, "ts_ms": at, "source": source, **images}


EVENTS = [
    lines(event("c", 1, 1, "a"), event("r", 2, 2, "b"), event("c", 3, 3, "c"), event("c", 4, 4, "x")),
    lines(
        event("u", 1, 9, "a2"),
        event("u", 1, 8, "a1"),
        event("d", 2, 7),
        event("c", 5, 10, "e"),
        {"op": "?"},
        event("u", 4, 3, "late"),
    ),
    lines(event("c", 2, 6, "late"), event("u", 3, 12, "c2", more=[1]), event("d", 5, 11)),
]
KINDS = [
    lines(
        {"id": 1, "k": "a", "at": "2024-05-01T10:00:00Z", "v": 1},
        {"id": "1", "k": "a", "at": "2024-05-01T10:00:00Z", "v": 2},
        {"id": 2, "k": "b", "at": "2024-05-02T10:00:00Z", "v": 3},
    ),
    lines(
        {"id": 1, "k": "a", "at": "2024-05-01T12:00:00+01:00", "v": 4},
        {"id": "1", "k": "a", "at": "2024-05-01T09:00:00Z", "v": 5},
        {"id": 2.5, "k": "b", "at": "2024-05-02T10:00:00Z", "v": 6},
        {"id": 2, "k": "B", "at": "2024-05-02", "v": 7},
    ),
    lines(
        {"id": 2.0, "k": "b", "at": "2024-05-03T10:00:00Z", "v": 8},
        {"id": True, "k": "b", "at": "2024-05-03T10:00:00Z", "v": 9},
        {"id": 2.50, "k": "b", "at": "2024-05-03T10:00:00.000001Z", "v": None},
    ),
]
ORDERED = [
    lines({"id": 1, "n": "b", "v": 1}, {"id": 2, "n": "a", "v": 2}, {"id": 3, "n": "x", "v": 3, "old": True}),
    lines({"id": 1, "n": "ba", "v": 4}, {"id": 2, "n": "A", "v": 5}, {"id": 3, "n": "y", "v": None, "old": True}),
    lines({"id": 3, "n": "xz", "v": 6}, {"id": 2, "n": "b", "v": 7}, {"id": 1, "n": 5, "v": 8}),
]
TEXTS_OF_CSV = [
    "id,name,price,day,flag,empty,long\n1,a,1.50,2024-05-01,true,,12345678901234567890\n"
    '2,"b, c",2,2024-05-02,false,,1\n3,"d""e",,no day,1,"",-5\n',
    "id,name,price,more\n4,x,9.99,1\n5,,abc,2\n6,y\n7,z,1,2,3\n",
]


def typed(number: int) -> pa.Table:
    day = datetime(2024, 5, 1 + number, 10, 30, 0, 123456, tzinfo=timezone.utc)
    rows = [
        {
            "id": at + 10 * number,
            "small": at,
            "f": at + 0.1,
            "d": at / 3,
            "name": f"n{at}",
            "dec": Decimal(at) / 4 + number,
            "day": date(2024, 5, 1 + at),
            "at": day + timedelta(hours=at),
            "bytes": bytes([at, 255 - at]),
            "flag": at % 2 == 0,
            "r": {"x": at, "y": f"in {at}"} if at != 2 else None,
            "list": [at, None, 7][: at + 1],
            "items": [{"q": at, "p": 0.5}, {"q": None, "p": -0.0}][: at % 3],
            "m": [("k", at), ("K", 2)],
            "secret": f"s{at}",
            "hidden": at,
        }
        for at in range(4)
    ]
    schema = pa.schema(
        {
            "id": pa.int64() if number else pa.int32(),
            "small": pa.int16(),
            "f": pa.float32(),
            "d": pa.float64(),
            "name": pa.string(),
            "dec": pa.decimal128(10, 2),
            "day": pa.date32(),
            "at": pa.timestamp("us", "UTC"),
            "bytes": pa.binary(),
            "flag": pa.bool_(),
            "r": pa.struct({"x": pa.int32(), "y": pa.string()}),
            "list": pa.list_(pa.int32()),
            "items": pa.list_(pa.struct({"q": pa.int64(), "p": pa.float64()})),
            "m": pa.map_(pa.string(), pa.int32()),
            "secret": pa.string(),
            "hidden": pa.int32(),
        }
    )
    return pa.Table.from_pylist(rows, schema=schema)


def changed(number: int) -> pa.Table:
    """Return rows whose columns have other types than those of `typed`."""
    rows = typed(number)
    return pa.table(
        {
            "id": rows["id"].cast(pa.int64()),
            "small": rows["name"],
            "f": rows["d"],
            "d": pa.array([Decimal("0.10"), Decimal("2.55"), None, Decimal("99999999.99")], pa.decimal128(10, 2)),
            "name": pa.array([1, 2, None, 4]),
            "dec": pa.array([Decimal("1.2345"), None, Decimal("7.0000"), Decimal("123456.0001")], pa.decimal128(20, 4)),
            "day": rows["at"],
            "at": rows["day"],
            "flag": pa.array([1, 0, None, 2], pa.int32()),
            "r": pa.array([{"x": 2**40, "z": 1.5}, None, {"x": 1, "z": None}, {"x": None, "z": 2.0}]),
            "list": pa.array([[1.5], [], None, [None, 2.0]]),
            "secret": pa.array([1, 2, 3, None]),
            "new": rows["items"],
        }
    )


KEYED_CSV = [
    (
        "0.csv",
        "id,at,v,op,dec\n1,2024-05-01T00:00:05Z,a,u,1.50\n1,2024-05-01T00:00:04Z,b,u,\n2,2024-05-01T00:00:05Z,c,u,\n",
    ),
    (
        "1.csv",
        "id,at,v,op,dec\n1,2024-05-01T00:00:04Z,late,u,\n2,2024-05-01T00:00:06Z,,d,\n3,2024-05-01T00:00:01Z,d,u,2.25\n",
    ),
    (
        "2.csv",
        "id,at,v,op,dec\n2,2024-05-01T00:00:05Z,late,u,\n3,2024-05-01T00:00:02Z,d2,u,\n,2024-05-01T00:00:02Z,x,u,\n",
    ),
]
FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
KEYED_DDL = "id BIGINT, at DOUBLE, v STRING, op STRING"

LOADS: dict[str, Loads] = {
    "json": Loads(
        {"evolve": "split"},
        [("0.json", lines(*PLAIN)), ("1.json", lines(*PLAIN[:3], {"id": 2**40, "price": "x", "tags": 5}))],
    ),
    "json with rules": Loads(
        {**RULES, "source_columns": True},
        [("0.json", lines(*DRIFTING)), ("1.json", lines(*ODD)), ("2.json", lines(*DRIFTING[:4], *ODD[:3]))],
    ),
    "json freeze": Loads(
        {"evolve": "freeze", "mask": ["secret"]},
        [("0.json", lines(*DRIFTING, *ODD)), ("1.json", lines(*ODD[:3]))],
        ddl="s STRING, n INT, d DOUBLE, list ARRAY<INT>, r STRUCT<x: INT, y: STRUCT<z: STRING>>, secret STRING",
    ),
    "json checks": Loads(
        {},
        [
            (
                "0.json",
                lines(
                    {"id": 1, "p": "a", "n": 5},
                    {"id": None, "p": "b", "n": 6},
                    {"id": 2, "p": "a", "n": -1},
                    {"id": 3, "p": None, "n": 7},
                    {"id": "x", "p": "c", "n": 8},
                    {"id": 4, "p": "c", "n": None},
                ),
            )
        ],
        ddl="id BIGINT NOT NULL, p STRING, n INT",
        properties={"delta.constraints.positive": "n > 0"},
    ),
    "json partitions": Loads(
        {"evolve": "split"},
        [
            (
                "0.json",
                lines({"id": 1, "p": "a b", "day": 1}, {"id": 2, "p": None, "day": 2}, {"id": 3, "p": "a b", "day": 1}),
            ),
            ("1.json", lines({"id": 4, "p": "a/b", "day": 1}, {"id": 5, "p": 7, "day": 3}, {"id": 6, "day": "x"})),
        ],
        ddl="id BIGINT, day INT, p STRING, v STRING",
        partition_by=["day", "p"],
    ),
    "json iceberg": Loads(
        {**RULES, "partition_by": ["b"]},
        [("0.json", lines(*DRIFTING)), ("1.json", lines(*ODD))],
        table_format="iceberg",
    ),
    "csv": Loads(
        {"detect_types": True, "source_columns": True, "mask": ["name"]},
        [(f"{at}.csv", text) for at, text in enumerate(TEXTS_OF_CSV)],
    ),
    "csv texts": Loads(
        {"evolve": "split", "exclude": ["flag"]}, [(f"{at}.csv", text) for at, text in enumerate(TEXTS_OF_CSV)]
    ),
    "parquet": Loads({"source_columns": True}, [("0.parquet", typed(0)), ("1.parquet", typed(1))]),
    "parquet rules": Loads(
        {"mask": ["secret", "r.y"], "exclude": ["hidden", "r.x"], "evolve": "split", "pins": {"dec": "decimal(12,4)"}},
        [("0.parquet", typed(0)), ("1.parquet", changed(1)), ("2.parquet", typed(1))],
    ),
    "parquet iceberg": Loads(
        {"evolve": "split"}, [("0.parquet", typed(0)), ("1.parquet", changed(1))], table_format="iceberg"
    ),
    "parquet checks": Loads(
        {},
        [("0.parquet", typed(0)), ("1.parquet", changed(0))],
        ddl="id BIGINT NOT NULL, small INT, dec DECIMAL(10,2), name STRING",
        properties={"delta.constraints.c": "small < 3"},
    ),
    "keys": Loads({**KEYED, "source_columns": True}, KEYED_BATCHES),
    "keys iceberg": Loads({**KEYED, "source_columns": True}, KEYED_BATCHES, table_format="iceberg"),
    "keys vectors": Loads(KEYED, KEYED_BATCHES, ddl=KEYED_DDL, properties=VECTORS),
    "keys feed": Loads(KEYED, KEYED_BATCHES, ddl=KEYED_DDL, properties=FEED),
    "keys history": Loads({**KEYED, "history": True}, KEYED_BATCHES),
    "keys history iceberg": Loads({**KEYED, "history": True}, KEYED_BATCHES, table_format="iceberg"),
    "keys tracked": Loads({**KEYED, "history": True, "history_columns": ["v"]}, KEYED_BATCHES),
    "keys partial": Loads({**KEYED, "missing": "keep"}, [(f"{at}.json", text) for at, text in enumerate(PARTIAL)]),
    "keys partial iceberg": Loads(
        {**KEYED, "missing": "keep"}, [(f"{at}.json", text) for at, text in enumerate(PARTIAL)], table_format="iceberg"
    ),
    "keys events": Loads(
        {"key": ["id"], "envelope": "debezium"}, [(f"{at}.json", text) for at, text in enumerate(EVENTS)]
    ),
    "keys kinds": Loads(
        {"key": ["id", "k"], "sequence_by": "at", "evolve": "split", "pins": {"at": "timestamp"}},
        [(f"{at}.json", text) for at, text in enumerate(KINDS)],
    ),
    "keys texts": Loads(
        {"key": ["id"], "sequence_by": "n", "delete_when": "v IS NULL AND old", "evolve": "split"},
        [(f"{at}.json", text) for at, text in enumerate(ORDERED)],
    ),
    "keys last batch": Loads(
        {"key": ["id"], "delete_when": "op = 'd'", "source_columns": True, "mask": ["v"]},
        [
            ("0.json", lines(*FIRST[1:])),
            ("1.json", lines(*SECOND[:6])),
            ("2.json", lines(*SECOND[:6])),
            ("3.json", lines(*FOURTH)),
        ],
    ),
    "keys excluded": Loads({**KEYED, "exclude": ["op"]}, KEYED_BATCHES),
    "keys csv": Loads({**KEYED, "detect_types": True}, KEYED_CSV),
    "keys partitions": Loads(KEYED, KEYED_BATCHES, ddl=KEYED_DDL, partition_by=["op"]),
    "keys partitions iceberg": Loads({**KEYED, "partition_by": ["op"]}, KEYED_BATCHES, table_format="iceberg"),
    "keys history feed": Loads({**KEYED, "history": True}, KEYED_BATCHES[:3], ddl=KEYED_DDL, properties=FEED),
    "keys partial feed": Loads(
        {**KEYED, "missing": "keep"},
        [(f"{at}.json", text) for at, text in enumerate(PARTIAL)],
        ddl="id BIGINT",
        properties=FEED,
    ),
    "keys history excluded": Loads({**KEYED, "history": True, "exclude": ["op"]}, KEYED_BATCHES[:3]),
}
"""By name. Each load is one step: a mutant is there in one load, and the loads before it went right."""


def write_source(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
    else:
        path.write_text(content, encoding="utf-8")
