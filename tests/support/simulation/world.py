"""A store, a clock and a scheduler in memory: whatever happens in a run follows from its seed.

Each writer has its own thread, but only the one that holds the baton runs. It may hand the baton over at every
call to the store, so the seed decides the order of all calls.
"""

from __future__ import annotations

import hashlib
import io
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from widen.errors import FileMissing, StorageError, StorageRefused
from widen.log.local_files import FileEntry
from widen.log.log_store import LogStore

LOCATION = "/simulated/table"
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
COMMIT = re.compile(r"_delta_log/(\d{20})\.json")
STALLED_CALLS = 20, 300
"""For how many calls of the others a writer stands still."""
END_SECONDS = 600
"""How long to wait for the end of a run, which takes milliseconds; a run that stands still does not end."""
TEST = "test"
"""Who calls the store from outside of the run: without delays and faults."""


class Crashed(BaseException):
    """The process of a writer has ended; nothing that it does reaches the store any more."""


class Interrupted(KeyboardInterrupt):
    """Somebody has interrupted a writer."""


@dataclass(frozen=True)
class Climate:
    """How rough a run is.

    Args:
        fault_rate: How many calls to the store go wrong.
        switch_rate: How often the baton changes hands at a call.
        jump_rate: How often hours pass at a call.
        stall_rate: How often a writer stands still at a call while the others go on, for hours.
        skew_ms: By how much the clocks of writers differ from the one of the store.
    """

    fault_rate: float
    switch_rate: float
    jump_rate: float
    stall_rate: float
    skew_ms: int

    @classmethod
    def drawn(cls, rng: random.Random) -> Climate:
        return cls(
            fault_rate=rng.choice((0.0, 0.01, 0.03, 0.1)),
            switch_rate=rng.choice((0.1, 0.4, 1.0)),
            jump_rate=rng.choice((0.0, 0.005, 0.03)),
            stall_rate=rng.choice((0.0, 0.0, 0.05)),
            skew_ms=rng.choice((0, 1_000, HOUR_MS)),
        )


REFUSED, LOST, LATE, RETRIED = "refused", "answer lost", "lands late", "retried by the client"
CRASH_BEFORE, CRASH_AFTER = "crash before", "crash after"
INTERRUPT_BEFORE, INTERRUPT_AFTER = "interrupt before", "interrupt after"
_READ = (REFUSED, REFUSED, CRASH_BEFORE, INTERRUPT_BEFORE)
_WRITE = (REFUSED, LOST, LATE, CRASH_BEFORE, CRASH_AFTER, INTERRUPT_BEFORE, INTERRUPT_AFTER)
FAULTS = {
    "read": _READ,
    "list": _READ,
    "open": _READ,
    "find": _READ,
    "put": _WRITE,
    "delete": _WRITE,
    "put_if_absent": (*_WRITE, LOST, LATE, RETRIED, RETRIED),
}
"""What may go wrong with each call."""


class World:
    """Everything that the writers of a run share.

    Args:
        seed: Decides the run.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.climate = Climate.drawn(self.rng)
        self.now_ms = START_MS
        self.stored: dict[str, tuple[bytes, int]] = {}
        self.commits: dict[int, tuple[bytes, int]] = {}
        """Every commit as it was first written, also when it has been cleaned up since, and when."""
        self.violations: list[str] = []
        self.acknowledged = -1
        """The newest version that any writer was told of."""
        self.expired_ms = 0
        """The latest time before which any writer may have let versions expire."""
        self.has_cleaned = False
        self.baton = Baton(self)
        self._late: list[tuple[int, Callable[[], None]]] = []
        self._skews: dict[str, int] = {TEST: 0}
        self._trace = hashlib.blake2b(digest_size=16)
        self.calls = 0
        self.faults = 0

    def join(self, writer: str) -> None:
        """Give a writer its clock."""
        self._skews[writer] = self.rng.randint(-self.climate.skew_ms, self.climate.skew_ms)

    def time_ns(self) -> int:
        """The time by the clock of the writer that runs."""
        return (self.now_ms + self._skews[self.baton.holder]) * 1_000_000

    def note(self, *words: object) -> None:
        """Add to the trace, by which two runs are compared."""
        self._trace.update(repr(words).encode())

    @property
    def trace(self) -> str:
        """What has happened, as a digest."""
        return self._trace.hexdigest()

    def violate(self, reason: str) -> None:
        self.violations.append(reason)

    def pass_time(self) -> None:
        """Let the clock run; what was under way lands when its time has come, and before hours pass."""
        self.now_ms += self.rng.randint(1, 40)
        if self._late:
            self._land(self.now_ms)
        if self.rng.random() < self.climate.jump_rate:
            self.jump()

    def jump(self) -> None:
        """Let hours pass."""
        self.land_all()
        self.now_ms += self.rng.randint(1, 30) * HOUR_MS

    def delay(self, effect: Callable[[], object]) -> None:
        """Let something happen later."""
        self._late.append((self.now_ms + self.rng.randint(1, 2_000), effect))  # type: ignore[arg-type]

    def _land(self, until_ms: int) -> None:
        due = [each for each in self._late if each[0] <= until_ms]
        self._late = [each for each in self._late if each[0] > until_ms]
        for _, effect in due:
            effect()

    def land_all(self) -> None:
        """Let everything that is under way land."""
        self._land(self.now_ms + HOUR_MS)

    def put(self, path: str, data: bytes) -> bool:
        """Write a file; tell of a commit that another one replaces.

        A writer that pauses for longer than the retention may write a version that was cleaned up. No reader finds that
        one, so it must not be acknowledged: the judge compares with the commits as they were written first.
        """
        found = COMMIT.fullmatch(path)
        if found:
            version = int(found[1])
            first = self.commits.setdefault(version, (data, self.now_ms))[0]
            if path in self.stored and first != data:
                self.violate(f"version {version} was written twice")
        self.stored[path] = (data, self.now_ms)
        return True

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return path not in self.stored and self.put(path, data)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.has_cleaned |= path.startswith("_delta_log/")
            self.stored.pop(path, None)

    def store(self, writer: str = TEST) -> SimulatedStore:
        """The store as one process of a writer sees it."""
        return SimulatedStore(SimulatedFiles(self, writer))


class Baton:
    """Lets exactly one writer run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.holder = TEST
        self._waiting: dict[str, threading.Lock] = {}
        self._names: list[str] = []
        self._end = threading.Lock()
        self._errors: list[BaseException] = []
        self._stalled: dict[str, int] = {}
        """How many calls there must be before a writer goes on, while others can."""

    def run(self, bodies: dict[str, Callable[[], None]]) -> None:
        """Run all, each in its own thread, until every one has ended."""
        self._names = list(bodies)
        for name in bodies:
            self._waiting[name] = threading.Lock()
            self._waiting[name].acquire()
        self._end.acquire()
        threads = [threading.Thread(target=self._run, args=item, daemon=True) for item in bodies.items()]
        for thread in threads:
            thread.start()
        self._pass_to(self._choose())
        if not self._end.acquire(timeout=END_SECONDS):
            raise TimeoutError("a run does not end")
        for thread in threads:
            thread.join(END_SECONDS)
        self.holder = TEST
        if self._errors:
            raise self._errors[0]

    def _run(self, name: str, body: Callable[[], None]) -> None:
        self._waiting[name].acquire()
        try:
            body()
        except BaseException as error:
            self._errors.append(error)
        self._names.remove(name)
        if self._names:
            self._pass_to(self._choose())
        else:
            self._end.release()

    def _pass_to(self, name: str) -> None:
        self.holder = name
        self._waiting[name].release()

    def offer(self) -> None:
        """Let the seed decide whether somebody else goes on."""
        world, holder = self._world, self.holder
        rng = world.rng
        is_stalled = rng.random() < world.climate.stall_rate
        if is_stalled:
            self._stalled[holder] = world.calls + rng.randint(*STALLED_CALLS)
            world.jump()
        if is_stalled or rng.random() < world.climate.switch_rate:
            chosen = self._choose()
            if chosen != holder:
                self._pass_to(chosen)
                self._waiting[holder].acquire()

    def _choose(self) -> str:
        """Let the seed choose one of the writers that do not stand still."""
        calls = self._world.calls
        awake = [name for name in self._names if self._stalled.get(name, 0) <= calls] or self._names
        return awake[self._world.rng.randrange(len(awake))]


@dataclass
class SimulatedFiles:
    """The files of a table as one process of a writer sees them: the inner interface of `LogStore`."""

    world: World
    writer: str
    is_dead: bool = field(default=False, init=False)

    def _call(self, kind: str, path: str, effect: Callable[[], Any]) -> Any:
        if self.writer == TEST:
            return effect()
        if self.is_dead:
            raise Crashed
        world = self.world
        world.pass_time()
        world.baton.offer()
        world.calls += 1
        fault = None
        if world.rng.random() < world.climate.fault_rate:
            fault = world.rng.choice(FAULTS[kind])
            world.faults += 1
        world.note(self.writer, kind, path, fault)
        return effect() if fault is None else self._failed(fault, path, effect)

    def _failed(self, fault: str, path: str, effect: Callable[[], Any]) -> Any:
        if fault in (LOST, RETRIED, CRASH_AFTER, INTERRUPT_AFTER):
            effect()
        if fault == RETRIED:
            return False
        if fault == LATE:
            self.world.delay(effect)
        if fault in (CRASH_BEFORE, CRASH_AFTER):
            self.is_dead = True
            raise Crashed
        if fault in (INTERRUPT_BEFORE, INTERRUPT_AFTER):
            raise Interrupted
        error = StorageRefused if fault == REFUSED else StorageError
        raise error(location=path, reason=fault, fix="Repeat the call.")

    def _data(self, path: str) -> bytes:
        try:
            return self.world.stored[path][0]
        except KeyError:
            raise FileMissing(location=path, reason="the file does not exist", fix="Check the path.") from None

    def read(self, path: str) -> bytes:
        return self._call("read", path, lambda: self._data(path))  # type: ignore[no-any-return]

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        return map(self.read, paths)

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self._call("open", path, lambda: self._data(path)))

    def put(self, path: str, data: bytes) -> None:
        self._call("put", path, lambda: self.world.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._call("put_if_absent", path, lambda: self.world.put_if_absent(path, data))  # type: ignore[no-any-return]

    def find(self, path: str) -> FileEntry | None:
        return self._call("find", path, lambda: self._entry(path) if path in self.world.stored else None)  # type: ignore[no-any-return]

    def list(self, folder: str, *, deep: bool, start: str = "") -> list[FileEntry]:
        return self._call("list", folder, lambda: self._listed(folder, start, deep=deep))  # type: ignore[no-any-return]

    def _listed(self, folder: str, start: str, *, deep: bool) -> list[FileEntry]:
        root = f"{folder.rstrip('/')}/" if folder else ""
        found = (path for path in self.world.stored if path.startswith(root) and path >= start)
        kept = sorted(path for path in found if deep or "/" not in path[len(root) :])
        return list(map(self._entry, kept))

    def _entry(self, path: str) -> FileEntry:
        data, modified_ms = self.world.stored[path]
        return FileEntry(path, len(data), modified_ms)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete in any order, as an object store does with many files in one request."""
        some = sorted(paths)
        if self.writer != TEST:
            self.world.rng.shuffle(some)
        self.delete_in_order(some)

    def delete_in_order(self, paths: Iterable[str]) -> None:
        for path in list(paths):
            self._call("delete", path, lambda path=path: self.world.delete([path]))


class SimulatedStore(LogStore):
    """A table's store whose files are in memory."""

    def __init__(self, files: SimulatedFiles) -> None:
        super().__init__(LOCATION)
        self._simulated = files

    @property
    def _files(self) -> SimulatedFiles:  # type: ignore[override]
        return self._simulated
