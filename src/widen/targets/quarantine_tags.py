"""Tags in a quarantine: the source files whose records were quarantined.

In Delta a tag is on each data file, in Iceberg in the summary of the snapshot that added it.

A process may be killed after the commit to the quarantine and before the commit to the table, or a full disk may keep
it from both the commit to the table and undoing the one to the quarantine. Then the table has loaded these source files
no more often than before, which is a part of the tag; the next load of them replaces the records of the interrupted
one.

Source: docs/evolution-rules.md#d12; PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from widen.log.file_list import canonical_path
from widen.targets.table_format import NewFiles

TAG = "widen.newFiles"
DIGEST = 16
"""The number of characters of a digest."""

MAX_FILES = 256
"""A load of more files is tagged with one digest of all of them, so that only the same files replace its records."""


_Item = TypeVar("_Item")


class _Tag(msgspec.Struct, frozen=True):
    table: str
    files: frozenset[str]


def encode_tag(files: NewFiles) -> str:
    """Return the tag of the quarantined records of a load of new source files."""
    return _encode(_tag_of(files))


def find_interrupted(
    items: Iterable[_Item], tag_of: Callable[[_Item], str | None], files: NewFiles | None
) -> list[_Item]:
    """Return the files of a quarantine whose load was of some of these source files, and was not committed."""
    if files is None:
        return []
    table, digests = _tag_of(files).table, file_digests(files)
    return [item for item in items if _is_part(tag_of(item), table, digests)]


def file_digests(files: NewFiles) -> frozenset[str]:
    """Return everything that the tag of a load of some of these source files can have."""
    return _tag_of(files).files | frozenset(map(_digest, _texts(files)))


def any_digest(tag: str) -> str:
    """Return one of the digests in a tag; each load of its source files has it among its `file_digests`."""
    return min(msgspec.json.decode(tag, type=_Tag).files, default="")


def _is_part(text: str | None, table: str, files: frozenset[str]) -> bool:
    try:
        tag = msgspec.json.decode(text or "", type=_Tag)
    except msgspec.DecodeError:  # no tag, or one of another program
        return False
    return tag.table == table and bool(tag.files) and tag.files <= files


def merge_tags(texts: Iterable[str | None]) -> str | None:
    """Return one tag with the source files of several tags; None if no file has a tag."""
    tags = [msgspec.json.decode(text, type=_Tag) for text in texts if text]
    if not tags:
        return None
    return _encode(_Tag(tags[0].table, frozenset().union(*(tag.files for tag in tags))))


def _encode(tag: _Tag) -> str:
    return msgspec.json.encode(tag, order="sorted").decode()


def _tag_of(files: NewFiles) -> _Tag:
    texts = _texts(files)
    digests = [_digest("\n".join(texts))] if len(texts) > MAX_FILES else map(_digest, texts)
    return _Tag(canonical_path(files.table), frozenset(digests))


def _texts(files: NewFiles) -> list[str]:
    loads = files.loads or (0,) * len(files.files)
    return sorted(
        f"{file.key}|{file.size_bytes}|{file.modified_ms}{f'|{count}' if count else ''}"
        for file, count in zip(files.files, loads, strict=True)
    )


def _digest(text: str) -> str:
    # Names of files need not be UTF-8; Python then has surrogates in them.
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=DIGEST // 2).hexdigest()
