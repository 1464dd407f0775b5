"""Canonical paths: one spelling for every spelling of a file, so that a remove meets the add that it takes back.

Source: PROTOCOL.md#action-reconciliation, #add-file-and-remove-file (paths are URIs); Delta Spark, which makes absolute
paths canonical. Here a file of the table has the same key whether its path is relative or absolute.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

ODD = r"^/|^[A-Za-z][A-Za-z0-9+.-]+:/|%|//|(?:^|/)\.\.?/"
"""What a path has that may be spelled in another way, too; most paths have nothing of that."""

_ODD = re.compile(ODD)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_SPELLED: Mapping[str, str] = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def canonical_path(path: str, location: str = "") -> str:
    """Return the one spelling of a path of an action.

    Args:
        path: Percent-encoded, relative to the table or absolute.
        location: Where the table lies, as its store spells that; absolute paths below it become relative.

    Example:
        >>> [canonical_path(path, "/t") for path in ("/t/a%20b", "file:/t/a b", "file:///t/a%20b", "a%20b")]
        ['a b', 'a b', 'a b', 'a b']
    """
    if not _ODD.search(path):
        return path
    found = _SCHEME.match(path)
    scheme = found[1].lower() if found else ""
    # Bytes that are no UTF-8 must stay apart: two files must never get one key.
    plain = unquote(path[found.end() :] if found else path, errors="surrogateescape")
    if scheme not in ("", "file"):
        host, _, rest = plain.lstrip("/").partition("/")
        whole = f"{_SPELLED.get(scheme, scheme)}://{host}/{posixpath.normpath(rest)}"
    elif plain.startswith("/"):
        whole = posixpath.normpath("/" + plain.lstrip("/"))
    else:
        return posixpath.normpath(plain)
    return whole[len(location) + 1 :] if location and whole.startswith(location.rstrip("/") + "/") else whole


def canonical_paths(paths: pa.Array, location: str = "") -> list[str]:
    """Return `canonical_path` for every row of a column of texts without nulls."""
    plain: list[str] = paths.to_pylist()
    odd = pc.indices_nonzero(pc.match_substring_regex(paths, ODD))
    for at in odd.to_pylist():
        plain[at] = canonical_path(plain[at], location)
    return plain


def vector_id(kind: str, text: str, offset: int | None, location: str = "") -> str:
    """Return what tells a deletion vector from every other one: no offset in a file means 0, and paths are canonical.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema
    """
    if kind == "i":
        return kind + text
    return f"{kind}{canonical_path(text, location) if kind == 'p' else text}@{offset or 0}"
