"""The source of an ingestion as a batch: files by their paths, or a DataFrame.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from datetime import datetime, timezone
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import quote

import pyarrow as pa

from widen.batches.text_batch import Batch, TextBatch, TextReaders, union_rows
from widen.batches.text_tasks import read_record_groups
from widen.errors import CorruptFile, InvalidOption, PackageMissing, SourceContentError, WidenError
from widen.evolution.plan import BadFile
from widen.frames.scan import read_snapshot
from widen.json.document import MAX_RECORD_BYTES
from widen.json.field_rules import LOADED_AT, SIGN, FileFields
from widen.json.record_path import RecordPath
from widen.limits import DRIVER_FOOTERS, REMOTE_FILES
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileValueReader
from widen.rows.row_builder import ORIGIN_FIELDS
from widen.schema.source_metadata import role_of, source_keys
from widen.sources.arrow_columns import ColumnRules, IntegralDoubles, Nanos
from widen.sources.csv_detection import CsvDialects, find_dialects, to_read_as
from widen.sources.csv_dialect import named_properties, parse_dialect
from widen.sources.csv_frames import (
    find_csv_sample,
    find_csv_tasks,
    read_csv,
    read_csv_for_proof,
    read_csv_lines,
    read_csv_ranges,
    small_csv_ranges,
)
from widen.sources.file_ranges import (
    RAW_SCHEMA,
    RawTexts,
    are_few,
    can_read,
    is_small,
    read_here,
    small_ranges,
    why_unreadable,
)
from widen.sources.find_files import ListingOptions, choose_files, find_source, list_new_files
from widen.sources.json_frames import JsonFiles, ensure_json_options, is_multi_line, read_column, read_json_by_spark
from widen.sources.listing import (
    FileFormat,
    FilePath,
    SourceFile,
    SourceFiles,
    count_partitions,
    decode_file_key,
    explain_changes,
    find_changes,
    local_path,
    source_file_key,
    to_paths,
)
from widen.sources.memory_source import HeldSource, MemorySource, StagedSource
from widen.sources.places import FoundTable, ensure_no_table, find_table_source, to_local
from widen.sources.remote_files import is_store_url
from widen.sources.staged_files import as_sources, read_staged_texts
from widen.spark.engine import (
    READS,
    Engine,
    LocalSession,
    Rows,
    Session,
    Unsupported,
    find_started,
    is_local,
    is_on_executors,
    require_spark,
    run_on_engine,
    to_local_frame,
)
from widen.spark.errors import translate_spark_errors, unpersist
from widen.spark.session import is_driver
from widen.spark.ship import ensure_shipped
from widen.spark.spark_types import DataFrame, F, SparkSession

if TYPE_CHECKING:
    from widen.batches.checked_batch import CheckedBatch
    from widen.batches.frame_batch import TypedBatch
    from widen.batches.held_batch import HeldBatch
    from widen.batches.parquet_batch import ParquetBatch

IngestSource: TypeAlias = FilePath | Sequence[FilePath] | DataFrame | StagedSource | HeldSource
"""Files, directories and patterns, rows, or data in memory, which may be staged."""

AnySource: TypeAlias = IngestSource | MemorySource
"""What `widen.ingest` loads."""

_Source = TypeVar("_Source", bound=IngestSource)


@dataclass(frozen=True, slots=True)
class BatchReader:
    """Reads a source into a batch.

    Args:
        format: The format of files; by default their names decide. For a DataFrame: ``json`` if one column has JSON.
        detects: The pattern of CSV and text values that become numbers and booleans; empty if none do.
        has_folders: Whether ``key=value`` folders in the path of a file become fields of its records.
        has_source_columns: Whether the URI of the file and the time of the load become fields of the records.
        skips_bad_files: Whether files that cannot be read are left out; else they are an error.
        known_fields: The columns of the table and their fields; the header of a CSV file must have one of them.
        storage_options: Settings and credentials of the store of a table that is the source.
        max_record_bytes: Maximum size of a record or a line of text, after decompression.
        record_path: Where documents have their records.
        json_option: An option that is for JSON alone, with its value, and what it says.
        column_rules: What becomes of values of columns that a table holds in one of several ways.
    """

    format: FileFormat | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    detects: str = ""
    has_folders: bool = True
    has_source_columns: bool = False
    skips_bad_files: bool = False
    known_fields: tuple[str, ...] = ()
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    max_record_bytes: int = MAX_RECORD_BYTES
    record_path: RecordPath | None = None
    json_option: tuple[str, object, str] | None = None
    column_rules: ColumnRules = field(default_factory=ColumnRules)

    def for_table(self, schema: StructType | None) -> BatchReader:
        """Return the reader for a table; a header must have one of its fields."""
        columns = [field for field in schema or () if role_of(field) is None]
        return replace(
            self, known_fields=tuple(name for field in columns for name in (field.name, *source_keys(field)))
        )

    def open(self, spark: Session, source: IngestSource) -> Batch:
        if isinstance(source, StagedSource):
            return self.open_staged(spark, source)
        if isinstance(source, HeldSource):
            return self.open_held(spark, source)
        if isinstance(source, DataFrame):
            return self._open_rows(source)
        table = find_table_source(spark, to_paths(source))
        return (
            self.open_files(spark, self.find_files(spark, source)) if table is None else self.open_table(spark, table)
        )

    def open_table(self, spark: Session, table: FoundTable) -> Batch:
        """Return the rows of the current version of a Delta table as a batch.

        Raises:
            InvalidOption: there are options for files.
        """
        if self.format is not None or self.options or self.detects:
            expected = f"{table.root} is a Delta table, which is read as one: its rows have types."
            raise InvalidOption(option="format or options", value=str(self.format or self.options), expected=expected)
        self._ensure_json(None)
        session = require_spark(spark, "the source is a table")
        ensure_shipped(session)
        store = LogStore(to_local(table.root) or table.root, self.storage_options)
        snapshot = open_snapshot(store)
        batch = self._open_typed_rows(read_snapshot(session, store, snapshot))
        name = f"version {snapshot.version} of the Delta table {store.location}"
        return replace(batch, name=name, source_table=name)

    def find_files(
        self,
        spark: Session,
        source: FilePath | Sequence[FilePath],
        listing: ListingOptions | None = None,
    ) -> SourceFiles:
        """Return the files that paths name."""
        return find_source(spark, to_paths(source), self.format, self.options, listing=listing)

    def open_new_files(self, spark: Session, files: DataFrame | Sequence[str]) -> Batch | None:
        """Return the files of a micro-batch as a batch, or None if all of them are empty or skipped."""
        listed = list_new_files(files)
        ensure_no_table(None, "the source of the stream", [file.path for file in listed])
        source = choose_files(listed, self.format, self.options) or SourceFiles((), tuple(listed))
        return self.open_files(spark, source) if any(file.size_bytes for file in source.files) else None

    def open_some(self, spark: Session, files: Sequence[SourceFile]) -> Batch:
        """Return some of the files of a micro-batch as a batch."""
        source = choose_files(files, self.format, self.options) or SourceFiles((), tuple(files))
        return self.open_files(spark, source)

    def open_files(self, spark: Session, source: SourceFiles) -> TextBatch | CheckedBatch:
        bad_files: tuple[BadFile, ...] = ()
        if self.skips_bad_files:
            source, bad_files = split_bad_files(spark, source, self._find_probe(spark, source))
        if not source.files:
            return replace(_empty_batch(spark, source), bad_files=bad_files)
        if is_local(spark):
            _choose_engine(spark, source)
        started = find_started(spark)
        if started is not None:
            ensure_shipped(started)
        with explain_changes(spark, source.files):
            return replace(self._open_good_files(spark, source), bad_files=bad_files)

    def _open_good_files(self, spark: Session, source: SourceFiles) -> TextBatch | CheckedBatch:
        self._ensure_json(source.format)
        file_fields = self._file_fields()
        folders = {file.path.rpartition("/")[0] for file in source.files}
        names = file_fields.names([f"{quote(folder)}/" for folder in folders])
        if source.format is FileFormat.XLSX:
            _ensure_xlsx(spark, source)
        if self._is_converted(spark, source):
            return open_converted(spark, source, file_fields, names, self.column_rules)
        if source.format.is_typed:
            open_on_spark = partial(_open_columns, spark, source, file_fields, names, nanos=self.column_rules.nanos)
            from widen.sources.converted_files import OddTypes

            try:
                batch = _open_parquet(spark, source, file_fields, names, open_on_spark)
            except OddTypes:
                return open_converted(spark, source, file_fields, names, self.column_rules)
            return self._check(batch, file_fields if names else None)
        readers = self._text_readers(spark, source)
        read = readers.read
        readers = replace(readers, read=lambda: _coalesce(read(), count_partitions(spark, source)))
        fields = file_fields if names else None
        return TextBatch(
            spark,
            readers,
            source.name,
            source.left_out,
            fields,
            names,
            source.files,
            max_record_bytes=self.max_record_bytes,
            file_values=FileValueReader(self.has_folders, file_fields.loaded_at).for_files(
                f"{quote(folder, safe='/:=')}/" for folder in folders
            ),
        )

    def _is_converted(self, spark: Session, source: SourceFiles) -> bool:
        """Return whether this process converts the files before anything else reads them."""
        is_other = source.format in (FileFormat.AVRO, FileFormat.ORC, FileFormat.XLSX)
        is_other |= self.column_rules.integral_doubles is IntegralDoubles.CONVERT
        if is_on_executors(spark) or not (is_other or source.format is FileFormat.PARQUET):
            return False
        from widen.sources.converted_files import converts_integers, is_converted

        if is_converted(source) or converts_integers(source, self.column_rules):
            return True
        return not is_local(spark) and _has_odd_types(source)

    def _find_probe(self, spark: Session, source: SourceFiles) -> Probe:
        """Return a reader that reads all files once to find the unreadable ones."""
        from widen.sources.converted_files import find_unconvertible

        if not source.format.is_typed:
            return partial(self._probe, spark)
        if source.format is FileFormat.XLSX:
            _ensure_xlsx(spark, source)
        if self._is_converted(spark, source):
            return partial(find_unconvertible, rules=self.column_rules)
        if not (is_local(spark) and source.format is FileFormat.PARQUET and can_read(spark, source.files)):
            return partial(_probe_columns, require_spark(spark, READS), nanos=self.column_rules.nanos)
        return partial(_probe_parquet, spark, self.column_rules)

    def _probe(self, spark: Session, source: SourceFiles) -> dict[str, WidenError]:
        """Return why files cannot be read, by their paths: all of them in this process, else the first one."""
        is_few = all(map(is_small, source.files)) and are_few(spark, source.files)
        faults: dict[str, WidenError] = {}
        for files in [(file,) for file in source.files] if is_few else [source.files]:
            some = replace(source, roots=(), files=files)
            faults |= _find_fault(some, partial(self._read_texts, spark, some, source))
        return faults

    def _read_texts(self, spark: Session, source: SourceFiles, whole: SourceFiles) -> None:
        """Read all texts of some files once.

        Args:
            whole: All files of the source, which are read alike.
        """
        readers = self._text_readers(spark, source, whole)
        if readers.ranges is not None:
            for _ in read_record_groups([readers.ranges], self.max_record_bytes, self.record_path):
                pass
            return
        checked = readers.read().mapInArrow(partial(_read_all, self.max_record_bytes, self.record_path), "done boolean")
        if is_local(spark):
            checked.toArrow()
            return
        checked.write.format("noop").mode("overwrite").save()

    def _text_readers(self, spark: Session, source: SourceFiles, whole: SourceFiles | None = None) -> TextReaders:
        is_few = all(map(is_small, source.files))
        if source.format is FileFormat.CSV:
            is_tabbed = all(".tsv" in file.path.lower() for file in (whole or source).files)
            default = parse_dialect(
                self.options,
                detects=self.detects,
                is_tabbed=is_tabbed,
                known=self.known_fields,
                max_record_bytes=self.max_record_bytes,
            )
            is_near = is_driver(spark) and can_read(spark, source.files)
            given = named_properties(self.options)
            dialects = find_dialects(source.files, default, given) if is_near else CsvDialects(default, {})
            # The proof has a reader of its own, so that it does not share the errors of the ingestion.
            again = partial(read_csv_for_proof, spark, source, dialects)
            tasks = partial(find_csv_tasks, spark, source, dialects)
            said = to_read_as(dialects, source.files)
            if not can_read(spark, source.files):
                return TextReaders(partial(read_csv, spark, source, dialects), again, read_as=said)
            # For a few small files, reading them here is cheaper than a Spark job.
            ranges = small_csv_ranges(spark, source.files, dialects) if is_few else None
            sample = partial(find_csv_sample, spark, source, dialects)
            read = partial(read_csv_ranges, spark, source, dialects)
            return TextReaders(read, again, ranges, tasks, sample, said)
        if source.format is FileFormat.TEXT:
            if self.options:
                expected = "The format text does not have options."
                raise InvalidOption(option="options", value=dict(self.options), expected=expected)
            return TextReaders(partial(read_csv_lines, spark, source, detects=self.detects))
        ensure_json_options(self.options)
        limit, multi, path = self.max_record_bytes, is_multi_line(source), self.record_path
        ranges = small_ranges(spark, source.files, limit, is_multi_line=multi) if is_few else None
        files = JsonFiles(spark, source, limit, path)
        again = partial(read_json_by_spark, spark, source, limit, path, finds=False)
        return TextReaders(files.read, again, ranges, files.find_tasks, files.find_sample, may_refuse=path is not None)

    @property
    def loaded_at(self) -> str | None:
        """The time of the load as text, if records get it."""
        return self._file_fields().loaded_at

    def _file_fields(self) -> FileFields:
        from widen.proof.canonical import canonical_instant

        if not self.has_source_columns:
            return FileFields(self.has_folders, None)
        # With trailing zeros its text would differ from the table's text, and count as converted.
        loaded_at = canonical_instant(datetime.now(timezone.utc).strftime(_TIME_FORMAT))
        return FileFields(self.has_folders, loaded_at)

    def _ensure_json(self, found: FileFormat | None) -> None:
        """Raise if the records are in documents, dialects or envelopes, but not JSON texts."""
        if self.json_option is None or found is FileFormat.JSON:
            return
        option, value, what = self.json_option
        has = "rows with types" if found is None else f"files of the format {found.value}"
        fix = _FILES_OF_DMS if (option, value) == ("envelope", "dms") else _ROWS_AS_JSON
        expected = f"{what} read from JSON, and the source has {has}. {fix}"
        raise InvalidOption(option=option, value=value, expected=expected)

    def _open_rows(self, rows: DataFrame) -> Batch:
        if rows.isStreaming:
            raise InvalidOption(
                option="source", value="a streaming DataFrame", expected="Use ingest_stream for a streaming DataFrame."
            )
        ensure_shipped(rows.sparkSession)
        if self.format is FileFormat.JSON:
            texts = read_column(rows)
            return self.open_texts(rows.sparkSession, lambda: texts, _DATA_FRAME)
        if self.format is not None or self.options:
            expected = "A DataFrame has a schema; the only format for it is json, for JSON in its only column."
            raise InvalidOption(option="format or options", value=str(self.format or self.options), expected=expected)
        self._ensure_json(None)
        return self._open_typed_rows(rows)

    def open_texts(self, spark: Session, read: Callable[[], RawTexts], name: str) -> TextBatch:
        """Return JSON texts that are not in files as a batch."""
        file_fields = replace(self._file_fields(), has_folders=False)
        names, values = file_fields.names([""]), FileValueReader(False, file_fields.loaded_at).for_files([""])
        fields, limit = file_fields if names else None, self.max_record_bytes
        readers = TextReaders(read)
        return TextBatch(spark, readers, name, (), fields, names, max_record_bytes=limit, file_values=values)

    def open_staged(self, spark: Session, source: StagedSource) -> Batch:
        """Return data in memory as a batch whose records are not from files."""
        store = source.store
        if source.stream is not None:
            reader = replace(self, has_folders=False)
            batch = reader.open_files(spark, source.stream)
            if isinstance(batch, TextBatch):
                return replace(batch, name=source.name, files=())
            return replace(batch, name=source.name, typed=replace(batch.typed, files=()))
        if source.texts:
            return self.open_texts(spark, partial(read_staged_texts, spark, store, source.texts), source.name)
        return self.open_staged_rows(spark, as_sources(store, source.rows), source.name)

    def open_staged_rows(self, spark: Session, files: Sequence[SourceFile], name: str) -> Batch:
        """Return rows that a sink has staged as Parquet files as a batch whose records are not from files."""
        self._ensure_json(None)
        source = SourceFiles((), tuple(files), format=FileFormat.PARQUET)
        return self._check(self._open_row_files(spark, source, name), self._row_fields())

    def open_held(self, spark: Session, source: HeldSource) -> Batch:
        """Return rows that are whole in memory as a batch."""
        from widen.batches.held_batch import HeldBatch, hold_part
        from widen.batches.parquet_batch import ParquetBatch

        self._ensure_json(None)
        homes: dict[str, int] = {}

        def find_files() -> SourceFiles:
            staged = source.stage()
            return SourceFiles((), tuple(as_sources(staged.store, staged.rows)), format=FileFormat.PARQUET)

        def open_on_spark(homes: dict[str, int]) -> TypedBatch:
            return _open_columns(spark, find_files(), _NO_FIELDS, self._row_names(), homes)

        @cache
        def stage() -> ParquetBatch | TypedBatch:
            return replace(self._open_row_files(spark, find_files(), source.name), _homes=homes)

        try:
            part = hold_part(source.rows, source.name)
        except Unsupported:
            return self._check(stage(), self._row_fields())
        here = ParquetBatch(spark, [part], open_on_spark, source.name, (), self._row_names(), _homes=homes)
        return self._check(HeldBatch(here, source.rows, stage), self._row_fields())

    def _open_row_files(self, spark: Session, source: SourceFiles, name: str) -> ParquetBatch | TypedBatch:
        names = self._row_names()
        open_on_spark = partial(_open_columns, spark, source, _NO_FIELDS, names)
        batch = _open_parquet(spark, source, _NO_FIELDS, names, open_on_spark)
        return replace(batch, name=name, files=())

    def _row_names(self) -> frozenset[str]:
        """Return the names of the fields that rows get which are not from files."""
        return frozenset() if self._file_fields().loaded_at is None else frozenset([LOADED_AT])

    def _row_fields(self) -> FileFields | None:
        return _NO_FIELDS if self._row_names() else None

    def _open_typed_rows(self, rows: DataFrame) -> CheckedBatch:
        from widen.batches.frame_batch import TypedBatch
        from widen.batches.typed_frames import to_typed_records

        loaded_at = self._file_fields().loaded_at
        if loaded_at is None:
            return self._check(TypedBatch([to_typed_records(rows, _DATA_FRAME)], _DATA_FRAME))
        rows = rows.withColumn(f"{LOADED_AT}{SIGN}", F.lit(loaded_at).cast("timestamp"))
        typed = TypedBatch([to_typed_records(rows, _DATA_FRAME)], _DATA_FRAME, (), frozenset([LOADED_AT]))
        return self._check(typed, self._file_fields())

    def _check(
        self, typed: TypedBatch | ParquetBatch | HeldBatch, file_fields: FileFields | None = None
    ) -> CheckedBatch:
        from widen.batches.checked_batch import CheckedBatch

        return CheckedBatch(typed, typed.name, file_fields)


_NO_FIELDS = FileFields(False, None)
"""What rows get from the files where they are staged: they have the time of the load, and no file with a name."""

_KINDS = {
    FileFormat.PARQUET: "Parquet",
    FileFormat.AVRO: "Avro",
    FileFormat.ORC: "ORC",
    FileFormat.XLSX: "XLSX",
}


def _open_columns(
    spark: Session,
    source: SourceFiles,
    file_fields: FileFields,
    names: frozenset[str],
    homes: dict[str, int],
    nanos: Nanos = Nanos.ERROR,
) -> TypedBatch:
    from widen.batches.frame_batch import TypedBatch
    from widen.batches.typed_frames import read_columnar

    session = require_spark(spark, READS)
    ensure_shipped(session)
    kind = _KINDS[source.format]
    records = [replace(each, kind=kind) for each in read_columnar(session, source, file_fields, nanos)]
    if len(source.files) > _FEW_FILES:
        partitions = count_partitions(spark, source)
        records = [each.coalesce(partitions) for each in records]
    return TypedBatch(records, source.name, source.left_out, names, source.files, _homes=homes)


def _open_parquet(
    spark: Session,
    source: SourceFiles,
    file_fields: FileFields,
    names: frozenset[str],
    open_on_spark: Callable[[dict[str, int]], TypedBatch],
) -> ParquetBatch | TypedBatch:
    """Return Parquet files as a batch of this process if it reads them as Spark does."""

    def open_here(session: LocalSession) -> ParquetBatch:
        from widen.batches.parquet_batch import ParquetBatch, find_file_parts

        parts = find_file_parts(source, file_fields)
        return ParquetBatch(session, parts, open_on_spark, source.name, source.left_out, names, source.files)

    return run_on_engine(spark, open_here, lambda _: open_on_spark({}))


def _ensure_xlsx(spark: Session, source: SourceFiles) -> None:
    """Check that workbooks can be read, which Spark does not.

    Raises:
        PackageMissing: their reader is not installed.
        InvalidOption: tasks run on other machines, or an option is unknown.
    """
    from widen.sources.converted_files import EXTRAS, is_converted
    from widen.sources.xlsx_sheets import parse_xlsx_options

    if not is_converted(source):
        raise PackageMissing(package=EXTRAS[FileFormat.XLSX])
    if is_on_executors(spark):
        expected = "Workbooks are read on this machine: load them without a session of a cluster (--engine local)."
        raise InvalidOption(option="format", value="xlsx", expected=expected)
    parse_xlsx_options(source.options)


def _has_odd_types(source: SourceFiles) -> bool:
    """Return whether Parquet files have types that Spark does not read."""
    from widen.batches.parquet_batch import has_odd_types

    if source.format is not FileFormat.PARQUET or len(source.files) > DRIVER_FOOTERS:
        return False
    if any(local_path(file.uri) is None for file in source.files):
        return False  # Spark may have the credentials of the store
    try:
        return has_odd_types(source.files)
    except Unsupported:
        return False


def open_converted(
    spark: Session, source: SourceFiles, file_fields: FileFields, names: frozenset[str], rules: ColumnRules
) -> CheckedBatch:
    """Return files whose records this process writes to Parquet files first as a batch."""
    from widen.batches.checked_batch import CheckedBatch
    from widen.batches.parquet_batch import ParquetBatch
    from widen.sources.converted_files import convert_files

    converted = convert_files(source, file_fields, rules)
    # The Parquet files have the fields of the source files as columns.
    given = FileFields(False, None)
    open_on_spark = partial(_open_columns, spark, converted.stored, given, names)
    batch = _open_parquet(spark, converted.stored, given, names, open_on_spark)
    if isinstance(batch, ParquetBatch):
        origins = {each.file.uri: each for each in converted.files}
        parts = [replace(part, origins=origins) for part in batch.parts]
        batch = replace(batch, kind=_KINDS[source.format], parts=parts)
    batch = replace(batch, name=source.name, left_out=source.left_out, files=source.files)
    return CheckedBatch(batch, source.name, file_fields if names else None, converted=converted)


def _choose_engine(session: LocalSession, source: SourceFiles) -> None:
    """Start Spark if this process cannot read the files of a source, or not as fast."""
    if source.format in (FileFormat.ORC, FileFormat.AVRO):
        from widen.sources.converted_files import EXTRAS, is_converted

        if not is_converted(source):
            extra = EXTRAS.get(source.format)
            without = f"; pip install '{extra}' reads them without it" if extra else ""
            session.require(f"its readers read {source.format.value} files{without}")
    reason = why_unreadable(source.files)
    if reason is not None:
        session.require(reason)
    remote = sum(is_store_url(file.uri) for file in source.files)
    if session.engine is Engine.AUTO and remote > REMOTE_FILES:
        session.require(f"the source has {remote:,} files in another store, more than {REMOTE_FILES}")
    session.accept(source.text_bytes)


def _coalesce(texts: RawTexts, partitions: int) -> RawTexts:
    return texts.coalesce(partitions) if isinstance(texts, DataFrame) else texts


def _read_all(limit: int, path: RecordPath | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in read_record_groups(batches, limit, path):
        pass
    yield pa.RecordBatch.from_pylist([{"done": True}])


def _empty_batch(spark: Session, source: SourceFiles) -> TextBatch:
    def read() -> RawTexts:
        return run_on_engine(
            spark, lambda here: read_here(here, ()), lambda session: session.createDataFrame([], RAW_SCHEMA)
        )

    return TextBatch(spark, TextReaders(read), source.name, source.left_out)


@contextmanager
def persist_source(source: _Source) -> Iterator[_Source]:
    """Persist a DataFrame source while this is open.

    An ingestion evaluates its source more than once, and another evaluation may give other values, e.g. of the current
    time.

    Args:
        source: The source. Files, streams and DataFrames that are already persisted are left alone.
    """
    if not isinstance(source, DataFrame) or source.isStreaming:
        yield source
        return
    from pyspark import StorageLevel

    if source.storageLevel != StorageLevel.NONE:
        yield source
        return
    source.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield source
    finally:
        # The batch may be committed, so unfreed memory must not look like a failed load.
        unpersist(source)


_ROWS_AS_JSON = "Pass a DataFrame with the documents in a column `value`, and format='json'."

_FILES_OF_DMS = (
    "Files of AWS DMS have a column Op instead of an envelope: load them without one, with key, "
    "delete_when=\"Op = 'D'\", and sequence_by for the column that TimestampColumnName names."
)

_FEW_FILES = 32
"""Up to this many files, Spark makes only the partitions that their bytes fill; coalescing would copy every row."""

_DATA_FRAME, _TIME_FORMAT = "the DataFrame", "%Y-%m-%dT%H:%M:%S.%fZ"


# Files of a source that cannot be read: damaged Parquet, ORC or Avro, compressed texts that are cut off, CSV with a
# quote that is not closed, records over the limit, and files that change after they are listed.
#
# A line that is not a record is kept as it is.


_ORIGIN = pa.schema(zip(ORIGIN_FIELDS, (pa.string(), pa.string(), pa.int64(), pa.string()), strict=True))
_COLUMNS = "{} string, {} string, {} bigint, {} string".format(*ORIGIN_FIELDS)


Probe: TypeAlias = Callable[[SourceFiles], Mapping[str, WidenError]]
"""Reads files once, and returns the errors of unreadable files by their paths; empty if all can be read."""


def split_bad_files(spark: Session, source: SourceFiles, probe: Probe) -> tuple[SourceFiles, tuple[BadFile, ...]]:
    """Return the files that can be read, and those that cannot. All files that may be damaged are read once.

    A file that changed since it was listed cannot be read.

    Args:
        probe: Reads the files. Where it finds only the first bad one, the others are read again without it.
    """
    bad: dict[str, BadFile] = {}
    while True:
        left = [file for file in source.files if file.path not in bad]
        suspects = tuple(file for file in left if file.size_bytes)
        faults = probe(replace(source, files=suspects)) if suspects else {}
        found = [file for file in left if file.path in faults]
        if not found:
            break
        # A file that is still being written looks damaged as well; the true reason is that it changed.
        bad |= {file.path: _bad_file(file, str(faults[file.path].fields["reason"])) for file in found}
        bad |= _changed_files(spark, found)
    bad |= _changed_files(spark, left)
    return replace(source, files=tuple(file for file in left if file.path not in bad)), tuple(bad.values())


def _find_fault(source: SourceFiles, read: Callable[[], object]) -> dict[str, WidenError]:
    """Return why the first file that a call cannot read is bad, by its path; empty if it reads all files."""
    try:
        with translate_spark_errors():
            read()
    except (CorruptFile, SourceContentError) as error:
        key = decode_file_key(str(error.fields["path" if isinstance(error, CorruptFile) else "source"]))
        file = next((file for file in source.files if source_file_key(file.path) == key), None)
        if file is None:
            raise
        return {file.path: error}
    return {}


def _probe_parquet(spark: Session, rules: ColumnRules, source: SourceFiles) -> Mapping[str, WidenError]:
    """Return why Parquet files cannot be read, as this process finds it, or Spark where Arrow cannot tell."""
    from widen.batches.parquet_batch import find_bad_parquet

    return run_on_engine(
        spark, lambda _: find_bad_parquet(source, rules), lambda session: _probe_columns(session, source)
    )


def _probe_columns(spark: SparkSession, source: SourceFiles, nanos: Nanos = Nanos.ERROR) -> Mapping[str, WidenError]:
    """Return why files cannot be read, as Spark finds it: those whose schemas it cannot read, or the first one."""
    from widen.batches.typed_frames import find_bad_schemas, read_columnar

    def read() -> None:
        for records in read_columnar(spark, source, FileFields(False, None), nanos):
            records.frame.write.format("noop").mode("overwrite").save()

    found = _find_fault(source, read)
    return found and {**find_bad_schemas(spark, source), **found}


def _changed_files(spark: Session, files: Sequence[SourceFile]) -> dict[str, BadFile]:
    changes = find_changes(spark, files)
    texts = {path: f"it changed after it was listed: it {change}" for path, change in changes.items()}
    return {file.path: _bad_file(file, texts[file.path]) for file in files if file.path in texts}


def _bad_file(file: SourceFile, reason: str) -> BadFile:
    return BadFile(file.path, reason, file.size_bytes, file.modified_ms, file.content)


def with_bad_files(quarantined_records: Rows | None, spark: Session, files: tuple[BadFile, ...]) -> Rows | None:
    """Return the rows of the quarantine for a batch: its quarantined records, and a row for each bad file."""
    if not files:
        return quarantined_records
    values = [(None, file.path, 0, f"{_PARKED if file.is_parked else _UNREADABLE}: {file.reason}") for file in files]

    def to_rows(session: LocalSession) -> Rows:
        named = [dict(zip(ORIGIN_FIELDS, value, strict=True)) for value in values]
        return to_local_frame(session, pa.RecordBatch.from_pylist(named, schema=_ORIGIN))

    rows = run_on_engine(spark, to_rows, lambda session: session.createDataFrame(values, _COLUMNS))
    return union_rows(quarantined_records, rows)


_UNREADABLE, _PARKED = "the file cannot be read", "the file is parked"
