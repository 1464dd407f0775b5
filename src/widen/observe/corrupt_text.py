"""Corrupt records as text, without loss: the original bytes can be restored from the text.

UTF-8 bytes are decoded. Other bytes are written in the notation of Python, ``b'...'``. Text that already begins like
that is written in this notation too, so that a text never means two different contents.

Source: docs/evolution-rules.md#d11
"""

from __future__ import annotations

import ast

_LITERAL_PREFIXES = ("b'", 'b"')


def corrupt_bytes_to_text(data: bytes) -> str:
    r"""Return the text to store for the bytes of a corrupt record.

    Example:
        >>> corrupt_bytes_to_text(b"no"), corrupt_bytes_to_text(b"no\xff")
        ('no', "b'no\\xff'")
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(data) if text.startswith(_LITERAL_PREFIXES) else text


def corrupt_text_to_bytes(text: str) -> bytes:
    r"""Return the original bytes of a text from `corrupt_bytes_to_text`.

    Example:
        >>> corrupt_text_to_bytes("no"), corrupt_text_to_bytes("b'no\\xff'")
        (b'no', b'no\xff')
    """
    if not text.startswith(_LITERAL_PREFIXES):
        return text.encode()
    data = ast.literal_eval(text)
    assert isinstance(data, bytes)
    return data
