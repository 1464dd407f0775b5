"""Typed sources as DataFrames: rows of the caller, or Parquet, Avro and ORC files, one DataFrame per schema.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from itertools import groupby
from json import JSONDecoder
from types import MappingProxyType
from typing import cast
from urllib.parse import quote, unquote

from widen.batches.int96_times import (
    CutTimes,
    OddLeaves,
    find_odd_leaves,
    read_cut_times,
    void_leaves,
    with_void_leaves,
)
from widen.errors import SourceContentError, StorageError, WidenError
from widen.json.field_rules import (
    LOADED_AT,
    LOCAL_URI,
    PLAIN_LOCAL_URI,
    SIGN,
    SOURCE_FILE,
    FieldRule,
    FieldRules,
    FileFields,
    merge_file_fields,
    partition_folders,
    unescape_folder,
)
from widen.json.observation import type_facts
from widen.model.column_path import Path, fold_path, format_path, map_children
from widen.model.types import (
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    quote_name,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.protocol.partition_values import HIVE_NULL
from widen.rows.row import ColumnSlot, RecordRoute, widest_record_route
from widen.sources.arrow_columns import Nanos
from widen.sources.avro_columns import WITHOUT_RECURSION, find_recursion
from widen.sources.file_ranges import can_read, duplicate_fields, fields_of, with_field_steps
from widen.sources.listing import (
    FILE_SOURCES,
    FileFormat,
    SourceFile,
    SourceFiles,
    as_literal,
    decode_uri,
    file_key_column,
    source_error_reason,
    source_file_key,
    unusable_source,
)
from widen.spark.errors import environment_error_of_java, find_known_failure
from widen.spark.expression import join_columns
from widen.spark.session import SKIP_NO_FILE, is_driver
from widen.spark.spark_types import (
    Column,
    DataFrame,
    DataFrameReader,
    F,
    SparkSession,
    as_nullable,
    from_spark,
    spark_errors,
    to_spark,
    type_to_spark,
)

PLACE = StructType((Field("file", STRING), Field("number", LONG)))
"""The type of the location of a record."""

PLACE_TYPE = PLACE.sql

_PLACE = "_widen_place"
HEAD_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class TypedRecords:
    """Typed records.

    Args:
        frame: The records, in columns with numbers as names, so that names that differ only in case do not collide.
        schema: Their schema, with the names of the source.
        place: The file and the number of each record; None if unknown.
        unplaced: The records without their locations, which Spark reads faster; None without such a frame.
        head: Returns the first records of the first file, or some records of a DataFrame; None if that takes long.
        is_head_all: Whether a head with fewer than `HEAD_RECORDS` has all records.
        files: The Parquet files whose columns these are, if tasks can read them; empty if the records have more fields.
        names_by_file: Returns the fields of each of several files with different schemas, by `source_file_key`.
    """

    frame: DataFrame
    schema: StructType
    place: Column | None = None
    unplaced: DataFrame | None = None
    head: Callable[[], DataFrame] | None = None
    is_head_all: bool = False
    files: tuple[SourceFile, ...] = ()
    is_utf8: bool = False
    names_by_file: Callable[[], Mapping[str, frozenset[str]]] | None = None
    kind: str = "DataFrame"

    def coalesce(self, partitions: int) -> TypedRecords:
        """Return the records in at most so many partitions."""
        unplaced = None if self.unplaced is None else self.unplaced.coalesce(partitions)
        return replace(self, frame=self.frame.coalesce(partitions), unplaced=unplaced)

    @property
    def types(self) -> Mapping[str, DataType]:
        """The type of each field."""
        return {each.name: each.type for each in self.schema}

    @property
    def columns(self) -> Mapping[str, Column]:
        """The column of each field."""
        return {field.name: _with_field_steps(F.col(str(at)), field.type) for at, field in enumerate(self.schema)}


def to_typed_records(frame: DataFrame, name: str, *, is_placed: bool = False) -> TypedRecords:
    """Return the rows of a DataFrame as records."""
    fields = as_nullable(from_spark(frame.schema)).fields
    schema = StructType(fields[:-1] if is_placed else fields)
    duplicate = next(duplicate_fields(schema), None)
    if duplicate is not None:
        raise unusable_source(name, f"it has two columns named {format_path(duplicate)}", "Rename one of them.")
    numbered = frame.toDF(*map(str, range(len(schema.fields))), *([_PLACE] if is_placed else []))
    place = F.col(_PLACE) if is_placed else None
    return TypedRecords(numbered, schema, place, head=lambda: numbered.limit(HEAD_RECORDS), is_head_all=True)


def _with_field_steps(values: Column, data_type: DataType) -> Column:
    wanted = with_field_steps(data_type)
    return values if wanted == data_type else values.cast(type_to_spark(wanted))


def read_columnar(
    spark: SparkSession, source: SourceFiles, file_fields: FileFields, nanos: Nanos = Nanos.ERROR
) -> list[TypedRecords]:
    """Return the records of Parquet, Avro or ORC files.

    Args:
        nanos: What becomes of nanoseconds in ORC. Spark cuts them off itself; it cannot make texts of some.
    """
    reader = _reader(spark, source)
    paths = [file.path for file in source.files if file.size_bytes]
    try:
        odd = find_odd_leaves(spark, paths) if source.format is FileFormat.PARQUET else {}
        cut_times = {path: each.int96 for path, each in odd.items() if each.int96}
        frames = _frames(reader, source.format, [path for path in paths if path not in cut_times])
        records = []
        for frame, group in frames:
            if source.format is FileFormat.ORC and nanos is not Nanos.TRUNCATE:
                ensure_uncut(spark, frame, group)
            records.append(_records(frame, source, group, file_fields, odd))
        for leaves, group in _group_paths(cut_times):
            for frame, members in _frames(reader, source.format, group):
                read = partial(read_cut_times, spark, members, leaves=leaves)
                records += _split_cut_times(_records(frame, source, members, file_fields, odd), read)
        return records
    except spark_errors() as error:
        environment = environment_error_of_java(source.name, str(error))
        failure = find_known_failure(error) if environment is None else None
        if failure is not None:
            raise failure from error
        reason, name = _find_reason(error), source.format.value
        if _lacks_reader(reason):
            package = f"org.apache.spark:spark-{name}_2.13:{spark.version}"
            fix = f"Start Spark with its package: spark.jars.packages={package}"
            raise unusable_source(source.name, f"this Spark has no reader for {name}", fix) from error
        # Spark seldom says which file it was. Each is asked alone, so that no other is blamed.
        for fault in find_bad_schemas(spark, source).values():
            raise fault from error
        raise environment or unusable_source(source.name, reason, _find_fix(reason)) from error


def find_bad_schemas(spark: SparkSession, source: SourceFiles) -> dict[str, WidenError]:
    """Return the files whose schemas Spark cannot read, with the reason, by the path of the file."""
    reader = _reader(spark, source)

    def find_fault(path: str) -> WidenError | None:
        try:
            _ = _load(reader, [path]).schema
        except spark_errors() as error:
            failure = environment_error_of_java(path, str(error)) or find_known_failure(error)
            if failure is None:
                reason = _find_reason(error)
                failure = SourceContentError(source=path, reason=reason, fix=_find_fix(reason))
            if isinstance(failure, StorageError):
                raise failure from error
            return failure
        return None

    paths = [file.path for file in source.files if file.size_bytes]
    with ThreadPoolExecutor(_SCHEMAS_AT_ONCE, "widen-schemas") as pool:
        faults = zip(paths, pool.map(find_fault, paths), strict=True)
        return {path: fault for path, fault in faults if fault is not None}


_SCHEMAS_AT_ONCE = 8


def _lacks_reader(reason: str) -> bool:
    return "Failed to find data source" in reason or "DATA_SOURCE_NOT_FOUND" in reason


def _find_reason(error: Exception) -> str:
    """Return why Spark cannot read a file; of a recursive record in Avro, its name and the field that recurs."""
    _, _, schema = str(error).partition(_RECURSIVE)
    start = schema.find("{")
    try:
        found = find_recursion(JSONDecoder().raw_decode(schema[start:])[0]) if start >= 0 else None
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError):  # not the schema of a record
        found = None
    if found is None:
        return source_error_reason(error)
    return f"the record {found[0]} of its Avro schema contains itself, in the field {format_path(found[1])}"


_RECURSIVE = "recursive reference in Avro schema"
"""What Spark says before the schema of a record that contains itself."""


def _find_fix(reason: str) -> str:
    return next((fix for code, fix in _FIXES.items() if code in reason), "Use files in a supported format.")


WRITE_MICROSECONDS = (
    "Write times in microseconds (pyarrow: coerce_timestamps='us'), or set spark.sql.legacy.parquet.nanosAsLong in a "
    "Spark session to read them as integers."
)


_FIXES: Mapping[str, str] = MappingProxyType(
    {
        "NANOS": WRITE_MICROSECONDS,
        "UNSUPPORTED_TIME_TYPE": "Write times of day as strings or integers.",
        "DECIMAL_PRECISION": "Write at most 38 digits, or text.",
        "FLOAT16": "Write floats of 32 bits.",
        "contains itself": WITHOUT_RECURSION,
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
    except spark_errors() as error:
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
    """Yield the records that Spark reads as they are, and the records with times as text from `read_cut_times`."""
    times, texts = read(records.schema)
    # Spark underestimates how many these are, and would broadcast them.
    times = times.toDF(*(f"time_{name}" for name in times.columns)).hint("shuffle_merge")
    is_same = file_key_column(F.col(f"{_PLACE}.file")) == F.col("time_0")
    is_same &= F.col(f"{_PLACE}.number") == F.col("time_1")
    rest = records.frame.join(times, is_same, "left_anti")
    yield replace(records, frame=rest, unplaced=None, head=None, files=())
    values = [F.col(str(at)) for at in range(len(records.schema.fields))]
    fields = list(records.schema)
    for at, text in enumerate(texts, start=2):
        place = next(place for place, each in enumerate(fields) if each.name == text.name)
        missing = F.raise_error(F.concat(F.lit("The source changed while it was read: "), F.col("time_0")))
        values[place] = F.when(F.col(_PLACE).isNull(), missing).otherwise(F.col(f"time_{at}"))
        fields[place] = text
    both = records.frame.join(times, is_same, "right")
    columns = [value.alias(str(at)) for at, value in enumerate(values)]
    yield TypedRecords(both.select(*columns, _PLACE), StructType(tuple(fields)), records.place)


def _reader(spark: SparkSession, source: SourceFiles) -> DataFrameReader:
    reader = spark.read.format(FILE_SOURCES.get(source.format.value, source.format.value))
    return reader.options(**SKIP_NO_FILE).options(**source.options)


def _load(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    return reader.load([as_literal(path) for path in paths])


def _records(
    frame: DataFrame,
    source: SourceFiles,
    paths: Sequence[str],
    file_fields: FileFields,
    odd: Mapping[str, OddLeaves],
) -> TypedRecords:
    """Return the records with the fields from their files and their locations; only Parquet has row numbers."""
    own = with_void_leaves(frame, void_leaves(odd[path] for path in paths if path in odd))
    path = F.col("_metadata.file_path")
    from_files = _fields_from_files(path, paths, file_fields)
    number = F.col("_metadata.row_index") + F.lit(1) if source.format is FileFormat.PARQUET else F.lit(0)
    place = F.struct(path.alias("file"), number.alias("number")).cast(PLACE_TYPE)
    named = merge_file_fields({name: F.col(quote_name(name)) for name in frame.columns}, from_files)
    fields = [value.alias(key) for key, value in named.items()][len(frame.columns) :]

    def add_fields(rows: DataFrame) -> TypedRecords:
        return to_typed_records(rows.select(*own, *fields, place.alias(_PLACE)), source.name, is_placed=True)

    def head() -> DataFrame:
        # One task reads the file from its start, and ends early.
        first = _load(_reader(frame.sparkSession, source).schema(frame.schema), [min(paths)])
        return add_fields(first).frame.coalesce(1).limit(HEAD_RECORDS)

    names = map(str, range(len(named)))
    files = () if from_files else _find_task_files(frame.sparkSession, source, paths)
    unplaced, is_one = frame.select(*own, *fields).toDF(*names), len(paths) == 1
    found = add_fields(frame)
    # Spark finds one schema for all of them, except of Avro.
    names_by_file = None
    if not (is_one or source.format is FileFormat.AVRO):
        names_by_file = partial(_names_by_file, _reader(frame.sparkSession, source), paths, found.schema)
    return replace(found, unplaced=unplaced, head=head, is_head_all=is_one, files=files, names_by_file=names_by_file)


def _names_by_file(reader: DataFrameReader, paths: Sequence[str], schema: StructType) -> dict[str, frozenset[str]]:
    own = {path: frozenset(_load(reader, [path]).columns) for path in paths}
    # No file itself has the fields that records get from their files.
    added = frozenset(schema.names).difference(*own.values())
    return {source_file_key(path): names | added for path, names in own.items()}


def _find_task_files(spark: SparkSession, source: SourceFiles, paths: Sequence[str]) -> tuple[SourceFile, ...]:
    """Return the files, if they are Parquet and tasks can read them; else none."""
    members = set(paths)
    files = tuple(file for file in source.files if file.path in members)
    is_readable = (
        source.format is FileFormat.PARQUET and not source.options and is_driver(spark) and can_read(spark, files)
    )
    return files if is_readable else ()


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
        uri = F.regexp_replace(path, LOCAL_URI, PLAIN_LOCAL_URI)
        columns = merge_file_fields(columns, {SOURCE_FILE + SIGN: uri, LOADED_AT + SIGN: loaded_at})
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


# Times that Spark would cut: ORC counts nanoseconds, and Spark reads them as microseconds.
#
# Read as strings, the times have all their digits.
#
# Source: docs/evolution-rules.md#d2, #d16; Spark's OrcDeserializer


_NANOSECONDS = r"\.[0-9]{7}"
_FIX = (
    "Write the times in microseconds or as strings, or let nanos='truncate' (--nanos truncate) cut the other digits "
    "off. In ORC, nanos='text' has no effect."
)


def ensure_uncut(spark: SparkSession, frame: DataFrame, paths: Sequence[str]) -> None:
    """Check that no time in ORC files has nanoseconds, which no column can hold.

    Raises:
        SourceContentError: a time has nanoseconds; the error names its file.
    """
    timed = [field for field in from_spark(frame.schema) if _as_text(field.type) != field.type]
    checks = [check for field in timed for check in _checks(F.col(quote_name(field.name)), field.type)]
    if not checks:
        return
    texts = StructType(tuple(replace(field, type=_as_text(field.type)) for field in timed))
    rows = spark.read.schema(to_spark(texts)).orc(list(map(as_literal, paths)))
    is_cut = join_columns(lambda one, two: one | two, checks)
    for row in rows.where(is_cut).select("_metadata.file_path").limit(1).collect():
        reason = "it has times with nanoseconds, which Spark would cut"
        raise SourceContentError(source=unquote(row[0]), reason=reason, fix=_FIX)


def _as_text(data_type: DataType) -> DataType:
    """Return a type with strings instead of times."""
    is_time = data_type in (TIMESTAMP, TIMESTAMP_NTZ)
    return STRING if is_time else map_children(data_type, lambda _, child: _as_text(child))


def _checks(texts: Column, data_type: DataType) -> Iterator[Column]:
    """Yield, for each time in a type, whether a value has nanoseconds there."""
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from _checks(texts.getField(field.name), field.type)
        case ArrayType(element):
            for number, _ in enumerate(_checks(F.lit(None), element)):
                yield F.coalesce(F.exists(texts, partial(_check, element, number)), F.lit(False))
        case MapType(key, value):
            yield from _checks(F.map_keys(texts), ArrayType(key))
            yield from _checks(F.map_values(texts), ArrayType(value))
        case _ if data_type in (TIMESTAMP, TIMESTAMP_NTZ):
            yield F.coalesce(texts.rlike(_NANOSECONDS), F.lit(False))


def _check(data_type: DataType, number: int, texts: Column) -> Column:
    return list(_checks(texts, data_type))[number]


# The field rules of the policy for the schema of the source.
#
# Variants become JSON texts. Strings that are read as dates get a type of their own; the conversions to the types of
# columns read them. The rule for objects that are maps does not apply to typed values.
#
# Source: docs/evolution-rules.md#d6, #d7, #d13, #d16


def opaque_rule_paths(data_type: DataType, rules: FieldRules, at: Path = ()) -> Iterator[Path]:
    """Yield the paths of variants with a field to exclude or mask, because rules cannot apply inside a variant."""
    if rules.is_hidden:
        return
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from opaque_rule_paths(field.type, rules.at(field.name), (*at, field.name))
        case ArrayType(inner) | MapType(_, inner):
            yield from opaque_rule_paths(inner, rules, at)
        case _ if data_type == VARIANT and rules.hidden:
            yield at


def has_map_key(fields: Mapping[str, Column], schema: StructType, path: Path) -> Column | None:
    """Return whether a map in a record has the key that a path names; None if no map is on the path."""
    typed = ((fields[field.name], field) for field in schema if similarity_key(field.name) == similarity_key(path[0]))
    return _any_of(_has_key(values, field.type, fold_path(path[1:])) for values, field in typed)


def _has_key(values: Column, data_type: DataType, path: Path) -> Column | None:
    if not path:
        return None
    match data_type:
        case StructType():
            named = (typed for name, typed in fields_of(values, data_type).items() if similarity_key(name) == path[0])
            return _any_of(_has_key(inner, inner_type, path[1:]) for inner, inner_type in named)
        case ArrayType(element):
            if _has_key(F.lit(None), element, path) is None:
                return None
            return F.exists(values, lambda item: cast(Column, _has_key(item, element, path)))
        case MapType(_, value):
            has_key = F.exists(F.map_keys(values), lambda key: _fold_names(key) == _fold_name(path[0]))
            if _has_key(F.lit(None), value, path) is None:
                return has_key
            return has_key | F.exists(F.map_values(values), lambda item: cast(Column, _has_key(item, value, path)))
    return None


def _any_of(conditions: Iterator[Column | None]) -> Column | None:
    known = [condition for condition in conditions if condition is not None]
    return reduce(operator.or_, known) if known else None


def _fold_name(name: str) -> str:
    return name.lower().upper().lower().translate({0x3C2: 0x3C3, 0x307: None})


def _fold_names(keys: Column) -> Column:
    """Return keys in a form that is equal if `similarity_key` is."""
    folded = F.lower(F.upper(F.lower(keys.cast("string"))))
    return F.translate(folded, "\u03c2\u0307", "\u03c3")


def is_untouched(data_type: DataType, rules: FieldRules) -> bool:
    """Return whether no field rule applies to values of a type, and they have no variants and no dates in strings."""
    if rules.hidden:
        return False
    match data_type:
        case StructType(fields):
            return all(_is_as_is(rules.at(f.name)) and is_untouched(f.type, rules.at(f.name)) for f in fields)
        case ArrayType(element):
            return is_untouched(element, rules)
        case MapType(_, value):
            return is_untouched(value, rules)
    return data_type not in (VARIANT, VOID) and not (data_type == STRING and rules.reads_times)


def void_fields(schema: StructType, rules: FieldRules) -> StructType:
    """Return the part of a schema that is of type void, without what field rules hide or make texts of."""
    return StructType(
        tuple(
            replace(field, type=found)
            for field in schema
            if _is_as_is(rules.at(field.name))
            and (found := _pending_type(field.type, rules.at(field.name))) is not None
        )
    )


def _pending_type(data_type: DataType, rules: FieldRules) -> DataType | None:
    match data_type:
        case StructType():
            inner = void_fields(data_type, rules)
            return inner if inner.fields else None
        case ArrayType(element):
            found = _pending_type(element, rules)
            return None if found is None else ArrayType(found)
        case MapType(key, value):
            found = _pending_type(value, rules)
            return None if found is None else MapType(key, found)
    return data_type if data_type == VOID else None


def fill_voids(source: StructType, route: RecordRoute) -> StructType:
    """Return a schema with the types of columns instead of void.

    So what is around a null keeps its place in these columns: an empty list stays one. Void without a column stays.

    Source: docs/evolution-rules.md#d7
    """
    return StructType(tuple(replace(each, type=_fill(each.type, route.get(each.name, ()), 0)) for each in source))


def _fill(data_type: DataType, slots: Sequence[ColumnSlot], dim: int) -> DataType:
    wide = [slot for slot in slots if slot.dim >= dim]
    match data_type:
        case ArrayType(element):
            return ArrayType(_fill(element, slots, dim + 1))
        case StructType():
            route = widest_record_route(wide)
            filled = data_type if route is None else fill_voids(data_type, route)
            if route is None or not is_void(filled) or not filled.fields:
                return filled
            # The record has a place, although its fields have no place.
            return StructType((replace(filled.fields[0], type=STRING), *filled.fields[1:]))
        case MapType(key, value):
            entries = [slot.entries for slot in wide if slot.entries is not None]
            return MapType(key, _fill(value, entries, 0))
        case _ if data_type == VOID:
            return next((found for slot in wide if (found := _type_of_null(slot)) is not None), VOID)
    return data_type


def _type_of_null(slot: ColumnSlot) -> DataType | None:
    """Return a type of a source whose nulls a column takes."""
    if slot.record is not None:
        inner = ((key, _fill(VOID, slots, 0)) for key, slots in slot.record.items())
        return next((StructType((Field(key, found),)) for key, found in inner if found != VOID), None)
    if slot.entries is not None:
        found = _fill(VOID, [slot.entries], 0)
        return None if found == VOID else MapType(STRING, found)
    return None if type_facts(slot.type) is None else slot.type


def without_voids(schema: StructType) -> StructType:
    """Return a schema without what is of type void."""
    return cast(StructType, _without_voids(schema))


def _without_voids(data_type: DataType) -> DataType:
    mapped = map_children(data_type, lambda _, child: _without_voids(child))
    if isinstance(mapped, StructType):
        return StructType(tuple(field for field in mapped if not is_void(field.type)))
    return mapped


def is_void(data_type: DataType) -> bool:
    """Return whether a type has no values; neither has a struct without fields."""
    match data_type:
        case ArrayType(inner) | MapType(_, inner):
            return is_void(inner)
        case StructType(fields):
            return all(is_void(field.type) for field in fields)
    return data_type == VOID


def _is_as_is(rules: FieldRules) -> bool:
    return rules.take is FieldRule.AS_IS
