"""Random statements run by Widen and by Iceberg for Spark on copies of one table: the same rows, metadata and refusals.

``WIDEN_STATEMENT_SEEDS=0-39`` makes more runs; each seed decides its table and its statements. After a difference both
go on with the table of Iceberg for Spark, so that one run shows all of them.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

import widen
from interop.conftest import IcebergSpark

FIRST, _, LAST = os.environ.get("WIDEN_STATEMENT_SEEDS", "0-1").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
STATEMENTS = 10

COLUMNS = "id int, p string, v float, e decimal(5,2), d date, at timestamp, x struct<a: int, b: string>"
TRANSFORMS = ("p", "bucket(3, id)", "truncate(2, p)", "months(d)", "days(at)", "x.a", "nope", "years(p)")
LITERALS: Mapping[str, tuple[str, ...]] = {
    "int": ("0", "7", "-2147483648", "NULL", "3", "2"),
    "bigint": ("5000000000L", "NULL", "3L", "7L"),
    "string": ("'a'", "''", "'A=b/c%20\"'", "NULL", "'bc'"),
    "float": ("float('NaN')", "float('-0.0')", "0.0F", "NULL", "2.5F"),
    "double": ("double('NaN')", "0.1D", "NULL"),
    "decimal(5,2)": ("1.25BD", "NULL", "-0.01BD", "3.00BD"),
    "decimal(9,2)": ("1234567.25BD", "NULL"),
    "date": ("date'2024-02-29'", "date'1969-12-31'", "NULL"),
    "timestamp": ("timestamp'2024-01-31 23:59:59.999999'", "timestamp'1969-12-31 12:00:00'", "NULL"),
    "struct<a:int,b:string>": ("named_struct('a', 1, 'b', 'z')", "NULL"),
}
ODD = ("'8'", "5000000000L", "1.5", "NULL", "true", "X'00'")
"""Values that are cast or refused in most columns."""

CONDITIONS = (
    *("id > 2", "p = 'a'", "p IS NULL", "v = 0.0", "isnan(v)", "e > 1", "x.a = 1", "id % 2 = 0", "true"),
    *("p <> 'a'", "v > 1", "p IN ('a', '')", "d < date'2000-01-01'", "at IS NOT NULL", "nope = 1", "id = 'x'"),
)

KNOWN: Mapping[str, str] = {
    r"(?s)Widen: \(None.*CANNOT_SAFELY_CAST": "As in Delta tables, values that fit are cast.",
    r"DELETE FROM [^\n]*p <> 'a'[^\n]*\n +Widen: {": "Iceberg for Spark deletes a file in which p is always null.",
    r"(DELETE FROM|UPDATE) [^\n]*v > 1[^\n]*\n +Widen: {": "In Spark NaN > 1; Iceberg for Spark skips such files.",
    r"(DELETE|UPDATE) [^\n]*v = 0.0[^\n]*\n +Widen: {": "In Spark -0.0 = 0.0; Iceberg for Spark skips such files.",
    r"SELECT [^\n]*v = 0.0[^\n]*\n +Widen: \(None, \[": "In Spark -0.0 = 0.0; Iceberg for Spark skips such files.",
    r"MERGE INTO (?!.*WHEN MATCHED)[^\n]*NOT MATCHED BY SOURCE[^\n]*\n +Widen: {": "Iceberg for Spark doubles rows "
    "that two rows of the source match.",
    r"(?s)Widen: \(None.*Deletes are supported in V2": "Widen does not write deletes, so it changes rows of version 1.",
    r"Widen: \('IncompatibleTypes.*string in the table and binary": "As in Delta tables, binary is not cast to text.",
    r"(?s)Widen: \(None.*CAST_INVALID_INPUT": "Widen does not evaluate a condition where no file can have a row.",
}
"""Patterns of differences that are decisions, each with the reason."""

HIDDEN = (
    "widen.",
    "commit.retry.",
    "owner",
    "created-at",
    "write.parquet.compression-codec",
    "write.distribution-mode",
)
"""What the properties begin with that an engine sets for itself, such as how Spark shuffles rows before it writes."""


class Twins:
    """Copies of one table, one changed by each engine."""

    def __init__(self, spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, seed: int) -> None:
        self.spark, self.iceberg, self.catalog, self.rng = spark, iceberg, catalog, random.Random(seed)
        self.theirs, self.mine, self.copies = f"ns.theirs{seed}", f"ns.mine{seed}_0", 0
        mode = self.rng.choice(("copy-on-write", "copy-on-write", "merge-on-read"))
        listed = ", ".join(f"'write.{each}.mode'='{mode}'" for each in ("delete", "update", "merge"))
        split = self.rng.choice(("", "PARTITIONED BY (p)", "PARTITIONED BY (bucket(2, id), months(d))"))
        listed += f", 'format-version'='{self.rng.choice((1, 2, 2))}'"
        self.done = [f"CREATE TABLE {{t}} ({COLUMNS}) USING iceberg {split} TBLPROPERTIES ({listed})"]
        iceberg.sql(self.done[0].format(t=f"default.{self.theirs}"))
        for _ in range(2):
            iceberg.sql(f"INSERT INTO default.{self.theirs} {self.rows(self.types, may_be_odd=False)}")
        self.copy()

    def copy(self) -> None:
        """Let both go on with the table of Iceberg for Spark: a name for its metadata is a copy of it."""
        self.copies += 1
        self.mine = f"{self.mine.rpartition('_')[0]}_{self.copies}"
        self.catalog.register_table(self.mine, self.catalog.load_table(self.theirs).metadata_location)

    def differences(self) -> Iterator[str]:
        """Run random statements and yield those that do not do the same."""
        for _ in range(STATEMENTS):
            statement = self.rng.choice(MAKERS)(self)
            if "{v}" in statement:
                self.copy()
                snapshots = self.catalog.load_table(self.theirs).snapshots()
                statement = statement.replace("{v}", str(self.rng.choice(snapshots).snapshot_id))
            theirs = self.outcome(
                lambda s=statement: self.iceberg.json(s) if is_query(s) else self.iceberg.sql(s),
                "default.",
                self.theirs,
                statement,
            )
            mine = self.outcome(self.run_mine, "", self.mine, statement)
            self.done.append(statement)
            if (mine[0] is None) != (theirs[0] is None) or mine[1] != theirs[1]:
                yield f"{self.done[0]}\n  {statement}\n  Widen: {mine}\n  Iceberg for Spark: {theirs}"
            elif (ours := self.content(self.mine)) != (wanted := self.content(self.theirs)):
                yield "\n  ".join([*self.done, f"Widen: {ours}", f"Iceberg for Spark: {wanted}"])
            else:
                continue
            self.copy()

    def outcome(self, run: Callable[[str], Any], prefix: str, name: str, statement: str) -> tuple[str | None, Any]:
        """Return why a statement was refused, and the rows of a query."""
        text = statement.format(t=f"{prefix}{name}")
        try:
            rows = run(text)
        except (AssertionError, Exception) as error:  # whatever the engines raise
            return f"{type(error).__name__}: {str(error)[:400]}", None
        return None, rows if is_query(statement) else None

    def run_mine(self, text: str) -> list[str] | None:
        done = widen.sql(text, catalog=self.catalog, spark=self.spark)
        if not isinstance(done, DataFrame):
            return None
        frame = done.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))") if is_query(text) else done
        return sorted(str(row[0]) for row in frame.collect())

    def content(self, name: str) -> dict[str, Any]:
        """Return the rows as Iceberg for Spark reads them, and the metadata as PyIceberg does."""
        table = self.catalog.load_table(name)
        columns = [
            (each.field_id, each.name, str(each.field_type), each.required, each.doc) for each in table.schema().fields
        ]
        orders = [
            (each.source_id, str(each.transform), str(each.direction), str(each.null_order))
            for each in table.sort_order().fields
        ]
        fields = [
            (each.source_id, str(each.transform), each.name)
            for each in table.spec().fields
            if str(each.transform) != "void"
        ]
        branches = [key for key in table.metadata.refs if key != "main"]
        points = ["", *(f" VERSION AS OF '{each}'" for each in sorted(branches))]
        return {
            "columns": columns,
            "partitions": fields,
            "order": orders,
            "properties": {k: v for k, v in sorted(table.properties.items()) if not k.startswith(HIDDEN)},
            "references": {key: table.metadata.refs[key].snapshot_ref_type.value for key in sorted(branches)},
            "rows": {point: self.iceberg.json(f"SELECT * FROM default.{name}{point}") for point in points},
        }

    # ---- parts of statements -------------------------------------------------------------------------

    @property
    def types(self) -> dict[str, str]:
        rows = self.iceberg.sql(f"DESCRIBE default.{self.theirs}")
        end = next((at for at, row in enumerate(rows) if not row[0] or row[0].startswith("#")), len(rows))
        return {name: kind for name, kind, *_ in rows[:end]}

    def value(self, data_type: str, *, is_odd: bool = False) -> str:
        return self.rng.choice(ODD if is_odd else LITERALS.get(data_type, ("NULL",)))

    def rows(self, types: Mapping[str, str], *, may_be_odd: bool = True) -> str:
        count = self.rng.randint(1, 4)
        odd = self.rng.choice([*types]) if may_be_odd and count == 1 and self.rng.random() < 0.5 else None
        rows = (
            ", ".join(f"{self.value(each, is_odd=name == odd)} AS {name}" for name, each in types.items())
            for _ in range(count)
        )
        return " UNION ALL ".join(f"SELECT {row}" for row in rows)

    def some(self, types: Mapping[str, str]) -> dict[str, str]:
        return {name: types[name] for name in self.rng.sample([*types], self.rng.randint(1, len(types)))}

    def condition(self) -> str:
        return " AND ".join(self.rng.sample(CONDITIONS, self.rng.randint(1, 2)))

    def name(self) -> str:
        """A column, a field of a struct, or a name that the table does not have."""
        return self.rng.choice([*self.types, "x.a", "x.b", "nope"])

    def target(self) -> str:
        """The table, or a branch of it."""
        branches = [
            key
            for key, ref in self.catalog.load_table(self.theirs).metadata.refs.items()
            if ref.snapshot_ref_type.value == "branch" and key != "main"
        ]
        return self.rng.choice(["{t}", "{t}", *(f"{{t}}.branch_{each}" for each in branches)])


def is_query(statement: str) -> bool:
    """Whether a statement returns rows."""
    return statement.startswith("SELECT")


def _select(twins: Twins) -> str:
    point = twins.rng.choice(("", "", " VERSION AS OF {v}", " VERSION AS OF 'b0'", " VERSION AS OF 't0'"))
    return twins.rng.choice(
        (
            f"SELECT * FROM {{t}}{point} WHERE {twins.condition()}",
            f"SELECT count(*) AS n, max(id) AS id FROM {{t}}{point} WHERE {twins.condition()}",
            f"SELECT p, count(*) AS n FROM {{t}}{point} GROUP BY p",
            "SELECT id FROM {t}.branch_b0",
        )
    )


def _insert(twins: Twins) -> str:
    types, into = twins.types, twins.target()
    some = twins.some(types)
    return twins.rng.choice(
        (
            f"INSERT INTO {into} {twins.rows(types)}",
            f"INSERT INTO {into} {twins.rows(types)}",
            f"INSERT INTO {into} ({', '.join(some)}) {twins.rows(some)}",
            f"INSERT INTO {into} BY NAME {twins.rows(some)}",
            f"INSERT OVERWRITE {into} {twins.rows(types)}",
        )
    )


def _update(twins: Twins) -> str:
    name, data_type = twins.rng.choice([*twins.types.items()])
    assignments = [
        *(f"{name} = {twins.value(data_type)}", f"{name} = {twins.value(data_type, is_odd=True)}"),
        *("x.a = x.a + 1", "v = -v", "id = e", "p = concat(p, id)"),
    ]
    return f"UPDATE {twins.target()} SET {twins.rng.choice(assignments)} WHERE {twins.condition()}"


def _delete(twins: Twins) -> str:
    return f"DELETE FROM {twins.target()} WHERE {twins.condition()}"


CLAUSES = (
    (
        *("", "WHEN MATCHED AND s.v > 1 THEN DELETE", "WHEN MATCHED THEN UPDATE SET *"),
        "WHEN MATCHED AND t.p = 'a' THEN UPDATE SET v = s.v, x.a = 9",
    ),
    ("WHEN NOT MATCHED THEN INSERT *", "WHEN NOT MATCHED AND s.id > 0 THEN INSERT (id, p) VALUES (s.id, 'in')"),
    ("", "WHEN NOT MATCHED BY SOURCE AND t.p = 'a' THEN DELETE", "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET e = 0"),
)


def _merge(twins: Twins) -> str:
    clauses = [clause for choice in CLAUSES if (clause := twins.rng.choice(choice))]
    on = twins.rng.choice(("t.id = s.id", "t.id <=> s.id AND t.p <=> s.p", "t.p = s.p AND t.id = 7"))
    return f"MERGE INTO {twins.target()} t USING ({twins.rows(twins.types)}) s ON {on} {' '.join(clauses)}"


def _alter(twins: Twins) -> str:
    rng, name, new = twins.rng, twins.name(), f"c{twins.rng.randint(0, 3)}"
    kinds = ("id TYPE bigint", "v TYPE double", "e TYPE decimal(9,2)", "id TYPE string", f"{name} TYPE bigint")
    place = rng.choice(("FIRST", f"AFTER {twins.name()}"))
    return "ALTER TABLE {t} " + rng.choice(
        (
            *(f"ALTER COLUMN {rng.choice(kinds)}", f"ADD COLUMNS ({new} {rng.choice(('int', 'string', 'date'))})"),
            *(f"ADD COLUMN x.{new} int", f"RENAME COLUMN {name} TO {rng.choice((new, 'p', 'r'))}"),
            *(f"DROP COLUMN {name}", f"ALTER COLUMN {name} {place}", f"ALTER COLUMN {name} COMMENT 'a note'"),
            *("ALTER COLUMN id SET NOT NULL", f"ALTER COLUMN {name} DROP NOT NULL"),
        )
    )


def _layout(twins: Twins) -> str:
    rng, field = twins.rng, twins.rng.choice(TRANSFORMS)
    return "ALTER TABLE {t} " + rng.choice(
        (
            *(f"ADD PARTITION FIELD {field}", f"DROP PARTITION FIELD {field}", "WRITE UNORDERED"),
            f"REPLACE PARTITION FIELD {field} WITH {rng.choice(TRANSFORMS)}",
            *(f"WRITE ORDERED BY {twins.name()}", f"WRITE ORDERED BY {twins.name()} DESC NULLS LAST"),
            *("SET TBLPROPERTIES ('k' = 'v', 'write.target-file-size-bytes' = '1000000')", "UNSET TBLPROPERTIES ('k')"),
        )
    )


def _reference(twins: Twins) -> str:
    rng, number = twins.rng, twins.rng.randint(0, 1)
    return "ALTER TABLE {t} " + rng.choice(
        (
            *(f"CREATE BRANCH b{number}", f"CREATE TAG t{number}", f"DROP BRANCH b{number}", f"DROP TAG t{number}"),
            *("CREATE BRANCH b0 AS OF VERSION {v}", "CREATE TAG b0 RETAIN 7 DAYS", "CREATE BRANCH b0"),
        )
    )


MAKERS: tuple[Callable[[Twins], str], ...] = (
    *[_select] * 3, *[_insert] * 4, *[_update] * 2, *[_delete] * 2, *[_merge] * 3, *[_alter] * 4, *[_layout] * 2,
    *[_reference] * 2,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_both_do_the_same(spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, seed: int) -> None:
    found = [
        each
        for each in Twins(spark, iceberg, catalog, seed).differences()
        if not any(re.search(k, each) for k in KNOWN)
    ]
    assert not found, "\n\n".join(found)
