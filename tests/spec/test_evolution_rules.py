"""The rules U and decisions D that a plan decides, each by its number."""

from __future__ import annotations

import msgspec
import pytest

from support.interval import columns, interval, plan_of, run
from widen.evolution.evolve import evolve
from widen.evolution.plan import Grade, PendingField, Plan
from widen.evolution.policy import Mode, Names, Policy
from widen.json.kinds import Kind
from widen.model.schema_json import parse_type
from widen.model.types import LONG, STRING, Field, StructType
from widen.rows.row import build_routes, routes_kind
from widen.schema.operations import AddColumn, CreateTable
from widen.schema.source_metadata import TableFormat

SPLIT = Policy(Mode.SPLIT)


def declared(text: str) -> StructType:
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


def added(plan: Plan) -> list[str]:
    return [operation.field.name for operation in plan.operations if isinstance(operation, AddColumn)]


def column(plan: Plan, name: str) -> Field:
    return next(field for field in plan.schema if field.name == name)


def test_u5_a_declared_column_comes_before_a_detected_one() -> None:
    assert plan_of({"a": "1"}, declared("a: string"), SPLIT).is_empty


def test_u10_an_existing_column_stays_and_goes_on_receiving_what_fits() -> None:
    after = plan_of({"a": "date"}, declared("a: boolean"), SPLIT).schema
    slots = {slot.name: routes_kind(slot, Kind("boolean")) for slot in build_routes(after)["a"]}
    assert slots == {"a": True, "a_date": False, "a_string": True}


@pytest.mark.parametrize(
    ("kind", "reached"),
    [
        (Kind("long"), {"a_long", "a_string", "a"}),
        (Kind("date"), {"a_long", "a_date", "a_string", "a_array_date", "a"}),
        (Kind("string"), {"a_string", "a"}),
        (Kind("date", 1), {"a_array_date", "a"}),
        (Kind("string", 1), {"a"}),
    ],
)
def test_u14_all_five_kinds_reach_the_array_of_strings(kind: Kind, reached: set[str]) -> None:
    schema = plan_of({"a": "long date string date[] string[]"}, None, SPLIT).schema
    assert {slot.name for slot in build_routes(schema)["a"] if routes_kind(slot, kind)} == reached


def test_u14_slots_come_in_the_order_of_their_specificity() -> None:
    schema = plan_of({"a": ["string boolean 7 2.5[] date", (0, {"x": "7"})]}, None, SPLIT).schema
    assert [slot.name for slot in build_routes(schema)["a"]] == [
        "a",
        "a_boolean",
        "a_long",
        "a_date",
        "a_string",
        "a_array_double",
        "a_array_string",
    ]


def test_u12_u13_the_suffixed_column_says_what_it_evolved_from() -> None:
    plan = plan_of({"size": "2.5"}, declared("size: bigint"), SPLIT)
    assert column(plan, "size_double").metadata == {
        "comment": "evolved_from:size",
        "widen.source": ["size"],
        "widen.evolvedFrom": "size",
    }


def test_u13_a_field_that_only_looks_suffixed_has_no_doc() -> None:
    assert column(plan_of({"start_date": "date"}), "start_date").metadata == {"widen.source": ["start_date"]}


def test_u15_is_for_the_first_sight_only() -> None:
    assert run({"a": "long double"}) == [["a:double"]]
    assert run({"a": "boolean"}, {"a": "long double"}) == [["a:boolean"], ["a_long:long", "a_double:double"]]


def test_u16_a_long_is_routed_into_a_timestamp_and_kept_beside_it() -> None:
    schema = plan_of({"started": "long"}, declared("started: timestamp"), SPLIT).schema
    assert columns(schema) == ["started:timestamp", "started_long:long"]
    assert all(routes_kind(slot, Kind("long")) for slot in build_routes(schema)["started"])


def test_u17_a_later_sub_field_goes_to_the_record_of_its_dim_and_to_the_largest() -> None:
    first = {"a": [(0, {"x": "7"}), (1, {"y": "7"}), (2, {"z": "7"})]}
    before = plan_of(first, None, SPLIT).schema
    plan = plan_of({"a": [(0, {"w": "7"})]}, before, SPLIT)
    assert [str(operation) for operation in plan.operations] == [
        "add a.element.element.w bigint",
        "add a_record.w bigint",
    ]


def test_u18_the_suffix_goes_on_the_leaf_inside_its_struct() -> None:
    plan = plan_of({"a": [(0, {"b": "string"})]}, declared("a: struct<b: bigint>"), SPLIT)
    [operation] = plan.operations
    assert isinstance(operation, AddColumn)
    assert (operation.path, operation.field.metadata["comment"]) == (("a", "b_string"), "evolved_from:a.b")


def test_d14_the_doc_names_the_root_path_below_evolved_columns_and_arrays_too() -> None:
    before = plan_of({"a": ["7", (1, {"b": "7"})]}, None, SPLIT).schema
    plan = plan_of({"a": [(1, {"b": "string"})]}, before, SPLIT)
    [operation] = plan.operations
    assert isinstance(operation, AddColumn)
    assert operation.path == ("a", "element", "b_string")
    assert operation.field.metadata["widen.source"] == ["a", "b"]
    assert operation.field.metadata["comment"] == "evolved_from:a.b"


@pytest.mark.parametrize(
    ("before", "values", "expected"),
    [
        ("a: double", "9007199254740993", ["a:double", "a_long:long"]),
        ("a: double", "9007199254740992", ["a:double"]),
        ("a: bigint", "9223372036854775808", ["a:long", "a_decimal:decimal(20,0)"]),
        ("a: double", "0.1000000000000000000001", ["a:double", "a_decimal:decimal(22,22)", "a_string:string"]),
        ("a: decimal(5,2)", "123.45", ["a:decimal(5,2)"]),
        ("a: decimal(5,2)", "0.125", ["a:decimal(5,2)", "a_double:double", "a_decimal:decimal(6,3)"]),
        ("a: decimal(20,0)", "123456789012345678901", ["a:decimal(20,0)", "a_string:string"]),
    ],
)
def test_d2_a_kind_is_covered_only_if_every_value_is_exact(before: str, values: str, expected: list[str]) -> None:
    assert columns(plan_of({"a": values}, declared(before), SPLIT).schema) == expected


def test_d2_a_long_that_no_double_holds_keeps_its_column_at_first_sight() -> None:
    assert run({"a": "9007199254740993 2.5"}) == [["a:double", "a_long:long"]]


def test_d4_a_string_goes_to_strings_only() -> None:
    schema = declared("a: string, b: bigint, c: double, d: boolean, e: date, f: timestamp, g: decimal(10,2)")
    takers = {
        key for key, slots in build_routes(schema).items() if any(routes_kind(slot, Kind("string")) for slot in slots)
    }
    assert takers == {"a"}


def test_d7_what_has_no_kind_waits() -> None:
    plan = plan_of({"a": "null", "b": "empty[]", "c": "{}", "d": [(0, {"e": "null null[]"})], "f": "7"})
    assert columns(plan.schema) == ["f:int"]
    assert plan.pending == (
        PendingField(("a",), 1, 0, 0),
        PendingField(("b",), 0, 1, 0),
        PendingField(("c",), 0, 0, 1),
        PendingField(("d", "e"), 2, 0, 0),
    )


def test_d7_an_empty_array_waits_only_where_no_array_is() -> None:
    assert plan_of({"a": "empty[]"}, declared("a: array<int>")).pending == ()
    assert plan_of({"a": "empty[]"}, declared("a: int")).pending == (PendingField(("a",), 0, 1, 0),)


def test_d7_a_sub_field_of_two_records_waits_once() -> None:
    plan = plan_of({"a": [(0, {"x": "7", "n": "null"}), (1, {"x": "7"})]})
    assert plan.pending == (PendingField(("a", "n"), 1, 0, 0),)


def test_d7_a_batch_of_nulls_makes_no_table() -> None:
    plan = plan_of({"a": "null"})
    assert plan.is_empty
    assert plan.schema == StructType()


def test_d8_a_mixed_array_gets_an_array_for_all_and_one_for_each() -> None:
    assert run({"a": "7[] string[]"}) == [["a:string[]", "a_array_long:long[]"]]


@pytest.mark.parametrize(
    ("fields", "sources"),
    [
        ({"a": "7 string", "a_int": "7"}, {"a": ["a"], "a_int_2": ["a"], "a_int": ["a_int"]}),
        (
            {"userId": "7", "user_id": "7", "UserID": "7"},
            {"userId": ["userId"], "user_id": ["user_id"], "UserID_2": ["UserID"]},
        ),
        ({"a b": "7", "a_b": "7", "": "7"}, {"_": [""], "a_b_2": ["a b"], "a_b": ["a_b"]}),
        ({"a,b": "7", "a;b": "7"}, {"a_b": ["a,b"], "a_b_2": ["a;b"]}),
        (
            {"_rescued": "7", "_corrupt_record": "7"},
            {"_corrupt_record_2": ["_corrupt_record"], "_rescued_2": ["_rescued"]},
        ),
        ({"x y": "7 string"}, {"x_y": ["x y"], "x_y_int": ["x y"]}),
    ],
)
def test_d9_names_that_get_into_each_others_way(fields: dict[str, object], sources: dict[str, list[str]]) -> None:
    schema = plan_of(fields).schema
    assert {field.name: field.metadata.get("widen.source", [field.name]) for field in schema} == sources
    assert {slot.name for slots in build_routes(schema).values() for slot in slots} == set(sources)
    assert {key: {s.name for s in slots} for key, slots in build_routes(schema).items()} == {
        key: {name for name, source in sources.items() if source == [key]} for key in fields
    }


def test_d22_reserved_names_get_another_one_at_the_top_of_a_table() -> None:
    fields: dict[str, object] = {"_change_type": "7", "_COMMIT_version": "7", "_commit_timestamp": "7 string"}
    fields |= {"_metadata": [(0, {"_metadata": "7"})], "_file": "7"}
    plan = plan_of(fields)
    assert {field.name: field.metadata.get("comment") for field in plan.schema} == {
        "_change_type_2": "source_path:_change_type",
        "_commit_timestamp_2": "source_path:_commit_timestamp",
        "_commit_timestamp_int": "evolved_from:_commit_timestamp",
        "_COMMIT_version_2": "source_path:_COMMIT_version",
        "_metadata_2": "source_path:_metadata",
        "_file": None,
    }
    inner = column(plan, "_metadata_2").type
    assert isinstance(inner, StructType)
    assert inner.names == ("_metadata",)
    assert plan_of(fields, plan.schema).is_empty


@pytest.mark.parametrize("table_format", [TableFormat.ICEBERG_V2, TableFormat.DELTA_ICEBERG_COMPAT])
def test_d22_iceberg_reserves_names_of_its_own(table_format: TableFormat) -> None:
    policy = Policy(table_format=table_format)
    assert plan_of({"_file": "7", "_row_id": "7"}, None, policy).schema.names == ("_file_2", "_row_id_2")


def test_d22_a_declared_column_keeps_a_reserved_name() -> None:
    plan = plan_of({"_metadata": "7"}, declared("_metadata: int"))
    assert plan.is_empty


def test_d9_an_evolved_name_that_a_later_field_has_too() -> None:
    before = plan_of({"a": "7"}, None, SPLIT).schema
    before = plan_of({"a": "string"}, before, SPLIT).schema
    plan = plan_of({"a_string": "string"}, before, SPLIT)
    assert added(plan) == ["a_string_2"]
    assert column(plan, "a_string_2").metadata == {"comment": "source_path:a_string", "widen.source": ["a_string"]}
    assert [slot.name for slot in build_routes(plan.schema)["a_string"]] == ["a_string_2"]
    assert plan_of({"a_string": "string", "a": "string"}, plan.schema, SPLIT).is_empty


def test_d9_a_key_that_differs_in_case_from_a_declared_column_is_its_field() -> None:
    plan = plan_of({"UserID": "7", "r": [(0, {"X": "7"})]}, declared("userid: int, R: struct<x: int>"))
    assert plan.is_empty
    assert [(each.name, each.source) for each in plan.matched] == [
        (("R", "X"), ("R", "x")),
        (("UserID",), ("userid",)),
        (("r",), ("R",)),
    ]


def test_d9_a_key_that_differs_in_case_is_another_field_where_the_names_are_exact() -> None:
    plan = plan_of({"UserID": "7"}, declared("userid: int"), Policy(names=Names.EXACT))
    assert added(plan) == ["UserID_2"]
    assert plan.matched == ()


def test_d9_a_record_with_a_name_in_two_cases_has_two_fields() -> None:
    plan = plan_of({"userid": "7", "UserID": "7"}, declared("userid: int"))
    assert added(plan) == ["UserID_2"]
    # From then on each goes to its own column, and a third spelling may mean either.
    assert plan_of({"UserID": "7"}, plan.schema).is_empty
    assert added(plan_of({"USERID": "7"}, plan.schema)) == ["USERID_3"]


def test_d9_names_of_several_records_that_differ_in_case_are_one_field() -> None:
    seen = interval({"ID": "7", "R": [(0, {"X": "7"})]}).merged(interval({"id": "string", "r": [(1, {"x": "7"})]}))
    plan = evolve(None, seen, Policy())
    assert columns(plan.schema) == ["id:string", "id_int:int", "r:record[]{x:int}", "r_record:record{x:int}"]


def test_d10_leaves_past_the_bound_go_to_the_rescue_column() -> None:
    """Records with much in them come last, so that one of them does not push out every field behind it."""
    batch = {"a": "7", "b": [(0, {"x": "7", "y": "7"})], "c": "7"}
    plan = plan_of(batch, None, Policy(max_columns=3))
    assert columns(plan.schema) == ["a:int", "b:record{x:int}", "c:int", "_rescued:string"]
    assert [(r.source, r.reason) for r in plan.rescued] == [(("b", "y"), "max_columns")]
    again = evolve(plan.schema, interval({"d": "7"}), Policy(max_columns=3))
    assert again.is_empty
    assert [r.source for r in again.rescued] == [("d",)]


def test_d10_the_rescue_column_does_not_collide_with_a_column_that_is_no_text() -> None:
    plan = plan_of({"a": "7"}, declared("_rescued: int"), Policy(max_columns=1))
    assert column(plan, "_rescued_2").metadata["widen.role"] == "_rescued"
    assert "_rescued_2" not in {slot.name for slots in build_routes(plan.schema).values() for slot in slots}


def test_d11_lines_that_are_no_record_get_their_column_once() -> None:
    plan = plan_of({"a": "7"}, None, corrupt=2)
    assert columns(plan.schema) == ["a:int", "_corrupt_record:string", "_corrupt_at:string"]
    assert column(plan, "_corrupt_record").nullable
    assert plan_of({"a": "7"}, plan.schema, corrupt=1).is_empty


def test_d15_a_record_beside_a_primitive_has_no_denominator() -> None:
    assert run({"a": "7"}, {"a": [(0, {"x": "7"})]}, {"a": [(1, {"x": "7"})]}) == [
        ["a:long"],
        ["a_record:record{x:long}"],
        ["a_array_record:record[]{x:long}"],
    ]


def test_d1_freeze_adds_the_rescue_column_once_and_nothing_else() -> None:
    before = declared("a: int, r: struct<x: int>")
    fields: dict[str, object] = {"a": "string 7", "b": "7", "r": [(0, {"y": "7"})]}
    plan = plan_of(fields, before, Policy(Mode.FREEZE))
    assert added(plan) == ["_rescued"]
    assert [(r.source, r.kinds, r.reason) for r in plan.rescued] == [
        (("a",), ("string",), "freeze"),
        (("b",), ("long",), "freeze"),
        (("r", "y"), ("long",), "freeze"),
    ]
    assert plan_of(fields, plan.schema, Policy(Mode.FREEZE)).is_empty
    assert plan_of({"a": "7"}, before, Policy(Mode.FREEZE)).is_empty


def test_d1_fail_refuses_every_change() -> None:
    before = declared("a: int")
    plan = plan_of({"a": "2.5", "b": "7"}, before, Policy(Mode.FAIL), corrupt=1)
    assert [str(operation) for operation in plan.refused] == [
        "widen a from int to double",
        "add b int",
        "add _corrupt_record string",
        "add _corrupt_at string",
    ]
    assert plan.operations == ()
    assert plan.schema == before
    assert not plan.is_empty
    assert plan_of({"a": "7"}, before, Policy(Mode.FAIL)).is_empty


def test_d1_a_field_can_be_pinned_to_a_mode() -> None:
    policy = Policy(pins={("r",): Mode.SPLIT, ("r", "x"): Mode.FREEZE, ("b",): Mode.FAIL})
    before = declared("a: int, b: int, r: struct<x: int, y: int>")
    plan = plan_of({"a": "2.5", "b": "2.5", "r": [(0, {"x": "2.5", "y": "2.5"})]}, before, policy)
    assert [str(operation) for operation in plan.operations] == [
        "widen a from int to double",
        "add r.y_double double",
        "add _rescued string",
    ]
    assert [str(operation) for operation in plan.refused] == ["widen b from int to double"]


def test_d1_a_field_can_be_pinned_to_a_type() -> None:
    policy = Policy(pins={("a",): parse_type("decimal(12,2)"), ("r",): parse_type("struct<x: string>")})
    plan = plan_of({"a": "7 2.125", "r": [(0, {"x": "7", "y": "7"})]}, None, policy)
    assert columns(plan.schema) == [
        "a:decimal(12,2)",
        "a_double:double",
        "a_decimal:decimal(13,3)",
        "r:record{x:string, y:int}",
    ]
    assert plan_of({"a": "7 2.125"}, plan.schema, policy).is_empty


def test_d17_an_event_names_its_rule_and_its_first_value() -> None:
    plan = evolve(declared("a: bigint"), interval({"a": "string"}, "day2.json", 17), SPLIT)
    [event] = plan.events
    assert (event.rules, event.source, event.kinds, event.column) == (("U8",), ("a",), ("string",), ("a_string",))
    assert (event.count, event.first, event.sample, event.grade) == (1, ("day2.json", 17), "x", Grade.CONFLICT)


@pytest.mark.parametrize(
    ("before", "values", "rules", "grade"),
    [
        ("", "7", "U4", Grade.ADDITIVE),
        ("a: int", "2.5", "D1", Grade.WIDENING),
        ("a: int", "string", "U8", Grade.CONFLICT),
        ("a: int", "7[]", "U8", Grade.STRUCTURAL),
        ("a: int", [(0, {"x": "7"})], "U8", Grade.STRUCTURAL),
    ],
)
def test_events_are_graded(before: str, values: object, rules: str, grade: Grade) -> None:
    event = plan_of({"a": values}, declared(before)).events[0]
    assert (event.rules, event.grade) == ((rules,), grade)


def test_events_inside_a_new_record_have_their_whole_path() -> None:
    plan = plan_of({"a": [(1, {"b": [(0, {"c": "7 string"})]})]})
    assert [event.column for event in plan.events] == [
        ("a",),
        ("a", "element", "b"),
        ("a", "element", "b", "c"),
        ("a", "element", "b", "c_int"),
    ]


def test_the_first_interval_creates_the_table() -> None:
    plan = plan_of({"a": "7"})
    assert plan.operations == (CreateTable(plan.schema),)


def test_a_plan_is_json_and_its_hash_is_its_content() -> None:
    one, same, other = plan_of({"a": "7"}), plan_of({"a": "7"}), plan_of({"a": "2.5"})
    assert one.hash == same.hash != other.hash
    value = msgspec.json.decode(msgspec.json.encode(one.to_value()))
    assert value["events"][0]["column"] == ["a"]
    assert value["operations"][0]["operation"] == "CreateTable"


def test_role_columns_hold_no_source_field() -> None:
    schema = StructType((Field("a", LONG), Field("_rescued", STRING), Field("_corrupt_record", STRING)))
    assert set(build_routes(schema)) == {"a"}
