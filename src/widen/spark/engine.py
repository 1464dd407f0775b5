"""Where an ingestion runs: on Spark, or in this process.

The rule: an active session, or one of the caller, wins. Otherwise this process does the work if its own tasks can read
the source, the source has at most `SOURCE_BYTES`, and the table needs nothing that only Spark does. What turns out
to need Spark starts it then, and the explanation says why.

Tasks are functions over Arrow batches, so that the same ones run on Spark and here: in this process, or in several on
this machine if the source is large.

Source: docs/guide/engine.md
"""

from __future__ import annotations

import itertools
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import field
from functools import partial
from importlib.util import find_spec
from threading import RLock, Thread
from types import MappingProxyType
from typing import IO, Any, ClassVar, TypeAlias, TypeGuard, TypeVar, cast
from weakref import finalize

import pyarrow as pa

from widen.errors import EngineUnsuitable, InvalidOption, JobFailed, StorageError, WidenError, first_line
from widen.limits import POOL_BYTES, SOURCE_BYTES
from widen.model.display import size_text
from widen.model.native_kernel import describe_kernel, find_kernel
from widen.model.value_classes import dataclass
from widen.spark.session import Engine as Engine
from widen.spark.session import JobProgress, ensure_spark_wanted, find_active, is_driver, parse_engine, start_spark
from widen.spark.spark_types import DataFrame, SparkSession

_SLOWER = 4
"""How much longer this process takes for a large source without the kernel, about."""


SOURCE_OPTIONS: ContextVar[Mapping[str, str]] = ContextVar("SOURCE_OPTIONS", default=MappingProxyType({}))
"""The storage options that tasks of this process use to open the files of a source in an object store."""

SESSION_WINS = True
"""Whether a session that is there does all the work. Tests turn it off, to run here what can be run here."""

_SPARK_VARIABLES = ("SPARK_REMOTE", "MASTER")
"""Environment variables that say where Spark runs, and so that it is wanted."""


def open_session(
    given: Session | None = None,
    engine: str | None = None,
    on_start: Callable[[str], SparkSession] | None = None,
) -> Session:
    """Return the session to work in: the given one, else the active one, else what the engine says.

    Args:
        on_start: Starts Spark, given the reason; by default `widen.spark.session.start_spark` does.

    Raises:
        InvalidOption: the engine does not exist, or contradicts the session.
    """
    wanted = parse_engine(engine)
    if given is not None:
        if wanted is Engine.LOCAL and engine is not None and not isinstance(given, LocalSession):
            raise InvalidOption(option="engine", value=engine, expected="Must not be local where a session is given.")
        if isinstance(given, LocalSession) and engine is not None:
            chosen = given.fork(wanted)
            return chosen.require("it was asked for") if wanted is Engine.SPARK else chosen
        return given if SESSION_WINS or not is_driver(given) else _prefer_local(given)
    start = on_start or _start
    if wanted is Engine.LOCAL:
        return LocalSession(wanted, start)
    active = find_active()
    if active is not None:
        return active if SESSION_WINS or not is_driver(active) else _prefer_local(active)
    variable = next((name for name in _SPARK_VARIABLES if os.environ.get(name)), None)
    if wanted is Engine.SPARK or variable is not None:
        return start("it was asked for" if variable is None else f"{variable} is set")
    return LocalSession(wanted, start)


def open_session_here(given: Session | None, engine: str | None, source_bytes: int) -> LocalSession:
    """Return a session that reads a source in this process, whose files only this process sees.

    Args:
        given: The session to use where something needs Spark; by default as in `open_session`.
    """
    found = open_session(given, engine)

    def start(reason: str) -> SparkSession:
        spark = require_spark(found, reason)
        if not (is_driver(spark) and str(spark.conf.get("spark.master", "")).startswith("local")):
            raise EngineUnsuitable(reason=f"{reason}; its executors do not see data in the memory of this process")
        return spark

    is_bound = isinstance(found, LocalSession) and found.engine is Engine.LOCAL
    if isinstance(found, LocalSession):
        found.source_bytes = source_bytes  # it explains what did the work
    return LocalSession(Engine.LOCAL if is_bound else Engine.AUTO, start, source_bytes)


def find_session(given: Session | None = None, reason: str = "it works on a session of Spark") -> SparkSession:
    """Return the given session, else the active one, else a new local one."""
    if isinstance(given, LocalSession):
        return given.require(reason)
    existing = given or find_active()
    if existing is None:
        ensure_spark_wanted(reason)
    return start_spark(existing)


def _prefer_local(session: Session) -> Session:
    return session if isinstance(session, LocalSession) else LocalSession(Engine.AUTO, lambda _: session)


def _start(_: str) -> SparkSession:
    return start_spark()


def is_local(spark: object) -> TypeGuard[LocalSession]:
    """Return whether a session runs the tasks in this process, as long as nothing has started Spark."""
    return isinstance(spark, LocalSession) and spark.started is None


def require_spark(spark: Session, reason: str) -> SparkSession:
    """Return the Spark session, which starts if it has not.

    Args:
        reason: Why it must be; the end of a sentence that begins with "Spark, because".
    """
    return spark.require(reason) if isinstance(spark, LocalSession) else spark


READS = "only it reads these files"
"""Why rows of files are a DataFrame of Spark."""


class Unsupported(Exception):
    """Arrow does not do something exactly as Spark does; the text ends a sentence that begins with "Spark, because"."""


@contextmanager
def as_unsupported(*errors: type[Exception], reason: str = "") -> Iterator[None]:
    """Let Spark do what fails in the block with one of some errors; by default the error says why."""
    try:
        yield
    except errors as error:
        raise Unsupported(reason or _reason_of(error)) from error


@contextmanager
def fail_if_unsupported(what: str = "") -> Iterator[None]:
    """Let the caller see what only Spark does, where no other way is left to this process or this task.

    Raises:
        EngineUnsuitable: Arrow does not do something in the block.
    """
    try:
        yield
    except Unsupported as error:
        raise EngineUnsuitable(reason=f"{what}{error}") from error


def _reason_of(error: Exception) -> str:
    if isinstance(error, EngineUnsuitable):
        return str(error.fields["reason"])
    if isinstance(error, InvalidOption):  # Arrow refuses a type
        return f"a column has the type {error.fields['value']}"
    return error.message.rstrip(".") if isinstance(error, WidenError) else first_line(error)


def ensure_at_most(size_bytes: int, limit_bytes: int, what: str = "its files") -> None:
    """Check that this process takes so many bytes of files.

    Raises:
        Unsupported: there are more.
    """
    if size_bytes > limit_bytes:
        raise Unsupported(f"{what} have {size_text(size_bytes)}, more than {size_text(limit_bytes)}")


_Here = TypeVar("_Here")
_There = TypeVar("_There")


def run_on_engine(
    session: Session,
    here: Callable[[LocalSession], _Here],
    on_spark: Callable[[SparkSession], _There],
    reason: str = READS,
) -> _Here | _There:
    """Return what this process makes of some work, or what Spark makes of it where it runs or where only it can.

    Args:
        here: Does the work with Arrow, or raises `Unsupported`.
        reason: Why Spark does it where this process has not even tried.
    """
    if is_local(session):
        return run_with_arrow(session, partial(here, session), on_spark)
    return on_spark(require_spark(session, reason))


def run_with_arrow(
    session: Session, work: Callable[[], _Here], on_spark: Callable[[SparkSession], _There]
) -> _Here | _There:
    """Return what Arrow makes of some work, also where Spark runs, or what Spark makes of it where only it can."""
    try:
        with as_unsupported(EngineUnsuitable):
            return work()
    except Unsupported as error:
        reason = str(error)
    return on_spark(require_spark(session, reason))


def find_started(session: Session | None) -> SparkSession | None:
    """Return the Spark session, where there is one already."""
    return session.started if isinstance(session, LocalSession) else session


def is_on_executors(session: Session) -> bool:
    """Return whether tasks may run on other machines, which have no files of this one."""
    if isinstance(session, LocalSession):
        return False
    context = getattr(session, "sparkContext", None)
    return context is None or not str(context.master).startswith("local")


def as_given(session: Session) -> SparkSession:
    """Return a session as an argument of a public function, which works here as long as nothing requires Spark."""
    return cast("SparkSession", session)


def can_start(spark: Session) -> bool:
    """Return whether Spark may start instead of a session that runs tasks in this process."""
    return not (isinstance(spark, LocalSession) and spark.engine is Engine.LOCAL) and find_spec("pyspark") is not None


def explain_engine(spark: Session) -> str:
    """Return where the work was done and why; empty if it was the session that was there."""
    return spark.explanation if isinstance(spark, LocalSession) else ""


def _as_it_is(spark: SparkSession) -> SparkSession:
    return spark


@dataclass(eq=False)
class LocalSession:
    """Tasks run in this process until something requires Spark, which starts once.

    Args:
        start: Starts Spark, given the reason.
        source_bytes: The size of the source, once it is known.
        reason: Why it did.
        prepare: Returns the session to use for one that has started.
        on_task: Is told how many tasks of a step are done.
    """

    engine: Engine
    start: Callable[[str], SparkSession]
    source_bytes: int = 0
    started: SparkSession | None = None
    reason: str = ""
    prepare: Callable[[SparkSession], SparkSession] = _as_it_is
    on_task: Callable[[JobProgress], object] | None = field(default=None, repr=False)
    _pool: WorkerPool | None = field(default=None, repr=False)
    _lock: RLock = field(default_factory=RLock, repr=False)

    STANDS_FOR: ClassVar[str] = "SparkSession"
    """The type of the arguments that take it."""

    is_driver: ClassVar[bool] = True
    """This process sees the files that its tasks read."""

    def require(self, reason: str) -> SparkSession:
        """Return a Spark session; see `require_spark`."""
        if self.started is None and self.engine is Engine.LOCAL:
            raise EngineUnsuitable(reason=reason)
        return self._start_once(reason)

    def _start_once(self, reason: str) -> SparkSession:
        with self._lock:
            if self.started is None:
                self.close()
                self.started, self.reason = self.prepare(self.start(reason)), reason
            return self.started

    def fork(self, engine: Engine | None = None) -> LocalSession:
        """Return a session for other work, which may run at the same time; Spark starts once for both."""
        wanted = engine or self.engine
        if self.started is None or wanted is Engine.LOCAL:
            return LocalSession(wanted, self._start_once)
        return self

    def accept(self, source_bytes: int) -> None:
        """Start Spark if a source is too large for this process."""
        self.source_bytes = source_bytes
        if self.engine is Engine.AUTO and source_bytes > _most_bytes():
            more = "" if find_kernel() is not None else f" ({size_text(SOURCE_BYTES)} with the native kernel)"
            self.require(f"the source has {size_text(source_bytes)}, more than {size_text(_most_bytes())}{more}")

    @property
    def explanation(self) -> str:
        """What did the work, and why."""
        if self.started is not None:
            return f"on Spark, because {self.reason}"
        limit = "" if self.engine is Engine.LOCAL else f" (Spark starts above {size_text(_most_bytes())})"
        kernel = "" if self.source_bytes < POOL_BYTES else f", {describe_kernel()}"
        return f"without Spark: the source has {size_text(self.source_bytes)}{limit}{kernel}"

    def run(self, tasks: Sequence[LocalTask]) -> list[pa.Table]:
        """Return what each task makes of its numbers."""
        count, done = min(len(tasks), os.cpu_count() or 1), itertools.count(1)

        def end_task(result: pa.Table) -> pa.Table:
            if self.on_task is not None and len(tasks) > 1:
                self.on_task(JobProgress(next(done), len(tasks)))
            return result

        if count < 2 or self.source_bytes < POOL_BYTES:
            return [end_task(run_task(task.function, task.numbers)) for task in tasks]
        if self._pool is None:
            self._pool = WorkerPool()
        return self._pool.run(tasks, count, end_task)

    def close(self) -> None:
        """End the processes of the pool."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


Session: TypeAlias = "SparkSession | LocalSession"
"""Where work runs: on Spark, or in this process until something needs Spark."""

ArrowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _most_bytes() -> int:
    """Return the size of the largest source that this process takes unasked."""
    return SOURCE_BYTES if find_kernel() is not None else SOURCE_BYTES // _SLOWER


# ---- tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalTask:
    """Numbers, and what is made of them one function after the other."""

    numbers: Sequence[int]
    functions: tuple[ArrowFunction, ...] = ()

    @property
    def function(self) -> ArrowFunction:
        """What the task does. Picklable."""
        return partial(_chain, self.functions)


@dataclass(frozen=True)
class LocalFrame:
    """Numbers, or the results of functions on them, like a Spark DataFrame with the methods that tasks need."""

    session: LocalSession
    tasks: Sequence[LocalTask]

    def mapInArrow(self, function: ArrowFunction, _: object) -> LocalFrame:
        """Return what a function makes of the batches of each task."""
        return LocalFrame(self.session, [LocalTask(each.numbers, (*each.functions, function)) for each in self.tasks])

    def unionAll(self, other: LocalFrame) -> LocalFrame:
        """Return the tasks of both."""
        return LocalFrame(self.session, [*self.tasks, *other.tasks])

    def toArrow(self) -> pa.Table:
        """Run the tasks, and return their batches."""
        tables = [table for table in self.session.run(self.tasks) if table.num_columns]
        return pa.concat_tables(tables) if tables else pa.table({})


Rows: TypeAlias = "DataFrame | LocalFrame"
"""Rows, in Spark or in this process."""


def start_tasks(session: Session, count: int, per_task: int = 1) -> Any:
    """Return the numbers below a count as a frame, of Spark or of this process, with a task for each few of them."""
    started = find_started(session)
    if started is None:
        groups = [range(first, min(first + per_task, count)) for first in range(0, max(count, 1), per_task)]
        return LocalFrame(cast(LocalSession, session), [LocalTask(group) for group in groups])
    return started.range(0, count, 1, max(1, -(-count // per_task)))


def to_local_frame(session: Session, rows: pa.RecordBatch) -> LocalFrame:
    """Return rows as a frame with one task."""
    frame = LocalFrame(cast(LocalSession, session), [LocalTask([0])])
    return frame.mapInArrow(partial(_give, rows), None)


def _give(rows: pa.RecordBatch, _: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield rows


def _chain(functions: Sequence[ArrowFunction], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    result = iter(batches)
    for function in functions:
        result = function(result)
    return result


def run_task(function: ArrowFunction, numbers: Sequence[int]) -> pa.Table:
    """Return what a function makes of numbers, in this process."""
    given = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=["id"])
    with translate_os_errors():
        batches = list(function(iter([given])))
    return pa.Table.from_batches(batches) if batches else pa.table({})


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Translate operating system errors in a task like errors of Spark jobs.

    Raises:
        StorageError: the table cannot be written.
    """
    try:
        yield
    except OSError as error:
        fix = "Check the disk and repeat the call."
        raise StorageError(location="The table", reason=error.strerror or str(error), fix=fix) from error


class WorkerPool:
    """Processes that run tasks beside this one. They start from a clean interpreter, and end with this process.

    A fork would copy the locks of Arrow's threads, and `multiprocessing` would run the main module of the caller again.
    """

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._end = finalize(self, _end_workers, self._workers)

    def run(self, tasks: Sequence[LocalTask], count: int, end_task: Callable[[pa.Table], pa.Table]) -> list[pa.Table]:
        """Return the results of tasks in their order.

        Args:
            end_task: Called with each result, in the thread that has it.
        """
        self._workers += [_start_worker() for _ in range(count - 1 - len(self._workers))]
        # Most tasks have the functions of others, whose code is the larger part of what they need.
        codes = {each: pickle.dumps(partial(_chain, each)) for each in {task.functions for task in tasks}}
        options = dict(SOURCE_OPTIONS.get())  # threads have contexts of their own
        pending = iter(range(len(tasks)))
        results: dict[int, pa.Table] = {}
        errors: list[BaseException] = []

        def ask(worker: _Worker, task: LocalTask) -> pa.Table:
            return worker.ask(codes[task.functions], task.numbers, options)

        def run_here(task: LocalTask) -> pa.Table:
            return run_task(task.function, task.numbers)

        def work(run: Callable[[LocalTask], pa.Table]) -> None:
            # A range is safe to share between threads, and the first error ends all of them.
            while not errors and (number := next(pending, None)) is not None:
                try:
                    results[number] = end_task(run(tasks[number]))
                except BaseException as error:
                    errors.append(error)

        threads = [Thread(target=work, args=(partial(ask, each),), daemon=True) for each in self._workers]
        for thread in threads:
            thread.start()
        work(run_here)
        if errors:
            self.close()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[number] for number in range(len(tasks))]

    def close(self) -> None:
        """End the processes."""
        _end_workers(self._workers)


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]

    def ask(self, code: bytes, numbers: Sequence[int], options: Mapping[str, str]) -> pa.Table:
        """Run a task in the process, which opens files of the source with storage options, and return its result."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            _send(self.process.stdin, pickle.dumps((code, list(numbers), options)))
            reply = _receive(self.process.stdout)
        except OSError as error:
            raise JobFailed(reason=_KILLED) from error
        if reply is None:
            raise JobFailed(reason=_KILLED)
        kind, content = pickle.loads(reply)
        if kind == _FAILED:
            raise content
        return pa.ipc.open_stream(content).read_all()


_KILLED = "a process of this machine that read the source was killed, perhaps for lack of memory"
_DONE, _FAILED = "done", "failed"
_LENGTH = struct.Struct(">Q")


def _start_worker() -> _Worker:
    # An interrupt of the terminal is for this process alone, which then ends the others.
    return _Worker(
        subprocess.Popen(
            [sys.executable, "-c", "from widen.spark.engine import run_worker; run_worker()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
    )


def _end_workers(workers: list[_Worker]) -> None:
    while workers:
        process = workers.pop().process
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdin, process.stdout)):
            with suppress(OSError):
                pipe.close()


def run_worker() -> None:
    """Run the tasks that arrive on stdin until it ends; the main function of a process of the pool."""
    with os.fdopen(os.dup(0), "rb") as requests, os.fdopen(os.dup(1), "wb") as replies:
        os.dup2(2, 1)  # what a task prints must not be taken for a reply
        while (request := _receive(requests)) is not None:
            code, numbers, options = pickle.loads(request)
            SOURCE_OPTIONS.set(options)
            with suppress(BrokenPipeError):
                _send(replies, pickle.dumps(_reply(code, numbers)))


def _reply(code: bytes, numbers: Sequence[int]) -> tuple[str, Any]:
    try:
        result = run_task(pickle.loads(code), numbers)
    except WidenError as error:
        return _FAILED, error
    except Exception as error:
        return _FAILED, JobFailed(reason=f"{type(error).__name__}: {error}"[:300].rstrip("."))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as stream:
        stream.write_table(result)
    return _DONE, sink.getvalue().to_pybytes()


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes | None:
    """Return the next message; None if the other process has ended."""
    head = pipe.read(_LENGTH.size)
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
    message = pipe.read(size)
    return message if size and len(message) == size else None
