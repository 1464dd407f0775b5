"""Start a flow, or a chain of flows.

Source: docs/guide/flow.md
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from widen.errors import InvalidConfig, InvalidOption, OptionConflict
from widen.errors.tables import open_failure
from widen.evolution.policy import Policy
from widen.flows.flow_rows import FlowKeys, FlowQuery
from widen.flows.flow_step import FlowBatch, FlowCheckpoint, FlowSettings, FlowStep
from widen.iceberg.catalog import CatalogSource
from widen.ingestion.commit_batch import AfterCommit, BatchRequest, OnEvent, parse_share
from widen.ingestion.options import parse_options, to_quarantine
from widen.log.log_store import LogStore
from widen.model.argument_types import check_arguments
from widen.model.display import Progress, no_progress
from widen.model.types import quote_name, similarity_key
from widen.sources.listing import to_place
from widen.sources.places import ensure_outlives_vacuum
from widen.spark.engine import find_session
from widen.spark.spark_types import DataFrame, SparkSession
from widen.targets import find_flow_source, find_table
from widen.targets.table_format import after_commit

SKIP = "skip"
REMOVED = ("fail", SKIP)
"""What a flow without keys does with versions of its source that update or remove rows."""


@check_arguments
def flow(
    source: str | PathLike[str],
    into: str | PathLike[str],
    *,
    checkpoint: str | PathLike[str],
    transform: Callable[[DataFrame], DataFrame] | None = None,
    sql: str | None = None,
    keys: Sequence[str] | Mapping[str, str] | None = None,
    once: bool = False,
    every_seconds: float = 5,
    max_bytes: int | None = None,
    removed: str = "fail",
    rebuild: bool = False,
    verify: bool | float = False,
    to: str | None = None,
    catalog: CatalogSource | None = None,
    partition_by: Iterable[str] | None = None,
    source_catalog: CatalogSource | None = None,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = no_progress,
    on_event: OnEvent | None = None,
    on_batch: OnBatch | None = None,
    evolve: str | None = None,
    enable_type_widening: bool | None = None,
    pins: Mapping[str, str] | None = None,
    config: str | PathLike[str] | None = None,
    max_columns: int | None = None,
    numbers: str | None = None,
    quarantine: str | PathLike[str] | None = None,
    samples: str | None = None,
) -> Flow:
    """Carry what changes in one table on to another, and return the running flow.

    The first batch reads the newest version of the source. Each later batch reads a range of its versions, is planned
    from the types that the rows have now, and is one commit. Each version is committed exactly once, also if the
    process is killed and started again with the same checkpoint.

    The arguments that are not listed are documented in `ingest`; they apply to the target.

    Args:
        source: The table to read: a Delta table, or with ``source_catalog`` an Iceberg table.
        into: The table to write; the first batch creates it if it does not exist.
        checkpoint: The directory for the progress of the flow; use a separate one for each flow.
        transform: Computes the rows of the target from rows of the source.
        sql: The same as a query over the table ``source``. With neither of them, the rows are copied unchanged.
        keys: The columns that identify rows to replace, or expressions over the source by the column names, e.g.
            ``{"day": "to_date(placed_at)"}``. The query then sees all rows of the source whose keys occur in a row that
            was added, updated or removed, and its result replaces the rows of the target with these keys. Without keys
            the query sees the added rows, and its result is appended.
        once: Whether to return when the target has what the source has now; otherwise the flow runs in its own
            thread until it is stopped.
        every_seconds: The time to wait before the source is looked at again.
        max_bytes: A batch is full once the added files have this size; it has at least one version, or for the first
            version of a flow without keys, at least one file.
        removed: What a flow without keys does with a version that updates or removes rows: ``fail``, or ``skip`` to
            leave out the whole version.
        rebuild: Whether to begin with a batch that replaces all rows of the target, computed from the newest version of
            the source: after a change of the query, or if the source has lost its history.
        verify: Whether to compare the rows of each batch with the table after the commit; or the share of the rows.
        source_catalog: The catalog of an Iceberg table to read; as ``catalog``.
        storage_options: Settings and credentials of the stores of both tables and of the checkpoint.
        spark: The session to work in; by default the active one, else a local one.
        progress: Called with a description of each step.
        on_event: Called with the events of each batch after its commit; see `ingest`.
        on_batch: Called with the `FlowBatch` of each batch after its commit.
        quarantine: See `ingest`; for flows without keys.

    Returns:
        The flow. With ``once`` it has ended; else it raises the error of a failed batch when it is awaited.

    Raises:
        InvalidOption: an argument cannot be used.
        FlowChanged: the checkpoint belongs to another flow, or the target does not have what it should have.
        FlowKeyRefused: a key cannot tell which rows to replace.
        SourceRowsRemoved: the flow has no keys, and rows of the source were updated or removed.
        SourceHistoryLost: the source has lost changes that the flow has not read.
        EvolutionRefused: the policy forbids the changes that a batch needs; nothing of the batch is visible.
        LimitExceeded: a flow with keys has a row that a fixed column of the target cannot hold.
        TableError: a table cannot be read or written.

    Source: docs/guide/flow.md
    """
    given = locals()
    step = ChainStep(**{name: given[name] for name in ChainStep.__struct_fields__})
    settings = _to_settings(step, FlowQuery(transform, sql), storage_options, progress, on_event)
    settings.source.newest()  # a table that does not exist must not start Spark
    flow_step = FlowStep(find_session(spark, "flows run on it"), settings, rebuild=rebuild)
    return _run([flow_step], on_batch, every_seconds, once=once)


@check_arguments
def flow_chain(
    chain: str | PathLike[str],
    *,
    once: bool = False,
    every_seconds: float = 5,
    rebuild: bool = False,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = no_progress,
    on_event: OnEvent | None = None,
    on_batch: OnBatch | None = None,
) -> Flow:
    """Run a chain of flows, one after another, again and again.

    Args:
        chain: A TOML file with a table ``[[step]]`` for each flow, in their order; its keys are arguments of `flow`.
        once: See `flow`.
        every_seconds: See `flow`.
        rebuild: See `flow`; it applies to all flows of the chain.
        storage_options: See `flow`.
        spark: The session to work in; by default the active one, else a local one.
        progress: See `flow`.
        on_event: See `flow`.
        on_batch: See `flow`.

    Returns:
        The running chain; see `flow`.

    Raises:
        InvalidConfig: the file cannot be read, or it has an unknown setting or an invalid value.
        WidenError: as in `flow`.

    Source: docs/guide/flow.md#a-chain
    """
    flows = read_chain(chain)
    every = [_to_settings(each, FlowQuery(sql=each.sql), storage_options, progress, on_event) for each in flows]
    session, steps = find_session(spark, "flows run on it"), []
    targets: set[str] = set()
    for each, settings in zip(flows, every, strict=True):
        waits = to_place(each.source) in targets
        steps.append(FlowStep(session, settings, rebuild=rebuild, waits=waits))
        targets.add(to_place(each.into))
    return _run(steps, on_batch, every_seconds, once=once)


def check_flow(given: Mapping[str, object], storage_options: Mapping[str, str] | None) -> None:
    """Check the arguments of a flow, and that its source exists, which needs no session."""
    names: dict[str, Any] = {name: given[name] for name in ChainStep.__struct_fields__ if name in given}
    step = ChainStep(**names)
    _to_settings(step, FlowQuery(sql=step.sql), storage_options, no_progress, None).source.newest()


def check_chain(chain: str, storage_options: Mapping[str, str] | None) -> None:
    """Check the file of a chain, which needs no session."""
    for each in read_chain(chain):
        check_step(each, storage_options)


def check_step(step: ChainStep, storage_options: Mapping[str, str] | None) -> None:
    """Check the arguments of one flow of a file; its source may not exist yet."""
    _to_settings(step, FlowQuery(sql=step.sql), storage_options, no_progress, None)


def _to_settings(
    step: ChainStep,
    query: FlowQuery,
    storage_options: Mapping[str, str] | None,
    progress: Progress,
    on_event: OnEvent | None,
) -> FlowSettings:
    """Return the settings of a flow from its arguments."""
    _ensure_usable(query, step.removed, step.max_bytes)
    reader, policy = parse_options(msgspec.structs.asdict(step), storage_options)
    table = find_table(step.into, storage_options, to=step.to, catalog=step.catalog, partition_by=step.partition_by)
    expressions = _parse_keys(step.keys)
    _ensure_keys_kept(expressions, policy)
    source = find_flow_source(step.source, storage_options, step.source_catalog)
    if source.is_at(table):
        raise InvalidOption(option="into", value=fspath(step.into), expected="Must not be the source.")
    quarantine = to_quarantine(step.quarantine, table)
    checkpoint = to_place(step.checkpoint)
    tables = (source.location, table.location, table.quarantine(quarantine).location)
    ensure_outlives_vacuum(checkpoint, tables, storage_options)
    return FlowSettings(
        source=source,
        query=query,
        keys=FlowKeys(table.location, expressions) if expressions else None,
        request=BatchRequest(table=table, policy=policy, may_be_empty=True, progress=progress, quarantine=quarantine),
        reader=reader,
        checkpoint=FlowCheckpoint(LogStore(checkpoint, storage_options)),
        after=AfterCommit(parse_share(step.verify), on_event),
        max_bytes=step.max_bytes,
        skips_removed=step.removed == SKIP,
    )


def _run(steps: Sequence[FlowStep], on_batch: OnBatch | None, every_seconds: float, *, once: bool) -> Flow:
    if every_seconds < 0:
        raise InvalidOption(option="every_seconds", value=every_seconds, expected="Must be a number >= 0.")
    running = Flow(steps, on_batch)
    if once:
        running.run_once()
    else:
        running.start(every_seconds)
    return running


def _ensure_usable(query: FlowQuery, removed: str, max_bytes: int | None) -> None:
    if query.sql is not None and query.transform is not None:
        raise OptionConflict(option="sql", other_option="transform", expected="Give only one of them.")
    if removed not in REMOVED:
        raise InvalidOption(option="removed", value=removed, expected=f"Must be {' or '.join(REMOVED)}.")
    if max_bytes is not None and max_bytes < 1:
        raise InvalidOption(option="max_bytes", value=max_bytes, expected="Must be an integer >= 1.")


def _parse_keys(keys: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Return the expressions of keys by their columns; a column alone is its own expression."""
    if isinstance(keys, str):
        raise InvalidOption(option="keys", value=keys, expected="Must be a list of columns.")
    return dict(keys) if isinstance(keys, Mapping) else {name: quote_name(name) for name in keys or ()}


def _ensure_keys_kept(keys: Mapping[str, str], policy: Policy) -> None:
    """Check that the policy does not change the values of keys, because their rows are found again by them."""
    for name in keys:
        for option, paths in {"pins": policy.pins, "exclude": policy.excluded, "mask": policy.masked}.items():
            if any(len(path) == 1 and similarity_key(path[0]) == similarity_key(name) for path in paths):
                raise InvalidOption(option=option, value=name, expected="Must not name a key. Use the query instead.")


# A chain of flows in a TOML file: a table ``[[step]]`` for each flow, in their order.
#
# Source: docs/guide/flow.md#a-chain; TOML 1.0.


class ChainStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of `widen.flow` that a file can set; `widen.flow` describes them."""

    source: str
    into: str
    checkpoint: str
    sql: str | None = None
    keys: list[str] | dict[str, str] | None = None
    max_bytes: int | None = None
    removed: str = "fail"
    verify: bool | float = False
    to: str | None = None
    catalog: str | None = None
    partition_by: list[str] | None = None
    source_catalog: str | None = None
    evolve: str | None = None
    enable_type_widening: bool | None = None
    pins: dict[str, str] | None = None
    config: str | None = None
    max_columns: int | None = None
    numbers: str | None = None
    quarantine: str | None = None
    samples: str | None = None


class _Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: list[ChainStep]


def read_chain(file: str | PathLike[str]) -> Sequence[ChainStep]:
    """Return the flows in a file.

    Raises:
        InvalidConfig: the file cannot be read, is not TOML, has an unknown setting or an invalid value, or two of its
            flows have one checkpoint.
    """
    name = fspath(file)
    try:
        steps = msgspec.toml.decode(Path(name).read_text(encoding="utf-8"), type=_Chain).step
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = "Must have a table [[step]] for each flow, with source, into, checkpoint and the options of a flow."
        raise InvalidConfig(place=name, reason=str(error).rstrip("."), expected=expected) from error
    except (OSError, ValueError) as error:
        raise InvalidConfig(place=name, reason=open_failure(error), expected="Check the path of the chain.") from error
    folders = [step.checkpoint.rstrip("/") for step in steps]
    for folder in folders:
        if folders.count(folder) > 1:
            expected = "Each flow needs its own checkpoint."
            raise InvalidConfig(place=name, reason=f"two flows have the checkpoint {folder}", expected=expected)
    return steps


# Run flows until they have everything, or until they are stopped.


OnBatch: TypeAlias = Callable[[FlowBatch], object]
"""Called with the result of each batch after its commit."""

KEPT_BATCHES = 1000


class Flow:
    """One flow, or a chain of flows that run one after another, again and again.

    Args:
        steps: The flows, in the order of the chain.
        on_batch: Called with the result of each batch.
    """

    def __init__(self, steps: Sequence[FlowStep], on_batch: OnBatch | None) -> None:
        self._steps, self._on_batch = steps, on_batch
        self._batches: deque[FlowBatch] = deque(maxlen=KEPT_BATCHES)
        self._stop, self._thread, self._failure = threading.Event(), threading.Thread(), _Failure()

    @property
    def batches(self) -> list[FlowBatch]:
        """The results of the last batches, at most 1000, oldest first."""
        return list(self._batches)

    @property
    def is_active(self) -> bool:
        """Whether the flow is still running."""
        return self._thread.is_alive()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the flow has ended, and return whether it has.

        Args:
            timeout_seconds: The longest time to wait; by default unlimited.

        Raises:
            WidenError: a batch has failed. Earlier batches stay committed; a flow that is started again repeats it.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if self._failure.error is not None:
            raise self._failure.error
        return not self._thread.is_alive()

    def stop(self, timeout_seconds: float = 60) -> None:
        """Stop the flow after the batch that is being written.

        Args:
            timeout_seconds: How long to wait for that batch.
        """
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    def run_once(self) -> None:
        """Run every step until its target has what its source has now.

        Raises:
            WidenError: a batch has failed.
        """
        for step in self._steps:
            for batch in step.run():
                self._batches.append(batch)
                if self._on_batch is not None:
                    version = None if batch.result is None else batch.result.version
                    with nullcontext() if version is None else after_commit(batch.into, version):
                        self._on_batch(batch)
                if self._stop.is_set():
                    return

    def start(self, every_seconds: float) -> None:
        """Run in its own thread until the flow is stopped.

        Args:
            every_seconds: The time to wait before the sources are looked at again.
        """
        self._thread = threading.Thread(target=self._loop, args=(every_seconds,), name="widen-flow", daemon=True)
        self._thread.start()

    def _loop(self, every_seconds: float) -> None:
        with self._failure:
            while not self._stop.is_set():
                self.run_once()
                self._stop.wait(every_seconds)


class _Failure:
    """Keeps the error of a thread, of any kind, for the caller who waits for it."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True
