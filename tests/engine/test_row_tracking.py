"""Row tracking beside type widening: ids and versions of rows as readers of it find them.

Source: the acceptance matrix of Delta Lake's type widening, 7.5
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import widen
from engine.test_rewrite import file, rows_with_ids

ON = {"delta.enableRowTracking": "true"}


def test_type_widening_with_row_tracking(spark: SparkSession, tmp_path: Path) -> None:
    off = {"delta.enableTypeWidening": "true", "delta.enableRowTracking": "false"}
    table = widen.create_table(str(tmp_path), "a tinyint", properties=off).append(file(spark, (1,))).table
    table.set_properties(ON)
    assert table.version == 4  # the feature, the backfill, the property
    assert sorted(rows_with_ids(tmp_path)) == [(1, 0, 3)]
    table.update({"a": "2"}, "a = 1", spark=spark)
    assert sorted(rows_with_ids(tmp_path)) == [(2, 0, 5)]  # the row is the same, and this version changed it
    table.alter_column("a", type="int")
    assert sorted(rows_with_ids(tmp_path)) == [(2, 0, 5)]
    table.append(file(spark, (2147483647,), schema="a int"))
    assert sorted(rows_with_ids(tmp_path)) == [(2, 0, 5), (2147483647, 2, 7)]
    table.rewrite(spark=spark)
    assert sorted(rows_with_ids(tmp_path)) == [(2, 0, 5), (2147483647, 2, 7)]
