"""Defaults of columns of Iceberg tables, set and read without Spark; PyIceberg reads the same rows.

Source: Iceberg's table specification, "Default values", "Schema Evolution" and "Column Projection"
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from support.iceberg_files import embedded_catalog
from widen.errors import (
    ColumnRefused,
    IcebergDefaultRefused,
    IcebergDefaultsNotSupported,
    ItemRenameRefused,
    NewColumnNotNull,
)
from widen.iceberg import table_commit
from widen.iceberg.catalog import to_table_name
from widen.schema.alter import parse_new_columns
from widen.schema.source_metadata import COMMENT

OLD = [{"id": 1, "s": {"x": 1}}, {"id": 2, "s": None}]


def load(place: Path, *records: dict[str, Any], **options: Any) -> None:
    path = place / f"{len(list(place.glob('*.json')))}.json"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    widen.ingest(path, "ns.t", catalog=place / "catalog.db", to="iceberg", verify=True, **options)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    load(tmp_path, *OLD, format_version=3)
    return tmp_path


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.java_gateway", None)


def opened(place: Path) -> widen.IcebergTable:
    return widen.IcebergTable("ns.t", place / "catalog.db")


def rows(place: Path, where: str | None = None) -> list[dict[str, Any]]:
    """All rows, checked with PyIceberg."""
    table = opened(place)
    theirs = table.table.scan().to_arrow().to_pylist()
    found: list[dict[str, Any]] = table.to_arrow().to_pylist()
    assert sorted(found, key=str) == sorted(theirs, key=str)
    return sorted(found if where is None else table.to_arrow(where).to_pylist(), key=lambda row: row["id"])


def run(place: Path, text: str) -> None:
    widen.sql(text, catalog=place / "catalog.db")


ADDED: dict[str, tuple[str, str, Any]] = {
    "b": ("boolean", "true", True),
    "i": ("int", "-7", -7),
    "l": ("bigint", "5000000000", 5_000_000_000),
    "f": ("float", "1.5", 1.5),
    "d": ("double", "0.1", 0.1),
    "c": ("decimal(20,2)", "-1.2", Decimal("-1.20")),
    "t": ("string", "'none'", "none"),
    "raw": ("binary", "X'00FF'", b"\x00\xff"),
    "day": ("date", "DATE '1969-12-31'", date(1969, 12, 31)),
    "ts": ("timestamp_ntz", "TIMESTAMP_NTZ '1969-12-31 23:59:59.999999'", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "tz": ("timestamp", "TIMESTAMP '2024-01-01 00:00:00Z'", datetime(2024, 1, 1, tzinfo=timezone.utc)),
}
"""For each new column its type, its default in SQL, and the value of old rows."""


def test_old_rows_have_the_default_of_each_type(place: Path) -> None:
    columns = ", ".join(f"{name} {kind} DEFAULT {text}" for name, (kind, text, _) in ADDED.items())
    run(place, f"ALTER TABLE ns.t ADD COLUMNS ({columns})")
    expected = {name: value for name, (_, _, value) in ADDED.items()}
    assert rows(place) == [{**row, **expected} for row in OLD]
    for name, (kind, text, _) in ADDED.items():
        if kind not in ("binary", "timestamp", "float", "double"):  # conditions on these are left to Spark
            assert len(rows(place, f"{name} = {text}")) == 2, name
        assert rows(place, f"{name} IS NULL") == []
    assert opened(place).to_arrow(limit=1).num_rows == 1
    assert [*opened(place).to_pandas()["i"]] == [-7, -7]


CHANGES: dict[str, Callable[[widen.IcebergTable], object]] = {
    "update": lambda table: table.update({"id": "id + 10"}, "id = 1"),
    "update by the default": lambda table: table.update({"id": "id + 10"}, "n = 7 AND id = 1"),
    "delete": lambda table: table.delete("id = 1"),
    "delete by the default": lambda table: table.delete("n = 7 AND id = 1"),
    "optimize": lambda table: table.optimize(),
    "rewrite": lambda table: table.rewrite(),
}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_that_are_written_again_keep_the_default(place: Path, change: str, mode: str) -> None:
    load(place, {"id": 3, "s": {"x": 3}})
    table = opened(place)
    table.add_columns({"n": {"type": "int", "default": "7"}})
    table.set_properties({f"write.{each}.mode": mode for each in ("delete", "update")})
    before = rows(place)
    CHANGES[change](opened(place))
    # What rows had is theirs: a later default does not change it.
    opened(place).alter_column("n", default="8")
    expected = {
        "update": [{**row, "id": 11} if row["id"] == 1 else row for row in before],
        "delete": [row for row in before if row["id"] != 1],
    }.get(change.split()[0], before)
    assert rows(place) == sorted(expected, key=lambda row: row["id"])


def test_a_value_of_an_old_row_may_be_replaced(place: Path) -> None:
    run(place, "ALTER TABLE ns.t ADD COLUMN n int DEFAULT 7")
    opened(place).update({"n": "n + 1"}, "id = 2")
    assert [row["n"] for row in rows(place)] == [7, 8]
    opened(place).update({"n": "NULL"}, "n = 7")
    assert [row["n"] for row in rows(place)] == [None, 8]
    assert [row["id"] for row in rows(place, "n IS NULL")] == [1]


def test_a_new_column_may_forbid_null_if_it_has_a_default(place: Path) -> None:
    run(place, "ALTER TABLE ns.t ADD COLUMN n int NOT NULL DEFAULT 7 COMMENT 'How many.' FIRST")
    field = opened(place).columns.fields[0]
    assert (field.name, field.nullable, field.metadata[COMMENT]) == ("n", False, "How many.")
    assert [row["n"] for row in rows(place)] == [7, 7]
    with pytest.raises(NewColumnNotNull):
        run(place, "ALTER TABLE ns.t ADD COLUMN m int NOT NULL")
    with pytest.raises(NewColumnNotNull):
        run(place, "ALTER TABLE ns.t ADD COLUMN m int NOT NULL DEFAULT NULL")


def test_only_the_default_of_new_rows_changes(place: Path) -> None:
    run(place, "ALTER TABLE ns.t ADD COLUMN n int DEFAULT 7")
    run(place, "ALTER TABLE ns.t ALTER COLUMN n SET DEFAULT 8")
    field = opened(place).table.schema().find_field("n")
    assert (field.initial_default, field.write_default) == (7, 8)
    run(place, "ALTER TABLE ns.t ALTER COLUMN n DROP DEFAULT")
    run(place, "ALTER TABLE ns.t ALTER COLUMN id SET DEFAULT 4")
    fields = {each.name: each for each in opened(place).table.schema().fields}
    assert (fields["n"].initial_default, fields["n"].write_default) == (7, None)
    assert (fields["id"].initial_default, fields["id"].write_default) == (None, 4)
    assert [row["n"] for row in rows(place)] == [7, 7]
    assert {each.name: each.metadata.get("CURRENT_DEFAULT") for each in opened(place).columns}["id"] == "4"


def test_a_default_goes_along_with_its_column(place: Path) -> None:
    table = opened(place).add_columns({"n": {"type": "int", "default": "7"}})
    table.alter_column("n", type="bigint", comment="How many.").rename_column("n", "m").alter_column("m", first=True)
    field = opened(place).table.schema().find_field("m")
    assert (str(field.field_type), field.initial_default, field.write_default) == ("long", 7, 7)
    assert [row["m"] for row in rows(place)] == [7, 7]


def test_a_dropped_column_and_a_new_one_of_its_name(place: Path) -> None:
    run(place, "ALTER TABLE ns.t ADD COLUMN n int DEFAULT 7")
    before = opened(place).version
    opened(place).update({"id": "id"}, "id = 1")
    run(place, "ALTER TABLE ns.t DROP COLUMN n")
    run(place, "ALTER TABLE ns.t ADD COLUMN n int DEFAULT 9")
    assert [row["n"] for row in rows(place)] == [9, 9]
    assert opened(place).restore(before).table.to_arrow()["n"].to_pylist() == [9, 9]


def test_tables_of_older_versions_are_refused_and_can_be_upgraded(tmp_path: Path) -> None:
    load(tmp_path, *OLD)
    for change in (
        lambda: run(tmp_path, "ALTER TABLE ns.t ADD COLUMN n int DEFAULT 7"),
        lambda: run(tmp_path, "ALTER TABLE ns.t ALTER COLUMN id SET DEFAULT 7"),
        lambda: opened(tmp_path).alter_column("id", default="7"),
        lambda: opened(tmp_path).add_columns({"n": {"type": "int", "default": "7"}}),
    ):
        with pytest.raises(IcebergDefaultsNotSupported, match=r"format version 2.*'format-version' = '3'"):
            change()
    run(tmp_path, "ALTER TABLE ns.t SET TBLPROPERTIES ('format-version' = '3')")
    run(tmp_path, "ALTER TABLE ns.t ADD COLUMN n int DEFAULT 7")
    assert [row["n"] for row in rows(tmp_path)] == [7, 7]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ADD COLUMN n int DEFAULT 'x'", IcebergDefaultRefused),
        ("ADD COLUMN n date DEFAULT current_date()", IcebergDefaultRefused),
        ("ADD COLUMN n array<int> DEFAULT 1", IcebergDefaultRefused),
        ("ADD COLUMN s.y int DEFAULT 1", ItemRenameRefused),
        ("ALTER COLUMN s.x SET DEFAULT 1", ItemRenameRefused),
        ("ALTER COLUMN s SET DEFAULT 1", IcebergDefaultRefused),
    ],
)
def test_what_cannot_be_a_default(place: Path, text: str, error: type[ColumnRefused]) -> None:
    before = opened(place).table.metadata_location
    with pytest.raises(error):
        run(place, f"ALTER TABLE ns.t {text}")
    assert opened(place).table.metadata_location == before


def test_a_new_table_has_the_defaults_of_its_columns(tmp_path: Path) -> None:
    embedded_catalog(tmp_path)
    columns = ", ".join(f"{name} {kind} DEFAULT {text}" for name, (kind, text, _) in ADDED.items())
    three = "TBLPROPERTIES ('format-version' = '3')"
    run(tmp_path, f"CREATE TABLE ns.t (id int, n int NOT NULL DEFAULT 7, {columns}) USING iceberg {three}")
    load(tmp_path, {"id": 1})
    assert rows(tmp_path) == [{"id": 1, "n": 7, **{name: value for name, (_, _, value) in ADDED.items()}}]
    with pytest.raises(IcebergDefaultsNotSupported, match="format version 2"):
        run(tmp_path, "CREATE TABLE ns.u (id int DEFAULT 1) USING iceberg")
    with pytest.raises(IcebergDefaultRefused):
        run(tmp_path, f"CREATE TABLE ns.u (id int DEFAULT 'a') USING iceberg {three}")


SOURCES: dict[str, Callable[[Path], Any]] = {
    "json": lambda place: _text(place / "new.json", '{"id": 3}\n{"id": 4, "i": null}\n'),
    "csv": lambda place: _text(place / "new.csv", "id,note\n3,three\n"),
    "parquet": lambda place: _parquet(place, {"id": [3]}, {"id": [4], "i": [None]}),
    "arrow": lambda place: pa.table({"id": pa.array([3], pa.int32())}),
    "dicts": lambda place: [{"id": 3}],
}


def _text(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _parquet(place: Path, *tables: dict[str, Any]) -> Path:
    folder = place / "new"
    folder.mkdir()
    for number, columns in enumerate(tables):
        arrays = {name: pa.array(values, pa.int32()) for name, values in columns.items()}
        pq.write_table(pa.table(arrays), folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize(("form", "partition_by"), [*((form, "") for form in SOURCES), ("json", "i"), ("parquet", "i")])
def test_records_without_a_field_get_the_default_of_its_column(tmp_path: Path, form: str, partition_by: str) -> None:
    """A null that a record says stays null. Partitions are made of the values that rows have in the end."""
    load(tmp_path, *OLD, format_version=3)
    columns = ", ".join(f"{name} {kind} DEFAULT {text}" for name, (kind, text, _) in ADDED.items())
    run(tmp_path, f"ALTER TABLE ns.t ADD COLUMNS ({columns}, q string DEFAULT 'it\\'s \"x\" ü')")
    if partition_by:
        run(tmp_path, f"ALTER TABLE ns.t ADD PARTITION FIELD {partition_by}")
    done = widen.ingest(SOURCES[form](tmp_path), "ns.t", catalog=tmp_path / "catalog.db", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    expected = {**{name: value for name, (_, _, value) in ADDED.items()}, "q": 'it\'s "x" ü'}
    found = [row for row in opened(tmp_path).to_arrow().to_pylist() if row["id"] not in (1, 2)]
    assert len(found) == done.records
    for row in found:
        assert {name: row[name] for name in expected} == {**expected, "i": None if row["id"] == 4 else -7}


def test_only_new_rows_of_a_load_by_key_get_defaults(tmp_path: Path) -> None:
    load(tmp_path, {"id": 1, "n": 5}, key=["id"], format_version=3)
    run(tmp_path, "ALTER TABLE ns.t ADD COLUMN m int DEFAULT 7")
    load(tmp_path, {"id": 1, "n": 6}, {"id": 2, "n": 8}, {"id": 3, "n": 9, "m": None}, key=["id"])
    assert [row["m"] for row in rows(tmp_path)] == [7, 7, None]
    run(tmp_path, "ALTER TABLE ns.t ALTER COLUMN m SET DEFAULT 8")
    load(tmp_path, {"id": 1, "n": 1}, {"id": 4, "n": 1}, key=["id"], missing="keep")
    assert [row["m"] for row in rows(tmp_path)] == [7, 7, None, 8]


def test_a_commit_whose_answer_is_lost_is_found_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a change stores equals what is read again, else a client could not tell that it has committed."""
    commit = table_commit.plan_columns

    def lose(*arguments: Any) -> Any:
        transaction = commit(*arguments)
        own = transaction.commit_transaction

        def fail() -> Any:
            own()
            raise ConnectionError("lost")

        transaction.commit_transaction = fail  # type: ignore[method-assign]
        return transaction

    monkeypatch.setattr(table_commit, "_is_sqlite", lambda _: False)
    monkeypatch.setattr(table_commit, "plan_columns", lose)
    name = to_table_name("ns.t", place / "catalog.db")
    columns = {name: {"type": kind, "default": text} for name, (kind, text, _) in ADDED.items()}
    table = table_commit.commit_columns(name, parse_new_columns(opened(place).columns, columns))  # type: ignore[arg-type]
    assert len(table.schema().fields) == 2 + len(ADDED)
    assert [row["i"] for row in rows(place)] == [-7, -7]


def test_nested_defaults_of_others_are_read(place: Path) -> None:
    """Fields of structs that a file lacks, and structs that it lacks. PyIceberg knows no default of a struct."""
    table = opened(place).table
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    fields = {each["name"]: each for each in metadata["schemas"][-1]["fields"]}
    y = {"id": 91, "name": "y", "type": "date", "required": False, "initial-default": "2024-01-02"}
    fields["s"]["type"]["fields"].append(y)
    inner = {"type": "struct", "fields": [{**y, "id": 93}, {**y, "id": 94, "name": "z", "initial-default": None}]}
    metadata["schemas"][-1]["fields"].append({"id": 95, "name": "n", "type": inner, "required": False})
    metadata["last-column-id"] = 99
    path.write_text(json.dumps(metadata))
    made = opened(place).to_arrow().to_pylist()
    day = date(2024, 1, 2)
    assert made == [{"id": 1, "s": {"x": 1, "y": day}, "n": None}, {"id": 2, "s": None, "n": None}]
    opened(place).update({"id": "3"}, "id = 2")
    assert opened(place).to_arrow("s.y = DATE '2024-01-02'")["id"].to_pylist() == [1]
    assert opened(place).table.scan().to_arrow().to_pylist() == [made[0], {**made[1], "id": 3}]


def test_times_that_spark_lacks_keep_their_default_in_copies(tmp_path: Path) -> None:
    catalog = embedded_catalog(tmp_path)
    table = catalog.create_table("ns.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1, 2]}))
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 2}
    column = {"id": 2, "name": "at", "type": "time", "required": False, "initial-default": "01:02:03"}
    metadata["schemas"][0]["fields"].append(column)
    metadata["last-column-id"] = 2
    path.write_text(json.dumps(metadata))
    opened(tmp_path).delete("id = 1")
    kept = opened(tmp_path).table.scan().to_arrow().to_pylist()
    assert [(row["id"], str(row["at"])) for row in kept] == [(2, "01:02:03")]


@pytest.mark.parametrize("rule", ["partition", "CHECK"])
def test_a_record_whose_default_breaks_a_rule_keeps_its_text(tmp_path: Path, rule: str) -> None:
    place = tmp_path / "t"
    more = "" if rule == "CHECK" else "PARTITIONED BY (p)"
    widen.sql(f"CREATE TABLE delta.`{place}` (id INT, p STRING DEFAULT '') {more}")
    if rule == "CHECK":
        widen.sql(f"ALTER TABLE delta.`{place}` ADD CONSTRAINT full CHECK (p IS NULL OR p <> '')")
    (tmp_path / "s.json").write_text('{"id":1,"p":"x"}\n{"id":2}\n{"id":3,"p":null}\n')
    done = widen.ingest(tmp_path / "s.json", place, engine="local", verify=True)
    assert done.quarantined == 1
    kept = widen.Table(f"{place}_quarantine").to_arrow().select(["text", "position"]).to_pylist()
    assert kept == [{"text": '{"id":2}', "position": 2}]
