"""What is told about corrupt texts: JSON and CSV have lines, other formats records; and the reason, also as JSON."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.command_line import run, run_json

BAD = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", b"\xfe"], pa.binary()).buffers())
SOURCES = {
    "a.parquet": (
        "2 records kept whole, the first: not a Parquet record",
        "2 of 3 records (67 %) of the last load could",
    ),
    "a.json": (
        "2 lines kept whole, the first: not a JSON record",
        "2 of 3 lines (67 %) of the last load are not records",
    ),
}


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("name", SOURCES)
def test_corrupt_texts_have_the_noun_of_their_format(tmp_path: Path, form: str, name: str) -> None:
    source, (kept, share) = tmp_path / name, SOURCES[name]
    (tmp_path / "a.json").write_text('{"id": 1}\nno record\n{\n')
    pq.write_table(pa.table({"id": [1, 2, 3], "v": BAD}), tmp_path / "a.parquet")
    into = ["--into", str(tmp_path / "t")]
    if form == "iceberg":
        into = ["--into", "db.t", "--catalog", str(tmp_path / "c.db")]
    table = [*into[1:]]
    over = run("ingest", str(source), *into, "--max-corrupt", "0", "--engine", "local")
    assert ("2 of 3 lines are not records" in over.stderr) is (name == "a.json")
    assert ("2 of 3 records could not be read" in over.stderr) is (name == "a.parquet")
    done = run("ingest", str(source), *into, "--engine", "local")
    assert kept in " ".join(done.stdout.split())
    reason = kept.partition(": ")[2]
    report = run_json("report", *table)
    (interval,) = report["intervals"]
    assert interval["corruptReason"].startswith(reason)
    (version,) = run_json("history", *table)
    shown = version["corruptReason"] if form == "delta" else version["parameters"]["widen.first-corrupt"]
    assert shown == interval["corruptReason"]
    assert share in str(report["summary"])
    noun = kept.split()[1]
    assert any(
        each["reason"].startswith(f"_corrupt_record has 2 {noun} that ") for each in report["summary"]["decisions"]
    )
    if form == "delta":
        assert kept in " ".join(run("history", *table).stdout.split())


def test_a_load_without_corrupt_texts_has_no_reason(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    run("ingest", str(tmp_path / "a.json"), "--into", str(tmp_path / "t"), "--engine", "local")
    assert "corruptReason" not in run_json("history", str(tmp_path / "t"))[0]
