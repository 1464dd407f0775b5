"""Texts of errors of other libraries, as our messages quote them."""

from __future__ import annotations

from widen.errors.tables import CorruptFile

_NOTES = "__notes__"


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without the full stop that our messages add.

    Args:
        error: An error of another library; the rest of its text stays readable on ``__cause__``.
    """
    return str(error).strip().partition("\n")[0].rstrip(".")


def open_failure(error: OSError | ValueError) -> str:
    """Return why a file cannot be opened; Python raises `ValueError` for a path that no file can have."""
    return getattr(error, "strerror", None) or str(error)


def missing_data_file(path: str) -> CorruptFile:
    """Return the error for a data file of a table that does not exist."""
    return CorruptFile(path=path, reason="it does not exist (vacuumed or deleted?)", fix=_RESTORE_OR_READ_LATER)


_RESTORE_OR_READ_LATER = (
    "If a vacuum deleted it, read a later version. Otherwise restore the file from a backup, or restore the table to a "
    "version that does not need it."
)


# Widen supports Python 3.10, where BaseException.add_note does not exist.
def add_note(error: BaseException, text: str) -> None:
    """Add a note to an error or an interrupt, as Python 3.11 does; newer Pythons show it in tracebacks.

    Source: PEP 678
    """
    vars(error).setdefault(_NOTES, []).append(text)


def notes_of(error: BaseException | None) -> list[str]:
    """Return the notes of an error and of the errors that caused it.

    Source: PEP 678
    """
    if error is None:
        return []
    return [*vars(error).get(_NOTES, ()), *notes_of(error.__cause__ or error.__context__)]
