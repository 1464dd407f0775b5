"""Plan, write and commit a batch as one version of the table, again if another writer commits first.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from widen.errors import EvolutionRefused, LimitExceeded, PlanChanged, SourceError, UnmatchedFields, WidenError
from widen.formats.table_format import (
    Conflicted,
    IngestTarget,
    NewFiles,
    QuarantineWrite,
    StagedFiles,
    StreamInterval,
    TableDraft,
    TableLocation,
    retry_conflicts,
)
from widen.ingestion.batch_limits import NO_LIMITS, BatchLimits
from widen.ingestion.new_files import to_load_record, to_loaded_file
from widen.ingestion.stable_plan import WrittenBatch, write_until_plan_is_stable
from widen.model.progress import Progress, Step, no_progress
from widen.observe.observation import Observation
from widen.planning.evolution.explain_plan import explain_operations, explain_plan
from widen.planning.evolution.plan import BadFile, Plan
from widen.planning.evolution.policy import Policy
from widen.spark.ingest.batch import Batch
from widen.spark.source.bad_files import with_bad_files
from widen.spark.source.changed_files import unchanged_files
from widen.spark.source.source_files import SourceFile
from widen.spark.text.quarantined_rows import BatchResult
from widen.spark.text.text_tasks import BatchWriteSpec


@dataclass(frozen=True, slots=True)
class CommitGuard:
    """What a batch requires of the version that it is committed to, at each attempt."""

    interval: StreamInterval | None = None

    def is_repeated(self, target: IngestTarget) -> bool:
        """Tell whether the table has the batch already."""
        return self.interval is not None and target.has_interval(self.interval)

    def prepare_draft(self, draft: TableDraft, plan: Plan) -> TableDraft:
        """Return the draft that commits the batch."""
        return draft


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRequest:
    """The table that a batch goes to, and the conditions.

    Args:
        plan_hash: The hash of the only plan that is allowed; None for every plan that the policy allows.
        may_be_empty: Whether a batch without a record, or without a value, is allowed. A stream allows it: an
            interval that fails would block all later ones.
        quarantine: The location of the quarantine; by default beside the table.
        is_strict: Whether every option that names a field must have an effect.
        is_new: Whether the batch has only files that the table has not loaded; see `widen.ingestion.new_files`.
        parks: Whether to leave files out without which the batch is not refused.
        guard: What the batch requires of the version that it is committed to; by default, not to have the interval yet.
        replaces_rows: Whether the commit also removes rows, so that a batch without records is committed too.
    """

    table: TableLocation
    policy: Policy
    plan_hash: str | None = None
    interval: StreamInterval | None = None
    may_be_empty: bool = False
    progress: Progress = no_progress
    quarantine: str | None = None
    is_strict: bool = False
    limits: BatchLimits = NO_LIMITS
    is_new: bool = False
    parks: bool = False
    guard: CommitGuard | None = None
    replaces_rows: bool = False

    @property
    def commit_guard(self) -> CommitGuard:
        """What the batch requires of the version that it is committed to."""
        return CommitGuard(self.interval) if self.guard is None else self.guard

    def open_target(self) -> IngestTarget:
        """Return the newest version of the table.

        Raises:
            InvalidOption: the location has files but no table.
        """
        return self.table.open(self.policy)


def commit_once(batch: Batch, request: BatchRequest, target: IngestTarget) -> WrittenBatch | Conflicted | None:
    """Plan, write and commit a batch; see `commit_batch`.

    Returns:
        The conflict if another writer committed first; None if there is nothing to write, and the request allows that.
    """
    return _BatchCommit(batch, request, target).attempt(None)


def commit_batch(batch: Batch, request: BatchRequest, target: IngestTarget) -> WrittenBatch | None:
    """Plan, write and commit a batch, again if another writer commits first.

    Args:
        target: The table as it was opened; it is opened again only after a conflict.

    Returns:
        None if there is nothing to write, and the request allows that.

    Raises:
        SourceError: the batch has no record, or no value, or a file changed while it was read.
        EvolutionRefused: the policy forbids a change that the batch needs.
        PlanChanged: the plan is not the one that was approved.
        LimitExceeded: the batch is over a limit.
        UnmatchedFields: a mask or an exclusion has no effect; or the request is strict, and another option has none.
        ContentionError: other writers kept committing first; nothing is visible.
        TableError: the table cannot be read or written; nothing is visible.
        InternalError: the plan changed in every pass, which should not happen.
    """
    return retry_conflicts(_BatchCommit(batch, request, target).attempt)


@dataclass
class _BatchCommit:
    """A batch, and what the attempts to commit it have observed so far."""

    batch: Batch
    request: BatchRequest
    target: IngestTarget
    observed: Observation = field(default_factory=Observation)

    def attempt(self, conflict: Conflicted | None) -> WrittenBatch | Conflicted | None:
        """Plan, write and commit once."""
        batch, request = self.batch, self.request
        opened = self.target if conflict is None else request.open_target()
        target = opened.with_file_fields(batch.names)
        if request.commit_guard.is_repeated(target):
            return _repeated_batch(target)
        write = partial(write_pass, batch, request.progress)
        with StagedFiles() as staged:
            # A batch may be read several times, and every pass must see the same records.
            with unchanged_files(batch.spark, batch.files):
                self.observed = self.observed.merged(batch.prior_observation(target.schema, target.policy), max)
                written = write_until_plan_is_stable(target, self.observed, write)
                staged.add_undo(partial(written.draft.discard, written.result))
            plan = replace(written.plan, bad_files=batch.bad_files, source_table=batch.source_table)
            written = replace(written, plan=plan)
            if not request.may_be_empty and not self._records_bad_files(target):
                ensure_has_records(batch, written)
            elif not has_content(written) and (
                target.version is None or not (batch.bad_files or request.replaces_rows)
            ):
                _write_quarantine(batch, written, request)
                return None
            # Every refusal comes before the first commit, so that a refused batch leaves both tables alone.
            ensure_plan_allowed(written.plan, request)
            request.limits.ensure_fulfilled(written.plan, written.result.seen)
            request.progress("committing")
            # The quarantine is committed first, so that every record is in one of the two tables at any time.
            quarantine = _write_quarantine(batch, written, request)
            if quarantine is not None and request.interval is None:
                # An interval of a stream keeps its quarantined records: its next attempt recognizes them.
                staged.add_undo(quarantine.undo)
            version = request.commit_guard.prepare_draft(written.draft, written.plan).commit(
                written.plan,
                written.result,
                staged=staged,
                interval=request.interval,
                loaded=to_load_record(batch, written.result.seen, is_exclusive=request.is_new),
            )
        if isinstance(version, Conflicted):
            self.observed = self.observed.merged(written.result.seen, max)
            return version
        has_kept_out = written.result.kept_out is not None or bool(batch.bad_files)
        return replace(written, version=version, quarantine=quarantine if has_kept_out else None)

    def _records_bad_files(self, target: IngestTarget) -> bool:
        """Tell whether to commit without a record, because no new file can be read: the next load leaves them out."""
        return (
            self.request.is_new and target.version is not None and not self.batch.files and bool(self.batch.bad_files)
        )


def park_files(
    batch: Batch, request: BatchRequest, target: IngestTarget, open_some: Callable[[Sequence[SourceFile]], Batch]
) -> Batch:
    """Return a batch without the files because of which it would be refused; those become bad files of it.

    The halves of a refused batch are observed in turn, so that one file among n takes about 2 log n passes. A file
    stays if the batch of all files before it that stay is not refused with it.

    Args:
        open_some: Opens some files of the batch as a batch.

    Raises:
        LimitExceeded: no file stays, and there is no table yet that could record that.
    """
    staying: list[SourceFile] = []
    parked: list[BadFile] = []
    first: WidenError | None = None
    pending = [list(batch.files)]
    while pending:
        files = pending.pop()
        refusal = _find_refusal(open_some([*staying, *files]), request, target) if files else None
        if refusal is None:
            staying += files
        elif len(files) > 1:
            pending += [files[len(files) // 2 :], files[: len(files) // 2]]
        else:
            first = first or refusal
            file, reason = files[0], refusal.message.rstrip(".")
            parked.append(BadFile(file.path, reason, file.size_bytes, file.modified_ms, file.content, is_parked=True))
    if first is None:
        return batch
    if not staying and target.version is None:
        raise first
    rest = open_some(staying)
    return cast(Batch, replace(cast(Any, rest), bad_files=(*batch.bad_files, *parked)))


def _find_refusal(batch: Batch, request: BatchRequest, target: IngestTarget) -> WidenError | None:
    """Return why a batch would be refused; None if it would not. Nothing is written."""
    target = target.with_file_fields(batch.names)
    with unchanged_files(batch.spark, batch.files):
        observed = batch.prior_observation(target.schema, target.policy)
        planned = write_until_plan_is_stable(target, observed, lambda spec, _: BatchResult([], batch.observe(spec)))
    try:
        ensure_plan_allowed(planned.plan, replace(request, plan_hash=None, is_strict=False))
        request.limits.ensure_fulfilled(planned.plan, planned.result.seen)
        if batch.files and planned.result.seen.corrupt:
            ensure_has_records(batch, planned)
    except (EvolutionRefused, LimitExceeded, SourceError) as error:
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
    kept_out = with_bad_files(written.result.kept_out, batch.spark, batch.bad_files)
    new_files = None
    files = batch.files or batch.bad_files
    if request.is_new and request.interval is None and files:
        new_files = NewFiles(request.table.location, tuple(map(to_loaded_file, files)))
    if kept_out is None and new_files is None:
        return None
    version = -1 if written.target.version is None else written.target.version
    return request.table.quarantine(request.quarantine).write(kept_out, version, request.interval, new_files)


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
    """Tell whether a batch has rows for the table or the quarantine, or needs a change that is refused."""
    return bool(written.result.files or written.result.kept_out is not None or written.plan.refused)


def ensure_has_records(batch: Batch, written: WrittenBatch) -> None:
    """Check that the batch has a record and a value.

    Raises:
        SourceError: it has none.
    """
    seen, reason, fix = written.result.seen, None, "Nothing was written. Use a source with records."
    if batch.bad_files and not batch.files:
        raise SourceError(source=batch.name, reason=f"no file can be read: {batch.bad_files[0]}", fix=_RESTORE)
    if not seen.records and not seen.quarantined:
        reason, fix = (_NO_RECORD_LINE.format(seen.corrupt), _CHECK_FORMAT) if seen.corrupt else (_NO_RECORDS, fix)
    elif not written.plan.schema.fields and not written.plan.refused:
        reason = "no field of its records has a value yet"
    if reason:
        raise SourceError(source=batch.name, reason=reason, fix=fix)


_NO_RECORDS, _NO_RECORD_LINE = "it has no records", "none of its {} lines is a record in UTF-8"
_CHECK_FORMAT = "Nothing was written. Check the format of the source; for CSV also the options sep and encoding."
_RESTORE = "Get the files again. Nothing was written."


def ensure_plan_allowed(plan: Plan, request: BatchRequest) -> None:
    """Check that a plan may be executed.

    Raises:
        EvolutionRefused: the policy forbids it.
        PlanChanged: it is not the plan that was approved.
        UnmatchedFields: a mask or an exclusion has no effect; or the request is strict, and another option has none.
    """
    ensure_matched(plan, request.policy, is_strict=request.is_strict)
    if plan.refused:
        raise EvolutionRefused(policy=request.policy.mode.value, plan=explain_operations(plan.refused))
    if request.plan_hash is not None and plan.hash != request.plan_hash:
        raise PlanChanged(wanted=request.plan_hash, found=plan.hash, plan="\n".join(explain_plan(plan)))


def ensure_matched(plan: Plan, policy: Policy, *, is_strict: bool) -> None:
    """Check that every mask and exclusion has an effect, and in a strict request every option that names a field.

    Raises:
        UnmatchedFields: one has none.
    """
    hides = not policy.allows_unmatched
    refused = [each for each in plan.unmatched if is_strict or (hides and each.hides)]
    if refused:
        raise UnmatchedFields(fields="; ".join(map(str, refused)).rstrip("."))
