"""The options of ingestions: how records are read, what the schema may become, and rules for single fields.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13, #d16
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import typer

from widen.cli import lazy_imports
from widen.cli.shared_options import Catalog, Shown, pairs


class Evolve(str, Enum):
    """What happens when a batch does not fit the table: the values of `widen.planning.evolution.policy.Mode`."""

    WIDEN = "widen"
    SPLIT = "split"
    FREEZE = "freeze"
    FAIL = "fail"


class Numbers(str, Enum):
    """What fractions become: the values of `widen.planning.evolution.policy.Numbers`."""

    EXACT = "exact"
    DECIMAL = "decimal"


class Format(str, Enum):
    """The format of files: the values of `widen.spark.source.file_format.FileFormat`."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


class TableKind(str, Enum):
    """The format of the table: the values of `widen.formats.FORMATS`."""

    DELTA = "delta"
    ICEBERG = "iceberg"


_FIELDS = "can be repeated."

To: TypeAlias = Annotated[
    TableKind | None,
    typer.Option("--to", help="The format of the table; iceberg if there is a --catalog.", show_default=False),
]
PartitionBy: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--partition-by",
        metavar="FIELD",
        help=f"A partition field of a new Iceberg table, e.g. day(placed_at) or bucket(16, id); {_FIELDS}",
        show_default=False,
    ),
]

Formats: TypeAlias = Annotated[
    Format | None,
    typer.Option("--format", help="The format of the files; by default from their names.", show_default=False),
]
ReadOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help=f"A reader option of Spark, e.g. sep=';' or header=false; {_FIELDS}",
        show_default=False,
    ),
]
DetectTypes: TypeAlias = Annotated[
    bool,
    typer.Option("--detect-types", help="Read CSV values as numbers and booleans where that is exact."),
]
PartitionFolders: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--partition-folders/--no-partition-folders",
        help="Read folders named KEY=VALUE above a file as fields of its records.",
    ),
]
SourceColumns: TypeAlias = Annotated[
    bool,
    typer.Option("--source-columns", help="Add the columns _source_file and _loaded_at."),
]
SkipBadFiles: TypeAlias = Annotated[
    bool,
    typer.Option("--skip-bad-files", help="Name files that cannot be read in the quarantine, instead of failing."),
]
Mode: TypeAlias = Annotated[
    Evolve | None,
    typer.Option(
        "--evolve",
        help="widen: widen columns where that is exact, else add columns; split: only add columns; freeze: change "
        "nothing and keep values that do not fit as JSON; fail: refuse a batch that needs changes. Default: widen.",
        show_default=False,
    ),
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with these options.", show_default=False),
]
Pins: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="FIELD=WHAT",
        help=f"Fix the type or mode of a field: a type, text, json, map or a mode, e.g. a.b='decimal(18,4)'; {_FIELDS}",
        show_default=False,
    ),
]
Exclude: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="FIELD", help=f"Ignore a field; {_FIELDS}", show_default=False),
]
Masks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--mask", metavar="FIELD", help=f"Write *** instead of the values of a field; {_FIELDS}", show_default=False
    ),
]
DetectDates: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--detect-dates/--no-detect-dates",
        help="Read strings that are dates or UTC timestamps as such.",
        show_default=False,
    ),
]
DetectMaps: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--detect-maps/--no-detect-maps",
        help="Read objects with many keys, few of them in each object, as maps.",
        show_default=False,
    ),
]
EpochUnits: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--epoch-unit",
        metavar="FIELD=UNIT",
        help=f"The unit of integers in a timestamp field: s, ms, us or ns; {_FIELDS}",
        show_default=False,
    ),
]
MaxColumns: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-columns",
        min=1,
        help="The maximum number of leaf columns; further fields are kept as JSON. Default: 2000.",
        show_default=False,
    ),
]
NumberForm: TypeAlias = Annotated[
    Numbers | None,
    typer.Option(
        "--numbers",
        help="What fractions become. exact: double where that is exact (default); decimal: the digits as written.",
        show_default=False,
    ),
]
Quarantine: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--quarantine",
        metavar="TABLE",
        help="The table for records that violate partition, NOT NULL or CHECK columns; by default beside the table.",
        show_default=False,
    ),
]
Samples: TypeAlias = Annotated[
    Shown | None,
    typer.Option(
        "--samples",
        help="How plans, events and the history show values. masked: letters as x, digits as 9 (default).",
        show_default=False,
    ),
]


Strict: TypeAlias = Annotated[
    bool,
    typer.Option("--strict", help="Fail if an option names a field that does not exist."),
]

LayoutOf: TypeAlias = Annotated[
    str | None,
    typer.Option("--layout-of", metavar="TABLE", help="Begin a new table with these columns.", show_default=False),
]

OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "to": To,
        "catalog": Catalog,
        "partition_by": PartitionBy,
        "format": Formats,
        "options": ReadOptions,
        "detect_types": DetectTypes,
        "partition_folders": PartitionFolders,
        "source_columns": SourceColumns,
        "skip_bad_files": SkipBadFiles,
        "evolve": Mode,
        "config": Config,
        "pins": Pins,
        "exclude": Exclude,
        "mask": Masks,
        "detect_dates": DetectDates,
        "detect_maps": DetectMaps,
        "epoch_unit": EpochUnits,
        "max_columns": MaxColumns,
        "numbers": NumberForm,
        "quarantine": Quarantine,
        "samples": Samples,
        "strict": Strict,
        "layout_of": LayoutOf,
    }
)
"""The options, by the keyword arguments of an ingestion."""


def with_ingest_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with all `OPTIONS`, which it gets as ``options``: the keyword arguments of an ingestion.

    Args:
        command: A function with a parameter ``options``, and any others.
    """
    parameters_before = inspect.signature(command, eval_str=True).parameters
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=option)
        for name, option in OPTIONS.items()
    ]
    own = [parameter for name, parameter in parameters_before.items() if name != "options"]

    @wraps(command)
    def wrapper(**given: Any) -> None:
        options = {name: _to_argument(name, given.pop(name)) for name in OPTIONS}
        command(**given, options=options)

    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *extra]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapper


def ensure_options_valid(into: str | None, options: Mapping[str, Any], settings: Mapping[str, str] | None) -> None:
    """Check the options of an ingestion before Spark starts, which takes seconds.

    Args:
        into: The table; None without one.
        options: The keyword arguments of the ingestion.
        settings: Settings of the store.

    Raises:
        InvalidOption: an option cannot be used.
        InvalidConfig: the configuration file cannot be used.
    """
    table = {name: options[name] for name in ("to", "catalog", "partition_by")}
    rest: Any = {name: options[name] for name in options if name not in (*table, "layout_of")}
    lazy_imports.parse_options(rest)
    if into is not None:
        lazy_imports.find_table(into, settings, **table)


_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {
        "detect_types": False,
        "partition_folders": True,
        "source_columns": False,
        "skip_bad_files": False,
        "strict": False,
    }
)
_PAIRS: Mapping[str, str] = MappingProxyType({"pins": "--pin", "epoch_unit": "--epoch-unit", "options": "--option"})


def _to_argument(name: str, value: Any) -> Any:
    if name in _PAIRS:
        return pairs(value, _PAIRS[name]) or None
    return value.value if isinstance(value, Enum) else value or None if isinstance(value, list) else value
