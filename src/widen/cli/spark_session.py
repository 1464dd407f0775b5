"""Spark for one call of the command line: started when it is needed, and kept from talking into the output."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings
from typing import IO, TYPE_CHECKING

from widen.cli import lazy_imports
from widen.errors import EngineMissing

if TYPE_CHECKING:
    from widen.spark.spark_types import SparkSession

_apart: list[IO[bytes]] = []


def redirect_stderr() -> None:
    """Let what other programs write to stderr go to a file, for the rest of this process; our own words stay.

    Java and its loggers take the file descriptor as it is when they start.
    """
    said = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open as long as the process)
    sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)
    os.dup2(said.fileno(), 2)
    _apart.append(said)
    logging.disable()
    warnings.filterwarnings("ignore", module=r"pyspark\.")


def spark_session() -> SparkSession:
    """Return the session to work in.

    Raises:
        EngineMissing: Spark or Java is not installed, or does not start.
    """
    try:
        return lazy_imports.find_session()
    except EngineMissing as error:
        raise EngineMissing(reason=f"{error.fields['reason']}{_last_java_line()}", fix=error.fields["fix"]) from error


def _last_java_line() -> str:
    """Return the last line that Java wrote before it gave up."""
    if not _apart:
        return ""
    _apart[0].seek(0)
    lines = _apart[0].read().decode(errors="replace").split("\n")
    return next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")
