"""Deleted keys that a table no longer remembers, because they are personal; see `widen.changes.deleted_keys`.

A list may be large, so its files are read one after another, in this process. The commit names a new list, so every
ingestion by key that began before it is planned again. Therefore all older files can be deleted after the commit.

Source: docs/guide/personal-data.md#remembered-keys
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.deleted_keys import KeyLists
from widen.changes.key_columns import KeyColumns, join_texts
from widen.errors import InvalidOption, StorageError
from widen.evolution.key_rules import KEY_TEXT, KeyRules, find_places, is_key_type
from widen.files.arrow_types import one_array, to_arrow
from widen.log.commit_outcome import StagedFiles, discard_folder
from widen.log.log_store import LogStore
from widen.model.column_path import Path, fold_path, format_path, parse_path
from widen.model.types import BINARY, DataType, Field, StructType
from widen.protocol.partition_values import UnknownValue, parse_partition_value

OPERATION = "FORGET KEYS"


def key_texts(schema: StructType, recorded: str | None, keys: Sequence[Mapping[str, object]]) -> frozenset[str]:
    """Return the texts that keys may have in a list, whatever column of a field held their values.

    Args:
        recorded: The rules of the ingestion by key, as the table records them.

    Raises:
        InvalidOption: the table has no keys, or a key does not name its fields, or a value has another type.
    """
    if recorded is None:
        fields = ", ".join(sorted({name for key in keys for name in key}))
        raise InvalidOption(
            option="keys", value=fields, expected="The table is not loaded by key, so it remembers no deleted keys."
        )
    if not keys:
        raise InvalidOption(option="keys", value=[], expected="Must be at least one key.")
    rules = KeyRules.from_property(recorded).spelled_as(schema)
    return frozenset(text for key in keys for text in _texts_of_key(schema, rules, key))


def _texts_of_key(schema: StructType, rules: KeyRules, key: Mapping[str, object]) -> list[str]:
    given = {fold_path(parse_path(name)): value for name, value in key.items()}
    if given.keys() != {fold_path(path) for path in rules.key}:
        named = ", ".join(map(format_path, rules.key))
        raise InvalidOption(option="keys", value=list(key), expected=f"Must name each field of the key: {named}.")
    texts = [_texts_of_value(schema, path, given[fold_path(path)]) for path in rules.key]
    return [join_texts([pa.array([text]) for text in each])[0].as_py() for each in product(*texts)]


def _texts_of_value(schema: StructType, path: Path, value: object) -> list[str]:
    types = [data_type for data_type, _ in find_places(schema, path) if is_key_type(data_type)]
    text = value.hex() if isinstance(value, bytes) else str(value)
    found = [each for data_type in types if (each := _text_in(data_type, text)) is not None]
    if not found:
        # The value is personal, so the error does not show it.
        expected = f"Must be a value of the type {' or '.join(each.sql for each in types)}."
        raise InvalidOption(option="keys", value=format_path(path), expected=expected)
    return list(dict.fromkeys(found))


def _text_in(data_type: DataType, text: str) -> str | None:
    if data_type == BINARY:
        return f"x:{text.upper()}"
    value = parse_partition_value(text, data_type)
    if value is None or isinstance(value, UnknownValue):
        return None
    rows = pa.table({"k": pa.array([value], to_arrow(data_type))})
    columns = KeyColumns.of(StructType((Field("k", data_type),)), ("k",))
    assert columns is not None
    found: str = columns.texts(one_array(columns.read(rows)))[0].as_py()
    return found


@dataclass(frozen=True, slots=True)
class ForgottenKeys:
    """What one call forgets.

    Args:
        keys: How many keys of the list.
        old: The files that no list needs after the commit.
        head: The number of the new list; None if there is nothing to commit.
    """

    keys: int
    old: tuple[str, ...]
    head: int | None

    @property
    def metrics(self) -> dict[str, int]:
        """The numbers for the history."""
        return {"numForgottenKeys": self.keys, "numDeletedFiles": len(self.old)}


def write_without(lists: KeyLists, texts: frozenset[str], number: int, staged: StagedFiles | None) -> ForgottenKeys:
    """Write a list without some keys. It becomes that of the table by a commit; then call `delete_old`.

    Args:
        number: That of the version that the commit makes.
        staged: Deletes what is written if the commit is not made; None only counts.

    Raises:
        CorruptLog: a list is missing or damaged.
    """
    # Listed before the commit: whoever has written one of these files must be planned again after it.
    store, listed = lists.store, [entry.path for entry in lists.store.list(lists.folder)]
    wanted, gone, kept = pa.array(sorted(texts), pa.string()), set[str](), list[tuple[str, int]]()
    folder = f"{lists.folder}/{uuid.uuid4().hex}"
    if staged is not None:
        staged.add_undo(partial(discard_folder, store, folder))
    for path, size, rows in lists.read_files():
        is_wanted = pc.is_in(rows[KEY_TEXT], value_set=wanted)
        found = rows.filter(is_wanted)
        gone.update(found[KEY_TEXT].to_pylist())
        if not len(found):
            kept.append((path, size))
        elif staged is not None and len(found) < len(rows):
            kept.append(lists.write_file(folder, rows.filter(pc.invert(is_wanted))))
    names = {store.plain(path) for path, _ in kept}
    old = tuple(path for path in listed if path not in names)
    # A file of an older list may hold a key that the newest one does not have any more.
    if not gone and not any(path.endswith(".parquet") for path in old):
        return ForgottenKeys(0, (), None)
    return ForgottenKeys(len(gone), old, None if staged is None else lists.put(kept, number, staged))


def delete_old(store: LogStore, forgotten: ForgottenKeys) -> None:
    """Delete the older lists after the commit.

    Raises:
        StorageError: the storage returned an error. The same call deletes the rest.
    """
    try:
        store.delete(forgotten.old)
    except StorageError as error:
        error.add_note("The keys are forgotten, but older lists with them could not be deleted. Repeat the call.")
        raise


def to_keys(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the keys that a user has written: each ``FIELD=VALUE``, or an object of JSON with several fields.

    Raises:
        InvalidOption: a text is neither.
    """
    return [_to_key(text) for text in texts]


def _to_key(text: str) -> dict[str, Any]:
    name, equals, value = text.partition("=")
    with suppress(msgspec.DecodeError):
        if text.startswith("{"):
            return msgspec.json.decode(text, type=dict[str, Any])
        if name and equals:
            return {name: value}
    expected = "Must be FIELD=VALUE, or a JSON object if the key has several fields."
    raise InvalidOption(option="key", value=name, expected=expected)
