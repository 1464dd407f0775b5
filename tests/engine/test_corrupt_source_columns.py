"""Corrupt texts have the file and the time of their load, like records, and the proof holds them to it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import widen
from widen.errors import PostCommitFailed
from widen.json.field_rules import FileFields

BAD = pa.Array.from_buffers(pa.string(), 2, pa.array([b"ok", b"\xff\xfe"], pa.binary()).buffers())
SOURCES: dict[str, bytes] = {
    "lines.json": b'{"id":1}\nno record\n{"id":2}\n5\n',
    "array.json": b'[{"id":1},{"id":tru},{"id":2}]',
    "packed.json.gz": gzip.compress(b'{"id":1}\nno record\n'),
    "text.csv": b"id,v\n1,a\n2,b,c\n3\n",
    "other.csv": b'id,v\n1,a\n"2","b"x\n3,\xff\n',
}
TABLES = ["delta", "iceberg"]


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> str:
    """Where the loads run."""
    if request.param == "spark":
        request.getfixturevalue("spark")
    return str(request.param)


def place_of(folder: Path, kind: str) -> tuple[str, dict[str, Any]]:
    return (str(folder / "t"), {}) if kind == "delta" else ("db.t", {"catalog": str(folder / "c.db")})


def load(source: Path, folder: Path, kind: str, engine: str, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    table, catalog = place_of(folder, kind)
    options = {"source_columns": True, "verify": True, **options}
    done = widen.ingest(source, table, engine=engine, to=kind, **catalog, **options)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    if not catalog:
        return done, widen.Table(table).to_arrow().to_pylist()
    rows = SqlCatalog("default", uri=f"sqlite:///{catalog['catalog']}").load_table(table).scan().to_arrow().to_pylist()
    return done, rows


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("name", SOURCES)
def test_a_corrupt_text_has_its_file_and_time(tmp_path: Path, engine: str, kind: str, name: str) -> None:
    (tmp_path / "dt=1").mkdir()
    source = tmp_path / "dt=1" / name
    source.write_bytes(SOURCES[name])
    for number in (1, 2):  # a new table, and one that has the columns
        done, rows = load(source, tmp_path, kind, engine)
        corrupt = [row for row in rows if row["_corrupt_record"] is not None]
        assert len(corrupt) == number * done.corrupt > 0
        others = {key for row in corrupt for key, value in row.items() if value is not None}
        assert others == {"_corrupt_record", "_corrupt_at", "_source_file", "_loaded_at"}
        assert {row["_source_file"] for row in corrupt} == {row["_source_file"] for row in rows}
        assert {row["_loaded_at"] for row in corrupt} == {row["_loaded_at"] for row in rows}


def test_a_typed_record_has_its_file_and_time(tmp_path: Path, engine: str) -> None:
    pq.write_table(pa.table({"id": [1, 2], "v": BAD}), tmp_path / "a.parquet")
    _, rows = load(tmp_path / "a.parquet", tmp_path, "delta", engine)
    [corrupt] = [row for row in rows if row["_corrupt_record"] is not None]
    assert corrupt["_corrupt_record"] == 'b\'{"id": 2, "v": "\\xff\\xfe"}\''
    assert corrupt["_source_file"] == rows[0]["_source_file"] is not None
    assert corrupt["_loaded_at"] == rows[0]["_loaded_at"] is not None


@pytest.mark.parametrize("options", [{"mask": ["_source_file"]}, {"exclude": ["_source_file"]}, {"evolve": "freeze"}])
def test_rules_for_these_columns_are_those_of_records(tmp_path: Path, engine: str, options: dict[str, Any]) -> None:
    source = tmp_path / "a.json"
    source.write_text('{"id": 1}\nno record')
    if "evolve" in options:
        load(source, tmp_path, "delta", engine, source_columns=False)
    _, rows = load(source, tmp_path, "delta", engine, **options)
    names = ("_source_file", "_rescued")
    new = rows if len(rows) == 2 else [row for row in rows if row["_rescued"]]
    assert len(new) == 2
    first, second = ([row.get(name) for name in names] for row in new)
    assert first == second


@pytest.mark.parametrize("kind", TABLES)
def test_the_quarantine_has_file_and_time_of_its_own(tmp_path: Path, engine: str, kind: str) -> None:
    source, (table, catalog) = tmp_path / "a.json", place_of(tmp_path, kind)
    if kind == "delta":
        widen.create_table(table, "id int NOT NULL, v int")
    else:
        iceberg = SqlCatalog("default", uri=f"sqlite:///{catalog['catalog']}", warehouse=str(tmp_path))
        iceberg.create_namespace("db")
        iceberg.create_table(table, pa.schema([pa.field("id", pa.int32(), nullable=False), ("v", pa.int32())]))
    source.write_text('{"id": 1}\nno record\n{"v": 2}')
    done, _ = load(source, tmp_path, kind, engine)
    assert (done.records, done.quarantined) == (1, 2)


@pytest.mark.parametrize("kind", TABLES)
def test_a_load_by_key_quarantines_corrupt_texts(tmp_path: Path, engine: str, kind: str) -> None:
    source = tmp_path / "a.json"
    source.write_text('{"id": 1, "v": 1}\nno record\n{"id": 2}')
    done, rows = load(source, tmp_path, kind, engine, key=["id"])
    assert (done.records, done.quarantined, len(rows)) == (2, 1, 2)


@pytest.mark.parametrize("column", ["_source_file", "_loaded_at"])
def test_the_proof_sees_another_file_or_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str) -> None:
    right = FileFields.origin_of

    other = {"_source_file=": "file:/x", "_loaded_at=": "2020-01-01T00:00:00Z"}

    def wrong(fields: FileFields, file: str) -> dict[str, str | None]:
        return {**right(fields, file), f"{column}=": other[f"{column}="]}

    monkeypatch.setattr(FileFields, "origin_of", wrong)
    source = tmp_path / "a.json"
    source.write_text(json.dumps({"id": 1}) + "\nno record\n")
    with pytest.raises(PostCommitFailed, match="rows differ from their records"):
        widen.ingest(source, str(tmp_path / "t"), engine="local", source_columns=True, verify=True)
