"""What Java writes to stderr while Widen starts Spark: without the lines that every start has.

The lines come before Spark reads any setting, so that none turns them off. Everything else goes on to stderr, during
the start and afterwards, as long as Java runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

_STDERR = 2

_USUAL = re.compile(
    rb"WARNING: Using incubator modules: .*"
    rb"|Using Spark's default log4j profile: .*"
    rb'|Setting (?:default|Spark) log level to "\w+"\.'
    rb"|To adjust logging level use .*"
    rb"|[\d/]+ [\d:]+ WARN NativeCodeLoader: .*"
)
"""The lines of every start of a Spark that has no logging configuration of its own."""

_END_SECONDS = 2.0
"""How long to wait for the last lines of a Java that did not start."""


@contextmanager
def without_usual_lines() -> Iterator[None]:
    """Leave out the usual lines of the Java process that the block starts.

    Java keeps the stderr that it gets here; this process has its own again after the block.
    """
    try:
        shown = os.dup(_STDERR)
    except OSError:  # a process without stderr
        yield
        return
    read_end, write_end = os.pipe()
    os.dup2(write_end, _STDERR)
    os.close(write_end)
    reader = Thread(target=_forward, args=(read_end, shown), name="widen-java-stderr", daemon=True)
    reader.start()
    has_started = False
    try:
        yield
        has_started = True
    finally:
        os.dup2(shown, _STDERR)
        if not has_started:
            reader.join(_END_SECONDS)


def _forward(read_end: int, shown: int) -> None:
    with open(read_end, "rb") as lines, open(shown, "wb", buffering=0) as stderr:
        for line in lines:
            if not _USUAL.fullmatch(line.rstrip(b"\r\n")):
                stderr.write(line)
