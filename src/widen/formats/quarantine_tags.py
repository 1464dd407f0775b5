"""Tags on the files of a quarantine: for which source files their records were kept out.

A process may be killed after the commit to the quarantine and before the commit to the table. Then the table does not
have these source files, so they are new again; the next load of them replaces the records of the interrupted one.

Source: docs/evolution-rules.md#d12; PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from widen.formats.table_format import NewFiles
from widen.log.read.canonical_path import canonical_path
from widen.protocol.actions import Add

TAG = "widen.newFiles"
MAX_FILES = 256
"""A load of more files is tagged with one digest of all of them, so that only the same files replace its records."""


class _Tag(msgspec.Struct, frozen=True):
    table: str
    files: frozenset[str]


def with_tag(adds: Sequence[Add], files: NewFiles | None) -> list[Add]:
    """Return the files of a quarantine, tagged with the new source files of their load, if it is of new files."""
    if files is None:
        return list(adds)
    text = msgspec.json.encode(_tag_of(files), order="sorted").decode()
    return [msgspec.structs.replace(add, tags={**(add.tags or {}), TAG: text}) for add in adds]


def find_interrupted(adds: Sequence[Add], files: NewFiles | None) -> list[Add]:
    """Return the files of a quarantine whose load was of some of these source files, which the table does not have."""
    if files is None:
        return []
    wanted = _tag_of(files)
    each = frozenset(map(_digest, _texts(files)))
    return [add for add in adds if _is_part(add, wanted.table, wanted.files | each)]


def _is_part(add: Add, table: str, files: frozenset[str]) -> bool:
    text = (add.tags or {}).get(TAG)
    try:
        tag = msgspec.json.decode(text or "", type=_Tag)
    except msgspec.DecodeError:  # no tag, or one of somebody else
        return False
    return tag.table == table and bool(tag.files) and tag.files <= files


def _tag_of(files: NewFiles) -> _Tag:
    texts = _texts(files)
    digests = [_digest("\n".join(texts))] if len(texts) > MAX_FILES else map(_digest, texts)
    return _Tag(canonical_path(files.table), frozenset(digests))


def _texts(files: NewFiles) -> list[str]:
    return sorted(f"{file.key}|{file.size_bytes}|{file.modified_ms}" for file in files.files)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
