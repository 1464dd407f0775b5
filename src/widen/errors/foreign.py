"""What errors of others say, as the messages of ours quote it.

Source: house rule: foreign errors are translated at the one door where they come in.
"""

from __future__ import annotations

_NOTES = "__notes__"


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, without the full stop that the messages of ours add.

    Args:
        error: Of another library; what it says below its first line is for those who read `__cause__`.
    """
    return str(error).strip().partition("\n")[0].rstrip(".")


def add_note(error: BaseException, text: str) -> None:
    """Add a note to an error or an interrupt, as Python 3.11 does it: tracebacks there show it.

    Source: PEP 678
    """
    vars(error).setdefault(_NOTES, []).append(text)


def notes_of(error: BaseException | None) -> list[str]:
    """Return the notes of an error and of what caused it.

    Source: PEP 678
    """
    if error is None:
        return []
    return [*vars(error).get(_NOTES, ()), *notes_of(error.__cause__ or error.__context__)]
