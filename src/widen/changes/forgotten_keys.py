"""Deleted keys that a table no longer remembers, because they are personal; see `widen.changes.deleted_keys`.

A list may be large, so its files are read one after another, in this process. The commit names a new list, so every
ingestion by key that began before it is planned again. Therefore all older files can be deleted after the commit.

Source: docs/guide/personal-data.md#remembered-keys
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.changes.deleted_keys import DELETED_MS, KeyLists
from widen.changes.key_columns import KeyColumns, join_texts
from widen.errors import InvalidOption, StorageError
from widen.evolution.key_rules import KEY_TEXT, KeyRules, find_places, is_key_type
from widen.files.arrow_types import one_array, to_arrow, to_arrow_schema
from widen.files.data_reader import FileScan
from widen.files.data_writer import cast_batch
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import StagedFiles, discard_folder
from widen.log.log_store import LogStore
from widen.model.column_path import Path, fold_path, format_path, parse_path
from widen.model.types import BINARY, DataType, Field, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.protocol.table_properties import parse_age_ms
from widen.spark.engine import Unsupported
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import DataFrame, F

OPERATION = "FORGET KEYS"


@dataclass(frozen=True, slots=True)
class ForgetRule:
    """Which deleted keys a table forgets.

    Args:
        before_ms: Keys that were deleted before this time are also forgotten.
        ensure_unused: Checks that the table does not need the deletions of some keys.
    """

    texts: frozenset[str] = frozenset()
    before_ms: int | None = None
    ensure_unused: Callable[[set[str]], None] = lambda _: None

    @staticmethod
    def of(
        rows: KeyedRows, recorded: str | None, keys: Sequence[Mapping[str, object]], older_than: str | None
    ) -> ForgetRule:
        """Return what a call asks for.

        Args:
            recorded: The rules of the ingestion by key, as the table records them.

        Raises:
            InvalidOption: the table has no keys, a key does not name its fields, a value has another type, the age is
                invalid, or the table needs its deletions.
        """
        if recorded is None:
            expected = "The table is not loaded by key, so it remembers no deleted keys."
            if older_than is not None:
                raise InvalidOption(option="older_than", value=older_than, expected=expected)
            names = ", ".join(sorted({name for key in keys for name in key}))
            raise InvalidOption(option="keys", value=names, expected=expected)
        schema = rows.schema
        rules = KeyRules.from_property(recorded).spelled_as(schema)
        if older_than is not None:
            return ForgetRule(before_ms=current_ms() - _to_age_ms(older_than, rules, has_keys=bool(keys)))
        if not keys:
            raise InvalidOption(option="keys", value=[], expected="Must be at least one key, or use older_than.")
        texts = frozenset(text for key in keys for text in _texts_of_key(schema, rules, key))
        return ForgetRule(texts, ensure_unused=partial(rows.ensure_no_versions, rules))

    def find(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return which rows of a list are forgotten."""
        if self.before_ms is not None:
            return pc.less(rows[DELETED_MS], self.before_ms)
        return pc.is_in(rows[KEY_TEXT], value_set=pa.array(sorted(self.texts), pa.string()))

    def without_newer(self, gone: set[str], lists: KeyLists) -> int:
        """Return how many keys are forgotten: not those that were deleted again later."""
        if self.before_ms is None or not gone:
            return len(gone)
        wanted = pa.array(sorted(gone), pa.string())
        for _, _, rows in lists.read_dated_files():
            newer = rows.filter(pc.invert(self.find(rows)))[KEY_TEXT]
            gone.difference_update(newer.filter(pc.is_in(newer, value_set=wanted)).to_pylist())
        return len(gone)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """The rows of a table that is loaded by key.

    Args:
        open_files: Returns how columns are read, and the files of the table. May raise `Unsupported`.
        read: Returns the rows on Spark, which reads what this process cannot.
    """

    schema: StructType
    open_files: Callable[[], tuple[Callable[[StructType], FileScan], Sequence[Add]]]
    read: Callable[[], DataFrame]

    def ensure_no_versions(self, rules: KeyRules, texts: set[str]) -> None:
        """Check that a table with history has no versions of some keys.

        Raises:
            InvalidOption: it has, and a deletion says until when a version before it was valid.
        """
        count = self._count_keys(rules, texts) if rules.history and texts else 0
        if count:
            # The values are personal, so the error only counts them.
            expected = (
                f"The table keeps every version of its rows, and still has versions of {count} of these keys. A "
                "deletion says until when one of them was valid. Delete all rows of the keys first, then forget them."
            )
            raise InvalidOption(option="keys", value=", ".join(map(format_path, rules.key)), expected=expected)

    def _count_keys(self, rules: KeyRules, texts: set[str]) -> int:
        keys = [each for each in (KeyColumns.of(self.schema, path) for path in rules.key) if each is not None]
        if len(keys) < len(rules.key):
            return 0
        names = {place[0] for key in keys for place in key.places}
        columns = StructType(tuple(field for field in self.schema if field.name in names))
        find = partial(_find_texts, keys, pa.array(sorted(texts), pa.string()))
        try:
            open_scan, files = self.open_files()
            scan = open_scan(columns)
            return len(set().union(*(find(rows) for file in files for _, rows in scan.read_located(file))))
        except Unsupported:
            # One struct column, since mapInArrow reads a dot in a column name as a nested field.
            rows = self.read().select(F.struct(*(F.col(quote_name(name)) for name in columns.names)).alias("row"))
            with translate_spark_errors():
                found = rows.mapInArrow(partial(_find_task, find, to_arrow_schema(columns)), f"{KEY_TEXT} string")
                return int(found.distinct().count())


def _find_texts(keys: Sequence[KeyColumns], texts: pa.Array, rows: pa.Table) -> set[str]:
    found = set[str]()
    for batch in rows.to_batches():
        some = pa.Table.from_batches([batch])
        own = join_texts([key.texts(one_array(key.read(some))) for key in keys])
        found.update(own.filter(pc.fill_null(pc.is_in(own, value_set=texts), False)).to_pylist())
    return found


def _find_task(
    find: Callable[[pa.Table], set[str]], schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for batch in batches:
        rows = pa.Table.from_batches([cast_batch(pa.RecordBatch.from_struct_array(batch.column(0)), schema)])
        yield pa.RecordBatch.from_pydict({KEY_TEXT: pa.array(sorted(find(rows)), pa.string())})


def _to_age_ms(text: str, rules: KeyRules, *, has_keys: bool) -> int:
    option = "older_than"
    if has_keys:
        raise InvalidOption(option=option, value=text, expected="Name the keys, or say how old they are: not both.")
    if rules.history:
        expected = (
            "The table keeps every version of its rows, and a deletion says how long the version before it was valid. "
            "Delete all versions of a key, then forget it by its value."
        )
        raise InvalidOption(option=option, value=text, expected=expected)
    age_ms = parse_age_ms(text)
    if age_ms is None:
        raise InvalidOption(option=option, value=text, expected="Must be a time such as 90d, 12h, 2w or '90 days'.")
    return age_ms


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


def write_without(lists: KeyLists, rule: ForgetRule, number: int, staged: StagedFiles | None) -> ForgottenKeys:
    """Write a list without some keys. A commit makes it the table's list; call `delete_old` after that."""
    # List before the commit: a writer that added one of these files must be planned again after it.
    store, listed = lists.store, [entry.path for entry in lists.store.list(lists.folder)]
    gone, kept = set[str](), list[tuple[str, int]]()
    folder = f"{lists.folder}/{uuid.uuid4().hex}"
    if staged is not None:
        staged.add_undo(partial(discard_folder, store, folder))
    for path, size, rows in lists.read_dated_files():
        is_wanted = rule.find(rows)
        found = rows.filter(is_wanted)
        gone.update(found[KEY_TEXT].to_pylist())
        if not len(found):
            kept.append((path, size))
        elif staged is not None and len(found) < len(rows):
            kept.append(lists.write_file(folder, rows.filter(pc.invert(is_wanted))))
    rule.ensure_unused(gone)
    names = {store.plain(path) for path, _ in kept}
    old = tuple(path for path in listed if path not in names)
    # A file of an older list may hold a key that the newest one does not have any more.
    if not gone and not any(path.endswith(".parquet") for path in old):
        return ForgottenKeys(0, (), None)
    keys = rule.without_newer(gone, lists)
    return ForgottenKeys(keys, old, None if staged is None else lists.put(kept, number, staged))


def delete_old(store: LogStore, forgotten: ForgottenKeys) -> None:
    """Delete the older lists after the commit."""
    try:
        store.delete(forgotten.old)
    except StorageError as error:
        error.add_note("The keys are forgotten, but older lists with them could not be deleted. Repeat the call.")
        raise


def to_keys(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the keys that a user has written: each ``FIELD=VALUE``, or a JSON object with several fields."""
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
