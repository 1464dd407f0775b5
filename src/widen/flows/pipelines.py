"""Many loads and flows from one file: in order or side by side, with one result for all.

Source: docs/guide/pipelines.md; TOML 1.0.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import field, replace
from enum import Enum
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, TypeAlias

import msgspec

from widen.errors import InvalidConfig, InvalidOption, LimitExceeded, WidenError
from widen.flows.flow_step import FlowBatch
from widen.flows.run_flow import FLOW_SETTINGS, check_step, ensure_step, flow
from widen.ingestion.ingest_options import (
    EventOptions,
    IngestOptions,
    LimitOptions,
    MemoryOptions,
    SessionOptions,
    TableOptions,
)
from widen.ingestion.interval import ingest
from widen.ingestion.options import at_place, ensure_known, parse_keys, parse_limits, parse_options
from widen.ingestion.result import IngestResult, OnEvent
from widen.ingestion.toml_files import read_toml
from widen.json.document import corrupt_words
from widen.model.argument_types import check_arguments, ensure_argument_types
from widen.model.display import did_you_mean, html_table, list_lines
from widen.model.keyword_options import Unpack, declared, with_defaults
from widen.model.value_classes import dataclass
from widen.report.text_format import count_noun
from widen.sources.listing import to_place
from widen.spark.engine import Engine, LocalSession, Session, open_session, require_spark
from widen.spark.session import activate_session
from widen.targets import find_table


class StepKind(str, Enum):
    """What a step is."""

    LOAD = "load"
    FLOW = "flow"


class StepStatus(str, Enum):
    """How a step ended."""

    LOADED = "loaded"
    UNCHANGED = "unchanged"
    """There was nothing new."""
    LOST = "lost"
    """The rows are committed, but the verification found values that cannot be rebuilt from them."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """A step that feeds this one did not end well."""

    @property
    def is_clean(self) -> bool:
        """Whether later steps may build on the table."""
        return self in (StepStatus.LOADED, StepStatus.UNCHANGED)


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One load or one flow of a file.

    Args:
        arguments: The arguments of `widen.ingest` or `widen.flow`, apart from ``source`` and ``into``.
        feeders: The names of earlier steps that it cannot run without.
        earlier: The names of all steps that must have ended first: the feeders, and those that write the same table.
    """

    name: str
    kind: StepKind
    source: tuple[str, ...]
    into: str
    arguments: Mapping[str, Any]
    feeders: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        """The identities of its sources that are tables."""
        return frozenset(_table_key(each, self.arguments.get("source_catalog")) for each in self.source)

    @property
    def writes(self) -> str:
        """The identity of its table."""
        return _table_key(self.into, self.arguments.get("catalog"))


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step ended.

    Args:
        results: What it has committed: the `IngestResult` of a load, or the `FlowBatch` of each batch of a flow.
        error: Why it failed; also with results, if a later batch failed.
        because: The steps that it waited for and that did not end well, for a step that is skipped.
        duration_ms: How long it took.
    """

    step: PipelineStep
    status: StepStatus
    results: tuple[IngestResult | FlowBatch, ...] = ()
    error: Exception | None = None
    because: tuple[str, ...] = ()
    duration_ms: int = 0

    @property
    def summary(self) -> str:
        """How the step ended, in a line; why it failed is in the error."""
        into = self.step.into
        return (
            f"{self.step.name}: "
            + {
                StepStatus.LOADED: self._counts(),
                StepStatus.UNCHANGED: f"nothing new for {into}",
                StepStatus.LOST: f"{self._counts()}, but some values cannot be rebuilt from it",
                StepStatus.FAILED: f"failed with {describe_error(self.error)['code']}",
                StepStatus.SKIPPED: f"skipped, because it needs {' and '.join(self.because)}",
            }[self.status]
        )

    def _counts(self) -> str:
        loads = self.loads
        records, corrupt = sum(load.records for load in loads), sum(load.corrupt for load in loads)
        quarantined = sum(load.quarantined for load in loads)
        bad_files = {file.path for load in loads for file in load.bad_files}
        is_new = any(load.plan.creates_table for load in loads)
        changed = sum(len(load.plan.operations) for load in loads if not load.plan.creates_table)
        reason = next((load.corrupt_reason for load in loads if load.corrupt_reason), "")
        parts = [f"{count_noun(records, 'record')} into {'the new table ' if is_new else ''}{self.step.into}"]
        parts += [f"{count_noun(changed, 'change')} of the schema"] if changed else []
        parts += [f"{corrupt:,} {' that '.join(corrupt_words(corrupt, reason))}"] if corrupt else []
        parts += [f"{quarantined:,} in quarantine"] if quarantined else []
        parts += [f"{count_noun(len(bad_files), 'file')} skipped"] if bad_files else []
        return ", ".join(parts)

    @property
    def loads(self) -> tuple[IngestResult, ...]:
        """The results that wrote something."""
        return _written(self.results)

    def __str__(self) -> str:
        """Return the summary, and what the error says."""
        return self.summary if self.error is None else f"{self.summary}: {describe_error(self.error)['message']}"

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        error = self.error
        return {
            "name": self.step.name,
            "kind": self.step.kind.value,
            "into": self.step.into,
            "status": self.status.value,
            "because": list(self.because),
            "durationMs": self.duration_ms,
            "error": None if error is None else describe_error(error),
            "results": [result.to_value() for result in self.results],
        }


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """How the steps of a file ended, in the order of the file."""

    steps: tuple[StepResult, ...]

    @property
    def is_clean(self) -> bool:
        """Whether every step ended well."""
        return all(each.status.is_clean for each in self.steps)

    @property
    def is_only_over_limits(self) -> bool:
        """Whether steps failed, each because a batch was over a limit; skipped steps do not count."""
        failed = [each for each in self.steps if each.status in (StepStatus.FAILED, StepStatus.LOST)]
        return bool(failed) and all(isinstance(each.error, LimitExceeded) for each in failed)

    def __repr__(self) -> str:
        return list_lines("PipelineRun", map(str, self.steps))

    def _repr_html_(self) -> str:
        rows = ((each.step.name, each.step.into, each.status.value, f"{each.duration_ms} ms") for each in self.steps)
        return html_table("PipelineRun", ("step", "into", "status", "time"), rows)

    def to_value(self) -> dict[str, Any]:
        """Return the run as a JSON object."""
        return {"isClean": self.is_clean, "steps": [each.to_value() for each in self.steps]}


OnStep: TypeAlias = Callable[[StepResult], object]
"""Called with the result of each step when it ends."""


@check_arguments
def run(
    file: str | PathLike[str],
    *,
    only: Sequence[str] | None = None,
    jobs: int = 1,
    on_step: OnStep | None = None,
    **options: Unpack[EventOptions],
) -> PipelineRun:
    """Run the loads and flows of a file once.

    The whole file is checked before the first step starts. A step that fails does not stop the others, unless it feeds
    them: a step waits for the earlier ones that write its source, or that its ``after`` names.

    ``progress`` gets the name of the load or flow before each step of the work. With several jobs, ``on_event`` is
    called from several threads.

    Args:
        file: A TOML file with tables ``[[load]]`` and ``[[flow]]``, whose keys are arguments of `ingest` and `flow`,
            and ``name`` and ``after``. The table ``[defaults]`` has arguments for all loads.
        only: The names of the steps to run; by default all.
        jobs: How many steps may run at the same time. Steps that write the same table run one after another.
        on_step: Called with the result of each load or flow when it ends.

    Returns:
        The run. It holds the errors of the steps that failed.

    Raises:
        InvalidConfig: the file cannot be read, has an unknown setting or an invalid value.
        InvalidOption: another argument cannot be used.

    Source: docs/guide/pipelines.md
    """
    steps = select_steps(read_pipelines(file, options["storage_options"]), only)
    return run_steps(steps, lambda _: options["on_event"], jobs, on_step, options)


@contextmanager
def step_pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Open a pool for steps; after an error in the block, what runs ends its commit, and nothing new begins."""
    with ThreadPoolExecutor(jobs, thread_name_prefix="widen-run") as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def run_steps(
    steps: Sequence[PipelineStep],
    listen: Callable[[PipelineStep], OnEvent | None],
    jobs: int = 1,
    on_step: OnStep | None = None,
    given: Mapping[str, Any] = MappingProxyType({}),
) -> PipelineRun:
    """Run steps, each when the earlier ones that it waits for have ended.

    Raises:
        InvalidOption: the number of jobs is not positive.
    """
    options = with_defaults(SessionOptions, given)
    if jobs < 1:
        raise InvalidOption(option="jobs", value=jobs, expected="Must be an integer >= 1.")
    shared = {**options, "spark": open_session(options["spark"]) if steps else None}

    def execute(step: PipelineStep) -> StepResult:
        def say(text: str) -> object:
            return options["progress"](f"{step.name}: {text}")

        return _execute(step, {**shared, "progress": say, "on_event": listen(step)})

    ended: dict[str, StepResult] = {}
    waiting, running = list(steps), dict[Future[StepResult], str]()
    with step_pool(jobs) as pool:
        while waiting or running:
            for step in [step for step in waiting if not _pending(step, waiting, running)][: jobs - len(running)]:
                waiting.remove(step)
                because = tuple(name for name in step.feeders if name in ended and not ended[name].status.is_clean)
                if because:
                    _end(ended, StepResult(step, StepStatus.SKIPPED, because=because), on_step)
                else:
                    running[pool.submit(execute, step)] = step.name
            for future in wait(running, return_when=FIRST_COMPLETED).done if running else ():
                del running[future]
                _end(ended, future.result(), on_step)
    return PipelineRun(tuple(ended[step.name] for step in steps))


def _pending(step: PipelineStep, waiting: Sequence[PipelineStep], running: Mapping[Any, str]) -> bool:
    not_ended = {*running.values(), *(each.name for each in waiting)}
    return not not_ended.isdisjoint(step.earlier)


def _end(ended: dict[str, StepResult], result: StepResult, on_step: OnStep | None) -> None:
    ended[result.step.name] = result
    if on_step is not None:
        on_step(result)


def _execute(step: PipelineStep, shared: Mapping[str, Any]) -> StepResult:
    """Run a step, and return how it ended; an error of any kind is the result of this step and must not end others."""
    start = time.monotonic()
    results: list[IngestResult | FlowBatch] = []
    error: Exception | None = None
    try:
        shared = {**shared, "spark": step_session(step, shared["spark"])}
        if step.kind is StepKind.LOAD:
            results.append(ingest(list(step.source), step.into, **step.arguments, **shared))
        else:
            flow(step.source[0], step.into, **step.arguments, **shared, once=True, on_batch=results.append)
    except Exception as failure:
        error = failure
    duration_ms = round((time.monotonic() - start) * 1000)
    return StepResult(step, _status(results, error), tuple(results), error, duration_ms=duration_ms)


def step_session(step: PipelineStep, shared: Session) -> Session:
    """Return the session of a step: loads may need no Spark, and each of them finds that out for itself."""
    if step.arguments.get("engine") == Engine.LOCAL.value:  # also where the environment asks for Spark
        return open_session(None, Engine.LOCAL.value)
    if isinstance(shared, LocalSession) and step.kind is StepKind.LOAD:
        if shared.started is not None:
            activate_session(shared.started)
        return shared.fork()
    session = require_spark(shared, "flows run on it")
    activate_session(session)
    return session


def _status(results: Sequence[IngestResult | FlowBatch], error: Exception | None) -> StepStatus:
    if error is not None:
        return StepStatus.FAILED
    written = _written(results)
    if any(load.verification is not None and not load.verification.is_clean for load in written):
        return StepStatus.LOST
    return StepStatus.LOADED if written else StepStatus.UNCHANGED


def _written(results: Sequence[IngestResult | FlowBatch]) -> tuple[IngestResult, ...]:
    loads = (result.result if isinstance(result, FlowBatch) else result for result in results)
    return tuple(load for load in loads if load is not None and not load.is_unchanged)


def describe_error(error: Exception | None) -> dict[str, str]:
    """Return the code and the message of an error; the code of one that is not ours is its type."""
    if isinstance(error, WidenError):
        return {"code": error.code, "message": error.message}
    return {"code": type(error).__name__, "message": str(error)}


# The file.


LOAD_SETTINGS = declared(IngestOptions).keys() - {
    *declared(EventOptions),
    *declared(MemoryOptions),
    *("plan_hash", "txn"),  # of one batch, and a file is run again and again
}
"""The arguments of a load that a file can set, apart from ``source`` and ``into``."""

_EXPECTED = (
    "Must have a table [[load]] for each load, with source and into, and a table [[flow]] for each flow, with source, "
    "into and checkpoint."
)


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What every step has; its other keys are arguments."""

    into: str
    source: str | list[str]
    name: str | None = None
    after: list[str] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    load: list[dict[str, Any]] = []
    flow: list[dict[str, Any]] = []
    defaults: dict[str, Any] = {}


def read_pipelines(
    file: str | PathLike[str], storage_options: Mapping[str, str] | None = None
) -> tuple[PipelineStep, ...]:
    """Return the steps of a file: its loads, then its flows, each with all of its arguments checked.

    Raises:
        InvalidConfig: the file cannot be read, has an unknown setting or an invalid value.
    """
    name = fspath(file)
    _, values = read_toml(name, _EXPECTED)
    try:
        content = msgspec.convert(values, _File)
    except msgspec.ValidationError as error:
        raise InvalidConfig(place=name, reason=str(error).rstrip("."), expected=_EXPECTED) from error
    reader = _FileReader(name, storage_options)
    for kind, entries in ((StepKind.LOAD, content.load), (StepKind.FLOW, content.flow)):
        for number, entry in enumerate(entries, 1):
            reader.add(kind, number, entry, content.defaults)
    if not reader.steps:
        raise InvalidConfig(place=name, reason="it has no steps", expected=_EXPECTED)
    return tuple(reader.steps)


@dataclass
class _FileReader:
    """The steps of a file so far, and the tables that they write."""

    file: str
    storage_options: Mapping[str, str] | None
    steps: list[PipelineStep] = field(default_factory=list)
    tables: dict[str, str] = field(default_factory=dict)
    """The table that each step writes, with its catalog, by the name of the step."""
    checkpoints: set[str] = field(default_factory=set)

    def add(self, kind: StepKind, number: int, entry: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        """Add a step.

        Raises:
            InvalidConfig: one of its settings is unknown or has an invalid value.
        """
        place = f"{self.file}, [[{kind.value}]] {number}"
        head = self._convert(place, entry, _Entry)
        name = head.name or head.into.rstrip("/").rpartition("/")[2]
        place = f"{place} ({name})"
        if name in self.tables:
            expected = "Give each step its own name; by default it is the last part of into."
            raise InvalidConfig(place=place, reason=f"another step is named {name}", expected=expected)
        for each in set(head.after) - self.tables.keys():
            expected = "Name steps that stand before this one; flows stand after all loads."
            raise InvalidConfig(place=place, reason=f"after: no earlier step is named {each}", expected=expected)
        given = {key: value for key, value in entry.items() if key not in _Entry.__struct_fields__}
        known = LOAD_SETTINGS if kind is StepKind.LOAD else FLOW_SETTINGS
        keys = given.keys() | (defaults.keys() if kind is StepKind.LOAD else set())
        ensure_known(sorted(keys), {*known, *_Entry.__struct_fields__}, f"{place}: {{}}".format)
        arguments = {**defaults, **given} if kind is StepKind.LOAD else given
        sources = (head.source,) if isinstance(head.source, str) else tuple(head.source)
        with at_place(place):
            if kind is StepKind.LOAD:
                self._check_load(head.into, arguments)
            else:
                self._check_flow(place, entry)
        step = PipelineStep(name, kind, sources, head.into, arguments)
        reads = step.reads
        feeders = [each for each, written in self.tables.items() if written in reads or each in head.after]
        earlier = [each for each, written in self.tables.items() if written == step.writes or each in feeders]
        self.tables[name] = step.writes
        self.steps.append(replace(step, feeders=tuple(feeders), earlier=tuple(earlier)))

    def _check_load(self, into: str, arguments: Mapping[str, Any]) -> None:
        ensure_argument_types(ingest, arguments)
        _, policy = parse_options({**arguments, "storage_options": self.storage_options})
        parse_keys(arguments, policy)
        parse_limits(**{name: arguments[name] for name in declared(LimitOptions) if name in arguments})
        table = {name: arguments.get(name) for name in declared(TableOptions)}
        find_table(into, self.storage_options, **table)

    def _check_flow(self, place: str, entry: Mapping[str, Any]) -> None:
        own = {key: value for key, value in entry.items() if key not in ("name", "after")}
        ensure_step(place, own)
        folder = own["checkpoint"].rstrip("/")
        if folder in self.checkpoints:
            expected = "Each flow needs its own checkpoint."
            raise InvalidConfig(place=place, reason=f"another flow has the checkpoint {folder}", expected=expected)
        self.checkpoints.add(folder)
        check_step({**own, "storage_options": self.storage_options})

    def _convert(self, place: str, entry: Mapping[str, Any], kind: Any) -> Any:
        try:
            return msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:
            known = {*LOAD_SETTINGS, *FLOW_SETTINGS, *kind.__struct_fields__}
            near = "".join(did_you_mean(key, kind.__struct_fields__) for key in entry if key not in known)
            raise InvalidConfig(place=place, reason=str(error), expected=near + _EXPECTED) from error


def _table_key(place: str, catalog: object) -> str:
    """Return the identity of a table: the catalog and the name, or the location in one spelling."""
    return f"{catalog} {place}" if catalog else to_place(place)


def select_steps(steps: Sequence[PipelineStep], only: Sequence[str] | None) -> tuple[PipelineStep, ...]:
    """Return the steps with these names, in the order of the file; by default all.

    Raises:
        InvalidOption: no step has one of the names.
    """
    names = [step.name for step in steps]
    for name in only or ():
        if name not in names:
            raise InvalidOption(option="only", value=name, expected=f"Must be one of: {', '.join(names)}.")
    return tuple(steps) if only is None else tuple(step for step in steps if step.name in only)
