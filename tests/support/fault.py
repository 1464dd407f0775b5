"""Faults: one call to a store goes wrong in one way, and what must be true of the table afterwards."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from widen.errors import StorageError, StorageRefused, TableNotFound, WidenError
from widen.errors.tables import notes_of
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.table import Table

READS = ("read", "read_many", "open", "create", "find", "list", "list_from")
FULL = "WIDEN_TEST_FAULTS"
"""The environment variable that asks for every fault; without it a sample is taken."""


class Fault(Enum):
    """What happens to a call.

    ``LATE``: no answer now, and the call takes effect when everybody has looked. ``HALF``: only half of the files of a
    call for several are deleted.
    """

    REFUSED = "refused"
    ANSWER_LOST = "answer lost"
    LATE = "lands late"
    INTERRUPT_BEFORE = "interrupt before"
    INTERRUPT_AFTER = "interrupt after"
    MEMORY = "out of memory after"
    FOREIGN = "foreign error after"
    HALF = "half done"


OF_READS = (Fault.REFUSED, Fault.INTERRUPT_BEFORE, Fault.INTERRUPT_AFTER, Fault.MEMORY, Fault.FOREIGN)
"""A read whose answer is lost, or comes late, is one that was refused."""
OF_WRITES = tuple(fault for fault in Fault if fault is not Fault.HALF)
FAULTS_OF: dict[str, Sequence[Fault]] = {"put_if_absent": OF_WRITES, "put": OF_WRITES, "delete": tuple(Fault)}


class OutsideError(Exception):
    """An error of somebody else's code."""


@dataclass
class Injector:
    """Counts the calls to every store of this process, and lets one of them go wrong.

    Args:
        number: Of the call that goes wrong; None for none of them.
        fault: What happens to it.
    """

    number: int | None = None
    fault: Fault | None = None
    calls: list[str] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)

    def around(self, name: str, call: Callable[[], Any], half: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if self.fault is None or len(self.calls) - 1 != self.number:
            return call()
        if self.fault is Fault.HALF and name != "delete":
            self.number += 1  # threads make calls in another order than before: the next deletion is the one
            return call()
        if self.fault is Fault.REFUSED:
            raise StorageRefused(location="there", reason="the store refused", fix="")
        if self.fault is Fault.LATE:
            self.late.append(call)
            raise StorageError(location="there", reason="timed out", fix="")
        if self.fault is Fault.HALF:
            half()
            raise StorageError(location="there", reason="connection lost", fix="")
        if self.fault is Fault.INTERRUPT_BEFORE:
            raise KeyboardInterrupt
        found = call()
        if name in ("open", "create", "list", "list_from", "read_many") and hasattr(found, "close"):
            found.close()
        if self.fault is Fault.ANSWER_LOST:
            raise StorageError(location="there", reason="connection lost", fix="")
        raise {Fault.INTERRUPT_AFTER: KeyboardInterrupt, Fault.MEMORY: MemoryError, Fault.FOREIGN: OutsideError}[
            self.fault
        ]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Let the calls of this process go through here; nothing waits for the disk meanwhile."""
        with mock.patch.object(os, "fsync"):
            patches = [mock.patch.object(LogStore, name, self._patched(name)) for name in (*FAULTS_OF, *READS)]
            for patch in patches:
                patch.start()
            try:
                yield
            finally:
                for patch in patches:
                    patch.stop()

    def _patched(self, name: str) -> Callable[..., Any]:
        original = getattr(LogStore, name)

        def patched(store: LogStore, *words: Any, **more: Any) -> Any:
            half = lambda: original(store, list(words[0])[::2])  # noqa: E731
            return self.around(name, partial(original, store, *words, **more), half)

        return patched


@dataclass(frozen=True)
class Operation:
    """What is done to tables, and tables to do it to.

    Args:
        name: Of the operation.
        prepare: Makes the tables below a folder.
        run: Does it there, and returns the version of the first table that it acknowledges; None for none.
        tables: The tables, by the names of their folders.
        is_one_commit: Whether it is one commit, so that an error other than those of commits means that nothing is
            visible.
        first_kept: The first version that it may not delete, and before which a run without faults deletes all.
    """

    name: str
    prepare: Callable[[Path], object]
    run: Callable[[Path], int | None]
    tables: tuple[str, ...] = ("t",)
    is_one_commit: bool = True
    first_kept: int = 0


@dataclass(frozen=True)
class Spot:
    """One fault that an operation can meet: at which of its calls, by number and by name, and which."""

    number: int
    call: str
    fault: Fault


def faults_of(operation: Operation, template: Path, work: Path) -> list[Spot]:
    """Return every fault that an operation can meet: each of its calls to a store, in each way that makes sense."""
    operation.prepare(template)
    shutil.copytree(template, work)
    injector = Injector()
    with injector.active():
        acknowledged = operation.run(work)
    location = operation.tables[0]
    assert acknowledged is None or acknowledged > _newest(template / location), "it has changed nothing"
    assert min(read_log(work / location)) == operation.first_kept, "it has not deleted what it may delete"
    shutil.rmtree(work)
    return [
        Spot(number, call, fault)
        for number, call in enumerate(injector.calls)
        for fault in FAULTS_OF.get(call, OF_READS)
    ]


def from_commit_on(spots: Sequence[Spot]) -> list[Spot]:
    """Return the faults from the first log entry on: before it, nothing can be lost but the work."""
    first = min(spot.number for spot in spots if spot.call == "put_if_absent")
    return [spot for spot in spots if spot.number >= first]


def chosen(spots: Sequence[Spot], at_most: int, seed: str) -> Sequence[Spot]:
    """Return all faults if every one is asked for, else a sample that the seed decides."""
    if os.environ.get(FULL) or len(spots) <= at_most:
        return spots
    return random.Random(seed).sample(spots, at_most)


def complaints(
    operation: Operation,
    template: Path,
    work: Path,
    spot: Spot,
    look: Callable[[Path], list[str]] = lambda _: [],
) -> list[str]:
    """Return what is wrong after an operation in which one call to a store went wrong.

    Args:
        look: Says what else is wrong in the folder of the tables; it may change them.
    """
    shutil.copytree(template, work)
    before = {name: read_log(work / name) for name in operation.tables}
    injector, acknowledged, ended = Injector(spot.number, spot.fault), None, None
    try:
        with injector.active():
            acknowledged = operation.run(work)
    except (WidenError, OutsideError, MemoryError, KeyboardInterrupt) as error:
        ended = error
    for call in injector.late:
        with suppress(WidenError):
            call()
    after = _newest(work / operation.tables[0])
    first = operation.first_kept
    found = look(work)
    found += [wrong for name in operation.tables for wrong in table_complaints(work / name, before[name], first)]
    if acknowledged is not None and after < acknowledged:
        found.append(f"version {acknowledged} was acknowledged, and {after} is the newest")
    if ended is not None and after > max(before[operation.tables[0]], default=-1):
        found += _error_complaints(operation, ended, after)
    shutil.rmtree(work)
    where = f"{operation.name}, call {spot.number} ({spot.call}) {spot.fault.value}, ended with {ended!r}"
    return [f"{where}: {wrong}" for wrong in found]


def _error_complaints(operation: Operation, ended: BaseException, after: int) -> list[str]:
    """What an error must say that ended an operation of which something is visible."""
    said = "; ".join([str(ended), *notes_of(ended)])
    if f"ersion {after} of" in said:
        return []
    return [f"version {after} is visible, and the error of {operation.name} does not say so: {said}"]


def table_complaints(location: Path, before: dict[int, bytes], first_kept: int = 0) -> list[str]:
    """What must be true of a table whatever has happened: nothing that was committed is gone, and it can be used.

    Args:
        location: Of the table.
        before: Its log before.
        first_kept: The first version that may not be gone.
    """
    newest, found = _newest(location), []
    log = read_log(location)
    kept = {version: data for version, data in before.items() if version >= first_kept}
    found += [f"version {version} is lost or changed" for version, data in kept.items() if log.get(version) != data]
    if newest < 0:
        return found
    store = LogStore(str(location))
    for version in range(first_kept or max(before, default=0), newest + 1):
        files = open_snapshot(store, version).files()["path"].to_pylist()
        found += [f"file {path} of version {version} is gone" for path in files if not store.find(store.plain(path))]
    with mock.patch.object(os, "fsync"):
        written = Table(str(location)).set_properties({"written": f"after {newest}"})
    if written.version != newest + 1:
        found.append(f"the next commit became version {written.version}, not {newest + 1}")
    return found


def read_log(location: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in location.glob("_delta_log/*.json") if path.stem.isdigit()}


def _newest(location: Path) -> int:
    try:
        return open_snapshot(LogStore(str(location))).version
    except TableNotFound:
        return -1
