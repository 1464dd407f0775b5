"""How many values each leaf column of a new file has, kept compactly in the commitInfo of our own commits.

Delta Lake keeps statistics of the first 32 leaf columns only, and none inside arrays and maps. A task that writes a
file knows the counts of all leaves from its footer. They travel with the add action as a tag, and the commit moves them
from the tags to its commitInfo, so that neither checkpoints nor readers of the file list carry them. No value of the
data is kept, only counts.

Source: PROTOCOL.md#commit-provenance-information
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any

import msgspec

from widen.errors import NestedVoidColumn, NoStoredColumns
from widen.model.column_path import Path, children, format_path, leaves, map_children
from widen.model.types import VOID, DataType, StructType
from widen.protocol.actions import Action, Add, CommitInfo

LEAF_COUNTS = "widen.leafCounts"
"""The key of the tag of an add action before the commit, and of the counts in commitInfo."""

_TRACKING = ("_row-id-col-", "_row-commit-version-col-")
"""The first letters of the names of materialized row tracking columns, which are not columns of the table."""


def file_tag(values: Mapping[Path, int | None]) -> str:
    """Return the counts of one file as the value of a tag.

    Args:
        values: The number of values of each leaf, in the order of the file, by physical path; None if it is not known.
    """
    counted = {path: count for path, count in values.items() if not path[0].startswith(_TRACKING)}
    counts = " ".join("-" if count is None else str(count) for count in counted.values())
    return f"{_fingerprint(counted)} {counts}"


def move_to_commit_info(actions: Sequence[Action]) -> tuple[list[Action], CommitInfo]:
    """Return the actions without the tags of `file_tag`, and the entry of the commitInfo; empty if no file has counts.

    The counts of all files with the same leaves as the first file are kept.
    """
    tags = [(action.tags or {}).get(LEAF_COUNTS) for action in actions if isinstance(action, Add)]
    if not any(tags):
        return list(actions), {}
    texts = [tag.split(" ") if tag else [] for tag in tags]
    first = next(text for text in texts if text)
    rows = [text[1:] if text and text[0] == first[0] else ["-"] * (len(first) - 1) for text in texts]
    # By leaf and not by file, because the counts of one leaf are alike.
    # 0 stands for a count that is not known.
    numbers = (0 if row[leaf] == "-" else int(row[leaf]) + 1 for leaf in range(len(first) - 1) for row in rows)
    data = base64.b85encode(zlib.compress(b"".join(map(_varint, numbers)), 9)).decode()
    return [_without_tag(action) for action in actions], {LEAF_COUNTS: {"leaves": first[0], "values": data}}


def stored_leaves(schema: StructType, partition_keys: Iterable[str] = ()) -> list[Path]:
    """Return the leaves that the files of a table have, by physical path, in their order."""
    keys = set(partition_keys)
    return [path for path, _ in leaves(without_void(schema)) if path[0] not in keys]


def read_leaf_counts(info: CommitInfo, adds: Iterable[Add], stored: Sequence[Path]) -> dict[str, dict[Path, int]]:
    """Return the number of values of each leaf of the files that a commit added, by file path and physical leaf path.

    Counts that do not belong to the leaves of the table are ignored, because commitInfo is free-form.

    Args:
        adds: The files that the commit added, in the order of the log.

    Source: PROTOCOL.md#commit-provenance-information
    """
    entry = info.get(LEAF_COUNTS)
    if not isinstance(entry, dict):
        return {}
    paths = [add.path for add in adds]
    numbers = list(_decode(entry.get("values")))
    if entry.get("leaves") != _fingerprint(stored) or len(numbers) != len(stored) * len(paths):
        return {}
    counts: dict[str, dict[Path, int]] = {path: {} for path in paths}
    for index, number in enumerate(numbers):
        if number:
            counts[paths[index % len(paths)]][stored[index // len(paths)]] = number - 1
    return counts


def _fingerprint(paths: Iterable[Path]) -> str:
    """Return a short text that differs if the leaves do, or their order."""
    return f"{zlib.crc32(msgspec.json.encode(list(paths))):08x}"


def _without_tag(action: Action) -> Action:
    if not isinstance(action, Add) or LEAF_COUNTS not in (action.tags or {}):
        return action
    tags = {key: value for key, value in (action.tags or {}).items() if key != LEAF_COUNTS}
    return msgspec.structs.replace(action, tags=tags or None)


def _varint(number: int) -> bytes:
    """Return a number in groups of 7 bits, lowest first; each byte but the last has its high bit set."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _decode(text: object) -> Iterator[int]:
    """Yield the numbers of a text; none if it is damaged."""
    try:
        data = zlib.decompress(base64.b85decode(str(text)))
    except (ValueError, binascii.Error, zlib.error):
        return
    number, shift = 0, 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number, shift = 0, 0


# Void columns: they are not stored in files, and a file without any column cannot store rows.
#
# Source: PROTOCOL.md#void-type


def ensure_storable(schema: StructType, partition_by: Collection[str]) -> None:
    """Check that rows of a table can be written; a table that fails the check can still be read and altered.

    Raises:
        NoStoredColumns: the table, or a struct in it, has no column to store.

    Source: PROTOCOL.md#void-type
    """
    if all(field.type == VOID or field.name in partition_by for field in schema):
        raise NoStoredColumns(place="the table", fix="add_columns({'name': 'string'})")
    for field in schema:
        _ensure_type(field.type, (field.name,), is_item=False)


def _ensure_type(data_type: DataType, path: Path, *, is_item: bool) -> None:
    if data_type == VOID and is_item:
        raise NestedVoidColumn(column=format_path(path))
    is_struct = isinstance(data_type, StructType)
    if is_struct and all(child == VOID for _, child in children(data_type)):
        column = format_path(path)
        raise NoStoredColumns(place=f"column {column}", fix=f"add_columns({{'{column}.name': 'string'}})")
    for step, child in children(data_type):
        _ensure_type(child, (*path, step), is_item=is_item or not is_struct)


def without_void(schema: StructType) -> StructType:
    """Return the schema of files: without void fields, at any depth.

    Source: PROTOCOL.md#void-type
    """
    result = _without_void_type(schema)
    assert isinstance(result, StructType)
    return result


def _without_void_type(data_type: DataType) -> DataType:
    if isinstance(data_type, StructType):
        data_type = StructType(tuple(field for field in data_type if field.type != VOID))
    return map_children(data_type, lambda _, child: _without_void_type(child))


# The calendar of dates and timestamps in Parquet files.
#
# Parquet counts days in the proleptic Gregorian calendar. Spark can also write the hybrid calendar of Spark 2,
# which differs before 1582-10-15 for dates and before 1900 for timestamps. Only keys in the footer tell which
# calendar a file uses, and only Spark knows these keys.
#
# Source: the Parquet format; Spark's DataSourceUtils


_VERSION, _LEGACY = "org.apache.spark.version", "org.apache.spark.legacyDateTime"
_LEGACY_INT96 = "org.apache.spark.legacyINT96"

PROLEPTIC: Mapping[str, str] = {_VERSION: "4.0.0"}
"""Footer entries that make Spark read Parquet's calendar, regardless of the settings of the session."""

_FIRST_PROLEPTIC = b"3.0.0"
"""The first version of Spark that writes the calendar of Parquet. Versions are compared as strings, as Spark does."""

_FIRST_PROLEPTIC_INT96 = b"3.1.0"
"""The first version of Spark that writes INT96 timestamps in the calendar of Parquet."""

_FIRST_DAY, _FIRST_TIME = date(1582, 10, 15), datetime(1900, 1, 1, tzinfo=timezone.utc)
"""From here on, both calendars are the same."""


def is_legacy(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether a file uses the hybrid calendar of Spark 2.

    Source: Spark's DataSourceUtils
    """
    entries = metadata or {}
    return _LEGACY.encode() in entries or entries.get(_VERSION.encode(), _FIRST_PROLEPTIC) < _FIRST_PROLEPTIC


def is_legacy_int96(metadata: Mapping[bytes, bytes] | None) -> bool:
    """Return whether the INT96 timestamps of a file are in the hybrid calendar of Spark 2.

    Source: Spark's DataSourceUtils
    """
    entries = metadata or {}
    version = entries.get(_VERSION.encode(), _FIRST_PROLEPTIC_INT96)
    return _LEGACY_INT96.encode() in entries or version < _FIRST_PROLEPTIC_INT96


def is_ambiguous(value: Any) -> bool:
    """Return whether a bound from a file in the hybrid calendar may be another date or timestamp in Parquet's calendar.

    Args:
        value: The bound as pyarrow returns it.
    """
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)) < _FIRST_TIME
    return isinstance(value, date) and value < _FIRST_DAY
