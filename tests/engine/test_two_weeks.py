"""The two weeks of the examples: every day arrives, nothing is lost, and the report tells the story."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

from pyspark.sql import SparkSession

import widen

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two-weeks" / "two_weeks.py"
RECORDS = 60


def load_example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_weeks", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_two_weeks_end_in_a_report(spark: SparkSession, tmp_path: Path) -> None:
    example = load_example()
    told = "\n".join(example.run(tmp_path, RECORDS))
    for words in (
        "day  3: 60 orders, 0 corrupt lines; widen total from int to double",
        "add tags_array_string array<string>",
        "widen order_id from int to bigint",
        "leaves exact",
        "the source is repaired: total_string goes back into total",
        "handed over without type widening",
        f"{example.DAYS * RECORDS} rows are read without Spark",
    ):
        assert words in told, told

    table = widen.Table(str(tmp_path / "orders"))
    assert "typeWidening" not in (table.protocol.reader_features or ())
    rows = table.to_arrow()
    landed = (tmp_path / "landing").glob("*/orders.json")
    lines = [line for file in landed for line in file.read_text(encoding="utf-8").splitlines()]
    sent = [json.loads(line) for line in lines if line.endswith("}")]
    assert rows.num_rows == len(lines)
    assert sorted(filter(None, rows.column("order_id").to_pylist())) == sorted(order["order_id"] for order in sent)
    totals = [total for total in rows.column("total").to_pylist() if total is not None]
    assert sum(totals) == sum(float(order["total"]) for order in sent), "the texts of the bad day are numbers again"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in (
        "<h1>orders</h1>",
        "_corrupt_record",
        "FOLD COLUMN",
        "evolved from tags",
        "the source looks repaired",
    ):
        assert words in page
