"""Transactions on Iceberg tables in an embedded catalog, and every way in which a commit can end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.schema import Schema

from support.iceberg_files import embedded_catalog
from widen.errors import (
    CatalogError,
    CatalogRefused,
    ColumnChangeUnknown,
    InvalidOption,
    SnapshotUnknown,
    TableAlreadyExists,
    TableChanged,
    TypeChangeRefused,
    UnsupportedFeatureForWrite,
)
from widen.iceberg.catalog import TableName, to_table_name
from widen.iceberg.file_metrics import IcebergFile, data_location
from widen.iceberg.partitions import PartitionField, encode_partition
from widen.iceberg.table_commit import NewTable, commit_columns, open_transaction
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.model.types import (
    BINARY,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    StructType,
)
from widen.schema.operations import AddColumn, WidenType

SCHEMA = StructType((Field("id", INTEGER), Field("price", DecimalType(10, 2)), Field("text", STRING)))
STATS = '{"rows":3,"offsets":[4],"columns":{"1":[30,3,1,"AQAAAA==","AwAAAA=="]}}'


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    return to_table_name("shop.orders", tmp_path / "c.db")


@pytest.fixture
def table(name: TableName) -> TableName:
    """A table with one snapshot."""
    assert isinstance(append(name, NewTable(SCHEMA)), int)
    return name


def append(
    name: TableName, new: NewTable | None = None, operations: tuple[Any, ...] = (), staged: StagedFiles | None = None
) -> int | Conflicted:
    transaction = open_transaction(name, name.find(), operations, new)
    transaction.set_properties({"widen.stream.s": "1"})
    transaction.add_snapshot([IcebergFile("job/part-1.parquet", 700, STATS)], {"widen.operation": "ingest"})
    return transaction.commit(staged or StagedFiles())


class Staged(StagedFiles):
    """Staged files that say whether they would be deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted = 0
        self.add_undo(self._delete)

    def _delete(self) -> None:
        self.deleted += 1


def test_a_new_table_has_its_columns_files_and_properties_in_one_commit(name: TableName) -> None:
    version = append(name, NewTable(SCHEMA))
    table = name.load()
    assert [snapshot.snapshot_id for snapshot in table.snapshots()] == [version]
    assert table.format_version == 2
    assert table.properties == {"widen.stream.s": "1"}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["widen.operation"] == "ingest"
    (file,) = table.inspect.files().to_pylist()
    assert file["file_path"] == f"{data_location(table.metadata)}/job/part-1.parquet"
    assert (file["record_count"], file["file_size_in_bytes"], file["split_offsets"]) == (3, 700, [4])
    assert file["readable_metrics"]["id"] == {
        "column_size": 30,
        "value_count": 3,
        "null_value_count": 1,
        "nan_value_count": None,
        "lower_bound": 1,
        "upper_bound": 3,
    }


def test_manifests_are_merged_if_the_table_says_so(name: TableName) -> None:
    append(name, NewTable(SCHEMA))
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    name.load().transaction().set_properties(properties).commit_transaction()
    for _ in range(3):
        append(name)
    table = name.load()
    assert len(table.inspect.manifests()) == 1
    assert len(table.inspect.files()) == 4


@pytest.mark.parametrize(
    "key",
    [
        "commit.manifest.min-count-to-merge",
        "commit.manifest.target-size-bytes",
        "write.metadata.previous-versions-max",
        "write.summary.partition-limit",
    ],
)
def test_a_property_that_is_not_an_integer_is_named(name: TableName, key: str) -> None:
    append(name, NewTable(SCHEMA))
    transaction = open_transaction(name, name.load(), ())
    transaction.set_properties({"commit.manifest-merge.enabled": "true", key: "many"})
    with pytest.raises(InvalidOption, match=rf"{key}.*'many'.*integer"):
        transaction.add_snapshot([], {})


def test_new_columns_have_ids_before_anything_is_committed(table: TableName) -> None:
    added = AddColumn((), Field("r", ArrayType(StructType((Field("x", LONG), Field("a.b", STRING))))))
    below = AddColumn(("r", "element"), Field("y", STRING, metadata={"comment": "evolved_from:r.y"}))
    transaction = open_transaction(table, table.load(), (added, below, WidenType(("id",), INTEGER, LONG)))
    schema = transaction.schema
    assert schema.find_field("r.element.y").field_id == 8
    assert schema.find_field("r.element.y").doc == "evolved_from:r.y"
    assert str(schema.find_type("id")) == "long"
    assert table.load().schema().column_names == ["id", "price", "text"]


REFUSED: list[tuple[str, DataType, DataType]] = [
    ("price", DecimalType(10, 2), DecimalType(12, 4)),
    ("text", STRING, BINARY),
    ("id", INTEGER, DOUBLE),
]


@pytest.mark.parametrize(("column", "old", "new"), REFUSED, ids=lambda each: str(each))
def test_widenings_that_the_specification_forbids_are_refused_before_pyiceberg_is_asked(
    table: TableName, column: str, old: DataType, new: DataType
) -> None:
    with pytest.raises(TypeChangeRefused, match="Iceberg does not allow this change in format version 2"):
        open_transaction(table, table.load(), (WidenType((column,), old, new),))


def test_pyiceberg_itself_accepts_two_of_them(table: TableName) -> None:
    """If this fails, PyIceberg has learnt the rules, and the check before it may go."""
    with table.load().transaction() as transaction, transaction.update_schema() as update:
        update.update_column("price", ice.DecimalType(12, 4))
        update.update_column("text", ice.BinaryType())
    assert str(table.load().schema().find_type("price")) == "decimal(12, 4)"


def test_pyiceberg_does_not_write_version_3(tmp_path: Path) -> None:
    """If this fails, PyIceberg writes such tables itself: see `widen.iceberg.row_ids`."""
    schema = Schema(ice.NestedField(1, "id", ice.LongType()))
    with pytest.raises(NotImplementedError, match="V3"):
        embedded_catalog(tmp_path).create_table("ns.three", schema, properties={"format-version": "3"})


@pytest.mark.parametrize("version", ["1", "2", "3"])
def test_each_version_is_written(tmp_path: Path, version: str) -> None:
    name = to_table_name("shop.orders", tmp_path / "c.db")
    name.create_namespace()
    schema = Schema(ice.NestedField(1, "id", ice.IntegerType()))
    name.catalog.open().create_table(name.identifier, schema, properties={"format-version": version})
    assert isinstance(append(name, operations=(WidenType(("id",), INTEGER, LONG),)), int)
    table = name.load()
    assert table.format_version == int(version)
    assert str(table.schema().find_type("id")) == "long"
    assert [task.file.record_count for task in table.scan().plan_files()] == [3]


# ---- how a commit ends ----------------------------------------------------------------------------


def test_a_lost_race_is_an_outcome_and_leaves_no_manifest(table: TableName, tmp_path: Path) -> None:
    transaction = open_transaction(table, table.load(), ())
    transaction.add_snapshot([IcebergFile("job/part-2.parquet", 700, STATS)], {})
    assert isinstance(append(table), int)
    before = sorted(tmp_path.rglob("*.avro"))
    with Staged() as staged:
        outcome = transaction.commit(staged)
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, TableChanged)
    assert staged.deleted == 1
    assert len(table.load().snapshots()) == 2
    assert len(sorted(tmp_path.rglob("*.avro"))) == len(before) - 2


def test_a_change_of_columns_conflicts_with_another(table: TableName) -> None:
    transaction = open_transaction(table, table.load(), (AddColumn((), Field("a", STRING)),))
    transaction.add_snapshot([], {})
    with table.load().update_schema() as update:
        update.add_column("b", ice.StringType())
    outcome = transaction.commit(StagedFiles())
    assert isinstance(outcome, Conflicted)
    assert "schema" in outcome.error.message


def test_two_writers_that_create_a_table(name: TableName) -> None:
    transaction = open_transaction(name, None, (), NewTable(SCHEMA))
    transaction.add_snapshot([], {})
    append(name, NewTable(SCHEMA))
    outcome = transaction.commit(StagedFiles())
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, TableAlreadyExists)


def _failing(name: TableName, error: Exception, *, commits: bool) -> Callable[..., Any]:
    """A catalog's commit that raises an error, after or instead of the commit."""
    commit_table = name.catalog.open().commit_table

    def fail(*arguments: Any) -> None:
        if commits:
            commit_table(*arguments)
        raise error

    return fail


UNCLEAR = [CommitStateUnknownException("502"), ConnectionError("reset"), TimeoutError()]
LOST = CommitFailedException("lost")
"""What a catalog's client reports that has repeated a request without an answer: it has lost against itself."""


@pytest.mark.parametrize("error", [*UNCLEAR, LOST], ids=lambda each: type(each).__name__)
def test_a_commit_that_succeeded_although_it_reports_an_error(
    table: TableName, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.catalog.open(), "commit_table", _failing(table, error, commits=True))
    with Staged() as staged:
        version = append(table, staged=staged)
    assert staged.deleted == 0
    snapshot = table.load().current_snapshot()
    assert snapshot is not None
    assert snapshot.snapshot_id == version


@pytest.mark.parametrize("error", UNCLEAR, ids=lambda each: type(each).__name__)
def test_an_unknown_outcome_deletes_nothing(
    table: TableName, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.catalog.open(), "commit_table", _failing(table, error, commits=False))
    monkeypatch.setattr("widen.iceberg.table_commit._is_sqlite", lambda _: False)
    staged = Staged()
    with pytest.raises(SnapshotUnknown, match=r"not known whether snapshot \d+ of shop\.orders was committed"), staged:
        append(table, staged=staged)
    assert staged.deleted == 0
    assert len(table.load().snapshots()) == 1


def test_a_table_that_cannot_be_read_after_the_error_is_unknown_too(
    table: TableName, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_table(*_: Any) -> None:
        monkeypatch.setattr(table.catalog.open(), "load_table", _raise(ConnectionError("down")))
        raise TimeoutError("no answer")

    monkeypatch.setattr(table.catalog.open(), "commit_table", commit_table)
    staged = Staged()
    with pytest.raises(SnapshotUnknown), staged:
        append(table, staged=staged)
    assert staged.deleted == 0


@pytest.mark.parametrize("error", UNCLEAR, ids=lambda each: type(each).__name__)
def test_a_change_of_columns_whose_outcome_is_unknown(
    table: TableName, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.catalog.open(), "commit_table", _failing(table, error, commits=False))
    monkeypatch.setattr("widen.iceberg.table_commit._is_sqlite", lambda _: False)
    with pytest.raises(ColumnChangeUnknown, match=r"not known whether the columns of shop\.orders were changed"):
        commit_columns(table, [AddColumn((), Field("note", STRING))])


@pytest.mark.parametrize("error", [*UNCLEAR, LOST, OSError("disk")], ids=lambda each: type(each).__name__)
def test_a_change_of_columns_that_succeeded_although_it_reports_an_error(
    table: TableName, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.catalog.open(), "commit_table", _failing(table, error, commits=True))
    changed = commit_columns(table, [AddColumn((), Field("note", STRING))])
    assert "note" in changed.schema().column_names


@pytest.mark.parametrize(
    ("error", "expected"), [(ForbiddenError("not yours"), CatalogRefused), (OSError("locked"), CatalogError)]
)
def test_a_change_of_columns_that_is_not_there(
    table: TableName, error: Exception, expected: type[CatalogError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table.catalog.open(), "commit_table", _failing(table, error, commits=False))
    with pytest.raises(expected):
        commit_columns(table, [AddColumn((), Field("note", STRING))])


def test_sqlite_rolls_back(table: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError("database is locked")
    monkeypatch.setattr(table.catalog.open(), "commit_table", _failing(table, error, commits=False))
    staged = Staged()
    with pytest.raises(CatalogError, match="database is locked") as caught, staged:
        append(table, staged=staged)
    assert caught.value.advice == "Nothing was committed. Repeat the call."
    assert staged.deleted == 1


def test_a_refused_commit_deletes_its_files(table: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table.catalog.open(), "commit_table", _raise(ForbiddenError("not yours")))
    staged = Staged()
    with pytest.raises(CatalogRefused, match="not yours"), staged:
        append(table, staged=staged)
    assert staged.deleted == 1


def test_pyiceberg_does_not_repeat_a_lost_race(table: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not look at what the other writer has committed: it could be the same interval of a stream."""
    calls = []

    def commit_table(*_: Any) -> None:
        calls.append(1)
        raise CommitFailedException("lost")

    monkeypatch.setattr(table.catalog.open(), "commit_table", commit_table)
    assert isinstance(append(table), Conflicted)
    assert calls == [1]
    assert "commit.retry.num-retries" not in table.load().properties


def _raise(error: Exception) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def test_manifests_with_doubles_as_partition_values_are_not_written_again(name: TableName) -> None:
    schema = StructType((*SCHEMA, Field("x", DOUBLE)))
    file = IcebergFile("job/part-1.parquet", 700, STATS, encode_partition([0.1]))
    properties = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    for new in (NewTable(schema, (PartitionField("x", ("x",), "identity"),)), None):
        transaction = open_transaction(name, name.find(), (), new)
        transaction.set_properties(properties)
        transaction.add_snapshot([file], {})
        assert isinstance(transaction.commit(StagedFiles()), int)
    table = name.load()
    assert len(table.inspect.manifests()) == 2
    old = [task.file for task in table.scan().plan_files()]
    with pytest.raises(UnsupportedFeatureForWrite, match=r"cannot change rows of .* partitions by"):
        open_transaction(name, table, ()).add_snapshot([file], {}, old[:1])
