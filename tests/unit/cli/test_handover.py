"""The command handover without Spark, and a stream that finds nothing."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from support.command_line import run, run_json
from support.drift_log import write_drift
from widen.cli import ingest_commands, maintenance_commands
from widen.files import data_reader
from widen.ingestion import stream
from widen.proof.column_digests import digest_batches
from widen.table import Table, create_table


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(write_drift(tmp_path / "orders"))


def test_a_preview_says_what_is_lost_and_changes_nothing(table: str) -> None:
    preview = run_json("handover", table, "--to", "deltalake", "--append", "--dry-run")
    assert preview["drops"] == ["typeWidening", "checkpointProtection"]
    assert (preview["version"], preview["dryRun"], preview["rows"], preview["pending"]) == (2, True, None, None)
    text = run("handover", table, "--to", "polars", "--dry-run").stdout
    assert "would drop typeWidening" in text
    assert "lost: the record of type changes; files in old types are rewritten" in text
    assert "polars reads it, and cannot append: checkpointProtection" in text
    assert run_json("show", table)["version"] == 2


def test_an_unknown_client_is_refused(table: str) -> None:
    done = run("handover", table, "--to", "duckdb")
    assert done.exit_code == 1
    assert "Must be deltalake, polars or iceberg" in done.stderr


def test_iceberg_gets_a_mirror_that_pyiceberg_reads(tmp_path: Path) -> None:
    place = str(tmp_path / "orders")
    create_table(place, "id bigint", properties={"delta.enableIcebergCompatV2": "true"})
    words = (
        "handover",
        place,
        "--to",
        "iceberg",
        "--catalog",
        str(tmp_path / "lake.db"),
        "--identifier",
        "shop.orders",
    )
    assert run(*words, "--dry-run").stdout == "would mirror version 0 as shop.orders\n"
    assert not (tmp_path / "lake.db").exists()
    assert run_json(*words) == {
        "client": "iceberg", "identifier": "shop.orders", "version": 0, "dryRun": False, "rows": 0,
        "readers": ["to_arrow_batch_reader", "to_arrow"],
    }  # fmt: skip
    assert "--append is not for --to iceberg" in run(*words, "--append").stderr
    assert "needs --catalog and --identifier" in run("handover", place, "--to", "iceberg").stderr
    assert "are for --to iceberg" in run("handover", place, "--to", "polars", *words[-2:]).stderr


def test_a_client_whose_values_differ_is_refused(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Table(table).snapshot
    right = digest_batches([pa.table({"id": [1, 2], "total": [0.0, None]})])
    wrong = digest_batches([pa.table({"id": [1, 2], "total": [None, None]})])
    monkeypatch.setattr(maintenance_commands, "_drop", lambda _, plan: (plan, ""))
    monkeypatch.setattr(maintenance_commands, "find_spec", lambda _: object())
    monkeypatch.setattr(data_reader, "digest_locally", lambda _: right)
    lost: list[str] = []
    answers: dict[str, Any] = {"scan_delta": right, "read_delta": "does not open"}
    monkeypatch.setattr(maintenance_commands, "_read", lambda asked: (answers[asked["reader"]], lost))
    for answer, words in (("it panicked.", "read_delta fails: it panicked."), (wrong, "returns wrong values in total")):
        answers["read_delta"] = answer
        done = run("handover", table, "--to", "polars")
        assert done.exit_code == 1
        assert f"polars misreads version {snapshot.version} of {table}: read_delta" in done.stderr
        assert words in done.stderr
    answers["read_delta"] = right
    assert (
        "polars reads version 2: 2 rows, all values and filters equal (scan_delta, read_delta)"
        in run("handover", table, "--to", "polars").stdout
    )
    lost.append("total > 0.1: 0 instead of 1 rows")
    done = run("handover", table, "--to", "polars")
    assert done.exit_code == 1
    assert "scan_delta loses rows of filters: total > 0.1: 0 instead of 1 rows" in done.stderr


def test_bounds_are_repaired_before_a_client_is_asked(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    values = [Decimal("90071992547409.93"), Decimal("-90071992547409.93"), None]
    write_deltalake(place, pa.table({"id": [1, 2, 3], "c": pa.array(values, pa.decimal128(18, 2))}))
    done = run("handover", place, "--to", "deltalake")
    assert (done.exit_code, "Replaced the bounds of 1 file in the log" in done.stderr) == (0, True)
    assert "deltalake reads version 1: 3 rows, all values and filters equal" in done.stdout


def test_filters_that_lose_rows_are_found(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    values = pa.array([Decimal("90071992547409.93"), Decimal("-90071992547409.93")], pa.decimal128(18, 2))
    for at in range(2):
        write_deltalake(place, pa.table({"c": values.slice(at, 1), "s": ["it's"], "f": [float("nan")]}), mode="append")
    asked = {"client": "polars", "reader": "scan_delta", "location": place, "settings": {}, "version": 1}
    digest, lost = maintenance_commands._read(asked)
    assert not isinstance(digest, str)
    assert digest.rows == 2
    assert lost == [
        "c = -90071992547409.93: 0 instead of 1 rows",
        "c = 90071992547409.93: 0 instead of 1 rows",
    ]


def test_a_reader_that_fails_says_why(table: str) -> None:
    asked = {"client": "pyiceberg", "reader": "to_arrow", "name": "no", "properties": {}, "identifier": "a.b"}
    assert "URI missing" in str(maintenance_commands._read(asked)[0])


def test_a_client_that_is_not_installed_is_named_with_a_check(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance_commands, "_drop", lambda _, plan: (plan, ""))
    monkeypatch.setattr(maintenance_commands, "find_spec", lambda _: None)
    done = run("handover", table, "--to", "polars")
    assert done.exit_code == 0
    assert "Not proved: polars is not installed here. To check: polars.read_delta(" in done.stderr


def test_a_stream_that_finds_nothing_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Stream:
        def wait(self, _: float) -> bool:
            return True

    def start(*_: Any, on_interval: Any, **__: Any) -> Stream:
        for result in results:
            on_interval(result)
        return Stream()

    seen: list[Any] = []
    monkeypatch.setattr(ingest_commands.output, "spark_session", lambda *_: SimpleNamespace(sparkContext=object()))
    monkeypatch.setattr(stream, "ingest_stream", start)
    for results in ([], ["loaded"]):
        ingest_commands.follow_source(["in"], "t", "cp", seen.append, {})
        assert ("nothing to load" in capsys.readouterr().err) is not bool(results)
    assert seen == ["loaded"]
