"""The proof of an ingestion by key: every key has exactly the newest of its records, and deleted keys have no row.

It reads the source and two versions of the table, the one before the commit and the one that it made, and works out the
row of each key from them; what the writer has decided is not looked at. Rows of other keys must be the same in both
versions. Records of one key with equal sequences may all be the newest. Without a sequence, a record that only differs
from its row in where and when it was loaded may leave the row as it is.

Source: docs/guide/keys.md; docs/evolution-rules.md#proof
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial, reduce
from itertools import chain, groupby, islice, pairwise, permutations, product
from typing import Any, cast
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidCondition
from widen.evolution.key_rules import KeyRules
from widen.evolution.policy import Policy
from widen.evolution.unify import EXACT_JSON
from widen.frames.scan import read_data_files
from widen.json.envelope import UNCHANGED
from widen.json.field_rules import IS_CURRENT, VALID_FROM, VALID_TO, VERSION_FIELDS
from widen.log.file_list import concat_files, from_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import new_snapshot
from widen.model.column_path import Path, fold_path
from widen.model.schema_json import to_json
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    quote_name,
)
from widen.proof.canonical import (
    NON_FINITE,
    Form,
    canonical_instant,
    canonical_number,
    canonical_time,
    count_form,
    digest,
    encode_form,
    unmarked,
)
from widen.proof.conditions import Condition, Undecided, UnsupportedCondition, build_condition
from widen.proof.deletion_lists import KEY as LISTED_KEY
from widen.proof.deletion_lists import NUMBER, TEXT, Deletion, DeletionListing
from widen.proof.expected_values import NOT_STORED, ExpectedRecord, expected_value, has_marks
from widen.proof.json_reader import NumberToken
from widen.proof.quarantine_reasons import QuarantineReasons
from widen.proof.row_reader import RowReader
from widen.proof.rules import (
    ColumnsByKey,
    DateString,
    SourceColumn,
    source_columns_by_key,
    to_temporal,
    without_defaults,
)
from widen.proof.source_reader import SourceReader
from widen.protocol.actions import Add, Metadata, Protocol
from widen.protocol.table_configuration import TableConfiguration
from widen.schema.source_metadata import source_key
from widen.schema.table_state import referenced_columns
from widen.sources.file_ranges import TEXT as SOURCE_TEXT
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, type_to_spark
from widen.verification.records import (
    CONVERTED,
    DELETES,
    DIGEST,
    FORM,
    MAX_SHOWN,
    PLACE,
    ROW,
    VALUES,
    Side,
    Verification,
)

MAX_KEYS = 1_000_000
"""Up to this many keys of a batch, tasks know all of them, and so build no forms of other rows."""

RECORD, QUARANTINED, BEFORE, AFTER, DELETED, LISTED, _OTHERS, _UNCHOSEN = range(8)
"""What a row of the proof is about; keys are `DELETED` in the version before, and `LISTED` as such in the new one."""

KEY, SEQUENCE, KIND, _JSON, IS_DELETE, _HASH, _COUNT = "key", "sequence", "kind", "json", "is_delete", "hash", "n"
_FLAG = "flag"
"""Whether a record deletes: 0 or 1, or `UNDECIDED`."""

CONTENT, ORIGINS = "content", "origins"
"""The digest of a record or a row without the fields that say where and when it was loaded, and how many these are."""

UNDECIDED = 2
"""Only Spark can tell whether the record deletes."""

SINCE, TRACKED = "since", "tracked"
"""Where only changes of tracked fields open versions: when a version starts, and the values of the tracked fields."""

MISPLACED = "misplaced"
"""The fields of a row with a column that lacks the value, or has one without a reason, with NUL between them."""

UNTIL = "until"
"""When a version of a row ends, as a sequence; empty for the current version; `BROKEN` for an invalid one."""

BROKEN = "broken"
"""Marks a version that is current but has an end, or is neither current nor ended."""

_DDL = (
    f"{KIND} int, {KEY} binary, {SEQUENCE} string, {DIGEST} binary, {VALUES} bigint, {CONVERTED} bigint, "
    f"{PLACE} string, {_JSON} string, {_HASH} decimal(38,0), {_COUNT} bigint, "
    f"{UNTIL} string, {FORM} binary, {_FLAG} tinyint, {CONTENT} binary, {ORIGINS} bigint, "
    f"{SINCE} string, {TRACKED} binary, {MISPLACED} string"
)
_SCHEMA = pa.schema(
    {
        KIND: pa.int32(),
        KEY: pa.binary(),
        SEQUENCE: pa.string(),
        DIGEST: pa.binary(),
        VALUES: pa.int64(),
        CONVERTED: pa.int64(),
        PLACE: pa.string(),
        _JSON: pa.string(),
        _HASH: pa.decimal128(38, 0),
        _COUNT: pa.int64(),
        UNTIL: pa.string(),
        FORM: pa.binary(),
        _FLAG: pa.int8(),
        CONTENT: pa.binary(),
        ORIGINS: pa.int64(),
        SINCE: pa.string(),
        TRACKED: pa.binary(),
        MISPLACED: pa.string(),
    }
)
TOTALS = ("records", "values", "exact", "converted", "lost", "extra")
_OTHER_TOTALS = ("hash_before", "count_before", "hash_after", "count_after")
"""The sum of the hashes and the number of the rows of other keys, in both versions."""

_JUDGED = ", ".join(
    [
        *(f"{name} bigint" for name in TOTALS),
        "place string",
        *(f"{name} {'decimal(38,0)' if 'hash' in name else 'bigint'}" for name in _OTHER_TOTALS),
    ]
)
_BATCH_ROWS = 10_000

OTHERS_CHANGED = "rows of keys that the batch does not have were changed"
OTHERS_LISTED = "the list of deleted keys was changed for keys that the batch does not have"


@dataclass(frozen=True, slots=True)
class KeyedProof:
    """What the proof compares.

    Args:
        schema: The columns of the version that the commit made; rows of both versions have them.
        before: The rows of the version before; None if there was no table.
        after: The rows of that version.
        deleted: Where to find the keys that were deleted before; None without such keys, or if they do not count.
        listed: The same for the version that the commit made.
        quarantined: The texts of quarantined records; None without quarantined records.
    """

    rules: KeyRules
    schema: StructType
    policy: Policy
    before: DataFrame | None
    after: DataFrame
    deleted: DeletionListing | None = None
    listed: DeletionListing | None = None
    quarantined: DataFrame | None = None

    def verify(self, source: Side, share: float = 1.0) -> Verification:
        """Return the result of the proof.

        Args:
            source: The records of the batch, as texts.
            share: The share of the keys to compare.
        """
        reader, limit = KeyReader.of(self.rules, self.schema, self.policy), int(share * 2**32)
        records = source.digests().mapInArrow(self._read_records(reader, limit), _DDL).persist()
        try:
            with translate_spark_errors():
                return self._compare(reader, records, limit, share)
        finally:
            records.unpersist()

    def _read_records(self, reader: KeyReader, limit: int) -> Callable[[Iterable[pa.RecordBatch]], Any]:
        return partial(_record_rows, reader, limit, self.schema)

    def _compare(self, reader: KeyReader, records: DataFrame, limit: int, share: float) -> Verification:
        keys = records.where(F.col(KEY).isNotNull()).select(KEY).distinct().limit(MAX_KEYS + 1).collect()
        wanted = None if len(keys) > MAX_KEYS else frozenset(bytes(row[KEY]) for row in keys)
        records = records.where(F.col(KIND) == RECORD)
        frames = [self._with_deletes(records)]
        versions = [(AFTER, self.after)] + ([] if self.before is None else [(BEFORE, self.before)])
        read = partial(_version_rows, reader, self.schema, self.policy, limit, wanted)
        for kind, rows in versions:
            hashed = rows.select(F.struct("*").alias(ROW), _row_hash(self.schema).alias(_HASH))
            frames.append(hashed.mapInArrow(partial(read, kind), _DDL).withColumn(IS_DELETE, F.lit(False)))
        if self.quarantined is not None:
            task = partial(quarantined_rows, reader, self.schema, self.policy, limit)
            texts = self.quarantined.select(SOURCE_TEXT).mapInArrow(task, _DDL)
            frames.append(texts.withColumn(IS_DELETE, F.lit(False)))
        frames += self._read_deletions(reader, limit, wanted, records.sparkSession)
        rows = reduce(DataFrame.unionAll, frames).drop(_JSON, _FLAG).repartition(KEY).sortWithinPartitions(KEY)
        judged = rows.mapInArrow(partial(_judge_task, reader), _JUDGED)
        sums = [F.coalesce(F.sum(name), F.lit(0)) for name in (*TOTALS, *_OTHER_TOTALS)]
        *totals, was, was_count, now, now_count, wrong = judged.agg(*sums, F.count("place")).collect()[0]
        count, values, exact, converted, lost, extra = map(int, totals)
        places: list[str] = []
        if wrong:
            # This is rare, so read both versions once more: keeping their rows would slow down every proof.
            shown = judged.where("place IS NOT NULL").select("place").orderBy("place").limit(MAX_SHOWN).collect()
            places = [row.place for row in shown]
        if self.before is None:
            extra += int(now_count)
        elif (was, was_count) != (now, now_count):
            places.append(OTHERS_CHANGED)
        return Verification(count, values, exact, converted, lost, tuple(places), extra, share)

    def _read_deletions(
        self, reader: KeyReader, limit: int, wanted: frozenset[bytes] | None, spark: SparkSession
    ) -> Iterator[DataFrame]:
        """Yield the deletions in both lists: of the keys of the batch, and of others where the lists may differ."""
        old, new = ({} if each is None else each.files() for each in (self.deleted, self.listed))
        # Mostly the new list has the files of the old one, which nobody changes, and those of this load.
        added = {path: size for path, size in new.items() if path not in old}
        is_same = old.keys() <= new.keys()
        parts = [(DELETED, self.deleted, old, is_same), (LISTED, self.listed, added, False)]
        parts.append((LISTED, self.listed, {path: new[path] for path in new.keys() & old.keys()}, is_same))
        for kind, listing, files, is_ours in parts:
            if listing is not None and files:
                task = partial(_deleted_rows, reader, limit, wanted if is_ours else None, kind)
                rows = _read_listing(spark, listing, files).mapInArrow(task, _DDL)
                yield rows.withColumn(IS_DELETE, F.lit(kind == DELETED))

    def _with_deletes(self, records: DataFrame) -> DataFrame:
        """Add whether a record deletes: as the proof finds out, or else as Spark does.

        Spark's own JSON reader then reads the columns of the condition.
        """
        condition = self.rules.deletes(self.schema)
        is_known = F.col(_FLAG) == F.lit(1)
        if self.rules.delete_when is None or not records.where(F.col(_FLAG) == F.lit(UNDECIDED)).head(1):
            return records.withColumn(IS_DELETE, is_known)
        ensure_decided(self.rules)
        assert condition is not None
        names = {path[0].lower() for path in referenced_columns(condition, self.schema)}
        columns = [_parse(each).alias(each.name) for each in self.schema if each.name.lower() in names]
        kept = F.struct(*records.columns).alias(_PROOF)
        by_spark = F.coalesce(F.expr(condition).cast("boolean"), F.lit(False))
        is_delete = F.when(F.col(f"{_PROOF}.{_FLAG}") == F.lit(UNDECIDED), by_spark)
        is_delete = is_delete.otherwise(F.col(f"{_PROOF}.{_FLAG}") == F.lit(1)).alias(IS_DELETE)
        return records.select(kept, *columns).select(f"{_PROOF}.*", is_delete)


_LISTED = StructType((Field(LISTED_KEY, STRING), Field(NUMBER, DecimalType(38, 18)), Field(TEXT, STRING)))


def _read_listing(spark: SparkSession, listing: DeletionListing, files: Mapping[str, int]) -> DataFrame:
    """Return the deletions in some files of a list, where a key may occur more than once."""
    metadata = Metadata(id="keys", schema_string=to_json(_LISTED), partition_columns=())
    store = cast("LogStore", listing.store)
    view = new_snapshot(store, TableConfiguration(Protocol(min_reader_version=1, min_writer_version=2), metadata))
    adds = [
        Add(path=path, partition_values={}, size=size, modification_time=0, data_change=True)
        for path, size in files.items()
    ]
    return read_data_files(spark, store, view, concat_files([from_adds(adds)]))


def build_keyed_reasons(
    rules: KeyRules, schema: StructType, policy: Policy, conditions: Sequence[str] = ()
) -> QuarantineReasons:
    """Return what judges the quarantined records of an ingestion by key."""
    reader = KeyReader.of(rules, schema, policy)
    return QuarantineReasons(schema_of_records(schema, rules), policy, conditions, partial(_has_key, reader))


def _has_key(reader: KeyReader, form: Form) -> bool:
    """Return whether a record has a key and, if the rules name one, an order."""
    has_order = bool(reader.family) and reader.sequence(form) is not None
    return reader.key(form) is not None and (has_order or not reader.rules.sequence_by)


def schema_of_records(schema: StructType, rules: KeyRules) -> StructType:
    """Return the schema for reading records: only new rows take defaults where partial records have no value."""
    return without_defaults(schema) if rules.keeps_missing else schema


_LISTED_TEXT = re.compile("(?:[^\0]|\0\1)*")
"""A text in the list of deleted keys, up to its end, where a sequence has several fields."""

_PROOF = "__widen_proof"


def _parse(column: Field) -> Column:
    key = source_key(column)
    parsed = F.from_json(F.col(_JSON), f"{quote_name(key)} {type_to_spark(column.type).simpleString()}")
    return parsed.getField(key)


def _row_hash(schema: StructType) -> Column:
    """Return a hash of all values of a row."""
    columns = [F.col(quote_name(each.name)) for each in schema]
    # Spark hashes no maps.
    values = [
        F.to_json(F.struct(c), dict(EXACT_JSON)) if _has_map(f.type) else c
        for c, f in zip(columns, schema, strict=True)
    ]
    return F.xxhash64(*values, F.struct(*(value.isNull() for value in values))).cast("decimal(38,0)")


def _has_map(data_type: DataType) -> bool:
    match data_type:
        case MapType():
            return True
        case ArrayType(element):
            return _has_map(element)
        case StructType(fields):
            return any(_has_map(each.type) for each in fields)
    return False


# ---- keys and sequences of forms -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads the key and the sequence of a form, which is a record or a row as the proof sees it.

    Args:
        family: Whether sequences are numbers, times or texts; empty without a sequence.
        columns: The columns of the sequence outside of arrays, which may hold a number as a time, and a time as one.
        parts: The readers of the fields of a sequence of several.
        defaults: What a new row has where its partial records say nothing.
        has_marks: Whether the forms of records may have marks of spellings.
    """

    rules: KeyRules
    family: str
    columns: tuple[SourceColumn, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[KeyReader, ...] = ()
    has_marks: bool = False

    @staticmethod
    def of(rules: KeyRules, schema: StructType, policy: Policy) -> KeyReader:
        """Return the reader for a table; the first column of the sequence decides which of the three it is."""
        return replace(
            KeyReader._of(rules, schema, policy), has_marks=_has_marks(source_columns_by_key(schema, policy))
        )

    @staticmethod
    def _of(rules: KeyRules, schema: StructType, policy: Policy) -> KeyReader:
        defaults = ExpectedRecord(schema, policy).defaults if rules.keeps_missing else {}
        if len(rules.sequence_by) > 1:
            single = (replace(rules, sequence_by=(path,)) for path in rules.sequence_by)
            return KeyReader(
                rules, "several", (), defaults, tuple(KeyReader._of(each, schema, policy) for each in single)
            )
        (path,) = rules.sequence_by or [()]
        places = find_field_columns(schema, path) if path else []
        if not places:
            return KeyReader(rules, "", (), defaults)
        kinds = [_order_kind(data_type) for data_type, _ in places]
        family = kinds[0] or next((kind for kind in ("text", "number", "time") if kind in kinds), "")
        levels = [source_columns_by_key(schema, policy)]
        columns: list[SourceColumn] = []
        for name in path:
            columns = [each for level in levels for key in _same_names(level, name) for each in level[key]]
            levels = [each.fields for each in columns if each.fields is not None]
        return KeyReader(rules, family, tuple(each for each in columns if each.dim == 0), defaults)

    def form_of(self, record: Form) -> Form:
        """Return the form of a record as keys are compared: a number is the same however it is spelled."""
        return unmarked(record) if self.has_marks else record

    def key(self, form: Form) -> bytes | None:
        """Return the key, None if a field of it is missing, null or not a scalar."""
        values = [_value_at(form, path) for path in self.rules.key]
        is_key = all(value is not None and not isinstance(value, (dict, list)) for value in values)
        return encode_form(values) if is_key else None

    def sequence(self, form: Form) -> str | None:
        """Return the sequence as a text of `order`, None without a sequence."""
        return self._sequence_at(form, self.rules.sequence_by)

    def _sequence_at(self, form: Form, paths: Sequence[Path]) -> str | None:
        """Return a sequence of the fields at some paths."""
        if len(paths) < 2:
            return self._order_text(form, paths[0]) if paths else None
        texts = [part._order_text(form, path) for part, path in zip(self.parts, paths, strict=True)]
        return None if None in texts else msgspec.json.encode(texts).decode()

    def listed_sequence(self, deletion: Deletion) -> str | None:
        """Return the sequence of a deletion in the list of a table, as a text of `order`."""
        if not self.parts or deletion.text is None:
            return deletion.order
        rest, texts = deletion.text, []
        for part in self.parts:
            if part.family == "text":
                size = len(_LISTED_TEXT.match(rest)[0])  # type: ignore[index]
                texts.append(rest[:size].replace("\0\1", "\0"))
                rest = rest[size + 2 :]
                continue
            # A negative number is what is missing to the largest one of 38 digits.
            number = int(rest[1:39]) - (rest[0] == "0") * (10**38 - 1)
            texts.append(f"{number}e-18")
            rest = rest[39:]
        return msgspec.json.encode(texts).decode()

    def without_times(self, form: Form) -> tuple[Form, str | None, str | None]:
        """Return a row of a table with history without the fields of its version, its `UNTIL` and its `SINCE`."""
        if not self.rules.history or not isinstance(form, dict):
            return form, None, None
        start, until = (self._sequence_at(form, self.rules.times(name)) for name in (VALID_FROM, VALID_TO))
        is_open = form.get(VALID_TO) is None if self.parts else until is None
        starts_itself = start == self.sequence(form) or (self.rules.is_tracking and start is not None)
        is_sound = form.get(IS_CURRENT) is is_open and is_open is (until is None) and starts_itself
        rest = {name: value for name, value in form.items() if name not in VERSION_FIELDS}
        return rest, (until or "") if is_sound else BROKEN, start

    def tracked(self, form: Form) -> bytes | None:
        """Return the values of the tracked fields of a record or a row; None if every record is a version."""
        rules = self.rules
        if not rules.is_tracking:
            return None
        if rules.history_columns:
            return digest([_value_at(form, path) for path in rules.history_columns])
        return digest(_without(without_origin(form), [fold_path(path) for path in (*rules.untracked, (UNCHANGED,))]))

    def kept_form(self, form: Form) -> bytes | None:
        """Return a form as bytes if the row of its key is made from several forms."""
        is_needed = self.rules.keeps_missing or self.rules.has_unchanged
        return msgspec.msgpack.encode(form) if is_needed else None

    def content(self, form: Form, whole: bytes) -> tuple[bytes | None, int]:
        """Return `CONTENT` and `ORIGINS` of a form; nothing with a sequence, which alone says what is newer.

        Args:
            whole: The digest of the form.
        """
        rest = form if self.family else without_origin(form)
        if rest is form:
            return None if self.family else whole, 0
        return digest(rest), count_form(form) - count_form(rest)

    def put_on(self, old: Form, new: Form) -> Form:
        """Return the row that a record makes of the row before it; None means no row."""
        if self.rules.keeps_missing:
            if old is None and isinstance(new, dict):  # a null says nothing there, and stays where there is no default
                return {**new, **{name: value for name, value in self.defaults.items() if new.get(name) is None}}
            return _merge_forms(old, new)
        if not isinstance(old, dict) or not isinstance(new, dict):
            return new
        return {**new, **{name: old[name] for name in new.get(UNCHANGED) or () if name in old}}

    def depends_on_rows(self, form: Form) -> bool:
        """Return whether the row of a record depends on the row before it."""
        return self.rules.has_unchanged and isinstance(form, dict) and bool(form.get(UNCHANGED))

    def _order_text(self, form: Form, path: Path) -> str | None:
        value = _value_at(form, path)
        if value is None or isinstance(value, (bool, dict, list)):
            return None
        if self.family == "text":
            return value if isinstance(value, str) else None
        if (self.family == "time") != isinstance(value, str):
            value = self._as_other_kind(value)
        if value is None:
            return None
        if self.family == "time":
            micros = read_micros(value)
            return None if micros is None else str(micros)
        if not isinstance(value, msgspec.msgpack.Ext):
            return repr(value)
        # NaN and an infinity say nothing about which record is newer.
        text = bytes(value.data).decode()
        return None if text in NON_FINITE else text

    def _as_other_kind(self, value: Any) -> Any:
        """Return a number as the time that a column stores for it, or a time as the number; None without such a column.

        Source: docs/evolution-rules.md#d5, #u16
        """
        reads_dates = any(each.has_dates for each in self.columns)
        has_dates = any(each.type == DATE for each in self.columns)
        if isinstance(value, str):
            given = to_temporal(value) if reads_dates or any(_is_time(each.type) for each in self.columns) else value
        elif type(value) is not int:
            return None
        elif reads_dates and not has_dates and 0 <= value <= _LAST_DAY:
            # If numbers and times have columns, and dates do not, the form of a date is the number of its day.
            given = DateString(date.fromordinal(_EPOCH + value))
        else:
            given = NumberToken(value)
        if type(given) is str:
            return None
        found = (expected_value(each, given) for each in self.columns if _is_time(each.type) is (self.family == "time"))
        return next((each for each in found if each is not NOT_STORED), None)

    def order(self, sequence: str | None) -> Any:
        """Return a sort key for the text of a sequence; None is older than everything."""
        if sequence is None:
            return (0,)
        if self.parts:
            texts = msgspec.json.decode(sequence)
            return (1, *(part.order(text) for part, text in zip(self.parts, texts, strict=True)))
        return (1, sequence.encode() if self.family == "text" else Decimal(sequence))


def _has_marks(fields: ColumnsByKey) -> bool:
    inner = (each for columns in fields.values() for each in columns)
    return any(map(has_marks, fields.values())) or any(
        _has_marks(each.fields or {}) or (each.value is not None and _has_marks({"": (each.value,)})) for each in inner
    )


def find_field_columns(schema: StructType, path: Path) -> list[tuple[DataType, Path]]:
    """Return the types and the places of the columns that hold values of a field, the first one first."""
    names = _same_names(map(source_key, schema), path[0])
    found = [column for column in schema if source_key(column) in names]
    if len(path) == 1:
        return [(column.type, (column.name,)) for column in found]
    records = [(column.name, column.type) for column in found if isinstance(column.type, StructType)]
    inner = ((name, each) for name, record in records for each in find_field_columns(record, path[1:]))
    return [(data_type, (name, *place)) for name, (data_type, place) in inner]


def _same_names(names: Iterable[str], name: str) -> list[str]:
    """Return the names that mean a field: its own, or those that differ from it in their case only."""
    known, folded = list(names), fold_path((name,))
    return [name] if name in known else [each for each in known if fold_path((each,)) == folded]


_ORIGIN = re.compile("_(?:source_file|loaded_at)=+")


def without_origin(form: Form) -> Form:
    """Return a record or a row without the fields that a load adds: the file and the time.

    Source: docs/guide/keys.md; docs/evolution-rules.md#d21
    """
    if not isinstance(form, dict) or not any(map(_ORIGIN.fullmatch, form)):
        return form
    return {name: value for name, value in form.items() if not _ORIGIN.fullmatch(name)}


_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH


def _order_kind(data_type: DataType) -> str:
    """Return the kind of order of a type's values; empty for lists, objects and other unordered values."""
    if data_type == STRING or _is_time(data_type):
        return "text" if data_type == STRING else "time"
    return "" if isinstance(data_type, (ArrayType, MapType, StructType)) or data_type in (BINARY, BOOLEAN) else "number"


def _is_time(data_type: DataType) -> bool:
    return data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def _without(form: Form, paths: Sequence[Path]) -> Form:
    """Return a record without the values at some paths, which are folded, and without objects that had only those."""
    if not isinstance(form, dict):
        return form
    rest: dict[str, Any] = {}
    for name, value in form.items():
        inner = [path[1:] for path in paths if path[:1] == fold_path((name,))]
        if () not in inner:
            kept = _without(value, inner) if inner else value
            rest |= {} if inner and kept in (None, {}) else {name: kept}
    return rest


def _value_at(form: Form, path: Path) -> Any:
    for name in path:
        if not isinstance(form, dict):
            return None
        value = form.get(name)
        if value is None:
            wanted = fold_path((name,))
            value = next((each for key, each in form.items() if fold_path((key,)) == wanted), None)
        form = value
    return form


_TIME = re.compile(r"(\d{4,6})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6})\d*)?)?(?:Z|\+00:00)?$")


def read_micros(text: str) -> int | None:
    """Return a date or a time in the form of the proof as microseconds from 1970; None if a text is neither."""
    match = _TIME.match(text)
    if match is None or int(match[1]) > 9999:
        return None
    year, month, day, hour, minute, second = (int(each or 0) for each in match.groups()[:6])
    days = date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
    micros = int((match[7] or "").ljust(6, "0"))
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros


def listed_key(text: str, keys: int) -> bytes | None:
    """Return the key that a text in the list of deleted keys stands for, in the form of the proof."""
    texts = [text] if keys == 1 else msgspec.json.decode(text)
    values: list[Any] = []
    for each in texts:
        kind, _, value = each.partition(":")
        match kind:
            case "n":
                values.append(canonical_number(Decimal(value)))
            case "b":
                values.append(value == "true")
            case "t":
                seconds, micros = divmod(int(value), 1_000_000)
                moment = datetime(1970, 1, 1) + timedelta(seconds=seconds, microseconds=micros)
                values.append(canonical_instant(moment.isoformat()))
            case "d":
                values.append(canonical_time(value.replace(" ", "T")))
            case _:
                values.append(value)
    return encode_form(values)


# ---- on the executors ------------------------------------------------------------------------------


def _row(kind: int, **values: Any) -> dict[str, Any]:
    return {KIND: kind, **values}


def _batches(rows: Iterable[dict[str, Any]], schema: pa.Schema = _SCHEMA) -> Iterator[pa.RecordBatch]:
    rest = iter(rows)
    while some := list(islice(rest, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def is_chosen(key: bytes | None, limit: int) -> bool:
    """Return whether a key is in the sample that a limit of checksums gives."""
    return limit >= 2**32 or crc32(key or b"") < limit


def _record_rows(
    reader: KeyReader, limit: int, schema: StructType, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    flag_of = delete_flags(reader.rules, schema)

    def rows() -> Iterator[dict[str, Any]]:
        for row in chain.from_iterable(batch.to_pylist() for batch in batches):
            form = reader.form_of(msgspec.msgpack.decode(row[FORM]))
            own = digest(form) if reader.has_marks else row[DIGEST]
            key = reader.key(form)
            if not is_chosen(key, limit):
                yield _row(_UNCHOSEN, **{KEY: key})  # its rows do not belong to other keys
            else:
                text = encode_form(form).decode() if isinstance(form, dict) else None
                counts = {VALUES: row[VALUES], CONVERTED: row[CONVERTED], PLACE: row[PLACE]}
                ours = {KEY: key, SEQUENCE: reader.sequence(form), DIGEST: own, _JSON: text}
                content = dict(zip((CONTENT, ORIGINS), reader.content(form, own), strict=True))
                flags = {FORM: reader.kept_form(form), _FLAG: flag_of(form, row.get(DELETES))}
                flags |= {TRACKED: reader.tracked(form)}
                yield _row(RECORD, **ours, **counts, **flags, **content)

    return _batches(rows())


def delete_flags(rules: KeyRules, schema: StructType) -> Callable[[Form, bool | None], int]:
    """Return a function that tells whether the form of a record deletes: 0 or 1, or `UNDECIDED`.

    If fields of the condition are excluded, the reader of the source has evaluated it before it left them out.
    """
    if rules.delete_when is None:
        return _never
    if rules.excluded:
        return _known_flag
    try:
        is_delete = build_condition(rules.delete_when, schema)
    except UnsupportedCondition:
        return _undecided
    return partial(_delete_flag, is_delete)


def _never(_: Form, __: bool | None) -> int:
    return 0


def _known_flag(form: Form, deletes: bool | None) -> int:
    if deletes is None:
        return UNDECIDED if isinstance(form, dict) else 0
    return int(deletes)


def ensure_decided(rules: KeyRules) -> None:
    """Check, where the proof cannot tell of a record whether it deletes, that Spark can.

    Raises:
        InvalidCondition: fields of the condition are excluded.
    """
    if rules.excluded:
        raise InvalidCondition(condition=rules.delete_when or "", reason=_NOT_PROVED)


_NOT_PROVED = (
    "the load excludes fields of it, and verify compares them only with constants: leave verify out, or load the fields"
)


def _undecided(form: Form, _: bool | None) -> int:
    # A text that is not a record has a row without values.
    return UNDECIDED if isinstance(form, dict) else 0


def _delete_flag(is_delete: Condition, form: Form, _: bool | None) -> int:
    try:
        return int(bool(is_delete(form))) if isinstance(form, dict) else 0
    except Undecided:
        return UNDECIDED


def quarantined_rows(
    reader: KeyReader, schema: StructType, policy: Policy, limit: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the keys and the digests of quarantined texts."""
    freeze_imports()
    source = SourceReader(schema_of_records(schema, reader.rules), policy)

    def rows() -> Iterator[dict[str, Any]]:
        for text in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            form = reader.form_of(source.read_quarantined_records(text))
            if is_chosen(key := reader.key(form), limit):
                yield _row(QUARANTINED, **{KEY: key, DIGEST: digest(form), VALUES: count_form(form)})

    return _batches(rows())


def _deleted_rows(
    reader: KeyReader, limit: int, wanted: frozenset[bytes] | None, kind: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    def rows() -> Iterator[dict[str, Any]]:
        for row in chain.from_iterable(batch.to_pylist() for batch in batches):
            deletion = Deletion(row[LISTED_KEY], row[NUMBER], row[TEXT])
            key = listed_key(deletion.key, len(reader.rules.key))
            if is_chosen(key, limit) and (wanted is None or key in wanted):
                yield _row(kind, **{KEY: key, SEQUENCE: reader.listed_sequence(deletion)})

    return _batches(rows())


def _version_rows(
    reader: KeyReader,
    schema: StructType,
    policy: Policy,
    limit: int,
    wanted: frozenset[bytes] | None,
    kind: int,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the keys of the batch with their forms, and one row that sums up all others."""
    freeze_imports()
    rows_of, names = RowReader(schema, policy, checks_places=False), {path[0].lower() for path in reader.rules.key}
    places = [at for at, each in enumerate(schema) if source_key(each).lower() in names]
    keys_of = RowReader(StructType(tuple(schema.fields[at] for at in places)), policy, checks_places=False)
    placed = build_place_reader(schema, policy)
    total = Decimal(0)
    count = 0
    for batch in batches:
        structs, hashes = batch.columns
        parts = structs.flatten()
        fields = [structs.type.field(at) for at in places]
        narrow = pa.StructArray.from_arrays([parts[at] for at in places], fields=fields)
        keys = list(map(reader.key, keys_of.forms(narrow)))
        is_ours = [key is not None and (wanted is None or key in wanted) for key in keys]
        mask = pa.array(is_ours, pa.bool_())
        others = hashes.filter(pc.invert(mask))
        total += pc.sum(others).as_py() or 0
        count += len(others)
        rows = []
        found = [key for key, ours in zip(keys, is_ours, strict=True) if ours]
        forms = rows_of.forms(structs.filter(mask)) if found else []
        misplaced = find_misplaced(placed, structs.filter(mask), forms)
        for key, form, wrong in zip(found, forms, misplaced, strict=True):
            if is_chosen(key, limit):
                order, (form, until, since) = reader.sequence(form), reader.without_times(form)
                whole = digest(form)
                ours = {KEY: key, SEQUENCE: order, DIGEST: whole, VALUES: count_form(form), UNTIL: until}
                ours |= {SINCE: since, TRACKED: reader.tracked(form), MISPLACED: wrong}
                content, _ = reader.content(form, whole)
                rows.append(_row(kind, **ours, **{FORM: reader.kept_form(form), CONTENT: content}))
        yield from _batches(rows)
    yield from _batches([_row(_OTHERS, **{VALUES: kind, _HASH: total, _COUNT: count})])


def find_misplaced(placed: RowReader | None, rows: pa.StructArray, forms: Sequence[Form]) -> list[str]:
    """Return the `MISPLACED` of rows.

    Args:
        placed: Reads rows and checks the places of their values; None if each field has one column.
        forms: The forms of the rows without that check.
    """
    if placed is None:
        return [""] * len(forms)
    return [
        "\0".join(name for name in form.keys() - VERSION_FIELDS if unmarked(each[name]) != form[name])
        if isinstance(form, dict)
        else ""
        for form, each in zip(forms, placed.forms(rows), strict=True)
    ]


def build_place_reader(schema: StructType, policy: Policy) -> RowReader | None:
    """Return what reads rows and checks the places of their values; None if each field has one column."""
    return RowReader(schema, policy) if _has_several(source_columns_by_key(schema, policy)) else None


def _has_several(fields: ColumnsByKey) -> bool:
    return any(
        len(columns) > 1 or any(_has_several(each.fields or {}) for each in columns) for columns in fields.values()
    )


def _judge_task(reader: KeyReader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Judge the keys of a task, whose rows are sorted by key, and pass on the sums of other keys."""

    def judged() -> Iterator[dict[str, Any]]:
        rows = chain.from_iterable(batch.to_pylist() for batch in batches)
        for key, some in groupby(rows, lambda row: row[KEY]):
            found = list(some)
            others = [row for row in found if row[KIND] == _OTHERS] if key is None else []
            for row in others:
                version = "before" if row[VALUES] == BEFORE else "after"
                yield {f"hash_{version}": row[_HASH], f"count_{version}": row[_COUNT]}
            if len(others) < len(found):
                yield judge_key(reader, key, [row for row in found if row[KIND] != _OTHERS])

    return _batches(judged(), _JUDGED_SCHEMA)


_JUDGED_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in TOTALS),
        ("place", pa.string()),
        *((name, pa.decimal128(38, 0) if "hash" in name else pa.int64()) for name in _OTHER_TOTALS),
    ]
)


def judge_key(reader: KeyReader, key: bytes | None, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare what a key must have with what it has.

    Args:
        key: None for records without a key, which must be quarantined.
    """
    found: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[KIND], []).append(row)
    records, before, after = (found.get(kind, []) for kind in (RECORD, BEFORE, AFTER))
    totals = dict.fromkeys(TOTALS, 0)
    totals["records"] = len(records)
    waiting = Counter(row[DIGEST] for row in found.get(QUARANTINED, []))
    staying, lost = [], []
    for row in records:
        if waiting[row[DIGEST]]:
            waiting[row[DIGEST]] -= 1
            _count_kept(totals, row)
        elif key is None or (reader.family and row[SEQUENCE] is None):
            lost.append(row)
        else:
            staying.append(row)
    totals["extra"] += sum(waiting.values())
    is_right = True
    if key is not None:
        deleted = found.get(DELETED, [])
        is_right = _has_newest(reader, staying, before, after, deleted, totals, lost)
        # Rows may keep fields of rows from before a column, but a load puts no further ones into the wrong columns.
        fields, known = (
            {each for row in rows for each in (row[MISPLACED] or "").split("\0")} for rows in (after, before)
        )
        is_right &= fields <= known | {""}
        is_right &= _are_listed(
            reader, [*(row for row in staying if row[IS_DELETE]), *deleted], after, found.get(LISTED, [])
        )
    for row in lost:
        totals["values"] += row[VALUES]
        totals["lost"] += row[VALUES]
    at = min((str(row[PLACE]) for row in lost), default=None)
    if at is None and not is_right:
        at = f"the key {(key or b'').decode()[1:-1]}"
    return {**totals, "place": at}


def _are_listed(
    reader: KeyReader,
    gone: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    listed: Sequence[Mapping[str, Any]],
) -> bool:
    """Return whether the new version lists the deletions of a key, so that no late record brings its row back.

    It must not list others: they would keep late records out that nothing has deleted.

    With history it lists each of them, else at least the newest if the key has no newer row.

    Args:
        gone: The records of the batch that delete the key, and its deletions before.
    """
    if not reader.family:
        return True
    times, known, rows = ({reader.order(row[SEQUENCE]) for row in each} for each in (gone, listed, after))
    if not known <= times:
        return False
    if reader.rules.history:
        return times <= known
    last = max(times, default=())
    return bool(last <= max(known, default=()) or last < max(rows, default=()))


def _count_kept(totals: dict[str, int], row: Mapping[str, Any], others: int = 0) -> None:
    values, converted = row[VALUES] - others, row[CONVERTED] or 0
    totals["values"] += values
    totals["converted"] += converted
    totals["exact"] += values - converted


def _has_newest(
    reader: KeyReader,
    records: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    deleted: Sequence[Mapping[str, Any]],
    totals: dict[str, int],
    lost: list[Mapping[str, Any]],
) -> bool:
    """Return whether a key has the row that it must have, or no row if it must have no row."""
    if reader.rules.history:
        return _has_versions(reader, records, before, after, deleted, totals, lost)
    was, now = Counter(row[DIGEST] for row in before), Counter(row[DIGEST] for row in after)
    if not records:
        return was == now
    forms = (msgspec.msgpack.decode(row[FORM]) for row in records if reader.rules.has_unchanged)
    if reader.rules.keeps_missing or any(map(reader.depends_on_rows, forms)):
        return _has_merged(reader, records, before, after, deleted, totals)
    if reader.family:
        events = [*records, *before, *deleted]
        top = max(reader.order(row[SEQUENCE]) for row in events)
        newest = [row for row in records if reader.order(row[SEQUENCE]) == top]
        is_gone = any(reader.order(row[SEQUENCE]) == top for row in deleted)
        was_newest = any(reader.order(row[SEQUENCE]) == top for row in before)
    else:
        newest, is_gone, was_newest = list(records), False, False
    if is_gone and not was_newest:
        # A remembered deletion is the newest: nothing comes back, and nothing else goes.
        is_right = was == now
    elif any(row[IS_DELETE] for row in newest):
        is_right = not now
    elif not newest or (was_newest and was == now):
        is_right = was == now
    else:
        winners = {row[DIGEST]: row for row in newest}
        is_left = was == now and bool(before) and not reader.family
        same = [row for row in newest if is_left and row[CONTENT] == before[0][CONTENT]]
        is_right = sum(now.values()) == 1 and (next(iter(now)) in winners or bool(same))
        if is_right:
            winner = winners.get(next(iter(now)))
            _count_kept(totals, *((same[0], same[0][ORIGINS]) if winner is None else (winner,)))
        elif not any(each in winners for each in now):
            lost.append(newest[0])
    if not is_right:
        totals["extra"] += max(0, sum(now.values()) - 1) if newest else sum((now - was).values())
    return is_right


def _has_versions(
    reader: KeyReader,
    records: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    deleted: Sequence[Mapping[str, Any]],
    totals: dict[str, int],
    lost: list[Mapping[str, Any]],
) -> bool:
    """Return whether a key has the versions that its events lead to, each until the next event."""
    if not records:
        was, now = (Counter((row[DIGEST], row[UNTIL], row[SINCE]) for row in rows) for rows in (before, after))
        return was == now
    events: dict[Any, list[Mapping[str, Any]]] = {}
    found = {reader.order(row[SEQUENCE]): row for row in after}
    for row in (*before, *records, *deleted):
        events.setdefault(reader.order(row[SEQUENCE]), []).append(row)
    if reader.rules.has_unchanged:
        events = _resolved(reader, events, found)
    times = sorted(events)
    validity = _find_validity(reader, events, found)
    expected = {
        time: {row[DIGEST]: row for row in events[time]}
        for time in times
        if not any(row[IS_DELETE] for row in events[time])
    }
    is_right = len(found) == len(after) and found.keys() == expected.keys()
    for time, rows in expected.items():
        version = found.get(time)
        if version is None or version[DIGEST] not in rows:
            is_right = False
            lost += [each for each in rows.values() if each[KIND] == RECORD]
            continue
        if rows[version[DIGEST]][KIND] == RECORD:
            _count_kept(totals, rows[version[DIGEST]])
        since, until = (
            None if text in (None, "", BROKEN) else reader.order(text) for text in (version[SINCE], version[UNTIL])
        )
        is_right &= version[UNTIL] != BROKEN and (since, until) == validity[time]
    totals["extra"] += len(after) - len(found) + len(found.keys() - expected.keys())
    return is_right


def _find_validity(
    reader: KeyReader, events: Mapping[Any, Sequence[Mapping[str, Any]]], found: Mapping[Any, Mapping[str, Any]]
) -> dict[Any, tuple[Any, Any]]:
    """Return from when until when the row of each event must be valid; None for no end.

    Args:
        found: The rows of the new version by their sequence. They say which of several events with one sequence counts.
    """
    times = sorted(events)
    ends: dict[Any, Any] = dict(pairwise(times))
    if not reader.rules.is_tracking:
        return {time: (time, ends.get(time)) for time in times}
    values = {time: _tracked_at(events[time], found.get(time)) for time in times}
    validity, start = {}, None
    for before, time in pairwise([None, *times]):
        goes_on = before is not None and values[before] is not None and values[before] == values[time]
        if goes_on:
            validity[before] = (before, before)
        start = start if goes_on else time
        validity[time] = (start, ends.get(time))
    return validity


def _tracked_at(events: Sequence[Mapping[str, Any]], row: Mapping[str, Any] | None) -> bytes | None:
    """Return the tracked values of the event that counts among some; None for a deletion, or if its row is missing."""
    if row is None or any(event[IS_DELETE] for event in events):
        return None
    return next((event[TRACKED] for event in events if event[DIGEST] == row[DIGEST]), None)


def _resolved(
    reader: KeyReader, events: Mapping[Any, Sequence[Mapping[str, Any]]], found: Mapping[Any, Mapping[str, Any]]
) -> dict[Any, list[Mapping[str, Any]]]:
    """Return events with the digests of the versions that they lead to, after the version that the table has before."""
    resolved: dict[Any, list[Mapping[str, Any]]] = {}
    last: Form = None
    for time in sorted(events):
        forms: dict[bytes, Form] = {}
        resolved[time] = []
        for row in events[time]:
            if row[IS_DELETE]:
                resolved[time].append(row)
                continue
            form = reader.put_on(last, msgspec.msgpack.decode(row[FORM]))
            forms[digest(form)] = form
            resolved[time].append({**row, DIGEST: digest(form), TRACKED: reader.tracked(form)})
        is_gone = any(row[IS_DELETE] for row in events[time])
        version = found.get(time)
        last = None if is_gone or version is None else forms.get(version[DIGEST])
    return resolved


_MAX_TRIES = 1_000
"""The maximum number of orders that are tried for records of one sequence."""


def _has_merged(
    reader: KeyReader,
    records: Sequence[Mapping[str, Any]],
    before: Sequence[Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
    deleted: Sequence[Mapping[str, Any]],
    totals: dict[str, int],
) -> bool:
    """Return whether a key has the row that its partial records lead to, on top of the row before."""
    start = max((reader.order(row[SEQUENCE]) for row in (*before, *deleted)), default=None)
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in records:
        order = reader.order(row[SEQUENCE])
        if start is None or order >= start or not reader.family:
            groups.setdefault(order, []).append(row)
    was, now = (sorted(row[DIGEST] for row in rows) for rows in (before, after))
    if was == now and (not groups or (reader.family and groups.keys() == {start})):
        return True
    ties = [
        _orders(rows, may_be_late=bool(reader.family) and order == start)
        for order, rows in sorted(groups.items(), key=lambda item: item[0])
    ]
    oldest = max(before, key=lambda row: reader.order(row[SEQUENCE]), default=None)
    is_gone = any(reader.order(row[SEQUENCE]) == start for row in deleted) and bool(reader.family)
    base = None if oldest is None or is_gone else msgspec.msgpack.decode(oldest[FORM])
    for order in islice(product(*ties), _MAX_TRIES):
        form = base
        for row in chain.from_iterable(order):
            form = None if row[IS_DELETE] else reader.put_on(form, msgspec.msgpack.decode(row[FORM]))
        is_same = form is not None and now == was and len(was) == 1 and not reader.family
        is_same = is_same and digest(without_origin(form)) == before[0][CONTENT]
        if is_same or now == ([] if form is None else [digest(form)]):
            for row in records[:1] if now else ():
                _count_kept(totals, row)
            return True
    totals["extra"] += max(0, len(now) - 1)
    return False


def _orders(rows: Sequence[Mapping[str, Any]], *, may_be_late: bool) -> list[tuple[Mapping[str, Any], ...]]:
    """Return the possible orders of records with one sequence: a deletion comes last."""
    deletes = [row for row in rows if row[IS_DELETE]]
    orders = permutations(row for row in rows if not row[IS_DELETE])
    found = [(*each, *deletes) for each in islice(orders, _MAX_TRIES)]
    return [*found, ()] if may_be_late else found


def _merge_forms(old: Form, new: Form) -> Form:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{name: _merge_forms(old.get(name), value) for name, value in new.items() if value is not None}}
