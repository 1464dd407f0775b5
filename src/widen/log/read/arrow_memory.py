"""Where Arrow takes its memory from while a log is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def use_system_allocator() -> Iterator[None]:
    """Let Arrow use the allocator of the system meanwhile: the others keep as much again of what they free."""
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(usual)
