"""After an interval every record is in the table, by the proof and by an independent check."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.drift import batches
from support.field_rule_policies import modes, policies
from support.leaf import lost
from support.proof import encode_records, encode_rows, forms_of, layouts_of, to_comparable
from support.stable_interval import ingest_texts, named_records
from widen.evolution.policy import Mode, Numbers, Policy, build_field_rules
from widen.files.arrow_types import to_arrow_schema
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.proof.canonical import digest
from widen.proof.source_reader import SourceReader

bounds = st.sampled_from(
    [Policy(Mode.WIDEN), Policy(Mode.SPLIT), Policy(Mode.FREEZE), Policy(Mode.WIDEN, max_columns=3)]
)


@example(
    [[b'{"a":{"b":0}}', b'{"a":[{"b":{"a":0}}],"a_string":0}']],
    Mode.WIDEN,
    [b'{"a":{"b":{"a":0,"b":0}}}'],
    Policy(Mode.FREEZE),
)
@given(st.lists(batches, max_size=2), st.sampled_from([Mode.WIDEN, Mode.SPLIT]), batches, bounds)
def test_every_record_is_in_its_row(history: list[list[bytes]], mode: Mode, batch: list[bytes], policy: Policy) -> None:
    base: StructType | None = None
    for earlier in history:
        base = ingest_texts(base, earlier, Policy(mode)).plan.schema
    done = ingest_texts(base, batch, policy)
    for text, rows in zip(batch, done.rows, strict=True):
        for record, row in zip(named_records(done.plan.schema, text) or (), rows, strict=False):
            assert lost(done.plan.schema, row, record) == []
    check(done.plan.schema, policy, batch, done.rows)


@given(batches, batches, st.data())
def test_every_record_is_in_its_row_under_every_policy(
    history: list[bytes], batch: list[bytes], data: st.DataObject
) -> None:
    mode = data.draw(modes)
    base = ingest_texts(None, history, data.draw(policies(mode))).plan.schema
    policy = data.draw(policies(mode))
    done = ingest_texts(base, batch, policy)
    reading = build_field_rules(done.plan.schema, policy)
    for text, rows in zip(batch, done.rows, strict=True):
        for record, row in zip(named_records(done.plan.schema, text) or (), rows, strict=False):
            assert lost(done.plan.schema, row, reading.record(record)) == []
    check(done.plan.schema, policy, batch, done.rows)


@given(batches, batches, modes)
@example([b'{"a":{"b":0.0}}'], [b'{"a":[{"a":0}],"a_string":0}', b'{"a":{"b":9007199254740993}}'], Mode.WIDEN)
@example([b'{"a":{"b":0.0}}'], [b'{"a":[{"a":0}]}', b'{"a":{"b":{"c":9007199254740993}}}'], Mode.WIDEN)
@example([b'{"a":{"b":[0.5]}}'], [b'{"a":[{"a":0}]}', b'{"a":{"b":[9007199254740993]}}'], Mode.WIDEN)
@example([b'{"a":[{"b":0.5}]}', b'{"a":{"b":1}}'], [b'{"a":{"b":9007199254740993}}'], Mode.WIDEN)
@example([b'{"a":[{"b":0.5}]}', b'{"a":{"b":"x"}}'], [b'{"a":{"b":0.12345678901234567891}}'], Mode.WIDEN)
@example([b'{"a":{"b":{"c":0.5}}}'], [b'{"a":[{"a":0}]}', b'{"a":{"b":{"c":9007199254740993}}}'], Mode.WIDEN)
@example([b'{"a":{"b":0}}', b'{"a":{"b":[-0.0]}}'], [b'{"a":{"b":[9007199254740993.0]}}'], Mode.WIDEN)
def test_rounded_numbers_are_in_their_rows_and_only_where_the_plan_says(
    history: list[bytes], batch: list[bytes], mode: Mode
) -> None:
    policy = Policy(mode, numbers=Numbers.DOUBLE)
    base = ingest_texts(None, history, policy).plan.schema
    done = ingest_texts(base, batch, policy)
    for text, rows in zip(batch, done.rows, strict=True):
        for record, row in zip(named_records(done.plan.schema, text) or (), rows, strict=False):
            assert lost(done.plan.schema, row, record) == [] or done.plan.rounded
    check(done.plan.schema, policy, batch, done.rows)


def test_numbers_are_rounded_in_all_columns_of_doubles_and_kept_in_strings() -> None:
    policy, base = Policy(Mode.WIDEN, numbers=Numbers.DOUBLE), None
    days = [[b'{"x":2.5}'], [b'{"x":[1.5,0.30000000000000000001]}', b'{"x":1e400}']]
    for day in days:
        base = ingest_texts(base, day, policy).plan.schema
    batch = [b'{"x":9007199254740993}', b'{"x":0.12345678901234567891}', b'{"x":[9007199254740993]}', b'{"x":1e-400}']
    done = ingest_texts(base, batch, policy)
    assert [rows[0]["x"] for rows in done.rows] == [9007199254740992.0, 0.12345678901234568, None, None]
    assert [rows[0]["x_string"] for rows in done.rows] == [
        "9007199254740993",
        "0.12345678901234567891",
        None,
        "1e-400",
    ]
    check(done.plan.schema, policy, batch, done.rows)


def test_a_number_in_a_string_is_rounded_in_an_array_of_doubles_beside_it() -> None:
    policy = Policy(Mode.WIDEN, numbers=Numbers.DOUBLE)
    base = ingest_texts(None, [b'{"a":""}'], policy).plan.schema
    batch = [b'{"a":9007199254740993}', b'{"a":[1.5]}']
    done = ingest_texts(base, batch, policy)
    assert done.rows[0][0] == {
        "a": "9007199254740993",
        "a_array_double": [9007199254740992.0],
        "a_array_string": ["9007199254740993"],
    }
    check(done.plan.schema, policy, batch, done.rows)
    wrong = [[{**done.rows[0][0], "a_array_double": [9007199254740994.0]}], done.rows[1]]
    with pytest.raises(AssertionError):
        check(done.plan.schema, policy, batch, wrong)


MAP = Policy(Mode.WIDEN, {("a",): parse_type("map<string,string>")})


@pytest.mark.parametrize(
    ("history", "batch", "policy"),
    [
        ([b'{"a":0}'], [b'{"a":null}', b'{"b":0,"a":0}'], Policy(Mode.WIDEN)),
        ([b'{"a":{"b":[0]}}'], [b'{"a":{"b":[]}}', b'{"a":[{"a":0}]}'], Policy(Mode.WIDEN)),
        ([b'{"a":{"b":""}}', b'{"a":[{"a":0}]}'], [b'{"a":{"b":0}}', b'{"a":{"b":[]}}'], Policy(Mode.FREEZE)),
        ([b'{"a":0}'], [b'{"a":{"b":0}}', b'{"a":{"b":{}}}', b'{"a":{"b":{},"c":[]}}'], MAP),
        ([b'{"a":["x"]}'], [b'{"a":[{}]}', b'{"a":[{},null]}', b'{"a":[{},"y"]}'], Policy(Mode.WIDEN)),
        ([b'{"a":[["x"]]}'], [b'{"a":[[{}]]}', b'{"a":[{}]}', b'{"a":[[],{}]}'], Policy(Mode.WIDEN)),
    ],
)
def test_empty_values_are_expected_as_rows_have_them(history: list[bytes], batch: list[bytes], policy: Policy) -> None:
    base = ingest_texts(None, history, Policy(Mode.WIDEN)).plan.schema
    done = ingest_texts(base, batch, policy)
    check(done.plan.schema, policy, batch, done.rows)


@pytest.mark.parametrize(
    ("pin", "history", "batch"),
    [
        # The pin also reads dates below the field: 19844 is one, and the timestamp beside it is its midnight.
        ("array<date>", [b'{"a":{"b":1}}', b'{"a":{"b":"2024-05-01T00:00:00Z"}}'], [b'{"a":{"b":"2024-05-01"}}']),
        ("array<date>", [b'{"a":1}'], [b'{"a":{"b":"2024-05-01"}}', b'{"a":{"b":"2024-05-01T10:00:00Z"}}']),
        # The array of strings has the digits of a number, which no date has.
        (
            "timestamp",
            [b'{"a":["2024-05-01T00:00:00Z"]}', b'{"a":true}'],
            [b'{"a":{"b":"2024-05-01"}}', b'{"a":1714521600}', b'{"a":"2024-05-01"}'],
        ),
    ],
)
def test_dates_and_timestamps_in_the_columns_of_numbers(pin: str, history: list[bytes], batch: list[bytes]) -> None:
    policy = Policy(Mode.WIDEN, {("a",): parse_type(pin)})
    for earlier in (Policy(Mode.WIDEN), policy):
        done = ingest_texts(ingest_texts(None, history, earlier).plan.schema, batch, policy)
        check(done.plan.schema, policy, batch, done.rows)


FREEZE = Policy(Mode.FREEZE)
DATES = Policy(Mode.FREEZE, date_fields=frozenset({()}))


@pytest.mark.parametrize(
    ("types", "batch", "policy"),
    [
        (("timestamp", "string"), [b'{"a":1700000000}', b'{"a":"-5"}', b'{"a":"x"}'], FREEZE),
        (
            ("float", "bigint", "string"),
            [b'{"a":36028797018963968}', b'{"a":0.5}', b'{"a":-0.0}', b'{"a":1e10}'],
            FREEZE,
        ),
        (("timestamp", "array<bigint>"), [b'{"a":0}', b'{"a":[0]}', b'{"a":[0,1]}'], FREEZE),
        (("array<string>", "timestamp"), [b'{"a":"1970-01-01T00:00:00.001000Z"}', b'{"a":"2026-11-22"}'], DATES),
        (
            ("array<map<string,string>>", "map<string,struct<b: bigint>>"),
            [b'{"a":{"b":0}}', b'{"a":{"b":{"b":0}}}'],
            FREEZE,
        ),
    ],
)
def test_a_value_is_in_each_column_that_can_hold_it(types: tuple[str, ...], batch: list[bytes], policy: Policy) -> None:
    fields = (Field(f"c{n}", parse_type(each), metadata={"widen.source": ["a"]}) for n, each in enumerate(types))
    done = ingest_texts(StructType(tuple(fields)), batch, policy)
    assert [field.type.sql for field in done.plan.schema][: len(types)] == list(types)
    check(done.plan.schema, policy, batch, done.rows)


def check(schema: StructType, policy: Policy, batch: list[bytes], batch_rows: list[list[dict[str, object]]]) -> None:
    """Check that the proof finds each record in its row, and that its fast path agrees with its exact path."""
    reader = SourceReader(schema, policy)
    for text, table_rows in zip(batch, batch_rows, strict=True):
        rows, exact_rows = list(reader.read(text)), list(reader.read_exactly(text))
        assert to_comparable(rows) == to_comparable(exact_rows), text
        assert all(0 <= each.converted <= each.values for each in rows), text
        if schema.fields:
            assert [each[0] for each in to_comparable(rows)] == [
                digest(form) for form in forms_of(schema, policy, table_rows)
            ], text
    if schema.fields:
        check_encoded(schema, policy, batch, [row for rows in batch_rows for row in rows])


def check_encoded(schema: StructType, policy: Policy, batch: list[bytes], table_rows: list[dict[str, object]]) -> None:
    """Check that the encoded rows are those of their records, and that the values are counted as in the records."""
    expected = [row for text in batch for row in SourceReader(schema, policy).read(text)]
    arrow = pa.RecordBatch.from_pylist(table_rows, schema=to_arrow_schema(schema))
    for layout in layouts_of(schema, policy, batch):
        records, rows = encode_records(schema, policy, batch, layout), encode_rows(schema, policy, arrow, layout)
        assert [text for text, _, _ in rows] == [layout.encode(form) for form in forms_of(schema, policy, table_rows)]
        assert [text for text, _, _ in records] == [text for text, _, _ in rows]
        assert [converted for _, _, converted in records] == [each.converted for each in expected]
        for record, row, each in zip(records, rows, expected, strict=True):
            assert record[1] + row[1] == each.values, row
