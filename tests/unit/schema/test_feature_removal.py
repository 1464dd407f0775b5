"""DROP FEATURE as values: the checks in their order, the traces, the protocol that is left."""

from __future__ import annotations

import json

import pytest

from widen.errors import (
    ConstraintsRemain,
    FeatureDropRefused,
    FeatureIsProperty,
    FeatureNotPresent,
    FeatureNotRemovable,
    FeatureStillNeeded,
    TruncationNotAllowed,
    TruncationRequired,
    UnknownFeature,
)
from widen.protocol.actions import DomainMetadata, Metadata, Protocol
from widen.schema import feature_removal
from widen.schema.table_state import TableState

CHANGE = {"fromType": "short", "toType": "integer"}
PLAIN = {"name": "a", "type": "integer", "nullable": True, "metadata": {}}
WIDENED = {**PLAIN, "metadata": {"delta.typeChanges": [CHANGE], "comment": "c"}}
NESTED = {
    "name": "s.t",
    "type": {"type": "array", "containsNull": True, "elementType": {"type": "struct", "fields": [WIDENED]}},
    "nullable": False,
    "metadata": {},
}


def state(
    *features: str, fields: list[dict[str, object]] | None = None, reader: int = 3, **configuration: str
) -> TableState:
    readers = tuple(f for f in features if f in ("typeWidening", "typeWidening-preview", "vacuumProtocolCheck"))
    protocol = Protocol(
        min_reader_version=reader,
        min_writer_version=7,
        reader_features=readers if reader == 3 else None,
        writer_features=features,
    )
    schema = json.dumps({"type": "struct", "fields": fields or [PLAIN]})
    settings = {key.replace("__", "."): value for key, value in configuration.items()}
    return TableState(protocol, Metadata(id="i", schema_string=schema, partition_columns=(), configuration=settings), 7)


REFUSED: list[tuple[TableState, str, bool, type[FeatureDropRefused], str]] = [
    (state(), "delta.enableTypeWidening", False, FeatureIsProperty, "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"),
    (state(), "Delta.EnableTypeWidening", True, FeatureIsProperty, "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"),
    (state(), "typeWidening", False, FeatureNotPresent, "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
    (state("typeWidening"), "TYPEWIDENING", False, FeatureNotPresent, "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
    (state("typeWidening"), "typeWidening-preview", False, FeatureNotPresent, "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"),
    (state("appendOnly"), "appendOnly", False, FeatureNotRemovable, "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"),
    (state(), "delta.noSuchThing", False, UnknownFeature, "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
    (state(), "noSuchThing", False, UnknownFeature, "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"),
    (
        state("inCommitTimestamp"),
        "inCommitTimestamp",
        True,
        TruncationNotAllowed,
        "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED",
    ),
    (
        state("checkpointProtection"),
        "checkpointProtection",
        False,
        TruncationRequired,
        "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION",
    ),
    (
        state("checkConstraints", delta__constraints__ck="a > 0"),
        "checkConstraints",
        False,
        ConstraintsRemain,
        "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE",
    ),
]


@pytest.mark.parametrize(("table", "name", "truncates", "kind", "code"), REFUSED)
def test_a_drop_that_cannot_be_is_refused_with_deltas_code(
    table: TableState, name: str, truncates: bool, kind: type[FeatureDropRefused], code: str
) -> None:
    with pytest.raises(kind) as raised:
        feature_removal.find_removable_feature(table, name, truncates=truncates)
    assert raised.value.code == code
    assert type(raised.value) is kind


def test_a_feature_that_others_need_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    table = state("inCommitTimestamp")
    monkeypatch.setattr(feature_removal, "dependent_features", lambda *_: ["coordinatedCommits"])
    with pytest.raises(FeatureStillNeeded, match="other features of the table need it: coordinatedCommits") as raised:
        feature_removal.find_removable_feature(table, "inCommitTimestamp", truncates=False)
    assert raised.value.code == "DELTA_FEATURE_DROP_DEPENDENT_FEATURE"


@pytest.mark.parametrize(
    ("name", "keeps_history"),
    [
        ("typeWidening", True),
        ("typeWidening-preview", True),
        ("vacuumProtocolCheck", True),
        ("deletionVectors", True),
        ("v2Checkpoint", True),
        ("rowTracking", False),
        ("inCommitTimestamp", False),
        ("checkConstraints", False),
    ],
)
def test_features_that_readers_must_know_leave_traces_in_the_history(name: str, keeps_history: bool) -> None:
    assert feature_removal.find_removable_feature(state(name), name, truncates=False).keeps_history is keeps_history


@pytest.mark.parametrize("value", ["true", "false"])
def test_the_property_goes_whatever_it_says(value: str) -> None:
    table = state("typeWidening", delta__enableTypeWidening=value, delta__appendOnly="true")
    row = feature_removal.REMOVABLE_FEATURES["typeWidening"]
    assert not row.is_clean(table)
    change = feature_removal.disable_feature(table, row)
    assert change is not None
    assert change.operation == "UNSET TBLPROPERTIES"
    assert change.parameters == {"properties": ["delta.enableTypeWidening"], "ifExists": True}
    assert [action.configuration for action in change.actions if isinstance(action, Metadata)] == [
        {"delta.appendOnly": "true"}
    ]


def test_nothing_is_unset_where_nothing_is_set() -> None:
    assert (
        feature_removal.disable_feature(state("typeWidening"), feature_removal.REMOVABLE_FEATURES["typeWidening"])
        is None
    )


@pytest.mark.parametrize("changes", [[], [CHANGE]])
def test_the_history_of_types_counts_also_if_it_is_empty(changes: list[dict[str, str]]) -> None:
    table = state("typeWidening", fields=[{**PLAIN, "metadata": {"delta.typeChanges": changes}}])
    row = feature_removal.REMOVABLE_FEATURES["typeWidening"]
    assert not row.is_clean(table)
    assert row.is_trace(table.metadata)
    assert feature_removal.without_type_changes(table, "DROP FEATURE") is not None


def test_the_history_of_types_goes_and_the_commit_says_of_which_columns() -> None:
    change = feature_removal.without_type_changes(state("typeWidening", fields=[WIDENED, NESTED]), "DROP FEATURE")
    assert change is not None
    assert change.operation == "DROP FEATURE"
    was = {"type": "integer", "nullable": True, "metadata": {"delta.typeChanges": [CHANGE], "comment": "c"}}
    assert change.parameters == {"columns": [{"name": "a", **was}, {"name": "`s.t`.element.a", **was}]}
    (metadata,) = change.actions
    assert isinstance(metadata, Metadata)
    assert "typeChanges" not in metadata.schema_string
    assert metadata.schema_string.count('"comment":"c"') == 2


def test_a_nested_column_is_described_by_its_kind() -> None:
    field = {**NESTED, "name": "m", "metadata": {"delta.typeChanges": [{**CHANGE, "fieldPath": "element.element"}]}}
    change = feature_removal.without_type_changes(state("typeWidening", fields=[field]), "DROP FEATURE")
    assert change is not None
    columns = change.parameters["columns"]
    assert isinstance(columns, list)
    assert columns[0]["type"] == "array"


def test_without_history_of_types_there_is_nothing_to_remove() -> None:
    assert feature_removal.without_type_changes(state("typeWidening"), "DROP FEATURE") is None


@pytest.mark.parametrize(
    ("features", "name", "protects", "expected"),
    [
        # A set that old numbers imply is written with them.
        (("typeWidening", "appendOnly", "invariants"), "typeWidening", False, (1, 2, None, None)),
        (("typeWidening",), "typeWidening", False, (1, 1, None, None)),
        (
            ("typeWidening", "appendOnly", "invariants"),
            "typeWidening",
            True,
            (1, 7, None, ("appendOnly", "checkpointProtection", "invariants")),
        ),
        (
            ("typeWidening", "typeWidening-preview"),
            "typeWidening",
            False,
            (3, 7, ("typeWidening-preview",), ("typeWidening-preview",)),
        ),
        (
            ("typeWidening", "rowTracking", "domainMetadata"),
            "typeWidening",
            False,
            (1, 7, None, ("domainMetadata", "rowTracking")),
        ),
    ],
)
def test_the_protocol_after_the_drop(
    features: tuple[str, ...],
    name: str,
    protects: bool,
    expected: tuple[int, int, tuple[str, ...] | None, tuple[str, ...] | None],
) -> None:
    change = feature_removal.downgrade_protocol(
        state(*features), feature_removal.REMOVABLE_FEATURES[name], truncates=not protects, protects=protects
    )
    metadata, protocol = change.actions[:2]
    assert isinstance(metadata, Metadata)
    assert isinstance(protocol, Protocol)
    found = protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features, protocol.writer_features
    assert found == expected
    assert (change.operation, change.parameters) == (
        "DROP FEATURE",
        {"featureName": name, "truncateHistory": not protects},
    )
    # The commit is to become version 8, which the state of version 7 says.
    protected = {"delta.requireCheckpointProtectionBeforeVersion": "8"} if protects else {}
    assert metadata.configuration == protected


def test_row_ids_are_suspended_first_and_leave_with_the_feature() -> None:
    columns = {"delta__rowTracking__materializedRowIdColumnName": "i", "delta__appendOnly": "true"}
    table = state("rowTracking", "domainMetadata", reader=1, delta__enableRowTracking="true", **columns)
    row = feature_removal.REMOVABLE_FEATURES["rowTracking"]
    assert not row.is_clean(table)
    disabled = feature_removal.disable_feature(table, row)
    assert disabled is not None
    assert disabled.parameters == {
        "properties": {"delta.enableRowTracking": "false", "delta.rowTrackingSuspended": "true"}
    }
    (metadata,) = disabled.actions
    assert isinstance(metadata, Metadata)
    suspended = TableState(table.protocol, metadata, 8)
    assert row.is_clean(suspended)
    last = feature_removal.downgrade_protocol(suspended, row, truncates=False, protects=False)
    metadata, protocol, domain = last.actions
    assert isinstance(metadata, Metadata)
    assert metadata.configuration == {"delta.appendOnly": "true"}
    assert isinstance(protocol, Protocol)
    assert protocol.writer_features == ("domainMetadata",)
    assert isinstance(domain, DomainMetadata)
    assert (domain.domain, domain.removed) == ("delta.rowTracking", True)
