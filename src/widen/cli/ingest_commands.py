"""The commands that take a source: ``ingest`` and ``plan``.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
import typer
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.output import note, progress, show, show_json
from widen.cli.plan_output import (
    DryRun,
    Markdown,
    PlanForm,
    end_with,
    planned_parts,
    show_markdown,
    show_run_plan,
    to_form,
)
from widen.cli.reader_commands import to_names
from widen.errors import OptionConflict, OptionMissing
from widen.ingestion.ingest_options import (
    ContractOptions,
    FollowOptions,
    GateOptions,
    LimitOptions,
    PlanOptions,
    RecordOptions,
    RefusalOptions,
)
from widen.model.keyword_options import declared
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.evolution.plan import Plan
    from widen.ingestion.result import IngestResult
    from widen.log.log_store import LogStore
    from widen.sources.file_comparison import FileComparison


@dataclass(frozen=True, slots=True)
class LoadChoices:
    """How a load is verified, and whether it goes on with new files."""

    verify: Annotated[
        bool, typer.Option("--verify", help="Rebuild every record from the table and compare it with the source.")
    ] = False
    verify_share: Annotated[
        float | None,
        typer.Option("--verify-share", metavar="SHARE", min=0, max=1, help="Verify a share of the records, e.g. 0.1."),
    ] = None
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep ingesting new files until interrupted; needs --checkpoint.")
    ] = False
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="DIR", help="The directory that records the progress of the stream."),
    ] = None
    every: Annotated[float, typer.Option("--every", min=0, help="How often to look for new files, in seconds.")] = 5


def ensure_options_valid(source: Sequence[str], into: str | None, options: Mapping[str, Any], **how: Any) -> None:
    """Check the options and places of an ingestion before Spark starts, which takes seconds.

    Args:
        how: Arguments of `widen.ingestion.options.check_places`.
    """
    from widen.ingestion.options import check_options, check_places, parse_keys, parse_options

    options = {**options, "layout_of": None}  # only a session may reach that table
    if into is not None:
        check_options(source, into, options, **how)
        return
    _, policy = parse_options(options)
    parse_keys(options, policy)
    check_places(source, None, options, **how)


def ingest_command(
    source: shared_options.Sources,
    into: shared_options.Into,
    gate: GateOptions,
    choices: LoadChoices,
    following: FollowOptions,
    sinks: shared_options.EventSinkOptions,
    call: shared_options.CallOptions,
    options: RecordOptions,
    dry_run: DryRun = False,
    markdown: Markdown = False,
) -> None:
    """Write the records of a source to a table. The schema evolves to fit them, in the same commit."""
    from widen.ingestion.interval import ingest
    from widen.ingestion.options import parse_limits

    if dry_run:
        _ensure_plannable(choices, following, gate)
        settings = {**options, **{name: value for name, value in gate.items() if name != "plan_hash"}}
        _show_plan(source, into, None, settings, call, to_form(call.json, markdown))
        return
    if markdown:
        raise OptionMissing(option="--dry-run", expected="--markdown needs it.")
    shared: dict[str, Any] = {
        **options,
        "verify": choices.verify_share or choices.verify,
        "storage_options": call.storage,
    }
    report, follows = partial(report_result, into, call.json), choices.follow or following["once"]
    limits: dict[str, Any] = {name: gate.get(name) for name in declared(LimitOptions)}
    alone = {"--plan-hash": gate["plan_hash"], "--new": gate["new"] or None, **_given_with_new(gate)}
    bounds = {"--max-files": following["max_files"], "--max-bytes": following["max_bytes"]}
    ensure_options_apply(alone, {"--checkpoint": choices.checkpoint}, follows=follows)
    for option, value in bounds.items():
        if value is not None and not (follows or gate["new"]):
            raise OptionMissing(option="--new", expected=f"{option} needs it, or --follow or --once.")
    parse_limits(**limits)
    ensure_new(gate["new"], _given_with_new(gate))
    if follows and choices.checkpoint is None:
        raise OptionMissing(option="--checkpoint", expected="Name a directory that outlives the process.")
    ensure_options_valid(source, into, {**shared, "new": gate["new"]}, checkpoint=choices.checkpoint)
    tables = [(place, shared["catalog"]) for place in (into, shared["quarantine"])]
    shared["on_event"] = sinks.listener([each for each in source if each != "-"], tables)
    if follows:
        assert choices.checkpoint is not None
        shared |= {**limits, **following, "every_seconds": choices.every}
        follow_source(source, into, choices.checkpoint, report, shared, call.engine_name)
        return
    with progress("looking at the table") as update:
        spark = output.choose_session(call.engine_name, update)
        sizes: dict[str, Any] = {name: value for name, value in following.items() if name != "once"}
        result = ingest(source, into, spark=spark, progress=update, **gate, **sizes, **shared)
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
        note(f"{counted} in quarantine, because {why}: see {result.quarantine}", "yellow")
    if result.unavailable:
        counted = text_format.count_noun(sum(result.unavailable.values()), "value")
        fields = ", ".join(f"{name} ({count:,})" for name, count in result.unavailable.items())
        state = "null" if result.keys is None else "as in the row before"
        note(
            f"{counted} that the source did not send, because a change left them as they were: {state} in {fields}",
            "yellow",
        )
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


def _ensure_plannable(choices: LoadChoices, following: Mapping[str, Any], gate: Mapping[str, Any]) -> None:
    """Check that no option is given that a dry run cannot answer.

    Raises:
        OptionConflict: one is.
    """
    given = {
        "--follow": choices.follow,
        "--once": following["once"],
        "--verify": choices.verify,
        "--verify-share": choices.verify_share,
        "--plan-hash": gate["plan_hash"],
        "--max-files": following["max_files"],
        "--max-bytes": following["max_bytes"],
    }
    for option, value in given.items():
        if value:
            raise OptionConflict(option=option, other_option="--dry-run", expected="Omit one of them.")


TOML = ".toml"


def plan_command(
    source: shared_options.PlannedSources,
    gate: RefusalOptions,
    call: shared_options.CallOptions,
    options: RecordOptions,
    into: shared_options.PlannedInto = None,
    contract: shared_options.ContractFile = None,
    markdown: Markdown = False,
    readers: shared_options.OtherReaders = None,
) -> None:
    """Show what an ingestion would change. Exit codes: 0 nothing, 2 changes, 3 refused or quarantined, 1 an error."""
    form, settings = to_form(call.json, markdown), {**options, **gate}
    if into is None and contract is None and len(source) == 1 and source[0].endswith(TOML):
        defaults = {name: option.default for name, (_, option) in declared(PlanOptions).items()}
        for name, value in settings.items():
            if value != defaults[name]:
                expected = f"Must be in {source[0]}, where each load has its own."
                raise typer.BadParameter(expected, param_hint=f"--{name.replace('_', '-')}")
        show_run_plan(source[0], None, 1, call, form, readers=to_names(readers) or None)
        return
    _show_plan(source, into, contract, {**settings, "readers": to_names(readers) or None}, call, form)


def _show_plan(
    source: Sequence[str],
    into: str | None,
    contract: Path | None,
    settings: Mapping[str, Any],
    call: shared_options.CallOptions,
    form: PlanForm,
) -> None:
    from widen.ingestion.interval import check_contract, plan, read_contract
    from widen.ingestion.options import parse_limits
    from widen.report import markdown, terminal

    if into is None and contract is None:
        raise typer.BadParameter("Name the table, or a contract; or a file of loads, NAME.toml.", param_hint="--into")
    shared: dict[str, Any] = {**settings, "storage_options": call.storage}
    ensure_new(shared["new"], _given_with_new(shared))
    parse_limits(**{name: shared[name] for name in declared(LimitOptions)})
    if contract is not None:
        read_contract(contract)
    ensure_options_valid(source, into, shared, writes=False)
    planned = report = None
    with progress("looking at the table") as update:
        shared |= {"spark": output.choose_session(call.engine_name, update), "progress": update}
        if contract is not None:
            reading = {name: shared[name] for name in declared(ContractOptions) if name in shared}
            report = check_contract(source, contract, **reading)
        if into is not None:
            planned = plan(source, into, **shared)
    output.note_engine(shared["spark"])
    if form is PlanForm.JSON:
        shown = {} if planned is None else {"hash": planned.hash, **planned.to_value()}
        show_json({**shown, **({} if report is None else {"contract": report.to_value()})})
    elif form is PlanForm.MARKDOWN and planned is not None:
        show_markdown(markdown.plan_markdown(planned, str(into)))
    elif planned is not None:
        show(planned_parts(planned))
    if report is not None and form is not PlanForm.JSON:
        show(terminal.contract_parts(report))
    if planned is not None:
        _note_table(planned)
        _warn_unmatched(planned)
    breaks = report is not None and bool(report.breaches)
    end_with("refused" if breaks else "nothing" if planned is None else planned.outcome.value)


_LEFT_OUT_AS_BAD = (
    "left out, because they could not be read before, or are parked (to load them, run without --skip-bad-files and "
    "--park-over-limit):"
)


def _note_files(compared: FileComparison) -> None:
    """Tell which files the table had loaded before."""
    from widen.report import text_format
    from widen.sources.file_comparison import NO_FILES, FileState

    out = compared.skipped_states
    known, changed, bad = (compared.of(state) for state in (FileState.KNOWN, FileState.CHANGED, FileState.BAD))
    loaded = sum((compared.of(state) for state in out if state != FileState.BAD), NO_FILES)
    if compared.parked:
        counted = text_format.count_noun(compared.parked.count, "message")
        note(f"left in the queue, because no object of the source is named: {counted}: {compared.parked}", "yellow")
    if compared.audited:
        note(f"listed everything in {text_format.printable(str(compared.audited))}", "dim")
    for files, words, style in (
        (loaded, "left out, because the table has loaded", "dim"),
        (bad if FileState.BAD in out else NO_FILES, _LEFT_OUT_AS_BAD, "dim"),
        (compared.late, "loaded late, after newer files", "dim"),
        (compared.after, "listed only what comes by name after", "dim"),
        (compared.missed, "found by the audit only:", "yellow"),
        (compared.waiting, "left to the next load, because this one is full", "dim"),
        (NO_FILES if FileState.KNOWN in out else known, "warning: loaded again; --new leaves out", "bold red"),
        (
            NO_FILES if FileState.CHANGED in out else changed,
            "warning: loaded as a whole, although the table has an earlier state of",
            "bold red",
        ),
    ):
        if files:
            counted = text_format.count_noun(files.count, "file")
            note(f"{words} {counted}: {text_format.printable(str(files))}", style)


def _note_table(planned: Plan) -> None:
    from widen.ingestion.new_files import name_some
    from widen.report import text_format

    for each in planned.read_as:
        note(f"read as {each.form}: {text_format.printable(name_some(each.files))}", "dim")
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


def _given_with_new(gate: Mapping[str, Any]) -> dict[str, object]:
    """Return the options that need ``--new``, with their values if they are given."""
    options = {name: option for name, (_, option) in declared(GateOptions).items() if name in _WITH_NEW}
    given = {name: gate.get(name, option.default) for name, option in options.items()}
    return {
        f"--{name.replace('_', '-')}": None if value == options[name].default else value
        for name, value in given.items()
    }


_WITH_NEW = ("new_by", "changed", "order", "audit", "queue", "park_over_limit")


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
    """Ingest what arrives at a source until an interrupt, or once all that exists now is ingested."""
    from widen.ingestion.stream import ingest_stream
    from widen.log.log_store import LogStore
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
            for _ in wait_until_stopped(stream, stop, lambda: update("finishing the interval")):
                count += reports.show()
    output.note_engine(spark, says_local=bool(count))
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
    """Brings reports from a server of Spark Connect, where the intervals run, to the client."""

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


class Running(Protocol):
    """Work in other threads or processes."""

    def wait(self, timeout_seconds: int, /) -> bool: ...

    def stop(self) -> object: ...


def wait_until_stopped(running: Running, stop: Event, on_stop: Callable[[], object]) -> Iterator[None]:
    """Wait for work, and end it if that is requested; yield every second, and once when it has ended."""
    while not running.wait(1):
        if stop.is_set():
            on_stop()
            running.stop()
        yield
    yield


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
