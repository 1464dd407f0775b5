"""`Table` where Spark is not installed: everything that needs the log, or small data, alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import widen

place = sys.argv[1]
"""

CREATE = "widen.create_table(place, 'id int, name string')"
ENABLE = "widen.Table(place).set_properties({'delta.enableTypeWidening': 'true'})"

USES = {
    "open": "assert (t.version, t.location, len(t.files())) == (2, place, 1)",
    "schema": "assert [field.name for field in t.schema] == ['id', 'name']",
    "properties": "assert t.set_properties({'a.b': 'c'}).properties['a.b'] == 'c'",
    "protocol": "assert 'typeWidening' in str(t.protocol)",
    "history": "assert [each.operation for each in t.history()][-1] == 'CREATE TABLE'",
    "widen a type": "assert str(t.alter_column('id', type='bigint').type_changes[0][1].new.sql).lower() == 'bigint'",
    "add": "assert [field.name for field in t.add_columns({'late': 'string'}).schema][-1] == 'late'",
    "rename and drop": """
t.set_properties({"delta.columnMapping.mode": "name"})
assert [field.name for field in t.rename_column("name", "title").schema] == ["id", "title"]
assert [field.name for field in t.drop_columns("title").schema] == ["id"]
""",
    "loads": "assert len(t.loads()) == 0",
    "diff": "t.alter_column('id', type='bigint'); assert t.diff(2).to_value()['changes']",
    "contract": "assert set(t.contract()['properties']) == {'id', 'name'}",
    "vacuum": "assert t.vacuum(dry_run=True).files == ()",
    "to_arrow": "assert t.to_arrow().sort_by('id').to_pylist() == ROWS",
    "to_arrow after a wider type": """
t.alter_column("id", type="bigint")
assert str(t.to_arrow().schema.field("id").type) == "int64"
assert t.to_arrow().sort_by("id").to_pylist() == ROWS
""",
    "to_pandas": "assert sorted(t.to_pandas()['id']) == [1, 2, 3]",
    "to_polars": "assert sorted(t.to_polars()['id']) == [1, 2, 3]",
    "restore": "assert t.restore(0).table.to_arrow().num_rows == 0",
}
"""What to do with the table, by its name in the guide."""

ROWS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Alan"}, {"id": 3, "name": None}]


def run(program: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + program, str(place)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table that was created without Spark, with rows of another writer."""
    assert run(CREATE, tmp_path / "orders").returncode == 0
    rows = pa.Table.from_pylist(ROWS, schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))
    write_deltalake(str(tmp_path / "orders"), rows, mode="append")
    assert run(ENABLE, tmp_path / "orders").returncode == 0  # which deltalake cannot write to
    return tmp_path / "orders"


@pytest.mark.parametrize("use", USES)
def test_a_table_is_used_without_spark(use: str, place: Path) -> None:
    if use == "to_polars":
        pytest.importorskip("polars")
    done = run(f"t, ROWS = widen.Table(place), {ROWS!r}\n{USES[use]}", place)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "t.read()",
        "t.update({'id': '1'}, where='id = 1')",
        "t.delete('id = 1')",
    ],
)
def test_what_needs_spark_says_so(call: str, place: Path) -> None:
    done = run(f"t = widen.Table(place)\n{call}", place)
    assert "SparkUnavailable" in done.stderr, done.stderr
    assert "pip install 'widen[spark]'" in done.stderr


def test_what_is_no_frame_is_refused_and_what_is_done_already_needs_no_spark(place: Path) -> None:
    done = run("t = widen.Table(place)\nt.rewrite()\nt.optimize()\nt.append(None)", place)
    assert "InvalidOption" in done.stderr, done.stderr
    assert "frame" in done.stderr
