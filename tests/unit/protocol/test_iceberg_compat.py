"""Iceberg compatibility: the rules of a table, the ids of elements, keys and values, and who guards changes of type."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from support.state import MAPPED, after, state
from widen.errors import IcebergIncompatible, InvalidOption
from widen.model.column_path import fields
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.protocol.iceberg_compat import ensure_same_partitions, type_change_compat
from widen.protocol.type_widening import TypeChange, record_type_change
from widen.schema.alter import with_schema
from widen.schema.table_definition import plan_add_feature, plan_set_properties, plan_unset_properties
from widen.schema.table_state import MetadataChange, TableState

V1, V2 = {"delta.enableIcebergCompatV1": "true"}, {"delta.enableIcebergCompatV2": "true"}
UNIFORM = {"delta.universalFormat.enabledFormats": "iceberg"}
ASKED: dict[str, Callable[[TableState], MetadataChange | None]] = {
    "V1": lambda table: plan_set_properties(table, V1),
    "V2": lambda table: plan_set_properties(table, V2),
    "UniForm": lambda table: plan_set_properties(table, UNIFORM),
    "V1 by name": lambda table: plan_set_properties(table, {"delta.feature.icebergCompatV1": "supported"}),
    "V2 by name": lambda table: plan_add_feature(table, "icebergCompatV2"),
}
"""All ways in which a table comes to be guarded."""


def ids(table: TableState) -> dict[str, object]:
    """The ids of every field by its path: its own, then those of what is in it."""
    return {
        ".".join(path): (f.metadata["delta.columnMapping.id"], f.metadata.get("delta.columnMapping.nested.ids"))
        for path, f in fields(table.schema)
    }


# ---- creation and enabling -------------------------------------------------------------------------


@pytest.mark.parametrize(("switch", "feature"), [(V1, "icebergCompatV1"), (V2, "icebergCompatV2")])
def test_a_new_table_maps_its_columns_by_name(switch: dict[str, str], feature: str) -> None:
    table = state("a int", switch)
    assert table.properties == {**switch, **MAPPED, "delta.columnMapping.maxColumnId": "1"}
    assert set(table.protocol.writer_features or ()) == {"appendOnly", "invariants", "columnMapping", feature}
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (2, 7)
    by_id = state("a int", {**switch, "delta.columnMapping.mode": "id"})
    assert by_id.properties["delta.columnMapping.mode"] == "id"


REFUSALS = [
    ("a int", {**V1, **V2}, "VERSION_MUTUAL_EXCLUSIVE", "delta.enableIcebergCompatV1 and delta.enableIcebergCompatV2"),
    ("a int", {**V2, "delta.columnMapping.mode": "none"}, "WRONG_REQUIRED_TABLE_PROPERTY", "mode is none"),
    ("a int", {**V1, "delta.feature.deletionVectors": "supported"}, "DELETION_VECTORS_SHOULD_BE_DISABLED", "supports"),
    ("a int", {**V2, "delta.enableDeletionVectors": "true"}, "DELETION_VECTORS_SHOULD_BE_DISABLED", "is true"),
    ("a int, l array<int>", V1, "UNSUPPORTED_DATA_TYPE", "column l is array<int>"),
    ("a int, s struct<m: map<int, int>>", V1, "UNSUPPORTED_DATA_TYPE", r"column s\.m is map<int,int>"),
    ("a int, v void", V1, "UNSUPPORTED_DATA_TYPE", "column v is void"),
    ("a int, v void", V2, "UNSUPPORTED_DATA_TYPE", "column v is void"),
    ("a int, l array<void>", V2, "UNSUPPORTED_DATA_TYPE", r"column l\.element is void"),
]


@pytest.mark.parametrize(("columns", "properties", "kind", "told"), REFUSALS)
def test_what_iceberg_cannot_read_is_refused(columns: str, properties: dict[str, str], kind: str, told: str) -> None:
    with pytest.raises(IcebergIncompatible, match=told) as caught:
        state(columns, properties)
    assert (caught.value.fields["kind"], caught.value.code) == (kind, "DELTA_ICEBERG_COMPAT_VIOLATION")
    switch = {key: value for key, value in properties.items() if "enableIcebergCompat" in key}
    others = {key: value for key, value in properties.items() if key not in switch}
    with pytest.raises(IcebergIncompatible, match=told):
        plan_set_properties(state(columns, {**MAPPED, **others}), switch)


def test_everything_that_v2_allows_is_allowed() -> None:
    leaves = "a tinyint, b smallint, c int, d bigint, e float, f double, g decimal(9,2), h string, i binary, j boolean"
    times = "k timestamp, l timestamp_ntz, m date"
    nested = "n array<struct<x: map<string, array<int>>>>"
    assert len(state(f"{leaves}, {times}, {nested}", V2).schema) == 14
    assert len(state(f"{leaves}, {times}, s struct<x: int>", V1).schema) == 14
    tolerated = state("a int", {**V2, "delta.feature.deletionVectors": "supported"})
    assert "deletionVectors" in (tolerated.protocol.writer_features or ())


def test_enabling_later_needs_mapped_columns_in_the_same_call_or_before() -> None:
    plain = state("a int, l array<int>", {})
    with pytest.raises(IcebergIncompatible, match=r"set_properties\(\{'delta\.columnMapping\.mode': 'name', …\}\)"):
        plan_set_properties(plain, V2)
    together = after(plain, plan_set_properties(plain, {**V2, **MAPPED}))
    assert ids(together) == {"a": (1, None), "l": (2, {"l.element": 3})}
    assert together.properties["delta.columnMapping.maxColumnId"] == "3"
    off = after(together, plan_set_properties(together, {"delta.enableIcebergCompatV2": "false"}))
    assert "icebergCompatV2" in (off.protocol.writer_features or ())
    assert plan_unset_properties(off, ["delta.enableicebergcompatV2"]) is not None
    with pytest.raises(InvalidOption, match="true or false"):
        plan_set_properties(plain, {"delta.enableIcebergCompatV2": "yes"})


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(
    ("old", "new", "is_known"),
    [
        ("int", "bigint", True),
        ("float", "double", True),
        ("decimal(9,2)", "decimal(12,2)", True),
        ("int", "double", False),
        ("date", "timestamp_ntz", False),
        ("decimal(9,2)", "decimal(12,3)", False),
        ("bigint", "decimal(20,0)", False),
    ],
)
def test_a_history_that_iceberg_does_not_know_keeps_the_compatibility_away(
    ask: Callable[[TableState], MetadataChange | None], old: str, new: str, is_known: bool
) -> None:
    before = state(f"a {new}", {**MAPPED, "delta.enableTypeWidening": "true"})
    (field,) = before.schema.fields
    widened = before.with_schema(
        StructType((record_type_change(field, TypeChange((), parse_type(old), parse_type(new))),))
    )
    if is_known:
        assert ask(widened) is not None
        return
    with pytest.raises(IcebergIncompatible) as caught:
        ask(widened)
    told = f"column a was changed from {parse_type(old).sql} to {parse_type(new).sql}"
    assert (caught.value.fields["kind"], caught.value.fields["reason"]) == ("UNSUPPORTED_TYPE_WIDENING", told)


# ---- ids -------------------------------------------------------------------------------------------


def test_elements_keys_and_values_have_ids_of_their_own() -> None:
    """The example of the protocol."""
    columns = "col1 array<array<int>>, col2 map<int, array<int>>, col3 map<int, struct<subcol1: array<int>>>"
    table = state(columns, V2)
    names = {".".join(path): f.metadata["delta.columnMapping.physicalName"] for path, f in fields(table.schema)}
    one, two, three, four = (names[at] for at in ("col1", "col2", "col3", "col3.value.subcol1"))
    assert ids(table) == {
        "col1": (1, {f"{one}.element": 5, f"{one}.element.element": 6}),
        "col2": (2, {f"{two}.key": 7, f"{two}.value": 8, f"{two}.value.element": 9}),
        "col3": (3, {f"{three}.key": 10, f"{three}.value": 11}),
        "col3.value.subcol1": (4, {f"{four}.element": 12}),
    }
    assert table.properties["delta.columnMapping.maxColumnId"] == "12"


def test_ids_are_given_once() -> None:
    table = state("l array<int>", V2)
    grown = with_schema(table, StructType((*table.schema.fields, Field("m", parse_type("map<int,array<int>>")))))
    later = TableState(table.protocol, grown, 1)
    kept, new = ids(later).values()
    assert kept == next(iter(ids(table).values()))
    assert list(new[1].values()) == [4, 5, 6]  # type: ignore[index]
    assert later.properties["delta.columnMapping.maxColumnId"] == "6"
    assert "delta.columnMapping.nested.ids" not in state("l struct<x: int>", MAPPED).metadata.schema_string


# ---- guards ----------------------------------------------------------------------------------------


def test_the_strictest_reading_guards_changes_of_type() -> None:
    plain = state("a int", MAPPED)
    supported = after(plain, plan_add_feature(plain, "icebergCompatV2"))
    for table, expected in [
        (plain, None),
        (supported, 2),
        (state("a int", V1), 1),
        (after(plain, plan_set_properties(plain, UNIFORM)), 2),
        (after(plain, plan_set_properties(plain, {"delta.universalFormat.enabledFormats": "hudi"})), None),
    ]:
        found = type_change_compat(table)
        assert (found.version if found else None) == expected


def test_a_split_table_keeps_the_names_of_its_partition_columns() -> None:
    before = state("a int, p int, q int", V2, ("p",)).metadata
    ensure_same_partitions(before, before)
    for columns, told in [(("q",), "by p and would be partitioned by q"), ((), "would be partitioned by no columns")]:
        with pytest.raises(IcebergIncompatible, match=told):
            ensure_same_partitions(before, msgspec.structs.replace(before, partition_columns=columns))
    unsplit = state("a int, p int", V2).metadata
    ensure_same_partitions(unsplit, msgspec.structs.replace(unsplit, partition_columns=("p",)))
