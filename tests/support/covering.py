"""Which combinations a run tries: all of them where everything runs on Spark, else each case and each layout.

`make test` asks each case in one layout, and each layout several cases. `make test-spark`, `make settings`, `make
matrix` and WIDEN_TEST_FAULTS=1 ask every case in every layout.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import product
from typing import TypeVar

from support.fault import FULL

C = TypeVar("C")
L = TypeVar("L")

TRIES_ALL = FULL in os.environ or os.environ.get("WIDEN_TEST_ENGINE") == "spark"
"""Whether this run leaves nothing out."""


def covering(cases: Iterable[C], layouts: Iterable[L]) -> list[tuple[C, L]]:
    """Return the pairs of a case and a layout that a run tries.

    Neighbouring cases have different layouts, and from one round to the next the layouts are shifted: cases that differ
    in two ways, one after the other, meet every layout in both.
    """
    cases, layouts = [*cases], [*layouts]
    if TRIES_ALL:
        return [*product(cases, layouts)]
    count = max(len(cases), len(layouts))
    return [(cases[at % len(cases)], layouts[(at + at // len(layouts)) % len(layouts)]) for at in range(count)]
