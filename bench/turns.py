"""Works that take turns, and the rows that a benchmark prints of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from processor_time import processor_time

Work = Callable[[], object]


@dataclass(frozen=True)
class Cost:
    """What a work costs, in seconds on the wall and of the processor, of all processes."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        work: What is compared.
        ours: Our cost, usually in processor seconds.
        goal: What the ratio may be at most; without a peer, what our cost may be at most.
        peer: The cost of the same work by the peer.
        limit: The cost of what no engine can leave out.
    """

    work: str
    ours: float
    goal: float
    peer: float | None = None
    limit: float | None = None

    @property
    def ratio(self) -> float:
        """Our cost divided by that of the peer."""
        return self.ours if self.peer is None else self.ours / self.peer

    def __str__(self) -> str:
        missed = "  MISSED" if self.ratio > self.goal else ""
        costs = "".join(f"{'-' if cost is None else format(cost, '.3f'):>10}" for cost in (self.peer, self.limit))
        return f"  {self.work:<56}{self.ours:>10.3f}{costs}{self.ratio:>8.3f}  (at most {self.goal}){missed}"


def print_rows(title: str, rows: Iterable[Row]) -> int:
    """Print the rows under a title as they come; return 1 if a goal is missed, else 0."""
    print(f"{title}; load of the machine {os.getloadavg()[0]:.1f}")
    print(f"  {'work':<56}{'ours':>10}{'peer':>10}{'limit':>10}{'ratio':>8}")
    missed = False
    for row in rows:
        print(row, flush=True)
        missed |= row.ratio > row.goal
    return int(missed)


def take_turns(works: Mapping[str, Work], runs: int) -> dict[str, Cost]:
    """Run the works in turns and return the median costs; the first turn, in which compilers work, does not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for _ in range(runs + 1):
        for name, work in works.items():
            costs[name].append(measure(work))
    return {name: middle(each[1:]) for name, each in costs.items()}


def middle(costs: Iterable[Cost]) -> Cost:
    """Return the median of costs."""
    costs = list(costs)
    return Cost(median(cost.wall for cost in costs), median(cost.cpu for cost in costs))


def measure(work: Work) -> Cost:
    """Run a work and return its cost."""
    with processor_time() as used:
        started = time.perf_counter()
        work()
        wall = time.perf_counter() - started
    return Cost(wall, max(0.0, sum(used.values())))  # the time of sampling is subtracted
