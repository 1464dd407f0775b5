"""Each column of a field has a value exactly where the rules put it: right rows agree, and no changed cell does.

Source: docs/evolution-rules.md#u14, #u16, #d2, #d5, #d18
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from msgspec import Raw
from msgspec.json import encode

from support.proof import encode_records, encode_rows, forms_of_arrow, sum_records, sum_rows
from widen.batches.text_tasks import drain_arrow_batches
from widen.evolution.policy import Mode, Numbers, Policy, build_field_rules
from widen.files.arrow_types import to_arrow_schema
from widen.json.document import parse_document
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.proof.canonical import digest, digest_text
from widen.proof.record_digests import MODULUS
from widen.proof.row_encoder import RecordLayout
from widen.proof.source_reader import SourceReader
from widen.rows.row import build_routes, rescue
from widen.rows.row_builder import RowBuilder
from widen.schema.source_metadata import SOURCE

COLUMNS = [
    ("bigint", "double"),
    ("int", "bigint", "string"),
    ("bigint", "double", "string"),
    ("bigint", "boolean"),
    ("double", "boolean", "string"),
    ("bigint", "decimal(10,2)"),
    ("double", "decimal(10,2)", "string"),
    ("date", "timestamp", "string"),
    ("date", "bigint"),
    ("timestamp", "bigint"),
    ("timestamp", "double", "string"),
    ("timestamp_ntz", "date", "string"),
    ("bigint", "array<bigint>"),
    ("bigint", "array<double>", "array<string>"),
    ("array<bigint>", "array<double>"),
    ("array<boolean>", "array<string>"),
    ("array<date>", "array<timestamp>"),
    ("array<bigint>", "array<array<bigint>>"),
    ("struct<x:bigint>", "array<struct<x:bigint>>"),
    ("struct<x:bigint>", "string"),
    ("array<struct<x:bigint>>", "array<bigint>"),
    ("array<bigint>", "boolean", "string", "array<string>"),
    ("string", "bigint", "decimal(20,0)", "timestamp", "array<string>"),
]
VALUES: list[Any] = [
    *(7, 7.0, 7.5, 0, 0.0, -0.0, 1, 2**40, 2**60 + 1),
    *map(
        Raw,
        (b"7.50", b"0.1000000000000000055", b"1e400", b"7e0", b"-77813031662214672.5", b"1e23", b"4.1625980545244e-05"),
    ),
    *map(Raw, (b"1e20", b"1e+20", b"-1.5e300", b"1E-7", b"0.0000001", b"0.00001", b"-0.00012")),
    *(True, False, "text", "7", "7.0", "true"),
    *("2026-01-02", "2026-01-02T00:00:00Z", "2026-01-02T10:00:00.25Z", "2026-01-02T10:00:00"),
    *([], [7], [7.0], [1.5, 2], [7, "x"], [True, None, "y"], ["2026-01-02", None], [[1], [2, 3]], [[]]),
    *({"x": 1}, {"x": 2.0}, [{"x": 1}, {"x": None}], {}, [{}], [{}, None], [[{}]]),
]
POLICIES = {
    "split": Policy(Mode.SPLIT),
    "widen": Policy(),
    "dates": Policy(Mode.SPLIT, date_fields=frozenset([("a",)])),
    "integral": Policy(Mode.SPLIT, takes_integral=True),
    "rounding": Policy(Mode.SPLIT, numbers=Numbers.DOUBLE),
    "both": Policy(Mode.SPLIT, numbers=Numbers.DOUBLE, takes_integral=True),
}


def schema_of(types: tuple[str, ...]) -> StructType:
    names = ["a", *(f"a_{number}" for number in range(1, len(types)))]
    columns = (Field(name, parse_type(each)) for name, each in zip(names, types, strict=True))
    named = (each if each.name == "a" else each.with_metadata(**{SOURCE: ["a"]}) for each in columns)
    return StructType((Field("n", parse_type("bigint")), *named))


def rows_of(schema: StructType, policy: Policy, text: bytes) -> pa.RecordBatch:
    maker = RowBuilder(schema, policy, schema)
    maker.add([text], [("f", 1)])
    [batch] = drain_arrow_batches(maker, to_arrow_schema(schema))
    return batch


def changed(schema: StructType, row: dict[str, Any], cells: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows with another value in one column: nothing, or what another record has there."""
    for name in schema.names[1:]:
        for other in (None, *cells[name]):
            if repr(other) != repr(row[name]):
                yield {**row, name: other}


def digests_of(schema: StructType, policy: Policy, batch: pa.RecordBatch) -> list[bytes]:
    """Return the digests of rows, which the exact reader, the encoder and the native reader must agree about."""
    found = list(map(digest, forms_of_arrow(schema, policy, batch)))
    encoded = encode_rows(schema, policy, batch, RecordLayout())
    assert [digest_text(text) for text, _, _ in encoded] == found
    assert sum_rows(schema, policy, [batch]) == total_of(found)
    return found


def total_of(digests: list[bytes]) -> tuple[int, int]:
    return sum(int.from_bytes(each, "big") for each in digests) % MODULUS, len(digests)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("types", COLUMNS, ids=", ".join)
def test_a_value_is_where_the_rules_put_it_and_nowhere_else(name: str, types: tuple[str, ...]) -> None:
    schema, policy = schema_of(types), POLICIES[name]
    arrow, reader = to_arrow_schema(schema), SourceReader(schema, policy)
    texts = [encode({"n": 1, "a": value}) for value in VALUES]
    rows = [rows_of(schema, policy, text).to_pylist()[0] for text in texts]
    wanted = [digest(each.form) for text in texts for each in reader.read(text)]
    encoded = encode_records(schema, policy, texts, RecordLayout())
    assert [digest_text(text) for text, _, _ in encoded] == wanted
    assert sum_records(schema, policy, texts) == total_of(wanted)
    found = digests_of(schema, policy, pa.RecordBatch.from_pylist(rows, schema=arrow))
    # Without a rescue column, a table never has a record with a value that no column holds.
    kept = [at for at, text in enumerate(texts) if found[at] == wanted[at]]
    lost = [texts[at] for at in range(len(texts)) if at not in kept and fits(schema, policy, texts[at])]
    assert kept
    assert not lost
    cells = {each: [rows[at][each] for at in kept if rows[at][each] is not None] for each in schema.names}
    for at in kept:
        others = list(changed(schema, rows[at], cells))
        digests = digests_of(schema, policy, pa.RecordBatch.from_pylist(others, schema=arrow))
        unnoticed = [row for row, each in zip(others, digests, strict=True) if each == wanted[at]]
        assert not unnoticed, (texts[at], rows[at], unnoticed)


def fits(schema: StructType, policy: Policy, text: bytes) -> bool:
    """Return whether columns hold all of a record."""
    route, record = build_routes(schema, policy), parse_document(text)
    ruled = build_field_rules(schema, policy).record(record)
    return rescue(route, ruled) is None
