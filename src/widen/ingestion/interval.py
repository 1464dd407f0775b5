"""Ingest one interval: read the source, observe, plan, write and commit.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec

from widen.batches.open_source import IngestSource
from widen.batches.text_batch import Batch, ContractReport
from widen.errors import InvalidConfig, InvalidOption, OptionMissing
from widen.errors.tables import open_failure
from widen.evolution.key_rules import ensure_rules_apply
from widen.evolution.plan import REPLAY_PREFIX, Plan, mark_returning
from widen.iceberg.catalog import CatalogSource
from widen.ingestion.commit_batch import (
    AfterCommit,
    BatchRequest,
    OnEvent,
    commit_batch,
    commit_good_files,
    ensure_has_records,
    ensure_has_texts,
    ensure_matched,
    ensure_paths_hide_nothing,
    parse_share,
    persist_if_reread,
    plan_batch,
)
from widen.ingestion.new_files import Changed, FileChoice, is_by_content, open_batch, parse_changed
from widen.ingestion.options import check_places, parse_keys, parse_limits, parse_options, to_quarantine
from widen.ingestion.result import IngestResult
from widen.json.contract import ensure_contract, is_odcs, read_odcs
from widen.model.argument_types import check_arguments
from widen.model.display import Progress, no_progress
from widen.model.types import StructType
from widen.sources.listing import hash_files, to_paths, unchanged_files
from widen.sources.places import to_local
from widen.sources.remote_files import is_store_url
from widen.spark.engine import READS, SOURCE_OPTIONS, LocalSession, Session, is_local, open_session, require_spark
from widen.spark.session import with_store_settings
from widen.spark.spark_types import DataFrame, SparkSession
from widen.targets import find_table
from widen.targets.table_format import IngestTarget, TransactionId


@check_arguments
def plan(
    source: IngestSource,
    into: str | PathLike[str],
    *,
    new: bool = False,
    new_by: str = "path",
    changed: str = "fail",
    to: str | None = None,
    catalog: CatalogSource | None = None,
    partition_by: Iterable[str] | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    engine: str | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    detect_types: bool = False,
    partition_folders: bool = True,
    source_columns: bool = False,
    skip_bad_files: bool = False,
    evolve: str | None = None,
    enable_type_widening: bool | None = None,
    pins: Mapping[str, str] | None = None,
    config: str | PathLike[str] | None = None,
    exclude: Iterable[str] | None = None,
    mask: Iterable[str] | None = None,
    allow_unmatched: bool | None = None,
    no_stats: Iterable[str] | None = None,
    detect_dates: bool | Iterable[str] | None = None,
    detect_maps: bool | None = None,
    epoch_unit: Mapping[str, str] | None = None,
    max_columns: int | None = None,
    max_record_size: int | str | None = None,
    max_keys: int | None = None,
    numbers: str | None = None,
    names: str | None = None,
    allow_nan: bool | None = None,
    quarantine: str | PathLike[str] | None = None,
    samples: str | None = None,
    strict: bool = False,
    layout_of: str | PathLike[str] | None = None,
    envelope: str | Mapping[str, Any] | None = None,
    key: Sequence[str] | None = None,
    sequence_by: str | None = None,
    delete_when: str | None = None,
    missing: str | None = None,
    history: bool | None = None,
) -> Plan:
    """Return the plan of an ingestion; nothing is written.

    The arguments that are not listed are documented in `ingest`.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        into: The table; it does not have to exist.
        storage_options: Settings and credentials of the store of the table, and of a source in S3.
        spark: The session to work in; by default the active one, else a local one.

    Raises:
        SourceError: the source cannot be used, it has no records, or a file changed while it was read.
        FilesChanged: files have changed since they were loaded, and ``changed`` is ``fail``.
        InvalidOption: an argument cannot be used.
        UnmatchedFields: masks, exclusions, or with ``strict`` other options, name fields that do not exist.
        TableError: the table cannot be read or written.

    Source: docs/evolution-rules.md#dry-run
    """
    reader, policy = parse_options(locals(), storage_options)
    places = () if isinstance(source, DataFrame) else to_paths(source)
    table = find_table(into, storage_options, to=to, catalog=catalog, partition_by=partition_by, branch=branch)
    kept_in = to_quarantine(quarantine, table)
    own = check_places(source, table, quarantine=kept_in, spark=spark, is_new=new, writes=False)
    keys = parse_keys(locals(), policy)
    session = _open_session(source, places, storage_options, spark=spark, engine=engine)
    target = table.open(policy).with_keys(keys)
    choice = _build_choice(session, target, own, new=new, new_by=new_by, changed=changed, skips_bad=skip_bad_files)
    batch = open_batch(reader, session, source, choice)
    if batch is None:
        return Plan((), target.schema or StructType())
    ensure_paths_hide_nothing(batch, policy)
    ensure_has_texts(batch, keys)
    target = target.with_file_fields(batch.names)
    with unchanged_files(session, batch.files):
        observed = batch.prior_observation(target.schema, target.policy)
        planned = plan_batch(batch, target, observed)
    ensure_has_records(batch, planned)
    ensure_matched(planned.plan, policy, is_strict=strict)
    if keys is not None:
        ensure_rules_apply(planned.plan.schema, keys)
    keyed_by = "" if keys is None else str(keys)
    plan = mark_returning(planned.plan, target.dropped_columns)
    return replace(plan, bad_files=batch.bad_files, source_table=batch.source_table, keyed_by=keyed_by)


@check_arguments
def ingest(
    source: IngestSource,
    into: str | PathLike[str],
    *,
    new: bool = False,
    new_by: str = "path",
    changed: str = "fail",
    max_corrupt: int | str | None = None,
    max_quarantined: int | str | None = None,
    fail_on: str | None = None,
    park_over_limit: bool = False,
    verify: bool | float = False,
    plan_hash: str | None = None,
    txn: tuple[str, int] | None = None,
    to: str | None = None,
    catalog: CatalogSource | None = None,
    partition_by: Iterable[str] | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    engine: str | None = None,
    progress: Progress = no_progress,
    on_event: OnEvent | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    detect_types: bool = False,
    partition_folders: bool = True,
    source_columns: bool = False,
    skip_bad_files: bool = False,
    evolve: str | None = None,
    enable_type_widening: bool | None = None,
    pins: Mapping[str, str] | None = None,
    config: str | PathLike[str] | None = None,
    exclude: Iterable[str] | None = None,
    mask: Iterable[str] | None = None,
    allow_unmatched: bool | None = None,
    no_stats: Iterable[str] | None = None,
    detect_dates: bool | Iterable[str] | None = None,
    detect_maps: bool | None = None,
    epoch_unit: Mapping[str, str] | None = None,
    max_columns: int | None = None,
    max_record_size: int | str | None = None,
    max_keys: int | None = None,
    numbers: str | None = None,
    names: str | None = None,
    allow_nan: bool | None = None,
    quarantine: str | PathLike[str] | None = None,
    samples: str | None = None,
    strict: bool = False,
    layout_of: str | PathLike[str] | None = None,
    envelope: str | Mapping[str, Any] | None = None,
    key: Sequence[str] | None = None,
    sequence_by: str | None = None,
    delete_when: str | None = None,
    missing: str | None = None,
    history: bool | None = None,
) -> IngestResult:
    """Write all records of a source to a table in one commit, and evolve its schema where needed.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        into: The table; it is created if it does not exist.
        new: Whether to load only files that the table has not loaded. The table records the files of every load. If
            there are no new files, nothing is committed.
        new_by: What identifies a file: ``path`` (with size and time of modification), or ``content``: each content is
            loaded once, under any file name. Spark then reads every file once more, up to 2 GB each.
        changed: With ``new``, what to do with files that have another size or time than when they were loaded: ``fail``
            refuses the batch, ``load`` loads the whole file again, ``skip`` leaves it out.
        max_corrupt: The maximum number of lines that are not records, or their maximum share, e.g. ``1%``. A batch over
            a limit is refused as a whole.
        max_quarantined: The maximum number or share of records that go to the quarantine.
        fail_on: Refuse a plan with changes of this grade or a worse one: ``conflict`` (values of types that no single
            column holds) or ``structural`` (scalars become arrays or records, or the reverse).
        park_over_limit: With ``new``, whether to load the other files of a batch that would be refused, because it is
            over a limit, needs changes that the policy forbids, or has files that cannot be read. The quarantine and
            the record of loads name the files that are left out, and later loads with this argument skip them. To load
            them, ingest them by name, or with ``new`` and without this argument.
        verify: Whether to rebuild each record from the table after the commit and compare all its values; or the share
            of the records to verify, between 0 and 1. The rows of a DataFrame source are persisted for that.
        plan_hash: The hash of the expected plan; another plan is refused.
        txn: The id of an application and the version of this batch, a number >= 0 that increases from batch to batch.
            A batch that the table already has is not written again.
        to: The format of the table: ``delta`` or ``iceberg``; by default ``iceberg`` if there is a catalog.
        catalog: The catalog of an Iceberg table: the name of a catalog in the configuration of PyIceberg, a file
            ``NAME.db`` for an embedded catalog, which is created if it does not exist, or a PyIceberg catalog.
        partition_by: The partition fields of a new Iceberg table, e.g. ``["day(placed_at)", "bucket(16, id)"]``.
        branch: The branch of an Iceberg table that gets the rows; by default ``main``. New columns belong to the whole
            table. What ``new`` and ``txn`` have loaded into a branch, the main branch has once it is moved to it.
        storage_options: Settings and credentials of the store of the table, and of a source in S3.
        spark: The session to work in; by default the active one, else what ``engine`` says.
        engine: Where the work is done without a session: ``auto`` in this process where possible, and on Spark
            otherwise; ``local`` in this process, for a source of any size; or ``spark``. ``auto`` is the default,
            unless the environment variable ``WIDEN_ENGINE`` names another one.
        progress: Called with a description of each step.
        on_event: Called with each event of the plan after the commit, then with one for the load; or with one that says
            why the load failed. An error that it raises after the commit is a `PostCommitFailed`.
        format: What the files hold: ``json`` (lines, arrays of records, or one document per file), ``csv``, ``text``,
            ``parquet``, ``avro`` or ``orc``; by default the file names decide. With a DataFrame, ``json`` reads JSON
            from its column ``value``, or from its only column.
        options: Options of the Spark reader, e.g. ``{"sep": ";"}``.
        detect_types: Whether CSV fields and text lines become numbers and booleans where they are written exactly as
            JSON would write them; otherwise they stay strings. 12.50 becomes a number only with ``numbers``.
        partition_folders: Whether each folder ``key=value`` in the path of a file adds a string field to its records,
            also a folder above the given path. If records already have a field ``key``, the field of the folder gets
            another name.
        source_columns: Whether to add the columns ``_source_file`` and ``_loaded_at``.
        skip_bad_files: Whether to leave out files that cannot be loaded (damaged Parquet, truncated gzip, a CSV file
            with another separator, keys that are data) and name them in the quarantine; otherwise such a file is an
            error.
        evolve: ``widen`` changes columns in place where that is exact and otherwise adds columns; ``split`` only adds
            columns; ``freeze`` adds nothing and keeps what does not fit as JSON text; ``fail`` refuses a batch that
            needs changes. The default is ``widen``.
        enable_type_widening: Whether to turn on type widening with the commit, for an existing Delta table without it,
            and the feature ``timestampNtz`` if a new column has times without a time zone. Clients without these table
            features then refuse the table. Tables that an ingestion creates in mode ``widen``
            have it, and Iceberg tables need no switch.
        pins: A mode, ``text``, ``json``, ``map`` or a type for single fields, by their path.
        config: A TOML file with ``evolve`` and the options below; arguments override it.
        exclude: Fields to leave out. Names match without regard to case. A field that neither the table, nor an earlier
            load, nor the batch has is refused.
        mask: Fields whose values are replaced by ``***``, by the same rules. Where the policy expects a record and the
            source has a text, the whole text is masked, since it may hold the field.
        allow_unmatched: Whether ``exclude`` and ``mask`` may name fields that do not exist: for a field that comes and
            goes. The plan and an event then report them.
        no_stats: Fields whose columns get no minimum and no maximum in the log, in footers and in manifests. Masked and
            excluded fields never have them.
        detect_dates: Whether strings that are dates or timestamps become such; or the fields where they do.
        detect_maps: Whether the objects of a new field become maps if they have many keys, few of them in each object,
            with values of one shape. Otherwise each key becomes a column, and the plan says so.
        epoch_unit: The unit of integers that go to a timestamp column, by field path: ``s``, ``ms``, ``us`` or ``ns``;
            by default their size decides.
        max_columns: The maximum number of leaf columns that ingestion may create; further fields are kept as JSON text.
        max_record_size: The maximum size of a record, or of a line of text, after decompression: bytes, or a size such
            as ``64MB``, which is the default. A file with a longer one cannot be read.
        max_keys: The maximum number of keys that the objects of one field may have in a batch; with more, the keys are
            probably data, and the batch is refused. 10,000 by default; it does not apply to maps and in mode freeze.
        numbers: What fractions become: ``exact`` (a double where that is exact, else a decimal; the default),
            ``decimal`` (a decimal with the digits as written, so that 12.50 stays 12.50) or ``double`` (a double; where
            fractions and other numbers meet in a field, they are rounded to doubles, and the plan counts them).
        names: When two names mean one field: ``any-case`` (where they differ in case only, unless the table or a record
            has both; the default) or ``exact``. The table records it for later loads.
        allow_nan: Whether ``NaN``, ``Infinity`` and ``-Infinity`` in JSON are doubles. They are not JSON, so without it
            a record with one is corrupt.
        quarantine: The table for records that violate partition, NOT NULL or CHECK columns; by default next to the
            table, with the suffix ``_quarantine``.
        samples: How plans, events and the log show values of records: ``masked`` (letters as x, digits as 9; the
            default), ``none`` or ``raw``.
        strict: Whether to refuse a batch if ``pins``, ``epoch_unit`` or ``detect_dates`` name a field that neither the
            table nor the batch has, or if a pin contradicts an existing column; otherwise the plan and an event report
            it. With ``strict``, ``allow_unmatched`` has no effect. With ``sequence_by``, also whether to refuse a batch
            if different records of a key have the same sequence, where that decides which is the newest.
        layout_of: A table whose columns a new table begins with, e.g. to build a table again: loading everything at
            once then gives the same layout as one batch after another. It has no effect on a table that exists.
        envelope: ``debezium`` if each document describes the change of a row: the records are then the rows, with the
            operation, the source and the rest of the document in fields such as ``_op``. Or a mapping with the names
            ``after`` and ``before`` of the rows, the path ``op`` of the operation, and which operations are
            ``deletes``. With ``key``, deletions delete, and the log position of Debezium tells what is newer.
        key: The fields that identify a row, e.g. ``["id"]``: a record then replaces the row of its key. They are
            compared by kind and value. Records without a key go to the quarantine.
        sequence_by: With ``key``, the field that says which record of a key is newest: a number, a time or a string.
            Older records change nothing, even if they arrive later. Without it, the last batch wins, and a batch with
            two different records of a key is refused.
        delete_when: With ``key``, the condition for records that delete the row of their key, in Spark SQL over the
            columns of the table, e.g. ``"op = 'd'"``.
        missing: With ``key``, what happens to the fields that a record lacks, or that are null in it: they become
            ``null`` (the default), or ``keep`` the values of the row.
        history: With ``key`` and ``sequence_by``, whether to keep every version of a row, with the columns
            ``_valid_from``, ``_valid_to`` and ``_is_current``. Late records are inserted between the versions, and a
            deletion closes the newest one.

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
    if park_over_limit and not new:
        raise OptionMissing(option="new", expected="park_over_limit needs new=True (--new).")
    reader, policy = parse_options(locals(), storage_options)
    reader = replace(reader, skips_bad_files=skip_bad_files or park_over_limit)
    keys = parse_keys(locals(), policy)
    interval = None if txn is None else _to_interval(*txn)
    places = () if isinstance(source, DataFrame) else to_paths(source)
    table = find_table(into, storage_options, to=to, catalog=catalog, partition_by=partition_by, branch=branch)
    kept_in = to_quarantine(quarantine, table)
    own = check_places(source, table, quarantine=kept_in, spark=spark, is_new=new)
    session = _open_session(source, places, storage_options, spark=spark, engine=engine)
    request = BatchRequest(
        table=table,
        policy=policy,
        plan_hash=plan_hash,
        interval=interval,
        progress=progress,
        quarantine=kept_in,
        is_strict=strict,
        limits=parse_limits(max_corrupt, max_quarantined, fail_on),
        is_new=new,
        keys=keys,
    )
    after, target = AfterCommit(parse_share(verify), on_event), request.open_target()
    skips_bad = reader.skips_bad_files
    choice = _build_choice(session, target, own, new=new, new_by=new_by, changed=changed, skips_bad=skips_bad)
    with after.publish_failure(table.location), persist_if_reread(source, target, after) as persisted:
        progress("looking at the source")

        def choose_files(table: IngestTarget) -> Batch | None:
            choice.target = table
            return open_batch(reader, session, persisted, choice)

        if reader.skips_bad_files:
            result = commit_good_files(choose_files, choice.open_some, request, target, after, parks=park_over_limit)
        else:
            result = commit_batch(choose_files, request, target, after)
        if result is None:
            target = choice.target
            plan = Plan((), target.schema or StructType())
            return IngestResult(target.version, plan, compared=choice.comparison, is_unchanged=True)
        return replace(result, compared=choice.comparison)


def _open_session(
    source: IngestSource,
    places: Sequence[str],
    storage_options: Mapping[str, str] | None,
    *,
    spark: SparkSession | None,
    engine: str | None,
) -> Session:
    """Return the session to work in; one that needs no Spark, where that is certain to be enough so far."""
    given = source.sparkSession if isinstance(source, DataFrame) and spark is None else spark
    session = open_session(given, engine)
    if not isinstance(session, LocalSession) or not is_local(session):
        return with_store_settings(require_spark(session, READS), places, storage_options)
    SOURCE_OPTIONS.set(storage_options or {})
    session.prepare = partial(with_store_settings, places=places, storage_options=storage_options)
    if any(to_local(place) is None and not is_store_url(place) for place in places):
        require_spark(session, "its file systems read sources in other stores")
    return session


def _to_interval(app_id: str, number: int) -> TransactionId:
    # Applications that forgot to set their ids would take the batches of each other for their own. Delta Lake refuses
    # negative numbers, too, and nobody can read a larger one from the log.
    if not app_id or app_id.startswith(_OWN_IDS) or not 0 <= number < 2**63:
        expected = "Must be an id that is not empty and not one of Widen's own, and a number from 0 to 2^63 - 1."
        raise InvalidOption(option="txn", value=(app_id, number), expected=expected)
    return TransactionId(app_id, number)


_OWN_IDS = ("widen.", REPLAY_PREFIX)
"""The prefix of the ids that tables use to record loads and replays."""


def _build_choice(
    session: Session,
    target: IngestTarget,
    own: Mapping[str, str],
    *,
    new: bool,
    new_by: str,
    changed: str,
    skips_bad: bool,
) -> FileChoice:
    hashes = partial(hash_files, session) if is_by_content(new_by) else None
    changes = parse_changed(changed)
    if not new and (hashes is not None or changes is not Changed.FAIL):
        option = "changed" if hashes is None else "new_by"
        raise OptionMissing(option="new", expected=f"{option} needs new=True (--new).")
    return FileChoice(target, is_new=new, changed=changes, skips_bad=skips_bad, hash_files=hashes, own=own)


# Check a source against a contract; nothing is written.
#
# Source: docs/guide/gate.md#contract


@check_arguments
def check_contract(
    source: IngestSource,
    contract: Mapping[str, Any] | str | PathLike[str],
    *,
    spark: SparkSession | None = None,
    engine: str | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    detect_types: bool = False,
    numbers: str | None = None,
    allow_nan: bool | None = None,
) -> ContractReport:
    """Return where the records of a source break a contract.

    The arguments that are not listed are documented in `ingest`.

    Args:
        source: Files, directories or patterns; or a DataFrame.
        contract: A JSON Schema as `Table.contract` gives it, or a file with one; or a document of the Open Data
            Contract Standard, a file ``NAME.odcs.yaml``. If it describes several tables, ``#`` and the name of one
            follow.
        spark: The session to work in; by default the active one, else a local one.

    Raises:
        InvalidConfig: the file cannot be read, or is not JSON.
        InvalidOption: the contract uses what is not supported.
        SourceError: the source cannot be used.
        CorruptFile: a file of the source cannot be read.
    """
    schema, unchecked = (contract, ()) if isinstance(contract, Mapping) else read_contract(contract)
    ensure_contract(schema)
    reader, policy = parse_options(locals())
    places = () if isinstance(source, DataFrame) else to_paths(source)
    check_places(source, None, spark=spark)
    session = _open_session(source, places, None, spark=spark, engine=engine)
    batch = reader.open(session, source)
    with unchanged_files(session, batch.files):
        report = batch.check_contract(schema, allows_nan=policy.allows_nan)
    return msgspec.structs.replace(report, unchecked=list(unchecked))


def read_contract(file: str | PathLike[str]) -> tuple[Any, Sequence[str]]:
    """Return the contract in a file as a JSON Schema, and what it demands that a check of records does not cover.

    Raises:
        InvalidConfig: the file cannot be read, or is neither JSON nor a document of the Open Data Contract Standard.
    """
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
