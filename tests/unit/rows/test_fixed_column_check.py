"""Which values violate fixed columns, and with which reason."""

from __future__ import annotations

import pytest

from widen.evolution.policy import EpochUnit, FixedColumn, Policy, Samples, build_field_rules
from widen.json.document import parse_document
from widen.json.kinds import Kind
from widen.json.observation import RecordObservation
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.rows.row import build_routes, find_violations, fixed_column_route

TABLE = parse_type(
    "struct<id: int, p: string, s: struct<x: int, y: int>, l: array<struct<z: int>>, m: map<string,int>>"
)
assert isinstance(TABLE, StructType)
GUARDS = {
    ("id",): FixedColumn("id", "NOT NULL", is_required=True),
    ("p",): FixedColumn("p", "a partition column"),
    ("s", "x"): FixedColumn("x", "referenced by the constraint positive", can_widen=False),
    ("l", "element", "z"): FixedColumn("z", "NOT NULL", is_required=True),
    ("m",): FixedColumn("m", "a partition column"),
}
POLICY = Policy(fixed_columns=GUARDS)
ROUTE = fixed_column_route(build_routes(TABLE, POLICY))


def reasons(text: str) -> list[str]:
    record = build_field_rules(TABLE, POLICY).record(parse_document(text.encode()))
    return [violation.reason(Samples.RAW) for violation in find_violations(ROUTE, record)]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ('{"id":1,"p":"x","s":{"x":1,"y":"z"},"l":[{"z":1}],"m":{"k":1}}', []),
        ('{"id":1,"p":7,"s":null,"l":[],"other":[]}', []),
        ('{"id":true}', ["id: true is not of type int, and column id is NOT NULL"]),
        ("{}", ["id is null, and column id is NOT NULL"]),
        ('{"id":null}', ["id is null, and column id is NOT NULL"]),
        ('{"id":[]}', ["id: [] is not of type int, and column id is NOT NULL"]),
        ('{"id":"1"}', ['id: "1" is not of type int, and column id is NOT NULL']),
        ('{"id":1.5}', ["id: 1.5 is not of type int, and column id is NOT NULL"]),
        ('{"id":1,"p":["x"]}', ['p: ["x"] is not of type string, and column p is a partition column']),
        ('{"id":1,"p":[]}', []),
        (
            '{"id":1,"s":{"x":"1"}}',
            ['s.x: "1" is not of type int, and column x is referenced by the constraint positive'],
        ),
        ('{"id":1,"s":"text"}', []),
        ('{"id":1,"l":[{"z":1},{"z":null}]}', ["l.z is null, and column z is NOT NULL"]),
        ('{"id":1,"l":{"z":"x"}}', ['l.z: "x" is not of type int, and column z is NOT NULL']),
        ('{"id":1,"m":{"k":"x"}}', ['m: {"k":"x"} is not of type map<string,int>, and column m is a partition column']),
        ('{"id":"' + "x" * 100 + '"}', ['id: "' + "x" * 79 + "… is not of type int, and column id is NOT NULL"]),
    ],
)
def test_violations_have_reasons(record: str, expected: list[str]) -> None:
    assert reasons(record) == expected


def test_other_columns_are_not_checked() -> None:
    assert fixed_column_route(build_routes(TABLE)) == {}


def test_violations_are_observed_at_their_fields() -> None:
    quarantined_records: RecordObservation = {}
    record = parse_document(b'{"id":[],"p":["x"],"l":[{"z":"y"}]}')
    for violation in find_violations(ROUTE, record):
        violation.observe(quarantined_records, ("f", 3))
    assert set(quarantined_records["id"].kinds) == {Kind("null")}
    assert set(quarantined_records["p"].kinds) == {Kind("string", 1)}
    assert set(quarantined_records["l"].records[1]["z"].kinds) == {Kind("string")}
    assert quarantined_records["p"].kinds[Kind("string", 1)].first == ("f", 3)


@pytest.mark.parametrize(("unit", "count"), [(None, 1), (EpochUnit.SECONDS, 0)])
def test_a_fixed_timestamp_takes_a_number_only_in_a_known_unit(unit: EpochUnit | None, count: int) -> None:
    """The number itself has no other place there, and without the unit a timestamp does not convert back (D5)."""
    table = parse_type("struct<t: timestamp>")
    assert isinstance(table, StructType)
    units = {} if unit is None else {("t",): unit}
    policy = Policy(fixed_columns={("t",): FixedColumn("t", "a partition column")}, epoch_units=units)
    route = fixed_column_route(build_routes(table, policy))
    assert len(list(find_violations(route, parse_document(b'{"t":1700000000}')))) == count


def test_reasons_mask_values_unless_asked_otherwise() -> None:
    (violation,) = find_violations(ROUTE, parse_document(b'{"id":"Ann 7"}'))
    told = "is not of type int, and column id is NOT NULL"
    assert str(violation) == f'id: "Xxx 9" {told}'
    assert violation.reason(Samples.NONE) == f"id: the value {told}"
