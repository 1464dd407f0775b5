"""Generated histories of Iceberg tables: what we read of every one of them is what Iceberg for Spark reads.

``WIDEN_ICEBERG_TABLES=60`` makes more tables, WIDEN_ICEBERG_TABLES_FIRST chooses the first.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from interop.conftest import IcebergSpark
from interop.test_iceberg_spark import opened, ours
from support.iceberg_files import field
from widen.model.types import ArrayType, DataType, DecimalType, MapType, StructType

FIRST = int(os.environ.get("WIDEN_ICEBERG_TABLES_FIRST", "0"))
COUNT = int(os.environ.get("WIDEN_ICEBERG_TABLES", "2"))

COLUMNS = (
    "id int, p string, d date, ts timestamp, v float, c decimal(9,2), s struct<x: int, y: string>, "
    "l array<struct<a: int, b: string>>, m map<string, struct<k: int>>"
)
KINDS = ("int", "bigint", "float", "string", "date", "timestamp", "timestamp_ntz", "decimal(8,3)", "boolean", "binary")
TRANSFORMS = ("{0}", "bucket(3, {0})", "truncate(2, {0})", "years({0})", "months({0})", "days({0})", "hours({0})")
DEFAULTS = {
    "int": 7,
    "long": -5,
    "string": "dflt",
    "double": 2.5,
    "date": "2020-02-29",
    "timestamptz": "2020-01-01T00:00:00+00:00",
    "timestamp": "2019-12-31T23:59:59.5",
    "decimal(9, 3)": "-12.345",
    "binary": "00ff",
    "boolean": True,
}  # fmt: skip


def test_generated_tables_are_read_as_iceberg_for_spark_reads_them(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    wrong = [
        line for seed in range(FIRST, FIRST + COUNT) for line in History(seed, spark, iceberg, folder).differences()
    ]
    assert wrong == []


class History:
    """A table with a random history; statements that Iceberg refuses have no effect."""

    def __init__(self, seed: int, spark: SparkSession, iceberg: IcebergSpark, folder: Path) -> None:
        self.chance, self.spark, self.iceberg, self.folder = random.Random(seed), spark, iceberg, folder
        self.name, self.rows, self.said = f"default.ns.t{seed}", 0, [f"seed {seed}"]
        self.version = self.chance.choice((1, 2, 2, 3, 3))
        mode = self.chance.choice(("merge-on-read", "merge-on-read", "copy-on-write"))
        by = self.chance.choice(("", "PARTITIONED BY (p)", "PARTITIONED BY (bucket(2, id), p)", "PARTITIONED BY (d)"))
        self.run(
            f"CREATE TABLE {self.name} ({COLUMNS}) USING iceberg {by} TBLPROPERTIES ("
            f"'format-version'='{self.version}', 'write.delete.mode'='{mode}', 'write.update.mode'='{mode}')"
        )
        self.table = opened(folder, f"ns.t{seed}")

    def run(self, statement: str) -> bool:
        try:
            self.iceberg.sql(statement)
        except AssertionError as error:
            if os.environ.get("WIDEN_ICEBERG_SHOW"):
                print("refused:", str(error)[:250])
            return False
        self.said.append(statement)
        return True

    @property
    def schema(self) -> StructType:
        return self.table.refresh().schema

    def pick(self, *kinds: str) -> str:
        """A column, or a field of a struct."""
        names = [f.name for f in self.schema if f.name != "id" and (not kinds or f.type.sql.lower() in kinds)]
        inner = [
            f"{f.name}.{each.name}" for f in self.schema if isinstance(f.type, StructType) for each in f.type
            if not kinds or each.type.sql.lower() in kinds
        ]  # fmt: skip
        return self.chance.choice([*names, *inner] or ["p"])

    def insert(self, where: str = "") -> None:
        columns = ", ".join(
            "CAST(id AS int)" if each.name == "id" else self.expression(each.type) for each in self.schema
        )
        first, self.rows = self.rows, self.rows + self.chance.randrange(3, 9)
        self.run(f"INSERT INTO {self.name}{where} SELECT {columns} FROM range({first}, {self.rows}, 1, 1)")

    def expression(self, kind: DataType) -> str:
        salt, nulls = self.chance.randrange(1, 9), self.chance.choice((2, 3, 5, 50))
        match kind:
            case StructType():
                text = "named_struct(" + ", ".join(f"'{f.name}', {self.expression(f.type)}" for f in kind) + ")"
            case ArrayType(element):
                text = f"array({self.expression(element)}, {self.expression(element)})"
            case MapType(_, value):
                text = f"map('k', {self.expression(value)}, 'n', {self.expression(value)})"
            case DecimalType():
                text = f"(id * {salt} - 9) / 4"
            case _:
                text = {
                    "STRING": f"concat(substr('abcdef', 1 + id % {salt}, 2), id % 3)", "BOOLEAN": "id % 2 = 0",
                    "DATE": f"date_add(date'1969-12-20', CAST(id * {salt} AS int))", "BINARY": "concat('b', id)",
                    "TIMESTAMP": f"timestamp_seconds(id * {salt} * 10000 - 9999)",
                    "TIMESTAMP_NTZ": "timestamp_ntz'1970-01-01 00:00:00' + make_dt_interval(CAST(id AS int) - 3)",
                }.get(kind.sql.upper(), f"id * {salt} - 5")  # fmt: skip
        return f"IF(id % {nulls} = 1, NULL, CAST({text} AS {kind.sql}))"

    def change(self) -> None:
        """Do one random thing."""
        name, chance, new = self.name, self.chance, f"n{len(self.said)}"
        kind = chance.choice((
            "insert", "insert", "insert", "delete", "delete", "update", "equal", "equal", "add", "add", "drop",
            "rename", "widen", "by", "by", "unpartition", "default", "default", "branch", "upgrade",
        ))  # fmt: skip
        if kind == "insert":
            self.insert()
        elif kind == "delete":
            self.run(f"DELETE FROM {name} WHERE {self.condition()}")
        elif kind == "update":
            self.run(f"UPDATE {name} SET p = 'upd' WHERE {self.condition()}")
        elif kind == "equal":
            self.delete_equal()
        elif kind == "add":
            inside = chance.choice(("", "", "s.", "l.element.", "m.value."))
            place = chance.choice(("", "", " FIRST"))
            self.run(f"ALTER TABLE {name} ADD COLUMN {inside}{new} {chance.choice(KINDS)}{place}")
        elif kind == "drop":
            self.run(f"ALTER TABLE {name} DROP COLUMN {self.pick()}")
        elif kind == "rename":
            to = chance.choice((new, new, "p", "x"))
            self.run(f"ALTER TABLE {name} RENAME COLUMN {self.pick()} TO {to}")
        elif kind == "widen":
            old, to = chance.choice((("int", "bigint"), ("float", "double"), ("decimal(9,2)", "decimal(20,2)")))
            self.run(f"ALTER TABLE {name} ALTER COLUMN {self.pick(old)} TYPE {to}")
        elif kind == "by":
            self.run(f"ALTER TABLE {name} ADD PARTITION FIELD {chance.choice(TRANSFORMS).format(self.pick())}")
        elif kind == "unpartition":
            for each in list(self.table.refresh().table.spec().fields):
                self.run(f"ALTER TABLE {name} DROP PARTITION FIELD `{each.name}`")
        elif kind == "default" and self.version == 3:
            kind = chance.choice(list(DEFAULTS))
            parent = chance.choice((None, None, "s", "l", "m"))
            try:
                self.iceberg.ask(defaults=[name, [[parent, new, kind, DEFAULTS[kind]]]])
                self.said.append(f"default {parent} {new} {kind}")
            except AssertionError:
                pass
        elif kind == "branch" and self.run(f"ALTER TABLE {name} CREATE BRANCH b{len(self.said)}"):
            self.insert(f".branch_b{len(self.said) - 1}")
        elif kind == "upgrade" and self.version < 3:
            self.version += 1
            self.run(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version'='{self.version}')")

    def delete_equal(self) -> None:
        """Commit equality deletes where they are for all partitions."""
        table = self.table.refresh().table
        if self.version == 1 or any(str(each.transform) != "void" for each in table.spec().fields):
            return
        kinds = {"int": pa.int32(), "long": pa.int64(), "string": pa.string()}
        columns = [each for each in table.schema().fields if str(each.field_type) in kinds]
        chosen = self.chance.sample(columns, min(len(columns), self.chance.choice((1, 1, 2))))
        arrow = pa.schema([field(each.name, kinds[str(each.field_type)], each.field_id) for each in chosen])
        odd = [[self.chance.choice(["a0", "bc1", "upd", None]), self.chance.randrange(9), None] for _ in range(3)]
        rows = [{f.name: values[0] if pa.types.is_string(f.type) else values[1] for f in arrow} for values in odd]
        path = self.folder / f"{self.name}-{len(self.said)}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=arrow), path)
        numbers = [each.field_id for each in chosen]
        self.iceberg.ask(equality_delete=[self.name, f"file://{path}", path.stat().st_size, len(rows), numbers])
        self.said.append(f"equality delete {rows}")

    def condition(self) -> str:
        column = self.pick()
        values = ("2", "'bc1'", "date'1969-12-31'", "timestamp'1970-01-01 06:00:00Z'", "true", "1.25")
        tests = ("IS NULL", "IS NOT NULL", *(f"{op} {value}" for op in ("=", "<", ">=", "<>") for value in values))
        text = f"{column} {self.chance.choice(tests)}"
        return text if self.chance.random() < 0.6 else f"{text} OR id % 4 = 1"

    def differences(self) -> Iterator[str]:
        """Yield where we read something else."""
        self.insert()
        for _ in range(self.chance.randrange(5, 11)):
            self.change()
        wheres = [None, *(self.condition() for _ in range(3))]
        for where in wheres:
            yield from self.compare("", where)
        snapshots = [row[0] for row in self.iceberg.sql(f"SELECT snapshot_id FROM {self.name}.snapshots")]
        number = self.chance.choice(snapshots)
        yield from self.compare(f" VERSION AS OF {number}", None, version=number)
        for (branch,) in self.iceberg.sql(f"SELECT name FROM {self.name}.refs WHERE name <> 'main'")[:1]:
            yield from self.compare(f" VERSION AS OF '{branch}'", None, branch=branch)

    def compare(self, point: str, where: str | None, **words: object) -> Iterator[str]:
        query = f"SELECT * FROM {self.name}{point}" + (f" WHERE {where}" if where else "")
        try:
            wanted = self.iceberg.json(query)
        except AssertionError:  # the condition does not fit the types
            return
        try:
            found = ours(self.spark, self.table, where, **words)
            unified = ours(self.spark, self.table, where, unified=True, **words) if not where else found
        except (widen.errors.WidenError, Exception) as error:
            found = unified = [f"{type(error).__name__}: {error}"[:600]]
        if not found == unified == wanted:
            less, more = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
            counts = f"{len(found)} rows instead of {len(wanted)}"
            yield f"{self.said} {query}: {counts}, missing {less[:2]}, surplus {more[:2]}"


KINDS = (
    *("spark", "delete", "update", "pyiceberg", "pydelete"),
    *("ingest", "ingest", "fold", "flow", "our delete", "our update", "our merge", "optimize", "rewrite", "vacuum"),
)
TURNS = int(os.environ.get("WIDEN_ICEBERG_TURNS", "8"))


# Both are of PyIceberg's delete.
@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_ingestions_folds_and_flows_alternate_with_other_writers(
    spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, folder: Path
) -> None:
    """Iceberg for Spark, PyIceberg and Widen write one table in turns; a model says which value each row must have."""
    name, chance, model, number = "default.ns.mixed", random.Random(7), dict[int, str | None](), 0
    place = {"catalog": folder / "catalog.db", "spark": spark}
    iceberg.sql(
        f"CREATE TABLE {name} (id bigint, a bigint) USING iceberg PARTITIONED BY (id) TBLPROPERTIES ("
        "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')",
        "CREATE TABLE default.ns.mixed_source (id bigint, a bigint) USING iceberg TBLPROPERTIES ('format-version'='2')",
    )
    table = opened(folder, "ns.mixed")
    for turn in range(TURNS):
        kind = chance.choice(KINDS)
        key = chance.choice([*model, -1])
        if kind == "spark":
            iceberg.sql(f"INSERT INTO {name} (id, a) VALUES ({number}, {number}), ({number + 1}, NULL)")
            model |= {number: str(number), number + 1: None}
            number += 2
        elif kind == "delete":
            iceberg.sql(f"DELETE FROM {name} WHERE id = {key}")
            model.pop(key, None)
        elif kind == "update":
            iceberg.sql(f"UPDATE {name} SET a = 7000 WHERE id = {key} AND a IS NOT NULL")
            model |= {key: "7000"} if (model.get(key) or "x").isdecimal() else {}
        elif kind == "pyiceberg":
            added = pa.table({"id": pa.array([number], pa.int64()), "a": pa.array([5], pa.int64())})
            catalog.load_table("ns.mixed").append(added)
            model[number] = "5"
            number += 1
        elif kind == "our delete":
            table.delete(f"id = {key}", spark=spark)
            model.pop(key, None)
        elif kind == "our update":
            table.update({"a": "8000"}, f"id = {key} AND a IS NOT NULL", spark=spark)
            model |= {key: "8000"} if (model.get(key) or "x").isdecimal() else {}
        elif kind == "our merge":
            changes = spark.createDataFrame([(key, 6000), (number, 6001)], "id bigint, a bigint")
            merge = table.merge(changes, "t.id = s.id").when_matched_update({"a": "s.a"})
            merge.when_not_matched_insert({"id": "s.id", "a": "s.a"}).execute()
            # The merge updates the column of the name only; a text beside it stays, and is read first if a is null.
            model |= {number: "6001", key: "6000"}
            number = max(number, key) + 1
        elif kind == "optimize":
            table.optimize(spark=spark)
        elif kind == "rewrite":
            table.rewrite(spark=spark)
        elif kind == "vacuum":
            table.vacuum(0, keep_last=2, force=True)
        elif kind == "pydelete":
            catalog.load_table("ns.mixed").delete(f"id == {key}")
            model.pop(key, None)
        elif kind == "ingest":
            values: list[object] = [number, chance.choice([3, "text", "41", None])]
            path = folder / f"mixed-{turn}.json"
            path.write_text(
                "".join(json.dumps({"id": number + at, "a": each}) + "\n" for at, each in enumerate(values))
            )
            widen.ingest(path, into="ns.mixed", verify=True, **place)
            model |= {number + at: None if each is None else str(each) for at, each in enumerate(values)}
            number += 2
        elif kind == "fold" and "a_string" in table.refresh().schema.names:
            table.fold("a_string", rest="keep", spark=spark)
        elif kind == "flow":
            key = key if key >= 0 else number
            number = max(number, key + 1)
            iceberg.sql(f"DELETE FROM default.ns.mixed_source WHERE id = {key}")  # a key has all rows of the source
            iceberg.sql(f"INSERT INTO default.ns.mixed_source VALUES ({key}, {turn})")
            words = {"source_catalog": folder / "catalog.db", "once": True, "checkpoint": folder / "_mixed"}
            widen.flow("ns.mixed_source", "ns.mixed", keys=["id"], **words, **place)
            model[key] = str(turn)
        beside = [each for each in table.refresh().schema.names if each.startswith("a")]
        value = f"coalesce({', '.join(f'string({each})' for each in beside)})"
        wanted = sorted(model.items())
        assert sorted(map(tuple, iceberg.sql(f"SELECT id, {value} FROM {name}"))) == wanted, (turn, kind)
        assert sorted(map(tuple, table.read(spark=spark).selectExpr("id", value).collect())) == wanted, (turn, kind)
    assert ours(spark, table) == iceberg.json(f"SELECT * FROM {name}")


KEYED_KINDS = (
    *("keyed", "keyed", "keyed", "gone", "late", "spark", "update", "delete", "pyiceberg", "pydelete"),
    *("our merge", "our delete", "optimize", "vacuum"),
)


@pytest.mark.filterwarnings("ignore:Merge on read is not yet supported")
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
def test_keyed_ingestions_alternate_with_other_writers(
    spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, folder: Path
) -> None:
    """Every key has one row, whoever wrote it: the newest one by the order of the records."""
    name, chance, model = "default.ns.keyed", random.Random(11), dict[int, tuple[int, int]]()
    place = {"catalog": folder / "catalog.db", "spark": spark}
    words = {"key": ["id"], "sequence_by": "seq", "delete_when": "gone", "verify": True, **place}
    iceberg.sql(
        f"CREATE TABLE {name} (id bigint, a bigint, seq bigint, gone boolean) USING iceberg PARTITIONED BY "
        "(id) TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read')"
    )
    table = opened(folder, "ns.keyed")
    for turn in range(1, TURNS + 1):
        number = turn  # the key of a new row
        kind = chance.choice(KEYED_KINDS)
        key = chance.choice([*model, -1])
        if kind in ("keyed", "gone", "late"):
            order = turn - 1000 if kind == "late" else turn
            keys = {key, number} if key >= 0 else {number}
            rows = [
                {"id": each, "a": turn, "seq": order, **({"gone": True} if kind == "gone" else {})} for each in keys
            ]
            path = folder / f"keyed-{turn}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            done = widen.ingest(path, into="ns.keyed", **words)
            assert done.verification is not None
            assert done.verification.is_clean, (turn, kind)
            for each in keys:
                if kind == "gone":
                    model.pop(each, None)
                elif each not in model or model[each][1] <= order:
                    model[each] = (turn, order)
        elif kind == "spark":
            iceberg.sql(f"INSERT INTO {name} (id, a, seq) VALUES ({number}, 1, {turn})")
            model[number] = (1, turn)
        elif kind == "pyiceberg":
            kinds = {"id": pa.int64(), "a": pa.int64(), "seq": pa.int64(), "gone": pa.bool_()}
            row = {"id": number, "a": 2, "seq": turn, "gone": None}
            catalog.load_table("ns.keyed").append(pa.Table.from_pylist([row], schema=pa.schema(kinds)))
            model[number] = (2, turn)
        elif kind == "update":
            iceberg.sql(f"UPDATE {name} SET a = 3 WHERE id = {key}")
            model |= {key: (3, model[key][1])} if key in model else {}
        elif kind == "delete":
            iceberg.sql(f"DELETE FROM {name} WHERE id = {key}")
            model.pop(key, None)
        elif kind == "pydelete":
            catalog.load_table("ns.keyed").delete(f"id == {key}")
            model.pop(key, None)
        elif kind == "our delete":
            table.delete(f"id = {key}", spark=spark)
            model.pop(key, None)
        elif kind == "our merge":
            changes = spark.createDataFrame([(key, 4), (number, 4)], "id bigint, a bigint")
            merge = table.merge(changes, "t.id = s.id").when_matched_update({"a": "s.a"})
            merge.when_not_matched_insert({"id": "s.id", "a": "s.a", "seq": f"{turn}"}, condition="s.id >= 0").execute()
            model |= {number: (4, turn), **({key: (4, model[key][1])} if key in model else {})}
        elif kind == "optimize":
            table.optimize(spark=spark)
        elif kind == "vacuum":
            table.vacuum(0, keep_last=2, force=True)
        wanted = sorted((key, a, order) for key, (a, order) in model.items())
        assert sorted(map(tuple, iceberg.sql(f"SELECT id, a, seq FROM {name}"))) == wanted, (turn, kind)
        assert sorted(map(tuple, table.refresh().read(spark=spark).select("id", "a", "seq").collect())) == wanted, turn
