"""Options that say how records are read, what an ingestion may do, and how it takes the values of single fields.

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

from widen.cli.shared_options import Shown, pairs


class Evolve(str, Enum):
    """What happens when a batch does not fit the table: the words of `widen.planning.evolution.policy.Mode`."""

    WIDEN = "widen"
    SPLIT = "split"
    FREEZE = "freeze"
    FAIL = "fail"


class Format(str, Enum):
    """What files hold: the words of `widen.spark.source.file_format.FileFormat`."""

    JSON = "json"
    CSV = "csv"
    TEXT = "text"
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


_FIELDS = "may be said again."

Formats: TypeAlias = Annotated[
    Format | None,
    typer.Option("--format", help="What the files hold; by default their names tell.", show_default=False),
]
ReadOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="KEY=VALUE",
        help=f"How to read the files, as Spark calls it, e.g. sep=';' or header=false; {_FIELDS}",
        show_default=False,
    ),
]
DetectTypes: TypeAlias = Annotated[
    bool,
    typer.Option("--detect-types", help="Take texts of CSV for numbers and booleans where that loses nothing."),
]
PartitionFolders: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--partition-folders/--no-partition-folders",
        help="Take every folder KEY=VALUE on the way to a file as a field of its records.",
    ),
]
SourceColumns: TypeAlias = Annotated[
    bool,
    typer.Option("--source-columns", help="Write the file and the time of the load to _source_file and _loaded_at."),
]
Mode: TypeAlias = Annotated[
    Evolve | None,
    typer.Option(
        "--evolve",
        help="widen columns in place where that is exact, else add some; split: only add; freeze: neither, keep what "
        "does not fit as JSON; fail: refuse a batch that needs changes. By default widen.",
        show_default=False,
    ),
]
Config: TypeAlias = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A file of TOML that says all this.", show_default=False),
]
Pins: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--pin",
        metavar="FIELD=WHAT",
        help=f"Give a field a type, text, json, or a mode of its own, e.g. a.b='decimal(18,4)'; {_FIELDS}",
        show_default=False,
    ),
]
Exclude: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="FIELD", help=f"Leave a field out; {_FIELDS}", show_default=False),
]
Masks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--mask", metavar="FIELD", help=f"Write *** for all values of a field; {_FIELDS}", show_default=False),
]
DetectDates: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--detect-dates/--no-detect-dates",
        help="Take texts that are dates or instants of UTC as such.",
        show_default=False,
    ),
]
EpochUnits: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--epoch-unit",
        metavar="FIELD=UNIT",
        help=f"Say what whole numbers count that go to a timestamp: s, ms, us or ns; {_FIELDS}",
        show_default=False,
    ),
]
MaxColumns: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-columns",
        min=1,
        help="How many leaves the table may get; what is past them is kept as JSON. By default 2000.",
        show_default=False,
    ),
]
Quarantine: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--quarantine",
        metavar="TABLE",
        help="Where records go that do not fit columns that cannot yield; by default beside the table.",
        show_default=False,
    ),
]
Samples: TypeAlias = Annotated[
    Shown | None,
    typer.Option(
        "--samples",
        help="How plans, events and the history show values; masked (by default): letters as x, digits as 9.",
        show_default=False,
    ),
]


Strict: TypeAlias = Annotated[
    bool,
    typer.Option("--strict", help="Refuse with exit code 1 if an option names a field that is not there."),
]

OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "format": Formats,
        "options": ReadOptions,
        "detect_types": DetectTypes,
        "partition_folders": PartitionFolders,
        "source_columns": SourceColumns,
        "evolve": Mode,
        "config": Config,
        "pins": Pins,
        "exclude": Exclude,
        "mask": Masks,
        "detect_dates": DetectDates,
        "epoch_unit": EpochUnits,
        "max_columns": MaxColumns,
        "quarantine": Quarantine,
        "samples": Samples,
        "strict": Strict,
    }
)
"""The options, by the keyword arguments of an ingestion that they become."""


def takes_policy(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with all `OPTIONS`, which it gets as ``said``: the keyword arguments of an ingestion.

    Args:
        command: A function with a parameter ``said``, and whatever else it takes.
    """
    known = inspect.signature(command, eval_str=True).parameters
    extra = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_DEFAULTS.get(name), annotation=option)
        for name, option in OPTIONS.items()
    ]
    own = [parameter for name, parameter in known.items() if name != "said"]

    @wraps(command)
    def wrapper(**given: Any) -> None:
        said = {name: _word(name, given.pop(name)) for name in OPTIONS}
        command(**given, said=said)

    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own), *extra]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapper


_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {"detect_types": False, "partition_folders": True, "source_columns": False, "strict": False}
)
_PAIRS: Mapping[str, str] = MappingProxyType({"pins": "--pin", "epoch_unit": "--epoch-unit", "options": "--option"})


def _word(name: str, value: Any) -> Any:
    if name in _PAIRS:
        return pairs(value, _PAIRS[name]) or None
    return value.value if isinstance(value, Enum) else value or None if isinstance(value, list) else value
