"""Bounds and counts of our files: a client that deletes or skips whole files by them is never wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal as D
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import expressions as ex
from pyiceberg import types as ice
from pyiceberg.expressions import literals
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from widen.files.data_writer import PartSink, to_arrow_with_ids
from widen.files.iceberg_writer import IcebergLayout, describe_metrics, write_task
from widen.iceberg.file_metrics import IcebergFile, metrics_modes, to_data_file
from widen.iceberg.schema_conversion import to_model
from widen.log.log_store import LogStore

UTC, EPOCH = timezone.utc, datetime(1970, 1, 1)
NAN, INF, LAST = float("nan"), float("inf"), "\U0010ffff"
MOMENTS = [datetime(1, 1, 1), EPOCH - timedelta(microseconds=1), EPOCH, datetime(9999, 12, 31, 23, 59, 59, 999999)]

VALUES: dict[Any, list[Any]] = {
    ice.IntegerType(): [-(2**31), -1, 0, 1, 2**31 - 1],
    ice.LongType(): [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1],
    ice.FloatType(): [NAN, -0.0, 0.0, -1.0, INF, -INF, 2.0**-149, 3.4028234663852886e38],
    ice.DoubleType(): [NAN, -0.0, 0.0, -1.0, INF, -INF, 5e-324, 1e308],
    ice.DecimalType(9, 2): [D("-0.01"), D("0.00"), D("-9999999.99"), D("9999999.99"), D("-1.29"), D("1.28")],
    ice.DecimalType(18, 3): [D("-0.001"), D("0.000"), D("-0.129"), D("32.768"), D("-999999999999999.999")],
    ice.DecimalType(38, 6): [D("-0.000001"), D("0.000000"), D(f"-{'9' * 32}.999999"), D(f"{'9' * 32}.999999")],
    ice.StringType(): [
        "",
        "a",
        "a" * 16,
        "a" * 17,
        "b" * 5000,
        LAST * 20,
        f"z{LAST * 20}",
        "\ud7ff" * 17,
        "\x00",
        "é~",
    ],
    ice.BinaryType(): [b"", b"\x00", b"\xff", b"\xff" * 20, b"\x01" + b"\xff" * 30, b"\x7f" * 16, b"\x80" * 5000],
    ice.FixedType(20): [bytes(20), b"\xff" * 20, b"a" * 20],
    ice.UUIDType(): [bytes(16), b"\xff" * 16, bytes(range(16))],
    ice.BooleanType(): [True, False],
    ice.DateType(): [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    ice.TimestampType(): MOMENTS,
    ice.TimestamptzType(): [moment.replace(tzinfo=UTC) for moment in MOMENTS],
}
LITERALS: dict[str, Callable[[Any], Any]] = {
    "FloatType": literals.FloatLiteral,
    "FixedType": literals.FixedLiteral,
    "UUIDType": literals.UUIDLiteral,
    "DateType": lambda value: literals.DateLiteral((value - EPOCH.date()).days),
    "TimestampType": lambda value: literals.TimestampLiteral((value - EPOCH) // timedelta(microseconds=1)),
    "TimestamptzType": lambda value: LITERALS["TimestampType"](value.replace(tzinfo=None)),
}
OPERATORS: dict[Any, Callable[[Any, Any], bool]] = {
    ex.EqualTo: eq,
    ex.NotEqualTo: ne,
    ex.LessThan: lt,
    ex.LessThanOrEqual: le,
    ex.GreaterThan: gt,
    ex.GreaterThanOrEqual: ge,
}
MODES = ("truncate(16)", "truncate(1)", "full", "counts")
IDS = range(1, len(VALUES) + 1)
INNER = [ice.NestedField(100 + number, f"c{number}", kind, False) for number, kind in zip(IDS, VALUES, strict=True)]
SCHEMA = Schema(
    *(ice.NestedField(number, f"c{number}", kind, False) for number, kind in zip(IDS, VALUES, strict=True)),
    ice.NestedField(99, "s", ice.StructType(*INNER), False),
)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_trusts_the_metrics_of_a_file_is_right(tmp_path: Path, mode: str) -> None:
    rng, decided = random.Random(mode), 0
    properties = {"write.metadata.metrics.default": mode}
    metadata = new_table_metadata(
        SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///table", properties
    )
    for _ in range(8):
        rows = [random_row(rng) for _ in range(rng.randint(1, 3))]
        file = write_file(tmp_path, metadata, rows)
        for name, kind, column in columns(rows):
            for condition, matches in conditions(name, kind, column):
                may_match = _InclusiveMetricsEvaluator(metadata.schema(), condition).eval(file)
                assert may_match or True not in matches, (condition, column)
                # PyIceberg does not decide for nested columns that every row matches.
                must_match = "." not in name and _StrictMetricsEvaluator(metadata.schema(), condition).eval(file)
                assert not (must_match and False in matches), (condition, column)
                decided += must_match or not may_match
    assert decided > 500


def random_row(rng: random.Random) -> dict[str, Any]:
    def values() -> dict[str, Any]:
        picked = (rng.choice([None, *some]) for some in VALUES.values())
        return {f"c{number}": value for number, value in zip(IDS, picked, strict=True)}

    return {**values(), "s": rng.choice([None, values(), values()])}


def write_file(folder: Path, metadata: TableMetadata, rows: list[dict[str, Any]]) -> DataFile:
    schema = to_model(metadata.schema())
    modes, arrow = metrics_modes(schema, metadata.properties), to_arrow_with_ids(schema)
    sink = PartSink(LogStore(str(folder)), "job", "zstd", describe_metrics(schema, modes), arrow)
    (written,) = write_task(IcebergLayout(sink), pa.Table.from_pylist(rows, schema=arrow).to_batches())
    (file,) = written.to_pylist()
    return to_data_file(IcebergFile(file["path"], file["size_bytes"], file["stats"]), metadata)


def columns(rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any, list[Any]]]:
    for number, kind in zip(IDS, VALUES, strict=True):
        name = f"c{number}"
        yield name, kind, [row[name] for row in rows]
        yield f"s.{name}", kind, [None if row["s"] is None else row["s"][name] for row in rows]


def conditions(name: str, kind: Any, column: list[Any]) -> Iterator[tuple[Any, list[bool | None]]]:
    """Conditions, and whether each value fulfils them; None where clients may differ: NaN and <> of null."""
    yield ex.IsNull(name), [value is None for value in column]
    yield ex.NotNull(name), [value is not None for value in column]
    if isinstance(kind, (ice.FloatType, ice.DoubleType)):
        yield ex.IsNaN(name), [value is not None and value != value for value in column]
    make = LITERALS.get(type(kind).__name__, literals.literal)
    operators = [ex.EqualTo, ex.NotEqualTo] if isinstance(kind, ice.BooleanType) else [*OPERATORS]
    for constant in VALUES[kind]:
        for operator in operators if constant == constant else ():
            yield operator(name, make(constant)), [_matches(operator, value, constant) for value in column]


def _matches(operator: Any, value: Any, constant: Any) -> bool | None:
    if value is None:
        return None if operator is ex.NotEqualTo else False
    if value != value:
        return False if operator in (ex.EqualTo, ex.LessThan, ex.LessThanOrEqual) else None
    return OPERATORS[operator](value, constant)
