"""The proof on the executors: every source record must have its row in the table.

Both sides are brought to one form and digested. The proof first compares the sums of the digests, which needs no
shuffle: texts that are already in the form of their row are not parsed, and rows are encoded in Arrow. Only if the sums
differ it compares every digest, and explains value by value the records that have no row.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial, reduce
from io import BytesIO
from itertools import chain, groupby, islice
from math import ceil
from typing import Any, BinaryIO, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import WidenError
from widen.evolution.policy import Policy
from widen.files.arrow_types import to_arrow_schema
from widen.frames.table_writers import BATCH_ROWS, TaskFiles, cast_array, read_file
from widen.json.document import BOM
from widen.json.record_path import RecordPath
from widen.log.parquet_footers import ensure_chunks_readable
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.proof.canonical import EXTENSION_MARK, EncodedRecord, Form, count_values, digest, find_differences
from widen.proof.json_reader import split_into_parts, split_lines
from widen.proof.nested_records import all_nested_texts, read_nested_file
from widen.proof.proof_files import (
    FilePart,
    FileTasks,
    FileValueReader,
    FileValues,
    ProofFile,
    add_file_values,
    find_parts,
    read_proof_blocks,
)
from widen.proof.record_digests import DigestSum, RowDigester, SourceDigester, find_native_readers, read_csv_texts
from widen.proof.row_encoder import LayoutMatcher, RecordLayout, learn_layout
from widen.proof.row_reader import RowReader
from widen.proof.rules import build_proof_rules, read_defaults
from widen.proof.source_reader import SourceReader
from widen.protocol.parquet_files import is_legacy, is_legacy_int96
from widen.schema.source_metadata import RESCUED, role_field
from widen.sources.file_ranges import (
    FILE,
    HEAD_BYTES,
    MAX_WHOLE_FILE_BYTES,
    PART,
    REFUSED_PART,
    TEXT,
    WHOLE,
    are_few,
    begins_with_line,
    open_file,
    read_outermost_records,
    read_refused,
    task_bytes,
)
from widen.sources.listing import SourceFile, SourceFiles, count_partitions
from widen.spark.engine import LocalFrame, Rows, Session, is_local, require_spark, start_tasks
from widen.spark.errors import translate_spark_errors
from widen.spark.ship import without_garbage_collection
from widen.spark.spark_types import DataFrame, F

DIGEST, VALUES, CONVERTED, PLACE, FORM, DELETES = "digest", "values", "converted", "place", "form", "deletes"
"""The columns of the comparison: digest of a record or row, number of its values, number of converted values, where it
stands, its form, and whether it deletes if excluded fields say so."""

# An example. The source has two records, and the table has the columns a (bigint) and a__string:
#     source   {"a":1}       {"a": "x"}      forms: {"a":1} and {"a":"x"}, for any spaces and order of the text
#     table    (1, null)     (null, "x")     forms: {"a":1} and {"a":"x"}, since both columns say where they came from
# The sums of the digests agree, and nothing else is compared. A sum does not depend on the order of rows, and a row
# that is there twice changes it. If the second row were (null, "y"), the sums would differ. Then every digest is
# compared: the record {"a":"x"} has no row, and the row {"a":"y"} has no record. They are similar, so the result names
# the value of a in that record, with its file and number, and not a whole record.

MAX_SHOWN = 10
"""Maximum number of lost records that the result names."""

_MAX_CANDIDATES = 200
"""Maximum number of unmatched rows that the proof searches for the row of a lost record."""

_SIGN, _SIDE, _RECORDS = "sign", "side", "records"
_DDL = f"{DIGEST} binary, {VALUES} bigint, {CONVERTED} bigint, {PLACE} string, {FORM} binary, {DELETES} boolean"
_SCHEMA = pa.schema(
    {
        DIGEST: pa.binary(),
        VALUES: pa.int64(),
        CONVERTED: pa.int64(),
        PLACE: pa.string(),
        FORM: pa.binary(),
        DELETES: pa.bool_(),
    }
)
_SUMS_DDL = f"{_SIDE} int, {DIGEST} binary, {_RECORDS} bigint, {VALUES} bigint, {CONVERTED} bigint"
_SUMS_SCHEMA = pa.schema(
    [(_SIDE, pa.int32()), (DIGEST, pa.binary()), *((name, pa.int64()) for name in (_RECORDS, VALUES, CONVERTED))]
)


@dataclass(frozen=True, slots=True)
class RecordForm:
    """A record or a row as the proof compares it.

    Args:
        converted: Number of values that the table has in another form than the source; None for rows.
        deletes: Whether the record deletes, if excluded fields say so; None if that cannot be told.
    """

    form: Form
    values: int = 0
    converted: int | None = None
    place: str | None = None
    deletes: bool | None = None


Reader: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[RecordForm]]
Digester: TypeAlias = Callable[[RecordLayout, int, Iterable[pa.RecordBatch]], DigestSum]
"""Sums the digests of batches, with a layout and the limit of a sample."""
FormTask: TypeAlias = Callable[[Iterator[RecordForm]], Iterator[pa.RecordBatch]]
"""What a task makes of records."""


@dataclass(frozen=True, slots=True)
class TaskShare:
    """What a task reads of a side: one of equal shares."""

    number: int
    count: int
    layout: RecordLayout
    limit: int


@dataclass(frozen=True, slots=True)
class TaskReader:
    """Reads the records or rows of a side in tasks, without Spark.

    Args:
        count: Number of tasks that are worth their start.
        is_local: Whether this process reads faster than a Spark job.
    """

    spark: Session
    count: int
    read: Callable[[TaskShare], DigestSum]
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """The records of a source or the rows of a table.

    Args:
        digests: Returns one row for each, with `DIGEST`, `VALUES`, `CONVERTED`, `PLACE` and `FORM`.
        parts: Rows with their digester, for the sums.
        reader: Reads what is not in the parts, for the sums.
        map_records: Returns what tasks of this process make of the records of a source; None if Spark reads them.
    """

    digests: Callable[[], DataFrame]
    parts: tuple[tuple[Rows, Digester], ...] = ()
    reader: TaskReader | None = None
    learn: Callable[[], RecordLayout] = RecordLayout
    map_records: Callable[[FormTask], pa.Table] | None = None

    @property
    def has_sums(self) -> bool:
        """Whether the sums can be made; if not, Spark expressions make the digests."""
        return bool(self.parts or self.reader)


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of the proof. Each value of the source is exact, converted or lost.

    Args:
        records: Number of source records; a text that is not a record counts as one.
        leaves: Number of values in them: scalars that are not null, and empty arrays and objects.
        exact: Number of values that the table gives back unchanged.
        converted: Number of values that the table gives back as the mode says: of another kind, with another spelling,
            masked, or null for empty.
        lost: Number of values that the table does not give back. Must be 0.
        places: Where some records with lost values stand, with the paths of these values.
        extra: Number of rows without a source record. Must be 0.
        share: Share of the records and rows that was compared; 1 for all.
    """

    records: int
    leaves: int
    exact: int
    converted: int = 0
    lost: int = 0
    places: tuple[str, ...] = ()
    extra: int = 0
    share: float = 1.0

    @property
    def is_clean(self) -> bool:
        """Whether the table has every value and no extra row."""
        return not (self.lost or self.places or self.extra)

    def __str__(self) -> str:
        sample = "" if self.share >= 1 else f" in a sample of {self.share:.2%} of the records"
        converted = f", {self.converted} converted as the mode says" if self.converted else ""
        lost = f", {self.lost} LOST" if self.lost else ""
        extra = f", {self.extra} rows that no record accounts for" if self.extra else ""
        return f"{self.exact} of {self.leaves} leaves exact{converted}{lost}{extra}{sample}"

    def to_value(self) -> dict[str, Any]:
        """Return the result as a JSON object."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


def verify(source: Side, table: Side, share: float = 1.0, spark: Session | None = None) -> Verification:
    """Compare source records with the rows of a table.

    Args:
        spark: The session; one of Spark compares every digest, if the sums differ.
        share: Share of the records to compare. Their digests choose them, so that a record and its row are both in or
            out.

    Source: docs/evolution-rules.md#one-interval, #d20
    """
    limit = int(share * 2**32)
    with translate_spark_errors():
        if source.has_sums and table.has_sums:
            expected, actual = _sum_sides((source, table), source.learn(), limit)
            if (expected.digest, expected.records) == (actual.digest, actual.records):
                values, converted = expected.values + actual.values, expected.converted + actual.converted
                return Verification(expected.records, values, values - converted, converted, share=share)
        if spark is not None:
            require_spark(spark, "rows differ from their records, and it finds out which")
        return _compare_digests(source, table, limit, share)


# ---- sums ------------------------------------------------------------------------------------------


def _sum_sides(sides: Sequence[Side], layout: RecordLayout, limit: int) -> list[DigestSum]:
    """Return the sum of each side. One job makes all of them."""
    totals = [DigestSum() for _ in sides]
    for row in _partial_sums(sides, layout, limit):
        digest = int.from_bytes(row[DIGEST], "big")
        totals[row[_SIDE]].merge(digest, row[_RECORDS], row[VALUES], row[CONVERTED])
    return totals


def _partial_sums(sides: Sequence[Side], layout: RecordLayout, limit: int) -> list[dict[str, Any]]:
    frames: list[Any] = [
        rows.mapInArrow(partial(_sum_rows, number, partial(digest, layout, limit)), _SUMS_DDL)
        for number, side in enumerate(sides)
        for rows, digest in side.parts
    ]
    readers = {number: side.reader for number, side in enumerate(sides) if side.reader}
    if readers:
        # One task reads its share of both sides, since a task costs more than a few megabytes.
        count = max(reader.count for reader in readers.values())
        shares = [TaskShare(number, count, layout, limit) for number in range(count)]
        reads = {number: reader.read for number, reader in readers.items()}
        if not frames and any(reader.is_local for reader in readers.values()):
            return [row for share in shares for row in _sum_share(reads, share)]
        numbers = start_tasks(next(iter(readers.values())).spark, count)
        frames.append(numbers.mapInArrow(partial(_sum_tasks, reads, shares), _SUMS_DDL))
    # Spark runs several frames as one job; here each frame has its own tasks.
    collected = frames if any(isinstance(each, LocalFrame) for each in frames) else [reduce(DataFrame.unionAll, frames)]
    return [row for frame in collected for row in frame.toArrow().to_pylist()]


def _sum_rows(
    side: int, digest: Callable[[Iterable[pa.RecordBatch]], DigestSum], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        row = _to_sums_row(side, digest(batches))
    yield pa.RecordBatch.from_pylist([row], schema=_SUMS_SCHEMA)


_Read: TypeAlias = Callable[[TaskShare], DigestSum]


def _sum_tasks(
    reads: Mapping[int, _Read], shares: Sequence[TaskShare], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pylist(_sum_share(reads, shares[number]), schema=_SUMS_SCHEMA)


def _sum_share(reads: Mapping[int, _Read], share: TaskShare) -> list[dict[str, Any]]:
    with without_garbage_collection():
        return [_to_sums_row(side, read(share)) for side, read in reads.items()]


def _to_sums_row(side: int, total: DigestSum) -> dict[str, Any]:
    counts = {_RECORDS: total.records, VALUES: total.values, CONVERTED: total.converted}
    return {_SIDE: side, DIGEST: total.digest.to_bytes(16, "big"), **counts}


# ---- every digest ----------------------------------------------------------------------------------

_TOTALS = ("records", "values", "exact", "converted", "missing", "extra")


def _compare_digests(source: Side, table: Side, limit: int, share: float) -> Verification:
    digests = _signed_digests(source, 1).unionAll(_signed_digests(table, -1))
    matches = _match_digests(digests if limit >= 2**32 else digests.where(F.crc32(DIGEST) < limit))
    sums = matches.agg(*(F.coalesce(F.sum(name), F.lit(0)).cast("bigint") for name in _TOTALS)).collect()[0]
    records, values, exact, converted, missing, extra = sums
    if not missing:
        return Verification(records, values, exact, converted, values - exact - converted, (), extra, share)
    lost = matches.where(F.col("missing") > 0).select(DIGEST, PLACE).orderBy(PLACE).limit(MAX_SHOWN).collect()
    # The row of a lost record is among the extra ones, if it has any.
    more = matches.where(F.col("extra") > 0).select(DIGEST).limit(_MAX_CANDIDATES).collect() if extra else []
    lost_places = {bytes(row[DIGEST]): row[PLACE] for row in lost}
    places, saved = _explain_lost(source, table, lost_places, [row[DIGEST] for row in more])
    exact += saved
    return Verification(records, values, exact, converted, values - exact - converted, places, extra, share)


def digest_records(rows: Rows, read: Reader) -> DataFrame:
    """Return the digests of the records or rows that a reader makes of rows; see `Side`."""
    return cast(DataFrame, rows.mapInArrow(partial(_digest_task, read), _DDL))


def _digest_task(read: Reader, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        for batch in batches:
            rows = [_digest_row(record) for record in read([batch])]
            yield pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def _digest_row(record: RecordForm) -> dict[str, Any]:
    form = msgspec.msgpack.encode(record.form)
    counts = {VALUES: record.values, CONVERTED: record.converted}
    return {DIGEST: digest(record.form), **counts, PLACE: record.place, FORM: form, DELETES: record.deletes}


def _signed_digests(side: Side, sign: int) -> DataFrame:
    return side.digests().select(DIGEST, VALUES, CONVERTED, PLACE, F.lit(sign).alias(_SIGN))


def _match_digests(digests: DataFrame) -> DataFrame:
    """Return for each digest the records, their values, and the number of missing and extra rows."""
    is_source = F.col(_SIGN) == 1
    grouped = digests.groupBy(DIGEST).agg(
        F.count_if(is_source).alias("records"),
        F.count_if(~is_source).alias("rows"),
        F.coalesce(F.sum(F.when(is_source, F.col(VALUES))), F.lit(0)).alias("values"),
        # Equal records may be spelled differently, so each has its own count of conversions; rows have no conversions.
        F.coalesce(F.avg(CONVERTED), F.lit(0)).alias("each"),
        F.min(PLACE).alias(PLACE),
    )
    records, rows = F.col("records"), F.col("rows")
    matched = F.least(records, rows)
    stored = F.when(matched == 0, 0).otherwise(F.col("values") * matched / records)
    converted = F.round(F.col("each") * matched)
    return grouped.select(
        *(DIGEST, "records", "values", PLACE),
        (F.round(stored) - converted).alias("exact"),
        converted.alias("converted"),
        F.greatest(records - rows, F.lit(0)).alias("missing"),
        F.greatest(rows - records, F.lit(0)).alias("extra"),
    )


# ---- what differs, value by value ------------------------------------------------------------------


def _explain_lost(
    source: Side, table: Side, lost: dict[bytes, str], extra: Collection[bytes]
) -> tuple[tuple[str, ...], int]:
    """Return the places and paths of lost values, and the number of values of these records that are not lost.

    Args:
        lost: Some records without a row: their digests with their places.
        extra: The digests of some rows without a record.
    """
    records, rows = _collect_forms(source, lost), list(_collect_forms(table, extra).values())
    places, saved = [], 0
    for each, place in sorted(lost.items(), key=lambda item: item[1] or ""):
        paths, kept = _closest_row(records.get(each), rows)
        saved += kept
        places.append(f"{place}: {', '.join(paths)}" if paths else str(place))
    return tuple(places), saved


def _closest_row(form: Form, rows: list[Form]) -> tuple[list[str], int]:
    """Return the paths where the most similar row differs from a record, and how many values the row shares with it."""
    best: tuple[list[str], int] = [], 0
    if not isinstance(form, dict):
        return best
    values = count_values(form)
    for row in rows:
        differences = list(find_differences(form, row)) if isinstance(row, dict) else []
        kept = values - sum(count for _, count in differences) if differences else 0
        if kept > best[1]:
            best = [path for path, _ in differences], kept
    return best


def _collect_forms(side: Side, digests: Collection[bytes]) -> dict[bytes, Form]:
    """Return the forms of some digests, by digest; empty if Spark expressions made the digests."""
    if not digests:
        return {}
    found = side.digests().where(F.col(DIGEST).isin(list(digests)) & F.col(FORM).isNotNull())
    rows = found.select(DIGEST, FORM).collect()
    return {bytes(row[DIGEST]): msgspec.msgpack.decode(row[FORM]) for row in rows}


# The two sides of the proof for records that come as texts: the texts, and the rows of the table.
#
# Source: docs/evolution-rules.md#proof


ROW = "row"
"""A row travels as one struct column, since ``mapInArrow`` reads a dot in a column name as a nested field."""

MAX_FILES, MAX_TASKS = 10_000, 200
"""Maximum number of files that are listed in the plan of a query, and of tasks that read them."""

UNREADABLE: EncodedRecord = (EXTENSION_MARK.encode(), 0, 0)
"""Matches no record. So every digest is compared, with the rows as Spark reads them."""

_UNREADABLE_SOURCE: EncodedRecord = (EXTENSION_MARK.encode() * 2, 0, 0)
"""Stands for a file of a source. It does not match any file of the table, even an unreadable one."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """The texts of a source, for the proof.

    Args:
        tasks: The files, if tasks can read them: for the sums, no text then passes through Spark's JVM.
    """

    spark: Session
    read: Callable[[], DataFrame]
    tasks: FileTasks | None = None
    fields: FileValueReader | None = None


def build_text_side(source: TextSource, schema: StructType, policy: Policy) -> Side:
    """Return the records of a source, for the schema of the table that holds them."""
    fields, tasks = source.fields, source.tasks
    # Where a key may be data, or be rescued, a null is not the same as nothing, so that a layout does not fit.
    # Records that get fields from their files are always parsed.
    is_document = any((policy.envelope, policy.record_path, policy.dialect))
    is_plain = build_proof_rules(schema, policy).is_plain and not is_document and not read_defaults(schema)
    has_layout = is_plain and fields is None and role_field(schema, RESCUED) is None
    # Where this process would read the texts for a sample, it parses all of them in the same time.
    has_layout = has_layout and not (tasks is None and is_local(source.spark))
    parts: list[tuple[Rows, Digester]] = []
    reader = None
    if tasks is None:
        parts.append((source.read(), partial(_sum_texts, schema, policy, fields)))
    else:
        share = partial(_sum_files, tasks.files, schema, policy, fields)
        reader = TaskReader(source.spark, tasks.count, share, tasks.is_local)
    return Side(
        lambda: digest_records(source.read(), partial(_read_texts, schema, policy, fields)),
        tuple(parts),
        reader,
        partial(_learn_layout, source, schema, policy) if has_layout else RecordLayout,
        partial(_map_records, source, schema, policy) if is_local(source.spark) else None,
    )


def _map_records(source: TextSource, schema: StructType, policy: Policy, task: FormTask) -> pa.Table:
    if source.tasks is None:
        return source.read().mapInArrow(partial(_map_texts, schema, policy, source.fields, task), "").toArrow()
    count = source.tasks.count
    read = partial(_read_files, source.tasks.files, schema, policy, source.fields, count)
    return start_tasks(source.spark, count).mapInArrow(partial(_map_files, read, task), "").toArrow()


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """Parquet files of a source whose values are compared by columns.

    Args:
        schema: The columns to read, in the types of the records.
        fields: Reader of the fields that records get from their files; None if they get none.
        prepare: Returns records as they are digested, in other types; None if that is as they are read.
        digested: The types that are used to digest them; by default the types of the schema.
    """

    files: Sequence[SourceFile]
    schema: StructType
    fields: FileValueReader | None = None
    prepare: Callable[[pa.StructArray], pa.StructArray] | None = None
    digested: StructType | None = None


def build_column_reader(spark: Session, parts: Sequence[ColumnFiles]) -> TaskReader:
    """Return a reader of the sums of Parquet files: tasks read the columns, and none passes through Spark's JVM."""
    files = tuple(file for part in parts for file in part.files)
    limit = task_bytes(files, count_partitions(spark, SourceFiles((), files)))
    count = ceil(sum(file.size_bytes for file in files) / limit) or 1
    return TaskReader(spark, count, partial(_sum_column_files, tuple(parts)), are_few(spark, files))


def build_file_reader(spark: Session, files: TaskFiles, schema: StructType, policy: Policy) -> TaskReader:
    """Return a reader of the sums of the files of a table."""
    count = max(1, min(len(files.paths), MAX_TASKS))
    return TaskReader(spark, count, partial(_sum_table_files, files, schema, policy))


def build_row_side(
    spark: Session,
    read: Callable[[], Rows],
    schema: StructType,
    policy: Policy,
    quarantined_records: Callable[[], Rows] | None = None,
    files: TaskFiles | None = None,
) -> Side:
    """Return the rows of a table and the quarantined texts of records that came as texts.

    Args:
        quarantined_records: Returns the quarantined texts, in a column `TEXT`.
        files: The files of the rows, if tasks can read them: for the sums, no row then passes through Spark's JVM.
    """
    parts: list[tuple[Rows, Digester]] = []
    reader = None
    if files is None or len(files.paths) > MAX_FILES:
        parts.append((to_structs(read()), partial(_sum_row_batches, schema, policy)))
    else:
        reader = build_file_reader(spark, files, schema, policy)
    if quarantined_records is not None:
        parts.append((quarantined_records(), partial(_sum_quarantined_records, schema, policy)))

    def digests() -> DataFrame:
        rows = digest_records(to_structs(read()), partial(_read_rows, schema, policy))
        if quarantined_records is None:
            return rows
        return rows.unionAll(digest_records(quarantined_records(), partial(_read_quarantined_texts, schema, policy)))

    return Side(digests, tuple(parts), reader)


def to_structs(rows: Rows) -> Rows:
    """Return rows as one struct column; see `ROW`."""
    if isinstance(rows, LocalFrame):
        return rows.mapInArrow(_to_struct_batches, None)
    return rows.select(F.struct("*").alias(ROW))


def _to_struct_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.to_struct_array()], names=[ROW])


_SAMPLE_RECORDS, _SAMPLE_BYTES = 50, 2**15
_MIN_MATCHING = 0.3


def _learn_layout(source: TextSource, schema: StructType, policy: Policy) -> RecordLayout:
    if find_native_readers() is not None:  # the native readers parse all records, and know the plain layout only
        return RecordLayout()
    sample = list(islice(_read_samples(source), _SAMPLE_RECORDS))
    layout = learn_layout(sample)
    matches = filter(None, map(LayoutMatcher(SourceReader(schema, policy).fields, layout).match, sample))
    # What is parsed is encoded faster without a layout.
    return layout if _MIN_MATCHING * len(sample) <= len(list(matches)) else RecordLayout()


def _read_samples(source: TextSource) -> Iterator[bytes]:
    """Yield texts from the beginning of a source."""
    if source.tasks is not None:
        for name in source.tasks.files[:_SAMPLE_RECORDS]:
            with open_file(name.uri) as file:
                yield from split_lines(_complete_lines(file.read(_SAMPLE_BYTES)))
        return
    head = source.read().select(F.substring(TEXT, 1, _SAMPLE_BYTES).alias(TEXT), WHOLE).limit(_SAMPLE_RECORDS)
    for text, is_whole in head.collect():
        yield from split_lines(_complete_lines(bytes(text))) if is_whole else (bytes(text),)


def _complete_lines(head: bytes) -> bytes:
    return head if len(head) < _SAMPLE_BYTES else head.rpartition(b"\n")[0]


def _read_texts(
    schema: StructType, policy: Policy, files: FileValueReader | None, batches: Iterable[pa.RecordBatch]
) -> Iterator[RecordForm]:
    reader, positions = SourceReader(schema, policy), _TextPositions(policy.record_path)
    values_of = cache(files.read) if files else _no_file_values
    for batch in batches:
        for text, file, place in positions.texts(batch):
            is_refused = place is None
            for row in reader.read_refused(text, values_of(file)) if is_refused else reader.read(text, values_of(file)):
                yield RecordForm(row.form, row.values, row.converted, place, row.deletes)


def _map_texts(
    schema: StructType,
    policy: Policy,
    files: FileValueReader | None,
    task: FormTask,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        yield from task(_read_texts(schema, policy, files, batches))


def _map_files(
    read: Callable[[int], Iterator[RecordForm]], task: FormTask, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with without_garbage_collection():
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            yield from task(read(number))


def _read_files(
    files: Sequence[ProofFile],
    schema: StructType,
    policy: Policy,
    fields: FileValueReader | None,
    tasks: int,
    task: int,
) -> Iterator[RecordForm]:
    """Yield the records of the share of a task, cut by the proof as in `_sum_files`."""
    reader, values_of = SourceReader(schema, policy), fields.read if fields else _no_file_values
    for part in find_parts(files, task, tasks):
        values, uri = values_of(part.file.uri), part.file.uri
        name = f"{uri} from byte {part.start}" if part.start else uri
        with open_file(uri) as file:
            for number, (text, is_refused) in enumerate(_texts_of(file, part, policy.record_path), 1):
                rows = reader.read_refused(text, values) if is_refused else reader.read(text, values)
                place = f"{name}:{number}"
                yield from (RecordForm(row.form, row.values, row.converted, place, row.deletes) for row in rows)


def _texts_of(file: BinaryIO, part: FilePart, path: RecordPath | None) -> Iterator[tuple[bytes, bool]]:
    """Yield the texts of a part of a file, each with whether it is known not to be a record."""
    if path is not None:
        lines = (line for block in read_proof_blocks(file, part.start, part.end) for line in block.splitlines())
        found = read_nested_file(file, path, part.file.uri) if part.file.is_whole else all_nested_texts(lines, path)
        yield from ((text, not is_record) for text, is_record in found)
    elif part.file.csv is not None:
        yield from ((text.text, not text.is_record) for text in read_csv_texts(file, part.file.csv))
    elif part.file.is_whole:
        yield from ((text, False) for text in split_into_parts(file.read()))
    else:
        for block in read_proof_blocks(file, part.start, part.end):
            yield from ((line, False) for line in block.splitlines())


def _sum_texts(
    schema: StructType,
    policy: Policy,
    files: FileValueReader | None,
    layout: RecordLayout,
    limit: int,
    batches: Iterable[pa.RecordBatch],
) -> DigestSum:
    digester, values_of = SourceDigester(schema, policy, layout, limit), cache(files.read) if files else _no_file_values
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        rows = zip(*columns, strict=True)
        for (file, is_whole, is_refused), group in groupby(rows, lambda row: (row[1], row[3], row[2] == REFUSED_PART)):
            texts = [row[0] for row in group]
            if is_refused:
                refused = (each for text in texts for each in read_refused(text).texts)
                digester.add_refused(refused, values_of(file))
            elif is_whole:
                for text in texts:
                    _add_whole(digester, text, values_of(file), has_path=policy.record_path is not None)
            else:
                digester.add_texts(texts, values_of(file))
    return digester.sum()


def _add_whole(digester: SourceDigester, text: bytes, file_values: FileValues, *, has_path: bool) -> None:
    if len(text) <= MAX_WHOLE_FILE_BYTES or has_path:
        digester.add_file(text, file_values)
    else:
        digester.add_texts(list(_split_whole(text)), file_values)


def _split_whole(text: bytes) -> Iterator[bytes]:
    """Yield the texts of a whole file. For a large one, which was small while it was compressed, its first line tells
    the form.

    Source: docs/guide/json.md#large
    """
    if len(text) <= MAX_WHOLE_FILE_BYTES:
        yield from split_into_parts(text)
    elif begins_with_line(text[:HEAD_BYTES]):
        yield from text.removeprefix(BOM).splitlines()
    else:
        yield from chain.from_iterable(read_outermost_records(BytesIO(text)))


def _sum_files(
    files: Sequence[ProofFile],
    schema: StructType,
    policy: Policy,
    fields: FileValueReader | None,
    share: TaskShare,
) -> DigestSum:
    digester = SourceDigester(schema, policy, share.layout, share.limit)
    values_of = fields.read if fields else _no_file_values
    for part in find_parts(files, share.number, share.count):
        values = values_of(part.file.uri)
        with open_file(part.file.uri) as file:
            if part.file.csv is not None:
                digester.add_csv(file, part.file.csv, values)
                continue
            if part.file.is_whole:
                digester.add_open_file(file, part.file.uri, values)
                continue
            for block in read_proof_blocks(file, part.start, part.end):
                digester.add_lines(block, values)
    return digester.sum()


def _sum_column_files(parts: Sequence[ColumnFiles], share: TaskShare) -> DigestSum:
    total = DigestSum(share.limit)
    sizes = [[ProofFile(file.uri, file.size_bytes, False) for file in part.files] for part in parts]
    for part, files in zip(parts, sizes, strict=True):
        # Records in columns are digested as rows are, by the types and names that the source gives them.
        digester = RowDigester(part.digested or part.schema, Policy(), share.layout, share.limit)
        arrow = to_arrow_schema(part.schema)
        left_out = {file.uri: frozenset(file.left_out) for file in part.files}
        for cut in find_parts(files, share.number, share.count):
            try:
                with open_file(cut.file.uri) as source:
                    file = pq.ParquetFile(source, coerce_int96_timestamp_unit="us")
                    if is_legacy(file.metadata.metadata) or is_legacy_int96(file.metadata.metadata):
                        digester.add_encoded(_UNREADABLE_SOURCE)  # Spark reads its dates in another calendar
                        continue
                    given = add_file_values({}, part.fields.read(cut.file.uri)) if part.fields else {}
                    for rows in _read_columns(file, cut.start, cut.end, arrow, given, left_out[cut.file.uri]):
                        digester.add(rows if part.prepare is None else part.prepare(rows))
            except (WidenError, KeyError, UnicodeDecodeError, pa.ArrowException):
                digester.add_encoded(_UNREADABLE_SOURCE)
        found = digester.sum()
        # The sum of the rows has their values.
        total.merge(found.digest, found.records, 0, 0)
    return total


def _read_columns(
    file: pq.ParquetFile,
    start: int,
    end: int,
    schema: pa.Schema,
    given: Mapping[str, str | None],
    left_out: Collection[int] = (),
) -> Iterator[pa.StructArray]:
    """Yield the rows of the row groups that begin in a range of a file; a column that it lacks is null.

    Args:
        given: The fields that the records get from their file, with the value that all of them have.
    """
    footer = file.metadata
    if footer.num_row_groups > 1:
        ensure_chunks_readable(footer)
    # The first row group begins at the start of the file, regardless of what stands before it.
    begins = [0, *(_begin_of(footer.row_group(number)) for number in range(1, footer.num_row_groups))]
    groups = [number for number, begin in enumerate(begins[: footer.num_row_groups]) if start <= begin < end]
    names = [name for name in schema.names if name in file.schema_arrow.names]
    at = sum(footer.row_group(number).num_rows for number in range(groups[0])) if groups and left_out else 0
    for batch in file.iter_batches(BATCH_ROWS, groups, columns=names, use_threads=False) if groups else ():
        columns = [
            cast_array(batch.column(field.name), field.type)
            if field.name in names
            else _repeat(given.get(field.name), field.type, len(batch))
            for field in schema
        ]
        rows = pa.StructArray.from_arrays(columns, fields=list(schema))
        if left_out:
            rows = rows.take(pa.array([each for each in range(len(rows)) if at + each not in left_out], pa.int64()))
            at += len(batch)
        yield rows


def _repeat(text: str | None, data_type: pa.DataType, count: int) -> pa.Array:
    value = text if text is None or pa.types.is_string(data_type) else datetime.fromisoformat(text)
    return pa.repeat(pa.scalar(value, data_type), count)


def _begin_of(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    return int(first.dictionary_page_offset if first.has_dictionary_page else first.data_page_offset)


def _no_file_values(file: str) -> FileValues:
    return ()


class _TextPositions:
    """Numbers the texts of each file or split."""

    def __init__(self, path: RecordPath | None) -> None:
        self._path = path
        self._split: tuple[str, int] = ("", 0)
        self._number = 0

    def texts(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, str, str | None]]:
        """Yield the texts of a part of a raw batch, each with its file and its place; None if it is not a record."""
        columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        for text, file, part, is_whole in zip(*columns, strict=True):
            if part == REFUSED_PART:
                yield from ((each, file, None) for each in read_refused(text).texts)
                continue
            if is_whole and self._path is not None:
                found = enumerate(read_nested_file(BytesIO(text), self._path, file), 1)
                yield from ((each, file, f"{file}:{number}" if fits else None) for number, (each, fits) in found)
                continue
            if is_whole:
                yield from ((each, file, f"{file}:{number}") for number, each in enumerate(_split_whole(text), 1))
                continue
            self._number = self._number + 1 if self._split == (file, part) else 1
            self._split = file, part
            place = f"{file} from byte {part}:{self._number}" if part else f"{file}:{self._number}"
            for each, fits in all_nested_texts([text], self._path):
                yield each, file, place if fits else None


def _read_rows(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordForm]:
    reader = RowReader(schema, policy)
    return map(RecordForm, chain.from_iterable(reader.forms(batch.column(0)) for batch in batches))


def _read_quarantined_texts(
    schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]
) -> Iterator[RecordForm]:
    reader = SourceReader(schema, policy)
    texts = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return (RecordForm(reader.read_quarantined_records(text)) for text in texts)


def _sum_row_batches(
    schema: StructType, policy: Policy, layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]
) -> DigestSum:
    digester = RowDigester(schema, policy, layout, limit)
    for batch in batches:
        digester.add(batch.column(0))
    return digester.sum()


def _sum_quarantined_records(
    schema: StructType, policy: Policy, layout: RecordLayout, limit: int, batches: Iterable[pa.RecordBatch]
) -> DigestSum:
    digester = SourceDigester(schema, policy, layout, limit)
    for batch in batches:
        digester.add_quarantined(batch.column(0).to_pylist())
    return digester.sum()


def _sum_table_files(files: TaskFiles, schema: StructType, policy: Policy, share: TaskShare) -> DigestSum:
    digester, arrow = RowDigester(schema, policy, share.layout, share.limit), to_arrow_schema(schema)
    for path in files.paths[share.number :: share.count]:
        try:
            for rows in read_file(files, path, arrow):
                digester.add(rows.to_struct_array())
        except (WidenError, KeyError, OSError, pa.ArrowException):
            digester.add_encoded(UNREADABLE)
    return digester.sum()
