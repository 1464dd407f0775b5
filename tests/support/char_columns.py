"""A table with columns of char(n), whose files have the texts as they were given, and what Delta Lake finds in it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

import widen
from widen.log.commit import commit
from widen.protocol.actions import Add
from widen.table import Table

COLUMNS = "id int, c char(5), v varchar(5), p char(3), r struct<c: char(4), x: int>, a array<char(3)>"

ROWS = {
    "ab": [
        {"id": 1, "c": "ab", "v": "ab", "r": {"c": "q", "x": 1}, "a": ["z"]},
        {"id": 2, "c": "ab\t", "v": "ab ", "r": {"c": None, "x": 1}, "a": []},
    ],
    "abc": [{"id": 3, "c": "abc", "v": "abc ", "r": None, "a": None}],
    None: [{"id": 4, "c": None, "v": None, "r": None, "a": [None]}, {"id": 5, "c": "é", "v": "", "r": None, "a": None}],
}
"""The rows by their partition, as they are stored."""

READ = [
    {"id": 1, "c": "ab   ", "v": "ab", "p": "ab ", "r": {"c": "q   ", "x": 1}, "a": ["z  "]},
    {"id": 2, "c": "ab\t  ", "v": "ab ", "p": "ab ", "r": {"c": None, "x": 1}, "a": []},
    {"id": 3, "c": "abc  ", "v": "abc ", "p": "abc", "r": None, "a": None},
    {"id": 4, "c": None, "v": None, "p": None, "r": None, "a": [None]},
    {"id": 5, "c": "é    ", "v": "", "p": None, "r": None, "a": None},
]

FOUND: dict[str, list[int]] = {
    "c = 'ab'": [1],
    "c = 'ab  '": [1],
    "c = 'ab        '": [1],
    "'ab ' = c": [1],
    "c = 'ab  x'": [],
    "c IN ('ab', 'abc ')": [1, 3],
    "c < 'ab '": [2],
    "c > 'ab'": [3, 5],
    "c <> 'ab'": [2, 3, 5],
    "NOT c = 'ab  '": [2, 3, 5],
    "c >= 'ab ' AND c <= 'ab '": [1],
    "c LIKE 'ab'": [],
    "c LIKE 'ab%'": [1, 2, 3],
    "c = ''": [],
    "c IS NULL": [4],
    "v = 'ab '": [2],
    "v = 'abc'": [],
    "r.c = 'q'": [],
    "r.c = 'q   '": [1],
    "p = 'ab'": [1, 2],
    "p = 'ab   '": [1, 2],
    "p IN ('ab')": [1, 2],
    "p < 'ab '": [],
    "p <> 'ab'": [3],
    "p = 'abc' OR c = 'ab '": [1, 3],
    "NOT p = 'ab ' OR r.c = 'q   '": [1, 3],
}
"""For each condition the ids of its rows, as Delta Lake finds them."""

FOR_SPARK: dict[str, list[int]] = {
    "c BETWEEN 'ab' AND 'ab'": [],
    "c IN ('ab', NULL)": [],
    "length(c) = 5 AND length(p) = 3": [1, 2, 3],
    "get(a, 0) = 'z  '": [1],
    "c = 'ab' || ''": [1],
}
"""The same of conditions that only Spark evaluates."""


def write_table(place: Path) -> Table:
    """Write the table with a file for each partition."""
    table = widen.create_table(str(place), COLUMNS, partition_by=("p",))
    kind = {"id": pa.int32(), "c": pa.string(), "v": pa.string()}
    kind |= {"r": pa.struct([("c", pa.string()), ("x", pa.int32())]), "a": pa.list_(pa.string())}
    adds = []
    for number, (partition, rows) in enumerate(ROWS.items()):
        name = f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, pa.schema(kind)), place / name)
        texts = sorted(row["c"] for row in rows if row["c"] is not None)
        stats = {
            "numRecords": len(rows),
            "minValues": {"c": texts[0]},
            "maxValues": {"c": texts[-1]},
            "nullCount": {"c": len(rows) - len(texts)},
        }
        size = (place / name).stat().st_size
        adds.append(
            Add(
                path=name,
                partition_values={"p": partition},
                size=size,
                modification_time=1,
                data_change=True,
                stats=msgspec.json.encode(stats).decode(),
            )
        )
    commit(table.snapshot.store, table.snapshot, adds, "WRITE", {}).or_raise()
    return Table(str(place))
