"""Copies of generated Delta tables have the same rows and row ids, as PyArrow alone finds them in the new files."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from math import copysign, isnan
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import widen
from support.old_table import live, log
from widen.changes.change_data_writer import put_vectors
from widen.errors import EngineUnsuitable
from widen.files.arrow_types import to_arrow
from widen.files.data_writer import to_arrow_with_ids
from widen.log.commit import commit
from widen.model.column_path import as_nullable
from widen.model.types import ArrayType, DataType, DecimalType, MapType, StructType
from widen.protocol.actions import Add
from widen.protocol.column_mapping import ID, ID_COLUMN, NAME, NONE, VERSION_COLUMN
from widen.spark import session
from widen.table import Table

COLUMNS = {
    "b": "tinyint",
    "i": "int",
    "c": "smallint",
    "f": "float",
    "e": "decimal(5,2)",
    "d": "date",
    "n": "struct<a: int, b: array<struct<x: int, y: string>>>",
    "m": "map<int, float>",
    "s": "string",
    "y": "binary",
    "z": "boolean",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "a.b": "int",
    "gone": "string",
    "ß": "array<array<int>>",
}
WIDER = {
    "b": "bigint",
    "i": "double",
    "c": "decimal(12,2)",
    "f": "double",
    "e": "decimal(20,4)",
    "d": "timestamp_ntz",
    "n.a": "bigint",
    "n.b.element.x": "bigint",
    "m.key": "bigint",
    "m.value": "double",
}
PARTITIONS = {"p": "string", "q": "int", "w": "date", "u": "timestamp"}
TEXTS = {
    "p": ["x", "a=b/ü%", None],
    "q": ["7", "007", None],
    "w": ["1582-10-04", None],
    "u": ["2020-01-01 12:00:00.5", "2020-01-01T12:00:00Z", None],
}
"""Partition texts, also such as only other writers choose."""

VALUES: dict[str, list[Any]] = {
    "byte": [-128, 0, 127],
    "short": [-32768, 1],
    "integer": [-(2**31), 0, 2**31 - 1],
    "long": [-(2**63), 2**63 - 1],
    "float": [1.5, -0.0, float("nan"), float("-inf")],
    "double": [0.1, -0.0, float("nan"), 5e-324],
    "string": ["", "x", "ü\x00"],
    "binary": [b"", b"\xff"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
}


def value(rng: random.Random, data_type: DataType, *, may_be_null: bool = True) -> Any:
    if may_be_null and rng.random() < 0.2:
        return None
    match data_type:
        case StructType(fields):
            return {field.name: value(rng, field.type) for field in fields}
        case ArrayType(element):
            return [value(rng, element) for _ in range(rng.randrange(3))]
        case MapType(key, item):
            keys = dict.fromkeys(value(rng, key, may_be_null=False) for _ in range(rng.randrange(3)))
            return [(each, value(rng, item)) for each in keys]
        case DecimalType(precision, scale):
            return Decimal(rng.choice([10**precision - 1, -1])).scaleb(-scale)
    return rng.choice(VALUES[str(data_type)])


def renamed(found: Any, data_type: DataType) -> Any:
    """A value whose fields have the names of a type."""
    match data_type:
        case StructType(fields) if found is not None:
            return {each.name: renamed(part, each.type) for each, part in zip(fields, found.values(), strict=True)}
        case ArrayType(element) if found is not None:
            return [renamed(each, element) for each in found]
    return found


def canonical(found: Any) -> Any:
    """A value regardless of its type before or after the change."""
    match found:
        case dict():
            return [canonical(each) for each in found.values()]
        case list() | tuple():
            return [canonical(each) for each in found]
        case None | bool() | str() | bytes():
            return found
        case float() if isnan(found) or (not found and copysign(1, found) < 0):
            return repr(found)
        case int() | float() | Decimal():
            return Decimal(found).normalize()
        case datetime():
            return found.replace(tzinfo=None)
    return datetime(found.year, found.month, found.day)


class GeneratedTable:
    """A table whose files PyArrow has written: in old and new types, under changing names, with deleted rows."""

    def __init__(self, place: Path, seed: int) -> None:
        self.rng, self.place = random.Random(seed), place
        self.mode, self.is_tracked = (NONE, NAME, ID)[seed % 3], seed % 2 == 0
        self.partition_by = self.rng.sample([*PARTITIONS], k=self.rng.choice([0, 1, 2]))
        kinds = [(f"`{name}`", kind) for name, kind in COLUMNS.items()]
        kinds += [(name, PARTITIONS[name]) for name in self.partition_by]
        self.rng.shuffle(kinds)
        properties = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
        properties |= {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": self.mode}
        properties |= {"delta.enableRowTracking": "true"} if self.is_tracked else {}
        self.table = widen.create_table(
            str(place), ", ".join(map(" ".join, kinds)), partition_by=self.partition_by, properties=properties
        )
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.deleted: dict[str, set[int]] = {}
        for _ in range(4):
            self.add_file()
        self.table.alter_columns({path: {"type": kind} for path, kind in WIDER.items()})
        self.table.add_columns({"late": "int"})
        if self.mode != NONE:
            self.table.rename_column("s", "text").rename_column("n.a", "first").drop_columns("gone")
            for row in (row for rows in self.rows.values() for row in rows):
                row["text"] = row.pop("s")
                row.pop("gone")
        for _ in range(3):
            self.add_file()

    def add_file(self) -> None:
        snapshot, rng = self.table.refresh().snapshot, self.rng
        texts = {name: rng.choice(TEXTS[name]) for name in self.partition_by}
        stored = [field for field in snapshot.schema if field.name not in texts]
        count, name = rng.randrange(1, 6), f"{uuid4().hex}.parquet"
        self.rows[name] = [{field.name: value(rng, field.type) for field in stored} | texts for _ in range(count)]
        named = dict(zip(snapshot.schema.names, as_nullable(snapshot.configuration.physical_schema), strict=True))
        schema = to_arrow_with_ids(StructType(tuple(named[field.name] for field in stored)))
        columns = [
            pa.array([renamed(row[field.name], named[field.name].type) for row in self.rows[name]], each.type)
            for field, each in zip(stored, schema, strict=True)
        ]
        pq.write_table(pa.Table.from_arrays(columns, schema=schema), self.place / name)
        self.deleted[name] = {rng.randrange(count)} if count > 1 and rng.random() < 0.4 else set()
        vectors = (
            put_vectors(snapshot.store, "vectors", [BitMap64(self.deleted[name])]) if self.deleted[name] else [None]
        )
        keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
        add = Add(
            path=name,
            partition_values={keys[each]: text for each, text in texts.items()},
            size=(self.place / name).stat().st_size,
            modification_time=0,
            data_change=True,
            stats=json.dumps({"numRecords": count}),
            deletion_vector=vectors[0],
        )
        commit(snapshot.store, snapshot, [add], "WRITE", {}).or_raise()

    def expected(self) -> list[str]:
        """Every row that is not deleted, with its row id and version."""
        adds = {
            line["add"]["path"]: line["add"] for line in log(self.place) if line.get("add", {}).get("path") in self.rows
        }
        names = self.table.refresh().snapshot.schema.names
        return sorted(
            repr((*(canonical(row.get(name)) for name in names), *self._ids(adds[path], at)))
            for path, rows in self.rows.items()
            for at, row in enumerate(rows)
            if at not in self.deleted[path]
        )

    def _ids(self, add: dict[str, Any], at: int) -> tuple[Any, ...]:
        return (add["baseRowId"] + at, add["defaultRowCommitVersion"]) if self.is_tracked else ()

    def found(self) -> list[str]:
        """The same, from the files of the newest version."""
        snapshot = self.table.refresh().snapshot
        keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
        physical = dict(zip(snapshot.schema.names, snapshot.configuration.physical_schema.names, strict=True))
        ids = [snapshot.properties.get(key, "") for key in (ID_COLUMN, VERSION_COLUMN)]
        result = []
        for path, add in live(self.place).items():
            rows = pq.ParquetFile(self.place / unquote(path)).read().to_pylist()
            for at, row in enumerate(rows):
                if at in self.deleted.get(path, ()):
                    continue
                values = [
                    canonical(add["partitionValues"][keys[name]] if name in keys else row.get(physical[name]))
                    for name in snapshot.schema.names
                ]
                own = [row.get(name) for name in ids] if self.is_tracked else []
                plain = [each if mine is None else mine for mine, each in zip(own, self._ids(add, at), strict=False)]
                result.append(repr((*values, *plain)))
        return sorted(result)


def sort_rows(table: Table) -> object:
    return table.optimize(zorder_by=["f", "i", "`a.b`"], target_bytes=2_000)


COPIES: dict[str, Callable[[Table], object]] = {
    "optimize": lambda table: table.optimize(),
    "small": lambda table: table.optimize(target_bytes=6_000),
    "sort": sort_rows,
    "rewrite": lambda table: table.rewrite(),
    "vectors": lambda table: table.drop_feature("deletionVectors"),
    "mapping": lambda table: table.set_properties({"delta.columnMapping.mode": "none"}),
    "types": lambda table: table.drop_feature("typeWidening"),
}


@pytest.mark.parametrize("seed", range(126 if os.environ.get("WIDEN_TEST_FAULTS") else 21))
def test_rows_and_their_ids_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    monkeypatch.setattr(session, "_start_session", None)
    made, copy = GeneratedTable(tmp_path, seed), [*COPIES.values()][seed % len(COPIES)]
    expected = made.expected()
    assert made.found() == expected
    for step in (copy, sort_rows):
        step(made.table)
        assert made.found() == expected
    schema = as_nullable(made.table.refresh().snapshot.configuration.physical_schema)
    for path in live(tmp_path).keys() - made.rows.keys():
        stored = pq.read_schema(tmp_path / unquote(path))
        for field in schema:
            if field.name in stored.names:
                assert stored.field(field.name).type == to_arrow(field.type)


def test_what_only_spark_copies_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    table = widen.create_table(str(tmp_path), "a int, v variant")
    adds = [Add(f"{name}.parquet", {}, 10, 0, data_change=True, stats='{"numRecords":1}') for name in "ab"]
    commit(table.snapshot.store, table.snapshot, adds, "WRITE", {}).or_raise()
    with pytest.raises(EngineUnsuitable, match="a column has the type variant"):
        table.optimize()
    assert table.refresh().version == 1
    monkeypatch.setattr("widen.changes.rewrite_files.SORTED_BYTES", 19)
    other = widen.create_table(str(tmp_path / "other"), "a int")
    commit(other.snapshot.store, other.snapshot, adds, "WRITE", {}).or_raise()
    with pytest.raises(EngineUnsuitable, match="it sorts more than"):
        other.optimize(zorder_by=["a"])
    assert [each.name for each in tmp_path.glob("**/*.parquet")] == []
