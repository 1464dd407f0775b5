"""The two sides of the proof for records that come as texts: the texts, and the rows of the table.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, islice

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import WidenError
from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.proof.file_parts import FileTasks, ProofFile, find_parts, read_line_blocks
from widen.proof.file_values import FileValueReader, FileValues
from widen.proof.json_reader import split_file, split_lines
from widen.proof.proof_rules import build_proof_rules
from widen.proof.record_digest import EXTENSION_MARK, EncodedRecord
from widen.proof.record_layout import LayoutMatcher, RecordLayout, learn_layout
from widen.proof.row_encoder import RowEncoder
from widen.proof.row_reader import RowReader
from widen.proof.source_reader import SourceEncoder, SourceReader
from widen.spark.arrow_types import to_arrow_schema
from widen.spark.ingest.table_files import TaskFiles
from widen.spark.source.file_ranges import open_file
from widen.spark.source.raw_batch import FILE, PART, REFUSED_PART, TEXT, WHOLE, read_refused
from widen.spark.text.verification import Encoder, RecordForm, Side, TaskReader, digest_records

ROW = "row"
"""A row travels as one struct column, since ``mapInArrow`` reads a dot in a column name as a nested field."""

MAX_FILES, MAX_TASKS = 10_000, 200
"""Maximum number of files that are listed in the plan of a query, and of tasks that read them."""

_UNREADABLE: EncodedRecord = (EXTENSION_MARK.encode(), 0, 0)
"""Matches no record, so that every digest is compared, with the rows as Spark reads them."""


@dataclass(frozen=True, slots=True)
class TextSource:
    """The texts of a source, for the proof.

    Args:
        read: Returns the raw batch.
        tasks: The files, if tasks can read them: for the sums, no text then passes through Spark's JVM.
        fields: Reader of the fields that records get from their files.
    """

    spark: SparkSession
    read: Callable[[], DataFrame]
    tasks: FileTasks | None = None
    fields: FileValueReader | None = None


def build_text_side(source: TextSource, schema: StructType, policy: Policy) -> Side:
    """Return the records of a source, for the schema of the table that holds them."""
    fields, tasks = source.fields, source.tasks
    # Where a key may be data, a null is not the same as nothing, so that a layout does not fit.
    # Records that get fields from their files are always parsed.
    has_layout = build_proof_rules(schema, policy).is_plain and fields is None
    parts: list[tuple[DataFrame, Encoder]] = []
    reader = None
    if tasks is None:
        parts.append((source.read(), partial(_encode_texts, schema, policy, fields)))
    else:
        share = partial(_encode_share, tasks.files, schema, policy, fields)
        reader = TaskReader(source.spark, tasks.count, share, tasks.is_local)
    return Side(
        lambda: digest_records(source.read(), partial(_read_texts, schema, policy, fields)),
        tuple(parts),
        reader,
        partial(_learn_layout, source, schema, policy) if has_layout else RecordLayout,
    )


def build_row_side(
    spark: SparkSession,
    read: Callable[[], DataFrame],
    schema: StructType,
    policy: Policy,
    kept_out: DataFrame | None = None,
    files: TaskFiles | None = None,
) -> Side:
    """Return the rows of a table and the quarantined texts of records that came as texts.

    Args:
        read: Returns the rows.
        kept_out: Quarantined texts, in a column `TEXT`.
        files: The files of the rows, if tasks can read them: for the sums, no row then passes through Spark's JVM.
    """
    parts: list[tuple[DataFrame, Encoder]] = []
    reader = None
    if files is None or len(files.paths) > MAX_FILES:
        parts.append((_to_structs(read()), partial(_encode_rows, schema, policy)))
    else:
        count = max(1, min(len(files.paths), MAX_TASKS))
        reader = TaskReader(spark, count, partial(_encode_files, files, schema, policy))
    if kept_out is not None:
        parts.append((kept_out.select(TEXT), partial(_encode_kept_out, schema, policy)))

    def digests() -> DataFrame:
        rows = digest_records(_to_structs(read()), partial(_read_rows, schema, policy))
        if kept_out is None:
            return rows
        return rows.unionAll(digest_records(kept_out.select(TEXT), partial(_read_kept_out, schema, policy)))

    return Side(digests, tuple(parts), reader)


def _to_structs(rows: DataFrame) -> DataFrame:
    return rows.select(F.struct("*").alias(ROW))


_SAMPLE_RECORDS, _SAMPLE_BYTES = 50, 2**15
_MIN_MATCHING = 0.3
_ROWS = 10_000


def _learn_layout(source: TextSource, schema: StructType, policy: Policy) -> RecordLayout:
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
    reader, positions = SourceReader(schema, policy), _TextPositions()
    values_of = cache(files.read) if files else _no_file_values
    for batch in batches:
        for text, file, place in positions.texts(batch):
            is_refused = place is None
            for row in reader.read_refused(text) if is_refused else reader.read(text, values_of(file)):
                yield RecordForm(row.form, row.values, row.converted, place)


def _encode_texts(
    schema: StructType,
    policy: Policy,
    files: FileValueReader | None,
    layout: RecordLayout,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[EncodedRecord]:
    encoder, values_of = SourceEncoder(schema, policy, layout), cache(files.read) if files else _no_file_values
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        for text, file, part, is_whole in zip(*columns, strict=True):
            if part == REFUSED_PART:
                yield from map(encoder.encode_refused, read_refused(text).texts)
                continue
            yield from (encoder.encode_file if is_whole else encoder.encode)(text, values_of(file))


def _encode_share(
    files: Sequence[ProofFile],
    schema: StructType,
    policy: Policy,
    fields: FileValueReader | None,
    tasks: int,
    task: int,
    layout: RecordLayout,
) -> Iterator[EncodedRecord]:
    encoder, values_of = SourceEncoder(schema, policy, layout), fields.read if fields else _no_file_values
    for part in find_parts(files, task, tasks):
        values = values_of(part.file.uri)
        with open_file(part.file.uri) as file:
            if part.file.is_whole:
                yield from encoder.encode_file(file.read(), values)
                continue
            for block in read_line_blocks(file, part.start, part.end):
                yield from encoder.encode_texts(block.splitlines(), values)


def _no_file_values(file: str) -> FileValues:
    return ()


class _TextPositions:
    """Numbers the texts of each file or split."""

    def __init__(self) -> None:
        self._split: tuple[str, int] = ("", 0)
        self._number = 0

    def texts(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, str, str | None]]:
        """Yield the texts of a part of a raw batch, each with its file and its place; None if it is not a record."""
        columns = (batch.column(name).to_pylist() for name in (TEXT, FILE, PART, WHOLE))
        for text, file, part, is_whole in zip(*columns, strict=True):
            if part == REFUSED_PART:
                yield from ((each, file, None) for each in read_refused(text).texts)
                continue
            if is_whole:
                yield from ((each, file, f"{file}:{number}") for number, each in enumerate(split_file(text), 1))
                continue
            self._number = self._number + 1 if self._split == (file, part) else 1
            self._split = file, part
            yield text, file, f"{file} from byte {part}:{self._number}" if part else f"{file}:{self._number}"


def _read_rows(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordForm]:
    reader = RowReader(schema, policy)
    return map(RecordForm, chain.from_iterable(reader.forms(batch.column(0)) for batch in batches))


def _read_kept_out(schema: StructType, policy: Policy, batches: Iterable[pa.RecordBatch]) -> Iterator[RecordForm]:
    reader = SourceReader(schema, policy)
    texts = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return (RecordForm(reader.read_kept_out(text)) for text in texts)


def _encode_rows(
    schema: StructType, policy: Policy, layout: RecordLayout, batches: Iterable[pa.RecordBatch]
) -> Iterator[EncodedRecord]:
    encoder = RowEncoder(schema, policy, layout)
    return chain.from_iterable(encoder.encode(batch.column(0)) for batch in batches)


def _encode_kept_out(
    schema: StructType, policy: Policy, layout: RecordLayout, batches: Iterable[pa.RecordBatch]
) -> Iterator[EncodedRecord]:
    encoder = SourceEncoder(schema, policy, layout)
    texts = chain.from_iterable(batch.column(0).to_pylist() for batch in batches)
    return map(encoder.encode_kept_out, texts)


def _encode_files(
    files: TaskFiles, schema: StructType, policy: Policy, tasks: int, task: int, layout: RecordLayout
) -> Iterator[EncodedRecord]:
    encoder, arrow = RowEncoder(schema, policy, layout), to_arrow_schema(schema)
    for path in files.paths[task::tasks]:
        try:
            for rows in _read_file(files, path, arrow):
                yield from encoder.encode(rows)
        except (WidenError, KeyError, OSError, pa.ArrowException):
            yield _UNREADABLE


def _read_file(files: TaskFiles, path: str, schema: pa.Schema) -> Iterator[pa.StructArray]:
    with files.store.open(path) as source:
        # Spark 4.0 writes timestamps as INT96, which Arrow reads as nanoseconds by default; these end in the year 2262.
        file = pq.ParquetFile(pa.PythonFile(source, mode="r"), coerce_int96_timestamp_unit="us")
        for rows in file.iter_batches(_ROWS):
            columns = [_cast(rows.column(field.name), field.type) for field in schema]
            yield pa.StructArray.from_arrays(columns, fields=list(schema))


def _cast(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    return values if values.type == data_type else values.cast(data_type)
