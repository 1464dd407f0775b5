"""A batch held against a contract: file and line of each breach, counted in full, for texts and for typed files."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from support.command_line import run
from widen import check_contract
from widen.table import create_table


def test_breaches_have_their_places(spark: SparkSession, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id int, total double")
    contract = str(tmp_path / "orders.json")
    Path(contract).write_text(run("contract", table.location).stdout)
    good, bad = tmp_path / "good.jsonl", tmp_path / "bad.jsonl"
    good.write_text('{"id": 1, "total": 2}\n')
    bad.write_text('{"id": 1}\n{"id": "x"}\n[{"id": 1, "new": 2}]\nnonsense\n' + '{"id": "y"}\n' * 200)

    assert check_contract(str(good), table.contract(), spark=spark).breaches == 0
    report = check_contract(str(bad), contract, spark=spark)
    assert (report.records, report.breaches, len(report.listed)) == (204, 203, 100)
    assert [(Path(file).name, line, field) for file, line, field, _ in report.listed[:4]] == [
        ("bad.jsonl", 2, "id"),
        ("bad.jsonl", 3, "new"),
        ("bad.jsonl", 4, "the record"),
        ("bad.jsonl", 5, "id"),
    ]
    counts = {(field, reason): count for field, reason, count in report.counts}
    assert counts["id", "is a string, not an integer or null"] == 201

    spark.sql("SELECT 1L AS id, 'x' AS total UNION ALL SELECT 2L, null").coalesce(1).write.parquet(str(tmp_path / "p"))
    typed = check_contract(str(tmp_path / "p"), contract, spark=spark)
    assert (typed.records, [(field, reason) for field, reason, _ in typed.counts]) == (
        2,
        [("total", "is a string, not a number or null")],
    )

    alone = run("plan", str(good), "--contract", contract)
    assert (alone.exit_code, alone.stdout) == (0, "The contract holds for 1 record.\n")
    broken = run("plan", str(bad), "--into", table.location, "--contract", contract)
    assert broken.exit_code == 3
    assert "bad.jsonl:2: id is a string, not an integer or null" in broken.stdout
    told = json.loads(run("plan", str(bad), "--into", table.location, "--contract", contract, "--json").stdout)
    assert told["contract"]["breaches"] == 203
    assert told["operations"]
    assert run("plan", str(good)).exit_code == 1


def test_records_below_a_path_in_a_dialect_and_in_envelopes(tmp_path: Path) -> None:
    contract = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    rows = [{"id": {"$numberLong": "1"}}, {"id": {"$numberLong": "x"}}, {"id": {"$numberLong": "2"}}]
    (tmp_path / "a.json").write_text(json.dumps({"rows": rows}))
    report = check_contract(tmp_path / "a.json", contract, records="rows[*]", dialect="mongodb", engine="local")
    assert (report.records, report.counts) == (3, [("id", "is an object, not an integer", 1)])
    assert [line for _, line, *_ in report.listed] == [2]
    (tmp_path / "b.json").write_text(
        '{"type":"insert","data":{"id":1}}\n{"type":"delete","data":{"id":"x"}}\n{"type":"odd"}\n{"type":"table-drop"}\n'
    )
    report = check_contract(tmp_path / "b.json", contract, envelope="maxwell", engine="local")
    assert (report.records, sorted(report.counts)) == (
        3,
        [
            ("id", "is a string, not an integer", 1),
            ("the record", "is not a change: operation odd does not change a row", 1),
        ],
    )
