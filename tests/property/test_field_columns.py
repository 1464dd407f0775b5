"""Records of scalar texts become the same rows as columns and as JSON texts, and what has no column is seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stable_interval import ingest_texts
from widen.batches import field_columns
from widen.batches.field_columns import build_columns
from widen.batches.text_tasks import drain_arrow_batches
from widen.evolution.evolve import evolve
from widen.evolution.policy import FixedColumn, Mode, Numbers, Policy
from widen.files.arrow_types import to_arrow_schema
from widen.json.field_rules import FileFields
from widen.json.observation import observation_from_json
from widen.model.native_kernel import find_kernel
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.rows.row_builder import RowBuilder
from widen.sources.csv_dialect import (
    EXACT_VALUES,
    WRITTEN_VALUES,
    CsvDialect,
    FieldGroup,
    RowScanner,
    learn_style,
    parse_rows,
)

TEXTS = (
    *("", '""', "0", "-0", "7", "-7", "007", "+7", " 7", "7 ", "1e3", "1.5", "1.50", "1.0", ".5", "-0.5", "-0.0", "1."),
    *("2147483647", "2147483648", "-2147483649", "9007199254740992", "9007199254740993", "999999999999999999"),
    *("1000000000000000000", "9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 38, "1" * 39),
    *(
        "9999999999.99999",
        "99999999999.5",
        "0.000001",
        "0.12345",
        "0.123456",
        "12.50",
        "0.10",
        "-0.0",
        "1.5e3",
        "1e400",
        "NaN",
        "Infinity",
        "0x1F",
    ),
    *(
        "true",
        "false",
        "True",
        "TRUE",
        "null",
        "tru",
        "x",
        '"a,b"',
        '"a ""b"""',
        '"two\nlines"',
        "é",
        "漢字",
        "\\",
        "\x01",
    ),
    *("2024-05-01", "2024-05-01T10:00:00Z", "2024-05-01T10:00:00.123456Z", "2024-13-01", "7\u0660", "\u00a07", "1_000"),
)

cells = st.sampled_from(TEXTS)
few_kinds = st.lists(cells, min_size=1, max_size=3).flatmap(st.sampled_from)
rows = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(few_kinds, min_size=width, max_size=width), max_size=12)
)
policies = st.sampled_from(
    [
        *(Policy(mode) for mode in (Mode.WIDEN, Mode.SPLIT, Mode.FREEZE)),
        Policy(date_fields=frozenset([()])),
        Policy(Mode.SPLIT, date_fields=frozenset([("a",)])),
        Policy(masked=frozenset([("a",)])),
        Policy(excluded=frozenset([("b",)])),
        Policy(numbers=Numbers.DECIMAL),
        Policy(numbers=Numbers.DOUBLE),
    ]
)


FILE = "/r=1/f"


patterns = st.sampled_from(["", EXACT_VALUES, WRITTEN_VALUES])


@given(rows, st.integers(0, 6), st.integers(1, 5), policies, patterns, st.booleans(), st.booleans())
def test_columns_and_texts_give_the_same_rows(
    records: list[list[str]], known: int, chunk: int, policy: Policy, detects: str, adapts: bool, has_folder: bool
) -> None:
    names = ("a", "b", "c")[: len(records[0]) if records else 1]
    group = read_rows("".join(",".join(row) + "\n" for row in records).encode(), names, detects)
    if group is None:
        assert not "".join(map("".join, records)).strip()
        return
    texts, fields = group.to_json_texts(), FileFields() if has_folder else None
    base = ingest_texts(None, texts[:known], Policy(Mode.SPLIT)).plan.schema
    schema = ingest_texts(base, texts, policy).plan.schema if adapts else base
    builder, twin = (RowBuilder(schema, policy, base, file_fields=fields) for _ in range(2))
    for start in range(0, group.records, chunk):
        part = group.slice(start, chunk)
        found = [row for batch in add_columns(builder, part, to_arrow_schema(schema), start) for row in batch]
        twin.add(part.to_json_texts(), [(FILE, at) for at in range(start, start + part.records)])
        expected = [row for batch in drain_arrow_batches(twin, to_arrow_schema(schema)) for row in batch.to_pylist()]
        assert sorted(map(repr, found)) == sorted(map(repr, expected)) or not schema.fields
        if adapts:
            builder.adapt()
            twin.adapt()
    assert builder.observation.records == twin.observation.records
    one, other = (evolve(base, observation_from_json(each.observation.to_json()), policy) for each in (builder, twin))
    assert one.schema == other.schema


def add_columns(
    builder: RowBuilder, part: FieldGroup, schema: pa.Schema, before: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of records: those that become columns, then all others."""
    columns = build_columns(builder, part, FILE, schema)
    positions = [(FILE, before + at) for at in columns.exact.to_pylist()]
    builder.add(part.take(columns.exact).to_json_texts(), positions)
    yield columns.rows.to_pylist()
    for batch in drain_arrow_batches(builder, schema):
        yield batch.to_pylist()


def test_values_that_columns_hold_need_no_text() -> None:
    schema = parse_schema("id bigint, price double, paid boolean, code string")
    rows = b'1,2.5,true,x\n-2,3,false,"4,5"\n,,,\n'
    group = read_rows(rows, ("id", "price", "paid", "code"))
    assert group is not None
    columns = build_columns(RowBuilder(schema, base=schema), group, FILE, to_arrow_schema(schema))
    assert columns.exact.to_pylist() == []
    assert [tuple(row.values()) for row in columns.rows.to_pylist()] == [
        (1, 2.5, True, "x"),
        (-2, 3.0, False, "4,5"),
        (None, None, None, None),
    ]


def test_values_that_columns_do_not_hold_need_a_closer_look() -> None:
    schema = parse_schema("id int, price double, paid boolean, code string")
    rows = b"1,2.5,true,x\n2147483648,2.5,true,x\n1,2.50,true,x\n1,2.5,1,x\n1,2.5,true,7\n007,2.5,true,x\n"
    group = read_rows(rows, ("id", "price", "paid", "code"))
    assert group is not None
    columns = build_columns(RowBuilder(schema, base=schema), group, FILE, to_arrow_schema(schema))
    assert columns.exact.to_pylist() == [1, 2, 3, 4, 5]


def test_fixed_columns_need_a_closer_look() -> None:
    schema = parse_schema("id bigint")
    policy = Policy(fixed_columns={("id",): FixedColumn("id", "NOT NULL", is_required=True)})
    group = read_rows(b"1\n\n2\n", ("id",))
    assert group is not None
    columns = build_columns(RowBuilder(schema, policy, schema), group, FILE, to_arrow_schema(schema))
    assert columns.exact.to_pylist() == [0, 1]


tokens = st.text("0123456789" * 2 + "-+.eE", max_size=50)


@pytest.mark.skipif(find_kernel() is None, reason="compares the kernel")
@given(
    st.lists(st.none() | tokens | st.text(max_size=12), min_size=1, max_size=20),
    st.sampled_from(["bigint", "int", "double", "boolean", "string", "decimal(20,2)", "date"]),
    st.sampled_from([EXACT_VALUES, WRITTEN_VALUES]),
    st.booleans(),
)
def test_the_kernel_finds_the_kinds_of_the_patterns(
    texts: list[str | None], column: str, detects: str, has_dates: bool
) -> None:
    policy, schema = Policy(date_fields=frozenset([("a",)] if has_dates else ())), parse_schema(f"a {column}")
    for some in (texts, [*texts, *(text.strip('"') for text in TEXTS)]):
        group = FieldGroup(FILE, 0, ("a",), (pa.array(some, pa.string()),), [], (), detects)
        native = build_columns(RowBuilder(schema, policy, schema), group, FILE, to_arrow_schema(schema))
        with mock.patch.object(field_columns, "find_kernel", return_value=None):
            matched = build_columns(RowBuilder(schema, policy, schema), group, FILE, to_arrow_schema(schema))
        assert native.rows.equals(matched.rows)
        assert native.exact.equals(matched.exact)


def read_rows(rows: bytes, names: tuple[str, ...], detects: str = EXACT_VALUES) -> FieldGroup | None:
    """Return the records of a file without a header; None if it has none."""
    dialect = CsvDialect(detects=detects)
    scanned = RowScanner(dialect, learn_style(rows, len(names), dialect), FILE).scan(rows, is_end=True)
    return next(parse_rows(scanned, names, dialect, FILE), None)


def parse_schema(text: str) -> StructType:
    struct = parse_type(f"struct<{', '.join(':'.join(field.split()) for field in text.split(', '))}>")
    assert isinstance(struct, StructType)
    return struct
