"""What tasks count in the rows that they write to Iceberg tables."""

from __future__ import annotations

import pyarrow as pa

from widen.iceberg.file_metrics import leaf_ids, metrics_modes
from widen.iceberg.schema_conversion import from_model, to_model
from widen.model.types import DOUBLE, FLOAT, LONG, ArrayType, Field, StructType
from widen.spark.write.iceberg_table_writer import nan_counter


def test_nan_is_counted_outside_of_lists() -> None:
    inner = StructType((Field("x", FLOAT),))
    columns = (
        Field("d", DOUBLE),
        Field("n", LONG),
        Field("s", inner),
        Field("l", ArrayType(DOUBLE)),
        Field("e", DOUBLE),
    )
    schema = to_model(from_model(StructType(columns)))
    ids = {".".join(path): number for path, number, _ in leaf_ids(schema)}
    nan = float("nan")
    rows = pa.table(
        {
            "d": [1.5, nan, None, nan],
            "n": [1, 2, 3, 4],
            "s": pa.array([{"x": nan}, None, {"x": None}, {"x": 2.0}], pa.struct([("x", pa.float32())])),
            "l": [[nan], None, [], [1.0]],
            "e": pa.array([None] * 4, pa.float64()),
        }
    )
    assert nan_counter(schema, metrics_modes(schema, {}))(rows) == {ids["d"]: 2, ids["s.x"]: 1, ids["e"]: 0}
    without = metrics_modes(schema, {"write.metadata.metrics.column.d": "none"})
    assert nan_counter(schema, without)(rows) == {ids["s.x"]: 1, ids["e"]: 0}
