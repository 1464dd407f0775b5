"""Canonical paths: every spelling of a path maps to one key, so that a remove matches the add that it cancels.

Delta Spark makes absolute paths canonical. Here, a file of the table also has the same key whether its path is relative
or absolute.

Source: PROTOCOL.md#action-reconciliation, #add-file-and-remove-file (paths are URIs); RFC 8089 for the host of a file
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from widen.log.store.log_store import HOST, LOCAL_HOST

UNUSUAL = r"^/|^[A-Za-z][A-Za-z0-9+.-]+:/|%|//|(?:^|/)\.\.?/"
"""Matches paths that may have other spellings. Most paths do not match and need no work."""

_UNUSUAL = re.compile(UNUSUAL)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_SCHEME_ALIASES: Mapping[str, str] = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


def canonical_path(path: str, location: str = "") -> str:
    """Return the canonical form of the path of an action.

    Args:
        path: Percent-encoded, relative to the table or absolute.
        location: The location of the table, as its store spells it; absolute paths below it become relative.

    Example:
        >>> [canonical_path(path, "/t") for path in ("/t/a%20b", "file:/t/a b", "file:///t/a%20b", "a%20b")]
        ['a b', 'a b', 'a b', 'a b']
    """
    if not _UNUSUAL.search(path):
        return path
    match = _SCHEME.match(path)
    scheme = match[1].lower() if match else ""
    # Keep bytes that are not UTF-8 distinct: two files must never share a key.
    plain = unquote(path[match.end() :] if match else path, errors="surrogateescape")
    if scheme == "file":
        plain = LOCAL_HOST.sub("/", plain)
    if scheme not in ("", "file") or (scheme and HOST.match(plain)):
        host, _, rest = plain.lstrip("/").partition("/")
        whole = f"{_SCHEME_ALIASES.get(scheme, scheme)}://{host}/{posixpath.normpath(rest)}"
    elif plain.startswith("/"):
        whole = posixpath.normpath("/" + plain.lstrip("/"))
    else:
        return posixpath.normpath(plain)
    return whole[len(location) + 1 :] if location and whole.startswith(location.rstrip("/") + "/") else whole


def canonical_paths(paths: pa.Array, location: str = "") -> list[str]:
    """Return `canonical_path` for every row of a string column without nulls."""
    plain: list[str] = paths.to_pylist()
    unusual = pc.indices_nonzero(pc.match_substring_regex(paths, UNUSUAL))
    for row in unusual.to_pylist():
        plain[row] = canonical_path(plain[row], location)
    return plain


def vector_id(kind: str, text: str, offset: int | None, location: str = "") -> str:
    """Return the unique id of a deletion vector; a missing offset means 0, and paths are canonical.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema
    """
    if kind == "i":
        return kind + text
    return f"{kind}{canonical_path(text, location) if kind == 'p' else text}@{offset or 0}"
