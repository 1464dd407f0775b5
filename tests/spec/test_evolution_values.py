"""The rules U and decisions D that show in the values: texts of JSON in, rows out, expected answers typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

import pytest

from support.interval import columns, interval
from support.stable_interval import ingest_texts
from widen.evolution.evolve import evolve
from widen.evolution.plan import Grade, Plan
from widen.evolution.policy import EpochUnit, FixedColumn, Mode, Policy, TextForm
from widen.json.observation import Observation, observe_schema
from widen.model.schema_json import parse_type
from widen.model.types import LONG, TIMESTAMP, ArrayType, DataType, Field, StructType
from widen.proof.expected_values import ExpectedRecord
from widen.proof.json_reader import read_records
from widen.schema.source_metadata import TableFormat

SPLIT = Policy(Mode.SPLIT)
DATED = Policy(Mode.SPLIT, date_fields=frozenset([()]))
MAY = date(2024, 5, 1)
NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


def declared(text: str) -> StructType:
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


def run(policy: Policy, *intervals: Sequence[str], table: StructType | None = None) -> tuple[Plan, list[Any]]:
    """Do the same as `take` with the values of a field ``a``, one record each."""
    return take(policy, *([f'{{"a":{value}}}' for value in values] for values in intervals), table=table)


def take(policy: Policy, *intervals: Sequence[str], table: StructType | None = None) -> tuple[Plan, list[Any]]:
    """Return the plan of the last interval, and the rows of all of them without what is null in them."""
    rows: list[Any] = []
    for texts in intervals:
        done = ingest_texts(table, [text.encode() for text in texts], policy)
        table = done.plan.schema
        rows += [{key: each for key, each in row.items() if each is not None} for found in done.rows for row in found]
    return done.plan, rows


# ---- rules -----------------------------------------------------------------------------------------


def test_u1_every_value_is_in_at_least_one_column() -> None:
    _, rows = run(SPLIT, ["1", '"x"', "true", "[1]", '{"b":2}', "2.5", "[[3]]"])
    assert all(rows), "no row is empty"


def test_u2_one_of_them_holds_it_exactly() -> None:
    numbers = ["9007199254740993", "0.1", "1e400", "123456789012345678901234567890123456789"]
    _, rows = run(SPLIT, ["0.5"], numbers)
    assert rows[1:] == [
        {"a_long": 9007199254740993, "a_string": "9007199254740993"},
        {"a": 0.1, "a_string": "0.1"},
        {"a_string": "1e400"},
        {"a_string": "123456789012345678901234567890123456789"},
    ]


def test_u3_drifting_fields_are_listed_from_names_and_docs_alone() -> None:
    plan, _ = run(SPLIT, ["1"], ['"x"'])
    docs = {field.name: field.metadata.get("comment") for field in plan.schema}
    assert docs == {"a": None, "a_string": "evolved_from:a"}


def test_u4_the_plain_name_goes_to_the_widest_type_and_the_largest_dim() -> None:
    assert columns(run(SPLIT, ["[[[1]]]"])[0].schema) == ["a:long[][][]"]
    both = columns(run(SPLIT, ["[[1]]", "2.5"])[0].schema)
    assert both == ["a:double[][]", "a_double:double", "a_array2_long:long[][]"]


def test_u6_in_the_interval_of_first_sight_every_kind_gets_a_column() -> None:
    plan, _ = run(SPLIT, ["true", "7", '"x"'])
    assert columns(plan.schema) == ["a:string", "a_boolean:boolean", "a_long:long"]


def test_u7_a_narrower_kind_later_is_converted() -> None:
    plan, rows = run(SPLIT, ['"x"'], ["4", "1.10", "true"])
    assert plan.is_empty
    assert rows[1:] == [{"a": "4"}, {"a": "1.10"}, {"a": "true"}]


def test_d23_what_lies_deeper_than_41_levels_is_json_text() -> None:
    deep = '{"a":' * 39 + '{"b":{"c":1.10},"d":[[]],"e":1}' + "}" * 39
    plan, rows = take(SPLIT, ['{"a":' + deep + "}"])
    found, inner = plan.schema, rows[0]
    for _ in range(40):
        [field] = found
        assert isinstance(field.type, StructType)
        found, inner = field.type, inner["a"]
    assert columns(found) == ["b:string", "d:string", "e:long"]
    assert inner == {"b": '{"c":1.10}', "d": "[[]]", "e": 1}
    assert take(SPLIT, ['{"a":' + deep + "}"], table=plan.schema)[0].is_empty


@pytest.mark.parametrize("policy", [Policy(), SPLIT])
def test_d23_records_beside_arrays_of_records_do_not_nest_a_table_deeper(policy: Policy) -> None:
    """The column of both has the sub-fields of the record, one level deeper than the record has them."""
    fits, deeper = ('{"a":' * levels + '{"b":1}' + "}" * levels for levels in (39, 40))
    array = '{"a":[{"z":1}]}'
    plan, _ = take(policy, [fits, array])
    assert (max(nesting(field.type) for field in plan.schema), plan.rescued) == (40, ())  # with the table: 41
    for intervals in ([[array, deeper]], [[array], [deeper]]):
        plan, rows = take(policy, *intervals)
        assert max(nesting(field.type) for field in plan.schema) <= 40
        assert [(each.reason, each.kinds) for each in plan.rescued] == [("max_levels", ("long",))]
        assert [row.get("_rescued") for row in rows] == [None, deeper]


def nesting(data_type: DataType) -> int:
    if isinstance(data_type, StructType):
        return 1 + max(nesting(field.type) for field in data_type)
    return 1 + nesting(data_type.element) if isinstance(data_type, ArrayType) else 0


def test_d19_what_no_column_has_a_place_for_is_counted() -> None:
    plan, rows = run(Policy(), ["[1]"], ["[1,[],2]", "[{},1]", "[null]"])
    assert [(each.source, each.nulls, each.empty, each.empty_records) for each in plan.pending] == [(("a",), 0, 1, 1)]
    assert rows[1:] == [{"a": [1, None, 2]}, {"a": [None, 1]}, {"a": [None]}]


def test_d19_empties_and_null_are_told_apart_where_a_column_has_their_place() -> None:
    plan, rows = run(Policy(), ["[1,[],2]", "[[3]]", '[{},null,{"x":1}]'])
    assert columns(plan.schema) == ["a:record[]{x:int}", "a_array_int:int[]", "a_array2_int:int[][]"]
    assert rows == [
        {"a_array_int": [1, None, 2], "a_array2_int": [[1], [], [2]]},
        {"a_array2_int": [[3]]},
        {"a": [{"x": None}, None, {"x": 1}]},
    ]
    assert plan.pending == ()


@pytest.mark.parametrize("base", ["7", "2.5", "9007199254740993", "99999999999999999999"])
def test_d18_true_and_1_stay_apart_in_mode_widen(base: str) -> None:
    first, _ = run(Policy(), [base])
    plan, rows = run(Policy(), [base], ["true", "1", "false", "0"])
    assert columns(plan.schema) == [*columns(first.schema), "a_boolean:boolean"]
    assert rows[1:] == [{"a_boolean": True}, {"a": 1}, {"a_boolean": False}, {"a": 0}]


def test_d18_in_an_array_true_and_1_stay_apart_in_mode_widen() -> None:
    plan, rows = run(Policy(), ["[1,true,null]"], ["true"])
    assert columns(plan.schema) == ["a:int[]", "a_array_boolean:boolean[]"]
    assert rows == [{"a": [1, None, None], "a_array_boolean": [None, True, None]}, {"a_array_boolean": [True]}]


def test_d18_in_mode_split_a_boolean_goes_into_every_wider_column() -> None:
    plan, rows = run(SPLIT, ["7"], ["true", "2.5"])
    assert columns(plan.schema) == ["a:long", "a_double:double"]
    assert rows == [{"a": 7}, {"a": 1, "a_double": 1.0}, {"a_double": 2.5}]


def test_d18_a_pin_to_a_type_keeps_booleans_apart_too() -> None:
    plan, rows = run(Policy(pins={("a",): LONG}), ["7", "true"])
    assert columns(plan.schema) == ["a:long", "a_boolean:boolean"]
    assert rows == [{"a": 7}, {"a_boolean": True}]


def test_u8_a_wider_kind_later_gets_a_column_of_exactly_that_kind() -> None:
    plan, rows = take(SPLIT, ['{"size":4}'], ['{"size":2.3}'])
    assert columns(plan.schema) == ["size:long", "size_double:double"]
    assert rows == [{"size": 4}, {"size_double": 2.3}]


def test_u9_and_then_the_common_denominator_if_there_is_none() -> None:
    plan, rows = run(DATED, ["true"], ['"2024-05-01"', "false"])
    assert columns(plan.schema) == ["a:boolean", "a_date:date", "a_string:string"]
    assert rows[1:] == [{"a_date": MAY, "a_string": "2024-05-01"}, {"a": False, "a_string": "false"}]


def test_u11_records_come_before_arrays_and_those_before_primitives() -> None:
    assert columns(run(SPLIT, ['{"b":1}', '"x"'])[0].schema) == ["a:record{b:long}", "a_string:string"]
    assert columns(run(SPLIT, ["[1]", '"x"'])[0].schema) == ["a:string[]", "a_string:string", "a_array_long:long[]"]


def test_u14_a_value_goes_to_its_own_column_and_to_every_wider_one() -> None:
    _, rows = run(DATED, ["7", '"2024-05-01"', '"x"', '["2024-05-01"]', '["x"]'])
    assert rows == [
        {"a": ["7"], "a_long": 7, "a_string": "7"},
        {
            "a": ["2024-05-01"],
            "a_long": 19844,
            "a_date": MAY,
            "a_string": "2024-05-01",
            "a_array_date": [MAY],
        },
        {"a": ["x"], "a_string": "x"},
        {"a": ["2024-05-01"], "a_array_date": [MAY]},
        {"a": ["x"]},
    ]


# ---- decisions -------------------------------------------------------------------------------------


def test_d3_a_number_becomes_the_text_of_its_token() -> None:
    tokens = ["1.10", "1e3", "1E400", "0.1000000000000000000001", "9" * 50, "1.0000000000000000000"]
    _, rows = run(SPLIT, ['"x"'], tokens)
    assert [row["a"] for row in rows[1:]] == tokens


def test_d5_the_unit_of_an_epoch_is_told_by_its_size_unless_it_was_said() -> None:
    table = declared("a: timestamp")
    _, rows = run(SPLIT, ["1714564800", "1714564800000", "1714564800000000", "1714564800000000000"], table=table)
    assert [row["a"] for row in rows] == [NOON] * 4
    assert rows[0]["a_long"] == 1714564800
    said = Policy(Mode.SPLIT, epoch_units={("a",): EpochUnit.MILLISECONDS})
    _, rows = run(said, ["5000"], table=table)
    assert rows == [{"a": datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc), "a_long": 5000}]


def test_d5_integers_of_a_pinned_timestamp_with_a_unit_are_timestamps_and_nothing_else() -> None:
    policy = Policy(pins={("a",): TIMESTAMP}, epoch_units={("a",): EpochUnit.MILLISECONDS})
    plan, rows = run(policy, ["5000", "null", '"1970-01-01T00:00:05Z"'])
    assert columns(plan.schema) == ["a:timestamp"]
    five = datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc)
    assert rows == [{"a": five}, {}, {"a": five}]
    # 10000-01-01, and numbers that are not integers, are in no timestamp.
    plan, rows = run(policy, ["5000"], ["253402300800000", "5000"])
    assert columns(plan.schema) == ["a:timestamp", "a_long:long"]
    assert rows == [{"a": five}, {"a_long": 253402300800000}, {"a": five, "a_long": 5000}]
    assert columns(run(policy, ["5.5"])[0].schema) == ["a:timestamp", "a_double:double"]
    # Without the pin, or the unit, the integer is kept as well (U16).
    for other in (replace(policy, pins={}), replace(policy, epoch_units={})):
        plan, _ = run(other, ["5000"], table=declared("a: timestamp"))
        assert len(plan.schema.fields) == 2


def test_d5_a_date_is_days_and_an_instant_milliseconds_where_that_is_exact() -> None:
    table = declared("a: bigint")
    plan, rows = run(DATED, ['"2024-05-01"', '"1970-01-01T00:00:00.005Z"'], table=table)
    assert plan.is_empty
    assert rows == [{"a": 19844}, {"a": 5}]
    plan, rows = run(DATED, ['"1970-01-01T00:00:00.0005Z"'], table=table)
    assert columns(plan.schema) == ["a:long", "a_timestamp:timestamp"]
    assert rows == [{"a_timestamp": datetime(1970, 1, 1, 0, 0, 0, 500, timezone.utc)}]


def test_d6_texts_stay_texts_unless_dates_are_looked_for() -> None:
    texts = ['"2024-05-01"', '"2024-05-01T12:00:00Z"']
    assert columns(run(SPLIT, texts)[0].schema) == ["a:string"]
    plan, rows = run(DATED, texts)
    assert columns(plan.schema) == ["a:timestamp", "a_date:date"]
    assert rows == [{"a": datetime(2024, 5, 1, tzinfo=timezone.utc), "a_date": MAY}, {"a": NOON}]


@pytest.mark.parametrize("text", ["2024-05-01T12:00:00", "2024-05-01T12:00:00+02:00", "2024-02-30", "01/05/2024"])
def test_d6_what_would_not_come_back_stays_text(text: str) -> None:
    assert columns(run(DATED, [f'"{text}"'])[0].schema) == ["a:string"]


def test_d6_a_field_that_is_pinned_to_a_date_is_looked_at_alone() -> None:
    policy = Policy(pins={("a",): parse_type("date")})
    plan, _ = take(policy, ['{"a":"2024-05-01","b":"2024-05-01"}'])
    assert columns(plan.schema) == ["a:date", "b:string"]


def test_d7_an_empty_array_is_one_and_nulls_in_arrays_stay() -> None:
    _, rows = run(SPLIT, ["[]", "null", "{}"], ["[1,null]", "[]"])
    assert rows == [{}, {}, {}, {"a": [1, None]}, {"a": []}]


def test_d8_a_mixed_array_keeps_its_places() -> None:
    _, rows = run(SPLIT, ['[1,"x",null,2]'])
    assert rows == [{"a": ["1", "x", None, "2"], "a_array_long": [1, None, None, 2]}]


def test_d9_values_find_their_column_by_its_source_whoever_renames_it() -> None:
    plan, _ = run(SPLIT, ["1"])
    renamed = StructType(tuple(Field("b", field.type, metadata=field.metadata) for field in plan.schema))
    plan, rows = take(SPLIT, ['{"a":2,"b":"x"}'], table=renamed)
    assert columns(plan.schema) == ["b:long", "b_2:string"]
    assert rows == [{"b": 2, "b_2": "x"}]


MAPS = Policy(Mode.SPLIT, pins={("a",): parse_type("map<string,bigint>")})


def test_d10_the_keys_of_a_field_declared_a_map_are_data() -> None:
    plan, rows = run(MAPS, ['{"x":1,"y":null}', "{}"], ['{"z":true}'])
    assert columns(plan.schema) == ["a:map<string,long>"]
    assert rows == [{"a": [("x", 1), ("y", None)]}, {"a": []}, {"a": [("z", 1)]}]


def test_d10_the_rules_apply_at_the_value_of_a_map() -> None:
    plan, rows = run(MAPS, ['{"x":1}'], ['{"x":"t","y":2}', '{"x":[1]}', '{"x":{"b":1}}', '"scalar"'])
    assert columns(plan.schema) == [
        "a:map<string,long>",
        "a_string:string",
        "a_map_record:map<string,struct<b:long>>",
        "a_map_string:map<string,string>",
        "a_map_array_long:map<string,array<long>>",
        "a_map_array_string:map<string,array<string>>",
    ]
    assert {field.metadata.get("comment") for field in plan.schema} == {None, "evolved_from:a"}
    assert rows[1] == {
        "a": [("x", None), ("y", 2)],
        "a_map_string": [("x", "t"), ("y", "2")],
        "a_map_array_long": [("x", None), ("y", [2])],
        "a_map_array_string": [("x", ["t"]), ("y", ["2"])],
    }
    assert rows[3] == {"a_map_record": [("x", {"b": 1})]}
    assert rows[4] == {"a_string": "scalar"}


def test_d10_a_map_is_widened_at_its_value() -> None:
    plan, _ = run(Policy(), ['{"x":2147483648}'], table=declared("a: map<string,int>"))
    assert [str(operation) for operation in plan.operations] == ["widen a.value from int to bigint"]


def test_d10_records_at_the_value_of_a_map_grow_there() -> None:
    plan, rows = run(SPLIT, ['{"k":{"x":1,"y":"t"}}'], table=declared("a: map<string,struct<x: bigint>>"))
    assert [str(operation) for operation in plan.operations] == ["add a.value.y string"]
    assert columns(plan.schema) == ["a:map<string,struct<x:long,y:string>>"]
    assert rows == [{"a": [("k", {"x": 1, "y": "t"})]}]


def test_d10_a_field_that_has_a_column_gets_one_of_maps_beside_it() -> None:
    plan, rows = run(MAPS, ['{"k":1}', '"x"'], table=declared("a: string"))
    assert columns(plan.schema) == ["a:string", "a_map:map<string,long>"]
    assert rows == [{"a_map": [("k", 1)]}, {"a": "x"}]
    [event] = plan.events
    assert (event.kinds, event.grade, event.rules) == (("map<long>",), Grade.STRUCTURAL, ("D1",))


def test_d10_maps_in_arrays_and_in_maps() -> None:
    policy = Policy(Mode.SPLIT, pins={("a",): parse_type("array<map<string,map<string,bigint>>>")})
    plan, rows = run(policy, ['[{"x":{"y":1}}]', '{"x":{"y":2}}'], ['[{"x":{"y":"t"}}]'])
    assert columns(plan.schema) == [
        "a:map<string,map<string,long>>[]",
        "a_array_map_map_string:map<string,map<string,string>>[]",
    ]
    assert rows[:2] == [{"a": [[("x", [("y", 1)])]]}, {"a": [[("x", [("y", 2)])]]}]
    assert rows[2] == {"a_array_map_map_string": [[("x", [("y", "t")])]]}


@pytest.mark.parametrize(
    ("form", "values", "held"),
    [
        (TextForm.TEXT, ['{"b":[1.10]}', '"x"', "7", "true"], ['{"b":[1.10]}', "x", "7", "true"]),
        (TextForm.JSON, ['{"b":[1.10]}', '"x"', "7", "[]"], ['{"b":[1.10]}', '"x"', "7", "[]"]),
    ],
)
def test_d1_a_field_that_is_pinned_to_text_stays_one_column(form: TextForm, values: list[str], held: list[str]) -> None:
    plan, rows = run(Policy(pins={("a",): form}), values)
    assert columns(plan.schema) == ["a:string"]
    assert [row["a"] for row in rows] == held
    again, rows = run(Policy(), ['{"c":1}'], table=plan.schema)
    assert again.is_empty, "the column says for what it was made"
    assert rows == [{"a": '{"c":1}'}]


def test_d11_what_is_no_record_is_kept_whole_with_file_and_position() -> None:
    plan, rows = take(SPLIT, ['{"a":1}', '{"a":1,"a":2}'])
    assert columns(plan.schema) == ["a:long", "_corrupt_record:string", "_corrupt_at:string"]
    why = "not a JSON record: the key 'a' appears twice in one object"
    assert rows == [{"a": 1}, {"_corrupt_record": '{"a":1,"a":2}', "_corrupt_at": f"f:2 ({why})"}]


GUARDED = Policy(
    fixed_columns={
        ("id",): FixedColumn("id", "NOT NULL", is_required=True),
        ("p",): FixedColumn("p", "a partition column"),
        ("amount",): FixedColumn("amount", "referenced by the constraint positive", can_widen=False),
    }
)


def test_d12_columns_that_cannot_yield_are_never_rerouted() -> None:
    table = declared("id: int, p: string, amount: int")
    texts = ['{"id":1,"p":"x"}', '{"id":"x","new":1}', '{"p":"x"}', '{"id":1,"amount":2147483648}']
    texts += ['{"id":1,"p":{"x":1}}']
    plan, rows = take(GUARDED, texts, table=table)
    assert plan.is_empty
    assert rows == [{"id": 1, "p": "x"}]
    told = [(kept.source, kept.column, kept.kinds, kept.count, kept.first) for kept in plan.quarantined]
    assert told == [
        (("amount",), "referenced by the constraint positive", ("long",), 1, ("f", 4)),
        (("id",), "NOT NULL", ("null", "string"), 2, ("f", 2)),
        (("p",), "a partition column", ("record",), 1, ("f", 5)),
    ]


def test_d12_but_they_are_widened_in_place_where_nothing_forbids_it() -> None:
    plan, rows = take(GUARDED, ['{"id":2147483648}'], table=declared("id: int, p: string, amount: int"))
    assert [str(operation) for operation in plan.operations] == ["widen id from int to bigint"]
    assert (rows, plan.quarantined) == ([{"id": 2147483648}], ())


def test_d13_a_rule_covers_every_column_that_evolves_and_every_sample() -> None:
    table = declared("phone: bigint, user: struct<email: string>")
    policy = Policy(masked=frozenset([("phone",)]), excluded=frozenset([("user", "email")]))
    texts = ['{"phone":123,"user":{"email":"a@b"}}', '{"phone":"+49","x":1}']
    texts += ['{"phone":["1"],"user":{"email":{"x":1}}}']
    plan, rows = take(policy, [*texts, '{"phone":"123'], table=table)
    assert columns(plan.schema)[:4] == ["phone:long", "user:record{email:string}", "phone_string:string", "x:int"]
    assert rows[:3] == [
        {"phone_string": "***", "user": {"email": None}},
        {"phone_string": "***", "x": 1},
        {"phone_string": "***", "user": {"email": None}},
    ]
    assert rows[3]["_corrupt_record"] == "*** 13 bytes that may hold phone, user.email"
    assert [event.sample for event in plan.events if event.source == ("phone",)] == ["***"]


def test_d13_what_is_rescued_is_masked_as_well() -> None:
    policy = Policy(Mode.FREEZE, masked=frozenset([("phone",)]), excluded=frozenset([("secret",)]))
    plan, rows = take(policy, ['{"a":1,"phone":"123","secret":7,"b":2}'], table=declared("a: int"))
    assert rows == [{"a": 1, "_rescued": '{"phone":"***","b":2}'}]
    assert [rescued.sample for rescued in plan.rescued] == ["9", "***"]


def test_d13_what_lies_deeper_than_41_levels_is_masked_as_well() -> None:
    text = '{"a":' * 41 + '{"phone":"123","secret":7,"b":[{"phone":5}]}' + "}" * 41
    path = ("a",) * 41
    masked = frozenset([(*path, "phone"), (*path, "b", "phone")])
    policy = Policy(Mode.SPLIT, masked=masked, excluded=frozenset([(*path, "secret")]))
    plan, [row] = take(policy, [text])
    for _ in range(40):
        row = row["a"]
    assert row == {"a": '{"phone":"***","b":[{"phone":"***"}]}'}
    record = read_records(text.encode())
    assert record is not None
    form, _ = ExpectedRecord(plan.schema, policy).expect(record[0])
    for _ in range(40):
        form = form["a"]
    assert form == {"a": '{"phone":"***","b":[{"phone":"***"}]}'}


def test_d16_the_same_rules_apply_to_the_schema_of_a_typed_source() -> None:
    first = Observation(1, root=observe_schema(declared("a: bigint, m: map<string,int>")))
    plan = evolve(None, first, SPLIT)
    later = Observation(1, root=observe_schema(declared("a: struct<b: double>, m: map<string,string>")))
    plan = evolve(plan.schema, later, SPLIT)
    assert columns(plan.schema)[0] == "a:long"
    assert "a_record:record{b:double}" in columns(plan.schema)


def test_d17_the_rules_depend_on_the_boundaries_of_batches() -> None:
    """V3 against V13: the same two values, apart and together."""
    assert columns(run(SPLIT, ["[1]"], ['"x"'])[0].schema) == ["a:long[]", "a_string:string", "a_array_string:string[]"]
    assert columns(run(SPLIT, ["[1]", '"x"'])[0].schema) == ["a:string[]", "a_string:string", "a_array_long:long[]"]


def test_d1_what_a_format_cannot_widen_is_split() -> None:
    policy = Policy(table_format=TableFormat.ICEBERG_V2)
    plan = evolve(declared("a: int"), interval({"a": "2.5"}), policy)
    assert columns(plan.schema) == ["a:int", "a_double:double"]
