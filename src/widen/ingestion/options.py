"""The options of an ingestion: how to read records, and how the table may evolve.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike, fspath
from typing import Any, TypedDict

from widen.errors import InvalidOption
from widen.formats import find_table
from widen.formats.table_format import TableLocation
from widen.ingestion.policy_config import parse_policy
from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import to_layout
from widen.spark.ingest.open_source import BatchReader, to_batch_reader


class IngestOptions(TypedDict, total=False):
    """The keyword arguments that all ingestions share.

    Args:
        format: What the files hold: ``json`` (lines, arrays of records, or one document per file), ``csv``, ``text``,
            ``parquet``, ``avro`` or ``orc``; by default the file names decide. With a DataFrame, ``json`` reads JSON
            from its column ``value``, or from its only column.
        options: Options of the Spark reader, e.g. ``{"sep": ";"}``.
        detect_types: Whether CSV fields and text lines become numbers and booleans where they are written exactly as
            JSON would write them; otherwise they stay strings.
        partition_folders: Whether each folder ``key=value`` in the path of a file adds a string field to its records,
            also a folder above the given path. If records already have a field ``key``, the field of the folder gets
            another name.
        source_columns: Whether to add the columns ``_source_file`` and ``_loaded_at``.
        skip_bad_files: Whether to leave out files that cannot be read (damaged Parquet, truncated gzip) and name them
            in the quarantine; otherwise the first such file is an error.
        evolve: ``widen`` changes columns in place where that is exact and otherwise adds columns; ``split`` only adds
            columns; ``freeze`` adds nothing and keeps what does not fit as JSON text; ``fail`` refuses a batch that
            needs changes. The default is ``widen``.
        pins: A mode, ``text``, ``json``, ``map`` or a type for single fields, by their path.
        config: A TOML file with ``evolve`` and the options below; arguments override it.
        exclude: Fields to leave out.
        mask: Fields whose values are replaced by ``***``.
        detect_dates: Whether strings that are dates or timestamps become such; or the fields where they do.
        detect_maps: Whether the objects of a new field become maps if they have many keys, few of them in each object,
            with values of one shape. Otherwise each key becomes a column, and the plan says so.
        epoch_unit: The unit of integers that go to a timestamp column, by field path: ``s``, ``ms``, ``us`` or ``ns``;
            by default their size decides.
        max_columns: The maximum number of leaf columns that ingestion may create; further fields are kept as JSON text.
        numbers: What fractions become: ``exact`` (a double where that is exact, else a decimal; the default) or
            ``decimal`` (a decimal with the digits as written, so that 12.50 stays 12.50).
        quarantine: The table for records that violate partition, NOT NULL or CHECK columns; by default next to the
            table, with the suffix ``_quarantine``.
        samples: How plans, events and the log show values of records: ``masked`` (letters as x, digits as 9; the
            default), ``none`` or ``raw``.
        strict: Whether to refuse a batch if ``exclude``, ``mask``, ``pins``, ``epoch_unit`` or ``detect_dates`` name a
            field that neither the table nor the batch has, or if a pin contradicts an existing column; otherwise the
            plan and an event report it.
        layout_of: A table whose columns a new table begins with, e.g. to build a table again: the layout that comes of
            one batch after another is then that of all at once. It has no effect on a table that exists.
    """

    format: str | None
    options: Mapping[str, str] | None
    detect_types: bool
    partition_folders: bool
    source_columns: bool
    skip_bad_files: bool
    evolve: str | None
    pins: Mapping[str, str] | None
    config: str | PathLike[str] | None
    exclude: Iterable[str] | None
    mask: Iterable[str] | None
    detect_dates: bool | Iterable[str] | None
    detect_maps: bool | None
    epoch_unit: Mapping[str, str] | None
    max_columns: int | None
    numbers: str | None
    quarantine: str | PathLike[str] | None
    samples: str | None
    strict: bool
    layout_of: str | PathLike[str] | None


def to_quarantine(words: IngestOptions, table: TableLocation) -> str | None:
    """Return the location of the quarantine table for every process, or None if the options do not name one.

    Args:
        words: The options.
        table: The table that the records go to.
    """
    location = words.get("quarantine")
    return None if location is None else table.resolve(fspath(location))


def parse_options(words: IngestOptions, storage_options: Mapping[str, str] | None = None) -> tuple[BatchReader, Policy]:
    """Return the reader of the records and the evolution policy.

    Args:
        words: The options.
        storage_options: Settings and credentials of the store of the tables.

    Raises:
        InvalidOption: an option cannot be used.
        InvalidConfig: the file cannot be read, or it has an unknown setting.
        TableError: the table with the layout cannot be read.
    """
    rest: dict[str, Any] = {key: value for key, value in words.items() if key not in ("quarantine", "strict")}
    reading = (rest.pop("format", None), rest.pop("options", None))
    extra_fields = {
        "has_folders": rest.pop("partition_folders", True),
        "has_source_columns": rest.pop("source_columns", False),
        "skips_bad_files": rest.pop("skip_bad_files", False),
    }
    reader = to_batch_reader(*reading, detects=rest.pop("detect_types", False), **extra_fields)
    layout_of = rest.pop("layout_of", None)
    policy = parse_policy(rest.pop("evolve", None), **rest)
    return reader, policy if layout_of is None else replace(policy, layout=read_layout(layout_of, storage_options))


def read_layout(layout_of: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> StructType:
    """Return the columns of a table, for a new table with the same layout.

    Raises:
        InvalidOption: there is no table.
        TableError: the table cannot be read.
    """
    schema = find_table(layout_of, storage_options).open(Policy()).schema
    if schema is None:
        raise InvalidOption(option="layout_of", value=str(layout_of), expected="Must be a table.")
    return to_layout(schema)
