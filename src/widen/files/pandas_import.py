"""Whether PyArrow imports pandas, which takes longer than a small ingestion."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder


def skip_pandas() -> None:
    """Keep PyArrow from importing pandas, which takes longer than a small ingestion, for the rest of this process.

    It does so with the first list that becomes an array, to see whether that is a series of pandas. Ours never are.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    refusing = _NoPandas()
    sys.meta_path.insert(0, refusing)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(refusing)


@contextmanager
def without_pandas() -> Iterator[None]:
    """Keep PyArrow from importing pandas within the block; see `skip_pandas`. After it, others may need pandas."""
    if "pandas" in sys.modules:
        yield
        return
    skip_pandas()
    try:
        yield
    finally:
        import pyarrow as pa

        # PyArrow looks for pandas once, and remembers it here.
        memory = getattr(pa.lib, "_pandas_api", None)
        if memory is not None:
            memory.__init__()


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)
