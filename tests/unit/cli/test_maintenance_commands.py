"""The commands that keep a table, as far as they need no Spark; and what ``show`` tells of old types."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import run, run_json
from support.log_table import add, write_commit
from widen.log.log_store import LogStore
from widen.table import create_table

FEATURES = ["appendOnly", "invariants", "typeWidening"]
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["typeWidening"],
        "writerFeatures": FEATURES,
    }
}
CHANGES = [{"fromType": "byte", "toType": "integer"}]


def metadata(**column: Any) -> dict[str, Any]:
    schema = {"type": "struct", "fields": [{"name": "a", "type": "integer", "nullable": True, "metadata": column}]}
    content = {"id": "i", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
    return {"metaData": {**content, "partitionColumns": [], "configuration": {}}}


def write_file(place: Path, name: str, kind: pa.DataType) -> dict[str, Any]:
    pq.write_table(pa.table({"a": pa.array([1, 2], kind)}), place / name)
    return add(name, size=(place / name).stat().st_size, partitionValues={}, stats='{"numRecords":2}')


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table whose column has changed its type, with a file from before and one from after."""
    place = tmp_path / "orders"
    place.mkdir()
    files = [write_file(place, "old.parquet", pa.int8()), write_file(place, "new.parquet", pa.int32())]
    write_commit(place, 0, PROTOCOL, metadata(**{"delta.typeChanges": CHANGES}), *files)
    return str(place)


def test_show_tells_which_files_hold_old_types(table: str) -> None:
    size = (Path(table) / "old.parquet").stat().st_size
    assert run_json("show", table)["oldTypes"] == [{"column": "a", "type": "tinyint", "files": 1, "bytes": size}]
    text = run("show", table).stdout
    assert "Files in old types" in text
    assert text.split("size\n")[1].split("\n")[1].split()[:3] == ["a", "tinyint", "1"]


def test_show_does_without_files_that_cannot_be_read(table: str) -> None:
    (Path(table) / "old.parquet").unlink()
    assert run_json("show", table)["oldTypes"] is None
    assert "not known: " in " ".join(run("show", table).stdout.split())  # the path decides where lines wrap


def test_show_looks_into_no_file_where_no_type_ever_changed(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, PROTOCOL, metadata(), add("gone.parquet", partitionValues={}))
    assert run_json("show", str(tmp_path))["oldTypes"] == []
    assert "old types" not in run("show", str(tmp_path)).stdout


def test_restore(table: str) -> None:
    write_commit(Path(table), 1, metadata(comment="later"))
    restored = run_json("restore", table, "--version", "0")
    assert (restored["version"], restored["restoredFiles"], restored["removedFiles"]) == (2, 0, 0)
    assert "comment" not in run_json("show", table)["schema"]["fields"][0]["metadata"]
    assert "Nothing to change" in run("restore", table, "--version", "2").stdout
    done = run("restore", table)
    assert (done.exit_code, "WIDEN_OPTION_MISSING" in done.stderr) == (1, True)


def test_drop_feature_of_a_table_without_old_files(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, PROTOCOL, metadata())
    assert run_json("drop-feature", str(tmp_path), "typeWidening")["version"] == 4
    assert run_json("show", str(tmp_path))["protocol"]["features"] == [
        "appendOnly",
        "checkpointProtection",
        "invariants",
    ]
    again = run("drop-feature", str(tmp_path), "typeWidening")
    assert (again.exit_code, "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT" in again.stderr) == (1, True)


def test_rewrite_of_a_table_without_old_files(tmp_path: Path) -> None:
    file = write_file(tmp_path, "new.parquet", pa.int32())
    write_commit(tmp_path, 0, PROTOCOL, metadata(**{"delta.typeChanges": CHANGES}), file)
    assert run_json("rewrite", str(tmp_path)) == {"version": 0, "changed": False, "files": 0, "bytes": 0}
    assert run_json("rewrite", str(tmp_path), "--clear-history") == {
        "version": 1,
        "changed": True,
        "files": 0,
        "bytes": 0,
    }
    assert run_json("show", str(tmp_path))["columns"][0]["typeHistory"] == []
    assert "Nothing to change" in run("rewrite", str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("end", "note"), [(".crc", "is committed."), ("01.json", "Whether version 1 of .* was written is not known.")]
)
def test_an_interrupt_tells_what_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, note: str
) -> None:
    create_table(str(tmp_path), "a int")
    put = LogStore.put_if_absent

    def interrupted(store: LogStore, path: str, data: bytes) -> bool:
        if path.endswith(end):
            raise KeyboardInterrupt
        return put(store, path, data)

    monkeypatch.setattr(LogStore, "put_if_absent", interrupted)
    done = run("properties", str(tmp_path), "--set", "k=v")
    assert done.exit_code == 130
    assert re.search(note, done.stderr)


def test_vacuum(table: str) -> None:
    for name in ("orphan.parquet", "young.parquet"):
        (Path(table) / name).write_bytes(b"12345")
    os.utime(Path(table) / "orphan.parquet", (0, 0))
    told_dry = run_json("vacuum", table, "--dry-run")
    assert {key: told_dry[key] for key in ("version", "dryRun", "files", "bytes", "paths")} == {
        "version": 0, "dryRun": True, "files": 1, "bytes": 5, "paths": ["orphan.parquet"],
    }  # fmt: skip
    assert run("vacuum", table, "--dry-run").stdout == "would delete 1 file, 5 B\n  orphan.parquet\n"
    refused = run("vacuum", table, "--retention-hours", "1")
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    assert run("vacuum", table).stdout == "deleted 1 file, 5 B: version 2\n"
    assert not (Path(table) / "orphan.parquet").exists()
    assert run_json("vacuum", table, "--retention-hours", "0", "--force")["paths"] == ["young.parquet"]
    assert [entry["operation"] for entry in run_json("history", table)[:2]] == ["VACUUM END", "VACUUM START"]


def test_what_an_optimize_would_do_needs_no_spark(table: str) -> None:
    size = sum((Path(table) / name).stat().st_size for name in ("old.parquet", "new.parquet"))
    expected = {"version": 0, "changed": False, "files": 2, "bytes": size, "newFiles": 0, "newBytes": 0}
    assert run_json("optimize", table, "--dry-run") == expected
    assert run("optimize", table, "--dry-run").stdout.startswith("would rewrite 2 files, ")
    assert run("optimize", table, "--target-bytes", "1").stdout == "Nothing to change in version 0.\n"
    refused = run("optimize", table, "--zorder-by", "nowhere")
    assert (refused.exit_code, "DELTA_COLUMN_NOT_FOUND" in refused.stderr) == (1, True)
