"""Row tracking: where files keep ids, and tables that do not say where."""

from __future__ import annotations

import pytest

from widen.errors import UnsupportedFeatureForWrite
from widen.model.types import INTEGER, Field, StructType
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_mapping import ENABLE, ID_COLUMN, VERSION_COLUMN, TrackingColumns
from widen.protocol.table_configuration import TableConfiguration, tracking_columns

SUPPORTED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("domainMetadata", "rowTracking"))
NAMES = {ID_COLUMN: "i", VERSION_COLUMN: "v"}


def table(protocol: Protocol, properties: dict[str, str]) -> TableConfiguration:
    """Return the configuration of a table with these properties."""
    return TableConfiguration(
        protocol, Metadata(id="m", schema_string="{}", partition_columns=(), configuration=properties)
    )


@pytest.mark.parametrize(
    ("protocol", "properties", "expected"),
    [
        (SUPPORTED, {ENABLE: "true", **NAMES}, TrackingColumns("i", "v")),
        (SUPPORTED, NAMES, None),
        (SUPPORTED, {ENABLE: "false", **NAMES}, None),
        (Protocol(min_reader_version=1, min_writer_version=2), {ENABLE: "true", **NAMES}, None),
    ],
)
def test_ids_are_kept_where_row_tracking_is_enabled(
    protocol: Protocol, properties: dict[str, str], expected: TrackingColumns | None
) -> None:
    assert tracking_columns(table(protocol, properties), "there") == expected


@pytest.mark.parametrize("missing", [ID_COLUMN, VERSION_COLUMN])
def test_a_table_that_does_not_say_where_is_refused(missing: str) -> None:
    properties = {ENABLE: "true", **{key: name for key, name in NAMES.items() if key != missing}}
    with pytest.raises(UnsupportedFeatureForWrite, match="table at there: it does not support rowTracking without"):
        tracking_columns(table(SUPPORTED, properties), "there")


def test_the_columns_are_read_and_written_like_others() -> None:
    added = TrackingColumns("i", "v").add_to(StructType((Field("a", INTEGER),)))
    assert added.sql == "struct<a: int, i: bigint, v: bigint>"
    assert [field.metadata.get("delta.columnMapping.physicalName") for field in added] == [None, "i", "v"]
