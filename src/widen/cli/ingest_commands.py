"""The commands that take a source: ``ingest`` and ``plan``.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial, wraps
from io import StringIO
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import typer
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.output import note, progress, show, show_json
from widen.cli.shared_options import Catalog, Shown, pairs
from widen.errors import InvalidOption, OptionConflict, OptionMissing, WidenError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.batches.text_batch import ContractReport
    from widen.evolution.plan import Plan
    from widen.ingestion import IngestResult
    from widen.ingestion.commit_batch import OnEvent
    from widen.ingestion.new_files import FileComparison
    from widen.log.log_store import LogStore


# The options of ingestions: how records are read, what the schema may become, and rules for single fields.
#
# Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13, #d16


Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Keep ingesting new files until interrupted; needs --checkpoint.")
]
Once: TypeAlias = Annotated[
    bool, typer.Option("--once", help="Like --follow, but stop when the files that exist now are loaded.")
]
Checkpoint: TypeAlias = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="DIR", help="The directory that records the progress of the stream."),
]
Every: TypeAlias = Annotated[float, typer.Option("--every", min=0, help="How often to look for new files, in seconds.")]
MaxFiles: TypeAlias = Annotated[
    int | None, typer.Option("--max-files", min=1, help="The maximum number of files in a micro-batch.")
]
MaxBytes: TypeAlias = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, help="Close a micro-batch at this size, in bytes; it has at least one file."),
]


def _choice(name: str, *values: str) -> Any:
    """Return an enum of the values of an option; to import the enums of the planning would slow down every command."""
    return Enum(name, {value.upper(): value for value in values}, type=str)


Evolve = _choice("Evolve", "widen", "split", "freeze", "fail")
Numbers = _choice("Numbers", "exact", "decimal", "double")
Names = _choice("Names", "any-case", "exact")
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
    "branch": _option(
        str | None, "--branch", "The branch of an Iceberg table that gets the rows; by default main.", metavar="NAME"
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
        bool,
        "--skip-bad-files",
        "Skip files that cannot be loaded, e.g. damaged ones, and name them in the quarantine, instead of failing.",
    ),
    "evolve": _option(
        Evolve | None,
        "--evolve",
        "widen: widen columns if that is exact, otherwise add columns; split: only add columns; freeze: change "
        "nothing and keep values that do not fit as JSON; fail: refuse a batch that needs changes. Default: widen.",
    ),
    "enable_type_widening": _option(
        bool | None,
        "--enable-type-widening",
        "Turn on type widening with the commit, for an existing Delta table without it, and timestampNtz for times "
        "without a time zone. Clients without these table features then refuse the table.",
    ),
    "config": _option(Path | None, "--config", "A TOML file with these options.", metavar="FILE"),
    "pins": _option(
        list[str] | None,
        "--pin",
        f"Fix the type or mode of a field: a type, text, json, map or a mode, e.g. a.b='decimal(18,4)'; {_MANY}",
        metavar="FIELD=WHAT",
    ),
    "exclude": _option(
        list[str] | None, "--exclude", f"Ignore a field; upper and lower case do not matter; {_MANY}", metavar="FIELD"
    ),
    "mask": _option(
        list[str] | None,
        "--mask",
        f"Write *** instead of the values of a field; upper and lower case do not matter; {_MANY}",
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
        bool | None,
        "--detect-dates/--no-detect-dates",
        "Read strings that are dates or UTC timestamps as dates and timestamps.",
    ),
    "detect_maps": _option(
        bool | None,
        "--detect-maps/--no-detect-maps",
        "Read objects as maps if they have many different keys, but only a few each.",
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
    "names": _option(
        Names | None,
        "--names",
        "When two names mean one field. any-case: if they differ in case only (default); exact: if they are equal.",
    ),
    "allow_nan": _option(
        bool | None,
        "--allow-nan/--no-allow-nan",
        "Read NaN, Infinity and -Infinity in JSON as doubles; otherwise a record with one is corrupt.",
    ),
    "quarantine": _option(
        str | None,
        "--quarantine",
        "The table for records that do not fit partition, NOT NULL or CHECK columns; by default next to the table.",
        metavar="TABLE",
    ),
    "samples": _option(
        Shown | None,
        "--samples",
        "How plans, events and the history show values. masked: letters as x, digits as 9 (default).",
    ),
    "strict": _option(
        bool,
        "--strict",
        "Fail if an option names an unknown field, or if records of a key have equal sequences.",
    ),
    "layout_of": _option(
        str | None, "--layout-of", "Create a new table with the columns of this one.", metavar="TABLE"
    ),
    "envelope": _option(
        str | None,
        "--envelope",
        "The shape of the envelopes around the records: debezium. For others, see --config.",
        metavar="NAME",
    ),
    "key": _option(
        list[str] | None,
        "--key",
        f"A field that identifies a row: records replace the row of their key; {_MANY}",
        metavar="FIELD",
    ),
    "sequence_by": _option(
        str | None,
        "--sequence-by",
        "The field that says which record of a --key is the newest; by default the last batch wins.",
        metavar="FIELD",
    ),
    "delete_when": _option(
        str | None,
        "--delete-when",
        "A condition for records that delete the row of their --key, e.g. \"op = 'd'\".",
        metavar="SQL",
    ),
    "missing": _option(
        str | None,
        "--missing",
        "With --key: fields that a record lacks become null (default), or keep the value of the row.",
        metavar="null|keep",
    ),
    "history": _option(
        bool | None,
        "--history/--no-history",
        "With --key and --sequence-by, keep every version of a row, with _valid_from, _valid_to and _is_current.",
    ),
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
    """
    from widen.ingestion.options import check_places, parse_keys, parse_options, to_quarantine
    from widen.targets import find_table

    table = {name: options[name] for name in ("to", "catalog", "partition_by", "branch")}
    rest: Any = {name: options[name] for name in options if name not in (*table, "layout_of")}
    _, policy = parse_options(rest)
    parse_keys(rest, policy)
    found = kept_in = None
    if into is not None:
        found = find_table(into, settings, **table)
        kept_in = to_quarantine(options["quarantine"], found)
    check_places(source, found, quarantine=kept_in, storage_options=settings, **how)


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


CHANGES, REFUSED = 2, 3
"""The exit codes of a plan: it has changes that the mode accepts; it refuses changes or keeps values out."""


@with_ingest_options()
def ingest_command(
    source: shared_options.Sources,
    into: shared_options.Into,
    options: Mapping[str, Any],
    new: shared_options.OnlyNew = False,
    new_by: shared_options.FilesBy = shared_options.NewBy.PATH,
    changed: shared_options.ChangedFiles = shared_options.ChangedChoice.FAIL,
    max_corrupt: shared_options.MaxCorrupt = None,
    max_quarantined: shared_options.MaxKeptOut = None,
    fail_on: shared_options.FailOn = None,
    park_over_limit: shared_options.ParkOverLimit = False,
    verify: bool = typer.Option(
        False, "--verify", help="Rebuild every record from the table and compare it with the source."
    ),
    verify_share: shared_options.VerifyShare = None,
    plan_hash: shared_options.PlanHash = None,
    events: shared_options.Events = None,
    events_from: shared_options.EventsFrom = shared_options.EventGrade.STRUCTURAL,
    dead_letter: shared_options.DeadLetter = None,
    events_required: shared_options.EventsRequired = False,
    openlineage: shared_options.Lineage = False,
    follow: Follow = False,
    once: Once = False,
    checkpoint: Checkpoint = None,
    every: Every = 5,
    max_files: MaxFiles = None,
    max_bytes: MaxBytes = None,
    engine: shared_options.Engine = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write the records of a source to a table. The schema evolves to fit them, in the same commit."""
    from widen.ingestion import ingest
    from widen.ingestion.options import parse_limits

    settings = shared_options.storage(storage_option)
    arguments = {**options, "verify": verify_share or verify, "storage_options": settings}
    report = partial(report_result, into, json)
    limits = {"--checkpoint": checkpoint, "--max-files": max_files, "--max-bytes": max_bytes}
    gate = {"max_corrupt": max_corrupt, "max_quarantined": max_quarantined, "fail_on": fail_on and fail_on.value}
    alone = {
        "--plan-hash": plan_hash,
        "--new": new or None,
        "--park-over-limit": park_over_limit or None,
        **_given_with_new(new_by, changed),
    }
    ensure_options_apply(alone, limits, follows=follow or once)
    parse_limits(**gate)
    ensure_new(new, {**_given_with_new(new_by, changed), "--park-over-limit": park_over_limit or None})
    if (follow or once) and checkpoint is None:
        raise OptionMissing(option="--checkpoint", expected="Name a directory that outlives the process.")
    ensure_options_valid(source, into, options, settings, checkpoint=checkpoint, is_new=new, follows=follow or once)
    arguments["on_event"] = to_listener(
        events,
        grade=events_from,
        dead_letter=dead_letter,
        must_deliver=events_required,
        lineage=openlineage,
        inputs=source,
        tables=[(into, options["catalog"]), (options["quarantine"], options["catalog"])],
    )
    if follow or once:
        assert checkpoint is not None
        arguments |= {**gate, "max_files": max_files, "max_bytes": max_bytes, "every_seconds": every, "once": once}
        follow_source(source, into, checkpoint, report, arguments, engine and engine.value)
        return
    with progress("looking at the table") as update:
        spark = output.choose_session(engine and engine.value, update)
        arguments |= {
            **gate,
            "new": new,
            "new_by": new_by.value,
            "park_over_limit": park_over_limit,
            "changed": changed.value,
            "plan_hash": plan_hash,
            "progress": update,
        }
        result = ingest(source, into, spark=spark, **arguments)
    output.note_engine(spark)
    if not report(result):
        raise typer.Exit(1)


def report_result(into: str, as_json: bool, result: IngestResult) -> bool:
    """Show the result of an interval; return False if the verification found a difference."""
    from widen.report import text_format

    if as_json:
        show_json(result.to_value())
    elif result.is_unchanged:
        state = f"has version {result.version}" if result.version is not None else "does not exist yet"
        show([Text(f"No new files: {into} {state}.")])
    else:
        show(_result_parts(result, into))
    _note_files(result.compared)
    _note_table(result.plan)
    _warn_unmatched(result.plan)
    if result.quarantined:
        counted = text_format.count_noun(result.quarantined, "record")
        why = "fixed columns cannot hold them" + (", or they have no key or no order" if result.keys else "")
        note(f"{counted} in quarantine, because {why}: see {result.quarantine}")
    if result.unavailable:
        counted = text_format.count_noun(sum(result.unavailable.values()), "value")
        fields = ", ".join(f"{name} ({count:,})" for name, count in result.unavailable.items())
        state = "null" if result.keys is None else "as in the row before"
        note(f"{counted} that the source did not send, because a change left them as they were: {state} in {fields}")
    parked = [file for file in result.bad_files if file.is_parked]
    for files, words in ((parked, "parked"), ([file for file in result.bad_files if not file.is_parked], "skipped")):
        if files:
            counted = text_format.count_noun(len(files), "file")
            note(f"{counted} {words}, and named in the quarantine: see {result.quarantine}", "bold red")
    for name in result.left_out:
        note(f"ignored, because its name is not of the source format: {name}")
    if result.verification is None or result.verification.is_clean:
        return True
    note("some values cannot be rebuilt from the table: keep the source and check the values listed.", "bold red")
    return False


@with_ingest_options()
def plan_command(
    source: shared_options.Sources,
    options: Mapping[str, Any],
    into: shared_options.PlannedInto = None,
    contract: shared_options.ContractFile = None,
    new: shared_options.OnlyNew = False,
    new_by: shared_options.FilesBy = shared_options.NewBy.PATH,
    changed: shared_options.ChangedFiles = shared_options.ChangedChoice.FAIL,
    engine: shared_options.Engine = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show what an ingestion would change. Exit codes: 0 nothing, 2 changes, 3 refused or quarantined, 1 an error."""
    from widen.ingestion import check_contract, plan
    from widen.ingestion.interval import read_contract
    from widen.report import terminal

    if into is None and contract is None:
        raise typer.BadParameter("Name the table, or a contract.", param_hint="--into")
    settings = shared_options.storage(storage_option)
    ensure_new(new, _given_with_new(new_by, changed))
    if contract is not None:
        read_contract(contract)
    ensure_options_valid(source, into, options, settings, is_new=new, writes=False)
    planned = report = None
    with progress("looking at the table") as update:
        spark = output.choose_session(engine and engine.value, update)
        if contract is not None:
            reading = {name: options[name] for name in ("format", "options", "detect_types", "numbers", "allow_nan")}
            report = check_contract(source, contract, spark=spark, **reading)
        if into is not None:
            options = {
                **options,
                "new": new,
                "new_by": new_by.value,
                "changed": changed.value,
                "storage_options": settings,
            }
            planned = plan(source, into, spark=spark, **options)
    output.note_engine(spark)
    if json:
        shown = {} if planned is None else {"hash": planned.hash, **planned.to_value()}
        show_json({**shown, **({} if report is None else {"contract": report.to_value()})})
    else:
        show([*_plan_parts(planned), *(() if report is None else terminal.contract_parts(report))])
    if planned is not None:
        _note_table(planned)
        _warn_unmatched(planned)
    code = _plan_code(planned, report)
    if code:
        raise typer.Exit(code)


def _plan_parts(planned: Plan | None) -> Iterator[RenderableType]:
    from widen.report import terminal, text_format

    if planned is None:
        return
    if planned.keyed_by:
        yield Text(f"Rows change by key: {text_format.printable(planned.keyed_by)}")
    if planned.is_empty:
        yield Text("Nothing to change." if not planned.keyed_by else "The schema does not change.")
    has_notes = planned.rescued or planned.quarantined or planned.pending or planned.lost_sources
    if not planned.is_empty or has_notes:
        yield from terminal.plan_parts(planned)
        yield Text(f"hash {planned.hash}", "dim")


def _plan_code(planned: Plan | None, report: ContractReport | None) -> int:
    if (report is not None and report.breaches) or (planned is not None and planned.keeps_values_out):
        return REFUSED
    return CHANGES if planned is not None and not planned.is_empty else 0


_LEFT_OUT_AS_BAD = (
    "left out, because they could not be read before, or are parked (to load them, run without --skip-bad-files and "
    "--park-over-limit):"
)


def _note_files(compared: FileComparison) -> None:
    """Tell which files the table had loaded before."""
    from widen.ingestion.new_files import name_some
    from widen.report import text_format

    skipped, bad = set(compared.skipped), set(compared.bad)
    again = [path for path in compared.changed if path not in skipped]
    for paths, words, style in (
        ([path for path in compared.skipped if path not in bad], "left out, because the table has loaded", "dim"),
        ([path for path in compared.bad if path in skipped], _LEFT_OUT_AS_BAD, "dim"),
        (compared.late, "loaded late, after newer files", "dim"),
        (compared.repeated, "warning: loaded again; --new leaves out", "bold red"),
        (again, "warning: loaded as a whole, although the table has an earlier state of", "bold red"),
    ):
        if paths:
            counted = text_format.count_noun(len(paths), "file")
            note(f"{words} {counted}: {text_format.printable(name_some(paths))}", style)


def _note_table(planned: Plan) -> None:
    from widen.report import text_format

    if planned.source_table:
        note(f"the source is read as a table: {text_format.printable(planned.source_table)}", "dim")


def _warn_unmatched(planned: Plan) -> None:
    from widen.report import text_format

    for each in planned.unmatched:
        note(f"warning: {text_format.printable(str(each))}", "bold red")


def _result_parts(result: IngestResult, into: str) -> Iterator[RenderableType]:
    from widen.report import terminal, text_format

    assert result.version is not None
    yield terminal.version_line(result.version, into)
    counts = result.records, result.files, result.size_bytes, result.corrupt
    yield Text(f"  {text_format.written_text(*counts, result.corrupt_reason, result.not_objects)}")
    if result.keys is not None:
        yield Text(f"  {result.keys}")
    if result.multi_line is not None:
        place = text_format.printable(result.multi_line)
        text = f"  {place} begins a record over several lines; load such files with --option multiLine=true"
        yield Text(text, "bold red")
    if result.verification is not None:
        yield Text(f"  verified: {result.verification}", "green" if result.verification.is_clean else "bold red")
        yield from (Text(f"  lost: {text_format.printable(place)}", "red") for place in result.verification.places)
    yield from terminal.plan_parts(result.plan)


# Follow a source: ingest one interval after another until an interrupt.
#
# Source: docs/evolution-rules.md#one-interval


def to_listener(
    events: Sequence[str] | None,
    *,
    grade: shared_options.EventGrade = shared_options.EventGrade.STRUCTURAL,
    dead_letter: Path | None = None,
    must_deliver: bool = False,
    lineage: bool = False,
    inputs: Sequence[str] = (),
    tables: Iterable[tuple[str | None, str | None]] = (),
) -> OnEvent | None:
    """Return what gets the events of a load: files, webhooks, OpenLineage; None if nothing does.

    Args:
        events: Files, and URLs with http or https.
        inputs: The sources, for OpenLineage.
        tables: The tables that are written, each with its catalog, if any.

    Raises:
        InvalidOption: an option needs a URL and has no URL, the URL cannot be used, or a vacuum of a table would delete
            a file.
    """
    given = {"--dead-letter": dead_letter, "--events-required": must_deliver or None}
    is_url = [event.partition("://")[0].lower() in ("http", "https") for event in events or ()]
    for event, sends in zip(events or (), is_url, strict=True):
        if "://" in event and not sends:
            raise InvalidOption(option="--events", value=event, expected="Must be a file, or a URL with http or https.")
    if not any(is_url):
        for option, value in given.items():
            if value is not None:
                raise OptionMissing(option="--events with a URL", expected=f"{option} needs it.")
    if not events and not lineage:
        return None
    from widen.ingestion.event_sinks import EventFile, EventSinks, OpenLineage, Webhook
    from widen.sources.places import ensure_file_outlives_vacuum

    files = [("--events", event) for event, sends in zip(events or (), is_url, strict=True) if not sends]
    files += [] if dead_letter is None else [("--dead-letter", str(dead_letter))]
    folders = [_folder_of(into, catalog) for into, catalog in tables if into is not None] if files else []
    for option, file in files:
        ensure_file_outlives_vacuum(option, file, folders)
    sinks: list[OnEvent] = []
    for event, sends in zip(events or (), is_url, strict=True):
        if not sends:
            sinks.append(EventFile(Path(event)))
            continue
        sinks.append(Webhook(url=event, grade=grade.value, dead_letter=dead_letter, must_deliver=must_deliver))
    if lineage:
        sinks.append(OpenLineage(inputs=list(inputs), must_deliver=must_deliver))
    return sinks[0] if len(sinks) == 1 else EventSinks(sinks)


def _folder_of(into: str, catalog: str | None) -> str | None:
    """Return the folder of a table; None if it is not known yet."""
    if catalog is None:
        return into
    from widen.targets import find_table

    with suppress(WidenError):  # the load itself says it
        return find_table(into, None, catalog=catalog).folder()
    return None


def _given_with_new(new_by: shared_options.NewBy, changed: shared_options.ChangedChoice) -> dict[str, object]:
    return {
        "--new-by": None if new_by is shared_options.NewBy.PATH else new_by.value,
        "--changed": None if changed is shared_options.ChangedChoice.FAIL else changed.value,
    }


def ensure_new(new: bool, options: Mapping[str, object]) -> None:
    """Check that no option about new files is given without ``--new``.

    Raises:
        OptionMissing: an option is given without it.
    """
    for option, value in options.items():
        if value is not None and not new:
            raise OptionMissing(option="--new", expected=f"{option} needs it.")


def ensure_options_apply(alone: Mapping[str, object], followed: Mapping[str, object], *, follows: bool) -> None:
    """Check that every option that is given applies.

    Args:
        alone: The options of a single ingestion, with their values.
        followed: The options of a source that is followed, with their values.

    Raises:
        OptionConflict: one of a single ingestion is given for a source that is followed.
        OptionMissing: one of a source that is followed is given, and the source is not followed.
    """
    follow = "--follow or --once"
    given = [option for option, value in (alone if follows else followed).items() if value is not None]
    if given and follows:
        raise OptionConflict(option=given[0], other_option=follow, expected="Omit one of them.")
    if given:
        raise OptionMissing(option=follow, expected=f"{given[0]} needs it.")


def follow_source(
    source: Sequence[str],
    into: str,
    checkpoint: str,
    on_interval: Callable[[IngestResult], object],
    options: Mapping[str, Any],
    engine: str | None = None,
) -> None:
    """Ingest what arrives at a source until an interrupt, or once all that exists now is ingested.

    Args:
        source: Directories and patterns.
        checkpoint: The directory that records the progress of the stream.
        options: Keyword arguments of `widen.ingest_stream`.
    """
    from widen.ingestion import ingest_stream
    from widen.log.log_store import LogStore
    from widen.spark.engine import is_local
    from widen.spark.session import is_driver

    with progress("looking at the source") as update:
        spark = output.choose_session(engine, update)
        reports: _LocalReports | _ServerReports
        if is_driver(spark):
            reports, words = _LocalReports(on_interval), {**options, "progress": update}
        else:
            store = LogStore(checkpoint, options["storage_options"])
            reports, words = _ServerReports(on_interval, store), dict(options)
        reports.show()
        with stop_requested() as stop:
            words |= {"checkpoint": checkpoint, "spark": spark, "on_interval": reports}
            stream = ingest_stream(source, into, **words)
            count = 0
            while not stream.wait(1):
                if stop.is_set():
                    update("finishing the interval")
                    stream.stop()
                count += reports.show()
            count += reports.show()
    if count or not is_local(spark):
        output.note_engine(spark)
    if not count:
        note("nothing to load: no new file has records.")
    if stop.is_set():
        note("stopped; run it again with this checkpoint to continue.")


@dataclass
class _LocalReports:
    """Shows the result of each interval at once.

    Args:
        count: The number of results since the last call of `show`.
    """

    report: Callable[[IngestResult], object]
    count: int = 0

    def __call__(self, result: IngestResult) -> None:
        self.report(result)
        self.count += 1

    def show(self) -> int:
        """Return how many results have been shown since the last call."""
        count, self.count = self.count, 0
        return count


@dataclass(frozen=True)
class _ServerReports:
    """Brings reports from a server of Spark Connect, where the intervals run, to the client.

    Args:
        checkpoint: The checkpoint location, which both can reach.
    """

    report: Callable[[IngestResult], object]
    checkpoint: LogStore

    def __call__(self, result: IngestResult) -> None:
        """Keep a report; this runs on the server."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            self.report(result)
        report = msgspec.json.encode((out.getvalue(), err.getvalue()))
        self.checkpoint.put(f"{_REPORTS}/{result.interval:020}.json", report)

    def show(self) -> int:
        """Show the reports that have arrived since the last call, and return their number."""
        paths = [file.path for file in self.checkpoint.list(_REPORTS) if file.path.endswith(".json")]
        for path in paths:
            out, err = msgspec.json.decode(self.checkpoint.read(path), type=tuple[str, str])
            sys.stdout.write(out)
            sys.stderr.write(err)
        self.checkpoint.delete(paths)
        return len(paths)


_REPORTS = "_widen_reports"


@contextmanager
def stop_requested() -> Iterator[Event]:
    """Yield an event that is set by the first SIGINT or SIGTERM; a second one ends the process at once."""
    stop = Event()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def request(number: int, frame: object) -> None:
        stop.set()
        restore()

    for number in handlers:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
