"""One flow: it reads what has changed in its source, a range of versions at a time, and commits it to its target.

Each batch gets a new plan from the types that its rows have, by the rules of an ingestion. So a new column, a wider
type or another kind of values does not stop a flow.

Source: docs/guide/flow.md
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, replace
from typing import Any, TypeAlias

import msgspec

from widen.batches.open_source import BatchReader, persist_source
from widen.changes.overwrite import ReplacedRows
from widen.errors import (
    FileMissing,
    FlowChanged,
    FlowKeyRefused,
    FlowTaken,
    InvalidConfig,
    InvalidOption,
    SourceRowsRemoved,
    TableNotFound,
)
from widen.evolution.plan import Plan
from widen.evolution.policy import Mode
from widen.flows.flow_rows import FlowKeys, FlowQuery, layout_of_rows, type_features
from widen.ingestion.commit_batch import AfterCommit, BatchRequest, CommitGuard, commit_batch, persist_if_reread
from widen.ingestion.options import parse_limits
from widen.ingestion.result import IngestResult
from widen.log.log_store import LogStore
from widen.log.vacuum import FLOW_FILE
from widen.model.display import html_table
from widen.model.types import is_same_name
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import source_key
from widen.spark.session import activate_session
from widen.spark.spark_types import DataFrame, SparkSession
from widen.targets.table_format import (
    FlowSource,
    IngestTarget,
    RangeLimits,
    RowReplacingDraft,
    SourceVersion,
    TableDraft,
    TransactionId,
    VersionRange,
    after_commit,
    several_commits,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """What a flow reads, computes and writes.

    Args:
        keys: The keys of the rows that it replaces; None to append rows.
        max_bytes: A batch is full once the added files have this size.
        skips_removed: Whether a flow without keys leaves out versions that update or remove rows.
    """

    source: FlowSource
    query: FlowQuery
    keys: FlowKeys | None
    request: BatchRequest
    reader: BatchReader
    checkpoint: FlowCheckpoint
    after: AfterCommit
    max_bytes: int | None = None
    skips_removed: bool = False

    @property
    def into(self) -> str:
        """The location of the target."""
        return self.request.table.location

    @property
    def keeps_layout(self) -> bool:
        """Whether a new target gets the columns of the query, in their order and with their types.

        The planner would sort them by name and would also choose types that Iceberg has.
        """
        return self.request.table.keeps_types and self.request.policy.mode is not Mode.FAIL

    @property
    def key_texts(self) -> dict[str, str]:
        """The keys with their expressions."""
        return {} if self.keys is None else dict(self.keys.expressions)


class FlowStep:
    """A flow that can be run again and again; each run continues where its checkpoint and its target say.

    Args:
        rebuild: Whether the first batch replaces all rows of the target.
        waits: Whether the source may not exist yet: an earlier flow of the chain creates it with its first rows.
    """

    def __init__(
        self, spark: SparkSession, settings: FlowSettings, *, rebuild: bool = False, waits: bool = False
    ) -> None:
        self._spark, self._settings, self._rebuilds, self._waits = spark, settings, rebuild, waits
        self._newest: SourceVersion
        self._progress: FlowProgress

    def run(self) -> Iterator[FlowBatch]:
        """Commit batches until the target has the version of the source that is the newest now, and yield each."""
        with self._settings.after.publish_failure(self._settings.into):
            if not self._open():
                return
        while (batch := self._publish_next()) is not None:
            yield batch

    def _publish_next(self) -> FlowBatch | None:
        with self._settings.after.publish_failure(self._settings.into):
            return self._next()

    def _open(self) -> bool:
        """Read where the flow stands; return False if its source does not exist yet."""
        activate_session(self._spark)
        try:
            self._newest = self._settings.source.newest()
        except TableNotFound:
            if self._waits:
                return False
            raise
        self._progress = self._begin()
        return True

    def _begin(self) -> FlowProgress:
        """Return the progress of the flow, after a check that it is the same flow."""
        settings, table_id = self._settings, self._newest.table_id
        recorded, keys, query = settings.checkpoint.read(), settings.key_texts, settings.query.text
        new = FlowProgress(
            flow_id=to_flow_id(table_id, query, keys),
            source=settings.source.location,
            source_id=table_id,
            into=settings.into,
            query=query,
            keys=keys,
        )
        if self._rebuilds:
            self._ensure_quarantine_empty()
            self._rebuilds = False
            new = msgspec.structs.replace(new, pending=self._newest.version, is_rebuild=True)
            return settings.checkpoint.write(new)
        if not keys:  # two processes that begin at once must read the same version in the same parts
            new = msgspec.structs.replace(new, snapshot=self._newest.version, part_bytes=settings.max_bytes)
        if recorded is None:
            return settings.checkpoint.create(new)
        if recorded.flow_id != new.flow_id and not self._has_begun(recorded):
            return settings.checkpoint.write(new)
        for is_same, reason in (
            (recorded.source_id == table_id, f"{settings.source.location} is another table than before"),
            (recorded.query == query, f"its query was {recorded.query or 'empty'}"),
            (recorded.keys == keys, f"its keys were {', '.join(recorded.keys) or 'none'}"),
        ):
            if not is_same:
                raise FlowChanged(checkpoint=settings.checkpoint.location, reason=reason)
        return recorded

    def _has_begun(self, progress: FlowProgress) -> bool:
        """Return whether a flow has written anything; before that, its query may be corrected."""
        if progress.version is not None or progress.is_rebuild:
            return True
        target = self._settings.request.open_target()
        return any(target.last_interval(name) for name in (progress.flow_id, _parts_id(progress)))

    def _ensure_quarantine_empty(self) -> None:
        """Check that a rebuild does not compute records again that a replay would also add."""
        request = self._settings.request
        try:
            quarantine = request.table.quarantine(request.quarantine)
            is_empty = quarantine.open().is_empty
        except TableNotFound:
            return
        if not is_empty:
            expected = f"Replay or delete the records in {quarantine.location} first: a rebuild computes them again."
            raise InvalidOption(option="rebuild", value=True, expected=expected)

    def _next(self) -> FlowBatch | None:
        """Commit the next batch; return None if the target has the newest version."""
        progress = self._progress
        target = self._settings.request.open_target()
        if progress.is_rebuild:
            return self._rebuild()
        committed = target.last_interval(progress.flow_id)
        self._ensure_same_target(committed)
        # Either may be behind: the checkpoint after a crash that followed the commit, the target where versions had no
        # rows.
        versions = [progress.version, None if committed is None else committed.number]
        done = max((version for version in versions if version is not None), default=None)
        if done is None:
            return self._read_all() if self._settings.keys else self._read_part(target)
        if done > self._newest.version:  # another process has read a version that has come since
            self._newest = self._settings.source.newest()
        if done > self._newest.version:
            reason = f"it has read version {done} of {self._settings.source.location}, which no longer exists"
            raise FlowChanged(checkpoint=self._settings.checkpoint.location, reason=reason)
        pending = progress.pending if progress.pending is not None and progress.pending > done else None
        end = self._newest.version if pending is None else pending
        return None if done == end else self._follow(done, end, committed, is_pinned=pending is not None)

    def _ensure_same_target(self, committed: TransactionId | None) -> None:
        expected = self._progress.committed
        if expected is not None and (committed is None or committed.number < expected):
            reason = (
                f"{self._settings.into} no longer records that it has version {expected} of the source; it was "
                "replaced, or its transactions have expired"
            )
            raise FlowChanged(checkpoint=self._settings.checkpoint.location, reason=reason)

    # ---- batches ---------------------------------------------------------------------------------------

    def _rebuild(self) -> FlowBatch:
        """Replace all rows of the target."""
        version = self._progress.pending
        assert version is not None
        self._show_progress(f"computing {self._settings.into} again from version {version}")
        rows = self._settings.source.rows(self._spark, version)
        result = self._commit_keyed(rows, [rows], version, None, replaces_all=True)
        return self._finish(version, version, result, is_rebuild=True)

    def _read_all(self) -> FlowBatch:
        """Read the first version of a flow with keys at once: rows with one key can be in all of its files."""
        version = self._newest.version
        self._show_progress(f"reading version {version}")
        rows = self._settings.source.rows(self._spark, version)
        result = self._commit_keyed(rows, [rows], version, None)
        return self._finish(version, version, result)

    def _read_part(self, target: IngestTarget) -> FlowBatch:
        """Read the next part of the first version of a flow without keys."""
        settings, progress = self._settings, self._progress
        version = progress.snapshot
        assert version is not None
        parts = settings.source.parts(version, progress.part_bytes)
        written = target.last_interval(parts_id := _parts_id(progress))
        number = max(progress.parts, 0 if written is None else written.number + 1)
        if number >= len(parts):
            return self._finish(version, version, None)
        is_last = number == len(parts) - 1
        self._show_progress(f"reading part {number + 1} of {len(parts)} of version {version}")
        # The target has the version only with its last part; the parts before are numbered under an id of their own.
        interval = TransactionId(progress.flow_id, version) if is_last else TransactionId(parts_id, number)
        try:
            rows = settings.query.run(self._spark, settings.source.rows(self._spark, version, parts[number]))
        except Exception:  # of any kind: it is the user's function
            self._forget_version()
            raise
        result = self._commit(rows, interval, None if is_last else written)
        if is_last:
            return self._finish(version, version, result, part=number)
        with self._after(result):
            self._advance(parts=number + 1)
        return FlowBatch(settings.source.location, settings.into, version, version, result=result, part=number)

    def _forget_version(self) -> None:
        """Let the next run begin with a later version, which the query may fit, unless this one has been begun.

        Only the checkpoint records the version that the target may have in part, and the size of the parts.
        """
        checkpoint = self._settings.checkpoint
        if checkpoint.read() == self._progress and not self._has_begun(self._progress):
            checkpoint.remove()

    def _follow(self, done: int, end: int, committed: TransactionId | None, *, is_pinned: bool) -> FlowBatch:
        """Read the next range of versions."""
        settings = self._settings
        limits = RangeLimits(end, settings.max_bytes, is_pinned=is_pinned, only_added=settings.keys is None)
        versions = settings.source.range_after(done, limits)
        if versions.is_empty:
            return self._finish(done + 1, versions.last, None)
        self._show_progress(f"reading versions {done + 1} to {versions.last}")
        if settings.keys is None:
            self._ensure_only_added(versions)
            rows = settings.query.run(self._spark, versions.added_rows(self._spark))
            # The quarantine is written before the target: a batch that is repeated must have the same rows.
            self._advance(version=done, pending=versions.last)
            result = self._commit(rows, TransactionId(self._progress.flow_id, versions.last), committed)
            return self._finish(done + 1, versions.last, result, skipped=tuple(versions.removing_versions))
        rows = settings.source.rows(self._spark, versions.last)
        result = self._commit_keyed(rows, versions.changed_rows(self._spark), versions.last, committed)
        return self._finish(done + 1, versions.last, result)

    def _ensure_only_added(self, versions: VersionRange) -> None:
        if versions.removing_versions and not self._settings.skips_removed:
            first, *others = map(str, versions.removing_versions)
            named = f"version {first}" + (f" and {len(others)} later ones" if others else "")
            source = self._settings.source.location
            raise SourceRowsRemoved(into=self._settings.into, location=source, versions=named)

    # ---- commits ---------------------------------------------------------------------------------------

    def _commit_keyed(
        self,
        rows: DataFrame,
        changed: Sequence[DataFrame],
        version: int,
        committed: TransactionId | None,
        *,
        replaces_all: bool = False,
    ) -> IngestResult | None:
        """Compute the rows of all changed keys again, and replace these rows in the target."""
        settings, spark = self._settings, self._spark
        interval = TransactionId(self._progress.flow_id, version)
        if settings.keys is None:
            return self._commit(settings.query.run(spark, rows), interval, committed, ReplacedRows(spark))
        with persist_source(settings.keys.find_changed(changed)) as keys:
            computed = settings.query.run(spark, settings.keys.rows_of(rows, keys))
            with persist_source(computed) as result:
                settings.keys.ensure_kept(result, keys)
                replaced = ReplacedRows(spark, settings.keys.columns, None if replaces_all else keys)
                return self._commit(result, interval, committed, replaced)

    def _commit(
        self,
        rows: DataFrame,
        interval: TransactionId,
        previous: TransactionId | None,
        replaced: ReplacedRows | None = None,
    ) -> IngestResult | None:
        settings = self._settings
        request = replace(
            settings.request,
            interval=interval,
            guard=FlowGuard(interval, settings.into, previous, replaced),
            replaces_rows=replaced is not None,
        )
        if replaced is not None:  # a record of the quarantine would not be replaced with the rows of its key
            request = replace(request, limits=parse_limits(max_quarantined=0))
        # An ingestion adds no table features, and a type of the source may need one.
        features = type_features(rows) & self._newest.features
        with several_commits() if features else nullcontext():
            if features:
                request.table.add_features(features)
            target = request.open_target()
            if target.version is None and settings.keeps_layout:
                layout = layout_of_rows(rows, target.policy.table_format)
                request = replace(request, policy=replace(request.policy, layout=layout))
                target = request.open_target()
            with persist_if_reread(rows, target, settings.after) as source:
                batch = settings.reader.open(self._spark, source)
                return commit_batch(lambda _: batch, request, target, settings.after)

    # ---- progress --------------------------------------------------------------------------------------

    def _finish(self, first: int, last: int, result: IngestResult | None, **more: Any) -> FlowBatch:
        """Record that all versions up to the last one have been read."""
        committed = self._progress.committed if result is None else last
        ended = {"pending": None, "snapshot": None, "part_bytes": None, "parts": 0, "is_rebuild": False}
        with self._after(result):
            self._advance(version=last, committed=committed, **ended)
        return FlowBatch(self._settings.source.location, self._settings.into, first, last, result=result, **more)

    def _after(self, result: IngestResult | None) -> AbstractContextManager[None]:
        """Return a context for the work that follows a batch: its errors say if the batch is committed."""
        if result is None or result.version is None:
            return nullcontext()
        return after_commit(self._settings.into, result.version)

    def _advance(self, **changes: Any) -> None:
        new = msgspec.structs.replace(self._progress, **changes)
        if new != self._progress:
            self._progress = self._settings.checkpoint.write(new)

    def _show_progress(self, step: str) -> None:
        self._settings.request.progress(f"{step} of {self._settings.source.location}")


def _parts_id(progress: FlowProgress) -> str:
    """Return the id that the target has for the parts of the first version, apart from the last one."""
    return f"{progress.flow_id}-parts"


# What a batch of a flow requires of the version of the target that it is committed to.
#
# Source: docs/guide/flow.md#exactly-once


@dataclass(frozen=True, slots=True)
class FlowGuard(CommitGuard):
    """Lets a batch be committed if the target is as the batch expects it.

    Args:
        previous: The last batch of the flow that the target has; None before the first.
    """

    into: str = ""
    previous: TransactionId | None = None
    replaced: ReplacedRows | None = None

    def is_repeated(self, target: IngestTarget) -> bool:
        """Return whether the target has the batch already.

        Raises:
            FlowTaken: it has another batch of the flow, which this run does not know.
        """
        assert self.interval is not None
        if self.replaced is not None and self.replaced.keys is None:
            return False  # all rows are replaced, so that it may be done again
        if target.has_interval(self.interval):
            return True
        last = target.last_interval(self.interval.app_id)
        if last is not None and last != self.previous:
            raise FlowTaken(location=target.location, version=last.number)
        return False

    def prepare_draft(self, draft: TableDraft, plan: Plan) -> TableDraft:
        """Return the draft, with the rows that its commit removes.

        Raises:
            FlowKeyRefused: a key would go to a column with another name.
        """
        if self.replaced is None:
            return draft
        for key in self.replaced.columns:
            sources = {field.name: source_key(field) for field in plan.schema}
            exact = [name for name, source in sources.items() if source == key]
            columns = exact or [name for name, source in sources.items() if is_same_name(source, key)]
            is_kept_as_text = any(each.source == (key,) for each in plan.rescued)
            if len(columns) != 1 or is_kept_as_text:
                reason = "its values have a type that its column cannot hold"
                raise FlowKeyRefused(key=key, into=self.into, reason=reason, fix=_FIX)
        assert isinstance(draft, RowReplacingDraft)
        return draft.with_replaced_rows(self.replaced)


_FIX = "Cast the key in the query and in keys, and use rebuild=True (--rebuild); or widen the column of the target."


# The result of one batch of a flow.


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """The result of one batch of a flow.

    Args:
        source: The location of the source.
        into: The location of the target.
        first: The first version of the source that the batch has read.
        last: The last one.
        result: What was written; None if no row has changed.
        skipped: The versions of the source that were left out, because they updated or removed rows.
        part: The number of the part, if the first version of the source is read in parts.
        is_rebuild: Whether the batch has replaced all rows of the target.
    """

    source: str
    into: str
    first: int
    last: int
    _: KW_ONLY
    result: IngestResult | None = None
    skipped: tuple[int, ...] = ()
    part: int | None = None
    is_rebuild: bool = False

    def __repr__(self) -> str:
        done = "no row has changed" if self.result is None else f"version {self.result.version}"
        return f"FlowBatch(source versions {self.first} to {self.last}: {done})"

    def _repr_html_(self) -> str:
        numbers = self.to_value()
        rows = ((name, numbers[name]) for name in ("source", "into", "firstVersion", "lastVersion"))
        return html_table("FlowBatch", ("", "value"), rows) + (self.result._repr_html_() if self.result else "")

    def to_value(self) -> dict[str, Any]:
        """Return the batch as a JSON object."""
        return {
            "source": self.source,
            "into": self.into,
            "firstVersion": self.first,
            "lastVersion": self.last,
            "skippedVersions": list(self.skipped),
            "part": self.part,
            "isRebuild": self.is_rebuild,
            "result": None if self.result is None else self.result.to_value(),
        }


OnBatch: TypeAlias = Callable[[FlowBatch], object]
"""Called with the result of each batch after its commit."""


# The checkpoint of a flow: what the flow reads and writes, and how far it has read.
#
# The transactions of the target say which versions of the source it has. The checkpoint adds what they cannot say:
# that versions without rows have been read, and where a batch ends that may have been interrupted, so that it is
# repeated with the same rows.
#
# Source: docs/guide/flow.md#exactly-once


_FORMAT = 1


class FlowProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a flow, as its checkpoint stores it.

    Args:
        version: The last version of the source that has been read; None before the first.
        pending: The version that the current batch ends with; None between two batches.
        committed: The last version whose rows were committed to the target; None before the first.
        snapshot: The version that the flow begins with, while it is read in parts.
        part_bytes: The size of these parts; None for all at once.
        parts: How many of them have been read.
        is_rebuild: Whether the current batch replaces all rows of the target.
    """

    flow_id: str
    source: str
    source_id: str
    into: str
    query: str
    keys: dict[str, str]
    version: int | None = None
    pending: int | None = None
    committed: int | None = None
    snapshot: int | None = None
    part_bytes: int | None = None
    parts: int = 0
    is_rebuild: bool = False
    format: int = _FORMAT


@dataclass(frozen=True, slots=True)
class FlowCheckpoint:
    """The folder of a checkpoint."""

    store: LogStore

    @property
    def location(self) -> str:
        """The path or URL."""
        return self.store.location

    def read(self) -> FlowProgress | None:
        """Return the progress of the flow; None for a new flow."""
        try:
            data = self.store.read(FLOW_FILE)
        except FileMissing:
            return None
        try:
            progress = msgspec.json.decode(data, type=FlowProgress)
        except msgspec.DecodeError as error:
            fix = "Delete the file: the flow then continues after the last version that its target has."
            raise self._unusable(str(error), fix) from error
        if progress.format > _FORMAT:
            reason = f"it has the format {progress.format}, and this version of Widen knows {_FORMAT}"
            raise self._unusable(reason, "Install a newer version of Widen.")
        return progress

    def create(self, progress: FlowProgress) -> FlowProgress:
        """Write the first progress, and return it; if another process was first, return what that one has written."""
        is_first = self.store.put_if_absent(FLOW_FILE, msgspec.json.encode(progress))
        return progress if is_first else self.read() or progress

    def write(self, progress: FlowProgress) -> FlowProgress:
        self.store.put(FLOW_FILE, msgspec.json.encode(progress))
        return progress

    def remove(self) -> None:
        """Delete the progress."""
        self.store.delete([FLOW_FILE])

    def _unusable(self, reason: str, expected: str) -> InvalidConfig:
        return InvalidConfig(place=f"{self.location}/{FLOW_FILE}", reason=reason, expected=expected)


def to_flow_id(source_id: str, query: str, keys: dict[str, str]) -> str:
    """Return the id of a flow in the transactions of its target; a flow whose checkpoint is lost gets the same one."""
    text = msgspec.json.encode([source_id, query, keys])
    return f"widen-flow-{hashlib.sha256(text).hexdigest()[:32]}"
