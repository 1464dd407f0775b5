"""Plan, write and commit a batch as one version of the table, again if another writer commits first.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from widen.batches.excluded_fields import no_deletes_by
from widen.batches.open_source import IngestSource, persist_source, with_bad_files
from widen.batches.text_batch import Batch, BatchResult, identify_records
from widen.batches.text_tasks import MIN_COUNTED_RECORDS, BatchWriteSpec
from widen.errors import (
    CorruptLog,
    CorruptMetadata,
    EvolutionRefused,
    InternalError,
    InvalidOption,
    LimitExceeded,
    PlanChanged,
    PostCommitFailed,
    SourceChanged,
    SourceContentError,
    SourceError,
    TooManyKeys,
    UnmatchedFields,
    WidenError,
)
from widen.evolution.evolve import evolve, merge_pass
from widen.evolution.plan import (
    BadFile,
    Plan,
    PlanEvent,
    Unmatched,
    explain_operations,
    explain_plan,
    find_unmatched,
    mark_returning,
)
from widen.evolution.policy import Policy
from widen.ingestion.new_files import to_load_record, to_loaded_file
from widen.ingestion.options import NO_LIMITS, BatchLimits
from widen.ingestion.result import EventDetail, FailureEvent, IngestResult, IntervalEvent, LoadEvent, OnEvent
from widen.json.document import corrupt_words
from widen.json.field_rules import LOADED_AT, SOURCE_FILE
from widen.json.observation import Observation, position_text
from widen.model.column_path import ELEMENT, KEY, VALUE, format_path
from widen.model.display import Progress, Step, no_progress
from widen.model.types import StructType, similarity_key
from widen.model.value_classes import dataclass
from widen.report.stopped_field import StoppedField
from widen.schema.operations import WidenType
from widen.schema.source_metadata import TableFormat
from widen.sources.file_ranges import is_small
from widen.sources.listing import SourceFile, ensure_unchanged, explain_changes, unchanged_files
from widen.spark.engine import find_started, require_spark
from widen.spark.ship import ensure_shipped
from widen.targets.table_format import (
    Conflicted,
    IngestTarget,
    KeyCounts,
    KeyRules,
    LoadedFile,
    NewFiles,
    QuarantineWrite,
    StagedFiles,
    TableDraft,
    TableLocation,
    TransactionId,
    after_commit,
    ensure_condition_applies,
    merge_if_keyed,
    reason_of,
    retry_conflicts,
    run_logged,
)


@dataclass(frozen=True, slots=True)
class CommitGuard:
    """What a batch requires of the version that it is committed to, at each attempt."""

    interval: TransactionId | None = None

    def is_repeated(self, target: IngestTarget) -> bool:
        """Return whether the table has the batch already."""
        return self.interval is not None and target.has_interval(self.interval)

    def prepare_draft(self, draft: TableDraft, plan: Plan) -> TableDraft:
        return draft


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """The table that a batch goes to, and the conditions.

    Args:
        plan_hash: The hash of the only plan that is allowed; None for every plan that the policy allows.
        may_be_empty: Whether a batch without a record, or without a value, is allowed. A stream allows it: an
            interval that fails would block all later ones.
        is_strict: Whether every option that names a field must have an effect.
        is_new: Whether the batch has only files that the table has not loaded; see `widen.ingestion.new_files`.
        guard: What the batch requires of the version that it is committed to; by default, not to have the interval yet.
        keys: The rules of an ingestion by key; None to only add rows.
        replaces_rows: Whether the commit also removes rows, so that a batch without records is committed as well.
    """

    table: TableLocation
    policy: Policy
    plan_hash: str | None = None
    interval: TransactionId | None = None
    may_be_empty: bool = False
    progress: Progress = no_progress
    quarantine: str | None = None
    is_strict: bool = False
    limits: BatchLimits = NO_LIMITS
    is_new: bool = False
    guard: CommitGuard | None = None
    replaces_rows: bool = False
    keys: KeyRules | None = None

    @property
    def commit_guard(self) -> CommitGuard:
        """What the batch requires of the version that it is committed to."""
        return CommitGuard(self.interval) if self.guard is None else self.guard

    def open_target(self) -> IngestTarget:
        """Return the newest version of the table."""
        return self.table.open(self.policy).with_keys(self.keys)


OpenBatch: TypeAlias = Callable[[IngestTarget], "Batch | None"]
"""Opens the source of a batch and chooses its files by the version that loads them; None without files to load."""


def commit_batch(
    open_batch: OpenBatch, request: BatchRequest, target: IngestTarget, after: AfterCommit
) -> IngestResult | None:
    """Load a batch as one version of the table: its rows, the changes of the schema, and which files it has loaded.

    If another writer commits first, the batch is planned and written again for the new version. What the earlier
    attempts have observed is known then, so that the first pass of the next one is usually its last.

    Args:
        target: The table as it was opened; it is opened again only after a conflict.

    Returns:
        None if there is nothing to load, and the request allows that.
    """
    batch: Batch | None = None
    observed = Observation()
    left: list[QuarantineWrite] = []

    def attempt(conflict: Conflicted | None) -> tuple[Batch, WrittenBatch] | Conflicted | None:
        nonlocal batch, observed
        opened = target if conflict is None else request.open_target()
        if batch is None or request.is_new:
            # Which files are new is another question after a conflict: the other writer may have loaded some.
            batch, observed = open_batch(opened), Observation()
            if batch is None:
                return None
        ensure_paths_hide_nothing(batch, request.policy)
        ensure_has_texts(batch, request.keys, verifies=bool(after.verified))
        if after.verified:
            batch.prepare_proof()
        table = opened.with_file_fields(batch.names)
        if request.commit_guard.is_repeated(table):
            return batch, _repeated_batch(table)
        with StagedFiles() as staged:
            # A batch may be read several times, and every pass must see the same records.
            with unchanged_files(batch.spark, batch.files):
                observed = observed.merged(batch.prior_observation(table.schema, table.policy), max)
                written = write_until_plan_is_stable(table, observed, partial(write_pass, batch, request.progress))
                staged.add_undo(partial(written.draft.discard, written.result))
            plan = mark_returning(written.plan, table.dropped_columns)
            plan = replace(plan, bad_files=batch.bad_files, source_table=batch.source_table, read_as=batch.read_as)
            written = replace(written, plan=plan)
            if not _has_rows(batch, written, request):
                _write_quarantine(batch, written, request)
                return None
            # Every refusal comes before the first commit, so that a refused batch leaves both tables alone.
            ensure_plan_allowed(plan, request)
            request.limits.ensure_fulfilled(plan, written.result.seen)
            if after.verified and request.keys is not None:
                _prepare_keyed_proof(batch, request.keys, plan)
            request.progress("committing")
            # The quarantine is committed first, so that every record is in one of the two tables at any time.
            quarantine = _write_quarantine(batch, written, request)
            if batch.files:
                left.clear()  # this attempt has replaced what an earlier one could not undo
            if quarantine is not None and request.interval is None:
                # An interval of a stream keeps its quarantined records: its next attempt recognizes them.
                staged.add_undo(partial(_undo_quarantine, quarantine, left))
            loaded = to_load_record(batch, written.result.seen, is_exclusive=request.is_new)
            draft = request.commit_guard.prepare_draft(written.draft, plan)
            draft, result, counts = merge_if_keyed(draft, written.result, batch.spark, staged)
            written = replace(written, result=result, key_counts=counts)
            version = draft.commit(plan, result, staged=staged, interval=request.interval, loaded=loaded)
        if isinstance(version, Conflicted):
            observed = observed.merged(written.result.seen, max)
            return version
        is_quarantined = written.result.quarantined_records is not None or bool(batch.bad_files)
        return batch, replace(written, version=version, quarantine=quarantine if is_quarantined else None)

    started = time.monotonic()
    with naming_what_is_left(left):
        committed = retry_conflicts(attempt)
    return None if committed is None else finish_batch(*committed, request, after, _ms_since(started))


def _undo_quarantine(quarantine: QuarantineWrite, left: list[QuarantineWrite]) -> None:
    left.append(quarantine)
    quarantine.undo()
    left.remove(quarantine)


@contextmanager
def naming_what_is_left(left: Sequence[QuarantineWrite]) -> Iterator[None]:
    """Let an error say which commit to the quarantine could not be undone; a repeat of the call replaces it."""
    try:
        yield
    except WidenError as error:
        for each in left:
            error.committed = (each.location, each.version)
        raise


_WITHOUT_KEYS = "the load has keys, but its records were added without looking at them"


def ensure_has_texts(batch: Batch, keys: KeyRules | None, *, verifies: bool = False) -> None:
    """Check that the records come as texts, if that is needed, before anything is written.

    Raises:
        InvalidOption: they do not.
    """
    if keys is None or not batch.has_types:
        return
    if keys.excluded:
        reason = "that takes a source of JSON, CSV or text, but the records of this source have types"
        raise no_deletes_by(keys.excluded, reason)
    for option, is_on in (("verify", verifies), ("history", keys.history)):
        if is_on:
            expected = "With keys, this needs JSON, CSV or text; the records of this source have types."
            raise InvalidOption(option=option, value=True, expected=expected)


def _prepare_keyed_proof(batch: Batch, rules: KeyRules, plan: Plan) -> None:
    """Find out, before the commit, whether the proof of what the batch does to the rows of its keys can run.

    Spark starts if only Spark can prove it. Its executors prove also a small batch, which the driver has written alone.
    """
    from widen.verification.keyed_proof import find_proof_obstacle

    started = find_started(batch.spark)
    if started is not None:
        ensure_shipped(started)
        if not rules.excluded:
            return
    obstacle = find_proof_obstacle(rules, plan.schema)
    if obstacle is not None:
        require_spark(batch.spark, f"it verifies rows that change by key, and {obstacle}")


def _has_rows(batch: Batch, written: WrittenBatch, request: BatchRequest) -> bool:
    """Return whether there is something to commit to the table."""
    has_table = written.target.version is not None
    if request.is_new and has_table and batch.bad_files and not batch.files:
        return True  # the next load leaves out the files that cannot be read
    if not request.may_be_empty:
        ensure_has_records(batch, written)
        return True
    return has_content(written) or (has_table and (bool(batch.bad_files) or request.replaces_rows))


def commit_good_files(
    open_batch: OpenBatch,
    open_some: Callable[[Sequence[SourceFile]], Batch],
    request: BatchRequest,
    target: IngestTarget,
    after: AfterCommit,
    *,
    parks: bool,
) -> IngestResult | None:
    """Load a batch as `commit_batch` does, without the files that would make it fail.

    Args:
        parks: Whether a file also stays away that breaks a limit or needs a change that the policy refuses.
    """
    is_searched, has_files = parks, False

    def open_good(table: IngestTarget) -> Batch | None:
        nonlocal has_files
        batch = open_batch(table)
        has_files = batch is not None and bool(batch.files)
        if batch is None or not has_files or not is_searched:
            return batch
        return leave_out_files(batch, request, table, open_some, parks=parks)

    try:
        return commit_batch(open_good, request, target, after)
    except (TooManyKeys, SourceContentError):
        if is_searched or not has_files:
            raise
        is_searched = True  # most batches need no search, which takes several passes
    return commit_batch(open_good, request, request.open_target(), after)


def leave_out_files(
    batch: Batch,
    request: BatchRequest,
    target: IngestTarget,
    open_some: Callable[[Sequence[SourceFile]], Batch],
    *,
    parks: bool,
) -> Batch:
    """Return a batch without the files that would make it fail; they become bad files of the batch.

    The halves of a refused batch are observed in turn, so that one file among n takes about 2 log n passes. A file
    stays if the batch of all files before it that stay is not refused with it.
    """
    staying: list[SourceFile] = []
    bad: list[BadFile] = []
    first: WidenError | None = None
    pending = [list(batch.files)]
    while pending:
        files = pending.pop()
        refusal = _find_refusal(open_some([*staying, *files]), request, target, parks=parks) if files else None
        if refusal is None:
            staying += files
        elif len(files) > 1:
            pending += [files[len(files) // 2 :], files[: len(files) // 2]]
        else:
            is_alone = not (isinstance(refusal, TooManyKeys) and staying)
            if not is_alone and _find_refusal(open_some(files), request, target, parks=False) is None:
                raise refusal  # no file has too many keys, but all together
            first = first or refusal
            file, reason = files[0], _find_reason(refusal)
            bad.append(BadFile(file.path, reason, file.size_bytes, file.modified_ms, file.content, is_parked=parks))
    if first is None:
        return batch
    if not staying and target.version is None and not request.may_be_empty:
        raise first
    rest = open_some(staying)
    return cast(Batch, replace(cast(Any, rest), bad_files=(*batch.bad_files, *bad)))


def _find_reason(refusal: WidenError) -> str:
    """Return why a file is left out, without its name."""
    return str(refusal.fields["reason"]) if isinstance(refusal, SourceContentError) else refusal.message.rstrip(".")


def _find_refusal(batch: Batch, request: BatchRequest, target: IngestTarget, *, parks: bool) -> WidenError | None:
    """Return why a batch would be refused; None if it would not. Nothing is written."""
    ensure_paths_hide_nothing(batch, request.policy)
    target = target.with_file_fields(batch.names)
    try:
        with unchanged_files(batch.spark, batch.files):
            observed = batch.prior_observation(target.schema, target.policy)
            planned = plan_batch(batch, target, observed)
        if parks:
            ensure_plan_allowed(planned.plan, replace(request, plan_hash=None, is_strict=False))
            request.limits.ensure_fulfilled(planned.plan, planned.result.seen)
            if batch.files and planned.result.seen.corrupt:
                ensure_has_records(batch, planned)
    except SourceChanged:
        raise
    except (TooManyKeys, SourceContentError) as error:
        return error
    except (EvolutionRefused, LimitExceeded, SourceError) as error:
        if not parks:
            raise
        return error
    return None


def _repeated_batch(target: IngestTarget) -> WrittenBatch:
    """Return a batch that the table has already: no changes, no files."""
    assert target.schema is not None
    plan = Plan((), target.schema)
    return WrittenBatch(
        target=target,
        plan=plan,
        draft=target.draft(plan),
        result=BatchResult([], Observation()),
        version=target.version,
        is_repeated=True,
    )


def _write_quarantine(batch: Batch, written: WrittenBatch, request: BatchRequest) -> QuarantineWrite | None:
    quarantined_records = with_bad_files(written.result.quarantined_records, batch.spark, batch.bad_files)
    new_files = None
    files = batch.files or batch.bad_files
    if request.interval is None and files and (request.is_new or quarantined_records is not None):
        loaded = tuple(map(to_loaded_file, files))
        new_files = NewFiles(
            request.table.location, loaded, () if request.is_new else _count_loads(written.target, loaded)
        )
    if quarantined_records is None and new_files is None:
        return None
    version = -1 if written.target.version is None else written.target.version
    return request.table.quarantine(request.quarantine).write(quarantined_records, version, request.interval, new_files)


def _count_loads(target: IngestTarget, files: Sequence[LoadedFile]) -> tuple[int, ...]:
    """Return how often the table has loaded each file as it is now."""
    try:
        paths, stamps = [file.path for file in files], [file.stamp for file in files]
        return tuple(target.loaded_files().count(paths, stamps))
    except (CorruptMetadata, CorruptLog):  # a load by names needs no record, and begins a new one
        return (0,) * len(files)


def write_pass(batch: Batch, progress: Progress, spec: BatchWriteSpec, draft: TableDraft) -> BatchResult:
    """Make one pass over a batch: write it, or only observe it while the table has no columns."""
    if not spec.schema.fields:
        progress(_step("observing", batch))
        return BatchResult([], batch.observe(spec))
    progress(_step("writing", batch))
    return draft.write(batch, spec)


def _step(text: str, batch: Batch) -> Step:
    return Step(text, size_bytes=sum(file.size_bytes for file in batch.files))


def has_content(written: WrittenBatch) -> bool:
    """Return whether a batch has rows for the table or the quarantine, or needs a change that is refused."""
    return bool(written.result.files or written.result.quarantined_records is not None or written.plan.refused)


def ensure_has_records(batch: Batch, written: WrittenBatch) -> None:
    """Check that the batch has a record and a value.

    Raises:
        SourceError: it has no record or no value.
    """
    seen, reason, fix = written.result.seen, None, "Nothing was written. Use a source with records."
    if batch.bad_files and not batch.files:
        raise SourceError(source=batch.name, reason=f"no file can be read: {batch.bad_files[0]}", fix=_RESTORE)
    if not seen.records and not seen.quarantined:
        reason, fix = (_no_record_line(seen), _CHECK_FORMAT) if seen.corrupt else (_NO_RECORDS, fix)
    elif not written.plan.schema.fields and not written.plan.refused:
        reason = "no field of its records has a value yet"
    if reason:
        raise SourceError(source=batch.name, reason=reason, fix=fix)


def _no_record_line(seen: Observation) -> str:
    first = "" if seen.first_corrupt is None else f"; the first is {seen.corrupt_reason}"
    noun, _ = corrupt_words(2, seen.corrupt_reason)
    return f"none of its {noun} {'is a record' if noun == 'lines' else 'could be read'}{first}"


_NO_RECORDS = "it has no records"
_CHECK_FORMAT = (
    "Nothing was written. Check the format of the source; for CSV also the options sep and encoding, for JSON with "
    "NaN or Infinity the option allow_nan (--allow-nan)."
)
_RESTORE = "Get the files again. Nothing was written."


def ensure_plan_allowed(plan: Plan, request: BatchRequest) -> None:
    """Check that a plan may be executed.

    Raises:
        EvolutionRefused: the policy forbids it.
        PlanChanged: it is not the plan that was approved.
    """
    ensure_matched(plan, request.policy, is_strict=request.is_strict)
    if plan.refused:
        raise EvolutionRefused(policy=request.policy.mode.value, plan=explain_operations(plan.refused))
    if request.plan_hash is not None and plan.hash != request.plan_hash:
        raise PlanChanged(wanted=request.plan_hash, found=plan.hash, plan="\n".join(explain_plan(plan)))


def ensure_paths_hide_nothing(batch: Batch, policy: Policy) -> None:
    """Check that no mask and no exclusion is for a field that folders of the source spell out.

    The path of a file is stored as it is: in the record of loads, in positions and in the quarantine.

    Raises:
        InvalidOption: folders spell out a hidden field.
    """
    folders = {similarity_key(name): name for name in batch.names - {SOURCE_FILE, LOADED_AT}}
    for option, paths in (("mask", policy.masked), ("exclude", policy.excluded)):
        for path in sorted(paths):
            folder = folders.get(similarity_key(path[0])) if path else None
            if folder is not None:
                raise InvalidOption(option=option, value=format_path(path), expected=_IN_FOLDERS.format(folder))


_IN_FOLDERS = (
    "Folders named {}=... spell out its values, and the paths of files are stored as they are. Nothing was written. "
    "Rename the folders, or set partition_folders=False (--no-partition-folders) if their names need not be hidden."
)


def ensure_matched(plan: Plan, policy: Policy, *, is_strict: bool) -> None:
    """Check that every mask and exclusion has an effect, and in a strict request every option that names a field.

    Raises:
        UnmatchedFields: one has no effect.
    """
    hides = not policy.allows_unmatched
    refused = [each for each in plan.unmatched if is_strict or (hides and each.hides)]
    if refused:
        raise UnmatchedFields(fields=" ".join(map(str, refused)))


# Passes over a batch until its files are written by the plan that the batch itself leads to.
#
# A plan is made from what is known of the batch. The rows are written by that plan while they are observed. The
# files are kept only if the observation leads to the same plan; else they are deleted and the next pass uses the
# new plan. So an interval without changes takes one pass.
#
# Source: docs/evolution-rules.md#one-interval


PATIENT_FROM, MAX_PASSES = 1, 16
"""From this pass on, each task reads all its records even if it knows that the plan will change; and the most passes.
The first pass finds all kinds but rare ones. Looking for those one pass after another would take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """A batch in the files of a table, by a plan that the batch confirms.

    Args:
        draft: The table as the plan changes it; the files are written under it.
        result: The files of the last pass, and what it observed; its counts are the counts of the batch.
        version: The version of the table that holds the batch; None as long as it is not committed.
        is_repeated: Whether the table had the batch already; then nothing was written.
        key_counts: What the batch did to the rows of its keys, for an ingestion by key.
    """

    target: IngestTarget
    plan: Plan
    draft: TableDraft
    result: BatchResult
    version: int | None = None
    quarantine: QuarantineWrite | None = None
    is_repeated: bool = False
    key_counts: KeyCounts | None = None


def plan_batch(batch: Batch, target: IngestTarget, observed: Observation) -> WrittenBatch:
    """Return what a load of a batch would write; nothing is written."""

    def observe(spec: BatchWriteSpec, draft: TableDraft) -> BatchResult:
        seen = batch.observe(spec)
        is_stable, grows = spec.next_schema(seen) == spec.schema, spec.schema != (target.schema or StructType())
        if not is_stable or not spec.schema.fields or not (spec.refused or grows):
            return BatchResult([], seen)
        quarantined = draft.find_broken(batch, spec, by_rules=False) if spec.refused else None
        return BatchResult([], seen, quarantined, broken=draft.find_broken(batch, spec))

    return write_until_plan_is_stable(target, observed, observe)


def write_until_plan_is_stable(
    target: IngestTarget, observed: Observation, write: Callable[[BatchWriteSpec, TableDraft], BatchResult]
) -> WrittenBatch:
    """Pass over a batch until a pass confirms its plan and has written every record.

    The schema grows from the records that the table takes, and from no other. Which records violate a rule is only
    known once their rows are made. If some do, and the plan changes columns, further passes do not observe them.

    Raises:
        InternalError: the plan changed in every pass, which should not happen; the files of all passes are deleted.
    """
    known, refused, may_refuse = observed, frozenset[bytes](), True
    plan = evolve(target.schema, observed, target.policy)
    for number in range(MAX_PASSES):
        is_patient = number >= PATIENT_FROM
        prior = observed.to_json()
        spec = BatchWriteSpec(target.schema, prior, plan.schema, target.policy, is_patient, refused=refused)
        draft = target.draft(plan)
        result = write(spec, draft)
        merged, is_mixed = merge_pass(observed, result.seen, spec.schema, target.policy)
        if merged != observed:  # a confirming pass sees nothing new, and planning thousands of fields takes seconds
            observed, plan = merged, evolve(target.schema, merged, target.policy)
        # Schemas and not plans: counts and samples grow with every pass, and do not change what was written.
        is_stable = plan.schema == spec.schema and result.is_complete and not is_mixed
        grows = plan.schema != (target.schema or StructType())
        if is_stable and may_refuse and (refused or (grows and result.broken is not None)):
            # A record that the table takes after all, where others do not count, must not be lost: then all count.
            may_refuse = refused <= (identify_records(result.quarantined_records) if refused else refused)
            found = refused | identify_records(result.broken) if may_refuse else frozenset[bytes]()
            if found != refused:
                draft.discard(result)
                observed, refused = known, found
                plan = evolve(target.schema, observed, target.policy)
                continue
        if is_stable:
            draft.check()
            plan = _with_widening(plan, target, observed)
            plan = replace(plan, unmatched=_find_unmatched(target, plan, observed))
            plan = replace(plan, lost_sources=target.lost_sources)
            plan = replace(_with_bounds(plan, result.seen), readers=draft.wrong_readers)
            return WrittenBatch(target=target, plan=plan, draft=draft, result=result)
        draft.discard(result)
    raise InternalError(reason=f"the plan of a batch still changed after {MAX_PASSES} passes")


def _find_unmatched(target: IngestTarget, plan: Plan, observed: Observation) -> tuple[Unmatched, ...]:
    """Return the options without effect, and the fields of the condition of deletions that do not exist yet."""
    keys = target.keys
    if keys is not None and not plan.refused:
        ensure_condition_applies(keys, plan.schema, observed)
    fields = () if keys is None else keys.missing_fields(plan.schema)
    tracked = {} if keys is None else {name: getattr(keys, name) for name in ("history_columns", "history_except")}
    return find_unmatched(target.policy, target.schema, plan.schema, observed, deletes_by=fields, tracked=tracked)


def _with_widening(plan: Plan, target: IngestTarget, observed: Observation) -> Plan:
    """Return the plan with what it says about type widening: that the commit turns it on, or what it would change."""
    if target.turns_on_widening(plan):
        return replace(plan, enables_widening=True)
    wider = target.with_widening() if target.policy.table_format is TableFormat.DELTA_FIXED else None
    if wider is None:
        return plan
    planned = evolve(wider.schema, observed, wider.policy)
    known = [each for each in plan.operations if isinstance(each, WidenType)]
    found = (each for each in planned.operations if isinstance(each, WidenType) and each not in known)
    return replace(plan, widenable=tuple(found))


def _with_bounds(plan: Plan, seen: Observation) -> Plan:
    """Return the plan of a large batch with its counts as lower bounds: tasks stop counting what the columns hold."""
    records = seen.records + seen.quarantined
    if records + seen.corrupt < MIN_COUNTED_RECORDS:
        return plan
    events = tuple(replace(event, at_least=not _is_in_every_record(event, records)) for event in plan.events)
    return replace(plan, events=events, rescued=tuple(replace(field, at_least=True) for field in plan.rescued))


def _is_in_every_record(event: PlanEvent, records: int) -> bool:
    """Return whether no more values are possible: a record has one of a field, unless arrays or maps are around it."""
    return event.count == records and _REPEATED.isdisjoint(event.column)


_REPEATED = frozenset({ELEMENT, KEY, VALUE})
"""Steps of a path into what may hold several values."""


# After the commit of an interval: verify it, publish its events, and return its result.
#
# Source: docs/evolution-rules.md#one-interval


_Source = TypeVar("_Source", bound=IngestSource)


@dataclass(frozen=True, slots=True)
class AfterCommit:
    """What to do after the commit of an interval: verify records, publish events.

    Args:
        verified: The share of the records to verify, from 0 to 1.
    """

    verified: float = 0.0
    on_event: OnEvent | None = None

    def publish(
        self, location: str, number: int | None, events: Iterable[EventDetail], *, version: int | None = None
    ) -> None:
        """Call the listener with events of one interval, which all have the same time."""
        if self.on_event is None:
            return
        time_ms = time.time_ns() // 1_000_000
        for event in events:
            self.on_event(IntervalEvent(location, version, number, event, time_ms))

    @contextmanager
    def publish_failure(self, location: str, number: int | None = None) -> Iterator[None]:
        """Publish an event if the interval fails, and raise its error."""
        started = time.monotonic()
        try:
            yield
        except Exception as error:  # any kind, also one of a query or a listener of the caller
            version = error.fields["version"] if isinstance(error, PostCommitFailed) else None
            code = error.code if isinstance(error, WidenError) else type(error).__name__
            failure = FailureEvent(code, reason_of(error), _ms_since(started))
            visible = version if isinstance(version, int) else None
            publish = partial(self.publish, location, number, [failure], version=visible)
            run_logged(publish, "publish that a load has failed")
            raise


def persist_if_reread(source: _Source, target: IngestTarget, after: AfterCommit) -> AbstractContextManager[_Source]:
    """Persist a DataFrame source for the ingestion if it will be read more than once.

    Args:
        target: The table. Its fixed columns send records to the quarantine, which takes a second pass.
    """
    return persist_source(source) if after.verified or target.policy.fixed_columns else nullcontext(source)


def _ms_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def finish_batch(
    batch: Batch, written: WrittenBatch, request: BatchRequest, after: AfterCommit, duration_ms: int
) -> IngestResult:
    """Return the result of a committed interval, verified on request, and publish its events."""
    assert written.version is not None
    with after_commit(request.table.location, written.version):
        result = _build_result(batch, written, request)
        # After the commit only: a listener must not hear of a change that nobody can see.
        plan = written.plan
        if after.on_event is not None:
            loaded = LoadEvent.of(result, duration_ms)
            stopped = _find_stopped(written)
            events: list[EventDetail] = [*plan.events, *plan.unmatched, *plan.bad_files, *stopped, loaded]
            after.publish(request.table.location, result.interval, events, version=result.version)
        if not after.verified or result.is_repeated:
            return result
        size_bytes = sum(file.size_bytes for file in batch.files)
        request.progress(Step("verifying", size_bytes, result.records))
        assert result.version is not None
        with explain_changes(batch.spark, batch.files):
            verification = written.target.verify(
                batch, written.result, result.version, written.quarantine, after.verified
            )
            if request.keys is not None and result.keys is None:
                verification = replace(verification, places=(_WITHOUT_KEYS, *verification.places))
            # A source that changed since it was read would look like loss.
            if not verification.is_clean:
                ensure_unchanged(batch.spark, batch.files)
        return replace(result, verification=verification)


def _find_stopped(written: WrittenBatch) -> list[StoppedField]:
    """Return the fields that have stopped arriving with a batch. If that fails, the load does not."""
    found: list[StoppedField] = []
    if not written.is_repeated and written.result.seen.records:
        find = partial(written.target.find_stopped, written.version or 0)
        run_logged(lambda: found.extend(find()), "find fields that have stopped arriving")
    return found


def _build_result(batch: Batch, written: WrittenBatch, request: BatchRequest) -> IngestResult:
    """Return the result of an interval that is not verified yet."""
    version, number = written.version, request.interval.number if request.interval else None
    assert version is not None
    if written.is_repeated:
        return IngestResult(version, written.plan, interval=number, is_repeated=True)
    result = written.result
    return IngestResult(
        version,
        written.plan,
        records=result.seen.records,
        corrupt=result.seen.corrupt,
        corrupt_reason=result.seen.corrupt_reason,
        not_objects=result.seen.not_objects,
        multi_line=_find_multi_line(batch, result.seen),
        files=len(result.files),
        size_bytes=sum(file.size for file in result.files),
        left_out=batch.left_out,
        bad_files=batch.bad_files,
        interval=number,
        quarantined=result.seen.quarantined,
        quarantine=written.quarantine.location if written.quarantine else None,
        keys=written.key_counts,
        unavailable=result.seen.unavailable,
    )


def _find_multi_line(batch: Batch, seen: Observation) -> str | None:
    """Return where a large file has a record over several lines, although each of its lines was read as a record."""
    if seen.unclosed is None:
        return None
    uri = seen.unclosed[0].partition(" from byte ")[0]
    is_large = any(file.uri == uri and not is_small(file) for file in batch.files)
    return position_text(seen.unclosed) if is_large else None


def parse_share(verify: bool | float) -> float:
    """Return the share of the records to verify.

    Raises:
        InvalidOption: the share is not between 0 and 1.
    """
    if not 0 <= verify <= 1:
        raise InvalidOption(option="verify", value=verify, expected="Must be true, false or a share between 0 and 1.")
    return float(verify)
