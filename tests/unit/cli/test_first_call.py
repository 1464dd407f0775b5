"""The first call: what a command must not import, and what works where Spark is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.drift_log import write_drift

CALL = """
import sys
for name in ("pyspark", "py4j"):
    sys.modules[name] = None
from widen.cli.app import app
sys.argv = ["widen", *sys.argv[1:]]
try:
    app()
finally:
    sys.stdout.flush()
    print(*sorted(sys.modules), file=sys.stderr)
"""


def call(*words: str) -> tuple[int, str, set[str]]:
    """Return the exit code of a call without Spark, both outputs, and the modules that it imported."""
    done = subprocess.run([sys.executable, "-c", CALL, *words], capture_output=True, text=True, check=False)
    *said, modules = done.stderr.splitlines()
    return done.returncode, done.stdout + "\n".join(said), set(modules.split())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_drift(tmp_path_factory.mktemp("drift") / "table"))


@pytest.mark.parametrize(
    ("words", "unneeded"),
    [
        (("--help",), {"pyarrow", "obstore", "sqlglot", "jinja2", "pandas", "numpy"}),
        (("history", "TABLE"), {"pyarrow", "sqlglot", "jinja2", "pandas", "numpy"}),
        (("properties", "TABLE"), {"pyarrow", "sqlglot", "jinja2", "pandas", "numpy"}),
        (("show", "TABLE"), {"pyarrow.parquet", "sqlglot", "jinja2", "pandas"}),
    ],
)
def test_a_command_imports_no_more_than_it_needs(table: str, words: tuple[str, ...], unneeded: set[str]) -> None:
    code, said, modules = call(*(table if word == "TABLE" else word for word in words))
    assert code == 0, said
    assert modules & unneeded == set()


def test_columns_and_properties_are_changed_without_spark(tmp_path: Path) -> None:
    place = str(write_drift(tmp_path / "table"))
    for words in (["alter", place, "total", "--comment", "key"], ["properties", place, "--set", "a.b=c"]):
        code, said, _ = call(*words)
        assert code == 0, said
    code, said, _ = call("history", place, "--limit", "2")
    assert "comment 'key'" in said
    assert "set a.b = c" in said


@pytest.mark.parametrize("call", ["ship()", "sql('SELECT 1')"])
def test_python_without_spark_says_how_to_get_it(call: str) -> None:
    code = f"import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; import widen; widen.{call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SparkUnavailable" in done.stderr
    assert "pip install 'widen[spark]'" in done.stderr


UNNEEDED = {
    *("pandas", "pyspark", "py4j", "pyiceberg", "polars", "duckdb", "deltalake", "fastavro", "python_calamine"),
    *("sqlglot", "jinja2", "typer", "rich", "pyarrow.dataset", "pyarrow.orc", "zstandard", "pydantic"),
    *("sqlite3", "importlib.metadata", "email"),
    *("widen.proof.record_digests", "widen.proof.source_reader", "widen.verification", "widen.sql_commands"),
    *("widen.changes.overwrite", "widen.changes.merge", "widen.changes.key_columns", "widen.changes.keyed_decision"),
    *(
        "widen.iceberg.partitions",
        "widen.iceberg.file_metrics",
        "widen.files.iceberg_writer",
        "widen.frames.iceberg_scan",
    ),
    *("widen.report.table_report", "widen.sources.converted_files", "widen.batches.frame_batch", "widen.flows"),
}
ONE_RECORD = """
import sys
import widen
widen.ingest({source}, sys.argv[1], engine="local")
print(*sorted(sys.modules))
"""


OF_ROWS = {"widen.verification", "widen.proof.record_digests", "widen.proof.source_reader", "widen.batches.frame_batch"}
"""What the checks of rows with types need."""


@pytest.mark.parametrize(
    ("source", "needed"), [("[{'id': 1}]", {*OF_ROWS, "widen.sources.converted_files"}), ("sys.argv[2]", set())]
)
def test_a_load_of_one_record_imports_no_more_than_it_needs(tmp_path: Path, source: str, needed: set[str]) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    words = [sys.executable, "-c", ONE_RECORD.format(source=source), str(tmp_path / "t"), str(tmp_path / "a.json")]
    modules = set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())
    assert "widen.targets.delta" in modules
    assert modules & UNNEEDED <= needed


def test_standard_input_has_its_size(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "widen", "ingest", "-", "--format", "json", "--into", str(tmp_path / "t")]
    done = subprocess.run(words, input='{"id": 1}\n', capture_output=True, text=True, check=True)
    assert "the source has 10 B" in done.stderr + done.stdout
