"""What a caller can say of an ingestion: how records are read, and what may become of the table.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, TypedDict

from widen.ingestion.policy_config import parse_policy
from widen.planning.evolution.policy import Policy
from widen.spark.ingest.open_source import SourceReader, to_source_reader
from widen.spark.source.source_files import to_place


class IngestOptions(TypedDict, total=False):
    """The keyword arguments that all ingestions share.

    Args:
        format: What files hold: ``json`` (lines, arrays of records, or one document a file), ``csv``, ``text``,
            ``parquet``, ``avro`` or ``orc``; by default their names tell. With a DataFrame ``json`` says that JSON
            stands in its column ``value``, or in the only one that it has.
        options: How to read them, by the names of Spark's options, e.g. ``{"sep": ";"}``.
        detect_types: Whether texts of CSV and lines are taken for numbers and booleans where they are just what JSON
            would write for them; else they stay texts.
        partition_folders: Whether every folder ``key=value`` on the way to a file gives its records a field with that
            text, also above the place that is named, so that a file says the same however it is named; by default
            they do. If records have a field ``key``, too, the one of the folder gets another name.
        source_columns: Whether rows tell their file and the time of the load, as ``_source_file`` and ``_loaded_at``.
        evolve: ``widen`` columns in place where that is exact and else add columns; ``split`` only adds; ``freeze``
            adds nothing and keeps what does not fit as JSON text; ``fail`` refuses a batch that needs changes.
        pins: For fields by their path: a mode, ``text``, ``json`` or a type.
        config: A file of TOML that says the same as ``evolve`` and all that follows here.
        exclude: Fields to leave out.
        mask: Fields whose values are replaced by ``***``.
        detect_dates: Whether texts that are dates or instants are taken as such; or the fields in which they are.
        epoch_unit: For fields by their path what whole numbers count that go to a timestamp: ``s``, ``ms``, ``us``
            or ``ns``; of others their size tells.
        max_columns: How many leaves ingestion may bring the table to; what is past them is kept as JSON text.
        quarantine: The table for records that do not fit columns that cannot yield; by default the one beside the
            table, with ``_quarantine`` behind its name.
        samples: How plans, events and the log show values of records: ``masked`` (letters as x, digits as 9; the
            default), ``none`` or ``raw``.
        strict: Whether to refuse a batch where ``exclude``, ``mask``, ``pins``, ``epoch_unit`` or ``detect_dates`` name
            a field that neither the table nor the batch has, or a pin contradicts the column that exists; else the
            plan and an event tell of it.
    """

    format: str | None
    options: Mapping[str, str] | None
    detect_types: bool
    partition_folders: bool
    source_columns: bool
    evolve: str | None
    pins: Mapping[str, str] | None
    config: str | PathLike[str] | None
    exclude: Iterable[str] | None
    mask: Iterable[str] | None
    detect_dates: bool | Iterable[str] | None
    epoch_unit: Mapping[str, str] | None
    max_columns: int | None
    quarantine: str | None
    samples: str | None
    strict: bool


def to_quarantine(words: IngestOptions) -> str | None:
    """Return the place of the quarantine that a caller names, if one is named; it is used later, maybe elsewhere."""
    named = words.get("quarantine")
    return None if named is None else to_place(named)


def parse_options(words: IngestOptions) -> tuple[SourceReader, Policy]:
    """Return how records are read, and what may become of the table.

    Raises:
        InvalidOption: something said cannot be used.
        InvalidConfig: the file cannot be read, or says what nobody asks for.
    """
    rest: dict[str, Any] = {key: value for key, value in words.items() if key not in ("quarantine", "strict")}
    reading = (rest.pop("format", None), rest.pop("options", None))
    told = {
        "has_folders": rest.pop("partition_folders", True),
        "has_source_columns": rest.pop("source_columns", False),
    }
    intake = to_source_reader(*reading, detects=rest.pop("detect_types", False), **told)
    return intake, parse_policy(rest.pop("evolve", None), **rest)
