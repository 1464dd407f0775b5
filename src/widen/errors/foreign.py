"""What errors of others say, as the messages of ours quote it.

Source: house rule: foreign errors are translated at the one door where they come in.
"""

from __future__ import annotations


def first_line(error: Exception) -> str:
    """Return the first line of what an error says, without the full stop that the messages of ours add.

    Args:
        error: Of another library; what it says below its first line is for those who read `__cause__`.
    """
    return str(error).strip().partition("\n")[0].rstrip(".")
