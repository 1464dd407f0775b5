"""The stages between the texts of a source and its records: what is below a path, and in plain JSON.

After them, a record is a text like any other.

Source: docs/guide/nested-records.md, docs/guide/typed-json.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from widen.evolution.policy import Policy
from widen.json.connect import ConnectReader, DeclaredTypes, widest_decimal
from widen.json.dialect import DIALECTS, Dialect, DialectReader
from widen.json.document import not_a_document, not_a_record
from widen.json.envelope import to_record_path
from widen.json.field_rules import SIGN, VERSION_FIELDS
from widen.json.kinds import DECIMAL_WORD, LONG_WORD, MAX_DIGITS, NUMBER_WORDS, RECORD_WORD, Kind, leaf_and_dim
from widen.json.messages import FunctionReader, RegistryReader
from widen.json.observation import (
    FieldObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    get_field,
)
from widen.json.record_path import RecordFinder
from widen.log.message_decoders import UnknownSchema, ensure_registry, fetch_schema, find_function
from widen.model.column_path import Path
from widen.model.types import LONG, DataType, DecimalType, StructType
from widen.schema.source_metadata import role_of, source_key
from widen.sources.file_ranges import TextGroup, TextStage, record_too_long


class PlacedRecords(NamedTuple):
    """Texts with their positions."""

    texts: list[bytes]
    positions: list[RecordPosition]


class RefusedRecords(NamedTuple):
    """Texts with their positions, and why they are not records."""

    texts: list[bytes]
    positions: list[RecordPosition]
    reasons: list[str]


class RecordStages:
    """Applies the stages that a policy has."""

    def __init__(self, policy: Policy, limit: int) -> None:
        self._finder = None if policy.record_path is None else RecordFinder(policy.record_path)
        self._dialect = None if policy.dialect is None else _open_reader(policy.dialect)
        self._connect = self._dialect if isinstance(self._dialect, ConnectReader) else None
        self._limit, self._envelope = limit, policy.envelope

    @property
    def declared(self) -> DeclaredTypes:
        """The types that the schema parts so far give to the fields of records."""
        if self._connect is None or self._envelope is None:
            return {} if self._connect is None else self._connect.declared
        paths = ((to_record_path(path, self._envelope), each) for path, each in self._connect.declared.items())
        return {path: each for path, each in paths if path}

    @property
    def schema_parts(self) -> int:
        """How many schema parts the documents so far had; a new one may declare other types."""
        return 0 if self._connect is None else self._connect.schema_parts

    def apply(
        self, group: TextGroup, texts: list[bytes], positions: list[RecordPosition]
    ) -> tuple[PlacedRecords, RefusedRecords]:
        records, refused = PlacedRecords(texts, positions), RefusedRecords([], [], [])
        if group.stage in (TextStage.RECORD, TextStage.PLAIN):
            return records, refused
        if self._finder is not None and group.stage is TextStage.SOURCE:
            records, refused = self._find(self._finder, records, is_whole=group.is_whole)
        if self._dialect is not None:
            pairs = zip(*records, strict=True)
            plain = [(each, at) for text, at in pairs for each in self._dialect.read(text)]
            records = PlacedRecords([text for text, _ in plain], [at for _, at in plain])
        return records, refused

    def _find(
        self, finder: RecordFinder, documents: PlacedRecords, *, is_whole: bool
    ) -> tuple[PlacedRecords, RefusedRecords]:
        """Return the records below a path; the records of a whole file are numbered through the file."""
        records, refused, number = PlacedRecords([], []), RefusedRecords([], [], []), 0
        pairs = ((found, place) for text, place in zip(*documents, strict=True) for found in finder.find(text))
        for found, (file, line) in pairs:
            for each in found.texts:
                number += 1
                at = (file, number if is_whole else line)
                if len(each) > self._limit and not found.reason:
                    raise record_too_long(file, None, self._limit, line=at[1])
                found_in = refused if found.reason else records
                found_in.texts.append(each)
                found_in.positions.append(at)
                if found.reason:
                    refused.reasons.append(found.reason)
        return records, refused


def find_message_dialect(option: str, text: str) -> Dialect | None:
    """Return the dialect of messages that are not JSON; None if a text does not say how to decode them.

    Args:
        text: ``registry:`` and a URL or a folder, or ``module:function``.
    """
    if text.startswith(_REGISTRY):
        registry = text.removeprefix(_REGISTRY)
        ensure_registry(option, registry)
        return replace(DIALECTS["connect"], name="registry", registry=registry)
    if _FUNCTION(text):
        find_function(option, text)
        return Dialect(text, (), function=text)
    return None


_REGISTRY = "registry:"
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*").fullmatch


def _open_reader(dialect: Dialect) -> DialectReader | ConnectReader | FunctionReader:
    if dialect.function:
        return FunctionReader(find_function("dialect", dialect.function))
    if dialect.registry:
        return RegistryReader(dialect, partial(_fetch_definitions, dialect.registry))
    return ConnectReader(dialect) if dialect.has_schemas else DialectReader(dialect)


def _fetch_definitions(registry: str, number: int) -> Sequence[Any] | None:
    try:
        return fetch_schema(registry, number).definitions
    except UnknownSchema:
        return None


def stage_of_reason(reason: str) -> TextStage:
    """Return what a text in a quarantine is: a record that broke a rule, or a text that a stage has refused."""
    if _REFUSED_NAN(reason):  # a dialect reads NaN, so nothing is wrapped any more
        return TextStage.PLAIN
    return next((stage for begin, stage in _REFUSALS if reason.startswith(begin)), TextStage.RECORD)


_REFUSED_NAN = re.compile(r"not (?:a JSON record|JSON): (?:NaN|-?Infinity) is not JSON").match
_REFUSALS = (
    (not_a_document(""), TextStage.SOURCE),
    (not_a_record("JSON", ""), TextStage.FOUND),
    ("not JSON: ", TextStage.FOUND),
    ("not an envelope: ", TextStage.PLAIN),
    ("not a change: ", TextStage.PLAIN),
)


def find_row_fields(schema: StructType) -> list[str]:
    """Return the fields of records that a table has columns for, without fields from files and from keys."""
    keys = (source_key(field) for field in schema if role_of(field) is None)
    return list(dict.fromkeys(key for key in keys if not key.endswith(SIGN) and key not in VERSION_FIELDS))


# The types that schema parts declare, in the observation of a batch: JSON spells a decimal(12,2) and a bigint like any
# other number, so the values alone would choose narrower columns.


def note_declared(observed: Observation, schema: StructType, declared: DeclaredTypes) -> None:
    """Add the declared types of numbers to an observation, in place.

    A type that is wider than the column of its field counts even if the column holds all values of the batch.
    """
    for path, data_type in declared.items():
        if data_type == LONG or isinstance(data_type, DecimalType):
            for field in _fields_at(observed.root, path):
                _note_kinds(field, data_type)
            column = _find_column(schema, path)
            if column is not None and _is_wider(data_type, column[0]):
                word = DECIMAL_WORD if isinstance(data_type, DecimalType) else LONG_WORD
                field = _ensure_field(observed.root, path)
                field.kind(Kind(word, column[1])).fits_int32 = False
                _note_kinds(field, data_type)


def _note_kinds(field: FieldObservation, data_type: DataType) -> None:
    for kind, seen in field.kinds.items():
        if not isinstance(data_type, DecimalType):
            seen.fits_int32 &= kind.word != LONG_WORD
        elif kind.word in NUMBER_WORDS and seen.decimal_exact:
            whole = max(seen.integer_digits, data_type.precision - data_type.scale)
            scale = max(seen.scale, seen.written_scale, data_type.scale)
            if 0 < whole + scale <= MAX_DIGITS:
                seen.integer_digits, seen.scale = whole, scale
                seen.type = DecimalType(whole + scale, scale).sql


def _fields_at(root: RecordObservation, path: Path) -> Iterator[FieldObservation]:
    """Yield the observations of a field, one for each number of arrays around the records that have it."""
    records = [root]
    for key in path[:-1]:
        records = [inner for each in records if key in each for inner in each[key].records.values()]
    yield from (each[path[-1]] for each in records if path[-1] in each)


def _ensure_field(root: RecordObservation, path: Path) -> FieldObservation:
    """Return the observation of a field of nested records, with those above it."""
    record = root
    for key in path[:-1]:
        above = get_field(record, key)
        above.kind(Kind(RECORD_WORD))
        record = above.record(0)
    return get_field(record, path[-1])


def _find_column(schema: StructType, path: Path) -> tuple[DataType, int] | None:
    """Return the type inside the arrays of the first column of a field, and their number; None without a column."""
    found, struct = None, schema
    for key in path:
        column = next((each for each in struct if source_key(each) == key), None)
        if column is None or (found is not None and found[1]):
            return None
        found = leaf_and_dim(column.type)
        struct = found[0] if isinstance(found[0], StructType) else StructType()
    return found


_SHORTER = ("byte", "short", "integer")


def _is_wider(declared: DataType, column: DataType) -> bool:
    if isinstance(declared, DecimalType) and isinstance(column, DecimalType):
        return widest_decimal(declared, column) not in (None, column)
    return declared == LONG and str(column) in _SHORTER
