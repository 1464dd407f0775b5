"""The first commit of a table, its properties and its features."""

from __future__ import annotations

import dataclasses
import re

import pytest

from support.state import WIDE, after, state
from widen.errors import ColumnAlreadyExists, ColumnNotFound, InvalidOption, TypeChangeRefused
from widen.model.column_path import fields
from widen.model.schema_json import from_json
from widen.protocol.actions import DomainMetadata, Metadata, Protocol, clustering_columns
from widen.protocol.type_widening import all_type_changes
from widen.schema.alter import parse_column_changes, plan_alter
from widen.schema.table_definition import (
    needs_backfill,
    plan_add_feature,
    plan_cluster_by,
    plan_create_table,
    plan_set_properties,
    plan_unset_properties,
    with_tracking_columns,
)
from widen.schema.table_state import MetadataChange, TableState


def alter(before: TableState, path: str, **wanted: str) -> MetadataChange | None:
    return plan_alter(before, parse_column_changes(before.schema, {path: wanted}))  # type: ignore[dict-item]


# ---- creation and properties -----------------------------------------------------------------------


def test_a_plain_table_has_the_plain_protocol() -> None:
    made = state("a int, b string", {"delta.appendOnly": "true", "note": "x"}, ("B",))
    assert made.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert made.metadata.partition_columns == ("b",)
    assert made.properties == {"delta.appendOnly": "true", "note": "x"}


def test_the_schema_and_the_properties_bring_their_features() -> None:
    made = state("a timestamp_ntz", {**WIDE, "delta.feature.deletionVectors": "supported"})
    features = ("appendOnly", "deletionVectors", "invariants", "timestampNtz", "typeWidening")
    assert made.protocol == Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors", "timestampNtz", "typeWidening"),
        writer_features=features,
    )
    assert made.properties == WIDE


def test_enabling_widening_adds_the_feature_in_the_same_commit() -> None:
    before = state("a int")
    change = plan_set_properties(before, WIDE)
    assert change is not None
    assert [type(action) for action in change.actions] == [Metadata, Protocol]
    assert (change.operation, change.parameters) == ("SET TBLPROPERTIES", {"properties": WIDE})
    now = after(before, change)
    assert now.protocol == Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("typeWidening",),
        writer_features=("appendOnly", "invariants", "typeWidening"),
    )
    assert plan_set_properties(now, WIDE) is None
    disabled = after(now, plan_set_properties(now, {"delta.enableTypeWidening": "false"}))
    assert disabled.protocol == now.protocol
    assert after(now, plan_unset_properties(now, ["delta.enableTypeWidening"])).properties == {}
    assert plan_unset_properties(now, ["other"]) is None


def test_the_preview_is_kept_where_it_is() -> None:
    before = state("a int", {"delta.feature.typeWidening-preview": "supported"})
    now = after(before, plan_set_properties(before, WIDE))
    assert now.protocol.reader_features == ("typeWidening-preview",)
    changed = after(now, alter(now, "a", type="bigint"))
    field = from_json(changed.metadata.schema_string).fields[0]
    assert field.metadata["delta.typeChanges"] == [{"fromType": "integer", "toType": "long", "tableVersion": 2}]


def test_features_are_added_once() -> None:
    before = state("a int")
    now = after(before, plan_add_feature(before, "TIMESTAMPNTZ"))
    assert now.protocol.reader_features == ("timestampNtz",)
    assert plan_add_feature(now, "timestampNtz") is None
    with pytest.raises(InvalidOption, match="teleport"):
        plan_add_feature(now, "teleport")


@pytest.mark.parametrize(
    ("columns", "partition_by", "properties"),
    [
        ("a int", ("a",), {}),
        ("a int, b array<int>", ("b",), {}),
        ("a int", (), {"delta.enableTypeWidening": "bla"}),
        ("a int", (), {"delta.columnMapping.mode": "both"}),
        ("a int", (), {"delta.logRetentionDuration": "interval 1 month"}),
        ("a int", (), {"x": 1}),
    ],
)
def test_what_no_table_can_be(columns: str, partition_by: tuple[str, ...], properties: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        state(columns, properties, partition_by)


def test_two_names_that_differ_in_case_only_are_one() -> None:
    with pytest.raises(ColumnAlreadyExists, match=r"FIELD_ALREADY_EXISTS.* A "):
        state("a int, s struct<a: int>, A int")


def test_a_partition_column_must_be_there() -> None:
    with pytest.raises(ColumnNotFound, match="b is not in the schema"):
        state("a int", {}, ("b",))


# ---- enabling type widening ------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["delta.enableTypeWidening", "Delta.enableTypeWidening", "DELTA.ENABLETYPEWIDENING"])
def test_the_key_is_stored_as_delta_spells_it(key: str) -> None:
    made = state("a int", {key: "true"})
    assert (made.properties, made.protocol.reader_features) == (WIDE, ("typeWidening",))
    before = state("a int")
    now = after(before, plan_set_properties(before, {key: "TRUE", "My.Own": "x"}))
    assert now.properties == {"delta.enableTypeWidening": "TRUE", "My.Own": "x"}
    assert now.protocol.reader_features == ("typeWidening",)
    assert after(now, plan_unset_properties(now, [key])).properties == {"My.Own": "x"}


def test_a_key_is_not_given_twice() -> None:
    with pytest.raises(InvalidOption, match=r"Delta\.enabletypewidening"):
        state("a int", {"delta.enableTypeWidening": "true", "Delta.enabletypewidening": "false"})


@pytest.mark.parametrize("value", ["bla", "", "1", "yes", " true"])
def test_a_value_that_is_neither_true_nor_false(value: str) -> None:
    before = state("a int")
    with pytest.raises(InvalidOption, match="Must be true or false"):
        plan_set_properties(before, {"DELTA.enableTypeWidening": value})


def test_enabling_at_creation_then_disabling_keeps_the_support() -> None:
    made = state("a int", WIDE)
    now = after(made, plan_set_properties(made, {"delta.enableTypeWidening": "false"}))
    assert (now.protocol, now.properties) == (made.protocol, {"delta.enableTypeWidening": "false"})


def test_false_never_adds_the_feature() -> None:
    made = state("a int", {"delta.enableTypeWidening": "false"})
    assert made.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert made.properties == {"delta.enableTypeWidening": "false"}


def test_the_feature_without_the_property_widens_nothing() -> None:
    with pytest.raises(TypeChangeRefused, match="not enabled"):
        alter(state("a int", {"delta.feature.typeWidening": "supported"}), "a", type="bigint")
    disabled = {"delta.feature.typeWidening": "supported", "delta.enableTypeWidening": "false"}
    with pytest.raises(TypeChangeRefused, match="not enabled"):
        alter(state("a int", disabled), "a", type="bigint")


LEGACY = {
    (1, 1): set(),
    (1, 2): {"appendOnly", "invariants"},
    (1, 3): {"appendOnly", "invariants", "checkConstraints"},
    (1, 4): {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"},
    (2, 5): {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"},
}


@pytest.mark.parametrize("versions", LEGACY)
def test_enabling_on_an_old_table_lists_all_that_its_numbers_implied(versions: tuple[int, int]) -> None:
    old = Protocol(min_reader_version=versions[0], min_writer_version=versions[1])
    before = TableState(old, state("a int").metadata, 4)
    now = after(before, plan_set_properties(before, WIDE))
    assert (now.protocol.min_reader_version, now.protocol.min_writer_version) == (3, 7)
    assert set(now.protocol.writer_features or ()) == LEGACY[versions] | {"typeWidening"}
    assert set(now.protocol.reader_features or ()) == (LEGACY[versions] & {"columnMapping"}) | {"typeWidening"}


def test_a_table_made_with_the_preview_stays_with_it() -> None:
    made = state("a int", {**WIDE, "delta.feature.typeWidening-preview": "supported"})
    assert made.protocol.reader_features == ("typeWidening-preview",)
    both = after(made, plan_add_feature(made, "typeWidening"))
    assert both.protocol.reader_features == ("typeWidening", "typeWidening-preview")
    changed = after(both, alter(both, "a", type="bigint"))
    assert [c.table_version for _, c in all_type_changes(changed.schema)] == [2]


def test_the_final_feature_says_no_version() -> None:
    made = state("a int", WIDE)
    assert [c.table_version for _, c in all_type_changes(after(made, alter(made, "a", type="bigint")).schema)] == [None]


def test_a_table_made_from_a_schema_of_another_one_begins_anew() -> None:
    old = state("a int, s struct<x: int>", {**WIDE, "delta.columnMapping.mode": "name"})
    old = after(old, alter(old, "s.x", type="bigint"))
    change = plan_create_table(old.schema, (), {"delta.columnMapping.mode": "id"}, 1)
    new = after(old, change)
    assert [(path, dict(field.metadata).keys()) for path, field in fields(new.schema)] == [
        (("a",), {"delta.columnMapping.id", "delta.columnMapping.physicalName"}),
        (("s",), {"delta.columnMapping.id", "delta.columnMapping.physicalName"}),
        (("s", "x"), {"delta.columnMapping.id", "delta.columnMapping.physicalName"}),
    ]
    assert {f.metadata["delta.columnMapping.id"] for _, f in fields(new.schema)} == {1, 2, 3}
    assert new.protocol.reader_features is None


# ---- row tracking ----------------------------------------------------------------------------------

ON, SUSPENDED = "delta.enableRowTracking", "delta.rowTrackingSuspended"
ID = "delta.rowTracking.materializedRowIdColumnName"
VERSION = "delta.rowTracking.materializedRowCommitVersionColumnName"


def test_the_columns_get_names_that_no_other_column_has() -> None:
    first, second = (with_tracking_columns({ON: "true"}) for _ in range(2))
    assert re.fullmatch(r"_row-id-col-[0-9a-f-]{36}", first[ID])
    assert re.fullmatch(r"_row-commit-version-col-[0-9a-f-]{36}", first[VERSION])
    assert not {first[ID], first[VERSION]} & {second[ID], second[VERSION]}


@pytest.mark.parametrize("properties", [{}, {ON: "false"}, {ON: "true", ID: "i", VERSION: "v"}])
def test_names_that_are_there_or_are_not_needed_stay(properties: dict[str, str]) -> None:
    assert with_tracking_columns(properties) == properties


def test_it_is_not_switched_on_while_it_is_suspended() -> None:
    with pytest.raises(InvalidOption, match="rowTrackingSuspended"):
        with_tracking_columns({ON: "true", SUSPENDED: "true"})


@pytest.mark.parametrize(
    ("features", "before", "asked", "expected"),
    [
        ((), {}, {ON: "true"}, True),
        (("rowTracking",), {ON: "false"}, {"delta.ENABLErowtracking": "true"}, True),
        (("rowTracking",), {ON: "true"}, {ON: "true"}, False),
        (("rowTracking",), {}, {"delta.appendOnly": "true"}, False),
        ((), {}, {ON: "false"}, False),
    ],
)
def test_a_table_needs_a_backfill_when_it_gets_row_tracking(
    features: tuple[str, ...], before: dict[str, str], asked: dict[str, str], expected: bool
) -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=features)
    metadata = Metadata(id="i", schema_string="{}", partition_columns=(), configuration=before)
    assert needs_backfill(TableState(protocol, metadata, 1), asked) is expected


# ---- clustering ------------------------------------------------------------------------------------


def test_a_table_is_clustered_by_the_physical_names_of_columns() -> None:
    before = state("a int, s struct<x: int>, l array<int>", {"delta.columnMapping.mode": "name"})
    change = plan_cluster_by(before, [("A",), ("s", "x")])
    assert change is not None
    assert (change.operation, change.parameters) == (
        "CLUSTER BY",
        {"oldClusteringColumns": "", "newClusteringColumns": "a,s.x"},
    )
    protocol, domain = change.actions
    assert isinstance(protocol, Protocol)
    assert {"clustering", "domainMetadata"} <= {*(protocol.writer_features or ())}
    assert isinstance(domain, DomainMetadata)
    columns = clustering_columns({domain.domain: domain})
    assert [len(each) for each in columns] == [1, 2]
    assert all(step.startswith("col-") for each in columns for step in each)
    now = dataclasses.replace(after(before, change), clustered_by=columns)
    assert plan_cluster_by(now, [("a",), ("s", "x")]) is None
    undone = plan_cluster_by(now, [])
    assert undone is not None
    assert undone.parameters == {"oldClusteringColumns": "a,s.x", "newClusteringColumns": ""}


def test_a_new_table_is_clustered_by_the_physical_names_of_columns() -> None:
    schema = state("a int, s struct<x: int>").schema
    created = plan_create_table(schema, (), {"delta.columnMapping.mode": "name"}, 0, None, [("A",), ("s", "x")])
    assert created.parameters["clusterBy"] == ["a", "s.x"]
    assert {"clustering", "domainMetadata"} <= {*(created.table.protocol.writer_features or ())}
    *_, domain = created.actions
    assert isinstance(domain, DomainMetadata)
    columns = clustering_columns({domain.domain: domain})
    assert [len(each) for each in columns] == [1, 2]
    assert all(step.startswith("col-") for each in columns for step in each)
    with pytest.raises(InvalidOption, match="partitioned"):
        plan_create_table(schema, ("a",), {}, 0, None, [("s", "x")])
    with pytest.raises(ColumnNotFound):
        plan_create_table(schema, (), {}, 0, None, [("nope",)])


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (["l"], "no statistics for l"),
        (["a", "A"], "twice"),
        (["a", "b", "c", "d", "e"], "at most 4"),
        (["s"], "no stat"),
    ],
)
def test_a_table_cannot_be_clustered_by_these(columns: list[str], told: str) -> None:
    before = state("a int, b int, c int, d int, e int, s struct<x: int>, l array<int>")
    with pytest.raises(InvalidOption, match=told):
        plan_cluster_by(before, [(each,) for each in columns])
    with pytest.raises(InvalidOption, match="partitioned"):
        plan_cluster_by(state("a int, p int", {}, ("p",)), [("a",)])
    with pytest.raises(ColumnNotFound):
        plan_cluster_by(before, [("nope",)])


# ---- values that depend on the columns -------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("nope", "nope does not exist"),
        ("a,s.nope", "s.nope does not exist"),
        ("p", "partition column"),
        ("P", "partition column"),
        ("l", "no minimum and maximum"),
        ("l.element", "no minimum and maximum"),
        ("a,A", "listed twice"),
        ("s,s.x", None),
        ("A", None),
        ("a, s.x", None),
    ],
)
def test_statistics_are_collected_for_columns_that_can_have_them(value: str, told: str | None) -> None:
    columns, given = "a int, p int, s struct<x: int, y: date>, l array<int>", {"delta.dataSkippingStatsColumns": value}
    before = state(columns, {}, ("p",))
    if told is None:
        assert plan_set_properties(before, given) is not None
        assert state(columns, given, ("p",)).properties == given
        return
    for run in (lambda: plan_set_properties(before, given), lambda: state(columns, given, ("p",))):
        with pytest.raises(InvalidOption, match=told):
            run()
