"""The proof of an ingestion by key on Spark: every key has the newest of its records, and deleted keys have no row.

It reads the source and two versions of the table, the one before the commit and the one that it made, and works out the
row of each key from them; what the writer has decided is not looked at. Rows of other keys must be the same in both
versions. Records of one key with equal sequences may all be the newest. Without a sequence, a record that only differs
from its row in where and when it was loaded may leave the row as it is.

Source: docs/guide/keys.md; docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial, reduce
from itertools import chain, compress, groupby, islice
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.evolution.key_rules import KeyRules
from widen.evolution.policy import Policy
from widen.evolution.unify import EXACT_JSON
from widen.frames.scan import read_data_files
from widen.json.field_rules import VERSION_FIELDS
from widen.log.file_list import concat_files, from_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import new_snapshot
from widen.model.schema_json import to_json
from widen.model.types import STRING, ArrayType, DataType, DecimalType, Field, MapType, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.proof.canonical import Form, count_form, digest, encode_form
from widen.proof.deletion_lists import KEY as LISTED_KEY
from widen.proof.deletion_lists import NUMBER, TEXT, Deletion, DeletionListing
from widen.proof.row_reader import RowReader
from widen.proof.rules import ColumnsByKey, source_columns_by_key
from widen.proof.source_reader import SourceReader
from widen.protocol.actions import Add, Metadata, Protocol
from widen.protocol.table_configuration import TableConfiguration
from widen.schema.source_metadata import source_key
from widen.schema.table_state import referenced_columns
from widen.sources.file_ranges import TEXT as SOURCE_TEXT
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, type_to_spark
from widen.verification.key_judgement import (
    AFTER,
    BEFORE,
    CONTENT,
    DELETED,
    IS_DELETE,
    KEY,
    KIND,
    LISTED,
    MISPLACED,
    ORIGINS,
    OTHERS,
    QUARANTINED,
    RECORD,
    SEQUENCE,
    SINCE,
    TOTALS,
    TRACKED,
    UNCHOSEN,
    UNTIL,
    judge_key,
)
from widen.verification.key_reader import (
    UNDECIDED,
    KeyReader,
    delete_flags,
    ensure_decided,
    is_chosen,
    listed_key,
    schema_of_records,
)
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

_JSON, _HASH, _COUNT, _FLAG = "json", "hash", "n", "flag"
"""Columns of frames only; the last says whether a record deletes: 0 or 1, or `UNDECIDED`."""

MAX_KEYS = 1_000_000
"""Up to this many keys of a batch, tasks know all of them, and so build no forms of other rows."""

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
        deleted: Where to find the keys that were deleted before; None without such keys, or if they do not count.
        listed: The same for the version that the commit made.
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
        """Return the result of the proof."""
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
        # Mostly the new list has the files of the old one, which nobody changes, and the files of this load.
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


# ---- on the executors ------------------------------------------------------------------------------


def _row(kind: int, **values: Any) -> dict[str, Any]:
    return {KIND: kind, **values}


def _batches(rows: Iterable[dict[str, Any]], schema: pa.Schema = _SCHEMA) -> Iterator[pa.RecordBatch]:
    rest = iter(rows)
    while some := list(islice(rest, _BATCH_ROWS)):
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def _record_rows(
    reader: KeyReader, limit: int, schema: StructType, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    flag_of = delete_flags(reader.rules, schema)

    def rows() -> Iterator[dict[str, Any]]:
        for row in chain.from_iterable(batch.to_pylist() for batch in batches):
            form = reader.form_of(msgspec.msgpack.decode(row[FORM]))
            own = digest(form) if reader.marked else row[DIGEST]
            key = reader.key(form)
            if not is_chosen(key, limit):
                yield _row(UNCHOSEN, **{KEY: key})  # its rows do not belong to other keys
            else:
                text = encode_form(form).decode() if isinstance(form, dict) else None
                counts = {VALUES: row[VALUES], CONVERTED: row[CONVERTED], PLACE: row[PLACE]}
                ours = {KEY: key, SEQUENCE: reader.sequence(form), DIGEST: own, _JSON: text}
                content = dict(zip((CONTENT, ORIGINS), reader.content(form, own), strict=True))
                flags = {FORM: reader.kept_form(form), _FLAG: flag_of(form, row.get(DELETES))}
                flags |= {TRACKED: reader.tracked(form)}
                yield _row(RECORD, **ours, **counts, **flags, **content)

    return _batches(rows())


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
    keyed = KeyedRowReader(reader, schema, policy)
    total = Decimal(0)
    count = 0
    for batch in batches:
        structs, hashes = batch.columns
        parts = structs.flatten()
        fields = [structs.type.field(at) for at in keyed.places]
        keys = list(keyed.keys(pa.StructArray.from_arrays([parts[at] for at in keyed.places], fields=fields)))
        is_ours = [key is not None and (wanted is None or key in wanted) for key in keys]
        mask = pa.array(is_ours, pa.bool_())
        others = hashes.filter(pc.invert(mask))
        total += pc.sum(others).as_py() or 0
        count += len(others)
        is_asked = [ours and is_chosen(key, limit) for key, ours in zip(keys, is_ours, strict=True)]
        if any(is_asked):
            facts = keyed.facts(structs.filter(pa.array(is_asked, pa.bool_())))
            rows = zip(compress(keys, is_asked), *facts.values(), strict=True)
            yield from _batches(_row(kind, **{KEY: key}, **dict(zip(facts, row, strict=True))) for key, *row in rows)
    yield from _batches([_row(OTHERS, **{VALUES: kind, _HASH: total, _COUNT: count})])


class KeyedRowReader:
    """Reads the keys of rows of a table, and what `judge_key` looks at."""

    def __init__(self, reader: KeyReader, schema: StructType, policy: Policy) -> None:
        self._reader = reader
        names = {path[0].lower() for path in reader.rules.key}
        self.places = [at for at, each in enumerate(schema) if source_key(each).lower() in names]
        self.key_columns = StructType(tuple(schema.fields[at] for at in self.places))
        self._keys = RowReader(self.key_columns, policy, checks_places=False)
        self._rows = RowReader(schema, policy, checks_places=False)
        # Checks the places of values, where a field has several columns.
        self._placed = RowReader(schema, policy) if _has_several(source_columns_by_key(schema, policy)) else None

    def keys(self, columns: pa.StructArray) -> Iterator[bytes | None]:
        """Yield the keys of rows that have only `key_columns`."""
        return map(self._reader.key, self._keys.forms(columns))

    def facts(self, rows: pa.StructArray) -> dict[str, list[Any]]:
        """Return what `judge_key` looks at in rows, by column."""
        reader, forms = self._reader, self._rows.forms(rows)
        timed = list(map(reader.without_times, forms))
        bare = [form for form, _, _ in timed]
        digests = list(map(digest, bare))
        return {
            SEQUENCE: list(map(reader.sequence, forms)),
            DIGEST: digests,
            VALUES: list(map(count_form, bare)),
            FORM: list(map(reader.kept_form, bare)),
            UNTIL: [until for _, until, _ in timed],
            CONTENT: [content for content, _ in map(reader.content, bare, digests)],
            SINCE: [since for _, _, since in timed],
            TRACKED: list(map(reader.tracked, bare)),
            MISPLACED: self._find_misplaced(rows, forms),
        }

    def _find_misplaced(self, rows: pa.StructArray, forms: Sequence[Form]) -> list[str]:
        if self._placed is None:
            return [""] * len(forms)
        return [
            "\0".join(name for name in form.keys() - VERSION_FIELDS if each[name] != form[name])
            if isinstance(form, dict)
            else ""
            for form, each in zip(forms, map(self._reader.form_of, self._placed.forms(rows)), strict=True)
        ]


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
            others = [row for row in found if row[KIND] == OTHERS] if key is None else []
            for row in others:
                version = "before" if row[VALUES] == BEFORE else "after"
                yield {f"hash_{version}": row[_HASH], f"count_{version}": row[_COUNT]}
            if len(others) < len(found):
                yield judge_key(reader, key, [row for row in found if row[KIND] != OTHERS])

    return _batches(judged(), _JUDGED_SCHEMA)


_JUDGED_SCHEMA = pa.schema(
    [
        *((name, pa.int64()) for name in TOTALS),
        ("place", pa.string()),
        *((name, pa.decimal128(38, 0) if "hash" in name else pa.int64()) for name in _OTHER_TOTALS),
    ]
)
