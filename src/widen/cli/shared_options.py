"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class ChangedChoice(str, Enum):
    """What to do with changed files: the values of `widen.ingestion.new_files.Changed`."""

    FAIL = "fail"
    LOAD = "load"
    SKIP = "skip"


class Severe(str, Enum):
    """The grades that a batch can fail on: values of `widen.evolution.plan.Grade`."""

    CONFLICT = "conflict"
    STRUCTURAL = "structural"


class Shown(str, Enum):
    """How values are shown: the values of `widen.evolution.policy.Samples`."""

    NONE = "none"
    MASKED = "masked"
    RAW = "raw"


Table: TypeAlias = Annotated[str, typer.Argument(help="The table: a local path or a URL of an object store.")]
Sources: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="Files, directories or glob patterns.")
]
Into: TypeAlias = Annotated[
    str,
    typer.Option(
        "--into", metavar="TABLE", help="The table: a local path or a URL; with a catalog its name, e.g. shop.orders."
    ),
]
Catalog: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--catalog",
        metavar="NAME|FILE.db",
        help="The catalog of an Iceberg table: a name in PyIceberg's configuration, or a file for an embedded one.",
    ),
]
PlannedInto: TypeAlias = Annotated[
    str | None, typer.Option("--into", metavar="TABLE", help="The table; not needed with --contract.")
]
ContractFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--contract",
        metavar="FILE",
        help="Check the records against a JSON Schema or an .odcs.yaml file; see `widen contract`.",
    ),
]


class ContractForm(str, Enum):
    """The forms of a contract."""

    JSON_SCHEMA = "json-schema"
    ODCS = "odcs"


ContractFormat: TypeAlias = Annotated[
    ContractForm, typer.Option("--format", help="json-schema, or odcs: YAML of the Open Data Contract Standard 3.1.")
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Version: TypeAlias = Annotated[int | None, typer.Option("--version", min=0, help="The version; by default the newest.")]
Limit: TypeAlias = Annotated[int | None, typer.Option("--limit", min=1, help="The maximum number; by default all.")]


class EngineChoice(str, Enum):
    """The values of ``--engine``; see `widen.spark.engine.Engine`."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


Engine: TypeAlias = Annotated[
    EngineChoice | None,
    typer.Option(
        "--engine",
        help="Where to do the work. auto: in this process if it can, otherwise on Spark (default); local: in this "
        "process; spark: on Spark.",
    ),
]
OnlyNew: TypeAlias = Annotated[
    bool, typer.Option("--new", help="Load only files that the table has not loaded; see `widen loads`.")
]


class NewBy(str, Enum):
    """What identifies a file: the values of `widen.ingestion.new_files.PATH` and `CONTENT`."""

    PATH = "path"
    CONTENT = "content"


FilesBy: TypeAlias = Annotated[
    NewBy,
    typer.Option(
        "--new-by",
        help="With --new: how to recognize a loaded file. path: by path, size and time; content: by content, whatever "
        "its name.",
    ),
]
ChangedFiles: TypeAlias = Annotated[
    ChangedChoice,
    typer.Option(
        "--changed",
        help="With --new: what to do with files whose size or time has changed since they were loaded. fail: load "
        "nothing; load: load them again as a whole; skip: leave them out.",
    ),
]
MaxCorrupt: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--max-corrupt", metavar="N|P%", help="Refuse a batch with more corrupt lines than this number or share."
    ),
]
MaxKeptOut: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--max-quarantined",
        metavar="N|P%",
        help="Refuse a batch with more quarantined records than this number or share.",
    ),
]
FailOn: TypeAlias = Annotated[
    Severe | None, typer.Option("--fail-on", help="Refuse a batch whose plan has changes of this grade or worse.")
]
ParkOverLimit: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--park-over-limit",
        help="With --new: if a batch is refused, load its other files. The quarantine names the files that are left "
        "out, and later loads skip them; see `widen loads`.",
    ),
]
PlanHash: TypeAlias = Annotated[
    str | None,
    typer.Option("--plan-hash", metavar="HASH", help="Fail unless the plan has this hash; see `widen plan`."),
]
Events: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--events",
        metavar="FILE|URL",
        help="Append each event to a file, as a line of JSON, or send it to a URL as a CloudEvent; can be repeated.",
    ),
]


class EventGrade(str, Enum):
    """The minimum grade of changes that are sent to a URL: keys of `widen.ingestion.event_sinks.GRADES`."""

    ALL = "all"
    ADDITIVE = "additive"
    WIDENING = "widening"
    CONFLICT = "conflict"
    STRUCTURAL = "structural"


EventsFrom: TypeAlias = Annotated[
    EventGrade,
    typer.Option(
        "--events-from",
        help="Send only changes of this grade or worse to a URL. Failures, unreadable files and stopped fields are "
        "always sent; all sends every event.",
    ),
]
DeadLetter: TypeAlias = Annotated[
    Path | None,
    typer.Option("--dead-letter", metavar="FILE", help="Append the events that a URL does not accept to a file."),
]
EventsRequired: TypeAlias = Annotated[
    bool, typer.Option("--events-required", help="Fail after the commit if an event cannot be delivered to a URL.")
]
Lineage: TypeAlias = Annotated[
    bool,
    typer.Option("--openlineage", help="Send each load to OpenLineage, as its client is configured (OPENLINEAGE_URL)."),
]
Acknowledge: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--acknowledge",
        metavar="SUBJECT",
        help="Record in the table that a decision of the report has been made, e.g. tags; can be repeated.",
    ),
]
VerifyShare: TypeAlias = Annotated[
    float | None,
    typer.Option("--verify-share", metavar="SHARE", min=0, max=1, help="Verify a share of the records, e.g. 0.1."),
]
Samples: TypeAlias = Annotated[
    Shown, typer.Option("--samples", help="How values are shown. masked: letters as x, digits as 9.")
]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", help="A setting of the object store of the table; can be repeated."
    ),
]


def pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return values of the form KEY=VALUE as a mapping.

    Raises:
        typer.BadParameter: one does not have that form.
    """
    result = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} must have the form KEY=VALUE.", param_hint=option)
        result[key] = value
    return result


def storage(words: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of an object store.

    Raises:
        typer.BadParameter: one does not have the form KEY=VALUE.
    """
    return pairs(words, "--storage-option")
