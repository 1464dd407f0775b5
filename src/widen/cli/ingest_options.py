"""The options of ingestions: how records are read, what the schema may become, and rules for single fields.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13, #d16
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from widen.cli import lazy_imports
from widen.cli.shared_options import Catalog, Shown, pairs


def _choice(name: str, *values: str) -> Any:
    """Return an enum of the values of an option; to import the enums of the planning would slow down every command."""
    return Enum(name, {value.upper(): value for value in values}, type=str)


Evolve = _choice("Evolve", "widen", "split", "freeze", "fail")
Numbers = _choice("Numbers", "exact", "decimal", "double")
Format = _choice("Format", "json", "csv", "text", "parquet", "avro", "orc")
TableKind = _choice("TableKind", "delta", "iceberg")
_MANY = "can be repeated."


def _option(kind: Any, flag: str, help: str, **details: Any) -> Any:
    return Annotated[kind, typer.Option(flag, help=help, show_default=False, **details)]


OPTIONS: Mapping[str, Any] = {
    "to": _option(TableKind | None, "--to", "The format of the table; iceberg if there is a --catalog."),
    "catalog": Catalog,
    "partition_by": _option(
        list[str] | None,
        "--partition-by",
        f"A partition field of a new Iceberg table, e.g. day(placed_at) or bucket(16, id); {_MANY}",
        metavar="FIELD",
    ),
    "format": _option(Format | None, "--format", "The format of the files; by default from their names."),
    "options": _option(
        list[str] | None,
        "--option",
        f"A reader option of Spark, e.g. sep=';' or header=false; {_MANY}",
        metavar="KEY=VALUE",
    ),
    "detect_types": _option(bool, "--detect-types", "Read CSV values as numbers and booleans where that is exact."),
    "partition_folders": Annotated[
        bool,
        typer.Option(
            "--partition-folders/--no-partition-folders",
            help="Read folders named KEY=VALUE above a file as fields of its records.",
        ),
    ],
    "source_columns": _option(bool, "--source-columns", "Add the columns _source_file and _loaded_at."),
    "skip_bad_files": _option(
        bool, "--skip-bad-files", "Name files that cannot be read in the quarantine, instead of failing."
    ),
    "evolve": _option(
        Evolve | None,
        "--evolve",
        "widen: widen columns where that is exact, else add columns; split: only add columns; freeze: change "
        "nothing and keep values that do not fit as JSON; fail: refuse a batch that needs changes. Default: widen.",
    ),
    "config": _option(Path | None, "--config", "A TOML file with these options.", metavar="FILE"),
    "pins": _option(
        list[str] | None,
        "--pin",
        f"Fix the type or mode of a field: a type, text, json, map or a mode, e.g. a.b='decimal(18,4)'; {_MANY}",
        metavar="FIELD=WHAT",
    ),
    "exclude": _option(
        list[str] | None, "--exclude", f"Ignore a field, in any case of its name; {_MANY}", metavar="FIELD"
    ),
    "mask": _option(
        list[str] | None,
        "--mask",
        f"Write *** instead of the values of a field, in any case of its name; {_MANY}",
        metavar="FIELD",
    ),
    "allow_unmatched": _option(
        bool | None, "--allow-unmatched", "Allow --mask and --exclude to name fields that do not exist (yet)."
    ),
    "no_stats": _option(
        list[str] | None,
        "--no-stats",
        f"Write no minimum and maximum of a field to the log and to footers; {_MANY}",
        metavar="FIELD",
    ),
    "detect_dates": _option(
        bool | None, "--detect-dates/--no-detect-dates", "Read strings that are dates or UTC timestamps as such."
    ),
    "detect_maps": _option(
        bool | None,
        "--detect-maps/--no-detect-maps",
        "Read objects with many keys, few of them in each object, as maps.",
    ),
    "epoch_unit": _option(
        list[str] | None,
        "--epoch-unit",
        f"The unit of integers in a timestamp field: s, ms, us or ns; {_MANY}",
        metavar="FIELD=UNIT",
    ),
    "max_columns": _option(
        int | None,
        "--max-columns",
        "The maximum number of leaf columns; further fields are kept as JSON. Default: 2000.",
        min=1,
    ),
    "max_record_size": _option(
        str | None,
        "--max-record-size",
        "The maximum size of a record or a line, after decompression, e.g. 256MB. Default: 64MB.",
        metavar="SIZE",
    ),
    "max_keys": _option(
        int | None,
        "--max-keys",
        "The maximum number of keys in one field; a batch with more is refused. Default: 10000.",
        min=1,
    ),
    "numbers": _option(
        Numbers | None,
        "--numbers",
        "What fractions become. exact: double where that is exact (default); decimal: the digits as written; "
        "double: one column of doubles, rounded where needed, but not in maps and sources with types.",
    ),
    "quarantine": _option(
        str | None,
        "--quarantine",
        "The table for records that violate partition, NOT NULL or CHECK columns; by default beside the table.",
        metavar="TABLE",
    ),
    "samples": _option(
        Shown | None,
        "--samples",
        "How plans, events and the history show values. masked: letters as x, digits as 9 (default).",
    ),
    "strict": _option(bool, "--strict", "Fail if an option names a field that does not exist."),
    "layout_of": _option(str | None, "--layout-of", "Begin a new table with these columns.", metavar="TABLE"),
}
"""The options, by the keyword arguments of an ingestion."""


def with_ingest_options(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options to a command, which gets their values as ``options``, by argument.

    Args:
        names: Keys of `OPTIONS`; by default all.
    """
    options = {name: OPTIONS[name] for name in names or OPTIONS}
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=option)
        for name, option in options.items()
    ]

    def decorator(command: Callable[..., None]) -> Callable[..., None]:
        before = inspect.signature(command, eval_str=True).parameters.values()
        own = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in before if each.name != "options"]

        @wraps(command)
        def wrapper(**given: Any) -> None:
            values = {name: _to_argument(name, given.pop(name)) for name in options}
            command(**given, options=values)

        wrapper.__signature__ = inspect.Signature([*own, *extra])  # type: ignore[attr-defined]
        wrapper.__annotations__ = {each.name: each.annotation for each in (*own, *extra)}
        return wrapper

    return decorator


def ensure_options_valid(
    source: Sequence[str], into: str | None, options: Mapping[str, Any], settings: Mapping[str, str] | None, **how: Any
) -> None:
    """Check the options and places of an ingestion before Spark starts, which takes seconds.

    Args:
        source: The paths of the source.
        into: The table; None without one.
        how: Arguments of `widen.ingestion.options.check_places`.

    Raises:
        InvalidOption: an option cannot be used.
        InvalidConfig: the configuration file cannot be used.
        SourceError: a path of the source cannot be used.
        StorageRefused: the table cannot be written.
    """
    table = {name: options[name] for name in ("to", "catalog", "partition_by")}
    rest: Any = {name: options[name] for name in options if name not in (*table, "layout_of")}
    lazy_imports.parse_options(rest)
    found = kept_in = None
    if into is not None:
        found = lazy_imports.find_table(into, settings, **table)
        kept_in = lazy_imports.to_quarantine(options["quarantine"], found)
    lazy_imports.check_places(source, found, quarantine=kept_in, **how)


_DEFAULTS: Mapping[str, object] = {
    "detect_types": False,
    "partition_folders": True,
    "source_columns": False,
    "skip_bad_files": False,
    "strict": False,
}
_PAIRS: Mapping[str, str] = {"pins": "--pin", "epoch_unit": "--epoch-unit", "options": "--option"}


def _to_argument(name: str, value: Any) -> Any:
    if name in _PAIRS:
        return pairs(value, _PAIRS[name]) or None
    return value.value if isinstance(value, Enum) else value or None if isinstance(value, list) else value
