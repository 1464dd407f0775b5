"""Spark for the command line: started on first use, with its own messages kept out of the output."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from importlib.abc import MetaPathFinder
from typing import IO, TYPE_CHECKING

from widen.cli.output import note
from widen.errors import SparkUnavailable

if TYPE_CHECKING:
    from widen.cli.output import StepDisplay
    from widen.spark.spark_types import SparkSession

_java_log: list[IO[bytes]] = []


def redirect_stderr() -> None:
    """Redirect the stderr of other programs to a file for the rest of this process; our own messages stay visible.

    Java and its loggers use the file descriptor as it is when they start.
    """
    log = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open as long as the process)
    sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)
    os.dup2(log.fileno(), 2)
    _java_log.append(log)
    logging.disable()
    warnings.filterwarnings("ignore", module=r"pyspark\.")


def spark_session() -> SparkSession:
    """Return the session.

    Raises:
        SparkUnavailable: Spark or Java is not installed, or does not start.
    """
    from widen.spark.session import find_session

    try:
        return find_session()
    except SparkUnavailable as error:
        raise SparkUnavailable(
            reason=f"{error.fields['reason']}{_last_java_line()}", fix=error.fields["fix"]
        ) from error


def choose_session(engine: str | None, update: StepDisplay) -> SparkSession:
    """Return the session for an ingestion, which may need no Spark; see `widen.spark.engine.open_session`.

    Args:
        update: Shows the progress of the jobs of Spark.
    """
    from widen.spark.engine import is_local, open_session

    def start(reason: str) -> SparkSession:
        update(f"starting Spark, because {reason}")
        return update.watch(spark_session())

    session = open_session(None, engine, start)
    if not is_local(session):
        return update.watch(session)
    skip_pandas()
    return session


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


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name=name)


def note_engine(spark: SparkSession) -> None:
    """Tell where the work was done and why, unless a session was there already or Spark was asked for."""
    from widen.spark.engine import explain_engine

    explanation = explain_engine(spark)
    if explanation:
        note(explanation)


def _last_java_line() -> str:
    """Return the last line that Java wrote before it exited."""
    if not _java_log:
        return ""
    _java_log[0].seek(0)
    lines = _java_log[0].read().decode(errors="replace").split("\n")
    return next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")
