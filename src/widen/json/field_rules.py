"""Rules for the fields of a source: exclude or mask a field, or read it as text, as a map or as dates.

The rules are applied to each record before anything else reads it. So an excluded or masked value never reaches a
column, the rescued data or a sample.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote, unquote_to_bytes

from widen.json.document import JsonDocument, JsonNumber, JsonText, MapEntries, document_to_json, parse_nested
from widen.json.kinds import parse_temporal, read_epoch, read_integral
from widen.json.time_spellings import ISO, TimeSpelling
from widen.model.column_path import Path
from widen.model.display import name_file
from widen.model.types import similarity_key
from widen.model.value_classes import dataclass
from widen.protocol.partition_values import HIVE_NULL

MASK = "***"
"""Replaces every masked value."""

JSON_BEGIN = r"^\s*[\[{\"]"
"""Texts that may be JSON with fields of their own."""

_MAY_BE_JSON = re.compile(JSON_BEGIN).search


class FieldRule(Enum):
    """What happens to the values of a field."""

    AS_IS = "as it is"
    AS_TEXT = "as text"
    """Arrays and records become JSON text; scalars do not change."""
    AS_JSON = "as json"
    """Every value becomes JSON text."""
    MASKED = "masked"
    """Every value becomes `MASK`."""
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The rules for a field and its nested fields. The rules for a record are the rules of its root.

    Args:
        maps: How many nested levels of objects are read as maps; arrays between them do not count as levels.
        is_dated: Whether strings that are dates or timestamps are read as such, at any depth.
        has_local_times: The same for strings that are dates or timestamps without a time zone.
        epoch_nanos: The unit of the integers that are read as timestamps; 0 if they are not. Items of arrays and
            entries of maps never are.
        spelling: Which spellings of times are read, at any depth.
        takes_integral: Whether numbers such as 1.0 are read as integers, at any depth.
        below: The rules for nested fields by name. Map keys and array positions are not part of the path. A nested
            field without an entry inherits only ``is_dated``, ``has_local_times``, ``spelling`` and
            ``takes_integral``.
        hidden: The rules for nested fields that are masked or excluded, or have such a field below, by folded name: a
            field that hides values does so however its name is capitalized. They apply to fields without an entry in
            ``below``, and to keys of maps.
        source: The field that the policy masks or excludes, as the policy spells it.
        included: The folded names of the nested fields that are read; None for all.
    """

    take: FieldRule = FieldRule.AS_IS
    maps: int = 0
    is_dated: bool = False
    has_local_times: bool = False
    epoch_nanos: int = 0
    spelling: TimeSpelling = ISO
    takes_integral: bool = False
    below: Mapping[str, FieldRules] = field(default_factory=dict)
    hidden: Mapping[str, FieldRules] = field(default_factory=dict)
    source: Path = ()
    included: frozenset[str] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether no value changes."""
        is_open = self.take is FieldRule.AS_IS and self.included is None
        reads = self.reads_times or self.epoch_nanos or self.takes_integral
        return is_open and not (self.maps or reads or self.below or self.hidden)

    @property
    def is_hidden(self) -> bool:
        """Whether the field is masked or excluded."""
        return self.take is FieldRule.MASKED or self.take is FieldRule.LEFT_OUT

    def hidden_at(self, key: str) -> FieldRules | None:
        """Return the rules for a key of a map if it is masked or excluded, or may have such fields below."""
        return self.hidden.get(similarity_key(key)) if self.hidden else None

    @property
    def reads_times(self) -> bool:
        """Whether some strings are read as dates or timestamps."""
        return self.is_dated or self.has_local_times

    def at(self, key: str) -> FieldRules:
        """Return the rules for a nested field."""
        if self.included is not None and similarity_key(key) not in self.included:
            return NOT_INCLUDED
        rules = self.below.get(key)
        if rules is None and self.hidden:
            rules = self.hidden.get(similarity_key(key))
        if rules is not None:
            return rules
        return _inherited(self.is_dated, self.has_local_times, self.spelling, self.takes_integral)

    def record(self, record: dict[str, JsonDocument]) -> dict[str, JsonDocument]:
        """Return a record with the rules applied."""
        if self.is_plain:
            return record
        fields = ((key, value, self.at(key)) for key, value in record.items())
        return {key: rules.value(value) for key, value, rules in fields if rules.take is not FieldRule.LEFT_OUT}

    def value(self, value: JsonDocument) -> JsonDocument:
        """Return a value of the field with the rules applied; `record` has already dropped excluded fields."""
        if value is None or self.is_plain:
            return value
        if self.take is FieldRule.MASKED:
            return MASK
        if self.epoch_nanos and type(value) is JsonNumber:
            return read_epoch(value, self.epoch_nanos)
        nested = self._apply_nested(value, self.maps)
        is_text = self.take is FieldRule.AS_JSON or (
            self.take is FieldRule.AS_TEXT and isinstance(nested, (dict, list))
        )
        return document_to_json(nested) if is_text else nested

    def _apply_nested(self, value: JsonDocument, maps: int, *, is_entry: bool = False) -> JsonDocument:
        if isinstance(value, dict):
            return self._to_map(value, maps - 1) if maps else self.record(value)
        if isinstance(value, list):
            return [self._apply_nested(item, maps, is_entry=is_entry) for item in value]
        if isinstance(value, JsonText) and (self.below or self.hidden):
            return JsonText(document_to_json(self._apply_nested(parse_nested(value), maps, is_entry=is_entry)))
        # A text where the policy expects a record may spell out that record, in any syntax. An entry of a map is hidden
        # by its key; another entry only if its text may be JSON.
        if self.hidden and type(value) is str and (not is_entry or _MAY_BE_JSON(value)):
            return MASK
        if self.takes_integral and type(value) is JsonNumber:
            return read_integral(value)
        return self.parse_temporal(value) if self.reads_times and type(value) is str else value

    def parse_temporal(self, text: str) -> str:
        """Return a string as the date or the timestamp that it is, otherwise unchanged."""
        return parse_temporal(
            text, has_instants=self.is_dated, has_local_times=self.has_local_times, spelling=self.spelling
        )

    def _to_map(self, entries: dict[str, Any], maps: int) -> MapEntries:
        """Return an object as a map. Rules that exclude or mask a name also apply to its keys."""
        items = ((key, value, self.hidden_at(key)) for key, value in entries.items())
        return MapEntries(
            (key, self._to_entry(value, rules, maps))
            for key, value, rules in items
            if rules is None or rules.take is not FieldRule.LEFT_OUT
        )

    def _to_entry(self, value: JsonDocument, rules: FieldRules | None, maps: int) -> JsonDocument:
        if rules is None or value is None:
            return self._apply_nested(value, maps, is_entry=True)
        if rules.is_hidden:
            return MASK
        # The policy names the key as if the map were a record.
        return self._apply_nested(rules._apply_nested(value, 0), maps, is_entry=True)

    def find_hidden(self, document: JsonDocument) -> Iterator[Path]:
        """Yield the masked and excluded fields that a record has, before the rules are applied to it."""
        yield from self._find_hidden(document, 0)

    def _find_hidden(self, value: JsonDocument, maps: int) -> Iterator[Path]:
        if isinstance(value, JsonText):
            value = parse_nested(value)
        if isinstance(value, list):
            for item in value:
                yield from self._find_hidden(item, maps)
        for key, item in value.items() if isinstance(value, dict) else ():
            rules = self.hidden_at(key) if maps else self.at(key)
            if rules is not None and rules.is_hidden:
                if rules.source:
                    yield rules.source
                continue
            if rules is not None:
                yield from rules._find_hidden(item, 0 if maps else rules.maps)
            if maps:
                yield from self._find_hidden(item, maps - 1)


PLAIN = FieldRules()
NOT_INCLUDED = FieldRules(FieldRule.LEFT_OUT)


@lru_cache(maxsize=64)
def _inherited(is_dated: bool, has_local_times: bool, spelling: TimeSpelling, takes_integral: bool) -> FieldRules:
    return FieldRules(
        is_dated=is_dated, has_local_times=has_local_times, spelling=spelling, takes_integral=takes_integral
    )


# Fields that records get from their file: its ``key=value`` folders, its path and the time of the load.
#
# The key of such a field is its name and ``=``, so ``region=`` never collides with a field ``region`` of the
# record. If the record has a field of that very key, it keeps it, and the key of the file field gets another ``=``.
#
# Source: docs/evolution-rules.md#d9, #d21


_Value = TypeVar("_Value")

SIGN = "="
"""The end of the key of a file field."""

SOURCE_FILE, LOADED_AT = "_source_file", "_loaded_at"
"""The names of the fields with the URI of the file and the time of the load."""

VALID_FROM, VALID_TO, IS_CURRENT = VERSION_FIELDS = ("_valid_from", "_valid_to", "_is_current")
"""The names of the fields that say when a version of a row is valid, for a table with history."""

_PART = re.compile(r" from byte \d+$")

LOCAL_URI, PLAIN_LOCAL_URI = "^file:/+", "file:/"
"""The beginning of the URI of a local file, and how it is stored. Some readers write one slash, and others three."""


@dataclass(frozen=True, slots=True)
class FileFields:
    """The fields that records get from their file.

    Args:
        loaded_at: The time of the load, in UTC as ISO 8601; None if neither it nor the path becomes a field.
    """

    has_folders: bool = True
    loaded_at: str | None = None

    def of(self, file: str) -> Mapping[str, str | None]:
        """Return the fields of the records of a file, by their keys.

        Args:
            file: The URI of the file, with ``from byte N`` at the end for a part of it.
        """
        folders = _fields_of(file.rpartition("/")[0]) if self.has_folders else {}
        if self.loaded_at is None:
            return folders
        uri = re.sub(LOCAL_URI, PLAIN_LOCAL_URI, name_file(_PART.sub("", file))) or None
        source_fields: dict[str, str | None] = {SOURCE_FILE + SIGN: uri, LOADED_AT + SIGN: self.loaded_at}
        return merge_file_fields(folders, source_fields)

    def origin_of(self, file: str) -> Mapping[str, str | None]:
        """Return the URI of a file and the time of the load, which also texts get that are not records."""
        fields = self.of(file)
        return {} if self.loaded_at is None else dict(list(fields.items())[-2:])

    def names(self, files: Collection[str]) -> frozenset[str]:
        """Return the names of the fields of files, without `SIGN`."""
        keys = {key for folder in {file.rpartition("/")[0] for file in files} for key in self.of(f"{folder}/")}
        return frozenset(key.rstrip(SIGN) for key in keys)


def merge_file_fields(record: Mapping[str, _Value], fields: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a record with the fields of its file; a file field whose key the record has gets another key."""
    merged = dict(record)
    for key, value in fields.items():
        while key in merged:
            key += SIGN
        merged[key] = value
    return merged


def partition_folders(path: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each ``key=value`` folder in a path, from the root."""
    for folder in path.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if equals and key:
            yield key, value


def unescape_folder(text: str) -> str:
    """Return a key or value of a folder name without the escapes that Hive writes; other percent signs stay.

    Source: Hive: ``FileUtils.unescapePathName``; Spark: ``ExternalCatalogUtils.unescapePathName``.

    Example:
        >>> unescape_folder("10%3A30"), unescape_folder("100%"), unescape_folder("a+b")
        ('10:30', '100%', 'a+b')
    """
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return text


@lru_cache(maxsize=1024)
def _fields_of(folder: str) -> Mapping[str, str | None]:
    fields: dict[str, str | None] = {}
    for key, value in partition_folders(f"{unquote(folder)}/"):
        text = None if value in ("", HIVE_NULL) else unescape_folder(value)
        fields = merge_file_fields(fields, {unescape_folder(key) + SIGN: text})
    return fields
