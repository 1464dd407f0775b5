"""Spark's failures, translated where they enter.

Source: house rule: foreign errors are translated at the one door where they come in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from widen.errors import CorruptFile, SchemaMismatch

try:
    from py4j.protocol import Py4JError
except ImportError:  # the client of Spark Connect comes without it
    Py4JError = PySparkException

NULL_REFUSED = "WIDEN_NOT_NULL"
"""Begins the message by which a write of ours says that a column must not be null."""

FAILURES: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a Spark action raises, in the classic session and in Connect."""

_READ = re.compile(r"\[(FAILED_READ_FILE[.\w]*)\].*?file (\S+?)\.?(?:\s|$)(.*)")
_NULL = re.compile(NULL_REFUSED + r":([^\n]*?):END")


@contextmanager
def translated() -> Iterator[None]:
    """Raise an error of ours in place of what Spark raises, where Spark's says which file or column is to blame.

    Raises:
        CorruptFile: a data file cannot be read; the error names it.
        SchemaMismatch: a column that must not be null is null.
    """
    try:
        yield
    except FAILURES as error:
        text = str(error)
        if found := _NULL.search(text):
            raise SchemaMismatch(
                reason=f"column {found[1]} must not be null, and a row has null in it",
                fix="Fill the column, or let it be null: alter_column(..., nullable=True).",
            ) from error
        if found := _READ.search(text):
            raise CorruptFile(path=found[2], reason=_reason(found), fix=_FIX) from error
        raise


def _reason(found: re.Match[str]) -> str:
    detail = found[3].strip().rstrip(".")
    return f"Spark says {found[1]}" + (f" ({detail[:200]})" if detail and "SQLSTATE" not in detail[:9] else "")


_FIX = "Restore the file from a backup, or read an older version with version=."
