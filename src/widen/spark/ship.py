"""Bring the code of Widen to executors whose Python does not have it, and check what else they need.

Source: Spark's Python package management
"""

from __future__ import annotations

import gc
import logging
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

import pyarrow as pa

from widen.errors import InvalidOption
from widen.model.argument_types import check_arguments
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    import pyspark

    from widen.spark.spark_types import SparkSession
else:
    pyspark = import_lazily("pyspark")


PACKAGE = Path(__file__).resolve().parents[1]
NEEDED = ("pyarrow", "msgspec", "obstore", "pyroaring", "sqlglot")
"""The packages that tasks import, apart from Widen and from what Spark itself needs."""

KERNEL = "widen.model.native_kernel:find_kernel"
"""What finds the native kernel. Without it, tasks take the slower path with the same rows; see docs/kernel.md."""

_MAX_PROBES = 64
"""The most tasks that look for the packages; they are spread over the executors."""

_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@check_arguments
def ship(session: SparkSession | None = None) -> None:
    """Send the code of Widen to the executors of a session, and check that they can run it.

    Executors then need only the packages that Widen needs: pyarrow, msgspec, obstore, pyroaring and sqlglot. Where they
    have all of Widen already, this is not necessary. The native kernel of this process goes with the code. Executors
    that cannot load it decode JSON on the slower path, with the same rows; a warning in the log says so.

    Args:
        session: The session, classic or Connect; by default the active one, else a local one.

    Raises:
        InvalidOption: an executor runs another version of Python, or lacks a package.
        JobFailed: the job that looks for the packages failed.

    Source: Spark's Python package management
    """
    from pyspark.sql.utils import is_remote

    from widen.spark.engine import find_session

    spark = find_session(session)
    archive = str(_zip_package(Path(tempfile.mkdtemp(prefix="widen-ship-")) / "widen.zip"))
    if is_remote():
        spark.addArtifacts(archive, pyfile=True)
    else:
        spark.sparkContext.addPyFile(archive)
    if ensure_executors(spark, (*NEEDED, "widen.batches.text_tasks"), optional=(KERNEL,)):
        _log.warning(
            "Some executors lack the native kernel of Widen. They decode JSON on the slower path, with the same rows. "
            "To change that, install Widen on each worker, for the Python that Spark uses."
        )


def _zip_package(archive: Path) -> Path:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                file.write(path, path.relative_to(PACKAGE.parent))
    return archive


def ensure_executors(spark: SparkSession, modules: Sequence[str], optional: Sequence[str] = ()) -> list[str]:
    """Check that the executors of a session run this version of Python and can import modules.

    Args:
        optional: What an executor may lack: modules, or ``module:function`` for what a function finds.

    Returns:
        The optional modules that an executor lacks.
    """
    missing, lacking = _find_missing(spark, modules, optional)
    _ensure_complete(missing)
    return lacking


def _find_missing(
    spark: SparkSession, modules: Sequence[str], optional: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Return what executors lack; see `_split_missing`."""
    # Spark gives tasks to all free cores first, so that two for each core reach every executor that there is.
    from widen.spark.errors import translate_spark_errors
    from widen.spark.session import is_driver

    count = min(_MAX_PROBES, 2 * spark.sparkContext.defaultParallelism) if is_driver(spark) else _MAX_PROBES
    probe = partial(_probe, (*modules, *optional))
    with translate_spark_errors():
        rows = spark.range(0, count, 1, count).mapInArrow(probe, "python string, missing string").distinct().collect()
    other = sorted({row.python for row in rows} - {_VERSION})
    if other:
        value = f"a session whose executors run Python {', '.join(other)} while this is Python {_VERSION}"
        expected = f"Set PYSPARK_PYTHON to a Python {_VERSION} on the workers."
        raise InvalidOption(option="the Spark session", value=value, expected=expected)
    return _split_missing([row.missing for row in rows], optional)


def _ensure_complete(missing: Sequence[str]) -> None:
    from widen.spark.errors import SHIP_IT

    if missing:
        value = f"a session whose executors cannot import {'; '.join(missing)}"
        expected = f"Install on each worker, for the Python that Spark uses: pip install {' '.join(NEEDED)}"
        if missing == ["widen"]:
            expected = SHIP_IT
        raise InvalidOption(option="the Spark session", value=value, expected=expected)


def _split_missing(probed: Iterable[str], optional: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what probes missed: each combination of required modules, and the optional modules."""
    found = [[name for name in each.split(", ") if name] for each in probed]
    required = {", ".join(name for name in names if name not in optional) for names in found}
    return sorted(required - {""}), [name for name in optional if any(name in names for names in found)]


def _probe(modules: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    missing = []
    for _ in batches:
        for name in modules:
            try:
                module, _, function = name.partition(":")
                found = import_module(module)
                if function and getattr(found, function)() is None:
                    missing.append(name)
            except ImportError as error:
                missing.append(f"{name} ({error})" if str(name) not in str(error) else name)
    python = "{}.{}".format(*sys.version_info[:2])
    yield pa.RecordBatch.from_pydict({"python": [python], "missing": [", ".join(sorted(set(missing)))]})


_checked = WeakSet["SparkSession"]()


def ensure_shipped(spark: SparkSession) -> None:
    """Send Widen once for each session to executors that lack it, and check that they can run it.

    A local master with the Python of this process needs neither.
    """
    if spark in _checked:
        return
    if not _runs_this_python(spark):
        missing, _ = _find_missing(spark, ("widen", *NEEDED))
        if any("widen" in names.split(", ") for names in missing):
            ship(spark)
        else:
            _ensure_complete(missing)
    _checked.add(spark)


def _runs_this_python(spark: SparkSession) -> bool:
    from widen.spark.session import is_driver

    if not (is_driver(spark) and str(spark.sparkContext.master).startswith("local")):
        return False
    found = shutil.which(spark.sparkContext.pythonExec)
    return found is not None and Path(found).absolute().parent == Path(sys.executable).absolute().parent


_log = logging.getLogger(__name__)

# Spark sends functions of this module by their name, which executors without Widen cannot look up. It sends functions
# of the main module with their code.
_probe.__module__ = "__main__"


# The memory of Spark's Python workers, which run one task after the other and collect garbage after each.
#
# Source: Spark's `pyspark.daemon`, which calls `gc.collect` before a worker takes its next task


@cache
def freeze_imports() -> None:
    """Keep the garbage collector of a worker away from all that is imported; does nothing outside of a task.

    Modules are never garbage, but each collection looks at all of their objects, which takes longer than a small task.
    Once is enough: the objects of later tasks must stay collectable.
    """
    # If Spark is not loaded, this is not a Spark task.
    if sys.modules.get("pyspark") is not None and pyspark.TaskContext.get() is not None:
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
