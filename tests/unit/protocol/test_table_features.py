"""Table features: what protocols support, how they grow, and who is refused."""

from __future__ import annotations

import pytest

from widen.errors import UnsupportedFeatureForRead, UnsupportedFeatureForWrite
from widen.model.schema_json import parse_type
from widen.model.types import TIMESTAMP_NTZ, VARIANT, Field, StructType
from widen.protocol.actions import Protocol
from widen.protocol.table_features import (
    FEATURES,
    blocking_features,
    ensure_readable,
    ensure_writable,
    find_feature,
    is_enabled,
    is_supported,
    normalize_protocol,
    required_features,
    stored_properties,
    supported_features,
    with_features,
)


def protocol(reader: int, writer: int, readers: list[str] | None = None, writers: list[str] | None = None) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=None if readers is None else tuple(readers),
        writer_features=None if writers is None else tuple(writers),
    )


LEGACY = protocol(1, 2)
IMPLIED = [
    ((1, 1), set()),
    ((1, 2), {"appendOnly", "invariants"}),
    ((1, 3), {"appendOnly", "invariants", "checkConstraints"}),
    ((1, 4), {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"}),
    ((2, 5), {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"}),
    (
        (2, 6),
        {
            "appendOnly",
            "invariants",
            "checkConstraints",
            "changeDataFeed",
            "generatedColumns",
            "columnMapping",
            "identityColumns",
        },
    ),
]


@pytest.mark.parametrize(("versions", "expected"), IMPLIED)
def test_old_numbers_imply_features(versions: tuple[int, int], expected: set[str]) -> None:
    assert supported_features(protocol(*versions)) == expected


def test_lists_say_all_there_is() -> None:
    assert supported_features(protocol(3, 7, ["deletionVectors"], ["deletionVectors", "appendOnly"])) == {
        "deletionVectors",
        "appendOnly",
    }
    assert supported_features(protocol(1, 7, None, [])) == set()


UPGRADES = [
    (LEGACY, ["typeWidening"], (3, 7, {"typeWidening"}, {"typeWidening", "appendOnly", "invariants"})),
    (LEGACY, ["changeDataFeed"], (1, 7, None, {"changeDataFeed", "appendOnly", "invariants"})),
    (LEGACY, ["checkConstraints"], (1, 3, None, None)),
    (LEGACY, ["columnMapping"], (2, 7, None, {"columnMapping", "appendOnly", "invariants"})),
    (LEGACY, ["rowTracking"], (1, 7, None, {"rowTracking", "domainMetadata", "appendOnly", "invariants"})),
    (
        protocol(2, 5),
        ["deletionVectors"],
        (
            3,
            7,
            {"columnMapping", "deletionVectors"},
            {
                "appendOnly",
                "invariants",
                "checkConstraints",
                "changeDataFeed",
                "generatedColumns",
                "columnMapping",
                "deletionVectors",
            },
        ),
    ),
    (
        LEGACY,
        ["icebergCompatV2"],
        (2, 7, None, {"columnMapping", "icebergCompatV2", "appendOnly", "invariants"}),
    ),
]


@pytest.mark.parametrize(("before", "names", "expected"), UPGRADES)
def test_an_upgrade_carries_over_what_was_implied(
    before: Protocol, names: list[str], expected: tuple[int, int, set[str] | None, set[str] | None]
) -> None:
    after = with_features(before, names)
    readers, writers = after.reader_features, after.writer_features
    assert (
        after.min_reader_version,
        after.min_writer_version,
        None if readers is None else set(readers),
        None if writers is None else set(writers),
    ) == expected


def test_nothing_new_changes_nothing() -> None:
    unusual = protocol(3, 7, [], ["invariants", "appendOnly"])
    assert with_features(unusual, ["appendOnly"]) is unusual
    assert with_features(protocol(2, 5), ["columnMapping"]) == protocol(2, 5)


PREVIEW = protocol(3, 7, ["typeWidening-preview"], ["typeWidening-preview"])


def test_the_final_feature_is_not_added_beside_its_preview_by_a_property() -> None:
    assert required_features({"delta.enableTypeWidening": "true"}, supported=supported_features(PREVIEW)) == set()
    both_asked = {"delta.enableTypeWidening": "true", "delta.feature.typewidening-preview": "supported"}
    assert required_features(both_asked) == {"typeWidening-preview"}


def test_the_final_feature_is_added_beside_its_preview_by_its_name() -> None:
    asked = {"delta.enableTypeWidening": "true", "delta.feature.typewidening": "supported"}
    after = with_features(PREVIEW, required_features(asked, supported=supported_features(PREVIEW)))
    assert set(after.reader_features or ()) == {"typeWidening", "typeWidening-preview"}


@pytest.mark.parametrize(
    ("reader", "writer", "asked"), [("1", "3", {"checkConstraints"}), ("2", "5", {"columnMapping"}), ("3", "7", set())]
)
def test_old_version_numbers_ask_for_what_they_imply(reader: str, writer: str, asked: set[str]) -> None:
    given = {"delta.minReaderVersion": reader, "delta.minWriterVersion": writer}
    assert asked <= required_features(given)
    assert asked or not required_features(given)


def test_features_that_stop_writers_who_did_not_know_of_them() -> None:
    def gained(*names: str) -> list[str]:
        return blocking_features(LEGACY, with_features(LEGACY, names))

    assert gained("typeWidening", "typeWidening-preview", "timestampNtz", "columnMapping", "deletionVectors") == []
    assert gained("appendOnly", "rowTracking", "inCommitTimestamp", "v2Checkpoint", "icebergCompatV2") == []
    assert gained("checkConstraints", "typeWidening", "generatedColumns") == ["checkConstraints", "generatedColumns"]
    assert gained("allowColumnDefaults", "identityColumns") == ["allowColumnDefaults", "identityColumns"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (protocol(1, 7, None, ["invariants", "appendOnly"]), protocol(1, 2)),
        (protocol(3, 7, [], ["invariants", "appendOnly"]), protocol(1, 2)),
        (protocol(3, 7, [], ["domainMetadata"]), protocol(1, 7, None, ["domainMetadata"])),
        (protocol(3, 7, ["typeWidening"], ["typeWidening"]), protocol(3, 7, ["typeWidening"], ["typeWidening"])),
    ],
)
def test_the_lowest_numbers_that_say_the_same(before: Protocol, after: Protocol) -> None:
    assert normalize_protocol(before) == after


PROPERTIES = [
    ({"delta.enableTypeWidening": "true"}, {"typeWidening"}),
    ({"delta.enableTypeWidening": "TRUE"}, {"typeWidening"}),
    ({"delta.enableTypeWidening": "false"}, set()),
    ({"delta.columnMapping.mode": "name"}, {"columnMapping"}),
    ({"delta.columnMapping.mode": "none"}, set()),
    ({"delta.checkpointPolicy": "v2"}, {"v2Checkpoint"}),
    ({"delta.checkpointPolicy": "classic"}, set()),
    ({"delta.constraints.c1": "a > 0"}, {"checkConstraints"}),
    ({"delta.feature.TYPEWIDENING": "supported"}, {"typeWidening"}),
    ({"delta.feature.deletionVectors": "enabled"}, {"deletionVectors"}),
    ({"delta.feature.magic": "supported"}, {"magic"}),
    ({"delta.appendOnly": "true", "delta.enableRowTracking": "true"}, {"appendOnly", "rowTracking"}),
]


@pytest.mark.parametrize(("properties", "expected"), PROPERTIES)
def test_properties_ask_for_features(properties: dict[str, str], expected: set[str]) -> None:
    assert required_features(properties) == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (StructType((Field("a", TIMESTAMP_NTZ),)), {"timestampNtz"}),
        (parse_type("struct<a: array<struct<b: timestamp_ntz>>>"), {"timestampNtz"}),
        (StructType((Field("a", VARIANT),)), {"variantType"}),
        (parse_type("struct<a: timestamp>"), set()),
        (
            StructType((Field("a", TIMESTAMP_NTZ, metadata={"delta.generationExpression": "x"}),)),
            {"timestampNtz", "generatedColumns"},
        ),
    ],
)
def test_a_new_schema_asks_for_features(schema: StructType, expected: set[str]) -> None:
    assert required_features({}, schema) == expected


def test_what_speaks_of_the_protocol_is_not_stored() -> None:
    given = {
        "delta.feature.typeWidening": "supported",
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
        "delta.ignoreProtocolDefaults": "true",
        "delta.enableTypeWidening": "true",
        "mine": "1",
    }
    assert stored_properties(given) == {"delta.enableTypeWidening": "true", "mine": "1"}


def test_supported_is_not_enabled() -> None:
    has = protocol(3, 7, ["typeWidening"], ["typeWidening"])
    assert is_supported(has, "typeWidening")
    assert not is_enabled(has, {}, "typeWidening")
    assert is_enabled(has, {"delta.enableTypeWidening": "true"}, "typeWidening")
    assert not is_enabled(LEGACY, {"delta.enableTypeWidening": "true"}, "typeWidening")
    assert is_enabled(LEGACY, {"delta.appendOnly": "true"}, "appendOnly")


def test_unknown_features_are_named() -> None:
    unknown = protocol(3, 7, ["magic", "deletionVectors"], ["magic", "deletionVectors", "spell"])
    with pytest.raises(UnsupportedFeatureForRead, match="magic") as caught:
        ensure_readable(unknown, "/t")
    assert "deletionVectors" not in str(caught.value)
    for_writers = protocol(1, 7, None, ["spell"])
    ensure_readable(for_writers, "/t")
    with pytest.raises(UnsupportedFeatureForWrite, match="spell"):
        ensure_writable(for_writers, "/t")


@pytest.mark.parametrize(("reader", "writer"), [(4, 7), (1, 8)])
def test_unknown_versions_are_refused(reader: int, writer: int) -> None:
    with pytest.raises(
        (UnsupportedFeatureForRead, UnsupportedFeatureForWrite), match=r"reader version 4|writer version 8"
    ):
        ensure_writable(protocol(reader, writer), "/t")


@pytest.mark.parametrize("name", ["icebergCompatV3"])
def test_what_is_read_but_not_written(name: str) -> None:
    row = find_feature(name)
    assert row is not None
    given = protocol(3, 7, [name] if row.is_reader else [], [name])
    ensure_readable(given, "/t")
    with pytest.raises(UnsupportedFeatureForWrite, match=name):
        ensure_writable(given, "/t")


@pytest.mark.parametrize("name", ["catalogManaged", "coordinatedCommits-preview", "geospatial"])
def test_what_is_not_known_at_all(name: str) -> None:
    assert find_feature(name) is None
    with pytest.raises(UnsupportedFeatureForRead, match=name):
        ensure_readable(protocol(3, 7, [name], [name]), "/t")


def test_the_table_is_in_order() -> None:
    names = [row.name for row in FEATURES]
    assert len(set(names)) == len(names)
    assert all(find_feature(required) is not None for row in FEATURES for required in row.requires)
    assert all(row.writer_version for row in FEATURES if row.reader_version)
