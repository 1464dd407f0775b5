"""Start a flow, or a chain of flows.

Source: docs/guide/flow.md
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from os import PathLike, fspath
from typing import Any

import msgspec

from widen.errors import InvalidConfig, InvalidOption, OptionConflict
from widen.evolution.policy import Policy
from widen.flows.flow_options import ChainOptions, FlowOptions, StepOptions
from widen.flows.flow_rows import FlowKeys, FlowQuery
from widen.flows.flow_step import FlowBatch, FlowCheckpoint, FlowSettings, FlowStep, OnBatch
from widen.ingestion.commit_batch import AfterCommit, BatchRequest, parse_share
from widen.ingestion.ingest_options import PartitionOptions
from widen.ingestion.options import at_place, ensure_known, parse_options, to_quarantine
from widen.ingestion.toml_files import read_toml
from widen.log.log_store import LogStore
from widen.model.argument_types import check_arguments, ensure_argument_types
from widen.model.keyword_options import Unpack, declared, with_defaults
from widen.model.types import quote_name, similarity_key
from widen.sources.listing import to_place
from widen.sources.places import ensure_outlives_vacuum
from widen.spark.engine import find_session
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
    **options: Unpack[FlowOptions],
) -> Flow:
    """Carry what changes in one table on to another, and return the running flow.

    The first batch reads the newest version of the source. Each later batch reads a range of its versions, is planned
    from the types that the rows have now, and is one commit. Each version is committed exactly once, also if the
    process is killed and started again with the same checkpoint.

    The options of the schema apply to the target, and ``quarantine`` to flows without ``keys``.

    Args:
        source: The table to read: a Delta table, or with ``source_catalog`` an Iceberg table.
        into: The table to write; the first batch creates it if it does not exist.
        checkpoint: The directory for the progress of the flow; use a separate one for each flow.

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
    given = {"source": source, "into": into, "checkpoint": checkpoint, **options}
    settings = _to_settings(given)
    settings.source.newest()  # a table that does not exist must not start Spark
    flow_step = FlowStep(find_session(options["spark"], "flows run on it"), settings, rebuild=options["rebuild"])
    return _run([flow_step], options)


@check_arguments
def flow_chain(chain: str | PathLike[str], **options: Unpack[ChainOptions]) -> Flow:
    """Run a chain of flows, one after another, again and again. The options apply to all of them.

    Args:
        chain: A TOML file with a table ``[[step]]`` for each flow, in their order; its keys are arguments of `flow`.

    Returns:
        The running chain; see `flow`.

    Raises:
        InvalidConfig: the file cannot be read, or it has an unknown setting or an invalid value.
        WidenError: as in `flow`.

    Source: docs/guide/flow.md#a-chain
    """
    flows = read_chain(chain)
    every = [_to_settings({**each, **options}) for each in flows]
    session, steps = find_session(options["spark"], "flows run on it"), []
    targets: set[str] = set()
    for each, settings in zip(flows, every, strict=True):
        waits = to_place(each["source"]) in targets
        steps.append(FlowStep(session, settings, rebuild=options["rebuild"], waits=waits))
        targets.add(to_place(each["into"]))
    return _run(steps, options)


def check_flow(given: Mapping[str, object]) -> None:
    """Check the arguments of a flow, and that its source exists, which needs no session."""
    _to_settings(given).source.newest()


def check_chain(chain: str, storage_options: Mapping[str, str] | None) -> None:
    """Check the file of a chain, which needs no session."""
    for each in read_chain(chain):
        check_step({**each, "storage_options": storage_options})


def check_step(step: Mapping[str, object]) -> None:
    """Check the arguments of one flow of a file; its source may not exist yet."""
    _to_settings(step)


def _to_settings(given: Mapping[str, Any]) -> FlowSettings:
    """Return the settings of a flow from its arguments by name."""
    given = {**with_defaults(FlowOptions, {}), **given}
    storage_options = given["storage_options"]
    query = FlowQuery(given["transform"], given["sql"])
    _ensure_usable(query, given["removed"], given["max_bytes"])
    reader, policy = parse_options(given)
    table = find_table(given["into"], storage_options, **{name: given[name] for name in declared(PartitionOptions)})
    expressions = _parse_keys(given["keys"])
    _ensure_keys_kept(expressions, policy)
    source = find_flow_source(given["source"], storage_options, given["source_catalog"])
    if source.is_at(table):
        raise InvalidOption(option="into", value=fspath(given["into"]), expected="Must not be the source.")
    quarantine = to_quarantine(given["quarantine"], table)
    checkpoint = to_place(given["checkpoint"])
    tables = (source.location, table.location, table.quarantine(quarantine).location)
    ensure_outlives_vacuum(checkpoint, tables, storage_options)
    progress = given["progress"]
    return FlowSettings(
        source=source,
        query=query,
        keys=FlowKeys(table.location, expressions) if expressions else None,
        request=BatchRequest(table=table, policy=policy, may_be_empty=True, progress=progress, quarantine=quarantine),
        reader=reader,
        checkpoint=FlowCheckpoint(LogStore(checkpoint, storage_options)),
        after=AfterCommit(parse_share(given["verify"]), given["on_event"]),
        max_bytes=given["max_bytes"],
        skips_removed=given["removed"] == SKIP,
    )


def _run(steps: Sequence[FlowStep], options: ChainOptions) -> Flow:
    every_seconds = options["every_seconds"]
    if every_seconds < 0:
        raise InvalidOption(option="every_seconds", value=every_seconds, expected="Must be a number >= 0.")
    running = Flow(steps, options["on_batch"])
    if options["once"]:
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
        if policy.included_names is not None and similarity_key(name) not in policy.included_names:
            raise InvalidOption(option="include", value=name, expected="Must have all keys: list this one, too.")


# A chain of flows in a TOML file: a table ``[[step]]`` for each flow, in their order.
#
# Source: docs/guide/flow.md#a-chain; TOML 1.0.


FLOW_SETTINGS = ("source", "into", "checkpoint", *declared(StepOptions))
"""The arguments of a flow that a file can set."""

_EXPECTED = "Must have a table [[step]] for each flow, with source, into, checkpoint and the options of a flow."


class _Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: list[dict[str, Any]]


def read_chain(file: str | PathLike[str]) -> Sequence[Mapping[str, Any]]:
    """Return the arguments of the flows in a file.

    Raises:
        InvalidConfig: the file cannot be read, is not TOML, has an unknown setting or an invalid value, or two of its
            flows have one checkpoint.
    """
    name = fspath(file)
    _, content = read_toml(name, _EXPECTED)
    try:
        steps = msgspec.convert(content, _Chain).step
    except msgspec.ValidationError as error:
        raise InvalidConfig(place=name, reason=str(error).rstrip("."), expected=_EXPECTED) from error
    for number, step in enumerate(steps, 1):
        ensure_step(f"{name}, [[step]] {number}", step)
    folders = [step["checkpoint"].rstrip("/") for step in steps]
    for folder in folders:
        if folders.count(folder) > 1:
            expected = "Each flow needs its own checkpoint."
            raise InvalidConfig(place=name, reason=f"two flows have the checkpoint {folder}", expected=expected)
    return steps


def ensure_step(place: str, step: Mapping[str, Any]) -> None:
    """Check the names and types of the arguments of a flow in a file.

    Raises:
        InvalidConfig: one is unknown, missing, or has another type.
    """
    ensure_known(step, FLOW_SETTINGS, f"{place}: {{}}".format)
    for name in ("source", "into", "checkpoint"):
        if name not in step:
            expected = "A flow needs source, into and checkpoint."
            raise InvalidConfig(place=place, reason=f"{name} is missing", expected=expected)
    with at_place(place):
        ensure_argument_types(flow, step)


# Run flows until they have everything, or until they are stopped.


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
                self._add(batch)
                if self._stop.is_set():
                    return

    def _add(self, batch: FlowBatch) -> None:
        self._batches.append(batch)
        if self._on_batch is not None:
            version = None if batch.result is None else batch.result.version
            with nullcontext() if version is None else after_commit(batch.into, version):
                self._on_batch(batch)

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
