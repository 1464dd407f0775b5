"""Spark for the command line: started on first use, with its own messages kept out of the output."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from typing import IO, TYPE_CHECKING

from widen.errors import SparkUnavailable

if TYPE_CHECKING:
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


def _last_java_line() -> str:
    """Return the last line that Java wrote before it exited."""
    if not _java_log:
        return ""
    _java_log[0].seek(0)
    lines = _java_log[0].read().decode(errors="replace").split("\n")
    return next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")
