"""Runs of three writers on one table: a seed decides everything."""

from __future__ import annotations

import contextlib
import logging
import random
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

from support.simulation.decoded import log_decoded_once
from support.simulation.oracle import Oracle
from support.simulation.world import TEST, World
from support.simulation.writer import Writer
from widen.errors import WidenError
from widen.log import commit_files as commit_timestamps
from widen.log.commit import Committed
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot

WRITERS, OPERATIONS = 3, 7


@dataclass(frozen=True)
class Run:
    """How a run ended.

    Args:
        seed: That decided it.
        violations: What must not be, in words.
        trace: A digest of everything that happened.
        versions: How many there were.
        faults: How many calls to the store went wrong.
        calls: How many calls there were.
    """

    seed: int
    violations: tuple[str, ...]
    trace: str
    versions: int
    faults: int
    calls: int


def simulate(seed: int) -> Run:
    """Let three writers work on a table, judge what they leave, and return how it went."""
    world = World(seed)
    oracle = Oracle(world)
    with controlled(world):
        writers = [Writer(f"w{number}", world, oracle, OPERATIONS) for number in range(WRITERS)]
        try:
            Writer(TEST, world, oracle, 0).create()
            world.baton.run({each.name: each.run for each in writers})
            oracle.judge()
        except WidenError as error:
            world.violate(f"the table cannot be read: {error}")
    return Run(seed, tuple(world.violations), world.trace, len(world.commits), world.faults, world.calls)


@contextlib.contextmanager
def controlled(world: World) -> Iterator[None]:
    """Take everything that chance decides otherwise from the seed: clocks, unique names, the order of threads."""
    chance = random.Random(world.rng.random())

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=chance.getrandbits(128), version=4)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(commit_timestamps, "time", world))
        stack.enter_context(mock.patch.object(uuid, "uuid4", uuid4))
        for name, module in list(sys.modules.items()):
            if name.startswith("widen.log.") and hasattr(module, "ThreadPoolExecutor"):
                stack.enter_context(mock.patch.object(module, "ThreadPoolExecutor", InTurn))
        stack.enter_context(without_locks(Snapshot, Committed, LogStore))
        stack.enter_context(log_decoded_once())
        logger = logging.getLogger("widen")
        stack.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.CRITICAL)
        yield


@contextlib.contextmanager
def without_locks(*classes: type) -> Iterator[None]:
    """Free cached properties of the lock that they have before Python 3.12: a writer that waits would keep it."""
    with contextlib.ExitStack() as stack:
        for value in [value for each in classes for value in vars(each).values()]:
            if isinstance(value, cached_property) and hasattr(value, "lock"):
                stack.enter_context(mock.patch.object(value, "lock", contextlib.nullcontext()))
        yield


class InTurn:
    """An executor without threads."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*args))
        return done

    def map(self, call: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
        return [call(value) for value in values]
