"""After the commit of an interval: verify it, publish its events, and return its result.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias, TypeVar

from widen.errors import InvalidOption, PostCommitFailed, WidenError
from widen.formats.table_format import IngestTarget, after_commit, reason_of, run_logged
from widen.ingestion.commit_batch import BatchRequest
from widen.ingestion.result import EventDetail, FailureEvent, IngestResult, IntervalEvent, LoadEvent
from widen.ingestion.stable_plan import WrittenBatch
from widen.model.progress import Step
from widen.observe.observation import Observation, position_text
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.open_source import IngestSource, persist_source
from widen.spark.source.changed_files import ensure_unchanged, explain_changes
from widen.spark.source.json_texts import is_small

_Source = TypeVar("_Source", bound=IngestSource)

OnEvent: TypeAlias = Callable[[IntervalEvent], object]
"""Called with each event of an interval after its commit, and with an event of each interval that fails."""


@dataclass(frozen=True, slots=True)
class IntervalWatch:
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
        try:
            yield
        except Exception as error:  # any kind, also one of a query or a listener of the caller
            version = error.fields["version"] if isinstance(error, PostCommitFailed) else None
            code = error.code if isinstance(error, WidenError) else type(error).__name__
            failure = FailureEvent(code, reason_of(error))
            visible = version if isinstance(version, int) else None
            publish = partial(self.publish, location, number, [failure], version=visible)
            run_logged(publish, "publish that a load has failed")
            raise


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
        PostCommitFailed: the interval is committed, but an event could not be published, or the verification failed.
    """
    assert written.version is not None
    with after_commit(request.table.location, written.version):
        result = _build_result(batch, written, request)
        # After the commit only: a listener must not hear of a change that nobody can see.
        plan = written.plan
        watch.publish(
            request.table.location,
            result.interval,
            (*plan.events, *plan.unmatched, *plan.bad_files, LoadEvent.of(result)),
            version=result.version,
        )
        if not watch.verified or result.is_repeated:
            return result
        size_bytes = sum(file.size_bytes for file in batch.files)
        request.progress(Step("verifying", size_bytes, result.records))
        assert result.version is not None
        with explain_changes(batch.spark, batch.files):
            verification = written.target.verify(
                batch, written.result, result.version, written.quarantine, watch.verified
            )
            # A source that changed since it was read would look like loss.
            if not verification.is_clean:
                ensure_unchanged(batch.spark, batch.files)
        return replace(result, verification=verification)


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
        not_objects=result.seen.not_objects,
        multi_line=_find_multi_line(batch, result.seen),
        files=len(result.files),
        size_bytes=sum(file.size for file in result.files),
        left_out=batch.left_out,
        bad_files=batch.bad_files,
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
