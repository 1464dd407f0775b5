"""The two sides of the proof without Spark: what texts say, and what rows say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.proof.record_digest import Form, digest
from widen.proof.row_reader import RowReader
from widen.proof.source_reader import ExpectedRow
from widen.spark.arrow_types import to_arrow_schema


def to_comparable(rows: Iterable[ExpectedRow]) -> list[tuple[bytes, int, int]]:
    """Return what records say, so that equal ones are equal."""
    return [(digest(each.form), each.values, each.converted) for each in rows]


def forms_of(schema: StructType, policy: Policy, rows: list[dict[str, Any]]) -> list[Form]:
    """Return the forms of rows, which go through Arrow."""
    batch = pa.RecordBatch.from_pylist(rows, schema=to_arrow_schema(schema))
    return forms_of_arrow(schema, policy, batch)


def forms_of_arrow(schema: StructType, policy: Policy, batch: pa.RecordBatch) -> list[Form]:
    """Return the forms of the rows of a record batch."""
    columns = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    return RowReader(schema, policy).forms(columns)
