"""Parquet files as a batch of this process: Arrow copies their columns, and nothing starts Spark.

The schemas are the ones that Spark reads: one for all files if Spark merges schemas, else one for each file. Spark must
read types and forms that it handles differently, and what `widen.batches.column_values` does not convert: it reads the
same batch, as `widen.batches.frame_batch`.

Source: docs/evolution-rules.md#d16, docs/guide/engine.md
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from functools import partial, reduce
from itertools import groupby
from operator import and_
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from widen.batches.column_copy import (
    READ_ROWS,
    ColumnCopy,
    CopiedRows,
    PathFields,
    RowGroup,
    RowReader,
    SourceFooter,
    find_column_copy,
    find_corrupt,
    find_fills,
    is_copied,
    map_files,
    pack_row_groups,
    read_first_rows,
    read_group,
    read_rows,
    to_source_footer,
)
from widen.batches.column_values import QuarantinedRecord, RowConversion, apply_rules, to_quarantine_rows
from widen.batches.corrupt_texts import not_utf8
from widen.batches.frame_batch import (
    TypedBatch,
    find_fields,
    observe_names,
    observe_types,
    spell_for_proof,
    split_by_home,
)
from widen.batches.observed_kinds import FactsOfKind, FileOrder, add_batch, facts_of, fill_counts, kinds
from widen.batches.text_batch import PLACED_TEXT, BatchResult, ContractReport, check_contract_rows
from widen.batches.text_tasks import MIN_COUNTED_RECORDS, BatchWriteSpec
from widen.batches.typed_frames import HEAD_RECORDS, fill_voids, is_untouched, is_void, void_fields, without_voids
from widen.errors import CorruptFile, InvalidType, SourceContentError, WidenError
from widen.errors.tables import first_line
from widen.evolution.plan import BadFile, ReadAs
from widen.evolution.policy import Policy, build_typed_field_rules, spell_as
from widen.files.arrow_types import count_up, stored_type, to_arrow, to_arrow_schema
from widen.files.data_reader import record_texts
from widen.files.data_writer import TableSink
from widen.frames.table_writers import TableRows, TableWriter
from widen.json.field_rules import (
    LOADED_AT,
    SIGN,
    SOURCE_FILE,
    FieldRules,
    FileFields,
    merge_file_fields,
    partition_folders,
    unescape_folder,
)
from widen.json.observation import (
    Observation,
    RecordObservation,
    RecordPosition,
    TemporalString,
    merge_observations,
    merge_records,
    observe_schema,
    unknown_types,
)
from widen.log.parquet_footers import find_damaged_footers
from widen.model.column_path import as_nullable, fields, format_path, leaves
from widen.model.schema_json import type_from_value, type_to_value
from widen.model.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileValueReader
from widen.proof.rules import leave_out, read_defaults
from widen.protocol.parquet_files import is_legacy, is_legacy_int96
from widen.rows.row import RecordRoute, build_routes
from widen.sources.arrow_columns import ColumnRules
from widen.sources.converted_files import ConvertedFile, OddTypes, find_unconvertible
from widen.sources.file_ranges import RawTexts, RefusedTexts, open_file
from widen.sources.listing import SourceFile, SourceFiles
from widen.spark.engine import (
    Rows,
    Session,
    Unsupported,
    as_unsupported,
    fail_if_unsupported,
    find_started,
    is_local,
    require_spark,
    run_on_engine,
    start_tasks,
    to_local_frame,
)
from widen.spark.errors import RESTORE_FILE, environment_error
from widen.spark.spark_types import DataFrame
from widen.verification.record_sides import RecordPart, build_source_side, build_table_side
from widen.verification.records import Side
from widen.verification.typed_records import RecordProof

_CODECS = frozenset({"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"})
"""The compressions that Arrow and Spark have in common without a library of their own."""

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
"""The key in a footer that Spark uses to write and read the schema of the rows."""

_TYPES: Mapping[pa.DataType, DataType] = {
    to_arrow(each): each for each in (BOOLEAN, BYTE, SHORT, INTEGER, LONG, FLOAT, DOUBLE, STRING, BINARY, DATE)
}
"""The types that Arrow and Spark read alike, besides decimals and times."""


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ColumnPart:
    """Files that are read with one schema.

    Args:
        read: The columns of the files. Some may be of the type void.
        origins: For files converted from source files, where their records come from, by the URI of the file.
    """

    files: tuple[SourceFile, ...]
    read: StructType
    footers: tuple[SourceFooter, ...]
    given: PathFields = field(default_factory=PathFields)
    origins: Mapping[str, ConvertedFile] = field(default_factory=dict)
    read_rows: RowReader = read_rows

    @property
    def own(self) -> StructType:
        """The columns of the files without columns of the type void."""
        return without_voids(self.read)

    def filled(self, schema: StructType, policy: Policy) -> ColumnPart:
        """Return the part as its records go to a table with a schema; see `fill_voids`."""
        if self.own == self.read:
            return self
        return replace(self, read=fill_voids(self.read, build_routes(schema, policy)))

    @property
    def schema(self) -> StructType:
        """The fields of the records."""
        return StructType((*self.own.fields, *self.given.schema.fields))

    def find_origin(self, uri: str, row: int) -> RecordPosition:
        """Return the position of a record in the source by its file and the index of its row there."""
        origin = self.origins.get(uri)
        return (uri, row + 1) if origin is None else (origin.source, origin.find_record(row) + 1)


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """A part with the field rules of a policy."""

    part: ColumnPart
    rules: FieldRules
    schema: StructType

    @property
    def types(self) -> Mapping[str, DataType]:
        """The type of each field."""
        return {each.name: each.type for each in self.schema}

    def root(self, *, assume_exact: bool) -> RecordObservation:
        """Return what the types say; see `observe_schema`."""
        pending = observe_schema(void_fields(self.part.read, self.rules))
        return merge_records(pending, observe_schema(self.schema, assume_exact=assume_exact))


def prepare_part(part: ColumnPart, base: StructType | None, policy: Policy) -> PreparedPart:
    """Return a part with the field rules of a policy."""
    rules = build_typed_field_rules(base or StructType(), policy)
    empty = {each.name: (pa.array([], to_arrow(each.type)), each.type) for each in part.schema}
    prepared = apply_rules(empty, rules)
    if any(isinstance(leaf, TemporalString) for _, kind in prepared.values() for _, leaf in leaves(kind)):
        raise Unsupported("strings of the source are read as dates or times")
    return PreparedPart(part, rules, StructType(tuple(Field(name, kind) for name, (_, kind) in prepared.items())))


@dataclass
class _OnSpark:
    """Holds the same batch on Spark, once something has needed it."""

    batch: TypedBatch | None = None


@dataclass(frozen=True)
class ParquetBatch:
    """A batch of Parquet files that this process reads.

    Args:
        open_on_spark: Opens the same files with a Spark session, which keeps the number of the part that each written
            folder belongs to.
    """

    spark: Session
    parts: Sequence[ColumnPart]
    open_on_spark: Callable[[dict[str, int]], TypedBatch]
    name: str
    left_out: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    files: tuple[SourceFile, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    source_table: str = ""
    read_as: tuple[ReadAs, ...] = ()
    kind: str = "Parquet"
    _homes: dict[str, int] = field(default_factory=dict)
    _other: _OnSpark = field(default_factory=_OnSpark)

    has_types = True

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what the types say, and how many values there are if the table changes; see `Batch`."""
        return self._here_or_on_spark(
            lambda: self._observe_here(base, policy), lambda batch: batch.prior_observation(base, policy)
        )

    def _observe_here(self, base: StructType | None, policy: Policy) -> Observation:
        parts = self._prepare(base, policy)
        names = observe_names(list(map(_names_of, self.parts)), base, policy)
        prior = observe_types([part.root for part in parts], base, policy, names)
        if prior.is_enough:
            observation = prior.observation
        else:
            observation = merge_observations(map(_count_head if prior.is_decided else _count_all, parts))
        hidden = find_fields(list(map(_names_of, self.parts)), sorted(policy.excluded | policy.masked))
        return msgspec.structs.replace(observation.merged(names), excluded_seen=[[*path] for path in hidden])

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return the observation of all values; see `Batch`."""
        return self._here_or_on_spark(
            lambda: merge_observations(map(_count_all, self._prepare(attempt.base, attempt.policy))),
            lambda batch: batch.observe(attempt),
        )

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Let tasks copy the files, and convert what the table has in another form; see `Batch`."""
        return self._here_or_on_spark(
            lambda: self.copy(self.find_copies(attempt, writer), writer), lambda batch: batch.write(attempt, writer)
        )

    def find_broken(self, attempt: BatchWriteSpec, writer: TableWriter, *, by_rules: bool = True) -> None:
        """Return None: the types of the source decide the columns, regardless of the records."""

    def check_contract(self, contract: object, policy: Policy) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        return self._here_or_on_spark(
            lambda: reduce(
                ContractReport.merged, (self._check_part(each, contract) for each in self.parts), ContractReport()
            ),
            lambda batch: batch.check_contract(contract, policy),
        )

    def _check_part(self, part: ColumnPart, contract: object) -> ContractReport:
        record_texts(part.schema, to_arrow_schema(part.schema).empty_table())
        tasks = pack_row_groups(self.spark, part.files, part.footers)
        numbers = start_tasks(self.spark, len(tasks))
        return check_contract_rows(numbers.mapInArrow(partial(_place_texts, part, tasks), ""), contract)

    def split_corrupt(self) -> tuple[TypedBatch | ParquetBatch, RawTexts]:
        """Return the batch without the records with a text that is not UTF-8, and these as a raw batch."""
        if find_started(self.spark) is not None:
            return self._on_spark.split_corrupt()
        parts, raw = [], []
        for part in self.parts:
            files, footers = [], []
            for file, footer in zip(part.files, part.footers, strict=True):
                found = find_corrupt(file, part.own)
                if found:
                    origin, _ = part.find_origin(file.uri, 0)
                    texts, numbers = [text for _, text in found], [part.find_origin(file.uri, at)[1] for at, _ in found]
                    raw.append(RefusedTexts(0, texts, numbers, [not_utf8(self.kind)] * len(found)).to_raw(origin))
                left_out = tuple(at for at, _ in found)
                files.append(replace(file, left_out=left_out))
                footers.append(footer.without_rows(left_out))
            parts.append(replace(part, files=tuple(files), footers=tuple(footers)))
        (batch,) = pa.Table.from_batches(raw).combine_chunks().to_batches()
        return replace(self, parts=parts), cast(RawTexts, to_local_frame(self.spark, batch))

    def prepare_proof(self) -> None:
        """Do nothing: this process compares all values that it writes; see `Batch`."""

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        if not is_local(self.spark):
            return self._on_spark.source_digests(schema, policy)
        side = build_source_side(self.spark, self._proof_parts(schema, policy))
        # Only Spark says which rows differ, if some do.
        return replace(side, digests=lambda: self._on_spark.source_digests(schema, policy).digests())

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        if not is_local(self.spark):
            return self._on_spark.table_digests(table, paths, policy, quarantined_records)
        parts = self._proof_parts(table.schema, policy)
        own = split_by_home(paths, self._homes, parts)
        side = build_table_side(self.spark, parts, table, own, quarantined_records)

        def digests() -> DataFrame:
            return self._on_spark.table_digests(table, paths, policy, quarantined_records).digests()

        return replace(side, digests=digests)

    def _proof_parts(self, schema: StructType, policy: Policy) -> list[RecordPart]:
        parts = []
        for part in self.parts:
            spelled, named = spell_for_proof(schema, policy, _names_of(part))
            fields = part.filled(spelled, named).schema
            # Where a file lacks a field, its column has the default, which the fields say nothing of.
            lacking = read_defaults(spelled).keys() - _shared_names(part, fields)
            proof = RecordProof(fields, leave_out(spelled, lacking), named)
            parts.append(RecordPart(proof, part.files, _value_reader(part.given)))
        return parts

    @property
    def _on_spark(self) -> TypedBatch:
        if self._other.batch is None:
            require_spark(self.spark, "it compares values that the table has in another form")
            self._other.batch = self.open_on_spark(self._homes)
        return self._other.batch

    def _here_or_on_spark(self, here: Callable[[], _Result], on_spark: Callable[[TypedBatch], _Result]) -> _Result:
        return run_on_engine(self.spark, lambda _: here(), lambda _: on_spark(self._on_spark))

    def _prepare(self, base: StructType | None, policy: Policy) -> list[PreparedPart]:
        return [prepare_part(part, *spell_as(base or StructType(), policy, _names_of(part))) for part in self.parts]

    def find_copies(self, attempt: BatchWriteSpec, writer: TableWriter) -> list[ColumnCopy]:
        """Return how each part is copied.

        Raises:
            Unsupported: the table needs Spark, or one of the parts.
        """
        copies = []
        for each in self.parts:
            schema, policy = spell_as(attempt.schema, attempt.policy, _names_of(each))
            base, _ = spell_as(attempt.base or StructType(), attempt.policy, _names_of(each))
            prepared = prepare_part(each.filled(schema, policy), base, policy)
            route = build_routes(schema, policy)
            part, sink = prepared.part, writer.find_sink(self.spark)
            if sink is None:
                raise Unsupported(f"of the table: {writer.find_obstacle()}")
            texts = tuple(sink.text_partitions) if isinstance(sink, TableSink) else ()
            conversion, pending = None, void_fields(part.read, prepared.rules)
            kept, given = {*prepared.schema.names, *pending.names}, part.given.schema.names
            fills = find_fills(writer.constant_defaults(), route, kept, given, part.files, part.footers)
            if texts or sink.rules or any(fills.values()) or not _is_copied(prepared, schema, route):
                conversion = RowConversion(
                    part.schema, prepared.rules, route, schema, policy.samples, texts, tuple(sink.rules), fills
                )
            copy = find_column_copy(
                self.spark, part.files, part.own, schema, route, sink, part.given, conversion, part.footers
            )
            assert copy is not None
            copies.append(copy)
        return copies

    def copy(
        self,
        copies: Sequence[ColumnCopy],
        writer: TableWriter,
        run: Callable[[ColumnCopy], CopiedRows] = ColumnCopy.run,
    ) -> BatchResult:
        """Let each copy write the rows of its part; return what they have written."""
        written: list[Any] = []
        quarantined: list[QuarantinedRecord] = []
        seen = []
        with ExitStack() as undo:
            for number, copy in enumerate(copies):
                copied = run(copy)
                files = writer.from_parts(copied.parts)
                undo.callback(writer.discard, files)
                self._homes.update((file.path.partition("/")[0], number) for file in files)
                written += files
                quarantined += map(partial(_find_place, self.parts[number]), copied.quarantined)
                root = {} if copy.conversion is None else copy.conversion.observe_violations(copied.counts)
                seen.append(Observation(writer.count_rows(files), 0, {}, len(copied.quarantined), root))
            undo.pop_all()
        return BatchResult(written, merge_observations(seen), self._to_rows(quarantined) if quarantined else None)

    def _to_rows(self, quarantined: Sequence[QuarantinedRecord]) -> Rows:
        (batch,) = to_quarantine_rows(quarantined).to_batches()
        return to_local_frame(self.spark, batch)


def _find_place(part: ColumnPart, record: QuarantinedRecord) -> QuarantinedRecord:
    if not part.origins:
        return record
    file, position = part.find_origin(record.file, record.position - 1)
    return msgspec.structs.replace(record, file=file, position=position)


def _names_of(part: ColumnPart) -> StructType:
    """Return all fields of the records of a part, also those without values."""
    return StructType((*part.read.fields, *part.given.schema.fields))


def _place_texts(
    part: ColumnPart, tasks: Sequence[Sequence[RowGroup]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of row groups as JSON, with their places; see `PLACED_TEXT`."""
    schema = to_arrow_schema(part.schema)
    for group in (group for batch in batches for task in batch.column(0).to_pylist() for group in tasks[task]):
        for first, rows in read_group(group, schema, part.given.values_of(group.uri)):
            with fail_if_unsupported():
                texts = record_texts(part.schema, pa.Table.from_batches([rows]))
            files, numbers = pa.repeat(pa.scalar(group.uri), rows.num_rows), count_up(rows.num_rows, first + 1)
            if part.origins:
                places = [part.find_origin(group.uri, first + at) for at in range(rows.num_rows)]
                files, numbers = (pa.array(each) for each in zip(*places, strict=True))
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string()), files, numbers], names=[*PLACED_TEXT])


def _value_reader(given: PathFields) -> FileValueReader | None:
    return FileValueReader(given.fields.has_folders, given.fields.loaded_at) if given.schema.fields else None


def _shared_names(part: ColumnPart, fields: StructType) -> set[str]:
    """Return the fields that each file of a part has."""
    by_file = ({path[0] for path in footer.values} for footer in part.footers)
    return {*part.given.schema.names, *reduce(and_, by_file, {*without_voids(fields).names})}


def _is_copied(prepared: PreparedPart, schema: StructType, route: RecordRoute) -> bool:
    """Return whether all values of a part go to columns as they are, and no required column lacks values."""
    part = prepared.part
    if not (is_untouched(part.schema, prepared.rules) and is_copied(part.own, route, part.given.schema)):
        return False
    required = [(path, column) for path, column in fields(schema) if not column.nullable]
    if not required:
        return True
    sources = {slot.name: key for key, slots in route.items() for slot in slots}
    for path, column in required:
        leaf = (sources.get(column.name, ""),)
        if len(path) > 1 or any(footer.values.get(leaf) != footer.rows for footer in part.footers):
            return False
    return True


# ---- the values of each kind -----------------------------------------------------------------------


def _count_head(prepared: PreparedPart) -> Observation:
    """Count the kinds of values in the first records, and search all records for missing kinds, as Spark does."""
    part = prepared.part
    seen = prepared.root(assume_exact=False)
    footer, first = min(zip(part.footers, part.files, strict=True), key=lambda pair: pair[1].path)
    head = None
    if footer.rows >= MIN_COUNTED_RECORDS:
        head = read_first_rows(first, part.own, HEAD_RECORDS, part.read_rows)
        _add_rows(prepared, seen, head, 0, first.uri, prepared.schema.names)
    missing = [name for name in prepared.schema.names if head is None or _lacks_values(name, seen, prepared)]
    if missing:
        rest = prepared.root(assume_exact=False)
        _add_files(prepared, rest, missing)
        fill_counts(seen, {name: rest[name] for name in missing}, prepared.types, only_absent=True)
    return Observation(root=seen)


def _lacks_values(name: str, seen: RecordObservation, prepared: PreparedPart) -> bool:
    """Return whether the first records lack values of a kind in a field that other records may have."""
    if all(kind.count for kind, _ in kinds(seen[name], prepared.types[name])):
        return False
    # Do not search for a scalar without values in any file.
    stored = next((each.type for each in prepared.part.own if each.name == name), None)
    is_scalar = stored is not None and not isinstance(stored, (ArrayType, MapType, StructType))
    return not (is_scalar and all(footer.values.get((name,), 0) == 0 for footer in prepared.part.footers))


def _count_all(prepared: PreparedPart) -> Observation:
    """Count all values of each kind, and find the facts about them that their types leave open."""
    seen = prepared.root(assume_exact=False)
    facts = facts_of(seen, prepared.schema)
    return Observation(_add_files(prepared, seen, prepared.schema.names, facts), root=seen)


def _add_files(
    prepared: PreparedPart, seen: RecordObservation, names: Sequence[str], facts: Sequence[FactsOfKind] = ()
) -> int:
    """Add the values of some fields of all files; return the number of records.

    Args:
        facts: The facts of each kind of all fields, to fill in; empty if only the types decide.
    """
    # A batch without columns would not know how many rows it has.
    own = prepared.part.own
    wanted = StructType(tuple(each for each in own if each.name in names) or own.fields[:1])
    total = 0
    # The first value of a kind comes from the first file by its URI, as Spark compares texts.
    for file in sorted(prepared.part.files, key=lambda file: file.uri.encode()):
        count = 0
        for first, rows in prepared.part.read_rows(file, wanted, READ_ROWS):
            _add_rows(prepared, seen, rows, first, file.uri, names, facts)
            count += rows.num_rows
        total += count
    return total


def _add_rows(
    prepared: PreparedPart,
    seen: RecordObservation,
    rows: pa.RecordBatch,
    before: int,
    uri: str,
    names: Sequence[str],
    facts: Sequence[FactsOfKind] = (),
) -> None:
    numbers = pa.array(range(before, before + rows.num_rows), pa.int64())
    given = prepared.part.given.values_of(uri)
    fields = {
        each.name: (pa.repeat(given[each.name], rows.num_rows) if each.name in given else rows[each.name], each.type)
        for each in prepared.part.schema
        if each.name in names
    }
    add_batch(
        seen, apply_rules(fields, prepared.rules), numbers, FileOrder(uri, prepared.part.find_origin), facts or None
    )


# ---- the schemas that Spark reads ------------------------------------------------------------------


def find_file_parts(source: SourceFiles, file_fields: FileFields) -> list[ColumnPart]:
    """Return the files of a source with their schemas, as Spark finds these.

    Source: Spark's `StructType.merge` and `SchemaMergeUtils`, with the option ``mergeSchema``.

    Raises:
        Unsupported: Spark may read a file in another way than Arrow.
    """
    if source.options:
        raise Unsupported("the options are those of its reader")
    files = sorted((file for file in source.files if file.size_bytes), key=lambda file: file.path.encode("utf-16-be"))
    schemas: dict[str, StructType] = {}
    footers: dict[str, SourceFooter] = {}
    for file, stored in _read_stored(files):
        if isinstance(stored, WidenError):
            raise stored
        schemas[file.path], footers[file.path] = _read_schema(file, *stored)
    ensure_case_distinct(schemas.values())
    merged: DataType | None = None
    try:
        for schema in schemas.values():
            merged = schema if merged is None else _merge(merged, schema)
    except _NotMerged:
        texts = {path: _to_json(schema) for path, schema in schemas.items()}
        ordered = sorted(files, key=lambda file: (texts[file.path], file.path))
        groups = [tuple(group) for _, group in groupby(ordered, key=lambda file: texts[file.path])]
        return [_to_part(group, schemas[group[0].path], footers, file_fields) for group in groups]
    assert isinstance(merged, StructType)
    return [_to_part(tuple(files), merged, footers, file_fields)]


def has_odd_types(files: Sequence[SourceFile]) -> bool:
    """Return whether a file has columns of a type that Spark does not read; damaged files do not count."""
    read = map_files(_try_footer, [file for file in files if file.size_bytes])
    return any(not isinstance(stored, WidenError) and _is_odd(*stored) for stored in read)


def _is_odd(footer: pq.FileMetaData, columns: pa.Schema) -> bool:
    # Arrow reads INT96 as nanoseconds; Spark reads it.
    if any(footer.schema.column(at).physical_type == "INT96" for at in range(footer.num_columns)):
        return False
    return any(is_odd(inner) for column in columns for inner in _inner_types(column.type) for is_odd in _ODD_TYPES)


def find_bad_parquet(source: SourceFiles, rules: ColumnRules) -> dict[str, WidenError]:
    """Return why each file that cannot be read is bad, by its path. All values of the files are read.

    Args:
        rules: What becomes of values of columns that a table holds in one of several ways.
    """
    faults: dict[str, WidenError] = {}
    good = []
    for file, stored in _read_stored([file for file in source.files if file.size_bytes]):
        try:
            if isinstance(stored, WidenError):
                raise stored
            _read_schema(file, *stored)
            good.append(file)
        except OddTypes:
            faults |= find_unconvertible(replace(source, files=(file,)), rules)
        except (CorruptFile, SourceContentError) as error:
            faults[file.path] = error
    found = zip(good, map_files(_find_fault, good), strict=True)
    return faults | {file.path: fault for file, fault in found if fault is not None}


def _find_fault(file: SourceFile) -> WidenError | None:
    try:
        with _open_parquet(file) as parquet:
            for _ in parquet.iter_batches(use_threads=False):
                pass
    except CorruptFile as error:
        return error
    return None


_Stored: TypeAlias = tuple[pq.FileMetaData, pa.Schema]
"""The footer of a file, which PyArrow can be asked for all chunks, and its columns."""


def _read_stored(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, _Stored | WidenError]]:
    """Yield the footer of each file, or why it cannot be read."""
    for start in range(0, len(files), _FOOTERS_AT_ONCE):
        some = files[start : start + _FOOTERS_AT_ONCE]
        read = map_files(_try_footer, some)
        whole = [(at, stored[0]) for at, stored in enumerate(read) if not isinstance(stored, WidenError)]
        damaged = find_damaged_footers([footer for _, footer in whole])
        faults = {whole[place][0]: error for place, error in damaged.items()}
        for at, (file, stored) in enumerate(zip(some, read, strict=True)):
            yield file, _damaged(file.path, faults[at]) if at in faults else stored


_FOOTERS_AT_ONCE = 64
"""The number of footers in memory: the footers of wide files are large."""


def _try_footer(file: SourceFile) -> _Stored | WidenError:
    try:
        with _open_parquet(file) as parquet:
            return parquet.metadata, parquet.schema_arrow
    except CorruptFile as error:
        return error


@contextmanager
def _open_parquet(file: SourceFile) -> Iterator[pq.ParquetFile]:
    """Open a file with Arrow.

    Raises:
        Unsupported: Arrow lacks what Spark may have, e.g. its compression.
    """
    try:
        with (
            as_unsupported(pa.ArrowNotImplementedError, reason=f"Arrow cannot read {file.path}"),
            open_file(file.uri) as content,
        ):
            yield pq.ParquetFile(content, page_checksum_verification=True)
    except pa.ArrowException as error:
        raise environment_error(file.path, error) or _damaged(file.path, error) from error


def _damaged(path: str, error: Exception) -> CorruptFile:
    return CorruptFile(path=path, reason=first_line(error), fix=RESTORE_FILE)


def _to_part(
    files: tuple[SourceFile, ...], schema: StructType, footers: Mapping[str, SourceFooter], file_fields: FileFields
) -> ColumnPart:
    given = _given_fields(files, file_fields)
    if given.fields and any(name.endswith(SIGN) for name in schema.names):
        raise Unsupported(f"a column has a name with {SIGN} at its end, like the fields of folders")
    of_files = tuple(footers[file.path] for file in files)
    return ColumnPart(files, schema, of_files, PathFields(given, file_fields))


def _given_fields(files: Sequence[SourceFile], file_fields: FileFields) -> StructType:
    """Return the fields that records get from their files, in the order of those that Spark reads."""
    found: dict[str, DataType] = {}
    folders = {tuple(partition_folders(file.path)) for file in files} if file_fields.has_folders else set()
    for key in sorted({key for each in folders for key, _ in each}):
        for _ in range(max(sum(key == other for other, _ in each) for each in folders)):
            found = merge_file_fields(found, {unescape_folder(key) + SIGN: STRING})
    if file_fields.loaded_at is not None:
        found = merge_file_fields(found, {SOURCE_FILE + SIGN: STRING, LOADED_AT + SIGN: TIMESTAMP})
    return StructType(tuple(Field(name, data_type) for name, data_type in found.items()))


def _read_schema(
    file: SourceFile, footer: pq.FileMetaData, stored_columns: pa.Schema
) -> tuple[StructType, SourceFooter]:
    """Return the schema of a file as Spark reads it, and what else its footer says.

    Raises:
        Unsupported: Arrow may read the file in another way than Spark.
        OddTypes: Spark does not read it.
    """
    columns = [each.with_type(stored_type(each.type)) for each in stored_columns]
    try:
        counts = to_source_footer(file.uri, footer, stored_columns)
    except pa.ArrowException as error:
        raise _damaged(file.path, error) from error
    if _is_odd(footer, stored_columns):
        raise OddTypes
    if is_legacy(footer.metadata) or is_legacy_int96(footer.metadata):
        raise Unsupported(f"{file.path} has dates of the Julian calendar")
    schema = to_read_schema(columns, file.path)
    leaves = [path for each in columns for path in _leaf_texts(each.type, each.name)]
    stored = [footer.schema.column(at).path for at in range(footer.num_columns)]
    # Arrow called elements "item" before version 15.
    if leaves != [path.replace(".list.item", ".list.element") for path in stored]:
        raise Unsupported(f"{file.path} has lists or maps in an old form")
    codecs = {
        footer.row_group(group).column(at).compression
        for group in range(footer.num_row_groups)
        for at in range(footer.num_columns)
    }
    if not codecs <= _CODECS:
        raise Unsupported(f"{file.path} has the compression {', '.join(sorted(codecs - _CODECS))}")
    _ensure_row_metadata(file, (footer.metadata or {}).get(_ROW_METADATA), schema)
    return schema, counts


def to_read_schema(columns: Iterable[pa.Field], name: str) -> StructType:
    """Return the schema that Spark reads of columns.

    Raises:
        Unsupported: Spark reads other values than Arrow.
    """
    schema = StructType(tuple(Field(each.name, _to_type(each.type, each.name)) for each in columns))
    unknown = next(unknown_types(schema), None)
    if unknown is not None:
        raise Unsupported(f"of the type {unknown[1].sql} of {format_path(unknown[0])}")
    paths = [path for path, _ in fields(schema)]
    if len(set(paths)) < len(paths):
        raise Unsupported(f"{name} has two columns with the same name")
    if schema.fields and is_void(schema):
        raise Unsupported(f"{name} has columns of the type null only")
    return schema


def _inner_types(found: pa.DataType) -> Iterator[pa.DataType]:
    yield found
    for at in range(found.num_fields):
        yield from _inner_types(found.field(at).type)


_MOST_DIGITS = 38

_ODD_TYPES: Sequence[Callable[[pa.DataType], bool]] = (
    lambda found: pa.types.is_timestamp(found) and found.unit == "ns",
    pa.types.is_time,
    pa.types.is_duration,
    lambda found: pa.types.is_decimal(found) and found.precision > _MOST_DIGITS,
    pa.types.is_float16,
    lambda found: isinstance(found, pa.BaseExtensionType),
)
"""The Parquet types that Spark does not read. Files with one are converted first."""


def _ensure_row_metadata(file: SourceFile, text: bytes | None, schema: StructType) -> None:
    """Check that the schema that Spark has written into a footer, which it prefers, says nothing else.

    Raises:
        Unsupported: the metadata differs.
    """
    if text is None:
        return
    try:
        written = type_from_value(msgspec.json.decode(text))
    except (msgspec.DecodeError, KeyError, TypeError, InvalidType):
        written = None
    if not isinstance(written, StructType) or as_nullable(written) != schema:
        raise Unsupported(f"{file.path} has a schema of Spark with types or comments of its own")


def _to_type(found: pa.DataType, name: str) -> DataType:
    """Return the type that Spark reads for a type that Arrow reads.

    Raises:
        Unsupported: they read different values.
    """
    if pa.types.is_struct(found):
        return StructType(tuple(Field(each.name, _to_type(each.type, each.name)) for each in found))
    if pa.types.is_map(found):
        return MapType(_to_type(found.key_type, name), _to_type(found.item_type, name))
    if pa.types.is_list(found):
        return ArrayType(_to_type(found.value_type, name))
    if pa.types.is_decimal128(found) and found.scale >= 0:
        return DecimalType(found.precision, found.scale)
    if pa.types.is_timestamp(found) and found.unit in ("ms", "us"):
        return TIMESTAMP_NTZ if found.tz is None else TIMESTAMP
    known = VOID if pa.types.is_null(found) else _TYPES.get(found)
    if known is None:
        raise Unsupported(f"of the type {found} of the column {name}")
    return known


def _leaf_texts(found: pa.DataType, path: str) -> Iterator[str]:
    """Yield the paths of the leaves in a file that has lists and maps in the form of the standard."""
    if pa.types.is_struct(found):
        for each in found:
            yield from _leaf_texts(each.type, f"{path}.{each.name}")
    elif pa.types.is_map(found):
        yield from _leaf_texts(found.key_type, f"{path}.key_value.key")
        yield from _leaf_texts(found.item_type, f"{path}.key_value.value")
    elif pa.types.is_list(found):
        yield from _leaf_texts(found.value_type, f"{path}.list.element")
    else:
        yield path


def ensure_case_distinct(schemas: Collection[StructType]) -> None:
    """Check that no two fields of files have names that differ in case only: a session decides about these.

    Raises:
        Unsupported: two have.
    """
    spelled: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in {path for schema in schemas for path, _ in fields(schema)}:
        key = tuple(map(similarity_key, path))
        if spelled.setdefault(key, path) != path:
            raise Unsupported(f"columns of the source are spelled {format_path(path)} and {format_path(spelled[key])}")


class _NotMerged(Exception):
    """Two types have no type in common, by Spark's rules."""


def _merge(one: DataType, other: DataType) -> DataType:
    match one, other:
        case StructType(), StructType():
            given = {each.name: each.type for each in other}
            merged = [
                replace(each, type=_merge(each.type, given[each.name])) if each.name in given else each for each in one
            ]
            known = set(one.names)
            return StructType((*merged, *(each for each in other if each.name not in known)))
        case ArrayType(), ArrayType():
            return ArrayType(_merge(one.element, other.element))
        case MapType(), MapType():
            return MapType(_merge(one.key, other.key), _merge(one.value, other.value))
        case DecimalType(), DecimalType() if one.scale == other.scale:
            return DecimalType(max(one.precision, other.precision), one.scale)
    if VOID in (one, other):
        return other if one == VOID else one
    if one != other:
        raise _NotMerged
    return one


def _to_json(schema: StructType) -> str:
    """Return a schema as PySpark writes it: parts are sorted by these texts."""
    return json.dumps(type_to_value(schema), separators=(",", ":"), sort_keys=True)
