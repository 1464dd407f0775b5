"""Avro, workbooks and odd types of Parquet in everything that loads do with files."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

import widen
from support.workbooks import workbook
from widen.ingestion.result import IngestResult

SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "x", "type": ["null", "long", "string"]}],
}


def write_avro(path: Path, first: int) -> None:
    with path.open("wb") as file:
        fastavro.writer(file, SCHEMA, [{"id": first, "x": "a"}, {"id": first + 1, "x": 5}])


def write_xlsx(path: Path, first: int) -> None:
    path.write_bytes(workbook({"Orders": [["id", "x"], [first, "a"], [first + 1, 5]]}))


def write_parquet(path: Path, first: int) -> None:
    pq.write_table(pa.table({"id": [first, first + 1], "x": pa.array([time(1), None], pa.time64("us"))}), path)


WRITERS = {"avro": write_avro, "xlsx": write_xlsx, "parquet": write_parquet}


@pytest.fixture(params=WRITERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    place = tmp_path / "in"
    place.mkdir()
    WRITERS[request.param](place / f"1.{request.param}", 1)
    return place


def add(folder: Path, number: int) -> None:
    ending = next(folder.iterdir()).suffix
    WRITERS[ending[1:]](folder / f"{number}{ending}", number * 2 - 1)


def ids(table: Path) -> list[int]:
    return sorted(widen.Table(table).to_arrow()["id"].to_pylist())


def test_a_plan_is_what_a_load_does(tmp_path: Path, folder: Path) -> None:
    planned = widen.plan(folder, tmp_path / "t", engine="local")
    done = widen.ingest(folder, tmp_path / "t", engine="local", plan_hash=planned.hash, verify=True)
    assert (done.records, done.plan.hash) == (2, planned.hash)
    assert not (tmp_path / "q").exists()


def test_a_stream_loads_new_files(tmp_path: Path, folder: Path) -> None:
    done: list[IngestResult] = []
    words: dict[str, Any] = {"engine": "local", "once": True, "checkpoint": tmp_path / "cp", "on_interval": done.append}
    widen.ingest_stream(folder, tmp_path / "t", verify=True, **words).wait()
    add(folder, 2)
    widen.ingest_stream(folder, tmp_path / "t", verify=True, **words).wait()
    assert [each.records for each in done] == [2, 2]
    assert ids(tmp_path / "t") == [1, 2, 3, 4]


def test_only_new_files_are_loaded(tmp_path: Path, folder: Path) -> None:
    for number in (1, 2, 3):
        if number > 1:
            add(folder, number)
        assert widen.ingest(folder, tmp_path / "t", engine="local", new=True).records == 2
    assert ids(tmp_path / "t") == [1, 2, 3, 4, 5, 6]


def test_a_contract_is_checked_record_by_record(folder: Path) -> None:
    contract = {"type": "object", "properties": {"id": {"type": "integer", "maximum": 1}}}
    report = widen.check_contract(folder, contract, engine="local")
    [(file, record, *_)] = report.listed
    assert (Path(file.removeprefix("file:")), record) == (next(folder.iterdir()), 2)


def test_exclusions_and_masks_hold(tmp_path: Path, folder: Path) -> None:
    widen.ingest(folder, tmp_path / "t", engine="local", exclude=["x"], verify=True)
    assert widen.Table(tmp_path / "t").schema.names == ("id",)
    widen.ingest(folder, tmp_path / "u", engine="local", mask=["x"], verify=True)
    assert "a" not in str(widen.Table(tmp_path / "u").to_arrow().to_pylist())


def test_an_iceberg_table_gets_the_same_rows(tmp_path: Path, folder: Path) -> None:
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    words: dict[str, Any] = {"to": "iceberg", "catalog": catalog, "engine": "local", "verify": True}
    done = widen.ingest(folder, "n.t", **words)
    widen.ingest(folder, tmp_path / "t", engine="local")
    assert done.records == 2
    assert str(done.verification).endswith("leaves exact")
