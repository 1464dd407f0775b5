"""Tables are handed over: the client reads every value, or the hand-over is refused.

The generated tables are described by their number; WIDEN_TEST_HANDOVERS says how many there are. polars and DuckDB read
them, too, where they are installed.
"""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from support.command_line import run, run_json
from widen.iceberg.catalog import to_catalog
from widen.schema import feature_removal as handover
from widen.table import Table, create_table

COUNT = int(os.environ.get("WIDEN_TEST_HANDOVERS", "4"))
RETENTION = "delta.dropFeatureTruncateHistory.retentionDuration"


def rows(path: str) -> list[dict[str, object]]:
    return sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=lambda row: int(str(row["id"])))


def test_deltalake_reads_and_then_appends(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    properties = {"delta.enableTypeWidening": "true", RETENTION: "interval 0 hours"}
    table = create_table(path, "id int, note string", properties=properties)
    table.append(spark.createDataFrame([(1, "a")], "id int, note string"))
    table.alter_column("id", type="bigint")
    table.append(spark.createDataFrame([(2**40, "b")], "id bigint, note string"))
    with pytest.raises(DeltaError):
        rows(path)

    preview = run_json("handover", path, "--to", "deltalake", "--dry-run")
    assert (preview["drops"], preview["unwritable"]) == (["typeWidening"], ["checkpointProtection"])
    assert preview["version"] == table.version
    done = run("handover", path, "--to", "deltalake")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "dropped typeWidening" in done.stdout
    assert "2 rows" in done.stdout
    assert rows(path) == [{"id": 1, "note": "a"}, {"id": 2**40, "note": "b"}]

    new = pa.table({"id": pa.array([3], pa.int64()), "note": ["c"]})
    with pytest.raises(DeltaError, match="Unsupported table features"):
        write_deltalake(path, new, mode="append")
    for file in (tmp_path / "t" / "_delta_log").iterdir():
        os.utime(file, (time.time() - 120,) * 2)
    final = run_json("handover", path, "--to", "deltalake", "--append")
    assert (final["drops"], final["pending"], final["rows"]) == (["checkpointProtection"], None, 2)
    write_deltalake(path, new, mode="append")
    assert [row["id"] for row in rows(path)] == [1, 3, 2**40]


# ---- generated tables ------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "byte": [0, 127, -128],
    "int": [0, 2**31 - 1, -(2**31)],
    "bigint": [2**53 + 1, -(2**63)],
    "float": [0.5, -0.0, float("nan"), float("-inf")],
    "double": [0.1, -0.0, float("nan"), 5e-324],
    "string": ["", "a", "ä/ =%", "NULL"],
    "binary": [b"", b"\x00\xff"],
    "boolean": [True, False],
    "date": [date(1, 1, 1), date(2024, 2, 29)],
    "timestamp": [datetime(2024, 2, 29, 1, 2, 3, 4, timezone.utc), datetime(1969, 12, 31, 23, 59, tzinfo=timezone.utc)],
    "timestamp_ntz": [datetime(2024, 2, 29, 1, 2, 3, 4), datetime(9999, 12, 31)],
    "decimal(10,2)": [Decimal("99999999.99"), Decimal("-0.01")],
}
WIDER: dict[str, list[tuple[str, Callable[[Any], Any]]]] = {
    "byte": [("int", int), ("bigint", int)],
    "int": [
        ("bigint", int),
        ("double", float),
        ("decimal(12,1)", lambda value: Decimal(value).quantize(Decimal("0.1"))),
    ],
    "float": [("double", float)],
    "date": [("timestamp_ntz", lambda value: datetime(value.year, value.month, value.day))],
    "decimal(10,2)": [("decimal(14,4)", lambda value: value.quantize(Decimal("0.0001")))],
}
"""The types that a column can get, and what becomes of its values."""

PARTITIONS = ("int", "string", "date", "boolean")
Kind = Any
"""The name of a type, ("array", kind), ("map", kind) with strings as keys, or {name: kind} for a struct."""


class Model:
    """A generated table, and the rows that it must have."""

    def __init__(self, seed: int, path: str) -> None:
        self.chance, self.path = random.Random(seed), path
        self.is_iceberg, self.is_simple = seed % 6 == 5, False
        self.mode = "name" if self.is_iceberg else self.chance.choice(["none", "none", "name", "name", "id"])
        # Without this feature a table with column mapping has the old protocol versions, which some readers overlook.
        self.feature = {"delta.feature.timestampNtz": "supported"} if self.chance.random() < 0.5 else {}
        self.kinds: dict[str, Kind] = {"id": "int", "part": self.chance.choice(PARTITIONS)}
        for number in range(self.chance.randint(3, 6)):
            self.kinds[f"c{number}"] = self.kind(2)
        self.partition = ["part"] * (self.chance.random() < 0.4)
        self.rows: list[dict[str, Any]] = []
        self.steps: list[str] = []

    def kind(self, depth: int) -> Kind:
        form = self.chance.randrange(8 if depth else 4)
        if form < 5:
            return self.chance.choice([kind for kind in VALUES if self.feature or kind != "timestamp_ntz"])
        if form == 5:
            return ("array", self.kind(depth - 1))
        return ("map", self.kind(depth - 1)) if form == 6 else {name: self.kind(depth - 1) for name in ("x", "y")}

    def value(self, kind: Kind) -> Any:
        if self.chance.random() < 0.25:
            return None
        if isinstance(kind, dict):
            return {name: self.value(part) for name, part in kind.items()}
        if isinstance(kind, str):
            return self.chance.choice(VALUES.get(kind, [None]))
        items = [self.value(kind[1]) for _ in range(self.chance.randrange(3))]
        return items if kind[0] == "array" else {f"k{at}": item for at, item in enumerate(items)}

    def properties(self) -> dict[str, str]:
        if self.is_iceberg:
            return {
                **self.feature,
                "delta.enableIcebergCompatV2": "true",
                "delta.columnMapping.mode": "name",
            }
        chosen = {
            **self.feature,
            "delta.columnMapping.mode": self.mode,
            RETENTION: "interval 0 hours",
        }
        some = {
            "delta.enableTypeWidening": 0.5,
            "delta.enableDeletionVectors": 0.4,
            "delta.enableRowTracking": 0.15,
            "delta.enableInCommitTimestamps": 0.15,
            "delta.enableChangeDataFeed": 0.15,
        }
        if self.is_simple:
            some = dict(list(some.items())[:2])
        return {**chosen, **{key: "true" for key, share in some.items() if self.chance.random() < share}}

    def build(self, spark: SparkSession | None) -> Table:
        ddl = ", ".join(f"{name} {to_ddl(kind)}" for name, kind in self.kinds.items())
        table = create_table(self.path, ddl, partition_by=tuple(self.partition), properties=self.properties())
        self.append(spark, table)
        for _ in range(self.chance.randint(1, 4)):
            step = self.chance.choice((self.rename, self.drop, self.add, self.widen, self.delete))
            step(spark, table.refresh())
            self.steps.append(step.__name__)
        self.append(spark, table)
        return table.refresh()

    def append(self, spark: SparkSession | None, table: Table) -> None:
        first = len(self.rows) and max(row["id"] for row in self.rows) + 1
        new = [
            {name: first + at if name == "id" else self.value(kind) for name, kind in self.kinds.items()}
            for at in range(self.chance.randint(1, 5))
        ]
        for name in self.partition:
            for row in new:
                row[name] = row[name] or None if row[name] == "" else row[name]  # the log has no empty string
        if spark is None:
            self.append_by_hand(table, new)
        else:
            ddl = ", ".join(f"{name} {to_ddl(kind)}" for name, kind in self.kinds.items())
            table.append(spark.createDataFrame(new, ddl))
        self.rows += new

    def append_by_hand(self, table: Table, new: list[dict[str, Any]]) -> None:
        """Write files and a commit without Widen: Parquet by PyArrow, and the log as text."""
        stored = {field["name"]: field for field in json.loads(table.metadata.schema_string)["fields"]}
        names = {name: _stored_name(field) for name, field in stored.items()}
        kept = [name for name in self.kinds if name not in self.partition]
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": 0, "operation": "WRITE", "operationParameters": {}}}
        ]
        for row in new:
            path = f"{uuid.UUID(int=self.chance.getrandbits(128))}.parquet"
            columns = [
                pa.array(
                    [_to_stored(row[name], self.kinds[name], stored[name]["type"])],
                    _to_arrow(self.kinds[name], stored[name]["type"]),
                )
                for name in kept
            ]
            pq.write_table(pa.Table.from_arrays(columns, [names[name] for name in kept]), f"{self.path}/{path}")
            values = {names[name]: None if row[name] is None else _to_text(row[name]) for name in self.partition}
            size = os.path.getsize(f"{self.path}/{path}")
            facts = {"size": size, "modificationTime": 0, "dataChange": True, "stats": '{"numRecords":1}'}
            actions.append({"add": {"path": path, "partitionValues": values, **facts}})
        log = Path(self.path, "_delta_log", f"{table.refresh().version + 1:020}.json")
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))

    def rename(self, _: SparkSession | None, table: Table) -> None:
        if self.mode != "none":
            old = self.chance.choice([name for name in self.kinds if name != "id"])
            name = f"{old}_new"
            table.rename_column(old, name)
            self.partition = [name if each == old else each for each in self.partition]
            self.kinds = {name if each == old else each: kind for each, kind in self.kinds.items()}
            self.rows = [{name if each == old else each: value for each, value in row.items()} for row in self.rows]

    def drop(self, _: SparkSession | None, table: Table) -> None:
        names = [name for name in self.kinds if name not in ("id", *self.partition)]
        if self.mode != "none" and len(names) > 1:
            name = self.chance.choice(names)
            table.drop_columns(name)
            del self.kinds[name]
            self.rows = [{each: value for each, value in row.items() if each != name} for row in self.rows]

    def add(self, _: SparkSession | None, table: Table) -> None:
        free = [f"c{at}" for at in range(20) if f"c{at}" not in self.kinds]  # also the name of a dropped one
        self.kinds[free[0]] = self.kind(1)
        table.add_columns({free[0]: to_ddl(self.kinds[free[0]])})
        self.rows = [{**row, free[0]: None} for row in self.rows]

    def widen(self, _: SparkSession | None, table: Table) -> None:
        names = [name for name, kind in self.kinds.items() if isinstance(kind, str) and kind in WIDER and name != "id"]
        names = [name for name in names if name not in self.partition]
        if names and table.properties.get("delta.enableTypeWidening") == "true":
            name = self.chance.choice(names)
            kind, convert = self.chance.choice(WIDER[self.kinds[name]])
            if kind == "timestamp_ntz" and not self.feature:
                return
            table.alter_column(name, type=kind)
            self.kinds[name] = kind
            for row in self.rows:
                row[name] = None if row[name] is None else convert(row[name])

    def delete(self, spark: SparkSession | None, table: Table) -> None:
        if self.rows and spark is not None:
            chosen = self.chance.choice(self.rows)["id"]
            table.delete(f"id = {chosen}", spark=spark)
            self.rows = [row for row in self.rows if row["id"] != chosen]

    def expected(self) -> list[Any]:
        return sorted(([to_form(row[name], kind) for name, kind in self.kinds.items()] for row in self.rows), key=repr)

    def found(self, rows: list[dict[str, Any]]) -> list[Any]:
        """The rows of a client in the form of the expected ones; without a form if the columns differ."""
        if any(row.keys() != self.kinds.keys() for row in rows):
            return [list(row) for row in rows]
        return sorted(([to_form(row[name], kind) for name, kind in self.kinds.items()] for row in rows), key=repr)


def _stored_name(field: dict[str, Any]) -> str:
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


def _to_stored(value: Any, kind: Kind, stored: Any) -> Any:
    """A value with the stored names of the fields of structs."""
    if value is None or isinstance(kind, str):
        return value
    if isinstance(kind, dict):
        return {
            _stored_name(field): _to_stored(value[field["name"]], kind[field["name"]], field["type"])
            for field in stored["fields"]
        }
    if kind[0] == "array":
        return [_to_stored(item, kind[1], stored["elementType"]) for item in value]
    return [(key, _to_stored(item, kind[1], stored["valueType"])) for key, item in value.items()]


ARROW = {
    "byte": pa.int8(), "int": pa.int32(), "bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "string": pa.string(), "binary": pa.binary(), "boolean": pa.bool_(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "decimal(10,2)": pa.decimal128(10, 2), "decimal(12,1)": pa.decimal128(12, 1), "decimal(14,4)": pa.decimal128(14, 4),
}  # fmt: skip


def _to_arrow(kind: Kind, stored: Any) -> pa.DataType:
    if isinstance(kind, str):
        return ARROW[kind]
    if isinstance(kind, dict):
        return pa.struct([(_stored_name(f), _to_arrow(kind[f["name"]], f["type"])) for f in stored["fields"]])
    if kind[0] == "array":
        return pa.list_(_to_arrow(kind[1], stored["elementType"]))
    return pa.map_(pa.string(), _to_arrow(kind[1], stored["valueType"]))


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def to_ddl(kind: Kind) -> str:
    if isinstance(kind, str):
        return kind
    if isinstance(kind, dict):
        return f"struct<{', '.join(f'{name}: {to_ddl(part)}' for name, part in kind.items())}>"
    return f"array<{to_ddl(kind[1])}>" if kind[0] == "array" else f"map<string, {to_ddl(kind[1])}>"


def to_form(value: Any, kind: Kind) -> Any:
    """A form in which NaN equals itself, 0.0 differs from -0.0 and an integer from a double."""
    if value is None:
        return None
    if isinstance(kind, dict):
        is_struct = isinstance(value, dict) and value.keys() == kind.keys()
        return {name: to_form(value[name], part) for name, part in kind.items()} if is_struct else repr(value)
    if not isinstance(kind, str):
        if kind[0] == "array":
            return [to_form(item, kind[1]) for item in value]
        pairs = value.items() if isinstance(value, dict) else [tuple(_pair(each)) for each in value]
        return sorted([key, to_form(item, kind[1])] for key, item in pairs)
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(timezone.utc).isoformat()
    if kind == "float":
        return repr(pa.scalar(value, pa.float32()).as_py())
    return f"{type(value).__name__} {value!r}" if not isinstance(value, bytearray) else repr(bytes(value))


def _pair(entry: Any) -> Any:
    return entry.values() if isinstance(entry, dict) else entry


def _deltalake(path: str) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    yield "to_pyarrow_table", lambda: DeltaTable(path).to_pyarrow_table().to_pylist()
    yield (
        "to_pandas",
        lambda: pa.Table.from_pandas(
            DeltaTable(path).to_pandas(types_mapper=import_module("pandas").ArrowDtype), preserve_index=False
        ).to_pylist(),
    )
    yield (
        "QueryBuilder",
        lambda: pa.table(
            QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
        ).to_pylist(),
    )
    yield "columns", lambda: _by_column(DeltaTable(path))
    if find_spec("duckdb"):
        yield "duckdb", lambda: _duckdb(DeltaTable(path).to_pyarrow_dataset())


def _by_column(table: DeltaTable) -> list[dict[str, Any]]:
    names = [field.name for field in table.schema().fields]
    columns = [table.to_pyarrow_table(columns=[name])[name] for name in names]
    return pa.Table.from_arrays(columns, names).to_pylist()


def _duckdb(source: Any) -> list[dict[str, Any]]:
    module = import_module("duckdb")
    module.execute("SET TimeZone = 'UTC'")
    found = module.from_arrow(source).to_arrow_table()
    return found.to_pylist()  # type: ignore[no-any-return]


def _polars(path: str) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    polars = import_module("polars")
    yield "read_delta", lambda: polars.read_delta(path).to_arrow().to_pylist()
    yield "scan_delta", lambda: polars.scan_delta(path).collect(engine="streaming").to_arrow().to_pylist()


LOST = "loses rows of filters"
"""What a handover finds beside wrong values, which the whole rows that are compared here do not show."""
CLIENTS = {"deltalake": _deltalake, **({"polars": _polars} if find_spec("polars") else {})}


def misread(model: Model, client: str) -> dict[str, str]:
    """The readers of a client that fail or return something else than the rows of the model."""
    wrong = {}
    for name, read in CLIENTS[client](model.path):
        try:
            found = model.found(read())
        except BaseException as error:  # also the panics of Rust
            wrong[name] = f"fails: {error}"[:200]
        else:
            if found != model.expected():
                wrong[name] = f"{found} instead of {model.expected()}"
    return wrong


@pytest.mark.parametrize("seed", range(COUNT))
def test_what_is_handed_over_is_read_by_value(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    model = Model(seed, str(tmp_path / "t"))
    table = model.build(spark)
    if model.is_iceberg:
        _hand_to_iceberg(model, tmp_path)
        return
    _prove_alone(model, monkeypatch)
    for client in CLIENTS:
        done = run("handover", model.path, "--to", client)
        if "does not read tables with" not in done.stderr:
            wrong = misread(model, client)
            assert (done.exit_code == 0) == (not wrong and LOST not in done.stderr), (model.steps, wrong, done.stderr)
    assert model.found(table.refresh().to_arrow(spark=spark).to_pylist()) == model.expected()


@pytest.mark.parametrize("seed", range(1000, 1000 + COUNT))
def test_the_proof_finds_what_is_misread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The tables are written by hand, without Spark."""
    model = Model(seed, str(tmp_path / "t"))
    model.mode = "none" if model.mode == "none" else "name"
    model.is_simple, model.is_iceberg = True, False
    table = model.build(None)
    assert model.found(table.to_arrow().to_pylist()) == model.expected()
    _prove_alone(model, monkeypatch)


def _prove_alone(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hand a table over as if the plan knew of no limits: the proof must find exactly what a reader misreads."""
    for client in CLIENTS:
        with monkeypatch.context() as patch:
            unlimited = {name: handover.Client(frozenset(), frozenset()) for name in handover.CLIENTS}
            patch.setattr(handover, "CLIENTS", unlimited)
            done = run("handover", model.path, "--to", client)
        wrong = misread(model, client)
        assert (done.exit_code == 0) == (not wrong and LOST not in done.stderr), (model.steps, wrong, done.stderr)
        print(f"{client} {model.mode} {model.steps}: {sorted(wrong) or 'all equal'} {done.stderr[:200]}")


def _hand_to_iceberg(model: Model, folder: Path) -> None:
    """PyIceberg 0.12 reads a null list of structs as an empty one, and the text of a partition value from the file."""
    words = ("--catalog", str(folder / "lake.db"), "--identifier", "shop.t")
    done = run("handover", model.path, "--to", "iceberg", *words)
    scan = to_catalog(str(folder / "lake.db")).open().load_table("shop.t").scan()
    by_batch = [row for batch in scan.to_arrow_batch_reader() for row in batch.to_pylist()]
    wrong = [rows for rows in (scan.to_arrow().to_pylist(), by_batch) if model.found(rows) != model.expected()]
    assert (done.exit_code == 0) == (not wrong), (model.steps, wrong, model.expected(), done.stderr)
