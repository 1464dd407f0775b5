"""What a scan of the rows says that the log does not."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql import SparkSession

from widen.report.build_report import build_report
from widen.report.row_scan import scan_report
from widen.table import create_table

ROWS = """VALUES
  (1, 'a', timestamp_seconds(0), array(struct(array(5, 7) AS p), struct(NULL AS p)), map('k', 1.5D), X'01'),
  (1, NULL, NULL, array(struct(array(9) AS p)), map(), NULL),
  (3, 'b', timestamp_micros(1), NULL, NULL, NULL)"""


def test_a_scan_looks_inside_arrays_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    schema = "n int, t string, at timestamp, o array<struct<p: array<int>>>, m map<string, double>, b binary"
    table = create_table(str(tmp_path / "t"), schema)
    table.append(spark.sql(f"SELECT * FROM ({ROWS}) AS t(n, t, at, o, m, b)"))
    report = scan_report(spark, table.snapshot, build_report(table.snapshot))
    told = [(".".join(c.path), c.written, c.nulls, c.low, c.high, c.distinct, c.samples) for c in report.columns]
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert told[:2] == [("n", 3, 0, 1, 3, 2, ("1", "3")), ("t", 2, 1, "a", "b", 2, ("a", "b"))]
    assert told[2][:6] == ("at", 2, 1, epoch, epoch.replace(microsecond=1), 2)
    assert told[3:] == [
        ("o.element.p.element", 2, 1, 5, 9, None, ("5", "9")),
        ("m.key", 1, 2, "k", "k", None, ("k",)),
        ("m.value", 1, 2, 1.5, 1.5, None, ("1.5",)),
        ("b", 1, 2, None, None, None, ()),
    ]
    assert (report.rows, report.is_scanned) == (3, True)
    assert report.notes[0].startswith("Rows, nulls, min and max are exact")
