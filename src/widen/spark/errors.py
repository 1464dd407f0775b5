"""Errors of Spark, translated into errors of Widen."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import widen.errors as widen_errors
from widen.errors import (
    CastOverflow,
    CheckViolated,
    CorruptFile,
    IdentityExhausted,
    InvalidCondition,
    InvalidOption,
    JobFailed,
    NotNullViolated,
    ReplaceWhereMismatch,
    SourceContentError,
    SourceError,
    StorageError,
    StringTooLong,
    WidenError,
    WrongLength,
)
from widen.errors.tables import missing_data_file
from widen.evolution.policy import Samples, mask
from widen.json.document import SHORTEN_RECORD
from widen.model.types import ArrayType, DataType, MapType, StructType
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, spark_errors

_REFUSED = "WIDEN_REFUSED"
"""The prefix of messages of our expressions that refuse a row."""

_SENT = "WIDEN_SENT"
"""The prefix of the errors of Widen that a server sends to its client."""

RESTORE_FILE = "Restore the file from a backup, or exclude it."
"""What to do about a file that cannot be read."""

CLOSE_QUOTE = (
    "Repair the file. If no field spans lines, set the option multiLine=false, and only that line is corrupt; if "
    "quotes are ordinary characters, set the option quote to an empty string."
)
CONVERT_FILE = "Convert the file, or exclude it."
SET_ENCODING = "Set the option encoding to that of the file (--option encoding=...), or convert it to UTF-8."
"""What to do about a file whose records cannot be read."""

# Errors of the operating system while a file of a source is read: they say nothing about its content.


_READABLE = "Run as a user who may read it, or change the permissions."
_MORE_FILES = "Raise the limit of open files (ulimit -n), and repeat the call."
_MORE_MEMORY = "Free some memory, and repeat the call."
_CHECK_DISK = "Check the disk or the network, and repeat the call."

_ENVIRONMENT: Mapping[int, str] = {
    errno.EACCES: _READABLE,
    errno.EPERM: _READABLE,
    errno.EMFILE: _MORE_FILES,
    errno.ENFILE: _MORE_FILES,
    errno.ENOMEM: _MORE_MEMORY,
    errno.ENOBUFS: _MORE_MEMORY,
    **dict.fromkeys(
        (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.ENXIO, errno.ENODEV)
        + (errno.ENOTCONN, errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE)
        + (errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET),
        _CHECK_DISK,
    ),
}
"""What to do about an error of the environment, by its number."""

_ABOUT_THE_FILE = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EOVERFLOW)
)
"""The errors about the file itself: it is not there, is not a file, or a damaged part of it points to a wrong place."""

_LASTING = frozenset((errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS))
"""The errors that would come again at once."""


def may_pass(error: OSError) -> bool:
    """Return whether the same call may succeed if it is made again at once."""
    return error.errno is not None and error.errno not in _ABOUT_THE_FILE | _LASTING


def environment_error(location: str, error: BaseException) -> StorageError | None:
    """Return the error for a file that the environment keeps from being read; None if the file itself is at fault.

    Args:
        error: What the operating system, or Arrow, has raised.
    """
    if isinstance(error, MemoryError):
        size = _ALLOCATED.search(str(error))
        if size is not None and int(size[1]) > _MOST_ALLOCATED:  # a damaged file asks for more than any file needs
            return None
        return StorageError(location=location, reason=os.strerror(errno.ENOMEM), fix=_MORE_MEMORY)
    if not isinstance(error, OSError) or error.errno is None or error.errno in _ABOUT_THE_FILE:
        return None
    fix = _ENVIRONMENT.get(error.errno, _CHECK_DISK)
    return StorageError(location=location, reason=error.strerror or os.strerror(error.errno), fix=fix)


_ALLOCATED = re.compile(r"of size (\d+)")
_MOST_ALLOCATED = 2**33

_NUMBERS = {os.strerror(number): number for number in _ENVIRONMENT}
_TEXTS = "|".join(map(re.escape, _NUMBERS))
"""What Java says of these errors: the texts of the operating system."""


def environment_error_of_java(location: str, text: str) -> StorageError | None:
    """Return the error for a file that the environment keeps Spark from reading; None for another Java error."""
    found = re.search(_TEXTS, text)
    fix = None if found is None else _ENVIRONMENT[_NUMBERS[found[0]]]
    return None if found is None else StorageError(location=location, reason=found[0], fix=fix)


NO_CREDENTIALS = "Spark has no credentials for it"
SET_CREDENTIALS = "Pass storage_options, or set spark.hadoop.fs.s3a.access.key and secret.key in the session."
"""What to do about a store in S3 that Spark has no credentials for."""

ADD_STORE = (
    "Start Spark with the package of the store, in the version of its Hadoop: for S3 (s3a://) e.g. "
    "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION. See docs/guide/cluster.md."
)
"""What to do if Spark lacks the package for a store."""

_MISSING_PATH = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\.(?: SQLSTATE|$)")
_READ_FAILURE = re.compile(r"\[(FAILED_READ_FILE[.\w]*)\].*?file (\S+?)\.?(?:\s|$)(.*)")
_UNREADABLE_RANGE = re.compile(
    r"\[WIDEN_FILE_UNREADABLE\] The file (\S+) cannot be read: ([^\n]*?)\. ("
    + "|".join(map(re.escape, (RESTORE_FILE, CLOSE_QUOTE, SHORTEN_RECORD, CONVERT_FILE, SET_ENCODING)))
    + ")"
)
_UNUSABLE_CONDITION = re.compile(r"\[WIDEN_CONDITION_UNUSABLE\] ([^\n]*?) cannot be used: (the load [^\n]+?)\. [^\n]+")
_UNUSABLE_SOURCE = re.compile(r"\[WIDEN_SOURCE_(UNUSABLE|CONTENT)\] (.+?): ([^\n]+?)\. ([^\n]+)")
_UNREADABLE_STORE = re.compile(r"\[WIDEN_STORAGE\] (.+?): ([^\n]+?)\. ([^\n]+)")
_ENVIRONMENT_FAILURE = re.compile(rf"\[FAILED_READ_FILE[.\w]*\].*?file (\S+?)\.?(?=\s|$).*?({_TEXTS})", re.DOTALL)
_SENT_ERROR = re.compile(_SENT + r" (\w+) ")
_REFUSED_ROW = re.compile(_REFUSED + r" (\w+) (\{.*?\}) VALUE (.*?) END", re.DOTALL)
_DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_CREDENTIALS = re.compile(r"NoAuthWithAWSException|NoAwsCredentialsException|Unable to load credentials from any")
_NO_STORE = re.compile(
    r"No FileSystem for scheme \"?(\w+)|ClassNotFoundException: (?:Class )?org\.apache\.hadoop\.fs\.(\w+)\."
)
_NO_FOLDER = re.compile(r"Mkdirs failed to create (.+?)(?: \(exists=|\n|$)")
_DENIED = re.compile(r"(?:Permission denied|AccessDenied)[^\n]*|(\S+) \(Permission denied\)")
_MAX_NAME_BYTES = 255
"""The length of a name in most file systems."""

_MISSING_PACKAGE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_OTHER_PYTHON = re.compile(
    r"PYTHON_VERSION_MISMATCH.*?version:? (\d+\.\d+) than that in driver:? (\d+\.\d+)", re.DOTALL
)
_COMPRESSION = re.compile(r"native (\w+) library not available")
_CAUSE = re.compile(r"(?:^|\n)(?:: |Caused by: )?([\w.]*(?:Error|Exception|ArrowInvalid)): ([^\n]+)")


@contextmanager
def translate_spark_errors() -> Iterator[None]:
    """Translate the errors that Spark raises when a job fails.

    Raises:
        JobFailed: any other failure; the error has the innermost cause that Spark reports.
    """
    try:
        yield
    except spark_errors() as error:
        failure = find_known_failure(error)
        if failure is not None:
            raise failure from error
        text = str(error)
        causes = _CAUSE.findall(text)
        reason = f"{causes[-1][0].rpartition('.')[2]}: {causes[-1][1]}" if causes else text.partition("\n")[0]
        raise JobFailed(reason=show_reason(reason)[:300].rstrip(".")) from error


@contextmanager
def ignore_failed_cleanup() -> Iterator[None]:
    """Ignore a failed cleanup of a session that has ended: the error that ended it matters more, as does a commit."""
    with suppress(*spark_errors(), OSError):
        yield


def unpersist(frame: DataFrame) -> None:
    """Free the rows of a persisted DataFrame; see `ignore_failed_cleanup`."""
    with ignore_failed_cleanup():
        frame.unpersist()


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether a Spark error, or one that it caused, says that Java ran out of memory, or died of it."""
    return error is not None and (bool(_NO_MEMORY.search(str(error))) or is_out_of_memory(error.__cause__))


_NO_MEMORY = re.compile(
    r"OutOfMemoryError|Java heap space|GC overhead limit|Answer from Java side is empty"
    r"|Error while sending or receiving|An error occurred while trying to connect to the Java server"
    r"|An error occurred while calling o\d+\.\w+$"
)
"""What Spark and py4j say then; py4j has no cause for a call if Java died during it."""


def lacks_credentials(error: Exception) -> bool:
    """Return whether Spark has no credentials for a store in S3."""
    return _CREDENTIALS.search(str(error)) is not None


def missing_store(error: Exception) -> str:
    """Return the kind of store that Spark has no package for, e.g. ``s3``; empty if that is not the error."""
    match = _NO_STORE.search(str(error))
    return "" if match is None else match[1] or match[2]


def find_known_failure(error: Exception) -> WidenError | None:
    """Return the Widen error for a failure of Spark, or None if the failure is not a known one."""
    matches = ((pattern.search(str(error)), to_error) for pattern, to_error in _TRANSLATIONS)
    return next((to_error(match) for match, to_error in matches if match), None)


def to_error_text(error: WidenError) -> str:
    """Return a text that `find_known_failure` turns into the same error in another process."""
    return f"{_SENT} {type(error).__name__} {json.dumps(error.fields, default=str)}"


def raise_expression(kind: str, rule: Mapping[str, str], value: Column | None = None) -> Column:
    """Return an expression that fails the job; `translate_spark_errors` turns the failure into an error of Widen.

    Args:
        value: The excerpt of the row to show in the error.
    """
    shown = F.lit("") if value is None else F.coalesce(value, F.lit("null"))
    return F.raise_error(F.concat(F.lit(f"{_REFUSED} {kind} {json.dumps(rule)} VALUE "), shown, F.lit(" END")))


def refusal_text(kind: str, rule: Mapping[str, str], value: Column | None = None) -> Column:
    """Return the message of the error that `raise_expression` causes for the same arguments."""
    before, placeholder, after = _REFUSALS[kind](rule, _PLACEHOLDER).message.partition(_PLACEHOLDER)
    shown = F.lit("") if value is None else F.coalesce(value, F.lit("null"))
    return F.concat(F.lit(before), shown, F.lit(after)) if placeholder else F.lit(before)


_PLACEHOLDER = "\x00"
"""Placeholder in a message for the excerpt of the row, which templates must show as it is: without `!r`."""

_REFUSALS: Mapping[str, Callable[[Mapping[str, str], str], WidenError]] = {
    "NULL": lambda rule, _: NotNullViolated(column=rule["column"]),
    "CHECK": lambda rule, row: CheckViolated(name=rule["name"], expression=rule["expression"], values=row),
    "TEXT": lambda rule, value: StringTooLong(column=rule["column"], limit=rule["limit"], value=value),
    "BYTES": lambda rule, _: WrongLength(column=rule["column"], size=rule["size"]),
    "CAST": lambda rule, value: CastOverflow(column=rule["column"], old=rule["old"], new=rule["new"], value=value),
    "OUTSIDE": lambda rule, _: ReplaceWhereMismatch(where=rule["where"]),
    "IDENTITY": lambda rule, _: IdentityExhausted(column=rule["column"]),
}


def _row_error(match: re.Match[str]) -> WidenError:
    return _REFUSALS[match[1]](json.loads(match[2]), match[3])


def _sent_error(match: re.Match[str]) -> WidenError:
    kind: type[WidenError] = getattr(widen_errors, match[1])
    try:
        fields, _ = json.JSONDecoder().raw_decode(match.string, match.end())
    except json.JSONDecodeError:  # Spark shortens long messages
        return JobFailed(reason=f"{kind.__name__}: see the log of the server")
    return kind(**fields)


def _missing_path_error(match: re.Match[str]) -> WidenError:
    return missing_data_file(match[1])


def _read_error(match: re.Match[str]) -> WidenError:
    if match[1] == "FAILED_READ_FILE.FILE_NOT_EXIST":
        return missing_data_file(match[2])
    causes = _CAUSE.findall(match.string)
    detail = match[3].strip() if "SQLSTATE" not in match[3].strip()[:9] else causes[-1][1] if causes else ""
    reason = f"Spark reports {match[1]}" + (f" ({detail[:200].rstrip('.')})" if detail else "")
    return CorruptFile(path=match[2], reason=reason, fix=RESTORE_FILE)


def _condition_error(match: re.Match[str]) -> WidenError:
    return InvalidCondition(condition=match[1], reason=match[2])


def _range_error(match: re.Match[str]) -> WidenError:
    return CorruptFile(path=match[1], reason=match[2], fix=match[3])


def _store_error(match: re.Match[str]) -> WidenError:
    return StorageError(location=match[1], reason=match[2], fix=match[3])


def _environment_failure(match: re.Match[str]) -> WidenError:
    return StorageError(location=match[1], reason=match[2], fix=_ENVIRONMENT[_NUMBERS[match[2]]])


def _source_error(match: re.Match[str]) -> WidenError:
    kind = SourceContentError if match[1] == "CONTENT" else SourceError
    return kind(source=match[2], reason=match[3], fix=match[4])


def _disk_full_error(match: re.Match[str]) -> WidenError:
    return StorageError(location="The table", reason="the disk is full", fix="Free some space and try again.")


def _no_folder_error(match: re.Match[str]) -> WidenError:
    return find_impossible_folder(match[1]) or _permission_error(match)


def find_impossible_folder(path: str) -> StorageError | None:
    """Return the error for a folder of a partition in a path that most file systems cannot have; None without one."""
    for name in path.split("/"):
        size = len(name.encode())
        fault = "has a NUL" if "\0" in name else f"makes a name of {size} bytes" if size > _MAX_NAME_BYTES else ""
        if fault and "=" in name:
            return StorageError(
                location=f"Partition column {name.partition('=')[0]}",
                reason=f"the store has no folder for one of its values, which {fault}",
                fix="Repair the value in the source, or partition the table by another column.",
            )
    return None


def _permission_error(match: re.Match[str]) -> WidenError:
    return StorageError(
        location=match[1] or "The table",
        reason="permission to write is missing",
        fix="Choose another location, or grant the permission.",
    )


def _no_credentials_error(match: re.Match[str]) -> WidenError:
    return StorageError(location="The store in S3", reason=NO_CREDENTIALS, fix=SET_CREDENTIALS)


def _no_store_error(match: re.Match[str]) -> WidenError:
    return StorageError(location=match[1] or match[2], reason="this Spark cannot read from such a store", fix=ADD_STORE)


SHIP_IT = "Call widen.ship(spark), or install widen on the executors, or set PYSPARK_PYTHON to one with it."
"""What to do if executors lack Widen."""

_INSTALL_IT = "Install it on each worker, for the Python that Spark uses: pip install"


def _missing_package_error(match: re.Match[str]) -> WidenError:
    package = match[1].partition(".")[0]
    return InvalidOption(
        option="the Spark session",
        value=f"a session whose executors do not have the package {match[1]}",
        expected=SHIP_IT if package == "widen" else f"{_INSTALL_IT} {package}",
    )


def _other_python_error(match: re.Match[str]) -> WidenError:
    return InvalidOption(
        option="the Spark session",
        value=f"a session whose executors run Python {match[1]} while this is Python {match[2]}",
        expected=f"Set PYSPARK_PYTHON to a Python {match[2]} that has widen, and start the session again.",
    )


def _compression_error(match: re.Match[str]) -> WidenError:
    reason = f"this Spark cannot read {match[1]} compression"
    return SourceError(source="The source", reason=reason, fix="Decompress the files first, e.g. with: zstd -d FILE")


_TRANSLATIONS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], WidenError]], ...] = (
    (_SENT_ERROR, _sent_error),
    (_REFUSED_ROW, _row_error),
    (_UNREADABLE_STORE, _store_error),
    (_ENVIRONMENT_FAILURE, _environment_failure),
    (_CREDENTIALS, _no_credentials_error),
    (_NO_STORE, _no_store_error),
    (_DISK_FULL, _disk_full_error),
    (_NO_FOLDER, _no_folder_error),
    (_DENIED, _permission_error),
    (_COMPRESSION, _compression_error),
    (_READ_FAILURE, _read_error),
    (_MISSING_PATH, _missing_path_error),
    (_OTHER_PYTHON, _other_python_error),
    (_UNREADABLE_RANGE, _range_error),
    (_UNUSABLE_CONDITION, _condition_error),
    (_UNUSABLE_SOURCE, _source_error),
    (_MISSING_PACKAGE, _missing_package_error),
)
"""Patterns of failures and the errors they become, in order of precedence."""


# Values of rows as errors show them: letters as x, digits as 9, unless the session asks for raw ones.
#
# Source: docs/evolution-rules.md#d24


SAMPLES = "spark.widen.samples"
"""How errors show values of rows: ``masked``, the default, or ``raw``."""

_MARKS = ((r"\p{Lu}", "X"), (r"[\p{L}&&[^X]]", "x"), (r"\p{N}", "9"))


SHOWN_CHARACTERS = 500
"""The most characters of a row that an error shows."""


def show_values(values: Column, data_type: DataType) -> Column:
    """Return values as errors show them; in masked ones every scalar is a text, and names of fields stay."""
    return values if _shows_raw() else _mask_values(values, data_type)


def show_reason(reason: str) -> str:
    """Return the message of a Spark error; values of rows in it are redacted as in other errors."""
    return reason if _shows_raw() else _QUOTED.sub(lambda match: mask(match[0]), reason)


_QUOTED = re.compile(
    r"(?<=The value ).*?(?= of the type)"
    r"|(?<=Text ).*?(?= could not be parsed)"
    r"|(?<=\] ).*?(?= cannot be represented as)"
    r"|(?<=Duplicate map key ).*?(?= was found)"
    r"|(?<=Encountered records: ).*?(?=\. Parse)",
    re.DOTALL,
)
"""The values in messages of Spark."""


def _shows_raw() -> bool:
    session = SparkSession.getActiveSession() if "pyspark.sql" in sys.modules else None
    return session is not None and str(session.conf.get(SAMPLES, "")).lower() == Samples.RAW.value


def _mask_values(values: Column, data_type: DataType) -> Column:
    match data_type:
        case StructType():
            fields = [_mask_values(values.getField(field.name), field.type).alias(field.name) for field in data_type]
            return F.when(values.isNotNull(), F.struct(*fields)) if fields else values
        case ArrayType(element):
            return F.transform(values, lambda item: _mask_values(item, element))
        case MapType(key, value):
            # Two keys may have the same mask, so that the result is not a map.
            return F.transform(
                F.map_entries(values),
                lambda pair: F.struct(
                    _mask_values(pair["key"], key).alias("key"), _mask_values(pair["value"], value).alias("value")
                ),
            )
    return mask_text(values.cast("string"))


def mask_text(text: Column) -> Column:
    """Return texts with every letter as x or X and every digit as 9."""
    for pattern, mark in _MARKS:
        text = F.regexp_replace(text, F.lit(pattern), F.lit(mark))
    return text
