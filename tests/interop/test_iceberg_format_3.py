"""Tables of format version 3, which Iceberg for Spark and Widen change in turn: their rows keep their ids.

The expected values come from a model: which rows there are, which id each had when it was first seen, and which of them
a step changes.

Source: Iceberg's table specification, "Row Lineage"
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from interop.conftest import IcebergSpark
from widen.changes import iceberg_write
from widen.iceberg.catalog import to_table_name

TABLES = int(os.environ.get("WIDEN_TABLES", 60 if os.environ.get("WIDEN_TEST_FAULTS") else 6))
STEPS = 10
LINEAGE = "_row_id, _last_updated_sequence_number"


@dataclass
class Walk:
    """A table that both change, and what must be in it.

    Args:
        rows: The value of each row by its key.
        ids: The id of each row by its key, once it has one.
        numbers: The number of the last change of each row by its key.
    """

    spark: SparkSession
    iceberg: IcebergSpark
    folder: Path
    name: str
    rng: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)
    highest: int = -1
    is_keyed: bool = False
    log: list[str] = field(default_factory=list)

    @property
    def catalog(self) -> Path:
        return self.folder / "catalog.db"

    @property
    def table(self) -> widen.IcebergTable:
        return widen.IcebergTable(f"ns.{self.name}", catalog=self.catalog)

    def theirs(self, text: str) -> None:
        self.log.append(f"Iceberg: {text}")
        self.iceberg.sql(text.format(t=f"default.ns.{self.name}"))

    def ours(self, text: str, **options: Any) -> None:
        self.log.append(f"Widen: {text} {options}")
        widen.sql(text.format(t=f"ns.{self.name}"), catalog=self.catalog, **options)

    def new_keys(self) -> list[int]:
        first = max(self.rows, default=0) + 1
        return list(range(first, first + self.rng.randint(1, 6)))

    def some_keys(self) -> list[int]:
        return self.rng.sample(sorted(self.rows), min(len(self.rows), self.rng.randint(1, 4))) or [-1]

    # ---- steps: each returns the keys of the rows that it changes --------------------------------------

    def inserts(self, run: Callable[[str], None]) -> set[int]:
        keys, value = self.new_keys(), self.value()
        run(f"INSERT INTO {{t}} (id, p, v) VALUES {', '.join(f'({key}, {key % 2}, {value!r})' for key in keys)}")
        self.rows |= dict.fromkeys(keys, value)
        return set(keys)

    def updates(self, run: Callable[[str], None]) -> set[int]:
        keys, value = self.some_keys(), self.value()
        run(f"UPDATE {{t}} SET v = {value!r} WHERE id IN ({', '.join(map(str, keys))})")
        self.rows |= {key: value for key in keys if key in self.rows}
        return set(keys)

    def deletes(self, run: Callable[[str], None]) -> set[int]:
        keys = self.some_keys()
        run(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, keys))})")
        for key in keys:
            for known in (self.rows, self.ids, self.numbers):
                known.pop(key, None)
        return set()

    def merges(self, run: Callable[[str], None]) -> set[int]:
        old, new, value = self.some_keys(), self.new_keys(), self.value()
        keys = ", ".join(map(str, [*old, *new]))
        run(
            f"MERGE INTO {{t}} t USING (SELECT explode(array({keys})) AS id) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET v = {value!r} "
            f"WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, s.id % 2, {value!r})"
        )
        self.rows |= dict.fromkeys([*(key for key in old if key in self.rows), *new], value)
        self.rows |= {} if old != [-1] else {-1: value}
        return {*old, *new}

    def ingests(self) -> set[int]:
        keys, value = self.new_keys(), self.value()
        records = "\n".join(json.dumps({"id": key, "p": key % 2, "v": value}) for key in keys)
        source = self.folder / f"{self.name}-{len(self.log)}.json"
        source.write_text(records)
        self.log.append(f"ingest {keys}")
        options = {"key": ["id"]} if self.is_keyed else {}
        changed = widen.ingest(source, f"ns.{self.name}", catalog=self.catalog, to="iceberg", verify=True, **options)
        assert changed.version
        self.rows |= dict.fromkeys(keys, value)
        return set(keys)

    def loads_by_key(self) -> set[int]:
        """Load records by key; each gets a new id, also where its row is known."""
        keys, value = [key for key in (*self.some_keys(), *self.new_keys()) if key != -1], self.value()
        source = self.folder / f"{self.name}-{len(self.log)}.json"
        source.write_text("\n".join(json.dumps({"id": key, "p": key % 2, "v": value}) for key in keys))
        self.log.append(f"ingest by key {keys}")
        changed = widen.ingest(source, f"ns.{self.name}", catalog=self.catalog, to="iceberg", key=["id"], verify=True)
        assert changed.version, "\n".join(self.log)
        self.is_keyed = True
        for key in keys:
            self.ids.pop(key, None)
        self.rows |= dict.fromkeys(keys, value)
        return set(keys)

    def optimizes(self) -> set[int]:
        self.log.append("optimize")
        self.table.optimize()
        return set()

    def rewrites(self) -> set[int]:
        options = "options => map('rewrite-all', 'true')"
        self.theirs(f"CALL default.system.rewrite_data_files(table => 'ns.{self.name}', {options})")
        return set()

    def grows(self) -> set[int]:
        name = f"c{len(self.log)}"
        self.log.append(f"add {name}")
        self.table.add_columns({name: "string"})
        return set()

    def value(self) -> str:
        return f"v{self.rng.randint(0, 10**6)}"

    # ---- the comparison --------------------------------------------------------------------------------

    def check(self, changed: set[int]) -> None:
        said = "\n".join(self.log)
        query = f"SELECT id, v, {LINEAGE} FROM default.ns.{self.name}"
        theirs = sorted(map(tuple, self.iceberg.sql(query)))
        frame = self.table.read(row_lineage=True, spark=self.spark).select("id", "v", *LINEAGE.split(", "))
        assert sorted(map(tuple, frame.collect())) == theirs, said
        self.check_totals()
        local = self.table.read(spark=self.spark).select("id", "v").toArrow().to_pylist()
        assert {row["id"]: row["v"] for row in local} == self.rows, said
        assert {key: value for key, value, *_ in theirs} == self.rows, said
        assert len(theirs) == len(self.rows), said
        ids = [number for *_, number, _ in theirs if number is not None]
        assert len(set(ids)) == len(ids), said
        now = self.current_number
        for key, _, number, updated in theirs:
            if number is None:  # from before version 3, until the next commit
                continue
            if key in self.ids:
                assert number == self.ids[key], (key, said)
            else:
                assert number > self.highest or key not in changed, (key, said)
            if key in changed:
                assert updated == now, (key, said)
            elif key in self.numbers:
                assert updated == self.numbers[key], (key, said)
            self.ids[key], self.numbers[key] = number, updated
        self.highest = max([self.highest, *ids])

    def check_totals(self) -> None:
        """Compare what the summary of the newest snapshot counts with what its manifests list."""
        table = f"default.ns.{self.name}"
        (summary,) = self.iceberg.sql(f"SELECT summary FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1")[0]
        query = f"SELECT content, count(*), sum(record_count) FROM {table}.files GROUP BY content"
        listed = {kind: (files, rows) for kind, files, rows in self.iceberg.sql(query)}
        said = {key.removeprefix("total-"): int(value) for key, value in summary.items() if key.startswith("total-")}
        data, deletes = listed.get(0, (0, 0)), listed.get(1, (0, 0))
        log = "\n".join(self.log)
        assert (said["data-files"], said["records"]) == data, log
        assert (said["delete-files"], said["position-deletes"]) == deletes, log

    @property
    def current_number(self) -> int:
        metadata = to_table_name(f"ns.{self.name}", self.catalog).load().metadata
        assert metadata.format_version == 3
        assert metadata.next_row_id is not None
        snapshot = metadata.current_snapshot()
        return 0 if snapshot is None or snapshot.sequence_number is None else snapshot.sequence_number


@pytest.mark.parametrize("seed", range(TABLES))
def test_rows_keep_their_ids(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    walk = Walk(spark, iceberg, folder, f"three{seed}", rng)
    split = rng.choice(["", "PARTITIONED BY (p)"])
    modes = ", ".join(
        f"'write.{each}.mode'='{rng.choice(['copy-on-write', 'merge-on-read'])}'"
        for each in ("update", "merge", "delete")
    )
    version = rng.choice([2, 3, 3])
    create = f"CREATE TABLE {{t}} (id bigint, p bigint, v string) USING iceberg {split} TBLPROPERTIES "
    rng.choice([walk.theirs, walk.ours])(f"{create}('format-version'='{version}', {modes})")
    if version == 2:
        walk.inserts(walk.theirs)
        rng.choice([walk.theirs, walk.ours])("ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')")

    def with_spark(text: str) -> None:
        walk.ours(text, spark=spark)

    def by_frames(text: str) -> None:
        """Change rows as Widen does where the files are too large to be copied by this process."""
        with monkeypatch.context() as patch:
            patch.setattr(iceberg_write, "COPIED_BYTES", 0)
            walk.ours(text, spark=spark)

    runs = (walk.theirs, walk.theirs, with_spark, by_frames)
    steps: list[Callable[[], set[int]]] = [walk.ingests, walk.loads_by_key, walk.optimizes, walk.rewrites, walk.grows]
    steps += [lambda: walk.updates(walk.ours), lambda: walk.deletes(walk.ours)]
    steps += [
        (lambda change=change, run=run: change(run))  # type: ignore[misc]
        for change in (walk.inserts, walk.updates, walk.deletes, walk.merges)
        for run in runs
    ]
    walk.inserts(rng.choice(runs))
    walk.check(set(walk.rows) if version == 3 else set())
    for _ in range(STEPS):
        walk.check(rng.choice(steps)())
