"""Replay a quarantine: write the records that the table can hold now, and remove them from the quarantine.

The order of the two commits, and what happens after a crash between them: `widen.targets.delta_quarantine`.

Source: docs/evolution-rules.md#d12
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from os import PathLike, fspath
from typing import Any, cast

from widen.batches.text_batch import Batch, TextBatch, TextReaders, quarantined_files, quarantined_texts, union_rows
from widen.errors import InvalidOption
from widen.evolution.plan import Plan
from widen.evolution.policy import Policy
from widen.iceberg.catalog import CatalogSource
from widen.ingestion.commit_batch import (
    BatchRequest,
    WrittenBatch,
    ensure_plan_allowed,
    write_pass,
    write_until_plan_is_stable,
)
from widen.ingestion.ingest_options import BranchOptions, ReplayOptions
from widen.ingestion.options import ensure_keys_loaded, parse_options
from widen.json.observation import Observation
from widen.model.argument_types import check_arguments
from widen.model.column_path import format_path
from widen.model.keyword_options import Unpack, declared
from widen.model.value_classes import dataclass
from widen.sources.file_ranges import RawTexts
from widen.spark.engine import is_local, open_session
from widen.targets import find_table
from widen.targets.table_format import (
    Conflicted,
    IngestTarget,
    QuarantineContent,
    StagedFiles,
    after_commit,
    merge_if_keyed,
    retry_conflicts,
)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay.

    Args:
        version: The version of the table that holds the records.
        plan: The changes that they needed.
        replayed: The number of records written to the table.
        left: The number of records that are still in the quarantine.
    """

    version: int
    plan: Plan
    replayed: int
    left: int

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        counts = {"replayed": self.replayed, "left": self.left}
        return {"version": self.version, **counts, "plan": self.plan.to_value()}


@check_arguments
def replay(source: str | PathLike[str], into: str | PathLike[str], **options: Unpack[ReplayOptions]) -> ReplayResult:
    """Write the records of a quarantine that a table can hold now to the table, and remove them from the quarantine.

    ``catalog`` and ``storage_options`` are those of both tables.

    Args:
        source: The quarantine.
        into: The table.

    Raises:
        InvalidOption: an argument cannot be used, or the source is not a quarantine.
        TableNotFound: one of the two tables does not exist.
        SourceError: an earlier replay was interrupted so long ago that the log no longer records what it did.
        EvolutionRefused: the policy forbids the changes that the records need; nothing is changed.
        ContentionError: other writers kept committing first.
        TableError: one of the tables cannot be read or written.

    Source: docs/evolution-rules.md#d12
    """
    _, policy = parse_options(options)
    of_table = {name: options[name] for name in declared(BranchOptions)}  # type: ignore[literal-required]
    table = find_table(into, options["storage_options"], **of_table)
    request = BatchRequest(table=table, policy=policy, progress=options["progress"])
    quarantine = request.table.quarantine(fspath(source))
    request = replace(request, keys=request.table.open(policy).key_rules)
    if request.keys is not None:
        ensure_keys_loaded(request.keys, policy)
    if request.keys is not None and request.keys.excluded:
        names = ", ".join(map(format_path, request.keys.excluded))
        raise InvalidOption(option="source", value=fspath(source), expected=_NOT_KEPT.format(names))
    quarantine.finish_replay(_open_existing(request))
    content = quarantine.open()
    session = open_session(options["spark"], options["engine"])
    if is_local(session):
        session.accept(content.size_bytes)
    # Rows of one engine are of no use to the other one.
    readers = TextReaders(lambda: cast(RawTexts, quarantined_texts(content.rows(session))))
    batch = TextBatch(session, readers, quarantine.location)
    result = retry_conflicts(_Replay(batch, content, request).attempt)
    if result.replayed:
        with after_commit(request.table.location, result.version):
            quarantine.finish_replay(_open_existing(request))
    return result


_NOT_KEPT = (
    "The loads of the table excluded {0}, which says whether a record deletes. The quarantine does not have it, so a "
    "replay would bring deleted rows back. Load the records again from their files, which the quarantine names."
)


def ensure_replayable(
    source: str,
    into: str,
    *,
    catalog: CatalogSource | None = None,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> None:
    """Check the tables of a replay, which needs no session; see `replay`."""
    table = find_table(into, storage_options, catalog=catalog, branch=branch)
    request = BatchRequest(table=table, policy=Policy(), keys=table.open(Policy()).key_rules)
    _open_existing(request)
    request.table.quarantine(source).open()


@dataclass
class _Replay:
    """The records of a quarantine, and what the attempts to commit them have observed so far."""

    batch: Batch
    content: QuarantineContent
    request: BatchRequest
    observed: Observation = field(default_factory=Observation)

    def attempt(self, _: Conflicted | None) -> ReplayResult | Conflicted:
        """Plan, write and commit once."""
        target = _open_existing(self.request)
        assert target.version is not None
        assert target.schema is not None
        # Two replays of one version race: the table records the first, and the second must not write the same records.
        if self.content.is_empty or target.has_interval(self.content.interval):
            return ReplayResult(target.version, Plan((), target.schema), 0, 0)
        write = partial(write_pass, self.batch, self.request.progress)
        written = write_until_plan_is_stable(target, self.observed, write)
        self.observed = self.observed.merged(written.result.seen, max)
        return self._commit(written, target.version)

    def _commit(self, written: WrittenBatch, table_version: int) -> ReplayResult | Conflicted:
        result, draft = written.result, written.draft
        replayed, left = result.seen.records, result.seen.quarantined
        with StagedFiles() as staged:
            staged.add_undo(partial(draft.discard, result))
            ensure_plan_allowed(written.plan, self.request)
            if not replayed:
                return ReplayResult(table_version, written.plan, 0, left)
            files = quarantined_files(self.content.rows(self.batch.spark))
            # Rows that name a file which cannot be read have no record to replay. They stay.
            remaining = union_rows(result.quarantined_records, files)
            parameters = self.content.write_remaining(remaining, table_version, staged)
            self.request.progress("committing")
            interval = self.content.interval
            # The table knows newer records than those that waited here; by its keys these change nothing.
            draft, result, _ = merge_if_keyed(draft, result, self.batch.spark, staged)
            version = draft.commit(written.plan, result, staged=staged, interval=interval, parameters=parameters)
        return version if isinstance(version, Conflicted) else ReplayResult(version, written.plan, replayed, left)


def _open_existing(request: BatchRequest) -> IngestTarget:
    target = request.open_target()
    if target.version is None:
        raise request.table.not_found()
    return target
