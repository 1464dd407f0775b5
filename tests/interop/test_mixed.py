"""Delta Lake and Widen take turns on one table with random changes; both must always read what a model holds.

``WIDEN_MIXED_SEEDS=0,1,2,3,4 WIDEN_MIXED_STEPS=110`` makes more and longer runs; each seed decides its table and its
changes. In a long run, each kind of change must have changed something by each engine.
"""

from __future__ import annotations

import copy
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from interop import rows
from widen.log.checkpoint_writer import write_checkpoint
from widen.table import Table, create_table

SEEDS = [int(seed) for seed in os.environ.get("WIDEN_MIXED_SEEDS", "0").split(",")]
STEPS = int(os.environ.get("WIDEN_MIXED_STEPS", "5"))
LONG_RUN = 100
VERSIONS_COMPARED = 15
FEATURES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    ("delta.enableDeletionVectors", ("true", None)),
    ("delta.columnMapping.mode", ("name", "id", None)),
    ("delta.enableChangeDataFeed", ("true", None)),
    ("delta.enableRowTracking", ("true", None)),
    ("delta.checkpointPolicy", ("v2", None)),
    ("delta.checkpointInterval", ("3", "10")),
)
COLUMNS = {"id": "int", "city": "string", "n": "tinyint", "price": "decimal(6,2)", "who": "struct<a: smallint>"}
WIDER = {
    "id": ("bigint",),
    "n": ("smallint", "int", "bigint"),
    "price": ("decimal(10,2)", "decimal(14,4)"),
}
SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than these jobs
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
CITIES = ("Gent", "Brno", None)
WIDEN, DELTA = "Widen", "Delta Lake"

Row = dict[str, Any]


@dataclass
class Model:
    """What the table must hold."""

    columns: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    rows: dict[int, Row] = field(default_factory=dict)

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())

    def expected(self) -> list[Row]:
        return [{name: self.rows[key].get(name) for name in self.columns} for key in sorted(self.rows)]


class Mixed:
    """One table, changed by both.

    Args:
        spark: With Delta Lake.
        place: Where the table lies.
        seed: Decides the table and all changes.
    """

    def __init__(self, spark: SparkSession, place: str, seed: int) -> None:
        self.spark = spark
        self.place = place
        self.rng = random.Random(seed)
        self.model = Model()
        self.past: dict[int, Model] = {}
        self.restorable = 0
        self.done: list[str] = []
        self.effects: Counter[tuple[str, str]] = Counter()
        """How often each kind of change by each engine has changed something."""
        self._pending: dict[str, list[str]] = {WIDEN: [], DELTA: []}
        self._key = 0
        drawn = {key: values[0] if seed == 0 else self.rng.choice(values) for key, values in FEATURES}
        self.properties = {key: value for key, value in drawn.items() if value is not None}
        partition_by = ("city",) if self.rng.random() < 0.5 else ()
        self.done.append(f"{self.properties} {partition_by}")
        self._create(partition_by)

    def _create(self, partition_by: tuple[str, ...]) -> None:
        properties = {"delta.enableTypeWidening": "true", **self.properties}
        if self.rng.random() < 0.5:
            create_table(self.place, self.model.ddl, partition_by=partition_by, properties=properties, spark=self.spark)
        else:
            split = f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
            told = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
            self.sql(f"CREATE TABLE {{table}} ({self.model.ddl}) USING delta {split} TBLPROPERTIES ({told})")
        self._remember()

    # ---- both engines ----------------------------------------------------------------------------

    @property
    def table(self) -> Table:
        return Table(self.place)

    def sql(self, text: str) -> None:
        self.spark.sql(text.format(table=f"delta.`{self.place}`"))

    def theirs(self) -> DataFrame:
        return self.spark.read.format("delta").load(self.place)

    def step(self, number: int) -> None:
        """Make one change by the engine whose turn it is, and let the other one read."""
        engine = (WIDEN, DELTA)[number % 2]
        kind = self._next_kind(engine)
        self.done.append(f"{number}: {kind} by {engine}")
        before = self._log_and_files()
        getattr(self, f"_{kind}")(engine)
        self.effects[kind, engine] += self._log_and_files() != before
        self._remember()
        frame = self.theirs() if engine == WIDEN else self.table.read(spark=self.spark)
        assert collected(frame) == self.model.expected(), "\n".join(self.done)

    def _next_kind(self, engine: str) -> str:
        """Draw without putting back, so that no kind is missing in a long run."""
        if not self._pending[engine]:
            self._pending[engine] = self.rng.sample(KINDS[engine], len(KINDS[engine]))
        return self._pending[engine].pop()

    def _log_and_files(self) -> tuple[int, int]:
        """The newest version, and how many checkpoints, sidecars and data files there are."""
        return self.table.version, sum(1 for _ in Path(self.place).rglob("*.parquet"))

    def _remember(self) -> None:
        newest = self.table.version
        for version in range(max(self.past, default=-1) + 1, newest + 1):
            self.past[version] = copy.deepcopy(self.model)

    # ---- changes ---------------------------------------------------------------------------------

    def _new_row(self, key: int) -> Row:
        rng = self.rng
        row: Row = {
            "id": key,
            "city": rng.choice(CITIES),
            "n": rng.choice((None, rng.randint(-100, 100))),
            "price": rng.choice((None, Decimal(rng.randint(-9999, 9999)) / 100)),
            "who": rng.choice((None, {"a": None}, {"a": rng.randint(-9, 9)})),
        }
        for name in list(self.model.columns)[len(COLUMNS) :]:
            row[name] = rng.choice((None, rng.randint(0, 9)))
        return row

    def _new_rows(self, count: int) -> list[Row]:
        self._key += count
        return [self._new_row(self._key - at) for at in range(count)]

    def frame(self, found: list[Row]) -> DataFrame:
        values = [tuple(to_value(row[name]) for name in self.model.columns) for row in found]
        return rows.frame(self.spark, values, self.model.ddl).coalesce(1)

    def _append(self, engine: str) -> None:
        new = self._new_rows(self.rng.randint(1, 6))
        if engine == WIDEN:
            self.table.append(self.frame(new))
        else:
            self.frame(new).write.format("delta").mode("append").save(self.place)
        self.model.rows.update({row["id"]: row for row in new})

    def _delete(self, engine: str) -> None:
        city, where = self._some_city()
        rest = self.rng.randrange(3)
        where = f"{where} AND id % 3 = {rest}"
        if engine == WIDEN:
            self.table.delete(where, spark=self.spark)
        else:
            self.sql(f"DELETE FROM {{table}} WHERE {where}")
        kept = {k: row for k, row in self.model.rows.items() if not (row["city"] == city and k % 3 == rest)}
        self.model.rows = kept

    def _update(self, engine: str) -> None:
        city, where = self._some_city()
        n = self.rng.randint(-100, 100)
        if engine == WIDEN:
            self.table.update({"n": str(n), "price": "price / 2"}, where, spark=self.spark)
        else:
            self.sql(f"UPDATE {{table}} SET n = {n}, price = price / 2 WHERE {where}")
        scale = self.model.columns["price"][-2]
        unit = Decimal(1).scaleb(-int(scale))
        for row in self.model.rows.values():
            if row["city"] == city:
                half = None if row["price"] is None else (row["price"] / 2).quantize(unit, "ROUND_HALF_UP")
                row.update(n=n, price=half)

    def _some_city(self) -> tuple[str | None, str]:
        city = self.rng.choice(CITIES)
        return city, "city IS NULL" if city is None else f"city = '{city}'"

    def _merge(self, engine: str) -> None:
        """Delete what matches and has an even number, update the rest of it, insert the others."""
        known = sorted(self.model.rows)
        matched = [self._new_row(key) for key in self.rng.sample(known, min(len(known), 4))]
        source = [*matched, *self._new_rows(2)]
        frame = self.frame(source)
        if engine == WIDEN:
            merge = self.table.merge(frame, "t.id = s.id").when_matched_delete(condition="s.id % 2 = 0")
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        else:
            frame.createOrReplaceTempView("mixed_source")
            self.sql(
                "MERGE INTO {table} t USING mixed_source s ON t.id = s.id WHEN MATCHED AND s.id % 2 = 0 THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        for row in source:
            if row["id"] in known and row["id"] % 2 == 0:
                del self.model.rows[row["id"]]
            else:
                self.model.rows[row["id"]] = row

    def _alter_type(self, engine: str) -> None:
        name = self.rng.choice(sorted(WIDER))
        known = (COLUMNS[name], *WIDER[name])
        at = known.index(self.model.columns[name])
        if at + 1 == len(known):
            return
        if engine == WIDEN:
            self.table.alter_column(name, type=known[at + 1])
        else:
            self.sql(f"ALTER TABLE {{table}} ALTER COLUMN {name} TYPE {known[at + 1]}")
        self.model.columns[name] = known[at + 1]

    def _add_column(self, engine: str) -> None:
        name = f"c{len(self.done)}"
        if engine == WIDEN:
            self.table.add_columns({name: "int"})
        else:
            self.sql(f"ALTER TABLE {{table}} ADD COLUMNS ({name} int)")
        self.model.columns[name] = "int"

    def _optimize(self, engine: str) -> None:
        if engine == WIDEN:
            self.table.optimize(spark=self.spark)
        else:
            self.sql("OPTIMIZE {table}")

    def _vacuum(self, engine: str) -> None:
        if engine == WIDEN:
            self.table.vacuum(0, force=True)
        else:
            self.sql("VACUUM {table} RETAIN 0 HOURS")
        self.restorable = self.table.version

    def _restore(self, engine: str) -> None:
        version = self.rng.randint(max(self.restorable, max(self.past) - 5), max(self.past))
        if engine == WIDEN:
            self.table.restore(version=version)
        else:
            self.sql(f"RESTORE TABLE {{table}} TO VERSION AS OF {version}")
        self.model = copy.deepcopy(self.past[version])

    def _checkpoint(self, _: str) -> None:
        write_checkpoint(self.table.snapshot)

    # ---- the end ---------------------------------------------------------------------------------

    def ensure_all(self) -> None:
        """Compare the newest version, some of the older ones, the schema, the row ids and the feed."""
        for frame in (self.table.read(spark=self.spark), self.theirs()):
            assert collected(frame) == self.model.expected(), self.done
        assert [field.name for field in self.table.schema] == list(self.model.columns)
        assert rows.shape(self.table.read(spark=self.spark)) == rows.shape(self.theirs())
        versions = range(self.restorable, max(self.past) + 1)
        for version in self.rng.sample(versions, min(len(versions), VERSIONS_COMPARED)):
            expected = self.past[version].expected()
            theirs = self.spark.read.format("delta").option("versionAsOf", version).load(self.place)
            assert collected(self.table.read(version=version, spark=self.spark)) == expected, (version, self.done)
            assert collected(theirs) == expected, (version, self.done)
        if "delta.enableRowTracking" in self.properties:
            ids = [row[0] for row in self.theirs().select("_metadata.row_id").collect()]
            assert len(set(ids)) == len(ids) == len(self.model.rows)
        self.ensure_feed()

    def ensure_feed(self) -> None:
        if "delta.enableChangeDataFeed" in self.properties and self.restorable < max(self.past):
            first = self.restorable + 1
            reader = self.spark.read.format("delta").option("readChangeFeed", "true")
            theirs = reader.option("startingVersion", first).load(self.place)
            told = [
                sorted(map(repr, frame.collect())) for frame in (self.table.changes(first, spark=self.spark), theirs)
            ]
            assert told[0] == told[1], self.done


KINDS: dict[str, list[str]] = {
    WIDEN: [
        *["append", "delete", "update", "merge"] * 3,
        *["alter_type"] * 2,
        "add_column",
        *["restore"] * 2,
        *["checkpoint"] * 2,
        *["optimize"] * 2,
        "vacuum",
    ],
    DELTA: [
        *["append", "delete", "update", "merge"] * 3,
        *["alter_type"] * 2,
        "add_column",
        *["restore"] * 2,
        *["optimize"] * 2,
        "vacuum",
    ],
}


def to_value(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else value


def collected(frame: DataFrame) -> list[Row]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["id"])


@pytest.fixture
def lenient(spark: SparkSession) -> Iterator[Callable[[str, int], Mixed]]:
    """A session for small jobs, in which a vacuum may delete what was removed just now."""
    before = {key: spark.conf.get(key, None) for key in SETTINGS}
    for key, value in SETTINGS.items():
        spark.conf.set(key, value)
    yield lambda place, seed: Mixed(spark, place, seed)
    for key, earlier in before.items():
        spark.conf.unset(key) if earlier is None else spark.conf.set(key, earlier)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_read_what_both_have_written(
    lenient: Callable[[str, int], Mixed],
    tmp_path: Path,
    seed: int,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    mixed = lenient(str(tmp_path / "table"), seed)
    for number in range(STEPS):
        mixed.step(number)
    mixed.ensure_all()
    record_testsuite_property(f"changes of seed {seed}", dict(mixed.effects))
    wanted = [(kind, engine) for engine, kinds in KINDS.items() for kind in kinds if STEPS >= LONG_RUN]
    assert [each for each in wanted if not mixed.effects[each]] == []
