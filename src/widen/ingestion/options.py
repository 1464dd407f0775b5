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
from widen.spark.ingest.open_source import BatchReader
from widen.spark.source.csv_rows import EXACT_VALUES, WRITTEN_VALUES
from widen.spark.source.file_format import parse_format

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
    reader = BatchReader(read_as, reader_options, detects, **switches)
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
