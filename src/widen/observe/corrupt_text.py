"""Bytes that are no record, as a text that gives them back.

Bytes that are UTF-8 are their own text. Others are kept as Python writes them, ``b'...'``, and so are texts that begin
like that, so that no text stands for two different contents.

Source: docs/evolution-rules.md#d11
"""

from __future__ import annotations

import ast

_BEGINS = ("b'", 'b"')


def to_kept_text(data: bytes) -> str:
    r"""Return the text for what is no record.

    Example:
        >>> to_kept_text(b"no"), to_kept_text(b"no\xff")
        ('no', "b'no\\xff'")
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(data) if text.startswith(_BEGINS) else text


def from_kept_text(text: str) -> bytes:
    r"""Return the bytes that `to_kept_text` was given.

    Example:
        >>> from_kept_text("no"), from_kept_text("b'no\\xff'")
        (b'no', b'no\xff')
    """
    if not text.startswith(_BEGINS):
        return text.encode()
    data = ast.literal_eval(text)
    assert isinstance(data, bytes)
    return data
