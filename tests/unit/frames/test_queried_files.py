"""Reading Iceberg tables of many files in this process: no more files are opened than the wanted rows need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from support.iceberg_files import (
    append,
    append_deletes,
    data_file,
    embedded_catalog,
    equality_deletes,
    field,
    position_deletes,
    write_file,
)
from widen.files.expressions import query_files
from widen.frames.iceberg_scan import IcebergSource, open_queried_files
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.snapshots import SnapshotReference, find_read_point

FILES = 300
COLUMN = [field("id", pa.int64(), 1)]


class Counting:
    """What opens files, and the data files that it has opened."""

    def __init__(self, io: Any) -> None:
        self._io, self.opened = io, set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._io, name)

    def new_input(self, path: str) -> Any:
        if path.endswith(".parquet"):
            self.opened.add(path)
        return self._io.new_input(path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = embedded_catalog(tmp_path)
    yield catalog
    catalog.engine.dispose()


def create(catalog: SqlCatalog) -> tuple[Table, list[Path]]:
    table = catalog.create_table("ns.t", Schema(NestedField(1, "id", LongType())))
    paths = [write_file(table, COLUMN, [{"id": number}, {"id": -number}]) for number in range(1, FILES + 1)]
    append(table, *(data_file(path, 2) for path in paths))
    return table, paths


def query(table: Table, **wanted: Any) -> tuple[list[int], int]:
    """Return the values of the column, and how many files were opened."""
    point = find_read_point(table.refresh().metadata, SnapshotReference())
    io, schema = Counting(table.io), to_model(point.schema)
    source = IcebergSource(partial(pytest.fail, "needs Spark"), io, point)
    rows = query_files(schema, partial(open_queried_files, source, schema), **wanted)[1]
    return rows["id"].to_pylist(), len(io.opened)


@pytest.mark.parametrize(("limit", "opened"), [(1, 1), (2, 1), (3, 3), (20, 15), (600, FILES)])
def test_a_limit_opens_a_few_files_without_spark(catalog: SqlCatalog, limit: int, opened: int) -> None:
    values, count = query(create(catalog)[0], limit=limit)
    assert (len(values), count) == (limit, opened)


def test_more_than_256_files_are_read_whole_without_spark(catalog: SqlCatalog) -> None:
    table, _ = create(catalog)
    numbers = range(1, FILES + 1)
    assert sorted(query(table)[0]) == sorted([*numbers, *(-number for number in numbers)])
    assert query(table, where="id = 299")[0] == [299]


def test_deletes_of_all_of_more_than_256_files_apply(catalog: SqlCatalog) -> None:
    table, paths = create(catalog)
    append_deletes(table, position_deletes(table, [(path, 1) for path in paths]))
    append_deletes(table, equality_deletes(table, COLUMN, [{"id": 1}, {"id": 280}], [1]))
    expected = [number for number in range(1, FILES + 1) if number not in (1, 280)]
    assert sorted(query(table)[0]) == expected
    assert len(query(table, limit=290)[0]) == 290
