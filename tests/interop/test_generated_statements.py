"""Random statements run by Widen and by Delta Lake on copies of one table: the same rows, columns and refusals.

``WIDEN_STATEMENT_SEEDS=0-99`` makes more runs; each seed decides its table and its statements. After a difference both
go on with the table of Delta Lake, so that one run shows all of them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

import widen
from widen.errors import WidenError

FIRST, _, LAST = os.environ.get("WIDEN_STATEMENT_SEEDS", "0-2").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1)
STATEMENTS = 8

PROPERTIES = (
    ("delta.columnMapping.mode", ("name", "id", None)),
    ("delta.enableDeletionVectors", ("true", None)),
    ("delta.enableChangeDataFeed", ("true", None)),
    ("delta.enableRowTracking", ("true", None)),
)
COLUMNS = "id int, p string, n smallint, d double, e decimal(5,2), x struct<a: int, b: string>"
START, STEP = 3, -2
SEQUENCE = f"AS IDENTITY (START WITH {START} INCREMENT BY {STEP})"
EXTRA = (
    *("", "", ", g int GENERATED ALWAYS AS (id * 2)", ", v int DEFAULT 7"),
    *(f", k bigint GENERATED {kind} {SEQUENCE}" for kind in ("ALWAYS", "BY DEFAULT")),
)
COMPUTED = ("g", "k")
"""The columns that statements give no values for."""
LITERALS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "int": (("0", "7", "-2147483648", "NULL", "3"), ("5000000000", "'8'", "1.5")),
    "bigint": (("5000000000L", "NULL", "3L", "7L"), ("'8'", "2.5D")),
    "string": (("'a'", "''", "'A=b/c%20\"'", "NULL"), ("4", "X'00'")),
    "smallint": (("1S", "-3S", "NULL"), ("40000", "1")),
    "double": (("double('NaN')", "double('-0.0')", "0.0D", "NULL", "2.5D"), ("1e308", "3")),
    "decimal(5,2)": (("1.25BD", "NULL", "-0.01BD", "3.00BD"), ("999.999", "7")),
    "decimal(9,4)": (("1.2345BD", "NULL"), ("1.23456", "7")),
    "struct<a:int,b:string>": (("named_struct('a', 1, 'b', 'z')", "NULL"), ("named_struct('b', 'y', 'a', 2)",)),
}
"""For each type, values that belong to it, and values that are cast or refused; these only stand alone."""

CONDITIONS = (
    *("id > 2", "p = 'a'", "p IS NULL", "d = 0.0", "isnan(d)", "n <=> NULL", "e > 1", "x.a = 1", "id % 2 = 0"),
    *("p <> 'a'", "d > 1", "p IN ('a', '')", "true"),
)

KNOWN: Mapping[str, str] = {
    "is string in the table and binary in the data": "Bytes may not be text, so Widen does not cast them to strings.",
    "Cannot change nullable column to non-nullable": "Widen looks at the rows, and refuses only if one has a null.",
    r"INTO \{t\} BY NAME .*named_struct\('b'": "By name, Widen also matches the fields of structs by name.",
    r"(?s)MERGE .*Widen: None.*CHECK constraint Generated Column": (
        "Delta Lake computes generated columns from the values before they are cast, and then refuses the row."
    ),
    r"(?s)MERGE .*Widen: None.*ARITHMETIC_OVERFLOW.*id \* 2": (
        "Delta Lake also computes the generated columns of rows that it does not insert."
    ),
    r"(?s)^(?!.*WHEN MATCHED).*Widen: None.*DELTA_MULTIPLE_SOURCE_ROW": (
        "Where no clause changes matched rows, it does not matter how many rows match."
    ),
    "for one of its values, which has a NUL": "Spark cannot write a partition into a folder whose name has a NUL.",
    "DELTA_MERGE_UNRESOLVED_EXPRESSION": "Where a merge has no value for a generated column, Widen computes it.",
}
"""Patterns of differences that are decisions, each with the reason."""


class Twins:
    """Copies of one table, one changed by each engine."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark, self.rng, self.version = spark, random.Random(seed), 0
        self.mine, self.theirs = f"{folder}/mine", f"{folder}/theirs"
        drawn = {key: self.rng.choice(values) for key, values in PROPERTIES}
        told = {"delta.enableTypeWidening": "true", "delta.feature.allowColumnDefaults": "supported"}
        told |= {key: value for key, value in drawn.items() if value is not None}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in told.items())
        split = self.rng.choice(("", "PARTITIONED BY (p)", "PARTITIONED BY (p, n)"))
        columns = COLUMNS + self.rng.choice(EXTRA)
        self.is_tracked, self.has_feed = ("delta.enableRowTracking" in told, "delta.enableChangeDataFeed" in told)
        self.done = [f"CREATE TABLE {{t}} ({columns}) USING delta {split} TBLPROPERTIES ({listed})"]
        spark.sql(self.done[0].format(t=f"delta.`{self.theirs}`"))
        self.copy()

    def copy(self) -> None:
        """Let both go on with the table of Delta Lake."""
        shutil.rmtree(self.mine, ignore_errors=True)
        shutil.copytree(self.theirs, self.mine)
        self.spark.catalog.clearCache()
        self.known = {number for number, _ in self.tracked(self.theirs)}

    def differences(self) -> Iterator[str]:
        """Run random statements and yield those that do not do the same."""
        for _ in range(STATEMENTS):
            statement = self.rng.choice(MAKERS)(self)
            theirs = refusal(lambda s=statement: self.spark.sql(s.format(t=f"delta.`{self.theirs}`")))
            mine = refusal(lambda s=statement: widen.sql(s.format(t=f"delta.`{self.mine}`"), spark=self.spark))
            self.done.append(statement)
            if (mine is None) != (theirs is None):
                yield f"{self.done[0]}\n  {statement}\n  Widen: {mine}\n  Delta Lake: {theirs}"
            elif (ours := self.content(self.mine)) != (wanted := self.content(self.theirs)):
                yield "\n  ".join([*self.done, f"Widen: {ours}", f"Delta Lake: {wanted}"])
            else:
                continue
            self.copy()
        if self.has_feed and (ours := self.feed(self.mine)) != (wanted := self.feed(self.theirs)):
            yield "\n  ".join([*self.done, "The feeds differ.", f"Widen: {ours}", f"Delta Lake: {wanted}"])

    def content(self, place: str) -> tuple[object, ...]:
        """Return the columns and the rows, which tell -0.0 from 0.0, with the ids of rows that both began with."""
        frame = widen.Table(place).read(spark=self.spark)
        rows = frame.collect()
        numbers = [row["k"] for row in rows if "k" in frame.columns]
        is_sequence = (
            None not in numbers
            and all((number - START) % STEP == 0 for number in numbers)
            and len({*numbers}) == len(numbers)
        )
        tracked = sorted((number, text) for number, text in self.tracked(place) if number in self.known)
        return frame.schema.simpleString(), is_sequence, sorted(map(_without_number, rows)), tracked

    def tracked(self, place: str) -> list[tuple[int, str]]:
        """Return the rows with their ids, as Delta Lake reads them."""
        if not self.is_tracked:
            return []
        rows = self.spark.read.format("delta").load(place).selectExpr("*", "_metadata.row_id AS row_id")
        return [(row["row_id"], _without_number(row)) for row in rows.collect()]

    def feed(self, place: str) -> list[str] | str:
        """Return the changes of all versions without the numbers of the versions, which the engines may count apart."""
        try:
            changes = widen.Table(place).changes(0, spark=self.spark).drop("_commit_version", "_commit_timestamp")
            return sorted(map(_without_number, changes.collect()))
        except WidenError as error:  # a feed across a change of columns
            return type(error).__name__

    # ---- parts of statements -------------------------------------------------------------------------

    @property
    def types(self) -> dict[str, str]:
        """The types of the columns that take values."""
        schema = self.spark.read.format("delta").load(self.theirs).schema
        return {field.name: field.dataType.simpleString() for field in schema if field.name not in COMPUTED}

    def value(self, data_type: str, *, is_odd: bool = False) -> str:
        plain, odd = LITERALS.get(data_type, (("NULL",), ("1",)))
        return self.rng.choice(odd if is_odd else plain)

    def rows(self, types: Mapping[str, str]) -> str:
        count = self.rng.randint(1, 4)
        odd = self.rng.choice([*types]) if count == 1 else None
        rows = (
            ", ".join(f"{self.value(each, is_odd=name == odd)} AS {name}" for name, each in types.items())
            for _ in range(count)
        )
        return " UNION ALL ".join(f"SELECT {row}" for row in rows)

    def some(self, types: Mapping[str, str]) -> dict[str, str]:
        return {name: types[name] for name in self.rng.sample([*types], self.rng.randint(1, len(types)))}

    def condition(self) -> str:
        return " AND ".join(self.rng.sample(CONDITIONS, self.rng.randint(1, 2)))


def _without_number(row: Row) -> str:
    """Return a row without the values of the sequence and of row tracking, which the engines give in other orders."""
    return repr({name: value for name, value in row.asDict().items() if name not in ("k", "row_id")})


def refusal(run: Callable[[], object]) -> str | None:
    try:
        run()
    except Exception as error:  # whatever Spark and Delta Lake raise
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


def _insert(twins: Twins) -> str:
    types, rng = twins.types, twins.rng
    some = twins.some(types)
    return rng.choice(
        (
            f"INSERT INTO {{t}} {twins.rows(types)}",
            f"INSERT INTO {{t}} ({', '.join(some)}) {twins.rows(some)}",
            f"INSERT INTO {{t}} BY NAME {twins.rows(some)}",
            f"INSERT OVERWRITE {{t}} {twins.rows(types)}",
            f"INSERT INTO {{t}} REPLACE WHERE {rng.choice(('p = ' + repr('a'), 'id > 2'))} {twins.rows(types)}",
            f"INSERT WITH SCHEMA EVOLUTION INTO {{t}} BY NAME {twins.rows({**some, f'c{rng.randint(0, 2)}': 'int'})}",
        )
    )


def _update(twins: Twins) -> str:
    name, data_type = twins.rng.choice([*twins.types.items()])
    assignments = [f"{name} = {twins.value(data_type)}", "x.a = x.a + 1", "d = -d", "id = n", "n = id", "e = d"]
    return f"UPDATE {{t}} SET {twins.rng.choice(assignments)} WHERE {twins.condition()}"


def _delete(twins: Twins) -> str:
    return f"DELETE FROM {{t}} WHERE {twins.condition()}"


CLAUSES = (
    (
        *("", "WHEN MATCHED AND s.d > 1 THEN DELETE", "WHEN MATCHED THEN UPDATE SET *"),
        "WHEN MATCHED AND t.p = 'a' THEN UPDATE SET d = s.d, x.a = 9",
    ),
    ("WHEN NOT MATCHED THEN INSERT *", "WHEN NOT MATCHED AND s.id > 0 THEN INSERT (id, p) VALUES (s.id, 'in')"),
    (
        *("", "WHEN NOT MATCHED BY SOURCE AND t.n = 1 THEN DELETE"),
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET e = 0",
    ),
)


def _merge(twins: Twins) -> str:
    types, rng = twins.types, twins.rng
    evolves = rng.random() < 0.4
    source = twins.rows({**types, "c9": "int"} if evolves and rng.random() < 0.5 else types)
    clauses = [clause for choice in CLAUSES if (clause := rng.choice(choice))]
    verb = "MERGE WITH SCHEMA EVOLUTION" if evolves else "MERGE"
    on = rng.choice(("t.id = s.id", "t.id <=> s.id AND t.p <=> s.p", "t.p = s.p AND t.id = 7"))
    return f"{verb} INTO {{t}} t USING ({source}) s ON {on} {' '.join(clauses)}"


def _alter(twins: Twins) -> str:
    name = twins.rng.choice([*twins.types])
    return twins.rng.choice(
        (
            "ALTER TABLE {t} ALTER COLUMN " + twins.rng.choice(("id TYPE bigint", "n TYPE int", "e TYPE decimal(9,4)")),
            f"ALTER TABLE {{t}} ADD COLUMNS (c{twins.rng.randint(0, 3)} {twins.rng.choice(('int', 'string'))})",
            f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {name}_r",
            f"ALTER TABLE {{t}} DROP COLUMN {name}",
            f"ALTER TABLE {{t}} ADD CONSTRAINT k{twins.rng.randint(0, 1)} CHECK (id IS NULL OR id < 6000000000)",
            "ALTER TABLE {t} ALTER COLUMN id SET NOT NULL",
            f"ALTER TABLE {{t}} ALTER COLUMN {name} FIRST",
        )
    )


def _upkeep(twins: Twins) -> str:
    version = twins.rng.randint(0, max(0, len(twins.done) - 2))
    return twins.rng.choice((f"RESTORE TABLE {{t}} TO VERSION AS OF {version}", "OPTIMIZE {t}", "VACUUM {t}"))


MAKERS: tuple[Callable[[Twins], str], ...] = (
    *[_insert] * 5, *[_update] * 2, *[_delete] * 2, *[_merge] * 4, *[_alter] * 2, _upkeep,
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_both_do_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    found = [each for each in Twins(spark, tmp_path, seed).differences() if not any(re.search(k, each) for k in KNOWN)]
    assert not found, "\n\n".join(found)
