"""`Table` where Spark is not installed: everything that needs the log, or small data, alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

PROGRAM = """
import json, sys, traceback

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

import widen

said = {}
for name, (place, code) in json.load(sys.stdin).items():
    try:
        exec(code, {"widen": widen, "place": place})
    except Exception:
        said[name] = traceback.format_exc()
assert not {"pyspark", "py4j"} & set(sys.modules)
print(json.dumps(said))
"""
"""A process without PySpark, which runs codes on tables and says how those ended that raised something."""

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
    "update": """
assert t.update({"name": "'Alan Turing'"}, where="id = 2").metrics["numUpdatedRows"] == 1
assert t.to_arrow().sort_by("id").to_pylist() == [ROWS[0], {"id": 2, "name": "Alan Turing"}, ROWS[2]]
""",
    "delete": """
assert t.delete("id = 1 OR name IS NULL").metrics["numDeletedRows"] == 2
assert t.to_arrow().to_pylist() == [ROWS[1]]
""",
    "restore": "assert t.restore(0).table.to_arrow().num_rows == 0",
}
"""What to do with the table, by its name in the guide."""

ROWS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "Alan"}, {"id": 3, "name": None}]


NEED_SPARK = {
    "read": "widen.Table(place).read()",
    "update": "widen.Table(place).update({'name': 'upper(name)'}, where='id = 1')",
    "delete": "widen.Table(place).delete('length(name) = 3')",
}
NO_FRAME = "t = widen.Table(place)\nt.rewrite()\nt.optimize()\nt.append(None)"


def run(codes: Mapping[str, tuple[Path, str]]) -> Mapping[str, str]:
    """Run codes in one process that has no PySpark, and return the errors of those that failed, by their names."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps({name: (str(place), code) for name, (place, code) in codes.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: Mapping[str, str] = json.loads(done.stdout)
    return said


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """How every code ended on a table of its own: created without Spark, with rows of another writer."""
    place, first = tmp_path_factory.mktemp("tables"), tmp_path_factory.mktemp("first") / "orders"
    assert run({"create": (first, CREATE)}) == {}
    rows = pa.Table.from_pylist(ROWS, schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))
    write_deltalake(str(first), rows, mode="append")
    assert run({"enable": (first, ENABLE)}) == {}  # which deltalake cannot write to
    codes = {use: f"t, ROWS = widen.Table(place), {ROWS!r}\n{code}" for use, code in USES.items()}
    codes |= {**{f"{call} on Spark": code for call, code in NEED_SPARK.items()}, "no frame": NO_FRAME}
    return run({name: (shutil.copytree(first, place / name), code) for name, code in codes.items()})


@pytest.mark.parametrize("use", USES)
def test_a_table_is_used_without_spark(use: str, said: Mapping[str, str]) -> None:
    if use == "to_polars":
        pytest.importorskip("polars")
    assert use not in said, said[use]


@pytest.mark.parametrize("call", NEED_SPARK)
def test_what_needs_spark_says_so(call: str, said: Mapping[str, str]) -> None:
    assert "SparkUnavailable" in said[f"{call} on Spark"]
    assert "pip install 'widen[spark]'" in said[f"{call} on Spark"]


def test_what_is_no_frame_is_refused_and_what_is_done_already_needs_no_spark(said: Mapping[str, str]) -> None:
    assert "InvalidOption" in said["no frame"]
    assert "frame" in said["no frame"].splitlines()[-1]
