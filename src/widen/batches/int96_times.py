"""What Spark does not read exactly from Parquet files: times in INT96, and columns of the type null.

INT96 counts nanoseconds, and Spark reads it as microseconds. A record with such a time has it as text, so that no digit
is lost. Times in whole microseconds stay timestamps. Spark reads a column of the type null as one of integers.

Source: docs/evolution-rules.md#d2, #d7, #d16; Spark's ParquetRowConverter and ParquetSchemaConverter
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from widen.files.arrow_types import to_arrow_schema
from widen.files.footers import leaf_types
from widen.limits import DRIVER_FOOTERS
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, map_children
from widen.model.types import INTEGER, LONG, STRING, ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.sources.listing import as_literal, source_file_key
from widen.spark.errors import ignore_failed_cleanup
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, from_spark, spark_errors, to_spark

CutTimes: TypeAlias = frozenset[Path]
"""The paths of the leaves with times that Spark would cut."""

_THREADS, _ROWS = 16, 16_384
_FILE, _NUMBER, _LEAVES, _NULLS, _INTEGERS, _CONTENT = "file", "number", "leaves", "nulls", "integers", "content"
_AS_TIMES = "spark.sql.parquet.int96AsTimestamp"
_SPARK_KEYS = frozenset({b"org.apache.spark.version", b"org.apache.spark.sql.parquet.row.metadata"})
"""Keys in the footers of files from Spark, whose times are whole microseconds."""


@dataclass(frozen=True, slots=True)
class OddLeaves:
    """The leaves of a file that Spark may read in another way.

    Args:
        int96: The INT96 leaves of a file that Spark did not write; after reading the times, only the leaves that Spark
            would cut.
        nulls: The leaves of the type null.
        integers: The integer leaves, which Spark merges with leaves of the type null in other files.
    """

    int96: CutTimes = frozenset()
    nulls: frozenset[Path] = frozenset()
    integers: frozenset[Path] = frozenset()


def find_odd_leaves(spark: SparkSession, paths: Sequence[str]) -> dict[str, OddLeaves]:
    """Return the leaves of Parquet files with times that Spark would cut, and the leaves of the type null.

    The times are looked at only in files with INT96 that Spark did not write.

    Args:
        paths: The files. Where pyarrow cannot open one, Spark reads its bytes.
    """
    by_key, hidden = {source_file_key(path): path for path in paths}, list[str]()
    odd: dict[str, OddLeaves] = {}
    if len(paths) <= DRIVER_FOOTERS:
        on_driver = _leaves_on_driver(paths)
        hidden = [path for path, each in on_driver.items() if each is None]
        odd = {path: replace(each, int96=frozenset()) for path, each in on_driver.items() if each is not None}
        paths = [path for path, each in on_driver.items() if each is not None and each.int96]
    scanned = _scan_files(_distribute(spark, paths)) if paths else {}
    hidden += [by_key[key] for key, each in scanned.items() if each is None]
    if hidden and (_has_int96(spark, hidden) or _lacks_integers(spark, hidden)):
        scanned |= _scan_files(_read_bytes(spark, hidden))
    return odd | {by_key[key]: each for key, each in scanned.items() if each is not None}


def void_leaves(files: Iterable[OddLeaves]) -> frozenset[Path]:
    """Return the leaves that are of the type null in all files that have them."""
    each = list(files)
    return frozenset().union(*(file.nulls for file in each)) - frozenset().union(*(file.integers for file in each))


def with_void_leaves(frame: DataFrame, voids: frozenset[Path]) -> list[Column]:
    """Return the columns of files, with void instead of some leaves."""
    columns = []
    for field in from_spark(frame.schema):
        values, roots = F.col(quote_name(field.name)), [path for path in voids if path[0] == field.name]
        columns.append((_void(values, field.type, (field.name,), voids) if roots else values).alias(field.name))
    return columns


def _void(values: Column, data_type: DataType, path: Path, voids: frozenset[Path]) -> Column:
    if path in voids:
        return F.lit(None)
    match data_type:
        case StructType(fields):
            inner = [_void(values.getField(f.name), f.type, (*path, f.name), voids).alias(f.name) for f in fields]
            return F.when(values.isNotNull(), F.struct(*inner))
        case ArrayType(element):
            return F.transform(values, lambda item: _void(item, element, (*path, ELEMENT), voids))
        case MapType(_, value):
            return F.transform_values(values, lambda _, item: _void(item, value, (*path, VALUE), voids))
    return values


def read_cut_times(
    spark: SparkSession, paths: Sequence[str], schema: StructType, leaves: CutTimes
) -> tuple[DataFrame, StructType]:
    """Return the records with times that Spark would cut: their file, their number, and the columns with such times.

    Returns:
        Columns with numbers as names: the key of the file, the number of the record, and then one for each
        returned field. In these fields, text replaces the times.
    """
    roots = {leaf[0] for leaf in leaves}
    texts = StructType(tuple(replace(f, type=_as_text(f.type, (f.name,), leaves)) for f in schema if f.name in roots))
    columns = StructType((Field(_FILE, STRING), Field(_NUMBER, LONG), *texts))
    numbered = StructType(tuple(replace(field, name=str(at)) for at, field in enumerate(columns)))
    leaves_by_path = _leaves_on_driver(paths)
    hidden = [path for path in paths if leaves_by_path[path] is None]
    opened = [path for path in paths if leaves_by_path[path] is not None]
    files = _distribute(spark, opened) if opened else _read_bytes(spark, hidden)
    if opened and hidden:
        files = files.unionAll(_read_bytes(spark, hidden))
    rows = files.mapInArrow(partial(_read_batches, texts, leaves), to_spark(numbered))
    return rows, texts


def _leaves_on_driver(paths: Sequence[str]) -> dict[str, OddLeaves | None]:
    with ThreadPoolExecutor(_THREADS, "widen-int96") as pool:
        return dict(zip(paths, pool.map(_find_odd, paths), strict=True))


def _distribute(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the files for tasks, which open them."""
    rows = [(path, None) for path in paths]
    return spark.createDataFrame(rows, f"{_FILE} string, {_CONTENT} binary").repartition(min(len(paths), 200))


def _read_bytes(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the files for tasks, with their bytes as Spark reads them."""
    return spark.read.format("binaryFile").load(list(map(as_literal, paths))).select("path", _CONTENT)


def _has_int96(spark: SparkSession, paths: Sequence[str]) -> bool:
    """Return whether a file has a column of this type: Spark refuses it if it must not take the column for times."""
    # Spark's schema does not distinguish INT96 from other timestamps; only this refusal does.
    before = spark.conf.get(_AS_TIMES, "true") or "true"
    spark.conf.set(_AS_TIMES, "false")
    try:
        return any(not spark.read.parquet(as_literal(path)).schema for path in paths)
    except spark_errors() as error:
        return "INT96" in str(error)
    finally:
        with ignore_failed_cleanup():
            spark.conf.set(_AS_TIMES, before)


def _lacks_integers(spark: SparkSession, paths: Sequence[str]) -> bool:
    """Return whether a file has a leaf of integers without a value, which may be of the type null."""
    for path in paths:
        frame = spark.read.parquet(as_literal(path))
        values = [each for f in from_spark(frame.schema) for each in _has_integer(F.col(quote_name(f.name)), f.type)]
        columns = [F.max(each).alias(str(at)) for at, each in enumerate(values)]
        if columns and not all(frame.select(*columns).collect()[0]):
            return True
    return False


def _has_integer(values: Column, data_type: DataType) -> Iterator[Column]:
    """Yield, for each leaf of integers in a type, whether a record has a value there."""
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from _has_integer(values.getField(field.name), field.type)
        case ArrayType(element):
            for number, _ in enumerate(_has_integer(F.lit(None), element)):
                yield F.coalesce(F.exists(values, partial(_has_nth_integer, element, number)), F.lit(False))
        case MapType(_, value):
            yield from _has_integer(F.map_values(values), ArrayType(value))
        case _ if data_type == INTEGER:
            yield values.isNotNull()


def _has_nth_integer(data_type: DataType, number: int, values: Column) -> Column:
    return list(_has_integer(values, data_type))[number]


def _open(path: str, content: bytes | None = None, unit: str = "us") -> pq.ParquetFile:
    if content is not None:
        return pq.ParquetFile(pa.BufferReader(content), coerce_int96_timestamp_unit=unit)
    if path.startswith("file:"):
        return pq.ParquetFile(re.sub("^file:/*", "/", path), coerce_int96_timestamp_unit=unit)
    files, place = FileSystem.from_uri(re.sub("^s3[an]:", "s3:", quote(path, safe="/:")))
    return pq.ParquetFile(files.open_input_file(place), coerce_int96_timestamp_unit=unit)


def _find_odd(path: str, content: bytes | None = None) -> OddLeaves | None:
    """Return the odd leaves of a file; None if pyarrow cannot open it."""
    try:
        with _open(path, content) as file:
            stored = list(leaf_types(file.schema_arrow))
            int96 = {leaf for at, (leaf, _) in enumerate(stored) if file.schema.column(at).physical_type == "INT96"}
            is_of_spark = _SPARK_KEYS & (file.metadata.metadata or {}).keys()
    except (OSError, pa.ArrowException):
        return None
    return OddLeaves(
        frozenset() if is_of_spark else frozenset(int96),
        frozenset(leaf for leaf, found in stored if pa.types.is_null(found)),
        frozenset(leaf for leaf, found in stored if found == pa.int32()),
    )


def _batches(path: str, content: bytes | None, roots: Iterable[str]) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield columns in parts: once with times in microseconds, and once in nanoseconds, which wrap around."""
    with _open(path, content) as in_micros, _open(path, content, "ns") as in_nanos:
        parts = (file.iter_batches(_ROWS, columns=sorted(roots)) for file in (in_micros, in_nanos))
        yield from zip(*parts, strict=True)


# ---- which leaves have such times ------------------------------------------------------------------


def _scan_files(files: DataFrame) -> dict[str, OddLeaves | None]:
    """Return the odd leaves by the key of the file, with the times that Spark would cut; None if it is not opened."""
    names = (_FILE, _LEAVES, _NULLS, _INTEGERS)
    rows = files.mapInArrow(_scan_batches, ", ".join(f"{name} string" for name in names)).collect()
    return {
        row[_FILE]: None if row[_LEAVES] is None else OddLeaves(*(_to_leaves(row[name]) for name in names[1:]))
        for row in rows
    }


def _to_leaves(text: str) -> frozenset[Path]:
    return frozenset(map(tuple, json.loads(text)))


def _scan_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for path, content in _files_of(batches):
        odd = _scan(path, content)
        found = [None] * 3 if odd is None else [json.dumps(sorted(e)) for e in (odd.int96, odd.nulls, odd.integers)]
        columns = [pa.array([value], pa.string()) for value in (source_file_key(path), *found)]
        yield pa.RecordBatch.from_arrays(columns, names=[_FILE, _LEAVES, _NULLS, _INTEGERS])


def _files_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, bytes | None]]:
    return (
        (path, data) for batch in batches for path, data in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    )


def _scan(path: str, content: bytes | None) -> OddLeaves | None:
    odd, cut = _find_odd(path, content), set[Path]()
    if odd is None:
        return None
    candidates = odd.int96
    for batches in _batches(path, content, {leaf[0] for leaf in candidates}) if candidates else ():
        micros, nanos = (dict(_flatten_columns(batch)) for batch in batches)
        open_leaves = (candidates & nanos.keys()) - cut
        cut |= {leaf for leaf in open_leaves if pc.any(pc.not_equal(_rest(micros[leaf], nanos[leaf]), 0)).as_py()}
    return replace(odd, int96=frozenset(cut))


def _rest(micros: pa.Array, nanos: pa.Array) -> pa.Array:
    """Return the nanoseconds beyond the microseconds, 0 to 999: both counts wrap around at 64 bits."""
    return pc.subtract(nanos.cast(pa.int64()), pc.multiply(micros.cast(pa.int64()), 1000))


def _flatten_columns(batch: pa.RecordBatch) -> Iterator[tuple[Path, pa.Array]]:
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        yield from _flatten(values, (name,))


def _flatten(values: pa.Array, path: Path) -> Iterator[tuple[Path, pa.Array]]:
    """Yield the values of each leaf, without the nulls above it."""
    if pa.types.is_struct(values.type):
        for at, field in enumerate(values.type):
            yield from _flatten(values.flatten()[at], (*path, field.name))
    elif pa.types.is_map(values.type):
        entries = values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field]))).flatten()
        for part, step in zip(entries.flatten(), (KEY, VALUE), strict=True):
            yield from _flatten(part, (*path, step))
    elif pa.types.is_nested(values.type):
        yield from _flatten(values.flatten(), (*path, ELEMENT))
    else:
        yield path, values


# ---- records with such times -----------------------------------------------------------------------


def _read_batches(texts: StructType, leaves: CutTimes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    types = [pa.string(), pa.int64(), *to_arrow_schema(texts).types]
    for path, content in _files_of(batches):
        number = 0
        for micros, nanos in _batches(path, content, [field.name for field in texts]):
            rows = _cut_rows(texts, leaves, micros, nanos)
            cut_rows = [(source_file_key(path), number + at, *row) for at, row in rows]
            number += len(micros)
            columns = [pa.array([row[at] for row in cut_rows], type) for at, type in enumerate(types)]
            yield pa.RecordBatch.from_arrays(columns, names=[str(at) for at in range(len(types))])


def _cut_rows(
    texts: StructType, leaves: CutTimes, micros: pa.RecordBatch, nanos: pa.RecordBatch
) -> Iterator[tuple[int, list[Any]]]:
    """Yield the rows with a time that Spark would cut, by their number from 1, with these times as text."""
    parts = [[_to_integers(part[field.name]).to_pylist() for part in (micros, nanos)] for field in texts]
    for at, row in enumerate(zip(*(zip(*part, strict=True) for part in parts), strict=True), start=1):
        speller = _Speller(leaves)
        pairs = zip(row, texts, strict=True)
        values = [speller.spell(micro, nano, (f.name,), f.type) for (micro, nano), f in pairs]
        if speller.has_rest:
            yield at, values


def _to_integers(values: pa.Array) -> pa.Array:
    """Return times as integers, since Python has no times in nanoseconds."""
    return values.cast(_integer_type(values.type))


def _integer_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(data_type):
        return pa.int64()
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_integer_type(field.type)) for field in data_type])
    if pa.types.is_map(data_type):
        return pa.map_(_integer_type(data_type.key_type), _integer_type(data_type.item_type))
    return pa.list_(_integer_type(data_type.value_type)) if pa.types.is_nested(data_type) else data_type


@dataclass
class _Speller:
    """Writes the times of one row as text; it notes whether one of them has more than microseconds."""

    leaves: CutTimes
    has_rest: bool = False

    def spell(self, micros: Any, nanos: Any, path: Path, data_type: DataType) -> Any:
        """Return a value that Arrow accepts for its type, with the times at the leaves as text."""
        if micros is None:
            return None
        match data_type:
            case StructType():
                return {
                    f.name: self.spell(micros[f.name], nanos[f.name], (*path, f.name), f.type)
                    for f in data_type
                    if f.name in micros
                }
            case ArrayType(element):
                pairs = zip(micros, nanos, strict=True)
                return [self.spell(item, item_nanos, (*path, ELEMENT), element) for item, item_nanos in pairs]
            case MapType(key, value):
                pairs = zip(micros, nanos, strict=True)
                return [
                    (self.spell(k, kn, (*path, KEY), key), self.spell(v, vn, (*path, VALUE), value))
                    for (k, v), (kn, vn) in pairs
                ]
        return self._text(micros, (nanos - micros * 1000) % 2**64) if path in self.leaves else micros

    def _text(self, micros: int, rest: int) -> str:
        self.has_rest = self.has_rest or rest != 0
        text = pa.scalar(micros, pa.timestamp("us")).cast(pa.string()).as_py().replace(" ", "T")
        return f"{text}{rest:03}".rstrip("0").rstrip(".") + "Z"


def _as_text(data_type: DataType, path: Path, leaves: CutTimes) -> DataType:
    """Return a type with strings at the leaves."""
    if path in leaves:
        return STRING
    return map_children(data_type, lambda step, child: _as_text(child, (*path, step), leaves))
