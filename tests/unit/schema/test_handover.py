"""What a client needs dropped, what is lost, and what hinders it."""

from __future__ import annotations

import pytest

from widen.errors import InvalidOption
from widen.model.schema_json import to_json
from widen.model.types import LONG, Field, StructType
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.table_features import FEATURES
from widen.schema.feature_removal import CLIENTS, plan_handover
from widen.schema.table_state import TableState


def state(*features: str) -> TableState:
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=features)
    schema = to_json(StructType((Field("id", LONG),)))
    return TableState(protocol, Metadata(id="x", schema_string=schema, partition_columns=()), 4)


def test_clients_name_features_that_exist() -> None:
    known = {feature.name for feature in FEATURES}
    assert [client for client, facts in CLIENTS.items() if not known >= facts.unreadable | facts.unwritable] == []


@pytest.mark.parametrize(
    ("features", "client", "appends", "drops", "unwritable"),
    [
        ((), "deltalake", False, (), ()),
        (("typeWidening", "appendOnly"), "deltalake", False, ("typeWidening",), ("checkpointProtection",)),
        (("typeWidening",), "deltalake", True, ("typeWidening", "checkpointProtection"), ()),
        (("typeWidening",), "polars", False, ("typeWidening",), ("checkpointProtection",)),
        (("checkpointProtection",), "deltalake", False, (), ("checkpointProtection",)),
        (("checkpointProtection",), "deltalake", True, ("checkpointProtection",), ()),
        (("inCommitTimestamp", "rowTracking"), "deltalake", False, (), ("inCommitTimestamp", "rowTracking")),
        (("columnMapping",), "deltalake", False, ("columnMapping",), ("checkpointProtection",)),
        (("columnMapping",), "polars", True, ("columnMapping", "checkpointProtection"), ()),
        (("deletionVectors",), "deltalake", False, ("deletionVectors",), ("checkpointProtection",)),
        (("v2Checkpoint",), "polars", False, ("v2Checkpoint",), ("checkpointProtection",)),
        (("rowTracking",), "deltalake", True, ("rowTracking",), ()),
        (("inCommitTimestamp",), "polars", True, ("inCommitTimestamp",), ()),
    ],
)
def test_what_is_dropped(
    features: tuple[str, ...], client: str, appends: bool, drops: tuple[str, ...], unwritable: tuple[str, ...]
) -> None:
    plan = plan_handover(state(*features), client, appends=appends)
    assert (plan.drops, plan.unwritable) == (drops, unwritable)


def test_what_is_lost_is_said() -> None:
    plan = plan_handover(state("typeWidening"), "deltalake", appends=True)
    assert plan.losses == (
        "the record of type changes; files in old types are rewritten",
        "the older versions: they can no longer be read",
    )


@pytest.mark.parametrize(
    ("features", "client", "appends", "words"),
    [
        (
            ("columnMapping", "icebergCompatV2"),
            "polars",
            False,
            "does not read tables with columnMapping, which cannot be dropped",
        ),
        (("domainMetadata",), "deltalake", True, "does not write tables with domainMetadata, which cannot be dropped"),
        ((), "duckdb", False, "Must be deltalake, polars or iceberg."),
    ],
)
def test_what_hinders_a_client(features: tuple[str, ...], client: str, appends: bool, words: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        plan_handover(state(*features), client, appends=appends)
    assert words in f"{caught.value.message} {caught.value.advice}"


def test_a_handover_that_has_to_wait_tells_what_is_done() -> None:
    plan = plan_handover(state("typeWidening"), "deltalake", appends=True)
    assert len(plan.losses) == 2
    done = plan.until("checkpointProtection")
    assert (done.drops, done.unwritable) == (("typeWidening",), ("checkpointProtection",))
    assert done.losses == plan.losses[:1]
