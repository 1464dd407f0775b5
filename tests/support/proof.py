"""The two sides of the proof without Spark: what texts say, and what rows say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from widen.evolution.policy import Policy
from widen.files.arrow_types import to_arrow_schema
from widen.model.types import StructType
from widen.proof.canonical import EncodedRecord, Form, digest
from widen.proof.record_digests import RowDigester, SourceDigester
from widen.proof.row_encoder import RecordLayout, RowEncoder, learn_layout
from widen.proof.row_reader import RowReader
from widen.proof.rules import build_proof_rules
from widen.proof.source_reader import ExpectedRow, SourceEncoder


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


def layouts_of(schema: StructType, policy: Policy, texts: Sequence[bytes]) -> list[RecordLayout]:
    """Return the layouts that the proof may use for texts: the plain one, and the one that they show."""
    is_plain = build_proof_rules(schema, policy).is_plain
    return [RecordLayout(), learn_layout(texts)] if is_plain else [RecordLayout()]


def encode_records(
    schema: StructType, policy: Policy, texts: Iterable[bytes], layout: RecordLayout
) -> list[EncodedRecord]:
    """Return texts as the proof encodes them for the sums."""
    encoder = SourceEncoder(schema, policy, layout)
    return [each for text in texts for each in encoder.encode(text)]


def encode_rows(schema: StructType, policy: Policy, batch: pa.RecordBatch, layout: RecordLayout) -> list[EncodedRecord]:
    """Return the rows of a record batch as the proof encodes them for the sums."""
    columns = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
    return list(RowEncoder(schema, policy, layout).encode(columns))


def sum_records(schema: StructType, policy: Policy, texts: Sequence[bytes]) -> tuple[int, int]:
    """Return the sum of the digests of texts and their number, from the native reader if it is there."""
    digester = SourceDigester(schema, policy, RecordLayout())
    digester.add_texts(texts)
    found = digester.sum()
    return found.digest, found.records


def sum_rows(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
    """Return the sum of the digests of rows and their number, like `sum_records`."""
    digester = RowDigester(schema, policy, RecordLayout())
    for batch in batches:
        digester.add(pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))
    found = digester.sum()
    return found.digest, found.records
