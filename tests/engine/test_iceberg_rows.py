"""Deleting, updating and overwriting rows of Iceberg tables, and restoring snapshots, judged by PyIceberg's scan."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from support.command_line import run, run_json
from support.covering import covering
from support.iceberg_files import (
    append_deletes,
    append_rows,
    deletion_vector,
    embedded_catalog,
    equality_deletes,
    field,
    position_deletes,
)
from support.iceberg_ways import WAYS, leave_to_spark
from widen.changes.iceberg_copies import LONGEST, most_rows
from widen.errors import (
    ColumnNotFound,
    InvalidCondition,
    InvalidOption,
    NotDeterministic,
    NotNullViolated,
    OptionMissing,
    ReplaceWhereMismatch,
    SchemaMismatch,
    VersionNotFound,
    WidenError,
)
from widen.frames.iceberg_scan import IcebergSource, deleted_positions
from widen.frames.table_writers import IcebergWriter
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.scan_plan import plan_scan
from widen.iceberg.snapshots import SnapshotReference, find_read_point
from widen.model import types as model
from widen.spark.engine import Engine, LocalSession

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "size", LongType(), required=False),
    NestedField(4, "place", StructType(NestedField(5, "zip", StringType(), required=False)), required=False),
)
ARROW = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("kind", pa.string()),
        ("size", pa.int64()),
        ("place", pa.struct([("zip", pa.string())])),
    ]
)
ROWS = [
    {"id": 1, "kind": "a", "size": 10, "place": {"zip": "x"}},
    {"id": 2, "kind": "a", "size": None, "place": None},
    {"id": 3, "kind": "b", "size": 30, "place": {"zip": None}},
    {"id": 4, "kind": None, "size": 40, "place": {"zip": "y"}},
    {"id": 5, "kind": "b", "size": 50, "place": {"zip": "z"}},
    {"id": 6, "kind": "c", "size": None, "place": {"zip": "x"}},
]
LAYOUTS: dict[str, Transform[Any, Any] | None] = {
    "whole": None,
    "by kind": IdentityTransform(),
    "by bucket": BucketTransform(2),
}


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.fixture
def made(catalog: SqlCatalog) -> Callable[..., Table]:
    def make(layout: str = "whole", version: str = "2") -> Table:
        transform = LAYOUTS[layout]
        spec = PartitionSpec() if transform is None else PartitionSpec(PartitionField(2, 1000, transform, "p"))
        table = catalog.create_table("ns.t", SCHEMA, partition_spec=spec, properties={"format-version": version})
        append_rows(catalog, ROWS[:4], ROWS[4:])
        return table.refresh()

    return make


@pytest.fixture
def refuse_spark(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lets Spark write no more files."""

    def refuse(writer: IcebergWriter, frame: Any) -> list[IcebergFile]:
        raise AssertionError("written by Spark")

    return lambda: monkeypatch.setattr(IcebergWriter, "write", refuse)


def rows(table: Table) -> list[dict[str, object]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])


Row = dict[str, Any]
CHANGES: dict[str, tuple[Callable[[widen.IcebergTable, SparkSession], Any], Callable[[list[Row]], list[Row]], int]] = {
    "delete by a column": (
        lambda table, spark: table.delete("size > 20", spark=spark),
        lambda rows: [row for row in rows if not (row["size"] or 0) > 20],
        3,
    ),
    "delete by the partition": (
        lambda table, spark: table.delete("kind = 'b'", spark=spark),
        lambda rows: [row for row in rows if row["kind"] != "b"],
        2,
    ),
    "delete where null": (
        lambda table, spark: table.delete("kind IS NULL OR place.zip IS NULL", spark=spark),
        lambda rows: [row for row in rows if row["kind"] and row["place"] and row["place"]["zip"]],
        3,
    ),
    "delete all rows": (lambda table, spark: table.delete(spark=spark), lambda rows: [], 6),
    "update a column and a field": (
        lambda table, spark: table.update({"size": "size + id", "place.zip": "kind"}, "id IN (1, 5)", spark=spark),
        lambda rows: [
            {**row, "size": row["size"] + row["id"], "place": {"zip": row["kind"]}} if row["id"] in (1, 5) else row
            for row in rows
        ],
        2,
    ),
    "update that moves rows to another partition": (
        lambda table, spark: table.update({"kind": "'c'"}, "kind = 'a'", spark=spark),
        lambda rows: [{**row, "kind": "c"} if row["kind"] == "a" else row for row in rows],
        2,
    ),
    "update all rows": (
        lambda table, spark: table.update({"size": "CAST(NULL AS bigint)"}, spark=spark),
        lambda rows: [{**row, "size": None} for row in rows],
        6,
    ),
}


@pytest.mark.parametrize(("change", "layout"), covering(CHANGES, [(each, way) for way in WAYS for each in LAYOUTS]))
def test_rows_change_in_one_snapshot(
    spark: SparkSession,
    catalog: SqlCatalog,
    made: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    layout: tuple[str, str],
) -> None:
    table, (act, expected, count) = made(layout[0]), CHANGES[change]
    leave_to_spark(monkeypatch, *WAYS[layout[1]])
    done = act(widen.IcebergTable("ns.t", catalog=catalog), spark)
    assert rows(table) == expected(ROWS)
    assert len(table.metadata.snapshots) == 3
    assert done.version == table.current_snapshot().snapshot_id
    assert done.metrics["numDeletedRows" if done.operation == "delete" else "numUpdatedRows"] == count
    assert [each.id for each in done.table.read(spark=spark).orderBy("id").collect()] == [
        row["id"] for row in rows(table)
    ]


def test_both_engines_change_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    results = []
    for name in ("spark", "local"):
        (tmp_path / name).mkdir()
        catalog = embedded_catalog(tmp_path / name)
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
        table = catalog.create_table("ns.t", SCHEMA, partition_spec=spec, properties={"format-version": "2"})
        append_rows(catalog, ROWS[:4], ROWS[4:])
        opened = widen.IcebergTable("ns.t", catalog=catalog)
        words: Any = {"spark": spark if name == "spark" else LocalSession(Engine.LOCAL, pytest.fail)}
        done = [
            opened.update({"size": "size * 2", "kind": "'d'"}, "place.zip = 'x' OR size > 40", **words),
            opened.delete("size <= 40 AND NOT kind IN ('b')", **words),
        ]
        summaries = [each.summary.additional_properties for each in table.refresh().metadata.snapshots[2:]]
        sized = {"added-files-size", "removed-files-size", "total-files-size"}
        kept = [{key: value for key, value in each.items() if key not in sized} for each in summaries]
        results.append(([each.metrics for each in done], kept, rows(table)))
    assert results[0] == results[1]


COPIED_BYTES = {"in this process": 2**28, "in tasks": 0}


@pytest.mark.parametrize(("layout", "way"), covering(LAYOUTS, COPIED_BYTES))
def test_only_changed_rows_go_through_spark(
    spark: SparkSession,
    catalog: SqlCatalog,
    made: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    way: str,
) -> None:
    table, opened, by_spark = made(layout), widen.IcebergTable("ns.t", catalog=catalog), list[int]()
    write = IcebergWriter.write

    def write_and_count(writer: IcebergWriter, frame: Any) -> list[IcebergFile]:
        files = write(writer, frame)
        by_spark.append(writer.count_rows(files))
        return files

    monkeypatch.setattr(IcebergWriter, "write", write_and_count)
    monkeypatch.setattr("widen.changes.copy_files.COPIED_BYTES", COPIED_BYTES[way])
    monkeypatch.setattr("widen.changes.iceberg_apply._FEW", 1)
    monkeypatch.setattr("widen.changes.iceberg_copies.HELD_BYTES", 0)
    opened.delete("id = 2", spark=spark)
    opened.update({"size": "id + 7", "place.zip": "'new'"}, "id = 3", spark=spark)
    source = spark.sql("SELECT * FROM VALUES (1, 'x'), (4, 'y'), (9, 'z') AS v(id, kind)")
    merge = opened.merge(source, "t.id = s.id").when_matched_delete(condition="s.id = 4")
    merge.when_matched_update({"kind": "s.kind"}).when_not_matched_insert({"id": "s.id"}).execute()
    assert by_spark == [1, 2]
    assert rows(table) == [
        {**ROWS[0], "kind": "x"},
        {**ROWS[2], "size": 10, "place": {"zip": "new"}},
        *ROWS[4:],
        {"id": 9, "kind": None, "size": None, "place": None},
    ]
    folder = Path(table.location().removeprefix("file://"))
    live = {file["file_path"].removeprefix("file://") for file in table.inspect.all_files().to_pylist()}
    assert {str(path) for path in folder.rglob("*.parquet")} == live


@pytest.mark.parametrize("layout", LAYOUTS)
def test_few_changed_rows_are_written_where_they_were(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], refuse_spark: Callable[[], None], layout: str
) -> None:
    """Spark writes nothing, and a change within a partition adds as many files as it removes."""
    table, opened = made(layout), widen.IcebergTable("ns.t", catalog=catalog)
    refuse_spark()
    done = opened.update({"size": "size * 2", "place.zip": "concat(kind, 'é')"}, "id IN (1, 3)", spark=spark)
    assert done.metrics["numAddedFiles"] == done.metrics["numRemovedFiles"]
    first, third = {"size": 20, "place": {"zip": "aé"}}, {"size": 60, "place": {"zip": "bé"}}
    assert rows(table) == [{**ROWS[0], **first}, ROWS[1], {**ROWS[2], **third}, *ROWS[3:]]
    folder = Path(table.location().removeprefix("file://"))
    live = {file["file_path"].removeprefix("file://") for file in table.inspect.all_files().to_pylist()}
    assert {str(path) for path in folder.rglob("*.parquet")} == live


def test_as_many_rows_are_held_as_their_size_allows(
    spark: SparkSession,
    catalog: SqlCatalog,
    made: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    refuse_spark: Callable[[], None],
) -> None:
    """Rows with long texts are fewer; more rows are held if none has one."""
    assert most_rows(model.StructType((model.Field("n", model.LONG),))) == 2**26 // 40
    texts = model.StructType((model.Field("t", model.STRING),))
    assert [most_rows(texts, each) for each in LONGEST] == [63_072, 493_447]
    table, opened = made(), widen.IcebergTable("ns.t", catalog=catalog)
    monkeypatch.setattr("widen.changes.iceberg_copies.HELD_BYTES", 1_100)
    refuse_spark()
    opened.update({"kind": "'short'"}, spark=spark)
    assert rows(table) == [{**row, "kind": "short"} for row in ROWS]
    with pytest.raises(AssertionError, match="written by Spark"):
        opened.update({"kind": "repeat('x', 100)"}, spark=spark)


@pytest.mark.parametrize(("letters", "is_here"), [(1_000, True), (2_000, False)])
def test_long_values_are_left_to_spark(
    spark: SparkSession,
    catalog: SqlCatalog,
    made: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    letters: int,
    is_here: bool,
) -> None:
    """What this process holds has a limit in bytes, too."""
    table, by_spark, write = made(), list[int](), IcebergWriter.write

    def write_and_count(writer: IcebergWriter, frame: Any) -> list[IcebergFile]:
        files = write(writer, frame)
        by_spark.append(writer.count_rows(files))
        return files

    monkeypatch.setattr(IcebergWriter, "write", write_and_count)
    new = f"CASE WHEN id = 1 THEN repeat('x', {letters}) ELSE 'y' END"
    widen.IcebergTable("ns.t", catalog=catalog).update({"kind": new}, spark=spark)
    assert rows(table) == [{**row, "kind": "x" * letters if row["id"] == 1 else "y"} for row in ROWS]
    assert bool(by_spark) != is_here


def test_rows_that_others_have_deleted_stay_deleted(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], refuse_spark: Callable[[], None]
) -> None:
    table = made()
    first = min(file["file_path"] for file in table.inspect.files().to_pylist() if file["record_count"] == 4)
    append_deletes(table, position_deletes(table, [(Path(first.removeprefix("file://")), 0)]))
    refuse_spark()
    done = widen.IcebergTable("ns.t", catalog=catalog).update({"size": "0"}, spark=spark)
    assert (done.metrics["numUpdatedRows"], rows(table)) == (5, [{**row, "size": 0} for row in ROWS[1:]])


def test_positions_that_others_have_deleted(catalog: SqlCatalog, made: Callable[..., Table]) -> None:
    """Deletes apply to the files of their time and before, and deletes by values to older ones."""
    table = made()
    files = sorted(table.inspect.files().to_pylist(), key=lambda file: -file["record_count"])
    first, last = (file["file_path"] for file in files)
    path = Path(first.removeprefix("file://"))
    vector = deletion_vector(table, {Path(last.removeprefix("file://")): [0]})
    append_deletes(table, position_deletes(table, [(path, 0), (Path("/nowhere/a.parquet"), 3), (path, 1)]), vector)
    table.append(pa.Table.from_pylist(ROWS[:1], schema=ARROW))
    assert found(table) == {first: [0, 1], last: [0]}
    ids = [field("id", pa.int32(), 1)]
    append_deletes(table, equality_deletes(table, ids, [{"id": 6}], [1]))
    assert found(table) == {first: [0, 1], last: [0, 1]}


def found(table: Table) -> dict[str, list[int]] | None:
    point = find_read_point(table.refresh().metadata, SnapshotReference())
    scan = plan_scan(point, table.io)
    positions = deleted_positions(IcebergSource(lambda: pytest.fail("no Spark"), table.io, point), scan)
    return None if positions is None else {path: sorted(rows) for path, rows in positions.items()}


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_overwrite_replaces_rows(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], version: str
) -> None:
    table, opened = made("by kind", version), widen.IcebergTable("ns.t", catalog=catalog)
    new = spark.sql("SELECT 9 id, 'b' kind, 9L size")
    done = opened.overwrite(new, where="kind = 'b'")
    nine = {"id": 9, "kind": "b", "size": 9, "place": None}
    assert rows(table) == [*(row for row in ROWS if row["kind"] != "b"), nine]
    assert done.metrics["numOutputRows"] == 1

    with pytest.raises(ReplaceWhereMismatch):
        opened.overwrite(new, where="kind = 'a'")
    assert len(table.refresh().metadata.snapshots) == 3

    opened.overwrite(spark.sql("SELECT 1 id, 3000000000 more"), merge_schema=True)
    assert rows(table) == [{"id": 1, "kind": None, "size": None, "place": None, "more": 3000000000}]


def test_nothing_to_change_is_no_snapshot(spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table]) -> None:
    table = made()
    opened = widen.IcebergTable("ns.t", catalog=catalog)
    done = opened.delete("id > 100", spark=spark)
    assert (done.version, done.metrics) == (table.current_snapshot().snapshot_id, {})
    catalog.create_table("ns.empty", SCHEMA)
    assert widen.IcebergTable("ns.empty", catalog=catalog).delete(spark=spark).metrics == {}


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (lambda table, spark: table.delete("nothing = 1", spark=spark), InvalidCondition),
        (lambda table, spark: table.delete("rand() < 0.5", spark=spark), NotDeterministic),
        (lambda table, spark: table.update({"nothing": "1"}, spark=spark), ColumnNotFound),
        (lambda table, spark: table.update({"place": "1"}, spark=spark), SchemaMismatch),
        (lambda table, spark: table.update({"id": "CAST(NULL AS int)"}, spark=spark), NotNullViolated),
        (lambda table, spark: table.update({"id": "id + 3000000000"}, spark=spark), WidenError),
    ],
)
def test_what_is_refused_changes_nothing(
    spark: SparkSession,
    catalog: SqlCatalog,
    made: Callable[..., Table],
    act: Callable[[widen.IcebergTable, SparkSession], object],
    error: type[WidenError],
) -> None:
    table = made()
    files = {*Path(table.location().removeprefix("file://")).rglob("*.parquet")}
    with pytest.raises(error):
        act(widen.IcebergTable("ns.t", catalog=catalog), spark)
    assert (rows(table), len(table.metadata.snapshots)) == (ROWS, 2)
    assert {*Path(table.location().removeprefix("file://")).rglob("*.parquet")} == files


def test_a_lost_race_is_run_again(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    from widen.changes import iceberg_changes

    table, waiting = made(), [ROWS[0] | {"id": 7}]

    def after_another(*words: Any) -> Any:
        if waiting:
            catalog.load_table("ns.t").append(pa.Table.from_pylist([waiting.pop()], schema=ARROW))
        return open_writer(*words)

    open_writer = iceberg_changes.open_iceberg_writer
    monkeypatch.setattr(iceberg_changes, "open_iceberg_writer", after_another)
    done = widen.IcebergTable("ns.t", catalog=catalog).delete("size = 10", spark=spark)
    assert done.metrics["numDeletedRows"] == 2
    assert [row["id"] for row in rows(table)] == [2, 3, 4, 5, 6]


def test_a_restored_snapshot_forgets_what_was_loaded_later(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path
) -> None:
    landing = tmp_path / "in"
    landing.mkdir()

    def load(number: int) -> widen.IngestResult:
        if not (landing / f"{number}.json").exists():
            (landing / f"{number}.json").write_text(json.dumps({"n": number}) + "\n")
        return widen.ingest(str(landing), "ns.t", catalog=catalog, new=True, txn=("job", number), spark=spark)

    first, _, _ = load(1), load(2), load(3)
    table = widen.IcebergTable("ns.t", catalog=catalog)
    done = table.restore(first.version)
    assert (done.version, table.version) == (first.version, first.version)
    assert [row.n for row in table.read(spark=spark).collect()] == [1]
    assert load(2).records == 2  # the files of both batches that are undone
    assert sorted(row.n for row in table.refresh().read(spark=spark).collect()) == [1, 2, 3]
    assert load(2).is_unchanged
    assert widen.ingest(str(landing / "1.json"), "ns.t", catalog=catalog, txn=("job", 2), spark=spark).is_repeated
    assert catalog.load_table("ns.t").scan().to_arrow().num_rows == 3

    with pytest.raises(VersionNotFound):
        table.restore(1)
    with pytest.raises(OptionMissing):
        table.restore()
    with pytest.raises(InvalidOption):
        table.restore(first.version, timestamp="2024-01-01")


def test_properties_are_set(catalog: SqlCatalog, made: Callable[..., Table]) -> None:
    made()
    table = widen.IcebergTable("ns.t", catalog=catalog).set_properties({"write.target-file-size-bytes": "1000000"})
    assert table.properties["write.target-file-size-bytes"] == "1000000"
    with pytest.raises(InvalidOption, match="records"):
        table.set_properties({"widen.stream.job": "7"})
    place = ("ns.t", "--catalog", str(catalog.properties["uri"]).removeprefix("sqlite:///"))
    assert run_json("properties", *place, "--set", "write.parquet.compression-codec=gzip")["changed"] is True
    assert run_json("properties", *place)["write.parquet.compression-codec"] == "gzip"
    assert run_json("properties", *place, "--unset", "write.parquet.compression-codec")["changed"] is True
    assert "write.parquet.compression-codec" not in table.refresh().properties
    assert run("properties", *place, "--unset", "nothing").exit_code == 1
    first = table.history()[-1].version
    restored = run_json("restore", *place, "--version", str(first))
    assert restored == {"version": first, "changed": True, "changes": [], "restoredFiles": 0, "removedFiles": 1}
    assert run("restore", *place, "--version", str(first)).stdout == "nothing to change\n"


KEYS = ("text DESC NULLS LAST", "number ASC NULLS FIRST", "place.x DESC NULLS FIRST", "id ASC NULLS FIRST")


SORTED = {"text": KEYS, "double": KEYS[1:], "field of a struct": KEYS[2:]}
HELD_BYTES = {"with Arrow": 2**26, "with Spark": 0}


@pytest.mark.parametrize(("first", "way"), covering(SORTED, HELD_BYTES))
def test_a_changed_file_is_sorted_as_spark_sorts(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refuse_spark: Callable[[], None],
    first: str,
    way: str,
) -> None:
    """Nulls, NaN, both zeros, and texts beyond the Basic Multilingual Plane are where Spark has them."""
    keys, most_bytes = SORTED[first], HELD_BYTES[way]
    embedded_catalog(tmp_path)
    place = {"catalog": tmp_path / "catalog.db", "spark": spark}
    values = "(double('NaN')), (null), (-0.0D), (0.0D), (1.5D), (double('-Infinity'))"
    frame = spark.sql(
        f"SELECT CAST(row_number() OVER (ORDER BY number, text, x) AS int) AS id, number, text, "
        f"IF(x = 2, NULL, named_struct('x', x)) AS place FROM VALUES {values} AS a(number), "
        "VALUES ('z'), (null), ('\U0001f600'), ('\uffee'), ('') AS b(text), VALUES (null), (1), (2), (3) AS c(x)"
    )
    widen.ingest(write_parquet(frame, tmp_path / "in"), "ns.s", **place)
    table = widen.IcebergTable("ns.s", catalog=place["catalog"])
    table.set_sort_order(*keys)
    if most_bytes:
        refuse_spark()
    monkeypatch.setattr("widen.changes.iceberg_copies.HELD_BYTES", most_bytes)
    table.update({"id": "id + 1000"}, "id % 2 = 0", spark=spark)
    if most_bytes:
        monkeypatch.undo()
    for file in table.refresh().table.inspect.files().to_pylist():
        assert file["sort_order_id"] == table.table.metadata.default_sort_order_id
        path = file["file_path"].removeprefix("file://")
        stored = spark.read.parquet(path)
        wanted = [row.id for row in stored.orderBy(*map(order, keys)).collect()]
        assert pq.read_table(path)["id"].to_pylist() == wanted


def order(key: str) -> Any:
    """A key of a sort order as Spark's."""
    name, direction, _, nulls = key.split(" ")
    return getattr(F.col(name), f"{direction.lower()}_nulls_{nulls.lower()}")()


def write_parquet(frame: Any, folder: Path) -> str:
    frame.coalesce(1).write.parquet(str(folder))
    return str(folder)


def test_files_are_in_the_sort_order_of_the_table(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], tmp_path: Path
) -> None:
    table = made("by kind")
    with table.update_sort_order() as order:
        order.desc("size", IdentityTransform(), NullOrder.NULLS_LAST).asc("id", IdentityTransform())
    number = table.refresh().metadata.default_sort_order_id
    widen.IcebergTable("ns.t", catalog=catalog).update({"size": "coalesce(size, 5) % 20"}, spark=spark)
    (tmp_path / "more.json").write_text("".join(json.dumps({"id": 90 - at, "size": at}) + "\n" for at in range(9)))
    widen.ingest(tmp_path / "more.json", "ns.t", catalog=catalog, spark=spark)
    for file in table.refresh().inspect.files().to_pylist():
        rows = pq.read_table(file["file_path"].removeprefix("file://")).to_pylist()
        keys = [(-row["size"] if row["size"] is not None else 1, row["id"]) for row in rows]
        assert (keys, file["sort_order_id"]) == (sorted(keys), number)
