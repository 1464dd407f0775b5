"""The commands that take a source: ``ingest`` and ``plan``.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from widen.cli import follow, lazy_imports, shared_options, spark_session
from widen.cli.follow import ensure_options_apply, follow_source, to_event_file
from widen.cli.ingest_options import ensure_options_valid, with_ingest_options
from widen.cli.output import note, show, show_json
from widen.cli.step_display import progress
from widen.errors import InvalidOption, OptionMissing

if TYPE_CHECKING:
    from rich.console import RenderableType

    from widen.ingestion import IngestResult
    from widen.ingestion.new_files import FileComparison
    from widen.planning.evolution.plan import Plan
    from widen.spark.text.contract_check import ContractReport

CHANGES, KEPT_OUT = 2, 3
"""The exit codes of a plan: it has changes that the mode accepts; it refuses changes or keeps values out."""


@with_ingest_options()
def ingest(
    source: shared_options.Sources,
    into: shared_options.Into,
    options: Mapping[str, Any],
    new: shared_options.OnlyNew = False,
    new_by: shared_options.FilesBy = shared_options.NewBy.PATH,
    changed: shared_options.ChangedFiles = shared_options.Changed.FAIL,
    max_corrupt: shared_options.MaxCorrupt = None,
    max_kept_out: shared_options.MaxKeptOut = None,
    fail_on: shared_options.FailOn = None,
    park_over_limit: shared_options.ParkOverLimit = False,
    verify: bool = typer.Option(
        False, "--verify", help="Rebuild every record from the table and compare it with the source."
    ),
    verify_share: shared_options.VerifyShare = None,
    plan_hash: shared_options.PlanHash = None,
    events: shared_options.Events = None,
    follow: follow.Follow = False,
    once: follow.Once = False,
    checkpoint: follow.Checkpoint = None,
    every: follow.Every = 5,
    max_files: follow.MaxFiles = None,
    max_bytes: follow.MaxBytes = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Write the records of a source to a table. The schema evolves to fit them, in the same commit."""
    settings = shared_options.storage(storage_option)
    arguments = {**options, "verify": verify_share or verify, "storage_options": settings}
    report = partial(_report_result, into, json)
    limits = {"--checkpoint": checkpoint, "--max-files": max_files, "--max-bytes": max_bytes}
    gate = {"max_corrupt": max_corrupt, "max_kept_out": max_kept_out, "fail_on": fail_on and fail_on.value}
    alone = {
        "--plan-hash": plan_hash,
        "--new": new or None,
        "--park-over-limit": park_over_limit or None,
        "--new-by": new_by.value if new_by is shared_options.NewBy.CONTENT else None,
        **{f"--{key.replace('_', '-')}": gate[key] for key in gate},
    }
    ensure_options_apply(alone, limits, follows=follow or once)
    lazy_imports.parse_limits(**gate)
    if park_over_limit and not new:
        raise InvalidOption(option="--park-over-limit", value=True, expected="Applies to --new only.")
    if (follow or once) and checkpoint is None:
        raise OptionMissing(option="--checkpoint", expected="Name a directory that outlives the process.")
    ensure_options_valid(source, into, options, settings, checkpoint=checkpoint, is_new=new, follows=follow or once)
    arguments["on_event"] = to_event_file(events)
    if follow or once:
        assert checkpoint is not None
        arguments |= {"max_files": max_files, "max_bytes": max_bytes, "every_seconds": every, "once": once}
        follow_source(source, into, checkpoint, report, arguments)
        return
    with progress("starting Spark") as update:
        spark = update.watch(spark_session.spark_session())
        arguments |= {
            **gate,
            "new": new,
            "new_by": new_by.value,
            "park_over_limit": park_over_limit,
            "changed": changed.value,
            "plan_hash": plan_hash,
            "progress": update,
        }
        result = lazy_imports.ingest(source, into, spark=spark, **arguments)
    if not report(result):
        raise typer.Exit(1)


def _report_result(into: str, as_json: bool, result: IngestResult) -> bool:
    """Show the result of an interval; return False if the verification found a difference."""
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
        counted = lazy_imports.text_format.count_noun(result.quarantined, "record")
        note(f"{counted} in quarantine, because fixed columns cannot hold them: see {result.quarantine}")
    parked = [file for file in result.bad_files if file.is_parked]
    for files, words in ((parked, "parked"), ([file for file in result.bad_files if not file.is_parked], "skipped")):
        if files:
            counted = lazy_imports.text_format.count_noun(len(files), "file")
            note(f"{counted} {words}, and named in the quarantine: see {result.quarantine}", "bold red")
    for name in result.left_out:
        note(f"ignored, because its name is not of the source format: {name}")
    if result.verification is None or result.verification.is_clean:
        return True
    note("some values cannot be rebuilt from the table: keep the source and check the values listed.", "bold red")
    return False


@with_ingest_options()
def plan(
    source: shared_options.Sources,
    options: Mapping[str, Any],
    into: shared_options.PlannedInto = None,
    contract: shared_options.ContractFile = None,
    new: shared_options.OnlyNew = False,
    new_by: shared_options.FilesBy = shared_options.NewBy.PATH,
    changed: shared_options.ChangedFiles = shared_options.Changed.FAIL,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show what an ingestion would change. Exit code: 0, nothing; 2, changes; 3, refused or kept out; 1, an error."""
    if into is None and contract is None:
        raise typer.BadParameter("Name the table, or a contract.", param_hint="--into")
    settings = shared_options.storage(storage_option)
    if contract is not None:
        lazy_imports.read_contract(contract)
    ensure_options_valid(source, into, options, settings, is_new=new, writes=False)
    planned = report = None
    with progress("starting Spark"):
        spark = spark_session.spark_session()
        if contract is not None:
            reading = {name: options[name] for name in ("format", "options", "detect_types", "numbers")}
            report = lazy_imports.check_contract(source, contract, spark=spark, **reading)
        if into is not None:
            options = {
                **options,
                "new": new,
                "new_by": new_by.value,
                "changed": changed.value,
                "storage_options": settings,
            }
            planned = lazy_imports.plan(source, into, spark=spark, **options)
    if json:
        shown = {} if planned is None else {"hash": planned.hash, **planned.to_value()}
        show_json({**shown, **({} if report is None else {"contract": report.to_value()})})
    else:
        show([*_plan_parts(planned), *(() if report is None else lazy_imports.terminal.contract_parts(report))])
    if planned is not None:
        _note_table(planned)
        _warn_unmatched(planned)
    code = _plan_code(planned, report)
    if code:
        raise typer.Exit(code)


def _plan_parts(planned: Plan | None) -> Iterator[RenderableType]:
    if planned is None:
        return
    if planned.is_empty:
        yield Text("Nothing to change.")
    if not planned.is_empty or planned.rescued or planned.quarantined or planned.pending:
        yield from lazy_imports.terminal.plan_parts(planned)
        yield Text(f"hash {planned.hash}", "dim")


def _plan_code(planned: Plan | None, report: ContractReport | None) -> int:
    if (report is not None and report.breaches) or (planned is not None and planned.keeps_values_out):
        return KEPT_OUT
    return CHANGES if planned is not None and not planned.is_empty else 0


_LEFT_OUT_AS_BAD = (
    "left out, because they could not be read before, or are parked (to load them, run without --skip-bad-files and "
    "--park-over-limit):"
)


def _note_files(compared: FileComparison) -> None:
    """Tell which files the table had loaded before."""
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
            counted = lazy_imports.text_format.count_noun(len(paths), "file")
            note(f"{words} {counted}: {lazy_imports.text_format.printable(lazy_imports.name_some(paths))}", style)


def _note_table(planned: Plan) -> None:
    if planned.source_table:
        note(f"the source is read as a table: {lazy_imports.text_format.printable(planned.source_table)}", "dim")


def _warn_unmatched(planned: Plan) -> None:
    for each in planned.unmatched:
        note(f"warning: {lazy_imports.text_format.printable(str(each))}", "bold red")


def _result_parts(result: IngestResult, into: str) -> Iterator[RenderableType]:
    assert result.version is not None
    yield lazy_imports.terminal.version_line(result.version, into)
    yield Text(
        "  "
        + lazy_imports.text_format.written_text(
            result.records, result.files, result.size_bytes, result.corrupt, result.not_objects
        )
    )
    if result.multi_line is not None:
        place = lazy_imports.text_format.printable(result.multi_line)
        text = f"  {place} begins a record over several lines; load such files with --option multiLine=true"
        yield Text(text, "bold red")
    if result.verification is not None:
        yield Text(f"  verified: {result.verification}", "green" if result.verification.is_clean else "bold red")
        yield from (
            Text(f"  lost: {lazy_imports.text_format.printable(place)}", "red") for place in result.verification.places
        )
    yield from lazy_imports.terminal.plan_parts(result.plan)
