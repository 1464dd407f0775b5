"""`widen read --format`: rows as a file for other programs, and `to_arrow(unified=True)`."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

import widen
from support.command_line import run

FIRST, SECOND = (
    """\
{"id": 2, "name": "", "tags": "one", "at": null}
{"id": 5000000000}
""",
    '{"id": 1, "name": "a \\"b\\", c", "tags": ["x", "y"], "at": {"x": 1.5}}',
)


@pytest.fixture
def table(tmp_path: Path) -> str:
    for records in (FIRST, SECOND):
        (tmp_path / "a.json").write_text(records)
        widen.ingest(tmp_path / "a.json", tmp_path / "t")
    return str(tmp_path / "t")


def content(*words: str) -> bytes:
    done = run("read", *words)
    assert done.exit_code == 0, done.stderr
    return done.stdout_bytes


def test_parquet_and_arrow_have_all_rows_and_types(table: str) -> None:
    expected = widen.Table(table).to_arrow().sort_by("id")
    parquet = pq.read_table(io.BytesIO(content(table, "--format", "parquet"))).sort_by("id")
    with pa.ipc.open_stream(content(table, "--format", "arrow")) as reader:
        arrow = reader.read_all().sort_by("id")
    assert parquet.equals(expected)
    assert arrow.equals(expected)


def test_csv_tells_null_from_an_empty_text_and_has_nested_values_as_json(table: str) -> None:
    text = content(table, "--format", "csv", "--select", "id,name,at,tags_array_string")
    assert text.decode().splitlines()[0] == '"id","name","at","tags_array_string"'
    options = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    rows = csv.read_csv(io.BytesIO(text), convert_options=options).sort_by("id").to_pylist()
    assert rows == [
        {"id": 1, "name": 'a "b", c', "at": '{"x":1.5}', "tags_array_string": '["x","y"]'},
        {"id": 2, "name": "", "at": None, "tags_array_string": None},
        {"id": 5000000000, "name": None, "at": None, "tags_array_string": None},
    ]


def test_conditions_and_limits_hold_for_files(table: str) -> None:
    rows = pq.read_table(io.BytesIO(content(table, "--format", "parquet", "--where", "id > 1", "--limit", "1")))
    assert rows.num_rows == 1
    assert pq.read_table(io.BytesIO(content(table, "--format", "parquet", "--where", "id > 1"))).num_rows == 2
    assert content(table, "--format", "json") == content(table, "--json")


def test_what_a_format_cannot_be(table: str) -> None:
    assert "--format" in run("read", table, "--json", "--format", "csv").stderr
    assert run("read", table, "--format", "xml").exit_code == 1


def test_unified_rows_come_without_spark(table: str) -> None:
    rows = widen.Table(table).to_arrow(unified=True).sort_by("id")
    assert rows.column("tags").to_pylist() == [["x", "y"], ["one"], None]
    assert rows.column_names == ["id", "name", "tags", "at"]
    assert widen.Table(table).to_pandas("id = 2", unified=True)["tags"].tolist()[0].tolist() == ["one"]
    unified = pq.read_table(io.BytesIO(content(table, "--unified", "--format", "parquet"))).sort_by("id")
    assert unified.equals(rows)
