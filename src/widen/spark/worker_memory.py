"""The memory of Spark's Python workers, which run one task after the other and collect garbage after each.

Source: Spark's `pyspark.daemon`, which calls `gc.collect` before a worker takes its next task
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    import pyspark
else:  # the report reads footers without Spark
    pyspark = import_lazily("pyspark")


@cache
def freeze_imports() -> None:
    """Keep the garbage collector of a worker away from all that is imported; does nothing outside of a task.

    Modules are never garbage, but each collection looks at all of their objects, which takes longer than a small task.
    Once is enough: the objects of later tasks must stay collectable.
    """
    if pyspark.TaskContext.get() is not None:
        gc.freeze()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Pause the collector: rows have no cycles, and to look for some takes longer than to make the rows."""
    freeze_imports()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # A small source is read in the process of the caller, who may have turned the collector off.
        if was_enabled:
            gc.enable()
