"""What a scan of the rows says that the log does not."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql import SparkSession

import widen
from widen.protocol.parquet_files import LEAF_COUNTS
from widen.report.build_report import FooterUse, build_report, scan_report
from widen.table import Table, create_table

ROWS = """VALUES
  (1, 'a', timestamp_seconds(0), array(struct(array(5, 7) AS p), struct(NULL AS p)), map('k', 1.5D), X'01'),
  (1, NULL, NULL, array(struct(array(9) AS p)), map(), NULL),
  (3, 'b', timestamp_micros(1), NULL, NULL, NULL)"""


def test_a_scan_looks_inside_arrays_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    schema = "n int, t string, at timestamp, o array<struct<p: array<int>>>, m map<string, double>, b binary"
    table = create_table(str(tmp_path / "t"), schema)
    table.append(spark.sql(f"SELECT * FROM ({ROWS}) AS t(n, t, at, o, m, b)"))
    report = scan_report(table.read(spark=spark), table.snapshot.schema, build_report(table.snapshot))
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


def test_commits_count_every_leaf_without_footers(spark: SparkSession, tmp_path: Path) -> None:
    plain = [f"f{number}" for number in range(40)]
    records = [{**dict.fromkeys(plain[: 10 * n], n), "tags": ["x"] * n, "day": "ab"[n % 2]} for n in range(1, 5)]
    (tmp_path / "in.json").write_text("".join(json.dumps(record) + "\n" for record in records))
    path = str(tmp_path / "t")
    widen.ingest(str(tmp_path / "in.json"), into=path, spark=spark)
    split = create_table(str(tmp_path / "split"), Table(path).schema, partition_by=["day"])
    split.append(Table(path).read(spark=spark))
    for table, files in ((Table(path), 1), (split, 2)):
        assert table.snapshot.files()["tags"].null_count == files
        assert len(table.snapshot.history(1)[0][2][LEAF_COUNTS]["values"]) < 100
        columns = {c.path[0]: c for c in build_report(table.snapshot, FooterUse.NONE).columns}
        assert [columns[f"f{number}"].written for number in (0, 15, 25, 39)] == [4, 3, 2, 1]
        assert [columns[f"f{number}"].nulls for number in (0, 15, 25, 39)] == [0, 1, 2, 3]
        assert (columns["tags"].values, columns["tags"].written, columns["day"].written) == (10, None, 4)
        assert columns["f39"].low is None, "the log keeps counts of the data, and bounds of the first columns only"
        assert {c.path[0]: c.low for c in build_report(table.snapshot).columns}["f39"] == 4
    split.delete("f39 = 4")
    left = build_report(split.snapshot, FooterUse.NONE)
    assert {c.path[0]: c.written for c in left.columns}["f0"] == 3
