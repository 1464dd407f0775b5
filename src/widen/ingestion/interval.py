"""Ingest one interval: read the source, observe, plan, write and commit.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec

from widen.batches.open_source import AnySource, BatchReader, IngestSource
from widen.batches.text_batch import Batch, ContractReport
from widen.errors import InvalidConfig, InvalidOption, OptionConflict, OptionMissing, SourceContentError, TooManyKeys
from widen.errors.tables import open_failure
from widen.evolution.key_rules import ensure_rules_apply
from widen.evolution.plan import Plan, mark_returning
from widen.files.pandas_import import without_pandas
from widen.ingestion.commit_batch import (
    AfterCommit,
    BatchRequest,
    WrittenBatch,
    commit_batch,
    commit_good_files,
    ensure_has_records,
    ensure_has_texts,
    ensure_matched,
    ensure_paths_hide_nothing,
    leave_out_files,
    parse_share,
    persist_if_reread,
    plan_batch,
)
from widen.ingestion.ingest_options import ContractOptions, IngestOptions, PlanOptions
from widen.ingestion.new_files import Changed, FileChoice, is_by_content, open_batch, parse_changed
from widen.ingestion.options import CheckedOptions, check_options, check_places, parse_limits, parse_options
from widen.ingestion.result import IngestResult
from widen.model.argument_types import check_arguments, parse_choice
from widen.model.keyword_options import Unpack
from widen.model.transaction_id import ensure_transaction
from widen.model.types import StructType
from widen.report.reader_predictions import Reader, choose_readers, plan_readers
from widen.sources.event_queue import Arrivals, open_queue, received
from widen.sources.file_comparison import parse_audit_ms
from widen.sources.find_files import BatchSize
from widen.sources.listing import hash_files, to_paths, unchanged_files
from widen.sources.memory_source import HeldSource, Nan, StagedSource, StagingOptions, staged_source
from widen.sources.places import to_local
from widen.sources.remote_files import is_store_folder, is_store_url
from widen.spark.engine import READS, SOURCE_OPTIONS, Session, is_local, open_session, open_session_here, require_spark
from widen.spark.session import with_store_settings
from widen.spark.spark_types import DataFrame
from widen.targets.table_format import IngestTarget, TransactionId, after_commit


@check_arguments
def plan(source: AnySource, into: str | PathLike[str], **options: Unpack[PlanOptions]) -> Plan:
    """Return the plan of an ingestion; nothing is written.

    Args:
        source: As in `ingest`. A reader or an iterator is read, so that nothing is left of it.
        into: The table; it does not have to exist.

    Raises:
        SourceError: the source cannot be used, it has no records, or a file changed while it was read.
        FilesChanged: files have changed since they were loaded, and ``changed`` is ``fail``.
        InvalidOption: an argument cannot be used.
        UnmatchedFields: masks, exclusions, or with ``strict`` other options, name fields that do not exist.
        TableError: the table cannot be read or written.

    Source: docs/evolution-rules.md#dry-run
    """
    _ensure_parks_new(options)
    names = None if options["readers"] is None else list(options["readers"])
    checked = check_options(source, into, options, writes=False)
    readers = () if names is None else choose_readers(checked.table.format, names)
    reader = replace(checked.reader, skips_bad_files=options["skip_bad_files"] or options["park_over_limit"])
    checked = replace(checked, reader=reader)
    with _staged(source, reader, options) as staged:
        return _plan(staged, checked, options, readers)


def _plan(source: IngestSource, checked: CheckedOptions, options: Mapping[str, Any], readers: Sequence[Reader]) -> Plan:
    policy, keys = checked.policy, checked.keys
    session = _open_session(source, options)
    target = checked.table.open(policy).with_keys(keys)
    choice = _build_choice(session, source, target, checked, options)
    options["progress"]("looking at the source")
    with received(choice.arrivals):
        batch = open_batch(checked.reader, session, source, choice)
    if batch is None:
        return _with_readers(Plan((), target.schema or StructType()), target, readers)
    ensure_paths_hide_nothing(batch, policy)
    ensure_has_texts(batch, keys)
    limits = parse_limits(options["max_corrupt"], options["max_quarantined"], options["fail_on"])
    batch, planned = _plan_good_files(
        batch,
        target.with_file_fields(batch.names),
        BatchRequest(table=checked.table, policy=policy, is_strict=options["strict"], limits=limits, keys=keys),
        choice,
        skips=checked.reader.skips_bad_files,
        parks=options["park_over_limit"],
    )
    ensure_has_records(batch, planned)
    ensure_matched(planned.plan, policy, is_strict=options["strict"])
    if keys is not None:
        ensure_rules_apply(planned.plan.schema, keys)
    keyed_by = "" if keys is None else str(keys)
    plan = mark_returning(planned.plan, target.dropped_columns)
    excess = limits.find_excess(plan, planned.result.seen)
    plan = replace(plan, bad_files=batch.bad_files, over_limits=excess)
    plan = replace(plan, source_table=batch.source_table, read_as=batch.read_as, keyed_by=keyed_by)
    return _with_readers(plan, target, readers)


def _with_readers(plan: Plan, target: IngestTarget, readers: Sequence[Reader]) -> Plan:
    return replace(plan, readers=plan_readers(target.trait_change(plan), readers)) if readers else plan


def _plan_good_files(
    batch: Batch, target: IngestTarget, request: BatchRequest, choice: FileChoice, *, skips: bool, parks: bool
) -> tuple[Batch, WrittenBatch]:
    """Return what a load would write, and from which files, without the files that would make it fail.

    The files are found as `commit_good_files` finds them.
    """

    def observe(batch: Batch) -> WrittenBatch:
        with unchanged_files(batch.spark, batch.files):
            observed = batch.prior_observation(target.schema, target.policy)
            return plan_batch(batch, target, observed)

    if parks and batch.files:
        batch = leave_out_files(batch, request, target, choice.open_some, parks=True)
    try:
        return batch, observe(batch)
    except (TooManyKeys, SourceContentError):
        if parks or not skips or not batch.files:
            raise
    batch = leave_out_files(batch, request, target, choice.open_some, parks=False)
    return batch, observe(batch)


@check_arguments
def ingest(source: AnySource, into: str | PathLike[str], **options: Unpack[IngestOptions]) -> IngestResult:
    """Write all records of a source to a table in one commit, and evolve its schema where needed.

    Args:
        source: Files, directories or patterns, or ``-`` for standard input; a DataFrame of Spark, pandas or polars; a
            table or reader of Arrow, or anything with ``__arrow_c_stream__``; a relation or cursor of DuckDB; or
            records as dicts, in a list or an iterator. Data in memory is always new: the table records no files of it.
        into: The table; it is created if it does not exist.

    Raises:
        SourceError: the source cannot be used, it has no records, or a file changed while it was read; the table is
            untouched.
        FilesChanged: files have changed since they were loaded, and ``changed`` is ``fail``; the table is untouched.
        EvolutionRefused: the policy forbids the changes that the batch needs; the table is untouched.
        EngineUnsuitable: the work needs Spark, and ``engine`` is ``local``; the table is untouched.
        UnmatchedFields: masks, exclusions, or with ``strict`` other options, name fields that do not exist; the table
            is untouched.
        LimitExceeded: the batch is over a limit; the table is untouched.
        PlanChanged: the hash of the plan is not ``plan_hash``; the table is untouched.
        InvalidOption: an argument cannot be used, or ``into`` exists and is not a table.
        ContentionError: concurrent commits kept conflicting; nothing is visible.
        CommitUnknown: the outcome of the commit is unknown.
        PostCommitFailed: the interval is committed, but ``on_event`` or the verification raised an error. With ``new``
            or ``txn`` the call can be repeated: it does not load the records again.
        TableError: the table cannot be read or written; nothing is visible.

    Source: docs/evolution-rules.md#one-interval
    """
    _ensure_parks_new(options)
    size = BatchSize.of(options["max_files"], options["max_bytes"])
    if size.is_limited and not options["new"]:
        expected = "max_files and max_bytes need new=True (--new): they say how many of the new files a load takes."
        raise OptionMissing(option="new", expected=expected)
    interval = None if options["txn"] is None else _to_interval(*options["txn"])
    checked = check_options(source, into, options)
    reader = replace(checked.reader, skips_bad_files=options["skip_bad_files"] or options["park_over_limit"])
    with without_pandas(), _staged(source, reader, options) as staged:
        return _ingest(staged, replace(checked, reader=reader), interval, options)


def _ensure_parks_new(options: Mapping[str, Any]) -> None:
    if options["park_over_limit"] and not options["new"]:
        raise OptionMissing(option="new", expected="park_over_limit needs new=True (--new).")


def _ingest(
    source: IngestSource, checked: CheckedOptions, interval: TransactionId | None, options: Mapping[str, Any]
) -> IngestResult:
    reader, parks, progress = checked.reader, options["park_over_limit"], options["progress"]
    session = _open_session(source, options)
    request = BatchRequest(
        table=checked.table,
        policy=checked.policy,
        plan_hash=options["plan_hash"],
        interval=interval,
        progress=progress,
        quarantine=checked.quarantine,
        is_strict=options["strict"],
        limits=parse_limits(options["max_corrupt"], options["max_quarantined"], options["fail_on"]),
        is_new=options["new"],
        keys=checked.keys,
    )
    after, target = AfterCommit(parse_share(options["verify"]), options["on_event"]), request.open_target()
    choice = _build_choice(session, source, target, checked, options)
    with (
        received(choice.arrivals),
        after.publish_failure(request.table.location),
        persist_if_reread(source, target, after) as persisted,
    ):
        progress("looking at the source")

        def choose_files(table: IngestTarget) -> Batch | None:
            choice.start(table)
            return open_batch(reader, session, persisted, choice)

        if reader.skips_bad_files:
            result = commit_good_files(choose_files, choice.open_some, request, target, after, parks=parks)
        else:
            result = commit_batch(choose_files, request, target, after)
        if result is None:
            target = choice.target
            choice.acknowledge()
            choice.note_audits(target)
            plan = Plan((), target.schema or StructType())
            return IngestResult(target.version, plan, compared=choice.comparison, is_unchanged=True)
        if result.version is not None:
            with after_commit(request.table.location, result.version):
                choice.acknowledge()
        if choice.comparison.audited and (now := request.open_target()).version == result.version:
            choice.note_audits(now)
        return replace(result, compared=choice.comparison)


def _open_session(source: IngestSource, options: Mapping[str, Any]) -> Session:
    """Return the session to work in; one that needs no Spark, where that is certain to be enough so far."""
    spark, storage_options = options["spark"], options["storage_options"]
    if isinstance(source, (StagedSource, HeldSource)):
        SOURCE_OPTIONS.set(storage_options or {})
        return open_session_here(spark, options["engine"], source.size_bytes)
    places = () if isinstance(source, DataFrame) else to_paths(source)
    given = source.sparkSession if isinstance(source, DataFrame) and spark is None else spark
    session = open_session(given, options["engine"])
    if not is_local(session):
        return with_store_settings(require_spark(session, READS), places, storage_options)
    SOURCE_OPTIONS.set(storage_options or {})
    session.prepare = partial(with_store_settings, places=places, storage_options=storage_options)
    if any(to_local(place) is None and not is_store_url(place) for place in places):
        require_spark(session, "its file systems read sources in other stores")
    return session


def _staged(source: AnySource, reader: BatchReader, options: Mapping[str, Any]) -> AbstractContextManager[IngestSource]:
    """Return a source whose records are in files or in a DataFrame of Spark."""
    nan = parse_choice(Nan, "nan", options["nan"])
    given = StagingOptions(reader.format, reader.options, nan, reader.column_rules, reader.loaded_at)
    return staged_source(source, given)


def _to_interval(app_id: str, number: int) -> TransactionId:
    ensure_transaction("txn", app_id, number)
    return TransactionId(app_id, number)


def _build_choice(
    session: Session, source: IngestSource, target: IngestTarget, checked: CheckedOptions, options: Mapping[str, Any]
) -> FileChoice:
    hashes = partial(hash_files, session) if is_by_content(options["new_by"]) else None
    is_new, changes = options["new"], parse_changed(options["changed"])
    if not is_new and (hashes is not None or changes is not Changed.FAIL):
        option = "changed" if hashes is None else "new_by"
        raise OptionMissing(option="new", expected=f"{option} needs new=True (--new).")
    skips_bad = checked.reader.skips_bad_files
    size = BatchSize(options.get("max_files"), options.get("max_bytes"))
    choice = FileChoice(target, is_new=is_new, changed=changes, skips_bad=skips_bad, hash_files=hashes)
    by_name, audit_ms = _parse_order(options["order"], session, options), _parse_audit(options)
    if options["queue"] is not None:
        choice.arrivals = _open_arrivals(source, session, options)
    return replace(
        choice, own=checked.places, size=size, by_name=by_name, audit_ms=audit_ms, progress=options["progress"]
    )


def _parse_order(order: str, session: Session, options: Mapping[str, Any]) -> bool:
    """Return whether object stores are listed from the last loaded name on.

    Raises:
        InvalidOption: it is neither any nor name, or cannot apply.
        OptionMissing: not only new files are loaded.
    """
    if order not in ("any", "name"):
        raise InvalidOption(option="order", value=order, expected="Must be any or name.")
    if order == "any":
        return False
    if not options["new"]:
        raise OptionMissing(option="new", expected="order needs new=True (--new).")
    if options["new_by"] != "path" or not is_local(session):
        expected = "It needs files that are compared by path, and that are listed without Spark (--engine local)."
        raise InvalidOption(option="order", value=order, expected=expected)
    return True


def _parse_audit(options: Mapping[str, Any]) -> int | None:
    """Return after how many ms everything is listed again; None for never.

    Raises:
        OptionMissing: everything is listed in any case.
    """
    audit = options["audit"]
    if audit is None:
        return None
    if options["order"] != "name" and options["queue"] is None:
        raise OptionMissing(option="order", expected='audit needs order="name" (--order name), or queue.')
    return parse_audit_ms(audit)


def _are_in_s3(places: Sequence[str]) -> bool:
    return bool(places) and all(place.lower().startswith("s3") and is_store_folder(place) for place in places)


def _open_arrivals(source: IngestSource, session: Session, options: Mapping[str, Any]) -> Arrivals:
    """Return what a queue says has arrived in the source.

    Raises:
        InvalidOption: the name does not name a queue, or events cannot say what is new in the source.
        OptionConflict: another option says which files are looked at.
        OptionMissing: not only new files are loaded.
    """
    name, option = options["queue"], "queue"
    if not options["new"]:
        raise OptionMissing(option="new", expected=f"{option} needs new=True (--new).")
    if options["order"] != "any":
        raise OptionConflict(option=option, other_option="order", expected="Events name the objects, in any order.")
    if options.get("txn") is not None:
        expected = "A batch that is not written again would lose its messages; the record of loads knows its objects."
        raise OptionConflict(option=option, other_option="txn", expected=expected)
    places = [] if isinstance(source, (DataFrame, StagedSource, HeldSource)) else to_paths(source)
    if options["new_by"] != "path" or not is_local(session) or not _are_in_s3(places):
        expected = (
            "It needs folders of S3 as its source, without patterns, and files that are compared by path and read "
            "without Spark (--engine local)."
        )
        raise InvalidOption(option=option, value=name, expected=expected)
    return Arrivals(open_queue(name, options["storage_options"] or {}), places)


# Check a source against a contract; nothing is written.
#
# Source: docs/guide/gate.md#contract


@check_arguments
def check_contract(
    source: AnySource,
    contract: Mapping[str, Any] | str | PathLike[str],
    **options: Unpack[ContractOptions],
) -> ContractReport:
    """Return where the records of a source break a contract.

    Args:
        source: As in `ingest`.
        contract: A JSON Schema as `Table.contract` gives it, or a file with one; or a document of the Open Data
            Contract Standard, a file ``NAME.odcs.yaml``. If it describes several tables, ``#`` and the name of one
            follow.

    Raises:
        InvalidConfig: the file cannot be read, or is not JSON.
        InvalidOption: the contract uses what is not supported.
        SourceError: the source cannot be used.
        CorruptFile: a file of the source cannot be read.
    """
    from widen.json.contract import ensure_contract

    schema, unchecked = (contract, ()) if isinstance(contract, Mapping) else read_contract(contract)
    ensure_contract(schema)
    reader, policy = parse_options(options)
    check_places(source, None, options)
    with _staged(source, reader, options) as staged:
        session = _open_session(staged, options)
        options["progress"]("looking at the source")
        batch = reader.open(session, staged)
        with unchanged_files(session, batch.files):
            report = batch.check_contract(schema, policy)
    return msgspec.structs.replace(report, unchecked=list(unchecked))


def read_contract(file: str | PathLike[str]) -> tuple[Any, Sequence[str]]:
    """Return the contract in a file as a JSON Schema, and what it demands that a check of records does not cover.

    Raises:
        InvalidConfig: the file cannot be read, or is neither JSON nor a document of the Open Data Contract Standard.
    """
    from widen.json.contract import is_odcs, read_odcs

    if is_odcs(fspath(file)):
        document = read_odcs(fspath(file))
        return document.schema, document.unchecked
    try:
        return msgspec.json.decode(Path(file).read_bytes()), ()
    except msgspec.DecodeError as error:
        raise InvalidConfig(
            place=str(file), reason=str(error), expected="Must be a JSON Schema, or end in .odcs.yaml."
        ) from error
    except (OSError, ValueError) as error:
        expected = "Must be a file of `widen contract`."
        raise InvalidConfig(place=str(file), reason=open_failure(error), expected=expected) from error
