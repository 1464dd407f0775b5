"""What a client of Spark Connect does, in a process that has no other session.

Each function returns plain values, so that a test can compare them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyspark.sql import SparkSession

import widen
from support.command_line import run
from widen.iceberg.catalog import to_catalog
from widen.table import Table, create_table

PROPERTIES = {"delta.enableTypeWidening": "true", "delta.enableDeletionVectors": "true"}
"""Of the tables that are changed after their creation."""


def session() -> SparkSession:
    """Return the session of the server that SPARK_REMOTE names."""
    return SparkSession.builder.getOrCreate()


def is_connect() -> tuple[bool, bool]:
    """Return whether the session is one of Connect, and has a driver in this process."""
    spark = session()
    return "connect" in type(spark).__module__, hasattr(spark, "_jsc")


def put(place: Path, name: str, *records: object) -> None:
    """Write a file of JSON lines that appears all at once."""
    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f".{name}"
    hidden.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    hidden.rename(place / name)


def rows(location: Path | str) -> list[tuple[Any, ...]]:
    """Return the rows of a table."""
    return sorted((tuple(row) for row in Table(str(location)).read(spark=session()).collect()), key=repr)


def append_line(path: Path, result: object) -> None:
    """Keep the result of a callback, which runs on the server."""
    with path.open("a") as file:
        file.write(f"{getattr(result, 'records', result)}\n")


def stream(place: Path) -> list[Any]:
    """Stream two files whose types differ, with verification and callbacks."""
    put(place / "in", "1.json", {"n": 1, "a": 1})
    put(place / "in", "2.json", {"n": 2, "a": 5_000_000_000}, {"n": 3, "a": "x"})
    for _ in range(2):
        running = widen.ingest_stream(
            str(place / "in"),
            str(place / "t"),
            checkpoint=str(place / "cp"),
            once=True,
            verify=True,
            max_files=1,
            spark=session(),
            on_interval=partial(append_line, place / "told"),
        )
        assert running.wait()
    return rows(place / "t")


def stream_that_fails(place: Path) -> tuple[str, str, dict[str, object]]:
    """Return the name, the message and the fields of the error of an interval that a policy forbids."""
    put(place / "in", "1.json", {"n": 1, "new": 1})
    create_table(str(place / "t"), "n int")
    running = widen.ingest_stream(
        str(place / "in"), str(place / "t"), checkpoint=str(place / "cp"), once=True, evolve="fail", spark=session()
    )
    try:
        running.wait()
    except widen.WidenError as error:
        return type(error).__name__, error.message, error.fields
    raise AssertionError("the stream has not failed")


def follow(place: Path) -> tuple[int, str, str]:
    """Follow a folder with the command line, once; return its exit code and what it says."""
    if not (place / "in").exists():
        put(place / "in", "1.json", {"n": 1}, {"n": "x"})
    words = ["ingest", str(place / "in"), "--into", str(place / "t"), "--checkpoint", str(place / "cp"), "--once"]
    done = run(*words, "--verify", "--json")
    return done.exit_code, done.stdout, done.stderr


def flow(place: Path) -> list[Any]:
    """Run a chain of two flows, with a drift, an update and a deletion between two rounds."""
    spark = session()
    bronze = create_table(str(place / "bronze"), "id int, day string, n int", properties=PROPERTIES)
    bronze.append(spark.sql("SELECT id, 'd' || id % 2 AS day, id AS n FROM VALUES 1, 2, 3, 4 AS t(id)"))

    def total(rows: Any) -> Any:
        return rows.groupBy("day").sum("n").withColumnRenamed("sum(n)", "total")

    def step(source: str, into: str, **words: Any) -> None:
        widen.flow(str(place / source), str(place / into), checkpoint=str(place / f"_{into}"), once=True, **words)

    found: list[Any] = []
    for _ in range(2):
        step("bronze", "silver", sql="SELECT id, day, n * 2 AS n FROM source", keys=["id"], spark=spark)
        step("silver", "gold", transform=total, keys=["day"], spark=spark, verify=True)
        found.append(rows(place / "gold"))
        bronze.refresh().update({"n": "10"}, "id = 1", spark=spark)
        bronze.delete("id = 4", spark=spark)
        widen.ingest(
            spark.sql("SELECT 9 AS id, 'd9' AS day, 5000000000L AS n, 'new' AS more"),
            str(place / "bronze"),
            spark=spark,
        )
    return found


def quarantine(place: Path) -> tuple[Any, ...]:
    """Keep a record out of a table, verify the others, and replay it."""
    spark = session()
    table = create_table(str(place / "t"), "n int").add_constraint("small", "n < 10", spark=spark)
    put(place / "in", "1.json", {"n": 1}, {"n": 50})
    result = widen.ingest(str(place / "in"), str(place / "t"), verify=True, spark=spark)
    assert result.verification is not None
    kept = rows(place / "t")
    table.refresh().drop_constraint("small")
    replayed = widen.replay(str(place / "t_quarantine"), str(place / "t"), spark=spark)
    verified = result.verification
    return result.quarantined, kept, (verified.is_clean, verified.records), replayed.replayed, rows(place / "t")


def iceberg(place: Path) -> dict[str, Any]:
    """Ingest, append, read, alter, fold, quarantine, replay, report and mirror Iceberg tables."""
    spark, catalog = session(), str(place / "c.db")
    into: dict[str, Any] = {"into": "ns.t", "to": "iceberg", "catalog": catalog, "verify": True, "spark": spark}
    opened = to_catalog(catalog).open()
    opened.create_namespace("ns")
    opened.create_table("ns.t", Schema(NestedField(1, "n", LongType(), required=True)))
    put(place / "1", "1.json", {"n": 1, "a": 1})
    put(place / "2", "2.json", {"n": 2, "a": "5"}, {"a": 9})
    first, second = (widen.ingest(str(place / name), **into) for name in ("1", "2"))
    table = widen.IcebergTable("ns.t", catalog)

    def found(where: str | None = None, version: int | None = None) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in table.read(where, version=version, spark=spark).collect()), key=repr)

    done: dict[str, Any] = {"intervals": [(each.records, each.quarantined) for each in (first, second)]}
    done["clean"] = [each.verification is not None and each.verification.is_clean for each in (first, second)]
    done["filtered"], done["past"] = found("a_string = '5'"), found(version=first.version)
    table.append(spark.sql("SELECT 3 AS n, 7 AS a"))
    done["folded"] = table.fold("a_string", spark=spark).metrics
    table.alter_column("n", nullable=True).rename_column("a", "b")
    done["replayed"] = widen.replay("ns.t_quarantine", "ns.t", to="iceberg", catalog=catalog, spark=spark).replayed
    table.refresh()
    done["rows"] = found()
    report = run("report", "ns.t", "--catalog", catalog, "--scan", "--json")
    done["report"] = (report.exit_code, json.loads(report.stdout)["rows"])
    delta = create_table(str(place / "d"), "n int", properties={"delta.enableIcebergCompatV2": "true"})
    delta.append(spark.sql("SELECT 1 AS n")).table.mirror(catalog=catalog, identifier="ns.d")
    table = widen.IcebergTable("ns.d", catalog)
    done["mirrored"] = found("n = 1")
    return done


def data_source(place: Path) -> tuple[Any, ...]:
    """Write, read, filter and copy with the data source."""
    spark = session()
    widen.register(spark)
    location = str(place / "t")
    table = create_table(location, "id int, v string", properties=PROPERTIES)
    spark.sql("SELECT CAST(id AS int) id, 'v' || id AS v FROM range(20)").write.format("widen").mode("append").save(
        location
    )
    table.refresh().alter_column("id", type="bigint")
    table.delete("id < 3", spark=spark)
    frame = spark.read.format("widen").load(location)
    filtered = sorted(row.id for row in frame.where("id > 15").collect())
    frame.write.format("widen").mode("append").save(str(place / "copy"))
    return frame.count(), filtered, rows(place / "copy")


def killed_flows(place: Path, target: str, key: str, kills: int) -> dict[str, Any]:
    """Kill processes of a flow on the same server; see `support.killed_flows`."""
    return _report("support.killed_flows", str(place), target, key, "7", str(kills))


def killed_keys(place: Path, target: str, kills: int) -> dict[str, Any]:
    """Kill ingestions by key on the same server; see `support.killed_keys`."""
    return _report("support.killed_keys", str(place), target, "7", str(kills))


def killed_shop(place: Path, operation: str, kills: int) -> dict[str, Any]:
    """Kill an operation on an Iceberg table on the same server; see `support.killed_shop`."""
    return _report("support.killed_shop", str(place), operation, str(kills))


def _report(program: str, *words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def named_streams(place: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Run named streams before and after a drift, and return the rows of their tables: id, at and v."""
    spark = session()

    def run_stream(name: str, source: str, **options: str) -> None:
        reader = spark.readStream.format("widen" if name == "append" else "text")
        writer = reader.load(str(place / source)).writeStream.format("widen").queryName(name).options(**options)
        writer = writer.option("checkpointLocation", str(place / f"cp-{name}")).trigger(availableNow=True)
        writer.start(str(place / name)).awaitTermination()

    days = {
        "monday": [{"id": 1, "at": 1, "v": 1}, {"id": 2, "at": 1, "v": 2}],
        "tuesday": [{"id": 1, "at": 2, "v": 5_000_000_000}],
    }
    for day, records in days.items():
        put(place / "landing", f"{day}.json", *records)
        run_stream("ingest", "landing", ingest="json", verify="true")
        run_stream("append", "ingest", **{"mergeSchema": "true", "delta.enableTypeWidening": "true"})
    run_stream("key", "landing", ingest="json", key="id", sequenceBy="at")
    tables = {name: Table(str(place / name)).to_arrow().to_pylist() for name in ("ingest", "key", "append")}
    return {name: sorted((row["id"], row["at"], row["v"]) for row in found) for name, found in tables.items()}
