"""Typed sources as DataFrames: rows of the caller, or Parquet, Avro and ORC files, one DataFrame per schema.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from types import MappingProxyType
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from widen.model.column_path import format_path
from widen.model.types import DataType, StructType, quote_name
from widen.observe.file_fields import (
    LOADED_AT,
    SIGN,
    SOURCE_FILE,
    FileFields,
    merge_file_fields,
    partition_folders,
    unescape_folder,
)
from widen.protocol.partition_values import HIVE_NULL
from widen.spark.file_sources import FILE_SOURCES
from widen.spark.pinned_settings import SKIP_NO_FILE
from widen.spark.source.field_names import duplicate_fields, with_field_steps
from widen.spark.source.file_format import FileFormat
from widen.spark.source.source_files import (
    SourceFiles,
    as_literal,
    decode_uri,
    file_key_column,
    source_error_reason,
    unusable_source,
)
from widen.spark.spark_errors import SPARK_ERRORS, find_known_failure
from widen.spark.spark_types import as_nullable, from_spark, type_to_spark
from widen.spark.typed.int96_times import CutTimes, find_cut_times, read_cut_times
from widen.spark.typed.orc_times import ensure_uncut

PLACE = "struct<file: string, number: bigint>"
"""The type of the location of a record."""

_PLACE = "_widen_place"
_HEAD_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class TypedRecords:
    """Typed records.

    Args:
        frame: The records, in columns with numbers as names, so that names that differ only in case do not collide.
        schema: Their schema, with the names of the source.
        place: The file and the number of each record; None if unknown.
        unplaced: The records without their locations, which Spark reads faster; None if they have none.
        head: Returns the first records of the first file, or some records of a DataFrame; None if that takes long.
    """

    frame: DataFrame
    schema: StructType
    place: Column | None = None
    unplaced: DataFrame | None = None
    head: Callable[[], DataFrame] | None = None

    def coalesce(self, partitions: int) -> TypedRecords:
        """Return the records in at most so many partitions."""
        unplaced = None if self.unplaced is None else self.unplaced.coalesce(partitions)
        return replace(self, frame=self.frame.coalesce(partitions), unplaced=unplaced)

    @property
    def columns(self) -> Mapping[str, Column]:
        """The column of each field."""
        return {field.name: _with_field_steps(F.col(str(at)), field.type) for at, field in enumerate(self.schema)}


def to_typed_records(frame: DataFrame, name: str, *, is_placed: bool = False) -> TypedRecords:
    """Return the rows of a DataFrame as records.

    Args:
        is_placed: Whether the last column is the location of each record.

    Raises:
        SourceError: two columns have the same name.
    """
    fields = as_nullable(from_spark(frame.schema)).fields
    schema = StructType(fields[:-1] if is_placed else fields)
    duplicate = next(duplicate_fields(schema), None)
    if duplicate is not None:
        raise unusable_source(name, f"it has two columns named {format_path(duplicate)}", "Rename one of them.")
    numbered = frame.toDF(*map(str, range(len(schema.fields))), *([_PLACE] if is_placed else []))
    place = F.col(_PLACE) if is_placed else None
    return TypedRecords(numbered, schema, place, head=lambda: numbered.limit(_HEAD_RECORDS))


def _with_field_steps(values: Column, data_type: DataType) -> Column:
    wanted = with_field_steps(data_type)
    return values if wanted == data_type else values.cast(type_to_spark(wanted))


def read_columnar(spark: SparkSession, source: SourceFiles, file_fields: FileFields) -> list[TypedRecords]:
    """Return the records of Parquet, Avro or ORC files.

    Raises:
        SourceError: a file cannot be read, or this Spark cannot read the format.
    """
    reader = _reader(spark, source)
    paths = [file.path for file in source.files if file.size_bytes]
    try:
        cut_times = find_cut_times(spark, paths) if source.format is FileFormat.PARQUET else {}
        frames = _frames(reader, source.format, [path for path in paths if path not in cut_times])
        records = []
        for frame, group in frames:
            if source.format is FileFormat.ORC:
                ensure_uncut(spark, frame, group)
            records.append(_records(frame, source, group, file_fields))
        for leaves, group in _group_paths(cut_times):
            for frame, members in _frames(reader, source.format, group):
                read = partial(read_cut_times, spark, members, leaves=leaves)
                records += _split_cut_times(_records(frame, source, members, file_fields), read)
        return records
    except SPARK_ERRORS as error:
        failure = find_known_failure(error)
        if failure is not None:
            raise failure from error
        reason, name = source_error_reason(error), source.format.value
        if "Failed to find data source" in reason or "DATA_SOURCE_NOT_FOUND" in reason:
            package = f"org.apache.spark:spark-{name}_2.13:{spark.version}"
            fix = f"Start Spark with its package: spark.jars.packages={package}"
            raise unusable_source(source.name, f"this Spark has no reader for {name}", fix) from error
        fix = next((fix for code, fix in _FIXES.items() if code in reason), "Use files in a supported format.")
        raise unusable_source(source.name, reason, fix) from error


_FIXES: Mapping[str, str] = MappingProxyType(
    {
        "NANOS": "Write times in microseconds (pyarrow: coerce_timestamps='us'), or set "
        "spark.sql.legacy.parquet.nanosAsLong to read them as integers.",
        "COLUMN_ALREADY_EXISTS": "Set spark.sql.caseSensitive, so that names may differ in case only.",
    }
)
"""The fix for a file that Spark cannot read, by a part of Spark's message."""


def _frames(
    reader: DataFrameReader, format: FileFormat, paths: Sequence[str]
) -> Iterator[tuple[DataFrame, Sequence[str]]]:
    """Yield DataFrames with their files: one for all files if Spark can merge their schemas, else one per schema.

    For Avro, Spark looks at the schema of one file only, so Avro files are always grouped by schema.
    """
    if not paths:
        return
    try:
        if format is not FileFormat.AVRO:
            yield _load(reader.option("mergeSchema", "true"), paths), paths
            return
    except SPARK_ERRORS as error:
        # Spark 4.0 and later have different error classes for schemas that cannot be merged; all contain this.
        if "MERG" not in str(error).upper():
            raise
    schemas = {path: _load(reader.option("mergeSchema", "false"), [path]).schema.json() for path in paths}
    for _, group in groupby(sorted(paths, key=lambda path: (schemas[path], path)), key=schemas.__getitem__):
        members = list(group)
        yield _load(reader, members), members


def _group_paths(cut_times: Mapping[str, CutTimes]) -> Iterator[tuple[CutTimes, list[str]]]:
    for leaves in sorted(set(cut_times.values()), key=sorted):
        yield leaves, [path for path, cut in cut_times.items() if cut == leaves]


def _split_cut_times(
    records: TypedRecords, read: Callable[[StructType], tuple[DataFrame, StructType]]
) -> Iterator[TypedRecords]:
    """Yield the records that Spark reads as they are, and those with times as text, which `read_cut_times` returns."""
    times, texts = read(records.schema)
    # Spark underestimates how many these are, and would broadcast them.
    times = times.toDF(*(f"time_{name}" for name in times.columns)).hint("shuffle_merge")
    is_same = file_key_column(F.col(f"{_PLACE}.file")) == F.col("time_0")
    is_same &= F.col(f"{_PLACE}.number") == F.col("time_1")
    yield replace(records, frame=records.frame.join(times, is_same, "left_anti"), unplaced=None, head=None)
    values = [F.col(str(at)) for at in range(len(records.schema.fields))]
    fields = list(records.schema)
    for at, field in enumerate(texts, start=2):
        place = next(place for place, each in enumerate(fields) if each.name == field.name)
        missing = F.raise_error(F.concat(F.lit("The source changed while it was read: "), F.col("time_0")))
        values[place] = F.when(F.col(_PLACE).isNull(), missing).otherwise(F.col(f"time_{at}"))
        fields[place] = field
    both = records.frame.join(times, is_same, "right")
    columns = [value.alias(str(at)) for at, value in enumerate(values)]
    yield TypedRecords(both.select(*columns, _PLACE), StructType(tuple(fields)), records.place)


def _reader(spark: SparkSession, source: SourceFiles) -> DataFrameReader:
    reader = spark.read.format(FILE_SOURCES.get(source.format.value, source.format.value))
    return reader.options(**SKIP_NO_FILE).options(**source.options)


def _load(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    return reader.load([as_literal(path) for path in paths])


def _records(frame: DataFrame, source: SourceFiles, paths: Sequence[str], file_fields: FileFields) -> TypedRecords:
    """Return the records with the fields from their files and their locations; only Parquet has row numbers."""
    path = F.col("_metadata.file_path")
    from_files = _fields_from_files(path, paths, file_fields)
    number = F.col("_metadata.row_index") + F.lit(1) if source.format is FileFormat.PARQUET else F.lit(0)
    place = F.struct(path.alias("file"), number.alias("number")).cast(PLACE)
    named = merge_file_fields({name: F.col(quote_name(name)) for name in frame.columns}, from_files)
    fields = [value.alias(key) for key, value in named.items()][len(frame.columns) :]

    def add_fields(rows: DataFrame) -> TypedRecords:
        return to_typed_records(rows.select("*", *fields, place.alias(_PLACE)), source.name, is_placed=True)

    def head() -> DataFrame:
        # One task reads the file from its start, and ends early.
        first = _load(_reader(frame.sparkSession, source).schema(frame.schema), [min(paths)])
        return add_fields(first).frame.coalesce(1).limit(_HEAD_RECORDS)

    names = map(str, range(len(named)))
    return replace(add_fields(frame), unplaced=frame.select("*", *fields).toDF(*names), head=head)


def _fields_from_files(path: Column, paths: Sequence[str], file_fields: FileFields) -> dict[str, Column]:
    """Return the fields that records get from their files, by key."""
    columns: dict[str, Column] = {}
    folders = {tuple(partition_folders(each)) for each in paths} if file_fields.has_folders else set()
    keys = sorted({key for each in folders for key, _ in each})
    for key in keys:
        for turn in range(max(sum(key == other for other, _ in each) for each in folders)):
            columns = merge_file_fields(columns, {unescape_folder(key) + SIGN: _folder(path, key, turn)})
    if file_fields.loaded_at is not None:
        loaded_at = F.lit(file_fields.loaded_at).cast("timestamp")
        columns = merge_file_fields(columns, {SOURCE_FILE + SIGN: path, LOADED_AT + SIGN: loaded_at})
    return columns


def _folder(path: Column, key: str, turn: int) -> Column:
    """Return the value of the nth ``key=value`` folder with a key in the paths of files; null without such a folder.

    The path is a URI, and the folder names inside it may have Hive's escapes. So the value is decoded twice.
    """
    name = F.lit(f"/{_quoted(_as_uri(key))}=([^/]*)(?=/)")
    text = F.try_element_at(F.regexp_extract_all(path, name, F.lit(1)), F.lit(turn + 1))
    text = decode_uri(decode_uri(text))
    return F.when((text != F.lit("")) & (text != F.lit(HIVE_NULL)), text)


def _as_uri(text: str) -> str:
    return "".join(c if ord(c) > 127 else quote(c, safe=_IN_URI) for c in text)


_IN_URI = "!$&'()*+,;=:@-._~"


def _quoted(text: str) -> str:
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"
