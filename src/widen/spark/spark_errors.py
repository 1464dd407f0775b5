"""Spark's failures, translated where they enter.

Source: house rule: foreign errors are translated at the one door where they come in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.errors import (
    CastOverflow,
    CheckViolated,
    CorruptFile,
    IdentityExhausted,
    InvalidOption,
    JobFailed,
    NotNullViolated,
    OutsideReplaceWhere,
    SourceError,
    StorageError,
    TextTooLong,
    WidenError,
)

try:
    from py4j.protocol import Py4JError
except ImportError:  # the client of Spark Connect comes without it
    Py4JError = PySparkException

_REFUSED = "WIDEN_REFUSED"
"""Begins the message by which a write of ours says that a row cannot be."""

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)
"""What a Spark action raises, in the classic session and in Connect."""

_READ = re.compile(r"\[(FAILED_READ_FILE[.\w]*)\].*?file (\S+?)\.?(?:\s|$)(.*)")
_ROW = re.compile(_REFUSED + r" (\w+) (\{.*?\}) VALUE (.*?) END", re.DOTALL)
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_DENIED = re.compile(
    r"Mkdirs failed to create (\S+)|(?:Permission denied|AccessDenied)[^\n]*|(\S+) \(Permission denied\)"
)
_ALONE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_PACKED = re.compile(r"native (\w+) library not available")
_CAUSE = re.compile(r"(?:^|\n)(?:Caused by: )?([\w.]*(?:Error|Exception)): ([^\n]+)")


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Raise an error of ours in place of what Spark raises when it cannot finish a job.

    Raises:
        CorruptFile: a file cannot be read; the error names it.
        RowRefused: a row breaks a rule of the table; the error names it.
        IdentityExhausted: an identity column has no further values.
        StorageError: there is no space, or no permission to write.
        JobFailed: anything else; the error has the innermost cause that Spark tells.
    """
    try:
        yield
    except SPARK_ERRORS as error:
        known = find_known_failure(error)
        if known is not None:
            raise known from error
        text = str(error)
        causes = _CAUSE.findall(text)
        reason = f"{causes[-1][0].rpartition('.')[2]}: {causes[-1][1]}" if causes else text.partition("\n")[0]
        raise JobFailed(reason=reason[:300].rstrip(".")) from error


def find_known_failure(error: Exception) -> WidenError | None:
    """Return the error of ours that tells what a failure of Spark says; None if none does."""
    found = ((pattern.search(str(error)), told) for pattern, told in _TOLD)
    return next((told(match) for match, told in found if match), None)


def raise_expression(kind: str, told: Mapping[str, str], value: Column | None = None) -> Column:
    """Return an expression that fails the job, with what `translate_spark_errors` needs to tell it as an error of ours.

    Args:
        kind: One of `_REFUSALS`.
        told: What is known of the rule.
        value: What is known of the row only where it is looked at.
    """
    shown = F.lit("") if value is None else F.coalesce(value, F.lit("null"))
    return F.raise_error(F.concat(F.lit(f"{_REFUSED} {kind} {json.dumps(told)} VALUE "), shown, F.lit(" END")))


def refusal_text(kind: str, told: Mapping[str, str], value: Column | None = None) -> Column:
    """Return the text of what `raise_expression` would fail the job with, for the same arguments."""
    before, here, after = _REFUSALS[kind](told, _HERE).message.partition(_HERE)
    shown = F.lit("") if value is None else F.coalesce(value, F.lit("null"))
    return F.concat(F.lit(before), shown, F.lit(after)) if here else F.lit(before)


_HERE = "\x00"
"""Stands in a message for what is known only where the row is looked at."""

_REFUSALS: Mapping[str, Callable[[Mapping[str, str], str], WidenError]] = {
    "NULL": lambda told, _: NotNullViolated(column=told["column"]),
    "CHECK": lambda told, row: CheckViolated(name=told["name"], expression=told["expression"], values=row),
    "TEXT": lambda told, value: TextTooLong(column=told["column"], limit=told["limit"], value=value),
    "CAST": lambda told, value: CastOverflow(column=told["column"], old=told["old"], new=told["new"], value=value),
    "OUTSIDE": lambda told, _: OutsideReplaceWhere(where=told["where"]),
    "IDENTITY": lambda told, _: IdentityExhausted(column=told["column"]),
}


def _row(found: re.Match[str]) -> WidenError:
    return _REFUSALS[found[1]](json.loads(found[2]), found[3])


def _read(found: re.Match[str]) -> WidenError:
    if found[1] == "FAILED_READ_FILE.FILE_NOT_EXIST":
        fix = "Restore it from a backup, or restore the table to a version that does not need it."
        return CorruptFile(path=found[2], reason="it does not exist (vacuumed or deleted?)", fix=fix)
    causes = _CAUSE.findall(found.string)
    detail = found[3].strip() if "SQLSTATE" not in found[3].strip()[:9] else causes[-1][1] if causes else ""
    reason = f"Spark says {found[1]}" + (f" ({detail[:200].rstrip('.')})" if detail else "")
    return CorruptFile(path=found[2], reason=reason, fix="Restore the file from a backup, or leave it out.")


def _full(found: re.Match[str]) -> WidenError:
    return StorageError(location="The table", reason="the disk is full", fix="Free some space and repeat the call.")


def _denied(found: re.Match[str]) -> WidenError:
    where = found[1] or found[2] or "The table"
    return StorageError(location=where, reason="it may not be written", fix="Choose another place, or allow writing.")


def _alone(found: re.Match[str]) -> WidenError:
    return InvalidOption(
        option="the Spark session",
        value=f"one whose executors lack the package {found[1]}",
        expected="Install widen on them too, or set PYSPARK_PYTHON to an interpreter that has it.",
    )


def _packed(found: re.Match[str]) -> WidenError:
    reason = f"this Spark cannot read what {found[1]} has packed"
    return SourceError(source="The source", reason=reason, fix="Unpack it first, e.g. with: zstd -d FILE")


_TOLD: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], WidenError]], ...] = (
    (_ROW, _row),
    (_FULL, _full),
    (_DENIED, _denied),
    (_PACKED, _packed),
    (_READ, _read),
    (_ALONE, _alone),
)
"""What a failure says, and the error that tells it, in the order to look."""
