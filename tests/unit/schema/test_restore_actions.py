"""RESTORE as values: what goes back, and what never does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from widen.errors import AppendOnlyTable
from widen.protocol.actions import DomainMetadata, Metadata, Protocol
from widen.schema.table_definition import ensure_removable, restore_actions
from widen.schema.table_state import TableState

OLD = Protocol(min_reader_version=1, min_writer_version=2)
NEW = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("typeWidening",),
    writer_features=("appendOnly", "invariants", "typeWidening"),
)


def column(name: str, kind: str = "long", **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def state(version: int, protocol: Protocol, *fields: dict[str, Any], **configuration: str) -> TableState:
    schema = json.dumps({"type": "struct", "fields": list(fields) or [column("a")]})
    settings = {f"delta.{key.replace('__', '.')}": value for key, value in configuration.items()}
    metadata = Metadata(id="i", schema_string=schema, partition_columns=(), configuration=settings)
    return TableState(protocol, metadata, version)


def metadata_of(now: TableState, then: TableState) -> Metadata:
    found = [action for action in restore_actions(now, then, {}, {}) if isinstance(action, Metadata)]
    assert len(found) == 1
    return found[0]


def test_schema_and_properties_go_back() -> None:
    change = {"fromType": "short", "toType": "integer"}
    now = state(5, OLD, column("b"), appendOnly="false")
    then = state(2, OLD, column("a", **{"delta.typeChanges": [change]}), logRetentionDuration="interval 1 day")
    metadata = metadata_of(now, then)
    assert json.loads(metadata.schema_string)["fields"][0]["metadata"] == {"delta.typeChanges": [change]}
    assert metadata.configuration == {"delta.logRetentionDuration": "interval 1 day"}


@pytest.mark.parametrize(
    ("now", "then", "expected"),
    [
        (NEW, OLD, None),  # a feature that came since stays
        (OLD, OLD, None),
        (OLD, NEW, NEW),  # one that was dropped comes back with what uses it
    ],
)
def test_no_feature_is_lost(now: Protocol, then: Protocol, expected: Protocol | None) -> None:
    found = [
        action for action in restore_actions(state(5, now), state(2, then), {}, {}) if isinstance(action, Protocol)
    ]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("now", "then", "expected"),
    [
        ({"requireCheckpointProtectionBeforeVersion": "9"}, {}, {"requireCheckpointProtectionBeforeVersion": "9"}),
        ({"columnMapping__maxColumnId": "7"}, {"columnMapping__maxColumnId": "4"}, {"columnMapping__maxColumnId": "7"}),
        (
            {"enableInCommitTimestamps": "true", "inCommitTimestampEnablementVersion": "8"},
            {"enableInCommitTimestamps": "true", "inCommitTimestampEnablementVersion": "3"},
            {"enableInCommitTimestamps": "true", "inCommitTimestampEnablementVersion": "8"},
        ),
        ({"enableInCommitTimestamps": "true", "inCommitTimestampEnablementVersion": "8"}, {}, {}),
    ],
)
def test_numbers_that_may_only_grow_stay(now: dict[str, str], then: dict[str, str], expected: dict[str, str]) -> None:
    metadata = metadata_of(state(5, OLD, **now), state(2, OLD, **then))
    assert metadata.configuration == {f"delta.{key.replace('__', '.')}": value for key, value in expected.items()}


@pytest.mark.parametrize(("step", "now", "then", "expected"), [(1, 10, 4, 10), (-1, -10, -4, -10), (1, None, 4, 4)])
def test_identity_columns_go_on_where_they_are(step: int, now: int | None, then: int, expected: int) -> None:
    def identity(mark: int | None) -> dict[str, Any]:
        marks = {} if mark is None else {"delta.identity.highWaterMark": mark}
        return column("a", **{"delta.identity.start": 1, "delta.identity.step": step, **marks})

    metadata = metadata_of(state(5, OLD, identity(now)), state(2, OLD, identity(then)))
    assert json.loads(metadata.schema_string)["fields"][0]["metadata"]["delta.identity.highWaterMark"] == expected


def test_a_renamed_identity_column_goes_on_where_it_is() -> None:
    def identity(name: str, mark: int) -> dict[str, Any]:
        return column(
            name,
            **{
                "delta.identity.start": 1,
                "delta.identity.step": 1,
                "delta.identity.highWaterMark": mark,
                "delta.columnMapping.id": 1,
                "delta.columnMapping.physicalName": "col-1",
            },
        )

    metadata = metadata_of(state(5, OLD, identity("number", 10)), state(2, OLD, identity("a", 4)))
    assert json.loads(metadata.schema_string)["fields"][0]["metadata"]["delta.identity.highWaterMark"] == 10


def test_clustering_goes_back_and_the_domains_of_others_stay() -> None:
    def domain(name: str, text: str) -> dict[str, DomainMetadata]:
        return {name: DomainMetadata(domain=name, configuration=text, removed=False)}

    now, then = state(5, OLD), state(2, OLD)
    by_a = domain("delta.clustering", '{"clusteringColumns":[["a"]]}')
    by_b = domain("delta.clustering", '{"clusteringColumns":[["b"]]}')
    found = restore_actions(now, then, by_a | domain("mine", "new"), by_b | domain("mine", "old"))
    assert [a for a in found if isinstance(a, DomainMetadata)] == list(by_b.values())
    found = restore_actions(now, then, by_a, {})
    assert [a.configuration for a in found if isinstance(a, DomainMetadata)] == ['{"clusteringColumns":[]}']
    assert len(restore_actions(now, then, by_a, by_a)) == 1


def test_no_file_is_taken_from_an_append_only_table() -> None:
    ensure_removable(state(5, OLD), "there")
    with pytest.raises(AppendOnlyTable, match="RESTORE would remove rows"):
        ensure_removable(state(5, OLD, appendOnly="true"), "there")
