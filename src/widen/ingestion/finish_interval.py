"""After the commit of an interval: verify it, publish its events, and return its result.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from widen.errors import InvalidOption
from widen.formats.table_format import IngestTarget, after_commit
from widen.ingestion.commit_batch import BatchRequest
from widen.ingestion.result import IngestResult, IntervalEvent
from widen.ingestion.stable_plan import WrittenBatch
from widen.model.progress import Step
from widen.observe.observation import Observation, position_text
from widen.planning.evolution.plan import BadFile, PlanEvent
from widen.planning.evolution.unmatched_fields import Unmatched
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.open_source import IngestSource, persist_source
from widen.spark.source.changed_files import ensure_unchanged, explain_changes
from widen.spark.source.json_texts import is_small

_Source = TypeVar("_Source", bound=IngestSource)

OnEvent: TypeAlias = Callable[[IntervalEvent], object]
"""Called with each event of an interval after its commit."""


@dataclass(frozen=True, slots=True)
class IntervalWatch:
    """What to do after the commit of an interval: verify records, publish events.

    Args:
        verified: The share of the records to verify, from 0 to 1.
    """

    verified: float = 0.0
    on_event: OnEvent | None = None


def persist_if_reread(source: _Source, target: IngestTarget, watch: IntervalWatch) -> AbstractContextManager[_Source]:
    """Persist a DataFrame source for the ingestion if it will be read more than once.

    Args:
        target: The table. Its fixed columns send records to the quarantine, which takes a second pass.
        watch: Whether to verify, which reads the source again.
    """
    return persist_source(source) if watch.verified or target.policy.fixed_columns else nullcontext(source)


def to_result(batch: Batch, written: WrittenBatch, request: BatchRequest, watch: IntervalWatch) -> IngestResult:
    """Return the result of a committed interval, verified on request, and publish its events.

    Raises:
        PostCommitFailed: the interval is committed, but its verification failed to run.
    """
    version, number = written.version, request.interval.number if request.interval else None
    assert version is not None
    if written.is_repeated:
        return IngestResult(version, written.plan, interval=number, is_repeated=True)
    # After the commit only: a listener must not hear of a change that nobody can see.
    if watch.on_event:
        plan = written.plan
        events: list[PlanEvent | Unmatched | BadFile] = [*plan.events, *plan.unmatched, *plan.bad_files]
        for event in events:
            watch.on_event(IntervalEvent(request.table.location, version, number, event))
    verification = None
    if watch.verified:
        size_bytes = sum(file.size_bytes for file in batch.files)
        request.progress(Step("verifying", size_bytes, written.result.seen.records))
        with after_commit(request.table.location, version), explain_changes(batch.spark, batch.files):
            verification = written.target.verify(batch, written.result, version, written.quarantine, watch.verified)
            # A source that changed since it was read would look like loss.
            if not verification.is_clean:
                ensure_unchanged(batch.spark, batch.files)
    result = written.result
    return IngestResult(
        version,
        written.plan,
        records=result.seen.records,
        corrupt=result.seen.corrupt,
        not_objects=result.seen.not_objects,
        multi_line=_find_multi_line(batch, result.seen),
        files=len(result.files),
        size_bytes=sum(file.size for file in result.files),
        left_out=batch.left_out,
        bad_files=batch.bad_files,
        verification=verification,
        interval=number,
        quarantined=result.seen.quarantined,
        quarantine=written.quarantine.location if written.quarantine else None,
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
