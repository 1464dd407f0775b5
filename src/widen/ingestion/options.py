"""The options that all ingestions share: how to read records, and how the table may evolve.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import signature
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any

from widen.errors import InvalidOption
from widen.formats import find_table
from widen.formats.table_format import TableLocation
from widen.ingestion.policy_config import parse_policy
from widen.model.types import StructType
from widen.planning.evolution.policy import Numbers, Policy
from widen.planning.evolution.source_metadata import to_layout
from widen.spark.ingest.open_source import BatchReader, IngestSource
from widen.spark.source.csv_rows import EXACT_VALUES, WRITTEN_VALUES
from widen.spark.source.file_format import parse_format
from widen.spark.source.source_files import to_paths
from widen.spark.source.source_places import check_source, ensure_place_writable
from widen.spark.spark_types import DataFrame, SparkSession

_READER_SWITCHES = MappingProxyType(
    {
        "partition_folders": "has_folders",
        "source_columns": "has_source_columns",
        "skip_bad_files": "skips_bad_files",
    }
)
_POLICY_OPTIONS = tuple(signature(parse_policy).parameters)

INGEST_OPTIONS = (
    *("format", "options", "detect_types"),
    *_READER_SWITCHES,
    *_POLICY_OPTIONS,
    *("quarantine", "strict", "layout_of"),
)
"""The keyword arguments that `ingest`, `ingest_stream` and `plan` have in common; `ingest` describes them."""


def to_quarantine(location: str | PathLike[str] | None, table: TableLocation) -> str | None:
    """Return the location of the quarantine table as every process can use it, or None for the default.

    Raises:
        InvalidOption: a table cannot have this location, or it is that of the table itself.
    """
    return None if location is None else table.quarantine(table.resolve(fspath(location))).location


def check_places(
    source: IngestSource,
    table: TableLocation | None,
    *,
    quarantine: str | None = None,
    checkpoint: str | None = None,
    spark: SparkSession | None = None,
    is_new: bool = False,
    follows: bool = False,
    writes: bool = True,
) -> dict[str, str]:
    """Check the places of an ingestion before Spark starts, and return those that it writes, by their options.

    Args:
        table: The table; None if the source is only read.
        quarantine: The location of the quarantine; by default beside the table.
        spark: The session of the caller, if any.

    Raises:
        SourceError: a path of the source does not exist, or is not one of files.
        InvalidOption: the ingestion would read what it writes.
        StorageRefused: the table cannot be written there.
    """
    places = {"checkpoint": checkpoint}
    if table is not None:
        places |= {"into": table.location, "quarantine": table.quarantine(quarantine).location}
    # The name of a table in a catalog is no path.
    own = {option: place for option, place in places.items() if place and "/" in place}
    if not isinstance(source, DataFrame):
        check_source(to_paths(source), own, spark=spark, is_new=is_new, follows=follows)
    if writes:
        for option in own.keys() - {"quarantine"}:
            ensure_place_writable(own[option])
    return own


def parse_options(
    arguments: Mapping[str, Any], storage_options: Mapping[str, str] | None = None
) -> tuple[BatchReader, Policy]:
    """Return the reader of the records and the evolution policy.

    Args:
        arguments: The arguments of an ingestion by name; only those of `INGEST_OPTIONS` are read.

    Raises:
        InvalidOption: an option cannot be used.
        InvalidConfig: the file cannot be read, or it has an unknown setting.
    """
    switches = {switch: arguments[name] for name, switch in _READER_SWITCHES.items() if name in arguments}
    policy = parse_policy(**{name: arguments[name] for name in _POLICY_OPTIONS if name in arguments})
    detects = _value_pattern(policy.numbers) if arguments.get("detect_types") else ""
    read_as, reader_options = parse_format(arguments.get("format")), dict(arguments.get("options") or {})
    reader = BatchReader(
        read_as,
        reader_options,
        detects,
        **switches,
        storage_options=dict(storage_options or {}),
        max_record_bytes=policy.max_record_bytes,
    )
    layout_of = arguments.get("layout_of")
    return reader, policy if layout_of is None else replace(policy, layout=_read_layout(layout_of, storage_options))


def _value_pattern(numbers: Numbers) -> str:
    """Return which texts become numbers and booleans: 12.50 does where a decimal keeps it, or doubles are asked for."""
    return EXACT_VALUES if numbers is Numbers.EXACT else WRITTEN_VALUES


def _read_layout(layout_of: str | PathLike[str], storage_options: Mapping[str, str] | None) -> StructType:
    """Return the columns of a table, for a new table with the same layout."""
    schema = find_table(layout_of, storage_options).open(Policy()).schema
    if schema is None:
        raise InvalidOption(option="layout_of", value=str(layout_of), expected="Must be a table.")
    return to_layout(schema)
